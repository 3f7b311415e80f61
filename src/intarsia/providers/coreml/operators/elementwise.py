"""Functions of one element: of one operand, and of several that are broadcast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.providers.coreml.node_builder import (
    CARRIERS,
    FLOATS,
    INTEGERS,
    Handler,
    NodeBuilder,
    Var,
    carrier_of,
)


def _function(name: str) -> Handler:
    """Of floats, as MIL has it."""

    def handle(b: NodeBuilder) -> Var:
        b.only(*FLOATS)
        return getattr(b.mb, name)(x=b.x())

    return handle


def _identity(b: NodeBuilder) -> Var:
    return b.mb.identity(x=b.x())


def _dropout(b: NodeBuilder) -> list[Var]:
    """Of inference: the data, and a mask of what stays, which is all."""
    b.only(*FLOATS)
    training = b.constant(2) if b.has(2) else None
    if b.attribute("is_test", 1) == 0 or (b.has(2) and (training is None or bool(training))):
        raise b.refuse("Dropout of training draws random numbers")
    mask = np.ones(b.shape(), np.bool_ if b.node.version >= 10 else b.number(0).dtype)
    return [b.mb.identity(x=b.x()), mask][: len(b.node.outputs)]


def _absolute(b: NodeBuilder) -> Var:
    b.only(*FLOATS, DType.INT32, DType.INT64)
    return b.mb.abs(x=b.x())


def _negative(b: NodeBuilder) -> Var:
    b.only(*FLOATS, DType.INT32, DType.INT64)
    return b.mb.mul(x=b.x(), y=b.number(-1))


def _sign(b: NodeBuilder) -> Var:
    b.only(*FLOATS, DType.INT32, DType.INT64)
    return b.mb.sign(x=b.x())


def _logarithm(b: NodeBuilder) -> Var:
    b.only(*FLOATS)
    return b.mb.log(x=b.x(), epsilon=b.number(0))  # by default 1e-45 is added


def _reciprocal(b: NodeBuilder) -> Var:
    """Core ML's inverse adds 1e-4."""
    b.only(*FLOATS)
    return b.mb.real_div(x=b.number(1), y=b.x())


def _not(b: NodeBuilder) -> Var:
    return b.mb.logical_not(x=b.x())


def _relu(b: NodeBuilder) -> Var:
    if b.only(*FLOATS, DType.INT32) is DType.INT32:
        return b.mb.maximum(x=b.x(), y=np.int32(0))
    return b.mb.relu(x=b.x())


def _with_alpha(name: str, default: float) -> Handler:
    def handle(b: NodeBuilder) -> Var:
        b.only(*FLOATS)
        return getattr(b.mb, name)(x=b.x(), alpha=b.number(b.attribute("alpha", default)))

    return handle


def _hard_sigmoid(b: NodeBuilder) -> Var:
    b.only(*FLOATS)
    alpha, beta = b.number(b.attribute("alpha", 0.2)), b.number(b.attribute("beta", 0.5))
    return _clipped(b, b.mb.add(x=b.mb.mul(x=b.x(), y=alpha), y=beta), b.number(0), b.number(1))


def _hard_swish(b: NodeBuilder) -> Var:
    b.only(*FLOATS)
    gate = _clipped(b, b.mb.add(x=b.mb.mul(x=b.x(), y=b.number(1 / 6)), y=b.number(0.5)), b.number(0), b.number(1))
    return b.mb.mul(x=b.x(), y=gate)


def _clipped(b: NodeBuilder, x: Var, low: Any, high: Any) -> Var:
    return b.mb.minimum(x=b.mb.maximum(x=x, y=low), y=high)


def _selu(b: NodeBuilder) -> Var:
    """gamma * elu(x, alpha)."""
    b.only(*FLOATS)
    old = 0 < b.node.version < 6
    alpha = b.attribute("alpha", 1.6732 if old else 1.67326319217681884765625)
    gamma = b.attribute("gamma", 1.0507 if old else 1.05070102214813232421875)
    return b.mb.mul(x=b.mb.elu(x=b.x(), alpha=b.number(alpha)), y=b.number(gamma))


def _celu(b: NodeBuilder) -> Var:
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)."""
    b.only(*FLOATS)
    alpha, mb = b.attribute("alpha", 1.0), b.mb
    scaled = mb.elu(x=mb.real_div(x=b.x(), y=b.number(alpha)), alpha=b.number(1))
    return mb.mul(x=scaled, y=b.number(alpha))


def _thresholded_relu(b: NodeBuilder) -> Var:
    b.only(*FLOATS)
    alpha = b.number(b.attribute("alpha", 1.0))
    return b.mb.select(cond=b.mb.greater(x=b.x(), y=alpha), a=b.x(), b=b.number(0))


def _mish(b: NodeBuilder) -> Var:
    """In float32: float16's softplus loses digits where it is small."""
    return _in_float32(b, lambda b, x: b.mb.mul(x=x, y=b.mb.tanh(x=b.mb.softplus(x=x))))


