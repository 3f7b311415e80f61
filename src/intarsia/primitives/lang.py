"""The kernel language: about thirty tensor primitives in which operators are defined.

A definition is a Python function over `Tensor`s. Calling it builds a small graph of primitives, once for shapes whose
dimensions may be symbolic: the shape and dtype of the result are the operator's shape rule. The graph is interpreted
with NumPy (`primitives.interpreter`) or compiled to loops (`codegen`).

Element-wise primitives broadcast like NumPy and need equal dtypes (Python scalars take the other operand's dtype).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia import progress
from intarsia.graph.broadcasting import broadcast_shapes
from intarsia.graph.dims import Dim, Expr, Shape, floordiv, format_shape, is_nonnegative, product
from intarsia.graph.dtypes import DType
from intarsia.primitives.requirements import DefinitionError as DefinitionError  # noqa: PLC0414 # definitions say `k.DefinitionError`
from intarsia.primitives.requirements import note
from intarsia.primitives.requirements import require_broadcast as require_broadcast  # noqa: PLC0414 # definitions say `k.require_broadcast`
from intarsia.primitives.requirements import require_equal as require_equal  # noqa: PLC0414 # definitions say `k.require_equal`
from intarsia.primitives.requirements import require_least as require_least  # noqa: PLC0414 # definitions say `k.require_least`
from intarsia.primitives.requirements import require_multiple as require_multiple  # noqa: PLC0414 # definitions say `k.require_multiple`

_SHOWN = 24  # characters of a size in a message
MOST_AXES = 32  # that all of NumPy takes: arrays may have 64 since version 2, iterators still 32

Scalar = int | float | bool | complex


class SymbolicValueError(DefinitionError):
    """A definition needs a concrete integer where only a run gives one: the node runs on the host, at run time."""


class Tensor:
    """One primitive applied to tensors; immutable. `attrs` are the primitive's static parameters (hashable)."""

    __slots__ = ("_order", "args", "attrs", "dtype", "prim", "shape")

    def __init__(self, prim: str, args: tuple[Tensor, ...], attrs: tuple[Any, ...], dtype: DType, shape: Shape) -> None:
        progress.check()
        rank = len(shape)
        if rank > MOST_AXES:  # NumPy says so nearly everywhere; its `take` writes behind a table
            raise DefinitionError(f"a tensor would have {rank} axes; expected at most {MOST_AXES}, as NumPy's functions do")
        self.prim, self.args, self.attrs, self.dtype, self.shape = prim, args, attrs, dtype, shape
        self._order: tuple[Tensor, ...] | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __reduce__(self) -> tuple[type[Tensor], tuple[Any, ...]]:
        return Tensor, (self.prim, self.args, self.attrs, self.dtype, self.shape)

    def __repr__(self) -> str:
        return f"<{self.prim}{list(self.attrs) if self.attrs else ''} {self.dtype.onnx_name}{format_shape(self.shape)}>"

    def __add__(self, other: Operand) -> Tensor:
        return binary("add", self, other)

    def __radd__(self, other: Operand) -> Tensor:
        return binary("add", other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return binary("sub", self, other)

    def __rsub__(self, other: Operand) -> Tensor:
        return binary("sub", other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Tensor:
        return binary("mul", other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return binary("div", self, other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return binary("div", other, self)

    def __neg__(self) -> Tensor:
        return unary("neg", self)

    def __lt__(self, other: Operand) -> Tensor:
        return binary("lt", self, other)

    def __le__(self, other: Operand) -> Tensor:
        return binary("le", self, other)

    def __gt__(self, other: Operand) -> Tensor:
        return binary("lt", other, self)

    def __ge__(self, other: Operand) -> Tensor:
        return binary("le", other, self)

    def __and__(self, other: Operand) -> Tensor:
        return binary("and", self, other)

    def __or__(self, other: Operand) -> Tensor:
        return binary("or", self, other)

    def __xor__(self, other: Operand) -> Tensor:
        return binary("xor", self, other)

    def __invert__(self) -> Tensor:
        return unary("not", self)


Operand = Tensor | Scalar


# --- leaves -------------------------------------------------------------------------------------------------------


def input(index: int | str, dtype: DType, shape: Sequence[Dim]) -> Tensor:
    """The definition's `index`-th tensor operand; in what is fused, the value of this name."""
    return Tensor("input", (), (index,), dtype, tuple(shape))


def scalar(value: Scalar, dtype: DType) -> Tensor:
    """A rank-0 constant."""
    if dtype.is_integer and isinstance(value, float) and value != int(value):
        raise DefinitionError(f"the scalar {value} is not a {dtype.onnx_name}")
    return Tensor("scalar", (), (_plain(value, dtype),), dtype, ())


def size(value: Dim, dtype: DType = DType.INT64) -> Tensor:
    """A rank-0 tensor that holds a dimension: a run-time integer where the dimension is symbolic."""
    return Tensor("size", (), (value,), dtype, ()) if isinstance(value, Expr) else scalar(value, dtype)


def constant(array: np.ndarray) -> Tensor:
    """A small table that belongs to the definition (resize weights, windows, ...)."""
    array = np.ascontiguousarray(array)
    return Tensor("table", (), (array.tobytes(), array.shape), DType.of(array.dtype), array.shape)


def iota(shape: Sequence[Dim], axis: int, dtype: DType = DType.INT64) -> Tensor:
    """The index along `axis` at every element of `shape`."""
    return Tensor("iota", (), (_axis(axis, len(shape)),), dtype, tuple(shape))


def full(shape: Sequence[Dim], value: Scalar, dtype: DType) -> Tensor:
    return broadcast(scalar(value, dtype), shape)


# --- element-wise -------------------------------------------------------------------------------------------------

UNARY = frozenset(
    "neg abs sign floor ceil round sqrt exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf not "
    "bitnot isnan isinf".split()
)  # round: half to even; not: boolean; bitnot: integer
BINARY = frozenset(
    "add sub mul div mod fmod pow min max and or xor bitand bitor bitxor shl shr eq ne lt le atan2".split()
)  # div truncates towards zero for integers; mod has the divisor's sign, fmod the dividend's; min/max propagate NaN
COMPARISONS = frozenset(("eq", "ne", "lt", "le"))
_FACTOR, _LIMITED = "factor", "limited"  # of a cast: see `factor` and `limited`
_BOOL_UNARY = frozenset(("not", "isnan", "isinf"))


def unary(op: str, x: Tensor) -> Tensor:
    assert op in UNARY, op
    if x.dtype is DType.STRING:
        raise DefinitionError(f"{op} of strings is not defined")
    return Tensor(op, (x,), (), DType.BOOL if op in _BOOL_UNARY else x.dtype, x.shape)


def binary(op: str, a: Operand, b: Operand) -> Tensor:
    assert op in BINARY, op
    a, b = _pair(a, b, op)
    if a.dtype is DType.STRING and op not in ("eq", "ne"):
        raise DefinitionError(f"{op} of strings is not defined")
    return Tensor(op, (a, b), (), DType.BOOL if op in COMPARISONS else a.dtype, a.shape)


def select(condition: Tensor, a: Operand, b: Operand) -> Tensor:
    """`a` where `condition` holds, else `b`; all three broadcast."""
    a, b = _pair(a, b, "select")
    shape = _broadcast_shapes("select", condition.shape, a.shape)
    return Tensor("select", (broadcast(condition, shape), broadcast(a, shape), broadcast(b, shape)), (), a.dtype, shape)


def cast(x: Tensor, dtype: DType, saturate: bool = True) -> Tensor:
    """Conversion as ONNX's Cast: towards zero for float to integer; to float8 saturating or to infinity/NaN."""
    return x if x.dtype == dtype else Tensor("cast", (x,), (saturate,), dtype, x.shape)


def factor(x: Tensor) -> Tensor:
    """Float32 as bfloat16 that only products of bfloat16 read, and sums behind these: numbers below the smallest normal one may
    become zeros, as units for such products take them."""
    return Tensor("cast", (x,), (True, _FACTOR), DType.BFLOAT16, x.shape)


def is_factor(t: Tensor) -> bool:
    return t.prim == "cast" and _FACTOR in t.attrs


def limited(x: Tensor, low: int, high: int, dtype: DType) -> Tensor:
    """Whole numbers in floating point as an integer type whose range is [low, high]: the nearest of it, the lowest for NaN."""
    return Tensor("cast", (minimum(maximum(x, float(low)), float(high)),), (True, _LIMITED), dtype, x.shape)


def is_limited(t: Tensor) -> bool:
    return t.prim == "cast" and _LIMITED in t.attrs


def bitcast(x: Tensor, dtype: DType) -> Tensor:
    if x.dtype.bits != dtype.bits:
        raise DefinitionError(f"cannot reinterpret {x.dtype.onnx_name} as {dtype.onnx_name}: sizes differ")
    return Tensor("bitcast", (x,), (), dtype, x.shape)


def neg(x: Tensor) -> Tensor:
    return unary("neg", x)


def absolute(x: Tensor) -> Tensor:
    return x if x.dtype.is_unsigned_integer or x.dtype is DType.BOOL else unary("abs", x)


def exp(x: Tensor) -> Tensor:
    return unary("exp", x)


def log(x: Tensor) -> Tensor:
    return unary("log", x)


def sqrt(x: Tensor) -> Tensor:
    return unary("sqrt", x)


def tanh(x: Tensor) -> Tensor:
    return unary("tanh", x)


def erf(x: Tensor) -> Tensor:
    return unary("erf", x)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)); exp overflows to infinity for very negative x, and the quotient is then 0 as it should be."""
    return 1.0 / (exp(-x) + 1.0)


def minimum(a: Operand, b: Operand) -> Tensor:
    return binary("min", a, b)


def maximum(a: Operand, b: Operand) -> Tensor:
    return binary("max", a, b)


def power(a: Operand, b: Operand) -> Tensor:
    return binary("pow", a, b)


def equal(a: Operand, b: Operand) -> Tensor:
    return binary("eq", a, b)


def not_equal(a: Operand, b: Operand) -> Tensor:
    return binary("ne", a, b)


# --- views --------------------------------------------------------------------------------------------------------


def broadcast(x: Tensor, shape: Sequence[Dim]) -> Tensor:
    """Repeat along new leading axes and axes of size 1 (a symbolic size that differs from the target's may be 1 too)."""
    shape = tuple(shape)
    if x.shape == shape:
        return x
    if len(x.shape) > len(shape):
        raise DefinitionError(f"cannot broadcast {format_shape(x.shape)} to {format_shape(shape)}")
    for have, want in zip(x.shape[::-1], shape[::-1], strict=False):
        if isinstance(have, int) and isinstance(want, int) and have not in (1, want):
            raise DefinitionError(f"cannot broadcast {format_shape(x.shape)} to {format_shape(shape)}")
        if have not in (1, want):
            note("broadcast", have, want)
    return Tensor("broadcast", (x,), (), x.dtype, shape)


def reshape(x: Tensor, shape: Sequence[Dim]) -> Tensor:
    """Same elements in row-major order; the product of sizes is checked where both are known."""
    shape = tuple(shape)
    if x.shape == shape:
        return x
    have, want = product(x.shape), product(shape)
    if isinstance(have, int) and isinstance(want, int) and have != want:
        raise DefinitionError(f"cannot reshape {format_shape(x.shape)} ({have} elements) to {format_shape(shape)} ({want})")
    if have != want:
        note("equal", have, want, f"cannot reshape {_shown(x.shape)} to {_shown(shape)}: its elements")
    return Tensor("reshape", (x,), (), x.dtype, shape)


def _shown(shape: Shape) -> str:
    """A shape in a message that is written before its sizes are known."""
    texts = map(str, shape)
    return f"[{', '.join(text if len(text) <= _SHOWN else '?' for text in texts)}]"


def transpose(x: Tensor, perm: Sequence[int]) -> Tensor:
    perm = tuple(int(p) for p in perm)
    if sorted(perm) != list(range(x.rank)):
        raise DefinitionError(f"perm {list(perm)} is not a permutation of the {x.rank} axes of {format_shape(x.shape)}")
    if perm == tuple(range(x.rank)):
        return x
    if [p for p in perm if x.shape[p] != 1] == [i for i, d in enumerate(x.shape) if d != 1]:
        return reshape(x, [x.shape[p] for p in perm])  # only axes of size 1 move
    return Tensor("transpose", (x,), perm, x.dtype, tuple(x.shape[p] for p in perm))


def expand_dims(x: Tensor, axes: Sequence[int]) -> Tensor:
    rank = x.rank + len(axes)
    at = {_axis(a, rank) for a in axes}
    sizes = iter(x.shape)
    return reshape(x, [1 if i in at else next(sizes) for i in range(rank)])


def strided_slice(x: Tensor, starts: Sequence[Dim], steps: Sequence[int], shape: Sequence[Dim], inside: bool = False) -> Tensor:
    """out[i] = x[starts + i * steps], of the given shape; all of x's axes are given. Steps may be negative.

    `inside`: the caller has seen to it that all elements are there, whatever the sizes are.
    """
    shape = tuple(shape)
    for axis, (start, step, n, extent) in enumerate(zip(starts, steps, shape, x.shape, strict=True)):
        if isinstance(start, int) and isinstance(n, int) and isinstance(extent, int) and n > 0:
            last = start + (n - 1) * step
            if not (0 <= start < extent and 0 <= last < extent):
                raise DefinitionError(f"elements {start} to {last} of axis {axis} are wanted of {format_shape(x.shape)}")
        elif not inside:
            _note_slice(start, step, n, extent, axis)
    if shape == x.shape and all(s == 1 for s in steps):
        return x
    return Tensor("slice", (x,), (tuple(starts), tuple(steps)), x.dtype, shape)


def _note_slice(start: Dim, step: int, count: Dim, extent: Dim, axis: int) -> None:
    """The first and the last of `count` elements lie in their axis; where there are none, they may lie anywhere."""
    last = start + (count - 1) * step
    lowest, highest = (start, last) if step > 0 else (last, start)
    what = f"the elements that are wanted of axis {axis}"
    require_least(count, 0, f"the number of elements that are wanted of axis {axis}")
    if isinstance(count, int) and count <= 0:
        return
    times = 1 if isinstance(count, int) else count  # what is required of none holds
    if not is_nonnegative(lowest):
        require_least(lowest * times, 0, what)
    if not is_nonnegative(extent - 1 - highest):
        require_least(extent * times, (highest + 1) * times, what)


def _check_alike(prim: str, a: Tensor, b: Tensor) -> None:
    if a.dtype is not b.dtype:
        raise DefinitionError(f"{prim}: dtypes {a.dtype.onnx_name} and {b.dtype.onnx_name} differ")


def pad(x: Tensor, low: Sequence[Dim], high: Sequence[Dim], value: Operand) -> Tensor:
    """Surround `x` by `low`/`high` elements per axis of the rank-0 `value`; negative amounts are not accepted here."""
    if all(p == 0 for p in (*low, *high)):
        return x
    fill = value if isinstance(value, Tensor) else scalar(value, x.dtype)
    _check_alike("pad", x, fill)
    for axis, amounts in enumerate(zip(low, high, strict=True)):
        for amount in amounts:
            require_least(amount, 0, f"the elements that are added to axis {axis}")
    shape = tuple(a + d + b for a, d, b in zip(low, x.shape, high, strict=True))
    return Tensor("pad", (x, fill), (tuple(low), tuple(high)), x.dtype, shape)


def concat(xs: Sequence[Tensor], axis: int) -> Tensor:
    if len(xs) == 1:
        return xs[0]
    axis = _axis(axis, xs[0].rank)
    total: Dim = 0
    shape = list(xs[0].shape)
    for x in xs:
        if x.rank != len(shape) or x.dtype != xs[0].dtype:
            raise DefinitionError("concatenated tensors differ in rank or dtype: " + ", ".join(map(repr, xs)))
        for i, (d, e) in enumerate(zip(shape, x.shape, strict=True)):
            if i != axis and isinstance(d, Expr) and isinstance(e, int):
                shape[i] = e
            elif i != axis and isinstance(d, int) and isinstance(e, int) and d != e:
                raise DefinitionError(f"concatenated tensors differ on axis {i}: " + ", ".join(map(repr, xs)))
        progress.check()
        total = x.shape[axis] + total
    shape[axis] = total
    for x in xs:
        for i, (d, e) in enumerate(zip(shape, x.shape, strict=True)):
            if i != axis:
                require_equal(e, d, f"axis {i} of concatenated tensors")
    return Tensor("concat", tuple(xs), (axis,), xs[0].dtype, tuple(shape))


def windows(x: Tensor, axes: Sequence[int], sizes: Sequence[Dim], strides: Sequence[int], dilations: Sequence[int]) -> Tensor:
    """Sliding windows: each of `axes` becomes the window index, and one trailing axis per window dimension is added.

    out[..., o, ..., k] = x[..., o * stride + k * dilation, ...]; `pad` comes before.
    """
    shape = list(x.shape)
    for axis, window, stride, dilation in zip(axes, sizes, strides, dilations, strict=True):
        span = (window - 1) * dilation + 1
        count = floordiv(shape[axis] - span, stride) + 1
        shape[axis] = 0 if isinstance(count, int) and count < 0 else count
        require_least(shape[axis], 0, f"the number of windows along axis {axis}")
    attrs = (tuple(axes), tuple(sizes), tuple(strides), tuple(dilations))
    return Tensor("windows", (x,), attrs, x.dtype, (*shape, *sizes))


# --- gathers ------------------------------------------------------------------------------------------------------


def take(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """x with `axis` replaced by the axes of `indices` (all in range: definitions resolve negative ones)."""
    axis = _axis(axis, x.rank)
    return Tensor("take", (x, indices), (axis,), x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def index(x: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """out[p] = x[indices[0][p], ..., indices[r-1][p]] for indices that broadcast together."""
    if len(indices) != x.rank:
        raise DefinitionError(f"{len(indices)} index tensors for {x!r}")
    shape = _broadcast_shapes("index", *(i.shape for i in indices))
    return Tensor("index", (x, *(broadcast(i, shape) for i in indices)), (), x.dtype, shape)


def scatter(x: Tensor, indices: Sequence[Tensor], updates: Tensor, reduction: str = "none") -> Tensor:
    """x with out[indices[0][p], ...] (reduction)= updates[p], in row-major order of p.

    `reduction`: none, add, mul, min, max.
    """
    _check_alike("scatter", x, updates)
    shape = _broadcast_shapes("scatter", updates.shape, *(i.shape for i in indices))
    parts = (x, broadcast(updates, shape), *(broadcast(i, shape) for i in indices))
    return Tensor("scatter", parts, (reduction,), x.dtype, x.shape)


def wrap_indices(indices: Tensor, extent: Dim) -> Tensor:
    """Negative indices count from the end (as ONNX's Gather family has it)."""
    if indices.dtype is not DType.INT64:
        indices = cast(indices, DType.INT64)
    return select(indices < 0, indices + size(extent), indices)


# --- reductions ---------------------------------------------------------------------------------------------------

REDUCTIONS = frozenset(("sum", "prod", "max", "min", "any", "all"))


def stored(x: Tensor) -> Tensor:
    """x, which a device keeps in memory of its own: computing it again in every reader would make kernels large."""
    return Tensor("stored", (x,), (), x.dtype, x.shape)


def reduce(x: Tensor, op: str, axes: Sequence[int], keepdims: bool = False) -> Tensor:
    """Combine along `axes`. Empty: sum 0, prod 1, max/min the lowest/highest value, any False, all True."""
    assert op in REDUCTIONS, op
    drop = tuple(sorted({_axis(a, x.rank) for a in axes}))
    if drop:
        out = Tensor("reduce", (x,), (op, drop), x.dtype, tuple(d for i, d in enumerate(x.shape) if i not in drop))
    else:
        out = x
    return reshape(out, [1 if i in drop else d for i, d in enumerate(x.shape)]) if keepdims and drop else out


def arg_reduce(x: Tensor, op: str, axis: int, keepdims: bool = False, last: bool = False) -> Tensor:
    """Index (int64) of the `max` or `min` along `axis`: of the first such element, or the last one."""
    axis = _axis(axis, x.rank)
    if x.shape[axis] == 0:
        raise DefinitionError(f"the {op}imum along axis {axis} of {format_shape(x.shape)} has no index: the axis is empty")
    require_least(x.shape[axis], 1, f"the size of axis {axis}, of which an index is wanted")
    shape = tuple(d for i, d in enumerate(x.shape) if i != axis)
    out = Tensor("argreduce", (x,), (op, axis, last), DType.INT64, shape)
    return expand_dims(out, [axis]) if keepdims else out


def scan(x: Tensor, op: str, axis: int, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Running `sum` or `prod` along `axis`."""
    return Tensor("scan", (x,), (op, _axis(axis, x.rank), exclusive, reverse), x.dtype, x.shape)


def dot(a: Tensor, b: Tensor, accumulate: DType | None = None) -> Tensor:
    """Matrix product of the last two axes, leading axes broadcast: [..., m, k] x [..., k, n] -> [..., m, n].

    Sums are formed in `accumulate` (default: the operands' dtype; float16 and bfloat16 in float32), which is the result's
    dtype where it is given.
    """
    if a.rank < 2 or b.rank < 2:
        raise DefinitionError(f"dot needs matrices, got {a!r} and {b!r}")
    if isinstance(a.shape[-1], int) and isinstance(b.shape[-2], int) and a.shape[-1] != b.shape[-2]:
        raise DefinitionError(f"inner dimensions differ: {format_shape(a.shape)} x {format_shape(b.shape)}")
    if accumulate is None:  # else integers of different signs may meet
        _check_alike("dot", a, b)
    batch = _broadcast_shapes("dot", a.shape[:-2], b.shape[:-2])
    require_equal(a.shape[-1], b.shape[-2], "the inner dimensions of a matrix product")
    for x in (a, b):
        for have, want in zip(x.shape[-3::-1], batch[::-1], strict=False):
            if have not in (1, want):
                note("broadcast", have, want)
    return Tensor("dot", (a, b), (), accumulate or a.dtype, (*batch, a.shape[-2], b.shape[-1]))


def sort(x: Tensor, axis: int, descending: bool = False) -> tuple[Tensor, Tensor]:
    """Values sorted along `axis`, and their int64 indices; equal elements keep their order."""
    attrs = (_axis(axis, x.rank), descending)
    return Tensor("sort", (x,), attrs, x.dtype, x.shape), Tensor("argsort", (x,), attrs, DType.INT64, x.shape)


def reduce_sum(x: Tensor, axes: Sequence[int], keepdims: bool = False) -> Tensor:
    return reduce(x, "sum", axes, keepdims)


def reduce_max(x: Tensor, axes: Sequence[int], keepdims: bool = False) -> Tensor:
    return reduce(x, "max", axes, keepdims)


def reduce_mean(x: Tensor, axes: Sequence[int], keepdims: bool = False) -> Tensor:
    """Sum divided by the count (integers: truncated towards zero)."""
    count = product(x.shape[_axis(a, x.rank)] for a in axes)
    return reduce(x, "sum", axes, keepdims) / cast(size(count), x.dtype)


def walk(roots: Sequence[Tensor]) -> Sequence[Tensor]:
    """All tensors that `roots` depend on, operands first, each once (by identity)."""
    if len(roots) != 1:
        return _walk(roots)
    (root,) = roots
    if root._order is None:
        root._order = tuple(_walk(roots)[:-1])  # without itself: a tensor must not keep itself alive
    return (*root._order, root)


def _walk(roots: Sequence[Tensor]) -> list[Tensor]:
    order: list[Tensor] = []
    seen: set[int] = set()
    stack: list[tuple[Tensor, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        t, ready = stack.pop()
        if ready:
            order.append(t)
        elif id(t) not in seen:
            seen.add(id(t))
            if t.args:
                stack.append((t, True))
                stack.extend([(a, False) for a in reversed(t.args)])
            else:
                order.append(t)
    return order


def _pair(a: Operand, b: Operand, op: str) -> tuple[Tensor, Tensor]:
    if not isinstance(a, Tensor):
        assert isinstance(b, Tensor)
        a = scalar(a, b.dtype)
    if not isinstance(b, Tensor):
        b = scalar(b, a.dtype)
    if a.dtype != b.dtype:
        raise DefinitionError(f"{op}: operands have dtypes {a.dtype.onnx_name} and {b.dtype.onnx_name}")
    shape = _broadcast_shapes(op, a.shape, b.shape)
    return broadcast(a, shape), broadcast(b, shape)


def _broadcast_shapes(op: str, *shapes: Shape) -> Shape:
    try:
        return broadcast_shapes(*shapes)
    except ValueError as error:
        raise DefinitionError(f"{op}: {error}") from None


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < max(rank, 1):
        raise DefinitionError(f"axis {axis} is out of range for rank {rank}")
    return axis + rank if axis < 0 else axis


def _plain(value: Any, dtype: DType) -> Any:
    if dtype is DType.STRING:
        return value or ""
    if dtype is DType.BOOL:
        return bool(value)
    if dtype.is_integer:
        return int(value)
    return complex(value) if dtype.is_complex else float(value)
