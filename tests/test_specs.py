"""Methods from text: parsed against the signature, never evaluated."""

import copy
import pickle
import random
import re

import pytest

from errornorm import METHODS, ent_fraction, objective, tailr


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("ent_fraction", ent_fraction()),
        ("ent_fraction()", ent_fraction()),
        ("  ent_fraction(fraction=0.1, start=500) ", ent_fraction(0.1, start=500)),
        ("ent_fraction(0.2, 'sequence', \"running\")", ent_fraction(0.2, "sequence", "running")),
        ("ent_fraction(1)", ent_fraction(1)),
        ("tailr(1e-7, floor=.2)", tailr(1e-7, 0.2)),
    ],
)
def test_text_and_call_are_the_same(text, want):
    assert repr(objective(text)) == repr(want)


@pytest.mark.parametrize("name", METHODS)
def test_every_objective_says_the_call_that_makes_it_again(name):
    made = METHODS[name]()
    assert repr(objective(repr(made))) == repr(made)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ent_fracton(0.1)", r"unknown method 'ent_fracton' \(did you mean ent_fraction\?\)"),
        ("", "not of the form"),
        ("ent_fraction(0.1", "column"),
        ("ent_fraction(fracton=0.1)", r"no parameter 'fracton' \(did you mean fraction\?\)"),
        ("ent_fraction(0.1, 'token', 'batch', 5)", "too many positional"),
        ("ent_fraction(0.1, fraction=0.2)", "multiple values"),
        ("ent_fraction(fraction=0.1, fraction=0.2)", "column 28: fraction is given twice"),
        ("ent_fraction(fraction='a')", r"fraction='a' must be a number"),
        ("ent_fraction(start=0.5)", r"start=0.5 must be a whole number"),
        ("ent_fraction(start=True)", r"start=True must be a whole number"),
        ("ent_fraction(unit=3)", "unit=3 must be a quoted word"),
        ("ent_fraction(unit='word')", "unit='word' is not one of token, sequence"),
        ("ent_fraction(scope='rank')", "scope='rank' is not one of batch, global, running"),
        ("ent_fraction(fraction=1.1)", "fraction=1.1 is a share"),
        ("ent_fraction(start=-1)", "start=-1 is an optimizer step"),
        ("ent_fraction(keep_first=-1)", "keep_first=-1"),
        ("ent_fraction(max_dropped=2.0)", "max_dropped=2.0 is a share"),
        ("ent_threshold(1.5)", "can never separate anything"),
        ("loss_truncation(window=0)", "window=0"),
        ("loss_truncation(window=5)", "min_count=1000 must lie between"),
        ("tailr(gamma=-0.1)", "gamma=-0.1 is a share"),
        ("eaft(alpha=-1.0)", "alpha=-1.0"),
        ("focal(gamma=-1.0)", "gamma=-1.0"),
        ("generalized_ce(q=0.0)", "q=0.0"),
        ("ent_fraction(fraction=__import__('os').getpid())", "column 23: a value must be a number or a quoted word"),
        ("ent_fraction(**{'fraction': 0.1})", r"\*\* is not allowed"),
        ("__import__('os')", "unknown method '__import__'"),
        ("errornorm.mle()", "not of the form"),
        ("[mle]", "not of the form"),
        ("mle(" + "-" * 900 + "1)", "not of the form|a number or a quoted word|mle"),
        ("ent_fraction({[]:1})", "a number or a quoted word"),
        ("ent_fraction(" + "0.1," * 500 + ")", "at most 1000 characters"),
        ("mle\0", "not of the form"),
        (None, "an objective is a text"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text, message):
    with pytest.raises(ValueError, match=message) as error:
        objective(text)
    assert "\n" not in str(error.value)


def test_nothing_is_evaluated(tmp_path):
    trap = tmp_path / "trap"
    with pytest.raises(ValueError, match="a number or a quoted word"):
        objective(f"ent_fraction(fraction=open({str(trap)!r}, 'w'))")
    assert not trap.exists()


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("  ent_fracton(0.1)", 3),
        ("ent_fraction(0.1, fracton=0.2)", 19),
        ("ent_fraction('é', fraction=0.2)", 19),
        ("ent_fraction('é', unit=x)", 24),
        ("ent_fraction(0.1, 'token', 'batch', 5)", 37),
        ("ent_fraction(0.1, 'word')", 19),
        ("ent_fraction(0.1,\n unit='word')", 20),
        ("ent_fraction(0.1,\r\n unit=x)", 26),
        ("loss_truncation(window=5)", 1),  # what is wrong is a default
        ("mle\0", 4),
        ("mle(" + "1, " * 400 + ")", 1001),
        (f"ent_fraction(1{'0' * 400})", 14),
        (f"mle(start=-1{'0' * 400})", 5),
    ],
)
def test_the_column_is_that_of_the_mistake(text, column):
    with pytest.raises(ValueError, match=f"column {column}: "):
        objective(text)


