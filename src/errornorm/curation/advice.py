"""From what the scores show to what to do: a few sentences with the numbers behind them, and commands.

The limits are measurements (docs/results.md). A third of copied sentences: a fraction of 0.1 from half of the steps on
brought beam search from 7 to 26 BLEU. Clean text: a fraction of 0.1 took WikiText-2 from a perplexity of 125 to 178, a
threshold of 1.3 left it there. Copies that a model has learned have a low mean loss, and show at their first token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..openings import FOUND
from .apart import FEWEST
from .naming import output_options
from .noise_rate import Noise, Part

LARGEST_FRACTION = 0.1  # that was measured
SAFE = 1.3  # a threshold that did not hurt clean text
UNFIT = 0.2  # conflicts all over: the model does not know this kind of text
SOME = 0.01  # conflicts that are worth a word
SURE = 0.25  # of the misses above a threshold, to call them noise
OUTPUT = output_options({})
MOSTLY = 0.5  # of easy texts that repeat their context, to call them copies; of all texts, to call it the task


@dataclass(frozen=True, slots=True)
class Advice:
    """Args:
    sentences: For people.
    objective: To train with, or None if the scores cannot tell.
    prune_by: Score to prune texts by, or None: prune nothing by score.
    fraction: Share of texts to prune.
    commands: That do it.
    """

    sentences: tuple[str, ...]
    objective: str | None
    prune_by: str | None = None
    fraction: float | None = None
    commands: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sentences": list(self.sentences), "commands": list(self.commands)}

    def about(self, corpus: Mapping[str, Any]) -> Advice:
        """With names of outputs that fit the form of this corpus."""
        return replace(self, commands=tuple(text.replace(OUTPUT, output_options(corpus)) for text in self.commands))


def describe(noise: Noise) -> list[str]:
    """What the scores show, and what they do not."""
    if noise.texts < FEWEST:
        return [f"Too few texts to estimate a noise rate: {noise.texts}, and {FEWEST} are needed."]
    out = []
    if part := noise.surprising:
        out.append(
            f"About {part.share:.1%} of the texts ({part.low:.1%} to {part.high:.1%}) surprise the model more than the "
            f"others do: they are a part of their own, {part.clear:.1f} deviations away."
        )
    if part := noise.easy:
        known = "" if part.copies is None else f" {part.copies:.0%} of them repeat their context."
        out.append(
            f"About {part.share:.1%} of the texts ({part.low:.1%} to {part.high:.1%}) lie apart with a low loss: "
            f"copies, boilerplate, or what the model knows by heart; look at some.{known}"
        )
    if part := noise.uncertain:
        out.append(
            f"About {part.share:.1%} of the texts ({part.low:.1%} to {part.high:.1%}) lie apart with a high entropy: "
            "the model expects no good guess there, as in another language or a list; look at some."
        )
    if noise.shoulder is not None:
        out.append(
            f"Some texts, perhaps {noise.shoulder:.0%}, are more surprising than the rest, but they do not lie apart: "
            "how many are noise cannot be told."
        )
    elif not out:
        out.append(
            "No part of the texts lies apart: there is no noise of whole texts, less than can be told from clean text, "
            "or a kind that the model has learned and takes for normal."
        )
    if noise.copies is not None and noise.copies >= SOME and noise.easy is None:
        out.append(f"{noise.copies:.1%} of the texts repeat their context; in a translation these are copies.")
    if noise.rate is not None and noise.share is not None and noise.rate > noise.share + SOME:
        out.append(f"With those that repeat their context, about {noise.rate:.1%} of the texts in all.")
    if noise.learnt is not None and noise.learnt >= FOUND:
        out.append(
            f"About {noise.learnt:.1%} of the texts, or more, look like noise that the model has learnt: certain after "
            "an opening that it did not expect."
        )
    return [*out, *_conflicts(noise)]


def _conflicts(noise: Noise) -> list[str]:
    if noise.conflicts is None:
        return []
    share, low, high = noise.conflicts
    numbers = f"{share:.1%} ({low:.1%} to {high:.1%})"
    if share > UNFIT and not noise.visible:
        return [
            f"The model is far too sure of itself, everywhere ({numbers} of its confidence is not borne out): it does "
            "not know this kind of text. Score with one that does; the numbers above mean little."
        ]
    if low > SOME:
        return [f"Words conflict with the model more than they should: {numbers} of its confidence is not borne out."]
    if high < -2 * SOME:
        return [
            "Words conflict with the model less than it expects: it has seen this text, or was trained to be unsure; "
            "noise in single words would not show."
        ]
    return ["Words conflict with the model no more than it expects."]


def advise(noise: Noise) -> Advice:
    """What to do."""
    if noise.texts < FEWEST:
        return Advice(("Score more texts before dropping any; until then train with mle.",), "mle")
    if noise.conflicts is not None and noise.conflicts[0] > UNFIT and not noise.visible:
        return Advice(("No advice: the model cannot judge this text.",), None)
    if noise.surprising:
        return _prune(noise, noise.surprising, "nll_mean", "mean loss")
    if noise.uncertain:
        return _prune(noise, noise.uncertain, "entropy_mean", "mean entropy")
    if noise.easy or (noise.copies or 0.0) >= SOME:
        return _truncate(noise.easy, noise.copies or 0.0)
    if (noise.learnt or 0.0) >= FOUND:
        return Advice(("Look at these texts; if they are not wanted, train with ent_auto().",), "ent_auto()")
    sure = [one for one in noise.thresholds if one.surplus >= SURE and one.dropped > 0]
    if noise.conflicts is not None and noise.conflicts[1] > SOME and sure:
        one = sure[0]
        text = (
            f"Noise of single words, if it is noise: ent_threshold({one.at:g}) drops {one.dropped:.1%} of the tokens, "
            f"where {one.surplus:.0%} of the misses are more than the model expects."
        )
        return Advice((text, _warning()), f"ent_threshold({one.at:g})")
    safe = next(one for one in noise.thresholds if one.at == SAFE)
    drops = f"ent_threshold({SAFE:g}), which did no harm to WikiText-2, would drop {safe.dropped:.1%} of the tokens."
    if noise.shoulder is not None:
        text = "Look at the texts with the highest mean loss before dropping any."
        return Advice((text, f"To train on all of them, {drops}", _warning()), f"ent_threshold({SAFE:g})")
    return Advice(("Nothing stands out: prune nothing, train with mle.", f"To be careful, {drops}", _warning()), "mle")


def _prune(noise: Noise, part: Part, by: str, called: str) -> Advice:
    fraction = max(0.01, round(part.share, 2))
    tokens = min(LARGEST_FRACTION, max(0.01, round(part.tokens, 2)))
    objective = f"ent_fraction({tokens:g})"
    text = [f"Prune {fraction:.0%} of the texts by their {called}, look at what goes, and train on the rest with mle."]
    limit = f", and larger fractions than {LARGEST_FRACTION:g} were not tried" if part.tokens > LARGEST_FRACTION else ""
    text.append(
        f"Or keep all and train with {objective}, started at half of the steps: these texts hold {part.tokens:.1%} of "
        f"the tokens{limit}."
    )
    if noise.surprising is not None and noise.uncertain is not None:
        text.append("Then look at the texts with the highest mean entropy.")
    if noise.easy is not None:
        text.append("That keeps the easy texts; copies among them show at their first token (error_norm_first).")
    return Advice((*text, _warning()), objective, by, fraction, (_command(by, fraction),))


def _truncate(easy: Part | None, copies: float) -> Advice:
    text = ["Do not prune by a mean or a sum: these texts have low ones, and would be what is kept."] if easy else []
    mostly = easy is not None and (easy.copies or 0.0) >= MOSTLY
    if copies < SOME and not mostly:
        text.append("If they are wanted, train with mle; if not, remove them by what they have in common.")
        return Advice((*text, _warning()), "mle")
    fraction = max(0.01, round(max(easy.share if easy and mostly else 0.0, copies), 2))
    if fraction > MOSTLY:
        text = ["Most of the texts repeat their context: that seems to be the task, and no noise. Train with mle."]
        return Advice(tuple(text), "mle")
    text.append(
        f"If they are not wanted, as in a translation: copies show at their first token only, prune {fraction:.0%} of "
        "the texts by error_norm_first."
    )
    text.append("Or keep all and train with ent_auto(), which drops texts that are certain but for their opening.")
    command = _command("error_norm_first", fraction)
    return Advice(tuple(text), "ent_auto()", "error_norm_first", fraction, (command,))


def _command(by: str, fraction: float) -> str:
    return f"errornorm prune SCORES --by {by} --fraction {fraction:g} {OUTPUT}"


def _warning() -> str:
    return "A fraction always drops something: on clean text it drops rare words, and hurts."
