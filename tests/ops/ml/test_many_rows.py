"""Tree ensembles and classic models for one row and for 100,000, in float32 and float64, against their own predictions."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from intarsia import InferenceSession

pytest.importorskip("sklearn", reason="trains the models")
pytest.importorskip("skl2onnx", reason="converts scikit-learn's models to ONNX")

from sklearn import ensemble, linear_model, neural_network, preprocessing, svm, tree
from sklearn.pipeline import make_pipeline
from sklearn_conversion import TYPES, convert, quiet, session

ROWS, FEATURES, TRAINED = 100_000, 6, 400
SMALL = {"n_estimators": 6, "max_depth": 4, "random_state": 0}


@functools.cache
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points that float32 holds exactly, as doubles; three classes of them; a smooth function of them."""
    rng = np.random.default_rng(0)
    label = np.arange(ROWS) % 3
    x = (rng.normal(size=(ROWS, FEATURES)) + 1.5 * rng.normal(size=(3, FEATURES))[label]).astype(np.float32).astype(np.float64)
    return x, label, 2 * x[:, 0] - x[:, 1] + np.sin(x[:, 2])


def check(ran: InferenceSession, model: Any, dtype: str, tolerance: float) -> None:
    x = rows()[0]
    with quiet():
        value = model.predict(x)
        scores = model.predict_proba(x) if hasattr(model, "predict_proba") else None
    for count in (1, ROWS):
        found = ran.run(None, {"x": x[:count].astype(dtype)})
        if scores is None:
            np.testing.assert_allclose(found[0].reshape(-1), value[:count], rtol=1e-4, atol=tolerance)
            continue
        np.testing.assert_allclose(found[1], scores[:count], rtol=1e-3, atol=tolerance)
        first, second = np.sort(scores[:count], axis=1)[:, :-3:-1].T
        clear = first - second > 4 * tolerance  # where rounding does not decide
        assert clear.mean() > 0.9
        np.testing.assert_array_equal(np.asarray(found[0])[clear], value[:count][clear])


SKLEARN: dict[str, Any] = {
    "tree": lambda: tree.DecisionTreeClassifier(max_depth=6, random_state=0),
    "forest": lambda: ensemble.RandomForestClassifier(**SMALL),
    "forest of values": lambda: ensemble.RandomForestRegressor(**SMALL),
    "extra trees": lambda: ensemble.ExtraTreesRegressor(**SMALL),
    "boosting": lambda: ensemble.GradientBoostingClassifier(**SMALL),
    "boosting of values": lambda: ensemble.GradientBoostingRegressor(**SMALL),
    "histogram boosting": lambda: ensemble.HistGradientBoostingRegressor(max_iter=6, random_state=0),
    "logistic": lambda: make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
    "linear": linear_model.LinearRegression,
    "network": lambda: neural_network.MLPRegressor(hidden_layer_sizes=(8,), max_iter=60, random_state=0),
    "support vectors": lambda: svm.LinearSVR(random_state=0),
    "support vectors of a kernel": lambda: svm.SVR(C=0.02, epsilon=1.0),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SKLEARN)
def test_sklearn(name: str, dtype: str) -> None:
    x, label, value = rows()
    model = SKLEARN[name]()
    classifies = hasattr(model, "predict_proba")
    with quiet():
        model.fit(x[:TRAINED], (label if classifies else value)[:TRAINED])
    made = convert(model, [("x", TYPES[dtype]([None, FEATURES]))], zipmap=False if classifies else None)
    check(session(made), model, dtype, 1e-4 if dtype == "float32" else 2e-5)


@pytest.mark.parametrize(
    ("library", "name", "dtype"),
    [
        ("xgboost", "XGBClassifier", "float32"), ("xgboost", "XGBRegressor", "float32"), ("xgboost", "XGBRegressor", "float64"),
        ("lightgbm", "LGBMClassifier", "float32"), ("lightgbm", "LGBMRegressor", "float32"),
        ("lightgbm", "LGBMRegressor", "float64"),
    ],
)  # fmt: skip
def test_boosted(library: str, name: str, dtype: str) -> None:
    """onnxmltools converts classifiers for float data only."""
    made_by = pytest.importorskip(library, reason="trains the models")
    onnxmltools = pytest.importorskip("onnxmltools", reason="converts the models to ONNX")
    from onnxmltools.convert.common.data_types import DoubleTensorType, FloatTensorType

    x, label, value = rows()
    model = getattr(made_by, name)(**SMALL, **({"verbose": -1, "n_jobs": 1} if library == "lightgbm" else {}))
    with quiet():
        model.fit(x[:TRAINED], (label if "Classifier" in name else value)[:TRAINED])
        kind = [("x", (FloatTensorType if dtype == "float32" else DoubleTensorType)([None, FEATURES]))]
        plain = {"zipmap": False} if library == "lightgbm" else {}
        converted = getattr(onnxmltools, f"convert_{library}")(model, initial_types=kind, **plain)
    check(session(converted.SerializeToString()), model, dtype, 1e-4)
