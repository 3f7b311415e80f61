"""The forms that models can be converted to."""

from __future__ import annotations

import importlib

from intarsia.errors import EPFail, UnknownOption, nearest
from intarsia.providers.vendor.conversion import ConversionTarget

TARGETS: dict[str, str] = {
    "coreml": "intarsia.providers.coreml.conversion:CoreMLTarget",
    "nnapi": "intarsia.providers.nnapi.conversion:NnapiTarget",
    "openvino": "intarsia.providers.openvino.conversion:OpenVINOTarget",
    "tensorrt": "intarsia.providers.tensorrt.conversion:TensorrtTarget",
}
"""`--to` -> "module:class"."""
WITHOUT_WRITER: dict[str, str] = {
    "armnn": "the .armnn files of Arm NN are written by its serializer alone, a C++ library that PyArmNN does not have. "
    "ACLExecutionProvider runs the Arm Compute Library's kernels without a file, and --to openvino writes what OpenVINO for "
    "ARM64 runs by the same kernels",
}
"""Forms that are requested and that nothing can write: why, and what to do instead."""


def load_target(name: str) -> type[ConversionTarget]:
    """The class of a target that can be used here.

    Raises:
        UnknownOption: there is no such target.
        EPFail: its packages are not installed; says what to install.
    """
    if name in WITHOUT_WRITER:
        raise UnknownOption(f"--to: models cannot be converted to {name!r}: {WITHOUT_WRITER[name]}")
    if name not in TARGETS:
        raise UnknownOption(f"--to: models cannot be converted to {name!r}; {nearest(name, TARGETS)}")
    module, _, attribute = TARGETS[name].partition(":")
    found: type[ConversionTarget] = getattr(importlib.import_module(module), attribute)
    if why := found.missing():
        raise EPFail(f"models cannot be converted to {found.what} here: {why}")
    return found
