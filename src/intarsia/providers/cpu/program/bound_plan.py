"""Programs bound to input shapes. How a run of one goes is chosen when it is bound: each way is a kind of `Plan`.

Those of one native segment and of call lists are here; `calls/dynamic_plans.py` has those that need more of Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from intarsia.graph.dims import symbols_of
from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.result_pool import copied
from intarsia.providers.cpu.executable import Executable, Unit
from intarsia.providers.cpu.program.calls.call_list import CallList, call_list_of, view_shape

if TYPE_CHECKING:
    from intarsia.ep.program import FeedCall, RunContext
    from intarsia.providers.cpu.program.cpu_program import CpuProgram

_RESULT, _INPUT, _CONSTANT = range(3)
_Shape = tuple[int, ...]
_Units = list[BoundSegment | Unit]


class Plan:
    """A program bound to input shapes: what can be bound before data is seen, and how it is run.

    Attributes:
        env, units: the sizes, and the program's units with those segments bound that they are all of the sizes of.
        single: the only unit, where it is a native segment that is bound, and nothing has to be compared behind it.
        picks: which of the program's inputs that segment takes, in its order; None: all, as they come.
        made: which of that segment's results each output is; None where one is something else, or a copy.
        reshaped: whether one of them has another shape than the result.
        feed: the function of a feed that does the same, or None; once a session has looked for it.
    """

    single: BoundSegment | None = None
    picks: tuple[int, ...] | None = None
    made: tuple[int, ...] | None = None
    reshaped = False
    feed: tuple[FeedCall | None] | None = None

    def __init__(self, env: dict[str, int], units: _Units) -> None:
        self.env, self.units = env, units

    def run(self, program: CpuProgram, inputs: Sequence[Any], run: RunContext | None) -> list[Any]:
        """The outputs of `program`, whose plan it is, for inputs of these shapes."""
        raise NotImplementedError(f"{type(self).__name__}.run")

    def again(self, units: _Units, env: dict[str, int], executable: Executable, shapes: Sequence[_Shape]) -> Plan:
        """The same for other sizes, to which the units are bound. `shapes` are those of the inputs, which are all arrays."""
        made = object.__new__(type(self))
        made.env, made.units = env, units  # one by one: no dict is made of attributes that are set so
        return made

    def results(self) -> list[tuple[int, _Shape]] | None:
        """For each output which of the segment's results it is, and its shape; None where `made` is."""
        return None


class SegmentPlan(Plan):
    """One native segment, whose results are the outputs."""

    single: BoundSegment
    made: tuple[int, ...]

    def __init__(self, env: dict[str, int], single: BoundSegment, picks: tuple[int, ...] | None) -> None:
        super().__init__(env, [single])
        self.single, self.picks, self.made = single, picks, tuple(range(len(single.segment.outputs)))

    def run(self, program: CpuProgram, inputs: Sequence[Any], run: RunContext | None) -> list[Any]:
        picks = self.picks
        return program.run_segment(self.single, inputs if picks is None else [inputs[i] for i in picks], run)

    def again(self, units: _Units, env: dict[str, int], executable: Executable, shapes: Sequence[_Shape]) -> Plan:
        made, (single,) = object.__new__(SegmentPlan), units
        assert isinstance(single, BoundSegment)
        made.env, made.units = env, units
        made.single, made.picks, made.made = single, self.picks, self.made
        return made

    def results(self) -> list[tuple[int, _Shape]] | None:
        return [(i, shape) for i, (shape, _) in enumerate(self.single.outputs)]


class Source(NamedTuple):
    """Where an output comes from: a result of the segment or an input, by its position, or a constant, which is the array; its
    shape where that is another; whether it is copied."""

    kind: int
    which: Any
    shape: _Shape | None
    copies: bool


class ArrangedPlan(Plan):
    """One native segment or none, with outputs among its results, inputs and constants."""

    def __init__(
        self, env: dict[str, int], single: BoundSegment | None, picks: tuple[int, ...] | None, sources: tuple[Source, ...]
    ) -> None:
        super().__init__(env, [] if single is None else [single])
        self.single, self.picks, self.sources = single, picks, sources
        if all(source.kind == _RESULT and not source.copies for source in sources):
            self.made = tuple([source.which for source in sources])
        self.reshaped = any(source.shape is not None for source in sources)

    def run(self, program: CpuProgram, inputs: Sequence[Any], run: RunContext | None) -> list[Any]:
        single = self.single
        if single is not None:
            picks = self.picks
            results = program.run_segment(single, inputs if picks is None else [inputs[i] for i in picks], run)
        elif run is not None:
            run.check()
        found = []
        for kind, which, shape, copies in self.sources:
            value = results[which] if kind == _RESULT else inputs[which] if kind == _INPUT else which
            if shape is not None:
                value = value.reshape(shape)
            found.append(copied(value) if copies else value)
        return found

    def again(self, units: _Units, env: dict[str, int], executable: Executable, shapes: Sequence[_Shape]) -> Plan:
        made, single = object.__new__(ArrangedPlan), units[0] if units else None
        assert single is None or isinstance(single, BoundSegment)
        made.env, made.units, made.single = env, units, single
        made.picks, made.made, made.reshaped, made.sources = self.picks, self.made, self.reshaped, self.sources
        if self.reshaped:
            named = {value.name: shape for value, shape in zip(executable.inputs, shapes, strict=False)}
            sources = _sources(made.single, executable, env, named)
            assert sources is not None  # the same symbols are known as were before
            made.sources = sources
        return made

    def results(self) -> list[tuple[int, _Shape]] | None:
        single = self.single
        if self.made is None or single is None:
            return None
        return [(s.which, single.outputs[s.which][0] if s.shape is None else s.shape) for s in self.sources]


