"""Elements of primitives as LLVM IR: each is computed once, in the outermost loop that knows its indices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.codegen.elementwise.element_types import F32, I1, I64, NARROW, compute_type, storage_type
from intarsia.codegen.elementwise.emitter import SCALES, Emitter
from intarsia.codegen.elementwise.exponential import sigmoid, sigmoid_exponent
from intarsia.codegen.elementwise.quantize_rounding import byte_of
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.loops.hoisted_rows import Rows
from intarsia.codegen.loops.index_expr import (
    ELEMENTWISE,
    Index,
    add,
    follow,
    linear,
    may_miss,
    of_dim,
    operand_indices,
    regroup,
)
from intarsia.codegen.loops.interior_windows import Bordered, bordered, is_written_out, window_elements
from intarsia.codegen.loops.reuse_in_output import Reused, substituted
from intarsia.codegen.loops.scope import ROLLED, LoopBuilder, Scope
from intarsia.graph.dims import Dim, Expr, product
from intarsia.graph.dtypes import DType
from intarsia.primitives.divisors import may_divide_by_zero
from intarsia.primitives.interpreter import highest, lowest
from intarsia.primitives.lang import Tensor, walk
from intarsia.primitives.substitute import quantized
from intarsia.run_status import DIVISION_BY_ZERO

HELD = {DType.FLOAT16: DType.FLOAT, DType.BFLOAT16: DType.FLOAT}  # element types of rows on the stack
_ROWS = 4  # that are added to a row of sums at once, which is then read and written less often
_SIMPLE = 4  # primitives of what is added
_NEAR, _LONG_ROW = 4 << 20, 4096  # bytes: of a tensor that caches near the cores hold, and of a page
_LARGEST_ELEMENT = 16  # bytes
_ROLLED = 8  # terms of a sum from which on they are summed in vectors, even where LLVM could write them all out
_IN_ORDER = ("contract", "nsz")
_ANY_ORDER = ("reassoc", *_IN_ORDER)


class ValueEmitter(LoopBuilder):
    """Values of tensors at indices; `chunk`, `row_variable` and `entry` belong to the nest being written."""

    pointers: dict[int, ir_builder.Value]
    chunk: int
    results: list[ir_builder.Value]
    reused_offsets: list[Dim]
    reused_shape: Sequence[Dim]

    def __init__(self) -> None:
        super().__init__()
        self.reused: Reused | None = None
        self.outermost: Scope | None = None  # where values are computed at the earliest, None: where all threads come by
        self.serial = 0
        self.tables: dict[bytes, ir_builder.GlobalVariable] = {}
        self.nothing: ir_builder.GlobalVariable | None = None  # zeros that are read instead of an operand that has no elements
        self.readable: dict[tuple[int, Dim], ir_builder.Value] = {}
        self.row_variable: str | None = None
        self.rolls_extrema = False  # whether LLVM is to look for vectors along rows of extrema before it writes them out
        self.rows: Rows | None = None
        self.inside: frozenset[tuple[Index, Dim]] = frozenset()  # indices into axes of padded operands that meet no border
        self.filled: frozenset[Dim] = frozenset()  # numbers of elements that are not 0 there, along the row
        self.zeros: dict[tuple[ir_builder.Type, Dim], ir_builder.Value] = {}  # cells that are not 0 once a divisor was 0

    def _value(self, t: Tensor, at: list[Index], scope: Scope) -> ir_builder.Value:
        names = frozenset().union(*(self._names(i) for i in at)) if at else frozenset()
        place = scope.place(names)
        if self.outermost is not None and place.depth < self.outermost.depth:
            place = self.outermost
        key = (id(t), tuple(at))
        known = place.memo.get(key)
        if known is None:
            if self.rows is not None and key in self.rows.values:
                known = self._from_row(key, t.dtype, place)
            elif self.reused is not None and t is self.reused.value and key[1] == self.reused.at:
                known = self._load_reused(self.reused, place)
            else:
                known = self._emit(t, at, place)
            place.memo[key] = known
        return known

    def _compute_index(self, index: Index, scope: Scope) -> ir_builder.Value:
        if self.rows is None or index not in self.rows.indices:
            return super()._compute_index(index, scope)
        return self._from_row(index, DType.INT64, scope)

    def _from_row(self, key: Any, dtype: DType, scope: Scope) -> ir_builder.Value:
        """An element of a row that is computed in front of the loops that it does not change in (see `hoisted_rows`)."""
        row = self.row_variable
        assert row is not None
        assert self.rows is not None
        bound, place = scope.binding("start"), self._row_place(self.rows.names[key], scope)
        if ("row", key) not in place.memo:
            self._fill_rows(place, bound, scope)
        held = HELD.get(dtype, dtype)
        b = scope.builder
        at = b.sub(scope.binding(row).variables[row], bound.variables["start"])
        return Emitter(b).load(b.gep(place.memo["row", key], [at], source_etype=storage_type(held)), held)

    def _row_place(self, names: frozenset[str], scope: Scope) -> Scope:
        """Where a row is computed whose elements depend on these variables."""
        bound, place = scope.binding("start"), scope.place(names - {self.row_variable or ""})
        return place if place.depth >= bound.depth else bound

    def _fill_rows(self, place: Scope, bound: Scope, scope: Scope) -> None:
        """All rows that are computed at this place, in one loop."""
        rows, row = self.rows, self.row_variable
        assert rows is not None
        assert row is not None
        start, end = bound.variables["start"], bound.variables["end"]
        keys: list[Any] = [key for key, names in rows.names.items() if self._row_place(names, scope) is place]
        kinds = [rows.values[key].dtype if key in rows.values else DType.INT64 for key in keys]
        held = [HELD.get(dtype, dtype) for dtype in kinds]
        for key, dtype in zip(keys, held, strict=True):
            buffer = self.entry.alloca(storage_type(dtype), size=I64(self.chunk), align=64)
            place.memo["row", key] = buffer

        def body(inner: Scope) -> None:
            inner.variables[row] = here = self.loop_variable
            found = [
                self._value(rows.values[key], list(key[1]), inner) if key in rows.values else self._index(key, inner)
                for key in keys
            ]
            at = inner.builder.sub(here, start)
            for key, value, dtype in zip(keys, found, held, strict=True):
                spot = inner.builder.gep(place.memo["row", key], [at], source_etype=storage_type(dtype))
                Emitter(inner.builder).store(value, spot, dtype)

        self.rows = None  # what the rows are made of is computed, also where one is part of another
        self._row(place, [], (start, end), body, "row")
        self.rows = rows

    def _load_reused(self, reused: Reused, scope: Scope) -> ir_builder.Value:
        """The value that the reduction, which is computed first, left in the output."""
        self._value(reused.reduction, list(reused.reduced_at), scope)
        return Emitter(scope.builder).load(self._reused_place(reused, {}, scope), reused.value.dtype)

    def _store_reused(self, reused: Reused, ks: list[Index], scope: Scope) -> None:
        reduced: dict[Index, Index] = {("v", f"r{i}"): k for i, k in enumerate(ks)}
        value = self._value(reused.value, [substituted(i, reduced) for i in reused.inside], scope)
        Emitter(scope.builder).store(value, self._reused_place(reused, reduced, scope), reused.value.dtype)

    def _reused_place(self, reused: Reused, reduced: dict[Index, Index], scope: Scope) -> ir_builder.Value:
        output = [substituted(i, reduced) for i in reused.place] if reduced else reused.output
        shifted = [add(i, of_dim(o)) for i, o in zip(output, self.reused_offsets, strict=True)]
        return self._pointer(self.results[0], shifted, self.reused_shape, reused.value.dtype, scope)

    def _emit(self, t: Tensor, at: list[Index], scope: Scope) -> ir_builder.Value:
        rule: Callable[[Tensor, list[Index], Scope], ir_builder.Value] | None = getattr(self, "_emit_" + t.prim, None)
        if rule is not None:
            return rule(t, at, scope)
        if t.prim in ELEMENTWISE:
            return self._emit_elementwise(t, at, scope)
        ((operand, where),) = operand_indices(t, at)
        return self._value(operand, where, scope)

    def _emit_elementwise(self, t: Tensor, at: list[Index], scope: Scope) -> ir_builder.Value:
        values = [self._value(a, i, scope) for a, i in operand_indices(t, at)]
        if may_divide_by_zero(t):
            self._note_zero(t, at, values[1], scope)
        dtype = t.args[-1].dtype if t.prim == "select" else t.args[0].dtype
        return Emitter(scope.builder).node(t, values, dtype)

    def _emit_div(self, t: Tensor, at: list[Index], scope: Scope) -> ir_builder.Value:
        exponent = sigmoid_exponent(t) if compute_type(t.dtype) is F32 and not getattr(self.module, SCALES) else None
        if exponent is None or exponent.shape != t.shape:
            return self._emit_elementwise(t, at, scope)
        return sigmoid(Emitter(scope.builder), self._value(exponent, at, scope))

    def _note_zero(self, t: Tensor, at: list[Index], divisor: ir_builder.Value, scope: Scope) -> None:
        """Whether the divisor is 0 goes into a cell, in the outermost loop that knows it; LLVM makes a reduction of that."""
        y, where = t.args[1], at
        while y.prim in ("broadcast", "expand", "reshape"):
            ((y, where),) = operand_indices(y, where)
        place = scope.place(frozenset().union(*(self._names(i) for i in where)) if where else frozenset())
        if self.outermost is not None and place.depth < self.outermost.depth:
            place = self.outermost
        cell = self.zeros.get((divisor.type, product(t.shape)))
        if cell is None:
            cell = self.zeros[divisor.type, product(t.shape)] = self.entry.alloca(divisor.type)
            self.entry.store(divisor.type(0), cell)
        key = ("zero", cell, divisor)
        if key not in place.memo:
            b = place.builder
            zero = b.zext(b.icmp_unsigned("==", divisor, divisor.type(0)), divisor.type)
            b.store(b.or_(b.load(cell, typ=divisor.type), zero), cell)
            place.memo[key] = cell

    def _report_zeros(self, scope: Scope) -> None:
        """Divisions by 0 that were found; none where a quotient has no elements."""
        b = scope.builder
        for (kind, elements), cell in self.zeros.items():
            found = b.icmp_unsigned("!=", b.load(cell, typ=kind), kind(0))
            if isinstance(elements, Expr):
                found = b.and_(found, b.icmp_unsigned("!=", self._dim(scope, elements), I64(0)))
            if elements != 0:
                with b.if_then(found, likely=False):
                    b.store(I64(DIVISION_BY_ZERO), self.status)

    def _emit_cast(self, t: Tensor, at: list[Index], scope: Scope) -> ir_builder.Value:
        parts = quantized(t)
        if parts is None:
            ((operand, where),) = operand_indices(t, at)
            return Emitter(scope.builder).converted(t, self._value(operand, where, scope))
        zero = None
        if parts.add is not None:
            operand, where = operand_indices(parts.add, at)[1]
            zero = self._value(operand, where, scope)
        return byte_of(Emitter(scope.builder), self._value(parts.x, at, scope), zero, parts.low, parts.high)

    def _emit_input(self, t: Tensor, at: list[Index], scope: Scope) -> ir_builder.Value:
        offset = linear(at, t.shape)
        if may_miss(offset) and not (product(t.shape) in self.filled and self.row_variable in self._names(offset)):
            offset = ("clamp", offset, product(t.shape))
            base = self._readable(t.attrs[0], product(t.shape), scope)
        else:
            base = self.pointers[t.attrs[0]]
        pointer = scope.builder.gep(base, [self._index(offset, scope)], source_etype=storage_type(t.dtype))
        return Emitter(scope.builder).load(pointer, t.dtype)

    def _readable(self, operand: int, elements: Dim, scope: Scope) -> ir_builder.Value:
        """Where an operand is read at a place that was clamped to it: if it has no elements, zeros of the kernel's own."""
        if isinstance(elements, int) and elements:
            return self.pointers[operand]
        known = self.readable.get((operand, elements))
        if known is None:
            none, b = self._dim(scope, elements), self.entry
            if self.nothing is None:
                kind = ir_builder.ArrayType(ir_builder.IntType(8), _LARGEST_ELEMENT)
                self.nothing = ir_builder.GlobalVariable(self.module, kind, "nothing")
                self.nothing.global_constant, self.nothing.linkage, self.nothing.align = True, "internal", _LARGEST_ELEMENT
                self.nothing.initializer = ir_builder.Constant(kind, bytearray(_LARGEST_ELEMENT))
            known = b.select(b.icmp_unsigned("==", none, I64(0)), self.nothing, self.pointers[operand])
            self.readable[operand, elements] = known
        return known

    def _emit_reshape(self, t: Tensor, at: list[Index], scope: Scope) -> ir_builder.Value:
        source = stripped(t)
        if source.prim == "input":  # a dense buffer has no shape of its own
            return self._emit_input(Tensor("input", (), source.attrs, t.dtype, t.shape), at, scope)
        return self._value(t.args[0], regroup(at, t.shape, t.args[0].shape), scope)

    def _emit_scalar(self, t: Tensor, at: list[Index], scope: Scope) -> ir_builder.Value:
        value = t.attrs[0]
        if t.dtype in NARROW:
            value = int(np.array(value).astype(t.dtype.numpy).view(np.uint8))
        return Emitter(scope.builder).constant(value, compute_type(t.dtype))

    def _emit_size(self, t: Tensor, at: list[Index], scope: Scope) -> ir_builder.Value:
        value = self._dim(scope, t.attrs[0])
        return Emitter(scope.builder).cast(value, DType.INT64, t.dtype)

    def _emit_iota(self, t: Tensor, at: list[Index], scope: Scope) -> ir_builder.Value:
        value = self._index(at[t.attrs[0]], scope)
        return Emitter(scope.builder).cast(value, DType.INT64, t.dtype)

    def _emit_table(self, t: Tensor, at: list[Index], scope: Scope) -> ir_builder.Value:
        data = np.frombuffer(t.attrs[0], np.uint8)
        kind = ir_builder.ArrayType(ir_builder.IntType(8), len(data))
        variable = self.tables.get(t.attrs[0])
        if variable is None:
            variable = ir_builder.GlobalVariable(self.module, kind, f"table.{len(self.tables)}")
            variable.global_constant, variable.linkage, variable.align = True, "internal", 16
            variable.initializer = ir_builder.Constant(kind, bytearray(t.attrs[0]))
            self.tables[t.attrs[0]] = variable
        return Emitter(scope.builder).load(self._pointer(variable, at, t.shape, t.dtype, scope), t.dtype)

    def _emit_pad(self, t: Tensor, at: list[Index], scope: Scope) -> ir_builder.Value:
        (x, where), (fill, _) = operand_indices(t, at)
        indices = [add(i, of_dim(-low)) for i, low in zip(at, t.attrs[0], strict=True)]
        where = [i if (i, d) in self.inside else w for i, d, w in zip(indices, x.shape, where, strict=True)]
        value, outside = self._value(x, where, scope), self._value(fill, [], scope)
        inside: ir_builder.Value = I1(1)
        for i, d, low, high in zip(indices, x.shape, *t.attrs, strict=True):
            if low == high == 0 or (i, d) in self.inside:
                continue
            moved = self._index(i, scope)
            size = self._dim(scope, d)
            b = scope.builder
            inside = b.and_(inside, b.icmp_unsigned("<", moved, size))  # a negative index is huge unsigned
        return scope.builder.select(inside, value, outside)

    def _emit_concat(self, t: Tensor, at: list[Index], scope: Scope) -> ir_builder.Value:
        axis = t.attrs[0]
        value: ir_builder.Value | None = None
        end: Dim = 0
        parts = []
        for a, where in operand_indices(t, at):
            end = end + a.shape[axis]
            parts.append((self._value(a, where, scope), end))
        for part, limit in reversed(parts):
            if value is None:
                value = part
            else:
                below = scope.builder.icmp_signed("<", self._index(at[axis], scope), self._dim(scope, limit))
                value = scope.builder.select(below, part, value)
        assert value is not None
        return value

    def _pointer(
        self, base: ir_builder.Value, at: Sequence[Index], shape: Sequence[Dim], dtype: DType, scope: Scope
    ) -> ir_builder.Value:
        """Address of an element of a dense tensor."""
        offset = self._index(linear(at, shape), scope)
        return scope.builder.gep(base, [offset], source_etype=storage_type(dtype))

    # --- reductions ---

    def _emit_dot(self, t: Tensor, at: list[Index], scope: Scope) -> ir_builder.Value:
        a, b = t.args
        depth = a.shape[-1]

        def term(k: Index, inner: Scope) -> ir_builder.Value:
            left = [follow(d, t.shape[i + t.rank - a.rank], at[i + t.rank - a.rank]) for i, d in enumerate(a.shape[:-1])]
            right = [follow(d, t.shape[i + t.rank - b.rank], at[i + t.rank - b.rank]) for i, d in enumerate(b.shape[:-2])]
            x = self._value(a, [*left, k], inner)
            y = self._value(b, [*right, k, at[-1]], inner)
            e = Emitter(inner.builder)
            return e.primitive("mul", [e.cast(x, a.dtype, t.dtype), e.cast(y, b.dtype, t.dtype)], t.dtype, t.dtype)

        return self._reduction(t, "sum", [depth], lambda ks, inner: term(ks[0], inner), at, scope)

    def _emit_reduce(self, t: Tensor, at: list[Index], scope: Scope) -> ir_builder.Value:
        op, axes = t.attrs
        x = t.args[0]
        if is_written_out(t):
            values = [self._value(x, where, scope) for where in window_elements(t, at)]
            if len(values) > 2 and _is_watched(op, t.dtype):
                return self._extremum_of(op, values, t.dtype, scope)
            return functools.reduce(lambda total, value: self._combine(op, total, value, t.dtype, scope, in_order=True), values)

        def element(ks: list[Index], inner: Scope) -> ir_builder.Value:
            remaining, reduced = iter(at), iter(ks)
            value = self._value(x, [next(reduced) if i in axes else next(remaining) for i in range(x.rank)], inner)
            if self.reused is not None and t is self.reused.reduction and tuple(at) == self.reused.reduced_at:
                self._store_reused(self.reused, ks, inner)
            return value

        return self._reduction(t, op, [x.shape[i] for i in axes], element, at, scope)

    def _reduction(
        self, t: Tensor, op: str, extents: list[Dim], element: Callable[[list[Index], Scope], ir_builder.Value],
        at: list[Index],
        scope: Scope,
    ) -> ir_builder.Value:  # fmt: skip
        names = frozenset().union(*(self._names(i) for i in at)) if at else frozenset()
        row = self.row_variable
        if row is not None and row in names and "start" in _all_variables(scope):
            return self._row_reduction(t, op, extents, element, row, at, scope)

        watched = _is_watched(op, t.dtype)

        def nest(level: int, ks: list[Index], carried: list[ir_builder.Value], inner: Scope) -> list[ir_builder.Value]:
            if level == len(extents):
                value, b = element(ks, inner), inner.builder
                if not watched:
                    return [self._combine(op, carried[0], value, t.dtype, inner)]
                best = _better(op, value, carried[0], b)
                return [best, b.or_(carried[1], b.fcmp_unordered("uno", value, value))]
            self.serial += 1
            name = f"k{self.serial}"

            def body(deeper: Scope, values: list[ir_builder.Value]) -> list[ir_builder.Value]:
                deeper.variables[name] = self.loop_variable
                return nest(level + 1, [*ks, ("v", name)], values, deeper)

            extent, innermost = extents[level], level + 1 == len(extents)
            rolled = innermost and isinstance(extent, int) and extent >= _ROLLED
            return self._fold(inner, I64(0), self._dim(inner, extent), carried, body, name, (ROLLED,) if rolled else ())

        first = self._identity(op, t.dtype, scope)
        if not watched:
            return nest(0, [], [first], scope)[0]
        best, missing = nest(0, [], [first, I1(0)], scope)
        return _unless(missing, best, t.dtype, scope)

    def _extremum_of(self, op: str, values: Sequence[ir_builder.Value], dtype: DType, scope: Scope) -> ir_builder.Value:
        """The largest or least of a window's elements; one comparison finds NaN in two of them."""
        b = scope.builder
        best = functools.reduce(lambda best, value: _better(op, value, best, b), values)
        pairs = zip(values[::2], [*values[1::2], *values[-1:]], strict=False)
        missing = functools.reduce(b.or_, [b.fcmp_unordered("uno", one, other) for one, other in pairs])
        return _unless(missing, best, dtype, scope)

    def _row_reduction(
        self, t: Tensor, op: str, extents: list[Dim], element: Callable[[list[Index], Scope], ir_builder.Value], row: str,
        at: list[Index], scope: Scope,
    ) -> ir_builder.Value:  # fmt: skip
        """Accumulate a chunk of the inner axis at once, in a row on the stack."""
        bound = scope.binding("start")
        place = scope.place(frozenset().union(*(self._names(i) for i in at)) - {row})
        if place.depth < bound.depth:
            place = bound
        key = ("row", id(t), tuple(at))
        start, end = bound.variables["start"], bound.variables["end"]
        buffer = place.memo.get(key)
        held = HELD.get(t.dtype, t.dtype)
        kind = storage_type(held)
        if buffer is None:
            buffer = self.entry.alloca(kind, size=I64(self.chunk), align=64)
            place.memo[key] = buffer

            def along_row(outer: Scope, places: list[list[Index]]) -> None:
                def body(inner: Scope) -> None:
                    inner.variables[row] = self.loop_variable
                    spot = inner.builder.gep(buffer, [inner.builder.sub(self.loop_variable, start)], source_etype=kind)
                    e = Emitter(inner.builder)
                    if not places:
                        e.store(self._identity(op, t.dtype, inner), spot, held)
                        return
                    total = e.load(spot, held)
                    for ks in places:
                        total = self._combine(op, total, element(ks, inner), t.dtype, inner, in_order=True)
                    e.store(total, spot, held)

                borders = dict.fromkeys(border for ks in places for border in self._bordered(t, at, ks, row))
                self._row(outer, [*borders], (start, end), body, "row", properties)

            def nest(level: int, ks: list[Index], outer: Scope) -> None:
                if level == len(extents):
                    along_row(outer, [ks])
                    return
                self.serial += 1
                name, extent = f"k{self.serial}", extents[level]
                first = I64(0)

                def several(inner: Scope) -> None:
                    inner.variables[name] = self.loop_variable
                    block: Index = ("*", ("v", name), _ROWS)
                    along_row(inner, [[*ks, add(block, ("c", n))] for n in range(_ROWS)])

                def body(inner: Scope) -> None:
                    inner.variables[name] = self.loop_variable
                    nest(level + 1, [*ks, ("v", name)], inner)

                if level + 1 == len(extents) and few and (not isinstance(extent, int) or extent >= _ROWS):
                    blocks = outer.builder.udiv(self._dim(outer, extent), I64(_ROWS))
                    self._loop(outer, I64(0), blocks, several, f"{name}.rows")
                    first = outer.builder.mul(blocks, I64(_ROWS))
                self._loop(outer, first, self._dim(outer, extent), body, name)

            few = t.prim == "reduce" and _is_read_by_rows(t.args[0])
            properties = (ROLLED,) if self.rolls_extrema and _is_watched(op, t.dtype) else ()
            along_row(place, [])
            nest(0, [], place)
        here = scope.binding(row).variables[row]
        spot = scope.builder.gep(buffer, [scope.builder.sub(here, start)], source_etype=kind)
        return Emitter(scope.builder).load(spot, held)

    def _bordered(self, t: Tensor, at: list[Index], ks: list[Index], row: str) -> list[Bordered]:
        """What of a reduction's operand has borders along the row."""
        if t.prim != "reduce":
            return []
        remaining, reduced = iter(at), iter(ks)
        where = [next(reduced) if i in t.attrs[1] else next(remaining) for i in range(t.args[0].rank)]
        found = bordered(t.args[0], where, row)
        return found if any(isinstance(border.extent, Expr) for border in found) else []  # LLVM sees the others

    def _row(
        self, scope: Scope, borders: list[Bordered], bounds: tuple[ir_builder.Value, ir_builder.Value],
        body: Callable[[Scope], None], name: str, properties: tuple[str, ...] = (), filled: Sequence[Dim] = (),
    ) -> None:  # fmt: skip
        """A loop along a row, between `bounds`: in front of what is inside all borders, there, and behind it.

        `properties`: see `_fold`; `filled`: numbers of elements that are not 0 inside (`emptiable`).
        """
        (start, end), around_it = bounds, (self.inside, self.filled)
        low, high = bounds
        self.inside, self.filled = frozenset(), frozenset()
        for border in borders:
            b, step, first = scope.builder, I64(border.step), self._index(border.first, scope)
            around = I64(border.step - 1)
            begin = b.sdiv(b.add(b.sub(I64(0), first), around), step)
            stop = b.sdiv(b.add(b.sub(self._dim(scope, border.extent), first), around), step)
            low = b.select(b.icmp_signed(">", begin, low), begin, low)
            high = b.select(b.icmp_signed("<", stop, high), stop, high)
        if borders:
            b = scope.builder
            low = b.select(b.icmp_signed("<", low, end), low, end)
            high = b.select(b.icmp_signed(">", high, low), high, low)
            self._loop(scope, start, low, body, "before")
            self.inside = frozenset((border.index, border.extent) for border in borders)
        self.filled = frozenset((*filled, *(border.elements for border in borders)))
        for elements in dict.fromkeys((*filled, *(border.elements for border in borders))):
            if isinstance(elements, Expr):
                b = scope.builder
                high = b.select(b.icmp_unsigned("==", self._dim(scope, elements), I64(0)), low, high)
        self._loop(scope, low, high, body, name, properties)
        self.inside, self.filled = frozenset(), frozenset()
        if borders or filled:
            self._loop(scope, high, end, body, "behind")
        self.inside, self.filled = around_it

    def _identity(self, op: str, dtype: DType, scope: Scope) -> ir_builder.Value:
        value = {"sum": 0, "prod": 1, "any": False, "all": True}.get(op)
        if value is None:
            value = lowest(dtype) if op == "max" else highest(dtype)
        kind = compute_type(dtype)
        if isinstance(kind, ir_builder.IntType):
            return kind(int(value) & ((1 << kind.width) - 1))
        return Emitter(scope.builder).constant(float(value), kind)

    def _combine(
        self, op: str, total: ir_builder.Value, value: ir_builder.Value, dtype: DType, scope: Scope, in_order: bool = False
    ) -> ir_builder.Value:
        """`in_order`: as where neighbours are summed beside each other: LLVM, free to change the order, would gather each sum's
        terms."""
        b, e = scope.builder, Emitter(scope.builder)
        if op in ("any", "all"):
            return b.or_(total, value) if op == "any" else b.and_(total, value)
        if dtype.is_floating:
            if op in ("sum", "prod"):
                return (b.fadd if op == "sum" else b.fmul)(total, value, flags=_IN_ORDER if in_order else _ANY_ORDER)
            return e.extremum(op, total, value)
        return e.primitive({"sum": "add", "prod": "mul"}.get(op, op), [total, value], dtype, dtype)


