"""The optimise stage: rewrite rules as data, by level. `optimize(graph, level)` is the way in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from intarsia.passes.level import GraphOptimizationLevel

if TYPE_CHECKING:
    from intarsia.passes.graph.single_opset import standardize
    from intarsia.passes.optimizer import LogEntry, OptimizeResult, optimize, rule_names

__all__ = ["GraphOptimizationLevel", "LogEntry", "OptimizeResult", "optimize", "rule_names", "standardize"]


def __getattr__(name: str) -> Any:
    """Who only needs the levels does not import the rules."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(
        importlib.import_module(f"{__name__}.{'graph.single_opset' if name == 'standardize' else 'optimizer'}"), name
    )
