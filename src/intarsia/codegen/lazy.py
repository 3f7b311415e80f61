"""`llvmlite.ir`, imported when it is first used: binding a program that comes from the cache needs no generator of code."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["ir"]

if TYPE_CHECKING:
    import llvmlite.ir as ir
else:

    class _Module:
        def __getattr__(self, name: str) -> Any:
            value = getattr(importlib.import_module("llvmlite.ir"), name)
            setattr(self, name, value)
            return value

    ir = _Module()
