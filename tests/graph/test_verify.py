"""What is a graph and what is not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from intarsia.errors import InvalidGraph
from intarsia.graph.load import load
from intarsia.graph.model import AttributeRef, Constant, Function, Graph, Node, Value
from intarsia.graph.order import sort_nodes
from intarsia.graph.verify import verify, written_out_nodes


def node(op_type: str, inputs: str, outputs: str, **attributes: object) -> Node:
    return Node(op_type, inputs.split(), outputs.split(), attributes, name=f"n_{outputs.replace(' ', '_')}")


def graph(*nodes: Node, inputs: str = "x", outputs: str = "y", constants: str = "") -> Graph:
    return Graph(
        "g",
        [Value(n) for n in inputs.split()],
        [Value(n) for n in outputs.split()],
        list(nodes),
        {n: Constant.of(n, np.float32(0)) for n in constants.split()},
    )


def test_valid_graphs(mlp: onnx.ModelProto, branching: onnx.ModelProto) -> None:
    verify(load(mlp))
    verify(load(branching))
    verify(graph(inputs="", outputs=""))
    verify(graph(outputs="x"))
    verify(graph(node("Add", "x c", "y"), constants="c"))
    optional = Node("Op", ["x", "", "x"], ["", "y"])
    verify(graph(optional))


def test_a_name_written_twice() -> None:
    with pytest.raises(InvalidGraph, match=r"graph 'g': the value 'y' is written twice, the second time by node 'n_y' \(Neg\)"):
        verify(graph(node("Relu", "x", "y"), node("Neg", "x", "y")))
    with pytest.raises(InvalidGraph, match=r"'x' is written twice, .* by node 'n_x' \(Relu\)"):
        verify(graph(node("Relu", "x", "x")))
    with pytest.raises(InvalidGraph, match=r"'x' is written twice, the second time by a constant \(initializer\)"):
        verify(graph(constants="x", outputs="x"))
    with pytest.raises(InvalidGraph, match="'y' is written twice"):
        verify(graph(node("Split", "x", "y y")))


def test_duplicate_inputs() -> None:
    with pytest.raises(InvalidGraph, match="the input 'x' is listed twice"):
        verify(graph(inputs="x x", outputs="x"))
    overridable = graph(constants="c", outputs="c")
    overridable.overridable = ["c", "c"]
    with pytest.raises(InvalidGraph, match="the input 'c' is listed twice"):
        verify(overridable)
    overridable.overridable = ["d"]
    with pytest.raises(InvalidGraph, match="overridable input 'd' has no constant"):
        verify(overridable)
    with pytest.raises(InvalidGraph, match="an input has no name"):
        verify(Graph("g", [Value("")]))


def test_values_that_nobody_writes() -> None:
    message = r"graph 'g', node 'n_y' \(Relu\): nothing computes its input 'hiden'; did you mean 'hidden'\?"
    with pytest.raises(InvalidGraph, match=message):
        verify(graph(node("Neg", "x", "hidden"), node("Relu", "hiden", "y")))
    with pytest.raises(InvalidGraph, match=r"nothing computes the graph output 'logit'; did you mean 'logits'\?"):
        verify(graph(node("Neg", "x", "logits"), outputs="logit"))
    with pytest.raises(InvalidGraph, match=r"nothing computes the graph output 'abc'$"):
        verify(graph(outputs="abc"))


def test_cycles_are_named() -> None:
    cyclic = graph(node("Add", "x b", "a"), node("Relu", "a", "b"), node("Neg", "b", "y"))
    message = r"the nodes ('n_a' \(Add\) -> 'n_b' \(Relu\) -> 'n_a'|'n_b' \(Relu\) -> 'n_a' \(Add\) -> 'n_b') .*form a cycle"
    with pytest.raises(InvalidGraph, match=message):
        verify(cyclic)
    with pytest.raises(InvalidGraph, match=message):
        sort_nodes(cyclic)


def test_long_cycles_are_shortened() -> None:
    nodes = [node("Relu", f"v{(i - 1) % 20}", f"v{i}") for i in range(20)]
    with pytest.raises(InvalidGraph, match=r"\.\.\. \(20 in all\) -> 'n_v"):
        sort_nodes(graph(*nodes, outputs=""))


def test_a_subgraph_that_needs_its_own_node() -> None:
    body = graph(node("Relu", "y", "s"), inputs="", outputs="s")
    with pytest.raises(InvalidGraph, match=r"'n_y' \(If\) -> 'n_y' \(If\) form a cycle"):
        verify(graph(node("If", "x", "y", then_branch=body)))


def test_order() -> None:
    unordered = graph(node("Neg", "a", "y"), node("Relu", "x", "a"))
    with pytest.raises(InvalidGraph, match=r"'a' is computed later, by node 'n_a' \(Relu\): bring the nodes into order"):
        verify(unordered)
    sort_nodes(unordered)
    verify(unordered)
    assert [n.op_type for n in unordered.nodes] == ["Relu", "Neg"]


def test_sorting_keeps_what_is_in_order() -> None:
    nodes = [node("A", "x", "a"), node("D", "c", "d"), node("B", "x", "b"), node("C", "a b", "c"), node("E", "x", "e")]
    unordered = graph(*nodes, outputs="")
    sort_nodes(unordered)
    assert [n.op_type for n in unordered.nodes] == ["A", "B", "C", "D", "E"]
    same = unordered.nodes
    sort_nodes(unordered)
    assert unordered.nodes is same


def test_sorting_reaches_subgraphs() -> None:
    body = graph(node("Neg", "a", "s"), node("Relu", "x", "a"), inputs="", outputs="s")
    outer = graph(node("If", "x", "y", then_branch=body))
    sort_nodes(outer)
    verify(outer)
    assert [n.op_type for n in body.nodes] == ["Relu", "Neg"]


def test_scopes() -> None:
    captured = graph(node("Add", "x h", "s"), inputs="", outputs="s")
    verify(graph(node("Relu", "x", "h"), node("If", "x", "y", then_branch=captured, else_branch=captured)))
    message = r"node 'n_y' \(If\), attribute 'then_branch', node 'n_s' \(Add\): nothing computes its input 'h'"
    with pytest.raises(InvalidGraph, match=message):
        verify(graph(node("If", "x", "y", then_branch=captured)))
    with pytest.raises(InvalidGraph, match="attribute 'then_branch': nothing computes the graph output 'nothing'"):
        verify(graph(node("If", "x", "y", then_branch=graph(inputs="", outputs="nothing"))))
    with pytest.raises(InvalidGraph, match="nothing computes the graph output 's'"):  # inner names end with their graph
        verify(graph(node("Relu", "x", "h"), node("If", "x", "y", then_branch=captured), outputs="s"))


@pytest.mark.parametrize(
    "body",
    [
        graph(node("Relu", "x", "h"), inputs="", outputs="h"),
        graph(inputs="h", outputs="h"),
        graph(inputs="", outputs="h", constants="h"),
    ],
)
def test_inner_names_must_not_hide_outer_ones(body: Graph) -> None:
    with pytest.raises(InvalidGraph, match=r"attribute 'body': the value 'h' of .* hides the value of that name around"):
        verify(graph(node("Relu", "x", "h"), node("Loop", "h", "y", body=body)))


def with_function(*nodes: Node, **changes: object) -> Graph:
    outer = graph(node("F", "x", "y"))
    function = Function("d", "F", ["a"], ["b"], {"alpha": None}, list(nodes), {"": 20})
    for key, value in changes.items():
        setattr(function, key, value)
    outer.functions["d", "F", ""] = function
    return outer


def test_functions() -> None:
    verify(with_function(node("Op", "a", "b", alpha=AttributeRef("alpha"))))
    with pytest.raises(InvalidGraph, match=r"function 'd::F', node 'n_b' \(Op\): nothing computes its input 'x'"):
        verify(with_function(node("Op", "x", "b")))
    with pytest.raises(InvalidGraph, match="function 'd::F': nothing computes the function output 'b'"):
        verify(with_function(node("Op", "a", "c")))
    with pytest.raises(InvalidGraph, match="function 'd::F': the value 'a' is written twice"):
        verify(with_function(node("Op", "a", "a")))
    with pytest.raises(
        InvalidGraph, match=r"attribute 'k' refers to 'alfa', which the function does not declare; did you mean 'alpha'\?"
    ):
        verify(with_function(node("Op", "a", "b", k=AttributeRef("alfa"))))
    inner = graph(node("Op", "a", "s", k=AttributeRef("beta")), inputs="", outputs="s")
    with pytest.raises(InvalidGraph, match="refers to 'beta'"):
        verify(with_function(node("If", "a", "b", then_branch=inner)))
    with pytest.raises(InvalidGraph, match="function 'd::F': the input 'a' is listed twice"):
        verify(with_function(node("Op", "a", "b"), inputs=["a", "a"]))


def test_functions_that_call_each_other() -> None:
    call = Node("F", ["a"], ["b"], domain="d")
    with pytest.raises(InvalidGraph, match="functions call each other in a circle: 'd::F' -> 'd::F'"):
        verify(with_function(call))
    deep = Graph("g")
    for i in range(300):
        inner = Node(f"F{i + 1}", ["a"], ["b"], domain="d")
        deep.functions["d", f"F{i}", ""] = Function("d", f"F{i}", ["a"], ["b"], {}, [inner], {"": 20})
    with pytest.raises(InvalidGraph, match="calls of function 'd::F0' are nested over 200 deep"):
        verify(deep)


def test_functions_that_double() -> None:
    """Each calls the next twice: thirty of them stand for a billion nodes."""
    growing = graph(Node("F0", ["x"], ["y"], domain="d"))
    for i in range(30):
        calls = [Node(f"F{i + 1}", ["a"], ["m"], domain="d"), Node(f"F{i + 1}", ["m"], ["b"], domain="d")]
        growing.functions["d", f"F{i}", ""] = Function("d", f"F{i}", ["a"], ["b"], {}, calls, {"": 20})
    assert written_out_nodes(growing) == 2**30
    with pytest.raises(InvalidGraph, match="calls of functions stand for 1,073,741,824 nodes, expected at most 1,000,000"):
        verify(growing)
