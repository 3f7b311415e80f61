"""Matrix products: MatMul, Gemm, their integer forms, and FusedMatMul."""

from __future__ import annotations

from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.operands import HALF, aligned, as_scalar
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.quantized import OutputQuantization, Quantized
from intarsia.ops.framework.registry import op
from intarsia.primitives import lang as k

Tensor = k.Tensor


def matrix_product(a: Tensor, b: Tensor, accumulate: DType | None = None) -> Tensor:
    """NumPy's matmul: a vector on the left is a row, on the right a column, and its axis is dropped from the result."""
    if not a.rank or not b.rank:
        raise k.DefinitionError(f"MatMul does not take scalars, got {a!r} and {b!r}")
    left = k.expand_dims(a, [0]) if a.rank == 1 else a
    right = k.expand_dims(b, [1]) if b.rank == 1 else b
    out = k.dot(left, right, accumulate)
    shape = list(out.shape)
    if b.rank == 1:
        del shape[-1]
    if a.rank == 1:
        del shape[-1 if b.rank == 1 else -2]
    return k.reshape(out, shape)


@op("MatMul", (1, 9, 13))
def matmul(A: Tensor, B: Tensor) -> Tensor:
    return matrix_product(A, B)


def _scaled(x: Tensor, factor: float) -> Tensor:
    if factor == 1.0:
        return x
    if x.dtype.is_integer and factor != int(factor):
        return k.cast(k.cast(x, DType.DOUBLE) * factor, x.dtype)
    return x * factor


@dataclass(frozen=True)
class GemmAttributes(ParameterGroup):
    """Factors of the product and of C, and which operands are transposed."""

    alpha: float = 1.0
    beta: float = 1.0
    transA: int = 0
    transB: int = 0


@op("Gemm", (1, 6))
def gemm_broadcast(A: Tensor, B: Tensor, C: Tensor, *, attributes: GemmAttributes, broadcast: int = 0) -> Tensor:
    return gemm(A, B, C, attributes=attributes)


@op("Gemm", (7, 9, 11, 13))
def gemm(A: Tensor, B: Tensor, C: Tensor | None = None, *, attributes: GemmAttributes) -> Tensor:
    """alpha * A' @ B' + beta * C; float16 and bfloat16 are rounded once, at the end."""
    for x, name in ((A, "A"), (B, "B")):
        if x.rank != 2:
            raise k.DefinitionError(f"Gemm's {name} must be a matrix, got {x!r}")
    half = A.dtype in HALF
    left = k.transpose(A, (1, 0)) if attributes.transA else A
    right = k.transpose(B, (1, 0)) if attributes.transB else B
    out = _scaled(k.dot(left, right, DType.FLOAT if half else None), attributes.alpha)
    if C is not None and attributes.beta != 0.0:
        out = out + k.broadcast(_scaled(k.cast(C, out.dtype), attributes.beta), out.shape)
    return k.cast(out, A.dtype)


def _centred(x: Tensor, zero_point: Tensor | None, row_vector: bool) -> Tensor:
    """`x` less its zero point as int32. A vector of zero points is one per row of A, or per column of B."""
    wide = k.cast(x, DType.INT32)
    if zero_point is None:
        return wide
    if zero_point.rank == 1 and zero_point.shape[0] == 1:
        zero_point = k.reshape(zero_point, ())
    if zero_point.rank == 1 and not row_vector:
        zero_point = aligned(zero_point, 2, 0)
    return wide - k.cast(zero_point, DType.INT32)


@op("MatMulInteger", 10)
def matmul_integer(A: Tensor, B: Tensor, a_zero_point: Tensor | None = None, b_zero_point: Tensor | None = None) -> Tensor:
    return matrix_product(_centred(A, a_zero_point, False), _centred(B, b_zero_point, True), DType.INT32)


