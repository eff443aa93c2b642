import pytest
import torch

from errornorm.kernels import logits, rows, speculate

torch.set_num_threads(1)  # the problems are tiny


@pytest.fixture
def small_chunks(monkeypatch):
    """Several uneven chunks and blocks, as in a large batch."""
    monkeypatch.setattr(speculate, "MIN_ROWS", 16)
    monkeypatch.setattr(speculate, "MAX_ROWS", 16)
    monkeypatch.setattr(rows, "BLOCK", 301 * 5)
    monkeypatch.setattr(logits, "BLOCK", 301 * 7)
