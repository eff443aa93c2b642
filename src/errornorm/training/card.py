"""The README of a saved model."""

from __future__ import annotations

from typing import Any

from .config import TrainConfig

SHOWN = {
    "perplexity": "perplexity (plain likelihood)",
    "bleu": "BLEU",
    "chrf": "chrF",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeLsum": "ROUGE-Lsum",
    "copies": "share of outputs that copy their source",
}


def model_card(config: TrainConfig, about: dict[str, Any], row: dict[str, Any]) -> str:
    """As model hubs show it: what was trained, on what, how, and how good it is."""
    numbers = [f"| {title} | {row[name]:.4g} |" for name, title in SHOWN.items() if name in row]
    signatures = [f"- {name}: `{text}`" for name, text in row["signatures"].items()]
    data = [
        f"| {x['split']} | {x['name']} | {x['used']} | {x['pruned']} | {x['quarantined']} | `{x['sha256'][:12]}` |"
        for x in about["data"]
    ]
    made = config.model
    made_from = f"a {made.config['model_type']}" if made.config else made.pretrained or made.preset or "tiny"
    parts = [
        _header(config),
        f"# {config.output.name}",
        f"A model for {config.task} with {about['parameters']:,} parameters, made from {made_from} and trained with "
        f"`{config.method}` by errornorm {about['errornorm']}, seed {about['seed']}, {row['step']} steps.",
        "\n".join([f"## Evaluation ({row['split']})", "", "| measure | value |", "| --- | --- |", *numbers])
        if numbers
        else "",
        "\n".join(signatures),
        "\n".join(
            [
                "## Data",
                "",
                "| split | corpus | used | pruned | quarantined | sha256 |",
                "| --- | --- | --- | --- | --- | --- |",
                *data,
            ]
        ),
        f"Data hash `{about['data_hash']}`; versions: {', '.join(f'{k} {v}' for k, v in about['versions'].items())}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _header(config: TrainConfig) -> str:
    tag = "text-generation" if config.kind == "causal" else config.task
    return f"---\nlibrary_name: transformers\npipeline_tag: {tag}\ntags:\n- errornorm\n---"
