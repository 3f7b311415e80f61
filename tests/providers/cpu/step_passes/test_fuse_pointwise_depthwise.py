"""A pointwise convolution and a depthwise one as one step, stripe by stripe."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from cpu_models import check, normal, session_of

import intarsia as ort
from intarsia.providers.cpu.kernels.conv import fused_pointwise_depthwise_kernel
from intarsia.providers.cpu.step_passes import fuse_pointwise_depthwise


def labels(session: ort.InferenceSession) -> list[str]:
    (program,) = session._model.programs
    return [step.label for segment in program.executable.segments() for step in segment.steps]


@pytest.fixture(autouse=True)
def small_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse_pointwise_depthwise, "_LEAST_NBYTES", 1)
    monkeypatch.setattr(fuse_pointwise_depthwise, "_STRIPE_NBYTES", 1 << 13)


WINDOWS = {  # kernel, attributes
    "3x3": (3, "pads = [1, 1, 1, 1]"),
    "5x5, stride 2": (5, "pads = [2, 2, 2, 2], strides = [2, 2]"),
    "no border": (3, ""),
    "dilated, uneven border": (3, "pads = [3, 1, 0, 2], dilations = [2, 1], strides = [1, 2]"),
    "wide stride": (3, "pads = [1, 1, 1, 1], strides = [3, 3]"),
    "stride beyond the kernel": (1, "strides = [2, 2]"),
    "large border": (7, "pads = [6, 6, 6, 6]"),
}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_pairs(window: str, threads: int) -> None:
    size, attributes = WINDOWS[window]
    text = f"""g (float[2, 7, 19, 17] x) => (float[2, 24, h, w] y) {{
        a = Conv(x, f, b)  r = HardSwish(a)
        d = Conv <group = 24{", " + attributes if attributes else ""}> (r, k, c)  y = Relu(d) }}"""
    constants = {"f": normal(24, 7, 1, 1), "b": normal(24), "k": normal(24, 1, size, size, seed=1), "c": normal(24, seed=2)}
    x = {"x": normal(2, 7, 19, 17)}
    session = check(text, x, constants=constants, rtol=2e-5)
    assert [n for n in labels(session) if ", depthwise" in n]
    of_threads = session_of(text, constants, threads=threads)
    np.testing.assert_array_equal(of_threads.run(None, x)[0], session.run(None, x)[0])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_batch_that_only_a_run_knows(threads: int) -> None:
    text = """g (float[n, 7, 19, 17] x) => (float[n, 24, 19, 17] y) {
        a = Conv(x, f, b)  r = HardSwish(a)  d = Conv <group = 24, pads = [1, 1, 1, 1]> (r, k, c)  s = Relu(d)
        t = Conv(s, g)  y = Add(t, d) }"""
    constants = {
        "f": normal(24, 7, 1, 1), "b": normal(24), "k": normal(24, 1, 3, 3, seed=1), "c": normal(24, seed=2),
        "g": normal(24, 24, 1, 1, seed=3),
    }  # fmt: skip
    images = normal(9, 7, 19, 17)
    session = check(text, {"x": images[:4]}, constants=constants, rtol=2e-5)
    assert [n for n in labels(session) if ", depthwise" in n]
    of_threads = session_of(text, constants, threads=threads)
    one_by_one = np.concatenate([of_threads.run(None, {"x": images[i : i + 1]})[0] for i in range(9)])
    for count in (9, 2, 5, 0, 3):
        np.testing.assert_array_equal(of_threads.run(None, {"x": images[:count]})[0], one_by_one[:count])


@pytest.mark.parametrize(
    "tail",
    [
        "d = Conv <group = 8, pads = [1, 1, 1, 1]> (a, k)  y = Add(d, a)",  # what is between is used again
        "d = Conv <group = 8, pads = [1, 1, 1, 1]> (a, k)  y = Add(d, x)",  # the second has an operand of the whole map
    ],
)
def test_others_stay_apart(tail: str) -> None:
    text = f"g (float[1, 8, 9, 9] x) => (float[1, 8, 9, 9] y) {{ a = Conv(x, f)  {tail} }}"
    session = check(text, {"x": normal(1, 8, 9, 9)}, constants={"f": normal(8, 8, 1, 1), "k": normal(8, 1, 3, 3)}, rtol=2e-5)
    assert not [n for n in labels(session) if ", depthwise" in n]


@pytest.mark.parametrize("window", [(3, 1, 1), (5, 2, 2), (7, 1, 6), (3, 3, 0), (1, 2, 0), (5, 1, 0)])
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("most", [1, 6, 100])
def test_stripes_cover_the_map(window: tuple[int, int, int], threads: int, most: int) -> None:
    extent, stride, pad = window
    inner = 40
    lines = (inner + 2 * pad - extent) // stride + 1
    found = fused_pointwise_depthwise_kernel.cut(lines, inner, window, most, threads)
    assert [i for s in found for i in range(*s.out)] == list(range(lines))
    for before, stripe in zip([None, *found], found, strict=False):
        first, last = stripe.out
        wanted = {y for i in (first, last - 1) for y in range(i * stride - pad, i * stride - pad + extent) if 0 <= y < inner}
        assert wanted <= set(range(*stripe.inner))
        if stripe.retained:
            assert before is not None
            assert before.inner[0] + stripe.retained_from == stripe.inner[0]
            assert stripe.inner[0] + stripe.retained == before.inner[1]
            assert stripe.retained_from >= stripe.retained, "moved lines overlap with where they go"
