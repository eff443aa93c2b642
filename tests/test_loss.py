"""The shell: edge cases, errors, denominators, guards, packed batches."""

import logging
import math

import pytest
import torch
import torch.nn.functional as F

from errornorm import METHODS, RobustLoss, VocabShard, ent_fraction, ent_threshold, mle, objective, token_stats
from tests.problems import CASES, problem

HEADS = [("hidden", "chunked"), ("hidden", "reference"), ("logits", "logits"), ("logits", "reference")]


def run(loss, p, source, targets=None):
    targets = p.targets if targets is None else targets
    columns = {"ref_nll": p.ref_nll, "token_weight": p.token_weight}
    if source == "hidden":
        return loss(hidden=p.hidden, weight=p.weight, bias=p.bias, targets=targets, **columns)
    return loss(logits=F.linear(p.hidden, p.weight, p.bias), targets=targets, **columns)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("source", "kernel"), HEADS)
@pytest.mark.parametrize("case", CASES)
def test_a_batch_without_tokens_is_a_zero_attached_to_the_graph(case, source, kernel, smoothing):
    p = problem().to(torch.float32)
    loss = RobustLoss(objective(case), label_smoothing=smoothing, kernel=kernel)
    for targets in (torch.full((6, 11), -100), None):
        if targets is None:  # no positions at all
            p.hidden = p.hidden.detach()[:, :0].requires_grad_()
            p.targets, p.ref_nll, p.token_weight = p.targets[:, :0], p.ref_nll[:, :0], p.token_weight[:, :0]
        terms = run(loss, p, source, targets)
        assert terms.total == 0
        assert terms.mean == 0
        assert (terms.num_tokens, terms.num_kept) == (0, 0)
        terms.mean.backward()
        for leaf in p.leaves():
            assert leaf.grad is not None
            assert not leaf.grad.any()
            leaf.grad = None
        loss.advance()


@pytest.mark.parametrize("normalize", ["valid", "kept"])
@pytest.mark.parametrize(("source", "kernel"), HEADS)
@pytest.mark.parametrize(
    "case", ["ent_fraction(1.0)", "token_loss_truncation(1.0)", "rho1(0.0)", "ent_threshold(0.001)"]
)
def test_a_batch_that_is_dropped_whole(case, source, kernel, normalize):
    p = problem().to(torch.float32)
    p.hidden.data.mul_(0.1)
    terms = run(RobustLoss(objective(case), label_smoothing=0.1, kernel=kernel, normalize=normalize), p, source)
    assert terms.total == 0
    assert terms.mean == 0
    assert terms.num_kept == 0
    terms.mean.backward()
    assert not any(leaf.grad.any() for leaf in p.leaves())


@pytest.mark.parametrize(("source", "kernel"), HEADS)
@pytest.mark.parametrize("case", CASES)
def test_one_token(case, source, kernel):
    p = problem().to(torch.float32)
    targets = torch.full((6, 11), -100)
    targets[3, 4] = 17
    loss = RobustLoss(objective(case), kernel=kernel)
    terms = run(loss, p, source, targets)
    terms.mean.backward()
    assert terms.num_tokens == 1
    assert terms.mean.isfinite()
    assert p.hidden.grad.isfinite().all()
    assert not p.hidden.grad.flatten(0, 1)[torch.arange(66) != 3 * 11 + 4].any()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(("source", "kernel"), HEADS)
@pytest.mark.parametrize("case", CASES)
def test_nan_and_inf_are_named_and_never_reach_the_state(case, source, kernel, bad):
    p = problem(ignored=0).to(torch.float32)
    loss = RobustLoss(objective(case), kernel=kernel)
    run(loss, p, source)
    loss.advance()
    before = loss.get_extra_state()
    with torch.no_grad():
        p.hidden[2, 7, 3] = bad
        p.hidden[4, 0, 0] = bad
    with pytest.raises(FloatingPointError, match=r"2 of 66 tokens .* at positions \[2, 7\], \[4, 0\]$"):
        run(loss, p, source)
    after = loss.get_extra_state()
    assert all(torch.equal(before["state"][name], after["state"][name]) for name in before["state"])
    assert before["batches_seen"] == after["batches_seen"]
    loss.eval()
    with pytest.raises(FloatingPointError, match="2 of 66"):
        run(loss, p, source)


