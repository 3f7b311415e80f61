"""scikit-learn's models as skl2onnx converts them, against scikit-learn's own predictions."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest

from intarsia import InferenceSession

pytest.importorskip("sklearn", reason="trains the models")
skl2onnx = pytest.importorskip("skl2onnx", reason="converts scikit-learn's models to ONNX")

from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, StringTensorType  # noqa: E402
from sklearn import compose, ensemble, linear_model, neighbors, neural_network, pipeline, preprocessing, svm, tree  # noqa: E402

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
TYPES: dict[str, Any] = {"float32": FloatTensorType, "float64": DoubleTensorType}


@functools.cache
def data(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Points [120, 4] that float32 holds exactly, around one centre per class."""
    rng = np.random.default_rng(classes)
    label = np.arange(120) % classes
    points = rng.normal(size=(120, 4)) + 1.5 * rng.normal(size=(classes, 4))[label]
    return points.astype(np.float32).astype(np.float64), label


def session(model: Any, inputs: list[tuple[str, Any]], provider: str, **options: Any) -> InferenceSession:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        proto = skl2onnx.convert_sklearn(model, initial_types=inputs, **options)
    return InferenceSession(proto.SerializeToString(), providers=[provider])


CLASSIFIERS = {
    "logistic": (linear_model.LogisticRegression(max_iter=500), 3),
    "logistic-binary": (linear_model.LogisticRegression(), 2),
    "forest": (ensemble.RandomForestClassifier(8, random_state=0), 3),
    "forest-binary": (ensemble.RandomForestClassifier(8, random_state=0), 2),
    "boosting": (ensemble.GradientBoostingClassifier(n_estimators=6, random_state=0), 3),
    "boosting-binary": (ensemble.GradientBoostingClassifier(n_estimators=6, random_state=0), 2),
    "tree": (tree.DecisionTreeClassifier(random_state=0), 3),
    "svc": (svm.SVC(probability=True, random_state=0), 3),
    "svc-binary": (svm.SVC(probability=True, random_state=0), 2),
    "svc-poly": (svm.SVC(kernel="poly", probability=True, random_state=0), 3),
    "neighbours": (neighbors.KNeighborsClassifier(5), 3),
    "network": (neural_network.MLPClassifier((8,), max_iter=200, random_state=0), 3),
}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("words", "dtype"), [(False, "float32"), (True, "float64")], ids=["ints", "strings"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifier(name: str, words: bool, dtype: str, provider: str) -> None:
    estimator, count = CLASSIFIERS[name]
    x, label = data(count)
    target = np.array(["ash", "birch", "cedar"])[label] if words else label * 10
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = estimator.fit(x, target)
    ran = session(model, [("x", TYPES[dtype]([None, 4]))], provider, options={id(model): {"zipmap": False}})
    found, scores = ran.run(None, {"x": x.astype(dtype)})
    assert scores.dtype == np.float32 or dtype == "float64"
    np.testing.assert_allclose(scores, model.predict_proba(x), rtol=1e-3, atol=2e-5)
    assert found.tolist() == model.predict(x).tolist()


REGRESSORS = {
    "linear": linear_model.LinearRegression(),
    "forest": ensemble.RandomForestRegressor(8, random_state=0),
    "boosting": ensemble.GradientBoostingRegressor(n_estimators=8, random_state=0),
    "extra": ensemble.ExtraTreesRegressor(5, random_state=0),
    "svr": svm.SVR(),
    "svr-sigmoid": svm.SVR(kernel="sigmoid", gamma=0.05),
    "neighbours": neighbors.KNeighborsRegressor(4),
}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", REGRESSORS)
def test_regressor(name: str, dtype: str, provider: str) -> None:
    x, label = data(3)
    target = x @ [1.0, -2.0, 0.5, 0.0] + label
    model = REGRESSORS[name].fit(x, target)
    (found,) = session(model, [("x", TYPES[dtype]([None, 4]))], provider).run(None, {"x": x.astype(dtype)})
    np.testing.assert_allclose(found[:, 0], model.predict(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_outliers(provider: str) -> None:
    x, _ = data(3)
    model = svm.OneClassSVM(nu=0.2).fit(x)
    label, scores = session(model, [("x", FloatTensorType([None, 4]))], provider).run(None, {"x": x.astype(np.float32)})
    np.testing.assert_allclose(scores[:, 0], model.decision_function(x), rtol=1e-3, atol=1e-4)
    assert (label.reshape(-1) == model.predict(x)).all()


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "step",
    [preprocessing.StandardScaler(), preprocessing.MinMaxScaler(), preprocessing.Normalizer(), preprocessing.Binarizer()],
    ids=lambda s: type(s).__name__,
)  # fmt: skip
def test_preparation(step: Any, dtype: str, provider: str) -> None:
    x, _ = data(3)
    model = step.fit(x)
    (found,) = session(model, [("x", TYPES[dtype]([None, 4]))], provider).run(None, {"x": x.astype(dtype)})
    np.testing.assert_allclose(found, model.transform(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_pipeline_of_numbers_and_categories(provider: str) -> None:
    """Scaled numbers and one-hot encoded words side by side, a forest behind them, probabilities by label (ZipMap)."""
    x, label = data(3)
    words = np.array([["red"], ["green"], ["blue"], ["green"]] * 30, object)
    columns = np.concatenate([x.astype(object), words], 1)
    prepare = compose.ColumnTransformer([
        ("numbers", preprocessing.StandardScaler(), [0, 1, 2, 3]),
        ("words", preprocessing.OneHotEncoder(handle_unknown="ignore"), [4]),
    ])  # fmt: skip
    model = pipeline.Pipeline([("prepare", prepare), ("forest", ensemble.RandomForestClassifier(5, random_state=0))])
    model.fit(columns, np.array(["a", "b", "c"])[label])
    ran = session(model, [("x", FloatTensorType([None, 4])), ("word", StringTensorType([None, 1]))], provider)
    words[0] = "unseen"
    columns[0, 4] = "unseen"
    found, maps = ran.run(None, {"x": x.astype(np.float32), "word": words})
    assert found.tolist() == model.predict(columns).tolist()
    assert list(maps[0]) == ["a", "b", "c"]
    np.testing.assert_allclose([list(m.values()) for m in maps], model.predict_proba(columns), atol=1e-5)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", [tree.DecisionTreeClassifier, ensemble.RandomForestClassifier])
def test_leaves_and_paths(kind: Any, classes: int, provider: str) -> None:
    """skl2onnx writes the number of a leaf as votes of one target, once for each class."""
    x, label = data(classes)
    model = kind(max_depth=3, random_state=0, **({"n_estimators": 3} if kind is ensemble.RandomForestClassifier else {}))
    model.fit(x, label)
    wanted = {id(model): {"zipmap": False, "decision_leaf": True, "decision_path": True}}
    ran = session(model, [("x", FloatTensorType([None, 4]))], provider, options=wanted)
    x = x.astype(np.float32)
    *_, path, leaf = ran.run(None, {"x": x})
    single = kind is tree.DecisionTreeClassifier
    np.testing.assert_array_equal(np.asarray(leaf).reshape(len(x), -1), model.apply(x).reshape(len(x), -1))
    trees = [model] if single else model.estimators_
    paths = np.asarray(path).reshape(len(x), len(trees))
    for column, one in enumerate(trees):
        want = ["".join(map(str, row)) for row in one.decision_path(x).toarray().astype(int)]
        assert paths[:, column].tolist() == want
