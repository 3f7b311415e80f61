"""Convolutions: windows of the padded input, multiplied by the weights as matrices, group by group."""

from __future__ import annotations

import math
from collections.abc import Sequence

from intarsia.graph.dims import Dim, dim_max, floordiv, numbers_of, product
from intarsia.graph.dtypes import DType
from intarsia.ops.framework.operands import HALF, widened
from intarsia.ops.framework.quantized import OutputQuantization, Quantized
from intarsia.ops.framework.registry import op
from intarsia.ops.nn.sliding_windows import WindowAttributes, Windows, check_padding, per_axis, place_windows, slide
from intarsia.primitives import lang as k

Ints = Sequence[int]


@op("Conv", since=(1, 11, 22))
def conv(X: k.Tensor, W: k.Tensor, B: k.Tensor | None = None, *, group: int = 1, attributes: WindowAttributes) -> k.Tensor:
    windows = _conv_windows(X, W, group, attributes)
    out = convolve(X, W, group, windows, DType.FLOAT if X.dtype in HALF else None)
    return k.cast(_add_bias(out, B), X.dtype)


@op("ConvInteger", since=10)
def conv_integer(
    x: k.Tensor, w: k.Tensor, x_zero_point: k.Tensor | None = None, w_zero_point: k.Tensor | None = None, *,
    group: int = 1, attributes: WindowAttributes,
) -> k.Tensor:  # fmt: skip
    windows = _conv_windows(x, w, group, attributes)
    return convolve(_centred(x, x_zero_point), _centred(w, w_zero_point), group, windows, DType.INT32)


@op("QLinearConv", since=10)
def qlinear_conv(
    x: Quantized, w: Quantized, y: OutputQuantization, B: k.Tensor | None = None, *, group: int = 1,
    attributes: WindowAttributes,
) -> k.Tensor:  # fmt: skip
    windows = _conv_windows(x.values, w.values, group, attributes)
    total = convolve(_centred(x.values, x.zero_point), _centred(w.values, w.zero_point), group, windows, DType.INT32)
    total = _add_bias(total, B)
    scale = _per_channel(x.scale, 1, total.rank) * _per_channel(w.scale, 1, total.rank) / _per_channel(y.scale, 1, total.rank)
    rounded = k.unary("round", k.cast(total, DType.FLOAT) * scale)
    lowest, highest = (0, 255) if y.zero_point.dtype is DType.UINT8 else (-128, 127)
    shifted = rounded + k.cast(_per_channel(y.zero_point, 1, total.rank), DType.FLOAT)
    return k.limited(shifted, lowest, highest, y.zero_point.dtype)


def convolve(x: k.Tensor, w: k.Tensor, group: int, windows: Windows, accumulate: DType | None = None) -> k.Tensor:
    """x [N, C, *S] by w [M, C/group, *K] -> [N, M, *out]: one matrix product [M/group, C/group*K] x [.., out] per group."""
    batch, features, channels = x.shape[0], w.shape[0], w.shape[1]
    spatial = x.rank - 2
    depth = product((channels, *windows.sizes))
    if windows.unpadded and all(s == 1 for s in windows.sizes) and all(s == 1 for s in windows.strides):
        columns = k.reshape(x, (batch, group, channels, product(windows.out)))
    else:
        view = slide(x, windows, 0)
        split = k.reshape(view, (batch, group, channels, *view.shape[2:]))
        perm = (0, 1, 2, *range(3 + spatial, 3 + 2 * spatial), *range(3, 3 + spatial))
        columns = k.reshape(k.transpose(split, perm), (batch, group, depth, product(windows.out)))
    rows = k.reshape(w, (group, floordiv(features, group), depth))
    out = k.dot(rows, columns, accumulate)
    return k.reshape(out, (batch, features, *windows.out))


