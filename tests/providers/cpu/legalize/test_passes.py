"""The CPU provider's passes by name: each runs where it should, can be left out, and is said to have run."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort
from intarsia.codegen.llvm.target import Target
from intarsia.ep.provider import CompileContext
from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.load import load
from intarsia.graph.model import Graph, Node, TensorType, Value
from intarsia.ops import registry
from intarsia.ops.framework.infer import Inference
from intarsia.passes import optimize, rule_names
from intarsia.providers.cpu.legalize import legalize as driver
from intarsia.providers.cpu.legalize.legalize import Legalized, legalize, log_lines
from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv, LoweringPass
from intarsia.providers.cpu.legalize.passes import PASSES, pass_names
from intarsia.providers.reference import ReferenceExecutionProvider

RNG = np.random.default_rng(23)
KEY = "optimization.disable_specified_optimizers"


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@dataclass
class Case:
    """A small model, its inputs, and how far results may be from the definitions' (of the largest value)."""

    nodes: list[Any]
    feed: dict[str, np.ndarray]
    constants: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-5
    output: int = TensorProto.FLOAT

    def model(self) -> bytes:
        inputs = [
            helper.make_tensor_value_info(n, TensorProto.STRING if a.dtype == object else numpy_helper.from_array(a).data_type,
                                          a.shape) for n, a in self.feed.items()
        ]  # fmt: skip
        weights = [
            helper.make_tensor(n, *a) if isinstance(a, tuple) else numpy_helper.from_array(np.asarray(a), n)
            for n, a in self.constants.items()
        ]
        graph = helper.make_graph(self.nodes, "case", inputs, [helper.make_tensor_value_info("y", self.output, None)], weights)
        opsets = [helper.make_opsetid(d, v) for d, v in (("", 21), ("com.microsoft", 1), ("ai.onnx.ml", 3))]
        made: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
        return made


def node(op_type: str, inputs: str, outputs: str, domain: str = "", **attributes: Any) -> Any:
    names = ["" if n == "-" else n for n in inputs.split()]
    return helper.make_node(op_type, names, outputs.split(), domain=domain, **attributes)


def quantized(x: str, name: str) -> list[Any]:
    """`name`: x in steps of s around z, as a pair of nodes."""
    return [node("QuantizeLinear", f"{x} s z", f"{name}_q"), node("DequantizeLinear", f"{name}_q s z", name)]


