"""What the demo says about itself is true."""

import json
import sys
from pathlib import Path

import pytest
import torch

from errornorm import cli, demo

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    return demo.run(tmp_path_factory.mktemp("demo"))


@pytest.fixture
def short(monkeypatch):
    """One training of few steps instead of fifteen."""
    monkeypatch.setattr(demo, "OBJECTIVES", ("ent_fraction(0.1)",))
    monkeypatch.setattr(demo, "MISTAKES", ("repeated",))
    monkeypatch.setattr(demo, "STEPS", 21)


def outcome(shown, objective, mistakes="repeated"):
    return next(o for o in shown.outcomes if (o.objective, o.mistakes) == (objective, mistakes))


def test_equal_loss_different_error_norm(shown):
    many, untrained, error = shown.cases
    assert many.nll == pytest.approx(error.nll, rel=1e-6)
    assert untrained.nll == pytest.approx(error.nll, rel=1e-6)
    assert untrained.error_norm < many.error_norm < 1.1 < demo.NORM_CUTOFF < error.error_norm
    assert [case.loss_drops for case in shown.cases] == [True, True, True]
    assert [case.ent_drops for case in shown.cases] == [False, False, True]
    for case in shown.cases:
        p = torch.tensor([case.probabilities[word] for word in demo.WORDS], dtype=torch.float64)
        assert p.sum().item() == pytest.approx(1)
        p[demo.WORDS.index(case.target)] -= 1
        assert p.norm().item() == pytest.approx(case.error_norm, rel=1e-6)


def test_repeated_mistakes_are_found_by_error_norm_and_not_by_loss(shown):
    mle, chance, by_loss, by_norm, threshold = (outcome(shown, objective) for objective in demo.OBJECTIVES)
    assert mle.dropped == 0
    assert mle.precision is None
    assert by_norm.dropped == by_loss.dropped == chance.dropped == pytest.approx(0.1, abs=0.002)
    assert min(by_norm.precision, by_norm.recall, threshold.precision, threshold.recall) > 0.8
    assert max(by_loss.precision, by_loss.recall, chance.precision, chance.recall) < 0.2
    assert min(by_norm.p_right, threshold.p_right) > 0.95 > 0.9 > mle.p_right
    assert max(by_norm.nll, threshold.nll) < mle.nll < by_loss.nll


def test_random_mistakes_are_found_by_both(shown):
    mle, _, by_loss, by_norm, _ = (outcome(shown, objective, "random") for objective in demo.OBJECTIVES)
    assert min(by_loss.precision, by_norm.precision) > 0.8
    assert max(by_loss.nll, by_norm.nll) < mle.nll


def test_where_nothing_is_wrong_a_fraction_hurts_and_a_threshold_does_not(shown):
    mle, _, by_loss, by_norm, threshold = (outcome(shown, objective, "none") for objective in demo.OBJECTIVES)
    assert min(by_loss.nll, by_norm.nll) > mle.nll + 0.1
    assert threshold.dropped == 0
    assert threshold.nll == pytest.approx(mle.nll, rel=1e-6)
    assert by_norm.precision is by_norm.recall is None


def test_seeded(shown):
    threads = torch.get_num_threads()
    state = torch.get_rng_state()
    assert demo.train("ent_fraction(0.1)", "repeated").outcome == outcome(shown, "ent_fraction(0.1)")
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_the_picture_is_whole_and_small_and_a_second_run_replaces_it(shown):
    assert shown.picture.read_bytes().startswith(b"\x89PNG")
    assert shown.picture.stat().st_size < 150_000
    before = shown.picture.read_bytes()
    demo.draw(shown.cases, demo.suspects(demo.train("mle", "repeated")), shown.picture)
    assert shown.picture.read_bytes() == before
    assert [path.name for path in shown.picture.parent.iterdir()] == ["demo.png"]


def test_the_committed_picture():
    picture = ROOT / "docs" / "images" / "demo.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 150_000


def test_an_interrupted_picture_leaves_the_old_one(tmp_path):
    path = tmp_path / "demo.png"
    path.write_bytes(b"old")

    def interrupted():
        with demo._replacing(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]


@pytest.mark.usefixtures("short")
def test_the_verb_prints_three_tables_and_ends_with_the_picture(capsys, tmp_path):
    assert cli.main(["demo", "--output", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == str(tmp_path / "demo.png")
    assert "The capital of France is Madrid" in out
    assert out.count("ent_fraction(0.1)  ") == 2
    assert err == ""


@pytest.mark.usefixtures("short")
def test_without_matplotlib_the_tables_are_printed_all_the_same(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["demo", "--output", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "The capital of France is Madrid" in out
    assert err == "errornorm: the picture needs matplotlib: pip install errornorm[plot]\n"
    assert list(tmp_path.iterdir()) == []
    assert cli.main(["demo", "--output", str(tmp_path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["picture"] is None
    assert len(result["cases"]) == 3
    assert result["outcomes"][0]["objective"] == "ent_fraction(0.1)"
