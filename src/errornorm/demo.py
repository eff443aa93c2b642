"""The core at work within seconds: three equal losses, what truncation does to a small corpus, a picture of both.

Shapes: N answers of a batch, Q questions, V words, D hidden size.

The corpus is made of questions and answers. Half of the questions have one right answer; the others are open, with
thirty equally right ones. In training a fifth of the answers to the first kind are wrong: a tenth of all. So we know
which tokens are errors, and what a perfect model would say.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from .surface import RobustLoss, delayed, ent_fraction, ent_threshold, objective, token_loss_truncation, token_stats

NO_MATPLOTLIB = "the picture needs matplotlib: pip install errornorm[plot]"

FOODS = "soup rice pasta fish bread eggs salad curry beans stew pizza noodles"
CITIES = "Paris Madrid Rome Lyon Berlin Vienna Oslo"
OTHERS = "the a of and to in we it was on at for not no is as with by from or an be this that had her his our so all"
WORDS = f"{FOODS} {CITIES} {OTHERS} they".split()
P_TARGET = 0.02
LOSS_CUTOFF, NORM_CUTOFF = 3.0, 1.35  # 1.35 is one of the paper's three thresholds

QUESTIONS, VOCAB, HIDDEN, OPEN = 100, 500, 32, 30
WRONG = 0.2  # of the answers to questions with one right answer
STEPS, START, BATCH, RATE = 60, 20, 384, 0.05
HELD_OUT = 4096
OBJECTIVES = (
    "mle",
    "random_truncation(0.1)",
    "token_loss_truncation(0.1)",
    "ent_fraction(0.1)",
    "ent_threshold(1.2)",
)
Mistakes = Literal["repeated", "random", "none"]
MISTAKES: tuple[Mistakes, ...] = ("repeated", "random", "none")


@dataclass(frozen=True, slots=True)
class Case:
    """One target token, and what a model says in its place."""

    name: str
    context: str
    target: str
    probabilities: dict[str, float]
    p_target: float
    nll: float
    error_norm: float
    loss_drops: bool
    ent_drops: bool


def cases() -> list[Case]:
    """The paper's Figure 1 in words of our own: one loss, three reasons for it, and only one of them is an error."""
    meals = dict(zip(WORDS, (0.16, 0.14, 0.13, 0.11, 0.1, 0.09, 0.07, 0.06, 0.05, 0.04, 0.02), strict=False))
    cities = {"Paris": 0.95, "Lyon": 0.01, "Rome": 0.006, "Berlin": 0.004, "Vienna": 0.002, "Oslo": 0.002}
    drawn: tuple[tuple[str, str, str, dict[str, float]], ...] = (
        ("Many right answers", "For dinner we had", "noodles", meals),
        ("Untrained model", "For dinner we had", "noodles", {}),
        ("Error in the data", "The capital of France is", "Madrid", cities),
    )
    tables = [_distribution(target, likely) for _, _, target, likely in drawn]
    logits = torch.tensor([list(table.values()) for table in tables]).log().requires_grad_()
    targets = torch.tensor([WORDS.index(target) for _, _, target, _ in drawn])
    stats = token_stats(logits=logits, targets=targets).detach()
    weights = RobustLoss(ent_threshold(NORM_CUTOFF))(logits=logits, targets=targets).weights
    numbers = zip(stats.p_target.tolist(), stats.nll.tolist(), stats.error_norm.tolist(), weights.tolist(), strict=True)
    return [
        Case(name, context, target, table, p, nll, norm, loss_drops=nll > LOSS_CUTOFF, ent_drops=weight == 0)
        for (name, context, target, _), table, (p, nll, norm, weight) in zip(drawn, tables, numbers, strict=True)
    ]


def _distribution(target: str, likely: dict[str, float]) -> dict[str, float]:
    """Over all words: the target's probability, the likely ones', and what is left spread evenly."""
    given = {target: P_TARGET, **likely}
    rest = (1 - sum(given.values())) / (len(WORDS) - len(given))
    return {word: given.get(word, rest) for word in WORDS}


class Answers(NamedTuple):
    questions: Tensor  # [N]
    words: Tensor  # [N] the targets
    wrong: Tensor  # [N] whether the target is an error

    @property
    def closed(self) -> Tensor:
        """[N] whether the question has one right answer."""
        return self.questions < QUESTIONS // 2


