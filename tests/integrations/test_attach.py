"""What people do to models and trainers: adapters, checkpointing, compilation, packing, experts."""

import copy
import logging

import pytest
import torch
import transformers as hf

import errornorm
from errornorm.integrations.attach import attached
from tests.architectures import VOCAB, batch, build, gradients, step


def assert_same(a, b, rtol=1e-5):
    torch.testing.assert_close(a[0], b[0], rtol=1e-6, atol=1e-6)
    assert a[1].keys() == b[1].keys()
    for name in a[1]:
        torch.testing.assert_close(a[1][name], b[1][name], rtol=rtol, atol=1e-6)


def test_the_handle():
    model, inputs = build("gpt2").train(), batch("gpt2")
    handle = errornorm.attach(model, errornorm.ent_fraction(0.25))
    assert attached(model) is handle
    assert handle.summary().endswith("no training batch yet")
    model(**inputs).loss.backward()
    assert handle.terms.num_tokens == 20  # three rows of eight, less what is ignored
    assert handle.terms.num_kept == 15
    assert "step 0, kept 15 of 20 tokens (75.0%), cutoff" in handle.summary()
    assert handle.summary().endswith("computed from hidden states")
    with pytest.raises(ValueError, match="already has an objective"):
        errornorm.attach(model, errornorm.mle())
    handle.detach()
    assert attached(model) is None
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    assert not model.get_output_embeddings()._forward_hooks
    assert not hasattr(model, "accepts_loss_kwargs")


def test_one_position_goes_through_the_head_and_the_loss_comes_first():
    model, inputs = build("gpt2").train(), batch("gpt2")
    with errornorm.attach(model, errornorm.mle()):
        out = model(**inputs)
        assert out.logits.shape == (3, 1, VOCAB)
        assert out[0] is out.loss
        loss, logits = model(**inputs, return_dict=False)[:2]
        assert torch.equal(loss, out.loss)
        assert logits.shape == (3, 1, VOCAB)


@pytest.mark.parametrize("name", ["bart", "marian", "t5", "gpt2", "llama"])
def test_training_keeps_no_cache_unless_asked(name):
    """BART and its kin leave it out where they see labels, which they do not."""
    model, inputs = build(name).train(), batch(name)
    with errornorm.attach(model, errornorm.mle()):
        assert model(**inputs).get("past_key_values") is None
        assert model(**inputs, use_cache=True).get("past_key_values") is not None


def test_the_count_of_a_whole_step_is_honoured():
    model, inputs = build("t5").train(), batch("t5")
    with errornorm.attach(model, errornorm.mle()) as handle:
        alone = model(**inputs).loss
        double = 2 * handle.terms.num_tokens
        for count in (double, torch.tensor(double)):
            assert model(**inputs, num_items_in_batch=count).loss.item() == pytest.approx(alone.item() / 2)


@pytest.mark.parametrize("name", ["gpt2", "t5", "mixtral"])
def test_the_count_of_a_whole_step_is_honoured_in_evaluation(name):
    """T5's own loss takes no notice of it, and on several ranks a trainer makes it as many times too large."""
    model, inputs = build(name).eval(), batch(name)
    none = inputs | {"labels": torch.full_like(inputs["labels"], -100)}
    own = model(**inputs).loss
    shift = 0 if name == "t5" else 1
    count = int((inputs["labels"][:, shift:] != -100).sum())
    with errornorm.attach(model, errornorm.ent_fraction(0.5)), torch.no_grad():
        assert torch.equal(model(**inputs, num_items_in_batch=count).loss, own)
        half = model(**inputs, num_items_in_batch=torch.tensor(2 * count))
        assert half.loss.item() == pytest.approx(own.item() / 2)
        assert half.logits.shape[1] == inputs["labels"].shape[1]
        pair = model(**inputs, num_items_in_batch=2 * count, return_dict=False)
        assert torch.equal(pair[0], half.loss)
        assert len(pair) == len(model(**inputs, return_dict=False))
        assert model(**none, num_items_in_batch=count).loss == 0


def test_kept_tokens_as_the_denominator():
    model, inputs = build("gpt2").train(), batch("gpt2")
    with errornorm.attach(model, errornorm.ent_fraction(0.25), normalize="kept") as handle:
        loss = model(**inputs).loss
        assert loss.item() == pytest.approx(handle.terms.total.item() / 15)


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_gradient_checkpointing(name):
    model, inputs = build(name).train(), batch(name)
    with errornorm.attach(model, errornorm.ent_fraction(0.2)) as handle:
        plain = step(model, inputs)
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        checked = step(model, inputs)
        assert handle.loss.batches_seen == 2  # not again in the second forward
    assert_same(plain, checked)


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_a_compiled_model(name):
    model, inputs = build(name).train(), batch(name)
    with errornorm.attach(model, errornorm.ent_fraction(0.2)) as handle:
        plain = step(model, inputs)
        compiled = torch.compile(model)
        loss = compiled(**inputs).loss
        model.zero_grad()
        loss.backward()
        assert_same(plain, (loss.detach(), gradients(model)), rtol=1e-4)
        assert handle.loss.batches_seen == 2


