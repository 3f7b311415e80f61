"""What a plugin is told of a session and of a run: configuration, options, and the logger that it writes to."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from intarsia.errors import InvalidArgument
from intarsia.printable import get_logger
from intarsia.providers.plugin.interface.handles import HostObject, checked, find, give, put
from intarsia.providers.plugin.interface.hardware import KeyValues
from intarsia.providers.plugin.interface.host_tables import entry

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""Python's levels of ORT_LOGGING_LEVEL_VERBOSE and so on."""
VERBOSE, INFO, WARNING = range(3)


class SessionOptions(HostObject):
    """OrtSessionOptions: configuration entries by key."""

    def __init__(self, entries: Mapping[str, str]) -> None:
        super().__init__()
        self.entries = KeyValues(entries)


class RunOptions(HostObject):
    """OrtRunOptions: configuration entries of a run, and its tag."""

    def __init__(self, entries: Mapping[str, str], tag: str = "") -> None:
        super().__init__()
        self.entries, self.tag = dict(entries), tag


class Record:
    """A line that a plugin logged."""

    __slots__ = ("message", "severity")

    def __init__(self, severity: int, message: str) -> None:
        self.severity, self.message = severity, message


class Logger(HostObject):
    """OrtLogger: Python's logger of a provider. What is logged while somebody listens is noted, too."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._logger = get_logger(f"intarsia.providers.plugin.{name}")
        self._listening: list[list[Record]] = []
        self._lock = threading.Lock()

    @property
    def severity(self) -> int:
        """The lowest OrtLoggingLevel that is wanted."""
        if self._listening:
            return VERBOSE
        enabled = (code for code, level in enumerate(_LEVELS) if self._logger.isEnabledFor(level))
        return next(enabled, len(_LEVELS) - 1)

    def log(self, severity: int, message: str) -> None:
        """Take a line of the plugin's."""
        with self._lock:
            for listening in self._listening:
                listening.append(Record(severity, message))
        level = _LEVELS[severity] if 0 <= severity < len(_LEVELS) else logging.ERROR
        self._logger.log(level, "%s", message)

    @contextmanager
    def heard(self) -> Iterator[list[Record]]:
        """The lines that are logged while it lasts, from all threads."""
        records: list[Record] = []
        with self._lock:
            self._listening.append(records)
        try:
            yield records
        finally:
            with self._lock:
                self._listening[:] = [other for other in self._listening if other is not records]


# entries


@entry("OrtApi", "HasSessionConfigEntry")
def _has_config_entry(handle: int, key: bytes, out: int) -> None:
    put(out, int(key.decode("utf-8", "replace") in find(handle, SessionOptions).entries.values), ctypes.c_int32)


@entry("OrtApi", "GetSessionConfigEntry")
def _get_config_entry(handle: int, key: bytes, out: int | None, size: int) -> None:
    wanted = key.decode("utf-8", "replace")
    value = find(handle, SessionOptions).entries.values.get(wanted)
    if value is None:
        raise InvalidArgument(f"the session has no configuration entry {wanted!r}")
    put_text(value, out, size)


def put_text(value: str, out: int | None, size: int) -> None:
    """Write a text with its zero where there is room, and how many bytes it takes.

    Raises:
        InvalidArgument: there is not enough room.
    """
    content = value.encode("utf-8", "replace") + b"\0"
    room = ctypes.c_size_t.from_address(checked(size)).value
    put(size, len(content), ctypes.c_size_t)
    if not out:
        return
    if room < len(content):
        raise InvalidArgument(f"a text of {len(content)} bytes does not fit into {room}")
    ctypes.memmove(out, content, len(content))


@entry("OrtApi", "GetSessionOptionsConfigEntries")
def _get_config_entries(handle: int, out: int) -> None:
    put(out, give(KeyValues(find(handle, SessionOptions).entries.values)))


@entry("OrtEpApi", "SessionOptionsGetWeightlessSourceModelBuffer")
def _get_weightless_source(handle: int, data: int, nbytes: int) -> None:
    find(handle, SessionOptions)
    put(data, None)
    put(nbytes, 0, ctypes.c_size_t)


@entry("OrtApi", "GetMemPatternEnabled")
def _get_memory_pattern(handle: int, out: int) -> None:
    find(handle, SessionOptions)
    put(out, 0, ctypes.c_int32)


@entry("OrtApi", "GetSessionExecutionMode")
def _get_execution_mode(handle: int, out: int) -> None:
    find(handle, SessionOptions)
    put(out, 0, ctypes.c_int32)


@entry("OrtApi", "GetRunConfigEntry")
def _get_run_config_entry(handle: int, key: bytes) -> int | None:
    options = find(handle, RunOptions)
    found = options.entries.get(key.decode("utf-8", "replace"))
    return options.text(found) if found is not None else None


@entry("OrtApi", "RunOptionsGetRunTag")
def _get_run_tag(handle: int, out: int) -> None:
    options = find(handle, RunOptions)
    put(out, options.text(options.tag))


@entry("OrtApi", "RunOptionsGetRunLogSeverityLevel", "RunOptionsGetRunLogVerbosityLevel")
def _get_run_log_level(handle: int, out: int) -> None:
    find(handle, RunOptions)
    put(out, WARNING, ctypes.c_int32)


@entry("OrtApi", "Logger_GetLoggingSeverityLevel")
def _get_severity(handle: int, out: int) -> None:
    put(out, find(handle, Logger).severity, ctypes.c_int32)


@entry("OrtApi", "Logger_LogMessage")
def _log_message(handle: int, severity: int, message: bytes, file: bytes, line: int, function: bytes) -> None:
    find(handle, Logger).log(severity, (message or b"").decode("utf-8", "replace"))
