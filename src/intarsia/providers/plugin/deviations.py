"""Nodes that a plugin would take and compute otherwise than ONNX says, by the plugin's name: they are not offered to it.

Of OpenVINO, Intarsia's own provider knows what differs (`providers.openvino.refusals`), and puts other things right in a model
that it has read (`repairs`, `frontend_rewrites`): a plugin reads the model itself, so that these are left out too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from intarsia.ep.capability import Support
from intarsia.graph.model import Graph, Node, TensorType

Refusal = Callable[[Node], "Support | None"]
"""Why a node is not offered to a plugin; None where it is."""


def _openvino(graph: Graph) -> Refusal:
    from intarsia.providers.openvino.refusals import Analysis, refusal

    analysis = Analysis.of(graph)

    def refused(node: Node) -> Support | None:
        found = refusal(node, analysis, exact_nan=False)
        if found is not None:
            return found
        check = _REPAIRED.get(node.qualified_op)
        why = check(node, graph) if check is not None else ""
        return Support.no(f"OpenVINO's {node.op_type} differs from ONNX: {why}", code="wrong") if why else None

    return refused


def _compared(node: Node, graph: Graph) -> str:
    kind = graph.type_of(node.inputs[0])
    integers = isinstance(kind, TensorType) and kind.dtype.is_integer and kind.dtype.bits >= 32
    return "integers are compared as float32 there" if integers else ""


def _greater(node: Node, graph: Graph) -> str:
    return _compared(node, graph) or "it is true of NaN there"


def _one_hot(node: Node, graph: Graph) -> str:
    return "negative indices are not counted from the depth there"


def _local_response(node: Node, graph: Graph) -> str:
    return "even windows are centred there" if node.attributes.get("size", 1) % 2 == 0 else ""


def _slopes(node: Node, graph: Graph) -> str:
    x, slope = graph.type_of(node.inputs[0]), graph.type_of(node.inputs[1])
    ranks = [kind.rank if isinstance(kind, TensorType) else None for kind in (x, slope)]
    return "" if ranks[0] is not None and ranks[0] == ranks[1] else "slopes of lower rank go along the channels there"


def _rows(node: Node, graph: Graph) -> str:
    kind = graph.type_of(node.inputs[0])
    rank = kind.rank if isinstance(kind, TensorType) else None
    axis = node.attributes.get("axis", 1)
    last = rank is not None and (axis + rank if axis < 0 else axis) == rank - 1
    return (
        "" if (node.version or 13) >= 13 or last else "all axes from `axis` on are one row in this version, and only one there"
    )


def _reduction(node: Node, graph: Graph) -> str:
    from intarsia.providers.openvino.frontend_rewrites import reduces_nothing

    if reduces_nothing(node, graph):
        return "with `noop_with_empty_axes` and no axes it reduces all of them there"
    by_attribute = node.attributes.get("axes") and (node.version or 13) < 18
    late = node.op_type in ("ReduceL1", "ReduceLogSum", "ReduceLogSumExp") and (node.version or 13) >= 13
    return "its axes are looked for in an input there" if by_attribute and late else ""


_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
_REPAIRED: Mapping[str, Callable[[Node, Graph], str]] = {
    "Equal": _compared,
    "Greater": _greater,
    "GreaterOrEqual": _greater,
    "LRN": _local_response,
    "Less": _compared,
    "LessOrEqual": _compared,
    "OneHot": _one_hot,
    "PRelu": _slopes,
    "Softmax": _rows,
    "LogSoftmax": _rows,
    "Hardmax": _rows,
    **dict.fromkeys(_REDUCTIONS, _reduction),
}
"""Operator -> why this node of it would be computed wrongly, where Intarsia's own provider puts it right."""


def _webgpu(graph: Graph) -> Refusal:
    def refused(node: Node) -> Support | None:
        check = _WRONG_OF_WEBGPU.get(node.qualified_op)
        why = check(node, graph) if check is not None else ""
        return Support.no(f"the WebGPU plugin's {node.op_type} differs from ONNX: {why}", code="wrong") if why else None

    return refused


def _batch_normalization(node: Node, graph: Graph) -> str:
    return "it has no training mode, and fails in a run" if node.attributes.get("training_mode", 0) else ""


def _conv(node: Node, graph: Graph) -> str:
    kind = graph.type_of(node.inputs[0])
    three = isinstance(kind, TensorType) and kind.rank == 5 and node.attributes.get("group", 1) > 1
    return "groups of three-dimensional convolutions fail in a run" if three else ""


def _conv_transpose(node: Node, graph: Graph) -> str:
    kind = graph.type_of(node.inputs[0])
    return "three-dimensional ones fail in a run" if isinstance(kind, TensorType) and (kind.rank or 0) > 4 else ""


def _max_pool(node: Node, graph: Graph) -> str:
    return "it has no output of indices, and fails in a run" if len(node.outputs) > 1 and node.outputs[1] else ""


def _extremum_of_nothing(node: Node, graph: Graph) -> str:
    kind = graph.type_of(node.inputs[0])
    empty = isinstance(kind, TensorType) and 0 in (kind.shape or ())
    return "a reduction of nothing fails in a run, or has another value" if empty else ""


def _resize(node: Node, graph: Graph) -> str:
    if node.attributes.get("antialias", 0):
        return "the attribute 'antialias' fails in a run"
    scales = len(node.inputs) > 2 and bool(node.inputs[2])
    aligned = node.attributes.get("coordinate_transformation_mode") in ("align_corners", b"align_corners")
    return "align_corners with scales gives other numbers there" if scales and aligned else ""


_WRONG_OF_WEBGPU: Mapping[str, Callable[[Node, Graph], str]] = {
    "BatchNormalization": _batch_normalization,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DFT": lambda node, graph: "its error is a thousand times float32's rounding",
    "InstanceNormalization": lambda node, graph: "sessions share a shader that has the first one's epsilon",
    "MaxPool": _max_pool,
    "Resize": _resize,
    **dict.fromkeys(_REDUCTIONS, _extremum_of_nothing),
}
"""Seen with onnxruntime-ep-webgpu 0.4.0, in ONNX's backend cases."""

_KNOWN: Mapping[str, Callable[[Graph], Refusal]] = {
    "OpenVINOExecutionProvider": _openvino,
    "WebGpuExecutionProvider": _webgpu,
}


def known_deviations(plugin: str, graph: Graph) -> Refusal:
    """What is known of a plugin (by the name that it gives itself) about nodes of a graph."""
    known = _KNOWN.get(plugin)
    return known(graph) if known is not None else lambda node: None
