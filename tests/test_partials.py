"""The monoid: any order of folding gives the same statistics."""

import pytest
import torch

from errornorm.kernels.rows import FLOOR, TorchRows
from errornorm.partials import Partial, finish, merge
from errornorm.stats import EVERY


def fold(z, targets, start=0):
    return TorchRows().fold_(z.clone(), targets, EVERY, start).partial


@pytest.mark.parametrize("spread", [1.0, 20.0, 1e4])
def test_merge_is_associative_and_commutative(spread):
    torch.manual_seed(0)
    z, y = torch.randn(11, 90, dtype=torch.float64) * spread, torch.randint(90, (11,))
    whole = finish(fold(z, y), 90).columns()
    a, b, c = (fold(z[:, i : i + 30], y, i) for i in (0, 30, 60))
    for order in (merge(merge(a, b), c), merge(a, merge(b, c)), merge(c, merge(b, a))):
        for name, column in finish(order, 90).columns().items():
            torch.testing.assert_close(column, whole[name], rtol=1e-9, atol=1e-12)


def test_a_slice_without_the_target_and_a_slice_of_nothing_but_masks():
    z = torch.randn(3, 8, dtype=torch.float64)
    y = torch.tensor([0, 1, 2])
    masked = torch.full((3, 4), -torch.inf, dtype=torch.float64)
    whole = finish(fold(torch.cat([z, masked], 1), y), 12, frozenset({"off_target", "entropy"})).columns()
    parts = finish(merge(fold(z, y), fold(masked, y, 8)), 12, frozenset({"off_target", "entropy"})).columns()
    for name in whole:
        torch.testing.assert_close(parts[name], whole[name])


def test_no_denormals_reach_the_products():
    z = torch.linspace(0, -300, 1000).repeat(2, 1)
    folded = TorchRows().fold_(z, torch.tensor([0, 1]), EVERY)
    assert (folded.z >= torch.tensor(FLOOR).exp()).all()
    assert (folded.z.square() > torch.finfo(z.dtype).tiny).all()
    assert isinstance(folded.partial, Partial)
