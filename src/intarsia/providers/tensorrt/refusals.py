"""Nodes that NVIDIA's parser takes and that are not given to it: it computes them otherwise, or its builder fails.

Found by building every case of ONNX's suite with TensorRT-RTX 1.7.1, and in the sources of the parser and the descriptions of
the layers (TensorRT 8 to 10), since most of them build and then compute something else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.providers.tensorrt import quantized
from intarsia.providers.tensorrt.library import Library
from intarsia.providers.vendor.translator import Facts

_FLOATS = frozenset((DType.FLOAT, DType.FLOAT16, DType.BFLOAT16))
_PLAIN = _FLOATS | {DType.INT32, DType.INT64, DType.BOOL}
_MOST_AXES = 8
_LARGEST_K = 3840  # of TopK
_LARGEST_WINDOW = 15  # of LRN

_INSTEAD: Mapping[DType, str] = {
    DType.DOUBLE: "reads 64-bit floats as 32-bit ones", DType.UINT8: "knows unsigned bytes at the borders of a model only",
    DType.INT8: "knows 8-bit integers as quantised numbers only, between QuantizeLinear and DequantizeLinear",
    DType.STRING: "has no strings",
}  # fmt: skip


def refusal(node: Node, facts: Facts, library: Library, chips: Collection[int] = (), *, int8: bool) -> Support | None:
    """Why a node is not given to the parser; None where it may be tried. `chips`: 10 times compute capabilities."""
    title, graph = library.title, facts.graph
    if node.domain:
        return Support.no(f"{title} goes by names without domains and would take another operator for it", code="no-kernel")
    quantizes = node.op_type in quantized.OPERATORS
    if why := _type(node, graph, None if quantizes else _PLAIN):
        return Support.no(f"{title} {why}", code="type")
    if quantizes and not int8:
        return Support.no("the option trt_int8_enable is off", code="type", suggestion="set trt_int8_enable")
    if quantizes and (why := quantized.refusal(node, graph, chips)):
        return Support.no(f"{title}: {why}", code="type")
    check = _CHECKS.get(node.op_type)
    why = check(node, graph) if check is not None else ""
    return Support.no(f"{title}: {why}", code="wrong") if why else None


def _type(node: Node, graph: Graph, allowed: frozenset[DType] | None) -> str:
    """What is wrong with the types and sizes; `allowed`: the element types, None where others look at them."""
    for name in (*node.inputs, *node.outputs):
        kind = graph.type_of(name) if name else None
        if not name:
            continue
        if not isinstance(kind, TensorType):
            return f"has tensors only, and {name!r} is {kind or 'of unknown type'}"
        if allowed is not None and kind.dtype not in allowed:
            instead = _INSTEAD.get(kind.dtype, f"does not compute with {kind.dtype.onnx_name} on all its chips")
            return f"{instead}, and {name!r} is of these"
        if kind.rank is not None and kind.rank > _MOST_AXES:
            return f"has tensors of at most {_MOST_AXES} dimensions, and {name!r} has {kind.rank}"
        if kind.shape is not None and any(d == 0 for d in kind.shape) and _is_data(node, name):
            return f"is given no empty tensors, and {name!r} is one"
    return ""


def _is_data(node: Node, name: str) -> bool:
    """Whether an input is more than a list of sizes, which may be empty."""
    return name in node.outputs or (bool(node.inputs) and node.inputs[0] == name)


def _dtype(graph: Graph, name: str) -> DType | None:
    kind = graph.type_of(name) if name else None
    return kind.dtype if isinstance(kind, TensorType) else None


def _text(value: Any, default: str) -> str:
    return value.decode() if isinstance(value, bytes) else str(value) if value is not None else default


def _always(why: str) -> Callable[[Node, Graph], str]:
    return lambda node, graph: why


def _constant_input(index: int, what: str) -> Callable[[Node, Graph], str]:
    def check(node: Node, graph: Graph) -> str:
        given = len(node.inputs) > index and bool(node.inputs[index])
        return f"{what} must be a constant" if given and node.inputs[index] not in graph.constants else ""

    return check


def _recurrent(node: Node, graph: Graph) -> str:
    if node.attributes.get("layout", 0):
        return "the attribute 'layout' has no effect there"
    return ""


def _softmax(node: Node, graph: Graph) -> str:
    kind = graph.type_of(node.inputs[0])
    rank = kind.rank if isinstance(kind, TensorType) else None
    behind = rank is not None and int(node.attributes.get("axis", -1)) >= rank
    return "an axis behind the last is not checked there" if behind else ""


def _pool(node: Node, graph: Graph) -> str:
    if not node.attributes.get("ceil_mode", 0):
        return ""
    kind = graph.type_of(node.inputs[0])
    if not isinstance(kind, TensorType) or kind.shape is None or not all(isinstance(d, int) for d in kind.shape[2:]):
        return "with ceil_mode the number of windows is another one there, which shows in fixed sizes only"
    if node.op_type == "AveragePool" and any(node.attributes.get("pads", ())):
        return "with ceil_mode the last windows are divided by other numbers there"
    return ""


def _lp_pool(node: Node, graph: Graph) -> str:
    padded = any(node.attributes.get("pads", ())) or _text(node.attributes.get("auto_pad"), "NOTSET") not in ("NOTSET", "VALID")
    return "windows over the border come out as a mean there" if padded or node.attributes.get("ceil_mode", 0) else ""


def _conv_transpose(node: Node, graph: Graph) -> str:
    if _text(node.attributes.get("auto_pad"), "NOTSET") != "NOTSET" or node.attributes.get("output_shape"):
        return "the border that follows from 'auto_pad' or 'output_shape' is not checked there; give 'pads'"
    return ""


def _resize(node: Node, graph: Graph) -> str:
    mode = _text(node.attributes.get("coordinate_transformation_mode"), "half_pixel")
    if mode == "tf_half_pixel_for_nn":
        return "tf_half_pixel_for_nn is half_pixel, rounded up, there"
    if node.attributes.get("antialias", 0):
        return "'antialias' has no effect there"
    return ""


def _one_of_floats(node: Node, graph: Graph) -> str:
    kinds = {_dtype(graph, name) for name in (*node.inputs, *node.outputs) if name}
    return "" if len(kinds) == 1 and kinds <= _FLOATS else "it is for floats of one type there"


def _float_data(node: Node, graph: Graph) -> str:
    return "" if _dtype(graph, node.inputs[0]) in _FLOATS else "it computes integers by way of floats there"


def _mod(node: Node, graph: Graph) -> str:
    if _dtype(graph, node.inputs[0]) in _FLOATS:
        return "of floats it is x - y floor(x / y) there, which is off by the quotient's rounding"
    return ""


def _top_k(node: Node, graph: Graph) -> str:
    if not node.attributes.get("sorted", 1):
        return "only sorted results are there"
    k = graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
    count = int(k.numpy().reshape(-1)[0]) if k is not None else int(node.attributes.get("k", 1))
    if count > _LARGEST_K:
        return f"k is {count}, and {_LARGEST_K} the most there"
    return "" if _dtype(graph, node.inputs[0]) in (DType.FLOAT, DType.FLOAT16) else "it is for floats there"


def _extreme_index(node: Node, graph: Graph) -> str:
    return "" if _dtype(graph, node.inputs[0]) in (DType.FLOAT, DType.FLOAT16) else "it is for floats there"


def _lrn(node: Node, graph: Graph) -> str:
    size = int(node.attributes.get("size", 1))
    fits = size % 2 == 1 and size <= _LARGEST_WINDOW
    return "" if fits else f"'size' is odd and at most {_LARGEST_WINDOW} there, and this is {size}"


def _indices(position: int, axis_of: Callable[[Node], int | None]) -> Callable[[Node, Graph], str]:
    """Negative indices count from the end of an axis of fixed length only."""

    def check(node: Node, graph: Graph) -> str:
        kind = graph.type_of(node.inputs[0])
        shape = kind.shape if isinstance(kind, TensorType) else None
        axis = axis_of(node)
        read = shape if axis is None or shape is None else shape[axis : axis + 1] if axis >= 0 else [shape[axis]]
        fixed = read is not None and all(isinstance(d, int) for d in read)
        constant = graph.constants.get(node.inputs[position])
        if fixed or (constant is not None and not (constant.numpy() < 0).any()):
            return ""
        return "a negative index into an axis of varying length is undefined there, and these indices may be negative"

    return check


def _axis(node: Node) -> int:
    return int(node.attributes.get("axis", 0))


_LAYER_NORM_OUTPUTS = "its other outputs are not there"
_CHECKS: dict[str, Callable[[Node, Graph], str]] = {
    "ArgMax": _extreme_index,
    "ArgMin": _extreme_index,
    "Attention": _always("most of its forms do not build; products and Softmax do, which the builder fuses"),
    "AveragePool": _pool,
    "Bernoulli": _always("random numbers follow no seed there"),
    "ConvTranspose": _conv_transpose,
    "CumSum": _constant_input(1, "the axis"),
    "GRU": _recurrent,
    "Gather": _indices(1, _axis),
    "GatherElements": _indices(1, _axis),
    "GatherND": _indices(1, lambda node: None),
    "LRN": _lrn,
    "LSTM": _recurrent,
    "Hardmax": _softmax,
    "LayerNormalization": lambda node, graph: _LAYER_NORM_OUTPUTS if any(node.outputs[1:]) else "",
    "LogSoftmax": _softmax,
    "LpPool": _lp_pool,
    "MaxPool": _pool,
    "Mod": _mod,
    "NonMaxSuppression": _always("the number of boxes depends on data, which does not build"),
    "NonZero": _always("it needs a plugin that is not there"),
    "OneHot": _always("negative indices give rows of zeros there"),
    "Pow": _one_of_floats,
    "RNN": _recurrent,
    "RandomNormal": _always("random numbers follow no seed there"),
    "RandomNormalLike": _always("random numbers follow no seed there"),
    "RandomUniform": _always("random numbers follow no seed there"),
    "RandomUniformLike": _always("random numbers follow no seed there"),
    "ReduceL2": _float_data,
    "ReduceLogSum": _float_data,
    "ReduceMean": _float_data,
    "Resize": _resize,
    "RoiAlign": _always("it needs a plugin that is not there"),
    "Scatter": _indices(1, _axis),
    "ScatterElements": _indices(1, _axis),
    "ScatterND": _indices(1, lambda node: None),
    "Softmax": _softmax,
    "TensorScatter": _always("the result lies in the memory of an input there"),
    "TopK": _top_k,
    "Upsample": _resize,
}
