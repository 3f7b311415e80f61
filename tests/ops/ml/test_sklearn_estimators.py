"""Many of scikit-learn's estimators, for one row and for many, against their own predictions."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from sklearn_conversion import TYPES, convert, quiet, session

from sklearn import (  # isort: skip
    calibration, cluster, decomposition, discriminant_analysis, ensemble, feature_selection, gaussian_process, impute,
    linear_model, mixture, multiclass, naive_bayes, neighbors, neural_network, pipeline, preprocessing, svm, tree,
)  # fmt: skip

ROWS = 1000
WORDS = np.array(["ash", "birch", "cedar"])


@functools.cache
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points [1000, 6] that float32 holds exactly, around three centres; their classes; a smooth function of them."""
    rng = np.random.default_rng(0)
    label = np.arange(ROWS) % 3
    points = rng.normal(size=(ROWS, 6)) + 1.5 * rng.normal(size=(3, 6))[label]
    x = points.astype(np.float32).astype(np.float64)
    return x, label, 2 * x[:, 0] - x[:, 1] + np.sin(x[:, 2])


def steps(*parts: Any) -> Any:
    return pipeline.make_pipeline(*parts, linear_model.LogisticRegression(max_iter=300))


CLASSIFIERS: dict[str, Any] = {
    "gradient-boosting": ensemble.GradientBoostingClassifier(n_estimators=5, random_state=0),
    "histogram-boosting": ensemble.HistGradientBoostingClassifier(max_iter=5, random_state=0),
    "forest": ensemble.RandomForestClassifier(11, random_state=0),
    "extra-trees": ensemble.ExtraTreesClassifier(11, random_state=0),
    "tree": tree.DecisionTreeClassifier(random_state=0),
    "adaboost": ensemble.AdaBoostClassifier(n_estimators=5, random_state=0),
    "bagging": ensemble.BaggingClassifier(n_estimators=4, random_state=0),
    "svc-linear": svm.SVC(kernel="linear", probability=True, random_state=0),
    "svc-sigmoid": svm.SVC(kernel="sigmoid", probability=True, random_state=0),
    "nu-svc": svm.NuSVC(nu=0.2, probability=True, random_state=0),
    "logistic": linear_model.LogisticRegression(),
    "descent": linear_model.SGDClassifier(loss="log_loss", random_state=0),
    "one-vs-rest": multiclass.OneVsRestClassifier(linear_model.LogisticRegression()),
    "neighbours": neighbors.KNeighborsClassifier(5),
    "bayes": naive_bayes.GaussianNB(),
    "quadratic": discriminant_analysis.QuadraticDiscriminantAnalysis(),
    "network": neural_network.MLPClassifier((8,), max_iter=50, random_state=0),
    "calibrated": calibration.CalibratedClassifierCV(tree.DecisionTreeClassifier(max_depth=3, random_state=0)),
    "stacked": ensemble.StackingClassifier(
        [("trees", tree.DecisionTreeClassifier(max_depth=3)), ("bayes", naive_bayes.GaussianNB())]
    ),
    "scaled-components": steps(preprocessing.StandardScaler(), decomposition.PCA(3)),
    "polynomial": steps(preprocessing.PolynomialFeatures(2)),
    "binned": steps(preprocessing.KBinsDiscretizer(4, encode="onehot-dense", quantile_method="averaged_inverted_cdf")),
    "selected": steps(feature_selection.SelectKBest(k=3)),
}  # fmt: skip
# Of the others, skl2onnx's conversion for double data mixes float and double in one operator.
ONLY_FLOAT = {"adaboost", "calibrated", "polynomial", "binned"}


