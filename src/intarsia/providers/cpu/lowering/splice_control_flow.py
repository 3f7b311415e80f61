"""If, Loop and Scan as steps of the segment around them: bodies are lowered as graphs of their own and spliced in.

    Loop:  count            If:  jump to `else` unless the condition holds
           jump to `end`         steps of then_branch, move its results
       :   steps of the body     jump to `end`
           move, count     else: steps of else_branch, move its results
           jump back        end:
      end:

Values that a loop carries have one buffer each, which a move writes at the end of an iteration. A body that cannot run without
Python (host operators, sizes that change from one iteration to the next, outputs whose number of rows only the run knows)
stays a host step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.errors import IntarsiaError
from intarsia.graph.dims import Dim, product, symbols_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType, Value, ValueType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.control import trip_type
from intarsia.plan.segment import Buffer, Segment
from intarsia.plan.size_constraints import SEPARATE_BRANCHES, Constraint
from intarsia.plan.step import (
    ALWAYS,
    COUNTED_IF,
    COUNTED_UNLESS,
    STATUS,
    Argument,
    Below,
    Jump,
    KernelCall,
    Ref,
    RenamedCall,
    Sizes,
    Step,
)
from intarsia.primitives import lang as k
from intarsia.providers.cpu.executable import Executable
from intarsia.providers.cpu.kernels.movement import loop_carry_kernels as template

CONTROL = ("If", "Loop", "Scan")
_NO_LIMIT = (1 << 63) - 1
_SERIAL_NBYTES = 1 << 16  # moves of fewer bytes are one thread's


class Surroundings(Protocol):
    """What the lowering of the graph around a node offers (see `lower`)."""

    graph: Graph
    types: dict[str, ValueType]
    target: Target
    defined: set[str]

    def canonical(self, name: str) -> str:
        """The buffer that holds a value."""

    def assumed(self, name: str) -> bool:
        """Whether a value's type is what the model declares, and nothing else tells."""

    def known(self, name: str) -> np.ndarray | None:
        """Elements (ints or symbolic) of a value that is known before the run."""

    def keep(self, name: str, array: np.ndarray) -> None:
        """An array that steps read."""

    def temporary(self, name: str, dtype: DType, shape: Sequence[Dim]) -> str:
        """A buffer that is no value of the graph."""

    def lower(self, graph: Graph) -> tuple[Executable, Mapping[str, ValueType]]:
        """A body as an executable, and the types of its values."""


@dataclass(frozen=True)
class Spliced:
    """Steps that take a node's place, and what must hold of sizes."""

    steps: list[Step | Jump]
    constraints: list[Constraint]


def spliced(node: Node, around: Surroundings) -> Spliced | None:
    """The node's steps, or None where it needs Python."""
    if node.domain or node.op_type not in CONTROL or node.attributes.get(SEPARATE_BRANCHES):
        return None
    try:
        splicer = _Splicer(node, around)
        how = {"If": splicer.branch, "Loop": splicer.loop, "Scan": splicer.scan}
        return Spliced(how[node.op_type](), splicer.constraints)
    except (_NeedsPython, IntarsiaError, k.DefinitionError, KeyError):
        return None


class _NeedsPython(Exception):
    """The node cannot be steps."""


@dataclass(frozen=True)
class Move:
    """A dense block from one buffer to another; a step of 1 or -1 goes through rows of the buffer with the loop's counter."""

    target: str
    source: str
    kind: TensorType
    target_step: int = 0
    source_step: int = 0
    rows: Dim = 1

    @property
    def elements(self) -> Dim:
        return product(self.kind.shape or ())


@dataclass(frozen=True)
class _Body:
    """A lowered body: its steps under names of the surroundings, and where its outputs lie."""

    steps: list[Step | Jump]
    results: list[str]
    types: list[TensorType]


