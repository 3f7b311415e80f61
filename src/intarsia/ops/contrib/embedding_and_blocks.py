"""com.microsoft: EmbedLayerNormalization, MatMulNBits, GatherBlockQuantized."""

from __future__ import annotations

from intarsia.graph.dims import Dim, floordiv
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.arithmetic.matmul import matrix_product
from intarsia.ops.framework.operands import normal_axis, widened
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import NodeContext, op
from intarsia.ops.tensor.quantize import dequantize_linear
from intarsia.primitives import lang as k

DOMAIN = "com.microsoft"
Tensor = k.Tensor


@dataclass(frozen=True)
class EmbeddingTables(ParameterGroup):
    """Rows of words, positions and segments, [.., width], and the factor and bias of the norm of their sum, [width]."""

    word_embedding: Tensor | None = None
    position_embedding: Tensor | None = None
    segment_embedding: Tensor | None = None
    gamma: Tensor | None = None
    beta: Tensor | None = None


@dataclass(frozen=True)
class EmbedAttributes(ParameterGroup):
    """The norm's epsilon; `mask_index_type` changes nothing."""

    epsilon: float = 1e-12
    mask_index_type: int = 0


@op("EmbedLayerNormalization", since=1, domain=DOMAIN)
def embed_layer_normalization(
    input_ids: Tensor, segment_ids: Tensor | None, tables: EmbeddingTables, mask: Tensor | None = None,
    position_ids: Tensor | None = None, *, attributes: EmbedAttributes, node: NodeContext,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Word, position and segment embeddings added and normalised; the number of words not masked; the sum."""
    word_embedding, position_embedding = tables.word_embedding, tables.position_embedding
    segment_embedding, gamma, beta = tables.segment_embedding, tables.gamma, tables.beta
    if word_embedding is None or position_embedding is None or gamma is None or beta is None:
        raise k.DefinitionError("EmbedLayerNormalization needs word_embedding, position_embedding, gamma and beta")
    batch, steps = input_ids.shape
    places = k.iota((1, steps), 1) if position_ids is None else position_ids
    total = widened(k.take(word_embedding, input_ids, 0)) + widened(k.take(position_embedding, places, 0))
    if segment_ids is not None and segment_embedding is not None:
        total = total + widened(k.take(segment_embedding, segment_ids, 0))
    centred = total - k.reduce_mean(total, [2], keepdims=True)
    spread = k.sqrt(k.reduce_mean(centred * centred, [2], keepdims=True) + attributes.epsilon)
    out = centred / spread * widened(gamma) + widened(beta)
    count = k.full((batch,), 0, DType.INT32)
    if mask is not None:
        count = k.reduce_sum(k.cast(k.not_equal(mask, 0), DType.INT32), [1])
    kind = word_embedding.dtype
    wanted_sum = node.outputs > 2 and node.wanted[2]
    return k.cast(out, kind), count if node.outputs > 1 else None, k.cast(total, kind) if wanted_sum else None


@dataclass(frozen=True)
class NBitsAttributes(ParameterGroup):
    """Sizes of the weights [N, K], and how their numbers are stored."""

    K: int
    N: int
    block_size: int
    accuracy_level: int = 0
    bits: int = 4
    weight_prepacked: int = 0


@op("MatMulNBits", since=1, domain=DOMAIN)
def matmul_n_bits(
    A: Tensor, B: Tensor, scales: Tensor, zero_points: Tensor | None = None, g_idx: Tensor | None = None,
    bias: Tensor | None = None, *, attributes: NBitsAttributes,
) -> Tensor:  # fmt: skip
    """A [.., K] or [K] times the transpose of B, whose rows are blocks of `block_size` numbers of `bits` bits.

    `g_idx` [K]: which block's scale and zero point each of the K numbers of a row has, instead of its own block's.
    """
    K, N, bits, block_size = attributes.K, attributes.N, attributes.bits, attributes.block_size
    if attributes.weight_prepacked:
        raise k.DefinitionError(
            f"weight_prepacked is {attributes.weight_prepacked}; a layout of another runtime cannot be read"
        )
    blocks = -(-K // block_size)
    numbers = k.cast(k.reshape(unpack(B, bits), (N, blocks, block_size)), DType.FLOAT)
    factors = k.reshape(widened(scales), (N, blocks, 1))
    zeros = None if zero_points is None else k.reshape(_zero_points(zero_points, N, blocks, bits), (N, blocks, 1))
    if g_idx is not None:
        numbers = k.strided_slice(k.reshape(numbers, (N, blocks * block_size)), (0, 0), (1, 1), (N, K))
        factors, zeros = _by_group(factors, g_idx, K), None if zeros is None else _by_group(zeros, g_idx, K)
    weights = (numbers - (float(1 << (bits - 1)) if zeros is None else zeros)) * factors
    if g_idx is None:
        weights = k.strided_slice(k.reshape(weights, (N, blocks * block_size)), (0, 0), (1, 1), (N, K))
    wide = widened(A)
    out = matrix_product(wide, k.transpose(k.cast(weights, wide.dtype), (1, 0)))
    if bias is not None:
        out = out + k.cast(bias, wide.dtype)
    return k.cast(out, A.dtype)


def _by_group(x: Tensor, g_idx: Tensor, depth: int) -> Tensor:
    """[N, blocks, 1] -> [N, depth], the entry that `g_idx` names for each number."""
    if g_idx.rank != 1:
        raise k.DefinitionError(f"g_idx is {g_idx!r}; expected {depth} numbers of blocks")
    k.require_least(g_idx.shape[0], depth, f"g_idx is {g_idx!r}; expected {depth} numbers of blocks")
    groups = k.strided_slice(g_idx, (0,), (1,), (depth,))
    return k.take(k.reshape(x, x.shape[:2]), k.wrap_indices(groups, x.shape[1]), 1)


def _zero_points(x: Tensor, rows: int, blocks: int, bits: int) -> Tensor:
    """[rows, blocks] numbers, from the same type or packed bytes; a row starts at a byte."""
    if x.dtype is not DType.UINT8:
        return k.cast(k.reshape(x, (rows, blocks)), DType.FLOAT)
    width = -(-blocks * bits // 8)
    unpacked = unpack(k.reshape(x, (rows, width)), bits)
    return k.cast(k.strided_slice(unpacked, (0, 0), (1, 1), (rows, blocks)), DType.FLOAT)


def unpack(x: Tensor, bits: int) -> Tensor:
    """Bytes -> 8 / bits numbers each, low bits first, along the last axis."""
    if bits not in (2, 4, 8):
        raise k.DefinitionError(f"bits is {bits}; expected 2, 4 or 8")
    if bits == 8:
        return x
    each = 8 // bits
    shift = k.iota((each,), 0, DType.UINT8) * bits
    split = k.binary("bitand", k.binary("shr", k.expand_dims(x, [x.rank]), shift), (1 << bits) - 1)
    return k.reshape(split, (*x.shape[:-1], x.shape[-1] * each))


@dataclass(frozen=True)
class BlockTableAttributes(ParameterGroup):
    """How a table's numbers are stored, along which axis their blocks lie, and along which rows are gathered."""

    bits: int = 4
    block_size: int = 128
    gather_axis: int = 0
    quantize_axis: int = 1


@op("GatherBlockQuantized", since=1, domain=DOMAIN)
def gather_block_quantized(
    data: Tensor, indices: Tensor, scales: Tensor, zero_points: Tensor | None = None, *, attributes: BlockTableAttributes
) -> Tensor:
    """Rows of a block-quantised table, dequantised after they are gathered."""
    bits = attributes.bits
    axis, blocked = (normal_axis(a, data.rank) for a in (attributes.gather_axis, attributes.quantize_axis))
    if axis == blocked:
        raise k.DefinitionError(f"gather_axis and quantize_axis are both {axis}; they have to differ")
    where = k.wrap_indices(indices, data.shape[axis])
    packed = data.dtype is DType.UINT8
    parts: list[Tensor | None] = [None if t is None else k.take(t, where, axis) for t in (data, scales, zero_points)]
    x, factors, zeros = parts
    assert x is not None
    assert factors is not None
    moved = blocked + where.rank - 1 if blocked > axis else blocked
    if packed:
        x = unpack(x, bits)
        if zeros is None:
            zeros = k.full(factors.shape, 1 << (bits - 1), DType.UINT8)
        else:
            entries: Dim = factors.shape[-1]
            zeros = k.strided_slice(unpack(zeros, bits), (0,) * zeros.rank, (1,) * zeros.rank, (*zeros.shape[:-1], entries))
    size = attributes.block_size or floordiv(x.shape[moved], factors.shape[moved])
    if not isinstance(size, int):
        raise k.SymbolicValueError("block_size 0 needs known sizes of data and scales")
    return dequantize_linear(x, factors, zeros, axis=moved, block_size=size)
