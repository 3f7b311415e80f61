"""Convolutions with windows in K blocks (`blocked_k_microkernel`), from a line buffer (im2col of lines).

A thread copies the input of some lines of the output, with its border, into memory of its own, as [block of channels][plane]
[line][pixel][a cache line of channels]: there a tile's rows are neighbouring lines of the cache, whatever the number of
channels. Units of work are panels of groups of chunks of lines. Where a line is all there is (one spatial axis), segments of it
are the lines. Packed weights are [group][panel][step][columns of the panel], steps in the order of the taps: [block of
channels][depth][height][width][channel].

A block of a sum is some whole blocks of channels, or lines of the kernel in one plane and one block of channels. Of the latter
only what lies inside the image is multiplied: the kernel's planes and lines by the output's line, and where a window is wider
than a tile (dilations) its columns by the tile's pixels. Where blocks are long (`k_blocks`), so it is of the former, too.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

from intarsia.codegen.builder.kernel_body import Value
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.graph.trace import cached, least, most
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.argument_tables import Inside, Part, Spread, Table
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common import pieces
from intarsia.providers.cpu.kernels.common import work_stealing as claiming
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.panels import pack_matrix, packed_nbytes
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import STEPS
from intarsia.providers.cpu.kernels.conv.k_blocks import block_fields, blocks_of
from intarsia.providers.cpu.kernels.conv.pointwise_kernel import LINE, Block, Rows, check, has_long_blocks
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape, WindowOperands
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec, Operand, Threads

_CHUNK_NBYTES = 3 << 18  # of a thread's copy
_SEGMENT = 112  # pixels of a segment of a line, at most
_TOGETHER = 4  # blocks of channels that are copied at once
_FIELDS = (
    "micro x lda b near c ldc m n taps panel_nbytes group_nbytes tiles rows extra chunks lines panels groups planes scratch "
    "scratch_nbytes chunk_lines out_lines batch line_c line_width plane_c image_c advance extent line_step pad_line "
    "line_count line_x line_pixels pad_pixel width pixel_step copied x_pixel image_x channels block_nbytes plane_nbytes "
    "kernel_planes plane_step pad_plane plane_dilation plane_count plane_x fill blocks blocks_at planes_at lines_at "
    "kernel_width dilation stride"
).split() + list(claiming.FIELDS)


def takes_windows(channels: int, filters: int, group: int, tile: Tile) -> bool:
    """Whether `channels` of a group fill enough of a block, and its filters enough of a vector."""
    return channels * tile.itemsize >= LINE // 2 and (group == 1 or 2 * (filters // group) >= tile.lanes)


def pack_windows(weights: np.ndarray, tile: Tile, group: int = 1) -> np.ndarray:
    """ONNX weights [M, C / group, *kernel] as panels [group, steps in the order of the taps, padded with zeros]."""
    filters, channels = weights.shape[:2]
    each, padded = LINE // tile.itemsize, padded_channels(channels)
    w = np.zeros((group, filters // group, padded, math.prod(weights.shape[2:])), weights.dtype)
    w[:, :, :channels] = weights.reshape(group, filters // group, channels, -1)
    parts = [w[:, :, at : at + each].transpose(0, 3, 2, 1) for at in range(0, padded, each)]
    return pack_matrix(np.concatenate([p.reshape(group, -1, filters // group) for p in parts], 1), tile)


def padded_channels(channels: int) -> int:
    return -(-channels // STEPS) * STEPS


@dataclass(frozen=True)
class _Plan:
    """Division of a convolution's output: lines (or segments) of `width` pixels, `chunk` of them at a time."""

    flat: bool  # the lines are segments of the only one
    lines: int
    width: int
    chunk: int
    copied: int  # pixels of a copied line
    plane_nbytes: int  # of copied lines
    block_nbytes: int  # of copied planes
    nbytes: int


