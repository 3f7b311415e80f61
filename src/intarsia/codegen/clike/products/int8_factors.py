"""Products of numbers that are bytes less a zero point, times a scale: the bytes are multiplied, the rest is put right behind.

With zero points p (one for all, or one for each row of A) and q (one for all, or for each column of B):

    sum_k (a - p) (b - q) = sum_k a b  -  p sum_k b  -  q (sum_k a - K p)

exactly, modulo 2^32; scales multiply the sums. What is found so: MatMulInteger, ConvInteger, the QLinear operators, and MatMul,
Gemm and Conv of dequantised tensors, whose sums are exact then, while float32 would round each. A padded operand is padded
with its zero point. Sums of weights are computed once (`Cut.prepared`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia.codegen.clike.dialects.dialect import Dialect
from intarsia.codegen.clike.vec4 import Fours
from intarsia.codegen.loops.index_expr import Index, linear, operand_indices
from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor, walk
from intarsia.primitives.substitute import known_scalar, replaced

if TYPE_CHECKING:
    from intarsia.codegen.clike.split_into_kernels import Cut

BYTES = (DType.INT8, DType.UINT8)
_VIEWS = frozenset(("reshape", "transpose", "slice", "broadcast", "windows", "pad"))
_LEAST_TERMS = 16
_LEAST_WORK = 1 << 15  # multiplications: below, the sums of rows and columns cost more than bytes spare
_MOST_TERMS = ((1 << 31) - 1) // 255**2  # whose sum is an int32 for sure; more of them stay products of floats
_SIGN = 128


@dataclass(frozen=True)
class Centred:
    """(source - zero) * scale seen through `views`, the outermost first; `zero` is of bytes, both have the source's shape."""

    views: tuple[Tensor, ...]
    source: Tensor
    zero: Tensor | None
    scale: Tensor | None

    def seen(self, t: Tensor, fill: Tensor | None = None) -> Tensor:
        """A tensor of the source's shape through the views; `fill` pads it."""
        for view in reversed(self.views):
            args: tuple[Tensor, ...] = (t,)
            if view.prim == "pad":
                args = (t, k.scalar(0, t.dtype) if fill is None else fill)
            t = Tensor(view.prim, args, view.attrs, t.dtype, view.shape)
        return t

    @property
    def is_padded(self) -> bool:
        return any(view.prim == "pad" for view in self.views)


def centred(t: Tensor) -> Centred | None:
    """An operand of a product as bytes, or None."""
    views = []
    while t.prim in _VIEWS:
        if t.prim == "pad" and known_scalar(t.args[1]) != 0:
            return None
        views.append(t)
        t = t.args[0]
    zero = scale = None
    if t.prim == "mul" and t.dtype is DType.FLOAT:
        t, scale = t.args
    if t.prim == "cast" and t.dtype is DType.FLOAT and t.args[0].dtype is DType.INT32:
        t = t.args[0]
    if t.prim == "sub" and t.dtype in (DType.INT32, DType.FLOAT):
        t, less = t.args
        zero = _as_bytes(less)
        if zero is None:
            return None
    if t.prim != "cast" or t.dtype not in (DType.INT32, DType.FLOAT) or t.args[0].dtype not in BYTES:
        return None
    found = Centred(tuple(views), t.args[0], None if zero is None or known_scalar(zero) == 0 else zero, scale)
    if found.zero is not None and found.zero.dtype is not found.source.dtype:
        return None
    return None if found.zero is not None and found.is_padded and _one(found.zero) is None else found


def stored_as_bytes(cut: Cut, t: Tensor) -> Tensor | None:
    """A dequantised tensor whose bytes are in memory, so that each who reads it may dequantise, or multiply the bytes; None
    where it is something else."""
    found = centred(t)
    if found is None or found.scale is None:
        return None
    stored = _in_memory(cut, found.source)
    return cut.settle(replaced([t], {id(found.source): stored})[0] if stored is not found.source else t)


