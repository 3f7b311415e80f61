"""Classical models (ai.onnx.ml) over drawn features, classes and trees, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from drawn_nodes import Drawn, array, check, drawn, seeds, shapes, structures
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = (np.float32, np.float64, np.int32, np.int64)
ROWS = st.sampled_from([0, 1, 2, 7, 33])


def classical(op: str, inputs: list[Any], attributes: dict[str, Any], outputs: int = 1, version: int = 3) -> Drawn:
    return Drawn(op, inputs, attributes, outputs=outputs, domain="ai.onnx.ml", opset=version)


def as_stored(values: Any) -> np.ndarray:
    """Attributes are float32."""
    return np.asarray(values, np.float32).astype(np.float64)


def floats(rng: np.random.Generator, *shape: int) -> list[float]:
    return [float(v) for v in rng.uniform(-1, 1, shape).astype(np.float32).reshape(-1)]


@drawn
@given(st.sampled_from(["Scaler", "Normalizer", "Binarizer", "Imputer"]), structures, st.sampled_from(NUMBERS), ROWS, seeds)
def test_prepared_features(op: str, structure: int, dtype: Any, rows: int, seed: int) -> None:
    rng = np.random.default_rng(structure)
    width = int(rng.integers(1, 6))
    x = array(seed, (rows, width), dtype)
    v = x.astype(np.float64)
    if op == "Scaler":
        count = width if rng.integers(2) else 1
        offset, scale = floats(rng, count), floats(rng, count)
        expected = ((v - as_stored(offset)) * as_stored(scale)).astype(np.float32)
        check(classical(op, [x], {"offset": offset, "scale": scale}), expected, 8, scale=4)
    elif op == "Normalizer":
        norm = str(rng.choice(["MAX", "L1", "L2"]))
        divisor = {"MAX": v.max(1), "L1": np.abs(v).sum(1), "L2": np.sqrt((v * v).sum(1))}[norm][:, None] if rows else v[:, :1]
        expected = (v / np.where(divisor == 0, 1, divisor)).astype(np.float32)
        check(classical(op, [x], {"norm": norm}), expected, 8)
    elif op == "Binarizer":
        threshold = floats(rng, 1)[0]
        check(classical(op, [x], {"threshold": threshold}), (v > as_stored(threshold)).astype(dtype))
    else:
        integer = np.dtype(dtype).kind == "i"
        x = np.where(np.random.default_rng(seed).random(x.shape) < 0.3, x.dtype.type(1), x)
        values = [int(n) for n in rng.integers(-5, 5, width)]
        suffix, kind = ("int64s", int) if integer else ("floats", float)
        attributes = {f"imputed_value_{suffix}": [kind(n) for n in values], f"replaced_value_{suffix[:-1]}": kind(1)}
        check(classical(op, [x], attributes), np.where(x == 1, np.array(values, dtype), x))


def transformed(scores: np.ndarray, how: str) -> np.ndarray:
    if how == "LOGISTIC":
        return 1 / (1 + np.exp(-scores))
    if how in ("SOFTMAX", "SOFTMAX_ZERO"):
        powers = np.exp(scores - scores.max(1, keepdims=True, initial=-np.inf if scores.size else 0))
        powers = np.where(scores == 0, 0, powers) if how == "SOFTMAX_ZERO" else powers
        return powers / powers.sum(1, keepdims=True)
    return scores


@drawn
@given(structures, st.sampled_from(NUMBERS), ROWS, seeds)
def test_linear_models(structure: int, dtype: Any, rows: int, seed: int) -> None:
    rng = np.random.default_rng(structure)
    width, targets = int(rng.integers(1, 20)), int(rng.integers(1, 5))
    classes = bool(rng.integers(2))
    targets = max(targets, 3) if classes else targets
    how = str(rng.choice(["NONE", "SOFTMAX", "LOGISTIC"] if classes else ["NONE", "SOFTMAX"]))
    coefficients, intercepts = floats(rng, targets, width), floats(rng, targets)
    x = array(seed, (rows, width), dtype)
    scores = x.astype(np.float64) @ as_stored(coefficients).reshape(targets, width).T + as_stored(intercepts)
    attributes = {"coefficients": coefficients, "intercepts": intercepts, "post_transform": how}
    if not classes:
        node = classical("LinearRegressor", [x], attributes | {"targets": targets})
        check(node, transformed(scores, how).astype(np.float32), 200, scale=4)
        return
    top = np.sort(scores, 1)
    if rows and (top[:, -1] - top[:, -2] < 1e-3).any():
        return  # two classes within rounding
    words = bool(rng.integers(2))
    names = [f"c{i}" for i in range(targets)] if words else [7 * i for i in range(targets)]
    node = classical("LinearClassifier", [x], attributes | {"classlabels_strings" if words else "classlabels_ints": names}, 2)
    labels = (
        np.array(names, object if words else np.int64)[scores.argmax(1)]
        if rows
        else np.array([], object if words else np.int64)
    )
    check(node, [labels, transformed(scores, how).astype(np.float32)], 200, scale=4)


@drawn
@given(structures, st.sampled_from((np.float32, np.float64)), ROWS, seeds)
def test_support_vectors(structure: int, dtype: Any, rows: int, seed: int) -> None:
    rng = np.random.default_rng(structure)
    width, count = int(rng.integers(1, 6)), int(rng.choice([1, 3, 9, 40]))
    kind = str(rng.choice(["LINEAR", "POLY", "RBF", "SIGMOID"]))
    vectors, weights, rho = floats(rng, count, width), floats(rng, count), floats(rng, 1)
    params = [0.5, 0.25, 3.0]
    x = array(seed, (rows, width), dtype, low=-1, high=1)
    v, s = x.astype(np.float64), as_stored(vectors).reshape(count, width)
    product = v @ s.T
    kernel = {
        "LINEAR": product,
        "POLY": (0.5 * product + 0.25) ** 3,
        "RBF": np.exp(-0.5 * ((v[:, None] - s) ** 2).sum(-1)),
        "SIGMOID": np.tanh(0.5 * product + 0.25),
    }[kind]
    expected = (kernel @ as_stored(weights) + as_stored(rho)).astype(np.float32)[:, None]
    attributes = {
        "kernel_type": kind, "kernel_params": params, "support_vectors": vectors, "coefficients": weights, "rho": rho,
        "n_supports": count,
    }  # fmt: skip
    check(classical("SVMRegressor", [x], attributes), expected, 400, scale=4)


MODES = {
    "BRANCH_LEQ": np.less_equal, "BRANCH_LT": np.less, "BRANCH_GTE": np.greater_equal, "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal, "BRANCH_NEQ": np.not_equal,
}  # fmt: skip


class Forest:
    """Drawn trees, as attributes and as a function."""

    def __init__(self, rng: np.random.Generator, trees: int, depth: int, width: int, targets: int, modes: list[str]) -> None:
        self.rng, self.width, self.targets, self.modes = rng, width, targets, modes
        self.nodes: list[tuple[Any, ...]] = []  # tree, node, feature, mode, value, true, false, missing goes to true
        self.votes: dict[tuple[int, int], list[tuple[int, float]]] = {}
        for tree in range(trees):
            self.count = 0
            self.grow(tree, depth)
        self.nodes.sort(key=lambda n: (n[0], n[1]))

    def grow(self, tree: int, depth: int) -> int:
        place, self.count = self.count, self.count + 1
        if depth == 0 or self.rng.random() < 0.2:
            self.nodes.append((tree, place, 0, "LEAF", 0.0, 0, 0, 0))
            chosen = self.rng.permutation(self.targets)[: self.rng.integers(1, self.targets + 1)]
            self.votes[tree, place] = [(int(t), float(np.float32(self.rng.integers(-8, 9) / 8))) for t in chosen]
            return place
        split = (int(self.rng.integers(self.width)), str(self.rng.choice(self.modes)), float(self.rng.integers(-4, 5) / 2))
        left, right = self.grow(tree, depth - 1), self.grow(tree, depth - 1)
        self.nodes.append((tree, place, *split, left, right, int(self.rng.integers(2))))
        return place

    def attributes(self, prefix: str) -> dict[str, Any]:
        names = (
            "treeids",
            "nodeids",
            "featureids",
            "modes",
            "values",
            "truenodeids",
            "falsenodeids",
            "missing_value_tracks_true",
        )
        found: dict[str, Any] = {f"nodes_{n}": list(c) for n, c in zip(names, zip(*self.nodes, strict=True), strict=True)}
        rows = [(tree, place, t, w) for (tree, place), votes in self.votes.items() for t, w in votes]
        for name, column in zip(("treeids", "nodeids", "ids", "weights"), zip(*rows, strict=True), strict=True):
            found[f"{prefix}_{name}"] = list(column)
        return found

    def leaves(self, row: np.ndarray) -> list[list[tuple[int, float]]]:
        at = {(n[0], n[1]): n for n in self.nodes}
        found = []
        for tree in sorted({n[0] for n in self.nodes}):
            node = at[tree, 0]
            while node[3] != "LEAF":
                x = row[node[2]]
                goes = bool(MODES[node[3]](x, node[4])) or (np.isnan(x) and node[7])  # NaN is unequal to every number
                node = at[tree, node[5] if goes else node[6]]
            found.append(self.votes[tree, node[1]])
        return found


@drawn
@given(structures, st.sampled_from(NUMBERS), ROWS, st.booleans(), seeds)
def test_trees(structure: int, dtype: Any, rows: int, holes: bool, seed: int) -> None:
    rng = np.random.default_rng(structure)
    width, targets = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    modes = list(MODES) if rng.integers(2) else ["BRANCH_LEQ"]
    forest = Forest(rng, int(rng.choice([1, 2, 9])), int(rng.integers(0, 5)), width, targets, modes)
    x = (
        np.round(array(seed, (rows, width), dtype) * 2) / 2
        if np.dtype(dtype).kind == "f"
        else array(seed, (rows, width), dtype)
    )
    x = x.astype(dtype)
    if holes and np.dtype(dtype).kind == "f":
        x = np.where(np.random.default_rng(seed).random(x.shape) < 0.3, x.dtype.type(np.nan), x)
    how = str(rng.choice(["SUM", "AVERAGE", "MIN", "MAX"]))
    base = floats(rng, targets) if rng.integers(2) else []
    found = np.zeros((rows, targets))
    for r in range(rows):
        leaves = forest.leaves(x[r].astype(np.float64))
        for t in range(targets):
            given_votes = [w for leaf in leaves for target, w in leaf if target == t]
            total = {"MIN": min, "MAX": max}.get(how, sum)(given_votes or [0.0])
            found[r, t] = (total / len(leaves) if how == "AVERAGE" else total) + (as_stored(base)[t] if base else 0)
    attributes = forest.attributes("target") | {"n_targets": targets, "aggregate_function": how}
    attributes |= {"base_values": base} if base else {}
    check(classical("TreeEnsembleRegressor", [x], attributes), found.astype(np.float32), 20, scale=2)


@drawn
@given(structures, st.sampled_from(NUMBERS), ROWS, seeds)
def test_tree_classifiers(structure: int, dtype: Any, rows: int, seed: int) -> None:
    rng = np.random.default_rng(structure)
    width, classes = int(rng.integers(1, 5)), int(rng.integers(3, 6))
    forest = Forest(rng, int(rng.choice([1, 3, 20])), int(rng.integers(1, 5)), width, classes, ["BRANCH_LEQ"])
    x = array(seed, (rows, width), dtype)
    scores = np.zeros((rows, classes))
    for r in range(rows):
        for leaf in forest.leaves(x[r].astype(np.float64)):
            for c, w in leaf:
                scores[r, c] += w
    how = str(rng.choice(["NONE", "SOFTMAX", "LOGISTIC"]))
    words = bool(rng.integers(2))
    names = [f"c{i}" for i in range(classes)] if words else [3 * i + 1 for i in range(classes)]
    attributes = forest.attributes("class") | {"post_transform": how}
    attributes["classlabels_strings" if words else "classlabels_int64s"] = names
    kind = object if words else np.int64
    labels = np.array(names, kind)[scores.argmax(1)] if rows else np.array([], kind)
    expected = [labels, transformed(scores, how).astype(np.float32)]
    check(classical("TreeEnsembleClassifier", [x], attributes, 2), expected, 40, scale=2)


@drawn
@given(st.sampled_from((np.int64, np.float32, object)), st.sampled_from((np.int64, np.float32, object)), shapes(0, 3), seeds)
def test_label_encoder(source: Any, target: Any, shape: tuple[int, ...], seed: int) -> None:
    names = {np.int64: "int64s", np.float32: "floats", object: "strings"}
    keys: list[Any] = [str(i) if source is object else source(i).item() for i in (0, 2, 3)]
    values: list[Any] = [f"v{i}" if target is object else target(i).item() for i in (5, 6, 7)]
    default = "none" if target is object else target(-9).item()
    x = np.round(array(seed, shape, source)) if source is not object else array(seed, shape, object)
    table = dict(zip(keys, values, strict=True))
    expected = np.array([table.get(v, default) for v in x.reshape(-1).tolist()], target).reshape(shape)
    attributes = {f"keys_{names[source]}": keys, f"values_{names[target]}": values, f"default_{names[target][:-1]}": default}
    check(classical("LabelEncoder", [x], attributes, version=2), expected)


@drawn
@given(
    st.sampled_from(["OneHotEncoder", "ArrayFeatureExtractor", "FeatureVectorizer"]),
    st.sampled_from(NUMBERS),
    ROWS,
    seeds,
    st.data(),
)
def test_arranged_features(op: str, dtype: Any, rows: int, seed: int, data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 5))
    x = array(seed, (rows, width), dtype)
    if op == "OneHotEncoder":
        kept = np.random.default_rng(seed).integers(0, 4, (rows, width)).astype(dtype)
        expected = (kept[..., None] == np.array([0, 1, 2])).astype(np.float32)
        check(classical(op, [kept], {"cats_int64s": [0, 1, 2], "zeros": 1}), expected)
    elif op == "ArrayFeatureExtractor":
        columns = np.random.default_rng(seed).integers(0, width, data.draw(st.integers(1, 4)))
        check(classical(op, [x, columns], {}), x[:, columns])
    else:
        other = array(seed + 1, (rows, data.draw(st.integers(1, 3))), dtype)
        node = classical(op, [x, other], {"inputdimensions": [width, other.shape[1]]})
        check(node, np.concatenate([x, other], 1).astype(np.float32))
