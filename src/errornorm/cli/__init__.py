"""The command line. A verb parses, calls one library function, prints; torch is imported by the verbs that need it."""

from . import corpora, detects, parts, prunes, reports, reproduces, runs, scores, summaries
from .app import EXITS, app, explain, main

__all__ = [
    "EXITS",
    "app",
    "corpora",
    "detects",
    "explain",
    "main",
    "parts",
    "prunes",
    "reports",
    "reproduces",
    "runs",
    "scores",
    "summaries",
]
