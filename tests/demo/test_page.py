"""The page: numbers as given, texts escaped, nothing from elsewhere, the same bytes each time."""

import base64
import hashlib
import math
import random
import re
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise

import pytest

from errornorm.data.grammar import corpus
from errornorm.demo import page
from errornorm.demo.headline import headline
from errornorm.demo.page import render
from errornorm.demo.parts import Curve, Page, Row, Sample, Sentence, Token
from tests.demo.html_tree import tree

NASTY = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)> &amp; {{ 7 * 7 }}"
LIKELIHOOD = Row("MLE", "mle", 0.912, 0.0, 52.31, 8.12, 0.031, 1.0, 27.64)
OTHER = Row("TaiLr", "tailr(1e-05)", 0.921, 0.068, 52.6, 11.2, 0.018, 0.91, 22.3)
TRUNCATED = Row("ENT", "ent_fraction(0.1, start=200)", 0.968, 0.972, 55.1, 56.44, 0.0, 0.002, 24.6)
ROWS = [LIKELIHOOD, OTHER, TRUNCATED]


def example(num=3, judged=True):
    rng = random.Random(0)
    rows = ROWS if judged else [replace(row, correct_greedy=None, correct_beam=None) for row in ROWS]
    samples, sentences = [], []
    for caption, french in corpus(num):
        good = caption.translate(rng)
        outputs = {"MLE": caption.english, "TaiLr": "", "ENT": good}
        verdict = "correct" if judged else "other"
        samples.append(Sample(caption.english, french, outputs, {"MLE": "copy", "TaiLr": "wrong", "ENT": verdict}))
        copied = [Token(w, 1.2 if k == 0 else 0.1, 1.5, k == 0, "un", True) for k, w in enumerate(good.split())]
        sentences.append(Sentence(caption.english, copied, "untranslated"))
        sentences.append(
            Sentence(caption.english, [Token(w, 0.7, 1.1, False, w, False) for w in good.split()], "clean")
        )
    steps = list(range(10, 110, 10))
    curves = [
        Curve(row.method, steps, [8 / (1 + s) + k for s in steps], [1 - k / 10] * 10, [1 + k / 5] * 10)
        for k, row in enumerate(rows)
    ]
    settings = {"Seed": "0", "BLEU signature": "nrefs:1|case:mixed", "Beams": "5"}
    return Page("Copies in the data", rows, curves, samples, sentences, settings, "errornorm demo", 83.2)


def cells(root):
    return [[cell.one(class_="value").text for cell in row.all("td")]
            for row in root.one("table", class_="results").one("tbody").all("tr")]  # fmt: skip


def test_the_results_are_the_numbers_given_with_one_decimal():
    root = tree(render(example()))
    assert cells(root) == [
        ["0.0", "91.2", "100.0", "3.1", "8.1", "52.3", "27.6"],
        ["6.8", "92.1", "91.0", "1.8", "11.2", "52.6", "22.3"],
        ["97.2", "96.8", "0.2", "0.0", "56.4", "55.1", "24.6"],
    ]
    results = root.one("table", class_="results")
    assert [row.one("th").one(class_="name").text for row in results.one("tbody").all("tr")] == ["MLE", "TaiLr", "ENT"]
    assert [bar.one("span").attributes["style"] for bar in results.all(class_="bar")][:2] == [
        "width:0.0%",
        "width:100.0%",
    ]
    assert "nrefs:1|case:mixed" in root.one("section", id="results").text


def test_without_a_judge_there_is_no_column_of_right_translations():
    root = tree(render(example(judged=False)))
    assert cells(root)[0] == ["100.0", "3.1", "8.1", "52.3", "27.6"]
    assert "Right" not in root.one("table", class_="results").text
    assert "not a copy" in root.one("section", id="outputs").text


def test_the_best_number_is_marked_in_words_and_not_where_all_are_equal():
    def best(rows):
        table = tree(render(replace(example(), rows=rows))).one("table", class_="results")
        return [["(best)" in cell.text for cell in row.all("td")] for row in table.one("tbody").all("tr")]

    assert best(ROWS) == [[False] * 7, [False] * 7, [True] * 6 + [False]]
    same = [replace(row, copies_beam=0.1, bleu_beam=20.01 + k / 100) for k, row in enumerate(ROWS)]
    assert [row[2:5:2] for row in best(same)] == [[False, False]] * 3
    two = [replace(LIKELIHOOD, copies_beam=0.0020001), OTHER, TRUNCATED]  # look the same: both are best
    assert [row[2] for row in best(two)] == [True, False, True]


