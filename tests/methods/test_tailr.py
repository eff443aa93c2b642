import pytest
import torch

from errornorm import RobustLoss, tailr
from tests.problems import weigh


def test_the_weight_is_a_probability_ratio_with_a_floor():
    terms = weigh("tailr(0.1, 0.0)", [0.01, 0.99], [0.5, 0.5], [0.99, 0.01])
    assert terms.weights.tolist() == pytest.approx([0.01 / 0.109, 0.5 / 0.55, 0.99 / 0.991])
    assert weigh("tailr(0.1, 0.3)", [0.01, 0.99], [0.5, 0.5]).weights.tolist() == pytest.approx([0.3, 0.5 / 0.55])


def test_gamma_zero_is_likelihood_and_one_is_the_probability():
    assert weigh("tailr(0.0)", [0.01, 0.99]).weights.tolist() == [1]
    assert weigh("tailr(1.0, 0.0)", [0.01, 0.99]).weights.tolist() == pytest.approx([0.01])


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_a_target_whose_probability_is_too_small_for_a_float(gamma):
    logits = torch.tensor([[0.0, 300.0, 0.0]], requires_grad=True)
    terms = RobustLoss(tailr(gamma, 0.1))(logits=logits, targets=torch.tensor([0]))
    terms.mean.backward()
    assert terms.mean.item() == pytest.approx(300 * (0.1 if gamma else 1.0))
    assert logits.grad.isfinite().all()


def test_the_smoothing_term_is_not_weighed():
    logits, targets = torch.tensor([[2.0, 0.0, 1.0]], requires_grad=True), torch.tensor([1])
    terms = RobustLoss(tailr(0.5, 0.0), label_smoothing=0.2)(logits=logits, targets=targets)
    log_p = logits.detach().log_softmax(-1)[0]
    weight = log_p[1].exp() / (0.5 + 0.5 * log_p[1].exp())
    assert terms.total.item() == pytest.approx((-0.8 * weight * log_p[1] - 0.2 * log_p.mean()).item(), rel=1e-6)
