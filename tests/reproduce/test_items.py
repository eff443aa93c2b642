"""Every item runs at the scale tiny, from nothing but the package, and shows its table or figure."""

import json

import pytest

from errornorm_reproduce import run
from errornorm_reproduce.items import ITEMS
from errornorm_reproduce.methods import ALL
from errornorm_reproduce.plan import Plan
from errornorm_reproduce.scales import SCALES

FEW = ("MLE", "ENT-Fraction")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all items: what they share is run once."""
    return tmp_path_factory.mktemp("reproduce")


def asked(folder, **changes):
    return run.Asked(**{"seeds": 1, "results": folder / "results", "work": folder / "work", "families": FEW} | changes)


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_runs_and_is_shown(folder, name):
    done = run.reproduce(name, asked(folder))
    assert done.outcome.failed == []
    assert ITEMS[name].title in done.text
    assert "Not run yet" not in done.text
    assert "| --- |" in done.text
    if ITEMS[name].figure is not None:
        assert done.figure.read_text(encoding="utf-8").rstrip().endswith("</svg>")
    again = run.reproduce(name, asked(folder))
    assert again.outcome.done == []
    assert again.text == done.text


def test_the_papers_numbers_are_of_methods_and_columns_that_the_items_have():
    plan = Plan(SCALES["paper"], (0,))
    rows = {family.name for family in ALL}
    for item in ITEMS.values():
        assert set(item.paper) <= rows
        if item.name in ("table-untranslated", "table-misordered", "table-lm", "table-bilingual"):
            columns = {cell.column for cell in item.cells(plan)}
            assert all(set(numbers) == columns for numbers in item.paper.values())


def test_the_paper_scale_says_what_it_takes_and_how_to_start_it(capsys):
    from errornorm import cli

    assert cli.main(["reproduce", "table-lm", "--scale", "paper", "--dry-run", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    (kind,) = told["runs"]
    assert kind["model"] == "gpt2-large"
    assert abs(kind["parameters"] - 774_030_080) < 1e6
    assert kind["hours"] > 0
    assert kind["memory_bytes"] > 16 * kind["parameters"]
    assert told["command"].startswith("torchrun --nproc-per-node 4 -m errornorm.cli reproduce table-lm --scale paper")


def test_what_there_is_as_json(capsys):
    from errornorm import cli

    assert cli.main(["reproduce", "--json"]) == 0
    assert [row["item"] for row in json.loads(capsys.readouterr().out)] == list(ITEMS)


def test_small_without_data_is_refused(tmp_path, capsys):
    from errornorm import cli

    assert cli.main(["reproduce", "table-lm", "--scale", "small", "--results", str(tmp_path)]) == 2
    assert "--data" in capsys.readouterr().err
    asked = ["--scale", "small", "--results", str(tmp_path), "--data", str(tmp_path / "nowhere")]
    assert cli.main(["reproduce", "table-lm", *asked]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_the_page_has_what_was_run(folder, tmp_path, monkeypatch):
    from errornorm_reproduce import page

    monkeypatch.setattr(page, "SCALES", {"other": SCALES["tiny"]})
    monkeypatch.setattr(page, "UNSHOWN", ())
    run.reproduce("table-lm", asked(folder))
    text, site = (path.read_text(encoding="utf-8") for path in page.write(tmp_path, folder / "results"))
    assert "## Language modelling" in text
    assert "25.88 → 24.5" in text
    assert "<table>" in site


def test_tokens_of_large_norm_are_marked_where_they_stand():
    """Neighbours of one colour are one mark, and what a corpus says is no markup."""
    tokens = [["a<", 1.1], [" b", 1.2], [" ", 1.4], ["c", 1.35], ["d", 0.2], [" e", 1.05]]
    text = ITEMS["examples"].text([(None, {"sentences_shown": [{"source": "<i>", "tokens": tokens}]})])
    assert text.splitlines()[-1] == ("| &lt;i&gt; | <mark>a&lt; b</mark> <mark><b>c</b></mark>d <mark>e</mark> |")
