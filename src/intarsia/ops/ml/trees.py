"""Tree ensembles: TreeEnsembleRegressor, TreeEnsembleClassifier (versions 1, 3 and the deprecated 5) and TreeEnsemble 5.

`MEANINGS` says what such a node means: a forest, and what follows the descent through it. Here the descent is NumPy's, level by
level with index arrays; a provider that has a kernel for it computes the rest by `regressed` and `classified` as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.parameter_groups import ParameterGroup, flat
from intarsia.ops.framework.registry import host_op
from intarsia.ops.ml import DOMAIN
from intarsia.ops.ml.forest import (
    Floats,
    Forest,
    Ints,
    LeafVotes,
    TreeNodes,
    TreeSplits,
    either,
    forest_of_nodes,
    forest_of_splits,
)
from intarsia.ops.ml.prepared import prepared
from intarsia.ops.ml.scores import Classes, both_classes, checked_matrix, evaluated, post_transform
from intarsia.primitives import lang as k

Tensor = k.Tensor

_REASON = "the path through a tree depends on data"
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass(frozen=True, eq=False)
class Ensemble:
    """A forest, and what becomes of its scores.

    Attributes:
        aggregate: AVERAGE, SUM, MIN or MAX.
        base: double [scores] or [1], added to the scores, or None.
        classes: the labels of a classifier, else None.
        only: the class that all votes are for, where it is one of two; else None.
        probability: no vote is negative.
    """

    forest: Forest
    aggregate: str
    transform: str
    base: np.ndarray | None = None
    classes: Classes | None = None
    only: int | None = None
    probability: bool = False

    def __post_init__(self) -> None:
        for what, value, known in (
            ("aggregate_function", self.aggregate, _AGGREGATES), ("post_transform", self.transform, _TRANSFORMS)
        ):  # fmt: skip
            if value not in known:
                raise k.DefinitionError(f"{what} is {value!r}; expected {', '.join(known[:-1])} or {known[-1]}")


@dataclass(frozen=True)
class BaseValues(ParameterGroup):
    """What is added to the scores."""

    base_values: Floats | None = None
    base_values_as_tensor: np.ndarray | None = None

    def of(self, scores: int) -> np.ndarray | None:
        """Double [scores] or [1], or None. Raises DefinitionError where there are as many as neither."""
        values = either(self.base_values, self.base_values_as_tensor)
        if values is None:
            return None
        if len(values) not in (1, scores):
            raise k.DefinitionError(f"base_values has {len(values)} values; expected {scores}, one for each score")
        return np.array(values, np.float64)


@dataclass(frozen=True)
class TargetVotes(ParameterGroup):
    """A regressor's votes, by tree and leaf."""

    target_ids: Ints = ()
    target_nodeids: Ints = ()
    target_treeids: Ints = ()
    target_weights: Floats | None = None
    target_weights_as_tensor: np.ndarray | None = None

    @property
    def votes(self) -> LeafVotes:
        weights = either(self.target_weights, self.target_weights_as_tensor)
        return LeafVotes(self.target_treeids, self.target_nodeids, self.target_ids, weights)


@dataclass(frozen=True)
class ClassVotes(ParameterGroup):
    """A classifier's votes, by tree and leaf."""

    class_ids: Ints = ()
    class_nodeids: Ints = ()
    class_treeids: Ints = ()
    class_weights: Floats | None = None
    class_weights_as_tensor: np.ndarray | None = None

    @property
    def votes(self) -> LeafVotes:
        weights = either(self.class_weights, self.class_weights_as_tensor)
        return LeafVotes(self.class_treeids, self.class_nodeids, self.class_ids, weights)


@dataclass(frozen=True)
class ClassLabels(ParameterGroup):
    """The classes of a classifier, numbers or strings."""

    classlabels_int64s: Ints | None = None
    classlabels_strings: Sequence[str] | None = None


# --- what nodes mean -----------------------------------------------------------------------------------------------


