"""Counts of the slow suites, the page that shows them, and the lock of dependencies."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from errornorm.reliability import AREAS, reliability_section
from tests.tally import FOLDER, Tally

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def test_a_case_that_fails_is_counted_and_told(tmp_path):
    tally = Tally()

    def some():
        with tally("some", "input", "some cases") as suite:
            for label in ("first", "second", "third"):
                with suite.case(label):
                    if label == "second":
                        raise ValueError("no")

    with pytest.raises(AssertionError, match=r"1 failed\nsecond: ValueError: no") as caught:
        some()
    assert "third" not in str(caught.value)
    with tally("some", "input", "some cases") as suite:  # another part of it
        suite.add(10)
    tally.write(tmp_path)
    row = json.loads((tmp_path / "some.json").read_text())
    assert (row["tried"], row["failed"]) == (13, 1)
    assert not re.search(r"/\w+/", row["machine"])


def test_the_page_has_a_table_for_each_area():
    row = {"what": "a | b", "tried": 12345, "failed": 0, "seconds": 60.4, "date": "2026-01-31", "errornorm": "0.1.0",
           "machine": "2 cores"}  # fmt: skip
    text = reliability_section(
        [{"name": "x", "area": "security", **row}, {"name": "y", "area": "input", **row, "failed": 2}]
    )
    assert text.index(AREAS["input"]) < text.index(AREAS["security"])
    assert r"| a \| b | 12,345 | 0 | 60 | 2026-01-31, 0.1.0 |" in text
    assert "**2**" in text
    assert text.count("Measured on 2 cores.") == 1


def test_the_page_has_the_memory_of_long_lives(tmp_path):
    tally = Tally()
    with tally("long", "soak", "samples") as suite:
        suite.add(3)
        suite.more["memory"] = [
            {
                "what": "rank 0",
                "MB per hour": -0.04,
                "files": 14,
                "minutes": [0.2, 10.0, 24.1],
                "MB": [498.6, 512.2, 512.1],
            }
        ]
    tally.write(tmp_path)
    text = (tmp_path / "long.json").read_text()
    assert '"MB": [ 498.6, 512.2, 512.1 ]' in text
    assert "| rank 0 | 0 to 24 | 499 | 512 | -0.0 | 14 |" in reliability_section([json.loads(text)])


def test_the_page_has_what_a_split_changes(tmp_path):
    tally = Tally()
    with tally("splits", "ranks", "objectives") as suite:
        suite.add(2)
        suite.more["splits"] = {"of": ["1 × 2", "2 × 1"], "off": {"mle": [1.2e-07, 0.0]}}
    tally.write(tmp_path)
    text = (tmp_path / "splits.json").read_text()
    assert '"mle": [ 1.2e-07, 0.0 ]' in text
    assert "| `mle` | 1e-07 | 0e+00 |" in reliability_section([json.loads(text)])


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_counts_are_whole(path):
    row = json.loads(path.read_text(encoding="utf-8"))
    assert row["name"] == path.stem
    assert row["area"] in AREAS
    assert row["tried"] > 0
    assert row["failed"] == 0


def pins():
    return dict(re.findall(r"^([\w.-]+)==(\S+)", LOCK, re.MULTILINE))


def test_the_lock_has_a_hash_for_everything_but_torch():
    entries = re.split(r"\n(?=[A-Za-z])", LOCK.partition("\n\n")[2] or LOCK)
    for entry in (entry for entry in entries if not entry.startswith("#")):
        assert "--hash=sha256:" in entry, entry[:80]
    assert "torch" not in pins()
    assert not re.search(r"://|file:|@ ", LOCK)  # whichever index it is, and wherever
    assert not [name for name in pins() if name.startswith(("nvidia", "cuda"))]
    assert re.fullmatch(r"(?:#.*\n)+torch==[\d.]+\n", (ROOT / "constraints.txt").read_text(encoding="utf-8"))


def test_the_lock_has_everything_that_is_asked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(entry for extra in project["optional-dependencies"].values() for entry in extra),
    ]
    names = {re.match(r"[\w.-]+", entry)[0].lower().replace("_", "-").replace(".", "-") for entry in wanted}
    have = {name.lower().replace("_", "-").replace(".", "-") for name in pins()}
    assert names - {"errornorm", "torch"} <= have
