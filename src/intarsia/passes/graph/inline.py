"""Calls become what they stand for: model-local functions, ONNX's function bodies, and If with a known condition."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from intarsia.graph.constant_nodes import constant_of_node
from intarsia.graph.model import AttributeRef, Function, Graph, Node, TensorType
from intarsia.ops.framework.infer import infer
from intarsia.ops.framework.registry import Registry
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch
from intarsia.passes.rule import Match, Rule, RuleSet, op


def inline_functions(graph: Graph, registry: Registry, without: Callable[[Node], bool] | None = None) -> Graph:
    """A graph without calls of model-local functions, nor of operators that only ONNX's function body defines.

    Functions must not call one another in a circle (`graph.verify` tells).

    Args:
        without: which of ONNX's nodes are written out although they have a definition, where ONNX has a body for them.
    """
    count = itertools.count()
    while True:
        inliner = _Inliner(graph, registry, count, without or (lambda node: False))
        if not any(inliner.expands(node) for node in _all_nodes(graph)):
            break
        graph = graph.clone()
        inliner.expand_graph(graph)
        if not inliner.expanded:  # a body that depends on types may become known when the calls before it are gone
            break
    if graph.functions:
        graph = graph.clone()
        graph.functions = {}
    return graph


def _all_nodes(graph: Graph) -> Any:
    for node in graph.nodes:
        yield node
        for sub in node.subgraphs:
            yield from _all_nodes(sub)


class _Inliner:
    def __init__(self, graph: Graph, registry: Registry, count: Iterator[int], without: Callable[[Node], bool]) -> None:
        self.graph, self.registry, self.count, self.without = graph, registry, count, without
        self.expanded = False
        self.types: Mapping[str, Any] | None = None
        self.taken: set[str] = set()  # all names of the graph and its subgraphs, once a call is written out
        self.schemas: dict[tuple[str, str, int], bool] = {}

    def expands(self, node: Node) -> bool:
        return (node.domain, node.op_type, node.overload) in self.graph.functions or self._has_body(node)

    def _version(self, node: Node) -> int:
        return node.version or self.graph.opset_imports.get(node.domain, 0 if node.domain else 1)

    def _has_body(self, node: Node) -> bool:
        """Whether a standard operator without a definition, or that `without` names, is one that ONNX defines as a function."""
        version = self._version(node)
        if node.domain not in ("", "ai.onnx.ml", "ai.onnx.preview"):
            return False
        if self.registry.find(node.domain, node.op_type, version or 10_000) and not self.without(node):
            return False
        key = (node.domain, node.op_type, version)
        if key not in self.schemas:
            import onnx.defs

            try:
                schema = onnx.defs.get_schema(node.op_type, version, node.domain)
            except onnx.defs.SchemaError:
                self.schemas[key] = False
            else:
                self.schemas[key] = bool(schema.has_function or schema.has_context_dependent_function)
        return self.schemas[key]

    def expand_graph(self, graph: Graph) -> None:
        """Replace all calls in `graph` (in place), and in the subgraphs of its nodes (as copies)."""
        nodes: list[Node] = []
        for node in graph.nodes:
            node.replace_subgraphs(self._expanded)
            function = self._function(node) if self.expands(node) else None
            if function is None:
                nodes.append(node)
                continue
            self.expanded = True
            body = self._instance(function, node)
            self.expand_graph(body)
            graph.constants.update(body.constants)
            nodes.extend(body.nodes)
        graph.nodes = nodes

    def _expanded(self, graph: Graph) -> Graph:
        out = graph.clone()
        self.expand_graph(out)
        return out

    def _function(self, node: Node) -> Function | None:
        found = self.graph.functions.get((node.domain, node.op_type, node.overload))
        return found if found is not None else self._schema_function(node)

    def _schema_function(self, node: Node) -> Function | None:
        """ONNX's function body for a node without a definition of its own (None: it has none for these types)."""
        import onnx

        from intarsia.graph.load import load
        from intarsia.graph.save import to_model_proto

        version = self._version(node)
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        if schema.has_function:
            opset = max(
                (v for v in schema.function_opset_versions if v <= self._standard_opset()),
                default=min(schema.function_opset_versions),
            )
            data = schema.get_function_with_opset_version(opset)
        else:
            types = [onnx.TypeProto() if not n else self._type_proto(n) for n in node.inputs]
            alone = Graph(nodes=[node], opset_imports=dict(self.graph.opset_imports) or {"": version})
            proto = to_model_proto(alone).graph.node[0]
            data = schema.get_context_dependent_function(proto.SerializeToString(), [t.SerializeToString() for t in types])
        if not data:
            return None
        function = onnx.FunctionProto.FromString(data)
        function.domain, function.name = "intarsia.body", node.op_type
        opsets = [
            onnx.helper.make_opsetid("", max((o.version for o in function.opset_import if not o.domain), default=version))
        ]
        holder = onnx.helper.make_model(
            onnx.helper.make_graph([], "holder", [], []), functions=[function], opset_imports=opsets, ir_version=10
        )
        made = next(iter(load(holder).functions.values()))
        for name, declared in schema.attributes.items():  # of which the body says nothing
            if declared.default_value.name and made.attributes.get(name) is None:
                value = onnx.helper.get_attribute_value(declared.default_value)
                made.attributes[name] = value.decode("utf-8") if isinstance(value, bytes) else value
        return made

    def _standard_opset(self) -> int:
        return self.graph.opset_imports.get("", 1)

    def _type_proto(self, name: str) -> Any:
        import onnx

        if self.types is None:
            self.types = infer(self.graph, self.registry, strict=False).types
        kind = self.types.get(name)
        if not isinstance(kind, TensorType):
            return onnx.TypeProto()
        shape = None if kind.shape is None else [d if isinstance(d, int) else str(d) for d in kind.shape]
        return onnx.helper.make_tensor_type_proto(int(kind.dtype), shape)

    def _instance(self, function: Function, call: Node) -> Graph:
        """The function's nodes with the call's names and attribute values."""
        prefix = f"{next(filter(None, call.outputs), call.name)}.{next(self.count)}."
        names: dict[str, str] = {"": ""}
        given = [*call.inputs, *[""] * (len(function.inputs) - len(call.inputs))]
        names.update(zip(function.inputs, given, strict=False))
        attributes = {**function.attributes, **call.attributes}
        body = Graph()
        passed: list[Node] = []
        for node in function.nodes:
            for name in node.outputs:
                if name not in names:
                    names[name] = self._fresh(prefix + name)
        for name, outer in zip(function.outputs, call.outputs, strict=False):
            if outer and (name in function.inputs):  # an input handed through
                passed.append(Node("Identity", [names[name]], [outer], version=1, origin=call.origin))
            elif outer:
                names[name] = outer
        for node in function.nodes:
            self._instantiate(body, node, function, call, names, attributes, prefix)
        body.nodes += passed
        return body

    def _fresh(self, name: str) -> str:
        """`name`, or one like it where a value of the graph or of a subgraph is called so."""
        if not self.taken:
            self.taken.update(_all_names(self.graph))
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def _prefixed(self, graph: Graph, prefix: str) -> Graph:
        """A copy of a function's subgraph whose own names are no one else's: names in a function are its own."""
        out = graph.clone()
        for node in out.nodes:
            node.replace_subgraphs(lambda inner: self._prefixed(inner, prefix))
        return out.own_renamed({name: self._fresh(prefix + name) for name in sorted(out.defined_names())})

    def _instantiate(
        self, body: Graph, node: Node, function: Function, call: Node, names: dict[str, str], attributes: Mapping[str, Any],
        prefix: str,
    ) -> None:  # fmt: skip
        made = node.copy(name="", origin=call.origin or ((call.name,) if call.name else ()))
        made.attributes = _resolved(node.attributes, attributes)
        made.replace_subgraphs(lambda inner: self._prefixed(inner, prefix))
        Graph(nodes=[made]).replace_uses({a: b for a, b in names.items() if a != b})  # all at once: names are both old and new
        made.outputs = [names[n] if n else "" for n in node.outputs]
        made.name = f"{call.name or call.op_type}/{node.name or made.outputs[0]}"
        imported = function.opset_imports.get(node.domain, 0)
        if imported and not made.version:
            record = self.registry.find(node.domain, node.op_type, imported)
            made.version = record.since if record is not None else 0
        if node.op_type == "Constant" and not node.domain:
            body.constants[made.outputs[0]] = constant_of_node(made, f"node {made.name!r} (Constant)")
        else:
            body.nodes.append(made)


