import numpy
import pytest
import torch

from errornorm.data.lines import Problem, Where
from errornorm.data.records import Record
from errornorm.scoring import rank, words
from errornorm.scoring.parts import Chunk, Scorer, Settings, chunks
from errornorm.scoring.table import SCHEMA, STATISTICS
from tests import tiny
from tests.scoring.models import reference

PAIR, TEXT = Settings("target", "{source}"), Settings("text", "")


def records(kind):
    rows = [{"source": a, "target": b} if kind == "seq2seq" else {"text": a} for a, b in tiny.PAIRS]
    return [Record(Where("f", i + 1), row | {"site": i % 3}) for i, row in enumerate(rows)]


def scorer(name, settings=None, side="right", dtype=torch.float32, **options):
    kind = "causal" if name in tiny.CAUSAL else "seq2seq"
    tokenizer = tiny.tokenizer(kind)
    tokenizer.padding_side = side
    settings = settings or (TEXT if kind == "causal" else PAIR)
    return Scorer(tiny.model(name).to(dtype), tokenizer, settings, **{"length": 64} | options)


def kind_of(name):
    return "causal" if name in tiny.CAUSAL else "seq2seq"


# The weights of this T5 are so large that float32 loses its fourth digit on the way to the head.
EXACT = {("t5", torch.float64): 1e-6} | {
    (name, dtype): 1e-5 if dtype is torch.float32 else 1e-6
    for name in ("gpt2", "llama", "marian", "bart")
    for dtype in (torch.float32, torch.float64)
}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("tokens", [1, 60, 4096])
@pytest.mark.parametrize(("name", "dtype"), EXACT, ids=[f"{name}-{dtype}" for name, dtype in EXACT])
def test_scores_are_those_of_the_textbook(name, dtype, tokens, side):
    items = records(kind_of(name))
    items = items[::2] + items[1::2]
    base = TEXT if kind_of(name) == "causal" else PAIR
    made = scorer(name, Settings(base.text_field, base.context, tokens=tokens), side, dtype)
    table = made(Chunk(0, 0, items))
    model, tokenizer = tiny.model(name), tiny.tokenizer(kind_of(name))
    for item, row in zip(items, table.to_pylist(), strict=True):
        expected = reference(model, tokenizer, item.fields.get("source", ""), item.text(base.text_field))
        for statistic in STATISTICS:
            true = expected[statistic].numpy()[-len(row[statistic]) :]
            off = EXACT[name, dtype]
            numpy.testing.assert_allclose(row[statistic], true, rtol=off, atol=off, err_msg=statistic)


def test_a_part_depends_on_its_records_alone():
    items = records("seq2seq")
    made = scorer("marian")
    first = made(Chunk(3, 30, items))
    made(Chunk(0, 0, items[:5]))
    assert made(Chunk(3, 30, items)).equals(first, check_metadata=True)


def test_rows_have_the_documented_schema_and_the_fields_that_were_not_read():
    table = scorer("marian")(Chunk(1, 10, records("seq2seq")[:3]))
    assert table.schema.equals(SCHEMA)
    assert table["record"].to_pylist() == [10, 11, 12]
    assert table["line"].to_pylist() == [1, 2, 3]
    assert table["fields"].to_pylist() == ['{"site": 0}', '{"site": 1}', '{"site": 2}']
    assert table["context"][0].as_py() == tiny.PAIRS[0][0]


def test_words_and_texts_are_aggregates_of_their_tokens():
    table = scorer("gpt2", Settings("text", "", cutoff=0.9))(Chunk(0, 0, records("causal")))
    for row in table.to_pylist():
        spans = list(zip(row["word_start"], row["word_end"], strict=True))
        assert [row["text"][a:b] for a, b in spans] == row["text"].split()
        owners = words.word_of(list(zip(row["start"], row["end"], strict=True)), spans)
        for word in range(len(spans)):
            own = [norm for norm, owner in zip(row["error_norm"], owners, strict=True) if owner == word]
            assert row["word_error_norm_mean"][word] == pytest.approx(numpy.mean(own), rel=1e-6)
            assert row["word_error_norm_max"][word] == max(own)
            assert row["word_above"][word] == pytest.approx(numpy.mean([norm > 0.9 for norm in own]))
        assert row["nll_mean"] == pytest.approx(numpy.mean(row["nll"]), rel=1e-6)
        assert row["entropy_max"] == max(row["entropy"])
        assert row["above"] == pytest.approx(numpy.mean([norm > 0.9 for norm in row["error_norm"]]))
    assert rank.of_texts(table, "nll_max").tolist() == [max(row["nll"]) for row in table.to_pylist()]


