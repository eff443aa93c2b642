"""Counts for docs/reliability.md: how many cases a suite tried, and how many failed.

    with tally("pickles", "security", "malicious pickles; none ran") as suite:
        for name, plant in CASES.items():
            with suite.case(name):
                assert ...

A case that fails does not stop the others. `pytest -m "slow or recorded" --record` writes what was counted to
docs/results/reliability/; `python -m errornorm.cards` makes the page of it. Nothing else writes there.
"""

import json
import os
import platform
import re
import time
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import torch

import errornorm
from errornorm.reliability import AREAS

FOLDER = Path(__file__).parents[1] / "docs" / "results" / "reliability"


class Suite:
    def __init__(self, name, area, what):
        assert area in AREAS
        self.name, self.area, self.what = name, area, what
        self.tried, self.failures, self.seconds = 0, [], 0.0
        self.more = {}  # what else the page shows of it

    @contextmanager
    def case(self, label):
        self.tried += 1
        try:
            yield
        except Exception as error:
            self.failures.append(f"{label}: {type(error).__name__}: {error}"[:1000])

    def add(self, tried, failures=()):
        """Many cases at once: their number, and texts about those that failed."""
        self.tried += tried
        self.failures += failures

    def as_dict(self):
        return {
            "name": self.name, "area": self.area, "what": self.what, "tried": self.tried,
            "failed": len(self.failures), "seconds": round(self.seconds, 1), "date": date.today().isoformat(),
            "errornorm": errornorm.__version__, "machine": machine(), **self.more,
        }  # fmt: skip


class Tally:
    """All suites of a session."""

    def __init__(self):
        self.suites = {}

    @contextmanager
    def __call__(self, name, area, what):
        """Parts of a suite in several tests are added up."""
        suite = self.suites.setdefault(name, Suite(name, area, what))
        before, began = len(suite.failures), time.monotonic()
        try:
            yield suite
        finally:
            suite.seconds += time.monotonic() - began
        new = suite.failures[before:]
        assert not new, "\n".join([f"{len(new)} failed", *new[:20]])

    def write(self, folder=FOLDER):
        folder.mkdir(parents=True, exist_ok=True)
        for name, suite in self.suites.items():
            text = _dumps(suite.as_dict()) + "\n"
            (folder / f"{name}.json").write_text(text, encoding="utf-8")


def _dumps(row):
    """Lists of numbers on one line each."""
    text = json.dumps(row, indent=1, ensure_ascii=False)
    return re.sub(r"\[[\d\s.,e-]+\]", lambda found: " ".join(found[0].split()), text)


def machine():
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    memory = f"{pages / 2**30:.0f} GB, " if pages else ""
    return (
        f"{os.cpu_count()} cores, {memory}{platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, torch {torch.__version__.partition('+')[0]}"
    )
