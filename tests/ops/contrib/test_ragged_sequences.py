"""Operators of com.microsoft over packed sequences: onnxruntime's CPU kernels where it has them, and NumPy one by one."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from contributed_cases import run

from intarsia.errors import InvalidGraph

RNG = np.random.default_rng(77)
BOUNDS = np.array([0, 4, 5, 12], np.int32)
SPANS = [(0, 4), (4, 5), (5, 12)]


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def close(found: np.ndarray, wanted: np.ndarray, tolerance: float = 1e-4) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def peer(op: str, inputs: list[Any], outputs: int, attributes: dict[str, Any], constants: tuple[int, ...] = ()) -> None:
    """Compare with onnxruntime on both providers; skip where it does not know the operator."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is the reference of its own operators")
    if tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 32):
        pytest.skip("these operators came with onnxruntime 1.32")
    from onnx import helper
    from test_contributed_peers import Case, check

    kinds = [helper.np_dtype_to_tensor_dtype(x.dtype) for x in run(op, inputs, outputs, **attributes)]
    check(Case(op, inputs, attributes, outputs=kinds, constants=constants))


# --- GatedDeltaNet --------------------------------------------------------------------------------------------------

HEADS, GROUPS, DEPTH, SIZE = 2, 2, 8, 4


def delta_inputs(deep: bool) -> dict[str, np.ndarray]:
    given = {"query": normal(12, HEADS, DEPTH), "key": normal(12, HEADS, DEPTH), "value": normal(12, HEADS * GROUPS, SIZE)}
    given["decay"] = -np.abs(normal(12, HEADS * GROUPS, *([DEPTH] if deep else [])))
    given["beta"] = RNG.uniform(0.1, 0.9, (12, HEADS * GROUPS)).astype(np.float32)
    given["state"] = normal(3, HEADS * GROUPS, SIZE, DEPTH)
    return given


