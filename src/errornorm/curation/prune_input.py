"""The corpus behind a table of scores, read once more: as records, and as the bytes that it is made of."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy

from ..data.lines import BOM, MAX_BYTES, DataError, Problem, is_longer, opened
from ..data.records import Corpus, Record
from ..scoring.corpus import SIDES, file_digest
from ..scoring.objects import AGAIN
from ..scoring.table import META, Scores
from ..training import corpora
from ..training.config import Source

KEPT, DROPPED = 1, 2  # what becomes of a line; 0: it was not scored
MOST = 2**31  # rows of a table in memory


@dataclass(frozen=True)
class Input:
    """What was scored.

    Args:
        path, pair: Its files, wherever they are now.
        form: "jsonl", "tsv", "text", "pairs", "parquet", "dataset" or "table" (rows that were in memory).
        names: Fields that were read, that of the scored text last.
        columns: Of a TSV without names.
        limit: So many records were read.
        dataset: Name, subset, split.
        sha256: Of the files' bytes.
        download: Whether the data set may be fetched.
    """

    path: Path | None
    pair: Path | None
    form: str
    names: Sequence[str]
    columns: Sequence[str] | None = None
    limit: int | None = None
    dataset: Sequence[str | None] | None = None
    sha256: str | None = None
    download: bool = False

    @staticmethod
    def of(
        scores: Scores, corpus: Path | str | None = None, pair: Path | str | None = None, download: bool = False
    ) -> Input:
        """Args:
        corpus, pair: Where the files are, if not where they were scored.
        download: Whether a data set may be fetched.
        """
        about = scores.meta.get("corpus")
        if not isinstance(about, dict) or not _is_told(about):
            raise DataError(f"{scores.folder / META}: it does not say what was scored; {AGAIN}")
        place, other = (
            None if (at := given or there) is None else Path(at)
            for given, there in ((corpus, about.get("path")), (pair, about.get("pair")))
        )
        if other is not None and about.get("pair") is None:
            raise ValueError(f"{scores.folder} was made from one file: leave out pair")
        form = "pairs" if other is not None and about["format"] == "text" else about["format"]
        return Input(
            place,
            other,
            form,
            about.get("fields") or [about.get("text_field") or "text"],
            about.get("columns"),
            about.get("limit"),
            about.get("dataset"),
            about.get("sha256"),
            download,
        )

    @property
    def files(self) -> list[Path]:
        return [path for path in (self.path, self.pair) if path is not None]

    @property
    def has_header(self) -> bool:
        return self.form == "tsv" and self.columns is None

    def where(self, line: int) -> str:
        name = self.path or (self.dataset[0] if self.dataset else "the table")
        return f"{name}:{line}"

    def verify(self) -> None:
        """Refuse a corpus that is not the one that was scored."""
        for path in self.files:
            if not path.is_file():
                raise DataError(f"{path}: the corpus is not there; say where it is now (--corpus FILE)")
        if self.files and file_digest(self.files) != self.sha256:
            them = " and ".join(map(str, self.files))
            raise DataError(
                f"{them}: not the bytes that were scored; score again, or give the old ones (--corpus FILE)"
            )

    def extent(self) -> tuple[int, int]:
        """How many records there are, and the line of the last one. Not of rows that were in memory."""
        records, last = 0, 0
        for item in self.items():
            records, last = records + 1, item.where.line
        return records, last

    def items(self) -> Iterator[Record | Problem]:
        """Records, and what could not be read. Not of rows that were in memory."""
        if self.path is None:
            assert self.dataset is not None
            name, subset, split = self.dataset
            source = Source(dataset=name, subset=subset, split=split or "train", download=self.download)
            return islice(corpora.records(source, ()), self.limit)
        return islice(iter(corpus_of(self.path, self.pair, self.form, self)), self.limit)

    def raw(self, path: Path, states: bytes) -> Iterator[tuple[int, bytes]]:
        """Number and bytes of each line that is no dropped or quarantined record: see `states_of`.

        A byte order mark stays in front. Names of columns and empty lines of JSONL are no records, and stay too.
        """
        header, mark, begun = self.has_header, False, False
        for number, raw in enumerate(_lines(path), 1):
            if self.limit is not None and number >= len(states):
                return
            if number == 1 and raw.startswith(BOM):
                raw, mark = raw[len(BOM) :], True
            state = states[number] if number < len(states) else 0
            stays = state == KEPT
            if not state and header and _text(raw) is not None:
                stays, header = True, False
            elif not state and self.form == "jsonl":
                stays = (_text(raw) or "x").isspace()
            if stays:
                # A mark that is part of the text would be lost if its line became the first one.
                yield number, BOM + raw if not begun and (mark or raw.startswith(BOM)) else raw
                begun = True


def _is_told(about: Mapping[str, Any]) -> bool:
    """Whether meta data describe a corpus as `score` does; people may have edited them."""
    limit, dataset = about.get("limit"), about.get("dataset")
    return (
        _has_its_files(about.get("format"), about.get("path"), about.get("pair"), dataset)
        and all(_is_path(about.get(name)) for name in ("path", "pair"))
        and all(_are_texts(about.get(name)) for name in ("fields", "columns"))
        and isinstance(about.get("text_field"), str | None)
        and (about.get("format") != "text" or len(about.get("fields") or "1") == 1)
        and (limit is None or (type(limit) is int and 0 < limit <= sys.maxsize))
        and (dataset is None or (isinstance(dataset, list) and len(dataset) == 3 and isinstance(dataset[0], str)))
        and all(isinstance(part, str | None) for part in dataset or ())
    )


def _has_its_files(form: Any, path: Any, pair: Any, dataset: Any) -> bool:
    if form in ("dataset", "table"):
        return path is None and pair is None and (dataset is not None) == (form == "dataset")
    if form == "text":  # of one side, or of two
        return path is not None
    return path is not None and form in ("jsonl", "tsv", "parquet", "pairs") and (pair is not None) == (form == "pairs")


def _is_path(value: Any) -> bool:
    """Whether a file can have this name."""
    try:
        return value is None or (isinstance(value, str) and b"\0" not in os.fsencode(value))
    except UnicodeEncodeError:
        return False


def _are_texts(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(one, str) for one in value))


def corpus_of(path: Path, pair: Path | None, form: str, given: Input) -> Corpus:
    columns = {"text": given.names, "pairs": SIDES}.get(form, given.columns)
    return Corpus(path, pair, form=form, columns=columns)


def _lines(path: Path) -> Iterator[bytes]:
    """Every line with its end, numbered as `read_lines` does; of one that is too long, nothing."""
    with opened(path) as file:
        while True:
            try:
                raw = file.readline(MAX_BYTES + 2)
                if not raw:
                    return
                if is_longer(raw, MAX_BYTES):
                    while raw and not raw.endswith(b"\n"):
                        raw = file.readline(2**20)
                    raw = b""
            except (EOFError, gzip.BadGzipFile, zlib.error):  # the archive is cut: from here on nothing was scored
                return
            yield raw


def _text(raw: bytes) -> str | None:
    """None: not readable."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text or not raw else text


def require_lines(lines: Any, last: int | None, folder: Path) -> None:
    """Refuse lines that are not as `score` writes them: from 1 on, in the order of the corpus, none behind its last.

    Args:
        last: None: of rows that were in memory, which may have any order.
    """
    odd = (lines < 1) | (lines > (MOST if last is None else last))
    if last is not None:
        odd[1:] |= lines[1:] <= lines[:-1]
    if odd.any():
        number = lines[odd.argmax()]
        raise DataError(f"{folder}: damaged (line {number} is not in the corpus at this place); {AGAIN}")


def states_of(lines: Any, dropped: Any) -> bytes:
    """What becomes of each line, by its number."""
    states = numpy.zeros(int(lines.max()) + 1 if len(lines) else 1, numpy.uint8)
    states[lines] = numpy.where(dropped, DROPPED, KEPT)
    return states.tobytes()
