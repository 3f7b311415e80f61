"""Who gets which node, and why the others do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import intarsia
from intarsia.ep.capability import ComputeCapability, KernelLookup
from intarsia.ep.device import Device
from intarsia.errors import EPFail
from intarsia.graph.model import Graph
from intarsia.partition.partition import Copy, Part, Partition, PartitionOptions, partition

ACCELERATOR = Device("acc")
CHAIN = "g (float[N,3] x) => (float[N,3] y) { a = Relu(x)  b = Exp(a)  c = Relu(b)  y = Neg(c) }"
KEEP = PartitionOptions(keep_islands=True)


def owners(split: Partition) -> dict[str, str]:
    return {p.node.outputs[0]: p.provider for p in split.placements}


def test_first_in_the_list_wins_and_the_others_say_why(make_graph, null) -> None:
    split = partition(make_graph(CHAIN), [null({"Relu"}, "A"), null({"Relu", "Exp"}, "B"), null(None, "C")])
    assert owners(split) == {"a": "A", "b": "B", "c": "A", "y": "C"}
    reasons = {p.node.outputs[0]: {n: (s.code, s.reason) for n, s in p.refusals.items()} for p in split.placements}
    assert reasons["a"] == {
        "B": ("taken", "taken by A, which has higher priority"),
        "C": ("taken", "taken by A, which has higher priority"),
    }
    assert reasons["y"] == {"A": ("unsupported", "knows no Neg"), "B": ("unsupported", "knows no Neg")}


def test_neighbours_of_one_provider_make_one_part(make_graph, null) -> None:
    (part,) = partition(make_graph(CHAIN), [null(None, "A")]).parts
    assert part.nodes == (0, 1, 2, 3)
    assert (part.graph.input_names(), part.graph.output_names()) == (["x"], ["y"])


def test_parts_are_convex(make_graph, null) -> None:
    """a and d are neighbours, but c lies between them: taking both at once would be a cycle."""
    graph = make_graph("g (float[3] x) => (float[3] y) { a = Relu(x)  c = Exp(a)  d = Relu(c)  y = Add(a, d) }")
    split = partition(graph, [null({"Relu", "Add"}, "A"), null(None, "B")])
    assert [(p.provider.name, p.nodes) for p in split.parts] == [("A", (0,)), ("B", (1,)), ("A", (2, 3))]
    assert split.parts[0].graph.output_names() == ["a"]


def test_parts_that_would_wait_for_each_other_are_separated(make_graph, null) -> None:
    """{r1, r2} and {e1, e2} are each convex, yet e1 needs r1 and r2 needs e2."""
    graph = make_graph(
        "g (float[3] x, float[3] z) => (float[3] e1, float[3] r2) { r1 = Relu(x)  e1 = Exp(r1)  e2 = Exp(z)  r2 = Relu(e2) }"
    )
    split = partition(graph, [null({"Relu"}, "A"), null(None, "B")])
    assert len(split.parts) == 3
    ready = {"x", "z"}
    for part in split.parts:
        assert ready.issuperset(part.graph.input_names())
        ready.update(part.graph.output_names())


def test_constants_go_with_the_parts_that_read_them(make_graph, null) -> None:
    graph = make_graph("g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { a = Add(x, w)  b = Exp(a)  y = Mul(b, w) }")
    split = partition(graph, [null({"Add", "Mul"}, "A"), null(None, "B")])
    assert [list(p.graph.constants) for p in split.parts] == [["w"], [], ["w"]]


def test_the_graph_is_not_changed(make_graph, null) -> None:
    graph = make_graph(CHAIN)
    before = [str(n.outputs) for n in graph.nodes], graph.input_names()
    nodes = list(graph.nodes)
    split = partition(graph, [null({"Exp"}, "A"), null(None, "B")])
    assert before == ([str(n.outputs) for n in graph.nodes], graph.input_names())
    assert all(a is b for a, b in zip(nodes, graph.nodes, strict=True))
    assert split.parts[0].graph.nodes[0] is nodes[0]


class TestCopies:
    def test_between_memories_are_steps(self, make_graph, null) -> None:
        split = partition(make_graph(CHAIN), [null({"Exp"}, "A", ACCELERATOR), null(None, "B")], KEEP)
        assert [str(s) for s in split.steps] == [
            "part 0: B, 1 nodes (x) -> (a)",
            "copy a: host -> acc:0 (about 384 bytes)",
            "part 1: A, 1 nodes (a) -> (b)",
            "copy b: acc:0 -> host (about 384 bytes)",
            "part 2: B, 2 nodes (b) -> (y)",
        ]

    def test_are_made_once_per_memory(self, make_graph, null) -> None:
        graph = make_graph("g (float[3] x) => (float[3] y, float[3] x2) { a = Relu(x)  b = Exp(a)  y = Relu(b)  x2 = Relu(x) }")
        split = partition(graph, [null({"Relu"}, "A", ACCELERATOR), null(None, "B")], KEEP)
        assert [c.value for c in split.copies].count("x") == 1

    def test_go_directly_between_devices(self, make_graph, null) -> None:
        providers = [null({"Relu"}, "A", ACCELERATOR), null(None, "B", Device("other"))]
        copies = partition(make_graph(CHAIN), providers, KEEP).copies
        assert [str(c) for c in copies if c.value == "a"] == ["copy a: acc:0 -> other:0 (about 384 bytes)"]
        assert copies[-1].target.host
        assert copies[-1].reader is None

    def test_providers_of_one_memory_need_none(self, make_graph, null) -> None:
        providers = [null({"Relu"}, "A", ACCELERATOR), null(None, "B", Device("acc"))]
        assert [c.value for c in partition(make_graph(CHAIN), providers, KEEP).copies] == ["x", "y"]

    def test_shape_readers_on_the_host_need_no_data(self, make_graph, null) -> None:
        graph = make_graph("g (float[N,3] x) => (int64[2] s, float[N,3] a) { a = Relu(x)  s = Shape(a) }")
        split = partition(graph, [null(None, "A", ACCELERATOR), null(None, "B")], KEEP)
        assert [str(c) for c in split.copies] == [
            "copy x: host -> acc:0 (about 384 bytes)",
            "copy a: acc:0 -> host (shape only)",
            "copy a: acc:0 -> host (about 384 bytes)",
        ]

    def test_inputs_that_a_device_reads_on_the_host_stay_there(self, make_graph, null) -> None:
        class Reads(null):
            def reads_on_host(self, node, index) -> bool:
                return node.op_type == "Reshape" and index == 1

        graph = make_graph("g (float[4] x, int64[2] s) => (float[M,K] y) { y = Reshape(x, s) }")
        (part,) = partition(graph, [Reads(None, "A", ACCELERATOR)]).parts
        assert part.host_inputs == {"s"}
        copies = partition(graph, [Reads(None, "A", ACCELERATOR)]).copies
        assert [c.value for c in copies] == ["x", "y"]


SHAPES = """g (float[N,C,4] x) => (float[N,M] y)
    <int64[1] i = {0}, int64[1] rest = {-1}>
    { r = Relu(x)  s = Shape(r)  n = Gather(s, i)  t = Concat <axis = 0> (n, rest)  y = Reshape(r, t) }"""


class TestShapeArithmetic:
    def test_stays_on_the_host(self, make_graph, null) -> None:
        split = partition(make_graph(SHAPES), [null(None, "A", ACCELERATOR), null(None, "B")])
        assert owners(split) == {"r": "A", "s": "B", "n": "B", "t": "B", "y": "A"}
        assert {p.refusals["A"].code for p in split.placements if p.provider == "B"} == {"shape"}
        assert split.placements[1].refusals["A"].reason == "integer shape arithmetic stays on the host"

    def test_goes_to_the_device_when_asked(self, make_graph, null) -> None:
        split = partition(
            make_graph(SHAPES), [null(None, "A", ACCELERATOR), null(None, "B")], PartitionOptions(shapes_on_host=False)
        )
        assert set(owners(split).values()) == {"A"}

    def test_goes_to_the_first_provider_in_host_memory(self, make_graph, null) -> None:
        split = partition(make_graph(SHAPES), [null(None, "A"), null(None, "B")])
        assert set(owners(split).values()) == {"A"}


class TestIslands:
    def test_an_island_that_costs_two_copies_is_not_taken(self, make_graph, null) -> None:
        split = partition(make_graph(CHAIN), [null({"Exp"}, "A", ACCELERATOR), null(None, "B")])
        assert set(owners(split).values()) == {"B"}
        refusal = split.placements[1].refusals["A"]
        assert refusal.code == "island"
        assert refusal.reason.startswith("an island of 1 nodes: about ")
        assert refusal.reason.endswith(" us with 2 copies")

    def test_unless_asked_for(self, make_graph, null) -> None:
        split = partition(make_graph(CHAIN), [null({"Exp"}, "A", ACCELERATOR), null(None, "B")], KEEP)
        assert owners(split)["b"] == "A"

    def test_or_worth_it(self, make_graph, null) -> None:
        graph = make_graph(
            "g (float[2048,2048] x, float[2048,2048] w) => (float[2048,2048] y) { a = Relu(x)  b = MatMul(a, w)  y = Neg(b) }"
        )
        assert owners(partition(graph, [null({"MatMul"}, "A", ACCELERATOR), null(None, "B")]))["b"] == "A"

    def test_a_device_that_takes_everything_gets_it(self, make_graph, null) -> None:
        split = partition(make_graph(CHAIN), [null(None, "A", ACCELERATOR), null(None, "B")])
        assert set(owners(split).values()) == {"A"}

    def test_without_a_host_provider_there_is_nothing_to_compare(self, make_graph, null) -> None:
        split = partition(make_graph(CHAIN), [null({"Exp"}, "A", ACCELERATOR), null(None, "B", Device("other"))])
        assert owners(split)["b"] == "A"


class TestCallsThatCost:
    """A provider in host memory whose every call costs something."""

    GRAPH = "g (float[64,64] x, float[64,64] w) => (float[64,64] y) { a = Relu(x)  b = MatMul(a, w)  y = Neg(b) }"

    def slow_to_call(self, null, ops: set[str], microseconds: float):
        provider = null(ops, "A")
        provider.part_microseconds = microseconds
        return provider

    def test_leave_small_parts_to_the_next(self, make_graph, null) -> None:
        split = partition(make_graph(self.GRAPH), [self.slow_to_call(null, {"MatMul"}, 1000.0), null(None, "B")])
        assert set(owners(split).values()) == {"B"}
        refusal = split.placements[1].refusals["A"]
        assert (refusal.code, refusal.reason) == (
            "island", "an island of 1 nodes: about 10.5 us of work, a call costs 1e+03 us"
        )  # fmt: skip

    def test_but_not_large_ones_nor_the_whole_graph(self, make_graph, null) -> None:
        split = partition(make_graph(self.GRAPH), [self.slow_to_call(null, {"MatMul"}, 5.0), null(None, "B")])
        assert owners(split)["b"] == "A"
        split = partition(make_graph(self.GRAPH), [self.slow_to_call(null, {"MatMul", "Relu", "Neg"}, 1e6), null(None, "B")])
        assert set(owners(split).values()) == {"A"}

    def test_nor_what_no_other_provider_takes(self, make_graph, null) -> None:
        split = partition(make_graph(self.GRAPH), [self.slow_to_call(null, {"MatMul"}, 1e6), null({"Relu", "Neg"}, "B")])
        assert owners(split)["b"] == "A"


class TestGroups:
    def grouping(self, null, *groups: tuple[int, ...], name: str = "G"):
        class Grouping(null):
            def get_capability(self, graph: Graph, kernel_lookup: KernelLookup) -> list[ComputeCapability]:
                return [ComputeCapability(g) for g in groups]

        return Grouping(None, name)

    def test_are_parts_of_their_own(self, make_graph, null) -> None:
        split = partition(make_graph(CHAIN), [self.grouping(null, (0, 1), (2, 3)), null(None, "B")])
        assert [(p.provider.name, p.nodes) for p in split.parts] == [("G", (0, 1)), ("G", (2, 3))]

    def test_are_taken_whole_or_not_at_all(self, make_graph, null) -> None:
        split = partition(make_graph(CHAIN), [null({"Exp"}, "A"), self.grouping(null, (0, 1)), null(None, "B")])
        assert owners(split)["a"] == "B"
        assert split.placements[0].refusals["G"].code == "group"
        assert split.placements[0].refusals["G"].reason == "its group of 2 nodes needs 'Exp_1', which it does not get"

    def test_must_not_depend_on_themselves_from_outside(self, make_graph, null) -> None:
        split = partition(make_graph(CHAIN), [self.grouping(null, (0, 2)), null(None, "B")])
        assert owners(split)["a"] == "B"
        reason = split.placements[0].refusals["G"].reason
        assert reason == "its group of 2 nodes would depend on its own results through other nodes"

    def test_nodes_left_out_of_all_groups(self, make_graph, null) -> None:
        split = partition(make_graph(CHAIN), [self.grouping(null, (0, 1)), null(None, "B")])
        assert split.placements[2].refusals["G"].code == "not-claimed"
        assert split.placements[2].refusals["G"].reason == "supported, but in none of the groups that the provider offered"

    def test_of_nodes_that_do_not_exist(self, make_graph, null) -> None:
        with pytest.raises(EPFail, match=r"G.get_capability\(\) names nodes \(3, 4\); the graph has nodes 0 to 3"):
            partition(make_graph(CHAIN), [self.grouping(null, (3, 4))])

    def test_two_groups_and_a_provider_between(self, make_graph, null) -> None:
        """A whole group waits for nodes of the same provider that are not in it."""
        graph = make_graph("g (float[3] x) => (float[3] y) { a = Relu(x)  b = Exp(a)  c = Neg(b)  y = Add(a, c) }")
        split = partition(graph, [self.grouping(null, (0,), (1, 2), (3,))])
        assert [p.nodes for p in split.parts] == [(0,), (1, 2), (3,)]


def test_a_node_that_nobody_takes(make_graph, null) -> None:
    with pytest.raises(intarsia.NotImplemented) as caught:
        partition(make_graph(CHAIN), [null({"Relu"}, "A"), null({"Exp"}, "B")])
    message = str(caught.value)
    assert "no provider takes 1 of the graph's 4 nodes (asked: A, B); add a provider that has these operators" in message
    assert "'Neg_3' (Neg version 13): A: knows no Neg; B: knows no Neg" in message


def test_many_nodes_that_nobody_takes_are_cut_short(make_graph, null) -> None:
    body = " ".join(f"v{i + 1} = Relu(v{i})" for i in range(12))
    with pytest.raises(intarsia.NotImplemented, match=r"takes 12 of the graph's 12 nodes[^$]*and 4 more"):
        partition(make_graph(f"g (float[3] v0) => (float[3] v12) {{ {body} }}"), [null({"Exp"}, "A")])


def test_nodes_that_failed_to_compile_go_to_the_next(make_graph, null) -> None:
    failed = {("A", "b"): "compilation failed: no memory"}
    split = partition(make_graph(CHAIN), [null(None, "A"), null(None, "B")], failed=failed)
    assert owners(split) == {"a": "A", "b": "B", "c": "A", "y": "A"}
    assert (split.placements[1].refusals["A"].code, split.placements[1].refusals["A"].reason) == ("compile", failed["A", "b"])


def test_prints_itself_as_a_table(make_graph, null) -> None:
    split = partition(make_graph(CHAIN), [null({"Exp"}, "A", ACCELERATOR), null(None, "B")], KEEP)
    assert str(split).splitlines() == [
        "node    op    provider  refused by",
        "----------------------------------------------------------------",
        "Relu_0  Relu  B         A: knows no Relu",
        "Exp_1   Exp   A         B: taken by A, which has higher priority",
        "Relu_2  Relu  B         A: knows no Relu",
        "Neg_3   Neg   B         A: knows no Neg",
        "",
        "1. part 0: B, 1 nodes (x) -> (a)",
        "2. copy a: host -> acc:0 (about 384 bytes)",
        "3. part 1: A, 1 nodes (a) -> (b)",
        "4. copy b: acc:0 -> host (about 384 bytes)",
        "5. part 2: B, 2 nodes (b) -> (y)",
    ]


def test_captured_values_of_subgraphs_are_inputs_of_the_part(make_graph: Callable[[str], Graph], null) -> None:
    graph = make_graph("""g (bool c, float[3] x) => (float[3] y) {
        a = Relu(x)
        y = If (c) <
            then_branch = t () => (float[3] p) { p = Exp(a) },
            else_branch = e () => (float[3] q) { q = Neg(a) }
        >
    }""")
    split = partition(graph, [null({"Relu"}, "A"), null(None, "B")])
    assert split.parts[1].graph.input_names() == ["c", "a"]


def test_every_value_is_where_it_is_read(make_graph, null) -> None:
    """Any assignment of a diamond-shaped graph to two devices gives steps that find their inputs in their own memory."""
    graph = make_graph("""g (float[3] x) => (float[3] y, float[3] b) {
        a = Relu(x) b = Exp(a) c = Neg(a) d = Add(b, c) e = Mul(d, a) f = Sub(e, c) y = Add(f, x) }""")
    names = [n.outputs[0] for n in graph.nodes]
    for pattern in range(2 ** len(names)):
        chosen = {n for i, n in enumerate(names) if pattern >> i & 1}

        class Chosen(null):
            def supports(self, node, graph, chosen=chosen):
                return (
                    super().supports(node, graph) if node.outputs[0] in chosen else type(super().supports(node, graph)).no("no")
                )

        split = partition(graph, [Chosen(None, "A", ACCELERATOR), null(None, "B")], KEEP)
        present = {("x", "host")}
        for step in split.steps:
            if isinstance(step, Copy):
                assert (step.value, str(step.source)) in present
                present.add((step.value, str(step.target)))
            elif isinstance(step, Part):
                here = str(step.provider.device)
                assert all((n, here) in present for n in step.graph.input_names())
                present.update((n, here) for n in step.graph.output_names())
        assert {("y", "host"), ("b", "host")} <= present
