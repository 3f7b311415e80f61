"""Operators, attributes and numbers that OpenVINO computes otherwise than ONNX says, and that nothing here puts right.

`repairs` and `frontend_rewrites` have what is put right. Each was seen with openvino 2026.4.1: in ONNX's backend cases, by the
sweep of single nodes (`intarsia.testing.node_sweep`), or in tests/providers/openvino/test_refusals.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.providers.openvino.frontend_rewrites import softmax_of_rows_stays

_PEEPHOLES = 7  # the input of LSTM


def _attention(node: Node, graph: Graph) -> str:
    ignored = set(node.attributes) - {"is_causal", "kv_num_heads", "q_num_heads", "scale", "softcap", "softmax_precision"}
    if node.attributes.get("qk_matmul_output_mode", 0) == 0:
        ignored.discard("qk_matmul_output_mode")
    if ignored:
        return f"the attribute {min(ignored)!r} has no effect there"
    if any(node.inputs[4:]) or any(node.outputs[1:]):
        return "past keys and the products of queries and keys come out differently"
    return ""


def _resize(node: Node, graph: Graph) -> str:
    given = {k: v.decode() if isinstance(v, bytes) else v for k, v in node.attributes.items()}
    for name, plain in (("antialias", 0), ("exclude_outside", 0), ("keep_aspect_ratio_policy", "stretch")):
        if given.get(name, plain) != plain:
            return f"the attribute {name!r} = {given[name]!r} gives other numbers there"
    scales = len(node.inputs) > 2 and bool(node.inputs[2])
    if scales and given.get("coordinate_transformation_mode") == "align_corners":
        return "align_corners with scales gives other numbers there"
    if given.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return "tf_crop_and_resize is not there"
    return ""


def _quantize(node: Node, graph: Graph) -> str:
    scale = graph.type_of(node.inputs[1])
    if node.inputs[1] not in graph.constants and not (isinstance(scale, TensorType) and scale.rank == 0):
        return "scales that only a run knows go along the last axis there"
    zero = graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    if len(node.inputs) > 2 and node.inputs[2] and (zero is None or (zero.numpy().astype(np.int64) % 2).any()):
        return "numbers halfway between two steps round the other way where the zero point is odd"
    return ""


def _cast(node: Node, graph: Graph) -> str:
    target = graph.type_of(node.outputs[0])
    to_bool = isinstance(target, TensorType) and target.dtype is DType.BOOL
    source = graph.type_of(node.inputs[0])
    if to_bool and isinstance(source, TensorType) and source.dtype is not DType.BOOL:
        return "NaN and -2**31 become False there"
    return ""


def _average_pool(node: Node, graph: Graph) -> str:
    if node.attributes.get("ceil_mode", 0) and node.attributes.get("count_include_pad", 0):
        return "with ceil_mode and count_include_pad, places beyond the padding are counted"
    return ""


def _pool(node: Node, graph: Graph) -> str:
    return "with ceil_mode, windows that begin in the padding are counted" if node.attributes.get("ceil_mode", 0) else ""


def _lp_pool(node: Node, graph: Graph) -> str:
    return "with ceil_mode, windows over the end count what they lack" if node.attributes.get("ceil_mode", 0) else ""


def _old_broadcast(node: Node, graph: Graph) -> str:
    """Of versions before 7, whose second operand may begin at any axis; Add, And, Div, Mul and Sub are right."""
    if not node.attributes.get("broadcast", 0) or "axis" not in node.attributes:
        return ""
    ranks = [kind.rank if isinstance(kind := graph.type_of(name), TensorType) else None for name in node.inputs[:2]]
    if ranks[0] is not None and ranks[1] is not None:
        axis = node.attributes["axis"]
        if ranks[1] == 0 or (axis if axis >= 0 else axis + ranks[0]) == ranks[0] - ranks[1]:
            return ""
    return "the attribute 'axis' has no effect there: the second operand is broadcast from the last axis"


def _prelu(node: Node, graph: Graph) -> str:
    """Of versions 1 and 6: a slope for each channel. `repairs` broadcasts it from the last axis, as later versions have it."""
    old = (node.version or graph.opset_imports.get("", 1)) < 7
    slope = graph.type_of(node.inputs[1])
    one = isinstance(slope, TensorType) and slope.shape in ((), (1,))
    return "slopes of versions 1 and 6 go along the channels" if old and not one else ""


def _recurrent(node: Node, graph: Graph) -> str:
    for name in ("layout", "input_forget"):
        if node.attributes.get(name, 0):
            return f"the attribute {name!r} has no effect there"
    return "peepholes have no effect there" if len(node.inputs) > _PEEPHOLES and node.inputs[_PEEPHOLES] else ""


def _gates(node: Node, graph: Graph) -> str:
    if node.attributes.get("clip", 0):
        return "NaN is lost there where gates are clipped"
    names = (name.decode() if isinstance(name, bytes) else name for name in node.attributes.get("activations", ()))
    return "NaN is lost in activations other than Sigmoid and Tanh" if {*names} - {"Sigmoid", "Tanh"} else ""


def _rows(node: Node, graph: Graph) -> str:
    return "" if softmax_of_rows_stays(node, graph) else "axes from `axis` on are no row there, and the rank is not known here"


def _gather_elements(node: Node, graph: Graph) -> str:
    kinds = [graph.type_of(name) for name in node.inputs[:2]]
    shapes = [kind.shape if isinstance(kind, TensorType) else None for kind in kinds]
    if shapes[0] is None or shapes[1] is None or len(shapes[0]) != len(shapes[1]):
        return "sizes that are not known must be equal there"
    axis = node.attributes.get("axis", 0) % max(len(shapes[0]), 1)
    same = all(a == b for i, (a, b) in enumerate(zip(*shapes, strict=True)) if i != axis)
    return "" if same else "indices have all rows of the data there, and not fewer"


def _local_response(node: Node, graph: Graph) -> str:
    kind = graph.type_of(node.inputs[0])
    rank = kind.rank if isinstance(kind, TensorType) else None
    return "" if rank in (3, 4) else "even windows are centred there, which is put right for three or four axes only"


def _modulo(node: Node, graph: Graph) -> str:
    kind = graph.type_of(node.inputs[0])
    floats = isinstance(kind, TensorType) and kind.dtype.is_floating
    return "remainders of quotients above 2**24 are wrong there" if floats else ""


def _selu(node: Node, graph: Graph) -> str:
    old = (node.version or graph.opset_imports.get("", 1)) < 6
    return "the defaults of version 1 have fewer digits" if old and not {"alpha", "gamma"} <= node.attributes.keys() else ""


def _upsample(node: Node, graph: Graph) -> str:
    scales = graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
    given = scales.numpy() if scales is not None else node.attributes.get("scales")
    whole = given is not None and bool((np.asarray(given) % 1 == 0).all())
    return "" if whole else "scales that are no whole numbers give other pixels there"


def _range(node: Node, graph: Graph) -> str:
    """Of floats: integers are counted right."""
    kind = graph.type_of(node.outputs[0])
    if isinstance(kind, TensorType) and kind.dtype.is_floating:
        return "an empty range has an element there"
    return ""


def _layer_norm(node: Node, graph: Graph) -> str:
    """Scale and bias have the sizes of the normalised axes there, and are not broadcast."""
    x = graph.type_of(node.inputs[0])
    for name in filter(None, node.inputs[1:]):
        given = graph.type_of(name)
        if not isinstance(x, TensorType) or not isinstance(given, TensorType) or x.shape is None or given.shape is None:
            continue
        axis = node.attributes.get("axis", -1)
        if tuple(given.shape) != tuple(x.shape[axis if axis >= 0 else axis + len(x.shape) :]) and not _all_known(x, given):
            return "scale and bias are not broadcast there"
    return ""


def _all_known(*kinds: TensorType) -> bool:
    return all(isinstance(size, int) for kind in kinds for size in kind.shape or ())


def _fused_gemm(node: Node, graph: Graph) -> str:
    given = node.attributes.get("activation", b"")
    name = given.decode() if isinstance(given, bytes) else given
    return "" if name in ("", "Relu") else f"the activation {name!r} is not applied there"


def _depth(node: Node, graph: Graph) -> str:
    return "the attribute 'mode' has no effect there" if node.attributes.get("mode", "DCR") not in ("DCR", b"DCR") else ""


def _tile(node: Node, graph: Graph) -> str:
    return "" if node.inputs[1] in graph.constants else "repeats that only a run knows are not followed there"


def _pad(node: Node, graph: Graph) -> str:
    value = node.inputs[2] if len(node.inputs) > 2 else ""
    return "a value that only a run knows is 0 there" if value and value not in graph.constants else ""


def _split(node: Node, graph: Graph) -> str:
    parts, kind = node.attributes.get("num_outputs", 0), graph.type_of(node.inputs[0])
    if not parts or not isinstance(kind, TensorType):
        return ""
    size = kind.shape[node.attributes.get("axis", 0)] if kind.shape else None
    return "" if isinstance(size, int) else "parts of a size that only a run knows have to be equal there"


def _extremum(node: Node, graph: Graph) -> str:
    return "NaN is lost there, and of nothing but -inf it makes -3.4e38"


def _number(node: Node, graph: Graph) -> str:
    """Of floats only."""
    kind = graph.type_of(node.inputs[0])
    return "NaN is not the largest there" if isinstance(kind, TensorType) and kind.dtype.is_floating else ""


def _scatter(node: Node, graph: Graph) -> str:
    given = node.attributes.get("reduction", "none")
    name = given.decode() if isinstance(given, bytes) else given
    kind = graph.type_of(node.inputs[0])
    floats = isinstance(kind, TensorType) and kind.dtype.is_floating
    return f"NaN among updates is lost there by reduction {name!r}" if floats and name in ("max", "min") else ""


def _quantize_of_nan(node: Node, graph: Graph) -> str:
    """By constant scales it is right."""
    kind = graph.type_of(node.outputs[0])
    signed = isinstance(kind, TensorType) and kind.dtype is DType.INT8
    return "NaN becomes 0, not the lowest, by a scale of the run" if signed and node.inputs[1] not in graph.constants else ""


def _products(node: Node, graph: Graph) -> str:
    return "elements are multiplied by 0 or 1 there, and 0 times NaN or infinity is NaN"


WRONG: Mapping[str, Callable[[Node, Graph], str]] = {
    "Attention": _attention,
    "AveragePool": _average_pool,
    "Cast": _cast,
    "CastLike": _cast,
    "DFT": lambda node, graph: "its error is 20 times float32's rounding, and its axis may be another one",
    "GRU": _recurrent,
    "GatherElements": _gather_elements,
    "LRN": _local_response,
    "LSTM": _recurrent,
    "LayerNormalization": _layer_norm,
    "LpPool": _lp_pool,
    "MaxPool": _pool,
    "MaxRoiPool": lambda node, graph: "regions begin and end elsewhere there",
    "Mod": _modulo,
    "PRelu": _prelu,
    "Pad": _pad,
    "QuantizeLinear": _quantize,
    "RNN": _recurrent,
    "Range": _range,
    "ReduceMax": _extremum,
    "ReduceMin": _extremum,
    "Resize": _resize,
    "Selu": _selu,
    "Softmax": _rows,
    "SpaceToDepth": _depth,
    "Split": _split,
    "Tile": _tile,
    "Upsample": _upsample,
    **dict.fromkeys(("Equal", "Greater", "Less", "Or", "Pow", "Xor"), _old_broadcast),
    "com.microsoft::FusedGemm": _fused_gemm,
}
"""Operator -> why this node of it would be computed wrongly ("": it would not)."""

WRONG_OF_NAN: Mapping[str, Callable[[Node, Graph], str]] = {
    "ArgMax": _number,
    "ArgMin": _number,
    "GRU": _gates,
    "GlobalMaxPool": _number,
    "Hardmax": _number,
    "LSTM": _gates,
    "QuantizeLinear": _quantize_of_nan,
    "RNN": _gates,
    "ReduceLogSumExp": lambda node, graph: "NaN becomes infinite there",
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "Shrink": _products,
    "ThresholdedRelu": _products,
    "TopK": _number,
}
"""As `WRONG`, for NaN: they are given to OpenVINO where the option `exact_nan` is False."""

_LOGARITHM = "the logarithm of 0, of negative numbers and of infinity is a finite number there, and that near 1 has few digits"



def _nearest(node: Node, graph: Graph) -> str:
    nearest = node.attributes.get("mode", "nearest") in ("nearest", b"nearest")
    return "another pixel is the nearest there, for sizes of the run and some scales" if nearest else ""


WRONG_ON_ARM64: Mapping[str, Callable[[Node, Graph], str]] = {
    **dict.fromkeys(("Log", "Softplus", "ReduceLogSum", "ReduceLogSumExp"), lambda node, graph: _LOGARITHM),
    **dict.fromkeys(("Resize", "Upsample"), _nearest),
}
"""As `WRONG`, for the plugin of ARM64 CPUs (openvino 2026.4.1: Log(inf) is 88.7, Log(-1) 177.4, Softplus(0) 0.69354)."""
