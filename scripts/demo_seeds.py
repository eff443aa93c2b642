"""The demo with several seeds.

    python scripts/demo_seeds.py [--seeds 5] [--output docs/results]

Runs `errornorm demo` for seeds 0, 1, ... one after the other, keeps each result beside the others as it arrives (a
second start goes on), and writes them all to demo.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("docs/results"))
    args = parser.parse_args()
    parts = args.output / "demo"
    parts.mkdir(parents=True, exist_ok=True)
    for seed in range(args.seeds):
        part = parts / f"seed-{seed}.json"
        if not part.exists():
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-m", "errornorm.cli", "demo", "--seed", str(seed), "--json"]
                done = subprocess.run([*command, "--output", f"{folder}/demo"], check=True, stdout=subprocess.PIPE)
            report = json.loads(done.stdout)
            del report["page"]
            part.write_text(json.dumps({"seed": seed, **report}, indent=1, ensure_ascii=False) + "\n")
        shown = {row["method"]: round(row["correct_beam"], 3) for row in json.loads(part.read_text())["rows"]}
        print(seed, shown, flush=True)
    runs = [json.loads((parts / f"seed-{seed}.json").read_text()) for seed in range(args.seeds)]
    (args.output / "demo.json").write_text(json.dumps({"runs": runs}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
