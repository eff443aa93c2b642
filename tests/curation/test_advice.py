import pytest

from errornorm.curation.advice import advise, describe
from errornorm.curation.conflicts import THRESHOLDS, Threshold
from errornorm.curation.noise_rate import Noise, Part
from errornorm.specs import objective

QUIET = tuple(Threshold(at, 0.01, 0.0) for at in THRESHOLDS)
LOUD = tuple(Threshold(at, 0.05, at - 0.9) for at in THRESHOLDS)


def noise(texts=1000, conflicts=0.0, thresholds=QUIET, copies=None, **parts):
    return Noise(texts, (conflicts, conflicts - 0.005, conflicts + 0.005), thresholds, copies, **parts)


def part(share, tokens=None, copies=None):
    return Part(share, share - 0.01, share + 0.01, share if tokens is None else tokens, copies, 3.0)


CASES = {
    "nothing": (noise(), "mle", None, "Nothing stands out"),
    "few": (noise(texts=20), "mle", None, "Score more texts"),
    "unfit": (noise(conflicts=0.4), None, None, "cannot judge"),
    "surprising": (noise(surprising=part(0.2)), "ent_fraction(0.1)", 0.2, "Prune 20% of the texts"),
    "a few": (noise(surprising=part(0.03)), "ent_fraction(0.03)", 0.03, "Prune 3% of the texts"),
    "uncertain": (noise(uncertain=part(0.3)), "ent_fraction(0.1)", 0.3, "by their mean entropy"),
    "all": (noise(surprising=part(0.1), uncertain=part(0.3)), "ent_fraction(0.1)", 0.1, "highest mean entropy"),
    "copies": (noise(easy=part(0.3, copies=0.9)), "ent_auto()", 0.3, "copies show at their first token"),
    "learnt": (noise(learnt=0.1), "ent_auto()", None, "Look at these texts"),
    "copies in sight": (noise(copies=0.15), "ent_auto()", 0.15, "copies show at their first token"),
    "a task": (noise(copies=0.6), "mle", None, "that seems to be the task"),
    "boilerplate": (noise(easy=part(0.3, copies=0.0)), "mle", None, "remove them by what they have in common"),
    "no context": (noise(easy=part(0.3)), "mle", None, "Do not prune by a mean"),
    "both": (noise(surprising=part(0.1), easy=part(0.3, copies=1.0)), "ent_fraction(0.1)", 0.1, "keeps the easy texts"),
    "words": (noise(conflicts=0.05, thresholds=LOUD), "ent_threshold(1.2)", None, "Noise of single words"),
    "shoulder": (noise(shoulder=0.2), "ent_threshold(1.3)", None, "Look at the texts"),
}


@pytest.mark.parametrize("case", CASES)
def test_advice(case):
    found, expected, fraction, text = CASES[case]
    advice = advise(found)
    assert advice.objective == expected
    assert advice.fraction == fraction
    assert text in " ".join(advice.sentences)
    if expected:
        objective(expected)  # it is one
    assert bool(advice.commands) == (fraction is not None)
    for command in advice.about({"format": "pairs", "path": "a.en", "pair": "a.fr"}).commands:
        assert command.endswith("-o clean.en --output-pair clean.fr")
    assert advice.as_dict()["sentences"] == list(advice.sentences)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (noise(texts=20), "Too few texts to estimate a noise rate: 20"),
        (noise(), "No part of the texts lies apart"),
        (noise(shoulder=0.21), "perhaps 21%"),
        (noise(surprising=part(0.2)), "About 20.0% of the texts (19.0% to 21.0%) surprise"),
        (noise(easy=part(0.3, copies=0.9)), "90% of them repeat their context"),
        (noise(uncertain=part(0.3)), "lie apart with a high entropy"),
        (noise(copies=0.04), "4.0% of the texts repeat their context"),
        (noise(copies=0.2, rate=0.3, surprising=part(0.1)), "about 30.0% of the texts in all"),
        (noise(learnt=0.07), "About 7.0% of the texts, or more, look like noise that the model has learnt"),
        (noise(conflicts=0.4), "far too sure of itself"),
        (noise(conflicts=0.4, surprising=part(0.3)), "more than they should: 40.0%"),
        (noise(conflicts=0.05), "more than they should: 5.0% (4.5% to 5.5%)"),
        (noise(conflicts=0.0), "no more than it expects"),
        (noise(conflicts=-0.05), "less than it expects"),
    ],
)
def test_description(found, text):
    assert text in " ".join(describe(found))


def test_every_sentence_ends():
    for found, *_ in CASES.values():
        for sentence in (*describe(found), *advise(found).sentences):
            assert sentence.endswith(".")
            assert len(sentence) < 300
