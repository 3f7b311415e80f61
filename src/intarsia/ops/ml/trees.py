"""Tree ensembles: one table of nodes for all trees; a batch descends level by level with index arrays.

TreeEnsembleRegressor, TreeEnsembleClassifier (versions 1, 3 and the deprecated 5) and TreeEnsemble 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.kernel import lang as k
from intarsia.ops.ml import DOMAIN
from intarsia.ops.ml.forest import Forest, forest_of_nodes, forest_of_splits
from intarsia.ops.ml.prepared import prepared
from intarsia.ops.ml.scores import Classes, both_classes, checked_matrix, evaluated, post_transform
from intarsia.ops.registry import host_op

Ints = Sequence[int]
Floats = Sequence[float]

_REASON = "the path through a tree depends on data"
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _matrix(X: np.ndarray) -> np.ndarray:
    """Data as [N, features]; integers are compared as float32."""
    x = np.atleast_2d(X)
    return x if x.dtype.kind == "f" and x.dtype.itemsize >= 4 else x.astype(np.float32)


def _either(plain: Any, tensor: Any) -> Any:
    """A list of floats, or the tensor that stands for it in double precision; None where neither is given."""
    given = tensor if tensor is not None and len(tensor) else plain
    return given if given is not None and len(given) else None


def _rows(X: TensorType) -> Dim | None:
    shape = checked_matrix(X).shape
    return None if shape is None else shape[0] if len(shape) == 2 else 1


def _transformed(scores: np.ndarray, transform: str) -> np.ndarray:
    return scores if transform == "NONE" else evaluated(lambda s: post_transform(s, transform), scores)[0]


# --- regression ----------------------------------------------------------------------------------------------------

_nodes = prepared(forest_of_nodes)


@prepared
def _based(base_values: Floats | np.ndarray | None, targets: int) -> np.ndarray:
    """What is added to each target's score."""
    if base_values is None:
        return np.zeros(targets)
    if len(base_values) not in (1, targets):
        raise k.DefinitionError(f"base_values has {len(base_values)} values; expected {targets}, one for each target")
    return np.broadcast_to(np.array(base_values, np.float64), (targets,))


def _regressor_type(X: TensorType, *, n_targets: int = 1) -> TensorType:
    rows = _rows(X)
    return TensorType(DType.FLOAT, None if rows is None else (rows, n_targets))


