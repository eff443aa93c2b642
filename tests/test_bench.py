"""The benchmark on a problem that takes a moment, and (slow) the bars that it must clear on the real one."""

import importlib.metadata
import importlib.util
import json
import statistics
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from errornorm import bench, token_stats
from errornorm.bench import entries
from errornorm.bench.memory import MEGABYTE, RESET
from errornorm.bench.problem import Size, problem
from errornorm.bench.truth import Truth

SIZE = (64, 16, 300)
QUICK = [name for name, entry in entries.ENTRIES.items() if not entry.compiles and name not in ("cce", "trl")]
OURS = [name for name, entry in entries.ENTRIES.items() if entry.kind == "ours"]
needs_proc = pytest.mark.skipif(not RESET.exists(), reason="peak memory needs /proc, as on Linux")


@pytest.fixture(scope="module")
def result():
    return bench.run([SIZE], repeat=2, only=QUICK, memory=False)


def from_json(text):
    rows = json.loads(text)["rows"]
    made = ({**row, "times_ms": tuple(row["times_ms"]), "settings": bench.Settings(**row["settings"])} for row in rows)
    return bench.Result(tuple(bench.Row(**row) for row in made))


def by_name(result):
    return {row.name: row for row in result.rows}


def test_everyone_is_in_the_table(result):
    text = bench.table(result)
    assert list(by_name(result)) == QUICK
    for row in result.rows:
        assert row.label in text
    assert "64 tokens, hidden size 16, vocabulary 300" in text
    assert len({len(line) for line in text.splitlines() if line.startswith("|")}) == 1


def test_times_and_ratios(result):
    for row in result.rows:
        assert row.ran
        assert len(row.times_ms) == 2
        assert 0 < row.best_ms <= row.median_ms
        assert row.to_plain > 0
        assert row.to_floor > 0
    rows = by_name(result)
    assert rows["plain"].to_plain == rows["floor"].to_floor == 1


def test_everyone_computes_the_objective_that_it_names(result):
    for name, row in by_name(result).items():
        if name != "floor":
            assert row.loss_error < 1e-6, name
            assert row.gradient_error < 3e-6, name
    assert by_name(result)["paper"].objective == by_name(result)["ent_fraction"].objective


def test_truth_finds_errors():
    here = problem(Size(*SIZE))
    truth = Truth(here)
    loss = torch.nn.functional.cross_entropy(torch.nn.functional.linear(here.hidden, here.weight), here.targets)
    loss.backward()
    assert truth.errors("mle", loss.detach()).gradient < 1e-6
    here.weight.grad[0, 0] += 0.5 * here.weight.grad.abs().max()
    wrong = truth.errors("mle", 1.1 * loss.detach())
    assert wrong.loss == pytest.approx(0.1, rel=1e-3)
    assert wrong.gradient == pytest.approx(0.5, rel=1e-3)
    assert truth.errors("ent_fraction(0.5)", loss.detach()).loss > 0.1


def test_the_threshold_drops_the_fraction():
    here = problem(Size(1000, 16, 300))
    truth = Truth(here)
    norms = token_stats(hidden=here.hidden, weight=here.weight, targets=here.targets).error_norm
    assert (norms > truth.threshold(0.1)).double().mean() == pytest.approx(0.1, abs=2e-3)


def test_every_row_carries_its_settings(result):
    for row in result.rows:
        settings = row.settings
        assert (settings.tokens, settings.hidden, settings.vocab) == SIZE
        assert (settings.threads, settings.seed, settings.repeat, settings.clock) == (1, 0, 2, "cpu")
        assert settings.torch == torch.__version__
        assert settings.cpu
    assert by_name(result)["ent_fraction"].objective.startswith("ent_fraction(fraction=0.1, ")


def test_json_is_the_whole_result(result, tmp_path):
    bench.save(result, tmp_path / "new")
    again = from_json((tmp_path / "new" / "bench.json").read_text())
    assert again == result
    assert bench.table(again) == bench.table(result)
    assert len(again.rows) == len(QUICK)
    assert (tmp_path / "new" / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_it_says_so_before_measuring(monkeypatch, tmp_path):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "matplotlib" else find(name, *a))
    with pytest.raises(ModuleNotFoundError, match=r"the bar chart needs matplotlib: pip install errornorm\[plot\]"):
        bench.run([SIZE], output=tmp_path)
    assert not list(tmp_path.iterdir())


