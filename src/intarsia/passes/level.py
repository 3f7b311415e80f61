"""How much a graph is changed before it is partitioned."""

from __future__ import annotations

import enum


class GraphOptimizationLevel(enum.Enum):
    """onnxruntime's levels, by its names and numbers; each includes those before it."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99

    def __int__(self) -> int:
        return self.value

    def includes(self, other: GraphOptimizationLevel) -> bool:
        return self.value >= other.value
