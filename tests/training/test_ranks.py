"""Two ranks do the work of one, stop together, and none waits for one that failed."""

import json
import signal
import socket
import time

import pytest
import torch
from safetensors.torch import load_file

from errornorm.training import checkpoints
from errornorm.training.rundir import read_rows
from tests.training.runs import Train, results, small_disk, steps, stuff, write

PLAIN = "model.overrides.dropout=0.0"  # each rank draws its own
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """At a rate that does not itself magnify the last bit from step to step: at 0.05 it grew to 1e-6 within ten."""
    config = write(tmp_path_factory.mktemp("ranks"))
    text = config.read_text(encoding="utf-8")
    assert "learning_rate: 0.05" in text
    config.write_text(text.replace("learning_rate: 0.05", "learning_rate: 0.01"), encoding="utf-8")
    return config


@pytest.fixture(scope="module")
def one(config):
    """The rows of a single process."""
    Train(config, PLAIN, f"output={config.parent / 'one'}").done()
    return read_rows(config.parent / "one/metrics.jsonl")


@pytest.fixture(scope="module")
def whole(config):
    """What two ranks give, with dropout."""
    assert Ranks(config, f"output={config.parent / 'whole'}").codes() == [0, 0]
    return results(config.parent / "whole")


class Ranks:
    """Two processes, or more, as a launcher starts them."""

    def __init__(self, config, *more, world=2, environment=None, **options):
        self.ranks = [Train(config, *more, **options, environment={
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        } | (environment or {})) for port in [free_port()] for rank in range(world)]  # fmt: skip

    def until(self, happened):
        return self.ranks[0].until(happened)

    def send(self, number, ranks=(0, 1)):
        for rank in ranks:
            self.ranks[rank].send(number)

    def codes(self, timeout=60):
        return [rank.code(timeout) for rank in self.ranks]

    @property
    def errors(self):
        return [rank.err for rank in self.ranks]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def same(rows, others):
    """Losses to the last bits of float32. The norm of the gradient feels earlier steps' rounding more than they do."""
    assert [(row["step"], row["split"]) for row in rows] == [(row["step"], row["split"]) for row in others]
    for row, other in zip(rows, others, strict=True):
        assert row.keys() == other.keys()
        for name in {"loss", "nll", "kept", "cutoff", "learning_rate", "tokens"} & row.keys():
            assert row[name] == pytest.approx(other[name], rel=1e-6), (row["step"], name)
        assert row.get("grad_norm", 0) == pytest.approx(other.get("grad_norm", 0), rel=1e-5), row["step"]


@pytest.mark.slow
def test_torchrun_does_the_same(config, one):
    output = config.parent / "two"
    run = Train(config, PLAIN, f"output={output}", launcher=(*TORCHRUN, str(free_port()), "-m", "errornorm.cli")).done()
    same(read_rows(output / "metrics.jsonl"), one)
    assert run.err.count("building the model") == 1  # one of them speaks
    assert run.out.count("perplexity") == 1
    assert "[transformers]" not in run.err


@pytest.mark.parametrize(("ranks", "pieces"), [(1, 2), (2, 1), pytest.param(2, 2, marks=pytest.mark.slow)])
def test_ranks_and_micro_batches_do_the_same(config, one, ranks, pieces):
    output = config.parent / f"pieces-{ranks}-{pieces}"
    given = (config, PLAIN, f"output={output}", f"training.micro_batches={pieces}")
    if ranks == 2:
        run = Ranks(*given)
        assert run.codes() == [0, 0], run.errors
        assert "building the model" in run.errors[0]
        assert run.errors[1] == run.ranks[1].out == ""  # one of them speaks
    else:
        Train(*given).done()
    same(read_rows(output / "metrics.jsonl"), one)


