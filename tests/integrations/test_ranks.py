"""Two gloo ranks with a model: DistributedDataParallel, FSDP2, and ranks that have nothing to say."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import errornorm
from errornorm.integrations.loop import train_step
from tests.architectures import VOCAB, build
from tests.processes import two_ranks

STEPS, ROWS, LENGTH = 4, 8, 7
METHODS = ["mle()", "ent_threshold(1.01)", "ent_fraction(0.2, scope='global')", "ent_fraction(0.2, scope='running')"]


def rows(step):
    tokens = torch.randint(3, VOCAB, (ROWS, LENGTH), generator=torch.Generator().manual_seed(step))
    lengths = torch.arange(ROWS) % (LENGTH - 2) + 2
    return tokens, tokens.masked_fill(torch.arange(LENGTH) >= lengths.unsqueeze(1), -100)


def micro_batches(step, rank, world, parts):
    tokens, labels = rows(step)
    chosen = torch.arange(ROWS).view(parts, world, -1)[:, rank]
    return [{"input_ids": tokens[c], "labels": labels[c]} for c in chosen]


def train(name, method, rank, world, parts, engine="ddp"):
    model = build(name).train()
    handle = errornorm.attach(model, errornorm.objective(method))
    if engine == "fsdp":
        fully_shard(model)
    wrapped = DistributedDataParallel(model) if world > 1 and engine == "ddp" else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = [train_step(wrapped, handle, optimizer, micro_batches(step, rank, world, parts)) for step in range(STEPS)]
    assert handle.loss.steps_taken == STEPS
    return losses


def quiet_rank(rank, what):
    """One rank has only ignored labels, or drops everything; the other trains."""
    model = build("gpt2").train()
    method = errornorm.ent_threshold(1e-6) if what == "truncated" and rank == 1 else errornorm.mle()
    handle = errornorm.attach(model, method)
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    out = []
    for step in range(2):
        (inputs,) = micro_batches(step, rank, 2, 1)
        if what == "ignored" and rank == 1:
            inputs["labels"] = torch.full_like(inputs["labels"], -100)
        out.append(train_step(wrapped, handle, optimizer, [inputs]))
    finite = all(p.isfinite().all() for p in model.parameters())
    return out, finite, handle.telemetry.flush()


def poisoned_rank(rank, policy, method="mle()"):
    """A gradient of one rank is NaN, or, where the ranks meet in forward, its hidden states: no rank takes the step."""
    model = build("gpt2").train()
    handle = errornorm.attach(model, errornorm.objective(method), on_nan=policy)
    if rank == 1 and "global" in method:
        model.transformer.ln_f.register_forward_hook(lambda *_: torch.full_like(_[-1], float("nan")))
    elif rank == 1:
        model.transformer.ln_f.weight.register_hook(lambda grad: grad * float("nan"))
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    try:
        train_step(model, handle, optimizer, micro_batches(0, rank, 2, 1))  # not wrapped: gradients stay apart
        said = "skipped"
    except FloatingPointError as error:
        said = str(error)
    return said, all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def unaided_rank(rank, method):
    """A loop that calls nothing of ours; one rank has a batch without a label."""
    model = build("gpt2").train()
    handle = errornorm.attach(model, errornorm.objective(method))
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(4):
        (inputs,) = micro_batches(step, rank, 2, 1)
        if rank == 0 and step == 1:
            inputs["labels"] = torch.full_like(inputs["labels"], -100)
        wrapped(**inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return handle.loss.steps_taken


def _in_group(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=2)
    results = {
        "ddp": {
            (name, method, parts): train(name, method, rank, 2, parts)
            for name in ("gpt2", "t5")
            for method in METHODS
            for parts in ((1, 2, 4) if "global" not in method else (1,))
        },
        "fsdp": {
            (name, method): train(name, method, rank, 2, 2 if "global" not in method else 1, "fsdp")
            for name in ("gpt2", "llama", "t5")
            for method in METHODS
        },
        "quiet": {what: quiet_rank(rank, what) for what in ("ignored", "truncated")},
        "poisoned": {policy: poisoned_rank(rank, policy) for policy in ("raise", "skip")},
        "poisoned, met": poisoned_rank(rank, "skip", "ent_fraction(0.2, scope='global')"),
        "unaided": {method: unaided_rank(rank, method) for method in ("mle()", "ent_fraction(0.2, scope='running')")},
    }
    torch.save(results, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return two_ranks(_in_group, tmp_path_factory.mktemp("ranks"))


def test_data_parallel_equals_one_process(ranks):
    for (name, method, _), losses in ranks[0]["ddp"].items():
        assert losses == pytest.approx(train(name, method, 0, 1, 1), rel=1e-6)
    assert ranks[0]["ddp"] == ranks[1]["ddp"]


def test_sharded_parameters_equal_one_process(ranks):
    for (name, method), losses in ranks[0]["fsdp"].items():
        assert losses == pytest.approx(train(name, method, 0, 1, 1), rel=1e-6)


@pytest.mark.parametrize("what", ["ignored", "truncated"])
def test_a_rank_without_a_token_neither_hangs_nor_poisons(ranks, what):
    for rank in ranks:
        losses, finite, telemetry = rank["quiet"][what]
        assert finite
        assert all(loss > 0 for loss in losses)
        assert telemetry["errornorm/kept"] == (1.0 if what == "ignored" else pytest.approx(0.5, abs=0.1))
    assert ranks[0]["quiet"][what][2] == ranks[1]["quiet"][what][2]


def test_no_rank_steps_if_one_has_a_nan(ranks):
    assert [rank["poisoned"]["raise"][1] for rank in ranks] == [True, True]
    assert [rank["poisoned"]["skip"] for rank in ranks] == [("skipped", True)] * 2
    assert [rank["poisoned, met"] for rank in ranks] == [("skipped", True)] * 2
    assert "another rank" in ranks[0]["poisoned"]["raise"][0]
    assert "transformer.ln_f.weight" in ranks[1]["poisoned"]["raise"][0]


def test_steps_are_noticed_alike(ranks):
    assert [set(rank["unaided"].values()) for rank in ranks] == [{3}, {3}]  # the last shows with a batch after it
