"""Operations that move elements: shapes, slices, paddings, tables, places; and CAST, FILL, RANK, TOPK_V2."""

from __future__ import annotations

from typing import Any

import numpy as np
from nnapi_kernels import Failed, axes_of, axis_of, layout_back, layout_moved, padded_shape, raw, reals


@raw("RESHAPE")
def reshape(x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    try:
        return x.reshape([int(n) for n in shape])
    except ValueError as error:
        raise Failed(str(error)) from error


@raw("SQUEEZE")
def squeeze(x: np.ndarray, axes: np.ndarray | None) -> np.ndarray:
    chosen = axes_of(axes, x.ndim) if axes is not None else tuple(i for i, n in enumerate(x.shape) if n == 1)
    if any(x.shape[a] != 1 for a in chosen):
        raise Failed(f"SQUEEZE of {x.shape} at {chosen}")
    found = np.squeeze(x, chosen)
    return found if found.ndim else found.reshape(1)


@raw("EXPAND_DIMS")
def expand_dims(x: np.ndarray, axis: int) -> np.ndarray:
    return np.expand_dims(x, axis_of(axis, x.ndim + 1))


@raw("TRANSPOSE")
def transpose(x: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    return x.transpose([int(i) for i in order] if order is not None else None)


@reals("CONCATENATION")
def concatenation(*given: Any) -> np.ndarray:
    *tensors, axis = given
    return np.concatenate(tensors, axis_of(axis, tensors[0].ndim))


@raw("PACK")
def pack(axis: int, *tensors: np.ndarray) -> np.ndarray:
    return np.stack(tensors, axis)


@raw("SPLIT")
def split(x: np.ndarray, axis: int, count: int) -> list[np.ndarray]:
    axis = axis_of(axis, x.ndim)
    if count <= 0 or x.shape[axis] % count:
        raise Failed(f"{x.shape[axis]} cannot be split into {count} equal parts")
    return list(np.split(x, count, axis))


@raw("SLICE")
def slice_(x: np.ndarray, begin: np.ndarray, size: np.ndarray) -> np.ndarray:
    places = []
    for low, count, whole in zip(begin.tolist(), size.tolist(), x.shape, strict=True):
        high = whole if count == -1 else low + count
        if not 0 <= low <= high <= whole:
            raise Failed(f"SLICE from {low} of size {count} in {whole}")
        places.append(slice(low, high))
    return x[tuple(places)]


@raw("STRIDED_SLICE")
def strided_slice(
    x: np.ndarray, begin: np.ndarray, end: np.ndarray, strides: np.ndarray, begins: int, ends: int, shrink: int
) -> np.ndarray:
    places: list[Any] = []
    for i, (low, high, step) in enumerate(zip(begin.tolist(), end.tolist(), strides.tolist(), strict=True)):
        if step == 0:
            raise Failed("a stride of 0")
        if shrink >> i & 1:
            places.append(low)
        else:
            places.append(slice(None if begins >> i & 1 else low, None if ends >> i & 1 else high, step))
    found = x[tuple(places)]
    return found if found.ndim else found.reshape(1)


@raw("TILE")
def tile(x: np.ndarray, repeats: np.ndarray) -> np.ndarray:
    if len(repeats) != x.ndim:
        raise Failed(f"{len(repeats)} repeats for {x.ndim} dimensions")
    return np.tile(x, repeats)


@raw("REVERSE")
def reverse(x: np.ndarray, axes: np.ndarray) -> np.ndarray:
    return np.flip(x, axes_of(axes, x.ndim))


@raw("GATHER")
def gather(x: np.ndarray, axis: int, indices: np.ndarray) -> np.ndarray:
    axis = axis_of(axis, x.ndim)
    if indices.size and not (indices.min() >= 0 and indices.max() < x.shape[axis]):
        raise Failed(f"indices from {indices.min()} to {indices.max()} in {x.shape[axis]}")
    return np.take(x, indices, axis)


@raw("EMBEDDING_LOOKUP")
def embedding_lookup(rows: np.ndarray, table: np.ndarray) -> np.ndarray:
    return gather(table, 0, rows)


@raw("HASHTABLE_LOOKUP")
def hashtable_lookup(lookups: np.ndarray, keys: np.ndarray, values: np.ndarray) -> list[np.ndarray]:
    order = {int(k): i for i, k in enumerate(keys)}
    rows = [order.get(int(k)) for k in lookups]
    zeros = np.zeros_like(values[0])
    return [np.stack([zeros if r is None else values[r] for r in rows]), np.array([r is not None for r in rows], np.uint8)]


@reals("PAD")
def pad(x: np.ndarray, paddings: np.ndarray) -> np.ndarray:
    return np.pad(x, padded_shape(x.shape, paddings))


@raw("PAD_V2")
def pad_v2(x: np.ndarray, paddings: np.ndarray, value: float) -> np.ndarray:
    return np.pad(x, padded_shape(x.shape, paddings), constant_values=value)


@raw("MIRROR_PAD")
def mirror_pad(x: np.ndarray, paddings: np.ndarray, mode: int) -> np.ndarray:
    return np.pad(x, padded_shape(x.shape, paddings), mode=("reflect", "symmetric")[mode])


@raw("SPACE_TO_DEPTH")
def space_to_depth(x: np.ndarray, block: int, nchw: bool = False) -> np.ndarray:
    x = layout_moved(x, nchw)
    n, h, w, c = x.shape
    if h % block or w % block:
        raise Failed(f"{h} x {w} in blocks of {block}")
    x = x.reshape(n, h // block, block, w // block, block, c).transpose(0, 1, 3, 2, 4, 5)
    return layout_back(x.reshape(n, h // block, w // block, -1), nchw)


@raw("DEPTH_TO_SPACE")
def depth_to_space(x: np.ndarray, block: int, nchw: bool = False) -> np.ndarray:
    x = layout_moved(x, nchw)
    n, h, w, c = x.shape
    if c % (block * block):
        raise Failed(f"{c} channels in blocks of {block}")
    x = x.reshape(n, h, w, block, block, -1).transpose(0, 1, 3, 2, 4, 5)
    return layout_back(x.reshape(n, h * block, w * block, -1), nchw)


@raw("BATCH_TO_SPACE_ND")
def batch_to_space(x: np.ndarray, block: np.ndarray, nchw: bool = False) -> np.ndarray:
    x = layout_moved(x, nchw)
    a, b = map(int, block)
    n, h, w, c = x.shape
    x = x.reshape(a, b, n // (a * b), h, w, c).transpose(2, 3, 0, 4, 1, 5)
    return layout_back(x.reshape(n // (a * b), h * a, w * b, c), nchw)


@reals("SPACE_TO_BATCH_ND")
def space_to_batch(x: np.ndarray, block: np.ndarray, paddings: np.ndarray, nchw: bool = False) -> np.ndarray:
    x = layout_moved(x, nchw)
    a, b = map(int, block)
    x = np.pad(x, [(0, 0), *padded_shape(x.shape[1:3], paddings), (0, 0)])
    n, h, w, c = x.shape
    x = x.reshape(n, h // a, a, w // b, b, c).transpose(2, 4, 0, 1, 3, 5)
    return layout_back(x.reshape(n * a * b, h // a, w // b, c), nchw)


@raw("CHANNEL_SHUFFLE")
def channel_shuffle(x: np.ndarray, groups: int, axis: int) -> np.ndarray:
    axis = axis_of(axis, x.ndim)
    parts = np.stack(np.split(x, groups, axis), axis + 1)
    return parts.reshape(x.shape)


@raw("TOPK_V2")
def top_k(x: np.ndarray, k: int) -> list[np.ndarray]:
    """Of equal values the larger index comes first."""
    if not 0 < k <= x.shape[-1]:
        raise Failed(f"{k} of {x.shape[-1]}")
    order = np.argsort(x, axis=-1, kind="stable")[..., ::-1][..., :k]
    return [np.take_along_axis(x, order, -1), order]


@raw("FILL")
def fill(dims: np.ndarray, value: Any) -> np.ndarray:
    return np.full([int(d) for d in dims], value)


@raw("RANK")
def rank(x: np.ndarray) -> np.ndarray:
    return np.array(x.ndim)
