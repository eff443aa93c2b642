"""Scores that are known by hand, and the settings that they carry."""

import math
import random
import sys
import time

import pytest
from sacrebleu.metrics import BLEU, CHRF

from errornorm.evaluation.metrics import (
    COPIES,
    Score,
    bleu,
    chrf,
    copies,
    measure,
    rouge,
    share_of_copies,
    statistics,
)

REFERENCES = ["The house is green.", "She walks home today, as always.", "Nobody saw the old dog."]
OUTPUTS = ["The house is green.", "She goes home today, as ever.", "An old dog was seen."]
SOURCES = ["Das Haus ist gruen.", "Sie geht heute heim, wie immer.", "Niemand sah den alten Hund."]


def test_bleu_by_hand():
    """Precisions 4/5, 3/4, 2/3 and 1/2 of five words, as long as the reference."""
    score = bleu(["a b c d x"], ["a b c d e"])
    assert score.value == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    assert score.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_brevity_by_hand():
    assert bleu(["a b c d"], ["a b c d e"]).value == pytest.approx(100 * math.exp(1 - 5 / 4))


def test_as_sacrebleu_does():
    assert bleu(OUTPUTS, REFERENCES).value == BLEU().corpus_score(OUTPUTS, [REFERENCES]).score
    assert chrf(OUTPUTS, REFERENCES).value == CHRF().corpus_score(OUTPUTS, [REFERENCES]).score
    assert chrf(OUTPUTS, REFERENCES).signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")


def test_a_tokenizer_is_in_the_signature():
    assert "|tok:char|" in bleu(OUTPUTS, REFERENCES, "char").signature
    assert bleu(OUTPUTS, REFERENCES, "char").value > bleu(OUTPUTS, REFERENCES).value


@pytest.mark.parametrize("name", ["flores101", "spm", "spBLEU-1K", "13b"])
def test_tokenizers_that_are_not_offered(name):
    with pytest.raises(ValueError, match=f"unknown tokenizer '{name}'; there are 13a, .*, flores200"):
        bleu(OUTPUTS, REFERENCES, name)


def test_a_tokenizer_that_is_not_installed(monkeypatch):
    from sacrebleu.tokenizers import tokenizer_ja_mecab

    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    with pytest.raises(ImportError, match=r"^the tokenizer ja-mecab needs more: pip install sacrebleu\[ja\]$"):
        bleu(OUTPUTS, REFERENCES, "ja-mecab")


def test_rouge_by_hand():
    """Two sentences, in the other order: all words and bigrams inside of sentences match; across them, none."""
    scores = rouge(["Dogs bark. Cats sleep."], ["Cats sleep. Dogs bark."])
    assert scores["rouge1"].value == pytest.approx(100)
    assert scores["rouge2"].value == pytest.approx(100 * 2 / 3)
    assert scores["rougeLsum"].value == pytest.approx(100)  # 50 if the sentences were not split


def test_rouge_stems():
    assert rouge(["walked"], ["walking"])["rouge1"].value == pytest.approx(100)


@pytest.mark.parametrize("end", [". ", "! ", "? ", '." ', ".) ", "… ", ".\n", ".”  "])
def test_sentences_end_at_punctuation(end):
    scores = rouge([f"Dogs bark{end}Cats sleep"], ["Cats sleep\nDogs bark"])
    assert scores["rougeLsum"].value == pytest.approx(100)


def test_a_number_does_not_end_a_sentence():
    assert rouge(["3.5 dogs bark"], ["bark dogs 3.5"])["rougeLsum"].value < 100


def test_the_signature_of_rouge():
    import importlib.metadata

    version = importlib.metadata.version("rouge-score")
    for name, score in rouge(OUTPUTS, REFERENCES).items():
        assert score.signature.startswith("nrefs:1|case:lc|stem:porter|measure:f1|mean:sentences")
        assert score.signature.endswith(f"|version:rouge-score-{version}")
        assert ("sentences:punctuation" in score.signature) == (name == "rougeLsum")


@pytest.mark.parametrize(
    ("output", "source", "copied"),
    [
        ("The house is green.", "The house is green.", True),
        ("the house is GREEN", "The house is green.", True),
        ("the  house ,  is green .", "The house, is green.", True),
        ("a b c d x", "a b c d e", True),  # 4 of 5
        ("a b c x y", "a b c d e", False),  # 3 of 5
        ("a b c d", "a b c d e", True),  # 4 of 5
        ("a b c d e", "a b c d", True),  # 4 of 5, of the longer one
        ("a b c", "a b c d", False),  # 3 of 4
        ("e d c b a", "a b c d e", False),  # not in order
        ("b a c d e", "a b c d e", True),  # all but one in order
        ("a a a a a", "a b c d e", False),
        ("", "The house is green.", False),
        ("", "", False),
        (" . ", "...", False),
        ("The house is green.", "", False),
        ("STRASSE", "Straße", True),
        ("cafe\u0301", "café", True),
        ("这是绿色的房子", "这是绿色的屋子", True),  # 6 of 7 characters
        ("这是绿色的房子", "那是红色的汽车", False),
    ],
)
def test_copies(output, source, copied):
    assert copies(output, source) is copied


