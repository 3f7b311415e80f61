"""Which nodes NVIDIA's parser takes: each alone, with its reason, and those that fare otherwise among their neighbours.

An axis that is no constant alone may be one there. The parser's lists of subgraphs say which such nodes there may be (its flag
for each list is False of every part of a model that has a node it lacks), and parsing them all says whether it is so: it lists
nodes that it then does not read.
"""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.ep.capability import Support
from intarsia.errors import IntarsiaError
from intarsia.graph.model import Graph, Node
from intarsia.partition.partition import subgraph
from intarsia.printable import get_logger
from intarsia.providers.tensorrt.network import supported_lists
from intarsia.providers.tensorrt.onnx_model import node_label, prepared, written
from intarsia.providers.tensorrt.translator import TensorrtTranslator
from intarsia.providers.vendor.shape_profile import bind, is_open, probe_shapes
from intarsia.providers.vendor.survey import Survey
from intarsia.providers.vendor.translator import Facts, Untranslatable

_MOST_NBYTES = 1 << 26  # of weights in all: larger models are asked about node by node
_logger = get_logger("intarsia.providers.tensorrt")


class TensorrtSurvey(Survey):
    """The answers for one graph."""

    def __init__(self, graph: Graph, translator: TensorrtTranslator) -> None:
        super().__init__(graph, translator)
        self._parser = translator
        self._listed: dict[tuple[int, ...], frozenset[int]] = {}

    def taken(self, free: Sequence[int]) -> list[int]:
        """Those of the nodes `free` (indices) that the parser takes, alone or among the others."""
        nodes, facts = self.graph.nodes, Facts.of(self.graph)
        tried = tuple(i for i in free if not nodes[i].has_subgraphs and self._parser.refusal(nodes[i], facts) is None)
        alone = {i: self.answer(nodes[i]) for i in tried}
        doubtful = [i for i in tried if not alone[i] and alone[i].code == "no-kernel"]
        for i in self._taken_together(tried, doubtful) if doubtful else ():
            alone[i] = self._known[id(nodes[i])] = Support.yes()
        return [i for i in tried if alone[i]]

    def _taken_together(self, candidates: tuple[int, ...], doubtful: Sequence[int]) -> frozenset[int]:
        """Those of `doubtful` that the parser takes among the other candidates, which it takes alone."""
        if candidates not in self._listed:
            self._listed[candidates] = frozenset()
            try:
                listed = self._lists(candidates) & set(doubtful)
                sure = [i for i in candidates if i not in doubtful or i in listed]
                if listed and (part := self._part(sure)) is not None:
                    self._parser.translate(part).close()
                    self._listed[candidates] = listed
            except (IntarsiaError, Untranslatable) as error:
                _logger.debug("each node is asked about alone, since together: %s", error)
        return self._listed[candidates]

    def _part(self, members: Sequence[int]) -> Graph | None:
        """The part of these nodes, legalised, with `PROBED` for sizes that vary; None where it is too large to ask about."""
        part = subgraph(self.graph, members)
        if sum(c.nbytes for c in part.constants.values()) > _MOST_NBYTES:
            return None
        part = part.clone()
        part.nodes = [node.copy(name=_mark(i), origin=()) for i, node in zip(members, part.nodes, strict=True)]
        if is_open(part):
            shapes = probe_shapes(part)
            if shapes is None:
                return None
            part = bind(part, shapes)
        return self._parser.legalized(part)

    def _lists(self, candidates: tuple[int, ...]) -> frozenset[int]:
        """The candidates that the parser lists when it is given all of them."""
        part = self._part(candidates)
        if part is None:
            return frozenset()
        legal = prepared(part)
        with written(legal) as model:
            lists = supported_lists(self._parser.library, self._parser.options, model)
        listed = {k for found in lists for k in found}
        refused = {i for k, node in enumerate(legal.nodes) if k not in listed for i in _sources(node)}
        return frozenset(candidates) - refused


def _mark(index: int) -> str:
    return f"node{index}"


def _sources(node: Node) -> list[int]:
    """The candidates that a node of the legalised part stands for."""
    marks = (node_label(node.name), *node.origin)
    return [int(mark.removeprefix("node")) for mark in marks if mark.startswith("node") and mark[4:].isdecimal()]
