"""Runs through the command line: the same bits twice, one line for each problem, and nothing on the screen but ours."""

import json
import os
import re
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from errornorm.training import checkpoints
from errornorm.training.config import Source
from errornorm.training.configfile import load
from errornorm.training.run import notices, require
from errornorm.training.rundir import RunDir, read_rows
from tests.training.runs import Train, results, steps, write

SHORT = ("training.steps=4", "evaluation.every=2", "checkpoints.every=2")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return write(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def both(config):
    """The same run twice, at the same time: by a Python of its own, as users start it, and in another folder."""
    both = Train(config, "--json", real=True), Train(config, f"output={config.parent / 'second'}")
    return [run.done() for run in both]


@pytest.fixture(scope="module")
def first(both):
    return both[0]


@pytest.fixture(scope="module")
def second(both):
    return both[1]


def test_equal_runs_are_equal(config, second):
    assert results(config.parent / "run") == results(config.parent / "second")


def test_all_of_a_run_is_there(config, first):
    folder = RunDir(config.parent / "run")
    names = {path.name for path in folder.path.iterdir()} - {".lock"}
    assert names == {"config.yaml", "manifest.json", "metrics.jsonl", "timing.jsonl", "data", "checkpoints", "model",
                     "outputs-test.jsonl", "evaluation.json", "curves.png"}  # fmt: skip
    assert load(folder.config) == load(config)
    rows = read_rows(folder.metrics)
    train, valid = ([row for row in rows if row["split"] == split] for split in ("train", "valid"))
    assert [row["step"] for row in train] == list(range(1, 13))
    assert [row["step"] for row in valid] == [4, 8, 12]
    assert {"loss", "nll", "kept", "entropy", "learning_rate", "grad_norm", "tokens", "error_norm_p50",
            "error_norm_p90", "error_norm_p99", "error_norm_top10"} < train[0].keys()  # fmt: skip
    assert not [row for row in rows if "not_finite" in row or {"seconds", "time"} & row.keys()]
    kept = [checkpoints.step_of(path) for path in sorted(folder.checkpoints.iterdir())]
    assert kept == [8, 9, 12]  # the best one, and the newest two
    trainer = json.loads((folder.checkpoints / checkpoints.name(12) / "trainer_state.json").read_text())
    assert trainer["log_history"] == []  # it would grow with the steps; metrics.jsonl has it
    manifest = json.loads(folder.manifest.read_text())
    assert manifest["command"][:2] == ["errornorm", "train"]
    assert manifest["data"][0]["records"] == 120 == sum(manifest["data"][0][k] for k in ("used", "pruned"))
    assert folder.curves.read_bytes().startswith(b"\x89PNG")


def test_the_best_weights_are_saved(config, first):
    folder = RunDir(config.parent / "run")
    rows = {row["step"]: row["nll"] for row in read_rows(folder.metrics) if row["split"] == "valid"}
    assert min(rows, key=rows.get) == 8 == json.loads(folder.evaluation.read_text())["step"]
    best, last = (load_file(folder.checkpoints / checkpoints.name(step) / "model.safetensors") for step in (8, 12))
    saved = load_file(folder.model / "model.safetensors")
    assert all(saved[name].equal(best[name]) for name in best)
    assert not all(saved[name].equal(last[name]) for name in last)


def test_the_saved_model_is_whole(config, first):
    folder = RunDir(config.parent / "run")
    assert checkpoints.verify(folder.model) is None
    row = json.loads(folder.evaluation.read_text())
    readme = (folder.model / "README.md").read_text()
    assert f"{row['perplexity']:.4g}" in readme
    assert row["signatures"]["bleu"] in readme
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.model.iterdir()}
    assert len(set(modes.values())) == 1, modes  # whoever may read one of them may read all


def test_json_is_all_of_stdout(config, first):
    assert json.loads(first.out) == [json.loads((config.parent / "run/evaluation.json").read_text())]


def test_stderr_has_our_lines_only(first):
    ours = [
        "reading the corpus",
        r"(train|valid|test) \w+\.jsonl: \d+ records = \d+ used \+ \d+ pruned \+ \d+ quarantined",
        "building the model",
        r"step \d+ of 12, loss [\d.]+, nll [\d.]+, kept [\d.]+%, [\d,]+ tokens/s, \d+:\d\d left",
        "the best nll was at step 8",
        "evaluating on test.jsonl",
    ]
    assert first.err
    assert [line for line in first.err.splitlines() if not any(re.fullmatch(x, line) for x in ours)] == []


def test_what_is_quarantined_can_be_found(config):
    path, output = config.parent / "one_bad.jsonl", config.parent / "one_bad"
    path.write_text((config.parent / "train.jsonl").read_text() + "{\n")
    run = Train(config, f"output={output}", f"data.train.path={path}", *SHORT)
    run.done()
    (said,) = (line for line in run.err.splitlines() if "why" in line)
    assert said == f"what is quarantined, and why: {output}/data/*.quarantine.jsonl"
    (kept,) = output.glob("data/*.quarantine.jsonl")
    assert f"{path}:121:2" in kept.read_text()