class _Splicer:
    def __init__(self, node: Node, around: Surroundings) -> None:
        self.node, self.around, self.target = node, around, around.target
        self.first = next(n for n in node.outputs if n)
        self.constraints: list[Constraint] = []
        self.where = f"node {node.name!r} ({node.qualified_op})"

    # --- the operators ---

    def branch(self) -> list[Step | Jump]:
        known = self.around.known(self.node.inputs[0])
        if known is not None and known.size == 1 and isinstance(known.reshape(-1)[0], (bool, int, np.bool_)):
            only = self._body(self.node.attributes["then_branch" if known.reshape(-1)[0] else "else_branch"], [], [], "only")
            if len(only.types) != len(self.node.outputs):
                raise _NeedsPython
            return [*only.steps, *self._moves(self._given(only))]
        branches = [self._body(self.node.attributes[name], [], [], name) for name in ("then_branch", "else_branch")]
        wanted = [self._type(name) if name else None for name in self.node.outputs]
        if any(len(body.types) != len(wanted) for body in branches):
            raise _NeedsPython
        self.constraints = [replace(c, branch=True) for c in self.constraints]  # they need not hold where the other branch runs
        for body in branches:
            if any(want is not None and have != want for have, want in zip(body.types, wanted, strict=True)):
                raise _NeedsPython
        then, otherwise = ([*b.steps, *self._moves(self._given(b))] for b in branches)
        return [
            self._jump(len(then) + 2, self._operand(0), 0), *then, self._jump(len(otherwise) + 2), *otherwise, self._jump(1)
        ]  # fmt: skip

    def _given(self, body: _Body) -> list[Move]:
        pairs = zip(self.node.outputs, body.results, body.types, strict=True)
        return [Move(name, source, kind) for name, source, kind in pairs if name]

    def loop(self) -> list[Step | Jump]:
        body: Graph = self.node.attributes["body"]
        initial, states = self.node.inputs[2:], len(self.node.inputs) - 2
        counter, carried = self._counter(), self._carried(initial)
        true = self._constant("true", np.array(True))
        kinds = [trip_type(body), TensorType(DType.BOOL, ()), *(self._type(n) for n in initial)]
        inner = self._body(body, kinds, [counter, true, *carried], "body")
        if len(inner.types) != 1 + len(self.node.outputs) or inner.types[0].dtype is not DType.BOOL:
            raise _NeedsPython
        if inner.types[1 : 1 + states] != kinds[2:]:
            raise _NeedsPython
        scans = [
            Move(name, source, kind, target_step=1, rows=self._rows(name, kind))
            for name, source, kind in zip(
                self.node.outputs[states:], inner.results[1 + states :], inner.types[1 + states :], strict=True
            )
            if name
        ]  # fmt: skip
        after = [*self._moves(scans, counter), *self._back(carried, inner.results[1 : 1 + states], kinds[2:])]
        first = self._given_condition()
        before = self._moves(self._starts(carried, initial))
        return self._looped(before, inner.steps, after, counter, first, inner.results[0], self._limit())

    def scan(self) -> list[Step | Jump]:
        a, count = self.node.attributes, int(self.node.attributes["num_scan_inputs"])
        if self.node.version == 8 or any(a.get("scan_input_axes") or ()) or any(a.get("scan_output_axes") or ()):
            raise _NeedsPython
        states = len(self.node.inputs) - count
        initial, sources = self.node.inputs[:states], self.node.inputs[states:]
        counter, carried = self._counter(), self._carried(initial)
        rows: list[Move] = []
        for i, name in enumerate(sources):
            kind = self._type(name)
            row = TensorType(kind.dtype, (kind.shape or ())[1:])
            step = -1 if (a.get("scan_input_directions") or {i: 0})[i] else 1
            slot = self.around.temporary(f"{self.first}%row{i}", row.dtype, row.shape or ())
            rows.append(Move(slot, self.around.canonical(name), row, source_step=step, rows=(kind.shape or ())[0]))
        kinds = [self._type(n) for n in initial]
        inner = self._body(a["body"], [*kinds, *(r.kind for r in rows)], [*carried, *(r.target for r in rows)], "body")
        if (
            len(inner.types) != len(self.node.outputs)
            or inner.types[:states] != kinds
            or any(r.rows != rows[0].rows for r in rows)
        ):
            raise _NeedsPython
        backward = a.get("scan_output_directions") or [0] * (len(inner.results) - states)
        scans = [
            Move(name, source, kind, target_step=-1 if back else 1, rows=self._rows(name, kind))
            for name, source, kind, back in zip(
                self.node.outputs[states:], inner.results[states:], inner.types[states:], backward, strict=True
            )
            if name
        ]  # fmt: skip
        after = [*self._moves(scans, counter), *self._back(carried, inner.results[:states], kinds)]
        steps = [*self._moves(rows, counter), *inner.steps]
        return self._looped(self._moves(self._starts(carried, initial)), steps, after, counter, "", "", rows[0].rows)

    # --- loops ---

    def _looped(
        self, before: list[Step | Jump], body: list[Step | Jump], after: list[Step | Jump], counter: str, first: str,
        condition: str, limit: Dim | str,
    ) -> list[Step | Jump]:  # fmt: skip
        going = self.around.temporary(f"{self.first}%going", DType.BOOL, ())
        watched = [*body, *after]
        inside = [*watched, self._count(1, counter, going, limit, condition, watched)]
        return [
            *before, self._count(0, counter, going, limit, first), self._jump(len(inside) + 2, going, COUNTED_UNLESS), *inside,
            self._jump(-len(inside), going, 1 | COUNTED_IF),
        ]  # fmt: skip

    def _counter(self) -> str:
        return self.around.temporary(f"{self.first}%trip", DType.INT64, ())

    def _carried(self, initial: Sequence[str]) -> list[str]:
        """A buffer for each carried value: its output's, where that is wanted."""
        if len(self.node.outputs) < len(initial):  # the last are left out
            raise _NeedsPython
        made = []
        for i, (name, output) in enumerate(zip(initial, self.node.outputs, strict=False)):
            kind = self._type(name)
            if output and self._type(output) != kind:
                raise _NeedsPython
            made.append(output or self.around.temporary(f"{self.first}%carried{i}", kind.dtype, kind.shape or ()))
        return made

    def _starts(self, carried: Sequence[str], initial: Sequence[str]) -> list[Move]:
        sources = (self.around.canonical(name) for name in initial)
        return [Move(c, source, self._type(name)) for c, source, name in zip(carried, sources, initial, strict=True)]

    def _back(self, carried: Sequence[str], results: Sequence[str], kinds: Sequence[TensorType]) -> list[Step | Jump]:
        """New carried values into their buffers; those that lie in another one's buffer are set aside before."""
        pairs = [(c, r, kind) for c, r, kind in zip(carried, results, kinds, strict=True) if c != r]
        aside = {
            r: self.around.temporary(f"{self.first}%aside{i}", kind.dtype, kind.shape or ())
            for i, (_, r, kind) in enumerate(pairs) if r in carried
        }  # fmt: skip
        moved = [Move(aside[r], r, kind) for _, r, kind in pairs if r in aside]
        return [*self._moves(moved), *self._moves([Move(c, aside.get(r, r), kind) for c, r, kind in pairs])]

    def _rows(self, name: str, kind: TensorType) -> Dim:
        """Rows of a stacked output; their number must be known before the run, from more than what the model declares."""
        if self.around.assumed(name):
            raise _NeedsPython
        shape = self._type(name).shape or ()
        if not shape or shape[1:] != kind.shape or not symbols_of(shape[0]) <= self.around.defined:
            raise _NeedsPython
        return shape[0]

    def _limit(self) -> Dim | str:
        """The trip count: a number known before the run, or the buffer that holds it."""
        name = self.node.inputs[0] if self.node.inputs else ""
        if not name:
            return _NO_LIMIT
        known = self.around.known(name)
        if known is not None and known.size == 1 and symbols_of(known.reshape(-1)[0]) <= self.around.defined:
            found: Dim = known.reshape(-1)[0]
            return found
        return self._number(name, DType.INT64)

    def _given_condition(self) -> str:
        return self._operand(1) if len(self.node.inputs) > 1 and self.node.inputs[1] else ""

    # --- steps ---

    def _count(
        self, again: int, counter: str, going: str, limit: Dim | str, condition: str, watched: Sequence[Step | Jump] = ()
    ) -> Step:
        """`watched`: the steps just before, which end the loop where they find that something is wrong."""
        first = next((i for i, step in enumerate(watched) if step.checked), len(watched))
        reads = (counter, *(n for n in (condition, limit if isinstance(limit, str) else "") if n))
        text = template.count_text(self.target)
        call = CountCall(again, counter, going, limit, condition, len(watched) - first)
        return self._labelled(Step(text, reads, (counter, going), call, serial=ALWAYS, label="count"))

    def _moves(self, moves: Sequence[Move], counter: str = "") -> list[Step | Jump]:
        if not moves:
            return []
        reads = (*dict.fromkeys(m.source for m in moves), *([counter] if counter else []))
        nbytes: Dim = 0
        for move in moves:
            nbytes = nbytes + move.elements * move.kind.dtype.numpy.itemsize
        step = Step(
            template.move_text(self.target), reads, tuple(m.target for m in moves),
            MoveCall(tuple(moves), counter), serial=Below(nbytes, _SERIAL_NBYTES), label="move",
        )  # fmt: skip
        return [self._labelled(step)]

    def _jump(self, offset: int, condition: str = "", value: int = 1) -> Jump:
        return Jump(offset, condition, value, (self.first,), self.node.op_type, self.where)

    def _labelled(self, step: Step) -> Step:
        step.nodes, step.where = (self.first,), self.where
        return step

    # --- bodies ---

    def _body(self, graph: Graph, kinds: Sequence[TensorType], buffers: Sequence[str], tag: str) -> _Body:
        """The body on inputs of these types that lie in these buffers."""
        around = self.around
        constants = around.graph.constants
        captured = sorted(n for n in graph.captured_names() if n not in constants)
        inner = graph.clone()
        inner.opset_imports = graph.opset_imports or around.graph.opset_imports
        inner.functions = graph.functions or around.graph.functions
        inner.constants.update((n, constants[n]) for n in graph.captured_names() if n in constants)
        given = zip((v.name for v in graph.inputs), kinds, strict=True)
        inner.inputs = [*(Value(n, kind) for n, kind in given), *(Value(n, self._type(n)) for n in captured)]
        executable, types = around.lower(inner)
        self._check(executable)
        prefix = f"{self.first}%{tag}/"
        places = dict(zip(inner.input_names(), [*buffers, *(around.canonical(n) for n in captured)], strict=True))
        places |= self._held(executable, prefix)
        steps: list[Step | Jump] = []
        for segment in executable.segments():
            places |= self._buffers(segment, places, prefix)
            steps += [_renamed(step, places) for step in segment.steps]
            self.constraints += segment.constraints
        self.constraints += executable.constraints
        found = [types.get(name) for name in executable.outputs]
        kinds = [kind for kind in found if isinstance(kind, TensorType) and kind.shape is not None]
        if len(kinds) < len(found):
            raise _NeedsPython
        return _Body(steps, [places[r.buffer] for r in executable.results], kinds)

    def _check(self, executable: Executable) -> None:
        """Raises where the body is not native throughout, where its sizes are not known before the run, or where it divides
        by sizes that may be 0: these need not be looked at where the body does not run."""
        constraints = [*executable.constraints, *(c for segment in executable.segments() for c in segment.constraints)]
        if any(c.kind == "divisor" or c.variant for c in constraints):
            raise _NeedsPython
        if len(executable.units) > 1 or not all(isinstance(u, Segment) for u in executable.units) or executable.sizes:
            raise _NeedsPython
        for symbol, axis in (entry for entries in executable.learned.values() for entry in entries):
            if axis < 0 or symbol not in self.around.defined:
                raise _NeedsPython

    def _held(self, executable: Executable, prefix: str) -> dict[str, str]:
        for name, array in executable.constants.items():
            if array.dtype.hasobject:
                raise _NeedsPython
            self.around.keep(f"{prefix}{name}", array)
        return {name: f"{prefix}{name}" for name in executable.constants}

    def _buffers(self, segment: Segment, places: Mapping[str, str], prefix: str) -> dict[str, str]:
        """New names for what the body's steps write."""
        made: dict[str, str] = {}
        for name, buffer in segment.buffers.items():
            if name not in places:
                made[name] = self._temporary(f"{prefix}{name}", buffer)
        return made

    def _temporary(self, name: str, buffer: Buffer) -> str:
        if any(not symbols_of(d) <= self.around.defined for d in buffer.shape):
            raise _NeedsPython
        return self.around.temporary(name, buffer.dtype, buffer.shape)

    def _operand(self, index: int) -> str:
        """The buffer of a condition, which must be one."""
        return self._number(self.node.inputs[index], DType.BOOL)

    def _number(self, name: str, dtype: DType) -> str:
        """The buffer of a value that must have one element of this type."""
        kind = self._type(name)
        if kind.dtype is not dtype or product(kind.shape or ()) != 1:
            raise _NeedsPython
        return self.around.canonical(name)

    def _constant(self, what: str, array: np.ndarray) -> str:
        self.around.keep(f"{self.first}%{what}", array)
        return f"{self.first}%{what}"

    def _type(self, name: str) -> TensorType:
        kind = self.around.types.get(name)
        if not isinstance(kind, TensorType) or kind.shape is None or kind.dtype is DType.STRING or kind.dtype.bits < 8:
            raise _NeedsPython
        if any(not symbols_of(d) <= self.around.defined for d in kind.shape):
            raise _NeedsPython
        return kind


