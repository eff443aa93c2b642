"""Axolotl: a plug-in. In the run's YAML:

plugins:
  - errornorm.integrations.axolotl.ErrorNormPlugin
errornorm: ent_fraction(0.1, start=200)
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from ..specs import objective
from .trainer import robust

try:
    from axolotl.integrations.base import BasePlugin
except ImportError as error:
    raise ImportError("this adapter is loaded by axolotl, which is not installed: pip install axolotl") from error

RIVALS = (
    "liger_fused_linear_cross_entropy",
    "cut_cross_entropy",
    "chunked_cross_entropy",
    "unsloth_cross_entropy_loss",
)


class ErrorNormArgs(BaseModel):
    """What the plug-in adds to axolotl's configuration."""

    errornorm: str = "mle()"  # an objective, as on the command line
    errornorm_options: dict[str, Any] | None = None  # of `errornorm.attach`


class ErrorNormPlugin(BasePlugin):  # type: ignore[misc]
    """Train with an objective."""

    def get_input_args(self) -> str:
        return f"{__name__}.{ErrorNormArgs.__name__}"

    def post_trainer_create(self, cfg: Any, trainer: Any) -> None:
        for rival in RIVALS:
            if getattr(cfg, rival, None):
                raise ValueError(f"{rival} would bypass the objective: set it to false")
        self.handle = robust(trainer, objective(cfg.errornorm), **(cfg.errornorm_options or {}))
