"""Convolutions whose sums are cut into blocks (`stepped`): pointwise ones where the input lies, others through a copy of it.

Packed weights are [panel][step][columns of the panel], steps in the order of the taps. One block of a panel, some 128 steps,
stays in the first-level cache while the tiles of a group go past it; their sums wait on the stack.

- `rows_text`: C[m, n] = epilogue(A[m, :] B), A in rows. Work is cut into tiles in the order chunk of tiles, panel, tile.
- `window_text`: a thread copies the input of some lines of the output, with its border, into memory of its own, as
  [block of channels][line][pixel][a cache line of channels]: there a tile's rows are neighbouring lines of the cache, whatever
  the number of channels. Work is cut into panels of chunks of lines. Where a line is all there is (one spatial axis), segments
  of it are the lines.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intarsia.codegen.body import Value
from intarsia.codegen.conv import ConvShape
from intarsia.codegen.engine import KernelText
from intarsia.codegen.finish import itemsize
from intarsia.codegen.gemm import A_RESIDENT_NBYTES, Gemm, GemmSpec, Operand
from intarsia.codegen.microkernel import PARAMETERS, Tile
from intarsia.codegen.pack import pack_matrix
from intarsia.codegen.stepped import STEPS
from intarsia.codegen.target import Target
from intarsia.graph.dtypes import DType

_LINE = 64  # bytes of a pixel's channels in a block
_GROUP = 32  # tiles whose sums wait at once
_BLOCK_TAPS = 18  # of a block of steps, about: two for every pixel of a 3 x 3 window
_CHUNK_NBYTES = 3 << 18  # of a thread's copy
_SEGMENT = 112  # pixels of a segment of a line, at most
_ROWS_FIELDS = ("micro a lda b near c ldc m n taps units per rest blocks panel_nbytes tiles rows extra chunk panels").split()
_WINDOW_FIELDS = (
    "micro x lda b near c ldc m n taps units per rest blocks panel_nbytes tiles rows extra chunks lines panels "
    "scratch scratch_nbytes chunk_lines out_lines batch grain line_c line_width image_c advance extent line_step pad_line "
    "line_count line_x line_pixels pad_pixel width pixel_step copied x_pixel image_x channels plane_nbytes"
).split()


def _check(spec: GemmSpec) -> Tile:
    if spec.tile is None or spec.b_layout != "packed" or spec.dtype not in (DType.FLOAT, DType.DOUBLE):
        raise ValueError(f"blocked products are of FLOAT or DOUBLE by packed weights, in a tile that is given; got {spec}")
    return spec.tile


def _blocks(units: int, least: int) -> tuple[int, int]:
    """How many taps a block has, and how many blocks there are; `least` taps belong together."""
    per = least * max(1, _BLOCK_TAPS // least)
    if least > 2 * _BLOCK_TAPS:
        per = math.ceil(least / round(least / _BLOCK_TAPS))
    count = max(1, -(-units // per))
    if least == 1:
        per = -(-units // count)
    return max(1, per), count


# --- pointwise ----------------------------------------------------------------------------------------------------


def row_taps(dtype: DType) -> np.ndarray:
    """The taps of a block of `rows_text`: int64 bytes."""
    return np.arange(_BLOCK_TAPS + 1, dtype=np.int64) * STEPS * itemsize(dtype)


def row_blocks(k: int) -> tuple[int, int, int, int]:
    """How a sum of k products is cut: taps, taps of a block, single steps behind the last one, blocks."""
    per, blocks = _blocks(k // STEPS, 1)
    return k // STEPS, per, k % STEPS, blocks


def rows_args(
    spec: GemmSpec,
    *,
    micro: int,
    a: int,
    b: int,
    c: int,
    m: int,
    n: int,
    k: int,
    taps: int,
    lda: int | None = None,
    ldc: int | None = None,
    operands: Sequence[Operand] = (),
    threads: int = 1,
) -> list[int]:
    """The arguments of `rows_text` for C[M, N] = A[M, K] B[K, N]; `taps` is the address of `row_taps`."""
    tile = _check(spec)
    size, out_size = tile.itemsize, itemsize(spec.epilogue.dtype if spec.epilogue else spec.dtype)
    lda, ldc = lda or k * size, ldc or n * out_size
    tiles, panels = -(-m // tile.rows), -(-n // tile.width)
    chunks = min(max(1, tiles), max(1, -(-(lda * m) // A_RESIDENT_NBYTES)))
    if lda * m + ldc * m > k * n * size and tiles >= 2 * threads:
        chunks = -(-chunks // threads) * threads
    even = m // max(1, tiles)
    args = [
        micro, a, lda, b, lda * even, c, ldc, m, n, taps, *row_blocks(k), k * tile.width * size, tiles, even, m % max(1, tiles),
        max(1, -(-tiles // chunks)), panels,
    ]  # fmt: skip
    for operand in operands:
        args.extend(operand)
    return args


@functools.lru_cache(maxsize=1024)
def rows_text(spec: GemmSpec, target: Target) -> KernelText:
    """The kernel for A in rows; its arguments are `rows_args`, the micro-kernel `stepped.stepped_micro_text`."""
    return _Rows(spec, target).text()


class _Rows(Gemm):
    fields: Sequence[str] = _ROWS_FIELDS
    pointers: Sequence[str] = ("micro", "a", "b", "c", "taps")

    def text(self) -> KernelText:
        body = self.body
        _, tid, nthreads = body.args
        self.read_arguments()
        v = self.v
        self.sums = body.alloca(_GROUP * self.tile.nbytes)
        first, last = body.share(body.mul(v["tiles"], v["panels"]), tid, nthreads)
        unit = body.cell(first, "unit")
        with body.repeat_while(lambda: body.less(unit.get(), last)):
            unit.add(self._panel(unit.get(), last))
        body.b.ret_void()
        return self.module.text("rows")

    def _panel(self, unit: Value, last: Value, per_batch: Value | None = None) -> Value:
        """The tiles of one panel from `unit` on; returns how many."""
        body, v = self.body, self.v
        chunk_units = body.mul(v["chunk"], v["panels"])
        chunk, inside = body.div(unit, chunk_units), body.rem(unit, chunk_units)
        first_tile = body.mul(chunk, v["chunk"])
        tiles = body.min(v["chunk"], body.sub(v["tiles"], first_tile))
        panel, start = body.div(inside, tiles), body.rem(inside, tiles)
        count = body.min(body.sub(tiles, start), body.sub(last, unit))
        self._stand(panel)
        self._groups(body.add(first_tile, start), count)
        return count

    def _stand(self, panel: Value) -> None:
        """At a panel: its weights, and its columns of the output and of the operands."""
        body, v, tile = self.body, self.v, self.tile
        column = body.mul(panel, tile.width)
        self.columns = body.min(body.sub(v["n"], column), tile.width)
        self.vectors = body.div(body.add(self.columns, tile.lanes - 1), tile.lanes)
        self.ldb = body.mul(self.vectors, tile.lanes * tile.itemsize)
        self.b = body.at(v["b"], body.mul(panel, v["panel_nbytes"]))
        self.c = body.at(v["c"], body.mul(column, self.finish.itemsize))
        self.bases = []
        for kind, dtype, operand in zip(self.finish.kinds, self.finish.dtypes, self.operands, strict=True):
            offset = body.mul(column, itemsize(dtype)) if kind in ("column", "full") else 0
            self.bases.append(body.at(operand[0], offset))

    def _groups(self, first: Value, count: Value) -> None:
        """Tiles from `first` on by one panel: a group after the other, each block by block."""
        body, v = self.body, self.v
        tap_nbytes = body.mul(self.ldb, STEPS)
        with body.loop(0, count, _GROUP) as start:
            number = body.min(_GROUP, body.sub(count, start))
            pace = body.div(body.add(tap_nbytes, body.sub(number, 1)), number)
            with body.loop(0, v["blocks"]) as block:
                tap = body.mul(block, v["per"])
                taps = body.min(v["per"], body.sub(v["units"], tap))
                final = body.equal(body.add(block, 1), v["blocks"])
                rest = body.select(final, v["rest"], 0)
                b = body.at(self.b, body.mul(tap, tap_nbytes))
                ahead = body.at(b, body.mul(taps, tap_nbytes), body.mul(rest, self.ldb))
                accumulate = body.select(body.equal(block, 0), 0, 1)
                with body.loop(0, number) as i:
                    tile = body.add(first, body.add(start, i))
                    self.buffer = body.at(self.sums, body.mul(i, self.tile.nbytes))
                    fetch = body.at(ahead, body.mul(body.mul(i, taps), pace))
                    self._tile(tile, tap, [b, v["near"], rest], taps, [accumulate, fetch, pace], final)

    def _multiply(self, a: Value, right: list[Value], taps: Value, count: Value, more: list[Value], rows: Value) -> None:
        body, v = self.body, self.v
        accumulate, fetch, pace = more
        body.call_pointer(
            v["micro"], PARAMETERS,
            [a, v["lda"], *right, taps, count, self.buffer, accumulate, fetch, pace, rows, self.vectors],
        )  # fmt: skip

    def _tile(self, tile: Value, tap: Value, right: list[Value], taps: Value, more: list[Value], final: Value) -> None:
        """One block of one tile's sums, and the tile's end behind its last block."""
        body, v = self.body, self.v
        row = body.add(body.mul(tile, v["rows"]), body.min(tile, v["extra"]))
        rows = body.add(v["rows"], body.select(body.less(tile, v["extra"]), 1, 0))
        a = body.at(v["a"], body.mul(row, v["lda"]), body.mul(tap, STEPS * self.tile.itemsize))
        c = body.at(self.c, body.mul(row, v["ldc"]))
        places = self._places([(row, 1)])
        with body.when(final):
            self._fetch(c, places, rows)
        self._multiply(a, right, v["taps"], taps, more, rows)
        with body.when(final):
            self._finish(c, places, rows)

    def _places(self, place: list[tuple[Value, int]]) -> list[Value]:
        """Where a tile's operands are; `place` has its numbers of rows, lines and images, and their fields of an operand."""
        body = self.body
        return [
            body.at(base, *(body.mul(i, operand[level]) for i, level in place)) if kind in ("row", "full") else base
            for kind, base, operand in zip(self.finish.kinds, self.bases, self.operands, strict=True)
        ]

    def _fetch(self, c: Value, places: list[Value], rows: Value) -> None:
        """Fetch the operands of a tile's end, which the layers before wrote, maybe on another core, and where it will store."""
        body, width = self.body, self.tile.width
        with body.loop(0, rows) as i:
            for j in range(0, width * self.finish.itemsize, _LINE):
                body.prefetch(body.at(c, body.mul(i, self.v["ldc"]), j), write=True)
            for kind, dtype, place, operand in zip(self.finish.kinds, self.finish.dtypes, places, self.operands, strict=True):
                if kind == "full":
                    for j in range(0, width * itemsize(dtype), _LINE):
                        body.prefetch(body.at(place, body.mul(i, operand[1]), j))

    def _finish(self, c: Value, places: list[Value], rows: Value) -> None:
        """The epilogue of a tile."""
        body = self.body
        with body.either(body.equal(self.columns, self.tile.width)) as (whole, partial):
            with whole:
                self._rows_whole(c, places, rows)
            with partial:
                self._rows_partial(c, places, rows)


