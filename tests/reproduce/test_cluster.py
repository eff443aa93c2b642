"""Several processes at one cell, and cells as jobs: rows come once, and nothing waits for ever."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from errornorm import cli
from errornorm_reproduce import dry, grid, run, slurm, work
from errornorm_reproduce.cells import Cell
from errornorm_reproduce.items import ITEMS
from errornorm_reproduce.methods import ALL
from errornorm_reproduce.plan import Plan
from errornorm_reproduce.scales import SCALES
from errornorm_reproduce.store import Store

TINY = SCALES["tiny"]
BAD = """
from errornorm.objectives import method, reweight
from errornorm.starts import delayed

def fail(stats, now):
    raise ArithmeticError("on purpose")

@method
def bad(*, start: int = 0):
    return delayed(reweight(fail), start)

METHODS = {"bad": bad}
"""


def torchrun(folder, *words):
    """`errornorm reproduce` on two ranks, as a user starts it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port]
    return subprocess.run(
        [*start, "-m", "errornorm.cli", "reproduce", *words, "--seeds", "1", "--results", "results"],
        cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip


def rows(folder):
    return {path.name: json.loads(path.read_text()) for path in (folder / "results").glob("*/*.json")}


def test_two_ranks_write_one_row(tmp_path):
    done = torchrun(tmp_path, "table-lm", "--method", "MLE")
    assert done.returncode == 0, done.stderr
    (row,) = rows(tmp_path).values()
    assert row["measures"]["perplexity"] > 1
    assert done.stdout.count("## Language modelling") == 1  # one of them speaks
    assert done.stderr.count("1 of 1: ") == 1


@pytest.mark.slow
def test_two_ranks_go_on_after_a_cell_that_failed_and_after_one_that_did_not(tmp_path):
    (tmp_path / "bad.py").write_text(BAD)
    words = ("--method-file", "bad.py", "--method", "bad", "--method", "MLE", "--method", "ENT-Fraction")
    done = torchrun(tmp_path, "table-lm", *words)
    assert done.returncode == 1
    assert "ArithmeticError: on purpose" in done.stdout
    found = rows(tmp_path)
    assert sorted(row.get("error", row["objective"]) for row in found.values()) == [
        "ArithmeticError", "ent_fraction(0.1, start=12)", "mle"
    ]  # fmt: skip


@pytest.mark.slow
def test_two_ranks_do_what_builds_on_another_run(tmp_path):
    done = torchrun(tmp_path, "examples")
    assert done.returncode == 0, done.stderr
    (row,) = rows(tmp_path).values()
    assert row["sentences_shown"]


@pytest.fixture
def how(tmp_path, monkeypatch):
    """With a way to tell that cannot be sent to another process, as that of the command line."""
    pytest.importorskip("submitit", reason="submitit is an extra: pip install errornorm[slurm]")
    monkeypatch.chdir(tmp_path)
    lock = threading.Lock()
    return grid.Grid(Store(Path("results")), work.Place(Path("work")), tell=lambda text: lock.release())


# The executor for tests starts processes that nobody waits for: jobs of a cluster are no children.
LEFT = pytest.mark.filterwarnings("ignore:.*Popen.__del__:pytest.PytestUnraisableExceptionWarning")


def await_end(*cells, place):
    while any(slurm.queued(cell, place, "local") for cell in cells):
        time.sleep(0.1)


@LEFT
def test_cells_are_jobs_that_are_submitted_once(how, tmp_path):
    place = work.Place(tmp_path / "work")
    good = Cell(item="table", row="good", column="", scale="tiny", do="illustrate")
    bad = Cell(item="table", row="bad", column="", scale="tiny", do="none")
    options = {"partition": "gpus", "gpus": 0, "cluster": "local"}
    assert len(set(slurm.submit([good, bad, good], how, **options))) == 2
    assert slurm.submit([good, bad], how, **options) == []  # they are at work
    await_end(good, bad, place=place)
    assert how.store.find(good)["distributions"]
    assert how.store.failed(bad)["text"] == "'none'"
    assert slurm.submit([good], how, **options) == []


@LEFT
@pytest.mark.slow
def test_a_job_has_a_rank_for_each_gpu(how, tmp_path):
    cell = TINY.cell("table", "MLE", "", "lm")
    (name,) = slurm.submit([cell], how, "gpus", gpus=2, cluster="local")
    await_end(cell, place=work.Place(tmp_path / "work"))
    assert how.store.failed(cell) is None
    row = how.store.find(cell)
    assert row["measures"]["perplexity"] > 1
    about = json.loads((tmp_path / "work" / "cells" / cell.hash / "run" / "manifest.json").read_text())
    assert about["ranks"] == 2
    assert len(list((tmp_path / "work" / "slurm").glob(f"{name}_*_log.out"))) == 2


def test_where_there_is_no_slurm_nothing_is_submitted(tmp_path, monkeypatch, capsys):
    pytest.importorskip("submitit", reason="submitit is an extra: pip install errornorm[slurm]")
    monkeypatch.setattr("shutil.which", lambda name: None)
    words = [
        "reproduce",
        "table-lm",
        "--slurm",
        "gpus",
        "--results",
        str(tmp_path / "r"),
        "--work",
        str(tmp_path / "w"),
    ]
    assert cli.main(words) == 2
    assert "no Slurm here" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert cli.main(words) == 2
    assert "pip install errornorm[slurm]" in capsys.readouterr().err


def size(item):
    plan = Plan(SCALES["paper"], (0, 1, 2))
    return dry.estimate(ITEMS[item], plan, run.choices(ITEMS[item], plan))


def test_memory_and_hours_of_a_language_model():
    (kind,) = size("table-lm")
    parameters, tokens = 774_030_080, 65_536 // 4
    assert kind["parameters"] == parameters
    assert kind["memory"]["state"] == 22 * parameters
    assert kind["memory"]["activations"] == tokens * 1280 * (36 * 4 + 68)
    assert kind["runs"] == 3 * len(ALL) + sum(len(family.candidates) for family in ALL if len(family.candidates) > 1)
    each = (6 * parameters + 6 * 36 * 1280 * 1024) * 4 / 3  # and once more forward
    assert kind["hours"] == pytest.approx(9000 * 65_536 * each / (4 * 312e12 * 0.35) / 3600)
    assert 1 < kind["hours"] < 10


def test_checkpointing_saves_memory_and_costs_time():
    told = SCALES["paper"].cell("t", "MLE", "", "lm").told
    model = dry.size_of(told)
    plain = told | {"training": told["training"] | {"gradient_checkpointing": False}}
    less, more = (dry.memory_of(each, model)["activations"] for each in (told, plain))
    assert more > 10 * less
    assert dry.operations(told, model) == pytest.approx(dry.operations(plain, model) * 4 / 3)
    halves = plain | {"training": plain["training"] | {"micro_batches": 2}}
    assert dry.memory_of(halves, model)["activations"] == more // 2


def test_every_item_says_what_it_takes():
    for name in ITEMS:
        for kind in size(name):
            assert 0 < kind["hours"] < 24
            assert kind["memory_bytes"] < 40 * 2**30
    models = {kind["model"] for kind in size("table-summarization")}
    assert models == {"google-t5/t5-small", "facebook/bart-base"}


def test_sizes_of_pretrained_models_are_those_of_their_configurations():
    import torch
    from transformers import BartConfig, BartForConditionalGeneration, T5Config, T5ForConditionalGeneration

    base = {"encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "encoder_attention_heads": 12,
            "decoder_attention_heads": 12, "encoder_layers": 6, "decoder_layers": 6, "d_model": 768}  # fmt: skip
    with torch.device("meta"):
        t5 = T5ForConditionalGeneration(T5Config(vocab_size=32_128))
        bart = BartForConditionalGeneration(BartConfig(vocab_size=50_265, **base))
    for model, layers, told in ((t5, t5.encoder.block, dry.PRETRAINED["google-t5/t5-small"]),
                                (bart, bart.model.encoder.layers, dry.PRETRAINED["facebook/bart-base"])):  # fmt: skip
        assert model.num_parameters() == told.parameters
        assert sum(parameter.numel() for parameter in layers.parameters()) == told.encoder


def test_the_command_has_what_was_given():
    asked = run.Asked(scale="paper", seeds=2, families=("MLE", "Loss Truncation"), results=Path("out"))
    start = "torchrun --nproc-per-node 4 -m errornorm.cli reproduce table-lm --scale paper --seeds 2"
    assert dry.command("table-lm", asked) == f"{start} --method MLE --method 'Loss Truncation' --results out"
    asked = run.Asked(scale="paper", partition="gpus")
    assert dry.command("table-lm", asked) == "errornorm reproduce table-lm --scale paper --seeds 3 --slurm gpus"
    plan = Plan(SCALES["paper"])
    assert dry.needs_data(ITEMS["table-natural-noise"], plan)
    assert not dry.needs_data(ITEMS["table-lm"], plan)
