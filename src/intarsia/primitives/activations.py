"""The activations of LSTM, GRU and RNN by name (ONNX, operator RNN: "activation functions"), of x, alpha and beta."""

from __future__ import annotations

from collections.abc import Callable

from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor

# Names in lower case: ONNX compares them without case.
ACTIVATIONS: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "sigmoid": lambda x, alpha, beta: 1.0 / (k.exp(-x) + 1.0),
    "tanh": lambda x, alpha, beta: k.tanh(x),
    "relu": lambda x, alpha, beta: k.maximum(x, 0.0),
    "affine": lambda x, alpha, beta: x * alpha + beta,
    "leakyrelu": lambda x, alpha, beta: k.select(x < 0.0, x * alpha, x),
    "thresholdedrelu": lambda x, alpha, beta: k.select(x < alpha, 0.0, x),
    "scaledtanh": lambda x, alpha, beta: k.tanh(x * beta) * alpha,
    "hardsigmoid": lambda x, alpha, beta: k.minimum(k.maximum(x * alpha + beta, 0.0), 1.0),
    "elu": lambda x, alpha, beta: k.select(x < 0.0, (k.exp(x) - 1.0) * alpha, x),
    "softsign": lambda x, alpha, beta: x / (k.absolute(x) + 1.0),
    "softplus": lambda x, alpha, beta: k.maximum(x, 0.0) + k.log(k.exp(-k.absolute(x)) + 1.0),
}
