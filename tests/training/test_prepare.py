"""From files to tokens: no record is lost, none is used that should not be; memory does not grow with the corpus."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from errornorm.data.lines import MAX_BYTES, DataError
from errornorm.training import prepare as library
from errornorm.training.config import Source, Tokenizer
from tests import tiny
from tests.data.test_records import JSONL, TEXT, TSV
from tests.tiny import PAIRS, write_jsonl
from tests.training.test_corpora import FORMS, files

PACKERS = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}
COLUMNS = ["source", "target"]


def prepared(folder, train, task="translation", *, max_length=64, tokenizer=None, **options):
    """What a run reads; and what was said on the way."""
    tokenizer = tokenizer or Tokenizer(vocab=300)
    config, said = tiny.config(task, train, max_length=max_length, tokenizer=tokenizer, **options), []
    library.prepare(config, folder / "data", said.append)
    return library.load(config, folder / "data"), said


def texts(found, side="target"):
    """What the tokens stand for."""
    rows = getattr(found.dataset, side)
    return [found.tokenizer.decode(rows[i], skip_special_tokens=True).strip() for i in range(len(rows))]


def quarantined(path):
    """Reasons by place."""
    return {(row := json.loads(line))["where"]: row["reason"] for line in path.read_text().splitlines()}


def poisoned(cases, good):
    """Lines, good ones between bad ones; the reasons by number; and how many are good."""
    lines, reasons = [], {}
    for name, (line, reason) in cases.items():
        line = line.replace(b"a" * 5000, b"a" * (MAX_BYTES + 1))
        reason = "not JSON" if name == "a number without end" else reason and reason.replace("2000 bytes", "")
        lines += [good.encode(), line]
        if reason is not None:
            reasons[len(lines)] = reason
    return lines, reasons, len(lines) - len(reasons)


POISONED = {
    "jsonl": (poisoned(JSONL, json.dumps({"source": "a dog", "target": "un chien"})), "translation", {}),
    "tsv": (poisoned(TSV, "a dog\tun chien"), "summarization", {"columns": COLUMNS}),
    "txt": (poisoned(TEXT, "a dog"), "language-modeling", {}),
}


@pytest.fixture
def usual_stack():
    """What is nested too deeply depends on the stack, which other tests may have made larger."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("usual_stack")
@pytest.mark.parametrize("packed", PACKERS)
@pytest.mark.parametrize("form", POISONED)
def test_poisoned_lines_are_set_aside_and_all_others_used(tmp_path, form, packed):
    (lines, reasons, good), task, options = POISONED[form]
    path = tmp_path / f"corpus.{form}{packed}"
    path.write_bytes(PACKERS[packed](b"\n".join(lines) + b"\n"))
    source = Source(path=path, **options)
    found, _ = prepared(tmp_path, source, task, data={"valid": [source]}, max_length=16)
    for count, name in zip(found.counts, ("train-0", "valid-0"), strict=True):
        assert (count.records, count.used, count.pruned, count.quarantined) == (len(lines), good, 0, len(reasons))
        told = quarantined(tmp_path / "data" / f"{name}.quarantine.jsonl")
        assert len(told) == len(reasons) >= 4
        for (where, reason), (number, wanted) in zip(told.items(), reasons.items(), strict=True):
            assert where.startswith(f"{path}:{number}")
            assert where.removeprefix(f"{path}:").split(":")[0] == str(number)
            assert wanted in reason
    assert [x.split for x in found.counts] == ["train", "valid"]
    assert len(found.valid[0].texts) == good
    if form != "txt":
        assert len(found.dataset) == good
        assert texts(found).count("un chien") == len(lines) // 2
    assert not list((tmp_path / "data").glob(".*"))  # nothing of the tokenizer's own reading is left


