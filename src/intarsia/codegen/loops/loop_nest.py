"""Loop nests from primitive graphs: any definition becomes one kernel that pulls its operands element by element.

The nest walks the output's index space. An outer loop, shared out among threads, covers all axes but the last in row-major
order and chunks of the last one; the inner loop runs along the last axis, with unit stride, and is left to LLVM to
vectorise. Values that do not depend on inner loops are computed where the loops they depend on are (so softmax's maximum
is found once a row, and its powers, which the sum and the output need, are stored in the output: `reuse_in_output`). A
reduction that depends on the inner axis accumulates into a row of that axis's chunk, so that its inner loop too runs with
unit stride (pooling in NHWC, column sums, plain matrix products).

Arguments of a kernel: operand pointers, output pointers, then run-time sizes (see `LoopKernel`).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from intarsia.codegen.elementwise.element_types import I64, NARROW, PTR, SUPPORTED_DTYPES, storage_type
from intarsia.codegen.elementwise.emitter import EXTREMA, SCALES, Emitter, UnsupportedPrimitive
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.compile_ir import Effort
from intarsia.codegen.llvm.jit import KernelText, kernel_text
from intarsia.codegen.llvm.target import Target
from intarsia.codegen.loops.collapse_axes import collapse
from intarsia.codegen.loops.element_values import stripped
from intarsia.codegen.loops.hoisted_rows import BLOCK, Rows, rows_of
from intarsia.codegen.loops.index_expr import ELEMENTWISE, Index, add, linear, of_dim, operand_indices
from intarsia.codegen.loops.interior_windows import Bordered, bordered, emptiable, is_strided, is_written_out, window_elements
from intarsia.codegen.loops.reuse_in_output import reused_value
from intarsia.codegen.loops.scan_and_scatter import ROW_CHUNK, InOrder
from intarsia.codegen.loops.scope import FORCED, MASKED, ROLLED, Scope
from intarsia.codegen.loops.sizes_as_arguments import with_sizes_as_arguments
from intarsia.codegen.loops.split_argreduce import in_reductions
from intarsia.graph.dims import Dim, Expr, evaluate, number_of, product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives.divisors import may_divide_by_zero
from intarsia.primitives.lang import Tensor, walk

CHUNK = 4096  # elements of the last axis that one iteration of the outer loop covers
ORDERED_PARTS = 16  # into which work is cut, for any number of threads, where the target is ordered
_LITTLE = 8  # reductions that every thread computes anew are at most one of so many operations
_TAIL = 8  # elements of the last axes that are written out
_WRITTEN_ROW = 16  # elements of the longest row that LLVM writes out
_WRITTEN_OUT = 256  # primitives of all of them together
_USUAL = 64
_DEEP = 10  # loops around each other: LLVM's passes for loops take 0.6 s for 8, 4 s for 13 and 25 s for 20 of one kernel
# What there is of elements that are bytes to be moved or converted.
_MOVING = frozenset(
    "input scalar table broadcast expand reshape transpose slice pad concat windows take index scatter select cast "
    "bitcast".split()
)
_STRUCTURAL = frozenset(
    "input scalar size table iota broadcast expand reshape transpose slice pad concat windows take index reduce argreduce "
    "scan dot scatter".split()
)


@dataclass(frozen=True)
class LoopKernel:
    """A generated kernel and the order of its arguments.

    Attributes:
        operands: which `input(i)`s it reads, in the order of their pointers.
        outputs: how many output pointers follow.
        checked: whether the address of an int64 follows, which is set to INDEX_OUT_OF_RANGE when an index is (the kernel then
            reads in range instead), and to DIVISION_BY_ZERO when an integer is divided by 0 (which gives 0).
        sizes: numbers, and expressions whose values, follow.
    """

    text: KernelText
    operands: tuple[int, ...]
    outputs: int
    checked: bool
    sizes: tuple[Dim, ...]


WHOLE = frozenset(("scan", "scatter"))  # primitives that are computed into a buffer, which what is around them reads


def unsupported(roots: Sequence[Tensor], nested: bool = False) -> str | None:
    """Why the roots cannot be compiled to loops, or None. `nested`: primitives in `WHOLE` may be inside larger expressions."""
    for t in walk(roots):
        if t.prim not in _STRUCTURAL and t.prim not in ELEMENTWISE:
            return f"primitive {t.prim!r} has no loop form"
        if t.dtype not in SUPPORTED_DTYPES and not (t.dtype in NARROW and _moves_or_converts(t)):
            return f"{t.dtype.onnx_name} is not compiled"
        if t.prim not in _MOVING and (narrow := next((a.dtype for a in t.args if a.dtype in NARROW), None)) is not None:
            return f"{t.prim} of {narrow.onnx_name} is not compiled"
        if not nested and t.prim in WHOLE and t is not stripped(roots[0]):
            return f"{t.prim!r} inside a larger expression"
    return None


def _moves_or_converts(t: Tensor) -> bool:
    """Whether a tensor of bytes (`narrow`) is one that has code: moved, or converted from a type that is computed with."""
    if t.dtype is DType.FLOAT8E8M0 and t.prim in ("cast", "scalar"):
        return False
    return t.prim in _MOVING and (t.prim != "scatter" or t.attrs[0] == "none")


def lower(roots: Sequence[Tensor], target: Target, prefix: str = "loops") -> LoopKernel:
    """Generate the kernel that computes `roots` (of equal shape, or one root) from the inputs they use.

    Raises:
        UnsupportedPrimitive: something in the graph has no code.
    """
    key = (_structure(roots), target, prefix)
    known = _lowered.get(key)
    if known is None:
        reason = unsupported(roots)
        if reason is not None:
            raise UnsupportedPrimitive(reason)
        simple, values = with_sizes_as_arguments(collapse(in_reductions([stripped(r) for r in roots])), CHUNK)
        if len(_lowered) >= _LOWERED_LIMIT:
            _lowered.clear()
        made = _with_sizes(simple, values, target, prefix) if values else _Lowering(simple, target, prefix).finish()
        known = _lowered[key] = made
    return known


def _with_sizes(roots: list[Tensor], values: Mapping[Dim, int], target: Target, prefix: str) -> LoopKernel:
    """The kernel of roots in which symbols stand for sizes; those of others are written once."""
    short = frozenset(name for name, size in values.items() if size <= CHUNK)
    key = (_structure(roots), target, prefix, short)
    open_kernel = _lowered.get(key)
    if open_kernel is None:
        open_kernel = _lowered[key] = _Lowering(roots, target, prefix, short).finish()
    env = {str(name): size for name, size in values.items()}
    return replace(open_kernel, sizes=tuple(evaluate(d, env) for d in open_kernel.sizes))


_LOWERED_LIMIT = 2048
_lowered: dict[object, LoopKernel] = {}


def _structure(roots: Sequence[Tensor]) -> tuple[object, ...]:
    """Equal for equal primitive graphs."""
    order = walk(roots)
    position = {id(t): i for i, t in enumerate(order)}
    rows = tuple((t.prim, tuple(position[id(a)] for a in t.args), _exact(t), t.dtype, t.shape) for t in order)
    return (rows, tuple(position[id(r)] for r in roots))


class _Lowering(InOrder):
    def __init__(self, roots: list[Tensor], target: Target, prefix: str, short: frozenset[Dim] = frozenset()) -> None:
        """`short`: sizes that are at most CHUNK."""
        super().__init__()
        self.roots, self.target, self.prefix, self.short = roots, target, prefix, short
        self.order = walk(roots)
        self.operands = tuple(sorted({t.attrs[0] for t in self.order if t.prim == "input"}))
        self.checked = any(t.prim in ("take", "index", "scatter") or may_divide_by_zero(t) for t in self.order)

    # --- the function around the nest ---

    def finish(self) -> LoopKernel:
        module = ir_builder.Module("kernel")
        setattr(module, SCALES, self.target.scales_floats)
        setattr(module, EXTREMA, self.target.has_extrema)
        self.module = module
        pointers = len(self.operands) + len(self.roots)
        body_type = ir_builder.FunctionType(ir_builder.VoidType(), [I64, I64, PTR] + [PTR] * pointers)
        body = ir_builder.Function(module, body_type, "body")
        body.linkage = "internal"
        body.attributes.add("noinline")
        for argument in body.args[3:]:
            argument.add_attribute("noalias")
        self.tid, self.nthreads, self.arguments = body.args[:3]
        self.pointers = {i: body.args[3 + n] for n, i in enumerate(self.operands)}
        self.results = [*body.args[3 + len(self.operands) :]]
        self.entry = ir_builder.IRBuilder(body.append_basic_block("entry"))
        if self.checked:
            self.status = self._argument(pointers, PTR)
        work = self.entry.append_basic_block("work")
        top = Scope(ir_builder.IRBuilder(work), None)
        self._nests(top)
        self._report_misses(top)
        self._report_zeros(top)
        top.builder.ret_void()
        self.entry.branch(work)
        self._wrapper(body)
        text = re.sub(r"^(define .*)$", rf"\1 {self.target.function_attributes}", module.printed(), flags=re.MULTILINE)
        effort = Effort.ALL if self.deepest <= _DEEP else Effort.VECTORS
        kernel = kernel_text(self.prefix, text, effort)
        return LoopKernel(kernel, self.operands, len(self.roots), self.checked, tuple(self.sizes))

    def _wrapper(self, body: ir_builder.Function) -> None:
        main = ir_builder.Function(self.module, ir_builder.FunctionType(ir_builder.VoidType(), [PTR, I64, I64]), "__SYMBOL__")
        b = ir_builder.IRBuilder(main.append_basic_block("entry"))
        args, tid, nthreads = main.args
        operands = [
            b.load(b.gep(args, [I64(i)], source_etype=I64), typ=kind) for i, kind in enumerate(body.function_type.args[3:])
        ]
        if not self.target.ordered:
            b.call(body, [tid, nthreads, args, *operands])
            b.ret_void()
            return
        # What LLVM computes in vectors and what is left over depends on where a part begins, so the parts are always the same.
        first = b.udiv(b.mul(tid, I64(ORDERED_PARTS)), nthreads)
        last = b.udiv(b.mul(b.add(tid, I64(1)), I64(ORDERED_PARTS)), nthreads)
        before, part, done = b.block, main.append_basic_block("part"), main.append_basic_block("done")
        b.cbranch(b.icmp_unsigned("<", first, last), part, done)
        b.position_at_end(part)
        number = b.phi(I64)
        number.add_incoming(first, before)
        b.call(body, [number, I64(ORDERED_PARTS), args, *operands])
        following = b.add(number, I64(1))
        number.add_incoming(following, part)
        b.cbranch(b.icmp_unsigned("<", following, last), part, done)
        b.position_at_end(done)
        b.ret_void()

    def _size_argument(self, position: int) -> ir_builder.Value:
        return self._argument(len(self.pointers) + len(self.results) + self.checked + position, I64)

    def _argument(self, position: int, kind: ir_builder.Type) -> ir_builder.Value:
        return self.entry.load(self.entry.gep(self.arguments, [I64(position)], source_etype=I64), typ=kind)

    # --- loop structure ---

    def _nests(self, top: Scope) -> None:
        root = self.roots[0]
        if len(self.roots) > 1:
            if any(r.shape != root.shape for r in self.roots):
                raise UnsupportedPrimitive("outputs of different shapes in one kernel")
            self._nest(top, self.roots, root.shape, [0] * len(root.shape), root.shape)
        elif root.prim == "scan":
            self._scan(top, root)
        elif root.prim == "scatter":
            self._scatter(top, root)
        else:
            self._regions(top, root, [0] * root.rank, root.shape)

    def _regions(self, top: Scope, root: Tensor, offsets: list[Dim], full: Sequence[Dim]) -> None:
        """Nests for the parts of what is put together, or padded: nothing is chosen element by element."""
        if root.prim == "concat":
            (axis,), at = root.attrs, list(offsets)
            for part in root.args:
                self._regions(top, part, list(at), full)
                at[axis] = at[axis] + part.shape[axis]
        elif root.prim == "pad":
            (x, fill), (low, high) = root.args, root.attrs
            inside = [offset + begin for offset, begin in zip(offsets, low, strict=True)]
            for n in range(root.rank):
                for start, count in ((0, low[n]), (root.shape[n] - high[n], high[n])):
                    shape = (*x.shape[:n], count, *root.shape[n + 1 :])
                    if count != 0:
                        at = [*inside[:n], offsets[n] + start, *offsets[n + 1 :]]
                        self._nest(top, [Tensor("broadcast", (fill,), (), fill.dtype, shape)], shape, at, full)
            self._regions(top, x, inside, full)
        else:
            self._nest(top, [root], root.shape, offsets, full)

    def _nest(self, top: Scope, roots: list[Tensor], shape: Sequence[Dim], offsets: list[Dim], full: Sequence[Dim]) -> None:
        """Loops over `shape` that store the roots at `offsets` into outputs of shape `full`."""
        names = [f"i{n}" for n in range(len(shape))]
        plan = self._plan(roots, shape, names)
        self.chunk = plan.chunk
        self.row_variable = None if plan.inner is None else names[plan.inner]
        self.rolls_extrema = plan.inner is not None and self._is_of_parts(shape[plan.inner])
        self.reused = reused_value(roots[0], names) if plan.whole_rows and len(roots) == 1 else None
        self.reused_offsets, self.reused_shape = offsets, full
        outer, rows = plan.outer, plan.rows
        chunks: Dim = 1
        if plan.inner is not None and not plan.whole_rows and not (plan.chunk == CHUNK and shape[plan.inner] in self.short):
            chunks = (shape[plan.inner] + (plan.chunk - 1)) // plan.chunk
        many: Dim = product([shape[n] for n in rows.axes]) if rows is not None else 1
        blocks: Dim = (many + (BLOCK - 1)) // BLOCK
        sizes: list[Dim] = [*(shape[n] for n in outer), blocks, chunks]
        inside = [shape[n] for n in plan.middle] + ([shape[plan.inner]] if plan.inner is not None and chunks == 1 else [])
        total = self._none_where_empty(top, self._multiply(top, [self._dim(top, d) for d in sizes]), inside)
        self.rows = rows
        b = top.builder
        low = b.udiv(b.mul(total, self.tid), self.nthreads)
        high = b.udiv(b.mul(total, b.add(self.tid, I64(1))), self.nthreads)

        def iteration(scope: Scope, places: list[ir_builder.Value]) -> None:
            scope.variables = {names[n]: place for n, place in zip(outer, places, strict=False)}
            if self.reused is not None and self.reused.single_row:
                self.outermost = scope
            b, (block, part) = scope.builder, places[-2:]
            start = I64(0) if chunks == 1 else b.mul(part, I64(plan.chunk))
            if rows is not None:
                first = b.mul(block, I64(BLOCK))
                scope.variables["first"], scope.variables["last"] = first, self._end(scope, first, BLOCK, many)
            scope.variables["start"] = start
            if plan.inner is not None:
                extent = shape[plan.inner]
                scope.variables["end"] = self._dim(top, extent) if chunks == 1 else self._end(scope, start, plan.chunk, extent)
            self._middle(scope, _Nest(plan, roots, shape, names, offsets, full))

        self._places(top, sizes, low, high, iteration, "outer")
        self.reused = self.outermost = self.rows = None

    def _none_where_empty(self, scope: Scope, total: ir_builder.Value, inside: Sequence[Dim]) -> ir_builder.Value:
        """`total`, or 0 where one of the sizes inside is: the rows of shape (2**39, 0) are not worth walking."""
        for d in inside:
            if not isinstance(d, int) or d == 0:
                empty = scope.builder.icmp_signed("==", self._dim(scope, d), I64(0))
                total = scope.builder.select(empty, I64(0), total)
        return total

    def _end(self, scope: Scope, start: ir_builder.Value, count: int, extent: Dim) -> ir_builder.Value:
        """The end of a part of so many that begins at `start`."""
        b, all_of_it = scope.builder, self._dim(scope, extent)
        end = b.add(start, I64(count))
        return b.select(b.icmp_unsigned("<", end, all_of_it), end, all_of_it)

    def _middle(self, scope: Scope, nest: _Nest, level: int = 0) -> None:
        plan, roots, shape, names = nest.plan, nest.roots, nest.shape, nest.names
        if plan.rows is not None and not level:
            axes = plan.rows.axes

            def block(inner: Scope, places: list[ir_builder.Value]) -> None:
                inner.variables.update(zip([names[n] for n in axes], places, strict=True))
                self._middle(inner, nest, level + 1)

            first, last = (scope.binding(v).variables[v] for v in ("first", "last"))
            self._places(scope, [shape[n] for n in axes], first, last, block, "block")
            return
        if level < len(plan.middle):
            n = plan.middle[level]

            def body(inner: Scope) -> None:
                inner.variables[names[n]] = self.loop_variable
                self._middle(inner, nest, level + 1)

            self._loop(scope, I64(0), self._dim(scope, shape[n]), body, f"middle{level}")
            return

        def store(inner: Scope) -> None:
            if plan.inner is not None:
                inner.variables[names[plan.inner]] = self.loop_variable
            for place in itertools.product(*(range(number_of(shape[n])) for n in plan.tail)):
                numbers: dict[int, Index] = {n: ("c", i) for n, i in zip(plan.tail, place, strict=True)}
                at = [numbers.get(n, ("v", name)) for n, name in enumerate(names)]
                self._store(inner, roots, at, nest.offsets, nest.full)

        if plan.inner is None:
            self._store(scope, roots, [("v", name) for name in names], nest.offsets, nest.full)
        else:
            at: list[Index] = [("v", name) for name in names]
            plain = [] if plan.tail else roots
            borders = [border for r in plain for border in bordered(r, at, names[plan.inner])]
            filled = [n for r in plain if plan.rows is None for n in emptiable(r, at, names[plan.inner])]
            start, end = (scope.binding(v).variables[v] for v in ("start", "end"))
            properties = self._row_properties(shape[plan.inner], borders, plain, at, names[plan.inner])
            self._row(scope, borders, (start, end), store, "inner", properties, filled)

    def _row_properties(
        self, extent: Dim, borders: Sequence[Bordered], roots: Sequence[Tensor], at: list[Index], row: str
    ) -> tuple[str, ...]:  # fmt: skip
        """For rows that LLVM would write out element by element before it makes vectors of them, and rows of windows side by
        side, which are short, so that their last elements would cost as much as the others. Where what is read for neighbours
        lies strided (`is_strided`), LLVM would gather it."""
        beside = borders and all(border.step == 1 for border in borders)
        if beside and isinstance(extent, Expr) and self.target.has("avx512vl"):
            return (MASKED,)
        if not isinstance(extent, int) or not _TAIL < extent <= _WRITTEN_ROW:
            return ()
        if any(is_strided(r, at, row) for r in roots):
            return (ROLLED, FORCED)
        return (ROLLED, MASKED) if self.target.has("avx512vl") else (ROLLED,)

    def _is_of_parts(self, extent: Dim) -> bool:
        """Whether a row of extrema is one of vectors, halves and quarters of them: with masks in registers, what LLVM makes of
        it once it has written all elements out is up to eight times slower."""
        return self.target.has("avx512vl") and isinstance(extent, int) and extent > _TAIL and extent % 4 == 0

    def _store(self, scope: Scope, roots: list[Tensor], indices: list[Index], offsets: list[Dim], full: Sequence[Dim]) -> None:
        values = [self._value(r, indices, scope) for r in roots]
        shifted = [add(i, of_dim(o)) for i, o in zip(indices, offsets, strict=True)]
        at = self._index(linear(shifted, full), scope)
        for pointer, value, root in zip(self.results, values, roots, strict=True):
            place = scope.builder.gep(pointer, [at], source_etype=storage_type(root.dtype))
            Emitter(scope.builder).store(value, place, root.dtype)

    def _plan(self, roots: list[Tensor], shape: Sequence[Dim], names: list[str]) -> _NestPlan:
        """Which axes are walked by the outer loop, which inside it, and whether the last one is the inner loop."""
        last = max((n for n, d in enumerate(shape) if d != 1), default=None)
        uses = self._reductions(roots, [("v", name) for name in names])
        rows = [(t, deps) for t, deps in uses if last is not None and names[last] in deps]
        inner = last
        if any(_reduces_last_axis(t) for t, _ in rows):
            inner = None
        hoisted = [deps for t, deps in uses if deps != frozenset(names)]
        middle = []
        for n in range(len(shape)):
            if n == inner or shape[n] == 1 or not hoisted:
                continue
            if any(names[n] not in deps for deps in hoisted):
                middle.append(n)
        while middle and all(shape[n] == 1 for n in range(middle[0])) and _little(uses, shape, names, middle[0], inner):
            del middle[0]
        tail = () if uses else self._tail(shape)
        if tail and inner is not None and rows_of(roots, shape, names, inner) is None:
            inner = max(n for n, d in enumerate(shape) if d != 1 and n < tail[0])
            outer = [n for n in range(len(shape)) if n != inner and n not in tail]
            return _NestPlan(outer, [], inner, CHUNK // _TAIL, False, None, tail)
        outer = [n for n in range(len(shape)) if n != inner and n not in middle]
        chunk = ROW_CHUNK if inner is not None and rows else CHUNK
        whole = inner is not None and not rows and any(_reduces_size(t, shape[inner]) for t, _ in uses)
        in_rows = None if uses or inner is None else rows_of(roots, shape, names, inner)
        if in_rows is not None:
            outer, chunk = [n for n in outer if n not in in_rows.axes], in_rows.chunk
        return _NestPlan(outer, middle, inner, chunk, whole, in_rows)

    def _tail(self, shape: Sequence[Dim]) -> tuple[int, ...]:
        """The last axes, if they have few elements and another one is before them: written out, which lets LLVM make vectors of
        the loop along that one."""
        last = [n for n, d in enumerate(shape) if d != 1]
        found: list[int] = []
        for n in reversed(last[1:]):
            many = product([shape[i] for i in (n, *found)])
            if not isinstance(many, int) or not 0 < many <= _TAIL or many * len(self.order) > _WRITTEN_OUT:
                break
            found.insert(0, n)
        return tuple(found)

    def _reductions(self, roots: list[Tensor], indices: list[Index]) -> list[tuple[Tensor, frozenset[str]]]:
        """Reductions met when the roots are evaluated, with the loop variables that each depends on."""
        found: list[tuple[Tensor, frozenset[str]]] = []
        seen: set[object] = set()

        def visit(t: Tensor, at: list[Index]) -> None:
            key = (id(t), tuple(at))
            if key in seen:
                return
            seen.add(key)
            if is_written_out(t):
                visit(t.args[0], next(window_elements(t, at)))
                return
            if t.prim in ("reduce", "argreduce", "dot"):
                found.append((t, frozenset().union(*(self._names(i) for i in at)) if at else frozenset()))
                return
            for operand, where in operand_indices(t, at):
                visit(operand, where)

        for r in roots:
            visit(r, indices)
        return found


def _exact(t: Tensor) -> tuple[object, ...]:
    """The attributes; a scalar as text, since 0.0 == -0.0."""
    return (repr(t.attrs[0]),) if t.prim == "scalar" else t.attrs


@dataclass
class _NestPlan:
    outer: list[int]
    middle: list[int]
    inner: int | None
    chunk: int
    whole_rows: bool  # reductions along the inner axis are for one outer iteration, which therefore covers all of it
    rows: Rows | None  # what is held in rows; then there is no axis in `middle`
    tail: tuple[int, ...] = ()  # the last axes, which are written out inside the inner loop


@dataclass(frozen=True)
class _Nest:
    """Loops over `shape`, by variables of these names, that store the roots at `offsets` into outputs of shape `full`."""

    plan: _NestPlan
    roots: list[Tensor]
    shape: Sequence[Dim]
    names: list[str]
    offsets: list[Dim]
    full: Sequence[Dim]


def _little(
    uses: Sequence[tuple[Tensor, frozenset[str]]], shape: Sequence[Dim], names: Sequence[str], axis: int, inner: int | None
) -> bool:
    """Whether the reductions that do not depend on `axis` cost little beside the rest, for each place along it: then threads
    share its places, and each computes them again."""
    sizes = {name: d for name, d in zip(names, shape, strict=True) if d != 1 and name != names[axis]}
    spent = sum(
        _terms(t) * _count(sizes[name] for name in deps if name in sizes) for t, deps in uses if names[axis] not in deps
    )
    each = max((_terms(t) for t, deps in uses if names[axis] in deps), default=1.0)
    return _LITTLE * spent <= each * _count(sizes.values())


def _terms(t: Tensor) -> float:
    """How many elements a reduction takes for one of its own."""
    if t.prim == "dot":
        return _count(t.args[0].shape[-1:])
    return _count(t.args[0].shape[a] for a in (t.attrs[1] if t.prim == "reduce" else (t.attrs[1],)))


def _count(sizes: Iterable[Dim]) -> float:
    """The product; a size that only a run knows is taken for `_USUAL`."""
    return math.prod(d if isinstance(d, int) else _USUAL for d in sizes)


def _reduces_size(t: Tensor, extent: Dim) -> bool:
    """Whether a reduction runs along an axis of this size."""
    return t.prim == "reduce" and any(t.args[0].shape[a] == extent for a in t.attrs[1])


def _reduces_last_axis(t: Tensor) -> bool:
    """Whether consecutive elements of a reduction are neighbours in memory."""
    if t.prim == "dot":
        return False
    x = t.args[0]
    last = max((i for i, d in enumerate(x.shape) if d != 1), default=-1)
    if x.prim == "windows":
        return False
    axes = t.attrs[1] if t.prim == "reduce" else (t.attrs[1],)
    return t.prim == "argreduce" or last in axes
