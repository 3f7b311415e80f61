"""Providers that do not know fused operators get them written out, where they take the pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import pytest

import intarsia
from intarsia.errors import EPFail
from intarsia.graph.model import Graph, Node
from intarsia.partition.decompose import FUSED
from intarsia.providers.reference import ReferenceExecutionProvider

NAME = "PlainExecutionProvider"


class PlainExecutionProvider(ReferenceExecutionProvider):
    """Takes ONNX's operators that no rule of the optimizer makes, and notes the nodes that it compiles."""

    name = NAME
    fused_operators = frozenset()
    refused: frozenset[str] = FUSED

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.compiled: list[str] = []

    def supports(self, node: Node, graph: Graph) -> intarsia.Support:
        if node.domain or node.op_type in self.refused:
            return intarsia.Support.no(f"no {node.qualified_op}", code="no-kernel")
        return intarsia.Support.yes()

    def compile(self, graph: Graph, context: Any) -> Any:
        self.compiled += [node.op_type for node in graph.nodes]
        return super().compile(graph, context)


def opened(provider: Any, text: str, *others: str) -> intarsia.InferenceSession:
    source = onnx.parser.parse_model(text).SerializeToString()
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "0" if others else "1")
    return intarsia.InferenceSession(source, options, providers=[provider, *others])


def model(opset: int, inputs: str, outputs: str, body: str) -> str:
    return f'<ir_version: 10, opset_import: ["": {opset}]> g ({inputs}) => ({outputs}) {{ {body} }}'


MODELS = {
    "Gelu": model(20, "float[n,5] x", "float[n,5] y", "y = Gelu(x)"),
    "Gelu tanh": model(20, "float[n,5] x", "float[n,5] y", 'y = Gelu<approximate="tanh">(x)'),
    "Gelu half": model(20, "float16[n,5] x", "float16[n,5] y", "y = Gelu(x)"),
    "HardSwish": model(14, "float[n,5] x", "float[n,5] y", "y = HardSwish(x)"),
    "Mish": model(18, "float[n,5] x", "float[n,5] y", "y = Mish(x)"),
    "Swish": model(24, "float[n,5] x", "float[n,5] y", "y = Swish<alpha=1.5>(x)"),
    "LayerNormalization": model(
        17, "float[n,3,4] x, float[3,4] s, float[3,4] b", "float[n,3,4] y",
        "y = LayerNormalization<axis=1, epsilon=0.01>(x, s, b)",
    ),
    "LayerNormalization half": model(
        17, "float16[n,8] x, float16[8] s", "float16[n,8] y", "y = LayerNormalization(x, s)",
    ),
    "RMSNormalization": model(23, "float[n,3,4] x, float[4] s", "float[n,3,4] y", "y = RMSNormalization(x, s)"),
    "GroupNormalization": model(
        21, "float[n,6,2,3] x, float[6] s, float[6] b", "float[n,6,2,3] y",
        "y = GroupNormalization<num_groups=2>(x, s, b)",
    ),
    "RotaryEmbedding": model(
        23, "float[n,2,3,8] x, float[n,3,4] c, float[n,3,4] s", "float[n,2,3,8] y", "y = RotaryEmbedding(x, c, s)",
    ),
    "Attention": model(
        23, "float[n,4,3,8] q, float[n,2,5,8] k, float[n,2,5,8] v, float[3,5] m", "float[n,4,3,8] y",
        "y = Attention(q, k, v, m)",
    ),
    "Attention causal": model(
        23, "float[n,3,8] q, float[n,3,8] k, float[n,3,8] v", "float[n,3,8] y",
        "y = Attention<is_causal=1, q_num_heads=2, kv_num_heads=2>(q, k, v)",
    ),
}  # fmt: skip


def feeds_of(text: str, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    found = {}
    for value in onnx.parser.parse_model(text).graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value or 2 for d in kind.shape.dim]
        found[value.name] = rng.standard_normal(shape).astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return found


@pytest.mark.parametrize("case", MODELS)
def test_a_fused_node_is_written_out(case: str) -> None:
    text, provider = MODELS[case], PlainExecutionProvider()
    feeds = feeds_of(text)
    found = opened(provider, text).run(None, feeds)[0]
    assert provider.compiled
    assert not FUSED & set(provider.compiled)
    wide = {k: v.astype(np.float32) for k, v in feeds.items()}
    reference = onnx.reference.ReferenceEvaluator(onnx.parser.parse_model(text.replace("float16", "float")))
    expected = reference.run(None, wide)[0]
    tolerance = 4e-3 if found.dtype == np.float16 else 2e-5
    np.testing.assert_allclose(found.astype(np.float32), expected, rtol=tolerance, atol=tolerance)


