"""Schedules chosen by timing: `session.schedule_budget_ms`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort
from intarsia import progress
from intarsia.cache.disk_cache import DiskCache
from intarsia.codegen.llvm.target import Target
from intarsia.errors import ModelLoadCanceled
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.microkernel import tile_of
from intarsia.providers.cpu.kernels.common.schedule import Candidates
from intarsia.providers.cpu.kernels.common.template import Template
from intarsia.providers.cpu.program import autotune

CONVOLUTIONS = ("line-buffer", "implicit-gemm", "winograd2", "winograd4")  # that are timed for the convolution of `model`


def model() -> tuple[bytes, dict[str, np.ndarray], np.ndarray]:
    """A 3x3 convolution, and a product by a matrix."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 16, 14, 14)).astype(np.float32)
    w = (rng.standard_normal((32, 16, 3, 3)) / 12).astype(np.float32)
    v = (rng.standard_normal((196, 300)) / 14).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4), helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Reshape", ["r", "s"], ["f"]), helper.make_node("MatMul", ["f", "v"], ["m"]),
        helper.make_node("Concat", ["m", "m"], ["y"], axis=0),
    ]  # fmt: skip
    constants = {"w": w, "v": v, "s": np.array([32, 196])}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )  # fmt: skip
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    product = np.maximum(np.einsum("nchwij,mcij->nmhw", windows, w.astype(np.float64)), 0).reshape(32, 196) @ v
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return made.SerializeToString(), {"x": x}, np.concatenate([product, product])


def session(source: bytes, budget: str | None = None, deterministic: bool = False) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.use_deterministic_compute = deterministic
    if budget is not None:
        options.add_session_config_entry("session.schedule_budget_ms", budget)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def plan(made: ort.InferenceSession) -> str:
    return "\n".join(p.describe("plan") for p in made._engine.whole_model().programs)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of choices; compiled kernels are everybody's."""
    cache = DiskCache(tmp_path)
    monkeypatch.setattr(autotune, "get_cache", lambda: cache)


def test_choices_are_shown_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    source, feeds, expected = model()
    made = session(source, "3600000")
    np.testing.assert_allclose(made.run(None, feeds)[0], expected, rtol=1e-4, atol=1e-4)
    shown = plan(made)
    assert any(f", {name} by time" in shown for name in CONVOLUTIONS)

    def again(*_: object) -> None:
        raise AssertionError("timed although the choice is in the cache")

    monkeypatch.setattr(autotune.Chooser, "_times", again)
    assert plan_after_run(session(source, "3500000"), feeds) == shown


def plan_after_run(made: ort.InferenceSession, feeds: dict[str, np.ndarray]) -> str:
    made.run(None, feeds)
    return plan(made)


@pytest.mark.parametrize("name", [*CONVOLUTIONS, "packed-a", "packed-a-14x2", "packed-a-8x3", "constant-rows", "gemm"])
def test_every_schedule_is_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, feeds, expected = model()

    seen: set[str] = set()

    def choose(self: autotune.Chooser, template: object, found: Candidates, end: float) -> dict[str, int]:
        seen.update(found.names)
        return {n: 1 if n == name else 1000 for n in found.names}

    monkeypatch.setattr(autotune.Chooser, "_times", choose)
    made = session(source, "1000")
    np.testing.assert_allclose(made.run(None, feeds)[0], expected, rtol=1e-4, atol=1e-4)
    assert {*CONVOLUTIONS} <= seen and (tile_of(DType.FLOAT, Target.host()).rows < 14 or "gemm" in seen)
    assert (f", {name} by time" in plan(made)) == (name in seen)


