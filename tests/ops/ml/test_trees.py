"""Tree ensembles against onnxruntime and against a walk through the same trees, row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ml_models import model_of, ours, same
from onnx import TensorProto, helper, numpy_helper

from intarsia.errors import IntarsiaError
from intarsia.graph.load import load

F, D, INT, S = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
both = pytest.mark.parametrize("provider", PROVIDERS)


def theirs(model: Any, feeds: dict[str, Any]) -> list[Any]:
    rt = pytest.importorskip("onnxruntime", reason="is the reference")
    rt.set_default_logger_severity(4)
    return rt.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)


def rows(count: int = 40, holes: bool = False) -> np.ndarray:
    """Values on a coarse grid, so that equality with a threshold occurs."""
    rng = np.random.default_rng(1)
    x = rng.integers(-3, 4, (count, 4)).astype(np.float32) / 2
    return np.where(rng.random(x.shape) < 0.2, np.float32(np.nan), x) if holes else x


def complete(trees: int, depth: int, modes: tuple[str, ...], seed: int = 0) -> dict[str, list[Any]]:
    """`nodes_*` of complete binary trees."""
    rng = np.random.default_rng(seed)
    size, inner = 2 ** (depth + 1) - 1, 2**depth - 1
    found: dict[str, list[Any]] = {
        "nodes_treeids": [], "nodes_nodeids": [], "nodes_featureids": [], "nodes_modes": [], "nodes_values": [],
        "nodes_truenodeids": [], "nodes_falsenodeids": [], "nodes_missing_value_tracks_true": [],
    }  # fmt: skip
    for t in range(trees):
        for i in range(size):
            leaf = i >= inner
            mode = "LEAF" if leaf else modes[int(rng.integers(len(modes)))]
            row = (t, i, 0 if leaf else int(rng.integers(4)), mode, 0.0 if leaf else float(rng.integers(-2, 3)) / 2,
                   0 if leaf else 2 * i + 1, 0 if leaf else 2 * i + 2, 0 if leaf else int(rng.integers(2)))  # fmt: skip
            for column, value in zip(found.values(), row, strict=True):
                column.append(value)
    return found


def votes(nodes: dict[str, list[Any]], targets: list[int], prefix: str, low: float = -1.0) -> dict[str, list[Any]]:
    """One vote of each leaf for each of `targets`."""
    leaves = [
        (t, i)
        for t, i, m in zip(nodes["nodes_treeids"], nodes["nodes_nodeids"], nodes["nodes_modes"], strict=True)
        if m == "LEAF"
    ]
    rng = np.random.default_rng(2)
    return {
        f"{prefix}_treeids": [t for t, _ in leaves for _ in targets],
        f"{prefix}_nodeids": [i for _, i in leaves for _ in targets],
        f"{prefix}_ids": targets * len(leaves),
        f"{prefix}_weights": rng.uniform(low, 1, len(leaves) * len(targets)).astype(np.float32).tolist(),
    }  # fmt: skip


@both
@pytest.mark.parametrize("modes", [*((m,) for m in MODES), MODES], ids=lambda m: m[0] if len(m) == 1 else "mixed")
@pytest.mark.parametrize("holes", [False, True], ids=["whole", "nan"])
def test_modes(holes: bool, modes: tuple[str, ...], provider: str) -> None:
    nodes = complete(3, 3, modes)
    x = rows(holes=holes)
    model = model_of("TreeEnsembleRegressor", {"X": x}, {"Y": F}, n_targets=1, **nodes, **votes(nodes, [0], "target"))
    same(ours(model, {"X": x}, provider), theirs(model, {"X": x}))


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_aggregates(transform: str, aggregate: str) -> None:
    nodes = complete(5, 2, ("BRANCH_LEQ",))
    x = rows()
    model = model_of("TreeEnsembleRegressor", {"X": x}, {"Y": F}, n_targets=3, aggregate_function=aggregate,
                     post_transform=transform, base_values=[0.5, -0.25, 0.1], **nodes,
                     **votes(nodes, [0, 1, 2], "target"))  # fmt: skip
    same(ours(model, {"X": x}), theirs(model, {"X": x}))


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
def test_data_types(dtype: type) -> None:
    nodes = complete(4, 3, ("BRANCH_LEQ", "BRANCH_GT"))
    x = (rows() * 2).astype(dtype)
    attributes = {"n_targets": 2, **nodes, **votes(nodes, [1], "target")}
    model = model_of("TreeEnsembleRegressor", {"X": x}, {"Y": F}, **attributes)
    real = x.astype(np.float32)  # onnxruntime has no kernel for integers
    same(ours(model, {"X": x}), theirs(model_of("TreeEnsembleRegressor", {"X": real}, {"Y": F}, **attributes), {"X": real}))


def test_thresholds_in_double_precision() -> None:
    """A threshold that float32 would round to the data's value still separates."""
    nodes: dict[str, Any] = complete(1, 1, ("BRANCH_LEQ",))
    del nodes["nodes_values"], nodes["nodes_missing_value_tracks_true"]
    nodes["nodes_featureids"] = [0, 0, 0]
    tensors = {"nodes_values_as_tensor": numpy_helper.from_array(np.array([1 - 1e-12, 0, 0])),
               "target_weights_as_tensor": numpy_helper.from_array(np.array([10.0, 20.0]))}  # fmt: skip
    x = np.array([[1.0], [1 - 2e-12]])
    model = model_of("TreeEnsembleRegressor", {"X": x}, {"Y": F}, n_targets=1, target_treeids=[0, 0], target_nodeids=[1, 2],
                     target_ids=[0, 0], **nodes, **tensors)  # fmt: skip
    same(ours(model, {"X": x}), [np.float32([[20], [10]])])


