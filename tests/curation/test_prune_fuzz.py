"""A thousand poisoned files through the command line: no record is lost, no line changes, nothing raises."""

import gzip
import json
import math
import random
import sys
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
import zstandard

from errornorm import cli
from errornorm.data.lines import BOM, MAX_BYTES
from tests.curation.prunable import scored, texts_of
from tests.data.test_records import JSONL, TEXT, TSV

PACKERS = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}
FILES = 1000
COMMANDS = typer.main.get_command(cli.app)
FORMS = ("jsonl", "tsv", "columns", "txt", "pairs", "parquet")
WORDS = ["un", "chien", "à", "日本", "🙂🙂", "e\u0301", "\u200f", "\x1b[31m", "<script>", "\u2028", "\ufeff", "a\x0bb"]
LONG = b"a" * 5000


def words(rng):
    return " ".join(rng.choices(WORDS, k=rng.randint(1, 6)))


def good(rng, form):
    source, target, site = words(rng), words(rng), rng.choice(["web", "books", "talks"])
    if form == "jsonl":
        fields = {"source": source, "target": target, "site": site, "n": rng.choice([1, 1.5, None, "x", [{}]])}
        return json.dumps(fields, ensure_ascii=rng.random() < 0.5).encode()
    return f"{source}\t{target}\t{site}".encode() if form in ("tsv", "columns") else target.encode()


def bad(rng, form):
    """One of the poisons of the reader's own tests, or noise."""
    kinds = {"jsonl": JSONL, "tsv": TSV, "columns": TSV}.get(form, TEXT)
    line = rng.choice([*(line for line, _ in kinds.values()), b"", b" \t ", rng.randbytes(rng.randint(1, 30))])
    long = MAX_BYTES + 1 if rng.random() < 0.1 else len(LONG)  # now and then longer than is read
    return line.replace(LONG, b"a" * long).replace(b"\n", b"?")


def lines(rng, form):
    share = rng.choice([0, 0.1, 0.5, 0.9])
    return [bad(rng, form) if rng.random() < share else good(rng, form) for _ in range(rng.randint(1, 25))]


def content(rng, form, given):
    end = rng.choice([b"\n", b"\n", b"\r\n"])
    text = end.join(given) + rng.choice([b"", end, end + end])
    return (BOM if rng.random() < 0.1 else b"") + text


