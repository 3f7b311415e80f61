"""Random operators on the CPU provider: shapes, types, seeds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.parser")

from cpu_models import CPU, REFERENCE, kinds, session_of

import intarsia

NUMBERS = {"float": 1, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "double": 11, "bfloat16": 16}


@pytest.mark.parametrize("op", ["RandomNormal", "RandomUniform"])
def test_given_shapes_and_seeds(op: str) -> None:
    seeded = session_of(f"g () => (float[30, 5] y) {{ y = {op}<shape = [30, 5], seed = 3.0>() }}")
    first, second = (seeded.run(None, {})[0] for _ in range(2))
    assert (first.dtype, first.shape) == (np.float32, (30, 5))
    np.testing.assert_array_equal(first, second)
    free = session_of(f"g () => (float[30, 5] y) {{ y = {op}<shape = [30, 5]>() }}")
    assert (free.run(None, {})[0] != free.run(None, {})[0]).any()


def test_the_shared_seed_repeats_what_follows() -> None:
    session = session_of("g (float[n] x) => (float[n] y) { y = RandomUniformLike(x) }")
    feed = {"x": np.zeros(100, np.float32)}
    runs = []
    for _ in range(2):
        intarsia.set_seed(11)
        runs.append([session.run(None, feed)[0] for _ in range(2)])
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0][0] != runs[0][1]).any()


@pytest.mark.parametrize("kind", ["float", "double", "float16", "bfloat16"])
@pytest.mark.parametrize("op", ["RandomNormalLike<mean = 2.0, scale = 3.0>", "RandomUniformLike<low = -2.0, high = 5.0>"])
@pytest.mark.parametrize("seed", ["", "seed = 4.5"])
def test_every_provider_draws_the_same(kind: str, op: str, seed: str) -> None:
    node = op.replace(">", f", {seed}>" if seed else ">")
    text = f"g (float[n, 3] x) => ({kind}[n, 3] y) {{ y = {node.replace('>', f', dtype = {NUMBERS[kind]}>')}(x) }}"
    sessions = [session_of(text), session_of(text, provider=REFERENCE)]
    assert set(kinds(sessions[0]).values()) == {"compiled"}
    found = []
    for session in sessions:
        intarsia.set_seed(3)
        found.append([session.run(None, {"x": np.zeros((41, 3), np.float32)})[0].astype(np.float64) for _ in range(2)])
    rtol = {"float": 3e-6, "double": 1e-14, "float16": 2e-3, "bfloat16": 1e-2}[kind]
    for cpu, reference in zip(*found, strict=True):
        np.testing.assert_allclose(cpu, reference, rtol=rtol, atol=rtol)
    assert (found[0][0] == found[0][1]).all() == bool(seed)


def test_bernoulli_of_all_types() -> None:
    for source, result in itertools.product(("float", "double", "float16"), ("float", "bool", "int8", "int64", "double")):
        node = f"Bernoulli<dtype = {NUMBERS[result]}, seed = 1.0>(x)"
        text = f"g ({source}[n] x) => ({result}[n] y) {{ y = {node} }}"
        x = np.linspace(0, 1, 300).astype({"float": np.float32, "double": np.float64, "float16": np.float16}[source])
        cpu, reference = (session_of(text, provider=p).run(None, {"x": x})[0] for p in (CPU, REFERENCE))
        assert cpu.dtype == reference.dtype
        np.testing.assert_array_equal(cpu, reference)
        assert 0 < cpu.astype(np.float64).mean() < 1


@pytest.mark.parametrize(("kind", "target"), [("float", "int32"), ("double", "int64"), ("float16", "int32")])
def test_multinomial(kind: str, target: str) -> None:
    node = f"Multinomial<sample_size = 20000, seed = 2.0, dtype = {NUMBERS[target]}>(x)"
    text = f"g ({kind}[b, c] x) => ({target}[b, n] y) {{ y = {node} }}"
    chances = np.array([[0.5, 0.25, 0.25, 0.0], [0.1, 0.2, 0.3, 0.4]])
    with np.errstate(divide="ignore"):
        x = (np.log(chances) + 3).astype({"float": np.float32, "double": np.float64, "float16": np.float16}[kind])
    cpu, reference = (session_of(text, provider=p).run(None, {"x": x})[0] for p in (CPU, REFERENCE))
    assert cpu.dtype == np.dtype(target)
    assert (cpu != reference).mean() < 1e-3  # a number at the border of two classes may fall to either
    for row, expected in zip(cpu, chances, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=4) / 20000, expected, atol=0.02)
    assert set(kinds(session_of(text)).values()) == {"compiled"}


def test_draws_inside_a_loop_differ() -> None:
    body = "b (int64 i, bool c) => (bool c2, float[4] r) { c2 = Identity(c) r = RandomUniform<shape = [4]>() }"
    text = f"g (int64 n) => (float[k, 4] y) {{ t = Constant<value = bool {{1}}>() y = Loop<body = {body}>(n, t) }}"
    for provider in (CPU, REFERENCE):
        intarsia.set_seed(5)
        (y,) = session_of(text, provider=provider).run(None, {"n": np.array(3)})
        assert len(np.unique(y)) == 12


def test_bernoulli() -> None:
    session = session_of("g (float[n] x) => (float[n] y) { y = Bernoulli<seed = 2.0>(x) }")
    (y,) = session.run(None, {"x": np.array([0.0, 1.0] * 500, np.float32)})
    np.testing.assert_array_equal(y, [0.0, 1.0] * 500)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("kind", ["float", "double", "float16"])
def test_dropout_scales_what_stays(constant: bool, kind: str) -> None:
    dtype = {"float": np.float32, "double": np.float64, "float16": np.float16}[kind]
    given = {"r": np.array(0.25, np.float32), "t": np.array(True)}
    inputs = "" if constant else ", float r, bool t"
    text = f"g ({kind}[n] x{inputs}) => ({kind}[n] y, bool[n] m) {{ y, m = Dropout(x, r, t) }}"
    session = session_of(text, given if constant else None)
    assert set(kinds(session).values()) == {"compiled" if constant else "host"}
    x = np.arange(1, 2001).astype(dtype)
    masks = []
    for _ in range(2):
        y, mask = session.run(None, {"x": x} if constant else {"x": x, **given})
        np.testing.assert_allclose(y, np.where(mask, x / 0.75, 0), rtol=1e-3 if kind == "float16" else 1e-6)
        assert abs(mask.mean() - 0.75) < 0.05
        masks.append(mask)
    assert (masks[0] != masks[1]).any()
    alone = session_of(f"g ({kind}[n] x) => ({kind}[n] y) {{ y = Dropout(x, r, t) }}", given)
    assert (alone.run(None, {"x": x})[0] == 0).any()