def _in_memory(cut: Cut, source: Tensor) -> Tensor:
    """Bytes as memory, or a view of it."""
    if all(t.prim in _VIEWS or t.prim in ("input", "scalar") for t in walk([source])):
        return source
    return cut.store(cut.settle(source), turned=True)


def _as_bytes(t: Tensor) -> Tensor | None:
    """What a zero point was before it became a number of another type; None where it is more than that."""
    if t.prim in ("broadcast", "reshape"):
        inner = _as_bytes(t.args[0])
        return None if inner is None else Tensor(t.prim, (inner,), t.attrs, inner.dtype, t.shape)
    return t.args[0] if t.prim == "cast" and t.args[0].dtype in BYTES else None


def _one(t: Tensor) -> Tensor | None:
    """The one number that a tensor repeats, without axes."""
    while t.prim in ("broadcast", "reshape"):
        t = t.args[0]
    return k.reshape(t, ()) if product(t.shape) == 1 else None


# --- along the terms --------------------------------------------------------------------------------------------------


def _without_terms(of: Centred, t: Tensor, axis: int) -> Tensor | None:
    """A parameter as the operand has it, with one element along the terms; None where it changes along them."""
    if (one := _one(t)) is not None:
        return one
    if of.is_padded:
        return None
    seen = of.seen(t)
    axis += seen.rank
    v = Fours(Dialect())
    v.bounds = {f"i{n}": max(_number(d) - 1, 0) for n, d in enumerate(seen.shape)}
    at: list[Index] = [("v", f"i{n}") for n in range(seen.rank)]
    leaves = _offsets(v, seen, at)
    if leaves is None or any(f"i{axis}" in v.names(offset) for offset in leaves):
        return None
    shape = [1 if n == axis else d for n, d in enumerate(seen.shape)]
    return k.strided_slice(seen, (0,) * seen.rank, (1,) * seen.rank, shape)


def _offsets(v: Fours, t: Tensor, at: list[Index]) -> list[Index] | None:
    """Which elements of memory are read for one of `t`; None where that is not simple."""
    at = [v.plain(i) for i in at]
    if t.prim == "input":
        return [v.plain(linear(at, t.shape))]
    if t.prim not in ("reshape", "transpose", "slice", "broadcast", "windows", "cast", "mul", "scalar"):
        return None
    found: list[Index] = []
    for operand, where in operand_indices(t, at):
        inner = _offsets(v, operand, where)
        if inner is None:
            return None
        found += inner
    return found


def _number(d: object) -> int:
    assert isinstance(d, int), "sizes are numbers where kernels are cut"
    return d


# --- products ---------------------------------------------------------------------------------------------------------


def rewritten(cut: Cut, roots: Sequence[Tensor]) -> list[Tensor]:
    """The roots with products of bytes instead of those of centred numbers."""
    made = {id(t): own for t in walk(roots) if t.prim == "dot" and (own := _of_bytes(cut, t)) is not None}
    return replaced(roots, made) if made else list(roots)


def _of_bytes(cut: Cut, t: Tensor) -> Tensor | None:
    if t.dtype not in (DType.INT32, DType.FLOAT) or not _is_worth_it(t) or any(a.dtype is not t.dtype for a in t.args):
        return None
    if t.dtype is DType.FLOAT and not cut.dialect.bytes_for_floats:
        return None
    a, b = (centred(x) for x in t.args)
    if a is None or b is None or t.dtype is DType.FLOAT and (a.scale is None or b.scale is None):
        return None
    left = [_without_terms(a, x, -1) if x is not None else None for x in (a.zero, a.scale)]
    right = [_without_terms(b, x, -2) if x is not None else None for x in (b.zero, b.scale)]
    if any((x is None) != (y is None) for x, y in zip((a.zero, a.scale, b.zero, b.scale), (*left, *right), strict=True)):
        return None
    return _product(cut, t, a, b, left, right)


