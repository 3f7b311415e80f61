"""A plugin's own profiler (OrtEpProfilerImpl): told of each call while a profile is wanted, and queried for its events."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from intarsia.ep.provider import CompileContext, DeviceEvent
from intarsia.errors import IntarsiaError
from intarsia.printable import get_logger
from intarsia.providers.plugin.interface.members import Members
from intarsia.providers.plugin.interface.profiling_entries import CATEGORIES, ProfilingEvent, ProfilingEvents
from intarsia.providers.plugin.owned import Released
from intarsia.providers.plugin.plugin_ep import PluginEp

_logger = get_logger("intarsia.providers.plugin")
_NODE = CATEGORIES.index("Node")


class EpProfiler:
    """The profiler of a plugin's provider during one profile of a session. What it fails in is logged, and stops no run.

    Args:
        began_ns: when the profile began (`time.perf_counter_ns`).
    """

    def __init__(self, ep: PluginEp, began_ns: int) -> None:
        self._ep, self._began_ns = ep, began_ns
        self._made: Released | None = None
        self._members: Members | None = None
        self._start()

    def _start(self) -> None:
        made = ctypes.c_void_p(None)
        self._ep.members.call("CreateProfiler", ctypes.addressof(made))
        self._members = Members("OrtEpProfilerImpl", made.value, self._ep.name) if made.value else None
        if self._members is None:
            return
        self._made = Released(self._members)
        self._ep.own(self._made)
        self._call("StartProfiling", time.perf_counter_ns() - self._began_ns)

    def _call(self, name: str, *arguments: object) -> None:
        if self._members is None:
            return
        try:
            self._members.call_if_there(name, *arguments)
        except IntarsiaError as error:
            _logger.warning("a plugin's profiler failed: %s", error)

    @contextmanager
    def told(self, name: str) -> Iterator[None]:
        """Around a call, by the name of what is called: work that the plugin begins in it belongs to it."""
        start, key = time.perf_counter_ns(), time.time_ns() // 1000
        self._call("StartEvent", key)
        try:
            yield
        finally:
            begin = (start - self._began_ns) // 1000
            duration = (time.perf_counter_ns() - start) // 1000
            arguments = {"op_name": name, "provider": self._ep.name}
            event = ProfilingEvent(_NODE, f"{name}_kernel_time", begin, duration, arguments)
            self._call("StopEvent", key, event.handle)

    def events(self) -> list[DeviceEvent]:
        """What it measured since it was asked last."""
        if self._members is None or not self._ep.alive:
            return []
        container = ProfilingEvents()
        self._call("EndProfiling", container.handle)
        if self._made is not None:
            self._ep.release(self._made)
        self._start()
        return [self._event(event) for event in container.events]

    def _event(self, event: ProfilingEvent) -> DeviceEvent:
        start = self._began_ns + event.start_us * 1000
        arguments = {"provider": self._ep.name, **event.arguments}
        end = start + event.duration_us * 1000
        return DeviceEvent(CATEGORIES[event.category], event.name, start, end, max(event.thread, 0), arguments)


def profiler_of(ep: PluginEp, context: CompileContext) -> EpProfiler | None:
    """The profiler of a provider, where a profile is wanted and the plugin measures by itself."""
    collect: Callable[..., int] | None = context.collect_from
    if collect is None or not ep.members.has("CreateProfiler"):
        return None
    made: list[EpProfiler] = []
    began = collect(lambda: made[0].events() if made else [])
    made.append(EpProfiler(ep, began))
    return made[0]
