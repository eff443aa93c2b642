"""Settings that all corpora of a run must have, or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .. import specs
from .settings import refused

if TYPE_CHECKING:
    from .config import Data, Source

WEIGHT = "token_weight"  # the column of the batches


def languages(data: Data) -> None:
    """A model learns tags from all corpora, or knows none."""
    found: dict[bool, str] = {}
    for _, key, source in _corpora(data):
        found.setdefault(source.languages is not None, f"{key}.languages")
    if len(found) > 1:
        raise refused(found[False], f"is missing, but {found[True]} is given; give it to all corpora, or to none")


def weights(data: Data, method: str) -> None:
    """An objective has weights from every corpus, or does not know them; evaluation never does."""
    wanted = WEIGHT in specs.objective(method).columns
    for split, key, source in _corpora(data):
        key, given = f"{key}.weights_field", source.weights_field is not None
        if given and split != "train":
            raise refused(key, "evaluation has no weights; remove it")
        if given and not wanted:
            raise refused(key, f"{method} does not use weights; set objective: weighted, or remove it")
        if wanted and not given and split == "train":
            raise refused("objective", f"needs a weight of each token, and a corpus does not have it; give {key}")


def _corpora(data: Data) -> Iterator[tuple[str, str, Source]]:
    for split, sources in (("train", data.train), ("valid", data.valid), ("test", data.test)):
        for number, source in enumerate(sources):
            yield split, f"data.{split}.{number}", source
