"""What a closed session has instead of its model."""

from __future__ import annotations

from typing import Any, NoReturn

from intarsia.errors import Fail


class ClosedModel:
    """A `Runnable`, and a reader of feeds, that says of everything that the session is closed."""

    fast_calls = ()
    awaits = None

    def _raise(self, *_: Any, **__: Any) -> NoReturn:
        raise Fail("the session is closed: make a new InferenceSession")

    @property
    def _none(self) -> NoReturn:
        self._raise()

    inputs = outputs = programs = partition = values = _none
    quick = read = run = run_some = run_into = bound = expect_feed = expect_sizes = finished = _raise
