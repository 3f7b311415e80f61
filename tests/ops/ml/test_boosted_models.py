"""XGBoost's and LightGBM's models as onnxmltools converts them, against their own predictions."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest

from intarsia import InferenceSession

onnxmltools = pytest.importorskip("onnxmltools", reason="converts the models to ONNX")

from onnxmltools.convert.common.data_types import DoubleTensorType, FloatTensorType  # noqa: E402

ROWS = 1000
TYPES = {"float32": FloatTensorType, "float64": DoubleTensorType}


@functools.cache
def data(holes: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points [1000, 6] of float32, NaN among them if `holes`; their classes; a smooth function of them."""
    rng = np.random.default_rng(0)
    label = np.arange(ROWS) % 3
    x = (rng.normal(size=(ROWS, 6)) + 1.5 * rng.normal(size=(3, 6))[label]).astype(np.float32)
    value = 2 * x[:, 0] - x[:, 1] + np.sin(x[:, 2])
    return np.where(rng.random(x.shape) < 0.2, np.float32(np.nan), x) if holes else x, label, value


def convert(model: Any, kind: str, dtype: str, features: int = 6) -> InferenceSession:
    made = getattr(onnxmltools, f"convert_{kind}")(
        model, initial_types=[("x", TYPES[dtype]([None, features]))], **({"zipmap": False} if kind == "lightgbm" else {})
    )
    return InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])


def check(ran: InferenceSession, model: Any, x: np.ndarray, dtype: str, tolerance: float = 2e-5) -> None:
    """Predictions for one row and for all."""
    for rows in (1, len(x)):
        part = x[:rows]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about names of columns
            value = model.predict(part)
            scores = model.predict_proba(part) if hasattr(model, "predict_proba") else None
        found = ran.run(None, {"x": part.astype(dtype)})
        if scores is None:
            np.testing.assert_allclose(found[0].reshape(-1), value, rtol=1e-4, atol=tolerance)
        else:
            np.testing.assert_allclose(found[1], scores, rtol=1e-3, atol=tolerance)
            assert found[0].tolist() == value.tolist()


@pytest.mark.parametrize("holes", [False, True], ids=["whole", "nan"])
@pytest.mark.parametrize("kind", ["two", "three", "value", "forest", "count"])
def test_xgboost(kind: str, holes: bool) -> None:
    xgboost = pytest.importorskip("xgboost", reason="trains the models")
    x, label, value = data(holes)
    size = {"n_estimators": 8, "max_depth": 4, "random_state": 0}
    model, target = {
        "two": (xgboost.XGBClassifier(**size), np.minimum(label, 1)),
        "three": (xgboost.XGBClassifier(**size), label),
        "value": (xgboost.XGBRegressor(**size, base_score=0.25), value),
        "forest": (xgboost.XGBRFRegressor(**size), value),
        "count": (xgboost.XGBRegressor(**size, objective="count:poisson"), np.exp(value / 5)),
    }[kind]
    model.fit(x, target)
    check(convert(model, "xgboost", "float32"), model, x, "float32", 2e-4 if kind == "count" else 2e-5)


@pytest.mark.parametrize("holes", [False, True], ids=["whole", "nan"])
@pytest.mark.parametrize(
    ("kind", "dtype"), [("two", "float32"), ("three", "float32"), ("value", "float32"), ("value", "float64")]
)  # onnxmltools converts LightGBM's classifiers for float data only
def test_lightgbm(kind: str, holes: bool, dtype: str) -> None:
    lightgbm = pytest.importorskip("lightgbm", reason="trains the models")
    x, label, value = data(holes)
    size = {"n_estimators": 8, "num_leaves": 12, "random_state": 0, "verbose": -1, "n_jobs": 1}
    model, target = {
        "two": (lightgbm.LGBMClassifier(**size), np.minimum(label, 1)),
        "three": (lightgbm.LGBMClassifier(**size), label * 10),
        "value": (lightgbm.LGBMRegressor(**size), value),
    }[kind]
    model.fit(x, target)
    check(convert(model, "lightgbm", dtype), model, x, dtype)


@pytest.mark.parametrize("kind", ["xgboost", "lightgbm"])
def test_forests_that_are_converted_otherwise(kind: str) -> None:
    """onnxmltools weighs the trees of these two in another way than their makers: what counts is what the graph says."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="is the reference")
    library = pytest.importorskip(kind, reason="trains the models")
    x, label, value = data()
    if kind == "xgboost":
        model = library.XGBRFClassifier(n_estimators=8, max_depth=4, random_state=0).fit(x, label)
    else:
        bagged = {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}
        model = library.LGBMRegressor(n_estimators=8, verbose=-1, random_state=0, n_jobs=1, **bagged).fit(x, value)
    made = getattr(onnxmltools, f"convert_{kind}")(model, initial_types=[("x", FloatTensorType([None, 6]))]).SerializeToString()
    theirs = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    ours = InferenceSession(made, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    for f, e in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-4, atol=2e-5)


def test_lightgbm_with_categories() -> None:
    """A split of categories becomes a chain of comparisons for equality."""
    lightgbm = pytest.importorskip("lightgbm", reason="trains the models")
    x, _, value = (a.copy() for a in data())
    x[:, 5] = np.random.default_rng(2).integers(0, 9, ROWS)
    value += np.isin(x[:, 5], (1, 4, 7)) * 3
    model = lightgbm.LGBMRegressor(n_estimators=10, num_leaves=8, verbose=-1, random_state=0, n_jobs=1, cat_smooth=1)
    model.fit(x, value, categorical_feature=[5])
    modes = [m for t in model.booster_.dump_model()["tree_info"] for m in _decisions(t["tree_structure"])]
    assert {"==", "<="} <= set(modes)
    check(convert(model, "lightgbm", "float32"), model, x, "float32")


def _decisions(node: dict[str, Any]) -> list[str]:
    if "decision_type" not in node:
        return []
    return [node["decision_type"], *_decisions(node["left_child"]), *_decisions(node["right_child"])]
