"""The page in a real browser."""

import numpy
import pytest

from errornorm.reporting.build import report
from errornorm.scoring.rank import of_tokens
from errornorm.scoring.table import Scores
from tests.reporting.chromium import FOUND, MISSING, Tab
from tests.score_tables import bad_line, random_rows, write

pytestmark = pytest.mark.skipif(FOUND is None, reason=MISSING)
RTL = {"text": "שלום עולם גדול", "context": "hello wide world", "error_norm": [0.2, 1.1, 1.4],
       "fields": {"source_name": "books", "noise": "none"}}  # fmt: skip
LONG = {"text": " ".join(f"w{k}" for k in range(900)), "error_norm": [0.1] * 700 + [1.39] + [0.1] * 199,
        "fields": {"source_name": "web", "noise": "none"}}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    rows = [RTL, LONG, *random_rows(2500, 4)]
    scores = write(folder / "scores", rows, quarantine=[bad_line(3), bad_line(8, "not UTF-8 (byte 0xff)", "\x1b[31m")])
    report(scores, folder / "report.html", group_by="source_name")
    return folder


@pytest.fixture
def tab(chromium, made):
    one = Tab(chromium)
    one.goto(made / "report.html")
    yield one
    assert one.complaints() == []
    assert one.requests() == []
    one.close()


@pytest.fixture(scope="module")
def norms(made):
    return of_tokens(Scores.open(made / "scores").table(["error_norm"]), "error_norm")[0]


def set_level(tab, level):
    tab.choose("#slider", str(level))


def state(tab):
    """Of each token on the screen: is it dropped, and its error norm as it is in the data."""
    return tab.run(
        "(() => { const rows = JSON.parse(document.getElementById('data').textContent).sentences;"
        " return [...document.querySelectorAll('#list .tok')].map((t) =>"
        " [t.classList.contains('x'), t.classList.contains('y'), t.classList.contains('r'),"
        " rows[t.dataset.s][4][t.dataset.t]]); })()"
    )


def test_the_slider_shows_exact_shares_and_marks_tokens(tab, norms):
    for level in (0, 137, 200, 260, 283):
        set_level(tab, level)
        count = int((norms > level / 200).sum())
        assert tab.run("document.getElementById('share-tokens').title") == f"{count:,} of {len(norms):,}"
        for dropped, yellow, red, norm in state(tab):
            assert dropped == (norm > level * 50)
            assert (yellow, red) == (10000 < norm <= 13000, norm > 13000)
    assert tab.text("#level") == "1.415"
    assert tab.text("#share-tokens") == "0 %"
    assert "0 % of tokens dropped" in tab.run("document.getElementById('slider').getAttribute('aria-valuetext')")


def test_the_slider_answers_the_keyboard_and_the_chart_the_mouse(tab):
    tab.run("document.getElementById('slider').focus()")
    tab.key("ArrowLeft")
    assert tab.text("#level") == "1.295"
    tab.key("[")
    assert tab.text("#level") == "1.270"
    x, y = tab.place("#norm-chart")
    left, width = tab.run(
        "(() => { const b = document.getElementById('norm-chart').getBoundingClientRect(); return [b.x, b.width]; })()"
    )
    middle = left + 40 + (width - 54) * 0.5
    tab.mouse("mousePressed", x, y, button="left", clickCount=1)
    tab.mouse("mouseMoved", middle, y, button="left")
    tab.mouse("mouseReleased", middle, y, button="left", clickCount=1)
    tab.settle()
    assert float(tab.text("#level")) == pytest.approx(1.415 / 2, abs=0.006)
    assert "dropped" in tab.text("#norm-chart .flag")
    assert tab.text("#lead").count("%") == 2


def test_tokens_can_be_dropped_by_loss(tab, made):
    losses = of_tokens(Scores.open(made / "scores").table(["nll"]), "nll")[0]
    tab.run("document.querySelector('input[value=loss]').click()")
    tab.settle()
    set_level(tab, 60)
    assert tab.text("#level") == "3.00"
    assert tab.run("document.getElementById('share-tokens').title").startswith(f"{int((losses > 3.0).sum()):,} of")
    assert "--by nll --threshold 3 " in tab.text("#next")


