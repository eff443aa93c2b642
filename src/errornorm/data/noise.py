"""Noise on purpose, with the truth about it: which examples, and which words, were made wrong.

Each noise is a function of an example and a supply of other material. It returns the target's words and a label for
each, 1 where a word is wrong. Everything follows from the seed, and works on streams: examples are taken in blocks,
in each of which exactly the asked share is chosen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from ..near import near

BLOCK = 1000  # examples
TRUTH = {"noise", "labels", "example"}  # the fields that say what was done
CLEAN = "clean"
MEMORY = 4096  # sentences and words that other examples are made from
RETRIES = 8  # draws until a noise changes something

Words = list[str]
Labelled = tuple[Words, list[int]]


@dataclass(slots=True)
class Supply:
    """What noise is made from: words and sentences seen so far, and lines of another language."""

    rng: random.Random
    sentences: list[Words]
    words: Words
    foreign: Sequence[str] = ()

    def sentence(self, other_than: Words) -> Words | None:
        found = [s for s in (self.rng.choice(self.sentences) for _ in range(RETRIES)) if s != other_than]
        return list(found[0]) if found else None

    def span(self, length: int, low: float, high: float) -> tuple[int, int]:
        """Begin and end of a random piece that is this share of a sentence, at least a word."""
        size = max(1, min(length, round(self.rng.uniform(low, high) * length)))
        begin = self.rng.randint(0, length - size)
        return begin, begin + size


Noise = Callable[[Words, Words, Supply], Labelled | None]  # source, target -> a new target; None: not possible here


def untranslated(source: Words, target: Words, supply: Supply) -> Labelled | None:
    """The source sentence stands in place of its translation."""
    return (list(source), [1] * len(source)) if source and source != target else None


def misordered(source: Words, target: Words, supply: Supply) -> Labelled | None:
    """The target's words in random order."""
    for _ in range(RETRIES):
        words = supply.rng.sample(target, len(target))
        labels = [int(new != old) for new, old in zip(words, target, strict=True)]
        if any(labels):
            return words, labels
    return None


def misaligned(source: Words, target: Words, supply: Supply) -> Labelled | None:
    """The target of another example."""
    other = supply.sentence(target)
    return None if other is None else (other, [1] * len(other))


def overtranslated(source: Words, target: Words, supply: Supply) -> Labelled | None:
    """A piece of another target is put in: the translation says more than its source."""
    other = supply.sentence(target)
    if other is None:
        return None
    begin, end = supply.span(len(other), 0.3, 0.8)
    at = supply.rng.randint(0, len(target))
    piece = other[begin:end]
    return target[:at] + piece + target[at:], [0] * at + [1] * len(piece) + [0] * (len(target) - at)


def undertranslated(source: Words, target: Words, supply: Supply) -> Labelled | None:
    """A piece is left out. The word behind the gap is the one that comes too early."""
    if len(target) < 2:
        return None
    begin, end = supply.span(len(target) - 1, 0.2, 0.5)
    words = target[:begin] + target[end:]
    return words, [int(i == begin) for i in range(len(words))]


def substituted(source: Words, target: Words, supply: Supply) -> Labelled | None:
    """Some words are replaced by others of the corpus."""
    words, labels = list(target), [0] * len(target)
    for i in supply.rng.sample(range(len(target)), max(1, round(0.2 * len(target)))):
        others = [w for w in (supply.rng.choice(supply.words) for _ in range(RETRIES)) if w != target[i]]
        if others:
            words[i], labels[i] = others[0], 1
    return (words, labels) if any(labels) else None


def wrong_language(source: Words, target: Words, supply: Supply) -> Labelled | None:
    """A sentence of a third language, which the caller supplies."""
    words = supply.rng.choice(supply.foreign).split()
    return (words, [1] * len(words)) if words and words != target else None


def typos(source: Words, target: Words, supply: Supply) -> Labelled | None:
    """Letters of some words are swapped, lost or doubled."""
    words, labels = list(target), [0] * len(target)
    for i in supply.rng.sample(range(len(target)), max(1, round(0.3 * len(target)))):
        words[i] = _mistyped(target[i], supply.rng)
        labels[i] = int(words[i] != target[i])
    return (words, labels) if any(labels) else None


def _mistyped(word: str, rng: random.Random) -> str:
    i = rng.randrange(len(word))
    swap = word[:i] + word[i + 1 : i + 2] + word[i] + word[i + 2 :]
    lose = word[:i] + word[i + 1 :]
    double = word[: i + 1] + word[i:]
    return rng.choice([new for new in (swap, lose, double) if new not in ("", word)])


def repetition(source: Words, target: Words, supply: Supply) -> Labelled | None:
    """A piece is said again, once to three times."""
    begin, end = supply.span(len(target), 0.1, 0.5)
    piece = target[begin:end] * supply.rng.randint(1, 3)
    return target[:end] + piece + target[end:], [0] * end + [1] * len(piece) + [0] * (len(target) - end)


def truncated(source: Words, target: Words, supply: Supply) -> Labelled | None:
    """The target ends early. Its last word is the one that should have gone on."""
    if len(target) < 2:
        return None
    end = supply.rng.randint(1, len(target) - 1)
    return target[:end], [0] * (end - 1) + [1]


