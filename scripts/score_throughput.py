"""What scoring costs beside the model's own forward pass: tokens per second and memory, everyone in one run.

    python scripts/score_throughput.py [--model FOLDER --corpus FILE] [--rounds 7] [--output docs/results]

Without a folder the model is a GPT-2 of 124 million random parameters with its vocabulary of 50,257, and the text is
random too. In each round every variant scores the same batches, one after the other, on one thread; ratios of processor
time are taken within a round, and their median is reported. Memory is the peak of a process of its own, above what it
has before the model is loaded.

* body: the model without its head, for the memory;
* forward: the model alone, with its logits, nothing computed from them;
* plain: the usual loop, cross-entropy of every token from the logits;
* plain, all four: the usual loop, with error norm, entropy and p of the target too;
* score: `errornorm score`, with ranks and alternatives above the cutoff.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from errornorm import __version__
from errornorm.bench.memory import peak_above
from errornorm.data.lines import Where
from errornorm.data.records import Record
from errornorm.evaluation.encode import by_length
from errornorm.scoring.encode import Encoded, Encoder
from errornorm.scoring.forward import Forward
from errornorm.scoring.parts import Settings

CUTOFF = Settings("text", "").cutoff
VARIANTS = ("forward", "plain", "plain, all four", "score")
BODY = "body"


def random_model() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config()).eval()


def random_rows(num: int, vocab: int) -> list[Encoded]:
    numbers = random.Random(0)
    rows = []
    for _ in range(num):
        tokens = [numbers.randrange(vocab) for _ in range(numbers.randint(8, 64))]
        rows.append(Encoded([0, *tokens[:-1]], tokens, 0, [(0, 1)] * len(tokens)))
    return rows


def batches_of(args: argparse.Namespace) -> tuple[Any, list[dict[str, torch.Tensor]]]:
    """The model, and batches of equal sizes for everyone."""
    if args.model is None:
        model = random_model()
        rows = random_rows(args.texts, model.config.vocab_size)
        pad = Encoder.batch
        encoder: Any = argparse.Namespace(pad=0, vocab=model.config.vocab_size)
        make: Callable[[list[Encoded]], dict[str, torch.Tensor]] = lambda some: pad(encoder, some)  # noqa: E731
    else:
        from errornorm.training.use import load

        saved = load(args.model)
        model = saved.model.eval()
        real = Encoder(model, saved.tokenizer, saved.max_length)
        texts = [line for line in args.corpus.read_text("utf-8").splitlines() if len(line.split()) > 3][: args.texts]
        records = [Record(Where("", i), {"text": text}) for i, text in enumerate(texts)]
        rows = [row for row in real.encode([""] * len(records), texts) if isinstance(row, Encoded)]
        make = real.batch
    order = by_length([row.size for row in rows], args.tokens)
    return model, [make([rows[i] for i in batch]) for batch in order]


def runner(name: str, model: Any) -> Callable[[dict[str, torch.Tensor]], Any]:
    forward = Forward(model)

    @torch.inference_mode()
    def logits(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        found = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
        assert isinstance(found, torch.Tensor)
        return found

    @torch.inference_mode()
    def plain(batch: dict[str, torch.Tensor]) -> Any:
        found = logits(batch)
        return F.cross_entropy(found.flatten(0, 1), batch["targets"].flatten(), reduction="none")

    @torch.inference_mode()
    def four(batch: dict[str, torch.Tensor]) -> Any:
        found, targets = logits(batch)[batch["scored"]], batch["targets"][batch["scored"]]
        log_p = found.log_softmax(-1)
        p = log_p.exp()
        nll = -log_p.gather(1, targets.unsqueeze(1)).squeeze(1)
        entropy = -(p * log_p).sum(1)
        own = p.gather(1, targets.unsqueeze(1)).squeeze(1)
        p[torch.arange(len(p)), targets] -= 1
        return nll, p.norm(dim=1), entropy, own

    def score(batch: dict[str, torch.Tensor]) -> Any:
        judged = forward(batch)
        which = (judged.stats.error_norm > CUTOFF).nonzero().squeeze(1)
        return judged.stats, forward.alternatives(judged, which, 5) if len(which) else None

    @torch.inference_mode()
    def body(batch: dict[str, torch.Tensor]) -> Any:
        return model.base_model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False)

    return {BODY: body, "forward": logits, "plain": plain, "plain, all four": four, "score": score}[name]


def timed(args: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(1)  # then the time of the processor is that of the work, whatever else runs
    model, batches = batches_of(args)
    run = {name: runner(name, model) for name in VARIANTS}
    tokens = sum(int(batch["scored"].sum()) for batch in batches)
    for name in VARIANTS:
        run[name](batches[0])
    rates: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for turn in range(args.rounds):
        for name in VARIANTS[turn % 4 :] + VARIANTS[: turn % 4]:
            began = time.process_time()
            for batch in batches:
                run[name](batch)
            rates[name].append(tokens / (time.process_time() - began))
        print({name: round(rates[name][-1]) for name in VARIANTS}, flush=True)
    above = sum(int((runner("score", model)(b)[0].error_norm > CUTOFF).sum()) for b in batches) / tokens
    against = {
        name: statistics.median(ours / other for ours, other in zip(rates["score"], rates[name], strict=True))
        for name in VARIANTS[:3]
    }
    weights = sum(p.numel() * p.element_size() for p in {id(p): p for p in model.parameters()}.values())
    return {"tokens": tokens, "above_cutoff": above, "tokens_per_second": rates, "score_to": against,
            "vocab": model.config.vocab_size, "weights": weights}  # fmt: skip


def peak(args: argparse.Namespace, name: str) -> float:
    """Bytes that a variant needs, by its own process."""
    argv = [sys.executable, __file__, "--peak", name, "--texts", str(args.texts), "--tokens", str(args.tokens)]
    if args.model is not None:
        argv += ["--model", str(args.model), "--corpus", str(args.corpus)]
    return float(subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])


def own_peak(args: argparse.Namespace) -> None:
    import transformers  # noqa: F401

    def some() -> None:
        model, batches = batches_of(args)
        run = runner(args.peak, model)
        for batch in batches[:6]:
            run(batch)

    print(peak_above(some))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--texts", type=int, default=240)
    parser.add_argument("--tokens", type=int, default=Settings("text", "").tokens)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, default=Path("docs/results"))
    parser.add_argument("--peak", choices=(BODY, *VARIANTS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peak:
        own_peak(args)
        return
    found = timed(args)
    found["peak_bytes"] = {name: peak(args, name) for name in (BODY, *VARIANTS)}
    settings = {
        "model": "random GPT-2" if args.model is None else args.model.name,
        "texts": args.texts,
        "tokens_per_batch": args.tokens,
        "rounds": args.rounds,
        "cutoff": CUTOFF,
        "threads": 1,
        "torch": torch.__version__,
        "errornorm": __version__,
        "machine": platform.machine(),
    }
    print(json.dumps({k: found[k] for k in ("above_cutoff", "score_to", "peak_bytes")}, indent=1))
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / "score_throughput.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    rows = [row for row in rows if row["settings"]["model"] != settings["model"]] + [{"settings": settings, **found}]
    path.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
