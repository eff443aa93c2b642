"""How text becomes tokens: a tokenizer from a folder, or a BPE that is trained on the corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..allocators import lacking
from ..data.lines import DataError
from .presets import Kind
from .stops import Stopped

PAD, END = "<pad>", "</s>"
AGAIN = "; get the folder again"


def load(name: str, tags: Sequence[str] = (), download: bool = False) -> Any:
    """A tokenizer that exists. Every one that leaves here can pad and end. No code that comes with it is run."""
    from transformers import AutoTokenizer

    with loading(f"{name}: no tokenizer there", AGAIN):
        folder = place(name, download)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=not download)
    if len(tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens)) < 2:  # what is made if there is none
        raise DataError(f"{name}: no tokenizer there: save the model's tokenizer to the same folder")
    if tokenizer.eos_token_id is None:
        raise ValueError(f"{name}: the tokenizer has no end-of-sequence token; set its eos_token first")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if new := [tag for tag in tags if tag not in tokenizer.get_vocab()]:
        tokenizer.add_special_tokens({"additional_special_tokens": new}, replace_extra_special_tokens=False)
    return tokenizer


def place(name: str, download: bool) -> str:
    """A folder, also of what was fetched before; a name only where it may be fetched.

    Transformers is given folders, since by a name it asks the Hub even where it should not (`local_files_only`).
    """
    if download or Path(name).exists():
        return name
    from huggingface_hub import constants, snapshot_download

    try:
        return str(snapshot_download(name, local_files_only=True, cache_dir=constants.HF_HUB_CACHE))
    except (OSError, ValueError) as error:
        raise DataError("it is no folder here, and was never fetched; check the name, or set download: true") from error


@contextmanager
def loading(what: str, remedy: str = "", error_kind: type[Exception] = DataError) -> Iterator[None]:
    """One line about whatever a damaged or hostile folder, or an impossible entry, leads to."""
    try:
        yield
    except Exception as error:
        if isinstance(error, Stopped) or lacking(error):
            raise
        if isinstance(error, DataError):  # it says what to do
            raise DataError(f"{what}: {error}") from error
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise error_kind(f"{what}: {said}{remedy}") from error


def train_bpe(texts: Iterable[str], vocab: int, kind: Kind, tags: Sequence[str] = ()) -> Any:
    """A byte-level BPE of these texts. It knows every text, and decoding gives it back, behind a space."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[PAD, END, *tags],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    if kind == "seq2seq":
        bpe.post_processor = processors.TemplateProcessing(
            single=f"$A {END}", special_tokens=[(END, bpe.token_to_id(END))]
        )
    wrap: Any = PreTrainedTokenizerFast
    return wrap(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=list(tags),
        clean_up_tokenization_spaces=False,
    )