def _swish(b: NodeBuilder) -> Var:
    b.only(*FLOATS)
    alpha = b.attribute("alpha", 1.0)
    scaled = b.x() if alpha == 1.0 else b.mb.mul(x=b.x(), y=b.number(alpha))
    return b.mb.mul(x=b.x(), y=b.mb.sigmoid(x=scaled))


def _gelu(b: NodeBuilder) -> Var:
    b.only(*FLOATS)
    tanh = b.attribute("approximate", "none") == "tanh"
    return b.mb.gelu(x=b.x(), mode="TANH_APPROXIMATION" if tanh else "EXACT")


def _shrink(b: NodeBuilder) -> Var:
    """x + bias below -lambd, x - bias above lambd, 0 between."""
    b.only(*FLOATS)
    mb, bias, bound = b.mb, b.attribute("bias", 0.0), b.attribute("lambd", 0.5)
    high = mb.select(cond=mb.greater(x=b.x(), y=b.number(bound)), a=mb.sub(x=b.x(), y=b.number(bias)), b=b.number(0))
    return mb.select(cond=mb.less(x=b.x(), y=b.number(-bound)), a=mb.add(x=b.x(), y=b.number(bias)), b=high)


def _is_nan(b: NodeBuilder) -> Var:
    b.only(*FLOATS)
    return b.mb.not_equal(x=b.x(), y=b.x())


def _is_inf(b: NodeBuilder) -> Var:
    b.only(*FLOATS)
    mb, wanted = b.mb, []
    if b.attribute("detect_positive", 1):
        wanted.append(mb.equal(x=b.x(), y=b.number(np.inf)))
    if b.attribute("detect_negative", 1):
        wanted.append(mb.equal(x=b.x(), y=b.number(-np.inf)))
    if not wanted:  # of no number
        return mb.logical_and(x=mb.less(x=b.x(), y=b.number(0)), y=mb.greater(x=b.x(), y=b.number(0)))
    return wanted[0] if len(wanted) == 1 else mb.logical_or(x=wanted[0], y=wanted[1])


def _asinh(b: NodeBuilder) -> Var:
    """sign(x) * log(|x| + sqrt(x^2 + 1)), in float32; of small |x| by log1p's series it keeps its digits."""
    return _in_float32(b, _asinh_of)


def _asinh_of(b: NodeBuilder, x: Var) -> Var:
    mb = b.mb
    size = mb.abs(x=x)
    large = _doubled_log(b, size, mb.add(x=mb.square(x=size), y=np.float32(1)))
    square = mb.square(x=size)  # x - x^3 / 6 + 3 x^5 / 40, below 0.04 to a unit in the last place
    series = mb.mul(
        x=size,
        y=mb.add(x=np.float32(1), y=mb.mul(x=square, y=mb.add(x=np.float32(-1 / 6), y=mb.mul(x=square, y=np.float32(3 / 40))))),
    )
    chosen = mb.select(cond=mb.less(x=size, y=np.float32(0.04)), a=series, b=large)
    return mb.mul(x=mb.sign(x=x), y=chosen)


def _doubled_log(b: NodeBuilder, x: Var, square: Var) -> Var:
    """log(x + sqrt(square)), where the square is nearly that of x; log(2 x) of numbers whose squares float32 does not hold."""
    mb = b.mb
    near = mb.log(x=mb.add(x=x, y=mb.sqrt(x=square)), epsilon=np.float32(0))
    far = mb.add(x=mb.log(x=x, epsilon=np.float32(0)), y=np.float32(np.log(2)))
    return mb.select(cond=mb.greater(x=x, y=np.float32(1e9)), a=far, b=near)


def _acosh(b: NodeBuilder) -> Var:
    """log(x + sqrt((x - 1) * (x + 1)))."""

    def compute(b: NodeBuilder, x: Var) -> Var:
        mb = b.mb
        product = mb.mul(x=mb.sub(x=x, y=np.float32(1)), y=mb.add(x=x, y=np.float32(1)))
        return _doubled_log(b, x, product)

    return _in_float32(b, compute)


def _in_float32(b: NodeBuilder, compute: Callable[[NodeBuilder, Var], Var]) -> Var:
    carrier = CARRIERS[b.only(*FLOATS)]
    return b.cast(compute(b, b.cast(b.x(), np.float32)), carrier)


