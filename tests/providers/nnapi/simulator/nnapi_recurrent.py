"""Recurrent cells and sequences of them, SVDF, and LSH_PROJECTION."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from nnapi_kernels import Failed, activated, raw, reals

Array = np.ndarray
Optional = np.ndarray | None
_LAYER_NORM_EPSILON = 1e-8


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _active(x: Array, kind: int) -> Array:
    """Activations of recurrent cells: 0 none, 1 Relu, 2 Relu1, 3 Relu6, 4 tanh, 6 sigmoid."""
    if kind == 4:
        return np.tanh(x)
    return _sigmoid(x) if kind == 6 else activated(x, kind)


def _clipped(x: Array, limit: float) -> Array:
    return np.clip(x, -limit, limit) if limit > 0 else x


class Cell:
    """One LSTM cell. Gates in the order input, forget, cell, output; `weights` are inputs 1 to 17 of LSTM."""

    def __init__(self, weights: Sequence[Optional], norms: Sequence[Optional], aux: Sequence[Optional] = (None,) * 4) -> None:
        self.inputs, self.recurrent, self.biases = weights[0:4], weights[4:8], weights[11:15]
        self.peepholes = (weights[8], weights[9], None, weights[10])
        self.projection, self.projection_bias = weights[15:17]
        self.norms, self.aux = norms, aux

    def _gate(self, i: int, x: Array, h: Array, c: Array, aux: Optional) -> Array:
        own, again, peephole, norm, bias = self.inputs[i], self.recurrent[i], self.peepholes[i], self.norms[i], self.biases[i]
        assert own is not None and again is not None
        y = x @ own.T + h @ again.T
        if aux is not None and self.aux[i] is not None:
            y = y + aux @ self.aux[i].T
        if peephole is not None:
            y = y + c * peephole
        if norm is not None:
            centred = y - y.mean(-1, keepdims=True)
            y = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + _LAYER_NORM_EPSILON) * norm
        return y if bias is None else y + bias

    def step(self, x: Array, h: Array, c: Array, kind: int, clip: float, projection_clip: float, aux: Optional = None
             ) -> tuple[Array, Array]:  # fmt: skip
        """The next output and cell state."""
        forget = _sigmoid(self._gate(1, x, h, c, aux))
        new = _active(self._gate(2, x, h, c, aux), kind)
        into = 1 - forget if self.inputs[0] is None else _sigmoid(self._gate(0, x, h, c, aux))
        c = _clipped(forget * c + into * new, clip)
        h = _sigmoid(self._gate(3, x, h, c, aux)) * _active(c, kind)
        if self.projection is not None:
            h = h @ self.projection.T
            h = _clipped(h if self.projection_bias is None else h + self.projection_bias, projection_clip)
        return h, c

    def run(self, xs: Array, h: Array, c: Array, settings: tuple[int, float, float], aux: Optional, backward: bool
            ) -> tuple[Array, Array, Array]:  # fmt: skip
        """Over xs [time, batch, size]."""
        found = []
        for t in range(len(xs))[:: -1 if backward else 1]:
            h, c = self.step(xs[t], h, c, *settings, aux=None if aux is None else aux[t])
            found.append(h)
        return np.stack(found[:: -1 if backward else 1]), h, c


@reals("LSTM")
def lstm(x: Array, *rest: Any) -> list[Array]:
    norms = rest[22:26] if len(rest) > 22 else (None,) * 4
    cell = Cell(rest[:17], norms)
    h, c = cell.step(x, rest[17], rest[18], *rest[19:22])
    units = rest[1].shape[0]
    scratch = np.zeros((len(x), units * (3 if rest[0] is None else 4)), x.dtype)
    return [scratch, h, c, h]


@reals("UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm_sequence(x: Array, *rest: Any) -> list[Array]:
    norms = rest[23:27] if len(rest) > 23 else (None,) * 4
    time_major = rest[22]
    xs = x if time_major else x.swapaxes(0, 1)
    ys, h, c = Cell(rest[:17], norms).run(xs, rest[17], rest[18], rest[19:22], None, False)
    return [ys if time_major else ys.swapaxes(0, 1), h, c]


@reals("BIDIRECTIONAL_SEQUENCE_LSTM")
def lstm_both_ways(x: Array, *rest: Any) -> list[Array]:
    states, aux, aux_weights = rest[34:38], rest[38], rest[39:47]
    settings, merge, time_major, norms = rest[47:50], rest[50], rest[51], rest[52:60]
    xs = x if time_major else x.swapaxes(0, 1)
    extra = aux if aux is None or time_major else aux.swapaxes(0, 1)
    parallel = extra is not None and all(w is None for w in aux_weights)
    crossed = None if parallel else extra
    forward = Cell(rest[:17], norms[:4], aux_weights[:4]).run(xs, *states[:2], settings, crossed, False)
    source = extra if parallel else xs
    back = Cell(rest[17:34], norms[4:], aux_weights[4:]).run(source, *states[2:], settings, crossed, True)
    ys = [y if time_major else y.swapaxes(0, 1) for y in (forward[0], back[0])]
    outputs = [np.concatenate(ys, -1)] if merge else ys
    return [*outputs, forward[1], forward[2], back[1], back[2]]


@reals("RNN")
def rnn(x: Array, weights: Array, recurrent: Array, bias: Array, h: Array, kind: int) -> list[Array]:
    y = _active(x @ weights.T + h @ recurrent.T + bias, kind)
    return [y, y]


@reals("UNIDIRECTIONAL_SEQUENCE_RNN")
def rnn_sequence(x: Array, weights: Array, recurrent: Array, bias: Array, h: Array, kind: int, major: int) -> list[Array]:
    """`major`: 1 where x is [time, batch, size]."""
    found = []
    for step in x if major else x.swapaxes(0, 1):
        h = _active(step @ weights.T + h @ recurrent.T + bias, kind)
        found.append(h)
    ys = np.stack(found)
    return [ys if major else ys.swapaxes(0, 1), h]


@reals("SVDF")
def svdf(x: Array, features: Array, times: Array, bias: Optional, state: Array, rank: int, kind: int) -> list[Array]:
    filters, memory = times.shape
    kept = state.reshape(len(x), filters, memory).copy()
    kept[..., -1] = x @ features.T
    y = np.einsum("bfm,fm->bf", kept, times).reshape(len(x), filters // rank, rank).sum(-1)
    if bias is not None:
        y = y + bias
    following = np.concatenate([kept[..., 1:], np.zeros_like(kept[..., :1])], -1)
    return [following.reshape(len(x), -1), _active(y, kind)]


@reals("QUANTIZED_16BIT_LSTM")
def lstm_16_bits(x: Array, *rest: Any) -> list[Array]:
    """In real numbers. Android puts the input before the last output, and the recurrent weights before the others."""
    c, h = rest[12], rest[13]
    gates = [np.concatenate([x, h], 1) @ np.concatenate([rest[4 + i], rest[i]], 1).T + rest[8 + i] for i in range(4)]
    into, forget, out = (_sigmoid(np.clip(gates[i], -8, 8)) for i in (0, 1, 3))
    c = forget * c + into * np.tanh(gates[2])
    return [c, out * np.tanh(c)]


_K2, _ALL = 0x9AE16A3B2F90404F, (1 << 64) - 1


def _rotated(value: int, shift: int) -> int:
    return ((value >> shift) | (value << (64 - shift))) & _ALL


def fingerprint(key: bytes) -> int:
    """FarmHash's Fingerprint64 of 8 to 16 bytes."""
    if not 8 <= len(key) <= 16:
        raise Failed(f"a key of {len(key)} bytes")
    factor = _K2 + 2 * len(key)
    a = (int.from_bytes(key[:8], "little") + _K2) & _ALL
    b = int.from_bytes(key[-8:], "little")
    c = (_rotated(b, 37) * factor + a) & _ALL
    d = ((_rotated(a, 25) + b) * factor) & _ALL
    mixed = ((c ^ d) * factor) & _ALL
    mixed ^= mixed >> 47
    mixed = ((d ^ mixed) * factor) & _ALL
    mixed ^= mixed >> 47
    return mixed * factor & _ALL


@raw("LSH_PROJECTION")
def lsh_projection(hashes: Array, items: Array, weights: Optional, kind: int) -> Array:
    """1: sparse as it once was, 2: dense, 3: sparse."""
    bits = np.zeros(hashes.shape, np.int64)
    for place, seed in np.ndenumerate(hashes):
        total = 0.0
        for i, item in enumerate(items):
            number = fingerprint(np.float32(seed).tobytes() + item.tobytes())
            signed = float(number - (1 << 64) if number >> 63 else number)
            total += signed * (1.0 if weights is None else float(weights[i]))
        bits[place] = total > 0
    if kind == 2:
        return bits.reshape(-1)
    width = hashes.shape[1]
    found = (bits << np.arange(width)[::-1]).sum(1)
    return found if kind == 1 else found + np.arange(len(found)) * (1 << width)