def _all_names(graph: Graph) -> Iterator[str]:
    yield from graph.defined_names()
    yield from graph.output_names()
    for node in graph.nodes:
        yield from node.inputs
        for sub in node.subgraphs:
            yield from _all_names(sub)


def _resolved(attributes: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes with references to the function's own replaced by the values of the call."""
    out: dict[str, Any] = {}
    for key, value in attributes.items():
        if isinstance(value, AttributeRef):
            value = given.get(value.name)
            if value is None:
                continue
        elif isinstance(value, Graph):
            value = _resolved_graph(value, given)
        elif isinstance(value, list) and value and isinstance(value[0], Graph):
            value = [_resolved_graph(v, given) for v in value]
        out[key] = value
    return out


def _resolved_graph(graph: Graph, given: Mapping[str, Any]) -> Graph:
    out = graph.clone()
    for node in out.nodes:
        node.attributes = _resolved(node.attributes, given)
    return out


def _inline_if(m: Match) -> Patch | None:
    """The branch that is taken, with its inner names made unique."""
    rewriter, node = m.rewriter, m.root
    condition = rewriter.scalar(node.inputs[0])
    if condition is None:
        return None
    branch = node.attributes["then_branch" if condition else "else_branch"]
    assert isinstance(branch, Graph)
    patch = m.patch()
    given = copy_nodes(patch, branch, {})
    for out, old in zip(given, node.outputs, strict=True):
        if old:
            patch.result(out, old)
    return patch


def copy_nodes(patch: Patch, body: Graph, names: Mapping[str, str]) -> list[str]:
    """Put a body's nodes into the patch, inner names made unique and `names` replaced; the names of its outputs."""
    known, taken = dict(names), {**patch.constants, **{o: None for n in patch.nodes for o in n.outputs}}
    for name in (*body.constants, *(o for n in body.nodes for o in n.outputs if o)):
        known[name] = patch.rewriter.fresh(f"{patch.stem}.{name}", taken)
        taken[known[name]] = None
    for name, constant in body.constants.items():
        patch.constants[known[name]] = constant.renamed(known[name])
    for inner in body.nodes:
        made = inner.copy(outputs=[known.get(o, o) for o in inner.outputs], origin=patch.origin)
        Graph(nodes=[made]).replace_uses(known)
        patch.node(made)
    return [known.get(out.name, out.name) for out in body.outputs]


RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        # if true then a else b = a
        Rule("inline_if", op("If"), _inline_if, shared=True),
    ),
)
