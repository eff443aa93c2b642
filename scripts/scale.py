"""How cost grows with tokens, vocabulary, width, ranks and texts: one file of rows for each, and the figures.

    python scripts/scale.py [tokens vocab width ranks corpus] [--rounds 5] [--output docs/results/scale]
    python scripts/scale.py --draw

What was measured is not measured again, unless it is asked for with --again: a run that was stopped goes on. Times are
of the processor, of one thread: other programs disturb them little. In each round everyone takes one step, in turn.

* tokens, vocab, width: one step of head and loss, forward and backward, and its peak memory in a process of its own;
* ranks: what each scope hands to torch's collectives in a step, on 1, 2 and 4 processes (gloo), and the time of a rank;
* corpus: `score`, `prune`, `detect` and `report` on short texts, each in a process of its own.

`python -m errornorm.cards` makes docs/scale.md of the rows.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import importlib
import json
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

import errornorm
from errornorm import RobustLoss, VocabShard, __version__, objective
from errornorm.bench.memory import RESET, STATUS
from errornorm.bench.problem import Problem, Size, problem
from errornorm.bench.traffic import counted
from errornorm.scale.figures import draw
from errornorm.scale.traffic import SCOPES, Load, Scope, Sends

FOLDER = Path("docs/results/scale")
LENGTH = 64  # tokens of a sequence
ENTRIES = {
    "plain": None,
    "mle": "mle()",
    "ent_fraction": "ent_fraction(0.1)",
    "ent_auto": "ent_auto()",
}
AXES = {  # name: sizes of tokens, width and vocabulary
    "tokens": [Size(n, 128, 4096) for n in (256, 512, 1024, 2048, 4096, 8192, 16384)],
    "vocab": [Size(512, 64, v) for v in (1024, 4096, 16384, 32768, 65536, 131072, 262144)],
    "width": [Size(512, d, 8192) for d in (64, 128, 256, 512, 1024, 2048)],
}
# Python needs seconds to import torch: the server has done so, and its children, which are fresh, are there at once.
server = multiprocessing.get_context("forkserver")
MODULES = ("errornorm.scoring.run", "errornorm.curation.prune", "errornorm.curation.detect", "errornorm.training.use",
           "errornorm.reporting.build", "transformers.models.gpt2.modeling_gpt2")  # fmt: skip
server.set_forkserver_preload(["errornorm.bench.problem", "torch.distributed"])
Step = Callable[[], None]


def stepper(name: str, here: Problem) -> Step:
    """One step of head and loss, in the state in which a method works hardest."""
    spec = ENTRIES[name]
    if spec is None:
        return lambda: F.cross_entropy(F.linear(here.hidden, here.weight), here.targets).backward()
    loss = RobustLoss(objective(spec))
    targets = here.targets.view(-1, LENGTH)

    def step() -> None:
        loss(hidden=here.hidden.unflatten(0, (-1, LENGTH)), weight=here.weight, targets=targets).mean.backward()

    step()
    loss.advance()
    if name == "ent_auto":
        loss.state["found"] = torch.ones((), dtype=torch.bool)  # noise: from now on it drops
    return step


def seconds(step: Step, here: Problem) -> float:
    here.forget()
    gc.collect()
    began = time.process_time()
    step()
    return time.process_time() - began


def about() -> dict[str, Any]:
    """What every row carries."""
    return {"threads": 1, "clock": "cpu", "cpu": cpu(), "cores": os.cpu_count(), "torch": torch.__version__,
            "errornorm": __version__, "date": date.today().isoformat()}  # fmt: skip


def cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown"


def resident(field: str) -> int:
    return 1024 * next(int(x.split()[1]) for x in STATUS.read_text().splitlines() if x.startswith(field + ":"))


@contextlib.contextmanager
def peak() -> Iterator[list[int]]:
    """Most memory of this process inside, beyond what it has now, in bytes."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    RESET.write_text("5")
    before, found = resident("VmRSS"), []
    yield found
    found.append(resident("VmHWM") - before)


def alone(function: Callable[..., Any], *args: Any) -> Any:
    """What a function returns in a process of its own."""
    with server.Pool(1) as pool:
        return pool.apply(function, args)


