"""What an item would take, said without running anything. Estimates, with the assumptions beside them."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from typing import Any

from errornorm.training.presets import PRESETS, kind_of

from .cells import Cell, canonical
from .plan import Item, Plan
from .run import WORK, Asked, usual_results
from .work import before

GPUS, PEAK = 4, 312e12  # A100, bfloat16
WIDE, UTILIZATION = 1024, (0.35, 0.12)  # the share of the peak that models at least so wide usually reach, and others
LAUNCH = 0.005  # seconds for each layer and step: as long as it takes to launch the kernels, if they are small
# Bytes for each parameter: weights, gradients, two moments and DDP's buckets in float32; a copy in bfloat16.
STATE = 4 + 4 + 8 + 4 + 2
# Bytes for each token, layer and unit of width that a backward pass needs: what autograd saves in one layer, measured
# under autocast with attention that does not keep its weights. With gradient checkpointing a layer keeps its input.
KEPT = {"gpt2": 68, "marian": 42, "t5": 92, "bart": 53}
KEPT_AGAIN = 4
LOGITS = 4 * 2**27  # bytes of the one buffer that the loss computes logits in, however many tokens there are
VOCAB = {"openai-community/gpt2-large": 50_257}
SHORTER = {"cnn-dailymail": 0.15}  # tokens of a target, where those of its source are 1; else they are as many
LENGTH = {
    "opus-100": 30,
    "paracrawl": 30,
    "tatoeba-en-fr": 12,
    "python-docs-en-fr": 40,
    "europarl-en-fr": 40,
    "europarl-en-fr-natural-noise": 40,
}  # typical, in tokens; else the longest
DATA = {
    "opus-100": "Helsinki-NLP/opus-100, at most 1M pairs of each direction",
    "wikitext-103": "Salesforce/wikitext, wikitext-103-raw-v1, 100M words",
    "cnn-dailymail": "abisee/cnn_dailymail 3.0.0, 287K articles",
    "paracrawl": "ParaCrawl 9 and its bonus, 13M to 55M pairs; haoranxu/WMT22-Test",
    "tatoeba-en-fr": "tatoeba-en-fr in --data",
    "python-docs-en-fr": "python-docs-en-fr in --data, 20K pairs",
    "europarl-en-fr": "europarl-en-fr in --data",
    "europarl-en-fr-natural-noise": "europarl-en-fr-natural-noise in --data, 60K pairs",
}


@dataclass(frozen=True)
class Size:
    """Of a model.

    Args:
        kind: Of architecture.
        parameters: All of them.
        encoder: Those that source tokens pass; the others are for targets.
        layers: Of encoder and decoder.
        width: Of hidden states.
    """

    kind: str
    parameters: int
    encoder: int
    layers: tuple[int, int]
    width: int


PRETRAINED = {
    "google-t5/t5-small": Size("t5", 60_506_624, 18_880_768, (6, 6), 512),
    "facebook/bart-base": Size("bart", 139_420_416, 42_527_232, (6, 6), 768),
}


def estimate(item: Item, plan: Plan, choice: list[Cell]) -> list[dict[str, Any]]:
    """One entry for each kind of run, and how many there are of it."""
    asked = [cell for cell in (*choice, *item.cells(plan)) if cell.corpus]
    asked = [*(before(cell) for cell in asked if "pretrain" in cell.told), *asked]
    cells = {cell.hash: cell for cell in asked}
    kinds: Counter[str] = Counter()
    first: dict[str, Cell] = {}
    for cell in cells.values():
        key = f"{cell.told['model']} {cell.told['recipe']} {cell.told['training']}"
        kinds[key] += 1
        first.setdefault(key, cell)
    return [_one(first[key], num) for key, num in kinds.items()]


def _one(cell: Cell, num: int) -> dict[str, Any]:
    told, model = cell.told, size_of(cell.told)
    training, recipe = told["training"], told["recipe"]
    sizes = [f" {size / 1000:,.0f}K" for size in recipe.get("sizes", [])]
    languages = ", ".join(map("".join, zip_longest(recipe.get("languages", []), sizes, fillvalue="")))
    direction = f" ({recipe.get('source', 'en')} to {languages})" if languages else ""
    memory = memory_of(told, model)
    return {
        "model": told["model"].get("preset") or told["model"]["pretrained"],
        "parameters": model.parameters,
        "data": DATA.get(recipe["of"], recipe["of"]) + direction,
        "steps": training["steps"],
        "tokens_per_step": training["tokens_per_step"],
        "memory": memory,
        "memory_bytes": sum(memory.values()),
        "hours": hours_of(told, model),
        "runs": num,
    }


def _target(told: Mapping[str, Any]) -> float:
    return SHORTER.get(told["recipe"]["of"], 1.0)


def memory_of(told: Mapping[str, Any], size: Size) -> dict[str, int]:
    """Bytes on each GPU."""
    training = told["training"]
    here = training["tokens_per_step"] / GPUS / training.get("micro_batches", 1)
    encoder, decoder = size.layers
    deep = encoder + decoder * _target(told)
    each = KEPT[size.kind] * deep
    if training.get("gradient_checkpointing", False):
        each = KEPT_AGAIN * deep + KEPT[size.kind]  # and one layer at a time is computed again
    return {"state": size.parameters * STATE, "activations": round(here * size.width * each), "logits": LOGITS}


def hours_of(told: Mapping[str, Any], size: Size) -> float:
    steps = told["training"]["steps"]
    busy = operations(told, size) / (GPUS * PEAK * UTILIZATION[size.width < WIDE])
    return float(max(busy, steps * sum(size.layers) * LAUNCH)) / 3600


def operations(told: Mapping[str, Any], size: Size) -> float:
    """Of a whole run: 6 for each parameter and token that meet, and attention's own."""
    training, (encoder, decoder), target = told["training"], size.layers, _target(told)
    length = LENGTH.get(told["recipe"]["of"], told["max_length"])
    each = 6 * (size.encoder + target * (size.parameters - size.encoder))
    # Scores and their sum, forward and twice backward. A decoder looks back only: half of it; and at the source.
    each += 12 * size.width * length * (encoder + target * decoder * (target / 2 + (1 if encoder else 0)))
    again = 4 / 3 if training.get("gradient_checkpointing", False) else 1
    return float(training["steps"] * training["tokens_per_step"] * each * again)


