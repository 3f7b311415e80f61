"""Scaled dot-product attention of many queries: scores are computed transposed, a query in each lane of a vector.

S^T = (scale K) Q^T has a row for each key, so the softmax goes along rows lane by lane, without a sum across lanes, and
O^T += V^T P^T reads its powers where the softmax left them. K, times the scale, and V are packed once for all threads
(`pack_keys_values`), as the left operands of the micro-kernel (`many_queries_microkernel`); a unit of work is up to
`lane_tile(...).width`
queries of one head, whose queries, results and scores against one block of keys stay in the first-level cache while keys and
values stream past.

Scores are in units of log2(e), but where a mask is added, whose lowest numbers leave no room for that. A query's reference,
which is subtracted from its scores, follows its highest score only where that is more than `_LAG` above it, so that results
are seldom scaled again; no power is above 2^_LAG (or e^_LAG) then.

With `spec.pairs` operands are words of two bfloat16 that follow each other along what is summed: numbers of a head (an even
number, a vector at least) for the scores, keys for the results. Keys are rounded once they are scaled, powers as they are
stored, two rows instead of one; all else is float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from intarsia.codegen.builder.kernel_body import Body, Index, Module, Value
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.compile_ir import Effort
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.attention.attention_arguments import (
    KEY_BLOCK,
    LANE_FIELDS,
    LANE_POINTERS,
    AttentionSpec,
    lane_tile,
)
from intarsia.providers.cpu.kernels.attention.few_queries_kernel import entry_length
from intarsia.providers.cpu.kernels.attention.online_softmax import LOG2_E, Rows
from intarsia.providers.cpu.kernels.common.microkernel import PARAMETERS
from intarsia.providers.cpu.kernels.common.pack_b import emit_pack_columns, transposed
from intarsia.providers.cpu.kernels.matmul.vnni_layout import paired_words

_F32 = DType.FLOAT
_LAG = 8.0
_CLAIM_BITS = 22  # of a word, for units that are claimed from the front, and for those from the end
_LINE = 64  # bytes that are fetched at once
_Ahead = tuple[Value, Index]  # what a step fetches, and how far that is from what the next one does


@functools.lru_cache(maxsize=64)
def kernel_text(spec: AttentionSpec, target: Target) -> KernelText:
    """The kernel of a spec; it takes the arguments that `lane_args` lists."""
    return _Lanes(spec, target).text()


class _Cut(NamedTuple):
    """Which queries a unit has: those of a batch entry's head from `row` on, how many, and in how many vectors."""

    entry: Value
    head: Value
    row: Value
    rows: Value
    vectors: Value


class _Unit(NamedTuple):
    """Some queries of a head: where operands lie, the first query, how many, in how many vectors, and how many the micro-
    kernel counts; the keys there are; the queries that probably come next."""

    k: Value
    v: Value
    mask: Value
    out: Value
    row: Value
    rows: Value
    vectors: Value
    counted: Value
    keys: Value
    offset: Value
    following: Value


class _Block(NamedTuple):
    """Keys [at, at + count) of a unit, whether they are its first or last ones, and bytes of a row of scores."""

    at: Value
    count: Value
    first: Value
    last: Value
    row_nbytes: Value


class _Product(NamedTuple):
    """A call of the micro-kernel for a tile of packed A: `ldb` is the bytes of a row of B, `k` how many rows it has."""

    a: Value
    b: Value
    ldb: Value
    k: Value
    out: Value
    accumulate: Index


