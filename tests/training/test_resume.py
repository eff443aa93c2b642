"""Killed at any moment, stopped by a signal, or out of disk: a run goes on to the same bits."""

import json
import re
import shutil
import signal
import subprocess
from functools import partial

import pytest
import torch

from errornorm.training import checkpoints
from errornorm.training.rundir import RunDir, read_rows
from tests.training.runs import Train, results, small_disk, steps, stuff, write

PACE = 0.03  # seconds
MOMENTS = {
    "reading": lambda run: list(run.glob(".stage-data~*")),
    "training": lambda run: steps(run) >= 5,
    "saving a checkpoint": lambda run: list(run.glob("checkpoints/.stage-step-00000009~*")),
    "evaluating": lambda run: list(run.glob("checkpoints/step-00000012")),
    "saving the model": lambda run: list(run.glob(".stage-model~*")),
}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return write(tmp_path_factory.mktemp("resume"))


@pytest.fixture(scope="module")
def whole(config):
    """What an uninterrupted run gives."""
    output = config.parent / "whole"
    Train(config, f"output={output}").done()
    assert json.loads((output / "evaluation.json").read_text())["step"] == 8  # not the last: the best is remembered
    return results(output)


def killed(config, output, moment):
    """Whether a run was killed at a moment, as soon as that is seen."""
    resume = ["--resume"] if RunDir(output).has_run else []
    run = Train(config, f"output={output}", *resume, pace=PACE)
    met = run.until(lambda: MOMENTS[moment](output))
    run.kill()
    return met


def test_killed_at_every_stage(config, whole):
    output = config.parent / "killed"
    for moment in MOMENTS:
        assert killed(config, output, moment), moment
        assert not (output / "evaluation.json").exists()
    last = Train(config, f"output={output}", "--resume").done()
    assert "going on from step 12" in last.err
    assert results(output) == whole
    assert not list(output.glob("**/.*~*")) + list(output.glob("**/.*.part"))  # nothing half written is left


@pytest.fixture(scope="module")
def stopped(config):
    """A folder with a run that goes on from step 4 or 6."""
    output = config.parent / "stopped"
    run = Train(config, f"output={output}", pace=PACE)
    assert run.until(lambda: steps(output) >= 8)
    run.kill()
    return output


def test_other_threads_go_on_to_the_same_bits(config, whole, stopped):
    output = shutil.copytree(stopped, config.parent / "threads")
    Train(config, f"output={output}", "--resume", fault=partial(torch.set_num_threads, 2)).done()
    assert results(output) == whole


def newest(output):
    return checkpoints.newest(output / "checkpoints")


def other_data(output):
    shutil.rmtree(output / "data")
    config = output / "config.yaml"
    config.write_text(config.read_text().replace("/train.jsonl", "/valid.jsonl"))


@pytest.mark.parametrize(("change", "setting", "said"), [
    (lambda output: newest(output).rename(output / "checkpoints" / "step-00000099"), "seeds=[0]",
     r"step-00000099: its state is that of step \d; give it back the name step-0000000\d"),
    (lambda output: (output / "evaluation.json").write_text("{"), "seeds=[0]", "evaluation.json:1:2: not JSON"),
    (other_data, "data.train.path={}/valid.jsonl", "manifest.json: the run began with other data; bring them back"),
])  # fmt: skip
def test_what_was_changed_meanwhile_is_named(config, stopped, tmp_path, change, setting, said):
    output = shutil.copytree(stopped, tmp_path / "run")
    change(output)
    run = Train(config, f"output={output}", setting.format(config.parent), "--resume")
    assert run.code() == 3
    assert re.search(said, run.err.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting",
    [
        "objective=loss_truncation(0.3, window=64, min_count=8)",
        "objective=random_truncation(0.2)",
        "objective=ent_fraction(0.2, start=6)",
        "objective=token_loss_truncation(0.2)",
        "objective=mixce",
        "training.micro_batches=2",
        "training.label_smoothing=0.1",
        "training.precision=bfloat16",
        "training.gradient_checkpointing=true",
        "training.schedule=cosine",
    ],
)
def test_whatever_has_a_state_goes_on(config, setting):
    number = abs(hash(setting))
    outputs = [config.parent / f"{number}-{name}" for name in ("whole", "killed")]
    Train(config, f"output={outputs[0]}", setting).done()
    run = Train(config, f"output={outputs[1]}", setting, pace=PACE)
    assert run.until(lambda: steps(outputs[1]) >= 8)
    run.kill()
    Train(config, f"output={outputs[1]}", setting, "--resume").done()
    assert results(outputs[0]) == results(outputs[1])


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("number", "code", "by"), [(signal.SIGTERM, 143, "SIGTERM"), (signal.SIGINT, 130, "Ctrl-C")])
def test_a_signal_saves_a_checkpoint(config, whole, number, code, by, real):
    output = config.parent / f"signal-{code}-{real}"
    run = Train(config, f"output={output}", "checkpoints.every=1", real=real, pace=0 if real else PACE)
    assert run.until(lambda: steps(output) >= 4)
    run.send(number)
    assert run.code() == code
    newest = checkpoints.newest(output / "checkpoints")
    step = checkpoints.step_of(newest)
    assert read_rows(output / "metrics.jsonl")[-1]["step"] == step < 12
    assert run.err.splitlines()[-1] == (
        f"errornorm: stopped by {by} at step {step}; checkpoint {newest}; go on with --resume"
    )
    assert "stopping after this step" in run.err
    Train(config, f"output={output}", "--resume").done()
    assert results(output) == whole


