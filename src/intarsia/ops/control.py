"""If, Loop, Scan, SequenceMap: operators with a graph as attribute, run body by body on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim, Expr, dim_max, fresh_symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, OptionalType, SequenceType, TensorType, ValueType
from intarsia.lazy_dataclass import dataclass
from intarsia.machine.resources import fits
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import NodeContext, host_op
from intarsia.primitives import lang as k
from intarsia.run_status import next_trip

Types = list[ValueType | None]
_REASON = "runs a subgraph, as often as data says"


def _runner(node: NodeContext) -> Callable[[Graph, Sequence[Any]], list[Any]]:
    if node.run_graph is None:
        raise k.DefinitionError("a subgraph cannot be run here: no runner was given")
    return node.run_graph


def _inferrer(node: NodeContext) -> Callable[[Graph, Sequence[Any]], list[Any]]:
    if node.infer_graph is None:
        raise k.DefinitionError("a subgraph's types cannot be inferred here: no inference was given")
    return node.infer_graph


# --- what a condition must be -----------------------------------------------------------------------------------------


def _element_type(x: TensorType | np.ndarray, elements: DType) -> DType:
    """`elements` where x is an array of sizes, which inference passes for an operand that it knows."""
    if isinstance(x, TensorType):
        return x.dtype
    return elements if x.dtype == object else DType.of(x.dtype)


def _check_condition(what: str, kind: Any) -> None:
    """Raise DefinitionError where a type, or an array, is known not to be one bool."""
    if isinstance(kind, (TensorType, np.ndarray)):
        dtype, shape = _element_type(kind, DType.BOOL), kind.shape
        if dtype is not DType.BOOL or any(isinstance(d, int) and d != 1 for d in shape or ()):
            raise k.DefinitionError(f"{what} is {dtype.name} of shape {list(shape or ())}; expected one bool")


def _check_trips(kind: Any) -> None:
    if isinstance(kind, (TensorType, np.ndarray)):
        dtype, shape = _element_type(kind, DType.INT64), kind.shape
        if dtype is not DType.INT64 or any(isinstance(d, int) and d != 1 for d in shape or ()):
            raise k.DefinitionError(f"M is {dtype.name} of shape {list(shape or ())}; expected one int64")


def _check_carried(given: Types, made: Types) -> None:
    """Raise DefinitionError where the body gives a carried value another type than it takes."""
    for i, (a, b) in enumerate(zip(given, made, strict=False)):
        _merged(a, b, f"carried value {i} starts as {{}}; body makes it {{}}")


def _merged(a: ValueType | None, b: ValueType | None, wrong: str) -> ValueType | None:
    """`merge_types`; raises DefinitionError by the words `wrong` around both types."""
    try:
        return merge_types(a, b)
    except k.DefinitionError:
        assert a is not None
        assert b is not None
        raise k.DefinitionError(wrong.format(a.onnx_name, b.onnx_name)) from None


# --- types that hold for several values ------------------------------------------------------------------------------


class Varying:
    """Sizes that differ between values of one type, as symbols: one symbol for all that are the same two sizes.

    A loop's sizes that begin alike and are changed alike, as the lengths of its caches are, so stay one size.
    """

    def __init__(self) -> None:
        self._of: dict[tuple[Dim, Dim], Dim] = {}
        self._symbols: set[Dim] = set()
        self._turned: dict[Dim, Dim] = {}

    def begin(self) -> None:
        """The body is looked at again: what it makes of the symbols tells whether they are one size."""
        self._turned = {}

    def size(self, a: Dim, b: Dim) -> Dim:
        """A size that is `a` or `b`; `a` itself where it is such a symbol, and all others that are it become `b` too."""
        if a in self._symbols and self._turned.setdefault(a, b) == b:
            return a
        if a == b and a not in self._symbols:
            return a
        if (a, b) not in self._of:
            self._of[a, b] = fresh_symbol("varying")
            self._symbols.add(self._of[a, b])
        return self._of[a, b]


def merge_types(a: ValueType | None, b: ValueType | None, loose: Varying | None = None) -> ValueType | None:
    """A type that values of both types have: sizes that differ become symbols, ranks that differ an unknown shape.

    `loose` has the symbols that were made before.

    Raises:
        DefinitionError: there is none: element types differ, or one is a tensor and the other a sequence.
    """
    if a is None or b is None:
        return None
    loose = Varying() if loose is None else loose
    if isinstance(a, TensorType) and isinstance(b, TensorType) and type(a) is type(b) and a.dtype is b.dtype:
        if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
            return type(a)(a.dtype)
        return type(a)(a.dtype, tuple(loose.size(x, y) for x, y in zip(a.shape, b.shape, strict=True)))
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        return SequenceType(merge_types(a.element, b.element, loose))
    if isinstance(a, OptionalType) or isinstance(b, OptionalType):
        inner = [t.element if isinstance(t, OptionalType) else t for t in (a, b)]
        return OptionalType(merge_types(inner[0], inner[1], loose))
    if a != b:
        raise k.DefinitionError(f"{a.onnx_name} here is {b.onnx_name} there; expected one type")
    return a


def _fresh_count() -> int:
    """The number of the newest fresh symbol: those that a body's inference makes have higher ones."""
    (name,) = fresh_symbol("mark").symbols
    return int(name.rpartition("#")[2])


