"""Pausing Python's cyclic garbage collector while a model is compiled.

Compilation makes many small objects that all live to its end; the collector would scan them again and again in vain, which is
about a fifth of the time that a session takes to create.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Pauses:
    """How many are inside, and whether the collector was on before the first of them."""

    lock = threading.Lock()
    count = 0
    was_enabled = False


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
