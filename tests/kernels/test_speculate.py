"""Exact whatever the guess: every method, every kind of guess, one answer."""

import functools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from errornorm import METHODS, RobustLoss, ent_auto, ent_fraction, mle, objective
from errornorm.kernels import passes, speculate
from errornorm.kernels.rows import TorchRows
from errornorm.objectives import Objective
from errornorm.stats import TokenStats
from tests.problems import CASES, problem, terms_and_grads


def own(guess, stats, rows):
    return guess(stats, rows)


def partly(guess, stats, rows):
    """Right for two rows of three, upside down for the others."""
    return guess(stats, rows).map(lambda c: torch.where(rows % 3 == 0, 1 - 2 * c, c))


def absurd(guess, stats, rows):
    g = stats.map(torch.randn_like)
    g.nll[:1], g.nll[-1:] = torch.nan, torch.inf
    return g


def unscaled(guess, stats, rows):
    return guess(stats, rows).map(lambda c: -1000 * c)


def nothing(guess, stats, rows):
    return TokenStats(nll=torch.zeros_like(stats.nll))


GUESSES = [own, partly, absurd, unscaled, nothing]


@pytest.fixture
def guessing(monkeypatch):
    def with_(change):
        original = Objective.guess

        def changed(self, state, now):
            guess = original(self, state, now)
            return replace(guess, of=lambda stats, rows: change(guess.of, stats, rows))

        monkeypatch.setattr(Objective, "guess", changed)

    return with_


@functools.cache
def exact(case, dtype, smoothing):
    """Without a guess: the same for all of them."""
    terms, grads = terms_and_grads(case, problem().to(dtype), "hidden", "reference", label_smoothing=smoothing)
    return terms.total.detach(), grads


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("change", GUESSES)
@pytest.mark.parametrize("case", CASES)
def test_exact_whatever_the_guess(case, change, smoothing, guessing, small_chunks):
    p, (total, want), (_, plain) = (
        problem(),
        exact(case, torch.float64, smoothing),
        exact(case, torch.float32, smoothing),
    )
    guessing(change)
    got, grads = terms_and_grads(case, p.to(torch.float64), "hidden", "chunked", label_smoothing=smoothing)
    torch.testing.assert_close(got.total.detach(), total, rtol=1e-9, atol=0)
    for a, b in zip(grads, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    _, grads = terms_and_grads(case, p.to(torch.float32), "hidden", "chunked", label_smoothing=smoothing)
    for a, ref, b in zip(grads, plain, want, strict=True):
        allowed = (ref - b).abs().max() + 8 * torch.finfo(torch.float32).eps * b.abs().max()
        assert (a - b).abs().max() <= allowed


@pytest.mark.parametrize("change", GUESSES)
@pytest.mark.parametrize("use", [torch.neg, torch.sin, lambda t: t / 7 + t.square(), lambda t: t * 0])
def test_any_use_of_the_loss(use, change, guessing, small_chunks):
    guessing(change)
    grads = []
    for kernel in ("reference", "chunked"):
        p = problem().to(torch.float64)
        terms = RobustLoss(METHODS["tailr"](), 0.1, kernel=kernel)(hidden=p.hidden, weight=p.weight, targets=p.targets)
        grads.append(torch.autograd.grad(use(terms.total), (p.hidden, p.weight)))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("change", GUESSES)
def test_backward_twice_and_two_losses_multiplied(change, guessing, small_chunks):
    guessing(change)
    grads = []
    for kernel in ("reference", "chunked"):
        p = problem().to(torch.float64)
        loss = RobustLoss(ent_fraction(0.25), kernel=kernel)
        terms = loss(hidden=p.hidden, weight=p.weight, targets=p.targets)
        for _ in range(2):
            (terms.total / 3).backward(retain_graph=True)
        (terms.total * loss(hidden=p.hidden * 2, weight=p.weight, targets=p.targets).total).backward()
        grads.append((p.hidden.grad, p.weight.grad))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("change", GUESSES)
def test_tied_embedding(change, guessing, small_chunks):
    guessing(change)
    grads = []
    for kernel in ("reference", "chunked"):
        p = problem().to(torch.float64)
        ids = torch.randint(0, 301, (6, 11), generator=torch.Generator().manual_seed(0))
        loss = RobustLoss(ent_fraction(0.2), 0.1, kernel=kernel)
        loss(hidden=F.embedding(ids, p.weight).tanh(), weight=p.weight, targets=p.targets).mean.backward()
        grads.append(p.weight.grad)
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("frozen", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1)])
def test_frozen_parts(frozen, small_chunks):
    p = problem().to(torch.float64)
    _, want = terms_and_grads("ent_fraction", p, "hidden", "reference", label_smoothing=0.1)
    for i in frozen:
        p.leaves()[i].requires_grad_(False)
    loss = RobustLoss(objective("ent_fraction"), 0.1)
    loss(hidden=p.hidden, weight=p.weight, bias=p.bias, targets=p.targets).mean.backward()
    for i, leaf in enumerate(p.leaves()):
        if i in frozen:
            assert leaf.grad is None
        else:
            torch.testing.assert_close(leaf.grad, want[i], rtol=1e-9, atol=1e-12)