def test_lora_around_the_model():
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
    model, inputs = peft.get_peft_model(build("llama"), settings).train(), batch("llama")
    own = step(model, inputs)
    with errornorm.attach(model, errornorm.mle()) as handle:
        assert_same(own, step(model, inputs))
        assert handle.fused
        assert {name.split(".")[-3] for name in own[1]} == {"lora_A", "lora_B"}


@pytest.mark.parametrize("tied", [True, False])
def test_tied_and_untied_embeddings(tied):
    model, inputs = build("llama", tie_word_embeddings=tied).train(), batch("llama")
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
    own = step(model, inputs)
    with errornorm.attach(model, errornorm.mle()):
        assert_same(own, step(model, inputs))


def test_packed_sequences_are_units_of_their_own():
    model = build("llama").train()
    tokens = torch.randint(3, VOCAB, (1, 12), generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]])
    labels = tokens.masked_fill(positions == 0, -100)
    method = errornorm.ent_fraction(1 / 3, unit="sequence")
    with errornorm.attach(model, method) as handle:
        model(input_ids=tokens, position_ids=positions, labels=labels)
        one = handle.terms.dropped
        assert one.sum() == 3  # a whole one of three sequences
        ids = torch.tensor([[7, 7, 7, 7, 1, 1, 1, 1, 3, 3, 3, 3]])
        model(input_ids=tokens, position_ids=positions, labels=labels, sequence_ids=ids)
        assert torch.equal(handle.terms.dropped, one)
        for packed in ({"seq_idx": ids.int()}, {"cu_seq_lens_q": torch.tensor([0, 4, 8, 12], dtype=torch.int32)}):
            model(input_ids=tokens, labels=labels, **packed)  # each sees what is before it
            places = handle.terms.dropped.nonzero()[:, 1]
            assert (len(places), len(set((places // 4).tolist()))) == (3, 1)
    assert one.nonzero()[:, 1].diff().eq(1).all()


@pytest.mark.parametrize("positions", [torch.arange(9)[None], torch.tensor([[0, 1, 2, 0, 1, 2, 0, 1, 2]])])
def test_positions_for_all_rows_at_once(positions):
    model, inputs = build("llama").train(), batch("llama")
    with errornorm.attach(model, errornorm.ent_fraction(0.4, unit="sequence")) as handle:
        model(**inputs, position_ids=positions)
        once = handle.terms.dropped
        model(**inputs, position_ids=positions.repeat(3, 1))
        assert torch.equal(handle.terms.dropped, once)
        assert once.any()


@pytest.mark.parametrize("level", ["hidden", "logits"])
def test_a_model_that_is_all_frozen(level):
    model, inputs = build("gpt2").requires_grad_(False).train(), batch("gpt2")
    own = model(**inputs).loss
    with errornorm.attach(model, errornorm.mle(), level=level):
        torch.testing.assert_close(model(**inputs).loss, own)


def test_logits_without_labels_before_the_first_batch():
    """A loss of somebody's own comes first; a step that never has labels is told."""
    model, inputs = build("gpt2").train(), batch("gpt2")
    with errornorm.attach(model, errornorm.mle()):
        model(input_ids=inputs["input_ids"]).logits.square().mean().backward()
        with pytest.raises(RuntimeError, match="never ran"):
            model(input_ids=inputs["input_ids"])
        model(**inputs).loss.backward()
        model(input_ids=inputs["input_ids"])


def test_labels_stay_as_they_are():
    entries = {"src_vocab_size": VOCAB, "tgt_vocab_size": VOCAB, "langs": ["en", "de"], "d_model": 16, "dropout": 0.0,
               **{f"{side}_{name}": number for side in ("encoder", "decoder")
                  for name, number in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 32))}}  # fmt: skip
    model, inputs = hf.FSMTForConditionalGeneration(hf.FSMTConfig(**entries)).train(), batch("bart")
    labels = inputs["labels"].clone()
    with errornorm.attach(model, errornorm.mle()) as handle:
        model(**inputs)
        assert torch.equal(inputs["labels"], labels)
        assert handle.terms.num_tokens == (labels != -100).sum()


def test_experts_whose_weight_has_another_name():
    entries = {"vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 1, "num_key_value_heads": 1,
               "aux_loss_coef": 0.5, "kv_channels": 8, "intermediate_size": 32, "num_local_experts": 2,
               "num_experts_per_tok": 1, "max_position_embeddings": 32, "output_router_logits": True}  # fmt: skip
    model, inputs = hf.JetMoeForCausalLM(hf.JetMoeConfig(**entries)).train(), batch("llama")
    own = model(**inputs)
    assert own.aux_loss > 0
    with errornorm.attach(model, errornorm.mle()):
        torch.testing.assert_close(model(**inputs).loss, own.loss)


def test_experts_whose_loss_is_not_known_are_refused():
    entries = {"vocab_size": VOCAB, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2,
               "num_sparse_encoder_layers": 1, "num_decoder_layers": 2, "num_sparse_decoder_layers": 1,
               "num_heads": 2, "num_experts": 2, "decoder_start_token_id": 0, "pad_token_id": 0}  # fmt: skip
    model, inputs = hf.SwitchTransformersForConditionalGeneration(hf.SwitchTransformersConfig(**entries)), batch("t5")
    with errornorm.attach(model.train(), errornorm.mle()):
        model(**inputs)
        with pytest.raises(ValueError, match="loss of its routers is not known here: leave out output_router_logits"):
            model(**inputs, output_router_logits=True)


def test_a_tuple_that_begins_with_a_loss_is_refused():
    model, inputs = build("mixtral", router_aux_loss_coef=0.5).train(), batch("mixtral")
    with (
        errornorm.attach(model, errornorm.mle()),
        pytest.raises(ValueError, match="returns a loss of its own first: leave out return_dict=False"),
    ):
        model(**inputs, return_dict=False)


def test_experts_keep_their_auxiliary_loss():
    model, inputs = build("mixtral", router_aux_loss_coef=0.5).train(), batch("mixtral")
    out = model(**inputs)
    with errornorm.attach(model, errornorm.mle()) as handle:
        fused = model(**inputs)
        assert fused.loss.item() == pytest.approx(out.loss.item(), rel=1e-6)
        assert fused.loss.item() > handle.terms.mean.item() + 0.1
        # Two micro-batches of one step: the auxiliary loss is their mean, not their sum.
        half = model(**inputs, num_items_in_batch=2 * handle.terms.num_tokens)
        assert 2 * half.loss.item() == pytest.approx(fused.loss.item(), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models(dtype):
    model, inputs = build("llama").train().to(dtype), batch("llama")
    own = model(**inputs).loss
    with errornorm.attach(model, errornorm.mle()) as handle:
        out = model(**inputs).loss
        out.backward()
        assert handle.fused
    assert out.item() == pytest.approx(own.item(), rel=2e-2)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_autocast():
    model, inputs = build("llama").train(), batch("llama")
    with errornorm.attach(model, errornorm.ent_fraction(0.2)) as handle, torch.autocast("cpu", torch.bfloat16):
        loss = model(**inputs).loss
        assert loss.dtype == torch.float32
    loss.backward()
    assert handle.terms.num_kept < handle.terms.num_tokens


def test_a_model_that_lost_its_labels_is_noticed_after_the_first_step():
    model, inputs = build("gpt2").train(), batch("gpt2")
    errornorm.attach(model, errornorm.mle())
    labels = inputs.pop("labels")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    out = model(**inputs).logits
    torch.nn.functional.cross_entropy(out[:, :-1].flatten(0, 1), labels[:, 1:].flatten()).backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="never ran"):
        model(**inputs)


def test_labels_by_position_are_refused():
    model, inputs = build("t5").train(), batch("t5")
    errornorm.attach(model, errornorm.mle())
    import inspect

    names = list(inspect.signature(model.forward).parameters)
    args = [inputs.get(name) for name in names[: names.index("labels") + 1]]
    with pytest.raises(ValueError, match="pass labels by name"):
        model(*args)


def test_positions_that_do_not_fit_are_refused():
    model, inputs = build("gpt2").train(), batch("gpt2")
    with errornorm.attach(model, errornorm.mle()):
        with pytest.raises(ValueError, match="logits_to_keep"):
            model(**inputs, logits_to_keep=2)
        with pytest.raises(ValueError, match="labels of 4 positions do not fit the model's 9"):
            model(input_ids=inputs["input_ids"], labels=inputs["labels"][:, :4])


def test_decoder_inputs_that_cannot_be_made_are_refused():
    model, inputs = build("bart").train(), batch("bart")
    model.config.decoder_start_token_id = None
    with errornorm.attach(model, errornorm.mle()), pytest.raises(ValueError, match="has no decoder_start_token_id"):
        model(**inputs)


@pytest.mark.parametrize("wrong", [torch.nn.Linear(2, 2), "gpt2"])
def test_what_is_no_language_model_is_refused(wrong):
    with pytest.raises(ValueError, match="attach needs a"):
        errornorm.attach(wrong, errornorm.mle())


def test_a_base_model_has_no_head():
    with pytest.raises(ValueError, match="has no output embedding"):
        errornorm.attach(build("gpt2").transformer, errornorm.mle())


def test_wrong_options_are_refused():
    model = build("gpt2")
    with pytest.raises(ValueError, match="level='both'"):
        errornorm.attach(model, errornorm.mle(), level="both")
    with pytest.raises(ValueError, match="is not an objective"):
        errornorm.attach(model, errornorm.mle)
    assert attached(model) is None


def test_a_batch_that_is_not_finite_is_named():
    model, inputs = build("gpt2").train(), batch("gpt2")
    with errornorm.attach(model, errornorm.mle()):
        model(**inputs).loss.backward()
        model.transformer.wpe.register_forward_hook(lambda module, args, out: out * float("nan"))
        with pytest.raises(FloatingPointError, match=r"training batch 2, optimizer step 0: .* NaN"):
            model(**inputs)


def test_steps_are_noticed_with_every_optimizer():
    for fused, set_to_none in ((True, True), (True, False), (False, True), (False, False)):
        model, inputs = build("gpt2").train(), batch("gpt2")
        handle = errornorm.attach(model, errornorm.ent_fraction(0.2, start=2))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
        for number in range(4):
            for _ in range(2):
                model(**inputs).loss.backward()
                assert handle.loss.steps_taken == number
            assert (handle.terms.num_kept < handle.terms.num_tokens) == (number >= 2)
            optimizer.step()
            optimizer.zero_grad(set_to_none=set_to_none)


def test_a_deep_copy_is_independent(caplog):
    model, inputs = build("gpt2").train(), batch("gpt2")
    handle = errornorm.attach(model, errornorm.mle())
    twin = copy.deepcopy(model)
    twin(**inputs).loss.backward()
    assert handle.terms is None
    assert attached(twin).terms is not None
    with caplog.at_level(logging.WARNING):
        attached(twin).detach()
    model(**inputs)
    assert handle.terms is not None


def test_saving_a_model_is_untouched(tmp_path):
    model = build("gpt2")
    with errornorm.attach(model, errornorm.mle()):
        assert "errornorm" not in model.state_dict()
        model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_a_loop_in_evaluation_mode_is_noticed_after_the_first_step():
    model, inputs = build("gpt2").eval(), batch("gpt2")
    errornorm.attach(model, errornorm.ent_fraction(0.5))
    model(**inputs).loss.backward()
    with pytest.raises(RuntimeError, match=r"in training mode \(model\.train\(\)\)"):
        model(**inputs)


@pytest.mark.parametrize("fused", [True, False])
def test_steps_are_noticed_when_gradients_are_cleared_late(fused):
    model, inputs = build("gpt2").train(), batch("gpt2")
    handle = errornorm.attach(model, errornorm.mle())
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    for number in range(4):
        loss = model(**inputs).loss
        assert handle.loss.steps_taken == number
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_nobody_asks_so_a_batch_that_is_not_finite_raises_even_with_skip():
    model, inputs = build("gpt2").train(), batch("gpt2")
    errornorm.attach(model, errornorm.mle(), on_nan="skip")
    model.transformer.wpe.register_forward_hook(lambda module, args, out: out * float("nan"))
    with pytest.raises(FloatingPointError, match="training batch 1"):
        model(**inputs)


def test_an_error_in_forward_leaves_no_graph_behind():
    model, inputs = build("gpt2").train(), batch("gpt2")
    handle = errornorm.attach(model, errornorm.mle())
    hook = model.transformer.ln_f.register_forward_hook(lambda module, args, out: out * float("nan"))
    with pytest.raises(FloatingPointError):
        model(**inputs)
    assert handle._job is None
    hook.remove()
    model(**inputs).loss.backward()


def test_a_copy_detaches_cleanly():
    model = build("gpt2")
    errornorm.attach(model, errornorm.mle())
    twin = copy.deepcopy(model)
    attached(twin).detach()
    assert not hasattr(twin, "accepts_loss_kwargs")


def test_sources_of_tokens_are_shifted_with_them():
    model, tokens = build("gpt2").train(), torch.randint(3, VOCAB, (1, 6))
    with errornorm.attach(model, errornorm.mle()) as handle:
        model(input_ids=tokens, labels=tokens, source=torch.tensor([[0, 0, 0, 1, 1, 1]]))
        counts = {name: float(sums[0]) for name, sums in handle.telemetry._sums.items() if name}
    assert counts == {"source=0": 2, "source=1": 3}
