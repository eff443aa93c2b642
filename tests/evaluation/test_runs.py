"""Run directories that are whole, and such that are not."""

import json

import pytest

from errornorm.comparison import compare
from errornorm.data.lines import DataError
from tests.run_directories import write


def test_seeds_are_in_order(tmp_path):
    for seed in (10, 9, 2):
        write(tmp_path / f"seed-{seed}", seed=seed)
    assert compare([tmp_path]).groups[0].seeds == [2, 9, 10]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("evaluation.json", '{"bleu": 1,\n oops}', "evaluation.json:2:2: not JSON"),
        ("evaluation.json", '{"a":' + "[" * 100_000, "evaluation.json:1: JSON that is nested too deeply; evaluate"),
        ("evaluation.json", "[]", "evaluation.json:1: a JSON list, not an object"),
        ("evaluation.json", "{}", "b: the evaluation has no measure"),
        ("evaluation.json", '{"bleu": "1"}', "evaluation.json: bleu is '1', not a number"),
        ("evaluation.json", '{"seed": "1"}', "evaluation.json: seed is '1', not a whole number"),
        ("manifest.json", None, "manifest.json: No such file or directory; the run is not complete"),
        ("manifest.json", "\xff", "manifest.json: not UTF-8"),
        ("outputs-test.jsonl", '{"source": "a"}\n', "outputs-test.jsonl:1: no text 'reference'"),
        ("outputs-test.jsonl", '{"source": "a"', "outputs-test.jsonl:1:15: not JSON"),
        ("outputs-test.jsonl", "\xff", "outputs-test.jsonl:1:1: not UTF-8"),
    ],
)
def test_damaged_runs(tmp_path, name, text, message):
    mle, dft = write(tmp_path / "a"), write(tmp_path / "b", "dft")
    if text is None:
        (dft / name).unlink()
    else:
        (dft / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=message):
        compare([dft] if name == "evaluation.json" else [mle, dft])


def test_facts_missing_everywhere(tmp_path):
    run = write(tmp_path / "a")
    for name in ("evaluation.json", "manifest.json"):
        facts = json.loads((run / name).read_text())
        del facts["data_hash"]
        (run / name).write_text(json.dumps(facts))
    with pytest.raises(DataError, match=r"evaluation.json: no 'data_hash'; evaluate .* again"):
        compare([run])


def test_a_step_that_was_done_again_has_its_last_value(tmp_path):
    run = write(tmp_path / "a")
    rows = [{"step": 1, "split": "train", "nll": 9.0}, {"step": 1, "split": "valid", "nll": 3.0}]
    rows += [{"step": 1, "split": "train", "nll": 8.0}, {"step": 2, "split": "train", "kept": 0.9}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (found,) = compare([run]).groups[0].runs
    assert found.curve("train", "nll") == {1: 8.0}
    assert found.curve("valid", "nll") == {1: 3.0}