@pytest.mark.parametrize(
    ("told", "number", "codes"),
    [
        ((1,), signal.SIGTERM, [143, 143]),  # it reaches only one of them
        pytest.param((0, 1), signal.SIGTERM, [143, 143], marks=pytest.mark.slow),
        pytest.param((0, 1), signal.SIGKILL, [-9, -9], marks=pytest.mark.slow),
    ],
)
def test_all_ranks_stop_and_go_on(config, whole, told, number, codes):
    """With dropout: each rank goes on with its own random numbers."""
    output = config.parent / f"stopped-{number}-{len(told)}"
    run = Ranks(config, f"output={output}", pace=0.05)
    assert run.until(lambda: steps(output) >= 7)
    run.send(number, told)
    assert run.codes() == codes, run.errors
    newest = checkpoints.newest(output / "checkpoints")
    assert 6 <= checkpoints.step_of(newest) < 12
    if number == signal.SIGTERM:
        assert f"stopped by SIGTERM at step {checkpoints.step_of(newest)}; checkpoint {newest}" in run.errors[0]
    again = Ranks(config, f"output={output}", "--resume")
    assert again.codes() == [0, 0], again.errors
    assert results(output) == whole


def moved(config, output, objective, before, after, want):
    """Stopped on some ranks, it goes on on others: the same batches, the same losses."""
    run = Ranks(config, PLAIN, objective, f"output={output}", world=before, pace=0.05)
    assert run.until(lambda: steps(output) >= 4), run.errors
    run.send(signal.SIGTERM, range(before))
    assert run.codes(120) == [143] * before, run.errors
    stop = checkpoints.step_of(checkpoints.newest(output / "checkpoints"))
    assert 4 <= stop < 12
    again = Ranks(config, PLAIN, objective, f"output={output}", "--resume", world=after)
    assert again.codes(120) == [0] * after, again.errors
    assert f"going on from step {stop}" in again.errors[0]
    same(read_rows(output / "metrics.jsonl"), want)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_other_ranks_go_on(config, tally):
    with tally("elastic", "ranks", "runs of `errornorm train` that are stopped on some ranks and go on on more or "
               "fewer, of 1, 2 and 4; a case fails unless each step has the tokens, and to 1e-6 the losses, of one "
               "process") as suite:  # fmt: skip
        for number, objective in enumerate(("objective=ent_fraction(0.1, scope='running')", "objective=ent_auto")):
            alone = config.parent / f"alone-{number}"
            Train(config, PLAIN, objective, f"output={alone}").done()
            for before, after in ((4, 1), (4, 2), (2, 1), (2, 4), (1, 2), (1, 4)):
                with suite.case(f"{objective}, {before} and then {after}"):
                    output = config.parent / f"moved-{number}-{before}-{after}"
                    moved(config, output, objective, before, after, read_rows(alone / "metrics.jsonl"))


def test_a_failing_rank_is_not_waited_for(config, one):
    """Only the first rank writes most of it, and only it sees that the disk is full: both end at once."""
    with small_disk(config.parent / "disk") as disk:
        run = Ranks(config, PLAIN, f"output={disk / 'run'}", pace=0.05)
        assert run.until(lambda: steps(disk / "run") >= 4)
        began = time.monotonic()
        stuffing = stuff(disk)
        assert run.codes() == [5, 5], run.errors
        assert time.monotonic() - began < 20
        assert all("No space left on device" in error for error in run.errors)
        stuffing.unlink()
        again = Ranks(config, PLAIN, f"output={disk / 'run'}", "--resume")
        assert again.codes() == [0, 0], again.errors
        same(read_rows(disk / "run/metrics.jsonl"), one)


def test_a_bad_corpus_ends_all_ranks(config):
    run = Ranks(config, f"output={config.parent / 'bad'}", "data.train.path=nowhere.jsonl")
    assert run.codes() == [3, 3]
    assert all("nowhere.jsonl" in error for error in run.errors)


