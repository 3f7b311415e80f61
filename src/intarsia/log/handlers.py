"""What takes the package's log records: a function of the program's, or stderr where the program has configured no logging."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable

LEVELS = {0: logging.DEBUG, 1: logging.INFO, 2: logging.WARNING, 3: logging.ERROR, 4: logging.CRITICAL}
"""onnxruntime's severity (verbose, info, warning, error, fatal) -> logging's level."""

LogCallback = Callable[[int, str, str, str, str], object]
"""What `set_default_logger_callback` takes: a function of severity, category, session's logid, place in the code, message."""

SESSION = "intarsia.session"


class CallbackHandler(logging.Handler):
    """Gives records to a program's function. What that raises goes to `sys.unraisablehook`, and the record, as one that the
    function itself causes, to stderr."""

    def __init__(self, function: LogCallback) -> None:
        super().__init__()
        self.function = function
        self.busy = threading.local()

    def handle(self, record: logging.LogRecord) -> bool:
        """Without logging's lock: a function that waits for another thread's record must not wait for ever."""
        passed = bool(self.filter(record))
        if passed:
            self.emit(record)
        return passed

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(self.busy, "now", False):
            on_stderr.handle(record)
            return
        severity = max((s for s, level in LEVELS.items() if level <= record.levelno), default=0)
        logid = record.name.removeprefix(f"{SESSION}.") if record.name.startswith(f"{SESSION}.") else ""
        place = f"{record.filename}:{record.lineno} {record.funcName}"
        self.busy.now = True
        try:
            self.function(severity, record.name, logid, place, record.getMessage())
        except Exception as error:  # noqa: BLE001 # logging must not stop what is logged
            on_stderr.handle(record)
            _Unraisable(self.function, error)
        finally:
            self.busy.now = False


class _Unraisable:
    """An exception that nobody can catch: Python gives it to `sys.unraisablehook` when this is dropped."""

    def __init__(self, function: LogCallback, error: Exception) -> None:
        self.function, self.error = function, error

    def __repr__(self) -> str:
        return f"the function of set_default_logger_callback, {self.function!r}"

    def __del__(self) -> None:
        raise self.error


class _StderrUnlessConfigured(logging.StreamHandler):
    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            self.stream = sys.stderr  # a program may have put another in its place
            super().emit(record)


on_stderr = _StderrUnlessConfigured()
on_stderr.setFormatter(logging.Formatter("%(levelname)s:%(name)s: %(message)s"))