@dataclass(frozen=True, slots=True)
class Corpus:
    """Answers with mistakes: for each question the same two, or any word, or none."""

    mistakes: Mistakes
    words: Tensor  # [Q, V] for each question all words: the right ones first, then its two repeated mistakes

    @staticmethod
    def of(mistakes: Mistakes, generator: torch.Generator) -> Corpus:
        return Corpus(mistakes, torch.rand(QUESTIONS, VOCAB, generator=generator).argsort(1))

    def draw(self, count: int, generator: torch.Generator, noisy: bool = True) -> Answers:
        question = torch.randint(QUESTIONS, (count,), generator=generator)
        closed = question < QUESTIONS // 2
        right = torch.randint(OPEN, (count,), generator=generator).masked_fill(closed, 0)
        first, last = (OPEN, OPEN + 2) if self.mistakes == "repeated" else (1, VOCAB)
        false = torch.randint(first, last, (count,), generator=generator)
        unlucky = torch.rand(count, generator=generator) < WRONG
        wrong = unlucky & closed & (noisy and self.mistakes != "none")
        return Answers(question, self.words[question, torch.where(wrong, false, right)], wrong)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What training with an objective came to. The last three are of held-out answers without mistakes."""

    objective: str
    mistakes: Mistakes
    dropped: float  # share of the tokens, from the start step on
    precision: float | None  # share of the dropped tokens that were errors
    recall: float | None  # share of the errors that were dropped
    p_right: float  # of questions with one right answer
    nll_open: float  # of open questions
    nll: float  # of all


@dataclass(frozen=True, slots=True)
class Model:
    """The smallest language model: a hidden state for each question, and a head."""

    hidden: Tensor  # [Q, D]
    weight: Tensor  # [V, D]

    @staticmethod
    def of(generator: torch.Generator) -> Model:
        hidden = torch.randn(QUESTIONS, HIDDEN, generator=generator)
        weight = torch.randn(VOCAB, HIDDEN, generator=generator) / math.sqrt(HIDDEN)
        return Model(hidden.requires_grad_(), weight.requires_grad_())

    def inputs(self, answers: Answers) -> dict[str, Any]:
        return {"hidden": self.hidden[answers.questions], "weight": self.weight, "targets": answers.words}


class Trained(NamedTuple):
    outcome: Outcome
    corpus: Corpus
    model: Model


def train(spec: str, mistakes: Mistakes) -> Trained:
    """A small model on a noisy corpus: likelihood up to the start step, then the objective."""
    generator = torch.Generator().manual_seed(0)
    corpus, model = Corpus.of(mistakes, generator), Model.of(generator)
    optimizer = torch.optim.Adam([model.hidden, model.weight], lr=RATE)
    loss = RobustLoss(delayed(objective(spec), START))
    tokens = dropped = errors = hits = 0
    for step in range(STEPS):
        answers = corpus.draw(BATCH, generator)
        terms = loss(**model.inputs(answers))
        optimizer.zero_grad()
        terms.mean.backward()
        optimizer.step()
        loss.advance()
        if step >= START:
            tokens += terms.num_tokens
            dropped += terms.num_tokens - terms.num_kept
            errors += int(answers.wrong.sum())
            hits += int((answers.wrong & (terms.weights == 0)).sum())
    held = corpus.draw(HELD_OUT, generator, noisy=False)
    stats = token_stats(**model.inputs(held), statistics=["nll"]).detach()
    outcome = Outcome(
        objective=spec,
        mistakes=mistakes,
        dropped=dropped / tokens,
        precision=hits / dropped if dropped and errors else None,
        recall=hits / errors if errors else None,
        p_right=stats.p_target[held.closed].mean().item(),
        nll_open=stats.nll[~held.closed].mean().item(),
        nll=stats.nll.mean().item(),
    )
    return Trained(outcome, corpus, model)


@dataclass(frozen=True, slots=True)
class Suspects:
    """Two scores of the same training answers, and where the top tenth of each begins."""

    answers: Answers
    nll: Tensor
    error_norm: Tensor
    nll_cutoff: float
    error_norm_cutoff: float


def suspects(trained: Trained) -> Suspects:
    """What a cutoff gets to see."""
    answers = trained.corpus.draw(HELD_OUT, torch.Generator().manual_seed(1))
    by_nll, by_norm = (
        RobustLoss(method(0.1))(**trained.model.inputs(answers)) for method in (token_loss_truncation, ent_fraction)
    )
    assert by_nll.cutoff is not None
    assert by_norm.cutoff is not None
    return Suspects(answers, by_norm.stats.nll, by_norm.stats.error_norm, by_nll.cutoff, by_norm.cutoff)


class Table(NamedTuple):
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


@dataclass(frozen=True, slots=True)
class Demo:
    cases: list[Case]
    outcomes: list[Outcome]
    picture: Path | None  # None: matplotlib is missing

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"picture": None if self.picture is None else str(self.picture)}

    def tables(self) -> list[Table]:
        return [_case_table(self.cases), _outcome_table(self.outcomes), _loss_table(self.outcomes)]


def run(folder: Path, tell: Callable[[str], None] = lambda text: None) -> Demo:
    """Compute everything and draw `demo.png` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = cases()
    trained: list[Trained] = []
    with _one_thread():
        for mistakes in MISTAKES:
            for spec in OBJECTIVES:
                tell(f"training {len(trained) + 1} of {len(MISTAKES) * len(OBJECTIVES)}: {spec}, {mistakes} mistakes")
                trained.append(train(spec, mistakes))
    picture: Path | None = folder / "demo.png"
    try:
        draw(shown, suspects(trained[0]), folder / "demo.png")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "matplotlib":
            raise
        picture = None
    return Demo(shown, [t.outcome for t in trained], picture)


