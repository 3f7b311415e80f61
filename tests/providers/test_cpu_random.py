"""Random operators on the CPU provider: shapes, types, seeds."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.parser")

from cpu_models import session_of

import intarsia


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


def test_other_types_are_drawn_by_the_definition() -> None:
    session = session_of("g (double[n] x) => (double[n] y) { y = RandomNormalLike(x) }")
    (y,) = session.run(None, {"x": np.zeros(7)})
    assert (y.dtype, y.shape) == (np.float64, (7,))


def test_bernoulli() -> None:
    session = session_of("g (float[n] x) => (float[n] y) { y = Bernoulli<seed = 2.0>(x) }")
    (y,) = session.run(None, {"x": np.array([0.0, 1.0] * 500, np.float32)})
    np.testing.assert_array_equal(y, [0.0, 1.0] * 500)


def test_dropout_scales_what_stays() -> None:
    text = "g (float[n] x, float r, bool t) => (float[n] y, bool[n] m) { y, m = Dropout(x, r, t) }"
    session = session_of(text)
    x = np.arange(1, 20_001, dtype=np.float32)
    y, mask = session.run(None, {"x": x, "r": np.array(0.25, np.float32), "t": np.array(True)})
    np.testing.assert_allclose(y, np.where(mask, x / 0.75, 0), rtol=1e-6)
    assert abs(mask.mean() - 0.75) < 0.02
