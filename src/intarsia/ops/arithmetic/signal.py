"""Fourier transforms, window functions, mel weights."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim, Expr, floordiv, fresh_symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.ops.framework.operands import dim, element_type
from intarsia.ops.framework.registry import host_op, op
from intarsia.primitives import lang as k

_REASON = "its axis, step or length is known only at run time, or its operands do not fit"
_TABLE = "a table of its operands, made when the model is loaded where they are constants"


def _first(values: Any) -> Any:
    """The one element of an input (None: omitted, or a type whose element is not known)."""
    return None if values is None or isinstance(values, TensorType) else np.asarray(values, object).reshape(-1)[0]


def _dft_type(
    input: TensorType, dft_length: Any, given_length: bool, axis: int | None, inverse: int, onesided: int
) -> TensorType:  # fmt: skip
    if input.shape is None or axis is None:
        return TensorType(input.dtype)
    shape = list(input.shape)
    at = axis + len(shape) if axis < 0 else axis
    length: Dim = shape[at]
    if given_length:
        known = _first(dft_length)
        length = fresh_symbol("dft") if known is None else known
    elif inverse and onesided:
        length = (shape[at] - 1) * 2
    shape[at] = floordiv(length, 2) + 1 if onesided and not inverse else length
    shape[-1] = 1 if inverse and onesided else 2
    return TensorType(input.dtype, tuple(shape))


def _dft_17_type(
    input: TensorType, dft_length: Any = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> TensorType:
    return _dft_type(input, dft_length, dft_length is not None, axis, inverse, onesided)


@host_op("DFT", since=17, infer=_dft_17_type, values=("dft_length",), reason=_REASON)
def dft_17(input: np.ndarray, dft_length: Any = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0) -> np.ndarray:
    """Discrete Fourier transform along `axis`; the last axis has the real part, or real and imaginary parts."""
    at = axis + input.ndim if axis < 0 else axis
    if at == input.ndim - 1:
        raise k.DefinitionError(f"axis {axis} is the axis of real and imaginary parts; expected a signal axis")
    default = 2 * (input.shape[at] - 1) if inverse and onesided else input.shape[at]
    length = default if dft_length is None else int(_first(dft_length))
    if length < 0:
        raise k.DefinitionError(f"the length of the transform is {length}; expected 0 or more")
    wide = input.astype(np.float64 if input.dtype == np.float64 else np.float32)
    signal = _signal(wide)
    if onesided and not inverse and np.iscomplexobj(signal):
        raise k.DefinitionError("onesided needs a real input")
    out = transformed(signal, length, at, bool(inverse), bool(onesided))
    return out[..., None].astype(input.dtype) if inverse and onesided else _parts(out, input.dtype)


def transformed(signal: np.ndarray, length: int, axis: int, inverse: bool, onesided: bool) -> np.ndarray:
    """A transform along `axis`, by NumPy; of no elements it is empty, and the one element of its half is 0."""
    if length == 0:
        sizes = list(signal.shape)
        sizes[axis] = int(onesided and not inverse)
        return np.zeros(sizes)
    if onesided:
        return np.fft.irfft(signal, length, axis) if inverse else np.fft.rfft(signal, length, axis)
    return np.fft.ifft(signal, length, axis) if inverse else np.fft.fft(signal, length, axis)


def _dft_20_type(
    input: TensorType, dft_length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0
) -> TensorType:
    found = _first(axis)
    at = -2 if axis is None else None if found is None or isinstance(found, Expr) else int(found)
    return _dft_type(input, dft_length, dft_length is not None, at, inverse, onesided)


@host_op("DFT", since=20, infer=_dft_20_type, values=("dft_length", "axis"), reason=_REASON)
def dft_20(input: np.ndarray, dft_length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0) -> np.ndarray:
    return dft_17(input, dft_length, axis=-2 if axis is None else int(_first(axis)), inverse=inverse, onesided=onesided)


def _signal(x: np.ndarray) -> np.ndarray:
    """The last axis, of real or of real and imaginary parts, as one number."""
    if x.shape[-1] == 1:
        return x[..., 0]
    return np.ascontiguousarray(x).view(np.complex128 if x.dtype == np.float64 else np.complex64)[..., 0]


def _parts(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.stack([x.real, x.imag], -1).astype(dtype)


def _stft_type(
    signal: TensorType, frame_step: Any, window: TensorType | None = None, frame_length: Any = None, *, onesided: int = 1
) -> TensorType:
    if signal.shape is None:
        return TensorType(signal.dtype)
    step = _first(frame_step)
    if isinstance(step, int) and step < 1:
        raise k.DefinitionError(f"frame_step is {step}; expected at least 1")
    length: Dim | None = _first(frame_length)
    if length is None and window is not None and window.shape is not None:
        length = window.shape[0]
    if length is None:
        length = fresh_symbol("frame") if frame_length is not None or window is not None else signal.shape[1]
    frames = fresh_symbol("frames") if step is None else floordiv(signal.shape[1] - length, step) + 1
    return TensorType(signal.dtype, (signal.shape[0], frames, floordiv(length, 2) + 1 if onesided else length, 2))


@host_op("STFT", since=17, infer=_stft_type, values=("frame_step", "frame_length"), reason=_REASON)
def stft(
    signal: np.ndarray, frame_step: Any, window: np.ndarray | None = None, frame_length: Any = None, *, onesided: int = 1
) -> np.ndarray:
    """Transforms of overlapping frames: [batch, frames, bins, 2]."""
    step = int(_first(frame_step))
    if step < 1:
        raise k.DefinitionError(f"frame_step is {step}; expected at least 1")
    length = int(_first(frame_length)) if frame_length is not None else len(window) if window is not None else signal.shape[1]
    if window is not None and len(window) != length:
        raise k.DefinitionError(f"window has {len(window)} elements; frame_length is {length}")
    wide = signal.astype(np.float64 if signal.dtype == np.float64 else np.float32)
    flat = _signal(wide) if wide.ndim == 3 else wide
    if onesided and np.iscomplexobj(flat):
        raise k.DefinitionError("onesided needs a real signal")
    count = (flat.shape[1] - length) // step + 1
    if length < 0 or count < 0:
        raise k.DefinitionError(f"frames of {length} elements, {step} apart, do not fit a signal of {flat.shape[1]}")
    if count == 0:
        frames = np.zeros((len(flat), 0, length), flat.dtype)
    else:
        frames = np.lib.stride_tricks.sliding_window_view(flat, length, axis=1)[:, ::step]
    if window is not None:
        frames = frames * window.astype(wide.dtype)
    return _parts(transformed(frames, length, 2, False, bool(onesided)), signal.dtype)


Curve = Callable[[k.Tensor], k.Tensor]  # of the angle 2 pi n / N


def _window(curve: Curve) -> Callable[..., k.Tensor]:
    def definition(size: np.ndarray, *, output_datatype: int = 1, periodic: int = 1) -> k.Tensor:
        count, target = dim(size, "size"), element_type(output_datatype)
        kind = DType.DOUBLE if target is DType.DOUBLE else DType.FLOAT
        last = count if periodic else count - 1
        angle = k.iota((count,), 0, kind) * (2 * math.pi) / k.maximum(k.cast(k.size(last), kind), 1.0)
        return k.cast(curve(angle), target)

    return definition


def _cos(x: k.Tensor) -> k.Tensor:
    return k.unary("cos", x)


_CURVES: dict[str, Curve] = {
    "HannWindow": lambda a: 0.5 - _cos(a) * 0.5,
    "HammingWindow": lambda a: 25 / 46 - _cos(a) * (21 / 46),
    "BlackmanWindow": lambda a: 0.42 - _cos(a) * 0.5 + _cos(a * 2.0) * 0.08,
}
for _name, _curve in _CURVES.items():
    op(_name, since=17, values=("size",))(_window(_curve))


def _mel_type(num_mel_bins: Any, dft_length: Any, *others: Any, output_datatype: int = 1) -> TensorType:
    bins, length = _first(num_mel_bins), _first(dft_length)
    rows = fresh_symbol("bins") if length is None else floordiv(length, 2) + 1
    return TensorType(element_type(output_datatype), (rows, fresh_symbol("mel") if bins is None else bins))


@host_op("MelWeightMatrix", since=17, infer=_mel_type, values=("num_mel_bins", "dft_length"), reason=_TABLE)
def mel_weight_matrix(
    num_mel_bins: Any,
    dft_length: Any,
    sample_rate: Any,
    lower_edge_hertz: Any,
    upper_edge_hertz: Any,
    *,
    output_datatype: int = 1,
) -> np.ndarray:
    """Triangles between neighbouring mel frequencies, [dft_length // 2 + 1, num_mel_bins]."""
    bins, length, rate = int(_first(num_mel_bins)), int(_first(dft_length)), float(_first(sample_rate))
    bounds = (float(_first(f)) for f in (lower_edge_hertz, upper_edge_hertz))
    return _mel_table(bins, length, rate, *bounds, element_type(output_datatype)).copy()


@functools.lru_cache(maxsize=8)
def _mel_table(bins: int, length: int, rate: float, lowest: float, highest: float, dtype: DType) -> np.ndarray:
    low, high = (2595 * math.log10(1 + f / 700) for f in (lowest, highest))
    mel = low + np.arange(bins + 2) * (high - low) / (bins + 2)
    edges = ((length + 1) * (700 * (10 ** (mel / 2595) - 1)) // rate).astype(np.int64)
    left, peak, right = edges[:-2], edges[1:-1], edges[2:]
    place = np.arange(length // 2 + 1)[:, None]
    rising = np.where(left == peak, place == peak, (place - left) / np.maximum(peak - left, 1))
    falling = (right - place) / np.maximum(right - peak, 1)
    triangle = np.where((place >= left) & (place <= peak), rising, 0.0)
    triangle = np.where((place >= peak) & (place < right), falling, triangle)
    return triangle.astype(dtype.numpy)
