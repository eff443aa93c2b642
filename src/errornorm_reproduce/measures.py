"""The numbers of a finished run, and what each sentence adds to them, so that differences can be tested later."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import torch

from errornorm.data.files import written
from errornorm.data.quarantine import Quarantine
from errornorm.evaluation.judge import batches
from errornorm.evaluation.likelihood import likelihood
from errornorm.evaluation.metrics import Statistics, statistics
from errornorm.evaluation.runs import MEASURES
from errornorm.training import use
from errornorm.training.config import TrainConfig
from errornorm.training.corpora import read
from errornorm.training.rundir import RunDir, read_rows

from .store import packed, unpacked

GREEDY = "_greedy"  # ends the name of a measure
TESTED = {"translation": ["bleu"], "summarization": ["rouge1", "rouge2", "rougeLsum"]}
ROWS = 8  # of text, taken together in the resampling of a language model's perplexity


def of_run(run: RunDir, config: TrainConfig) -> dict[str, Any]:
    """Beam search as in the run, greedy search beside it."""
    row = json.loads(run.evaluation.read_text(encoding="utf-8"))
    saved = use.load(run.path)
    saved.model.to("cuda" if torch.cuda.is_available() else "cpu")
    found = stated(run)
    if config.task == "language-modeling":
        return _facts(run, row, found, {"perplexity": {"": _blocks(saved, config)}})
    sentences = _sentences(read_rows(run.outputs("test")), config)
    greedy, lines = _greedy(run, saved, config)
    found |= {name + GREEDY: number for name, number in greedy.items()}
    sentences |= {name + GREEDY: parts for name, parts in _sentences(lines, config).items()}
    return _facts(run, row, found, sentences) | ({"sets": row["sets"]} if "sets" in row else {})


def stated(run: RunDir) -> dict[str, Any]:
    """What a finished run says of itself."""
    row = json.loads(run.evaluation.read_text(encoding="utf-8"))
    return {name: row[name] for name in (*MEASURES, "num", "tokens") if name in row}


def _facts(run: RunDir, row: dict[str, Any], found: dict[str, Any], sentences: dict[str, Any]) -> dict[str, Any]:
    about = json.loads(run.manifest.read_text(encoding="utf-8"))
    return {
        "measures": found,
        "sentences": sentences,
        "beams": row.get("beams"),
        "signatures": row["signatures"],
        "data_hash": row["data_hash"],
        "parameters": about["parameters"],
    }


def _greedy(run: RunDir, saved: use.Saved, config: TrainConfig) -> tuple[dict[str, float], list[dict[str, str]]]:
    """The mean over test sets, and the outputs; made once."""
    place = run.path.parent / "greedy.json"
    if not place.is_file():
        names = ["rouge" if config.task == "summarization" else "bleu", "copies"]
        asked: dict[str, Any] = {
            "beams": 1,
            "limit": config.evaluation.limit,
            "max_new_tokens": config.evaluation.max_new_tokens,
            **_tokenized(config),
        }
        found = [(part, *use.evaluate(saved, part, metrics=names, **asked)) for part in config.data.test]
        keys = [name for name in MEASURES if name in found[0][1]]
        means = {name: fmean(row[name] for _, row, _ in found) for name in keys}
        lines = [line | {"set": part.languages or ""} for part, _, verdict in found for line in verdict.outputs]
        with written(place) as file:
            json.dump([means, lines], file)
    means, lines = json.loads(place.read_text(encoding="utf-8"))
    return means, lines


def _tokenized(config: TrainConfig) -> dict[str, Any]:
    """How BLEU cuts texts."""
    return {"tokenize": config.evaluation.tokenize, "flores_model": config.evaluation.flores_model}


def _sentences(lines: Iterable[dict[str, str]], config: TrainConfig) -> dict[str, dict[str, str]]:
    parts: dict[str, list[dict[str, str]]] = {}
    for line in lines:
        parts.setdefault(line.get("set", ""), []).append(line)
    out: dict[str, dict[str, str]] = {}
    for part, rows in parts.items():
        outputs, references, sources = ([row[name] for row in rows] for name in ("output", "reference", "source"))
        rows_of = statistics(TESTED[config.task], outputs, references, sources, **_tokenized(config))
        for name, found in rows_of.items():
            out.setdefault(name, {})[part] = packed(found.rows)
    return out


def _blocks(saved: use.Saved, config: TrainConfig) -> str:
    rows: list[Sequence[float]] = []
    with TemporaryDirectory() as folder:
        quarantine = Quarantine(Path(folder) / "quarantine.jsonl")
        texts = list(read(config.data.test[0], "causal", quarantine))[: config.evaluation.limit]
    for batch in batches(saved.model, saved.tokenizer, texts, saved.max_length):
        for begin in range(0, len(batch["labels"]), ROWS):
            found = likelihood(saved.model, [{name: part[begin : begin + ROWS] for name, part in batch.items()}])
            rows.append((found.total, found.tokens))
    return packed(rows)


def restored(name: str, text: str) -> Statistics:
    """Rows of sentences with the score that they add up to."""
    name, rows = name.removesuffix(GREEDY), unpacked(text)
    if name == "perplexity":
        return Statistics(rows, lambda sums: math.exp(sums[0] / sums[1]))
    return replace(statistics([name], ["a"], ["a"], ["a"])[name], rows=rows)