def made(rng, form, folder):
    """A corpus, what describes it, and the names of its files."""
    if form == "parquet":
        texts = [None, "", " ", "a\0", *(words(rng) for _ in range(12))]
        rows = [
            {"source": rng.choice(texts), "target": rng.choice(texts), "site": "web", "n": rng.random()}
            for _ in range(rng.randint(1, 25))
        ]
        pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet", row_group_size=rng.randint(1, 30))
        return {"path": folder / "a.parquet"}
    packed = rng.choice(["", "", "", ".gz", ".zst"])
    names = {"jsonl": ["a.jsonl"], "txt": ["a.txt"], "pairs": ["a.en", "a.fr"]}.get(form, ["a.tsv"])
    for name in names:
        given = lines(rng, form)
        if form == "tsv":
            given.insert(rng.choice([0, 0, 0, 1]), b"source\ttarget\tsite")
        whole = PACKERS[packed](content(rng, form, given))
        if packed == ".gz" and rng.random() < 0.2:
            whole = whole[: rng.randint(len(whole) // 2, len(whole))]
        (folder / f"{name}{packed}").write_bytes(whole)
    about = {"path": folder / f"{names[0]}{packed}"}
    if form == "pairs":
        about["pair"] = folder / f"{names[1]}{packed}"
    return about | ({"columns": ["source", "target", "site"]} if form == "columns" else {})


def command(rng, form, folder):
    """Words of a command line, and the rule in it."""
    unit = rng.choice(["sequence", "sequence", "token", "source"])
    by = rng.choice(["error_norm", "nll", "p_target", "random"])
    if unit != "token" and by != "random":
        by += rng.choice(["", "_max", "_first"])
    share = rng.choice([0, 0.1, 0.29, 0.5, 0.57, 1])
    asked = ["--by", by, "--unit", unit, "--seed", str(rng.randint(0, 9))]
    if by == "random" or rng.random() < 0.8:
        asked += ["--fraction", str(share)]
    else:
        asked, share = [*asked, "--threshold", str(rng.uniform(0, 1.4))], None
    if unit == "source":
        asked += ["--group-by", rng.choice(["length", "length", "site"])]
    output = {"jsonl": "b.jsonl", "txt": "b.txt", "pairs": "b.en", "parquet": "b.parquet"}.get(form, "b.tsv")
    if unit == "token":
        output = "b.jsonl"
    if output != "b.parquet":
        output += rng.choice(["", "", ".gz", ".zst"])
    asked += ["-o", str(folder / output)]
    if form == "pairs" and unit != "token":
        asked += ["--output-pair", str(folder / "b.fr")]
    return asked, unit, share


def unpacked(path):
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    if path.suffix == ".zst":
        return zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    return path.read_bytes()


def is_part(small, large):
    """Whether lines come one after another in others."""
    rest = iter(large)
    return all(any(line == other for other in rest) for line in small)


def check(rng, folder, capsys):
    form = rng.choice(FORMS)
    about = made(rng, form, folder)
    fields = {"text_field": "text", "context": ""} if form == "txt" else {}
    try:
        scores = scored(
            folder / "scores", about, seed=rng.random(), part_rows=rng.choice([50, 50, 50, 50, 3]), **fields
        )
    except Exception as error:  # the scorer refuses it too: a TSV that begins with something else
        assert "the first line" in str(error), error  # noqa: PT017
        return None
    asked, unit, share = command(rng, form, folder)
    code = cli.main(["prune", str(folder / "scores"), *asked, "--json"])
    out, err = capsys.readouterr()
    if "--group-by" in asked and code == 2:
        assert "no record has the field 'site'" in err
        return None
    assert (code, err) == (0, ""), (asked, err)
    done = json.loads(out)
    records, kept, pruned, quarantined = (done[name] for name in ("records", "kept", "pruned", "quarantined"))
    assert records == kept + pruned + quarantined
    assert (records, quarantined) == (scores.meta["records"], scores.meta["quarantined"])
    if share is not None and unit != "source":
        assert done["dropped"] == math.floor(Fraction(str(share)) * done["units"])
    if unit == "source":
        assert share is None or pruned <= Fraction(str(share)) * (kept + pruned)
    output = asked[asked.index("-o") + 1]
    same_texts(scores, form, unit, about, output, folder, fields)
    if unit != "token":
        same_lines(form, about, folder, output)
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    return records


def same_texts(scores, form, unit, about, output, folder, fields):
    """Those that were scored, each once, on one of the two sides."""
    new = {"path": Path(output)} | ({"columns": about["columns"]} if "columns" in about and unit != "token" else {})
    if form == "pairs" and unit != "token":
        new["pair"] = folder / "b.fr"
    texts = texts_of(new, fields.get("text_field", "target"))
    if unit != "token":
        aside = unpacked(folder / f"{Path(output).name}.removed.jsonl").split(b"\n")
        texts += [json.loads(line)["text"] for line in aside if line]
    assert sorted(texts) == sorted(scores.table(["text"])["text"].to_pylist())


def same_lines(form, about, folder, output):
    if form == "parquet":
        assert is_part(pq.read_table(output).to_pylist(), pq.read_table(about["path"]).to_pylist())
        return
    for old, new in ((about["path"], folder / output), (about.get("pair"), folder / "b.fr")):
        if old is not None:
            try:
                before = unpacked(old)
            except EOFError:  # cut on purpose
                return
            after = unpacked(new)
            assert is_part(after.removeprefix(BOM).splitlines(True), before.removeprefix(BOM).splitlines(True))


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    """Typer makes its commands anew for each call, and disks are slow."""
    monkeypatch.setattr(sys.modules["errornorm.cli.app"], "app", COMMANDS)
    monkeypatch.setattr("os.fsync", lambda number: None)


def marked(part):
    return pytest.param(part, marks=pytest.mark.recorded if part < 3 else pytest.mark.slow)


@pytest.mark.parametrize("part", [marked(part) for part in range(10)])
def test_poisoned_files(tmp_path, capsys, tally, part):
    sizes = []
    with tally("prune", "input", "corpora with damaged lines through `errornorm prune`, with every rule and unit; "
               "a case fails if a record is lost, a line changes, or the command fails") as suite:  # fmt: skip
        for number in range(FILES // 10):
            folder = tmp_path / str(number)
            folder.mkdir()
            with suite.case(f"{part} {number}"):
                sizes.append(check(random.Random(f"{part} {number}"), folder, capsys))
    assert sum(size is not None for size in sizes) > 80
    assert sum(size or 0 for size in sizes) > 500
