"""What a plugin takes of one graph, among the nodes that are offered to it, and why it does not take the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.providers.plugin.bodies import body_graph, function_graph
from intarsia.providers.plugin.capability import Answer, CapabilityQuery, Claim, ask
from intarsia.providers.plugin.deviations import Refusal, known_deviations
from intarsia.providers.plugin.interface.graph_view import GraphView, NodeView
from intarsia.providers.plugin.kernel_registry import KernelEntry, NoKernel
from intarsia.providers.plugin.plugin_ep import PluginEp


class Survey:
    """The answers of a plugin's provider about a graph; it is asked once about the same nodes.

    Args:
        allow_deviations: offer it nodes too that it is known to compute otherwise than ONNX says.
        float16: whether its kernels compute in float16; asked where a graph has that.
    """

    def __init__(self, graph: Graph, ep: PluginEp, *, allow_deviations: bool, float16: Callable[[], bool]) -> None:
        self._float16, self._allow_deviations = float16, allow_deviations
        self._bodies: dict[int, str] = {}
        self._functions: dict[int, bool] = {}
        self.graph, self._ep = graph, ep
        self._query = CapabilityQuery(ep.members, ep.logger, self._look_up if ep.registry is not None else None)
        self._views: dict[int, NodeView] = {}
        self._places = {id(node): i for i, node in enumerate(graph.nodes)}
        self._answers: dict[tuple[int, ...], Answer] = {}
        deviates = known_deviations(ep.name, graph) if not allow_deviations else None
        reasons = ((i, self._why_withheld(node, deviates)) for i, node in enumerate(graph.nodes))
        self._withheld = {i: why for i, why in reasons if why is not None}

    def _why_withheld(self, node: Node, deviates: Refusal | None) -> Support | None:
        """Why a node is not offered; None where it is."""
        if (why := _no_form(node, self.graph)) is not None:
            return why
        if self._ep.registry is not None and _has_float16(node, self.graph) and not self._float16():
            return Support.no(f"the device of {self._ep.name} does not compute in float16", code="type")
        return deviates(node) if deviates is not None else None

    def claims(self, free: Sequence[int]) -> tuple[Claim, ...]:
        """What it takes among nodes that are free (indices in order)."""
        answer = self._ask(free)
        written = (i for i in free if i not in answer.taken and self._takes_function(i))
        return (*answer.claims, *(Claim((i,), False) for i in written))

    def answer(self, node: Node) -> Support:
        """Whether it takes a node of the graph where all are free, and why not."""
        place = self._places.get(id(node))
        if place is None:
            return Support.no(f"{self._ep.name} was not asked about this node", code="plugin")
        if (why := self._withheld.get(place)) is not None:
            return why
        answer = self._ask(range(len(self.graph.nodes)))
        if place in answer.taken or self._takes_function(place):
            return Support.yes()
        if self._ep.registry is not None and isinstance(found := self.kernel(node), NoKernel):
            return Support.no(f"{self._ep.name} has {found}", code=found.code)
        words = answer.words_about(node)
        return Support.no(
            f"{self._ep.name} did not take it" + (f": {words}" if words else ", and gave no reason"), code="plugin"
        )

    def _takes_function(self, place: int) -> bool:
        """Whether it has no kernel for a node, and takes all of what ONNX defines it by."""
        if place not in self._functions:
            self._functions[place] = self._find_function(place)
        return self._functions[place]

    def _find_function(self, place: int) -> bool:
        node = self.graph.nodes[place]
        if self._ep.registry is None or place in self._withheld or isinstance(self.kernel(node), KernelEntry):
            return False
        body = function_graph(self.graph, node)
        if body is None:
            return False
        survey = Survey(body, self._ep, allow_deviations=self._allow_deviations, float16=self._float16)
        return all(survey.answer(piece) for piece in body.nodes)

    def kernel(self, node: Node) -> KernelEntry | NoKernel:
        """The plugin's kernel for a node of the graph, or why it has none."""
        if not self._views:
            self._views = {id(view.node): view for view in GraphView(self.graph).nodes}
        return self._look_up(self._views[id(node)])

    def _look_up(self, view: NodeView) -> KernelEntry | NoKernel:
        assert self._ep.registry is not None
        found = self._ep.registry.find(view)
        if isinstance(found, NoKernel) or not view.node.has_subgraphs:
            return found
        if view.node.op_type == "Scan" and view.node.version < 9:
            return NoKernel("a kernel of Scan; version 8, which has batches, is none that plugins are helped with here")
        why = self._why_not_bodies(view)
        return NoKernel(why) if why else found

    def _why_not_bodies(self, view: NodeView) -> str:
        """Why it does not take all nodes of a node's bodies, which its kernels have to run; "" where it does."""
        if id(view.node) not in self._bodies:
            self._bodies[id(view.node)] = next(filter(None, map(self._why_not_body, view.node.subgraphs)), "")
        return self._bodies[id(view.node)]

    def _why_not_body(self, body: Graph) -> str:
        alone = body_graph(self.graph, body)
        survey = Survey(alone, self._ep, allow_deviations=self._allow_deviations, float16=self._float16)
        for node in alone.nodes:
            support = survey.answer(node)
            if not support:
                return f"a kernel for it, but not for {node.name or node.outputs[0]!r} of its bodies: {support.reason}"
        return ""

    def _ask(self, free: Sequence[int]) -> Answer:
        offered = tuple(i for i in free if i not in self._withheld)
        if offered not in self._answers:
            every = len(offered) == len(self.graph.nodes)
            nothing = Answer((), ())
            self._answers[offered] = ask(self._query, self.graph, None if every else offered) if offered else nothing
        return self._answers[offered]


def _has_float16(node: Node, graph: Graph) -> bool:
    kinds = (graph.type_of(name) for name in (*node.inputs, *node.outputs) if name)
    return any(isinstance(kind, TensorType) and kind.dtype is DType.FLOAT16 for kind in kinds)


def _no_form(node: Node, graph: Graph) -> Support | None:
    """Why the interface has no way to give such a node to a plugin; None where it has."""
    if node.compiled_part:
        return None
    for name in (*node.inputs, *node.outputs):
        kind = graph.type_of(name) if name else None
        if name and (not isinstance(kind, TensorType) or type(kind) is not TensorType):
            return Support.no(f"{name!r} is {kind if kind is not None else 'of unknown type'}: only dense tensors", code="type")
    return None
