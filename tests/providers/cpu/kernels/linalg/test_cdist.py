"""CDist in a model: sizes that a run gives, metrics that have no kernel, features that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import intarsia


def session(metric: str) -> intarsia.InferenceSession:
    graph = helper.make_graph(
        [helper.make_node("CDist", ["a", "b"], ["y"], domain="com.microsoft", metric=metric)], "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [f"{n}0", f"{n}1"]) for n in "ab"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return intarsia.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cityblock"])
def test_metrics(metric: str) -> None:
    rng, made = np.random.default_rng(0), session(metric)
    for m, n, features in ((3, 4, 5), (90, 70, 33), (0, 2, 3)):
        a, b = (rng.standard_normal((size, features)).astype(np.float32) for size in (m, n))
        apart = a[:, None].astype(np.float64) - b[None]
        wanted = np.abs(apart).sum(2) if metric == "cityblock" else (apart**2).sum(2)
        wanted = np.sqrt(wanted) if metric == "euclidean" else wanted
        np.testing.assert_allclose(made.run(None, {"a": a, "b": b})[0], wanted, rtol=1e-5)


def test_features_that_differ() -> None:
    a, b = np.ones((2, 3), np.float32), np.ones((2, 4), np.float32)
    with pytest.raises(intarsia.IntarsiaError, match="CDist"):
        session("euclidean").run(None, {"a": a, "b": b})
