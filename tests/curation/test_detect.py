import json

import numpy
import pytest

from errornorm.cli import main
from errornorm.curation.detect import detect
from errornorm.data.lines import DataError
from tests.score_tables import random_rows, write


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    return write(tmp_path_factory.mktemp("detect") / "scores", random_rows(300, seed=1))


def row_of(found, level, score, group=None):
    return next(r for r in found.rows if (r["level"], r["score"], r["group"]) == (level, score, group))


def test_rows(scores):
    found = detect(scores, "labels", bootstrap=100)
    assert {row["level"] for row in found.rows} == {"token", "word", "sentence"}
    assert found.texts == 300
    assert found.unusable == {}
    row = row_of(found, "token", "nll")
    tokens = scores.table(["nll", "fields"])
    labels = numpy.concatenate([json.loads(fields)["labels"] for fields in tokens["fields"].to_pylist()])
    values = numpy.concatenate(tokens["nll"].to_pylist())
    assert (row["units"], row["noisy"]) == (len(labels), labels.sum())
    assert row["base_rate"] == pytest.approx(labels.mean())
    bad, good = values[labels == 1], values[labels == 0]
    expected = (bad[:, None] > good).mean() + (bad[:, None] == good).mean() / 2
    assert row["auroc"] == pytest.approx(expected)
    assert row["auroc_low"] < row["auroc"] < row["auroc_high"]
    assert row["against"] == "nll"
    assert row["auroc_difference"] == row["auroc_difference_low"] == row["auroc_difference_high"] == 0


def test_equal_rankings_are_equal(scores):
    found = detect(scores, "labels", bootstrap=50, level="token")
    loss, p = row_of(found, "token", "nll"), row_of(found, "token", "p_target")
    assert p["auroc"] == pytest.approx(loss["auroc"], abs=1e-6)
    assert abs(p["auroc_difference_high"]) < 2e-3
    assert p["overlap"] != loss["overlap"]  # bins of equal width are not the same bins


def test_a_word_is_its_tokens(tmp_path):
    rows = [
        {"text": "a bcd", "start": [0, 2, 3, 5], "end": [1, 3, 5, 5], "nll": [1.0, 2.0, 4.0, 9.0],
         "fields": {"labels": [0, 1]}},
        {"text": "e f", "nll": [0.5, 8.0], "fields": {"labels": [0, 0]}},
    ]  # fmt: skip
    found = detect(write(tmp_path / "scores", rows), "labels", bootstrap=0)
    assert row_of(found, "word", "nll_mean")["units"] == 4
    assert row_of(found, "word", "nll_mean")["auroc"] == pytest.approx(2 / 3)  # 3 of 1, 0.5, 8
    assert row_of(found, "word", "nll_first")["auroc"] == pytest.approx(2 / 3)
    assert row_of(found, "token", "nll")["units"] == 5  # without the end token
    assert row_of(found, "sentence", "nll_sum")["auroc"] == 1.0  # 16 and 8.5: with the end token
    assert row_of(found, "sentence", "nll_first")["auroc"] == 1.0
    assert row_of(found, "sentence", "above")["against"] == "nll_mean"
    assert row_of(found, "token", "nll")["auroc_low"] is None


def test_unusable_labels_are_counted(tmp_path):
    labels = [[0, 1], [1], None, [0, 0], [0, "x"], 3]
    rows = [{"text": "a b", "nll": [0.1, 0.2], "fields": {"labels": value}} for value in labels]
    found = detect(write(tmp_path / "scores", rows), "labels", bootstrap=0)
    assert found.texts == 2
    assert sum(found.unusable.values()) == 4
    assert found.unusable["not as many labels as words"] == 1
    assert "4 of 6 texts have no usable label" in found.notes[0]


def test_groups(scores):
    found = detect(scores, "labels", group_by="source_name", level="token", bootstrap=20)
    groups = [row["group"] for row in found.rows if row["score"] == "nll"]
    assert groups == [None, "books", "talks", "web"]
    parts = [row_of(found, "token", "nll", group) for group in groups]
    assert parts[0]["units"] == sum(part["units"] for part in parts[1:])
    assert parts[0]["texts"] == sum(part["texts"] for part in parts[1:])


def test_a_group_with_nothing_to_tell_apart(tmp_path):
    rows = [
        {"text": "a b", "nll": [0.1, 0.2], "fields": {"labels": [0, one], "from": "x" if one else "y"}}
        for one in (1, 1, 0)
    ]
    found = detect(write(tmp_path / "scores", rows), "labels", group_by="from", level="token", bootstrap=30)
    assert row_of(found, "token", "nll", "y")["auroc"] is None
    assert row_of(found, "token", "nll", "x")["auroc"] == 1.0
    assert found.table.num_rows == len(found.rows)


def test_texts_with_names_of_noise(scores):
    found = detect(scores, "noise", positive=["untranslated"], bootstrap=0, level="sentence")
    assert row_of(found, "sentence", "nll_mean")["auroc"] > 0.9
    assert row_of(found, "sentence", "nll_mean")["correlation"] is None


