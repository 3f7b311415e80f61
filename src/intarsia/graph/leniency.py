"""What is wrong with a model and others accept: a warning, or an error where nothing is overlooked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from intarsia.errors import InvalidGraph

if TYPE_CHECKING:
    import logging

_strict: ContextVar[bool] = ContextVar("intarsia strict", default=False)


@contextmanager
def strictly(strict: bool = True) -> Iterator[None]:
    """Within the block nothing is overlooked, where `strict`."""
    token = _strict.set(strict or _strict.get())
    try:
        yield
    finally:
        _strict.reset(token)


def overlook(logger: logging.Logger, message: str) -> None:
    """Warn of what is wrong.

    Raises:
        InvalidGraph: nothing is overlooked.
    """
    if _strict.get():
        raise InvalidGraph(f"{message} (an error, as the session is untrusted)")
    logger.warning("%s", message)
