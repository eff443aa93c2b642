"""Tables of scores for tests: from a few words to a hundred thousand random rows, without a model.

    scores = write(tmp_path / "scores", [{"text": "un chien court", "error_norm": [0.1, 1.2, 0.4]}])
    scores = write(tmp_path / "scores", random_rows(100, seed=0), quarantine=[bad_line(7, "not JSON")])

A row needs a text. Its tokens are its words, unless it has `start` and `end`; a statistic that is missing is filled in
from the others, as if the rest of the probability were on one other entry.
"""

import json
import random
from collections import Counter
from itertools import count, islice
from pathlib import Path

import numpy
import pyarrow as pa

from errornorm.scoring.table import META, PART, QUARANTINE, SCHEMA, STATISTICS, VERSION, Scores, write_part
from errornorm.scoring.words import of_words, word_of, words

COMMAND = ["errornorm", "score", "corpus.jsonl", "--model", "model", "-o", "scores"]
MODEL = {"path": "model", "name": "TinyForCausalLM", "parameters": 1234, "vocab": 100, "kind": "causal",
         "sha256": "0" * 64}  # fmt: skip
CORPUS = {"path": "corpus.jsonl", "pair": None, "format": "jsonl", "columns": None, "dataset": None,
          "sha256": "f" * 64, "text_field": "target", "fields": ["source", "target"]}  # fmt: skip
FRENCH = ["un", "une", "le", "chien", "chat", "court", "dort", "mange", "sur", "maison", "rouge", "petit"]
ENGLISH = ["the", "dog", "runs", "house", "with", "and", "but", "small", "red"]