def test_inf_at_the_target_alone_and_an_impossible_target():
    logits = torch.zeros(4, 5)
    logits[1, 2] = math.inf
    with pytest.raises(FloatingPointError, match=r"1 of 4 tokens .* at positions \[1\]$"):
        token_stats(logits=logits, targets=torch.full((4,), 2))
    logits[1, 2] = -math.inf
    with pytest.raises(FloatingPointError, match="target whose logit is -inf"):
        token_stats(logits=logits, targets=torch.full((4,), 2))


def test_many_bad_tokens_are_counted_and_the_first_named():
    with pytest.raises(FloatingPointError, match=r"40 of 40 .* \[0\], \[1\], \[2\], \[3\], \[4\], \.\.\.$"):
        token_stats(logits=torch.full((40, 3), math.nan), targets=torch.zeros(40, dtype=torch.long))


@pytest.mark.parametrize("kernel", ["chunked", "reference"])
def test_what_a_soft_cap_or_a_mask_would_hide_is_found(kernel):
    def run(hidden=1.0, weight=1.0, bias=0.0, softcap=None):
        h, w, b = torch.ones(4, 3), torch.ones(7, 3), torch.zeros(7)
        h[1, 0], w[5, 0], b[6] = hidden, weight, bias
        loss = RobustLoss(mle(), kernel=kernel)
        return loss(hidden=h.requires_grad_(), weight=w, bias=b, targets=torch.arange(4), softcap=softcap)

    with pytest.raises(FloatingPointError, match=r"1 of 4 tokens .* \[1\]$"):
        run(hidden=math.inf, softcap=30.0)
    with pytest.raises(FloatingPointError, match="1 rows of the head's weight have NaN or Inf, the first is 5"):
        run(weight=math.inf, softcap=30.0)
    with pytest.raises(FloatingPointError, match="the first is 5"):
        run(weight=-math.inf)
    with pytest.raises(FloatingPointError, match="the head's bias has NaN or \\+Inf"):
        run(bias=math.inf, softcap=30.0)
    with pytest.raises(ValueError, match="masks nothing behind a soft-cap"):
        run(bias=-math.inf, softcap=30.0)
    assert run(bias=-math.inf).mean.item() == pytest.approx(math.log(6))


def test_smoothing_over_a_masked_vocabulary_is_refused():
    logits = torch.randn(2, 3, 5)
    logits[..., 4] = -math.inf
    targets = torch.zeros(2, 3, dtype=torch.long)
    assert RobustLoss(mle())(logits=logits.requires_grad_(), targets=targets).mean.isfinite()
    with pytest.raises(FloatingPointError, match="label smoothing"):
        RobustLoss(mle(), label_smoothing=0.1)(logits=logits, targets=targets)


