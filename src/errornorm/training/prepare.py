"""From corpora to tokens in the run directory, once; every later start of the run reads what is there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy

from ..data.lines import DataError, require_again
from ..data.quarantine import Quarantine
from ..evaluation.encode import encode
from . import corpora, store, tokenizing
from .batches import Examples, Pairs, Rows
from .config import Source, TrainConfig
from .presets import Kind
from .store import Ragged, Writer
from .weights import Spans, of_tokens

CHUNK = 1000  # records that are tokenized together
SIDES: dict[Kind, tuple[str, ...]] = {"seq2seq": ("source", "target"), "causal": ("text",)}
Tell = Callable[[str], None]
Item = TypeVar("Item")


@dataclass(slots=True)
class Count:
    """What became of a corpus: records = used + pruned + quarantined. The checksum is that of the texts used."""

    split: str
    name: str
    path: str
    records: int = 0
    used: int = 0
    pruned: int = 0
    quarantined: int = 0
    tokens: int = 0
    sha256: str = ""


@dataclass(frozen=True)
class EvaluationSet:
    name: str
    texts: list[list[str]]  # source and target, or a document
    prefix: str  # what the model reads before each source


@dataclass(frozen=True)
class Prepared:
    """Everything that a run reads."""

    tokenizer: Any
    dataset: Pairs | Rows
    examples: Examples
    valid: list[EvaluationSet]
    test: list[EvaluationSet]
    counts: list[Count]


def prepare(config: TrainConfig, folder: Path, tell: Tell = lambda text: None) -> None:
    """Read, tokenize and write everything to a folder; what is quickly read first, so that mistakes show soon."""
    folder.mkdir(parents=True, exist_ok=True)
    for corpus in (*config.data.train, *config.data.valid, *config.data.test):
        corpora.require_there(corpus)
    copies = [
        _copy(config, corpus, split, folder / f"{split}-{number}.jsonl")
        for split, sets in (("valid", config.data.valid), ("test", config.data.test))
        for number, corpus in enumerate(sets)
    ]
    tokenizer = _tokenizer(config, folder, tell)
    if config.weighted and not tokenizer.is_fast:
        name = type(tokenizer).__name__
        raise ValueError(f"{name} does not know where its tokens stand in the text: weights need a fast tokenizer")
    tokenizer.save_pretrained(folder / "tokenizer")
    counts = []
    with ExitStack() as stack:
        sides = [stack.enter_context(Writer(folder / side)) for side in SIDES[config.kind]]
        if config.weighted:
            sides.append(stack.enter_context(Writer(folder / "weights", store.WEIGHT)))
        for number, corpus in enumerate(config.data.train):
            tell(f"tokenizing {corpus.label}")
            counts.append(_encode(config, tokenizer, corpus, folder / f"train-{number}.quarantine.jsonl", sides))
    length, tokens = config.data.max_length, sum(count.tokens for count in counts)
    if config.kind == "causal" and tokens < length:
        raise DataError(f"{counts[0].path}: {tokens} tokens do not fill one row; lower data.max_length {length}")
    numbers = numpy.arange(len(counts), dtype=numpy.int16)
    numpy.save(folder / "groups.npy", numpy.repeat(numbers, [count.used for count in counts]))
    rows = [asdict(count) for count in (*counts, *copies)]
    (folder / "counts.json").write_text(json.dumps(rows, indent=2, ensure_ascii=False), encoding="utf-8")


def load(config: TrainConfig, folder: Path) -> Prepared:
    """What `prepare` wrote."""
    tokenizer = tokenizing.load(str(folder / "tokenizer"))
    sides = [Ragged(folder / side) for side in SIDES[config.kind]]
    weights = Ragged(folder / "weights", store.WEIGHT) if config.weighted else None
    groups = numpy.load(folder / "groups.npy")
    dataset: Pairs | Rows
    if config.kind == "causal":
        (text,), length = sides, config.data.max_length
        dataset = Rows(text, length, weights)
        # A row is of the corpus that it begins in.
        groups = groups[numpy.searchsorted(text.ends, numpy.arange(len(dataset)) * length, side="right")]
        lengths = numpy.full(len(dataset), length)
    else:
        source, target = sides
        dataset = Pairs(source, target, tokenizer.pad_token_id, weights)
        lengths = numpy.maximum(source.lengths, target.lengths)
    sets = {
        split: [
            EvaluationSet(label, _texts(folder / f"{split}-{i}.jsonl"), prefix(config, x))
            for i, (x, label) in enumerate(zip(parts, labels(parts), strict=True))
        ]
        for split, parts in (("valid", config.data.valid), ("test", config.data.test))
    }
    counts = [Count(**row) for row in json.loads((folder / "counts.json").read_text(encoding="utf-8"))]
    return Prepared(tokenizer, dataset, Examples(lengths, groups, config.data.temperature), **sets, counts=counts)


def labels(sources: Sequence[Source]) -> list[str]:
    """A name for each corpus, also where files in several folders have the same one."""
    names = [source.label for source in sources]
    return [f"{x} ({names[:i].count(x) + 1})" if names.count(x) > 1 else x for i, x in enumerate(names)]


def prefix(config: TrainConfig, corpus: Source) -> str:
    """What the model reads before each source: the language tag, and the configured text."""
    return "" if config.kind == "causal" else (f"{corpus.tag} " if corpus.tag else "") + config.data.prefix


def _tokenizer(config: TrainConfig, folder: Path, tell: Tell) -> Any:
    tags = sorted({source.tag for source in config.data.train if source.tag})
    for place in (config.tokenizer, config.model):
        if place.pretrained is not None:
            return tokenizing.load(place.pretrained, tags, place.download)
    for corpus in config.data.train:
        require_again(corpus.path, corpus.pair)
    tell("training the tokenizer")

    def texts() -> Iterator[str]:
        for corpus in config.data.train:
            unread = Quarantine(folder / ".tokenizer.quarantine.jsonl")  # counted when the corpus is read again
            for record in islice(corpora.read(corpus, config.kind, unread), config.tokenizer.sample):
                yield from record
            unread.path.unlink(missing_ok=True)

    return tokenizing.train_bpe(texts(), config.tokenizer.vocab, config.kind, tags)


def _encode(config: TrainConfig, tokenizer: Any, corpus: Source, aside: Path, sides: Sequence[Writer]) -> Count:
    count, quarantine, digest = _count(corpus, "train"), Quarantine(aside), hashlib.sha256()
    length = config.data.max_length
    for chunk in _chunks(corpora.read_weighted(corpus, config.kind, quarantine)):
        for (texts, spans), rows in zip(chunk, _tokens(config, tokenizer, corpus, chunk), strict=True):
            if config.kind == "seq2seq" and max(map(len, rows)) > length:
                continue
            for side, row in zip(sides, rows, strict=True):
                side.append(row)
            count.used += 1
            count.tokens += len(rows[-1])
            digest.update(_ended([*texts, json.dumps(spans)] if config.weighted else texts))
    if not count.used:
        raise DataError(f"{count.path}: no pair is within data.max_length {length} tokens; raise it")
    return _closed(count, quarantine, digest.hexdigest())


def _tokens(
    config: TrainConfig, tokenizer: Any, corpus: Source, chunk: list[tuple[list[str], Spans]]
) -> Iterable[tuple[Sequence[float], ...]]:
    """Source and target of each record, or its document; and their weights, if there are any."""
    columns = [list(column) for column in zip(*(texts for texts, _ in chunk), strict=True)]
    written = encode(tokenizer, columns[-1], target=config.kind == "seq2seq")
    sides: list[Sequence[Sequence[float]]] = [written]
    if config.kind == "seq2seq":
        before, cut = prefix(config, corpus), config.data.max_length if config.task == "summarization" else None
        sides.insert(0, encode(tokenizer, [before + text for text in columns[0]], cut=cut))
    if config.weighted:
        spans = [own for _, own in chunk]
        sides.append(of_tokens(tokenizer, columns[-1], spans, written, target=config.kind == "seq2seq"))
    return zip(*sides, strict=True)


def _copy(config: TrainConfig, corpus: Source, split: str, path: Path) -> Count:
    """Evaluation texts, as they are."""
    count, quarantine = _count(corpus, split), Quarantine(path.with_suffix(".quarantine.jsonl"))
    digest = hashlib.sha256()
    with path.open("w", encoding="utf-8") as file:
        for texts in corpora.read(corpus, config.kind, quarantine):
            file.write(json.dumps(texts, ensure_ascii=False) + "\n")
            count.used += 1
            digest.update(_ended(texts))
    return _closed(count, quarantine, digest.hexdigest())


def _count(corpus: Source, split: str) -> Count:
    return Count(split, corpus.label, str(corpus.path or corpus.dataset))


def _closed(count: Count, quarantine: Quarantine, sha256: str) -> Count:
    count.records, count.quarantined, count.sha256 = quarantine.records, quarantine.problems, sha256
    count.pruned = count.records - count.used - count.quarantined
    return count


def _ended(texts: Sequence[str]) -> bytes:
    """For a checksum: no text has a NUL, so other texts give other bytes."""
    return "".join(f"{text}\0" for text in texts).encode()


def _texts(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk
