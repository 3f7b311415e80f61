"""OrtEp: one provider of a session, made by a plugin's factory, and what surrounds its runs."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from intarsia.ep.program import RunContext
from intarsia.errors import EPFail
from intarsia.providers.plugin.factory import Factory
from intarsia.providers.plugin.hardware import OrtEpDevice
from intarsia.providers.plugin.members import Members
from intarsia.providers.plugin.session_state import Logger, RunOptions, SessionOptions


class PluginEp:
    """A plugin's provider, released with the last reference.

    Args:
        devices: those that it is to use, from `Factory.devices`.
        entries: configuration entries of the session, and the provider's options under "ep.NAME.".

    Raises:
        EPFail: the plugin cannot make it, or its library was unregistered.
    """

    def __init__(self, factory: Factory, devices: Sequence[OrtEpDevice], entries: Mapping[str, str]) -> None:
        self.alive = False
        if factory.released:
            raise EPFail(f"{factory.name}: its library {factory.library.path.name} was unregistered")
        self.factory, self.devices = factory, list(devices)
        self.options = SessionOptions(entries)
        self.logger = Logger(factory.name)
        hardware = (ctypes.c_void_p * max(1, len(devices)))(*(device.hardware.handle for device in devices))
        metadata = (ctypes.c_void_p * max(1, len(devices)))(*(device.metadata.handle for device in devices))
        made = ctypes.c_void_p(None)
        factory.members.call(
            "CreateEp", ctypes.addressof(hardware), ctypes.addressof(metadata), len(devices), self.options.handle,
            self.logger.handle, ctypes.addressof(made),
        )  # fmt: skip
        self.members = Members("OrtEp", made.value or 0, factory.name)
        self.alive = True
        factory.used_by(self)
        self.name, self.version = factory.name, factory.version
        self.concurrent = self._answer("IsConcurrentRunSupported", default=True)
        self._has_run_hooks = self.members.has("OnRunStart") or self.members.has("OnRunEnd")

    def _answer(self, name: str, *, default: bool) -> bool:
        if not self.members.has(name):
            return default
        found = ctypes.c_bool(default)
        self.members.call(name, ctypes.addressof(found))
        return found.value

    def run(self, run: RunContext | None) -> Any:
        """A context around a run: the plugin is told of its beginning and its end."""
        return self._told(run) if self._has_run_hooks else nullcontext()

    @contextmanager
    def _told(self, run: RunContext | None) -> Iterator[None]:
        options = RunOptions(run.config if run is not None else {}, _tag(run))
        self.members.call_if_there("OnRunStart", options.handle)
        try:
            yield
        finally:
            self.members.call_if_there("OnRunEnd", options.handle, True)

    def __del__(self) -> None:
        if self.alive:
            self.alive = False
            self.factory.members.call("ReleaseEp", self.members.address)
            self.factory.left_by(self)


def _tag(run: RunContext | None) -> str:
    return str(getattr(run.options, "logid", "") or "") if run is not None and run.options is not None else ""