def test_missing_and_failing_peers_are_listed(monkeypatch):
    version = importlib.metadata.version

    def absent(name):
        if name in ("cut-cross-entropy", "trl"):
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    def broken(*args, **kwargs):
        raise OSError("no compiler\nat all")

    monkeypatch.setattr(importlib.metadata, "version", absent)
    monkeypatch.setattr(torch, "compile", broken)
    result = bench.run([SIZE], repeat=1, only=["cce", "trl", "compiled"], memory=False)
    rows = by_name(result)
    assert [row.name for row in result.rows if row.ran] == ["floor", "plain"]
    assert rows["cce"].note == rows["trl"].note == "not installed"
    assert rows["compiled"].note == "failed: OSError: no compiler"
    assert "Apple CCE" in bench.table(result)
    assert from_json(result.to_json()) == result


def test_our_own_failure_is_not_hidden(monkeypatch):
    monkeypatch.setattr(entries.RobustLoss, "forward", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bench.run([SIZE], repeat=1, only=["mle"], memory=False)


def test_threads_are_put_back():
    before = torch.get_num_threads()
    settings = bench.run([SIZE], repeat=1, threads=2, only=[], memory=False).rows[0].settings
    assert (settings.threads, settings.clock) == (2, "wall")
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": ["fastest"]}, "unknown entry fastest; there are floor, plain"),
        ({"repeat": 0}, "repeat=0"),
        ({"fraction": 1.0}, r"fraction=1\.0"),
        ({"sizes": [(64, 0, 300)]}, r"\(64, 0, 300\) is not a size"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        bench.run(**options)


@needs_proc
def test_peak_memory_counts_the_step_and_nothing_else():
    size = Size(512, 16, 8000)
    logits = 4 * size.tokens * size.vocab
    assert bench.peak_bytes("plain", size) == pytest.approx(3 * logits, rel=0.15)
    assert bench.peak_bytes("ent_fraction", size) < 2 * logits


def test_no_proc_no_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(sys.modules["errornorm.bench.memory"], "RESET", tmp_path / "absent")
    row = bench.run([SIZE], repeat=1, only=["mle"]).rows[-1]
    assert (row.ran, row.peak_mb, row.memory_to_plain) == (True, None, None)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_faster_and_smaller_than_everyone_else(tmp_path):
    """As the command line measures it: in a process of its own, whose memory nobody used before."""
    command = [sys.executable, "-m", "errornorm.cli", "bench", "--json", "--repeat", "7", "--output", str(tmp_path)]
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = {row["name"]: SimpleNamespace(**row) for row in json.loads(shown)["rows"]}
    for row in rows.values():
        print(row.name, row.to_plain, row.to_floor, row.memory_to_plain)
    ours, plain = rows["ent_fraction"], rows["plain"]

    def of(other):
        """The median over the rounds, as in the table."""
        return statistics.median(a / b for a, b in zip(ours.times_ms, other.times_ms, strict=True))

    assert ours.to_plain <= 0.85
    assert ours.to_floor <= 1.15
    assert of(rows["paper"]) <= 0.65
    assert ours.memory_to_plain <= 0.15
    for row in rows.values():
        if row.kind == "peer" and row.ran:
            assert of(row) < 1, row.name
        if row.kind == "ours":
            assert row.gradient_error <= plain.gradient_error, row.name


@pytest.mark.slow
@needs_proc
def test_memory_of_many_tokens():
    size = Size(8192, 256, 32000)
    assert bench.peak_bytes("ent_fraction", size) <= bench.peak_bytes("plain", size) / 30


@pytest.mark.slow
@needs_proc
def test_workspace_does_not_grow_with_the_tokens():
    sizes = [Size(tokens, 512, 32000) for tokens in (2048, 4096, 8192)]
    gradients = [4 * size.hidden * (size.tokens + size.vocab) for size in sizes]
    used = [bench.peak_bytes("ent_fraction", size) - own for size, own in zip(sizes, gradients, strict=True)]
    assert max(used) - min(used) <= 8 * MEGABYTE
