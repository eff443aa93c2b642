"""A loop of one's own: any split of the batch, stop and resume, and nothing but numbers in the weights."""

import copy
import itertools
import math
import random

import pytest
import torch

import errornorm
from errornorm.integrations.loop import num_targets, train_step
from tests.architectures import batch, build

OBJECTIVES = {
    "mle": errornorm.mle(),
    "ent_threshold": errornorm.ent_threshold(0.9972),  # low: untrained models are unsure of everything
    "ent_fraction": errornorm.ent_fraction(0.2, scope="running"),
    "tailr": errornorm.tailr(),
}


def setup(name, objective, lr=0.01, **options):
    model = build(name).train()
    handle = errornorm.attach(model, objective, **options)
    return model, handle, torch.optim.AdamW(model.parameters(), lr=lr)


def split(inputs, parts):
    return [{key: value[i::parts] for key, value in inputs.items()} for i in range(parts)]


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("method", OBJECTIVES)
@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_the_split_does_not_matter(name, method):
    found = []
    for parts in (1, 2, 4, 8):
        model, handle, _ = setup(name, OBJECTIVES[method])
        model.double()  # so that no token changes sides of a cutoff by rounding
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for seed in range(6):
            micro = split(batch(name, rows=8, seed=seed), parts)
            losses.append(train_step(model, handle, optimizer, micro, max_grad_norm=5.0))
        assert handle.loss.steps_taken == 6
        assert (handle.telemetry.flush()["errornorm/kept"] < 1) == ("ent" in method)
        found.append((torch.tensor(losses, dtype=torch.float64), weights(model)))
    for losses, end in found[1:]:
        torch.testing.assert_close(losses, found[0][0], rtol=1e-6, atol=0)
        torch.testing.assert_close(end, found[0][1], rtol=0, atol=1e-6)


