"""What is scored: a corpus in files, a data set, or rows in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from ..data.files import require_utf8
from ..data.lines import Problem, Where, reading, require_again
from ..data.records import Corpus, Record, checked
from ..training import corpora
from ..training.config import Source
from .parts import Settings

SIDES = ("source", "target")  # of aligned files


class Reading:
    """A corpus that can be read again and again.

    Args:
        corpus: A file, the entries of a corpus as in a training configuration, or rows: a pyarrow table, a pandas
            data frame, a list of mappings.
        limit: Read so many records.
    """

    def __init__(self, corpus: Any, limit: int | None = None) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"limit={limit}: at least 1 is needed")
        self.limit = limit
        self.rows: Any = None
        if isinstance(corpus, Source):
            self.source: Source | None = corpus
        elif isinstance(corpus, str | Path):
            self.source = corpora.source_of({"path": corpus})
        elif isinstance(corpus, Mapping):
            self.source = corpora.source_of(corpus)
        else:
            self.source, self.rows = None, corpus
        if self.source is not None:
            require_again(self.source.path, self.source.pair)
            require_utf8(self.source.path, self.source.pair)

    @property
    def paired(self) -> bool:
        return self.source is not None and self.source.pair is not None

    @property
    def name(self) -> str:
        return "the table" if self.source is None else str(self.source.path or self.source.dataset)

    @property
    def _limit(self) -> int | None:
        return self.limit or (self.source.limit if self.source else None)

    def items(self, settings: Settings) -> Iterator[Record | Problem]:
        if self.source is None:
            found = self._rows(settings)
        elif self.paired:  # the sides have these names, whichever of them is scored
            sides = corpora.records(self.source, SIDES)
            found = (checked(item, settings.fields) if isinstance(item, Record) else item for item in sides)
        else:
            found = corpora.records(self.source, settings.fields)
        return islice(found, self._limit)

    def look(self, settings: Settings) -> None:
        """Refuse what cannot be read at all, before a folder is made. Rows may come only once."""
        if self.source is not None:
            next(self.items(settings), None)

    def about(self, settings: Settings) -> dict[str, Any]:
        """For the table's meta data."""
        source = self.source or Source.model_construct()
        form = "table" if self.source is None else "dataset"
        if source.path is not None:
            form = Corpus(source.path, source.pair, form=source.format).format
        return {
            "path": source.path and str(source.path),
            "pair": source.pair and str(source.pair),
            "dataset": source.dataset and [source.dataset, source.subset, source.split],
            "format": form,
            "columns": source.columns,
            "fields": settings.fields,
            "text_field": settings.text_field,
            "limit": self._limit,
        }

    def digest(self) -> str | None:
        """Of the bytes of its files, one after another; None if it has none."""
        if self.source is None or self.source.path is None:
            return None
        return file_digest(path for path in (self.source.path, self.source.pair) if path)

    def _rows(self, settings: Settings) -> Iterator[Record | Problem]:
        rows = self.rows
        if hasattr(rows, "to_dict") and hasattr(rows, "iterrows"):  # pandas
            rows = rows.to_dict("records")
        elif hasattr(rows, "to_batches"):  # pyarrow
            rows = (row for batch in rows.to_batches() for row in batch.to_pylist())
        for number, row in enumerate(rows, 1):
            if not isinstance(row, Mapping):
                yield Problem(Where(self.name, number), f"a {type(row).__name__}, not a row with named fields")
            else:
                yield checked(Record(Where(self.name, number), dict(row)), settings.fields)


def file_digest(paths: Iterable[Path]) -> str:
    """Of the bytes of some files, one after another."""
    found = hashlib.sha256()
    for path in paths:
        with reading(path), path.open("rb") as file:
            while piece := file.read(2**20):
                found.update(piece)
    return found.hexdigest()