@both
@pytest.mark.parametrize("words", [False, True], ids=["ints", "strings"])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_classifier(transform: str, words: bool, provider: str) -> None:
    nodes = complete(4, 3, ("BRANCH_LEQ",))
    labels: dict[str, Any] = {"classlabels_strings": ["a", "b", "c"]} if words else {"classlabels_int64s": [7, 3, 5]}
    x = rows()
    model = model_of("TreeEnsembleClassifier", {"X": x}, {"Y": S if words else INT, "Z": F}, post_transform=transform,
                     base_values=[0.1, 0.2, 0.3], **nodes, **votes(nodes, [0, 1, 2], "class"), **labels)  # fmt: skip
    same(ours(model, {"X": x}, provider), theirs(model, {"X": x}))


@pytest.mark.parametrize("base", [[], [0.25]], ids=["", "base"])
@pytest.mark.parametrize(("low", "transform"), [(0.0, "NONE"), (-1.0, "NONE"), (0.0, "LOGISTIC"), (-1.0, "LOGISTIC")])
def test_two_classes_of_one_score(low: float, transform: str, base: list[float]) -> None:
    """Votes for one of two classes: s and 1 - s where no vote is negative, else s and -s."""
    nodes = complete(1, 3, ("BRANCH_LEQ",))
    x = rows()
    given = {"base_values": base} if base else {}
    model = model_of("TreeEnsembleClassifier", {"X": x}, {"Y": INT, "Z": F}, post_transform=transform,
                     classlabels_int64s=[4, 9], **nodes, **votes(nodes, [0], "class", low), **given)  # fmt: skip
    same(ours(model, {"X": x}), theirs(model, {"X": x}))


def test_votes_for_the_second_class_only() -> None:
    nodes = complete(1, 3, ("BRANCH_LEQ",))
    x = rows()
    model = model_of("TreeEnsembleClassifier", {"X": x}, {"Y": INT, "Z": F}, classlabels_int64s=[4, 9], **nodes,
                     **votes(nodes, [1], "class"))  # fmt: skip
    same(ours(model, {"X": x}), theirs(model, {"X": x}))


