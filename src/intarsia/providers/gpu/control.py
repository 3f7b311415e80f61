"""If, Loop and Scan on a device: bodies become launches in place, which the plan repeats or leaves out.

What a loop carries lies in one buffer each, which the end of an iteration overwrites; rows of stacked outputs are written where
they belong, by a counter in the device's memory. The host reads conditions (and trip counts that the device computes), nothing
else. A loop whose body needs the number of its iteration as a number (a slice, sizes that grow) is written out, iteration by
iteration, where the trip count is known before the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from intarsia.codegen.clike.loop_steps import Write, row
from intarsia.codegen.clike.split_into_kernels import wide_type
from intarsia.errors import EPFail, IntarsiaError
from intarsia.graph.dims import number_of, numbers_of, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.control import trip_type
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.primitives.substitute import as_scalar
from intarsia.providers.gpu.decompositions import DOMAIN
from intarsia.providers.gpu.decompositions.suppression import lower_suppress
from intarsia.providers.gpu.launch_ranges import NO_LIMIT
from intarsia.providers.gpu.recurrent import RECURRENT, count

if TYPE_CHECKING:
    from intarsia.providers.gpu.binder import Scope, Work

MOST_WRITTEN_OUT = 256  # iterations
Rule = Callable[["Scope", Node], None]


class Stack:
    """An output with a row for each iteration. Elements that are packed wait in a type that is not."""

    def __init__(self, work: Work, dtype: DType, shape: Sequence[int], rows: int) -> None:
        packed = work.dialect.packed(dtype) > 1
        self.work, self.dtype, self.shape, self.rows = work, dtype, tuple(shape), rows
        self.room = work.room(wide_type(dtype) if packed else dtype, (rows, *shape))

    def put(self, value: Tensor, at: Tensor | None = None, number: int = 0) -> None:
        """Write the row with this number, or the one that an int32 on the device says."""
        cut, elements = self.work.cut, number_of(product(self.shape))
        if not self.rows:
            return
        root = cut.store(cut.settle(k.cast(value, self.room.dtype)))
        write = Write(root, self.rows * elements, at, elements if at is not None else 0, number * elements)
        cut.launch_step([write], [self.room.attrs[0]])

    def value(self, axis: int = 0) -> Tensor:
        stacked = k.cast(self.room, self.dtype)
        at = axis % stacked.rank
        return k.transpose(stacked, [*range(1, at + 1), 0, *range(at + 1, stacked.rank)])


# --- If ---------------------------------------------------------------------------------------------------------------


def lower_if(scope: Scope, node: Node) -> None:
    """The branch that is taken where that is known, else both, with a condition that the host reads."""
    names = ("then_branch", "else_branch")
    known = scope.number(node.inputs[0])
    if known is not None:
        name = names[0 if known.reshape(-1)[0] else 1]
        for output, value in zip(
            node.outputs, _lowered(scope, node.attributes[name], [], f"{node.outputs[0]}.{name}"), strict=True
        ):
            _give(scope, output, value)
        return
    condition = scope.stored(node.inputs[0])
    for name in names:
        scope.hold(node.attributes[name])
    region = scope.work.region(condition=_name_of(scope, condition))
    rooms: list[Tensor] = []
    for i, name in enumerate(names):
        if i:
            region.middle = len(scope.cut.jobs)
        values = _lowered(scope, node.attributes[name], [], f"{node.outputs[0]}.{name}")
        if not i:
            rooms = [scope.work.room(v.dtype, numbers_of(v.shape)) for v in values]
        for room, value in zip(rooms, values, strict=True):
            if room.shape != value.shape:
                shapes = f"{list(room.shape)} and {list(value.shape)}"
                raise EPFail(f"{scope.cut.node} cannot run on {scope.work.gpu.device}: its branches give shapes {shapes}")
            scope.work.fill(room, value)
    region.stop = len(scope.cut.jobs)
    for output, room in zip(node.outputs, rooms, strict=True):
        _give(scope, output, room)


def _lowered(scope: Scope, graph: Graph, given: Sequence[Tensor | np.ndarray], prefix: str) -> list[Tensor]:
    """The outputs of a body, settled."""
    inner = scope.inner(graph, given, prefix)
    inner.lower()
    return [inner.cut.settle(inner.value(name)) for name in graph.output_names()]


def _give(scope: Scope, name: str, value: Tensor) -> None:
    if name:
        scope.give(name, value)


def _name_of(scope: Scope, stored: Tensor) -> str:
    """Under which name a stored value lies, for the host to read."""
    while stored.prim == "reshape":
        stored = stored.args[0]
    if stored.prim != "input":
        stored = scope.work.filled(stored)
    return str(stored.attrs[0])


# --- Loop -------------------------------------------------------------------------------------------------------------


def lower_loop(scope: Scope, node: Node) -> None:
    body: Graph = node.attributes["body"]
    limit = scope.number(node.inputs[0]) if node.inputs and node.inputs[0] else None
    trips = max(int(limit.reshape(-1)[0]), 0) if limit is not None else NO_LIMIT
    given = node.inputs[1] if len(node.inputs) > 1 else ""
    first = scope.number(given) if given else np.array(True)
    if first is not None and not first.reshape(-1)[0]:
        trips = 0
    if _is_steady(scope, node, body):
        _repeated(scope, node, body, trips, given, first is None)
    elif 0 <= trips <= MOST_WRITTEN_OUT:
        _written_out(scope, node, body, trips)
    else:
        why = "what its body carries changes in size, or needs the number of the iteration as a number"
        raise EPFail(f"{scope.cut.node} cannot run on {scope.work.gpu.device}: {why}")


def _is_steady(scope: Scope, node: Node, body: Graph) -> bool:
    """Whether one body serves all iterations: nothing in it is known only with the iteration, and no size changes."""
    states = [scope.value(n) for n in node.inputs[2:]]
    trip, going = (Tensor("input", (), ("%",), t.dtype, t.shape or ()) for t in (trip_type(body), TensorType(DType.BOOL, ())))
    try:
        found = scope.inner(body, [trip, going, *states], "probe").inference
    except IntarsiaError:
        return False
    outputs = [found.types.get(v.name) for v in body.outputs]
    carried = zip(states, outputs[1 : 1 + len(states)], strict=True)
    if any(getattr(t, "shape", None) != s.shape for s, t in carried):
        return False
    static = all(isinstance(d, int) for t in outputs for d in (getattr(t, "shape", None) or ()))
    return (
        static and not found.unknown and all(n.outputs[0] in found.traces or lowering(n) is not None for n in found.graph.nodes)
    )


def _repeated(scope: Scope, node: Node, body: Graph, trips: int, given: str, tests_first: bool) -> None:
    work, cut = scope.work, scope.cut
    states = [work.filled(scope.value(n)) for n in node.inputs[2:]]
    counter, region_reads = work.counter(), {}
    if trips == NO_LIMIT and node.inputs[0]:
        region_reads["limit"] = _name_of(scope, scope.stored(node.inputs[0]))
    if tests_first:
        region_reads["first"] = _name_of(scope, scope.stored(given))
    scope.hold(body)
    region = work.region(count=trips, **region_reads)
    trip = k.reshape(k.cast(counter, DType.INT64), trip_type(body).shape or ())
    inner = scope.inner(body, [trip, np.array(True), *states], f"{node.outputs[0]}.body")
    inner.lower()
    names = body.output_names()
    going = inner.number(names[0])
    if going is None:
        region.condition = _name_of(scope, work.filled(inner.value(names[0])))
    elif not going.reshape(-1)[0]:
        region.count = min(trips, 1) if trips != NO_LIMIT else 1
    rows = [inner.value(n) for n in names[1 + len(states) :]]
    if rows and (trips == NO_LIMIT or region.condition):
        raise EPFail(f"{cut.node} cannot run on {work.gpu.device}: how many rows it stacks is known only at run time")
    stacks = [Stack(work, r.dtype, numbers_of(r.shape), region.count) for r in rows]
    for stack, value in zip(stacks, rows, strict=True):
        stack.put(value, counter)
    _carry(work, states, [inner.value(n) for n in names[1 : 1 + len(states)]])
    count(work, counter)
    region.stop = len(cut.jobs)
    for output, value in zip(node.outputs, [*states, *(s.value() for s in stacks)], strict=False):
        _give(scope, output, value)


def _carry(work: Work, states: Sequence[Tensor], new: Sequence[Tensor]) -> None:
    """What an iteration makes into the buffers of what it was given, all at once."""
    cut = work.cut
    pairs = [(s, v) for s, v in zip(states, new, strict=True) if v is not s]
    alone = len(pairs) == 1
    ready = [v if alone and _is_plain(cut.settle(v), s) else cut.store(cut.settle(v)) for s, v in pairs]
    ours = {s.attrs[0] for s in states}
    aside = [work.filled(v) if v.prim == "input" and v.attrs[0] in ours else v for v in ready]
    for (state, _), value in zip(pairs, aside, strict=True):
        work.fill(state, value)


def _is_plain(value: Tensor, state: Tensor) -> bool:
    """Whether a value can be written over a state without having been stored: it does not read it."""
    return all(t.prim != "input" or t.attrs[0] != state.attrs[0] for t in k.walk([value]))


def _written_out(scope: Scope, node: Node, body: Graph, trips: int) -> None:
    """One body after the other."""
    work, states = scope.work, [scope.value(n) for n in node.inputs[2:]]
    scope.hold(body)
    collected: list[list[Tensor]] = []
    for i in range(trips):
        outputs = _lowered_or_known(scope, body, [_trip(body, i), np.array(True), *states], f"{node.outputs[0]}.body")
        states = [work.cut.store(t) if not isinstance(t, np.ndarray) else t for t in outputs[1 : 1 + len(states)]]  # type: ignore[misc]
        collected.append([_as_tensor(work, t) for t in outputs[1 + len(states) :]])
        going = outputs[0]
        if not isinstance(going, np.ndarray):
            why = "it ends when its condition says so, and what it carries changes in size"
            raise EPFail(f"{work.cut.node} cannot run on {work.gpu.device}: {why}")
        if not going.reshape(-1)[0]:
            break
    if not trips:
        probe = scope.inner(body, [_trip(body, 0), np.array(True), *states], f"{node.outputs[0]}.body").inference.types
        kinds = [probe[v.name] for v in body.outputs[1 + len(states) :]]
        stacks = []
        for kind in kinds:
            assert isinstance(kind, TensorType) and kind.shape is not None
            stacks.append(Stack(work, kind.dtype, numbers_of(kind.shape), 0))
    else:
        stacks = [Stack(work, t.dtype, numbers_of(t.shape), len(collected)) for t in collected[0]]
    for i, values in enumerate(collected):
        for stack, value in zip(stacks, values, strict=True):
            stack.put(value, number=i)
    for output, value in zip(
        node.outputs, [*(_as_tensor(work, s) for s in states), *(s.value() for s in stacks)], strict=False
    ):
        _give(scope, output, value)


def _trip(body: Graph, i: int) -> np.ndarray:
    return np.full(numbers_of(trip_type(body).shape or ()), i, np.int64)


def _lowered_or_known(
    scope: Scope, graph: Graph, given: Sequence[Tensor | np.ndarray], prefix: str
) -> list[Tensor | np.ndarray]:
    inner = scope.inner(graph, given, prefix)
    inner.lower()
    known = [inner.number(name) for name in graph.output_names()]
    return [
        n if n is not None and n.size == 1 else inner.cut.settle(inner.value(name))
        for n, name in zip(known, graph.output_names(), strict=True)
    ]


def _as_tensor(work: Work, value: Tensor | np.ndarray) -> Tensor:
    if not isinstance(value, np.ndarray):
        return value
    return as_scalar(value.reshape(()).item(), DType.of(value.dtype), value.shape)


# --- Scan -------------------------------------------------------------------------------------------------------------


def lower_scan(scope: Scope, node: Node) -> None:
    a = node.attributes
    body: Graph = a["body"]
    sources = int(a["num_scan_inputs"])
    inputs = node.inputs[1:] if node.version == 8 else node.inputs
    states, given = ([scope.value(n) for n in part] for part in (inputs[:-sources], inputs[-sources:]))
    made = len(body.outputs) - len(states)
    backward = _each(a.get("scan_input_directions") or a.get("directions"), sources)
    flipped = _each(a.get("scan_output_directions"), made)
    if node.version == 8:
        _scan_of_batch(scope, node, body, states, given, backward)
        return
    axes = _each(a.get("scan_input_axes"), sources)
    given = [_front(x, axis % x.rank) for x, axis in zip(given, axes, strict=True)]
    results = _scanned(scope, node, _Scan(body, states, given, backward, flipped), "body")
    out_axes = [0] * len(states) + _each(a.get("scan_output_axes"), made)
    for i, (output, value) in enumerate(zip(node.outputs, results, strict=False)):
        _give(scope, output, value.value(out_axes[i]) if isinstance(value, Stack) else value)


def _each(values: Sequence[int] | None, count: int) -> list[int]:
    return list(values) if values else [0] * count


def _front(x: Tensor, axis: int) -> Tensor:
    return k.transpose(x, [axis, *(i for i in range(x.rank) if i != axis)])


@dataclass(frozen=True)
class _Scan:
    """A loop over the first axis of `given`, each from its end where `backward` says so, results where `flipped` does."""

    body: Graph
    initial: Sequence[Tensor]
    given: Sequence[Tensor]
    backward: Sequence[int]
    flipped: Sequence[int]


def _scanned(scope: Scope, node: Node, scan: _Scan, tag: str) -> list[Tensor | Stack]:
    """Final states, then stacks."""
    work, cut, body = scope.work, scope.cut, scan.body
    steps = number_of(scan.given[0].shape[0])
    given = [cut.store(cut.settle(x)) for x in scan.given]
    states = [work.filled(s) for s in scan.initial]
    counter = work.counter()
    reverse = steps - 1 - counter
    scope.hold(body)
    region = work.region(count=steps)
    rows = [cut.settle(row(x, reverse if back else counter)) for x, back in zip(given, scan.backward, strict=True)]
    inner = scope.inner(body, [*states, *rows], f"{node.outputs[0]}.{tag}")
    inner.lower()
    values = [inner.value(n) for n in body.output_names()]
    stacks = [Stack(work, v.dtype, numbers_of(v.shape), steps) for v in values[len(states) :]]
    for stack, value, back in zip(stacks, values[len(states) :], scan.flipped, strict=True):
        stack.put(value, reverse if back else counter)
    for state, value in zip(states, values, strict=False):
        if state.shape != value.shape:
            raise EPFail(f"{cut.node} cannot run on {work.gpu.device}: what it carries changes in size")
    _carry(work, states, values[: len(states)])
    count(work, counter)
    region.stop = len(cut.jobs)
    return [*states, *stacks]


def _scan_of_batch(
    scope: Scope, node: Node, body: Graph, states: Sequence[Tensor], given: Sequence[Tensor], backward: Sequence[int]
) -> None:
    """Scan as opset 8 has it: axis 0 counts sequences of one length, axis 1 their elements."""
    batch = number_of(given[0].shape[0])
    columns: list[list[Tensor]] = [[] for _ in body.outputs]
    for b in range(batch):
        number = as_scalar(b, DType.INT32, ())
        first, sources = ([row(x, number) for x in xs] for xs in (states, given))
        scan = _Scan(body, first, sources, backward, [0] * (len(body.outputs) - len(states)))
        made = _scanned(scope, node, scan, "body")
        for column, value in zip(columns, made, strict=True):
            column.append(value.value() if isinstance(value, Stack) else value)
    for output, column in zip(node.outputs, columns, strict=True):
        _give(scope, output, k.concat([k.expand_dims(v, [0]) for v in column], 0))


LOWERED: Mapping[str, Rule] = {"If": lower_if, "Loop": lower_loop, "Scan": lower_scan, **RECURRENT}
"""What is no primitives in itself: how each node is lowered."""


def lowering(node: Node) -> Rule | None:
    """How a node is lowered that is no primitives in itself."""
    if node.domain == DOMAIN:
        return lower_suppress if node.op_type == "Suppress" else None
    return LOWERED.get(node.op_type) if not node.domain else None
