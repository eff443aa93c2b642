"""Files in, files out: what stays keeps its bytes, what goes is told why, and nothing is half written."""

import gzip
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from errornorm.curation import prune as library
from errornorm.curation.prune import prune
from errornorm.curation.prune_write import all_or_none
from errornorm.data.lines import BOM, DataError
from tests.curation.prunable import PAIRS, lines, scored
from tests.score_tables import random_rows, write
from tests.tiny import write_jsonl

PACKERS = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}
UNPACKERS = {
    "": bytes,
    ".gz": gzip.decompress,
    ".zst": lambda b: zstandard.ZstdDecompressor().decompressobj().decompress(b),
}
FORMS = {  # fields, and how a corpus is described
    "jsonl": ({}, {}),
    "tsv": ({}, {}),
    "bare.tsv": ({}, {"columns": ["id", "source", "target"]}),
    "txt": ({"text_field": "text", "context": ""}, {}),
}


def read(path):
    return UNPACKERS[path.suffix if path.suffix in UNPACKERS else ""](path.read_bytes())


def removed(path):
    return [json.loads(line) for line in read(path).splitlines()]


def gone(scores, **options):
    """Numbers of the records that go."""
    table = prune(scores, **options).table()
    return {r for r, gone in zip(table["record"].to_pylist(), table["dropped"].to_pylist(), strict=True) if gone}


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", BOM])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_kept_lines_have_their_bytes(tmp_path, form, end, mark, last):
    fields, about = FORMS[form]
    given = lines(23, form)
    head = 1 if form == "tsv" else 0
    ended = [line + end for line in given]
    if not last:
        ended[-1] = given[-1]
    path = tmp_path / f"corpus.{form}"
    path.write_bytes(mark + b"".join(ended))
    scores = scored(tmp_path / "scores", {"path": path} | about, **fields)
    done = prune(scores, fraction=0.3, output=tmp_path / f"clean.{form}")
    assert (done.records, done.kept, done.pruned, done.quarantined) == (23, 17, 6, 0)
    went = gone(scores, fraction=0.3)
    want = b"".join(line for i, line in enumerate(ended) if i - head not in went)
    assert (tmp_path / f"clean.{form}").read_bytes() == mark + want
    assert {row["record"] for row in removed(tmp_path / f"clean.{form}.removed.jsonl")} == went
    same = prune(scores, fraction=0, output=tmp_path / f"same.{form}")
    assert (tmp_path / f"same.{form}").read_bytes() == path.read_bytes()
    assert (tmp_path / f"same.{form}.removed.jsonl").read_bytes() == b""
    assert same.cutoff is not None
    nothing = prune(scores, fraction=1, output=tmp_path / f"empty.{form}")
    assert (tmp_path / f"empty.{form}").read_bytes() == (mark + ended[0] if head else b"")
    assert (nothing.kept, nothing.cutoff) == (0, None)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


@pytest.mark.parametrize("packed", PACKERS)
@pytest.mark.parametrize("to", PACKERS)
def test_packed_by_the_name_of_the_output(tmp_path, packed, to):
    given = [line + b"\n" for line in lines(20, "jsonl")]
    path = tmp_path / f"corpus.jsonl{packed}"
    path.write_bytes(PACKERS[packed](b"".join(given)))
    scores = scored(tmp_path / "scores", path)
    output, aside = tmp_path / f"clean.jsonl{to}", tmp_path / f"why.jsonl{to}"
    done = prune(scores, fraction=0.1, output=output, removed=aside)
    went = gone(scores, fraction=0.1)
    assert read(output) == b"".join(line for i, line in enumerate(given) if i not in went)
    assert len(removed(aside)) == 2
    assert (done.output, done.removed) == (str(output), str(aside))
    before = output.read_bytes(), aside.read_bytes()
    prune(scores, fraction=0.1, output=output, removed=aside)
    assert (output.read_bytes(), aside.read_bytes()) == before


