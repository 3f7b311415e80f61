"""All modules that write entries of the tables; they have to be there before a table is made."""

from __future__ import annotations

from intarsia.providers.plugin import (
    capability,
    control_flow,
    kernel_context,
    kernel_info,
    kernel_registry,
    shared_weights,
    streams,
)
from intarsia.providers.plugin.interface import (
    allocators,
    compile_entries,
    experimental,
    general_entries,
    graph_entries,
    model_editor,
    profiling_entries,
    session_state,
    tensors,
)

MODULES = (
    allocators, capability, compile_entries, control_flow, experimental, general_entries, graph_entries,
    kernel_context, kernel_info, kernel_registry, model_editor, profiling_entries, session_state, shared_weights, streams,
    tensors,
)  # fmt: skip


def complete() -> None:
    """Nothing: importing this module has done it."""
