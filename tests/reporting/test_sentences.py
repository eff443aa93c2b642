import json

import numpy
import pytest

from errornorm.reporting.sentences import MOST_BYTES, encode, pieces, window
from tests.score_tables import complete

NAMES = ("record", "line", "context", "pieces", "norms", "nlls", "entropies", "alternatives", "why", "groups", "total",
         "begin", "rest", "max", "mean", "loss", "labels")  # fmt: skip


def packed(row, why=0, groups=(), **more):
    row = complete(row, **more)
    row["fields"] = json.loads(row["fields"])
    return dict(zip(NAMES, json.loads(encode(row, why, groups)), strict=True))


def test_a_sentence_holds_its_numbers():
    row = {"text": "un chien court", "context": "a dog runs", "error_norm": [0.1, 1.25, 0.4], "nll": [0.05, 4.0, 0.2],
           "fields": {"labels": [0, 1, 0]}, "line": 8}  # fmt: skip
    found = packed(row, 5, [2, -1], record=6)
    assert (found["record"], found["line"], found["why"], found["groups"]) == (6, 8, 5, [2, -1])
    assert found["pieces"] == ["un", " chien", " court"]
    assert found["norms"] == [1001, 12500, 4001]  # rounded up: 0.1 in single precision is a bit more
    assert found["nlls"] == [51, 4000, 201]
    assert (found["max"], found["mean"], found["loss"]) == (12500, 5833, 1417)
    assert found["labels"] == [1]
    assert [entry[:2] for entry in found["alternatives"]] == [[1, 2]]
    assert "".join(found["pieces"]) == row["text"]


@pytest.mark.parametrize(
    ("text", "starts", "ends", "expected"),
    [
        ("👍 ok", [0, 0, 0, 2], [1, 1, 1, 4], ["👍", "", "", " ok"]),  # three tokens of one character
        ("a  b", [0, 3], [1, 4], ["a", "  b"]),
        ("ab", [0, 1, 2], [1, 2, 2], ["a", "b", ""]),
        ("", [], [], []),
        ("x" * 100, [0], [100], ["x" * 47 + "…‹100 characters›"]),
    ],
)
def test_pieces_make_up_the_text(text, starts, ends, expected):
    assert pieces(text, starts, ends) == expected


def test_a_long_text_is_cut_around_its_worst_token():
    norms = numpy.zeros(1000)
    norms[700] = 1.3
    row = {"text": " ".join(f"w{k}" for k in range(1000)), "error_norm": norms}
    found = packed(row)
    place = 700 - found["begin"]
    assert found["norms"][place] == 13000
    assert found["pieces"][place] == " w700"
    assert found["total"] == 1000
    assert len(found["pieces"]) <= 120
    assert found["pieces"][0] == f"w{found['begin']}"
    assert window(norms, 2000) == (0, 1000)


def test_text_behind_the_last_token_is_there():
    found = packed({"text": "one two three four", "start": [0, 4], "end": [3, 7], "error_norm": [0.1, 0.2]})
    assert found["rest"] == " three four"
    assert packed({"text": "   "})["rest"] == "   "


@pytest.mark.parametrize("filler", ["<", "\u202e", "👩", "\x1b", '"', "\\"])
def test_a_sentence_is_never_larger_than_its_share(filler):
    text = " ".join([filler * 3000] * 400)
    alternatives = [{"token": k, "rank": 3, "texts": [filler * 90] * 5, "p": [0.2] * 5} for k in range(400)]
    row = complete({"text": text, "context": filler * 10**5, "error_norm": [1.2] * 400, "alternatives": alternatives})
    assert len(encode({**row, "fields": {}}, 0, [0] * 6).encode()) <= MOST_BYTES


@pytest.mark.parametrize("labels", [[0, 1], "no", [0, 2, 0], [[0], 1, 0], None, {"a": 1}])
def test_labels_that_do_not_fit_are_left_out(labels):
    assert packed({"text": "un chien court", "fields": {"labels": labels}})["labels"] == []
