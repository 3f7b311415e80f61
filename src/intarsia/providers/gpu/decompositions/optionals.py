"""Optional values that are tensors: there, and nothing else."""

from __future__ import annotations

from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.providers.gpu.decompositions.registry import device_op


@device_op("OptionalHasElement")
def has_element(input: Tensor | None = None) -> Tensor:
    return k.full((), input is not None, DType.BOOL)


@device_op("OptionalGetElement")
def get_element(input: Tensor) -> Tensor:
    return input
