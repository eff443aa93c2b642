"""Peak memory of one step, each in a process of its own.

The peak of the resident set is reset just before the step (Linux). What is resident by then is not counted: torch,
its thread pools and scratch, the hidden states, the weight and the targets. The gradients are: every step makes them.
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch

from .entries import ENTRIES, Choices
from .problem import Size, problem

RESET = Path("/proc/self/clear_refs")
STATUS = Path("/proc/self/status")
UNKNOWN = "peak memory needs /proc, as on Linux"
TINY = Size(64, 32, 128)
MEGABYTE = 2**20


def peak_bytes(name: str, size: Size, choices: Choices | None = None, threads: int = 1, seed: int = 0) -> int | None:
    """Memory that one step of an entry takes at its peak, gradients included; None where it cannot be measured."""
    if not RESET.exists():
        return None
    job = {
        "name": name,
        "size": size,
        "choices": asdict(choices or Choices()),
        "threads": threads,
        "seed": seed,
    }
    command = [sys.executable, "-c", "from errornorm.bench.memory import child; child()", json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {name} failed: {done.stderr.strip()[-300:]}")
    return int(done.stdout.split()[-1])


def child() -> None:
    """In a fresh process: do the job of the first argument, print the bytes."""
    job = json.loads(sys.argv[1])
    torch.set_num_threads(job["threads"])
    entry, choices = ENTRIES[job["name"]], Choices(**job["choices"])
    here = problem(Size(*job["size"]), job["seed"])
    if not entry.compiles:
        entry.prepare(problem(TINY), choices)()
    step = entry.prepare(here, choices)
    if entry.compiles:  # compiled code is for one size: only that size warms it up
        step()
    here.forget()
    print(peak_above(step))


def peak_above(step: Callable[[], object]) -> int:
    """Most bytes resident during a step above those before it. Not by getrusage: it begins with the parent's peak."""
    gc.collect()
    _trim()
    RESET.write_text("5")
    before = _resident("VmRSS")
    step()
    return _resident("VmHWM") - before


def _trim() -> None:
    """Give freed pages back, so that the step cannot hide in them."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def _resident(field: str) -> int:
    for line in STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{STATUS} has no {field}")
