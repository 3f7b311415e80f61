"""Bindings whose outputs have memory of the caller's, while sizes change from run to run, and caches written where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.parser
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort

HEADS, GROUPS, SIZE, ROOM = 4, 2, 8, 24
PAST = f"float[b, {GROUPS}, room, {SIZE}]"
CACHED = f"""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
g (float[b, s, {HEADS * SIZE}] q, float[b, s, {GROUPS * SIZE}] k, float[b, s, {GROUPS * SIZE}] v, {PAST} keys, {PAST} values,
   int32[b] last, int64[b, t] mask) => (float[b, s, {HEADS * SIZE}] y, {PAST} new_keys, {PAST} new_values)
<int64 one = {{1}}> {{
  shape = Shape(mask)
  long = Gather(shape, one)
  total = Cast<to=6>(long)
  y, new_keys, new_values = com.microsoft.GroupQueryAttention<num_heads={HEADS}, kv_num_heads={GROUPS}>
                            (q, k, v, keys, values, last, total)
}}"""
JOINED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, p, 4] past, float[2, s, 4] x) => (float[2, t, 4] present, float[2, t, 4] twice)
{ present = Concat<axis=1>(past, x) twice = Add(present, present) }"""


def session(text: str) -> ort.InferenceSession:
    return ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), providers=["CPUExecutionProvider"])


def feed(rng: np.random.Generator, batch: int, steps: int, before: int) -> dict[str, np.ndarray]:
    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    given = {"q": normal(batch, steps, HEADS * SIZE)}
    given |= {n: normal(batch, steps, GROUPS * SIZE) for n in "kv"}
    given["last"] = np.full(batch, before + steps - 1, np.int32)
    return given | {"mask": np.ones((batch, before + steps), np.int64)}


