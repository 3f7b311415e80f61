"""The WebGPU plugin library in a session, on SwiftShader: kernels, memory of its own, and ONNX's backend cases.

Its driver has to be chosen before a process first asks for Vulkan, so that these tests run in a process of their own:

    VK_DRIVER_FILES=/usr/lib/chromium/vk_swiftshader_icd.json python -m pytest tests/providers/plugin/test_webgpu_plugin.py
"""

from __future__ import annotations

import warnings
import zlib
from collections import Counter

import numpy as np
import onnx.helper as oh
import pytest
from onnx import TensorProto
from tests.providers.plugin.test_kernel_plugin import branches
from tests.providers.plugin.test_openvino_plugin import digits_model, pictures
from tests.providers.plugin.vendor_plugins import software_vulkan, webgpu, webgpu_provider

import intarsia as ort
from intarsia.providers.plugin.interface.handles import held_count
from intarsia.testing.cases import cases, run_case

pytestmark = pytest.mark.skipif(
    not software_vulkan(), reason="needs VK_DRIVER_FILES with SwiftShader's driver (Debian: chromium-common)"
)
WEBGPU, CPU = "WebGpuExecutionProvider", "CPUExecutionProvider"
SAMPLE = 6
WITHIN, WHOLE, IN_PART = 1100, 1045, 1160
"""Of ONNX's 2,022 cases, at least: those that its registry has kernels for all nodes, or their pieces, of; that it runs whole;
in part."""
DIFFERENT = {
    "test_mish": "9 of 10,000 numbers near 0 differ by less than 1e-6",
    "test_mish_expanded": "9 of 10,000 numbers near 0 differ by less than 1e-6",
    "test_operator_pow": "a fractional power of a negative number is a number, and not NaN",
    "test_reduce_log_sum_empty_set_expanded": "the logarithm of 0 is -88, and not -inf",
}
"""What its shaders, on SwiftShader, leave out of float32's arithmetic."""


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    return ort.InferenceSession(digits_model(), providers=[webgpu_provider(), CPU])


def expected(x: np.ndarray) -> np.ndarray:
    return np.asarray(ort.InferenceSession(digits_model(), providers=["ReferenceExecutionProvider"]).run(None, {"x": x})[0])


def test_what_it_says_of_itself() -> None:
    factory = webgpu().providers[0].factory
    assert (factory.name, factory.vendor) == (WEBGPU, "Microsoft")


def test_whole_model(session: ort.InferenceSession) -> None:
    assert set(session.explain().counts) == {WEBGPU}
    for count in (3, 1, 5, 3):
        x = pictures(count)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-4, atol=1e-4)


def test_results_are_the_callers(session: ort.InferenceSession) -> None:
    first = session.run(None, {"x": pictures()})[0]
    kept = first.copy()
    session.run(None, {"x": -pictures()})
    assert np.array_equal(first, kept)


def test_fast_calls(session: ort.InferenceSession) -> None:
    """Runs of one size go by a call that copies to the device and back; others, and what is not an array, do not."""
    feeds = [pictures(count) + step for step, count in enumerate((2, 2, 2, 2, 4, 2, 2, 2))]
    results = [session.run(None, {"x": x})[0] for x in feeds]
    assert session._engine.model.fast_calls
    results += [session.run(None, {"x": ort.OrtValue.ortvalue_from_numpy(feeds[-1])})[0]]
    for x, found in zip([*feeds, feeds[-1]], results, strict=True):
        np.testing.assert_allclose(found, expected(x), rtol=1e-4, atol=1e-3)


