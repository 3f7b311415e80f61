"""Linear models and support vector machines: products with tables of coefficients, kernels, and votes of pairs of classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import host_op, op
from intarsia.ops.ml import DOMAIN
from intarsia.ops.ml.scores import Classes, both_classes, checked_matrix, evaluated, post_transform, real, rows
from intarsia.primitives import lang as k

Tensor = k.Tensor


def _linear(x: Tensor, coefficients: Sequence[float], intercepts: Sequence[float] | None, targets: int) -> Tensor:
    """x @ coefficients' + intercepts; the coefficients of each target lie together."""
    features = x.shape[1]
    if targets < 1 or len(coefficients) % targets or (isinstance(features, int) and len(coefficients) != targets * features):
        raise k.DefinitionError(f"{len(coefficients)} coefficients do not fit {targets} targets of {features} features")
    if intercepts and len(intercepts) != targets:
        raise k.DefinitionError(f"{len(intercepts)} intercepts are given for {targets} targets")
    dtype = x.dtype.numpy
    out = k.dot(x, k.constant(np.array(coefficients, dtype).reshape(targets, -1).T))
    return out + k.constant(np.array(intercepts, dtype)) if intercepts else out


@op("LinearRegressor", 1, domain=DOMAIN)
def linear_regressor(
    X: Tensor, *, coefficients: Sequence[float] | None = None, intercepts: Sequence[float] | None = None, targets: int = 1,
    post_transform: str = "NONE",
) -> Tensor:  # fmt: skip
    if not coefficients:
        raise k.DefinitionError("coefficients are missing")
    scores = _linear(real(rows(X)), coefficients, intercepts, targets)
    return k.cast(_transformed(scores, post_transform), DType.FLOAT)


_transformed = post_transform


def _targets(features: Dim, coefficients: Sequence[float], intercepts: Sequence[float] | None, classes: Classes) -> int:
    if isinstance(features, int) and features:
        return len(coefficients) // features
    return len(intercepts) if intercepts else len(classes)


