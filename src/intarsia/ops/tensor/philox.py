"""Philox4x32-10 in primitives, what numbers are made of its words, and the state that nodes without a seed share.

(Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.) A tensor's numbers follow from a key and a stream: a
node's own `seed` is the key of stream 0; a node without one takes the next stream of the shared key. Block i of 64 words
comes from the counters 16 i + lane, lane 0 to 15: word w of a counter becomes word 16 w + lane of the block.

Kernels of all providers are made of these definitions: the CPU's of vectors of 16 counters (`kernels.rng.random_kernel`), the
others' of
tensors of all counters (`ops.tensor.random_tensors`). Only logarithms, square roots and float64's sines and cosines are the
provider's own, so that its normal numbers may differ from others' in their last bits.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Sequence

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.machine import fork_safety
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Operand, Tensor

LANES = 16
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

# Fitted for `codegen.elementwise.transcendental`, of |r| <= pi / 4: (sin r - r) / r^3 and (cos r - 1 + r^2 / 2) / r^4 in powers
# of r^2.
_SIN = (-0.1666665460493859, 0.008332160479068621, -0.00019515245209076918)
_COS = (0.04166664567454197, -0.0013887315850893305, 2.443311132396763e-05)


class _Shared(np.ndarray):
    """An array that kernels change. A type of its own, so that nobody keeps it between processes as if it were a constant."""


_lock = fork_safety.lock()
_shared = np.zeros(2, np.int64).view(_Shared)  # key, and streams drawn so far
_seeded: list[bool] = []


def set_seed(seed: int | None) -> None:
    """Start the streams of nodes without a `seed` anew (None: with a key from the operating system)."""
    with _lock:
        key = int.from_bytes(os.urandom(8), "little") if seed is None else seed % (1 << 64)
        _shared[:] = np.array([key, 0], np.uint64).view(np.int64)
        _seeded[:] = [True]


def shared_state() -> np.ndarray:
    """The array [key, streams drawn], int64, that kernels and `state_of` draw streams from."""
    if not _seeded:
        set_seed(None)
    return _shared


def state_of(seed: float | None) -> np.ndarray:
    """Key and stream of one tensor: by the bits of a node's `seed`, or the next of the shared key; int64[2]."""
    if seed is not None:
        return np.array([struct.unpack("<I", struct.pack("<f", seed))[0], 0], np.int64)
    shared = shared_state()
    with _lock:
        shared[1] += 1
        return np.array(shared)


# --- words -------------------------------------------------------------------------------------------------------------


def words(counter: Sequence[Tensor], key: Sequence[Tensor]) -> list[Tensor]:
    """Four words for each counter (four words, the lowest first) by a key of two; all are uint32 of one shape."""
    keys = list(key)
    for _ in range(_ROUNDS):
        wide = [k.cast(counter[2 * i], DType.UINT64) * factor for i, factor in enumerate(_MULTIPLIERS)]
        (low0, low1), (high0, high1) = ([k.cast(x, DType.UINT32) for x in half] for half in (wide, _shifted(wide, 32)))
        counter = [_xor(high1, counter[1], keys[0]), low1, _xor(high0, counter[3], keys[1]), low0]
        keys = [word + step for word, step in zip(keys, _WEYL, strict=True)]
    return list(counter)


def _shifted(values: Sequence[Tensor], by: int) -> list[Tensor]:
    return [k.binary("shr", x, by) for x in values]


def _xor(first: Tensor, *others: Tensor) -> Tensor:
    for x in others:
        first = k.binary("bitxor", first, x)
    return first


# --- numbers -----------------------------------------------------------------------------------------------------------
# Of four words, numbers in the order in which they follow each other in a block: four of 24 bits, or two of 53.


def units(drawn: Sequence[Tensor], dtype: DType = DType.FLOAT) -> list[Tensor]:
    """In [0, 1), multiples of 2^-24; of 2^-53 where `dtype` is double."""
    if dtype is not DType.DOUBLE:
        return [_of_24_bits(x) for x in _shifted(drawn, 8)]
    lower = _shifted(drawn, 11)
    return [(k.cast(drawn[i], dtype) * 2.0**21 + k.cast(lower[i + 1], dtype)) * 2.0**-53 for i in (0, 2)]


def _of_24_bits(x: Tensor) -> Tensor:
    """Multiples of 2^-24; signed integers become floats in one instruction everywhere."""
    return k.cast(k.cast(x, DType.INT32), DType.FLOAT) * 2.0**-24


def normals(drawn: Sequence[Tensor], dtype: DType = DType.FLOAT) -> list[Tensor]:
    """Of a normal distribution (Box and Muller)."""
    if dtype is DType.DOUBLE:
        first, second = units(drawn, dtype)
        radius, angle = k.sqrt(k.log(1.0 - first) * -2.0), second * (2 * math.pi)
        return [radius * k.unary("cos", angle), radius * k.unary("sin", angle)]
    return [z for pair in (drawn[:2], drawn[2:]) for z in _normal(*pair)]


def _normal(first: Tensor, second: Tensor) -> list[Tensor]:
    """sqrt(-2 ln u) times cosine and sine of an angle: u in (0, 1], the angle by two bits of quarter and 30 of fraction."""
    radius = k.sqrt(k.log(_of_24_bits(k.binary("shr", first, 8) + 1)) * -2.0)
    part = k.cast(k.binary("bitand", second, (1 << 30) - 1), DType.INT32) - (1 << 29)
    sin, cos = _sine_and_cosine(k.cast(part, DType.FLOAT) * (math.pi / 4 * 2.0**-29))
    odd, back = (k.not_equal(k.binary("bitand", second, bit), 0) for bit in (1 << 30, 1 << 31))
    radius = k.select(back, -radius, radius)
    return [radius * k.select(odd, -sin, cos), radius * k.select(odd, cos, sin)]


def _sine_and_cosine(r: Tensor) -> tuple[Tensor, Tensor]:
    """Of float32 |r| <= pi / 4."""
    square = r * r
    sin = square * r * _polynomial(square, _SIN) + r
    return sin, square * square * _polynomial(square, _COS) + (square * -0.5 + 1.0)


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    *rest, last = coefficients
    out = x * last + rest.pop()
    for c in reversed(rest):
        out = out * x + c
    return out


# --- what is made of numbers ----------------------------------------------------------------------------------------------


def between(unit: Tensor, low: Operand, high: Operand) -> Tensor:
    return unit * (high - low) + low


def around(normal: Tensor, mean: Operand, scale: Operand) -> Tensor:
    return normal * scale + mean


def happens(unit: Tensor, probability: Tensor) -> Tensor:
    """Whether what has a probability is the case."""
    wide = _wide(probability.dtype)
    return k.cast(unit, wide) < k.cast(probability, wide)


def dropped(unit: Tensor, data: Tensor, ratio: Tensor) -> tuple[Tensor, Tensor]:
    """`data` with 0 instead of a share of its elements (`ratio`, float32), others larger by as much; and which stay."""
    wide, stays = _wide(data.dtype), ratio <= unit
    scale = 1.0 / (1.0 - k.cast(ratio, wide))
    return k.cast(k.select(stays, k.cast(data, wide) * scale, 0.0), data.dtype), stays


def _wide(dtype: DType) -> DType:
    return DType.DOUBLE if dtype is DType.DOUBLE else DType.FLOAT
