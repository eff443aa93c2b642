"""What is said about rows: verdicts, choices, remarks. The rows are made up here; others test how real ones come."""

import math
import shutil
from pathlib import Path

import numpy
import pytest

from errornorm_reproduce import choose, methods, page, run
from errornorm_reproduce.items import ITEMS
from errornorm_reproduce.items.table_untranslated import CHOICE
from errornorm_reproduce.methods import ALL
from errornorm_reproduce.plan import Plan
from errornorm_reproduce.render import LEFT_OUT, signed
from errornorm_reproduce.scales import SCALES
from errornorm_reproduce.statistics import Numbers, _Scores
from errornorm_reproduce.store import Store

NAME = "table-untranslated"
FAMILIES = ("MLE", "Loss Truncation", "TaiLr", "ENT-Fraction")
BLEU = {  # columns 0%, 20%, 50%
    "MLE": (30.0, 20.0, 10.0),
    "Loss Truncation": (30.0, 21.0, 25.0),
    "TaiLr": (30.0, 19.0, 11.0),
    "ENT-Fraction": (29.0, 25.0, 24.0),
}
SEEDS = (0, 1)


def plan(families=FAMILIES):
    return Plan(SCALES["small"], SEEDS, families)


@pytest.fixture
def store(tmp_path):
    """A whole table; the second seed is 2 BLEU better. No sentences, so no p-values."""
    store = Store(tmp_path / "results")
    for cell in ITEMS[NAME].cells(plan()):
        bleu = BLEU[cell.row][("0%", "20%", "50%").index(cell.column)] + 2 * cell.seed
        numbers = {"bleu": bleu, "bleu_greedy": bleu - 1, "copies": 0.25, "copies_greedy": 0.0}
        store.write(cell, {"measures": numbers, "signatures": {"bleu": "tok:13a"}}, 60.0, 1)
    return store


@pytest.fixture
def sure(monkeypatch):
    """All differences are more than chance."""
    monkeypatch.setattr(Numbers, "_p", lambda self, pairs, column: 0.001)


def shown(store):
    return run.shown(ITEMS[NAME], plan(), store)[0]


def test_a_table_has_means_and_deviations_over_seeds_and_says_where_they_come_from(store):
    text = shown(store)
    assert "| MLE | `mle` | 31.0 ± 1.4 | 21.0 ± 1.4 | 11.0 ± 1.4 |" in text
    assert "| MLE | `mle` | 25% ± 0% | 25% ± 0% | 25% ± 0% |" in text
    assert "Scale small; seeds 0, 1; 24 cells" in text
    assert "1.0 minutes for a cell" in text


def test_baselines_as_released_stand_on_the_page_where_they_were_run(store, tmp_path):
    assert "as_released" not in page.markdown(store.folder, tmp_path)
    with methods.released() as extra:
        cells = ITEMS[NAME].cells(Plan(SCALES["small"], (0,), ("tailr_as_released",), extra))
    for cell in cells:
        store.write(cell, {"measures": {"bleu": 5.0}, "signatures": {"bleu": "tok:13a"}}, 60.0, 1)
    text = page.markdown(store.folder, tmp_path)
    assert "| tailr_as_released | `tailr_as_released(0.1, floor=0.3)` | 5.0 | 5.0 | 5.0 |" in text
    assert "loss_truncation_as_released" not in text


def test_a_line_is_of_the_same_seeds_at_all_points(tmp_path):
    store, item = Store(tmp_path / "results"), ITEMS["figure-start"]
    cells = item.cells(plan(("MLE", "ENT-Fraction")))
    for cell in cells:
        if cell.seed == 0 or cell.column == "300":  # of the second seed another table has run one point
            store.write(cell, {"measures": {"perplexity": 100.0 + cell.seed}, "signatures": {}}, 60.0, 1)
    assert {cell.seed for cell, _ in run.there(item, cells, store)} == {0}
    assert {cell.seed for cell, _ in run.there(ITEMS[NAME], cells, store)} == {0, 1}


def test_the_papers_difference_stands_beside_ours(store):
    text = shown(store)
    assert "| ENT-Fraction | 50% | 28.6 → 32.4 | +3.8 | 11.0 → 25.0 | +14.0 | 2 | - | same |" in text
    assert "| TaiLr | 20% | 33.2 → 33.4 | +0.2 | 21.0 → 20.0 | -1.0 | 2 | - | opposite |" in text