@pytest.mark.skipif(not Target.host().has_pairs, reason="this CPU has no VDPBF16PS")
def test_products_of_pairs_are_a_schedule_where_bfloat16_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        autotune.Chooser, "_times", lambda self, template, s, end: {n: 1000 - (n == "bfloat16-packed") * 999 for n in s.names}
    )
    source, feeds, expected = model()
    options = ort.SessionOptions()
    for key, value in (("session.arithmetic", "bfloat16"), ("session.schedule_budget_ms", "1000")):
        options.add_session_config_entry(key, value)
    made = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    found = made.run(None, feeds)[0]
    assert np.sqrt(((found - expected) ** 2).mean() / (expected**2).mean()) < 5e-3
    assert "(bfloat16 by AVX512-BF16)" in plan(made) and ", bfloat16-packed by time" in plan(made)


def test_nothing_is_timed_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("timed")

    monkeypatch.setattr(autotune.Chooser, "_times", never)
    source, feeds, _ = model()
    for made in (session(source), session(source, "0"), session(source, "1000", deterministic=True)):
        assert "by time" not in plan_after_run(made, feeds)


def test_the_budget_ends_it() -> None:
    """With a millisecond at most one candidate is even compiled, and the estimates stand."""
    source, feeds, expected = model()
    made = session(source, "1")
    np.testing.assert_allclose(made.run(None, feeds)[0], expected, rtol=1e-4, atol=1e-4)
    assert "by time" not in plan(made)


def pointwise(strides: int, pixels: int) -> tuple[bytes, dict[str, np.ndarray], np.ndarray]:
    """A 1x1 convolution of 64 channels by 64 filters."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 64, pixels, pixels)).astype(np.float32)
    w = (rng.standard_normal((64, 64, 1, 1)) / 8).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], strides=[strides] * 2)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    seen = x[:, :, ::strides, ::strides].astype(np.float64)
    return made.SerializeToString(), {"x": x}, np.einsum("nchw,mc->nmhw", seen, w[:, :, 0, 0].astype(np.float64))


def test_few_pixels_of_a_strided_pointwise_convolution(caplog: pytest.LogCaptureFixture) -> None:
    """Sixteen: no product of the copied pixels is expected to pay, and the plain one is timed all the same."""
    source, feeds, expected = pointwise(2, 8)
    made = session(source, "3600000")
    np.testing.assert_allclose(made.run(None, feeds)[0], expected, rtol=1e-4, atol=1e-4)
    assert "cannot be made" not in caplog.text


@pytest.mark.parametrize("broken", ["another", "default"])
def test_a_candidate_that_cannot_be_made_is_left_out(
    broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source, feeds, expected = pointwise(1, 14)
    alone, asked = autotune.Chooser._alone, []

    def failing(self: autotune.Chooser, template: Template, choices: Mapping[str, str]) -> Callable[[], Any]:
        asked.extend(choices.values())
        if (len(asked) == 1) == (broken == "default"):
            raise LookupError("no such schedule")
        return alone(self, template, choices)

    monkeypatch.setattr(autotune.Chooser, "_alone", failing)
    with caplog.at_level("WARNING", "intarsia.schedules"):
        made = session(source, "3600000")
    np.testing.assert_allclose(made.run(None, feeds)[0], expected, rtol=1e-4, atol=1e-4)
    assert len(asked) > 1
    left_out = asked[:1] if broken == "default" else asked[1:]
    assert all(f"{name} is not timed, as it cannot be made: LookupError(" in caplog.text for name in left_out)
    assert (", " + asked[0] + " by time" in plan(made)) == (broken != "default")


def test_who_stops_the_session_stops_the_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> Callable[[], Any]:
        stop.append(True)
        progress.step("lower")
        raise AssertionError("not stopped")

    stop: list[bool] = []
    monkeypatch.setattr(autotune.Chooser, "_alone", failing)
    with pytest.raises(ModelLoadCanceled, match="was stopped"), progress.reported(lambda _: not stop, lambda: None):
        session(pointwise(1, 14)[0], "3600000")
    assert stop == [True]


def test_the_default_stays_unless_another_is_clearly_faster() -> None:
    assert autotune.fastest({"a": 100, "b": 98, "c": 99}) == "a"
    assert autotune.fastest({"a": 100, "b": 90, "c": 80}) == "c"
