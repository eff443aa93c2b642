"""Hugging Face Trainer and Seq2SeqTrainer with an objective: they really train."""

import json
import logging
import math

import pytest
import torch
from torch.utils.data import Dataset
from transformers import (
    LlamaForCausalLM,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import errornorm
from errornorm.integrations.trainer import ComputeLoss, LossFunction, RobustCallback, robust
from tests.architectures import CAUSAL, VOCAB, build

LENGTH = 8


class Rows(Dataset):
    """Sequences that can be learned (each token is the one before plus 1), with labels."""

    def __init__(self, name="gpt2", size=64, sources=False):
        start = torch.randint(3, 60, (size, 1), generator=torch.Generator().manual_seed(0))
        self.tokens = start + torch.arange(LENGTH)
        self.labels = self.tokens.clone() if name in CAUSAL else self.tokens.flip(1)
        self.labels[::3, -2:] = -100
        self.sources = sources

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        row = {"input_ids": self.tokens[i], "labels": self.labels[i]}
        return row | ({"source": torch.tensor(i % 2)} if self.sources else {})


def make(tmp_path, name="gpt2", model=None, data=None, **options):
    seq2seq = name not in CAUSAL
    kind = Seq2SeqTrainingArguments if seq2seq else TrainingArguments
    defaults = {
        "max_steps": 6, "per_device_train_batch_size": 8, "learning_rate": 1e-2, "logging_steps": 1, "report_to": [],
        "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "seed": 3, "max_grad_norm": 0.0,
        "dataloader_pin_memory": False,
    }  # fmt: skip
    callbacks = options.pop("callbacks", None)
    extra = options.pop("extra", {})
    args = kind(output_dir=str(tmp_path), **{**defaults, **options})
    trainer = Seq2SeqTrainer if seq2seq else Trainer
    data = data or Rows(name)
    return trainer(
        model=model or build(name), args=args, train_dataset=data, eval_dataset=data, callbacks=callbacks, **extra
    )


def losses(trainer):
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def weights(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def assert_equal_weights(a, b):
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "bart", "marian"])
def test_it_trains_and_logs(tmp_path, name):
    trainer = make(tmp_path, name, max_steps=30, learning_rate=3e-2)
    handle = robust(trainer, errornorm.ent_fraction(0.1, start=5))
    trainer.train()
    history = [row for row in trainer.state.log_history if "loss" in row]
    assert losses(trainer)[-1] < 0.8 * losses(trainer)[0]
    assert handle.loss.steps_taken == 30
    early, late = history[3], history[-1]
    assert early["errornorm/kept"] == 1.0
    assert late["errornorm/kept"] == pytest.approx(0.9, abs=0.02)
    assert late["errornorm/objective"] < late["errornorm/nll"]
    assert 0 < late["errornorm/cutoff"] < math.sqrt(2)
    assert late["errornorm/error_norm_p50"] <= late["errornorm/error_norm_p90"] <= late["errornorm/error_norm_p99"]
    assert late["errornorm/entropy"] > 0
    assert late["loss"] == pytest.approx(late["errornorm/objective"], rel=1e-4)


@pytest.mark.parametrize("optim", ["adamw_torch_fused", "adamw_torch", "sgd"])
def test_one_line_is_enough(tmp_path, optim):
    """`attach` alone: steps are noticed, the loss is the same as with the callback."""
    found = []
    for whole in (False, True):
        method, model = errornorm.ent_fraction(0.3, scope="running", start=2), build("gpt2")
        handle = None if whole else errornorm.attach(model, method)
        trainer = make(tmp_path, model=model, gradient_accumulation_steps=2, per_device_train_batch_size=4, optim=optim)
        handle = handle or robust(trainer, method)
        trainer.train()
        found.append((losses(trainer), weights(trainer.model)))
        assert handle.loss.steps_taken == 6 - (not whole)  # the last step is noticed with the next batch
    assert found[0][0] == found[1][0]
    assert_equal_weights(found[0][1], found[1][1])


def test_telemetry_reaches_every_logger_and_names_sources(tmp_path):
    class Logger(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **rest):
            seen.append(dict(logs))

    seen = []

    trainer = make(tmp_path, data=Rows(sources=True), callbacks=[Logger], remove_unused_columns=False, max_steps=2)
    robust(trainer, errornorm.ent_fraction(0.25))
    trainer.train()
    row = seen[0]
    assert row["errornorm/kept"] == pytest.approx(0.75, abs=0.02)
    both = row["errornorm/source=0/tokens"] + row["errornorm/source=1/tokens"]
    assert both == row["errornorm/tokens"]
    assert {"errornorm/source=0/kept", "errornorm/source=1/nll", "errornorm/source=1/error_norm"} <= row.keys()


