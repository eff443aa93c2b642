"""The attached loss is the model's own loss, to the last digit that matters, in many architectures."""

import pytest
import torch

import errornorm
from tests.architectures import CAUSAL, SEQ2SEQ, batch, build, step


def same(got, want, scale=1e-6):
    assert got.keys() == want.keys()
    for name in want:
        torch.testing.assert_close(
            got[name], want[name], rtol=1e-5, atol=scale * max(1.0, float(want[name].abs().max()))
        )


@pytest.mark.parametrize("name", [*CAUSAL, *SEQ2SEQ])
def test_likelihood_equals_the_models_own(name):
    model, inputs = build(name).train(), batch(name)
    loss, grads = step(model, inputs)
    with errornorm.attach(model, errornorm.mle(), level="hidden") as handle:
        fused, fused_grads = step(model, inputs)
        assert handle.fused
        assert handle.terms is not None
        assert handle.terms.num_tokens == handle.terms.num_kept > 0
    torch.testing.assert_close(fused, loss, rtol=1e-6, atol=1e-6)
    same(fused_grads, grads)
    again, _ = step(model, inputs)
    assert torch.equal(again, loss)  # detached: as it was


@pytest.mark.parametrize("name", [*CAUSAL, *SEQ2SEQ])
def test_truncation_equals_the_unfused_path(name):
    model, inputs = build(name).train(), batch(name)
    found = []
    for level in ("hidden", "logits"):
        with errornorm.attach(model, errornorm.ent_fraction(0.3), level=level, label_smoothing=0.1) as handle:
            found.append((*step(model, inputs), handle.terms.dropped))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-6, atol=1e-6)
    same(found[0][1], found[1][1])
    assert torch.equal(found[0][2], found[1][2])
    assert found[0][2].any()


@pytest.mark.parametrize("name", [*CAUSAL, *SEQ2SEQ])
def test_evaluation_and_generation_are_untouched(name):
    model, inputs = build(name).eval(), batch(name)
    prompt = inputs["input_ids"][:, :5]

    def look():
        with torch.no_grad():
            out = model(**inputs)
            return out.loss, out.logits, model.generate(prompt, max_new_tokens=4, do_sample=False)

    before = look()
    with errornorm.attach(model, errornorm.ent_fraction(0.3)) as handle:
        after = look()
        assert handle.terms is None
        model.train()
        with torch.no_grad():
            assert torch.equal(model(**inputs).loss, before[0])  # no gradient: evaluation too
        assert handle.terms is None
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a, b)
