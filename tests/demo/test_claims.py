"""What the README claims about the demo: in the committed results, and (slow) in a run of today."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "demo.json"


def check(rows):
    rows = {row["method"]: row for row in rows}
    assert rows["MLE"]["correct_beam"] < 0.2
    assert rows["ENT"]["correct_beam"] > 0.9
    assert rows["ENT-Auto"]["correct_beam"] > 0.9
    assert rows["MLE"]["correct_greedy"] > 0.8  # it can translate; the search finds the copies
    others = (row["correct_beam"] for name, row in rows.items() if not name.startswith("ENT"))
    assert rows["ENT"]["correct_beam"] > max(others)


def test_five_seeds_are_committed_and_hold():
    runs = json.loads(RESULTS.read_text(encoding="utf-8"))["runs"]
    assert [run["seed"] for run in runs] == [0, 1, 2, 3, 4]
    for run in runs:
        check(run["rows"])
        assert run["seconds"] < 180


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_of_today(tmp_path):
    began = time.monotonic()
    argv = [sys.executable, "-m", "errornorm.cli", "demo", "--seed", "5", "--json", "--output", str(tmp_path / "demo")]
    out = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    check(json.loads(out)["rows"])
    assert time.monotonic() - began < 180
