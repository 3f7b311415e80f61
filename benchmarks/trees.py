"""Tree ensembles in Intarsia beside onnxruntime: python benchmarks/trees.py [NAME ...] [--rows 1,100,100000] [--threads N]

Trains small models of scikit-learn, XGBoost and LightGBM (what is installed: `pip install -e '.[dev]'`), converts them, and
prints for each number of rows the least time of both and their ratio; above 1 Intarsia is ahead. The two take turns in one
process.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

os.environ.setdefault("INTARSIA_COMPILE_IN_BACKGROUND", "0")  # what is timed are kernels compiled for the model

FEATURES = 30
Run = Callable[[], Any]


def data(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, a function of them with noise, and four classes of its values."""
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, FEATURES)).astype(np.float32)
    value = 2 * x[:, 0] + np.sin(3 * x[:, 1]) + x[:, 2] * x[:, 3] + 0.3 * rng.normal(size=rows)
    return x, value, np.digitize(value, [-1.5, 0, 1.5])


def from_sklearn(model: Any, target: str) -> bytes:
    import skl2onnx
    from skl2onnx.common.data_types import FloatTensorType

    x, value, label = data(5000)
    model.fit(x, value if target == "value" else label)
    options = {id(model): {"zipmap": False}} if target == "label" else None
    kind = [("x", FloatTensorType([None, FEATURES]))]
    proto = skl2onnx.convert_sklearn(model, initial_types=kind, options=options, target_opset={"": 18, "ai.onnx.ml": 3})
    return bytes(proto.SerializeToString())


def from_booster(model: Any, target: str, library: str) -> bytes:
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    x, value, label = data(5000)
    model.fit(x, value if target == "value" else label)
    convert = getattr(onnxmltools, f"convert_{library}")
    options = {"zipmap": False} if library == "lightgbm" else {}
    return bytes(convert(model, initial_types=[("x", FloatTensorType([None, FEATURES]))], **options).SerializeToString())


def models() -> dict[str, Callable[[], bytes]]:
    from sklearn import ensemble, tree

    found: dict[str, Callable[[], bytes]] = {
        "tree, depth 10": lambda: from_sklearn(tree.DecisionTreeRegressor(max_depth=10), "value"),
        "boosting, 100 trees of depth 4": lambda: from_sklearn(ensemble.GradientBoostingRegressor(max_depth=4), "value"),
        "forest, 100 whole trees": lambda: from_sklearn(ensemble.RandomForestRegressor(random_state=0), "value"),
        "forest, 4 classes": lambda: from_sklearn(ensemble.RandomForestClassifier(max_depth=12, random_state=0), "label"),
        "isolation forest": lambda: from_sklearn(ensemble.IsolationForest(random_state=0), "none"),
    }
    if find_spec("onnxmltools") and find_spec("xgboost"):
        import xgboost

        found["XGBoost, 4 classes"] = lambda: from_booster(xgboost.XGBClassifier(n_estimators=50), "label", "xgboost")
        found["XGBoost, 500 trees"] = lambda: from_booster(xgboost.XGBRegressor(n_estimators=500), "value", "xgboost")
    if find_spec("onnxmltools") and find_spec("lightgbm"):
        import lightgbm

        found["LightGBM, 200 trees"] = lambda: from_booster(
            lightgbm.LGBMRegressor(n_estimators=200, verbose=-1), "value", "lightgbm"
        )
    return found


def alternate(runs: list[Run], seconds: float) -> list[float]:
    """The least time of each in seconds, in turns of a few runs each."""
    best = [float("inf")] * len(runs)
    for run in runs:
        run()
    end, turns = time.perf_counter() + seconds, 0
    while turns < 3 or time.perf_counter() < end:
        turns += 1
        for i, run in enumerate(runs):
            turn = time.perf_counter()
            for _ in range(20):
                start = time.perf_counter()
                run()
                best[i] = min(best[i], time.perf_counter() - start)
                if time.perf_counter() - turn > 0.05:
                    break
    return best


def sessions(model: bytes, threads: int) -> list[Any]:
    import onnxruntime

    import intarsia

    made = []
    for runtime in (intarsia, onnxruntime):
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        made.append(runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"]))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models whose name contains one of these; default: all")
    parser.add_argument("--rows", default="1,100,100000", help="numbers of rows")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each model and number of rows")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| model | rows | intarsia us | onnxruntime us | ratio |\n|---|---:|---:|---:|---:|")
    for name, make in models().items():
        if options.names and not any(n.lower() in name.lower() for n in options.names):
            continue
        ours, theirs = sessions(make(), options.threads)
        field = ours.get_inputs()[0].name
        for rows in map(int, options.rows.split(",")):
            feed = {field: data(rows)[0]}
            mine, other = alternate(
                [lambda s=s, feed=feed: s.run(None, feed) for s in (ours, theirs)], options.seconds  # type: ignore[misc]
            )  # fmt: skip
            print(f"| {name} | {rows} | {mine * 1e6:.1f} | {other * 1e6:.1f} | {other / mine:.2f} |", flush=True)


if __name__ == "__main__":
    main()
