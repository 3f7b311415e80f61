"""A and B of products by words (`vnni_kernel`): 32 bits that hold two bfloat16 or four bytes which follow each other along k.

A row of A is `runs` pieces of `length` numbers, each at its own displacement: one for a matrix, and for a convolution's windows
one for each line of the kernel. A run is filled up with zeros to whole lines of 16 words; a row has runs * lines * 16 words.

Packed A is [block of k][strip of rows][line][row of the strip][16 words], so that a strip's line is a tile of AMX, and any word
of it lies at a fixed distance from another's. The last strip repeats the last row. B is packed by `pack_b.pack_matrix`, a word
being an element: a tile of AMX, too (16 words along k, 16 columns).
"""

from __future__ import annotations

import functools

import numpy as np

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common.panels import pack_matrix
from intarsia.providers.cpu.kernels.common.tiles import Tile

LINE_NBYTES, LINE_WORDS = 64, 16
_FIELDS = "source packed m runs displacements length block pixel columns line lines image".split()


@dataclass(frozen=True)
class Rows:
    """How rows of A lie in memory: `columns` of them `pixel` bytes apart, `lines` of these by `line`, these by `image`."""

    length: int
    pixel: int
    displacements: tuple[int, ...] = (0,)
    columns: int = 1 << 40
    line: int = 0
    lines: int = 1
    image: int = 0


def per_line(source: DType) -> int:
    """Numbers of a line: of FLOAT, which are rounded to bfloat16, or of bytes."""
    return 32 if source is DType.FLOAT else 64


