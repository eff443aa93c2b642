"""What is asked is measured, on the texts as the model reads them; what makes no sense is refused at once."""

import math

import pytest

from errornorm.evaluation import judge as library
from errornorm.evaluation import metrics
from errornorm.evaluation.decode import generate
from errornorm.evaluation.judge import BY_TASK, Question, judge
from errornorm.evaluation.likelihood import likelihood
from tests import tiny

PAIRS = [list(pair) for pair in tiny.PAIRS[::4]]
DOCUMENTS = [[source] for source, _ in PAIRS]


def ask(*names, **options):
    return Question(names, **{"beams": 1, "max_new_tokens": 6, "max_length": 64} | options)


def judged(question, texts=PAIRS, name="bart", **options):
    kind = "causal" if name in tiny.CAUSAL else "seq2seq"
    return judge(tiny.model(name), tiny.tokenizer(kind), texts, question, **options)


def test_outputs_with_sources_and_references_in_order():
    verdict = judged(ask("bleu", "copies"))
    outputs = generate(tiny.model("bart"), tiny.tokenizer(), [source for source, _ in PAIRS], beams=1, max_new_tokens=6)
    assert verdict.outputs == [
        {"source": source, "reference": reference, "output": output}
        for (source, reference), output in zip(PAIRS, outputs, strict=True)
    ]
    values, signatures = metrics.measure(["bleu", "copies"], outputs, [b for _, b in PAIRS], [a for a, _ in PAIRS])
    assert verdict.values == values | {"num": len(PAIRS), "beams": 1}
    assert verdict.signatures == signatures


@pytest.mark.parametrize(("name", "keys"), [
    ("likelihood", {"nll", "perplexity", "tokens"}), ("bleu", {"bleu", "beams"}), ("chrf", {"chrf", "beams"}),
    ("rouge", {"rouge1", "rouge2", "rougeLsum", "beams"}), ("copies", {"copies", "beams"}),
])  # fmt: skip
def test_only_what_is_asked_for(name, keys):
    verdict = judged(ask(name))
    assert verdict.values.keys() == keys | {"num"}
    assert bool(verdict.outputs) == (name != "likelihood")


@pytest.mark.parametrize("task", BY_TASK)
def test_what_belongs_to_a_task(task):
    causal = task == "language-modeling"
    verdict = judged(ask(*BY_TASK[task]), DOCUMENTS if causal else PAIRS, "gpt2" if causal else "bart")
    assert verdict.values["num"] == len(PAIRS)
    assert all(math.isfinite(value) for value in verdict.values.values())


def test_likelihood_is_that_of_the_pairs_however_batched(monkeypatch):
    whole = judged(ask("likelihood")).values
    tokens = sum(len(tiny.tokenizer()(target)["input_ids"]) for _, target in PAIRS)
    assert whole["tokens"] == tokens
    assert whole["perplexity"] == math.exp(whole["nll"])
    monkeypatch.setattr(library, "TOKENS", 40)
    parts = judged(ask("likelihood")).values
    assert parts["tokens"] == tokens
    assert parts["nll"] == pytest.approx(whole["nll"], rel=2e-6)


def test_a_prefix_is_read_but_is_not_part_of_the_source():
    question = ask("likelihood", "copies")
    plain, prefixed = judged(question), judged(question, prefix="translate: ")
    by_hand = judged(question, [[f"translate: {source}", target] for source, target in PAIRS])
    assert prefixed.values["nll"] == by_hand.values["nll"] != plain.values["nll"]
    assert [row["output"] for row in prefixed.outputs] == [row["output"] for row in by_hand.outputs]
    assert [row["source"] for row in prefixed.outputs] == [source for source, _ in PAIRS]


def test_a_limit():
    verdict = judged(ask("likelihood", "chrf", limit=3))
    assert verdict == judged(ask("likelihood", "chrf"), PAIRS[:3])
    assert (verdict.values["num"], len(verdict.outputs)) == (3, 3)


def test_long_pairs_are_cut_for_the_likelihood():
    long = [["a dog " * 50, "un chien " * 50]]
    verdict = judged(ask("likelihood", "chrf", max_length=10), long)
    assert verdict.values["tokens"] == 10
    assert verdict.outputs[0]["source"] == long[0][0]


@pytest.mark.parametrize("length", [2, 7, 64])
def test_documents_are_packed_with_nothing_lost(monkeypatch, length):
    monkeypatch.setattr(library, "TOKENS", 20)
    model, tokenizer = tiny.model("gpt2"), tiny.tokenizer("causal")
    batches = list(library.batches(model, tokenizer, DOCUMENTS, length))
    rows = [row for batch in batches for row in batch["input_ids"].tolist()]
    flat = [token for (text,) in DOCUMENTS for token in [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]]
    found = [token for row in rows for token in row]
    assert found == flat[: len(found)]
    assert len(flat) - len(found) <= 1  # a single token at the end is not predicted from anything
    assert all(len(row) == length for row in rows[:-1])
    assert judged(ask("likelihood", max_length=length), DOCUMENTS, "gpt2").values["tokens"] == len(found) - len(rows)
    assert all(batch["input_ids"].numel() <= max(20, length) for batch in batches)


def test_rows_predict_as_one_by_one():
    model, tokenizer = tiny.model("gpt2"), tiny.tokenizer("causal")
    values = judged(ask("likelihood", max_length=8), DOCUMENTS, "gpt2").values
    rows = [batch["input_ids"] for batch in library.batches(model, tokenizer, DOCUMENTS, 8)]
    singles = [{"input_ids": row[None], "labels": row[None]} for batch in rows for row in batch]
    assert values["nll"] == pytest.approx(likelihood(model, singles).nll, rel=2e-6)


def test_it_tells_how_far_it_is():
    told = []
    judged(ask("likelihood", "bleu"), tell=told.append)
    assert told == [len(PAIRS)]


def test_who_is_told_may_stop_it():
    def stop(done):
        raise KeyboardInterrupt

    model = tiny.model("bart").train()
    with pytest.raises(KeyboardInterrupt):
        judge(model, tiny.tokenizer(), PAIRS, ask("bleu"), tell=stop)
    assert model.training


def test_questions_that_make_no_sense(monkeypatch):
    with pytest.raises(ValueError, match=r"unknown metric 'blue' .did you mean bleu\?"):
        ask("likelihood", "blue")
    with pytest.raises(ValueError, match="unknown tokenizer '13b'"):
        ask("bleu", tokenize="13b")
    monkeypatch.setattr(library, "generate", None)  # nothing is generated first
    with pytest.raises(ValueError, match="bleu: a language model has no targets to compare outputs with"):
        judged(ask("likelihood", "bleu"), DOCUMENTS, "gpt2")