def test_correlation_with_the_share(scores):
    found = detect(scores, "labels", bootstrap=50, level="sentence")
    row = row_of(found, "sentence", "nll_mean")
    assert 0.5 < row["correlation_low"] < row["correlation"] < row["correlation_high"] <= 1


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"labels": "label"}, ValueError, r"no record has the field 'label' \(did you mean labels\?\); there are"),
        ({"labels": "noise"}, DataError, "no label of noise can be used .a label that is not 0 or 1.; name the"),
        ({"labels": "noise", "positive": ["copied"]}, ValueError, "no noise is 'copied'; there are none, untran"),
        ({"labels": "noise", "positive": ["none", "untranslated"]}, DataError, "says that all .* are noisy"),
        ({"labels": "labels", "level": "tokens"}, ValueError, r"unknown level 'tokens' \(did you mean token\?\)"),
        ({"labels": "labels", "group_by": "number"}, ValueError, "number has 300 values, and 200 can be told"),
        ({"labels": "labels", "group_by": "sources"}, ValueError, r"'sources' \(did you mean source_name\?\)"),
    ],
)
def test_refusals(scores, options, kind, message):
    with pytest.raises(kind, match=message):
        detect(scores, bootstrap=0, **options)


def test_texts_that_belong_together(tmp_path):
    rows = list(random_rows(60, seed=5))
    rows = [{**row, "fields": {**row["fields"], "id": number}} for number, row in enumerate(rows) for _ in range(5)]
    scores = write(tmp_path / "scores", rows)
    alone, together = (
        row_of(detect(scores, "labels", level="token", bootstrap=200, resample_by=by), "token", "nll")
        for by in (None, "id")
    )
    assert alone["auroc"] == together["auroc"]
    width, honest = (row["auroc_high"] - row["auroc_low"] for row in (alone, together))
    assert 1.5 < honest / width < 3.5  # about the root of 5, for there are only a fifth as many


def test_equal_seeds_give_equal_numbers(scores):
    first, again = (detect(scores, "labels", bootstrap=30, level="word", seed=7).rows for _ in range(2))
    assert first == again


def test_command(scores, tmp_path, capsys):
    argv = ["detect", str(scores.folder), "--labels", "labels", "--bootstrap", "20"]
    assert main([*argv, "--output", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "tokens: " in printed
    assert "error_norm_max" in printed
    assert str(tmp_path / "out" / "detect.png") in printed
    assert (tmp_path / "out" / "detect.png").read_bytes().startswith(b"\x89PNG")
    saved = json.loads((tmp_path / "out" / "detect.json").read_text())
    assert saved["settings"]["scores"]["model"]["parameters"] == 1234
    assert main([*argv, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == saved


def test_command_says_what_is_wrong(scores, capsys):
    assert main(["detect", str(scores.folder), "--labels", "lables"]) == 2
    assert "did you mean labels?" in capsys.readouterr().err
    assert main(["detect", str(scores.folder / "nowhere"), "--labels", "labels"]) == 3
    assert main(["detect", str(scores.folder), "--labels", "noise"]) == 3
    assert "--positive" in capsys.readouterr().err


def test_tables_in_memory(scores):
    expected = detect(scores, "labels", bootstrap=0).rows
    table = scores.table()
    assert detect(table, "labels", bootstrap=0).rows == expected
    assert detect(table.to_pandas(), "labels", bootstrap=0).rows == expected
    with pytest.raises(ValueError, match="a pyarrow table or a pandas data frame, not int"):
        detect(5, "labels")


def test_the_figure_is_of_a_level_with_both(tmp_path):
    """Here all noisy words are without a token of their own."""
    rows = [{"text": "a bc", "start": [0, 1], "end": [1, 4], "nll": [1.0, 2.0], "fields": {"labels": [n, 0]}}
            for n in (0, 0, 0)]  # fmt: skip
    rows += [{"text": "a bc", "start": [0], "end": [1], "nll": [3.0], "fields": {"labels": [0, 1]}}] * 2
    found = detect(write(tmp_path / "scores", rows), "labels", bootstrap=0)
    assert {figure["level"] for figure in found.histograms.values()} == {"sentence"}
    found.save(tmp_path / "out")


def test_nothing_is_written_among_the_scores(scores, capsys):
    """`errornorm score` would refuse to go on with the folder."""
    before = sorted(scores.folder.iterdir())
    for place in (scores.folder, scores.folder / "inside"):
        assert main(["detect", str(scores.folder), "--labels", "labels", "--output", str(place)]) == 2
        assert f"choose a place beside it, such as {scores.folder.parent / 'detection'}" in capsys.readouterr().err
        with pytest.raises(ValueError, match="for them alone"):
            detect(scores, "labels", bootstrap=0).save(place)
    assert sorted(scores.folder.iterdir()) == before


def test_hostile_names_in_an_error_are_printed_plainly(tmp_path, capsys):
    rows = [{"text": "a b", "nll": [0.1, 0.2], "fields": {"\x1b[31mred": "\x9b2J\x1b]0;x\x07"}}] * 3
    folder = str(write(tmp_path / "scores", rows).folder)
    assert main(["detect", folder, "--labels", "labels"]) == 2
    assert main(["detect", folder, "--labels", "\x1b[31mred", "--positive", "a"]) == 2
    printed = capsys.readouterr().err
    assert printed.count("red") == 2
    assert printed.replace("\n", "").isprintable()


def test_a_hostile_group_is_printed_plainly(tmp_path, capsys):
    rows = [
        {"text": "a b", "nll": [0.1, 0.2], "fields": {"labels": [0, 1], "from": "\x1b[31mred\x1b[0m" + "x" * 1000}}
    ] * 3
    scores = write(tmp_path / "scores", rows)
    assert main(["detect", str(scores.folder), "--labels", "labels", "--group-by", "from"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) < 200
