"""Random tensors, drawn on the host: by a node's own `seed`, or from one generator that `set_seed` starts anew."""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.kernel.interpret import cast_array
from intarsia.ops.operands import element_type
from intarsia.ops.registry import host_op

_REASON = "random numbers are drawn on the host"
_lock = threading.Lock()
_shared: list[np.random.Generator] = []


def set_seed(seed: int | None) -> None:
    """Start the generator of nodes without a `seed` anew (None: from entropy of the operating system)."""
    with _lock:
        _shared[:] = [np.random.default_rng(seed)]


def generator(seed: float | None) -> np.random.Generator:
    """A generator that draws the same numbers each time for a node's `seed`, or the shared one."""
    if seed is not None:
        return np.random.default_rng(struct.unpack("<I", struct.pack("<f", seed))[0])
    if not _shared:
        set_seed(None)
    return _shared[0]


def _given_shape(*, shape: Sequence[int], dtype: int = DType.FLOAT) -> TensorType:
    return TensorType(element_type(dtype), tuple(shape))


def _like(input: TensorType, *, dtype: int | None = None) -> TensorType:
    return TensorType(input.dtype if dtype is None else element_type(dtype), input.shape)


@host_op("RandomNormal", (1, 22), infer=_given_shape, reason=_REASON, deterministic=False)
def random_normal(
    *, shape: Sequence[int], dtype: int = DType.FLOAT, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> np.ndarray:
    return cast_array(generator(seed).normal(mean, scale, tuple(shape)), element_type(dtype))


@host_op("RandomNormalLike", (1, 22), infer=_like, reason=_REASON, deterministic=False)
def random_normal_like(
    input: np.ndarray, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> np.ndarray:
    return cast_array(generator(seed).normal(mean, scale, input.shape), _dtype(input, dtype))


@host_op("RandomUniform", (1, 22), infer=_given_shape, reason=_REASON, deterministic=False)
def random_uniform(
    *, shape: Sequence[int], dtype: int = DType.FLOAT, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> np.ndarray:
    return cast_array(generator(seed).uniform(low, high, tuple(shape)), element_type(dtype))


@host_op("RandomUniformLike", (1, 22), infer=_like, reason=_REASON, deterministic=False)
def random_uniform_like(
    input: np.ndarray, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> np.ndarray:
    return cast_array(generator(seed).uniform(low, high, input.shape), _dtype(input, dtype))


@host_op("Bernoulli", (15, 22), infer=_like, reason=_REASON, deterministic=False)
def bernoulli(input: np.ndarray, *, dtype: int | None = None, seed: float | None = None) -> np.ndarray:
    """1 with the probability that `input` gives, else 0."""
    drawn = generator(seed).random(input.shape) < input.astype(np.float64)
    return cast_array(drawn.astype(np.float32), _dtype(input, dtype))


def _samples(input: TensorType, *, dtype: int = DType.INT32, sample_size: int = 1) -> TensorType:
    return TensorType(element_type(dtype), None if input.shape is None else (input.shape[0], sample_size))


@host_op("Multinomial", (7, 22), infer=_samples, reason=_REASON, deterministic=False)
def multinomial(input: np.ndarray, *, dtype: int = DType.INT32, sample_size: int = 1, seed: float | None = None) -> np.ndarray:
    """Class indices [batch, sample_size] drawn by the unnormalised log-probabilities [batch, classes]."""
    logits = input.astype(np.float64)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    upper = np.cumsum(weights, axis=1)
    drawn = generator(seed).random((len(logits), sample_size)) * upper[:, -1:]
    found = [np.searchsorted(row, points, side="right") for row, points in zip(upper, drawn, strict=True)]
    last = max(input.shape[1] - 1, 0)
    return cast_array(np.minimum(np.array(found, np.int64).reshape(len(logits), sample_size), last), element_type(dtype))


def _dtype(input: np.ndarray, dtype: int | None) -> DType:
    return DType.of(input.dtype) if dtype is None else element_type(dtype)