def test_a_busy_folder_ends_all_ranks(config):
    output = config.parent / "busy"
    holder = Train(config, f"output={output}", "training.steps=100000", pace=0.05)
    assert holder.until(lambda: steps(output) >= 1)
    run = Ranks(config, f"output={output}", "--resume")
    assert run.ranks[0].code() == 5
    assert "is in use by process" in run.errors[0]
    run.ranks[1].kill()  # as a launcher does
    holder.kill()


@pytest.mark.slow
def test_torchrun_stops_and_goes_on(config, one):
    output = config.parent / "launched"
    launchers = [(*TORCHRUN, str(free_port()), "-m", "errornorm.cli") for _ in range(2)]
    run = Train(config, PLAIN, "checkpoints.every=1", f"output={output}", launcher=launchers[0])
    assert run.until(lambda: steps(output) >= 4)
    run.send(signal.SIGTERM)
    assert run.code() == 1  # its own
    assert "stopped by SIGTERM at step" in run.err
    Train(config, PLAIN, f"output={output}", "--resume", launcher=launchers[1]).done()
    same(read_rows(output / "metrics.jsonl"), one)


@pytest.mark.slow
def test_whatever_does_not_fit_ends_all_ranks(config, one):
    """The disk is full at every possible write: no rank hangs."""
    found = []
    for size in range(40, 1900, 60):  # kilobytes
        with small_disk(config.parent / f"disk-{size}", f"{size}k") as disk:
            run = Ranks(config, PLAIN, f"output={disk / 'run'}")
            found.append(run.codes())
            assert found[-1] == [0, 0] or all("No space left on device" in error for error in run.errors), run.errors
    assert found[0] == [5, 5]
    assert found[-1] == [0, 0]
    assert all(codes in ([5, 5], [0, 0]) for codes in found), found


UNTIED = (
    "model.overrides.tie_word_embeddings=false",
    "model.overrides.share_encoder_decoder_embeddings=false",
    "evaluation.during=[likelihood, copies]",
    "evaluation.best=copies",  # by nll it would be the last
)


def sharded(kind):
    """The environment that `accelerate launch --use_fsdp --fsdp_version 2` makes; on a GPU without the device."""
    return {
        "ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_STATE_DICT_TYPE": kind,
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP", "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
        "ACCELERATE_TORCH_DEVICE": "cpu",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["FULL_STATE_DICT", "SHARDED_STATE_DICT"])
def test_sharded_parameters(config, kind):
    """FSDP2: the same losses, a checkpoint to go on from, and at the end a model that is whole."""
    plain, output = config.parent / f"plain-{kind}", config.parent / kind
    Train(config, PLAIN, *UNTIED, f"output={plain}").done()
    run = Ranks(config, PLAIN, *UNTIED, f"output={output}", environment=sharded(kind), pace=0.05)
    assert run.until(lambda: steps(output) >= 4)
    run.send(signal.SIGTERM)
    assert run.codes() == [143, 143], run.errors
    again = Ranks(config, PLAIN, *UNTIED, f"output={output}", "--resume", environment=sharded(kind))
    assert again.codes() == [0, 0], again.errors
    assert "FSDPMarianMTModel" in again.errors[0]  # it is what was asked for
    best = json.loads((plain / "evaluation.json").read_text())["step"]
    assert best < 12
    assert f"the best copies was at step {best}\n" in again.errors[0]
    same(read_rows(output / "metrics.jsonl"), read_rows(plain / "metrics.jsonl"))
    one, two = (load_file(folder / "model/model.safetensors") for folder in (plain, output))
    assert one.keys() == two.keys()
    assert all(torch.allclose(one[name], two[name], atol=1e-3) for name in one)


def test_shared_embeddings_cannot_be_sharded(config):
    run = Ranks(config, f"output={config.parent / 'shared'}", environment=sharded("FULL_STATE_DICT"))
    assert run.codes() == [2, 2], run.errors
    assert "errornorm: FSDP cannot shard embeddings that encoder and decoder share" in run.errors[0]
