"""Graphs that a plugin of kernels runs for one node: bodies of If, Loop and Scan, and what ONNX defines an operator by."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection

from intarsia.errors import IntarsiaError
from intarsia.graph.model import Graph, Node, Value
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer
from intarsia.passes.graph.inline import inline_functions
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.optimizer import optimize


def body_graph(around: Graph, body: Graph) -> Graph:
    """A body that stands by itself: what it reads of the graph around it are constants and further inputs, sorted.

    Types of its values are inferred.
    """
    made = body.clone()
    captured = sorted(body.captured_names())
    made.constants.update({name: around.constants[name] for name in captured if name in around.constants})
    made.inputs += [Value(name, around.type_of(name)) for name in captured if name not in around.constants]
    made.opset_imports = dict(around.opset_imports)
    return infer(made, registry(), strict=False).graph


@functools.cache
def _is_function(op_type: str, version: int) -> bool:
    """Whether ONNX defines a version of an operator by others."""
    import onnx.defs

    try:
        schema = onnx.defs.get_schema(op_type, version, "")
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def function_graph(around: Graph, node: Node) -> Graph | None:
    """What ONNX defines a node by, with types inferred and constants folded; None where it has no function for it."""
    if node.domain or node.has_subgraphs or not _is_function(node.op_type, node.version):
        return None
    read = dict.fromkeys(name for name in node.inputs if name)
    alone = Graph(
        f"function of {node.outputs[0]}", [Value(name, around.type_of(name)) for name in read if name not in around.constants],
        [Value(name, around.type_of(name)) for name in node.outputs if name], [node.copy()],
        {name: around.constants[name] for name in read if name in around.constants},
    )  # fmt: skip
    alone.opset_imports = dict(around.opset_imports)
    try:
        written = inline_functions(alone, registry(), lambda other: other.outputs == node.outputs)
        if all(other.op_type == node.op_type for other in written.nodes):
            return None
        found = infer(optimize(written, GraphOptimizationLevel.ORT_ENABLE_BASIC).graph, registry(), strict=False).graph
    except IntarsiaError:  # it is none for these types
        return None
    made = {name for other in found.nodes for name in other.outputs}
    return found if made.issuperset(name for name in node.outputs if name) else None


def with_functions(graph: Graph, lacking: Callable[[Graph], Collection[int]]) -> Graph:
    """A graph in which nodes without a kernel (`lacking` gives their indices) are what ONNX defines them by, where it does, and
    so their pieces."""
    found = ((i, function_graph(graph, graph.nodes[i])) for i in lacking(graph))
    bodies = {i: body for i, body in found if body is not None}
    if not bodies:
        return graph
    made = graph.clone()
    made.nodes = []
    taken = graph.defined_names()
    for i, node in enumerate(graph.nodes):
        if i not in bodies:
            made.nodes.append(node)
            continue
        body = with_functions(bodies[i], lacking)
        outside = {*body.input_names(), *node.inputs, *node.outputs}
        renames = {}
        for name in sorted(body.defined_names() - outside):
            fresh = name
            while fresh in taken:
                fresh += "_"
            taken.add(fresh)
            if fresh != name:
                renames[name] = fresh
        body = body.own_renamed(renames) if renames else body
        made.constants.update(body.constants)
        made.types.update({name: kind for name, kind in body.types.items() if name not in graph.types})
        made.nodes += body.nodes
    return made
