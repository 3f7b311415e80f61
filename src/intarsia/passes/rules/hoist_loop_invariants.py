"""Loops that hand on what they were given: a carried value that no iteration changes is read from around the loop.

Converters write so: Paddle's and TensorFlow's loops carry all the weights that their bodies read. Around the loop these are
constants again, which products can be packed for, and no iteration copies them.
"""

from __future__ import annotations

from intarsia.graph.model import Graph, Node, Value
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch
from intarsia.passes.rule import Match, Op, Rule, RuleSet


def _read_around(m: Match) -> Patch | None:
    loop = m.root
    body = loop.attributes.get("body")
    carried = len(loop.inputs) - 2
    if not isinstance(body, Graph) or loop.domain or len(loop.outputs) < carried:
        return None
    if len(body.inputs) != 2 + carried or len(body.outputs) < 1 + carried:
        return None
    found = _unchanged(body, carried)
    if not found:
        return None
    patch = m.patch()
    inputs = [name for i, name in enumerate(loop.inputs) if i - 2 not in found]
    outputs = [name for i, name in enumerate(loop.outputs) if i not in found]
    around = {body.inputs[2 + i].name: loop.inputs[2 + i] for i in found}
    attributes = {**loop.attributes, "body": _without(body, found, around)}
    if any(outputs):
        patch.node(Node("Loop", inputs, outputs, attributes, "", loop.name, loop.version, origin=patch.origin))
    for i in found:
        if loop.outputs[i]:
            patch.result(loop.inputs[2 + i], loop.outputs[i])
    return patch


def _unchanged(body: Graph, carried: int) -> set[int]:
    """Positions of carried values that each iteration hands on as it got them."""
    made_by = body.producers()

    def origin(name: str) -> str:
        while (node := made_by.get(name)) is not None and node.op_type == "Identity" and not node.domain:
            name = node.inputs[0]
        return name

    return {i for i in range(carried) if origin(body.outputs[1 + i].name) == body.inputs[2 + i].name}


def _without(body: Graph, found: set[int], around: dict[str, str]) -> Graph:
    """The body without these carried values, whose readers read the values `around` the loop."""
    made = body.clone()
    made.inputs = [v for i, v in enumerate(body.inputs) if i - 2 not in found]
    made.outputs = [v for i, v in enumerate(body.outputs) if i - 1 not in found]
    for i, value in enumerate(made.outputs):  # a value of the outer graph is no output of a body
        if value.name in around:
            name = made.unique_name(f"{value.name}.out", around.values())
            made.nodes.append(Node("Identity", [value.name], [name], version=1))
            made.outputs[i] = Value(name, value.type, value.doc)
    made.replace_uses(around)
    return made


RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        # v = v in each iteration: the body reads the v that the loop begins with, and that is what the loop ends with
        Rule("read_around_loops", Op(("Loop",)), _read_around, shared=True),
    ),
)
