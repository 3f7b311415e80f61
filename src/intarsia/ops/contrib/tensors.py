"""com.microsoft: operators on shapes and places, older forms of standard operators, distances, hashes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim, floordiv, fresh_symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.ops.arithmetic.signal import transformed
from intarsia.ops.framework.operands import integer, integers, normal_axis, widened
from intarsia.ops.framework.registry import NodeContext, host_op, op
from intarsia.ops.nn.resize import number
from intarsia.ops.nn.sampling import grid_sample_16
from intarsia.ops.tensor.gather import gather_nd_unbatched
from intarsia.ops.tensor.selection import unique
from intarsia.ops.tensor.shape import range_of, trilu
from intarsia.ops.tensor.slicing import pad_all_axes
from intarsia.primitives import lang as k

DOMAIN = "com.microsoft"
Tensor = k.Tensor


# --- older forms of standard operators ------------------------------------------------------------------------------


@op("Trilu", 1, domain=DOMAIN, values=("k",))
def trilu_1(X: Tensor, k: Any = None, *, upper: int = 1) -> Tensor:
    return trilu(X, k, upper=upper)


@op("Range", 1, domain=DOMAIN, values=("start", "limit", "delta"))
def range_1(start: np.ndarray, limit: np.ndarray, delta: np.ndarray | None = None, *, node: NodeContext) -> Tensor:
    return range_of(start, limit, np.ones(1, object) if delta is None else delta, node=node)


@op("ExpandDims", 1, domain=DOMAIN, values=("axis",))
def expand_dims(X: Tensor, axis: np.ndarray) -> Tensor:
    return k.expand_dims(X, [normal_axis(integer(axis, "axis"), X.rank + 1)])


@op("Pad", 1, domain=DOMAIN, values=("pads",))
def pad(data: Tensor, pads: np.ndarray, value: Tensor | None = None, *, mode: str = "constant") -> Tensor:
    """`pads` is [2 rank] or [1, 2 rank]."""
    return pad_all_axes(data, np.asarray(pads, object).reshape(-1), value, mode=mode)


@op("GatherND", 1, domain=DOMAIN)
def gather_nd(data: Tensor, indices: Tensor) -> Tensor:
    return gather_nd_unbatched(data, indices)


@op("GridSample", 1, domain=DOMAIN)
def grid_sample(
    X: Tensor, Grid: Tensor, *, align_corners: int = 0, mode: str = "bilinear", padding_mode: str = "zeros"
) -> Tensor:
    return grid_sample_16(X, Grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode)


def _unique_types(x: TensorType) -> tuple[TensorType, ...]:
    count = fresh_symbol("unique")
    return TensorType(x.dtype, (count,)), TensorType(DType.INT64, x.shape), TensorType(DType.INT64, (count,))


@host_op("Unique", 1, domain=DOMAIN, infer=_unique_types, reason="the number of distinct elements depends on data")
def unique_1(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Distinct elements in order of first appearance, which one each element is, and how often each appears."""
    if x.ndim != 1:
        raise k.DefinitionError(f"x has shape {list(x.shape)}; expected one axis")
    values, _, inverse, counts = unique(x, sorted=0, node=NodeContext(4))
    return values, inverse, counts


@op("SampleOp", 1, domain=DOMAIN)
def sample_op(X: Tensor) -> Tensor:
    """X itself."""
    return X


@op("TorchEmbedding", 1, domain=DOMAIN)
def torch_embedding(
    weight: Tensor, indices: Tensor, padding_idx: Tensor | None = None, scale_grad_by_freq: Tensor | None = None
) -> Tensor:
    """Rows of `weight`; the other inputs only matter in training."""
    return k.take(weight, k.wrap_indices(indices, weight.shape[0]), 0)


@op("UnfoldTensor", 1, domain=DOMAIN)
def unfold_tensor(input: Tensor, *, dim: int = -1, size: int, step: int = 1) -> Tensor:
    """All slices of `size` elements, `step` difference, along `dim`; their elements are a new last axis."""
    if size < 1 or step < 1:
        raise k.DefinitionError(f"size is {size} and step is {step}; expected at least 1")
    axis = normal_axis(dim, input.rank)
    k.require_least(input.shape[axis], size, f"the elements of axis {axis}, of which size = {size} are a slice")
    return k.windows(input, [axis], [size], [step], [1])


# --- arithmetic -----------------------------------------------------------------------------------------------------


@op("IsAllFinite", 1, domain=DOMAIN)
def is_all_finite(*input: Tensor, isinf_only: int = 0, isnan_only: int = 0) -> Tensor:
    """Whether no element of any input is infinite (unless `isnan_only`) or NaN (unless `isinf_only`)."""
    if isinf_only and isnan_only:
        raise k.DefinitionError("isinf_only and isnan_only exclude each other")
    result = k.scalar(True, DType.BOOL)
    for x in input:
        bad = [k.unary(test, x) for test, off in (("isnan", isinf_only), ("isinf", isnan_only)) if not off]
        for found in bad:
            result = result & ~k.reduce(found, "any", range(x.rank))
    return result


