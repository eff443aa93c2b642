import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from errornorm.kernels import passes, rows
from tests import tally as counts
from tests.offline import sitecustomize as offline

torch.set_num_threads(1)  # the problems are tiny
RECORDED = counts.Tally()
BEGAN = time.monotonic()
AS_ONE = {
    "oldest": "tests with the oldest versions that are allowed of what the library imports (`make oldest`)",
    "newest": "tests with the newest versions that there are of what the library imports (`make newest`)",
}


HALF = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(x, x)"


def without_what_the_machine_only_claims():
    """Some virtual machines name AMX among their features and have it not: torch then dies in a product of bfloat16.
    This process and its children do without; it must be said before the first product."""
    features = Path("/proc/cpuinfo")
    if "ONEDNN_MAX_CPU_ISA" in os.environ or not features.is_file() or "amx_bf16" not in features.read_text():
        return
    if subprocess.run([sys.executable, "-c", HALF], stderr=subprocess.DEVNULL).returncode == -signal.SIGILL:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"


def pytest_addoption(parser):
    parser.addoption("--network", action="store_true", help="let tests use the network")
    parser.addoption("--record", action="store_true", help="write counts to docs/results/reliability")
    parser.addoption("--as-one", choices=AS_ONE, help="record the session as this suite")
    parser.addoption("--soak", type=float, default=7200, metavar="SECONDS", help="length of the soak: two hours")


def pytest_configure(config):
    without_what_the_machine_only_claims()
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # behind a shell's `&`, and all children would be as deaf
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not config.getoption("--network"):
        folder = str(Path(offline.__file__).parent)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
        offline.close()


def pytest_sessionfinish(session):
    if not session.config.getoption("--record"):
        return
    if what := session.config.getoption("--as-one"):
        RECORDED.suites = {what: counts.Suite(what, "supply", AS_ONE[what])}
        RECORDED.suites[what].add(session.testscollected, ["a test"] * session.testsfailed)
        RECORDED.suites[what].seconds = time.monotonic() - BEGAN
    RECORDED.write()


@pytest.fixture(autouse=True)
def no_network():
    """Also where the one who wanted it went on without."""
    offline.refused.clear()
    yield
    found = offline.refused[:]
    offline.refused.clear()
    assert not found, f"it wanted to reach {found[0]}: tests have no network"


@pytest.fixture
def tally(request):
    """See tests/tally.py."""
    marks = (request.node.get_closest_marker(name) for name in ("slow", "recorded"))
    return RECORDED if any(marks) else counts.Tally()


@pytest.fixture(scope="module", autouse=True)
def _frozen():
    """Trainers collect garbage when they begin: they need not look through all of torch and of the tests each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def small_chunks(monkeypatch):
    """Several uneven chunks and blocks, as in a large batch."""
    monkeypatch.setattr(passes, "MIN_ROWS", 16)
    monkeypatch.setattr(rows.TorchRows, "max_rows", 16)
    monkeypatch.setattr(rows, "BLOCK", 301 * 5)
    monkeypatch.setattr(rows.TorchRows, "block", 301 * 7)
