"""com.microsoft::GroupQueryAttention over caches of 8 and 4 bits: equal to NumPy in float64, and to onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import intarsia as ort
from intarsia.errors import InvalidGraph

HEADS, GROUPS, SIZE = 4, 2, 8
RNG = np.random.default_rng(7)
PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")


def model(kind: str, bits: int, rows: int, tokens: int, past: str = "", floats: str = "float") -> bytes:
    cache = past or {8: "int8", 4: "uint8"}[bits]
    width, scales = SIZE * bits // 8, [1] if kind == "PER_TENSOR" else [1, GROUPS, 1, SIZE]
    rows_of = f"{floats}[1, {tokens}, {GROUPS * SIZE}]"
    text = f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (
        {floats}[1, {tokens}, {HEADS * SIZE}] q, {rows_of} k, {rows_of} v,
        {cache}[1, {GROUPS}, {rows}, {width}] pk, {cache}[1, {GROUPS}, {rows}, {width}] pv, int32[1] last, int32 total,
        float{scales} ks, float{scales} vs) => ({floats}[a, b, c] y, {cache}[d, e, f, h] ck, {cache}[i, j, l, m] cv) {{
        y, ck, cv = com.microsoft.GroupQueryAttention<num_heads = {HEADS}, kv_num_heads = {GROUPS}, k_quant_type = "{kind}",
            v_quant_type = "{kind}", kv_cache_bit_width = {bits}>(q, k, v, pk, pv, last, total, , , , , , ks, vs) }}"""
    return bytes(onnx.parser.parse_model(text).SerializeToString())