def write(folder, rows, *, quarantine=(), cutoff=1.0, part_rows=50_000, **meta):
    """A finished folder of scores. `meta` replaces entries of meta.json; dicts are merged."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    quarantine, counts, parts = list(quarantine), Counter(), 0
    bad = {line["record"] for line in quarantine if "record" in line}
    records, rows = (number for number in count() if number not in bad), iter(rows)
    while some := list(islice(rows, part_rows)):
        full = [complete(row, cutoff, next(records) if "record" not in row else row["record"]) for row in some]
        counts.update(used=len(full), tokens=sum(len(row["token"]) for row in full))
        counts["words"] += sum(len(row["word_start"]) for row in full)
        write_part(folder / PART.format(parts), pa.Table.from_pylist(full, SCHEMA))
        parts += 1
    if quarantine:
        lines = [
            json.dumps({k: line[k] for k in ("where", "reason", "text")}, ensure_ascii=False) for line in quarantine
        ]
        (folder / QUARANTINE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    described = {
        "schema": VERSION, "errornorm": "0.1.0", "command": COMMAND, "versions": {"torch": "2.9.0"}, "model": MODEL,
        "corpus": CORPUS, "settings": {"cutoff": cutoff, "alternatives": 5, "dtype": "float32"},
        "records": counts["used"] + len(quarantine), "used": counts["used"], "quarantined": len(quarantine),
        "reasons": dict(Counter(line["reason"].partition(" (")[0] for line in quarantine)),
        "tokens": counts["tokens"], "words": counts["words"], "parts": parts,
    }  # fmt: skip
    for name, value in meta.items():
        described[name] = {**described[name], **value} if isinstance(value, dict) else value
    (folder / META).write_text(json.dumps(described, indent=1), encoding="utf-8")
    return Scores.open(folder)


def complete(row, cutoff=1.0, record=0):
    """A row of the schema from a simple one."""
    text = row["text"]
    spans = words(text)
    starts = list(row.get("start", [start for start, _ in spans]))
    ends = list(row.get("end", [end for _, end in spans]))
    stats = _statistics(row, len(starts))
    fields = row.get("fields", {})
    made = {
        "record": record, "line": row.get("line", record + 1), "context": row.get("context", ""), "text": text,
        "fields": fields if isinstance(fields, str) else json.dumps(fields, ensure_ascii=False),
        "token": list(row.get("token", range(len(starts)))), "start": starts, "end": ends, **stats,
        "alternatives": row.get("alternatives", _alternatives(stats, cutoff)),
        "word_start": [start for start, _ in spans], "word_end": [end for _, end in spans],
    }  # fmt: skip
    owners = word_of(list(zip(starts, ends, strict=True)), spans)
    above = (stats["error_norm"] > cutoff).astype(numpy.float32)
    for name in ("nll", "error_norm"):
        made[f"word_{name}_mean"], made[f"word_{name}_max"] = of_words(stats[name], owners, len(spans))
    made["word_above"] = of_words(above, owners, len(spans))[0]
    for name in ("nll", "error_norm", "entropy"):
        values = stats[name].astype(numpy.float64)
        made[f"{name}_mean"] = float(values.mean()) if len(values) else None
        made[f"{name}_max"] = float(values.max()) if len(values) else None
    made["above"] = float(above.mean()) if len(above) else None
    return made


def _statistics(row, count):
    """All five; p from the loss, the error norm, or one half."""
    given = {name: numpy.asarray(row[name], numpy.float64) for name in STATISTICS if name in row}
    if "p_target" in given:
        p = given["p_target"]
    elif "nll" in given:
        p = numpy.exp(-given["nll"])
    else:
        p = 1 - numpy.clip(given.get("error_norm", numpy.full(count, 0.5)) / numpy.sqrt(2), 0, 0.999999)
    rest = 1 - p
    with numpy.errstate(divide="ignore", invalid="ignore"):
        entropy = -numpy.nan_to_num(p * numpy.log(p)) - numpy.nan_to_num(rest * numpy.log(rest))
        made = {"nll": -numpy.log(p), "error_norm": numpy.sqrt(2) * rest, "entropy": entropy, "p_target": p,
                "margin": p - rest}  # fmt: skip
    made = {name: given.get(name, made[name]).astype(numpy.float32) for name in STATISTICS}
    assert all(len(values) == count for values in made.values()), f"{count} tokens: {row}"
    return made


def _alternatives(stats, cutoff):
    return [
        {"token": place, "rank": 2, "texts": ["le", "la"], "p": [1 - float(stats["p_target"][place]), 0.0]}
        for place in numpy.flatnonzero(stats["error_norm"] > cutoff).tolist()
    ]


def bad_line(line, reason="not JSON", text="{oops", record=None):
    """A line for the quarantine."""
    return {
        "where": f"corpus.jsonl:{line}",
        "reason": reason,
        "text": text,
        "record": line - 1 if record is None else record,
    }


def random_rows(num, seed=0, *, sources=("web", "books", "talks"), noisy=0.2, longest=18):
    """Rows of clean and noisy sentences, with fields `source_name`, `noise` and `labels` (1 for a noisy word)."""
    rng = random.Random(seed)
    for number in range(num):
        size = rng.randint(3, longest)
        bad = rng.random() < noisy
        labels = [int(bad and rng.random() < 0.6) for _ in range(size)]
        tokens = [rng.choice(ENGLISH if label else FRENCH) for label in labels]
        p = numpy.array([rng.betavariate(0.6, 4) if label else rng.betavariate(3, 1.2) for label in labels])
        p = numpy.clip(p, 1e-6, 1 - 1e-6)
        best = numpy.array([rng.random() for _ in range(size)]) * (1 - p)  # the largest of the other entries
        rest = numpy.maximum(1 - p - best, 1e-9)
        norm = numpy.sqrt((1 - p) ** 2 + best**2 + rest**2 / 50)
        entropy = -p * numpy.log(p) - best * numpy.log(numpy.maximum(best, 1e-9)) - rest * numpy.log(rest / 50)
        yield {
            "text": " ".join(tokens), "context": " ".join(rng.choice(ENGLISH) for _ in range(size)),
            "fields": {"source_name": rng.choice(sources), "noise": "untranslated" if bad else "none",
                       "labels": labels, "number": number},
            "nll": -numpy.log(p), "error_norm": norm, "entropy": entropy, "p_target": p, "margin": p - best,
            "alternatives": [
                {"token": place, "rank": rng.randint(2, 40), "texts": rng.sample(FRENCH, 5),
                 "p": sorted([float(best[place]), *[float(rest[place]) / 50] * 4], reverse=True)}
                for place in numpy.flatnonzero(norm > 1.0).tolist()
            ],
        }  # fmt: skip
