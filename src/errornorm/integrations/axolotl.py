"""Axolotl: a plug-in. In the run's YAML:

plugins:
  - errornorm.integrations.axolotl.ErrorNormPlugin
errornorm: ent_fraction(0.1, start=200)
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, field_validator, model_validator

from ..specs import objective
from .trainer import robust

try:
    from axolotl.integrations.base import BasePlugin
except ImportError as error:
    raise ImportError("this adapter is loaded by axolotl, which is not installed: pip install axolotl") from error

RIVALS = (
    "cut_cross_entropy",
    "kd_trainer",
    "liger_fused_linear_cross_entropy",
    "process_reward_model",
    "reward_model",
    "rl",
    "use_eaft",
)  # settings under which something else computes the loss


class ErrorNormArgs(BaseModel):
    """What the plug-in adds to axolotl's configuration."""

    errornorm: str  # an objective, as on the command line
    errornorm_options: dict[str, Any] | None = None  # of `errornorm.attach`

    @field_validator("errornorm")
    @classmethod
    def _is_an_objective(cls, spec: str) -> str:
        objective(spec)
        return spec

    @model_validator(mode="after")
    def _has_no_rival(self) -> ErrorNormArgs:
        for rival in RIVALS:  # axolotl's own fields: it merges them and ours into one model
            if getattr(self, rival, None):
                raise ValueError(f"{rival} would bypass the objective {self.errornorm}: leave it out")
        return self


class ErrorNormPlugin(BasePlugin):  # type: ignore[misc]
    """Train with an objective."""

    def get_input_args(self) -> str:
        return f"{__name__}.{ErrorNormArgs.__name__}"

    def post_trainer_create(self, cfg: Any, trainer: Any) -> None:
        self.handle = robust(trainer, objective(cfg.errornorm), **(cfg.errornorm_options or {}))
