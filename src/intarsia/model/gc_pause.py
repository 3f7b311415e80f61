"""Pausing Python's cyclic garbage collector while a model is compiled.

Compilation makes many small objects that all live to its end; the collector would scan them again and again in vain, which is
about a fifth of the time that a session takes to create.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

from intarsia.machine import fork_safety


class _Pauses:
    """How many are inside, and whether the collector was on before the first of them."""

    lock = fork_safety.lock()
    count = 0
    was_enabled = False


def _resume_in_child() -> None:
    """Those inside are threads of the parent."""
    if _Pauses.count and not fork_safety.is_inside():
        _Pauses.count = 0
        if _Pauses.was_enabled:
            gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_resume_in_child)


@contextmanager
def collection_paused() -> Iterator[None]:
    """No automatic collection inside; several threads may be inside at once. Leaves the collector as it was found."""
    with _Pauses.lock:
        if not _Pauses.count:
            _Pauses.was_enabled = gc.isenabled()
            gc.disable()
        _Pauses.count += 1
    try:
        yield
    finally:
        with _Pauses.lock:
            _Pauses.count -= 1
            if not _Pauses.count and _Pauses.was_enabled:
                gc.enable()