def _complex_product(a: Tensor, b: Tensor, sign: float) -> Tensor:
    for x in (a, b):
        if not x.rank:
            raise k.DefinitionError(f"{x!r} has no last axis of real and imaginary parts")
        k.require_equal(x.shape[-1], 2, f"{x!r} has no last axis of real and imaginary parts")
    (ar, ai), (br, bi) = (_columns(widened(x)) for x in (a, b))
    bi = bi * sign
    return k.cast(k.concat([ar * br - ai * bi, ar * bi + ai * br], -1), a.dtype)


def _columns(x: Tensor) -> list[Tensor]:
    shape = (*x.shape[:-1], 1)
    return [k.strided_slice(x, (*(0,) * (x.rank - 1), at), (1,) * x.rank, shape) for at in (0, 1)]


@op("ComplexMul", 1, domain=DOMAIN)
def complex_mul(A: Tensor, B: Tensor) -> Tensor:
    """Products of complex numbers, whose parts are the last axis."""
    return _complex_product(A, B, 1.0)


@op("ComplexMulConj", 1, domain=DOMAIN)
def complex_mul_conj(A: Tensor, B: Tensor) -> Tensor:
    """Products of A's numbers with the conjugates of B's."""
    return _complex_product(A, B, -1.0)


@op("CDist", 1, domain=DOMAIN)
def cdist(A: Tensor, B: Tensor, *, metric: str = "sqeuclidean") -> Tensor:
    """Distances [M, K] between the rows of A [M, N] and of B [K, N]."""
    if A.rank != 2 or B.rank != 2:
        raise k.DefinitionError(f"CDist takes matrices, got {A!r} and {B!r}")
    k.require_equal(B.shape[1], A.shape[1], "the columns of B, which are those of A")
    a, b = k.expand_dims(A, [1]), k.expand_dims(B, [0])
    if metric == "correlation":
        a, b = (x - k.reduce_mean(x, [2], keepdims=True) for x in (a, b))
    if metric in ("cosine", "correlation"):
        norms = k.sqrt(k.reduce_sum(a * a, [2])) * k.sqrt(k.reduce_sum(b * b, [2]))
        return 1.0 - k.reduce_sum(a * b, [2]) / norms
    difference = k.absolute(a - b)
    found = {
        "sqeuclidean": lambda: k.reduce_sum(difference * difference, [2]),
        "euclidean": lambda: k.sqrt(k.reduce_sum(difference * difference, [2])),
        "cityblock": lambda: k.reduce_sum(difference, [2]),
        "chebyshev": lambda: k.reduce_max(difference, [2]),
        "braycurtis": lambda: k.reduce_sum(difference, [2]) / k.reduce_sum(k.absolute(a + b), [2]),
        "canberra": lambda: k.reduce_sum(_ratio(difference, k.absolute(a) + k.absolute(b)), [2]),
        "hamming": lambda: k.reduce_mean(k.cast(k.not_equal(a, b), A.dtype), [2]),
    }.get(metric)
    if found is None:
        known = "braycurtis, canberra, chebyshev, cityblock, correlation, cosine, euclidean, hamming, sqeuclidean"
        raise k.DefinitionError(f"metric is {metric!r}; expected one of {known}")
    return found()


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b, 0 where b is 0."""
    none = k.equal(b, 0)
    return k.select(none, 0, a / k.select(none, 1, b))


def _rfft_type(X: TensorType, *, signal_ndim: int = 1) -> TensorType:
    return X if X.shape is None else replace(X, shape=(*X.shape[:-1], floordiv(X.shape[-1], 2) + 1, 2))


def _irfft_type(X: TensorType, *, signal_ndim: int) -> TensorType:
    if X.shape is None:
        return X
    k.require_least(X.shape[-2], 1, "the frequencies of X [.., n / 2 + 1, 2]")
    return replace(X, shape=(*X.shape[:-2], (X.shape[-2] - 1) * 2))


_FFT = "its operands do not fit, or their rank is known only at run time"


def _check_transform(x: np.ndarray, onesided: int, normalized: int, signal_ndim: int, complex_axes: int) -> None:
    if not onesided or normalized:
        raise k.DefinitionError(f"onesided must be 1 and normalized 0, got {onesided} and {normalized}")
    if not 1 <= signal_ndim <= x.ndim - complex_axes:
        raise k.DefinitionError(f"signal_ndim is {signal_ndim}; X of shape {list(x.shape)} does not have as many signal axes")


@host_op("Rfft", 1, domain=DOMAIN, infer=_rfft_type, reason=_FFT)
def rfft(X: np.ndarray, *, normalized: int = 0, onesided: int = 1, signal_ndim: int = 1) -> np.ndarray:
    """Fourier transform of real signals over the last `signal_ndim` axes: [.., n] -> [.., n / 2 + 1, 2]."""
    _check_transform(X, onesided, normalized, signal_ndim, 0)
    out = transformed(X.astype(np.promote_types(X.dtype, np.float32)), X.shape[-1], X.ndim - 1, False, True)
    for axis in range(X.ndim - signal_ndim, X.ndim - 1):
        out = transformed(out, X.shape[axis], axis, False, False)
    return np.stack([out.real, out.imag], -1).astype(X.dtype)


@host_op("Irfft", 1, domain=DOMAIN, infer=_irfft_type, reason=_FFT)
def irfft(X: np.ndarray, *, normalized: int = 0, onesided: int = 1, signal_ndim: int) -> np.ndarray:
    """What `Rfft` makes of its result: [.., n / 2 + 1, 2] -> [.., n], n even."""
    _check_transform(X, onesided, normalized, signal_ndim, 1)
    wide = X.astype(np.promote_types(X.dtype, np.float32))
    if not X.shape[-2]:
        raise k.DefinitionError(f"X has shape {list(X.shape)}; expected at least one frequency [.., n / 2 + 1, 2]")
    spectrum = wide[..., 0] + 1j * wide[..., 1]
    last = spectrum.ndim - 1
    for axis in range(spectrum.ndim - signal_ndim, last):
        spectrum = transformed(spectrum, spectrum.shape[axis], axis, True, False)
    return transformed(spectrum, max(spectrum.shape[-1] - 1, 0) * 2, last, True, True).astype(X.dtype)


# --- images ---------------------------------------------------------------------------------------------------------


@op("CropAndResize", 1, domain=DOMAIN, values=("crop_size",))
def crop_and_resize(
    X: Tensor, rois: Tensor, batch_indices: Tensor, crop_size: Any, *, extrapolation_value: float = 0.0, mode: str = "bilinear"
) -> Tensor:
    """Regions [y1, x1, y2, x2] (as fractions of the image, corners aligned) of X [N, C, H, W], resized to `crop_size`."""
    if mode not in ("bilinear", "nearest"):
        raise k.DefinitionError(f"mode is {mode!r}; expected bilinear or nearest")
    sizes = integers(crop_size, "crop_size")
    if len(sizes) != 2 or min(sizes) < 1 or X.rank != 4:
        raise k.DefinitionError(f"crop_size is {sizes} and X is {X!r}; expected two positive sizes and [N, C, H, W]")
    x, boxes, regions = widened(X), widened(rois), rois.shape[0]
    shape = (regions, X.shape[1], *sizes)
    places = [_crop_places(boxes, axis, sizes[axis], X.shape[2 + axis]) for axis in (0, 1)]
    inside: Tensor | None = None
    for place, extent in zip(places, X.shape[2:], strict=True):
        fits = (place >= 0.0) & (place <= k.cast(number(extent - 1), place.dtype))
        inside = fits if inside is None else inside & fits
    assert inside is not None
    batch = k.reshape(k.cast(batch_indices, DType.INT64), (regions, 1, 1, 1))
    lead = [batch, k.iota((1, X.shape[1], 1, 1), 1)]
    places = [k.select(inside, p, 0.0) for p in places]
    if mode == "nearest":
        value = k.index(x, [*lead, *(k.cast(k.unary("floor", p + 0.5), DType.INT64) for p in places)])
    else:
        value = _between(x, lead, places)
    return k.cast(k.broadcast(k.select(inside, value, extrapolation_value), shape), X.dtype)


def _crop_places(boxes: Tensor, axis: int, count: int, extent: Dim) -> Tensor:
    """Where along an image axis the samples of every region lie, [regions, 1, count, 1] or [regions, 1, 1, count]."""
    low, high = (
        k.reshape(k.strided_slice(boxes, (0, at), (1, 1), (boxes.shape[0], 1)), (boxes.shape[0], 1, 1, 1))
        for at in (axis, axis + 2)
    )
    last = k.cast(number(extent - 1), boxes.dtype)
    if count == 1:
        return (low + high) * 0.5 * last
    step = (high - low) * last / float(count - 1)
    return low * last + k.iota((1, 1, count, 1) if axis == 0 else (1, 1, 1, count), 2 + axis, boxes.dtype) * step


def _between(x: Tensor, lead: Sequence[Tensor], places: Sequence[Tensor]) -> Tensor:
    """Bilinear interpolation at places inside the image."""
    below = [k.unary("floor", p) for p in places]
    above = [k.unary("ceil", p) for p in places]
    rows, columns = ([k.cast(i, DType.INT64) for i in pair] for pair in zip(below, above, strict=True))
    down, right = (p - b for p, b in zip(places, below, strict=True))
    top, bottom = (_mixed([k.index(x, [*lead, row, column]) for column in columns], right) for row in rows)
    return _mixed([top, bottom], down)


def _mixed(ends: Sequence[Tensor], ratio: Tensor) -> Tensor:
    return ends[0] + (ends[1] - ends[0]) * ratio


# --- hashes ---------------------------------------------------------------------------------------------------------

_C1, _C2 = 0xCC9E2D51, 0x1B873593


def _murmur_host(X: np.ndarray, *, positive: int = 1, seed: int = 0) -> np.ndarray:
    hashes = [_murmur_bytes(str(s).encode(), seed) for s in X.reshape(-1)]
    out = np.array(hashes, np.uint32).reshape(X.shape)
    return out if positive else out.view(np.int32)


def _murmur_bytes(data: bytes, seed: int) -> int:
    """MurmurHash3_x86_32 (Appleby's public-domain algorithm)."""
    mask, h = 0xFFFFFFFF, seed & 0xFFFFFFFF
    whole = len(data) // 4 * 4
    for (block,) in struct.iter_unpack("<I", data[:whole]):
        h ^= _rotated(block * _C1 & mask, 15) * _C2 & mask
        h = (_rotated(h, 13) * 5 + 0xE6546B64) & mask
    tail = int.from_bytes(data[whole:], "little")
    if tail:
        h ^= _rotated(tail * _C1 & mask, 15) * _C2 & mask
    h ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ h >> shift) * factor & mask
    return h ^ h >> 16


