"""Scaled dot-product attention, O = softmax(scale Q K^T + mask) V, without storing the scores.

Work is divided into units of some tiles of query rows of one head; every thread takes a contiguous share of (batch, head, block
of tiles), so that a thread mostly stays with a head. It packs the head's K^T into panels once (and V where there are rows
enough to pay for it, or its columns are no whole vectors); few rows multiply with K where it lies, a key at a time. Keys are
taken in blocks: the scores of a tile and a block stay in the first-level cache, as one register tile after another, which is
the layout in which the micro-kernel reads them as the left operand of the product with V (one tap for each panel of keys).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.compile_ir import Effort
from intarsia.codegen.llvm.jit import SYMBOL_PLACEHOLDER, KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.attention.attention_arguments import FIELDS, KEY_PANELS, POINTERS, AttentionSpec
from intarsia.providers.cpu.kernels.attention.online_softmax import Rows
from intarsia.providers.cpu.kernels.attention.score_dots import emit_dots
from intarsia.providers.cpu.kernels.common.microkernel import PARAMETERS
from intarsia.providers.cpu.kernels.common.pack_b import emit_pack_columns, emit_pack_rows
from intarsia.providers.cpu.kernels.common.tiles import Tile, tile_of

_F32 = DType.FLOAT


@functools.lru_cache(maxsize=64)
def kernel_text(spec: AttentionSpec, target: Target) -> KernelText:
    """The kernel of a spec; it takes the arguments that `attention_args` lists."""
    return _Attention(spec, target).text()


_PACK = ("p", "i", "i", "i", "p", "i", "i")


@functools.cache
def pack_text(target: Target) -> KernelText:
    """The function that packs a panel of keys (turned) or of values, for all specs."""
    module = Module(target)
    columns, rows = emit_pack_columns(module, _F32).function, emit_pack_rows(module, _F32).function
    body = module.function(SYMBOL_PLACEHOLDER, _PACK, internal=False)
    *arguments, turned = body.args
    with body.either(body.equal(turned, 1)) as (keys, values):
        with keys:
            body.b.call(columns, arguments)
        with values:
            body.b.call(rows, arguments)
    body.b.ret_void()
    return module.text("pack_head", Effort.QUICK)


def entry_length(body: Body, v: dict[str, Value], lengths: DType, entry: Value) -> Value:
    """Lengths of a batch entry."""
    bits = lengths.bits
    here = body.b.load(body.at(v["lengths"], body.mul(entry, bits // 8)), typ=ir_builder.IntType(bits), align=bits // 8)
    return body.add(here if bits == 64 else body.b.sext(here, ir_builder.IntType(64)), v["more"])


class _Unit(NamedTuple):
    """Values of one unit of work: the head's operands, the rows of its tiles, the keys there are."""

    q: Value
    k: Value
    v: Value
    out: Value
    mask: Value
    first: Value
    last: Value
    keys: Value
    offset: Value


class _Tile(NamedTuple):
    """A tile of queries against a block of keys: `full` panels and `rest` keys in `rest_vectors` vectors."""

    number: Value
    row: Value
    rows: Value
    start: Value
    full: Value
    rest: Value
    rest_vectors: Value


class _Product(NamedTuple):
    """A call of the micro-kernel, in the order of its parameters but for `taps` (`common.microkernel`)."""

    a: Value
    lda: Value
    b: Value
    ldb: Value
    k: Value
    ntaps: Value
    out: Value
    accumulate: int
    ahead: Value
    pace: int
    rows: Value
    vectors: Value


