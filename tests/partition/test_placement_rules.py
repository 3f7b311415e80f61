"""Nodes placed by the user, by patterns of their names."""

from __future__ import annotations

import pytest

from intarsia import errors
from intarsia.ep.device import Device
from intarsia.errors import InvalidArgument, UnknownOption
from intarsia.partition.partition import Partition, PartitionOptions, partition
from intarsia.partition.placement_rules import parse_rules

CHAIN = "g (float[N,3] x) => (float[N,3] y) { a = Relu(x)  b = Exp(a)  c = Relu(b)  y = Neg(c) }"


def placed(place: str = "", by_name: str = "") -> PartitionOptions:
    return PartitionOptions(rules=parse_rules({"partition.place": place, "session.name_based_layer_assignment": by_name}))


def owners(split: Partition) -> dict[str, str]:
    return {p.node.outputs[0]: p.provider for p in split.placements}


def test_the_first_rule_that_matches_decides(make_graph, null) -> None:
    split = partition(make_graph(CHAIN), [null(None, "A"), null(None, "B")], placed("Relu_0 = A; Relu*=B"))
    assert owners(split) == {"a": "A", "b": "A", "c": "B", "y": "A"}
    refusal = split.placements[2].refusals["A"]
    assert (refusal.code, refusal.reason) == ("placed", "placed on B by 'partition.place' 'Relu*' = B")


def test_a_placed_node_is_no_island(make_graph, null) -> None:
    providers = [null({"Exp"}, "A", Device("acc")), null(None, "B")]
    assert owners(partition(make_graph(CHAIN), providers))["b"] == "B"
    assert owners(partition(make_graph(CHAIN), providers, placed("Exp_1=A")))["b"] == "A"


def test_a_node_is_found_by_the_name_it_had_in_the_model(make_graph, null) -> None:
    graph = make_graph(CHAIN)
    graph.nodes[1].name, graph.nodes[1].origin = "fused", ("block/exp", "block/scale")
    assert owners(partition(graph, [null(None, "A"), null(None, "B")], placed("block/*=B")))["b"] == "B"


def test_the_provider_must_take_it(make_graph, null) -> None:
    message = (
        "'partition.place' 'Exp_1' = A places node 'Exp_1' .Exp. on A, which does not take it: knows no Exp; change the rule"
    )
    with pytest.raises(errors.NotImplemented, match=message):
        partition(make_graph(CHAIN), [null({"Relu"}, "A"), null(None, "B")], placed("Exp_1=A"))


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("Exp_1", InvalidArgument, "'partition.place': expected 'PATTERN=PROVIDER; ...', got 'Exp_1'"),
        ("=A", InvalidArgument, "expected 'PATTERN=PROVIDER"),
        ("Exp_1=C", UnknownOption, "the session has no such provider; valid: 'A', 'B'"),
        ("Expo_1=A", InvalidArgument, "no node has such a name; did you mean 'Exp_1'"),
    ],
)
def test_rules_that_say_nothing(make_graph, null, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        partition(make_graph(CHAIN), [null(None, "A"), null(None, "B")], placed(text))


class TestByName:
    """onnxruntime's entry: kinds of devices, parts of names."""

    def test_kinds(self, make_graph, null) -> None:
        providers = [null(None, "Host"), null(None, "Gpu", Device("cuda"))]
        split = partition(make_graph(CHAIN), providers, placed(by_name="gpu(Relu); cpu(=Exp_1, Neg)"))
        assert owners(split) == {"a": "Gpu", "b": "Host", "c": "Gpu", "y": "Host"}

    def test_where_the_device_refuses_the_others_are_asked(self, make_graph, null) -> None:
        providers = [null({"Relu"}, "Gpu", Device("cuda")), null(None, "Host")]
        split = partition(make_graph(CHAIN), providers, placed(by_name="gpu(Exp, Relu_0)"))
        assert owners(split) == {"a": "Gpu", "b": "Host", "c": "Host", "y": "Host"}
        assert owners(partition(make_graph(CHAIN), providers, placed(by_name="npu(Relu)")))["a"] == "Host"

    def test_another_form(self) -> None:
        with pytest.raises(InvalidArgument, match=r"'session.name_based_layer_assignment': expected 'cpu\(A,=B\); gpu\(C\)'"):
            parse_rules({"session.name_based_layer_assignment": "cpu:a"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu(Exp)", "'*Exp*' = gpu has no effect: no provider of the session is for 'gpu'; it has A (cpu), B (cpu)"),
        ("reference(Exp)", "no provider of the session is for 'reference'; it has A (cpu), B (cpu)"),
        ("cpu(Expo)", "'*Expo*' = cpu has no effect: no node has such a name"),
    ],
)
def test_onnxruntimes_rules_that_say_nothing_are_reported(
    make_graph, null, caplog: pytest.LogCaptureFixture, text: str, message: str
) -> None:
    split = partition(make_graph(CHAIN), [null(None, "A"), null(None, "B")], placed(by_name=text))
    assert set(owners(split).values()) == {"A"}
    assert message in caplog.text
