"""The openvino package: where it is, what it sees, and its messages in one line."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
from typing import Any

from intarsia.machine import fork_safety

MINIMUM = (2024, 4)
INSTALL = "pip install 'openvino>=2025.0', or intarsia[openvino]"
_lock = fork_safety.lock()


@functools.cache
def missing() -> str:
    """What can be said without importing the openvino package: it is not there, or too old; "" where neither."""
    spec = importlib.util.find_spec("openvino")
    if spec is None:
        import sys

        folders = [p for p in sys.path if p.endswith("-packages")]
        return f"the Python package 'openvino' was not found in {', '.join(folders) or 'sys.path'}; install it: {INSTALL}"
    version, where = installed_version(), next(iter(spec.submodule_search_locations or ()), spec.origin)
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    if numbers and numbers < MINIMUM:
        return f"openvino {version} ({where}) is older than {MINIMUM[0]}.{MINIMUM[1]}: {INSTALL}"
    return ""


@functools.cache
def broken() -> str:
    """Why the openvino package that is there does not start; "" where it does."""
    try:
        core()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        where = getattr(importlib.util.find_spec("openvino"), "origin", "")
        return (
            f"openvino {installed_version()} ({where}) does not start: {type(error).__name__}: {shortened(error)}; "
            f"reinstall it: {INSTALL}"
        )
    return ""


def installed_version() -> str:
    """The version of the installed distribution; "" where it has no metadata."""
    try:
        return importlib.metadata.version("openvino")
    except importlib.metadata.PackageNotFoundError:
        return ""


def core() -> Any:
    """The process's `openvino.Core`."""
    with _lock:
        return _core()


@functools.cache
def _core() -> Any:
    import openvino

    return openvino.Core()


def devices() -> list[str]:
    return list(core().available_devices)


def missing_device(device: str) -> str:
    """Why `device` cannot be used; "" where it can."""
    seen = devices()
    kinds = device.partition(":")[2].split(",") if ":" in device else [device] if device != "AUTO" else []
    for member in filter(None, kinds):
        name = member.removeprefix("-").partition("(")[0]
        if not any(
            s == name or s.startswith(f"{name}.") or (s == name.partition(".")[0] and name.endswith(".0")) for s in seen
        ):
            return (
                f"openvino {installed_version()} finds no device {name!r}: it sees {', '.join(seen)}; "
                f"{_DRIVERS.get(name[:3], '')}or name a device that is there in option 'device_type'"
            )
    return ""


_DRIVERS = {
    "GPU": "install the GPU's compute driver (on Debian: intel-opencl-icd, and access to /dev/dri), ",
    "NPU": "install the NPU's driver (intel-driver-compiler-npu and intel-level-zero-npu), ",
}


def shortened(error: BaseException) -> str:
    """OpenVINO's message without source lines, as one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    chosen = [
        line for line in lines
        if line and not line.startswith(("Exception from", "Check '", "Summary:", "To facilitate", "FrontEnd API failed",
                                         "Model wasn't fully"))
    ]  # fmt: skip
    return " ".join(chosen or [line for line in lines if line])[:600]
