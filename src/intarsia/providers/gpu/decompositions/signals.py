"""Fourier transforms as products by matrices of roots of unity, a factor of the length at a time; mel weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim, product
from intarsia.graph.dtypes import DType
from intarsia.ops.arithmetic.signal import mel_weight_matrix
from intarsia.ops.framework.operands import normal_axis
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.providers.gpu.decompositions.registry import device_op

_MOST = 64  # elements of a transform that is one product
_MOST_PRIME = 512  # of a prime number of elements
Pair = tuple[Tensor, Tensor | None]  # real and imaginary parts; None: none


def _number(d: Dim, what: str) -> int:
    if not isinstance(d, int):
        raise k.SymbolicValueError(f"{what} is known only at run time")
    return d


def _table(array: np.ndarray, dtype: DType) -> Tensor:
    return k.constant(np.ascontiguousarray(array, dtype.numpy))


def _turns(numerators: np.ndarray, count: int, dtype: DType) -> tuple[Tensor, Tensor]:
    """cos and sin of -2 pi numerators / count."""
    angle = -2 * np.pi * (numerators % count) / count
    cos, sin = (np.where(np.abs(part) < 1e-15, 0.0, part) for part in (np.cos(angle), np.sin(angle)))  # of quarter turns
    return _table(cos, dtype), _table(sin, dtype)


def _product(x: Pair, cos: Tensor, sin: Tensor) -> Pair:
    """x (cos + i sin) as products of matrices."""
    re, im = x
    if im is None:
        return k.dot(re, cos), k.dot(re, sin)
    return k.dot(re, cos) - k.dot(im, sin), k.dot(re, sin) + k.dot(im, cos)


def _scaled(x: Pair, cos: Tensor, sin: Tensor) -> Pair:
    """The same element by element."""
    re, im = x
    if im is None:
        return re * cos, re * sin
    return re * cos - im * sin, re * sin + im * cos


def _each(x: Pair, change: Any) -> Pair:
    return change(x[0]), change(x[1]) if x[1] is not None else None


def forward(x: Pair) -> Pair:
    """Transforms of the rows of [rows, n]."""
    rows, n = x[0].shape
    n = _number(n, "the length of a transform")
    dtype = x[0].dtype
    first = _first_factor(n)
    if n <= _MOST or first == n and n <= _MOST_PRIME:
        place = np.arange(n)
        return _product(x, *_turns(np.outer(place, place), n, dtype))
    if first == n:
        return _by_chirps(x, n)
    second = n // first
    # x[second * i + j] with roots of order `first` over i, then those of order n, then of order `second` over j
    inner = _each(x, lambda t: k.transpose(k.reshape(t, (rows, first, second)), (0, 2, 1)))
    inner = _product(inner, *_turns(np.outer(np.arange(first), np.arange(first)), first, dtype))
    inner = _scaled(inner, *_turns(np.outer(np.arange(second), np.arange(first)), n, dtype))
    inner = _each(inner, lambda t: k.reshape(k.transpose(t, (0, 2, 1)), (rows * first, second)))
    outer = forward(inner)
    return _each(outer, lambda t: k.reshape(k.transpose(k.reshape(t, (rows, first, second)), (0, 2, 1)), (rows, n)))


def _first_factor(n: int) -> int:
    """The largest factor up to `_MOST`; n where it has none but 1."""
    return next((f for f in range(min(_MOST, n - 1), 1, -1) if n % f == 0), n)


def _by_chirps(x: Pair, n: int) -> Pair:
    """A convolution with exp(i pi j^2 / n) of a length that has small factors (Bluestein)."""
    dtype, rows = x[0].dtype, x[0].shape[0]
    size = 1 << (2 * n - 2).bit_length()
    place = np.arange(n, dtype=np.int64)
    chirp = np.exp(-1j * np.pi * ((place * place) % (2 * n)) / n)
    kernel = np.zeros(size, np.complex128)
    kernel[:n] = chirp.conj()
    kernel[size - n + 1 :] = chirp.conj()[1:][::-1]
    kernel = np.fft.fft(kernel) / size
    moved = _scaled(x, _table(chirp.real, dtype), _table(chirp.imag, dtype))
    moved = _each(moved, lambda t: k.pad(t, (0, 0), (0, size - n), 0.0))
    re, im = _scaled(forward(moved), _table(kernel.real, dtype), _table(kernel.imag, dtype))
    assert im is not None
    back = forward((re, k.neg(im)))  # the conjugate of the inverse transform of the conjugate
    back = _each(back, lambda t: k.strided_slice(t, [0, 0], [1, 1], (rows, n)))
    assert back[1] is not None
    return _scaled((back[0], k.neg(back[1])), _table(chirp.real, dtype), _table(chirp.imag, dtype))


def _fitted(x: Tensor, length: int) -> Tensor:
    """Rows [rows, n] cut, or filled with zeros."""
    rows, n = x.shape
    have = _number(n, "the size of the signal axis")
    if have < length:
        return k.pad(x, (0, 0), (0, length - have), 0.0)
    return x if have == length else k.strided_slice(x, [0, 0], [1, 1], (rows, length))


def _whole(x: Pair, length: int) -> Pair:
    """From the lower half of a spectrum of real numbers [rows, half] all of it."""
    half = length // 2 + 1
    re, im = _each(x, lambda t: _fitted(t, half))
    place = np.arange(length)
    source = np.where(place < half, place, length - place)
    sign = np.where(place < half, 1.0, -1.0)
    sign[[0, *([length // 2] if length % 2 == 0 else [])]] = 0.0  # these are real
    rows = k.constant(source.astype(np.int64))
    return k.take(re, rows, 1), k.take(im, rows, 1) * _table(sign, re.dtype) if im is not None else None


def transform(x: Pair, length: int, inverse: bool, onesided: bool) -> Pair:
    """Of the rows of [rows, n], as `ops.arithmetic.signal.transformed`."""
    rows = x[0].shape[0]
    if length == 0:
        empty = k.full((rows, int(onesided and not inverse)), 0.0, x[0].dtype)
        return empty, empty
    x = _whole(x, length) if inverse and onesided else _each(x, lambda t: _fitted(t, length))
    if not inverse:
        out = forward(x)
        if onesided:
            out = _each(out, lambda t: k.strided_slice(t, [0, 0], [1, 1], (rows, length // 2 + 1)))
        return out
    re, im = forward((x[0], k.neg(x[1]) if x[1] is not None else None))
    assert im is not None
    return re / float(length), k.neg(im) / float(length)


def _parts(x: Tensor) -> Pair:
    """Real and imaginary parts, which the last axis has."""

    def at(i: int) -> Tensor:
        return k.reshape(k.strided_slice(x, [0] * (x.rank - 1) + [i], [1] * x.rank, (*x.shape[:-1], 1)), x.shape[:-1])

    return at(0), at(1) if x.shape[-1] == 2 else None


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype is DType.DOUBLE else k.cast(x, DType.FLOAT)


@device_op("DFT", values=("dft_length", "axis"))
def dft(x: Tensor, dft_length: Any = None, axis: Any = None, *, place: int | None = None, inverse: int = 0,
        onesided: int = 0) -> Tensor:  # fmt: skip
    """ONNX's DFT; `place` is the axis of the versions that have it as an attribute."""
    given = place if place is not None else -2 if axis is None else int(_number(axis.reshape(-1)[0], "the axis"))
    at = normal_axis(given, x.rank)
    if at == x.rank - 1:
        raise k.DefinitionError(f"axis {given} is the axis of real and imaginary parts; expected a signal axis")
    if x.shape[-1] not in (1, 2):
        raise k.DefinitionError(f"the last axis has {x.shape[-1]} elements; expected 1 or 2, real and imaginary parts")
    if onesided and not inverse and x.shape[-1] == 2:
        raise k.DefinitionError("onesided needs a real input")
    size = _number(x.shape[at], "the size of the signal axis")
    default = 2 * (size - 1) if inverse and onesided else size
    length = default if dft_length is None else _number(dft_length.reshape(-1)[0], "the length of the transform")
    if length < 0:
        raise k.DefinitionError(f"the length of the transform is {length}; expected 0 or more")
    order = [*(i for i in range(x.rank - 1) if i != at), at]
    outer = [x.shape[i] for i in order[:-1]]

    def rows(t: Tensor) -> Tensor:
        moved = k.transpose(t, order)
        return k.reshape(moved, (product(outer), size))

    def back(t: Tensor) -> Tensor:
        moved = k.reshape(t, (*outer, t.shape[1]))
        return k.transpose(moved, [order.index(i) for i in range(x.rank - 1)])

    re, im = _each(transform(_each(_parts(_wide(x)), rows), length, bool(inverse), bool(onesided)), back)
    assert im is not None
    parts = [re] if inverse and onesided else [re, im]
    return k.cast(k.concat([k.expand_dims(t, [x.rank - 1]) for t in parts], x.rank - 1), x.dtype)


