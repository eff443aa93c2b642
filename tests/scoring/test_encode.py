import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from errornorm.scoring.encode import Encoded, Encoder, windows
from tests import tiny

TEXTS = ["a small dog runs today", "  two  spaces ", "Ünïcödé 猫 🐈‍⬛ end", "x"]


@pytest.mark.parametrize("name", ["gpt2", "marian"])
def test_places_are_those_of_the_tokens(name):
    kind = "causal" if name == "gpt2" else "seq2seq"
    encoder = Encoder(tiny.model(name), tiny.tokenizer(kind), 512)
    for text, encoded in zip(TEXTS, encoder.encode([""] * len(TEXTS), TEXTS), strict=True):
        covered = set()
        for token, (start, end) in zip(encoded.scored, encoded.places, strict=True):
            piece = encoder.tokenizer.decode([token])
            if token == encoder.tokenizer.eos_token_id:
                assert (start, end) == (len(text), len(text))
            elif "\N{REPLACEMENT CHARACTER}" not in piece and piece.strip():
                assert text[start:end] == piece.strip()
            covered |= set(range(start, end))
        assert {i for i, character in enumerate(text) if not character.isspace()} <= covered


def test_what_stands_before_a_text_is_read_but_not_scored():
    encoder = Encoder(tiny.model("gpt2"), tiny.tokenizer("causal"), 512)
    alone, behind = encoder.encode(["", "a large cat sleeps: "], ["the dog runs", "the dog runs"])
    assert len(behind.places) == len(alone.places) == len(behind.scored)
    assert behind.places == alone.places
    assert len(behind.inputs) > len(alone.inputs)
    assert behind.inputs[0] == encoder.start


def test_an_encoder_decoder_scores_its_end_token_and_refuses_what_it_cannot_hold():
    encoder = Encoder(tiny.model("marian"), tiny.tokenizer(), 20)
    short, long = encoder.encode(["a dog", "a dog"], ["un chien", "un chien " * 30])
    assert short.scored[-1] == encoder.tokenizer.eos_token_id
    assert short.places[-1] == (8, 8)
    assert isinstance(long, str)
    assert "20 at most" in long


def test_an_unknown_word_has_its_place():
    words = [*tiny.tokenizer().all_special_tokens, "<unk>", "un", "chien"]
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token=words[0], eos_token="</s>", unk_token="<unk>")
    encoder = Encoder(tiny.model("marian"), tokenizer, 20)
    (found,) = encoder.encode(["un chien"], ["ça un Hund"])
    assert [words[token] for token in found.scored] == ["<unk>", "un", "<unk>", "</s>"]
    assert found.places == [(0, 2), (3, 5), (6, 10), (10, 10)]


def test_a_tokenizer_of_another_model_is_refused():
    model = tiny.model("gpt2")
    encoder = Encoder(model, tiny.tokenizer("causal"), 512)
    rows = encoder.encode([""], ["a small dog"])
    encoder.batch(rows)
    model.resize_token_embeddings(20)
    with pytest.raises(ValueError, match="the model knows 20: they do not belong together"):
        Encoder(model, tiny.tokenizer("causal"), 512).batch(rows)


def test_a_slow_tokenizer_is_refused():
    class Slow:
        is_fast = False

    with pytest.raises(ValueError, match="use a fast tokenizer"):
        Encoder(tiny.model("gpt2"), Slow(), 10)


@pytest.mark.parametrize("total", [1, 7, 8, 9, 12, 13, 40])
@pytest.mark.parametrize("first", [0, 3, 8, 11])
def test_windows_score_each_token_once_and_see_enough(total, first):
    if first >= total:
        return
    row = Encoded(list(range(total)), list(range(1, total + 1)), first, [(i, i + 1) for i in range(first, total)])
    parts = list(windows(row, 8))
    assert [token for part in parts for token in part.scored] == row.scored
    assert [place for part in parts for place in part.places] == row.places
    for part in parts:
        assert len(part.inputs) == len(part.targets) <= 8
        assert part.targets == [token + 1 for token in part.inputs]  # aligned
        seen = part.first + (part.inputs[0] == 0) * 8
        assert seen >= 4  # half a window, or everything
