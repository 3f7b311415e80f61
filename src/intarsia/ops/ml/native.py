"""Parts of classical models that providers use inside, never a model: the descent through a packed forest, what follows it,
numbers looked up in tables, and labels that are words.

`TreeSums` is here in NumPy, node by node as `ops/ml/packed.py` lays them out; the CPU provider has a kernel for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import host_op, op
from intarsia.ops.ml.categories import word_places
from intarsia.ops.ml.linear import pair_probabilities, support_kernel
from intarsia.ops.ml.packed import LANES, NODE_BYTES, keys
from intarsia.ops.ml.scores import both_classes, checked_matrix, post_transform, rows
from intarsia.ops.ml.trees import classified, regressed
from intarsia.primitives import lang as k

DOMAIN = "intarsia.ml"
Tensor = k.Tensor


@dataclass(frozen=True)
class PackedTrees(ParameterGroup):
    """The arrays of a `Packed` forest, or their types."""

    nodes: Any
    trees: Any
    columns: Any
    weights: Any
    first: Any
    targets: Any


@dataclass(frozen=True)
class TreeSumsAttributes(ParameterGroup):
    """How leaves vote (`Packed.votes`), SUM, MIN or MAX of their votes, and sizes; `steps` is for kernels."""

    votes: str
    aggregate: str
    scores: int
    features: int
    steps: int


def _sums_type(X: TensorType, forest: PackedTrees, *, scores: int, features: int) -> TensorType:
    shape = checked_matrix(X).shape
    if shape is None:
        return TensorType(DType.DOUBLE)
    if isinstance(shape[-1], int):
        check_features(shape[-1], features)
    return TensorType(DType.DOUBLE, (shape[0] if len(shape) == 2 else 1, scores))


def check_features(have: int, needed: int) -> None:
    if have < needed:
        raise k.DefinitionError(f"X has {have} features, but a node compares feature {needed - 1}")


@host_op("TreeSums", 1, domain=DOMAIN, infer=_sums_type, reason="the path through a tree depends on data")
def tree_sums(X: np.ndarray, forest: PackedTrees, *, attributes: TreeSumsAttributes) -> np.ndarray:
    """Votes of the leaves that each row of X [N, columns] float or double reaches: double [N, scores]."""
    x, weights, first, targets = np.atleast_2d(X), forest.weights, forest.first, forest.targets
    votes, aggregate, scores = attributes.votes, attributes.aggregate, attributes.scores
    check_features(x.shape[1], attributes.features)
    key, dtype = keys(x[:, forest.columns]), np.dtype(f"u{x.itemsize}")
    fields = [("low", dtype), ("span", dtype), ("feature", np.uint32), ("child", np.uint32)]
    node, size = forest.nodes.reshape(-1).view(np.dtype(fields)), NODE_BYTES[x.itemsize]
    out = np.full((len(x), scores), {"SUM": 0.0, "MIN": np.inf, "MAX": -np.inf}[aggregate])
    combine = {"SUM": np.add, "MIN": np.minimum, "MAX": np.maximum}[aggregate]
    for root, _, _, target in forest.trees.tolist():
        at, before = np.full(len(x), root // size), np.full(len(x), -1)
        while (at != before).any():
            before, n = at, node[at]
            value = np.take_along_axis(key, (n["feature"] // (LANES * x.itemsize))[:, None].astype(np.int64), 1)[:, 0]
            at = n["child"].astype(np.int64) // size + (value.astype(dtype) - n["low"] < n["span"])
        low = node["low"][at]
        if votes == "node":
            out[:, target] = combine(out[:, target], low.view(x.dtype))
        elif votes == "dense":
            out = combine(out, weights.reshape(-1, scores)[low.astype(np.int64)])
        else:
            for row, leaf in zip(out, low.tolist(), strict=True):
                mine = slice(first[leaf], first[leaf + 1])
                combine.at(row, targets[mine], weights[mine].astype(np.float64))
    return out


@op("TreeScores", 1, domain=DOMAIN)
def tree_scores(sums: Tensor, base: Tensor | None = None, *, aggregate: str, trees: int, transform: str, dtype: str) -> Tensor:
    """What a regressor makes of `sums`; `dtype` is ONNX's name of its element type."""
    kind = next(d for d in DType if d.onnx_name == dtype)
    return regressed(sums, base, aggregate=aggregate, trees=trees, transform=transform, dtype=kind)


@op("TreeClasses", 1, domain=DOMAIN)
def tree_classes(
    sums: Tensor, base: Tensor | None = None, labels: Tensor | None = None, *, transform: str, only: int, probability: int
) -> tuple[Tensor, Tensor]:
    """What a classifier makes of `sums`; without `labels` (int64) these are their indices. `only` is -1 for None."""
    index, scores = classified(sums, base, transform=transform, only=None if only < 0 else only, probability=bool(probability))
    return (index if labels is None else k.take(labels, index, 0)), scores


@host_op(
    "Label",
    1,
    domain=DOMAIN,
    infer=lambda index, *, words: TensorType(DType.STRING, index.shape),
    reason="words are on the host",
)
def label(index: np.ndarray, *, words: Sequence[str]) -> np.ndarray:
    """`words` by index."""
    table = np.empty(len(words), object)
    table[:] = words
    return np.asarray(table.take(index), object)  # of a scalar, `take` gives the word itself