# of several operands


def _binary(name: str, *dtypes: DType) -> Handler:
    """As MIL has it, for these element types."""

    def handle(b: NodeBuilder) -> Var:
        b.only(*dtypes)
        x, y = aligned(b)
        return getattr(b.mb, name)(x=x, y=y)

    return handle


def aligned(b: NodeBuilder) -> tuple[Var, Var]:
    """The two operands; before version 7 the second may begin at any axis (`broadcast`, `axis`)."""
    x, y = b.x(0), b.x(1)
    if b.node.version < 7 and b.attribute("broadcast", 0) and "axis" in b.node.attributes:
        given = b.shape(1)
        axis = b.axis()
        y = b.reshape(y, (*given, *(1,) * (b.rank - axis - len(given)))) if given else y
    return x, y


def _divide(b: NodeBuilder) -> Var:
    """Integers are divided towards zero: Core ML has floor_div alone."""
    dtype = b.only(*FLOATS, DType.INT32, DType.INT64)
    mb = b.mb
    x, y = aligned(b)
    if dtype in FLOATS:
        return mb.real_div(x=x, y=y)
    size = mb.floor_div(x=mb.abs(x=x), y=mb.abs(x=y))
    return mb.mul(x=size, y=mb.mul(x=mb.sign(x=x), y=mb.sign(x=y)))


def _modulo(b: NodeBuilder) -> Var:
    """The sign of the divisor; with fmod=1 that of the dividend, of floats whose quotient float32 holds."""
    dtype = b.only(*FLOATS, DType.INT32, DType.INT64)
    if b.attribute("fmod", 0):
        if dtype in FLOATS:
            raise b.refuse("remainders of quotients above 2**24 are wrong by Core ML's mod of floats")
        mb, (x, y) = b.mb, aligned(b)
        return mb.mul(x=mb.sign(x=x), y=mb.mod(x=mb.abs(x=x), y=mb.abs(x=y)))
    if dtype in FLOATS:
        raise b.refuse("Mod of floats needs fmod=1")
    return b.mb.mod(x=b.x(0), y=b.x(1))


def _power(b: NodeBuilder) -> Var:
    base, exponent = b.only(*FLOATS, DType.INT32), b.only(*FLOATS, DType.INT32, DType.INT64, index=1)
    mb, (x, y) = b.mb, aligned(b)
    if base in FLOATS:
        return mb.pow(x=x, y=b.cast(y, CARRIERS[base]))
    raise b.refuse(f"Core ML raises floats to powers, not {base} to {exponent}", "type")


def _extremum(name: str) -> Handler:
    def handle(b: NodeBuilder) -> Var:
        b.only(*FLOATS, *INTEGERS)
        if len(b.node.inputs) == 1:
            return b.mb.identity(x=b.x())
        return getattr(b.mb, name)(x=b.x(0), y=b.x(1))

    return handle


def _compare(name: str) -> Handler:
    def handle(b: NodeBuilder) -> Var:
        x, y = aligned(b)
        if b.only(*FLOATS, *INTEGERS, DType.BOOL) is DType.BOOL:
            x, y = b.movable(x), b.movable(y)
        return getattr(b.mb, name)(x=x, y=y)

    return handle


def _prelu(b: NodeBuilder) -> Var:
    """x where x is not negative, slope * x where it is; before version 7 a slope for each channel."""
    b.only(*FLOATS)
    mb, x, slope = b.mb, b.x(0), b.x(1)
    if b.node.version < 7 and len(b.shape(1)) == 1 and b.shape(1) != (1,):
        slope = b.reshape(slope, (*b.shape(1), *(1,) * (b.rank - 2)))
    return mb.select(cond=mb.less(x=x, y=b.number(0)), a=mb.mul(x=x, y=slope), b=x)


def _where(b: NodeBuilder) -> Var:
    """MIL's select infers its shape from the two values alone: these are broadcast first."""
    b.only(*FLOATS, *INTEGERS, DType.BOOL, index=1)
    a, c = b.x(1), b.x(2)
    if b.out_dims() not in (b.dims(1), b.dims(2)):
        a, c = expanded(b, a), expanded(b, c)
    if isinstance(a, (np.ndarray, np.generic)) and isinstance(c, (np.ndarray, np.generic)):
        a = expanded(b, a)
    return b.mb.select(cond=b.x(0), a=a, b=c)


def expanded(b: NodeBuilder, x: Var) -> Var:
    """A variable broadcast to the output's shape."""
    from intarsia.providers.coreml.operators.layout import broadcast_to

    return broadcast_to(b, x, b.out_shape())