def test_both_classes_voted() -> None:
    """The highest score decides, whatever its sign."""
    nodes = complete(2, 2, ("BRANCH_LEQ",))
    x = rows()
    model = model_of("TreeEnsembleClassifier", {"X": x}, {"Y": INT, "Z": F}, classlabels_int64s=[4, 9], **nodes,
                     **votes(nodes, [0, 1], "class"))  # fmt: skip
    label, scores = ours(model, {"X": x})
    same([scores], theirs(model, {"X": x})[1:])
    assert label.tolist() == [[4, 9][i] for i in scores.argmax(1)]


def test_one_class() -> None:
    nodes = complete(2, 2, ("BRANCH_LEQ",))
    x = rows()
    model = model_of(
        "TreeEnsembleClassifier", {"X": x}, {"Y": INT, "Z": F}, classlabels_int64s=[1], **nodes, **votes(nodes, [0], "class")
    )
    same(ours(model, {"X": x}), theirs(model, {"X": x}))


def several_votes(nodes: dict[str, list[Any]], ids: list[int], prefix: str, interleaved: bool) -> dict[str, list[Any]]:
    """Votes of other weights for each of `ids`, a leaf's beside each other or apart."""
    leaves = [i for i, m in zip(nodes["nodes_nodeids"], nodes["nodes_modes"], strict=True) if m == "LEAF"]
    pairs = [(leaf, i) for i in ids for leaf in leaves] if interleaved else [(leaf, i) for leaf in leaves for i in ids]
    weights = [float(w) for w in np.random.default_rng(5).integers(-8, 9, len(pairs))]
    return {
        f"{prefix}_treeids": [0] * len(pairs), f"{prefix}_nodeids": [leaf for leaf, _ in pairs],
        f"{prefix}_ids": [i for _, i in pairs], f"{prefix}_weights": weights,
    }  # fmt: skip


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("ids", [[0, 0, 0], [0, 0, 1]])
@both
def test_several_votes_for_one_target(provider: str, ids: list[int], aggregate: str, interleaved: bool) -> None:
    """Of votes for the only target the first counts; of those for one of two all do. onnxruntime is the reference."""
    nodes, x = complete(1, 3, ("BRANCH_LEQ",)), rows()
    targets = len(set(ids))
    attributes = {**nodes, **several_votes(nodes, ids, "target", interleaved)}
    model = model_of("TreeEnsembleRegressor", {"X": x}, {"Y": F}, n_targets=targets, aggregate_function=aggregate, **attributes)
    (found,) = ours(model, {"X": x}, provider)
    same([found], theirs(model, {"X": x}))
    if targets == 1:
        first = dict(zip(reversed(attributes["target_nodeids"]), reversed(attributes["target_weights"]), strict=True))
        assert set(found.ravel()) <= set(first.values())


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("classes", [1, 3])
@both
def test_several_votes_for_one_class(provider: str, classes: int, interleaved: bool) -> None:
    nodes, x = complete(1, 3, ("BRANCH_LEQ",)), rows()
    ids = [0, 0, 0] if classes == 1 else [0, 0, 1, 2, 2]
    model = model_of(
        "TreeEnsembleClassifier", {"X": x}, {"Y": INT, "Z": F}, classlabels_int64s=list(range(classes)), **nodes,
        **several_votes(nodes, ids, "class", interleaved),
    )  # fmt: skip
    same(ours(model, {"X": x}, provider), theirs(model, {"X": x}))


def test_no_rows() -> None:
    nodes = complete(2, 2, ("BRANCH_LEQ",))
    model = model_of("TreeEnsembleRegressor", {"X": rows()}, {"Y": F}, n_targets=2, **nodes, **votes(nodes, [0], "target"))
    assert ours(model, {"X": rows(0)})[0].shape == (0, 2)


# --- TreeEnsemble 5 ------------------------------------------------------------------------------------------------


