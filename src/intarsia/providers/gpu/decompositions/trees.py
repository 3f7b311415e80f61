"""Tree ensembles: all rows go down all trees together, a level at a time.

A leaf leads to itself, so no row needs to know when it has arrived: there are as many levels as the deepest tree has. Votes are
a table, a row for each leaf and a column for each score.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.ops.framework.registry import OpRecord
from intarsia.ops.ml import descent
from intarsia.ops.ml.forest import Forest
from intarsia.ops.ml.packed import Intervals, intervals
from intarsia.ops.ml.prepared import prepared
from intarsia.ops.ml.trees import MEANINGS, Ensemble, classified, regressed
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.providers.gpu.decompositions.registry import DOMAIN, add

_MOST_VOTES = 1 << 22  # elements of the table of votes
_MOST_LEVELS = 128
_IDENTITY = {"SUM": 0.0, "AVERAGE": 0.0, "MIN": np.inf, "MAX": -np.inf}
_REDUCE = {"SUM": "sum", "AVERAGE": "sum", "MIN": "min", "MAX": "max"}


def levels(nodes: Intervals) -> int:
    """Comparisons on the longest way from a root to a leaf."""
    at, count = np.unique(nodes.roots), 0
    while len(at := at[~nodes.leaf[at]]):
        at = np.unique(np.concatenate([nodes.yes[at], nodes.no[at]]))
        count += 1
        if count > len(nodes.leaf):
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
    nodes = intervals(forest, np.dtype(x.dtype.numpy))
    own = np.arange(len(nodes.leaf))
    ways = np.stack([np.where(nodes.leaf, own, nodes.no), np.where(nodes.leaf, own, nodes.yes)], 1).reshape(-1)
    feature, way = (k.constant(a.astype(np.int32)) for a in (nodes.feature, ways))
    low, span = k.constant(nodes.low), k.constant(nodes.span)
    shape = (x.shape[0], len(nodes.roots))
    at = k.broadcast(k.constant(nodes.roots.astype(np.int32)), shape)
    row = k.iota(shape, 0, DType.INT32)
    for _ in range(levels(nodes)):
        key = descent.keys(k.index(x, [row, k.take(feature, at, 0)]))
        yes = descent.leads(key, k.take(low, at, 0), k.take(span, at, 0))
        at = k.stored(k.take(way, 2 * at + k.cast(yes, DType.INT32), 0))
    said = k.take(k.constant(votes(forest, meant.aggregate, dtype)), at, 0)
    return k.reduce(said, _REDUCE[meant.aggregate], [1])


def _computed(X: Tensor, meant: Ensemble, typed: bool) -> Tensor | tuple[Tensor, Tensor]:
    if X.rank not in (1, 2):
        raise k.DefinitionError(f"X has rank {X.rank}; expected 1 or 2")
    dtype = DType.DOUBLE if X.dtype is DType.DOUBLE else DType.FLOAT
    x = k.cast(X if X.rank == 2 else k.expand_dims(X, [0]), dtype)
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
    vars(definition).update(__signature__=inspect.Signature([data, *parameters.values()]))
    add(OpRecord(DOMAIN, name, 1, definition))


for _name in MEANINGS:
    _add(_name)