def _dequantized(x: Quantized, row_vector: bool) -> Tensor:
    scale, zero_point = (k.reshape(p, ()) if p.rank == 1 and p.shape[0] == 1 else p for p in (x.scale, x.zero_point))
    if not row_vector:
        scale, zero_point = (aligned(p, 2, 0) if p.rank == 1 else p for p in (scale, zero_point))
    return (k.cast(x.values, DType.FLOAT) - k.cast(zero_point, DType.FLOAT)) * k.cast(scale, DType.FLOAT)


def requantized(x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """round(x / scale) + zero_point, half to even, saturated to the type of `zero_point`."""
    dtype = zero_point.dtype
    if not dtype.is_integer:
        return k.cast(x / scale + k.cast(zero_point, x.dtype), dtype)
    half = 1 << (dtype.bits - 1)
    low, high = (-half, half - 1) if dtype.is_signed_integer else (0, 2 * half - 1)
    shifted = k.unary("round", x / scale) + k.cast(zero_point, x.dtype)
    return k.limited(shifted, low, high, dtype)


@op("QLinearMatMul", 1, domain="com.microsoft")  # as onnxruntime's quantiser writes it for float8
@op("QLinearMatMul", (10, 21))
def qlinear_matmul(a: Quantized, b: Quantized, y: OutputQuantization) -> Tensor:
    """(a - zero)(b - zero) summed in int32, scaled to y's quantisation (float8: computed in float32)."""
    if a.values.dtype.is_integer and b.values.dtype.is_integer:
        total = matrix_product(_centred(a.values, a.zero_point, False), _centred(b.values, b.zero_point, True), DType.INT32)
        left = _per_row(a.scale)
        right = k.reshape(b.scale, ()) if b.scale.rank == 1 and b.scale.shape[0] == 1 else b.scale
        real = k.cast(total, DType.FLOAT) * (k.cast(left, DType.FLOAT) * k.cast(right, DType.FLOAT))
    else:
        real = matrix_product(_dequantized(a, row_vector=False), _dequantized(b, row_vector=True))
    return requantized(real, k.cast(_per_row(y.scale), DType.FLOAT), _per_row(y.zero_point))


def _per_row(p: Tensor) -> Tensor:
    if p.rank == 1 and p.shape[0] == 1:
        return as_scalar(p, "a scale")
    return aligned(p, 2, 0) if p.rank == 1 else p


def _transposed(x: Tensor, last_two: int, batch: int) -> Tensor:
    """FusedMatMul's operand: `batch` moves the first axis behind the other batch axes, `last_two` swaps the matrix axes."""
    perm = list(range(x.rank))
    if batch:
        perm = [*perm[1:-1], perm[0], perm[-1]]
    if last_two:
        perm[-2], perm[-1] = perm[-1], perm[-2]
    return k.transpose(x, perm)


@op("SparseToDenseMatMul", 1, domain="com.microsoft")
def sparse_to_dense_matmul(A: Tensor, B: Tensor, *, alpha: float = 1.0, transA: int = 0, transB: int = 0) -> Tensor:
    """`A` is a sparse tensor to the model's callers; a run has its dense form."""
    return fused_matmul(A, B, attributes=MatMulAttributes(alpha, transA, transB))


@dataclass(frozen=True)
class MatMulAttributes(ParameterGroup):
    """A factor, and which axes of the operands change places: the last two, and those of the batch."""

    alpha: float = 1.0
    transA: int = 0
    transB: int = 0
    transBatchA: int = 0
    transBatchB: int = 0


@op("FusedMatMul", 1, domain="com.microsoft")
def fused_matmul(A: Tensor, B: Tensor, *, attributes: MatMulAttributes) -> Tensor:
    left = _transposed(A, attributes.transA, attributes.transBatchA) if A.rank > 1 else A
    right = _transposed(B, attributes.transB, attributes.transBatchB) if B.rank > 1 else B
    out = matrix_product(left, right, DType.FLOAT if A.dtype in HALF else None)
    return k.cast(_scaled(out, attributes.alpha), A.dtype)
