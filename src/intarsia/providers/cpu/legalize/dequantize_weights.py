"""Weights that a model stores quantised, as the numbers they stand for.

Float kernels read packed float weights. A DequantizeLinear of constants is computed when the model is compiled, and so are
the nodes behind it that only bring weights into another form; the result lives until it is packed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from intarsia.graph.model import Constant, Graph, Node, TensorType
from intarsia.ops.framework.evaluate import evaluate_node
from intarsia.ops.framework.infer import Inference
from intarsia.ops.framework.registry import Registry
from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv

QUANTIZERS, DEQUANTIZERS = frozenset(("QuantizeLinear",)), frozenset(("DequantizeLinear",))
# What quantisers leave between stored weights and their reader, of one output, and unable to fail on inferred shapes.
_BEHIND = frozenset("QuantizeLinear Transpose Cast Slice Concat Reshape Squeeze Unsqueeze Flatten Identity Mul Add Sub".split())
_GROWTH_LIMIT_NBYTES = 1 << 20


def requantize_weights(inference: Inference, env: LegalizeEnv) -> Graph | None:
    """The graph with constants instead of QuantizeLinear nodes of such weights; None if there are none.

    A quantiser that meets a weight behind other nodes (the gates of an LSTM in another order) quantises each of their results.
    """
    graph = inference.graph
    made, taken = _computed(inference, env.registry)
    stored = {n.outputs[0] for n in graph.nodes if n.op_type in QUANTIZERS and id(n) in taken}
    if not stored:
        return None
    out = graph.clone()
    readers = Counter(name for node in out.nodes for name in node.used_names())
    readers.update(out.output_names())
    nodes = []
    for original, node in zip(reversed(graph.nodes), reversed(out.nodes), strict=True):
        name = node.outputs[0] if node.outputs else ""
        if name in stored or id(original) in taken and not readers[name]:
            readers.subtract(node.used_names())
        else:
            nodes.append(node)
    out.nodes = nodes[::-1]
    out.constants.update((name, made[name]) for name in stored if readers[name])
    return out


def dequantize_weights(inference: Inference, env: LegalizeEnv) -> Graph | None:
    """The graph with dequantised constants instead of the nodes that compute them; None if there are none."""
    graph = inference.graph
    made, taken = _computed(inference, env.registry)
    if not taken:
        return None
    out = graph.clone()
    out.nodes = [c for n, c in zip(graph.nodes, out.nodes, strict=True) if id(n) not in taken]
    out.constants.update(made)
    return out


def _computed(inference: Inference, registry: Registry) -> tuple[dict[str, Constant], set[int]]:
    """Results of DequantizeLinear of constants and of what is behind them, and the ids of these nodes."""
    graph = inference.graph
    known, taken = dict(graph.constants), set()
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    made: dict[str, Constant] = {}
    for node in graph.nodes:
        if not all(i in known for i in node.inputs if i):
            continue
        if node.op_type not in DEQUANTIZERS and not (node.op_type in _BEHIND and any(i in made for i in node.inputs)):
            continue
        kind = inference.types.get(node.outputs[0])
        operands = [known.get(i) for i in node.inputs]
        shape = _shape(kind)
        if shape is None or node.op_type not in DEQUANTIZERS and (node.domain or _grows(kind, shape, operands)):
            continue
        assert isinstance(kind, TensorType)
        brief = [made[i] for i in node.inputs if i in made and readers[i] == 1]
        result = Constant(node.outputs[0], kind.dtype, shape, _Lazy(node, operands, registry, brief))
        known[result.name] = made[result.name] = result
        taken.add(id(node))
    return made, taken


def _shape(kind: object) -> tuple[int, ...] | None:
    if not isinstance(kind, TensorType) or kind.shape is None:
        return None
    sizes = tuple(d for d in kind.shape if isinstance(d, int))
    return sizes if len(sizes) == len(kind.shape) else None


def _grows(kind: object, shape: tuple[int, ...], operands: Sequence[Constant | None]) -> bool:
    """A small tensor that many sizes are made of is better made by each run."""
    assert isinstance(kind, TensorType)
    nbytes = (math.prod(shape) * kind.dtype.bits + 7) // 8
    return nbytes > max(_GROWTH_LIMIT_NBYTES, sum(c.nbytes for c in operands if c is not None))


class _Lazy:
    """Computes the node when its result is requested."""

    def __init__(self, node: Node, operands: Sequence[Constant | None], registry: Registry, brief: Sequence[Constant]) -> None:
        self.node, self.operands, self.registry, self.brief = node, operands, registry, brief

    def __call__(self) -> np.ndarray:
        inputs = [None if o is None else o.numpy() for o in self.operands]
        result = np.asarray(evaluate_node(self.node, inputs, self.registry)[0])
        for operand in self.brief:  # nobody else reads them
            operand.forget()
        return result
