"""A hundred thousand sentences on one page."""

import pytest

from errornorm.reporting.build import LIMIT, report
from tests.reporting.chromium import FOUND, MISSING, Tab, browser
from tests.score_tables import bad_line, random_rows, write

SENTENCES, SOURCES, BAD = 100_000, 3_000, 10_000
WATCH = """
window.first = null;
new MutationObserver((_, watcher) => {
  if (!document.querySelector(".card")) return;
  requestAnimationFrame(() => requestAnimationFrame(() => (window.first = performance.now())));
  watcher.disconnect();
}).observe(document, { childList: true, subtree: true });
"""
MOVE = """(async () => {
  const begin = performance.now();
  const slider = document.getElementById("slider");
  slider.value = 150;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - begin;
})()"""


@pytest.mark.slow
@pytest.mark.skipif(FOUND is None, reason=MISSING)
def test_a_hundred_thousand_sentences_open_within_two_seconds(tmp_path):
    sources = [f"site-{k}.example" for k in range(SOURCES)]
    bad = [bad_line(3 * k + 1, "not JSON (column 1)", "{" * 200) for k in range(BAD)]
    scores = write(tmp_path / "scores", random_rows(SENTENCES, 0, sources=sources), quarantine=bad)
    done = report(scores, tmp_path / "report.html", group_by="source_name")
    assert done.bytes <= LIMIT
    assert (done.records, done.used, done.quarantined) == (SENTENCES + BAD, SENTENCES, BAD)
    with browser() as chromium:
        tab = Tab(chromium)
        tab.before(WATCH)
        tab.goto(tmp_path / "report.html")
        tab.settle()
        tab.settle()
        assert tab.run("window.first") < 2000  # milliseconds, from the navigation to the first sentences on the screen
        assert tab.run(MOVE) < 500
        assert tab.text("#share-tokens") != "0 %"
        assert tab.complaints() == []
