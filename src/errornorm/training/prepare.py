"""From corpora to tokens in the run directory, once; every later start of the run reads what is there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy

from ..data.files import Quarantine
from ..data.lines import DataError
from ..evaluation.encode import encode
from . import corpora, tokenizing
from .batches import Examples, Pairs, Rows
from .config import Source, TrainConfig
from .presets import Kind
from .store import Ragged, Writer

CHUNK = 1000  # records that are tokenized together
SIDES: dict[Kind, tuple[str, ...]] = {"seq2seq": ("source", "target"), "causal": ("text",)}
Tell = Callable[[str], None]


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
    """Read, tokenize and write everything to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(config, folder, tell)
    tokenizer.save_pretrained(folder / "tokenizer")
    counts = []
    with ExitStack() as stack:
        sides = [stack.enter_context(Writer(folder / side)) for side in SIDES[config.kind]]
        for number, corpus in enumerate(config.data.train):
            tell(f"tokenizing {corpus.label}")
            counts.append(_encode(config, tokenizer, corpus, folder / f"train-{number}.quarantine.jsonl", sides))
    length, tokens = config.data.max_length, sum(count.tokens for count in counts)
    if config.kind == "causal" and tokens < length:
        raise DataError(f"{counts[0].path}: {tokens} tokens do not fill one row; lower data.max_length {length}")
    numbers = numpy.arange(len(counts), dtype=numpy.int16)
    numpy.save(folder / "groups.npy", numpy.repeat(numbers, [count.used for count in counts]))
    for split, sets in (("valid", config.data.valid), ("test", config.data.test)):
        for number, corpus in enumerate(sets):
            counts.append(_copy(config, corpus, split, folder / f"{split}-{number}.jsonl"))
    rows = [asdict(count) for count in counts]
    (folder / "counts.json").write_text(json.dumps(rows, indent=2, ensure_ascii=False), encoding="utf-8")


def load(config: TrainConfig, folder: Path) -> Prepared:
    """What `prepare` wrote."""
    tokenizer = tokenizing.load(str(folder / "tokenizer"))
    sides = [Ragged(folder / side) for side in SIDES[config.kind]]
    groups = numpy.load(folder / "groups.npy")
    dataset: Pairs | Rows
    if config.kind == "causal":
        (text,), length = sides, config.data.max_length
        dataset = Rows(text, length)
        # A row is of the corpus that it begins in.
        groups = groups[numpy.searchsorted(text.ends, numpy.arange(len(dataset)) * length, side="right")]
        lengths = numpy.full(len(dataset), length)
    else:
        source, target = sides
        dataset = Pairs(source, target, tokenizer.pad_token_id)
        lengths = numpy.maximum(source.lengths, target.lengths)
    sets = {
        split: [
            EvaluationSet(x.label, _texts(folder / f"{split}-{i}.jsonl"), prefix(config, x))
            for i, x in enumerate(parts)
        ]
        for split, parts in (("valid", config.data.valid), ("test", config.data.test))
    }
    counts = [Count(**row) for row in json.loads((folder / "counts.json").read_text(encoding="utf-8"))]
    return Prepared(tokenizer, dataset, Examples(lengths, groups, config.data.temperature), **sets, counts=counts)


def prefix(config: TrainConfig, corpus: Source) -> str:
    """What the model reads before each source: the language tag, and the configured text."""
    return "" if config.kind == "causal" else (f"{corpus.tag} " if corpus.tag else "") + config.data.prefix


def _tokenizer(config: TrainConfig, folder: Path, tell: Tell) -> Any:
    tags = sorted({source.tag for source in config.data.train if source.tag})
    if name := config.tokenizer.pretrained or config.model.pretrained:
        return tokenizing.load(name, tags)
    tell("training the tokenizer")

    def texts() -> Iterator[str]:
        for corpus in config.data.train:
            unread = Quarantine(folder / ".tokenizer.quarantine.jsonl")  # counted when the corpus is read again
            for record in islice(corpora.read(corpus, config.kind, unread), config.tokenizer.sample):
                yield from record
            unread.path.unlink(missing_ok=True)

    return tokenizing.train_bpe(texts(), config.tokenizer.vocab, config.kind, tags)


@dataclass(slots=True)
class _Reading:
    """A corpus that is being read: what was used of it."""

    config: TrainConfig
    corpus: Source
    aside: Path
    used: int = 0
    tokens: int = 0
    digest: Any = field(default_factory=hashlib.sha256)
