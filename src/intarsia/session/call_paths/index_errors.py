"""Which index of a Gather or Scatter was out of range: kernels report that one was, and what it was is found afterwards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import IntarsiaError, NodeFailed
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.partition.partition import label
from intarsia.providers import reference
from intarsia.run_status import INDEX_IS_OUT_OF_RANGE

if TYPE_CHECKING:
    from intarsia.session.local_engine import LocalEngine

_FAILED = re.compile(rf"node '(?P<node>.*)' \((?P<op>\w+)\): {re.escape(INDEX_IS_OUT_OF_RANGE)}")
_ALONG_AN_AXIS = frozenset(("Gather", "GatherElements", "Scatter", "ScatterElements"))
_BY_PLACES = frozenset(("GatherND", "ScatterND"))
_MOST_NODES = 32  # that are computed again to find an index, and which take no longer than their operands are large
_CHEAP = frozenset((
    "Abs", "Add", "ArgMax", "ArgMin", "Cast", "Clip", "Concat", "Constant", "Div", "Expand", "Flatten", "Floor", "Gather",
    "Identity", "Max", "Min", "Mod", "Mul", "Neg", "NonZero", "Range", "Reshape", "Shape", "Slice", "Split", "Squeeze", "Sub",
    "Tile", "Transpose", "Unsqueeze", "Where",
))  # fmt: skip


def named(engine: LocalEngine, inputs: Sequence[Any], error: NodeFailed) -> NodeFailed:
    """The error with the index, its place and the size it has to fit; as it was where that cannot be found cheaply.

    Args:
        engine: of the session.
        inputs: of the run, in the model's order.
        error: of a kernel that met an index out of range.
    """
    found = _FAILED.fullmatch(str(error))
    if found is None or found["op"] not in _ALONG_AN_AXIS | _BY_PLACES:
        return error
    graph = engine.graph()
    node = next((n for n in graph.nodes if label(n) == found["node"] and n.op_type == found["op"] and not n.domain), None)
    if node is None:
        return error
    given = {value.name: x for value, x in zip(graph.inputs, inputs, strict=False) if isinstance(x, np.ndarray)}
    try:
        told = _index(graph, node, given)
    except (IntarsiaError, ValueError, IndexError, KeyError, MemoryError):  # the model's error counts, not that of looking
        return error
    return NodeFailed(f"node {found['node']!r} ({found['op']}): an index is out of range: {told}") if told else error


def _index(graph: Graph, node: Node, given: Mapping[str, np.ndarray]) -> str:
    data, name = node.inputs[:2]
    indices, shape = _value(graph, name, given), _shape(graph, data, given)
    if indices is None or shape is None or not indices.size:
        return ""
    axes, sizes = _limits(node, shape, indices)
    outside = (indices < -sizes) | (indices >= sizes)
    if not outside.any():
        return ""
    place = np.unravel_index(int(outside.argmax()), indices.shape)
    axis, size = (int(np.broadcast_to(x, indices.shape)[place]) for x in (axes, sizes))
    where = f"{int(indices[place])} at {[int(i) for i in place]} of {name!r}"
    return f"{where}; expected {-size} to {size - 1}, since dimension {axis} of {data!r} has {size} elements"


def _limits(node: Node, shape: Sequence[int], indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The axis that each index is of, and that axis's size."""
    if node.op_type in _BY_PLACES:
        first = int(node.attributes.get("batch_dims", 0))
        axes = np.arange(first, first + indices.shape[-1])
    else:
        axis = int(node.attributes.get("axis", 0))
        axes = np.array(axis + len(shape) if axis < 0 else axis)
    return axes, np.asarray(shape, np.int64)[axes]


def _value(graph: Graph, name: str, given: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """A value of the run: given, constant, or computed again from few others."""
    known: dict[str, Any] = dict(given)
    needed: list[Node] = []
    wanted = {name}
    for node in reversed(graph.nodes):
        if wanted.isdisjoint(node.outputs) or wanted & known.keys() == wanted:
            continue
        needed.append(node)
        wanted.update(n for n in node.inputs if n and n not in known and n not in graph.constants)
        if len(needed) > _MOST_NODES or node.domain or node.op_type not in _CHEAP:
            return None
    for node in reversed(needed):
        operands = [_known(graph, known, n) if n else None for n in node.inputs]
        known.update(zip(node.outputs, reference.evaluate(node, operands), strict=False))
    found = _known(graph, known, name)
    return found if isinstance(found, np.ndarray) else None


def _known(graph: Graph, known: Mapping[str, Any], name: str) -> Any:
    return known[name] if name in known else graph.constants[name].numpy()


def _shape(graph: Graph, name: str, given: Mapping[str, np.ndarray]) -> Sequence[int] | None:
    if name in given:
        return given[name].shape
    if name in graph.constants:
        return graph.constants[name].shape
    kind = graph.type_of(name)
    if isinstance(kind, TensorType) and kind.shape is not None and all(isinstance(d, int) for d in kind.shape):
        return [d for d in kind.shape if isinstance(d, int)]
    found = _value(graph, name, given)
    return None if found is None else found.shape