STEPS = {"s": np.float32(0.05), "z": np.uint8(120)}
CASES = {
    "widen_float16": Case(
        [node("MatMul", "x w", "p"), node("Add", "p b", "y")], {"x": floats(5, 7).astype(np.float16)},
        {"w": floats(7, 9).astype(np.float16), "b": floats(9).astype(np.float16)}, 3e-3, TensorProto.FLOAT16,
    ),
    "unpack_tables": Case(
        [node("GatherBlockQuantized", "table x scales", "y", "com.microsoft", block_size=16)], {"x": np.array([2, 0, 5])},
        {"table": (TensorProto.UINT4, (6, 32), RNG.integers(0, 16, 192).tolist()), "scales": np.abs(floats(6, 2))},
    ),
    "number_ngram_words": Case(
        [node("TfIdfVectorizer", "x", "y", min_gram_length=1, max_gram_length=2, max_skip_count=0, mode="TF",
              ngram_counts=[0, 2], ngram_indexes=[0, 1, 2], pool_strings=["a", "b", "b", "a"])],
        {"x": np.array(["b", "a", "c", "b", "a"], object)},
    ),
    "requantize_weights": Case(
        [node("DequantizeLinear", "w s z", "d"), node("Transpose", "d", "t"), *quantized("t", "u"), *quantized("x", "v"),
         node("MatMul", "v u", "y")],
        {"x": floats(4, 8)}, {"w": RNG.integers(0, 256, (12, 8)).astype(np.uint8), **STEPS}, 0.02,
    ),
    "convert_qdq_to_integer": Case(
        [*quantized("x", "v"), node("DequantizeLinear", "w s z", "u"), node("MatMul", "v u", "p"), *quantized("p", "y")],
        {"x": floats(4, 8)}, {"w": RNG.integers(100, 140, (8, 12)).astype(np.uint8), **STEPS}, 0.05,
    ),
    "sink_dequantize": Case(
        [*quantized("x", "v"), node("Reshape", "v shape", "r"), *quantized("r", "u"), node("Concat", "u u", "c", axis=0),
         *quantized("c", "y")],
        {"x": floats(4, 6)}, {"shape": np.array([3, 8]), **STEPS},
    ),
    "fold_byte_chains": Case(
        [*quantized("x", "v"), node("Sigmoid", "v", "g"), *quantized("g", "y")], {"x": floats(100, 100)}, STEPS,
    ),
    "dequantize_weights": Case(
        [node("DequantizeLinear", "w s z", "u"), node("Add", "x u", "y")], {"x": floats(4, 8)},
        {"w": RNG.integers(0, 256, (4, 8)).astype(np.uint8), **STEPS},
    ),
    "decompose_classical": Case(
        [node("TreeEnsembleRegressor", "x", "y", "ai.onnx.ml", n_targets=1, nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2],
              nodes_featureids=[1, 0, 0], nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values=[0.25, 0.0, 0.0],
              nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0], target_treeids=[0, 0], target_nodeids=[1, 2],
              target_ids=[0, 0], target_weights=[1.5, -2.5])],
        {"x": floats(9, 3)},
    ),
    "decompose_moe": Case(
        [node("MoE", "x logits w1 - w2", "y", "com.microsoft", k=2, activation_type="gelu")],
        {"x": floats(6, 8), "logits": floats(6, 4)}, {"w1": floats(4, 12, 8), "w2": floats(4, 8, 12)}, 1e-4,
    ),
    "convert_gather_matmul_to_moe": Case(
        [node("TopK", "logits two", "best which"), node("Reshape", "which flat", "index"),
         node("Gather", "matrices index", "gathered"), node("Reshape", "x column", "vectors"),
         node("MatMul", "gathered vectors", "y")],
        {"x": floats(3, 2, 8), "logits": floats(3, 5)},
        {"matrices": floats(5, 6, 8), "two": np.array([2]), "flat": np.array([-1]), "column": np.array([-1, 8, 1])},
    ),
    "decompose_gqa": Case(
        [node("GroupQueryAttention", "q k v pk pv lengths total", "y nk nv", "com.microsoft", num_heads=2, kv_num_heads=1)],
        {"q": floats(1, 3, 16), "k": floats(1, 3, 8), "v": floats(1, 3, 8), "pk": floats(1, 1, 9, 8),
         "pv": floats(1, 1, 9, 8), "lengths": np.int32([6]), "total": np.array(7, np.int32)},
    ),
    "assign_channels_last": Case(
        [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "r"), node("GlobalAveragePool", "r", "y")],
        {"x": floats(2, 3, 10, 10)}, {"w": floats(4, 3, 3, 3)},
    ),
}  # fmt: skip
FREE = [each.name for each in PASSES if not each.required]  # those that can be left out


def prepared(model: bytes) -> Graph:
    return optimize(load(model)).graph


def legal(graph: Graph, **how: Any) -> Legalized:
    return legalize(graph, LegalizeEnv(registry(), Target.host(), {}), **how)


def names(found: Legalized) -> list[str]:
    return [entry.name for entry in found.log]


def close(actual: np.ndarray, expected: np.ndarray, case: Case) -> None:
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    actual, expected = (a.astype(np.float64) for a in (actual, expected))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=case.tolerance * max(1, np.abs(expected).max()))


def expected(case: Case) -> np.ndarray:
    """What the operators' definitions give."""
    found: np.ndarray = ort.InferenceSession(case.model(), providers=["ReferenceExecutionProvider"]).run(None, case.feed)[0]
    return found


def told(session: ort.InferenceSession) -> str:
    """What `intarsia dump -s legalized` prints of a model of one part."""
    (program,) = session._engine.whole_model().programs
    return program.describe("legalized")


