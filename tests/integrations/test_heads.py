"""Heads that are not what they seem: each planted change is recognised, falls back to logits, or is refused by name."""

import copy
import functools
import re
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import peft
import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from accelerate.utils import convert_outputs_to_fp32
from liger_kernel.transformers import apply_liger_kernel_to_llama
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import errornorm
from errornorm.integrations.heads import look_at
from errornorm.integrations.trainer import LossFunction
from tests.architectures import CAUSAL, SEQ2SEQ, VOCAB, batch, build, gradients

TINY = {
    "vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "max_position_embeddings": 32, "pad_token_id": 0, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    plant: Callable  # changes a model in place, or returns another one
    says: str = ""  # in the log line or in the error
    of: str = "llama"
    later: bool = False  # the plant comes after attach and a first batch


# Ways to plant.


def behind(change):
    """The forward of the model changes the logits between the head and the loss."""

    def plant(model):
        def forward(self, *args, labels=None, **kwargs):
            out = super(kind, self).forward(*args, **kwargs)
            out["logits"] = change(self, out.logits)
            if labels is not None:
                out["loss"] = self.loss_function(logits=out.logits, labels=labels, vocab_size=out.logits.shape[-1])
            return out

        kind = type(type(model).__name__, (type(model),), {"forward": forward})
        model.__class__ = kind

    return plant


def instead(logits_of):
    """The forward of the model is replaced: from its hidden states to logits in another way."""

    def forward(self, input_ids, labels=None):
        logits = logits_of(self, self.model(input_ids).last_hidden_state)
        loss = None if labels is None else self.loss_function(logits=logits, labels=labels, vocab_size=VOCAB)
        return hf.modeling_outputs.CausalLMOutput(loss=loss, logits=logits)

    def plant(model):
        model.forward = types.MethodType(forward, model)

    return plant


def head(make):
    """Another module in the place of the head."""
    return lambda model: model.set_output_embeddings(make(model.get_output_embeddings()))


def on_head(change):
    """The head itself is changed."""

    def plant(model):
        change(model.get_output_embeddings())

    return plant


def hook(kind, function):
    return on_head(lambda module: getattr(module, f"register_{kind}_hook")(function))


def settings(**values):
    """Other values in the configuration."""

    def plant(model):
        for name, value in values.items():
            setattr(model.config, name, value)

    return plant


def lora(**options):
    """A PEFT model around it. The adapter starts out without effect."""

    def plant(model):
        config = peft.LoraConfig(**{"r": 2, "task_type": "CAUSAL_LM", "target_modules": ["q_proj"], **options})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return peft.get_peft_model(model, config)

    return plant


def another(kind, **config):
    """Another architecture."""
    return lambda _: kind._from_config(kind.config_class(**{**TINY, **config}))


def both(first, second):
    def plant(model):
        model = first(model) or model
        return second(model) or model

    return plant


# What to plant.


def linear(old, bias=False, kind=nn.Linear):
    new = kind(old.in_features, old.out_features, bias=bias)
    nn.init.normal_(new.weight, std=0.1)
    return new


class Named(nn.Linear):
    """Nothing but another name."""


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Half(nn.Module):
    def forward(self, weight):
        return weight / 2


class Int8(nn.Module):
    """As 8-bit libraries do it: integers and a scale."""

    def __init__(self, old):
        super().__init__()
        self.scale = old.weight.detach().abs().max() / 127
        self.register_buffer("weight", (old.weight.detach() / self.scale).round().to(torch.int8))
        self.bias = None

    def forward(self, x):
        return F.linear(x, self.weight * self.scale)


class Packed(torch.Tensor):
    """As torchao does it: a plain linear layer, and a weight with a multiplication of its own."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        out = super().__torch_function__(function, types, args, kwargs)
        return 2 * out if function is F.linear else out


def pack(old):
    old.weight = nn.Parameter(old.weight.detach().as_subclass(Packed))


def quantise(old):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(copy.deepcopy(old)), {nn.Linear})[0]


def old_weight_norm(old):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(old)


def new_forward(old):
    old.forward = lambda x: F.linear(x, 2 * old.weight)


def offload(old):
    """As TRL does it when it offloads activations: around the head nothing happens."""

    def nothing(*_):
        return None

    nothing.__module__ = "trl.models.activation_offloading"
    old.register_forward_pre_hook(nothing)
    old.register_forward_hook(nothing)


def inject(model):
    peft.inject_adapter_in_model(peft.LoraConfig(r=2, target_modules=["lm_head"]), model)


def another_final_bias(model):
    model.final_logits_bias *= 3


def trained_final_bias(model):
    bias = nn.Parameter(model.final_logits_bias)
    del model.final_logits_bias
    model.final_logits_bias = bias


def trained_scale(model):
    model.logit_scale = nn.Parameter(torch.tensor(0.25))


def another_multiplier(model):
    model.config.lm_head_multiplier = model.model.lm_head_multiplier = 2.5


def bfloat16(model):
    model.bfloat16()


def mask(value):
    return behind(lambda _, x: x.index_fill(-1, torch.arange(1, 3), value))


def liger(model):
    """Its fused loss alone: the other kernels would be patched into the module, for good."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    apply_liger_kernel_to_llama(rope=False, rms_norm=False, swiglu=False, model=inner)


RECOGNISED = {
    "another soft-cap": Case(settings(final_logit_softcapping=0.3), of="gemma2"),
    "another soft-cap, later": Case(settings(final_logit_softcapping=0.3), of="gemma2", later=True),
    "no soft-cap": Case(settings(final_logit_softcapping=None), of="gemma2"),
    "a soft-cap of another name": Case(
        another(hf.RecurrentGemmaForCausalLM, num_hidden_layers=2, lru_width=16, logits_soft_cap=0.5)
    ),
    "another divisor": Case(settings(logits_scaling=0.4), of="granite"),
    "another divisor, later": Case(settings(logits_scaling=0.4), of="granite", later=True),
    "another factor": Case(lambda model: setattr(model, "logit_scale", 3.0), of="cohere"),
    "another multiplier": Case(another_multiplier, of="falcon_h1"),
    "a bias of the head": Case(head(functools.partial(linear, bias=True))),
    "another final bias": Case(another_final_bias, of="bart"),
    "a final bias that is trained": Case(trained_final_bias, of="bart"),
    "tied embeddings": Case(lambda _: build("llama", tie_word_embeddings=True)),
    "untied embeddings": Case(lambda _: build("gemma2", tie_word_embeddings=False), of="gemma2"),
    "a frozen head": Case(on_head(lambda module: module.requires_grad_(False))),
    "another head, later": Case(head(linear), later=True),
    "a linear layer of another name": Case(head(functools.partial(linear, kind=Named))),
    "a cast to float32": Case(behind(lambda _, x: x.float())),
    "padding of the vocabulary": Case(both(settings(unpadded_vocab_size=VOCAB - 1), behind(lambda _, x: x[..., :-1]))),
    "layers in front of the head": Case(another(hf.RobertaForCausalLM, is_decoder=True)),
    "a hook on the weight's gradient": Case(on_head(lambda module: module.weight.register_hook(torch.sign))),
    "hooks that do nothing": Case(on_head(offload)),
    "an adapter elsewhere": Case(lora()),
}
FALLS_BACK = {
    "a sequence": Case(head(nn.Sequential), "no weight of its own.*Sequential"),
    "a sequence, later": Case(head(nn.Sequential), "no weight of its own.*Sequential", later=True),
    "a layer norm in the head": Case(head(lambda old: nn.Sequential(nn.LayerNorm(16), old)), "Sequential"),
    "dropout in the head": Case(head(lambda old: nn.Sequential(nn.Dropout(0.5), old)), "Sequential"),
    "another forward of the class": Case(head(functools.partial(linear, kind=Doubled)), "not a plain.*Doubled"),
    "another forward of the instance": Case(on_head(new_forward), "forward was replaced"),
    "a parametrization": Case(
        on_head(lambda module: parametrize.register_parametrization(module, "weight", Half())), "parametrized"
    ),
    "weight norm": Case(on_head(parametrizations.weight_norm), "parametrized"),
    "weight norm of the old kind": Case(on_head(old_weight_norm), r"hook.*weight_norm\.WeightNorm"),
    "pruning": Case(on_head(lambda module: prune.random_unstructured(module, "weight", 0.5)), "hook.*Unstructured"),
    "an adapter on the head": Case(lora(target_modules=["lm_head"]), "adapter"),
    "an adapter on the head, later": Case(inject, "adapter", later=True),
    "an adapter on tied weights": Case(lora(target_modules=["lm_head", "embed_tokens"]), "adapter", of="gemma2"),
    "a trained copy of the head": Case(lora(modules_to_save=["lm_head"]), "adapter"),
    "dynamic quantisation": Case(head(quantise), "quantised"),
    "8-bit integers": Case(head(Int8), "quantised"),
    "8-bit integers, later": Case(head(Int8), "quantised", later=True),
    "a packed weight": Case(on_head(pack), "quantised.*Packed"),
    "a hook that scales": Case(hook("forward", lambda *a: 2 * a[2]), "hook.*test_heads"),
    "a hook without effect yet": Case(hook("forward", lambda *a: 1 * a[2]), "hook"),
    "a hook with arguments": Case(hook("forward", functools.partial(lambda x, *a: x * a[2], 2)), "hook"),
    "a hook on the input": Case(hook("forward_pre", lambda *a: 2 * a[1][0]), "hook"),
    "a hook on the gradient": Case(hook("full_backward", lambda *a: (2 * a[1][0],)), "hook"),
    "a scale that is trained": Case(trained_scale, "logit_scale.*learned", of="cohere"),
    "a hook that scales, later": Case(hook("forward", lambda *a: 2 * a[2]), "has a hook", later=True),
    "a hook on the input, later": Case(hook("forward_pre", lambda *a: 2 * a[1][0]), "has a hook", later=True),
    "another forward, later": Case(on_head(new_forward), "forward was replaced", later=True),
}
REFUSED = {
    "a soft-cap": Case(behind(lambda _, x: torch.tanh(x)), r"smaller \(a soft-cap, a clamp\)"),
    "a loose soft-cap": Case(behind(lambda _, x: 20 * torch.tanh(x / 20)), r"smaller \(a soft-cap, a clamp\)"),
    "a clamp": Case(behind(lambda _, x: x.clamp(-0.1, 0.1)), r"smaller \(a soft-cap, a clamp\)"),
    "a soft-cap that is not there": Case(settings(final_logit_softcapping=0.5), r"soft-cap 0\.5.*larger"),
    "a scale that is not there": Case(settings(logits_scaling=2.0), r"scale 0\.5.* 2 times as large"),
    "a divisor that multiplies": Case(another(hf.HyperCLOVAXForCausalLM, logits_scaling=2.0), " 4 times as large"),
    "a temperature": Case(behind(lambda _, x: x / 1.3), r"0\.7692 times as large .*a temperature"),
    "a temperature near 1": Case(behind(lambda _, x: x / 1.001), r"0\.999 times as large"),
    "a temperature in bfloat16": Case(both(bfloat16, behind(lambda _, x: x / 1.02)), r"0\.9[78]\d* times as large"),
    "a bias": Case(behind(lambda _, x: x + torch.linspace(-1, 1, VOCAB)), r"same vector everywhere \(a bias\)"),
    "a bias, and the same everywhere": Case(behind(lambda _, x: x + torch.linspace(-1, 1, VOCAB)), "a bias", of="bart"),
    "a mask": Case(mask(-torch.inf), "masked"),
    "a mask of finite numbers": Case(mask(-1e9), "masked"),
    "what is not a number": Case(mask(torch.nan), "masked"),
    "fewer entries": Case(behind(lambda _, x: x[..., :-1]), r"96\), not \(3, 1, 97\) \(a cut or padded vocabulary"),
    "more entries": Case(behind(lambda _, x: F.pad(x, (0, 3))), r"100\), not \(3, 1, 97\)"),
    "other positions": Case(behind(lambda _, x: x.flatten(0, 1)), r"of shape \(3, 97\)"),
    "dropout": Case(behind(lambda _, x: F.dropout(x, 0.1)), r"set to zero \(dropout"),
    "a layer": Case(behind(lambda _, x: F.layer_norm(x, [VOCAB], torch.linspace(-1, 1, VOCAB))), "something else"),
    "another order": Case(behind(lambda _, x: x.flip(-1)), "something else"),
    "a head that runs twice": Case(
        instead(lambda self, x: self.lm_head(x) + self.lm_head(x.flip(-1))), "a head run twice"
    ),
    "a head that never runs": Case(
        instead(lambda self, x: F.linear(x, self.lm_head.weight)), "did not call its output"
    ),
    "Liger": Case(liger, "Liger's fused loss"),
    "Liger inside an adapter": Case(both(lora(), liger), "Liger's fused loss"),
}


def step(model, inputs):
    model.zero_grad(set_to_none=True)
    torch.manual_seed(3)  # the same dropout
    loss = model(**inputs).loss
    loss.backward()
    return loss.detach(), gradients(model)


def same(got, want, tolerance=1e-6):
    torch.testing.assert_close(got[0], want[0], rtol=tolerance, atol=tolerance)
    assert got[1].keys() == want[1].keys()
    for name, grad in want[1].items():
        size = max(1.0, float(grad.abs().max()))
        torch.testing.assert_close(got[1][name], grad, rtol=10 * tolerance, atol=tolerance * size)


def agrees(model, inputs, got):
    """With the model's own loss; and so does a truncated loss with the same from logits."""
    same(got, step(model, inputs))
    found = []
    for level in ("hidden", "logits"):
        with errornorm.attach(model, errornorm.ent_fraction(0.3), level=level, label_smoothing=0.1) as handle:
            found.append(step(model, inputs))
            assert handle.terms.num_kept < handle.terms.num_tokens
    same(*found)


def planted(case):
    model = build(case.of)
    return (model if case.later else case.plant(model) or model).train(), batch(case.of)


def step_planted(case, model, inputs):
    if case.later:
        step(model, inputs)
        case.plant(model)
    return step(model.train(), inputs)


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "errornorm"]


