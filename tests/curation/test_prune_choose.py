"""What goes is exactly the share that was asked for, the worst of it, and always the same."""

import math
from fractions import Fraction

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from errornorm import cutoffs
from errornorm.curation.prune import prune
from errornorm.curation.prune_edge import Edge, edge_of, edge_of_stream
from errornorm.shares import share_of
from tests.score_tables import random_rows, write

FRACTIONS = [0, 0.001, 0.01, 0.05, 0.1, 0.29, 0.3, 1 / 3, 0.5, 0.57, 0.7, 0.9, 0.999, 1, 1e-9]
VALUES = st.lists(
    st.one_of(st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.5, math.nan]), st.floats(width=32)), max_size=60
)  # many ties, infinities, NaN


def meant(fraction):
    return Fraction(fraction).limit_denominator(10**9)


@pytest.mark.parametrize("fraction", FRACTIONS)
def test_exact_shares_of_any_number(fraction):
    for total in [*range(200), 999, 1000, 1001, 12345, 10**9]:
        count = share_of(fraction, total)
        assert count <= meant(fraction) * total < count + 1


def worst(values, count):
    """By sorting: the highest, of equal ones the earlier."""
    order = sorted((i for i, v in enumerate(values) if not math.isnan(v)), key=lambda i: (-values[i], i))
    return sorted(order[:count])


@settings(max_examples=300, deadline=None)
@given(values=VALUES, count=st.integers(0, 70), cut=st.integers(1, 9))
def test_both_ways_to_the_edge_drop_the_same(values, count, cut):
    values = numpy.array(values, numpy.float64)
    want = worst(values.tolist(), count)
    assert numpy.flatnonzero(edge_of(values, count).drop(values)).tolist() == want
    pieces = [values[i : i + cut] for i in range(0, len(values), cut)]
    edge = edge_of_stream(lambda: pieces, lambda total: count)
    dropped = numpy.concatenate([numpy.zeros(0, bool), *(edge.drop(piece) for piece in pieces)])
    assert numpy.flatnonzero(dropped).tolist() == want


def test_as_in_training():
    rng = numpy.random.default_rng(0)
    for _ in range(50):
        values = rng.integers(0, 6, 40) / 4
        count = int(rng.integers(0, 41))
        mask = cutoffs.top(torch.tensor(values), count).mask
        assert edge_of(values, count).drop(values).tolist() == mask.tolist()


