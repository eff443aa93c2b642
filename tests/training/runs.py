"""Small corpora and configurations, and `errornorm train` in processes that can be killed."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from errornorm.training import checkpoints
from tests.processes import PYTHON, Process, after
from tests.run_directories import sentences

RUN = """\
task: translation
output: {folder}/run
objective: ent_fraction(0.1, scope='running')
data:
  train: {{path: {folder}/train.jsonl}}
  valid: {{path: {folder}/valid.jsonl}}
  test: {{path: {folder}/test.jsonl}}
  max_length: 40
model:
  preset: tiny
  overrides: {{d_model: 16, encoder_layers: 1, decoder_layers: 1, encoder_ffn_dim: 32, decoder_ffn_dim: 32,
    encoder_attention_heads: 2, decoder_attention_heads: 2, dropout: 0.3}}
tokenizer: {{vocab: 300}}
training: {{steps: 12, tokens_per_step: 400, warmup: 3, learning_rate: 0.05, schedule: constant}}
evaluation: {{every: 4, best: nll, beams: 1, max_new_tokens: 8}}
checkpoints: {{every: 3, keep: 2}}
logging: {{every: 1}}
"""
RESULTS = ("model/model.safetensors", "metrics.jsonl", "evaluation.json", "outputs-test.jsonl")
STATE = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth")


def write(folder, records=120):
    """Three corpora and a configuration, whose path is returned. The best of its evaluations is not the last."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = zip(*sentences(records + 24), strict=True)
    pairs = [{"source": source, "target": target} for source, target in texts]
    for name, part in (("train", pairs[24:]), ("valid", pairs[:12]), ("test", pairs[12:24])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in part), "utf-8")
    path = folder / "run.yaml"
    path.write_text(RUN.format(folder=folder))
    return path


class Train(Process):
    """`errornorm train`, as a forked process; or as one of its own, if `real`.

    Args:
        config: The configuration.
        more: Arguments; `key=value` is a setting.
        real: Start Python anew, as a user does. It takes seconds.
        launcher: What to start it with, such as torchrun.
        pace: Sleep so many seconds in each step and before a folder gets its name, for those who watch.
        fault: What a forked process calls before it begins; see `tests/training/faults.py`.
        options: Of `Process`.
    """

    def __init__(self, config, *more, real=False, launcher=None, pace=0.0, fault=None, **options):
        words = [["--set", word] if "=" in word else [word] for word in more]
        argv = ["train", str(config), *(word for pair in words for word in pair)]
        command = (sys.executable, *launcher) if launcher else PYTHON if real else None
        super().__init__(argv, config.parent, prepare=partial(_prepare, pace, fault), command=command, **options)


def _prepare(pace, fault):
    from errornorm.training import engine

    if os.environ.get("ACCELERATE_USE_FSDP"):
        _shard_on_cpus()
    if pace:
        engine.Journal.on_step_begin = after(pace, engine.Journal.on_step_begin)
        checkpoints.publish = after(pace, checkpoints.publish)
    if fault:
        fault()


def _shard_on_cpus():
    """Accelerate knows FSDP on GPUs only; torch can do it anywhere."""
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType

    init = PartialState.__init__

    def pretend(self, *args, **kwargs):
        init(self, *args, **kwargs)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    PartialState.__init__ = pretend


def results(folder):
    """What has to be the same, bit by bit."""
    return {name: (folder / name).read_bytes() for name in RESULTS}


def state(folder):
    """What the last checkpoint has of model, optimizer, random numbers and objective."""
    newest = checkpoints.newest(folder / "checkpoints")
    trainer = json.loads((newest / "trainer_state.json").read_text("utf-8"))
    del trainer["best_model_checkpoint"]  # the name of a stage
    return {name: (newest / name).read_bytes() for name in STATE} | {"trainer": trainer}


def steps(folder):
    """How many steps are written down so far."""
    try:
        return (folder / "metrics.jsonl").read_bytes().count(b'"split": "train"')
    except FileNotFoundError:
        return 0


@contextmanager
def small_disk(place, size="4m"):
    """A folder with a file system of its own."""
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place], capture_output=True)
    if made.returncode:
        pytest.skip("a small disk can be made by root only")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def stuff(disk):
    """Fill all of it with a file."""
    path = disk / "stuffing"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 512)
    return path
