"""Attention in 16 bits as a call of a library: no scores in memory, and heads stay where projections put them.

Masks that are bands of the scores, and lengths of texts, are said in the call; all others become a bias, whose elements are
-2^100 at the least: less would overflow where powers of two are taken. A row that nothing is allowed for gives zeros by the
operators' definitions, whatever the library makes of it: where there may be one, its result is replaced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from intarsia.codegen.clike.flash_attention import found
from intarsia.codegen.clike.mask_bands import Band, band_of, unspread
from intarsia.codegen.clike.value_ranges import range_of
from intarsia.codegen.clike.vendor_libraries import select_calls
from intarsia.codegen.clike.vendor_libraries.calls import Attention, Choice, called, operands
from intarsia.codegen.clike.vendor_libraries.select_calls import number_of, sizes_of
from intarsia.codegen.clike.vendor_libraries.strided_views import View, unwidened, view_of
from intarsia.codegen.loops.element_values import stripped
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor, walk

if TYPE_CHECKING:
    from intarsia.codegen.clike.split_into_kernels import Cut

_HEADS = (0, 2, 1, 3)
_HALVES = (DType.FLOAT16, DType.BFLOAT16)
_LEAST = -(2.0**100)  # of a bias
_ADDED = (*_HALVES, DType.FLOAT)


@dataclass(frozen=True)
class FoundAttention:
    """What an expression is: softmax(scale q k' + bias where masks hold, else -inf) v.

    Attributes:
        result: [batch, heads, queries, size], the product or the same with heads in one axis.
        masks: bool, each broadcast to [batch, heads, queries, keys].
        bias: as the masks; None: nothing is added.
        zeros: rows that nothing is allowed for give zeros (else NaN).
    """

    q: Tensor
    key: Tensor
    v: Tensor
    scale: float
    result: Tensor
    masks: tuple[Tensor, ...] = ()
    bias: Tensor | None = None
    zeros: bool = False


@dataclass
class _Terms:
    """What of the masks a call says, and what has to be memory for it."""

    right: int | None = None
    left: int | None = None
    length: Tensor | None = None  # [batch, 1, 1, 1]
    base: Tensor | None = None
    others: list[Tensor] = field(default_factory=list)
    first: bool = False  # every row may attend its first column

    @property
    def banded(self) -> bool:
        return (self.right, self.left) != (None, None)

    @classmethod
    def of(cls, masks: Sequence[Tensor], keys: int) -> _Terms:
        made = cls()
        for mask in masks:
            band = band_of(mask)
            if band is None or not made._took(band, keys):
                made.others.append(unspread(mask))
        made.first = made.right is not None and made.base is None and made.right >= 0 and made.left is None
        return made

    def _took(self, band: Band, keys: int) -> bool:
        if band.kind == "length":
            if band.base is None:
                return band.shift >= keys
            if self.length is not None:
                return False
            self.length = band.base + band.shift if band.shift else band.base
            return True
        if (self.right, self.left) != (None, None) and band.base is not self.base:
            return False
        self.base = band.base
        if band.kind == "right":
            self.right = band.shift if self.right is None else min(self.right, band.shift)
        else:
            self.left = band.shift if self.left is None else min(self.left, band.shift)
        return True


def attentions(cut: Cut, roots: Sequence[Tensor], products: Sequence[Tensor]) -> dict[int, Tensor]:
    """By ids of what they stand for: attention in float16 or bfloat16 as primitives "library" on what their calls read."""
    users: dict[int, list[Tensor]] = {}
    for t in walk(roots):
        for a in t.args:
            users.setdefault(id(a), []).append(t)
    made: dict[int, Tensor] = {}
    for dot in products:
        parts = found_attention(dot, users)
        above = users.get(id(parts.result), []) if parts is not None else []
        if parts is None or len(above) != 1 or above[0].prim != "cast" or above[0].dtype is not parts.q.dtype:
            continue
        if (value := _as_call(cut, parts)) is not None:
            made[id(above[0])] = value
    return made


def _as_call(cut: Cut, parts: FoundAttention) -> Tensor | None:
    """The attention as a primitive "library", with what its result is where a row has nothing to attend; None where kernels of
    ours are to compute it."""
    assert cut.libraries is not None
    batch, heads, rows, size = shape = sizes_of(parts.result)
    keys, dtype = sizes_of(parts.key)[2], parts.q.dtype
    terms = _Terms.of(parts.masks, keys)
    given = {"q": parts.q, "k": parts.key, "v": parts.v}
    bias = _bias(cut, parts, terms)
    if bias is not None:
        given["bias"] = bias
    if terms.length is not None:
        given["lengths"] = _numbers(terms.length)
    if terms.base is not None:
        given["places"] = _numbers(terms.base + rows)
    if terms.length is not None or terms.base is not None:
        given["rows"] = k.constant(np.full((batch, 1, 1, 1), rows, np.int32))
    for name in ("lengths", "places"):
        if name in given and given[name].shape != (batch, 1, 1, 1):
            given[name] = k.broadcast(given[name], (batch, 1, 1, 1))
    views = {}
    for name, t in given.items():
        there = _placed(t)
        if there is not None and _is_whole(there[1]):
            given[name], views[name] = there
        else:
            views[name] = View.packed(t.dtype, sizes_of(t))
    result = View.packed(dtype, (batch, rows, heads, size))
    strides = tuple(result.strides[i] for i in _HEADS)
    call = Attention(
        views["q"], views["k"], views["v"], View(dtype, shape, strides), parts.scale, views.get("bias"), views.get("lengths"),
        views.get("places"), views.get("rows"), terms.right, terms.left,
    )  # fmt: skip
    if call.flop < select_calls.LEAST_FLOP or cut.libraries.missing(call.library) is not None:
        return None
    if why := cut.libraries.declined(call):
        cut.declined.append(Choice(call.library, "library-declined", why, node=cut.node))
        return None
    names = [name for name, _ in operands(call)]
    value = Tensor("library", tuple(given[name] for name in names), (call,), dtype, shape)
    finite = parts.bias is None or _range(cut, parts.bias) is not None
    if not parts.zeros or terms.length is None and not terms.others and finite and (terms.first or not terms.banded):
        return value
    return k.select(_any_allowed(cut, parts), value, k.scalar(0.0, dtype))


def _is_whole(view: View) -> bool:
    """Whether no axis repeats an element, and the last one's neighbours are neighbours in memory."""
    return all(s > 0 or n == 1 for s, n in zip(view.strides, view.shape, strict=True)) and (
        view.strides[-1] == 1 or view.shape[-1] == 1
    )


def _placed(t: Tensor) -> tuple[Tensor, View] | None:
    """An operand as a view of memory, or of what will be memory when what is behind its views has been stored."""
    if (there := view_of(t)) is not None:
        return t, there[1]
    chain = []
    while t.prim in ("reshape", "transpose"):
        chain.append(t)
        t = t.args[0]
    if not chain:
        return None
    leaf, stored = Tensor("input", (), ("",), t.dtype, t.shape), Tensor("stored", (t,), (), t.dtype, t.shape)
    for above in reversed(chain):
        leaf, stored = (Tensor(above.prim, (x,), above.attrs, x.dtype, above.shape) for x in (leaf, stored))
    there = view_of(leaf)
    return None if there is None else (stored, there[1])


def _range(cut: Cut, bias: Tensor) -> tuple[float, float] | None:
    """Between which numbers a bias lies, where none of them is too small to be added as it is."""
    found = range_of(bias, cut.ranges)
    return found if found is not None and found[0] >= _LEAST else None


def _numbers(t: Tensor) -> Tensor:
    return k.cast(t, DType.INT32)


def _bias(cut: Cut, parts: FoundAttention, terms: _Terms) -> Tensor | None:
    """What is added to the scores, [batch or 1, heads or 1, queries or 1, keys], made once of the same masks."""
    if parts.bias is None and not terms.others:
        return None
    keys = sizes_of(parts.key)[2]
    plain = parts.bias
    if plain is not None and not terms.others and plain.dtype in _ADDED and _range(cut, plain) is not None:
        lead = k.reshape(plain, (*(1,) * (4 - plain.rank), *plain.shape))
        there = view_of(lead)
        if there is not None and lead.shape[3] == keys and _is_whole(there[1]):
            return lead
    sources = (*((parts.bias,) if parts.bias is not None else ()), *terms.others)

    def make() -> Tensor:
        total = k.scalar(0.0, DType.FLOAT) if parts.bias is None else k.cast(parts.bias, DType.FLOAT)
        total = k.maximum(total, _LEAST) if parts.bias is not None else total
        for mask in terms.others:
            total = k.select(mask, total, _LEAST)
        lead = k.reshape(total, (*(1,) * (4 - total.rank), *total.shape))
        return lead if lead.shape[3] == keys else k.broadcast(lead, (*lead.shape[:3], keys))

    return cut.once(("bias of attention", *map(id, sources)), make, sources)


def _any_allowed(cut: Cut, parts: FoundAttention) -> Tensor:
    """Whether a row has anything to attend, [batch or 1, heads or 1, queries or 1, 1], made once of the same masks."""
    masks = [unspread(m) for m in parts.masks]
    sources = (*((parts.bias,) if parts.bias is not None else ()), *masks)

    def make() -> Tensor:
        allowed = None
        if parts.bias is not None:
            allowed = k.binary("lt", k.scalar(-math.inf, DType.FLOAT), k.cast(parts.bias, DType.FLOAT))
        for mask in masks:
            allowed = mask if allowed is None else k.binary("and", allowed, mask)
        assert allowed is not None
        keys = k.broadcast(allowed, (*allowed.shape[:-1], parts.key.shape[2]))
        lead = k.reshape(keys, (*(1,) * (4 - keys.rank), *keys.shape))
        return Tensor("stored", (k.reduce(lead, "any", [3], True),), (), DType.BOOL, (*lead.shape[:3], 1))

    return cut.once(("rows of attention", *map(id, sources)), make, sources)


def found_attention(dot: Tensor, users: dict[int, list[Tensor]]) -> FoundAttention | None:
    """The attention whose last product this is, where q, k and v are of 16 bits and heads of eights."""
    own = found(dot, 0)
    if own is None or dot.rank not in (4, 5) or sizes_of(dot)[-1] % 8:
        return None
    grouped, result = dot.rank == 5, dot
    if grouped:
        above = users.get(id(dot), [])
        if len(above) != 1 or above[0].prim != "reshape" or above[0].rank != 4:
            return None
        result = above[0]
    scores, masks, bias = _unmasked(own.args[0])
    scores, scale = _scaled(scores)
    parts = _operands(scores, own.args[1], grouped)
    if parts is None:
        return None
    q, key, v = parts
    if not q.dtype is key.dtype is v.dtype or q.dtype not in _HALVES or {q.rank, key.rank, v.rank} != {4}:
        return None
    batch, heads = sizes_of(q)[:2]
    if sizes_of(q)[-1] % 8 or sizes_of(key)[0] != batch or sizes_of(key)[:3] != sizes_of(v)[:3] or heads % sizes_of(key)[1]:
        return None
    if sizes_of(result) != (batch, heads, sizes_of(q)[2], sizes_of(v)[3]):
        return None
    return FoundAttention(q, key, v, scale, result, tuple(masks), bias, bool(own.attrs[0]))


def _unmasked(scores: Tensor) -> tuple[Tensor, list[Tensor], Tensor | None]:
    """Scores before masks and a bias, and these."""
    masks: list[Tensor] = []
    while scores.prim == "select" and number_of(scores.args[2]) == -math.inf:
        masks.append(scores.args[0])
        scores = scores.args[1]
    if scores.prim == "add":
        products = [_is_product(_scaled(a)[0]) for a in scores.args]
        if products.count(True) == 1:
            at = products.index(True)
            return scores.args[at], masks, unspread(unwidened(unspread(scores.args[1 - at])))
    return scores, masks, None


def _scaled(scores: Tensor) -> tuple[Tensor, float]:
    """Scores before they were multiplied by a number, and the number."""
    if scores.prim in ("mul", "div") and (number := number_of(scores.args[1])) is not None:
        return scores.args[0], number if scores.prim == "mul" else 1.0 / number
    return scores, 1.0


def _is_product(t: Tensor) -> bool:
    return t.prim == "dot" or t.prim == "reshape" and t.args[0].prim == "dot"


def _operands(scores: Tensor, values: Tensor, grouped: bool) -> tuple[Tensor, Tensor, Tensor] | None:
    """q, k and v, with an axis of heads each: consecutive heads of q share one of k and v where they are grouped."""
    if not grouped:
        key = _before_turn(scores.args[1]) if scores.prim == "dot" and scores.rank == 4 else None
        return None if key is None else (unwidened(scores.args[0]), unwidened(key), unwidened(values))
    product = scores.args[0] if scores.prim == "reshape" else scores
    if product.prim != "dot" or product.rank != 5 or any(a.prim != "reshape" for a in (*product.args, values)):
        return None
    q, turned, v = (a.args[0] for a in (*product.args, values))
    key = _before_turn(turned)
    if key is None or {q.rank, v.rank} != {4}:
        return None
    lead = sizes_of(key)[:2]
    if sizes_of(product.args[1])[:3] != (*lead, 1) or sizes_of(values)[:3] != (*lead, 1):
        return None
    if sizes_of(product.args[0])[:2] != lead or sizes_of(q)[0] != lead[0]:
        return None
    return unwidened(q), unwidened(key), unwidened(v)


def _before_turn(t: Tensor) -> Tensor | None:
    """What has its last two axes exchanged here, of four; None where that is not so."""
    if t.prim not in ("transpose", "reshape") or t.rank != 4 or t.args[0].rank != 4:
        return None
    shape = sizes_of(t.args[0])
    if t.prim == "transpose":
        return t.args[0] if t.attrs == (0, 1, 3, 2) else None
    return t.args[0] if 1 in shape[2:] and sizes_of(t) == (*shape[:2], shape[3], shape[2]) else None


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
