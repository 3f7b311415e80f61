"""Which nodes of a graph OpenVINO takes, asked of OpenVINO itself by `query_model`.

All candidates are converted and asked about together; where that fails, or a device refuses something, each node is converted
and asked about alone, so that every refusal has OpenVINO's reason for that very node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from intarsia.ep.capability import Support
from intarsia.errors import EPFail
from intarsia.graph.model import Graph, Node
from intarsia.machine import fork_safety
from intarsia.partition.partition import subgraph
from intarsia.printable import get_logger
from intarsia.providers.openvino.model import mismatch, read
from intarsia.providers.openvino.refusals import Analysis, refusal
from intarsia.providers.openvino.runtime import core, shortened
from intarsia.providers.vendor.single_node import MOST_NBYTES, node_key, single_node

_answers: dict[str, Support] = {}
_lock = fork_safety.lock()
_logger = get_logger("intarsia.providers.openvino")


class Survey:
    """The answers for one graph, and the graph as OpenVINO has read it."""

    def __init__(self, graph: Graph, device: str, properties: dict[str, Any], *, exact_nan: bool = True) -> None:
        self.graph, self.device, self.properties, self.exact_nan = graph, device, properties, exact_nan
        self._analysis = Analysis.of(graph, device)
        self._answers: dict[int, Support] = {}
        self._read: tuple[tuple[int, ...], Graph, Any] | None = None
        self._surveyed: set[tuple[int, ...]] = set()

    def answer(self, node: Node) -> Support:
        """Whether OpenVINO takes `node` of the graph."""
        found = self._answers.get(id(node))
        if found is None:
            found = refusal(node, self._analysis, exact_nan=self.exact_nan) or ask(
                node, self.graph, self.device, self.properties, exact_nan=self.exact_nan
            )
            self._answers[id(node)] = found
        return found

    def taken(self, free: Sequence[int]) -> list[int]:
        """The nodes among `free` (indices) that OpenVINO takes."""
        nodes = self.graph.nodes
        for i in free:
            if id(nodes[i]) not in self._answers:
                no = refusal(nodes[i], self._analysis, exact_nan=self.exact_nan)
                if no is not None:
                    self._answers[id(nodes[i])] = no
        candidates = tuple(i for i in free if self._answers.get(id(nodes[i]), True))
        if len(candidates) > 1 and candidates not in self._surveyed:
            self._surveyed.add(candidates)
            self._ask_together(candidates)
        return [i for i in candidates if self.answer(nodes[i])]

    def _ask_together(self, candidates: tuple[int, ...]) -> None:
        part = subgraph(self.graph, candidates)
        try:
            model = read(part, exact_nan=self.exact_nan)
            supported = core().query_model(model, self.device, self.properties)
        except (EPFail, RuntimeError) as error:
            _logger.debug("each node is asked about by itself, since together: %s", error)
            return
        if not mismatch(model, part) and all(op.get_friendly_name() in supported for op in model.get_ops()):
            self._answers.update((id(self.graph.nodes[i]), Support.yes()) for i in candidates)
            self._read = (tuple(id(n) for n in part.nodes), part, model)

    def take_model(self, part: Graph) -> Any:
        """What was read for exactly this part, once; None where it was another."""
        found, self._read = self._read, None
        if found is None or found[0] != tuple(id(n) for n in part.nodes):
            return None
        same = (found[1].input_names(), found[1].output_names()) == (part.input_names(), part.output_names())
        return found[2] if same else None


def ask(node: Node, graph: Graph, device: str, properties: dict[str, Any], *, exact_nan: bool = True) -> Support:
    """Yes, or no with OpenVINO's reason. Equal questions are asked once in a process."""
    key = node_key(node, graph, f"{device}, exact_nan={exact_nan}")
    with _lock:
        found = _answers.get(key)
    if found is None:
        found = _ask(node, graph, device, properties, exact_nan)
        with _lock:
            _answers[key] = found
    return found


def _ask(node: Node, graph: Graph, device: str, properties: dict[str, Any], exact_nan: bool) -> Support:
    constants = {n: graph.constants[n] for n in node.inputs if n in graph.constants}
    small = {n: c for n, c in constants.items() if c.nbytes <= MOST_NBYTES}  # others are asked about as inputs first
    first = _query(single_node(node, graph, small), device, properties, exact_nan)
    if first or len(small) == len(constants):
        return first
    return _query(single_node(node, graph, constants), device, properties, exact_nan)


def _query(probe: Graph, device: str, properties: dict[str, Any], exact_nan: bool) -> Support:
    try:
        model = read(probe, exact_nan=exact_nan)
        supported = core().query_model(model, device, properties)
    except EPFail as error:
        return Support.no(str(error).replace("cannot read the part", "cannot convert it"), code="no-kernel")
    except RuntimeError as error:
        return Support.no(f"openvino refuses it: {shortened(error)}", code="unsupported")
    if why := mismatch(model, probe):
        return Support.no(why, code="wrong")
    lacking = [op for op in model.get_ops() if op.get_friendly_name() not in supported]
    if lacking:
        kinds = ", ".join(sorted({op.get_type_name() for op in lacking}))
        return Support.no(f"the {device} plugin does not run {kinds}, which OpenVINO makes of it", code="no-kernel")
    return Support.yes()
