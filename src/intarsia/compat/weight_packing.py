"""Weights quantised by blocks and packed, as `MatMulNBits`, `MatMulBnb4` and DequantizeLinear take them.

onnxruntime's quantisation tools call these functions by their names in `onnxruntime.capi._pybind_state`; results are equal to
its, bit for bit. Each writes into arrays that the caller gives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intarsia.compat.declared_arguments import takes
from intarsia.errors import InvalidArgument, WrongType

_NF4 = np.array([
    -0.8480964004993439, -0.6106329262256622, -0.4599952697753906, -0.33967943489551544, -0.23460740596055984,
    -0.13791173323988914, -0.045525018125772476, 0.03979014977812767, 0.1202552504837513, 0.2035212516784668,
    0.2920137718319893, 0.3893125355243683, 0.5016634166240692, 0.6427869200706482, 0.8614784181118011,
], np.float32)  # fmt: skip
"""bitsandbytes' bounds between the 16 values of the type NF4."""

_FP4 = np.array([0.00260417, 0.0859375, 0.20833333, 0.29166667, 0.4166667, 0.583333, 0.8333333], np.float32)
"""bitsandbytes' bounds between the eight magnitudes of the type FP4, and their codes."""
_FP4_CODES = np.array([0, 1, 6, 7, 4, 5, 2, 3], np.uint8)