def test_without_gradient_nothing_is_guessed(guessing):
    def never(guess, stats, rows):
        raise AssertionError("not called")

    guessing(never)
    p = problem().to(torch.float32)
    loss = RobustLoss(mle())
    with torch.no_grad():
        assert not loss(hidden=p.hidden, weight=p.weight, targets=p.targets).total.requires_grad


def corrected_rows(monkeypatch, case, num=2048, smoothing=0.0):
    """How many rows backward had to compute again."""
    torch.manual_seed(0)
    monkeypatch.setattr(passes, "MIN_ROWS", num // 8)
    monkeypatch.setattr(TorchRows, "max_rows", num // 8)
    hidden = torch.randn(num // 32, 32, 16, requires_grad=True)
    weight = torch.randn(301, 16, requires_grad=True)
    # Sorted, as batches by length or difficulty are: a chunk of neighbours would be no fair sample.
    targets = torch.randint(0, 301, (num,)).sort().values.view(num // 32, 32)
    given = {"ref_nll": torch.zeros(targets.shape), "token_weight": torch.rand(targets.shape)}
    loss = RobustLoss(objective(case), smoothing)
    for _ in range(2):
        terms = loss(hidden=hidden, weight=weight, targets=targets, **given)
        loss.advance()
    seen, fold = [], passes.Pass.fold
    monkeypatch.setattr(passes.Pass, "fold", lambda s, rows, n: (seen.append(len(rows)), fold(s, rows, n))[1])
    terms.mean.backward()
    return sum(seen), num - terms.num_kept


ROW_LOCAL = ["mle", "ent_threshold", "tailr", "dft", "mixce", "eaft", "focal", "generalized_ce", "weighted"]
KNOWN = ["ent_fraction(scope='running')", "token_loss_truncation(scope='running')"]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("case", [*ROW_LOCAL, *KNOWN])
def test_row_local_methods_and_known_cutoffs_are_guessed_exactly(monkeypatch, case, smoothing):
    assert corrected_rows(monkeypatch, case, smoothing=smoothing)[0] == 0


@pytest.mark.parametrize("case", ["ent_fraction", "token_loss_truncation", "random_truncation", "rho1"])
def test_fractions_are_guessed_well(monkeypatch, case):
    rows, dropped = corrected_rows(monkeypatch, case)
    assert 200 < dropped < 900
    assert rows < 0.04 * 2048


@pytest.mark.parametrize("case", ["ent_fraction", "token_loss_truncation", "ent_fraction(scope='running')"])
def test_a_guess_from_the_last_chunks_is_as_good(monkeypatch, case):
    monkeypatch.setattr(speculate, "RECENT", 3)  # of eight
    assert corrected_rows(monkeypatch, case)[0] < 0.04 * 2048


@pytest.mark.parametrize("change", GUESSES)
def test_exact_with_a_guess_from_the_last_chunks(change, guessing, monkeypatch):
    monkeypatch.setattr(speculate, "RECENT", 2)
    monkeypatch.setattr(passes, "MIN_ROWS", 6)
    monkeypatch.setattr(TorchRows, "max_rows", 6)
    seen = []
    guessing(lambda guess, stats, rows: (seen.append(len(rows)), change(guess, stats, rows))[1])
    for case in ("ent_fraction", "ent_auto", "tailr"):
        total, want = exact(case, torch.float64, 0.0)
        terms, grads = terms_and_grads(case, problem().to(torch.float64), "hidden", "chunked")
        torch.testing.assert_close(terms.total.detach(), total)
        for got, true in zip(grads, want, strict=True):
            torch.testing.assert_close(got, true)
    steps = [seen[i : i + 8] for i in range(0, len(seen), 8)]
    assert all(max(step[:-1]) <= 12 < step[-1] for step in steps)  # only with the last chunk everything is looked at


def test_whole_sequences_cost_their_own_rows(monkeypatch):
    rows, dropped = corrected_rows(monkeypatch, "ent_fraction(0.1, unit='sequence')")
    assert rows == dropped == 6 * 32


@pytest.mark.parametrize("num", [1, 7, 100, 1001])
@pytest.mark.parametrize("size", [1, 3, 64, 5000])
@pytest.mark.parametrize("every", [2, 10, 40])
def test_every_row_comes_once_and_the_first_ones_first(num, size, every):
    first = torch.arange(0, num, every)
    order = speculate._strided(num, size, torch.device("cpu"), first)
    assert torch.cat(order).sort().values.tolist() == list(range(num))
    largest = -(-num // max(1, -(-num // size)))
    assert max(map(len, order)) <= max(largest, len(order[0])) <= size
    if len(order) > 1 and 2 * len(first) <= largest:
        assert set(first.tolist()) <= set(order[0].tolist())


def test_sequences_are_judged_by_their_openings_and_a_part_of_the_rest(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(passes, "MIN_ROWS", 256)
    monkeypatch.setattr(TorchRows, "max_rows", 256)
    weight, targets = torch.randn(301, 16), torch.randint(0, 301, (64, 32))
    hidden = torch.randn(64, 32, 16) + 0.5 * weight[targets]
    hidden[:20] = 3 * weight[targets[:20]]  # certain
    hidden[:20, 0] = 3 * weight[0]  # but for the opening
    hidden[20:, 0] = 3 * weight[targets[20:, 0]]
    hidden.requires_grad_()
    loss = RobustLoss(ent_auto())
    loss.state["found"] |= True
    for _ in range(3):
        terms = loss(hidden=hidden, weight=weight, targets=targets)
        loss.advance()
    seen, fold = [], passes.Pass.fold
    monkeypatch.setattr(passes.Pass, "fold", lambda s, rows, n: (seen.append(len(rows)), fold(s, rows, n))[1])
    terms.mean.backward()
    assert 20 * 32 <= 64 * 32 - terms.num_kept <= 22 * 32
    assert sum(seen) < 32


def test_the_guess_is_a_gradient():
    """Label smoothing: (1 - epsilon) w to the likelihood, epsilon w to lse - mean logit."""
    p = problem(ignored=0).to(torch.float64)
    seen = []
    loss = RobustLoss(mle(), 0.1)
    original = Objective.guess

    def watch(self, state, now):
        guess = original(self, state, now)
        return replace(guess, of=lambda stats, rows: seen.append(guess.of(stats, rows)) or seen[-1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Objective, "guess", watch)
        loss(hidden=p.hidden, weight=p.weight, targets=p.targets)
    one = torch.full((66,), 1 / 66, dtype=torch.float64)
    want = {"nll": 0.9 * one, "lse": 0.1 * one, "mean_logit": -0.1 * one}
    for name, column in seen[0].columns().items():
        torch.testing.assert_close(column, want[name])
    assert seen[0].columns().keys() == want.keys()


def test_gradient_keeps_its_digits_for_large_logits():
    """Logits of 1e4 in float32 are rounded; nothing else may be lost beside that."""
    p = problem(ignored=0)
    hidden = torch.cat([p.hidden.float(), torch.ones(6, 11, 1)], -1).requires_grad_()
    weight = torch.cat([p.weight.float(), torch.full((301, 1), 1e4)], 1).requires_grad_()

    def gradient(z):
        return ((z.double().softmax(-1) - F.one_hot(p.targets, 301)) @ weight.double()).detach()[..., :-1]

    RobustLoss(mle())(hidden=hidden, weight=weight, targets=p.targets).total.backward()
    true = gradient(hidden.double() @ weight.double().T)
    rounded = (gradient(hidden @ weight.T) - true).norm()
    assert (hidden.grad[..., :-1].double() - true).norm() <= 1.1 * rounded


def test_logits_that_are_large_cost_no_digits():
    p = problem(ignored=0)
    logits = (F.linear(p.hidden, p.weight) + 1e4).float().requires_grad_()
    RobustLoss(mle())(logits=logits, targets=p.targets).total.backward()
    want = logits.detach().double().softmax(-1) - F.one_hot(p.targets, 301)
    torch.testing.assert_close(logits.grad.double(), want, rtol=1e-5, atol=1e-9)


def test_a_guess_that_is_nearly_right_is_put_right():
    true = torch.ones(1, 100) + 1e-5 * (torch.arange(100) == 7)
    scale, rest = speculate._explain(true, torch.full((1, 100), 0.5))
    assert scale == 2
    assert rest.nonzero().tolist() == [[0, 7]]
    assert rest[0, 7] == pytest.approx(1e-5, rel=0.1)


def test_a_length_that_no_chunk_divides_and_a_vocabulary_of_two():
    for num, vocab in ((1, 2), (513, 2), (1025, 3)):
        torch.manual_seed(0)
        hidden, weight = torch.randn(num, 4, requires_grad=True), torch.randn(vocab, 4, requires_grad=True)
        targets = torch.randint(vocab, (num,))
        RobustLoss(mle())(hidden=hidden, weight=weight, targets=targets).total.backward()
        want = torch.autograd.grad(F.cross_entropy(hidden @ weight.T, targets, reduction="sum"), (hidden, weight))
        torch.testing.assert_close((hidden.grad, weight.grad), want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("factor", [1e2, 1e3, 1e4])
def test_a_wrongly_kept_row_of_large_hidden_states_leaves_no_rounding_behind(factor):
    torch.manual_seed(0)
    hidden, weight = torch.randn(40, 40, 32), torch.randn(500, 32) * 0.2
    targets = torch.randint(500, (40, 40))
    hidden[3] *= factor
    errors = []
    gold = None
    for kernel, dtype in (("reference", torch.float64), ("reference", torch.float32), ("chunked", torch.float32)):
        w = weight.to(dtype, copy=True).requires_grad_()
        terms = RobustLoss(objective("ent_fraction(0.05, unit='sequence')"), kernel=kernel)(
            hidden=hidden.to(dtype), weight=w, targets=targets
        )
        assert (terms.weights[3] == 0).all()
        terms.mean.backward()
        gold = w.grad if gold is None else gold
        errors.append((w.grad - gold).abs().max() / gold.abs().max())
    assert errors[2] <= errors[1] + 1e-6
