"""An objective's state as JSON, exactly: a checkpoint of it runs no code when it is read, as a pickle can."""

from __future__ import annotations

import base64
from typing import Any

import numpy
import torch
from torch import Tensor


def packed(state: dict[str, Any]) -> dict[str, Any]:
    def text(x: Tensor) -> dict[str, Any]:
        array = x.detach().cpu().contiguous().numpy()
        data = base64.b64encode(array.tobytes()).decode("ascii")
        return {"dtype": array.dtype.str, "shape": list(array.shape), "data": data}

    return {**state, "state": {name: text(value) for name, value in state["state"].items()}}


def unpacked(state: dict[str, Any]) -> dict[str, Any]:
    def tensor(x: dict[str, Any]) -> Tensor:
        array = numpy.frombuffer(base64.b64decode(x["data"]), dtype=numpy.dtype(x["dtype"])).reshape(x["shape"])
        return torch.from_numpy(array.copy())

    return {**state, "state": {name: tensor(value) for name, value in state["state"].items()}}