def _rotated(x: int, by: int) -> int:
    return (x << by | x >> (32 - by)) & 0xFFFFFFFF


@op("MurmurHash3", 1, domain=DOMAIN, fallback=_murmur_host)
def murmur_hash_3(X: Tensor, *, positive: int = 1, seed: int = 0) -> Tensor:
    """MurmurHash3_x86_32 of every element's bytes, as uint32 (`positive`) or int32. Strings are hashed on the host."""
    if X.dtype is DType.STRING:
        raise k.SymbolicValueError("strings are Python objects on the host")
    if X.dtype.bits == 64:
        bits = k.bitcast(X, DType.UINT64)
        blocks = [k.cast(k.binary("bitand", bits, 0xFFFFFFFF), DType.UINT32), k.cast(k.binary("shr", bits, 32), DType.UINT32)]
    elif X.dtype.bits == 32:
        blocks = [k.bitcast(X, DType.UINT32)]
    else:
        raise k.DefinitionError(f"X is {X!r}; expected elements of 32 or 64 bits, or strings")
    h = k.full(X.shape, seed & 0xFFFFFFFF, DType.UINT32)
    for block in blocks:
        h = k.binary("bitxor", h, _turn(block * _C1, 15) * _C2)
        h = _turn(h, 13) * 5 + 0xE6546B64
    h = k.binary("bitxor", h, 4 * len(blocks))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = k.binary("bitxor", h, k.binary("shr", h, shift)) * factor
    h = k.binary("bitxor", h, k.binary("shr", h, 16))
    return h if positive else k.bitcast(h, DType.INT32)


