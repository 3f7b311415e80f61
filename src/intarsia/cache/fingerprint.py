"""What generated code depends on besides its text: this package, the compiler, the CPU. Found out without importing LLVM."""

from __future__ import annotations

import functools
import marshal
import os
import sys
import time

import numpy as np

from intarsia.cache.disk_cache import cached, content_key, get_cache
from intarsia.machine.amx_permission import refusal

_SOURCES = (".py", ".txt")
_SETTLED_NS = 2_000_000_000  # clocks of file systems tick more often than this


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
        for path, _, _ in _states(root):
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
    return _installed(root) or marshal.dumps(_states(root))


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


def _states(root: str) -> list[tuple[str, int, int]]:
    """Path, size and time of change of each source below a folder, sorted by path. Each start of a checkout reads them."""
    cache, key = get_cache(), f"sources-of-{content_key(root)}"
    if (noted := cache.get(key)) is not None and (found := _noted_states(root, noted)) is not None:
        return found
    folders, files = _listing(root)
    if time.time_ns() - max(changed for _, changed in folders) > _SETTLED_NS:
        cache.put(key, marshal.dumps((folders, files)))
    return _states_of(root, files)


def _noted_states(root: str, noted: bytes) -> list[tuple[str, int, int]] | None:
    """By a listing of an earlier process, if its folders have not changed since: which takes half the time of a new one, for
    a hundred folders."""
    try:
        folders, files = marshal.loads(noted)  # noqa: S302 # beside machine code: the cache is trusted
        if any(os.stat(folder).st_mtime_ns != changed for folder, changed in folders):
            return None
        return _states_of(root, files)
    except (OSError, ValueError, TypeError, EOFError):  # a file is gone; or it is no listing
        return None


def _listing(root: str) -> tuple[list[tuple[str, int]], list[str]]:
    """All folders below one, each with its time of change, and the sources in them, by their paths from it."""
    folders, files, left = list[tuple[str, int]](), list[str](), [root]
    while left:
        path = left.pop()
        folders.append((path, os.stat(path).st_mtime_ns))  # before it is read: what comes meanwhile makes it another
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.endswith(_SOURCES):
                    files.append(entry.path[len(root) + 1 :])
                elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                    left.append(entry.path)
    return folders, sorted(files)


def _states_of(root: str, files: list[str]) -> list[tuple[str, int, int]]:
    """By the folder's descriptor, where the system has that, files are found sooner than by paths."""
    descriptor = os.open(root, os.O_RDONLY) if os.stat in os.supports_dir_fd else None
    try:
        found = []
        for name in files:
            s = os.stat(name, dir_fd=descriptor) if descriptor is not None else os.stat(f"{root}/{name}")
            found.append((f"{root}/{name}", s.st_size, s.st_mtime_ns))
        return found
    finally:
        if descriptor is not None:
            os.close(descriptor)


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
    """Model and features (IsProcessorFeaturePresent, processthreadsapi.h): `platform` calls a service, which takes more than a
    start."""
    import ctypes

    has = getattr(ctypes, "windll").kernel32.IsProcessorFeaturePresent  # noqa: B009 # only Windows has it
    names = ("PROCESSOR_ARCHITECTURE", "PROCESSOR_IDENTIFIER", "PROCESSOR_REVISION")
    return " ".join([*(os.environ.get(name, "") for name in names), *(str(has(number)) for number in range(64))])
