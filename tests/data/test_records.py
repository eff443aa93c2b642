"""Files with poison in them: every good record is read, every bad one is named, nothing aborts."""

import gzip
import json
import resource
import sys
import tempfile
import time
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import pytest

from errornorm.data import lines
from errornorm.data.lines import DataError, Problem, read_lines
from errornorm.data.records import Corpus, Record

GOOD = [{"source": f"a dog number {i}", "target": f"un chien numéro {i}"} for i in range(6)]
# A line, and the reason that it is refused for. None: a good line after all.
LINES = {
    "bad UTF-8": (b'{"source": "a \xff", "target": "b"}', "not UTF-8"),
    "half a character": (b'{"source": "a \xc3', "not UTF-8"),
    "NUL": (b'{"source": "a \0", "target": "b"}', "a NUL character"),
}
JSONL = LINES | {
    "cut": (b'{"source": "a", "target": "b', "not JSON"),
    "cut before the end": (b'{"source": "a", "target": "b"', "not JSON"),
    "a text": (b'"just a text"', "a JSON str, not an object"),
    "a list": (b'["a", "b"]', "a JSON list, not an object"),
    "a number": (b"7", "a JSON int, not an object"),
    "another type": (b'{"source": "a", "target": 7}', "'target' is a number, not a text"),
    "null": (b'{"source": null, "target": "b"}', "'source' is null, not a text"),
    "an object inside": (b'{"source": {"en": "a"}, "target": "b"}', "'source' is an object, not a text"),
    "a field is missing": (b'{"source": "a"}', "no field 'target'"),
    "an empty field": (b'{"source": " ", "target": "b"}', "'source' is empty"),
    "a key twice": (b'{"source": "a", "source": "c", "target": "b"}', "the key 'source' stands there twice"),
    "a lone surrogate": (b'{"source": "\\ud800", "target": "b"}', "half of a character"),
    "an escaped NUL": (b'{"source": "a\\u0000", "target": "b"}', "has a NUL character"),
    "too long": (b'{"source": "' + b"a" * 5000 + b'", "target": "b"}', "longer than 2000 bytes"),
    "nested": (b"[" * 1900, "nested too deeply"),
    "nested, but JSON": (
        b'{"source": "a", "target": "b", "n": ' + b"[" * 500 + b"]" * 500 + b"}",
        "nested too deeply",
    ),
    "a number without end": (b'{"source": "a", "target": "b", "n": ' + b"1" * 4500 + b"}", "longer"),
    "not a number": (b'{"source": "a", "target": "b", "n": NaN}', "NaN is no JSON number"),
    "a number beyond all floats": (b'{"source": "a", "target": "b", "n": -1e999}', None),
    "half a character elsewhere": (b'{"source": "a", "target": "b", "n": "\\ud800"}', "half of a character"),
    "a line separator": ('{"source": "a\u2028b", "target": "c"}'.encode(), None),
    "a carriage return": (b'{"source": "a", "target": "b"}\r', None),
}
TSV = LINES | {
    "too few columns": (b"only one", "1 columns, not 2"),
    "too many columns": (b"a\tb\tc", "3 columns, not 2"),
    "an empty cell": (b"a\t", "'target' is empty"),
    "too long": (b"a" * 5000 + b"\tb", "longer than 2000 bytes"),
    "quotes are text": (b'"a\t"b', None),
    "a line separator": ("a\u2028b\tc".encode(), None),
    "a carriage return": (b"a\tb\r", None),
    "a vertical tab": (b"a\x0bb\tc", None),
}
TEXT = {
    "bad UTF-8": (b"a \xff", "not UTF-8"),
    "NUL": (b"a \0", "a NUL character"),
    "too long": (b"a" * 5000, "longer than 2000 bytes"),
    "empty": (b"", "'text' is empty"),
    "a line separator": ("a\u2028b".encode(), None),
    "a form feed": (b"a\x0cb", None),
}
CASES = [
    *(("jsonl", name, *case) for name, case in JSONL.items()),
    *(("tsv", name, *case) for name, case in TSV.items()),
    *(("txt", name, *case) for name, case in TEXT.items()),
]


def encoded(form, row):
    if form == "jsonl":
        return json.dumps(row, ensure_ascii=False).encode()
    return (f"{row['source']}\t{row['target']}" if form == "tsv" else row["source"]).encode()


def corpus(path, form):
    needs = ["text"] if form == "txt" else ["source", "target"]
    columns = ["source", "target"] if form == "tsv" else None
    return Corpus(path, needs=needs, columns=columns, max_bytes=2000)