@pytest.mark.parametrize("name", RECOGNISED)
def test_recognised(name, caplog):
    model, inputs = planted(RECOGNISED[name])
    with errornorm.attach(model, errornorm.mle()) as handle:
        got = step_planted(RECOGNISED[name], model, inputs)
        assert handle.fused
    agrees(model, inputs, got)
    assert not said(caplog)


@pytest.mark.parametrize("name", ["llama", "gemma2", "bart"])  # untied, tied, with a final bias
def test_another_vocabulary_later(name):
    model, inputs = build(name).train(), batch(name)
    with errornorm.attach(model, errornorm.mle()) as handle:
        step(model, inputs)
        model.resize_token_embeddings(VOCAB + 7, mean_resizing=False)
        got = step(model.train(), inputs)
        assert handle.fused
    agrees(model, inputs, got)


def test_bfloat16_is_recognised():
    model, inputs = planted(Case(bfloat16, of="gemma2"))
    with errornorm.attach(model, errornorm.mle()) as handle:
        got = step(model, inputs)
        assert handle.fused
    same(got, step(model, inputs), 2e-2)  # its own logits are rounded to 8 bits


@pytest.mark.filterwarnings("ignore:quantized..linear_dynamic:UserWarning")  # it has no backward
@pytest.mark.parametrize("name", FALLS_BACK)
def test_falls_back(name, caplog):
    case = FALLS_BACK[name]
    model, inputs = planted(case)
    with errornorm.attach(model, errornorm.mle()) as handle:
        got = step_planted(case, model, inputs)
        same(step(model, inputs), got)
        assert not handle.fused
    same(got, step(model, inputs))
    (line,) = said(caplog)
    assert re.search(f"{case.says}.*computed from the logits", line)
    with pytest.raises(ValueError, match=f"level='hidden' is not possible: .*{case.says}"):
        errornorm.attach(model, errornorm.mle(), level="hidden")


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    model, inputs = planted(REFUSED[name])
    with pytest.raises((ValueError, RuntimeError), match=REFUSED[name].says):
        step(errornorm.attach(model, errornorm.mle()).model, inputs)


