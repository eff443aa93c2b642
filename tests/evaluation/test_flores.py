"""The flores200 tokenizer: only from a file whose checksum is right, and never from the network."""

import hashlib
import logging
import socket
import sys
from types import SimpleNamespace

import pytest
from sacrebleu.metrics import BLEU

from errornorm.data.lines import DataError
from errornorm.evaluation import flores
from errornorm.evaluation.metrics import bleu, chrf, measure

OUTPUTS, REFERENCES = ["unbelievable houses  "], ["unbelievably large houses"]
MODEL = b"pieces of two characters"
SHA = hashlib.sha256(MODEL).hexdigest()


class Pairs:
    """Instead of SentencePiece: pieces of two characters."""

    def Load(self, path):  # noqa: N802
        with open(path, "rb") as file:  # noqa: PTH123
            if file.read() != MODEL:
                raise RuntimeError("could not parse ModelProto")

    def EncodeAsPieces(self, text):  # noqa: N802
        text = text.replace(" ", "▁")
        return [text[i : i + 2] for i in range(0, len(text), 2)]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Each test begins anew, with our SentencePiece, and without a network."""
    monkeypatch.setitem(sys.modules, "sentencepiece", SimpleNamespace(SentencePieceProcessor=Pairs))
    monkeypatch.setattr(socket, "socket", None)
    for cached in (flores.loaded, flores.say_fallback):
        cached.cache_clear()
    yield
    flores.loaded.cache_clear()


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "flores.model"
    path.write_bytes(MODEL)
    return path


@pytest.fixture
def official(model, monkeypatch):
    monkeypatch.setitem(flores.KNOWN, SHA, "flores200")
    return model


def test_a_wrong_checksum(model):
    with pytest.raises(DataError, match=f"its SHA-256 is {SHA}, not {next(iter(flores.KNOWN))}; get the file again"):
        bleu(OUTPUTS, REFERENCES, "flores200", model)


def test_no_such_file(tmp_path):
    with pytest.raises(DataError, match=r"absent.model: No such file or directory; check the name"):
        bleu(OUTPUTS, REFERENCES, "flores200", tmp_path / "absent.model")


def test_bleu_of_pieces(official):
    score = bleu(OUTPUTS, REFERENCES, "flores200", official)
    pieces = [[" ".join(Pairs().EncodeAsPieces(text.rstrip()))] for text in (*OUTPUTS, *REFERENCES)]
    assert score.value == pytest.approx(BLEU(tokenize="none").corpus_score(pieces[0], [pieces[1]]).score)
    assert score.signature.startswith("nrefs:1|case:mixed|eff:no|tok:flores200|smooth:exp|version:")
    assert score.value > bleu(OUTPUTS, REFERENCES).value


def test_other_measures_stay_as_they_are(official):
    before = bleu(OUTPUTS, REFERENCES), chrf(OUTPUTS, REFERENCES)
    values, signatures = measure(
        ["bleu", "chrf"], OUTPUTS, REFERENCES, OUTPUTS, tokenize="flores200", flores_model=official
    )
    assert "tok:flores200" in signatures["bleu"]
    assert values["chrf"] == before[1].value
    assert (bleu(OUTPUTS, REFERENCES), chrf(OUTPUTS, REFERENCES)) == before


def test_the_file_is_read_once(official):
    assert flores.loaded(official) is flores.loaded(official)


def test_without_the_file_13a_and_one_notice(caplog):
    with caplog.at_level(logging.WARNING, "errornorm"):
        first, second = (bleu(OUTPUTS, REFERENCES, "flores200") for _ in range(2))
    assert first == second == bleu(OUTPUTS, REFERENCES)
    (record,) = caplog.records
    assert record.name == "errornorm"
    assert record.message.startswith("BLEU is tokenized by 13a, not by flores200: ")


def test_without_sentencepiece(official, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ImportError, match=r"^flores200 needs the package sentencepiece: pip install sentencepiece$"):
        bleu(OUTPUTS, REFERENCES, "flores200", official)


def test_not_a_model(tmp_path, monkeypatch):
    path = tmp_path / "no.model"
    path.write_bytes(b"something else")
    monkeypatch.setitem(flores.KNOWN, hashlib.sha256(b"something else").hexdigest(), "flores200")
    with pytest.raises(DataError, match=r"no.model: not readable as a SentencePiece model \(could not parse"):
        flores.Tokenizer(path)
