"""Random tensors: Philox's words in the order of `ops.philox`, so that all providers draw the same.

The state is key and stream as four words: of a node's own `seed`, or an input that the program sets before each run.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim, Expr, product
from intarsia.graph.dtypes import DType
from intarsia.kernel import lang as k
from intarsia.kernel.lang import Tensor
from intarsia.ops.operands import element_type
from intarsia.ops.random import drawn_classes
from intarsia.ops.registry import NodeContext
from intarsia.providers.gpu.written.registry import device_op

_LANES = 16
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_HALF = 16


def state_words(state: np.ndarray) -> np.ndarray:
    """Key and stream (int64 [2]) as four words."""
    return np.ascontiguousarray(state, np.int64).view(np.uint32)


def _upper(x: Tensor, factor: int) -> Tensor:
    """The upper 32 bits of x * factor, by halves: not every device multiplies to 64."""
    mask = (1 << _HALF) - 1
    low, high = k.binary("bitand", x, mask), k.binary("shr", x, _HALF)
    first, second = factor & mask, factor >> _HALF
    crossed = (low * second, high * first)
    carried = k.binary("shr", low * first, _HALF)
    for part in crossed:
        carried = carried + k.binary("bitand", part, mask)
    out = high * second + k.binary("shr", carried, _HALF)
    for part in crossed:
        out = out + k.binary("shr", part, _HALF)
    return out


def _words(blocks: Dim, state: Tensor) -> list[Tensor]:
    """The four words of the counters of so many blocks, uint32 [blocks, 16] each."""
    places = k.cast(k.iota((blocks * _LANES,), 0, DType.INT64 if isinstance(blocks, Expr) else DType.INT32), DType.UINT32)
    zero = k.full(places.shape, 0, DType.UINT32)

    def word(i: int) -> Tensor:
        return k.broadcast(k.strided_slice(state, [i], [1], (1,)), places.shape)

    keys, counter = [word(0), word(1)], [places, zero, word(2), word(3)]
    for _ in range(_ROUNDS):
        tops = [_upper(counter[2 * i], m) for i, m in enumerate(_MULTIPLIERS)]
        lows = [counter[2 * i] * m for i, m in enumerate(_MULTIPLIERS)]
        mixed = [k.binary("bitxor", k.binary("bitxor", tops[1 - i], counter[2 * i + 1]), keys[i]) for i in range(2)]
        counter = [mixed[0], lows[1], mixed[1], lows[0]]
        keys = [key + w for key, w in zip(keys, _WEYL, strict=True)]
    return [k.stored(k.reshape(c, (blocks, _LANES))) for c in counter]


def _in_order(parts: Sequence[Tensor], shape: Sequence[Dim]) -> Tensor:
    """[blocks, 16] each, one after the other in each block; the first of them in `shape`."""
    stacked = k.concat([k.expand_dims(p, [1]) for p in parts], 1)
    flat = k.reshape(stacked, (product(stacked.shape),))
    return k.reshape(k.strided_slice(flat, [0], [1], (product(shape),)), shape)


def _blocks(shape: Sequence[Dim], each: int) -> int:
    count = product(shape)
    if not isinstance(count, int):
        raise k.SymbolicValueError("its shape is known only at run time")
    return max(-(-count // (each * _LANES)), 1)


def units(shape: Sequence[Dim], state: Tensor) -> Tensor:
    """float32 in [0, 1), of 24 bits."""
    drawn = _in_order(_words(_blocks(shape, 4), state), shape)
    return k.cast(k.binary("shr", drawn, 8), DType.FLOAT) * 2.0**-24


def _wide_pairs(shape: Sequence[Dim], state: Tensor) -> list[Tensor]:
    """float64 in [0, 1), of 53 bits: of words 0 and 1, and of words 2 and 3."""
    words = _words(_blocks(shape, 2), state)
    return [
        (k.cast(words[i], DType.DOUBLE) * 2.0**21 + k.cast(k.binary("shr", words[i + 1], 11), DType.DOUBLE)) * 2.0**-53
        for i in (0, 2)
    ]


def _turned(radius: Tensor, angle: Tensor) -> list[Tensor]:
    return [radius * k.unary("cos", angle), radius * k.unary("sin", angle)]


def normals(shape: Sequence[Dim], state: Tensor, dtype: DType) -> Tensor:
    """Of a normal distribution, float32 or float64 (Box and Muller)."""
    if dtype is DType.DOUBLE:
        first, second = _wide_pairs(shape, state)
        return _in_order(_turned(k.sqrt(k.log(1.0 - first) * -2.0), second * (2 * math.pi)), shape)
    words, parts = _words(_blocks(shape, 4), state), []
    for i in (0, 2):
        unit = (k.cast(k.binary("shr", words[i], 8), DType.FLOAT) + 1.0) * 2.0**-24
        rest = k.cast(k.binary("bitand", words[i + 1], (1 << 30) - 1), DType.INT32) - (1 << 29)
        quarter = k.cast(k.binary("shr", words[i + 1], 30), DType.FLOAT) * (math.pi / 2)
        parts += _turned(k.sqrt(k.log(unit) * -2.0), quarter + k.cast(rest, DType.FLOAT) * (math.pi / 4 * 2.0**-29))
    return _in_order(parts, shape)


def _state(state: Tensor | None, seed: float | None) -> Tensor:
    if state is not None:
        return state
    assert seed is not None
    key: int = struct.unpack("<I", struct.pack("<f", seed))[0]
    return k.constant(np.array([key, 0, 0, 0], np.uint32))


@device_op("RandomUniform")
def random_uniform(
    like: Tensor | None = None, state: Tensor | None = None, *, shape: Sequence[int] | None = None, dtype: int | None = None,
    low: float = 0.0, high: float = 1.0, seed: float | None = None,
) -> Tensor:  # fmt: skip
    """RandomUniform and RandomUniformLike."""
    sizes, kind = _result(like, shape, dtype)
    given = _state(state, seed)
    if kind is DType.DOUBLE:
        wide = _in_order(_wide_pairs(sizes, given), sizes)
        return wide * (high - low) + low
    return k.cast(units(sizes, given) * float(np.float32(high) - np.float32(low)) + float(np.float32(low)), kind)


@device_op("RandomNormal")
def random_normal(
    like: Tensor | None = None, state: Tensor | None = None, *, shape: Sequence[int] | None = None, dtype: int | None = None,
    mean: float = 0.0, scale: float = 1.0, seed: float | None = None,
) -> Tensor:  # fmt: skip
    """RandomNormal and RandomNormalLike."""
    sizes, kind = _result(like, shape, dtype)
    drawn = normals(sizes, _state(state, seed), DType.DOUBLE if kind is DType.DOUBLE else DType.FLOAT)
    return k.cast(drawn * scale + mean, kind)


def _result(like: Tensor | None, shape: Sequence[int] | None, dtype: int | None) -> tuple[Sequence[Dim], DType]:
    if like is not None:
        return like.shape, like.dtype if dtype is None else element_type(dtype)
    assert shape is not None
    return tuple(int(d) for d in shape), DType.FLOAT if dtype is None else element_type(dtype)


@device_op("Bernoulli")
def bernoulli(input: Tensor, state: Tensor | None = None, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    """1 with the probability that `input` gives, else 0."""
    wide = DType.DOUBLE if input.dtype is DType.DOUBLE else DType.FLOAT
    drawn = k.cast(units(input.shape, _state(state, seed)), wide) < k.cast(input, wide)
    return k.cast(drawn, input.dtype if dtype is None else element_type(dtype))


@device_op("Multinomial")
def multinomial(
    input: Tensor, state: Tensor | None = None, *, dtype: int = DType.INT32, sample_size: int = 1, seed: float | None = None
) -> Tensor:
    """Class indices [batch, sample_size] drawn by the unnormalised log-probabilities [batch, classes], in float64."""
    shape = (input.shape[0], sample_size)
    units = _in_order(_wide_pairs(shape, _state(state, seed)), shape)
    return k.cast(drawn_classes(input, units), element_type(dtype))


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
        drawn = units(data.shape, state)
    else:
        drawn = k.constant(_reference_units(tuple(_number(d) for d in data.shape), seed))
    kept = probability <= drawn
    wide = DType.DOUBLE if data.dtype is DType.DOUBLE else DType.FLOAT
    share = 1.0 - k.cast(probability, wide)
    scaled = k.select(kept, k.cast(data, wide) / k.select(k.equal(share, 0.0), 1.0, share), 0.0)
    scaled = k.select(k.broadcast(k.equal(share, 0.0), data.shape), 0.0, scaled)
    return k.cast(scaled, data.dtype), kept


def _number(d: Dim) -> int:
    if not isinstance(d, int):
        raise k.SymbolicValueError("its shape is known only at run time")
    return d


def _reference_units(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """float64 numbers rounded down to float32, which leaves every comparison with a float32 number as it is."""
    drawn = np.random.RandomState(seed).uniform(0.0, 1.0, shape)
    found = drawn.astype(np.float32)
    return np.where(found > drawn, np.nextafter(found, np.float32(0)), found).astype(np.float32)