def splits(dtype: type, **changes: Any) -> dict[str, Any]:
    """Two trees: x0 in {1, -0.5} or (else) x1 <= 0.25; and x2 > 0 (NaN: true)."""

    def tensor(values: Any, kind: Any = dtype) -> Any:
        return numpy_helper.from_array(np.array(values, kind))

    found = {
        "tree_roots": [0, 2], "n_targets": 2, "nodes_featureids": [0, 1, 2], "nodes_modes": tensor([6, 0, 3], np.uint8),
        "nodes_splits": tensor([0, 0.25, 0]), "membership_values": tensor([1, -0.5, np.nan]), "nodes_truenodeids": [0, 1, 3],
        "nodes_trueleafs": [1, 1, 1], "nodes_falsenodeids": [1, 2, 4], "nodes_falseleafs": [0, 1, 1],
        "nodes_missing_value_tracks_true": [0, 0, 1], "leaf_targetids": [0, 1, 0, 1, 1],
        "leaf_weights": tensor([1, 2, 4, 8, 16]),
    }  # fmt: skip
    return found | changes


@both
@pytest.mark.parametrize(("changes", "message"), [
    ({"nodes_falsenodeids": [-1, 2, 4]}, "nodes_falsenodeids has -1; expected the number of one of 3 nodes"),
    ({"nodes_truenodeids": [0, 5, 3]}, "nodes_truenodeids has 5; expected the number of one of 5 leaves"),
    ({"n_targets": 2**62}, "n_targets is 4611686018427387904; expected 1 to 2147483647"),
])  # fmt: skip
def test_splits_that_lead_nowhere(changes: dict[str, Any], message: str, provider: str) -> None:
    model = model_of("TreeEnsemble", {"X": rows()}, {"Y": F}, version=5, **splits(np.float32, **changes))
    with pytest.raises(IntarsiaError, match=message):
        ours(model, {"X": rows()}, provider)


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("aggregate", range(4))
def test_tree_ensemble(aggregate: int, dtype: type, provider: str) -> None:
    x = rows(holes=True).astype(dtype)
    model = model_of("TreeEnsemble", {"X": x}, {"Y": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))}, version=5,
                     aggregate_function=aggregate, **splits(dtype))  # fmt: skip
    expected = np.zeros((len(x), 2), dtype)
    for row, out in zip(x, expected, strict=True):
        found: list[list[float]] = [[], []]
        target, weight = (0, 1) if row[0] in (1, -0.5) else (1, 2) if row[1] <= 0.25 else (0, 4)
        found[target].append(weight)
        found[1].append(8 if row[2] > 0 or np.isnan(row[2]) else 16)
        out[:] = [[lambda v: sum(v) / 2, sum, min, max][aggregate](v) if v else 0 for v in found]
    same(ours(model, {"X": x}, provider), [expected])


def softmax(scores: np.ndarray, zero: bool) -> np.ndarray:
    powers = np.where(zero & (scores == 0), 0, np.exp(scores))
    return powers / powers.sum(1, keepdims=True)