def memory(name: str, size: Size) -> int:
    torch.set_num_threads(1)
    here = problem(size)
    stepper(name, problem(Size(LENGTH, 32, 128)))()
    step = stepper(name, here)
    here.forget()
    with peak() as found:
        step()
    return found[0]


class Rows:
    """The rows of an axis, in a file that is there completely or not at all."""

    def __init__(self, axis: str, folder: Path, again: bool) -> None:
        self.axis, self.path = axis, folder / f"{axis}.json"
        self.rows: list[dict[str, Any]] = []
        if self.path.exists() and not again:
            self.rows = json.loads(self.path.read_text(encoding="utf-8"))["rows"]

    def have(self, **point: Any) -> bool:
        return any(all(row.get(key) == value for key, value in point.items()) for row in self.rows)

    def add(self, *rows: dict[str, Any]) -> None:
        self.rows += rows
        for row in rows:
            print(self.axis, {key: value for key, value in row.items() if key != "settings"}, flush=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps({"axis": self.axis, "rows": self.rows}, indent=1) + "\n", encoding="utf-8")
        part.replace(self.path)


def measure_head(axis: str, rows: Rows, rounds: int) -> None:
    torch.set_num_threads(1)
    for size in AXES[axis]:
        if rows.have(**size._asdict()):
            continue
        here = problem(size)
        steps = {name: stepper(name, here) for name in ENTRIES}
        for step in steps.values():
            seconds(step, here)
        times: dict[str, list[float]] = {name: [] for name in ENTRIES}
        for turn in range(rounds):
            for name in random.Random(turn).sample(list(steps), len(steps)):
                times[name].append(seconds(steps[name], here))
        del steps, here
        rows.add(*(
            {
                "axis": axis, **size._asdict(), "entry": name, "objective": spec, "seconds": times[name],
                "best": min(times[name]),
                "to_plain": statistics.median(a / b for a, b in zip(times[name], times["plain"], strict=True)),
                "peak_bytes": alone(memory, name, size), "settings": about() | {"rounds": rounds, "length": LENGTH},
            }
            for name, spec in ENTRIES.items()
        ))  # fmt: skip


WORLDS = (1, 2, 4)
LOADS = (Load(512, 8, 64), Load(2048, 32, 64))  # of a rank
VOCAB = 4096


def measure_ranks(axis: str, rows: Rows, rounds: int) -> None:
    for world in WORLDS:
        for load in LOADS:
            if rows.have(ranks=world, tokens=load.tokens):
                continue
            with tempfile.TemporaryDirectory() as folder:
                where = (world, load, rounds, folder)
                torch.multiprocessing.start_processes(on_rank, where, nprocs=world, start_method="forkserver")
                found = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(world)]
            for name, scope in SCOPES.items():
                one = [mine[name] for mine in found]
                want = scope.formula(load) if world > 1 else Sends()
                rows.add({
                    "axis": axis, "scope": name, "objective": scope.objective, "ranks": world, "tokens": load.tokens,
                    "sequences": load.sequences, "width": load.width, "vocab": VOCAB, "micro": load.micro,
                    "all_reduce": [mine["all_reduce"] for mine in one],
                    "all_gather": [mine["all_gather"] for mine in one],
                    "calls": one[0]["calls"], "formula": want._asdict(),
                    "seconds": [min(mine["seconds"]) for mine in one], "settings": about() | {"rounds": rounds},
                })  # fmt: skip


