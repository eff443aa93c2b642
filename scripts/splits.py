"""Does training depend on how a batch is split over ranks and micro-batches?

    python scripts/splits.py [--output docs/trainers] [--steps 6]

Trains the same tiny models on the same 16 sequences per optimizer step with the Hugging Face Trainer, on 1 and 2 ranks
(gloo, started by torchrun) and with 1 to 8 micro-batches, and writes one row per run to splits.json. The first loss
says whether the scale is right; the later ones whether the gradients were.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

BATCH, LENGTH, VOCAB, SEED = 16, 12, 120, 3
ACCUMULATION = (1, 2, 4, 8)
RANKS = (1, 2)
PLAIN = "plain Trainer"
METHODS = (
    "mle()",
    "ent_threshold(1.005)",
    "ent_fraction(0.2)",
    "ent_fraction(0.2, scope='global')",
    "ent_fraction(0.2, scope='running')",
    "tailr(0.5)",
)
CELLS = [
    *((model, method) for model in ("gpt2", "t5") for method in METHODS),
    *((model, "mle()") for model in ("bart", "marian")),
    *((model, PLAIN) for model in ("gpt2", "t5", "bart", "marian")),
]


def make_model(name: str) -> Any:
    import torch
    import transformers as hf

    bart = {
        "vocab_size": VOCAB, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 32,
        "dropout": 0.0, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2,
    }  # fmt: skip
    gpt2 = {"vocab_size": VOCAB, "n_layer": 1, "n_head": 2, "n_embd": 16, "n_positions": 32}
    dropout = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    t5 = {"vocab_size": VOCAB, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    torch.manual_seed(SEED)
    if name == "gpt2":
        model: Any = hf.GPT2LMHeadModel(hf.GPT2Config(**gpt2, **dropout))
    elif name == "t5":
        model = hf.T5ForConditionalGeneration(hf.T5Config(**t5, dropout_rate=0.0, decoder_start_token_id=0))
    elif name == "bart":
        model = hf.BartForConditionalGeneration(hf.BartConfig(**bart))
    else:
        model = hf.MarianMTModel(hf.MarianConfig(**bart, decoder_vocab_size=VOCAB))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 and parameter.requires_grad and name != "t5":
                parameter.mul_(8)  # so that some tokens are surer than others
    return model


def make_data(steps: int) -> list[dict[str, Any]]:
    """Sequences of unequal length: only then does a wrong denominator show."""
    import torch

    generator = torch.Generator().manual_seed(SEED)
    tokens = torch.randint(3, VOCAB, (steps * BATCH, LENGTH), generator=generator)
    lengths = torch.randint(2, LENGTH + 1, (len(tokens),), generator=generator)
    ignored = torch.arange(LENGTH) >= lengths.unsqueeze(1)
    labels = tokens.masked_fill(ignored, -100)
    return [{"input_ids": x, "labels": y} for x, y in zip(tokens, labels, strict=True)]


def run_cell(name: str, method: str, ranks: int, parts: int, steps: int, folder: str) -> dict[str, Any]:
    import torch
    import transformers as hf

    import errornorm
    from errornorm.integrations.trainer import robust

    args = hf.TrainingArguments(
        output_dir=folder, max_steps=steps, per_device_train_batch_size=BATCH // (ranks * parts), optim="sgd",
        gradient_accumulation_steps=parts, learning_rate=0.05, lr_scheduler_type="constant", max_grad_norm=0.0,
        logging_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no", seed=SEED,
        dataloader_pin_memory=False, ddp_find_unused_parameters=False,
    )  # fmt: skip
    data = make_data(steps)
    trainer = hf.Trainer(model=make_model(name), args=args, train_dataset=data)
    if method != PLAIN:
        robust(trainer, errornorm.objective(method))
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    kept = [row["errornorm/kept"] for row in rows if "errornorm/kept" in row]
    content = b"".join(row[key].numpy().tobytes() for row in data for key in ("input_ids", "labels"))
    return {
        "model": name,
        "method": method if method == PLAIN else repr(errornorm.objective(method)),
        "ranks": ranks,
        "micro_batches": parts,
        "losses": [row["loss"] for row in rows],
        "kept": sum(kept) / len(kept) if kept else None,
        "settings": {
            "seed": SEED, "batch": BATCH, "steps": steps, "optimizer": "sgd", "learning_rate": 0.05,
            "data": hashlib.sha256(content).hexdigest()[:16],
            "errornorm": errornorm.__version__, "torch": torch.__version__, "transformers": hf.__version__,
        },
    }  # fmt: skip


def worker(output: str, steps: int) -> None:
    """All cells with as many ranks as torchrun started."""
    import torch

    torch.set_num_threads(1)
    ranks, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for model, method in CELLS:
            for parts in ACCUMULATION:
                rows.append(run_cell(model, method, ranks, parts, steps, folder))
                if rank == 0:
                    print(f"{ranks} ranks x {parts}: {model} {method}", file=sys.stderr, flush=True)
    if rank == 0:
        Path(output).write_text(json.dumps(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="docs/trainers", type=Path)
    parser.add_argument("--steps", default=6, type=int)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.steps)
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for ranks in RANKS:
            part = Path(folder) / f"{ranks}.json"
            launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
            command = [*(launch if ranks > 1 else [sys.executable]), __file__, "--worker", str(part)]
            subprocess.run(
                [*command, "--steps", str(options.steps)], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
            rows += json.loads(part.read_text())
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "splits.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    print(options.output / "splits.json")


if __name__ == "__main__":
    main()