def _positions(*, words: Sequence[Sequence[str]], known: Sequence[int]) -> Callable[..., tuple[np.ndarray, ...]]:
    tables = [word_places(own, known=bool(only)).__getitem__ for own, only in zip(words, known, strict=True)]

    def find(*columns: np.ndarray) -> tuple[np.ndarray, ...]:
        joined, spans, start = bytearray(), [], 0
        for x, place in zip(columns, tables, strict=True):
            joined += place(x.item()) if x.size == 1 else b"".join(map(place, x.ravel().tolist()))
            spans.append((start, start := start + x.size, x.shape))
        at = np.frombuffer(joined, np.int64, start)
        return tuple([at[first:end].reshape(shape) for first, end, shape in spans])

    return find


@host_op(
    "Positions", 1, domain=DOMAIN, bind=_positions, reason="words are on the host",
    infer=lambda *columns, words, known: tuple(TensorType(DType.INT64, x.shape) for x in columns),
)  # fmt: skip
def positions(*columns: np.ndarray, words: Sequence[Sequence[str]], known: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Where each string of a column is among its `words`, the last of equal ones; -1 of others, which are errors if `known`."""
    return _positions(words=words, known=known)(*columns)


@op("Lookup", 1, domain=DOMAIN)
def lookup(X: Tensor, keys: Tensor, values: Tensor, *, nan: int = 0) -> Tensor:
    """For each element its key's value: `keys` [K] are ascending, `values` [K + 2] are theirs, NaN's and the default.

    NaN is no key but has its own value if `nan`. The key is found by bisection.
    """
    count = keys.shape[0]
    assert isinstance(count, int)
    place = k.full(X.shape, 0, DType.INT64)
    step = 1 << max(count, 1).bit_length() - 1
    while step:
        probe = place + step
        known = k.take(keys, k.minimum(probe, count) - 1, 0)
        place = k.select((probe <= count) & (known < X), probe, place)
        step //= 2
    place = k.minimum(place, count - 1)
    index = k.select(k.equal(k.take(keys, place, 0), X), place, count + 1)
    if nan:
        index = k.select(k.unary("isnan", X), count, index)
    return k.take(values, index, 0)


@op("Table", 1, domain=DOMAIN)
def table(X: Tensor, values: Tensor, *, low: int) -> Tensor:
    """`values` [K + 1] of the integers from `low` on, its last element for all others."""
    count = values.shape[0]
    assert isinstance(count, int)
    place = k.cast(X, DType.INT64) - low  # that wraps around to what is no place
    return k.take(values, k.select((place >= 0) & (place < count - 1), place, count - 1), 0)


@op("Indicators", 1, domain=DOMAIN)
def indicators(X: Tensor, categories: Tensor) -> Tensor:
    """1 where an element (truncated to an integer) is the category of the last axis, else 0."""
    wide = k.reshape(k.cast(X, DType.INT64), (*X.shape, 1))
    return k.cast(k.equal(wide, categories), DType.FLOAT)


# --- support vector machines ---------------------------------------------------------------------------------------


@op("SupportScores", 1, domain=DOMAIN)
def support_scores(
    X: Tensor, vectors: Tensor, weights: Tensor, rho: Tensor, *, kernel: str, params: Sequence[float] = ()
) -> Tensor:
    """Kernels of X [N, F] with vectors [V, F], weighted by [V, P], plus rho [P]: double [N, P]."""
    x = k.cast(rows(X), DType.DOUBLE)
    return k.dot(support_kernel(x, vectors, kernel, params), weights) + rho


@op("PairLabels", 1, domain=DOMAIN)
def pair_labels(raw: Tensor, wins: Tensor, lost: Tensor, labels: Tensor | None = None) -> Tensor:
    """The index (or label) that wins most pairs: a positive score in raw [N, P] is for the pair's first class.

    `wins` [P, C] is 1 for a pair's first class and -1 for its second, `lost` [C] in how many pairs a class is the second.
    """
    index = k.arg_reduce(k.dot(k.cast(raw > 0.0, DType.FLOAT), wins) + lost, "max", 1)
    return index if labels is None else k.take(labels, index, 0)


@op("PairScores", 1, domain=DOMAIN)
def pair_scores(raw: Tensor, *, transform: str) -> Tensor:
    """float32 scores of pairs [N, P]; the single pair of two classes has one score for each."""
    found = both_classes(raw, transform, False) if raw.shape[1] == 1 else post_transform(raw, transform)
    return k.cast(found, DType.FLOAT)


@op("Sides", 1, domain=DOMAIN)
def sides(scores: Tensor) -> Tensor:
    """1 where a score is positive, else -1."""
    return k.select(scores > 0.0, k.scalar(1.0, DType.FLOAT), -1.0)


@host_op(
    "PairProbabilities", 1, domain=DOMAIN, reason="probabilities of pairs of classes are made to agree by iteration",
    infer=lambda raw, a, b, *, classes: TensorType(DType.DOUBLE, None if raw.shape is None else (raw.shape[0], classes)),
)  # fmt: skip
def class_probabilities(raw: np.ndarray, a: np.ndarray, b: np.ndarray, *, classes: int) -> np.ndarray:
    """Probabilities of the classes, [N, classes] double, from the scores of their pairs [N, P]."""
    return pair_probabilities(raw, a, b, classes)
