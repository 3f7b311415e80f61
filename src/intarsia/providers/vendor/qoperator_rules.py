"""Rules for quantised models in QOperator form: each operator on dequantised tensors, quantised again, or in 32-bit integers.

onnxruntime's quantisation tools write models so: QLinearConv and QLinearMatMul of ONNX, and of com.microsoft QLinearAdd, QGemm
and others (`OPERATORS`). What the operators compute is in `ops.contrib.qoperator`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.passes.rewriter import Patch
from intarsia.passes.rule import Match, Op, Rule
from intarsia.providers.vendor.legalization_rules import typed

DOMAIN = "com.microsoft"
Rewrite = Callable[[Match], "Patch | None"]
How = tuple[int, dict[str, Any]]
"""Version and attributes of an operator."""


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


def _quantized(m: Match, patch: Patch, x: str, scale: str, zero: str, kind: TensorType) -> str:
    """In the element type of `kind`, which the zero point says where there is one."""
    zero = _scalar(m, patch, zero) if zero else patch.constant(np.zeros((), kind.dtype.numpy), "zero")
    return patch.op("QuantizeLinear", [x, _scalar(m, patch, scale), zero], version=13, type=kind)


def _requantized(m: Match, patch: Patch, op_type: str, real: Sequence[str], how: How, scale: Sequence[str]) -> Patch:
    """The operator of real numbers, and scale and zero point of its result."""
    kind = typed(m, m.root.outputs[0], dtype=DType.FLOAT)
    made = patch.op(op_type, real, version=how[0], type=kind, **how[1])
    step, zero = scale
    return patch.result(_quantized(m, patch, made, step, zero, typed(m, m.root.outputs[0])), m.root.outputs[0])


def _qlinear_conv(m: Match) -> Patch | None:
    """QLinearConv is a convolution of dequantised tensors, quantised."""
    x, xs, xz, w, ws, wz, ys, yz, *bias = m.root.inputs
    patch = m.patch()
    real = [_dequantized(m, patch, x, xs, xz), _dequantized(m, patch, w, ws, wz, axis=0)]
    if bias and bias[0]:
        a, b = (m.rewriter.array(n) for n in (xs, ws))
        if a is None or b is None or m.rewriter.array(bias[0]) is None:
            return None
        scale = patch.constant((a.astype(np.float32).reshape(-1) * b.astype(np.float32).reshape(-1)).astype(np.float32))
        if b.size == 1:
            scale = patch.constant(np.array(float(a.reshape(())) * float(b.reshape(())), np.float32))
        real.append(_dequantized(m, patch, bias[0], scale, "", axis=0))
    return _requantized(m, patch, "Conv", real, (11, dict(m.root.attributes)), [ys, yz])


def _qlinear_matmul(m: Match) -> Patch | None:
    a, sa, za, b, sb, zb, sy, zy = m.root.inputs
    for scale in (sa, sb):
        if (m.rewriter.rank(scale) or 0) > 0 and m.rewriter.shape(scale) != (1,):
            return None  # of rows or columns: in shapes that DequantizeLinear does not have
    patch = m.patch()
    real = [_dequantized(m, patch, a, sa, za), _dequantized(m, patch, b, sb, zb)]
    return _requantized(m, patch, "MatMul", real, (13, {}), [sy, zy])


def _qlinear(op_type: str, operands: int, version: int) -> Rewrite:
    """An operator of com.microsoft on quantised tensors is `op_type` of dequantised ones, quantised.

    Inputs: tensor, scale and zero point of each of `operands`, then scale and zero point of the result.
    """

    def rewrite(m: Match) -> Patch | None:
        if m.root.attributes.get("channels_last", 0):
            return _channels_first(m, 0)
        attributes = {k: v for k, v in m.root.attributes.items() if k != "channels_last"}
        inputs = [*m.root.inputs, ""][: 3 * operands + 2]
        patch = m.patch()
        real = [_dequantized(m, patch, *inputs[i : i + 3]) for i in range(0, 3 * operands, 3)]
        return _requantized(m, patch, op_type, real, (version, attributes), inputs[3 * operands :])

    return rewrite


def _channels_first(m: Match, index: int) -> Patch | None:
    """An operator of images whose channels come last, of transposed ones; `index`: of the input that is an image."""
    node = m.root
    rank = m.rewriter.rank(node.inputs[index])
    if rank is None:
        return None
    to_first, to_last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    patch = m.patch()
    inputs = list(node.inputs)
    inputs[index] = patch.op("Transpose", [inputs[index]], type=_permuted(m, inputs[index], to_first), perm=to_first)
    kind = _permuted(m, node.outputs[0], to_first)
    made = m.rewriter.fresh(f"{patch.stem}.channels_first", patch.types)
    patch.types[made] = kind
    patch.node(
        node.copy(inputs=inputs, outputs=[made], attributes={**node.attributes, "channels_last": 0}, origin=patch.origin)
    )
    back = patch.op("Transpose", [made], type=typed(m, node.outputs[0]), perm=to_last)
    return patch.result(back, node.outputs[0])


def _permuted(m: Match, name: str, perm: Sequence[int]) -> TensorType:
    kind = typed(m, name)
    return TensorType(kind.dtype, None if kind.shape is None else tuple(kind.shape[p] for p in perm))


def _conv_of_any_layout(m: Match) -> Patch | None:
    """com.microsoft's QLinearConv is ONNX's, but for the place of the channels."""
    if m.root.attributes.get("channels_last", 0):
        return _channels_first(m, 0)
    attributes = {k: v for k, v in m.root.attributes.items() if k != "channels_last"}
    patch = m.patch()
    made = patch.op("QLinearConv", m.root.inputs, version=10, type=typed(m, m.root.outputs[0]), **attributes)
    return patch.result(made, m.root.outputs[0])


def _qlinear_concat(m: Match) -> Patch | None:
    """Scale and zero point of the result, then tensor, scale and zero point of each operand."""
    scale, zero, *rest = m.root.inputs
    patch = m.patch()
    real = [_dequantized(m, patch, *rest[i : i + 3]) for i in range(0, len(rest), 3)]
    return _requantized(m, patch, "Concat", real, (13, dict(m.root.attributes)), [scale, zero])


def _qlinear_softmax(m: Match) -> Patch | None:
    """Over one axis, or before opset 13 over all from it on."""
    attributes = dict(m.root.attributes)
    version = 13 if int(attributes.pop("opset", 13)) >= 13 else 11
    inputs = [*m.root.inputs, "", ""][:5]
    patch = m.patch()
    real = _dequantized(m, patch, *inputs[:3])
    return _requantized(m, patch, "Softmax", [real], (version, {"axis": -1, **attributes}), inputs[3:])


def _qlinear_where(m: Match) -> Patch | None:
    condition, *rest = m.root.inputs
    patch = m.patch()
    real = [_dequantized(m, patch, *rest[i : i + 3]) for i in (0, 3)]
    return _requantized(m, patch, "Where", [condition, *real], (9, {}), [*rest[6:], ""][:2])


def _qlinear_mean(m: Match) -> Patch | None:
    attributes = dict(m.root.attributes)
    attributes["axes"] = list(attributes.get("axes") or []) or None  # none: all of them
    inputs = [*m.root.inputs, "", ""][:5]
    patch = m.patch()
    real = _dequantized(m, patch, *inputs[:3])
    return _requantized(m, patch, "ReduceMean", [real], (13, attributes), inputs[3:])


def _gemm_scale(m: Match) -> np.ndarray | None:
    """What a step of QGemm's products, and of its bias, stands for: a number, or one for each column."""
    a, b = (m.rewriter.array(m.root.inputs[i]) for i in (1, 4))
    if a is None or b is None or a.size != 1 or b.ndim > 1:
        return None
    alpha = np.float32(m.root.attributes.get("alpha", 1.0))
    scale = np.asarray(a.reshape(()) * b * alpha, np.float32)
    return scale.reshape(()) if scale.size == 1 else scale