def test_a_large_stream():
    values = numpy.random.default_rng(0).normal(size=200_000).round(3).astype(numpy.float32).astype(float)
    pieces = numpy.array_split(values, 37)
    edge = edge_of_stream(lambda: pieces, lambda total: total // 10)
    dropped = numpy.concatenate([edge.drop(piece) for piece in pieces])
    assert dropped.sum() == 20_000
    assert values[dropped].min() >= values[~dropped].max()
    assert edge == Edge(edge.value, 0)


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    return write(tmp_path_factory.mktemp("scores"), random_rows(203, seed=1), part_rows=60)


AGGREGATES = {"mean": numpy.mean, "max": numpy.max, "first": lambda x: x[0], "sum": numpy.sum}


@pytest.mark.parametrize("how", ["", *AGGREGATES])
@pytest.mark.parametrize("name", ["nll", "error_norm", "entropy", "p_target", "margin"])
def test_every_score_of_texts(scores, name, how):
    done = prune(scores, by=f"{name}_{how}" if how else name, fraction=0.25)
    assert (done.units, done.dropped, done.kept, done.pruned) == (203, 50, 153, 50)
    assert done.by == f"{name}_{how or 'mean'}"
    rows = scores.table([name])[name].to_pylist()
    sign = -1 if name in ("p_target", "margin") else 1
    together = numpy.min if how == "max" and sign < 0 else AGGREGATES[how or "mean"]  # that of the worst token
    values = [float(together(numpy.array(row, numpy.float64))) for row in rows]
    table = done.table()
    assert numpy.flatnonzero(table["dropped"].to_numpy()).tolist() == worst([sign * v for v in values], 50)
    assert table["score"].to_pylist() == pytest.approx(values)
    stays = [v for v, gone in zip(values, table["dropped"].to_pylist(), strict=True) if not gone]
    assert done.cutoff == pytest.approx(min(stays) if sign < 0 else max(stays))


def test_the_share_above_the_cutoff(scores):
    done = prune(scores, by="above", fraction=0.1)
    values = scores.table(["above"])["above"].to_pylist()
    assert numpy.flatnonzero(done.table()["dropped"].to_numpy()).tolist() == worst(values, 20)


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("by", ["error_norm", "random"])
def test_exact_fractions_of_tables(tmp_path, fraction, by):
    for total in (1, 7, 100):
        table = write(tmp_path / str(total), random_rows(total))
        done = prune(table, by=by, fraction=fraction)
        assert done.dropped == done.pruned == math.floor(meant(fraction) * total)
        tokens = prune(table, by=by, fraction=fraction, unit="token")
        assert tokens.dropped == math.floor(meant(fraction) * tokens.units)
        assert tokens.units == table.meta["tokens"]
        assert (tokens.kept, tokens.pruned) == (total, 0)


def test_random_follows_from_the_seed_alone(tmp_path):
    rows = list(random_rows(150, seed=3))
    one, many = write(tmp_path / "one", rows), write(tmp_path / "many", rows, part_rows=11)
    for unit, column in (("sequence", "dropped"), ("token", "token_weights")):
        found = [
            prune(table, by="random", fraction=0.3, unit=unit, seed=seed).table()[column].to_pylist()
            for table, seed in ((one, 5), (many, 5), (one, 6))
        ]
        assert found[0] == found[1] != found[2]


def test_what_equals_a_threshold_is_not_above_it(tmp_path):
    scores = write(tmp_path, [{"text": "a b c d e f g h i j", "error_norm": [1.4] + [0.7] * 9}])
    for rule in ({"by": "above"}, {"by": "above", "unit": "source", "group_by": "length"}):
        assert prune(scores, threshold=0.1, **rule).dropped == 0  # though 0.1 of 32 bits is more than that of 64
    assert prune(scores, threshold=0.7, unit="token").dropped == 1
    assert prune(scores, threshold=1e300).dropped == 0


def test_thresholds(scores):
    for by, wrong in (("nll_max", lambda x, t: max(x) > t), ("p_target_first", lambda x, t: x[0] < t)):
        name = by.rpartition("_")[0]
        rows = scores.table([name])[name].to_pylist()
        done = prune(scores, by=by, threshold=0.5)
        assert done.table()["dropped"].to_pylist() == [wrong(row, 0.5) for row in rows]
        assert done.cutoff == 0.5
    tokens = prune(scores, by="error_norm", threshold=1.0, unit="token")
    norms = numpy.concatenate(scores.table(["error_norm"])["error_norm"].to_numpy())
    assert tokens.dropped == (norms > 1.0).sum() > 0
    equal = prune(scores, by="error_norm", threshold=float(norms.max()), unit="token")
    assert equal.dropped == 0  # above means above


def test_texts_without_a_score_stay_and_are_counted(tmp_path):
    empty = {"text": "a", "start": [], "end": [], "error_norm": []}
    rows = [empty, {"text": "a b", "error_norm": [0.5, 1.0]}, empty, {"text": "c", "error_norm": [0.1]}]
    table = write(tmp_path, rows)
    for fraction, want in ((0.5, [False, True, False, True]), (0.25, [False, True, False, False]), (1, [0, 1, 0, 1])):
        done = prune(table, fraction=fraction)
        assert done.table()["dropped"].to_pylist() == [bool(x) for x in want]
        assert done.unscored == 2
        assert done.kept + done.pruned == 4
    assert prune(table, by="random", fraction=1).dropped == 4


def test_nothing_at_all(tmp_path):
    for unit in ("sequence", "token"):
        done = prune(write(tmp_path, []), fraction=0.5, unit=unit)
        assert (done.records, done.units, done.dropped) == (0, 0, 0)


MISTAKES = {
    "neither": ({}, "give one of fraction"),
    "both": ({"fraction": 0.1, "threshold": 1.0}, "give one of fraction"),
    "percent": ({"fraction": 10}, "fraction=10 is a share: give a number from 0 to 1"),
    "negative": ({"fraction": -0.1}, "is a share"),
    "not a number": ({"fraction": math.nan}, "is a share"),
    "a text": ({"fraction": "0.1"}, "is a share"),
    "infinite": ({"threshold": math.inf}, "threshold=inf must be a finite number"),
    "unit": ({"fraction": 0.1, "unit": "sentence"}, "unknown unit 'sentence'"),
    "score": ({"fraction": 0.1, "by": "error_norn"}, "unknown score 'error_norn' .did you mean error_norm"),
    "of tokens": ({"fraction": 0.1, "by": "nll_max", "unit": "token"}, "by='nll_max' does not rank tokens"),
    "above tokens": ({"fraction": 0.1, "by": "above", "unit": "token"}, "by='above' does not rank tokens"),
    "random": ({"threshold": 0.1, "by": "random"}, "by='random' has no threshold"),
    "no text": ({"fraction": 0.1, "by": None}, "by=None must be the name of a score"),
    "seed": ({"fraction": 0.1, "seed": -1}, "seed=-1 must be a whole number from 0 on"),
    "no group": ({"fraction": 0.1, "unit": "source"}, "unit='source' needs group_by"),
    "a group": ({"fraction": 0.1, "group_by": "site"}, "unit='source' needs group_by"),
    "no such group": ({"fraction": 0.1, "unit": "source", "group_by": "site"}, "no record has the field 'site'"),
    "removed only": ({"fraction": 0.1, "removed": "x.jsonl"}, "removed is given without output"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_in_a_line(scores, mistake):
    options, message = MISTAKES[mistake]
    with pytest.raises(ValueError, match=message) as error:
        prune(scores, **options)
    assert "\n" not in str(error.value)


def sourced(folder):
    """Four sources: 1, 2, 3 and 4 records, with means 1.3, 0.9, 1.1 and 0.2; and one record without a source."""
    groups = {"a": [1.3], "b": [0.8, 1.0], "c": [1.1] * 3, "d": [0.1, 0.2, 0.2, 0.3]}
    rows = [{"text": "x", "error_norm": [v], "fields": {"site": {"name": k}}} for k, vs in groups.items() for v in vs]
    return write(folder, [*rows, {"text": "x", "error_norm": [0.0]}])


@pytest.mark.parametrize(
    ("fraction", "gone", "following"),
    [(0.05, [], "a"), (0.1, ["a"], "c"), (0.35, ["a"], "c"), (0.4, ["a", "c"], "b"), (0.6, ["a", "c", "b"], "d"),
     (1, ["a", "c", "b", "d", "(none)"], None)],
)  # fmt: skip
def test_whole_sources_as_long_as_they_fit(tmp_path, fraction, gone, following):
    done = prune(sourced(tmp_path), fraction=fraction, unit="source", group_by="site.name")
    assert [group.name for group in done.sources] == gone
    assert (done.next_source.name if done.next_source else None) == following
    assert done.pruned == sum(group.records for group in done.sources) <= fraction * 11
    assert done.units == 5
    assert done.dropped == len(gone)


def test_sources_above_a_threshold(tmp_path):
    done = prune(sourced(tmp_path), threshold=0.85, unit="source", group_by="site.name")
    assert [(group.name, group.records) for group in done.sources] == [("a", 1), ("c", 3), ("b", 2)]
    assert done.sources[2].score == pytest.approx(0.9)
    assert done.cutoff == 0.85


def test_random_sources_and_lengths(tmp_path, scores):
    names = {tuple(group.name for group in prune(
        sourced(tmp_path), by="random", fraction=0.6, unit="source", group_by="site.name", seed=seed
    ).sources) for seed in range(20)}  # fmt: skip
    assert len(names) > 3
    done = prune(scores, fraction=0.9, unit="source", group_by="length")
    assert all(group.name.endswith("words") for group in done.sources)


def test_spans_of_tokens(tmp_path):
    """Side by side they are one; a token without characters cannot be weighted, however bad it is."""
    text = "un chien court là-bas"
    row = {"text": text, "start": [0, 3, 6, 9, 15, 15, 21], "end": [2, 6, 8, 14, 16, 18, 21],
           "error_norm": [0.1, 1.2, 1.2, 0.3, 1.1, 1.3, 1.4]}  # fmt: skip
    done = prune(write(tmp_path, [row, {"text": "a b c", "error_norm": [1.3, 0.2, 1.25]}]), threshold=1, unit="token")
    assert done.table()["token_weights"].to_pylist() == [[[3, 8, 0], [15, 18, 0]], [[0, 1, 0], [4, 5, 0]]]
    assert (done.units, done.dropped, done.unscored) == (9, 6, 1)
    assert done.cutoff == 1


def test_reasons(tmp_path):
    from errornorm.curation.prune_choose import Rule, choose, choose_sources

    rows = [{"text": "x", "error_norm": [v], "p_target": [1 - v / 2]} for v in (1.25, 0.5, 0.5, 0.25)]
    table = write(tmp_path, rows)

    def reason(index, **options):
        rule = {"by": "error_norm", "fraction": None, "threshold": None, "unit": "sequence"} | options
        return choose(table, Rule(**rule)).reason(index)

    assert reason(0, fraction=0.25) == "error_norm_mean 1.25 > 0.5 (dropped 25 %)"
    assert reason(1, fraction=0.5) == "error_norm_mean 0.5, as some that stay (dropped 50 %)"
    assert reason(0, fraction=1) == "error_norm_mean 1.25 (dropped 100 %)"
    assert reason(0, threshold=1.0, by="error_norm_max") == "error_norm_max 1.25 > 1"
    assert reason(0, threshold=0.5, by="p_target") == "p_target_mean 0.375 < 0.5"
    assert reason(0, fraction=0.5, by="random") == "at random (dropped 50 %)"
    sites = sourced(tmp_path / "sites")
    told = choose_sources(sites, Rule("error_norm", 0.1, None, "source", "site.name"))
    assert told.reason(0) == "site.name a: error_norm_mean 1.3 > 1.1 (dropped 10 %)"
    close = write(tmp_path / "close", [{"text": "x", "nll": [v]} for v in (1.0000001, 1.0)])
    told = choose(close, Rule("nll", 0.5, None, "sequence")).reason(0)
    assert told == "nll_mean 1.0000001192092896 > 1 (dropped 50 %)"
