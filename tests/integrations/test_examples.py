"""Every example runs as it stands, and the docs show all of them."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.filterwarnings("default")  # the warnings that a user would see
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # what it writes stays there
    runpy.run_path(str(path), run_name="__main__")
    shown = capsys.readouterr().out
    assert "kept" in shown  # the summary
    assert "of 0 tokens" not in shown


def test_the_docs_show_them():
    page = (ROOT / "docs" / "trainers.md").read_text(encoding="utf-8")
    for path in EXAMPLES:
        assert f"<!-- {path.name} -->" in page
