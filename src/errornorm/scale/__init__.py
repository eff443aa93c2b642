"""How cost grows, on paper and as measured: fits, what crosses the ranks, a projection, and the page about it."""

from __future__ import annotations

from .fit import Fit, fit
from .large import projection_section
from .measured import corpus_section, growth_section, ranks_section
from .traffic import SCOPES, Load, Sends

__all__ = [
    "SCOPES",
    "Fit",
    "Load",
    "Sends",
    "corpus_section",
    "fit",
    "growth_section",
    "projection_section",
    "ranks_section",
]
