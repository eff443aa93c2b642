"""Every example runs as it stands, and the docs show all of them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path):
    """In a folder of its own: what it writes stays there."""
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "kept" in done.stdout  # the summary
    assert "Traceback" not in done.stderr


def test_the_docs_show_them():
    page = (ROOT / "docs" / "trainers.md").read_text(encoding="utf-8")
    for path in EXAMPLES:
        assert f"<!-- {path.name} -->" in page
