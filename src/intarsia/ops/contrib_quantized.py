"""com.microsoft: operators on quantised tensors (onnxruntime's QOperator format): De-, operator, QuantizeLinear."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.kernel import lang as k
from intarsia.ops.matmul import gemm
from intarsia.ops.operands import normal_axis
from intarsia.ops.pooling import average_pool
from intarsia.ops.quantize import dequantize_linear, quantize_linear
from intarsia.ops.recurrent import lstm
from intarsia.ops.registry import host_op, op

DOMAIN = "com.microsoft"
Tensor = k.Tensor


def _quantized(y: Tensor, scale: Tensor, zero: Tensor | None, like: Tensor) -> Tensor:
    """`y` by scale and zero point; the element type is the zero point's or that of `like`."""
    return quantize_linear(y, scale, zero if zero is not None else k.full((), 0, like.dtype))


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def rule(
        A: Tensor, A_scale: Tensor, A_zero_point: Tensor | None, B: Tensor, B_scale: Tensor, B_zero_point: Tensor | None,
        C_scale: Tensor, C_zero_point: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        y = function(dequantize_linear(A, A_scale, A_zero_point), dequantize_linear(B, B_scale, B_zero_point))
        return _quantized(y, C_scale, C_zero_point, A)

    return rule


op("QLinearAdd", since=1, domain=DOMAIN)(_binary(lambda a, b: a + b))
op("QLinearMul", since=1, domain=DOMAIN)(_binary(lambda a, b: a * b))


@op("QLinearSigmoid", since=1, domain=DOMAIN)
def qlinear_sigmoid(
    X: Tensor, X_scale: Tensor, X_zero_point: Tensor | None, Y_scale: Tensor, Y_zero_point: Tensor | None = None
) -> Tensor:
    return _quantized(k.sigmoid(dequantize_linear(X, X_scale, X_zero_point)), Y_scale, Y_zero_point, X)


@op("QLinearLeakyRelu", since=1, domain=DOMAIN)
def qlinear_leaky_relu(
    X: Tensor, X_scale: Tensor, X_zero_point: Tensor | None, Y_scale: Tensor, Y_zero_point: Tensor | None = None, *,
    alpha: float = 0.01,
) -> Tensor:  # fmt: skip
    x = dequantize_linear(X, X_scale, X_zero_point)
    return _quantized(k.select(x < 0, x * alpha, x), Y_scale, Y_zero_point, X)


@op("QLinearSoftmax", since=1, domain=DOMAIN)
def qlinear_softmax(
    X: Tensor, X_scale: Tensor, x_zero_point: Tensor | None, y_scale: Tensor, y_zero_point: Tensor, *,
    axis: int = -1, opset: int,
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


@op("QLinearAveragePool", since=1, domain=DOMAIN)
def qlinear_average_pool(
    X: Tensor, x_scale: Tensor, x_zero_point: Tensor | None, y_scale: Tensor, y_zero_point: Tensor | None = None, *,
    auto_pad: str = "NOTSET", ceil_mode: int = 0, channels_last: int = 0, count_include_pad: int = 0,
    kernel_shape: Sequence[int], pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    x = dequantize_linear(X, x_scale, x_zero_point)
    inner = range(1, X.rank - 1)
    x = k.transpose(x, (0, X.rank - 1, *inner)) if channels_last else x
    y = average_pool(
        x, kernel_shape=kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, count_include_pad=count_include_pad,
        pads=pads, strides=strides,
    )  # fmt: skip
    y = k.transpose(y, (0, *range(2, X.rank), 1)) if channels_last else y
    return _quantized(y, y_scale, y_zero_point, X)


@op("QLinearWhere", since=1, domain=DOMAIN)
def qlinear_where(
    condition: Tensor, X: Tensor, x_scale: Tensor, x_zero_point: Tensor, Y: Tensor, y_scale: Tensor, y_zero_point: Tensor,
    z_scale: Tensor, z_zero_point: Tensor,
) -> Tensor:  # fmt: skip
    x, y = dequantize_linear(X, x_scale, x_zero_point), dequantize_linear(Y, y_scale, y_zero_point)
    return _quantized(k.select(condition, x, y), z_scale, z_zero_point, X)


@op("QGemm", since=1, domain=DOMAIN)
def qgemm(
    A: Tensor, a_scale: Tensor, a_zero_point: Tensor, B: Tensor, b_scale: Tensor, b_zero_point: Tensor, C: Tensor | None = None,
    y_scale: Tensor | None = None, y_zero_point: Tensor | None = None, *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Tensor:  # fmt: skip
    """alpha A B + C, where C counts in steps of alpha * a_scale * b_scale; float32 where `y_scale` is omitted."""
    b = dequantize_linear(B, b_scale, b_zero_point, axis=0 if transB else 1)
    y = gemm(dequantize_linear(A, a_scale, a_zero_point), b, None, alpha=alpha, transA=transA, transB=transB)
    if C is not None:
        y = y + k.cast(C, DType.FLOAT) * (a_scale * b_scale * alpha)
    return y if y_scale is None else _quantized(y, y_scale, y_zero_point, A)


def _lstm_types(X: TensorType, W: TensorType, R: TensorType, *rest: Any) -> tuple[TensorType, ...]:
    if X.shape is None or R.shape is None:
        return (TensorType(X.dtype),) * 3
    (steps, batch, _), (directions, hidden, _) = X.shape, R.shape
    state = TensorType(X.dtype, (directions, batch, hidden))
    return TensorType(X.dtype, (steps, directions, batch, hidden)), state, state


@host_op("DynamicQuantizeLSTM", since=1, domain=DOMAIN, infer=_lstm_types, reason="a recurrence by 8-bit weights")
def dynamic_quantize_lstm(
    X: np.ndarray, W: np.ndarray, R: np.ndarray, B: np.ndarray | None = None, sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None, initial_c: np.ndarray | None = None, P: np.ndarray | None = None,
    W_scale: np.ndarray | None = None, W_zero_point: np.ndarray | None = None, R_scale: np.ndarray | None = None,
    R_zero_point: np.ndarray | None = None, *, activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None, activations: Sequence[str] | None = None, clip: float | None = None,
    direction: str = "forward", hidden_size: int | None = None, input_forget: int = 0,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    """LSTM by W [directions, input, 4 hidden] and R [directions, hidden, 4 hidden]; X and H keep all their digits."""
    if W_scale is None or W_zero_point is None or R_scale is None or R_zero_point is None:
        raise k.DefinitionError("DynamicQuantizeLSTM needs scales and zero points of W and R")
    return lstm(
        X, _weights(W, W_scale, W_zero_point), _weights(R, R_scale, R_zero_point), B, sequence_lens, initial_h, initial_c, P,
        activation_alpha=activation_alpha, activation_beta=activation_beta, activations=activations, clip=clip,
        direction=direction, hidden_size=hidden_size, input_forget=input_forget,
    )  # fmt: skip


def _weights(x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Numbers from 8-bit ones with a scale per direction, or per direction and column; columns become rows."""
    directions = len(x)
    centred = x.astype(np.float32) - zero.astype(np.float32).reshape(directions, 1, -1)
    return np.ascontiguousarray((centred * scale.reshape(directions, 1, -1)).transpose(0, 2, 1))