def _is_worth_it(t: Tensor) -> bool:
    rows, columns, terms = (_number(d) for d in (*t.shape[-2:], t.args[0].shape[-1]))
    work = product(t.shape) * terms
    assert isinstance(work, int)
    few = rows <= 2 and terms <= 64  # depthwise
    return terms >= _LEAST_TERMS and columns > 1 and work >= _LEAST_WORK and not few and (
        t.dtype is DType.INT32 or terms <= _MOST_TERMS
    )  # fmt: skip


def _product(
    cut: Cut, t: Tensor, a: Centred, b: Centred, left: Sequence[Tensor | None], right: Sequence[Tensor | None]
) -> Tensor:  # fmt: skip
    terms = _number(t.args[0].shape[-1])
    factors = [_factor(cut, x) for x in (a, b)]
    zeros: list[Tensor | None] = [None if z is None else k.cast(z, DType.INT32) for z in (left[0], right[0])]
    if not cut.dialect.mixes_signs and factors[0].dtype is not factors[1].dtype:
        for i, x in enumerate(factors):
            if x.dtype is DType.UINT8:
                factors[i] = _signed(x)
                zero = zeros[i]
                zeros[i] = k.scalar(-_SIGN, DType.INT32) if zero is None else zero - _SIGN
    total = Tensor("dot", tuple(factors), (), DType.INT32, t.shape)
    if zeros[0] is not None:
        total = total - k.broadcast(zeros[0], t.shape) * k.broadcast(_sums(cut, factors[1], -2), t.shape)
    if zeros[1] is not None:
        sums = _sums(cut, factors[0], -1)
        sums = sums if zeros[0] is None else sums - zeros[0] * terms
        total = total - k.broadcast(sums, t.shape) * k.broadcast(zeros[1], t.shape)
    if t.dtype is DType.INT32:
        return total
    assert left[1] is not None and right[1] is not None
    return k.cast(total, DType.FLOAT) * (k.broadcast(left[1] * right[1], t.shape))


def _factor(cut: Cut, x: Centred) -> Tensor:
    """The bytes as the operand, in memory where they are computed."""
    source = _in_memory(cut, x.source)
    fill = None if x.zero is None else _one(x.zero)
    return x.seen(source, fill)


def _signed(x: Tensor) -> Tensor:
    """Unsigned bytes less 128; `flipped` finds them again."""
    return k.cast(k.cast(x, DType.INT32) - _SIGN, DType.INT8)


def flipped(t: Tensor) -> Tensor | None:
    """The unsigned bytes of which `t` is what `_signed` makes; None where it is something else."""
    if t.prim != "cast" or t.dtype is not DType.INT8 or t.args[0].prim != "sub":
        return None
    x, less = t.args[0].args
    ours = x.prim == "cast" and x.args[0].dtype is DType.UINT8 and known_scalar(less) == _SIGN
    return x.args[0] if ours else None


def _sums(cut: Cut, x: Tensor, axis: int) -> Tensor:
    """Sums of an operand along the terms, whose axis they keep."""
    total = k.reduce_sum(k.cast(x, DType.INT32), [x.rank + axis], True)
    leaves = {leaf.attrs[0] for leaf in walk([x]) if leaf.prim == "input"}
    if len(leaves) == 1 and leaves <= set(cut.weights):
        return cut.once(("sums", *_text(total)), lambda: cut.prepare(total, f"sums{_fingerprint(total)}"), [total])
    return cut.store(cut.settle(total), turned=True)


def _text(t: Tensor) -> list[str]:
    order = walk([t])
    number = {id(x): i for i, x in enumerate(order)}
    return [f"{x.prim} {x.attrs!r} {x.dtype.name} {x.shape} {[number[id(a)] for a in x.args]}" for x in order]


def _fingerprint(t: Tensor) -> str:
    """Equal for equal computations, in every process."""
    return hashlib.sha256("\n".join(_text(t)).encode()).hexdigest()[:16]
