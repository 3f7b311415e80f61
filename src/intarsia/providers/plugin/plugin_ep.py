"""OrtEp: one provider of a session, made by a plugin's factory, and what surrounds its runs."""

from __future__ import annotations

import atexit
import ctypes
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from intarsia.ep.program import RunContext
from intarsia.errors import EPFail
from intarsia.providers.plugin.factory import Factory
from intarsia.providers.plugin.interface.handles import find
from intarsia.providers.plugin.interface.hardware import OrtEpDevice
from intarsia.providers.plugin.interface.members import Members
from intarsia.providers.plugin.interface.session_state import Logger, RunOptions, SessionOptions
from intarsia.providers.plugin.kernel_registry import KernelRegistry
from intarsia.providers.plugin.owned import Compiled, Owned, Released
from intarsia.providers.plugin.streams import SyncStream

_NHWC = 1  # OrtDataLayout
_live: weakref.WeakSet[PluginEp] = weakref.WeakSet()


@atexit.register
def _leave() -> None:
    """The interpreter ends: the system takes back what plugins have, in no order that they would know."""
    for ep in list(_live):
        ep.alive = False


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
        self._owned: dict[Owned, None] = {}
        _live.add(self)
        factory.used()
        self.name, self.version = factory.name, factory.version
        self.concurrent = self._answer("IsConcurrentRunSupported", default=True)
        self.stream = self._make_stream()
        self.registry = self._registry()
        self.prefers_channels_last = self._prefers_channels_last()
        self._plain_run = RunOptions({})
        self._has_run_hooks = any(map(self.members.has, ("OnRunStart", "OnRunEnd"))) or self.stream is not None

    def _answer(self, name: str, *, default: bool) -> bool:
        if not self.members.has(name):
            return default
        found = ctypes.c_bool(default)
        self.members.call(name, ctypes.addressof(found))
        return found.value

    def _registry(self) -> KernelRegistry | None:
        """Its kernels, where it runs nodes by kernels."""
        found = ctypes.c_void_p(None)
        self.members.call_if_there("GetKernelRegistry", ctypes.addressof(found))
        return find(found.value, KernelRegistry) if found.value else None

    def _prefers_channels_last(self) -> bool:
        """Whether it wants its nodes' data with their channels last (OrtDataLayout_NHWC)."""
        found = ctypes.c_int32(0)
        self.members.call_if_there("GetPreferredDataLayout", ctypes.addressof(found))
        return found.value == _NHWC

    def converts_layout(self, domain: str, op_type: str) -> bool | None:
        """Whether it wants nodes of an operator so; None where it leaves that to the host."""
        found = ctypes.c_int32(-1)
        names = (domain.encode(), op_type.encode())
        self.members.call_if_there("ShouldConvertDataLayoutForOp", *names, _NHWC, ctypes.addressof(found))
        return bool(found.value) if found.value >= 0 else None

    def _make_stream(self) -> SyncStream | None:
        """A stream of its device, where the plugin is aware of streams."""
        aware = self.factory.members.call_if_there("IsStreamAware")
        memory = next((info for device in self.devices for info in device.memories if not info.on_host), None)
        if not aware or memory is None:
            return None
        made = ctypes.c_void_p(None)
        if self.members.has("CreateSyncStreamForDevice"):
            self.members.call("CreateSyncStreamForDevice", memory.handle, ctypes.addressof(made))
        else:
            self.factory.members.call("CreateSyncStreamForDevice", memory.handle, None, ctypes.addressof(made))
        if not made.value:
            return None
        stream = SyncStream(made.value, self.name)
        self.own(Released(stream.members))
        return stream

    def run(self, run: RunContext | None) -> Any:
        """A context around a run: the plugin is told of its beginning and its end."""
        return self._told(run) if self._has_run_hooks else nullcontext()

    @contextmanager
    def _told(self, run: RunContext | None) -> Iterator[None]:
        plain = run is None or not (run.config or _tag(run))
        options = self._plain_run if plain else RunOptions(run.config if run is not None else {}, _tag(run))
        self.members.call_if_there("OnRunStart", options.handle)
        try:
            yield
        finally:
            self.members.call_if_there("OnRunEnd", options.handle, True)
            if self.stream is not None:
                self.stream.flush()
                self.stream.end_run()

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
        self.own(made)
        return made

    def own(self, made: Owned) -> None:
        """Hold what it has made until `release`, or its own end."""
        self._owned[made] = None

    def release(self, made: Owned) -> None:
        """Give back what it has made."""
        self._owned.pop(made, None)
        if self.alive:
            made.release()

    def __del__(self) -> None:
        if not self.alive:
            return
        self.alive = False
        try:
            for made in list(reversed(self._owned)):  # the garbage collector ends programs and providers in any order
                made.release()
        finally:
            self.factory.members.call("ReleaseEp", self.members.address)
            self.factory.left()


def _tag(run: RunContext | None) -> str:
    return str(getattr(run.options, "logid", "") or "") if run is not None and run.options is not None else ""