class NamedPlan(Plan):
    """One native segment, with outputs that are looked up by name, as where one is no array or of a size that the run says."""

    single: BoundSegment

    def __init__(self, env: dict[str, int], single: BoundSegment, picks: tuple[int, ...] | None) -> None:
        super().__init__(env, [single])
        self.single, self.picks = single, picks

    def run(self, program: CpuProgram, inputs: Sequence[Any], run: RunContext | None) -> list[Any]:
        single, picks, executable = self.single, self.picks, program.executable
        results = program.run_segment(single, inputs if picks is None else [inputs[i] for i in picks], run)
        values, env = dict(zip(single.segment.outputs, results, strict=True)), dict(self.env)
        for name in executable.learned.keys() & values.keys():
            executable.learn(name, values[name], env)
        return collected(program, values, inputs, env)

    def again(self, units: _Units, env: dict[str, int], executable: Executable, shapes: Sequence[_Shape]) -> Plan:
        made, (single,) = object.__new__(NamedPlan), units
        assert isinstance(single, BoundSegment)
        made.env, made.units = env, units
        made.single, made.picks = single, self.picks
        return made


class CallListPlan(Plan):
    """Bound segments and functions of host operators, one after another."""

    def __init__(self, env: dict[str, int], units: _Units, calls: CallList) -> None:
        super().__init__(env, units)
        self.calls = calls

    def run(self, program: CpuProgram, inputs: Sequence[Any], run: RunContext | None) -> list[Any]:
        return self.calls.run(inputs, program.run_segment, run, program.inner)

    def again(self, units: _Units, env: dict[str, int], executable: Executable, shapes: Sequence[_Shape]) -> Plan:
        return CallListPlan(env, units, self.calls.again(units, env))


def plan_of(program: CpuProgram, env: dict[str, int], units: _Units, inputs: Sequence[Any]) -> Plan | None:
    """The plan of `program` for `inputs` of these sizes, to which `units` are bound; None where these are neither one bound
    segment nor a call list (`dynamic_plans` has the others)."""
    executable = program.executable
    only = units[0] if len(units) == 1 else None
    single = only if isinstance(only, BoundSegment) and not executable.dynamic_constraints() else None
    if single is not None or not units:
        plan = _native_plan(executable, env, single, inputs)
        if plan is not None:
            return plan
    if program.context.on_step is not None:
        return None
    calls = call_list_of(executable, units, env, program.functions())
    return None if calls is None else CallListPlan(env, units, calls)


def _native_plan(
    executable: Executable, env: dict[str, int], single: BoundSegment | None, inputs: Sequence[Any]
) -> Plan | None:  # fmt: skip
    """The plan of one segment or none; None where there is none, and outputs are not all arrays."""
    picks: tuple[int, ...] | None = None
    if single is not None:
        segment, names = single.segment, tuple(v.name for v in executable.inputs)
        picks = None if segment.inputs == names else tuple(names.index(n) for n in segment.inputs)
        if segment.outputs == executable.outputs:
            return SegmentPlan(env, single, picks)
    shapes = {v.name: x.shape for v, x in zip(executable.inputs, inputs, strict=True) if isinstance(x, np.ndarray)}
    sources = _sources(single, executable, env, shapes)
    if sources is not None:
        return ArrangedPlan(env, single, picks, sources)
    return None if single is None else NamedPlan(env, single, picks)


def _sources(
    single: BoundSegment | None, executable: Executable, env: Mapping[str, int], shapes: Mapping[str, _Shape]
) -> tuple[Source, ...] | None:
    """Where all outputs come from, where they are arrays. `shapes` are those of the inputs that are."""
    given = {v.name: i for i, v in enumerate(executable.inputs) if v.name in shapes}
    made = {} if single is None else {name: i for i, name in enumerate(single.segment.outputs)}
    sources = []
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
        sources.append(Source(kind, which, shape, result.shared))
    return tuple(sources)


def collected(program: CpuProgram, values: Mapping[str, Any], inputs: Sequence[Any], env: Mapping[str, int]) -> list[Any]:
    """The outputs of a program, by name, from the `values` that its units made, its inputs and its constants."""
    given = dict(zip(program.read, inputs, strict=True))
    out = []
    for name, result in zip(program.outputs, program.executable.results, strict=True):
        value = values.get(result.buffer)
        if value is None:
            value = given.get(result.buffer)
        if value is None:
            value = program.executable.constants.get(result.buffer)
        if isinstance(value, np.ndarray) and result.view is not None:
            value = value.reshape(view_shape(name, value.shape, result.view, env))
        out.append(copied(value) if result.shared and isinstance(value, np.ndarray) else value)
    return program.own(out, inputs) if program.lends else out
