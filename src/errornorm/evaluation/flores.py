"""The flores200 tokenizer of BLEU from a local file, whose checksum is verified; nothing is downloaded.

The file is the SentencePiece model of the NLLB project (SPM-200). It is published as
flores200_sacrebleu_tokenizer_spm.model, and as sentencepiece.bpe.model beside each NLLB-200 checkpoint.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
from functools import cache, lru_cache
from pathlib import Path

from ..data.lines import DataError, reading

# SHA-256 to the name in signatures. A new release of the file is one more line here. This digest is the one that
# the NLLB-200 checkpoints on the Hugging Face Hub state; sacrebleu states none.
KNOWN = {"14bb8dfb35c0ffdea7bc01e56cea38b9e3d5efcdcb9c251d6b40538e1aab555a": "flores200"}


def _name(path: Path) -> str:
    """Of a model in signatures; one that is not known is refused."""
    with reading(path, "check the name of the flores200 model"), path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found not in KNOWN:
        raise DataError(
            f"{path}: not the flores200 model: its SHA-256 is {found}, not {' or '.join(KNOWN)}; get the file again"
        )
    return KNOWN[found]


class Tokenizer:
    """Pieces of a text, as sacrebleu wants them."""

    def __init__(self, path: Path) -> None:
        self._name = _name(path)
        try:
            sentencepiece = importlib.import_module("sentencepiece")
        except ImportError as error:
            raise ImportError("flores200 needs the package sentencepiece: pip install sentencepiece") from error
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.Load(str(path))
        except (OSError, RuntimeError) as error:
            raise DataError(f"{path}: not readable as a SentencePiece model ({error}); get the file again") from error
        self._pieces = lru_cache(maxsize=2**16)(self._split)  # references come again and again

    def signature(self) -> str:
        return self._name

    def __call__(self, line: str) -> str:
        return self._pieces(line)

    def _split(self, line: str) -> str:
        return " ".join(self._processor.EncodeAsPieces(line))


@cache
def loaded(path: Path) -> Tokenizer:
    """The tokenizer of a file, read once."""
    return Tokenizer(path)


@cache
def say_fallback() -> None:
    """Said once, not at every evaluation."""
    logging.getLogger("errornorm").warning(
        "BLEU is tokenized by 13a, not by flores200: that needs the file of its SentencePiece model "
        "(evaluation.flores_model), which is not downloaded"
    )
