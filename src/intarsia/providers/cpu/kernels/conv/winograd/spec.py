"""3 x 3 and d x 3 x 3 convolutions of stride 1, dilated or not, by Winograd's minimal filtering, channels-last: F(4x4, 3x3)
and F(2x2, 3x3).

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015): with m x m outputs computed at once from an
(m + 2) x (m + 2) input tile d and the filter g,

    Y = At [ (G g Gt) * (Bt d B) ] A        (* element by element, summed over input channels; `winograd_transforms`)

so a convolution is (m + 2)^2 matrix products of [tiles, C] by [C, M]: 36 for 16 outputs (m = 4) instead of 144
multiplications, 16 for 4 (m = 2) instead of 36.

A thread takes blocks of tiles: transforms their input (borders are read as zero, nothing is copied), multiplies by all
matrices, transforms back and applies the epilogue. Where there are fewer blocks than threads, threads share a block's
output channels. The share of an expected thread is not cut further, even if the kernel is called in smaller shares: each
would transform its block's input.

With three axes (kernel d x 3 x 3) the planes of a window are more input channels of a convolution of one output plane, zero
outside the image.

A convolution with dilation d is d x d convolutions without, each of every d-th pixel in both directions (its *phase*): these
are more tiles of the same product.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from intarsia.codegen.llvm.target import L2_NBYTES, Target
from intarsia.codegen.winograd_transforms import OUTPUTS, filter_matrix
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Argument
from intarsia.providers.cpu.kernels.common import pieces
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros, pack_matrix, packed_nbytes
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import blocked_tile
from intarsia.providers.cpu.kernels.conv.pointwise_kernel import row_blocks
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape, WindowOperands
from intarsia.providers.cpu.kernels.conv.winograd.cost_model import one_group, phase_tiles, planar, rates, tile_count
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import Threads

FIELDS = (
    "micro x weights y taps batch height width channels pad_h pad_w out_height out_width filters down across block panels "
    "dilation_h dilation_w grain units per rest steps "
    "x_pixel x_line x_image y_pixel y_line y_image scratch scratch_nbytes row_nbytes plane_nbytes sums_nbytes "
    "weight_plane_nbytes depth kernel_planes plane_step pad_plane plane_dilation x_plane out_planes channels_nbytes k "
    "claims tail piece number groups x_group y_group weights_group"
).split()


@dataclass(frozen=True)
class WinogradSpec:
    """`outputs` (m) is 4 or 2; epilogue operands "column", "full" or "scalar"; `tile`: see `winograd_tile`. dtype FLOAT; or
    INT32, sums of bytes of `x_dtype` (`int8`). `pairs`: products are of bfloat16 (`bfloat16`)."""

    outputs: int = 4
    epilogue: Epilogue | None = None
    dtype: DType = DType.FLOAT
    tile: Tile | None = None
    x_dtype: DType = DType.FLOAT
    pairs: bool = False

    def __post_init__(self) -> None:
        if self.outputs not in OUTPUTS:
            raise ValueError(f"outputs of a Winograd tile are 2 or 4; got {self.outputs}")
        if self.epilogue and "row" in self.epilogue.kinds:
            raise ValueError("a convolution's epilogue takes operands of kind column, full or scalar; got 'row'")

    @property
    def side(self) -> int:
        """Pixels along an input tile."""
        return self.outputs + 2

    def depth(self, channels: int) -> int:
        """Elements of a row of channels, as the products count them: words of two channels, or numbers."""
        return -(-channels // 2) if self.dtype is DType.INT32 or self.pairs else channels


def winograd_tile(spec: WinogradSpec, target: Target) -> Tile:
    """The register tile of the products, by `blocked_k_microkernel.stepped_micro_text`: the spec's, or one that suits many
    filters."""
    return spec.tile or blocked_tile(1 << 10, None, spec.dtype, target)


def pack_weights(weights: np.ndarray, spec: WinogradSpec, tile: Tile, group: int = 1) -> np.ndarray:
    """ONNX weights [M, C / group, (d,) 3, 3] transformed (in float64) and packed: [group, side * side, packed [d * C, M]] of
    each group's channels and filters."""
    if weights.ndim == 5:
        weights = np.moveaxis(weights, 2, 1).reshape(len(weights), -1, 3, 3)
    filters, channels = len(weights) // group, weights.shape[1]
    both = filter_matrix(spec.outputs)
    out = aligned_zeros((group, spec.side**2, packed_nbytes(channels, filters, tile) // tile.itemsize), weights.dtype)
    for packed, part in zip(out, weights.reshape(group, filters * channels, 9), strict=True):
        flat = part.astype(np.float64)
        for i in range(0, spec.side**2, spec.side):  # a line of matrices: all of them in float64 are twice as large as packed
            line = slice(i, i + spec.side)
            transformed = (both[line] @ flat.T).astype(weights.dtype).reshape(spec.side, filters, channels)
            packed[line] = pack_matrix(transformed.transpose(0, 2, 1), tile)
    return out


@dataclass(frozen=True)
class _Layout:
    """Layout of a thread's scratch memory: rows of one tile's channels, planes of one matrix, the products behind them."""

    down: int
    across: int
    block: int
    row_nbytes: int
    plane_nbytes: int
    sums_nbytes: int
    nbytes: int


_L2_NBYTES = L2_NBYTES
_SCRATCH_NBYTES = 24 << 20
# Measured on cores with 1 MiB of second-level cache, which read the third level at 95 GB/s; in second-level caches:
_NEAR_WEIGHTS = 10  # weights up to so many are read from the third level for every block,
_NEAR_SCRATCH = 1.5  # whose transforms and sums are so many,
_MANY_BLOCKS = 4  # where there are so many blocks: the first reads them from memory
_MANY_GROUPS = 8  # for each thread, of which one more or less does not matter
_FAR_SCRATCH = 8  # as many transforms and sums are made at once of weights that are read from memory


@functools.lru_cache(maxsize=1024)
def _layout(spec: WinogradSpec, target: Target, shape: ConvShape, nthreads: int) -> _Layout:
    if shape.group > 1:
        return _layout(spec, target, one_group(shape), _sharers(shape.group, nthreads))
    tile, shape = winograd_tile(spec, target), planar(shape)
    down, across = phase_tiles(shape, spec.outputs)
    tiles = tile_count(shape, spec.outputs)
    matrices = spec.side**2
    depth = spec.depth(shape.channels)
    row = _odd_lines(depth * tile.itemsize)
    out_row = -(-shape.filters // tile.width) * tile.width * tile.itemsize
    weights_nbytes = matrices * depth * out_row
    per_tile = matrices * (row + out_row)
    near = int(_NEAR_SCRATCH * target.l2_nbytes) // per_tile
    if weights_nbytes <= _L2_NBYTES // 2:
        # The weights stay in the second-level cache; a block's transforms should too.
        most = (_L2_NBYTES - weights_nbytes) // 2 // per_tile
    elif target.l2_nbytes < _L2_NBYTES and weights_nbytes <= _NEAR_WEIGHTS * target.l2_nbytes and tiles >= _MANY_BLOCKS * near:
        # The weights are in the third-level cache from the second block on, which is fast enough to read them for each.
        most = near
    else:
        # The weights are streamed once for every block: few, large blocks, but a matrix's rows stay in cache.
        large = _SCRATCH_NBYTES if target.l2_nbytes >= _L2_NBYTES else _FAR_SCRATCH * target.l2_nbytes
        most = min(_L2_NBYTES // 4 // row, large // per_tile)
    most = max(tile.rows, most)
    share = -(-tiles // nthreads)
    panels = -(-shape.filters // tile.width)
    rate = rates(target.l2_nbytes)
    again = tiles * -(-shape.channels // tile.lanes) * rate.transform(spec.outputs)  # if all threads transform the input
    streams = weights_nbytes > _L2_NBYTES // 2 and rate.overlap * weights_nbytes / rate.weight_bytes > again
    if share < 2 * tile.rows or streams and (panels % nthreads == 0 or panels >= 4 * nthreads):
        share = tiles
    blocks = -(-tiles // max(1, min(most, share)))
    if nthreads < blocks < 8 * nthreads:
        blocks = -(-blocks // nthreads) * nthreads
    block = max(1, -(-tiles // max(1, blocks)))
    plane, sums = _odd_lines(block * row), _odd_lines(block * out_row)
    return _Layout(down, across, block, row, plane, sums, matrices * (plane + sums))


def _sharers(groups: int, nthreads: int) -> int:
    """How many threads share a group's tiles: so many that all have as much to do, where whole groups do not even it out."""
    return 1 if groups >= _MANY_GROUPS * nthreads else nthreads // math.gcd(groups, nthreads)


def _odd_lines(nbytes: int) -> int:
    """At least `nbytes`, an odd number of cache lines: neighbours then fall into different sets."""
    lines = -(-nbytes // 64)
    return 64 * (lines | 1)


def scratch_nbytes(spec: WinogradSpec, target: Target, shape: ConvShape, nthreads: int) -> int:
    """Bytes of scratch for every thread, 64-byte aligned, where the kernel is planned for `nthreads` threads."""
    return _layout(spec, target, shape, nthreads).nbytes


def winograd_args(
    spec: WinogradSpec, target: Target, shape: ConvShape, data: WindowOperands, threads: Threads
) -> list[Argument]:
    """The kernel's arguments for the input without border; the taps are `pointwise_kernel.row_taps`, the scratch memory is of
    `scratch_nbytes` bytes for every thread, and the epilogue's operands are as `conv.conv_operand` gives them."""
    tile, nthreads = winograd_tile(spec, target), threads.number
    layout, groups = _layout(spec, target, shape, nthreads), shape.group
    whole, shape = shape, one_group(shape)
    solid, shape = shape.as_3d(), planar(shape)
    (height, width), (out_height, out_width) = shape.spatial, shape.output
    out_size = itemsize(spec.epilogue.dtype) if spec.epilogue else tile.itemsize
    depth, x_size = spec.depth(shape.channels), itemsize(spec.x_dtype)
    x_pixel = data.x_pixel_nbytes or whole.channels * x_size
    y_pixel = data.y_pixel_nbytes or whole.filters * out_size
    padded_filters, panels = -(-shape.filters // tile.lanes) * tile.lanes, -(-shape.filters // tile.width)
    blocks = groups * -(-tile_count(shape, spec.outputs) // layout.block)
    grain = panels if blocks >= nthreads else max(1, -(-blocks * panels // nthreads))
    products = spec.side**2 * layout.block * depth * padded_filters
    tail = pieces.tail(blocks, products, nthreads if threads.claims else 1, least=1) if blocks >= nthreads else (0, 1)
    plane = depth * padded_filters * tile.itemsize
    args = [
        data.micro, data.x, data.weights, data.y, data.taps, shape.batch, height, width, solid.channels, *shape.pads[:2],
        out_height, out_width,
        shape.filters, layout.down, layout.across, layout.block, panels, *shape.dilations, grain, *row_blocks(depth, target),
        x_pixel, x_pixel * width, x_pixel * width * height * solid.spatial[0], y_pixel, y_pixel * out_width,
        y_pixel * out_width * out_height, threads.scratch, layout.nbytes, layout.row_nbytes, layout.plane_nbytes,
        layout.sums_nbytes, plane, solid.spatial[0], solid.kernel[0], solid.strides[0], solid.pads[0],
        solid.dilations[0], x_pixel * width * height, solid.output[0], solid.channels * x_size, depth,
        threads.claims, *tail, data.number, groups, solid.channels * x_size, shape.filters * out_size, spec.side**2 * plane,
    ]  # fmt: skip
    for operand in data.operands:
        args.extend(operand)
    return args
