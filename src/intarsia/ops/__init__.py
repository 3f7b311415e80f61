"""Operators: one definition each, in tensor primitives or on the host, by family."""

from __future__ import annotations

from intarsia.ops.family_index import families
from intarsia.ops.framework.registry import REGISTRY, Registry
from intarsia.ops.framework.registry_scopes import in_force


def registry() -> Registry:
    """All operators: Intarsia's own, under those that a program registered (`intarsia.op`) for the process, or for the
    session that is being made or run here."""
    return in_force(builtin())


def builtin() -> Registry:
    """Intarsia's own operators; a family is imported when one of its operators is looked for."""
    return REGISTRY


REGISTRY.index(families())
