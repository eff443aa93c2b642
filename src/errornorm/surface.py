"""The public surface. `errornorm` itself loads it with the first name that is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .batch import token_stats
from .data.noise import corrupt
from .head import VocabShard
from .integrations.attach import attach
from .kernels import KERNELS
from .loss import LossTerms, RobustLoss
from .methods import (
    METHODS,
    dft,
    eaft,
    ent_fraction,
    ent_threshold,
    focal,
    generalized_ce,
    loss_truncation,
    mixce,
    mle,
    random_truncation,
    rho1,
    tailr,
    token_loss_truncation,
    weighted,
)
from .objectives import Objective, delayed
from .specs import objective
from .stats import TokenStats

if TYPE_CHECKING:
    from .training.config import TrainConfig
    from .training.run import train
    from .training.use import evaluate, generate

__all__ = [
    "KERNELS",
    "METHODS",
    "LossTerms",
    "Objective",
    "RobustLoss",
    "TokenStats",
    "TrainConfig",
    "VocabShard",
    "attach",
    "corrupt",
    "delayed",
    "dft",
    "eaft",
    "ent_fraction",
    "ent_threshold",
    "evaluate",
    "focal",
    "generalized_ce",
    "generate",
    "loss_truncation",
    "mixce",
    "mle",
    "objective",
    "random_truncation",
    "rho1",
    "tailr",
    "token_loss_truncation",
    "token_stats",
    "train",
    "weighted",
]

_HEAVY = {  # these need the extra `train`, and are loaded when they are used
    "TrainConfig": ".training.config",
    "evaluate": ".training.use",
    "generate": ".training.use",
    "train": ".training.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HEAVY:
        raise AttributeError(name)
    return getattr(importlib.import_module(_HEAVY[name], __package__), name)