def slowly(x: dict[str, np.ndarray], rule: str) -> tuple[np.ndarray, np.ndarray]:
    out, states = np.zeros((12, HEADS * GROUPS, SIZE)), x["state"].astype(np.float64)
    for b, (first, end) in enumerate(SPANS):
        for head in range(HEADS * GROUPS):
            s = states[b, head].T
            for t in range(first, end):
                key, q = (x[n][t, head // GROUPS].astype(np.float64) for n in ("key", "query"))
                key, q = key / np.linalg.norm(key), q / np.linalg.norm(q)
                if rule.startswith("gated"):
                    s = s * np.exp(np.broadcast_to(x["decay"][t, head], DEPTH))[:, None]
                fresh = x["value"][t, head].astype(np.float64)
                if rule.endswith("delta"):
                    fresh = x["beta"][t, head] * (fresh - s.T @ key)
                s = s + np.outer(key, fresh)
                out[t, head] = s.T @ q / np.sqrt(DEPTH)
            states[b, head] = s.T
    return out, states


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_gated_delta_net(rule: str, deep: bool) -> None:
    x = delta_inputs(deep)
    inputs = [x["query"], x["key"], x["value"], BOUNDS]
    inputs += [x["decay"] if rule.startswith("gated") else None, x["beta"] if rule.endswith("delta") else None, x["state"]]
    out, state, _ = run("GatedDeltaNet", inputs, 3, update_rule=rule, qk_l2_norm=1)
    wanted = slowly(x, rule)
    close(out, wanted[0])
    close(state, wanted[1])


def test_gated_delta_net_as_onnxruntime() -> None:
    x = delta_inputs(False)
    inputs = [x["query"], x["key"], x["value"], BOUNDS, x["decay"], x["beta"], x["state"]]
    peer("GatedDeltaNet", inputs, 2, {"qk_l2_norm": 1})
    gates = [normal(HEADS * GROUPS), normal(HEADS * GROUPS)]
    for kind in ("softplus", "sigmoid"):
        peer("GatedDeltaNet", [*inputs, *gates], 2, {"qk_l2_norm": 1, "gate_activation": kind, "beta_activation": "sigmoid"})


def test_all_in_one_tensor_and_an_even_batch() -> None:
    x = delta_inputs(False)
    whole = np.concatenate([x[n].reshape(12, -1) for n in ("query", "key", "value")], 1)
    rest = [x["decay"], x["beta"], x["state"]]
    apart = run("GatedDeltaNet", [x["query"], x["key"], x["value"], None, *rest], 3, qk_l2_norm=1)
    for found, wanted in zip(run("GatedDeltaNet", [whole, None, None, None, *rest], 3, qk_l2_norm=1), apart, strict=True):
        np.testing.assert_array_equal(found, wanted)
    four = [x[n].reshape(3, 4, *x[n].shape[1:]) for n in ("query", "key", "value", "decay", "beta")]
    out, state, _ = run("GatedDeltaNet", [*four[:3], None, *four[3:], x["state"]], 3, qk_l2_norm=1)
    assert out.shape == (3, 4, HEADS * GROUPS, SIZE)
    np.testing.assert_array_equal(out.reshape(apart[0].shape), apart[0])
    np.testing.assert_array_equal(state, apart[1])


def test_captured_transitions_replay_the_state() -> None:
    x, counts = delta_inputs(False), np.array([2, 4, 3], np.int32)
    x = {n: (v / np.linalg.norm(v, axis=-1, keepdims=True) if n in ("query", "key") else v) for n, v in x.items()}
    inputs = [x["query"], x["key"], x["value"], BOUNDS, x["decay"], x["beta"], x["state"], None, None, counts]
    update = run("GatedDeltaNet", inputs, 3, state_update_capacity=4)[2]
    heads = HEADS * GROUPS
    ends = np.cumsum([4 * heads, 4 * HEADS * DEPTH, 4 * heads * SIZE])
    decays, keys, deltas = np.split(update, ends[:-1], axis=1)
    for b, (first, end) in enumerate(SPANS):
        steps = min(int(counts[b]), end - first)
        part = {n: x[n][first : first + steps] for n in ("query", "key", "value", "decay", "beta")}
        operands = [part["query"], part["key"], part["value"], None, part["decay"], part["beta"], x["state"][b : b + 1]]
        wanted = run("GatedDeltaNet", operands, 2)[1][0]
        state = x["state"][b]
        for i in range(steps):
            key = np.repeat(keys[b].reshape(4, HEADS, DEPTH)[i], GROUPS, 0)
            delta = deltas[b].reshape(4, heads, SIZE)[i]
            state = state * decays[b].reshape(4, heads, 1, 1)[i] + delta[:, :, None] * key[:, None]
        close(state, wanted)
    off = run("GatedDeltaNet", [*inputs, np.zeros(1, np.int32)], 3, state_update_capacity=4)[2]
    assert not off.any()


def test_gated_delta_net_in_16_bits() -> None:
    x = delta_inputs(False)
    narrow = {n: v.astype(ml_dtypes.bfloat16) if n != "state" else v for n, v in x.items()}
    wide = {n: v.astype(np.float32) for n, v in narrow.items()}
    found = [
        run("GatedDeltaNet", [g["query"], g["key"], g["value"], BOUNDS, g["decay"], g["beta"], g["state"]], 2, qk_l2_norm=1)
        for g in (narrow, wide)
    ]
    assert found[0][0].dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found[0][0].astype("f4"), found[1][0].astype(ml_dtypes.bfloat16).astype("f4"))
    np.testing.assert_array_equal(found[0][1], found[1][1])


# --- convolutions, hashes -------------------------------------------------------------------------------------------


def test_convolution_of_packed_sequences() -> None:
    x, weight, bias, past = normal(12, 5), normal(5, 1, 3), normal(5), normal(3, 5, 4)
    counts = np.array([2, 2, 0], np.int32)
    given = [x, weight, BOUNDS, bias, past, counts]
    out, state, update = run(
        "VarlenCausalConvWithState", given, 3, activation="silu", dilation=2, state_update_capacity=2
    )  # fmt: skip
    for b, (first, end) in enumerate(SPANS):
        alone = run(
            "CausalConvWithState", [x[None, first:end].transpose(0, 2, 1), weight, bias, past[b : b + 1]], 2, activation="silu",
            dilation=2,
        )  # fmt: skip
        close(out[first:end], alone[0][0].T)
        np.testing.assert_array_equal(state[b], alone[1][0])
    np.testing.assert_array_equal(update[0], x[:2])
    np.testing.assert_array_equal(update[1], [x[4], np.zeros(5)])
    assert not update[2].any()
    peer("VarlenCausalConvWithState", given, 3, {"activation": "silu", "dilation": 2, "state_update_capacity": 2})


HASHES = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 2}
TABLES = [np.array([7919, 104729, 1299709], np.int64) | 1, np.array([101, 103, 107, 109], np.int64)]


