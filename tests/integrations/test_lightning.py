"""Lightning with an objective: it really trains, stops and resumes, and no NaN reaches the weights."""

import csv
import math
from pathlib import Path

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

import errornorm
from errornorm.integrations.lightning import RobustCallback
from tests.architectures import batch, build

pytestmark = [
    # Lightning on itself, and its advice.
    pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated"),
    pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint need to be provided"),
]
RUNNING = errornorm.ent_fraction(0.2, scope="running", start=2)


class Module(lightning.LightningModule):
    """Records its losses; one of its batches may be spoilt."""

    def __init__(self, name="gpt2", spoil=None, optimizer=torch.optim.AdamW, lr=0.01):
        super().__init__()
        self.model = build(name).train()
        self.spoil, self.make, self.lr, self.losses, self.seen = spoil, optimizer, lr, [], []

    def training_step(self, inputs, index):
        loss = self.model(**inputs).loss
        self.losses.append(loss.item())
        return loss * math.nan if index == self.spoil else loss

    def on_train_batch_end(self, outputs, inputs, index):
        self.seen.append(self.weights)

    def configure_optimizers(self):
        return self.make(self.parameters(), lr=self.lr)

    @property
    def weights(self):
        return torch.cat([p.detach().flatten().clone() for p in self.parameters()])


