"""Activation functions. float16 and bfloat16 are computed in float32 and rounded once."""

from __future__ import annotations

import math

from intarsia.graph.dims import format_shape
from intarsia.graph.dtypes import DType
from intarsia.ops.framework.operands import aligned, in_float32
from intarsia.ops.framework.registry import op
from intarsia.primitives import lang as k

Tensor = k.Tensor

MICROSOFT = "com.microsoft"


@op("Relu", (1, 6, 13, 14))
def relu(X: Tensor) -> Tensor:
    return k.maximum(X, 0)


@op("LeakyRelu", (1, 6, 16))
@in_float32
def leaky_relu(X: Tensor, *, alpha: float = 0.01) -> Tensor:
    return k.select(X < 0, X * alpha, X)


@op("PRelu", (1, 6))
@in_float32
def prelu_by_channel(X: Tensor, slope: Tensor) -> Tensor:
    """One slope for all, or one per channel (axis 1)."""
    if slope.rank == 1 and X.rank > 1 and slope.shape[0] != 1:
        slope = aligned(slope, X.rank, 1)
    return k.select(X < 0, X * slope, X)


@op("PRelu", (7, 9, 16))
@in_float32
def prelu(X: Tensor, slope: Tensor) -> Tensor:
    """`slope` broadcasts to X, not the other way."""
    return k.select(X < 0, X * k.broadcast(slope, X.shape), X)


@op("ThresholdedRelu", (1, 10, 22))
def thresholded_relu(X: Tensor, *, alpha: float = 1.0) -> Tensor:
    return k.select(alpha < X, X, 0)


@op("Elu", (1, 6, 22))
@in_float32
def elu(X: Tensor, *, alpha: float = 1.0) -> Tensor:
    return k.select(X < 0, _scaled(k.exp(X) - 1.0, alpha), X)


@op("Selu", 1)
@in_float32
def selu_rounded(X: Tensor, *, alpha: float = 1.6732, gamma: float = 1.0507) -> Tensor:
    return _selu(X, alpha, gamma)


@op("Selu", (6, 22))
@in_float32
def selu(X: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Tensor:
    return _selu(X, alpha, gamma)


def _selu(x: Tensor, alpha: float, gamma: float) -> Tensor:
    return gamma * k.select(x > 0, x, alpha * k.exp(x) - alpha)


@op("Celu", (12, 28))
@in_float32
def celu(X: Tensor, *, alpha: float = 1.0) -> Tensor:
    negative = _scaled(k.exp(X if alpha == 1.0 else X / alpha) - 1.0, alpha)
    return k.maximum(X, 0) + k.minimum(negative, 0)


@op("Sigmoid", (1, 6, 13))
@in_float32
def sigmoid(X: Tensor) -> Tensor:
    return k.sigmoid(X)


@op("HardSigmoid", (1, 6, 22))
@in_float32
def hard_sigmoid(X: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return k.maximum(k.minimum(X * alpha + beta, 1.0), 0.0)


@op("HardSwish", (14, 22))
@in_float32
def hard_swish(X: Tensor) -> Tensor:
    return X * k.maximum(k.minimum(X * (1 / 6) + 0.5, 1.0), 0.0)


def softplus_of(x: Tensor) -> Tensor:
    """log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)), which does not overflow."""
    return k.maximum(x, 0.0) + k.log(k.exp(-k.absolute(x)) + 1.0)


@op("Softplus", (1, 22))
@in_float32
def softplus(X: Tensor) -> Tensor:
    return softplus_of(X)


@op("Softsign", (1, 22))
@in_float32
def softsign(input: Tensor) -> Tensor:
    return input / (k.absolute(input) + 1.0)


@op("Mish", (18, 22))
@in_float32
def mish(X: Tensor) -> Tensor:
    return X * k.tanh(softplus_of(X))


@op("Swish", 24)
@in_float32
def swish(X: Tensor, *, alpha: float = 1.0) -> Tensor:
    return X * k.sigmoid(_scaled(X, alpha))


@op("QuickGelu", 1, domain=MICROSOFT)
@in_float32
def quick_gelu(X: Tensor, *, alpha: float = 1.702) -> Tensor:
    return X * k.sigmoid(_scaled(X, alpha))


@op("SwiGLU", 28)
@in_float32
def swiglu(A: Tensor, B: Tensor, *, alpha: float = 1.0) -> Tensor:
    what = f"A and B must have the same shape, got {format_shape(A.shape)} and {format_shape(B.shape)}"
    if A.rank != B.rank:
        raise k.DefinitionError(what)
    for axis, (a, b) in enumerate(zip(A.shape, B.shape, strict=True)):
        k.require_equal(b, a, f"{what}: axis {axis}")
    return A * k.sigmoid(_scaled(A, alpha)) * B


@op("Shrink", 9)
def shrink(input: Tensor, *, lambd: float = 0.5, bias: float = 0.0) -> Tensor:
    """x + bias below -lambd, x - bias above lambd, 0 between; integers are compared as their float values."""
    x = input
    if x.dtype.is_integer:
        wide = k.cast(x, DType.FLOAT if x.dtype.bits < 32 else DType.DOUBLE)
        return k.cast(_shrink(wide, lambd, bias), x.dtype)
    return _shrink(x, lambd, bias)


def _shrink(x: Tensor, lambd: float, bias: float) -> Tensor:
    return k.select(x < -lambd, x + bias, k.select(x > lambd, x - bias, 0.0))


def gelu_of(x: Tensor) -> Tensor:
    """x * Phi(x), Phi being the normal distribution function."""
    return 0.5 * x * (k.erf(x * math.sqrt(0.5)) + 1.0)


def gelu_tanh_of(x: Tensor) -> Tensor:
    """Gelu's approximation 0.5 x (1 + tanh(t)), t = sqrt(2/pi) (x + 0.044715 x^3), as x / (1 + exp(-2 t))."""
    factor = math.sqrt(8 / math.pi)
    return x * k.sigmoid(x * (factor + 0.044715 * factor * (x * x)))


@op("Gelu", 20)
@in_float32
def gelu(X: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate not in ("none", "tanh"):
        raise k.DefinitionError(f"approximate must be 'none' or 'tanh', got {approximate!r}")
    return gelu_tanh_of(X) if approximate == "tanh" else gelu_of(X)


@op("Gelu", 1, domain=MICROSOFT)
@in_float32
def gelu_exact(X: Tensor) -> Tensor:
    return gelu_of(X)


@op("FastGelu", 1, domain=MICROSOFT)
@in_float32
def fast_gelu(X: Tensor, bias: Tensor | None = None) -> Tensor:
    return gelu_tanh_of(X if bias is None else X + bias)


@op("BiasGelu", 1, domain=MICROSOFT)
@in_float32
def bias_gelu(A: Tensor, B: Tensor) -> Tensor:
    return gelu_of(A + B)


def _scaled(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else x * factor