@host_op("TreeEnsembleRegressor", (1, 3, 5), domain=DOMAIN, infer=_regressor_type, reason=_REASON)
def tree_ensemble_regressor(
    X: np.ndarray, *, aggregate_function: str = "SUM", base_values: Floats | None = None,
    base_values_as_tensor: np.ndarray | None = None, n_targets: int = 1, nodes_falsenodeids: Ints = (),
    nodes_featureids: Ints = (), nodes_hitrates: Floats | None = None, nodes_hitrates_as_tensor: np.ndarray | None = None,
    nodes_missing_value_tracks_true: Ints | None = None, nodes_modes: Sequence[str] = (), nodes_nodeids: Ints = (),
    nodes_treeids: Ints = (), nodes_truenodeids: Ints = (), nodes_values: Floats | None = None,
    nodes_values_as_tensor: np.ndarray | None = None, post_transform: str = "NONE", target_ids: Ints = (),
    target_nodeids: Ints = (), target_treeids: Ints = (), target_weights: Floats | None = None,
    target_weights_as_tensor: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Votes of the leaves that each row reaches, aggregated by target, plus the base values: [N, n_targets] float32."""
    forest = _nodes(
        nodes_treeids, nodes_nodeids, nodes_featureids, nodes_modes, _either(nodes_values, nodes_values_as_tensor),
        nodes_truenodeids, nodes_falsenodeids, nodes_missing_value_tracks_true, target_treeids, target_nodeids, target_ids,
        _either(target_weights, target_weights_as_tensor), n_targets,
    )  # fmt: skip
    scores = forest.scores(_matrix(X), aggregate_function)
    return _transformed(scores + _based(_either(base_values, base_values_as_tensor), n_targets), post_transform).astype(
        np.float32
    )


# --- classification ------------------------------------------------------------------------------------------------


def _classifier_types(
    X: TensorType, *, classlabels_int64s: Ints | None = None, classlabels_strings: Sequence[str] | None = None
) -> tuple[TensorType, TensorType]:
    classes, rows = Classes.of(classlabels_int64s, classlabels_strings), _rows(X)
    if rows is None:
        return TensorType(classes.dtype), TensorType(DType.FLOAT)
    return TensorType(classes.dtype, (rows,)), TensorType(DType.FLOAT, (rows, len(classes)))


@dataclass(frozen=True)
class _Votes:
    """What the votes of a classifier's trees look like.

    Attributes:
        only: the class that all votes are for, where it is one of two; else None.
        probability: no vote is negative.
    """

    only: int | None
    probability: bool


@prepared
def _votes(class_ids: Ints, weights: Floats | np.ndarray, classes: int) -> _Votes:
    voted = set(class_ids)
    return _Votes(next(iter(voted)) if len(voted) == 1 and classes == 2 else None, bool(np.min(weights, initial=0.0) >= 0))


@host_op("TreeEnsembleClassifier", (1, 3, 5), domain=DOMAIN, infer=_classifier_types, reason=_REASON)
def tree_ensemble_classifier(
    X: np.ndarray, *, base_values: Floats | None = None, base_values_as_tensor: np.ndarray | None = None,
    class_ids: Ints = (), class_nodeids: Ints = (), class_treeids: Ints = (), class_weights: Floats | None = None,
    class_weights_as_tensor: np.ndarray | None = None, classlabels_int64s: Ints | None = None,
    classlabels_strings: Sequence[str] | None = None, nodes_falsenodeids: Ints = (), nodes_featureids: Ints = (),
    nodes_hitrates: Floats | None = None, nodes_hitrates_as_tensor: np.ndarray | None = None,
    nodes_missing_value_tracks_true: Ints | None = None, nodes_modes: Sequence[str] = (), nodes_nodeids: Ints = (),
    nodes_treeids: Ints = (), nodes_truenodeids: Ints = (), nodes_values: Floats | None = None,
    nodes_values_as_tensor: np.ndarray | None = None, post_transform: str = "NONE",
) -> tuple[np.ndarray, ...]:  # fmt: skip
    """The label of the highest score, and the scores: sums of votes and base values, [N, classes] float32.

    Where all votes are for the first of two classes they are one score s for the second: s > 0.5 decides if no vote is
    negative (s is then a probability), else s > 0.
    """
    classes = Classes.of(classlabels_int64s, classlabels_strings)
    weights = _either(class_weights, class_weights_as_tensor)
    forest = _nodes(
        nodes_treeids, nodes_nodeids, nodes_featureids, nodes_modes, _either(nodes_values, nodes_values_as_tensor),
        nodes_truenodeids, nodes_falsenodeids, nodes_missing_value_tracks_true, class_treeids, class_nodeids, class_ids,
        weights, len(classes),
    )  # fmt: skip
    base = _either(base_values, base_values_as_tensor)
    votes = _votes(class_ids, weights, len(classes))
    sums = forest.scores(_matrix(X), "SUM")
    if len(classes) == 1:
        sums = sums + _based(base, 1)
        return *evaluated(classes.signed, sums[:, 0] > 0), _transformed(sums, post_transform).astype(np.float32)
    if votes.only is None or (base is not None and len(base) == 2):
        sums = sums + _based(base, len(classes))
        return *evaluated(classes.top, sums), _transformed(sums, post_transform).astype(np.float32)
    if votes.only == 0:
        score = sums[:, :1] + _based(base, 1)
        found = evaluated(lambda s: both_classes(s, post_transform, votes.probability), score)[0]
    else:
        score = sums[:, 1:]
        found = _transformed(sums, post_transform)
    label = evaluated(classes.signed, score[:, 0] > (0.5 if votes.probability else 0.0))
    return *label, found.astype(np.float32)


# --- TreeEnsemble 5 ------------------------------------------------------------------------------------------------

_splits = prepared(forest_of_splits)


def _ensemble_type(X: TensorType, *, n_targets: int = 1) -> TensorType:
    rows = _rows(X)
    return TensorType(X.dtype, None if rows is None else (rows, n_targets))


@host_op("TreeEnsemble", 5, domain=DOMAIN, infer=_ensemble_type, reason=_REASON)
def tree_ensemble(
    X: np.ndarray, *, leaf_targetids: Ints, leaf_weights: np.ndarray, nodes_falseleafs: Ints, nodes_falsenodeids: Ints,
    nodes_featureids: Ints, nodes_modes: np.ndarray, nodes_splits: np.ndarray, nodes_trueleafs: Ints,
    nodes_truenodeids: Ints, tree_roots: Ints, aggregate_function: int = 1, membership_values: np.ndarray | None = None,
    n_targets: int = 1, nodes_hitrates: np.ndarray | None = None, nodes_missing_value_tracks_true: Ints | None = None,
    post_transform: int = 0,
) -> np.ndarray:  # fmt: skip
    """Weights of the leaves that each row reaches, aggregated by target: [N, n_targets] in X's type."""
    for what, value, names in (
        ("aggregate_function", aggregate_function, _AGGREGATES), ("post_transform", post_transform, _TRANSFORMS),
    ):  # fmt: skip
        if not 0 <= value < len(names):
            raise k.DefinitionError(f"{what} is {value}; expected 0 to {len(names) - 1} ({', '.join(names)})")
    forest: Forest = _splits(
        tree_roots, nodes_featureids, nodes_modes, nodes_splits, nodes_truenodeids, nodes_trueleafs, nodes_falsenodeids,
        nodes_falseleafs, nodes_missing_value_tracks_true, membership_values, leaf_targetids, leaf_weights, n_targets,
    )  # fmt: skip
    scores = forest.scores(_matrix(X), _AGGREGATES[aggregate_function])
    return _transformed(scores, _TRANSFORMS[post_transform]).astype(X.dtype)
