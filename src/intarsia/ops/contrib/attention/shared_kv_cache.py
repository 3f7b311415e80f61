"""com.microsoft: caches of keys and values that past and present share, and beams that take their tokens from each other."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k

Tensor = k.Tensor


def appended(past: Tensor, new: Tensor, before: Tensor, capacity: Dim, count: Tensor | None = None) -> Tensor:
    """A cache of `capacity` rows per head: those of `past` up to `before` [batch, 1, 1, 1], then those of `new`, the first
    `count` of them where that is given."""
    rows, steps = past.shape[2], new.shape[2]
    shape = (*new.shape[:2], capacity, new.shape[3])
    place = k.iota(shape, 2)
    fresh = place - before
    is_new = (fresh >= 0) & (fresh < (k.size(steps) if count is None else count))
    both = k.concat([past, new], 2)
    source = k.select(is_new, fresh + k.size(rows), k.minimum(place, k.size(rows + steps - 1)))
    return k.index(both, [k.iota(shape, 0), k.iota(shape, 1), source, k.iota(shape, 3)])


def written(past: Tensor, new: Tensor, before: Dim) -> Tensor:
    """A cache [batch, heads, capacity, size] with `new` in its rows from `before` on."""
    place = k.iota((1, 1, past.shape[2], 1), 2)
    if new.shape[2] == 1:
        return k.select(k.equal(place, k.size(before)), new, past)
    return appended(past, new, k.reshape(k.size(before), (1, 1, 1, 1)), past.shape[2])


def filled(cache: Tensor, before: Dim, steps: Dim) -> Tensor:
    """The rows of a cache that count: `before` and this call's `steps`, [batch, heads, before + steps, size]."""
    batch, heads, capacity, size = cache.shape
    k.require_least(before, 0, "past_sequence_length")
    k.require_least(capacity, before + steps, "the rows of the shared cache")
    return k.strided_slice(cache, (0,) * 4, (1,) * 4, (batch, heads, before + steps, size))


def from_beams(x: Tensor, source: Tensor, steps: Dim = 1) -> Tensor:
    """x [batch * beams, heads, tokens, size] with every token but the last `steps` taken from the beam that `source`
    [batch, beams, capacity] names."""
    beams, capacity = source.shape[1:]
    rows, heads, tokens, size = x.shape
    k.require_equal(source.shape[0] * beams, rows, "the rows that cache_indirection is for")
    by_row = k.reshape(k.cast(source, DType.INT64), (rows, capacity))
    place, row = k.iota((rows, 1, tokens, 1), 2), k.iota((rows, 1, tokens, 1), 0)
    first = row - k.binary("mod", row, k.size(beams))
    from_row = first + k.index(by_row, [row, k.minimum(place, k.size(capacity - 1))])
    from_row = k.select(place < k.size(tokens - steps), from_row, row)
    return k.index(x, [from_row, k.iota((1, heads, 1, 1), 1), place, k.iota((1, 1, 1, size), 3)])


def all_tokens(new: Sequence[Tensor], past: Sequence[Tensor | None], before: Dim | None) -> list[Tensor]:
    """Keys and values after a call: those of earlier calls and `new`, which lie at row `before` of a shared cache, or behind
    the others (None)."""
    out = []
    for old, x in zip(past, new, strict=True):
        if old is None:
            out.append(x)
        else:
            out.append(k.concat([old, x], 2) if before is None else written(old, x, before))
    return out