def test_aligned_text(tmp_path):
    for name, side in (("a.en", 0), ("a.fr", 1)):
        (tmp_path / name).write_bytes(b"\r\n".join(pair[side].encode() for pair in PAIRS))
    scores = scored(tmp_path / "scores", {"path": tmp_path / "a.en", "pair": tmp_path / "a.fr"})
    done = prune(scores, fraction=0.5, output=tmp_path / "b.en", output_pair=tmp_path / "b.fr.gz")
    went = gone(scores, fraction=0.5)
    for name, side in (("b.en", 0), ("b.fr.gz", 1)):
        text = read(tmp_path / name).decode()
        assert text.split("\r\n")[:5] == [pair[side] for i, pair in enumerate(PAIRS) if i not in went]
    assert (done.kept, done.output_pair) == (5, str(tmp_path / "b.fr.gz"))
    with pytest.raises(ValueError, match="the kept corpus is two aligned files"):
        prune(scores, fraction=0.5, output=tmp_path / "c.en")
    for one, other in (("c.jsonl", "c.fr"), ("c.en", "c.jsonl.gz")):
        with pytest.raises(ValueError, match="has the name of jsonl, and the output is text"):
            prune(scores, fraction=0.5, output=tmp_path / one, output_pair=tmp_path / other)
    prune(scores, fraction=0.5, unit="token", output=tmp_path / "c.jsonl")
    assert json.loads((tmp_path / "c.jsonl").read_text().splitlines()[3])["source"] == PAIRS[3][0]


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_parquet_keeps_its_schema(tmp_path, packed):
    schema = pa.schema(
        [("source", pa.large_string()), ("target", pa.string()), ("when", pa.timestamp("us")),
         ("tags", pa.list_(pa.struct([("a", pa.int8())]))), ("raw", pa.binary())],
        metadata={"made": "by hand"},
    )  # fmt: skip
    rows = [
        {"source": a, "target": b, "when": 10**15 + i, "tags": [{"a": i}], "raw": b"\xff"}
        for i, (a, b) in enumerate(PAIRS)
    ]
    rows[4]["target"] = None
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "plain.parquet", row_group_size=3, compression="gzip")
    table = pq.read_table(tmp_path / "plain.parquet")
    path = tmp_path / f"a.parquet{packed}"
    path.write_bytes(PACKERS[packed]((tmp_path / "plain.parquet").read_bytes()))
    scores = scored(tmp_path / "scores", path)
    done = prune(scores, fraction=0.5, output=tmp_path / "b.parquet")
    assert (done.records, done.kept, done.pruned, done.quarantined) == (10, 5, 4, 1)
    found = pq.read_table(tmp_path / "b.parquet")
    went = gone(scores, fraction=0.5) | {4}
    assert found.schema.equals(table.schema, check_metadata=True)
    assert found.equals(table.take([i for i in range(10) if i not in went]))
    assert pq.read_metadata(tmp_path / "b.parquet").row_group(0).column(0).compression == "GZIP"
    with pytest.raises(ValueError, match="Parquet is packed inside"):
        prune(scores, fraction=0.5, output=tmp_path / "b.parquet.gz")
    prune(scores, fraction=0.5, unit="token", output=tmp_path / "c.jsonl")
    first = json.loads((tmp_path / "c.jsonl").read_text().splitlines()[0])
    assert first["tags"] == [{"a": 0}]
    assert list(first) == [*schema.names, "token_weights"]