def test_sorting_and_filters(tab):
    top = tab.texts("#list .score:first-child b")
    assert top == sorted(top, reverse=True)
    tab.choose("#sort", "best")
    means = [float(mean) for mean in tab.texts("#list .score:nth-child(2) b")]
    assert means == sorted(means)
    tab.choose("#sort", "order")
    assert tab.texts("#list .where")[:2] == ["line 1", "line 2"]
    tab.click('#groups [data-place="1"]')
    (shown,) = set(tab.run("[...document.querySelectorAll('#list .group:nth-child(2)')].map((node) => node.title)"))
    assert tab.texts("#chips button") == [shown]
    assert shown.startswith("source_name: ")
    tab.click("#chips button")
    assert tab.text("#found") == "All 1,500 sentences in this page"
    tab.choose("#touched", "no")
    assert not tab.run("document.querySelector('#list .tok.x')")
    tab.choose("#touched", "")
    tab.choose("#why", "0")
    assert tab.text("#found") == "400 of 1,500 sentences in this page"


def test_the_table_of_sources_follows_the_slider_and_can_be_sorted(tab, made, norms):
    table = Scores.open(made / "scores").table(["fields", "error_norm"]).to_pylist()
    own = numpy.concatenate([row["error_norm"] for row in table if '"web"' in row["fields"]])
    set_level(tab, 200)
    shares = dict(zip(tab.texts("#groups tbody th"), tab.texts("#groups .share"), strict=True))
    assert shares["web"] == f"{(own > 1.0).mean():.1%}".replace("%", " %")
    tab.click('#groups [data-column="3"]')
    means = [float(text) for text in tab.texts("#groups td:nth-child(4)")]
    assert means == sorted(means, reverse=True)
    tab.click('#groups [data-column="3"]')
    assert [float(text) for text in tab.texts("#groups td:nth-child(4)")] == sorted(means)
    assert tab.run("document.querySelector('#groups th:nth-child(4)').getAttribute('aria-sort')") == "ascending"
    tab.click("#group-tabs button:last-child")
    assert tab.texts("#groups tbody th") == ["up to 8", "9–16", "17–32", "129 and more"]


def test_search(tab):
    tab.key("/")
    assert tab.run("document.activeElement.id") == "search"
    tab.type("#search", "עולם")
    assert tab.texts("#list .where") == ["line 1"]
    tab.key("Escape")
    assert tab.run("document.getElementById('search').value") == ""
    tab.type("#search", "not to be found anywhere")
    assert "No sentence is like this" in tab.text("#list")


def test_a_token_tells_its_numbers_to_mouse_finger_and_keyboard(chromium, made, tab):
    tab.hover("#list .tok.r")
    assert tab.run("document.getElementById('tip').hidden") is False
    text = tab.text("#tip")
    for name in ("error norm", "loss", "entropy", "rank", "What the model would have said"):
        assert name in text
    tab.mouse("mouseMoved", 5, 5)
    tab.settle()
    assert tab.run("document.getElementById('tip').hidden") is True
    tab.key("j")
    tab.key("ArrowRight")
    tab.key("ArrowRight")
    focus = tab.run("[document.activeElement.dataset.t, document.activeElement.getAttribute('aria-describedby')]")
    assert focus == ["1", "tip"]
    tab.key("Escape")
    assert tab.run("document.getElementById('tip').hidden") is True
    tab.size(390, 844, touch=True)
    tab.tap("#list .tok.y")
    assert tab.run("document.getElementById('tip').hidden") is False
    box = tab.run(
        "(() => { const b = document.getElementById('tip').getBoundingClientRect(); return [b.left, b.bottom]; })()"
    )
    assert box == [0, 844]


def test_keys(tab):
    tab.key("j")
    tab.key("j")
    second = tab.run("[...document.querySelectorAll('.card')].indexOf(document.activeElement)")
    tab.key("k")
    assert (second, tab.run("[...document.querySelectorAll('.card')].indexOf(document.activeElement)")) == (1, 0)
    for _ in range(20):
        tab.key("j")
    assert len(tab.texts(".card")) == 40
    tab.key("?")
    assert tab.run("document.getElementById('help').open")
    tab.key("Escape")
    assert not tab.run("document.getElementById('help').open")


