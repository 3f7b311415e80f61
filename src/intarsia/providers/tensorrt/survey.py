"""Which nodes NVIDIA's parser takes: each alone, with its reason, and all together by the parser's lists of subgraphs.

Among its neighbours a node may fare otherwise than alone: an axis that is no constant alone may be one there. The lists count,
and not the parser's flag for each list, which is False of every part of a model that has a node it lacks.
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
        self._listed: dict[tuple[int, ...], frozenset[int] | None] = {}

    def taken(self, free: Sequence[int]) -> list[int]:
        """Those of the nodes `free` (indices) that the parser takes, alone or among the others."""
        nodes, facts = self.graph.nodes, Facts.of(self.graph)
        tried = tuple(i for i in free if not nodes[i].has_subgraphs and self._parser.refusal(nodes[i], facts) is None)
        alone = {i: self.answer(nodes[i]) for i in tried}
        doubtful = any(not answer and answer.code == "no-kernel" for answer in alone.values())
        listed = (self._lists(tried) if doubtful else None) or frozenset()
        for i in tried:
            if not alone[i] and alone[i].code == "no-kernel" and i in listed:
                alone[i] = self._known[id(nodes[i])] = Support.yes()
        return [i for i in tried if alone[i]]

    def _lists(self, candidates: tuple[int, ...]) -> frozenset[int] | None:
        """The candidates that the parser lists when it is given all of them; None where it cannot be asked."""
        if candidates not in self._listed:
            try:
                self._listed[candidates] = self._ask_together(candidates)
            except (IntarsiaError, Untranslatable) as error:
                _logger.debug("each node is asked about alone, since together: %s", error)
                self._listed[candidates] = None
        return self._listed[candidates]

    def _ask_together(self, candidates: tuple[int, ...]) -> frozenset[int] | None:
        part = subgraph(self.graph, candidates)
        if sum(c.nbytes for c in part.constants.values()) > _MOST_NBYTES:
            return None
        part = part.clone()
        part.nodes = [node.copy(name=_mark(i), origin=()) for i, node in zip(candidates, part.nodes, strict=True)]
        if is_open(part):
            shapes = probe_shapes(part)
            if shapes is None:
                return None
            part = bind(part, shapes)
        legal = prepared(self._parser.legalized(part))
        with written(legal) as model:
            lists = supported_lists(self._parser.library, self._parser.options, model)
        refused = {i for at in set(range(len(legal.nodes))) - {k for found in lists for k in found}
                   for i in _sources(legal.nodes[at])}  # fmt: skip
        return frozenset(candidates) - refused


def _mark(index: int) -> str:
    return f"node{index}"


def _sources(node: Node) -> list[int]:
    """The candidates that a node of the legalised part stands for."""
    marks = (node_label(node.name), *node.origin)
    return [int(mark.removeprefix("node")) for mark in marks if mark.startswith("node") and mark[4:].isdecimal()]