@pytest.mark.parametrize("target", ["two numbers", "three words"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifier(name: str, target: str) -> None:
    x, label, _ = data()
    two = target == "two numbers"
    known = 10 * np.minimum(label, 1) if two else WORDS[label]
    with quiet():
        model = CLASSIFIERS[name].fit(x[:300], known[:300])
    dtype = "float64" if two and name not in ONLY_FLOAT else "float32"
    ran = session(convert(model, [("x", TYPES[dtype]([None, 6]))]))
    for rows in (1, ROWS):
        found, scores = ran.run(None, {"x": x[:rows].astype(dtype)})
        np.testing.assert_allclose(scores, model.predict_proba(x[:rows]), rtol=1e-3, atol=5e-5)
        assert found.reshape(-1).tolist() == model.predict(x[:rows]).tolist()


REGRESSORS: dict[str, Any] = {
    "gradient-boosting": ensemble.GradientBoostingRegressor(n_estimators=5, random_state=0),
    "histogram-boosting": ensemble.HistGradientBoostingRegressor(max_iter=5, random_state=0),
    "forest": ensemble.RandomForestRegressor(12, random_state=0),
    "extra-trees": ensemble.ExtraTreesRegressor(12, random_state=0),
    "tree": tree.DecisionTreeRegressor(random_state=0),
    "adaboost": ensemble.AdaBoostRegressor(n_estimators=4, random_state=0),
    "bagging": ensemble.BaggingRegressor(n_estimators=4, random_state=0),
    "svr": svm.SVR(), "svr-poly": svm.SVR(kernel="poly", degree=2), "nu-svr": svm.NuSVR(), "linear-svr": svm.LinearSVR(),
    "linear": linear_model.LinearRegression(), "ridge": linear_model.Ridge(), "lasso": linear_model.Lasso(),
    "neighbours": neighbors.KNeighborsRegressor(4),
    "process": gaussian_process.GaussianProcessRegressor(alpha=0.1),
    "network": neural_network.MLPRegressor(hidden_layer_sizes=(8,), max_iter=50, random_state=0),
    "voting": ensemble.VotingRegressor([("line", linear_model.Ridge()), ("tree", tree.DecisionTreeRegressor(max_depth=3))]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "dtype"), [(n, d) for n in REGRESSORS for d in TYPES if d == "float32" or n not in ("adaboost", "voting")]
)  # fmt: skip
def test_regressor(name: str, dtype: str) -> None:
    x, _, value = data()
    with quiet():
        model = REGRESSORS[name].fit(x[:200], value[:200])
    ran = session(convert(model, [("x", TYPES[dtype]([None, 6]))], zipmap=None))
    for rows in (1, ROWS):
        found = ran.run(None, {"x": x[:rows].astype(dtype)})[0]
        np.testing.assert_allclose(found.reshape(rows), model.predict(x[:rows]), rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("name", ["forest", "tree", "linear", "neighbours"])
def test_two_targets(name: str) -> None:
    x, _, value = data()
    target = np.stack([value, value**2], 1)
    model = REGRESSORS[name].fit(x[:200], target[:200])
    ran = session(convert(model, [("x", TYPES["float32"]([None, 6]))], zipmap=None))
    for rows in (1, ROWS):
        (found,) = ran.run(None, {"x": x[:rows].astype(np.float32)})
        np.testing.assert_allclose(found, model.predict(x[:rows]), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("model", [
    preprocessing.RobustScaler(), preprocessing.MaxAbsScaler(), preprocessing.Normalizer("l1"),
    preprocessing.KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf"),
    decomposition.PCA(3), decomposition.TruncatedSVD(3), impute.SimpleImputer(),
], ids=lambda m: type(m).__name__ + getattr(m, "norm", ""))  # fmt: skip
def test_transformer(model: Any, dtype: str) -> None:
    x, *_ = data()
    with quiet():
        model.fit(x[:300])
    ran = session(convert(model, [("x", TYPES[dtype]([None, 6]))], zipmap=None))
    for rows in (1, ROWS):
        np.testing.assert_allclose(
            ran.run(None, {"x": x[:rows].astype(dtype)})[0], model.transform(x[:rows]), rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("dtype", TYPES)
def test_missing_values(dtype: str) -> None:
    """NaN goes the way that training chose, or is replaced by a column's mean."""
    x, label, _ = data()
    holes = np.where(np.random.default_rng(1).random(x.shape) < 0.3, np.nan, x)
    filled = pipeline.make_pipeline(impute.SimpleImputer(), linear_model.LogisticRegression())
    for model in (ensemble.HistGradientBoostingClassifier(max_iter=5), filled):
        model.fit(holes[:300], label[:300])
        found, scores = session(convert(model, [("x", TYPES[dtype]([None, 6]))])).run(None, {"x": holes.astype(dtype)})
        np.testing.assert_allclose(scores, model.predict_proba(holes), rtol=1e-3, atol=5e-5)
        assert found.tolist() == model.predict(holes).tolist()


def test_clusters_and_outliers() -> None:
    x, *_ = data()
    x = x[:300]
    feed, kind = {"x": x.astype(np.float32)}, [("x", TYPES["float32"]([None, 6]))]
    with quiet():
        means = cluster.KMeans(3, random_state=0, n_init=1).fit(x)
        forest = ensemble.IsolationForest(n_estimators=20, random_state=0).fit(x)
        mixed = mixture.GaussianMixture(2, random_state=0).fit(x)
    label, distance = session(convert(means, kind, zipmap=None)).run(None, feed)
    assert label.tolist() == means.predict(x).tolist()
    np.testing.assert_allclose(distance, means.transform(x), rtol=1e-3)
    label, score = session(convert(forest, kind, zipmap=None)).run(None, feed)
    assert label.reshape(-1).tolist() == forest.predict(x).tolist()
    np.testing.assert_allclose(score.reshape(-1), forest.decision_function(x), atol=1e-5)
    label, share = session(convert(mixed, kind, zipmap=None)).run(None, feed)
    np.testing.assert_allclose(share, mixed.predict_proba(x), atol=1e-4)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_hundred_thousand_rows(dtype: str) -> None:
    """Each row gives what it gives alone, whatever thread and block it falls to."""
    x, label, value = data()
    many = np.tile(x, (100, 1))
    kind = [("x", TYPES[dtype]([None, 6]))]
    forest = ensemble.RandomForestRegressor(10, max_depth=6, random_state=0).fit(x, value)
    (found,) = session(convert(forest, kind, zipmap=None)).run(None, {"x": many.astype(dtype)})
    np.testing.assert_allclose(found[:ROWS, 0], forest.predict(x), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found.reshape(100, ROWS), np.broadcast_to(found[:ROWS, 0], (100, ROWS)))
    boosted = ensemble.GradientBoostingClassifier(n_estimators=3, random_state=0).fit(x, WORDS[label])
    words, scores = session(convert(boosted, kind, zipmap=True)).run(None, {"x": many.astype(dtype)})
    assert len(scores) == len(words) == 100 * ROWS
    assert words[-ROWS:].tolist() == boosted.predict(x).tolist()
    np.testing.assert_allclose([list(row.values()) for row in scores[-ROWS:]], boosted.predict_proba(x), atol=1e-5)