@pytest.mark.parametrize(("number", "transform"), [
    (1, lambda s: softmax(s, False)), (2, lambda s: 1 / (1 + np.exp(-s))), (3, lambda s: softmax(s, True)),
], ids=["SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])  # fmt: skip
def test_tree_ensemble_transforms(number: int, transform: Callable[[np.ndarray], np.ndarray]) -> None:
    x = rows()
    plain, model = (
        model_of("TreeEnsemble", {"X": x}, {"Y": F}, version=5, post_transform=t, **splits(np.float32)) for t in (0, number)
    )
    scores = ours(plain, {"X": x})[0].astype(np.float64)
    same(ours(model, {"X": x}), [transform(scores).astype(np.float32)])


# --- errors and loading --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "message"), [
    ({"nodes_modes": ["BRANCH_NEAR", "LEAF", "LEAF"]}, "nodes_modes has 'BRANCH_NEAR'; expected one of BRANCH_LEQ"),
    ({"nodes_featureids": [9, 0, 0]}, "X has 4 features, but a node compares feature 9"),
    ({"nodes_featureids": [0, 0]}, "attributes differ in length: nodes_treeids 3, .*nodes_featureids 2"),
    ({"nodes_truenodeids": [7, 0, 0]}, "a child id is out of range; expected 0 to 2"),
    ({"nodes_nodeids": [0, 1, 1]}, "two nodes of one tree have the same id"),
    ({"target_nodeids": [1, 9]}, "a vote is for node 9 of tree 0, which does not exist"),
    ({"target_ids": [0, 3]}, "a target id is out of range; expected 0 to 0"),
    ({"target_weights": None}, "the nodes' values or the leaves' weights are missing"),
    ({"aggregate_function": "MEAN"}, "aggregate_function is 'MEAN'; expected AVERAGE, SUM, MIN or MAX"),
    ({"base_values": [1.0, 2.0, 3.0]}, "base_values has 3 values; expected 1"),
])  # fmt: skip
def test_errors(changes: dict[str, Any], message: str) -> None:
    nodes = complete(1, 1, ("BRANCH_LEQ",))
    attributes = {name: v for name, v in {**nodes, **votes(nodes, [0], "target"), **changes}.items() if v is not None}
    model = model_of("TreeEnsembleRegressor", {"X": rows()}, {"Y": F}, n_targets=1, **attributes)
    with pytest.raises(IntarsiaError, match=message):
        ours(model, {"X": rows()})


def test_circle() -> None:
    nodes = complete(1, 2, ("BRANCH_LEQ",))
    nodes["nodes_truenodeids"][1] = nodes["nodes_falsenodeids"][1] = 1
    model = model_of("TreeEnsembleRegressor", {"X": rows()}, {"Y": F}, n_targets=1, **nodes, **votes(nodes, [0], "target"))
    with pytest.raises(IntarsiaError, match="lead round in a circle; expected a tree"):
        ours(model, {"X": rows()})


@pytest.mark.parametrize(("changes", "message"), [
    ({"aggregate_function": 4}, r"aggregate_function is 4; expected 0 to 3 \(AVERAGE, SUM, MIN, MAX\)"),
    ({"post_transform": 5}, "post_transform is 5; expected 0 to 4"),
    ({"nodes_modes": numpy_helper.from_array(np.uint8([6, 0, 7]))}, "nodes_modes has 7; expected 0 to 6"),
    ({"membership_values": numpy_helper.from_array(np.float32([1.0]))}, "membership_values has 0 sets; 1 nodes are"),
])  # fmt: skip
def test_tree_ensemble_errors(changes: dict[str, Any], message: str) -> None:
    model = model_of("TreeEnsemble", {"X": rows()}, {"Y": F}, version=5, **splits(np.float32, **changes))
    with pytest.raises(IntarsiaError, match=message):
        ours(model, {"X": rows()})


def test_rank_error() -> None:
    nodes = complete(1, 1, ("BRANCH_LEQ",))
    x = np.zeros((2, 2, 2), np.float32)
    model = model_of("TreeEnsembleRegressor", {"X": x}, {"Y": F}, n_targets=1, **nodes, **votes(nodes, [0], "target"))
    with pytest.raises(IntarsiaError, match=r"X has rank 3; expected a matrix \[N, features\]"):
        ours(model, {"X": x})


def test_long_lists_are_read_whole() -> None:
    """Lists of 64 KiB and more take another path through the loader."""
    nodes = complete(40, 9, ("BRANCH_LEQ",))
    weights = votes(nodes, [0], "target")
    model = model_of("TreeEnsembleRegressor", {"X": rows()}, {"Y": F}, n_targets=1, **nodes, **weights)
    (node,) = load(model.SerializeToString()).nodes
    for name, value in (nodes | weights).items():
        assert node.attributes[name] == pytest.approx(value) if name == "nodes_values" else node.attributes[name] == value
    same(ours(model, {"X": rows()}), theirs(model, {"X": rows()}), rtol=1e-4)
