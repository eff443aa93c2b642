"""Inside torch.compile, under autocast, with activation checkpointing."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from errornorm import METHODS, RobustLoss, ent_fraction, ent_threshold, objective, token_stats
from tests.problems import problem


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 16)
        self.body = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 16))
        self.head = torch.nn.Linear(16, 50, bias=False)

    def forward(self, ids, recompute=False):
        x = self.embedding(ids)
        return checkpoint(self.body, x, use_reentrant=False) if recompute else self.body(x)


def train(compiled, source, case="ent_fraction(0.2, start=2)"):
    torch.manual_seed(0)
    model, loss = Tiny(), RobustLoss(objective(case))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def step(ids, targets):
        hidden = model(ids)
        given = (
            {"logits": model.head(hidden)} if source == "logits" else {"hidden": hidden, "weight": model.head.weight}
        )
        terms = loss(**given, targets=targets)
        terms.mean.backward()
        return terms.mean.detach(), terms.num_kept

    run = torch.compile(step, backend="aot_eager") if compiled else step
    losses = []
    for _ in range(6):
        ids = torch.randint(50, (4, 9))
        value, kept = run(ids, ids.roll(1, 1))
        optimizer.step()
        optimizer.zero_grad()
        loss.advance()
        losses.append((value.item(), kept))
    return losses


@pytest.mark.parametrize("source", ["logits", "hidden"])
def test_inside_a_compiled_step_without_recompilation(source):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    want = train(False, source)
    with torch._dynamo.config.patch(error_on_recompile=True):
        got = train(True, source)
    for (a, kept_a), (b, kept_b) in zip(got, want, strict=True):
        assert a == pytest.approx(b, rel=1e-5)
        assert kept_a == kept_b
    assert [kept for _, kept in want] == [36, 36, 29, 29, 29, 29]
    torch._dynamo.reset()


ONE_LOSS = """
import torch, torch._dynamo, errornorm
torch.set_num_threads(1)
torch.manual_seed(0)
body, head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 30, bias=False)
loss = errornorm.RobustLoss(errornorm.{case})

def step(x, targets):
    hidden = body(x).tanh()
    given = dict(logits=head(hidden)) if {logits} else dict(hidden=hidden, weight=head.weight)
    loss(**given, targets=targets).mean.backward()

step, graphs = torch.compile(step, backend="aot_eager"), []
for i in range(12):
    targets = torch.randint(30, (4, 9))
    targets[:, 9 - i % 5 :] = -100
    step(torch.randn(4, 9, 8), targets)
    loss.advance()
    graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
