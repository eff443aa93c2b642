"""Small corpora and configurations, and the command line in processes that can be killed."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest

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

# Python needs seconds to import what a run needs: the server has done so, and its children are there at once.
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(
    ["errornorm.cli", "errornorm.training.run", "errornorm.training.dry", "sacrebleu", "matplotlib.figure",
     "matplotlib.backends.backend_agg", "transformers.models.marian.modeling_marian", "transformers.generation.utils"]
)  # fmt: skip


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


class Train:
    """`errornorm train`, as a forked process; or as one of its own, if `real`.

    Args:
        config: The configuration.
        more: Arguments; `key=value` is a setting.
        real: Start Python anew, as a user does. It takes seconds.
        launcher: What to start it with, such as torchrun.
        environment: Additions to it.
        pace: Sleep so many seconds in each step and before a folder gets its name, for those who watch.
        terminal: The name of one, instead of a file for stderr.
    """

    def __init__(
        self, config, *more, real=False, launcher=("-m", "errornorm.cli"), environment=None, pace=0.0, terminal=None
    ):
        words = [["--set", word] if "=" in word else [word] for word in more]
        argv = ["train", str(config), *(word for pair in words for word in pair)]
        self._files = [config.parent / f".{time.monotonic_ns()}.{name}" for name in ("out", "err")]
        environment = {"OMP_NUM_THREADS": "1"} | (environment or {})
        self.began = time.monotonic()
        if real or launcher != ("-m", "errornorm.cli"):
            out, err = (path.open("w") for path in self._files)
            self._process = subprocess.Popen(
                [sys.executable, *launcher, *argv], stdout=out, stderr=err, env=os.environ | environment
            )
            out.close()
            err.close()
        else:
            args = (argv, str(self._files[0]), terminal or str(self._files[1]), environment, pace)
            self._process = _server.Process(target=_main, args=args, daemon=True)
            self._process.start()

    @property
    def out(self):
        return self._files[0].read_text()

    @property
    def err(self):
        return self._files[1].read_text() if self._files[1].exists() else ""

    @property
    def running(self):
        if isinstance(self._process, subprocess.Popen):
            return self._process.poll() is None
        return self._process.is_alive()

    def send(self, number):
        os.kill(self._process.pid, number)

    def kill(self):
        """As a crash: no handler runs."""
        with suppress(ProcessLookupError):  # it ended by itself
            self.send(signal.SIGKILL)
        self.code()

    def until(self, happened):
        """Wait for something that can be seen from outside; False if the process ended before."""
        while not happened():
            if not self.running:
                return False
            time.sleep(0.003)
        return True

    def code(self, timeout=120):
        """Wait for the end."""
        if isinstance(self._process, subprocess.Popen):
            return self._process.wait(timeout)
        self._process.join(timeout)
        assert self._process.exitcode is not None, f"still running: {self.err}"
        return self._process.exitcode

    def done(self):
        """Wait for the end, which must be a good one."""
        assert self.code() == 0, self.err
        return self


def _main(argv, out, err, environment, pace):
    """In the forked process. It ends without Python's own clean-up, as all of them do."""
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.update(environment)
    import torch

    from errornorm.cli import main
    from errornorm.training import checkpoints, engine

    torch.set_num_threads(1)
    if environment.get("ACCELERATE_USE_FSDP"):
        _shard_on_cpus()
    if pace:
        engine.Journal.on_step_begin = _after(pace, engine.Journal.on_step_begin)
        checkpoints.publish = _after(pace, checkpoints.publish)
    sys.argv = ["errornorm", *argv]
    sys.exit(main(argv))


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


def _after(seconds, function):
    def slow(*args, **kwargs):
        time.sleep(seconds)
        return function(*args, **kwargs)

    return slow


def results(folder):
    """What has to be the same, bit by bit."""
    return {name: (folder / name).read_bytes() for name in RESULTS}


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
