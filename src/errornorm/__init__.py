"""Robust training of text-generation models on noisy data: exact, fused Error Norm Truncation for PyTorch."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .surface import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        # Torch is imported with the first name that is used: the command line answers --help without it.
        private = name.startswith("_") and name != "__all__"
        if private or importlib.util.find_spec(f"{__name__}.{name}") is not None:  # submodules are not ours to give
            raise AttributeError(name)
        surface = importlib.import_module(".surface", __name__)
        if name != "__all__" and name not in surface.__all__:
            raise AttributeError(f"module 'errornorm' has no attribute {name!r}")
        return globals().setdefault(name, getattr(surface, name))

    def __dir__() -> list[str]:
        return [*importlib.import_module(".surface", __name__).__all__, "__version__"]
