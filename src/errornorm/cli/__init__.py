"""The command line. A verb parses, calls one library function, prints; torch is imported by the verbs that need it."""

import sys

try:
    from . import corpora, detects, parts, prunes, reports, reproduces, runs, scores, summaries
    from .app import EXITS, app, explain, main
except KeyboardInterrupt:  # before `main` can catch it
    sys.stderr.write("errornorm: stopped by Ctrl-C; nothing was done\n")
    raise SystemExit(130) from None

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
