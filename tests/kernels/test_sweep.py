"""Every kernel on shapes of every size, in every type, against float64.

The tolerances are those of the matrix (`same_numbers`; in float64 those of its scaled heads). A batch of a few tokens
is not the matrix's batch of fifty, so four things differ, and a failure is to be read with them in mind:

- logits are smaller (`SIZE`): near 20 and more, a product in float32 alone is beyond the tolerance of the weights, and
  the entropy of a token that is certain of something else has too few digits left for eaft;
- a total that is next to nothing has a `floor`;
- what a gradient of the specification in the same type is off by is the worst of some `UNITS`, and so much more is
  allowed for weights, too: of a few tokens one may round well by chance, where a gradient is a small difference;
- rounding is in proportion to the largest entry of a gradient, and the largest of a few is not much larger than any:
  of a thousand it is four times as large (`rounding`);
- the gradient of the bias is measured as a column of the weight's (`joined`).
"""

import random
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from errornorm import RobustLoss, VocabShard, objective
from tests.problems import problem, same_numbers
from tests.processes import alone, two_ranks
from tests.tally import Suite

SHAPES = 1000
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
KERNELS = {"hidden": ("chunked", "reference"), "logits": ("logits", "reference")}
SHARDED = {"hidden": ("vocab_parallel",)}
TRITON = {"hidden": ("triton",), "logits": ("triton",)}
# Whose weights move with the statistics, or are told by a threshold; a fraction would have ties in tiny batches.
CASES = ["mle", "tailr", "eaft", "focal", "generalized_ce", "mixce", "dft", "ent_threshold(1.05)"]
UNITS = [1.0, 1.1, 1.3, 1.4427, 1.7, 0.7, 3.0, 5.3, 0.9]
SIZE = 0.5
ELEMENTS = 2**24  # of a weight, or of logits: 128 MB in float64
FEW = 2**16  # of logits, where the interpreter needs milliseconds for a thousand


