"""Programs some of whose sizes only a run knows, as calls over numbered values: as `call_list`, with segments that are bound
when they are reached, loops, and branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from intarsia.graph.dims import Shape
from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.result_pool import copied
from intarsia.plan.segment import Segment
from intarsia.plan.size_constraints import check_known
from intarsia.providers.cpu.executable import Executable, HostStep, LoopStep, Unit, learn
from intarsia.providers.cpu.program.boundary_checks import Wanted, wanted
from intarsia.providers.cpu.program.calls.call_list import view_shape
from intarsia.providers.cpu.program.calls.host_steps import step_function

if TYPE_CHECKING:
    from intarsia.ep.provider import RunContext
    from intarsia.providers.cpu.program.cpu_program import CpuProgram

StepFunction = Callable[[Sequence[Any], "RunContext | None"], Sequence[Any]]
"""A host operator, loop or branch: what it makes of its operands and of what its bodies capture."""


class Learned(NamedTuple):
    """A value that says sizes: its number, and symbols with the axis whose size each is, or -1 - i for element i."""

    place: int
    entries: tuple[tuple[str, int], ...]


class DynamicCall(NamedTuple):
    """One unit: a segment that is bound, one that is bound in the run, or neither; the numbers of what it reads and writes;
    which operands are read under another shape, or come from host operators; what its results say of sizes; which symbols a
    segment's sizes follow from besides those that the program's inputs give."""

    bound: BoundSegment | None
    segment: Segment | None
    function: StepFunction | None
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    views: tuple[tuple[int, str, Shape], ...]
    wanted: tuple[Wanted, ...]
    learned: tuple[Learned, ...]
    symbols: tuple[str, ...]


class DynamicCallList:
    """Calls one after the other. Values are the inputs, then constants (`behind`), then what the calls write."""

    def __init__(self, program: CpuProgram, units: Sequence[BoundSegment | Unit], env: Mapping[str, int]) -> None:
        self.program, self.env = program, env
        executable = program.executable
        self._places: dict[str, int] = {v.name: i for i, v in enumerate(executable.inputs)}
        self.behind: list[Any] = []
        self.symbols: list[str] = []  # that calls made known so far
        self.calls = [self._call(unit, executable) for unit in units]
        self.constraints = executable.dynamic_constraints()
        results = zip(executable.outputs, executable.results, strict=True)
        outputs = [(self._place(r.buffer), r.shared, r.view, name) for name, r in results]
        self.places = [place for place, *_ in outputs]
        self.changed = [(i, *output) for i, output in enumerate(outputs) if output[1] or output[2] is not None]

    def again(self, units: Sequence[BoundSegment | Unit], env: Mapping[str, int]) -> DynamicCallList:
        """The same for other sizes, to which the units are bound."""
        made = object.__new__(DynamicCallList)
        vars(made).update(vars(self))
        made.env = env
        made.calls = [
            DynamicCall(unit, *call[1:]) if isinstance(unit, BoundSegment) else call
            for call, unit in zip(self.calls, units, strict=True)
        ]
        return made

    def _place(self, name: str) -> int:
        if name not in self._places:
            executable = self.program.executable
            self._places[name] = len(executable.inputs) + len(self.behind)
            self.behind.append(executable.constants.get(name))
        return self._places[name]

    def _call(self, unit: BoundSegment | Unit, executable: Executable) -> DynamicCall:
        symbols = tuple(self.symbols)
        if isinstance(unit, (HostStep, LoopStep)):
            reads = tuple(map(self._place, unit.reads))
            names = (*unit.node.inputs, *unit.captured)
            views = tuple((i, n, v) for i, (n, v) in enumerate(zip(names, unit.views, strict=True)) if v is not None)
            written = [name or f"{unit.node.outputs}[{i}]" for i, name in enumerate(unit.node.outputs)]
            writes = tuple(map(self._place, written))
            function, learned = step_function(self.program, unit), self._learned(written, executable)
            return DynamicCall(None, None, function, reads, writes, views, (), learned, symbols)
        bound, segment = (unit, None) if isinstance(unit, BoundSegment) else (None, unit)
        form = unit.segment if isinstance(unit, BoundSegment) else unit
        reads, writes = tuple(map(self._place, form.inputs)), tuple(map(self._place, form.outputs))
        checked = wanted(executable, form)
        return DynamicCall(bound, segment, None, reads, writes, (), checked, self._learned(form.outputs, executable), symbols)

    def _learned(self, names: Sequence[str], executable: Executable) -> tuple[Learned, ...]:
        found = tuple(Learned(self._places[n], tuple(executable.learned[n])) for n in names if n in executable.learned)
        self.symbols += [symbol for one in found for symbol, _ in one.entries if symbol not in self.symbols]
        return found

    def run(self, inputs: Sequence[Any], run: RunContext | None) -> list[Any]:
        """The program's outputs, which may lie in the memory of inputs, constants and each other."""
        program, env = self.program, dict(self.env)
        values = [*inputs, *self.behind]
        threads = program.pool.num_threads
        for bound, segment, function, reads, writes, views, checked, learned, symbols in self.calls:
            if run is not None:
                run.check()
            given = [values[i] for i in reads]
            for at, name, dims in views:
                if isinstance(given[at], np.ndarray):
                    given[at] = given[at].reshape(view_shape(name, given[at].shape, dims, env))
            if function is not None:
                made = function(given, run)
            else:
                for one in checked:
                    given[one.place] = one.of(given[one.place], env)
                if segment is not None:
                    bound = segment.bind_again(env, threads, (self, *[env.get(s) for s in symbols]))
                made = program.run_segment(bound, given, run)  # type: ignore[arg-type]
            for place, value in zip(writes, made):  # noqa: B905 - a host operator may give fewer than it has outputs
                values[place] = value
            for place, entries in learned:
                learn(entries, values[place], env)
        check_known(self.constraints, env)
        results = [values[i] for i in self.places]
        for at, place, shared, view, name in self.changed:
            value = values[place]
            if isinstance(value, np.ndarray):
                value = value if view is None else value.reshape(view_shape(name, value.shape, view, env))
                results[at] = copied(value) if shared else value
        return results
