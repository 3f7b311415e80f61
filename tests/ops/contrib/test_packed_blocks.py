"""MatMulFpQ4 and GatherPacked: numbers in blocks of bytes, beside onnxruntime and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia.errors import IntarsiaError

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
FORMATS = {  # packed_type: numbers and bytes of a block, and where its float16 factors are
    0: (1, 4, ()), 1: (1, 2, ()), 2: (32, 18, (0,)), 6: (32, 22, (0,)), 8: (32, 34, (0,)), 13: (256, 176, (0, 2)),
    14: (256, 210, (208,)), 20: (32, 18, (0,)), 23: (256, 136, (0,)), 30: (1, 2, ()), 42: (64, 18, (0,)),
}  # fmt: skip
INDICES = np.array([[0, 4, -1], [7, 2, 3]])  # -1 and 7 do not exist


def model_of(op: str, inputs: dict[str, np.ndarray], constants: dict[str, np.ndarray], kind: int, **attributes: Any) -> bytes:
    node = helper.make_node(op, [*inputs, *constants], ["y"], "N", domain="com.microsoft", **attributes)
    taken = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in inputs.items()]
    graph = helper.make_graph(
        [node], "g", taken, [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(x, n) for n, x in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def ours(model: bytes, feed: dict[str, np.ndarray], provider: str) -> np.ndarray:
    return np.asarray(intarsia.InferenceSession(model, providers=[provider]).run(None, feed)[0])


def table(packed_type: int, rows: int, width: int) -> np.ndarray:
    """Bytes at random, but factors that are neither NaN nor huge."""
    numbers, nbytes, factors = FORMATS[packed_type]
    rng = np.random.default_rng(packed_type)
    if packed_type in (0, 1, 30):  # plain numbers
        x = rng.standard_normal((rows, width)).astype({0: np.float32, 1: np.float16, 30: np.float32}[packed_type])
        return (x.view(np.uint16)[:, 1::2] if packed_type == 30 else x).copy().view(np.uint8).reshape(rows, -1)
    found = rng.integers(0, 256, (rows, width // numbers, nbytes)).astype(np.uint8)
    for at in factors:
        found[..., at : at + 2] = rng.standard_normal(found.shape[:2]).astype(np.float16)[..., None].view(np.uint8)
    return found.reshape(rows, -1)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("packed_type", FORMATS)
def test_rows_as_onnxruntime(packed_type: int, provider: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the reference of the formats")
    feed = {"data": table(packed_type, 5, 512), "indices": INDICES}
    for kind in (TensorProto.FLOAT, TensorProto.FLOAT16):
        model = model_of("GatherPacked", feed, {}, kind, K=512, packed_type=packed_type, output_dtype=kind)
        try:
            peer = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
            pytest.skip("this onnxruntime has not the operator")
        expected = peer.run(None, feed)[0]
        found = ours(model, feed, provider)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        np.testing.assert_array_equal(found[0, 2], found[0, 0])
        np.testing.assert_array_equal(found[1, 0], found[0, 0])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_rows_by_hand(provider: str) -> None:
    half = np.array([0.5], np.float16).view(np.uint8)
    codes = np.arange(16, dtype=np.uint8)
    row = np.concatenate([half, codes | (15 - codes) << 4])[None]
    feed = {"data": row, "indices": np.array(0)}
    model = model_of("GatherPacked", feed, {}, TensorProto.FLOAT, K=32, packed_type=2, output_dtype=1)
    np.testing.assert_array_equal(ours(model, feed, provider), 0.5 * np.r_[np.arange(-8, 8), np.arange(7, -9, -1)])
    feed = {"data": np.concatenate([half, np.arange(-16, 16, dtype=np.int8).view(np.uint8)])[None], "indices": np.array(0)}
    model = model_of("GatherPacked", feed, {}, TensorProto.FLOAT, K=32, packed_type=8, output_dtype=1)
    np.testing.assert_array_equal(ours(model, feed, provider), 0.5 * np.arange(-16, 16))
    feed = {"data": np.concatenate([half, np.full(16, 0b11100100, np.uint8)])[None], "indices": np.array(0)}
    model = model_of("GatherPacked", feed, {}, TensorProto.BFLOAT16, K=64, packed_type=42)
    np.testing.assert_array_equal(ours(model, feed, provider).astype(np.float32), np.tile([-0.5, 0, 0.5, 1], 16))


@pytest.mark.parametrize(("changes", "message"), [
    ({"packed_type": 16}, r"packed_type is 16 \(IQ2_XXS\); expected one of 0 \(F32\), 1 \(F16\)"),
    ({"packed_type": -1}, "packed_type is -1; expected one of"),
    ({"K": 48}, "K is 48; expected a positive multiple of 32, the numbers of a Q4_0 block"),
    ({"K": 0}, "K is 0; expected a positive multiple of 32"),
    ({"output_dtype": 11}, r"output_dtype is 11; expected 1 \(float\)"),
    ({"K": 64}, "the bytes of a row of data, 64 numbers of Q4_0: got 18, expected 36"),
])  # fmt: skip
def test_tables_that_do_not_fit(changes: dict[str, int], message: str) -> None:
    feed = {"data": np.zeros((2, 18), np.uint8), "indices": np.array([0])}
    attributes = {"K": 32, "packed_type": 2, "output_dtype": 1} | changes
    with pytest.raises(IntarsiaError, match=message):
        ours(model_of("GatherPacked", feed, {}, TensorProto.FLOAT, **attributes), feed, PROVIDERS[0])


def packed(kind: int, weights: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of MatMulFpQ4's B at random, and what they stand for, float64 [weights, columns]."""
    rng = np.random.default_rng(kind)
    blocks, head = -(-weights // 32), 4 + kind
    found = rng.integers(0, 256, (columns, blocks, head + 16)).astype(np.uint8)
    factors = rng.random((columns, blocks)).astype(np.float32)
    found[..., :4] = factors[..., None].view(np.uint8)
    zero = np.full((columns, blocks, 1), 8.0)
    if kind:
        found[..., 4] %= 16
        zero = found[..., 4:5].astype(np.float64)
    codes = np.concatenate([found[..., head:] & 15, found[..., head:] >> 4], -1)
    values = (codes - zero) * factors[..., None].astype(np.float64)
    return found.reshape(-1), values.reshape(columns, -1)[:, :weights].T


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("shape", [(64, 5), (40, 3), (1, 1)], ids=str)
@pytest.mark.parametrize("kind", [0, 1])
def test_products_of_blocks(kind: int, shape: tuple[int, int], provider: str) -> None:
    b, weights = packed(kind, *shape)
    a = np.random.default_rng(9).standard_normal((2, 3, shape[0])).astype(np.float32)
    model = model_of("MatMulFpQ4", {"a": a}, {"b": b, "s": np.array(shape)}, TensorProto.FLOAT, blk_quant_type=kind)
    np.testing.assert_allclose(ours(model, {"a": a}, provider), a @ weights, rtol=1e-4, atol=1e-4)
    plain = model_of("MatMulFpQ4", {"a": a, "b": b}, {"s": np.array(shape)}, TensorProto.FLOAT, blk_quant_type=kind)
    np.testing.assert_allclose(ours(plain, {"a": a, "b": b}, provider), a @ weights, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [0, 1])
def test_products_as_onnxruntime(kind: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the reference of the layout")
    b, _ = packed(kind, 70, 4)
    a = np.random.default_rng(3).standard_normal((3, 70)).astype(np.float32)
    model = model_of("MatMulFpQ4", {"a": a}, {"b": b, "s": np.array([70, 4])}, TensorProto.FLOAT, blk_quant_type=kind)
    try:
        expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"a": a})[0]
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
        pytest.skip("this onnxruntime has no such kernel for this processor")
    np.testing.assert_allclose(ours(model, {"a": a}, PROVIDERS[0]), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("shape", "kind", "message"), [
    ([64, 2], 2, "blk_quant_type is 2; expected 0 .*or 1"),
    ([64, 2, 1], 0, "B_shape has 3 sizes; expected two, K and N"),
    ([96, 2], 0, "the bytes of B, 2 columns of 3 blocks: got 80, expected 120"),
])  # fmt: skip
def test_blocks_that_do_not_fit(shape: list[int], kind: int, message: str) -> None:
    a = np.zeros((1, 64), np.float32)
    constants = {"b": np.zeros(80, np.uint8), "s": np.array(shape)}
    with pytest.raises(IntarsiaError, match=message):
        ours(model_of("MatMulFpQ4", {"a": a}, constants, TensorProto.FLOAT, blk_quant_type=kind), {"a": a}, PROVIDERS[0])
