"""Pipelines and estimators of scikit-learn in Intarsia beside onnxruntime: python benchmarks/pipelines.py [NAME ...]

Trains each on generated data, converts it by skl2onnx (onnxmltools for boosted trees: `trees.py` has more of those), compares
the outputs of both, and prints for each number of rows the least time of both and their ratio; above 1 Intarsia is ahead.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from trees import alternate, sessions

FEATURES = 20
WORDS = [
    f"{a}{b}" for a in ("red", "blue", "old", "new", "far", "high", "low", "odd") for b in ("er", "ish", "ly", "", "s", "ness")
]
Feeds = dict[str, np.ndarray]
Made = tuple[bytes, Callable[[int], Feeds]]  # a model, and inputs of so many rows
Make = Callable[[], Made]


def numbers(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, FEATURES)).astype(np.float32)
    value = 2 * x[:, 0] + np.sin(3 * x[:, 1]) + x[:, 2] * x[:, 3] + 0.3 * rng.normal(size=rows)
    return x, value, np.digitize(value, [-1.5, 0, 1.5])


def columns(rows: int) -> Feeds:
    """What a table has: numbers, some of them missing, and words."""
    rng = np.random.default_rng(rows)
    age = rng.uniform(18, 80, (rows, 1)).astype(np.float32)
    age[rng.random(rows) < 0.1] = np.nan
    words = {f"word{i}": rng.choice([f"k{j}" for j in range(5 + 7 * i)], (rows, 1)).astype(object) for i in range(3)}
    return {"age": age, "pay": rng.lognormal(size=(rows, 1)).astype(np.float32), **words}


def sentences(rows: int) -> np.ndarray:
    rng = np.random.default_rng(rows)
    return np.array([" ".join(rng.choice(WORDS, 12)) for _ in range(rows)], object)


def converted(model: Any, inputs: list[tuple[str, Any]], options: Mapping[int, Any] | None = None) -> bytes:
    import skl2onnx
    from skl2onnx.common import _container

    plain = _container.make_node

    def make_node(*args: Any, **attributes: Any) -> Any:
        """skl2onnx 1.20 gives lists of NumPy's numbers and of booleans for histogram-based trees."""
        for name, value in attributes.items():
            if isinstance(value, list) and value and isinstance(value[0], bool | np.bool_ | np.integer):
                attributes[name] = [int(v) for v in value]
        return plain(*args, **attributes)

    _container.make_node = make_node
    try:
        opsets = {"": 18, "ai.onnx.ml": 3}
        made = skl2onnx.convert_sklearn(model, initial_types=inputs, options=options, target_opset=opsets)
    finally:
        _container.make_node = plain
    return bytes(made.SerializeToString())


def on_numbers(estimator: Any, target: str = "label", rows: int = 2000) -> Make:
    def make() -> Made:
        from skl2onnx.common.data_types import FloatTensorType

        x, value, label = numbers(rows)
        estimator.fit(*{"label": (x, label), "two": (x, np.minimum(label, 1)), "value": (x, value), "none": (x,)}[target])
        options = None if target in ("value", "none") else {id(estimator): {"zipmap": False}}
        return converted(estimator, [("x", FloatTensorType([None, FEATURES]))], options), lambda n: {"x": numbers(n)[0]}

    return make


def on_columns(final: Any) -> Make:
    """The pipeline of most tutorials: impute and scale numbers, one-hot words, then a classifier."""

    def make() -> Made:
        import pandas as pd
        from skl2onnx.common.data_types import FloatTensorType, StringTensorType
        from sklearn.compose import ColumnTransformer
        from sklearn.impute import SimpleImputer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        table = columns(2000)
        words = [name for name in table if name.startswith("word")]
        parts = [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["age", "pay"]),
            ("words", OneHotEncoder(handle_unknown="ignore"), words),
        ]
        pipeline = make_pipeline(ColumnTransformer(parts), final)
        label = (table["pay"][:, 0] > 1).astype(np.int64) + (table["word0"][:, 0] == "k1")
        pipeline.fit(pd.DataFrame({name: x[:, 0] for name, x in table.items()}), label)
        types = {np.float32: FloatTensorType, object: StringTensorType}
        kinds = [(name, types[object if x.dtype == object else np.float32]([None, 1])) for name, x in table.items()]
        return converted(pipeline, kinds, {id(final): {"zipmap": False}}), columns

    return make


