"""A graph as plugins see it: OrtGraph, OrtNode, OrtValueInfo and OrtOpAttr over Intarsia's graph.

A view is made for one question (what do you take, compile this) and holds everything that it shows. Attributes that a node
leaves out and whose default is a constant are shown with it, as onnxruntime does.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.graph.model import Constant, Graph, Node, ValueType
from intarsia.ops.framework.schemas import schema_of
from intarsia.providers.plugin.interface.handles import HostObject
from intarsia.providers.plugin.interface.tensors import OrtValue, TypeInfo, packed_tensor

CHANNELS_LAST = "com.ms.internal.nhwc"
"""The domain of ONNX's operators whose data have their channels last."""
INT, INTS, FLOAT, FLOATS, STRING, STRINGS, GRAPH, TENSOR = range(1, 9)
"""OrtOpAttrType; 0 is a type that plugins have no word for."""
_NUMBERS = {"INT": INT, "INTS": INTS, "FLOAT": FLOAT, "FLOATS": FLOATS, "STRING": STRING, "STRINGS": STRINGS}


class ValueInfo(HostObject):
    """OrtValueInfo: a named value of a graph.

    Attributes:
        constant: its data, where it has some.
        producer: the node that computes it, and as which output.
        consumers: nodes that read it, and as which input (-1: inside of a subgraph).
    """

    def __init__(self, graph: GraphView, name: str, kind: ValueType | None, constant: Constant | None) -> None:
        super().__init__()
        self.graph, self.name, self.constant = graph, name, constant
        self.kind = kind
        self.producer: tuple[NodeView, int] | None = None
        self.consumers: list[tuple[NodeView, int]] = []
        self.outer = False

    @functools.cached_property
    def type(self) -> TypeInfo:
        return TypeInfo(self.kind)

    @functools.cached_property
    def value(self) -> OrtValue | None:
        """The data of an initializer."""
        return packed_tensor(self.constant.numpy(), self.constant.dtype) if self.constant is not None else None


class Attribute(HostObject):
    """OrtOpAttr."""

    def __init__(self, name: str, value: Any, kind: int) -> None:
        super().__init__()
        self.name, self.value, self.kind = name, value, kind


class NodeView(HostObject):
    """OrtNode.

    Attributes:
        index: of the node in its graph, which is its id.
        shown: the node as the plugin is told of it: in another version where it has a kernel of that.
    """

    def __init__(self, graph: GraphView, node: Node, index: int) -> None:
        super().__init__()
        self.graph, self.node, self.index = graph, node, index
        self.shown = node
        self.inputs = [graph.value(name) if name else None for name in node.inputs]
        self.outputs = [graph.value(name) if name else None for name in node.outputs]
        captured = sorted({name for sub in node.subgraphs for name in sub.captured_names()})
        self.implicit_inputs = [graph.value(name) for name in captured]
        self.provider = ""
        for place, value in enumerate(self.inputs):
            if value is not None:
                value.consumers.append((self, place))
        for value in self.implicit_inputs:
            value.consumers.append((self, -1))
        for place, value in enumerate(self.outputs):
            if value is not None:
                value.producer = (self, place)

    def show(self, node: Node) -> None:
        """Tell of the node as another from now on."""
        if node is not self.shown:
            self.shown = node
            self.__dict__.pop("attributes", None)

    @functools.cached_property
    def attributes(self) -> dict[str, Attribute]:
        """What it says, and defaults for what it does not, by name."""
        node = self.shown
        values = {**default_attributes(node.domain, node.op_type, node.version), **node.attributes}
        return {name: Attribute(name, value, _kind_of(node, name, value)) for name, value in values.items()}

    @functools.cached_property
    def subgraphs(self) -> dict[str, GraphView]:
        """The graphs among its attributes, by the attribute's name."""
        found = self.node.attributes.items()
        return {name: GraphView(graph, parent=self) for name, graph in found if isinstance(graph, Graph)}

    @property
    def domain(self) -> str:
        return self.node.domain