def test_likelihood_is_the_models_own():
    """The same loop by hand, without us: loss and weights."""
    inputs = batch("gpt2", rows=4)
    model, handle, _ = setup("gpt2", errornorm.mle())
    own = build("gpt2").train()
    optimizer, by_hand = (torch.optim.SGD(m.parameters(), lr=0.5, momentum=0.9) for m in (model, own))
    for _ in range(5):
        loss = own(**inputs).loss
        loss.backward()
        wanted = loss.item()
        torch.nn.utils.clip_grad_norm_(own.parameters(), 0.5)
        by_hand.step()
        by_hand.zero_grad()
        found = train_step(model, handle, optimizer, split(inputs, 2), max_grad_norm=0.5)
        assert found == pytest.approx(wanted, rel=1e-6)
    torch.testing.assert_close(weights(model), weights(own), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_it_learns(name):
    model, handle, optimizer = setup(name, errornorm.ent_fraction(0.1, scope="running"), lr=0.03)
    inputs = split(batch(name, rows=8), 2)
    losses = [train_step(model, handle, optimizer, inputs) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]


def test_clipping_bounds_the_gradients():
    model, handle, _ = setup("gpt2", errornorm.mle())
    before = weights(model)
    train_step(model, handle, torch.optim.SGD(model.parameters(), lr=1.0), [batch("gpt2")], max_grad_norm=1e-3)
    assert float((weights(model) - before).norm()) == pytest.approx(1e-3, rel=1e-2)


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_stop_and_resume_is_the_same_run(name):
    def fresh():
        return setup(name, errornorm.ent_fraction(0.2, scope="running", start=2))

    def go(run, steps):
        return [train_step(*run, split(batch(name, rows=4, seed=s), 2), max_grad_norm=1.0) for s in steps]

    whole = fresh()
    losses = go(whole, range(8))
    first = fresh()
    early = go(first, range(3))
    saved = copy.deepcopy([part.state_dict() for part in first])
    second = fresh()
    for part, state in zip(second, saved, strict=True):
        part.load_state_dict(state)
    assert early + go(second, range(3, 8)) == losses
    assert torch.equal(weights(second[0]), weights(whole[0]))
    ends = [run[1].state_dict() for run in (whole, second)]
    assert ends[0]["steps_taken"] == ends[1]["steps_taken"] == 8
    assert all(torch.equal(ends[0]["state"][key], ends[1]["state"][key]) for key in ends[0]["state"])
    assert ends[0]["state"]["counts"].sum() > 0
    with pytest.raises(ValueError, match="this checkpoint is of"):
        setup(name, errornorm.mle())[1].load_state_dict(ends[0])


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_nothing_to_learn_from(name):
    """A batch in which everything is ignored, alone and beside another one."""
    model, handle, optimizer = setup(name, errornorm.ent_fraction(0.2))
    good = batch(name)
    empty = good | {"labels": torch.full_like(good["labels"], -100)}
    assert num_targets(handle, [empty]) == 1
    assert train_step(model, handle, optimizer, [empty]) == 0.0
    assert weights(model).isfinite().all()
    loss = model(**good).loss.item()
    assert train_step(model, handle, optimizer, [empty, good, empty]) == pytest.approx(loss, rel=1e-6)
    assert handle.loss.steps_taken == 2


def poisoned(module, args, out):
    if isinstance(out, torch.Tensor):
        return torch.full_like(out, math.nan)
    return (torch.full_like(out[0], math.nan), *out[1:])


def places(model):
    """Modules in the body of the model whose output is a tensor, or begins with one."""
    seen = {}
    hooks = [m.register_forward_hook(lambda m, a, out: seen.setdefault(m, out)) for m in model.modules()]
    model(**batch("t5" if model.config.is_encoder_decoder else "gpt2"))
    for hook in hooks:
        hook.remove()
    head = model.get_output_embeddings()
    return [m for m, out in seen.items() if m is not head and isinstance(out, torch.Tensor | tuple)]


def injections(count):
    """Where and when to put a NaN: in the output of any module, in any gradient, at any of the first steps."""
    chance = random.Random(0)
    kinds = itertools.product(("gpt2", "t5"), ("activation", "gradient"))
    return [(*kind, chance.randrange(1, 4), chance.random()) for kind, _ in zip(itertools.cycle(kinds), range(count))]


def poison(model, kind, where):
    """Put it there, and say how to take it away."""
    if kind == "gradient":
        parameters = [p for p in model.parameters() if p.requires_grad]
        return parameters[int(where * len(parameters))].register_hook(lambda grad: grad * math.nan)
    modules = places(model)
    return modules[int(where * len(modules))].register_forward_hook(poisoned)


@pytest.mark.parametrize(("name", "kind", "when", "where"), injections(50))
def test_nan_stops_the_run_in_the_same_step(name, kind, when, where):
    run = model, handle, _ = setup(name, errornorm.ent_fraction(0.2, scope="running"))
    for step in range(when):
        train_step(*run, split(batch(name, rows=4, seed=step), 2))
    before, hook = weights(model), poison(model, kind, where)
    with pytest.raises(FloatingPointError, match=f"optimizer step {when}"):
        train_step(*run, split(batch(name, rows=4, seed=when), 2))
    assert torch.equal(weights(model), before)
    assert before.isfinite().all()
    hook.remove()
    train_step(*run, split(batch(name, rows=4, seed=when), 2))  # no trace of it is left
    assert weights(model).isfinite().all()
    assert handle.loss.steps_taken == when + 1


@pytest.mark.parametrize(("name", "kind", "when", "where"), injections(16))
def test_nan_is_skipped(name, kind, when, where):
    run = model, _, _ = setup(name, errornorm.ent_fraction(0.2, scope="running"), on_nan="skip")
    for step in range(5):
        before = weights(model)
        hook = poison(model, kind, where) if step == when else None
        loss = train_step(*run, split(batch(name, rows=4, seed=step), 2))
        assert math.isnan(loss) == torch.equal(weights(model), before) == (hook is not None)
        assert weights(model).isfinite().all()
        if hook is not None:
            hook.remove()
