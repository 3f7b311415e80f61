"""`intarsia.plugin_library()`: the library for this process."""

from __future__ import annotations

import atexit
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from intarsia.errors import NotImplemented
from intarsia.machine import fork_safety
from intarsia.ort_plugin.factory import callbacks
from intarsia.ort_plugin.loaded_library import FILE, Library, library_bytes

_lock = fork_safety.lock()
_loaded: list[Library] = []


def plugin_library() -> str:
    """The path of a shared library by which onnxruntime, in this process, runs models on Intarsia's CPU provider.

    The first call writes it into a folder of its own, which is removed when the process ends:

        onnxruntime.register_execution_provider_library("IntarsiaCPU", intarsia.plugin_library())
        devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == "IntarsiaCPU"]
        options.add_provider_for_devices(devices, {})

    Raises:
        NotImplemented: this system's libraries are not those of Linux on x86-64.
        EPFail: the library cannot be made (llvmlite is missing), or not be loaded.
    """
    with _lock:
        if not _loaded:
            _loaded.append(_made())
        return str(_loaded[0].path)


def _made() -> Library:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NotImplemented(
            f"plugin_library() makes libraries for Linux on x86-64; this is {sys.platform} on {platform.machine()}: run the "
            "model with intarsia.InferenceSession instead"
        )
    folder = Path(tempfile.mkdtemp(prefix="intarsia-plugin-"))
    atexit.register(_remove, folder, os.getpid())
    path = folder / FILE
    path.write_bytes(library_bytes())
    path.chmod(0o500)
    library = Library(path)
    library.fill(callbacks(library))
    atexit.register(library.leave)
    return library


def _remove(folder: Path, owner: int) -> None:
    """Remove the folder where this is the process that made it, not a child of it."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