def test_evaluation_is_plain_likelihood(tmp_path):
    plain = make(tmp_path, "llama").evaluate()["eval_loss"]
    trainer = make(tmp_path, "llama")
    handle = robust(trainer, errornorm.ent_fraction(0.5))
    assert trainer.evaluate()["eval_loss"] == pytest.approx(plain, rel=1e-6)
    assert handle.terms is None


def test_a_model_of_ones_own_is_evaluated(tmp_path):
    """Its forward takes labels, and nothing of a trainer's."""

    class Own(LlamaForCausalLM):
        def forward(self, input_ids, labels=None):
            return super().forward(input_ids=input_ids, labels=labels)

    found = []
    for attached in (False, True):
        model = build("llama")
        model.__class__ = Own
        trainer = make(tmp_path, "llama", model=model, max_steps=1)
        if attached:
            robust(trainer, errornorm.ent_fraction(0.5))
        found.append(trainer.evaluate()["eval_loss"])
        trainer.train()
    assert found[0] == found[1]


def test_a_first_token_is_not_counted(tmp_path):
    """Plain Trainer counts the first label of each sequence for GPT-2, which is never predicted."""
    data, model = Rows(size=8), build("gpt2").eval()
    true = model(input_ids=data.tokens, labels=data.labels).loss.item()
    plain = make(tmp_path, model=model, data=data).evaluate()["eval_loss"]
    assert plain < 0.9 * true  # if this fails it was mended
    trainer = make(tmp_path, model=model, data=data)
    robust(trainer, errornorm.mle())
    assert trainer.evaluate()["eval_loss"] == pytest.approx(true, rel=1e-6)
    trainer.args.max_steps = 1
    trainer.train()
    assert losses(trainer)[0] == pytest.approx(true, rel=1e-5)


@pytest.mark.parametrize("way", ["attach", "robust", "compute_loss_func"])
def test_a_first_token_is_not_counted_inside_of_an_adapter(tmp_path, way):
    """A trainer asks the model inside, not PEFT's around it, what its loss counts."""
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    data, model = Rows(size=8), peft.get_peft_model(build("gpt2"), settings).eval()
    true = model(input_ids=data.tokens, labels=data.labels).loss.item()
    method, extra = errornorm.mle(), {}
    if way == "compute_loss_func":
        extra = {way: ComputeLoss(model, method)}
    elif way == "attach":
        errornorm.attach(model, method)
    trainer = make(tmp_path, model=model, data=data, extra=extra, max_steps=1)
    if way == "robust":
        robust(trainer, method)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(true, rel=1e-6)
    trainer.train()
    assert losses(trainer)[0] == pytest.approx(true, rel=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_stop_and_resume_is_bit_identical(tmp_path, name):
    def run(folder, steps, resume=None):
        trainer = make(folder, name, max_steps=8, save_strategy="steps", save_steps=4, lr_scheduler_type="constant")
        handle = robust(trainer, errornorm.ent_fraction(0.2, scope="running", start=2))

        class Stop(TrainerCallback):
            def on_step_end(self, args, state, control, **rest):
                control.should_training_stop = state.global_step >= steps

        trainer.add_callback(Stop)
        trainer.train(resume_from_checkpoint=resume)
        return losses(trainer), weights(trainer.model), handle.state_dict()

    whole = run(tmp_path / "whole", 8)
    run(tmp_path / "parts", 4)
    parts = run(tmp_path / "parts", 8, resume=str(tmp_path / "parts" / "checkpoint-4"))
    assert parts[0] == whole[0]
    assert_equal_weights(parts[1], whole[1])
    assert parts[2]["steps_taken"] == whole[2]["steps_taken"] == 8
    for name, value in whole[2]["state"].items():
        assert torch.equal(parts[2]["state"][name], value)
    assert whole[2]["state"]["counts"].sum() > 0


def test_resume_without_the_objectives_state_is_refused(tmp_path):
    trainer = make(tmp_path, max_steps=2, save_strategy="steps", save_steps=1)
    trainer.train()
    trainer = make(tmp_path, max_steps=2)
    robust(trainer, errornorm.mle())
    with pytest.raises(ValueError, match="holds no state of the objective"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))