def on_text(*steps: Any) -> Make:
    def make() -> Made:
        from skl2onnx.common.data_types import StringTensorType
        from sklearn.pipeline import make_pipeline

        text = sentences(1000)
        pipeline = make_pipeline(*steps)
        pipeline.fit(text, np.array(["red" in t[:20] for t in text]).astype(np.int64))
        options = {id(steps[0]): {"locale": "C"}, id(steps[-1]): {"zipmap": False}}
        return converted(pipeline, [("text", StringTensorType([None, 1]))], options), lambda n: {"text": sentences(n)[:, None]}

    return make


def pipelines() -> dict[str, Make]:
    from sklearn import (
        cluster,
        decomposition,
        discriminant_analysis,
        ensemble,
        feature_extraction,
        gaussian_process,
        linear_model,
        mixture,
        naive_bayes,
        neighbors,
        neural_network,
        preprocessing,
        svm,
    )
    from sklearn.pipeline import make_pipeline

    counts = feature_extraction.text.CountVectorizer
    tf_idf = feature_extraction.text.TfidfVectorizer

    def scaled(*steps: Any) -> Any:
        return make_pipeline(preprocessing.StandardScaler(), *steps)

    kernel = gaussian_process.kernels.RBF(3.0) + gaussian_process.kernels.WhiteKernel(0.1)
    voters = [("a", linear_model.LogisticRegression()), ("b", ensemble.RandomForestClassifier(20, max_depth=6))]
    return {
        "logistic": on_numbers(linear_model.LogisticRegression()),
        "scaled logistic": on_numbers(scaled(linear_model.LogisticRegression())),
        "linear regression": on_numbers(linear_model.LinearRegression(), "value"),
        "polynomial ridge": on_numbers(scaled(preprocessing.PolynomialFeatures(2), linear_model.Ridge()), "value"),
        "forest": on_numbers(ensemble.RandomForestClassifier(100, random_state=0)),
        "extra trees": on_numbers(ensemble.ExtraTreesRegressor(100, random_state=0), "value"),
        "gradient boosting": on_numbers(ensemble.GradientBoostingClassifier(random_state=0)),
        "histogram boosting": on_numbers(ensemble.HistGradientBoostingRegressor(random_state=0), "value"),
        "histogram classes": on_numbers(ensemble.HistGradientBoostingClassifier(random_state=0)),
        "ada boost": on_numbers(ensemble.AdaBoostClassifier(random_state=0)),
        "bagging": on_numbers(ensemble.BaggingClassifier(n_estimators=10, random_state=0)),
        "voting": on_numbers(ensemble.VotingClassifier(voters, voting="soft", flatten_transform=False)),
        "stacking": on_numbers(ensemble.StackingClassifier(voters), rows=500),
        "isolation forest": on_numbers(ensemble.IsolationForest(random_state=0), "none"),
        "local outliers": on_numbers(neighbors.LocalOutlierFactor(novelty=True), "none", 500),
        "SVC, RBF": on_numbers(scaled(svm.SVC(probability=True, random_state=0)), rows=1000),
        "SVC, polynomial": on_numbers(svm.SVC(kernel="poly"), rows=1000),
        "SVR": on_numbers(scaled(svm.SVR()), "value", 1000),
        "linear SVC": on_numbers(svm.LinearSVC()),
        "one-class SVM": on_numbers(svm.OneClassSVM(), "none", 1000),
        "nearest, 5": on_numbers(neighbors.KNeighborsClassifier(), rows=1000),
        "nearest, regression": on_numbers(neighbors.KNeighborsRegressor(weights="distance"), "value", 1000),
        "gaussian process": on_numbers(gaussian_process.GaussianProcessRegressor(kernel), "value", 300),
        "k-means": on_numbers(cluster.KMeans(8, n_init=1, random_state=0), "none"),
        "gaussian mixture": on_numbers(mixture.GaussianMixture(4, random_state=0), "none"),
        "PCA, logistic": on_numbers(scaled(decomposition.PCA(8), linear_model.LogisticRegression())),
        "bins, logistic": on_numbers(
            make_pipeline(preprocessing.KBinsDiscretizer(8, encode="ordinal"), linear_model.LogisticRegression())
        ),
        "quantiles, ridge": on_numbers(make_pipeline(preprocessing.PowerTransformer(), linear_model.Ridge()), "value"),
        "naive Bayes": on_numbers(naive_bayes.GaussianNB()),
        "discriminant": on_numbers(discriminant_analysis.QuadraticDiscriminantAnalysis()),
        "perceptron": on_numbers(scaled(neural_network.MLPClassifier((64, 64), max_iter=20, random_state=0))),
        "table, logistic": on_columns(linear_model.LogisticRegression()),
        "table, forest": on_columns(ensemble.RandomForestClassifier(50, random_state=0)),
        "table, boosting": on_columns(ensemble.GradientBoostingClassifier(random_state=0)),
        "text, counts": on_text(counts(), naive_bayes.MultinomialNB()),
        "text, tf-idf": on_text(tf_idf(ngram_range=(1, 2)), linear_model.LogisticRegression()),
        "text, characters": on_text(tf_idf(analyzer="char", ngram_range=(2, 3)), linear_model.LogisticRegression()),
    }