def _visible(kind: ValueType | None, mark: int) -> ValueType | None:
    """`kind` without sizes that only the body's own run knows: symbols newer than `mark`, elements of its values."""
    if isinstance(kind, TensorType) and kind.shape is not None:
        return TensorType(kind.dtype, tuple(_visible_dim(d, mark) for d in kind.shape))
    if isinstance(kind, SequenceType):
        return SequenceType(_visible(kind.element, mark))
    if isinstance(kind, OptionalType):
        return OptionalType(_visible(kind.element, mark))
    return kind


def _visible_dim(d: Dim, mark: int) -> Dim:
    hidden = isinstance(d, Expr) and any("[" in s or ("#" in s and int(s.rpartition("#")[2]) > mark) for s in d.symbols)
    return fresh_symbol("body") if hidden else d


def carried_types(body: Callable[[Types], Types], initial: Types, count: int) -> tuple[Types, Types]:
    """Types of loop-carried values over all iterations, and of the body's other outputs.

    A size that an iteration changes becomes a symbol; then the body is inferred again, until nothing changes.
    """
    carried = list(initial)
    loose = Varying()
    for _ in range(4):
        out = body(carried)
        _check_carried(carried, out[:count])
        loose.begin()
        merged = [merge_types(a, b, loose) for a, b in zip(carried, out[:count], strict=True)]
        if merged == carried:
            return carried, out[count:]
        carried = merged
    unshaped: Types = [TensorType(t.dtype) if isinstance(t, TensorType) else t for t in carried]
    return unshaped, body(unshaped)[count:]


# --- If ---------------------------------------------------------------------------------------------------------------


def _if_types(cond: ValueType | np.ndarray, *, then_branch: Graph, else_branch: Graph, node: NodeContext) -> Types:
    infer = _inferrer(node)
    mark = _fresh_count()
    _check_condition("cond", cond)
    if isinstance(cond, np.ndarray) and cond.size == 1:  # a condition on ranks or known sizes
        return [_visible(t, mark) for t in infer(then_branch if cond.reshape(-1)[0] else else_branch, [])]
    kinds = infer(then_branch, []), infer(else_branch, [])
    merged = [_of_both(i, a, b) for i, (a, b) in enumerate(zip(*kinds, strict=True))]
    return [_visible(t, mark) for t in merged]


def _of_both(i: int, a: ValueType | None, b: ValueType | None) -> ValueType | None:
    return _merged(a, b, f"output {i} is {{}} of then_branch and {{}} of else_branch")


