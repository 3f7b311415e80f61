"""Attention by scales, soft caps and masks at which scores overflow, vanish, or are no numbers, against NumPy.

NumPy computes in float64 and stores each stage in float32, as the definition has it. Queries and keys are small integers, so
that their products are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import intarsia as ort

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
BATCH, HEADS, KEYS, SIZE = 2, 2, 20, 4
INF, NAN = np.inf, np.nan
SCALES = (1e38, -1e38, 3e38, INF, -INF, NAN, 1e-38, 1e-44, 2.0**61)
SOFTCAPS = (1e-44, 1e-38, 1e10, 1e38, 3e38, INF)


def _stored(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).astype(np.float64)


@np.errstate(all="ignore")
def expected(q: Any, key: Any, value: Any, scale: float, softcap: float, bias: np.ndarray | None) -> np.ndarray:
    q, key, value = (x.astype(np.float64) for x in (q, key, value))
    scores = _stored(q @ key.swapaxes(2, 3) * np.float64(np.float32(scale)))
    if softcap > 0:
        cap = np.float64(np.float32(softcap))
        scores = _stored(np.tanh(_stored(scores / cap)) * cap)
    if bias is not None:
        scores = _stored(scores + bias)
    highest = scores.max(axis=-1, keepdims=True)
    if bias is not None:
        highest = np.where(highest == -INF, 0, highest)
    powers = _stored(np.exp(scores - highest))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where((total == 0) & (bias is not None), 1, total) @ value


def _run(node: onnx.NodeProto, feeds: dict[str, np.ndarray], provider: str) -> np.ndarray:
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    imports = [helper.make_opsetid("", 24), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), providers=[provider]).run(None, feeds)[0]


def _operands(queries: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(queries)
    q, key = (rng.integers(-2, 3, (BATCH, HEADS, n, SIZE)).astype(np.float32) for n in (queries, KEYS))
    return q, key, rng.normal(size=(BATCH, HEADS, KEYS, SIZE)).astype(np.float32)


def _merged(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(x.shape[0], x.shape[2], -1)


def _check(node: onnx.NodeProto, feeds: dict[str, np.ndarray], wanted: np.ndarray, provider: str) -> None:
    np.testing.assert_allclose(_run(node, feeds, provider), wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("queries", [1, 3, 17])
@pytest.mark.parametrize(
    ("scale", "softcap"), [*((s, 0.0) for s in SCALES), *((0.5, c) for c in SOFTCAPS), (1e38, 1e-10), (3e38, 1e10), (INF, 2.0)]
)
def test_attention(scale: float, softcap: float, queries: int, provider: str) -> None:
    q, key, value = _operands(queries)
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], scale=scale, softcap=softcap)
    _check(node, {"q": q, "k": key, "v": value}, expected(q, key, value, scale, softcap, None), provider)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("queries", [1, 3, 17])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("operator", ["MultiHeadAttention", "Attention", "GroupQueryAttention"])
def test_attention_of_microsoft(operator: str, scale: float, queries: int, provider: str) -> None:
    q, key, value = _operands(queries)
    if operator == "MultiHeadAttention":
        feeds = {"q": _merged(q), "k": _merged(key), "v": _merged(value)}
        node = helper.make_node(operator, list(feeds), ["y"], num_heads=HEADS, scale=scale, domain="com.microsoft")
        _check(node, feeds, _merged(expected(q, key, value, scale, 0.0, None)), provider)
        return
    key, value = key[:, :, :queries], value[:, :, :queries]
    if operator == "Attention":
        width = HEADS * SIZE
        feeds = {
            "x": np.concatenate([_merged(x) for x in (q, key, value)], axis=2), "w": np.eye(3 * width, dtype=np.float32),
            "b": np.zeros(3 * width, np.float32),
        }  # fmt: skip
        node = helper.make_node(operator, list(feeds), ["y"], num_heads=HEADS, scale=scale, domain="com.microsoft")
        _check(node, feeds, _merged(expected(q, key, value, scale, 0.0, None)), provider)
        return
    feeds = {
        "q": _merged(q), "k": _merged(key), "v": _merged(value), "lengths": np.full(BATCH, queries - 1, np.int32),
        "total": np.array(queries, np.int32),
    }  # fmt: skip
    node = helper.make_node(
        operator, ["q", "k", "v", "", "", "lengths", "total"], ["y"], num_heads=HEADS, kv_num_heads=HEADS, scale=scale,
        domain="com.microsoft",
    )  # fmt: skip
    seen = ((q[:, :, i : i + 1], key[:, :, : i + 1], value[:, :, : i + 1]) for i in range(queries))
    rows = [expected(*operands, scale, 0.0, np.zeros(1)) for operands in seen]
    _check(node, feeds, _merged(np.concatenate(rows, axis=2)), provider)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("queries", [1, 3, 17])
@pytest.mark.parametrize("operator", ["MultiHeadAttention", "Attention"])
@pytest.mark.parametrize("one", [INF, -INF, NAN, 3e38, -3.4e38])
@pytest.mark.parametrize("everywhere", [False, True])
def test_masks(everywhere: bool, one: float, operator: str, queries: int, provider: str) -> None:
    q, key, value = _operands(queries)
    mask = np.zeros((BATCH, HEADS, queries, KEYS), np.float32)
    mask[:, :, ::2, ... if everywhere else slice(3, 5)] = one
    mask[0, :, :, 7] = -INF
    wanted = expected(q, key, value, 0.5, 0.0, mask)
    if operator == "Attention":
        node = helper.make_node(operator, ["q", "k", "v", "mask"], ["y"], scale=0.5)
        _check(node, {"q": q, "k": key, "v": value, "mask": mask}, wanted, provider)
        return
    names = ["q", "k", "v", "", "", "mask"]
    node = helper.make_node(operator, names, ["y"], num_heads=HEADS, scale=0.5, domain="com.microsoft")
    _check(node, {"q": _merged(q), "k": _merged(key), "v": _merged(value), "mask": mask}, _merged(wanted), provider)
