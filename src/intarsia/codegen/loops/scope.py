"""Places in a loop nest, loops, and index expressions as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from intarsia.codegen.elementwise.element_types import I64
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.loops.index_expr import Index, may_miss
from intarsia.graph.dims import Dim, Expr, product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives.lang import Tensor
from intarsia.run_status import INDEX_OUT_OF_RANGE

ROLLED = '!{!"llvm.loop.unroll.disable"}'  # no iterations are written out before LLVM looks for vectors along the loop
MASKED = '!{!"llvm.loop.vectorize.predicate.enable", i1 true}'  # what is left over for no whole vector is one under a mask
# Vectors of a loop of fewer than 16 iterations, with some left over: else LLVM gathers all of what it reads under a mask.
FORCED = '!{!"llvm.loop.vectorize.enable", i1 true}'


@dataclass
class Scope:
    """A place in the nest: code that runs once an iteration of the loops around it."""

    builder: ir_builder.IRBuilder
    parent: Scope | None
    variables: dict[str, ir_builder.Value] = field(default_factory=dict)
    memo: dict[object, ir_builder.Value] = field(default_factory=dict)

    def binding(self, name: str) -> Scope:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope
            scope = scope.parent
        raise KeyError(name)

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth + 1

    def place(self, names: frozenset[str]) -> Scope:
        """The outermost scope in which all variables are known."""
        best = self
        while best.parent is not None and not names & best.variables.keys():
            best = best.parent
        return best


class LoopBuilder:
    """Loops and index arithmetic inside one function, whose run-time sizes are arguments behind its pointers."""

    module: ir_builder.Module
    entry: ir_builder.IRBuilder  # of the function's first block
    loop_variable: ir_builder.Value  # of the loop whose body is being written
    status: ir_builder.Value  # where an index out of range or a division by zero is reported, if there may be any

    def __init__(self) -> None:
        self.sizes: list[Expr] = []
        self.size_values: dict[Expr, ir_builder.Value] = {}
        self.divisors: dict[Expr, ir_builder.Value] = {}
        self.variables: dict[Index, frozenset[str]] = {}
        self.missed: ir_builder.Value | None = None  # a cell that is not 0 once an index was out of range
        self.vectors = True  # whether iterations of the innermost loops may be computed together
        self.deepest = 0  # how many loops are around the innermost one, itself counted

    def _value(self, t: Tensor, at: list[Index], scope: Scope) -> ir_builder.Value:
        raise NotImplementedError

    def _size_argument(self, position: int) -> ir_builder.Value:
        raise NotImplementedError

    def _loop(
        self, scope: Scope, low: ir_builder.Value, high: ir_builder.Value, body: Callable[[Scope], None], name: str,
        properties: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        def step(inner: Scope, _: list[ir_builder.Value]) -> list[ir_builder.Value]:
            body(inner)
            return []

        self._fold(scope, low, high, [], step, name, properties)

    def _fold(
        self, scope: Scope, low: ir_builder.Value, high: ir_builder.Value, initial: list[ir_builder.Value],
        body: Callable[[Scope, list[ir_builder.Value]], list[ir_builder.Value]], name: str, properties: tuple[str, ...] = (),
    ) -> list[ir_builder.Value]:  # fmt: skip
        """A loop that carries values; the body finds its counter in `self.loop_variable`. `properties`: of those above."""
        outer = scope.builder
        head, inside, after = (outer.append_basic_block(f"{name}.{part}") for part in ("head", "body", "exit"))
        b = ir_builder.IRBuilder(head)
        counter = b.phi(I64)
        carried = [b.phi(v.type) for v in initial]
        b.cbranch(b.icmp_unsigned("<", counter, high), inside, after)
        inner = Scope(ir_builder.IRBuilder(inside), scope)
        self.deepest = max(self.deepest, inner.depth)
        self.loop_variable: ir_builder.Value = counter
        following = body(inner, list(carried))
        step = inner.builder.add(counter, I64(1), flags=("nuw", "nsw"))
        counter.add_incoming(step, inner.builder.block)
        for phi, value in zip(carried, following, strict=True):
            phi.add_incoming(value, inner.builder.block)
        inner.builder.branch(head, f", !llvm.loop {self.module.loop(*properties)}" if properties else "")
        counter.add_incoming(low, outer.block)
        for phi, value in zip(carried, initial, strict=True):
            phi.add_incoming(value, outer.block)
        outer.branch(head)
        outer.position_at_end(after)
        return list(carried)

    def _places(
        self, scope: Scope, sizes: Sequence[Dim], low: ir_builder.Value, high: ir_builder.Value, body: Callable[[Scope,
        list[ir_builder.Value]], None],
        name: str,
    ) -> None:  # fmt: skip
        """A loop over positions low to high - 1, in row-major order, of axes of these sizes; the body is given the place along
        each. The first places are found by division, those that follow are counted."""
        moving = [n for n, d in enumerate(sizes) if d != 1]
        if len(moving) < 2:

            def only(inner: Scope) -> None:
                body(inner, [self.loop_variable if n in moving else I64(0) for n in range(len(sizes))])

            self._loop(scope, low, high, only, name)
            return
        extents = {n: self._divisor(scope, sizes[n]) for n in moving}
        b, position = scope.builder, low
        first: dict[int, ir_builder.Value] = {}
        for n in reversed(moving[1:]):
            first[n], position = b.urem(position, extents[n]), b.udiv(position, extents[n])
        first[moving[0]] = position

        def step(inner: Scope, values: list[ir_builder.Value]) -> list[ir_builder.Value]:
            here = dict(zip(moving, values, strict=True))
            body(inner, [here.get(n, I64(0)) for n in range(len(sizes))])
            b, following, carry = inner.builder, dict(here), I64(1)
            for n in reversed(moving[1:]):
                beyond = b.add(here[n], carry)
                is_over = b.icmp_unsigned("==", beyond, extents[n])
                following[n], carry = b.select(is_over, I64(0), beyond), b.zext(is_over, I64)
            following[moving[0]] = b.add(here[moving[0]], carry)
            return [following[n] for n in moving]

        self._fold(scope, low, high, [first[n] for n in moving], step, name)

    # --- index arithmetic ---

    def _names(self, index: Index) -> frozenset[str]:
        found = self.variables.get(index)
        if found is None:
            if index[0] == "v":
                found = frozenset((index[1],))
            elif index[0] == "at":
                found = frozenset().union(*(self._names(i) for i in index[2])) if index[2] else frozenset()
            else:
                found = frozenset().union(*(self._names(i) for i in index[1:] if isinstance(i, tuple)))
            self.variables[index] = found
        return found

    def _dim(self, scope: Scope, d: Dim) -> ir_builder.Value:
        if not isinstance(d, Expr):
            return I64(int(d))
        known = self.size_values.get(d)
        if known is None:
            known = self._size_argument(len(self.sizes))
            self.sizes.append(d)
            self.size_values[d] = known
        return known

    def _divisor(self, scope: Scope, d: Dim) -> ir_builder.Value:
        """A size, and 1 for 0: elements of an empty operand are addressed where they are then not selected."""
        if not isinstance(d, Expr):
            return I64(max(int(d), 1))
        known = self.divisors.get(d)
        if known is None:
            size, b = self._dim(scope, d), self.entry
            known = self.divisors[d] = b.select(b.icmp_unsigned("==", size, I64(0)), I64(1), size)
        return known

    def _note_miss(self, outside: ir_builder.Value, scope: Scope) -> None:
        """Whether an index is out of range goes into a cell; LLVM makes a reduction of that, and vectors of the loop."""
        b = scope.builder
        if not self.vectors:
            with b.if_then(outside, likely=False):
                b.store(I64(INDEX_OUT_OF_RANGE), self.status)
            return
        if self.missed is None:
            self.missed = self.entry.alloca(I64)
            self.entry.store(I64(0), self.missed)
        b.store(b.or_(b.load(self.missed, typ=I64), b.zext(outside, I64)), self.missed)

    def _report_misses(self, scope: Scope) -> None:
        """Set the status where an index was out of range."""
        if self.missed is not None:
            b = scope.builder
            with b.if_then(b.icmp_unsigned("!=", b.load(self.missed, typ=I64), I64(0)), likely=False):
                b.store(I64(INDEX_OUT_OF_RANGE), self.status)

    def _multiply(self, scope: Scope, values: list[ir_builder.Value]) -> ir_builder.Value:
        total = values[0]
        for v in values[1:]:
            total = scope.builder.mul(total, v)
        return total

    def _index(self, index: Index, scope: Scope) -> ir_builder.Value:
        """The value of an index expression, computed in the outermost scope that knows its variables."""
        if index[0] == "c":
            return I64(index[1])
        if index[0] == "v":
            return scope.binding(index[1]).variables[index[1]]
        place = scope.place(self._names(index))
        key = ("index", index)
        known = place.memo.get(key)
        if known is None:
            known = place.memo[key] = self._compute_index(index, place)
        return known

    def _compute_index(self, index: Index, scope: Scope) -> ir_builder.Value:
        kind = index[0]
        if kind == "at":
            value = self._value(index[1], list(index[2]), scope)
            return Emitter(scope.builder).cast(value, index[1].dtype, DType.INT64)
        first = self._index(index[1], scope)
        b = scope.builder
        if kind == "+":
            return b.add(first, self._index(index[2], scope), flags=("nsw",))
        size = self._dim(scope, index[2])
        b = scope.builder
        if kind == "*":
            return b.mul(first, size, flags=("nsw",))
        if kind in ("/", "%"):
            return (b.udiv if kind == "/" else b.urem)(first, self._divisor(scope, index[2]))
        if kind == "1":
            return b.select(b.icmp_unsigned("==", size, I64(1)), I64(0), first)
        if kind == "checked":
            outside = b.icmp_unsigned(">=", first, size)
            _, tensor, where = index[1]
            if any(may_miss(i) for i in where):  # what was read instead of an element of no indices is no index
                outside = b.and_(outside, b.icmp_unsigned("!=", self._dim(scope, product(tensor.shape)), I64(0)))
            self._note_miss(outside, scope)
        top = b.sub(size, I64(1))
        low = b.select(b.icmp_signed(">", first, top), top, first)
        return b.select(b.icmp_signed("<", low, I64(0)), I64(0), low)
