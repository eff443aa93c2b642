import gc

import pytest
import torch

from errornorm.kernels import rows, speculate

torch.set_num_threads(1)  # the problems are tiny


@pytest.fixture(scope="module", autouse=True)
def _frozen():
    """Trainers collect garbage when they begin: they need not look through all of torch and of the tests each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def small_chunks(monkeypatch):
    """Several uneven chunks and blocks, as in a large batch."""
    monkeypatch.setattr(speculate, "MIN_ROWS", 16)
    monkeypatch.setattr(rows.TorchRows, "max_rows", 16)
    monkeypatch.setattr(rows, "BLOCK", 301 * 5)
    monkeypatch.setattr(rows.TorchRows, "block", 301 * 7)
