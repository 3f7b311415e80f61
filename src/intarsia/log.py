"""Logging through the standard library: the logger "intarsia", with onnxruntime's severities.

A program that has configured logging gets Intarsia's records where it sends its own; one that has not gets them on stderr.
"""

from __future__ import annotations

import logging

from intarsia.errors import InvalidArgument

LEVELS = {0: logging.DEBUG, 1: logging.INFO, 2: logging.WARNING, 3: logging.ERROR, 4: logging.CRITICAL}
"""onnxruntime's severity (verbose, info, warning, error, fatal) -> logging's level."""

logger = logging.getLogger("intarsia")


class _StderrUnlessConfigured(logging.StreamHandler):
    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)


_handler = _StderrUnlessConfigured()
_handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s: %(message)s"))


def _level(severity: int) -> int:
    if severity not in LEVELS:
        raise InvalidArgument(f"log severity: expected 0 (verbose) to 4 (fatal), got {severity!r}")
    return LEVELS[severity]


def set_default_logger_severity(severity: int) -> None:
    """Log records of this severity and above: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal."""
    logger.setLevel(_level(severity))
    _ensure_handler()


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted for onnxruntime's sake: there is one level of verbose records."""
    if not isinstance(verbosity, int):
        raise InvalidArgument(f"log verbosity: expected an integer, got {verbosity!r}")


def _ensure_handler() -> None:
    if _handler not in logger.handlers:
        logger.addHandler(_handler)


def session_logger(severity: int, logid: str) -> logging.Logger:
    """A logger for one session; it is not kept by the logging module, so that sessions leave nothing behind."""
    own = logging.Logger(f"intarsia.session{f'.{logid}' if logid else ''}")  # noqa: LOG001 # must not outlive the session
    own.parent = logger
    if severity >= 0:
        own.setLevel(_level(severity))
        _ensure_handler()
    else:
        own.setLevel(logger.getEffectiveLevel())
    return own