def test_each_fused_operator_has_a_case() -> None:
    assert {name.split()[0] for name in MODELS} == FUSED


EXPORTED = model(
    13, "float[n,5] x", "float[n,5] y",
    "r = Constant<value = float {1.41421354}>()  o = Constant<value = float {1.0}>()  h = Constant<value = float {0.5}>() "
    "d = Div(x, r)  e = Erf(d)  p = Add(e, o)  m = Mul(x, p)  y = Mul(m, h)",
)  # fmt: skip


def test_what_an_exporter_wrote_is_fused_by_default_and_not_for_who_does_not_want_it() -> None:
    class Asked(PlainExecutionProvider):
        fused_operators = None
        refused = frozenset()

    default, plain = Asked(), PlainExecutionProvider()
    results = [opened(p, EXPORTED).run(None, feeds_of(EXPORTED))[0] for p in (default, plain)]
    assert default.compiled == ["Gelu"]
    assert sorted(plain.compiled) == ["Add", "Erf", "Mul", "Mul", "Mul"]
    np.testing.assert_allclose(*results, rtol=1e-6, atol=1e-7)


def test_versions_are_those_of_the_models_opset() -> None:
    seen = {}

    class Noting(PlainExecutionProvider):
        def compile(self, graph: Graph, context: Any) -> Any:
            seen.update({node.op_type: (node.version, len(node.inputs)) for node in graph.nodes})
            return super().compile(graph, context)

    for opset, expected in ((17, (13, 1)), (18, (18, 2))):
        text = MODELS["LayerNormalization"].replace('"": 17', f'"": {opset}')
        opened(Noting(), text)
        assert seen["ReduceMean"] == expected


def test_a_named_operator_stays_as_it_is() -> None:
    class Knowing(PlainExecutionProvider):
        fused_operators = frozenset({"Gelu"})
        refused = FUSED - {"Gelu"}

    provider = Knowing()
    text = model(20, "float[n,5] x", "float[n,5] y", "a = Gelu(x)  y = Mish(a)")
    opened(provider, text)
    assert provider.compiled == ["Gelu", "Softplus", "Tanh", "Mul"]


def test_it_stays_fused_for_the_next_provider_where_a_piece_is_refused() -> None:
    class WithoutErf(PlainExecutionProvider):
        refused = FUSED | {"Erf"}

    text = model(20, "float[n,5] x", "float[n,5] y", "a = Gelu(x)  b = Mish(a)  y = Relu(b)")
    provider = WithoutErf()
    made = opened(provider, text, "CPUExecutionProvider")
    assert provider.compiled == ["Softplus", "Tanh", "Mul", "Relu"]
    rows = {(row.op, row.provider) for row in made.explain().nodes}
    assert ("Gelu", "CPUExecutionProvider") in rows
    feeds = feeds_of(text)
    expected = onnx.reference.ReferenceEvaluator(onnx.parser.parse_model(text)).run(None, feeds)[0]
    np.testing.assert_allclose(made.run(None, feeds)[0], expected, rtol=1e-5, atol=1e-6)


def test_it_stays_fused_for_an_earlier_provider_that_takes_it() -> None:
    class First(PlainExecutionProvider):
        name = "FirstExecutionProvider"
        fused_operators = None
        refused = FUSED - {"Gelu"} | {"Softplus", "Tanh", "Mul"}

    first, plain = First(), PlainExecutionProvider()
    text = model(20, "float[n,5] x", "float[n,5] y", "a = Gelu(x)  y = Mish(a)")
    source = onnx.parser.parse_model(text).SerializeToString()
    made = intarsia.InferenceSession(source, providers=[first, plain, "CPUExecutionProvider"])
    assert first.compiled == ["Gelu"]
    assert plain.compiled == ["Softplus", "Tanh", "Mul"]
    expected = onnx.reference.ReferenceEvaluator(onnx.parser.parse_model(text)).run(None, feeds_of(text))[0]
    np.testing.assert_allclose(made.run(None, feeds_of(text))[0], expected, rtol=1e-5, atol=1e-6)


def test_where_the_pieces_cannot_be_compiled_the_next_provider_gets_the_fused_node() -> None:
    class Failing(PlainExecutionProvider):
        def compile(self, graph: Graph, context: Any) -> Any:
            raise EPFail("no memory for tables")

    with pytest.warns(intarsia.ProviderWarning, match="compilation failed: no memory for tables"):
        made = opened(Failing(), MODELS["Gelu"], "CPUExecutionProvider")
    assert {(row.op, row.provider) for row in made.explain().nodes} == {("Gelu", "CPUExecutionProvider")}