@pytest.mark.parametrize(("form", "name", "line", "reason"), CASES, ids=[f"{form}: {name}" for form, name, *_ in CASES])
@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
def test_a_poisoned_line_is_named_and_all_others_are_used(tmp_path, form, name, line, reason, packed):
    lines = [encoded(form, row) for row in GOOD]
    lines.insert(3, line)
    path = tmp_path / f"corpus.{form}{packed}"
    content = b"\n".join(lines) + b"\n"
    if packed == ".gz":
        content = gzip.compress(content)
    elif packed == ".zst":
        content = pytest.importorskip("zstandard").compress(content)
    path.write_bytes(content)
    found = list(corpus(path, form))
    assert len(found) == 7
    bad = [item for item in found if isinstance(item, Problem)]
    if reason is None:
        assert not bad
        return
    assert len(bad) == 1
    assert reason in bad[0].reason
    assert bad[0].where.line == 4
    assert str(bad[0].where).startswith(f"{path}:4")
    key = "text" if form == "txt" else "source"
    assert [r.text(key) for r in found if isinstance(r, Record)] == [row["source"] for row in GOOD]


def test_the_column_of_a_problem(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes('é{"a": 1}\n'.encode() + b"\xc3\xa9\xc3\xa9\xff\n")
    json_problem, utf8_problem = read_all(path)
    assert str(json_problem.where).endswith("a.jsonl:1:1")
    assert str(utf8_problem.where).endswith("a.jsonl:2:3")


def read_all(path):
    return list(Corpus(path))


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo")
    assert [line.text for line in read_lines(path)] == ["one", "two"]


def test_a_cut_archive_gives_what_it_has(tmp_path):
    path = tmp_path / "a.txt.gz"
    whole = gzip.compress("\n".join(str(i) * 50 for i in range(5000)).encode())
    path.write_bytes(whole[: len(whole) // 2])
    found = list(Corpus(path, needs=["text"]))
    assert len(found) > 100
    assert "cut or damaged" in found[-1].reason
    assert all(isinstance(item, Record) for item in found[:-1])


def test_pairs_of_unequal_length(tmp_path):
    (tmp_path / "a.en").write_text("one\ntwo\nthree\n")
    (tmp_path / "a.fr").write_bytes(b"un\n\xff\n")
    found = list(Corpus(tmp_path / "a.en", tmp_path / "a.fr", needs=["source", "target"]))
    assert found[0].fields == {"source": "one", "target": "un"}
    assert str(found[1].where).endswith("a.fr:2:1")
    assert "no partner" in found[2].reason


def test_a_tsv_with_names(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("target\tsource\nun\tone\n")
    assert [r.fields for r in Corpus(path, needs=["source"])] == [{"target": "un", "source": "one"}]
    with pytest.raises(DataError, match=r"a\.tsv:1: the first line has no column 'id'"):
        list(Corpus(path, needs=["id"]))


def test_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"source": ["one", None], "target": ["un", "deux"]}), path)
    good, bad = Corpus(path, needs=["source", "target"])
    assert good.fields == {"source": "one", "target": "un"}
    assert bad.where.line == 2
    assert "null" in bad.reason
    path.write_bytes(b"not parquet")
    with pytest.raises(DataError, match="not readable as Parquet"):
        list(Corpus(path))


def test_a_row_of_parquet_that_is_no_line_of_json(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    texts, numbers = ["one", "two", "t" * 99, "four"], [[1.5], [float("nan")], [], [0.0, float("inf")]]
    parquet.write_table(pyarrow.table({"text": texts, "n": numbers}), tmp_path / "a.parquet")
    one, two, bad, four = Corpus(tmp_path / "a.parquet", max_bytes=50)
    assert [record.fields["n"] for record in (one, two, four)] == [[1.5], [None], [0.0, None]]
    assert (bad.where.line, bad.reason) == (3, "longer than 50 bytes (99 bytes)")


def test_rows_of_parquet_become_objects_a_few_at_a_time(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    parquet.write_table(pyarrow.table({"text": [str(i) * 10_000 for i in range(10)] * 300}), tmp_path / "a.parquet")
    tracemalloc.start()
    assert sum(len(record.text("text")) for record in Corpus(tmp_path / "a.parquet")) == 30_000_000
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_a_cell_of_parquet_that_python_cannot_hold(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    texts = pyarrow.array([b"one", b"a \xff", b"three"], pyarrow.binary()).cast(pyarrow.string(), safe=False)
    times = pyarrow.array([0, 0, 2**62], pyarrow.timestamp("us"))
    parquet.write_table(pyarrow.table({"text": texts, "time": times}), tmp_path / "a.parquet")
    good, bytes_, time = Corpus(tmp_path / "a.parquet", needs=["text"])
    assert good.text("text") == "one"
    assert (bytes_.where.line, bytes_.reason) == (2, "not UTF-8 (byte 0xff)")
    assert (time.where.line, time.reason.partition(" (")[0]) == (3, "a value that cannot be read")


@contextmanager
def no_room(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
def test_parquet_in_an_archive_and_damaged(tmp_path, packed):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    pack = {"": bytes, ".gz": gzip.compress, ".zst": pytest.importorskip("zstandard").compress}[packed]
    table = pyarrow.table({"text": [f"text {i}" for i in range(100)]})
    parquet.write_table(table, tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    path = tmp_path / f"b.parquet{packed}"
    path.write_bytes(pack(whole))
    assert [r.text("text") for r in Corpus(path, needs=["text"])] == table["text"].to_pylist()
    if packed:
        with no_room(len(whole) - 1), pytest.raises(OSError, match=f"File too large: '{tempfile.gettempdir()}'"):
            list(Corpus(path))
    for damaged in (pack(whole)[:-20], pack(whole[:10] + b"damage" + whole[16:])):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="not readable as Parquet after row 0"):
            list(Corpus(path))


def test_two_columns_of_parquet_with_one_name(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    table = pyarrow.Table.from_arrays([pyarrow.array(["a"]), pyarrow.array(["b"])], ["text", "text"])
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="two columns are named 'text'"):
        list(Corpus(tmp_path / "a.parquet"))


def test_a_file_that_is_not_there(tmp_path):
    for name in ("gone.jsonl", "gone.jsonl.gz", "gone.jsonl.zst"):
        with pytest.raises(DataError, match="No such file or directory; check the name"):
            list(Corpus(tmp_path / name))
    with pytest.raises(DataError, match="unknown format 'csv'"):
        list(Corpus(tmp_path / "gone.jsonl", form="csv"))


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that cannot be read")
def test_a_disk_that_fails_is_not_the_end_of_a_file():
    with pytest.raises(DataError, match="/proc/self/mem: Input/output error; check the disk"):
        list(read_lines(Path("/proc/self/mem")))


def test_a_cut_zstandard_archive(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    text = "\n".join(f"sentence number {i} {hash(str(i))}" for i in range(20000)).encode()
    whole = zstandard.compress(text[:100000]) + zstandard.compress(text[100000:])
    path = tmp_path / "a.txt.zst"
    path.write_bytes(whole)
    assert [r.text("text") for r in Corpus(path)] == text.decode().split("\n")
    path.write_bytes(whole[: len(whole) // 2])
    *good, bad = Corpus(path)
    assert len(good) > 1000
    assert "cut or damaged" in bad.reason


def test_a_zstandard_archive_is_unpacked_piece_by_piece(tmp_path):
    """A few thousand bytes may stand for gigabytes."""
    zstandard = pytest.importorskip("zstandard")
    path = tmp_path / "a.txt.zst"
    path.write_bytes(zstandard.compress(bytes(2**27)) + zstandard.compress(b"\nthe end"))
    with path.open("rb") as file:
        sizes = [len(piece) for piece in lines._unpacked(file, zstandard)]
    assert sum(sizes) == 2**27 + 8
    assert max(sizes) <= 2**25
    long, end = Corpus(path)
    assert long.reason == f"longer than {lines.MAX_BYTES} bytes ({2**27 + 1} bytes)"
    assert end.text("text") == "the end"


def test_archives_in_capitals_and_of_other_kinds(tmp_path):
    (tmp_path / "A.JSONL.GZ").write_bytes(gzip.compress(b'{"text": "a"}\n'))
    (tmp_path / "A.TXT.ZST").write_bytes(pytest.importorskip("zstandard").compress(b"a\n"))
    for name in ("A.JSONL.GZ", "A.TXT.ZST"):
        assert [record.text("text") for record in Corpus(tmp_path / name)] == ["a"]
    for suffix in ("bz2", "xz", "zip", "lz4"):
        with pytest.raises(DataError, match=f"packed as {suffix}: unpack it, or use .gz or .zst"):
            list(Corpus(tmp_path / f"a.txt.{suffix}"))


def test_names_in_capitals_and_names_twice(tmp_path):
    (tmp_path / "A.JSONL").write_text('{"text": "a"}\n')
    assert Corpus(tmp_path / "A.JSONL").format == "jsonl"
    (tmp_path / "a.tsv").write_text("source\ttarget\ttarget\n")
    with pytest.raises(DataError, match="names 'target' twice"):
        list(Corpus(tmp_path / "a.tsv"))
    with pytest.raises(ValueError, match="two columns are named 'target'"):
        Corpus(tmp_path / "a.tsv", columns=["source", "target", "target"])


def test_many_names_take_no_longer_than_their_line(tmp_path):
    """The square of a hundred thousand names would take minutes."""
    names = [f"n{i}" for i in range(100_000)]
    (tmp_path / "a.jsonl").write_text(json.dumps(dict.fromkeys(names, 0)) + "\n")
    (tmp_path / "a.tsv").write_text("\t".join(names) + "\n" + "\t".join("0" for _ in names) + "\n")
    began = time.monotonic()
    for name in ("a.jsonl", "a.tsv"):
        (found,) = Corpus(tmp_path / name, max_bytes=2**21)
        assert list(found.fields) == names
    assert time.monotonic() - began < 20
