"""Many kills, stops, full disks and failing allocations, each at another point: a run goes on to the same bits."""

import random
import resource
import shutil
import signal
import subprocess
import time
from functools import partial
from itertools import product

import pytest
import torch
from safetensors.torch import load_file

from errornorm.training import checkpoints
from errornorm.training.rundir import RunDir
from tests.training.faults import ALLOCATORS, CALLS, little_memory, out_of_memory
from tests.training.runs import Train, results, small_disk, state, steps, write

PACE = 0.03  # seconds
EVERY = "checkpoints.every=1"
OBJECTIVES = ("objective=ent_fraction(0.1, scope='running')", "objective=ent_auto")  # both have a state
PAGE = resource.getpagesize()

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return write(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def wholes(config):
    """What uninterrupted runs give, for each objective."""
    found = {}
    for number, objective in enumerate(OBJECTIVES):
        output = config.parent / f"whole-{number}"
        Train(config, f"output={output}", EVERY, objective).done()
        found[objective] = results(output) | state(output)
    return found


def point(draw):
    """Something that is seen from outside, at one of many moments of a run."""
    step = draw.randint(1, 11)
    return draw.choice(
        [
            lambda run: list(run.glob(".stage-data~*")),
            lambda run: (run / "manifest.json").exists(),
            lambda run: steps(run) >= step,
            lambda run: list(run.glob(f"checkpoints/.stage-step-{step:08}~*")),
            lambda run: (run / f"checkpoints/step-{step:08}").exists(),
            lambda run: (run / "checkpoints/step-00000012").exists(),
            lambda run: list(run.glob(".stage-model~*")),
        ]
    )


def faulty(config, output, objective, draw, number):
    """The process of a run that got a signal at a point."""
    run, seen = Train(config, f"output={output}", EVERY, objective, pace=PACE), point(draw)
    assert run.until(lambda: seen(output)), run.err
    time.sleep(draw.uniform(0, 0.04))
    run.send(number)
    return run


def goes_on(config, output, objective, whole):
    """It does, to the same bits, and nothing half written is left."""
    again = ["--resume"] if RunDir(output).has_run else []
    Train(config, f"output={output}", EVERY, objective, *again).done()
    different = [name for name, value in (results(output) | state(output)).items() if value != whole[name]]
    assert not different
    assert not list(output.glob("**/.*~*")) + list(output.glob("**/.*.part"))


def test_kills(config, wholes, tally):
    draw = random.Random(0)
    with tally("kills-training", "training", "runs of `errornorm train` that are killed (SIGKILL) and go on; a case "
               "fails unless weights, optimizer, random numbers, objective, metrics and outputs are the same bits "
               "as without") as suite:  # fmt: skip
        for number in range(100):
            output, objective = config.parent / f"killed-{number}", OBJECTIVES[number % 2]
            with suite.case(str(number)):
                assert faulty(config, output, objective, draw, signal.SIGKILL).code() == -signal.SIGKILL
                goes_on(config, output, objective, wholes[objective])
            shutil.rmtree(output, ignore_errors=True)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_signals(config, wholes, tally, signum):
    draw = random.Random(signum)
    with tally(f"signals-{signum.name}", "training", f"runs of `errornorm train` that are stopped by {signum.name} "
               "and go on; a case fails unless it ends with its exit code and one line, and goes on to the same "
               "bits") as suite:  # fmt: skip
        for number in range(20):
            output, objective = config.parent / f"{signum.name}-{number}", OBJECTIVES[number % 2]
            with suite.case(str(number)):
                run = faulty(config, output, objective, draw, signum)
                code = run.code()
                if not (output / "evaluation.json").exists():  # else all was done, but for the end
                    assert code == 128 + signum, run.err
                    assert run.err.splitlines()[-1].startswith("errornorm: stopped by ")
                assert "Traceback" not in run.err
                goes_on(config, output, objective, wholes[objective])
            shutil.rmtree(output, ignore_errors=True)


@pytest.fixture(scope="module")
def stopped(config):
    """A run that ended at step 5, for copies that go on."""
    output = config.parent / "stopped"
    run = Train(config, f"output={output}", EVERY, OBJECTIVES[0], pace=PACE)
    assert run.until(lambda: steps(output) >= 5)
    run.send(signal.SIGTERM)
    assert run.code() == 143
    return output


def loads(folder):
    """Whether the newest checkpoint of a run is whole."""
    newest = checkpoints.newest(folder / "checkpoints")
    assert checkpoints.verify(newest) is None
    assert load_file(newest / "model.safetensors")
    assert torch.load(newest / "optimizer.pt", weights_only=True)["state"]
    return newest


def test_full_disks(config, wholes, stopped, tally):
    """Room for so many pages: each time another write is the first that fails."""
    with tally("disks", "training", "runs of `errornorm train` that go on on a disk with room for 0 to 49 pages more; "
               "a case fails unless it ends with exit code 5 and one line, its last checkpoint loads, and it goes on "
               "to the same bits when there is room") as suite:  # fmt: skip
        for pages in range(50):
            with small_disk(config.parent / f"disk-{pages}") as disk, suite.case(f"{pages} pages"):
                output = shutil.copytree(stopped, disk / "run")
                used = shutil.disk_usage(disk).used + pages * PAGE
                subprocess.run(["mount", "-o", f"remount,size={used}", disk], check=True)
                run = Train(config, f"output={output}", EVERY, OBJECTIVES[0], "--resume")
                assert run.code() == 5, run.err
                assert run.err.splitlines()[-1].startswith("errornorm: No space left on device")
                assert "Traceback" not in run.err
                loads(output)
                subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
                goes_on(config, output, OBJECTIVES[0], wholes[OBJECTIVES[0]])


def test_no_memory(config, wholes, tally):
    with tally("memory", "training", "allocations that fail, of Python, CPU and accelerators, from reading to saving; "
               "a case fails unless `errornorm train` ends with exit code 5 and one line, its checkpoints are whole, "
               "and it goes on to the same bits") as suite:  # fmt: skip
        for number, (allocator, place) in enumerate(product(ALLOCATORS, CALLS)):
            output, objective = config.parent / f"memory-{number}", OBJECTIVES[number % 2]
            with suite.case(f"{allocator}, {place}"):
                fault = partial(out_of_memory, allocator, place)
                run = Train(config, f"output={output}", EVERY, objective, fault=fault)
                assert run.code() == 5, run.err
                assert run.err.splitlines()[-1].startswith("errornorm: out of memory")
                assert sum("out of memory" in line for line in run.err.splitlines()) == 1
                assert "Traceback" not in run.err
                if list(output.glob("checkpoints/step-*")):
                    loads(output)
                goes_on(config, output, objective, wholes[objective])
            shutil.rmtree(output, ignore_errors=True)


def test_little_memory(config, tally):
    """The system itself says no, each time to another allocation, while the model steps, saves, loads or evaluates."""
    wide = "{d_model: 256, encoder_layers: 2, decoder_layers: 2, encoder_ffn_dim: 2048, decoder_ffn_dim: 2048}"
    settings = [EVERY, OBJECTIVES[1], "model.preset=tiny", f"model.overrides={wide}"]
    Train(config, f"output={config.parent / 'wide'}", *settings).done()
    whole = results(config.parent / "wide")
    with tally("memory-limit", "training", "runs of `errornorm train` in whose third step the system's limit is set to "
               "0 to 19 MB more than there is; a case fails unless it ends with exit code 5 and one line, its "
               "checkpoints are whole, and it goes on to the same bits without the limit") as suite:  # fmt: skip
        for room in range(20):  # with twice as much some runs come to their end
            output = config.parent / f"little-{room}"
            with suite.case(f"{room} MB"):
                fault = partial(little_memory, room * 2**20, 3)
                run = Train(config, f"output={output}", *settings, fault=fault)
                assert run.code() == 5, run.err
                assert run.err.splitlines()[-1].startswith("errornorm: out of memory")
                assert "Traceback" not in run.err
                loads(output)
                Train(config, f"output={output}", *settings, "--resume").done()
                assert results(output) == whole
            shutil.rmtree(output, ignore_errors=True)
