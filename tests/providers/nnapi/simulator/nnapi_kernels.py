"""What NNAPI's operations compute, in NumPy: the register of kernels, and the element-wise ones, reductions and products.

A kernel gets its inputs as NumPy arrays (None: omitted) and numbers, and returns its results. Of one made by `reals`,
quantised tensors come in as the real numbers they stand for and are quantised again by the simulator: NNAPI allows a step
of difference. One made by `raw` sees the elements themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Kernel = Callable[..., Any]
REALS: dict[str, Kernel] = {}
RAW: dict[str, Kernel] = {}


class Failed(Exception):
    """A run that NNAPI ends with OP_FAILED."""


def reals(*names: str) -> Callable[[Kernel], Kernel]:
    def register(kernel: Kernel) -> Kernel:
        REALS.update(dict.fromkeys(names, kernel))
        return kernel

    return register


def raw(*names: str) -> Callable[[Kernel], Kernel]:
    def register(kernel: Kernel) -> Kernel:
        RAW.update(dict.fromkeys(names, kernel))
        return kernel

    return register


def activated(x: np.ndarray, fuse: int) -> np.ndarray:
    """FUSED_NONE, FUSED_RELU, FUSED_RELU1, FUSED_RELU6."""
    if fuse not in (0, 1, 2, 3):
        raise Failed(f"no activation {fuse}")
    if fuse == 0:
        return x
    low, high = ((0, None), (-1, 1), (0, 6))[fuse - 1]
    return np.clip(x, low, high)


def axis_of(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise Failed(f"axis {axis} of {rank} dimensions")
    return axis % rank


def axes_of(axes: np.ndarray, rank: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(axis_of(int(a), rank) for a in np.ravel(axes)))


# element-wise

reals("ADD")(lambda a, b, fuse: activated(a + b, fuse))
reals("SUB")(lambda a, b, fuse: activated(a - b, fuse))
reals("MUL")(lambda a, b, fuse: activated(a * b, fuse))
reals("MAXIMUM")(np.maximum)
reals("MINIMUM")(np.minimum)
reals("POW")(np.power)
reals("RELU")(lambda x: np.maximum(x, 0))
reals("RELU1")(lambda x: np.clip(x, -1, 1))
reals("RELU6")(lambda x: np.clip(x, 0, 6))
reals("TANH")(np.tanh)
reals("LOGISTIC")(lambda x: 1 / (1 + np.exp(-x)))
reals("FLOOR")(np.floor)
reals("ABS")(np.abs)
reals("NEG")(np.negative)
reals("EXP")(np.exp)
reals("LOG")(np.log)
reals("SIN")(np.sin)
reals("SQRT")(np.sqrt)
reals("RSQRT")(lambda x: 1 / np.sqrt(x))
reals("HARD_SWISH")(lambda x: x * np.clip(x + 3, 0, 6) / 6)
reals("ELU")(lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))))
reals("PRELU")(lambda x, slope: np.where(x > 0, x, x * slope))
reals("EQUAL")(np.equal)
reals("NOT_EQUAL")(np.not_equal)
reals("GREATER")(np.greater)
reals("GREATER_EQUAL")(np.greater_equal)
reals("LESS")(np.less)
reals("LESS_EQUAL")(np.less_equal)
raw("LOGICAL_AND")(np.logical_and)
raw("LOGICAL_OR")(np.logical_or)
raw("LOGICAL_NOT")(np.logical_not)
reals("DEQUANTIZE", "QUANTIZE")(lambda x: x)


@reals("DIV")
def divide(a: np.ndarray, b: np.ndarray, fuse: int) -> np.ndarray:
    """Of integers, rounded down; what is divided by 0 is not said."""
    if np.issubdtype(a.dtype, np.integer):
        return activated(np.floor_divide(a, b), fuse)
    return activated(a / b, fuse)


@reals("SELECT")
def select(which: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if not which.shape == a.shape == b.shape:
        raise Failed("SELECT does not broadcast")
    return np.where(which, a, b)


# reductions


def reduction(function: Callable[..., np.ndarray]) -> Kernel:
    def reduce(x: np.ndarray, axes: np.ndarray, keep: int) -> np.ndarray:
        found = function(x, axis=axes_of(axes, x.ndim), keepdims=bool(keep))
        return found if found.ndim else found.reshape(1)

    return reduce


reals("MEAN")(reduction(np.mean))
reals("REDUCE_SUM")(reduction(np.sum))
reals("REDUCE_PROD")(reduction(np.prod))
reals("REDUCE_MAX")(reduction(np.max))
reals("REDUCE_MIN")(reduction(np.min))
raw("REDUCE_ALL")(reduction(np.all))
raw("REDUCE_ANY")(reduction(np.any))


def extreme(function: Callable[..., np.ndarray]) -> Kernel:
    def find(x: np.ndarray, axis: int) -> np.ndarray:
        found = function(x, axis=axis_of(axis, x.ndim))
        return np.reshape(found, (1,)) if np.ndim(found) == 0 else found

    return find


raw("ARGMAX")(extreme(np.argmax))
raw("ARGMIN")(extreme(np.argmin))


# products


@reals("FULLY_CONNECTED")
def fully_connected(x: np.ndarray, weights: np.ndarray, bias: np.ndarray, fuse: int) -> np.ndarray:
    if weights.ndim != 2 or bias.shape != weights.shape[:1]:
        raise Failed(f"weights {weights.shape} with a bias {bias.shape}")
    if x.size % weights.shape[1]:
        raise Failed(f"{x.size} elements are no rows of {weights.shape[1]}")
    return activated(x.reshape(-1, weights.shape[1]) @ weights.T + bias, fuse)


@reals("BATCH_MATMUL")
def batch_matmul(a: np.ndarray, b: np.ndarray, flip_a: bool, flip_b: bool) -> np.ndarray:
    """No dimension is broadcast."""
    if a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2]:
        raise Failed(f"batches {a.shape[:-2]} and {b.shape[:-2]} differ")
    a, b = (m.swapaxes(-1, -2) if flip else m for m, flip in ((a, flip_a), (b, flip_b)))
    if a.shape[-1] != b.shape[-2]:
        raise Failed(f"{a.shape} times {b.shape}")
    return np.matmul(a, b)


# normalisations


@reals("SOFTMAX")
def softmax(x: np.ndarray, beta: float, axis: int = -1) -> np.ndarray:
    axis = axis_of(axis, x.ndim)
    powers = np.exp(beta * (x - x.max(axis, keepdims=True)))
    return powers / powers.sum(axis, keepdims=True)


@reals("LOG_SOFTMAX")
def log_softmax(x: np.ndarray, beta: float, axis: int) -> np.ndarray:
    axis = axis_of(axis, x.ndim)
    shifted = beta * (x - x.max(axis, keepdims=True))
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


@reals("L2_NORMALIZATION")
def l2_normalization(x: np.ndarray, axis: int = -1) -> np.ndarray:
    return x / np.maximum(np.sqrt((x * x).sum(axis_of(axis, x.ndim), keepdims=True)), 1e-6)


@reals("LOCAL_RESPONSE_NORMALIZATION")
def local_response(x: np.ndarray, radius: int, bias: float, alpha: float, beta: float, axis: int = -1) -> np.ndarray:
    """`alpha` times the sum over 2 radius + 1 channels, not their mean."""
    axis = axis_of(axis, x.ndim)
    squares = np.moveaxis(x * x, axis, -1)
    padded = np.pad(squares, [(0, 0)] * (x.ndim - 1) + [(radius, radius)])
    sums = sum(padded[..., i : i + x.shape[axis]] for i in range(2 * radius + 1))
    return x / np.moveaxis((bias + alpha * np.asarray(sums)) ** beta, -1, axis)


@reals("INSTANCE_NORMALIZATION")
def instance_normalization(x: np.ndarray, gamma: float, beta: float, epsilon: float, nchw: bool) -> np.ndarray:
    axes = (2, 3) if nchw else (1, 2)
    mean = x.mean(axes, keepdims=True)
    variance = ((x - mean) ** 2).mean(axes, keepdims=True)
    return gamma * (x - mean) / np.sqrt(variance + epsilon) + beta


def layout_moved(x: np.ndarray, nchw: bool) -> np.ndarray:
    """NCHW as NHWC."""
    return x.transpose(0, 2, 3, 1) if nchw else x


def layout_back(x: np.ndarray, nchw: bool) -> np.ndarray:
    return x.transpose(0, 3, 1, 2) if nchw else x


def padded_shape(sizes: Sequence[int], paddings: np.ndarray) -> list[tuple[int, int]]:
    pairs = np.asarray(paddings).reshape(-1, 2)
    if len(pairs) != len(sizes) or (pairs < 0).any():
        raise Failed(f"paddings {pairs.tolist()} for {len(sizes)} dimensions")
    return [(int(a), int(b)) for a, b in pairs]
