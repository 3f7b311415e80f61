"""Logging through the standard library: the logger "intarsia", with onnxruntime's severities.

A program that has configured logging gets Intarsia's records where it sends its own; one that has not gets them on stderr.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable

from intarsia.errors import InvalidArgument, WrongType
from intarsia.printable import get_logger, guarded

LEVELS = {0: logging.DEBUG, 1: logging.INFO, 2: logging.WARNING, 3: logging.ERROR, 4: logging.CRITICAL}
"""onnxruntime's severity (verbose, info, warning, error, fatal) -> logging's level."""

logger = get_logger("intarsia")


LogCallback = Callable[[int, str, str, str, str], object]
"""What `set_default_logger_callback` takes: a function of severity, category, session's logid, place in the code, message."""

_SESSION = "intarsia.session"


class _Callback(logging.Handler):
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
            _handler.handle(record)
            return
        severity = max((s for s, level in LEVELS.items() if level <= record.levelno), default=0)
        logid = record.name.removeprefix(f"{_SESSION}.") if record.name.startswith(f"{_SESSION}.") else ""
        place = f"{record.filename}:{record.lineno} {record.funcName}"
        self.busy.now = True
        try:
            self.function(severity, record.name, logid, place, record.getMessage())
        except Exception as error:  # noqa: BLE001 # logging must not stop what is logged
            _handler.handle(record)
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


_handler = _StderrUnlessConfigured()
_handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s: %(message)s"))


def _level(severity: int) -> int:
    if severity not in LEVELS:
        raise (InvalidArgument if isinstance(severity, int) else WrongType)(
            f"log severity: expected 0 (verbose) to 4 (fatal), got {severity!r}"
        )
    return LEVELS[severity]


def set_default_logger_severity(severity: int) -> None:
    """Log records of this severity and above: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal."""
    logger.setLevel(_level(severity))
    _ensure_handler()


def set_default_logger_callback(callback: LogCallback | None, severity: int = 2) -> None:
    """Give log records to `callback(severity, category, logid, code_location, message)` and do not write them; None: no more.

    It is called on the thread that logs, also for sessions that exist already, which keep their own severity. Records that a
    program's own logging configuration takes go there too. What the callback raises stops nothing: it is reported to
    `sys.unraisablehook`, and that record, like those that the callback itself causes, is written to stderr. None leaves the
    severity as it is.

    Args:
        severity: records of this severity and above, as in `set_default_logger_severity`.

    Raises:
        WrongType: no function.
        InvalidArgument: a severity that does not exist.
    """
    level = _level(severity)
    if callback is not None and not callable(callback):
        raise WrongType(f"set_default_logger_callback: expected a function or None, got {callback!r}")
    for handler in [h for h in logger.handlers if isinstance(h, _Callback)]:
        logger.removeHandler(handler)
    if callback is None:
        _ensure_handler()
        return
    logger.removeHandler(_handler)
    logger.addHandler(_Callback(callback))
    logger.setLevel(level)


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted for onnxruntime's sake: there is one level of verbose records."""
    if not isinstance(verbosity, int):
        raise WrongType(f"log verbosity: expected an integer, got {verbosity!r}")


def _ensure_handler() -> None:
    if _handler not in logger.handlers and not any(isinstance(h, _Callback) for h in logger.handlers):
        logger.addHandler(_handler)


def session_logger(severity: int, logid: str) -> logging.Logger:
    """A logger for one session; it is not kept by the logging module, so that sessions leave nothing behind."""
    own = logging.Logger(f"{_SESSION}{f'.{logid}' if logid else ''}")  # noqa: LOG001 # must not outlive the session
    guarded(own).parent = logger
    if severity >= 0:
        own.setLevel(_level(severity))
        _ensure_handler()
    else:
        own.setLevel(logger.getEffectiveLevel())
    return own
