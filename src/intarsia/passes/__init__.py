"""The optimise stage: rewrite rules as data, by level. `optimize(graph, level)` is the way in."""

from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.optimize import LogEntry, OptimizeResult, optimize, rule_names
from intarsia.passes.standard import standardize

__all__ = ["GraphOptimizationLevel", "LogEntry", "OptimizeResult", "optimize", "rule_names", "standardize"]
