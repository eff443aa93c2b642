"""Scripts that measure for hours: what a second start goes on with is whole, and of the same choice of records."""

import argparse
import gzip
import json
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def natural(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    import natural_noise

    place = tmp_path / natural_noise.NOISY
    place.parent.mkdir()
    with gzip.open(place, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"tgt": "un chien", "label": "clean"}) + "\n" for _ in range(3))
    return natural_noise


def test_a_corpus_that_is_half_written_is_not_there(natural, tmp_path, monkeypatch):
    def stopped(row):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(natural, "labelled", stopped)
        with pytest.raises(KeyboardInterrupt):
            natural.prepare(tmp_path, tmp_path / "natural.jsonl")
    assert not (tmp_path / "natural.jsonl").exists()
    natural.prepare(tmp_path, tmp_path / "natural.jsonl")
    assert len((tmp_path / "natural.jsonl").read_text(encoding="utf-8").splitlines()) == 3


def test_another_choice_of_records_is_another_corpus(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    import detection

    names = {
        detection.named(argparse.Namespace(corpus="xsum", every=every, longest=longest))
        for every in (1, 3) for longest in (None, 120)
    }  # fmt: skip
    assert len(names) == 4