@op("ConvTranspose", since=(1, 11, 22))
def conv_transpose(
    X: k.Tensor, W: k.Tensor, B: k.Tensor | None = None, *, group: int = 1, output_padding: Ints | None = None,
    output_shape: Ints | None = None, attributes: WindowAttributes,
) -> k.Tensor:  # fmt: skip
    if X.rank < 3 or W.rank != X.rank:
        raise k.DefinitionError(
            f"a transposed convolution needs X [N, C, ...] and W [C, M/group, ...] of equal rank, got {X!r} and {W!r}"
        )
    rank, pads, auto_pad = X.rank - 2, attributes.pads, attributes.auto_pad
    steps, spread = per_axis("strides", attributes.strides, rank), per_axis("dilations", attributes.dilations, rank)
    sizes = _kernel_sizes(W, attributes.kernel_shape)
    check_padding(pads or None, auto_pad, rank)
    extra = tuple(output_padding) if output_padding else (0,) * rank
    if len(extra) != rank or min(extra, default=0) < 0:
        raise k.DefinitionError(f"output_padding is {list(extra)}; expected {rank} values, none negative")
    if output_shape and (len(output_shape) not in (rank, X.rank) or min(output_shape) < 0):
        raise k.DefinitionError(f"output_shape is {list(output_shape)}; expected {rank} values, none negative")
    spans = [(n - 1) * d + 1 for n, d in zip(sizes, spread, strict=True)]
    low, out = _transposed_extents(X.shape[2:], spans, steps, pads, extra, output_shape, auto_pad)
    accumulate = DType.FLOAT if X.dtype in HALF else None
    whole = sizes == steps and all(d == 1 for d in spread) and all(p == 0 for p in low)
    if whole and all(o == n * s for o, n, s in zip(out, X.shape[2:], steps, strict=True)):
        y = _disjoint_blocks(X, W, group, accumulate)
    else:
        zeros = (0,) * rank
        placed = Windows(W.shape[2:], steps, spread, tuple(low), zeros, tuple(out))
        y = _spread_and_convolve(X, W, group, placed, accumulate)
    return k.cast(_add_bias(y, B), X.dtype)


def _transposed_extents(
    extents: Sequence[Dim], spans: Sequence[Dim], strides: Ints, pads: Ints | None, extra: Ints, output_shape: Ints | None,
    auto_pad: str,
) -> tuple[list[Dim], list[Dim]]:  # fmt: skip
    """Per axis, elements cut off before the first output element, and the number of output elements.

    An output without elements is refused, as onnxruntime does, unless `output_shape` wants it.
    """
    rank = len(extents)
    explicit = tuple(pads) if pads else (0,) * (2 * rank)
    wanted = tuple(output_shape)[-rank:] if output_shape else None
    low: list[Dim] = []
    out: list[Dim] = []
    for i, extent in enumerate(extents):
        full = (extent - 1) * strides[i] + extra[i] + spans[i]
        if wanted is None and not auto_pad.startswith("SAME"):
            before, after = (explicit[i], explicit[rank + i]) if auto_pad == "NOTSET" else (0, 0)
            low.append(before)
            out.append(full - before - after)
            k.require_least(out[-1], 1, f"the output's extent along spatial axis {i}")
            continue
        size: Dim = extent * strides[i] if wanted is None else int(wanted[i])
        total = full - size
        half = floordiv(dim_max(total, 0), 2)
        low.append(half if auto_pad == "SAME_UPPER" else dim_max(total, 0) - half)
        out.append(size)
        k.require_least(size, 0 if wanted is not None else 1, f"the output's extent along spatial axis {i}")
    return low, out


def _disjoint_blocks(x: k.Tensor, w: k.Tensor, group: int, accumulate: DType | None) -> k.Tensor:
    """Kernel and stride are equal: every input element writes a block of its own."""
    batch, spatial = x.shape[0], x.rank - 2
    channels, features, sizes = floordiv(w.shape[0], group), w.shape[1], w.shape[2:]
    rows = k.transpose(k.reshape(w, (group, channels, product(w.shape[1:]))), (0, 2, 1))
    columns = k.reshape(x, (batch, group, channels, product(x.shape[2:])))
    blocks = k.reshape(k.dot(rows, columns, accumulate), (batch, features * group, *sizes, *x.shape[2:]))
    perm = [0, 1]
    for i in range(spatial):
        perm += [2 + spatial + i, 2 + i]
    return k.reshape(
        k.transpose(blocks, perm), (batch, features * group, *(n * s for n, s in zip(x.shape[2:], sizes, strict=True)))
    )