@host_op(
    "If", since=(1, 11, 13, 16, 19, 21, 23, 24, 25), infer=_if_types, values=("cond",),
    reason="which subgraph runs depends on data",
)  # fmt: skip
def if_(cond: np.ndarray, *, then_branch: Graph, else_branch: Graph, node: NodeContext) -> tuple[Any, ...]:
    """Outputs of then_branch where `cond` (one element) holds, else of else_branch."""
    if np.asarray(cond).size != 1:
        raise k.DefinitionError(f"cond has shape {list(np.asarray(cond).shape)}; expected one element")
    return tuple(_runner(node)(then_branch if np.asarray(cond).reshape(-1)[0] else else_branch, []))


# --- Loop -------------------------------------------------------------------------------------------------------------


def _loop_types(
    M: ValueType | None = None, cond: ValueType | np.ndarray | None = None, *v_initial: ValueType | None, body: Graph,
    node: NodeContext,
) -> Types:  # fmt: skip
    infer, mark = _inferrer(node), _fresh_count()
    _check_trips(M)
    _check_condition("cond", cond)
    trips: Dim | None = None
    if M is not None and any(node.wanted[len(v_initial) :]) and always_goes_on(cond, body):
        limit = node.elements(0) if node.elements is not None else None
        trips = dim_max(limit.reshape(-1)[0], 0) if limit is not None and limit.size == 1 else None
    head: Types = [trip_type(body), TensorType(DType.BOOL, ())]

    def made(types: Types) -> Types:
        going, *others = infer(body, [*head, *types])
        _check_condition("the body's condition", going)
        return others

    carried, scans = carried_types(made, list(v_initial), len(v_initial))
    return [*(_visible(t, mark) for t in carried), *(_stacked(_visible(t, mark), 0, trips) for t in scans)]


def trip_type(body: Graph) -> TensorType:
    """The number of the iteration as a loop's body wants it: a scalar, or one element where the body says so."""
    declared = body.inputs[0].type
    vector = isinstance(declared, TensorType) and declared.shape is not None and len(declared.shape) == 1
    return TensorType(DType.INT64, (1,) if vector else ())


def always_goes_on(cond: ValueType | np.ndarray | None, body: Graph) -> bool:
    """Whether only the trip count ends the loop: the condition, if there is one, holds at first, and the body hands it on."""
    if cond is not None and (not isinstance(cond, np.ndarray) or cond.size != 1 or not cond.reshape(-1)[0]):
        return False
    name, made_by = body.outputs[0].name, body.producers()
    while name in made_by and made_by[name].op_type == "Identity":
        name = made_by[name].inputs[0]
    if name in body.constants:
        return bool(body.constants[name].numpy().all())
    constant = made_by.get(name)
    if constant is not None and constant.op_type == "Constant" and "value" in constant.attributes:
        return bool(np.asarray(constant.attributes["value"]).all())
    return name == body.inputs[1].name


