"""What an item would take, said without running anything. Estimates, with the assumptions beside them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from errornorm.training.presets import PRESETS, kind_of

from .cells import Cell
from .plan import Item, Plan

GPUS, PEAK, UTILIZATION = 4, 312e12, 0.35  # A100, bfloat16; the share of its peak that training usually reaches
STATE = 16  # bytes for each parameter: weights, gradients and two moments in float32
KEPT = 34  # bytes for each token, layer and unit of width that a backward pass needs; 2 with gradient checkpointing
VOCAB = {"openai-community/gpt2-large": 50_257}
PRETRAINED = {"google-t5/t5-small": (60.5e6, 12, 512), "facebook/bart-base": (139.4e6, 12, 768)}
DATA = {
    "opus-100": "Helsinki-NLP/opus-100, 1M pairs of each direction",
    "wikitext-103": "Salesforce/wikitext, wikitext-103-raw-v1, 100M words",
    "cnn-dailymail": "abisee/cnn_dailymail 3.0.0, 287K articles",
    "paracrawl": "para_crawl (v9 in the paper), 13M to 55M pairs; WMT22 test sets",
}


def estimate(item: Item, plan: Plan, choice: list[Cell]) -> list[dict[str, Any]]:
    """One entry for each kind of run, and how many there are of it."""
    cells = {cell.hash: cell for cell in (*choice, *item.cells(plan)) if cell.corpus}
    kinds: Counter[str] = Counter()
    first: dict[str, Cell] = {}
    for cell in cells.values():
        key = f"{cell.told['model']} {cell.told['recipe']} {cell.told['training']}"
        kinds[key] += 1
        first.setdefault(key, cell)
    return [_one(first[key], num) for key, num in kinds.items()]


def _one(cell: Cell, num: int) -> dict[str, Any]:
    told = cell.told
    parameters, layers, width = size(told)
    training = told["training"]
    tokens = training["steps"] * training["tokens_per_step"]
    again = training.get("gradient_checkpointing", False)
    operations = tokens * (6 * parameters + 12 * layers * width * told["max_length"]) * (4 / 3 if again else 1)
    here = training["tokens_per_step"] / GPUS / training.get("micro_batches", 1)
    memory = parameters * STATE + here * layers * width * (2 if again else KEPT)
    recipe = told["recipe"]
    languages = ", ".join(recipe.get("languages", []))
    return {
        "model": told["model"].get("preset") or told["model"]["pretrained"],
        "parameters": round(parameters),
        "data": DATA.get(recipe["of"], recipe["of"]) + (f" (en to {languages})" if languages else ""),
        "steps": training["steps"],
        "tokens_per_step": training["tokens_per_step"],
        "memory_bytes": round(memory),
        "hours": operations / (GPUS * PEAK * UTILIZATION) / 3600,
        "runs": num,
    }


def size(told: dict[str, Any]) -> tuple[float, int, int]:
    """Parameters, layers and width; the model is described, not built."""
    if name := told["model"].get("pretrained"):
        return PRETRAINED[name]
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    entries = PRESETS[told["model"]["preset"]][kind_of(told["task"])] | told["model"].get("overrides", {})
    vocab = told["tokenizer"].get("vocab") or VOCAB[told["tokenizer"]["pretrained"]]
    entries = {name: value for name, value in entries.items() if name != "model_type"} | {"vocab_size": vocab}
    kind = "gpt2" if told["task"] == "language-modeling" else "marian"
    special = {} if kind == "gpt2" else {"decoder_start_token_id": 0, "pad_token_id": 0}
    config = AutoConfig.for_model(kind, **entries, **special)
    with torch.device("meta"):
        build: Any = AutoModelForCausalLM if kind == "gpt2" else AutoModelForSeq2SeqLM
        parameters = build.from_config(config).num_parameters()
    layers = config.n_layer if kind == "gpt2" else config.encoder_layers + config.decoder_layers
    return parameters, layers, config.hidden_size


def table(found: list[dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """For people."""
    header = ("model", "parameters", "data", "steps", "memory per GPU", f"hours on {GPUS} GPUs", "runs", "hours in all")
    return header, [
        (
            entry["model"],
            f"{entry['parameters'] / 1e6:,.0f}M",
            entry["data"],
            f"{entry['steps']:,} of {entry['tokens_per_step']:,} tokens",
            f"{entry['memory_bytes'] / 2**30:.0f} GB",
            f"{entry['hours']:.1f}",
            str(entry["runs"]),
            f"{entry['hours'] * entry['runs']:,.0f}",
        )
        for entry in found
    ]


def command(item: Item, scale: str, seeds: int) -> str:
    rest = f"errornorm.cli reproduce {item.name} --scale {scale} --seeds {seeds}"
    return f"torchrun --nproc-per-node {GPUS} -m {rest}"


ASSUMED = (
    f"estimates: 6 operations for each parameter and token, {UTILIZATION:.0%} of the peak of {GPUS} A100 (312 TFLOP/s, "
    "bfloat16), 16 bytes for each parameter; evaluation is not counted"
)
