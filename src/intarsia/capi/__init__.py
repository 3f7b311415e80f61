"""Modules that programs import from onnxruntime.capi."""

from __future__ import annotations

from types import ModuleType

_MODULES = (
    "_pybind_state",
    "build_and_package_info",
    "onnxruntime_inference_collection",
    "onnxruntime_pybind11_state",
    "onnxruntime_validation",
)


def __getattr__(name: str) -> ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module 'intarsia.capi' has no attribute {name!r}")
    import importlib

    return importlib.import_module(f"intarsia.capi.{name}")


def __dir__() -> list[str]:
    return sorted(_MODULES)