def regression(
    *, nodes: TreeNodes, targets: TargetVotes, base: BaseValues, n_targets: int = 1, aggregate_function: str = "SUM",
    post_transform: str = "NONE",
) -> Ensemble:  # fmt: skip
    """Votes of the leaves that each row reaches, aggregated by target, plus the base values: [N, n_targets] float32."""
    forest = forest_of_nodes(nodes, targets.votes, n_targets)
    return Ensemble(forest, aggregate_function, post_transform, base.of(n_targets))


def classification(
    *, nodes: TreeNodes, classes: ClassVotes, labels: ClassLabels, base: BaseValues, post_transform: str = "NONE"
) -> Ensemble:
    """The label of the highest score, and the scores: sums of votes and base values, [N, classes] float32.

    Where all votes are for the first of two classes they are one score s for the second: s > 0.5 decides if no vote is
    negative (s is then a probability), else s > 0.
    """
    named, votes = Classes.of(labels.classlabels_int64s, labels.classlabels_strings), classes.votes
    forest = forest_of_nodes(nodes, votes, len(named))
    voted = set(votes.targets)
    only = next(iter(voted)) if len(voted) == 1 and len(named) == 2 else None
    added = base.of(len(named))
    if added is not None and len(added) == len(named):
        only = None
    probability = bool(np.min(votes.weights, initial=0.0) >= 0)  # type: ignore[arg-type] # a forest has weights
    return Ensemble(forest, "SUM", post_transform, added, named, only, probability)


def ensemble(*, splits: TreeSplits, aggregate_function: int = 1, n_targets: int = 1, post_transform: int = 0) -> Ensemble:
    """Weights of the leaves that each row reaches, aggregated by target: [N, n_targets] in X's type."""
    for what, value, names in (
        ("aggregate_function", aggregate_function, _AGGREGATES), ("post_transform", post_transform, _TRANSFORMS),
    ):  # fmt: skip
        if not 0 <= value < len(names):
            raise k.DefinitionError(f"{what} is {value}; expected 0 to {len(names) - 1} ({', '.join(names)})")
    forest = forest_of_splits(splits, n_targets)
    return Ensemble(forest, _AGGREGATES[aggregate_function], _TRANSFORMS[post_transform])


MEANINGS: dict[str, Callable[..., Ensemble]] = {  # of a node's attributes
    "TreeEnsembleRegressor": flat(regression), "TreeEnsembleClassifier": flat(classification), "TreeEnsemble": flat(ensemble),
}  # fmt: skip


# --- behind the descent --------------------------------------------------------------------------------------------


def regressed(sums: Tensor, base: Tensor | None, *, aggregate: str, trees: int, transform: str, dtype: DType) -> Tensor:
    """Scores [N, targets] from the votes of all trees, added up (or the least, the greatest; infinite: there are none)."""
    scores = sums
    if aggregate == "AVERAGE":
        scores = scores / float(max(trees, 1))
    elif aggregate != "SUM":
        scores = k.select(k.equal(k.absolute(scores), float("inf")), 0.0, scores)
    return k.cast(post_transform(scores if base is None else scores + base, transform), dtype)


def classified(
    sums: Tensor, base: Tensor | None, *, transform: str, only: int | None, probability: bool
) -> tuple[Tensor, Tensor]:
    """The index of the label, and the scores [N, classes] float32. Of one class, 1 or 0 tell whether it applies."""
    classes = sums.shape[1]
    if only is None:
        scores = sums if base is None else sums + base
        index = _above(scores, 0.0) if classes == 1 else k.arg_reduce(scores, "max", 1)
        return index, k.cast(post_transform(scores, transform), DType.FLOAT)
    score = k.strided_slice(sums, [0, only], [1, 1], [sums.shape[0], 1])
    if only == 0:
        score = score if base is None else score + base
        found = both_classes(score, transform, probability)
    else:
        found = post_transform(sums, transform)
    return _above(score, 0.5 if probability else 0.0), k.cast(found, DType.FLOAT)


