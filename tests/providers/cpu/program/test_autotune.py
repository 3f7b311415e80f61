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
from intarsia.graph.load import load
from intarsia.graph.model import Graph
from intarsia.ops import registry
from intarsia.providers.cpu.kernels.common.schedule import Candidates, LoweringEnv
from intarsia.providers.cpu.kernels.common.template import Template
from intarsia.providers.cpu.lowering.fuse import Grouping
from intarsia.providers.cpu.lowering.lower import lower_graph
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


def offered(target: Target) -> set[str] | None:
    """What is timed for `model`; None for CPUs of which it is not stated here."""
    if target.arch == "aarch64":
        return {"line-buffer", "winograd2", "winograd4", "packed-a", "gemm"}
    if target.halves_vectors:
        return {*CONVOLUTIONS, "strassen", "constant-rows", "packed-a", "packed-a-14x2", "gemm"}
    if target.vector_bytes == 64:
        return {*CONVOLUTIONS, "packed-a", "packed-a-14x2", "gemm"}
    return {*CONVOLUTIONS, "constant-rows", "packed-a", "gemm"} if target.is_avx2 else None


_AVX2 = "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+sse4.1,+sse4.2,+ssse3,+sse3"
_AVX512 = f"{_AVX2},+avx512bw,+avx512cd,+avx512dq,+avx512f,+avx512vl"


@pytest.mark.parametrize(
    ("triple", "cpu", "features"),
    [
        ("x86_64-unknown-linux-gnu", "x86-64-v3", _AVX2), ("x86_64-unknown-linux-gnu", "x86-64-v4", _AVX512),
        ("x86_64-unknown-linux-gnu", "znver4", f"{_AVX512},+avx512bf16,+avx512vnni"),
        ("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon"),
    ],
)  # fmt: skip
def test_what_is_timed_on_each_kind_of_cpu(triple: str, cpu: str, features: str) -> None:
    seen: set[str] = set()

    def asked(grouping: Grouping, _: Graph, env: LoweringEnv) -> Mapping[str, str]:
        found = [g.template.candidates(env) for g in grouping.groups if g.template is not None]
        seen.update(name for each in found if each is not None for name in each.names)
        return {}

    target = Target.create(triple, cpu, features)
    lower_graph(load(model()[0]), registry(), target, choices=asked)
    assert seen == offered(target)


@pytest.mark.parametrize("name", [*CONVOLUTIONS, "strassen", "packed-a", "packed-a-14x2", "constant-rows", "gemm"])
def test_every_schedule_is_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = offered(Target.host())
    if names is not None and name not in names:
        pytest.skip(f"{name} is not worth timing on this kind of CPU, as `offered` states")
    source, feeds, expected = model()
    seen: set[str] = set()

    def choose(self: autotune.Chooser, template: object, found: Candidates, end: float) -> dict[str, int]:
        seen.update(found.names)
        return {n: 1 if n == name else 1000 for n in found.names}

    monkeypatch.setattr(autotune.Chooser, "_times", choose)
    made = session(source, "1000")
    np.testing.assert_allclose(made.run(None, feeds)[0], expected, rtol=1e-4, atol=1e-4)
    assert names is None or seen == names
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


@pytest.mark.skipif(not (Target.host().has_pairs and Target.host().halves_vectors), reason="pairs are not read in rows here")
def test_rows_of_pairs_of_few_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which estimates advise against. What is read is stored as bfloat16, and the choice holds all the same."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1, 16, 14, 14)).astype(np.float32)
    v, w = ((rng.standard_normal(s) / s[1] ** 0.5).astype(np.float32) for s in ((64, 16, 1, 1), (32, 64, 1, 1)))
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["c"]), helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["y"]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, "v"), numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    monkeypatch.setattr(
        autotune.Chooser, "_times", lambda self, template, of, end: {n: 1000 - (n == "bfloat16-rows") * 999 for n in of.names}
    )
    options = ort.SessionOptions()
    for key, value in (("session.arithmetic", "bfloat16"), ("session.schedule_budget_ms", "1000")):
        options.add_session_config_entry(key, value)
    made = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    found = made.run(None, {"x": x})[0]
    rectified = np.maximum(np.einsum("fc,nchw->nfhw", v[:, :, 0, 0].astype(np.float64), x), 0)
    expected = np.einsum("fc,nchw->nfhw", w[:, :, 0, 0].astype(np.float64), rectified)
    assert np.sqrt(((found - expected) ** 2).mean() / (expected**2).mean()) < 8e-3
    assert ", bfloat16-rows by time" in plan(made)


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