@dataclass
class PackingArguments:
    """What weights are packed from and into.

    Attributes:
        packed: uint8 [columns, blocks, block_size * bits / 8] to write, for DequantizeLinear [ceil(rows * columns * bits / 8)];
            the first value of a byte in its low bits.
        weights: float32 or float16 [rows or more, columns].
        scales: [columns, blocks] of that type, to write; for DequantizeLinear [blocks, columns].
        zero_points: uint8 [columns, ceil(blocks * bits / 8)] to write, packed likewise; for DequantizeLinear
            [ceil(blocks * columns * bits / 8)]; left as it is for symmetric blocks.
        block_size: rows in a block.
        is_symmetric: the range is that of the largest magnitude, else from the least to the largest value, 0 included.
    """

    packed: np.ndarray
    weights: np.ndarray
    scales: np.ndarray
    zero_points: np.ndarray
    block_size: int
    columns: int
    rows: int
    is_symmetric: bool

    @property
    def blocks(self) -> int:
        """How many a column has."""
        return -(-self.rows // max(self.block_size, 1))


@takes(PackingArguments)
def quantize_matmul_2bits(given: PackingArguments) -> None:
    """`quantize_matmul_4bits` with four values in a byte."""
    _columnwise(2, given)


@takes(PackingArguments)
def quantize_matmul_4bits(given: PackingArguments) -> None:
    """Quantise the blocks of each column: q = round(w / scale + zero point); arguments as of `PackingArguments`.

    Raises:
        WrongType: arrays of other types.
        InvalidArgument: sizes that do not fit together.
    """
    _columnwise(4, given)


@takes(PackingArguments)
def quantize_matmul_8bits(given: PackingArguments) -> None:
    """`quantize_matmul_4bits` with one value in a byte."""
    _columnwise(8, given)


@takes(PackingArguments)
def quantize_qdq_matmul_2bits(given: PackingArguments) -> bool:
    """`quantize_qdq_matmul_4bits` with four values in a byte."""
    return _rowwise(2, given)


@takes(PackingArguments)
def quantize_qdq_matmul_4bits(given: PackingArguments) -> bool:
    """As `quantize_matmul_4bits`, in the order of the weights: int4 (symmetric) or uint4 for DequantizeLinear.

    Returns:
        Whether the values are signed.
    """
    return _rowwise(4, given)


def quantize_matmul_bnb4(
    packed: np.ndarray, weights: np.ndarray, absmax: np.ndarray, block_size: int, quant_type: int, columns: int, rows: int
) -> None:
    """Quantise weights, in their order, to bitsandbytes' FP4 (`quant_type` 0) or NF4 (1).

    Args:
        packed: uint8 [ceil(size / 2)] to write; the first value of a byte in its high bits.
        weights: float32 or float16 [columns, rows].
        absmax: the largest magnitude of each block of `block_size`, to write.

    Raises:
        WrongType, InvalidArgument: as `quantize_matmul_4bits`; another `quant_type`.
    """
    _check_types(weights, absmax, packed)
    size = columns * rows
    count = -(-size // max(block_size, 1))
    if (
        block_size < 1
        or weights.size != size
        or absmax.size != count
        or packed.size != (size + 1) // 2
        or quant_type not in (0, 1)
    ):
        raise InvalidArgument(
            f"quantize_matmul_bnb4: expected {size} weights, {count} maxima, {(size + 1) // 2} bytes and the type 0 (FP4) or 1 "
            f"(NF4), got {weights.size}, {absmax.size}, {packed.size} and {quant_type!r} for blocks of {block_size}"
        )
    padded = np.zeros(count * block_size, np.float32)
    padded[:size] = weights.reshape(-1)
    blocks = padded.reshape(count, block_size)
    largest = np.abs(blocks).max(axis=1)
    absmax.reshape(-1)[:] = largest
    values = blocks * _reciprocal(largest)[:, None]
    if quant_type == 1:
        codes = np.searchsorted(_NF4, values, side="left").astype(np.uint8)
    else:
        codes = _FP4_CODES[np.searchsorted(_FP4, np.abs(values), side="left")] + np.where(values < 0, np.uint8(8), np.uint8(0))
    pairs = np.append(codes.reshape(-1)[:size], np.zeros(size % 2, np.uint8))
    if size % 2:
        pairs[-1] = 7 if quant_type == 1 else 0  # the code of 0
    packed.reshape(-1)[:] = pairs[0::2] << 4 | pairs[1::2]


def _columnwise(bits: int, given: PackingArguments) -> None:
    per, count, rows, columns = 8 // bits, given.blocks, given.rows, given.columns
    _check_types(given.weights, given.scales, given.packed, given.zero_points)
    if given.block_size % per:
        raise InvalidArgument(f"blocks of {given.block_size} values of {bits} bits: expected whole bytes")
    _check_sizes(bits, given, (columns * count * (given.block_size // per), columns * count, columns * -(-count // per)))
    codes, found, points = _quantized(given.weights[:rows], given.block_size, bits, given.is_symmetric)
    given.scales.reshape(columns, count)[:] = found.T
    whole = _packed(codes.transpose(2, 0, 1).reshape(columns, -1), bits)
    target = given.packed.reshape(columns, -1)
    used = -(-rows // per)  # bytes with weights: those behind them stay
    target[:, :used] = whole[:, :used]
    if not given.is_symmetric:
        padded = np.full((columns, -(-count // per) * per), 1 << bits - 1, np.uint8)
        padded[:, :count] = points.T
        given.zero_points.reshape(columns, -1)[:] = _packed(padded, bits)


def _rowwise(bits: int, given: PackingArguments) -> bool:
    per, count, rows, columns = 8 // bits, given.blocks, given.rows, given.columns
    _check_types(given.weights, given.scales, given.packed, given.zero_points)
    _check_sizes(bits, given, (-(-rows * columns // per), columns * count, -(-count * columns // per)))
    codes, found, points = _quantized(given.weights[:rows], given.block_size, bits, given.is_symmetric)
    given.scales.reshape(count, columns)[:] = found
    flat = codes.reshape(-1, columns)[:rows].reshape(-1)
    _write(given.packed.reshape(-1), flat ^ (1 << bits - 1) if given.is_symmetric else flat, bits)
    if not given.is_symmetric:
        _write(given.zero_points.reshape(-1), points.reshape(-1), bits)
    return bool(given.is_symmetric)


def _quantized(weights: np.ndarray, block_size: int, bits: int, symmetric: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes uint8 [blocks, block_size, columns], scales of the weights' type and zero points uint8 [blocks, columns]."""
    rows, columns = weights.shape
    count, top, half = -(-rows // block_size), (1 << bits) - 1, 1 << bits - 1
    padded = np.zeros((count * block_size, columns), np.float32)
    padded[:rows] = weights
    blocks = padded.reshape(count, block_size, columns)
    least, most = blocks.min(axis=1), blocks.max(axis=1)
    if symmetric:
        scales = (np.where(np.abs(most) > np.abs(least), most, least) / np.float32(-half)).astype(weights.dtype)
        points = np.full(scales.shape, half, np.float32)
    else:
        least, most = np.minimum(least, 0), np.maximum(most, 0)
        scales = ((most - least) / np.float32(top)).astype(weights.dtype)
        wide = scales.astype(np.float32)
        points = np.clip(np.floor(-least / np.where(wide != 0, wide, 1) + 0.5), 0, top) * (wide != 0)
    scaled = blocks * _reciprocal(scales.astype(np.float32))[:, None] + points[:, None]
    return np.clip(np.floor(scaled + np.float32(0.5)), 0, top).astype(np.uint8), scales, points.astype(np.uint8)


def _reciprocal(x: np.ndarray) -> np.ndarray:
    """1 / x, and 0 for 0."""
    found: np.ndarray = np.where(x != 0, np.float32(1) / np.where(x != 0, x, np.float32(1)), np.float32(0))
    return found


def _packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Bytes of the last axis, whose length is a multiple of the values in a byte."""
    per = 8 // bits
    parts = codes.reshape(*codes.shape[:-1], -1, per)
    shifts = (np.arange(per) * bits).astype(np.uint8)
    found: np.ndarray = np.bitwise_or.reduce(parts << shifts, axis=-1)
    return found


def _write(target: np.ndarray, codes: np.ndarray, bits: int) -> None:
    """Pack codes into bytes; bits of the last byte that have none stay."""
    per = 8 // bits
    whole, rest = codes.size // per, codes.size % per
    target[:whole] = _packed(codes[: whole * per], bits)
    if rest:
        last = _packed(np.append(codes[whole * per :], np.zeros(per - rest, codes.dtype)), bits)[0]
        other_bits = 0xFF & ~((1 << rest * bits) - 1)
        target[whole] = (target[whole] & other_bits) | last


def _check_types(weights: np.ndarray, scales: np.ndarray, *bytes_: np.ndarray) -> None:
    arrays = (weights, scales, *bytes_)
    wrong = next((a for a in arrays if not isinstance(a, np.ndarray)), None)
    if wrong is not None:
        raise WrongType(f"expected NumPy arrays, got {type(wrong).__name__}")
    if (
        weights.dtype not in (np.float32, np.float16)
        or scales.dtype != weights.dtype
        or any(a.dtype != np.uint8 for a in bytes_)
    ):
        raise WrongType(
            "expected weights and scales in float32 or in float16, and bytes in uint8, got "
            f"{', '.join(a.dtype.name for a in arrays)}"
        )
    if not all(a.flags.c_contiguous and a.flags.writeable for a in (scales, *bytes_)):
        raise InvalidArgument("expected C-contiguous arrays to write to")


def _check_sizes(bits: int, given: PackingArguments, sizes: tuple[int, int, int]) -> None:
    weights, rows, columns = given.weights, given.rows, given.columns
    arrays = (given.packed, given.scales, given.zero_points)
    shape = weights.ndim == 2 and weights.shape[0] >= rows and weights.shape[1] == columns
    if given.block_size < 1 or not shape or any(a.size != n for a, n in zip(arrays, sizes, strict=True)):
        found = ", ".join(str(a.size) for a in arrays)
        raise InvalidArgument(
            f"blocks of {given.block_size} of weights [{rows}, {columns}] in {bits} bits: expected {sizes[0]} bytes, "
            f"{sizes[1]} scales and {sizes[2]} bytes of zero points, got weights {list(weights.shape)} and {found}"
        )
