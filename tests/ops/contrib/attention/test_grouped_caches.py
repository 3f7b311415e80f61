"""GroupQueryAttention whose chunks are padded and whose cache slides: against NumPy over the whole history, and onnxruntime."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import intarsia
from intarsia.errors import NodeFailed

HEADS, GROUPS, SIZE = 4, 2, 16
PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
INPUTS = (
    "query key value past_key past_value seqlens_k total_sequence_length cos_cache sin_cache position_ids attention_bias "
    "head_sink k_scale v_scale q_norm_weight k_norm_weight query_seqlens"
).split()


def model(given: dict[str, np.ndarray], attributes: dict[str, Any]) -> bytes:
    names = [n if n in given else "" for n in INPUTS]
    while not names[-1]:
        names.pop()
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in given.items()]
    heads = {"num_heads": HEADS, "kv_num_heads": GROUPS}
    node = helper.make_node("GroupQueryAttention", names, ["y", "k", "v"], domain="com.microsoft", **heads, **attributes)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "ykv"])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def run(provider: str, given: dict[str, np.ndarray], **attributes: Any) -> list[np.ndarray]:
    return intarsia.InferenceSession(model(given, attributes), providers=[provider]).run(None, given)


def attended(q: np.ndarray, keys: np.ndarray, values: np.ndarray, first: int, window: int) -> np.ndarray:
    """One sequence in float64: queries [steps, heads, size] from token `first` on over all tokens [tokens, groups, size]."""
    out = np.zeros(q.shape)
    for s, row in enumerate(q.astype(np.float64)):
        low, high = max(0, first + s + 1 - window) if window > 0 else 0, first + s + 1
        for head in range(HEADS):
            group = head // (HEADS // GROUPS)
            scores = keys[low:high, group].astype(np.float64) @ row[head] / math.sqrt(SIZE)
            powers = np.exp(scores - scores.max())
            out[s, head] = powers / powers.sum() @ values[low:high, group]
    return out.reshape(len(q), HEADS * SIZE)


class History:
    """Tokens of some sequences, and a cache that calls fill by and by."""

    def __init__(self, tokens: int, batch: int, capacity: int) -> None:
        rng = np.random.default_rng(tokens * 10 + capacity)
        self.q = rng.standard_normal((batch, tokens, HEADS, SIZE)).astype(np.float32)
        self.k, self.v = (rng.standard_normal((batch, tokens, GROUPS, SIZE)).astype(np.float32) for _ in range(2))
        self.caches = [np.full((batch, GROUPS, capacity, SIZE), 7, np.float32) for _ in range(2)]
        self.done = np.zeros(batch, np.int64)

    def chunk(self, counts: list[int], steps: int, total: int, counted: bool) -> dict[str, np.ndarray]:
        """The next `counts` tokens of every sequence, padded to so many steps."""

        def part(x: np.ndarray) -> np.ndarray:
            out = np.full((len(counts), steps, x.shape[2] * SIZE), 3, np.float32)
            for b, n in enumerate(counts):
                out[b, :n] = x[b, self.done[b] : self.done[b] + n].reshape(n, out.shape[2])
            return out

        given = {"query": part(self.q), "key": part(self.k), "value": part(self.v)}
        given |= {"past_key": self.caches[0], "past_value": self.caches[1]}
        given["seqlens_k"] = (self.done + counts - 1).astype(np.int32)
        given["total_sequence_length"] = np.array(total, np.int32)
        return given | ({"query_seqlens": np.array(counts, np.int32)} if counted else {})

    def check(self, counts: list[int], found: list[np.ndarray], window: int, slides: bool) -> None:
        y, *self.caches = found
        for b, n in enumerate(counts):
            first, end = int(self.done[b]), int(self.done[b]) + n
            wanted = attended(self.q[b, first:end], self.k[b], self.v[b], first, window)
            np.testing.assert_allclose(y[b, :n], wanted, rtol=1e-4, atol=1e-5)
            capacity = self.caches[0].shape[2]
            left = end
            if slides and end > capacity:
                spare = capacity - window + 1
                left = end - spare * -(-(end - capacity) // spare)
            for cache, tokens in zip(self.caches, (self.k, self.v), strict=True):
                np.testing.assert_array_equal(cache[b, :, :left].transpose(1, 0, 2), tokens[b, end - left : end])
        self.done += counts


def peer_runs(given: dict[str, np.ndarray], attributes: dict[str, Any]) -> list[np.ndarray]:
    peer = pytest.importorskip("onnxruntime", reason="a reference of com.microsoft's operators")
    if tuple(map(int, peer.__version__.split(".")[:2])) < (1, 32):
        pytest.skip("query_seqlens and sliding caches came with onnxruntime 1.32")
    return peer.InferenceSession(model(given, attributes), providers=["CPUExecutionProvider"]).run(None, given)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_padded_chunks(provider: str) -> None:
    history = History(tokens=20, batch=3, capacity=24)
    for counts in ([4, 1, 3], [2, 4, 0], [1, 1, 1], [0, 3, 4]):
        given = history.chunk(counts, 4, total=24, counted=True)
        history.check(counts, run(provider, given), 0, slides=False)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_padded_chunks_turned_and_in_a_window_as_onnxruntime(provider: str) -> None:
    history, attributes = History(tokens=20, batch=2, capacity=16), {"do_rotary": 1, "local_window_size": 3}
    angles = np.random.default_rng(1).uniform(0, 6, (32, SIZE // 2)).astype(np.float32)
    for counts in ([4, 2], [3, 4]):
        given = history.chunk(counts, 4, 16, counted=True) | {"cos_cache": np.cos(angles), "sin_cache": np.sin(angles)}
        wanted = peer_runs(given, attributes)
        y, *caches = run(provider, given, **attributes)
        for b, n in enumerate(counts):
            end = int(history.done[b]) + n
            np.testing.assert_allclose(y[b, :n], wanted[0][b, :n], rtol=1e-4, atol=1e-5)
            for mine, theirs in zip(caches, wanted[1:], strict=True):
                np.testing.assert_allclose(mine[b, :, :end], theirs[b, :, :end], rtol=1e-5, atol=1e-6)
        history.caches = caches
        history.done += counts


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("capacity", "window"), [(5, 5), (8, 5), (12, 3)])
def test_a_cache_that_slides(provider: str, capacity: int, window: int) -> None:
    history, attributes = History(40, 1, capacity), {"sliding_window_cache": 1, "local_window_size": window}
    for count in (3, 1, 1, 4, 1, 14, 1, 2, 7, 1, 1):
        end = int(history.done[0]) + count
        given = history.chunk([count], count, end, counted=False)
        found = run(provider, given, **attributes)
        history.check([count], found, window, slides=True)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_padded_chunks_in_a_cache_that_slides(provider: str) -> None:
    history, attributes = History(40, 3, 7), {"sliding_window_cache": 1, "local_window_size": 5}
    for counts in ([6, 2, 1], [3, 6, 0], [6, 6, 6], [1, 0, 5]):
        given = history.chunk(counts, 6, int(max(history.done + counts)), counted=True)
        history.check(counts, run(provider, given, **attributes), 5, slides=True)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_cache_that_slides_as_onnxruntime(provider: str) -> None:
    history, attributes = History(40, 1, 8), {"sliding_window_cache": 1, "local_window_size": 6}
    for count in (5, 1, 6, 1, 9):
        end = int(history.done[0]) + count
        bias = np.random.default_rng(end).standard_normal((1, HEADS, count, end)).astype(np.float32)
        given = history.chunk([count], count, end, counted=False) | {"attention_bias": bias}
        wanted, found = peer_runs(given, attributes), run(provider, given, **attributes)
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-5)
        left = end if end <= 8 else end - 3 * -(-(end - 8) // 3)
        for mine, theirs in zip(found[1:], wanted[1:], strict=True):
            np.testing.assert_array_equal(mine[:, :, :left], theirs[:, :, :left])
        history.caches = found[1:]
        history.done += count


@pytest.mark.parametrize("provider", PROVIDERS)
def test_norms_of_queries_and_keys_with_epsilons_of_their_own(provider: str) -> None:
    history = History(8, 1, 8)
    q, key = history.q.copy(), history.k.copy()
    weights = {f"{x}_norm_weight": np.random.default_rng(i).standard_normal(SIZE).astype("f4") for i, x in enumerate("qk")}
    given = history.chunk([5], 5, 5, counted=False) | weights
    found = run(provider, given, q_norm_epsilon=0.5, k_norm_epsilon=0.25, qk_norm_epsilon=1e-3)
    for x, epsilon, weight in ((q, 0.5, "q_norm_weight"), (key, 0.25, "k_norm_weight")):
        x[:] = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + epsilon) * weights[weight]
    history.q, history.k = q, key
    y, keys, values = found
    np.testing.assert_allclose(keys[0, :, :5].transpose(1, 0, 2), key[0, :5], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(y[0], attended(q[0, :5], key[0], history.v[0], 0, 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(values[0, :, :5].transpose(1, 0, 2), history.v[0, :5])


@pytest.mark.parametrize(
    ("attributes", "drop", "message"),
    [
        ({"sliding_window_cache": 1}, (), "local_window_size above 0, got -1"),
        ({"sliding_window_cache": 1, "local_window_size": 9}, (), "has room for 8 tokens; expected local_window_size, 9"),
        ({"causal": 0}, (), "query_seqlens needs past_key, past_value and causal 1"),
        ({}, ("past_key", "past_value"), "query_seqlens needs past_key, past_value and causal 1"),
    ],
)
def test_what_does_not_go_together(attributes: dict[str, Any], drop: tuple[str, ...], message: str) -> None:
    given = History(8, 1, 8).chunk([3], 4, 4, counted=True)
    for name in drop:
        del given[name]
    with pytest.raises((intarsia.InvalidGraph, intarsia.Fail, NodeFailed), match=message):
        run("CPUExecutionProvider", given, **attributes)
