"""Providers that a program registers by a file, or that an installed package brings as a plugin library.

A file is Python with classes of providers, or a shared library behind onnxruntime's plugin interface.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from intarsia.device.hardware.discovery import hardware_devices, software_devices
from intarsia.device.nvidia_libraries import folders
from intarsia.ep.hardware import HardwareDevice
from intarsia.ep.provider import ExecutionProvider
from intarsia.errors import Fail, IntarsiaError, InvalidArgument, WrongType, nearest
from intarsia.machine import fork_safety
from intarsia.providers import shared_library
from intarsia.providers.plugin_packages import PluginPackage
from intarsia.providers.registry import CPU, REFERENCE, register_execution_provider, unregister_execution_provider

_LOADER = "intarsia.providers.plugin.library:load_library"
VIRTUAL = ".virtual"
"""At the end of a registration's name: the library is told of devices that the processor imitates, too."""


class PluginLibrary(Protocol):
    """A plugin library that was loaded: a class for each of its providers."""

    providers: Sequence[type[ExecutionProvider]]

    def release(self) -> None:
        """Let it go, as soon as no session uses it."""


class _Registered:
    """What was registered under a name: its file, names of its providers, and the plugin library where it is one."""

    def __init__(self, path: Path, names: list[str], library: PluginLibrary | None) -> None:
        self.path, self.names, self.library = path, names, library


_libraries: dict[str, _Registered] = {}
_of_packages: dict[Path, PluginLibrary] = {}
_lock = fork_safety.lock()


def register_execution_provider_library(registration_name: str, library_path: str | os.PathLike[str]) -> None:
    """Register the providers of a file: a shared library for onnxruntime's plugin interface, or Python (".py"), of which
    every subclass of `ExecutionProvider` that it defines counts.

    A provider of a shared library that has the name of one of Intarsia's own stands in for it until it is unregistered.
    Where the name ends in ".virtual", a library is told of GPUs that the processor imitates, too. A relative path is one
    from the current folder. `get_ep_devices` lists what was registered.

    Raises:
        Fail: the name is registered already; the file does not exist, is no library for this machine, needs others that are
            missing, refuses, or cannot be imported; it defines no provider, or one that another library has.
        WrongType: arguments that are no text and no path.
    """
    path = _checked(registration_name, library_path)
    with _lock:
        if registration_name in _libraries:
            raise Fail(
                f"library {registration_name!r} is already registered: library is already registered under this name "
                f"({_libraries[registration_name].path}); unregister it before, or choose another name"
            )
        try:
            names, library = _loaded(registration_name, path)
        except Fail:
            raise
        except IntarsiaError as error:
            raise Fail(f"Failed to load library {library_path}: {error}") from error
        _libraries[registration_name] = _Registered(path, names, library)


def _loaded(registration_name: str, path: Path) -> tuple[list[str], PluginLibrary | None]:
    """Names of a file's providers, registered, and the plugin library where it is one."""
    if path.suffix == ".py":
        return _register(_providers_in(registration_name, path), path, replace=False), None
    library = load_plugin(registration_name, path, virtual=registration_name.endswith(VIRTUAL))
    try:
        return _register(library.providers, path, replace=True), library
    except Fail:
        library.release()
        raise


def _checked(registration_name: str, library_path: str | os.PathLike[str]) -> Path:
    if not isinstance(registration_name, str):
        raise WrongType(f"registration_name: expected text, got {registration_name!r}")
    if not isinstance(library_path, (str, os.PathLike)):
        raise WrongType(f"library_path: expected a path, got {library_path!r}")
    path = Path(library_path).absolute()
    if not path.exists():
        raise Fail(
            f"Failed to load library {library_path} with error: cannot open shared object file: No such file or directory"
        )
    return path


def _register(providers: Sequence[type[ExecutionProvider]], path: Path, *, replace: bool) -> list[str]:
    """Names of providers that are known now; none is where one cannot be."""
    done: list[str] = []
    try:
        for provider in providers:
            _check_name(provider.name)
            register_execution_provider(provider, replace=replace)
            done.append(provider.name)
    except InvalidArgument as error:
        for name in done:
            unregister_execution_provider(name)
        raise Fail(f"Failed to load library {path}: {error}") from error
    return done


def _check_name(name: str) -> None:
    """That a provider's name is nobody else's. Those of Intarsia's providers may be taken by libraries, but for two."""
    other = next((r.path for r in _libraries.values() if name in r.names), None)
    if other is not None:
        raise InvalidArgument(f"it has a provider {name!r}, and so has {other}, which is registered already")
    if name in (CPU, REFERENCE):
        raise InvalidArgument(f"it has a provider {name!r}, which is registered already: every session may need it")


def load_plugin(registration_name: str, path: Path, *, virtual: bool = False) -> PluginLibrary:
    """A plugin library, loaded, after what it needs.

    Raises:
        Fail: it is no library for this machine, or needs others that are missing.
        IntarsiaError: it refuses; of the kind that it says.
    """
    try:
        missing = shared_library.load_what_it_needs(path, folders())
    except (shared_library.NotALibraryError, OSError) as error:
        expected = "expected a shared library for onnxruntime's plugin interface, or a Python file (.py)"
        raise Fail(f"Failed to load library {path}: {error}; {expected}") from error
    if missing:
        raise Fail(f"Failed to load library {path}: {shared_library.missing_message(missing)}")
    module, _, function = _LOADER.partition(":")
    offered: tuple[HardwareDevice, ...] = (*hardware_devices(), *(software_devices() if virtual else ()))
    loaded: PluginLibrary = getattr(importlib.import_module(module), function)(registration_name, str(path), offered)
    return loaded


def _providers_in(name: str, path: Path) -> list[type[ExecutionProvider]]:
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
    """Forget the providers of a library. Sessions that use them are not affected: a shared library is unloaded with the
    last of them, and stays in memory.

    Raises:
        Fail: no library was registered under this name.
    """
    with _lock:
        if registration_name not in _libraries:
            raise Fail(
                f"Execution provider library: {registration_name} was not registered. {nearest(registration_name, _libraries)}"
            )
        found = _libraries.pop(registration_name)
    for name in found.names:
        unregister_execution_provider(name)
    sys.modules.pop(f"intarsia_library_{registration_name}".replace(".", "_"), None)
    if found.library is not None:
        found.library.release()


def provider_of_package(package: PluginPackage, name: str) -> type[ExecutionProvider]:
    """The class of an installed package's provider, its library loaded once in a process. `name`: the provider's, or the
    package's for the first one.

    Raises:
        Fail: the package cannot be queried, its library does not load, or has no such provider.
        IntarsiaError: it refuses; of the kind that it says.
    """
    try:
        path, names = package.ask()
    except Exception as error:
        raise Fail(
            f"the package {package.distribution} {package.version} does not say where its library is: "
            f"{type(error).__name__}: {error}"
        ) from error
    with _lock:
        if path not in _of_packages:
            _of_packages[path] = load_plugin(names[0], path)  # some call their provider as they are registered
        providers = _of_packages[path].providers
    found = next((p for p in providers if p.name == name), None)
    if found is None and name == package.distribution and providers:
        found = providers[0]
    if found is None:
        listed = ", ".join(p.name for p in providers) or "none"
        raise Fail(f"the package {package.distribution} {package.version} has no provider {name!r}; its library has: {listed}")
    return found
