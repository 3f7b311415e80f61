"""Convolutions as products with displaced rows (`implicit_gemm`): their sizes, packed weights, and the kernel's arguments."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.graph.trace import most
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.argument_tables import Spread, Table
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.panels import pack_matrix, packed_nbytes
from intarsia.providers.cpu.kernels.common.tiles import Tile, tile_of
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import (
    ONE_THREAD,
    GemmSpec,
    Operand,
    Threads,
    factor_nbytes,
    general_args,
    scratch_nbytes,
)
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS, last_group


@dataclass(frozen=True)
class ConvShape:
    """One convolution's sizes; all spatial tuples have the same length, 1 to 3, and `pads` twice that (all begins first)."""

    batch: int
    spatial: tuple[int, ...]
    channels: int
    filters: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    group: int = 1

    @cached_property
    def padded(self) -> tuple[int, ...]:
        """Spatial sizes of the input with its border."""
        rank = len(self.spatial)
        return tuple(s + self.pads[i] + self.pads[rank + i] for i, s in enumerate(self.spatial))

    @cached_property
    def output(self) -> tuple[int, ...]:
        """Spatial sizes of the output."""
        sizes = zip(self.padded, self.kernel, self.strides, self.dilations, strict=True)
        return tuple((p - (k - 1) * d - 1) // s + 1 for p, k, s, d in sizes)

    @property
    def needs_border(self) -> bool:
        return any(self.pads)

    @property
    def is_pointwise(self) -> bool:
        """A plain matrix product: every pixel by itself."""
        return math.prod(self.kernel) == 1 and all(s == 1 for s in self.strides) and not self.needs_border

    def as_3d(self) -> ConvShape:
        """The same convolution over (D, H, W), with leading axes of size 1."""
        return self._in_3d

    @cached_property
    def _in_3d(self) -> ConvShape:
        more = 3 - len(self.spatial)
        ones, zeros = (1,) * more, (0,) * more
        rank = len(self.spatial)
        pads = (*zeros, *self.pads[:rank], *zeros, *self.pads[rank:])
        return ConvShape(
            self.batch, (*ones, *self.spatial), self.channels, self.filters, (*ones, *self.kernel), (*ones, *self.strides),
            (*ones, *self.dilations), pads, self.group,
        )  # fmt: skip


def merged_groups(filters: int, group: int, tile: Tile) -> int:
    """How many neighbouring groups are computed as one: the most whose filters fit in a vector."""
    each = filters // group
    return max(g for g in range(1, group + 1) if group % g == 0 and (g == 1 or g * each <= tile.lanes))


def pack_weights(weights: np.ndarray, group: int, tile: Tile) -> np.ndarray:
    """Pack ONNX weights [M, C / group, *kernel] as panels, [groups after merging, numbers of one group]."""
    filters, depth = weights.shape[:2]
    merge = merged_groups(filters, group, tile)
    each, groups, count = filters // group, group // merge, math.prod(weights.shape[2:])
    dense = dense_groups(weights, group, merge)
    return pack_matrix(dense.reshape(groups, count * merge * depth, merge * each), tile)


def dense_groups(weights: np.ndarray, group: int, merge: int) -> np.ndarray:
    """Weights as [groups, kernel, part, channel, part, filter], where `merge` groups are the parts of one."""
    filters, depth = weights.shape[:2]
    each, groups, count = filters // group, group // merge, math.prod(weights.shape[2:])
    w = np.moveaxis(weights.reshape(groups, merge, each, depth, count), -1, 2)  # group, part, kernel, filter, channel
    w = w.transpose(0, 2, 1, 4, 3)  # group, kernel, part, channel, filter
    if merge == 1:
        return w[..., None, :]
    dense = np.zeros((groups, count, merge, depth, merge, each), weights.dtype)
    for part in range(merge):
        dense[:, :, part, :, part] = w[:, :, part]
    return dense


def _long_rows(shape: ConvShape, groups: int) -> bool:
    return groups == 1 and shape.dilations[-1] == 1


def displacements(
    shape: ConvShape, dtype: DType, target: Target, x_pixel_nbytes: int | None = None, parts: int = 1, in_words: bool = False
) -> Table:  # fmt: skip
    """The taps: int64 bytes from a window's first pixel to every row of it that is summed as one, in the weights' order.

    Sums of products of bytes (`dtype` INT32) may have weights in several `parts` that are added, and want the length of a row's
    last group behind the taps; `in_words`: bytes were widened to 16 bits, and want nothing.
    """
    s = shape.as_3d()
    tile, size = tile_of(dtype, target), 2 if in_words else factor_nbytes(dtype)
    groups = s.group // merged_groups(s.filters, s.group, tile)
    pixel = x_pixel_nbytes or s.channels * size
    _, height, width = s.padded
    whole = _long_rows(s, groups) and pixel == s.channels * size
    kd, kh, kw = s.kernel
    along = (1 if whole else kw, s.dilations[2] * pixel)
    line = width * pixel
    taps = Spread(0, ((parts, 0), (kd, s.dilations[0] * height * line), (kh, s.dilations[1] * line), along))
    behind = last_group(s.channels // groups * (kw if whole else 1)) if dtype is SUMS else 0
    return Table((taps, Spread(behind, ())) if dtype is SUMS and not in_words else (taps,))


class WindowOperands(NamedTuple):
    """What a kernel that slides windows over images [N, spatial..., C] reads and writes, as addresses.

    Attributes:
        x, y: input and output; `x_pixel_nbytes`, `y_pixel_nbytes`: bytes between pixels where these are slices of channels of
            wider images.
        weights: the packed filters.
        operands: those of the epilogue.
        micro: the micro-kernel, if it calls one.
        taps: one int64 0, or the table that stands for the address of its displacements.
        number: the zero point of bytes.
    """

    x: Address
    y: Address
    weights: Address = 0
    operands: Sequence[Operand] = ()
    x_pixel_nbytes: int | None = None
    y_pixel_nbytes: int | None = None
    micro: Address = 0
    taps: Address | Table = 0
    number: Address = 0


def conv_args(
    spec: GemmSpec, target: Target, shape: ConvShape, data: WindowOperands, threads: Threads = ONE_THREAD, *, parts: int = 1,
    panel_nbytes: int = 0,
) -> list[Argument]:  # fmt: skip
    """The arguments of the product's kernel for a convolution.

    `data.x` is the input with its border (the input itself if it needs none), the weights `pack_weights`' result, the taps are
    what `displacements` gave; `parts` is what that was given. For the epilogue's operands see `conv_operand`.
    """
    taps = data.taps
    assert isinstance(taps, Table)
    s = shape.as_3d()
    tile, size = tile_of(spec.dtype, target), spec.a_itemsize
    merge = merged_groups(s.filters, s.group, tile)
    groups = s.group // merge
    each, depth = s.filters // groups, s.channels // groups
    out_size = itemsize(spec.epilogue.dtype) if spec.epilogue else tile.itemsize
    x_pixel = data.x_pixel_nbytes or s.channels * size
    y_pixel = data.y_pixel_nbytes or s.filters * out_size
    planes, height, width = s.padded
    out_planes, out_height, out_width = s.output
    ntaps = taps.length - (spec.dtype is SUMS and not spec.in_words)
    row = depth * math.prod(s.kernel) * parts // ntaps
    packed = packed_nbytes(spec.steps(row) * ntaps, each, tile) * spec.b_itemsize // tile.itemsize
    call = functools.partial(
        general_args, spec, target, micro=data.micro, a=data.x, b=data.weights, ldb=0, c=data.y, ldc=y_pixel, n=each,
        taps=taps, ntaps=ntaps, k=row, operands=data.operands, b_batch=(0, packed), claims=threads.claims,
        threads=threads.number, scratch=threads.scratch, panel_nbytes=panel_nbytes,
    )  # fmt: skip
    a_group, c_group = depth * size, each * out_size
    if s.is_pointwise:
        pixels = s.batch * math.prod(s.output)
        return call(lda=x_pixel, m=pixels, batch=(1, groups), a_batch=(0, a_group), c_batch=(0, c_group))
    x_line, x_plane, x_image = (x_pixel * n for n in (width, width * height, width * height * planes))
    y_line, y_plane, y_image = (y_pixel * n for n in (out_width, out_width * out_height, out_width * out_height * out_planes))
    if out_planes == 1:
        images, batch, a_batch, c_batch = s.batch, 1, 0, 0
        a_outer, c_outer = (x_line * s.strides[1], x_image), (y_line, y_image)
    else:
        images, batch, a_batch, c_batch = out_planes, s.batch, x_image, y_image
        a_outer, c_outer = (x_line * s.strides[1], x_plane * s.strides[0]), (y_line, y_plane)
    return call(
        lda=x_pixel * s.strides[2], m=out_width, lines=out_height, images=images, batch=(batch, groups), a_outer=a_outer,
        c_outer=c_outer, a_batch=(a_batch, a_group), c_batch=(c_batch, c_group), a_nbytes=x_image * s.batch // most(1, batch),
    )  # fmt: skip


def rows(shape: ConvShape) -> int:
    """Rows of one batch of the product, as `conv_args` makes batches."""
    s = shape.as_3d()
    return math.prod(s.output) * (s.batch if s.is_pointwise or s.output[0] == 1 else 1)


def panel_nbytes(spec: GemmSpec, target: Target, shape: ConvShape, parts: int = 1) -> int:
    """Bytes of scratch a thread needs to widen a panel of the weights."""
    s = shape.as_3d()
    groups = s.group // merged_groups(s.filters, s.group, tile_of(spec.dtype, target))
    taps = parts * math.prod(s.kernel) // (s.kernel[2] if _long_rows(s, groups) else 1)
    row = s.channels // groups * math.prod(s.kernel) * parts // taps
    return scratch_nbytes(spec, target, spec.steps(row) * taps)


def conv_operand(
    kind: str, dtype: DType, address: Address, shape: ConvShape, target: Target, compute: DType = DType.FLOAT
) -> Operand:
    """An epilogue operand of a convolution: "column" [M], "full" [N, ..., M] dense, "row" [N, ...] dense (of one group), or
    "scalar"."""
    size = itemsize(dtype)
    s = shape.as_3d()
    each = s.filters // s.group * merged_groups(s.filters, s.group, tile_of(compute, target)) * size
    if kind == "scalar":
        return Operand(address)
    if kind == "column":
        return Operand(address, batch1=each)
    if kind not in ("full", "row"):
        raise ValueError(f"a convolution's epilogue takes operands of kind column, full, row or scalar; got {kind!r}")
    pixel = s.filters * size
    if kind == "row":
        pixel, each = size, 0
    if s.is_pointwise:
        return Operand(address, pixel, batch1=each)
    planes, height, width = s.output
    line, plane, image = (pixel * n for n in (width, width * height, width * height * planes))
    if planes == 1:
        return Operand(address, pixel, line, image, batch1=each)
    return Operand(address, pixel, line, plane, image, each)
