"""Parts of classical models that providers use inside, never a model: the descent through a packed forest, what follows it,
and labels that are words.

`TreeSums` is here in NumPy, node by node as `ops/ml/packed.py` lays them out; the CPU provider has a kernel for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.kernel import lang as k
from intarsia.ops.ml.packed import LANES, NODE_BYTES, keys
from intarsia.ops.ml.scores import checked_matrix
from intarsia.ops.ml.trees import classified, regressed
from intarsia.ops.registry import host_op, op

DOMAIN = "intarsia.ml"
Tensor = k.Tensor


def _sums_type(
    X: TensorType, nodes: TensorType, trees: TensorType, columns: TensorType, weights: TensorType, first: TensorType,
    targets: TensorType, *, scores: int, features: int,
) -> TensorType:  # fmt: skip
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
def tree_sums(
    X: np.ndarray, nodes: np.ndarray, trees: np.ndarray, columns: np.ndarray, weights: np.ndarray, first: np.ndarray,
    targets: np.ndarray, *, votes: str, aggregate: str, scores: int, features: int, steps: int,
) -> np.ndarray:  # fmt: skip
    """Votes of the leaves that each row of X [N, columns] float or double reaches: double [N, scores].

    The other inputs and `votes` are the fields of `Packed`; `aggregate` is SUM, MIN or MAX.
    """
    x = np.atleast_2d(X)
    check_features(x.shape[1], features)
    key, dtype = keys(x[:, columns]), np.dtype(f"u{x.itemsize}")
    fields = [("low", dtype), ("span", dtype), ("feature", np.uint32), ("child", np.uint32)]
    node, size = nodes.reshape(-1).view(np.dtype(fields)), NODE_BYTES[x.itemsize]
    out = np.full((len(x), scores), {"SUM": 0.0, "MIN": np.inf, "MAX": -np.inf}[aggregate])
    combine = {"SUM": np.add, "MIN": np.minimum, "MAX": np.maximum}[aggregate]
    for root, _, _, target in trees.tolist():
        at, before = np.full(len(x), root // size), np.full(len(x), -1)
        while (at != before).any():
            before, n = at, node[at]
            value = np.take_along_axis(key, (n["feature"] // (LANES * x.itemsize))[:, None].astype(np.int64), 1)[:, 0]
            at = n["child"].astype(np.int64) // size + (value.astype(dtype) - n["low"] < n["span"])
        low = node["low"][at]
        for row, leaf in enumerate(low.tolist()):
            if votes == "node":
                combine.at(out[row], target, low[row : row + 1].view(x.dtype).astype(np.float64))
            elif votes == "dense":
                out[row] = combine(out[row], weights[leaf * scores : (leaf + 1) * scores])
            else:
                mine = slice(first[leaf], first[leaf + 1])
                combine.at(out[row], targets[mine], weights[mine].astype(np.float64))
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
    found: np.ndarray = table.take(index)
    return found
