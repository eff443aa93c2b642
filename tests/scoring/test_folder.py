"""What others do to the corpus and to the folder while a table is made."""

import os
import shutil
from pathlib import Path

import pytest

from errornorm.data.lines import DataError
from errornorm.scoring.run import score
from tests import tiny
from tests.scoring.models import save

CHANGED = r"c\.txt: it changed while it was scored; remove .*s and score again, or choose another output$"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save(tmp_path_factory.mktemp("folder") / "gpt2", "gpt2")


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("\n".join(a for a, _ in tiny.PAIRS) + "\n")
    return path


def test_a_corpus_that_changes_while_it_is_scored_is_refused(corpus, model, tmp_path):
    """Prune would else take the scores of the old records for those of the new ones."""
    with pytest.raises(DataError, match=CHANGED):
        score(corpus, model, tmp_path / "s", part=10, tell=lambda progress: corpus.write_text("other\n"))
    assert not (tmp_path / "s" / "meta.json").exists()


def test_a_corpus_that_changes_while_a_run_goes_on_is_refused(corpus, model, tmp_path):
    scores = score(corpus, model, tmp_path / "s", part=10)
    scores.parts[-1].unlink()
    (tmp_path / "s" / "meta.json").rename(tmp_path / "s" / "begun.json")
    whole = corpus.read_text()
    with pytest.raises(DataError, match=CHANGED):
        score(corpus, model, tmp_path / "s", part=10, tell=lambda progress: corpus.write_text(whole + "more\n"))
    corpus.write_text(whole)
    assert score(corpus, model, tmp_path / "s", part=10).meta == scores.meta


def test_a_folder_that_is_removed_while_it_is_filled_is_not_made_anew(corpus, model, tmp_path):
    def remove(progress):
        shutil.rmtree(tmp_path / "s", ignore_errors=True)

    with pytest.raises(DataError, match=r"/s: the folder was removed while the corpus was scored; run it again$"):
        score(corpus, model, tmp_path / "s", part=10, tell=remove)
    assert not (tmp_path / "s").exists()


def test_a_part_that_is_removed_is_made_by_the_same_command(corpus, model, tmp_path):
    def remove(progress):
        (tmp_path / "s" / "part-00000.parquet").unlink(missing_ok=True)

    with pytest.raises(DataError, match=r"part-00000\.parquet: removed while .* run it again, it goes on$"):
        score(corpus, model, tmp_path / "s", part=10, tell=remove)
    assert not (tmp_path / "s" / "meta.json").exists()
    assert score(corpus, model, tmp_path / "s", part=10).meta["used"] == len(tiny.PAIRS)


@pytest.mark.parametrize("which", ["corpus", "pair", "model", "output"])
def test_names_that_meta_data_cannot_hold_are_refused_before_the_work(corpus, model, tmp_path, which):
    odd = tmp_path / os.fsdecode(b"b\xff")
    shutil.copytree(model, odd) if which == "model" else shutil.copy(corpus, odd)
    given = {"corpus": corpus, "pair": corpus, "model": model, "output": tmp_path / "s"} | {which: odd}
    files = {"path": given["corpus"], "pair": given["pair"]}
    with pytest.raises(ValueError, match=r"/b.: this name is not UTF-8: rename it, or choose another$"):
        score(files, given["model"], given["output"], tell=pytest.fail)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ("~.jsonl", r"path: '~\.jsonl': .*; write the path without ~"),
        (Path("~.jsonl"), r"path: '~\.jsonl': .*; write the path without ~"),
        ({"path": "~.jsonl", "limit": 0}, "path: .*; limit: Input should be greater than or equal to 1"),
        ({"path": "a", "dataset": "b"}, "there is a path too; give one of path and dataset"),
    ],
)
def test_entries_that_are_no_corpus_are_told_in_one_plain_line(tmp_path, corpus, message):
    with pytest.raises(ValueError, match=f"^the corpus: {message}$"):
        score(corpus, tmp_path / "model", tmp_path / "s")