def test_state_is_plain_json(tmp_path):
    trainer = make(tmp_path, max_steps=2, save_strategy="steps", save_steps=2)
    robust(trainer, errornorm.loss_truncation(0.2))
    trainer.train()
    state = json.loads((tmp_path / "checkpoint-2" / "trainer_state.json").read_text())
    saved = state["stateful_callbacks"]["RobustCallback"]["attributes"]["errornorm"]
    assert saved["objective"].startswith("loss_truncation(")
    assert saved["steps_taken"] == 2


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "bart", "marian"])
def test_accumulation_is_scaled_right(tmp_path, name):
    """The same 8 examples as 1, 2 or 4 micro-batches. Plain Trainer is off by the number of them for some models."""
    found = {}
    for parts in (1, 4):
        for attached in (True, False):
            trainer = make(
                tmp_path, name, max_steps=2, per_device_train_batch_size=8 // parts, gradient_accumulation_steps=parts
            )
            if attached:
                robust(trainer, errornorm.mle())
            trainer.train()
            found[attached, parts] = losses(trainer)
    assert found[True, 4] == pytest.approx(found[True, 1], rel=1e-6)
    ratio = found[False, 4][0] / found[False, 1][0]
    if name == "llama":
        assert found[True, 1] == pytest.approx(found[False, 1], rel=1e-6)
    if name in CAUSAL:
        assert ratio == pytest.approx(1.0, rel=1e-5)
    else:
        assert ratio == pytest.approx(4.0, rel=0.05)  # what plain Trainer does; if this fails it was mended


def test_label_smoothing_exactly_once(tmp_path):
    found = []
    for give in ("trainer", "options", "both"):
        trainer = make(tmp_path, "llama", max_steps=3, label_smoothing_factor=0.0 if give == "options" else 0.2)
        options = {} if give == "trainer" else {"label_smoothing": 0.2}
        handle = robust(trainer, errornorm.mle(), **options)
        assert handle.loss.label_smoothing == 0.2
        trainer.train()
        found.append(losses(trainer))
    assert found[0] == found[1] == found[2]
    plain = make(tmp_path, "llama", max_steps=3, label_smoothing_factor=0.2)
    plain.train()
    assert found[0] == pytest.approx(losses(plain), rel=1e-5)
    trainer = make(tmp_path, label_smoothing_factor=0.2)
    with pytest.raises(ValueError, match="given twice"):
        robust(trainer, errornorm.mle(), label_smoothing=0.1)


def test_label_smoothing_of_the_trainer_with_attach_alone_is_noticed(tmp_path):
    trainer = make(tmp_path, max_steps=3, label_smoothing_factor=0.2)
    errornorm.attach(trainer.model, errornorm.mle())
    with pytest.raises(RuntimeError, match="never ran"):
        trainer.train()


def test_a_threshold_out_of_reach_is_said(caplog):
    with caplog.at_level(logging.WARNING, "errornorm"):
        errornorm.RobustLoss(errornorm.ent_threshold(1.3), label_smoothing=0.1)
    assert not caplog.records
    errornorm.RobustLoss(errornorm.ent_threshold(1.38), label_smoothing=0.1)
    assert "error norms end at about 1.345" in caplog.text
    assert "use 1.316" in caplog.text


