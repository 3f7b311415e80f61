"""OrtStatus: errors on their way between a plugin and Intarsia, in both directions."""

from __future__ import annotations

import threading

from intarsia import errors
from intarsia.errors import EPFail, IntarsiaError
from intarsia.providers.plugin.interface.handles import HostObject, find, take_back

CODES: tuple[type[IntarsiaError], ...] = (
    EPFail, errors.Fail, errors.InvalidArgument, errors.NoSuchFile, errors.NoModel, errors.EngineError, EPFail,
    errors.InvalidProtobuf, errors.ModelLoaded, errors.NotImplemented, errors.InvalidGraph, EPFail, errors.ModelLoadCanceled,
    errors.ModelRequiresCompilation, errors.NotFound, errors.DeviceLost,
)  # fmt: skip
"""The class of each OrtErrorCode. RUNTIME_EXCEPTION is what C++ code did not expect: of a plugin, an EPFail."""
FAIL, NOT_IMPLEMENTED, EP_FAIL = 1, 9, 11
_interrupted = threading.local()  # what stopped a callback of this thread: an interrupt, which the plugin knows nothing of


class NotThere(EPFail, errors.NotImplemented):
    """A plugin called, or its host, what the other does not have."""


class Status(HostObject):
    """An error that a plugin holds."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__()
        self.code, self.message = code, message
        self.cause: BaseException | None = None

    @classmethod
    def of(cls, error: BaseException) -> Status:
        """What tells a plugin of an exception here."""
        message = str(error) if isinstance(error, IntarsiaError) else f"{type(error).__name__}: {error}"
        status = cls(_code_of(error), message)
        status.cause = error
        if not isinstance(error, Exception):
            _interrupted.error = error
        return status


def _code_of(error: BaseException) -> int:
    if isinstance(error, NotThere):
        return NOT_IMPLEMENTED
    exact = [code for code, kind in enumerate(CODES) if code and type(error) is kind]
    near = [code for code, kind in enumerate(CODES) if code and isinstance(error, kind)]
    if isinstance(error, EPFail) and not isinstance(error, errors.DeviceLost):
        return EP_FAIL
    return (exact or near or [FAIL])[0]


def raise_for(handle: int | None, where: str, provider: str) -> None:
    """Raise what a plugin answered, with its words, and release the status; nothing for null.

    Args:
        where: what was asked of it, for the message.
    """
    interrupted, _interrupted.error = getattr(_interrupted, "error", None), None
    if interrupted is not None:
        take_back(handle)
        raise interrupted
    if not handle:
        return
    status = find(handle, Status)
    take_back(handle)
    error = _raised_again(status, f"{provider}: {where}: {status.message or 'it gave no message'}")
    if isinstance(error, EPFail):
        error.provider = provider
    raise error from status.cause


def _raised_again(status: Status, message: str) -> IntarsiaError:
    """The exception of a status: of the class that a callback here has raised, such as RunTimeout, else of its code's."""
    found, cause = exception_of(status.code, message), status.cause
    return type(cause)(message) if isinstance(cause, errors.Fail) and isinstance(cause, type(found)) else found


def exception_of(code: int, message: str) -> IntarsiaError:
    """The exception of an OrtErrorCode."""
    kind = CODES[code] if 0 <= code < len(CODES) else EPFail
    if code == NOT_IMPLEMENTED:
        return NotThere(message)
    if kind in (errors.NoModel, errors.EngineError, errors.ModelLoaded):
        kind = EPFail  # nothing here raises these
    return kind(message)
