"""What a plugin takes of a graph: OrtEp's GetCapability, called with nodes that are free, and what it said of the others."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from intarsia.graph.model import Graph, Node
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.plugin.interface.graph_view import GraphView, NodeView
from intarsia.providers.plugin.interface.handles import HostObject, find, find_all
from intarsia.providers.plugin.interface.host_tables import entry
from intarsia.providers.plugin.interface.members import Members
from intarsia.providers.plugin.interface.session_state import INFO, Logger, Record

LookUp = Callable[[NodeView], object]
"""The kernel that a plugin has registered for a node, or why there is none."""


class FusionOptions(ctypes.Structure):
    """OrtNodeFusionOptions."""

    _fields_ = (("ort_version_supported", ctypes.c_uint32), ("drop_constant_initializers", ctypes.c_bool))


@dataclass(frozen=True)
class Claim:
    """Nodes (indices) that a plugin takes: as one part that it compiles (`fused`), or one by one by its kernels.

    `drops_constants`: it keeps constants of the part itself, so that they are no inputs of its calls.
    """

    nodes: tuple[int, ...]
    fused: bool
    drops_constants: bool = False


class SupportInfo(HostObject):
    """OrtEpGraphSupportInfo: where a plugin notes what it takes."""

    def __init__(self, view: GraphView, look_up: LookUp | None) -> None:
        super().__init__()
        self.view, self._look_up = view, look_up
        self.claims: list[Claim] = []

    def look_up(self, view: NodeView) -> object:
        """The plugin's own kernel for a node; a text or None where it has none."""
        return self._look_up(view) if self._look_up is not None else None


@dataclass(frozen=True)
class Answer:
    """What a plugin takes of a graph, and what it logged while it looked."""

    claims: tuple[Claim, ...]
    records: tuple[Record, ...]

    @property
    def taken(self) -> set[int]:
        return {i for claim in self.claims for i in claim.nodes}

    def words_about(self, node: Node) -> str:
        """What it said about a node: the lines that have its name or its operator, in quotes or as a word."""
        named = [r.message for r in self.records if _names(r.message, node.name, node.outputs)]
        about_operator = [r.message for r in self.records if _mentions(r.message, node.op_type)]
        return "; ".join(dict.fromkeys((named or about_operator)[:3]))


def _names(message: str, name: str, outputs: Sequence[str]) -> bool:
    return any(_mentions(message, known) for known in (name, *outputs) if len(known) > 1)


def _mentions(message: str, word: str) -> bool:
    at = message.find(word)
    if at < 0:
        return False
    around = message[at - 1 : at] + message[at + len(word) : at + len(word) + 1]
    return not any(letter.isalnum() or letter == "_" for letter in around)


@dataclass(frozen=True)
class CapabilityQuery:
    """A plugin's provider (OrtEp), its kernels, and the logger that it writes to."""

    ep: Members
    logger: Logger
    look_up: LookUp | None = None


def ask(query: CapabilityQuery, graph: Graph, nodes: Sequence[int] | None) -> Answer:
    """What a provider takes of a graph's nodes (None: all).

    Where what it takes together is cut in several (`convex_pieces`), it is asked about each piece anew.

    Raises:
        EPFail: it failed.
    """
    answer = _ask_once(query, graph, nodes)
    claims: list[Claim] = []
    for claim in answer.claims:
        pieces = convex_pieces(graph, claim.nodes) if claim.fused else [claim.nodes]
        if len(pieces) == 1:
            claims.append(claim)
            continue
        for piece in pieces:
            claims += ask(query, graph, piece).claims
    return Answer(tuple(claims), answer.records)


def _ask_once(query: CapabilityQuery, graph: Graph, nodes: Sequence[int] | None) -> Answer:
    view = GraphView(graph, nodes)
    info = SupportInfo(view, query.look_up)
    if query.look_up is not None:  # before the plugin sees them: that may give nodes the versions of its kernels
        for node in view.nodes:
            query.look_up(node)
    with query.logger.heard() as records:
        query.ep.call("GetCapability", view.handle, info.handle)
    return Answer(tuple(info.claims), tuple(r for r in records if r.severity >= INFO or _telling(r.message)))


def convex_pieces(graph: Graph, nodes: Sequence[int]) -> list[tuple[int, ...]]:
    """A group cut where other nodes lie between its nodes: no piece waits for itself through nodes outside.

    A plugin that was shown only the nodes that are free does not see what lies between them.
    """
    members = set(nodes)
    producer = {name: i for i, node in enumerate(graph.nodes) for name in node.outputs if name}
    level: list[int] = []
    for i, node in enumerate(graph.nodes):
        before = [producer[name] for name in node.used_names() if name in producer]
        level.append(max((level[j] + (i not in members and j in members) for j in before), default=0))
    pieces: dict[int, list[int]] = {}
    for i in sorted(members):
        pieces.setdefault(level[i], []).append(i)
    return [tuple(pieces[at]) for at in sorted(pieces)]


def _telling(message: str) -> bool:
    lowered = message.lower()
    return any(word in lowered for word in ("not supported", "unsupported", "reject", "fallback", "no kernel", "not found"))


@entry("OrtEpApi", "EpGraphSupportInfo_AddNodesToFuse")
def _add_nodes_to_fuse(handle: int, nodes: int, count: int, options: int | None) -> None:
    info = find(handle, SupportInfo)
    chosen = find_all(nodes, count, NodeView)
    drops = False
    if options:
        drops = bool(FusionOptions.from_address(options).drop_constant_initializers)
    if chosen:
        info.claims.append(Claim(tuple(sorted(view.index for view in chosen)), True, drops))


@entry("OrtEpApi", "EpGraphSupportInfo_AddSingleNode")
def _add_single_node(handle: int, node: int) -> None:
    find(handle, SupportInfo).claims.append(Claim((find(node, NodeView).index,), False))
