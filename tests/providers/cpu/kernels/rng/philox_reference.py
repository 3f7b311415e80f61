"""Philox4x32-10 with NumPy, independent of the definitions in `ops.tensor.philox`, which all providers' kernels are made of.

Block i of 64 words comes from the counters 16 i + lane, lane 0 to 15: word w of a counter becomes word 16 w + lane of the
block.
"""

from __future__ import annotations

import numpy as np

_LANES = 16
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_MASK = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def words(count: int, state: np.ndarray) -> np.ndarray:
    """`count` words of 32 bits."""
    blocks = -(-count // (4 * _LANES))
    key, stream = (int(x) % (1 << 64) for x in state)
    place = np.arange(blocks * _LANES, dtype=np.uint64)
    counter = [place & _MASK, place >> _HALF, *(np.full_like(place, (stream >> shift) & 0xFFFFFFFF) for shift in (0, 32))]
    keys = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(_ROUNDS):
        first, second = (counter[2 * i] * np.uint64(_MULTIPLIERS[i]) for i in range(2))
        counter = [
            (second >> _HALF) ^ counter[1] ^ np.uint64(keys[0]), second & _MASK,
            (first >> _HALF) ^ counter[3] ^ np.uint64(keys[1]), first & _MASK,
        ]  # fmt: skip
        keys = [(k + w) & 0xFFFFFFFF for k, w in zip(keys, _WEYL, strict=True)]
    found = np.stack([c.reshape(blocks, _LANES) for c in counter], 1)  # [blocks, word, lane]
    return found.reshape(-1)[:count].astype(np.uint32)


def units(count: int, state: np.ndarray) -> np.ndarray:
    """float32 numbers in [0, 1) of 24 bits."""
    return (words(count, state) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def wide_units(count: int, state: np.ndarray) -> np.ndarray:
    """float64 numbers in [0, 1) of 53 bits, each from two words of a counter."""
    blocks = -(-count // (2 * _LANES))
    pairs = words(blocks * 4 * _LANES, state).reshape(blocks, 2, 2, _LANES).astype(np.uint64)
    bits = pairs[:, :, 0] << np.uint64(21) | pairs[:, :, 1] >> np.uint64(11)
    return (bits.reshape(-1)[:count].astype(np.float64)) * 2.0**-53


def normals(count: int, state: np.ndarray) -> np.ndarray:
    """float64 numbers of a normal distribution, as the kernel makes its float32 ones (Box and Muller)."""
    blocks = -(-count // (4 * _LANES))
    given = words(blocks * 4 * _LANES, state).reshape(blocks, 2, 2, _LANES)
    first, second = given[:, :, 0], given[:, :, 1]
    radius = np.sqrt(-2 * np.log(((first >> np.uint32(8)).astype(np.float64) + 1) * 2.0**-24))
    # An angle by two bits of quarter and 30 of fraction, from minus to plus an eighth of a turn.
    part = (second & np.uint32((1 << 30) - 1)).astype(np.float64) - (1 << 29)
    angle = (second >> np.uint32(30)) * (np.pi / 2) + part * (np.pi / 4 * 2.0**-29)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 2).reshape(-1)[:count]


def wide_normals(count: int, state: np.ndarray) -> np.ndarray:
    """float64 numbers of a normal distribution from units of 53 bits."""
    blocks = -(-count // (2 * _LANES))
    given = wide_units(blocks * 2 * _LANES, state).reshape(blocks, 2, _LANES)
    radius, angle = np.sqrt(-2 * np.log(1 - given[:, 0])), given[:, 1] * (2 * np.pi)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)[:count]
