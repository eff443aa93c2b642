"""Corpora of a made-up model that knows its limits: what it gives to an entry is how often that entry comes."""

import math

import numpy
import pytest

from errornorm.curation.apart import FEWEST, peak, upper_part
from errornorm.curation.noise_rate import COLUMNS, estimate
from tests.score_tables import write

SIZE = 40  # of the vocabulary


def draw(random, num, kind):
    """Statistics of a text: clean, shuffled (nothing to do with the model), copied (all certain), foreign (nothing)."""
    sharp = random.gamma(2.0, 0.1 if kind == "foreign" else 1.5, size=(num, 1))
    logits = random.normal(size=(num, SIZE)) * sharp
    p = numpy.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    if kind == "copied":
        p = 0.001 / SIZE + 0.999 * (p == p.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
    target = (p.cumsum(1) > random.random((num, 1)) * (1 - 1e-9)).argmax(1)
    if kind == "shuffled":
        target = random.integers(SIZE, size=num)
    mine = p[numpy.arange(num), target]
    squares = (p**2).sum(1)
    return {
        "nll": -numpy.log(numpy.maximum(mine, 1e-12)), "p_target": mine,
        "error_norm": numpy.sqrt(numpy.maximum(0, squares - 2 * mine + 1)),
        "entropy": -(p * numpy.log(numpy.maximum(p, 1e-300))).sum(1),
    }  # fmt: skip


def corpus(folder, num, seed=0, **shares):
    random = numpy.random.default_rng(seed)
    rows = []
    kinds = [name for name, share in shares.items() for _ in range(round(share * num))]
    for kind in [*kinds, *["clean"] * (num - len(kinds))]:
        words = int(random.integers(6, 20))
        text = " ".join(f"w{i}" for i in range(words))
        context = text if kind == "copied" else "other words"
        rows.append({"text": text, "context": context, "fields": {"kind": kind}, **draw(random, words, kind)})
    random.shuffle(rows)
    return write(folder, rows)


def test_nothing_in_clean_text(tmp_path):
    found = estimate(corpus(tmp_path / "scores", 900))
    assert not found.visible
    assert found.share is None
    assert found.shoulder is None
    assert found.copies == 0
    assert found.rate is None
    low, high = found.conflicts[1:]
    assert low < 0 < high  # the model knows its limits
    assert all(abs(one.surplus) < 0.1 for one in found.thresholds)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_surprising_texts(tmp_path, share):
    found = estimate(corpus(tmp_path / "scores", 900, shuffled=share))
    assert found.surprising.share == pytest.approx(share, abs=0.05)
    assert found.surprising.low <= found.surprising.share <= found.surprising.high
    assert found.surprising.tokens == pytest.approx(share, abs=0.06)
    assert found.easy is None
    assert found.conflicts[1] > 0.01


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_easy_texts(tmp_path, share):
    found = estimate(corpus(tmp_path / "scores", 900, copied=share))
    assert found.easy.share == pytest.approx(share, abs=0.05)
    assert found.easy.copies > 0.9
    assert found.copies == pytest.approx(share, abs=0.001)
    assert found.surprising is None


def test_what_is_not_a_copy_is_not_noise_for_that(tmp_path):
    """A model that has learnt so many copies is surprised by all the others."""
    found = estimate(corpus(tmp_path / "scores", 900, copied=0.5, shuffled=0.5))
    assert found.surprising is None
    assert found.rate == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_copies_are_counted_where_no_part_lies_apart(tmp_path, share):
    rows = [
        {"text": "a b c d", "context": "a b c d" if i < share * 400 else "e f g h", **even(0.5, 4)} for i in range(400)
    ]
    found = estimate(write(tmp_path / "scores", rows))
    assert not found.visible
    assert found.rate == pytest.approx(share)


def test_extracts_are_no_copies(tmp_path):
    rows = [{"text": "a b c d", "context": "x a b y c d z w v u", **even(0.5, 4)} for _ in range(400)]
    found = estimate(write(tmp_path / "scores", rows))
    assert found.copies == 0
    assert found.rate is None


def even(p, num):
    norm, nll = math.sqrt(2) * (1 - p), -math.log(p)
    return {name: [x] * num for name, x in {"nll": nll, "p_target": p, "error_norm": norm, "entropy": 0.7}.items()}


def test_texts_that_are_certain_but_for_their_opening(tmp_path):
    rows = []
    for i in range(400):
        numbers = even(0.99 if i < 40 else 0.5, 6)
        p = 0.3 if i < 200 else 0.9
        numbers["nll"][0], numbers["error_norm"][0] = -math.log(p), math.sqrt(2) * (1 - p)
        rows.append({"text": "a b c d e f", "context": "g", **numbers})
    assert estimate(write(tmp_path / "scores", rows)).learnt == pytest.approx(0.1, abs=0.01)


def test_a_model_that_is_certain_of_everything(tmp_path):
    found = estimate(write(tmp_path / "scores", [{"text": "a b c d e f", "context": "g", **even(1.0, 6)}] * 400))
    assert found.learnt == 0
    assert found.conflicts == (0, 0, 0)
    assert not found.visible


def test_uncertain_texts(tmp_path):
    found = estimate(corpus(tmp_path / "scores", 900, foreign=0.3))
    assert found.uncertain.share == pytest.approx(0.3, abs=0.05)
    assert list(found.parts) == ["uncertain"]
    assert found.share == found.uncertain.share


def test_both(tmp_path):
    scores = corpus(tmp_path / "scores", 2000, shuffled=0.2, copied=0.2)
    found = estimate(scores)
    assert found.surprising.share == pytest.approx(0.2, abs=0.05)
    assert found.easy.share == pytest.approx(0.2, abs=0.05)
    assert found.rate == pytest.approx(0.4, abs=0.05)
    table = scores.table([*COLUMNS, "fields"])
    chances = found.chances(table)
    for kind, expected in (("clean", 0), ("shuffled", 1), ("copied", 1)):
        mine = [kind in fields for fields in table["fields"].to_pylist()]
        assert chances[mine].mean() == pytest.approx(expected, abs=0.1), kind


SHAPES = {
    "normal": lambda random, num: random.normal(size=num),
    "heavy tails": lambda random, num: random.standard_t(4, num),
    "a sharp peak": lambda random, num: random.laplace(size=num),
    "skewed": lambda random, num: random.gamma(3, size=num),
    "skewed to the left": lambda random, num: -random.gamma(3, size=num),
    "flat": lambda random, num: random.random(num),
    "of short and long texts": lambda random, num: random.normal(size=num) / numpy.sqrt(random.integers(2, 40, num)),
}


@pytest.mark.parametrize("num", [300, 3000])
@pytest.mark.parametrize("shape", SHAPES)
def test_one_peak_of_any_shape_is_no_noise(shape, num):
    found = 0
    for seed in range(5 if (shape, num) != ("flat", 300) else 0):  # a few flat numbers have valleys by chance
        random = numpy.random.default_rng(seed)
        values = SHAPES[shape](random, num)
        found += upper_part(values)[0] is not None
        found += shape != "flat" and any(peak(values, random, side) is not None for side in ("below", "above"))
    assert found == 0


def test_too_few(tmp_path):
    found = estimate(corpus(tmp_path / "scores", FEWEST - 1, shuffled=0.5))
    assert not found.visible
    assert found.texts == FEWEST - 1


def test_texts_without_tokens_and_contexts(tmp_path):
    scores = write(tmp_path / "scores", [{"text": ""}, {"text": "a b c"}] * 5)
    found = estimate(scores)
    assert found.texts == 5
    assert found.copies is None
    assert numpy.isnan(found.chances(scores.table(COLUMNS))[0])


def test_no_rows(tmp_path):
    found = estimate(write(tmp_path / "scores", []))
    assert (found.texts, found.visible, found.conflicts) == (0, False, None)


def test_only_a_sample_of_many_is_kept(tmp_path, monkeypatch):
    from errornorm.curation import noise_rate

    monkeypatch.setattr(noise_rate, "MOST", 500)
    found = estimate(corpus(tmp_path / "scores", 900, shuffled=0.3))
    assert 400 < found.texts < 600
    assert found.surprising.share == pytest.approx(0.3, abs=0.08)


def test_squared_norm_from_the_error_norm():
    p = numpy.array([0.7, 0.2, 0.1])
    norm = math.sqrt((1 - 0.2) ** 2 + 0.7**2 + 0.1**2)
    assert norm**2 + 2 * 0.2 - 1 == pytest.approx((p**2).sum())
