"""Products of 8-bit matrices, with zero points, as calls of the packed GEMM kernel on bytes.

The kernel sums a'b' where a' is unsigned and b' signed: a' = a or a + 128, b' = b, b - 128 or, where the weights are
constant and it fits, b - zb. With the zero points za', zb' shifted likewise,

    sum (a - za)(b - zb) = sum a'b' - za' (sum b' - K zb') - zb' sum a'

whose last two terms become part of the epilogue: sums of B's columns are packed with B, sums of A's rows are a product
by ones where zb' is not 0. All of it is exact modulo 2^32.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.providers.cpu.kernels.common.schedule import Constants, LoweringEnv, Schedule
from intarsia.providers.cpu.kernels.matmul.matmul import MatMul
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS
from intarsia.providers.cpu.kernels.matmul_int8.constant_bytes import MatrixUnit, PackedOnce, SaturationFree, WidenedRows
from intarsia.providers.cpu.kernels.matmul_int8.packed_in_run import PackedInRun

SCHEDULES: tuple[Schedule[ByteMatMul], ...] = (
    MatrixUnit("matrix-unit"),
    SaturationFree("saturation-free-order"),
    WidenedRows("widened-int16"),
    PackedOnce("packed-once"),
    PackedInRun("packed-in-run"),
)  # in the order of preference; the last takes every product


@dataclass(frozen=True)
class Zero:
    """A zero point: a number, or the template's operand `read`, indexed like an epilogue operand of `kind`."""

    value: int = 0
    read: int = -1
    kind: str = "scalar"
    dtype: DType = DType.INT8

    @property
    def known(self) -> bool:
        return self.read < 0


@dataclass(frozen=True)
class ByteMatMul(MatMul):
    """[..., M, K] x [..., K, N] of uint8 or int8, less their zero points, summed in int32.

    `reads` are A, B and those zero points that are known at run time only.
    """

    alone: ClassVar[str] = ""
    a_zero: Zero = field(default=Zero())
    b_zero: Zero = field(default=Zero())
    integers: bool = True

    @property
    def weight_dtype(self) -> DType:
        """The element type of B."""
        return self.operand(1).dtype

    def weights(self, constants: Constants) -> np.ndarray:
        """B, a constant without batch axes, as a matrix [K, N] of its own type."""
        array = constants.array(self.reads[1])
        assert array is not None, self.reads[1]
        return array.reshape(-1, 1) if array.ndim == 1 else array.reshape(array.shape[-2:])

    def zero_values(self, zero: Zero, constants: Constants) -> np.ndarray | None:
        """The numbers of a zero point, int32; None where a run computes it."""
        if zero.known:
            return np.array(zero.value, np.int32)
        found = constants.array(self.reads[zero.read])
        return None if found is None else found.reshape(-1).astype(np.int32)

    def schedule_table(self) -> tuple[Schedule[ByteMatMul], ...]:
        return SCHEDULES

    def schedule_key(self, env: LoweringEnv) -> None:
        """None, since it is no node by itself: nothing times it."""


# --- where a definition holds such a product ----------------------------------------------------------------------


@dataclass(frozen=True)
class Factor:
    """A factor of a product of bytes: what is cast to int32, and its zero point as a tensor of its own (None: 0)."""

    values: Tensor
    zero: Tensor | None


def byte_factor(t: Tensor) -> Factor | None:
    """`t` as 8-bit numbers less a zero point, if it is that; reshapes around the whole are passed on."""
    shapes = []
    while t.prim == "reshape":
        shapes.append(t.shape)
        t = t.args[0]
    zero = None
    if t.prim == "sub":
        t, zero = t.args
        if shapes and any(d != 1 for d in _unspread(zero).shape):
            return None
    if t.prim != "cast" or t.dtype is not SUMS or t.args[0].dtype not in (DType.UINT8, DType.INT8):
        return None
    values = t.args[0]
    for shape in reversed(shapes):
        values = k.reshape(values, shape)
    return Factor(values, zero)


def zero_of(zero: Tensor | None, axis: int, read: int) -> tuple[Zero, str | None] | None:
    """The zero point as `Zero`, and the buffer that it reads; None if it is of a kind that no epilogue has.

    `axis`: along which there may be many, -2 (A) or -1 (B). `read`: the index that the buffer will have in `reads`.
    """
    if zero is None:
        return Zero(), None
    zero = _unspread(zero)
    if zero.prim == "cast":
        zero = zero.args[0]
    zero = _unspread(zero)
    if zero.prim == "scalar":
        return Zero(int(zero.attrs[0])), None
    source, shape = zero, zero.shape
    while source.prim == "reshape":
        source = source.args[0]
    if source.prim != "input" or source.dtype not in (DType.UINT8, DType.INT8, SUMS):
        return None
    if all(d == 1 for d in shape):
        return Zero(0, read, "scalar", source.dtype), source.attrs[0]
    if len(shape) < -axis or any(d != 1 for i, d in enumerate(shape) if i != len(shape) + axis):
        return None
    return Zero(0, read, "row" if axis == -2 else "column", source.dtype), source.attrs[0]


def _unspread(t: Tensor) -> Tensor:
    while t.prim == "broadcast" or (t.prim == "cast" and t.dtype is SUMS and t.args[0].prim == "broadcast"):
        t = t.args[0]
    return t
