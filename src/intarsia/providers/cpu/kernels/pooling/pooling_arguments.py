"""Pooling over whole maps: what it is, and what its kernel (`pooling_kernel`) is called with."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue


@dataclass(frozen=True)
class GlobalPoolSpec:
    """Reduce [N, pixels, C] to [N, C]. `operation`: "max" or "average"; epilogue operands "column", "full" or "scalar"."""

    operation: str
    dtype: DType = DType.FLOAT
    epilogue: Epilogue | None = None

    def __post_init__(self) -> None:
        if self.operation not in ("max", "average"):
            raise ValueError(f"operation is max or average; got {self.operation!r}")
        if self.epilogue and "row" in self.epilogue.kinds:
            raise ValueError("global pooling's epilogue takes operands of kind column, full or scalar; got 'row'")


def global_pool_args(
    spec: GlobalPoolSpec, x: Address, y: Address, sizes: tuple[int, int, int], operands: Sequence[Address] = (),
    x_pixel_nbytes: int | None = None,
) -> list[Argument]:  # fmt: skip
    """The kernel's arguments: addresses of [N, pixels, C] and [N, C], these sizes, the addresses of the epilogue's operands."""
    return [x, y, *sizes, x_pixel_nbytes or sizes[2] * itemsize(spec.dtype), *operands]
