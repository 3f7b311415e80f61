"""Tree ensembles: all rows go down all trees together, a level at a time.

A leaf leads to itself, so no row needs to know when it has arrived: there are as many levels as the deepest tree has. Votes are
a table, a row for each leaf and a column for each score.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.kernel import lang as k
from intarsia.kernel.lang import Tensor
from intarsia.ops.ml.forest import LEAF, MODES, Forest
from intarsia.ops.ml.prepared import prepared
from intarsia.ops.ml.trees import MEANINGS, Ensemble, classified, regressed
from intarsia.ops.registry import OpRecord
from intarsia.providers.gpu.written.registry import DOMAIN, add

_MOST_VOTES = 1 << 22  # elements of the table of votes
_MOST_LEVELS = 128
_COMPARE: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda x, t: x <= t, lambda x, t: x < t, lambda x, t: x >= t, lambda x, t: x > t, k.equal, k.not_equal,
)  # fmt: skip
_IDENTITY = {"SUM": 0.0, "AVERAGE": 0.0, "MIN": np.inf, "MAX": -np.inf}
_REDUCE = {"SUM": "sum", "AVERAGE": "sum", "MIN": "min", "MAX": "max"}


def levels(forest: Forest) -> int:
    """Comparisons on the longest way from a root to a leaf."""
    at, count = np.unique(forest.roots), 0
    while len(at := at[forest.mode[at] != LEAF]):
        at = np.unique(np.concatenate([forest.yes[at], forest.no[at]]))
        count += 1
        if count > len(forest.mode):
            raise k.DefinitionError("the nodes of a tree lead round in a circle; expected a tree")
    if count > _MOST_LEVELS:
        raise k.DefinitionError(f"trees of {count} levels; their descent on a device is written out for at most {_MOST_LEVELS}")
    return count


def votes(forest: Forest, aggregate: str, dtype: DType) -> np.ndarray:
    """What each node says, [nodes, scores]: for leaves their votes, brought together where several are for one score."""
    if len(forest.mode) * forest.targets > _MOST_VOTES:
        raise k.DefinitionError(
            f"{len(forest.mode)} nodes with {forest.targets} scores each; a device takes at most {_MOST_VOTES} votes"
        )
    table = np.full((len(forest.mode), forest.targets), _IDENTITY[aggregate])
    node = np.repeat(np.arange(len(forest.mode)), forest.count)
    place = np.repeat(forest.first - np.cumsum(forest.count) + forest.count, forest.count) + np.arange(len(node))
    cell = node, forest.target[place]
    {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add).at(table, cell, forest.weight[place])
    return table.astype(dtype.numpy)


def sums(x: Tensor, meant: Ensemble, dtype: DType) -> Tensor:
    """[N, scores]: the votes of all trees for the rows of x [N, features], brought together."""
    forest = meant.forest
    if isinstance(x.shape[1], int) and forest.highest_feature >= x.shape[1]:
        raise k.DefinitionError(f"X has {x.shape[1]} features, but a node compares feature {forest.highest_feature}")
    inner = forest.mode != LEAF
    own = np.arange(len(forest.mode))
    ways = np.stack([np.where(inner, forest.no, own), np.where(inner, forest.yes, own)], 1).reshape(-1).astype(np.int32)
    feature, threshold = (np.where(inner, a, 0) for a in (forest.feature, forest.threshold))
    tables = k.constant(feature.astype(np.int32)), k.constant(threshold.astype(x.dtype.numpy)), k.constant(ways)
    shape = (x.shape[0], len(forest.roots))
    at = k.broadcast(k.constant(forest.roots.astype(np.int32)), shape)
    row = k.iota(shape, 0, DType.INT32)
    for _ in range(levels(forest)):
        value = k.index(x, [row, k.take(tables[0], at, 0)])
        holds = _holds(forest, value, k.take(tables[1], at, 0), at)
        if forest.any_missing:
            leads = k.equal(k.take(k.constant(forest.missing.astype(np.int32)), at, 0), 1)
            holds = k.binary("or", holds, k.binary("and", leads, k.unary("isnan", value)))
        at = k.stored(k.take(tables[2], 2 * at + k.cast(holds, DType.INT32), 0))
    said = k.take(k.constant(votes(forest, meant.aggregate, dtype)), at, 0)
    return k.reduce(said, _REDUCE[meant.aggregate], [1])


def _holds(forest: Forest, value: Tensor, threshold: Tensor, at: Tensor) -> Tensor:
    """Whether the comparisons of the nodes `at` hold."""
    found: Tensor | None = None
    modes = [int(m) for m in np.unique(forest.mode[forest.mode != LEAF])]
    for mode in modes:
        here = _COMPARE[mode](value, threshold) if mode < len(_COMPARE) else _is_member(forest, value, at)
        if found is not None:
            here = k.select(k.equal(k.take(k.constant(forest.mode.astype(np.int32)), at, 0), mode), here, found)
        found = here
    assert found is not None, MODES
    return found


def _is_member(forest: Forest, value: Tensor, at: Tensor) -> Tensor:
    assert forest.members is not None
    values = forest.members.values
    if not len(values):
        return k.full(value.shape, False, DType.BOOL)
    inside = np.zeros(len(forest.mode) * len(values), np.int32)
    inside[forest.members.pairs] = 1
    of_node = k.take(k.constant(inside.reshape(-1, len(values))), at, 0)
    same = k.equal(k.expand_dims(value, [2]), k.constant(values.astype(value.dtype.numpy)))
    return k.reduce(k.binary("and", same, k.equal(of_node, 1)), "any", [2])


def _wide(X: Tensor, forest: Forest) -> DType:
    """What is compared: float32, unless data or thresholds are of more digits."""
    with np.errstate(over="ignore"):
        exact = np.array_equal(forest.threshold.astype(np.float32), forest.threshold, equal_nan=True)
    return DType.FLOAT if exact and X.dtype is not DType.DOUBLE else DType.DOUBLE


def _computed(X: Tensor, meant: Ensemble, typed: bool) -> Tensor | tuple[Tensor, Tensor]:
    if X.rank not in (1, 2):
        raise k.DefinitionError(f"X has rank {X.rank}; expected 1 or 2")
    x = k.cast(X if X.rank == 2 else k.expand_dims(X, [0]), _wide(X, meant.forest))
    dtype = DType.DOUBLE if X.dtype is DType.DOUBLE else DType.FLOAT
    total = sums(x, meant, dtype)
    base = None if meant.base is None else k.constant(meant.base.astype(dtype.numpy))
    if meant.classes is None:
        return regressed(
            total, base, aggregate=meant.aggregate, trees=len(meant.forest.roots), transform=meant.transform,
            dtype=X.dtype if typed else DType.FLOAT,
        )  # fmt: skip
    place, scores = classified(total, base, transform=meant.transform, only=meant.only, probability=meant.probability)
    return k.take(k.constant(np.asarray(meant.classes.names(), np.int64)), place, 0), scores


def _add(name: str) -> None:
    """The definition of an ensemble, with the attributes of the operator that it replaces."""
    meaning = MEANINGS[name]
    parameters = inspect.signature(meaning).parameters
    defaults = {n: None if p.default is p.empty else p.default for n, p in parameters.items()}
    made = prepared(lambda *values: meaning(**dict(zip(defaults, values, strict=True))))

    def definition(X: Tensor, **attributes: Any) -> Any:
        meant = made(*(attributes.get(n, default) for n, default in defaults.items()))
        return _computed(X, meant, name == "TreeEnsemble")

    data = inspect.Parameter("X", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    definition.__signature__ = inspect.Signature([data, *parameters.values()])  # type: ignore[attr-defined]
    add(OpRecord(DOMAIN, name, 1, definition))


for _name in MEANINGS:
    _add(_name)
