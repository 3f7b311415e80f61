"""Operand types of NNAPI as its header numbers them, and which ONNX element types they stand for."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence

import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass

LEVEL_6, LEVEL_7, LEVEL_8 = 1000006, 1000007, 1000008
"""Feature levels after 31, as the runtime numbers them."""


class Kind(enum.IntEnum):
    """`ANeuralNetworksOperandType.type`."""

    FLOAT32 = 0
    INT32 = 1
    UINT32 = 2
    TENSOR_FLOAT32 = 3
    TENSOR_INT32 = 4
    TENSOR_QUANT8_ASYMM = 5
    BOOL = 6
    TENSOR_QUANT16_SYMM = 7
    TENSOR_FLOAT16 = 8
    TENSOR_BOOL8 = 9
    FLOAT16 = 10
    TENSOR_QUANT8_SYMM_PER_CHANNEL = 11
    TENSOR_QUANT16_ASYMM = 12
    TENSOR_QUANT8_SYMM = 13
    TENSOR_QUANT8_ASYMM_SIGNED = 14

    @property
    def scalar(self) -> bool:
        return self in _SCALARS

    @property
    def real(self) -> bool:
        """Whether it is a tensor of floating-point numbers."""
        return self in (Kind.TENSOR_FLOAT32, Kind.TENSOR_FLOAT16)

    @property
    def byte(self) -> bool:
        """Whether it is a quantised tensor that ONNX's 8-bit integers become."""
        return self in (Kind.TENSOR_QUANT8_ASYMM, Kind.TENSOR_QUANT8_ASYMM_SIGNED)

    @property
    def numpy(self) -> np.dtype:
        return np.dtype(_NUMPY[self])

    @property
    def since(self) -> int:
        """The feature level from which it exists."""
        return _SINCE.get(self, 27)


_SCALARS = frozenset((Kind.FLOAT32, Kind.INT32, Kind.UINT32, Kind.BOOL, Kind.FLOAT16))
_SINCE = {
    Kind.BOOL: 29, Kind.TENSOR_QUANT16_SYMM: 29, Kind.TENSOR_FLOAT16: 29, Kind.TENSOR_BOOL8: 29, Kind.FLOAT16: 29,
    Kind.TENSOR_QUANT8_SYMM_PER_CHANNEL: 29, Kind.TENSOR_QUANT16_ASYMM: 29, Kind.TENSOR_QUANT8_SYMM: 29,
    Kind.TENSOR_QUANT8_ASYMM_SIGNED: 30,
}  # fmt: skip
_NUMPY = {
    Kind.FLOAT32: "f4", Kind.INT32: "i4", Kind.UINT32: "u4", Kind.TENSOR_FLOAT32: "f4", Kind.TENSOR_INT32: "i4",
    Kind.TENSOR_QUANT8_ASYMM: "u1", Kind.BOOL: "?", Kind.TENSOR_QUANT16_SYMM: "i2", Kind.TENSOR_FLOAT16: "f2",
    Kind.TENSOR_BOOL8: "?", Kind.FLOAT16: "f2", Kind.TENSOR_QUANT8_SYMM_PER_CHANNEL: "i1", Kind.TENSOR_QUANT16_ASYMM: "u2",
    Kind.TENSOR_QUANT8_SYMM: "i1", Kind.TENSOR_QUANT8_ASYMM_SIGNED: "i1",
}  # fmt: skip

KIND_OF: dict[DType, Kind] = {
    DType.FLOAT: Kind.TENSOR_FLOAT32,
    DType.FLOAT16: Kind.TENSOR_FLOAT16,
    DType.INT32: Kind.TENSOR_INT32,
    DType.INT64: Kind.TENSOR_INT32,
    DType.BOOL: Kind.TENSOR_BOOL8,
    DType.UINT8: Kind.TENSOR_QUANT8_ASYMM,
    DType.INT8: Kind.TENSOR_QUANT8_ASYMM_SIGNED,
}
"""ONNX's element types that NNAPI has tensors of. 64-bit integers are computed in 32 bits, where they fit."""


@dataclass(frozen=True)
class OperandType:
    """The type of an operand. A tensor of rank 0 is written as one element of rank 1: no dimensions would mean "unknown".

    Attributes:
        dims: none for a scalar.
        scale, zero_point: of a quantised tensor, whose elements q stand for scale * (q - zero_point).
        channel_dim, channel_scales: of TENSOR_QUANT8_SYMM_PER_CHANNEL.
    """

    kind: Kind
    dims: tuple[int, ...] = ()
    scale: float = 0.0
    zero_point: int = 0
    channel_dim: int = 0
    channel_scales: tuple[float, ...] = ()

    def of(self, dims: Sequence[int]) -> OperandType:
        """The same with other dimensions."""
        return OperandType(self.kind, tuple(dims), self.scale, self.zero_point)

    @property
    def size(self) -> int:
        return math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        return self.size * self.kind.numpy.itemsize

    def __str__(self) -> str:
        scale = f" scale {self.scale:g} zero point {self.zero_point}" if self.scale else ""
        return f"{self.kind.name}{list(self.dims) if not self.kind.scalar else ''}{scale}"


@dataclass(frozen=True)
class Tensor:
    """An operand of a model that is being written, by its number."""

    index: int
    type: OperandType

    @property
    def dims(self) -> tuple[int, ...]:
        return self.type.dims

    @property
    def kind(self) -> Kind:
        return self.type.kind

    @property
    def rank(self) -> int:
        return len(self.type.dims)


def operand_dims(shape: Sequence[int]) -> tuple[int, ...]:
    """The dimensions of the operand for a tensor of this shape."""
    return tuple(shape) or (1,)


def check_level(level: int) -> None:
    """Raises InvalidArgument where NNAPI has no such feature level."""
    if not (27 <= level <= 31 or 1000006 <= level <= 1000008):
        raise InvalidArgument(f"feature_level: expected 27 to 31 or 1000006 to 1000008, got {level}")