def fuzzed(dice, mark):
    """The text of a method, damaged, with values that it cannot have, or with code in it."""
    text = repr(METHODS[dice.choice(list(METHODS))]())
    code = [f"__import__('os').mkdir({mark!r})", f"open({mark!r}, 'w')", f"(lambda: open({mark!r}, 'w'))()",
            f"[open({mark!r}, 'w') for _ in 'a']",
            f"f'{{open({mark!r}, chr(119))}}'", f"exec('open({mark!r}, \\'w\\')')",
            f"(x := open({mark!r}, 'w'))", f"print(file=open({mark!r}, 'w'))"]  # fmt: skip
    odd = [*"()[]{},=.'\"\\ \n\r\t\0#:;*-+@é日\u2028\ufeff\ud800", "1e999", "-1", "9" * 400, "nan", "None", "True",
           "**", "'auto'", "1j", "0x1F", "1_0", "b'a'", "start=", "lambda", "\\d", "[" * 200, "-" * 300, "...",
           *code]  # fmt: skip
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(text) + 1)
        spots = [i + 1 for i, c in enumerate(text) if c in "=(,"]
        if spots and dice.random() < 0.5:  # in place of a value
            at = dice.choice(spots)
            end = next((i for i in range(at, len(text)) if text[i] in ",)"), len(text))
        else:
            end = at + dice.choice([0, 0, 1, 5])
        text = text[:at] + dice.choice([*odd, ""]) + text[end:]
    return dice.choice([text, text, text, f" {text}", dice.choice(code)])


@pytest.mark.recorded
def test_a_thousand_texts(tmp_path, tally):
    mark, dice, refused = tmp_path / "mark", random.Random(0), 0
    with tally("objectives", "input", "damaged texts of objectives, some with code in them; a case fails if anything "
               "but an error with its column is raised, or if code runs") as suite:  # fmt: skip
        for _ in range(1000):
            text = fuzzed(dice, str(mark))
            with suite.case(repr(text)):
                try:
                    assert objective(text).spec
                except ValueError as error:
                    refused += 1
                    places = re.findall(r"column (\d+)", str(error))
                    assert places, error  # noqa: PT017
                    assert 1 <= int(places[0]) <= len(text) + 1, error  # noqa: PT017
                    assert "\n" not in str(error)  # noqa: PT017
                assert not mark.exists()
    assert refused > 700


def test_numbers_are_taken_in_the_type_of_the_parameter():
    assert repr(METHODS["focal"](2)) == repr(METHODS["focal"](2.0)) == "focal(gamma=2.0, start=0)"
    np = pytest.importorskip("numpy")
    assert repr(ent_fraction(np.float64(0.1), start=np.int64(5))) == repr(ent_fraction(0.1, start=5))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ent_fraction", {"start": 0.5}),
        ("ent_fraction", {"start": True}),
        ("ent_fraction", {"start": "5"}),
        ("ent_fraction", {"fraction": True}),
        ("ent_fraction", {"fraction": float("nan")}),
        ("ent_fraction", {"keep_first": 1.5}),
        ("loss_truncation", {"window": 10.5}),
        ("random_truncation", {"seed": 0.5}),
        ("focal", {"gamma": float("inf")}),
        ("eaft", {"alpha": None}),
    ],
)
def test_nonsense_is_refused(name, arguments):
    with pytest.raises(ValueError, match="must be a"):
        METHODS[name](**arguments)


def test_an_objective_is_its_text():
    made = objective("ent_fraction(0.2, start=500)")
    assert copy.deepcopy(made) is made
    with pytest.raises(TypeError, match=r"ent_fraction: an objective cannot be pickled: detach\(\) .* keep its text"):
        pickle.dumps(made)
    assert repr(objective(repr(made))) == repr(made)
