"""A large run on paper: what the loss adds to it. Nothing here was measured but what is passed in."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass

from ..kernels.passes import MIN_ROWS
from ..surface import loss_truncation, objective
from .traffic import NUMBER, Load, Scope, Sends

TINY, HALF = 5e-6, 2  # seconds of a hop between two machines; bytes of a number in half precision


@dataclass(frozen=True, slots=True)
class Run:
    """The shape is that of Llama 3 8B as its authors published it, the GPU and the link are an H100 and its adapter by
    their data sheets; 40 % of the peak is what large runs report. None of it is ours."""

    tokens: float = 1e12
    ranks: int = 1000
    sequence: int = 4096  # tokens; each rank has one sequence in a step
    parameters: float = 8.03e9
    layers: int = 32
    width: int = 4096
    vocab: int = 128_256
    peak: float = 989e12  # operations per second of a GPU, bfloat16 without sparsity
    use: float = 0.4  # share of them that training gets
    link: float = 50e9  # bytes per second and direction, between machines: 400 Gbit/s for each GPU
    node: int = 8  # GPUs of a machine
    inside: float = 450e9  # bytes per second and direction, between GPUs of a machine

    @property
    def load(self) -> Load:
        return Load(self.sequence, 1, self.width)

    @property
    def tokens_per_step(self) -> int:
        return self.sequence * self.ranks

    @property
    def steps(self) -> int:
        return math.ceil(self.tokens / self.tokens_per_step)

    @property
    def head(self) -> float:
        """Operations of a token's forward through the head; backward takes twice as many."""
        return 2 * self.width * self.vocab

    @property
    def forward(self) -> float:
        """Of the whole model: two for each parameter but the embedding's, and attention over half a sequence."""
        attention = 4 * self.layers * self.width * self.sequence / 2
        return 2 * (self.parameters - self.width * self.vocab) + attention

    @property
    def step_seconds(self) -> float:
        return 3 * self.forward * self.sequence / (self.peak * self.use)

    @property
    def gradients(self) -> Sends:
        return Sends(int(HALF * self.parameters))

    @property
    def logits(self) -> int:
        """Bytes of the logits of a rank's step in float32."""
        return NUMBER * self.sequence * self.vocab

    @property
    def buffer(self) -> int:
        """Bytes of the one buffer of logits of the chunked kernel."""
        return NUMBER * MIN_ROWS * self.vocab

    @property
    def weight(self) -> int:
        """Bytes of the head's weight in float32."""
        return NUMBER * self.width * self.vocab

    def seconds(self, sends: Sends, rounds: int) -> float:
        """Of a step's communication: bytes through the link, and the way up and down a tree of ranks for each."""
        return sends.over_the_link(self.ranks) / self.link + rounds * 2 * math.ceil(math.log2(self.ranks)) * TINY

    def gathered(self) -> int:
        """Bytes that would reach each rank if all scores did."""
        return NUMBER * self.tokens_per_step


def state_bytes(scope: Scope) -> int:
    """What a scope adds to a checkpoint; a window when it is full."""
    state = objective(scope.objective).init()
    held = sum(value.numel() * value.element_size() for value in state.values())
    full = inspect.signature(loss_truncation).parameters["window"].default
    return held + (NUMBER * int(full) if "window" in state else 0)