def test_columns_are_checked():
    p = problem().to(torch.float32)
    with pytest.raises(ValueError, match="needs ref_nll with every training batch"):
        RobustLoss(METHODS["rho1"]())(hidden=p.hidden, weight=p.weight, targets=p.targets)
    p.ref_nll[0, 0] = math.nan
    p.targets[0, 0] = 1
    with pytest.raises(FloatingPointError, match=r"ref_nll has 1 NaN or Inf numbers, at positions \[0, 0\]"):
        run(RobustLoss(METHODS["rho1"]()), p, "hidden")
    p.ref_nll[0, 0] = 0
    p.token_weight[0, 0] = -1
    with pytest.raises(ValueError, match="negative"):
        run(RobustLoss(METHODS["weighted"]()), p, "hidden")
    with pytest.raises(ValueError, match="give it by its own name"):
        RobustLoss(mle())(hidden=p.hidden, weight=p.weight, targets=p.targets, columns={"ref_nll": p.ref_nll})
    with pytest.raises(ValueError, match="sequence_ids must be whole numbers"):
        RobustLoss(mle())(hidden=p.hidden, weight=p.weight, targets=p.targets, sequence_ids=p.ref_nll)
    with pytest.raises(ValueError, match=r"token_weight of shape \(6,\) must have the targets' \(6, 11\)"):
        RobustLoss(mle())(hidden=p.hidden, weight=p.weight, targets=p.targets, token_weight=torch.ones(6))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give either logits="),
        ({"logits": torch.randn(2, 5), "hidden": torch.randn(2, 3)}, "give either logits="),
        ({"hidden": torch.randn(2, 3)}, "needs weight="),
        ({"hidden": torch.randn(2, 3), "weight": torch.ones(5, 3, dtype=torch.long)}, "in floating point"),
        ({"hidden": torch.randn(2, 3), "weight": torch.randn(5, 3), "scale": 0.0}, "other than 0"),
        ({"hidden": torch.randn(2, 3), "weight": torch.randn(5, 3), "scale": torch.ones(())}, "other than 0"),
        ({"hidden": torch.randn(2, 3), "weight": torch.randn(5, 3), "shard": VocabShard(3, 6)}, "do not fit into"),
        ({"logits": torch.tensor(1.0)}, "do not fit"),
        ({"logits": torch.randn(2, 5), "targets": [0, 1]}, "targets must be a tensor, not a list"),
        ({"hidden": torch.randn(2, 3), "weight": torch.randn(5, 4)}, "does not fit hidden states of size 3"),
        ({"hidden": torch.randn(2, 3), "weight": torch.randn(5, 3), "bias": torch.randn(4)}, r"must be \(5,\)"),
        ({"hidden": torch.randn(2, 3), "weight": torch.randn(5, 3), "softcap": 0.0}, "above 0"),
        ({"logits": torch.randn(2, 5), "softcap": 1.0}, "logits are taken as they are"),
        ({"logits": torch.randn(3, 5)}, r"targets of shape \(2,\) do not fit \(3, 5\): they must be \(3,\)"),
        ({"logits": torch.ones(2, 5, dtype=torch.long)}, "must be floating point"),
        ({"logits": torch.randn(2, 1)}, "1 targets are outside of the vocabulary of 1, the first is 1 at"),
        ({"logits": torch.randn(2, 5), "targets": torch.tensor([0.0, 1.0])}, "must be whole numbers"),
        ({"logits": torch.randn(2, 5), "targets": torch.tensor([-1, 1])}, "ignored positions must be -100"),
        ({"logits": torch.randn(2, 5), "kernel": "fast"}, "unknown kernel 'fast'; there are auto, reference"),
        ({"hidden": torch.randn(2, 3), "weight": torch.randn(5, 3), "kernel": "logits"}, "takes logits, not hidden"),
    ],
)
def test_wrong_input_is_one_clear_sentence(given, message):
    with pytest.raises(ValueError, match=message) as error:
        token_stats(**({"targets": torch.tensor([0, 1])} | given))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "ent_fraction"}, "'ent_fraction' is not an objective"),
        ({"objective": METHODS["mle"]}, "^mle is not an objective"),
        ({"objective": torch.nn.Sequential(torch.nn.Linear(2, 2))}, "^Sequential is not an objective"),
        ({"label_smoothing": 1.5}, "label_smoothing=1.5 is a share"),
        ({"normalize": "mean"}, "normalize='mean' is not one of valid, kept"),
        ({"kernel": "fast"}, "kernel='fast' is not one of auto, reference"),
        ({"statistics": ("loudness",)}, "unknown statistics"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message) as error:
        RobustLoss(**({"objective": mle()} | options))
    assert "\n" not in str(error.value)


def test_denominators():
    p = problem(ignored=0).to(torch.float32)
    valid = run(RobustLoss(ent_fraction(0.5)), p, "hidden")
    kept = run(RobustLoss(ent_fraction(0.5), normalize="kept"), p, "hidden")
    assert (valid.num_tokens, valid.num_kept) == (66, 33)
    torch.testing.assert_close(valid.mean * 66, valid.total)
    torch.testing.assert_close(kept.mean * 33, kept.total)
    assert torch.equal(valid.total, kept.total)


def test_totals_add_up_over_micro_batches():
    p = problem().to(torch.float64)
    whole = run(RobustLoss(ent_threshold(1.05)), p, "hidden")
    (want,) = torch.autograd.grad(whole.total / whole.num_tokens, p.weight)
    loss, got, tokens = RobustLoss(ent_threshold(1.05)), torch.zeros_like(want), 0
    for rows in ([0], [1, 2, 3], [4, 5]):
        part = loss(hidden=p.hidden[rows], weight=p.weight, bias=p.bias, targets=p.targets[rows])
        got += torch.autograd.grad(part.total / whole.num_tokens, p.weight)[0]
        tokens += part.num_tokens
    assert tokens == whole.num_tokens
    torch.testing.assert_close(got, want)


