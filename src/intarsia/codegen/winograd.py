"""3 x 3 and d x 3 x 3 convolutions of stride 1, dilated or not, by Winograd's minimal filtering, channels-last: F(4x4, 3x3)
and F(2x2, 3x3).

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015): with m x m outputs computed at once from an
(m + 2) x (m + 2) input tile d and the filter g,

    Y = At [ (G g Gt) * (Bt d B) ] A        (* element by element, summed over input channels; `minimal_filtering`)

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
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from intarsia.codegen import claims as claiming
from intarsia.codegen.blocked import row_blocks
from intarsia.codegen.body import Body, Cell, Module, Value
from intarsia.codegen.conv import ConvShape
from intarsia.codegen.copied import multiplied_share
from intarsia.codegen.engine import KernelText
from intarsia.codegen.epilogue import Epilogue
from intarsia.codegen.finish import Finish, itemsize
from intarsia.codegen.gemm import Operand
from intarsia.codegen.microkernel import PARAMETERS, Tile
from intarsia.codegen.minimal_filtering import OUTPUTS, filter_matrix, of_input, of_sums
from intarsia.codegen.pack import pack_matrix
from intarsia.codegen.stepped import STEPS, blocked_tile
from intarsia.codegen.target import L2_NBYTES, Target
from intarsia.graph.dtypes import DType
from intarsia.kernel.lang import walk
from intarsia.records import dataclass

_LIGHT = 8  # primitives of an epilogue that is unrolled for all outputs of a tile
_FIELDS = (
    "micro x weights y taps batch height width channels pad_h pad_w out_height out_width filters down across block panels "
    "dilation_h dilation_w grain units per rest steps "
    "x_pixel x_line x_image y_pixel y_line y_image scratch scratch_nbytes row_nbytes plane_nbytes sums_nbytes "
    "weight_plane_nbytes depth kernel_planes plane_step pad_plane plane_dilation x_plane out_planes channels_nbytes k "
    "claims tail piece"
).split()
_OPERAND_FIELDS = 6
_PLANE_LANES = 16  # channels of a plane come in multiples of it where windows have several


@dataclass(frozen=True)
class WinogradSpec:
    """`outputs` (m) is 4 or 2; dtype FLOAT; epilogue operands "column", "full" or "scalar"; `tile`: see `winograd_tile`."""

    outputs: int = 4
    epilogue: Epilogue | None = None
    dtype: DType = DType.FLOAT
    tile: Tile | None = None

    def __post_init__(self) -> None:
        if self.outputs not in OUTPUTS:
            raise ValueError(f"outputs of a Winograd tile are 2 or 4; got {self.outputs}")
        if self.epilogue and "row" in self.epilogue.kinds:
            raise ValueError("a convolution's epilogue takes operands of kind column, full or scalar; got 'row'")

    @property
    def side(self) -> int:
        """Pixels along an input tile."""
        return self.outputs + 2


def winograd_tile(spec: WinogradSpec, target: Target) -> Tile:
    """The register tile of the products, by `stepped.stepped_micro_text`: the spec's, or one that suits many filters."""
    return spec.tile or blocked_tile(1 << 10, None, spec.dtype, target)


def is_applicable(shape: ConvShape) -> bool:
    """Whether the convolution is 3 x 3 with stride 1 and one group, or so in each plane, with whole vectors of channels."""
    if shape.kernel[-2:] != (3, 3) or shape.strides[-2:] != (1, 1) or shape.group != 1:
        return False
    return len(shape.kernel) == 2 or shape.channels % _PLANE_LANES == 0


def _planar(shape: ConvShape) -> ConvShape:
    """The same convolution by planes of the output: those are images, and the planes of a window channels."""
    if len(shape.kernel) == 2:
        return shape
    return ConvShape(
        shape.batch * shape.output[0], shape.spatial[1:], shape.kernel[0] * shape.channels, shape.filters, shape.kernel[1:],
        shape.strides[1:], shape.dilations[1:], (*shape.pads[1:3], *shape.pads[4:]),
    )  # fmt: skip


