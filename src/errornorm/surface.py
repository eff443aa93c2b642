"""The public surface, eagerly. `errornorm` itself loads it with the first name that is used."""

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

__all__ = [
    "KERNELS",
    "METHODS",
    "LossTerms",
    "Objective",
    "RobustLoss",
    "TokenStats",
    "VocabShard",
    "attach",
    "corrupt",
    "delayed",
    "dft",
    "eaft",
    "ent_fraction",
    "ent_threshold",
    "focal",
    "generalized_ce",
    "loss_truncation",
    "mixce",
    "mle",
    "objective",
    "random_truncation",
    "rho1",
    "tailr",
    "token_loss_truncation",
    "token_stats",
    "weighted",
]
