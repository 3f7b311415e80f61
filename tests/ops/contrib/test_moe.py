"""MoE and QMoE against onnxruntime's CPU kernels, and where these have none against float64 NumPy."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from contributed_cases import run

from intarsia.errors import InvalidGraph

EXPERTS, WIDTH, INNER, TOKENS = 4, 32, 16, 5
RNG = np.random.default_rng(21)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def bytes_(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def activated(kind: str, first: np.ndarray, third: np.ndarray | None, fusion: int) -> np.ndarray:
    if kind == "swiglu":
        gate, line = (first[0::2], first[1::2]) if fusion == 1 else np.split(first, 2) if fusion == 2 else (first, third)
        gate, line = np.minimum(gate, 1.5), np.clip(line, -1.5, 1.5)
        return gate * sigmoid(1.702 * gate) * (line + 1)
    if kind == "swiglu limited after":
        gate, line = first[0::2], first[1::2]
        return np.minimum(gate * sigmoid(1.702 * gate), 0.5) * (np.clip(line, -0.5, 0.5) + 1)
    if kind == "geglu":
        gate, line = (first[0::2], first[1::2]) if fusion == 1 else np.split(first, 2)
        return activated("gelu", gate, None, 0) * line
    cube = first + 0.044715 * first**3
    plain = {
        "relu": np.maximum(first, 0), "silu": first * sigmoid(first), "identity": first,
        "gelu": 0.5 * first * (1 + np.tanh(math.sqrt(2 / math.pi) * cube)), "relu2": np.maximum(first, 0) ** 2,
    }[kind]  # fmt: skip
    return plain if third is None else plain * third


def reference(
    x: np.ndarray,
    logits: np.ndarray,
    matrices: list[Any],
    kind: str,
    count: int,
    fusion: int,
    normalize: int,
    mixing: Any = None,
) -> np.ndarray:
    """`matrices` are weight, bias of the three layers, the last None where there is none."""
    w1, b1, w2, b2, w3, b3 = [None if m is None else m.astype(np.float64) for m in matrices]
    rows = x.reshape(-1, x.shape[-1]).astype(np.float64)
    out = np.zeros_like(rows)
    for t, row in enumerate(rows):
        chosen = np.argsort(-logits[t], kind="stable")[:count]
        weights = (softmax(logits[t].astype(np.float64)) if mixing is None else mixing[t])[chosen]
        weights = weights / weights.sum() if normalize else weights
        for e, weight in zip(chosen, weights, strict=True):
            third = None if w3 is None else w3[e] @ row + b3[e]
            out[t] += weight * (w2[e] @ activated(kind, w1[e] @ row + b1[e], third, fusion) + b2[e])
    return out.reshape(x.shape)


@pytest.mark.parametrize(
    ("kind", "fusion", "third"),
    [
        ("relu", 0, 0), ("gelu", 0, 0), ("silu", 0, 1), ("identity", 0, 0), ("relu2", 0, 0), ("swiglu", 0, 1), ("swiglu", 1, 0),
        ("swiglu", 2, 0), ("swiglu limited after", 1, 0), ("geglu", 1, 0), ("geglu", 2, 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("count", "normalize"), [(1, 0), (2, 0), (2, 1)])
def test_mixture_of_experts(kind: str, fusion: int, third: int, count: int, normalize: int) -> None:
    wide = INNER * (2 if fusion else 1)
    matrices: list[Any] = [
        normal(EXPERTS, wide, WIDTH),
        normal(EXPERTS, wide),
        normal(EXPERTS, WIDTH, INNER),
        normal(EXPERTS, WIDTH),
    ]
    matrices += [normal(EXPERTS, INNER, WIDTH), normal(EXPERTS, INNER)] if third else [None, None]
    x, logits = normal(1, TOKENS, WIDTH) if normalize else normal(TOKENS, WIDTH), normal(TOKENS, EXPERTS)
    attributes: dict[str, Any] = {
        "k": count,
        "activation_type": kind.split()[0],
        "swiglu_fusion": fusion,
        "normalize_routing_weights": normalize,
    }
    if kind == "swiglu":
        attributes.update(activation_alpha=1.702, activation_beta=1.0, swiglu_limit=1.5)
    elif kind == "swiglu limited after":
        limit = {"swiglu_limit": 0.5, "swiglu_limit_after_activation": 1}
        attributes.update(activation_alpha=1.702, activation_beta=1.0, **limit)
    inputs = [x, logits, *matrices[: 6 if third else 4]]
    found = run("MoE", inputs, **attributes)[0]
    np.testing.assert_allclose(found, reference(x, logits, matrices, kind, count, fusion, normalize), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("kind", "fusion"), [("silu", 0), ("swiglu", 1)])
@pytest.mark.parametrize(("bits", "block", "zeros"), [(4, 0, 0), (4, 16, 1), (8, 0, 1), (2, 16, 0), (4, 0, 1), (2, 0, 1)])
def test_peer(kind: str, fusion: int, bits: int, block: int, zeros: int) -> None:
    peers = pytest.importorskip("test_contributed_peers", reason="onnxruntime is the reference of its own operators")
    wide = INNER * (2 if fusion else 1)

    def stored(out: int, inner: int) -> list[Any]:
        scales = np.abs(normal(EXPERTS, out, inner // block) if block else normal(EXPERTS, out)) * np.float32(0.02)
        shape = (out, -(-(inner // block) * bits // 8)) if block else (-(-out * bits // 8),)
        return [bytes_(EXPERTS, out, inner * bits // 8), scales, bytes_(EXPERTS, *shape) if zeros else None]

    (w1, s1, z1), (w2, s2, z2) = stored(wide, WIDTH), stored(WIDTH, INNER)
    attributes = {"k": 2, "activation_type": kind, "expert_weight_bits": bits, "swiglu_fusion": fusion, "weights_prepacked": 0}
    attributes["normalize_routing_weights"] = 1  # onnxruntime's CPU kernel always does
    attributes |= {"block_size": block} if block else {}
    attributes |= {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 7.0} if fusion else {}
    inputs = [normal(TOKENS, WIDTH), normal(TOKENS, EXPERTS), w1, s1, normal(EXPERTS, wide), w2, s2, normal(EXPERTS, WIDTH)]
    inputs += [None, None, None, z1, z2] if zeros else []
    constants = [i for i, x in enumerate(inputs) if i > 1 and x is not None]
    peers.check(peers.Case("QMoE", inputs, attributes, constants=constants, tolerance=2e-2))


def bitstream(numbers: np.ndarray) -> np.ndarray:
    """Numbers of three bits along the last axis as bytes, low bits first."""
    bits = (numbers[..., None] >> np.arange(3)) & 1
    return np.packbits(bits.reshape(*numbers.shape[:-1], -1).astype(np.uint8), axis=-1, bitorder="little")


@pytest.mark.parametrize("given_zeros", [False, True])
def test_three_bits(given_zeros: bool) -> None:
    width, inner, block = 64, 32, 32
    sizes = ((2 * inner, width), (width, inner))
    codes = [RNG.integers(0, 8, (EXPERTS, *size)) for size in sizes]
    scales = [np.abs(normal(EXPERTS, n, depth // block)) * np.float32(0.05) for n, depth in sizes]
    zeros = [bitstream(np.full(s.shape, 4)) if given_zeros else None for s in scales]
    biases = [normal(EXPERTS, n) for n, _ in sizes]
    x, logits = normal(TOKENS, width), normal(TOKENS, EXPERTS)
    (w1, w2), (s1, s2), (b1, b2) = map(bitstream, codes), scales, biases
    inputs = [x, logits, w1, s1, b1, w2, s2, b2, None, None, None, *zeros]
    found = run(
        "QMoE", inputs[: 13 if given_zeros else 8], k=2, activation_type="swiglu", swiglu_fusion=1, expert_weight_bits=3,
        block_size=block, weights_prepacked=0, activation_alpha=1.702, activation_beta=1.0, swiglu_limit=1.5,
    )[0]  # fmt: skip
    m1, m2 = ((c - 4.0) * np.repeat(s, block, -1) for c, s in zip(codes, scales, strict=True))
    wanted = reference(x, logits, [m1, b1, m2, b2, None, None], "swiglu", 2, 1, 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


def dense(values: np.ndarray, scales: np.ndarray, bits: int, block: int) -> np.ndarray:
    """[experts, out, in] of integers around the middle of their range."""
    numbers = [(values >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    flat = np.stack(numbers, -1).reshape(*values.shape[:-1], -1).astype(np.float64) - (1 << (bits - 1))
    return flat * np.repeat(scales, block, -1)


def test_blocks_of_eight_bits_and_router_weights() -> None:
    w1, w2 = bytes_(EXPERTS, INNER, WIDTH), bytes_(EXPERTS, WIDTH, INNER)
    s1, s2 = np.abs(normal(EXPERTS, INNER, 2)) * 0.02, np.abs(normal(EXPERTS, WIDTH, 1)) * 0.02
    x, logits, mixing = normal(TOKENS, WIDTH), normal(TOKENS, EXPERTS), np.abs(normal(TOKENS, EXPERTS))
    b1, b2 = normal(EXPERTS, INNER), normal(EXPERTS, WIDTH)
    inputs = [x, logits, w1, s1, b1, w2, s2, b2, *[None] * 6, mixing]
    found = run("QMoE", inputs, k=2, activation_type="relu", expert_weight_bits=8, block_size=16, normalize_routing_weights=1)[
        0
    ]
    matrices = [dense(w1, s1, 8, 16), b1, dense(w2, s2, 8, 16), b2, None, None]
    np.testing.assert_allclose(found, reference(x, logits, matrices, "relu", 2, 0, 1, mixing), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["fp4", "nvfp4", "fp8", "fp8 blocks"])
def test_floating_point_weights(kind: str) -> None:
    x, logits, whole = normal(TOKENS, WIDTH), normal(TOKENS, EXPERTS), [np.abs(normal(EXPERTS)) for _ in range(2)]
    b1, b2 = normal(EXPERTS, INNER), normal(EXPERTS, WIDTH)
    stored, matrices, attributes = [], [], {"quant_type": kind.split()[0]}
    for factor, (out, inner) in zip(whole, ((INNER, WIDTH), (WIDTH, INNER * 2)), strict=True):
        inner = WIDTH if out == INNER else INNER
        if kind.startswith("fp8"):
            values = normal(EXPERTS, out, inner).astype(ml_dtypes.float8_e4m3fn)
            scales = np.abs(normal(EXPERTS, -(-out // 12), -(-inner // 12))) if "blocks" in kind else None
            wide = factor[:, None, None] if scales is None else np.repeat(np.repeat(scales, 12, 1), 12, 2)[:, :out, :inner]
            dense_values = values.astype(np.float64) * wide
        else:
            block, type_ = (16, ml_dtypes.float8_e4m3fn) if kind == "nvfp4" else (32, ml_dtypes.float8_e8m0fnu)
            values = bytes_(EXPERTS, out, inner // 2)
            scales = (2.0 ** RNG.integers(-2, 2, (EXPERTS, out, -(-inner // block)))).astype(type_)
            codes = np.stack([values & 15, values >> 4], -1).reshape(EXPERTS, out, inner).astype(np.uint8)
            plain = codes.astype(np.int8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)
            wide = np.repeat(scales.astype(np.float64), block, 2)[:, :, :inner]
            dense_values = plain * wide * factor[:, None, None]
        stored.append((values, scales))
        matrices.append(dense_values)
    if "blocks" in kind:
        attributes["block_size"] = 12
    (w1, s1), (w2, s2) = stored
    inputs = [x, logits, w1, s1, b1, w2, s2, b2, *[None] * 7, *(whole if "blocks" not in kind else [])]
    found = run("QMoE", inputs, k=1, **attributes)[0]
    wanted = reference(x, logits, [matrices[0], b1, matrices[1], b2, None, None], "relu", 1, 0, 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())


def test_sparse_mixer() -> None:
    """Each expert's weight is a softmax over those whose logit is within 2% of its own."""
    logits = np.array([[2.0, 1.99, -1.0, 0.5], [0.1, 3.0, 0.3, 0.2]], np.float32)
    eye = np.broadcast_to(np.eye(2, dtype=np.float32), (4, 2, 2)) * np.array([1, 10, 100, 1000], np.float32)[:, None, None]
    x = np.ones((2, 2), np.float32)
    found = run("MoE", [x, logits, eye, None, np.ones_like(eye) * np.eye(2, dtype=np.float32)], k=2, use_sparse_mixer=1)[0]
    pair = np.exp([2.0, 1.99]) / np.exp([2.0, 1.99]).sum()
    np.testing.assert_allclose(found[0], pair[0] * 1 + 1.0 * 10, rtol=1e-5)
    np.testing.assert_allclose(found[1], 1.0 * 10 + 1.0 * 100, rtol=1e-5)


