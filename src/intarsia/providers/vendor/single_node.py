"""One node of a graph as a graph of its own, and a key that equal nodes share: vendors are asked about each node once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from intarsia.graph.model import Constant, Graph, Node, TensorType, Value

MOST_NBYTES = 1 << 12
"""Larger constants are weights: of the answer about a node, only their types matter."""


def single_node(node: Node, graph: Graph, constants: Mapping[str, Constant]) -> Graph:
    """A graph of `node` alone; inputs that are not in `constants` are the graph's inputs."""
    inputs = [n for n in dict.fromkeys(node.inputs) if n and n not in constants]
    outputs = [n for n in node.outputs if n]
    opset = {**graph.opset_imports, **({"": node.version} if node.version and not node.domain else {})}
    return Graph(
        name="probe",
        inputs=[Value(n, graph.type_of(n)) for n in inputs],
        outputs=[Value(n, graph.type_of(n)) for n in outputs],
        nodes=[node.copy()],
        constants=dict(constants),
        types={},
        opset_imports=opset,
        functions={},
        metadata=graph.metadata,
    )


def node_key(node: Node, graph: Graph, answering: str) -> str:
    """Equal for nodes that the same answer holds for; `answering` is who answers, with which settings."""
    kinds = [_type_text(graph, n) for n in (*node.inputs, *node.outputs)]
    constants = []
    for i, name in enumerate(node.inputs):
        constant = graph.constants.get(name)
        if constant is not None:
            small = constant.nbytes <= MOST_NBYTES
            constants.append(f"{i}:{hashlib.blake2b(constant.numpy().tobytes()).hexdigest() if small else 'weight'}")
    attributes = sorted((k, _value_text(v)) for k, v in node.attributes.items())
    imports = sorted(graph.opset_imports.items()) if not node.version else []
    same = [node.inputs.index(n) for n in node.inputs]  # which inputs are one value
    return repr((answering, node.domain, node.op_type, node.version, imports, kinds, same, constants, attributes))


def _value_text(value: Any) -> str:
    data = getattr(value, "tobytes", None)
    return f"{value.dtype}{value.shape}{hashlib.blake2b(data()).hexdigest()}" if data is not None else repr(value)


def _type_text(graph: Graph, name: str) -> str:
    """The type with each symbolic size as "?": vendors look at which sizes vary."""
    kind = graph.type_of(name) if name else None
    if isinstance(kind, TensorType) and kind.shape is not None:
        return f"{kind.dtype.name}{[d if isinstance(d, int) else '?' for d in kind.shape]}"
    return str(kind)