def test_a_second_ctrl_c_does_not_wait(config, whole):
    output = config.parent / "twice"
    run = Train(config, f"output={output}", "training.steps=100000", pace=PACE)
    assert run.until(lambda: steps(output) >= 4)
    run.send(signal.SIGINT)
    run.until(lambda: "stopping after this step" in run.err)
    run.send(signal.SIGINT)
    assert run.code(10) == 130
    assert run.err.splitlines()[-1].startswith("errornorm: stopped by Ctrl-C")


@pytest.mark.parametrize(
    ("moment", "number", "code"),
    [("reading", signal.SIGTERM, 143), ("evaluating", signal.SIGINT, 130)],
)
def test_a_signal_before_and_after_the_training(config, whole, moment, number, code):
    output = config.parent / f"{moment}-{code}"
    run = Train(config, f"output={output}", pace=PACE)
    assert run.until(lambda: MOMENTS[moment](output))
    run.send(number)
    assert run.code() == code, run.err
    assert run.err.splitlines()[-1].startswith("errornorm: stopped by")
    assert not (output / "evaluation.json").exists()
    Train(config, f"output={output}", "--resume").done()
    assert results(output) == whole


def test_damaged_checkpoints(config, whole):
    """An older one serves instead of the newest; nothing can serve instead of the best."""
    output = config.parent / "damaged"
    assert killed(config, output, "evaluating")
    damaged = output / "checkpoints/step-00000012/model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    best = output / "checkpoints/step-00000008/model.safetensors"
    good = best.read_bytes()
    best.write_bytes(good[:-1] + b"?")
    run = Train(config, f"output={output}", "--resume")
    assert run.code() == 3
    assert (
        f"{damaged.parent} cannot be used (1 bytes missing in model.safetensors): looking for an older one" in run.err
    )
    assert "going on from step 9" in run.err
    last = run.err.splitlines()[-1]
    assert last == (
        f"errornorm: {best.parent} is the best checkpoint, but cannot be used (checksum differs: model.safetensors): "
        "start a new run"
    )
    best.write_bytes(good)
    Train(config, f"output={output}", "--resume").done()
    assert results(output) == whole


def test_a_full_disk(config, whole):
    with small_disk(config.parent / "disk") as disk:
        output = disk / "run"
        run = Train(config, f"output={output}", pace=PACE)
        assert run.until(lambda: list(output.glob("checkpoints/step-00000003")))
        stuffing = stuff(disk)
        assert run.code() == 5
        line = run.err.splitlines()[-1]
        assert line.startswith("errornorm: No space left on device")
        assert str(output) in line
        assert line.endswith(": make room, or choose another place")
        newest = checkpoints.newest(output / "checkpoints")
        assert checkpoints.verify(newest) is None
        full = Train(config, f"output={output}", "--resume")
        assert full.code() == 5
        stuffing.unlink()
        Train(config, f"output={output}", "--resume").done()
        assert results(output) == whole


@pytest.mark.slow
def test_a_disk_of_any_size(config, whole):
    """Whatever it is that no longer fits: one line, and the run goes on when there is room."""
    sizes = range(40, 1700, 60)  # kilobytes
    lines = {}
    for size in sizes:
        with small_disk(config.parent / f"disk-{size}", f"{size}k") as disk:
            run = Train(config, f"output={disk / 'run'}")
            lines[size] = run.code(), run.err.splitlines()[-1]
            subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
            Train(config, f"output={disk / 'run'}", *(["--resume"] if RunDir(disk / "run").has_run else [])).done()
            assert results(disk / "run") == whole
    assert {code for code, _ in lines.values()} == {0, 5}, lines
    assert all(line.startswith("errornorm: No space left on device") for code, line in lines.values() if code)
