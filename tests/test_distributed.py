"""Gloo ranks: the vocabulary split, the global fraction, and losses that do not depend on how a batch is split."""

import math
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from errornorm import METHODS, RobustLoss, VocabShard, ent_fraction, loss_truncation, mle, objective
from errornorm.cutoffs import top, top_everywhere
from errornorm.openings import LONG
from tests.problems import VOCAB, problem
from tests.processes import on_ranks, two_ranks

SPLIT = 120  # rank 0 holds the first vocabulary entries, rank 1 the others: not the same number


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each worker returned, on each of two ranks. One pair of processes does it all: starting them is slow."""
    return two_ranks(_in_group, tmp_path_factory.mktemp("ranks"))


def _in_group(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=2)
    results = {
        "shards": shard_worker(rank),
        "global": {sizes: global_worker(rank, sizes) for sizes in SIZES},
        "splits": {(case, micro): train(case, rank, 2, micro) for case in INVARIANT for micro in (1, 2, 4, 8)},
        "window": window_worker(rank),
        "uneven shards": uneven_shard_worker(rank),
        "wrong shards": wrong_shard_worker(rank),
        "shard with NaN": nan_shard_worker(rank),
        "chance": chance_worker(rank),
        "digits": [tuple(top_everywhere(scores[rank], fraction)) for scores, fraction in DIGITS],
    }
    torch.save(results, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


SIZES = [(3, 3), (5, 1), (6, 0)]  # sequences on each rank
CASES = [
    "mle",
    "ent_fraction(0.3)",
    "ent_fraction(0.3, scope='global')",  # the ranks of a shard see the same tokens: not twice as many
    "ent_threshold(1.1)",
    "tailr(0.5)",
    "eaft",
    "ent_fraction(0.3, unit='sequence')",
]
HEADS = [{}, {"scale": 0.5}, {"softcap": 4.0}]


def shard_worker(rank):
    out = []
    for case in CASES:
        for smoothing in (0.0, 0.1):
            for head in HEADS:
                p = problem(3).to(torch.float64)
                rows = slice(0, SPLIT) if rank == 0 else slice(SPLIT, None)
                weight, bias = (x.detach()[rows].clone().requires_grad_() for x in (p.weight, p.bias))
                shard = VocabShard(0 if rank == 0 else SPLIT, VOCAB)
                loss = RobustLoss(objective(case), smoothing)
                terms = loss(hidden=p.hidden, weight=weight, bias=bias, targets=p.targets, shard=shard, **head)
                terms.mean.backward()
                out.append((terms.total.detach(), terms.weights, p.hidden.grad, weight.grad, bias.grad))
    return out


def test_a_split_vocabulary_is_the_whole_one(ranks):
    results = iter(zip(*(rank["shards"] for rank in ranks), strict=True))
    for case in CASES:
        for smoothing in (0.0, 0.1):
            for head in HEADS:
                p = problem(3).to(torch.float64)
                loss = RobustLoss(objective(case), smoothing)
                want = loss(hidden=p.hidden, weight=p.weight, bias=p.bias, targets=p.targets, **head)
                want.mean.backward()
                a, b = next(results)
                for got in (a, b):
                    torch.testing.assert_close(got[0], want.total.detach(), rtol=1e-10, atol=0)
                    torch.testing.assert_close(got[1], want.weights, rtol=1e-9, atol=1e-12)
                    torch.testing.assert_close(got[2], p.hidden.grad, rtol=1e-9, atol=1e-12)
                torch.testing.assert_close(torch.cat([a[3], b[3]]), p.weight.grad, rtol=1e-9, atol=1e-12)
                torch.testing.assert_close(torch.cat([a[4], b[4]]), p.bias.grad, rtol=1e-9, atol=1e-12)


UNEVEN = (600, 4, 41_000)  # tokens for several chunks, hidden size, vocabulary: its parts are of very different sizes


def uneven_shard_worker(rank):
    tokens, size, vocab = UNEVEN
    made = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, size, generator=made, dtype=torch.float64) for n in (tokens, vocab))
    targets = torch.randint(vocab, (tokens,), generator=made)
    begin, end = ((0, 1000), (1000, vocab))[rank]
    out = []
    for start, stop, shard in ((begin, end, VocabShard(begin, vocab)), (0, vocab, None)):
        h, w = hidden.clone().requires_grad_(), weight[start:stop].clone().requires_grad_()
        terms = RobustLoss(ent_fraction(0.1))(hidden=h, weight=w, targets=targets, shard=shard)
        terms.mean.backward()
        out.append((terms.total.detach(), h.grad, w.grad if shard else w.grad[begin:end]))
    return out


def test_shards_of_different_sizes_have_the_same_chunks(ranks):
    for rank in ranks:
        for got, want in zip(*rank["uneven shards"], strict=True):
            torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)


def nan_shard_worker(rank):
    p = problem(3).to(torch.float32)
    rows = slice(0, SPLIT) if rank == 0 else slice(SPLIT, None)
    weight = p.weight.detach()[rows].clone()
    weight[5] += math.nan if rank else 0.0
    shard = VocabShard(0 if rank == 0 else SPLIT, VOCAB)
    with pytest.raises(FloatingPointError) as caught:
        RobustLoss(mle())(hidden=p.hidden, weight=weight, targets=p.targets, shard=shard)
    return str(caught.value)


def test_all_ranks_hear_of_a_shard_that_is_not_finite(ranks):
    whole, bad = (rank["shard with NaN"] for rank in ranks)
    assert whole == "another rank's part of the head has NaN or Inf"
    assert bad == "1 rows of the head's weight have NaN or Inf, the first is 5"


def test_a_shard_needs_its_kernel():
    p = problem().to(torch.float32)
    given = {"hidden": p.hidden, "weight": p.weight, "targets": p.targets}
    with pytest.raises(ValueError, match="use kernel='auto'"):
        RobustLoss(mle(), kernel="chunked")(**given, shard=VocabShard(0, VOCAB))
    with pytest.raises(ValueError, match="with no vocabulary shard"):
        RobustLoss(mle(), kernel="vocab_parallel")(**given)


def global_worker(rank, sizes):
    p = problem(4, rows=sum(sizes)).to(torch.float64)
    begin = sum(sizes[:rank])
    mine = slice(begin, begin + sizes[rank])
    loss = RobustLoss(ent_fraction(0.3, scope="global"))
    terms = loss(hidden=p.hidden[mine], weight=p.weight, targets=p.targets[mine])
    tied = loss(hidden=p.hidden[mine] * 0, weight=p.weight, targets=p.targets[mine])
    return terms.weights, terms.cutoff, tied.weights


@pytest.mark.parametrize("sizes", SIZES)
def test_the_global_fraction_is_that_of_one_process(ranks, sizes):
    (a, cut_a, tied_a), (b, cut_b, tied_b) = (rank["global"][sizes] for rank in ranks)
    p = problem(4, rows=sum(sizes)).to(torch.float64)
    whole = RobustLoss(ent_fraction(0.3))(hidden=p.hidden, weight=p.weight, targets=p.targets)
    assert torch.equal(torch.cat([a, b]), whole.weights)
    assert cut_a == cut_b == whole.cutoff
    count = math.floor(0.3 * whole.num_tokens)
    assert whole.num_tokens - whole.num_kept == count
    assert int((torch.cat([tied_a, tied_b])[p.targets != -100] == 0).sum()) == count


def digits():
    """Scores of two ranks, and a fraction: of either sign, equal ones, zeros of either sign, none, infinite."""
    chance = torch.Generator().manual_seed(0)
    for kind in (torch.float32, torch.float64):
        for sizes in ((50, 50), (1, 80), (0, 30), (30, 0), (0, 0)):
            some = [torch.randn(size, generator=chance, dtype=kind) for size in sizes]
            for scores in (some, [x.round() for x in some], [x * 0 for x in some], [x * 1e30 for x in some]):
                yield from ((scores, fraction) for fraction in (0.0, 0.1, 0.5, 1.0))
        yield [torch.tensor([math.inf, 1.0], dtype=kind), torch.tensor([-math.inf, math.inf], dtype=kind)], 0.5


DIGITS = list(digits())


def test_a_cutoff_by_digits_is_that_of_all_scores(ranks):
    for (scores, fraction), *found in zip(DIGITS, *(rank["digits"] for rank in ranks), strict=True):
        everyone = torch.cat(scores)
        mask, cutoff = top(everyone, int(fraction * len(everyone)))
        assert torch.equal(torch.cat([torch.as_tensor(one[0]) for one in found]), mask)
        assert all(one[1] == cutoff and one[1].dtype == cutoff.dtype for one in found)


STEPS, ROWS = 6, 16
INVARIANT = [
    "ent_fraction(0.2, scope='running')",
    "ent_fraction(0.3, unit='sequence', scope='running')",
    "token_loss_truncation(0.2, scope='running')",
    "loss_truncation(0.3, window=20, min_count=8)",
    "token_loss_truncation(0.2, scope='running', start='auto')",
    "ent_auto",
    "ent_threshold(1.1)",
    "mle",
]
ALONE = ["tailr(0.5)", "dft", "mixce", "eaft", "focal", "generalized_ce", "weighted"]  # no token asks another one
DEPEND = ["random_truncation", "rho1"]  # on how a batch is split, as scopes of a micro-batch do


CERTAIN_STEPS = [LONG - 1, LONG - 1]  # as if too many texts had been certain before


def with_copies(data):
    """A third of the sequences are certain but for their opening; the others have an expected one."""
    rows, first = torch.arange(len(data.targets)), data.targets.clamp(min=0)[:, 0]
    toward = 4 * data.weight.detach()[data.targets.clamp(min=0)]
    copies = rows % 3 == 0
    hidden = torch.where(copies[:, None, None], toward, data.hidden.detach())
    hidden[:, 0] = 4 * data.weight.detach()[torch.where(copies, first + 1, first) % len(data.weight)]
    return replace(data, hidden=hidden)


def train(case: str, rank: int, ranks: int, micro: int, rows: int = ROWS):
    """Plain gradient descent on one batch of sequences per step, split over ranks and micro-batches."""
    data = problem(5, rows=STEPS * rows, ignored=0 if case == "ent_auto" else 0.2).to(torch.float32)
    data = with_copies(data) if case == "ent_auto" else data
    weight = data.weight
    body = torch.eye(16).requires_grad_()
    loss = RobustLoss(objective(case))
    if case == "ent_auto":
        loss.state |= {"certain_steps": torch.tensor(CERTAIN_STEPS, dtype=torch.float64)}
    losses, kept = [], []
    for step in range(STEPS):
        here = slice(step * rows, (step + 1) * rows)
        total = torch.zeros(2, dtype=torch.float64)
        count = int((data.targets[here] != -100).sum())
        for part in range(micro):
            mine = torch.arange(rows).view(ranks, micro, -1)[rank, part]
            columns = {name: column[here][mine] for name, column in data.columns.items()}
            terms = loss(hidden=data.hidden.detach()[here][mine] @ body, weight=weight, **columns)
            (terms.total / count).backward()
            total += torch.tensor([terms.total.item() / count, terms.num_kept / count], dtype=torch.float64)
        for x in (weight, body):
            if ranks > 1:
                dist.all_reduce(x.grad)
            x.data -= 0.2 * x.grad
            x.grad = None
        if ranks > 1:
            dist.all_reduce(total)
        loss.advance()
        losses.append(total[0].item())
        kept.append(total[1].item())
    return losses, kept


def test_losses_do_not_depend_on_how_a_batch_is_split(ranks):
    for case in INVARIANT:
        want, kept = train(case, 0, 1, 1)
        if case not in ("mle", "ent_threshold(1.1)"):
            assert kept[0] == 1 > kept[-1]  # it waits for its first step, and then something is dropped
        others = [train(case, 0, 1, micro) for micro in (2, 4, 8)]
        others += [rank["splits"][case, micro] for rank in ranks for micro in (1, 2, 4, 8)]
        for losses, counts in others:
            assert counts == pytest.approx(kept, rel=1e-9)
            assert losses == pytest.approx(want, rel=1e-6)


EVERY = INVARIANT + ALONE
MICRO, MANY = (1, 2, 4, 8), 32  # sequences, so that each of 4 ranks x 8 micro-batches has one


def _splits(rank, folder, ranks):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=ranks)
    found = {(case, micro): train(case, rank, ranks, micro, MANY) for case in EVERY for micro in MICRO}
    torch.save(found, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_one_two_and_four_ranks(tmp_path_factory, tally):
    with tally("splits", "ranks", "objectives that do not depend on how a batch is split, on 1, 2 and 4 ranks with 1, "
               "2, 4 and 8 micro-batches; a case fails if a loss differs by more than 1e-6 from that of one process "
               "with one batch") as suite:  # fmt: skip
        found = {ranks: on_ranks(_splits, tmp_path_factory.mktemp(f"splits-{ranks}"), ranks) for ranks in (2, 4)}
        found[1] = [{(case, micro): train(case, 0, 1, micro, MANY) for case in EVERY for micro in MICRO[1:]}]
        splits = [(ranks, micro) for ranks in (1, 2, 4) for micro in MICRO[ranks == 1 :]]
        suite.more["splits"] = {"of": [f"{ranks} × {micro}" for ranks, micro in splits], "off": {}}
        for case in EVERY:
            want, kept = train(case, 0, 1, 1, MANY)
            suite.more["splits"]["off"][case] = off = []
            for ranks, micro in splits:
                with suite.case(f"{case}, {ranks} ranks, {micro} micro-batches"):
                    results = [result[case, micro] for result in found[ranks]]
                    pairs = [pair for losses, _ in results for pair in zip(losses, want, strict=True)]
                    off.append(float(f"{max(abs(a - b) / b for a, b in pairs):.1e}"))
                    assert off[-1] <= 1e-6
                    for _, counts in results:
                        assert counts == pytest.approx(kept, rel=1e-9)


def test_every_method_has_its_place():
    assert {objective(case).spec.partition("(")[0] for case in EVERY} | set(DEPEND) == set(METHODS)


def test_the_paper_s_scope_does_depend_on_it():
    want, _ = train("ent_fraction(0.2)", 0, 1, 1)
    split, _ = train("ent_fraction(0.2)", 0, 1, 8)
    assert max(abs(a / b - 1) for a, b in zip(want, split, strict=True)) > 1e-3


def window_worker(rank):
    p = problem(4, rows=8).to(torch.float32)
    loss = RobustLoss(loss_truncation(0.3, window=6, min_count=2))
    for _ in range(3):
        loss(hidden=p.hidden[rank::2], weight=p.weight, targets=p.targets[rank::2])
        loss.advance()
    return loss.state_dict()["_extra_state"]["state"]["window"]


def test_the_window_is_shared_by_all_ranks(ranks):
    a, b = (rank["window"] for rank in ranks)
    assert torch.equal(a, b)
    assert len(a) == 6


def wrong_shard_worker(rank):
    p = problem(3).to(torch.float32)
    messages = []
    # Both from 0; one row missing between them; nothing for the second.
    for start, rows in ((0, 150 + rank), (rank * 151, 150), (rank * VOCAB, (1 - rank) * VOCAB)):
        shard, weight = VocabShard(start, VOCAB), p.weight[start : start + rows]
        try:
            RobustLoss(mle())(hidden=p.hidden, weight=weight, targets=p.targets, shard=shard)
        except ValueError as error:
            messages.append(str(error))
    return messages


def test_shards_that_overlap_or_miss_a_row_or_have_none_are_refused(ranks):
    for rank in ranks:
        *uneven, empty = rank["wrong shards"]
        assert ["do not add up" in message for message in uneven] == [True, True]
        assert "a rank holds no rows" in empty


def chance_worker(rank):
    p = problem(3, ignored=0).to(torch.float32)
    return RobustLoss(objective("random_truncation(0.5)"))(hidden=p.hidden, weight=p.weight, targets=p.targets).weights


def test_every_rank_has_its_own_chance(ranks):
    a, b = (rank["chance"] for rank in ranks)
    assert not torch.equal(a, b)
    assert a.sum() == b.sum() == 33
