"""Hours of training on two ranks, and of scoring in two processes, with random faults: memory is flat, bits are right.

    pytest -m slow tests/test_soak.py --soak 7200    # seconds

Three stretches have no fault. Between them, processes are killed, stopped and paused whenever they are at work, and
sometimes before they are.
"""

import json
import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy
import pytest

from errornorm.training import checkpoints
from errornorm.training.rundir import RunDir
from tests import tiny
from tests.processes import Process
from tests.scoring.models import save
from tests.scoring.test_run import content
from tests.tally import Tally
from tests.training.runs import Train, results, steps, write
from tests.training.test_ranks import TORCHRUN, free_port

ROOT = Path(__file__).parents[1]
FAULTY = ((0.2, 0.4), (0.6, 0.8))  # of the time
HOUR = 3600
GROWTH = 0.02  # of the memory, in an hour
WARM = 300  # seconds until a process has met every shape of batch
JUDGED = 600  # seconds of a stretch without a fault, at least
PART = 20  # records
KEPT = 40  # samples of each stretch, for the page
TORCH = ("torchelastic_", "torchinductor_")  # its own temporary folders
FAULTS = (
    "faults in two ranks of `errornorm train` (torchrun, gloo), and in two processes of `errornorm score`, each with "
    "its share of a corpus: SIGKILL of one rank or of all, SIGTERM of one or of the launcher, SIGSTOP for seconds; a "
    "case fails unless what was hit ends, leaves no process behind and goes on; three more cases fail unless all that "
    "was written in the end is the same bits as without, and nothing else is left"
)
MEMORY = (
    "samples of the memory and the open files of these ranks and processes; a life of ten minutes or more, after "
    f"{WARM // 60} to warm up, fails if its memory grows by more than {GROWTH:.0%} in an hour, or its open files "
    "become more"
)

pytestmark = pytest.mark.slow


class Job:
    """A command that is started again whenever it ends too early.

    Args:
        name: Of the job, for people.
        folder: A place for what it prints, and for temporary files.
        start: Start it, given an environment: a `Process`.
        done: How many steps or parts there are.
        total: How many there will be.
        kinds: Of faults.
        draw: Random numbers.
    """

    def __init__(self, name, folder, start, done, total, kinds, draw):
        self.name, self.start, self.done, self.total, self.kinds, self.draw = name, start, done, total, kinds, draw
        self.temporary = folder / f"tmp-{name}"
        self.temporary.mkdir()
        self.environment = {"SOAK": str(self.temporary), "TMPDIR": str(self.temporary)} | paths()
        self.lives = []  # of ranks: samples of seconds, bytes and open files, by name and process
        self.begin()

    def begin(self, at=None):
        self.before, self.at, self.samples = self.done(), at, {}
        self.process = self.start(self.environment)

    def processes(self):
        """All of it that runs, with its environment."""
        found = {}
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (place / "environ").read_bytes().decode(errors="replace").split("\0")
                if f"SOAK={self.temporary}" in words:
                    found[int(place.name)] = dict(word.split("=", 1) for word in words if "=" in word)
        return found

    def ranks(self):
        """Those that do the work, by their names."""
        found = self.processes()
        ranks = {f"{self.name}, rank {have['RANK']}": pid for pid, have in found.items() if "RANK" in have}
        return ranks or ({self.name: self.process.pid} if self.process.pid in found else {})

    @property
    def at_work(self):
        return self.before < self.done() < self.total

    def sample(self, now):
        if not self.at_work:  # it starts, or makes its last evaluation and pictures
            return
        for name, pid in self.ranks().items():
            with suppress(OSError):
                rss = int((Path(f"/proc/{pid}/statm").read_text()).split()[1]) * os.sysconf("SC_PAGE_SIZE")
                files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
                if (name, pid) not in self.samples:
                    self.lives.append((name, self.samples.setdefault((name, pid), [])))
                self.samples[name, pid].append((now, rss, files))

    def due(self, now, gap):
        if self.at is None and self.at_work:
            self.at = now + self.draw.uniform(0, gap)
        return self.at is not None and now >= self.at

    def strike(self, kind, now, gap):
        """A fault; then all of it is gone, and starts again, unless it was a pause."""
        ranks = list(self.ranks().values()) or [self.process.pid]
        one = self.draw.choice(ranks)
        self.at = None
        if kind == "pause":
            os.kill(one, signal.SIGSTOP)
            time.sleep(self.draw.uniform(2, 8))
            os.kill(one, signal.SIGCONT)
            self.before = self.done()
            return
        hit = {"kill all": list(self.processes()), "terminate the launcher": [self.process.pid]}.get(kind, [one])
        for pid in hit:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if "kill" in kind else signal.SIGTERM)
        code = self.process.code(300)
        gone = time.monotonic() + 60
        while self.processes() and time.monotonic() < gone:
            time.sleep(0.1)
        assert not self.processes(), "it leaves processes behind"
        assert code != 0
        self.begin(now + self.draw.uniform(0, gap) if self.draw.random() < 0.2 else None)


