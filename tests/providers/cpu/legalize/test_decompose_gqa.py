"""GroupQueryAttention in parts on the CPU provider: the same as its definition gives, in first and later calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
from onnx import TensorProto, helper

import intarsia as ort

INPUTS = (
    "query key value past_key past_value seqlens_k total_sequence_length cos_cache sin_cache position_ids attention_bias "
    "head_sink k_scale v_scale q_norm_weight k_norm_weight"
).split()


def model(given: dict[str, np.ndarray], attributes: dict[str, Any], symbolic: bool) -> bytes:
    names = [n if n in given else "" for n in INPUTS]
    while not names[-1]:
        names.pop()
    inputs = []
    for name, array in given.items():
        shape = [f"{name}_{i}" if symbolic and i in (0, 1, 2) and array.ndim > 2 else d for i, d in enumerate(array.shape)]
        if symbolic and array.ndim == 3:
            shape[2] = array.shape[2]
        elif symbolic and array.ndim == 4:
            shape[1] = array.shape[1]
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape))
    node = helper.make_node("GroupQueryAttention", names, ["y", "k", "v"], domain="com.microsoft", **attributes)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "ykv"])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def feeds(
    rng: np.random.Generator, batch: int, steps: int, heads: int, groups: int, size: int, capacity: int,
    lengths: list[int], packed: bool = False, tables: int = 0, norm: bool = False,
) -> dict[str, np.ndarray]:  # fmt: skip
    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    given = {"query": normal(batch, steps, (heads + 2 * groups * packed) * size)}
    if not packed:
        given |= {"key": normal(batch, steps, groups * size), "value": normal(batch, steps, groups * size)}
    if capacity:
        given |= {"past_key": normal(batch, groups, capacity, size), "past_value": normal(batch, groups, capacity, size)}
    given["seqlens_k"] = np.array(lengths, np.int32) - 1
    given["total_sequence_length"] = np.array(max(lengths), np.int32)
    if tables:
        angles = rng.uniform(0, 6, (tables, size // 2)).astype(np.float32)
        given |= {"cos_cache": np.cos(angles), "sin_cache": np.sin(angles)}
    if norm:
        given |= {"q_norm_weight": normal(size), "k_norm_weight": normal(size)}
    return given


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one row": ({"batch": 1, "steps": 1, "capacity": 20, "lengths": [21]}, {}),
    "one row in a cache that is not full": ({"batch": 2, "steps": 1, "capacity": 40, "lengths": [21, 33]}, {}),
    "some rows after others": ({"batch": 1, "steps": 7, "capacity": 40, "lengths": [30]}, {}),
    "first call": ({"batch": 2, "steps": 19, "capacity": 0, "lengths": [19, 19]}, {}),
    "first call with padding": ({"batch": 3, "steps": 19, "capacity": 30, "lengths": [19, 4, 11]}, {}),
    "packed and turned": (
        {"batch": 1, "steps": 5, "capacity": 16, "lengths": [13], "packed": True, "tables": 64},
        {"do_rotary": 1},
    ),
    "turned in pairs": (
        {"batch": 2, "steps": 1, "capacity": 16, "lengths": [13, 9], "tables": 64},
        {"do_rotary": 1, "rotary_interleaved": 1},
    ),
    "window": ({"batch": 2, "steps": 6, "capacity": 40, "lengths": [33, 20]}, {"local_window_size": 9}),
    "softcap and scale": ({"batch": 1, "steps": 3, "capacity": 16, "lengths": [12]}, {"softcap": 5.0, "scale": 0.3}),
    "normalised": ({"batch": 1, "steps": 3, "capacity": 16, "lengths": [12], "norm": True}, {"qk_norm_epsilon": 1e-5}),
}  # fmt: skip


@pytest.mark.parametrize("symbolic", [False, True], ids=["numbers", "symbols"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_as_the_definition(name: str, symbolic: bool) -> None:
    sizes, attributes = CASES[name]
    given = feeds(np.random.default_rng(0), heads=6, groups=2, size=16, **sizes)
    made = model(given, {"num_heads": 6, "kv_num_heads": 2, **attributes}, symbolic)
    expected = ort.InferenceSession(made, providers=["ReferenceExecutionProvider"]).run(None, given)
    session = ort.InferenceSession(made, providers=["CPUExecutionProvider"])
    found = session.run(None, given)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    alone = ort.InferenceSession(made, options, providers=["CPUExecutionProvider"]).run(None, given)
    np.testing.assert_allclose(alone[0], expected[0], rtol=1e-4, atol=2e-5)


def test_float64_softmax() -> None:
    """One query over a cache, worked out apart from any definition here."""
    given = feeds(np.random.default_rng(1), batch=1, steps=1, heads=4, groups=2, size=8, capacity=10, lengths=[7])
    made = model(given, {"num_heads": 4, "kv_num_heads": 2}, False)
    y, keys, values = ort.InferenceSession(made, providers=["CPUExecutionProvider"]).run(None, given)
    past_key, past_value = given["past_key"].astype(np.float64), given["past_value"].astype(np.float64)
    past_key[0, :, 6], past_value[0, :, 6] = given["key"].reshape(2, 8), given["value"].reshape(2, 8)
    np.testing.assert_array_equal(keys[0, :, :7], past_key[0, :, :7].astype(np.float32))
    np.testing.assert_array_equal(values[0, :, :7], past_value[0, :, :7].astype(np.float32))
    for head in range(4):
        q = given["query"].reshape(4, 8)[head].astype(np.float64)
        scores = np.exp(past_key[0, head // 2, :7] @ q / np.sqrt(8))
        np.testing.assert_allclose(
            y[0, 0, 8 * head : 8 * head + 8], scores @ past_value[0, head // 2, :7] / scores.sum(), rtol=1e-5
        )


@pytest.mark.parametrize("more", [{"smooth_softmax": 1}, {"bias": True}], ids=str)
def test_what_stays_whole(more: dict[str, Any]) -> None:
    given = feeds(np.random.default_rng(2), batch=1, steps=1, heads=4, groups=2, size=8, capacity=10, lengths=[7])
    if more.pop("bias", False):
        given["attention_bias"] = np.random.default_rng(3).standard_normal((1, 4, 1, 7)).astype(np.float32)
    made = model(given, {"num_heads": 4, "kv_num_heads": 2, **more}, False)
    expected = ort.InferenceSession(made, providers=["ReferenceExecutionProvider"]).run(None, given)
    found = ort.InferenceSession(made, providers=["CPUExecutionProvider"]).run(None, given)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)


def test_lengths_beyond_the_cache_read_nothing_outside() -> None:
    given = feeds(np.random.default_rng(4), batch=1, steps=1, heads=4, groups=2, size=8, capacity=10, lengths=[7])
    made = model(given, {"num_heads": 4, "kv_num_heads": 2}, False)
    session = ort.InferenceSession(made, providers=["CPUExecutionProvider"])
    for wrong in (-5, 11, 1 << 30):
        try:
            (y, *_) = session.run(None, given | {"seqlens_k": np.array([wrong], np.int32)})
        except ort.InvalidArgument:
            continue
        assert np.isfinite(y).all()


def test_no_steps_leave_zeros_behind_the_past() -> None:
    """There are no new rows to put where the past has none."""
    given = feeds(np.random.default_rng(8), 1, 0, 4, 2, 8, 5, [5])
    given["total_sequence_length"] = np.array(8, np.int32)
    attributes = {"num_heads": 4, "kv_num_heads": 2}
    y, keys, values = ort.InferenceSession(model(given, attributes, symbolic=True)).run(None, given)
    assert y.shape == (1, 0, 32)
    for cache, past in ((keys, given["past_key"]), (values, given["past_value"])):
        np.testing.assert_array_equal(cache, np.concatenate([past, np.zeros((1, 2, 3, 8), np.float32)], 2))
