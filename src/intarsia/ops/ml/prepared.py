"""Tables made of attributes once, not at every run of a host operator."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from intarsia.machine import fork_safety

T = TypeVar("T")

LIMIT = 16  # tables that a builder keeps; each holds on to the attributes it was made of


def prepared(build: Callable[..., T]) -> Callable[..., T]:
    """`build`, whose results are memoized by the identity of its arguments: a node's attributes are the same objects each run.

    The arguments are held as long as their result is, so an identity is never taken over by another object.
    """
    memo: OrderedDict[tuple[int, ...], tuple[tuple[Any, ...], T]] = OrderedDict()
    lock = fork_safety.lock()

    @functools.wraps(build)
    def look_up(*attributes: Any) -> T:
        key = tuple(map(id, attributes))
        with lock:
            found = memo.get(key)
            if found is not None:
                memo.move_to_end(key)
                return found[1]
        made = build(*attributes)
        with lock:
            memo[key] = (attributes, made)
            while len(memo) > LIMIT:
                memo.popitem(last=False)
        return made

    return look_up
