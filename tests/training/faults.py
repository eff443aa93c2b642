"""Faults to plant in a run: `Train(..., fault=partial(...))`."""

import resource
from importlib import import_module
from pathlib import Path

import torch

ALLOCATORS = {
    "Python": MemoryError(),
    "a CPU": RuntimeError(
        "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 4096000000 bytes. Error code 12 (Cannot allocate memory)"
    ),
    "CUDA": torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 3.81 GiB. GPU 0 has a total capacity of 23.50 GiB of which 1.20 GiB is "
        "free."
    ),
    "cuBLAS": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "MPS": RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB, max allowed: 9.07 GB)."),
}
CALLS = {  # what fails, and the how many-th time
    "reading": ("errornorm.training.prepare", "prepare", 1),
    "building": ("errornorm.training.models", "build", 1),
    "forward": ("transformers.models.marian.modeling_marian", "MarianMTModel.forward", 5),
    "backward": ("torch", "Tensor.backward", 6),
    "optimizer": ("torch.optim", "AdamW.step", 7),
    "saving": ("errornorm.training.engine", "Trainer._save_checkpoint", 8),
    "evaluating": ("errornorm.training.engine", "judge", 2),
    "the end": ("errornorm.training.finish", "draw", 1),
}


def out_of_memory(allocator, place):
    """An allocator says no."""
    module, path, number = CALLS[place]
    *inside, name = path.split(".")
    owner = import_module(module)
    for part in inside:
        owner = getattr(owner, part)
    function, calls = getattr(owner, name), 0

    def failing(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == number:
            raise ALLOCATORS[allocator]
        return function(*args, **kwargs)

    setattr(owner, name, failing)


def little_memory(room, step):
    """From a step on, the system gives so many bytes more."""
    from errornorm.training import engine

    begin = engine.Journal.on_step_begin

    def limiting(self, args, state, control, **rest):
        if state.global_step == step - 1:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))
        return begin(self, args, state, control, **rest)

    engine.Journal.on_step_begin = limiting


def little_room(size):
    """No file may be larger."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def not_finite(kind, name, value, step):
    """NaN or Inf appears in one place of a step: one number of it."""
    from errornorm.training import engine

    begin = engine.Journal.on_step_begin

    def planting(self, args, state, control, model=None, optimizer=None, **rest):
        if state.global_step == step - 1:
            PLANT[kind](model, optimizer, name, float(value))
        return begin(self, args, state, control, **rest)

    engine.Journal.on_step_begin = planting


def _spoil(tensor, value):
    with torch.no_grad():
        tensor.view(-1)[0] = value
    return tensor


def _activation(model, optimizer, name, value):
    def spoiled(module, args, out):
        first, *others = out if isinstance(out, tuple) else (out,)
        bad = _spoil(first.clone(), value)
        return (bad, *others) if isinstance(out, tuple) else bad

    model.get_submodule(name).register_forward_hook(spoiled)


def _gradient(model, optimizer, name, value):
    model.get_parameter(name).register_hook(lambda grad: _spoil(grad.clone(), value))


def _weight(model, optimizer, name, value):
    _spoil(model.get_parameter(name).detach(), value)


def _moment(model, optimizer, name, value):
    key, _, name = name.partition(" of ")
    _spoil(optimizer.state[model.get_parameter(name)][key], value)


def _column(model, optimizer, name, value):
    def spoiled(module, args, kwargs):
        return args, kwargs | {name: _spoil(kwargs[name].clone(), value)}

    model.register_forward_pre_hook(spoiled, with_kwargs=True, prepend=True)


PLANT = {
    "activation": _activation, "gradient": _gradient, "weight": _weight, "moment": _moment, "column": _column,
}  # fmt: skip