class _Lanes:
    """Writes one kernel; `v[name]` is the argument of that name."""

    def __init__(self, spec: AttentionSpec, target: Target) -> None:
        self.spec = spec
        self.module = Module(target)
        self.tile = lane_tile(target)
        self.pack_queries = emit_pack_columns(self.module, _F32).function
        self.body: Body = self.module.kernel()
        self.rows = Rows(self.body, self.tile.lanes)
        self.vector_nbytes = self.tile.lanes * 4
        self.by_whole = not spec.pairs and spec.mask != "float"  # references are whole numbers

    def text(self) -> KernelText:
        body = self.body
        args, tid, nthreads = body.args
        v: dict[str, Value] = {}
        for index, name in enumerate(LANE_FIELDS):
            v[name] = body.load_pointer(args, index) if name in LANE_POINTERS else body.load_i64(args, index)
        self.v = v
        self.each = 2 if self.spec.pairs else 1  # numbers of an element, along what is summed
        self.depth = body.div(v["size"], self.each)
        bits = {name: v[name] for name in ("softcap", "uncap")}
        self.factors = {name: body.splat(body.float_of_bits(value), self.tile.lanes) for name, value in bits.items()}
        self.queries = body.at(v["scratch"], body.mul(tid, v["scratch_nbytes"]))
        names = ("s_at", "o_at", "m_at", "l_at")
        self.scores, self.results, self.references, self.sums = (body.at(self.queries, v[name]) for name in names)
        units = body.mul(body.mul(v["batch"], v["heads"]), v["tiles"])
        self.units = units
        # Units are claimed one by one, by half of the threads from the front and by the others from the end, so that most keys
        # and values are read by who packed them: a word counts both, and the callers that are done. Nobody takes more than two
        # even shares, so that a long step that is called in slices is looked into in between.
        b, behind = body.b, body.less(body.sub(nthreads, 1), body.mul(tid, 2))
        each = body.div(body.add(nthreads, 1), 2)
        self.onward = body.select(behind, body.sub(0, each), each)  # to the unit that probably comes next
        most = body.div(body.add(body.mul(units, 2), body.sub(nthreads, 1)), nthreads)
        done, going = body.cell(0, "done"), body.cell(1, "going")
        with body.repeat_while(lambda: body.equal(going.get(), 1)):
            going.set(0)
            with body.when(body.less(done.get(), most)):
                word = b.atomic_rmw("add", v["claims"], body.select(behind, 1 << _CLAIM_BITS, 1), "monotonic")
                front, back = (b.and_(b.lshr(word, body.i(at)), body.i((1 << _CLAIM_BITS) - 1)) for at in (0, _CLAIM_BITS))
                with body.when(body.less(body.add(front, back), units)):
                    self._unit(body.select(behind, body.sub(body.sub(units, 1), back), front))
                    done.add(1)
                    going.set(1)
        word = b.atomic_rmw("add", v["claims"], body.i(1 << 2 * _CLAIM_BITS), "monotonic")
        with body.when(body.equal(b.lshr(word, body.i(2 * _CLAIM_BITS)), body.sub(nthreads, 1))):
            b.store(body.i(0), v["claims"], align=8)
        body.b.ret_void()
        return self.module.text("attention_lanes", Effort.QUICK)

    # --- a unit: some queries of one head -------------------------------------------------------------------------

    def _cut(self, unit: Value) -> _Cut:
        body, v = self.body, self.v
        head, number = body.div(unit, v["tiles"]), body.rem(unit, v["tiles"])
        if self.spec.bounded:  # from both ends in turn, since later queries see more keys
            half = body.div(number, 2)
            number = body.select(body.equal(body.rem(number, 2), 0), half, body.sub(body.sub(v["tiles"], 1), half))
        vectors = body.add(v["vectors"], body.select(body.less(number, v["extra"]), 1, 0))
        row = body.mul(body.add(body.mul(number, v["vectors"]), body.min(number, v["extra"])), self.tile.lanes)
        rows = body.min(body.mul(vectors, self.tile.lanes), body.sub(v["queries"], row))
        return _Cut(body.div(head, v["heads"]), body.rem(head, v["heads"]), row, rows, vectors)

    def _place(self, cut: _Cut, name: str, pointer: str) -> Value:
        """A head's rows of an operand."""
        body, v = self.body, self.v
        return body.at(v[pointer], body.mul(cut.entry, v[f"{name}_batch"]), body.mul(cut.head, v[f"{name}_head"]))

    def _row_of(self, cut: _Cut, name: str, pointer: str) -> Value:
        return self.body.at(self._place(cut, name, pointer), self.body.mul(cut.row, self.v[f"{name}_row"]))

    def _unit(self, unit: Value) -> None:
        body, v = self.body, self.v
        cut = self._cut(unit)
        entry, head, row, rows, vectors = cut
        kv_heads = body.div(v["heads"], v["group"])
        shared = body.add(body.mul(entry, kv_heads), body.div(head, v["group"]))
        keys, offset = _keys(body, v, self.spec, entry)
        following = self._cut(body.max(body.min(body.add(unit, self.onward), body.sub(self.units, 1)), 0))
        u = _Unit(
            body.at(v["k"], body.mul(shared, v["k_nbytes"])), body.at(v["v"], body.mul(shared, v["v_nbytes"])),
            self._place(cut, "mask", "mask"), self._row_of(cut, "o", "out"), row, rows, vectors,
            self._counted(rows, vectors), keys, offset, self._row_of(following, "q", "q"),
        )  # fmt: skip
        row_nbytes = body.mul(vectors, self.vector_nbytes)
        self._begin(self._row_of(cut, "q", "q"), u, row_nbytes)
        start, stop = self._range(u)
        with body.when(body.less(stop, body.add(start, 1))):
            body.fill(self.results, body.mul(v["result_rows"], row_nbytes))
        with body.loop(start, stop, KEY_BLOCK) as at:
            count = body.min(body.sub(stop, at), KEY_BLOCK)
            last = body.less(stop, body.add(at, body.add(count, 1)))
            self._block(u, _Block(at, count, body.equal(at, start), last, row_nbytes))
        self._finish(u, row_nbytes)

    def _counted(self, rows: Value, vectors: Value) -> Value:
        """Vectors of so many rows as the micro-kernel counts them."""
        body, half = self.body, self.tile.lanes // 2
        if self.spec.pairs:
            return vectors
        halves = body.mul(vectors, 2)
        return body.min(halves, body.div(body.add(rows, half - 1), half)) if self.module.target.halves_vectors else halves

    def _begin(self, q: Value, u: _Unit, row_nbytes: Value) -> None:
        """Queries turned; sums of 0, references of -infinity."""
        body, v, lanes = self.body, self.v, self.tile.lanes
        body.b.call(self.pack_queries, [q, v["q_row"], v["size"], u.rows, self.queries, u.vectors])
        if self.spec.pairs:
            self._pair_queries(row_nbytes)
        with body.loop(0, row_nbytes, self.vector_nbytes) as at:
            body.store(body.zero(_F32, lanes), body.at(self.sums, at), _F32)
            body.store(self.rows.lowest, body.at(self.references, at), _F32)

    def _pair_queries(self, row_nbytes: Value) -> None:
        body, lanes = self.body, self.tile.lanes
        with body.loop(0, self.depth) as d, body.loop(0, row_nbytes, self.vector_nbytes) as at:
            place = body.at(self.queries, at, body.mul(body.mul(d, row_nbytes), 2))
            two = [body.load(where, _F32, lanes) for where in (place, body.at(place, row_nbytes))]
            body.store(paired_words(body, *two), body.at(self.queries, at, body.mul(d, row_nbytes)), DType.INT32)

    def _range(self, u: _Unit) -> tuple[Value, Value]:
        """The keys that any row of the unit sees; the first is the first of a tile of packed K."""
        body = self.body
        if not self.spec.bounded:
            return body.i(0), u.keys
        first = body.max(body.sub(body.add(u.offset, u.row), self.v["left"]), 0)
        last = body.add(body.add(u.offset, body.add(u.row, u.rows)), self.v["right"])
        return body.mul(body.div(first, self.tile.rows), self.tile.rows), body.min(u.keys, last)

    # --- a block of keys ------------------------------------------------------------------------------------------

    def _block(self, u: _Unit, x: _Block) -> None:
        """Products fetch what comes next, a line in each of their steps: those of scores the lines of the output and the values
        of the block, those of values the next unit's queries."""
        body, v, tile = self.body, self.v, self.tile
        tile_nbytes = body.mul(self.depth, tile.rows * 4)
        step = body.mul(x.row_nbytes, tile.rows)
        k = body.at(u.k, body.mul(body.div(x.at, tile.rows), tile_nbytes))
        values = body.at(u.v, body.mul(body.div(x.at, self.each), tile.rows * 4))
        panel = body.mul(_elements(body, v["keys"], self.each), tile.rows * 4)
        written = body.select(x.first, self._lines(v["vsize"]), 0)
        with body.loop(0, body.div(body.add(x.count, tile.rows - 1), tile.rows)) as t:
            out = body.at(self.scores, body.mul(t, step))
            number = body.min(body.sub(t, written), body.sub(v["value_tiles"], 1))
            others = body.at(values, body.mul(number, panel)), _LINE
            ahead = self._either(body.less(t, written), self._column(u.out, t, v["o_row"]), others)
            product = _Product(body.at(k, body.mul(t, tile_nbytes)), self.queries, x.row_nbytes, self.depth, out, 0)
            self._micro(product, u, ahead)
        _Changes(self, u, x).emit()
        with body.loop(0, u.vectors) as j:
            self._softmax(u, x, j)
        steps, again = _elements(body, x.count, self.each), body.select(x.first, 0, 1)
        read = body.select(x.last, self._lines(v["size"]), 0)
        with body.loop(0, v["value_tiles"]) as t:
            out = body.at(self.results, body.mul(t, step))
            ahead = self._either(body.less(t, read), self._column(u.following, t, v["q_row"]), (self.scores, 0))
            product = _Product(body.at(values, body.mul(t, panel)), self.scores, x.row_nbytes, steps, out, again)
            self._micro(product, u, ahead)

    def _lines(self, size: Value) -> Value:
        """How many cache lines a row of float32 has."""
        return self.body.div(self.body.add(self.body.mul(size, 4), _LINE - 1), _LINE)

    def _column(self, rows: Value, number: Value, row_nbytes: Value) -> _Ahead:
        """A column of lines."""
        return self.body.at(rows, self.body.mul(number, _LINE)), row_nbytes

    def _either(self, condition: Value, a: _Ahead, b: _Ahead) -> _Ahead:
        return self.body.b.select(condition, a[0], b[0]), self.body.select(condition, a[1], b[1])

    def _micro(self, x: _Product, u: _Unit, ahead: _Ahead) -> None:
        arguments = [x.a, 0, x.b, x.ldb, x.k, self.v["taps"], 1, x.out, x.accumulate, *ahead, self.tile.rows, u.counted]
        self.body.call_pointer(self.v["micro"], PARAMETERS, arguments)

    # --- softmax --------------------------------------------------------------------------------------------------

    def _softmax(self, u: _Unit, x: _Block, j: Value) -> None:
        """Vector `j` of the block's scores becomes powers; the lanes' references, sums and results follow."""
        body, b, rows, lanes = self.body, self.body.b, self.rows, self.tile.lanes
        inside = body.mul(j, self.vector_nbytes)
        line = body.at(self.scores, inside)
        reference_at, sum_at = body.at(self.references, inside), body.at(self.sums, inside)

        def place(i: Value) -> Value:
            return body.at(line, body.mul(i, x.row_nbytes))

        def raised(high: Value, i: Value) -> Value:
            return rows.larger(body.load(place(i), _F32, lanes), high)

        high = self._fold(x.count, rows.lowest, raised, rows.larger)
        before = body.load(reference_at, _F32, lanes)
        grown = b.fcmp_ordered(">", b.fsub(high, before), rows.constant(_LAG))
        reference = b.select(grown, rows.whole(high) if self.by_whole else high, before)
        taken = rows.reference(reference)
        above = self._above_whole(x.count, place, taken) if self.by_whole else lambda s: self._power(b.fsub(s, taken))

        def power(i: Value) -> Value:
            return above(body.load(place(i), _F32, lanes))

        def added(total: Value, i: Value) -> Value:
            found = power(i)
            body.store(found, place(i), _F32)
            return b.fadd(total, found)

        total = (
            self._paired_powers(x.count, place, power) if self.spec.pairs
            else self._fold(x.count, body.zero(_F32, lanes), added, b.fadd)
        )  # fmt: skip
        changed = b.icmp_unsigned("!=", b.bitcast(grown, ir_builder.IntType(lanes)), ir_builder.IntType(lanes)(0))
        with body.when(b.and_(changed, b.not_(x.first))):
            decay = self._power(b.fsub(before, taken))
            body.store(b.fmul(body.load(sum_at, _F32, lanes), decay), sum_at, _F32)
            result = body.at(self.results, inside)
            with body.loop(0, self.v["result_rows"]) as d:
                where = body.at(result, body.mul(d, x.row_nbytes))
                body.store(b.fmul(body.load(where, _F32, lanes), decay), where, _F32)
        body.store(reference, reference_at, _F32)
        body.store(b.fadd(body.load(sum_at, _F32, lanes), total), sum_at, _F32)

    def _above_whole(self, count: Value, place: Callable[[Value], Value], taken: Value) -> Callable[[Value], Value]:
        """2^(score - taken), a whole number; where it is far, it is subtracted beforehand."""
        body, b, rows, lanes = self.body, self.body.b, self.rows, self.tile.lanes
        far = b.icmp_unsigned("!=", b.bitcast(rows.is_far(taken), ir_builder.IntType(lanes)), ir_builder.IntType(lanes)(0))
        left = [taken]
        with body.carry_if(body.select(far, 1, 0), left):
            with body.loop(0, count) as i:
                body.store(b.fsub(body.load(place(i), _F32, lanes), taken), place(i), _F32)
            left[:] = [body.zero(_F32, lanes)]
        return rows.exp2_above(left[0])

    def _paired_powers(self, count: Value, place: Callable[[Value], Value], power: Callable[[Value], Value]) -> Value:
        """Powers of all rows as words, those of rows 2 i and 2 i + 1 in row i; what they sum up to."""
        body, b = self.body, self.body.b
        zero = body.zero(_F32, self.tile.lanes)

        def two(totals: list[Value], number: Value, first: int) -> None:
            row = body.mul(number, 2)
            found = [power(row), power(body.add(row, 1))]
            body.store(paired_words(body, *found), place(number), DType.INT32)
            for i, value in enumerate(found):
                totals[first + i] = b.fadd(totals[first + i], value)

        complete = body.div(count, 2)
        twos = b.and_(complete, body.i(-2))
        totals: list[Value] = [zero] * 4
        with body.carry(0, twos, 2, totals) as number:
            two(totals, number, 0)
            two(totals, body.add(number, 1), 2)
        with body.carry(twos, complete, 1, totals) as number:
            two(totals, number, 0)
        with body.carry(body.mul(complete, 2), count, 1, totals) as row:  # the last one of an odd number
            last = power(row)
            body.store(paired_words(body, last, zero), place(complete), DType.INT32)
            totals[0] = b.fadd(totals[0], last)
        return b.fadd(b.fadd(totals[0], totals[1]), b.fadd(totals[2], totals[3]))

    def _power(self, x: Value) -> Value:
        """2^x, or e^x where scores are not in units of log2(e)."""
        binary = self.body.b.fmul(x, self.rows.constant(LOG2_E)) if self.spec.mask == "float" else x
        return self.rows.exp2_for_pairs(binary) if self.spec.pairs else self.rows.exp2(binary)

    def _fold(
        self, count: Value, initial: Value, step: Callable[[Value, Value], Value], combine: Callable[[Value, Value], Value]
    ) -> Value:
        """`step(state, row)` for all rows, in several chains that are combined at the end."""
        body = self.body
        unroll = 4 if self.module.target.vector_registers == 32 else 2
        whole = body.b.and_(count, body.i(-unroll))
        state = [initial] * unroll
        with body.carry(0, whole, unroll, state) as i:
            for k in range(unroll):
                state[k] = step(state[k], body.add(i, k))
        while len(state) > 1:
            state = [combine(a, b) for a, b in zip(state[::2], state[1::2], strict=True)]
        with body.carry(whole, count, 1, state) as i:
            state[0] = step(state[0], i)
        return state[0]

    def _finish(self, u: _Unit, row_nbytes: Value) -> None:
        """The results over their sums, turned back, into the output."""
        body, v, lanes = self.body, self.v, self.tile.lanes
        with body.loop(0, u.vectors) as j:
            inside = body.mul(j, self.vector_nbytes)
            inverse = self.rows.share(body.load(body.at(self.sums, inside), _F32, lanes), self.spec.masked, v["keys"])
            first = body.mul(j, lanes)
            left = body.sub(u.rows, first)
            with body.loop(0, v["vsize"], lanes) as d:
                source = body.at(self.results, inside, body.mul(d, row_nbytes))
                block = [body.load(body.at(source, body.mul(row_nbytes, i)), _F32, lanes) for i in range(lanes)]
                block = transposed(body, [body.b.fmul(value, inverse) for value in block])
                there = body.sub(v["vsize"], d)
                out = body.at(u.out, body.mul(first, v["o_row"]), body.mul(d, 4))
                lines = [body.at(out, body.mul(v["o_row"], i)) for i in range(lanes)]
                with body.either(body.less(lanes - 1, body.min(left, there))) as (whole, some):
                    with whole:
                        for value, line in zip(block, lines, strict=True):
                            body.store(value, line, _F32)
                    with some:
                        part = body.part(there, lanes)
                        for i, (value, line) in enumerate(zip(block, lines, strict=True)):
                            with body.when(body.less(i, left)):
                                body.store_part(value, line, part, _F32)


