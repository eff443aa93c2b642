import json
import math

import numpy
import pytest

from errornorm.cli import main
from errornorm.curation.summary import summarize
from errornorm.curation.sums import Sums, mean, quantile, ratio
from errornorm.scoring.table import CUTOFF
from tests.score_tables import random_rows, write


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    return write(tmp_path_factory.mktemp("summary") / "scores", random_rows(400, seed=3), part_rows=150)


def test_groups_add_up(scores):
    found = summarize(scores, group_by="source_name")
    assert sorted(row["group"] for row in found.groups) == ["books", "talks", "web"]
    assert sum(row["texts"] for row in found.groups) == found.whole["texts"] == 400
    assert sum(row["tokens"] for row in found.groups) == found.whole["tokens"] == scores.meta["tokens"]
    table = scores.table(["error_norm_mean", "error_norm", "fields"])
    values = numpy.array(table["error_norm_mean"].to_pylist())
    assert found.whole["error_norm_mean"] == pytest.approx(values.mean(), abs=1e-6)
    half = 1.966 * values.std(ddof=1) / math.sqrt(400)
    assert found.whole["error_norm_mean_high"] == pytest.approx(values.mean() + half, abs=1e-4)
    norms = numpy.concatenate(table["error_norm"].to_pylist())
    assert found.whole["tokens_above"] == pytest.approx((norms > 1).mean())
    one = next(row for row in found.groups if row["group"] == "web")
    mine = ["web" in json.loads(fields)["source_name"] for fields in table["fields"].to_pylist()]
    assert one["error_norm_mean"] == pytest.approx(values[mine].mean(), abs=1e-6)


def test_the_worst_comes_first(tmp_path):
    rows = [{"text": "a b", "error_norm": [0.2, 0.3], "fields": {"site": "good"}} for _ in range(30)]
    rows += [{"text": "a b", "error_norm": [0.9, 1.0 + i / 100], "fields": {"site": "bad"}} for i in range(30)]
    rows += [{"text": "a b", "error_norm": [1.4, 1.4], "fields": {"site": "one text"}}]
    rows += [{"text": "", "fields": {"site": "empty"}}]
    found = summarize(write(tmp_path / "scores", rows), group_by="site", by=["error_norm_max", "above"])
    assert [row["group"] for row in found.groups] == ["bad", "good", "one text", "empty"]
    single, empty = found.groups[2:]
    assert (single["error_norm_max"], single["error_norm_max_low"]) == (pytest.approx(1.4), None)
    assert (empty["error_norm_max"], empty["tokens_above"]) == (None, None)
    assert found.groups[0]["above"] == pytest.approx(29 / 60)
    assert found.table.column_names[0] == "group"


def test_by_length(scores):
    found = summarize(scores, group_by="length")
    assert {row["group"] for row in found.groups} <= {"up to 5 words", "6-10 words", "11-20 words"}


def test_one_pass_over_many_groups(tmp_path):
    rows = ({"text": "a b", "fields": {"id": number}} for number in range(3000))
    found = summarize(write(tmp_path / "scores", rows), group_by="id")
    assert len(found.groups) == 3000
    assert found.as_dict(worst=5)["num_groups"] == 3000
    assert len(found.as_dict(worst=5)["groups"]) == 5


def test_tables_in_memory(tmp_path):
    scores = write(tmp_path / "scores", random_rows(400, seed=3), cutoff=CUTOFF)
    expected = summarize(scores, group_by="source_name")
    for table in (scores.table(), scores.table().to_pandas()):
        found = summarize(table, group_by="source_name")
        assert (found.groups, found.noise.as_dict()) == (expected.groups, expected.noise.as_dict())


def test_one_text_has_no_intervals(tmp_path, capsys):
    folder = write(tmp_path / "scores", [{"text": "a b", "error_norm": [0.2, 0.3]}]).folder
    assert main(["summary", str(folder), "--json"]) == 0
    printed = capsys.readouterr().out
    assert "NaN" not in printed
    found = json.loads(printed)["noise"]["conflicts"]
    assert (found["low"], found["high"]) == (None, None)


def test_refusals(scores, monkeypatch):
    with pytest.raises(ValueError, match=r"no record has the field 'sorce_name' \(did you mean source_name\?\)"):
        summarize(scores, group_by="sorce_name")
    with pytest.raises(ValueError, match=r"unknown score 'error_nrm' \(did you mean error_norm\?\)"):
        summarize(scores, by=["error_nrm"])
    monkeypatch.setattr("errornorm.curation.summary.MOST_GROUPS", 10)
    with pytest.raises(ValueError, match="number has more than 10 values: choose a field that names sources"):
        summarize(scores, group_by="number")


def test_intervals_hold_the_truth():
    """Texts of few and many tokens, each with a rate of its own."""
    rounds, held, held_mean = 300, 0, 0
    for seed in range(rounds):
        random = numpy.random.default_rng(seed)
        tokens = random.integers(1, 60, size=50).astype(float)
        rates = random.beta(2, 6, size=50)
        high = random.binomial(tokens.astype(int), rates).astype(float)
        sums = Sums(["texts", "tokens", "high", "tokens*tokens", "high*high", "high*tokens", "x", "x*x"])
        values = {"texts": numpy.ones(50), "tokens": tokens, "high": high, "x": rates}
        for part in (slice(0, 20), slice(20, 50)):
            sums.add(["all"] * len(tokens[part]), {name: column[part] for name, column in values.items()})
        _, low, upper = ratio(sums.of(), "high", "tokens", "texts")
        held += low <= 0.25 <= upper
        _, low, upper = mean(sums.of("all"), "x", "texts")
        held_mean += low <= 0.25 <= upper
    assert 0.9 < held / rounds < 0.98
    assert 0.92 < held_mean / rounds < 0.98


def test_students_t():
    assert [round(quantile(n), 2) for n in (1, 4, 11, 20, 100)] == [12.71, 2.78, 2.2, 2.09, 1.98]


def test_command(scores, capsys):
    argv = ["summary", str(scores.folder), "--group-by", "source_name", "--worst", "2"]
    assert main(argv) == 0
    printed = capsys.readouterr().out
    assert "1 more groups" in printed
    assert "all" in printed
    assert main([*argv, "--json", "--by", "nll_max"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert len(made["groups"]) == 2
    assert made["settings"]["by"] == ["nll_max"]
    assert made["noise"]["sentences"]
    assert made["advice"]["sentences"]
    assert made["advice"]["objective"]


def test_command_says_what_is_wrong(scores, capsys):
    assert main(["summary", str(scores.folder), "--group-by", "sites"]) == 2
    assert "no record has the field 'sites'" in capsys.readouterr().err
    assert main(["summary", str(scores.folder), "--by", "loss"]) == 2
    assert main(["summary", str(scores.folder / "nowhere")]) == 3


def test_an_empty_table(tmp_path, capsys):
    scores = write(tmp_path / "scores", [])
    assert main(["summary", str(scores.folder)]) == 0
    assert "Too few texts" in capsys.readouterr().out