def _above(score: Tensor, limit: float) -> Tensor:
    return k.cast(k.reshape(score, (score.shape[0],)) > limit, DType.INT64)


def _matrix(X: np.ndarray) -> np.ndarray:
    """Data as [N, features]; integers are compared as float32."""
    x = np.atleast_2d(X)
    return x if x.dtype.kind == "f" and x.dtype.itemsize >= 4 else x.astype(np.float32)


def _outputs(meant: Ensemble, X: np.ndarray, dtype: DType) -> tuple[np.ndarray, ...]:
    forest, classes = meant.forest, meant.classes
    sums = forest.scores(_matrix(X), meant.aggregate)
    arrays = (sums,) if meant.base is None else (sums, meant.base)
    if classes is None:
        return evaluated(
            lambda s, base=None: regressed(
                s, base, aggregate=meant.aggregate, trees=len(forest.roots), transform=meant.transform, dtype=dtype
            ), *arrays,
        )  # fmt: skip
    index, scores = evaluated(
        lambda s, base=None: classified(s, base, transform=meant.transform, only=meant.only, probability=meant.probability),
        *arrays,
    )
    return classes.names()[index], scores


def _definition(meaning: Callable[..., Ensemble], typed: bool = False) -> Callable[..., Any]:
    """The host operator of a meaning: the same attributes, and the input X. `typed`: the output has X's type."""
    parameters = inspect.signature(meaning).parameters
    defaults = {name: None if p.default is p.empty else p.default for name, p in parameters.items()}
    made = prepared(lambda *values: meaning(**dict(zip(defaults, values, strict=True))))

    def definition(X: np.ndarray, **attributes: Any) -> Any:
        meant = made(*(attributes.get(name, default) for name, default in defaults.items()))
        return _outputs(meant, X, DType.of(X.dtype) if typed else DType.FLOAT)

    data = inspect.Parameter("X", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    vars(definition).update(__signature__=inspect.Signature([data, *parameters.values()]))
    definition.__doc__ = meaning.__doc__
    return definition


def _rows(X: TensorType) -> Dim | None:
    shape = checked_matrix(X).shape
    return None if shape is None else shape[0] if len(shape) == 2 else 1


def _check_targets(count: int) -> None:
    if not 1 <= count < 1 << 31:
        raise k.DefinitionError(f"n_targets is {count}; expected 1 to {(1 << 31) - 1}")


def _regressor_type(X: TensorType, *, n_targets: int = 1) -> TensorType:
    _check_targets(n_targets)
    rows = _rows(X)
    return TensorType(DType.FLOAT, None if rows is None else (rows, n_targets))


def _classifier_types(
    X: TensorType, *, classlabels_int64s: Ints | None = None, classlabels_strings: Sequence[str] | None = None
) -> tuple[TensorType, TensorType]:
    classes, rows = Classes.of(classlabels_int64s, classlabels_strings), _rows(X)
    if rows is None:
        return TensorType(classes.dtype), TensorType(DType.FLOAT)
    return TensorType(classes.dtype, (rows,)), TensorType(DType.FLOAT, (rows, len(classes)))


def _ensemble_type(X: TensorType, *, n_targets: int = 1) -> TensorType:
    _check_targets(n_targets)
    rows = _rows(X)
    return TensorType(X.dtype, None if rows is None else (rows, n_targets))


_VERSIONS = (1, 3, 5)
host_op("TreeEnsembleRegressor", _VERSIONS, domain=DOMAIN, infer=_regressor_type, reason=_REASON)(_definition(flat(regression)))
host_op("TreeEnsembleClassifier", _VERSIONS, domain=DOMAIN, infer=_classifier_types, reason=_REASON)(
    _definition(flat(classification))
)
host_op("TreeEnsemble", 5, domain=DOMAIN, infer=_ensemble_type, reason=_REASON)(_definition(flat(ensemble), typed=True))