def test_data_sets_and_rows_become_jsonl(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "news"
    folder.mkdir()
    nested = [{"id": i, "translation": {"en": a, "fr": b}} for i, (a, b) in enumerate(PAIRS)]
    write_jsonl(folder / "train.jsonl", nested)
    scores = scored(tmp_path / "set", {"dataset": str(folder)}, text_field="translation.fr", context="{translation.en}")
    done = prune(scores, fraction=0.3, output=tmp_path / "set.jsonl")
    went = gone(scores, fraction=0.3)
    assert removed(tmp_path / "set.jsonl") == [row for row in nested if row["id"] not in went]
    assert done.kept == 7
    rows = [{"source": a, "target": b, "id": i, "odd": float("nan")} for i, (a, b) in enumerate(PAIRS)]
    for number, given in enumerate((rows, pa.Table.from_pylist(rows))):
        scores = scored(tmp_path / f"rows{number}", given)
        prune(scores, fraction=0.3, output=tmp_path / "rows.jsonl")
        went = gone(scores, fraction=0.3)
        assert removed(tmp_path / "rows.jsonl") == [row | {"odd": None} for row in rows if row["id"] not in went]
        prune(scores, fraction=0.3, output=tmp_path / "rows.jsonl", unit="token", weights_field="w")
        assert all(row["w"] is not None for row in removed(tmp_path / "rows.jsonl"))


def test_what_went_is_told_with_the_reason(tmp_path):
    rows = [{"source": "a", "target": "le chien", "id": 1}, {"source": "b", "target": "x \x1b y", "site": {"n": [2]}}]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    scores = scored(tmp_path / "scores", path, values=[[0.5, 0.25, 0.0], [1.25, 1.0, 0.75, 1.0]])
    prune(scores, by="error_norm_max", fraction=0.5, output=tmp_path / "b.jsonl", removed=tmp_path / "why.jsonl")
    assert removed(tmp_path / "why.jsonl") == [
        {"record": 1, "where": f"{path}:2", "reason": "error_norm_max 1.25 > 0.5 (dropped 50 %)",
         "by": "error_norm_max", "score": 1.25, "context": "b", "text": "x \x1b y", "fields": {"site": {"n": [2]}}}
    ]  # fmt: skip


def test_weights_of_tokens_are_put_into_the_line_as_it_is(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        BOM + b'{"target": "le chien", "source":"a" , "n": 1.50, "big": 1e400}  \r\n\n'
        b'not JSON\n{"source": "b", "target": "caf\\u00e9 noir"}\n \n{"source": "c", "target": "x"}'
    )
    scores = scored(tmp_path / "scores", path, values=[[1.2, 1.3, 1.4], [0.1, 1.1, 0.2], [0.3, 0.2]])
    done = prune(scores, threshold=1.0, unit="token", output=tmp_path / "b.jsonl", weights_field="w é")
    assert (tmp_path / "b.jsonl").read_bytes() == (
        BOM + b'{"target": "le chien", "source":"a" , "n": 1.50, "big": 1e400, "w \xc3\xa9": [[0, 8, 0]]}  \r\n\n'
        b'{"source": "b", "target": "caf\\u00e9 noir", "w \xc3\xa9": [[5, 9, 0]]}\n \n'
        b'{"source": "c", "target": "x", "w \xc3\xa9": []}'
    )
    assert (done.records, done.kept, done.pruned, done.quarantined) == (4, 3, 0, 1)
    assert (done.units, done.dropped, done.unscored, done.removed) == (5, 3, 3, None)
    assert not list(tmp_path.glob("*removed*"))
    for name in ("n", "target", "source"):
        with pytest.raises(ValueError, match=f"has a field '{name}' already"):
            prune(scores, threshold=1.0, unit="token", output=tmp_path / "c.jsonl", weights_field=name)
    with pytest.raises(ValueError, match="nothing for removed"):
        prune(scores, threshold=1.0, unit="token", output=tmp_path / "c.jsonl", removed=tmp_path / "d.jsonl")


@pytest.mark.parametrize("form", ["tsv", "bare.tsv", "txt"])
def test_weights_of_other_forms_are_jsonl(tmp_path, form):
    fields, about = FORMS[form]
    path = tmp_path / f"a.{form}"
    path.write_bytes(b"\n".join(lines(8, form)))
    scores = scored(tmp_path / "scores", {"path": path} | about, **fields)
    done = prune(scores, fraction=0.5, unit="token", output=tmp_path / "b.jsonl")
    rows = removed(tmp_path / "b.jsonl")
    weights = prune(scores, fraction=0.5, unit="token").table()["token_weights"].to_pylist()
    assert [row.pop("token_weights") for row in rows] == weights
    assert list(rows[0]) == (["text"] if form == "txt" else ["id", "source", "target"])
    assert done.kept == 8
    with pytest.raises(ValueError, match=r"c\.tsv has the name of tsv, and the output is jsonl"):
        prune(scores, fraction=0.5, unit="token", output=tmp_path / "c.tsv")


def test_a_mark_inside_the_text_does_not_become_one_of_the_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"first\n" + BOM + b"second\n")
    scores = scored(tmp_path / "scores", path, text_field="text", context="", values=[[1.0], [0.5]])
    prune(scores, fraction=0.5, output=tmp_path / "b.txt")
    assert (tmp_path / "b.txt").read_bytes() == BOM + BOM + b"second\n"
    again = scored(tmp_path / "again", tmp_path / "b.txt", text_field="text", context="")
    assert again.table(["text"])["text"].to_pylist() == ["\ufeffsecond"]


