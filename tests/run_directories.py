"""Run directories as training leaves them, with outputs whose quality is known."""

import json
import random

from errornorm.evaluation import metrics

WORDS = "the a house dog green old sees likes never always she he walks home today it is was and or".split()  # noqa: SIM905
SOURCES = "das ein haus hund gruen alt sieht mag nie immer sie er geht heim heute es ist war und oder".split()  # noqa: SIM905


def sentences(num=60, seed=0):
    draw = random.Random(seed)
    indices = [[draw.randrange(len(WORDS)) for _ in range(draw.randrange(5, 12))] for _ in range(num)]
    return [" ".join(SOURCES[i] for i in row) for row in indices], [" ".join(WORDS[i] for i in row) for row in indices]


def translated(errors, num=60, seed=0):
    """The references with this share of wrong words."""
    draw = random.Random(f"{errors} {seed}")
    return [" ".join(draw.choice(WORDS) if draw.random() < errors else word for word in text.split())
            for text in sentences(num)[1]]  # fmt: skip


def write(folder, method="mle", seed=0, outputs=None, *, names=("bleu", "copies"), curve=None, task="translation",
          manifest=None, texts=True, **changes):  # fmt: skip
    """A run directory, as training leaves it."""
    folder.mkdir(parents=True)
    outputs = translated(0.3, seed=seed) if outputs is None else outputs
    sources, references = sentences(len(outputs))
    values, signatures = metrics.measure(names, outputs, references, sources)
    known = {"method": method, "seed": seed, "data_hash": "d" * 64, "errornorm": "0.1.0"}
    evaluation = known | {"split": "test", "num": len(outputs), "nll": 2.5, "beams": 5} | values
    evaluation |= {"signatures": signatures} | changes
    (folder / "evaluation.json").write_text(json.dumps(evaluation))
    facts = known | {"task": task, "parameters": 1000} | (manifest or {})
    (folder / "manifest.json").write_text(json.dumps(facts))
    if texts:
        rows = [dict(zip(("source", "reference", "output"), row, strict=True))
                for row in zip(sources, references, outputs, strict=True)]  # fmt: skip
        (folder / "outputs-test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"step": step, "split": "valid", "nll": nll} for step, nll in (curve or {}).items()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
