"""Which examples make up each step: batches of about equal length within a budget of tokens.

The plan of a run follows from the seed alone, not from the number of ranks or micro-batches: those only cut each
step's batch into pieces. So a resumed run goes on with the same batches, and more ranks do the same work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch.utils.data import Sampler

from ..evaluation.encode import IGNORED, pairs
from .alike import WEIGHT

POOL = 20  # batches that are sorted by length together
NOTHING = -1  # an example without tokens, for a piece that would be empty


@dataclass(frozen=True, slots=True)
class Examples:
    """Lengths of the examples, and which corpus each is from."""

    lengths: Any
    groups: Any
    temperature: float = 1.0

    def epoch(self, rng: numpy.random.Generator) -> Any:
        """Every example once, in random order; with a temperature, small corpora more often and large ones less."""
        total = len(self.lengths)
        if self.temperature == 1.0:
            return rng.permutation(total)
        sizes = numpy.bincount(self.groups)
        shares = (sizes / total) ** (1 / self.temperature)
        drawn = []
        for group, want in enumerate(numpy.round(total * shares / shares.sum()).astype(int)):
            members = numpy.flatnonzero(self.groups == group)
            times, rest = divmod(want, max(1, len(members)))
            drawn += [numpy.repeat(members, times), rng.permutation(members)[:rest]]
        return rng.permutation(numpy.concatenate(drawn))


class Plan(Sampler[list[int]]):
    """The micro-batches of one rank, for a whole run.

    Args:
        examples: What there is.
        tokens: Budget of a step: examples times the longest of them.
        steps: Of the run.
        seed: Of the order.
        pieces: Into how many parts a step's batch is cut: ranks times micro-batches.
        rank: Which of them are ours: rank, rank + world, ...
        world: Number of ranks.
    """

    def __init__(
        self, examples: Examples, *, tokens: int, steps: int, seed: int, pieces: int = 1, rank: int = 0, world: int = 1
    ) -> None:
        assert len(examples.lengths)
        assert pieces % world == 0
        self.examples, self.tokens, self.steps, self.seed = examples, tokens, steps, seed
        self.pieces, self.rank, self.world = pieces, rank, world

    def __len__(self) -> int:
        return self.steps * (self.pieces // self.world)

    def __iter__(self) -> Iterator[list[int]]:
        for _, batch in zip(range(self.steps), self.batches(), strict=False):
            for piece in range(self.rank, self.pieces, self.world):
                yield batch[piece :: self.pieces].tolist() or [NOTHING]

    def batches(self) -> Iterator[Any]:
        """Without end, epoch after epoch."""
        epoch = 0
        while True:
            rng = numpy.random.default_rng([self.seed, epoch])
            yield from self._epoch(rng)
            epoch += 1

    def steps_per_epoch(self) -> int:
        """Of the first one; others may be a few longer or shorter."""
        return sum(1 for _ in self._epoch(numpy.random.default_rng([self.seed, 0])))

    def _epoch(self, rng: numpy.random.Generator) -> Iterator[Any]:
        order = self.examples.epoch(rng)
        mean = max(1.0, float(self.examples.lengths.mean()))
        pool = max(1, int(POOL * self.tokens / mean))
        for start in range(0, len(order), pool):
            members = order[start : start + pool]
            members = members[numpy.argsort(self.examples.lengths[members], kind="stable")]
            batches = list(self._cut(members))
            yield from (batches[i] for i in rng.permutation(len(batches)))

    def _cut(self, members: Any) -> Iterator[Any]:
        start = 0
        for end, length in enumerate(self.examples.lengths[members]):  # sorted, so the last is the longest
            if end > start and length * (end + 1 - start) > self.tokens:
                yield members[start:end]
                start = end
        yield members[start:]


class Pairs(torch.utils.data.Dataset[dict[str, Any]]):
    """Source and target of translation or summarization."""

    def __init__(self, source: Any, target: Any, pad: int, weights: Any = None) -> None:
        self.source, self.target, self.pad, self.weights = source, target, pad, weights

    def __len__(self) -> int:
        return len(self.target)

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == NOTHING:
            one = numpy.full(1, self.pad, numpy.int32)
            nothing = {"input_ids": one, "labels": numpy.full(1, IGNORED, numpy.int32)}
            return nothing if self.weights is None else nothing | {WEIGHT: numpy.zeros(1, numpy.float32)}
        row = {"input_ids": self.source[index], "labels": self.target[index]}
        return row if self.weights is None else row | {WEIGHT: self.weights[index]}

    def collate(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        batch = pairs([row["input_ids"] for row in rows], [row["labels"] for row in rows], self.pad)
        if self.weights is not None:
            batch[WEIGHT] = torch.zeros(batch["labels"].shape)
            for place, row in zip(batch[WEIGHT], rows, strict=True):
                place[: len(row[WEIGHT])] = torch.from_numpy(numpy.array(row[WEIGHT], numpy.float32))
        return batch


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """Text packed into rows of equal length: documents one behind the other, with the end token between them."""

    def __init__(self, text: Any, length: int, weights: Any = None) -> None:
        self.text, self.length, self.weights = text, length, weights

    def __len__(self) -> int:
        return len(self.text.tokens) // self.length  # what is left at the end is not a row

    def __getitem__(self, index: int) -> dict[str, Any]:
        start = max(0, index) * self.length
        row = self.text.tokens[start : start + self.length]
        taken = {"input_ids": row, "labels": numpy.full_like(row, IGNORED) if index == NOTHING else row}
        return taken if self.weights is None else taken | {WEIGHT: self.weights.tokens[start : start + self.length]}

    def collate(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        stacked = {key: numpy.stack([row[key] for row in rows]) for key in rows[0]}
        kinds = {WEIGHT: numpy.float32}
        return {key: torch.from_numpy(value.astype(kinds.get(key, numpy.int64))) for key, value in stacked.items()}