def test_bad_lines_around_the_names_of_a_tsv(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(b"bad \xff\n" + b"x" * (2**20 + 5) + b"\nsource\ttarget\na\tb\nonly\nc\td\n")
    scores = scored(tmp_path / "scores", path, values=[[0.5], [1.0]])
    done = prune(scores, fraction=0.5, output=tmp_path / "b.tsv")
    assert (tmp_path / "b.tsv").read_bytes() == b"source\ttarget\na\tb\n"
    assert (done.records, done.kept, done.pruned, done.quarantined) == (5, 1, 1, 3)


def test_a_cut_archive_and_a_limit(tmp_path):
    whole = gzip.compress(b"".join(line + b"\n" for line in lines(3000, "jsonl")))
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    scores = scored(tmp_path / "cut", path)
    done = prune(scores, fraction=0.5, output=tmp_path / "b.jsonl")
    assert done.quarantined == 1
    assert done.kept == len(removed(tmp_path / "b.jsonl")) == -(-scores.meta["used"] // 2)
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"\n\n".join(lines(10, "jsonl")) + b"\n\n\n")
    scores = scored(tmp_path / "limit", path, limit=4)
    done = prune(scores, fraction=0, output=tmp_path / "d.jsonl")
    assert (done.records, done.kept, done.limit) == (4, 4, 4)
    assert (tmp_path / "d.jsonl").read_bytes() == b"\n\n".join(lines(4, "jsonl")) + b"\n"


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(lines(10, "jsonl")))
    return scored(tmp_path / "scores", path)


def test_a_corpus_that_was_moved_or_changed(tmp_path, small):
    path, output = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    shutil.move(path, tmp_path / "moved.jsonl")
    with pytest.raises(DataError, match=r"a\.jsonl: the corpus is not there; say where it is now"):
        prune(small, fraction=0.1, output=output)
    assert prune(small, fraction=0.1, output=output, corpus=tmp_path / "moved.jsonl").kept == 9
    odd = (tmp_path / "moved.jsonl").rename(tmp_path / os.fsdecode(b"moved\xff.jsonl"))
    assert prune(small, fraction=0.1, output=output, corpus=odd).pruned == 1
    assert removed(tmp_path / "b.jsonl.removed.jsonl")[0]["where"].startswith(f"{odd}:")
    odd.rename(tmp_path / "moved.jsonl")
    with pytest.raises(DataError, match="not the bytes that were scored"):
        prune(small, fraction=0.1, output=tmp_path / "c.jsonl", corpus=output)
    with pytest.raises(ValueError, match="was made from one file"):
        prune(small, fraction=0.1, output=tmp_path / "c.jsonl", corpus=tmp_path / "moved.jsonl", pair=output)
    assert not (tmp_path / "c.jsonl").exists()


def test_outputs_that_are_inputs(tmp_path, small):
    path = tmp_path / "a.jsonl"
    before = path.read_bytes()
    (tmp_path / "link.jsonl").symlink_to(path)
    (tmp_path / "hard.jsonl").hardlink_to(path)
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle.jsonl").symlink_to(tmp_path / "circle.jsonl")
    good = tmp_path / "b.jsonl"
    for options, message in (
        ({"output": path}, "is also the input"),
        ({"output": str(tmp_path / "scores" / ".." / "a.jsonl")}, "is also the input"),
        ({"output": tmp_path / "link.jsonl"}, "is also the input"),
        ({"output": tmp_path / "hard.jsonl"}, "is also the input"),
        ({"output": good, "removed": path}, "is also the input"),
        ({"output": good, "removed": good}, "is the name of two outputs"),
        ({"output": tmp_path / "folder.jsonl"}, "is a folder"),
        ({"output": tmp_path / "circle.jsonl"}, "is a link that leads to itself"),
        ({"output": good, "removed": tmp_path / "pipe"}, "is a device or a pipe"),
        ({"output": tmp_path / "scores" / "c.jsonl"}, "the folder of the scores is for them alone"),
        ({"output": tmp_path / "b.tsv"}, "has the name of tsv, and the output is jsonl"),
        ({"output": good, "output_pair": tmp_path / "c.jsonl"}, "is one file"),
    ):
        with pytest.raises(ValueError, match=message):
            prune(small, fraction=0.1, **options)
    assert path.read_bytes() == before
    assert not good.exists()


def test_a_link_stays_and_its_file_is_written(tmp_path, small):
    (tmp_path / "there").mkdir()
    (tmp_path / "link.jsonl.gz").symlink_to(tmp_path / "there" / "b")
    prune(small, fraction=0.1, output=tmp_path / "link.jsonl.gz")
    assert (tmp_path / "link.jsonl.gz").is_symlink()
    assert gzip.decompress((tmp_path / "there" / "b").read_bytes())


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device"), DataError("x")])
@pytest.mark.parametrize("step", ["write_removed", "recount"])
def test_nothing_is_left_when_it_stops(tmp_path, small, monkeypatch, step, error):
    def stop(*args):
        raise error

    old = tmp_path / "b.jsonl"
    old.write_text("old\n")
    monkeypatch.setattr(library, step, stop)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error if isinstance(error, type) else type(error)):
        prune(small, fraction=0.1, output=old)
    assert sorted(tmp_path.rglob("*")) == before
    assert old.read_text() == "old\n"


