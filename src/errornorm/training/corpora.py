"""Texts of a configured corpus: from files, or from the data sets library. What cannot be used is quarantined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from ..allocators import lacking
from ..data.lines import DataError, Problem, Where
from ..data.quarantine import Quarantine
from ..data.records import Corpus, Record, checked
from ..data.values import MISSING, value_at
from .config import Source
from .presets import Kind
from .weights import Spans, spans_of


def source_of(entries: Mapping[str, Any]) -> Source:
    """From the entries of a corpus as in a configuration."""
    from pydantic import ValidationError

    try:
        return Source.model_validate(dict(entries))
    except ValidationError as error:
        said = (
            ": ".join([*map(str, one["loc"]), one["msg"].removeprefix("Value error, ")])
            for one in error.errors(include_url=False)
        )
        raise ValueError(f"the corpus: {'; '.join(said)}") from error


def require_there(source: Source) -> None:
    """Refuse files that are missing, before any is read."""
    for path in filter(None, (source.path, source.pair)):
        try:
            path.stat()
        except OSError as error:
            raise DataError(f"{path}: {error.strerror or error}; check the name") from error


def fields(source: Source, kind: Kind) -> list[str]:
    """Names of the texts of a record."""
    return [source.text_field] if kind == "causal" else [source.source_field, source.target_field]


def read(source: Source, kind: Kind, quarantine: Quarantine) -> Iterator[list[str]]:
    """The texts of each record: source and target, or a document."""
    for texts, _ in read_weighted(source, kind, quarantine):
        yield texts


def read_weighted(source: Source, kind: Kind, quarantine: Quarantine) -> Iterator[tuple[list[str], Spans]]:
    """The same, with the weights of the last text."""
    names, field = fields(source, kind), source.weights_field
    items = records(source, names)
    if field is not None:
        items = (_weighted(item, field, names[-1]) for item in items)
    for record in quarantine.filter(islice(items, source.limit)):
        yield [record.text(name) for name in names], [] if field is None else record.fields[field]
    if not quarantine.used:
        first = next(iter(quarantine.reasons), "it is empty")
        raise DataError(
            f"{source.path or source.dataset}: no record can be used ({first}); check the format and the fields' names"
        )


def records(source: Source, names: Sequence[str]) -> Iterator[Record | Problem]:
    """Of a corpus, with the fields that must be there as texts; a dotted name is a field too."""
    items = _dataset(source) if source.path is None else _file(source, source.path, names)
    dotted = [name for name in names if "." in name]
    for item in items:
        if isinstance(item, Record):
            for name in dotted:
                item = _found(item, name)
            item = checked(item, names)
        yield item


def _weighted(item: Record | Problem, field: str, text: str) -> Record | Problem:
    if isinstance(item, Problem):
        return item
    item = _found(item, field)
    spans = spans_of(item, field, item.text(text))
    return spans if isinstance(spans, Problem) else Record(item.where, item.fields | {field: spans})


def _found(record: Record, name: str) -> Record:
    """With what lies inside objects under a name such as `translation.en` by this name, if it is there."""
    value = value_at(record.fields, name)
    return record if value is MISSING else Record(record.where, record.fields | {name: value})


def _file(source: Source, path: Path, names: Sequence[str]) -> Iterable[Record | Problem]:
    form = Corpus(path, source.pair, form=source.format).format
    if source.pair is not None and form == "text":
        form = "pairs"
    if source.pair is not None and form != "pairs":
        raise DataError(f"{path}: {form} has both sides in one file: remove pair, or the format")
    if form == "pairs" and len(names) == 1:
        raise DataError(f"{path}: language modelling reads one text: leave out its other side, {source.pair}")
    if form == "text" and len(names) == 2:
        raise DataError(f"{path}: one text file has no targets: give the other side as pair, or use JSONL or TSV")
    columns = names if form in ("text", "pairs") else source.columns
    needs = names if form == "tsv" else ()
    return Corpus(path, source.pair, form=form, needs=needs, columns=columns)


def _dataset(source: Source) -> Iterator[Record]:
    """Streamed, since it may be larger than memory; a slice such as `train[:10%]` cannot be."""
    try:
        import datasets
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError("data sets need the package datasets: pip install errornorm[train]") from error
    datasets.disable_progress_bars()  # they would break ours
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # errors are told once, by us
    name, split = str(source.dataset), source.split
    if not source.download and not Path(name).exists():
        raise DataError(f"{name}: cannot be loaded: no folder here; check the name, or set download: true")
    try:
        _refuse_outside(Path(name))
        rows = datasets.load_dataset(name, source.subset, split=split, streaming=not set("[+") & set(split))
        for number, row in enumerate(rows, 1):
            yield Record(Where(name, number), dict(row))
    except (OSError, ValueError, RuntimeError, yaml.YAMLError, datasets.exceptions.DatasetsError) as error:
        if lacking(error):
            raise
        raise DataError(f"{name}: cannot be loaded: {' '.join(str(error).split())}") from error


def _refuse_outside(folder: Path) -> None:
    """What a folder's own description names must be in the folder."""
    for path in (folder / "README.md", folder / ".huggingface.yaml"):
        for name in _texts(_described(path)) if path.is_file() else ():
            if "://" in name or PurePath(name).is_absolute() or ".." in PurePath(name).parts:
                raise DataError(f"{path}: it names {name!r}, which is not in the folder: remove this name")


def _described(path: Path) -> Any:
    """Where a description says which files belong to a data set; read as the library reads it."""
    import yaml
    from huggingface_hub import DatasetCard

    card = path.suffix == ".md"
    about = DatasetCard.load(path).data.to_dict() if card else yaml.safe_load(path.read_text(encoding="utf-8"))
    return about.get("configs") if isinstance(about, dict) else None


def _texts(value: Any) -> Iterator[str]:
    """All of them, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