@device_op("STFT", values=("frame_step", "frame_length"))
def stft(
    signal: Tensor, frame_step: Any, window: Tensor | None = None, frame_length: Any = None, *, onesided: int = 1
) -> Tensor:
    """Transforms of overlapping frames: [batch, frames, bins, 2]."""
    step = _number(frame_step.reshape(-1)[0], "the step")
    size = _number(signal.shape[1], "the size of the signal axis")
    if step < 1:
        raise k.DefinitionError(f"frame_step is {step}; expected at least 1")
    if frame_length is not None:
        length = _number(frame_length.reshape(-1)[0], "the length of a frame")
    else:
        length = size if window is None else _number(window.shape[0], "the length of a frame")
    if window is not None and window.shape[0] != length:
        raise k.DefinitionError(f"window has {window.shape[0]} elements; frame_length is {length}")
    flat = _parts(_wide(signal)) if signal.rank == 3 else (_wide(signal), None)
    if onesided and flat[1] is not None:
        raise k.DefinitionError("onesided needs a real signal")
    count = (size - length) // step + 1
    if length < 0 or count < 0:
        raise k.DefinitionError(f"frames of {length} elements, {step} apart, do not fit a signal of {size}")
    batch = signal.shape[0]
    bins = length // 2 + 1 if onesided else length
    if count == 0:
        return k.full((batch, 0, bins, 2), 0.0, signal.dtype)

    def frames(t: Tensor) -> Tensor:
        cut = k.windows(t, (1,), (length,), (step,), (1,))
        if window is not None:
            cut = cut * k.cast(window, t.dtype)
        return k.reshape(cut, (batch * count, length))

    made = transform(_each(flat, frames), length, False, bool(onesided))
    parts = [k.reshape(t, (batch, count, t.shape[1], 1)) for t in made if t is not None]
    return k.cast(k.concat(parts, 3), signal.dtype)


@device_op("MelWeights", values=("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"))
def mel_weights(
    num_mel_bins: Any, dft_length: Any, sample_rate: Any, lower_edge_hertz: Any, upper_edge_hertz: Any, *,
    output_datatype: int = 1,
) -> Tensor:  # fmt: skip
    """A table, once its operands are known."""
    given = [x.reshape(-1)[0] for x in (num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz)]
    if any(not isinstance(x, (int, float)) for x in given):
        raise k.SymbolicValueError("its operands are known only at run time")
    if any(not math.isfinite(x) for x in given):
        raise k.DefinitionError(f"operands {given}; expected finite numbers")
    return k.constant(mel_weight_matrix(*given, output_datatype=output_datatype))