def test_a_lost_record_is_an_error(tmp_path, small, monkeypatch):
    meta = json.loads((small.folder / "meta.json").read_text())
    (small.folder / "meta.json").write_text(json.dumps(meta | {"quarantined": 2, "records": 12}))
    with pytest.raises(DataError, match=r"10 records, but 9 kept \+ 1 pruned \+ 2 quarantined: nothing was written"):
        prune(small.folder, fraction=0.1, output=tmp_path / "b.jsonl")
    (small.folder / "meta.json").write_text(json.dumps(meta | {"records": 11}))
    with pytest.raises(DataError, match=r"11 records, but 9 kept \+ 1 pruned \+ 0 quarantined"):
        prune(small.folder, fraction=0.1)
    (small.folder / "meta.json").write_text(json.dumps(meta))
    monkeypatch.setattr(library, "states_of", lambda lines, dropped: b"\0" + b"\1" * 4)
    with pytest.raises(DataError, match=r"10 records, but 4 kept \+ 1 pruned \+ 0 quarantined"):
        prune(small.folder, fraction=0.1, output=tmp_path / "b.jsonl")
    assert not list(tmp_path.glob("*b.jsonl*"))


def test_tables_that_say_nothing_about_their_corpus(tmp_path):
    scores = write(tmp_path / "scores", [{"text": "a"}])
    meta = json.loads((scores.folder / "meta.json").read_text())
    for about in (None, {}, {"format": 3}):
        (scores.folder / "meta.json").write_text(json.dumps(meta | {"corpus": about}))
        with pytest.raises(DataError, match="does not say what was scored"):
            prune(scores.folder, fraction=0.1, output=tmp_path / "b.jsonl")


def test_tables_in_memory(tmp_path):
    scores = write(tmp_path / "scores", random_rows(50))
    want = prune(scores, fraction=0.3)
    for number, given in enumerate((scores.table(), scores.table().to_pandas())):
        found = prune(given, fraction=0.3)
        assert found.table()["dropped"].to_pylist() == want.table()["dropped"].to_pylist()
        assert (found.records, found.kept, found.pruned) == (50, 35, 15)
        done = prune(given, fraction=0.3, unit="token", output=tmp_path / f"{number}.jsonl")
        assert done.dropped == prune(scores, fraction=0.3, unit="token").dropped
        rows = removed(tmp_path / f"{number}.jsonl")
        assert [row["target"] for row in rows] == scores.table()["text"].to_pylist()
        assert list(rows[0]) == ["source", "target", "source_name", "noise", "labels", "number", "token_weights"]
    want = prune(scores, fraction=0.3, unit="token").dropped
    wide = scores.table().to_pandas()
    wide["error_norm"] = [values.astype("float64") for values in wide["error_norm"]]
    assert prune(wide, fraction=0.3, unit="token").dropped == want
    table = scores.table()
    pieces = pa.concat_tables([table.slice(0, 20), table.slice(0, 0), table.slice(20)])
    assert prune(pieces, fraction=0.3, unit="token").dropped == want
    wide["nll"] = [values[1:] for values in wide["nll"]]
    with pytest.raises(DataError, match="the table: the column 'nll' has not as many entries as 'start'"):
        prune(wide, by="nll", fraction=0.3, unit="token")
    wide["nll"] = "much"
    with pytest.raises(DataError, match="the table: the column 'nll' is not as `score` makes it"):
        prune(wide, by="nll", fraction=0.3)
    with pytest.raises(ValueError, match="a pandas data frame, not list"):
        prune([1], fraction=0.3)
    with pytest.raises(ValueError, match="the table has no column 'nll'"):
        prune(scores.table().drop_columns("nll"), by="nll", fraction=0.3)


def test_whoever_sees_the_output_has_all_files(tmp_path, monkeypatch):
    """A process may be killed between two of the renamings."""
    replace, renamed = Path.replace, []

    def killed(self, target):
        if renamed:
            raise KeyboardInterrupt
        renamed.append(target)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", killed)
    output, removed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.removed.jsonl"
    with pytest.raises(KeyboardInterrupt), all_or_none(output, removed) as parts:
        [part.touch() for part in parts]
    assert list(tmp_path.iterdir()) == [removed]