@pytest.mark.parametrize(("target", "fused"), [("q_proj", True), ("lm_head", False)])
def test_an_adapter_around_an_attached_model(target, fused):
    model, inputs = build("llama").train(), batch("llama")
    with errornorm.attach(model, errornorm.mle()) as handle:
        adapted = lora(target_modules=[target])(model).train()
        got = step(adapted, inputs)
        assert handle.terms is not None
        assert handle.fused == fused
    same(got, step(adapted, inputs))


class Around(nn.Module):
    """As some wrappers do it: the hooks of the model inside are passed by."""

    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, **inputs):
        return self.inside.forward(**inputs)


@pytest.mark.parametrize("around", [Around, lora(modules_to_save=["lm_head"])])
def test_a_wrapper_that_passes_by_the_attached_model_is_refused(around):
    model, inputs = build("llama").train(), batch("llama")
    errornorm.attach(model, errornorm.mle())
    with pytest.raises(RuntimeError, match="wrapped after attach"):
        step(around(model).train(), inputs)


def check(model, inputs):
    """The self-check, of all positions."""
    view, seen = look_at(model), []
    with view.module.register_forward_hook(lambda _, args, out: seen.append((args[0], out.dtype, out.grad_fn))):
        logits = model(**inputs).logits
    ((hidden, dtype, node),) = seen
    view.check(hidden, logits, dtype, node)


