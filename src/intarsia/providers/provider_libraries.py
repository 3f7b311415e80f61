"""Providers that a program registers by a file: Python, or a shared library behind onnxruntime's plugin interface."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from intarsia.ep.provider import ExecutionProvider
from intarsia.errors import Fail, InvalidArgument, nearest
from intarsia.machine import fork_safety
from intarsia.providers.registry import register_execution_provider, unregister_execution_provider

_libraries: dict[str, list[str]] = {}
_lock = fork_safety.lock()


def register_execution_provider_library(registration_name: str, library_path: str | os.PathLike[str]) -> None:
    """Register the providers of a Python file: every subclass of `ExecutionProvider` that it defines.

    Libraries compiled against onnxruntime's C interface cannot be loaded. `get_ep_devices` lists what was registered.

    Raises:
        Fail: the name is registered already, the file does not exist or cannot be imported, or it defines no provider.
    """
    path = Path(library_path)
    with _lock:
        if registration_name in _libraries:
            raise Fail(f"library {registration_name!r} is already registered: library is already registered under this name")
        if not path.is_file():
            raise Fail(
                f"Failed to load library {library_path} with error: cannot open shared object file: No such file or directory"
            )
        if path.suffix != ".py":
            raise Fail(
                f"Failed to load library {library_path}: expected a Python file that defines ExecutionProvider classes; "
                "libraries for onnxruntime's C interface cannot be loaded"
            )
        providers = _providers_in(registration_name, path)
        done: list[str] = []
        try:
            for provider in providers:
                register_execution_provider(provider)
                done.append(provider.name)
        except InvalidArgument as error:
            for name in done:
                unregister_execution_provider(name)
            raise Fail(f"Failed to load library {library_path}: {error}") from error
        _libraries[registration_name] = done


def _providers_in(name: str, path: Path) -> list[type[ExecutionProvider]]:
    import importlib.util

    module_name = f"intarsia_library_{name}".replace(".", "_")
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        raise Fail(f"Failed to load library {path}: {type(error).__name__}: {error}") from error
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, ExecutionProvider) and value.__module__ == module_name
    ]
    if not found:
        raise Fail(f"Failed to load library {path}: it defines no subclass of ExecutionProvider")
    return found


def unregister_execution_provider_library(registration_name: str) -> None:
    """Forget the providers of a library. Sessions that use them are not affected.

    Raises:
        Fail: no library was registered under this name.
    """
    with _lock:
        if registration_name not in _libraries:
            raise Fail(
                f"Execution provider library: {registration_name} was not registered. {nearest(registration_name, _libraries)}"
            )
        names = _libraries.pop(registration_name)
    for name in names:
        unregister_execution_provider(name)
    sys.modules.pop(f"intarsia_library_{registration_name}".replace(".", "_"), None)
