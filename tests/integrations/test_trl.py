"""TRL's supervised fine-tuning with an objective: likelihood is TRL's own, and so are its metrics."""

import math

import datasets
import pytest
import torch
import trl
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import errornorm
from errornorm.integrations.trl import SFTTrainer
from tests.architectures import VOCAB, build

METRICS = ("loss", "entropy", "mean_token_accuracy", "num_tokens", "grad_norm")
datasets.disable_progress_bars()


@pytest.fixture(scope="module")
def tokenizer():
    words = ["<pad>", "<s>", "</s>", "<unk>", *(f"w{i}" for i in range(VOCAB - 4))]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def words(start, count):
    return " ".join(f"w{(start + i) % (VOCAB - 4)}" for i in range(count))


TEXTS = datasets.Dataset.from_list([{"text": words(7 * i, 3 + i % 6)} for i in range(32)])
PAIRS = datasets.Dataset.from_list(
    [{"prompt": words(7 * i, 1 + i % 4), "completion": " " + words(3 * i, 2 + i % 3)} for i in range(32)]
)


@pytest.fixture
def make(tmp_path, tokenizer):
    def maker(kind, objective=None, *, name="llama", data=TEXTS, extra=None, **options):
        defaults = {
            "max_steps": 6, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "learning_rate": 1e-2,
            "logging_steps": 1, "report_to": [], "use_cpu": True, "bf16": False, "gradient_checkpointing": False,
            "disable_tqdm": True, "save_strategy": "no", "seed": 3, "dataloader_pin_memory": False,
        }  # fmt: skip
        args = trl.SFTConfig(output_dir=str(tmp_path), **{**defaults, **options})
        ours = {} if objective is None else {"objective": objective}
        return kind(
            model=build(name), args=args, train_dataset=data, eval_dataset=data, processing_class=tokenizer,
            **ours, **(extra or {}),
        )  # fmt: skip

    return maker


def history(trainer, *names):
    return {name: [row[name] for row in trainer.state.log_history if "loss" in row] for name in names}


def assert_same(ours, theirs, *more):
    wanted = history(theirs, *METRICS, *more)
    for name, values in history(ours, *METRICS, *more).items():
        assert values == pytest.approx(wanted[name], rel=1e-5, abs=1e-5), name


CASES = {
    "padded": {},
    "completions": {"data": PAIRS},
    "packed": {"packing": True, "max_length": 16},
    "padding free": {"padding_free": True, "max_length": None},
    "without accumulation": {"gradient_accumulation_steps": 1},
    "adapter": {"extra": {"peft_config": LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False)}},
}


