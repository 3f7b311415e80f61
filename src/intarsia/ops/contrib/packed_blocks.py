"""Numbers of com.microsoft that lie in blocks of bytes beside their factors: MatMulFpQ4, GatherPacked.

A block of MatMulFpQ4 (MLAS): the factor, float32; with an offset, a byte; 32 numbers of 4 bits. The formats of GatherPacked are
those of GGUF files (llama.cpp's ggml), by their numbers there. All were compared with onnxruntime 1.32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.arithmetic.matmul import matrix_product
from intarsia.ops.contrib.embedding_and_blocks import DOMAIN
from intarsia.ops.framework.operands import dims
from intarsia.ops.framework.registry import op
from intarsia.primitives import lang as k

Tensor = k.Tensor
_UNIT = 32  # numbers whose halves share bytes: the first 16 are the lower bits, the others the higher ones
_LINES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)  # what 4 bits of IQ4 stand for


def _bytes(x: Tensor, start: int, count: int) -> Tensor:
    """Bytes of each block, [..., count]."""
    return k.strided_slice(x, (*[0] * (x.rank - 1), start), (1,) * x.rank, (*x.shape[:-1], count))


def _whole(x: Tensor, dtype: DType) -> Tensor:
    """The integer whose bytes, the lowest first, are the last axis: [...]."""
    total: Tensor | None = None
    count = x.shape[-1]
    assert isinstance(count, int)
    for i in range(count):
        part = k.cast(k.reshape(_bytes(x, i, 1), x.shape[:-1]), dtype)
        total = part if total is None else k.binary("bitor", total, k.binary("shl", part, 8 * i))
    assert total is not None
    return total


def _half(x: Tensor, start: int) -> Tensor:
    """The float16 at a byte of each block, as float32 [..., 1]."""
    bits = k.bitcast(_whole(_bytes(x, start, 2), DType.UINT16), DType.FLOAT16)
    return k.cast(k.expand_dims(bits, [x.rank - 1]), DType.FLOAT)


def _bits(x: Tensor, low: int, count: int) -> Tensor:
    """`count` bits of each byte from `low` on."""
    moved = k.binary("shr", x, low) if low else x
    return k.binary("bitand", moved, (1 << count) - 1) if low + count < 8 else moved


def _signed(x: Tensor) -> Tensor:
    """Codes as integers that may be less than 0."""
    return k.cast(x, DType.INT32)


def _nibbles(x: Tensor) -> Tensor:
    """[..., n] bytes as [..., 2 n] codes: all lower halves, then all higher ones."""
    return k.concat([_bits(x, 0, 4), _bits(x, 4, 4)], x.rank - 1)


def _along(x: Tensor, places: np.ndarray) -> Tensor:
    """Elements of the last axis by number."""
    return k.take(x, k.constant(places.astype(np.int64)), x.rank - 1)


def _scaled(codes: Tensor, factor: Tensor) -> Tensor:
    return k.cast(codes, DType.FLOAT) * factor


# --- formats of GatherPacked: blocks of bytes [..., block, bytes] -> numbers [..., block, numbers] ---------------------


def _q4_0(x: Tensor) -> Tensor:
    return _scaled(_signed(_nibbles(_bytes(x, 2, 16))) - 8, _half(x, 0))


def _q5_0(x: Tensor) -> Tensor:
    flags = k.expand_dims(_whole(_bytes(x, 2, 4), DType.UINT32), [x.rank - 1])
    fifth = k.binary("bitand", k.binary("shr", flags, k.constant(np.arange(32, dtype=np.uint32))), 1)
    return _scaled(_signed(_nibbles(_bytes(x, 6, 16))) + k.cast(fifth, DType.INT32) * 16 - 16, _half(x, 0))


def _q8_0(x: Tensor) -> Tensor:
    return _scaled(k.bitcast(_bytes(x, 2, 32), DType.INT8), _half(x, 0))


def _q5_k(x: Tensor) -> Tensor:
    """Eight parts of 32: each has a factor and a least number of 6 bits."""
    table = _bytes(x, 4, 12)
    first, second, third = (_bits(_bytes(table, i, 4), 0, 8) for i in (0, 4, 8))
    factors = k.concat([_bits(first, 0, 6), _six(_bits(third, 0, 4), first)], x.rank - 1)
    least = k.concat([_bits(second, 0, 6), _six(_bits(third, 4, 4), second)], x.rank - 1)
    part, place = np.divmod(np.arange(256), 32)
    codes = _along(_bytes(x, 48, 128), part // 2 * 32 + place)
    low = k.select(k.constant(part % 2 == 0), _bits(codes, 0, 4), _bits(codes, 4, 4))
    fifth = _bits_at(_along(_bytes(x, 16, 32), place), part)
    numbers = k.cast(_signed(low) + _signed(fifth) * 16, DType.FLOAT)
    steps, offsets = (k.cast(_along(t, part), DType.FLOAT) for t in (factors, least))
    return numbers * (steps * _half(x, 0)) - offsets * _half(x, 2)


def _six(low: Tensor, high: Tensor) -> Tensor:
    """4 lower bits, and the 2 highest of another byte above them."""
    return k.binary("bitor", low, k.binary("shl", _bits(high, 6, 2), 4))


def _bits_at(x: Tensor, places: np.ndarray, width: int = 1) -> Tensor:
    """Of each byte `width` bits, from a place of its own on."""
    return k.binary("bitand", k.binary("shr", x, k.constant(places.astype(np.uint8))), (1 << width) - 1)


def _q6_k(x: Tensor) -> Tensor:
    """Two halves of four groups of 32; 16 numbers share a signed factor of 8 bits."""
    half, rest = np.divmod(np.arange(256), 128)
    group, place = np.divmod(rest, 32)
    codes = _along(_bytes(x, 0, 128), 64 * half + 32 * (group % 2) + place)
    low = k.select(k.constant(group < 2), _bits(codes, 0, 4), _bits(codes, 4, 4))
    high = _bits_at(_along(_bytes(x, 128, 64), 32 * half + place), 2 * group, 2)
    factors = k.bitcast(_along(_bytes(x, 192, 16), np.arange(256) // 16), DType.INT8)
    return _scaled(_signed(low) + _signed(high) * 16 - 32, k.cast(factors, DType.FLOAT) * _half(x, 208))


def _iq4(codes: Tensor) -> Tensor:
    return k.take(k.constant(np.array(_LINES, np.int32)), k.cast(codes, DType.INT64), 0)


def _iq4_nl(x: Tensor) -> Tensor:
    return _scaled(_iq4(_nibbles(_bytes(x, 2, 16))), _half(x, 0))


def _iq4_xs(x: Tensor) -> Tensor:
    """Eight parts of 32 whose factors have 4 bits in one place and 2 in another."""
    part, place = np.divmod(np.arange(256), 32)
    codes = _along(_bytes(x, 8, 128), part * 16 + place % 16)
    low = k.select(k.constant(place < 16), _bits(codes, 0, 4), _bits(codes, 4, 4))
    number = np.arange(8)
    lower = _bits_at(_along(_bytes(x, 4, 4), number // 2), number % 2 * 4, 4)
    upper = _bits_at(_along(_bytes(x, 2, 2), number // 4), number % 4 * 2, 2)
    factors = _along(_signed(lower) + _signed(upper) * 16 - 32, part)
    return _scaled(_iq4(low), k.cast(factors, DType.FLOAT) * _half(x, 0))


def _q2_0(x: Tensor) -> Tensor:
    byte, place = np.divmod(np.arange(64), 4)
    return _scaled(_signed(_bits_at(_along(_bytes(x, 2, 16), byte), 2 * place, 2)) - 1, _half(x, 0))


@dataclass(frozen=True)
class _Format:
    name: str
    numbers: int  # of a block
    nbytes: int
    read: Callable[[Tensor], Tensor]


def _plain(dtype: DType, bits: DType) -> Callable[[Tensor], Tensor]:
    return lambda x: k.cast(k.expand_dims(k.bitcast(_whole(x, bits), dtype), [x.rank - 1]), DType.FLOAT)


_FORMATS = {
    0: _Format("F32", 1, 4, _plain(DType.FLOAT, DType.UINT32)), 1: _Format("F16", 1, 2, _plain(DType.FLOAT16, DType.UINT16)),
    2: _Format("Q4_0", 32, 18, _q4_0), 6: _Format("Q5_0", 32, 22, _q5_0), 8: _Format("Q8_0", 32, 34, _q8_0),
    13: _Format("Q5_K", 256, 176, _q5_k), 14: _Format("Q6_K", 256, 210, _q6_k), 20: _Format("IQ4_NL", 32, 18, _iq4_nl),
    23: _Format("IQ4_XS", 256, 136, _iq4_xs), 30: _Format("BF16", 1, 2, _plain(DType.BFLOAT16, DType.UINT16)),
    42: _Format("Q2_0", 64, 18, _q2_0),
}  # fmt: skip
_TABLES = {16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 22: "IQ2_S"}  # whose codes are numbers of a table of hundreds of rows
_OUTPUTS = (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16)


@op("GatherPacked", 1, domain=DOMAIN)
def gather_packed(data: Tensor, indices: Tensor, *, K: int, output_dtype: int = 16, packed_type: int) -> Tensor:
    """Rows of a table [rows, bytes] of `K` numbers each, [..., K]; a row that does not exist is row 0."""
    form = _FORMATS.get(packed_type)
    if form is None:
        known = ", ".join(f"{n} ({f.name})" for n, f in _FORMATS.items())
        given = f"{packed_type} ({_TABLES[packed_type]})" if packed_type in _TABLES else str(packed_type)
        raise k.DefinitionError(f"packed_type is {given}; expected one of {known}")
    if output_dtype not in _OUTPUTS:
        raise k.DefinitionError(f"output_dtype is {output_dtype}; expected 1 (float), 10 (float16) or 16 (bfloat16)")
    if K < 1 or K % form.numbers:
        raise k.DefinitionError(f"K is {K}; expected a positive multiple of {form.numbers}, the numbers of a {form.name} block")
    if data.rank != 2:
        raise k.DefinitionError(f"data is {data!r}; expected [rows, bytes]")
    blocks = K // form.numbers
    k.require_equal(data.shape[1], blocks * form.nbytes, f"the bytes of a row of data, {K} numbers of {form.name}")
    k.require_least(data.shape[0], 1, "the rows of data")
    wanted = k.cast(indices, DType.INT64)
    inside = (wanted >= 0) & (wanted < k.size(data.shape[0]))
    rows = k.take(data, k.select(inside, wanted, 0), 0)
    numbers = form.read(k.reshape(rows, (*indices.shape, blocks, form.nbytes)))
    return k.cast(k.reshape(numbers, (*indices.shape, K)), DType(output_dtype))


@op("MatMulFpQ4", 1, domain=DOMAIN, values=("B_shape",))
def matmul_fp_q4(A: Tensor, B: Tensor, B_shape: Sequence[int] | None = None, *, blk_quant_type: int = 1) -> Tensor:
    """A times a matrix [K, N] of 4 bits: of each column, blocks of 32, the last one longer than the column.

    Blocks of 64 (`blk_quant_type` 2) are in the operator's text, but onnxruntime reads them as those of type 1.
    """
    if blk_quant_type not in (0, 1):
        raise k.DefinitionError(f"blk_quant_type is {blk_quant_type}; expected 0 (blocks of 32) or 1 (with an offset)")
    shape = dims(np.asarray(B_shape))
    if len(shape) != 2:
        raise k.DefinitionError(f"B_shape has {len(shape)} sizes; expected two, K and N")
    depth, columns = shape
    if not isinstance(depth, int) or not isinstance(columns, int):
        raise k.SymbolicValueError("the elements of B_shape are known only at run time")
    if depth < 1 or columns < 1:
        raise k.DefinitionError(f"B_shape is [{depth}, {columns}]; expected sizes of at least 1")
    head = 4 + blk_quant_type
    blocks, nbytes = -(-depth // _UNIT), head + _UNIT // 2
    k.require_equal(B.shape[0], columns * blocks * nbytes, f"the bytes of B, {columns} columns of {blocks} blocks")
    x = k.reshape(B, (columns, blocks, nbytes))
    factor = k.expand_dims(k.bitcast(_whole(_bytes(x, 0, 4), DType.UINT32), DType.FLOAT), [2])
    zero = _signed(_bytes(x, 4, 1)) if blk_quant_type else 8
    weights = k.reshape(_scaled(_signed(_nibbles(_bytes(x, head, _UNIT // 2))) - zero, factor), (columns, blocks * _UNIT))
    weights = k.strided_slice(weights, (0, 0), (1, 1), (columns, depth))
    return matrix_product(A, k.transpose(weights, (1, 0)))
