"""The command line. A verb parses, calls one library function, prints; torch is imported by the verbs that need it."""

from . import corpora, parts, runs
from .app import EXITS, app, explain, main

__all__ = ["EXITS", "app", "corpora", "explain", "main", "parts", "runs"]
