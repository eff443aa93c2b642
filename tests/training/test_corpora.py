"""Texts of a corpus, wherever they lie: files of every format, and data sets."""

import gzip
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from errornorm.data.lines import DataError
from errornorm.data.quarantine import Quarantine
from errornorm.training import corpora
from errornorm.training.config import Source
from tests.tiny import PAIRS, write_jsonl

TEXTS = [list(pair) for pair in PAIRS]
PLAIN = [{"source": source, "target": target} for source, target in PAIRS]
NESTED = [{"id": i, "translation": {"en": source, "fr": target}} for i, (source, target) in enumerate(PAIRS)]
FIELDS = {"source_field": "translation.en", "target_field": "translation.fr"}


@pytest.fixture(autouse=True)
def _caches(monkeypatch, tmp_path):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def read(source, kind="seq2seq", folder=None):
    quarantine = Quarantine((folder or Path("/nowhere")) / "quarantine.jsonl")
    return list(corpora.read(source, kind, quarantine)), quarantine


def parquet(path, rows):
    path.parent.mkdir(exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def lines(path, rows):
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def files(folder):
    """The same pairs in every format."""
    jsonl = write_jsonl(folder / "a.jsonl", PLAIN)
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(jsonl.read_bytes()))
    (folder / "a.jsonl.zst").write_bytes(zstandard.compress(jsonl.read_bytes()))
    tsv = lines(folder / "a.tsv", ["target\tid\tsource", *(f"{b}\t7\t{a}" for a, b in PAIRS)])
    bare = lines(folder / "bare.tsv", [f"{a}\t{b}" for a, b in PAIRS])
    english, french = lines(folder / "a.en", [a for a, _ in PAIRS]), lines(folder / "a.fr", [b for _, b in PAIRS])
    return {
        "jsonl": {"path": jsonl},
        "gz": {"path": folder / "a.jsonl.gz"},
        "zst": {"path": folder / "a.jsonl.zst"},
        "nested": {"path": write_jsonl(folder / "b.json", NESTED), **FIELDS},
        "tsv": {"path": tsv},
        "columns": {"path": bare, "columns": ["source", "target"]},
        "pairs": {"path": english, "pair": french},
        "pairs called text": {"path": english, "pair": french, "format": "text"},
        "other names": {"path": english, "pair": french, "source_field": "en", "target_field": "fr"},
        "parquet": {"path": parquet(folder / "a.parquet", PLAIN)},
        "nested parquet": {"path": parquet(folder / "b.parquet", NESTED), **FIELDS},
    }


FORMS = ["jsonl", "gz", "zst", "nested", "tsv", "columns", "pairs", "pairs called text", "other names", "parquet",
         "nested parquet"]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_the_same_texts_from_every_format(tmp_path, form):
    texts, quarantine = read(Source(**files(tmp_path)[form]), folder=tmp_path)
    assert texts == TEXTS
    assert (quarantine.records, quarantine.used, quarantine.problems) == (len(TEXTS), len(TEXTS), 0)
    assert not quarantine.path.exists()


def test_documents(tmp_path):
    path = lines(tmp_path / "a.txt", ["one", "two"])
    assert read(Source(path=path), "causal", tmp_path)[0] == [["one"], ["two"]]
    assert read(Source(path=path, columns=["a", "b"]), "causal", tmp_path)[0] == [["one"], ["two"]]
    path = write_jsonl(tmp_path / "a.jsonl", [{"document": {"body": "one"}}])
    assert read(Source(path=path, text_field="document.body"), "causal", tmp_path)[0] == [["one"]]


@pytest.mark.parametrize("count", [1, 3, 1000])
def test_a_limit_is_one_of_records(tmp_path, count):
    texts, _ = read(Source(path=write_jsonl(tmp_path / "a.jsonl", PLAIN), limit=count), folder=tmp_path)
    assert texts == TEXTS[:count]


def test_a_name_with_a_dot_may_be_a_name(tmp_path):
    rows = [{"a.b": "flat", "a": {"b": "deep"}, "target": "x"}, {"a": {"b": "deep"}, "target": "x"}]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    texts, _ = read(Source(path=path, source_field="a.b"), folder=tmp_path)
    assert texts == [["flat", "x"], ["deep", "x"]]


def test_what_is_not_inside_is_missing(tmp_path):
    """Not null, which would send the reader of the report after another mistake."""
    bad = [
        {"translation": {"en": "a"}},
        {"translation": "text"},
        {"other": 1},
        {"translation": {"en": "a", "fr": None}},
    ]
    path = write_jsonl(tmp_path / "a.jsonl", [*NESTED, *bad])
    texts, quarantine = read(Source(path=path, **FIELDS), folder=tmp_path)
    assert texts == TEXTS
    reasons = [json.loads(line)["reason"] for line in quarantine.path.read_text().splitlines()]
    assert reasons == [
        "no field 'translation.fr'",
        "no field 'translation.en'",
        "no field 'translation.en'",
        "field 'translation.fr' is null, not a text",
    ]