NORM = "y = LayerNormalization<axis=-1>(x, s)"


def test_an_input_that_is_left_out_by_an_empty_name() -> None:
    source = onnx.parser.parse_model(model(18, "float[2,4] x, float[4] s", "float[2,4] y", NORM))
    source.graph.node[0].input.append("")
    provider = PlainExecutionProvider()
    session = intarsia.InferenceSession(source.SerializeToString(), providers=[provider])
    x, s = np.float32([[1, 2, 3, 5], [0, 1, 0, 1]]), np.float32([1, 2, 3, 4])
    wanted = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * s
    np.testing.assert_allclose(session.run(None, {"x": x, "s": s})[0], wanted, rtol=1e-5)
    assert "LayerNormalization" not in provider.compiled and "ReduceMean" in provider.compiled


def test_a_node_that_is_placed_on_another_provider_stays_as_it_is() -> None:
    source = onnx.parser.parse_model(model(18, "float[2,4] x, float[4] s", "float[2,4] y", NORM))
    source.graph.node[0].name = "ln"
    provider, options = PlainExecutionProvider(), intarsia.SessionOptions()
    options.add_session_config_entry("partition.place", "ln=CPUExecutionProvider")
    with pytest.warns(intarsia.ProviderWarning, match="placed on CPUExecutionProvider"):
        session = intarsia.InferenceSession(source.SerializeToString(), options, providers=[provider, "CPUExecutionProvider"])
    assert [(node.op, node.provider) for node in session.explain().nodes] == [("LayerNormalization", "CPUExecutionProvider")]
    assert not provider.compiled


def test_explain_names_the_nodes_of_the_model() -> None:
    text = model(20, "float[n,5] x", "float[n,5] y", "[act] y = Gelu(x)")
    rows = opened(PlainExecutionProvider(), text).explain().nodes
    assert {row.origin for row in rows} == {("act",)}


@pytest.mark.parametrize("text", [
    model(18, "float[n,6,2] x, float[2] s, float[2] b", "float[n,6,2] y", "y = GroupNormalization<num_groups=2>(x, s, b)"),
    model(23, "float[n,2,3,d] q, float[n,2,3,d] k, float[n,2,3,d] v", "float[n,2,3,d] y", "y = Attention(q, k, v)"),
    model(25, "float[n,2,3,4] q, float[n,2,3,4] k, float[n,2,3,4] v", "float[n,2,3,4] y",
          "y = Attention<left_window_size=1, right_window_size=0>(q, k, v)"),
    model(23, "float[n,2,3,8] x, float[9,4] c, float[9,4] s, int64[n,3] p", "float[n,2,3,8] y",
          "y = RotaryEmbedding(x, c, s, p)"),
    model(17, "float[n,3] x, float[3] s", "float[n,3] y, float[n,1] m", "y, m = LayerNormalization(x, s)"),
], ids=["scales of groups", "unknown head size", "windows", "positions", "mean"])  # fmt: skip
def test_forms_that_cannot_be_written_out_stay(text: str) -> None:
    provider = PlainExecutionProvider()
    with pytest.warns(intarsia.ProviderWarning, match="takes none of the model's 1 nodes"):
        opened(provider, text, "CPUExecutionProvider")
    assert provider.compiled == []


def test_a_name_that_is_no_fused_operator_is_an_error() -> None:
    class Mistaken(PlainExecutionProvider):
        fused_operators = frozenset({"GELU"})

    with pytest.raises(intarsia.InvalidArgument, match=rf"{NAME}.fused_operators: 'GELU' is not an operator .*'Gelu'"):
        opened(Mistaken(), MODELS["Gelu"])


def test_a_crash_when_it_is_asked_about_pieces() -> None:
    class Crashing(PlainExecutionProvider):
        def supports(self, node: Node, graph: Graph) -> intarsia.Support:
            if node.op_type == "Erf":
                raise KeyError("a mistake")
            return super().supports(node, graph)

    with pytest.warns(intarsia.ProviderWarning, match=f"{NAME} crashed when it was asked what it takes: KeyError"):
        made = opened(Crashing(), MODELS["Gelu"], "CPUExecutionProvider")
    assert {(row.op, row.provider) for row in made.explain().nodes} == {("Gelu", "CPUExecutionProvider")}
