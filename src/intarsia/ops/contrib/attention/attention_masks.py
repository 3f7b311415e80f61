"""com.microsoft: masks of attention and biases on its scores. A mask's form follows from its sizes, which a run may give."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.graph.dims import Dim, Expr, Shape, format_shape, one_of
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives import lang as k

Tensor = k.Tensor


@dataclass(frozen=True)
class MaskedScores:
    """The scores that a mask is for, and what is added to those of padding.

    Attributes:
        shape: batch, heads, queries, keys.
        before: how many of the keys are of earlier calls.
        penalty: what is added to the score of padding.
        dtype: of the scores.
    """

    shape: Shape
    before: Dim
    penalty: float
    dtype: DType

    def bias(self, mask: Tensor | None, bias: Tensor | None) -> Tensor | None:
        """What is added to the scores, for a mask of `keys_that_count` and a bias [1 or batch, 1 or heads, queries, keys]."""
        parts = []
        if mask is not None:
            parts.append(k.select(self.keys_that_count(mask), k.scalar(0.0, self.dtype), self.penalty))
        if bias is not None:
            parts.append(_spread(k.cast(bias, self.dtype), self.shape))
        return None if not parts else parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def keys_that_count(self, mask: Tensor) -> Tensor:
        """A mask as bool [batch, 1, 1 or queries, keys].

        Its forms: [batch], ends; [2 * batch], exclusive ends and then inclusive starts; [3 * batch + 2], ends and then where
        queries and keys would begin without padding; [batch, keys], [batch, queries, keys], not 0 where a key counts;
        [batch, 1, most, most] for all tokens that there may be, of which the queries are those behind the earlier ones.
        """
        batch, _, queries, keys = self.shape
        if mask.rank == 1:
            place = k.iota((1, 1, 1, keys), 3)
            ends, starts = self._bounds(mask)
            return place < ends if starts is None else (place < ends) & (starts <= place)
        flags = mask if mask.dtype is DType.BOOL else k.not_equal(mask, 0)
        if mask.rank == 4:
            return self._of_all_tokens(flags)
        if mask.rank not in (2, 3):
            raise self._refused(mask)
        rows = 1 if mask.rank == 2 else mask.shape[1]
        whole = k.reshape(flags, (mask.shape[0], 1, rows, mask.shape[-1]))
        if any(_differ(have, want) for have, want in zip(whole.shape, (batch, 1, queries, keys), strict=True) if have != 1):
            raise self._refused(mask)
        return _spread(whole, (batch, 1, queries, keys))

    def _bounds(self, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Exclusive ends of the keys, and where they start if that is not 0, [batch, 1, 1, 1]."""
        batch, size = self.shape[0], mask.shape[0]
        forms = (batch, batch * 2, batch * 3 + 2)
        if size in forms:
            starts = self._part(mask, batch) if size == forms[1] else None
            return self._part(mask, 0), starts
        if isinstance(size, int) and isinstance(batch, int):
            raise self._refused(mask)
        k.require_equal(size, one_of(size, forms), "the mask's length")
        has_starts = k.equal(k.size(size), k.size(forms[1]))
        return self._part(mask, 0), k.select(has_starts, self._part(mask, size - batch), 0)

    def _part(self, mask: Tensor, start: Dim) -> Tensor:
        batch = self.shape[0]
        return k.reshape(k.cast(k.strided_slice(mask, (start,), (1,), (batch,)), DType.INT64), (batch, 1, 1, 1))

    def _of_all_tokens(self, flags: Tensor) -> Tensor:
        batch, _, queries, keys = self.shape
        most = flags.shape[2:]
        pairs = ((flags.shape[0], batch), (flags.shape[1], 1), (most[0], most[1]))
        if any(_differ(have, want) for have, want in pairs) or any(isinstance(n, int) and n < _least(keys) for n in most):
            raise self._refused(flags)
        k.require_equal(flags.shape[0], batch, "the mask's first axis")
        k.require_equal(flags.shape[1], 1, "the mask's second axis")
        k.require_least(most[0], self.before + queries, "the tokens that the mask has rows for")
        k.require_least(most[1], keys, "the tokens that the mask has columns for")
        return k.strided_slice(flags, (0, 0, self.before, 0), (1,) * 4, (batch, 1, queries, keys))

    def _refused(self, mask: Tensor) -> k.DefinitionError:
        batch, _, queries, keys = self.shape
        return k.DefinitionError(
            f"the mask is {mask!r}; expected [batch], [2 * batch], [3 * batch + 2], [batch, keys], [batch, queries, keys] or "
            f"[batch, 1, most, most] for batch, queries, keys = {format_shape((batch, queries, keys))}"
        )


def _spread(x: Tensor, shape: Sequence[Dim]) -> Tensor:
    """x with sizes of its own as those of `shape`, which they are in a run, or 1; a size that is known to be 1 stays."""
    if x.rank != len(shape):
        return x
    wanted: Shape = tuple(1 if have == 1 else want for have, want in zip(x.shape, shape, strict=True))
    return k.broadcast(x, wanted)


def _differ(a: Dim, b: Dim) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a != b


def _least(n: Dim) -> int:
    return 0 if isinstance(n, Expr) else n
