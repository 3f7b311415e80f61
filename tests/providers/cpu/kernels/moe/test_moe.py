"""MoE and QMoE with constant weights run as kernels; the host's definition, itself checked in tests/ops, is the reference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from device_graphs import why_not
from onnx import helper, numpy_helper

import intarsia
from intarsia.graph.model import Node
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node

EXPERTS, WIDTH, INNER = 5, 40, 24
Inputs = list[Any]


def numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) * 0.3).astype(np.float32)


def session_of(
    op: str, inputs: Inputs, x: np.ndarray, logits: np.ndarray, provider: str = "CPUExecutionProvider", **attributes: Any
) -> intarsia.InferenceSession:
    """All but x (i0) and the logits (i1) are constants."""
    names = [f"i{n}" if v is not None else "" for n, v in enumerate([x, logits, *inputs])]
    node = helper.make_node(op, names, ["y"], domain="com.microsoft", **attributes)
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [node], "g",
        [
            helper.make_tensor_value_info(names[0], element, [*["n", "s"][: x.ndim - 1], x.shape[-1]]),
            helper.make_tensor_value_info(names[1], element, ["t", logits.shape[-1]]),
        ],
        [helper.make_tensor_value_info("y", element, None)],
        [numpy_helper.from_array(v, n) for n, v in zip(names[2:], inputs, strict=True) if v is not None],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1" if provider != "CPUExecutionProvider" else "0")
    return intarsia.InferenceSession(model.SerializeToString(), options, providers=[provider])


def compiled(op: str, inputs: Inputs, x: np.ndarray, logits: np.ndarray, **attributes: Any) -> tuple[np.ndarray, set[str]]:
    """The result of the CPU provider, and what kinds of nodes it has."""
    session = session_of(op, inputs, x, logits, **attributes)
    kinds = {node["kind"] for node in session.explain().to_dict()["nodes"]}
    return session.run(None, {"i0": x, "i1": logits})[0], kinds


def defined(op: str, inputs: Inputs, x: np.ndarray, logits: np.ndarray, **attributes: Any) -> np.ndarray:
    given = [x, logits, *inputs]
    node = Node(
        op, [f"i{n}" if v is not None else "" for n, v in enumerate(given)], ["y"], attributes, "com.microsoft", version=1
    )
    return np.asarray(evaluate_node(node, given, registry())[0])


def check(op: str, inputs: Inputs, x: np.ndarray, logits: np.ndarray, native: bool = True, **attributes: Any) -> None:
    found, kinds = compiled(op, inputs, x, logits, **attributes)
    assert ("host" not in kinds) == native, kinds
    wanted = defined(op, inputs, x, logits, **attributes)
    assert found.shape == wanted.shape == x.shape and found.dtype == x.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def floats(rng: np.random.Generator, wide: int = INNER, third: bool = False, biases: bool = True) -> Inputs:
    def layer(out: int, depth: int) -> Inputs:
        return [numbers(rng, EXPERTS, out, depth), numbers(rng, EXPERTS, out) if biases else None]

    return [*layer(wide, WIDTH), *layer(WIDTH, INNER), *(layer(INNER, WIDTH) if third else [])]


@pytest.mark.parametrize("tokens", [0, 1, 3, 150])
@pytest.mark.parametrize("count", [1, 2, EXPERTS])
def test_tokens_and_choices(tokens: int, count: int) -> None:
    rng = np.random.default_rng(tokens + count)
    x, logits = numbers(rng, tokens, WIDTH), numbers(rng, tokens, EXPERTS)
    check("MoE", floats(rng, biases=count != 2), x, logits, k=count, normalize_routing_weights=count % 2)


@pytest.mark.parametrize(
    ("kind", "fusion", "third"),
    [
        ("relu", 0, False), ("gelu", 0, False), ("silu", 0, True), ("identity", 0, False), ("swiglu", 0, True),
        ("swiglu", 1, False), ("swiglu", 2, False),
    ],
)  # fmt: skip
def test_activations(kind: str, fusion: int, third: bool) -> None:
    rng = np.random.default_rng(3)
    given = floats(rng, INNER * (2 if fusion else 1), third)
    attributes: dict[str, Any] = {"activation_type": kind, "swiglu_fusion": fusion, "k": 2}
    if kind == "swiglu":
        attributes |= {"activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_limit": 0.4}
    check("MoE", given, numbers(rng, 2, 6, WIDTH), numbers(rng, 12, EXPERTS), **attributes)


def test_all_tokens_to_one_expert_and_ties() -> None:
    """Equal logits go to the first experts, all others have no rows; many rows are cut into tiles and chunks."""
    rng = np.random.default_rng(4)
    check("MoE", floats(rng), numbers(rng, 300, WIDTH), np.zeros((300, EXPERTS), np.float32), k=2)


def integers(rng: np.random.Generator, bits: int, block: int, zeros: bool) -> tuple[Inputs, dict[str, Any]]:
    def layer(out: int, depth: int) -> tuple[Inputs, Any]:
        shape = (EXPERTS, out, depth // block) if block else (EXPERTS, out)
        packed = (EXPERTS, out, -(-(depth // block) * bits // 8)) if block else (EXPERTS, -(-out * bits // 8))
        values = rng.integers(0, 256, (EXPERTS, out, depth * bits // 8)).astype(np.uint8)
        scales = np.abs(numbers(rng, *shape)) * np.float32(0.1)
        return [values, scales, numbers(rng, EXPERTS, out)], rng.integers(0, 256, packed).astype(np.uint8)

    (first, z1), (second, z2) = layer(INNER, WIDTH), layer(WIDTH, INNER)
    given = [*first, *second, *([None, None, None, z1, z2] if zeros else [])]
    return given, {"expert_weight_bits": bits, **({"block_size": block} if block else {})}


@pytest.mark.parametrize("tokens", [1, 2, 60])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("bits", "block"), [(2, 0), (4, 0), (8, 0), (2, 8), (4, 8), (8, 8)])
def test_integers(tokens: int, bits: int, block: int, zeros: bool) -> None:
    rng = np.random.default_rng(bits + block)
    given, attributes = integers(rng, bits, block, zeros)
    x, logits = numbers(rng, tokens, WIDTH), numbers(rng, tokens, EXPERTS)
    check("QMoE", given, x, logits, k=2, activation_type="silu", **attributes)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_scales_that_are_not_finite(bad: float) -> None:
    """They meet the zeros of their blocks, not only their sums: the definition multiplies."""
    rng = np.random.default_rng(3)
    given, attributes = integers(rng, 4, 8, False)
    numbers_of, scales = given[:2]
    assert numbers_of is not None and scales is not None
    numbers_of[:] = 0x99  # all of them 1, but one of them 0
    numbers_of[:, 0, 0] = 0x89
    scales[:, 0, 0] = bad
    x, logits = np.abs(numbers(rng, 9, WIDTH)), numbers(rng, 9, EXPERTS)
    check("QMoE", given, x, logits, k=2, activation_type="relu", **attributes)


@pytest.mark.parametrize("tokens", [1, 60])
@pytest.mark.parametrize(
    ("kind", "block", "scale"), [("fp4", 32, "e8m0fnu"), ("nvfp4", 16, "e4m3fn"), ("wfp4afp8", 32, "e8m0fnu")]
)
def test_float4(kind: str, block: int, scale: str, tokens: int) -> None:
    """The last block of 40 or 24 numbers is not full."""
    rng = np.random.default_rng(block)

    def layer(out: int, depth: int) -> Inputs:
        codes = rng.integers(0, 256, (EXPERTS, out, depth // 2)).astype(np.uint8)
        scales = 2.0 ** rng.integers(-5, -2, (EXPERTS, out, -(-depth // block)))
        return [codes, scales.astype(getattr(ml_dtypes, f"float8_{scale}")), numbers(rng, EXPERTS, out)]

    given = [*layer(INNER, WIDTH), *layer(WIDTH, INNER), *[None] * 7, *(np.abs(numbers(rng, EXPERTS)) for _ in range(2))]
    x, logits = numbers(rng, tokens, WIDTH), numbers(rng, tokens, EXPERTS)
    check("QMoE", given, x, logits, k=2, activation_type="silu", quant_type=kind)


def test_weights_of_the_router() -> None:
    rng = np.random.default_rng(5)
    given, attributes = integers(rng, 4, 0, False)
    mixing = np.abs(numbers(rng, 7, EXPERTS))
    given += [*[None] * (12 - len(given)), mixing]
    x, logits = numbers(rng, 7, WIDTH), numbers(rng, 7, EXPERTS)
    found, _ = compiled("QMoE", given, x, logits, k=2, normalize_routing_weights=1, **attributes)
    wanted = defined("QMoE", given, x, logits, k=2, normalize_routing_weights=1, **attributes)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["MoE", "QMoE"])
def test_16_bit_floats(op: str) -> None:
    rng = np.random.default_rng(6)
    given, attributes = (floats(rng), {}) if op == "MoE" else integers(rng, 4, 8, True)
    half = [v.astype(np.float16) if v is not None and v.dtype == np.float32 else v for v in given]
    x, logits = numbers(rng, 9, WIDTH).astype(np.float16), numbers(rng, 9, EXPERTS).astype(np.float16)
    found, kinds = compiled(op, half, x, logits, k=2, **attributes)
    assert "host" not in kinds
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, defined(op, half, x, logits, k=2, **attributes), rtol=2e-3, atol=1e-3)


def test_what_stays_whole() -> None:
    rng = np.random.default_rng(7)
    x, logits = numbers(rng, 6, WIDTH), numbers(rng, 6, EXPERTS)
    check("MoE", floats(rng), x, logits, native=False, k=2, use_sparse_mixer=1)
    q = rng.integers(0, 256, (EXPERTS, INNER, 30)).astype(np.uint8), rng.integers(0, 256, (EXPERTS, 30, INNER)).astype(np.uint8)
    s = np.abs(numbers(rng, EXPERTS, INNER, 5)), np.abs(numbers(rng, EXPERTS, 30))
    # blocks of 6 numbers: the kernel's words hold 4
    check("QMoE", [q[0], s[0], None, q[1], s[1], None], x[:, :30], logits, native=False, k=1, expert_weight_bits=8)


def test_rows_of_the_router() -> None:
    """Sizes that are known when it runs are checked then."""
    rng = np.random.default_rng(8)
    with pytest.raises(intarsia.IntarsiaError, match="MoE"):
        compiled("MoE", floats(rng), numbers(rng, 6, WIDTH), numbers(rng, 5, EXPERTS), k=1)


# --- on devices -------------------------------------------------------------------------------------------------------

PROVIDERS = {"webgpu": "WebGpuExecutionProvider", "opencl": "OpenCLExecutionProvider"}


@pytest.mark.parametrize("tokens", [2, 7], ids=["gathered", "through all"])
@pytest.mark.parametrize(("op", "bits", "block"), [("MoE", 0, 0), ("QMoE", 4, 8), ("QMoE", 8, 0), ("QMoE", 2, 8)])
@pytest.mark.parametrize("device", PROVIDERS)
def test_devices(device: str, op: str, bits: int, block: int, tokens: int) -> None:
    """Two tokens with two experts each read less by gathering them than all five; seven go through every expert."""
    if why := why_not(device):
        pytest.skip(f"no {device} device: {why}")
    rng = np.random.default_rng(bits + block + tokens)
    given, attributes = integers(rng, bits, block, block > 0) if bits else (floats(rng), {})
    x, logits = numbers(rng, tokens, WIDTH), numbers(rng, tokens, EXPERTS)
    attributes |= {"k": 2, "activation_type": "silu", "normalize_routing_weights": 1}
    found = session_of(op, given, x, logits, PROVIDERS[device], **attributes).run(None, {"i0": x, "i1": logits})[0]
    np.testing.assert_allclose(found, defined(op, given, x, logits, **attributes), rtol=1e-4, atol=1e-5)


def stored_floats(rng: np.random.Generator, kind: str) -> tuple[Inputs, dict[str, Any]]:
    """Weights in floats of 4 or 8 bits, or integers of 3; blocks are not full where rows end."""
    block = {"nvfp4": 16, "fp4": 32}.get(kind, 16)

    def layer(out: int, depth: int) -> Inputs:
        blocks = -(-depth // block)
        if kind == "int":
            return [
                rng.integers(0, 256, (EXPERTS, out, depth * 3 // 8)).astype(np.uint8),
                np.abs(numbers(rng, EXPERTS, out)),
                None,
            ]
        if kind == "fp8":
            values = numbers(rng, EXPERTS, out, depth).astype(ml_dtypes.float8_e4m3fn)
            return [values, np.abs(numbers(rng, EXPERTS, -(-out // block), blocks)), numbers(rng, EXPERTS, out)]
        codes = rng.integers(0, 256, (EXPERTS, out, depth // 2)).astype(np.uint8)
        scales = 2.0 ** rng.integers(-5, -2, (EXPERTS, out, blocks))
        return [codes, scales.astype(ml_dtypes.float8_e4m3fn), numbers(rng, EXPERTS, out)]

    given = [*layer(INNER, WIDTH), *layer(WIDTH, INNER)]
    if kind == "int":
        return given, {"expert_weight_bits": 3}
    whole = [] if kind == "fp8" else [None] * 7 + [np.abs(numbers(rng, EXPERTS)) for _ in range(2)]
    return [*given, *whole], {"quant_type": kind, **({"block_size": block} if kind == "fp8" else {})}


@pytest.mark.parametrize("tokens", [2, 7], ids=["gathered", "through all"])
@pytest.mark.parametrize("kind", ["int", "fp8", "fp4", "nvfp4"])
@pytest.mark.parametrize("device", PROVIDERS)
def test_stored_floats_on_devices(device: str, kind: str, tokens: int) -> None:
    if why := why_not(device):
        pytest.skip(f"no {device} device: {why}")
    rng = np.random.default_rng(tokens)
    given, attributes = stored_floats(rng, kind)
    x, logits = numbers(rng, tokens, WIDTH), numbers(rng, tokens, EXPERTS)
    attributes |= {"k": 2, "activation_type": "silu", "normalize_routing_weights": 1}
    found = session_of("QMoE", given, x, logits, PROVIDERS[device], **attributes).run(None, {"i0": x, "i1": logits})[0]
    np.testing.assert_allclose(found, defined("QMoE", given, x, logits, **attributes), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", PROVIDERS)
def test_sparse_mixer_on_devices(device: str) -> None:
    if why := why_not(device):
        pytest.skip(f"no {device} device: {why}")
    rng = np.random.default_rng(3)
    x, logits = numbers(rng, 6, WIDTH), numbers(rng, 6, EXPERTS) + 1
    attributes = {"k": 2, "use_sparse_mixer": 1}
    given = floats(rng)
    found = session_of("MoE", given, x, logits, PROVIDERS[device], **attributes).run(None, {"i0": x, "i1": logits})[0]
    np.testing.assert_allclose(found, defined("MoE", given, x, logits, **attributes), rtol=1e-4, atol=1e-5)
