"""Where the sums of a product go in the tensor that a kernel writes, through the element-wise primitives and views between."""

from __future__ import annotations

from intarsia.codegen.clike.schedules import _extent
from intarsia.codegen.loops.index_expr import Index, regroup
from intarsia.primitives.lang import Tensor, walk

_PASSED = frozenset(
    "neg abs sign floor ceil round sqrt exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf not bitnot "
    "isnan isinf add sub mul div mod fmod pow min max and or xor bitand bitor bitxor shl shr eq ne lt le atan2 select cast "
    "bitcast".split()
)


def sum_indices(root: Tensor, product_: Tensor, column: Index = ("v", "gn")) -> tuple[list[Index], frozenset[int]] | None:
    """Where in `root` the element of a matrix product at ("v", "z") (the batch), gm and `column` goes, and the ids of all
    tensors between; None where the product is not used element by element."""
    shape = [_extent(d) for d in product_.shape]
    batch = regroup([("v", "z")], [_extent(*shape[:-2])], shape[:-2])
    return places_of(root, product_, [*batch, ("v", "gm"), column])


def places_of(root: Tensor, inner: Tensor, at: list[Index]) -> tuple[list[Index], frozenset[int]] | None:
    """Where in `root` the element of `inner` at these indices goes, and the ids of all tensors between; None where it is not
    used element by element."""
    places: dict[int, list[Index]] = {id(inner): at}
    for t in walk([root]):
        from_sum = [a for a in t.args if id(a) in places]
        if not from_sum or id(t) in places:
            continue
        at = places[id(from_sum[0])]
        if any(places[id(a)] != at for a in from_sum):
            return None
        if t.prim == "reshape":
            places[id(t)] = regroup(at, t.args[0].shape, t.shape)
        elif t.prim == "transpose":
            places[id(t)] = [at[p] for p in t.attrs]
        elif t.prim in _PASSED and all(a.shape == t.shape for a in t.args):
            places[id(t)] = at
        else:
            return None
    if id(root) not in places:
        return None
    return places[id(root)], frozenset(places)
