"""Values of more than four axes, and TopK, on a simulated phone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from simulated_nnapi import SimulatedLibrary

import intarsia as ort

NAME = "NnapiExecutionProvider"
Phone = Callable[..., SimulatedLibrary]
RNG = np.random.default_rng(3)


def session(text: str, opset: int = 17, **entries: str) -> ort.InferenceSession:
    """On the phone alone."""
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')
    options = ort.SessionOptions()
    for name, value in {"partition__keep_islands": "1", "session__cache_weights_mib": "0", **entries}.items():
        options.add_session_config_entry(name.replace("__", "."), value)
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(proto.SerializeToString(), options, providers=[NAME])


def listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


@pytest.mark.parametrize("level", [29, 31, 1000008])
def test_channels_are_shuffled(level: int, phone: Phone) -> None:
    """As ShuffleNet does, between two convolutions: by one TRANSPOSE of four axes."""
    simulated = phone(level)
    made = session(
        """g (float[1, 6, 4, 5] x) => (float[1, 6, 4, 5] y)
        <int64[5] a = {1, 2, 3, 4, 5}, int64[4] b = {1, 6, 4, 5}, float[6, 1, 1, 1] w = {1, 2, 3, 4, 5, 6}> {
            c = Conv<group = 6>(x, w)  r = Reshape(c, a)  t = Transpose<perm = [0, 2, 1, 3, 4]>(r)  s = Reshape(t, b)
            y = Conv<group = 6>(s, w) }"""
    )
    x = RNG.standard_normal((1, 6, 4, 5)).astype(np.float32)
    w = np.arange(1, 7, dtype=np.float32).reshape(1, 6, 1, 1)
    wanted = (x * w).reshape(1, 2, 3, 4, 5).transpose(0, 2, 1, 3, 4).reshape(1, 6, 4, 5) * w
    np.testing.assert_allclose(made.run(None, {"x": x})[0], wanted, rtol=1e-6)
    assert simulated.operations_seen["TRANSPOSE"] >= 1


@pytest.mark.parametrize("perm", [p for k, p in enumerate(itertools.permutations(range(5))) if k % 7 == 0])
def test_transposes_of_five_axes(perm: tuple[int, ...], phone: Phone) -> None:
    phone(31)
    shape = (2, 3, 4, 5, 2)
    turned = [shape[p] for p in perm]
    made = session(
        f"g (float[{listed(shape)}] x) => (float[{listed(turned)}] y) {{ y = Transpose<perm = [{listed(perm)}]>(x) }}"
    )
    x = RNG.standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(made.run(None, {"x": x})[0], x.transpose(perm))


@pytest.mark.parametrize(
    ("shape", "perm"),
    [
        ((2, 3, 4, 2, 3, 2), (5, 4, 3, 2, 1, 0)),
        ((1, 2, 1, 3, 1, 4), (4, 5, 0, 3, 2, 1)),
        ((2, 1, 3, 1, 2, 2), (0, 2, 1, 4, 3, 5)),  # nothing moves
        ((2, 2, 2, 2, 2, 2, 2), (0, 2, 4, 6, 1, 3, 5)),
    ],
)
@pytest.mark.parametrize("kind", ["float", "float16", "int32", "bool", "uint8", "int8"])
def test_more_axes_and_other_types(shape: tuple[int, ...], perm: tuple[int, ...], kind: str, phone: Phone) -> None:
    phone(1000008)
    turned = [shape[p] for p in perm]
    text = f"g ({kind}[{listed(shape)}] x) => ({kind}[{listed(turned)}] y) {{ y = Transpose<perm = [{listed(perm)}]>(x) }}"
    if kind in ("int32", "bool") and perm != (0, 2, 1, 4, 3, 5):  # NNAPI's TRANSPOSE has no such types
        with pytest.raises(ort.NotImplemented, match="TRANSPOSE takes no TENSOR_"):
            session(text)
        return
    made = session(text)
    x = RNG.integers(0, 2 if kind == "bool" else 100, shape).astype("float32" if kind == "float" else kind)
    np.testing.assert_array_equal(made.run(None, {"x": x})[0], x.transpose(perm))


def test_values_of_five_axes_come_in_and_go_out(phone: Phone) -> None:
    phone(31)
    made = session(
        """g (float[2, 3, 4, 5, 6] x) => (float[2, 3, 4, 5, 6] y, float[6, 20, 6] z, float[1, 2, 3, 4, 5, 6] u)
        <int64[3] s = {6, 20, 6}, int64[5] back = {2, 3, 4, 5, 6}, int64[1] zero = {0}>
        { z = Reshape(x, s)  y = Reshape(z, back)  u = Unsqueeze(x, zero) }"""
    )
    x = RNG.standard_normal((2, 3, 4, 5, 6)).astype(np.float32)
    y, z, u = made.run(None, {"x": x})
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(z, x.reshape(6, 20, 6))
    np.testing.assert_array_equal(u, x[None])


# TopK


@pytest.mark.parametrize("largest", [1, 0])
@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int32])
def test_top_k_with_equal_elements(kind: Any, axis: int, largest: int, phone: Phone) -> None:
    """Of equal elements the first one comes first, where TOPK_V2 has the last one; the least 32-bit number has no negative."""
    phone(31)
    x = RNG.integers(-2, 3, (4, 5, 6)).astype(kind)
    if kind is np.int32:
        x[0, 0, :3] = np.iinfo(np.int32).min, np.iinfo(np.int32).max, np.iinfo(np.int32).min
    shape = list(x.shape)
    shape[axis] = 3
    name = {np.float32: "float", np.float16: "float16", np.int32: "int32"}[kind]
    if kind is np.int32 and axis != -1:
        with pytest.raises(ort.NotImplemented, match="TRANSPOSE takes no TENSOR_INT32"):
            session(f"g (int32[4, 5, 6] x) => (int32[{listed(shape)}] v, int64[{listed(shape)}] i) <int64[1] k = {{3}}>"
                    f"{{ v, i = TopK<axis = {axis}, largest = {largest}>(x, k) }}")  # fmt: skip
        return
    made = session(
        f"""g ({name}[4, 5, 6] x) => ({name}[{listed(shape)}] v, int64[{listed(shape)}] i) <int64[1] k = {{3}}>
        {{ v, i = TopK<axis = {axis}, largest = {largest}>(x, k) }}"""
    )
    values, places = made.run(None, {"x": x})
    wide = x.astype(np.float64)
    order = np.argsort(-wide if largest else wide, axis=axis, kind="stable").take(range(3), axis)
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis))
    assert places.dtype == np.int64 and values.dtype == kind


def test_top_k_that_is_left(phone: Phone) -> None:
    phone(31)
    with pytest.raises(ort.NotImplemented, match="NNAPI takes no tensor whose size only a run's data decide"):
        session("g (float[6] x, int64[1] k) => (float[m] v, int64[m] i) { v, i = TopK(x, k) }")
    with pytest.raises(ort.NotImplemented, match="TENSOR_QUANT8_ASYMM has no negative of each"):
        session("g (uint8[6] x) => (uint8[2] v, int64[2] i) <int64[1] k = {2}> { v, i = TopK<largest = 0>(x, k) }")
