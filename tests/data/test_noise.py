"""Noise with the truth about it: exact shares, right labels, the same for the same seed."""

import json
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errornorm import cli, corrupt
from errornorm.data import noise
from errornorm.data.noise import NOISES

EN = [
    "the",
    "a",
    "red",
    "big",
    "old",
    "dog",
    "cat",
    "man",
    "woman",
    "boy",
    "runs",
    "sees",
    "eats",
    "in",
    "on",
    "park",
    "house",
]
FR = [
    "le",
    "la",
    "un",
    "une",
    "rouge",
    "grand",
    "vieux",
    "chien",
    "chat",
    "homme",
    "femme",
    "garçon",
    "court",
    "voit",
    "mange",
    "dans",
    "sur",
    "parc",
    "maison",
]
OTHER = ["ein alter Hund läuft", "die Katze schläft heute", "das Haus ist groß"]


def pairs(num=300, seed=0):
    rng = random.Random(seed)
    return [
        {"source": " ".join(rng.choices(EN, k=rng.randint(3, 9))), "target": " ".join(rng.choices(FR, k=6)), "id": i}
        for i in range(num)
    ]


def made(name, share=0.5, **options):
    return list(corrupt(pairs(), {name: share}, foreign=OTHER, **options))


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("mode", ["add", "replace"])
def test_shares_are_exact_and_labels_fit(name, mode):
    given, out = pairs(), made(name, 0.3, mode=mode)
    count = Counter(row["noise"] for row in out)
    assert count[name] == 90
    assert count["clean"] == (300 if mode == "add" else 210)
    for row in out:
        words = row["target"].split()
        assert len(row["labels"]) == len(words)
        assert any(row["labels"]) == (row["noise"] != "clean")
        clean = given[row["example"]]
        assert row["id"] == clean["id"]
        assert row["source"] == clean["source"]
        if row["noise"] == "clean":
            assert row["target"] == clean["target"]
        else:
            assert words != clean["target"].split()


@pytest.mark.parametrize("name", NOISES)
def test_what_a_noise_is(name):
    given = pairs()
    for row in made(name):
        if row["noise"] == "clean":
            continue
        words, labels = row["target"].split(), row["labels"]
        clean = given[row["example"]]["target"].split()
        right = [w for w, wrong in zip(words, labels, strict=True) if not wrong]
        match name:
            case "untranslated":
                assert words == row["source"].split()
            case "misordered":
                assert sorted(words) == sorted(clean)
            case "misaligned":
                assert " ".join(words) in {pair["target"] for pair in given}
            case "overtranslated" | "repetition":
                assert right == clean
                assert len(words) > len(clean)
            case "undertranslated":
                assert len(words) < len(clean)
                assert sum(labels) == 1
            case "truncated":
                assert words == clean[: len(words)]
                assert labels[-1] == 1
            case "substituted":
                assert [w == c for w, c in zip(words, clean, strict=True)] == [not x for x in labels]
            case "wrong-language":
                assert row["target"] in OTHER
            case "typos":
                assert [w == c for w, c in zip(words, clean, strict=True)] == [not x for x in labels]


def test_seeds():
    assert made("substituted", seed=1) == made("substituted", seed=1)
    assert made("substituted", seed=1) != made("substituted", seed=2)


def test_several_noises_at_once():
    out = list(corrupt(pairs(), {"untranslated": 0.2, "typos": 0.1, "truncated": 0.05}, mode="replace"))
    assert Counter(row["noise"] for row in out) == {"clean": 195, "untranslated": 60, "typos": 30, "truncated": 15}
    assert [row["example"] for row in out] == list(range(300))


def test_another_example_takes_the_place_of_one_that_cannot():
    examples = [{"target": "one"}, {"target": "one two three"}] * 50
    out = list(corrupt(examples, {"truncated": 0.5}, mode="replace"))
    assert Counter(row["noise"] for row in out) == {"clean": 50, "truncated": 50}


def test_the_truth_is_never_overwritten():
    with pytest.raises(ValueError, match="has a field 'example' already"):
        list(corrupt(corrupt(pairs(5), {"typos": 1.0}), {"typos": 1.0}))


def test_it_streams(monkeypatch):
    monkeypatch.setattr(noise, "BLOCK", 10)
    read = []
    stream = corrupt((read.append(i) or row for i, row in enumerate(pairs())), {"typos": 0.25})
    next(stream)
    assert len(read) == 10
    assert Counter(row["noise"] for row in stream)["typos"] == 75  # exact over blocks that it does not divide


@given(
    st.lists(st.text("abé ", min_size=1, max_size=30), min_size=1, max_size=40),
    st.sampled_from([*NOISES]),
    st.floats(0, 1),
)
def test_any_text_survives(texts, name, share):
    examples = [{"source": "x y", "target": text} for text in texts]
    out = list(corrupt(examples, {name: share}, mode="replace", foreign=OTHER))
    assert len(out) == len(examples)
    assert all(len(row["labels"]) == len(row["target"].split()) for row in out)


@pytest.mark.parametrize(
    ("noises", "options", "says"),
    [
        ({"untranslatd": 0.1}, {}, r"unknown noise 'untranslatd' .did you mean untranslated\?."),
        ({"typos": 1.5}, {}, "is a share"),
        ({"typos": 0.6, "truncated": 0.6}, {"mode": "replace"}, "more than 1 together"),
        ({"typos": 0.1}, {"mode": "both"}, "mode='both'"),
        ({"wrong-language": 0.1}, {}, "needs sentences of another language"),
        ({"untranslated": 0.5}, {"source": "en"}, "needs a source text, and example"),
    ],
)
def test_wrong_arguments(noises, options, says):
    with pytest.raises(ValueError, match=says):
        list(corrupt(pairs(4), noises, **options))


