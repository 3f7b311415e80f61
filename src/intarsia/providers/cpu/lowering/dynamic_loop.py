"""Loop and Scan whose sizes differ from trip to trip (a cache that Concat makes longer), or whose trips only a run counts.

The body is lowered as a program of its own, whose sizes are symbols. Where it is one native segment, and the sizes after a
trip follow from those before it, `dynamic_loop_run` binds many trips at once and runs them without returning to Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.errors import IntarsiaError
from intarsia.graph.dims import Dim, Expr, Shape, product, symbols_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType, Value, ValueType
from intarsia.ops.control import carried_types
from intarsia.primitives import lang as k
from intarsia.providers.cpu.executable import Carried, Executable, LoopStep
from intarsia.providers.cpu.kernels.movement import loop_carry_kernels as template
from intarsia.providers.cpu.lowering.unroll_loop import unrolled

LOOPS = ("Loop", "Scan")
_MOST_ELEMENTS = 16


class LoweredBody(Protocol):
    """See `lower.Lowered`."""

    executable: Executable
    types: dict[str, ValueType]
    values: dict[str, np.ndarray]


class Surroundings(Protocol):
    """What the lowering of the graph around a node offers (see `lower`)."""

    graph: Graph
    types: dict[str, ValueType]
    target: Target

    def read(self, *names: str) -> tuple[tuple[str, ...], tuple[Shape | None, ...]]:
        """Buffers of values, and views of them."""

    def lower_separately(self, graph: Graph) -> Any:
        """A body as a program of its own."""

    def types_of(self, graph: Graph) -> dict[str, ValueType]:
        """Types of a body's values."""


class _NeedsPython(Exception):
    """The trips cannot be bound ahead."""


def loop_step(node: Node, around: Surroundings) -> LoopStep | None:
    """The node as a step, or None where each trip needs Python."""
    if node.domain or node.op_type not in LOOPS or (node.op_type == "Scan" and node.version == 8):
        return None
    try:
        return _loop_step(node, around)
    except (_NeedsPython, IntarsiaError, k.DefinitionError, KeyError):
        return None


def _loop_step(node: Node, around: Surroundings) -> LoopStep:
    body: Graph = node.attributes["body"]
    constants = around.graph.constants
    captured = tuple(sorted(n for n in body.captured_names() if n not in constants))
    initial = [_tensor(around.types.get(n)) for n in node.inputs[2:]] if node.op_type == "Loop" else _scanned(node, around)
    head = [TensorType(DType.INT64, ()), TensorType(DType.BOOL, ())] if node.op_type == "Loop" else []
    states = len(initial) - (0 if head else int(node.attributes["num_scan_inputs"]))
    outputs = len(body.outputs) - bool(head)
    if len(body.inputs) != len(head) + len(initial) or outputs != len(node.outputs) or states > outputs:
        raise _NeedsPython
    inner = _body(body, around, captured)
    first = bool(head)

    def made(types: Sequence[ValueType | None]) -> list[ValueType | None]:
        again = inner.clone()
        again.inputs = _inputs(body, [*head, *types, *initial[states:]], captured, around)
        found = around.types_of(again)
        return [found.get(v.name, v.type) for v in body.outputs[first:]]

    reads, views = around.read(*node.inputs, *captured)
    names = body.output_names()[first:]
    numbers = {v.name for v, kind in zip(body.inputs, [*head, *initial[:states]], strict=False) if _is_small(kind)}
    for followed in (
        set[str](),
        numbers,
        numbers,
    ):  # elements that may be sizes; the last time those that a trip computes alone
        inner.followed = frozenset(followed)
        kinds, _ = carried_types(made, list(initial[:states]), states)
        inner.inputs = _inputs(body, [*head, *map(_tensor, kinds), *initial[states:]], captured, around)
        lowered = around.lower_separately(inner)
        written = _without_loops(inner, lowered)
        if written is not None:
            inner = written
            lowered = around.lower_separately(inner)
        taken = lowered.executable.inputs[len(head) :][:states]
        carried = tuple(_carried(v, n, lowered) for v, n in zip(taken, names[:states], strict=True))
        rows = tuple(_row(n, lowered) for n in names[states:])
        unknown = {v.name for v, c in zip(taken, carried, strict=True) if any(d is None for _, d in c.elements)}
        sizes_known = _known_ahead(lowered, [c.shape for c in carried] + [shape for shape, _ in rows])
        if sizes_known and not unknown & followed:
            break
        numbers -= unknown
    else:
        raise _NeedsPython
    kernels = template.move_text(around.target), template.count_text(around.target)
    return LoopStep(node, reads, captured, views, lowered.executable, carried, rows, kernels)