@contextmanager
def _one_thread() -> Iterator[None]:
    """So small a model loses more by waiting for other threads than it gains."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _case_table(shown: list[Case]) -> Table:
    header = ("", "text, up to the target", "p(target)", "loss", "error norm", f"loss > {LOSS_CUTOFF:g}",
              f"norm > {NORM_CUTOFF:g}")  # fmt: skip
    rows = tuple(
        (
            c.name.lower(), f"{c.context} {c.target}", f"{c.p_target:.2f}", f"{c.nll:.2f}", f"{c.error_norm:.2f}",
            _dropped(c.loss_drops), _dropped(c.ent_drops),
        )
        for c in shown
    )  # fmt: skip
    note = (
        "No cutoff on the loss can tell the three apart. The error norm is large only where the model is sure of "
        "another word."
    )
    return Table("Three targets with the same loss", header, rows, note)


def _dropped(yes: bool) -> str:
    return "dropped" if yes else "kept"


def _outcome_table(outcomes: list[Outcome]) -> Table:
    header = ("objective", "dropped", "precision", "recall", "p(right)", "loss, open", "loss, all")
    rows = tuple(
        (
            o.objective, f"{o.dropped:.1%}", _share(o.precision), _share(o.recall), f"{o.p_right:.3f}",
            f"{o.nll_open:.3f}", f"{o.nll:.3f}",
        )
        for o in outcomes
        if o.mistakes == "repeated"
    )  # fmt: skip
    note = (
        "Precision and recall: of the dropped tokens against the errors that were put in. The other columns: held-out "
        "answers without errors. p(right) is of questions with one right answer; open questions have "
        f"{OPEN}, so nothing beats a loss of {math.log(OPEN):.2f} there. Truncation starts at step {START} of {STEPS}. "
        "The fraction equals the share of errors, which is known here; in real data it is not."
    )
    return Table("A tenth of the training targets wrong, the same mistakes again and again", header, rows, note)


def _loss_table(outcomes: list[Outcome]) -> Table:
    rows = tuple(
        (spec, *(f"{o.nll:.3f}" for m in MISTAKES for o in outcomes if (o.objective, o.mistakes) == (spec, m)))
        for spec in OBJECTIVES
    )
    note = (
        "Where mistakes are random words, the loss finds them nearly as well. Where there are none, a fraction still "
        "drops a tenth, which hurts whatever ranks the tokens; a threshold drops nothing."
    )
    return Table("Held-out loss by the kind of mistake", ("objective", *MISTAKES), rows, note)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


# Okabe and Ito's colours, which all eyes can tell apart.
BLUE, ORANGE, GREEN, GREY, INK, FAINT = "#0072B2", "#D55E00", "#007A5A", "#C9CDD2", "#22262B", "#6B7178"
STYLE: dict[Any, Any] = {
    "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": GREY, "text.color": INK,
    "axes.labelcolor": FAINT, "xtick.color": FAINT, "ytick.color": FAINT, "axes.titlepad": 8,
}  # fmt: skip


def draw(shown: list[Case], seen: Suspects, path: Path) -> None:
    """The picture: three distributions on top; below, both scores of right and wrong tokens."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE), _replacing(path) as file:
        figure = Figure(figsize=(10.5, 7.4), layout="constrained")
        FigureCanvasAgg(figure)
        halves: Any = figure.subfigures(2, 1, height_ratios=(1, 1.05), hspace=0.06)
        top, bottom = halves
        top.suptitle("Three targets with the same loss: only the last one is an error", weight="bold", fontsize=12)
        for axes, case in zip(top.subplots(1, 3), shown, strict=True):
            _draw_case(axes, case)
        bottom.suptitle("A tenth of the training targets is wrong: which tenth is dropped?", weight="bold", fontsize=12)
        left, right = bottom.subplots(1, 2)
        _draw_scores(left, seen.answers, seen.nll, seen.nll_cutoff, "loss")
        _draw_scores(right, seen.answers, seen.error_norm, seen.error_norm_cutoff, "error norm")
        handles, labels = left.get_legend_handles_labels()
        bottom.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
        figure.savefig(file, format="png", dpi=110, metadata={"Software": None})


