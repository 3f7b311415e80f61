"""Matrix products: C[m, n] = epilogue(sum over p of A[m, p] * B[p, n]), batched, with B packed or not.

The kernel is more general than a plain product, so that convolutions are calls of it (see `kernels.conv.implicit_gemm`): the
rows of A
are `images` x `lines` x `m` rows, each level with its own stride, and the sum also runs over `taps`, displacements of A.

Work is divided into units, one register tile of C each, in the order batch, chunk of tiles, panel of B, tile, and
shared by `claims`. Inside a chunk each panel of B is read once and meets all tiles of A, which stay in the second-level
cache; so B (a model's weights) comes from memory once for every chunk of A.

Large K: the sum is not cut into blocks, tiles are accumulated in registers over all of K. B streams at nine bytes a cycle
(14 x 32 tiles), which second-level caches deliver.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from intarsia.codegen.builder.kernel_body import Cell, Module, Value
from intarsia.codegen.llvm.compile_ir import Effort
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common import work_stealing as claiming
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.epilogue_code import Finish
from intarsia.providers.cpu.kernels.common.microkernel import PARAMETERS
from intarsia.providers.cpu.kernels.common.pack_b import (
    PACK_PARAMETERS,
    WIDEN_PARAMETERS,
    panel_text,
    widen_pairs_text,
    widen_text,
)
from intarsia.providers.cpu.kernels.common.tiles import Tile, tile_of
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import (
    FIELDS,
    OPERAND_FIELDS,
    GemmSpec,
    widens_panels,
)
from intarsia.providers.cpu.kernels.matmul.vnni_layout import LINE_NBYTES, LINE_WORDS, paired_words
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS
from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_kernel import (
    BLOCK_PARAMETERS,
    DIRECT_ROWS,
    UNPACK_PARAMETERS,
    block_products,
    unpack_text,
)

_AHEAD_NBYTES = 4096  # how far before its use B is fetched where it is used once


@functools.lru_cache(maxsize=1024)
def kernel_text(spec: GemmSpec, target: Target) -> KernelText:
    """The kernel of a spec; it takes the arguments that `matrix_args` or `general_args` lists."""
    return Gemm(spec, target).text()


class Gemm:
    """Writes one kernel; `v[name]` is the argument of that name."""

    fields: Sequence[str] = FIELDS
    pointers: Sequence[str] = ("micro", "a", "b", "c", "taps", "scratch", "claims")

    def __init__(self, spec: GemmSpec, target: Target) -> None:
        self.spec = spec
        self.module = Module(target)
        self.tile: Tile = spec.tile or tile_of(spec.dtype, target)
        self.pack: Any = None
        self.direct: Any = None
        part, lanes = self.module.part, self.tile.lanes
        if spec.in_words:
            self.pack = part(widen_pairs_text(lanes, target), WIDEN_PARAMETERS)
        elif spec.stored is not None and self._widens():
            self.pack = part(widen_text(spec.stored, lanes, target), WIDEN_PARAMETERS)
        if spec.blocks is not None:
            self.pack = part(unpack_text(spec.blocks, self.tile, target), UNPACK_PARAMETERS)
            if not spec.unit:
                self.direct = part(block_products(spec.blocks, self.tile, target), BLOCK_PARAMETERS)
        elif spec.b_layout != "packed":
            self.pack = part(panel_text(spec.dtype, spec.b_layout == "columns", target), PACK_PARAMETERS)
        self.body = self.module.kernel()
        self.finish = Finish(self.body, spec.epilogue, spec.dtype, self.tile.lanes)

    def _widens(self) -> bool:
        """Whether the kernel itself widens B."""
        return widens_panels(self.spec, self.module.target)

    @property
    def effort(self) -> str:
        """The kernel's time goes to the micro-kernels and modules that it calls; LLVM's passes would take half of a first
        start. A kernel that finishes sums of bytes gains by simpler instructions, one that packs words by all passes."""
        if self.spec.halves or self.spec.unit:
            return Effort.ALL
        return Effort.VECTORS if self.spec.dtype is SUMS else Effort.QUICK

    def read_arguments(self) -> None:
        """Load all of `v`, and the places of the epilogue's operands."""
        body, args = self.body, self.body.args[0]
        self.v: dict[str, Value] = {}
        for index, name in enumerate(self.fields):
            self.v[name] = body.load_pointer(args, index) if name in self.pointers else body.load_i64(args, index)
        self.operands = [
            [body.load_pointer(args, at), *(body.load_i64(args, at + j) for j in range(1, OPERAND_FIELDS))]
            for at in range(len(self.fields), len(self.fields) + OPERAND_FIELDS * len(self.finish.kinds), OPERAND_FIELDS)
        ]

    def text(self) -> KernelText:
        body = self.body
        tid = body.args[1]
        self.read_arguments()
        v = self.v
        self.buffer = body.alloca(self.tile.nbytes)
        self.scratch = body.at(v["scratch"], body.mul(tid, v["scratch_nbytes"]))
        self.all_tiles = body.mul(body.mul(v["images"], v["lines"]), v["tiles"])
        self.per_batch = body.mul(self.all_tiles, v["panels"])
        units = body.mul(body.mul(v["batch0"], v["batch1"]), self.per_batch)
        claiming.emit_shares(body, units, v, self._units)
        body.b.ret_void()
        return self.module.text("gemm", self.effort)

    def _units(self, unit: Value, last: Value, taken: Value) -> Value:
        """The tiles of one panel from `unit` on; returns how many."""
        body, v, tile, per_batch = self.body, self.v, self.tile, self.per_batch
        batch, inside = body.div(unit, per_batch), body.rem(unit, per_batch)
        batch0, batch1 = body.div(batch, v["batch1"]), body.rem(batch, v["batch1"])
        chunk_units = body.mul(v["chunk"], v["panels"])
        chunk, inside = body.div(inside, chunk_units), body.rem(inside, chunk_units)
        first_tile = body.mul(chunk, v["chunk"])
        tiles = body.min(v["chunk"], body.sub(self.all_tiles, first_tile))
        panel, start = body.div(inside, tiles), body.rem(inside, tiles)
        count = body.min(body.sub(tiles, start), body.sub(last, unit))

        def of_batch(pointer: Value, stride0: Value, stride1: Value) -> Value:
            return body.at(pointer, body.mul(batch0, stride0), body.mul(batch1, stride1))

        column = body.mul(panel, tile.width)
        self.columns = body.min(body.sub(v["n"], column), tile.width)
        self.vectors = body.div(body.add(self.columns, tile.lanes - 1), tile.lanes)
        self.a = of_batch(v["a"], v["a_batch0"], v["a_batch1"])
        self.c = body.at(of_batch(v["c"], v["c_batch0"], v["c_batch1"]), body.mul(column, self.finish.itemsize))
        self.bases = []
        for kind, dtype, (pointer, _, _, _, s0, s1) in zip(self.finish.kinds, self.finish.dtypes, self.operands, strict=True):
            offset = body.mul(column, itemsize(dtype)) if kind in ("column", "full") else 0
            self.bases.append(body.at(of_batch(pointer, s0, s1), offset))
        self._find_b(of_batch(v["b"], v["b_batch0"], v["b_batch1"]), panel)
        self._look_ahead(count, body.less(body.add(unit, count), last))
        self._tiles(body.add(first_tile, start), count)
        return count

    def _look_ahead(self, count: Value, more: Value) -> None:
        """Sets what the micro-kernel fetches: each of `count` tiles a part of the next panel, a single tile what follows,
        unless B lies in the second-level cache."""
        body, v = self.body, self.v
        if self.spec.b_layout != "packed":
            self.ahead, self.pace, self.part = self.b, body.i(0), body.i(0)
            return
        single = body.equal(count, 1)
        far = body.less(self.module.target.l2_nbytes // 2, body.mul(v["panels"], v["panel_nbytes"]))
        fetched = body.b.select(single, far, more) if self.module.target.halves_vectors else body.b.or_(single, more)
        self.pace = body.select(fetched, body.div(body.add(self.source_ldb, body.sub(count, 1)), count), 0)
        self.part = body.mul(body.mul(v["k"], v["ntaps"]), self.pace)
        self.ahead = body.at(self.source, body.select(single, _AHEAD_NBYTES, v["panel_nbytes"]))

    def _find_b(self, b: Value, panel: Value) -> None:
        """Sets `b` and `ldb` of a panel; packs it into scratch where it is not fit to be read in place."""
        body, v, tile = self.body, self.v, self.tile
        source = body.at(b, body.mul(panel, v["panel_nbytes"]))
        self.source, self.source_ldb = source, body.mul(self.vectors, tile.lanes * self.spec.b_itemsize)
        if self.spec.b_layout == "packed":
            self.b, self.ldb = source, self.source_ldb
            if self._widens():
                self._widen(body.equal(v["copy"], 1))
            return
        width_nbytes = body.mul(self.vectors, tile.lanes * tile.itemsize)
        if self.spec.blocks is not None:
            with body.when(body.less(0 if self.spec.unit else DIRECT_ROWS, v["m"])):
                body.b.call(self.pack, [source, body.mul(v["k"], self.spec.numbers), self.scratch, self.vectors])
                if self.spec.unit:
                    self._pair_panel()
            self.panel, self.b, self.ldb = source, self.scratch, width_nbytes
            return
        call = [source, v["ldb"], v["k"], self.columns, self.scratch, self.vectors]
        if self.spec.b_layout == "columns":
            body.b.call(self.pack, call)
            self.b, self.ldb = self.scratch, width_nbytes
            return
        narrow = body.less(self.columns, tile.width)
        copied = body.b.or_(narrow, body.b.icmp_signed("!=", v["copy"], body.i(0)))
        with body.when(copied):
            body.b.call(self.pack, call)
        self.b = body.b.select(copied, self.scratch, source)
        self.ldb = body.select(copied, width_nbytes, v["ldb"])

    def _pair_panel(self) -> None:
        """Two rows of the float32 panel in scratch become one of words."""
        body = self.body
        row = body.mul(self.vectors, LINE_NBYTES)
        with body.loop(0, self.v["k"]) as word, body.loop(0, row, LINE_NBYTES) as at:
            source = body.at(self.scratch, body.mul(word, body.mul(row, 2)), at)
            low, high = (body.load(place, DType.FLOAT, LINE_WORDS) for place in (source, body.at(source, row)))
            body.store(paired_words(body, low, high), body.at(self.scratch, body.mul(word, row), at), DType.INT32)

    def _widen(self, many: Value) -> None:
        """Where `many` rows are going to meet a panel in fewer bits, it is widened once."""
        body, v, tile = self.body, self.v, self.tile
        with body.when(many):
            body.b.call(self.pack, [self.source, self.scratch, body.mul(body.mul(v["k"], v["ntaps"]), self.vectors)])
        self.b = body.b.select(many, self.scratch, self.source)
        self.ldb = body.select(many, body.mul(self.vectors, tile.lanes * tile.itemsize), self.source_ldb)

    def _tiles(self, first: Value, count: Value) -> None:
        body, v = self.body, self.v
        line_index, at = body.div(first, v["tiles"]), body.rem(first, v["tiles"])
        image = body.cell(body.div(line_index, v["lines"]), "image")
        line = body.cell(body.rem(line_index, v["lines"]), "line")
        along = body.cell(at, "along")
        with body.loop(0, count) as number:
            self.fetch = body.at(self.ahead, body.mul(number, self.part))
            w = along.get()
            row = body.add(body.mul(w, v["rows"]), body.min(w, v["extra"]))
            rows = body.add(v["rows"], body.select(body.less(w, v["extra"]), 1, 0))
            self._one(image.get(), line.get(), row, rows)
            self._advance(image, line, along)

    def _advance(self, image: Cell, line: Cell, along: Cell) -> None:
        body, v = self.body, self.v
        along.add(1)
        with body.when(body.equal(along.get(), v["tiles"])):
            along.set(0)
            line.add(1)
            with body.when(body.equal(line.get(), v["lines"])):
                line.set(0)
                image.add(1)

    def _one(self, image: Value, line: Value, row: Value, rows: Value) -> None:
        """One register tile: the sums into the buffer, then the epilogue row by row."""
        body, v, tile = self.body, self.v, self.tile

        def place(pointer: Value, row_stride: Value, line_stride: Value, image_stride: Value) -> Value:
            return body.at(pointer, body.mul(image, image_stride), body.mul(line, line_stride), body.mul(row, row_stride))

        c = place(self.c, v["ldc"], v["c_line"], v["c_image"])
        places = []
        for kind, base, (_, row_stride, line_stride, image_stride, _, _) in zip(
            self.finish.kinds, self.bases, self.operands, strict=True
        ):
            places.append(place(base, row_stride, line_stride, image_stride) if kind in ("row", "full") else base)
        self._fetch(c, places, rows)
        a = place(self.a, v["lda"], v["a_line"], v["a_image"])
        place_b = [self.b, self.ldb, v["k"], v["taps"], v["ntaps"]]
        whole = [a, v["lda"], *place_b, self.buffer, 0, self.fetch, self.pace, rows, self.vectors]
        if self.direct is not None:
            with body.either(body.less(DIRECT_ROWS, v["m"])) as (many, few):
                with many:
                    body.call_pointer(v["micro"], PARAMETERS, whole)
                with few:
                    body.b.call(self.direct, [a, v["lda"], self.panel, v["k"], self.buffer, rows, self.vectors])
        else:
            body.call_pointer(v["micro"], PARAMETERS, whole)
        full = body.equal(self.columns, tile.width)
        with body.either(full) as (whole, partial):
            with whole:
                self._rows_whole(c, places, rows)
            with partial:
                self._rows_partial(c, places, rows)

    def _fetch(self, c: Value, places: list[Value], rows: Value) -> None:
        """Fetch the operands of a tile's end, which the layers before wrote, maybe on another core, and where it will store."""
        body, width = self.body, self.tile.width
        with body.loop(0, rows) as i:
            for j in range(0, width * self.finish.itemsize, LINE_NBYTES):
                body.prefetch(body.at(c, body.mul(i, self.v["ldc"]), j), write=True)
            for kind, dtype, place, operand in zip(self.finish.kinds, self.finish.dtypes, places, self.operands, strict=True):
                if kind == "full":
                    for j in range(0, width * itemsize(dtype), LINE_NBYTES):
                        body.prefetch(body.at(place, body.mul(i, operand[1]), j))

    def _rows_whole(self, c: Value, places: list[Value], rows: Value) -> None:
        body, tile, finish = self.body, self.tile, self.finish
        fixed = {}
        for index, kind in enumerate(finish.kinds):
            if kind in ("column", "scalar"):
                step = tile.lanes * itemsize(finish.dtypes[index]) if kind == "column" else 0
                fixed[index] = [finish.operand(index, body.at(places[index], j * step)) for j in range(tile.vectors)]
        with body.loop(0, rows) as i:
            self._row_operands = self._at_row(places, i)
            line = body.mul(i, tile.width * tile.itemsize)
            out = body.at(c, body.mul(i, self.v["ldc"]))
            for j in range(tile.vectors):
                values = [fixed[x][j] if x in fixed else self._moving(x, j) for x in range(len(places))]
                sums = self._sums(body.add(line, j * tile.lanes * tile.itemsize))
                finish.store(sums, values, body.at(out, j * tile.lanes * finish.itemsize))

    def _sums(self, at: Value) -> Value:
        """A vector of a whole tile's sums, `at` bytes behind its first."""
        return self.body.load(self.body.at(self.buffer, at), self.spec.dtype, self.tile.lanes)

    def _at_row(self, places: list[Value], i: Value) -> list[Value]:
        body = self.body
        return [
            body.at(place, body.mul(i, operand[1])) if kind in ("row", "full") else place
            for kind, place, operand in zip(self.finish.kinds, places, self.operands, strict=True)
        ]

    def _moving(self, index: int, j: int) -> Value:
        """Vector `j` of a "full" operand in the current row, or the row's element of a "row" operand."""
        step = self.tile.lanes * itemsize(self.finish.dtypes[index]) if self.finish.kinds[index] == "full" else 0
        return self.finish.operand(index, self.body.at(self._row_operands[index], j * step))

    def _rows_partial(self, c: Value, places: list[Value], rows: Value) -> None:
        body, tile = self.body, self.tile
        width_nbytes = body.mul(self.vectors, tile.lanes * tile.itemsize)
        whole: Value | int = 0
        if self.spec.dtype is SUMS and self.module.target.vector_bytes == 32:  # AVX2 has no masks for bytes: they go one by one
            whole = body.div(self.columns, tile.lanes)
            with body.loop(0, whole) as j:
                self._column_of_rows(c, places, rows, width_nbytes, body.mul(j, tile.lanes), None)
        with body.loop(whole, self.vectors) as j:
            column = body.mul(j, tile.lanes)
            mask = body.mask(body.sub(self.columns, column), tile.lanes)
            self._column_of_rows(c, places, rows, width_nbytes, column, mask)

    def _column_of_rows(
        self, c: Value, places: list[Value], rows: Value, width_nbytes: Value, column: Value, mask: Value | None
    ) -> None:  # fmt: skip
        """A vector of each row, those lanes that the mask has."""
        body, tile, finish = self.body, self.tile, self.finish
        with body.loop(0, rows) as i:
            at_row = self._at_row(places, i)
            values = []
            for index, kind in enumerate(finish.kinds):
                vector = kind in ("column", "full")
                offset = body.mul(column, itemsize(finish.dtypes[index])) if vector else 0
                values.append(finish.operand(index, body.at(at_row[index], offset), mask if vector else None))
            line = body.at(self.buffer, body.mul(i, width_nbytes), body.mul(column, tile.itemsize))
            sums = body.load(line, self.spec.dtype, tile.lanes)
            out = body.at(c, body.mul(i, self.v["ldc"]), body.mul(column, finish.itemsize))
            finish.store(sums, values, out, mask)