def _elements(body: Body, count: Value, each: int) -> Value:
    """How many elements of `each` numbers hold `count`."""
    return count if each == 1 else body.div(body.add(count, each - 1), each)


def _keys(body: Body, v: dict[str, Value], spec: AttentionSpec, entry: Value) -> tuple[Value, Value]:
    """The number of keys of a batch entry, and the position of its first query."""
    if spec.lengths is None:
        return v["keys"], v["offset"]
    length = entry_length(body, v, spec.lengths, entry)
    offset = body.sub(length, v["queries"]) if spec.trailing else v["offset"]
    return body.min(body.max(length, 0), v["keys"]), offset


class _Changes:
    """Transforms of a block's scores before the softmax: soft cap, mask, bounds."""

    def __init__(self, lanes: _Lanes, u: _Unit, x: _Block) -> None:
        self.owner, self.body, self.rows, self.u, self.x = lanes, lanes.body, lanes.rows, u, x
        self.lanes = lanes.tile.lanes

    def emit(self) -> None:
        spec, body, v = self.owner.spec, self.body, self.owner.v
        if spec.softcap:
            self._each(self._capped)
        if spec.mask:
            with body.either(body.equal(v["mask_row"], 0)) as (one, many):
                with one:
                    self._mask_for_all()
                with many, body.loop(0, self.u.vectors) as j:
                    self._mask_by_rows(j)
        if spec.bounded:
            self._bounds()

    def _place(self, r: Value, j: Value) -> Value:
        return self.body.at(self.owner.scores, self.body.mul(r, self.x.row_nbytes), self.body.mul(j, self.owner.vector_nbytes))

    def _each(self, change: Callable[[Value], Value]) -> None:
        body = self.body
        with body.loop(0, body.mul(self.x.count, self.x.row_nbytes), self.owner.vector_nbytes) as at:
            place = body.at(self.owner.scores, at)
            body.store(change(body.load(place, _F32, self.lanes)), place, _F32)

    def _capped(self, score: Value) -> Value:
        b, factors = self.body.b, self.owner.factors
        inside = b.fmul(score, factors["uncap"])
        return b.fmul(Emitter(b, self.lanes).primitive("tanh", [inside], _F32, _F32), factors["softcap"])

    # --- masks ---

    @property
    def _dtype(self) -> DType:
        return _F32 if self.owner.spec.mask == "float" else DType.BOOL

    def _masked(self, score: Value, given: Value) -> Value:
        """`given`: numbers to be added, or integers of which 0 hides."""
        b = self.body.b
        if self._dtype is _F32:
            return b.fadd(given, score)
        hidden = b.icmp_unsigned("==", given, self.body.splat(ir_builder.IntType(32)(0), self.lanes))
        return b.select(hidden, self.rows.lowest, score)

    def _mask_for_all(self) -> None:
        """One mask for all queries."""
        body, x, item = self.body, self.x, self._dtype.bits // 8
        mask = body.at(self.u.mask, body.mul(x.at, item))
        with body.loop(0, x.count) as r:
            one = body.load(body.at(mask, body.mul(r, item)), self._dtype, 1)
            given = body.splat(one if self._dtype is _F32 else body.b.zext(one, ir_builder.IntType(32)), self.lanes)
            with body.loop(0, self.u.vectors) as j:
                place = self._place(r, j)
                body.store(self._masked(body.load(place, _F32, self.lanes), given), place, _F32)

    def _mask_by_rows(self, j: Value) -> None:
        """A mask for each query: squares of it are turned."""
        body, x, lanes, item = self.body, self.x, self.lanes, self._dtype.bits // 8
        first = body.add(self.u.row, body.mul(j, lanes))
        most = body.sub(self.owner.v["queries"], 1)
        mask = body.at(self.u.mask, body.mul(x.at, item))
        lines = [
            body.at(mask, body.mul(body.min(body.add(first, i), most), self.owner.v["mask_row"])) for i in range(lanes)
        ]  # fmt: skip
        if self._dtype is _F32 or body.module.target.vector_bytes == 64:
            with body.loop(0, x.count, lanes) as r:
                there = body.mask(body.sub(x.count, r), lanes)
                block = [body.load_masked(body.at(line, body.mul(r, item)), there, self._dtype, lanes) for line in lines]
                self._mask_square(r, j, block)
            return
        whole = body.b.and_(x.count, body.i(-lanes))
        with body.loop(0, whole, lanes) as r:
            self._mask_bytes(r, j, [body.at(line, r) for line in lines])
        with body.when(body.less(whole, x.count)):
            copies = body.alloca(lanes * lanes)
            for i, line in enumerate(lines):
                with body.loop(whole, x.count) as r:
                    copy = body.at(copies, body.sub(r, whole), i * lanes)
                    body.store(body.load(body.at(line, r), self._dtype, 1), copy, self._dtype)
            self._mask_bytes(whole, j, [body.at(copies, i * lanes) for i in range(lanes)])

    def _mask_bytes(self, r: Value, j: Value, lines: list[Value]) -> None:
        """The square of a mask of bytes from key `r` on; nothing where all is seen. (AVX2 masks no loads of bytes.)"""
        body, b, lanes = self.body, self.body.b, self.lanes
        bits = ir_builder.IntType(8 * lanes)
        seen = functools.reduce(b.and_, [b.load(line, typ=bits, align=1) for line in lines])
        with body.when(b.icmp_unsigned("!=", seen, bits(int.from_bytes(b"\1" * lanes, "little")))):
            self._mask_square(r, j, [body.load(line, self._dtype, lanes) for line in lines])

    def _mask_square(self, r: Value, j: Value, block: list[Value]) -> None:
        body, lanes = self.body, self.lanes
        if self._dtype is not _F32:
            block = [body.b.zext(value, ir_builder.VectorType(ir_builder.IntType(32), lanes)) for value in block]
        for i, given in enumerate(transposed(body, block)):
            place = self._place(body.add(r, i), j)
            body.store(self._masked(body.load(place, _F32, lanes), given), place, _F32)

    # --- bounds ---

    def _bounds(self) -> None:
        """Hides keys that a query does not see by its position, in blocks where there are any."""
        body, b, u, x, v = self.body, self.body.b, self.u, self.x, self.owner.v
        position = body.add(u.offset, u.row)
        last = body.add(position, body.sub(u.rows, 1))
        early = body.less(body.add(position, v["right"]), body.sub(body.add(x.at, x.count), 1))
        late = body.less(x.at, body.sub(last, v["left"]))
        with body.when(b.or_(early, late)), body.loop(0, u.vectors) as j:
            # Lane i sees key at + r where low + i <= r <= high + i.
            here = body.sub(body.add(position, body.mul(j, self.lanes)), x.at)
            places = ir_builder.Constant(self.rows.integers, list(range(self.lanes)))
            low = b.add(self.rows.bound(body.sub(here, v["left"])), places)
            high = b.add(self.rows.bound(body.add(here, v["right"])), places)
            with body.loop(0, x.count) as r:
                place = self._place(r, j)
                key = body.splat(b.trunc(r, ir_builder.IntType(32)), self.lanes)
                seen = b.and_(b.icmp_signed("<=", low, key), b.icmp_signed("<=", key, high))
                body.store(b.select(seen, body.load(place, _F32, self.lanes), self.rows.lowest), place, _F32)