def shape(rng, number, elements):
    """Vocabulary, hidden size, rows, positions."""
    if number % 100 == 50:
        vocab = rng.choice([128_000, 151_936, 256_000, 2**18])
    elif number % 20 == 10:
        vocab = rng.randint(5_000, 60_000)
    else:
        vocab = rng.choice([2, 3, rng.randint(4, 200), rng.randint(200, 5_000)])
    width = min(rng.choice([1, 2, 7, 16, 64, 100, 512, rng.randint(1, 512)]), ELEMENTS // vocab)
    rows, time = rng.randint(1, 6), rng.choice([1, rng.randint(2, 24)])
    few = max(1, min(8, elements // vocab))
    return vocab, width, *((rows, time) if rows * time * vocab < elements else (1, rng.randint(1, few)))


def made(rng, number, dtype, elements):
    vocab, width, rows, time = shape(rng, number, elements)
    ignored = 1.0 if number % 40 == 20 else rng.choice([0, 0, 0.2, 0.9])
    p = problem(number, rows, time, ignored, dtype, vocab, width, size=SIZE)
    for row, length in enumerate(rng.choices(range(1, time + 1), k=rows)):
        p.targets[row, length:] = -100
    return p


def terms_and_grads(loss, p, source, unit=1.0, rows=None):
    """`unit`: the same numbers in another unit (logits: from another zero), which rounds them otherwise. `rows`: of the
    head, this rank's."""
    leaves = p.leaves() if source == "hidden" else (p.hidden,)
    given = dict(zip(("hidden", "weight", "bias"), leaves, strict=True)) if source == "hidden" else {"logits": p.hidden}
    if unit != 1 and source == "logits":
        given = {"logits": p.hidden.float() + unit}
    elif unit != 1:
        wide = {name: leaf.float() for name, leaf in given.items()}
        given = wide | {"hidden": wide["hidden"] * unit, "bias": wide["bias"] * unit, "scale": 1 / unit}
    if rows is not None:
        own = {name: given[name][rows] for name in ("weight", "bias")}
        given |= own | {"shard": VocabShard(rows.start, len(p.weight))}
    terms = loss(**given, **p.columns)
    return terms, joined(torch.autograd.grad(terms.mean, leaves))


def worst(candidates, gold):
    """Of each gradient, the one that is the farthest from float64."""
    return [
        max(owns, key=lambda own, want=want: float((own.double() - want).abs().max()))
        for owns, want in zip(zip(*candidates, strict=True), gold, strict=True)
    ]


def joined(grads):
    """A bias is one more column of the weight: alone, all of it may cancel, and there is nothing to be relative to."""
    return grads if len(grads) == 1 else (grads[0], torch.cat([grads[1], grads[2].unsqueeze(1)], 1))


def floor(gold, source):
    """What the tolerance of the weights, 1e-7, makes of a total; and 1e-6 nats of each token whose logits are a product
    in float32."""
    product = 1e-6 * gold.weights.sum() if source == "hidden" else 0.0
    return float((1e-7 * gold.stats.nll).sum() + product) + 1e-12  # float64 itself is as far from the truth


def same(got, grads, gold, gold_grads, plain, dtype, source):
    if dtype != torch.float64:
        own = max(float((terms.weights.double() - gold.weights).abs().max()) for terms, _ in plain)
        plain_grads = worst([grads for _, grads in plain], gold_grads)
        rounding = 4 if min(want.numel() for want in gold_grads) >= 1000 else 16
        same_numbers(got, grads, gold, gold_grads, plain_grads, dtype, floor(gold, source), own, rounding)
        return
    torch.testing.assert_close(got.total, gold.total, rtol=1e-10, atol=1e-12)
    for a, b in zip((got.weights, *grads), (gold.weights, *gold_grads), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def check(number, dtype, suite, kernels=KERNELS, rank=None):
    """`rank`: of two, which have the vocabulary between them."""
    rng = random.Random(f"shape {number}")
    p = made(rng, number, dtype, FEW if kernels is TRITON else ELEMENTS)
    case, smoothing = rng.choice(CASES), rng.choice([0.0, 0.1])
    # The logits themselves are then the input; the head's other parts are not used.
    logits = F.linear(p.hidden, p.weight, p.bias).to(dtype).double()
    sources = {"hidden": p, "logits": replace(p, hidden=logits, weight=p.weight[:1], bias=p.bias[:1])}
    for source, names in kernels.items():
        given = sources[source]

        def run(kernel, kind, unit=1.0, rows=None, source=source, given=given):
            loss = RobustLoss(objective(case), smoothing, kernel=kernel)
            return terms_and_grads(loss, given.to(kind), source, unit, rows)

        gold, gold_grads = run("reference", torch.float64)
        # A product in float32 rounds by chance, and a few tokens are few chances: the specification gets more of them.
        plain = [run("reference", dtype, unit) for unit in UNITS] if dtype != torch.float64 else []
        if rank is not None:
            split = rng.randint(1, len(p.weight) - 1)
            rows = slice(0, split) if rank == 0 else slice(split, len(p.weight))
        for kernel in names:
            about = f"{tuple(given.hidden.shape)} x {len(p.weight)}, {dtype}, {case}, {smoothing}"
            with suite.case(f"{number}: {kernel} of {source}, {about}"):
                got, grads = run(kernel, dtype, rows=None if rank is None else rows)
                if rank is not None:  # each has its own rows of the head's gradient, and zeros
                    dist.all_reduce(whole := grads[1].double())
                    grads = (grads[0], whole.to(dtype))
                same(got, grads, gold, gold_grads, plain, dtype, source)


def check_each(suite, kernels, rank=None, numbers=range(SHAPES)):
    """The types in turn."""
    for number in numbers:
        check(number, DTYPES[number % len(DTYPES)], suite, kernels, rank)


def on_a_rank(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=2)
    suite = Suite("kernels-ranks", "numerics", "")
    check_each(suite, SHARDED, rank)
    torch.save([suite.tried, suite.failures], f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def in_the_interpreter(rank, folder):
    torch.set_num_threads(1)
    suite = Suite("kernels-triton", "numerics", "")
    check_each(suite, TRITON)
    torch.save([suite.tried, suite.failures], f"{folder}/{rank}.pt")


def test_a_few(tally):
    with tally("kernels", "numerics", "kernels on shapes") as suite:
        check_each(suite, KERNELS, numbers=range(11, 20))
        assert suite.tried == 36


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_thousand_shapes(tally):
    what = (
        "kernels (chunked; logits; the reference for hidden states and for logits) on 1,000 random shapes, each in "
        "float32, bfloat16, float16 and float64: vocabularies of 2 to 262,144, one token to 144, ragged, all ignored; "
        "a case fails if the loss, a weight or a gradient is too far from float64 (tests/kernels/test_sweep.py says "
        "how far)"
    )
    with tally("kernels", "numerics", what) as suite:
        for number in range(SHAPES):
            for dtype in DTYPES:
                check(number, dtype, suite)
        assert suite.tried == SHAPES * len(DTYPES) * 4


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_ranks(tmp_path, tally):
    what = "these shapes, the types in turn, with the vocabulary on two ranks; what each of them gets is a case"
    with tally("kernels-ranks", "numerics", what) as suite:
        for tried, failures in two_ranks(on_a_rank, tmp_path):
            suite.add(tried, failures)
        assert suite.tried == 2 * SHAPES


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_triton(tmp_path, tally, monkeypatch):
    """The interpreter must be chosen before triton is imported, so in a process of its own."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    what = (
        "the Triton kernel, in Triton's interpreter, of hidden states and of logits, on these shapes with fewer "
        "tokens, the types in turn"
    )
    with tally("kernels-triton", "numerics", what) as suite:
        (found,) = alone(in_the_interpreter, tmp_path)
        suite.add(*found)
        assert suite.tried == 2 * SHAPES
