"""Names of values that the CPU provider makes beside a model's own, and the way back."""

from __future__ import annotations

_TWIN = "%last"


def original_name(name: str) -> str:
    """The value that a name made here stands for."""
    return name.partition(_TWIN)[0]


def derived_name(name: str, what: str) -> str:
    """A new name for a part of what computes `name`."""
    return f"{name}{_TWIN}{what}"
