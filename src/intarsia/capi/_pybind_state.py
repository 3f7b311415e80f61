"""The same names as `onnxruntime_pybind11_state`: onnxruntime's own modules import them from here."""

from __future__ import annotations

from typing import Any

from intarsia.capi import onnxruntime_pybind11_state as _state

__all__ = list(_state.__all__)  # the other module's list


def __getattr__(name: str) -> Any:
    return getattr(_state, name)


def __dir__() -> list[str]:
    return sorted(__all__)
