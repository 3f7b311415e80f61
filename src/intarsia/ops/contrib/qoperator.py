"""com.microsoft: operators on quantised tensors (onnxruntime's QOperator format): De-, operator, QuantizeLinear."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from intarsia.graph.dims import format_shape
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.arithmetic.matmul import matrix_product
from intarsia.ops.contrib.attention.attention import Choice, Earlier, Projection, attend_projected
from intarsia.ops.contrib.attention.packed_attention import OptionalScaleAttributes
from intarsia.ops.contrib.embedding_and_blocks import EmbedAttributes, EmbeddingTables, embed_layer_normalization
from intarsia.ops.framework.operands import OMITTED, normal_axis, widened
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.quantized import OutputQuantization, Quantized, QuantizedMatrix
from intarsia.ops.framework.registry import NodeContext, op
from intarsia.ops.internal.channels_last import to_channels_first, to_channels_last
from intarsia.ops.nn.conv import qlinear_conv
from intarsia.ops.nn.pooling import average_over
from intarsia.ops.nn.sliding_windows import PoolAttributes, WindowAttributes
from intarsia.ops.tensor.quantize import Rounding, dequantize_linear, dynamic_quantize_linear, quantize_linear
from intarsia.primitives import lang as k

DOMAIN = "com.microsoft"
Tensor = k.Tensor


def _quantized(y: Tensor, scale: Tensor, zero: Tensor | None, like: Tensor) -> Tensor:
    """`y` by scale and zero point; the element type is the zero point's or that of `like`.

    It is multiplied by the scale's reciprocal, as onnxruntime's kernels do: what lies between two steps by less than float32's
    rounding may fall to the other one.
    """
    one = k.full((), 1.0, scale.dtype)
    zero = zero if zero is not None else k.full((), 0, like.dtype)
    return quantize_linear(y * (one / scale), one, zero, rounding=Rounding())


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def rule(
        A: Tensor, A_scale: Tensor, A_zero_point: Tensor | None = None, B: Tensor = OMITTED, B_scale: Tensor = OMITTED,
        B_zero_point: Tensor | None = None, C_scale: Tensor = OMITTED, C_zero_point: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        y = function(dequantize_linear(A, A_scale, A_zero_point), dequantize_linear(B, B_scale, B_zero_point))
        return _quantized(y, C_scale, C_zero_point, A)

    return rule


op("QLinearAdd", since=1, domain=DOMAIN)(_binary(lambda a, b: a + b))
op("QLinearMul", since=1, domain=DOMAIN)(_binary(lambda a, b: a * b))


@op("QLinearSigmoid", since=1, domain=DOMAIN)
def qlinear_sigmoid(
    X: Tensor,
    X_scale: Tensor,
    X_zero_point: Tensor | None = None,
    Y_scale: Tensor = OMITTED,
    Y_zero_point: Tensor | None = None,
) -> Tensor:
    return _quantized(k.sigmoid(dequantize_linear(X, X_scale, X_zero_point)), Y_scale, Y_zero_point, X)


@op("QLinearLeakyRelu", since=1, domain=DOMAIN)
def qlinear_leaky_relu(
    X: Tensor, X_scale: Tensor, X_zero_point: Tensor | None = None, Y_scale: Tensor = OMITTED,
    Y_zero_point: Tensor | None = None, *, alpha: float = 0.01,
) -> Tensor:  # fmt: skip
    x = dequantize_linear(X, X_scale, X_zero_point)
    return _quantized(k.select(x < 0, x * alpha, x), Y_scale, Y_zero_point, X)


@op("QLinearSoftmax", since=1, domain=DOMAIN)
def qlinear_softmax(
    X: Tensor, X_scale: Tensor, x_zero_point: Tensor | None = None, y_scale: Tensor = OMITTED,
    y_zero_point: Tensor = OMITTED, *, axis: int = -1, opset: int,
) -> Tensor:  # fmt: skip
    """Softmax along `axis`, or before opset 13 over all axes from it on."""
    x = dequantize_linear(X, X_scale, x_zero_point)
    first = normal_axis(axis, x.rank)
    axes = [first] if opset >= 13 else list(range(first, x.rank))
    e = k.exp(x - k.reduce(x, "max", axes, True))
    return _quantized(e / k.reduce_sum(e, axes, True), y_scale, y_zero_point, X)


@op("QLinearConcat", since=1, domain=DOMAIN)
def qlinear_concat(Y_scale: Tensor, Y_zero_point: Tensor, *inputs: Tensor, axis: int) -> Tensor:
    """`inputs` are tensor, scale, zero point of each part."""
    if not inputs or len(inputs) % 3:
        raise k.DefinitionError(f"QLinearConcat needs tensor, scale and zero point of each part; got {len(inputs)} inputs")
    parts = [dequantize_linear(*inputs[i : i + 3]) for i in range(0, len(inputs), 3)]
    return _quantized(k.concat(parts, axis), Y_scale, Y_zero_point, inputs[0])


@op("QLinearGlobalAveragePool", since=1, domain=DOMAIN)
def qlinear_global_average_pool(
    X: Tensor, x_scale: Tensor, x_zero_point: Tensor, y_scale: Tensor, y_zero_point: Tensor, *, channels_last: int = 0
) -> Tensor:
    x = dequantize_linear(X, x_scale, x_zero_point)
    axes = range(1, X.rank - 1) if channels_last else range(2, X.rank)
    return _quantized(k.reduce_mean(x, axes, True), y_scale, y_zero_point, X)


@dataclass(frozen=True)
class AnyLayoutPoolAttributes(PoolAttributes):
    """Those of AveragePool, and whether channels come last."""

    channels_last: int = 0
    count_include_pad: int = 0


@op("QLinearAveragePool", since=1, domain=DOMAIN)
def qlinear_average_pool(
    X: Tensor, x_scale: Tensor, x_zero_point: Tensor | None = None, y_scale: Tensor = OMITTED,
    y_zero_point: Tensor | None = None, *, attributes: AnyLayoutPoolAttributes,
) -> Tensor:  # fmt: skip
    x = dequantize_linear(X, x_scale, x_zero_point)
    inner = range(1, X.rank - 1)
    x = k.transpose(x, (0, X.rank - 1, *inner)) if attributes.channels_last else x
    y = average_over(x, attributes, attributes.count_include_pad)
    y = k.transpose(y, (0, *range(2, X.rank), 1)) if attributes.channels_last else y
    return _quantized(y, y_scale, y_zero_point, X)


@op("QLinearWhere", since=1, domain=DOMAIN)
def qlinear_where(condition: Tensor, X: QuantizedMatrix, Y: QuantizedMatrix, z: OutputQuantization) -> Tensor:
    x, y = (dequantize_linear(v.values, v.scale, v.zero_point) for v in (X, Y))
    return _quantized(k.select(condition, x, y), z.scale, z.zero_point, X.values)


@dataclass(frozen=True)
class QGemmAttributes(ParameterGroup):
    """A factor of the product, and which operands are transposed."""

    alpha: float = 1.0
    transA: int = 0
    transB: int = 0


@op("QGemm", since=1, domain=DOMAIN)
def qgemm(
    A: QuantizedMatrix, B: QuantizedMatrix, C: Tensor | None = None, y_scale: Tensor | None = None,
    y_zero_point: Tensor | None = None, *, attributes: QGemmAttributes,
) -> Tensor:  # fmt: skip
    """alpha A B + C, where C counts in steps of alpha * a_scale * b_scale; float32 where `y_scale` is omitted.

    Integers are summed, and the sums scaled, as onnxruntime does: an infinite scale meets no zeros inside a sum.
    """
    ones = {"a_scale": A.scale, "a_zero_point": A.zero_point, "y_scale": y_scale, "y_zero_point": y_zero_point}
    for name, x in ones.items():
        if x is not None and not _holds_one(x):
            raise k.DefinitionError(f"{name} has shape {format_shape(x.shape)}; expected a scalar or [1]")
    for name, x in (("b_scale", B.scale), ("b_zero_point", B.zero_point)):
        if x.rank > 1:
            raise k.DefinitionError(
                f"{name} has shape {format_shape(x.shape)}; expected a scalar, or [N], one for each column of the product"
            )
    pairs = (A.values, attributes.transA), (B.values, attributes.transB)
    left, right = (k.transpose(x, (1, 0)) if turned else x for x, turned in pairs)
    total = matrix_product(
        _less_zero(left, A.zero_point, by_row=True), _less_zero(right, B.zero_point, by_row=False), DType.INT32
    )
    if C is not None:
        total = total + C
    y = k.cast(total, DType.FLOAT) * (_spread(A.scale, by_row=True) * _spread(B.scale, by_row=False) * attributes.alpha)
    return y if y_scale is None else _quantized(y, y_scale, y_zero_point, A.values)


def _holds_one(x: Tensor) -> bool:
    """Whether `x` is a scalar or [1], or may be in a run."""
    return not x.rank or (x.rank == 1 and (x.shape[0] == 1 or not isinstance(x.shape[0], int)))


# --- integer products -----------------------------------------------------------------------------------------------


@op("MatMulInteger16", since=1, domain=DOMAIN)
def matmul_integer_16(A: Tensor, B: Tensor) -> Tensor:
    """The product of 16-bit integers; uint32 where both are unsigned, else int32. Sums wrap around."""
    unsigned = A.dtype is DType.UINT16 and B.dtype is DType.UINT16
    wide = DType.UINT32 if unsigned else DType.INT32
    return matrix_product(k.cast(A, wide), k.cast(B, wide), wide)


@op("MatMulIntegerToFloat", since=1, domain=DOMAIN)
def matmul_integer_to_float(
    A: Tensor, B: Tensor, a_scale: Tensor, b_scale: Tensor, a_zero_point: Tensor | None = None,
    b_zero_point: Tensor | None = None, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """(A - zero)(B - zero) summed in int32, times both scales, plus bias.

    A's scale and zero point are scalars, or one per row; B's are scalars, or one per column ([N] or [.., 1, N]).
    """
    total = matrix_product(_less_zero(A, a_zero_point, by_row=True), _less_zero(B, b_zero_point, by_row=False), DType.INT32)
    y = k.cast(total, DType.FLOAT) * (widened(_spread(a_scale, by_row=True)) * widened(_spread(b_scale, by_row=False)))
    return k.cast(y if bias is None else y + widened(bias), a_scale.dtype)


def _less_zero(x: Tensor, zero: Tensor | None, by_row: bool) -> Tensor:
    wide = k.cast(x, DType.INT32)
    return wide if zero is None else wide - k.cast(_spread(zero, by_row), DType.INT32)


def _spread(p: Tensor, by_row: bool) -> Tensor:
    """A quantisation parameter as it broadcasts to a matrix: one element, one per row of A, or one per column of B."""
    if all(d == 1 for d in p.shape):
        return k.reshape(p, ())
    return k.expand_dims(p, [1]) if by_row and p.rank == 1 else p


@op("DynamicQuantizeMatMul", since=1, domain=DOMAIN)
def dynamic_quantize_matmul(
    A: Tensor, B: Tensor, b_scale: Tensor, b_zero_point: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """A, quantised to uint8 by its own range, times B."""
    a, a_scale, a_zero = dynamic_quantize_linear(A)
    return matmul_integer_to_float(a, B, a_scale, b_scale, a_zero, b_zero_point, bias)


@op("MulInteger", since=1, domain=DOMAIN)
def mul_integer(
    A: Tensor, A_zero_point: Tensor | None = None, B: Tensor = OMITTED, B_zero_point: Tensor | None = None
) -> Tensor:
    """(A - zero)(B - zero) in int32, with broadcasting."""
    return _less_zero(A, A_zero_point, by_row=True) * _less_zero(B, B_zero_point, by_row=True)


@dataclass(frozen=True)
class ScaledProjection(ParameterGroup):
    """Operands of a projection to queries, keys and values in 8-bit integers, with their scales."""

    input: Tensor
    weight: Tensor
    bias: Tensor
    input_scale: Tensor
    weight_scale: Tensor


@dataclass(frozen=True)
class ProjectionZeros(ParameterGroup):
    """Zero points of a projection's operands, 0 where they are left out."""

    input_zero_point: Tensor | None = None
    weight_zero_point: Tensor | None = None


