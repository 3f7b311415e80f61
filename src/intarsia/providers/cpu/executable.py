"""What a CPU program needs to run, as plain data: made by `lower`, kept in the cache by `saved`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intarsia.graph.dims import Shape
from intarsia.graph.model import Node, Value
from intarsia.plan.segment import Constraint, Segment


@dataclass
class HostStep:
    """A node that runs as a Python function over arrays.

    Attributes:
        reads: buffers of the node's inputs, then of what its subgraphs capture.
        captured: names of what its subgraphs capture.
        views: per input and captured value its shape, where the buffer is known under another one.
        reason: why it is not compiled.
    """

    node: Node
    reads: tuple[str, ...]
    captured: tuple[str, ...]
    views: tuple[Shape | None, ...]
    reason: str


@dataclass(frozen=True)
class Result:
    """An output of the program: its buffer, whether the caller needs a copy, its shape where the buffer has another."""

    buffer: str
    shared: bool
    view: Shape | None = None


@dataclass
class Executable:
    """Units in order, and what binds them to the shapes of a run.

    Attributes:
        units: native segments, and host steps between them.
        constants: arrays that steps read or that are outputs, by the name of their buffer.
        learned: value or buffer -> symbols that are known once it is there, each with the axis whose size it is, or -1 - i
            for element i.
        sizes: symbols that constants give.
        constraints: what must hold of sizes besides what segments ask.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    results: tuple[Result, ...]
    units: list[Segment | HostStep]
    constants: dict[str, np.ndarray]
    learned: dict[str, list[tuple[str, int]]]
    sizes: dict[str, int]
    constraints: tuple[Constraint, ...] = ()

    def segments(self) -> list[Segment]:
        return [u for u in self.units if isinstance(u, Segment)]

    def learn(self, name: str, value: object, env: dict[str, int]) -> None:
        """Sizes (and elements) of a value that is there now."""
        if not isinstance(value, np.ndarray):
            return
        for symbol, axis in self.learned.get(name, ()):
            if axis < 0:
                env[symbol] = int(value.reshape(-1)[-1 - axis])
            elif axis < value.ndim:
                env.setdefault(symbol, value.shape[axis])
