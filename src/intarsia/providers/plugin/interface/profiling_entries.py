"""OrtProfilingEvent and the container of them: what a plugin's own profiler measured, and what it is told of calls."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from intarsia.errors import InvalidArgument
from intarsia.providers.plugin.interface.handles import HostObject, find, find_all, give, put, texts
from intarsia.providers.plugin.interface.host_tables import entry

CATEGORIES = ("Session", "Node", "Kernel", "Api")
"""Of OrtProfilingEventCategory, as traces name them."""


class ProfilingEvent(HostObject):
    """OrtProfilingEvent: times in microseconds since the profile's beginning."""

    def __init__(self, category: int, name: str, start_us: int, duration_us: int, arguments: Mapping[str, str]) -> None:
        super().__init__()
        if not 0 <= category < len(CATEGORIES):
            raise InvalidArgument(f"a profiling event's category is from 0 to {len(CATEGORIES) - 1}, got {category}")
        self.category, self.name, self.arguments = category, name, dict(arguments)
        self.start_us, self.duration_us = start_us, duration_us
        self.thread = -1


class ProfilingEvents(HostObject):
    """OrtProfilingEventsContainer."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[ProfilingEvent] = []


@entry("OrtEpApi", "CreateProfilingEvent")
def _create_event(category: int, process: int, thread: int, name: bytes, start: int, duration: int, *more: int) -> None:
    keys, values, count, out = more
    arguments = dict(zip(texts(keys, count), texts(values, count), strict=True))
    event = ProfilingEvent(category, name.decode("utf-8", "replace"), start, duration, arguments)
    event.thread = thread
    put(out, give(event))


@entry("OrtEpApi", "ProfilingEventsContainer_AddEvents")
def _add_events(container: int, events: int, count: int) -> None:
    find(container, ProfilingEvents).events += find_all(events, count, ProfilingEvent)


@entry("OrtEpApi", "ProfilingEvent_GetCategory")
def _get_category(handle: int, out: int) -> None:
    put(out, find(handle, ProfilingEvent).category, ctypes.c_int32)


@entry("OrtEpApi", "ProfilingEvent_GetName")
def _get_name(handle: int, out: int) -> None:
    event = find(handle, ProfilingEvent)
    put(out, event.text(event.name))


@entry("OrtEpApi", "ProfilingEvent_GetTimestampUs")
def _get_timestamp(handle: int, out: int) -> None:
    put(out, find(handle, ProfilingEvent).start_us, ctypes.c_int64)


@entry("OrtEpApi", "ProfilingEvent_GetDurationUs")
def _get_duration(handle: int, out: int) -> None:
    put(out, find(handle, ProfilingEvent).duration_us, ctypes.c_int64)


@entry("OrtEpApi", "ProfilingEvent_GetArgValue")
def _get_argument(handle: int, key: bytes, out: int) -> None:
    event = find(handle, ProfilingEvent)
    found = event.arguments.get(key.decode("utf-8", "replace"))
    put(out, event.text(found) if found is not None else None)
