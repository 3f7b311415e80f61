"""What generated code depends on besides its text: this package, the compiler, the CPU. Found out without importing LLVM."""

from __future__ import annotations

import functools
import marshal
import os
import sys

import numpy as np

from intarsia.cache.disk_cache import cached, content_key
from intarsia.machine.amx_permission import refusal


def fingerprint() -> str:
    """Changes with any file of this package, with llvmlite, Python and NumPy, the CPU, and INTARSIA_CPU_FEATURES."""
    return _fingerprint(os.environ.get("INTARSIA_CPU_FEATURES", ""))


def surroundings() -> dict[str, str]:
    """What the fingerprint is made of, each as a hash, by what it is."""
    return _surroundings(os.environ.get("INTARSIA_CPU_FEATURES", ""))


def cpu_key() -> str:
    """A hash of the CPU and INTARSIA_CPU_FEATURES."""
    found = surroundings()
    return content_key(found["the CPU"], found["INTARSIA_CPU_FEATURES"])


def compiler_key() -> str:
    """A hash of the compiler, the CPU and Python."""
    found = surroundings()
    return content_key(found["llvmlite"], found["the CPU"], found["Python"])


@functools.cache
def sources() -> str:
    """A hash of this package's sources that is the same wherever they are installed."""

    def read() -> bytes:
        root = os.path.dirname(os.path.dirname(__file__))
        parts: list[str | bytes] = []
        for path, _, _ in sorted(_states(root)):
            with open(path, "rb") as file:
                parts += [os.path.relpath(path, root).replace(os.sep, "/"), file.read()]
        return content_key(*parts).encode()

    return cached("sources-" + surroundings()["Intarsia's files"], read).decode()


@functools.cache
def _fingerprint(features: str) -> str:
    return content_key(*_surroundings(features).values())


@functools.cache
def _surroundings(features: str) -> dict[str, str]:
    parts: dict[str, str | bytes] = {
        "Python": sys.version, "NumPy": np.__version__, "Intarsia's files": _package(), "llvmlite": _compiler(),
        "the CPU": _cpu(), "INTARSIA_CPU_FEATURES": features,
    }  # fmt: skip
    return {name: content_key(part) for name, part in parts.items()}


def _package() -> bytes:
    """What changes with any file of this package: of one that was installed, the list of its files that the installer wrote."""
    root = os.path.dirname(os.path.dirname(__file__))
    return _installed(root) or marshal.dumps(sorted(_states(root)))


def _installed(root: str) -> bytes:
    """What changes when a package in a folder of installed ones is installed again; b"" where it lies elsewhere."""
    folder, name = os.path.split(root)
    if os.path.basename(folder) not in ("site-packages", "dist-packages"):
        return b""
    with os.scandir(folder) as entries:
        found = [e.path for e in entries if e.name.startswith(f"{name}-") and e.name.endswith(".dist-info")]
    try:
        status = [os.stat(os.path.join(path, "RECORD")) for path in sorted(found)]
    except OSError:
        return b""
    return marshal.dumps([(s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in status]) if status else b""


def _states(folder: str) -> list[tuple[str, int, int]]:
    """Path, size and time of change of the sources below a folder. Each start asks for them: by the folder's descriptor that
    takes less time than by paths."""
    found: list[tuple[str, int, int]] = []
    by_folder = os.stat in os.supports_dir_fd
    folders = [folder]
    while folders:
        path = folders.pop()
        descriptor = os.open(path, os.O_RDONLY) if by_folder else None
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    name = entry.name
                    if name.endswith(".py"):
                        s = os.stat(name, dir_fd=descriptor) if by_folder else entry.stat()
                        found.append((f"{path}/{name}", s.st_size, s.st_mtime_ns))
                    elif "." not in name and name != "__pycache__" and entry.is_dir():
                        folders.append(entry.path)
        finally:
            if descriptor is not None:
                os.close(descriptor)
    return found


def _compiler() -> str:
    from importlib.util import find_spec

    spec = find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return ""
    status = os.stat(spec.origin)
    return f"{spec.origin} {status.st_size} {status.st_mtime_ns}"


def _cpu() -> str:
    if sys.platform == "win32":
        return _windows_cpu()
    try:
        with open("/proc/cpuinfo", "rb") as file:
            lines = file.read(8192).split(b"\n\n", 1)[0].split(b"\n")
    except OSError:
        import platform

        return str(platform.uname())
    names = (b"model name", b"flags", b"Features", b"CPU part")
    found = b"\n".join(line for line in lines if line.split(b":", 1)[0].strip() in names).decode(errors="replace")
    return found + (f"\n{refusal()}" if " amx_tile" in found else "")


def _windows_cpu() -> str:
    """Model and features (IsProcessorFeaturePresent, processthreadsapi.h): `platform` asks a service, which takes longer than a
    start."""
    import ctypes

    has = getattr(ctypes, "windll").kernel32.IsProcessorFeaturePresent  # noqa: B009 # only Windows has it
    names = ("PROCESSOR_ARCHITECTURE", "PROCESSOR_IDENTIFIER", "PROCESSOR_REVISION")
    return " ".join([*(os.environ.get(name, "") for name in names), *(str(has(number)) for number in range(64))])