def test_refusals() -> None:
    x, logits, w, v = normal(2, 4), normal(2, 3), normal(3, 6, 4), normal(3, 4, 6)
    with pytest.raises(InvalidGraph, match="k is 4; expected 1 to 3, the number of experts"):
        run("MoE", [x, logits, w, None, v], k=4)
    with pytest.raises(InvalidGraph, match="activation_type is 'step'"):
        run("MoE", [x, logits, w, None, v], activation_type="step")
    with pytest.raises(InvalidGraph, match="swiglu_fusion is 3"):
        run("MoE", [x, logits, w, None, v], swiglu_fusion=3)
    with pytest.raises(InvalidGraph, match="swiglu_fusion 0 needs fc3_experts_weights"):
        run("MoE", [x, logits, w, None, v], activation_type="swiglu")
    with pytest.raises(InvalidGraph, match="required input 'fc2_experts_weights' is missing"):
        run("MoE", [x, logits, w])
    with pytest.raises(InvalidGraph, match="use_sparse_mixer chooses 2 experts"):
        run("MoE", [x, logits, w, None, v], use_sparse_mixer=1)
    with pytest.raises(InvalidGraph, match="router_probs has 3 rows; expected 2"):
        run("MoE", [x, normal(3, 3), w, None, v])
    q = [x, logits, bytes_(3, 6, 2), None, None, bytes_(3, 4, 3)]
    with pytest.raises(InvalidGraph, match="quant_type is 'int3'"):
        run("QMoE", q, quant_type="int3")
    with pytest.raises(InvalidGraph, match="a layout of another runtime cannot be read"):
        run("QMoE", q, weights_prepacked=1)
    with pytest.raises(InvalidGraph, match="weights have 5 bits"):
        run("QMoE", q, expert_weight_bits=5)
    with pytest.raises(InvalidGraph, match=r"needs the inputs fc\*_scales"):
        run("QMoE", q)
