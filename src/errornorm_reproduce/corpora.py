"""The files that cells learn from: made once, from the embedded grammar, from local files, or from the Hub."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from filelock import FileLock

from errornorm.data import grammar
from errornorm.data.files import written
from errornorm.data.noise import corrupt

from . import hub
from .cells import Cell, canonical
from .recipe import DIRECTION, Asked, Example, Splits

SEED = 0  # of noise and of what is drawn: all seeds of a method learn from the same text
DONE = "done.json"
ALIKE = 60  # letters that texts of one project have in common at their beginning
HELD_OUT = 25  # of so many pairs of the manuals one is for the test, and one for development
NATURAL = "europarl-en-fr-natural-noise/enfr_2011_natural_untranslated.jsonl.gz"


def sources(cell: Cell, work: Path, data: Path | None) -> dict[str, list[dict[str, Any]]]:
    """Corpora as in a training configuration, by split."""
    recipe = cell.told["recipe"]
    key = hashlib.sha256(canonical([recipe, cell.facts["noise"]]).encode()).hexdigest()[:16]
    folder = work / "data" / key
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        if not (folder / DONE).is_file():
            _make(RECIPES[recipe["of"]](Asked(recipe, data)), cell.facts["noise"], folder)
        found: dict[str, list[dict[str, Any]]] = json.loads((folder / DONE).read_text(encoding="utf-8"))
    causal = cell.told["task"] == "language-modeling"
    for parts in found.values():
        for part in parts:
            part["path"] = str(folder / part["path"])
            part |= {"text_field": "target"} if causal else {}
    return found


def _make(splits: Splits, noise: Mapping[str, float], folder: Path) -> None:
    """Write each split, and each direction of it, as a file."""
    made: dict[str, list[dict[str, Any]]] = {}
    for split, examples in splits.items():
        files: dict[str | None, IO[str]] = {}
        with ExitStack() as stack:
            for direction, example in _parts(examples, noise if split == "train" else {}):
                if direction not in files:
                    name = f"{split}{f'-{direction}' if direction else ''}.jsonl"
                    files[direction] = stack.enter_context(written(folder / name))
                    made.setdefault(split, []).append({"path": name} | ({DIRECTION: direction} if direction else {}))
                files[direction].write(json.dumps(example, ensure_ascii=False) + "\n")
    with written(folder / DONE) as file:
        json.dump(made, file)


def _parts(examples: Iterable[Example], noise: Mapping[str, float]) -> Iterator[tuple[str | None, Example]]:
    """Each example with its direction. Noise is put into each direction on its own."""
    named = ((example.pop(DIRECTION, None), example) for example in examples)
    if not noise:
        yield from named  # as it comes: ParaCrawl is larger than a memory
        return
    parts: dict[str | None, list[Example]] = {}
    for direction, example in named:
        parts.setdefault(direction, []).append(example)
    for direction, part in parts.items():
        yield from ((direction, example) for example in corrupt(part, noise, seed=SEED))


def _cut(examples: Iterator[Example], asked: Asked) -> Splits:
    """First the development and test sets, then what is learnt from."""
    valid, test = (list(islice(examples, asked[name])) for name in ("valid", "test"))
    return {"valid": valid, "test": test, "train": islice(examples, asked.get("train"))}


def _pairs(asked: Asked) -> Iterator[Example]:
    num = sum(asked[name] for name in ("train", "valid", "test"))
    for caption, french in grammar.corpus(num, SEED):
        yield {"source": caption.english, "target": french}


def captions(asked: Asked) -> Splits:
    return _cut(_pairs(asked), asked)


def caption_text(asked: Asked) -> Splits:
    return _cut(({"target": pair["target"]} for pair in _pairs(asked)), asked)


def caption_summaries(asked: Asked) -> Splits:
    """Two captions make a document; the first one's French is its summary."""
    pairs = list(_pairs(asked))
    others = random.Random(SEED).sample(pairs, len(pairs))
    both = zip(pairs, others, strict=True)
    return _cut(({"source": f"{a['source']} . {b['source']}", "target": a["target"]} for a, b in both), asked)


def caption_directions(asked: Asked) -> Splits:
    """English to French and back, each as large as asked."""
    out: dict[str, list[Example]] = {}
    for direction, size in zip(("fr-en", "en-fr"), asked["sizes"], strict=True):
        for split, part in captions(Asked(dict(asked.entries) | {"train": size}, None)).items():
            turned = direction == "fr-en"
            out.setdefault(split, []).extend(
                {"source": pair["target" if turned else "source"], "target": pair["source" if turned else "target"],
                 DIRECTION: direction} for pair in part
            )  # fmt: skip
    return dict(out)


def natural_captions(asked: Asked) -> Splits:
    """As if a part had not been translated: the labels are those of the real corpus."""
    splits = captions(asked)
    noisy = corrupt(splits["train"], {"untranslated": 0.4}, mode="replace", seed=SEED)
    truth = ({"source": x["source"], "target": x["target"], "label": int(x["noise"] != "clean")} for x in noisy)
    return splits | {"train": list(truth)}