def test_hashes() -> None:
    ids, past, offsets = RNG.integers(0, 50, (2, 6)), RNG.integers(0, 50, (2, 2)), np.arange(4) * 1000
    found, present = run("NGramHashMapping", [ids, *TABLES, past, offsets], 2, **HASHES)
    whole = np.concatenate([past, ids], 1)
    for b, t, head in np.ndindex(2, 6, 4):
        n = 2 + head // 2
        mixed = 0
        for i in range(n):
            mixed ^= int(whole[b, t + 2 - i]) * int(TABLES[0][i])
        assert found[b, t, head] == mixed % int(TABLES[1][head]) + 1000 * head
    np.testing.assert_array_equal(present, whole[:, -2:])


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_hashes_as_onnxruntime(kind: type) -> None:
    ids = RNG.integers(0, 6, (2, 9)).astype(kind)
    tables = [t.astype(kind) for t in TABLES]
    end, segments = np.array(3, kind), np.array([[0, 0, 0, 1, 1, 1, 1, 2, 2], [5] * 9], np.int32)
    past = RNG.integers(0, 6, (2, 2)).astype(kind)
    large = (RNG.integers(1 << 28, 1 << 30, (2, 9))).astype(kind)
    for inputs in ([ids, *tables], [ids, *tables, past], [large, *tables, past]):
        peer("NGramHashMapping", inputs, 2, HASHES)
    peer("NGramHashMapping", [ids, *tables, past, None, end, segments], 2, HASHES | {"reset_on_eos": 1})
    packed = [ids.reshape(-1)[:12], *tables, BOUNDS, RNG.integers(0, 6, (3, 2)).astype(kind), None, end]
    peer("VarlenNGramHashMapping", packed, 2, HASHES | {"reset_on_eos": 1})
    both = [*packed, segments.reshape(-1)[:12], np.zeros((3, 2), np.int32), np.array([3, 3, 1], np.int32)]
    peer("VarlenNGramHashMapping", both, 4, HASHES | {"reset_on_eos": 1, "state_update_capacity": 2})


# --- activations, routers -------------------------------------------------------------------------------------------


def test_swiglu() -> None:
    gate, up = normal(2, 3, 8) * 4, normal(2, 3, 8) * 4
    wide = gate.astype(np.float64)
    close(run("SwiGLU", [gate, up])[0], wide / (1 + np.exp(-wide)) * up)
    low, line = np.minimum(wide, 1.5), up.clip(-1.5, 1.5)
    wanted = low / (1 + np.exp(-1.7 * low)) * (line + 1)
    given = {"activation_alpha": 1.7, "activation_beta": 1.0, "limit": 1.5}
    close(run("SwiGLU", [np.concatenate([gate, up], 2)], **given)[0], wanted)
    halves = [x.astype(np.float16) for x in (gate, up)]
    rounded = (halves[0] / (1 + np.exp(-halves[0].astype("f8")))).astype(np.float16).astype("f4") * halves[1]
    np.testing.assert_allclose(
        run("SwiGLU", halves, round_activation=1)[0], rounded.astype(np.float16), rtol=2e-3
    )  # a step of float16


def test_router_of_groups() -> None:
    logits, bias = normal(2, 5, 12), normal(12)
    attributes = {"top_k": 3, "n_group": 4, "topk_group": 2, "group_topk": 2}
    peer("MoEGroupRouter", [logits, bias], 1, attributes)
    out, scores, plain = run("MoEGroupRouter", [logits, bias], 3, **attributes)
    assert ((out > -10000).sum(1) == 3).all()
    close(plain, 1 / (1 + np.exp(-logits.reshape(10, 12))))
    close(scores, plain + bias)
    weight = normal(12, 16)
    wide = run("MoEGroupRouter", [normal(3, 16), bias, weight], 3, top_k=2)
    assert [x.shape for x in wide] == [(3, 12)] * 3


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        ("GatedDeltaNet", [normal(3, 2, 4)], {}, "key and value together, or neither and initial_state"),
        ("GatedDeltaNet", [normal(3, 2, 4)] * 3, {}, "needs cu_seqlens or initial_state"),
        ("GatedDeltaNet", [normal(3, 2, 4)] * 3 + [np.array([0, 2])], {}, "rise from 0 to 3, the number of tokens"),
        ("GatedDeltaNet", [normal(3, 2, 4)] * 3 + [np.array([0, 3])], {}, "needs decay: True, beta: True"),
        ("GatedDeltaNet", [normal(3, 2, 4), *[normal(3, 3, 4)] * 2], {}, "3 heads of values and 2 of queries"),
        ("NGramHashMapping", [np.zeros((1, 2), "i8"), TABLES[0], TABLES[1][:3]], HASHES, "there are 3 vocab_sizes and 3 mul"),
        ("NGramHashMapping", [np.zeros((1, 2), "i8"), TABLES[0], TABLES[1] * 0], HASHES, "not above 0"),
        ("MoEGroupRouter", [normal(2, 6), normal(6)], {"top_k": 4, "n_group": 2}, "top_k is 4; expected at most 3"),
        ("MoEGroupRouter", [normal(2, 6), normal(6)], {"top_k": 1, "n_group": 4}, "6 experts do not go in 4 groups"),
    ],
)  # fmt: skip
def test_refusals(op: str, inputs: list[Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidGraph, match=message):
        run(op, inputs, 2, **attributes)