def _transposed(m: Match, patch: Patch, name: str, wanted: int) -> str:
    if not wanted:
        return name
    constant = m.rewriter.constant(name)
    if constant is None:
        return patch.op("Transpose", [name], type=_permuted(m, name, (1, 0)), perm=[1, 0])
    return patch.lazy_constant(constant.dtype, constant.shape[::-1], lambda: np.ascontiguousarray(constant.numpy().T))


def _qgemm_to_integers(m: Match) -> Patch | None:
    """Sums of products in 32 bits, plus the bias, times the scales; quantised where the result has a scale."""
    node, scale = m.root, _gemm_scale(m)
    if scale is None:
        return None
    inputs = [*node.inputs, "", "", "", ""][:9]
    a, b, out = inputs[0], inputs[3], typed(m, node.outputs[0])
    patch, wide = m.patch(), typed(m, node.outputs[0], dtype=DType.INT32)
    left, right = (_transposed(m, patch, n, node.attributes.get(t, 0)) for n, t in ((a, "transA"), (b, "transB")))
    zeros = [_scalar(m, patch, inputs[i]) for i in (2, 5)]
    total = patch.op("MatMulInteger", [left, right, *zeros], version=10, type=wide)
    if inputs[6]:
        total = patch.op("Add", [total, inputs[6]], version=14, type=wide)
    real = patch.op("Cast", [total], version=13, type=typed(m, node.outputs[0], dtype=DType.FLOAT), to=int(DType.FLOAT))
    kind = typed(m, node.outputs[0], dtype=DType.FLOAT)
    made = patch.op("Mul", [real, patch.constant(scale, "scale")], version=14, type=kind)
    return patch.result(_quantized(m, patch, made, inputs[7], inputs[8], out) if inputs[7] else made, node.outputs[0])


