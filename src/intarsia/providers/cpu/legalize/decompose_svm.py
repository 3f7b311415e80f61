"""Support vector machines decomposed: products with tables that are packed once, and small definitions behind them.

Nodes whose attributes do not fit together stay as they are: their own definitions say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.ops.framework.infer import Inference
from intarsia.ops.ml.linear import class_pairs, pair_weights
from intarsia.ops.ml.scores import Classes

_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
Make = Callable[..., Node]
Constants = Callable[[str, np.ndarray], str]


def machine(node: Node, inference: Inference, constant: Constants, native: Make) -> list[Node] | None:
    """The parts of an SVMRegressor or SVMClassifier with support vectors; None where it stays whole.

    `constant` adds a constant to the graph and returns its name, `native` makes a node of the domain of parts.
    """
    return _Machine(node, constant, native).parts(inference)


class _Machine:
    def __init__(self, node: Node, constant: Constants, native: Make) -> None:
        self.node, self.constant, self.native = node, constant, native
        self.given: dict[str, Any] = node.attributes
        self.first = next(n for n in node.outputs if n)

    def parts(self, inference: Inference) -> list[Node] | None:
        if self.given.get("kernel_type", "LINEAR") not in _KERNELS:
            return None
        return self._regressor(inference) if self.node.op_type == "SVMRegressor" else self._classifier(inference)

    def _regressor(self, inference: Inference) -> list[Node] | None:
        count, weights = int(self.given.get("n_supports", 0)), self.given.get("coefficients") or ()
        if count < 1 or len(weights) != count:
            return None
        made = self._scores(inference, count, np.array(weights, np.float64)[:, None], self.given.get("rho") or [0.0])
        if made is None:
            return None
        if self.given.get("one_class", 0):
            return [made, self.native("Sides", self.node, [made.outputs[0]], self.node.outputs[0])]
        transform = self.given.get("post_transform", "NONE")
        return [made, self._float(made.outputs[0], self.node.outputs[0], transform)]

    def _float(self, scores: str, out: str, transform: str) -> Node:
        kind = DType.FLOAT.onnx_name
        return self.native("TreeScores", self.node, [scores], out, aggregate="SUM", trees=1, transform=transform, dtype=kind)

    def _scores(self, inference: Inference, count: int, weights: np.ndarray, rho: Sequence[float]) -> Node | None:
        """The node that computes the scores of pairs (or the one score of a regressor)."""
        kind, vectors = inference.types.get(self.node.inputs[0]), self.given.get("support_vectors") or ()
        if not isinstance(kind, TensorType) or not kind.shape or len(kind.shape) > 2 or kind.dtype is DType.STRING:
            return None
        if not vectors or len(vectors) % count or len(rho) != weights.shape[1]:
            return None
        if isinstance(kind.shape[-1], int) and kind.shape[-1] != len(vectors) // count:
            return None
        tables = {
            "vectors": np.array(vectors, np.float64).reshape(count, -1), "weights": weights, "rho": np.array(rho, np.float64),
        }  # fmt: skip
        names = [self.constant(f"{self.first}%{name}", array) for name, array in tables.items()]
        return self.native(
            "SupportScores", self.node, [self.node.inputs[0], *names], f"{self.first}%raw",
            kernel=self.given.get("kernel_type", "LINEAR"), params=list(self.given.get("kernel_params") or ()),
        )  # fmt: skip

    def _classifier(self, inference: Inference) -> list[Node] | None:
        classes = Classes.of(self.given.get("classlabels_ints"), self.given.get("classlabels_strings"))
        counts, weights = list(self.given.get("vectors_per_class") or ()), self.given.get("coefficients") or ()
        total, pairs = sum(counts), class_pairs(len(classes))
        if classes.dtype is DType.STRING or len(classes) < 2 or len(counts) != len(classes) or min(counts) < 0 or not total:
            return None
        if len(weights) != (len(classes) - 1) * total:
            return None
        table = pair_weights(np.array(weights, np.float64).reshape(-1, total), counts)
        made = self._scores(inference, total, table, self.given.get("rho") or ())
        steepness, offset = self.given.get("prob_a") or (), self.given.get("prob_b") or ()
        if made is None or (steepness and not len(steepness) == len(offset) == len(pairs)):
            return None
        label, scores = (*self.node.outputs, "")[:2]
        parts = [made]
        if label:
            parts.append(self._label(made.outputs[0], label, classes, pairs))
        if scores:
            parts += self._pair_scores(made.outputs[0], scores, len(classes), steepness, offset)
        return parts

    def _label(self, raw: str, out: str, classes: Classes, pairs: Sequence[tuple[int, int]]) -> Node:
        wins = np.zeros((len(pairs), len(classes)), np.float32)
        for pair, (i, j) in enumerate(pairs):
            wins[pair, i], wins[pair, j] = 1, -1
        inputs = [
            raw,
            self.constant(f"{self.first}%wins", wins),
            self.constant(f"{self.first}%lost", (wins < 0).sum(0, np.float32)),
        ]
        names = classes.names()
        if not np.array_equal(names, np.arange(len(names))):
            inputs.append(self.constant(f"{self.first}%labels", names))
        return self.native("PairLabels", self.node, inputs, out)

    def _pair_scores(self, raw: str, out: str, classes: int, a: Sequence[float], b: Sequence[float]) -> list[Node]:
        transform = self.given.get("post_transform", "NONE")
        if not a:
            return [self.native("PairScores", self.node, [raw], out, transform=transform)]
        tables = [self.constant(f"{self.first}%{n}", np.array(v, np.float64)) for n, v in (("a", a), ("b", b))]
        shares = self.native("PairProbabilities", self.node, [raw, *tables], f"{self.first}%shares", classes=classes)
        return [shares, self._float(shares.outputs[0], out, transform)]