def _spread_and_convolve(x: k.Tensor, w: k.Tensor, group: int, windows: Windows, accumulate: DType | None) -> k.Tensor:
    """The gradient of a convolution: zeros between the input's elements, then a convolution with the mirrored kernel.

    `windows`: of the convolution whose gradient it is; `low` is cut off the result, whose sizes are `out`.
    """
    strides, spans, out = windows.strides, windows.spans, windows.out
    for i, stride in enumerate(strides):
        x = _insert_zeros(x, 2 + i, stride)
    start = [span - 1 - cut for span, cut in zip(spans, windows.low, strict=True)]
    cover = [o + span - 1 for o, span in zip(out, spans, strict=True)]
    x = _place(x, start, cover)
    channels, features = floordiv(w.shape[0], group), w.shape[1]
    mirrored = k.strided_slice(w, (0, 0, *(n - 1 for n in w.shape[2:])), (1, 1, *(-1 for _ in strides)), w.shape)
    split = k.reshape(mirrored, (group, channels, features, *w.shape[2:]))
    swapped = k.reshape(k.transpose(split, (0, 2, 1, *range(3, split.rank))), (group * features, channels, *w.shape[2:]))
    zeros, ones = (0,) * len(strides), (1,) * len(strides)
    return convolve(x, swapped, group, Windows(w.shape[2:], ones, windows.dilations, zeros, zeros, out), accumulate)


def _insert_zeros(x: k.Tensor, axis: int, stride: int) -> k.Tensor:
    """`stride` - 1 zeros between neighbours on `axis`."""
    if stride == 1:
        return x
    high = [0] * (x.rank + 1)
    high[axis + 1] = stride - 1
    spaced = k.pad(k.expand_dims(x, [axis + 1]), [0] * (x.rank + 1), high, 0)
    shape = list(x.shape)
    shape[axis] = x.shape[axis] * stride
    wide = k.reshape(spaced, shape)
    shape[axis] = x.shape[axis] * stride - (stride - 1)
    return k.strided_slice(wide, [0] * x.rank, [1] * x.rank, shape)


def _place(x: k.Tensor, start: Sequence[Dim], cover: Sequence[Dim]) -> k.Tensor:
    """Spatial axes of sizes `cover`, with x's first element at `start` (negative: cut off), zeros elsewhere."""
    low = [dim_max(s, 0) for s in start]
    high = [dim_max(c - s - n, 0) for c, s, n in zip(cover, start, x.shape[2:], strict=True)]
    x = k.pad(x, (0, 0, *low), (0, 0, *high), 0)
    begin = [dim_max(-s, 0) for s in start]
    return k.strided_slice(x, (0, 0, *begin), (1,) * x.rank, (*x.shape[:2], *cover))


def _conv_windows(x: k.Tensor, w: k.Tensor, group: int, attributes: WindowAttributes) -> Windows:
    if x.rank < 3 or w.rank != x.rank:
        raise k.DefinitionError(f"a convolution needs X [N, C, ...] and W [M, C/group, ...] of equal rank, got {x!r} and {w!r}")
    channels, each = x.shape[1], w.shape[1]
    k.require_equal(channels, each * group, f"X has {channels} channels; W and group = {group} need {each * group}")
    return place_windows(x.shape[2:], _kernel_sizes(w, attributes.kernel_shape), attributes)


def _kernel_sizes(w: k.Tensor, kernel_shape: Ints | None) -> tuple[Dim, ...]:
    sizes = w.shape[2:]
    for axis, (size, wanted) in enumerate(zip(sizes, kernel_shape or (), strict=False)):
        k.require_equal(
            size, wanted, f"kernel_shape {list(kernel_shape or ())} differs from the weights' {list(sizes)} on axis {axis}"
        )
    return tuple(int(n) for n in kernel_shape) if kernel_shape else sizes


