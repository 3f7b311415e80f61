"""Feeds of arrays whose types and shapes are known: what a session's fast call looks at before a plugin's program runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.ep.program import FeedCall


def array_feed(names: Sequence[str], inputs: Sequence[Any], run: Callable[[list[np.ndarray]], list[Any]]) -> FeedCall | None:
    """A function that runs a feed of arrays of these inputs' types and shapes, without what a run does for others; it gives
    None for all others. None where these inputs are not arrays."""
    if not all(isinstance(value, np.ndarray) for value in inputs):
        return None
    wanted = tuple((name, value.shape, value.dtype) for name, value in zip(names, inputs, strict=True))

    def call(feed: dict[str, Any]) -> list[Any] | None:
        if len(feed) != len(wanted):
            return None
        values = []
        for name, shape, dtype in wanted:
            value: Any = feed.get(name)
            fits = type(value) is np.ndarray and value.shape == shape and value.dtype == dtype
            if not fits or not value.flags.c_contiguous:
                return None
            values.append(value)
        return run(values)

    return call
