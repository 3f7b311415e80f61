"""NumPy kernels of MIL's operations that coremltools has no `value_inference` for, or one that does not do as documented.

Written from the documentation of the operations (docstrings of coremltools 9.0), not from the translator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np

Array = np.ndarray


def _pads(pad_type: str, pad: Any, count: int) -> list[tuple[int, int]]:
    if pad_type == "valid" or pad is None:
        return [(0, 0)] * count
    assert pad_type == "custom", pad_type
    return [(int(pad[2 * i]), int(pad[2 * i + 1])) for i in range(count)]


def windows(x: Array, kernel: Any, strides: Any, pads: list[tuple[int, int]], fill: float, dilations: Any) -> Array:
    """[N, C, out..., taps] of what each window sees; floor division of sizes."""
    count = len(kernel)
    wide = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=fill)
    extents = [(int(k) - 1) * int(d) + 1 for k, d in zip(kernel, dilations, strict=True)]
    out = [(n - e) // int(s) + 1 for n, e, s in zip(wide.shape[2:], extents, strides, strict=True)]
    taps = []
    for at in product(*(range(int(k)) for k in kernel)):
        cut = tuple(
            slice(at[i] * int(dilations[i]), at[i] * int(dilations[i]) + (out[i] - 1) * int(strides[i]) + 1, int(strides[i]))
            for i in range(count)
        )
        taps.append(wide[(slice(None), slice(None), *cut)])
    return np.stack(taps, -1)


def conv(x, weight, bias=None, strides=None, dilations=None, groups=1, pad_type="valid", pad=None):
    count, groups = x.ndim - 2, int(groups)
    strides = [1] * count if strides is None else strides
    dilations = [1] * count if dilations is None else dilations
    w = windows(x, weight.shape[2:], strides, _pads(pad_type, pad, count), 0.0, dilations)
    n, c, *out, taps = w.shape
    f = weight.shape[0]
    left = w.reshape(n, groups, c // groups, -1, taps)
    right = weight.reshape(groups, f // groups, c // groups, taps)
    y = np.einsum("ngcpt,gfct->ngfp", left.astype(np.float64), right.astype(np.float64)).astype(x.dtype).reshape(n, f, *out)
    return y if bias is None else y + bias.reshape(-1, *[1] * count)


def conv_transpose(x, weight, bias=None, pad=None, output_shape=None, pad_type="valid", strides=None, dilations=None, groups=1):
    assert output_shape is None and pad_type == "valid"
    count, groups = x.ndim - 2, int(groups)
    strides = [1] * count if strides is None else [int(s) for s in strides]
    dilations = [1] * count if dilations is None else [int(d) for d in dilations]
    n, c = x.shape[:2]
    f = weight.shape[1]
    out = [(x.shape[2 + i] - 1) * strides[i] + (weight.shape[2 + i] - 1) * dilations[i] + 1 for i in range(count)]
    y = np.zeros((n, f * groups, *out), np.float64)
    for g in range(groups):
        piece = x[:, g * c // groups : (g + 1) * c // groups].astype(np.float64)
        kernel = weight[g * c // groups : (g + 1) * c // groups].astype(np.float64)
        for at in product(*(range(k) for k in weight.shape[2:])):
            add = np.einsum("nc...,cf->nf...", piece, kernel[(slice(None), slice(None), *at)])
            where = tuple(
                slice(at[i] * dilations[i], at[i] * dilations[i] + (x.shape[2 + i] - 1) * strides[i] + 1, strides[i])
                for i in range(count)
            )
            y[(slice(None), slice(g * f, (g + 1) * f), *where)] += add
    y = y.astype(x.dtype)
    return y if bias is None else y + bias.reshape(-1, *[1] * count)


def max_pool(x, kernel_sizes, pad_type, strides=None, pad=None, ceil_mode=False):
    assert not ceil_mode
    count = x.ndim - 2
    ones = [1] * count
    return windows(x, kernel_sizes, ones if strides is None else strides, _pads(pad_type, pad, count), -np.inf, ones).max(-1)


def avg_pool(x, kernel_sizes, pad_type, strides=None, pad=None, ceil_mode=False, exclude_padding_from_average=False):
    assert not ceil_mode
    count = x.ndim - 2
    ones, pads = [1] * count, _pads(pad_type, pad, count)
    strides = ones if strides is None else strides
    total = windows(x.astype(np.float64), kernel_sizes, strides, pads, 0.0, ones).sum(-1)
    if exclude_padding_from_average:
        number = windows(np.ones_like(x, np.float64), kernel_sizes, strides, pads, 0.0, ones).sum(-1)
    else:
        number = np.prod(kernel_sizes)
    return (total / number).astype(x.dtype)


def batch_norm(x, mean, variance, gamma=None, beta=None, epsilon=1e-5):
    def wide(v):
        return v.reshape(-1, *[1] * (x.ndim - 2))

    y = (x - wide(mean)) / np.sqrt(wide(variance) + epsilon)
    y = y if gamma is None else y * wide(gamma)
    return (y if beta is None else y + wide(beta)).astype(x.dtype)


def gather_nd(x, indices, batch_dims=0, validate_indices=False):
    batch_dims = int(batch_dims)
    if not batch_dims:
        return x[tuple(np.moveaxis(indices, -1, 0))]
    lead = x.shape[:batch_dims]
    rows = [
        gather_nd(a, b)
        for a, b in zip(x.reshape(-1, *x.shape[batch_dims:]), indices.reshape(-1, *indices.shape[batch_dims:]), strict=True)
    ]
    return np.stack(rows).reshape(*lead, *rows[0].shape)


def _write(mode: str, old: Array, new: Array) -> Array:
    functions = {
        "update": lambda a, b: b, "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum,
        "min": np.minimum,
    }  # fmt: skip
    return functions[mode](old, new)


def scatter_nd(data, indices, updates, mode="add", validate_indices=False):
    y = data.copy()
    depth = indices.shape[-1]
    for place in np.ndindex(*indices.shape[:-1]):
        at = tuple(indices[place]) if depth else ()
        assert all(i >= 0 for i in at), "from iOS 17 on indices are not negative"
        y[at] = _write(mode, y[at], updates[place])
    return y


def scatter_along_axis(data, indices, updates, axis=0, mode="add", validate_indices=False):
    y = data.copy()
    for place in np.ndindex(*indices.shape):
        at = list(place)
        at[int(axis)] = int(indices[place])
        assert at[int(axis)] >= 0, "from iOS 17 on indices are not negative"
        y[tuple(at)] = _write(mode, y[tuple(at)], updates[place])
    return y


def gather(x, indices, axis=0, batch_dims=0, validate_indices=False):
    assert not int(batch_dims) and (np.asarray(indices) >= 0).all(), "from iOS 17 on indices are not negative"
    return np.take(x, indices, axis=int(axis))


def gather_along_axis(x, indices, axis=0, validate_indices=False):
    assert (indices >= 0).all(), "from iOS 17 on indices are not negative"
    return np.take_along_axis(x, indices, axis=int(axis))


def lstm(
    x, initial_h, initial_c, weight_ih, weight_hh, bias=None, peephole=None, weight_ih_back=None, weight_hh_back=None,
    bias_back=None, peephole_back=None, direction="forward", output_sequence=False, recurrent_activation="sigmoid",
    cell_activation="tanh", activation="tanh", clip=None,
):  # fmt: skip
    assert peephole is None and peephole_back is None and clip is None
    assert (recurrent_activation, cell_activation, activation) == ("sigmoid", "tanh", "tanh")
    hidden = weight_hh.shape[1]

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    def one(xs, h, c, wi, wh, b):
        rows = []
        for row in xs.astype(np.float64):
            i, f, o, z = np.split(row @ wi.T + h @ wh.T + (0 if b is None else b), 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(z)
            h = sigmoid(o) * np.tanh(c)
            rows.append(h)
        return np.stack(rows), h, c

    passes = []
    if direction in ("forward", "bidirectional"):
        passes.append(one(x, initial_h[:, :hidden], initial_c[:, :hidden], weight_ih, weight_hh, bias))
    if direction == "reverse":
        y, h, c = one(x[::-1], initial_h, initial_c, weight_ih, weight_hh, bias)
        passes.append((y[::-1], h, c))
    if direction == "bidirectional":
        y, h, c = one(x[::-1], initial_h[:, hidden:], initial_c[:, hidden:], weight_ih_back, weight_hh_back, bias_back)
        passes.append((y[::-1], h, c))
    y, h, c = (np.concatenate(vs, axis=-1).astype(x.dtype) for vs in zip(*passes, strict=True))
    return [y if output_sequence else h[None], h, c]


def topk(x, k=1, axis=-1, ascending=False, sort=True, return_indices=True, output_indices_dtype="int32"):
    order = np.argsort(x if ascending else -x, axis=int(axis), kind="stable")
    at = np.take(order, range(int(k)), axis=int(axis))
    return [np.take_along_axis(x, at, axis=int(axis)), at.astype(np.int32)]


def cumsum(x, axis=0, exclusive=False, reverse=False):
    axis = int(axis)
    x = np.flip(x, axis) if reverse else x
    y = np.cumsum(x, axis=axis, dtype=x.dtype)
    if exclusive:
        y = np.roll(y, 1, axis=axis)
        y[(*[slice(None)] * axis, 0)] = 0
    return np.flip(y, axis) if reverse else y


def upsample_nearest_neighbor(x, scale_factor_height=1, scale_factor_width=1):
    return x.repeat(int(scale_factor_height), -2).repeat(int(scale_factor_width), -1)


def upsample_bilinear(x, scale_factor_height=1, scale_factor_width=1, align_corners=True, half_pixel_centers=None):
    half = not align_corners if half_pixel_centers is None else half_pixel_centers
    for axis, scale in ((-2, scale_factor_height), (-1, scale_factor_width)):
        n = x.shape[axis]
        m = int(n * scale)
        at = np.arange(m)
        if align_corners:
            place = at * ((n - 1) / (m - 1)) if m > 1 else at * 0.0
        else:
            place = (at + 0.5) / scale - 0.5 if half else at / scale
        place = np.clip(place, 0, n - 1)
        low = np.floor(place).astype(int)
        high = np.minimum(low + 1, n - 1)
        share = (place - low).reshape([-1 if a == axis % x.ndim else 1 for a in range(x.ndim)])
        x = (np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share).astype(x.dtype)
    return x


def resample(x, coordinates, sampling_mode, padding_mode, padding_value, coordinates_mode, align_corners):
    assert sampling_mode == "bilinear" and coordinates_mode == "normalized_minus_one_to_one"
    n, c, h, w = x.shape
    sizes = np.array([w, h])
    if align_corners:
        place = (coordinates.astype(np.float64) + 1) / 2 * (sizes - 1)
    else:
        place = ((coordinates.astype(np.float64) + 1) * sizes - 1) / 2
    if padding_mode == "border":
        place = np.clip(place, 0, sizes - 1)
    low = np.floor(place)
    y = np.zeros((n, c, *coordinates.shape[1:3]), np.float64)
    for dx, dy in product((0, 1), (0, 1)):
        column, row = (low[..., 0] + dx).astype(int), (low[..., 1] + dy).astype(int)
        weight = np.abs(1 - dx - (place - low)[..., 0]) * np.abs(1 - dy - (place - low)[..., 1])
        inside = (column >= 0) & (column < w) & (row >= 0) & (row < h)
        for i in range(n):
            seen = x[i][:, np.clip(row[i], 0, h - 1), np.clip(column[i], 0, w - 1)]
            y[i] += np.where(inside[i], seen, padding_value) * weight[i]
    return y.astype(x.dtype)


def select(cond, a, b):
    return np.where(cond, a, b)


def matmul(x, y, transpose_x=False, transpose_y=False):
    x = np.swapaxes(x, -1, -2) if transpose_x else x
    y = np.swapaxes(y, -1, -2) if transpose_y else y
    return np.matmul(x, y)


def linear(x, weight, bias=None):
    y = np.matmul(x, weight.T)
    return y if bias is None else y + bias


def cast(x, dtype):
    names = {"fp32": np.float32, "fp16": np.float16, "int32": np.int32, "bool": np.bool_}
    return np.asarray(x).astype(names[dtype])


def _unary(function: Callable[[Array], Array]) -> Callable[..., Array]:
    def compute(x):
        return function(x)

    return compute


def floor_div(x, y):
    return np.floor_divide(x, y)


def mod(x, y):
    return np.mod(x, y)


def _binary(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def compute(x, y):
        return function(x, y)

    return compute


def _reduction(function: Callable[..., Array]) -> Callable[..., Array]:
    def reduce(x, axes=None, keep_dims=False):
        return function(x, axis=None if axes is None else tuple(int(a) for a in axes), keepdims=bool(keep_dims))

    return reduce


def _sum(x: Array, **how: Any) -> Array:
    return np.sum(x, dtype=x.dtype, **how)


def transpose(x, perm):
    return np.transpose(x, [int(p) for p in perm])


def reshape(x, shape):
    return np.reshape(x, [int(d) for d in shape])


def concat(values, axis, interleave=False):
    assert not interleave
    return np.concatenate(values, axis=int(axis))


def expand_dims(x, axes):
    return np.expand_dims(x, tuple(int(a) for a in axes))


def squeeze(x, axes=None):
    return np.squeeze(x, None if axes is None else tuple(int(a) for a in axes))


def stack(values, axis):
    return np.stack(values, axis=int(axis))


def tile(x, reps):
    return np.tile(x, [int(r) for r in reps])


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=int(axis), keepdims=True))
    return e / e.sum(axis=int(axis), keepdims=True)


def pad(x, pad, mode="constant", constant_val=0.0):
    assert mode == "constant"
    pads = [(int(pad[2 * i]), int(pad[2 * i + 1])) for i in range(len(pad) // 2)]
    return np.pad(x, [(0, 0)] * (x.ndim - len(pads)) + pads, constant_values=constant_val)


class MilList(tuple):  # type: ignore[type-arg] # of arrays, or None where nothing was written yet
    """A list of tensors of one shape; operations give new ones."""

    __slots__ = ()


def make_list(init_length, dynamic_length, elem_shape, dtype):
    return MilList([None] * int(init_length))


def list_write(ls, index, value):
    assert 0 <= index < len(ls), (index, len(ls))
    return MilList([*ls[: int(index)], value, *ls[int(index) + 1 :]])


def list_gather(ls, indices):
    assert all(0 <= i < len(ls) and ls[i] is not None for i in indices)
    return np.stack([ls[i] for i in indices])


KERNELS: Mapping[str, Callable[..., Any]] = {
    "conv": conv, "conv_transpose": conv_transpose, "max_pool": max_pool, "avg_pool": avg_pool, "batch_norm": batch_norm,
    "gather_nd": gather_nd, "scatter_nd": scatter_nd, "scatter_along_axis": scatter_along_axis, "gather": gather,
    "gather_along_axis": gather_along_axis, "lstm": lstm, "topk": topk, "cumsum": cumsum,
    "upsample_nearest_neighbor": upsample_nearest_neighbor, "upsample_bilinear": upsample_bilinear, "resample": resample,
    "select": select, "matmul": matmul, "linear": linear, "cast": cast, "floor_div": floor_div, "mod": mod,
    "transpose": transpose, "reshape": reshape, "concat": concat, "expand_dims": expand_dims, "squeeze": squeeze,
    "make_list": make_list, "list_write": list_write, "list_gather": list_gather,
    "stack": stack, "tile": tile, "softmax": softmax, "pad": pad,
    "silu": _unary(lambda x: x / (1 + np.exp(-x))),
    "identity": _unary(np.array), "relu": _unary(lambda x: np.maximum(x, x.dtype.type(0))),
    "add": _binary(np.add), "sub": _binary(np.subtract), "mul": _binary(np.multiply), "real_div": _binary(np.true_divide),
    "maximum": _binary(np.maximum), "minimum": _binary(np.minimum), "equal": _binary(np.equal),
    "not_equal": _binary(np.not_equal), "greater": _binary(np.greater), "greater_equal": _binary(np.greater_equal),
    "less": _binary(np.less), "less_equal": _binary(np.less_equal),
    "reduce_sum": _reduction(_sum), "reduce_mean": _reduction(np.mean), "reduce_max": _reduction(np.max),
    "reduce_min": _reduction(np.min),
}  # fmt: skip
