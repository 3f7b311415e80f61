"""A model of convolutions whose batch is a number goes in parts as one for any batch does."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from cpu_models import REFERENCE, normal, session_of
from test_microbatches import made

import intarsia as ort
from intarsia.plan import microbatch_cost
from intarsia.providers.cpu.lowering import symbolic_batch

W = {
    "w": normal(8, 4, 3, 3), "v": normal(8, 8, 1, 1), "u": normal(8, 1, 3, 3), "d": normal(648, 5), "z": normal(6, 8, 9, 9),
    "shape": np.array([6, 2, 4, 9, 9]), "back": np.array([6, 8, 9, 9]), "flat": np.array([6, 648]), "all": np.array([1, -1]),
    "eight": np.ones(8, "f4"), "first": np.array([0]),
}  # fmt: skip
BODY = "a = Conv<pads=[1, 1, 1, 1]>(x, w)  r = Relu(a)  c = Conv<group=8, pads=[1, 1, 1, 1]>(r, u)  k = Conv(c, v)"
OPENED = {
    "a map": ("float[6, 8, 9, 9] y", "y = Add(k, r)"),
    "shuffled": (
        "float[6, 8, 9, 9] y",
        "s = Reshape(k, shape)  t = Transpose<perm=[0, 2, 1, 3, 4]>(s)  q = Reshape(t, back)  y = Relu(q)",
    ),
    "classified": ("float[6, 5] y", "f = Reshape(k, flat)  m = MatMul(f, d)  y = Softmax(m)"),
    "one row of all": ("float[1, 3888] y", "y = Reshape(k, all)"),
    "two outputs": ("float[6, 8, 9, 9] y, float[6, 8] p", "y = Add(k, r)  p = ReduceMean<axes=[2, 3], keepdims=0>(y)"),
}
KEPT = {
    "a mean over the batch": ("float[8, 9, 9] y", "y = ReduceMean<axes=[0], keepdims=0>(k)"),
    "a constant for each row": ("float[6, 8, 9, 9] y", "y = Add(k, z)"),
    "one of the rows": ("float[1, 8, 9, 9] y", "y = Gather<axis=0>(k, first)"),
    "training": (
        "float[6, 8, 9, 9] y, float[8] rm, float[8] rv",
        "y, rm, rv = BatchNormalization<training_mode=1>(k, eight, eight, eight, eight)",
    ),
    "more products than convolutions": (
        "float[6, 5] y",
        "f = Reshape(k, flat)  m = MatMul(f, d)  t = Transpose(m)  n = MatMul(m, t)  o = MatMul(n, m)  y = MatMul(n, o)",
    ),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (microbatch_cost, symbolic_batch):
        monkeypatch.setattr(module, "CACHE_NBYTES", 512)
    for name in ("_WEIGHTS", "_STEP", "_CROSSING", "_LEAST"):
        monkeypatch.setattr(microbatch_cost, name, 0.0)


def session(outputs: str, body: str, provider: str = "CPUExecutionProvider") -> ort.InferenceSession:
    text = f"g (float[6, 4, 9, 9] x) => ({outputs}) {{ {BODY}  {body} }}"
    return session_of(
        text, {n: a for n, a in W.items() if n in text.replace("(", " ").replace(",", " ").replace(")", " ").split()}, provider
    )


@pytest.mark.parametrize("name", [*OPENED, *KEPT])
def test_results_are_the_same(name: str) -> None:
    case = OPENED.get(name) or KEPT[name]
    found, reference = session(*case), session(*case, provider=REFERENCE)
    x = {"x": normal(6, 4, 9, 9)}
    for y, expected in zip(found.run(None, x), reference.run(None, x), strict=True):
        assert (y.shape, y.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(y, expected, rtol=3e-5, atol=3e-5 * float(np.abs(expected).max()))
    assert bool(made(found)) == (name in OPENED)


def test_what_a_session_says_of_its_batch_stays() -> None:
    found = session(*OPENED["classified"])
    assert found.get_inputs()[0].shape == [6, 4, 9, 9]
    assert found.get_outputs()[0].shape == [6, 5]
    with pytest.raises(ort.InvalidArgument, match=r"\[6, 4, 9, 9\]"):
        found.run(None, {"x": normal(5, 4, 9, 9)})


def test_small_batches_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbolic_batch, "CACHE_NBYTES", 1 << 20)
    found = session(*OPENED["a map"])
    (program,) = found._model.programs
    assert all(segment.rows is None for segment in program.executable.segments())
