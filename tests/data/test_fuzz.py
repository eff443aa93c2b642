"""Damaged files by the thousand: no good record is lost, no bad one is used, nothing is raised but DataError.

What is in a file is known because it was made here: for each line the fields that it must give, or `BAD`, or `ANY`
where random bytes may have made something readable.
"""

import json
import random
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from errornorm.curation.prune_input import KEPT, Input
from errornorm.data.lines import BOM, MAX_BYTES, DataError, Problem
from errornorm.data.quarantine import Quarantine
from errornorm.data.records import Corpus, Record, checked
from errornorm.data.values import DEEPEST
from errornorm.scoring.corpus import Reading
from errornorm.training import corpora
from errornorm.training.config import Source
from tests.curation.prunable import _Settings as Settings
from tests.curation.test_prune_fuzz import PACKERS, words
from tests.data.test_records import JSONL, TEXT, TSV

FILES, PARTS = 100_000, 10
FORMS = ["jsonl"] * 4 + ["tsv", "tsv", "columns", "txt", "pairs", "parquet"]
VERBS = ("corrupt", "train", "score", "prune")
BAD, ANY = "bad", "any"
TABLES = {
    form: [case for name, case in table.items() if name != "too long"]
    for form, table in {"jsonl": JSONL, "tsv": TSV, "columns": TSV, "txt": TEXT, "pairs": TEXT}.items()
}
NOT_UTF8 = [b"\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"]
NOT_TEXTS = [None, True, 7, 1.5, [], {}, ["a"], {"en": "a"}]
HUGE = 50 * 2**20


def encoded(rng, form, fields):
    if form == "jsonl":
        return json.dumps(fields, ensure_ascii=rng.random() < 0.5).encode()
    return "\t".join(fields.values()).encode()


def good(rng, form):
    if form in ("txt", "pairs"):
        return {"text": f"a {words(rng)}"}
    fields = {"source": f"a {words(rng)}", "target": f"un {words(rng)}"}
    return fields | ({"n": rng.choice([1, 1.5, None, "x", [{}], {"a": {"a": 1}}])} if form == "jsonl" else {})


def known(form, raw):
    """The fields of a line that is good."""
    text = raw.decode().removesuffix("\r")
    if form == "jsonl":
        return json.loads(text)
    return (
        {"text": text} if form in ("txt", "pairs") else dict(zip(("source", "target"), text.split("\t"), strict=True))
    )


def inserted(rng, raw, piece):
    """Where it is not the first of the line, nor inside a character."""
    text = raw.decode()
    at = rng.randint(1, len(text))
    return text[:at].encode() + piece + text[at:].encode()


def poisoned(rng, form):
    """A line, and what it must give."""
    fields = good(rng, form)
    raw = encoded(rng, form, fields)
    kind = rng.randrange(10)
    if kind < 3:
        line, reason = rng.choice(TABLES[form])
        return line, known(form, line) if reason is None else BAD
    if kind == 3:
        return inserted(rng, raw, rng.choice(NOT_UTF8)), BAD
    if kind == 4:
        return inserted(rng, raw, b"\0"), BAD
    if kind == 5:
        return rng.choice([b"", b" \t "]), None if form == "jsonl" else BAD
    if kind == 6:
        cut = raw[: rng.randint(1, len(raw) - 1)]
        return cut, BAD if form == "jsonl" else ANY
    if kind == 7:
        noise = bytearray(inserted(rng, raw, rng.randbytes(rng.randint(1, 30))))
        noise[rng.randrange(1, len(noise))] = rng.randrange(256)
        return bytes(noise).replace(b"\n", b"?"), ANY
    if kind == 8:
        return BOM + raw, BAD if form == "jsonl" else known(form, BOM + raw)
    return poisoned_json(rng, fields, raw) if form == "jsonl" else (raw, fields)


def poisoned_json(rng, fields, raw):
    kind = rng.randrange(5)
    name = rng.choice(["source", "target"])
    if kind == 0:
        return encoded(rng, "jsonl", fields | {name: rng.choice(NOT_TEXTS)}), BAD
    if kind == 1:
        return raw[:-1] + f', "{rng.choice(list(fields))}": "again"}}'.encode(), BAD
    if kind == 2:
        half = f"\\ud{rng.choice('89abcdef')}{rng.randrange(256):02x}"
        return raw[:-1] + f', "{rng.choice(["more", half])}": "{half} x"}}'.encode(), BAD
    if kind == 3:
        return raw[:-1] + rng.choice([b"", b",}", b'} {"a": 1}', b"}}", b', "more": Infinity}', b", more: 1}"]), BAD
    depth = rng.choice([2, 20, DEEPEST - 1, DEEPEST, 480, 900, 985, 2000])  # inside of the object, which counts too
    deep = b', "more": ' + b"[" * depth + b"]" * depth + b"}"
    return raw[:-1] + deep, BAD if depth >= DEEPEST else json.loads(raw[:-1] + deep)