def attended(given: dict[str, np.ndarray], keys: np.ndarray, values: np.ndarray, before: int) -> np.ndarray:
    """Causal attention of grouped heads in float64 over the first rows of caches that have this call's rows."""
    batch, steps, _ = given["q"].shape
    q = given["q"].reshape(batch, steps, HEADS, SIZE).transpose(0, 2, 1, 3).astype(np.float64)
    k, v = (np.repeat(x[:, :, : before + steps].astype(np.float64), HEADS // GROUPS, axis=1) for x in (keys, values))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(SIZE)
    seen = np.arange(before + steps) <= before + np.arange(steps)[:, None]
    weights = np.exp(np.where(seen, scores, -np.inf))
    y: np.ndarray = (weights / weights.sum(-1, keepdims=True)) @ v
    return y.transpose(0, 2, 1, 3).reshape(batch, steps, -1)


def bound(made: ort.InferenceSession, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray | None]) -> Sequence[Any]:
    binding = made.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for name, target in outputs.items():
        if target is None:
            binding.bind_output(name)
        else:
            binding.bind_output(name, "cpu", 0, np.float32, target.shape, target.ctypes.data)
    made.run_with_iobinding(binding)
    return [value.numpy() for value in binding.get_outputs()]


@pytest.mark.parametrize("batch", [1, 3])
def test_a_cache_in_one_buffer_is_written_where_it_lies(batch: int) -> None:
    rng, made = np.random.default_rng(0), session(CACHED)
    shape, before = (batch, GROUPS, ROOM, SIZE), 0
    keys, values = (np.full(shape, 7, np.float32) for _ in range(2))
    expected = [keys.copy(), values.copy()]
    for steps in (5, 1, 1, 1, 1, 3, 1, 1):
        given = feed(rng, batch, steps, before)
        for cache, name in zip(expected, "kv", strict=True):
            rows = given[name].reshape(batch, steps, GROUPS, SIZE).transpose(0, 2, 1, 3)
            cache[:, :, before : before + steps] = rows
        y, *_ = bound(made, given | {"keys": keys, "values": values}, {"y": None, "new_keys": keys, "new_values": values})
        np.testing.assert_array_equal(keys, expected[0])
        np.testing.assert_array_equal(values, expected[1])
        np.testing.assert_allclose(y, attended(given, keys, values, before), atol=1e-5)
        before += steps


def test_one_binding_goes_on_with_a_shared_cache() -> None:
    """Sizes that stay: the run that was prepared writes there, too, and follows when other memory is bound."""
    rng, made = np.random.default_rng(1), session(CACHED)
    caches = [[rng.standard_normal((1, GROUPS, ROOM, SIZE)).astype(np.float32) for _ in range(2)] for _ in range(2)]
    given, binding = feed(rng, 1, 1, 9), made.io_binding()
    for name, array in given.items():
        binding.bind_cpu_input(name, array)
    for i in (0, 0, 0, 1, 1, 0):
        keys, values = caches[i]
        expected = made.run(None, given | {"keys": keys, "values": values})
        for name, cache in (("keys", keys), ("values", values)):
            binding.bind_cpu_input(name, cache)
            binding.bind_output(f"new_{name}", "cpu", 0, np.float32, cache.shape, cache.ctypes.data)
        binding.bind_output("y")
        binding.run()
        found = dict(zip(binding._outputs, binding.get_outputs(), strict=True))
        for name, value in zip(("y", "new_keys", "new_values"), expected, strict=True):
            np.testing.assert_array_equal(found[name].numpy(), value)
        np.testing.assert_array_equal(keys, expected[1])
        given["k"][:] += 1


def test_targets_that_lie_in_other_memory_of_the_run_get_copies() -> None:
    rng, made = np.random.default_rng(2), session(CACHED)
    room = rng.standard_normal(2 * GROUPS * ROOM * SIZE + 8).astype(np.float32)
    count = GROUPS * ROOM * SIZE
    keys, values, moved = (room[i : i + count].reshape(1, GROUPS, ROOM, SIZE) for i in (0, count, 8))
    given = feed(rng, 1, 1, 9) | {"keys": keys, "values": values}
    before, expected = room.copy(), made.run(None, given)
    for new_keys, new_values in ((values, keys), (moved, None), (keys, None), (None, keys)):
        room[:] = before
        found = bound(made, given, {"y": None, "new_keys": new_keys, "new_values": new_values})
        for i, (value, target) in enumerate(zip(expected, (None, new_keys, new_values), strict=True)):
            np.testing.assert_array_equal(found[i] if target is None else target, value)


def test_a_target_that_two_outputs_share_has_the_last_one() -> None:
    rng, made = np.random.default_rng(3), session(CACHED)
    keys, values = (rng.standard_normal((1, GROUPS, ROOM, SIZE)).astype(np.float32) for _ in range(2))
    given = feed(rng, 1, 1, 9) | {"keys": keys, "values": values}
    expected = made.run(None, given)
    bound(made, given, {"y": None, "new_keys": keys, "new_values": keys})
    np.testing.assert_array_equal(keys, expected[2])


def test_new_sizes_are_written_where_the_caller_wants_them() -> None:
    rng, made = np.random.default_rng(4), session(JOINED)
    past = np.zeros((2, 0, 4), np.float32)
    for steps in (3, 1, 1, 2, 1, 1, 1):
        x = rng.standard_normal((2, steps, 4)).astype(np.float32)
        expected = np.concatenate([past, x], 1)
        target, other = np.empty_like(expected), np.empty_like(expected)
        found = bound(made, {"past": past, "x": x}, {"twice": other, "present": target})
        assert [array.ctypes.data for array in found] == [other.ctypes.data, target.ctypes.data]
        np.testing.assert_array_equal(target, expected)
        np.testing.assert_array_equal(other, 2 * expected)
        past = target


def test_a_target_of_another_size_says_so() -> None:
    made, past = session(JOINED), np.zeros((2, 3, 4), np.float32)
    wrong = np.empty((2, 5, 4), np.float32)
    with pytest.raises(ort.errors.InvalidArgument, match=r"output 'present' is float32 \[2, 4, 4\]"):
        bound(made, {"past": past, "x": past[:, :1].copy()}, {"present": wrong, "twice": None})
