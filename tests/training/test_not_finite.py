"""NaN and Inf in activations, gradients, weights, moments and columns: named in their step, and never saved."""

import json
import re
import shutil
from functools import partial
from itertools import product

import pytest
import torch
from safetensors.torch import load_file

from errornorm.training import checkpoints
from tests.training.faults import not_finite
from tests.training.runs import Train, write

STEP = 3
ENCODER, DECODER = "model.encoder.layers.0", "model.decoder.layers.0"
MODULES = [
    "model.encoder.embed_tokens", "model.decoder.embed_tokens", ENCODER, f"{ENCODER}.self_attn", f"{ENCODER}.fc2",
    DECODER, f"{DECODER}.encoder_attn", f"{DECODER}.final_layer_norm",
]  # fmt: skip
WEIGHTS = [
    "model.shared.weight", f"{ENCODER}.self_attn.v_proj.weight", f"{ENCODER}.fc1.bias",
    f"{DECODER}.encoder_attn.out_proj.bias", f"{DECODER}.final_layer_norm.weight",
]  # fmt: skip
CLIPPED = "training.clip=1.0"
FREE = "training.clip=0"
CASES = [
    *(("activation", name, value, CLIPPED) for name, value in product(MODULES, ("nan", "inf"))),
    *(("gradient", name, value, clip) for name, value, clip in product(WEIGHTS[:4], ("nan", "inf"), (CLIPPED, FREE))),
    *(("weight", name, value, CLIPPED) for name, value in product(WEIGHTS, ("nan", "inf"))),
    ("moment", f"exp_avg of {WEIGHTS[1]}", "nan", CLIPPED),
    ("moment", f"exp_avg_sq of {WEIGHTS[1]}", "inf", CLIPPED),
    ("column", "token_weight", "nan", CLIPPED),
    ("column", "token_weight", "inf", CLIPPED),
]
RATES = ["1.0e+20", "1.0e+25", "1.0e+30", "1.0e+38"]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """With weights of tokens, for the cases that need them."""
    config = write(tmp_path_factory.mktemp("numbers"), records=60)
    path = config.parent / "train.jsonl"
    rows = [json.loads(line) | {"weights": [[0, 1, 0.5]]} for line in path.read_text("utf-8").splitlines()]
    (config.parent / "weighted.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return config


def objective(config, kind):
    """Settings."""
    if kind != "column":
        return []
    return ["objective=weighted", f"data.train={{path: {config.parent / 'weighted.jsonl'}, weights_field: weights}}"]


def named(kind, name, value, clip):
    """What the message says of a place."""
    if kind == "activation":
        return r"tokens have NaN or Inf in their logits.*at positions \[0, \d+\]"
    if kind == "gradient" and (value, clip) != ("inf", CLIPPED):  # the norm is NaN, and all are multiplied with it
        return "NaN or Inf in all .* gradients"
    return re.escape(name.removeprefix("exp_avg of "))  # such a weight is NaN, too


def saved(folder):
    """The steps of all checkpoints, in which every number is finite."""
    found = sorted(folder.glob("checkpoints/step-*"))
    for path in found:
        assert checkpoints.verify(path) is None
        assert all(value.isfinite().all() for value in load_file(path / "model.safetensors").values())
        moments = torch.load(path / "optimizer.pt", weights_only=True)["state"]
        assert all(value.isfinite().all() for own in moments.values() for value in own.values())
    return [checkpoints.step_of(path) for path in found]


def refused(config, output, case):
    """A run with NaN or Inf in its third step: it ends there, says what it is, and keeps what was before."""
    kind, name, value, clip = case
    run = Train(config, f"output={output}", "checkpoints.every=1", clip, *objective(config, kind),
                fault=partial(not_finite, kind, name, value, STEP))  # fmt: skip
    assert run.code() == 4, run.err
    line = run.err.splitlines()[-1]
    assert re.search(named(*case), line), line
    after = re.search(r"; after step (\d+);", line)
    assert int(after[1]) in (STEP - 1, STEP), line  # before the step was taken, or before it was saved
    assert saved(output) == [STEP - 2, STEP - 1]
    assert not (output / "evaluation.json").exists()


@pytest.mark.parametrize("case", [CASES[35], CASES[43]], ids=lambda case: case[0])
def test_one_place(config, tmp_path, case):
    refused(config, tmp_path / "run", case)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fifty_places(config, tmp_path, tally):
    assert len(CASES) + len(RATES) == 50
    with tally("numbers", "numbers", "NaN or Inf in activations, gradients, weights, an optimizer's moments and the "
               "weights of tokens, and rates that make some; a case fails unless `errornorm train` ends in that "
               "step, says what it is in, and has no such number in a checkpoint") as suite:  # fmt: skip
        for case in CASES:
            with suite.case(" ".join(case)):
                refused(config, tmp_path / "run", case)
            shutil.rmtree(tmp_path / "run", ignore_errors=True)
        for rate in RATES:
            with suite.case(rate):
                blown(config, tmp_path / "run", rate)
            shutil.rmtree(tmp_path / "run", ignore_errors=True)


def blown(config, output, rate):
    """A rate at which weights grow beyond all numbers: when they do is its own affair."""
    run = Train(config, f"output={output}", f"training.learning_rate={rate}", "training.warmup=0",
                "checkpoints.every=1", FREE)  # fmt: skip
    assert run.code() == 4, run.err
    line = run.err.splitlines()[-1]
    assert re.match(r"errornorm: .*NaN or Inf in .*; after step \d+; lower training.learning_rate", line), line
    last = int(re.search(r"; after step (\d+);", line)[1])
    assert max(saved(output), default=0) in (last - 1, last)
    assert not (output / "evaluation.json").exists()


def test_a_rate_that_is_too_high(config, tmp_path):
    blown(config, tmp_path / "run", "1.0e+38")