MISTAKES = {
    "one text file": ({"path": "a.en"}, "one text file has no targets: give the other side as pair"),
    "a pair of JSONL": ({"path": "a.jsonl", "pair": "a.fr", "format": "jsonl"}, "jsonl has both sides in one file"),
    "a pair of what is JSONL by its name": ({"path": "a.jsonl", "pair": "a.fr"}, "jsonl has both sides in one file"),
    "both sides of one text": ({"path": "a.en", "pair": "a.fr"}, "leave out its other side, a.fr", "causal"),
    "missing": ({"path": "gone.jsonl"}, "No such file or directory; check the name"),
    "a folder": ({"path": "folder.jsonl"}, "Is a directory; check the name"),
    "a missing column": ({"path": "a.tsv", "source_field": "english"}, "a.tsv:1: the first line has no column"),
    "a missing field": ({"path": "a.jsonl", "source_field": "english"}, "no record can be used .no field 'english'."),
    "empty": ({"path": "empty.jsonl"}, "no record can be used .it is empty.; check the format"),
    "not Parquet": ({"path": "a.tsv", "format": "parquet"}, "not readable as Parquet"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_in_a_line(tmp_path, monkeypatch, mistake):
    monkeypatch.chdir(tmp_path)
    files(tmp_path)
    (tmp_path / "empty.jsonl").write_text("\n\n")
    (tmp_path / "folder.jsonl").mkdir()
    keys, message, *kind = MISTAKES[mistake]
    paths = {key: Path(value) for key, value in keys.items() if key in ("path", "pair")}
    with pytest.raises(DataError, match=message) as error:
        read(Source(**{**keys, **paths}), *kind, folder=tmp_path)
    assert "\n" not in str(error.value)
    assert str(keys["path"]) in str(error.value)


def test_a_target_side_that_is_no_text_by_its_name(tmp_path):
    files(tmp_path)
    with pytest.raises(DataError, match=r"a\.jsonl: jsonl has both sides in one file: give it alone"):
        read(Source(path=tmp_path / "a.en", pair=tmp_path / "a.jsonl"), folder=tmp_path)
    assert read(Source(path=tmp_path / "a.en", pair=tmp_path / "a.jsonl", format="pairs"), folder=tmp_path)[0]


def dataset(folder, form):
    """Two splits, as data sets have them."""
    place = folder / "news"
    place.mkdir()
    for split, rows in (("train", NESTED), ("test", NESTED[:3])):
        parquet(place / f"{split}.parquet", rows) if form == "parquet" else write_jsonl(place / f"{split}.jsonl", rows)
    return str(place)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_data_set_in_a_folder(tmp_path, form):
    place = dataset(tmp_path, form)
    assert read(Source(dataset=place, **FIELDS), folder=tmp_path)[0] == TEXTS
    assert read(Source(dataset=place, split="test", **FIELDS), folder=tmp_path)[0] == TEXTS[:3]
    assert read(Source(dataset=place, limit=2, **FIELDS), folder=tmp_path)[0] == TEXTS[:2]


@pytest.mark.parametrize(("split", "texts"), [("train[:25%]", TEXTS[: len(TEXTS) // 4]), ("test+test", 2 * TEXTS[:3])])
def test_a_slice_of_a_data_set(tmp_path, split, texts):
    """It cannot be streamed."""
    place = dataset(tmp_path, "parquet")
    assert read(Source(dataset=place, split=split, **FIELDS), folder=tmp_path)[0] == texts


def test_records_of_a_data_set_that_cannot_be_used(tmp_path):
    place = tmp_path / "news"
    place.mkdir()
    write_jsonl(place / "train.jsonl", [*PLAIN, {"source": None, "target": "b"}, {"source": "a", "target": " "}])
    texts, quarantine = read(Source(dataset=str(place)), folder=tmp_path)
    assert texts == TEXTS
    rows = [json.loads(line) for line in quarantine.path.read_text().splitlines()]
    assert [row["where"] for row in rows] == [f"{place}:{len(TEXTS) + 1}", f"{place}:{len(TEXTS) + 2}"]
    assert "is null" in rows[0]["reason"]
    assert "is empty" in rows[1]["reason"]


def test_data_sets_that_cannot_be_read(tmp_path, capfd):
    place = dataset(tmp_path, "jsonl")
    with (Path(place) / "train.jsonl").open("a") as file:
        file.write("{broken\n")
    wrong = [
        Source(dataset=str(tmp_path / "gone")),
        Source(dataset=place, split="dev"),
        Source(dataset=place, subset="other"),
        Source(dataset=place, **FIELDS),
        Source(dataset=place, split="train[:50%]", **FIELDS),
    ]
    for source in wrong:
        with pytest.raises(DataError, match=r"cannot be loaded: .+") as error:
            read(source, folder=tmp_path)
        assert "\n" not in str(error.value)
        assert str(error.value).startswith(str(source.dataset))
    assert capfd.readouterr().err == ""  # no progress bars among ours, no error told twice
