"""The sweep of single nodes: what it draws, what it finds, what it lets pass."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import onnx.checker
import onnx.defs
import pytest

from intarsia.ep.provider import ExecutionProvider, Support
from intarsia.errors import EPFail, InvalidArgument
from intarsia.graph.model import Graph, Node
from intarsia.testing.faults import FaultInjectingExecutionProvider, FaultOptions
from intarsia.testing.node_sweep import difference, model, sweep
from intarsia.testing.node_table import operators
from intarsia.testing.node_variants import NUMBERS, NodeCase, cases
from intarsia.testing.provider import Suite, main

WITHOUT_ROWS = {  # of ONNX's own operators
    "Bernoulli": "random", "Multinomial": "random", "RandomNormal": "random", "RandomNormalLike": "random",
    "RandomUniform": "random", "RandomUniformLike": "random",
    "If": "has bodies", "Loop": "has bodies", "Scan": "has bodies", "SequenceMap": "has a body",
    "ConcatFromSequence": "sequences", "SequenceAt": "sequences", "SequenceConstruct": "sequences",
    "SequenceEmpty": "sequences", "SequenceErase": "sequences", "SequenceInsert": "sequences",
    "SequenceLength": "sequences", "SplitToSequence": "sequences",
    "Optional": "optional values", "OptionalGetElement": "optional values", "OptionalHasElement": "optional values",
    "ImageDecoder": "bytes of an image", "RegexFullMatch": "strings", "StringConcat": "strings", "StringNormalizer": "strings",
    "StringSplit": "strings", "TfIdfVectorizer": "lists of n-grams", "Constant": "no input",
}  # fmt: skip


def first(count: int, part: str = "") -> list[NodeCase]:
    return list(itertools.islice(cases(part), count))


class Wrong(FaultInjectingExecutionProvider):
    """Takes one operator and gives the negative of it."""

    name: ClassVar[str] = "WrongExecutionProvider"
    only: ClassVar[str] = "Neg"

    def supports(self, node: Node, graph: Graph) -> Support:
        return super().supports(node, graph) if node.op_type == self.only else Support.no(f"only {self.only}")

    def compile(self, graph: Graph, context: Any) -> Any:
        changed = graph.clone()
        for node in changed.nodes:
            node.op_type = "Identity" if node.op_type == "Neg" else node.op_type
        return super().compile(changed, context)


class Picky(FaultInjectingExecutionProvider):
    """Says that it takes every operator, and cannot compile one."""

    name: ClassVar[str] = "PickyExecutionProvider"

    def compile(self, graph: Graph, context: Any) -> Any:
        if any(node.op_type == "Neg" for node in graph.nodes):
            raise EPFail("it knows no Neg")
        return super().compile(graph, context)


class TestDraws:
    def test_every_operator_has_rows_or_a_reason(self) -> None:
        every = {s.name for s in onnx.defs.get_all_schemas_with_history() if not s.domain and not s.deprecated}
        have = {name for domain, name in operators() if not domain}
        assert every - have == WITHOUT_ROWS.keys()

    def test_the_first_nodes_hold_some_of_every_operator(self) -> None:
        names = {(domain, name) for domain, name in operators()}
        assert {(c.domain, c.operator) for c in first(len(names))} == names

    def test_the_same_nodes_each_time(self) -> None:
        for a, b in zip(first(300), first(300), strict=True):
            assert str(a) == str(b)
            for x, y in zip(a.inputs, b.inputs, strict=True):
                np.testing.assert_array_equal(x, y)

    def test_more_nodes_begin_with_fewer(self) -> None:
        assert [str(c) for c in first(50, "LRN")] == [str(c) for c in first(80, "LRN")][:50]

    def test_versions_forms_and_numbers_of_all_kinds(self) -> None:
        found = first(200, "ReduceSum")
        assert {c.version for c in found} == {1, 11, 13}
        assert {c.symbolic for c in found} == {False, True}
        assert {bool(c.constants) for c in found} == {False, True}
        assert {c.numbers for c in found} == set(NUMBERS)

    def test_models_that_onnx_accepts(self) -> None:
        for case in first(400):
            if not case.domain:
                proto = onnx.ModelProto.FromString(model([case])[0])
                context = onnx.checker.DEFAULT_CONTEXT
                context.opset_imports = {"": case.version}
                onnx.checker.check_node(proto.graph.node[0], context)


class TestFinds:
    def test_wrong_numbers_and_where(self) -> None:
        found = sweep(Wrong(), first(12, "Neg"))
        assert found.taken == 12
        assert "Neg-" in str(found)
        assert "elements differ, at [" in found.wrong[0][1]

    def test_nothing_wrong_with_what_is_refused(self) -> None:
        found = sweep(Wrong(), first(12, "Abs"))
        assert (found.taken, found.refused, found.wrong) == (0, 12, [])

    def test_a_node_that_cannot_be_compiled_takes_no_other_with_it(self) -> None:
        nodes = [c for operator in ("Abs", "Neg") for c in first(20, operator) if c.version == 13]
        found = sweep(Picky(), nodes)
        refused = sum(c.operator == "Neg" for c in nodes)
        assert (found.taken, found.refused, found.wrong) == (len(nodes) - refused, refused, [])

    def test_a_run_that_fails_is_a_finding(self) -> None:
        (case,) = first(1, "Abs")
        ((node, text),) = sweep(FaultInjectingExecutionProvider(FaultOptions(crash_at=1)), [case]).wrong
        assert node is case
        assert "kernel 1 crashed" in text

    def test_the_reference_provider_is_compared_with_float64(self) -> None:
        assert not sweep("ReferenceExecutionProvider", first(60, "Softmax")).wrong

    def test_in_the_suite(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["intarsia.testing.faults", "--area", "sweep", "--nodes", "Relu"]) == 0
        shown = capsys.readouterr().out
        assert "ran on this provider, 0 were refused" in shown
        failures = Suite(Wrong, {}, [], "Neg").run(["sweep"]).failures
        assert failures
        assert all(check.name.startswith("Neg-") for check in failures)

    def test_no_such_operator(self) -> None:
        (check,) = Suite(Wrong, {}, [], "Negg").run(["sweep"]).failures
        assert "--nodes: expected 'sample', 'all', a number or a part of an operator's name, got 'Negg'" in check.detail
        assert InvalidArgument.__name__ in check.detail


class TestLetsPass:
    def test_what_the_provider_says_of_nan(self) -> None:
        class Documented(Wrong):
            name = "DocumentedExecutionProvider"
            not_exact: ClassVar[dict[str, str]] = {"Neg": "of NaN"}

        nodes = first(40, "Neg")
        found = sweep(Documented(), nodes)
        assert found.known
        assert found.wrong
        assert {case.numbers for case, _ in found.wrong} == {"plain"}

    def test_denormal_numbers_as_zeros(self) -> None:
        class Flushing(FaultInjectingExecutionProvider):
            name = "FlushingExecutionProvider"

            def compile(self, graph: Graph, context: Any) -> Any:
                program = super().compile(graph, context)
                run, memory = program.run, self.get_data_transfer()

                def flushed(inputs: Sequence[Any], *args: Any) -> list[Any]:
                    arrays = [memory.copy_out(x) for x in inputs]
                    arrays = [np.where(abs(x) < 1.17e-38, 0, x).astype(x.dtype) if x.dtype == np.float32 else x for x in arrays]
                    return run([memory.copy_in(x, self.device) for x in arrays], *args)  # type: ignore[no-any-return]

                program.run = flushed  # type: ignore[method-assign]
                return program

        wanted = ("Log-6(float[48]", "Log-13(float[48]")
        nodes = [c for c in first(60, "Log") if c.numbers == "hard" and str(c).startswith(wanted)]
        assert sweep(Flushing(), nodes).wrong
        Flushing.flushes_denormals = True
        assert not sweep(Flushing(), nodes).wrong

    def test_rounding_and_no_more(self) -> None:
        case = next(c for c in cases("Exp") if c.version == 13)
        one = np.ones(3, np.float32)
        assert not difference(case, [one * np.float32(1 + 1e-6)], [[one]])
        off = difference(case, [one * np.float32(1.0001)], [[one]])
        assert "3 of 3 elements differ, at [0] expected 1.0, got 1.0001" in off
        assert "expected float32[3], got float64[3]" in difference(case, [np.ones(3)], [[one]])
        nan = np.array([np.nan, 1, 1], np.float32)
        assert difference(case, [one], [[nan]])
        assert not difference(case, [nan], [[nan]])
        assert not difference(case, [one], [[nan], [one]])


def test_a_provider_is_given_by_class_name_or_instance() -> None:
    nodes = first(3, "Relu")
    for provider in ("CPUExecutionProvider", Wrong, Wrong()):
        assert not sweep(provider, nodes).wrong
    assert issubclass(Wrong, ExecutionProvider)
