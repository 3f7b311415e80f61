"""Enumerations of the session API, with onnxruntime's names and numbers."""

from __future__ import annotations

import enum

from intarsia.passes.level import GraphOptimizationLevel

__all__ = ["ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel"]


class ExecutionMode(enum.Enum):
    """Whether independent nodes may run at the same time. Intarsia runs steps one after another, each on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1

    def __int__(self) -> int:
        return self.value


class ExecutionOrder(enum.Enum):
    """How the nodes of a graph are ordered where data dependencies leave a choice."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2

    def __int__(self) -> int:
        return self.value
