import math

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from pass_models import build, counts, random_feeds

from intarsia.errors import NotImplemented
from intarsia.graph.load import load
from intarsia.graph.save import to_model_proto
from intarsia.passes import optimize, standardize
from intarsia.passes.opset_versions import same_meaning

RNG = np.random.default_rng(5)
SOFTMAX_OVER_CHANNELS = (
    "Softmax",
    "x",
    "z",
    {"axis": 1},
)  # before opset 13 over all axes from the first on: holds the model at 12


def _array(*shape):
    return RNG.normal(size=shape).astype(np.float32)


FUSED = {
    "Gelu": ([("Gelu", "x", "y")], {}),
    "Gelu tanh": ([("Gelu", "x", "y", {"approximate": "tanh"})], {}),
    "Swish": ([("Swish", "x", "y", {"alpha": 1.5})], {}),
    "Swish 1": ([("Swish", "x", "y")], {}),
    "HardSwish": ([("HardSwish", "x", "y")], {}),
    "Mish": ([("Mish", "x", "y")], {}),
    "LayerNormalization": ([("LayerNormalization", "x s b", "y", {"axis": -2})], {"s": _array(4, 6), "b": _array(4, 6)}),
    "RMSNormalization": ([("RMSNormalization", "x g", "y")], {"g": _array(6)}),
    "GroupNormalization": ([("GroupNormalization", "x c d", "y", {"num_groups": 2})], {"c": _array(4), "d": _array(4)}),
    "Softmax": ([("Softmax", "x", "y")], {}),
    "Attention": (
        [("Attention", "x k v", "y", {"q_num_heads": 2, "kv_num_heads": 2})],
        {"k": _array(2, 5, 6), "v": _array(2, 5, 6)},
    ),
    "Attention grouped": (
        [("Attention", "x k v", "y", {"q_num_heads": 3, "kv_num_heads": 1, "scale": 0.3, "is_causal": 1})],
        {"k": _array(2, 4, 2), "v": _array(2, 4, 2)},
    ),
    "Attention masked": (
        [("Attention", "x k v m", "y", {"q_num_heads": 2, "kv_num_heads": 2})],
        {"k": _array(2, 5, 6), "v": _array(2, 5, 6), "m": np.arange(20).reshape(4, 5) % 7 < 4},
    ),
}


@pytest.mark.parametrize("case", FUSED)
@pytest.mark.parametrize("opset", [12, 13, 18])
def test_fused_operators_are_written_out_for_older_opsets(case, opset):
    nodes, constants = FUSED[case]
    newest = build(nodes, {"x": [2, 4, 6]}, ["y"], constants, opset=24)
    graph = optimize(load(newest)).graph
    graph.opset_imports[""] = opset
    proto = to_model_proto(_at(graph, opset))
    onnx.checker.check_model(proto)
    assert proto.opset_import[0].version == opset
    feeds = random_feeds(newest)
    (found,), (expected,) = (ReferenceEvaluator(m).run(None, feeds) for m in (proto, newest))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def _at(graph, opset):
    """The graph in exactly this opset."""
    from intarsia.passes.graph.single_opset import _expanded, _fits

    misfits = [n for n in graph.nodes if not _fits(n, opset, opset)]
    return _expanded(graph, misfits, opset)


def test_rotary_embedding_is_written_out():
    model = build([("RotaryEmbedding", "x c s", "y")], {"x": [2, 3, 5, 4], "c": [2, 5, 2], "s": [2, 5, 2]}, ["y"], opset=23)
    proto = to_model_proto(_at(optimize(load(model)).graph, 13))
    onnx.checker.check_model(proto)
    feeds = random_feeds(model)
    (found,), (expected,) = (ReferenceEvaluator(m).run(None, feeds) for m in (proto, model))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def _gelu_model(opset, extra=()):
    nodes = [("Div", "x r", "a"), ("Erf", "a", "b"), ("Add", "b one", "c"), ("Mul", "x h", "d"), ("Mul", "d c", "y"), *extra]
    return build(nodes, {"x": [2, 3, 4]}, ["y", *(e[2] for e in extra)], {"r": math.sqrt(2), "one": 1.0, "h": 0.5}, opset=opset)


def test_the_import_is_raised_to_the_lowest_opset_that_has_all_nodes():
    graph = optimize(load(_gelu_model(14))).graph
    out = standardize(graph)
    assert out.opset_imports[""] == 20 and counts(out) == {"Gelu": 1}
    assert graph.opset_imports[""] == 14


def test_a_node_that_would_change_its_meaning_holds_the_import():
    model = _gelu_model(12, [SOFTMAX_OVER_CHANNELS])
    graph = optimize(load(model)).graph
    assert counts(graph)["Gelu"] == 1
    out = standardize(graph)
    assert out.opset_imports[""] == 12 and "Gelu" not in counts(out)
    feeds = random_feeds(model)
    pairs = zip(
        ReferenceEvaluator(to_model_proto(out)).run(None, feeds), ReferenceEvaluator(model).run(None, feeds), strict=True
    )
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_a_model_may_be_newer_than_the_installed_onnx(monkeypatch):
    graph = load(build([("Relu", "x", "h"), ("Neg", "h", "y")], {"x": [2, 3]}, ["y"], opset=20))
    monkeypatch.setattr(onnx.defs, "onnx_opset_version", lambda: 17)
    assert standardize(graph).opset_imports[""] == 20


def test_what_fits_no_opset_is_refused():
    graph = optimize(load(_gelu_model(12, [SOFTMAX_OVER_CHANNELS]))).graph
    graph.nodes[0].op_type, graph.nodes[0].version = "TensorScatter", 24
    with pytest.raises(
        NotImplemented, match=r"\(TensorScatter version 24\) cannot be written in the model's opset 12.*save with a lower"
    ):
        standardize(graph)


@pytest.mark.parametrize(
    ("op_type", "a", "b", "same"),
    [
        ("Relu", 6, 14, True),
        ("Reshape", 5, 14, True),
        ("Reshape", 14, 23, True),
        ("Softmax", 11, 13, False),
        ("Softmax", 1, 11, True),
        ("ReduceMean", 13, 18, False),
        ("Squeeze", 11, 13, False),
        ("GroupNormalization", 18, 21, False),
        ("Resize", 10, 11, False),
        ("GridSample", 16, 20, False),
    ],
)
def test_versions_that_mean_the_same(op_type, a, b, same):
    assert same_meaning("", op_type, a, b) is same
    assert same_meaning("", op_type, b, a) is same


def test_masks_are_repeated_over_queries_for_onnxruntime():
    ort = pytest.importorskip("onnxruntime", reason="checks that onnxruntime reads the saved model")
    model = build(
        [("Attention", "x x x m", "y", {"q_num_heads": 2, "kv_num_heads": 2})],
        {"x": ["b", "s", 8], "m": ["b", 1, 1, "s"]},
        ["y"],
        opset=23,
    )
    proto = to_model_proto(standardize(optimize(load(model)).graph))
    feeds = random_feeds(model, {"b": 2, "s": 3})
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    (found,) = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
