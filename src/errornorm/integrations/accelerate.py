"""Accelerate: the same loop on one device or many, with its own checkpoints and trackers.

An optimizer step is exact when all of its micro-batches are divided by the same number, the tokens of the step. So the
micro-batches of a step are read together, counted, and then trained on one after another:

    for group in groups(accelerator, loader):
        count = num_items(accelerator, handle, group)
        for batch in group:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch, num_items_in_batch=count).loss)
                step(accelerator, handle, optimizer)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .attach import Attachment
from .loop import num_targets
from .packing import packed, unpacked

try:
    from accelerate import Accelerator
except ImportError as error:
    raise ImportError("this adapter needs accelerate: pip install errornorm[hf]") from error

Group = Sequence[Mapping[str, Any]]
STATE = "errornorm_state.json"  # in the folder of a checkpoint


def prepare(accelerator: Accelerator, handle: Attachment, name: str = STATE) -> None:
    """Keep the objective's state in `accelerator.save_state`.

    As JSON, not by `register_for_checkpointing`: accelerate reads what is registered there as a pickle, which may run
    code.

    Args:
        accelerator: Whose checkpoints it belongs to.
        handle: What `attach` returned.
        name: Of the file; another one for a second objective.
    """
    handle.expect_advance()

    def save(models: Any, weights: Any, folder: str) -> None:
        each_node = accelerator.project_configuration.save_on_each_node
        if accelerator.is_local_main_process if each_node else accelerator.is_main_process:
            (Path(folder) / name).write_text(json.dumps(packed(handle.state_dict())), encoding="utf-8")

    def load(models: Any, folder: str) -> None:
        path = Path(folder) / name
        if not path.is_file():
            raise ValueError(
                f"{folder} holds no state of the objective ({name}): it was saved without errornorm's prepare; start "
                "the run anew, or resume it without one"
            )
        handle.load_state_dict(unpacked(json.loads(path.read_text(encoding="utf-8"))))

    accelerator.register_save_state_pre_hook(save)
    accelerator.register_load_state_pre_hook(load)


def groups(accelerator: Accelerator, loader: Iterable[Mapping[str, Any]]) -> Iterator[Group]:
    """The micro-batches of one optimizer step after another. What is left at the end of the data is left out."""
    group: list[Mapping[str, Any]] = []
    for batch in loader:
        group.append(batch)
        if len(group) == accelerator.gradient_accumulation_steps:
            yield group
            group = []


def num_items(accelerator: Accelerator, handle: Attachment, group: Group) -> Tensor:
    """What to pass as `num_items_in_batch` with each of the micro-batches of one optimizer step.

    Accelerate divides each loss by the number of micro-batches, and averages gradients over processes: this undoes it.
    The mean of the losses of all micro-batches is then the loss of the step.
    """
    parts: int = accelerator.gradient_accumulation_steps
    processes: int = accelerator.num_processes
    if len(group) != parts:
        raise ValueError(f"a step has {parts} micro-batches (gradient_accumulation_steps), but {len(group)} were given")
    if parts > 1 and accelerator.gradient_state.sync_with_dataloader:
        raise ValueError(
            "the micro-batches of a step are read ahead, and accelerate would take a step at each of the last ones: "
            "pass Accelerator(gradient_accumulation_plugin=GradientAccumulationPlugin("
            f"num_steps={parts}, sync_with_dataloader=False))"
        )
    return num_targets(handle, group) / (parts * processes)


def step(
    accelerator: Accelerator, handle: Attachment, optimizer: torch.optim.Optimizer, max_grad_norm: float | None = None
) -> bool:
    """After each backward, in place of clipping, `optimizer.step()` and `optimizer.zero_grad()`.

    Returns whether the weights were changed: not between micro-batches, and not where NaN or Inf turned up.
    """
    if not accelerator.sync_gradients:
        return False
    taken = False
    try:
        # A loss scaler looks for overflows itself, expects some, and leaves out those steps.
        taken = accelerator.scaler is not None or handle.healthy()
        if taken:
            if max_grad_norm is not None:
                accelerator.clip_grad_norm_(handle.model.parameters(), max_grad_norm)
            optimizer.step()
    finally:
        optimizer.zero_grad()
    handle.advance()
    return taken
