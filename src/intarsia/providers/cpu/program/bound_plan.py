"""Programs bound to input shapes, and the short ways of those that are one unit or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.graph.dims import symbols_of
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.result_pool import copied
from intarsia.providers.cpu.executable import Executable, HostStep, LoopStep, Unit
from intarsia.providers.cpu.program.calls.call_list import line_of, view_shape

if TYPE_CHECKING:
    from intarsia.ep.program import FeedCall, RunContext
    from intarsia.ops.framework.evaluate import Evaluate
    from intarsia.providers.cpu.program.calls.dynamic_call_list import SizedLine
    from intarsia.providers.cpu.program.cpu_program import CpuProgram

_RESULT, _INPUT, _CONSTANT = range(3)


@dataclass(frozen=True)
class LoopCall:
    """The only unit of a program: a loop. `operands`: positions of inputs, or constants, or None; `results`: which of the
    loop's results the outputs are."""

    step: LoopStep
    operands: tuple[int | np.ndarray | None, ...]
    results: tuple[int, ...]

    def given(self, inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """What the node takes, and what its body captures."""
        values = [inputs[which] if type(which) is int else which for which in self.operands]
        count = len(self.step.node.inputs)
        return values[:count], values[count:]


@dataclass
class BranchCall:
    """The only unit of a program: an If whose branches are programs of their own.

    Attributes:
        condition: the position of the input that decides, or the array.
        captured: positions of inputs, or constants, by the names that branches know them by.
        chosen: by what the condition is, the branch's program, what it takes, and its only segment for these sizes if it is no
            more than that; once it has run.
    """

    node: Node
    condition: int | np.ndarray
    captured: dict[str, int | np.ndarray]
    results: tuple[int, ...]
    chosen: dict[bool, tuple[CpuProgram, list[int | np.ndarray], BoundSegment | None]] = field(default_factory=dict)

    def run(self, owner: CpuProgram, inputs: Sequence[Any], run: RunContext | None) -> list[Any] | None:
        """The outputs; None where the condition is not one element."""
        which = self.condition
        x: Any = inputs[which] if type(which) is int else which
        if x.size != 1:
            return None
        holds = bool(x.item())
        known = self.chosen.get(holds)
        if known is None:
            return self._first(owner, inputs, run, holds)
        program, operands, single = known
        given: list[Any] = [inputs[i] if type(i) is int else i for i in operands]
        made = program.run(given, run) if single is None else program._run_segment(single, given, run)
        return [made[i] for i in self.results]

    def _first(self, owner: CpuProgram, inputs: Sequence[Any], run: RunContext | None, holds: bool) -> list[Any]:
        from intarsia.providers.cpu.program.loops.subgraph_programs import body_program

        around = {name: inputs[i] if type(i) is int else i for name, i in self.captured.items()}
        branch = self.node.attributes["then_branch" if holds else "else_branch"]
        program, names = body_program(owner, branch, (), around)
        given = [around[n] for n in names]
        made = program.run(given, run)
        self.chosen[holds] = program, [self.captured[n] for n in names], program.plain_segment(given)
        return [made[i] for i in self.results]


class Plan:
    """A program bound to input shapes: what can be bound before data is seen.

    Attributes:
        single: the only unit, where it is a native segment that is bound, and nothing has to be compared behind it.
        picks: which of the program's inputs that segment takes, in its order; None: all, as they come.
        plain: whether the outputs are the segment's results as they are.
        rows: how outputs are found among the segment's results, inputs and constants: each what it is, which one (a position or
            the array), its shape where that is another, and whether it is copied. None: by name (`CpuProgram._collect`).
        reshaped: whether one of them has another shape.
        loop, branch: the only unit, where it is a loop, or an If.
        line: the units as calls over numbered values, where they can be, and are not one segment or none.
        sized: the same where sizes are known only in a run, or a unit has bodies; once it has run.
        feed: the function of a feed that does the same, or None; once a session asked for it.
    """

    feed: tuple[FeedCall | None] | None = None

    def __init__(
        self, env: dict[str, int], units: list[BoundSegment | Unit], executable: Executable,
        inputs: Sequence[Any], functions: Mapping[int, Evaluate],
    ) -> None:  # fmt: skip
        self.env, self.units = env, units
        only = units[0] if len(units) == 1 else None
        self.single = only if isinstance(only, BoundSegment) and not executable.late() else None
        self.branch = _branch_call(only, executable) if isinstance(only, HostStep) else None
        self.loop = _loop_call(only, executable) if isinstance(only, LoopStep) else None
        self.picks: tuple[int, ...] | None = None
        self.plain = False
        if self.single is not None:
            segment, names = self.single.segment, tuple(v.name for v in executable.inputs)
            self.picks = None if segment.inputs == names else tuple(names.index(n) for n in segment.inputs)
            self.plain = segment.outputs == executable.outputs
        self.rows = None
        if (not units or self.single is not None) and not self.plain:
            shapes = {v.name: x.shape for v, x in zip(executable.inputs, inputs, strict=True) if isinstance(x, np.ndarray)}
            self.rows = _rows(self.single, executable, env, shapes)
        self.reshaped = self.rows is not None and any(shape is not None for _, _, shape, _ in self.rows)
        self.sized: SizedLine | None = None
        self.line = line_of(executable, units, env, functions) if self.single is None and self.rows is None else None

    def again(
        self, units: list[BoundSegment | Unit], env: dict[str, int], executable: Executable,
        shapes: Sequence[tuple[int, ...]],
    ) -> Plan:  # fmt: skip
        """The same for other sizes, to which the units are bound. `shapes` are those of the inputs, which are all arrays."""
        made = object.__new__(Plan)
        made.env, made.units = env, units  # one by one: no dict is made of attributes that are set so
        made.picks, made.plain, made.rows, made.reshaped = self.picks, self.plain, self.rows, self.reshaped
        made.single = units[0] if self.single is not None else None  # type: ignore[assignment] # it is bound
        made.loop, made.line, made.sized, made.branch = self.loop, self.line, self.sized, self.branch
        if self.rows is not None:
            if self.reshaped:
                named = {value.name: shape for value, shape in zip(executable.inputs, shapes, strict=False)}
                made.rows = _rows(made.single, executable, env, named)
        elif self.line is not None:
            made.line = self.line.again(units, env)
        elif self.sized is not None:
            made.sized = self.sized.again(units, env)
        if self.branch is not None:
            made.branch = replace(self.branch, chosen={})
        return made

    def results(self) -> list[tuple[int, tuple[int, ...] | None]] | None:
        """Which of the segment's results each output is, and its shape where that is another; None where one is no result, or
        is copied."""
        if self.rows is None or any(kind != _RESULT or shared for kind, _, _, shared in self.rows):
            return None
        return [(which, shape) for _, which, shape, _ in self.rows]

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


def _rows(
    single: BoundSegment | None, executable: Executable, env: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[tuple[int, Any, tuple[int, ...] | None, bool], ...] | None:
    """`Plan.rows`, where all outputs are arrays. `shapes` are those of the inputs that are."""
    given = {v.name: i for i, v in enumerate(executable.inputs) if v.name in shapes}
    made = {} if single is None else {name: i for i, name in enumerate(single.segment.outputs)}
    rows = []
    for name, result in zip(executable.outputs, executable.results, strict=True):
        constant = executable.constants.get(result.buffer)
        kind: int
        which: Any
        if result.buffer in made and single is not None:
            kind, which, known = _RESULT, made[result.buffer], single.outputs[made[result.buffer]][0]
        elif result.buffer in given:
            kind, which, known = _INPUT, given[result.buffer], shapes[result.buffer]
        elif constant is not None:
            kind, which, known = _CONSTANT, constant, constant.shape
        else:
            return None
        if result.view is not None and any(not symbols_of(d) <= env.keys() for d in result.view):
            return None  # sizes that a run computes
        shape = None if result.view is None else view_shape(name, known, result.view, env)
        rows.append((kind, which, shape, result.shared))
    return tuple(rows)


def _loop_call(step: LoopStep, executable: Executable) -> LoopCall | None:
    operands, results = _operands(step, executable), _outputs(step.node, executable)
    return None if operands is None or results is None else LoopCall(step, operands, results)


def _branch_call(step: HostStep, executable: Executable) -> BranchCall | None:
    node = step.node
    if node.op_type != "If" or node.domain:
        return None
    operands, results = _operands(step, executable), _outputs(node, executable)
    if operands is None or results is None:
        return None
    given = zip((*node.inputs, *step.captured), operands, strict=True)
    captured = {name: operand for name, operand in given if operand is not None}
    if len(captured) < len({*node.inputs, *step.captured}):
        return None
    return BranchCall(node, captured[node.inputs[0]], captured, results)


def _operands(step: HostStep | LoopStep, executable: Executable) -> tuple[int | np.ndarray | None, ...] | None:
    """What the only unit of a program reads: positions of inputs, constants, None where omitted. None: that is not all."""
    if any(view is not None for view in step.views):
        return None
    given = {v.name: i for i, v in enumerate(executable.inputs)}
    operands: list[int | np.ndarray | None] = []
    for name in step.reads:
        operand = given[name] if name in given else executable.constants.get(name)
        if name and operand is None:
            return None
        operands.append(operand)
    return tuple(operands)


def _outputs(node: Node, executable: Executable) -> tuple[int, ...] | None:
    """Which of the node's outputs the program's are; None where they are not these as they are, each once."""
    made = {name: i for i, name in enumerate(node.outputs) if name}
    if any(r.shared or r.view is not None or r.buffer not in made for r in executable.results):
        return None
    return tuple([made[r.buffer] for r in executable.results])
