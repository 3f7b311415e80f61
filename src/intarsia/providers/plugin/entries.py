"""All modules that write entries of the tables; they have to be there before a table is made."""

from __future__ import annotations

from intarsia.providers.plugin import capability, control_flow, kernel_context, kernel_info, kernel_registry, streams
from intarsia.providers.plugin.interface import allocators, general_entries, graph_entries, session_state, tensors

MODULES = (
    allocators, capability, control_flow, general_entries, graph_entries, kernel_context, kernel_info, kernel_registry,
    session_state, streams, tensors,
)  # fmt: skip


def complete() -> None:
    """Nothing: importing this module has done it."""
