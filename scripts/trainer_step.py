"""Time and memory of a whole Trainer step, with and without `attach`.

    python scripts/trainer_step.py [--output docs/trainers] [--rounds 4]

GPT-2's shape with its vocabulary of 50257, float32, one thread. The variants take turns, in each round one run of two
steps each, of which the second counts (CPU time). Peak memory comes from a process of its own for each variant.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

VARIANTS = {"plain": None, "mle": "mle()", "ent_fraction": "ent_fraction(0.1)"}
SIZES = {  # layers, width, heads, sequences, length
    "GPT-2 small": (12, 768, 12, 4, 256),
    "2 layers, width 256": (2, 256, 4, 8, 256),
}
VOCAB, SEED = 50257, 0


def make_trainer(size: str, variant: str, folder: str) -> Any:
    import torch
    import transformers as hf

    import errornorm
    from errornorm.integrations.trainer import robust

    layers, width, heads, rows, length = SIZES[size]
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    config = hf.GPT2Config(n_layer=layers, n_embd=width, n_head=heads, n_positions=length, vocab_size=VOCAB)
    tokens = torch.randint(VOCAB, (rows, length), generator=torch.Generator().manual_seed(SEED))
    args = hf.TrainingArguments(
        output_dir=folder, max_steps=2, per_device_train_batch_size=rows, report_to=[], use_cpu=True, disable_tqdm=True,
        save_strategy="no", logging_steps=1, dataloader_pin_memory=False, seed=SEED,
    )  # fmt: skip
    data = [{"input_ids": row, "labels": row} for row in tokens] * 2
    trainer = hf.Trainer(model=hf.GPT2LMHeadModel(config), args=args, train_dataset=data, callbacks=[_watch()])
    spec = VARIANTS[variant]
    if spec is not None:
        robust(trainer, errornorm.objective(spec))
    return trainer


def _watch() -> Any:
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        """Seconds of each step."""

        def __init__(self) -> None:
            self.seconds: list[float] = []

        def on_step_begin(self, *args: Any, **rest: Any) -> None:
            self._start = time.process_time()

        def on_step_end(self, *args: Any, **rest: Any) -> None:
            self.seconds.append(time.process_time() - self._start)

    return Watch()


def seconds(trainer: Any) -> float:
    """Of the second step of a run."""
    watch = next(c for c in trainer.callback_handler.callbacks if type(c).__name__ == "Watch")
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train()
    return float(watch.seconds[-1])


def peak(size: str, variant: str) -> None:
    """Print the peak of this process, and what it held before the first step, in megabytes."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(size, variant, folder)
        before = held("VmRSS")
        seconds(trainer)
        print(json.dumps([held("VmHWM"), before]))


def held(field: str) -> float:
    """Memory of this process, in megabytes: now (VmRSS), or at its peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024


def measure(size: str, rounds: int) -> list[dict[str, Any]]:
    import torch
    import transformers

    import errornorm

    memory = {}
    for variant in VARIANTS:
        command = [sys.executable, __file__, "--peak", size, variant]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        memory[variant] = json.loads(shown.strip().splitlines()[-1])
    times: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        trainers = {variant: make_trainer(size, variant, folder) for variant in VARIANTS}
        for number in range(rounds):
            order = list(VARIANTS)[number % len(VARIANTS) :] + list(VARIANTS)[: number % len(VARIANTS)]
            for variant in order:
                times[variant].append(seconds(trainers[variant]))
                print(f"{size}, round {number + 1}: {variant} {times[variant][-1]:.2f} s", file=sys.stderr, flush=True)
    layers, width, _, rows, length = SIZES[size]
    return [
        {
            "size": size,
            "variant": variant,
            "seconds": times[variant],
            "to_plain": statistics.median(a / b for a, b in zip(times[variant], times["plain"], strict=True)),
            "peak_mb": memory[variant][0],
            "step_mb": memory[variant][0] - memory[variant][1],
            "settings": {
                "layers": layers, "width": width, "tokens": rows * length, "vocab": VOCAB, "threads": 1, "seed": SEED,
                "objective": spec and repr(errornorm.objective(spec)), "errornorm": errornorm.__version__,
                "torch": torch.__version__, "transformers": transformers.__version__,
            },
        }
        for variant, spec in VARIANTS.items()
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="docs/trainers", type=Path)
    parser.add_argument("--rounds", default=4, type=int)
    parser.add_argument("--peak", nargs=2, metavar=("SIZE", "VARIANT"), help=argparse.SUPPRESS)
    parser.add_argument("--measure", metavar="SIZE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        peak(*options.peak)
        return
    if options.measure:
        print(json.dumps(measure(options.measure, options.rounds)))
        return
    rows = []
    for size in SIZES:  # a process for each: memory that another size left behind would make plain faster
        command = [sys.executable, __file__, "--measure", size, "--rounds", str(options.rounds)]
        shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        rows += json.loads(shown.strip().splitlines()[-1])
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "step.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    print(options.output / "step.json")


if __name__ == "__main__":
    main()
