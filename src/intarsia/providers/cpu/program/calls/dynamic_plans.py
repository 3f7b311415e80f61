"""Plans of programs that return to Python: loops and branches, sizes that only a run knows, and units that are timed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.segment import Segment
from intarsia.plan.size_constraints import check_known
from intarsia.providers.cpu.executable import Executable, HostStep, LoopStep, Unit
from intarsia.providers.cpu.program.bound_plan import Plan, collected
from intarsia.providers.cpu.program.boundary_checks import wanted
from intarsia.providers.cpu.program.calls.dynamic_call_list import DynamicCallList
from intarsia.providers.cpu.program.calls.host_steps import run_step_timed

if TYPE_CHECKING:
    from intarsia.ep.program import RunContext
    from intarsia.providers.cpu.program.cpu_program import CpuProgram

_Units = list[BoundSegment | Unit]
_Operand = int | np.ndarray
"""The position of an input, or a constant."""


def dynamic_plan(program: CpuProgram, env: dict[str, int], units: _Units) -> Plan:
    """The plan of units that are neither one bound segment nor a call list."""
    if program.context.on_step is not None:
        return TimedPlan(env, units)
    only = units[0] if len(units) == 1 else None
    if isinstance(only, LoopStep):
        loop = _loop_call(only, program.executable)
        if loop is not None:
            return LoopPlan(env, units, loop)
    if isinstance(only, HostStep):
        branch = _branch_call(only, program.executable)
        if branch is not None:
            return BranchPlan(env, units, branch)
    return DynamicPlan(env, units)


class DynamicPlan(Plan):
    """Units some of whose sizes are known only in a run, or which have bodies.

    Attributes:
        calls: the units as calls over numbered values; once they have run.
    """

    calls: DynamicCallList | None = None

    def run(self, program: CpuProgram, inputs: Sequence[Any], run: RunContext | None) -> list[Any]:
        if run is not None:
            run.check()
        calls = self.calls
        if calls is None:
            calls = self.calls = DynamicCallList(program, self.units, self.env)
        made = calls.run(inputs, run)
        return program.own(made, inputs) if program.lends else made

    def again(self, units: _Units, env: dict[str, int], executable: Executable, shapes: Sequence[tuple[int, ...]]) -> Plan:
        made = DynamicPlan(env, units)
        if self.calls is not None:
            made.calls = self.calls.again(units, env)
        return made


@dataclass(frozen=True)
class LoopCall:
    """The only unit of a program: a loop. `operands`: what it reads, None where omitted; `results`: which of the loop's results
    the outputs are."""

    step: LoopStep
    operands: tuple[_Operand | None, ...]
    results: tuple[int, ...]

    def given(self, inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """What the node takes, and what its body captures."""
        values = [inputs[which] if type(which) is int else which for which in self.operands]
        count = len(self.step.node.inputs)
        return values[:count], values[count:]


class LoopPlan(Plan):
    """A loop that is a program's only unit."""

    def __init__(self, env: dict[str, int], units: _Units, call: LoopCall) -> None:
        super().__init__(env, units)
        self.call = call

    def run(self, program: CpuProgram, inputs: Sequence[Any], run: RunContext | None) -> list[Any]:
        if run is not None:
            run.check()
        call = self.call
        given, captured = call.given(inputs)
        found = program.loops[id(call.step)].run(given, captured, run)
        return [found[i] for i in call.results]

    def again(self, units: _Units, env: dict[str, int], executable: Executable, shapes: Sequence[tuple[int, ...]]) -> Plan:
        return LoopPlan(env, units, self.call)


@dataclass(frozen=True)
class BranchCall:
    """The only unit of a program: an If whose branches are programs of their own.

    Attributes:
        condition: what decides.
        captured: what branches read, by the names that they know it by.
        results: which of the node's outputs the program's are.
    """

    node: Node
    condition: _Operand
    captured: dict[str, _Operand]
    results: tuple[int, ...]


class BranchPlan(DynamicPlan):
    """An If that is a program's only unit. Where its condition is not one element, it goes as any unit.

    Attributes:
        chosen: by what the condition is, the branch's program, what it takes, and its only segment for these sizes if it is no
            more than that; once it has run.
    """

    def __init__(self, env: dict[str, int], units: _Units, call: BranchCall) -> None:
        super().__init__(env, units)
        self.call = call
        self.chosen: dict[bool, tuple[CpuProgram, list[_Operand], BoundSegment | None]] = {}

    def run(self, program: CpuProgram, inputs: Sequence[Any], run: RunContext | None) -> list[Any]:
        which = self.call.condition
        x: Any = inputs[which] if type(which) is int else which
        if x.size != 1:
            return super().run(program, inputs, run)
        if run is not None:
            run.check()
        holds = bool(x.item())
        known = self.chosen.get(holds)
        if known is None:
            made = self._first(program, inputs, run, holds)
        else:
            body, operands, single = known
            given: list[Any] = [inputs[i] if type(i) is int else i for i in operands]
            made = body.run(given, run) if single is None else body.run_segment(single, given, run)
        return program.own([made[i] for i in self.call.results], inputs)

    def _first(self, program: CpuProgram, inputs: Sequence[Any], run: RunContext | None, holds: bool) -> list[Any]:
        from intarsia.providers.cpu.program.loops.subgraph_programs import body_program

        captured = self.call.captured
        around = {name: inputs[i] if type(i) is int else i for name, i in captured.items()}
        branch = self.call.node.attributes["then_branch" if holds else "else_branch"]
        body, names = body_program(program, branch, (), around)
        given = [around[n] for n in names]
        made = body.run(given, run)
        self.chosen[holds] = body, [captured[n] for n in names], body.plain_segment(given)
        return made

    def again(self, units: _Units, env: dict[str, int], executable: Executable, shapes: Sequence[tuple[int, ...]]) -> Plan:
        made = BranchPlan(env, units, self.call)
        if self.calls is not None:
            made.calls = self.calls.again(units, env)
        return made


class TimedPlan(Plan):
    """Units one after another, each of which is reported with its time."""

    def run(self, program: CpuProgram, inputs: Sequence[Any], run: RunContext | None) -> list[Any]:
        executable = program.executable
        values: dict[str, Any] = dict(zip(program.read, inputs, strict=True))
        env, learned = dict(self.env), executable.learned
        for unit in self.units:
            if run is not None:
                run.check()
            if isinstance(unit, (HostStep, LoopStep)):
                run_step_timed(program, unit, values, env, run)
                made = [name for name in unit.node.outputs if name]
            else:
                segment = unit if isinstance(unit, Segment) else unit.segment
                given = [values[n] for n in segment.inputs]
                for one in wanted(executable, segment):
                    given[one.place] = one.of(given[one.place], env)
                bound = segment.bind_again(env, program.pool.num_threads) if isinstance(unit, Segment) else unit
                values.update(zip(segment.outputs, program.run_segment(bound, given, run), strict=True))
                made = list(segment.outputs)
            for name in made:
                if name in learned:
                    executable.learn(name, values.get(name), env)
        check_known(executable.dynamic_constraints(), env)
        return collected(program, values, inputs, env)


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


def _operands(step: HostStep | LoopStep, executable: Executable) -> tuple[_Operand | None, ...] | None:
    """What the only unit of a program reads, None where omitted. None: that is not all inputs and constants."""
    if any(view is not None for view in step.views):
        return None
    given = {v.name: i for i, v in enumerate(executable.inputs)}
    operands: list[_Operand | None] = []
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
