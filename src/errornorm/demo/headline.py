"""The first sentences of the page: what the numbers say, and no more."""

from __future__ import annotations

from collections.abc import Sequence

from .parts import Row

CLEARLY = 0.2  # a difference of shares that deserves a sentence
SPACE = "\N{NO-BREAK SPACE}"


def whole(share: float) -> str:
    """A share in whole percent. Nearly all is not 100 %, nearly none is not 0 %."""
    if 0.99 < share < 1:
        return f"over 99{SPACE}%"
    if 0 < share < 0.01:
        return f"under 1{SPACE}%"
    return f"{share:.0%}".replace("%", f"{SPACE}%")


def pair(rows: Sequence[Row]) -> tuple[Row, Row] | None:
    """Likelihood and error norm truncation, where both took part."""
    likelihood = next((row for row in rows if row.spec.partition("(")[0] == "mle"), None)
    truncated = next((row for row in rows if row.spec.startswith("ent_")), None)
    return (likelihood, truncated) if likelihood and truncated else None


def collapsed(rows: Sequence[Row]) -> bool:
    """Whether likelihood mostly copies and error norm truncation copies far less and does better."""
    if not (found := pair(rows)):
        return False
    likelihood, truncated = found
    fewer = likelihood.copies_beam - truncated.copies_beam
    return likelihood.copies_beam >= 0.5 and fewer >= CLEARLY and _quality(truncated) > _quality(likelihood)


def headline(rows: Sequence[Row]) -> str:
    """Likelihood against error norm truncation where that one is better; else the range of the results."""
    if not (found := pair(rows)) or not _better(*found):
        return _range(rows)
    likelihood, truncated = found
    if likelihood.correct_beam is None or truncated.correct_beam is None:
        return (
            f"With beam search, likelihood copies {whole(likelihood.copies_beam)} of the sentences and reaches BLEU "
            f"{likelihood.bleu_beam:.1f}; error norm truncation copies {whole(truncated.copies_beam)} and reaches "
            f"BLEU {truncated.bleu_beam:.1f}."
        )
    return (
        f"With beam search, likelihood copies {whole(likelihood.copies_beam)} of the sentences and translates "
        f"{whole(likelihood.correct_beam)}; error norm truncation translates {whole(truncated.correct_beam)}."
    )


def aside(rows: Sequence[Row]) -> str:
    """What greedy search makes of the model that copies; empty if the search does not matter so much."""
    if not collapsed(rows) or not (found := pair(rows)):
        return ""
    likelihood, _ = found
    if _quality(likelihood, "greedy") - _quality(likelihood) < CLEARLY:
        return ""
    greedy = (
        f"BLEU is {likelihood.bleu_greedy:.1f}"
        if likelihood.correct_greedy is None
        else f"it translates {whole(likelihood.correct_greedy)}"
    )
    return f"The likelihood model has learned to translate: with greedy search {greedy}. Beam search finds the copies."


def _quality(row: Row, search: str = "beam") -> float:
    correct: float | None = getattr(row, f"correct_{search}")
    bleu: float = getattr(row, f"bleu_{search}")
    return bleu / 100 if correct is None else correct


def _better(likelihood: Row, truncated: Row) -> bool:
    return truncated.copies_beam < likelihood.copies_beam and _quality(truncated) > _quality(likelihood)


def _range(rows: Sequence[Row]) -> str:
    worst, *_, best = sorted([rows[0], *rows], key=_quality)
    if worst.correct_beam is None or best.correct_beam is None:
        low, high, what = f"{worst.bleu_beam:.1f}", f"{best.bleu_beam:.1f}", "BLEU"
    else:
        low, high, what = whole(worst.correct_beam), whole(best.correct_beam), "the share of right translations"
    if low == high:
        return f"With beam search, {what} is {low} with {_who(rows)}."
    return f"With beam search, {what} is between {low} ({worst.method}) and {high} ({best.method})."


def _who(rows: Sequence[Row]) -> str:
    return rows[0].method if len(rows) == 1 else "every method"
