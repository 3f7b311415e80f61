"""Kernels that go along an axis in order: scans, and scatters, whose indices may repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia.codegen.elementwise.element_types import I64, storage_type
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.loops.element_values import HELD, ValueEmitter
from intarsia.codegen.loops.index_expr import Index
from intarsia.codegen.loops.scope import Scope
from intarsia.graph.dims import Dim, product
from intarsia.primitives.lang import Tensor
from intarsia.run_status import INDEX_OUT_OF_RANGE

ROW_CHUNK = 512  # elements of the last axis that one iteration of the outer loop covers where rows lie on the stack


class InOrder(ValueEmitter):
    """`tid` of `nthreads` writes its part of the results."""

    tid: ir_builder.Value
    nthreads: ir_builder.Value

    def _store(self, scope: Scope, roots: list[Tensor], indices: list[Index], offsets: list[Dim], full: Sequence[Dim]) -> None:
        """Write what roots have at `indices`; whoever derives from this writes nests, and has it."""
        raise NotImplementedError

    def _scan(self, top: Scope, root: Tensor) -> None:
        axis = root.attrs[1]
        inner = max((n for n, d in enumerate(root.shape) if d != 1 and n > axis), default=None)
        chunks: Dim = 1 if inner is None else (root.shape[inner] + (ROW_CHUNK - 1)) // ROW_CHUNK
        names = [f"i{n}" for n in range(root.rank)]
        outer = [n for n in range(root.rank) if n not in (axis, inner)]
        sizes = [*(root.shape[n] for n in outer), chunks]
        total = self._multiply(top, [self._dim(top, d) for d in sizes])
        b = top.builder
        low = b.udiv(b.mul(total, self.tid), self.nthreads)
        high = b.udiv(b.mul(total, b.add(self.tid, I64(1))), self.nthreads)

        def line(scope: Scope, places: list[ir_builder.Value]) -> None:
            b = scope.builder
            scope.variables.update(zip([names[n] for n in outer], places, strict=False))
            start = b.mul(places[-1], I64(ROW_CHUNK))
            if inner is None:
                self._scan_line(scope, root, names)
            else:
                extent, end = self._dim(top, root.shape[inner]), b.add(start, I64(ROW_CHUNK))
                end = b.select(b.icmp_unsigned("<", end, extent), end, extent)
                self._scan_rows(scope, root, names, inner, start, end)

        self._places(top, sizes, low, high, line, "outer")

    def _scan_line(self, scope: Scope, root: Tensor, names: list[str]) -> None:
        """Along the innermost axis: the running value stays in a register."""

        def step(inner: Scope, values: list[ir_builder.Value]) -> list[ir_builder.Value]:
            return [self._scan_step(inner, root, names, values[0])]

        extent = self._dim(scope, root.shape[root.attrs[1]])
        self._fold(
            scope, I64(0), extent, [self._identity(root.attrs[0], root.dtype, scope)], self._scanned(root, names, step), "scan"
        )

    def _scan_rows(
        self, scope: Scope, root: Tensor, names: list[str], inner: int, start: ir_builder.Value, end: ir_builder.Value
    ) -> None:
        """Along another axis: the running values of a chunk of the innermost axis lie on the stack."""
        held = HELD.get(root.dtype, root.dtype)
        kind = storage_type(held)
        buffer = self.entry.alloca(kind, size=I64(ROW_CHUNK), align=64)

        def spot(place: Scope) -> ir_builder.Value:
            return place.builder.gep(buffer, [place.builder.sub(self.loop_variable, start)], source_etype=kind)

        def clear(place: Scope) -> None:
            Emitter(place.builder).store(self._identity(root.attrs[0], root.dtype, place), spot(place), held)

        def element(place: Scope) -> None:
            where, e = spot(place), Emitter(place.builder)
            place.variables[names[inner]] = self.loop_variable
            e.store(self._scan_step(place, root, names, e.load(where, held)), where, held)

        def step(place: Scope, _: list[ir_builder.Value]) -> list[ir_builder.Value]:
            self._loop(place, start, end, element, "row")
            return []

        self._loop(scope, start, end, clear, "row")
        self._fold(scope, I64(0), self._dim(scope, root.shape[root.attrs[1]]), [], self._scanned(root, names, step), "scan")

    def _scanned(
        self, root: Tensor, names: list[str], step: Callable[[Scope, list[ir_builder.Value]], list[ir_builder.Value]]
    ) -> Callable[[Scope, list[ir_builder.Value]], list[ir_builder.Value]]:
        """The body of the loop along the scanned axis, in the order of the scan."""
        axis, reverse = root.attrs[1], root.attrs[3]

        def body(scope: Scope, values: list[ir_builder.Value]) -> list[ir_builder.Value]:
            here, b = self.loop_variable, scope.builder
            if reverse:
                here = b.sub(b.sub(self._dim(scope, root.shape[axis]), here), I64(1))
            scope.variables[names[axis]] = here
            return step(scope, values)

        return body

    def _scan_step(self, scope: Scope, root: Tensor, names: list[str], running: ir_builder.Value) -> ir_builder.Value:
        """Store one element; returns the running value that follows."""
        op, _, exclusive, _ = root.attrs
        at: list[Index] = [("v", n) for n in names]
        following = self._combine(op, running, self._value(root.args[0], at, scope), root.dtype, scope)
        place = self._pointer(self.results[0], at, root.shape, root.dtype, scope)
        Emitter(scope.builder).store(running if exclusive else following, place, root.dtype)
        return following

    def _scatter(self, top: Scope, root: Tensor) -> None:
        """Copy, then update in order, since indices may repeat: by one thread, or, where the last index is an update's own
        place and no other depends on it, each thread its part of the last axis."""
        x, updates, *indices = root.args
        b = top.builder
        at: list[Index] = [("v", f"s{n}") for n in range(updates.rank)]
        where: list[Index] = [
            at[i.attrs[0]] if i.prim == "iota" and updates.shape[i.attrs[0]] == d else ("checked", ("at", i, tuple(at)), d)
            for i, d in zip(indices, root.shape, strict=True)
        ]
        distinct = bool(where) and where[-1] == at[-1] and not any(self._names(at[-1]) & self._names(i) for i in where[:-1])
        mine = b.icmp_unsigned("==", self.tid, I64(0))
        self.vectors = distinct

        def walk(
            shape: Sequence[Dim], prefix: str, element: Callable[[Scope], None], empty: ir_builder.Value | None = None
        ) -> None:
            rows = self._multiply(top, [I64(1), *(self._dim(top, d) for d in shape[:-1])])
            rows = rows if empty is None else top.builder.select(empty, I64(0), rows)
            low, high = I64(0), self._dim(top, shape[-1]) if shape else I64(1)
            if distinct:
                width = high
                low = b.udiv(b.mul(width, self.tid), self.nthreads)
                high = b.udiv(b.mul(width, b.add(self.tid, I64(1))), self.nthreads)
            else:
                rows = b.select(mine, rows, I64(0))

            def row(scope: Scope, places: list[ir_builder.Value]) -> None:
                scope.variables.update({f"{prefix}{n}": place for n, place in enumerate(places)})
                self._loop(scope, low, high, inner, "scatter")

            def inner(scope: Scope) -> None:
                if shape:
                    scope.variables[f"{prefix}{len(shape) - 1}"] = self.loop_variable
                element(scope)

            self._places(top, shape[:-1], I64(0), rows, row, "rows")

        def copy(scope: Scope) -> None:
            self._store(scope, [x], [("v", f"c{n}") for n in range(root.rank)], [0] * root.rank, root.shape)

        def update(scope: Scope) -> None:
            value = self._value(updates, at, scope)
            place = self._pointer(self.results[0], where, root.shape, root.dtype, scope)
            e = Emitter(scope.builder)
            if root.attrs[0] != "none":
                value = e.primitive(root.attrs[0], [e.load(place, root.dtype), value], root.dtype, root.dtype)
            e.store(value, place, root.dtype)

        walk(root.shape, "c", copy)
        walk(updates.shape, "s", update, self._without_places(top, root, updates))

    def _without_places(self, scope: Scope, root: Tensor, updates: Tensor) -> ir_builder.Value | None:
        """Whether a result has no elements, so that each update, if there are any, is out of range; None: it has some."""
        elements = product(root.shape)
        if isinstance(elements, int) and elements:
            return None
        b = scope.builder
        empty = b.icmp_unsigned("==", self._dim(scope, elements), I64(0))
        some = b.icmp_unsigned("!=", self._dim(scope, product(updates.shape)), I64(0))
        with b.if_then(b.and_(empty, some), likely=False):
            b.store(I64(INDEX_OUT_OF_RANGE), self.status)
        return empty
