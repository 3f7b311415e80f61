"""Programs bound to input shapes, and the short ways of those that are one unit or none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.graph.dims import Shape, evaluate, format_shape
from intarsia.graph.model import Node
from intarsia.plan.results import LEAST, memory
from intarsia.plan.segment import BoundSegment
from intarsia.providers.cpu.executable import Executable, HostStep, Unit
from intarsia.providers.cpu.host import HostKernel, host_kernel

if TYPE_CHECKING:
    from intarsia.ops.registry import Registry

_RESULT, _INPUT, _CONSTANT = range(3)


@dataclass(frozen=True)
class HostCall:
    """The only unit of a program: a kernel that Python calls. `operands`: positions of inputs, or constants, or None."""

    kernel: HostKernel
    node: Node
    operands: tuple[int | np.ndarray | None, ...]
    results: tuple[int, ...]  # which of the kernel's results the outputs are

    def given(self, inputs: Sequence[Any]) -> list[Any]:
        return [inputs[which] if type(which) is int else which for which in self.operands]


class Plan:
    """A program bound to input shapes: what can be bound before data is seen.

    Attributes:
        single: the only unit, where it is a native segment that is bound.
        picks: which of the program's inputs that segment takes, in its order; None: all, as they come.
        plain: whether the outputs are the segment's results as they are.
        rows: how outputs are found among the segment's results, inputs and constants: each what it is, which one (a position or
            the array), its shape where that is another, and whether it is copied. None: by name (`CpuProgram._collect`).
        host: the only unit, where it is a host operator with a kernel.
    """

    def __init__(
        self, env: dict[str, int], units: list[BoundSegment | Unit], executable: Executable,
        inputs: Sequence[Any], registry: Callable[[], Registry],
    ) -> None:  # fmt: skip
        self.env, self.units = env, units
        only = units[0] if len(units) == 1 else None
        self.single = only if isinstance(only, BoundSegment) else None
        self.host = _host_call(only, executable, registry) if isinstance(only, HostStep) else None
        self.picks: tuple[int, ...] | None = None
        self.plain = False
        if self.single is not None:
            segment, names = self.single.segment, tuple(v.name for v in executable.inputs)
            self.picks = None if segment.inputs == names else tuple(names.index(n) for n in segment.inputs)
            self.plain = segment.outputs == executable.outputs
        self.rows = None if units and self.single is None else _rows(self.single, executable, env, inputs)

    def deliver(self, results: Sequence[np.ndarray], inputs: Sequence[Any]) -> list[Any]:
        """The outputs by `rows`."""
        assert self.rows is not None
        found = []
        for kind, which, shape, shared in self.rows:
            value = results[which] if kind == _RESULT else inputs[which] if kind == _INPUT else which
            if shape is not None:
                value = value.reshape(shape)
            found.append(copied(value) if shared else value)
        return found


def copied(value: np.ndarray) -> np.ndarray:
    """A copy; a large one lies in memory that is used again."""
    if value.nbytes < LEAST or value.dtype.hasobject:
        return value.copy()
    copy = memory.empty(value.shape, value.dtype)
    np.copyto(copy, value)
    return copy


def view_shape(name: str, given: tuple[int, ...], dims: Shape, env: Mapping[str, int]) -> tuple[int, ...]:
    """The shape under which a value of shape `given` is known. Raises InvalidArgument where it cannot have that."""
    try:
        shape = tuple(evaluate(d, env) for d in dims)
    except (ValueError, ZeroDivisionError) as error:
        raise InvalidArgument(f"value {name!r} cannot have the shape {format_shape(dims)}: {error}") from None
    size = math.prod(given)
    if math.prod(shape) != size or min(shape, default=0) < 0:
        described = f"{list(given)} ({size} elements)"
        raise InvalidArgument(f"value {name!r}: {described} cannot be reshaped to {list(shape)} ({math.prod(shape)} elements)")
    return shape


def _rows(
    single: BoundSegment | None, executable: Executable, env: Mapping[str, int], inputs: Sequence[Any]
) -> tuple[tuple[int, Any, tuple[int, ...] | None, bool], ...] | None:
    """`Plan.rows`, where all outputs are arrays."""
    given = {v.name: i for i, (v, x) in enumerate(zip(executable.inputs, inputs, strict=True)) if isinstance(x, np.ndarray)}
    made = {} if single is None else {name: i for i, name in enumerate(single.segment.outputs)}
    rows = []
    for name, result in zip(executable.outputs, executable.results, strict=True):
        constant = executable.constants.get(result.buffer)
        kind: int
        which: Any
        if result.buffer in made and single is not None:
            kind, which, known = _RESULT, made[result.buffer], single.outputs[made[result.buffer]][0]
        elif result.buffer in given:
            kind, which, known = _INPUT, given[result.buffer], inputs[given[result.buffer]].shape
        elif constant is not None:
            kind, which, known = _CONSTANT, constant, constant.shape
        else:
            return None
        shape = None if result.view is None else view_shape(name, known, result.view, env)
        rows.append((kind, which, shape, result.shared))
    return tuple(rows)


def _host_call(step: HostStep, executable: Executable, registry: Callable[[], Registry]) -> HostCall | None:
    node = step.node
    if step.captured or any(view is not None for view in step.views) or any(True for _ in node.subgraphs):
        return None
    given = {v.name: i for i, v in enumerate(executable.inputs)}
    operands: list[int | np.ndarray | None] = []
    for name in step.reads:
        operand = given[name] if name in given else executable.constants.get(name)
        if name and operand is None:
            return None
        operands.append(operand)
    made = {name: i for i, name in enumerate(node.outputs) if name}
    if any(r.shared or r.view is not None or r.buffer not in made for r in executable.results):
        return None
    kernel = host_kernel(node) or _by_definition(node, registry())
    return HostCall(kernel, node, tuple(operands), tuple(made[r.buffer] for r in executable.results)) if kernel else None


def _by_definition(node: Node, registry: Registry) -> HostKernel | None:
    """A host operator's function with its attributes looked up, or a definition that is traced in the first run."""
    from intarsia.kernel.lang import DefinitionError
    from intarsia.ops.evaluate import evaluate_record, traced_once
    from intarsia.ops.infer import keywords

    record = registry.find(node.domain, node.op_type, node.version or 10_000)
    if record is None:
        return None
    if not record.host:
        traced = traced_once(record, node)
        return None if traced is None else lambda _, inputs, target: traced(inputs)
    try:
        checked = keywords(record, node, run_graph=None)
    except DefinitionError:
        return None  # said when it runs
    return lambda _, inputs, target: evaluate_record(record, node, inputs, None, checked)
