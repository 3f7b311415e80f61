"""Exported models through WebGPU's plugin library on SwiftShader, alone and cut by name, beside torch's own outputs.

Its driver has to be chosen before a process first asks for Vulkan:

    VK_DRIVER_FILES=/usr/lib/chromium/vk_swiftshader_icd.json python -m pytest tests/models/test_webgpu_plugin.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from plugin_models import CPU, MODELS, check, cut_by_name, share

import intarsia as ort

sys.path.insert(0, str(Path(__file__).parents[1] / "providers" / "plugin"))

from vendor_plugins import software_vulkan, webgpu_provider

pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(not software_vulkan(), reason="needs VK_DRIVER_FILES with SwiftShader's driver"),
]
WEBGPU = "WebGpuExecutionProvider"
LEAST = {"decoder": 0.8, "gpt2": 0.8, "bert_base": 0.85, "wave_encoder": 0.9, "vit_base": 0.95}
"""Least share of the nodes that the plugin takes; 1 of the others. What it leaves is the CPU's."""
BOUND = 1e-5
"""Of torch's largest output."""


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, models: Path) -> None:
    session = ort.InferenceSession(models / f"{name}.onnx", providers=[webgpu_provider(), CPU])
    assert share(session, WEBGPU) >= LEAST.get(name, 1), session.explain().counts
    check(session, models / f"{name}.onnx", BOUND)


@pytest.mark.parametrize("name", MODELS)
def test_cut_by_name(name: str, models: Path) -> None:
    """Up to six nodes amid the plugin's are placed on the CPU and on a Python provider."""
    path = models / f"{name}.onnx"
    check(cut_by_name(path, webgpu_provider(), WEBGPU), path, BOUND)
