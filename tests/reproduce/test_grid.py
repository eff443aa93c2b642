"""Cells are named by what they depend on, run once, and never lost when they fail."""

import json

import pytest

import errornorm.methods
from errornorm import specs
from errornorm_reproduce import choose, grid, methods, run, work
from errornorm_reproduce.cells import Cell
from errornorm_reproduce.items import ITEMS
from errornorm_reproduce.items.table_untranslated import CHOICE
from errornorm_reproduce.plan import Plan
from errornorm_reproduce.scales import SCALES
from errornorm_reproduce.store import Store, packed, unpacked

TINY = SCALES["tiny"]


@pytest.fixture
def how(tmp_path):
    return grid.Grid(Store(tmp_path / "results"), work.Place(tmp_path / "work"))


def test_a_name_follows_from_what_a_run_depends_on_and_not_from_who_asks():
    one = TINY.cell("a", "MLE", "0%", "translation")
    assert one.hash == TINY.cell("b", "other", "clean", "translation").hash
    others = [
        one.but(seed=1),
        one.but(objective="ent_fraction(0.1)"),
        one.but(noise=(("untranslated", 0.2),)),
        one.but(settings={"training.steps": 25}),
        one.but(split="valid"),
        one.but(code="x"),
    ]
    assert len({cell.hash for cell in (one, *others)}) == 1 + len(others)


def test_a_figure_builds_on_the_run_of_a_table():
    plan = Plan(TINY, (0,))
    tables = {cell.hash for name in ("table-untranslated", "table-natural-noise") for cell in ITEMS[name].cells(plan)}
    noisy, *_, natural = ITEMS["figure-separation"].cells(plan)
    assert work.base_of(noisy).hash in tables
    assert {work.base_of(cell).hash for cell in (natural, *ITEMS["figure-pruning"].cells(plan))} < tables


def test_cells_that_prune_fine_tune_the_model_of_the_table():
    plan = Plan(SCALES["small"], (0,))
    cells = [cell for name in ("table-natural-noise", "figure-pruning") for cell in ITEMS[name].cells(plan)]
    assert len(cells) > 10
    assert len({work.before(cell).hash for cell in cells}) == 1


def test_a_row_says_how_it_was_made(how):
    cell = TINY.cell("table", "MLE", "0%", "translation")
    assert grid.run([cell, cell], how).done == [cell]
    row = how.store.find(cell.but(item="another"))
    expected = {"hash": cell.hash, "seed": 0, "objective": "mle", "threads": 1, "settings": cell.told}
    assert {name: row[name] for name in expected} == expected
    assert {"bleu", "bleu_greedy", "copies", "copies_greedy"} <= row["measures"].keys()
    assert row["seconds"] > 0
    assert len(row["data_hash"]) == 64
    assert row["machine"]["processor"]
    assert "tok:13a" in row["signatures"]["bleu"]
    assert str(how.store.folder.parent) not in json.dumps(row)  # rows are published


def test_a_cell_that_fails_is_named_and_the_others_go_on(how):
    bad = Cell(item="table", row="bad", column="", scale="tiny", do="train", settings='{"task": "none"}')
    good = Cell(item="table", row="good", column="", scale="tiny", do="illustrate")
    outcome = grid.run([bad, good], how)
    assert outcome.done == [good]
    ((cell, why),) = outcome.failed
    assert cell == bad
    assert why.startswith("KeyError")
    assert json.loads(how.store.failure(bad).read_text())["trace"]
    assert grid.run([bad, good], how).before == [good]


def test_a_cell_that_another_process_has_is_left_to_it(how):
    cell = Cell(item="table", row="one", column="", scale="tiny", do="illustrate")
    with how.place.lock(cell):
        assert grid.run([cell], how).elsewhere == [cell]
    assert grid.run([cell], how).done == [cell]


def test_processes_write_the_same_rows_and_one_that_fails_takes_no_other_with_it(how, tmp_path):
    cells = [TINY.cell("table", "MLE", "", "lm"), Cell(item="table", row="bad", column="", scale="tiny", do="none")]
    two = grid.Grid(how.store, how.place, jobs=2)
    outcome = grid.run(cells, two)
    assert outcome.done == cells[:1]
    assert outcome.failed == [(cells[1], "KeyError: 'none'")]
    here = grid.Grid(Store(tmp_path / "other"), work.Place(tmp_path / "elsewhere"))
    grid.run(cells[:1], here)
    rows = [grid_.store.find(cells[0]) for grid_ in (two, here)]
    assert rows[0]["measures"] == rows[1]["measures"]
    assert rows[0]["data_hash"] == rows[1]["data_hash"]


def test_the_best_candidate_on_the_development_set_is_chosen(how):
    plan = Plan(TINY, families=("Loss Truncation",))
    cells = choose.cells(plan, CHOICE, methods.ALL)
    assert [cell.split for cell in cells] == ["valid"] * 3
    assert choose.best(plan, CHOICE, methods.ALL, how.store) == {}
    for cell, bleu in zip(cells, (3.0, 7.0, 5.0), strict=True):
        how.store.write(cell, {"measures": {"bleu": bleu}}, 1.0, 1)
    assert choose.best(plan, CHOICE, methods.ALL, how.store) == {"Loss Truncation": "loss_truncation(0.1, start=12)"}


MINE = """
from errornorm.objectives import method, reweight
from errornorm.starts import delayed

@method
def mine(power: float = 1.0, *, start: int = 0):
    return delayed(reweight(lambda stats, now: stats.p_target**power), start)

METHODS = {"mine": mine}
CANDIDATES = {"mine": ["mine(0.5, start={start})"]}
"""


def test_a_users_method_gets_its_row(tmp_path):
    file = tmp_path / "my.py"
    file.write_text(MINE)
    asked = run.Asked(seeds=1, results=tmp_path / "r", work=tmp_path / "w", families=("MLE", "mine"), method_file=file)
    try:
        done = run.reproduce("table-lm", asked)
    finally:
        errornorm.methods.METHODS.pop("mine", None)
    assert done.outcome.failed == []
    assert "| mine | `mine(0.5, start=12)` |" in done.text
    rows = [json.loads(path.read_text()) for path in (tmp_path / "r" / "table-lm").glob("*.json")]
    assert sorted(bool(row["code"]) for row in rows) == [False, True]


def test_a_file_without_methods_is_refused(tmp_path):
    (tmp_path / "my.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="no METHODS"):
        methods.load(tmp_path / "my.py")


def test_the_released_baselines_are_a_file_like_any_other():
    with methods.released() as families:
        assert [family.name for family in families] == ["tailr_as_released", "loss_truncation_as_released"]
        assert specs.objective("tailr_as_released(0.1, floor=0.3)").spec.startswith("tailr_as_released(gamma=0.1")
    assert not {family.name for family in families} & set(errornorm.methods.METHODS)


def test_packing_keeps_numbers():
    rows = [[3.0, 0.25, 17.0], [0.0, 1.5, 2.0]]
    assert unpacked(packed(rows)) == rows
