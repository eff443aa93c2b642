"""Results as Markdown: from the JSON that commands and scripts write to the pages that show it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any

from .surface import METHODS


def bench_section(report: Mapping[str, Any]) -> str:
    """The README's benchmark tables, one per size, from the JSON that `errornorm bench` writes."""
    sizes: dict[str, list[Mapping[str, Any]]] = {}
    for row in report["rows"]:
        sizes.setdefault(_conditions(row["settings"]), []).append(row)
    return "\n".join(f"{conditions}\n\n{_bench_table(rows)}\n" for conditions, rows in sizes.items())


def _conditions(settings: Mapping[str, Any]) -> str:
    threads = "1 thread" if settings["threads"] == 1 else f"{settings['threads']} threads"
    return (
        f"{settings['tokens']} tokens, hidden size {settings['hidden']}, vocabulary {settings['vocab']}, fraction "
        f"{settings['fraction']:g}; {threads} of {settings['cpu']}, {settings['clock']} time, best of "
        f"{settings['repeat']}, torch {settings['torch']}:"
    )


def _bench_table(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = {
        "ms": ("best_ms", ".0f"),
        "to plain": ("to_plain", ".2f"),
        "to floor": ("to_floor", ".2f"),
        "MB": ("peak_mb", ".0f"),
        "MB to plain": ("memory_to_plain", ".2f"),
        "gradient error": ("gradient_error", ".0e"),
    }
    ran = [row for row in rows if row["ran"]]
    lines = [
        (_bench_label(row), *("" if row[key] is None else f"{row[key]:{form}}" for key, form in columns.values()))
        for row in ran
    ]
    missing = ", ".join(f"{row['label']} ({row['note']})" for row in rows if not row["ran"])
    return table(("one step of head and loss", *columns), lines) + (f"\n\nDid not run: {missing}." if missing else "")


def _bench_label(row: Mapping[str, Any]) -> str:
    label = f"**{row['label']}**" if row["kind"] == "ours" else row["label"]
    return f"{label} ({row['note']})" if row["note"] else str(label)


def score_cost_section(report: Sequence[Mapping[str, Any]]) -> str:
    """What scoring costs, from the JSON of scripts/score_throughput.py."""
    parts = []
    for found in report:
        settings, weights = found["settings"], found["weights"]
        rows = [
            (
                name,
                f"{median(found['tokens_per_second'][name]):,.0f}",
                f"{found['score_to'][name]:.2f}" if name in found["score_to"] else "",
                f"{found['peak_bytes'][name] / 2**20:,.0f}",
                f"{found['peak_bytes'][name] / found['peak_bytes']['body']:.2f}",
            )
            for name in found["tokens_per_second"]
        ]
        about = (
            f"{settings['model']}, vocabulary {found['vocab']:,}, {weights / 2**20:,.0f} MB of weights, batches of "
            f"{settings['tokens_per_batch']:,} tokens, {found['above_cutoff']:.0%} of the tokens above the cutoff; "
            f"medians of {settings['rounds']} rounds, processor time of one thread, torch {settings['torch']}:"
        )
        header = ("variant", "tokens per second", "`score` to this", "peak MB", "to the model without head")
        parts.append(f"{about}\n\n{table(header, rows)}")
    return "\n\n".join(parts)


def natural_noise_section(rows: Sequence[Mapping[str, Any]]) -> str:
    """What pruning brings, from the JSON of scripts/natural_noise.py."""
    header = ("training data", "pairs", "noise left", "BLEU, greedy", "BLEU, beam 5", "chrF", "perplexity")
    lines = [
        (
            f"without {row['fraction']:.0%}, by `{row['by']}`" if row["by"] else "all of it",
            f"{row['left']:,}",
            f"{row['noise_left']:.0%}",
            f"{row['greedy']['bleu']:.1f}",
            f"{row['bleu']:.1f}",
            f"{row['chrf']:.1f}",
            f"{row['perplexity']:.1f}",
        )
        for row in rows
    ]
    about = (
        f"A small Transformer trained by likelihood, {rows[0]['step']} steps each; first {rows[0]['num']} sentences of "
        f"a clean test set, seed {rows[0]['seed']}, BLEU `{rows[0]['signatures']['bleu']}`, errornorm "
        f"{rows[0]['errornorm']}; by `scripts/natural_noise.py`:"
    )
    return f"{about}\n\n{table(header, lines)}"


def detection_section(report: Sequence[Mapping[str, Any]]) -> str:
    """How well scores find labelled noise, from the JSON of scripts/detection.py and scripts/natural_noise.py."""
    parts = []
    for found in report:
        for measure, result in found["measures"].items():
            rows = [row for row in result["rows"] if row["group"] is None]
            levels = [level for level in ("token", "word", "sentence") if any(row["level"] == level for row in rows)]
            first = [next(row for row in rows if row["level"] == level) for level in levels]
            counts = ", ".join(f"{row['units']:,} {row['level']}s ({row['base_rate']:.0%} noisy)" for row in first)
            cut = f", documents cut to {found['longest']} words" if found.get("longest") else ""
            some = f" (one of {found['every']} records)" if found["every"] > 1 else ""
            about = f"**{found['corpus']}**{some}, {measure}, scored by {found['model']}{cut}: {counts}."
            parts.append(f"{about}\n\n{_auroc_table(rows)}")
    return "\n\n".join(parts)


def _auroc_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Scores down, levels and aggregates across; the best of a column is bold."""
    cells: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        name, _, how = row["score"].rpartition("_") if row["level"] != "token" else (row["score"], "", "")
        column = f"{row['level']}s" + (f", {how}" if how else "")
        if name and row["score"] != "above":
            cells.setdefault(column, {})[name] = row
    best = {column: max(found.values(), key=lambda row: row["auroc"])["auroc"] for column, found in cells.items()}
    names = list(dict.fromkeys(name for found in cells.values() for name in found))
    lines = [
        (f"`{name}`", *(_auroc(found.get(name), best[column]) for column, found in cells.items())) for name in names
    ]
    return table(("AUROC", *cells), lines)


def _auroc(row: Mapping[str, Any] | None, best: float) -> str:
    if row is None:
        return ""
    number = f"{row['auroc']:.3f}"
    return f"{f'**{number}**' if row['auroc'] == best else number} ({row['auroc_low']:.3f} to {row['auroc_high']:.3f})"


def splits_section(report: Mapping[str, Any]) -> str:
    """How far losses are from those of one process and one micro-batch, from the JSON of scripts/splits.py."""
    rows = report["rows"]
    ways = sorted({(row["ranks"], row["micro_batches"]) for row in rows})
    cells: dict[tuple[str, str], dict[tuple[int, int], list[float]]] = {}
    for row in rows:
        cells.setdefault((row["model"], row["method"]), {})[row["ranks"], row["micro_batches"]] = row["losses"]
    header = tuple(f"{ranks} × {parts}" for ranks, parts in ways)

    def spread(losses: dict[tuple[int, int], list[float]], way: tuple[int, int]) -> str:
        off = max(abs(a / b - 1) for a, b in zip(losses[way], losses[1, 1], strict=True))
        return f"{off:.0e}" if off < 1e-4 else f"**{off:.1%}**"

    def scale(losses: dict[tuple[int, int], list[float]], way: tuple[int, int]) -> str:
        return f"{losses[way][0] / losses[1, 1][0]:.3f}"

    ours = {key: losses for key, losses in cells.items() if key[1] != "plain Trainer"}
    kept = {(row["model"], row["method"]): row["kept"] for row in rows if row["ranks"] == row["micro_batches"] == 1}
    scaled = {key: cells[key] for key in cells if key[1] in ("plain Trainer", "mle(start=0)")}
    settings = rows[0]["settings"]
    return "\n\n".join(
        [
            "Largest relative difference of a step's loss to that of one rank and one micro-batch, "
            f"{settings['steps']} steps of {settings['batch']} sequences, ranks × micro-batches "
            f"(transformers {settings['transformers']}):",
            table(("model", "objective", "kept", *header), [
                (model, f"`{brief(method)}`", f"{kept[model, method]:.0%}", *(spread(losses, way) for way in ways))
                for (model, method), losses in ours.items()
            ]),
            "The loss of the first step relative to the same:",
            table(("model", "trained by", *header), [
                (model, "plain Trainer" if method == "plain Trainer" else "errornorm `mle()`",
                 *(scale(losses, way) for way in ways))
                for (model, method), losses in sorted(scaled.items())
            ]),
        ]
    )  # fmt: skip


def brief(spec: str) -> str:
    """A method's text without what has its default value."""
    factory = METHODS[spec.partition("(")[0]]
    defaults = {name: p.default for name, p in inspect.signature(factory).parameters.items()}
    call = ast.parse(spec, mode="eval").body
    assert isinstance(call, ast.Call)
    given = [(k.arg or "", ast.literal_eval(k.value)) for k in call.keywords]
    shown = [f"{name}={value!r}" for name, value in given if defaults[name] != value]
    return f"{factory.__name__}({', '.join(shown)})"


def step_section(report: Mapping[str, Any]) -> str:
    """Time and memory of a whole Trainer step, from the JSON of scripts/trainer_step.py."""
    first = report["rows"][0]["settings"]
    names = {"plain": "plain Trainer", "mle": "errornorm `mle()`", "ent_fraction": "errornorm `ent_fraction(0.1)`"}
    lines = [
        (
            f"{row['size']}, {row['settings']['tokens']} tokens",
            names[row["variant"]],
            f"{min(row['seconds']):.2f}",
            f"{row['to_plain']:.2f}",
            f"{row['peak_mb']:.0f}",
            f"{row['step_mb']:.0f}",
        )
        for row in report["rows"]
    ]
    header = ("model", "loss", "best s", "time to plain", "peak MB", "of these for the steps")
    about = f"Vocabulary {first['vocab']}, {first['threads']} thread, CPU time, torch {first['torch']}:"
    return f"{about}\n\n{table(header, lines)}"


def overhead_section(report: Mapping[str, Any]) -> str:
    """Objectives against each other in a whole step, from the JSON of scripts/train_overhead.py."""
    about = report["settings"]
    lines = [
        (f"{row['vocab']:,}", *(f"{median(times):.2f}" for times in row["seconds_per_step"].values()),
         *(f"{ratio:.2f}" for ratio in row["ratios"].values()),
         *(f"{1000 * median(times):.2f}" for name, times in row["objective_seconds"].items() if name != "stock"))
        for row in report["rows"]
    ]  # fmt: skip
    first = report["rows"][0]
    names = tuple(first["seconds_per_step"])
    header = ("vocabulary", *(f"{name}, s" for name in names), *first["ratios"],
              *(f"{name} by itself, ms" for name in names if name != "stock"))  # fmt: skip
    text = (
        f"Preset {about['preset']}, {about['tokens_per_step']} tokens, {about['threads']} threads, wall time, medians "
        f"of {about['rounds']} rounds, torch {about['torch']}, errornorm {about['errornorm']}:"
    )
    return f"{text}\n\n{table(header, lines)}"


def demo_section(report: Mapping[str, Any]) -> str:
    """What the demo measured for each seed, from the JSON of scripts/demo_seeds.py."""
    runs = report["runs"]
    methods = [row["method"] for row in runs[0]["rows"]]
    by_method = {name: [row for run in runs for row in run["rows"] if row["method"] == name] for name in methods}
    header = ("method", "correct, greedy", "correct, beam 5", "by seed", "BLEU, beam 5", "copies, beam 5")
    lines = [
        (
            f"{name} `{rows[0]['spec']}`",
            f"{mean(row['correct_greedy'] for row in rows):.0%}",
            f"{mean(row['correct_beam'] for row in rows):.0%}",
            " · ".join(f"{row['correct_beam']:.1%}" for row in rows),
            f"{mean(row['bleu_beam'] for row in rows):.1f}",
            f"{mean(row['copies_beam'] for row in rows):.0%}",
        )
        for name, rows in by_method.items()
    ]
    seconds = [f"{run['seconds']:.0f}" for run in runs]
    settings = runs[0]["settings"]
    about = (
        f"Means over seeds {', '.join(str(run['seed']) for run in runs)}; "
        f"training pairs: {settings['Training pairs']}; {settings['Test sentences']} test sentences; "
        f"{', '.join(seconds)} seconds; {settings['Version']}:"
    )
    return f"{about}\n\n{table(header, lines)}"


def multi30k_section(report: Mapping[str, Any]) -> str:
    """Translation with copies in the training data, from the JSON of scripts/multi30k.py."""
    rows = report["rows"]
    header = ("objective", "BLEU, greedy", "BLEU, beam 5", "copies, beam 5", "perplexity", "minutes", "threads")
    lines = [
        (
            f"`{row['method']}`" + ("" if row["noise"] else ", no noise"),
            f"{row['greedy']['bleu']:.1f}",
            f"{row['bleu']:.1f}",
            f"{row['copies']:.0%}",
            f"{row['perplexity']:.1f}",
            f"{row['seconds'] / 60:.1f}" if row["seconds"] else "",
            f"{row['threads']}",
        )
        for row in rows
    ]
    about = (
        f"First {rows[0]['num']} sentences of test_2016_flickr, seed {rows[0]['seed']}, "
        f"BLEU `{rows[0]['signatures']['bleu']}`, data {rows[0]['data_hash'][:8]}, errornorm {rows[0]['errornorm']}:"
    )
    return f"{about}\n\n{table(header, lines)}"


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table; nothing if it has no rows."""
    if not rows:
        return ""
    lines = [header, tuple("---" for _ in header), *(tuple(cell.replace("|", r"\|") for cell in row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
