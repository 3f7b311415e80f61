"""Architectures that torch exports, and quantised ones, through Core ML's packages: few parts, and torch's own numbers."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import intarsia as ort
from intarsia.providers.vendor.artifact_cache import vendor_compiles

if TYPE_CHECKING:
    from mil_interpreter import NumPyEngine

NAME, CPU = "CoreMLExecutionProvider", "CPUExecutionProvider"
EXPORTER = Path(__file__).parents[2] / "models" / "export.py"
MOST_PARTS = 5
MODELS = (
    "bert_base", "vit_base", "resnet50", "mobilenet_v2", "gpt2", "vgg16", "lstm_text", "mlp_tabular", "yolo", "unet", "deeplab",
    "efficientnet", "mobilenet_v3", "convnext", "densenet", "speech_encoder",
)  # fmt: skip
IN_HALF = (*MODELS[:9], "unet", "efficientnet")  # the eight, a detector, and two more


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("INTARSIA_MODELS"):
        return Path(given)
    missing = [name for name in ("torch", "transformers", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"exporting the models needs {', '.join(missing)} (extra: train), or a folder in INTARSIA_MODELS")
    folder = tmp_path_factory.mktemp("models")
    done = subprocess.run([sys.executable, str(EXPORTER), str(folder), *MODELS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def session(model: Any, **given: Any) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.cache_weights_mib", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ort.ProviderWarning)
        return ort.InferenceSession(model, options, providers=[(NAME, given), CPU])


def parts(made: ort.InferenceSession) -> int:
    return len(made._engine.whole_model().partition.parts)


def data(models: Path, name: str) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Inputs, and torch's outputs."""
    arrays = np.load(models / f"{name}.npz")
    ordered = sorted((k for k in arrays if k.startswith("out_")), key=lambda k: int(k[4:]))
    return {k[3:]: arrays[k] for k in arrays if k.startswith("in_")}, [arrays[k] for k in ordered]


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, relative to the largest number."""
    return float(np.abs(found.astype(np.float64) - wanted).max() / max(np.abs(wanted).max(), 1e-9))


@pytest.mark.models
@pytest.mark.parametrize("name", MODELS)
def test_torchs_numbers_in_few_parts(engine: NumPyEngine, models: Path, name: str) -> None:
    feed, wanted = data(models, name)
    made = session(models / f"{name}.onnx")
    found = made.run(None, feed)
    assert parts(made) <= MOST_PARTS, str(made.explain())
    for a, b in zip(found, wanted, strict=True):
        assert error(a, b) < 2e-4
    before = vendor_compiles(NAME)
    again = session(models / f"{name}.onnx")
    for a, b in zip(again.run(None, feed), found, strict=True):
        np.testing.assert_array_equal(a, b)
    assert vendor_compiles(NAME) == before, "an artifact of the first session is compiled anew"


def quantised(models: Path, name: str, kind: str, folder: Path) -> Path:
    """The model with weights of 8 bits (dynamic), with QuantizeLinear and DequantizeLinear around its products (static), or in
    operators of 8-bit numbers (qoperator)."""
    quantization = pytest.importorskip("onnxruntime.quantization", reason="needs onnxruntime (extra: test)")
    feed, _ = data(models, name)

    class Once(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.left = iter([feed])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)

    path = folder / f"{name}_{kind}.onnx"
    if kind == "dynamic":
        quantization.quantize_dynamic(models / f"{name}.onnx", path, weight_type=quantization.QuantType.QUInt8)
    else:
        form = quantization.QuantFormat.QOperator if kind == "qoperator" else quantization.QuantFormat.QDQ
        quantization.quantize_static(models / f"{name}.onnx", path, Once(), per_channel=True, quant_format=form)
    return path


@pytest.mark.models
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "kind"), [("bert_base", "dynamic"), ("mobilenet_v2", "static"), ("resnet50", "qoperator")])
def test_quantised_as_onnxruntime(engine: NumPyEngine, models: Path, tmp_path: Path, name: str, kind: str) -> None:
    import onnxruntime

    path = quantised(models, name, kind, tmp_path)
    feed, _ = data(models, name)
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    wanted = onnxruntime.InferenceSession(path, plain, providers=["CPUExecutionProvider"]).run(None, feed)
    made = session(path)
    assert parts(made) <= MOST_PARTS, str(made.explain())
    for a, b in zip(made.run(None, feed), wanted, strict=True):
        assert error(a, b) < 2e-2  # a step of 8 bits may be another one


@pytest.mark.models
@pytest.mark.parametrize("name", IN_HALF)
def test_in_half_precision(engine: NumPyEngine, models: Path, name: str) -> None:
    feed, wanted = data(models, name)
    made = session(models / f"{name}.onnx", Precision="FP16")
    assert parts(made) <= MOST_PARTS, str(made.explain())
    for a, b in zip(made.run(None, feed), wanted, strict=True):
        assert a.dtype == b.dtype and 1e-6 < error(a, b) < 3e-2
