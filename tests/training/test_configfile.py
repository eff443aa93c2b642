"""A configuration is read exactly, written completely, and changed from the command line."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from errornorm.data.lines import DataError
from errornorm.training.config import TrainConfig
from errornorm.training.configfile import dump, load
from tests.configurations import GOOD, MINIMAL, SUMMARIES, TRANSLATION, read, refused


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_good_files_are_read(tmp_path, text):
    assert isinstance(read(tmp_path, text), TrainConfig)


def test_values_are_what_they_look_like(tmp_path):
    config = read(tmp_path, TRANSLATION)
    assert config.training.learning_rate == 3e-4
    assert config.seeds == [0, 1]
    assert config.data.train[0].path == Path("train.jsonl")
    assert config.training.gradient_checkpointing is False
    assert config.training.warmup == 100, "a default"
    news = read(tmp_path, SUMMARIES)
    assert [source.label for source in news.data.train] == ["news", "some/where"]
    assert news.data.valid[0].columns == ["source", "target"], "merged"
    assert news.data.valid[0].path == Path("valid.tsv"), "its own value goes first"
    assert news.training.label_smoothing == 0.1


@pytest.mark.parametrize(
    ("text", "want"),
    [("1e-3", 1e-3), ("1e3", 1e3), (".5", 0.5), (".5e3", 500.0), ("5.", 5.0), ("1_0.5", 10.5), ("+2", 2), ("1E2", 100)],
)
def test_numbers(tmp_path, text, want):
    assert read(tmp_path, f"{MINIMAL}training: {{learning_rate: {text}}}").training.learning_rate == want


@pytest.mark.parametrize(("text", "want"), [("010", 10), ("0x10", 16), ("0o10", 8), ("1_000", 1000), ("0b11", 3)])
def test_whole_numbers(tmp_path, text, want):
    assert read(tmp_path, f"{MINIMAL}training: {{steps: {text}}}").training.steps == want


@pytest.mark.parametrize("text", ["yes", "no", "on", "2024-01-01", "12:30", "=", "<<", "inf", "'5'", "!!str 5"])
def test_texts(tmp_path, text):
    assert read(tmp_path, f"{MINIMAL}model: {{overrides: {{a: {text}}}}}").model.overrides == {
        "a": text.strip("'").removeprefix("!!str ")
    }


def test_other_ways_to_save_a_file(tmp_path):
    want = read(tmp_path, TRANSLATION)
    assert read(tmp_path, "\ufeff" + TRANSLATION) == want
    assert read(tmp_path, TRANSLATION.replace("\n", "\r\n")) == want
    assert read(tmp_path, "%YAML 1.2\n---\n" + TRANSLATION + "...\n") == want
    assert read(tmp_path, json.dumps(want.model_dump(mode="json"))) == want


def test_a_home_folder_is_found(tmp_path):
    assert read(tmp_path, MINIMAL.replace("output: o", "output: ~/runs")).output == Path("~/runs").expanduser()


@pytest.mark.parametrize("text", [*GOOD.values(), MINIMAL], ids=[*GOOD, "minimal"])
def test_written_and_read_again(tmp_path, text):
    config = read(tmp_path, text)
    written = dump(config)
    assert read(tmp_path, written) == config
    assert dump(read(tmp_path, written)) == written
    assert list(TrainConfig.model_fields) == re.findall(r"^(\w+):", written, re.MULTILINE)


def test_what_cannot_be_written(tmp_path):
    config = read(tmp_path, MINIMAL)
    config.model.overrides["a"] = object()
    with pytest.raises(ValueError, match="cannot be written as YAML"):
        dump(config)


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_what_is_no_file(tmp_path, name):
    with pytest.raises(DataError, match="check the name"):
        load(tmp_path / name)


def test_set_replaces_and_makes(tmp_path):
    config = read(
        tmp_path, TRANSLATION,
        "training.steps=7", "training.learning_rate=1e-5", "objective=ent_fraction(0.2, start=3)",
        "data.train.path=other.jsonl", "data.train.0.limit=5", "data.test.path=test.jsonl", "tokenizer.pretrained=a/b",
        "logging.every=3", "model.overrides.dropout=0.3", "seeds.1=5", "seeds.2=6", "evaluation.metrics=[chrf]",
        "evaluation.best=", "training.betas.1=0.99",
    )  # fmt: skip
    assert (config.training.steps, config.training.learning_rate, config.method) == (
        7,
        1e-5,
        "ent_fraction(0.2, start=3)",
    )
    assert (config.data.train[0].path, config.data.train[0].limit) == (Path("other.jsonl"), 5)
    assert config.data.test[0].path == Path("test.jsonl")
    assert config.tokenizer.pretrained == "a/b"
    assert config.logging.every == 3
    assert config.model.overrides == {"dropout": 0.3}
    assert config.seeds == [0, 5, 6]
    assert config.evaluation.metrics == ["chrf"]
    assert config.evaluation.best is None
    assert config.training.betas == [0.9, 0.99]


def test_set_in_lists_and_empty_sections(tmp_path):
    text = SUMMARIES.replace("  precision: bfloat16\n  freeze: [encoder.]\n  label_smoothing: .1\n", "")
    config = read(tmp_path, text, "training.steps=5", "data.train.1.dataset=other", "data.train.2.path=third.jsonl")
    assert config.training.steps == 5
    assert [source.label for source in config.data.train] == ["news", "other", "third.jsonl"]
    assert config.data.valid[0].columns == ["source", "target"]


def test_set_replaces_the_only_corpus(tmp_path):
    config = read(tmp_path, TRANSLATION, "data.train.0={path: other.jsonl}")
    assert [(source.path, source.limit) for source in config.data.train] == [(Path("other.jsonl"), None)]


def test_set_does_not_reach_through_an_alias(tmp_path):
    config = read(tmp_path, SUMMARIES, "data.valid.columns.0=x", "data.train.0.name=other")
    assert config.data.train[0].columns == ["source", "target"]
    assert config.data.valid[0].name == "news"


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ("training.stepz=5", "--set training.stepz: unknown setting (did you mean steps?)"),
        ("trainin.steps=5", "--set trainin.steps: trainin: unknown setting (did you mean training?)"),
        ("steps=5", "--set steps: unknown setting here; `steps` belongs to training"),
        ("training.steps=abc", "--set training.steps: must be a whole number, not 'abc'"),
        (
            "training.steps=",
            "--set training.steps: must be a whole number, not empty; give a value, or remove it",
        ),
        ("training={stepz: 5}", "--set training: training.stepz: unknown setting (did you mean steps?)"),
        ("data.train.0.limit=0", "--set data.train.0.limit: data.train.limit: must be at least 1, not 0"),
        ("data.train.1.path=b", "--set data.train.1.path: data.train is a single corpus; write it as a list in the "
         "file to add one"),
        ("seeds.x=5", "--set seeds.x: seeds is a list; name an item by its number, such as seeds.0.x"),
        ("seeds.9=5", "--set seeds.9: seeds has 2 items, counted from 0; or give the whole list as seeds=[...]"),
        ("training.freeze.1=a", "--set training.freeze.1: training.freeze has 0 items, counted from 0; or give the "
         "whole list as training.freeze=[...]"),
        ("task.x=5", "--set task.x: task is a single value, there is no x inside"),
        ("seeds=[1", "--set seeds: this bracket is not closed; add a ], or a comma between items"),
        ("seeds=!!foo 1", "--set seeds: the tag foo is not allowed; remove it"),
        ("seeds", "--set seeds: must be of the form key.path=value, such as training.steps=100"),
        ("a..b=1", "--set a..b: must be of the form key.path=value, such as training.steps=100"),
        ("objective=ent_fractoin", None),
    ],
)  # fmt: skip
def test_set_is_checked_in_the_same_words(tmp_path, given, want):
    (line,) = refused(tmp_path, TRANSLATION, given)
    assert line == want or (want is None and line.startswith("--set objective: column 1: unknown method"))


def test_reading_is_quick(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(TRANSLATION, encoding="utf-8")
    times = []
    for _ in range(4):
        start = time.perf_counter()
        load(path)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.3


def test_transformers_is_not_imported():
    code = "import sys, errornorm.training.configfile; print({'transformers', 'datasets'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