@op("LinearClassifier", 1, domain=DOMAIN)
def linear_classifier(
    X: Tensor, *, coefficients: Sequence[float], intercepts: Sequence[float] | None = None,
    classlabels_ints: Sequence[int] | None = None, classlabels_strings: Sequence[str] | None = None, multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The label of the highest score, and the scores after the transform.

    One set of coefficients separates two classes: the second is chosen where its score is positive.
    """
    classes = Classes.of(classlabels_ints, classlabels_strings)
    data = real(rows(X))
    targets = _targets(data.shape[1], coefficients, intercepts, classes)
    if targets not in (1, len(classes)):
        raise k.DefinitionError(f"coefficients are given for {targets} classes, labels for {len(classes)}")
    scores = _linear(data, coefficients, intercepts, targets)
    if targets > 1:
        return classes.top(scores), k.cast(_transformed(scores, post_transform), DType.FLOAT)
    label = classes.signed(k.reshape(scores, (scores.shape[0],)) > 0.0)
    found = both_classes(scores, post_transform, True) if len(classes) == 2 else _transformed(scores, post_transform)
    return label, k.cast(found, DType.FLOAT)


# --- support vector machines ---------------------------------------------------------------------------------------


def support_kernel(x: Tensor, vectors: Tensor, kind: str, params: Sequence[float] | None) -> Tensor:
    """Kernel of every row of `x` [N, F] with every support vector [V, F]: [N, V]."""
    gamma, coef0, degree = (*(params or ()), 0.0, 0.0, 0.0)[:3]
    if kind == "RBF":  # |x - v|^2 = |x|^2 - 2 x.v + |v|^2
        cross = k.dot(x, k.transpose(vectors, (1, 0)))
        lengths = k.reduce_sum(x * x, [1], keepdims=True) + k.reduce_sum(vectors * vectors, [1])
        return k.exp((lengths - cross * 2.0) * -gamma)
    product = k.dot(x, k.transpose(vectors, (1, 0)))
    if kind == "LINEAR":
        return product
    if kind == "POLY":
        return k.power(product * gamma + coef0, k.scalar(float(int(degree)), product.dtype))
    if kind == "SIGMOID":
        return k.tanh(product * gamma + coef0)
    raise k.DefinitionError(f"kernel_type is {kind!r}; expected LINEAR, POLY, RBF or SIGMOID")


def _double(values: Sequence[float], shape: tuple[int, int], what: str) -> Tensor:
    """Coefficients or support vectors as a matrix of doubles: kernels subtract nearly equal sums."""
    count = abs(shape[0] * shape[1])
    if not values or len(values) % max(count, 1) or (min(shape) > 0 and len(values) != count):
        multiple = "" if min(shape) > 0 else "a multiple of "
        raise k.DefinitionError(f"{what} has {len(values)} values; expected {multiple}{count}")
    return k.constant(np.array(values, np.float64).reshape(shape))


@dataclass(frozen=True)
class SupportAttributes(ParameterGroup):
    """Vectors of a support vector machine, their weights and kernel, and what the scores go through."""

    coefficients: Sequence[float] | None = None
    kernel_params: Sequence[float] | None = None
    kernel_type: str = "LINEAR"
    post_transform: str = "NONE"
    rho: Sequence[float] | None = None
    support_vectors: Sequence[float] | None = None


@op("SVMRegressor", 1, domain=DOMAIN)
def svm_regressor(X: Tensor, *, machine: SupportAttributes, n_supports: int = 0, one_class: int = 0) -> Tensor:
    """Kernels with the support vectors, weighted, plus rho; `one_class` gives 1 (inside) or -1 (outside)."""
    x, coefficients = k.cast(rows(X), DType.DOUBLE), machine.coefficients or ()
    if n_supports > 0:
        vectors = _double(machine.support_vectors or (), (n_supports, -1), "support_vectors")
        kernels = support_kernel(x, vectors, machine.kernel_type, machine.kernel_params)
        weighed = k.dot(kernels, _double(coefficients, (n_supports, 1), "coefficients"))
    else:
        weighed = k.dot(x, _double(coefficients, (-1, 1), "coefficients"))
    scores = weighed + (machine.rho[0] if machine.rho else 0.0)
    if one_class:
        return k.select(scores > 0.0, k.scalar(1.0, DType.FLOAT), -1.0)
    return k.cast(_transformed(scores, machine.post_transform), DType.FLOAT)


@dataclass(frozen=True)
class SVMClassifierAttributes(SupportAttributes):
    """Those of a support vector machine, the classes, and what makes probabilities of the scores of pairs."""

    classlabels_ints: Sequence[int] | None = None
    classlabels_strings: Sequence[str] | None = None
    prob_a: Sequence[float] | None = None
    prob_b: Sequence[float] | None = None
    vectors_per_class: Sequence[int] | None = None

    @property
    def classes(self) -> Classes:
        return Classes.of(self.classlabels_ints, self.classlabels_strings)


def _check_lists(classes: int, machine: SVMClassifierAttributes) -> tuple[Sequence[float], Sequence[float]]:
    """The coefficients and rho. Raises DefinitionError where the lists of a classifier do not fit together."""
    coefficients, rho, vectors_per_class = machine.coefficients, machine.rho, machine.vectors_per_class
    prob_a, prob_b = machine.prob_a, machine.prob_b
    if not coefficients or not rho:
        raise k.DefinitionError("coefficients and rho are needed")
    if not vectors_per_class:
        return coefficients, rho
    pairs, total = len(class_pairs(classes)), sum(vectors_per_class)
    if len(vectors_per_class) != classes:
        raise k.DefinitionError(f"vectors_per_class has {len(vectors_per_class)} entries for {classes} classes")
    if min(vectors_per_class) < 0 or not total:
        raise k.DefinitionError(f"vectors_per_class is {list(vectors_per_class)}; expected counts, not all of them 0")
    if len(coefficients) != (classes - 1) * total:
        given = f"coefficients has {len(coefficients)} values for {total} support vectors of {classes} classes"
        raise k.DefinitionError(f"{given}; expected {(classes - 1) * total}")
    if len(rho) != pairs:
        raise k.DefinitionError(f"rho has {len(rho)} entries for {pairs} pairs of classes")
    if prob_a and not len(prob_a) == len(prob_b or ()) == pairs:
        given = f"prob_a has {len(prob_a)} and prob_b {len(prob_b or ())} values"
        raise k.DefinitionError(f"{given}; expected one for each of {pairs} pairs of classes")
    return coefficients, rho


def _svm_types(X: TensorType, *, machine: SVMClassifierAttributes) -> tuple[TensorType, TensorType]:
    dtype, shape = machine.classes.dtype, checked_matrix(X).shape
    count = len(machine.classlabels_ints or machine.classlabels_strings or ())
    _check_lists(count, machine)
    width = count if machine.prob_a or not machine.vectors_per_class or count == 2 else count * (count - 1) // 2
    if shape is None:
        return TensorType(dtype), TensorType(DType.FLOAT)
    n = shape[0] if len(shape) == 2 else 1
    return TensorType(dtype, (n,)), TensorType(DType.FLOAT, (n, width))


@host_op(
    "SVMClassifier", 1, domain=DOMAIN, infer=_svm_types,
    reason="probabilities of pairs of classes are made to agree by iteration",
)  # fmt: skip
def svm_classifier(X: np.ndarray, *, machine: SVMClassifierAttributes) -> tuple[np.ndarray, ...]:
    """The winner of votes between all pairs of classes; its scores are probabilities (prob_a), or those of the pairs.

    Without support vectors the coefficients are a linear model: one set per class.
    """
    classes, transform = machine.classes, machine.post_transform
    coefficients, rho = _check_lists(len(classes), machine)
    x = np.atleast_2d(X).astype(np.float64)
    if not machine.vectors_per_class:
        return evaluated(lambda x: _linear_svm(x, classes, coefficients, rho[0], transform), x)
    counts = list(machine.vectors_per_class)
    weights = np.array(coefficients, np.float64).reshape(-1, sum(counts))
    pairs = pair_weights(weights, counts)
    vectors = _double(machine.support_vectors or (), (sum(counts), -1), "support_vectors")
    (kernels,) = evaluated(lambda x: support_kernel(x, vectors, machine.kernel_type, machine.kernel_params), x)
    raw = kernels @ pairs + np.array(rho)
    winners = np.argmax(_votes(raw, len(classes)), axis=1)
    if machine.prob_a:
        scores = pair_probabilities(raw, np.array(machine.prob_a), np.array(machine.prob_b), len(classes))
        found = evaluated(lambda s: _transformed(s, transform), scores)[0]
        return *evaluated(classes.picked, winners), found.astype(np.float32)
    return *evaluated(classes.picked, winners), _pair_scores(raw, transform, len(classes))


def _linear_svm(
    x: Tensor, classes: Classes, coefficients: Sequence[float], rho: float, transform: str
) -> tuple[Tensor, Tensor]:
    scores = support_kernel(x, _double(coefficients, (len(classes), -1), "coefficients"), "LINEAR", None) + rho
    return classes.top(scores), k.cast(_transformed(scores, transform), DType.FLOAT)


def class_pairs(count: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(count) for j in range(i + 1, count)]


def pair_weights(weights: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """[vectors, pairs] from libsvm's table [classes - 1, vectors].

    A vector of class i weighs in the pair (i, j) by row j - 1, one of class j by row i.
    """
    starts = np.cumsum([0, *counts])
    table = np.zeros((int(starts[-1]), len(class_pairs(len(counts)))))
    for pair, (i, j) in enumerate(class_pairs(len(counts))):
        for own, row in ((i, j - 1), (j, i)):
            block = slice(starts[own], starts[own + 1])
            table[block, pair] = weights[row, block]
    return table


def _votes(raw: np.ndarray, count: int) -> np.ndarray:
    """How many pairs each class wins; a positive score is for the pair's first class."""
    votes = np.zeros((len(raw), count), np.int64)
    for pair, (i, j) in enumerate(class_pairs(count)):
        first = raw[:, pair] > 0
        votes[:, i] += first
        votes[:, j] += ~first
    return votes


def _pair_scores(raw: np.ndarray, transform: str, count: int) -> np.ndarray:
    """Scores of the pairs; the single pair of two classes gives one score for each."""
    if count == 2:
        return evaluated(lambda s: both_classes(s, transform, False), raw)[0].astype(np.float32)
    return evaluated(lambda s: _transformed(s, transform), raw)[0].astype(np.float32)


def pair_probabilities(raw: np.ndarray, a: np.ndarray, b: np.ndarray, count: int) -> np.ndarray:
    """Class probabilities [N, count] from those of pairs: Wu, Lin and Weng (2004), algorithm 2, as in libsvm."""
    pairwise = np.zeros((len(raw), count, count))
    for pair, (i, j) in enumerate(class_pairs(count)):
        with np.errstate(over="ignore"):
            p = np.clip(1.0 / (1.0 + np.exp(raw[:, pair] * a[pair] + b[pair])), 1e-7, 1 - 1e-7)
        pairwise[:, i, j], pairwise[:, j, i] = p, 1 - p
    q = -pairwise.transpose(0, 2, 1) * pairwise
    diagonal = np.arange(count)
    q[:, diagonal, diagonal] = (pairwise**2).sum(axis=1)
    p = np.full((len(raw), count), 1.0 / count)
    active = np.arange(len(raw))
    for _ in range(max(100, count)):
        qp = np.einsum("nij,nj->ni", q[active], p[active])
        pqp = (p[active] * qp).sum(axis=1)
        moving = np.abs(qp - pqp[:, None]).max(axis=1) >= 0.005 / count
        active, qp, pqp = active[moving], qp[moving], pqp[moving]
        if not len(active):
            break
        p[active] = _sweep(q[active], p[active], qp, pqp)
    return p


def _sweep(q: np.ndarray, p: np.ndarray, qp: np.ndarray, pqp: np.ndarray) -> np.ndarray:
    """One pass over the classes: each probability is moved to its minimum, then all are scaled to add up to 1."""
    for t in range(p.shape[1]):
        step = (pqp - qp[:, t]) / q[:, t, t]
        p[:, t] += step
        pqp = (pqp + step * (step * q[:, t, t] + 2 * qp[:, t])) / (1 + step) ** 2
        qp = (qp + step[:, None] * q[:, t]) / (1 + step)[:, None]
        p /= (1 + step)[:, None]
    return p
