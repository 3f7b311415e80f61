"""Random tensors on devices: `ops.tensor.random_tensors`'s definitions with the state as an operand, so that all providers draw
the same.

The state is key and stream as four words: of a node's own `seed`, or an input that the program sets before each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.ops.framework.operands import element_type
from intarsia.ops.framework.registry import NodeContext
from intarsia.ops.tensor import philox, random_tensors
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.providers.gpu.decompositions.registry import device_op


def _state(state: Tensor | None, seed: float | None) -> Tensor:
    if state is not None:
        return state
    assert seed is not None
    return k.constant(random_tensors.state_words(seed))


@device_op("RandomUniform")
def random_uniform(
    like: Tensor | None = None, state: Tensor | None = None, *, shape: Sequence[int] | None = None, dtype: int | None = None,
    low: float = 0.0, high: float = 1.0, seed: float | None = None,
) -> Tensor:  # fmt: skip
    """RandomUniform and RandomUniformLike."""
    return random_tensors.uniform(*_result(like, shape, dtype), low, high, _state(state, seed))


@device_op("RandomNormal")
def random_normal(
    like: Tensor | None = None, state: Tensor | None = None, *, shape: Sequence[int] | None = None, dtype: int | None = None,
    mean: float = 0.0, scale: float = 1.0, seed: float | None = None,
) -> Tensor:  # fmt: skip
    """RandomNormal and RandomNormalLike."""
    return random_tensors.normal(*_result(like, shape, dtype), mean, scale, _state(state, seed))


def _result(like: Tensor | None, shape: Sequence[int] | None, dtype: int | None) -> tuple[Sequence[Dim], DType]:
    if like is not None:
        return like.shape, like.dtype if dtype is None else element_type(dtype)
    assert shape is not None
    return tuple(int(d) for d in shape), DType.FLOAT if dtype is None else element_type(dtype)


@device_op("Bernoulli")
def bernoulli(input: Tensor, state: Tensor | None = None, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    """1 with the probability that `input` gives, else 0."""
    return random_tensors.chosen(input, input.dtype if dtype is None else element_type(dtype), _state(state, seed))


@device_op("Multinomial")
def multinomial(
    input: Tensor, state: Tensor | None = None, *, dtype: int = DType.INT32, sample_size: int = 1, seed: float | None = None
) -> Tensor:
    """Class indices [batch, sample_size] drawn by the unnormalised log-probabilities [batch, classes], in float64."""
    return random_tensors.sampled(input, sample_size, element_type(dtype), _state(state, seed))


@device_op("Dropout", values=("training_mode",))
def dropout(
    data: Tensor, ratio: Tensor | None = None, training_mode: Any = None, state: Tensor | None = None, *,
    seed: int | None = None, node: NodeContext,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """ONNX's Dropout: with a seed as ONNX's reference draws, which is a table of its shape; else from a stream."""
    if not any(training_mode.reshape(-1)):
        return data, k.full(data.shape, True, DType.BOOL) if node.outputs > 1 else None
    probability = k.scalar(0.5, DType.FLOAT) if ratio is None else k.cast(k.reshape(ratio, ()), DType.FLOAT)
    if seed is None:
        assert state is not None
        drawn = random_tensors.units(data.shape, DType.FLOAT, state)
    else:
        drawn = k.constant(random_tensors.reference_units(tuple(_number(d) for d in data.shape), seed))
    return philox.dropped(drawn, data, probability)


def _number(d: Dim) -> int:
    if not isinstance(d, int):
        raise k.SymbolicValueError("its shape is known only at run time")
    return d
