"""A look at the run directory before anything heavy is imported: a second process in it is refused at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..data.lines import DataError
from . import yamltree
from .rundir import RunDir


def refuse_busy(path: Path, sets: Sequence[str] = ()) -> None:
    """Refuse a configuration whose run another process is at. What else is wrong is told by those who read it fully."""
    if int(os.environ.get("RANK", 0)):  # the first rank has the lock, for all of them
        return
    try:
        value = yamltree.read(path).value
        settings: dict[str, Any] = dict(value) if isinstance(value, dict) else {}
        for text in sets:
            name, _, written = text.partition("=")
            settings[name.strip()] = yamltree.parse(written, name, lines=False).value
    except (DataError, ValueError):
        return
    output, seeds = settings.get("output"), settings.get("seeds") or [0]
    if not isinstance(output, str) or not isinstance(seeds, list):
        return
    folder = Path(os.path.expanduser(output))  # noqa: PTH111 (it never fails)
    for place in [folder / f"seed-{seed}" for seed in seeds] if len(seeds) > 1 else [folder]:
        RunDir(place).require_free()