@pytest.mark.filterwarnings("ignore:.*padding-free:UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_likelihood_is_trls_own(make, case):
    """Loss, gradients and metrics, over some steps."""
    runs = []
    for kind, objective in ((trl.SFTTrainer, None), (SFTTrainer, errornorm.mle())):
        torch.manual_seed(0)
        runs.append(make(kind, objective, **CASES[case]))
        runs[-1].train()
    assert_same(runs[1], runs[0])
    assert runs[1].handle.fused
    assert runs[1].handle.loss.steps_taken == 6


def test_a_mixture_of_experts_keeps_its_router_loss(make):
    same_length = datasets.Dataset.from_list([{"text": words(7 * i, 6)} for i in range(32)])
    options = {"name": "mixtral", "data": same_length, "router_aux_loss_coef": 0.5}
    theirs = make(trl.SFTTrainer, **options)
    ours = make(SFTTrainer, errornorm.mle(), **options)
    theirs.train()
    ours.train()
    assert_same(ours, theirs, "aux_loss")


@pytest.mark.parametrize("case", ["completions", "packed"])
def test_it_trains(make, case):
    trainer = make(
        SFTTrainer, errornorm.ent_fraction(0.2, start=10), **{**CASES[case], "max_steps": 40, "learning_rate": 3e-2}
    )
    trainer.train()
    found = history(trainer, "loss", "errornorm/kept", "errornorm/tokens", "mean_token_accuracy")
    assert found["loss"][-1] < 0.5 * found["loss"][0]
    assert found["mean_token_accuracy"][-1] > found["mean_token_accuracy"][0]
    assert set(found["errornorm/kept"][:10]) == {1.0}
    assert all(0.75 < kept < 0.9 for kept in found["errornorm/kept"][10:])


def test_only_completions_count(make):
    trainer = make(SFTTrainer, errornorm.mle(), data=PAIRS, gradient_accumulation_steps=1, max_steps=1)
    trainer.train()
    # 4 rows of 2 to 4 words, and the end of each
    assert 4 * 3 <= trainer.handle.terms.num_tokens <= 4 * 5
    assert trainer.handle.terms.counted.sum() == trainer.handle.terms.num_tokens


def test_packed_sequences_stay_apart(make):
    """A sequence is dropped as a whole, and others in the same row are not."""
    trainer = make(SFTTrainer, errornorm.ent_fraction(0.3, unit="sequence"), **CASES["packed"])
    inputs = next(iter(trainer.get_train_dataloader()))
    trainer.compute_loss(trainer.model.train(), inputs)
    number = (inputs["position_ids"][0] == 0).cumsum(0)[:-1]
    dropped, counted = trainer.handle.terms.dropped[0, :-1], trainer.handle.terms.counted[0, :-1]
    shares = [float(dropped[counted & (number == i)].float().mean()) for i in number.unique()]
    assert set(shares) == {0.0, 1.0}
    assert sum(shares) == int(0.3 * len(shares))


def test_evaluation_is_plain_likelihood(make):
    trained = make(SFTTrainer, errornorm.ent_fraction(0.3), eval_strategy="steps", eval_steps=3)
    trained.train()
    plain = make(trl.SFTTrainer)
    plain.model.load_state_dict(trained.model.state_dict())
    wanted, found = plain.evaluate(), trained.evaluate()
    for name in ("eval_loss", "eval_entropy", "eval_mean_token_accuracy"):
        assert found[name] == pytest.approx(wanted[name], rel=1e-6)
    assert len([row for row in trained.state.log_history if "eval_loss" in row]) == 3
    assert trained.handle.loss.batches_seen == 12


def test_trls_own_trainer_is_refused(make):
    trainer = make(trl.SFTTrainer)
    errornorm.attach(trainer.model, errornorm.mle())
    with pytest.raises(RuntimeError, match=r"use errornorm\.integrations\.trl\.SFTTrainer"):
        trainer.train()


def test_another_objective_of_trl_is_refused(make):
    with pytest.raises(ValueError, match="loss_type='dft' is an objective of its own"):
        make(SFTTrainer, errornorm.mle(), loss_type="dft")


@pytest.mark.filterwarnings("ignore:`label_smoothing_factor` is deprecated:FutureWarning")
def test_label_smoothing_moves_into_the_objective(make):
    """Once, and TRL's second forward pass for it is saved."""
    runs = [
        make(SFTTrainer, errornorm.mle(), label_smoothing_factor=0.1),
        make(trl.SFTTrainer, label_smoothing_factor=0.1),
    ]
    for trainer in runs:
        trainer.train()
    assert runs[0].handle.loss.label_smoothing == 0.1
    assert_same(*runs)


def test_stop_and_resume_is_the_same_run(make, tmp_path):
    def fresh(**options):
        return make(SFTTrainer, errornorm.ent_fraction(0.2, scope="running", start=2), save_strategy="steps",
                    save_steps=3, **options)  # fmt: skip

    whole = fresh()
    whole.train()
    second = fresh()
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    names = ("loss", "entropy", "mean_token_accuracy")
    assert history(second, *names) == history(whole, *names)
    states = [trainer.handle.state_dict()["state"] for trainer in (whole, second)]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_nan(make):
    """It stops the run; or the step is left out, and the metrics are of the other batches."""
    calls = []

    def poison(layer, args, out):
        calls.append(layer)
        return out * math.nan if len(calls) == 5 else out

    trainer = make(SFTTrainer, errornorm.mle())
    trainer.model.model.norm.register_forward_hook(poison)
    with pytest.raises(FloatingPointError, match="optimizer step 2"):
        trainer.train()
    calls.clear()
    trainer = make(SFTTrainer, errornorm.mle(), extra={"attach_options": {"on_nan": "skip"}}, max_steps=4)
    trainer.model.model.norm.register_forward_hook(poison)
    trainer.train()
    assert all(p.isfinite().all() for p in trainer.model.parameters())
    assert all(math.isfinite(x) for x in history(trainer, "entropy")["entropy"])
