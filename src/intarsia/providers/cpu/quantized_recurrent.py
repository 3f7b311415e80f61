"""DynamicQuantizeLSTM as an LSTM of the weights that its bytes stand for.

W is computed when it is packed. R, which is read anew in every step, stays in bytes where the cell is the usual one
(`codegen.recurrent_bytes`); X keeps all digits, and H 16 bits of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from intarsia.codegen.microkernel import Tile
from intarsia.codegen.recurrent_bytes import pack_byte_weights
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node
from intarsia.ops.contrib_quantized import lstm_weights
from intarsia.ops.infer import Inference
from intarsia.providers.cpu.layout_twins import derived_name

_INPUTS = 12
_WEIGHTS = ((1, 8, 9), (2, 10, 11))  # numbers, scales and zero points of W and of R
_LSTM_VERSION = 22


class StoredWeights(Constant):
    """Numbers [directions, 4 hidden, n] that stand for bytes [directions, n, 4 hidden]."""

    __slots__ = ("numbers", "scale", "zero")

    def __init__(self, name: str, numbers: Constant, scale: Constant, zero: Constant) -> None:
        directions, rows, columns = numbers.shape
        super().__init__(name, DType.FLOAT, (directions, columns, rows), partial(_numbers, numbers, scale, zero))
        self.numbers, self.scale, self.zero = numbers, scale, zero

    def packed(self, arrange: Callable[[np.ndarray], np.ndarray], tile: Tile) -> np.ndarray:
        """For the kernel, of columns that `arrange` puts in order."""
        numbers, columns = self.numbers.numpy(), self.numbers.shape[-1:]
        lift = 128 if self.numbers.dtype is DType.UINT8 else 0
        others = [c.numpy().astype(np.float32).reshape(len(numbers), -1) for c in (self.scale, self.zero)]
        factors, zeros = (np.broadcast_to(x, (len(numbers), *columns)) for x in others)
        signed = (numbers.astype(np.int16) - lift).astype(np.int8)
        return pack_byte_weights(arrange(signed), arrange(factors), arrange(zeros - np.float32(lift)), tile)


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
        name = derived_name(numbers.name, f"of {scale.name}")
        graph.constants[name] = StoredWeights(name, numbers, scale, zero)
        inputs[at] = name
    return node.copy(op_type="LSTM", domain="", version=_LSTM_VERSION, inputs=inputs, traced=None)


def _numbers(numbers: Constant, scale: Constant, zero: Constant) -> np.ndarray:
    return lstm_weights(numbers.numpy(), scale.numpy(), zero.numpy())