class _Attention:
    """Writes one kernel; `v[name]` is the argument of that name."""

    def __init__(self, spec: AttentionSpec, target: Target) -> None:
        self.spec = spec
        self.module = Module(target)
        self.tile: Tile = tile_of(_F32, target)
        self.dots = emit_dots(self.module, self.tile)
        self.body: Body = self.module.kernel()
        self.rows = Rows(self.body, self.tile.lanes)
        self.row_nbytes = self.tile.width * 4  # of a panel, and of a tile
        self.vector_nbytes = self.tile.lanes * 4

    def text(self) -> KernelText:
        body = self.body
        args, tid, nthreads = body.args
        v: dict[str, Value] = {}
        for index, name in enumerate(FIELDS):
            v[name] = body.load_pointer(args, index) if name in POINTERS else body.load_i64(args, index)
        self.v = v
        bits = {name: v[name] for name in ("scale", "softcap", "uncap")}
        self.factors = {name: body.splat(body.float_of_bits(value), self.tile.lanes) for name, value in bits.items()}
        self.k_panels = body.at(v["scratch"], body.mul(tid, v["scratch_nbytes"]))
        names = ("v_at", "q_at", "s_at", "o_at", "m_at", "l_at")
        self.v_panels, self.q_rows, self.scores, self.results, self.highs, self.sums = (
            body.at(self.k_panels, v[name]) for name in names
        )
        self.value_vectors = body.div(body.add(v["vsize"], self.tile.lanes - 1), self.tile.lanes)
        self.value_panels = body.div(body.add(self.value_vectors, self.tile.vectors - 1), self.tile.vectors)
        self.q_width = body.mul(body.div(body.add(v["size"], self.tile.lanes - 1), self.tile.lanes), self.vector_nbytes)
        self.packed = body.cell(-1, "packed")
        units = body.mul(body.mul(v["batch"], v["heads"]), v["blocks"])
        first, last = body.share(units, tid, nthreads)
        with body.loop(first, last) as unit:
            self._unit(unit)
        body.b.ret_void()
        return self.module.text("attention", Effort.QUICK)

    # --- a unit: some tiles of queries of one head ----------------------------------------------------------------

    def _unit(self, unit: Value) -> None:
        body, v = self.body, self.v
        head, block = body.div(unit, v["blocks"]), body.rem(unit, v["blocks"])
        entry, head = body.div(head, v["heads"]), body.rem(head, v["heads"])
        shared = body.div(head, v["group"])
        if self.spec.bounded:  # from both ends in turn, since later queries see more keys
            half = body.div(block, 2)
            block = body.select(body.equal(body.rem(block, 2), 0), half, body.sub(body.sub(v["blocks"], 1), half))

        def place(name: str, pointer: str, index: Value) -> Value:
            return body.at(v[pointer], body.mul(entry, v[f"{name}_batch"]), body.mul(index, v[f"{name}_head"]))

        first = body.div(body.mul(block, v["tiles"]), v["blocks"])
        last = body.div(body.mul(body.add(block, 1), v["tiles"]), v["blocks"])
        keys, offset = self._keys(entry)
        u = _Unit(
            place("q", "q", head), place("k", "k", shared), place("v", "v", shared), place("o", "out", head),
            place("mask", "mask", head), first, last, keys, offset,
        )  # fmt: skip
        self._pack(u.k, u.v, body.add(body.mul(entry, v["heads"]), shared))
        self._clear(body.sub(last, first))
        start, stop = self._range(u)
        with body.loop(start, stop, KEY_PANELS * self.tile.width) as at, body.loop(first, last) as t:
            self._tile(u, t, at, stop, body.b.icmp_signed("!=", at, start))
        with body.loop(first, last) as t:
            self._finish(u, t)

    def _keys(self, entry: Value) -> tuple[Value, Value]:
        """The number of keys of a batch entry, and the position of its first query."""
        body, v, spec = self.body, self.v, self.spec
        if spec.lengths is None:
            return v["keys"], v["offset"]
        length = entry_length(body, v, spec.lengths, entry)
        queries = body.select(body.equal(v["step"], 0), 1, v["queries"])  # step 0: rows are the heads of one query
        offset = body.sub(length, queries) if spec.trailing else v["offset"]
        return body.min(body.max(length, 0), v["keys"]), offset

    def _pack(self, k: Value, v: Value, head: Value) -> None:
        """K^T as panels (and V, if it is to be copied), unless this head's are there already."""
        body, a, tile = self.body, self.v, self.tile
        with body.when(body.b.icmp_signed("!=", self.packed.get(), head)):
            self.packed.set(head)
            panel_nbytes = body.mul(a["size"], self.row_nbytes)
            panels = body.div(body.add(a["keys"], tile.width - 1), tile.width)
            with body.loop(0, body.mul(panels, a["copy_k"])) as p:
                first = body.mul(p, tile.width)
                columns = body.min(body.sub(a["keys"], first), tile.width)
                source, panel = body.at(k, body.mul(first, a["k_row"])), body.at(self.k_panels, body.mul(p, panel_nbytes))
                body.call_pointer(a["pack"], _PACK, [source, a["k_row"], a["size"], columns, panel, tile.vectors, 1])
            with body.loop(0, body.mul(self.value_panels, a["copy_v"])) as p:
                first = body.mul(p, tile.width)
                columns = body.min(body.sub(a["vsize"], first), tile.width)
                source = body.at(v, body.mul(first, 4))
                panel = body.at(self.v_panels, body.mul(p, body.mul(a["keys"], self.row_nbytes)))
                body.call_pointer(a["pack"], _PACK, [source, a["v_row"], a["keys"], columns, panel, self._vectors(p), 0])

    def _vectors(self, panel: Value) -> Value:
        """How many vectors a panel of V has."""
        body, vectors = self.body, self.tile.vectors
        return body.min(body.sub(self.value_vectors, body.mul(panel, vectors)), vectors)

    def _clear(self, tiles: Value) -> None:
        body = self.body
        rows = body.mul(tiles, self.tile.rows)
        body.fill(self.results, body.mul(body.mul(tiles, self.value_panels), self.tile.nbytes))
        body.fill(self.sums, body.mul(rows, self.vector_nbytes))
        with body.loop(0, rows) as i:
            body.store(self.rows.lowest, body.at(self.highs, body.mul(i, self.vector_nbytes)), _F32)

    def _rows_of(self, t: Value) -> tuple[Value, Value]:
        """First row and number of rows of tile `t`."""
        body, v = self.body, self.v
        row = body.add(body.mul(t, v["rows"]), body.min(t, v["extra"]))
        return row, body.add(v["rows"], body.select(body.less(t, v["extra"]), 1, 0))

    def _range(self, u: _Unit) -> tuple[Value, Value]:
        """The keys that any row of the unit sees; the first is the first of a panel."""
        body, width = self.body, self.tile.width
        if not self.spec.bounded:
            return body.i(0), u.keys
        row, _ = self._rows_of(u.first)
        end, _ = self._rows_of(u.last)
        first = body.max(self._bounds(u, row)[0], 0)
        return body.mul(body.div(first, width), width), body.min(u.keys, self._bounds(u, body.sub(end, 1))[1])

    def _bounds(self, u: _Unit, row: Value) -> tuple[Value, Value]:
        """The keys [first, last) that a row sees by its position."""
        body, v = self.body, self.v
        position = body.add(u.offset, body.mul(row, v["step"]))
        return body.sub(position, v["left"]), body.add(body.add(position, v["right"]), 1)

    # --- a tile of queries and a block of keys --------------------------------------------------------------------

    def _tile(self, u: _Unit, t: Value, start: Value, stop: Value, again: Value) -> None:
        body, v, tile = self.body, self.v, self.tile
        row, rows = self._rows_of(t)
        if self.spec.bounded:
            stop = body.min(stop, self._bounds(u, body.sub(body.add(row, rows), 1))[1])
        count = body.min(body.sub(stop, start), KEY_PANELS * tile.width)
        with body.when(body.less(0, count)):
            full, rest = body.div(count, tile.width), body.rem(count, tile.width)
            rest_vectors = body.div(body.add(rest, tile.lanes - 1), tile.lanes)
            x = _Tile(body.sub(t, u.first), row, rows, start, full, rest, rest_vectors)
            self._scale_queries(body.at(u.q, body.mul(row, v["q_row"])), rows)
            with body.either(body.equal(v["copy_k"], 1)) as (packed, in_place):
                with packed:
                    self._products(x)
                with in_place:
                    self._dots(x, body.at(u.k, body.mul(start, v["k_row"])))
            with body.loop(0, rows) as i:
                self._softmax(u, x, i, again)
            self._values(u, x)

    def _scale_queries(self, q: Value, rows: Value) -> None:
        body, v, lanes = self.body, self.v, self.tile.lanes
        with body.loop(0, rows) as i:
            source, target = body.at(q, body.mul(i, v["q_row"])), body.at(self.q_rows, body.mul(i, self.q_width))
            with body.loop(0, v["size"], lanes) as p:
                offset = body.mul(p, 4)
                x = body.load_masked(body.at(source, offset), body.mask(body.sub(v["size"], p), lanes), _F32, lanes)
                body.store(body.b.fmul(x, self.factors["scale"]), body.at(target, offset), _F32)

    def _products(self, x: _Tile) -> None:
        """Scores of the tile: a register tile for each panel of keys."""
        body, v, tile = self.body, self.v, self.tile
        panel_nbytes = body.mul(v["size"], self.row_nbytes)
        panels = body.at(self.k_panels, body.mul(body.div(x.start, tile.width), panel_nbytes))
        with body.loop(0, body.add(x.full, body.min(x.rest, 1))) as p:
            vectors = body.select(body.less(p, x.full), tile.vectors, x.rest_vectors)
            panel = body.at(panels, body.mul(p, panel_nbytes))
            product = _Product(
                self.q_rows, self.q_width, panel, body.i(self.row_nbytes), v["size"], body.i(1),
                body.at(self.scores, body.mul(p, tile.nbytes)), 0, body.at(panel, panel_nbytes), self.row_nbytes,
                x.rows, vectors,
            )  # fmt: skip
            self._micro(product)

    def _dots(self, x: _Tile, k: Value) -> None:
        """The same without packed keys: row by row, key by key."""
        v = self.v
        sizes = [v["k_row"], v["size"], x.rows, x.full, x.rest, x.rest_vectors]
        self.body.b.call(self.dots, [self.q_rows, self.q_width, k, *sizes, self.scores])

    def _values(self, u: _Unit, x: _Tile) -> None:
        """Adds the product of the block's powers and values to the results."""
        body, v, tile = self.body, self.v, self.tile
        copied = body.equal(v["copy_v"], 1)
        with body.loop(0, self.value_panels) as p:
            vectors = self._vectors(p)
            packed = body.at(self.v_panels, body.mul(p, body.mul(v["keys"], self.row_nbytes)))
            ldb = body.select(copied, body.mul(vectors, self.vector_nbytes), v["v_row"])
            values = body.b.select(copied, packed, body.at(u.v, body.mul(p, self.row_nbytes)))
            values = body.at(values, body.mul(x.start, ldb))
            out = body.at(self.results, body.mul(body.add(body.mul(x.number, self.value_panels), p), tile.nbytes))
            with body.when(body.less(0, x.full)):
                product = _Product(
                    self.scores, body.i(self.row_nbytes), values, ldb, body.i(tile.width), x.full, out, 1, values, 0,
                    x.rows, vectors,
                )  # fmt: skip
                self._micro(product)
            with body.when(body.less(0, x.rest)):
                rest = body.at(values, body.mul(body.mul(x.full, tile.width), ldb))
                powers = body.at(self.scores, body.mul(x.full, tile.nbytes))
                width = body.mul(x.rest_vectors, self.vector_nbytes)
                self._micro(_Product(powers, width, rest, ldb, x.rest, body.i(1), out, 1, rest, 0, x.rows, vectors))

    def _micro(self, x: _Product) -> None:
        self.body.call_pointer(self.v["micro"], PARAMETERS, [*x[:5], self.v["taps"], *x[5:]])

    # --- softmax --------------------------------------------------------------------------------------------------

    def _softmax(self, u: _Unit, x: _Tile, i: Value, again: Value) -> None:
        """Row `i` of the scores becomes powers; its highest score, sum and results so far follow."""
        body, b, tile, rows = self.body, self.body.b, self.tile, self.rows
        line = body.at(self.scores, body.mul(i, self.row_nbytes))
        rest_nbytes = body.mul(x.rest_vectors, self.vector_nbytes)
        rest_line = body.at(self.scores, body.mul(x.full, tile.nbytes), body.mul(i, rest_nbytes))
        state = body.mul(body.add(body.mul(x.number, tile.rows), i), self.vector_nbytes)
        high_at, sum_at = body.at(self.highs, state), body.at(self.sums, state)
        before = body.load(high_at, _F32, tile.lanes)
        change = _Change(self, u, x, body.add(x.row, i))
        high = rows.larger(rows.highest(self._highest(x, line, rest_line, change)), before)
        reference = rows.reference(high)
        body.store(high, high_at, _F32)
        total = self._powers(x, line, rest_line, reference)
        decay = rows.exp(b.fsub(before, reference))
        body.store(body.fma(body.load(sum_at, _F32, tile.lanes), decay, total, _F32, tile.lanes), sum_at, _F32)
        with body.when(again), body.loop(0, self.value_vectors) as j:
            place = self._result(x.number, i, j)
            body.store(b.fmul(body.load(place, _F32, tile.lanes), decay), place, _F32)

    def _highest(self, x: _Tile, line: Value, rest_line: Value, change: _Change) -> Value:
        body, tile, rows = self.body, self.tile, self.rows
        state = [rows.lowest] * tile.vectors
        with body.carry(0, x.full, 1, state) as p:
            panel = body.at(line, body.mul(p, tile.nbytes))
            for j in range(tile.vectors):
                place = body.at(panel, j * self.vector_nbytes)
                score = body.load(place, _F32, tile.lanes)
                changed = change(score, body.mul(p, tile.width), j * tile.lanes, None)
                if changed is not score:
                    body.store(changed, place, _F32)
                state[j] = rows.larger(changed, state[j])
        while len(state) > 1:
            state = [rows.larger(state[0], state[1]), *state[2:]]
        with body.carry(0, x.rest_vectors, 1, state) as j:
            place = body.at(rest_line, body.mul(j, self.vector_nbytes))
            first = body.mul(j, tile.lanes)
            there = body.mask(body.sub(x.rest, first), tile.lanes)
            score = change(body.load(place, _F32, tile.lanes), body.add(body.mul(x.full, tile.width), first), 0, there)
            score = body.b.select(there, score, rows.lowest)
            body.store(score, place, _F32)
            state[0] = rows.larger(score, state[0])
        return state[0]

    def _powers(self, x: _Tile, line: Value, rest_line: Value, reference: Value) -> Value:
        """exp(score - reference) in place; returns their sum, lane by lane."""
        body, b, tile, rows = self.body, self.body.b, self.tile, self.rows

        def power(place: Value) -> Value:
            value = rows.exp(b.fsub(body.load(place, _F32, tile.lanes), reference))
            body.store(value, place, _F32)
            return value

        state = [body.zero(_F32, tile.lanes)] * tile.vectors
        with body.carry(0, x.full, 1, state) as p:
            panel = body.at(line, body.mul(p, tile.nbytes))
            for j in range(tile.vectors):
                state[j] = b.fadd(state[j], power(body.at(panel, j * self.vector_nbytes)))
        while len(state) > 1:
            state = [b.fadd(state[0], state[1]), *state[2:]]
        with body.carry(0, x.rest_vectors, 1, state) as j:
            state[0] = b.fadd(state[0], power(body.at(rest_line, body.mul(j, self.vector_nbytes))))
        return state[0]

    def _result(self, number: Value, i: Value, j: Value) -> Value:
        """Vector `j` of row `i` of the results of the unit's tile `number`."""
        body, tile = self.body, self.tile
        panel = body.div(j, tile.vectors)
        width = body.mul(self._vectors(panel), self.vector_nbytes)
        index = body.add(body.mul(number, self.value_panels), panel)
        inside = body.mul(body.rem(j, tile.vectors), self.vector_nbytes)
        return body.at(self.results, body.mul(index, tile.nbytes), body.mul(i, width), inside)

    def _finish(self, u: _Unit, t: Value) -> None:
        """The results of a tile over their sums, into the output."""
        body, v, tile, rows = self.body, self.v, self.tile, self.rows
        row, count = self._rows_of(t)
        number = body.sub(t, u.first)
        with body.loop(0, count) as i:
            state = body.mul(body.add(body.mul(number, tile.rows), i), self.vector_nbytes)
            total = rows.total(body.load(body.at(self.sums, state), _F32, tile.lanes))
            inverse = rows.share(total, self.spec.masked, v["keys"])
            out = body.at(u.out, body.mul(body.add(row, i), v["o_row"]))
            with body.loop(0, self.value_vectors) as j:
                first = body.mul(j, tile.lanes)
                value = body.b.fmul(body.load(self._result(number, i, j), _F32, tile.lanes), inverse)
                part = body.part(body.sub(v["vsize"], first), tile.lanes)
                body.store_part(value, body.at(out, body.mul(first, 4)), part, _F32)


