"""com.microsoft DynamicQuantizeLSTM: products of bytes in place of an LSTM's, whose activations are quantised as they come.

X is quantised as a whole, the state h anew before every step, all rows of the batch by one scale, as `DynamicQuantizeLinear`
has it. So the result is that of the quantised network, which a float LSTM of the same weights is not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.attn_lstm import ForgettingAttributes
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import host_op
from intarsia.ops.nn.recurrent import LSTM_ACTIVATIONS, Activation, Layer, LSTMOperands, layer_of, run_lstm
from intarsia.ops.tensor.quantize import dynamic_quantize_linear
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import Recipe

DOMAIN = "com.microsoft"


def _lstm_types(X: TensorType, W: TensorType, R: TensorType, *rest: Any) -> tuple[TensorType, ...]:
    if X.shape is None or R.shape is None:
        return (TensorType(X.dtype),) * 3
    (steps, batch, _), (directions, hidden, _) = X.shape, R.shape
    state = TensorType(X.dtype, (directions, batch, hidden))
    return TensorType(X.dtype, (steps, directions, batch, hidden)), state, state


class QuantizedProduct:
    """a [rows, n] -> a B [rows, columns], a quantised by its own range and B of bytes less their zero point, times a scale."""

    def __init__(self, numbers: np.ndarray, scale: np.ndarray, shape: tuple[int, int]) -> None:
        """`numbers` [n, columns], whole; `scale` one, or one for each column; `shape` that of the operand."""
        self._numbers, self._scale = numbers.astype(np.float64), scale.astype(np.float32)  # sums of bytes are exact in float64
        self._quantize = Recipe(dynamic_quantize_linear(k.input(0, DType.FLOAT, shape)))

    def __call__(self, a: np.ndarray) -> np.ndarray:
        levels, scale, zero = self._quantize.run([np.ascontiguousarray(a, np.float32)])
        total = (levels.astype(np.float64) - float(zero)) @ self._numbers
        return np.asarray(total.astype(np.float32) * (scale * self._scale)).astype(a.dtype, copy=False)


@dataclass(frozen=True)
class QuantizedLayer(Layer):
    """A layer whose W and R are whole numbers; `scales` are theirs, [directions] or [directions, columns]."""

    scales: tuple[np.ndarray, np.ndarray]

    def inputs(self, d: int) -> np.ndarray:
        x = self.X.reshape(-1, self.X.shape[2])
        return QuantizedProduct(self.W[d].T, self.scales[0][d], x.shape)(x)

    def recurrence(self, d: int) -> Activation:
        return QuantizedProduct(self.R[d].T, self.scales[1][d], (self.X.shape[1], self.hidden))


@dataclass(frozen=True)
class WeightQuantization(ParameterGroup):
    """Scales and zero points of W and R, of each direction, or of each direction and column."""

    W_scale: np.ndarray | None = None
    W_zero_point: np.ndarray | None = None
    R_scale: np.ndarray | None = None
    R_zero_point: np.ndarray | None = None


@host_op(
    "DynamicQuantizeLSTM",
    since=1,
    domain=DOMAIN,
    infer=_lstm_types,
    reason="its weights, scales or zero points are known only at run time",
)
def dynamic_quantize_lstm(
    operands: LSTMOperands, quantization: WeightQuantization, *, attributes: ForgettingAttributes
) -> tuple[np.ndarray, ...]:
    """LSTM by W [directions, input, 4 hidden] and R [directions, hidden, 4 hidden], bytes with a scale and a zero point for
    each direction, or for each direction and column."""
    q, W, R = quantization, operands.W, operands.R
    if q.W_scale is None or q.W_zero_point is None or q.R_scale is None or q.R_zero_point is None:
        raise k.DefinitionError("DynamicQuantizeLSTM needs scales and zero points of W and R")
    whole = replace(operands, W=centred(W, q.W_zero_point), R=centred(R, q.R_zero_point))
    layer = layer_of(whole, attributes, 4, LSTM_ACTIVATIONS)
    quantized = QuantizedLayer(
        layer.X, layer.W, layer.R, layer.bias, layer.lengths, layer.initial, layer.activations, layer.direction, layer.clip,
        (q.W_scale.reshape(len(W), -1), q.R_scale.reshape(len(R), -1)),
    )  # fmt: skip
    Y, finals = run_lstm(quantized, operands.P, attributes.input_forget)
    return (Y, *finals)


def centred(x: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Bytes [directions, n, columns] less their zero point, as whole float32; columns become rows."""
    return np.ascontiguousarray((x.astype(np.float32) - zero.astype(np.float32).reshape(len(x), 1, -1)).transpose(0, 2, 1))