def _centred(x: k.Tensor, zero_point: k.Tensor | None) -> k.Tensor:
    """x minus its zero point (one, or one per entry of axis 0), as int32."""
    wide = k.cast(x, DType.INT32)
    return wide if zero_point is None else wide - k.cast(_per_channel(zero_point, 0, x.rank), DType.INT32)


def _per_channel(x: k.Tensor, axis: int, rank: int) -> k.Tensor:
    """A scalar or vector laid along `axis` of a tensor of `rank`."""
    return x if x.rank == 0 else k.reshape(x, [x.shape[0] if i == axis else 1 for i in range(rank)])


def _add_bias(y: k.Tensor, bias: k.Tensor | None) -> k.Tensor:
    return y if bias is None else y + k.cast(_per_channel(bias, 1, y.rank), y.dtype)


@op("CausalConvWithState", since=27)
def causal_conv_with_state(
    input: k.Tensor, weight: k.Tensor, bias: k.Tensor | None = None, past_state: k.Tensor | None = None, *,
    activation: str = "none",
) -> tuple[k.Tensor, k.Tensor]:  # fmt: skip
    if activation not in ("none", "silu", "swish"):
        raise k.DefinitionError(f"activation is {activation!r}; expected none, silu or swish")
    batch, channels, length = input.shape
    carry = weight.shape[2] - 1
    past = past_state if past_state is not None else k.full((batch, channels, carry), 0, input.dtype)
    whole = k.concat([past, input], 2)
    view = widened(k.windows(whole, [2], [weight.shape[2]], [1], [1]))
    out = k.reduce_sum(view * k.reshape(widened(weight), (1, channels, 1, weight.shape[2])), [3])
    out = _add_bias(k.reshape(out, (batch, channels, length)), bias)
    if activation != "none":
        out = out * k.sigmoid(out)
    return k.cast(out, input.dtype), k.strided_slice(whole, (0, 0, length), (1, 1, 1), (batch, channels, carry))


@op("Col2Im", since=18, values=("image_shape", "block_shape"))
def col2im(
    input: k.Tensor, image_shape: Sequence[Dim], block_shape: Sequence[Dim], *, dilations: Ints | None = None,
    pads: Ints | None = None, strides: Ints | None = None,
) -> k.Tensor:  # fmt: skip
    image, block = list(image_shape), known_sizes("block_shape", block_shape)
    windows = place_windows(image, block, WindowAttributes(strides=strides, pads=pads, dilations=dilations))
    rank, area = len(image), math.prod(block)
    k.require_multiple(input.shape[1], area, f"axis 1 of input, which holds blocks of {area} elements")
    batch, channels = input.shape[0], floordiv(input.shape[1], area)
    padded = [n + a + b for n, a, b in zip(image, windows.low, windows.high, strict=True)]
    k.require_equal(input.shape[2], product(windows.out), "axis 2 of input, which holds the blocks of the image")
    shape = (batch, channels, *block, *windows.out)
    blocks = k.reshape(input, shape)
    where = [k.iota(shape, 0), k.iota(shape, 1)]
    for i, (stride, dilation) in enumerate(zip(windows.strides, windows.dilations, strict=True)):
        where += [k.iota(shape, 2 + rank + i) * stride + k.iota(shape, 2 + i) * dilation]
    zeros = k.full((batch, channels, *padded), 0, input.dtype)
    total = k.scatter(zeros, where, blocks, "add")
    return k.strided_slice(total, (0, 0, *windows.low), (1,) * (rank + 2), (batch, channels, *image))


def known_sizes(name: str, values: Sequence[Dim]) -> list[int]:
    """Elements of an input that have to be numbers, not names of sizes."""
    if not all(isinstance(v, int) for v in values):
        raise k.SymbolicValueError(f"its input {name!r} has to be known, got {list(values)}")
    return list(numbers_of(values))