def _clip(b: NodeBuilder) -> Var:
    """min(max(x, low), high): Core ML's clip refuses a low that is above the high."""
    dtype = b.only(*FLOATS, *INTEGERS)
    x = b.x()
    low = b.x(1) if b.has(1) else b.attribute("min")
    high = b.x(2) if b.has(2) else b.attribute("max")
    for bound, name in ((low, "maximum"), (high, "minimum")):
        if bound is not None:
            y = CARRIERS[dtype](bound) if isinstance(bound, float) else bound
            x = getattr(b.mb, name)(x=x, y=y)
    return x if x is not b.x() else b.mb.identity(x=x)


def _cast(b: NodeBuilder) -> Var:
    """To an integer of fewer bits numbers wrap; to 64 bits only those go that 32 hold."""
    source, target = b.dtype(), b.out_dtype()
    for dtype in (source, target):
        if dtype not in CARRIERS:
            raise b.refuse(f"Core ML has no {dtype}", "type")
    x, mb = b.x(), b.mb
    if source in FLOATS and target in INTEGERS:
        if target is not DType.INT32:
            raise b.refuse(f"numbers that {target} holds and int32 does not, or the other way round, differ by Core ML's cast")
        return mb.cast(x=x, dtype="int32")
    if target is DType.BOOL:
        return mb.not_equal(x=x, y=b.number(0)) if source is not DType.BOOL else mb.identity(x=x)
    if target in INTEGERS and source in INTEGERS and not _holds(target, source):
        low, span = _range(target)
        wrapped = mb.mod(x=mb.sub(x=x, y=np.int32(low)), y=np.int32(span)) if low else mb.mod(x=x, y=np.int32(span))
        return mb.add(x=wrapped, y=np.int32(low)) if low else wrapped
    return b.cast(x, CARRIERS[target]) if carrier_of(x) is not CARRIERS[target] else mb.identity(x=x)


_WIDTHS: Mapping[DType, tuple[int, bool]] = {
    DType.UINT8: (8, False), DType.INT8: (8, True), DType.UINT16: (16, False), DType.INT16: (16, True), DType.INT32: (32, True),
    DType.INT64: (32, True), DType.BOOL: (1, False),
}  # fmt: skip


def _range(dtype: DType) -> tuple[int, int]:
    """The lowest integer, and how many there are."""
    bits, signed = _WIDTHS[dtype]
    return (-(1 << (bits - 1)) if signed else 0), 1 << bits


def _holds(target: DType, source: DType) -> bool:
    """Whether every number of `source`, as far as 32 bits hold it, is one of `target`."""
    (low, span), (source_low, source_span) = _range(target), _range(source)
    return low <= source_low and source_low + source_span <= low + span


HANDLERS: Mapping[str, Handler] = {
    **{op: _function(op.lower()) for op in ("Acos", "Asin", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor",
                                            "Round", "Sigmoid", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh")},
    "Abs": _absolute, "Acosh": _acosh, "Asinh": _asinh, "Celu": _celu, "Elu": _with_alpha("elu", 1.0), "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid, "HardSwish": _hard_swish, "Identity": _identity, "IsInf": _is_inf, "IsNaN": _is_nan,
    "LeakyRelu": _with_alpha("leaky_relu", 0.01), "Log": _logarithm, "Mish": _mish, "Neg": _negative, "Not": _not,
    "Reciprocal": _reciprocal, "Relu": _relu, "Selu": _selu, "Shrink": _shrink, "Sign": _sign, "Swish": _swish,
    "ThresholdedRelu": _thresholded_relu, "Dropout": _dropout,
    "Add": _binary("add", *FLOATS, DType.INT32, DType.INT64), "Sub": _binary("sub", *FLOATS, DType.INT32, DType.INT64),
    "Mul": _binary("mul", *FLOATS, DType.INT32, DType.INT64), "Div": _divide, "Mod": _modulo, "Pow": _power,
    "Max": _extremum("maximum"), "Min": _extremum("minimum"), "PRelu": _prelu,
    "Equal": _compare("equal"), "Greater": _compare("greater"), "GreaterOrEqual": _compare("greater_equal"),
    "Less": _compare("less"), "LessOrEqual": _compare("less_equal"),
    "And": _binary("logical_and", DType.BOOL), "Or": _binary("logical_or", DType.BOOL),
    "Xor": _binary("logical_xor", DType.BOOL),
    "Where": _where, "Clip": _clip, "Cast": _cast, "CastLike": _cast,
}  # fmt: skip

