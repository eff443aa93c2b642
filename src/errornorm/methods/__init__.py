"""All methods, by name."""

from __future__ import annotations

from collections.abc import Callable

from ..objectives import Objective
from .dft import dft
from .eaft import eaft
from .ent_auto import ent_auto
from .ent_fraction import ent_fraction
from .ent_threshold import ent_threshold
from .focal import focal
from .generalized_ce import generalized_ce
from .loss_truncation import loss_truncation
from .mixce import mixce
from .mle import mle
from .random_truncation import random_truncation
from .rho1 import rho1
from .tailr import tailr
from .token_loss_truncation import token_loss_truncation
from .weighted import weighted

__all__ = [
    "METHODS",
    "dft",
    "eaft",
    "ent_auto",
    "ent_fraction",
    "ent_threshold",
    "focal",
    "generalized_ce",
    "loss_truncation",
    "mixce",
    "mle",
    "random_truncation",
    "rho1",
    "tailr",
    "token_loss_truncation",
    "weighted",
]

METHODS: dict[str, Callable[..., Objective]] = {
    "mle": mle,
    "ent_fraction": ent_fraction,
    "ent_threshold": ent_threshold,
    "ent_auto": ent_auto,
    "loss_truncation": loss_truncation,
    "tailr": tailr,
    "random_truncation": random_truncation,
    "token_loss_truncation": token_loss_truncation,
    "rho1": rho1,
    "dft": dft,
    "mixce": mixce,
    "eaft": eaft,
    "focal": focal,
    "generalized_ce": generalized_ce,
    "weighted": weighted,
}