def test_cut_with_the_cpu() -> None:
    """A node placed on the CPU by name has copies around it."""
    options = ort.SessionOptions()
    options.add_session_config_entry("partition.place", "pool=CPUExecutionProvider")
    options.add_session_config_entry("partition.keep_islands", "1")
    cut = ort.InferenceSession(digits_model(), options, providers=[webgpu_provider(), CPU])
    providers = {row.name: row.provider for row in cut.explain().nodes}
    assert (providers["conv1"], providers["pool"], providers["conv2"]) == (WEBGPU, CPU, WEBGPU)
    np.testing.assert_allclose(cut.run(None, {"x": pictures()})[0], expected(pictures()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_layouts(layout: str) -> None:
    provider = webgpu_provider(preferredLayout=layout)
    made = ort.InferenceSession(digits_model(), providers=[provider, CPU])
    assert set(made.explain().counts) == {WEBGPU}
    for count in (3, 3, 1):
        np.testing.assert_allclose(made.run(None, {"x": pictures(count)})[0], expected(pictures(count)), rtol=1e-4, atol=1e-4)


def test_branches() -> None:
    """Its kernel of If is one that it has the host make: the condition is in the host's memory, what it reads on the device."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    made = ort.InferenceSession(branches(), options, providers=[webgpu_provider(), CPU])
    assert {row.provider for row in made.explain().nodes} == {WEBGPU}
    x = np.array([1, -2, 3], np.float32)
    expect = {(True, True): x + x[::-1], (True, False): x + x[::-1], (False, True): x * [10, 20, 30], (False, False): x[::-1]}
    for (c, d), y in expect.items():
        feed = {"x": x, "z": x[::-1].copy(), "c": np.array(c), "d": np.array(d)}
        np.testing.assert_allclose(made.run(None, feed)[0], y + np.array([10, 20, 30]), rtol=1e-6)


def test_refusals_say_what_kernels_there_are() -> None:
    values = [oh.make_tensor_value_info(name, TensorProto.DOUBLE, [2]) for name in "xy"]
    graph = oh.make_graph([oh.make_node("Relu", ["x"], ["y"], "relu")], "doubles", values[:1], values[1:])
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 14)], ir_version=8).SerializeToString()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ort.ProviderWarning)
        made = ort.InferenceSession(model, providers=[webgpu_provider(), CPU])
    reason = made.explain().nodes[0].refusals[WEBGPU].reason
    assert "has kernels of Relu for" in reason
    assert "not double[2]" in reason


def test_nothing_is_left_behind() -> None:
    """Handles that plugins hold do not grow with sessions and runs."""

    def use() -> int:
        made = ort.InferenceSession(digits_model(), providers=[webgpu_provider(), CPU])
        made.run(None, {"x": pictures()})
        return held_count()

    counts = [use() for _ in range(4)]
    assert counts[-1] <= counts[1]


def parameters() -> list[object]:
    sampled = {name: zlib.crc32(name.encode()) % SAMPLE == 3 for name in cases()}
    return [pytest.param(name, marks=[] if here else [pytest.mark.conformance], id=name) for name, here in sampled.items()]


_found: Counter[str] = Counter()


def coverage(session: ort.InferenceSession) -> str:
    """How much of a case runs there: "whole", "within" (all of it has a kernel, and other reasons kept some away), "outside".

    Integer arithmetic on shapes stays on the host by the session's own rule.
    """
    rows = [row for row in session.explain().nodes if row.provider not in ("folded", WEBGPU) and not row.body]
    codes = {row.refusals[WEBGPU].code for row in rows if WEBGPU in row.refusals} - {"shape"}
    if codes & {"no-kernel", "type"}:
        return "outside"
    return "within" if codes else "whole"


@pytest.mark.parametrize("name", parameters())
def test_case(name: str) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("partition.keep_islands", "1")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ort.ProviderWarning)
        session, wrong = run_case(cases()[name], [webgpu_provider(), CPU], options)
    _found[coverage(session)] += 1
    _found["in part"] += WEBGPU in session.explain().counts
    assert bool(wrong) == (name in DIFFERENT), wrong
    for node in session.explain().nodes:
        assert node.body or node.provider != CPU or node.refusals[WEBGPU].reason


def test_how_many_cases_it_takes() -> None:
    """After all of them: what it has kernels for is the most that it can take, and nine tenths of that run there whole."""
    if sum(_found[where] for where in ("whole", "within", "outside")) < len(cases()):
        pytest.skip("needs all cases (-m '') in one run")
    assert _found["whole"] + _found["within"] >= WITHIN
    assert _found["whole"] >= WHOLE
    assert _found["in part"] >= IN_PART