def test_a_claim_holds_where_its_rows_say_so_and_only_there(store, sure):
    text = shown(store)
    assert "“Outperforming the baseline 3.8 BLEU ... when 50% of noise is injected”: **held** (ENT-Fraction; "\
        "50%: 25.0 against 11.0 of MLE, 2 seeds, p = 0.001)" in text  # fmt: skip
    assert "when 50% of noise is injected”: **held in 1 of 2, did not hold in 1 of 2**" in text
    assert "“TaiLr exhibits modest gains”: **held in 1 of 2, did not hold in 1 of 2**" in text


def test_what_has_no_sentences_is_not_tested(store):
    assert "when 50% of noise is injected”: **not tested** (ENT-Fraction; 50%: 25.0 against" in shown(store)


def test_two_methods_are_compared_over_the_seeds_that_both_have(store, sure):
    """Of likelihood the better seed is missing; alone it is not what a difference is to."""
    item = ITEMS[NAME]
    gone = next(c for c in item.cells(plan()) if (c.row, c.column, c.seed) == ("MLE", "50%", 1))
    store.path(gone).unlink()
    text = shown(store)
    assert "| 28.6 → 32.4 | +3.8 | 10.0 → 24.0 | +14.0 | 1 | 0.001 | same |" in text
    assert "50%: 24.0 against 10.0 of MLE, 1 seed, p = 0.001" in text


@pytest.mark.parametrize(("gains", "is_sure"), [((2.0, 2.2, 1.9), True), ((4.0, -3.0, 2.0), False), ((2.0,), True)])
def test_seeds_that_disagree_are_chance(gains, is_sure, monkeypatch):
    """Each seed alone is sure, because its sentences are."""
    numbers = Numbers(ITEMS[NAME], [], "bleu")
    noise = numpy.random.default_rng(0).normal(size=1000) / 10
    monkeypatch.setattr(Numbers, "_resampled", lambda self, row, column: _Scores(9, row, row * (1 + noise)))
    assert (numbers._p([(gain, 0.0) for gain in gains], "50%") < 0.05) == is_sure


def test_other_test_sentences_are_not_compared(monkeypatch):
    numbers = Numbers(ITEMS[NAME], [], "bleu")
    monkeypatch.setattr(Numbers, "_resampled", lambda self, row, column: _Scores(row, 1.0, numpy.ones(9)))
    assert numbers._p([(200, 200)], "50%") is not None
    assert numbers._p([(200, 137)], "50%") is None


def test_a_claim_without_rows_is_not_measured(tmp_path):
    item = ITEMS["table-lm"]
    cells = item.cells(Plan(SCALES["small"], (0,), ("MLE",)))
    store = Store(tmp_path)
    store.write(cells[0], {"measures": {"perplexity": 100.0}}, 60.0, 1)
    text, _ = run.shown(item, Plan(SCALES["small"], (0,), ("MLE",)), store)
    assert text.count("**not measured**") == len(item.claims)


def test_the_choice_is_shown_with_what_every_candidate_reached(store):
    families = ("Loss Truncation",)
    for cell, bleu in zip(choose.cells(plan(families), CHOICE, ALL), (3.0, 7.0, 5.0), strict=True):
        store.write(cell, {"measures": {"bleu": bleu}}, 60.0, 1)
    assert "3.0 `loss_truncation(0.05, start=300)`, **7.0** `loss_truncation(0.1, start=300)`" in shown(store)


def test_a_method_whose_choice_is_not_complete_is_left_out(store):
    """The first candidate is not the best one, and would pass for it."""
    families, item = ("MLE", "Loss Truncation"), ITEMS[NAME]
    first, *others = choose.cells(plan(families), CHOICE, ALL)
    for cell in others:
        store.write(cell, {"measures": {"bleu": 7.0}}, 60.0, 1)
    store.write_failure(first, "MemoryError", "too large")
    decided = run.chosen(item, plan(families), store)
    assert {cell.row for cell in item.cells(decided)} == {"MLE"}
    assert f"Failed: {first.name}: MemoryError: too large." in run.shown(item, decided, store)[0]
    store.write(first, {"measures": {"bleu": math.nan}}, 60.0, 1)
    decided = run.chosen(item, plan(families), store)
    assert {cell.row for cell in item.cells(decided)} == set(families)
    assert "loss_truncation(0.1, start=300)" in decided.chosen.values()  # NaN is no score
    assert "Failed" not in run.shown(item, decided, store)[0]


def test_remarks_take_their_numbers_from_rows(store):
    remarks = store.folder / NAME / "remarks-small.md"
    remarks.write_text("From [[MLE, 50%, bleu]] to [[ENT-Fraction, 50%, bleu]]; copies [[MLE, 50%, copies]].\n")
    assert "From 11.0 to 25.0; copies 25%." in shown(store)
    remarks.write_text("From [[MLE, 60%, bleu]] to [[MLE, 50%, bleu]].")
    assert f"{LEFT_OUT} [[MLE, 60%, bleu]].\n" in shown(store)


