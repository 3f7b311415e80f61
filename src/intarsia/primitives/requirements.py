"""What a definition requires of sizes that only a run knows.

A definition, and each primitive that it builds, says here what must hold of sizes: that two are equal, that one broadcasts to
another, that one is large enough. Of numbers that is looked at at once. Of symbols it is noted while the definition is traced
(`collected`), and looked at when a program is bound to sizes (`plan.size_constraints`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from intarsia.graph.dims import Dim, is_nonnegative, mod
from intarsia.lazy_dataclass import dataclass


class DefinitionError(ValueError):
    """An operator's definition was given operands it does not accept (shapes, dtypes, attribute values)."""


@dataclass(frozen=True)
class Requirement:
    """What must hold of two sizes; `kind` as in `plan.size_constraints.Constraint`, `what` names them in messages."""

    kind: str
    left: Dim
    right: Dim
    what: str = ""


class _Collection(threading.local):
    found: dict[Requirement, None] | None = None


_collection = _Collection()


@contextmanager
def collected() -> Iterator[dict[Requirement, None]]:
    """The requirements that are noted inside, each once, in order; those of a definition inside another are its own."""
    outer, found = _collection.found, dict[Requirement, None]()
    _collection.found = found
    try:
        yield found
    finally:
        _collection.found = outer


def note(kind: str, left: Dim, right: Dim, what: str = "") -> None:
    """Note a requirement that is not known to hold, if a definition is being traced."""
    if _collection.found is not None:
        _collection.found[Requirement(kind, left, right, what)] = None


def require_equal(left: Dim, right: Dim, what: str) -> None:
    """Raise DefinitionError where two sizes are numbers and differ; note it where they may."""
    if left == right:
        return
    if isinstance(left, int) and isinstance(right, int):
        raise DefinitionError(f"{what}: got {left}, expected {right}")
    note("equal", left, right, what)


def require_broadcast(size: Dim, target: Dim, what: str) -> None:
    """Raise DefinitionError where a size is a number other than 1 and the target; note it where it may be."""
    if size in (1, target):
        return
    if isinstance(size, int) and isinstance(target, int):
        raise DefinitionError(f"{what}: got {size}, expected 1 or {target}")
    note("broadcast", size, target, what)


def require_least(size: Dim, least: Dim, what: str) -> None:
    """Raise DefinitionError where a size is below a number; note it where it may be."""
    if isinstance(size, int) and isinstance(least, int):
        if size < least:
            raise DefinitionError(f"{what}: got {size}, expected at least {least}")
    elif not is_nonnegative(size - least):
        note("least", size, least, what)


def require_multiple(size: Dim, of: int, what: str) -> None:
    """Raise DefinitionError where a size is no multiple of `of`; note it where it may be none."""
    if isinstance(size, int):
        if size % of:
            raise DefinitionError(f"{what}: got {size}, expected a multiple of {of}")
    elif (rest := mod(size, of)) != 0:
        note("equal", rest, 0, f"{what}: a remainder of {size} by {of}")