def paths():
    """Where a process finds `tests.paced`."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}


def training(folder, total, pace, draw):
    """The job, and an undisturbed run beside it, with what both must give."""
    config = write(folder / "training", 2000)
    settings = (
        f"training.steps={total}", "training.tokens_per_step=600", "training.learning_rate=0.003",
        "evaluation.every=250", "checkpoints.every=50",
    )  # fmt: skip

    def start(output, *command, environment):
        again = ["--resume"] if RunDir(output).has_run else []
        launcher = (*TORCHRUN, str(free_port()), "-m", *command)
        return Train(config, f"output={output}", *settings, *again, launcher=launcher, environment=environment)

    output, whole = config.parent / "soaked", config.parent / "whole"
    paced = ("tests.paced", str(time.time()), str(pace))
    job = Job(
        "training", folder, lambda environment: start(output, *paced, environment=environment), lambda: steps(output),
        total, ("kill one", "kill all", "terminate one", "terminate the launcher", "pause"), draw,
    )  # fmt: skip

    def check():
        got, want = (results(place) | state_of(place) for place in (output, whole))
        assert [name for name, value in got.items() if value != want[name]] == []
        assert leftovers(output) == []

    return job, start(whole, "errornorm.cli", environment=paths()), check


def state_of(folder):
    """As `state`, of two ranks."""
    newest = checkpoints.newest(folder / "checkpoints")
    trainer = json.loads((newest / "trainer_state.json").read_text("utf-8"))
    del trainer["best_model_checkpoint"]  # the name of a stage
    names = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth")
    return {f"checkpoint, {name}": (newest / name).read_bytes() for name in names} | {"trainer": trainer}


def scoring(number, folder, total, pace, draw):
    """The same for a share of a corpus."""
    place = folder / f"scoring-{number}"
    place.mkdir()
    save(place / "marian", "marian")
    pairs = draw.choices(tiny.PAIRS, k=total * PART)
    tiny.write_jsonl(place / "pairs.jsonl", [{"source": a, "target": b, "id": i} for i, (a, b) in enumerate(pairs)])

    def start(output, *command, environment):
        argv = ["score", place / "pairs.jsonl", "--model", place / "marian", "-o", output, "--part", PART]
        return Process(argv, place, command=(sys.executable, "-m", *command), environment=environment)

    output, whole = place / "soaked", place / "whole"
    paced = ("tests.paced", str(time.time()), str(pace))
    job = Job(
        f"scoring {number}", folder, lambda environment: start(output, *paced, environment=environment),
        lambda: sum(1 for _ in output.glob("part-*")), total, ("kill one", "terminate one", "pause"), draw,
    )  # fmt: skip

    def check():
        assert content(output) == content(whole)
        assert leftovers(output) == []

    return job, start(whole, "errornorm.cli", environment=paths()), check


def leftovers(folder):
    return [*folder.glob("**/.*~*"), *folder.glob("**/.*.part")]


def soak(folder, length, tally):
    """For so many seconds, and until all is done."""
    draw, pace = random.Random(0), max(0.2, length / 9600)
    made = [training(folder, int(0.95 * length / pace), pace, draw)]
    made += [scoring(number, folder, int(0.95 * length / pace / 2), 2 * pace, draw) for number in range(2)]
    jobs = [job for job, _, _ in made]
    with tally("soak-memory", "soak", MEMORY) as samples, tally("soak", "soak", FAULTS) as suite:
        try:
            hours(suite, jobs, length)
            samples.more["memory"] = memory(samples, jobs)
            for job, whole, check in made:
                with suite.case(f"{job.name}, what it wrote"):
                    assert whole.code(HOUR) == 0, whole.err
                    check()
                    assert [path for path in job.temporary.iterdir() if not path.name.startswith(TORCH)] == []
        finally:
            for job, whole, _ in made:
                if whole.running:
                    whole.send(signal.SIGTERM)
                for pid in job.processes():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
    return jobs


def hours(suite, jobs, length):
    """Faults and samples, until all jobs are done."""
    gap, sampled = length / 120, 0.0
    while not all(job.done() for job in jobs):  # the clock begins
        assert all(job.process.running or job.process.code() == 0 for job in jobs), [job.process.err for job in jobs]
        time.sleep(0.1)
    began = time.monotonic()
    while any(job.process.running for job in jobs) or any(job.done() < job.total for job in jobs):
        now = time.monotonic() - began
        if now - sampled >= length / 720:
            sampled = now
            for job in jobs:
                job.sample(now)
        for job in jobs:
            if not job.process.running:
                assert job.process.code() == 0, f"{job.name} at {now:.0f} s: {job.process.err}"
            elif any(first <= now / length < last for first, last in FAULTY) and job.due(now, gap):
                kind = job.draw.choice(job.kinds)
                print(f"{now:.0f} s: {kind}: {job.name}, {job.done()} of {job.total}", flush=True)
                with suite.case(f"{kind}: {job.name} at {now:.0f} s"):
                    job.strike(kind, now, gap)
        time.sleep(min(1.0, length / 3600))


def memory(suite, jobs):
    """Judge the stretches, and thin them for the page."""
    found = []
    for name, samples in (life for job in jobs for life in job.lives):
        warm = [row for row in samples if row[0] >= samples[0][0] + WARM]
        suite.tried += len(samples)
        if not warm or warm[-1][0] - warm[0][0] < JUDGED:
            continue
        seconds, rss, files = numpy.array(warm, dtype=float).T
        slope = numpy.polyfit(seconds, rss, 1)[0] * HOUR
        third = len(files) // 3
        growth = int(files[-third:].min() - files[:third].min())
        found.append(
            {"what": name, "MB per hour": round(slope / 1e6, 2), "files": int(files[-third:].min())}
            | {key: values[:: -(-len(values) // KEPT)] for key, values in (
                ("minutes", [round(row[0] / 60, 1) for row in samples]),
                ("MB", [round(row[1] / 1e6, 1) for row in samples]),
            )}
        )  # fmt: skip
        if slope > GROWTH * numpy.median(rss):
            suite.failures.append(f"{name}: {slope / 1e6:.1f} MB in an hour, of {numpy.median(rss) / 1e6:.0f}")
        if growth > 0:
            suite.failures.append(f"{name}: {growth} more open files")
    return found


@pytest.mark.timeout(4 * HOUR)
def test_hours(tmp_path, request, tally):
    jobs = soak(tmp_path, request.config.getoption("--soak"), tally)
    assert len({name for job in jobs for name, _ in job.lives}) == 4


@pytest.mark.timeout(1800)
def test_a_minute(tmp_path):
    """Of faults; too short for memory."""
    soak(tmp_path, 60, Tally())
