"""Every preset and many architectures can be made, trained and generated from; mistakes are told in a line."""

import json

import pytest
import torch

import errornorm
from errornorm.data.lines import DataError
from errornorm.evaluation import decode
from errornorm.evaluation.encode import encode, pairs
from errornorm.training import models, tokenizing
from errornorm.training.presets import PRESETS
from tests import tiny

TEXTS = [list(pair) for pair in tiny.PAIRS[:6]]
TASKS = {"seq2seq": "translation", "causal": "language-modeling"}
EVERY = [(preset, kind) for preset, kinds in PRESETS.items() for kind in kinds]
# Of the models as published, without embeddings of tokens and places.
PUBLISHED = {"gpt2-large": 774_030_080 - (50257 + 1024) * 1280}


def asked(name, model=None, **options):
    task = tiny.task_of(name)
    return tiny.config(task, model=model or {"config": {"model_type": name} | tiny.SHAPES[name]}, **options)


def built(name, seed=0, **options):
    config = asked(name, **options)
    return models.build(config, tiny.tokenizer(config.kind), seed)


def batch(name):
    if name in tiny.CAUSAL:
        tokens = torch.tensor([row[:8] for row in encode(tiny.tokenizer("causal"), [text for text, _ in TEXTS])])
        return {"input_ids": tokens, "labels": tokens}
    sources, targets = (encode(tiny.tokenizer(), [pair[i] for pair in TEXTS]) for i in (0, 1))
    return pairs(sources, targets, tiny.tokenizer().pad_token_id)


@pytest.mark.parametrize(("preset", "kind"), EVERY)
def test_every_preset(preset, kind):
    """On the meta device, where weights take no room; the small ones also generate."""
    config = tiny.config(TASKS[kind], model={"preset": preset}, max_length=256)
    with torch.device("meta"):
        model = models._scratch(config, tiny.tokenizer(kind))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    embeddings = model.get_input_embeddings().weight
    assert embeddings.shape[0] == len(tiny.tokenizer(kind))
    assert model.get_output_embeddings().weight is embeddings
    assert decode.positions(model) >= 256
    if preset in PUBLISHED:
        width = embeddings.shape[1]
        assert parameters == PUBLISHED[preset] + (embeddings.shape[0] + decode.positions(model)) * width
    if preset == "tiny":
        made = models.build(config, tiny.tokenizer(kind), 0)
        assert made.num_parameters() == parameters < 1_200_000
        assert len(decode.generate(made, tiny.tokenizer(kind), ["a dog"], beams=2, max_new_tokens=4)) == 1


def test_the_transformer_of_iwslt():
    """Six layers of 512 and 1024, four heads, dropout 0.3; one table for both languages and the output."""
    entries = PRESETS["transformer_iwslt_de_en"]["seq2seq"]
    config = tiny.config(model={"preset": "transformer_iwslt_de_en"})
    with torch.device("meta"):
        model = models._scratch(config, tiny.tokenizer())
    layer = 4 * (512 * 512 + 512) + (512 * 1024 + 1024) + (1024 * 512 + 512)
    norms = 2 * 2 * 512
    decoder = layer + 4 * (512 * 512 + 512) + norms + 2 * 512
    body = 6 * (layer + norms + decoder)
    places = 2 * decode.positions(model) * 512  # sinusoids, which are not learned
    assert sum(p.numel() for p in model.parameters()) == body + places + len(tiny.tokenizer()) * 512
    assert entries["dropout"] == 0.3


@pytest.mark.parametrize("name", tiny.SHAPES)
def test_from_scratch_to_text(name):
    """A step through an attached objective changes the weights and lowers the loss; then the model writes."""
    model = built(name, training={"label_smoothing": 0.1}).train()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    losses = []
    with errornorm.attach(model, errornorm.ent_fraction(0.1)):
        for _ in range(3):
            loss = model(**batch(name)).loss
            loss.backward()
            assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    found = decode.generate(model, tiny.tokenizer(asked(name).kind), ["a dog", "a cat runs"], max_new_tokens=5)
    assert len(found) == 2


@pytest.mark.parametrize("name", tiny.SHAPES)
def test_entries_that_follow_from_others(name):
    """From those given, not from the defaults: the decoder's layers, the heads of keys, their size."""
    about = built(name).config.to_dict()
    assert about["vocab_size"] == len(tiny.tokenizer(asked(name).kind))
    assert about.get("num_decoder_layers", 1) == 1
    assert about.get("num_key_value_heads", 2) == 2
    assert about.get("head_dim", 8) == 8


@pytest.mark.parametrize("name", tiny.SHAPES)
def test_special_tokens_are_the_tokenizer_s(name):
    model, tokenizer = built(name), tiny.tokenizer(asked(name).kind)
    for about in (model.config, model.generation_config):
        assert (about.eos_token_id, about.pad_token_id) == (tokenizer.eos_token_id, tokenizer.pad_token_id)
    if name not in tiny.CAUSAL:
        assert model.generation_config.decoder_start_token_id == tokenizer.pad_token_id
        assert getattr(model.generation_config, "forced_eos_token_id", None) is None


