"""Random tensors: by a node's own `seed`, or from streams that `set_seed` starts anew; every provider draws the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.ops.framework.operands import element_type
from intarsia.ops.framework.registry import host_op
from intarsia.ops.tensor import philox
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import Operands

_REASON = "its shape is known only at run time"

set_seed = philox.set_seed


# --- definitions: of a state, key and stream as four words (uint32 [4]) ---------------------------------------------------


def state_words(seed: float | None) -> np.ndarray:
    """The state of one tensor."""
    return philox.state_of(seed).view(np.uint32)


def _words(blocks: Dim, state: k.Tensor) -> list[k.Tensor]:
    """The four words of the counters of so many blocks, uint32 [blocks, 16] each."""
    places = k.iota((blocks * philox.LANES,), 0, DType.UINT32)
    key0, key1, stream0, stream1 = (k.broadcast(k.strided_slice(state, [i], [1], (1,)), places.shape) for i in range(4))
    drawn = philox.words([places, k.full(places.shape, 0, DType.UINT32), stream0, stream1], [key0, key1])
    return [k.stored(k.reshape(x, (blocks, philox.LANES))) for x in drawn]


def _drawn(
    make: Callable[[Sequence[k.Tensor], DType], list[k.Tensor]], shape: Sequence[Dim], dtype: DType, state: k.Tensor
) -> k.Tensor:
    """The first numbers of as many blocks as `shape` takes."""
    count = product(shape)
    if not isinstance(count, int):
        raise k.SymbolicValueError(_REASON)
    each = (2 if dtype is DType.DOUBLE else 4) * philox.LANES
    blocks = max(-(-count // each), 1)
    stacked = k.concat([k.expand_dims(part, [1]) for part in make(_words(blocks, state), dtype)], 1)
    return k.reshape(k.strided_slice(k.reshape(stacked, (blocks * each,)), [0], [1], (count,)), shape)


def units(shape: Sequence[Dim], dtype: DType, state: k.Tensor) -> k.Tensor:
    """float32 numbers in [0, 1), float64 ones where `dtype` is double."""
    return _drawn(philox.units, shape, dtype if dtype is DType.DOUBLE else DType.FLOAT, state)


def reference_units(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """What ONNX's reference draws by a seed: float64 numbers in [0, 1), rounded down to float32, which leaves every comparison
    with a float32 number as it is."""
    drawn = np.random.RandomState(seed).uniform(0.0, 1.0, shape)
    found = drawn.astype(np.float32)
    return np.where(found > drawn, np.nextafter(found, np.float32(0)), found).astype(np.float32)


def uniform(shape: Sequence[Dim], dtype: DType, low: float, high: float, state: k.Tensor) -> k.Tensor:
    unit = units(shape, dtype, state)
    return k.cast(philox.between(unit, *(k.scalar(x, unit.dtype) for x in (low, high))), dtype)


def normal(shape: Sequence[Dim], dtype: DType, mean: float, scale: float, state: k.Tensor) -> k.Tensor:
    drawn = _drawn(philox.normals, shape, dtype if dtype is DType.DOUBLE else DType.FLOAT, state)
    return k.cast(philox.around(drawn, mean, scale), dtype)


def chosen(probability: k.Tensor, dtype: DType, state: k.Tensor) -> k.Tensor:
    """1 with a probability, else 0."""
    return k.cast(philox.happens(units(probability.shape, DType.FLOAT, state), probability), dtype)


def sampled(logits: k.Tensor, samples: int, dtype: DType, state: k.Tensor) -> k.Tensor:
    """Class indices [batch, samples] by unnormalised log-probabilities [batch, classes], in float64."""
    return k.cast(drawn_classes(logits, units((logits.shape[0], samples), DType.DOUBLE, state)), dtype)


def _on_host(definition: Callable[..., k.Tensor], seed: float | None, *operands: Any) -> np.ndarray:
    """What a definition gives that takes arrays, other values, and a state."""
    given = Operands()
    leaves = [given.leaf(x) if isinstance(x, np.ndarray) else x for x in operands]
    (found,) = given.values(definition(*leaves, given.leaf(state_words(seed))))
    return found


# --- operators --------------------------------------------------------------------------------------------------------------


def _given_shape(*, shape: Sequence[int], dtype: int = DType.FLOAT) -> TensorType:
    return TensorType(element_type(dtype), tuple(shape))


def _like(input: TensorType, *, dtype: int | None = None) -> TensorType:
    return TensorType(input.dtype if dtype is None else element_type(dtype), input.shape)


@host_op("RandomNormal", (1, 22), infer=_given_shape, reason=_REASON, deterministic=False)
def random_normal(
    *, shape: Sequence[int], dtype: int = DType.FLOAT, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> np.ndarray:
    return _on_host(normal, seed, tuple(shape), element_type(dtype), mean, scale)


@host_op("RandomNormalLike", (1, 22), infer=_like, reason=_REASON, deterministic=False)
def random_normal_like(
    input: np.ndarray, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> np.ndarray:
    return _on_host(normal, seed, input.shape, _dtype(input, dtype), mean, scale)


@host_op("RandomUniform", (1, 22), infer=_given_shape, reason=_REASON, deterministic=False)
def random_uniform(
    *, shape: Sequence[int], dtype: int = DType.FLOAT, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> np.ndarray:
    return _on_host(uniform, seed, tuple(shape), element_type(dtype), low, high)


@host_op("RandomUniformLike", (1, 22), infer=_like, reason=_REASON, deterministic=False)
def random_uniform_like(
    input: np.ndarray, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> np.ndarray:
    return _on_host(uniform, seed, input.shape, _dtype(input, dtype), low, high)


@host_op("Bernoulli", (15, 22), infer=_like, reason=_REASON, deterministic=False)
def bernoulli(input: np.ndarray, *, dtype: int | None = None, seed: float | None = None) -> np.ndarray:
    """1 with the probability that `input` gives, else 0."""
    return _on_host(chosen, seed, input, _dtype(input, dtype))


def _samples(input: TensorType, *, dtype: int = DType.INT32, sample_size: int = 1) -> TensorType:
    if input.shape is None:
        return TensorType(element_type(dtype))
    k.require_least(input.shape[1], 1, "the classes, of which one is drawn")
    return TensorType(element_type(dtype), (input.shape[0], sample_size))


@host_op("Multinomial", (7, 22), infer=_samples, reason=_REASON, deterministic=False)
def multinomial(input: np.ndarray, *, dtype: int = DType.INT32, sample_size: int = 1, seed: float | None = None) -> np.ndarray:
    """Class indices [batch, sample_size] drawn by the unnormalised log-probabilities [batch, classes]."""
    return _on_host(sampled, seed, input, sample_size, element_type(dtype))


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
