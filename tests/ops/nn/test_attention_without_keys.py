"""Rows of attention that have nothing to attend give zeros: no keys at all, or all of them masked (onnx/onnx#8068).

Softmax alone stays NaN where all scores are -infinity, as ONNX's Softmax has it.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

import intarsia as ort
from intarsia.graph.dtypes import DType

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
Feeds = dict[str, np.ndarray]


def run(
    provider: str, nodes: list[Any], feeds: Feeds, opset: int = 24, open_sizes: bool = True, disable: bool = False
) -> np.ndarray:
    """`y` of nodes that read `feeds`, whose sizes are open or those of the arrays."""
    inputs = [
        helper.make_tensor_value_info(
            name, int(DType.of(x.dtype)), [f"{name}_{i}" for i in range(x.ndim)] if open_sizes else x.shape
        )
        for name, x in feeds.items()
    ]
    kind = int(DType.of(next(iter(feeds.values())).dtype))
    graph = helper.make_graph(nodes, "attention", inputs, [helper.make_tensor_value_info("y", kind, None)])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    options = ort.SessionOptions()
    if disable:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    (y,) = ort.InferenceSession(model, options, providers=[provider]).run(None, feeds)
    assert isinstance(y, np.ndarray)
    return y


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def assert_zeros(y: np.ndarray, shape: tuple[int, ...]) -> None:
    assert y.shape == shape
    np.testing.assert_array_equal(y.astype(np.float32), np.zeros(shape, np.float32))


@pytest.mark.parametrize("open_sizes", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("mask", [None, "bool", "float"])
@pytest.mark.parametrize(("queries", "size", "v_size"), [(1, 8, 8), (3, 64, 64), (40, 16, 24), (130, 80, 80)])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_attention_of_onnx(
    provider: str, queries: int, size: int, v_size: int, mask: str | None, dtype: Any, open_sizes: bool
) -> None:
    feeds = {
        "q": normal(2, 4, queries, size, dtype=dtype),
        "k": normal(2, 2, 0, size, dtype=dtype),
        "v": normal(2, 2, 0, v_size, dtype=dtype),
    }
    if mask is not None:
        feeds["mask"] = np.zeros((queries, 0), dtype if mask == "float" else np.bool_)
    y = run(provider, [helper.make_node("Attention", list(feeds), ["y"])], feeds, open_sizes=open_sizes)
    assert_zeros(y, (2, 4, queries, v_size))


@pytest.mark.parametrize("attributes", [{"is_causal": 1}, {"softcap": 2.0}, {"q_num_heads": 2, "kv_num_heads": 2}])
@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_variants_of_attention(provider: str, past: bool, attributes: dict[str, Any]) -> None:
    packed = "q_num_heads" in attributes
    feeds = {"q": normal(1, 5, 16) if packed else normal(1, 2, 5, 8)}
    feeds |= {n: normal(1, 0, 16) if packed else normal(1, 2, 0, 8) for n in "kv"}
    names, outputs = ["q", "k", "v", ""], ["y"]
    if past:
        feeds |= {f"past_{n}": normal(1, 2, 0, 8) for n in "kv"}
        names, outputs = [*names, "past_k", "past_v"], ["y", "present_k", "present_v"]
    y = run(provider, [helper.make_node("Attention", names, outputs, **attributes)], feeds)
    assert_zeros(y, (1, 5, 16) if packed else (1, 2, 5, 8))


@pytest.mark.parametrize("disable", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("queries", [1, 3, 70])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_written_out(provider: str, queries: int, bias: bool, disable: bool) -> None:
    feeds = {"q": normal(1, 2, queries, 8), "k": normal(1, 2, 0, 8), "v": normal(1, 2, 0, 8)}
    nodes = [
        helper.make_node("Transpose", ["k"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "turned"], ["scores"]),
    ]
    if bias:
        feeds["bias"] = normal(queries, 0)
        nodes.append(helper.make_node("Add", ["scores", "bias"], ["biased"]))
    nodes += [
        helper.make_node("Softmax", ["biased" if bias else "scores"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    assert_zeros(run(provider, nodes, feeds, 17, disable=disable), (1, 2, queries, 8))


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("queries", [1, 3, 70])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_multi_head_attention(provider: str, queries: int, with_bias: bool) -> None:
    feeds = {"q": normal(2, queries, 16), "k": normal(2, 0, 16), "v": normal(2, 0, 16)}
    if with_bias:
        feeds["b"] = normal(48)
    node = helper.make_node("MultiHeadAttention", list(feeds), ["y"], num_heads=2, domain="com.microsoft")
    assert_zeros(run(provider, [node], feeds), (2, queries, 16))


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_softmax_of_an_empty_axis(provider: str, op: str, axis: int) -> None:
    y = run(provider, [helper.make_node(op, ["x"], ["y"], axis=axis)], {"x": normal(3, 0, 2) if axis == 1 else normal(3, 2, 0)})
    assert y.shape == ((3, 0, 2) if axis == 1 else (3, 2, 0))


def masked_attention(q: np.ndarray, key: np.ndarray, v: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """In float64; zeros for rows where nothing is allowed."""
    scores = np.where(allowed, q.astype(float) @ key.astype(float).swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    powers = np.where(allowed, np.exp(scores - np.max(scores, -1, keepdims=True, initial=-1e300)), 0)
    total = powers.sum(-1, keepdims=True)
    result: np.ndarray = powers / np.where(total == 0, 1, total) @ v.astype(float)
    return result


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize(("queries", "keys"), [(1, 5), (4, 20), (40, 33), (70, 130)])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_rows_that_are_masked_throughout(provider: str, queries: int, keys: int, kind: str) -> None:
    rng = np.random.default_rng(keys)
    allowed = rng.random((queries, keys)) < 0.5
    allowed[:: 2 if queries > 1 else 1] = False
    q, key, v = normal(1, 2, queries, 16), rng.standard_normal((1, 2, keys, 16)).astype("f4"), normal(1, 2, keys, 16)
    mask = allowed if kind == "bool" else np.where(allowed, 0, -np.inf).astype(np.float32)
    y = run(provider, [helper.make_node("Attention", ["q", "k", "v", "m"], ["y"])], {"q": q, "k": key, "v": v, "m": mask})
    np.testing.assert_allclose(y, masked_attention(q, key, v, allowed), atol=2e-6)
    assert_zeros(y[:, :, :: 2 if queries > 1 else 1], y[:, :, :: 2 if queries > 1 else 1].shape)


@pytest.mark.parametrize("lengths", [(0, 5), (2, 9), (0, 0)])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_entries_of_a_batch_without_keys(provider: str, causal: int, lengths: tuple[int, int]) -> None:
    """nonpad_kv_seqlen of nothing, or of fewer keys than queries: the first queries lie before the first key."""
    queries, keys = 4, 9
    q, key, v = normal(2, 2, queries, 16), normal(2, 2, keys, 16), normal(2, 2, keys, 16)
    nodes = [helper.make_node("Attention", ["q", "k", "v", "", "", "", "n"], ["y"], is_causal=causal)]
    y = run(provider, nodes, {"q": q, "k": key, "v": v, "n": np.array(lengths, np.int64)})
    allowed = np.zeros((2, 1, queries, keys), bool)
    for entry, n in enumerate(lengths):
        for row in range(queries):
            allowed[entry, :, row, : max(0, n - queries + row + 1) if causal else n] = True
    np.testing.assert_allclose(y, masked_attention(q, key, v, allowed), atol=2e-6)


@pytest.mark.parametrize("keys", [0, 6])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_masks_of_multi_head_attention(provider: str, keys: int) -> None:
    """key_padding_mask and attention_bias of a batch entry that hide all keys; onnxruntime hides by a large number, so that
    only its zeros of no keys are asked for."""
    feeds = {"q": normal(2, 3, 16), "k": normal(2, keys, 16), "v": normal(2, keys, 16), "bias": np.zeros((2, 2, 3, keys), "f4")}
    feeds["bias"][0] = -np.inf
    names = ["q", "k", "v", "", "", "bias"]
    y = run(provider, [helper.make_node("MultiHeadAttention", names, ["y"], num_heads=2, domain="com.microsoft")], feeds)
    assert_zeros(y[0], (3, 16))
    assert not np.isnan(y).any()


@pytest.mark.parametrize("queries", [2, 40])
@pytest.mark.parametrize("disable", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_scores_of_minus_infinity_without_a_mask(provider: str, disable: bool, queries: int) -> None:
    """Nothing hides keys here: the softmax is that of its definition, NaN."""
    feeds = {"q": normal(1, 2, queries, 8), "k": normal(1, 2, 4, 8), "v": normal(1, 2, 4, 8)}
    feeds["q"][0, 0, 1] = 0
    feeds["q"][0, 0, 1, 0], feeds["k"][..., 0] = -np.inf, 1.0
    nodes = [
        helper.make_node("Transpose", ["k"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    y = run(provider, nodes, feeds, 17, disable=disable)
    assert np.isnan(y[0, 0, 1]).all()
    assert not np.isnan(np.delete(y[0, 0], 1, 0)).any()
    assert not np.isnan(y[0, 1]).any()


@pytest.mark.parametrize("queries", [1, 2])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_heads(provider: str, queries: int) -> None:
    """As many heads of keys as of queries, which only the run says are none."""
    graph = "g (float[b,h,q,8] x, float[b,h,k,8] z) => (float[b,h,q,8] y) { y = Attention(x, z, z) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> {graph}')
    session = ort.InferenceSession(model.SerializeToString(), providers=[provider])
    for heads in (2, 0):
        (y,) = session.run(None, {"x": normal(1, heads, queries, 8), "z": normal(1, heads, 3, 8)})
        assert y.shape == (1, heads, queries, 8)