class _Change:
    """Transforms of a row's scores before the softmax: soft cap, mask, bounds."""

    def __init__(self, attention: _Attention, u: _Unit, x: _Tile, row: Value) -> None:
        self.attention, self.body = attention, attention.body
        body, spec, v = self.body, attention.spec, attention.v
        self.itemsize = 4 if spec.mask == "float" else 1
        if spec.mask:
            self.mask = body.at(u.mask, body.mul(row, v["mask_row"]), body.mul(x.start, self.itemsize))
        if spec.bounded:
            low, high = attention._bounds(u, row)
            self.low, self.high = body.sub(low, x.start), body.sub(high, x.start)

    def __call__(self, score: Value, first: Value, j: int, there: Value | None) -> Value:
        """The score vector of keys `first` + j on, counted from the block's first; `there` masks those that exist."""
        body, b, spec, rows = self.body, self.body.b, self.attention.spec, self.attention.rows
        lanes = rows.lanes
        if spec.softcap:
            factors = self.attention.factors
            inside = b.fmul(score, factors["uncap"])
            score = b.fmul(Emitter(b, lanes).primitive("tanh", [inside], _F32, _F32), factors["softcap"])
        if spec.mask:
            dtype = _F32 if spec.mask == "float" else DType.BOOL
            place = body.at(self.mask, body.mul(first, self.itemsize), j * self.itemsize)
            given = body.load(place, dtype, lanes) if there is None else body.load_masked(place, there, dtype, lanes)
            score = b.fadd(score, given) if dtype is _F32 else b.select(self._true(given), score, rows.lowest)
        if spec.bounded:
            seen = rows.below(j, rows.bound(body.sub(self.high, first)))
            hidden = rows.below(j, rows.bound(body.sub(self.low, first)))
            score = b.select(seen, b.select(hidden, rows.lowest, score), rows.lowest)
        return score

    def _true(self, flags: Value) -> Any:
        return Emitter(self.body.b, self.attention.rows.lanes).from_storage(flags, DType.BOOL)
