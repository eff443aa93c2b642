"""Any text goes in and comes out; tokenizers of others can pad and end, or are refused."""

import json
import subprocess
import sys

import pytest
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from errornorm.data.lines import DataError
from errornorm.training import tokenizing
from errornorm.training.stops import Stopped
from tests.tiny import PAIRS, tokenizer

TAGS = ("<2de>", "<2fr>")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def ids(tokenizer, text):
    return tokenizer(text)["input_ids"]


def foreign(folder, **tokens):
    """A word tokenizer that someone else saved."""
    words = {word: i for i, word in enumerate(["<unk>", "<e>", "dog", "cat"])}
    inside = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inside.pre_tokenizer = pre_tokenizers.Whitespace()
    hf.PreTrainedTokenizerFast(tokenizer_object=inside, unk_token="<unk>", **tokens).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("kind", ["seq2seq", "causal"])
@settings(max_examples=150, deadline=None)
@given(text=TEXT)
def test_what_goes_in_comes_out(kind, text):
    found = tokenizer(kind, TAGS).decode(ids(tokenizer(kind, TAGS), text), skip_special_tokens=True)
    if any(token in text for token in ("<pad>", "</s>", *TAGS)):
        return
    assert found == (text if not text or text.startswith(" ") else f" {text}")


@pytest.mark.parametrize(
    "text", ["😀 👩‍👩‍👧", "مرحبا", "\u2028\x0b\x0c\r\n\t", "  two  spaces  ", "e\u0301 ﬁ Å", "n't .", "#@!"]
)
def test_hard_texts_come_out(text):
    """No normalization, no clean-up of spaces before punctuation."""
    found = tokenizer().decode(ids(tokenizer(), text), skip_special_tokens=True)
    assert found.removeprefix(" ") == text.removeprefix(" ")


def test_an_end_for_pairs_but_not_for_prompts():
    assert ids(tokenizer("seq2seq"), "a dog")[-1] == tokenizer("seq2seq").eos_token_id
    assert tokenizer("causal").eos_token_id not in ids(tokenizer("causal"), "a dog")
    assert tokenizer("seq2seq").pad_token_id != tokenizer("seq2seq").eos_token_id


def test_special_tokens_are_single_tokens_of_their_own():
    bpe = tokenizer("seq2seq", TAGS)
    for tag in ("<pad>", "</s>", *TAGS):
        assert ids(bpe, f"{tag} a dog") == [bpe.convert_tokens_to_ids(tag), *ids(bpe, "a dog")]
    assert bpe.decode(ids(bpe, "<2fr> a dog"), skip_special_tokens=True) == " a dog"
    plain = tokenizer("seq2seq")
    assert len(ids(plain, "<2fr>")) > 2  # no tag where none was asked for


def test_a_word_is_the_same_token_at_the_beginning():
    assert ids(tokenizer("causal"), "dog dog") == 2 * ids(tokenizer("causal"), "dog")


def test_training_again_gives_the_same(tmp_path):
    """In another process too, where hashes are others and threads race."""
    texts = [text for pair in PAIRS for text in pair] * 50
    code = (
        "import sys, json; from errornorm.training import tokenizing\n"
        "tokenizing.train_bpe(json.load(sys.stdin), 400, 'seq2seq', ['<2fr>']).save_pretrained(sys.argv[1])\n"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "there")],
        input=json.dumps(texts), text=True, check=True, env={"PYTHONHASHSEED": "7", "TOKENIZERS_PARALLELISM": "true"},
    )  # fmt: skip
    tokenizing.train_bpe(texts, 400, "seq2seq", ["<2fr>"]).save_pretrained(tmp_path / "here")
    names = sorted(path.name for path in (tmp_path / "here").iterdir())
    assert "tokenizer.json" in names
    for name in names:
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()


def test_the_size_that_was_asked_for():
    texts = [text for pair in PAIRS for text in pair]
    assert len(tokenizing.train_bpe(texts, 300, "causal")) == 300
    assert len(tokenizing.train_bpe(texts, 10**6, "causal")) < 600  # there is no more to learn
    assert len(tokenizing.train_bpe(["x"], 300, "causal", TAGS)) == 256 + 2 + 2 + 1  # and " x"


def test_an_error_of_the_corpus_comes_through():
    def texts():
        yield "a dog"
        raise KeyError("from the corpus")

    with pytest.raises(KeyError, match="from the corpus"):
        tokenizing.train_bpe(texts(), 300, "causal")


def test_saved_and_loaded(tmp_path):
    bpe = tokenizer("seq2seq", TAGS)
    bpe.save_pretrained(tmp_path)
    loaded = tokenizing.load(str(tmp_path), TAGS)
    assert len(loaded) == len(bpe)
    texts = ["<2fr> a small dog", "", "\u2028 <2de>", "ünïcode"]
    assert loaded(texts)["input_ids"] == bpe(texts)["input_ids"]
    assert loaded.decode(ids(loaded, "it 's <2fr> ."), skip_special_tokens=True) == " it 's  ."


def test_new_tags_beside_old_ones(tmp_path):
    tokenizer("seq2seq", ("<2de>",)).save_pretrained(tmp_path)
    loaded = tokenizing.load(str(tmp_path), TAGS)
    assert len(loaded) == len(tokenizer("seq2seq", ("<2de>",))) + 1
    assert ids(loaded, "<2de><2fr>") == [*loaded.convert_tokens_to_ids(TAGS), loaded.eos_token_id]
    assert loaded.decode(ids(loaded, "<2de> a <2fr>"), skip_special_tokens=True).split() == ["a"]


def test_a_tokenizer_without_padding_pads_with_its_end(tmp_path):
    loaded = tokenizing.load(foreign(tmp_path, eos_token="<e>"))
    assert loaded.pad_token_id == loaded.eos_token_id == 1


def test_tokenizers_that_cannot_be_used(tmp_path):
    with pytest.raises(ValueError, match="no end-of-sequence token; set its eos_token"):
        tokenizing.load(foreign(tmp_path / "endless"))
    for missing in (tmp_path / "gone", tmp_path):
        with pytest.raises(DataError, match="no tokenizer there") as error:
            tokenizing.load(str(missing))
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("error", [MemoryError(), Stopped(15)])
def test_what_is_no_fault_of_the_folder_comes_through(error):
    with pytest.raises(type(error)), tokenizing.loading("a folder"):
        raise error


@pytest.mark.parametrize("name", ["gpt2", "bart", "t5", "llama", "marian"])
def test_a_model_without_its_tokenizer(tmp_path, name):
    """The library makes some tokenizers from nothing, which know no word."""
    hf.CONFIG_MAPPING[name]().save_pretrained(tmp_path)
    with pytest.raises(DataError, match="no tokenizer there"):
        tokenizing.load(str(tmp_path))