def difference(found: list[Any], expected: list[Any]) -> str:
    """Numbers: the largest difference relative to the largest; labels: how many of them differ."""
    texts = []
    for mine, other in zip(found, expected, strict=True):
        mine, other = np.asarray(mine), np.asarray(other)
        if mine.shape != other.shape or mine.dtype != other.dtype:
            texts.append(f"{mine.dtype}{mine.shape} for {other.dtype}{other.shape}")
        elif other.dtype.kind == "f":
            texts.append(f"{np.abs(mine - other).max() / (np.abs(other).max() or 1):.0e}")
        else:
            texts.append(f"{(mine != other).sum()} of {other.size}")
    return ", ".join(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="pipelines whose name contains one of these; default: all")
    parser.add_argument("--rows", default="1,100,10000", help="numbers of rows")
    parser.add_argument("--threads", default="2,1")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each pipeline and number of rows")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| pipeline | threads | rows | intarsia us | onnxruntime us | ratio | differences |\n|---|--:|--:|--:|--:|--:|---|")
    for name, make in pipelines().items():
        if options.names and not any(n.lower() in name.lower() for n in options.names):
            continue
        try:
            model, feeds = make()
            for threads in map(int, options.threads.split(",")):
                made = sessions(model, threads)
                for rows in map(int, options.rows.split(",")):
                    feed = feeds(rows)
                    told = difference(*(s.run(None, feed) for s in made))
                    runs = [partial(s.run, None, feed) for s in made]
                    mine, other = alternate(runs, options.seconds)
                    ratio = f"{mine * 1e6:.1f} | {other * 1e6:.1f} | {other / mine:.2f}"
                    print(f"| {name} | {threads} | {rows} | {ratio} | {told} |", flush=True)
        except Exception as error:  # noqa: BLE001 - what cannot be converted or run says so; the others go on
            print(f"| {name} | FAILED {type(error).__name__}: {str(error)[:300]!r} |", flush=True)


if __name__ == "__main__":
    main()
