"""Along which axis a model lengthens a state: where the input, moved or converted, is an operand of Concat, or the past of an
attention operator."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from intarsia.graph.model import TensorType

if TYPE_CHECKING:
    from intarsia.graph.model import Graph, Node

_ELEMENTWISE = frozenset({"Identity", "Cast", "CastLike", "QuantizeLinear", "DequantizeLinear", "Mul"})
_PAST_AXES = {"Attention": -2, "MultiHeadAttention": -2, "GroupQueryAttention": -2, "DecoderMaskedMultiHeadAttention": -2}
_FARTHEST = 64  # nodes that are looked at


def growing_axis(graph: Graph, name: str) -> int | None:
    """The axis of the input `name` along which something is appended to it; None where nothing is."""
    kind = next((v.type for v in graph.inputs if v.name == name), None)
    rank = kind.rank if isinstance(kind, TensorType) else None
    if rank is None:
        return None
    consumers = graph.consumers()
    waiting: deque[tuple[str, tuple[int, ...]]] = deque([(name, tuple(range(rank)))])  # with each axis's place in the input
    seen: set[str] = set()
    while waiting and len(seen) < _FARTHEST:
        value, axes = waiting.popleft()
        for node in consumers.get(value, ()):
            found = _appended_axis(node, value, len(axes))
            if found is not None:
                return axes[found]
            moved = _moved(node, value, axes)
            for output in node.outputs[:1] if moved is not None else ():
                if output not in seen:
                    seen.add(output)
                    waiting.append((output, moved or ()))
    return None


def _appended_axis(node: Node, value: str, rank: int) -> int | None:
    if node.op_type in ("Concat", "Append") and node.domain == "" and len(node.inputs) > 1:
        axis = int(node.attributes.get("axis", 0))
        return axis % rank
    axis = _PAST_AXES.get(node.op_type, 0)
    if axis and value in node.inputs[3:]:
        return axis % rank
    return None


def _moved(node: Node, value: str, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of the node's output, by their places in the state; None where it does something else."""
    if node.inputs[:1] != [value]:
        return None
    if node.op_type in _ELEMENTWISE or (node.op_type == "Concat" and len(node.inputs) == 1):
        return axes
    if node.op_type == "Transpose":
        perm = node.attributes.get("perm") or tuple(reversed(range(len(axes))))
        return tuple(axes[p] for p in perm)
    return None
