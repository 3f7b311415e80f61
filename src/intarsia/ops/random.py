"""Random tensors: by a node's own `seed`, or from streams that `set_seed` starts anew; every provider draws the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.kernel import lang as k
from intarsia.kernel.interpret import Operands, cast_array
from intarsia.ops import philox
from intarsia.ops.operands import element_type
from intarsia.ops.registry import host_op

_REASON = "its shape is known only at run time"

set_seed = philox.set_seed


def _uniform(shape: Sequence[int], dtype: DType, low: float, high: float, seed: float | None) -> np.ndarray:
    count, state = int(np.prod(shape)), philox.state_of(seed)
    if dtype is DType.DOUBLE:
        return (low + (high - low) * philox.wide_units(count, state)).reshape(tuple(shape))
    bounds = np.array([low, high], np.float32)
    drawn = philox.units(count, state).astype(np.float64) * (bounds[1] - bounds[0]) + bounds[0]
    return cast_array(drawn.astype(np.float32), dtype).reshape(tuple(shape))


def _normal(shape: Sequence[int], dtype: DType, mean: float, scale: float, seed: float | None) -> np.ndarray:
    count, state = int(np.prod(shape)), philox.state_of(seed)
    draw = philox.wide_normals if dtype is DType.DOUBLE else philox.normals
    return cast_array(mean + scale * draw(count, state), dtype).reshape(tuple(shape))


def _given_shape(*, shape: Sequence[int], dtype: int = DType.FLOAT) -> TensorType:
    return TensorType(element_type(dtype), tuple(shape))


def _like(input: TensorType, *, dtype: int | None = None) -> TensorType:
    return TensorType(input.dtype if dtype is None else element_type(dtype), input.shape)


@host_op("RandomNormal", (1, 22), infer=_given_shape, reason=_REASON, deterministic=False)
def random_normal(
    *, shape: Sequence[int], dtype: int = DType.FLOAT, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> np.ndarray:
    return _normal(shape, element_type(dtype), mean, scale, seed)


@host_op("RandomNormalLike", (1, 22), infer=_like, reason=_REASON, deterministic=False)
def random_normal_like(
    input: np.ndarray, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> np.ndarray:
    return _normal(input.shape, _dtype(input, dtype), mean, scale, seed)


@host_op("RandomUniform", (1, 22), infer=_given_shape, reason=_REASON, deterministic=False)
def random_uniform(
    *, shape: Sequence[int], dtype: int = DType.FLOAT, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> np.ndarray:
    return _uniform(shape, element_type(dtype), low, high, seed)


@host_op("RandomUniformLike", (1, 22), infer=_like, reason=_REASON, deterministic=False)
def random_uniform_like(
    input: np.ndarray, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> np.ndarray:
    return _uniform(input.shape, _dtype(input, dtype), low, high, seed)


@host_op("Bernoulli", (15, 22), infer=_like, reason=_REASON, deterministic=False)
def bernoulli(input: np.ndarray, *, dtype: int | None = None, seed: float | None = None) -> np.ndarray:
    """1 with the probability that `input` gives, else 0."""
    drawn = philox.units(input.size, philox.state_of(seed)).reshape(input.shape) < input.astype(np.float64)
    return cast_array(drawn.astype(np.float32), _dtype(input, dtype))


def _samples(input: TensorType, *, dtype: int = DType.INT32, sample_size: int = 1) -> TensorType:
    return TensorType(element_type(dtype), None if input.shape is None else (input.shape[0], sample_size))


@host_op("Multinomial", (7, 22), infer=_samples, reason=_REASON, deterministic=False)
def multinomial(input: np.ndarray, *, dtype: int = DType.INT32, sample_size: int = 1, seed: float | None = None) -> np.ndarray:
    """Class indices [batch, sample_size] drawn by the unnormalised log-probabilities [batch, classes]."""
    given, shape = Operands(), (len(input), sample_size)
    units = philox.wide_units(len(input) * sample_size, philox.state_of(seed)).reshape(shape)
    (found,) = given.values(drawn_classes(given.leaf(input), given.leaf(units)))
    return cast_array(found, element_type(dtype))


def drawn_classes(logits: k.Tensor, units: k.Tensor) -> k.Tensor:
    """Class indices [batch, samples] by log-probabilities [batch, classes] and float64 numbers in [0, 1), [batch, samples]."""
    batch, classes = logits.shape
    wide = k.cast(logits, DType.DOUBLE)
    upper = k.scan(k.exp(wide - k.reduce_max(wide, [1], True)), "sum", 1)
    points = units * k.strided_slice(upper, [0, classes - 1], [1, 1], (batch, 1))
    passed = k.cast(k.expand_dims(upper, [1]) <= k.expand_dims(points, [2]), DType.INT32)
    return k.minimum(k.reduce_sum(passed, [2]), k.cast(k.size(classes - 1), DType.INT32))


def _dtype(input: np.ndarray, dtype: int | None) -> DType:
    return DType.of(input.dtype) if dtype is None else element_type(dtype)
