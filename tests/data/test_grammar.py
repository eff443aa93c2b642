"""The captions: agreement, elision, and a judge that accepts every right translation and no other."""

import math
import random
from itertools import product

import pytest

from errornorm.data.grammar import ALONE, PEOPLE, PEOPLE_LIKE, THINGS, THINGS_LIKE, Caption, Clause, Someone, corpus


def noun(word, nouns=PEOPLE + THINGS):
    return next(n for n in nouns if n.one == word)


def like(word):
    return next(a for a in PEOPLE_LIKE + THINGS_LIKE if a.word == word)


def num_translations(caption):
    return math.prod(len(slot) for slot in caption._slots)


@pytest.mark.parametrize(
    ("word", "article", "adjective", "english", "french"),
    [
        ("man", "the", None, "the man", {"l'homme", "le monsieur", "le type"}),
        ("man", "two", None, "two men", {"deux hommes", "deux messieurs", "deux types"}),
        ("woman", "a", "big", "a big woman", {"une grande femme", "une femme énorme", "une grosse dame"}),
        ("boat", "three", "red", "three red boats", {"trois bateaux rouges", "trois barques écarlates"}),
        ("car", "a", "pretty", "a pretty car", {"une jolie voiture", "une auto charmante"}),
        ("car", "the", "black", "the black car", {"l'auto noire", "la voiture sombre"}),
        ("child", "the", "strange", "the strange child", {"l'enfant bizarre", "le gosse curieux"}),
        ("dog", "two", "strange", "two strange dogs", {"deux chiens curieux", "deux cabots étranges"}),
    ],
)
def test_agreement(word, article, adjective, english, french):
    someone = Someone(noun(word), article, like(adjective) if adjective else None)
    assert someone.english == english
    assert french <= set(someone.french)


def test_the_judge_accepts_every_translation_of_a_caption_and_nothing_else():
    run = next(v for v in ALONE if v.one == "runs")
    caption = Caption(Clause(Someone(noun("man"), "the"), run), Clause(Someone(noun("woman"), "a"), run))
    assert caption.english == "the man runs while a woman runs"
    every = {" ".join(parts) for parts in product(*caption._slots)}
    assert len(every) == num_translations(caption) == 3 * 4 * 9 * 4
    assert "l'homme court pendant qu'une femme est en train de courir" in every
    assert all(caption.is_translated_by(text) for text in every)
    for wrong in (
        "", "l'homme", "le homme court pendant qu'une femme court", "l'homme courent pendant qu'une femme court",
        "l'homme court pendant qu'une femme court la nuit", "l'homme court pendant que une femme court",
        "l'homme court tandis qu'un femme court", caption.english, "xl'homme court pendant qu'une femme court",
    ):  # fmt: skip
        assert not caption.is_translated_by(wrong)
    assert caption.is_translated_by("  l'homme  court pendant qu'une femme court ")


def test_the_corpus():
    pairs = corpus(5000)
    assert len({caption.english for caption, _ in pairs}) == 5000
    assert all(caption.is_translated_by(text) for caption, text in pairs)
    assert not any(caption.is_translated_by(caption.english) for caption, _ in pairs)
    counts = [num_translations(caption) for caption, _ in pairs]
    assert min(counts) > 10
    again = [text for _, text in corpus(5000)]
    assert again == [text for _, text in pairs]
    assert [text for _, text in corpus(5000, seed=1)] != again


def test_translations_differ_from_draw_to_draw():
    caption, _ = corpus(1)[0]
    rng = random.Random(0)
    drawn = {caption.translate(rng) for _ in range(50)}
    assert len(drawn) > 5
    assert all(caption.is_translated_by(text) for text in drawn)
