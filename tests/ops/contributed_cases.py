"""Runs of single contributed operators, and float64 forms of what several of them compute."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intarsia.graph.model import Node
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node

_erf = np.vectorize(math.erf)


def run(
    op: str, inputs: list[Any], outputs: int = 1, domain: str = "com.microsoft", version: int = 1, **attributes: Any
) -> list[Any]:
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    node = Node(op, names, [f"y{i}" for i in range(outputs)], attributes, domain=domain, version=version)
    return evaluate_node(node, inputs, registry())


def gelu(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return np.asarray(0.5 * wide * (1 + _erf(wide / math.sqrt(2))))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return 0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))


def layer_norm(x: np.ndarray, epsilon: float = 1e-12) -> np.ndarray:
    wide = x.astype(np.float64)
    return (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + epsilon)


def rms_norm(x: np.ndarray, epsilon: float = 1e-12) -> np.ndarray:
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide**2).mean(-1, keepdims=True) + epsilon)
