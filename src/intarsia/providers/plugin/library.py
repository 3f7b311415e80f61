"""Loading a vendor's plugin library for a program: the classes of its providers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from intarsia.ep.hardware import HardwareDevice
from intarsia.machine import fork_safety
from intarsia.printable import get_logger
from intarsia.providers.plugin import entries
from intarsia.providers.plugin.factory import OpenLibrary
from intarsia.providers.plugin.interface.hardware import OrtHardware
from intarsia.providers.plugin.provider import PluginExecutionProvider, provider_class

_logger = get_logger("intarsia.providers.plugin")
_lock = fork_safety.recursive_lock()
_open: dict[str, OpenLibrary] = {}


class PluginLibrary:
    """A plugin library that was registered.

    Attributes:
        providers: one class for each of its factories.
    """

    def __init__(self, library: OpenLibrary, hardware: Sequence[HardwareDevice]) -> None:
        told = [OrtHardware.of(device) for device in hardware]
        factories = library.make_factories()
        self.providers: list[type[PluginExecutionProvider]] = [provider_class(one, told) for one in factories]
        versions = ", ".join(f"{one.name} {one.version} (interface {one.interface_version})" for one in factories)
        _logger.info("loaded %s: %s", library.path, versions)

    def release(self) -> None:
        """Give its factories back, as soon as no session uses them. The library stays in memory: its threads may be in it."""
        for provider in self.providers:
            provider.factory.release()


def load_library(registration_name: str, path: str | os.PathLike[str], hardware: Sequence[HardwareDevice]) -> PluginLibrary:
    """The providers of a plugin library.

    Args:
        registration_name: what the program calls it.
        hardware: this machine's devices, as the plugin is told of them.

    Raises:
        NoSuchFile: there is no such file.
        Fail: it cannot be loaded, or is no plugin.
        IntarsiaError: it refused to make its providers; of the kind that it says, with its words.
    """
    entries.complete()
    resolved = Path(path).resolve()
    with _lock:
        if str(resolved) not in _open:
            _open[str(resolved)] = OpenLibrary(resolved, registration_name)
        return PluginLibrary(_open[str(resolved)], hardware)