def lines(rng, form, long):
    share = rng.choice([0, 0.2, 0.5, 1])
    made = []
    for _ in range(rng.randint(0, 8)):
        fields = good(rng, form)
        made.append(poisoned(rng, form) if rng.random() < share else (encoded(rng, form, fields), fields))
    if long:
        made.insert(rng.randint(0, len(made)), (b"a" * long, BAD))
    return made


def headed(rng, made):
    """With the names of the columns in front; or a reason why the file is refused."""
    names, refused = rng.choice([(b"source\ttarget", "")] * 8 + [(b"source\tx", "no column"), (b"a\ta", "twice")])
    return [(b"\xff", BAD)] * rng.choice([0, 0, 0, 1]) + [(names, None), *made], refused


def write(rng, path, made):
    """A file of some lines; returns what each of its lines must give, None where nothing is known."""
    packed, end = path.suffix, rng.choice([b"\n", b"\n", b"\r\n"])
    if end == b"\r\n":
        made = [(line.removesuffix(b"\r"), truth) for line, truth in made]
    last = rng.random() < 0.5  # whether the last line has an end
    if not last and made and not made[-1][0]:
        made = made[:-1]
        last = True
    content = end.join(line for line, _ in made) + (end if last and made else b"")
    if content.startswith(BOM) or rng.random() < 0.1:  # only the first one is a mark
        content = BOM + content
    whole = PACKERS.get(packed, bytes)(content)
    truth = dict(enumerate((truth for _, truth in made), 1))
    if content == BOM:  # a file of nothing else has a line, which is empty
        truth = {1: None if ".jsonl" in path.name else BAD}
    damage = rng.randrange(6) if packed in PACKERS else 0
    if damage == 1:
        cut = whole[: rng.randrange(len(whole))]
        truth = before_the_cut(cut, truth) if packed == ".gz" else None
        whole = cut
    elif damage == 2:
        at = rng.randrange(len(whole))
        whole, truth = whole[:at] + rng.randbytes(rng.randint(1, 3)) + whole[at + 1 :], None
    path.write_bytes(whole)
    return truth


def before_the_cut(cut, truth):
    """All lines that an archive still has, and one problem for the rest."""
    if not cut:
        return {}
    whole = zlib.decompressobj(31).decompress(cut).count(b"\n")
    return {number: truth[number] for number in range(1, whole + 1)} | {whole + 1: BAD}


def made_pairs(rng, folder, long):
    packed = rng.choice(["", "", ".gz", ".zst"])
    about = {"path": folder / f"a.en{packed}", "pair": folder / f"a.fr{packed}"}
    given = [lines(rng, "pairs", long), lines(rng, "pairs", 0)]
    if rng.random() < 0.7:
        shortest = min(map(len, given))
        given = [side[:shortest] for side in given]
    left, right = (write(rng, path, side) for path, side in zip(about.values(), given, strict=True))
    if left is None or right is None:
        return about, None
    both = {}
    for number in range(1, max(len(left), len(right)) + 1):
        sides = [side.get(number, BAD) for side in (left, right)]
        if BAD in sides or ANY in sides:
            both[number] = BAD if BAD in sides else ANY
        else:
            both[number] = {"source": sides[0]["text"], "target": sides[1]["text"]}
    return about, both


def made_parquet(rng, folder):
    """Cells of every kind; a column of another type; now and then damage."""
    path = folder / f"a.parquet{rng.choice(['', '', '', '.gz', '.zst'])}"
    cells = [None, b"", b" ", b"a\0", b"a \xff", *(f"a {words(rng)}".encode() for _ in range(12))]
    size = rng.randint(0, 8)
    columns = {name: [rng.choice(cells) for _ in range(size)] for name in ("source", "target")}
    times = [rng.choice([0, 0, 0, 2**62]) for _ in range(size)]
    truth = {
        number: {"source": a.decode(), "target": b.decode()} if not ({a, b} & set(cells[:5])) and not time else BAD
        for number, (a, b, time) in enumerate(zip(*columns.values(), times, strict=True), 1)
    }
    arrays = [pa.array(column, pa.binary()).cast(pa.string(), safe=False) for column in columns.values()]
    flipped = rng.randrange(10)
    if flipped < 3:
        kinds = [pa.nulls(size), pa.array(range(size)), pa.array([["a"]] * size, pa.list_(pa.string()))]
        arrays[rng.randrange(2)] = kinds[flipped]
        truth = dict.fromkeys(truth, BAD)
    table = pa.Table.from_arrays([*arrays, pa.array(times, pa.timestamp("us"))], ["source", "target", "n"])
    refused = flipped == 3
    if refused:
        table = table.rename_columns(["source", "target", "source"])
    file = pa.BufferOutputStream()
    pq.write_table(table, file, row_group_size=rng.randint(1, 9), compression=rng.choice(["none", "snappy", "gzip"]))
    whole = file.getvalue().to_pybytes()
    damage = rng.randrange(5)
    if damage == 1:
        whole, truth = whole[: rng.randrange(len(whole))], None
    elif damage == 2:
        at = rng.randrange(len(whole))
        whole, truth = whole[:at] + rng.randbytes(rng.randint(1, 8)) + whole[at + 1 :], None
    whole = PACKERS.get(path.suffix, bytes)(whole)
    if path.suffix in PACKERS and damage == 3:
        whole, truth = whole[: rng.randrange(len(whole))], None
    path.write_bytes(whole)
    return {"path": path}, truth, "two columns" if refused and truth is not None else ""


