"""Real sentences and a real model, where they are at hand: scores are those of float64, however they are computed."""

import gzip
import os
from pathlib import Path

import numpy
import pytest

from errornorm.scoring.run import score
from errornorm.scoring.table import STATISTICS
from errornorm.training import models, tokenizing
from errornorm.training.config import Source
from tests import tiny
from tests.scoring.models import reference

DATA = Path(os.environ.get("ERRORNORM_DATA", "nowhere"))
PAIRS = [DATA / "tatoeba-en-fr" / f"test.{language}.gz" for language in ("en", "fr")]
STORIES = DATA / "stories260K" / "hf"
NUM = 200

pytestmark = [
    pytest.mark.skipif(
        not (PAIRS[0].exists() and STORIES.exists()),
        reason="the corpora are not part of the project: set ERRORNORM_DATA",
    ),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),  # about itself
]


def lines(path):
    return [line.strip() for line, _ in zip(gzip.open(path, "rt", encoding="utf-8"), range(NUM), strict=False)]


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    """A Marian with random weights and a vocabulary of these sentences."""
    folder = tmp_path_factory.mktemp("translator")
    tokenizer = tokenizing.train_bpe([text for path in PAIRS for text in lines(path)], 1000, "seq2seq")
    asked = tiny.config("translation", Source(path=PAIRS[0], pair=PAIRS[1]), max_length=128)
    models.build(asked, tokenizer, 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["causal", "seq2seq"])
def case(request, translator):
    """The model's folder, rows, and what float64 says about them."""
    import transformers

    english, french = (lines(path) for path in PAIRS)
    if request.param == "causal":
        folder, rows = STORIES, [{"text": text} for text in english]
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    else:
        folder = translator
        rows = [{"source": a, "target": b} for a, b in zip(english, french, strict=True)]
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    expected = [reference(model, tokenizer, r.get("source", ""), r.get("target") or r["text"]) for r in rows]
    return folder, rows, expected


# Margins are differences of logits, which are as large as 20: float32 has two digits less for them.
FLOAT32 = {"nll": 1e-5, "error_norm": 1e-5, "entropy": 1e-5, "p_target": 1e-5, "margin": 1e-4}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tokens": 1},
        {"tokens": 300},
        {"part": 37},
        {"dtype": "float64"},
        pytest.param({"engine": "ray", "workers": 1}, marks=pytest.mark.slow),
    ],
    ids=["default", "one by one", "small batches", "small parts", "float64", "ray"],
)
def test_scores_are_those_of_float64(case, options):
    if "engine" in options:
        pytest.importorskip("ray", reason="Ray is an extra: pip install errornorm[ray]")
    folder, rows, expected = case
    order = numpy.random.default_rng(0).permutation(NUM) if options else numpy.arange(NUM)
    table = score([rows[i] for i in order], folder, **options)
    assert table.num_rows == NUM
    for i, row in zip(order, table.to_pylist(), strict=True):
        for name in STATISTICS:
            off = 1e-6 if "dtype" in options else FLOAT32[name]
            numpy.testing.assert_allclose(row[name], expected[i][name].numpy(), rtol=off, atol=off, err_msg=name)