def test_there_is_a_case_for_each_pass() -> None:
    assert list(CASES) == FREE
    assert len(set(pass_names())) == len(PASSES) == 14
    assert not set(pass_names()) & set(rule_names()), "one name for a rule and a pass"


@pytest.mark.parametrize("name", FREE)
def test_a_pass_runs_is_told_and_can_be_left_out(name: str) -> None:
    case, wanted = CASES[name], expected(CASES[name])
    session = ort.InferenceSession(case.model())
    assert re.search(rf"^# {name} +1 time", told(session), re.MULTILINE), told(session)
    close(session.run(None, case.feed)[0], wanted, case)

    options = ort.SessionOptions()
    options.add_session_config_entry(KEY, f"fuse_gelu; {name}")
    for without in (
        ort.InferenceSession(case.model(), disabled_optimizers=[name]),
        ort.InferenceSession(case.model(), options),
        ort.InferenceSession(case.model(), options, disabled_optimizers=["fuse_gelu"]),
    ):
        assert f"# {name} " not in told(without)
    close(without.run(None, case.feed)[0], wanted, case)


@pytest.mark.parametrize("name", FREE)
def test_no_pass_at_all(name: str) -> None:
    session = ort.InferenceSession(CASES[name].model(), disabled_optimizers=FREE)
    assert not told(session).startswith("#")
    close(session.run(None, CASES[name].feed)[0], expected(CASES[name]), CASES[name])


@pytest.mark.parametrize("name", FREE)
def test_the_graph_behind_each_pass_computes_the_same(name: str) -> None:
    """By definitions alone, after 0, 1, 2 ... passes."""
    case, graph = CASES[name], prepared(CASES[name].model())
    everything = names(legal(graph))
    assert name in everything
    assert names(legal(graph, disabled=frozenset((name,)))).count(name) == 0
    for count in range(len(everything) + 1):
        found = legal(graph, limit=count)
        assert names(found) == everything[:count]
        program = ReferenceExecutionProvider().compile(found.graph, CompileContext())
        results = dict(zip(program.outputs, program.run([case.feed[n] for n in program.inputs]), strict=True))
        close(results["y"], expected(case), case)


def test_a_pass_changes_nothing_of_what_it_is_given() -> None:
    for case in CASES.values():
        graph = prepared(case.model())
        before = str(graph)
        given = legal(graph).given
        types = dict(given.types)
        assert (str(graph), types) == (before, legal(graph, limit=0).inference.types)


def test_the_log_has_nodes_and_times() -> None:
    found = legal(prepared(CASES["decompose_moe"].model()))
    (entry,) = found.log
    assert (entry.name, entry.graph, entry.nodes_before) == ("decompose_moe", "case", 1)
    assert entry.nodes_after == len(found.graph.nodes) > 1
    assert entry.seconds > 0
    again = entry._replace(seconds=0.0015)
    assert log_lines([again, again]) == [f"decompose_moe  2 times  2 -> {2 * entry.nodes_after} nodes  3.0 ms"]
    assert log_lines([]) == []


def test_bodies_are_counted_and_left_alone_too() -> None:
    """A convolution in each branch of an If."""
    convolution = CASES["assign_channels_last"]
    bodies = []
    for pads in ([1, 1, 1, 1], [0, 0, 0, 0]):
        nodes = [node("Conv", "x w", "c", pads=pads), node("GlobalAveragePool", "c", "m")]
        bodies.append(helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info("m", TensorProto.FLOAT, None)]))
    branches = dict(zip(("then_branch", "else_branch"), bodies, strict=True))
    case = Case([node("If", "which", "y", **branches)], convolution.feed | {"which": np.array(True)}, convolution.constants)
    session = ort.InferenceSession(case.model())
    assert "# assign_channels_last  2 times" in told(session)
    without = ort.InferenceSession(case.model(), disabled_optimizers=["assign_channels_last"])
    assert "assign_channels_last" not in told(without)
    for which in (True, False):
        case.feed["which"] = np.array(which)
        for each in (session, without):
            close(each.run(None, case.feed)[0], expected(case), case)