NOISES: dict[str, Noise] = {
    "untranslated": untranslated,
    "misordered": misordered,
    "misaligned": misaligned,
    "overtranslated": overtranslated,
    "undertranslated": undertranslated,
    "substituted": substituted,
    "wrong-language": wrong_language,
    "typos": typos,
    "repetition": repetition,
    "truncated": truncated,
}
BILINGUAL = {"untranslated"}  # these need a source


def corrupt(
    examples: Iterable[Mapping[str, Any]],
    noises: Mapping[str, float],
    *,
    mode: Literal["add", "replace"] = "add",
    seed: int = 0,
    source: str = "source",
    target: str = "target",
    foreign: Sequence[str] = (),
) -> Iterator[dict[str, Any]]:
    """Examples with noise, and the truth about it.

    Each example that comes out has `noise` (a name, or "clean"), `labels` (for each word of the target, 1 where it is
    wrong) and `example` (the number of the example that it was made from, from 0).

    Args:
        examples: With a target text and, for some noises, a source text. Other fields are passed through.
        noises: Shares by name, e.g. `{"untranslated": 0.5}`. See `NOISES`.
        mode: "add" keeps every example and adds noisy copies, so many that they are the given share of the clean ones
            (as in the paper: 0.5 added is a third of the mix). "replace" makes that share of the examples noisy.
        seed: Equal seeds give equal noise.
        source, target: Names of the fields.
        foreign: Sentences of another language, for "wrong-language".

    Example:
        >>> pairs = [{"source": "a dog", "target": "un chien"}, {"source": "a cat", "target": "un chat"}]
        >>> for made in corrupt(pairs, {"untranslated": 0.5}):
        ...     print(made["target"], made["noise"], made["labels"])
        un chien clean [0, 0]
        un chat clean [0, 0]
        a cat untranslated [1, 1]
    """
    check(noises, mode, foreign)
    carry = dict.fromkeys(noises, 0.0)
    supply = Supply(random.Random(), [], [], foreign)
    stream, first = iter(examples), 0
    while block := [dict(example) for example in islice(stream, BLOCK)]:
        for i, example in enumerate(block):
            if told := TRUTH & example.keys():
                number = first + i + 1
                raise ValueError(
                    f"record {number} has a field {min(told)!r} already, which would be overwritten: give all noise at "
                    "once, or rename the field"
                )
        supply.rng = random.Random(f"{seed} {first}")
        _learn(supply, [str(example[target]).split() for example in block])
        made: list[tuple[int, dict[str, Any]]] = []
        for name, share in noises.items():
            carry[name] += share * len(block)
            taken = {i for i, _ in made} if mode == "replace" else set()
            free = [i for i in range(len(block)) if i not in taken]
            supply.rng.shuffle(free)
            while carry[name] > 1 - 1e-9 and free:
                i = free.pop()
                noisy = _made(name, first + i, block[i], supply, source, target)
                if noisy is not None:  # else not possible here: another example takes its place
                    made.append((i, noisy))
                    carry[name] -= 1
        replaced = dict(made) if mode == "replace" else {}
        for i, example in enumerate(block):
            clean = _labelled(example, first + i, CLEAN, [0] * len(str(example[target]).split()))
            yield replaced.get(i, clean)
        if mode == "add":
            supply.rng.shuffle(made)
            yield from (noisy for _, noisy in made)
        first += len(block)


def check(noises: Mapping[str, float], mode: str, foreign: Sequence[str]) -> None:
    """Refuse wrong arguments of `corrupt`, before anything is read."""
    if mode not in ("add", "replace"):
        raise ValueError(f"mode={mode!r} must be 'add' or 'replace'")
    for name, share in noises.items():
        if name not in NOISES:
            raise ValueError(f"unknown noise {name!r}{near(name, NOISES)}; there are {', '.join(NOISES)}")
        if not 0 <= share <= 1:
            raise ValueError(f"{name}={share} is a share: give a number from 0 to 1")
    if mode == "replace" and sum(noises.values()) > 1:
        raise ValueError("shares that replace examples cannot be more than 1 together")
    if "wrong-language" in noises and not foreign:
        raise ValueError("wrong-language needs sentences of another language (foreign=, --foreign FILE)")


def _learn(supply: Supply, sentences: list[Words]) -> None:
    supply.sentences = (supply.sentences + [s for s in sentences if s])[-MEMORY:]
    supply.words = (supply.words + [w for s in sentences for w in s])[-MEMORY:]


def _made(
    name: str, index: int, example: dict[str, Any], supply: Supply, source: str, target: str
) -> dict[str, Any] | None:
    if name in BILINGUAL and source not in example:
        raise ValueError(f"{name} needs a source text, and example {index} has no field {source!r}")
    words = str(example[target]).split()
    noisy = NOISES[name](str(example.get(source, "")).split(), words, supply) if words else None
    return None if noisy is None else _labelled({**example, target: " ".join(noisy[0])}, index, name, noisy[1])


def _labelled(example: dict[str, Any], index: int, name: str, labels: list[int]) -> dict[str, Any]:
    return {**example, "noise": name, "labels": labels, "example": index}
