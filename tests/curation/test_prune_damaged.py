"""What people and other tools may hand to prune: long lines, types that Arrow cannot filter, edited meta data."""

import json
from pathlib import Path

import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from errornorm.curation.prune import prune
from errornorm.data.lines import DataError
from tests.curation.prunable import PAIRS, lines, scored
from tests.tiny import write_jsonl

TEXTS = [a for a, _ in PAIRS]


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(lines(10, "jsonl")))
    return scored(tmp_path / "scores", path).folder


def test_weights_that_make_a_line_longer_than_what_is_read(tmp_path):
    rows = [{"source": "a", "target": "a " * 100_000}, {"source": "b", "target": "c d"}]
    values = [[1.2, 0.1] * 50_000 + [0.1], [0.5, 0.5, 0.5]]
    scores = scored(tmp_path / "scores", write_jsonl(tmp_path / "a.jsonl", rows), values=values)
    done = prune(scores, threshold=1.0, unit="token", output=tmp_path / "b.jsonl")
    first, _ = (tmp_path / "b.jsonl").read_bytes().splitlines()
    assert len(first) > 2**20
    assert (done.records, done.kept, done.dropped) == (2, 2, 50_000)


@pytest.mark.parametrize("kind", ["string_view", "binary_view"])
def test_views_in_parquet_are_filtered(tmp_path, kind):
    if not hasattr(pa, kind):
        pytest.skip("this version of Arrow has no views")
    values = TEXTS if kind == "string_view" else [text.encode() for text in TEXTS]
    table = pa.table({"text": TEXTS, "view": pa.array(values, getattr(pa, kind)())})
    pq.write_table(table, tmp_path / "a.parquet")
    scores = scored(tmp_path / "scores", tmp_path / "a.parquet", text_field="text", context="")
    done = prune(scores, fraction=0.3, output=tmp_path / "b.parquet")
    found = pq.read_table(tmp_path / "b.parquet")
    assert (done.kept, found.num_rows, found.schema) == (7, 7, table.schema)
    assert [row in table.to_pylist() for row in found.to_pylist()] == [True] * 7


def test_views_inside_of_lists_are_refused_by_name(tmp_path):
    if not hasattr(pa, "string_view"):
        pytest.skip("this version of Arrow has no views")
    inner = pa.array([[text] for text in TEXTS], pa.list_(pa.string_view()))
    pq.write_table(pa.table({"text": TEXTS, "tags": inner}), tmp_path / "a.parquet")
    scores = scored(tmp_path / "scores", tmp_path / "a.parquet", text_field="text", context="")
    with pytest.raises(DataError, match="rows of the column 'tags' cannot be taken out"):
        prune(scores, fraction=0.3, output=tmp_path / "b.parquet")
    assert not list(tmp_path.glob("*b.parquet*"))


@pytest.mark.parametrize(
    "entry",
    [
        {"path": 5}, {"path": ["a"]}, {"path": None}, {"path": "a\0b"}, {"path": "\ud800"}, {"pair": "a.fr"},
        {"fields": 5}, {"fields": [1]}, {"columns": "ab"}, {"text_field": 3}, {"format": "pairs"}, {"format": "xml"},
        {"format": "text"}, {"format": "dataset"}, {"format": "dataset", "path": None, "dataset": "abc"},
        {"format": "dataset", "path": None, "dataset": ["abc"]}, {"format": "table"}, {"dataset": [1, 2, 3]},
        {"limit": "a"}, {"limit": -3}, {"limit": 10**30}, {"limit": True},
    ],
    ids=str,
)  # fmt: skip
def test_edited_meta_data_are_refused(tmp_path, small, entry):
    meta = json.loads((small / "meta.json").read_text())
    meta["corpus"] |= entry
    (small / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(DataError, match="it does not say what was scored; score the corpus again"):
        prune(small, fraction=0.1, output=tmp_path / "b.jsonl")


@pytest.mark.parametrize("odd", [-5, 0, 11, 3 * 10**9, 2**62])
def test_lines_that_are_not_in_the_corpus(tmp_path, small, odd):
    renumber(small, [*range(1, 10), odd])
    with pytest.raises(DataError, match=f"damaged .line {odd} is not in the corpus at this place"):
        prune(small, fraction=0.1, output=tmp_path / "b.jsonl")


def test_lines_in_another_order(tmp_path, small):
    renumber(small, [2, 1, *range(3, 11)])
    with pytest.raises(DataError, match="line 1 is not in the corpus at this place"):
        prune(small, fraction=0.1, output=tmp_path / "b.jsonl")


def test_rows_in_memory_may_be_sorted(tmp_path, small):
    table = pq.read_table(small / "part-00000.parquet")
    done = prune(table.take(numpy.arange(10)[::-1]), fraction=0.1, output=tmp_path / "b.jsonl")
    assert (done.records, done.kept) == (10, 9)


def renumber(folder: Path, numbers):
    part = folder / "part-00000.parquet"
    table = pq.read_table(part)
    place = table.schema.get_field_index("line")
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array(numbers, pa.int64())), part)


@pytest.mark.parametrize("name", ["output", "removed"])
def test_archives_that_are_not_written_are_refused_before_the_work(tmp_path, small, name):
    given = {"output": tmp_path / "b.jsonl"} | {name: tmp_path / "c.jsonl.bz2"}
    with pytest.raises(ValueError, match=r"c\.jsonl\.bz2: \.bz2 cannot be written: use \.gz or \.zst"):
        prune(small, fraction=0.1, **given)