def test_start_counts_optimizer_steps_not_batches():
    p = problem(ignored=0).to(torch.float32)
    loss = RobustLoss(ent_fraction(0.5, start=2))
    dropped = []
    for _ in range(4):
        for _ in range(2):
            terms = run(loss, p, "hidden")
            dropped.append(terms.num_tokens - terms.num_kept)
        loss.advance()
    assert dropped == [0, 0, 0, 0, 33, 33, 33, 33]


def test_a_forgotten_advance_is_noticed(caplog):
    loss = RobustLoss(mle())
    logits, targets = torch.zeros(1, 2, requires_grad=True), torch.tensor([0])
    with caplog.at_level(logging.WARNING, "errornorm"):
        for _ in range(1001):
            loss(logits=logits, targets=targets)
    assert caplog.text.count("call advance()") == 1


def test_a_checkpoint_of_another_objective_is_refused():
    state = RobustLoss(ent_fraction(0.1)).state_dict()
    with pytest.raises(ValueError, match=r"of ent_fraction\(fraction=0.1, .* not of mle\(start=0\)"):
        RobustLoss(mle()).load_state_dict(state)


def test_the_kernel_is_chosen_visibly_and_said_once(caplog):
    from errornorm import kernels

    kernels._say.cache_clear()
    with caplog.at_level(logging.INFO, "errornorm"):
        for _ in range(3):
            token_stats(logits=torch.randn(2, 5), targets=torch.tensor([0, 1]))
    assert [r.message for r in caplog.records] == ["kernel=logits for logits on cpu (chosen automatically)"]


def test_keep_first():
    p = problem(ignored=0).to(torch.float32)
    terms = run(RobustLoss(ent_fraction(1.0, keep_first=3)), p, "hidden")
    assert (terms.weights[:, :3] == 1).all()
    assert (terms.weights[:, 3:] == 0).all()


def test_max_dropped_keeps_the_least_suspicious():
    p = problem(ignored=0.3).to(torch.float32)
    free = run(RobustLoss(ent_fraction(0.6)), p, "hidden")
    capped = run(RobustLoss(ent_fraction(0.6, max_dropped=0.4)), p, "hidden")
    for row in range(6):
        valid = p.targets[row] != -100
        norm = capped.stats.error_norm[row]
        allowed = int(0.4 * valid.sum())
        before = {i for i in valid.nonzero().flatten().tolist() if free.weights[row, i] == 0}
        after = {i for i in valid.nonzero().flatten().tolist() if capped.weights[row, i] == 0}
        assert after == set(sorted(before, key=lambda i: -norm[i])[:allowed])


def test_packed_sequences():
    p = problem(ignored=0).to(torch.float32)
    ids = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]).expand(6, 11)
    packed = RobustLoss(ent_fraction(1.0, keep_first=1))(
        hidden=p.hidden, weight=p.weight, targets=p.targets, sequence_ids=ids
    )
    first = torch.zeros(6, 11, dtype=torch.bool)
    first[:, [0, 3, 7]] = True
    assert torch.equal(packed.weights == 1, first)
    flat = RobustLoss(ent_fraction(0.5, unit="sequence"))(
        hidden=p.hidden.flatten(0, 1),
        weight=p.weight,
        targets=p.targets.flatten(),
        sequence_ids=(ids + 3 * torch.arange(6).unsqueeze(1)).flatten(),
    )
    rows = RobustLoss(ent_fraction(0.5, unit="sequence"))(
        hidden=p.hidden, weight=p.weight, targets=p.targets, sequence_ids=ids
    )
    assert torch.equal(flat.weights.view(6, 11), rows.weights)
    assert int((rows.weights == 0).sum()) > 0


@pytest.mark.parametrize("case", ["loss_truncation", "ent_fraction(unit='sequence')", "ent_fraction(keep_first=1)"])
def test_a_flat_batch_does_not_say_what_a_sequence_is(case):
    p = problem().to(torch.float32)
    with pytest.raises(ValueError, match=r"targets of shape \(batch, time\), or sequence_ids"):
        RobustLoss(objective(case))(hidden=p.hidden.flatten(0, 1), weight=p.weight, targets=p.targets.flatten())