class GraphView(HostObject):
    """OrtGraph: some or all of a graph's nodes.

    Args:
        nodes: which (indices in order); by default all. Values that others compute are inputs then.
        parent: the node whose attribute this graph is.
        outputs: names of what is wanted of the nodes; by default the graph's outputs, and what nodes left out read.
    """

    def __init__(
        self, graph: Graph, nodes: Sequence[int] | None = None, *, parent: NodeView | None = None,
        outputs: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.graph, self.parent = graph, parent
        self._values: dict[str, ValueInfo] = {}
        chosen = range(len(graph.nodes)) if nodes is None else nodes
        self.inputs = [self.value(name) for name in _inputs_of(graph, nodes)]
        self.nodes = [NodeView(self, graph.nodes[i], i) for i in chosen]
        wanted = outputs if outputs is not None else _outputs_of(graph, nodes)
        self.outputs = [self.value(name) for name in wanted]
        self.initializers = [value for value in self._values.values() if value.constant is not None and not value.outer]
        self._input_names = {value.name for value in self.inputs}
        self._output_names = set(wanted)

    def value(self, name: str) -> ValueInfo:
        """The value of this name; one of an outer graph where this one does not define it."""
        found = self._values.get(name)
        if found is None:
            found = self._values[name] = self._new_value(name)
        return found

    def _new_value(self, name: str) -> ValueInfo:
        constant = self.graph.constants.get(name)
        if self.parent is not None and constant is None and name not in self._defined:
            outer = self.parent.graph.value(name)
            value = ValueInfo(self, name, outer.kind, outer.constant)
            value.outer = True
            return value
        return ValueInfo(self, name, self.graph.type_of(name), constant)

    @functools.cached_property
    def _defined(self) -> set[str]:
        return self.graph.defined_names()

    def is_input(self, value: ValueInfo) -> bool:
        return value.name in self._input_names

    def is_output(self, value: ValueInfo) -> bool:
        return value.name in self._output_names

    def part(self, chosen: Iterable[NodeView]) -> GraphView:
        """A view of some of its nodes, whose outputs are all that they compute, in order."""
        nodes = sorted(node.index for node in chosen)
        made = [name for i in nodes for name in self.graph.nodes[i].outputs if name]
        return GraphView(self.graph, nodes, parent=self.parent, outputs=made)


def _inputs_of(graph: Graph, nodes: Sequence[int] | None) -> list[str]:
    if nodes is None:
        return list(dict.fromkeys([*graph.input_names(), *graph.overridable]))
    return [name for name in read_names(graph, nodes) if name not in graph.constants or name in graph.overridable]


def read_names(graph: Graph, nodes: Sequence[int]) -> list[str]:
    """What nodes read of others, constants included, in the order in which they first read it."""
    made = {name for i in nodes for name in graph.nodes[i].outputs}
    read: dict[str, None] = {}
    for i in nodes:
        node = graph.nodes[i]
        read.update(dict.fromkeys([*(n for n in node.inputs if n), *sorted(node.used_names())]))
    return [name for name in read if name not in made]


def _outputs_of(graph: Graph, nodes: Sequence[int] | None) -> list[str]:
    if nodes is None:
        return graph.output_names()
    members = set(nodes)
    outside = {n for i, node in enumerate(graph.nodes) if i not in members for n in node.used_names()}
    wanted = outside | set(graph.output_names())
    return [name for i in nodes for name in graph.nodes[i].outputs if name and name in wanted]


def _kind_of(node: Node, name: str, value: Any) -> int:
    """The OrtOpAttrType of an attribute; what an empty list would hold, the schema says."""
    if isinstance(value, list):
        return _list_kind(node, name, value)
    if isinstance(value, (bool, int, np.integer)):
        return INT
    if isinstance(value, (float, np.floating)):
        return FLOAT
    if isinstance(value, (str, bytes)):
        return STRING
    if isinstance(value, np.ndarray):
        return TENSOR
    return GRAPH if isinstance(value, Graph) else 0


def _list_kind(node: Node, name: str, value: list[Any]) -> int:
    if not value:
        schema = schema_of(node.domain, node.op_type, node.version)
        declared = schema.attributes.get(name, ("", False))[0] if schema is not None else ""
        return _NUMBERS.get(declared, INTS)
    kinds = {INT: INTS, FLOAT: FLOATS, STRING: STRINGS}
    found = {kinds.get(_kind_of(node, name, element), 0) for element in value}
    if found == {INTS, FLOATS}:
        return FLOATS
    return found.pop() if len(found) == 1 else 0


def declares(node: Node, name: str) -> bool:
    """Whether the node's operator has an attribute of this name; True where that is not known."""
    schema = schema_of(node.domain, node.op_type, node.version)
    return schema is None or name in schema.attributes


OF_CONTEXTS: Mapping[str, Any] = {"main_context": 1, "embed_mode": 1}
"""Defaults of EPContext, which no package describes; QNN's plugin leaves out what is a default."""


@functools.cache
def default_attributes(domain: str, op_type: str, version: int) -> Mapping[str, Any]:
    """Attributes of an operator that have a constant default, with it."""
    if (domain, op_type) == ("com.microsoft", "EPContext"):
        return OF_CONTEXTS
    import onnx.defs
    import onnx.helper

    standard = "" if domain == CHANNELS_LAST else domain
    try:
        schema = onnx.defs.get_schema(op_type, max_inclusive_version=version or 1000, domain=standard)
    except onnx.defs.SchemaError:
        return {}
    found = {}
    for name, attribute in schema.attributes.items():
        if attribute.default_value.name:
            value = onnx.helper.get_attribute_value(attribute.default_value)
            found[name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return found
