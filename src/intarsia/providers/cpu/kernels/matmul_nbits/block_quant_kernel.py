"""Products by weights of 4 or 8 bits that stay packed: w = q * scale + offset, with a scale for every block along k.

q is a number, or a code of 4 bits for one of sixteen floats.

Packed B is, in the panels of `pack`, a column of 32-bit rows for each block: its scales, its offsets where the format has
zero points, and words of 8 or 4 signed numbers q, the first in the lowest bits. A few rows of A meet the numbers in
registers, so that B's bytes are read once and nothing else is; for more rows a panel is written out as float32 first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from intarsia.codegen.builder.kernel_body import Body, Index, Module, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.cached_kernel_text import cached_text
from intarsia.codegen.llvm.compile_ir import Effort
from intarsia.codegen.llvm.jit import SYMBOL_PLACEHOLDER, KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.cpu.kernels.common.microkernel import switched
from intarsia.providers.cpu.kernels.common.panels import pack_matrix
from intarsia.providers.cpu.kernels.common.tiles import Tile

DIRECT_ROWS = 4  # so many rows of A are multiplied by numbers in registers
UNPACK_PARAMETERS = ("p", "i", "p", "i")
_PANEL_PARAMETERS = ("p", "i", "p", "i", "p")
BLOCK_PARAMETERS = (*_PANEL_PARAMETERS, "i", "i")
_AHEAD_NBYTES = 4096


@dataclass(frozen=True)
class BlockFormat:
    """How weights are stored.

    Attributes:
        bits: of a number, 4 or 8.
        size: numbers of a block along k, a multiple of `each` (or K and more: one block).
        zeros: whether blocks have zero points that are not the middle of the range.
        table: what the sixteen codes of 4 bits stand for, if not for numbers; blocks of them are whole.
    """

    bits: int
    size: int
    zeros: bool
    table: tuple[float, ...] = ()

    @property
    def each(self) -> int:
        """Numbers in a word."""
        return 32 // self.bits

    @property
    def head(self) -> int:
        """Rows of a block before its words."""
        return 2 if self.zeros else 1

    def rows(self, k: int) -> int:
        """32-bit rows of a packed [K, N] matrix."""
        return -(-k // self.size) * self.head + self._words(k)

    def _words(self, k: int) -> int:
        whole, rest = divmod(k, self.size)
        return whole * -(-self.size // self.each) + -(-rest // self.each)


def are_finite(scales: Constant) -> bool:
    """Whether kernels that scale sums of a block may have these: an infinite scale makes NaN of the zeros that sums hide."""
    return bool(np.isfinite(scales.numpy()).all())


def pack_blocks(
    words: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, k: int, form: BlockFormat, tile: Tile
) -> np.ndarray:
    """Pack unsigned numbers for the kernel: int32, as `pack_matrix` gives it.

    Args:
        words: uint32 [N, blocks, words of a block], numbers or codes from the lowest bits up.
        scales: [N, blocks].
        zeros: zero points [N, blocks] where `form.zeros`.
    """
    n, blocks, _ = words.shape
    middle = 1 << (form.bits - 1)
    signed = words if form.table else words ^ np.uint32(int.from_bytes(bytes([{4: 0x88, 8: 0x80}[form.bits]] * 4), "little"))
    last = k - (blocks - 1) * form.size
    used, rest = divmod(last, form.each)
    if rest:
        signed[:, -1, used] &= np.uint32((1 << (rest * form.bits)) - 1)
    parts = [scales.astype(np.float32).view(np.uint32)[:, :, None]]
    if form.zeros:
        assert zeros is not None
        offsets = ((middle - zeros.astype(np.float64)) * scales.astype(np.float64)).astype(np.float32)
        parts.append(offsets.view(np.uint32)[:, :, None])
    rows = np.concatenate([*parts, signed], 2).reshape(n, -1)[:, : form.rows(k)]
    return pack_matrix(rows.T.view(np.int32), tile)


class _Words:
    """The numbers of a word, one after the other, as float32 vectors."""

    def __init__(self, body: Body, form: BlockFormat, lanes: int) -> None:
        self.body, self.form, self.lanes = body, form, lanes
        self.kind = ir_builder.VectorType(ir_builder.IntType(32), lanes)

    def load(self, pointer: Value) -> Value:
        return self.body.load(pointer, DType.INT32, self.lanes)

    def number(self, word: Value, index: int) -> Value:
        b, bits = self.body.b, self.form.bits
        if self.form.table or (bits == 4 and self.lanes == 16):
            return self._looked_up(word, index)
        left = 32 - bits * (index + 1)
        moved = b.shl(word, self._all(left)) if left else word
        return b.sitofp(b.ashr(moved, self._all(32 - bits)), self.body.vector_type(DType.FLOAT, self.lanes))

    def _looked_up(self, word: Value, index: int) -> Value:
        """VPERMPS takes an element by the lowest four bits of each lane: no sign to extend, nothing to convert."""
        body, b = self.body, self.body.b
        table = self.form.table or tuple(float(q - 16 if q > 7 else q) for q in range(16))
        moved = b.lshr(word, self._all(4 * index)) if index else word
        if self.lanes == 16:
            floats = body.vector_type(DType.FLOAT, 16)
            take = body.intrinsic("llvm.x86.avx512.permvar.sf.512", floats, [floats, self.kind])
            return b.call(take, [ir_builder.Constant(floats, list(table)), moved])
        return self._by_bits(table, moved)

    def _by_bits(self, table: tuple[float, ...], codes: Value) -> Value:
        """An element by the lowest four bits of each lane: halves of the table are chosen between, bit after bit."""
        b, floats = self.body.b, self.body.vector_type(DType.FLOAT, self.lanes)
        found: list[Value] = [ir_builder.Constant(floats, [number] * self.lanes) for number in table]
        for bit in range(4):
            is_set = b.icmp_signed("!=", b.and_(codes, self._all(1 << bit)), self._all(0))
            found = [b.select(is_set, odd, even) for even, odd in zip(found[::2], found[1::2], strict=True)]
        return found[0]

    def _all(self, value: int) -> Value:
        return ir_builder.Constant(self.kind, [value] * self.lanes)


@cached_text
def block_products(form: BlockFormat, tile: Tile, target: Target) -> KernelText:
    """Up to `DIRECT_ROWS` rows of A times one panel: (ptr a, i64 lda, ptr panel, i64 k, ptr tile, i64 rows, i64 vectors), tile
    [rows][vectors * lanes]. Each number of rows and vectors is a module of its own, and all products by such weights have these
    in common, whatever their sizes and ends are."""
    module = Module(target)
    effort = Effort.ALL if form.zeros else Effort.VECTORS  # sums of A's rows gain by all passes
    functions = {}
    for rows in range(1, DIRECT_ROWS + 1):
        for vectors in range(1, tile.vectors + 1):
            body = Module(target).function(SYMBOL_PLACEHOLDER, _PANEL_PARAMETERS, internal=False)
            _Direct(body, form, tile.lanes, rows, vectors).emit()
            part = body.module.text(f"blocks_{rows}x{vectors}", effort)
            functions[rows * tile.vectors + vectors] = module.part(part, _PANEL_PARAMETERS)
    entry = module.function(SYMBOL_PLACEHOLDER, BLOCK_PARAMETERS, internal=False)
    *shared, height, width = entry.args
    switched(entry, entry.add(entry.mul(height, tile.vectors), width), functions, shared)
    entry.b.ret_void()
    return module.text("blocks", Effort.CODE)


class _Direct:
    def __init__(self, body: Body, form: BlockFormat, lanes: int, rows: int, vectors: int) -> None:
        self.body, self.form, self.lanes, self.rows, self.vectors = body, form, lanes, rows, vectors
        self.cells = rows * vectors
        self.sets = max(1, min(4, 8 // self.cells))  # of accumulators, to hide the latency
        self.words = _Words(body, form, lanes)
        self.row_nbytes = vectors * lanes * 4

    def emit(self) -> None:
        body, form = self.body, self.form
        a, lda, panel, k, tile = body.args
        self.rows_of_a = [body.at(a, body.mul(lda, i)) if i else a for i in range(self.rows)]
        state = [body.zero(DType.FLOAT, self.lanes)] * self.cells + [panel]
        with body.carry(0, k, form.size, state) as start:
            self._block(state, start, body.min(form.size, body.sub(k, start)))
        for index in range(self.cells):
            body.store(state[index], body.at(tile, index * self.lanes * 4), DType.FLOAT)
        body.b.ret_void()

    def _block(self, state: list[Value], start: Value, length: Value) -> None:
        body, form, lanes = self.body, self.form, self.lanes
        panel = state[-1]
        heads = [
            [body.load(body.at(panel, h * self.row_nbytes + j * lanes * 4), DType.FLOAT, lanes) for j in range(self.vectors)]
            for h in range(form.head)
        ]
        zero = body.zero(DType.FLOAT, lanes)
        sums = [zero] * (self.cells * self.sets)
        sums.append(body.at(panel, form.head * self.row_nbytes))
        complete = body.div(length, form.each)
        with body.carry(0, complete, 1, sums) as group:
            self._group(sums, body.add(start, body.mul(group, form.each)), None)
        with body.carry(complete, body.div(body.add(length, form.each - 1), form.each), 1, sums) as group:
            self._group(sums, body.add(start, body.mul(group, form.each)), body.sub(body.add(start, length), 1))
        totals = [self._row_total(row, start, length) for row in self.rows_of_a] if form.zeros else []
        for i in range(self.rows):
            for j in range(self.vectors):
                at = i * self.vectors + j
                total = self._folded(sums[at : self.cells * self.sets : self.cells])
                state[at] = body.fma(total, heads[0][j], state[at], DType.FLOAT, lanes)
                if form.zeros:
                    state[at] = body.fma(totals[i], heads[1][j], state[at], DType.FLOAT, lanes)
        state[-1] = sums[-1]

    def _folded(self, parts: list[Value]) -> Value:
        total = parts[0]
        for part in parts[1:]:
            total = self.body.b.fadd(total, part)
        return total

    def _group(self, sums: list[Value], first: Value, last: Value | None) -> None:
        """One word of every column; elements of A behind `last` are not read."""
        body, form, lanes = self.body, self.form, self.lanes
        pointer = sums[-1]
        words = [self.words.load(body.at(pointer, j * lanes * 4)) for j in range(self.vectors)]
        for j in range(0, self.row_nbytes, 64):
            body.prefetch(body.at(pointer, _AHEAD_NBYTES + j), 3)
        for index in range(form.each):
            at: Index = body.add(first, index)
            offset = body.mul(at if last is None else body.min(at, last), 4)
            numbers = [self.words.number(word, index) for word in words]
            chosen = index % self.sets
            for i, row in enumerate(self.rows_of_a):
                scalar = body.broadcast(body.at(row, offset), DType.FLOAT, lanes)
                for j in range(self.vectors):
                    cell = chosen * self.cells + i * self.vectors + j
                    sums[cell] = body.fma(scalar, numbers[j], sums[cell], DType.FLOAT, lanes)
        sums[-1] = body.at(pointer, self.row_nbytes)

    def _row_total(self, row: Value, start: Value, length: Value) -> Value:
        """The sum of a block of a row, in all lanes."""
        body, lanes = self.body, self.lanes
        place = body.at(row, body.mul(start, 4))
        parts: list[Value] = [body.zero(DType.FLOAT, lanes)]
        with body.carry(0, length, lanes, parts) as at:
            there = body.mask(body.sub(length, at), lanes)
            part = body.load_masked(body.at(place, body.mul(at, 4)), there, DType.FLOAT, lanes)
            parts[0] = body.b.fadd(parts[0], part)
        total, distance = parts[0], lanes // 2
        while distance:
            total = body.b.fadd(total, body.shuffle(total, total, [i ^ distance for i in range(lanes)]))
            distance //= 2
        return total


@cached_text
def unpack_text(form: BlockFormat, tile: Tile, target: Target) -> KernelText:
    """Write a panel as float32 [K, and up to a word more][vectors * lanes]: (ptr panel, i64 k, ptr out, i64 vectors)."""
    body = Module(target).function(SYMBOL_PLACEHOLDER, UNPACK_PARAMETERS, internal=False)
    panel, k, out, vectors = body.args
    lanes, vector_nbytes = tile.lanes, tile.lanes * 4
    words = _Words(body, form, lanes)
    row_nbytes = body.mul(vectors, vector_nbytes)
    with body.loop(0, vectors) as j:
        state = [body.at(panel, body.mul(j, vector_nbytes)), body.at(out, body.mul(j, vector_nbytes))]
        with body.carry(0, k, form.size, state) as start:
            scale = body.load(state[0], DType.FLOAT, lanes)
            offset = body.load(body.at(state[0], row_nbytes), DType.FLOAT, lanes) if form.zeros else None
            inner = [body.at(state[0], body.mul(row_nbytes, form.head)), state[1]]
            length = body.min(form.size, body.sub(k, start))
            with body.carry(0, body.div(body.add(length, form.each - 1), form.each), 1, inner):
                word = words.load(inner[0])
                for index in range(form.each):
                    number = words.number(word, index)
                    if offset is None:
                        value = body.b.fmul(number, scale)
                    else:
                        value = body.fma(number, scale, offset, DType.FLOAT, lanes)
                    body.store(value, inner[1], DType.FLOAT)
                    inner[1] = body.at(inner[1], row_nbytes)
                inner[0] = body.at(inner[0], row_nbytes)
            state[:] = inner
    body.b.ret_void()
    return body.module.text("unpack_blocks", Effort.VECTORS)


class BlockMicro(ABC):
    """A micro-kernel of bytes, of `rows` by `vectors`: sums in float32 of what each block gives."""

    def __init__(self, body: Body, form: BlockFormat, lanes: int, rows: int, vectors: int) -> None:
        self.body, self.form, self.lanes, self.rows, self.vectors = body, form, lanes, rows, vectors
        self.cells = rows * vectors
        self.words = form.size // form.each
        self.row_nbytes = vectors * lanes * 4

    def emit(self) -> None:
        body = self.body
        a, _, pb, _, blocks, scales, _, tile, *_ = body.args
        state = [body.zero(DType.FLOAT, self.lanes)] * self.cells + [pb, a, scales]
        with body.carry(0, blocks, 1, state):
            self._block(state)
        for index in range(self.cells):
            body.store(state[index], body.at(tile, index * self.lanes * 4), DType.FLOAT)
        body.b.ret_void()

    @abstractmethod
    def _block(self, state: list[Value]) -> None:
        """Add a block to the sums; behind them are where it lies in B and in A, and A's scales."""