def test_overwriting_the_logits_changes_nothing_but_the_logits():
    p = problem().to(torch.float32)
    grads, after = [], []
    for overwrite in (False, True):
        z = F.linear(p.hidden, p.weight)
        kept = z.detach().clone()
        terms = RobustLoss(ent_fraction(0.3), overwrite_logits=overwrite)(logits=z, targets=p.targets)
        terms.mean.backward()
        grads.append((p.hidden.grad, p.weight.grad))
        p.hidden.grad = p.weight.grad = None
        after.append(torch.equal(z, kept))
    assert after == [True, False]
    for a, b in zip(*grads, strict=True):
        assert torch.equal(a, b)
    leaf = torch.randn(3, 5, requires_grad=True)  # a parameter of the caller's: never overwritten
    before = leaf.detach().clone()
    RobustLoss(mle(), overwrite_logits=True)(logits=leaf, targets=torch.tensor([0, 1, 2])).mean.backward()
    assert torch.equal(leaf, before)
    assert not torch.equal(leaf.grad, leaf)


def test_rows_that_share_their_memory_are_not_overwritten():
    leaf, targets = torch.randn(1, 30, requires_grad=True), torch.tensor([1, 2, 3, 4, 5])
    grads = []
    for overwrite in (False, True):
        z = (leaf * 1.0).expand(5, 30)
        loss = RobustLoss(mle(), overwrite_logits=overwrite)
        grads.append(torch.autograd.grad(loss(logits=z, targets=targets).mean, leaf)[0])
    assert torch.equal(*grads)


def test_a_column_of_any_number_type():
    logits, targets = torch.randn(3, 5, requires_grad=True), torch.tensor([0, 1, 2])
    for weight in ([True, False, True], [1, 0, 1], torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)):
        terms = RobustLoss(METHODS["weighted"]())(logits=logits, targets=targets, token_weight=torch.as_tensor(weight))
        assert terms.weights.dtype == terms.total.dtype == torch.float32
        assert terms.weights.tolist() == [1, 0, 1]


def test_overwritten_logits_that_somebody_still_needs_are_noticed():
    w = torch.randn(5, 5, requires_grad=True)
    z = torch.tanh(torch.randn(3, 5) @ w)  # tanh keeps its output for backward
    terms = RobustLoss(mle(), overwrite_logits=True)(logits=z, targets=torch.tensor([0, 1, 2]))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        terms.mean.backward()


def test_statistics_on_request():
    p = problem().to(torch.float32)
    assert run(RobustLoss(mle()), p, "hidden").stats.error_norm.shape == (6, 11)
    terms = run(RobustLoss(mle(), statistics=("entropy", "smooth")), p, "hidden")
    assert terms.stats.entropy.shape == (6, 11)
    with pytest.raises(AttributeError, match="not computed"):
        terms.stats.error_norm  # noqa: B018


def test_repr_says_what_it_is():
    assert repr(RobustLoss(ent_threshold(1.2), 0.1)) == (
        "RobustLoss(ent_threshold(threshold=1.2, start=0, keep_first=0, max_dropped=1.0), "
        "label_smoothing=0.1, normalize='valid')"
    )


@pytest.mark.parametrize("fraction", [0.29, 0.57, 0.58])
def test_a_share_is_what_is_written(fraction):
    """0.29 * 100 is a little less than 29 in floating point."""
    logits, targets = torch.randn(1, 100, 7), torch.randint(7, (1, 100))
    for chosen in (ent_fraction(fraction), ent_fraction(1.0, max_dropped=fraction)):
        terms = RobustLoss(chosen)(logits=logits.clone(), targets=targets)
        assert terms.num_tokens - terms.num_kept == round(100 * fraction)


@pytest.mark.parametrize(
    "spec", ["ent_fraction(0.1, start='auto')", "ent_auto()", "ent_fraction(0.1, scope='running')"]
)
def test_the_running_state_is_on_the_cpu_whatever_the_default_device_is(spec):
    """Nothing can be computed on the meta device."""
    loss = RobustLoss(objective(spec))
    with torch.device("meta"):
        loss.load_state_dict(RobustLoss(objective(spec)).state_dict())
        loss(logits=torch.randn(2, 3, 7, device="cpu"), targets=torch.zeros(2, 3, dtype=torch.long, device="cpu"))
        loss.advance()
    assert {value.device.type for value in loss.state.values()} == {"cpu"}


@pytest.mark.parametrize("lost", ["objective", "state", "counts"])
def test_a_state_that_is_not_whole_is_refused(lost):
    spec = "ent_fraction(0.1, scope='running')"
    state, loss = RobustLoss(objective(spec)).get_extra_state(), RobustLoss(objective(spec))
    (state if lost in state else state["state"]).pop(lost)
    with pytest.raises(ValueError, match=lost):
        loss.set_extra_state(state)
