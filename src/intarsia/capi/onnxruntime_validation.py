"""Checks of the system, as onnxruntime's module of this name has them."""

from __future__ import annotations


def check_distro_info() -> None:
    """Nothing to check: any system that has NumPy and LLVM is supported."""


def check_training_module() -> None:
    """Nothing to check: there is no training module."""


has_ortmodule = False
package_name = "intarsia"
cuda_version = ""
