"""Corpora in every form with tables of scores, made as the scorer makes them but without a model."""

import json
import random
import time
from pathlib import Path

import numpy

from errornorm.data.records import Record
from errornorm.scoring.corpus import Reading
from errornorm.scoring.words import words
from errornorm.training.config import Source
from tests import score_tables

PAIRS = [(f"the dog {i} runs", f"le chien {i} court à la maison") for i in range(10)]


def scored(folder, corpus, *, text_field="target", context="{source}", limit=None, seed=0, values=None, **options):
    """A table of scores of a corpus: a file, the entries of one, or rows.

    Args:
        values: Error norms of each text that can be used; random ones if not given.
    """
    if isinstance(corpus, str | Path):
        corpus = {"path": Path(corpus)}
    reading = Reading(Source(**corpus) if isinstance(corpus, dict) else corpus, limit)
    names = [*([context.strip("{}")] if context else []), text_field]
    rng, rows, bad, given = random.Random(seed), [], [], iter(values or ())
    for number, item in enumerate(reading.items(_Settings(names))):
        if not isinstance(item, Record):
            text = item.raw.decode("utf-8", "replace")
            bad.append({"record": number, "where": str(item.where), "reason": item.reason, "text": text})
            continue
        text = item.text(text_field)
        places = [*words(text), (len(text), len(text))]  # the end token behind them
        norms = next(given, None) if values else [round(rng.uniform(0, 1.4), 2) for _ in places]
        rows.append({
            "record": number, "line": item.where.line, "text": text, "context": item.text(names[0]) if context else "",
            "fields": json.dumps({k: v for k, v in item.fields.items() if k not in names}, default=str),
            "start": [start for start, _ in places][: len(norms)], "end": [end for _, end in places][: len(norms)],
            "error_norm": numpy.asarray(norms, float),
        })  # fmt: skip
    about = reading.about(_Settings(names)) | {"sha256": reading.digest()}
    settings = {"text_field": text_field, "context": context}
    return score_tables.write(folder, rows, quarantine=bad, corpus=about, settings=settings, **options)


def texts_of(corpus, text_field="target"):
    """The texts of a corpus of which every record can be used."""
    names = [text_field] if text_field == "text" else ["source", text_field]
    return [item.text(text_field) for item in Reading(Source(**corpus)).items(_Settings(names))]


class _Settings:
    def __init__(self, fields):
        self.fields, self.text_field = fields, fields[-1]


def lines(count, form):
    """Lines of a file, without their ends, and with a first line of names where there is one."""
    pairs = [PAIRS[i % len(PAIRS)] for i in range(count)]
    if form == "jsonl":
        return [json.dumps({"id": i, "source": a, "target": b}).encode() for i, (a, b) in enumerate(pairs)]
    if form in ("tsv", "bare.tsv"):
        head = [b"id\tsource\ttarget"] if form == "tsv" else []
        return head + [f"{i}\t{a}\t{b}".encode() for i, (a, b) in enumerate(pairs)]
    return [f"{b} {i}".encode() for i, (_, b) in enumerate(pairs)]


def slow_to_end():
    """In a process of its own: it says when all is written, and sleeps before the files get their names."""
    from errornorm.curation import prune

    real = prune.write_removed

    def slow(*args):
        real(*args)
        print("written", flush=True)
        time.sleep(60)

    prune.write_removed = slow
