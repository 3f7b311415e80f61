"""What the hardware of a provider is reached through, and what of that this machine has."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache

from intarsia.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Needs:
    """What a provider's hardware is reached through: shared libraries by their short names, Python packages, platforms."""

    libraries: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    install: str = ""


NEEDS: dict[str, Needs] = {
    "CUDAExecutionProvider": Needs(
        ("cuda",), ("cuda.bindings",), ("Linux", "Windows"), "NVIDIA's driver, version 535 or later"
    ),
    "TensorrtExecutionProvider": Needs(
        ("cuda",), ("tensorrt", "tensorrt_rtx"), ("Linux", "Windows"), "NVIDIA's driver and TensorRT 10 or later, or TensorRT "
        "for RTX: pip install 'intarsia[tensorrt]'",
    ),
    "NvTensorRTRTXExecutionProvider": Needs(
        ("cuda",), ("tensorrt_rtx",), ("Linux", "Windows"), "NVIDIA's driver and pip install 'intarsia[tensorrt]'"
    ),
    "ROCMExecutionProvider": Needs(("amdhip64",), (), ("Linux",), "AMD's ROCm, version 6 or later"),
    "MIGraphXExecutionProvider": Needs(
        ("amdhip64", "migraphx"), (), ("Linux",),
        "AMD's ROCm with MIGraphX; ROCMExecutionProvider runs AMD's GPUs without MIGraphX",
    ),
    "DmlExecutionProvider": Needs(
        ("d3d12",), ("wgpu",), ("Windows",), "Windows 10 version 1903 or later, a driver for Direct3D 12, and pip install wgpu"
    ),
    "CoreMLExecutionProvider": Needs((), ("coremltools",), ("Darwin",), "macOS 14, and pip install 'intarsia[coreml]'"),
    "NnapiExecutionProvider": Needs(("neuralnetworks",), (), ("Android",), "Android 8.1 or later"),
    "ACLExecutionProvider": Needs((), ("openvino",), (), "an ARM64 CPU and pip install openvino, which brings ACL's kernels"),
    "ArmNNExecutionProvider": Needs(("armnn",), ("pyarmnn",), (), "ArmNN (on Debian: python3-pyarmnn)"),
    "WebGpuExecutionProvider": Needs(("vulkan",), ("wgpu",), (), "a Vulkan driver and pip install wgpu"),
    "OpenCLExecutionProvider": Needs(("OpenCL",), ("pyopencl",), (), "a device's OpenCL driver and pip install pyopencl"),
    "QNNExecutionProvider": Needs(
        ("QnnHtp",), (), (), "Qualcomm's AI Engine Direct SDK; NnapiExecutionProvider reaches Qualcomm's NPUs on Android"
    ),
    "VitisAIExecutionProvider": Needs(
        ("onnxruntime_vitisai_ep",), (), ("Linux", "Windows"), "AMD's Vitis AI, or its Ryzen AI Software, with an NPU"
    ),
    "DnnlExecutionProvider": Needs(("dnnl",), (), (), "oneDNN (on Debian: libdnnl3)"),
    "XnnpackExecutionProvider": Needs(
        ("XNNPACK",), (), (), "XNNPACK; CPUExecutionProvider runs the same CPUs by kernels of its own"
    ),
    "CANNExecutionProvider": Needs(("ascendcl",), (), ("Linux",), "Huawei's CANN toolkit"),
}


def looked_for(name: str) -> str:
    """Sentences on what was looked for on this machine for the provider `name`, where, and what was found; "" where unknown."""
    import platform

    needs = NEEDS.get(name)
    if needs is None:
        return ""
    packages = [_package(module) for module in needs.packages]
    if needs.systems and platform.system() not in needs.systems:
        found = [f"this is {platform.system()}, it needs {' or '.join(needs.systems)}", *packages]
    else:
        found = [_library(short) for short in needs.libraries] + packages
    return f"On this machine: {'; '.join(found)}. It needs {needs.install}. "


def _library(short: str) -> str:
    import platform
    from ctypes.util import find_library

    names = {"Windows": f"{short}.dll", "Darwin": f"lib{short}.dylib"}
    file = names.get(platform.system(), f"lib{short}.so")
    if platform.system() == "Windows" and short == "cuda":
        file = "nvcuda.dll"
    variable = {"Windows": "PATH", "Darwin": "DYLD_LIBRARY_PATH"}.get(platform.system(), "LD_LIBRARY_PATH")
    folders = os.environ.get(variable, "")
    found = _searched(find_library, short, folders)
    if found:
        return f"the library {found} is there"
    return f"the library {file} was not found in the loader's folders ({variable} is {folders!r})"


@cache
def _searched(find: Callable[[str], str | None], short: str, folders: str) -> str | None:
    """`find(short)`, once for each value of the loader's folders: on Linux it runs ldconfig, gcc and ld every time."""
    return find(short)


def _package(module: str) -> str:
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        folders = [p for p in sys.path if p.endswith("-packages")]
        return f"the Python package {module!r} was not found in {', '.join(folders) or 'sys.path'}"
    try:
        installed = version(module.replace("_", "-"))
    except PackageNotFoundError:
        installed = "of unknown version"
    return f"the Python package {module!r} {installed} is there ({spec.origin})"
