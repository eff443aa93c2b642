"""Translation of captions with copies in the training data: the table of the README.

    python scripts/multi30k.py FOLDER [--output docs/results] [--work errornorm-multi30k]

FOLDER has Multi30k as published: train.en.gz, train.fr.gz, test_2016_flickr.en.gz and .fr.gz. It is not part of this
project, and its licence is for research. Adds 50 % untranslated copies, trains examples/multi30k.yaml with each
objective, evaluates greedily too, and writes one row per run as it arrives; a second start goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CONFIG = Path(__file__).parents[1] / "examples" / "multi30k.yaml"
RUNS = {  # name -> objective, and whether the training data has the copies
    "mle": ("mle", True),
    "token-loss-truncation": ("token_loss_truncation(0.1, start=400)", True),
    "ent-fraction": ("ent_fraction(0.1, start=400)", True),
    "loss-truncation": ("loss_truncation(0.1, start=400)", True),
    "tailr": ("tailr(0.5, floor=0.2)", True),
    "ent-threshold": ("ent_threshold(1.2)", True),
    "clean-mle": ("mle", False),
    "clean-ent-fraction": ("ent_fraction(0.1, start=400)", False),
}


def errornorm(*argv: str) -> bytes:
    return subprocess.run([sys.executable, "-m", "errornorm.cli", *argv], check=True, stdout=subprocess.PIPE).stdout


def measure(folder: Path, work: Path, name: str) -> dict[str, Any]:
    objective, noise = RUNS[name]
    test = [str(folder / f"test_2016_flickr.{language}.gz") for language in ("en", "fr")]
    sets = {"output": work / name, "objective": objective, "data.test.path": test[0], "data.test.pair": test[1]}
    if noise:
        sets["data.train.path"] = work / "noisy.jsonl"
    else:
        sets |= {"data.train.path": folder / "train.en.gz", "data.train.pair": folder / "train.fr.gz"}
    began = time.monotonic()
    argv = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
    again = ["--resume"] if (work / name / "config.yaml").exists() else []
    (row,) = json.loads(errornorm("train", str(CONFIG), *argv, *again, "--json"))
    seconds = time.monotonic() - began
    greedy = json.loads(errornorm("evaluate", str(work / name), *test, "--beams", "1", "--limit", "500", "--json"))
    threads = len(os.sched_getaffinity(0))
    # A run that was interrupted before has been at work for longer than this process knows.
    return {**row, "noise": noise, "threads": threads, "seconds": None if again else seconds, "greedy": greedy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, default=Path("docs/results"))
    parser.add_argument("--work", type=Path, default=Path("errornorm-multi30k"))
    parser.add_argument("--only", nargs="*", choices=list(RUNS), default=list(RUNS))
    args = parser.parse_args()
    parts = args.output / "multi30k"
    parts.mkdir(parents=True, exist_ok=True)
    if not (args.work / "noisy.jsonl").exists():
        pair = [str(args.folder / f"train.{language}.gz") for language in ("en", "fr")]
        errornorm("corrupt", *pair, "--noise", "untranslated=0.5", "--output", str(args.work / "noisy.jsonl"))
    for name in args.only:
        part = parts / f"{name}.json"
        if not part.exists():
            row = measure(args.folder, args.work, name)
            part.write_text(json.dumps(row, indent=1, ensure_ascii=False) + "\n")
        row = json.loads(part.read_text())
        print(
            f"{name}: BLEU {row['bleu']:.1f}, greedy {row['greedy']['bleu']:.1f}, copies {row['copies']:.0%}",
            flush=True,
        )
    rows = [json.loads(part.read_text()) for name in RUNS if (part := parts / f"{name}.json").exists()]
    (args.output / "multi30k.json").write_text(json.dumps({"rows": rows}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