def test_exactly_four_fifths_whatever_the_length():
    for num in range(5, 200, 5):
        words = [f"w{i}" for i in range(num)]
        kept = num * 4 // 5
        changed = [*words[:kept], *("x" * (num - kept))]
        assert copies(" ".join(changed), " ".join(words)), num
        assert not copies(" ".join(["x", *changed[1:]]), " ".join(words)), num


def table(a, b):
    """The longest common subsequence, as in a textbook."""
    rows = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            rows[i + 1][j + 1] = rows[i][j] + 1 if x == y else max(rows[i][j + 1], rows[i + 1][j])
    return rows[-1][-1]


def test_copies_as_the_textbook_says():
    draw = random.Random(0)
    answers = set()
    for _ in range(500):
        a = draw.choices("abcdefgh", k=draw.randrange(1, 12))
        b = [draw.choice("abcdefgh") if draw.random() < 0.2 else word for word in a]
        b = [word for word in b if draw.random() < 0.95]
        expected = table(a, b) / max(len(a), len(b)) >= 0.8
        assert copies(" ".join(a), " ".join(b)) is expected
        answers.add(expected)
    assert answers == {True, False}


def test_share_of_copies():
    assert share_of_copies([*SOURCES, "x"], [*SOURCES, "y"]) == 0.75


def test_copies_are_found_fast():
    draw = random.Random(0)
    sources = [" ".join(str(draw.randrange(999)) for _ in range(30)) for _ in range(2000)]
    outputs = [source.replace("7", "8", 1) for source in sources]
    start = time.perf_counter()
    assert share_of_copies(outputs, sources) == 1
    assert time.perf_counter() - start < 1  # 2000 a second; a quiet machine does tens of thousands


def test_measure():
    values, signatures = measure(["copies", "rouge", "bleu", "chrf"], OUTPUTS, REFERENCES, SOURCES)
    assert list(values) == list(signatures) == ["bleu", "chrf", "rouge1", "rouge2", "rougeLsum", "copies"]
    assert Score(values["bleu"], signatures["bleu"]) == bleu(OUTPUTS, REFERENCES)
    assert Score(values["rouge2"], signatures["rouge2"]) == rouge(OUTPUTS, REFERENCES)["rouge2"]
    assert (values["copies"], signatures["copies"]) == (0, COPIES)
    assert measure(["copies"], SOURCES, REFERENCES, SOURCES)[0] == {"copies": 1}
    assert measure([], OUTPUTS, REFERENCES, SOURCES) == ({}, {})
    assert "|tok:intl|" in measure(["bleu"], OUTPUTS, REFERENCES, SOURCES, tokenize="intl")[1]["bleu"]


def test_perfect_and_worthless_outputs():
    perfect, _ = measure(["bleu", "chrf", "rouge"], REFERENCES, REFERENCES, SOURCES)
    assert perfect == pytest.approx(dict.fromkeys(perfect, 100))
    worthless, _ = measure(["bleu", "chrf", "rouge", "copies"], ["", "", ""], REFERENCES, SOURCES)
    assert worthless == dict.fromkeys(worthless, 0)


@pytest.mark.parametrize("score", [bleu, chrf, rouge])
def test_lists_that_do_not_fit(score):
    with pytest.raises(ValueError, match=r"^2 outputs and 1 references: give one for each$"):
        score(["a", "b"], ["a"])
    with pytest.raises(ValueError, match=r"^0 outputs"):
        score([], [])


def test_lists_that_do_not_fit_copies():
    with pytest.raises(ValueError, match=r"^3 outputs and 2 sources: give one for each$"):
        measure(["bleu"], OUTPUTS, REFERENCES, SOURCES[:2])
    with pytest.raises(ValueError, match=r"^1 outputs and 0 sources"):
        share_of_copies(["a"], [])
    with pytest.raises(ValueError, match=r"^0 outputs"):
        statistics(["bleu"], [], [], [])


def test_an_unknown_metric():
    with pytest.raises(ValueError, match=r"^unknown metric 'bleurt'; there are bleu, chrf, rouge, copies$"):
        measure(["bleurt"], OUTPUTS, REFERENCES, SOURCES)


@pytest.mark.parametrize(("module", "score"), [("sacrebleu.metrics.bleu", bleu), ("sacrebleu.metrics.chrf", chrf),
                                               ("rouge_score.rouge_scorer", rouge)])  # fmt: skip
def test_packages_that_are_missing(monkeypatch, module, score):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install errornorm\[train\]"):
        score(OUTPUTS, REFERENCES)
