"""DynamicQuantizeLSTM as an LSTM of the weights that its bytes stand for, computed when they are packed.

The operator keeps all digits of X and H, so that both are the same function.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node
from intarsia.ops.contrib_quantized import lstm_weights
from intarsia.ops.infer import Inference
from intarsia.providers.cpu.layout import derived_name

_INPUTS = 12
_WEIGHTS = ((1, 8, 9), (2, 10, 11))  # numbers, scales and zero points of W and of R
_LSTM_VERSION = 22


def dequantized_layers(inference: Inference) -> Graph | None:
    """The graph with LSTM nodes in the place of those of constant bytes; None if there are none."""
    graph = inference.graph
    chosen = {i: n for i, n in enumerate(graph.nodes) if n.op_type == "DynamicQuantizeLSTM" and _takes(n, graph)}
    if not chosen:
        return None
    out = graph.clone()
    for i, node in chosen.items():
        out.nodes[i] = _as_floats(node, out)
    return out


def _takes(node: Node, graph: Graph) -> bool:
    if node.domain != "com.microsoft" or len(node.inputs) != _INPUTS:
        return False
    parts = [[graph.constants.get(node.inputs[i]) for i in which] for which in _WEIGHTS]
    return all(part is not None for which in parts for part in which) and all(_fits(which) for which in parts)


def _fits(parts: Sequence[Constant | None]) -> bool:
    """Numbers [directions, n, 4 hidden], and a scale and a zero point per direction, or per direction and column."""
    numbers, *others = parts
    if numbers is None or len(numbers.shape) != 3:
        return False
    directions, _, columns = numbers.shape
    return all(o is not None and o.shape in ((directions,), (directions, columns)) for o in others)


def _as_floats(node: Node, graph: Graph) -> Node:
    inputs = node.inputs[:8]
    for at, *others in _WEIGHTS:
        numbers, scale, zero = (graph.constants[node.inputs[i]] for i in (at, *others))
        directions, rows, columns = numbers.shape
        name = derived_name(numbers.name, f"of {scale.name}")
        made = Constant(name, DType.FLOAT, (directions, columns, rows), partial(_numbers, numbers, scale, zero))
        graph.constants[name] = made
        inputs[at] = name
    return node.copy(op_type="LSTM", domain="", version=_LSTM_VERSION, inputs=inputs, traced=None)


def _numbers(numbers: Constant, scale: Constant, zero: Constant) -> np.ndarray:
    return lstm_weights(numbers.numpy(), scale.numpy(), zero.numpy())
