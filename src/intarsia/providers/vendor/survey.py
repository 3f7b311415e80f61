"""Which nodes of a graph a vendor takes: each is answered for by itself, with the reason where the answer is no.

What a table does not refuse is bound to sizes, legalised and translated alone; what the translator says then is the answer.
Integers that follow from sizes (the target of a Reshape, computed by Shape, Gather and Concat) are constants then, as they are
where the part is compiled. Equal nodes are tried once in a process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from intarsia.ep.capability import Support
from intarsia.errors import IntarsiaError
from intarsia.graph.dims import evaluate, symbols_of
from intarsia.graph.model import Constant, Graph, Node, TensorType
from intarsia.machine import fork_safety
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer
from intarsia.providers.vendor.program import Interface
from intarsia.providers.vendor.shape_profile import PROBED, bind, input_shapes, is_open, probe_shapes
from intarsia.providers.vendor.single_node import MOST_NBYTES, node_key, single_node
from intarsia.providers.vendor.translator import Facts, Translator, Untranslatable

_answers: dict[str, Support] = {}
_lock = fork_safety.lock()


class Survey:
    """The answers of one translator about one graph."""

    def __init__(self, graph: Graph, translator: Translator) -> None:
        self.graph, self.translator = graph, translator
        self._facts = Facts.of(graph)
        self._known: dict[int, Support] = {}
        self._sizes: Mapping[str, np.ndarray] | None = None
        self._symbols: set[str] = set()

    def answer(self, node: Node) -> Support:
        """Whether the vendor takes `node` of the graph."""
        found = self._known.get(id(node))
        if found is None:
            found = self._known[id(node)] = self._ask(node)
        return found

    def taken(self, free: Sequence[int]) -> list[int]:
        """Those of the nodes `free` (indices) that the vendor takes."""
        return [i for i in free if self.answer(self.graph.nodes[i])]

    def _ask(self, node: Node) -> Support:
        if node.has_subgraphs:
            return Support.no(f"{node.op_type} has subgraphs, which stay with a provider that runs them", code="subgraph")
        refused = self.translator.refusal(node, self._facts)
        if refused is not None:
            return refused
        sizes = self._sizes_read_by(node)
        answering = f"{self.translator.vendor} {sorted(self.translator.settings().items())}"
        texts = {node.inputs.index(n): array.tolist() for n, array in sizes.items()}
        key = node_key(node, self.graph, f"{answering} {texts}")
        with _lock:
            found = _answers.get(key)
        if found is None:
            found = try_alone(node, self.graph, self.translator, sizes)
            with _lock:
                _answers[key] = found
        return found


    def _sizes_read_by(self, node: Node) -> dict[str, np.ndarray]:
        """Of the node's inputs, integers that follow from sizes, with `PROBED` for every size that varies."""
        graph = self.graph
        given = {*graph.constants, *graph.input_names()}
        candidates = [n for n in dict.fromkeys(node.inputs) if n and n not in given and _is_integer(graph, n)]
        if not candidates:
            return {}
        if self._sizes is None:
            self._sizes = infer(graph, registry(), strict=False).values
            self._symbols = {s for shape in input_shapes(graph) for dim in shape or () for s in symbols_of(dim)}
        found: dict[str, np.ndarray] = {}
        for name in candidates:
            elements, kind = self._sizes.get(name), graph.type_of(name)
            if elements is None or not all(symbols_of(d) <= self._symbols for d in elements.flat):
                continue  # unknown, or decided by data
            assert isinstance(kind, TensorType)
            numbers = [evaluate(d, dict.fromkeys(symbols_of(d), PROBED)) for d in elements.flat]
            found[name] = np.array(numbers, kind.dtype.numpy).reshape(elements.shape)
        return found


def _is_integer(graph: Graph, name: str) -> bool:
    kind = graph.type_of(name)
    return isinstance(kind, TensorType) and kind.dtype.is_integer


def try_alone(node: Node, graph: Graph, translator: Translator, sizes: Mapping[str, np.ndarray] | None = None) -> Support:
    """Whether the node can be translated by itself; weights are zeros for that.

    Args:
        sizes: numbers of inputs that follow from sizes.
    """
    vendor = translator.vendor
    constants = {n: _light(graph.constants[n]) for n in node.inputs if n in graph.constants}
    constants |= {name: Constant.of(name, array) for name, array in (sizes or {}).items()}
    try:
        probe = single_node(node, graph, constants)
        if is_open(probe) or sizes:
            shapes = probe_shapes(probe)
            if shapes is None:
                return Support.no(f"{vendor} needs to know how many dimensions there are", code="shape")
            probe = bind(probe, shapes)
        interface, probe = Interface.of(probe)
        if not interface.outputs:
            return Support.yes()  # its sizes are all that it computes
        legal = translator.legalized(probe)
        if why := unsized(legal):
            return Support.no(f"{vendor} takes no tensor whose size only a run's data decide: {why}", code="shape")
        translator.translate(legal)
    except Untranslatable as error:
        return Support.no(error.reason, code=error.code)
    except ValueError as error:  # of sizes that do not fit each other
        return Support.no(f"sizes that vary do not fit each other where all are {PROBED}: {error}", code="shape")
    except IntarsiaError as error:
        return Support.no(f"{vendor} cannot be given it: {error}", code="unsupported")
    return Support.yes()


def unsized(graph: Graph) -> str:
    """A value of which not all sizes are numbers; "" where there is none."""
    for node in graph.nodes:
        for name in node.outputs:
            kind = graph.type_of(name) if name else None
            if name and not (
                isinstance(kind, TensorType) and kind.shape is not None and all(isinstance(d, int) for d in kind.shape)
            ):
                return f"{name!r} is {kind if kind is not None else 'of unknown type'}"
    return ""


def _light(constant: Constant) -> Constant:
    """The constant, or zeros of its type, where it is a weight: memory that nothing has touched."""
    if constant.nbytes <= MOST_NBYTES or constant.dtype.is_integer:
        return constant
    shape, dtype = constant.shape, constant.dtype
    return Constant(constant.name, dtype, shape, lambda: np.zeros(shape, dtype.numpy))

