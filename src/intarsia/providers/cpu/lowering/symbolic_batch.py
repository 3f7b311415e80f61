"""A model of convolutions whose batch is a number, as one for any batch: so that its rows can go in parts.

It is left as it is where its batch is too small for that, or where it mixes rows anywhere.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intarsia.errors import IntarsiaError
from intarsia.graph.dims import evaluate, is_static, product, symbol
from intarsia.graph.model import Constant, Graph, Node, TensorType, Value
from intarsia.ops.framework.infer import Inference, infer
from intarsia.ops.framework.registry import Registry
from intarsia.plan.microbatch_cost import CACHE_NBYTES
from intarsia.primitives.batch_axis import ALIKE, leading
from intarsia.providers.cpu.lowering.batch_axis import BatchRows

_THREADS = 2  # whose caches the largest value must fill: a program that is cached serves any number of threads
_SIZE = "batch"


def with_symbolic_batch(graph: Graph, registry: Registry) -> Graph | None:
    """The graph with a symbol for the number of rows of its batch; None where that is not worth it or cannot be."""
    batch = _batch(graph)
    convolutions = sum(n.op_type == "Conv" for n in graph.nodes)
    if batch < 2 or convolutions <= sum(n.op_type in ("MatMul", "Gemm", "Attention") for n in graph.nodes):
        return None
    try:
        fixed = infer(graph, registry)
        if _largest(fixed) < CACHE_NBYTES * _THREADS:
            return None
        symbolic = _symbolic(fixed, batch)
        found = infer(symbolic, registry)
    except IntarsiaError:
        return None
    return symbolic if _same(fixed, found, batch) else None


def _batch(graph: Graph) -> int:
    """The size of the first axis of the first input, where all sizes of all inputs are numbers; else 0."""
    kinds = [v.type for v in graph.inputs]
    if not all(isinstance(t, TensorType) and t.shape is not None and is_static(t.shape) for t in kinds):
        return 0
    shape = _shape(graph.inputs[0]) if graph.inputs else ()
    return shape[0] if shape else 0


def _shape(value: Value) -> tuple[int, ...]:
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    return tuple(d for d in shape or () if isinstance(d, int))


def _largest(inference: Inference) -> int:
    """Bytes of the largest value that a node computes."""
    names = (n for node in inference.graph.nodes for n in node.outputs if n)
    kinds = (inference.types.get(n) for n in names)
    sizes = (product(t.shape) * t.dtype.bits // 8 for t in kinds if isinstance(t, TensorType) and t.shape is not None)
    return max((n for n in sizes if isinstance(n, int)), default=0)


def _symbolic(fixed: Inference, batch: int) -> Graph:
    graph = fixed.graph.clone()

    def symbolic(value: Value) -> Value:
        kind, shape = value.type, _shape(value)
        assert isinstance(kind, TensorType)
        return replace(value, type=replace(kind, shape=(symbol(_SIZE), *shape[1:]))) if shape[:1] == (batch,) else value

    graph.inputs = [symbolic(v) for v in graph.inputs]
    graph.outputs = [replace(v, type=None) for v in graph.outputs]
    graph.types = {}
    for number, node in enumerate(graph.nodes):
        target = _target(node, fixed, batch)
        if target is not None:
            name = f"%rows{number}"
            graph.constants[name] = Constant.of(name, np.array(target, np.int64))
            node.inputs = [node.inputs[0], name]
    return graph


def _target(node: Node, fixed: Inference, batch: int) -> list[int] | None:
    """What a Reshape to numbers of which the first has the rows takes in their place."""
    if node.op_type != "Reshape" or node.domain or len(node.inputs) != 2 or node.inputs[1] not in fixed.graph.constants:
        return None
    kind = fixed.types.get(node.outputs[0])
    if not isinstance(kind, TensorType) or not kind.shape or not is_static(kind.shape) or 0 in kind.shape:
        return None
    first, *others = (d for d in kind.shape if isinstance(d, int))
    return [-1, *others] if first % batch == 0 else None


def _same(fixed: Inference, found: Inference, batch: int) -> bool:
    """Whether the outputs are rows, or do not depend on them, and have the sizes that they had."""
    axes = BatchRows(found).axes
    for name in found.graph.output_names():
        axis, kind, before = axes.get(name), found.types.get(name), fixed.types.get(name)
        if axis is None or not isinstance(kind, TensorType) or not isinstance(before, TensorType) or kind.shape is None:
            return False
        if axis != ALIKE and not leading(kind.shape, axis):
            return False
        if kind.dtype != before.dtype or tuple(evaluate(d, {_SIZE: batch}) for d in kind.shape) != before.shape:
            return False
    return True