def made_file(rng, form, folder, long):
    """What describes a corpus, what each line must give, why it is refused if it is, and its lines."""
    if form == "parquet":
        return *made_parquet(rng, folder), []
    if form == "pairs":
        return *made_pairs(rng, folder, long), "", []
    made, refused = lines(rng, form, long), ""
    about = {}
    if form == "tsv":
        made, refused = headed(rng, made)
    elif form == "columns":
        about = {"columns": ["source", "target"]}
    suffix = {"columns": "tsv"}.get(form, form)
    path = folder / f"a.{suffix}{rng.choice(['', '', '', '.gz', '.gz', '.zst'])}"
    truth = write(rng, path, made)
    if truth is None or None not in truth.values():  # damaged, or cut before the names
        refused = ""
    return {"path": path} | about, truth, refused, made


def read(verb, about, names):
    """As the verb reads it."""
    source = Source(**about)
    if verb == "corrupt":
        return Corpus(source.path, source.pair, needs=names, columns=source.columns)
    if verb == "train":
        return corpora.records(source, names)
    reading, settings = Reading(source), Settings(names)
    if verb == "score":
        return reading.items(settings)
    given = given_to_prune(reading, settings)
    return (checked(item, names) if isinstance(item, Record) else item for item in given.items())


def given_to_prune(reading, settings):
    about = reading.about(settings)
    return Input(reading.source.path, reading.source.pair, about["format"], settings.fields, reading.source.columns)


def check(rng, folder, number):
    form, verb = rng.choice(FORMS), VERBS[number % len(VERBS)]
    long = HUGE if number % 10_000 == 7 else MAX_BYTES + 1 if number % 500 == 7 else 0
    if long and form == "parquet":
        form = "txt"
    about, truth, refused, made = made_file(rng, form, folder, long)
    if refused == "no column" and verb == "prune":  # it knows no fields that must be there
        verb = "score"
    names = ["text"] if form == "txt" else ["source", "target"]
    quarantine, items = Quarantine(folder / "quarantine.jsonl"), []

    def seen():
        for item in read(verb, about, names):
            items.append(item)
            yield item

    try:
        records = list(quarantine.filter(seen()))
    except DataError as error:
        assert truth is None or refused, error  # noqa: PT017
        assert refused in str(error)  # noqa: PT017
        assert str(about["path"]) in str(error)  # noqa: PT017
        return
    assert not refused
    assert records == [item for item in items if isinstance(item, Record)]
    assert (quarantine.used, quarantine.records) == (len(records), len(items))
    told = quarantine.path.read_text(encoding="utf-8").split("\n")[:-1] if quarantine.problems else []
    assert len(told) == quarantine.problems
    assert all(json.loads(row)["reason"] for row in told)
    found = {item.where.line: item for item in items}
    assert len(found) == len(items)
    assert list(found) == sorted(found)
    if truth is not None:
        same(found, truth)
        if verb == "prune" and made:
            same_bytes(given_to_prune(Reading(Source(**about)), Settings(names)), truth, made)


def same(found, truth):
    for number in truth.keys() | found.keys():
        want, got = truth.get(number), found.get(number)
        if want is None:
            assert got is None, (number, got)
        elif want == ANY:
            assert got is not None, number
        elif want == BAD:
            assert isinstance(got, Problem), (number, got)
        else:
            assert isinstance(got, Record), (number, want, got)
            assert {name: got.fields[name] for name in want} == want


def same_bytes(given, truth, made):
    """What prune would write if it dropped nothing: the lines of good records as they are."""
    good = {number for number, want in truth.items() if isinstance(want, dict)}
    states = bytes(KEPT if number in good else 0 for number in range(max(truth, default=0) + 1))
    kept = dict(given.raw(given.path, states))
    assert good <= kept.keys()
    assert all(truth[number] is None for number in kept.keys() - good)
    assert all(made[number - 1][0].removesuffix(b"\r") in kept[number] for number in good)


def run(suite, folder, numbers):
    for number in numbers:
        with suite.case(number):
            check(random.Random(f"input {number}"), folder, number)
        for path in folder.iterdir():
            path.unlink()


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    """Disks are slow."""
    monkeypatch.setattr("os.fsync", lambda number: None)


def test_a_few(tmp_path, tally):
    with tally("readers", "input", "damaged files") as suite:
        run(suite, tmp_path, range(200))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_hundred_thousand(tmp_path, tally, part):
    with tally("readers", "input", "damaged files (JSONL, TSV, text, aligned text, Parquet; packed or not) as train, "
               "score, prune and corrupt read them; a case fails if a good record is lost or changed, a bad one is "
               "used, or anything but a DataError is raised") as suite:  # fmt: skip
        run(suite, tmp_path, range(part * FILES // PARTS, (part + 1) * FILES // PARTS))