def test_a_table_for_people(config, second):
    assert re.search(r"^perplexity +[\d.]+$", second.out, re.MULTILINE)
    assert second.out.endswith(f"\n{config.parent / 'second'}\n")


def test_a_run_that_is_done_stays_as_it_is(config, second):
    output = config.parent / "second"
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*") if path.is_file()} | {output / ".lock": 0}
    again = Train(config, f"output={output}", "--resume").done()
    assert again.err == f"{output} is done\n"
    assert again.out == second.out
    assert {path: path.stat().st_mtime_ns for path in before} | {output / ".lock": 0} == before
    refused = Train(config, f"output={output}")
    assert refused.code() == 2
    assert refused.err == (
        f"errornorm: {output} has a run already: --resume goes on with it, or choose another output\n"
    )


def test_a_run_goes_on_as_it_began(config, first):
    output = config.parent / "changed"
    begun = Train(config, f"output={output}", pace=0.05)
    assert begun.until(lambda: steps(output) >= 4)
    begun.kill()
    changes = (
        "seeds=[0]",
        "training.steps=13",
        "training.clip=2.0",
        "objective=mle",
        "data.train.path=elsewhere.jsonl",
    )
    other = Train(config, f"output={output}", *changes, "--resume")
    assert other.code() == 2
    assert other.err.count("\n") == 1
    assert f"{output / 'config.yaml'} says otherwise about" in other.err
    assert re.search(r"about (.*?): ", other.err)[1].split(", ") == [
        "data.train", "objective", "training.steps", "training.clip"
    ]  # fmt: skip
    seed = Train(config, f"output={output}", "seeds=[1]", "--resume")
    assert seed.code() == 2
    assert "has the run of seed 0, not 1" in seed.err
    several = Train(config, f"output={output}", "seeds=[0, 1]", "--resume")
    assert several.code() == 2
    assert "has the run of one seed" in several.err
    free = Train(config, f"output={output}", "logging.every=2", "checkpoints.keep=1", "checkpoints.every=5", "--resume")
    free.done()
    assert (output / "model/model.safetensors").read_bytes() == results(config.parent / "run")[
        "model/model.safetensors"
    ]


def test_several_seeds(config):
    output = config.parent / "seeds"
    seeds = (f"output={output}", "seeds=[3, 4]", *SHORT)
    begun = Train(config, *seeds, pace=0.05)
    assert begun.until(lambda: steps(output / "seed-4") >= 1)
    begun.kill()
    done = (output / "seed-3/evaluation.json").stat().st_ino
    rest = Train(config, *seeds, "--resume", "--json").done()
    assert [row["seed"] for row in json.loads(rest.out)] == [3, 4]
    assert (output / "seed-3/evaluation.json").stat().st_ino == done
    assert (
        results(output / "seed-3")["model/model.safetensors"] != results(output / "seed-4")["model/model.safetensors"]
    )
    assert "seed 3: " in rest.err
    assert "seed 4: building the model" in rest.err
    assert sorted(path.name for path in output.iterdir()) == ["seed-3", "seed-4"]


def test_a_second_process_is_refused_within_a_second(config):
    output = config.parent / "busy"
    holder = Train(config, f"output={output}", "training.steps=100000", pace=0.05)
    assert holder.until(lambda: steps(output) >= 1)
    for resume in ([], ["--resume"]):
        took = []
        for _ in range(3):  # the machine may be busy
            second = Train(config, f"output={output}", *resume, real=True)
            assert second.code() == 5
            took.append(time.monotonic() - second.began)
            if took[-1] < 1:
                break
        assert re.fullmatch(rf"errornorm: {output} is in use by process \d+ on .+: wait for it, .*\n", second.err)
        assert min(took) < 1
    assert holder.running
    holder.kill()
    after = Train(
        config, f"output={output}", "training.steps=100000", "--resume", pace=0.05
    )  # a dead one locks nothing
    assert after.until(lambda: "going on from step" in after.err or steps(output) > 4)
    after.kill()


def test_the_last_step_may_be_the_bad_one(config):
    output = config.parent / "nan-at-the-end"
    broken = Train(config, f"output={output}", "training.learning_rate=1.0e+30", "training.warmup=0",
                   "training.steps=1", "evaluation.every=0", "evaluation.best=null")  # fmt: skip
    assert broken.code() == 4
    assert "step 1: nll on test is" in broken.err.splitlines()[-1]
    assert not (output / "evaluation.json").exists()