def _renamed(step: Step | Jump, places: Mapping[str, str]) -> Step | Jump:
    if isinstance(step, Jump):
        return replace(step, condition=places.get(step.condition, step.condition))
    reads, writes = (tuple(places.get(n, n) for n in names) for names in (step.reads, step.writes))
    used = {n: places[n] for n in (*step.reads, *step.writes) if n in places}
    return replace(step, reads=reads, writes=writes, call=RenamedCall(step.call, used))


@dataclass(frozen=True)
class CountCall(KernelCall):
    """Counts trips up to `limit`, a number or a buffer; looks at the reports of the `watched` steps before it."""

    again: int
    counter: str
    going: str
    limit: Dim | str
    condition: str
    watched: int

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        limit, watched = self.limit, self.watched
        at: list[Argument] = [Ref(limit), 0] if isinstance(limit, str) else [0, size(limit)]
        status = Ref(STATUS, -8 * watched) if watched else 0
        condition = Ref(self.condition) if self.condition else 0
        return [self.again, Ref(self.counter), Ref(self.going), *at, condition, status, watched]


@dataclass(frozen=True)
class MoveCall(KernelCall):
    """Copies rows, those of the trip that `counter` counts."""

    moves: tuple[Move, ...]
    counter: str

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        arguments: list[Argument] = [len(self.moves), Ref(self.counter) if self.counter else 0]
        for move in self.moves:
            nbytes = size(move.elements) * move.kind.dtype.numpy.itemsize
            last = max(0, size(move.rows) - 1) * nbytes
            for name, step in ((move.target, move.target_step), (move.source, move.source_step)):
                arguments += [Ref(name, last if step < 0 else 0), step * nbytes]
            arguments.append(nbytes)
        return arguments