def size_of(told: Mapping[str, Any]) -> Size:
    if name := told["model"].get("pretrained"):
        return PRETRAINED[name]
    entries = PRESETS[told["model"]["preset"]][kind_of(told["task"])] | told["model"].get("overrides", {})
    vocab = told["tokenizer"].get("vocab") or VOCAB[told["tokenizer"]["pretrained"]]
    return _described(canonical(entries | {"vocab_size": vocab}))


@cache
def _described(text: str) -> Size:
    """The model is described, not built."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    entries = json.loads(text)
    kind = entries.pop("model_type")
    ends = "bos_token_id", "eos_token_id"  # else GPT-2 has those of its own vocabulary
    special = dict.fromkeys(ends if kind == "gpt2" else ("decoder_start_token_id", "pad_token_id"), 0)
    config = AutoConfig.for_model(kind, **entries, **special)
    build: Any = AutoModelForCausalLM if kind == "gpt2" else AutoModelForSeq2SeqLM
    with torch.device("meta"):
        model = build.from_config(config)
    if kind == "gpt2":
        return Size(kind, model.num_parameters(), 0, (0, config.n_layer), config.hidden_size)
    encoder = sum(parameter.numel() for parameter in model.get_encoder().layers.parameters())
    layers = (config.encoder_layers, config.decoder_layers)
    return Size(kind, model.num_parameters(), encoder, layers, config.hidden_size)


def table(found: list[dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """For people."""
    header = ("model", "parameters", "data", "steps", "memory per GPU", f"hours on {GPUS} GPUs", "runs", "hours in all")
    return header, [
        (
            entry["model"],
            f"{entry['parameters'] / 1e6:,.0f}M",
            entry["data"],
            f"{entry['steps']:,} of {entry['tokens_per_step']:,} tokens",
            f"{entry['memory_bytes'] / 2**30:.0f} GB ({_gigabytes(entry['memory'])})",
            f"{entry['hours']:.1f}",
            str(entry["runs"]),
            f"{entry['hours'] * entry['runs']:,.0f}",
        )
        for entry in found
    ]


def _gigabytes(memory: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number / 2**30:.1f}" for name, number in memory.items())


def words(item: Item, plan: Plan) -> list[tuple[str, str]]:
    """What the paper says about the settings of an item, and what it does not."""
    corpora = {cell.corpus for cell in item.cells(plan)} | ({item.condition.corpus} if item.condition else set())
    about = [(name, text) for name, text in plan.scale.words.items() if name.partition(".")[0] in corpora]
    return [*item.words.items(), *([("here", item.ours)] if item.ours else []), *about]


def command(name: str, asked: Asked, needs_data: bool = False) -> str:
    """What to type, with all that was given."""
    options: list[tuple[str, object, object]] = [
        ("--data", asked.data or ("FOLDER" if needs_data else None), None),
        *(("--method", method, None) for method in asked.families),
        ("--method-file", asked.method_file, None),
        ("--results", asked.results, usual_results()),
        ("--work", asked.work, WORK),
        ("--slurm", asked.partition, None),
    ]
    given = [str(word) for option, value, default in options if value != default for word in (option, value)]
    start = ["errornorm"]
    if asked.scale == "paper" and asked.partition is None:
        start = ["torchrun", "--nproc-per-node", str(GPUS), "-m", "errornorm.cli"]
    return shlex.join([*start, "reproduce", name, "--scale", asked.scale, "--seeds", str(asked.seeds), *given])


def needs_data(item: Item, plan: Plan) -> bool:
    return plan.scale.needs_data or any("--data" in DATA.get(of, "") for of in _recipes(item, plan))


def _recipes(item: Item, plan: Plan) -> set[str]:
    return {cell.told["recipe"]["of"] for cell in item.cells(plan) if cell.corpus}


ASSUMED = (
    f"estimates: {GPUS} A100 (312 TFLOP/s in bfloat16), of which models of width {WIDE} and more reach "
    f"{UTILIZATION[0]:.0%} and others {UTILIZATION[1]:.0%}; 6 operations for each parameter and token, a third more "
    f"with gradient checkpointing; at least {1000 * LAUNCH:.0f} ms for each layer and step; {STATE} bytes for each "
    "parameter; CUDA's own memory (about 1 GB), tokenization and evaluation are not counted"
)