@pytest.mark.parametrize("name", ["marian", "gpt2"])
def test_equal_seeds_give_equal_weights(name):
    first, second, third = (built(name, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not all(torch.equal(first[key], third[key]) for key in first)


def test_positions_follow_the_lengths():
    assert decode.positions(built("gpt2", max_length=50)) == 50
    assert decode.positions(built("bart", max_length=4)) >= 16  # max_new_tokens
    assert decode.positions(built("bart", max_length=50)) >= 50
    given = {"config": {"model_type": "gpt2", "n_positions": 99} | tiny.SHAPES["gpt2"]}
    assert decode.positions(built("gpt2", model=given)) == 99
    with pytest.raises(ValueError, match=r"data\.max_length: 100, but the model has only 99 positions; lower it"):
        built("gpt2", model=given, max_length=100)


def test_other_names_of_entries():
    """GPT-2 calls the width n_embd; hidden_size is understood too."""
    given = {"config": {"model_type": "gpt2", "hidden_size": 24, "n_layer": 1, "num_attention_heads": 2}}
    model = built("gpt2", model=given)
    assert model.get_input_embeddings().weight.shape[1] == 24
    assert model.config.n_head == 2


def test_overrides():
    model = built("marian", model={"preset": "tiny", "overrides": {"d_model": 32, "dropout": 0.5}})
    assert model.config.dropout == 0.5
    assert model.get_input_embeddings().weight.shape[1] == 32


def test_a_bert_does_not_look_ahead():
    given = {"config": {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                        "intermediate_size": 32}}  # fmt: skip
    model = built("gpt2", model=given).eval()
    tokens = torch.tensor([[5, 6, 7, 8]])
    changed = torch.tensor([[5, 6, 7, 9]])
    assert torch.equal(model(tokens).logits[:, :3], model(changed).logits[:, :3])


WRONG = {
    "an unknown type": ("gpt2", {"config": {"model_type": "gtp2"}}, r"unknown model_type 'gtp2' .did you mean gpt2\?"),
    "no model of text": ("gpt2", {"config": {"model_type": "vit"}}, "a vit cannot do language-modeling"),
    "of several parts": ("gpt2", {"config": {"model_type": "gemma3"}}, "a gemma3 cannot do language-modeling"),
    "a number below zero": ("bart", {"config": {"model_type": "t5", "d_model": -5}}, "model.config: this t5 cannot be"),
    "a word": ("bart", {"overrides": {"dropout": "x"}}, "model.overrides: this .* cannot be built"),
    "too few rows": ("bart", {"config": {"model_type": "t5", "vocab_size": 10}}, "vocab_size is 10, but the tokenizer"),
    "causal": ("bart", {"config": {"model_type": "gpt2"}}, "a gpt2 cannot do translation"),
    "encoder-decoder": ("gpt2", {"config": {"model_type": "bart"}}, "a bart cannot do language-modeling"),
    "an unknown entry": (
        "marian", {"preset": "tiny", "overrides": {"dropuot": 0.1}},
        r"a marian configuration has no 'dropuot' .did you mean dropout\?",
    ),
    "an unknown entry of a type": (
        "gpt2", {"config": {"model_type": "gpt2", "n_layers": 1}},
        r"a gpt2 configuration has no 'n_layers' .did you mean n_layer\?",
    ),
    "a missing model": ("gpt2", {"pretrained": "/gone/away"}, "/gone/away: no model there"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_mistakes_are_told_in_a_line(wrong):
    name, model, message = WRONG[wrong]
    with pytest.raises((DataError, ValueError), match=message) as error:
        built(name, model=model)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("wrong", sorted(WRONG.keys() - {"a number below zero", "a word", "too few rows"}))
def test_what_needs_no_corpus_is_told_before_it_is_read(wrong):
    name, model, message = WRONG[wrong]
    with pytest.raises((DataError, ValueError), match=message):
        models.require(asked(name, model=model))


def test_frozen_parameters_do_not_learn():
    model = built("bart", training={"freeze": ["model.encoder.", "model.shared"]})
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == (not name.startswith(("model.encoder.", "model.shared")))
    with pytest.raises(ValueError, match=r"no parameter of BartForConditionalGeneration begins with 'encoder\.'"):
        built("bart", training={"freeze": ["model.encoder.", "encoder."]})
    with pytest.raises(ValueError, match="nothing is left to learn"):
        built("bart", training={"freeze": ["model."]})


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Models as someone else saved them."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("marian", "gpt2"):
        tiny.model(name).save_pretrained(folder / name)
        tiny.tokenizer(asked(name).kind).save_pretrained(folder / name)
    return folder


@pytest.mark.parametrize("name", ["marian", "gpt2"])
def test_a_pretrained_model(saved, name):
    place = str(saved / name)
    model = built(name, model={"pretrained": place})
    old = tiny.model(name).state_dict()
    assert all(torch.equal(value, old[key]) for key, value in model.state_dict().items())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    key = "dropout" if name == "marian" else "resid_pdrop"
    assert built(name, model={"pretrained": place, "overrides": {key: 0.7}}).config.to_dict()[key] == 0.7
    with pytest.raises(ValueError, match="has no 'dropuot'"):
        built(name, model={"pretrained": place, "overrides": {"dropuot": 0.7}})


@pytest.mark.parametrize("name", ["marian", "gpt2"])
def test_a_pretrained_model_learns_tags(saved, name):
    """The tables grow; old tokens keep their rows; and what was made is made again with the same seed."""
    tokenizer = tokenizing.load(str(saved / name), ["<2fr>", "<2de>"])
    config = asked(name, model={"pretrained": str(saved / name)})
    first, second = (models.build(config, tokenizer, 0) for _ in range(2))
    for model in (first, second):
        assert model.get_input_embeddings().weight.shape[0] == len(tokenizer) == len(tiny.tokenizer(config.kind)) + 2
        assert model.get_output_embeddings().weight.shape[0] == len(tokenizer)
    before = tiny.model(name).get_input_embeddings().weight
    assert torch.equal(first.get_input_embeddings().weight[: len(before)], before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    decode.generate(first, tokenizer, ["<2fr> a dog"], max_new_tokens=3)


def test_pretrained_models_that_do_not_fit(saved, tmp_path):
    with pytest.raises(ValueError, match="gpt2 is a gpt2, which is for language-modeling"):
        built("bart", model={"pretrained": str(saved / "gpt2")})
    with pytest.raises(ValueError, match="marian is a marian, which is for translation or summarization"):
        built("gpt2", model={"pretrained": str(saved / "marian")})
    with pytest.raises(DataError, match=r"the model cannot be loaded: .*; check model\.overrides$") as error:
        built("gpt2", model={"pretrained": str(saved / "gpt2"), "overrides": {"n_embd": 20}})
    assert "\n" not in str(error.value)
    tiny.model("gpt2").config.save_pretrained(tmp_path)
    with pytest.raises(DataError, match=r"the model cannot be loaded: .*; get the folder again$"):
        built("gpt2", model={"pretrained": str(tmp_path)})
    (tmp_path / "model.safetensors").write_bytes((saved / "gpt2" / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(DataError, match=r"the model cannot be loaded: .*; get the folder again$"):
        built("gpt2", model={"pretrained": str(tmp_path)})
    with pytest.raises(ValueError, match="the model has only 64 positions"):
        built("gpt2", model={"pretrained": str(saved / "gpt2")}, max_length=65)


@pytest.mark.parametrize("name", tiny.SHAPES)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_no_numbers(tmp_path, name, value):
    model = tiny.model(name)
    model.save_pretrained(tmp_path)
    models.load(str(tmp_path), asked(name).kind)
    key, parameter = list(model.named_parameters())[-1]
    parameter.data.view(-1)[-1] = value
    model.save_pretrained(tmp_path)
    with pytest.raises(FloatingPointError, match=rf"NaN or Inf in {key}; .*get the folder again"):
        models.load(str(tmp_path), asked(name).kind)


@pytest.mark.parametrize("about", [
    {"model_type": "marian", "encoder_layers": 10**9}, {"model_type": "qwen2", "num_hidden_layers": 10**9},
])  # fmt: skip
def test_models_that_would_never_be_built(tmp_path, about):
    (tmp_path / "config.json").write_text(json.dumps(about))
    with pytest.raises(DataError, match=r"layers in its config\.json is 1000000000, .*; get the folder again"):
        models.load(str(tmp_path), "seq2seq" if about["model_type"] == "marian" else "causal")


@pytest.mark.parametrize("name", tiny.SHAPES)
def test_tensors_that_are_missing(tmp_path, name):
    """The library would make new ones, and the numbers would be wrong. Tied ones are saved once."""
    model = tiny.model(name)
    tensors = model.state_dict()
    (*_, key) = (key for key, tensor in tensors.items() if tensor.dim() == 1)
    model.save_pretrained(tmp_path, state_dict={other: tensors[other] for other in tensors if other != key})
    with pytest.raises(DataError, match=rf"files have no {key}; get the folder again"):
        models.load(str(tmp_path), asked(name).kind)


@pytest.mark.parametrize(("own", "after"), [(None, 1), (7, 1), ([7, 1], [7, 1]), ([7, 8], 1), (1, 1)])
def test_generation_ends_with_the_token_that_training_ends_with(own, after):
    model = built("gpt2")
    model.generation_config.eos_token_id = own
    models._end_with(model, tiny.tokenizer("causal"))
    assert tiny.tokenizer("causal").eos_token_id == 1
    assert model.generation_config.eos_token_id == after
