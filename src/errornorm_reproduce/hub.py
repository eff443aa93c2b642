"""The corpora of the scale paper: by `datasets` from the Hugging Face Hub, ParaCrawl from its own site.

What is loaded from the Hub is Parquet there: `datasets` runs no loading scripts any more. Names, subsets and columns
are those of the dataset cards. A folder of the same name where the command runs is taken instead. To ask for this scale
is to ask for what it fetches.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from filelock import FileLock

from .recipe import DIRECTION, Asked, Example, Splits

SPLITS = {"train": "train", "valid": "validation", "test": "test"}  # ours: theirs
OPUS, WIKITEXT, CNN = "Helsinki-NLP/opus-100", "Salesforce/wikitext", "abisee/cnn_dailymail"
WMT22 = "haoranxu/WMT22-Test"  # by an author of the paper; its column is named as its subset
# Release 9 has languages of Europe; Russian and Chinese came as a bonus. The files have a tab between the sides.
PARACRAWL = {
    "cs": "https://s3.amazonaws.com/web-language-models/paracrawl/release9/en-cs/en-cs.txt.gz",
    "ru": "https://s3.amazonaws.com/web-language-models/paracrawl/bonus/en-ru.txt.gz",
    "zh": "https://s3.amazonaws.com/web-language-models/paracrawl/bonus/en-zh-v1.txt.gz",
}
HELD = 2000  # pairs of ParaCrawl, which has no development set
FLORES = "flores200"  # how BLEU cuts texts in the paper
FLORES_PLACES = ("flores200_sacrebleu_tokenizer_spm.model", "sentencepiece.bpe.model")  # names of the same file
FLORES_HUB = ("facebook/nllb-200-distilled-600M", "sentencepiece.bpe.model")


def opus100(asked: Asked) -> Splits:
    """Subsets are named by their languages in alphabetical order: de-en, en-fr."""
    languages = asked["languages"]
    sizes = asked.get("sizes", [None] * len(languages))

    def read(split: str) -> Iterator[Example]:
        for language, size in zip(languages, sizes, strict=True):
            rows = _loaded(OPUS, "-".join(sorted(("en", language))), SPLITS[split])
            more = {DIRECTION: f"en-{language}"} if len(languages) > 1 else {}
            for row in islice(rows, size if split == "train" else None):
                yield {"source": row["translation"]["en"], "target": row["translation"][language], **more}

    return {split: read(split) for split in SPLITS}


def wikitext103(asked: Asked) -> Splits:
    """Lines; where one ends, the tokenizer's end token stands for the line break."""

    def read(split: str) -> Iterator[Example]:
        texts = (row["text"].strip() for row in _loaded(WIKITEXT, "wikitext-103-raw-v1", SPLITS[split]))
        return ({"target": text} for text in texts if text)

    return {split: read(split) for split in SPLITS}


def cnn_dailymail(asked: Asked) -> Splits:
    def read(split: str) -> Iterator[Example]:
        for row in _loaded(CNN, "3.0.0", SPLITS[split]):
            yield {"source": row["article"], "target": row["highlights"]}

    return {split: read(split) for split in SPLITS}


def paracrawl(asked: Asked) -> Splits:
    """Learn from ParaCrawl; test on WMT22. Lines without two sides are left out."""
    (language,) = asked["languages"]
    pair = f"en-{language}"
    pairs = _tabbed(PARACRAWL[language])
    held = islice(pairs, HELD)
    rows = (row[pair] for row in _loaded(WMT22, pair, "test"))
    test = ({"source": row["en"], "target": row[language]} for row in rows)
    return {"valid": list(held), "train": pairs, "test": test}


RECIPES: dict[str, Callable[[Asked], Splits]] = {
    "opus-100": opus100,
    "wikitext-103": wikitext103,
    "cnn-dailymail": cnn_dailymail,
    "paracrawl": paracrawl,
}


def evaluation(told: Mapping[str, Any], work: Path, data: Path | None) -> dict[str, Any]:
    """The section of a configuration, with the file that BLEU needs for flores200."""
    if told.get("tokenize") != FLORES:
        return dict(told)
    return {**told, "flores_model": _flores(work / "data" / "flores200.model", data)}


def _flores(place: Path, data: Path | None) -> Path:
    """A copy in the work folder: a run that goes on finds it under the same name. The library checks its checksum."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(place.with_suffix(".lock")):
        if not place.is_file():
            given = [path for name in FLORES_PLACES if data is not None and (path := data / name).is_file()]
            part = place.with_suffix(".part")
            shutil.copyfile(given[0] if given else _from_hub(*FLORES_HUB), part)
            part.replace(place)
    return place


def _from_hub(name: str, file: str) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(name, file))
    except OSError as error:
        raise ValueError(
            f"{file} of {name}, by which BLEU cuts texts (flores200), cannot be loaded: "
            f"{' '.join(str(error).split())[:200]}; put it into a folder, and give that with --data"
        ) from error


def _loaded(name: str, subset: str, split: str) -> Iterator[dict[str, Any]]:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ImportError("the scale paper needs more packages: pip install errornorm[train]") from error
    yield from load_dataset(name, subset, split=split)


def _tabbed(url: str) -> Iterator[Example]:
    from datasets import DownloadManager

    with gzip.open(DownloadManager().download(url), "rt", encoding="utf-8", newline="\n") as file:
        for line in file:
            source, *rest = line.rstrip("\r\n").split("\t")
            if rest and source.strip() and rest[0].strip():
                yield {"source": source, "target": rest[0]}