def _tiles(shape: ConvShape, outputs: int) -> tuple[int, int]:
    """Rows and columns of tiles of one phase."""
    down, across = (-(-n // (d * outputs)) for n, d in zip(shape.output, shape.dilations, strict=True))
    return down, across


def _tile_count(shape: ConvShape, outputs: int) -> int:
    return shape.batch * math.prod(shape.dilations) * math.prod(_tiles(shape, outputs))


@dataclass(frozen=True)
class Rates:
    """What a core does in how much time, of which only the ratios decide.

    Attributes:
        flops: of the micro-kernel, in a second.
        weight_bytes: that stream in a second from the third-level cache or from memory.
        transform_seconds: of one vector of channels of one tile, in or out, by the tile's outputs.
        overlap: of the shorter of computing and streaming weights that the longer does not hide.
        call_steps: what a call of the micro-kernel costs, in steps along k.
        masked: how many times a vector's time one takes whose lanes are not all channels.
        worth: the part of direct sums' time that is worth Winograd's larger weights.
    """

    flops: float
    weight_bytes: float
    transform_seconds: tuple[tuple[int, float], ...]
    overlap: float
    call_steps: int
    masked: int = 1
    worth: float = 1.0

    def transform(self, outputs: int) -> float:
        return dict(self.transform_seconds)[outputs]

    def vectors(self, channels: int, lanes: int) -> int:
        """Vectors of a pixel, in the time of whole ones."""
        return channels // lanes + (self.masked if channels % lanes else 0)


# Measured on Intel's Sapphire Rapids (3 GHz, 2 MiB of second-level cache for a core), and on AMD's Zen 4 (1 MiB).
_LARGE_L2 = Rates(165e9, 11.5e9, ((2, 25e-9), (4, 100e-9)), 0.35, 12)
_SMALL_L2 = Rates(117e9, 11.5e9, ((2, 15e-9), (4, 40e-9)), 0.5, 6, 4, 0.9)
_BORDER_BYTES_PER_SECOND = 20e9


def rates(l2_nbytes: int) -> Rates:
    """Those of the measured core whose second-level cache is the most like this."""
    return _LARGE_L2 if l2_nbytes >= L2_NBYTES else _SMALL_L2


def estimated_seconds(shape: ConvShape, outputs: int | None, lanes: int = 16, l2_nbytes: int = L2_NBYTES) -> float:
    """Model of the time a 3 x 3 convolution takes on one core: Winograd with `outputs`, or direct (None)."""
    share, rate = multiplied_share(shape) if outputs is None else 1.0, rates(l2_nbytes)
    shape = _planar(shape)
    height, width = shape.output
    channels, filters = shape.channels, shape.filters
    if outputs is None:
        sums, depth, weights = shape.batch * height * width, 9 * channels, 9 * channels * filters
        transform = 8 * shape.batch * channels * height * width / _BORDER_BYTES_PER_SECOND
    else:
        tiles = _tile_count(shape, outputs)
        matrices = (outputs + 2) ** 2
        sums, depth, weights = matrices * tiles, channels, matrices * channels * filters
        transform = tiles * (rate.vectors(channels, lanes) + rate.vectors(filters, lanes)) * rate.transform(outputs)
    compute = 2 * sums * (depth * share + rate.call_steps) * filters / rate.flops
    stream = 4 * weights / rate.weight_bytes
    return max(compute, stream) + rate.overlap * min(compute, stream) + transform


def prefers_winograd(shape: ConvShape, lanes: int = 16, l2_nbytes: int = L2_NBYTES) -> int | None:
    """The outputs (4 or 2) of the Winograd variant that is estimated to be fastest, or None for direct convolution.

    Args:
        lanes: float32 numbers of a vector.
        l2_nbytes: of a core's second-level cache.
    """
    if not is_applicable(shape):
        return None
    seconds = {outputs: estimated_seconds(shape, outputs, lanes, l2_nbytes) for outputs in (None, *OUTPUTS)}
    seconds[None] *= rates(l2_nbytes).worth
    return min(seconds, key=seconds.__getitem__)


def pack_weights(weights: np.ndarray, spec: WinogradSpec, tile: Tile) -> np.ndarray:
    """ONNX weights [M, C, (d,) 3, 3] transformed (in float64) and packed: [side * side, packed [d * C, M]]."""
    if weights.ndim == 5:
        weights = np.moveaxis(weights, 2, 1).reshape(len(weights), -1, 3, 3)
    filters, channels = weights.shape[:2]
    both = filter_matrix(spec.outputs)
    flat = weights.reshape(filters * channels, 9).astype(np.float64)
    transformed = (both @ flat.T).astype(weights.dtype).reshape(spec.side**2, filters, channels)
    return pack_matrix(transformed.transpose(0, 2, 1), tile)


@dataclass(frozen=True)
class _Layout:
    """How a thread's scratch is cut: rows of one tile's channels, planes of one matrix, the products behind them."""

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
_NEAR_WEIGHTS = 4  # weights up to so many are read from the third level for every block,
_NEAR_SCRATCH = 1.5  # whose transforms and sums are so many,
_MANY_BLOCKS = 4  # where there are so many blocks: the first reads them from memory


@functools.lru_cache(maxsize=1024)
def _layout(spec: WinogradSpec, target: Target, shape: ConvShape, nthreads: int) -> _Layout:
    tile, shape = winograd_tile(spec, target), _planar(shape)
    down, across = _tiles(shape, spec.outputs)
    tiles = _tile_count(shape, spec.outputs)
    matrices = spec.side**2
    row = _odd_lines(shape.channels * tile.itemsize)
    out_row = -(-shape.filters // tile.width) * tile.width * tile.itemsize
    weights_nbytes = matrices * shape.channels * out_row
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
        most = min(_L2_NBYTES // 4 // row, _SCRATCH_NBYTES // per_tile)
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


def _odd_lines(nbytes: int) -> int:
    """At least `nbytes`, an odd number of cache lines: neighbours then fall into different sets."""
    lines = -(-nbytes // 64)
    return 64 * (lines | 1)


def scratch_nbytes(spec: WinogradSpec, target: Target, shape: ConvShape, nthreads: int) -> int:
    """Bytes of scratch for every thread, 64-byte aligned, where the kernel is planned for `nthreads` threads."""
    return _layout(spec, target, shape, nthreads).nbytes


def winograd_args(
    spec: WinogradSpec,
    target: Target,
    shape: ConvShape,
    *,
    micro: int,
    x: int,
    weights: int,
    y: int,
    taps: int,
    scratch: int,
    nthreads: int,
    claims: int = 0,
    operands: Sequence[Operand] = (),
    x_pixel_nbytes: int | None = None,
    y_pixel_nbytes: int | None = None,
) -> list[int]:
    """The kernel's arguments. `x`: the input without border; `taps`: the address of `blocked.row_taps`; `scratch`: that of
    `scratch_nbytes` bytes for every thread; `nthreads`: how many are expected (more or fewer are right, too); `claims`: the
    address of an int64 0 for this call alone, which is 0 again at its end, for several threads.

    Operands are as `conv.conv_operand` gives them.
    """
    tile = winograd_tile(spec, target)
    layout = _layout(spec, target, shape, nthreads)
    solid, shape = shape.as_3d(), _planar(shape)
    (height, width), (out_height, out_width) = shape.spatial, shape.output
    out_size = itemsize(spec.epilogue.dtype) if spec.epilogue else tile.itemsize
    x_pixel, y_pixel = x_pixel_nbytes or solid.channels * tile.itemsize, y_pixel_nbytes or shape.filters * out_size
    padded_filters, panels = -(-shape.filters // tile.lanes) * tile.lanes, -(-shape.filters // tile.width)
    blocks = -(-_tile_count(shape, spec.outputs) // layout.block)
    grain = panels if blocks >= nthreads else max(1, -(-blocks * panels // nthreads))
    products = spec.side**2 * layout.block * shape.channels * padded_filters
    tail = claiming.tail(blocks, products, nthreads if claims else 1, least=1) if blocks >= nthreads else (0, 1)
    args = [
        micro, x, weights, y, taps, shape.batch, height, width, solid.channels, *shape.pads[:2], out_height, out_width,
        shape.filters, layout.down, layout.across, layout.block, panels, *shape.dilations, grain, *row_blocks(shape.channels),
        x_pixel, x_pixel * width, x_pixel * width * height * solid.spatial[0], y_pixel, y_pixel * out_width,
        y_pixel * out_width * out_height, scratch, layout.nbytes, layout.row_nbytes, layout.plane_nbytes, layout.sums_nbytes,
        shape.channels * padded_filters * tile.itemsize, solid.spatial[0], solid.kernel[0], solid.strides[0], solid.pads[0],
        solid.dilations[0], x_pixel * width * height, solid.output[0], solid.channels * tile.itemsize, shape.channels,
        claims, *tail,
    ]  # fmt: skip
    for operand in operands:
        args.extend(operand)
    return args


@functools.lru_cache(maxsize=256)
def kernel_text(spec: WinogradSpec, target: Target) -> KernelText:
    """The kernel of a spec; its arguments are `winograd_args`."""
    return _Winograd(spec, target).text()


class _Winograd:
    """Writes one kernel."""

    def __init__(self, spec: WinogradSpec, target: Target) -> None:
        self.spec, self.side, self.m = spec, spec.side, spec.outputs
        self.module = Module(target)
        self.body: Body = self.module.kernel()
        self.tile = winograd_tile(spec, target)
        self.lanes = self.tile.lanes
        self.vector_nbytes = self.lanes * self.tile.itemsize
        self.finish = Finish(self.body, spec.epilogue, spec.dtype, self.lanes)
        self.place: dict[str, Cell] = {}
        self.light = spec.epilogue is None or len(walk([spec.epilogue.root])) <= _LIGHT

    def text(self) -> KernelText:
        body = self.body
        args, tid, _ = body.args
        v: dict[str, Value] = {}
        self.v = v
        for index, name in enumerate(_FIELDS):
            pointer = name in ("micro", "x", "weights", "y", "taps", "scratch", "claims")
            v[name] = body.load_pointer(args, index) if pointer else body.load_i64(args, index)
        self.operands = [
            [body.load_pointer(args, at), *(body.load_i64(args, at + j) for j in range(1, 4))]
            for at in range(len(_FIELDS), len(_FIELDS) + _OPERAND_FIELDS * len(self.finish.kinds), _OPERAND_FIELDS)
        ]
        self.neutral = body.alloca(self.vector_nbytes)
        self.outputs = body.alloca(self.m * self.m * self.vector_nbytes)
        body.store(body.zero(self.spec.dtype, self.lanes), self.neutral, self.spec.dtype)
        self.transformed = body.at(v["scratch"], body.mul(tid, v["scratch_nbytes"]))
        self.sums = body.at(self.transformed, body.mul(v["plane_nbytes"], self.side**2))
        self.phase_tiles = body.mul(v["down"], v["across"])
        self.phases = body.mul(v["dilation_h"], v["dilation_w"])
        tiles = body.mul(body.mul(v["batch"], self.phases), self.phase_tiles)
        blocks = body.div(body.add(tiles, body.sub(v["block"], 1)), v["block"])
        units = body.mul(blocks, v["panels"])
        grains = body.div(body.add(units, body.sub(v["grain"], 1)), v["grain"])

        def work(grain: Value, last: Value, taken: Value) -> Value:
            unit = body.mul(grain, v["grain"])
            self._panels(unit, body.min(units, body.add(unit, v["grain"])), tiles)
            return body.i(1)

        claiming.emit_shares(body, grains, v, work)
        body.b.ret_void()
        return self.module.text(f"winograd{self.m}")

    def _panels(self, first: Value, last: Value, tiles: Value) -> None:
        """Panels of blocks, in the order block, panel."""
        body, v = self.body, self.v
        unit = body.cell(first, "panels")
        with body.repeat_while(lambda: body.less(unit.get(), last)):
            block, panel = body.div(unit.get(), v["panels"]), body.rem(unit.get(), v["panels"])
            count = body.min(body.sub(v["panels"], panel), body.sub(last, unit.get()))
            tile0 = body.mul(block, v["block"])
            number = body.min(v["block"], body.sub(tiles, tile0))
            self._start(tile0)
            with body.loop(0, number) as t:
                self._input(t)
                self._advance()
            self._multiply(number, panel, count)
            self._start(tile0)
            with body.loop(0, number) as t:
                self._output(t, panel, count)
                self._advance()
            unit.add(count)

    def _start(self, index: Value) -> None:
        """Stand at a tile: its image, phase (two numbers), row and column."""
        body, v = self.body, self.v
        number, within = body.div(index, self.phase_tiles), body.rem(index, self.phase_tiles)
        image, phase = body.div(number, self.phases), body.rem(number, self.phases)
        places = {
            "image": image, "phase_y": body.div(phase, v["dilation_w"]), "phase_x": body.rem(phase, v["dilation_w"]),
            "row": body.div(within, v["across"]), "column": body.rem(within, v["across"]),
        }  # fmt: skip
        for name, value in places.items():
            if name in self.place:
                self.place[name].set(value)
            else:
                self.place[name] = body.cell(value, name)

    def _advance(self) -> None:
        """Go on to the next tile."""
        body, v, place = self.body, self.v, self.place
        limits = {"column": v["across"], "row": v["down"], "phase_x": v["dilation_w"], "phase_y": v["dilation_h"]}
        place["column"].add(1)
        with ExitStack() as nested:
            for (name, limit), outer in zip(limits.items(), ("row", "phase_x", "phase_y", "image"), strict=True):
                nested.enter_context(body.when(body.equal(place[name].get(), limit)))
                place[name].set(0)
                place[outer].add(1)

    def _standing(self) -> tuple[Value, Value, Value]:
        """(image, first row, first column of outputs) of the tile; the others follow in steps of the dilation."""
        body, v = self.body, self.v
        image, phase_y, phase_x, row, column = (self.place[n].get() for n in ("image", "phase_y", "phase_x", "row", "column"))
        y = body.add(body.mul(body.mul(row, self.m), v["dilation_h"]), phase_y)
        return image, y, body.add(body.mul(body.mul(column, self.m), v["dilation_w"]), phase_x)

    # --- input ---

    def _input(self, t: Value) -> None:
        body, v, side = self.body, self.v, self.side
        image, row, column = self._standing()
        y0, x0 = body.sub(row, v["pad_h"]), body.sub(column, v["pad_w"])
        batch, plane = body.div(image, v["out_planes"]), body.rem(image, v["out_planes"])
        z0 = body.sub(body.mul(plane, v["plane_step"]), v["pad_plane"])
        source = body.at(v["x"], body.mul(batch, v["x_image"]), body.mul(y0, v["x_line"]), body.mul(x0, v["x_pixel"]))
        target = body.at(self.transformed, body.mul(t, v["row_nbytes"]))
        down, across = body.mul(v["dilation_h"], v["x_line"]), body.mul(v["dilation_w"], v["x_pixel"])
        at = [[body.add(start, body.mul(v[f"dilation_{a}"], i)) for i in range(side)] for start, a in ((y0, "h"), (x0, "w"))]
        rows = [body.b.icmp_unsigned("<", y, v["height"]) for y in at[0]]
        columns = [body.b.icmp_unsigned("<", x, v["width"]) for x in at[1]]
        inside = body.b.and_(body.b.and_(rows[0], rows[-1]), body.b.and_(columns[0], columns[-1]))
        with body.loop(0, v["kernel_planes"]) as number:
            z = body.add(z0, body.mul(number, v["plane_dilation"]))
            here = body.b.icmp_unsigned("<", z, v["depth"])
            origin = body.at(source, body.mul(z, v["x_plane"]))
            lines = [body.at(origin, body.mul(down, i)) for i in range(side)]
            pixels = [[body.at(line, body.mul(across, i)) for i in range(side)] for line in lines]
            there = [[body.b.and_(here, body.b.and_(row, column)) for column in columns] for row in rows]
            self._input_channels(
                body.b.and_(inside, here), pixels, there, body.at(target, body.mul(number, v["channels_nbytes"]))
            )

    def _input_channels(
        self, inside: Value, pixels: list[list[Value]], there: list[list[Value]], target: Value
    ) -> None:  # fmt: skip
        """The input tile of one plane: `inside` as a whole, or pixel by pixel where it is `there`."""
        body, v = self.body, self.v
        fast = body.select(inside, body.b.and_(v["channels"], body.i(-self.lanes)), 0)
        with body.loop(0, fast, self.lanes) as c:
            offset = body.mul(c, self.tile.itemsize)
            values = [[body.load(body.at(p, offset), self.spec.dtype, self.lanes) for p in line] for line in pixels]
            self._transform_input(values, body.at(target, offset))
        with body.loop(fast, v["channels"], self.lanes) as c:
            offset = body.mul(c, self.tile.itemsize)
            mask = body.mask(body.sub(v["channels"], c), self.lanes)
            values = [
                [self._guarded(p, offset, there[i][j], mask) for j, p in enumerate(line)] for i, line in enumerate(pixels)
            ]
            self._transform_input(values, body.at(target, offset))

    def _guarded(self, pointer: Value, offset: Value, inside: Value, mask: Value) -> Value:
        pointer = self.body.b.select(inside, self.body.at(pointer, offset), self.neutral)
        return self.body.load_masked(pointer, mask, self.spec.dtype, self.lanes)

    def _transform_input(self, d: list[list[Value]], target: Value) -> None:
        """Bt d B of one vector of channels, to [matrix][tile][channel]."""
        for matrix, value in enumerate(of_input(d, self.m, self)):
            self.body.store(value, self.body.at(target, self.body.mul(self.v["plane_nbytes"], matrix)), self.spec.dtype)

    def add(self, a: Value, b: Value) -> Value:
        return self.body.b.fadd(a, b)

    def subtract(self, a: Value, b: Value) -> Value:
        return self.body.b.fsub(a, b)

    def scaled(self, factor: float, a: Value, b: Value | None = None) -> Value:
        """factor * a + b."""
        by = self.body.constant(factor, self.spec.dtype, self.lanes)
        return self.body.b.fmul(by, a) if b is None else self.body.fma(by, a, b, self.spec.dtype, self.lanes)

    # --- products ---

    def _multiply(self, number: Value, panel0: Value, count: Value) -> None:
        """sums[matrix][panel][tile][NR] for `count` panels from `panel0` on, which lie at the panels' places."""
        body, v, tile = self.body, self.v, self.tile
        pieces = body.div(body.add(number, tile.rows - 1), tile.rows)
        rows, extra = body.div(number, pieces), body.rem(number, pieces)
        panel_nbytes = body.mul(v["k"], tile.width * tile.itemsize)
        near = body.mul(rows, v["row_nbytes"])
        with body.loop(0, self.side**2) as matrix, body.loop(panel0, body.add(panel0, count)) as panel:
            width_nbytes = self._width_nbytes(panel)
            vectors = body.div(width_nbytes, self.vector_nbytes)
            tap_nbytes = body.mul(width_nbytes, STEPS)
            pace = body.div(body.add(tap_nbytes, body.sub(pieces, 1)), pieces)
            right = body.at(v["weights"], body.mul(matrix, v["weight_plane_nbytes"]), body.mul(panel, panel_nbytes))
            left = body.at(self.transformed, body.mul(matrix, v["plane_nbytes"]))
            out = self._sums_at(matrix, panel)
            with body.loop(0, v["steps"]) as step:
                tap = body.mul(step, v["per"])
                taps = body.min(v["per"], body.sub(v["units"], tap))
                rest = body.select(body.equal(body.add(step, 1), v["steps"]), v["rest"], 0)
                b = body.at(right, body.mul(tap, tap_nbytes))
                a = body.at(left, body.mul(tap, STEPS * tile.itemsize))
                ahead = body.at(b, body.mul(taps, tap_nbytes), body.mul(rest, width_nbytes))
                accumulate = body.select(body.equal(step, 0), 0, 1)
                with body.loop(0, pieces) as piece:
                    first = body.add(body.mul(piece, rows), body.min(piece, extra))
                    height = body.add(rows, body.select(body.less(piece, extra), 1, 0))
                    body.call_pointer(
                        v["micro"], PARAMETERS,
                        [
                            body.at(a, body.mul(first, v["row_nbytes"])), v["row_nbytes"], b, near, rest, v["taps"], taps,
                            body.at(out, body.mul(first, width_nbytes)), accumulate,
                            body.at(ahead, body.mul(body.mul(piece, taps), pace)), pace, height, vectors,
                        ],
                    )  # fmt: skip

    def _width_nbytes(self, panel: Value) -> Value:
        body, tile = self.body, self.tile
        columns = body.min(body.sub(self.v["filters"], body.mul(panel, tile.width)), tile.width)
        return body.mul(body.div(body.add(columns, self.lanes - 1), self.lanes), self.vector_nbytes)

    def _sums_at(self, matrix: Value, panel: Value) -> Value:
        body = self.body
        per_panel = body.mul(self.v["block"], self.tile.width * self.tile.itemsize)
        return body.at(self.sums, body.mul(matrix, self.v["sums_nbytes"]), body.mul(panel, per_panel))

    # --- output ---

    def _output(self, t: Value, panel0: Value, count: Value) -> None:
        body, v, m = self.body, self.v, self.m
        image, y0, x0 = self._standing()
        rows, columns = self._inside(y0, "h", v["out_height"]), self._inside(x0, "w", v["out_width"])
        complete = body.b.and_(body.equal(rows, m), body.equal(columns, m))
        out = body.at(v["y"], body.mul(image, v["y_image"]), body.mul(y0, v["y_line"]), body.mul(x0, v["y_pixel"]))
        self.output_steps = body.mul(v["dilation_w"], v["y_pixel"]), body.mul(v["dilation_h"], v["y_line"])
        self.operand_steps = [(body.mul(v["dilation_w"], o[1]), body.mul(v["dilation_h"], o[2])) for o in self.operands]
        bases = [
            body.at(o[0], body.mul(x0, o[1]), body.mul(y0, o[2]), body.mul(image, o[3])) if kind == "full" else o[0]
            for kind, o in zip(self.finish.kinds, self.operands, strict=True)
        ]
        with body.loop(panel0, body.add(panel0, count)) as panel:
            width_nbytes = self._width_nbytes(panel)
            source = body.at(self._sums_at(body.i(0), panel), body.mul(t, width_nbytes))
            with body.loop(0, width_nbytes, self.vector_nbytes) as offset:
                channel = body.add(body.mul(panel, self.tile.width), body.div(offset, self.tile.itemsize))
                values = self._transform_output(body.at(source, offset))
                places = []
                for kind, dtype, base in zip(self.finish.kinds, self.finish.dtypes, bases, strict=True):
                    places.append(base if kind == "scalar" else body.at(base, body.mul(channel, itemsize(dtype))))
                to = body.at(out, body.mul(channel, self.finish.itemsize))
                left = body.sub(v["filters"], channel)
                unrolled = body.b.and_(complete, body.less(self.lanes - 1, left))
                if self.light:
                    with body.either(unrolled) as (fast, slow):
                        with fast:
                            self._store_complete(values, places, to)
                        with slow:
                            self._store_partial(values, places, to, rows, columns, left)
                else:
                    self._store_partial(values, places, to, rows, columns, left)

    def _inside(self, start: Value, axis: str, size: Value) -> Value:
        """How many of a tile's outputs from `start` on lie inside."""
        body, dilation = self.body, self.v[f"dilation_{axis}"]
        left = body.div(body.add(body.sub(size, start), body.sub(dilation, 1)), dilation)
        return body.min(body.select(body.less(start, size), left, 0), self.m)

    def _transform_output(self, source: Value) -> list[Value]:
        """At s A: the m x m outputs of one vector of channels, row by row."""
        body, side = self.body, self.side

        def sums(matrix: int) -> Value:
            return body.load(body.at(source, body.mul(self.v["sums_nbytes"], matrix)), self.spec.dtype, self.lanes)

        return list(of_sums([[sums(y * side + x) for x in range(side)] for y in range(side)], self.m, self))

    def _store_complete(self, values: list[Value], places: list[Value], to: Value) -> None:
        body, finish, steps = self.body, self.finish, self.output_steps
        fixed = {i: finish.operand(i, place) for i, place in enumerate(places) if finish.kinds[i] != "full"}
        for index, value in enumerate(values):
            y, x = divmod(index, self.m)
            operands = []
            for i, place in enumerate(places):
                across, down = self.operand_steps[i]
                operands.append(
                    fixed[i] if i in fixed else finish.operand(i, body.at(place, body.mul(across, x), body.mul(down, y)))
                )
            finish.store(value, operands, body.at(to, body.mul(steps[0], x), body.mul(steps[1], y)))

    def _store_partial(
        self, values: list[Value], places: list[Value], to: Value, rows: Value, columns: Value, left: Value
    ) -> None:
        body, finish, steps = self.body, self.finish, self.output_steps
        for index, value in enumerate(values):
            body.store(value, body.at(self.outputs, index * self.vector_nbytes), self.spec.dtype)
        mask = body.mask(left, self.lanes)
        with body.loop(0, rows) as y, body.loop(0, columns) as x:
            operands = []
            for i, place in enumerate(places):
                (across, below), full = self.operand_steps[i], finish.kinds[i] == "full"
                at = body.at(place, body.mul(across, x), body.mul(below, y)) if full else place
                operands.append(finish.operand(i, at, None if finish.kinds[i] == "scalar" else mask))
            number = body.add(body.mul(y, self.m), x)
            value = body.load(body.at(self.outputs, body.mul(number, self.vector_nbytes)), self.spec.dtype, self.lanes)
            finish.store(value, operands, body.at(to, body.mul(steps[0], x), body.mul(steps[1], y)), mask)