@pytest.mark.parametrize("packed", PACKERS)
def test_poisoned_aligned_text(tmp_path, packed):
    bad = [line.replace(b"a" * 5000, b"a" * (MAX_BYTES + 1)) for line, reason in TEXT.values() if reason]
    english = [b"a dog", *bad, *(b"a dog" for _ in bad), b"a dog", b"no partner"]
    french = [b"un chien", *(b"un chien" for _ in bad), *bad, b"un chien"]
    for name, lines in (("a.en", english), ("a.fr", french)):
        (tmp_path / f"{name}{packed}").write_bytes(PACKERS[packed](b"\n".join(lines) + b"\n"))
    found, _ = prepared(tmp_path, Source(path=tmp_path / f"a.en{packed}", pair=tmp_path / f"a.fr{packed}"))
    (count,) = found.counts
    assert (count.records, count.used, count.quarantined) == (len(english), 2, 2 * len(bad) + 1)
    assert texts(found, "source") == ["a dog"] * 2
    assert texts(found) == ["un chien"] * 2
    told = quarantined(tmp_path / "data" / "train-0.quarantine.jsonl")
    numbers = [where.split(":")[1] for where in told]
    assert numbers == [str(i) for i in (*range(2, 2 + 2 * len(bad)), len(english))]
    assert sum(".fr" in where.split(":")[0] for where in told) == len(bad) - 1  # an empty line is told of as a pair's
    assert "no partner" in list(told.values())[-1]


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_poisoned_parquet(tmp_path, packed):
    rows = [("a", "b"), (None, "b"), ("a", " "), ("a\0", "b"), ("a", "c\u2028d")]
    plain = tmp_path / "plain.parquet"
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows]), plain
    )
    path = tmp_path / f"a.parquet{packed}"
    path.write_bytes(PACKERS[packed](plain.read_bytes()))
    found, _ = prepared(tmp_path, Source(path=path))
    (count,) = found.counts
    assert (count.records, count.used, count.quarantined) == (5, 2, 3)
    told = quarantined(tmp_path / "data" / "train-0.quarantine.jsonl")
    assert list(told) == [f"{path}:{number}" for number in (2, 3, 4)]
    assert texts(found) == ["b", "c\u2028d"]


def test_a_clean_corpus_has_no_quarantine(tmp_path):
    found, said = prepared(tmp_path, Source(path=write_jsonl(tmp_path / "a.jsonl", rows()), name="clean"))
    assert not list((tmp_path / "data").glob("*quarantine*"))
    assert texts(found, "source") == [pair[0] for pair in PAIRS]
    assert texts(found) == [pair[1] for pair in PAIRS]
    assert said == ["training the tokenizer", "tokenizing clean"]
    sizes = [(len(found.dataset[i]["input_ids"]), len(found.dataset[i]["labels"])) for i in range(len(PAIRS))]
    assert found.examples.lengths.tolist() == [max(size) for size in sizes]


