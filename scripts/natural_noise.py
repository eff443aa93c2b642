"""Find and remove naturally untranslated sentences: tables of docs/detect.md and the README.

    python scripts/natural_noise.py DATA [--output docs/results] [--work errornorm-natural]

DATA has europarl-en-fr-natural-noise and europarl-en-fr, which are not part of this project. Trains a translation model
on the noisy corpus as it is (examples/natural_noise.yaml), scores it, and compares with the labels, which
the model never saw. Then prunes a share of the corpus by some scores and at random, and trains a model on each rest,
with as many steps as before. One file per cell; a second start goes on.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from detection import portable

from errornorm.data.files import written

CONFIG = Path(__file__).parents[1] / "examples" / "natural_noise.yaml"
NOISY = "europarl-en-fr-natural-noise/enfr_2011_natural_untranslated.jsonl.gz"
FRACTION = 0.4
PRUNED = ("random", "entropy_mean", "nll_mean", "error_norm_first")


def errornorm(*argv: Any) -> Any:
    """A verb, and what it prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "errornorm.cli", *map(str, argv), "--json"], check=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout)


def trained(data: Path, work: Path, name: str, corpus: Path) -> dict[str, Any]:
    test = [data / f"europarl-en-fr/test.{language}.gz" for language in ("en", "fr")]
    sets = {"output": work / name, "data.train.path": corpus, "data.test.path": test[0], "data.test.pair": test[1]}
    argv = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
    again = ["--resume"] if (work / name / "config.yaml").exists() else []
    (row,) = errornorm("train", CONFIG, *argv, *again)
    greedy = errornorm("evaluate", work / name, *test, "--beams", 1, "--limit", 500)
    return {**row, "threads": len(os.sched_getaffinity(0)), "greedy": greedy}


def pruned(data: Path, work: Path, by: str) -> dict[str, Any]:
    """Train on what is left of the corpus, and say how much of the noise is."""
    rest = work / f"pruned-{by}.jsonl"
    if not rest.exists():
        errornorm("prune", work / "scores", "--by", by, "--fraction", FRACTION, "-o", rest)
    labels = [json.loads(line)["noise"] for line in rest.open(encoding="utf-8")]
    row = trained(data, work, f"run-{by}", rest)
    return {**row, "by": by, "fraction": FRACTION, **_left(labels)}


def _left(labels: list[int]) -> dict[str, Any]:
    return {"left": len(labels), "noise_left": sum(labels) / len(labels)}


def prepare(data: Path, path: Path) -> None:
    with gzip.open(data / NOISY, "rt", encoding="utf-8") as packed, written(path) as plain:
        plain.writelines(json.dumps(labelled(json.loads(line)), ensure_ascii=False) + "\n" for line in packed)


def labelled(row: dict[str, Any]) -> dict[str, Any]:
    """With a label for each kind of noise: 0 if clean, 1 if it is this kind, None if it is another."""
    kinds = ("copied", "other_language")
    return row | {kind: 0 if row["label"] == "clean" else 1 if row["label"] == kind else None for kind in kinds}


def detected(work: Path) -> dict[str, Any]:
    """How well each score tells the noise, by the labels of the corpus."""
    return {
        name: portable(errornorm("detect", work / "scores", "--labels", field, "--level", "sentence"))
        for name, field in {"untranslated": "noise", "copies against clean": "copied",
                            "other languages against clean": "other_language"}.items()
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--output", type=Path, default=Path("docs/results"))
    parser.add_argument("--work", type=Path, default=Path("errornorm-natural"))
    parser.add_argument("--only", nargs="*", default=["base", "detect", *PRUNED])
    args = parser.parse_args()
    parts = args.output / "natural_noise"
    parts.mkdir(parents=True, exist_ok=True)
    args.work.mkdir(parents=True, exist_ok=True)
    detection = args.output / "detection" / "natural-itself.json"
    detection.parent.mkdir(parents=True, exist_ok=True)
    noisy = args.work / "natural.jsonl"
    if not noisy.exists():
        prepare(args.data, noisy)
    for name in args.only:
        part = detection if name == "detect" else parts / f"{name}.json"
        if part.exists():
            continue
        if name == "base":
            labels = [json.loads(line)["noise"] for line in noisy.open(encoding="utf-8")]
            row = {**trained(args.data, args.work, "base", noisy), "by": None, "fraction": 0.0, **_left(labels)}
        elif name == "detect":
            score = [noisy, "--model", args.work / "base", "--context-field", "src", "--text-field", "tgt"]
            errornorm("score", *score, "-o", args.work / "scores")
            about = {"corpus": "europarl-en-fr-natural-noise", "model": "the model trained on it"}
            row = about | {"every": 1, "longest": None, "measures": detected(args.work)}
        else:
            row = pruned(args.data, args.work, name)
        part.write_text(json.dumps(row, indent=1, ensure_ascii=False) + "\n")
        print(f"{name}: done", flush=True)
    rows = [json.loads(p.read_text()) for name in ("base", *PRUNED) if (p := parts / f"{name}.json").exists()]
    (args.output / "natural_noise.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
