"""Checkpoints of others: nothing in them runs, and what cannot be loaded is told in one line.

A sharded checkpoint has a description, and entries that are no tensors: torch unpickles both, and runs whatever stands
in them. So they are looked at first. All other files are safetensors, JSON, or pickles that torch reads with
`weights_only=True`.
"""

from __future__ import annotations

import io
import pickle
from contextlib import AbstractContextManager
from pathlib import Path, PurePath
from typing import Any

from ..data.lines import DataError
from ..data.visible import visible
from . import checkpoints
from .tokenizing import loading

DESCRIPTION = ".metadata"  # of torch.distributed.checkpoint
_TYPES = {
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
        "TensorStorageMetadata", "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size"},
    "collections": {"OrderedDict"},
    "pathlib": {"PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath"},
}  # fmt: skip


class _Careful(pickle.Unpickler):
    """Makes descriptions of tensors, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if name in _TYPES.get(module, ()) or (module == "torch" and _constant(name)):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it wants {module}.{name}")


def _constant(name: str) -> bool:
    import torch

    return isinstance(getattr(torch, name, None), torch.dtype | torch.layout | torch.memory_format)


def refuse_code(folder: Path) -> None:
    """Refuse a checkpoint that would run code, or names files that are not in it."""
    for path in sorted(folder.rglob(f"*{DESCRIPTION}")):  # ranks may have their own
        with loading(f"{path}: not the description of a checkpoint; it is not loaded"):
            with path.open("rb") as file:
                found = _Careful(file).load()
            names = {str(info.relative_path) for info in found.storage_data.values()}
        if outside := sorted(name for name in names if PurePath(name).name != name):
            name = visible(outside[0])
            raise DataError(f"{path}: it names {name!r}, which is not beside it; the checkpoint is not loaded")
        with loading(f"{path.parent}: more than numbers and texts in it; it is not loaded"):
            _require_plain(path.parent, found)


def _require_plain(folder: Path, found: Any) -> None:
    """What is no tensor must be what torch would read with `weights_only=True`; by itself it does not."""
    import torch
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    for index, info in found.storage_data.items():
        if not isinstance(found.state_dict_metadata[index.fqn], TensorStorageMetadata):
            with (folder / info.relative_path).open("rb") as file:
                file.seek(info.offset)
                torch.load(io.BytesIO(file.read(info.length)), weights_only=True)


def loading_checkpoint(checkpoint: Path | str | None) -> AbstractContextManager[None]:
    """Its checksums hold, but what is in it may be anything: a pickle with more than numbers is refused by torch."""
    return loading(f"{checkpoint} cannot be loaded; go on from a checkpoint of your own")


def require_state(checkpoint: Path) -> None:
    """Before the Trainer reads it."""
    from transformers import TrainerState

    with loading_checkpoint(checkpoint):
        step = TrainerState.load_from_json(str(checkpoint / "trainer_state.json")).global_step
    if step != checkpoints.step_of(checkpoint):
        right = checkpoints.name(step)
        raise DataError(f"{checkpoint}: its state is that of step {step}; give it back the name {right}")