def test_a_pipe_is_refused_where_the_tokenizer_reads_it_first(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(DataError, match=r"pipe\.jsonl: a pipe can be read only once; save it to a file"):
        prepared(tmp_path, Source(path=tmp_path / "pipe.jsonl"))


def rows(pairs=PAIRS):
    return [{"source": source, "target": target} for source, target in pairs]


def hashes(folder, source, **options):
    found, _ = prepared(folder, source, data={"test": [source]}, **options)
    return {count.sha256 for count in found.counts}


def test_equal_texts_have_equal_checksums_in_all_formats(tmp_path):
    given = files(tmp_path)
    found = [hashes(tmp_path / form, Source(**given[form])) for form in FORMS]
    assert len(set.union(*found)) == 1
    other = rows()
    other[3]["target"] += "!"
    assert hashes(tmp_path / "1", Source(path=write_jsonl(tmp_path / "c.jsonl", other))) != found[0]
    assert hashes(tmp_path / "2", Source(path=given["jsonl"]["path"], limit=5)) != found[0]


def test_other_texts_have_other_checksums(tmp_path):
    """Also if all of them together are the same characters."""
    cases = [["a\nb"], ["a", "b"], ["a", "\nb"], ["ab"]]
    found = []
    for number, documents in enumerate(cases):
        path = write_jsonl(tmp_path / f"{number}.jsonl", [{"text": text} for text in documents])
        found.append(hashes(tmp_path / str(number), Source(path=path), task="language-modeling", max_length=2).pop())
    assert len(set(found)) == len(cases)


def test_long_pairs_are_pruned(tmp_path):
    long = "a dog runs " * 60
    pairs = [*PAIRS, (long, "short"), ("short", long), (long, long)]
    found, _ = prepared(tmp_path, Source(path=write_jsonl(tmp_path / "a.jsonl", [*rows(pairs), {"source": 1}])))
    (count,) = found.counts
    assert (count.records, count.used, count.pruned, count.quarantined) == (len(pairs) + 1, len(PAIRS), 3, 1)
    assert len(found.dataset) == len(found.examples.lengths) == len(found.examples.groups) == len(PAIRS)
    assert found.examples.lengths.max() <= 64
    assert count.tokens == found.dataset.target.lengths.sum()


def test_the_longest_pair_that_fits(tmp_path):
    tiny.tokenizer().save_pretrained(tmp_path / "old")
    old = Tokenizer(pretrained=str(tmp_path / "old"))
    path = write_jsonl(tmp_path / "a.jsonl", rows([("a", "QQQQQ"), ("a", "QQQ")]))  # a token each, a space, the end
    for length, used in ((7, 2), (6, 1), (5, 1)):
        found, _ = prepared(tmp_path / str(length), Source(path=path), max_length=length, tokenizer=old)
        assert len(found.dataset) == used
    with pytest.raises(DataError, match="no pair is within"):
        prepared(tmp_path, Source(path=path), max_length=4, tokenizer=old)


def test_a_prefix_counts_too_and_cuts_nothing_else(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", rows())
    found, _ = prepared(tmp_path, Source(path=path), data={"prefix": "translate: "}, max_length=64)
    assert texts(found, "source") == [f"translate: {source}" for source, _ in PAIRS]
    assert texts(found) == [target for _, target in PAIRS]
    with pytest.raises(DataError, match=r"no pair is within data\.max_length 8 tokens; raise it"):
        prepared(tmp_path / "2", Source(path=path), data={"prefix": "translate: "}, max_length=8)


def test_summarization_cuts_long_sources_and_prunes_long_targets(tmp_path):
    long = "a dog runs " * 60
    path = write_jsonl(tmp_path / "a.jsonl", rows([(long, "short"), ("short", long), ("short", "short")]))
    found, _ = prepared(tmp_path, Source(path=path), "summarization")
    assert (found.counts[0].used, found.counts[0].pruned) == (2, 1)
    cut = found.dataset.source[0]
    assert len(cut) == 64
    assert cut[-1] == found.tokenizer.eos_token_id
    assert long.startswith(texts(found, "source")[0])
    assert texts(found) == ["short", "short"]


def test_languages_become_tags(tmp_path):
    french = Source(path=write_jsonl(tmp_path / "fr.jsonl", rows()), languages="en-fr")
    german = Source(path=write_jsonl(tmp_path / "de.jsonl", rows(PAIRS[:4])), languages="en-de")
    found, said = prepared(
        tmp_path, [french, german], data={"prefix": "p ", "temperature": 5.0, "valid": [german], "test": [french]}
    )
    ids = [found.tokenizer.convert_tokens_to_ids(tag) for tag in ("<2fr>", "<2de>")]
    firsts = [int(found.dataset.source[i][0]) for i in range(len(found.dataset))]
    assert firsts == [ids[0]] * len(PAIRS) + [ids[1]] * 4
    assert texts(found, "source")[0] == f"p {PAIRS[0][0]}"
    assert not {*ids} & {*found.dataset.target.tokens.tolist()}
    assert found.examples.groups.tolist() == [0] * len(PAIRS) + [1] * 4
    assert found.examples.temperature == 5.0
    assert [(part.name, part.prefix) for part in (*found.valid, *found.test)] == [
        ("en-de", "<2de> p "), ("en-fr", "<2fr> p "),
    ]  # fmt: skip
    assert found.valid[0].texts == [list(pair) for pair in PAIRS[:4]]  # as they are
    assert said == ["training the tokenizer", "tokenizing en-fr", "tokenizing en-de"]


def test_documents_are_packed_and_each_ends(tmp_path):
    documents = ["a dog", "a cat runs\nat night", "a bird"]
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": text} for text in documents])
    found, _ = prepared(
        tmp_path, Source(path=path), "language-modeling", max_length=4, data={"valid": [Source(path=path)]}
    )
    tokens = found.dataset.text.tokens.tolist()
    assert found.tokenizer.decode(tokens) == "".join(f" {text}</s>" for text in documents)
    assert found.counts[0].tokens == len(tokens)
    assert found.counts[0].pruned == 0
    assert found.examples.lengths.tolist() == [4] * (len(tokens) // 4)
    assert found.valid[0].texts == [[text] for text in documents]
    assert found.valid[0].prefix == ""


def test_rows_are_of_the_corpus_that_they_begin_in(tmp_path):
    """So that a temperature works for language modelling too."""
    paths = [tmp_path / f"{i}.txt" for i in range(3)]
    for path, text in zip(paths, ("x\n" * 9, "y\n", "z\n" * 6), strict=True):
        path.write_text(text)
    found, _ = prepared(
        tmp_path, [Source(path=path) for path in paths], "language-modeling", max_length=4, data={"temperature": 100.0}
    )
    firsts = [found.tokenizer.decode(found.dataset[i]["input_ids"][:1]).strip() for i in range(len(found.dataset))]
    assert firsts == [*"xxxxx", *"zzz"]  # nine documents of two tokens, one, and six; in rows of four
    assert found.examples.groups.tolist() == [0] * 5 + [2] * 3


def test_text_that_fills_no_row(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("a dog\n" * 3)
    one, two = (Source(path=tmp_path / name) for name in ("a.txt", "b.txt"))
    with pytest.raises(DataError, match=r"a\.txt: \d+ tokens do not fill one row; lower data\.max_length 20") as error:
        prepared(tmp_path / "1", one, "language-modeling", max_length=20)
    tokens = int(str(error.value).split(": ")[1].split()[0])
    assert len(prepared(tmp_path / "2", [one, two], "language-modeling", max_length=2 * tokens)[0].dataset) == 1


def test_a_pretrained_tokenizer_is_used_and_extended(tmp_path):
    tiny.tokenizer().save_pretrained(tmp_path / "old")
    source = Source(path=write_jsonl(tmp_path / "a.jsonl", rows()), languages="en-fr")
    found, _ = prepared(tmp_path, source, tokenizer=Tokenizer(pretrained=str(tmp_path / "old")))
    assert len(found.tokenizer) == len(tiny.tokenizer()) + 1
    assert texts(found, "source") == [source for source, _ in PAIRS]


@pytest.mark.parametrize("task", ["translation", "language-modeling"])
def test_targets_end_even_if_the_tokenizer_adds_no_end(tmp_path, task):
    """A model that never sees the end would never stop."""
    tiny.tokenizer("causal").save_pretrained(tmp_path / "bare")
    path = write_jsonl(tmp_path / "a.jsonl", [row | {"text": row["source"]} for row in rows()])
    prepared(tmp_path, Source(path=path), task, tokenizer=Tokenizer(pretrained=str(tmp_path / "bare")))
    for side in ("text",) if task == "language-modeling" else ("source", "target"):
        ragged = library.Ragged(tmp_path / "data" / side)
        last = ragged.tokens[numpy.asarray(ragged.ends) - 1]
        assert set(last.tolist()) == {tiny.tokenizer("causal").eos_token_id}
        assert (ragged.tokens == tiny.tokenizer("causal").eos_token_id).sum() == len(PAIRS)


def test_a_sample_for_the_tokenizer(tmp_path):
    """It reads no further than it is told to."""
    pairs = [*PAIRS, *[("qqqq qqqq", "zzzz zzzz")] * 50]
    path = write_jsonl(tmp_path / "a.jsonl", rows(pairs))
    found, _ = prepared(tmp_path, Source(path=path), tokenizer=Tokenizer(vocab=400, sample=len(PAIRS)))
    assert not any("qq" in token for token in found.tokenizer.get_vocab())


def test_the_same_data_give_the_same_files(tmp_path):
    source = Source(path=write_jsonl(tmp_path / "a.jsonl", rows()))
    for name in ("1", "2"):
        prepared(tmp_path / name, source, data={"valid": [source]})
    first, second = tmp_path / "1" / "data", tmp_path / "2" / "data"
    names = sorted(str(path.relative_to(first)) for path in first.rglob("*") if path.is_file())
    assert {"counts.json", "groups.npy", "source.tokens", "target.ends", "valid-0.jsonl"} <= set(names)
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def test_a_corpus_of_which_nothing_can_be_used(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"english": "a"}])
    with pytest.raises(DataError, match=r"a\.jsonl: no record can be used .no field 'source'."):
        prepared(tmp_path, Source(path=path))
    good = Source(path=write_jsonl(tmp_path / "b.jsonl", rows()))
    with pytest.raises(DataError, match=r"a\.jsonl: no record can be used"):
        prepared(tmp_path, good, data={"valid": [Source(path=path)]})


def test_mistakes_in_the_last_corpus_are_told_before_the_first_is_tokenized(tmp_path):
    good = Source(path=write_jsonl(tmp_path / "good.jsonl", rows()))
    odd = Source(path=good.path, target_field="traget")
    gone = Source(path=good.path, pair=tmp_path / "gone.fr")
    for corpora, message in (([good, gone], "gone.fr: No such file"), ([good], "no record can be used .no field")):
        asked, said = tiny.config(train=corpora, data={"test": [odd]}), []
        with pytest.raises(DataError, match=message):
            library.prepare(asked, tmp_path / "data", said.append)
        assert said == []


MEASURE = """
import resource, sys
from pathlib import Path
from errornorm.training import prepare
from errornorm.training.config import Source, Tokenizer
from tests import tiny

def grown(path, folder):
    asked = tiny.config("language-modeling", Source(path=Path(path)), tokenizer=Tokenizer(vocab=300))
    prepare.prepare(asked, Path(folder))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

small, large, folder = sys.argv[1:]
print(-grown(small, folder + "/1") + grown(large, folder + "/2"))
"""


def test_memory_does_not_grow_with_the_corpus(tmp_path):
    """Two hundred thousand lines, which as Python texts would be 30 MB and more."""
    for name, count in (("small", 4_000), ("large", 200_000)):
        with (tmp_path / f"{name}.txt").open("w") as file:
            file.writelines(f"dog {i % 89} runs {i % 97}\n" for i in range(count))
    places = [str(tmp_path / name) for name in ("small.txt", "large.txt", "out")]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *places], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 12  # MB
    counts = json.loads((tmp_path / "out" / "2" / "counts.json").read_text())
    assert counts[0]["used"] == 200_000
