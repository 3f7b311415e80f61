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

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, int) and self.value == other)

    def __hash__(self) -> int:
        return hash(self.value)

    def includes(self, other: GraphOptimizationLevel) -> bool:
        """Whether passes of level `other` are applied at this level."""
        return self.value >= other.value
