"""Calls of kernels as values: what two of them have in common is taken for both only where their numbers are the same."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator

import numpy as np
import onnx.parser
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from intarsia import InferenceSession
from intarsia.plan.binding_tracer import sizes_of
from intarsia.plan.step import KernelCall, Serial, Step, Work, form_of
from intarsia.providers import cpu

HEAD = '<ir_version: 10, opset_import: ["" : 27]>\n'


def values_of(kind: type) -> Iterator[type]:
    """All classes derived from `kind`, once every module of the CPU provider is imported."""
    for module in pkgutil.walk_packages(cpu.__path__, f"{cpu.__name__}."):
        importlib.import_module(module.name)
    found = [kind]
    for one in found:
        found += [c for c in one.__subclasses__() if c not in found and c.__module__.startswith("intarsia.")]
    yield from found[1:]


@pytest.mark.parametrize("kind", [KernelCall, Serial, Work])
def test_what_steps_hold_are_frozen_values(kind: type) -> None:
    """A field called `form` would be taken for all that a call's numbers depend on."""
    seen = 0
    for found in values_of(kind):
        if getattr(found, "__abstractmethods__", None):
            continue
        assert dataclasses.is_dataclass(found), found
        assert found.__dataclass_params__.frozen, found
        assert "form" not in {field.name for field in dataclasses.fields(found)}, found
        seen += 1
    assert seen


def session(text: str) -> InferenceSession:
    model = onnx.parser.parse_model(HEAD + text)
    return InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_transforms_of_one_kind_with_other_numbers() -> None:
    """A line of prime length goes through three kernels of one kind, with tables and lengths of their own."""
    found = session(
        "g (float[1, 1009, 2] x, float[n] z) => (float[1, 1009, 2] y, float[n] w) { a = Constant<value = int64 {1}>()"
        "  y = DFT(x, , a)  w = Softplus(z) }"
    )
    x = np.random.default_rng(0).standard_normal((1, 1009, 2)).astype(np.float32)
    wanted = np.fft.fft(x[0, :, 0] + 1j * x[0, :, 1].astype(np.float64))
    for n in (3, 4, 5, 6, 3):
        y, w = found.run(None, {"x": x, "z": np.zeros(n, np.float32)})
        np.testing.assert_allclose(y[0, :, 0] + 1j * y[0, :, 1], wanted, atol=1e-3)
        np.testing.assert_allclose(w, np.full(n, np.log(2)), rtol=1e-6)


def test_random_numbers_within_other_bounds() -> None:
    found = session(
        "g (float[n] x) => (float[n] a, float[n] b) { a = RandomUniformLike<low=0.0, high=1.0>(x)"
        "  b = RandomUniformLike<low=100.0, high=101.0>(x) }"
    )
    for n in (3, 4, 5, 6, 3):
        a, b = found.run(None, {"x": np.zeros(n, np.float32)})
        assert a.shape == b.shape == (n,)
        assert ((a >= 0) & (a < 1)).all(), a
        assert ((b >= 100) & (b < 101)).all(), b


def test_convolutions_by_computed_filters_of_other_shapes() -> None:
    """Both pack their filters by one kernel, which is called with the channels and taps of each."""
    found = session(
        "g (float[n, 64, 14, 14] x, float[32, 64, 3, 3] v, float[48, 32, 3, 3] w) => (float[n, 48, 14, 14] y)"
        " { a = Conv<pads=[1, 1, 1, 1]>(x, v)  y = Conv<pads=[1, 1, 1, 1]>(a, w) }"
    )
    rng = np.random.default_rng(1)
    v, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((32, 64, 3, 3), (48, 32, 3, 3)))
    for n in (1, 2, 3, 4):
        x = rng.standard_normal((n, 64, 14, 14)).astype(np.float32)
        (y,) = found.run(None, {"x": x, "v": v, "w": w})
        wanted = convolved(convolved(x.astype(np.float64), v), w)
        np.testing.assert_allclose(y, wanted, atol=1e-4 * np.abs(wanted).max())


def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A 3 x 3 convolution with a border of one pixel."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    found: np.ndarray = np.einsum("nchwij,fcij->nfhw", windows, w, optimize=True)
    return found


def test_scratch_memory_of_states_of_other_sizes() -> None:
    """Of two layers of linear attention, one with long keys, each has scratch memory for its own."""
    found = session(
        "g (float[1, n, 16] q, float[1, n, 1024] r, float[1, n, 16] v) => (float[1, n, 16] y, float[1, n, 16] z)"
        " { y = LinearAttention<q_num_heads=2, kv_num_heads=2, update_rule=\"linear\">(q, q, v)"
        "  z = LinearAttention<q_num_heads=2, kv_num_heads=2, update_rule=\"linear\">(r, r, v) }"
    )
    rng = np.random.default_rng(2)
    for n in (2, 3, 4, 5):
        q, r, v = (rng.standard_normal((1, n, width)).astype(np.float32) for width in (16, 1024, 16))
        y, z = found.run(None, {"q": q, "r": r, "v": v})
        np.testing.assert_allclose(y, attended(q, v), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(z, attended(r, v), rtol=1e-4, atol=1e-3)
    first, second = (step.call for step in steps_of(found) if step.label == "linear attention")
    assert form_of(first) != form_of(second)
    size = sizes_of({"n": 3})
    assert first.scratch_nbytes(size, 2) != second.scratch_nbytes(size, 2)


def steps_of(found: InferenceSession) -> list[Step]:
    (program,) = found._model.programs
    return [step for s in program.executable.segments() for step in s.steps if isinstance(step, Step)]


def attended(keys: np.ndarray, values: np.ndarray, heads: int = 2) -> np.ndarray:
    """Queries that are the keys: o_t = q_t (sum of k_s v_s up to t) / root of the size, head by head."""
    k, v = (x.reshape(x.shape[1], heads, -1).astype(np.float64) for x in (keys, values))
    states = np.cumsum(np.einsum("thk,thv->thkv", k, v), 0)
    return np.einsum("thk,thkv->thv", k, states).reshape(values.shape) / np.sqrt(k.shape[-1])
