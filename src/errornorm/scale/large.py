"""The part of docs/scale.md about a run of 1 T tokens on 1,000 GPUs: arithmetic, and measurements multiplied."""

from __future__ import annotations

from collections.abc import Callable

from ..tables import table
from .projection import Run, state_bytes
from .rows import Files, Row, more, per_text, rows_of, size
from .traffic import SCOPES, Sends

TEXT = 500  # tokens of a text of a web corpus, for counting texts


def projection_section(files: Files) -> str:
    """1 T tokens on 1,000 GPUs."""
    run = Run()
    parts = [_the_run(run), _what_crosses(run), _what_is_held(run, files), _scoring(run, files)]
    return "\n\n".join(part for part in parts if part)


def _the_run(run: Run) -> str:
    hours = run.steps * run.step_seconds / 3600
    rows = [
        ("tokens, GPUs, tokens of a step", f"{trillions(run)}, {run.ranks:,}, {run.tokens_per_step:,}"),
        ("steps", f"{run.steps:,}"),
        ("operations of a token, forward and backward", f"{3 * run.forward / 1e9:.1f} G"),
        ("of these, the head", f"{run.head / run.forward:.1%}"),
        ("computation of a step, and of the run", f"{run.step_seconds:.2f} s, {hours:,.0f} hours"),
        ("gradients, over the link of a rank in a step", size(run.gradients.over_the_link(run.ranks))),
        ("their time, in part beside backward", f"{run.seconds(run.gradients, 1):.2f} s"),
    ]
    return f"### The run\n\n{table(('arithmetic', ''), rows)}"


def _what_crosses(run: Run) -> str:
    lines = [
        _crossing(run, scope.about, scope.formula(run.load), scope.rounds or 0, size(state_bytes(scope)))
        for name, scope in SCOPES.items()
        if not scope.sharded and "sequences" not in name
    ]
    gathered = Sends(0, run.gathered() // run.ranks)
    lines.append(_crossing(run, "*a gather of all scores, which nothing here does*", gathered, 1, ""))
    header = (
        "scope", "over the link in a step", "to the gradients", "time", "of a step", "in the run", "in a checkpoint"
    )  # fmt: skip
    shard = SCOPES["shards"].formula(run.load)
    inside = shard.over_the_link(run.node) / run.inside
    return "\n\n".join(
        [
            f"### What crosses the ranks, {run.ranks:,} of them",
            table(header, lines),
            f"The vocabulary split over the {run.node} GPUs of a machine: {size(shard.over_the_link(run.node))} over "
            f"each GPU's link for {run.sequence:,} tokens, nearly all of it the hidden states' gradient in float32; "
            f"{1e3 * inside:.2f} ms at {run.inside / 1e9:.0f} GB/s, {inside / run.step_seconds:.2%} of a step.",
        ]
    )


def _crossing(run: Run, about: str, sends: Sends, rounds: int, state: str) -> tuple[str, ...]:
    linked, took = sends.over_the_link(run.ranks), run.seconds(sends, rounds)
    return (
        about,
        size(linked),
        f"{linked / run.gradients.over_the_link(run.ranks):.0e}" if linked else "0",
        f"{1e3 * took:.2f} ms" if took else "0",
        f"{took / run.step_seconds:.2%}" if took else "0",
        size(linked * run.steps),
        state,
    )


def _what_is_held(run: Run, files: Files) -> str:
    plain = [row for row in rows_of(files, "tokens") if row["entry"] == "plain"]
    seen = ""
    if plain:
        last = max(plain, key=lambda row: int(row["tokens"]))
        copies = (last["peak_bytes"] - 4 * last["hidden"] * (last["tokens"] + last["vocab"])) / (
            4 * last["tokens"] * last["vocab"]
        )
        seen = f" (measured above: {copies:.1f} times)"
    rows = [
        ("the logits of a rank's step in float32, once", size(run.logits)),
        (f"plain cross-entropy: the logits and their gradient{seen}", size(2 * run.logits)),
        ("`chunked`: its one buffer of logits", size(run.buffer)),
        ("beside it, if the weight is in half precision: a float32 copy of it", size(run.weight)),
        ("and its gradient under construction, in float32 too", size(run.weight)),
    ]
    return f"### What a rank holds for head and loss\n\n{table(('arithmetic', ''), rows)}"


def _scoring(run: Run, files: Files) -> str:
    rows = rows_of(files, "corpus")
    if not rows:
        return ""
    last: Callable[[str], Row] = lambda verb: max(  # noqa: E731
        (row for row in rows if row["verb"] == verb), key=lambda row: int(row["texts"])
    )
    scored = last("score")
    rate = scored["tokens"] / scored["seconds"]
    per_token = scored["table_bytes"] / scored["tokens"]
    gpu = run.peak * run.use / run.forward
    texts = run.tokens / TEXT
    lines = [
        (
            "the table on disk",
            f"{size(per_token * run.tokens)}, {per_token:.0f} bytes for a token, zstd",
            "measured for a token, and multiplied",
        ),
        (
            "the model, forward alone",
            f"{run.tokens / gpu / run.ranks / 3600:.0f} hours on {run.ranks:,} GPUs, {gpu:,.0f} tokens per second each",
            "arithmetic",
        ),
        (
            "all around the model: encoding, words, Parquet",
            f"{run.tokens / rate / 3600:,.0f} hours of a core, {rate:,.0f} tokens per second each",
            "measured, and multiplied",
        ),
        ("cores for each GPU, so that it does not wait", f"{gpu / rate:.1f}", "from the two"),
        *(
            (
                f"memory of `{verb}`, {texts:,.0f} texts of {TEXT} tokens in one table",
                ("at least " if verb == "detect" else "")  # it holds tokens, of which the measured texts had few
                + more(per_text(row for row in rows if row["verb"] == verb), texts),
                "measured for a text, and multiplied",
            )
            for verb in ("prune", "detect", "report")
        ),
    ]
    return f"### Scoring {trillions(run)} tokens\n\n{table(('what', 'how much', 'how known'), lines)}"


def trillions(run: Run) -> str:
    return f"{run.tokens / 1e12:g} T"