def _without_loops(body: Graph, lowered: LoweredBody) -> Graph | None:
    """The body of a Loop with loops inside written out that would be units of their own."""
    loops = lowered.executable.loops()
    return unrolled(body, {name for loop in loops for name in loop.node.outputs if name}) if loops else None


def _is_small(kind: TensorType) -> bool:
    """Whether a value's elements may be sizes."""
    count = product(kind.shape or ())
    return kind.dtype in (DType.INT64, DType.INT32) and isinstance(count, int) and count <= _MOST_ELEMENTS


def _scanned(node: Node, around: Surroundings) -> list[TensorType]:
    """Types of what a Scan's body takes: states, and rows."""
    a, kinds = node.attributes, [_tensor(around.types.get(n)) for n in node.inputs]
    count = int(a["num_scan_inputs"])
    axes = a.get("scan_input_axes") or [0] * count
    rows = []
    for kind, axis in zip(kinds[len(kinds) - count :], axes, strict=True):
        shape = list(kind.shape or ())
        del shape[axis]
        rows.append(TensorType(kind.dtype, tuple(shape)))
    return [*kinds[: len(kinds) - count], *rows]


def _body(graph: Graph, around: Surroundings, captured: Sequence[str]) -> Graph:
    constants, inner = around.graph.constants, graph.clone()
    inner.opset_imports = graph.opset_imports or around.graph.opset_imports
    inner.functions = graph.functions or around.graph.functions
    inner.constants.update((n, constants[n]) for n in graph.captured_names() if n in constants)
    return inner


def _inputs(graph: Graph, kinds: Sequence[ValueType | None], captured: Sequence[str], around: Surroundings) -> list[Value]:
    own = [Value(v.name, kind) for v, kind in zip(graph.inputs, kinds, strict=True)]
    return own + [Value(n, _tensor(around.types.get(n))) for n in captured]


def _tensor(kind: ValueType | None) -> TensorType:
    if not isinstance(kind, TensorType) or kind.shape is None or kind.dtype is DType.STRING or kind.dtype.bits < 8:
        raise _NeedsPython
    return kind


def _carried(value: Value, made: str, lowered: LoweredBody) -> Carried:
    """`value`: as the program takes it, `made`: the name of what it is after a trip."""
    before, kind = _tensor(value.type), _tensor(lowered.types.get(made))
    if before.dtype is not kind.dtype or len(before.shape or ()) != len(kind.shape or ()):
        raise _NeedsPython
    known = lowered.values.get(made)
    symbols = sorted((-1 - axis, name) for name, axis in lowered.executable.learned.get(value.name, ()) if axis < 0)
    elements: list[tuple[str, Dim | None]] = []
    for i, name in symbols:
        found: Any = None if known is None or i >= known.size else known.reshape(-1)[i]
        number = isinstance(found, (int, np.integer)) and not isinstance(found, bool)
        elements.append((name, int(found) if number else found if isinstance(found, Expr) else None))
    return Carried(kind.shape or (), tuple(elements))


def _row(name: str, lowered: LoweredBody) -> tuple[Shape, np.dtype[Any]]:
    kind = _tensor(lowered.types.get(name))
    return kind.shape or (), kind.dtype.numpy


def _known_ahead(lowered: LoweredBody, shapes: Sequence[Shape]) -> bool:
    """Whether the body is one native segment, whose sizes and those of its outputs follow from its inputs."""
    executable = lowered.executable
    segments = executable.segments()
    if len(segments) < len(executable.units) or any(a.dtype.hasobject for a in executable.constants.values()):
        raise _NeedsPython
    if len(segments) != 1:
        return False
    known, segment = _known(executable), segments[0]
    dims: list[Dim] = [d for shape in shapes for d in shape]
    dims += [d for b in segment.buffers.values() for d in b.shape]
    dims += [d for c in (*segment.constraints, *executable.constraints) for d in (c.left, c.right)]
    return all(symbols_of(d) <= known for d in dims)


def _known(executable: Executable) -> set[str]:
    taken = {v.name for v in executable.inputs}
    learned: Mapping[str, list[tuple[str, int]]] = executable.learned
    return {symbol for name in taken for symbol, _ in learned.get(name, ())} | set(executable.sizes)
