"""Rules that write operators in terms of those that NNAPI has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch
from intarsia.passes.rule import Match, Op, Rule, RuleSet
from intarsia.providers.vendor.legalization_rules import GEMM_TO_MATMUL, fixed_shape, typed

_WITH_LISTS = ("kernel_shape", "strides", "dilations")


def _line_to_image(m: Match) -> Patch | None:
    """A convolution or pool of [N, C, L] is one of [N, C, 1, L]."""
    node, shape = m.root, fixed_shape(m, m.root.inputs[0])
    result = fixed_shape(m, node.outputs[0])
    if shape is None or result is None or len(shape) != 3 or any(node.outputs[1:]):
        return None
    patch = m.patch()
    attributes = dict(node.attributes)
    for name in _WITH_LISTS:
        if attributes.get(name):
            attributes[name] = [1, *attributes[name]]
    if attributes.get("pads"):
        low, high = attributes["pads"]
        attributes["pads"] = [0, low, 0, high]
    for name in ("output_padding", "output_shape"):
        if attributes.get(name):
            attributes[name] = [0 if name == "output_padding" else 1, *attributes[name][-1:]]
    inputs = [_lifted(m, patch, node.inputs[0])]
    if node.op_type.startswith("Conv"):
        inputs.append(_lifted(m, patch, node.inputs[1]))
        inputs += node.inputs[2:]
    made = patch.op(node.op_type, inputs, version=node.version, type=typed(m, node.outputs[0], _with_one(result)), **attributes)
    flat = patch.op("Reshape", [made, patch.ints(*result)], type=typed(m, node.outputs[0]))
    return patch.result(flat, node.outputs[0])


def _with_one(shape: Sequence[int]) -> tuple[int, ...]:
    return (*shape[:2], 1, *shape[2:])


def _lifted(m: Match, patch: Patch, name: str) -> str:
    """[A, B, L] as [A, B, 1, L]."""
    shape = fixed_shape(m, name)
    assert shape is not None, name
    dims = _with_one(shape)
    constant = m.rewriter.constant(name)
    if constant is not None:
        return patch.lazy_constant(constant.dtype, dims, lambda: constant.numpy().reshape(dims))
    return patch.op("Reshape", [name, patch.ints(*dims)], type=typed(m, name, dims))


def _qlinear_conv(m: Match) -> Patch | None:
    """QLinearConv is a convolution of dequantised tensors, quantised."""
    x, xs, xz, w, ws, wz, ys, yz, *bias = m.root.inputs
    patch = m.patch()
    real = [_dequantized(m, patch, x, xs, xz), _dequantized(m, patch, w, ws, wz, axis=0)]
    if bias and bias[0]:
        scales, steps = (m.rewriter.array(n) for n in (xs, ws)), m.rewriter.array(bias[0])
        a, b = scales
        if a is None or b is None or steps is None:
            return None
        scale = patch.constant((a.astype(np.float32).reshape(-1) * b.astype(np.float32).reshape(-1)).astype(np.float32))
        if b.size == 1:
            scale = patch.constant(np.array(float(a.reshape(())) * float(b.reshape(())), np.float32))
        real.append(_dequantized(m, patch, bias[0], scale, "", axis=0))
    kind = typed(m, m.root.outputs[0], dtype=DType.FLOAT)
    made = patch.op("Conv", real, version=11, type=kind, **m.root.attributes)
    return patch.result(_quantized(m, patch, made, ys, yz), m.root.outputs[0])


def _qlinear_matmul(m: Match) -> Patch | None:
    a, sa, za, b, sb, zb, sy, zy = m.root.inputs
    for scale in (sa, sb):
        if (m.rewriter.rank(scale) or 0) > 0 and m.rewriter.shape(scale) != (1,):
            return None  # of rows or columns: in shapes that DequantizeLinear does not have
    patch = m.patch()
    real = [_dequantized(m, patch, a, sa, za), _dequantized(m, patch, b, sb, zb)]
    kind = typed(m, m.root.outputs[0], dtype=DType.FLOAT)
    made = patch.op("MatMul", real, version=13, type=kind)
    return patch.result(_quantized(m, patch, made, sy, zy), m.root.outputs[0])


def _qlinear(op_type: str, operands: int, version: int) -> Callable[[Match], Patch | None]:
    """An operator of com.microsoft on quantised tensors is `op_type` of dequantised ones, quantised.

    Inputs: tensor, scale and zero point of each of `operands`, then scale and zero point of the result.
    """

    def rewrite(m: Match) -> Patch | None:
        node = m.root
        attributes = dict(node.attributes)
        if attributes.pop("channels_last", 0):
            return None
        inputs = [*node.inputs, ""][: 3 * operands + 2]
        patch = m.patch()
        real = [_dequantized(m, patch, *inputs[i : i + 3]) for i in range(0, 3 * operands, 3)]
        return _requantized(m, patch, op_type, real, (version, attributes), inputs[3 * operands :])

    return rewrite


def _qlinear_concat(m: Match) -> Patch | None:
    """Scale and zero point of the result, then tensor, scale and zero point of each operand."""
    scale, zero, *rest = m.root.inputs
    patch = m.patch()
    real = [_dequantized(m, patch, *rest[i : i + 3]) for i in range(0, len(rest), 3)]
    return _requantized(m, patch, "Concat", real, (13, dict(m.root.attributes)), [scale, zero])


def _requantized(
    m: Match, patch: Patch, op_type: str, real: Sequence[str], how: tuple[int, dict[str, Any]], scale: Sequence[str]
) -> Patch:
    """`how`: version and attributes; `scale`: scale and zero point of the result."""
    kind = typed(m, m.root.outputs[0], dtype=DType.FLOAT)
    made = patch.op(op_type, real, version=how[0], type=kind, **how[1])
    return patch.result(_quantized(m, patch, made, *scale), m.root.outputs[0])


def _scalar(m: Match, patch: Patch, name: str) -> str:
    """A constant of one element with rank 0, as DequantizeLinear wants it; others as they are."""
    array = m.rewriter.array(name) if name else None
    return patch.constant(array.reshape(())) if array is not None and array.size == 1 and array.ndim else name


def _dequantized(m: Match, patch: Patch, x: str, scale: str, zero: str, *, axis: int = 1) -> str:
    inputs = [x, _scalar(m, patch, scale) if scale in m.rewriter.graph.constants else scale]
    if zero:
        inputs.append(_scalar(m, patch, zero))
    kind = typed(m, x, dtype=DType.FLOAT)
    return patch.op("DequantizeLinear", inputs, version=13, type=kind, axis=axis)


def _quantized(m: Match, patch: Patch, x: str, scale: str, zero: str) -> str:
    inputs = [x, _scalar(m, patch, scale), _scalar(m, patch, zero)][: 3 if zero else 2]
    return patch.op("QuantizeLinear", inputs, version=13, type=m.rewriter.types[m.root.outputs[0]])


QOPERATORS = {
    "QLinearAdd": _qlinear("Add", 2, 14),
    "QLinearMul": _qlinear("Mul", 2, 14),
    "QLinearSigmoid": _qlinear("Sigmoid", 1, 13),
    "QLinearLeakyRelu": _qlinear("LeakyRelu", 1, 16),
    "QLinearAveragePool": _qlinear("AveragePool", 1, 11),
    "QLinearGlobalAveragePool": _qlinear("GlobalAveragePool", 1, 1),
    "QLinearConcat": _qlinear_concat,
}
"""Operators of com.microsoft that are written."""

RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        Rule("line_to_image", Op(("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool")), _line_to_image),
        Rule("qlinear_conv", Op(("QLinearConv",)), _qlinear_conv),
        Rule("qlinear_matmul", Op(("QLinearMatMul",)), _qlinear_matmul),
        GEMM_TO_MATMUL,
        *(Rule(name.lower(), Op((name,), domain="com.microsoft"), rewrite) for name, rewrite in QOPERATORS.items()),
    ),
)