def extra(model):
    """Learned, and without effect so far."""
    model.extra = nn.Parameter(torch.zeros(VOCAB, VOCAB))


LEARNED = {
    "a bias": both(extra, behind(lambda self, x: x + self.extra[0])),
    "a scale": both(extra, behind(lambda self, x: x.mul_(1 + self.extra[0, 0]))),
    "a layer": both(extra, behind(lambda self, x: x + x @ self.extra)),
    "a second pass": behind(lambda self, x: x + 0 * self.model(torch.ones(1, 1).long()).last_hidden_state.sum()),
}


@pytest.mark.parametrize("name", LEARNED)
def test_what_is_learned_behind_the_head_is_refused_before_it_shows(name):
    model, inputs = planted(Case(LEARNED[name]))
    with pytest.raises(ValueError, match="something learned follows"):
        check(model, inputs)


def autocast(model):
    """As trainers do it: inside of the model's forward, which gives float32 again."""
    forward = torch.autocast("cpu", dtype=torch.bfloat16)(type(model).forward)
    model.forward = types.MethodType(convert_outputs_to_fp32(forward), model)


@pytest.mark.parametrize("name", [*CAUSAL, *SEQ2SEQ])
def test_the_check_passes_with_autocast(name):
    model, inputs = planted(Case(autocast, of=name))
    check(model, inputs)
    with errornorm.attach(model, errornorm.mle()) as handle:
        step(model, inputs)
        assert handle.fused


