"""Bodies of If, Loop and Scan as graphs of their own, which a plugin of kernels is asked about and runs."""

from __future__ import annotations

from intarsia.graph.model import Graph, Value
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer


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