def test_one_h1_headings_in_order_and_names_for_all_that_has_no_text():
    root = tree(render(example()))
    levels = [int(node.tag[1]) for node in root.all() if re.fullmatch(r"h\d", node.tag)]
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert root.one("html").attributes["lang"] == "en"
    for drawing in root.all("svg"):
        assert drawing.attributes.get("aria-hidden") == "true" or drawing.attributes["aria-label"]
    ids = [node.attributes["id"] for node in root.all() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    for node in root.all():
        for name in ("href", "aria-labelledby"):
            assert name not in node.attributes or node.attributes[name].removeprefix("#") in ids
    assert all(header.attributes.get("scope") for header in root.all("th"))


def test_nothing_comes_from_elsewhere():
    text = render(example())
    assert not re.search(r"https?:|//|url\(|@import|@font-face", text.replace("// One stop", ""))
    root = tree(text)
    assert not [n for n in root.all() if {"src", "srcset", "data", "action"} & n.attributes.keys() or n.tag == "link"]
    policy = root.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]
    assert policy.startswith("default-src 'none'")


def test_the_policy_admits_the_one_script_there_is():
    root = tree(render(example()))
    digest = base64.b64encode(hashlib.sha256(root.one("script").text.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in root.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]


def test_every_text_from_outside_is_escaped():
    good = example()
    names = {row.method: f"{row.method} {NASTY[:30]}" for row in ROWS}
    nasty = Page(
        title=NASTY,
        rows=[replace(row, method=names[row.method]) for row in ROWS],
        curves=[replace(curve, method=names[curve.method]) for curve in good.curves],
        samples=[
            Sample(NASTY, NASTY, dict.fromkeys(names.values(), NASTY), dict.fromkeys(names.values(), "wrong")),
        ],
        sentences=[Sentence(NASTY, [Token(NASTY[:50], 1.0, 1.0, True, NASTY[:50], True)], "untranslated")],
        settings={NASTY[:50]: NASTY, "BLEU signature": NASTY},
        command=NASTY,
        seconds=1.0,
    )
    text = render(nasty)
    root = tree(text)
    assert len(root.all("script")) == 1
    assert not root.all("img")
    assert not [node for node in root.all() if any(name.startswith("on") for name in node.attributes)]
    assert root.one("h1").text == NASTY
    assert root.one("section", id="outputs").one("h3").text == NASTY
    assert root.one("ol", class_="tokens").one(class_="word").text == NASTY[:50]


def test_texts_of_all_kinds_have_a_place():
    words = ["שלום עולם", "", " \n", "w" * 1000, "a\x00b\x1b[0m", "\ud800", "\u202eevil", "e\u0301 👩\u200d🚀"]
    outputs = [Sample(word, word, {"ENT": word}, {"ENT": "wrong"}) for word in words]
    tokens = [Token(word, 0.5, 1.0, False, word, False) for word in words]
    root = tree(render(replace(example(), samples=outputs, sentences=[Sentence("x", tokens, "clean")])))
    root_text = root.text
    assert not re.search("[\x00\x1b\u202e\ud800]", root_text)
    shown = [row.all("td")[0] for card in root.all("table", class_="outputs") for row in card.one("tbody").all("tr")]
    assert [cell.text for cell in shown][:3] == ["שלום עולם", "(empty)", "(empty)"]
    assert all(cell.attributes["dir"] == "auto" for cell in shown)
    assert shown[3].text == "w" * 399 + "…"
    assert shown[7].text == "e\u0301 👩\u200d🚀"
    assert [word.text for word in root.one("ol", class_="tokens").all(class_="word")][1:3] == ["␣", "␣"]
    assert "overflow-wrap: anywhere" in root.one("style").text


def test_a_page_of_very_much_is_smaller_than_two_megabytes():
    names = [f"{k:02}" + '"' * 100 for k in range(12)]
    rows = [replace(TRUNCATED, method=name, spec="&" * 200) for name in names]
    steps = list(range(20_000))
    wave = [1 + math.sin(s) for s in steps]
    long = '"' * 5000
    sample = Sample(long, long, dict.fromkeys(names, long), dict.fromkeys(names, "wrong"))
    sentence = Sentence(long, [Token(long, 1.0, 1.0, True, long, True)] * 500, "untranslated")
    full = Page(long, rows, [Curve(n, steps, wave, wave, wave) for n in names], [sample] * 500, [sentence] * 500,
                {"BLEU signature": long, "Seed": "0"}, long, 1e6)  # fmt: skip
    text = render(full)
    assert len(text.encode()) < 2_000_000
    assert "12 of 500 are here" in text
    assert "10 of 500 examples are here" in text
    assert "and 440 more" in text


def test_the_same_input_gives_the_same_bytes():
    assert render(example()).encode() == render(example()).encode()
    assert len(render(example()).encode()) < 100_000


def test_it_is_complete_without_javascript():
    root = tree(render(example()))
    assert "hidden" in root.one(class_="filter").attributes
    assert not [card for card in root.all(class_="card") if "hidden" in card.attributes]
    assert [button.attributes["value"] for button in root.all("button")] == ["all", "copy", "wrong"]
    section = root.one("section", id="outputs")
    assert {card.attributes["data-verdicts"] for card in section.all(class_="card")} == {"copy wrong correct"}


def test_tokens_say_what_colours_show():
    first, second = tree(render(example(1))).all("ol", class_="tokens")
    token = first.all("li")[0]
    assert {"dropped", "noisy"} <= set(token.attributes["class"].split())
    assert token.attributes["tabindex"] == "0"
    assert token.one(class_="word").attributes["class"] == "word s6"
    assert "error norm 1.20, loss 1.50, left out, noise. The model says un." in token.one(class_="tip").text
    assert "dropped" not in second.all("li")[0].attributes["class"]


@pytest.mark.parametrize(
    ("norm", "shade"), [(0.0, 0), (-1e-7, 0), (0.17, 0), (0.18, 1), (1.0, 5), (math.sqrt(2), 7), (1.41422, 7)]
)
def test_shades_divide_the_range_of_the_norm_evenly(norm, shade):
    assert page._shade(norm) == shade


def test_sections_without_content_are_left_out():
    root = tree(render(replace(example(), curves=[], samples=[], sentences=[], settings={})))
    assert [node.attributes["id"] for node in root.all("section")] == ["results", "why", "settings", "yours"]
    assert {a.attributes["href"] for a in root.one("nav").all("a")} == {"#results", "#why", "#settings", "#yours"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": []}, "0 methods: give 1 to 12"),
        ({"rows": [TRUNCATED] * 2}, "two rows for 'ENT'"),
        ({"rows": [LIKELIHOOD, replace(TRUNCATED, correct_beam=None)]}, "judge all methods or none"),
        ({"rows": [replace(TRUNCATED, bleu_beam=math.nan)]}, "bleu_beam=nan is not between 0 and 100"),
        ({"rows": [replace(TRUNCATED, copies_beam=43.0)]}, "copies_beam=43.0 is not between 0 and 1"),
        ({"rows": [replace(TRUNCATED, seconds=math.inf)]}, "seconds=inf"),
        ({"curves": [Curve("ENT", [1, 2], [1.0], [1.0, 1.0], [1.0, 1.0])]}, "2 steps but 1 values"),
        ({"samples": [Sample("a", "b", {"ENT": "c"}, {})]}, "not of the same methods"),
        ({"samples": [Sample("a", "b", {"LOL": "c"}, {"LOL": "copy"})]}, "no row for the method 'LOL'"),
        ({"sentences": [Sentence("a", [Token("b", 1.5, 1.0, False, "c", False)], "clean")]}, "no error norm is 1.5"),
    ],
)
def test_what_cannot_be_is_refused(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        render(replace(example(), **change))


def _luminance(colour):
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_what_is_behind_them(scheme):
    css = files("errornorm.demo").joinpath("page.css").read_text(encoding="utf-8")
    block = css.split(f"color-scheme: {scheme};")[1].split("}")[0]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))

    def contrast(a, b):
        low, high = sorted((_luminance(colours[a]), _luminance(colours[b])))
        return (high + 0.05) / (low + 0.05)

    for text in ("ink", "quiet", "link", "good", "copy", "wrong", "mle", "ent", "m0", "m1", "m2", "m3"):
        for behind in ("paper", "card"):
            assert contrast(text, behind) >= 4.5, (text, behind)
    assert contrast("quiet", "track") >= 4.5
    for shade in range(page.SHADES):
        assert contrast("low-text" if shade < 5 else "high-text", f"s{shade}") >= 4.5, shade
    for bar in ("good-bar", "copy-bar"):
        assert contrast(bar, "track") >= 3


def test_the_headline_stands_on_top_and_the_story_only_where_it_happened():
    text = tree(render(example())).one("header").text
    assert headline(ROWS) in text
    assert "What happened" in text
    other = replace(example(), rows=[LIKELIHOOD, OTHER], curves=[], samples=[])
    assert "What happened" not in tree(render(other)).text
