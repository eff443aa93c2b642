"""The public surface is a frozen list, and loading it loads torch and nothing else that is heavy."""

import subprocess
import sys

import pytest

import errornorm
from errornorm import KERNELS, METHODS

PUBLIC = [
    "KERNELS",
    "METHODS",
    "LossTerms",
    "Objective",
    "RobustLoss",
    "Scores",
    "TokenStats",
    "TrainConfig",
    "VocabShard",
    "attach",
    "corrupt",
    "delayed",
    "detect",
    "dft",
    "eaft",
    "ent_fraction",
    "ent_threshold",
    "evaluate",
    "focal",
    "generalized_ce",
    "generate",
    "loss_truncation",
    "mixce",
    "mle",
    "objective",
    "prune",
    "random_truncation",
    "report",
    "rho1",
    "score",
    "summarize",
    "tailr",
    "token_loss_truncation",
    "token_stats",
    "train",
    "weighted",
]


def test_the_public_names_are_these():
    assert errornorm.__all__ == PUBLIC
    assert sorted(set(dir(errornorm)) & set(PUBLIC)) == sorted(PUBLIC)
    for name in PUBLIC:
        assert getattr(errornorm, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'ent'"):
        errornorm.ent  # noqa: B018


def test_the_tables_are_literal():
    assert list(METHODS) == [
        "mle", "ent_fraction", "ent_threshold", "loss_truncation", "tailr", "random_truncation",
        "token_loss_truncation", "rho1", "dft", "mixce", "eaft", "focal", "generalized_ce", "weighted",
    ]  # fmt: skip
    assert list(KERNELS) == ["reference", "logits", "chunked", "triton", "vocab_parallel"]
    assert all(METHODS[name] is getattr(errornorm, name) for name in METHODS)


HEAVY = "transformers datasets matplotlib pandas scipy triton sklearn trl rich typer torch._dynamo torch._inductor"


def test_import_loads_torch_and_nothing_else_heavy():
    code = (
        "import sys, torch; before = set(sys.modules); import errornorm; errornorm.ent_fraction; errornorm.RobustLoss; "
        f"new = set(sys.modules) - before; print([m for m in {HEAVY.split()!r} if m in new], "
        "sorted({m.split('.')[0] for m in new}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy, _, roots = out.partition("] ")
    assert heavy == "["
    outside = {name.strip(" '[]\n") for name in roots.split(",")} - set(sys.stdlib_module_names)
    assert outside == {"errornorm"}


@pytest.mark.parametrize("module", ["loss", "methods", "kernels.chunked", "cutoffs"])
def test_a_module_may_be_imported_first(module):
    code = f"import errornorm.{module} as first; import errornorm; print(first.__name__, errornorm.RobustLoss.__name__)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == f"errornorm.{module} RobustLoss\n"