@cached(1024)
def _plan(spec: GemmSpec, shape: ConvShape, threads: int) -> _Plan:
    tile = check(spec)
    s = shape.as_3d()
    (out_planes, out_height, out_width), (depth, height, width) = s.output, s.kernel
    flat = out_height * out_planes == 1 and height * depth == 1 and s.spatial[0] * s.spatial[1] == 1 and out_width > _SEGMENT
    lines, pixels = out_height, out_width
    copies = s.batch * out_planes * s.group
    if flat:
        count = -(-out_width // _SEGMENT)
        even = -(-count // threads) * threads  # as many for each thread
        if copies % threads and 2 * out_width >= even * _SEGMENT:
            count = even
        each = -(-out_width // count)
        pixels = -(-each // tile.rows) * tile.rows
        lines = -(-out_width // pixels)
    copied = pixels if width == 1 else (pixels - 1) * s.strides[2] + (width - 1) * s.dilations[2] + 1
    blocks = -(-(s.channels // s.group) * tile.itemsize // LINE)
    advance = s.strides[1] if height > 1 else 1
    extent = (height - 1) * s.dilations[1] + 1
    line_nbytes = copied * LINE * blocks * depth
    # Lines that chunks share are copied for each: at least as many are computed at once.
    held = most(1, (_CHUNK_NBYTES // most(1, line_nbytes) - extent) // advance + 1, (extent - 1) // advance)
    chunks = -(-lines // held)
    x_numbers, y_numbers = s.batch * math.prod(s.spatial) * s.channels, s.batch * math.prod(s.output) * s.filters
    if x_numbers + y_numbers > math.prod(s.kernel) * s.channels // s.group * s.filters and copies % threads:
        chunks = least(lines, -(-chunks // threads) * threads)
    chunk = -(-lines // most(1, chunks))
    plane = ((chunk - 1) * advance + extent) * copied * LINE
    return _Plan(flat, lines, pixels, chunk, copied, plane, plane * depth, plane * depth * blocks)


@dataclass(frozen=True)
class _Tables:
    """`table` has the taps, the blocks (`block_fields`), and what of the kernel is inside: [first, last) for every plane and
    line of the output; with each one's place."""

    table: Table
    blocks: int
    places: tuple[int, int, int]
    fill: bool  # a block has parts outside the image multiplied


@cached(1024)
def _tables(spec: GemmSpec, target: Target, shape: ConvShape, threads: int) -> _Tables:
    plan, s, tile = _plan(spec, shape, threads), shape.as_3d(), check(spec)
    each, padded = LINE // tile.itemsize, padded_channels(s.channels // s.group)
    blocks, fill = blocks_of(s.kernel, padded, each, has_long_blocks(target))
    planes, down = _inside_each(s.output[0], 0, s), _whole(plan.lines) if plan.flat else _inside_each(plan.lines, 1, s)
    taps = _taps(plan, s, padded, each, tile.itemsize)
    table = Table((*taps, blocks.reshape(-1), planes, down))
    return _Tables(table, len(blocks), tuple(table.places()[len(taps) :]), fill)


def _taps(plan: _Plan, s: ConvShape, padded: int, each: int, itemsize: int) -> tuple[Part, ...]:
    """Where the taps of a pixel lie, in bytes: [block of channels][depth][height][width][steps]; then a 0."""
    whole, rest = divmod(padded, each)
    step = STEPS * itemsize
    down, across = s.dilations[1] * plan.copied * LINE, s.dilations[2] * LINE
    (depth, height, width), plane = s.kernel, plan.plane_nbytes
    made: list[Part] = [_NOTHING]
    if rest:
        last = -(-rest // STEPS)
        made.insert(0, _tap_spread(whole * plan.block_nbytes, (depth, plane), (height, down), (width, across), (last, step)))
    steps = each // STEPS
    if depth == 1 or whole == 1:
        outer = (whole, plan.block_nbytes) if depth == 1 else (depth, plane)
        return (_tap_spread(0, outer, (height, down), (width, across), (steps, step)), *made)
    blocks = [
        _tap_spread(block * plan.block_nbytes, (depth, plane), (height, down), (width, across), (steps, step))
        for block in range(whole)
    ]
    return (*blocks, *made)


def _tap_spread(start: int, *axes: tuple[int, int]) -> Spread:
    return Spread(start, axes)


_NOTHING = np.zeros(1, np.int64)


def _whole(count: int) -> Spread:
    """[0, 1) for all of `count` positions."""
    return Spread(0, ((count, 0), (2, 1)))


def _inside_each(count: int, axis: int, s: ConvShape) -> Part:
    """Which positions [low, high) of the kernel every position of an axis sees inside the image."""
    if s.kernel[axis] == 1 and s.pads[axis] == 0 and (count - 1) * s.strides[axis] < s.spatial[axis]:
        return _whole(count)
    return Inside(count, s.strides[axis], s.pads[axis], s.spatial[axis], s.dilations[axis], s.kernel[axis])


def multiplied_share(shape: ConvShape, rows: int = 6) -> float:
    """How much of a kernel is inside the image, of what a tile of `rows` pixels multiplies: a mean over the output."""
    s, share = shape.as_3d(), 1.0
    for axis, size in enumerate(s.output):
        count = -(-size // rows) if axis == 2 else size
        first = np.arange(count) * size // max(1, count)
        last = np.arange(1, count + 1) * size // max(1, count) - 1
        kernel, pad, stride = s.kernel[axis], s.pads[axis], s.strides[axis]
        low = np.clip(-((last * stride - pad) // s.dilations[axis]), 0, kernel)
        high = np.minimum(np.maximum(-((first * stride - pad - s.spatial[axis]) // s.dilations[axis]), low), kernel)
        share *= float((high - low).sum()) / max(1, len(first) * s.kernel[axis])
    return share


def window_tables(spec: GemmSpec, target: Target, shape: ConvShape, threads: int) -> Table:
    """The tables of `window_text`; `threads` as `window_args` is given it."""
    found: _Tables = _tables(spec, target, shape, threads)
    return found.table


def window_scratch_nbytes(spec: GemmSpec, shape: ConvShape, threads: int) -> int:
    """Bytes of scratch for every thread."""
    plan: _Plan = _plan(spec, shape, threads)
    return plan.nbytes


def window_args(spec: GemmSpec, target: Target, shape: ConvShape, data: WindowOperands, threads: Threads) -> list[Argument]:
    """The arguments of `window_text` for the input without border, `pack_windows`' result, and as taps `window_tables`; the
    epilogue's operands are as `window_operand` gives them."""
    tile, s = check(spec), shape.as_3d()
    plan, found = _plan(spec, shape, threads.number), _tables(spec, target, shape, threads.number)
    out_size = itemsize(spec.epilogue.dtype) if spec.epilogue else tile.itemsize
    (in_planes, in_height, in_width), (out_planes, out_height, out_width) = s.spatial, s.output
    x_pixel = data.x_pixel_nbytes or s.channels * tile.itemsize
    y_pixel = data.y_pixel_nbytes or s.filters * out_size
    each, channels, flat = s.filters // s.group, s.channels // s.group, plan.flat
    tall, wide = s.kernel[1] > 1, s.kernel[2] > 1
    steps = padded_channels(channels) * math.prod(s.kernel)
    tiles, panels = most(1, -(-plan.width // tile.rows)), -(-each // tile.width)
    even = plan.width // tiles
    chunks = -(-plan.lines // plan.chunk) if plan.width else 0
    lda = LINE * (s.strides[2] if wide else 1)
    copies = s.batch * out_planes * chunks * s.group
    each_copy = tiles * plan.chunk
    whole = (tiles, each_copy) if copies > 1 else (each_copy,)  # a thread that takes pieces copies their lines again
    products = plan.width * tile.width * steps // tiles
    y_line, y_plane = y_pixel * out_width, y_pixel * out_width * out_height
    x_line, x_plane = x_pixel * in_width, x_pixel * in_width * in_height
    args = [
        data.micro, data.x, lda, data.weights, lda * even, data.y, y_pixel, plan.width, each, data.taps,
        steps * tile.width * tile.itemsize,
        packed_nbytes(steps, each, tile), tiles, even, plan.width % tiles, chunks, plan.lines, panels, s.group, out_planes,
        threads.scratch, plan.nbytes, plan.chunk, out_width, s.batch, y_pixel * plan.width if flat else y_line,
        plan.width if flat else 0, y_plane, y_plane * out_planes, s.strides[1] if tall else 1,
        (s.kernel[1] - 1) * s.dilations[1] + 1, 1 if tall or flat else s.strides[1], 0 if flat else s.pads[1],
        plan.lines if flat else in_height, 0 if flat else x_line, plan.width * s.strides[2] if flat else 0, s.pads[2], in_width,
        1 if wide else s.strides[2], plan.copied, x_pixel, x_plane * in_planes, channels, plan.block_nbytes, plan.plane_nbytes,
        s.kernel[0], s.strides[0], s.pads[0], s.dilations[0], in_planes, x_plane, int(found.fill), found.blocks, *found.places,
        s.kernel[2], s.dilations[2], s.strides[2], threads.claims,
        *pieces.tail(copies * panels * each_copy, products, threads.number, whole),
    ]  # fmt: skip
    for operand in data.operands:
        args.extend(operand)
    return args


def window_operand(spec: GemmSpec, kind: str, dtype: DType, address: Address, shape: ConvShape, threads: int) -> Operand:
    """An epilogue operand: "column" [M], "full" [N, ..., M] dense, or "scalar"."""
    if kind in ("column", "scalar"):
        return Operand(address)
    if kind != "full":
        raise ValueError(f"a convolution's epilogue takes operands of kind column, full or scalar; got {kind!r}")
    plan, s = _plan(spec, shape, threads), shape.as_3d()
    out_planes, out_height, out_width = s.output
    pixel = s.filters * itemsize(dtype)
    plane = pixel * out_width * out_height
    return Operand(address, pixel, pixel * least(plan.width, out_width), plane, plane * out_planes)


@functools.lru_cache(maxsize=1024)
def window_text(spec: GemmSpec, target: Target) -> KernelText:
    """The kernel for windows; its arguments are `window_args`, the micro-kernel `blocked_k_microkernel.stepped_micro_text`."""
    return _Windows(spec, target).text()


class _Windows(Rows):
    fields = _FIELDS
    pointers = ("micro", "x", "b", "c", "taps", "scratch", "claims")
    name = "windows"

    def _begin(self) -> Value:
        body, v = self.body, self.v
        self.scratch = body.at(v["scratch"], body.mul(body.args[1], v["scratch_nbytes"]))
        self.held, self.low, self.high = body.cell(-1, "held"), body.cell(0, "low"), body.cell(0, "high")
        self.panel_units = body.mul(v["chunk_lines"], v["tiles"])
        copies = body.mul(body.mul(v["batch"], v["planes"]), body.mul(v["chunks"], v["groups"]))
        return body.mul(body.mul(copies, v["panels"]), self.panel_units)

    def _units(self, unit: Value, last: Value, taken: Value) -> Value:
        body, v = self.body, self.v
        number, start = body.div(unit, self.panel_units), body.rem(unit, self.panel_units)
        copy, panel = body.div(number, v["panels"]), body.rem(number, v["panels"])
        count = body.min(body.sub(self.panel_units, start), body.sub(last, unit))
        rest, self.group = body.div(copy, v["groups"]), body.rem(copy, v["groups"])
        plane, chunk = body.div(rest, v["chunks"]), body.rem(rest, v["chunks"])
        self.image, self.plane = body.div(plane, v["planes"]), body.rem(plane, v["planes"])
        self.line0 = body.mul(chunk, v["chunk_lines"])
        lines = body.min(v["chunk_lines"], body.sub(v["lines"], self.line0))
        end = body.min(body.add(start, count), body.mul(lines, v["tiles"]))
        with body.when(body.less(start, end)):
            # Of its own chunks a thread copies all that it may still need, of others' what it takes.
            low = body.div(start, v["tiles"])
            partial = body.equal(body.add(panel, 1), v["panels"])
            mine = body.equal(taken, 0)
            through = body.div(body.add(end, body.sub(v["tiles"], 1)), v["tiles"])
            partial = body.b.or_(partial, body.b.not_(mine))
            self._hold(copy, body.select(partial, low, 0), body.select(mine, lines, through))
            self.inside_planes = self._span("planes_at", self.plane)
            self._stand(panel)
            self._groups(start, body.sub(end, start))
        return count

    # --- the copy -------------------------------------------------------------------------------------------------

    def _hold(self, copy: Value, low: Value, high: Value) -> None:
        """See to it that the input of the chunk's lines low to high - 1 is in this thread's copy."""
        body, v = self.body, self.v
        same = body.equal(self.held.get(), copy)
        held_low, held_high = self.low.get(), self.high.get()
        below = body.less(low, held_low)
        covered = body.b.and_(same, body.b.not_(body.less(held_high, high)))
        with body.when(body.b.or_(body.b.not_(covered), below)):
            more = body.b.and_(covered, body.b.not_(body.less(high, held_low)))  # lines before those that are there
            end = body.add(body.mul(body.sub(high, 1), v["advance"]), v["extent"])
            self._copy(body.mul(low, v["advance"]), body.select(more, body.mul(held_low, v["advance"]), end))
            self.held.set(copy)
            self.low.set(low)
            self.high.set(body.select(more, held_high, high))

    def _copy(self, first: Value, last: Value) -> None:
        """Lines first to last - 1 of the chunk's input, zeros outside."""
        body, v = self.body, self.v
        group = body.mul(self.group, body.mul(v["channels"], self.tile.itemsize))
        source = body.at(v["x"], body.mul(self.image, v["image_x"]), group)
        start = body.sub(body.mul(self.plane, v["plane_step"]), v["pad_plane"])
        with body.loop(0, v["kernel_planes"]) as place, body.loop(first, last) as line:
            plane = body.add(start, body.mul(place, v["plane_dilation"]))
            index = body.add(body.mul(self.line0, v["advance"]), line)
            at = body.sub(body.mul(index, v["line_step"]), v["pad_line"])
            inside = body.b.and_(
                body.b.icmp_unsigned("<", at, v["line_count"]), body.b.icmp_unsigned("<", plane, v["plane_count"])
            )
            with body.when(body.b.or_(inside, body.less(0, v["fill"]))):
                target = body.at(self.scratch, body.mul(place, v["plane_nbytes"]), body.mul(body.mul(line, v["copied"]), LINE))
                begin = body.at(source, body.mul(plane, v["plane_x"]), body.mul(at, v["line_x"]))
                self._copy_line(body.mul(index, v["line_pixels"]), inside, begin, target)

    def _copy_line(self, first: Value, inside: Value, source: Value, target: Value) -> None:
        body, v = self.body, self.v
        pixel, step = body.sub(first, v["pad_pixel"]), v["pixel_step"]
        # Pixels low to high - 1 of the copy are inside: 0 <= pixel + i * step < width.
        low = body.min(body.div(body.add(body.max(body.sub(0, pixel), 0), body.sub(step, 1)), step), v["copied"])
        left = body.max(body.sub(v["width"], pixel), 0)
        high = body.min(body.div(body.add(left, body.sub(step, 1)), step), v["copied"])
        high = body.max(body.select(inside, high, 0), low)
        origin = body.at(source, body.mul(pixel, v["x_pixel"]))
        each = LINE // self.tile.itemsize
        many = body.mul(body.div(v["channels"], each * _TOGETHER), each * _TOGETHER)
        for begin, end, together in ((body.i(0), many, _TOGETHER), (many, v["channels"], 1)):
            with body.loop(begin, end, each * together) as channel:
                outs = [
                    body.at(target, body.mul(body.add(body.div(channel, each), j), v["block_nbytes"])) for j in range(together)
                ]
                for start, stop in ((body.i(0), low), (high, v["copied"])):
                    with body.loop(start, stop) as i:
                        self._store(outs, i, {})
                self._copy_pixels(low, high, channel, origin, outs)

    def _copy_pixels(self, low: Value, high: Value, channel: Value, origin: Value, outs: list[Value]) -> None:
        """Pixels low to high - 1 of some blocks of channels; of a single one the channels that there are."""
        body, v, tile = self.body, self.v, self.tile
        each, begin = LINE // tile.itemsize, body.at(origin, body.mul(channel, tile.itemsize))
        stride = body.mul(v["pixel_step"], v["x_pixel"])
        masks = {}
        if len(outs) == 1:
            left = body.sub(v["channels"], channel)
            masks = {j: body.mask(body.sub(left, j), tile.lanes) for j in range(0, each, tile.lanes)}
        with body.loop(low, high) as i:
            place, values = body.at(begin, body.mul(i, stride)), {}
            for number, j in itertools.product(range(len(outs)), range(0, each, tile.lanes)):
                at = body.at(place, number * LINE + j * tile.itemsize)
                if masks:
                    values[number, j] = body.load_masked(at, masks[j], self.spec.dtype, tile.lanes)
                else:
                    values[number, j] = body.load(at, self.spec.dtype, tile.lanes)
            self._store(outs, i, values)

    def _store(self, outs: list[Value], pixel: Value, values: dict[tuple[int, int], Value]) -> None:
        """A pixel's cache lines: `values` by number of the block and lane, zeros where there is none."""
        body, tile = self.body, self.tile
        zero = body.zero(self.spec.dtype, tile.lanes)
        for number, out in enumerate(outs):
            to = body.at(out, body.mul(pixel, LINE))
            for j in range(0, LINE // tile.itemsize, tile.lanes):
                body.store(values.get((number, j), zero), body.at(to, j * tile.itemsize), self.spec.dtype)

    # --- the products ---------------------------------------------------------------------------------------------

    def _stand(self, panel: Value) -> None:
        super()._stand(panel)
        body, v = self.body, self.v
        column = body.mul(self.group, v["n"])
        self.b = body.at(self.b, body.mul(self.group, v["group_nbytes"]))
        self.c = body.at(self.c, body.mul(column, self.finish.itemsize))
        for i, (kind, dtype) in enumerate(zip(self.finish.kinds, self.finish.dtypes, strict=True)):
            if kind in ("column", "full"):
                self.bases[i] = body.at(self.bases[i], body.mul(column, itemsize(dtype)))

    def _block(self, index: Value, is_last: Value) -> tuple[Value, Value, Value, dict[str, Value]]:
        names = block_fields(self.module.target)
        place = self.body.at(self.v["taps"], self.v["blocks_at"], self.body.mul(index, 8 * len(names)))
        fields = {name: self.body.load_i64(place, i) for i, name in enumerate(names)}
        return fields["tap"], fields["taps"], self.body.i(0), fields

    def _span(self, table: str, index: Value) -> tuple[Value, Value]:
        place = self.body.at(self.v["taps"], self.v[table], self.body.mul(index, 16))
        return self.body.load_i64(place, 0), self.body.load_i64(place, 1)

    def _tile(self, tile: Value, block: Block) -> None:
        body, v = self.body, self.v
        line, along = body.div(tile, v["tiles"]), body.rem(tile, v["tiles"])
        row = body.add(body.mul(along, v["rows"]), body.min(along, v["extra"]))
        wanted = body.add(v["rows"], body.select(body.less(along, v["extra"]), 1, 0))
        number = body.add(self.line0, line)
        rows = body.min(wanted, body.sub(body.sub(v["out_lines"], body.mul(number, v["line_width"])), row))
        pitch = body.mul(body.mul(v["copied"], v["advance"]), LINE)
        a = body.at(self.scratch, body.mul(line, pitch), body.mul(row, v["lda"]))
        with body.when(body.less(0, rows)):
            moved = [(number, v["line_c"]), (self.plane, v["plane_c"]), (self.image, v["image_c"]), (row, v["ldc"])]
            c = body.at(self.c, *(body.mul(i, step) for i, step in moved))
            places = self._places([(row, 1), (number, 2), (self.plane, 3), (self.image, 4)])
            with body.when(block.is_last):
                self._fetch(c, places, rows)
            first = body.add(body.mul(number, v["line_width"]), row)
            across = self._across(first, body.add(first, body.sub(wanted, 1)))
            self._inside(a, rows, block, self._span("lines_at", number), across)
            with body.when(block.is_last):
                self._finish(c, places, rows)

    def _across(self, first: Value, last: Value) -> tuple[Value, Value]:
        """The kernel's columns [low, high) that some pixel of `first` to `last` sees inside the image."""
        body, v = self.body, self.v
        step, kernel = v["dilation"], v["kernel_width"]
        before = body.sub(v["pad_pixel"], body.mul(last, v["stride"]))  # from the last pixel to the image's first column
        behind = body.sub(body.add(v["pad_pixel"], v["width"]), body.mul(first, v["stride"]))
        low, high = body.cell(0, "from"), body.cell(kernel, "to")
        whole = body.less(body.mul(body.sub(kernel, 1), step), behind)
        with body.when(body.b.or_(body.less(0, before), body.b.not_(whole))):
            left, right = (body.div(body.add(body.max(n, 0), body.sub(step, 1)), step) for n in (before, behind))
            low.set(body.min(left, kernel))
            high.set(body.min(body.max(right, low.get()), kernel))
        return low.get(), high.get()

    def _inside(
        self, a: Value, rows: Value, block: Block, lines: tuple[Value, Value], across: tuple[Value, Value]
    ) -> None:  # fmt: skip
        """Those parts of a block that lie inside the image: in one call, or line by line where some pixels are outside."""
        body, fields = self.body, block.fields
        tap_nbytes = body.mul(self.ldb, STEPS)
        z_low, z_high = self.inside_planes
        part = body.less(0, fields["pixel_taps"])
        outside = body.b.or_(body.less(fields["plane"], z_low), body.less(body.sub(z_high, 1), fields["plane"]))
        low = body.min(body.max(body.sub(lines[0], fields["line"]), 0), fields["lines"])
        high = body.max(body.min(body.sub(lines[1], fields["line"]), fields["lines"]), low)
        high = body.select(outside, low, high)
        low, high = body.select(part, low, 0), body.select(part, high, 1)
        left = body.mul(across[0], fields["pixel_taps"])
        width = body.select(part, body.sub(body.mul(across[1], fields["pixel_taps"]), left), fields["line_taps"])
        whole = body.equal(width, fields["line_taps"])
        none = body.b.or_(body.equal(low, high), body.equal(width, 0))
        taps = body.select(none, 0, body.select(whole, body.mul(body.sub(high, low), width), width))
        calls = body.select(body.b.or_(whole, none), 1, body.sub(high, low))
        first = body.add(body.mul(low, fields["line_taps"]), left)
        if not has_long_blocks(self.module.target):
            self._lines_inside(a, rows, block, tap_nbytes, (first, taps, calls), body.select(block.is_first, 0, 1))
            return
        every = body.b.and_(whole, body.equal(body.sub(high, low), fields["lines"]))
        parts = body.select(body.b.or_(every, none), 1, fields["parts"])
        taps = body.select(body.b.and_(every, body.b.not_(none)), fields["taps"], taps)
        with body.loop(0, parts) as i:
            begins = body.b.and_(block.is_first, body.equal(i, 0))
            found = body.add(first, body.mul(i, fields["part_taps"])), taps, calls
            self._lines_inside(a, rows, block, tap_nbytes, found, body.select(begins, 0, 1))

    def _lines_inside(
        self, a: Value, rows: Value, block: Block, tap_nbytes: Value, found: tuple[Value, Value, Value], accumulate: Value
    ) -> None:  # fmt: skip
        """Some calls, line by line; `found` has the first one's first tap in the block, the taps of each, and the calls."""
        body, (first, taps, calls) = self.body, found
        with body.loop(0, calls) as i:
            tap = body.add(first, body.mul(i, block.fields["line_taps"]))
            table = body.at(self.v["taps"], body.mul(body.add(block.tap, tap), 8))
            following = body.select(body.equal(i, 0), accumulate, 1)
            self._multiply(a, body.at(block.b, body.mul(tap, tap_nbytes)), block.rest, table, taps, following, block, rows)
