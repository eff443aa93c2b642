"""Weights of tokens, from spans in a corpus to the loss of a step."""

import json

import numpy
import pytest
import torch
import torch.nn.functional as F

from errornorm.data.lines import DataError, Problem, Where
from errornorm.data.records import Record
from errornorm.training import models, prepare, tokenizing
from errornorm.training.batches import NOTHING, Plan
from errornorm.training.config import Source, Tokenizer
from errornorm.training.configfile import load
from errornorm.training.rundir import read_rows
from errornorm.training.weights import of_tokens, spans_of
from tests import tiny
from tests.configurations import MINIMAL, read, refused
from tests.tiny import PAIRS, write_jsonl
from tests.training.runs import Train, results, steps, write
from tests.training.test_prepare import prepared, quarantined

FIELD = "token_weights"
BAD = {
    "null": (None, "is not a list of [start, end, weight]"),
    "a text": ("[[0, 1, 0]]", "is not a list"),
    "an object": ({"start": 0}, "is not a list"),
    "flat": ([0, 1, 0], "has 0, not [start, end, weight]"),
    "two numbers": ([[0, 1]], "has [0, 1], not [start, end, weight]"),
    "a text inside": ([["0", 1, 0]], "not [start, end, weight]"),
    "true": ([[0, True, 0]], "not [start, end, weight]"),
    "infinite": ([[0, 1, float("inf")]], "not [start, end, weight]"),
    "too large": ([[0, 1, 1e39]], "not [start, end, weight]"),
    "a huge number": ([[0, 10**400, 1]], "not [start, end, weight]"),
    "between characters": ([[0.5, 1, 0]], "has [0.5, 1, 0] (of 8 characters)"),
    "the wrong way": ([[2, 1, 0]], "has [2, 1, 0] (of 8 characters)"),
    "before": ([[-1, 1, 0]], "has [-1, 1, 0] (of 8 characters)"),
    "beyond": ([[0, 9, 0]], "has [0, 9, 0] (of 8 characters)"),
    "negative": ([[0, 1, -0.5]], "has a negative weight in [0, 1, -0.5]"),
    "overlapping": ([[4, 6, 0], [0, 5, 1]], "has spans that overlap"),
}


@pytest.mark.parametrize("kind", BAD)
def test_spans_that_cannot_be_used(kind):
    given, reason = BAD[kind]
    found = spans_of(Record(Where("a", 3), {"target": "un chien", FIELD: given}), FIELD, "un chien")
    assert isinstance(found, Problem)
    assert found.where.line == 3
    assert reason in found.reason


def test_spans_that_can_be_used():
    for given in ([], [[0, 8, 0]], [[3, 5, 0.5], [0, 3, 2]], [[8, 8, 0]], [[0.0, 2.0, 1]]):
        found = spans_of(Record(Where("a", 1), {FIELD: given}), FIELD, "un chien")
        assert found == sorted(tuple(span) for span in given)


@pytest.mark.parametrize("kind", ["seq2seq", "causal"])
def test_a_token_has_the_mean_of_its_characters(kind):
    tokenizer = tokenizing.train_bpe([text for pair in PAIRS for text in pair], 600, kind)  # words are tokens
    text = "un petit chien dort QQ"
    (row,) = tokenizer([text])["input_ids"]
    places = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    words = {text[start:end].strip(): i for i, (start, end) in enumerate(places) if end > start}
    assert {"chien", "dort", "un"} <= words.keys()
    (found,) = of_tokens(tokenizer, [text], [[(9, 14, 0.0), (15, 17, 0.5), (18, 19, 0.0)]], [row], target=False)
    assert found[words["chien"]] == 0
    assert found[words["dort"]] == 0.5  # two halves, a whole and nothing
    others = [i for word, i in words.items() if word not in ("chien", "dort")]
    assert {float(found[i]) for i in others} == {1.0}
    assert found.dtype == numpy.float32
    assert of_tokens(tokenizer, [text], [[]], [row], target=False)[0].tolist() == [1.0] * len(row)


