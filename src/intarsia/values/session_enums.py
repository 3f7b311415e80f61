"""Enumerations that every session has among its options; the others of onnxruntime's are in `values.ort_enums`."""

from __future__ import annotations

import enum


class NumberedEnum(enum.Enum):
    """An enumeration whose members convert to their numbers."""

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return int(self.value)

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, int) and bool(self.value == other))

    def __hash__(self) -> int:
        return hash(self.value)


class ExecutionMode(NumberedEnum):
    """Whether independent nodes run at the same time: branches of steps that are too small to share do, in either mode, where
    that spares ten microseconds, in the second where it spares one. They use the threads of the run, no others."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(NumberedEnum):
    """How the nodes of a graph are ordered where data dependencies leave a choice."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtExecutionProviderDevicePolicy(NumberedEnum):
    """Which devices a session picks by itself: see `SessionOptions.set_provider_selection_policy`."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6
