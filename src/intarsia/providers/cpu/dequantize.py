"""Weights that a model stores quantised, as the numbers they stand for.

Float kernels read packed float weights. A DequantizeLinear of constants is computed when the model is compiled; its
result lives until it is packed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia.graph.model import Constant, Graph, Node, TensorType
from intarsia.ops.evaluate import evaluate_node
from intarsia.ops.infer import Inference
from intarsia.ops.registry import Registry

_OPERATORS = frozenset(("DequantizeLinear",))


def dequantized(inference: Inference, registry: Registry) -> Graph | None:
    """The graph with dequantised constants in the place of the nodes that compute them; None if there are none."""
    graph = inference.graph
    found = [n for n in graph.nodes if n.op_type in _OPERATORS and all(i in graph.constants for i in n.inputs if i)]
    if not found:
        return None
    out = graph.clone()
    taken = {id(n) for n in found}
    out.nodes = [c for n, c in zip(graph.nodes, out.nodes, strict=True) if id(n) not in taken]
    for node in found:
        kind = inference.types[node.outputs[0]]
        assert isinstance(kind, TensorType) and kind.shape is not None
        operands = [graph.constants.get(i) for i in node.inputs]
        shape = tuple(int(d) for d in kind.shape)  # type: ignore[arg-type]
        out.constants[node.outputs[0]] = Constant(node.outputs[0], kind.dtype, shape, _Lazy(node, operands, registry))
    return out


class _Lazy:
    """Computes the node when its result is asked for."""

    def __init__(self, node: Node, operands: Sequence[Constant | None], registry: Registry) -> None:
        self.node, self.operands, self.registry = node, operands, registry

    def __call__(self) -> np.ndarray:
        inputs = [None if o is None else o.numpy() for o in self.operands]
        return np.asarray(evaluate_node(self.node, inputs, self.registry)[0])