def test_dark_and_light(tab):
    background = "getComputedStyle(document.body).backgroundColor"
    assert tab.run(background) == "rgb(250, 248, 244)"
    tab.prefer(prefers_color_scheme="dark")
    assert tab.run(background) == "rgb(20, 22, 26)"
    tab.click("#theme")
    assert tab.run(background) == "rgb(250, 248, 244)"
    tab.prefer(prefers_color_scheme="light")
    tab.click("#theme")
    assert tab.run(background) == "rgb(20, 22, 26)"
    tab.run("localStorage.clear()")


def test_examples_at_the_threshold_lead_to_their_sentence(tab):
    set_level(tab, 200)
    assert all(float(value) <= 1.0 for value in tab.texts("#edge-kept .value"))
    assert all(float(value) > 1.0 for value in tab.texts("#edge-dropped .value"))
    tab.click("#edge-dropped button")
    assert len(tab.texts(".card")) == 1
    assert tab.text("#chips").startswith("line ")


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_is_wider_than_the_screen(tab, width):
    tab.size(width, 800, touch=width < 500)
    tab.settle()
    assert tab.run("document.documentElement.scrollWidth") <= width


def test_long_and_right_to_left_texts(tab):
    tab.choose("#sort", "order")
    directions = tab.run(
        "[...document.querySelectorAll('.card .text')].slice(0, 2).map((t) => getComputedStyle(t).direction)"
    )
    assert directions == ["rtl", "ltr"]
    long = tab.texts(".card .text")[1]
    assert "w700" in long
    assert "tokens before" in long
    assert "more …" in long


def test_our_words_do_not_turn_a_text_around(chromium, tmp_path):
    long = {"text": " ".join(["שלום"] * 300), "error_norm": [0.1] * 200 + [1.3] + [0.1] * 99}
    short = {"text": "שלום abc", "start": [0, 5, 8], "end": [4, 8, 8], "error_norm": [1.1, 0.1, 0.1]}
    report(write(tmp_path / "scores", [long, short]), tmp_path / "report.html")
    tab = Tab(chromium)
    tab.goto(tmp_path / "report.html")
    texts = tab.run("[...document.querySelectorAll('.card .text')].map((t) => getComputedStyle(t).direction)")
    assert texts == ["rtl", "rtl"]
    places = tab.run("[...document.querySelectorAll('.card:last-child .tok')].map((t) => t.getBoundingClientRect().x)")
    assert places == sorted(places, reverse=True)  # the end is behind the last word: left of it
    tab.close()


def test_no_character_is_cut_in_two(chromium, tmp_path):
    text = "😀" * 40 + "x" + "😀" * 41 + "y" + "😀" * 40
    rows = [{"text": f"{text} z {text}", "error_norm": [0.1, 1.3, 0.1]}]
    rows += [{"text": f"x{text} z {text}x", "error_norm": [0.1, 1.3, 0.1]}]
    report(write(tmp_path / "scores", rows), tmp_path / "report.html")
    tab = Tab(chromium)
    tab.goto(tmp_path / "report.html")
    whole = tab.run("[...document.querySelectorAll('#edge-kept p')].map((p) => p.textContent.isWellFormed())")
    assert whole == [True, True]
    tab.close()


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"text": ""}],
        [{"text": "un", "error_norm": [1.2]}],
        [
            {
                "text": "un chien",
                "error_norm": [float("nan"), 0.4],
                "nll": [float("nan"), float("inf")],
                "p_target": [1, 1],
            }
        ],
    ],
    ids=["no rows", "no tokens", "one token", "no numbers"],
)
def test_small_and_odd_tables(chromium, tmp_path, rows):
    report(write(tmp_path / "scores", rows), tmp_path / "report.html")
    tab = Tab(chromium)
    tab.goto(tmp_path / "report.html")
    set_level(tab, 100)
    tab.key("j")
    assert len(tab.texts(".card")) == len(rows)
    assert tab.text("#found") == f"All {len(rows)} sentence{'' if len(rows) == 1 else 's'}"
    assert "NaN" not in tab.run("document.body.innerText")
    assert tab.complaints() == []
    tab.close()


def test_quarantined_lines(tab):
    assert tab.texts("#lines tbody tr td:first-child") == ["corpus.jsonl:3", "corpus.jsonl:8"]
    assert tab.texts("#lines tbody tr td:last-child") == ["{oops", "‹ESC›[31m"]
    assert tab.text("#counts") == "2,504 records = 2,502 used + 2 quarantined"
