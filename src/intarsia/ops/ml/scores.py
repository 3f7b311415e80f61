"""From raw scores to a classifier's outputs: post transforms, class labels, and the second class of a binary model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.nn.softmax import softmax_over
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret

Tensor = k.Tensor

_NEARLY_ZERO = 1e-7  # SOFTMAX_ZERO: scores up to this size count as absent


@dataclass(frozen=True)
class Classes:
    """The labels of a classifier: integers or strings, in the order of the scores."""

    labels: tuple[int | str, ...]

    @classmethod
    def of(cls, ints: Sequence[int] | None, strings: Sequence[str] | None) -> Classes:
        if bool(ints) == bool(strings):
            given = "both are given" if ints else "neither is given"
            raise k.DefinitionError(f"class labels are either integers or strings, but {given}")
        return cls(tuple(ints or ()) or tuple(strings or ()))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def dtype(self) -> DType:
        return DType.STRING if isinstance(self.labels[0], str) else DType.INT64

    def table(self) -> Tensor:
        """The labels as a vector."""
        if self.dtype is DType.STRING:
            scalars = [Tensor("scalar", (), (label,), DType.STRING, ()) for label in self.labels]
            return k.concat([k.reshape(s, (1,)) for s in scalars], 0)
        return k.constant(np.array(self.labels, np.int64))

    def names(self) -> np.ndarray:
        """The labels by index; of one class, 1 or 0 tell whether it applies."""
        labels: tuple[int | str, ...] = self.labels
        if len(self) == 1:
            labels = ("0", "1") if self.dtype is DType.STRING else (0, 1)
        return np.array(labels, object if self.dtype is DType.STRING else np.int64)

    def picked(self, index: Tensor) -> Tensor:
        return k.take(self.table(), index, 0)

    def top(self, scores: Tensor) -> Tensor:
        """The label of the first highest score in each row of [N, E]."""
        return self.picked(k.arg_reduce(scores, "max", 1))

    def signed(self, positive: Tensor) -> Tensor:
        """The second label where the condition holds, else the first; of one label, 1 or 0 tell whether it applies."""
        index = k.cast(positive, DType.INT64)
        if len(self) == 2:
            return self.picked(index)
        return Classes(("0", "1")).picked(index) if self.dtype is DType.STRING else index


def checked_matrix(X: TensorType) -> TensorType:
    """The type of a host operator's data; it must have rank 2 (or 1: one row) where the rank is known."""
    if X.shape is not None and len(X.shape) not in (1, 2):
        raise k.DefinitionError(f"X has rank {len(X.shape)}; expected a matrix [N, features]")
    return X


def rows(X: Tensor) -> Tensor:
    """Data as [N, features]: a vector is one row."""
    if X.rank == 1:
        return k.reshape(X, (1, X.shape[0]))
    if X.rank != 2:
        raise k.DefinitionError(f"X has rank {X.rank}; expected a matrix [N, features]")
    return X


def real(X: Tensor) -> Tensor:
    """Data in the type it is computed in: double as it is, everything else as float32."""
    return X if X.dtype is DType.DOUBLE else k.cast(X, DType.FLOAT)


def post_transform(scores: Tensor, name: str) -> Tensor:
    """`scores` [N, E] after a classifier's or regressor's `post_transform`."""
    if name == "NONE":
        return scores
    if name == "LOGISTIC":
        return k.sigmoid(scores)
    if name == "SOFTMAX":
        return softmax_over(scores, [1])
    if name == "SOFTMAX_ZERO":
        return _softmax_zero(scores)
    if name == "PROBIT":
        return _probit(scores)
    raise k.DefinitionError(f"post_transform is {name!r}; expected NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT")


def _softmax_zero(scores: Tensor) -> Tensor:
    """Softmax in which scores near 0 stay there: they weigh s * exp(-max) instead of exp(s - max)."""
    highest = k.reduce_max(scores, [1], keepdims=True)
    present = k.absolute(scores) > _NEARLY_ZERO
    powers = k.select(present, k.exp(scores - highest), scores * k.exp(-highest))
    total = k.reduce_sum(powers, [1], keepdims=True)
    return k.select(k.equal(total, 0.0), 0.5, powers / total)


def _probit(p: Tensor) -> Tensor:
    """sqrt(2) * erfinv(2p - 1), by Winitzki's approximation of erfinv with a = 0.147."""
    x = p * 2.0 - 1.0
    log = k.log((1.0 - x) * (1.0 + x))
    v = log * 0.5 + 2.0 / (math.pi * 0.147)
    magnitude = k.sqrt(k.sqrt(v * v - log * (1.0 / 0.147)) - v)
    return k.select(x < 0.0, -magnitude, magnitude) * math.sqrt(2.0)


def both_classes(score: Tensor, transform: str, probability: bool) -> Tensor:
    """[N, 2] from the one score [N, 1] of a binary model.

    A `probability` p stands for [1 - p, p], any other score s for [-s, s]; transforms work on the latter.
    """
    if transform == "PROBIT" or (transform == "NONE" and probability):
        return post_transform(k.concat([1.0 - score, score], 1), transform)
    return post_transform(k.concat([-score, score], 1), transform)


def evaluated(definition: Callable[..., Tensor | tuple[Tensor, ...]], *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """A definition's results for arrays, computed with NumPy: host operators share the definitions above."""
    out = definition(*(k.input(i, DType.of(a.dtype), a.shape) for i, a in enumerate(arrays)))
    return tuple(interpret(out if isinstance(out, tuple) else (out,), arrays))
