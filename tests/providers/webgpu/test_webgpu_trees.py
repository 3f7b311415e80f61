"""Tree ensembles whole on WebGPU, beside the CPU provider."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import intarsia
from intarsia.device.webgpu import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no WebGPU device: {missing()}")
RNG = np.random.default_rng(3)
DEPTH, FEATURES, TREES = 4, 6, 5


def forest(votes: str, scores: int, mode: str = "BRANCH_LEQ", missing_track: bool = False) -> dict[str, Any]:
    """Attributes of full trees whose leaves vote for one or two scores; `votes`: what their attributes' names begin with."""
    nodes: dict[str, list[Any]] = {n: [] for n in (
        "treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true",
    )}  # fmt: skip
    said: dict[str, list[Any]] = {n: [] for n in ("treeids", "nodeids", "ids", "weights")}
    inner = 2**DEPTH - 1
    for tree in range(TREES):
        for i in range(2 * inner + 1):
            leaf = i >= inner or (tree == 0 and i in (4, 9, 10))  # one tree has a leaf higher up
            row = (tree, i, 0 if leaf else int(RNG.integers(FEATURES)), "LEAF" if leaf else mode,
                   0.0 if leaf else float(np.float32(RNG.integers(-2, 3) / 2)), 0 if leaf else 2 * i + 1,
                   0 if leaf else 2 * i + 2, int(missing_track and i % 2))  # fmt: skip
            for name, value in zip(nodes, row, strict=True):
                nodes[name].append(value)
            for score in RNG.permutation(scores)[: 1 + i % 2] if leaf else ():
                vote = (tree, i, int(score), float(np.float32(RNG.standard_normal())))
                for name, value in zip(said, vote, strict=True):
                    said[name].append(value)
    return {f"nodes_{n}": v for n, v in nodes.items()} | {f"{votes}_{n}": v for n, v in said.items()}


def check(op: str, x: np.ndarray, outputs: int, **attributes: Any) -> None:
    from onnx import helper

    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, ["x"], names, domain="ai.onnx.ml", **attributes)
    value = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), list(x.shape))
    graph = helper.make_graph([node], "g", [value], [helper.make_empty_tensor_value_info(n) for n in names])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=9
    ).SerializeToString()
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    made = intarsia.InferenceSession(model, options, ["WebGpuExecutionProvider"], enable_fallback=False).run(None, {"x": x})
    wanted = intarsia.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    for a, b in zip(wanted, made, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(b.astype(np.float64), a.astype(np.float64), rtol=1e-5, atol=1e-5)


def data(rows: int = 40) -> np.ndarray:
    """Halves, so that some values equal their thresholds."""
    return (RNG.integers(-4, 5, (rows, FEATURES)) / 2).astype(np.float32)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regression(aggregate: str) -> None:
    check("TreeEnsembleRegressor", data(), 1, n_targets=3, aggregate_function=aggregate, base_values=[0.5, -1.0, 2.0],
          **forest("target", 3))  # fmt: skip


@pytest.mark.parametrize("mode", ["BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"])
def test_comparisons(mode: str) -> None:
    check("TreeEnsembleRegressor", data(), 1, n_targets=2, **forest("target", 2, mode))


def test_nan_leads_where_the_node_says() -> None:
    x = data()
    x[::3, ::2] = np.nan
    check("TreeEnsembleRegressor", x, 1, n_targets=2, **forest("target", 2, missing_track=True))


@pytest.mark.parametrize("mode", ["BRANCH_LT", "BRANCH_GTE", "BRANCH_EQ"])
def test_zeros_infinities_and_numbers_too_small(mode: str) -> None:
    x = RNG.choice(np.array([0.0, -0.0, np.inf, -np.inf, 1e-40, -1e-40, 0.5, np.nan], np.float32), (200, FEATURES))
    attributes = forest("target", 2, mode)
    attributes["nodes_values"] = RNG.choice([0.0, -0.0, float("inf"), 1e-40, 0.5], len(attributes["nodes_values"])).tolist()
    check("TreeEnsembleRegressor", x, 1, n_targets=2, **attributes)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_classification(transform: str) -> None:
    labels = [7, -3, 11]
    check("TreeEnsembleClassifier", data(), 2, classlabels_int64s=labels, post_transform=transform, **forest("class", 3))


def test_names_of_classes_stay_on_the_host() -> None:
    with pytest.raises(intarsia.NotImplemented, match="the path through a tree depends on data"):
        check("TreeEnsembleClassifier", data(), 2, classlabels_strings=["a", "b", "c"], **forest("class", 3))


def test_data_of_double_precision_and_integers() -> None:
    for dtype in (np.float64, np.int64):
        check("TreeEnsembleRegressor", data().astype(dtype), 1, n_targets=2, **forest("target", 2))


def test_too_many_votes_stay_on_the_host() -> None:
    with pytest.raises(intarsia.NotImplemented, match="a device takes at most 4194304 votes"):
        check("TreeEnsembleRegressor", data(), 1, n_targets=1 << 20, **forest("target", 2))


def test_circles_are_refused() -> None:
    attributes = forest("target", 2)
    attributes["nodes_truenodeids"][3] = 1
    with pytest.raises(intarsia.IntarsiaError, match="the nodes of a tree lead round in a circle"):
        check("TreeEnsembleRegressor", data(), 1, n_targets=2, **attributes)
