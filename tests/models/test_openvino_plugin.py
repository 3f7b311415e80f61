"""Exported models through OpenVINO's plugin library, alone and cut by name, beside torch's own outputs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intarsia as ort
from intarsia.providers.reference import ReferenceExecutionProvider

sys.path.insert(0, str(Path(__file__).parents[1] / "providers" / "plugin"))

from vendor_plugins import openvino_provider

pytestmark = pytest.mark.models
CPU, OPENVINO = "CPUExecutionProvider", "OpenVINOExecutionProvider"
MODELS = [
    "bert_base", "convnext", "decoder", "deeplab", "densenet", "efficientnet", "gpt2", "lstm_text", "mlp_tabular",
    "mobilenet_v2", "mobilenet_v3", "resnet50", "resnext50", "shufflenet", "speech_encoder", "unet", "vgg16", "vit_base",
    "wave_encoder", "yolo",
]  # fmt: skip
LEAST = {
    "yolo": 0.6, "efficientnet": 0.6, "decoder": 0.8, "bert_base": 0.9, "gpt2": 0.9, "speech_encoder": 0.9, "vit_base": 0.9,
}  # fmt: skip
"""Least share of the nodes that the plugin takes; 1 of the others. What it leaves is the CPU's."""
BOUND = 1e-5
"""Of torch's largest output; 2e-6 is what was seen."""
CUT = ("Conv", "MatMul", "Gemm", "Relu", "Add", "Mul", "Softmax", "LSTM", "Sigmoid")


class PythonExecutionProvider(ReferenceExecutionProvider):
    """A provider in Python: NumPy, by the operators' definitions."""

    name = "PythonExecutionProvider"


def check(session: ort.InferenceSession, path: Path) -> None:
    """Both calls that torch's outputs are kept of: the second has other sizes."""
    session.disable_fallback()
    arrays = np.load(path.with_suffix(".npz"))
    for call in ("", "other_"):
        feed = {k.removeprefix(f"{call}in_"): arrays[k] for k in arrays.files if k.startswith(f"{call}in_")}
        for i, output in enumerate(session.run(None, feed) if feed else ()):
            expected = arrays[f"{call}out_{i}"]
            assert output.dtype == expected.dtype and output.shape == expected.shape
            error = np.abs(output.astype(np.float64) - expected).max() / np.abs(expected).max()
            assert error < BOUND, f"output {i} differs by {error:.2e} of torch's largest"


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, models: Path) -> None:
    session = ort.InferenceSession(models / f"{name}.onnx", providers=[openvino_provider(), CPU])
    counts = {k: n for k, n in session.explain().counts.items() if k != "folded"}
    assert counts[OPENVINO] >= LEAST.get(name, 1) * sum(counts.values()), counts
    check(session, models / f"{name}.onnx")


@pytest.mark.parametrize("name", MODELS)
def test_cut_by_name(name: str, models: Path) -> None:
    """Up to six nodes amid the plugin's are placed on the CPU and on a Python provider."""
    path = models / f"{name}.onnx"
    rows = ort.InferenceSession(path, providers=[openvino_provider(), CPU]).explain().nodes
    names = [row.name for row in rows if row.provider == OPENVINO and row.op in CUT and row.name.startswith("node_")]
    count = min(6, len(names) // 2)
    chosen = [names[len(names) * i // (count + 1)] for i in range(1, count + 1)]
    places = {name: (CPU, PythonExecutionProvider.name)[i % 2] for i, name in enumerate(dict.fromkeys(chosen))}
    options = ort.SessionOptions()
    options.add_session_config_entry("partition.place", "; ".join(f"{name}={where}" for name, where in places.items()))
    options.add_session_config_entry("partition.keep_islands", "1")
    providers: list[Any] = [openvino_provider(), CPU, PythonExecutionProvider]
    session = ort.InferenceSession(path, options, providers=providers)
    found = {row.name: row.provider for row in session.explain().nodes}
    assert {name: found[name] for name in places} == places
    assert OPENVINO in found.values()
    check(session, path)
