"""Contributed operators on the CPU provider whose definitions are cut in pieces, or become other operators."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.parser")

from cpu_models import CPU, REFERENCE, check, kinds, normal, session_of

HEADER = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft": 1]>'


def test_sparse_attention_is_compiled() -> None:
    inputs = "float[1, 5, 32] q, float[1, 5, 16] k, float[1, 5, 16] v, float[1, 2, 64, 8] a, float[1, 2, 64, 8] b"
    attributes = "num_heads = 4, kv_num_heads = 2, sparse_block_size = 16"
    node = f"y, c, d = com.microsoft.SparseAttention<{attributes}>(q, k, v, a, b, r, s, t, u)"
    text = (
        f"g ({inputs}, int32[1] t, int32[1] u) => (float[1, 5, 32] y, float[1, 2, 64, 8] c, float[1, 2, 64, 8] d) {{ {node} }}"
    )
    layouts = {
        "r": np.array([[0, 1, 3, 4, 7], [0, 1, 2, 4, 6]], np.int32),
        "s": np.array([[0, 0, 1, 2, 0, 2, 3], [0, 1, 1, 2, 0, 3, -1]], np.int32),
    }
    for before in (0, 21):
        feeds = {
            n: normal(*shape)
            for n, shape in zip("qkvab", ((1, 5, 32), (1, 5, 16), (1, 5, 16), *[(1, 2, 64, 8)] * 2), strict=True)
        }
        feeds |= {"t": np.array([before + 5], np.int32), "u": np.array([before + 5], np.int32)}
        session = check(text, feeds, constants=layouts, rtol=2e-5, header=HEADER)
        assert "host" not in kinds(session).values()


@pytest.mark.parametrize("mask_shape", [(2, 3, 9, 11), (1, 1, 9, 11)])
def test_masked_pooling_is_compiled(mask_shape: tuple[int, ...]) -> None:
    shape = ", ".join(map(str, mask_shape))
    node = "y = com.microsoft.MaxpoolWithMask<kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1]>(x, m)"
    mask = (np.random.default_rng(0).random(mask_shape) < 0.8).astype(np.int32)
    feeds = {"x": normal(2, 3, 9, 11), "m": mask}
    session = check(f"g (float[2, 3, 9, 11] x, int32[{shape}] m) => (float[p, q, r, s] y) {{ {node} }}", feeds, header=HEADER)
    assert "host" not in kinds(session).values()


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("hidden", "dtype"), [(7, np.int8), (7, np.uint8), (70, np.int8), (33, np.uint8)])
def test_lstm_of_bytes_is_compiled(per_column: bool, direction: str, hidden: int, dtype: type) -> None:
    rng, directions, low = np.random.default_rng(4), 2 if direction == "bidirectional" else 1, 0 if dtype is np.uint8 else -127
    columns = 4 * hidden
    w, r = (rng.integers(low, low + 255, (directions, n, columns)).astype(dtype) for n in (5, hidden))
    shape = (directions, columns) if per_column else (directions,)
    constants = {"w": w, "r": r, "bias": normal(directions, 2 * columns)}
    for name in ("ws", "rs"):
        constants[name] = (rng.uniform(0.2, 1, shape) / (hidden * 20)).astype(np.float32)  # no chaos of many large weights
    for name in ("wz", "rz"):
        constants[name] = (rng.integers(-5, 5, shape) + (128 if dtype is np.uint8 else 0)).astype(dtype)
    attributes = f'hidden_size = {hidden}, direction = "{direction}"'
    node = f"y, h, c = com.microsoft.DynamicQuantizeLSTM<{attributes}>(x, w, r, bias, n, , , , ws, wz, rs, rz)"
    outputs = f"float[t, d, b, {hidden}] y, float[d, b, {hidden}] h, float[d, b, {hidden}] c"
    text = f"g (float[t, b, 5] x, int32[b] n) => ({outputs}) {{ {node} }}"
    feeds = [{"x": normal(t, b, 5), "n": np.arange(t, t - b, -1, np.int32)} for t, b in ((4, 2), (1, 1), (9, 3), (30, 17))]
    session = check(text, *feeds, constants=constants, rtol=2e-4, header=HEADER)
    assert "host" not in kinds(session).values()


def test_lstm_of_bytes_with_other_activations() -> None:
    rng = np.random.default_rng(5)
    constants = {n: rng.integers(-99, 99, (1, k, 28)).astype(np.int8) for n, k in (("w", 5), ("r", 7))}
    constants |= {"s": np.array([0.01], np.float32), "z": np.array([3], np.int8)}
    attributes = 'hidden_size = 7, activations = ["HardSigmoid", "Tanh", "Softsign"]'
    node = f"y = com.microsoft.DynamicQuantizeLSTM<{attributes}>(x, w, r, , , , , , s, z, s, z)"
    check(
        f"g (float[t, b, 5] x) => (float[t, d, b, 7] y) {{ {node} }}",
        {"x": normal(6, 2, 5)},
        constants=constants,
        header=HEADER,
    )


def test_lstm_of_bytes_takes_nan_as_dynamic_quantisation_does() -> None:
    """Of no part in the range, and level 0: the lowest number."""
    constants = {n: np.ones((1, k, 28), np.int8) for n, k in (("w", 5), ("r", 7))}
    constants |= {"s": np.array([0.01], np.float32), "z": np.array([0], np.int8)}
    node = "y = com.microsoft.DynamicQuantizeLSTM<hidden_size = 7>(x, w, r, , , , , , s, z, s, z)"
    x = normal(4, 2, 5)
    x[1, 0, 0] = np.nan
    text = f"g (float[t, b, 5] x) => (float[t, d, b, 7] y) {{ {node} }}"
    found = [session_of(text, constants, provider=p, header=HEADER).run(None, {"x": x})[0] for p in (CPU, REFERENCE)]
    assert np.isfinite(found[0]).all()
    x[1, 0, 0] = np.nanmin(x)
    lowest = session_of(text, constants, header=HEADER).run(None, {"x": x})[0]
    np.testing.assert_allclose(found, [lowest] * 2, rtol=1e-5, atol=1e-7)


def test_lstm_of_bytes_that_a_run_gives_is_left_to_the_host() -> None:
    node = "y = com.microsoft.DynamicQuantizeLSTM<hidden_size = 3>(x, w, r, , , , , , s, z, s, z)"
    inputs = "float[2, 1, 2] x, int8[1, 2, 12] w, int8[1, 3, 12] r, float[1] s, int8[1] z"
    text = f"g ({inputs}) => (float[2, 1, 1, 3] y) {{ {node} }}"
    rng = np.random.default_rng(2)
    feeds = {"x": normal(2, 1, 2), "s": np.array([0.01], np.float32), "z": np.array([3], np.int8)}
    feeds |= {n: rng.integers(-99, 99, (1, k, 12)).astype(np.int8) for n, k in (("w", 2), ("r", 3))}
    found = [session_of(text, provider=p, header=HEADER).run(None, feeds)[0] for p in (CPU, REFERENCE)]
    np.testing.assert_allclose(*found, rtol=1e-5)
