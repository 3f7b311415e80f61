"""Whole models on a simulated phone, beside torch's own outputs: in how few parts, within which bounds, from the cache."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intarsia as ort
from intarsia.providers.vendor.artifact_cache import vendor_compiles

sys.path.insert(0, str(Path(__file__).parents[1] / "providers" / "nnapi" / "simulator"))

from phone import simulated_phone

pytestmark = pytest.mark.models
NAME = "NnapiExecutionProvider"
MODELS = [
    "bert_base", "vit_base", "resnet50", "mobilenet_v2", "gpt2", "vgg16", "mlp_tabular", "lstm_text", "yolo", "efficientnet",
    "unet",
]  # fmt: skip
MOST_PARTS = 5
FLOAT32, FLOAT16 = 1e-4, 1e-2  # of torch's largest output


@pytest.fixture(params=[31, 1000008])
def phone(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    with simulated_phone(request.param) as made:
        yield made


def opened(path: Path, **given: Any) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.cache_weights_mib", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ort.ProviderWarning)
        return ort.InferenceSession(path, options, providers=[(NAME, given), "CPUExecutionProvider"])


def check(session: ort.InferenceSession, arrays: dict[str, np.ndarray], tolerance: float) -> None:
    session.disable_fallback()
    found = session.run(None, {k.removeprefix("in_"): v for k, v in arrays.items() if k.startswith("in_")})
    for i, output in enumerate(found):
        expected = arrays[f"out_{i}"]
        assert output.dtype == expected.dtype and output.shape == expected.shape
        error = np.abs(output.astype(np.float64) - expected).max() / np.abs(expected).max()
        assert error < tolerance, f"output {i} differs by {error:.2e} of torch's largest"


def parts(session: ort.InferenceSession) -> int:
    return sum(type(p).__name__ == "VendorProgram" for p in session._engine.whole_model().programs)


def on_the_host(session: ort.InferenceSession) -> bool:
    """Whether sizes of a run went to the CPU within a part."""
    return any("computed on the CPU" in text for p in session._engine.whole_model().programs for text in p.remarks())


@pytest.mark.parametrize("name", MODELS)
def test_a_model(name: str, models: Path, phone: Any) -> None:
    path = models / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path.name} is not in the folder of models")
    with np.load(path.with_suffix(".npz")) as arrays:
        given = dict(arrays)
    session = opened(path)
    check(session, given, FLOAT32)
    assert 1 <= parts(session) <= MOST_PARTS and not on_the_host(session)
    assert session.explain().counts[NAME] > 0.5 * sum(n for p, n in session.explain().counts.items() if p != "folded")
    before = vendor_compiles(NAME), phone.compiled
    check(opened(path), given, FLOAT32)
    assert (vendor_compiles(NAME), phone.compiled) == before
    half = opened(path, NNAPI_FLAG_USE_FP16=True)
    check(half, given, FLOAT16)
    assert phone.compiled > before[1]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_float16(name: str, models: Path, phone: Any) -> None:
    """Its weights and what is computed of them, by the option 'precision'."""
    path = models / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path.name} is not in the folder of models")
    with np.load(path.with_suffix(".npz")) as arrays:
        given = dict(arrays)
    session = opened(path, precision="float16")
    check(session, given, FLOAT16)
    assert 1 <= parts(session) <= MOST_PARTS and not on_the_host(session)


Quantiser = Callable[[Path, Path], None]


@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2"])
@pytest.mark.parametrize("form", ["qdq", "u8"])
def test_a_quantised_model(name: str, form: str, models: Path, phone: Any, tmp_path: Path) -> None:
    """Convolutions run on quantised numbers; results are those of the same model on the CPU, within steps."""
    pytest.importorskip("onnxruntime.quantization", reason="needs onnxruntime (extra: bench)")
    path = models / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path.name} is not in the folder of models")
    with np.load(path.with_suffix(".npz")) as arrays:
        feeds = {k.removeprefix("in_"): v for k, v in arrays.items() if k.startswith("in_")}
    target = tmp_path / "quantised.onnx"
    quantise(path, target, feeds, form)
    session = opened(target)
    found = session.run(None, feeds)[0]
    expected = ort.InferenceSession(target, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    assert 1 <= parts(session) <= MOST_PARTS
    assert np.abs(found - expected).max() < 0.15 * np.abs(expected).max()
    text = "\n".join(p.describe() for p in session._engine.whole_model().programs)
    of_bytes = [line for line in text.splitlines() if "CONV_2D(" in line and "QUANT8" in line]
    of_floats = [line for line in text.splitlines() if "CONV_2D(" in line and "FLOAT32" in line]
    assert len(of_bytes) > 10 * len(of_floats)


def quantise(source: Path, target: Path, feeds: dict[str, np.ndarray], form: str) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc] # of a package without types
        def __init__(self) -> None:
            self._left = [feeds]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self._left.pop() if self._left else None

    unsigned = form == "u8"
    quantize_static(
        source, target, Reader(), quant_format=QuantFormat.QDQ, per_channel=not unsigned,
        activation_type=QuantType.QUInt8 if unsigned else QuantType.QInt8,
        weight_type=QuantType.QUInt8 if unsigned else QuantType.QInt8,
    )  # fmt: skip
