"""What a CPU program needs to run, as plain data: made by `lower`, cached by `saved`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from intarsia.graph.dims import Dim, Shape, symbols_of
from intarsia.graph.model import Node, Value
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.segment import Segment
from intarsia.plan.size_constraints import Constraint

if TYPE_CHECKING:
    from intarsia.codegen.llvm.jit import KernelText


@dataclass
class HostStep:
    """A node that runs as a Python function over arrays.

    Attributes:
        reads: buffers of the node's inputs, then of what its subgraphs capture.
        captured: names of what its subgraphs capture.
        views: per input and captured value its shape, where the buffer is known under another one.
        reason: why it is not compiled.
        typed: whether inference found the types of its inputs; else a run compares them with the operator's schema.
    """

    node: Node
    reads: tuple[str, ...]
    captured: tuple[str, ...]
    views: tuple[Shape | None, ...]
    reason: str
    typed: bool = False


@dataclass(frozen=True)
class Carried:
    """What a trip of a loop makes of one carried value.

    Attributes:
        shape: sizes after the trip, in symbols that are known before it.
        elements: symbols of elements, known before the trip, with what they are after it; None: only a run knows.
    """

    shape: Shape
    elements: tuple[tuple[str, Dim | None], ...] = ()


@dataclass
class LoopStep:
    """A Loop or Scan whose body is one native segment, with sizes that may differ from trip to trip.

    Attributes:
        reads, captured, views: as `HostStep` has them.
        body: takes what the node's body takes, then what it captures.
        carried, rows: of the body's outputs; of `rows` the shape of one row.
    """

    node: Node
    reads: tuple[str, ...]
    captured: tuple[str, ...]
    views: tuple[Shape | None, ...]
    body: Executable
    carried: tuple[Carried, ...]
    rows: tuple[tuple[Shape, np.dtype], ...]
    kernels: tuple[KernelText, KernelText]  # "move" and "count"

    @property
    def reason(self) -> str:
        return "a loop that is bound for many trips at once"

    def fresh(self) -> LoopStep:
        return replace(self, body=self.body.fresh())


@dataclass(frozen=True)
class Result:
    """An output of the program: its buffer, whether the caller needs a copy, its shape where the buffer has another."""

    buffer: str
    shared: bool
    view: Shape | None = None


Unit = Segment | HostStep | LoopStep


@dataclass
class Executable:
    """Units in order, and what binds them to the shapes of a run.

    Attributes:
        units: native segments, loops and host steps between them.
        constants: arrays that steps read or that are outputs, by the name of their buffer.
        learned: value or buffer -> symbols that are known once it is there, each with the axis whose size it is, or -1 - i
            for element i.
        sizes: symbols that constants give.
        constraints: what must hold of sizes besides what segments ask.
        interface: names of inputs and outputs as the model has them, where these are others here (`value_names`).
    """

    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    results: tuple[Result, ...]
    units: list[Unit]
    constants: dict[str, np.ndarray]
    learned: dict[str, list[tuple[str, int]]]
    sizes: dict[str, int]
    constraints: tuple[Constraint, ...] = ()
    interface: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    def segments(self) -> list[Segment]:
        return [u for u in self.units if isinstance(u, Segment)]

    def loops(self) -> list[LoopStep]:
        return [u for u in self.units if isinstance(u, LoopStep)]

    def nested(self) -> list[Executable]:
        """This and the bodies of its loops, and theirs."""
        return [self, *(inner for loop in self.loops() for inner in loop.body.nested())]

    @cached_property
    def made_by_python(self) -> dict[str, Node]:
        """Values that operators of Python, and loops, make, each with its node."""
        return {n: unit.node for unit in self.units if isinstance(unit, (HostStep, LoopStep)) for n in unit.node.outputs}

    def kernels(self) -> dict[str, KernelText]:
        """All that it calls, by symbol."""
        found = {k.symbol: k for e in self.nested() for segment in e.segments() for s in segment.steps for k in s.kernels}
        return found | {k.symbol: k for e in self.nested() for loop in e.loops() for k in loop.kernels}

    def fresh(self) -> Executable:
        """Another one of the same code and constants, bound to nothing yet."""
        return replace(self, units=[u if isinstance(u, HostStep) else u.fresh() for u in self.units])

    def dynamic_constraints(self) -> tuple[Constraint, ...]:
        """Constraints that can only be looked at in a run, since data decide their sizes."""
        known = {symbol for value in self.inputs for symbol, _ in self.learned.get(value.name, ())} | set(self.sizes)
        return tuple(c for c in self.constraints if not symbols_of(c.left) | symbols_of(c.right) <= known)

    def learn(self, name: str, value: object, env: dict[str, int]) -> None:
        """Sizes (and elements) of a value that is there now."""
        learn(self.learned.get(name, ()), value, env)


def learn(entries: Sequence[tuple[str, int]], value: object, env: dict[str, int]) -> None:
    """Note what a value says of sizes: symbols with the axis whose size each is, or -1 - i for element i."""
    if not isinstance(value, np.ndarray):
        return
    for symbol, axis in entries:
        if axis < 0:
            env[symbol] = int(value.item(-1 - axis))
        elif axis < value.ndim:
            env.setdefault(symbol, value.shape[axis])