def multi30k(asked: Asked) -> Splits:
    several, source = len(asked["languages"]) > 1, asked.get("source", "en")
    sizes = asked.get("sizes", [None] * len(asked["languages"]))

    def read(split: str) -> Iterator[Example]:
        for language, size in zip(asked["languages"], sizes, strict=True):
            more = {DIRECTION: f"{source}-{language}"} if several else {}
            pairs = _aligned(asked, f"multi30k/{split}", source, language)
            yield from (pair | more for pair in islice(pairs, size if split == "train" else None))

    return {"train": read("train"), "valid": read("val"), "test": read("test_2016_flickr")}


def wikitext2(asked: Asked) -> Splits:
    return {
        split: ({"target": line.strip()} for line in _lines(asked.file(f"wikitext-2/{split}.txt.gz")) if line.strip())
        for split in ("train", "valid", "test")
    }


def debian(asked: Asked) -> Splits:
    """Packages of one project have nearly the same description: they go to the same side."""
    groups: dict[str, list[Example]] = {}
    for row in map(json.loads, _lines(asked.file("debian-long-to-short/data.jsonl.gz"))):
        example = {"source": row["document"], "target": row["summary"]}
        groups.setdefault(row["document"][:ALIKE], []).append(example)
    order = sorted(groups)
    random.Random(SEED).shuffle(order)
    held = asked["valid"] + asked["test"]
    alone = [name for name in order if len(groups[name]) == 1][:held]
    kept = set(alone)
    first = (groups[name][0] for name in alone)
    rest = (example for name in order if name not in kept for example in groups[name])
    return _cut(chain(first, rest), asked)


def debian_gaps(asked: Asked) -> Splits:
    """To learn the language of descriptions before the task: the first sentence from the rest of the text."""

    def gaps(examples: Iterable[Example]) -> Iterator[Example]:
        for example in examples:
            first, _, rest = " ".join(example["source"].split()).partition(". ")
            if rest:
                yield {"source": rest, "target": f"{first}."}

    return {split: gaps(examples) for split, examples in debian(asked).items()}


def tatoeba(asked: Asked) -> Splits:
    """Short sentences of everyday life."""
    return _english_french(asked, "tatoeba-en-fr")


def manuals(asked: Asked) -> Splits:
    """Documentation of Python; sentences that are not too long."""

    def read(keep: Callable[[int], bool]) -> Iterator[Example]:
        pairs = _aligned(asked, "python-docs-en-fr/pairs", "en", "fr")
        return _short((pair for number, pair in enumerate(pairs) if keep(number % HELD_OUT)), asked)

    return {
        "train": read(lambda rest: rest > 1),
        "valid": read(lambda rest: rest == 1),
        "test": read(lambda rest: rest == 0),
    }


def europarl(asked: Asked) -> Splits:
    """Translated proceedings; sentences that are not too long."""
    return {split: _short(pairs, asked) for split, pairs in _english_french(asked, "europarl-en-fr").items()}


def _english_french(asked: Asked, folder: str) -> Splits:
    files = {"train": "train", "valid": "dev", "test": "test"}
    return {split: _aligned(asked, f"{folder}/{name}", "en", "fr") for split, name in files.items()}


def _aligned(asked: Asked, name: str, source: str, target: str) -> Iterator[Example]:
    """Two files that differ in the end of their names."""
    sides = (_lines(asked.file(f"{name}.{language}.gz")) for language in (source, target))
    return ({"source": a, "target": b} for a, b in zip(*sides, strict=True))


def europarl_natural(asked: Asked) -> Splits:
    """Learn from text as it was published; measure on translated text."""
    rows = map(json.loads, _lines(asked.file(NATURAL)))
    train = ({"source": row["src"], "target": row["tgt"], "label": row["noise"]} for row in rows)
    return europarl(asked) | {"train": _short(train, asked)}


def _short(examples: Iterable[Example], asked: Asked) -> Iterator[Example]:
    return (example for example in examples if len(example["source"].split()) <= asked["words"])


def mlqe(asked: Asked) -> Splits:
    """Machine translations whose words people judged; to be scored, not to learn from."""
    rows = map(json.loads, _lines(asked.file(f"mlqe-pe-word-level/{asked['pair']}.train.jsonl.gz")))
    return {"train": ({"source": r["src"], "target": " ".join(r["mt_words"]), "labels": r["labels"]} for r in rows)}


RECIPES: dict[str, Callable[[Asked], Splits]] = {
    "captions": captions,
    "caption-text": caption_text,
    "caption-summaries": caption_summaries,
    "caption-directions": caption_directions,
    "natural-captions": natural_captions,
    "multi30k": multi30k,
    "wikitext-2": wikitext2,
    "debian-long-to-short": debian,
    "debian-gaps": debian_gaps,
    "mlqe": mlqe,
    "tatoeba-en-fr": tatoeba,
    "python-docs-en-fr": manuals,
    "europarl-en-fr": europarl,
    "europarl-en-fr-natural-noise": europarl_natural,
    **hub.RECIPES,
}


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.rstrip("\r\n")