def test_only_tokens_above_the_cutoff_have_alternatives_and_they_are_right():
    made = scorer("gpt2", Settings("text", "", cutoff=1.0, alternatives=3))
    table = made(Chunk(0, 0, records("causal")[:6]))
    tokenizer, seen = tiny.tokenizer("causal"), 0
    for row in table.to_pylist():
        above = [i for i, norm in enumerate(row["error_norm"]) if norm > 1.0]
        assert [found["token"] for found in row["alternatives"]] == above
        for found in row["alternatives"]:
            i = found["token"]
            seen += 1
            assert len(found["texts"]) == len(found["p"]) == 3
            assert found["p"] == sorted(found["p"], reverse=True)
            if found["rank"] <= 3:
                assert tokenizer.decode([row["token"][i]]) == found["texts"][found["rank"] - 1]
                assert found["p"][found["rank"] - 1] == pytest.approx(row["p_target"][i], rel=1e-4)
            else:
                assert row["p_target"][i] <= found["p"][-1]
    assert seen


def test_a_long_text_is_read_in_windows():
    text = " ".join(a for a, _ in tiny.PAIRS)
    items = [Record(Where("f", 1), {"text": text})]
    row = scorer("gpt2", length=32)(Chunk(0, 0, items)).to_pylist()[0]
    whole = scorer("gpt2", length=64)(Chunk(0, 0, [Record(Where("f", 1), {"text": text[:60]})])).to_pylist()[0]
    assert len(row["token"]) > 150
    assert row["start"] == sorted(row["start"])
    assert row["text"][row["start"][-1] : row["end"][-1]] == "night"
    short = min(20, len(whole["token"]) - 1)
    numpy.testing.assert_allclose(row["nll"][:short], whole["nll"][:short], rtol=1e-4)


def test_a_text_that_the_model_cannot_hold_is_set_aside():
    items = [Record(Where("f", 1), {"source": "a dog", "target": "un chien " * 40}), *records("seq2seq")[:2]]
    table = scorer("marian")(Chunk(0, 5, items))
    assert table["record"].to_pylist() == [6, 7]
    assert b"64 at most" in table.schema.metadata[b"errornorm.part"]


def test_a_prompt_takes_fields_and_nothing_else():
    settings = Settings("answer", "Q: {question}\nA: ")
    assert settings.fields == ["question", "answer"]
    record = Record(Where("f", 1), {"question": "{answer} {0.__class__}", "answer": "yes"})
    assert settings.before(record) == "Q: {answer} {0.__class__}\nA: "


def test_parts_are_cut_by_records_and_by_bytes():
    one = Record(Where("f", 1), {"text": "x"})
    cut = list(chunks([one] * 25, Settings("text", "", records=10)))
    assert [(chunk.number, chunk.first, len(chunk.items)) for chunk in cut] == [(0, 0, 10), (1, 10, 10), (2, 20, 5)]
    big = Record(Where("f", 1), {"text": "x" * 2**21})
    assert [len(chunk.items) for chunk in chunks([big] * 5, Settings("text", ""))] == [2, 2, 1]
    beside = Record(Where("f", 1), {"text": "x", "other": "y" * 2**21})
    assert [len(chunk.items) for chunk in chunks([beside] * 5, Settings("text", ""))] == [2, 2, 1]
    assert [chunk.items for chunk in chunks([], Settings("text", ""))] == [[]]


def test_problems_keep_their_numbers():
    items = [Problem(Where("f", 1), "bad", b"x"), *records("seq2seq")[:1], Problem(Where("f", 3), "worse", b"y")]
    table = scorer("marian")(Chunk(0, 100, items))
    assert table["record"].to_pylist() == [101]
    found = table.schema.metadata[b"errornorm.part"]
    assert b'"record": 100' in found
    assert b'"record": 102' in found
