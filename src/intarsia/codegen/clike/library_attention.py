"""Attention in 16 bits as a call of a library: no scores in memory, and heads stay where projections put them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia.codegen.clike import library_cut
from intarsia.codegen.clike.attend import found
from intarsia.codegen.clike.library import Attention, Choice, called, operands
from intarsia.codegen.clike.library_cut import number_of, sizes_of
from intarsia.codegen.clike.views import View, unwidened, view_of
from intarsia.codegen.loop_values import stripped
from intarsia.graph.dtypes import DType
from intarsia.kernel import lang as k
from intarsia.kernel.lang import Tensor, walk

if TYPE_CHECKING:
    from intarsia.codegen.clike.cut import Cut

_HEADS = (0, 2, 1, 3)
_HALVES = (DType.FLOAT16, DType.BFLOAT16)


def attentions(cut: Cut, roots: Sequence[Tensor], products: Sequence[Tensor]) -> dict[int, Tensor]:
    """By ids of what they stand for: attention in float16 or bfloat16 as primitives "library" on q, k and v."""
    users: dict[int, list[Tensor]] = {}
    for t in walk(roots):
        for a in t.args:
            users.setdefault(id(a), []).append(t)
    made: dict[int, Tensor] = {}
    for dot in products:
        above = users.get(id(dot), [])
        parts = found_attention(dot)
        if parts is None or len(above) != 1 or above[0].prim != "cast" or above[0].dtype is not parts[0].dtype:
            continue
        *given, scale = parts
        views = [view_of(t) for t in given]
        q, key, v = (View.packed(t.dtype, sizes_of(t)) if u is None else u[1] for t, u in zip(given, views, strict=True))
        batch, heads, rows, size = sizes_of(dot)
        result = View.packed(q.dtype, (batch, rows, heads, size))
        strides = tuple(result.strides[i] for i in _HEADS)
        call = Attention(q, key, v, View(q.dtype, sizes_of(dot), strides), scale)
        if call.flop >= library_cut.LEAST_FLOP and cut.libraries is not None and cut.libraries.missing(call.library) is None:
            if not (why := cut.libraries.declined(call)):
                made[id(above[0])] = Tensor("library", tuple(given), (call,), q.dtype, dot.shape)
            else:
                cut.choice = Choice(call.library, "library-declined", why)
    return made


def found_attention(dot: Tensor) -> tuple[Tensor, Tensor, Tensor, float] | None:
    """q, k, v and the scale where a product is attention's last one, nothing is masked, and they are of 16 bits."""
    own = found(dot, 0)
    if own is None or own.attrs[0] or dot.rank != 4 or sizes_of(dot)[-1] % 8:
        return None
    x, scale = own.args[0], 1.0
    if x.prim in ("mul", "div") and (number := number_of(x.args[1])) is not None:
        x, scale = x.args[0], number if x.prim == "mul" else 1.0 / number
    if x.prim != "dot" or x.rank != 4 or x.args[1].prim != "transpose" or x.args[1].attrs != (0, 1, 3, 2):
        return None
    q, key, v = unwidened(x.args[0]), unwidened(x.args[1].args[0]), unwidened(own.args[1])
    if not q.dtype is key.dtype is v.dtype or q.dtype not in _HALVES or {q.rank, key.rank, v.rank} != {4}:
        return None
    if sizes_of(q)[-1] % 8 or q.shape[:2] != key.shape[:2] or key.shape[:3] != v.shape[:3]:
        return None
    return q, key, v, scale


def attend(cut: Cut, t: Tensor, args: Sequence[Tensor]) -> Tensor:
    """The job of a primitive "library" on settled operands."""
    (call,) = t.attrs
    leaves = {}
    for (name, view), arg in zip(operands(call), args, strict=True):
        place = view_of(arg)
        if place is None or place[1] != view:
            leaf = stripped(cut.store(arg))
            assert view == View.packed(arg.dtype, sizes_of(arg)), "an operand that has a place keeps it"
        else:
            leaf = place[0]
        leaves[name] = leaf.attrs[0]
    made = cut._room(t.dtype, [t.shape[i] for i in _HEADS])
    cut.choice = Choice(call.library, "library", f"{call.flop:,} operations, and no scores in memory")
    cut._add(called(call, leaves), (made.attrs[0],), call.kind)
    return k.transpose(made, _HEADS)
