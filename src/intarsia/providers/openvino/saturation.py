"""Products of 8 bits that OpenVINO would sum in 16: on x86 CPUs without VNNI.

There its kernels multiply unsigned by signed bytes with VPMADDUBSW, which adds two neighbouring products and saturates: with
openvino 2026.4.1, a convolution of 27 elements was 96 steps of its output off, MatMul 150. Weights of which no two in the same
direction add up to more than 128 (those of 7 bits) cannot saturate. Depthwise convolutions are multiplied otherwise, and right.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType, ValueType

_PRODUCTS = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))
_MOST = 128  # 255 * 128 < 2**15
_HANDED_ON = frozenset(
    "Concat Clip DepthToSpace Dropout Flatten Identity MaxPool Pad Relu Reshape Slice SpaceToDepth Split Squeeze "
    "Transpose Unsqueeze".split()
)
"""Operators through which OpenVINO moves a DequantizeLinear, so that bytes reach a product behind them."""


def adds_bytes_in_16_bits(device: str) -> bool:
    """Whether `device` may be a processor whose products of bytes saturate."""
    from intarsia.codegen.llvm.target import Target

    if device.partition(".")[0] in ("GPU", "NPU"):
        return False
    target = Target.host()
    return target.arch == "x86_64" and not (target.has("avx512vnni") or target.has("avxvnni"))


def saturating(graph: Graph) -> frozenset[str]:
    """Results of the products in `graph` that OpenVINO may make of bytes, and whose sums of two may exceed 16 bits."""
    producers = graph.producers()
    return frozenset(node.outputs[0] for node in graph.nodes if _saturates(node, graph, producers))


def _saturates(node: Node, graph: Graph, producers: Mapping[str, Node]) -> bool:
    if node.domain or node.op_type not in _PRODUCTS:
        return False
    left, right = (_bytes_behind(name, producers) for name in node.inputs[:2])
    if left is None or right is None or _is_depthwise(node, graph.type_of(right)):
        return False
    return not (_fits(left, graph) or _fits(right, graph))


def _bytes_behind(name: str, producers: Mapping[str, Node]) -> str | None:
    """The quantised tensor that reaches `name`; None where none does."""
    while (node := producers.get(name)) is not None:
        if node.op_type == "DequantizeLinear":
            return node.inputs[0]
        if node.op_type not in _HANDED_ON:
            return None
        name = node.inputs[0]
    return None


def _fits(name: str, graph: Graph) -> bool:
    """Whether `name` are constant signed bytes of which no two add up to more than 128."""
    constant = graph.constants.get(name)
    if constant is None or constant.dtype is not DType.INT8:
        return False
    weights = constant.numpy().astype(np.int16).ravel()
    if weights.size < 2:
        return True
    weights = np.partition(weights, (1, weights.size - 2))
    return bool(weights[-2:].sum() <= _MOST and weights[:2].sum() >= -_MOST)


def _is_depthwise(node: Node, filters: ValueType | None) -> bool:
    one_channel = isinstance(filters, TensorType) and filters.shape is not None and filters.shape[1] == 1
    return node.op_type == "Conv" and one_channel and node.attributes.get("group", 1) > 1
