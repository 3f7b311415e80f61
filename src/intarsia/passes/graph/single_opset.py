"""A graph whose nodes carry their own versions becomes one that a single opset import describes, so that it can be saved."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from intarsia.errors import NotImplemented
from intarsia.graph.dims import Dim
from intarsia.graph.model import Constant, Graph, Node, TensorType
from intarsia.ops import registry
from intarsia.ops.internal.gradient import DOMAIN as DERIVATIVES
from intarsia.passes.graph.lower_opset import expand_nodes, expandable
from intarsia.passes.opset_versions import same_meaning


def standardize(graph: Graph) -> Graph:
    """An equal graph that is valid under its opset imports, as `graph.save` needs it.

    The import of ONNX's own operators is raised to the lowest opset in which every node keeps its meaning. Where there is none,
    fused nodes that the model's opset does not have are written out in older operators.

    Raises:
        NotImplemented: a node can be expressed in no opset together with the others.
    """
    import onnx.defs

    written = next((n for n in _all_nodes(graph) if n.domain == DERIVATIVES), None)
    if written is not None:
        raise NotImplemented(
            f"node {written.name!r}: a Gradient was written out in derivatives of domain {DERIVATIVES}, which only this "
            "process knows: the optimised model cannot be saved; clear optimized_model_filepath"
        )
    current = graph.opset_imports.get("", 1)
    newest = max(current, onnx.defs.onnx_opset_version())  # the installed onnx may be older than the model
    nodes = [n for n in _all_nodes(graph) if not n.domain]
    for opset in range(current, newest + 1):
        if all(_fits(node, current, opset) for node in nodes):
            return _with_whole_masks(_with_import(graph, opset))
    candidates = {opset: [n for n in nodes if not _fits(n, current, opset)] for opset in range(current, newest + 1)}
    for opset, misfits in candidates.items():
        if all(expandable(graph, node) for node in misfits):
            return _expanded(graph, misfits, opset)
    worst = next(n for n in candidates[current] if not expandable(graph, n))
    raise NotImplemented(
        f"node {worst.name!r} ({worst.op_type} version {worst.version}) cannot be written in the model's opset {current}, nor "
        "in a later one that keeps the meaning of the other nodes: save with a lower graph_optimization_level, or convert the "
        "model to a newer opset"
    )


def _all_nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for sub in node.subgraphs:
            yield from _all_nodes(sub)


def _fits(node: Node, current: int, opset: int) -> bool:
    """Whether the node, read in `opset`, means what it means by its own version (or in the model's `current` opset)."""
    import onnx.defs

    try:
        schema = onnx.defs.get_schema(node.op_type, opset)
    except onnx.defs.SchemaError:
        return _is_of_no_schema(node, current, opset)
    try:
        version = node.version or onnx.defs.get_schema(node.op_type, current).since_version
    except onnx.defs.SchemaError:
        return False
    if schema.deprecated or not same_meaning("", node.op_type, version, schema.since_version):
        return False
    if any(name not in schema.attributes for name in node.attributes):
        return False
    return bool(len(node.inputs) <= schema.max_input and len(node.outputs) <= schema.max_output)


def _is_of_no_schema(node: Node, current: int, opset: int) -> bool:
    """Whether the node is one that ONNX does not have in `opset`, and means there what it means by its own version: an
    operator that onnxruntime adds to ONNX's set (LayerNormalization before 17) or that the set had once (Affine)."""
    operators = registry()
    own = operators.find("", node.op_type, node.version or current)
    return own is not None and own is operators.find("", node.op_type, opset)


def _with_import(graph: Graph, opset: int) -> Graph:
    out = graph.clone()
    out.opset_imports = {**graph.opset_imports, "": opset}
    for node in out.nodes:
        node.version = 0 if not node.domain else node.version
    return out


def _expanded(graph: Graph, misfits: list[Node], opset: int) -> Graph:
    out, _ = expand_nodes(graph, misfits, opset)
    return _with_whole_masks(_with_import(out, opset))


def _with_whole_masks(graph: Graph) -> Graph:
    """Attention masks repeated over the queries, where the specification broadcasts them but onnxruntime 1.31 does not."""
    nodes: list[Node] = []
    made: dict[tuple[str, Dim], str] = {}
    for node in graph.nodes:
        size = _missing_queries(graph, node)
        if size is not None:
            key = (node.inputs[3], size)
            if key not in made:
                made[key] = _repeat_mask(graph, nodes, node)
            node.inputs = [*node.inputs[:3], made[key], *node.inputs[4:]]
        nodes.append(node)
    graph.nodes = nodes
    return graph


def _missing_queries(graph: Graph, node: Node) -> Dim | None:
    """The number of queries, where the node is an Attention whose mask has one row for all of them."""
    if node.op_type != "Attention" or node.domain or len(node.inputs) < 4 or not node.inputs[3]:
        return None
    q, mask = graph.type_of(node.inputs[0]), graph.type_of(node.inputs[3])
    if not isinstance(q, TensorType) or not isinstance(mask, TensorType) or q.shape is None or mask.shape is None:
        return None
    return q.shape[-2] if len(mask.shape) > 1 and mask.shape[-2] == 1 != q.shape[-2] else None


def _repeat_mask(graph: Graph, nodes: list[Node], node: Node) -> str:
    q, mask = graph.type_of(node.inputs[0]), node.inputs[3]
    kind = graph.type_of(mask)
    assert isinstance(q, TensorType) and q.shape is not None and isinstance(kind, TensorType) and kind.shape is not None
    names = [
        graph.unique_name(f"{mask}.{hint}", (o for n in nodes for o in n.outputs))
        for hint in ("queries", "shape", "whole", "one")
    ]
    queries, shape, whole, one = names
    rank = len(q.shape)
    graph.constants[one] = Constant.of(one, np.ones(1, np.int64))
    nodes.append(Node("Shape", [node.inputs[0]], [queries], {"start": rank - 2, "end": rank - 1}, name=f"Shape/{queries}"))
    nodes.append(Node("Concat", [queries, one], [shape], {"axis": 0}, name=f"Concat/{shape}"))
    nodes.append(Node("Expand", [mask, shape], [whole], name=f"Expand/{whole}", origin=node.origin))
    graph.types[whole] = TensorType(kind.dtype, (*kind.shape[:-2], q.shape[-2], kind.shape[-1]))
    return whole
