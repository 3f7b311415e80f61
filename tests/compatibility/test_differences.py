"""The differences in results that docs/migration.md lists: Intarsia's side by ONNX's text, onnxruntime's while it is so."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

import intarsia

MIGRATION = Path(__file__).parents[2] / "docs" / "migration.md"
ORT_VERSION = (1, 32)  # whose behaviour is described

Shown = tuple[onnx.ModelProto, dict[str, Any], Any]
"""A model, its inputs, and its first output."""


def onnxruntimes(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any] | None:
    """What onnxruntime gives; None where it refuses the model or the run. Skips without the version that is described."""
    ort = pytest.importorskip("onnxruntime")
    if tuple(map(int, ort.__version__.split(".")[:2])) != ORT_VERSION:
        pytest.skip(f"docs/migration.md describes onnxruntime {ORT_VERSION}, not {ort.__version__}")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        return list(ort.InferenceSession(model.SerializeToString(), options).run(None, feeds))
    except Exception:  # noqa: BLE001 # its errors have no common class
        return None


def parsed(body: str, opset: int = 21, ir_version: int = 10) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["": {opset}, "ai.onnx.ml": 5]>\n{body}')


def ml_model(
    node: onnx.NodeProto, outputs: dict[str, int], input_type: int = TensorProto.FLOAT, version: int = 3
) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", input_type, None)],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


STUMP: dict[str, Any] = {  # x[0] <= 0: node 1, else node 2
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0], "nodes_values": [0.0, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
    "nodes_hitrates": [1.0] * 3, "nodes_missing_value_tracks_true": [0, 0, 0],
}  # fmt: skip
TWO_ROWS = np.float32([[-1], [1]])


def classes_in_every_leaf() -> Shown:
    """Two integer classes that are not 0 and 1, both positive in every leaf."""
    node = helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", **STUMP, classlabels_int64s=[7, 9],
        class_treeids=[0] * 4, class_nodeids=[1, 1, 2, 2], class_ids=[0, 1, 0, 1], class_weights=[0.8, 0.2, 0.3, 0.7],
    )  # fmt: skip
    return ml_model(node, {"label": TensorProto.INT64, "scores": TensorProto.FLOAT}), {"x": TWO_ROWS}, np.int64([7, 9])


def tree_ensemble_5() -> Shown:
    """ONNX numbers the post transforms NONE 0, SOFTMAX 1, LOGISTIC 2."""
    node = helper.make_node(
        "TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", n_targets=2, aggregate_function=1, post_transform=2, tree_roots=[0],
        nodes_featureids=[0], nodes_splits=helper.make_tensor("s", TensorProto.FLOAT, [1], [0.0]),
        nodes_modes=helper.make_tensor("m", TensorProto.UINT8, [1], [0]), nodes_truenodeids=[0], nodes_falsenodeids=[1],
        nodes_trueleafs=[1], nodes_falseleafs=[1], leaf_targetids=[0, 1],
        leaf_weights=helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0]),
    )  # fmt: skip
    logistic = 1 / (1 + np.exp(-np.float64([[1, 0], [0, 2]])))
    return ml_model(node, {"y": TensorProto.FLOAT}, version=5), {"x": TWO_ROWS}, logistic.astype(np.float32)


def linear_regressor() -> Shown:
    node = helper.make_node(
        "LinearRegressor", ["x"], ["y"], domain="ai.onnx.ml", coefficients=[2.0], intercepts=[0.5], post_transform="LOGISTIC"
    )  # fmt: skip
    logistic = 1 / (1 + np.exp(-(2.0 * TWO_ROWS.astype(np.float64) + 0.5)))
    return ml_model(node, {"y": TensorProto.FLOAT}), {"x": TWO_ROWS}, logistic.astype(np.float32)


def base_values() -> Shown:
    """Each leaf names one of two targets."""
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **STUMP, n_targets=2, base_values=[10.0, 20.0],
        target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 1], target_weights=[1.0, 2.0],
    )  # fmt: skip
    return ml_model(node, {"y": TensorProto.FLOAT}), {"x": TWO_ROWS}, np.float32([[11, 20], [10, 22]])


def cast_to_int4() -> Shown:
    model = parsed("g (float[n] x) => (int8[n] y) { a = Cast <to = 22> (x) y = Cast <to = 3> (a) }")
    return model, {"x": np.float32([1.7, -1.7, 2.5, 0.6])}, np.int8([1, -1, 2, 0])


def unique_with_nan() -> Shown:
    model = parsed("g (float[n] x) => (float[m] y) { y = Unique (x) }")
    nan = np.nan
    return model, {"x": np.float32([3, nan, 2, nan, 3, 0])}, np.float32([0, 2, 3, nan, nan])


def logsumexp() -> Shown:
    model = parsed("g (float[n] x) => (float y) { y = ReduceLogSumExp <keepdims = 0> (x) }", 28, 14)
    return model, {"x": np.float32([1000, 1000])}, np.float32(1000 + np.log(2))


def swish() -> Shown:
    x = np.float32([-2, 0, 3])
    model = parsed("g (float[n] x) => (float[n] y) { y = Swish (x) }", 25, 11)
    return model, {"x": x}, (x / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)


def norm_of_two_types() -> Shown:
    x, scale = np.float16([[1, 2, 3, 4]]), np.float32([1, 1, 2, 2])
    model = parsed("g (float16[n, 4] x, float[4] scale) => (float[n, 4] y) { y = RMSNormalization (x, scale) }", 23, 11)
    wide = x.astype(np.float64)
    wanted = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * scale
    return model, {"x": x, "scale": scale}, wanted.astype(np.float32)


def label_encoder() -> Shown:
    node = helper.make_node(
        "LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_floats=[np.nan, 1.0], values_int64s=[5, 6], default_int64=-1
    )  # fmt: skip
    return ml_model(node, {"y": TensorProto.INT64}, version=2), {"x": np.float32([np.nan, 1, 2])}, np.int64([5, 6, -1])


def cast_to_float8e8m0() -> Shown:
    model = parsed("g (float[n] x) => (float[n] y) { a = Cast <to = 24> (x) y = Cast <to = 1> (a) }", 24, 11)
    return model, {"x": np.float32([-4, 4, -0.5])}, np.float32([4, 4, 0.5])


def double_imputer() -> Shown:
    node = helper.make_node(
        "Imputer", ["x"], ["y"], domain="ai.onnx.ml", imputed_value_floats=[3.0], replaced_value_float=np.nan
    )  # fmt: skip
    x = np.float64([[np.nan], [1.5]])
    return ml_model(node, {"y": TensorProto.DOUBLE}, TensorProto.DOUBLE), {"x": x}, np.float64([[3.0], [1.5]])


def dilated_pool() -> Shown:
    x = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
    model = parsed(
        "g (float[1, 1, 6, 6] x) => (float[a, b, c, d] y) "
        '{ y = MaxPool <kernel_shape = [2, 2], dilations = [2, 2], auto_pad = "SAME_UPPER"> (x) }'
    )
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)  # (2 - 1) * 2 + 1 = 3: one on each side
    windows = [padded[:, :, i : i + 6, j : j + 6] for i in (0, 2) for j in (0, 2)]
    return model, {"x": x}, np.max(windows, 0)


def dilated_convolution() -> Shown:
    x = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
    model = parsed(
        "g (float[1, 1, 6, 6] x, float[1, 1, 2, 2] w) => (float[a, b, c, d] y) "
        '{ y = Conv <dilations = [2, 2], auto_pad = "SAME_UPPER"> (x, w) }'
    )
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return model, {"x": x, "w": np.ones((1, 1, 2, 2), np.float32)}, sum(
        padded[:, :, i : i + 6, j : j + 6] for i in (0, 2) for j in (0, 2)
    )  # fmt: skip


def attention_of_scale_0() -> Shown:
    """All scores are 0, so each result is the mean of the values."""
    model = parsed(
        "g (float[1, 1, 2, 4] q, float[1, 1, 3, 4] key, float[1, 1, 3, 4] value) => (float[1, 1, 2, 4] y) "
        "{ y = Attention <scale = 0.0> (q, key, value) }", 23, 11,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    q, key, value = (rng.random((1, 1, n, 4), np.float32) for n in (2, 3, 3))
    wanted = np.broadcast_to(value.astype(np.float64).mean(2, keepdims=True), (1, 1, 2, 4)).astype(np.float32)
    return model, {"q": q, "key": key, "value": value}, wanted


def normalized_text() -> Shown:
    model = parsed(
        'g (string[n] x) => (string[n] y) { y = StringNormalizer <case_change_action = "LOWER", locale = "aa_ER"> (x) }'
    )
    return model, {"x": np.array(["ABC", "Dé"], object)}, np.array(["abc", "dé"], object)


Case = Callable[[], Shown]
CASES: dict[str, Case] = {  # what docs/migration.md calls the difference -> a model that shows it
    "TreeEnsembleClassifier of CatBoost: two integer classes, weights for both in each leaf": classes_in_every_leaf,
    "`post_transform` of TreeEnsemble 5": tree_ensemble_5,
    "LOGISTIC or SOFTMAX of a regressor with one target": linear_regressor,
    "`base_values` of a TreeEnsembleRegressor, where no leaf names a target": base_values,
    "Cast of floats to int4, uint4, int2": cast_to_int4,
    "Cast of negative numbers to float8e8m0": cast_to_float8e8m0,
    "Unique with NaN": unique_with_nan,
    "ReduceLogSumExp of large numbers, opset 28": logsumexp,
    "Swish": swish,
    "RMSNormalization whose input and scale have different types": norm_of_two_types,
    "Attention with `scale` 0": attention_of_scale_0,
    "LabelEncoder of ai.onnx.ml 2 with a NaN key": label_encoder,
    "Imputer of double": double_imputer,
    "MaxPool and AveragePool with `auto_pad` SAME and dilations": dilated_pool,
    "Conv with `auto_pad` SAME and dilations": dilated_convolution,
    "StringNormalizer with a locale that the machine lacks": normalized_text,
}


def equal(found: Any, wanted: Any) -> bool:
    if np.shape(found) != np.shape(wanted):
        return False
    if np.asarray(wanted).dtype == object:
        return np.asarray(found).tolist() == np.asarray(wanted).tolist()
    return bool(np.allclose(found, wanted, rtol=2e-6, atol=1e-7, equal_nan=True))


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("case", CASES)
def test_the_result_is_by_onnxs_text(case: str, provider: str) -> None:
    model, feeds, wanted = CASES[case]()
    (found, *_) = intarsia.InferenceSession(model, providers=[provider]).run(None, feeds)
    assert equal(found, wanted), found


@pytest.mark.parametrize("case", CASES)
def test_onnxruntime_still_gives_something_else(case: str) -> None:
    """Where it does not any more, the row of docs/migration.md goes."""
    model, feeds, wanted = CASES[case]()
    found = onnxruntimes(model, feeds)
    assert found is None or not equal(found[0], wanted)


def test_the_document_lists_these_differences() -> None:
    section = MIGRATION.read_text(encoding="utf-8").partition("## Results that differ\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| (?!model |---)(.+?) \|", section, re.MULTILINE) == list(CASES)
