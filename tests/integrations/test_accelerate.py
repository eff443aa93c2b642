"""Accelerate loops with an objective: accumulation is exact, checkpoints hold everything."""

import math

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin
from torch.utils.data import DataLoader

import errornorm
from errornorm.integrations.accelerate import groups, num_items, prepare, step
from tests.architectures import batch, build

OBJECTIVES = {
    "ent_threshold": errornorm.ent_threshold(0.9972),  # low: untrained models are unsure of everything
    "ent_fraction": errornorm.ent_fraction(0.2, scope="running", start=1),
}


class Run:
    """24 sequences of different lengths, 8 in each step, in as many micro-batches as asked for."""

    def __init__(self, objective, parts, name="gpt2", sync=False, optimizer=torch.optim.SGD, lr=0.1, **options):
        plugin = GradientAccumulationPlugin(num_steps=parts, sync_with_dataloader=sync)
        self.accelerator = Accelerator(gradient_accumulation_plugin=plugin, cpu=True)
        model = build(name).train().double()  # so that no token changes sides of a cutoff by rounding
        self.handle = errornorm.attach(model, objective, **options)
        inputs = batch(name, rows=24)
        for row in range(24):
            inputs["labels"][row, 2 + row % 6 :] = -100
        rows = [{key: value[i] for key, value in inputs.items()} for i in range(24)]
        self.model, self.optimizer, self.loader = self.accelerator.prepare(
            model, optimizer(model.parameters(), lr=lr), DataLoader(rows, batch_size=8 // parts)
        )
        prepare(self.accelerator, self.handle)

    def epoch(self, spoil=()):
        """The loss of each step. Some steps may get NaN gradients."""
        out = []
        for number, group in enumerate(groups(self.accelerator, self.loader)):
            count, losses = num_items(self.accelerator, self.handle, group), []
            for inputs in group:
                with self.accelerator.accumulate(self.model):
                    loss = self.model(**inputs, num_items_in_batch=count).loss
                    self.accelerator.backward(loss * math.nan if number in spoil else loss)
                    taken = step(self.accelerator, self.handle, self.optimizer, max_grad_norm=5.0)
                losses.append(loss.item())
            assert taken == (number not in spoil)
            out.append(sum(losses) / len(losses))
        return out

    @property
    def weights(self):
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])


@pytest.mark.parametrize("method", OBJECTIVES)
@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_the_split_does_not_matter(name, method):
    found = []
    for parts in (1, 2, 4):
        run = Run(OBJECTIVES[method], parts, name)
        losses = [loss for _ in range(3) for loss in run.epoch()]
        assert run.handle.loss.steps_taken == len(losses) == 9
        assert run.handle.telemetry.flush()["errornorm/kept"] < 1
        found.append((torch.tensor(losses, dtype=torch.float64), run.weights))
    for losses, weights in found[1:]:
        torch.testing.assert_close(losses, found[0][0], rtol=1e-6, atol=0)
        torch.testing.assert_close(weights, found[0][1], rtol=0, atol=1e-6)


def test_likelihood_is_the_models_own():
    run, own = Run(errornorm.mle(), 2), build("gpt2").train().double()
    optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
    wanted = []
    for inputs in DataLoader(run.loader.dataset, batch_size=8):
        loss = own(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(own.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad()
        wanted.append(loss.item())
    assert run.epoch() == pytest.approx(wanted, rel=1e-6)
    torch.testing.assert_close(run.weights, torch.cat([p.detach().flatten() for p in own.parameters()]))


def test_it_learns():
    run = Run(errornorm.ent_fraction(0.1), 2, optimizer=torch.optim.AdamW, lr=0.03)
    losses = [sum(run.epoch()) for _ in range(15)]
    assert losses[-1] < 0.5 * losses[0]


def test_checkpoints_hold_everything(tmp_path):
    def fresh():
        return Run(errornorm.ent_fraction(0.2, scope="running", start=2), 2, optimizer=torch.optim.AdamW, lr=0.01)

    whole = fresh()
    losses = [whole.epoch() for _ in range(4)]
    first = fresh()
    early = [first.epoch() for _ in range(2)]
    first.accelerator.save_state(str(tmp_path))
    second = fresh()
    second.epoch()  # it must be undone
    second.accelerator.load_state(str(tmp_path))
    assert early + [second.epoch() for _ in range(2)] == losses
    assert torch.equal(second.weights, whole.weights)
    ends = [run.handle.state_dict() for run in (whole, second)]
    assert ends[0]["steps_taken"] == ends[1]["steps_taken"] == 12
    assert all(torch.equal(ends[0]["state"][key], ends[1]["state"][key]) for key in ends[0]["state"])
    assert ends[0]["state"]["counts"].sum() > 0


def test_nan_stops_the_run():
    run = Run(errornorm.mle(), 2)
    run.epoch()
    before = run.weights
    with pytest.raises(FloatingPointError, match="optimizer step 3"):
        run.epoch(spoil=[0])
    assert torch.equal(run.weights, before)
    assert all(p.grad is None for p in run.model.parameters())


def test_nan_is_skipped():
    run = Run(errornorm.mle(), 2, on_nan="skip")
    run.epoch()
    before = run.weights
    run.epoch(spoil=[0, 1, 2])
    assert torch.equal(run.weights, before)
    run.epoch()
    assert not torch.equal(run.weights, before)
    assert run.weights.isfinite().all()


def test_what_would_be_wrong_is_refused():
    run = Run(errornorm.mle(), 2)
    group = next(groups(run.accelerator, run.loader))
    with pytest.raises(ValueError, match="a step has 2 micro-batches"):
        num_items(run.accelerator, run.handle, group[:1])
    run = Run(errornorm.mle(), 2, sync=True)
    with pytest.raises(ValueError, match="sync_with_dataloader=False"):
        num_items(run.accelerator, run.handle, group)


def test_what_is_left_of_the_data_is_left_out():
    run = Run(errornorm.mle(), 2)
    assert [len(group) for group in groups(run.accelerator, range(7))] == [2, 2, 2]