def on_rank(rank: int, world: int, load: Load, rounds: int, folder: str) -> None:
    """A process of a group: each scope in turn, the bytes of its first step, and the times of further ones."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=world)
    steps = {name: scope_step(scope, rank, world, load) for name, scope in SCOPES.items()}
    found: dict[str, Any] = {}
    for name, step in steps.items():
        with counted() as traffic:
            step()
        found[name] = {"all_reduce": traffic.bytes("all_reduce"), "all_gather": traffic.bytes("all_gather"),
                       "calls": len(traffic.sent), "seconds": []}  # fmt: skip
    for _ in range(rounds):
        for name, step in steps.items():
            began = time.process_time()
            step()
            found[name]["seconds"].append(time.process_time() - began)
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def scope_step(scope: Scope, rank: int, world: int, load: Load) -> Step:
    """An optimizer step of a scope on a rank: tokens of its own, or its rows of the vocabulary."""
    here = problem(Size(load.tokens, load.width, VOCAB), seed=0 if scope.sharded else rank)
    hidden = here.hidden.unflatten(0, (load.sequences, -1)).detach().requires_grad_()
    targets, weight, given = here.targets.view(load.sequences, -1), here.weight.detach(), {}
    if scope.sharded and world > 1:
        mine = VOCAB // world
        weight, given = weight[rank * mine : (rank + 1) * mine], {"shard": VocabShard(rank * mine, VOCAB)}
    weight = weight.clone().requires_grad_()
    loss = RobustLoss(objective(scope.objective))

    def step() -> None:
        hidden.grad = weight.grad = None
        loss(hidden=hidden, weight=weight, targets=targets, **given).mean.backward()
        loss.advance()

    return step


TEXTS = (1000, 4000, 16000, 64000, 256_000)
LABELLED = 64000  # texts that `detect` gets at most: it holds them all
NOISY = 10  # one text in so many is not French


def measure_corpus(axis: str, rows: Rows, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        alone(make_model, folder / "model")
        for texts in TEXTS:
            verbs = [verb for verb in VERBS if verb != "detect" or texts <= LABELLED]
            if all(rows.have(texts=texts, verb=verb) for verb in verbs):
                continue
            here = folder / str(texts)
            alone(make_corpus, here, texts)
            for verb in verbs:
                found = alone(run_verb, verb, here, folder / "model")
                rows.add({"axis": axis, "verb": verb, "texts": texts, **found, "settings": about()})


def captions(num: int) -> Iterator[tuple[str, int]]:
    from errornorm.data import grammar

    for number, (caption, french) in enumerate(grammar.corpus(num, 0)):
        noisy = number % NOISY == 0
        yield (caption.english if noisy else french), int(noisy)


def make_model(folder: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    from errornorm.training import tokenizing

    torch.manual_seed(0)
    tokenizer = tokenizing.train_bpe([text for text, _ in captions(500)], 500, "causal", ())
    tokenizer.save_pretrained(folder)
    shape = {"n_layer": 1, "n_head": 2, "n_embd": 32, "n_positions": 128}
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **shape, **ends)).save_pretrained(folder)


def make_corpus(folder: Path, texts: int) -> None:
    folder.mkdir()
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for text, noisy in captions(texts):
            file.write(json.dumps({"text": text, "noisy": noisy}, ensure_ascii=False) + "\n")


def score_it(folder: Path, model: Path) -> None:
    errornorm.score(folder / "corpus.jsonl", model, folder / "scores")


def prune_it(folder: Path, model: Path) -> None:
    errornorm.prune(folder / "scores", fraction=0.1, output=folder / "clean.jsonl")


def detect_it(folder: Path, model: Path) -> None:
    errornorm.detect(folder / "scores", "noisy")


def report_it(folder: Path, model: Path) -> None:
    errornorm.report(folder / "scores", folder / "report.html")


VERBS = {"score": score_it, "prune": prune_it, "detect": detect_it, "report": report_it}


def run_verb(verb: str, folder: Path, model: Path) -> dict[str, Any]:
    torch.set_num_threads(1)
    for module in MODULES:
        importlib.import_module(module)
    with peak() as found:
        began = time.process_time()
        VERBS[verb](folder, model)
        took = time.process_time() - began
    meta = json.loads((folder / "scores" / "meta.json").read_text())
    size = sum(path.stat().st_size for path in (folder / "scores").glob("part-*.parquet"))
    return {"tokens": meta["tokens"], "seconds": took, "peak_bytes": found[0], "table_bytes": size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("axes", nargs="*", metavar="AXIS", help="tokens, vocab, width, ranks, corpus; all by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=FOLDER)
    parser.add_argument("--again", action="store_true", help="measure what was measured")
    parser.add_argument("--draw", action="store_true", help="only the figures, from the rows that are there")
    args = parser.parse_args()
    if args.draw:
        files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(args.output.glob("*.json"))]
        print(*draw(files, args.output), sep="\n")
        return
    measures = {**dict.fromkeys(AXES, measure_head), "ranks": measure_ranks, "corpus": measure_corpus}
    for axis in args.axes or measures:
        measures[axis](axis, Rows(axis, args.output, args.again), args.rounds)


if __name__ == "__main__":
    main()
