"""Use a model that was trained: evaluate it, or let it write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from .._version import __version__
from ..data.lines import DataError, Problem, lines_of, read_lines
from ..data.quarantine import Quarantine
from ..evaluation import decode
from ..evaluation.judge import BY_TASK, Question, Verdict, judge
from ..near import near
from . import corpora, models, tokenizing
from .config import Source
from .presets import kind_of

CHUNK = 1000  # lines that are generated from together
LONGEST = 1024  # tokens that a model reads which does not say how many it was trained on


@dataclass(frozen=True)
class Saved:
    """A model with what is needed to use it."""

    model: Any
    tokenizer: Any
    task: str
    prefix: str = ""
    tags: list[str] = field(default_factory=list)
    max_length: int = 256
    method: str | None = None

    def before(self, language: str | None) -> str:
        """What the model reads before a source text."""
        causal = kind_of(self.task) == "causal"
        if causal or not self.tags:
            if language is not None:
                raise ValueError(f"language {language!r}: the model reads no language tags; leave the language out")
            return "" if causal else self.prefix
        tag = self.tags[0] if language is None and len(self.tags) == 1 else f"<2{language}>"
        if tag not in self.tags:
            able = ", ".join(tag.removeprefix("<2").removesuffix(">") for tag in self.tags)
            what = "several languages" if language is None else f"no {language!r}"
            raise ValueError(f"the model writes {what}: choose the language to write out of {able}")
        return f"{tag} {self.prefix}"


def load(folder: Path | str, task: str | None = None) -> Saved:
    """From a run directory, or from a folder with any model of transformers."""
    folder = Path(folder)
    if task not in (None, *BY_TASK):
        raise ValueError(f"unknown task {task!r}{near(str(task), BY_TASK)}; there are {', '.join(BY_TASK)}")
    models.quiet()
    place = model_in(folder)
    if not (place / "config.json").is_file():
        raise DataError(f"{folder}: no model there: {_why(folder)}")
    try:
        about = json.loads((place / "config.json").read_text(encoding="utf-8"))
        ours = place / "errornorm.json"
        use = json.loads(ours.read_text(encoding="utf-8")) if ours.is_file() else {}
        _refuse_odd(about, use)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: config.json or errornorm.json is damaged: {error}") from error
    guess = "translation" if about.get("is_encoder_decoder") else "language-modeling"
    use["task"] = task or use.get("task", guess)
    model = models.load(str(place), kind_of(use["task"]))
    use.setdefault("max_length", min(LONGEST, decode.positions(model) or LONGEST))
    tokenizer = tokenizing.load(str(place))
    last, rows = max(tokenizer.get_vocab().values()), model.get_input_embeddings().weight.shape[0]
    if last >= rows:
        raise DataError(
            f"{place}: the tokenizer has a token {last}, and the model only {rows}: they do not belong together"
        )
    return Saved(model, tokenizer, **use)


def model_in(folder: Path) -> Path:
    """The model's own folder: that of a run directory, or the folder itself."""
    return folder / "model" if (folder / "model" / "config.json").is_file() else folder


def _refuse_odd(about: Any, use: Any) -> None:
    """What a folder says about its model must be what `train` writes."""
    if not isinstance(about, dict) or not isinstance(use, dict):
        raise ValueError("not an object")
    kinds = {"prefix": str, "tags": list, "max_length": int, "method": str | None, "task": str}
    for name, value in use.items():
        if name not in kinds or not isinstance(value, kinds[name]):
            raise ValueError(f"{name!r} is {value!r}")
    if not 2 <= use.get("max_length", LONGEST) <= 2**20:  # true is 1
        raise ValueError(f"'max_length' is {use['max_length']!r}")
    if use.get("task", "translation") not in BY_TASK or not all(isinstance(tag, str) for tag in use.get("tags", [])):
        raise ValueError("an unknown task, or tags that are no texts")


def _why(folder: Path) -> str:
    if not folder.is_dir():
        return "it is no folder; check the name"
    if seeds := sorted(path.parent.name for path in folder.glob("seed-*/model")):
        return f"it has runs of several seeds; choose one of {', '.join(seeds)}"
    if (folder / "config.yaml").is_file():
        return "the run is not finished; go on with it (--resume)"
    return "it has no config.json; check the name"


def evaluate(
    folder: Path | str | Saved,
    corpus: Source | Mapping[str, Any] | Path | str,
    *,
    metrics: Sequence[str] | None = None,
    task: str | None = None,
    quarantine: Path | None = None,
    tell: Callable[[int], None] = lambda done: None,
    **options: Any,
) -> tuple[dict[str, Any], Verdict]:
    """Measure a saved model on a corpus: a row with its settings, and the outputs behind it.

    Args:
        folder: A run directory, a model's folder, or what `load` returned.
        corpus: Where the texts are: a file, or the entries of a corpus as in a configuration, such as
            {"path": "test.en", "pair": "test.fr"}.
        metrics: Some of likelihood, bleu, chrf, rouge, copies; by the task if not given.
        task: If the model does not know its own.
        quarantine: File for the lines that cannot be used, with their places and reasons; they are counted without.
        tell: Called with the number of outputs, now and then.
        options: Of `Question`: beams, max_new_tokens, limit, tokenize, flores_model.
    """
    if not isinstance(corpus, Source):
        corpus = corpora.source_of(corpus if isinstance(corpus, Mapping) else {"path": corpus})
    saved = folder if isinstance(folder, Saved) else load(folder, task)
    names = BY_TASK[saved.task] if metrics is None else metrics
    question = Question(names, max_length=saved.max_length, **options)
    with TemporaryDirectory() as place:
        kept = Quarantine(quarantine or Path(place) / "quarantine.jsonl")
        texts = list(corpora.read(corpus, kind_of(saved.task), kept))
    language = corpus.languages.split("-")[1] if corpus.languages else None
    verdict = judge(saved.model, saved.tokenizer, texts, question, saved.before(language), tell)
    row = {
        **verdict.values,
        "signatures": verdict.signatures,
        "records": kept.records,
        "quarantined": kept.problems,
        "reasons": dict(kept.reasons),
        "task": saved.task,
        "method": saved.method,
        "errornorm": __version__,
    }
    return row, verdict


def generate(
    folder: Path | str | Saved,
    lines: Iterable[str],
    *,
    beams: int = 5,
    max_new_tokens: int = 128,
    to: str | None = None,
    task: str | None = None,
) -> Iterator[str]:
    """Translate, summarize or continue each line, in order, a thousand at a time. An empty line stays empty."""
    saved = folder if isinstance(folder, Saved) else load(folder, task)
    before = saved.before(to)
    iterator = iter([lines] if isinstance(lines, str) else lines)
    while chunk := list(islice(iterator, CHUNK)):
        outputs = iter(
            decode.generate(
                saved.model, saved.tokenizer, [before + line for line in chunk if line.strip()],
                beams=beams, max_new_tokens=max_new_tokens, max_length=saved.max_length,
            )
        )  # fmt: skip
        yield from (next(outputs) if line.strip() else "" for line in chunk)


def readable(path: Path | IO[bytes], on_problem: Callable[[Problem], None]) -> Iterator[str]:
    """Lines of a file. One that cannot be read is an empty one, so that outputs keep their numbers."""
    first, good = None, False
    for line in read_lines(path) if isinstance(path, Path) else lines_of(path, "standard input"):
        if isinstance(line, Problem):
            on_problem(line)
            first = first or line
            yield ""
        else:
            good = True
            yield line.text
    if first is not None and not good:
        raise DataError(f"{first.where.file}: no line can be read ({first.reason}); it must be text in UTF-8")
