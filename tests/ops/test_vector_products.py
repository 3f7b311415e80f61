"""Products of com.microsoft and of bytes with vectors, whose axes are dropped as MatMul drops them, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper as oh
from onnx import numpy_helper

import intarsia

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
RNG = np.random.default_rng(31)
SHAPES = [((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4,)), ((4,), (2, 4, 5))]


def run(
    provider: str, op: str, inputs: list[Any], constant: tuple[int, ...] = (), *, domain: str = "com.microsoft",
    own: bool = False, **attributes: Any,
) -> np.ndarray:  # fmt: skip
    """One node's result; `own`: every size of an input has a name of its own."""
    arrays = {f"x{i}": np.asarray(x) for i, x in enumerate(inputs) if x is not None}
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    fixed = {f"x{i}" for i in constant}
    kinds = [
        oh.make_tensor_value_info(
            n, oh.np_dtype_to_tensor_dtype(x.dtype), [f"{n}_{axis}" for axis in range(x.ndim)] if own else x.shape
        )
        for n, x in arrays.items()
        if n not in fixed
    ]
    node = oh.make_node(op, names, ["y"], name="node", domain=domain, **attributes)
    graph = oh.make_graph(
        [node], "g", kinds, [onnx.ValueInfoProto(name="y")], [numpy_helper.from_array(arrays[n], n) for n in sorted(fixed)]
    )
    imports = [oh.make_opsetid("", 17), oh.make_opsetid("com.microsoft", 1)]
    session = intarsia.InferenceSession(oh.make_model(graph, opset_imports=imports, ir_version=8), providers=[provider])
    found: np.ndarray = session.run(None, {n: x for n, x in arrays.items() if n not in fixed})[0]
    return found


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """[N, blocks, size] -> bytes, low bits first."""
    return codes.astype(np.uint8) if bits == 8 else (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("constant", [(), (1, 2, 5)], ids=["run", "constant"])
@pytest.mark.parametrize("own", [False, True], ids=["numbers", "own"])
@pytest.mark.parametrize(("bits", "k", "n"), [(4, 64, 3), (4, 256, 70), (8, 96, 40)])
def test_matmul_n_bits(bits: int, k: int, n: int, own: bool, constant: tuple[int, ...], provider: str) -> None:
    codes = RNG.integers(0, 1 << bits, (n, k // 32, 32))
    scales, bias, a = RNG.uniform(0.1, 1, (n, k // 32)), RNG.normal(size=n), RNG.normal(size=k)
    weights = ((codes - (1 << (bits - 1))) * scales.astype(np.float32)[..., None].astype(np.float64)).reshape(n, k)
    inputs = [a.astype(np.float32), packed(codes, bits), scales.astype(np.float32), None, None, bias.astype(np.float32)]
    found = run(provider, "MatMulNBits", inputs, constant, own=own, K=k, N=n, bits=bits, block_size=32)
    assert found.shape == (n,)
    np.testing.assert_allclose(found, weights @ a + bias, atol=1e-5 * float(np.abs(weights).sum(1).max()))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_matmul_n_bits_in_half_precision(provider: str) -> None:
    codes, scales, a = RNG.integers(0, 16, (3, 2, 32)), RNG.uniform(0.1, 1, (3, 2)), RNG.normal(size=64).astype(np.float16)
    weights = ((codes - 8) * scales.astype(np.float16).astype(np.float64)[..., None]).reshape(3, 64)
    inputs = [a, packed(codes, 4), scales.astype(np.float16)]
    found = run(provider, "MatMulNBits", inputs, (1, 2), K=64, N=3, bits=4, block_size=32)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, weights @ a.astype(np.float64), rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("own", [False, True], ids=["numbers", "own"])
@pytest.mark.parametrize("fixed", [False, True], ids=["run", "constant"])
@pytest.mark.parametrize(("left", "right"), SHAPES, ids=[f"{len(a)}x{len(b)}" for a, b in SHAPES])
def test_products_of_bytes(left: tuple[int, ...], right: tuple[int, ...], fixed: bool, own: bool, provider: str) -> None:
    a, b = RNG.integers(0, 256, left).astype(np.uint8), RNG.integers(-128, 128, right).astype(np.int8)
    constant = tuple(range(1, 6)) if fixed else ()
    exact = (a.astype(np.int64) - 7) @ (b.astype(np.int64) - 3)
    found = run(provider, "MatMulInteger", [a, b, np.uint8(7), np.int8(3)], constant[:3], domain="", own=own)
    np.testing.assert_array_equal(found, exact)
    scales, zeros = [np.float32(0.1), np.float32(0.2)], [np.uint8(7), np.int8(3)]
    found = run(provider, "MatMulIntegerToFloat", [a, b, *scales, *zeros], constant, own=own)
    np.testing.assert_allclose(found, exact * np.float64(np.float32(0.1)) * np.float32(0.2), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("fixed", [False, True], ids=["run", "constant"])
@pytest.mark.parametrize(("left", "right"), SHAPES, ids=[f"{len(a)}x{len(b)}" for a, b in SHAPES])
def test_quantised_products(left: tuple[int, ...], right: tuple[int, ...], fixed: bool, provider: str) -> None:
    a, b = RNG.integers(0, 256, left).astype(np.uint8), RNG.integers(-128, 128, right).astype(np.int8)
    inputs = [a, np.float32(0.5), np.uint8(128), b, np.float32(0.25), np.int8(0), np.float32(40), np.uint8(120)]
    found = run(provider, "QLinearMatMul", inputs, tuple(range(1, 8)) if fixed else (), domain="")
    exact = (a.astype(np.float64) - 128) @ b.astype(np.float64) * 0.125 / 40
    expected = np.clip(np.rint(exact) + 120, 0, 255)
    assert found.dtype == np.uint8
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1  # a tie may round the other way


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("fixed", [False, True], ids=["run", "constant"])
@pytest.mark.parametrize(("left", "right"), SHAPES, ids=[f"{len(a)}x{len(b)}" for a, b in SHAPES])
def test_products_that_quantise_their_rows(left: tuple[int, ...], right: tuple[int, ...], fixed: bool, provider: str) -> None:
    a, b = RNG.normal(size=left).astype(np.float32), RNG.integers(-128, 128, right).astype(np.int8)
    found = run(provider, "DynamicQuantizeMatMul", [a, b, np.float32(0.5)], (1, 2) if fixed else ())
    low, high = min(float(a.min()), 0.0), max(float(a.max()), 0.0)
    step = np.float32((np.float32(high) - np.float32(low)) / np.float32(255))
    zero = np.rint(-low / step)
    rounded = (np.clip(np.rint(a / step) + zero, 0, 255) - zero) * np.float64(step)
    np.testing.assert_allclose(found, rounded @ (b.astype(np.float64) * 0.5), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("transposed", [(0, 0), (1, 1)])
@pytest.mark.parametrize(("left", "right"), SHAPES, ids=[f"{len(a)}x{len(b)}" for a, b in SHAPES])
def test_vectors_are_not_transposed(
    left: tuple[int, ...], right: tuple[int, ...], transposed: tuple[int, int], provider: str
) -> None:
    a, b = RNG.normal(size=left), RNG.normal(size=right)
    given = [x.swapaxes(-1, -2) if t and x.ndim > 1 else x for x, t in zip((a, b), transposed, strict=True)]
    inputs = [x.astype(np.float32) for x in given]
    found = run(provider, "FusedMatMul", inputs, transA=transposed[0], transB=transposed[1], alpha=0.5)
    np.testing.assert_allclose(found, a @ b * 0.5, rtol=1e-4, atol=1e-5)