def feeds(kind: str, bits: int, rows: int, tokens: int, total: int, dtype: type = np.float32) -> dict[str, np.ndarray]:
    made: dict[str, np.ndarray] = {}
    for name, heads in (("q", HEADS), ("k", GROUPS), ("v", GROUPS)):
        made[name] = (2 * RNG.normal(size=(1, tokens, heads * SIZE))).astype(dtype)
    made["k"][0, 0, :4] = 0.125, 0.375, 100, -100  # ties, and what saturates
    kept, width = (np.int8, SIZE) if bits == 8 else (np.uint8, SIZE // 2)
    for name in ("pk", "pv"):
        made[name] = RNG.integers(np.iinfo(kept).min, np.iinfo(kept).max + 1, (1, GROUPS, rows, width)).astype(kept)
    made |= {"last": np.int32([total - 1]), "total": np.array(total, np.int32)}
    most = 1 << (bits - 1)
    for name in ("ks", "vs"):
        scale = [0.25] if kind == "PER_TENSOR" else RNG.uniform(2, 6, (1, GROUPS, 1, SIZE)) / most
        made[name] = np.float32(scale)
    return made


def numbers(cache: np.ndarray, bits: int) -> np.ndarray:
    if bits == 8:
        return cache.astype(np.float64)
    return np.stack([cache & 15, cache >> 4], -1).reshape(*cache.shape[:3], -1).astype(np.float64) - 8


def bytes_of(codes: np.ndarray, bits: int) -> np.ndarray:
    if bits == 8:
        return codes.astype(np.int8)
    shifted = (codes + 8).astype(np.uint8)
    return shifted[..., ::2] | (shifted[..., 1::2] << 4)


def expected(f: dict[str, np.ndarray], bits: int, tokens: int, total: int) -> list[np.ndarray]:
    most, start = 1 << (bits - 1), total - tokens
    wide, kept = [], []
    for new, old, scale in (("k", "pk", "ks"), ("v", "pv", "vs")):
        rows = f[new].astype(np.float32).reshape(tokens, GROUPS, SIZE).swapaxes(0, 1)[None]
        codes = np.clip(np.round(rows / f[scale]), -most, most - 1).astype(np.float64)
        cache = f[old].copy()
        cache[:, :, start:total] = bytes_of(codes, bits)
        kept.append(cache)
        wide.append(np.repeat(numbers(cache, bits)[:, :, :total] * f[scale].astype(np.float64), HEADS // GROUPS, 1))
    q = f["q"].astype(np.float64).reshape(tokens, HEADS, SIZE).swapaxes(0, 1)[None]
    scores = q @ wide[0].swapaxes(-1, -2) / np.sqrt(SIZE)
    scores = np.where(np.arange(total) <= np.arange(tokens)[:, None] + start, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    out = weights / weights.sum(-1, keepdims=True) @ wide[1]
    return [out.swapaxes(1, 2).reshape(1, tokens, HEADS * SIZE), *kept]


CASES = [(kind, bits) for kind in ("PER_TENSOR", "PER_CHANNEL") for bits in (8, 4)]


@pytest.mark.parametrize(("kind", "bits"), CASES)
@pytest.mark.parametrize(("rows", "tokens", "total"), [(8, 1, 6), (8, 3, 8), (5, 5, 5)], ids=["one", "some", "prompt"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_as_numpy_and_onnxruntime(kind: str, bits: int, rows: int, tokens: int, total: int, provider: str) -> None:
    made, f = model(kind, bits, rows, tokens), feeds(kind, bits, rows, tokens, total)
    found = ort.InferenceSession(made, providers=[provider]).run(None, f)
    wanted = expected(f, bits, tokens, total)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-4)
    for a, b in zip(found[1:], wanted[1:], strict=True):
        np.testing.assert_array_equal(a, b)
    theirs = pytest.importorskip("onnxruntime", reason="the peer").InferenceSession(made, providers=PROVIDERS[:1])
    y, *caches = theirs.run(None, f)
    np.testing.assert_allclose(found[0], y, rtol=1e-4, atol=1e-4)
    for a, b in zip(found[1:], caches, strict=True):
        np.testing.assert_array_equal(a[:, :, :total], b[:, :, :total])  # rows that nobody wrote yet are any


@pytest.mark.parametrize("bits", [8, 4])
def test_half_floats(bits: int) -> None:
    f = feeds("PER_TENSOR", bits, 8, 2, 7, np.float16)
    found = ort.InferenceSession(model("PER_TENSOR", bits, 8, 2, floats="float16"), providers=PROVIDERS[:1]).run(None, f)
    wanted = expected(f, bits, 2, 7)
    assert found[0].dtype == np.float16
    np.testing.assert_allclose(found[0], wanted[0], rtol=2e-3, atol=4e-3)
    np.testing.assert_array_equal(found[1], wanted[1])


def without_past(bits: int) -> bytes:
    proto = onnx.load_from_string(model("PER_TENSOR", bits, 4, 4))
    proto.graph.node[0].input[3] = proto.graph.node[0].input[4] = ""
    del proto.graph.input[3:5]
    return bytes(proto.SerializeToString())


@pytest.mark.parametrize("bits", [8, 4])
def test_a_first_call_without_a_cache(bits: int) -> None:
    f = feeds("PER_TENSOR", bits, 4, 4, 4)
    wanted = expected(f, bits, 4, 4)
    given = {name: x for name, x in f.items() if name not in ("pk", "pv")}
    for provider in PROVIDERS:
        found: list[Any] = ort.InferenceSession(without_past(bits), providers=[provider]).run(None, given)
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(found[1], wanted[1])


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (model("PER_ROW", 8, 4, 1), "k_quant_type is 'PER_ROW'; expected one of NONE, PER_TENSOR, PER_CHANNEL"),
        (model("PER_TENSOR", 2, 4, 1, "int8"), "kv_cache_bit_width is 2; expected 8 or 4"),
        (model("PER_TENSOR", 4, 4, 1, "int8"), "past_key is int8; expected uint8 with kv_cache_bit_width 4"),
        (model("NONE", 8, 4, 1), "kv_cache_bit_width is 8; expected 0 where k_quant_type is 'NONE'"),
    ],
)
def test_errors(made: bytes, message: str) -> None:
    with pytest.raises(InvalidGraph, match=message):
        ort.InferenceSession(made, providers=["ReferenceExecutionProvider"])


def test_operands_that_do_not_fit_together() -> None:
    proto = onnx.load_from_string(model("PER_TENSOR", 8, 4, 1))
    next(a for a in proto.graph.node[0].attribute if a.name == "v_quant_type").s = b"NONE"
    with pytest.raises(InvalidGraph, match="k_quant_type is 'PER_TENSOR' and v_quant_type 'NONE'; expected the same"):
        ort.InferenceSession(proto.SerializeToString(), providers=["ReferenceExecutionProvider"])
    proto = onnx.load_from_string(model("PER_TENSOR", 8, 4, 1))
    proto.graph.node[0].input[12] = ""
    with pytest.raises(InvalidGraph, match="a quantised cache needs k_scale"):
        ort.InferenceSession(proto.SerializeToString(), providers=["ReferenceExecutionProvider"])
