"""Fused operators written out again for providers that do not know them (`ExecutionProvider.fused_operators`).

The optimizer recognises Gelu, LayerNormalization, Attention and others in the nodes that exporters write, whatever the opset
of the model. A provider of older operators says which of them it takes; the others are decomposed before it is asked, where it
takes all of the pieces. What it does not take stays fused for the providers after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from intarsia.ep.capability import KernelLookup
from intarsia.ep.provider import ExecutionProvider
from intarsia.errors import InvalidArgument, nearest
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer
from intarsia.partition.partition import answering
from intarsia.partition.placement_rules import Rule, is_placed_elsewhere
from intarsia.partition.shape_subgraphs import host_shape_nodes
from intarsia.passes.graph.lower_opset import EXPANSIONS, expand_nodes, expandable

FUSED = frozenset(EXPANSIONS) - {"Softmax"}
"""ONNX's operators that the optimizer makes of several nodes, and that can be written out again."""
_LEAST_OPSET = 13  # in which all pieces exist; those of older models are of this one


def decomposed(
    graph: Graph, providers: Sequence[ExecutionProvider], failed: Mapping[tuple[str, str], str], rules: Sequence[Rule] = ()
) -> Graph:
    """`graph` (with types inferred) with the nodes written out that a provider takes only so; itself where there are none.

    Args:
        providers: in priority order. A node that an earlier one takes as it is stays.
        failed: as in `partition`: (provider, a node's first output) that it could not compile.
        rules: nodes that the user has placed are decomposed for the provider of their rule alone.

    Raises:
        InvalidArgument: a provider names an operator that is not in `FUSED`.
        EPFail: a provider crashed when it was asked what it takes.
    """
    taken: set[str] = set()  # first outputs of nodes that a provider has
    last = max(i for i, provider in enumerate(providers) if provider.fused_operators is not None)
    for provider in providers[: last + 1]:
        if provider.fused_operators is not None:
            others = FUSED - _checked(provider)
            nodes = [
                node for node in graph.nodes
                if node.op_type in others and node.outputs[0] not in taken and (provider.name, node.outputs[0]) not in failed
                and is_decomposable(graph, node) and not is_placed_elsewhere(node, provider, providers, rules)
            ]  # fmt: skip
            graph = _written_out(graph, nodes, provider, taken)
        if provider is not providers[last]:
            taken |= _offered(graph, provider, taken)
    return graph


def _checked(provider: ExecutionProvider) -> frozenset[str]:
    names = frozenset(provider.fused_operators or ())
    for name in sorted(names - FUSED):
        where = f"{provider.name}.fused_operators"
        raise InvalidArgument(f"{where}: {name!r} is not an operator that is fused; {nearest(name, FUSED)}")
    return names


def _written_out(graph: Graph, nodes: Sequence[Node], provider: ExecutionProvider, taken: set[str]) -> Graph:
    """`graph` with those of `nodes` written out whose pieces the provider takes, all but arithmetic on shapes."""
    if not nodes:
        return graph
    candidate, pieces = expanded(graph, nodes)
    offered = _offered(candidate, provider, taken)
    offered |= {candidate.nodes[i].outputs[0] for i in host_shape_nodes(candidate)}
    chosen = [node for node, made in zip(nodes, pieces, strict=True) if all(piece.outputs[0] in offered for piece in made)]
    if len(chosen) == len(nodes):
        return candidate
    return expanded(graph, chosen)[0] if chosen else graph


def expanded(graph: Graph, nodes: Sequence[Node]) -> tuple[Graph, list[list[Node]]]:
    """`graph`, types inferred, with these nodes written out (`is_decomposable`), and the pieces of each."""
    operators = registry()
    opset = max(graph.opset_imports.get("", 1), _LEAST_OPSET)
    out, pieces = expand_nodes(graph, nodes, opset)
    for node, made in zip(nodes, pieces, strict=True):
        for piece in made:
            record = operators.find("", piece.op_type, opset)
            assert record is not None, piece.op_type
            piece.version, piece.origin = record.since, node.origin or (node.name,)
    return infer(out, operators).graph, pieces


def _offered(graph: Graph, provider: ExecutionProvider, taken: set[str]) -> set[str]:
    """First outputs of the nodes that a provider offers to run, of those that are not taken."""
    with answering(provider, "when it was asked what it takes"):
        others = {i for i, node in enumerate(graph.nodes) if next(filter(None, node.outputs), "") in taken}
        lookup = KernelLookup(graph, provider.get_kernel_registry(), others)
        offers = provider.get_capability(graph, lookup)
        return {next(filter(None, graph.nodes[i].outputs), "") for offer in offers for i in offer.nodes if i not in others}


def is_decomposable(graph: Graph, node: Node) -> bool:
    """Whether `passes.graph.lower_opset` can write this node out: what the optimizer writes, and of models' own nodes what is
    like it."""
    if not expandable(graph, node):
        return False
    kinds = [kind if isinstance(kind := graph.type_of(name), TensorType) else None for name in node.inputs]
    shapes = [kind.shape if kind is not None else None for kind in kinds]
    first = shapes[0]
    assert first is not None  # as `expandable` says
    match node.op_type:
        case "LayerNormalization" | "RMSNormalization":
            return _is_in_float32(node)
        case "GroupNormalization":
            return node.version >= 21 and _is_in_float32(node)  # before, scales are of groups
        case "RotaryEmbedding":
            return len(first) == 4 and isinstance(first[-1], int)
        case "Attention":
            return _is_plain_attention(node, shapes)
    return True


def _is_in_float32(node: Node) -> bool:
    """Whether a normalisation of 16 bits is computed in float32, as its pieces are."""
    return bool(node.attributes.get("stash_type", 1) == int(DType.FLOAT))


def _is_plain_attention(node: Node, shapes: Sequence[Sequence[object] | None]) -> bool:
    """Whether head sizes are known, heads pair off, a mask covers all keys, and there is no window of keys."""
    q, k = shapes[0], shapes[1]
    mask = shapes[3] if len(shapes) > 3 else None
    assert q is not None and k is not None
    heads_fit = len(q) == 3 or q[1] == k[1] or (isinstance(q[1], int) and isinstance(k[1], int))
    scaled = bool(node.attributes.get("scale")) or isinstance(q[-1], int)
    windows = [int(node.attributes.get(f"{side}_window_size", -1)) for side in ("left", "right")]
    return heads_fit and scaled and windows == [-1, -1] and (mask is None or (len(mask) > 1 and mask[-1] == k[-2]))
