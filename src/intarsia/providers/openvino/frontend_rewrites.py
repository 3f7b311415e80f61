"""Nodes that OpenVINO's ONNX frontend reads as something else, written as nodes that it reads right.

They are written into the ONNX model that OpenVINO is given; what its kernels compute otherwise is replaced later (`repairs`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from intarsia.graph.model import Graph, Node, TensorType

_ROWS_OF_SOFTMAX = 13  # in older versions Softmax works on matrices: all axes from `axis` on are one
_SUM_BY_INPUT, _ALL_BY_INPUT = 13, 18  # from here on ReduceSum's axes are an input, and those of all reductions
_SHAPE_INPUT = 5  # from here on Reshape's shape is an input


def rewritten(graph: Graph, opset: int) -> list[Node]:
    """The nodes of `graph`, some of them in several; `opset` is that of ONNX's own operators.

    A node that is written in several keeps its name for the last of them; the others' names begin with it.
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        write = _REWRITES.get(node.qualified_op)
        nodes.extend(write(node, graph, opset) if write is not None else [node])
    return nodes


def softmax_of_rows_stays(node: Node, graph: Graph) -> bool:
    """Whether a Softmax is read right, or can be written so."""
    version = node.version or graph.opset_imports.get("", 1)
    if version >= _ROWS_OF_SOFTMAX:
        return True
    writable = graph.opset_imports.get("", 1) >= _SHAPE_INPUT
    return _rank(node, graph) is not None and (writable or _axis_of_rows(node, graph) is None)


def _rank(node: Node, graph: Graph) -> int | None:
    kind = graph.type_of(node.inputs[0])
    return kind.rank if isinstance(kind, TensorType) else None


def _axis_of_rows(node: Node, graph: Graph) -> int | None:
    """The first of several axes that an old Softmax takes for one; None where it is the last."""
    rank, axis = _rank(node, graph), node.attributes.get("axis", 1)
    if rank is None:
        return None
    axis += rank if axis < 0 else 0
    return int(axis) if axis < rank - 1 else None


def _softmax(node: Node, graph: Graph, opset: int) -> list[Node]:
    """Softmax(x) = Reshape(Softmax(Flatten(x, axis)), Shape(x))."""
    axis = _axis_of_rows(node, graph)
    if opset >= _ROWS_OF_SOFTMAX or axis is None:
        return [node]
    flat, soft, shape = (f"{node.outputs[0]}/{part}" for part in ("rows", "of_rows", "shape"))
    return [
        Node("Flatten", [node.inputs[0]], [flat], {"axis": axis}, name=f"{node.name}/rows"),
        node.copy(inputs=[flat], outputs=[soft], attributes={"axis": 1}, name=f"{node.name}/of_rows"),
        Node("Shape", [node.inputs[0]], [shape], name=f"{node.name}/shape"),
        Node("Reshape", [soft, shape], list(node.outputs), name=node.name),
    ]


def reduces_nothing(node: Node, graph: Graph) -> bool:
    """Whether a reduction has `noop_with_empty_axes` and no axes: it computes what it would of each element."""
    if not node.attributes.get("noop_with_empty_axes", 0) or node.attributes.get("axes"):
        return False
    axes = graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
    return len(node.inputs) < 2 or not node.inputs[1] or (axes is not None and axes.size == 0)


def _reduction(node: Node, graph: Graph, opset: int) -> list[Node]:
    if not reduces_nothing(node, graph):
        axes = node.attributes.get("axes")
        if axes and node.op_type in _LOOK_FOR_AN_INPUT and _SUM_BY_INPUT <= opset < _ALL_BY_INPUT:
            return _with_axes_as_input(node, list(axes))
        return [node]
    op_type = _OF_ONE_ELEMENT.get(node.op_type, "Identity")
    inputs = [node.inputs[0]] * (2 if op_type == "Mul" else 1)
    return [Node(op_type, inputs, list(node.outputs), name=node.name)]


def _with_axes_as_input(node: Node, axes: list[int]) -> list[Node]:
    """The node as it is since 18: from 13 on OpenVINO (2026.4) looks for these reductions' axes in an input, and reduces all
    axes for want of it."""
    name = f"{node.outputs[0]}/axes"
    attributes = {key: value for key, value in node.attributes.items() if key != "axes"}
    return [
        Node("Constant", [], [name], {"value_ints": axes}, name=f"{node.name}/axes"),
        node.copy(inputs=[node.inputs[0], name], attributes=attributes, traced=None),
    ]


_LOOK_FOR_AN_INPUT = ("ReduceL1", "ReduceLogSum", "ReduceLogSumExp")
_OF_ONE_ELEMENT = {"ReduceL1": "Abs", "ReduceL2": "Abs", "ReduceLogSum": "Log", "ReduceSumSquare": "Mul"}
"""Reduction of one element -> the operator that it is; Identity where it is none of these."""

_REWRITES: Mapping[str, Callable[[Node, Graph, int], list[Node]]] = {
    "Softmax": _softmax,
    **dict.fromkeys(
        ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
         "ReduceSum", "ReduceSumSquare"), _reduction
    ),
}  # fmt: skip