def _stacked(kind: ValueType | None, axis: int = 0, count: Dim | None = None) -> ValueType | None:
    """One value per iteration, along a new axis."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    at = axis + len(kind.shape) + 1 if axis < 0 else axis
    return TensorType(kind.dtype, (*kind.shape[:at], fresh_symbol("iterations") if count is None else count, *kind.shape[at:]))


@host_op("Loop", since=(1, 11, 13, 16, 19, 21, 23, 24, 25), infer=_loop_types, values=("cond",), reason=_REASON)
def loop(M: Any = None, cond: Any = None, *v_initial: Any, body: Graph, node: NodeContext) -> tuple[Any, ...]:
    """Final loop-carried values, then each further output of the body stacked over the iterations.

    The body's condition ends the loop also where the input `cond` is omitted, as in onnxruntime, whose users write "repeat
    until" so; ONNX's text says that it is ignored then.
    """
    run = _runner(node)
    _check_trips(None if M is None else np.asarray(M))
    _check_condition("cond", None if cond is None else np.asarray(cond))
    limit = None if M is None else int(np.asarray(M).reshape(-1)[0])
    going = True if cond is None else bool(np.asarray(cond).reshape(-1)[0])
    carried = list(v_initial)
    scans: list[list[np.ndarray]] = [[] for _ in body.outputs[1 + len(carried) :]]
    shape = (1,) if trip_type(body).shape else ()
    i = 0
    while going and (limit is None or i < limit):
        next_trip()
        out = run(body, [np.full(shape, i, np.int64), np.array(True), *carried])
        _check_condition("the body's condition", np.asarray(out[0]))
        if i == 0 and limit is not None and always_goes_on(None if cond is None else np.asarray(cond), body):
            _check_rows(limit, out[1 + len(carried) :])
        going = bool(np.asarray(out[0]).reshape(-1)[0])
        carried = list(out[1 : 1 + len(carried)])
        for found, value in zip(scans, out[1 + len(carried) :], strict=True):
            found.append(value)
        i += 1
    if i:
        return (*carried, *(np.stack(found) for found in scans))
    rows = _rows_of_none(node, body, [np.zeros(shape, np.int64), np.array(True), *carried], 1 + len(carried))
    return (*carried, *(_empty(row, 0) for row in rows))


def _check_rows(count: int, rows: Sequence[Any]) -> None:
    """Raise MemoryError where `count` of each of these are more than the machine has memory for."""
    nbytes = count * sum(x.nbytes for x in rows if isinstance(x, np.ndarray))
    if not fits(nbytes):
        raise MemoryError(f"{count} iterations would stack {nbytes / 2**20:,.0f} MiB")


def _rows_of_none(node: NodeContext, body: Graph, given: Sequence[Any], first: int) -> list[ValueType | None]:
    """Types of the outputs from `first` on that the body would give for these operands, where a loop has no trips.

    ONNX leaves these sizes open. onnxruntime has those that the body says as numbers, 0 for others, and no Scan of length 0.
    """
    kinds = [v.type for v in body.outputs] if node.body_types is None else node.body_types(body, given)
    return kinds[first:]


def _empty(row: ValueType | None, axis: int) -> np.ndarray:
    """No rows of this type, along this axis; sizes that only data tell are 0."""
    if not isinstance(row, TensorType):
        return np.zeros((0,), np.float32)
    shape = [d if isinstance(d, int) else 0 for d in row.shape or ()]
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 0)
    return np.zeros(shape, row.dtype.numpy)


# --- Scan -------------------------------------------------------------------------------------------------------------


def _axis_of(kind: ValueType | None, axis: int) -> int:
    rank = len(kind.shape) if isinstance(kind, TensorType) and kind.shape is not None else 0
    return axis + rank if axis < 0 else axis


def _without(kind: ValueType | None, axis: int) -> ValueType | None:
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    at = _axis_of(kind, axis)
    return TensorType(kind.dtype, (*kind.shape[:at], *kind.shape[at + 1 :]))


@dataclass(frozen=True)
class ScanAttributes(ParameterGroup):
    """How many of the inputs are scanned, along which axes, and which way; and so for what is stacked."""

    num_scan_inputs: int
    scan_input_axes: Sequence[int] | None = None
    scan_input_directions: Sequence[int] | None = None
    scan_output_axes: Sequence[int] | None = None
    scan_output_directions: Sequence[int] | None = None

    def of_inputs(self) -> tuple[list[int], list[int]]:
        """Axes and directions of the scanned inputs. Raises DefinitionError where there are not as many."""
        axes = _one_each("scan_input_axes", self.scan_input_axes, self.num_scan_inputs)
        return axes, _one_each("scan_input_directions", self.scan_input_directions, self.num_scan_inputs, 1)

    def of_outputs(self, count: int) -> tuple[list[int], list[int]]:
        """Axes and directions of `count` stacked outputs. Raises DefinitionError where there are not as many."""
        axes = _one_each("scan_output_axes", self.scan_output_axes, count)
        return axes, _one_each("scan_output_directions", self.scan_output_directions, count, 1)


def _scan_types(*inputs: ValueType | None, body: Graph, attributes: ScanAttributes, node: NodeContext) -> Types:
    infer, mark = _inferrer(node), _fresh_count()
    states = len(inputs) - attributes.num_scan_inputs
    axes, _ = attributes.of_inputs()
    out_axes, _ = attributes.of_outputs(len(body.outputs) - states)
    for i, (kind, axis) in enumerate(zip(inputs[states:], axes, strict=True)):
        rank = len(kind.shape) if isinstance(kind, TensorType) and kind.shape is not None else None
        if rank is not None and not -rank <= axis < rank:
            raise k.DefinitionError(f"scan input {i} has rank {rank}: axis {axis} is out of range")
    elements = [_without(t, a) for t, a in zip(inputs[states:], axes, strict=True)]
    carried, scans = carried_types(lambda types: infer(body, [*types, *elements]), list(inputs[:states]), states)
    first = inputs[states]
    count = first.shape[_axis_of(first, axes[0])] if isinstance(first, TensorType) and first.shape is not None else None
    _check_output_axes(out_axes, [len(t.shape) if isinstance(t, TensorType) and t.shape is not None else None for t in scans])
    stacked = [_stacked(_visible(t, mark), a, count) for t, a in zip(scans, out_axes, strict=True)]
    return [*(_visible(t, mark) for t in carried), *stacked]


def _one_each(what: str, values: Sequence[int] | None, count: int, most: int | None = None) -> list[int]:
    """The attribute's values, zeros where it is not given."""
    found = list(values) if values else [0] * count
    if len(found) != count or (most is not None and any(not 0 <= v <= most for v in found)):
        raise k.DefinitionError(f"{what} is {found}; expected {count} values{'' if most is None else f' from 0 to {most}'}")
    return found


