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
    "ent_auto",
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
    public = [name for name in METHODS if name in PUBLIC]
    assert public == [
        "mle", "ent_fraction", "ent_threshold", "ent_auto", "loss_truncation", "tailr", "random_truncation",
        "token_loss_truncation", "rho1", "dft", "mixce", "eaft", "focal", "generalized_ce", "weighted",
    ]  # fmt: skip
    assert list(KERNELS) == ["reference", "logits", "chunked", "triton", "vocab_parallel"]
    assert all(METHODS[name] is getattr(errornorm, name) for name in public)


HEAVY = "transformers datasets matplotlib pandas scipy triton sklearn trl rich typer torch._dynamo torch._inductor"


# Torch takes seconds: it is imported once, and each piece of code runs in a fork of that process.
FORKS = """
import os, sys, torch
for code in sys.argv[1:]:
    if os.fork() == 0:
        exec(code)
        sys.stdout.flush()
        os._exit(0)
    if os.wait()[1]:
        sys.exit(code)
"""
LOADED = (
    "before = set(sys.modules); import errornorm; errornorm.ent_fraction; errornorm.RobustLoss; "
    f"new = set(sys.modules) - before; print([m for m in {HEAVY.split()!r} if m in new], "
    "sorted({m.split('.')[0] for m in new}))"
)
FIRST = "import errornorm.{0} as first; import errornorm; print(first.__name__, errornorm.RobustLoss.__name__)"
MODULES = ["loss", "methods", "kernels.chunked", "cutoffs"]


@pytest.fixture(scope="module")
def printed():
    command = [sys.executable, "-c", FORKS, LOADED, *map(FIRST.format, MODULES)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_import_loads_torch_and_nothing_else_heavy(printed):
    heavy, _, roots = printed[0].partition("] ")
    assert heavy == "["
    outside = {name.strip(" '[]") for name in roots.split(",")} - set(sys.stdlib_module_names)
    assert outside == {"errornorm"}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_may_be_imported_first(printed, module):
    assert printed[1 + MODULES.index(module)] == f"errornorm.{module} RobustLoss"