INPUTS = ("a.jsonl", "b.jsonl.quarantine.jsonl")
LINE = '{"source": "a b", "target": "c d"}\n'


def run(capsys, *argv):
    code = cli.main([str(a) for a in argv])
    return code, *capsys.readouterr()


def test_the_command(tmp_path, capsys):
    (tmp_path / "a.en").write_text("\n".join(p["source"] for p in pairs(40)))
    (tmp_path / "a.fr").write_bytes("\n".join(p["target"] for p in pairs(40)).encode() + b"\nextra line\n")
    out = tmp_path / "noisy.jsonl"
    argv = ("corrupt", tmp_path / "a.en", tmp_path / "a.fr", "--noise", "untranslated=0.5", "-o", out)
    code, shown, _ = run(capsys, *argv)
    assert code == 0
    assert "41 records = 40 used + 1 quarantined; 60 written" in shown
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert sum(row["noise"] == "untranslated" for row in rows) == 20
    (bad,) = [json.loads(line) for line in (tmp_path / "noisy.jsonl.quarantine.jsonl").read_text().splitlines()]
    assert bad["where"].endswith("a.fr:41")
    first = out.read_bytes()
    code, shown, _ = run(capsys, *argv, "--json")
    assert json.loads(shown)["noise"] == {"clean": 40, "untranslated": 20}
    assert out.read_bytes() == first


@pytest.mark.parametrize(("there", "asked"), [(41, False), (79, False), (81, True)])
def test_files_that_do_not_belong_together(tmp_path, capsys, there, asked):
    (tmp_path / "a.en").write_text("a b\n" * 40)
    (tmp_path / "a.fr").write_text("c d\n" * there)
    argv = ("corrupt", tmp_path / "a.en", tmp_path / "a.fr", "--noise", "untranslated=0.5")
    code, _, err = run(capsys, *argv, "-o", tmp_path / "noisy.jsonl")
    assert code == 0
    assert err.count("\n") == int(asked)
    assert ("the two sides of one corpus?" in err) == asked


def test_text_and_tsv(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("one two three\n" * 10)
    code, shown, _ = run(
        capsys,
        "corrupt",
        tmp_path / "a.txt",
        "--target-field",
        "text",
        "--noise",
        "repetition=0.5",
        "-o",
        tmp_path / "b.jsonl",
    )
    assert code == 0
    assert "15 written" in shown
    (tmp_path / "a.tsv").write_text("1\tone two\tun deux\n" * 4)
    argv = ("corrupt", tmp_path / "a.tsv", "--columns", "id,source,target", "--noise", "untranslated=1")
    code, shown, _ = run(capsys, *argv, "-o", tmp_path / "c.jsonl")
    assert code == 0
    assert "8 written" in shown


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["gone.jsonl", "--noise", "typos=0.1"], 3, "No such file"),
        (["a.jsonl"], 2, "give at least one --noise"),
        (["a.jsonl", "--noise", "typos"], 2, "'typos' is not NAME=SHARE"),
        (["a.jsonl", "--noise", "typo=0.1"], 2, "unknown noise 'typo'"),
        (["a.jsonl", "--noise", "typos=0.1", "--target-field", "text"], 3, "no record can be used (no field 'text')"),
        (["a.jsonl", "--noise", "typos=0.1", "-o", "./sub/../a.jsonl"], 2, "is also the input"),
        (["b.jsonl.quarantine.jsonl", "--noise", "typos=0.1", "-o", "b.jsonl"], 2, "is also the input"),
        (["a.jsonl", "--noise", "typos=0.1", "-o", "b.jsonl.gz"], 2, "is a plain JSONL file"),
        (["a.jsonl", "--noise", "typos=0.1", "-o", "b.jsonl.bz2"], 2, "is a plain JSONL file"),
        (["a.jsonl", "--noise", "typos=0.1", "-o", "b.parquet"], 2, "b.parquet has the name of parquet"),
        (["a.jsonl", "--noise", "typos=0.1", "-o", "b.tsv"], 2, "b.tsv has the name of tsv"),
        (["a.jsonl", "--noise", "typos=0.1", "-o", "b"], 2, "b has the name of text, and the output is jsonl"),
        (["a.jsonl", "--noise", "typos=0.1", "--noise", "typos=0.2"], 2, "given twice"),
        (["a.jsonl", "--noise", "typos=0.1", "--columns", "a,b"], 2, "--columns is for a TSV"),
        (["a.tsv", "--noise", "typos=0.1", "--columns", "a,b,b"], 2, "two columns are named 'b'"),
        (["a.jsonl", "a.txt", "--noise", "typos=0.1"], 3, "a.jsonl: jsonl has both sides in one file: give it alone"),
        (["a.en", "a.tsv", "--noise", "typos=0.1"], 3, "a.tsv: tsv has both sides in one file: give it alone"),
        (["a.jsonl", "--noise", "wrong-language=0.1"], 2, "--foreign FILE"),
        (["a.jsonl.xz", "--noise", "untranslated=0.1"], 3, "packed as xz: unpack it, or use .gz or .zst"),
        (["a.txt", "--noise", "untranslated=0.1"], 3, "no sources, and untranslated needs them: give both sides"),
    ],
)
def test_what_goes_wrong_is_one_line(tmp_path, capsys, monkeypatch, argv, code, says):
    monkeypatch.chdir(tmp_path)
    for name in INPUTS:
        (tmp_path / name).write_text(LINE)
    got, _, err = run(capsys, "corrupt", *argv)
    assert got == code
    assert says in err
    assert len(err.splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} - {"noisy.jsonl.quarantine.jsonl"} == set(INPUTS)
    assert all((tmp_path / name).read_text() == LINE for name in INPUTS)
