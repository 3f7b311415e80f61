"""Packages of this translator beside those of PyPI's onnx2coreml, both executed by the same interpreter.

What one of them misreads in ONNX's text the other one need not: so a sample of ONNX's node cases, and a model of several
layers, are translated by both. `OTHERWISE` names what that package (1.1.0) computes otherwise than ONNX says.
"""

from __future__ import annotations

import contextlib
import gc
import io
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from mil_interpreter import MilFunction
from onnx import numpy_helper

from intarsia.conversion.convert import ConversionRequest, convert
from intarsia.testing.cases import model_and_data, suite

WHOLE = Path(__file__).with_name("whole_cases.txt").read_text().split()
pytestmark = pytest.mark.filterwarnings("ignore")
SAMPLE = 48  # every so many-th case that this translator has whole
OTHERWISE = {
    "select_last_index": "the attribute of ArgMax and ArgMin is ignored",
    "test_gelu_tanh": "the exact Gelu is computed instead of the approximation",
}
TYPES = {65568: np.float32, 65552: np.float16, 131104: np.int32}


@pytest.fixture(scope="module")
def onnx2coreml() -> Any:
    return pytest.importorskip("onnx2coreml", reason="needs onnx2coreml (pip install onnx2coreml; for Python before 3.14)")


def theirs(onnx2coreml: Any, model: onnx.ModelProto, folder: Path) -> MilFunction | None:
    """The package that onnx2coreml makes of a model; None where it refuses."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            onnx2coreml.convert(model, compute_precision="fp32").save(str(folder / "theirs.mlpackage"))
        except Exception:  # noqa: BLE001 # what it raises is its own affair: errors of its own, and of coremltools
            return None
        finally:
            gc.collect()  # it leaves a folder to the collector, which warns of that
    return MilFunction(folder / "theirs.mlpackage")


def ours(model: onnx.ModelProto, folder: Path) -> MilFunction:
    onnx.save(model, folder / "net.onnx")
    report = convert(folder / "net.onnx", ConversionRequest("coreml", folder / "ours.mlpackage"))
    assert report.complete, str(report)
    return MilFunction(folder / "ours.mlpackage")


def run(function: MilFunction, inputs: list[np.ndarray]) -> list[np.ndarray]:
    features = function.features
    given = {
        name: np.asarray(a).astype(TYPES[features[name].dataType]).reshape(a.shape or (1,))
        for name, a in zip(function.input_names, inputs, strict=bool(function.input_names))  # none where sizes are all it reads
    }
    return [np.asarray(y) for y in function.run(given).values()]


def alike(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_allclose(
        a.astype(np.float64).ravel(), b.astype(np.float64).ravel(), rtol=1e-3, atol=1e-5
    )  # passes of theirs fuse


@pytest.mark.parametrize("name", [n for n in WHOLE if zlib.crc32(n.encode()) % SAMPLE == 3 or n == "test_shape"])
def test_cases_by_both(onnx2coreml: Any, name: str, tmp_path: Path) -> None:
    model, sets = model_and_data(suite("node")[name])
    try:
        other = theirs(onnx2coreml, model, tmp_path)
        found = run(other, list(sets[0][0])) if other is not None else None
    except (AssertionError, NotImplementedError, TypeError):
        found = None  # an operation, or a form of one, that the interpreter has not, since this translator never writes it
    if found is None:
        pytest.skip("onnx2coreml has no such operator, or writes it in operations that the interpreter has not")
    if any(part in name for part in OTHERWISE):
        return
    for a, b in zip(run(ours(model, tmp_path), list(sets[0][0])), found, strict=True):
        alike(a, b)


@pytest.mark.parametrize("name", ["test_argmax_keepdims_example_select_last_index", "test_gelu_tanh_2"])
def test_what_the_other_computes_otherwise(onnx2coreml: Any, name: str, tmp_path: Path) -> None:
    """So that an entry of `OTHERWISE` goes when it is mended there."""
    model, sets = model_and_data(suite("node")[name])
    other = theirs(onnx2coreml, model, tmp_path)
    assert other is not None
    (inputs, wanted), *_ = sets
    alike(run(ours(model, tmp_path), list(inputs))[0], np.asarray(wanted[0]))
    with pytest.raises(AssertionError):
        alike(run(other, list(inputs))[0], np.asarray(wanted[0]))


def test_a_network_by_both(onnx2coreml: Any, tmp_path: Path) -> None:
    """Convolutions, a depthwise one, a pool, a normalisation, a product, Softmax."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 3, 12, 12] x) => (float[2, 5] y) {
        a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w, b)  r = Relu(a)
        c = Conv<group = 8, pads = [1, 1, 1, 1]>(r, d)  s = Sigmoid(c)  m = Mul(c, s)
        p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(m)  g = GlobalAveragePool(p)  f = Flatten(g)
        l = LayerNormalization(f, one, zero)  z = Gemm<transB = 1>(l, v, u)  y = Softmax(z) }"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(2)
    shapes = {"w": (8, 3, 3, 3), "b": (8,), "d": (8, 1, 3, 3), "one": (8,), "zero": (8,), "v": (5, 8), "u": (5,)}
    weights = {n: np.float32(rng.standard_normal(shape)) for n, shape in shapes.items()}
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in weights.items())
    x = np.float32(rng.standard_normal((2, 3, 12, 12)))
    other = theirs(onnx2coreml, model, tmp_path)
    assert other is not None
    alike(run(ours(model, tmp_path), [x])[0], run(other, [x])[0])