def test_unknown_names_are_errors() -> None:
    model = CASES["widen_float16"].model()
    with pytest.raises(ort.UnknownOption, match="no pass of the CPU provider: did you mean 'widen_float16'"):
        ort.InferenceSession(model, disabled_optimizers=["widen_float61"])
    with pytest.raises(ort.UnknownOption, match=r"no optimisation rule is called 'fuse_gelo'.*did you mean 'fuse_gelu'"):
        ort.InferenceSession(model, disabled_optimizers=["fuse_gelo", "widen_float16"])
    with pytest.raises(ort.UnknownOption, match="no pass of the CPU provider is called 'fuse_gelu'"):
        legal(prepared(model), disabled=frozenset(("fuse_gelu",)))


def test_names_of_passes_are_known_to_sessions_without_the_cpu() -> None:
    case = CASES["assign_channels_last"]
    session = ort.InferenceSession(
        case.model(), providers=["ReferenceExecutionProvider"], disabled_optimizers=["assign_channels_last"]
    )
    close(session.run(None, case.feed)[0], expected(case), case)


def foreign() -> Graph:
    """x [2 * n, 4], where no axis of an input is n."""
    rows = symbol("n") * 2
    values = [Value(name, TensorType(DType.FLOAT, (rows, 4))) for name in ("x", "y")]
    return Graph("part", values[:1], values[1:], [Node("Relu", ["x"], ["y"], {}, version=14)], {}, opset_imports={"": 21})


def test_what_results_depend_on_cannot_be_left_out() -> None:
    found = legal(foreign(), limit=0)
    assert names(found) == ["rename_foreign_symbols"]
    (value,) = found.graph.inputs
    assert re.fullmatch(r"float\[\S*x_d0\S*, 4\]", str(value.type)), str(value.type)
    with pytest.raises(ort.InvalidArgument, match="pass 'rename_foreign_symbols' cannot be disabled: sizes of its inputs"):
        legal(foreign(), disabled=frozenset(("rename_foreign_symbols",)))
    options = ort.SessionOptions()
    options.add_session_config_entry(KEY, "rename_foreign_symbols")
    model = CASES["widen_float16"].model()
    for how in ({"sess_options": options}, {"disabled_optimizers": ["rename_foreign_symbols"]}):
        with pytest.raises(ort.InvalidArgument, match="leave its name out of disabled_optimizers"):
            ort.InferenceSession(model, **how)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Node("Relu", ["nowhere"], ["y"], {}, version=14), "nowhere"),
        (Node("Concat", ["x", "x"], ["y"], {"axis": 7}, version=13), "axis"),
    ],
    ids=["reads what nobody writes", "does not fit its definition"],
)
def test_the_error_names_the_pass_that_made_no_graph(
    broken: Node, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def run(inference: Inference, _: LegalizeEnv) -> Graph:
        out = inference.graph.clone()
        out.nodes = [broken]
        return out

    graph = prepared(CASES["assign_channels_last"].model())
    monkeypatch.setattr(driver, "PASSES", (*PASSES[:1], LoweringPass("break_it", run), *PASSES[1:]))
    pattern = (
        rf"after the CPU provider's pass 'break_it': .*{message}.*\(disabled_optimizers=\['break_it'\] leaves this pass out"
    )
    with pytest.raises(ort.InvalidGraph, match=re.compile(pattern, re.DOTALL)):
        legal(graph)
    monkeypatch.setattr(driver, "PASSES", (LoweringPass("break_it", run, frozenset(("Softmax",))),))
    assert names(legal(graph)) == [], "a pass without one of its operators is not run"


def test_two_passes_can_be_left_out_together() -> None:
    """Pairs of passes that take the same nodes."""
    quantised = ("requantize_weights", "convert_qdq_to_integer", "sink_dequantize", "fold_byte_chains", "dequantize_weights")
    for pair in itertools.combinations(quantised, 2):
        for name in quantised:
            case = CASES[name]
            session = ort.InferenceSession(case.model(), disabled_optimizers=pair)
            assert not any(f"# {each} " in told(session) for each in pair)
            close(session.run(None, case.feed)[0], expected(case), case)