@dataclass(frozen=True)
class QAttentionAttributes(OptionalScaleAttributes):
    """Attributes of QAttention."""

    do_rotary: int | None = None
    past_present_share_buffer: int | None = None
    unidirectional: int = 0


@op("QAttention", since=1, domain=DOMAIN)
def q_attention(
    operands: ScaledProjection, mask_index: Tensor | None, zeros: ProjectionZeros, past: Tensor | None = None, *,
    attributes: QAttentionAttributes, node: NodeContext,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Attention whose projection is a product of 8-bit integers."""
    if attributes.do_rotary:
        raise k.DefinitionError("do_rotary is 1; expected 0: QAttention has no tables of angles")
    if attributes.past_present_share_buffer and past is not None:
        raise k.DefinitionError("past_present_share_buffer is 1; expected 0: QAttention has no past_sequence_length")
    batch, queries, width = operands.input.shape
    rows = k.reshape(operands.input, (batch * queries, width))
    flat = matmul_integer_to_float(
        rows, operands.weight, operands.input_scale, operands.weight_scale, zeros.input_zero_point, zeros.weight_zero_point,
        operands.bias,
    )  # fmt: skip
    projection = Projection(k.reshape(flat, (batch, queries, operands.weight.shape[1])), attributes.num_heads, None)
    choice = Choice(attributes.scale or 0.0, attributes.mask_filter_value, bool(attributes.unidirectional), node.outputs > 1)
    earlier = None if past is None else Earlier(past)
    return attend_projected(projection, mask_index, earlier, None, choice, operands.input_scale.dtype)


@dataclass(frozen=True)
class Bnb4Attributes(ParameterGroup):
    """Sizes of the weights [N, K], and how their numbers are stored; `training_mode` changes nothing."""

    K: int
    N: int
    block_size: int
    quant_type: int
    training_mode: int = 0
    transB: int = 1


@op("MatMulBnb4", since=1, domain=DOMAIN)
def matmul_bnb4(A: Tensor, B: Tensor, absmax: Tensor, *, attributes: Bnb4Attributes) -> Tensor:
    """A times [N, K] numbers of 4 bits: FP4 (`quant_type` 0) or NF4 (1), times the largest magnitude of their block."""
    K, N, block_size, quant_type = attributes.K, attributes.N, attributes.block_size, attributes.quant_type
    if quant_type not in (0, 1):
        raise k.DefinitionError(f"quant_type is {quant_type}; expected 0 for FP4 or 1 for NF4")
    codes = k.reshape(
        k.concat([k.expand_dims(part, [1]) for part in _nibbles_high_first(k.reshape(B, (-(-N * K // 2),)))], 1),
        (-(-N * K // 2) * 2,),
    )
    values = k.take(k.constant(np.array(BNB4_NUMBERS[quant_type], np.float32)), k.cast(codes, DType.INT64), 0)
    values = k.strided_slice(values, (0,), (1,), (N * K,))
    blocks = -(-N * K // block_size)
    factor = k.reshape(k.broadcast(k.reshape(widened(absmax), (blocks, 1)), (blocks, block_size)), (blocks * block_size,))
    weights = k.reshape(values * k.strided_slice(factor, (0,), (1,), (N * K,)), (N, K))
    wide = widened(A)
    return k.cast(matrix_product(wide, k.transpose(weights, (1, 0)) if attributes.transB else weights), A.dtype)


def bnb4_weights(codes: np.ndarray, largest: np.ndarray, size: int, quant_type: int, shape: tuple[int, int]) -> np.ndarray:
    """MatMulBnb4's weights, float32, in the order in which they are stored: `shape`.

    Args:
        codes: uint8, two of them in each, the first in the higher bits.
        largest: the largest magnitude of each block of `size` weights.
    """
    count = shape[0] * shape[1]
    each = np.stack([codes.reshape(-1) >> 4, codes.reshape(-1) & 15], 1).reshape(-1)[:count]
    factors = np.repeat(largest.reshape(-1).astype(np.float32), size)[:count]
    weights: np.ndarray = np.array(BNB4_NUMBERS[quant_type], np.float32)[each] * factors
    return weights.reshape(shape)


def _nibbles_high_first(x: Tensor) -> tuple[Tensor, Tensor]:
    return k.binary("shr", x, 4), k.binary("bitand", x, 15)


# The numbers that bitsandbytes' 4-bit codes stand for: sign and 1/192, 2/3, 1, 1/3, 1/2, 1/6, 1/4 for FP4; the quantiles of a
# normal distribution for NF4 (Dettmers et al., QLoRA, arXiv 2305.14314, appendix E).
_FP4 = (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
BNB4_NUMBERS = (
    (*_FP4, *(-v for v in _FP4)),
    (
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
        -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ),
)  # fmt: skip


# --- others ---------------------------------------------------------------------------------------------------------


@op("QLinearConv", since=1, domain=DOMAIN)
def qlinear_conv_any_layout(
    x: Quantized, w: Quantized, y: OutputQuantization, B: Tensor | None = None, *, channels_last: int = 0, group: int = 1,
    attributes: WindowAttributes,
) -> Tensor:  # fmt: skip
    """QLinearConv whose x and y may be channels-last; w is [M, C / group, ...] either way."""
    if not channels_last:
        return qlinear_conv(x, w, y, B, group=group, attributes=attributes)
    image = replace(x, values=to_channels_first(x.values))
    return to_channels_last(qlinear_conv(image, w, y, B, group=group, attributes=attributes))


@op("QLinearReduceMean", since=1, domain=DOMAIN)
def qlinear_reduce_mean(
    data: Tensor, data_scale: Tensor, data_zero_point: Tensor | None = None, reduced_scale: Tensor = OMITTED,
    reduced_zero_point: Tensor | None = None, *, axes: Sequence[int], keepdims: int,
) -> Tensor:  # fmt: skip
    mean = k.reduce_mean(dequantize_linear(data, data_scale, data_zero_point), axes or range(data.rank), bool(keepdims))
    return _quantized(mean, reduced_scale, reduced_zero_point, data)


@op("ReduceSumInteger", since=1, domain=DOMAIN)
def reduce_sum_integer(data: Tensor, *, axes: Sequence[int], keepdims: int) -> Tensor:
    wide = DType.INT32 if data.dtype.is_signed_integer else DType.UINT32
    return k.reduce_sum(k.cast(data, wide), axes or range(data.rank), bool(keepdims))


@dataclass(frozen=True)
class ByteTables(ParameterGroup):
    """Tables of embeddings, and the factor and bias of a norm, in 8 bits."""

    word_embedding_quant: Tensor = OMITTED
    position_embedding_quant: Tensor = OMITTED
    segment_embedding: Tensor | None = None
    gamma_quant: Tensor = OMITTED
    beta_quant: Tensor = OMITTED


@dataclass(frozen=True)
class TableQuantization(ParameterGroup):
    """Scales and zero points of `ByteTables`."""

    word_embedding_scale: Tensor = OMITTED
    position_embedding_scale: Tensor = OMITTED
    segment_embedding_scale: Tensor | None = None
    gamma_scale: Tensor = OMITTED
    beta_scale: Tensor = OMITTED
    word_embedding_zero_point: Tensor = OMITTED
    position_embedding_zero_point: Tensor = OMITTED
    segment_embedding_zero_point: Tensor | None = None
    gamma_zero_point: Tensor = OMITTED
    beta_zero_point: Tensor = OMITTED

    def applied(self, tables: ByteTables) -> EmbeddingTables:
        """The tables in floating point."""
        segment = None
        if tables.segment_embedding is not None and self.segment_embedding_scale is not None:
            segment = dequantize_linear(
                tables.segment_embedding, self.segment_embedding_scale, self.segment_embedding_zero_point
            )
        return EmbeddingTables(
            dequantize_linear(tables.word_embedding_quant, self.word_embedding_scale, self.word_embedding_zero_point),
            dequantize_linear(
                tables.position_embedding_quant, self.position_embedding_scale, self.position_embedding_zero_point
            ),
            segment, dequantize_linear(tables.gamma_quant, self.gamma_scale, self.gamma_zero_point),
            dequantize_linear(tables.beta_quant, self.beta_scale, self.beta_zero_point),
        )  # fmt: skip


@op("QEmbedLayerNormalization", since=1, domain=DOMAIN)
def q_embed_layer_normalization(
    input_ids: Tensor, segment_ids: Tensor | None, tables: ByteTables, mask: Tensor | None, quantization: TableQuantization, *,
    epsilon: float = 1e-12, node: NodeContext,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """EmbedLayerNormalization of tables in 8 bits, each with a scale and a zero point."""
    dequantized = quantization.applied(tables)
    attributes = EmbedAttributes(epsilon)
    return embed_layer_normalization(input_ids, segment_ids, dequantized, mask, attributes=attributes, node=node)