print(graphs[1], graphs[-1])
"""


@pytest.mark.parametrize("logits", [False, True])
def test_a_single_loss_and_varying_padding_compile_nothing_after_the_first_step(logits):
    code = ONE_LOSS.format(case="ent_fraction(0.2, start=2)", logits=logits)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    early, late = out.stdout.split()
    assert early == late
    assert int(late) <= 2
    assert "recompile_limit" not in out.stderr


def test_second_derivatives_are_refused_not_lost():
    for given in ({"hidden": torch.randn(3, 4), "weight": torch.randn(5, 4)}, {"logits": torch.randn(3, 5)}):
        leaves = [x.requires_grad_() for x in given.values()]
        terms = RobustLoss(objective("mle"))(**given, targets=torch.tensor([0, 1, 2]))
        with pytest.raises(RuntimeError, match="use kernel='reference'"):
            torch.autograd.grad(terms.mean, leaves, create_graph=True)
    terms = RobustLoss(objective("mle"), kernel="reference")(**given, targets=torch.tensor([0, 1, 2]))
    (grad,) = torch.autograd.grad(terms.mean, leaves, create_graph=True)
    assert grad.requires_grad


@pytest.mark.parametrize("inside", [False, True], ids=["backward outside", "backward inside"])
@pytest.mark.parametrize("kernel", ["chunked", "logits", "reference"])
@pytest.mark.parametrize("name", METHODS)
def test_autocast_changes_nothing(name, kernel, inside):
    if inside and kernel == "reference":
        inside = False  # plain autograd: torch itself asks to call backward outside
    results = []
    for auto in (False, True):
        p = problem().to(torch.float32)
        loss = RobustLoss(METHODS[name](), 0.1, kernel=kernel)
        logits = F.linear(p.hidden, p.weight).detach().requires_grad_()
        given = {"logits": logits} if kernel == "logits" else {"hidden": p.hidden, "weight": p.weight}
        with torch.autocast("cpu", torch.bfloat16, enabled=auto):
            terms = loss(**given, **p.columns)
            if inside:
                terms.mean.backward()
        if not inside:
            terms.mean.backward()
        results.append((terms, logits.grad if kernel == "logits" else p.hidden.grad, p.weight.grad))
    (a, *grads_a), (b, *grads_b) = results
    assert torch.equal(a.total, b.total)
    assert torch.equal(a.weights, b.weights)
    assert torch.equal(a.stats.error_norm, b.stats.error_norm)
    for x, y in zip(grads_a, grads_b, strict=True):
        assert (x is None and y is None) or torch.equal(x, y)


def test_half_precision_hidden_states_with_a_float32_weight():
    p = problem(dtype=torch.bfloat16)
    want = token_stats(hidden=p.hidden, weight=p.weight, targets=p.targets).error_norm
    got = token_stats(hidden=p.hidden.bfloat16(), weight=p.weight.float(), targets=p.targets)
    torch.testing.assert_close(got.error_norm.double(), want, rtol=1e-6, atol=1e-6)
    assert got.nll.dtype == torch.float32


def test_activation_checkpointing_of_the_model():
    grads = []
    for recompute in (False, True):
        torch.manual_seed(0)
        model, loss = Tiny(), RobustLoss(ent_fraction(0.2))
        ids = torch.randint(50, (4, 9))
        loss(hidden=model(ids, recompute), weight=model.head.weight, targets=ids.roll(1, 1)).mean.backward()
        grads.append([x.grad for x in model.parameters()])
        assert loss.batches_seen == 1
    for a, b in zip(*grads, strict=True):
        assert torch.equal(a, b)


def test_a_second_backward_accumulates_the_same_gradient():
    for source in ("hidden", "logits"):
        p = problem().to(torch.float64)
        given = {"hidden": p.hidden, "weight": p.weight}
        if source == "logits":
            given = {"logits": F.linear(p.hidden, p.weight)}
        terms = RobustLoss(ent_threshold(1.1))(**given, targets=p.targets)
        terms.mean.backward(retain_graph=True)
        once = p.hidden.grad.clone()
        terms.mean.backward()
        torch.testing.assert_close(p.hidden.grad, 2 * once, rtol=1e-12, atol=1e-15)


def test_a_loss_can_be_copied_and_moved():
    loss = RobustLoss(ent_fraction(0.2, scope="running"))
    p = problem().to(torch.float32)
    loss(hidden=p.hidden, weight=p.weight, targets=p.targets)
    loss.advance()
    twin = copy.deepcopy(loss)
    assert twin(hidden=p.hidden, weight=p.weight, targets=p.targets).cutoff == (
        loss(hidden=p.hidden, weight=p.weight, targets=p.targets).cutoff
    )
    assert twin.steps_taken == 1
    assert pickle.loads(pickle.dumps(loss.state_dict()))["_extra_state"]["steps_taken"] == 1


def test_a_copy_belongs_to_the_same_ranks():
    """As of a model with its average; a process group itself cannot be copied."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        group = dist.new_group([0])
        loss = RobustLoss(ent_fraction(0.2, scope="running"), group=group)
        twin = copy.deepcopy(loss)
        assert twin.group is group
        p = problem().to(torch.float32)
        for each in (loss, twin, twin):
            each(hidden=p.hidden, weight=p.weight, targets=p.targets)
            each.advance()
    finally:
        dist.destroy_process_group()
    assert (loss.steps_taken, twin.steps_taken) == (1, 2)
    assert loss.state["counts"].sum() < twin.state["counts"].sum()
