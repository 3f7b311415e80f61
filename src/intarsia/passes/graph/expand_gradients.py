"""ai.onnx.preview.training::Gradient is written out: the graph between `xs` and `y` is differentiated in reverse mode.

The cotangent of `y` is one; every node on a way from `xs` to `y`, from the last to the first, gets a node of domain
`intarsia.gradient` (`ops.internal.gradient`) that computes the cotangents of its inputs; those of a value that several nodes
read are added. Where a Gradient's inputs are not the values named in `xs` and `zs`, what depends on these is computed once
more from the inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from intarsia.errors import InvalidGraph, NotImplemented
from intarsia.graph.model import Graph, Node, TensorType, ValueType
from intarsia.ops.framework.infer import Inference, infer, resolve_version
from intarsia.ops.framework.registry import Registry
from intarsia.ops.internal.gradient import DOMAIN, SEED, TRAINING, ZEROS, add_gradient_record, gradient_node
from intarsia.primitives.substitute import inputs_of

_ADD_VERSION = 14


def expand_gradients(graph: Graph, registry: Registry) -> Graph:
    """A graph without Gradient nodes, in its bodies neither; the same object where there is none.

    Raises:
        NotImplemented: an operator on the way cannot be differentiated: a host operator, or one that works on integers.
        InvalidGraph: a Gradient's attributes or inputs do not fit the graph.
    """
    return _expanded(graph, registry, graph.opset_imports, {}) if has_gradient(graph) else graph


def has_gradient(graph: Graph) -> bool:
    """Whether the graph, or a body in it, contains a Gradient."""
    return any(_is_gradient(n) or any(map(has_gradient, n.subgraphs)) for n in graph.nodes)


def _is_gradient(node: Node) -> bool:
    return node.op_type == "Gradient" and node.domain == TRAINING


def _expanded(graph: Graph, registry: Registry, opsets: Mapping[str, int], outer: Mapping[str, ValueType]) -> Graph:
    out = graph.clone()
    out.opset_imports = dict(graph.opset_imports or opsets)
    while (position := next((i for i, n in enumerate(out.nodes) if _is_gradient(n)), None)) is not None:
        known = infer(out, registry, outer, strict=False)
        nodes = _Reverse(out, out.nodes[position], position, known, registry).nodes()
        out.nodes[position : position + 1] = nodes
    found = infer(out, registry, outer, strict=False)
    for node in out.nodes:
        if node.domain == DOMAIN:
            _drop_unused_outputs(node, found)
        node.replace_subgraphs(lambda body: _body(body, registry, out, found))
    out.opset_imports = dict(graph.opset_imports)
    if out.opset_imports:
        out.opset_imports[DOMAIN] = 1
    return out


def _body(body: Graph, registry: Registry, graph: Graph, found: Inference) -> Graph:
    if not has_gradient(body):
        return body
    return _expanded(body, registry, graph.opset_imports, {**found.types, **graph.types})


def _drop_unused_outputs(node: Node, found: Inference) -> None:
    """A derivative that does not use the outputs of its operator does not ask for them: they may not be needed at all."""
    traced = found.traces.get(node.outputs[0])
    if traced is None or node.op_type in (SEED, ZEROS):
        return
    used = {t.attrs[0] for t in inputs_of([r for r in traced if r is not None])}
    first, count = _sizes(node)
    node.inputs[first : first + count] = [
        n if i in used else "" for i, n in enumerate(node.inputs[first : first + count], first)
    ]


def _sizes(node: Node) -> tuple[int, int]:
    """How many inputs and outputs the operator has that the node is the derivative of."""
    own = max((a for a in node.attributes if a.startswith("gradient_") and a.endswith("_of")), key=len).removesuffix("of")
    return node.attributes[own + "inputs"], node.attributes[own + "outputs"]


class _Reverse:
    """The nodes that take the place of one Gradient."""

    def __init__(self, graph: Graph, node: Node, position: int, known: Inference, registry: Registry) -> None:
        self.graph, self.node, self.known, self.registry = graph, node, known, registry
        self.earlier = graph.nodes[:position]
        self.made: list[Node] = []
        self.taken: set[str] = set()
        self.where = f"Gradient {node.name or node.outputs[0]!r}"
        xs, zs, y = (node.attributes.get(a) for a in ("xs", "zs", "y"))
        if not xs or not y:
            raise InvalidGraph(f"{self.where}: attributes xs and y are required")
        self.xs, self.zs, self.y = [str(x) for x in xs], [str(z) for z in zs or ()], str(y)
        self._check()

    def _check(self) -> None:
        given, named = len([n for n in self.node.inputs if n]), len(self.xs) + len(self.zs)
        if given != named:
            raise InvalidGraph(
                f"{self.where}: xs and zs name {named} tensors, but it has {given} inputs; expected one for each"
            )
        if len(self.node.outputs) > len(self.xs):
            raise InvalidGraph(f"{self.where}: it has {len(self.node.outputs)} outputs for {len(self.xs)} tensors in xs")
        later = {o for n in self.graph.nodes[len(self.earlier) :] for o in n.outputs}
        names = {v.name for v in self.graph.inputs} | set(self.graph.constants) | self.known.types.keys() - later
        names |= {o for n in self.earlier for o in n.outputs}
        for name in (*self.xs, *self.zs, self.y):
            if name not in names:
                raise InvalidGraph(f"{self.where}: no tensor {name!r} is computed before it; xs, zs and y name such tensors")
        for name in (*self.xs, self.y):
            kind = self.known.types.get(name)
            if kind is not None and not (isinstance(kind, TensorType) and kind.dtype.is_floating):
                raise NotImplemented(f"{self.where}: {name!r} is a {kind}; only floating point tensors have a derivative")

    def nodes(self) -> list[Node]:
        xs = self._at_other_values()
        path = self._path(xs)
        cotangents: dict[str, str] = {self.y: self._op(SEED, [self.y], "seed")}
        for node in reversed(path):
            self._reverse(node, cotangents, self._active(path, xs))
        for x, out in zip(xs, self.node.outputs, strict=False):
            if out and x in cotangents:
                self.made.append(Node("Identity", [cotangents[x]], [out], version=1, origin=self._origin()))
            elif out:
                self.made.append(Node(ZEROS, [x], [out], domain=DOMAIN, version=1, origin=self._origin()))
        return self.made

    def _origin(self) -> tuple[str, ...]:
        return self.node.origin or ((self.node.name,) if self.node.name else ())

    def _fresh(self, hint: str) -> str:
        name = self.graph.unique_name(f"{self.node.name or self.y}.{hint}", self.taken)
        self.taken.add(name)
        return name

    def _op(self, op_type: str, inputs: Sequence[str], hint: str, domain: str = DOMAIN, version: int = 1) -> str:
        out = self._fresh(hint)
        self.made.append(Node(op_type, list(inputs), [out], domain=domain, name=f"{op_type}/{out}", version=version))
        self.made[-1].origin = self._origin()
        return out

    def _at_other_values(self) -> list[str]:
        """Names of xs; where inputs are other tensors, `y` and what lies between are computed from these first."""
        renames = {a: b for a, b in zip((*self.xs, *self.zs), self.node.inputs, strict=True) if a != b}
        if not renames:
            return self.xs
        cut = {*self.xs, *self.zs}
        names = dict(renames)
        for node in self.earlier:
            if node.used_names() & names.keys() and not cut.issuperset(o for o in node.outputs if o):
                copy = node.copy(outputs=[self._fresh(o) if o and o not in cut else "" for o in node.outputs])
                Graph(nodes=[copy]).replace_uses(names)
                names.update({a: b for a, b in zip(node.outputs, copy.outputs, strict=True) if a and a not in cut})
                self.known.types.update({names[o]: t for o in node.outputs if o in names and (t := self.known.types.get(o))})
                self.made.append(copy)
                self.earlier = [*self.earlier, copy]
        self.known.types.update({b: t for a, b in renames.items() if (t := self.known.types.get(a))})
        self._drop_unneeded_copies(names.get(self.y, self.y))
        self.y = names.get(self.y, self.y)
        return [names.get(x, x) for x in self.xs]

    def _drop_unneeded_copies(self, y: str) -> None:
        needed, nodes = {y}, []
        for node in reversed(self.made):
            if needed & set(node.outputs):
                needed |= node.used_names()
                nodes.append(node)
        self.made = nodes[::-1]

    def _active(self, path: Iterable[Node], xs: Sequence[str]) -> set[str]:
        return {*xs, *(o for n in path for o in n.outputs if o and self._is_floating(o) and o not in xs)}

    def _path(self, xs: Sequence[str]) -> list[Node]:
        """The nodes on a way from `xs` to `y`, in order. What `xs` and `zs` name is independent of everything."""
        ends = {*xs, *self.zs}
        reached, forward = set(xs), []
        for node in self.earlier:
            outputs = [o for o in node.outputs if o and o not in ends]
            if node.used_names() & reached and any(self._is_floating(o) for o in outputs):
                forward.append(node)
                reached.update(o for o in outputs if self._is_floating(o))
        needed, path = {self.y}, []
        for node in reversed(forward):
            if needed & set(node.outputs):
                path.append(node)
                needed |= node.used_names() - ends
        return path[::-1]

    def _is_floating(self, name: str) -> bool:
        kind = self.known.types.get(name)
        return kind is None or not isinstance(kind, TensorType) or kind.dtype.is_floating

    def _reverse(self, node: Node, cotangents: dict[str, str], active: set[str]) -> None:
        given = [cotangents.get(o, "") if o in active else "" for o in node.outputs]
        of = [i for i, name in enumerate(node.inputs) if name in active]
        if not any(given):
            return
        record = resolve_version(self.known.graph, node, self.registry)
        what = f"operator {node.qualified_op} of node {node.name or node.outputs[0]!r}, between xs and {self.y!r}"
        if record is None:
            raise NotImplemented(f"{self.where}: {what}, is not implemented")
        if record.host or not of:
            reason = record.reason if record.host else "its body reads the tensor"
            raise NotImplemented(f"{self.where}: {what}, has no derivative ({reason})")
        of = [i for i in of if i not in record.value_indices]
        if not of:
            return
        add_gradient_record(self.registry, record)
        outputs = [self._fresh(f"d_{node.inputs[i]}") for i in of]
        self.made.append(gradient_node(node, record, of, given, outputs))
        for i, part in zip(of, outputs, strict=True):
            name = node.inputs[i]
            if name in cotangents:
                part = self._op("Add", [cotangents[name], part], f"sum_{name}", "", _ADD_VERSION)
            cotangents[name] = part