def words(length: int, runs: int, source: DType) -> int:
    """32-bit words of a row."""
    return runs * -(-length // per_line(source)) * LINE_WORDS


def pack_words(b: np.ndarray, tile: Tile, whole_lines: bool = True) -> np.ndarray:
    """Panels of [runs, length, N] of uint16 (bfloat16's bits) or int8; runs end with a whole line, or with a whole word."""
    runs, length, n = b.shape
    many = 4 // b.itemsize
    each = LINE_NBYTES // b.itemsize if whole_lines else many
    filled = np.zeros((runs, -(-length // each) * each, n), b.dtype)
    filled[:, :length] = b
    grouped = filled.reshape(-1, many, n)
    whole = np.ascontiguousarray(np.moveaxis(grouped, 1, 2)).view("<u4")[..., 0].view(np.uint32)
    return pack_matrix(whole, tile)


@functools.cache
def pack_strips_text(source: DType, rows: int, target: Target) -> KernelText:
    """The step that packs A of FLOAT, UINT8 or INT8 in strips of `rows` rows; see `pack_strips_args`."""
    return _Packing(source, rows, target).text()


def pack_strips_args(
    source: Address, packed: Address, m: int, rows: Rows, displacements: Address, block: int
) -> list[Argument]:
    """The step's arguments: addresses; how rows lie; words of a block of k.

    Args:
        displacements: the address of int64 [runs], `rows.displacements`.
    """
    return [
        source, packed, m, len(rows.displacements), displacements, rows.length, block, rows.pixel, rows.columns, rows.line,
        rows.lines, rows.image,
    ]  # fmt: skip


class _Packing:
    def __init__(self, source: DType, rows: int, target: Target) -> None:
        self.source, self.rows, self.each = source, rows, per_line(source)
        self.module = Module(target)
        self.body = self.module.kernel()
        pointers = ("source", "packed", "displacements")
        args, load, pointer = self.body.args[0], self.body.load_i64, self.body.load_pointer
        self.v = {name: pointer(args, i) if name in pointers else load(args, i) for i, name in enumerate(_FIELDS)}

    def text(self) -> KernelText:
        body, v = self.body, self.v
        _, tid, nthreads = body.args
        self.starts = body.alloca(8 * self.rows)
        each = body.div(body.add(v["length"], self.each - 1), self.each)
        lines, block = body.mul(v["runs"], each), body.div(v["block"], LINE_WORDS)
        blocks = body.div(body.add(lines, body.sub(block, 1)), body.max(block, 1))
        strips = body.div(body.add(v["m"], self.rows - 1), self.rows)
        first, last = body.share(body.mul(strips, blocks), tid, nthreads)
        with body.loop(first, last) as unit:
            strip, at = body.div(unit, blocks), body.rem(unit, blocks)
            start = body.mul(at, block)
            count = body.min(block, body.sub(lines, start))
            line_nbytes = LINE_NBYTES * self.rows
            before = body.add(body.mul(body.mul(start, strips), line_nbytes), body.mul(body.mul(strip, count), line_nbytes))
            out = body.at(v["packed"], before)
            self._find_rows(strip)
            with body.loop(0, count) as line:
                place = body.add(start, line)
                run, piece = body.div(place, each), body.rem(place, each)
                origin = body.load_i64(v["displacements"], run)
                done = body.mul(piece, self.each)
                offset = body.add(origin, body.mul(done, self.source.bits // 8))
                left = body.sub(v["length"], done)
                self._line(body.at(out, body.mul(line, line_nbytes)), offset, left)
        body.b.ret_void()
        return self.module.text("pack_strips")

    def _find_rows(self, strip: Value) -> None:
        """Where the strip's rows begin, into `starts`."""
        body, v = self.body, self.v
        with body.loop(0, self.rows) as r:
            row = body.min(body.add(body.mul(strip, self.rows), r), body.sub(v["m"], 1))
            column, rest = body.rem(row, v["columns"]), body.div(row, v["columns"])
            line, image = body.rem(rest, v["lines"]), body.div(rest, v["lines"])
            place = body.add(body.mul(column, v["pixel"]), body.add(body.mul(line, v["line"]), body.mul(image, v["image"])))
            body.b.store(place, body.at(self.starts, body.mul(r, 8)), align=8)

    def _line(self, out: Value, offset: Value, left: Value) -> None:
        """One line of all rows."""
        body = self.body
        with body.either(body.less(left, self.each)) as (partial, whole):
            for kind, count in ((partial, left), (whole, None)):
                with kind, body.loop(0, self.rows) as r:
                    start = body.load_i64(self.starts, r)
                    numbers = self._numbers(body.at(self.v["source"], start, offset), count)
                    body.b.store(numbers, body.at(out, body.mul(r, LINE_NBYTES)), align=LINE_NBYTES)

    def _numbers(self, place: Value, count: Value | None) -> Value:
        """A line of numbers, of which `count` exist, as 64 bytes."""
        body = self.body
        if self.source is not DType.FLOAT:
            if count is None:
                return body.load(place, DType.UINT8, LINE_NBYTES)
            return body.load_masked(place, body.mask(count, LINE_NBYTES), DType.UINT8, LINE_NBYTES)
        halves = []
        for first in (0, 16):
            at = body.at(place, 4 * first)
            if count is None:
                halves.append(body.load(at, DType.FLOAT, 16))
            else:
                halves.append(body.load_masked(at, body.mask(body.sub(count, first), 16), DType.FLOAT, 16))
        return rounded_pairs(body, halves[0], halves[1])


def rounded_pairs(body: Body, low: Value, high: Value) -> Value:
    """Two vectors of 16 float32 as one of 32 bfloat16 (their bits), rounded to the nearest, half to even."""
    if body.module.target.has_pairs:
        floats, pairs = ir_builder.VectorType(ir_builder.FloatType(), 16), ir_builder.VectorType(ir_builder.BFloatType(), 32)
        convert = body.intrinsic("llvm.x86.avx512bf16.cvtne2ps2bf16.512", pairs, [floats, floats])
        return body.b.bitcast(body.b.call(convert, [high, low]), ir_builder.VectorType(ir_builder.IntType(16), 32))
    emitter = body.emitter(16)
    first, second = (emitter.to_storage(x, DType.BFLOAT16) for x in (low, high))
    return body.shuffle(first, second, range(32))


def paired_words(body: Body, low: Value, high: Value) -> Value:
    """Two vectors of 16 float32 as 16 words of two bfloat16, lane by lane."""
    halves = rounded_pairs(body, low, high)
    mixed = body.shuffle(halves, halves, [i // 2 + 16 * (i % 2) for i in range(32)])
    return body.b.bitcast(mixed, ir_builder.VectorType(ir_builder.IntType(32), 16))
