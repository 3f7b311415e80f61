"""Logging through the standard library: the logger "intarsia", with onnxruntime's severities.

A program that has configured logging gets Intarsia's records where it sends its own; one that has not gets them on stderr.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from intarsia.errors import InvalidArgument, WrongType
from intarsia.printable import WARNING, get_logger, guarded, late_logger

if TYPE_CHECKING:
    import logging

    from intarsia.log.handlers import LogCallback

logger = get_logger("intarsia")


def _level(severity: int) -> int:
    from intarsia.log.handlers import LEVELS

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
    from intarsia.log.handlers import CallbackHandler, on_stderr

    for handler in [h for h in logger.handlers if isinstance(h, CallbackHandler)]:
        logger.removeHandler(handler)
    if callback is None:
        _ensure_handler()
        return
    logger.removeHandler(on_stderr)
    logger.addHandler(CallbackHandler(callback))
    logger.setLevel(level)


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted for onnxruntime's sake: there is one level of verbose records."""
    if not isinstance(verbosity, int):
        raise WrongType(f"log verbosity: expected an integer, got {verbosity!r}")


def _ensure_handler() -> None:
    from intarsia.log.handlers import CallbackHandler, on_stderr

    if on_stderr not in logger.handlers and not any(isinstance(h, CallbackHandler) for h in logger.handlers):
        logger.addHandler(on_stderr)


def session_logger(severity: int, logid: str) -> logging.Logger:
    """A logger for one session; it is not held by the logging module, so that sessions leave nothing behind."""
    if severity >= 0:
        level = _level(severity)
        _ensure_handler()
    else:
        level = logger.getEffectiveLevel() if "logging" in sys.modules else WARNING  # as it is now

    def made() -> logging.Logger:
        import logging

        from intarsia.log.handlers import SESSION

        own = logging.Logger(f"{SESSION}{f'.{logid}' if logid else ''}", level)  # noqa: LOG001 # must not outlive the session
        guarded(own).parent = logging.getLogger("intarsia")
        return own

    return late_logger(made)