def _check_output_axes(axes: Sequence[int], ranks: Sequence[int | None]) -> None:
    for i, (axis, rank) in enumerate(zip(axes, ranks, strict=True)):
        if rank is not None and not -rank - 1 <= axis <= rank:
            raise k.DefinitionError(f"scan output {i} has rank {rank + 1}: axis {axis} is out of range")


@host_op("Scan", since=(9, 11, 16, 19, 21, 23, 24, 25), infer=_scan_types, reason=_REASON)
def scan(*inputs: Any, body: Graph, attributes: ScanAttributes, node: NodeContext) -> tuple[Any, ...]:
    """Final states, then the body's further outputs stacked along their axes, over slices of the last inputs."""
    first = len(inputs) - attributes.num_scan_inputs
    states, sources = list(inputs[:first]), inputs[first:]
    axes, backward = attributes.of_inputs()
    lengths = {s.shape[a] for s, a in zip(sources, axes, strict=True)}
    if len(lengths) != 1:
        raise k.DefinitionError(f"scan inputs have lengths {sorted(lengths)}; expected one length")
    moved = [np.moveaxis(s, a, 0)[:: -1 if b else 1] for s, a, b in zip(sources, axes, backward, strict=True)]
    run = _runner(node)
    found: list[list[np.ndarray]] = [[] for _ in body.outputs[len(states) :]]
    trips = lengths.pop()
    for t in range(trips):
        next_trip()
        out = run(body, [*states, *(np.array(m[t]) for m in moved)])
        for parts, value in zip(found, out[len(states) :], strict=True):
            parts.append(value)
        states = list(out[: len(states)])
    out_axes, flipped = attributes.of_outputs(len(found))
    if trips:
        stacked = [np.stack(parts[:: -1 if b else 1], a) for parts, a, b in zip(found, out_axes, flipped, strict=True)]
    else:
        given = [*states, *(np.zeros(m.shape[1:], m.dtype) for m in moved)]
        rows = _rows_of_none(node, body, given, len(states))
        stacked = [_empty(row, a) for row, a in zip(rows, out_axes, strict=True)]
    return (*states, *stacked)


