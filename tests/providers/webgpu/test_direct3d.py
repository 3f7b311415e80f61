"""DmlExecutionProvider on Direct3D 12: on Windows, or by scripts/direct3d."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

import intarsia
from intarsia.codegen.clike import Kernel
from intarsia.device import known_answers, webgpu

ONLY = ["DmlExecutionProvider"]
pytestmark = pytest.mark.skipif(bool(webgpu.missing("D3D12")), reason=webgpu.missing("D3D12"))
DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"


def alone() -> intarsia.SessionOptions:
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return options


def test_the_device_passes_its_known_answer_test() -> None:
    device = webgpu.open_device(0, webgpu.DIRECTML)
    assert device.device.description.endswith("(D3D12)")
    assert known_answers.answered_wrong(device) == ""


def test_options_are_effective() -> None:
    given = {"performance_preference": "high_performance", "device_filter": "any", "disable_metacommands": True}
    session = intarsia.InferenceSession(DIGITS, providers=[("DmlExecutionProvider", given)])
    assert session.get_provider_options()["DmlExecutionProvider"] == {
        "device_id": "0", "performance_preference": "high_performance", "device_filter": "any", "disable_metacommands": "1",
    }  # fmt: skip


def test_digits_are_those_of_the_reference_provider() -> None:
    session = intarsia.InferenceSession(DIGITS, alone(), ONLY)
    reference = intarsia.InferenceSession(DIGITS, providers=["ReferenceExecutionProvider"])
    for count in (1, 5):
        image = np.random.default_rng(count).random((count, 1, 8, 8)).astype(np.float32)
        (found,), (wanted,) = session.run(None, {"image": image}), reference.run(None, {"image": image})
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert set(session.explain().counts) <= {"DmlExecutionProvider", "folded"}


def test_integers_of_64_bits_are_two_words() -> None:
    """Where the shader compiler has no type for them."""
    nodes = [
        helper.make_node("Mul", ["x", "c"], ["a"]), helper.make_node("Div", ["a", "d"], ["b"]),
        helper.make_node("ReduceSum", ["b"], ["y"], keepdims=0),
    ]  # fmt: skip
    constants = {"c": np.array([3_000_000_019], np.int64), "d": np.array([7], np.int64)}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 7, [5])], [helper.make_tensor_value_info("y", 7, [])],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    x = np.array([1, -2, 3_000_000_000, -4_000, 2**31], np.int64)
    (found,) = intarsia.InferenceSession(model.SerializeToString(), alone(), ONLY).run(None, {"x": x})
    wrapped = [(int(v) * 3_000_000_019 + 2**63) % 2**64 - 2**63 for v in x]
    quotients = [abs(p) // 7 * (1 if p >= 0 else -1) for p in wrapped]
    assert found == np.array(quotients).sum()


def test_an_index_out_of_range_names_the_node() -> None:
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["y"], name="picks")], "g",
        [helper.make_tensor_value_info("x", 1, [4]), helper.make_tensor_value_info("i", 7, [2])],
        [helper.make_tensor_value_info("y", 1, [2])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session = intarsia.InferenceSession(model.SerializeToString(), alone(), ONLY)
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x, "i": np.array([3, -4])})[0], [3, 0])
    with pytest.raises(intarsia.InvalidArgument, match="'picks'"):
        session.run(None, {"x": x, "i": np.array([0, 4])})


def test_a_second_process_does_not_ask_again(tmp_path: Path) -> None:
    """The first one leaves in the cache that the device is right."""
    program = (
        "import logging, sys; logging.basicConfig(level='INFO', stream=sys.stdout); import intarsia\n"
        "intarsia.InferenceSession(sys.argv[1], providers=['DmlExecutionProvider'])"
    )
    environment = {**os.environ, "INTARSIA_CACHE_DIR": str(tmp_path)}
    environment.pop("INTARSIA_DEVICE_TEST", None)
    said = []
    for _ in range(2):
        command = [sys.executable, "-c", program, str(DIGITS)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True)
        said.append("known-answer test in" in done.stdout)
    assert said == [True, False]


def test_a_lost_device_is_an_error_or_the_next_providers_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webgpu._opened, "_devices", {})
    image = np.random.default_rng(1).random((1, 1, 8, 8)).astype(np.float32)
    strict = intarsia.InferenceSession(DIGITS, alone(), ONLY, enable_fallback=False)
    allowed = intarsia.InferenceSession(DIGITS, providers=[*ONLY, "CPUExecutionProvider"])
    (wanted,) = strict.run(None, {"image": image})
    device = webgpu.open_device(0, webgpu.DIRECTML)
    device._device.destroy()
    with pytest.raises(intarsia.DeviceLost, match="what was in its memory is gone: make the session again"):
        strict.run(None, {"image": image})
    with pytest.warns(intarsia.ProviderWarning, match="make the session again"):
        np.testing.assert_allclose(allowed.run(None, {"image": image})[0], wanted, atol=1e-6)
    (again,) = intarsia.InferenceSession(DIGITS, alone(), ONLY).run(None, {"image": image})
    np.testing.assert_array_equal(again, wanted)
    assert webgpu.open_device(0, webgpu.DIRECTML) is not device


def test_memory_and_kernels_that_are_refused() -> None:
    device = webgpu.open_device(0, webgpu.DIRECTML, memory_limit=1 << 20)
    with pytest.raises(intarsia.OutOfMemory, match="the limit is 1,048,576: raise the limit"):
        device.allocate(2 << 20)
    with pytest.raises(intarsia.OutOfMemory, match="this device allows"):
        device.allocate(device.limits.buffer_nbytes + 1)
    text = "@compute @workgroup_size(1) fn main_kernel() { let x: i32 = 1.5f; }"
    with pytest.raises(intarsia.EPFail, match="main_kernel"):
        device.program(Kernel(text, (), 1, (), (1, 1, 1), 1, False, (1,), 0))
