"""Models from run directories and from anywhere else: loaded, evaluated, and generated from."""

import io
import json
import sys
from itertools import product
from pathlib import Path

import pytest

from errornorm.cli import main
from errornorm.data.lines import DataError
from errornorm.evaluation import decode
from errornorm.training import tokenizing, use
from errornorm.training.config import Source
from tests import tiny
from tests.tiny import PAIRS, write_jsonl

TAGS = ("<2de>", "<2fr>")
SOURCES = [source for source, _ in PAIRS[::4]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A run that is done, models of others, and folders without one."""
    place = tmp_path_factory.mktemp("use")
    for name, model in (("run/model", "bart"), ("marian", "marian"), ("gpt2", "gpt2"), ("t5", "t5")):
        tiny.model(model).save_pretrained(place / name)
        tiny.tokenizer("causal" if model == "gpt2" else "seq2seq").save_pretrained(place / name)
    known = {"task": "summarization", "prefix": "short: ", "max_length": 30, "tags": [], "method": "mle"}
    (place / "run" / "model" / "errornorm.json").write_text(json.dumps(known))
    for name in ("empty", "unfinished", "several/seed-0/model", "several/seed-1/model"):
        (place / name).mkdir(parents=True)
    (place / "unfinished" / "config.yaml").write_text("task: translation")
    return place


def saved(name="bart", **about):
    tokenizer = tiny.tokenizer("causal" if name in tiny.CAUSAL else "seq2seq", TAGS if "tags" in about else ())
    return use.Saved(tiny.model(name), tokenizer, **{"task": tiny.task_of(name), "max_length": 64} | about)


def test_a_run_directory(folders):
    for place in (folders / "run", folders / "run" / "model"):
        found = use.load(place)
        assert (found.task, found.prefix, found.max_length, found.tags, found.method) == (
            "summarization", "short: ", 30, [], "mle",
        )  # fmt: skip
        assert type(found.model).__name__ == "BartForConditionalGeneration"
        assert found.tokenizer(SOURCES)["input_ids"] == tiny.tokenizer()(SOURCES)["input_ids"]
        assert not found.model.training


@pytest.mark.parametrize(("name", "task", "length"), [
    ("marian", "translation", 72), ("gpt2", "language-modeling", 64), ("t5", "translation", 1024),
])  # fmt: skip
def test_the_model_of_someone_else(folders, name, task, length):
    """It does not say what it is for: that is guessed, and it reads as much as it has positions for."""
    found = use.load(folders / name)
    assert (found.task, found.max_length, found.prefix, found.method) == (task, length, "", None)
    if task == "translation":
        assert use.load(folders / name, "summarization").task == "summarization"


MISTAKES = {
    "gone": (DataError, "gone: no model there: it is no folder; check the name"),
    "empty": (DataError, "empty: no model there: it has no config.json; check the name"),
    "unfinished": (DataError, "unfinished: no model there: the run is not finished; go on with it .--resume."),
    "several": (DataError, "several: no model there: it has runs of several seeds; choose one of seed-0, seed-1"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_folders_without_a_model(folders, name):
    kind, message = MISTAKES[name]
    for asked in (lambda: use.load(folders / name), lambda: list(use.generate(folders / name, ["a"]))):
        with pytest.raises(kind, match=message) as error:
            asked()
        assert "\n" not in str(error.value)


def test_tasks_that_do_not_fit(folders):
    with pytest.raises(ValueError, match=r"unknown task 'translate' .did you mean translation\?"):
        use.load(folders / "marian", "translate")
    with pytest.raises(ValueError, match="gpt2 is a gpt2, which is for language-modeling"):
        use.load(folders / "gpt2", "translation")


def test_damaged_models(folders, tmp_path):
    for name, text in product(("config.json", "errornorm.json"), ('{"task"', "[" * 100_000)):
        (tmp_path / "config.json").write_text("{}")
        (tmp_path / name).write_text(text)
        with pytest.raises(DataError, match="is damaged") as error:
            use.load(tmp_path)
        assert "\n" not in str(error.value)
    (tmp_path / "errornorm.json").unlink()
    tiny.model("gpt2").save_pretrained(tmp_path)
    with pytest.raises(DataError, match="no tokenizer there"):
        use.load(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"the model cannot be loaded: .*; get the folder again"):
        use.load(tmp_path)


@pytest.mark.parametrize("length", [-5, 0, 1, True, 2**20 + 1, 10**30])
def test_lengths_that_nobody_trains_on(tmp_path, length):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "errornorm.json").write_text(json.dumps({"max_length": length}))
    with pytest.raises(DataError, match="'max_length' is"):
        use.load(tmp_path)


def test_the_tokenizer_of_another_model(tmp_path):
    tiny.model("gpt2").save_pretrained(tmp_path)
    tiny.tokenizer("causal").save_pretrained(tmp_path)
    use.load(tmp_path)
    tokenizing.load(str(tmp_path), ["<2fr>"]).save_pretrained(tmp_path)
    with pytest.raises(DataError, match="the tokenizer has a token 320, and the model only 320: they do not belong"):
        use.load(tmp_path)


def test_weights_that_are_no_numbers(folders, tmp_path, capsys):
    model = tiny.model("gpt2")
    model.lm_head.weight.data[0] = float("nan")
    model.save_pretrained(tmp_path)
    tiny.tokenizer("causal").save_pretrained(tmp_path)
    (tmp_path / "a.txt").write_text("a dog\n")
    for verb in ("evaluate", "generate"):
        assert main([verb, str(tmp_path), str(tmp_path / "a.txt")]) == 4
        assert "NaN or Inf in transformer.wte.weight" in capsys.readouterr().err


def test_more_beams_than_tokens(folders, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("a dog\n")
    for beams, message in (("1000", "beams=1000: the model has only 320 tokens"), ("1001", "'--beams'")):
        assert main(["generate", str(folders / "gpt2"), str(tmp_path / "a.txt"), "--beams", beams]) == 2
        assert message in capsys.readouterr().err


def test_what_is_read_before_a_text():
    assert saved(prefix="p: ").before(None) == "p: "
    assert saved(tags=["<2fr>"], prefix="p: ").before(None) == "<2fr> p: "
    assert saved(tags=list(TAGS)).before("de") == "<2de> "
    with pytest.raises(ValueError, match=r"writes several languages: choose the language to write out of de, fr"):
        saved(tags=list(TAGS)).before(None)
    with pytest.raises(ValueError, match=r"writes no 'es': choose the language to write out of de, fr"):
        saved(tags=list(TAGS)).before("es")
    assert saved("gpt2", prefix="p: ", tags=list(TAGS)).before(None) == ""  # as in training
    for one in (saved(prefix="p: "), saved("gpt2", tags=list(TAGS))):
        with pytest.raises(ValueError, match="language 'fr': the model reads no language tags; leave the language out"):
            one.before("fr")


def test_tags_and_prefixes_are_generated_from(monkeypatch):
    read = []
    monkeypatch.setattr(decode, "generate", lambda model, tokenizer, texts, **_: read.extend(texts) or list(texts))
    list(use.generate(saved(tags=list(TAGS), prefix="p: "), ["a dog", "a cat"], to="fr"))
    assert read == ["<2fr> p: a dog", "<2fr> p: a cat"]


@pytest.mark.parametrize("name", ["bart", "gpt2"])
def test_as_many_outputs_as_lines(monkeypatch, name):
    monkeypatch.setattr(use, "CHUNK", 3)
    lines = [SOURCES[0], "", SOURCES[1], "  ", "\u2028", *SOURCES, ""]
    options = {"beams": 1, "max_new_tokens": 5}
    found = list(use.generate(saved(name), iter(lines), **options))
    assert len(found) == len(lines)
    wanted = decode.generate(tiny.model(name), saved(name).tokenizer, SOURCES, **options)
    assert (found[0], found[2], found[5:-1]) == (wanted[0], wanted[1], wanted)
    assert [found[i] for i in (1, 3, 4, -1)] == [""] * 4  # an empty line stays empty
    assert list(use.generate(saved(name), [])) == []


def test_outputs_come_before_all_lines_are_read(monkeypatch):
    monkeypatch.setattr(use, "CHUNK", 2)
    read = []

    def lines():
        for i in range(10):
            read.append(i)
            yield "a dog"

    next(use.generate(saved(), lines(), beams=1, max_new_tokens=2))
    assert read == [0, 1]


def test_unreadable_lines_keep_their_places(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n\xff\ntwo\n\nthree\0\nfour")
    problems = []
    assert list(use.readable(path, problems.append)) == ["one", "", "two", "", "", "four"]
    assert [problem.where.line for problem in problems] == [2, 5]


def test_evaluation(folders, tmp_path):
    rows = [{"source": source, "target": target} for source, target in PAIRS[:8]]
    corpus = Source(path=write_jsonl(tmp_path / "a.jsonl", [*rows, {"source": "no target"}]))
    told = []
    row, verdict = use.evaluate(folders / "run", corpus, beams=1, max_new_tokens=5, tell=told.append)
    assert row.keys() >= {"nll", "perplexity", "tokens", "rouge1", "rouge2", "rougeLsum", "copies", "num", "beams"}
    assert (row["records"], row["quarantined"], row["num"]) == (9, 1, 8)
    assert (row["task"], row["method"]) == ("summarization", "mle")
    assert row["signatures"].keys() == {"rouge1", "rouge2", "rougeLsum", "copies"}
    assert [line["reference"] for line in verdict.outputs] == [target for _, target in PAIRS[:8]]
    assert told == [8]


def test_what_cannot_be_evaluated_is_told_and_kept(folders, tmp_path, capsys):
    rows = [{"source": source, "target": target} for source, target in PAIRS[:2]]
    corpus = write_jsonl(tmp_path / "a.jsonl", [*rows, {"source": "no target"}])
    command = ["evaluate", str(folders / "run"), str(corpus), "--beams", "1", "--max-new-tokens", "5"]
    assert main(command) == 0
    said = capsys.readouterr().err
    assert "1 of 3 records could not be used (no field 'target': 1); --output FILE also writes which" in said
    assert main([*command, "-o", str(tmp_path / "out.jsonl")]) == 0
    kept = tmp_path / "out.jsonl.quarantine.jsonl"
    assert f"they are in {kept}" in " ".join(capsys.readouterr().err.split())
    assert json.loads(kept.read_text())["where"] == f"{corpus}:3"
    again, _ = use.evaluate(use.load(folders / "run"), corpus, metrics=["likelihood"], limit=2)
    assert (again["num"], again.get("rouge1")) == (2, None)
    assert main([*command, "--columns", "source,target"]) == 2
    assert "--columns is for a TSV" in capsys.readouterr().err


def test_entries_of_a_corpus_that_are_unknown(folders):
    with pytest.raises(ValueError, match=r"the corpus: pear: Extra inputs are not permitted$"):
        use.evaluate(folders / "run", {"path": "a", "pear": "b"})


def test_evaluation_of_a_language_model(folders, tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"{source}\n" for source in SOURCES))
    corpus = Source(path=tmp_path / "a.txt")
    row, verdict = use.evaluate(folders / "gpt2", corpus)
    assert row.keys() >= {"nll", "perplexity", "tokens"}
    assert verdict.outputs == []
    with pytest.raises(ValueError, match="a language model has no targets"):
        use.evaluate(folders / "gpt2", corpus, metrics=["bleu"])


def test_evaluation_in_a_language(tmp_path):
    rows = [{"source": source, "target": target} for source, target in PAIRS[:4]]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    model = saved(tags=list(TAGS))
    german, french = (
        use.evaluate(model, Source(path=path, languages=languages), metrics=["likelihood"])[0]["nll"]
        for languages in ("en-de", "en-fr")
    )
    assert german != french
    with pytest.raises(ValueError, match="several languages"):
        use.evaluate(model, Source(path=path))
    with pytest.raises(DataError, match="No such file"):
        use.evaluate(model, Source(path=Path("gone.jsonl"), languages="en-fr"))


def test_names_are_enough(folders, tmp_path):
    """Folders and files as texts, a corpus as in a configuration, a single line."""
    (tmp_path / "a.en").write_text("".join(f"{source}\n" for source, _ in PAIRS[:4]))
    (tmp_path / "a.fr").write_text("".join(f"{target}\n" for _, target in PAIRS[:4]))
    corpus = {"path": str(tmp_path / "a.en"), "pair": str(tmp_path / "a.fr")}
    row, _ = use.evaluate(str(folders / "run"), corpus, metrics=["likelihood"])
    assert row["num"] == 4
    assert use.evaluate(str(folders / "gpt2"), str(tmp_path / "a.fr"))[0]["num"] == 4
    assert len(list(use.generate(str(folders / "run"), "a dog", beams=1, max_new_tokens=3))) == 1


def test_the_standard_input_may_hold_anything(folders, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a dog\r\n\xff\n\n")))
    assert main(["generate", str(folders / "run"), "--beams", "1", "--max-new-tokens", "3"]) == 0
    found = capsys.readouterr()
    assert found.out.count("\n") == 3
    assert found.err == "errornorm: standard input:2:1: not UTF-8 (byte 0xff): its output is an empty line\n"


def test_what_is_read_is_not_replaced(folders, tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_text("a dog\n")
    for argv in (["generate", str(folders / "run"), str(path)], ["evaluate", str(folders / "gpt2"), str(path)]):
        assert main([*argv, "--output", str(tmp_path / "." / "a.txt")]) == 2
        assert "is also the input: choose another name for the output" in capsys.readouterr().err
    assert path.read_text() == "a dog\n"


def test_a_folder_as_output_is_refused_before_any_work(folders, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(use, "load", None)
    for verb in ("generate", "evaluate"):
        assert main([verb, str(folders / "gpt2"), str(tmp_path / "a.txt"), "--output", str(tmp_path)]) == 2
        assert "is a folder: choose another name for the output" in capsys.readouterr().err


def test_a_file_without_a_line_that_can_be_read(folders, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("a dog\na cat\n", encoding="utf-16")
    assert main(["generate", str(folders / "run"), str(tmp_path / "a.txt"), "-o", str(tmp_path / "b.txt")]) == 3
    assert "a.txt: no line can be read (not UTF-8 (byte 0xff)); it must be text in UTF-8" in capsys.readouterr().err
    assert not (tmp_path / "b.txt").exists()
    (tmp_path / "a.txt").write_text("")
    assert list(use.readable(tmp_path / "a.txt", print)) == []
