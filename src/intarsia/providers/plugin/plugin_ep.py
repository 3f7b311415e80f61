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


class Compiled:
    """OrtNodeComputeInfo of a plugin, with the state that it made. Released once, by whoever comes first.

    Raises:
        EPFail: it has no function to compute with, or made no state.
    """

    def __init__(self, ep: Members, address: int, context: int) -> None:
        self.address, self._ep = address, ep
        self.members = Members("OrtNodeComputeInfo", address, ep.provider)
        self.state = ctypes.c_void_p(None)
        self._has_state = False
        if not self.members.has("Compute"):
            raise EPFail(f"{ep.provider} compiled a part without a function Compute")
        self.members.call("CreateState", context, ctypes.addressof(self.state))
        self._has_state = True

    def release(self) -> None:
        """Give state and info back to the plugin."""
        address, self.address = self.address, 0
        if not address:
            return
        if self._has_state:
            self.members.call_if_there("ReleaseState", self.state)
        infos = (ctypes.c_void_p * 1)(address)
        self._ep.call_if_there("ReleaseNodeComputeInfos", ctypes.addressof(infos), 1)


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
        self._compiled: set[Compiled] = set()
        factory.used()
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

    def compiled(self, address: int, context: int) -> Compiled:
        """What it compiled a part to, at an address: with a state, and released before the provider is.

        Args:
            context: OrtNodeComputeContext.

        Raises:
            EPFail: it cannot be run.
        """
        try:
            made = Compiled(self.members, address, context)
        except BaseException:
            infos = (ctypes.c_void_p * 1)(address)
            self.members.call_if_there("ReleaseNodeComputeInfos", ctypes.addressof(infos), 1)
            raise
        self._compiled.add(made)
        return made

    def release_compiled(self, made: Compiled) -> None:
        """Give back what it compiled a part to."""
        self._compiled.discard(made)
        made.release()

    def __del__(self) -> None:
        if not self.alive:
            return
        self.alive = False
        try:
            for made in self._compiled:  # the garbage collector ends programs and providers in any order
                made.release()
        finally:
            self.factory.members.call("ReleaseEp", self.members.address)
            self.factory.left()


def _tag(run: RunContext | None) -> str:
    return str(getattr(run.options, "logid", "") or "") if run is not None and run.options is not None else ""
