"""Whether a graph is one: every name written once, before it is read."""

from __future__ import annotations

from collections.abc import Iterable

from intarsia.errors import InvalidGraph, UndefinedValue
from intarsia.graph.model import AttributeRef, Function, Graph, Node
from intarsia.graph.order import sorted_nodes

_COMPARED_NAMES = 5000  # looking for similar names is quadratic; larger graphs get no suggestion
_NESTED_CALLS = 200
_WRITTEN_OUT_NODES = 1_000_000  # about a GiB of nodes; a function that calls another twice doubles with every level


def verify(graph: Graph) -> None:
    """Check names and order of a graph, its subgraphs and functions.

    Raises:
        InvalidGraph: a value is written twice, is read but never written (or only later), an inner name hides an outer
            one, the nodes form a cycle, a function does not fit itself, or calls stand for over a million nodes.
    """
    _verify(graph, f"graph {graph.name!r}", frozenset())
    for function in graph.functions.values():
        _verify_function(function)
    verify_calls(graph)


def _verify(graph: Graph, where: str, outer: frozenset[str] | set[str]) -> None:
    visible = set(outer)
    inner: set[str] = set()

    def define(name: str, by: str) -> None:
        if name in inner:
            raise InvalidGraph(f"{where}: the value {name!r} is written twice, the second time by {by}: rename one of them")
        if name in outer:
            raise InvalidGraph(
                f"{where}: the value {name!r} of {by} hides the value of that name around this graph: rename one of them"
            )
        inner.add(name)
        visible.add(name)

    for value in graph.inputs:
        if not value.name:
            raise InvalidGraph(f"{where}: an input has no name")
        if value.name in inner:
            raise InvalidGraph(f"{where}: the input {value.name!r} is listed twice")
        define(value.name, "a graph input")
    for name in graph.constants:
        define(name, "a constant (initializer)")
    listed: set[str] = set()
    for name in graph.overridable:
        if name in listed:
            raise InvalidGraph(f"{where}: the input {name!r} is listed twice")
        if name not in graph.constants:
            raise InvalidGraph(f"{where}: the overridable input {name!r} has no constant of that name as its default")
        listed.add(name)
    for node in graph.nodes:
        _verify_node(graph.nodes, node, where, visible)
        for name in node.outputs:
            if name and name in visible:
                define(name, f"node {node.name!r} ({node.op_type})")  # raises
            elif name:
                inner.add(name)
                visible.add(name)
    for value in graph.outputs:
        if value.name and value.name not in visible:
            raise InvalidGraph(f"{where}: nothing computes the graph output {value.name!r}{_similar(value.name, visible)}")


def _verify_node(nodes: list[Node], node: Node, where: str, visible: set[str]) -> None:
    for name in node.inputs:
        if name and name not in visible:
            at = f"{where}, node {node.name!r} ({node.op_type})"
            writer = next((n for n in nodes if name in n.outputs), None)
            if writer is None:
                raise UndefinedValue(f"{at}: nothing computes its input {name!r}{_similar(name, visible)}")
            sorted_nodes(nodes, where)  # raises where there is a cycle
            raise InvalidGraph(
                f"{at}: its input {name!r} is computed later, by node {writer.name!r} ({writer.op_type}): "
                "bring the nodes into order with intarsia.graph.order.sort_nodes"
            )
    for key, value in node.attributes.items():
        graphs = value if isinstance(value, list) and value and isinstance(value[0], Graph) else [value]
        for sub in graphs:
            if isinstance(sub, Graph):
                if sub.captured_names() & set(node.outputs) - visible:
                    sorted_nodes(nodes, where)
                _verify(sub, f"{where}, node {node.name!r} ({node.op_type}), attribute {key!r}", visible)


def _similar(name: str, names: Iterable[str]) -> str:
    import difflib

    known = [n for n in names if n]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6) if len(known) <= _COMPARED_NAMES else []
    return f"; did you mean {close[0]!r}?" if close else ""


def _verify_function(function: Function) -> None:
    where = f"function {_qualified(function.domain, function.name, function.overload)!r}"
    for kind, names in (("input", function.inputs), ("output", function.outputs)):
        twice = {n for n in names if names.count(n) > 1}
        if twice:
            raise InvalidGraph(f"{where}: the {kind} {min(twice)!r} is listed twice")
    visible = set(function.inputs)
    for node in function.nodes:
        _verify_node(function.nodes, node, where, visible)
        _verify_references(function, node, where)
        for name in filter(None, node.outputs):
            if name in visible:
                by = f"node {node.name!r} ({node.op_type})"
                raise InvalidGraph(f"{where}: the value {name!r} is written twice, the second time by {by}")
            visible.add(name)
    for name in function.outputs:
        if name not in visible:
            raise InvalidGraph(f"{where}: nothing computes the function output {name!r}{_similar(name, visible)}")


def _verify_references(function: Function, node: Node, where: str) -> None:
    for key, value in node.attributes.items():
        if isinstance(value, AttributeRef) and value.name not in function.attributes:
            raise InvalidGraph(
                f"{where}, node {node.name!r} ({node.op_type}): attribute {key!r} refers to {value.name!r}, "
                f"which the function does not declare{_similar(value.name, function.attributes)}"
            )
    for sub in node.subgraphs:
        for inner in sub.nodes:
            _verify_references(function, inner, where)


def verify_calls(graph: Graph) -> None:
    """Functions are expanded where they are called.

    Raises:
        InvalidGraph: functions call each other in a circle, or too deep, or stand for too many nodes.
    """
    done: set[tuple[str, str, str]] = set()

    def visit(key: tuple[str, str, str], path: tuple[tuple[str, str, str], ...]) -> None:
        if key in path:
            names = " -> ".join(repr(_qualified(*k)) for k in (*path[path.index(key) :], key))
            raise InvalidGraph(f"functions call each other in a circle: {names}")
        if len(path) > _NESTED_CALLS:
            raise InvalidGraph(f"the calls of function {_qualified(*path[0])!r} are nested over {_NESTED_CALLS} deep")
        if key in done or key not in graph.functions:
            return
        for node in _all_nodes(graph.functions[key].nodes):
            visit((node.domain, node.op_type, node.overload), (*path, key))
        done.add(key)

    for key in graph.functions:
        visit(key, ())
    count = written_out_nodes(graph) if graph.functions else 0
    if count > _WRITTEN_OUT_NODES:
        raise InvalidGraph(
            f"graph {graph.name!r}: its calls of functions stand for {count:,} nodes, expected at most {_WRITTEN_OUT_NODES:,}"
        )


def written_out_nodes(graph: Graph) -> int:
    """How many nodes the graph and its subgraphs have once every call of a function is written out. No calls in a circle."""
    sizes: dict[tuple[str, str, str], int] = {}

    def size(nodes: list[Node]) -> int:
        return sum(called((node.domain, node.op_type, node.overload)) for node in _all_nodes(nodes))

    def called(key: tuple[str, str, str]) -> int:
        if key not in graph.functions:
            return 1
        if key not in sizes:
            sizes[key] = size(graph.functions[key].nodes)
        return sizes[key]

    return size(graph.nodes)


def _all_nodes(nodes: list[Node]) -> Iterable[Node]:
    for node in nodes:
        yield node
        for sub in node.subgraphs:
            yield from _all_nodes(sub.nodes)


def _qualified(domain: str, name: str, overload: str) -> str:
    return "::".join(filter(None, (domain, name, overload)))