def test_a_threshold_that_nothing_reaches_is_said_with_a_number(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("errornorm.integrations.watch.IDLE", 3)
    model = build("granite", logits_scaling=100.0)  # a temperature
    trainer = make(tmp_path, "granite", model=model, max_steps=5, learning_rate=1e-5)
    handle = robust(trainer, errornorm.ent_threshold(1.38))
    trainer.train()
    said = [record for record in caplog.records if "no token came above the threshold 1.38" in record.message]
    assert len(said) == 1
    assert handle.loss.steps_taken == 5


def test_gradients_that_are_not_finite_stop_the_run_in_the_same_step(tmp_path):
    trainer = make(tmp_path)
    robust(trainer, errornorm.ent_fraction(0.1))
    calls = []

    def poison(grad):
        calls.append(None)
        return grad * float("nan") if len(calls) == 3 else grad

    weight = trainer.model.transformer.h[0].mlp.c_fc.weight
    weight.register_hook(poison)
    with pytest.raises(FloatingPointError, match=r"optimizer step 2: .*all 16 gradients"):
        trainer.train()
    assert len(calls) == 3
    assert all(p.isfinite().all() for p in trainer.model.parameters())


def test_a_skipped_step_changes_nothing(tmp_path, caplog):
    kept = {}

    class Watch(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **rest):
            kept[state.global_step] = weights(model)

    trainer = make(tmp_path, callbacks=[Watch])
    robust(trainer, errornorm.ent_fraction(0.1), on_nan="skip")
    calls = []

    def poison(module, args, out):
        if module.training:
            calls.append(None)
        return out * float("nan") if len(calls) == 3 and module.training else out

    trainer.model.transformer.wte.register_forward_hook(poison)
    trainer.train()
    assert_equal_weights(kept[2], kept[3])
    name = "transformer.wte.weight"
    assert not torch.equal(kept[3][name], kept[4][name])
    assert all(p.isfinite().all() for p in trainer.model.parameters())
    assert "training batch 3" in caplog.text


def test_fifty_poisons_and_no_nan_in_the_weights(tmp_path):
    generator = torch.Generator().manual_seed(0)
    stopped = 0
    for number in range(50):
        trainer = make(tmp_path, max_steps=3, data=Rows(size=24))
        model = trainer.model
        robust(trainer, errornorm.ent_fraction(0.2))
        when = int(torch.randint(1, 4, (), generator=generator))
        value = (float("nan"), float("inf"))[number % 2]
        calls = []

        def poison(x, when=when, value=value, calls=calls):
            calls.append(None)
            return torch.full_like(x, value) if len(calls) == when else x

        if number % 4 < 2:
            modules = [m for n, m in model.named_modules() if isinstance(m, torch.nn.LayerNorm | torch.nn.Embedding)]
            module = modules[int(torch.randint(len(modules), (), generator=generator))]
            module.register_forward_hook(lambda m, args, out, poison=poison: poison(out))
        else:
            parameters = [p for p in model.parameters() if p.requires_grad]
            parameters[int(torch.randint(len(parameters), (), generator=generator))].register_hook(poison)
        with pytest.raises(FloatingPointError, match=f"optimizer step {when - 1}"):
            trainer.train()
        stopped += 1
        assert all(p.isfinite().all() for p in model.parameters()), number
    assert stopped == 50


def test_a_batch_of_ignored_labels_is_a_zero_loss(tmp_path):
    data = Rows()
    data.labels[:] = -100
    trainer = make(tmp_path, data=data, max_steps=2, weight_decay=0.0)
    before = weights(trainer.model)
    robust(trainer, errornorm.ent_fraction(0.1))
    trainer.train()
    assert losses(trainer) == [0.0, 0.0]
    assert_equal_weights(before, weights(trainer.model))


def test_the_compute_loss_func_route(tmp_path):
    model = build("llama")
    function = ComputeLoss(model, errornorm.ent_fraction(0.2))
    trainer = make(tmp_path, "llama", model=model, extra={"compute_loss_func": function})
    trainer.train()
    other = make(tmp_path, "llama")
    robust(other, errornorm.ent_fraction(0.2))
    other.train()
    assert losses(trainer) == pytest.approx(losses(other), rel=1e-5)
    with pytest.raises(ValueError, match=r"use errornorm\.attach"):
        ComputeLoss(build("bart"), errornorm.mle())
    with pytest.raises(ValueError, match="compute_loss_func"):
        robust(trainer, errornorm.mle())


def test_the_loss_function_route(tmp_path):
    model = build("llama")
    model.loss_function = LossFunction(model, errornorm.ent_fraction(0.2))
    trainer = make(tmp_path, "llama", model=model)
    trainer.train()
    other = make(tmp_path, "llama")
    robust(other, errornorm.ent_fraction(0.2))
    other.train()
    assert losses(trainer) == pytest.approx(losses(other), rel=1e-5)
    model.eval()
    row = {"input_ids": torch.randint(VOCAB, (2, 5)), "labels": torch.randint(VOCAB, (2, 5))}
    with torch.no_grad():
        ours = model(**row).loss
        model.loss_function = None
        assert ours == pytest.approx(float(build("llama").eval().loss_function(
            model(input_ids=row["input_ids"]).logits, row["labels"], VOCAB)), rel=1e-6)  # fmt: skip


def test_rivals_are_refused(tmp_path):
    trainer = make(tmp_path)
    trainer.args.use_liger_kernel = True
    with pytest.raises(ValueError, match="use_liger_kernel=False"):
        robust(trainer, errornorm.mle())
    trainer = make(tmp_path)
    robust(trainer, errornorm.mle())
    with pytest.raises(ValueError, match="already has an objective"):
        robust(trainer, errornorm.mle())


def test_columns_that_the_trainer_would_remove_are_said(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = Rows(size=16)
    columns = {"input_ids": rows.tokens.tolist(), "labels": rows.labels.tolist(), "token_weight": [[1.0] * LENGTH] * 16}
    data = datasets.Dataset.from_dict(columns)
    with pytest.raises(ValueError, match="remove_unused_columns=False"):
        robust(make(tmp_path, data=data), errornorm.weighted())
    trainer = make(tmp_path, data=data, remove_unused_columns=False, max_steps=2)
    robust(trainer, errornorm.weighted())
    trainer.train()
    assert len(losses(trainer)) == 2


def test_the_callback_alone(tmp_path):
    model = build("gpt2")
    handle = errornorm.attach(model, errornorm.ent_fraction(0.1))
    trainer = make(tmp_path, model=model, callbacks=[RobustCallback(handle)], max_steps=2)
    trainer.train()
    assert handle.loss.steps_taken == 2
    assert "errornorm/kept" in trainer.state.log_history[0]


def test_what_a_trainer_would_do_otherwise_is_refused(tmp_path):
    with pytest.raises(ValueError, match="robust needs a trainer, not a GPT2LMHeadModel: for a model use"):
        robust(build("gpt2"), errornorm.mle())
    with pytest.raises(ValueError, match="labels of -100 only"):
        robust(make(tmp_path), errornorm.mle(), ignore_index=0)
    trainer = make(tmp_path)
    trainer.model_init = lambda: build("gpt2")
    with pytest.raises(ValueError, match="makes a new model"):
        robust(trainer, errornorm.mle())


def test_another_objective_after_detach(tmp_path):
    trainer = make(tmp_path, max_steps=2)
    robust(trainer, errornorm.ent_fraction(0.5)).detach()
    handle = robust(trainer, errornorm.mle())
    trainer.train()
    assert handle.loss.steps_taken == 2


def test_a_loss_function_without_labels_says_so(tmp_path):
    model = build("llama")
    model.loss_function = LossFunction(model, errornorm.mle())
    make(tmp_path, "llama", model=model, max_steps=1, label_smoothing_factor=0.2).train()
    with pytest.raises(RuntimeError, match="pass label_smoothing= here"):
        model.loss_function.advance()


def test_callback_states_that_the_trainer_restores(tmp_path):
    def run(resume=None):
        trainer = make(
            tmp_path, max_steps=4, save_strategy="steps", save_steps=2, restore_callback_states_from_checkpoint=True
        )
        handle = robust(trainer, errornorm.ent_fraction(0.2, scope="running"))
        trainer.train(resume_from_checkpoint=resume)
        return handle.state_dict(), weights(trainer.model)

    whole, parts = run(), run(str(tmp_path / "checkpoint-2"))
    assert parts[0]["steps_taken"] == whole[0]["steps_taken"] == 4
    assert_equal_weights(whole[1], parts[1])


@pytest.mark.parametrize("normalize", ["valid", "kept"])
def test_a_loss_function_is_the_attached_objective(normalize):
    """With its denominators; and in evaluation mode likelihood, also where gradients are on."""
    rows, method = Rows(size=8), errornorm.ent_fraction(0.5)
    inputs = {"input_ids": rows.tokens, "labels": rows.labels}
    model, other = build("llama").train(), build("llama").train()
    model.loss_function = function = LossFunction(model, method, normalize=normalize)
    with errornorm.attach(other, method, normalize=normalize):
        for more in ({}, {"num_items_in_batch": 100}):
            torch.testing.assert_close(model(**inputs, **more).loss, other(**inputs, **more).loss)
        torch.testing.assert_close(model.eval()(**inputs).loss, other.eval()(**inputs).loss)
    assert function.loss.batches_seen == 2


def test_a_loss_function_pads_with_what_it_ignores():
    chosen = LossFunction(build("llama"), errornorm.mle(), ignore_index=0)
    logits, labels = torch.randn(1, 4, 7), torch.tensor([[3, 0, 2, 5]])
    expected = torch.nn.functional.cross_entropy(logits[0, :-1], labels[0, 1:], ignore_index=0)
    torch.testing.assert_close(chosen(logits, labels), expected)