def _is_read_by_rows(x: Tensor) -> bool:
    """Whether to add several rows of what is reduced at once: where it is simple, and no large tensor of short rows, which the
    processor fetches ahead best in the order in which they lie."""
    terms = walk([x])
    if len(terms) > _SIMPLE or any(t.prim == "windows" for t in terms):
        return False
    elements, row = product(x.shape), x.shape[-1] if x.rank else 1
    if not isinstance(elements, int) or not isinstance(row, int):
        return True
    nbytes = x.dtype.numpy.itemsize
    return elements * nbytes <= _NEAR or row * nbytes >= _LONG_ROW


def _is_watched(op: str, dtype: DType) -> bool:
    """Whether NaN is noted separately: comparisons alone vectorise best."""
    return dtype.is_floating and op in ("max", "min")


def _better(op: str, value: ir_builder.Value, best: ir_builder.Value, b: ir_builder.IRBuilder) -> ir_builder.Value:
    """The larger or the lesser of two, neither of which is NaN."""
    ahead = b.fcmp_ordered(">" if op == "max" else "<", value, best, flags=("nnan", "nsz"))
    return b.select(ahead, value, best, flags=("nnan", "nsz"))


def _unless(missing: ir_builder.Value, best: ir_builder.Value, dtype: DType, scope: Scope) -> ir_builder.Value:
    """`best`, or NaN where there is one."""
    return scope.builder.select(missing, Emitter(scope.builder).constant(float("nan"), compute_type(dtype)), best)


def stripped(root: Tensor) -> Tensor:
    """What a chain of reshapes is made of."""
    while root.prim == "reshape":
        root = root.args[0]
    return root


def _all_variables(scope: Scope | None) -> set[str]:
    found: set[str] = set()
    while scope is not None:
        found |= scope.variables.keys()
        scope = scope.parent
    return found
