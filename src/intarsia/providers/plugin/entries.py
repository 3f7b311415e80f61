"""All modules that write entries of the tables; they have to be there before a table is made."""

from __future__ import annotations

from intarsia.providers.plugin import (
    allocators,
    capability,
    general_entries,
    graph_entries,
    kernel_context,
    session_state,
    tensors,
)

MODULES = (allocators, capability, general_entries, graph_entries, kernel_context, session_state, tensors)


def complete() -> None:
    """Nothing: importing this module has done it."""
