"""Loop nests from primitive graphs: any definition becomes one kernel that pulls its operands element by element.

The nest walks the output's index space. An outer loop, shared out among threads, covers all axes but the last in row-major
order and chunks of the last one; the inner loop runs along the last axis, with unit stride, and is left to LLVM to
vectorise. Values that do not depend on inner loops are computed where the loops they depend on are (so softmax's maximum
is found once a row). A reduction that depends on the inner axis accumulates into a row of that axis's chunk, so that its
inner loop too runs with unit stride (pooling in NHWC, column sums, plain matrix products).

Arguments of a kernel: operand pointers, output pointers, then run-time sizes (see `LoopKernel`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import llvmlite.ir as ir
import numpy as np

from intarsia.codegen.collapse import collapse
from intarsia.codegen.emit import I1, I64, PTR, SUPPORTED_DTYPES, Emitter, UnsupportedPrimitive, compute_type, storage_type
from intarsia.codegen.engine import KernelText, kernel_text
from intarsia.codegen.target import Target
from intarsia.graph.dims import Dim, Expr, product
from intarsia.graph.dtypes import DType
from intarsia.kernel.interpret import highest, lowest
from intarsia.kernel.lang import BINARY, UNARY, Tensor, walk

CHUNK = 4096  # elements of the last axis that one iteration of the outer loop covers
ROW_CHUNK = 512  # the same where reductions keep rows on the stack
_STRUCTURAL = frozenset(
    "input scalar size table iota broadcast expand reshape transpose slice pad concat windows take index reduce argreduce "
    "scan dot scatter".split()
)
_ELEMENTWISE = UNARY | BINARY | {"select", "cast", "bitcast"}

Index = tuple  # ("c", n) | ("v", name) | ("+", a, b) | ("*", a, dim) | ("/", a, dim) | ("%", a, dim) | ("1", a, dim) | ("clamp", a, dim) | ("checked", a, dim) | ("at", tensor, indices)
ZERO: Index = ("c", 0)


@dataclass(frozen=True)
class LoopKernel:
    """A generated kernel and the order of its arguments.

    Attributes:
        operands: which `input(i)`s it reads, in the order of their pointers.
        outputs: how many output pointers follow.
        checked: whether the address of an int64 follows, which is set to 1 when an index is out of range (the kernel then
            reads in range instead).
        sizes: expressions whose values follow.
    """

    text: KernelText
    operands: tuple[int, ...]
    outputs: int
    checked: bool
    sizes: tuple[Expr, ...]


def unsupported(roots: Sequence[Tensor]) -> str | None:
    """Why the roots cannot be compiled to loops, or None."""
    for t in walk(roots):
        if t.prim not in _STRUCTURAL and t.prim not in _ELEMENTWISE:
            return f"primitive {t.prim!r} has no loop form"
        if t.dtype not in SUPPORTED_DTYPES:
            return f"{t.dtype.onnx_name} is not compiled"
        if t.prim in ("scan", "scatter") and t is not _stripped(roots[0]):
            return f"{t.prim!r} inside a larger expression"
    return None


def _stripped(root: Tensor) -> Tensor:
    while root.prim == "reshape":
        root = root.args[0]
    return root


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
        kept = collapse([_stripped(r) for r in roots])
        if len(_lowered) >= _LOWERED_LIMIT:
            _lowered.clear()
        known = _lowered[key] = _Lowering(kept, target, prefix).finish()
    return known


_LOWERED_LIMIT = 2048
_lowered: dict[object, LoopKernel] = {}


def _structure(roots: Sequence[Tensor]) -> tuple[object, ...]:
    """Equal for equal primitive graphs."""
    order = walk(roots)
    position = {id(t): i for i, t in enumerate(order)}
    rows = tuple((t.prim, tuple(position[id(a)] for a in t.args), t.attrs, t.dtype, t.shape) for t in order)
    return (rows, tuple(position[id(r)] for r in roots))


@dataclass
class _Scope:
    """A place in the nest: code that runs once an iteration of the loops around it."""

    builder: ir.IRBuilder
    parent: _Scope | None
    variables: dict[str, ir.Value] = field(default_factory=dict)
    memo: dict[object, ir.Value] = field(default_factory=dict)

    def binding(self, name: str) -> _Scope:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope
            scope = scope.parent
        raise KeyError(name)

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth + 1

    def place(self, names: frozenset[str]) -> _Scope:
        """The outermost scope in which all variables are known."""
        best = self
        while best.parent is not None and not names & best.variables.keys():
            best = best.parent
        return best


class _Lowering:
    def __init__(self, roots: list[Tensor], target: Target, prefix: str) -> None:
        self.roots, self.target, self.prefix = roots, target, prefix
        self.order = walk(roots)
        self.operands = tuple(sorted({t.attrs[0] for t in self.order if t.prim == "input"}))
        self.sizes: list[Expr] = []
        self.checked = any(t.prim in ("take", "index", "scatter") for t in self.order)
        self.serial = 0
        self.variables: dict[Index, frozenset[str]] = {}

    # --- the function around the nest ---

    def finish(self) -> LoopKernel:
        module = ir.Module("kernel")
        self.module = module
        pointers = len(self.operands) + len(self.roots)
        body_type = ir.FunctionType(ir.VoidType(), [I64, I64, PTR] + [PTR] * pointers)
        body = ir.Function(module, body_type, "body")
        body.linkage = "internal"
        body.attributes.add("noinline")
        for argument in body.args[3:]:
            argument.add_attribute("noalias")
        self.tid, self.nthreads, self.arguments = body.args[:3]
        self.pointers = {i: body.args[3 + n] for n, i in enumerate(self.operands)}
        self.results = body.args[3 + len(self.operands) :]
        self.size_values: dict[Expr, ir.Value] = {}
        self.entry = ir.IRBuilder(body.append_basic_block("entry"))
        self.status: ir.Value | None = self._argument(pointers, PTR) if self.checked else None
        work = self.entry.append_basic_block("work")
        top = _Scope(ir.IRBuilder(work), None)
        self._nests(top)
        top.builder.ret_void()
        self.entry.branch(work)
        self._wrapper(body)
        text = re.sub(r"^(define .*)$", rf"\1 {self.target.function_attributes}", str(module), flags=re.M)
        return LoopKernel(kernel_text(self.prefix, text), self.operands, len(self.roots), self.checked, tuple(self.sizes))

    def _wrapper(self, body: ir.Function) -> None:
        main = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [PTR, I64, I64]), "__SYMBOL__")
        b = ir.IRBuilder(main.append_basic_block("entry"))
        arguments: list[ir.Value] = [main.args[1], main.args[2], main.args[0]]
        for i, kind in enumerate(body.function_type.args[3:]):
            arguments.append(b.load(b.gep(main.args[0], [I64(i)], source_etype=I64), typ=kind))
        b.call(body, arguments)
        b.ret_void()

    def _argument(self, position: int, kind: ir.Type) -> ir.Value:
        return self.entry.load(self.entry.gep(self.arguments, [I64(position)], source_etype=I64), typ=kind)

    # --- loop structure ---

    def _nests(self, top: _Scope) -> None:
        root = self.roots[0]
        if len(self.roots) > 1:
            if any(r.shape != root.shape for r in self.roots):
                raise UnsupportedPrimitive("outputs of different shapes in one kernel")
            self._nest(top, self.roots, root.shape, [0] * len(root.shape), root.shape)
        elif root.prim == "concat":
            offsets: list[Dim] = [0] * root.rank
            for part in root.args:
                self._nest(top, [part], part.shape, list(offsets), root.shape)
                offsets[root.attrs[0]] = offsets[root.attrs[0]] + part.shape[root.attrs[0]]
        elif root.prim == "scan":
            self._scan(top, root)
        elif root.prim == "scatter":
            self._scatter(top, root)
        else:
            self._nest(top, [root], root.shape, [0] * root.rank, root.shape)

    def _nest(self, top: _Scope, roots: list[Tensor], shape: Sequence[Dim], offsets: list[Dim], full: Sequence[Dim]) -> None:
        """Loops over `shape` that store the roots at `offsets` into outputs of shape `full`."""
        names = [f"i{n}" for n in range(len(shape))]
        plan = self._plan(roots, shape, names)
        self.chunk = plan.chunk
        outer = [n for n in plan.outer]
        chunks: Dim = 1
        if plan.inner is not None:
            chunks = (shape[plan.inner] + (plan.chunk - 1)) // plan.chunk
        total = self._multiply(top, [self._dim(top, shape[n]) for n in outer] + [self._dim(top, chunks)])
        b = top.builder
        low = b.udiv(b.mul(total, self.tid), self.nthreads)
        high = b.udiv(b.mul(total, b.add(self.tid, I64(1))), self.nthreads)

        def iteration(scope: _Scope) -> None:
            scope.variables = {}
            b = scope.builder
            position = self.loop_variable
            if chunks != 1:
                start = b.mul(b.urem(position, self._dim(top, chunks)), I64(plan.chunk))
                position = b.udiv(position, self._dim(top, chunks))
            else:
                start = I64(0)
            for n in reversed(outer):
                if shape[n] == 1:
                    scope.variables[names[n]] = I64(0)
                elif n == outer[0]:
                    scope.variables[names[n]] = position
                else:
                    scope.variables[names[n]] = b.urem(position, self._dim(top, shape[n]))
                    position = b.udiv(position, self._dim(top, shape[n]))
            scope.variables["start"] = start
            if plan.inner is not None:
                extent = self._dim(top, shape[plan.inner])
                end = b.add(start, I64(plan.chunk))
                scope.variables["end"] = extent if chunks == 1 else b.select(b.icmp_unsigned("<", end, extent), end, extent)
            self._middle(scope, plan, roots, shape, names, offsets, full)

        self._loop(top, low, high, iteration, "outer")

    def _middle(
        self, scope: _Scope, plan: _NestPlan, roots: list[Tensor], shape: Sequence[Dim], names: list[str], offsets: list[Dim],
        full: Sequence[Dim], level: int = 0,
    ) -> None:  # fmt: skip
        if level < len(plan.middle):
            n = plan.middle[level]

            def body(inner: _Scope) -> None:
                inner.variables[names[n]] = self.loop_variable
                self._middle(inner, plan, roots, shape, names, offsets, full, level + 1)

            self._loop(scope, I64(0), self._dim(scope, shape[n]), body, f"middle{level}")
            return

        def store(inner: _Scope) -> None:
            if plan.inner is not None:
                inner.variables[names[plan.inner]] = self.loop_variable
            self._store(inner, roots, [("v", name) for name in names], offsets, full)

        if plan.inner is None:
            self._store(scope, roots, [("v", name) for name in names], offsets, full)
        else:
            self.row_variable = names[plan.inner]
            self._loop(scope, scope.binding("start").variables["start"], scope.binding("end").variables["end"], store, "inner")

    def _store(self, scope: _Scope, roots: list[Tensor], indices: list[Index], offsets: list[Dim], full: Sequence[Dim]) -> None:
        values = [self._value(r, indices, scope) for r in roots]
        shifted = [_add(i, ("*", ("c", 1), o) if isinstance(o, Expr) else ("c", o)) for i, o in zip(indices, offsets, strict=True)]
        at = self._index(_linear(shifted, full), scope)
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
        outer = [n for n in range(len(shape)) if n != inner and n not in middle]
        chunk = ROW_CHUNK if inner is not None and rows else CHUNK
        return _NestPlan(outer, middle, inner, chunk)

    def _reductions(self, roots: list[Tensor], indices: list[Index]) -> list[tuple[Tensor, frozenset[str]]]:
        """Reductions met when the roots are evaluated, with the loop variables that each depends on."""
        found: list[tuple[Tensor, frozenset[str]]] = []
        seen: set[object] = set()

        def visit(t: Tensor, at: list[Index]) -> None:
            key = (id(t), tuple(at))
            if key in seen:
                return
            seen.add(key)
            if t.prim in ("reduce", "argreduce", "dot"):
                found.append((t, frozenset().union(*(self._names(i) for i in at)) if at else frozenset()))
                return
            for operand, where in self._operand_indices(t, at):
                visit(operand, where)

        for r in roots:
            visit(r, indices)
        return found

    def _loop(self, scope: _Scope, low: ir.Value, high: ir.Value, body: Callable[[_Scope], None], name: str) -> None:
        self._fold(scope, low, high, [], lambda inner, _: (body(inner), [])[1], name)

    def _fold(
        self, scope: _Scope, low: ir.Value, high: ir.Value, initial: list[ir.Value],
        body: Callable[[_Scope, list[ir.Value]], list[ir.Value]], name: str, down: bool = False,
    ) -> list[ir.Value]:  # fmt: skip
        """A loop that carries values; the body finds its counter in `self.loop_variable`."""
        outer = scope.builder
        head, inside, after = (outer.append_basic_block(f"{name}.{part}") for part in ("head", "body", "exit"))
        b = ir.IRBuilder(head)
        counter = b.phi(I64)
        carried = [b.phi(v.type) for v in initial]
        b.cbranch(b.icmp_unsigned("<", counter, high), inside, after)
        inner = _Scope(ir.IRBuilder(inside), scope)
        self.loop_variable: ir.Value = counter
        following = body(inner, list(carried))
        step = inner.builder.add(counter, I64(1), flags=("nuw", "nsw"))
        counter.add_incoming(step, inner.builder.block)
        for phi, value in zip(carried, following, strict=True):
            phi.add_incoming(value, inner.builder.block)
        inner.builder.branch(head)
        counter.add_incoming(low, outer.block)
        for phi, value in zip(carried, initial, strict=True):
            phi.add_incoming(value, outer.block)
        outer.branch(head)
        outer.position_at_end(after)
        return list(carried)

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

    def _dim(self, scope: _Scope, d: Dim) -> ir.Value:
        if not isinstance(d, Expr):
            return I64(int(d))
        known = self.size_values.get(d)
        if known is None:
            known = self._argument(len(self.pointers) + len(self.results) + self.checked + len(self.sizes), I64)
            self.sizes.append(d)
            self.size_values[d] = known
        return known

    def _multiply(self, scope: _Scope, values: list[ir.Value]) -> ir.Value:
        total = values[0]
        for v in values[1:]:
            total = scope.builder.mul(total, v)
        return total

    def _index(self, index: Index, scope: _Scope) -> ir.Value:
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

    def _compute_index(self, index: Index, scope: _Scope) -> ir.Value:
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
        if kind == "/":
            return b.udiv(first, size)
        if kind == "%":
            return b.urem(first, size)
        if kind == "1":
            return b.select(b.icmp_unsigned("==", size, I64(1)), I64(0), first)
        if kind == "checked":
            with b.if_then(b.icmp_unsigned(">=", first, size), likely=False):
                b.store(I64(1), self.status)
        top = b.sub(size, I64(1))
        low = b.select(b.icmp_signed("<", first, I64(0)), I64(0), first)
        return b.select(b.icmp_signed(">", low, top), top, low)

    # --- values ---

    def _value(self, t: Tensor, at: list[Index], scope: _Scope) -> ir.Value:
        names = frozenset().union(*(self._names(i) for i in at)) if at else frozenset()
        place = scope.place(names)
        key = (id(t), tuple(at))
        known = place.memo.get(key)
        if known is None:
            known = self._emit(t, at, place)
            place.memo[key] = known
        return known

    def _emit(self, t: Tensor, at: list[Index], scope: _Scope) -> ir.Value:
        rule: Callable[[Tensor, list[Index], _Scope], ir.Value] | None = getattr(self, "_emit_" + t.prim, None)
        if rule is not None:
            return rule(t, at, scope)
        pairs = self._operand_indices(t, at)
        if t.prim in _ELEMENTWISE:
            values = [self._value(a, i, scope) for a, i in pairs]
            dtype = t.args[-1].dtype if t.prim == "select" else t.args[0].dtype
            return Emitter(scope.builder).primitive(t.prim, values, dtype, t.dtype)
        ((operand, where),) = pairs
        return self._value(operand, where, scope)

    def _operand_indices(self, t: Tensor, at: list[Index]) -> list[tuple[Tensor, list[Index]]]:
        """The operands that an element depends on, and at which of their indices."""
        if t.prim in _ELEMENTWISE:
            return [(a, at) for a in t.args]
        if not t.args:
            return []
        x = t.args[0]
        if t.prim == "broadcast":
            shift = t.rank - x.rank
            return [(x, [_follow(d, t.shape[i + shift], at[i + shift]) for i, d in enumerate(x.shape)])]
        if t.prim == "expand":
            return [(x, [ZERO if p < 0 else _follow(d, t.shape[p], at[p]) for d, p in zip(x.shape, t.attrs, strict=True)])]
        if t.prim == "reshape":
            return [(x, _regroup(at, t.shape, x.shape))]
        if t.prim == "transpose":
            where: list[Index] = [ZERO] * x.rank
            for i, p in enumerate(t.attrs):
                where[p] = at[i]
            return [(x, where)]
        if t.prim == "slice":
            return [(x, [_add(_scale(i, step), _of(start)) for i, start, step in zip(at, *t.attrs, strict=True)])]
        if t.prim == "windows":
            return [(x, _window_indices(t, at))]
        if t.prim == "take":
            axis, many = t.attrs[0], t.args[1].rank
            inner = at[axis : axis + many]
            row: Index = ("checked", ("at", t.args[1], tuple(inner)), x.shape[axis])
            return [(x, [*at[:axis], row, *at[axis + many :]])]
        if t.prim == "index":
            return [(x, [("checked", ("at", a, tuple(at)), d) for a, d in zip(t.args[1:], x.shape, strict=True)])]
        if t.prim == "pad":
            moved = [_add(i, _of(-low)) for i, low in zip(at, t.attrs[0], strict=True)]
            return [(x, [i if lo == hi == 0 else ("clamp", i, d) for i, d, lo, hi in zip(moved, x.shape, *t.attrs, strict=True)]), (t.args[1], [])]
        if t.prim == "concat":
            axis, start, out = t.attrs[0], 0, []
            for a in t.args:
                out.append((a, [("clamp", _add(i, _of(-start)), a.shape[axis]) if n == axis else i for n, i in enumerate(at)]))
                start = start + a.shape[axis]
            return out
        return []

    def _emit_input(self, t: Tensor, at: list[Index], scope: _Scope) -> ir.Value:
        offset = self._index(_linear(at, t.shape), scope)
        pointer = scope.builder.gep(self.pointers[t.attrs[0]], [offset], source_etype=storage_type(t.dtype))
        return Emitter(scope.builder).load(pointer, t.dtype)

    def _emit_reshape(self, t: Tensor, at: list[Index], scope: _Scope) -> ir.Value:
        source = _stripped(t)
        if source.prim == "input":  # a dense buffer has no shape of its own
            return self._emit_input(Tensor("input", (), source.attrs, t.dtype, t.shape), at, scope)
        return self._value(t.args[0], _regroup(at, t.shape, t.args[0].shape), scope)

    def _emit_scalar(self, t: Tensor, at: list[Index], scope: _Scope) -> ir.Value:
        return Emitter(scope.builder).constant(t.attrs[0], compute_type(t.dtype))

    def _emit_size(self, t: Tensor, at: list[Index], scope: _Scope) -> ir.Value:
        value = self._dim(scope, t.attrs[0])
        return Emitter(scope.builder).cast(value, DType.INT64, t.dtype)

    def _emit_iota(self, t: Tensor, at: list[Index], scope: _Scope) -> ir.Value:
        value = self._index(at[t.attrs[0]], scope)
        return Emitter(scope.builder).cast(value, DType.INT64, t.dtype)

    def _emit_table(self, t: Tensor, at: list[Index], scope: _Scope) -> ir.Value:
        data = np.frombuffer(t.attrs[0], np.uint8)
        kind = ir.ArrayType(ir.IntType(8), len(data))
        name = f"table{id(t)}"
        variable = self.module.globals.get(name)
        if variable is None:
            self.serial += 1
            variable = ir.GlobalVariable(self.module, kind, f"table.{self.serial}")
            variable.global_constant, variable.linkage, variable.align = True, "internal", 16
            variable.initializer = ir.Constant(kind, bytearray(t.attrs[0]))
            self.module.globals[name] = variable
        offset = self._index(_linear(at, t.shape), scope)
        return Emitter(scope.builder).load(scope.builder.gep(variable, [offset], source_etype=storage_type(t.dtype)), t.dtype)

    def _emit_pad(self, t: Tensor, at: list[Index], scope: _Scope) -> ir.Value:
        (x, where), (fill, _) = self._operand_indices(t, at)
        value, outside = self._value(x, where, scope), self._value(fill, [], scope)
        inside: ir.Value = I1(1)
        for i, d, low, high in zip(at, x.shape, *t.attrs, strict=True):
            if low == high == 0:
                continue
            moved = self._index(_add(i, _of(-low)), scope)
            size = self._dim(scope, d)
            b = scope.builder
            inside = b.and_(inside, b.icmp_unsigned("<", moved, size))  # a negative index is huge unsigned
        return scope.builder.select(inside, value, outside)

    def _emit_concat(self, t: Tensor, at: list[Index], scope: _Scope) -> ir.Value:
        axis = t.attrs[0]
        value: ir.Value | None = None
        end: Dim = 0
        parts = []
        for (a, where) in self._operand_indices(t, at):
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

    # --- reductions ---

    def _emit_dot(self, t: Tensor, at: list[Index], scope: _Scope) -> ir.Value:
        a, b = t.args
        depth = a.shape[-1]

        def term(k: Index, inner: _Scope) -> ir.Value:
            left = [_follow(d, t.shape[i + t.rank - a.rank], at[i + t.rank - a.rank]) for i, d in enumerate(a.shape[:-1])]
            right = [_follow(d, t.shape[i + t.rank - b.rank], at[i + t.rank - b.rank]) for i, d in enumerate(b.shape[:-2])]
            x = self._value(a, [*left, k], inner)
            y = self._value(b, [*right, k, at[-1]], inner)
            e = Emitter(inner.builder)
            return e.primitive("mul", [e.cast(x, a.dtype, t.dtype), e.cast(y, b.dtype, t.dtype)], t.dtype, t.dtype)

        return self._reduction(t, "sum", [depth], lambda ks, inner: term(ks[0], inner), at, scope)

    def _emit_reduce(self, t: Tensor, at: list[Index], scope: _Scope) -> ir.Value:
        op, axes = t.attrs
        x = t.args[0]

        def element(ks: list[Index], inner: _Scope) -> ir.Value:
            kept, reduced = iter(at), iter(ks)
            return self._value(x, [next(reduced) if i in axes else next(kept) for i in range(x.rank)], inner)

        return self._reduction(t, op, [x.shape[i] for i in axes], element, at, scope)

    def _reduction(
        self, t: Tensor, op: str, extents: list[Dim], element: Callable[[list[Index], _Scope], ir.Value], at: list[Index],
        scope: _Scope,
    ) -> ir.Value:  # fmt: skip
        names = frozenset().union(*(self._names(i) for i in at)) if at else frozenset()
        row = getattr(self, "row_variable", None)
        if row in names and "start" in _all_variables(scope):
            return self._row_reduction(t, op, extents, element, names - {row}, scope)

        def nest(level: int, ks: list[Index], carried: ir.Value, inner: _Scope) -> ir.Value:
            if level == len(extents):
                return self._combine(op, carried, element(ks, inner), t.dtype, inner)
            self.serial += 1
            name = f"k{self.serial}"

            def body(deeper: _Scope, values: list[ir.Value]) -> list[ir.Value]:
                deeper.variables[name] = self.loop_variable
                return [nest(level + 1, [*ks, ("v", name)], values[0], deeper)]

            return self._fold(inner, I64(0), self._dim(inner, extents[level]), [carried], body, name)[0]

        return nest(0, [], self._identity(op, t.dtype, scope), scope)

    def _row_reduction(
        self, t: Tensor, op: str, extents: list[Dim], element: Callable[[list[Index], _Scope], ir.Value], names: frozenset[str],
        scope: _Scope,
    ) -> ir.Value:  # fmt: skip
        """Accumulate a chunk of the inner axis at once, in a row on the stack."""
        row = self.row_variable
        bound = scope.binding("start")
        place = scope.place(names)
        if place.depth < bound.depth:
            place = bound
        key = ("row", id(t), names)
        start, end = bound.variables["start"], bound.variables["end"]
        buffer = place.memo.get(key)
        kind = compute_type(t.dtype)
        if buffer is None:
            buffer = self.entry.alloca(kind if kind is not I1 else ir.IntType(8), size=I64(self.chunk))
            buffer.align = 64
            place.memo[key] = buffer

            def along_row(outer: _Scope, ks: list[Index] | None) -> None:
                def body(inner: _Scope) -> None:
                    inner.variables[row] = self.loop_variable
                    spot = inner.builder.gep(buffer, [inner.builder.sub(self.loop_variable, start)], source_etype=kind)
                    if ks is None:
                        inner.builder.store(self._identity(op, t.dtype, inner), spot)
                        return
                    value = element(ks, inner)
                    inner.builder.store(self._combine(op, inner.builder.load(spot, typ=kind), value, t.dtype, inner), spot)

                self._loop(outer, start, end, body, "row")

            def nest(level: int, ks: list[Index], outer: _Scope) -> None:
                if level == len(extents):
                    along_row(outer, ks)
                    return
                self.serial += 1
                name = f"k{self.serial}"

                def body(inner: _Scope) -> None:
                    inner.variables[name] = self.loop_variable
                    nest(level + 1, [*ks, ("v", name)], inner)

                self._loop(outer, I64(0), self._dim(outer, extents[level]), body, name)

            along_row(place, None)
            nest(0, [], place)
        here = scope.binding(row).variables[row]
        return scope.builder.load(scope.builder.gep(buffer, [scope.builder.sub(here, start)], source_etype=kind), typ=kind)

    def _emit_argreduce(self, t: Tensor, at: list[Index], scope: _Scope) -> ir.Value:
        op, axis, last = t.attrs
        x = t.args[0]
        self.serial += 1
        name = f"k{self.serial}"
        worst = self._identity(op, x.dtype, scope)

        def body(inner: _Scope, values: list[ir.Value]) -> list[ir.Value]:
            here = inner.variables[name] = self.loop_variable
            where = [*at[:axis], ("v", name), *at[axis:]]
            value = self._value(x, where, inner)
            b, e = inner.builder, Emitter(inner.builder)
            pair = [values[0], value] if op == "max" else [value, values[0]]
            better = e.primitive("lt" if not last else "le", pair, x.dtype, DType.BOOL)
            first = b.icmp_unsigned("==", here, I64(0))
            if x.dtype.is_floating:  # NaN wins, and the first one stays
                unordered = b.and_(b.fcmp_unordered("uno", value, value), b.fcmp_ordered("ord", values[0], values[0]))
                better = b.or_(better, unordered)
            better = b.or_(better, first)
            return [b.select(better, value, values[0]), b.select(better, here, values[1])]

        return self._fold(scope, I64(0), self._dim(scope, x.shape[axis]), [worst, I64(0)], body, name)[1]

    def _identity(self, op: str, dtype: DType, scope: _Scope) -> ir.Value:
        value = {"sum": 0, "prod": 1, "any": False, "all": True}.get(op)
        if value is None:
            value = lowest(dtype) if op == "max" else highest(dtype)
        kind = compute_type(dtype)
        if isinstance(kind, ir.IntType):
            return kind(int(value) & ((1 << kind.width) - 1))
        return Emitter(scope.builder).constant(float(value), kind)

    def _combine(self, op: str, total: ir.Value, value: ir.Value, dtype: DType, scope: _Scope) -> ir.Value:
        b, e = scope.builder, Emitter(scope.builder)
        if op in ("any", "all"):
            return b.or_(total, value) if op == "any" else b.and_(total, value)
        if dtype.is_floating:
            if op in ("sum", "prod"):
                return (b.fadd if op == "sum" else b.fmul)(total, value, flags=("reassoc", "contract", "nsz"))
            return e.intrinsic("maximum" if op == "max" else "minimum", [total, value])
        return e.primitive({"sum": "add", "prod": "mul"}.get(op, op), [total, value], dtype, dtype)

    # --- sequential kernels ---

    def _scan(self, top: _Scope, root: Tensor) -> None:
        op, axis, exclusive, reverse = root.attrs
        x = root.args[0]
        names = [f"i{n}" for n in range(root.rank)]
        outer = [n for n in range(root.rank) if n != axis]
        total = self._multiply(top, [I64(1), *(self._dim(top, root.shape[n]) for n in outer)])
        b = top.builder
        low = b.udiv(b.mul(total, self.tid), self.nthreads)
        high = b.udiv(b.mul(total, b.add(self.tid, I64(1))), self.nthreads)
        extent = self._dim(top, root.shape[axis])

        def line(scope: _Scope) -> None:
            position = self.loop_variable
            for n in reversed(outer):
                size = self._dim(top, root.shape[n])
                scope.variables[names[n]] = scope.builder.urem(position, size)
                position = scope.builder.udiv(position, size)

            def step(inner: _Scope, values: list[ir.Value]) -> list[ir.Value]:
                here = self.loop_variable
                if reverse:
                    here = inner.builder.sub(inner.builder.sub(extent, here), I64(1))
                inner.variables[names[axis]] = here
                at: list[Index] = [("v", n) for n in names]
                following = self._combine(op, values[0], self._value(x, at, inner), root.dtype, inner)
                stored = values[0] if exclusive else following
                place = inner.builder.gep(self.results[0], [self._index(_linear(at, root.shape), inner)], source_etype=storage_type(root.dtype))
                Emitter(inner.builder).store(stored, place, root.dtype)
                return [following]

            self._fold(scope, I64(0), extent, [self._identity(op, root.dtype, scope)], step, "scan")

        self._loop(top, low, high, line, "outer")

    def _scatter(self, top: _Scope, root: Tensor) -> None:
        """Copy, then update in order: by one thread, since indices may repeat."""
        x, updates, *indices = root.args
        b = top.builder
        mine = b.icmp_unsigned("==", self.tid, I64(0))

        def element(scope: _Scope, shape: Sequence[Dim]) -> list[Index]:
            position = self.loop_variable
            for n in reversed(range(len(shape))):
                size = self._dim(top, shape[n])
                scope.variables[f"s{n}"] = scope.builder.urem(position, size)
                position = scope.builder.udiv(position, size)
            return [("v", f"s{n}") for n in range(len(shape))]

        def copy(scope: _Scope) -> None:
            at = element(scope, root.shape)
            self._store(scope, [x], at, [0] * root.rank, root.shape)

        def update(scope: _Scope) -> None:
            at = element(scope, updates.shape)
            where: list[Index] = [("checked", ("at", i, tuple(at)), d) for i, d in zip(indices, root.shape, strict=True)]
            value = self._value(updates, at, scope)
            place = scope.builder.gep(self.results[0], [self._index(_linear(where, root.shape), scope)], source_etype=storage_type(root.dtype))
            e = Emitter(scope.builder)
            if root.attrs[0] != "none":
                value = e.primitive(root.attrs[0], [e.load(place, root.dtype), value], root.dtype, root.dtype)
            e.store(value, place, root.dtype)

        for shape, body in ((root.shape, copy), (updates.shape, update)):
            total = self._multiply(top, [I64(1), *(self._dim(top, d) for d in shape)])
            self._loop(top, I64(0), top.builder.select(mine, total, I64(0)), body, "scatter")


@dataclass
class _NestPlan:
    outer: list[int]
    middle: list[int]
    inner: int | None
    chunk: int


def _all_variables(scope: _Scope | None) -> set[str]:
    found: set[str] = set()
    while scope is not None:
        found |= scope.variables.keys()
        scope = scope.parent
    return found


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


def _of(d: Dim) -> Index:
    return ("*", ("c", 1), d) if isinstance(d, Expr) else ("c", int(d))


def _add(a: Index, b: Index) -> Index:
    if a[0] == "c" and b[0] == "c":
        return ("c", a[1] + b[1])
    if a == ZERO:
        return b
    return a if b == ZERO else ("+", a, b)


def _scale(a: Index, d: Dim) -> Index:
    if d == 1:
        return a
    if d == 0 or a == ZERO:
        return ZERO
    if a[0] == "c" and not isinstance(d, Expr):
        return ("c", a[1] * d)
    return ("*", a, d)


def _follow(source: Dim, target: Dim, i: Index) -> Index:
    """The index into an axis of size `source` that is broadcast to `target`."""
    if source == 1:
        return ZERO
    return i if source == target or not isinstance(source, Expr) else ("1", i, source)


def _linear(indices: Sequence[Index], shape: Sequence[Dim]) -> Index:
    """Row-major offset, as a sum of terms so that each is computed in the loop that changes it."""
    total: Index = ZERO
    for n, i in enumerate(indices):
        total = _add(total, _scale(i, product(shape[n + 1 :])))
    return total


def _regroup(at: Sequence[Index], have: Sequence[Dim], want: Sequence[Dim]) -> list[Index]:
    """Indices into shape `want` of the element that is at `at` in shape `have`; axes that correspond pass straight."""
    out: list[Index] = []
    i = j = 0
    while j < len(want):
        if want[j] == 1:
            out.append(ZERO)
            j += 1
            continue
        while i < len(have) and have[i] == 1:
            i += 1
        i_end, j_end = i + 1, j + 1
        while product(have[i:i_end]) != product(want[j:j_end]) and (i_end < len(have) or j_end < len(want)):
            a, b = product(have[i:i_end]), product(want[j:j_end])
            grow_left = i_end < len(have) and (j_end >= len(want) or not (isinstance(a, int) and isinstance(b, int)) or a < b)
            if isinstance(a, Expr) or isinstance(b, Expr):
                i_end, j_end = len(have), len(want)
            elif grow_left:
                i_end += 1
            else:
                j_end += 1
        offset = _linear(at[i:i_end], have[i:i_end])
        for n in range(j, j_end):
            inner = product(want[n + 1 : j_end])
            part: Index = offset if inner == 1 else ("/", offset, inner)
            out.append(part if n == j else ("%", part, want[n]))
        i, j = i_end, j_end
    return out


def _window_indices(t: Tensor, at: Sequence[Index]) -> list[Index]:
    axes, _, strides, dilations = t.attrs
    rank = t.args[0].rank
    out = list(at[:rank])
    for n, (axis, stride, dilation) in enumerate(zip(axes, strides, dilations, strict=True)):
        out[axis] = _add(_scale(at[axis], stride), _scale(at[rank + n], dilation))
    return out
