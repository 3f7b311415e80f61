"""Which nodes of onnxruntime's graph IntarsiaCPU takes: those that it compiles, in connected parts that are worth a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from intarsia.ep.provider import ExecutionProvider, Support
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.ort_plugin.graph_reader import UNREADABLE
from intarsia.partition.partition import Part, PartitionOptions, label, partition
from intarsia.printable import get_logger

logger = get_logger("intarsia.plugin")

NAME = "IntarsiaCPU"
_CALL_MICROSECONDS = 20.0
"""Of work that a part must have by the rough measure of `partition.cost`: less is left to onnxruntime, whose nodes around it
would wait for one call more."""


class PluginSelection(ExecutionProvider):
    """What is compiled to native code, of tensors that both sides lay out in the same way.

    Args:
        denied: why nodes are left out, by their first output: what compiling them has shown.
    """

    name = NAME
    part_microseconds = _CALL_MICROSECONDS

    def __init__(self, denied: Mapping[str, str]) -> None:
        super().__init__()
        self.denied = denied

    def supports(self, node: Node, graph: Graph) -> Support:
        from intarsia.ops import registry

        why = self.denied.get(next((n for n in node.outputs if n), "")) or node.metadata.get(UNREADABLE)
        if why:
            return Support.no(why, code="compile")
        record = registry().find(node.domain, node.op_type, node.version or 10_000)
        if record is None:
            return Support.no(f"{node.qualified_op} version {node.version} has no definition", code="no-kernel")
        wrong = next(_unlike(node, graph), None)
        return Support.yes() if wrong is None else Support.no(wrong, code="type")


class _Onnxruntime(ExecutionProvider):
    """Takes all that is left."""

    name = "onnxruntime"

    def supports(self, node: Node, graph: Graph) -> Support:
        return Support.yes()


def selected(graph: Graph, denied: Mapping[str, str], take_all: bool) -> Sequence[Part]:
    """The parts that IntarsiaCPU takes; no two depend on each other in a circle. `take_all`: also small ones."""
    split = partition(graph, [PluginSelection(denied), _Onnxruntime()], PartitionOptions(keep_islands=take_all))
    for placement in split.placements:
        if placement.provider != NAME:
            logger.debug("%s stays with onnxruntime: %s", label(placement.node), placement.refusals[NAME].reason)
    return [part for part in split.parts if part.provider.name == NAME]


def _unlike(node: Node, graph: Graph) -> Iterator[str]:
    """What keeps operands or results from being shared."""
    for name in (*node.used_names(), *node.outputs):
        if not name:
            continue
        found = graph.type_of(name)
        if not isinstance(found, TensorType):
            yield f"{name!r} is no tensor"
        elif found.shape is None:
            yield f"not even the rank of {name!r} is known"
        elif found.dtype is DType.STRING:
            yield f"{name!r} is a tensor of strings"
        elif found.dtype.bits % 8 and name not in graph.constants:
            yield f"elements of {name!r} share bytes"
