"""Slopes, the bytes that scopes hand over against their formulas, and the page about them."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
import torch.distributed as dist

from errornorm import RobustLoss, VocabShard, cards, objective
from errornorm.bench.problem import Size, problem
from errornorm.bench.traffic import counted
from errornorm.scale import SCOPES, Load, Sends, corpus_section, fit, growth_section, projection_section, ranks_section
from errornorm.scale.figures import draw
from errornorm.scale.projection import Run
from errornorm.scale.rows import FILES, rows_of
from tests.processes import two_ranks

ROOT = Path(__file__).parents[1]
LOADS = (Load(128, 8, 16), Load(384, 12, 16), Load(320, 40, 16, micro=4))
VOCAB = 64


def test_the_slope_of_a_power_is_its_exponent():
    xs = [1, 3, 10, 40, 1000]
    found = fit(xs, [5 * x**1.5 for x in xs])
    assert found.slope == pytest.approx(1.5)
    assert found.scale == pytest.approx(5)
    assert found.error == pytest.approx(0, abs=1e-12)
    assert found(7) == pytest.approx(5 * 7**1.5)


def test_the_standard_error_is_that_of_least_squares():
    xs, ys = [1, 2, 4, 8, 16, 32], [1.1, 1.9, 4.3, 7.7, 17.0, 30.0]
    found = fit(xs, ys)
    (slope, at), cov = numpy.polyfit(numpy.log(xs), numpy.log(ys), 1, cov=True)
    assert found.slope == pytest.approx(slope)
    assert found.scale == pytest.approx(math.exp(at))
    assert found.error == pytest.approx(math.sqrt(cov[0, 0]))
    assert str(found) == f"{slope:.2f} ± {math.sqrt(cov[0, 0]):.2f}"


def test_two_points_have_no_error_and_one_has_no_slope():
    assert math.isnan(fit([1, 2], [3, 6]).error)
    assert str(fit([1, 2], [3, 6])) == "1.00"
    for xs, ys in (([2, 2], [1, 1]), ([1, 2], [0, 1]), ([1, 2, 3], [1, 2])):
        with pytest.raises(ValueError, match="no curve"):
            fit(xs, ys)


@pytest.fixture(scope="module")
def handed_over(tmp_path_factory):
    return two_ranks(_in_group, tmp_path_factory.mktemp("ranks"))


def _in_group(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=2)
    found = {(name, i): _steps(scope, rank, load) for name, scope in SCOPES.items() for i, load in enumerate(LOADS)}
    torch.save(found, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def _steps(scope, rank, load):
    """What is handed over in each of two optimizer steps."""
    here = problem(Size(load.tokens, load.width, VOCAB), seed=0 if scope.sharded else rank)
    hidden = here.hidden.detach().view(load.sequences, -1, load.width).requires_grad_()
    targets, rows = here.targets.view(load.sequences, -1), VOCAB // 2
    weight, given = here.weight.detach(), {}
    if scope.sharded:
        weight, given = weight[rank * rows : (rank + 1) * rows], {"shard": VocabShard(rank * rows, VOCAB)}
    weight = weight.clone().requires_grad_()
    loss, steps = RobustLoss(objective(scope.objective)), []
    for _ in range(2):
        with counted() as traffic:
            for part in torch.arange(load.sequences).chunk(load.micro):
                loss(hidden=hidden[part], weight=weight, targets=targets[part], **given).total.backward()
            loss.advance()
        steps.append([tuple(one) for one in traffic.sent])
    return steps


@pytest.mark.parametrize("load", LOADS, ids=lambda load: f"{load.tokens}-tokens")
@pytest.mark.parametrize("name", SCOPES)
def test_formulas_are_what_is_handed_over(handed_over, name, load):
    scope = SCOPES[name]
    want = scope.formula(load)
    for rank in handed_over:
        for number, sent in enumerate(rank[name, LOADS.index(load)]):
            if name == "start" and number:  # warm after the first step, and from then on silent
                assert not sent
                continue
            got = Sends(*(sum(size for kind, size in sent if kind == which) for which in Sends._fields))
            again = got.all_reduce - want.all_reduce
            assert got.all_gather == want.all_gather
            assert 0 <= again <= 24 * load.tokens if scope.guessed else again == 0
            assert again % 24 == 0  # whole tokens
            if scope.rounds is not None:
                batches = load.micro if "global" in name else 1
                assert len(sent) == batches * scope.rounds


def test_nothing_that_crosses_grows_with_the_tokens_but_shards():
    small, large = LOADS[0], replace(LOADS[0], tokens=10**9)
    grow = [name for name, scope in SCOPES.items() if scope.formula(small) != scope.formula(large)]
    assert grow == ["shards", "shards fraction"]


def test_a_ring():
    assert Sends(100, 0).over_the_link(1) == Sends(0, 100).over_the_link(1) == 0
    assert Sends(100, 0).over_the_link(4) == 150  # three quarters, twice
    assert Sends(0, 100).over_the_link(4) == 300


def test_the_run_on_paper():
    run = Run()
    assert run.tokens_per_step == 4_096_000
    assert run.steps * run.tokens_per_step >= run.tokens > (run.steps - 1) * run.tokens_per_step
    assert run.head == 2 * 4096 * 128_256
    assert 0.05 < run.head / run.forward < 0.08
    assert run.seconds(Sends(), 0) == 0


def head_rows(axis, column, power):
    known = {"tokens": 64, "hidden": 8, "vocab": 32}
    settings = {"cpu": "some CPU", "torch": "2.13.0", "errornorm": "0.1.0", "date": "2026-01-31", "rounds": 3}
    return {
        "axis": axis,
        "rows": [
            {**known, column: x, "entry": entry, "best": x**power, "to_plain": 0.5, "peak_bytes": (1 + half) * x * x,
             "settings": settings}
            for x in (100, 200, 400)
            for half, entry in enumerate(("plain", "mle", "ent_fraction", "ent_auto"))
        ],
    }  # fmt: skip


def test_the_page_shows_the_slopes_of_its_rows(tmp_path):
    files = [head_rows(axis, column, 1.25) for axis, column in FILES.items()]
    text = growth_section(files)
    assert "| tokens, 100 to 400 (vocabulary 32, width 8) | 1.25 ± 0.00 | 1.25 ± 0.00 |" in text
    assert "| 2.00 ± 0.00 | 2.00 ± 0.00 | 2.00 ± 0.00 | 2.00 ± 0.00 | 2.00 | 2.00 | 3.00 | 4.00 |" in text
    assert "some CPU; best of 3 rounds; torch 2.13.0, errornorm 0.1.0, 2026-01-31." in text
    paths = draw(files, tmp_path)
    assert [path.name for path in paths] == ["traffic.svg", "head.svg"]
    first = paths[1].read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in first
    assert draw(files, tmp_path)[1].read_text(encoding="utf-8") == first


def test_without_rows_there_is_arithmetic_only():
    assert growth_section([]) == ranks_section([]) == corpus_section([]) == ""
    assert "244,141" in projection_section([])


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "results" / "scale").glob("*.json")), ids=lambda path: path.stem
)
def test_every_row_says_where_it_comes_from(path):
    file = json.loads(path.read_text(encoding="utf-8"))
    assert file["axis"] == path.stem
    assert rows_of([file], path.stem)
    for row in file["rows"]:
        assert row["settings"].keys() >= {"cpu", "torch", "errornorm", "date", "threads", "clock"}


def test_measured_bytes_are_those_of_the_formulas():
    rows = json.loads((ROOT / "docs" / "results" / "scale" / "ranks.json").read_text(encoding="utf-8"))["rows"]
    for row in rows:
        load = Load(row["tokens"], row["sequences"], row["width"], row["micro"])
        want = SCOPES[row["scope"]].formula(load) if row["ranks"] > 1 else Sends()
        assert row["formula"] == want._asdict()
        assert set(row["all_gather"]) == {want.all_gather}
        assert SCOPES[row["scope"]].guessed or set(row["all_reduce"]) == {want.all_reduce}


def test_the_page_is_made_from_the_rows():
    page = ROOT / "docs" / "scale.md"
    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- scale ") == 4
    assert cards.refresh(ROOT)[page] == text
