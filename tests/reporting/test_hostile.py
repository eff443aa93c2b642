"""Text that wants to be code, in a real browser."""

import json

import pytest

from errornorm.reporting.build import LIMIT, report
from tests.reporting.chromium import FOUND, MISSING, Tab
from tests.score_tables import write

pytestmark = pytest.mark.skipif(FOUND is None, reason=MISSING)
TOKENS, ROWS = 8, 1300
# Each sets a mark if it runs; k makes each of them another string.
PAYLOADS = [
    "<script>pwn({k})</script>",
    "</script><script>pwn({k})</script>",
    "<img/src=x/onerror=pwn({k})>",
    "<svg/onload=pwn({k})>",
    "<!--<script>pwn({k})//",
    "--></script><script>pwn({k})//",
    "javascript:pwn({k})",
    "'\"><body/onload=pwn({k})>",
    "<iframe/srcdoc='<script>pwn({k})'>",
    "<a/href=javascript:pwn({k})/autofocus/onfocus=pwn(1)>",
    "{{{{constructor.constructor('pwn({k})')()}}}}",
    "${{pwn({k})}}`${{pwn({k})}}`",
    "<style>@import'//x/{k}';*{{x:expression(pwn())}}",
    "<link/rel=stylesheet/href=//x.test/{k}>",
    "\u202e{k}\u2066\u202d<b>\u2069",
    "\x1b]8;;file:///etc/passwd\x07{k}\x1b[2J",
    "\x00{k}\x00<script>",
    "\ufeff{k}\u200b\ufffe\u2028pwn()\u2029",
    "__proto__{k}",
    "<math><mi/xlink:href='data:x,pwn({k})'>",
    "&lt;img src=x onerror=pwn({k})&gt;&#x3c;",
    "\\u003cscript>pwn({k})\\x3c/script>",
    "]]><script>pwn({k})</script>",
    "<base/href=//x.test/{k}><form/action=//x>",
    "z{k}\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308\u0309",
    "\U000e0041{k}\U0001f468\u200d\U0001f469",
]
TRAP = "window.pwned = []; window.pwn = (k) => window.pwned.push(k); window.alert = window.pwn;"
TAGS = {"ARTICLE", "HEADER", "SPAN", "BDI", "B", "P", "EM"}


def strings(count):
    return [PAYLOADS[k % len(PAYLOADS)].format(k=k) for k in range(count)]


def rows():
    texts = strings(TOKENS * ROWS)
    for number in range(ROWS):
        own = texts[TOKENS * number : TOKENS * (number + 1)]
        text = "".join(own)
        ends = [sum(map(len, own[: k + 1])) for k in range(TOKENS)]
        source = own[0] if number % 2 else "__proto__"
        alternatives = [{"token": 1, "rank": 9, "texts": own[:3], "p": [0.5, 0.2, 0.1]}]
        norms = [0.9, 0.96, 1.02, 1.08, 1.1, 1.2, 1.3, 1.4]
        fields = {"source": source, own[1]: own[2], "kind": own[3][:3]}
        yield {"text": text, "start": [0, *ends[:-1]], "end": ends, "error_norm": norms, "context": own[2],
               "fields": fields, "alternatives": alternatives}  # fmt: skip
    huge = "<script>pwn(0)</script>" * 45_000  # a megabyte
    yield {
        "text": huge,
        "context": huge,
        "fields": {"source": huge},
        "error_norm": [1.4],
        "start": [0],
        "end": [len(huge)],
    }


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    texts = strings(len(PAYLOADS))
    bad = [{"where": text, "reason": f"{text} ({text})", "text": text} for text in texts]
    first = texts[1]
    meta = {"command": ["errornorm", *texts], "settings": {first: first, "context": first},
            "model": {"path": first, "name": first}, "corpus": {"path": first, "text_field": first}}  # fmt: skip
    scores = write(folder / "scores", rows(), quarantine=bad, **meta)
    done = report(scores, folder / "report.html", group_by="source", title=first)
    assert done.bytes <= LIMIT
    assert done.sentences == ROWS + 1
    return folder / "report.html"


@pytest.mark.recorded
def test_ten_thousand_hostile_strings_do_nothing(chromium, page, tally):
    count = len(set(strings(TOKENS * ROWS)))
    assert count > 10_000
    tab = Tab(chromium)
    tab.before(TRAP)
    with tally("report", "security", "texts that want to be code, in a report in a browser; none may run") as suite:
        tab.goto(page)
        # All of them on the screen, then everything that shows text once more.
        tab.run("(() => { const more = document.getElementById('more'); while (!more.hidden) more.click(); })()")
        tab.settle()
        assert len(tab.texts(".card")) == ROWS + 1
        assert tab.run("document.querySelectorAll('#list .tok').length") == TOKENS * ROWS + 1
        tab.hover("#list .tok[data-t='1']")
        assert "script" in tab.text("#tip") or tab.text("#tip")
        tab.choose("#slider", "190")
        tab.click('#groups [data-place="0"]')
        tab.type("#search", "</script><script>pwn(1)</script>")
        tab.click("#chips button")
        tab.key("Escape")
        for other in tab.run("[...document.querySelectorAll('#group-tabs button')].map((_, k) => k + 1)"):
            tab.click(f"#group-tabs button:nth-child({other})")
        tab.settle()
        suite.add(count, [f"pwn({k}) ran" for k in tab.run("window.pwned")])
    assert set(tab.run("[...new Set([...document.querySelectorAll('#list *')].map((n) => n.tagName))]")) <= TAGS
    assert tab.run("document.scripts.length") == 2
    names = set(tab.run("[...document.querySelectorAll('*')].flatMap((node) => node.getAttributeNames())"))
    assert not [name for name in names if name.startswith("on")]
    assert (
        tab.run("document.querySelectorAll('img, iframe, object, embed, form, base, body a[href^=\"j\"]').length") == 0
    )
    assert not tab.run("/[\\u0000-\\u0008\\u001b\\u202a-\\u202e\\u2066-\\u2069]/.test(document.body.innerText)")
    assert tab.complaints() == []
    assert tab.requests() == []
    assert not [e for e in chromium.events if e["method"] == "Page.javascriptDialogOpening"]
    tab.close()


def test_what_a_script_would_need_is_refused(chromium, page):
    """If a text came in as markup after all, the policy would stop it."""
    tab = Tab(chromium)
    tab.before(TRAP)
    tab.goto(page)
    for attack in (
        "document.body.innerHTML = '<img src=x onerror=pwn(1)>'",
        "const s = document.createElement('script'); s.textContent = 'pwn(2)'; document.body.append(s)",
        "document.body.setAttribute('onclick', 'pwn(3)'); document.body.click()",
    ):
        tab.run(f"(() => {{ try {{ {attack} }} catch {{ }} }})()")
        tab.settle()
    assert tab.run("fetch('https://example.invalid').then(() => 'sent', () => 'refused')") == "refused"
    assert tab.run("window.pwned") == []
    assert tab.complaints()
    tab.close()


def test_the_block_of_data_is_one_piece_of_json(page):
    text = page.read_text(encoding="utf-8")
    assert text.count("<script") == text.count("</script>") == 2
    assert "<!--" not in text
    data = text.partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(data)["title"] == "</script><script>pwn(1)</script>"