def test_the_check_fails_with_autocast():
    model, inputs = planted(Case(both(behind(lambda _, x: x / 1.02), autocast)))
    with pytest.raises(ValueError, match=r"0\.9[78]\d* times as large"):
        check(model, inputs)


def test_a_model_that_fills_gaps_is_refused():
    with pytest.raises(ValueError, match="BertForMaskedLM predicts masked tokens"):
        errornorm.attach(hf.BertForMaskedLM(hf.BertConfig(**TINY)), errornorm.mle())


OFFSET = {  # takes labels that are shifted already
    "BartForCausalLM": (hf.BartConfig, {"vocab_size": VOCAB, "d_model": 16, "decoder_layers": 1,
                                        "decoder_attention_heads": 2, "decoder_ffn_dim": 32}),
    "XLNetLMHeadModel": (hf.XLNetConfig, {"vocab_size": VOCAB, "d_model": 16, "n_layer": 1, "n_head": 2}),
    "XLMWithLMHeadModel": (hf.XLMConfig, {"vocab_size": VOCAB, "emb_dim": 16, "n_layers": 1, "n_heads": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", OFFSET)
def test_a_model_that_does_not_shift_labels_is_refused(name):
    config, entries = OFFSET[name]
    model = getattr(hf, name)(config(**entries))
    with pytest.raises(ValueError, match=f"{name} takes labels that are shifted already, and they are shifted here"):
        errornorm.attach(model, errornorm.mle())


def t5gemma():
    """Its loss_type means that labels are not shifted, and its own rule makes decoder inputs."""
    part = TINY | {"head_dim": 8, "num_key_value_heads": 2, "attn_implementation": "eager"}
    config = hf.T5GemmaConfig(encoder=part, decoder=part, vocab_size=VOCAB, dropout_rate=0.0)
    return hf.T5GemmaForConditionalGeneration(config).train()


def test_an_encoder_decoder_that_says_masked_is_taken():
    model, inputs = t5gemma(), batch("t5")
    own = model(**inputs).loss
    errornorm.attach(model, errornorm.mle())
    torch.testing.assert_close(model(**inputs).loss, own)


def test_a_loss_function_shifts_labels_where_the_model_does():
    for model, inputs in ((t5gemma(), batch("t5")), (build("llama").train(), batch("llama"))):
        own = model(**inputs).loss
        model.loss_function = LossFunction(model, errornorm.mle())
        torch.testing.assert_close(model(**inputs).loss, own)
    with pytest.raises(ValueError, match="predicts masked tokens from labels in their places"):
        LossFunction(hf.BertForMaskedLM(hf.BertConfig(**TINY)), errornorm.mle())
