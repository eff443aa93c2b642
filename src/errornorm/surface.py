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
    ent_auto,
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
from .objectives import Objective
from .specs import objective
from .starts import delayed
from .stats import TokenStats

if TYPE_CHECKING:
    from .curation.detect import detect
    from .curation.prune import prune
    from .curation.summary import summarize
    from .reporting.build import report
    from .scoring.run import score
    from .scoring.table import Scores
    from .training.config import TrainConfig
    from .training.run import train
    from .training.use import evaluate, generate

__all__ = [
    "KERNELS",
    "METHODS",
    "LossTerms",
    "Objective",
    "RobustLoss",
    "Scores",
    "TokenStats",
    "TrainConfig",
    "VocabShard",
    "attach",
    "corrupt",
    "delayed",
    "detect",
    "dft",
    "eaft",
    "ent_auto",
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
    "prune",
    "random_truncation",
    "report",
    "rho1",
    "score",
    "summarize",
    "tailr",
    "token_loss_truncation",
    "token_stats",
    "train",
    "weighted",
]

_HEAVY = {  # these need the extra `train`, and are loaded when they are used
    "Scores": ".scoring.table",
    "TrainConfig": ".training.config",
    "detect": ".curation.detect",
    "evaluate": ".training.use",
    "generate": ".training.use",
    "prune": ".curation.prune",
    "report": ".reporting.build",
    "score": ".scoring.run",
    "summarize": ".curation.summary",
    "train": ".training.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HEAVY:
        raise AttributeError(name)
    return getattr(importlib.import_module(_HEAVY[name], __package__), name)