def _qgemm_to_gemm(m: Match) -> Patch | None:
    """Gemm of dequantised matrices."""
    node, scale = m.root, _gemm_scale(m)
    if scale is None:
        return None
    inputs = [*node.inputs, "", "", "", ""][:9]
    patch = m.patch()
    columns = 0 if node.attributes.get("transB", 0) else 1
    real = [_dequantized(m, patch, *inputs[:3]), _dequantized(m, patch, *inputs[3:6], axis=columns)]
    if inputs[6]:
        axis = (m.rewriter.rank(inputs[6]) or 1) - 1
        real.append(_dequantized(m, patch, inputs[6], patch.constant(scale, "scale"), "", axis=axis))
    out = typed(m, node.outputs[0])
    kind = typed(m, node.outputs[0], dtype=DType.FLOAT)
    made = patch.op("Gemm", real, version=13, type=kind, **node.attributes)
    return patch.result(_quantized(m, patch, made, inputs[7], inputs[8], out) if inputs[7] else made, node.outputs[0])


_OPERATORS: dict[str, Rewrite] = {
    "QLinearAdd": _qlinear("Add", 2, 14),
    "QLinearMul": _qlinear("Mul", 2, 14),
    "QLinearSigmoid": _qlinear("Sigmoid", 1, 13),
    "QLinearLeakyRelu": _qlinear("LeakyRelu", 1, 16),
    "QLinearAveragePool": _qlinear("AveragePool", 1, 11),
    "QLinearGlobalAveragePool": _qlinear("GlobalAveragePool", 1, 1),
    "QLinearConcat": _qlinear_concat,
    "QLinearConv": _conv_of_any_layout,
    "QLinearReduceMean": _qlinear_mean,
    "QLinearSoftmax": _qlinear_softmax,
    "QLinearWhere": _qlinear_where,
}
OPERATORS = frozenset((*_OPERATORS, "QGemm"))
"""Operators of com.microsoft that are written in those of ONNX."""


def is_qoperator(node: Node) -> bool:
    """Whether it is one of `OPERATORS`."""
    return node.domain == DOMAIN and node.op_type in OPERATORS


def _of_microsoft(name: str, rewrite: Rewrite) -> Rule:
    return Rule(name.lower(), Op((name,), domain=DOMAIN), rewrite)


QOPERATOR_RULES = tuple(_of_microsoft(name, rewrite) for name, rewrite in _OPERATORS.items())
"""com.microsoft's operators, but for QGemm, of which a vendor takes one of the next two."""
QGEMM_TO_INTEGERS = _of_microsoft("QGemm", _qgemm_to_integers)
QGEMM_TO_GEMM = _of_microsoft("QGemm", _qgemm_to_gemm)
QLINEAR_TO_QDQ = (
    Rule("qlinear_conv", Op(("QLinearConv",)), _qlinear_conv),
    Rule("qlinear_matmul", Op(("QLinearMatMul",)), _qlinear_matmul),
)
"""ONNX's own, for vendors that have no such operators."""
