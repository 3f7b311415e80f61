"""Dequantised weights [K, N] as MatMulNBits stores them: unsigned numbers in blocks along K, column by column."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Node
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_kernel import are_finite

_BITS = {DType.UINT8: 8, DType.INT8: 8, DType.UINT4: 4, DType.INT4: 4}


@dataclass(frozen=True)
class StoredBlocks:
    """Constants of a DequantizeLinear, and how they are cut in blocks.

    Attributes:
        scale, zero: one number, one per column, or one per block and column.
        size: numbers of a block; K and more where there is one.
    """

    data: Constant
    scale: Constant
    zero: Constant | None
    size: int

    @property
    def bits(self) -> int:
        return _BITS[self.data.dtype]

    @property
    def depth(self) -> int:
        return self.data.shape[0]

    @property
    def columns(self) -> int:
        return self.data.shape[1]

    @property
    def has_zeros(self) -> bool:
        """Whether zero points are elsewhere than in the middle of the unsigned range."""
        if self.zero is None:
            return self._lift == 0
        return self._lift == 0 or bool(self.zero.numpy().astype(np.int16).any())

    @property
    def are_bytes(self) -> bool:
        """Whether the numbers are signed bytes, and each column has one scale and no zero point."""
        return self.data.dtype is DType.INT8 and self.size >= self.depth and not self.has_zeros

    @property
    def _lift(self) -> int:
        """What makes a number unsigned."""
        return 1 << (self.bits - 1) if self.data.dtype.is_signed_integer else 0

    def numbers(self) -> np.ndarray:
        """uint8 [N, blocks, bytes of a block], low bits first."""
        blocks = -(-self.depth // self.size)
        padded: np.ndarray = np.zeros((self.columns, blocks * self.size), np.uint8)
        padded[:, : self.depth] = (self.data.numpy().astype(np.int16) + self._lift).astype(np.uint8).T
        if self.bits == 4:
            padded = padded[:, ::2] | padded[:, 1::2] << 4
        return padded.reshape(self.columns, blocks, -1)

    def scales(self) -> np.ndarray:
        """float32 [N, blocks]."""
        return self._by_block(self.scale.numpy().astype(np.float32))

    def zeros(self) -> np.ndarray:
        """float32 [N, blocks], of the unsigned numbers."""
        given = np.zeros((), np.float32) if self.zero is None else self.zero.numpy().astype(np.float32)
        return self._by_block(given) + np.float32(self._lift)

    def _by_block(self, values: np.ndarray) -> np.ndarray:
        blocks = -(-self.depth // self.size)
        if values.ndim == 2:
            return np.ascontiguousarray(values.T)
        return np.ascontiguousarray(np.broadcast_to(values.reshape(-1, 1), (self.columns, blocks)))


def stored_blocks(node: Node, constants: Mapping[str, Constant]) -> StoredBlocks | None:
    """The weights that a DequantizeLinear of constants gives, if blocks along K can hold them."""
    if any(n and n not in constants for n in node.inputs):
        return None
    data, scale = constants[node.inputs[0]], constants[node.inputs[1]]
    zero = constants[node.inputs[2]] if len(node.inputs) > 2 and node.inputs[2] else None
    if data.dtype not in _BITS or len(data.shape) != 2 or 0 in data.shape or scale.dtype is not DType.FLOAT:
        return None
    axis, size = int(node.attributes.get("axis", 1)) % 2, int(node.attributes.get("block_size", 0))
    depth, columns = data.shape
    if size:
        fits = axis == 0 and size % 8 == 0 and scale.shape == (-(-depth // size), columns)
    else:
        size = -(-depth // 8) * 8
        fits = scale.size == 1 or (axis == 1 and scale.shape == (columns,))
    if not fits or (zero is not None and zero.shape != scale.shape):
        return None
    if not are_finite(scale):
        return None
    return StoredBlocks(data, scale, zero, size)
