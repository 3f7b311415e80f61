"""By which nodes an operator is replaced on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType, Value
from intarsia.ops import registry
from intarsia.providers.gpu.decompositions.registry import DOMAIN

COUNT = "%count"
"""Ends the names of numbers that say how much of a padded result is there."""
STATE = "%state"
"""Ends the names of inputs that have a node's key and stream of random numbers, uint32 [4]."""
Rule = Callable[[Node], "list[Node] | None"]


def _node(of: Node, op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Node:
    given = {name: value for name, value in attributes.items() if value is not None}
    return Node(op, inputs, outputs, given, DOMAIN, of.name, 1, origin=of.origin, metadata={"written for": of.op_type})


def _inner(node: Node, *names: str) -> list[str]:
    """Names of new values."""
    stem = next(o for o in node.outputs if o)
    return [f"{stem}%{name}" for name in names]


def _nonzero(node: Node) -> list[Node]:
    x, (places, count) = node.inputs[0], _inner(node, "places", "count")
    return [_node(node, "Positions", [x], [places, count]), _node(node, "Coordinates", [x, places, count], node.outputs)]


def _compress(node: Node) -> list[Node]:
    x, condition = node.inputs
    (places, count), axis = _inner(node, "places", "count"), node.attributes.get("axis")
    return [
        _node(node, "Chosen", [x, condition], [places, count], axis=axis),
        _node(node, "Taken", [x, places, count], node.outputs, axis=axis),
    ]


def _unique(node: Node) -> list[Node]:
    x, axis = node.inputs[0], node.attributes.get("axis")
    values, firsts, inverse, counts = [*node.outputs, *[""] * (4 - len(node.outputs))]
    places, which, often, count = _inner(node, "places", "which", "often", "count")
    made = [_node(node, "Distinct", [x], [places, inverse or which, often, count], axis=axis,
                  sorted=node.attributes.get("sorted", 1))]  # fmt: skip
    if values:
        made.append(_node(node, "Taken", [x, places, count], [values], axis=axis))
    made += [_node(node, "First", [a, count], [b]) for a, b in ((places, firsts), (often, counts)) if b]
    return made


def _same(op: str, **renamed: str) -> Rule:
    """By one node of the same inputs, outputs and attributes, but for attributes of another name."""

    def rule(node: Node) -> list[Node]:
        attributes = {renamed.get(name, name): value for name, value in node.attributes.items()}
        return [_node(node, op, list(node.inputs), node.outputs, **attributes)]

    return rule


def _tf_idf(node: Node) -> list[Node] | None:
    if not node.attributes.get("pool_int64s") or node.attributes.get("pool_strings"):
        return None
    return _same("TfIdfVectorizer")(node)


def _suppression(node: Node) -> list[Node]:
    places, count = _inner(node, "boxes", "count")
    return [
        _node(node, "Suppress", list(node.inputs), [places, count], **node.attributes),
        _node(node, "First", [places, count], node.outputs),
    ]


def _roi_align(node: Node) -> list[Node]:
    (samples,), attributes = _inner(node, "samples"), dict(node.attributes)
    how = attributes.pop("coordinate_transformation_mode", "half_pixel") if node.version != 10 else "output_half_pixel"
    attributes["half_pixel"] = int(how == "half_pixel")
    if attributes.get("sampling_ratio", 0) > 0:
        return [_node(node, "RoiAlign", list(node.inputs), node.outputs, **attributes)]
    known = {n: v for n, v in attributes.items() if n in ("output_height", "output_width", "spatial_scale", "half_pixel")}
    return [
        _node(node, "RegionSamples", [node.inputs[1]], [samples], **known),
        _node(node, "RoiAlign", [*node.inputs, samples], node.outputs, **attributes),
    ]


def _max_roi_pool(node: Node) -> list[Node]:
    (extents,) = _inner(node, "extents")
    return [
        _node(node, "RegionExtents", list(node.inputs), [extents], **node.attributes),
        _node(node, "MaxRoiPool", [*node.inputs, extents], node.outputs, **node.attributes),
    ]


def _drawn(op: str, like: bool = True) -> Rule:
    """Random numbers of the node's seed, or of a state that the run gives."""

    def rule(node: Node) -> list[Node]:
        seeded = node.attributes.get("seed") is not None
        inputs = [node.inputs[0] if like else "", "" if seeded else next(iter(node.outputs)) + STATE]
        return [_node(node, op, inputs, node.outputs, **node.attributes)]

    return rule


def _dropout(node: Node) -> list[Node] | None:
    if len(node.inputs) < 3 or not node.inputs[2]:
        return None
    seeded = node.attributes.get("seed") is not None
    state = [] if seeded else [next(o for o in node.outputs if o) + STATE]
    return [_node(node, "Dropout", [*node.inputs, *state], node.outputs, **node.attributes)]


def _trees(node: Node) -> list[Node] | None:
    return None if node.attributes.get("classlabels_strings") else _same(node.op_type)(node)


def _numbers(node: Node) -> list[Node] | None:
    """LabelEncoder and OneHotEncoder of numbers alone, where no element can be an error."""
    given = node.attributes
    texts = [n for n in given if n.endswith("strings") and given[n]]
    tables = [given[n] for n in ("keys_tensor", "values_tensor", "default_tensor") if given.get(n) is not None]
    if texts or any(np.asarray(t).dtype.kind in "OUS" for t in tables) or not given.get("zeros", 1):
        return None
    return _node_of(node, {n: v for n, v in given.items() if not n.endswith("strings")})


def _node_of(node: Node, attributes: Mapping[str, Any]) -> list[Node]:
    return [_node(node, node.op_type, list(node.inputs), node.outputs, **attributes)]


RULES: Mapping[tuple[str, str], Rule] = {
    ("", "NonZero"): _nonzero, ("", "Compress"): _compress, ("", "Unique"): _unique, ("", "STFT"): _same("STFT"),
    ("", "DFT"): _same("DFT", axis="place"), ("", "MelWeightMatrix"): _same("MelWeights"),
    ("", "TfIdfVectorizer"): _tf_idf, ("", "NonMaxSuppression"): _suppression, ("", "RoiAlign"): _roi_align,
    ("", "MaxRoiPool"): _max_roi_pool, ("", "RandomUniform"): _drawn("RandomUniform", False),
    ("", "RandomUniformLike"): _drawn("RandomUniform"), ("", "RandomNormal"): _drawn("RandomNormal", False),
    ("", "RandomNormalLike"): _drawn("RandomNormal"), ("", "Bernoulli"): _drawn("Bernoulli"), ("", "Dropout"): _dropout,
    ("", "Multinomial"): _drawn("Multinomial"),
    ("", "OptionalHasElement"): _same("OptionalHasElement"), ("", "OptionalGetElement"): _same("OptionalGetElement"),
    **{("ai.onnx.ml", name): _numbers for name in ("LabelEncoder", "OneHotEncoder")},
    **{("ai.onnx.ml", name): _trees for name in ("TreeEnsemble", "TreeEnsembleRegressor", "TreeEnsembleClassifier")},
}  # fmt: skip


def replacement(node: Node) -> list[Node] | None:
    """The nodes instead of one; None where it stays."""
    rule = RULES.get((node.domain, node.op_type))
    if rule is None:
        record = registry().find(node.domain, node.op_type, node.version)
        rule = _same(node.op_type) if record is not None and record.primitives is not None else None
    return rule(node) if rule is not None else None


def rewritten(graph: Graph, body: bool = False) -> tuple[Graph, dict[int, list[Node]]]:
    """The graph with nodes replaced, bodies left as they are, and by the ids of replaced nodes their replacements.

    The graph itself where there is nothing to replace. In a body nothing is drawn that has no seed, since every iteration
    would draw the same. The states of random numbers are new inputs behind the others.
    """
    found: dict[int, list[Node]] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        made = replacement(node)
        if made is not None and _states(made) and (body or _is_still(node, graph)):
            made = None
        if made is not None:
            found[id(node)] = made
        nodes += made if made is not None else [node]
    if not found:
        return graph, found
    out = graph.clone()
    out.nodes = nodes
    out.inputs = [*graph.inputs, *(Value(n, TensorType(DType.UINT32, (4,))) for n in _states(nodes))]
    return out, found


def _states(nodes: Iterable[Node]) -> list[str]:
    return list(dict.fromkeys(n for node in nodes for n in node.inputs if n.endswith(STATE)))


def _is_still(node: Node, graph: Graph) -> bool:
    """Whether a Dropout is known to be in inference mode."""
    return node.op_type == "Dropout" and node.inputs[2] in graph.constants and not graph.constants[node.inputs[2]].numpy().any()
