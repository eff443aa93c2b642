"""From a model's scores to a kept corpus, and to weights that training reads: all parts as they are."""

import json

import numpy
import pyarrow as pa
import pytest

from errornorm.curation.prune import prune
from errornorm.scoring.run import score
from errornorm.training.config import Source, Tokenizer
from tests.scoring import models
from tests.tiny import PAIRS
from tests.training.test_prepare import prepared

GOOD = [json.dumps({"source": a, "target": b, "site": "ab"[i % 2]}) for i, (a, b) in enumerate(PAIRS)]
BAD = ["{oops", '{"source": "a"}', '{"source": "a", "target": " "}', "", '{"source": 1, "target": "b"}']


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.save(tmp_path_factory.mktemp("model"), "marian")


def poisoned(path):
    lines = [line for i, good in enumerate(GOOD) for line in (good, *BAD[i : i + 1])]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_texts_and_sources(folder, tmp_path):
    scores = score(poisoned(tmp_path / "a.jsonl"), folder, tmp_path / "scores", part=7)
    done = prune(scores, by="error_norm_max", fraction=0.29, output=tmp_path / "b.jsonl")
    count = len(GOOD) * 29 // 100
    assert (done.records, done.kept, done.pruned, done.quarantined) == (len(GOOD) + 4, len(GOOD) - count, count, 4)
    kept = (tmp_path / "b.jsonl").read_text().splitlines()
    gone = [json.loads(line) for line in (tmp_path / "b.jsonl.removed.jsonl").read_text().splitlines()]
    assert sorted([*filter(None, kept), *(GOOD[PAIRS.index((row["context"], row["text"]))] for row in gone)]) == sorted(
        GOOD
    )
    assert min(row["score"] for row in gone) >= done.cutoff
    half = prune(scores, fraction=0.5, unit="source", group_by="site", output=tmp_path / "c.jsonl")
    assert (half.pruned, len(half.sources)) == (len(GOOD) // 2, 1)


def test_weights_that_training_reads(folder, tmp_path):
    """With the tokenizer that scored, exactly the chosen tokens have weight 0."""
    scores = score(poisoned(tmp_path / "a.jsonl"), folder, tmp_path / "scores")
    done = prune(scores, fraction=0.2, unit="token", output=tmp_path / "w.jsonl")
    assert done.dropped == int(0.2 * done.units)
    assert done.unscored == len(GOOD)  # the end of each
    source = Source(path=tmp_path / "w.jsonl", weights_field="token_weights")
    found, _ = prepared(tmp_path, source, objective="weighted", tokenizer=Tokenizer(pretrained=str(folder)))
    (count,) = found.counts
    assert (count.records, count.used, count.quarantined) == (len(GOOD), len(GOOD), 0)
    table = scores.table(["token", "error_norm", "start", "end"]).to_pylist()
    norms = numpy.concatenate([row["error_norm"] for row in table])
    places = numpy.concatenate([numpy.subtract(row["end"], row["start"]) for row in table])
    assert found.dataset.target.tokens.tolist() == [token for row in table for token in row["token"]]
    edge = numpy.sort(norms[places > 0])[-done.dropped]
    assert (found.dataset.weights.tokens == numpy.where((norms >= edge) & (places > 0), 0, 1)).all()


def test_rows_in_memory(folder, tmp_path):
    rows = [{"source": a, "target": b, "id": i} for i, (a, b) in enumerate(PAIRS)]
    table = score(pa.Table.from_pylist(rows), folder)
    done = prune(table, fraction=0.25, output=tmp_path / "b.jsonl")
    kept = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    gone = done.table()["dropped"].to_pylist()
    assert kept == [row for row, dropped in zip(rows, gone, strict=True) if not dropped]
    assert len(kept) == done.kept == 27