class Loader:
    """8 batches in an epoch, and knows where it was."""

    def __init__(self, name="gpt2"):
        self.batches, self.at = [batch(name, rows=2, seed=seed) for seed in range(8)], 0

    def __len__(self):
        return 8

    def __iter__(self):
        for index in range(self.at, 8):
            self.at = (index + 1) % 8
            yield self.batches[index]

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def fit(tmp_path, objective, steps, *, name="gpt2", resume=None, more=(), module=None, every=1, **options):
    attach = {key: options.pop(key) for key in ("on_nan",) if key in options}
    module = module or Module(name)
    handle = errornorm.attach(module.model, objective, **attach)
    trainer = lightning.Trainer(
        max_steps=steps,
        max_epochs=-1,
        callbacks=[RobustCallback(handle), *more],
        accelerator="cpu",
        logger=CSVLogger(tmp_path),
        log_every_n_steps=every,
        enable_checkpointing=bool(more),
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(module, Loader(name), ckpt_path=resume)
    return module, handle, trainer


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_it_trains_and_logs(tmp_path, name):
    module, handle, trainer = fit(
        tmp_path, errornorm.ent_fraction(0.2, start=10), 60, name=name, module=Module(name, lr=0.03), every=5
    )
    assert sum(module.losses[-8:]) < 0.6 * sum(module.losses[:8])
    assert handle.loss.steps_taken == 60
    lines = Path(trainer.logger.log_dir, "metrics.csv").read_text().splitlines()
    rows = [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(lines)]
    assert [row["step"] for row in rows] == list(range(4, 60, 5))
    assert {row["errornorm/tokens"] for row in rows[:8]} == {rows[8]["errornorm/tokens"]}
    assert rows[1]["errornorm/kept"] == 1.0
    assert rows[-1]["errornorm/kept"] == pytest.approx(0.8, abs=0.05)
    assert rows[-1]["errornorm/objective"] < rows[-1]["errornorm/nll"]
    assert 0 < rows[-1]["errornorm/cutoff"] < math.sqrt(2)


def test_accumulation_is_lightnings_own(tmp_path):
    """Likelihood, by hand: the mean of the micro-batches' means."""
    module, handle, _ = fit(
        tmp_path,
        errornorm.mle(),
        6,
        module=Module(optimizer=torch.optim.SGD, lr=0.5),
        accumulate_grad_batches=2,
        gradient_clip_val=0.5,
    )
    own, losses = build("gpt2").train(), []
    optimizer, batches = torch.optim.SGD(own.parameters(), lr=0.5), Loader().batches
    for step in range(6):
        for inputs in (batches[2 * step % 8], batches[(2 * step + 1) % 8]):
            loss = own(**inputs).loss
            (loss / 2).backward()
            losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_(own.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
    assert module.losses == pytest.approx(losses, rel=1e-5)
    torch.testing.assert_close(module.weights, torch.cat([p.detach().flatten() for p in own.parameters()]))
    assert handle.loss.steps_taken == 6
    assert handle.loss.batches_seen == 12


def fit_and_save(tmp_path, steps):
    saver = ModelCheckpoint(dirpath=tmp_path / "saved", every_n_train_steps=steps, save_top_k=-1)
    module, _, _ = fit(tmp_path, RUNNING, steps, accumulate_grad_batches=2, more=[saver])
    return module, saver.best_model_path


@pytest.mark.parametrize("stop", [4, 6], ids=["between epochs", "within an epoch"])
def test_stop_and_resume_is_the_same_run(tmp_path, stop):
    whole, handle, _ = fit(tmp_path, RUNNING, 12, accumulate_grad_batches=2)
    first, path = fit_and_save(tmp_path, stop)
    second, resumed, trainer = fit(tmp_path, RUNNING, 12, accumulate_grad_batches=2, resume=path)
    assert trainer.global_step == 12
    assert first.losses + second.losses == whole.losses
    assert torch.equal(second.weights, whole.weights)
    ends = [h.state_dict() for h in (handle, resumed)]
    assert ends[0]["steps_taken"] == ends[1]["steps_taken"] == 12
    assert all(torch.equal(ends[0]["state"][key], ends[1]["state"][key]) for key in ends[0]["state"])
    assert ends[0]["state"]["counts"].sum() > 0


def test_another_objective_does_not_resume(tmp_path):
    _, path = fit_and_save(tmp_path, 4)
    with pytest.raises(ValueError, match="this checkpoint is of ent_fraction"):
        fit(tmp_path, errornorm.mle(), 8, resume=path)


def test_a_checkpoint_without_the_objective_does_not_resume(tmp_path):
    _, path = fit_and_save(tmp_path, 4)
    saved = torch.load(path, weights_only=False)
    del saved["callbacks"]["RobustCallback"]
    torch.save(saved, path)
    with pytest.raises(ValueError, match="the checkpoint of step 4 holds no state of the objective"):
        fit(tmp_path, RUNNING, 8, resume=path)


def test_nan_stops_the_run_in_the_same_step(tmp_path):
    module = Module(spoil=3)
    with pytest.raises(FloatingPointError, match="optimizer step 3"):
        fit(tmp_path, RUNNING, 8, module=module)
    assert len(module.seen) == 3
    assert torch.equal(module.weights, module.seen[-1])
    assert module.weights.isfinite().all()


def test_nan_is_skipped(tmp_path):
    module = Module(spoil=3)
    _, handle, _ = fit(tmp_path, RUNNING, 6, module=module, on_nan="skip", gradient_clip_val=1.0)
    steps = list(zip(module.seen, module.seen[1:], strict=False))
    assert [torch.equal(a, b) for a, b in steps] == [False, False, True, False, False]
    assert module.weights.isfinite().all()
    assert handle.loss.steps_taken == 6


def test_a_batch_that_is_not_finite_is_skipped(tmp_path):
    module, calls = Module(), []

    def poison(layer, args, out):
        calls.append(layer)
        return out * math.nan if len(calls) == 3 else out

    module.model.transformer.ln_f.register_forward_hook(poison)
    fit(tmp_path, RUNNING, 3, module=module, on_nan="skip", accumulate_grad_batches=2)
    assert torch.equal(module.seen[1], module.seen[3])  # batches 2 and 3 make the second step
    assert not torch.equal(module.seen[3], module.seen[5])
    assert module.weights.isfinite().all()


@pytest.mark.filterwarnings("ignore:Found .* in eval mode at the start of training")
def test_evaluation_mode_is_refused(tmp_path):
    module = Module()
    module.model.eval()
    with pytest.raises(ValueError, match="is in evaluation mode"):
        fit(tmp_path, RUNNING, 2, module=module)