def _turn(x: Tensor, by: int) -> Tensor:
    return k.binary("bitor", k.binary("shl", x, by), k.binary("shr", x, 32 - by))


# --- alignment ------------------------------------------------------------------------------------------------------


def _path_type(input: TensorType) -> TensorType:
    return TensorType(DType.INT32, (2, fresh_symbol("path")))


@host_op(
    "DynamicTimeWarping",
    1,
    domain=DOMAIN,
    infer=_path_type,
    reason="every cell waits for its neighbours, and the path for data",
)
def dynamic_time_warping(input: np.ndarray) -> np.ndarray:
    """The cheapest path of steps right, down or diagonal through a matrix of costs, as rows and columns [2, length]."""
    rows, columns = input.shape[-2], input.shape[-1]
    costs = input.reshape(rows, columns)
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    step = np.full((rows + 1, columns + 1), -1, np.int8)
    total[0, 0] = 0
    for j in range(1, columns + 1):
        for i in range(1, rows + 1):
            diagonal, down, right = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
            best = 0 if diagonal < down and diagonal < right else 1 if down < diagonal and down < right else 2
            total[i, j] = costs[i - 1, j - 1] + (diagonal, down, right)[best]
            step[i, j] = best
    step[0, :], step[:, 0] = 2, 1
    i, j, path = rows, columns, []
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        moved = step[i, j]
        i, j = i - (moved != 2), j - (moved != 1)
    return np.array(path[::-1], np.int32).T.copy()