def test_characters_of_several_bytes():
    """All of the tokens of a character have its weight."""
    tokenizer = tiny.tokenizer()
    text = "a 日本 🙂b"
    row = tokenizer(text)["input_ids"]
    places = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    (found,) = of_tokens(tokenizer, [text], [[(3, 4, 0.0), (5, 6, 0.0)]], [row], target=True)
    letters = [text[start:end].strip() for start, end in places]
    assert [float(w) for w in found] == [0.0 if letter in ("本", "🙂") else 1.0 for letter in letters]
    assert letters.count("🙂") > 1


SETTINGS = {
    "no field": (
        "objective: weighted\n",
        "4:1: objective: needs a weight of each token, and a corpus does not have it; give data.train.0.weights_field",
    ),
    "another objective": (
        "objective: mle\ndata: {train: {path: x, weights_field: w}}\n",
        "4:23: data.train.weights_field: mle does not use weights; set objective: weighted, or remove it",
    ),
    "the default": (
        "data: {train: {path: x, weights_field: w}}\n",
        "3:23: data.train.weights_field: ent_auto() does not use weights; set objective: weighted, or remove it",
    ),
    "one of two": (
        "objective: weighted\ndata: {train: [{path: x, weights_field: w}, {path: y}]}\n",
        "3:1: objective: needs a weight of each token, and a corpus does not have it; give data.train.1.weights_field",
    ),
    "in evaluation": (
        "objective: weighted\ndata: {train: {path: x, weights_field: w}, test: {path: y, weights_field: w}}\n",
        "4:60: data.test.weights_field: evaluation has no weights; remove it",
    ),
    "rho1": ("objective: rho1(0.1)\n", "4:12: objective: needs ref_nll with each batch, which a corpus does not have"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_settings_that_do_not_fit(tmp_path, case):
    text, want = SETTINGS[case]
    text = (MINIMAL if "data:" not in text else "task: translation\noutput: o\n") + text
    (line,) = refused(tmp_path, text)
    assert line.split(": ", 1)[1] == want.split(": ", 1)[1]


def test_settings_that_fit(tmp_path):
    text = "task: translation\noutput: o\nobjective: weighted(start=3)\ndata: {train: {path: x, weights_field: w}}\n"
    config = read(tmp_path, text)
    assert config.weighted
    assert not read(tmp_path, MINIMAL).weighted


def rows(spans=lambda i, text: []):
    return [{"source": a, "target": b, FIELD: spans(i, b)} for i, (a, b) in enumerate(PAIRS)]


def first_word(i, text):
    return [[0, text.index(" "), 0]]


def source(path, content, **options):
    return Source(path=write_jsonl(path, content), weights_field=FIELD, **options)


def test_bad_spans_are_quarantined_and_nothing_is_lost(tmp_path):
    bad = [{"source": "a", "target": "un chien", FIELD: spans} for spans, _ in BAD.values() if spans != [[0, 1, 1e39]]]
    bad = [row for row in bad if "inf" not in str(row)]
    given = [*rows(first_word), *bad, {"source": "a", "target": "b"}, {"source": "a", FIELD: []}]
    found, _ = prepared(tmp_path, source(tmp_path / "a.jsonl", given), objective="weighted")
    (count,) = found.counts
    assert (count.records, count.used, count.quarantined) == (len(given), len(PAIRS), len(given) - len(PAIRS))
    told = list(quarantined(tmp_path / "data" / "train-0.quarantine.jsonl").values())
    assert told[-2:] == [f"no field '{FIELD}'", "no field 'target'"]
    assert sum(FIELD in reason for reason in told) == len(told) - 1
    assert not list((tmp_path / "data").glob(".*"))


def test_a_field_inside(tmp_path):
    given = [{"source": a, "target": b, "meta": {"w": [[0, 2, 0]]}} for a, b in PAIRS]
    where = Source(path=write_jsonl(tmp_path / "a.jsonl", given), weights_field="meta.w")
    found, _ = prepared(tmp_path, where, objective="weighted")
    assert float(found.dataset.weights[0][0]) == 0
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(DataError, match=r"no record can be used .no field 'w'."):
        prepared(tmp_path / "2", Source(path=tmp_path / "a.txt", weights_field="w"), "language-modeling",
                 objective="weighted")  # fmt: skip


def test_weights_lie_beside_the_tokens(tmp_path):
    found, _ = prepared(tmp_path, source(tmp_path / "a.jsonl", rows(first_word)), objective="weighted")
    data = found.dataset
    assert data.weights.lengths.tolist() == data.target.lengths.tolist()
    assert data.weights.tokens.dtype == numpy.float32
    for i in range(len(data)):
        kept = [int(token) for token, weight in zip(data.target[i], data.weights[i], strict=True) if weight]
        assert found.tokenizer.decode(kept, skip_special_tokens=True).strip() == PAIRS[i][1].split(" ", 1)[1]
        assert data.weights[i][-1] == 1  # the end
    batch = data.collate([data[0], data[7], data[1]])
    assert batch["token_weight"].shape == batch["labels"].shape
    assert batch["token_weight"].dtype == torch.float32
    for row, i in zip(batch["token_weight"], (0, 7, 1), strict=True):
        own = data.weights[i].tolist()
        assert row.tolist() == own + [0.0] * (len(row) - len(own))
    nothing = data.collate([data[NOTHING]])
    assert nothing["token_weight"].tolist() == [[0.0]]


def test_weights_are_packed_with_the_text(tmp_path):
    given = [{"text": b, FIELD: first_word(0, b)} for _, b in PAIRS]
    found, _ = prepared(tmp_path, source(tmp_path / "a.jsonl", given), "language-modeling", max_length=7,
                        objective="weighted")  # fmt: skip
    data = found.dataset
    kept = data.text.tokens[data.weights.tokens > 0]
    want = "".join(f" {b.split(' ', 1)[1]}</s>" for _, b in PAIRS)
    assert found.tokenizer.decode(kept.tolist()) == want
    flat = numpy.concatenate([data[i]["token_weight"] for i in range(len(data))])
    assert flat.tolist() == data.weights.tokens[: 7 * len(data)].tolist()
    batch = data.collate([data[0], data[1]])
    assert (batch["token_weight"].dtype, batch["input_ids"].dtype) == (torch.float32, torch.int64)
    assert batch["token_weight"].shape == batch["labels"].shape == (2, 7)
    assert set(data.collate([data[NOTHING]])["labels"].unique().tolist()) == {-100}


@pytest.mark.parametrize("task", ["translation", "language-modeling"])
def test_targets_end_even_if_the_tokenizer_adds_no_end(tmp_path, task):
    tiny.tokenizer("causal").save_pretrained(tmp_path / "bare")
    given = [row | {"text": row["target"]} for row in rows(first_word)]
    found, _ = prepared(tmp_path, source(tmp_path / "a.jsonl", given), task, objective="weighted",
                        tokenizer=Tokenizer(pretrained=str(tmp_path / "bare")))  # fmt: skip
    side = found.dataset.text if task == "language-modeling" else found.dataset.target
    ends = numpy.asarray(side.ends) - 1
    assert set(found.dataset.weights.tokens[ends].tolist()) == {1.0}
    assert set(found.dataset.weights.tokens[ends[:-1] + 1].tolist()) == {0.0}  # the first of the next


def test_without_the_field_nothing_changes(tmp_path):
    """Checksums, and with them the hash of the data, are those of the texts; with weights they are of both."""
    plain = Source(path=write_jsonl(tmp_path / "a.jsonl", rows(first_word)))
    found, _ = prepared(tmp_path / "1", plain, objective="mle")
    assert not list((tmp_path / "1" / "data").glob("weights*"))
    assert found.dataset.weights is None
    assert set(found.dataset.collate([found.dataset[0]])) == {"input_ids", "attention_mask", "labels"}
    hashes = [found.counts[0].sha256]
    for number, spans in enumerate((first_word, lambda i, text: [])):
        where = source(tmp_path / f"{number}.jsonl", rows(spans))
        weighted, _ = prepared(tmp_path / f"w{number}", where, objective="weighted")
        hashes.append(weighted.counts[0].sha256)
        for name in ("source.tokens", "target.tokens", "target.ends", "groups.npy"):
            both = [(tmp_path / folder / "data" / name).read_bytes() for folder in ("1", f"w{number}")]
            assert both[0] == both[1]
    assert len(set(hashes)) == 3


def test_a_tokenizer_without_places_is_refused(tmp_path, monkeypatch):
    slow = tiny.tokenizer()
    monkeypatch.setattr(prepare, "_tokenizer", lambda *args: slow)
    monkeypatch.setattr(type(slow), "is_fast", False)
    with pytest.raises(ValueError, match="weights need a fast tokenizer"):
        prepared(tmp_path, source(tmp_path / "a.jsonl", rows()), objective="weighted")


def by_hand(config, folder):
    """Loss of the first step, from the model's own logits."""
    found = prepare.load(config, folder)
    model = models.build(config, found.tokenizer, 0).eval()
    plan = Plan(found.examples, tokens=config.training.tokens_per_step, steps=1, seed=0)
    batch = found.dataset.collate([found.dataset[i] for i in next(iter(plan))])
    weights = batch.pop("token_weight")
    labels = batch["labels"]
    with torch.no_grad():
        logits = model(**batch).logits
    if config.kind == "causal":
        logits, labels, weights = logits[:, :-1], labels[:, 1:], weights[:, 1:]
    nll = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=-100)
    counted = labels.flatten() != -100
    assert 0 < (weights.flatten()[counted] == 0).sum() < counted.sum()
    return float((nll * weights.flatten()).sum() / counted.sum())


def dropping(path, spans):
    """The corpus of a run with a field of spans."""
    given = [json.loads(line) for line in path.read_text().splitlines()]
    return write_jsonl(path, [row | {FIELD: spans(i, row["target"]), "text": row["target"]}
                              for i, row in enumerate(given)])  # fmt: skip


WEIGHTED = (f"data.train.weights_field={FIELD}", "objective=weighted")


@pytest.mark.parametrize("task", ["translation", "language-modeling"])
def test_a_step_by_hand(tmp_path, task):
    config = write(tmp_path)
    dropping(tmp_path / "train.jsonl", first_word)
    for name in ("valid", "test"):
        dropping(tmp_path / f"{name}.jsonl", lambda i, text: [])
    small = "{n_embd: 16, n_layer: 1, n_head: 2, resid_pdrop: 0.0, embd_pdrop: 0.0, attn_pdrop: 0.0}"
    plain = (f"model.overrides={small}" if task == "language-modeling" else "model.overrides.dropout=0.0",)
    Train(config, *WEIGHTED, *plain, f"task={task}", "training.steps=1", "evaluation.every=0", "evaluation.best=null",
          "evaluation.metrics=[likelihood]", "training.micro_batches=2").done()  # fmt: skip
    first = next(row for row in read_rows(tmp_path / "run/metrics.jsonl") if row["split"] == "train")
    assert first["loss"] == pytest.approx(by_hand(load(tmp_path / "run/config.yaml"), tmp_path / "run/data"), rel=1e-5)
    assert first["kept"] < 1
    assert first["loss"] < first["nll"]


def test_weights_of_one_are_likelihood_bit_for_bit_and_a_kill_changes_nothing(tmp_path):
    config = write(tmp_path)
    dropping(tmp_path / "train.jsonl", lambda i, text: [[0, len(text), 1]] if i % 2 else [])
    output = {name: tmp_path / name for name in ("mle", "ones", "whole", "killed")}
    plain, ones = (
        Train(config, f"output={output['mle']}", "objective=mle"),
        Train(config, f"output={output['ones']}", *WEIGHTED),
    )
    plain.done()
    ones.done()
    assert (output["mle"] / "model/model.safetensors").read_bytes() == (
        output["ones"] / "model/model.safetensors"
    ).read_bytes()
    dropping(tmp_path / "train.jsonl", first_word)
    whole = Train(config, f"output={output['whole']}", *WEIGHTED)
    killed = Train(config, f"output={output['killed']}", *WEIGHTED, pace=0.05)
    assert killed.until(lambda: steps(output["killed"]) >= 5)
    killed.kill()
    whole.done()
    Train(config, f"output={output['killed']}", *WEIGHTED, "--resume").done()
    assert results(output["whole"]) == results(output["killed"])
    assert results(output["whole"])["model/model.safetensors"] != results(output["ones"])["model/model.safetensors"]