def _draw_case(axes: Any, case: Case) -> None:
    colour = ORANGE if case.ent_drops else GREEN
    # Where all are equally likely, words from all over the list.
    ranked = sorted(WORDS, key=lambda word: (-case.probabilities[word], WORDS.index(word) * 7 % len(WORDS)))
    words = [*[word for word in ranked if word != case.target][:6], case.target]
    words.sort(key=lambda word: -case.probabilities[word])
    values = [case.probabilities[word] for word in words]
    axes.barh(range(len(words)), values, color=[colour if word == case.target else GREY for word in words], height=0.7)
    for place, value in enumerate(values):
        axes.text(value + 0.015, place, f"{value:.1%}" if value < 0.01 else f"{value:.0%}", va="center", color=FAINT)
    labels = [*words, f"{len(WORDS) - len(words)} more"]
    axes.set_yticks(range(len(labels)), labels)
    axes.get_yticklabels()[words.index(case.target)].set(color=colour, weight="bold")
    axes.get_yticklabels()[-1].set_style("italic")
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.1)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.set_title(f"{case.name}\n“{case.context} …”", fontsize=10)
    text = f"loss {case.nll:.2f}\nerror norm {case.error_norm:.2f}\nENT {'drops' if case.ent_drops else 'keeps'} it"
    axes.text(0.98, 0.3, text, transform=axes.transAxes, ha="right", va="center", linespacing=1.5, color=colour)


def _draw_scores(axes: Any, answers: Answers, scores: Tensor, cutoff: float, name: str) -> None:
    groups = (
        ("right, the only answer", GREY, answers.closed & ~answers.wrong),
        ("right, one of many", BLUE, ~answers.closed),
        ("wrong", ORANGE, answers.wrong),
    )
    most = scores.max().item()
    width = cutoff / round(45 * cutoff / most)  # the cutoff falls between two bars
    edges = [width * i for i in range(math.ceil(most / width) + 1)]
    for label, colour, group in groups:
        values = scores[group].tolist()
        share = [1 / len(values)] * len(values)
        axes.hist(values, edges, weights=share, color=colour, alpha=0.75, label=label, histtype="stepfilled")
    axes.axvspan(cutoff, edges[-1], color=INK, alpha=0.06, linewidth=0)
    axes.axvline(cutoff, color=INK, linewidth=1.2)
    axes.annotate(
        "dropped", (cutoff, 1), xycoords=("data", "axes fraction"), xytext=(5, -4), textcoords="offset points", va="top"
    )
    axes.set_xlim(0, edges[-1])
    dropped = scores > cutoff
    found = answers.wrong[dropped].double().mean().item()
    axes.set_title(f"By {name}: {found:.0%} of the dropped targets are wrong", fontsize=10)
    axes.set_xlabel(f"{name}, after training by likelihood")
    axes.set_ylabel("share of the group")


@contextmanager
def _replacing(path: Path) -> Iterator[Any]:
    """A file that takes its place only when it is whole."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