# --- windows ------------------------------------------------------------------------------------------------------


def takes_windows(channels: int, dtype: DType) -> bool:
    """Whether so many channels fill enough of a block."""
    return channels * itemsize(dtype) >= _LINE // 2


def pack_windows(weights: np.ndarray, tile: Tile) -> np.ndarray:
    """ONNX weights [M, C, *kernel] as panels, steps in the order [block of channels][kernel][channel], padded with zeros."""
    filters, channels = weights.shape[:2]
    each, padded = _LINE // tile.itemsize, _padded_channels(channels)
    w = np.zeros((filters, padded, math.prod(weights.shape[2:])), weights.dtype)
    w[:, :channels] = weights.reshape(filters, channels, -1)
    parts = [w[:, at : at + each].transpose(2, 1, 0).reshape(-1, filters) for at in range(0, padded, each)]
    return pack_matrix(np.concatenate(parts), tile)


def _padded_channels(channels: int) -> int:
    return -(-channels // STEPS) * STEPS


@dataclass(frozen=True)
class _Plan:
    """How a convolution's output is cut: lines (or segments) of `width` pixels, `chunk` of them at a time."""

    lines: int
    width: int
    chunk: int
    copied_lines: int
    copied: int  # pixels of a copied line
    plane_nbytes: int
    nbytes: int


@functools.lru_cache(maxsize=1024)
def _plan(spec: GemmSpec, shape: ConvShape, threads: int) -> _Plan:
    tile = _check(spec)
    s = shape.as_3d()
    (_, out_height, out_width), (_, height, width) = s.output, s.kernel
    flat = out_height == 1 and height == 1 and s.spatial[1] == 1
    lines, pixels = out_height, out_width
    if flat and out_width > _SEGMENT:
        each = -(-out_width // -(-out_width // _SEGMENT))
        pixels = -(-each // tile.rows) * tile.rows
        lines = -(-out_width // pixels)
    copied = pixels if width == 1 else (pixels - 1) * s.strides[2] + (width - 1) * s.dilations[2] + 1
    blocks = -(-s.channels * tile.itemsize // _LINE)
    advance = s.strides[1] if height > 1 else 1
    extent = (height - 1) * s.dilations[1] + 1
    line_nbytes = copied * _LINE * blocks
    # Lines that chunks share are copied for each: at least as many are computed at once.
    most = max(1, (_CHUNK_NBYTES // max(1, line_nbytes) - extent) // advance + 1, (extent - 1) // advance)
    chunks = -(-lines // most)
    filters = s.filters * tile.itemsize
    x_nbytes = s.batch * math.prod(s.spatial) * s.channels * tile.itemsize
    weights_nbytes = math.prod(s.kernel) * s.channels * filters
    if x_nbytes + s.batch * out_height * out_width * filters > weights_nbytes and s.batch % threads:
        chunks = min(lines, -(-chunks // threads) * threads)
    chunk = -(-lines // chunks)
    copied_lines = (chunk - 1) * advance + extent
    plane = copied_lines * copied * _LINE
    return _Plan(lines, pixels, chunk, copied_lines, copied, plane, plane * blocks)


def window_taps(spec: GemmSpec, shape: ConvShape, threads: int) -> np.ndarray:
    """The taps of `window_text`, int64 bytes; `threads` as `window_args` is given it."""
    plan, s = _plan(spec, shape, threads), shape.as_3d()
    each = _LINE // _check(spec).itemsize
    ys, xs = (np.arange(k) * d for k, d in zip(s.kernel[1:], s.dilations[1:], strict=True))
    pixels = ((ys[:, None] * plan.copied + xs) * _LINE).reshape(-1, 1)
    padded, parts = _padded_channels(s.channels), []
    for number, at in enumerate(range(0, padded, each)):
        steps = np.arange(0, min(each, padded - at), STEPS) * _check(spec).itemsize
        parts.append((number * plan.plane_nbytes + pixels + steps).reshape(-1))
    return np.concatenate([*parts, np.zeros(1, np.int64)]).astype(np.int64)


def window_scratch_nbytes(spec: GemmSpec, shape: ConvShape, threads: int) -> int:
    """Bytes of scratch for every thread."""
    return _plan(spec, shape, threads).nbytes


def window_args(
    spec: GemmSpec,
    shape: ConvShape,
    *,
    micro: int,
    x: int,
    weights: int,
    y: int,
    taps: int,
    scratch: int,
    operands: Sequence[Operand] = (),
    threads: int = 1,
) -> list[int]:
    """The arguments of `window_text`: addresses of the input (without border), of `pack_windows`' result, the output and
    `window_taps`; `operands` as `window_operand` gives them; `threads`: how many are expected (any number is right)."""
    tile, s = _check(spec), shape.as_3d()
    plan = _plan(spec, shape, threads)
    out_size = itemsize(spec.epilogue.dtype) if spec.epilogue else tile.itemsize
    (_, in_height, in_width), (_, out_height, out_width) = s.spatial, s.output
    x_pixel, y_pixel = s.channels * tile.itemsize, s.filters * out_size
    flat = plan.width < out_width or (plan.lines > 1 and out_height == 1)
    tall, wide = s.kernel[1] > 1, s.kernel[2] > 1
    padded = _padded_channels(s.channels)
    units = padded // STEPS * math.prod(s.kernel)
    per, blocks = _blocks(units, math.prod(s.kernel) * (_LINE // tile.itemsize // STEPS))
    tiles, panels = -(-plan.width // tile.rows), -(-s.filters // tile.width)
    even = plan.width // tiles
    chunks = -(-plan.lines // plan.chunk)
    lda = _LINE * (s.strides[2] if wide else 1)
    units_of_work = s.batch * chunks * panels
    grain = panels if s.batch * chunks % threads == 0 or s.batch * chunks >= 4 * threads else -(-units_of_work // threads)
    args = [
        micro, x, lda, weights, lda * even, y, y_pixel, plan.width, s.filters, taps, units, per, 0, blocks,
        padded * math.prod(s.kernel) * tile.width * tile.itemsize, tiles, even, plan.width % tiles, chunks, plan.lines, panels,
        scratch, plan.nbytes, plan.chunk, out_width, s.batch, grain, y_pixel * plan.width if flat else y_pixel * out_width,
        plan.width if flat else 0, y_pixel * out_width * out_height, s.strides[1] if tall else 1,
        (s.kernel[1] - 1) * s.dilations[1] + 1, 1 if tall or flat else s.strides[1], 0 if flat else s.pads[1],
        plan.lines if flat else in_height, 0 if flat else x_pixel * in_width, plan.width * s.strides[2] if flat else 0,
        s.pads[2], in_width, 1 if wide else s.strides[2], plan.copied, x_pixel, x_pixel * in_width * in_height, s.channels,
        plan.plane_nbytes,
    ]  # fmt: skip
    for operand in operands:
        args.extend(operand)
    return args


def window_operand(spec: GemmSpec, kind: str, dtype: DType, address: int, shape: ConvShape, threads: int) -> Operand:
    """An epilogue operand: "column" [M], "full" [N, ..., M] dense, or "scalar"."""
    if kind in ("column", "scalar"):
        return Operand(address)
    if kind != "full":
        raise ValueError(f"a convolution's epilogue takes operands of kind column, full or scalar; got {kind!r}")
    plan, s = _plan(spec, shape, threads), shape.as_3d()
    _, out_height, out_width = s.output
    pixel = s.filters * itemsize(dtype)
    return Operand(address, pixel, pixel * min(plan.width, out_width), pixel * out_width * out_height)


@functools.lru_cache(maxsize=1024)
def window_text(spec: GemmSpec, target: Target) -> KernelText:
    """The kernel for windows; its arguments are `window_args`, the micro-kernel `stepped.stepped_micro_text`."""
    return _Windows(spec, target).text()


class _Windows(_Rows):
    fields = _WINDOW_FIELDS
    pointers = ("micro", "x", "b", "c", "taps", "scratch")

    def text(self) -> KernelText:
        body = self.body
        _, tid, nthreads = body.args
        self.read_arguments()
        v = self.v
        self.sums = body.alloca(_GROUP * self.tile.nbytes)
        self.scratch = body.at(v["scratch"], body.mul(tid, v["scratch_nbytes"]))
        units = body.mul(body.mul(v["batch"], v["chunks"]), v["panels"])
        first, last = body.share(body.div(body.add(units, body.sub(v["grain"], 1)), v["grain"]), tid, nthreads)
        last = body.min(body.mul(last, v["grain"]), units)
        unit = body.cell(body.mul(first, v["grain"]), "unit")
        with body.repeat_while(lambda: body.less(unit.get(), last)):
            chunk, panel = body.div(unit.get(), v["panels"]), body.rem(unit.get(), v["panels"])
            count = body.min(body.sub(v["panels"], panel), body.sub(last, unit.get()))
            self.image = body.div(chunk, v["chunks"])
            self.line0 = body.mul(body.rem(chunk, v["chunks"]), v["chunk_lines"])
            lines = body.min(v["chunk_lines"], body.sub(v["lines"], self.line0))
            with body.when(body.less(0, lines)):
                self._copy(lines)
                with body.loop(panel, body.add(panel, count)) as number:
                    self._stand(number)
                    self._groups(body.i(0), body.mul(lines, v["tiles"]))
            unit.add(count)
        body.b.ret_void()
        return self.module.text("windows")

    def _copy(self, lines: Value) -> None:
        """The input of so many lines of the output, zeros outside."""
        body, v = self.body, self.v
        count = body.add(body.mul(body.sub(lines, 1), v["advance"]), v["extent"])
        source = body.at(v["x"], body.mul(self.image, v["image_x"]))
        with body.loop(0, count) as line:
            index = body.add(body.mul(self.line0, v["advance"]), line)
            at = body.sub(body.mul(index, v["line_step"]), v["pad_line"])
            pixel = body.sub(body.mul(at, v["line_pixels"]), v["pad_pixel"])
            inside = body.b.icmp_unsigned("<", at, v["line_count"])
            # Pixels low to high - 1 of the copy are inside: 0 <= pixel + i * step < width.
            step = v["pixel_step"]
            low = body.min(body.div(body.add(body.max(body.sub(0, pixel), 0), body.sub(step, 1)), step), v["copied"])
            left = body.max(body.sub(v["width"], pixel), 0)
            high = body.min(body.div(body.add(left, body.sub(step, 1)), step), v["copied"])
            high = body.max(body.select(inside, high, 0), low)
            origin = body.at(source, body.mul(at, v["line_x"]), body.mul(pixel, v["x_pixel"]))
            target = body.at(self.scratch, body.mul(body.mul(line, v["copied"]), _LINE))
            each = _LINE // self.tile.itemsize
            with body.loop(0, v["channels"], each) as channel:
                number = body.div(channel, each)
                out = body.at(target, body.mul(number, v["plane_nbytes"]))
                begin = body.at(origin, body.mul(channel, self.tile.itemsize))
                body.fill(out, body.mul(low, _LINE))
                body.fill(body.at(out, body.mul(high, _LINE)), body.mul(body.sub(v["copied"], high), _LINE))
                masks = [
                    body.mask(body.sub(v["channels"], body.add(channel, j)), self.tile.lanes)
                    for j in range(0, each, self.tile.lanes)
                ]
                stride = body.mul(step, v["x_pixel"])
                with body.loop(low, high) as i:
                    for j, mask in enumerate(masks):
                        offset = j * self.tile.lanes * self.tile.itemsize
                        place = body.at(begin, body.mul(i, stride), offset)
                        value = body.load_masked(place, mask, self.spec.dtype, self.tile.lanes)
                        body.store(value, body.at(out, body.mul(i, _LINE), offset), self.spec.dtype)

    def _tile(self, tile: Value, tap: Value, right: list[Value], taps: Value, more: list[Value], final: Value) -> None:
        body, v = self.body, self.v
        line, along = body.div(tile, v["tiles"]), body.rem(tile, v["tiles"])
        row = body.add(body.mul(along, v["rows"]), body.min(along, v["extra"]))
        rows = body.add(v["rows"], body.select(body.less(along, v["extra"]), 1, 0))
        number = body.add(self.line0, line)
        rows = body.min(rows, body.sub(body.sub(v["out_lines"], body.mul(number, v["line_width"])), row))
        pitch = body.mul(body.mul(v["copied"], v["advance"]), _LINE)
        a = body.at(self.scratch, body.mul(line, pitch), body.mul(row, v["lda"]))
        with body.when(body.less(0, rows)):
            c = body.at(self.c, body.mul(self.image, v["image_c"]), body.mul(number, v["line_c"]), body.mul(row, v["ldc"]))
            places = self._places([(row, 1), (number, 2), (self.image, 3)])
            with body.when(final):
                self._fetch(c, places, rows)
            self._multiply(a, right, body.at(v["taps"], body.mul(tap, 8)), taps, more, rows)
            with body.when(final):
                self._finish(c, places, rows)
