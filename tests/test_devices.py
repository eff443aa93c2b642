"""A device without float64, as Apple's GPUs are: tensors that say they are on one, and refuse it as one does."""

from contextlib import nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from errornorm import RobustLoss, head, objective
from errornorm.integrations.telemetry import Telemetry
from errornorm.integrations.watch import Watch

THERE = torch.device("meta")  # of the devices that torch knows everywhere, one that nothing here uses
OBJECTIVES = (
    "ent_fraction(0.2, max_dropped=0.5)", "ent_fraction(0.2, scope='running')", "ent_fraction(0.2, start='auto')",
    "ent_auto()", "loss_truncation(0.1, 10, 1)", "random_truncation(0.1, unit='sequence')", "eaft()",
)  # fmt: skip


class Elsewhere(torch.Tensor):
    """A tensor on the CPU that says it is on the device."""

    @staticmethod
    def __new__(cls, here):
        return torch.Tensor._make_wrapper_subclass(
            cls, here.shape, strides=here.stride(), storage_offset=here.storage_offset(), dtype=here.dtype, device=THERE
        )

    def __init__(self, here):
        self.here = here

    def __repr__(self):
        return f"Elsewhere({self.here})"

    def new_tensor(self, data, dtype=None):
        return Elsewhere(torch.tensor(data, dtype=dtype or self.dtype))

    def tolist(self):
        return self.here.tolist()

    @classmethod
    def __torch_dispatch__(cls, call, types, args=(), rest=None):
        return answer(call, args, rest or {})


class Device(TorchDispatchMode):
    """Inside, what is made on the device is there."""

    def __torch_dispatch__(self, call, types, args=(), rest=None):
        return answer(call, args, rest or {})


def answer(call, args, rest):
    place, found = rest.get("device"), []
    tree_map(lambda x: found.append(isinstance(x, Elsewhere)), (args, rest))
    there = any(found) if place is None else torch.device(place) == THERE
    if place is not None:
        rest = {**rest, "device": torch.device("cpu")}
    out = call(*here(args), **here(rest))
    if call.__name__.split(".")[0].endswith("_") and isinstance(args[0], Elsewhere):
        return args[0]
    return tree_map(sent, out) if there else out


def here(tree):
    return tree_map(lambda x: x.here if isinstance(x, Elsewhere) else x, tree)


def sent(x):
    if not isinstance(x, torch.Tensor):
        return x
    if x.dtype == torch.float64:
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64.")
    return Elsewhere(x)


@pytest.fixture
def there(monkeypatch):
    monkeypatch.setattr(head, "WITHOUT_FLOAT64", {THERE.type})
    monkeypatch.setattr(torch, "autocast", lambda *args, **rest: nullcontext())
    with Device():
        yield THERE


def test_it_has_no_float64(there):
    x = torch.ones(2, 2, device=there)
    assert (x + 1).device == there
    assert x.cpu().double().tolist() == [[1, 1], [1, 1]]
    with pytest.raises(TypeError, match="float64"):
        x.double()


@pytest.mark.parametrize("text", OBJECTIVES)
def test_objectives_do_without_float64(there, text):
    torch.manual_seed(0)
    loss, telemetry, watch = RobustLoss(objective(text), statistics=("error_norm", "entropy")), Telemetry(), Watch()
    for _ in range(3):
        logits = torch.randn(2, 5, 11, device=there).requires_grad_()
        terms = loss(logits=logits, targets=torch.randint(11, (2, 5), device=there))
        terms.mean.backward()
        assert logits.grad.device == there
        loss.advance()
        telemetry.add(terms)
        watch.stepped([torch.nn.Parameter(torch.ones(3, device=there))])
    assert telemetry.flush()["errornorm/tokens"] == 30
