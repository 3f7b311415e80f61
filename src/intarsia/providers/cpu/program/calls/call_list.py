"""Programs of native segments and host operators as calls over numbered values: nothing is looked up by name in a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from intarsia.errors import NodeFailed
from intarsia.graph.dims import Shape, evaluate, format_shape
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.result_pool import LEAST, copied
from intarsia.plan.size_constraints import check_empty
from intarsia.providers.cpu.executable import Executable, HostStep, Unit

if TYPE_CHECKING:
    from intarsia.ep.provider import RunContext
    from intarsia.ops.framework.evaluate import Evaluate
    from intarsia.plan.segment import Segment
    from intarsia.providers.cpu.program.boundary_checks import Wanted

_WIDEST = 16  # bytes of an element
_RunSegment = Callable[[BoundSegment, Sequence[np.ndarray], "RunContext | None"], list[Any]]


@dataclass(frozen=True)
class View:
    """A value that is known under another shape than its buffer's."""

    name: str
    dims: Shape
    env: Mapping[str, int]

    def at(self, env: Mapping[str, int]) -> View:
        """The same for other sizes."""
        return View(self.name, self.dims, env)

    def of(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        return value.reshape(view_shape(self.name, value.shape, self.dims, self.env))


@dataclass(frozen=True)
class Operand:
    """What a segment reads of what a host operator makes."""

    wanted: Wanted
    env: Mapping[str, int]

    def at(self, env: Mapping[str, int]) -> Operand:
        """The same for other sizes."""
        return Operand(self.wanted, env)

    def of(self, value: Any) -> Any:
        return self.wanted.of(value, self.env)


class Call(NamedTuple):
    """A bound segment, or a host operator as a function; numbers of the values that it reads and writes; which of a host
    operator's operands are read under another shape, and which of a segment's come from host operators."""

    segment: BoundSegment | None
    function: Evaluate | None
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    views: tuple[tuple[int, View | Operand], ...]


def _viewed(call: Call, env: Mapping[str, int]) -> Call:
    return call._replace(views=tuple([(i, view.at(env)) for i, view in call.views])) if call.views else call


class Output(NamedTuple):
    """Where an output is, whether it is an input or a constant or another output too, its shape where that is another."""

    place: int
    shared: bool
    view: View | None


class CallList:
    """Calls one after the other. Values are the inputs, then constants (`behind`), then what the calls write."""

    def __init__(self, calls: Sequence[Call], outputs: Sequence[Output], behind: Sequence[Any]) -> None:
        self.calls, self.outputs, self.behind = tuple(calls), tuple(outputs), list(behind)
        self.taken = roots(behind)
        self.places = [output.place for output in outputs]
        self.moved = any(output.view is not None for output in outputs)
        self.alone = None if self.moved else self._only_function()
        self.made = not self.moved and self._all_made()

    def again(self, units: Sequence[BoundSegment | Unit], env: Mapping[str, int]) -> CallList:
        """The same for other sizes, to which the units are bound."""
        made = object.__new__(CallList)
        vars(made).update(vars(self))
        made.calls = tuple(
            [
                _viewed(call._replace(segment=unit) if isinstance(unit, BoundSegment) else call, env)
                for call, unit in zip(self.calls, units, strict=True)
            ]
        )
        if self.moved:
            made.outputs = tuple([o if o.view is None else o._replace(view=o.view.at(env)) for o in self.outputs])
        return made

    def run(self, inputs: Sequence[Any], run_segment: _RunSegment, run: RunContext | None, inner: bool) -> list[Any]:
        """The outputs; the caller's own unless it is the body of another program (`inner`), which goes on with them."""
        if self.alone is not None and run is None and not inner:
            results = self.alone(inputs)
            return results if self._is_new(results, inputs) else owned(results, inputs, self.taken)
        values = [*inputs, *self.behind]
        for segment, function, reads, writes, views in self.calls:
            if run is not None:
                run.check()
            given = [values[i] for i in reads]
            for at, view in views:
                given[at] = view.of(given[at])
            made = function(given) if function is not None else run_segment(segment, given, run)  # type: ignore[arg-type]
            for place, value in zip(writes, made):  # noqa: B905 - as many: a keyword would cost as much as the loop
                values[place] = value
        results = [values[i] for i in self.places]
        if self.made:
            return results
        if self.moved:
            results = [value if o.view is None else o.view.of(value) for value, o in zip(results, self.outputs, strict=True)]
        if not inner:
            return results if self._is_new(results, inputs) else owned(results, inputs, self.taken)
        return [copied(v) if o.shared and isinstance(v, np.ndarray) else v for v, o in zip(results, self.outputs, strict=True)]

    def _all_made(self) -> bool:
        """Whether segments write all outputs, each into memory of its own."""
        written = {place for call in self.calls if call.segment is not None for place in call.writes}
        return written.issuperset(self.places) and not any(output.shared for output in self.outputs)

    def _only_function(self) -> Evaluate | None:
        """The host operator that takes and gives what the program does, where that is all."""
        if len(self.calls) != 1 or self.behind[: -len(self.calls[0].writes)]:
            return None
        only = self.calls[0]
        all_inputs = only.reads == tuple(range(len(only.reads))) and len(only.reads) == min(only.writes, default=0)
        return only.function if all_inputs and not only.views and list(only.writes) == self.places else None

    def _is_new(self, results: Sequence[Any], inputs: Sequence[Any]) -> bool:
        """Whether the result is one array with memory of its own, as most are: `owned` would look at more than that."""
        if len(results) != 1:
            return False
        value = results[0]
        if type(value) is not np.ndarray or value.base is not None or not value.flags.c_contiguous:
            return False
        for x in inputs:
            if x is value or type(x) is list:
                return False
        return id(value) not in self.taken


def call_list_of(
    executable: Executable, units: Sequence[BoundSegment | Unit], env: Mapping[str, int], functions: Mapping[int, Evaluate]
) -> CallList | None:
    """A program as a call list; None where a unit is neither a bound segment nor one of `functions` (by the step's id), or
    sizes that shapes are made of, or that must be compared, are known only in a run."""
    if executable.dynamic_constraints():
        return None
    places: dict[str, int] = {v.name: i for i, v in enumerate(executable.inputs)}
    behind: list[Any] = []

    def place(name: str) -> int:
        if name not in places:
            places[name] = len(executable.inputs) + len(behind)
            behind.append(executable.constants.get(name))
        return places[name]

    def view(name: str, dims: Shape | None) -> View | None:
        if dims is not None:
            for d in dims:
                evaluate(d, env)
        return None if dims is None else View(name, dims, env)

    calls = []
    try:
        for unit in units:
            if isinstance(unit, BoundSegment):
                segment, given = unit.segment, _operands(executable, unit.segment, env)
                calls.append(Call(unit, None, tuple(map(place, segment.inputs)), tuple(map(place, segment.outputs)), given))
                continue
            function = functions.get(id(unit)) if isinstance(unit, HostStep) else None
            if function is None or not isinstance(unit, HostStep):
                return None
            found = [(i, view(n, dims)) for i, (n, dims) in enumerate(zip(unit.node.inputs, unit.views, strict=True))]
            views = tuple((i, v) for i, v in found if v is not None)
            written = tuple(place(name or f"{unit.node.outputs}[{i}]") for i, name in enumerate(unit.node.outputs))
            calls.append(Call(None, function, tuple(map(place, unit.reads)), written, views))
        results = zip(executable.outputs, executable.results, strict=True)
        outputs = [Output(place(r.buffer), r.shared, view(name, r.view)) for name, r in results]
    except (KeyError, ValueError, ZeroDivisionError):
        return None
    return CallList(calls, outputs, behind)


def _operands(executable: Executable, segment: Segment, env: Mapping[str, int]) -> tuple[tuple[int, Operand], ...]:
    """What a segment reads that host operators make."""
    if not any(isinstance(unit, HostStep) for unit in executable.units):
        return ()
    from intarsia.providers.cpu.program.boundary_checks import wanted

    return tuple([(w.place, Operand(w, env)) for w in wanted(executable, segment)])


def owned(results: Sequence[Any], inputs: Iterable[Any], taken: Iterable[int]) -> list[Any]:
    """`results` as the caller's own: row-major, and copied where they lie in the memory of an input, of another result, or of
    an array whose root (`roots`) is `taken`. Sequences are copied element by element where that is so."""
    seen = set(taken)
    _note(inputs, seen)
    return _own(results, seen)


def _own(values: Sequence[Any], seen: set[int]) -> list[Any]:
    found = []
    for value in values:
        if type(value) is np.ndarray:
            root = id(value if value.base is None else _root(value))
            if root in seen or not value.flags.c_contiguous:
                value = value.copy() if value.nbytes < LEAST else copied(value)
            else:
                seen.add(root)
        elif type(value) is list:
            value = _own(value, seen)
        found.append(value)
    return found


def roots(values: Iterable[Any]) -> frozenset[int]:
    """Ids of the objects in whose memory arrays lie; of sequences, those of their elements."""
    found: set[int] = set()
    _note(values, found)
    return frozenset(found)


def _note(values: Iterable[Any], found: set[int]) -> None:
    for value in values:
        if isinstance(value, np.ndarray):
            found.add(id(value if value.base is None else _root(value)))
        elif type(value) is list:
            _note(value, found)


def _root(array: np.ndarray) -> Any:
    found: Any = array
    while (base := getattr(found, "base", None)) is not None:
        found = base
    return found


def view_shape(name: str, given: tuple[int, ...], dims: Shape, env: Mapping[str, int]) -> tuple[int, ...]:
    """The shape under which a value of shape `given` is known. Raises NodeFailed where it cannot have that."""
    try:
        shape = tuple(evaluate(d, env) for d in dims)
    except (ValueError, ZeroDivisionError) as error:
        raise NodeFailed(f"value {name!r} cannot have the shape {format_shape(dims)}: {error}") from None
    size = math.prod(given)
    if math.prod(shape) != size or min(shape, default=0) < 0:
        described = f"{list(given)} ({size} elements)"
        raise NodeFailed(f"value {name!r}: {described} cannot be reshaped to {list(shape)} ({math.prod(shape)} elements)")
    if not size:
        check_empty(name, shape, _WIDEST)
    return shape
