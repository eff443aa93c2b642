"""A model to score with, as any process can load it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..evaluation.decode import positions
from ..training.use import Saved, load, model_in
from .corpus import file_digest
from .parts import Scorer, Settings

DTYPES = ("float32", "float64", "bfloat16", "float16")
WEIGHTS = ("*.safetensors", "*.bin", "config.json", "errornorm.json", "tokenizer*", "*.model", "vocab*", "merges.txt")


@dataclass(frozen=True, slots=True)
class Judge:
    """A model to score with, as any process can load it.

    Args:
        folder: A run directory, or a folder with a model.
        length: Most tokens that it reads at once; what it was made for, if not given.
        to: Target language of a multilingual model.
        device: Such as "cuda"; the best that there is, if not given.
        dtype: Such as "bfloat16"; float32 if not given.
    """

    folder: str
    length: int | None = None
    to: str | None = None
    device: str | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        if self.length is not None and self.length < 2:
            raise ValueError(f"max_length={self.length}: at least 2 is needed")
        if self.dtype not in (None, *DTYPES):
            raise ValueError(f"dtype={self.dtype!r}: give {', '.join(DTYPES[:-1])} or {DTYPES[-1]}")

    @property
    def settings(self) -> dict[str, Any]:
        """What scores depend on, beside the model itself."""
        return {"max_length": self.length, "to": self.to, "dtype": self.dtype or "float32"}

    def load(self) -> Saved:
        import torch

        saved = load(self.folder)
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        kind = getattr(torch, self.dtype or "float32")
        try:
            if torch.device(device).type == "meta":
                raise RuntimeError("it has no numbers")
            saved.model.to(device, kind)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(
                f"device={device!r}: {' '.join(str(error).split())[:200]}; give another one, such as cpu"
            ) from error
        return saved

    def scorer(self, saved: Saved, settings: Settings) -> Scorer:
        room = positions(saved.model)
        # Rows of a language model are as long as those that it was trained on; a sentence is what it is.
        longest = room if saved.model.config.is_encoder_decoder else None
        length = self.length or longest or saved.max_length
        if room is not None and length > room:
            raise ValueError(f"max_length={length}: the model has {room} positions; give {room} at most")
        return Scorer(saved.model, saved.tokenizer, settings, length, saved.before(self.to))

    def about(self, saved: Saved) -> dict[str, Any]:
        place = model_in(Path(self.folder))
        files = sorted({path for pattern in WEIGHTS for path in place.glob(pattern) if path.is_file()})
        return {
            "path": self.folder,
            "name": type(saved.model).__name__,
            "kind": "seq2seq" if saved.model.config.is_encoder_decoder else "causal",
            "method": saved.method,
            "parameters": sum(parameter.numel() for parameter in saved.model.parameters()),
            "vocab": saved.model.config.get_text_config(decoder=True).vocab_size,
            "sha256": file_digest(files),
        }