@pytest.mark.slow  # all p-values again
@pytest.mark.timeout(1800)
def test_the_page_of_this_project_is_that_of_its_rows(tmp_path):
    docs = Path(__file__).parents[2] / "docs"
    text = (docs / "results.md").read_text(encoding="utf-8")
    assert LEFT_OUT not in text
    rows = shutil.copytree(docs / "results" / "reproduce", tmp_path / "results" / "reproduce")
    assert page.markdown(rows, tmp_path) == text


def test_what_failed_is_on_the_page(store):
    cell = ITEMS[NAME].cells(plan())[0]
    store.path(cell).unlink()
    store.write_failure(cell, "MemoryError", "too large")
    assert f"Failed: {NAME}: MLE, 0%, seed 0 ({cell.hash}): MemoryError: too large." in shown(store)


def test_the_page_begins_with_all_claims(store, sure, tmp_path):
    for cell in choose.cells(plan(), CHOICE, ALL):
        store.write(cell, {"measures": {"bleu": 5.0}}, 60.0, 1)  # of equal ones, the first is chosen
    text, site = (path.read_text(encoding="utf-8") for path in page.write(tmp_path, store.folder))
    claims = text[: text.index("### ")]
    assert "| TaiLr exhibits modest gains | TaiLr | held in 1 of 2, did not hold in 1 of 2 |" in claims
    assert "## Untranslated text" in text
    assert "<td>TaiLr exhibits modest gains</td>" in site


def test_what_has_no_parameters_stands_beside_the_best_that_has(store, tmp_path):
    """Over the seeds that all have: here the first, of which ENT-Auto has two columns."""
    auto = {"0%": 30.2, "50%": 26.0}
    for cell in ITEMS[NAME].cells(plan(("ENT-Auto",))):
        if cell.seed == 0 and cell.column in auto:
            store.write(cell, {"measures": {"bleu": auto[cell.column]}}, 60.0, 1)
    text = page.markdown(store.folder, tmp_path)
    assert "| table-untranslated | 0% | bleu | 1 | 30.0 | 29.0, ENT-Fraction | 30.2 | +0.2 | +1.2 |" in text
    assert "| table-untranslated | 50% | bleu | 1 | 10.0 | 24.0, ENT-Fraction | 26.0 | +16.0 | +2.0 |" in text
    assert "| table-untranslated | 20% | bleu |" not in text
    assert "worse than the best by hand in 2 of 2, and where there is no noise at most 0.5 worse than" in text
    assert "likelihood in 1 of 1." in text


def test_what_two_tables_share_is_counted_once(store, tmp_path):
    """Clean captions stand in both tables about noise."""
    for cell in ITEMS["table-misordered"].cells(plan((*FAMILIES, "ENT-Auto"))):
        store.write(cell, {"measures": {"bleu": 28.8 if cell.row == "ENT-Auto" else 30.0}}, 60.0, 1)
    text = page.markdown(store.folder, tmp_path)
    assert "| table-untranslated | 0% | bleu | 2 | 31.0 | 30.0, ENT-Fraction | 28.8 | -2.2 | -1.2 |" in text
    assert "| table-misordered | 0% | bleu |" not in text
    assert "| table-misordered | 50% | bleu | 2 |" in text
    assert "worse than the best by hand in 0 of 3, and where there is no noise at most 0.5 worse than" in text
    assert "likelihood in 0 of 1." in text


def test_a_chosen_setting_acts_from_the_step_of_its_corpus():
    """The choice is made where truncation starts at step 300; fine-tuning starts at once."""
    chosen = {(CHOICE, "Loss Truncation"): "loss_truncation(0.2, start=300)"}
    cells = ITEMS["table-natural-noise"].cells(Plan(SCALES["small"], (0,), ("Loss Truncation",), chosen=chosen))
    assert [cell.objective for cell in cells] == ["loss_truncation(0.2, start=0)"]


def test_the_page_shows_marks_and_no_other_markup():
    shown = page.as_html("# Results\n\n<mark>a</mark> <mark><b>b</b></mark> <script>c</script> <b onclick=d>e</b>\n")
    assert "<mark>a</mark> <mark><b>b</b></mark> &lt;script&gt;c&lt;/script&gt; &lt;b onclick=d&gt;e" in shown


def test_what_rounds_to_nothing_has_a_plus():
    assert [signed(value, ".1f") for value in (-0.04, -0.06, 0.04)] == ["+0.0", "-0.1", "+0.0"]
