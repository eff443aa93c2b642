"""What is written is read back, whatever the lengths."""

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errornorm.training.store import END, TOKEN, Ragged, Writer

ROWS = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=8), max_size=12)


def written(path, rows):
    with Writer(path) as writer:
        for row in rows:
            writer.append(row)
    return Ragged(path)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS)
def test_roundtrip(tmp_path_factory, rows):
    ragged = written(tmp_path_factory.mktemp("store") / "deep" / "rows", rows)
    assert len(ragged) == len(rows)
    assert [ragged[i].tolist() for i in range(len(rows))] == rows
    assert ragged.lengths.tolist() == [len(row) for row in rows]
    assert ragged.tokens.tolist() == [token for row in rows for token in row]
    with pytest.raises(IndexError):
        ragged[len(rows)]


@pytest.mark.parametrize("rows", [[], [[]], [[], [], []]])
def test_nothing(tmp_path, rows):
    ragged = written(tmp_path / "rows", rows)
    assert (len(ragged), len(ragged.tokens)) == (len(rows), 0)
    assert [ragged[i].tolist() for i in range(len(rows))] == rows
    assert ragged.lengths.tolist() == [0] * len(rows)


def test_more_tokens_than_32_bits_count(tmp_path):
    """Sparse files: they take no room."""
    first, second = 2**31 + 5, 3
    with (tmp_path / "rows.tokens").open("wb") as file:
        file.seek(first * TOKEN.itemsize)
        file.write(numpy.array([7, 8, 9], TOKEN).tobytes())
    (tmp_path / "rows.ends").write_bytes(numpy.array([first, first + second], END).tobytes())
    ragged = Ragged(tmp_path / "rows")
    assert ragged[1].tolist() == [7, 8, 9]
    assert len(ragged[0]) == first
    (tmp_path / "rows.tokens").unlink()  # whoever copies the folder would fill the disk


def test_many_rows(tmp_path):
    rows = [[i % 97] * (i % 3) for i in range(20_000)]
    ragged = written(tmp_path / "rows", rows)
    assert ragged.lengths.sum() == len(ragged.tokens) == sum(map(len, rows))
    assert ragged[19_999].tolist() == rows[19_999]


def test_a_token_that_does_not_fit_is_refused(tmp_path):
    with pytest.raises(OverflowError):
        written(tmp_path / "rows", [[2**31]])


def test_nobody_changes_what_is_on_disk(tmp_path):
    with pytest.raises(ValueError, match="read-only"):
        written(tmp_path / "rows", [[1, 2]])[0][0] = 5


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        Ragged(tmp_path / "gone")
