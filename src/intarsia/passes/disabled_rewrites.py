"""Names of rewrites that a session leaves out, as its configuration entry has them."""

from __future__ import annotations

DISABLED_KEY = "optimization.disable_specified_optimizers"


def names_in(entry: str) -> frozenset[str]:
    """The names in a text that separates them by ; or commas."""
    return frozenset(name.strip() for name in entry.replace(",", ";").split(";") if name.strip())