def test_loggers_have_to_be_installed(config):
    missing = [name for name in ("tensorboard", "wandb", "mlflow", "trackio") if find_spec(name) is None]
    if not missing:
        pytest.skip("all of them are installed")
    output = config.parent / "logged"
    for more in ([], ["--dry-run"]):
        refused = Train(config, f"output={output}", f"logging.report_to=[{missing[0]}]", *more)
        assert refused.code() == 2
        assert refused.err == (
            f"errornorm: logging.report_to: {missing[0]} is not installed: pip install {missing[0]}, or leave it out\n"
        )
    assert not output.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_half_precision_needs_a_gpu(config):
    refused = Train(config, f"output={config.parent / 'half'}", "training.precision=float16")
    assert refused.code() == 2
    assert refused.err == "errornorm: training.precision: float16 needs a GPU; on a CPU choose float32 or bfloat16\n"
    assert not (config.parent / "half").exists()


def test_nothing_to_evaluate_on(config):
    output = config.parent / "blind"
    blind = ("data.valid=[]", "data.test=[]", "evaluation.every=0", "evaluation.best=null", "training.steps=2")
    run = Train(config, f"output={output}", *blind).done()
    assert run.out == f"{output}\n"
    assert json.loads((output / "evaluation.json").read_text())["split"] is None
    assert (output / "model/model.safetensors").is_file()


def test_names_that_are_not_utf8(config):
    """The configuration in the run directory could not be read again."""
    odd = Path(os.fsdecode(b"a\xff"))
    settings = load(config)
    for wrong in (
        settings.model_copy(update={"output": odd}),
        settings.model_copy(update={"data": settings.data.model_copy(update={"test": [Source(path=odd)]})}),
    ):
        with pytest.raises(ValueError, match="this name is not UTF-8: rename it, or choose another"):
            require(wrong)


def test_tensorboard(config):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    output = config.parent / "tensorboard"
    Train(config, f"output={output}", "logging.report_to=[tensorboard]", *SHORT).done()
    assert list(output.rglob("events.out.tfevents*"))
    assert Train(config, f"output={output}", "logging.report_to=[tensorboard]", *SHORT, "--resume").code() == 0


@pytest.mark.parametrize("wrong", ["data.test.path=gone.jsonl", "training.freeze=[nothing]"])
def test_a_run_that_cannot_begin_leaves_nothing(config, wrong):
    """Else the configuration, once it is mended, would be refused as that of another run."""
    output = f"output={config.parent / wrong.partition('=')[0]}"
    failed = Train(config, output, wrong)
    assert failed.code() in (2, 3)
    Train(config, output, *SHORT).done()


def test_the_tokenizer_of_bleu_is_there_before_the_run(config):
    output = config.parent / "flores"
    run = Train(config, f"output={output}", "evaluation.tokenize=flores200", "evaluation.flores_model=gone.model")
    assert run.code() == 3
    assert "gone.model" in run.err
    assert not output.exists()


def test_sets_of_one_name_and_no_measures(config):
    output, test = config.parent / "sets", f"{{path: {config.parent / 'test.jsonl'}}}"
    short = (*SHORT, "evaluation.metrics=[copies]")
    Train(config, f"output={output}", *short, f"data.test=[{test}, {test}]").done()
    row = json.loads((output / "evaluation.json").read_text())
    assert (row["num"], list(row["sets"]), row["beams"]) == (24, ["test.jsonl (1)", "test.jsonl (2)"], 1)
    lines = read_rows(output / "outputs-test.jsonl")
    assert [line["set"] for line in lines] == ["test.jsonl (1)"] * 12 + ["test.jsonl (2)"] * 12
    none = json.loads(Train(config, f"output={output}-none", *SHORT, "evaluation.metrics=[]", "--json").done().out)
    assert not {"nll", "bleu", "copies"} & none[0].keys()


def test_the_last_step_is_always_told(config):
    output = config.parent / "told"
    Train(config, f"output={output}", *SHORT, "logging.every=3").done()
    assert [row["step"] for row in read_rows(output / "metrics.jsonl") if row["split"] == "train"] == [3, 4]
    assert [row["step"] for row in read_rows(output / "timing.jsonl")] == [3, 4]


@pytest.mark.parametrize(
    ("settings", "notice"),
    [
        ({"objective": "ent_fraction(0.1, start=12)"}, ["the objective starts at step 12, and there are 12"]),
        ({"objective": "ent_fraction(0.1, start=11)"}, []),
        ({"objective": "mle"}, []),
        ({"evaluation.every": "13"}, ["evaluation.every is 13, and there are 12 steps"]),
    ],
)
def test_what_is_hardly_meant_is_told(config, settings, notice):
    loaded = load(config, [f"{key}={value}" for key, value in settings.items()])
    told = notices(loaded)
    assert len(told) == len(notice)
    assert all(line.startswith(start) for line, start in zip(told, notice, strict=True))
