"""Exported models through OpenVINO's plugin library, alone and cut by name, beside torch's own outputs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from plugin_models import CPU, MODELS, check, cut_by_name, share

import intarsia as ort

sys.path.insert(0, str(Path(__file__).parents[1] / "providers" / "plugin"))

from vendor_plugins import openvino_provider

pytestmark = pytest.mark.models
OPENVINO = "OpenVINOExecutionProvider"
LEAST = {
    "yolo": 0.6, "efficientnet": 0.6, "decoder": 0.8, "bert_base": 0.9, "gpt2": 0.9, "speech_encoder": 0.9, "vit_base": 0.9,
}  # fmt: skip
"""Least share of the nodes that the plugin takes; 1 of the others. What it leaves is the CPU's."""
BOUND = 1e-5
"""Of torch's largest output; 2e-6 is what was seen."""


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, models: Path) -> None:
    session = ort.InferenceSession(models / f"{name}.onnx", providers=[openvino_provider(), CPU])
    assert share(session, OPENVINO) >= LEAST.get(name, 1), session.explain().counts
    check(session, models / f"{name}.onnx", BOUND)


@pytest.mark.parametrize("name", MODELS)
def test_cut_by_name(name: str, models: Path) -> None:
    """Up to six nodes amid the plugin's are placed on the CPU and on a Python provider."""
    path = models / f"{name}.onnx"
    check(cut_by_name(path, openvino_provider(), OPENVINO), path, BOUND)
