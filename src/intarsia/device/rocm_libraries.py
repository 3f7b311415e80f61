"""Where ROCm's libraries are: the loader's folders, ROCm's own, and packages that bring them along.

They are loaded only where a GPU can be there: they bring an LLVM along, and one of another copy that is loaded later (by a
driver of OpenCL, say) ends the process.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import importlib.util
import os
import sysconfig
from pathlib import Path

from intarsia.errors import EPFail

_VERSIONS = ("", ".7", ".6", ".5")
_PACKAGES = ("_rocm_sdk_core", "torch")
KERNEL_DRIVER = Path("/dev/kfd")
INSTALL = "install AMD's ROCm, version 6 or later (rocm-hip-runtime), and let the user read /dev/kfd (group render)"


def folders() -> list[str]:
    """Besides those that the loader knows."""
    found = [f"{os.environ[name]}/lib" for name in ("ROCM_PATH", "HIP_PATH") if os.environ.get(name)]
    found += ["/opt/rocm/lib", *sorted(glob.glob("/opt/rocm-*/lib"), reverse=True)]  # noqa: PTH207
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        found += [str(Path(place) / "lib") for place in (spec.submodule_search_locations if spec else None) or ()]
    return list(dict.fromkeys(found))


def place(short: str) -> Path | None:
    """The file of the shared library `lib<short>.so`, as far as it can be found without loading it."""
    triple = sysconfig.get_config_var("MULTIARCH") or ""
    own = [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
    common = [f"/usr/lib/{triple}", "/usr/lib64", "/usr/lib", "/usr/local/lib"]
    paths = (Path(folder) / name for folder in (*own, *common, *folders()) for name in _names(short))
    return next((path for path in paths if path.exists()), None)


def _names(short: str) -> list[str]:
    return [f"lib{short}.so{version}" for version in _VERSIONS]


def not_found(short: str, wrong: str = "") -> str:
    names = _names(short)
    return (
        f"{names[0]} ({', '.join(v for v in _VERSIONS if v)}) is found neither by the loader (LD_LIBRARY_PATH is "
        f"{os.environ.get('LD_LIBRARY_PATH', '')!r}) nor in {', '.join(folders())}{wrong}: {INSTALL}"
    )


@functools.cache
def library(short: str) -> ctypes.CDLL:
    """The shared library `lib<short>.so`.

    Raises:
        EPFail: it is not found, or cannot be loaded; says where was looked.
    """
    for name in _names(short):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    wrong = ""
    for path in (Path(folder) / name for folder in folders() for name in _names(short)):
        if path.exists():
            try:
                return ctypes.CDLL(str(path))
            except OSError as error:
                wrong = wrong or f"; {path} does not load: {error}"
    raise EPFail(not_found(short, wrong))
