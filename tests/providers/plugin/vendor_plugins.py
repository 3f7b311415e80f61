"""Vendors' plugin libraries that are installed, for the tests that run them."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

from intarsia.ep.hardware import HardwareDevice
from intarsia.providers.plugin.library import PluginLibrary, load_library

AMD, INTEL = 0x1022, 0x8086
EXACT = json.dumps({"CPU": {"INFERENCE_PRECISION_HINT": "f32", "EXECUTION_MODE_HINT": "ACCURACY"}})
"""By itself the OpenVINO plugin computes in bfloat16 where the CPU can."""
OPENVINO_OPTIONS = {"intarsia.vendor_id": hex(INTEL), "load_config": EXACT}


def package_folder(package: str) -> Path | None:
    """Where a plugin's package is installed."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def library_path(package: str) -> Path:
    """A plugin's library; the test is skipped where its package is absent."""
    folder = package_folder(package)
    if folder is None:
        pytest.skip(f"needs {package.replace('_', '-')} (extra: plugins)")
    return next(path for path in sorted(folder.glob("*onnxruntime_providers_*")) if path.suffix in (".so", ".dll"))


@functools.cache
def openvino() -> PluginLibrary:
    """The OpenVINO plugin, told of an AMD CPU."""
    return load_library("OpenVINO", library_path("onnxruntime_ep_openvino"), [HardwareDevice("cpu", "AMD", AMD)])


def openvino_provider(**options: str) -> tuple[type[Any], dict[str, str]]:
    """The OpenVINO plugin's provider with options that have it compute in float32."""
    return openvino().providers[0], {**OPENVINO_OPTIONS, **options}


def software_vulkan() -> str:
    """The file that tells of SwiftShader's Vulkan driver (Debian: chromium-common), which Dawn takes; "" where it is not the
    driver of this process."""
    named = os.environ.get("VK_DRIVER_FILES", "")
    return named if "swiftshader" in named else ""


@functools.cache
def webgpu() -> PluginLibrary:
    """The WebGPU plugin, told of SwiftShader as a GPU."""
    if not software_vulkan():
        pytest.skip("needs SwiftShader: VK_DRIVER_FILES=/usr/lib/chromium/vk_swiftshader_icd.json (Debian: chromium-common)")
    return load_library("WebGPU", library_path("onnxruntime_ep_webgpu"), [HardwareDevice("gpu", "Google", 0x1AE0, 0xC0DE)])


def webgpu_provider(**options: str) -> tuple[type[Any], dict[str, str]]:
    """The WebGPU plugin's provider."""
    return webgpu().providers[0], options
