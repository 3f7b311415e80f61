"""Element-wise operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.providers.nnapi.expressions import (
    binary,
    cast,
    clipped,
    compare,
    like,
    plus,
    rounded,
    select,
    times,
    unary,
)
from intarsia.providers.nnapi.operands import Kind, OperandType, Tensor
from intarsia.providers.nnapi.writer import NHWC, Writer
from intarsia.providers.vendor.translator import Untranslatable

Lowering = Callable[[Writer, Node], None]

_ERF_ABOVE = (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
              -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02)  # fmt: skip
_ERF_BELOW = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
              -1.42647390514189e-02)  # fmt: skip
_ERF_LIMIT = 4.0


def need_real(w: Writer, node: Node, index: int = 0) -> None:
    """Raise Untranslatable where an input holds no floating-point numbers."""
    name = node.inputs[index]
    if not w.kind(name).real:
        raise Untranslatable(f"NNAPI computes {node.op_type} of floating-point numbers only, and {name!r} is {w.dtype(name)}",
                             "type")  # fmt: skip


def no_bytes(w: Writer, node: Node) -> None:
    """Raise Untranslatable for 8-bit integers: NNAPI would take them for quantised numbers, which saturate."""
    for name in filter(None, node.inputs):
        if w.kind(name).byte:
            raise Untranslatable(f"NNAPI takes 8-bit integers for quantised numbers, and {name!r} is {w.dtype(name)}", "type")


def _arithmetic(name: str, w: Writer, node: Node) -> None:
    no_bytes(w, node)
    if name == "DIV" and not w.kind(node.inputs[0]).real:
        raise Untranslatable("NNAPI rounds quotients of integers down, ONNX towards zero", "wrong")
    (a, b), layout = w.together(node.inputs[:2])
    fuse, out = w.activation(node)
    w.set(out, binary(w, name, a, b, fuse), layout)


def _extreme(name: str, w: Writer, node: Node) -> None:
    no_bytes(w, node)
    (a, b), layout = w.together(node.inputs[:2])
    w.set(node.outputs[0], binary(w, name, a, b), layout)


def _power(w: Writer, node: Node) -> None:
    need_real(w, node)
    exponent = w.array(node.inputs[1])
    if exponent is not None and exponent.size == 1 and float(exponent.reshape(())) in (2.0, 0.5):
        (x,), layout = w.together(node.inputs[:1])
        made = binary(w, "MUL", x, x) if float(exponent.reshape(())) == 2.0 else unary(w, "SQRT", x)
        if len(exponent.shape) <= x.rank:
            w.set(node.outputs[0], made, layout)
            return
    if w.dtype(node.inputs[1]) is not w.dtype(node.inputs[0]):
        if exponent is None or not w.dtype(node.inputs[1]).is_integer:
            raise Untranslatable("NNAPI's POW wants base and exponent of one type", "type")
        base = w.value(node.inputs[0])
        b = w.constant(exponent.astype(base.kind.numpy))
        w.set(node.outputs[0], binary(w, "POW", base, b))
        return
    (a, b), layout = w.together(node.inputs[:2])
    w.set(node.outputs[0], binary(w, "POW", a, b), layout)


def _unary(name: str, w: Writer, node: Node) -> None:
    no_bytes(w, node)
    (x,), layout = w.together(node.inputs[:1])
    w.set(node.outputs[0], unary(w, name, x), layout)


def of_real(function: Callable[[Writer, Node, Tensor], Tensor]) -> Lowering:
    """A lowering of one floating-point operand in any layout."""

    def lower(w: Writer, node: Node) -> None:
        need_real(w, node)
        (x,), layout = w.together(node.inputs[:1])
        w.set(node.outputs[0], function(w, node, x), layout)

    return lower


def _named(name: str, w: Writer, node: Node, x: Tensor) -> Tensor:
    return unary(w, name, x)


def _attribute(node: Node, name: str, default: float) -> float:
    return float(node.attributes.get(name, default))


def _leaky_relu(w: Writer, node: Node, x: Tensor) -> Tensor:
    slope = _attribute(node, "alpha", 0.01)
    return unary(w, "PRELU", x, like(w, x, slope))


def _hard_sigmoid(w: Writer, node: Node, x: Tensor) -> Tensor:
    return clipped(w, plus(w, times(w, x, _attribute(node, "alpha", 0.2)), _attribute(node, "beta", 0.5)), 0.0, 1.0)


def _hard_swish(w: Writer, node: Node, x: Tensor) -> Tensor:
    if w.target.level >= 30:
        return unary(w, "HARD_SWISH", x)
    return binary(w, "MUL", x, clipped(w, plus(w, times(w, x, 1 / 6), 0.5), 0.0, 1.0))


def _elu(w: Writer, node: Node, x: Tensor) -> Tensor:
    alpha = _attribute(node, "alpha", 1.0)
    return unary(w, "ELU", x, w.number(x, alpha))


def _selu(w: Writer, node: Node, x: Tensor) -> Tensor:
    alpha, gamma = _attribute(node, "alpha", 1.67326319217681884765625), _attribute(node, "gamma", 1.05070102214813232421875)
    return times(w, unary(w, "ELU", x, w.number(x, alpha)), gamma)


def _ceil(w: Writer, node: Node, x: Tensor) -> Tensor:
    return unary(w, "NEG", unary(w, "FLOOR", unary(w, "NEG", x)))


def _round(w: Writer, node: Node, x: Tensor) -> Tensor:
    return rounded(w, x)


def _reciprocal(w: Writer, node: Node, x: Tensor) -> Tensor:
    return binary(w, "DIV", like(w, x, 1.0), x)


def _softsign(w: Writer, node: Node, x: Tensor) -> Tensor:
    return binary(w, "DIV", x, plus(w, unary(w, "ABS", x), 1.0))


def _softplus(w: Writer, node: Node, x: Tensor) -> Tensor:
    """max(x, 0) + log(1 + exp(-abs(x))), which does not overflow."""
    small = unary(w, "EXP", unary(w, "NEG", unary(w, "ABS", x)))
    return binary(w, "ADD", unary(w, "RELU", x), unary(w, "LOG", plus(w, small, 1.0)))


def _mish(w: Writer, node: Node, x: Tensor) -> Tensor:
    return binary(w, "MUL", x, unary(w, "TANH", _softplus(w, node, x)))


def _swish(w: Writer, node: Node, x: Tensor) -> Tensor:
    alpha = _attribute(node, "alpha", 1.0)
    return binary(w, "MUL", x, unary(w, "LOGISTIC", times(w, x, alpha) if alpha != 1.0 else x))


def _thresholded_relu(w: Writer, node: Node, x: Tensor) -> Tensor:
    above = compare(w, "GREATER", x, like(w, x, _attribute(node, "alpha", 1.0)))
    return select(w, above, x, like(w, x, 0.0))


def _shrink(w: Writer, node: Node, x: Tensor) -> Tensor:
    bias, limit = _attribute(node, "bias", 0.0), _attribute(node, "lambd", 0.5)
    zero = like(w, x, 0.0)
    below = select(w, compare(w, "LESS", x, like(w, x, -limit)), plus(w, x, bias), zero)
    return select(w, compare(w, "GREATER", x, like(w, x, limit)), plus(w, x, -bias), below)


def _sign(w: Writer, node: Node, x: Tensor) -> Tensor:
    """Of NaN, NaN."""
    rest = select(w, compare(w, "LESS", x, like(w, x, 0.0)), like(w, x, -1.0), times(w, x, 0.0))
    return select(w, compare(w, "GREATER", x, like(w, x, 0.0)), like(w, x, 1.0), rest)


def erf(w: Writer, x: Tensor) -> Tensor:
    """x P(x^2) / Q(x^2) for abs(x) up to 4, a rational approximation to a few units in the last place of float32.

    In y = x^2 / 16, whose powers and coefficients are numbers of float16 too.
    """
    x = clipped(w, x, -_ERF_LIMIT, _ERF_LIMIT)
    y = times(w, binary(w, "MUL", x, x), 1 / 16)

    def polynomial(coefficients: tuple[float, ...]) -> Tensor:
        scaled = [c * 16.0 ** (len(coefficients) - 1 - i) for i, c in enumerate(coefficients)]
        total = plus(w, times(w, y, scaled[0]), scaled[1])
        for c in scaled[2:]:
            total = plus(w, binary(w, "MUL", total, y), c)
        return total

    above = binary(w, "MUL", x, polynomial(_ERF_ABOVE))
    return clipped(w, binary(w, "DIV", above, polynomial(_ERF_BELOW)), -1.0, 1.0)


def _erf(w: Writer, node: Node, x: Tensor) -> Tensor:
    return erf(w, x)


def _gelu(w: Writer, node: Node, x: Tensor) -> Tensor:
    mode = node.attributes.get("approximate", "none")
    if (mode.decode() if isinstance(mode, bytes) else mode) == "tanh":
        cube = binary(w, "MUL", binary(w, "MUL", x, x), x)
        inner = times(w, binary(w, "ADD", x, times(w, cube, 0.044715)), math.sqrt(2 / math.pi))
        share = unary(w, "TANH", inner)
    else:
        share = erf(w, times(w, x, math.sqrt(0.5)))
    return binary(w, "MUL", times(w, x, 0.5), plus(w, share, 1.0))


def _clip(w: Writer, node: Node) -> None:
    no_bytes(w, node)
    (x,), layout = w.together(node.inputs[:1])
    if name := w.activation_of(node) if x.kind.real else "":
        w.set(node.outputs[0], unary(w, name, x), layout)
        return
    for i, operation in ((1, "MAXIMUM"), (2, "MINIMUM")):
        bound = w.clip_bounds(node)[i - 1]
        if bound is None:
            x = binary(w, operation, x, w.value(node.inputs[i]))
        elif math.isfinite(bound) or not x.kind.real and i < len(node.inputs) and node.inputs[i]:
            x = binary(w, operation, x, like(w, x, bound))
        elif bound != (-math.inf if i == 1 else math.inf):
            raise Untranslatable(f"Clip at {bound}", "wrong")
    w.set(node.outputs[0], x, layout)


def _prelu(w: Writer, node: Node) -> None:
    need_real(w, node)
    (x, slope), layout = w.together(node.inputs[:2])
    w.set(node.outputs[0], binary(w, "PRELU", x, slope), layout)


def _compare(name: str, w: Writer, node: Node) -> None:
    no_bytes(w, node)
    (a, b), layout = w.together(node.inputs[:2])
    w.set(node.outputs[0], compare(w, name, a, b), layout)


def _logical(name: str, w: Writer, node: Node) -> None:
    (a, b), layout = w.together(node.inputs[:2])
    w.set(node.outputs[0], compare(w, name, a, b), layout)


def _not(w: Writer, node: Node) -> None:
    (x,), layout = w.together(node.inputs[:1])
    w.set(node.outputs[0], unary(w, "LOGICAL_NOT", x), layout)


def _where(w: Writer, node: Node) -> None:
    (which, a, b), layout = w.together(node.inputs[:3])
    w.set(node.outputs[0], select(w, which, a, b), layout)


def _is_nan(w: Writer, node: Node) -> None:
    need_real(w, node)
    (x,), layout = w.together(node.inputs[:1])
    w.set(node.outputs[0], compare(w, "NOT_EQUAL", x, x), layout)


_CASTS = {
    Kind.TENSOR_FLOAT32: (Kind.TENSOR_FLOAT16, Kind.TENSOR_BOOL8, Kind.TENSOR_INT32),
    Kind.TENSOR_FLOAT16: (Kind.TENSOR_FLOAT32, Kind.TENSOR_BOOL8, Kind.TENSOR_INT32),
    Kind.TENSOR_INT32: (Kind.TENSOR_FLOAT32, Kind.TENSOR_FLOAT16, Kind.TENSOR_BOOL8),
    Kind.TENSOR_BOOL8: (Kind.TENSOR_FLOAT32, Kind.TENSOR_FLOAT16, Kind.TENSOR_INT32),
    Kind.TENSOR_QUANT8_ASYMM: (Kind.TENSOR_FLOAT32, Kind.TENSOR_FLOAT16, Kind.TENSOR_INT32),
}


def _cast(w: Writer, node: Node) -> None:
    source, target = w.dtype(node.inputs[0]), DType(int(node.attributes["to"]))
    if target is DType.INT64 and source.is_floating:
        raise Untranslatable("NNAPI computes integers in 32 bits, and a float may be larger", "type")
    kind, found = w.kind(node.outputs[0]), w.kind(node.inputs[0])
    (x,), layout = w.together(node.inputs[:1])
    if kind is not found and kind not in _CASTS.get(found, ()):
        raise Untranslatable(f"NNAPI does not cast {source} to {target} as ONNX does", "no-kernel")
    if source.is_integer and found is Kind.TENSOR_INT32 and kind is Kind.TENSOR_INT32 and target is not source:
        if source is DType.INT64 and node.inputs[0] in w.graph.input_names():
            raise Untranslatable("NNAPI cannot be given 64-bit integers that wrap around", "type")
    if found is Kind.TENSOR_QUANT8_ASYMM:
        made = w.call("CAST", [x], OperandType(kind, x.dims))
    else:
        made = x if kind is found else cast(w, x, kind)
    w.set(node.outputs[0], made, layout)


def identity(w: Writer, node: Node) -> None:
    """The same operand."""
    name = node.inputs[0]
    layout = w.layout(name) if name not in w.graph.constants else "plain"
    w.set(node.outputs[0], w.value(name, layout), layout)


def _dropout(w: Writer, node: Node) -> None:
    """Where it is not trained, its operand."""
    if any(node.outputs[1:]) or len(node.inputs) > 2 and node.inputs[2]:
        raise Untranslatable("NNAPI drops nothing, and gives no mask")
    identity(w, node)


def _batch_normalization(w: Writer, node: Node) -> None:
    """x * factor + shift, both constants where the statistics are."""
    need_real(w, node)
    if node.attributes.get("training_mode", 0) or any(node.outputs[1:]):
        raise Untranslatable("NNAPI has no statistics of batches", "unsupported")
    arrays = [w.array(n) for n in node.inputs[1:5]]
    if any(a is None for a in arrays):
        _dynamic_batch_normalization(w, node)
        return
    scale, bias, mean, variance = (np.asarray(a, np.float64) for a in arrays)
    factor = scale / np.sqrt(variance + float(node.attributes.get("epsilon", 1e-5)))
    shift = bias - mean * factor
    (x,), layout = w.together(node.inputs[:1])
    shape = (-1,) if layout == NHWC or len(w.shape(node.inputs[0])) == 1 else (-1, *(1,) * (x.rank - 2))
    kind = x.kind.numpy
    made = binary(w, "MUL", x, w.constant(factor.astype(kind).reshape(shape)))
    fuse, out = w.activation(node)
    w.set(out, binary(w, "ADD", made, w.constant(shift.astype(kind).reshape(shape)), fuse), layout)


def _dynamic_batch_normalization(w: Writer, node: Node) -> None:
    """(x - mean) * scale / sqrt(variance + epsilon) + bias."""
    (x,), layout = w.together(node.inputs[:1])
    shape = (-1,) if layout == NHWC or x.rank == 1 else (-1, *(1,) * (x.rank - 2))
    dims = (w.shape(node.inputs[1])[0], *shape[1:])
    scale, bias, mean, variance = (w.reshaped(w.value(n), dims) for n in node.inputs[1:5])
    root = unary(w, "SQRT", plus(w, variance, float(node.attributes.get("epsilon", 1e-5))))
    made = binary(w, "MUL", binary(w, "SUB", x, mean), binary(w, "DIV", scale, root))
    w.set(node.outputs[0], binary(w, "ADD", made, bias), layout)


LOWERINGS: dict[str, Lowering] = {
    **{op: partial(_arithmetic, name) for op, name in (("Add", "ADD"), ("Sub", "SUB"), ("Mul", "MUL"), ("Div", "DIV"))},
    **{op: partial(_extreme, name) for op, name in (("Max", "MAXIMUM"), ("Min", "MINIMUM"))},
    **{op: partial(_unary, name) for op, name in (("Abs", "ABS"), ("Neg", "NEG"))},
    **{
        op: of_real(partial(_named, name))
        for op, name in (
            ("Relu", "RELU"), ("Sigmoid", "LOGISTIC"), ("Tanh", "TANH"), ("Floor", "FLOOR"), ("Exp", "EXP"), ("Log", "LOG"),
            ("Sin", "SIN"), ("Sqrt", "SQRT"),
        )
    },
    **{
        op: of_real(function)
        for op, function in {
            "LeakyRelu": _leaky_relu, "HardSigmoid": _hard_sigmoid, "HardSwish": _hard_swish, "Elu": _elu, "Selu": _selu,
            "Ceil": _ceil, "Round": _round, "Reciprocal": _reciprocal, "Softsign": _softsign, "Softplus": _softplus,
            "Mish": _mish, "Swish": _swish, "ThresholdedRelu": _thresholded_relu, "Shrink": _shrink, "Sign": _sign,
            "Erf": _erf, "Gelu": _gelu,
        }.items()
    },
    **{
        op: partial(_compare, name)
        for op, name in (
            ("Equal", "EQUAL"), ("Greater", "GREATER"), ("GreaterOrEqual", "GREATER_EQUAL"), ("Less", "LESS"),
            ("LessOrEqual", "LESS_EQUAL"),
        )
    },
    "And": partial(_logical, "LOGICAL_AND"),
    "Or": partial(_logical, "LOGICAL_OR"),
    "Xor": partial(_logical, "NOT_EQUAL"),
    "Not": _not,
    "Pow": _power,
    "Clip": _clip,
    "PRelu": _prelu,
    "Where": _where,
    "IsNaN": _is_nan,
    "Cast": _cast,
    "Identity": identity,
    "Dropout": _dropout,
    "BatchNormalization": _batch_normalization,
}  # fmt: skip