def _scan_8_types(
    sequence_lens: ValueType | None = None, *inputs: ValueType | None, body: Graph, num_scan_inputs: int, node: NodeContext
) -> Types:
    infer, mark = _inferrer(node), _fresh_count()
    states = len(inputs) - num_scan_inputs
    first = inputs[states]
    batch, steps = (
        first.shape[:2] if isinstance(first, TensorType) and first.shape is not None else (fresh_symbol(), fresh_symbol())
    )
    elements = [_without(_without(t, 0), 0) for t in inputs[states:]]
    out = infer(body, [*(_without(t, 0) for t in inputs[:states]), *elements])
    visible = [_visible(t, mark) for t in out]
    return [
        *(_stacked(t, 0, batch) for t in visible[:states]),
        *(_stacked(_stacked(t, 0, steps), 0, batch) for t in visible[states:]),
    ]


@host_op("Scan", since=8, infer=_scan_8_types, reason=_REASON)
def scan_8(
    sequence_lens: Any = None, *inputs: Any, body: Graph, num_scan_inputs: int, directions: Sequence[int] | None = None,
    node: NodeContext,
) -> tuple[Any, ...]:  # fmt: skip
    """Scan over axis 1 of every element of a batch (axis 0); outputs beyond a sequence's length are zero."""
    count, attributes = len(inputs) - num_scan_inputs, ScanAttributes(num_scan_inputs, scan_input_directions=directions)
    batch, steps = inputs[count].shape[:2]
    lengths = [steps] * batch if sequence_lens is None else [int(n) for n in sequence_lens]
    rows = []
    for b in range(batch):
        parts = [x[b] for x in inputs[:count]] + [x[b, : lengths[b]] for x in inputs[count:]]
        out = scan(*parts, body=body, attributes=attributes, node=node)
        padded = [np.concatenate([x, np.zeros((steps - len(x), *x.shape[1:]), x.dtype)]) for x in out[count:]]
        rows.append([*out[:count], *padded])
    if not batch:
        parts = [np.zeros(x.shape[1:], x.dtype) for x in inputs[:count]]
        parts += [np.zeros((0, *x.shape[2:]), x.dtype) for x in inputs[count:]]
        out = scan(*parts, body=body, attributes=attributes, node=node)
        sizes = [x.shape for x in out[:count]] + [(steps, *x.shape[1:]) for x in out[count:]]
        return tuple(np.zeros((0, *shape), x.dtype) for x, shape in zip(out, sizes, strict=True))
    return tuple(np.stack(column) for column in zip(*rows, strict=True))


# --- SequenceMap ------------------------------------------------------------------------------------------------------


def _map_types(*inputs: ValueType | None, body: Graph, node: NodeContext) -> Types:
    mark = _fresh_count()
    elements = [t.element if isinstance(t, SequenceType) else t for t in inputs]
    return [SequenceType(_visible(t, mark)) for t in _inferrer(node)(body, elements)]


@host_op("SequenceMap", since=17, infer=_map_types, reason=_REASON)
def sequence_map(input_sequence: list[Any], *additional_inputs: Any, body: Graph, node: NodeContext) -> tuple[list[Any], ...]:
    """The body's outputs for every element, as sequences; tensors among the inputs are given to every call."""
    run = _runner(node)
    for other in additional_inputs:
        if isinstance(other, list) and len(other) != len(input_sequence):
            raise k.DefinitionError(f"sequences of {len(input_sequence)} and {len(other)} elements are mapped together")
    found: list[list[Any]] = [[] for _ in body.outputs]
    for i, first in enumerate(input_sequence):
        out = run(body, [first, *(x[i] if isinstance(x, list) else x for x in additional_inputs)])
        for parts, value in zip(found, out, strict=True):
            parts.append(value)
    return tuple(found)
