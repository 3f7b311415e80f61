"""What every device with memory of its own does, on those that are here: WebGPU and OpenCL on drivers for the processor.

For CUDA and ROCm, on imitated drivers, see test_streams.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from device_kinds import KINDS, Kind
from onnx import helper, numpy_helper

import intarsia
from intarsia.device import memory, opencl
from intarsia.providers.options import parse_options
from intarsia.providers.registry import load_provider

X = np.random.default_rng(0).standard_normal((70, 70)).astype(np.float32)


def test_a_profile_has_the_devices_own_times(gpu: Kind) -> None:
    session = gpu.session()
    (wanted,) = session.run(None, {"x": X})
    report = session.profile({"x": X}, runs=2, roofline=False)
    kernels = [k for k in report.kernels if k.kind == "kernel"]
    assert [(k.op, k.provider) for k in kernels] == [("MatMul", gpu.provider), ("Softmax", gpu.provider)]
    assert all(0 < k.milliseconds <= report.milliseconds for k in kernels)
    assert all(k.nbytes >= X.nbytes for k in kernels)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], wanted)


def test_values_on_the_device(gpu: Kind) -> None:
    value = intarsia.OrtValue.ortvalue_from_numpy(X, gpu.kind, 0)
    assert value.device_name() == gpu.kind
    assert intarsia.OrtDevice.make(gpu.kind, 0).kind == gpu.kind
    session = gpu.session()
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", gpu.kind, 0)
    session.run_with_iobinding(binding)
    counters = gpu.open().counters
    before = counters.copies_in + counters.copies_out
    session.run_with_iobinding(binding)
    assert counters.copies_in + counters.copies_out == before
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), session.run(None, {"x": X})[0])


def test_launches_on_the_same_memory_are_bound_once(gpu: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    session, device = gpu.session(), gpu.open()
    values = [intarsia.OrtValue.ortvalue_from_numpy(x, gpu.kind, 0) for x in (X, 2 * X)]
    wanted = [session.run(None, {"x": x})[0] for x in (X, 2 * X)]
    bound: list[str] = []
    bind, again = device.bind, device.bound_again
    monkeypatch.setattr(device, "bind", lambda launch: bound.append("new") or bind(launch))
    monkeypatch.setattr(device, "bound_again", lambda old, launch: bound.append("again") or again(old, launch))
    out = session.io_binding()
    out.bind_output("y", gpu.kind, 0)
    often = []
    for i in (0, 0, 0, 0, 1, 1, 1, 1, 0):
        before = len(bound)
        out.bind_ortvalue_input("x", values[i])
        session.run_with_iobinding(out)
        often.append(len(bound) - before)
        np.testing.assert_array_equal(out.get_outputs()[0].numpy(), wanted[i])
    assert often[3] == often[7] == 0
    assert often[4] > 0
    for scale in range(3, 9):  # more than are kept
        out.bind_ortvalue_input("x", intarsia.OrtValue.ortvalue_from_numpy(scale * X, gpu.kind, 0))
        session.run_with_iobinding(out)
        np.testing.assert_allclose(out.get_outputs()[0].numpy(), session.run(None, {"x": scale * X})[0])


def test_a_value_of_the_device_opened_with_other_options(gpu: Kind) -> None:
    """Its memory belongs to another context."""
    value = intarsia.OrtValue.ortvalue_from_numpy(X, gpu.kind, 0)
    session = gpu.session(gpu_mem_limit=1 << 26)
    (wanted,) = session.run(None, {"x": X})
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", gpu.kind, 0)
    session.run_with_iobinding(binding)
    (found,) = binding.get_outputs()
    np.testing.assert_array_equal(found.numpy(), wanted)
    again = intarsia.OrtValue.ortvalue_from_shape_and_type(list(X.shape), np.float32, gpu.kind, 0)
    again.update_inplace(found)
    np.testing.assert_array_equal(again.numpy(), wanted)
    counters = gpu.open().counters
    before = counters.copies_in + counters.copies_out
    again.update_inplace(value)  # of the same device: no way through the host
    assert counters.copies_in + counters.copies_out == before
    np.testing.assert_array_equal(again.numpy(), X)


@pytest.mark.parametrize("index", [-1, "one", 2.5])
def test_numbers_of_devices_that_cannot_be(gpu: Kind, index: object) -> None:
    message = f"expected the number of a device, an integer from 0 on, got {index!r}"
    with pytest.raises(intarsia.InvalidArgument, match=f"option 'device_id' of {gpu.provider}: {message}"):
        parse_options(load_provider(gpu.provider), {"device_id": index})
    with pytest.raises(intarsia.InvalidArgument, match=f"device '{gpu.kind}': {message}"):
        intarsia.OrtValue.ortvalue_from_numpy(X, gpu.kind, index)  # type: ignore[arg-type]


def test_a_device_that_is_not_there(gpu: Kind) -> None:
    with pytest.raises(intarsia.EPFail, match=r"device_id is 99; there (is|are) \d+ devices? \(0: "):
        gpu.session(device_id=99)
    with pytest.raises(intarsia.InvalidArgument, match=rf"device {gpu.kind}:99 cannot be used: .*device_id is 99; there"):
        memory.gpu_of(gpu.kind, 99)


def test_who_holds_memory_is_said(gpu: Kind) -> None:
    session = gpu.session(gpu_mem_limit=200_000)
    session.run(None, {"x": X})
    parts = r"\([\d,]+ for weights, [\d,]+ for values, [\d,]+ for results\)"
    message = (
        rf"needs [\d,]+ more bytes {parts}, [\d,]+ are in use and the limit is 200,000: .* \(in use by all sessions on it: "
    )
    with pytest.raises(intarsia.OutOfMemory, match=message + r"(values|intermediate values) [\d,]+"):
        session.run(None, {"x": np.zeros((150, 150), np.float32)})
    np.testing.assert_allclose(session.run(None, {"x": X})[0].sum(), 70, rtol=1e-4)  # the session goes on


def layers(count: int, width: int) -> bytes:
    """x times `count` matrices of `width` squared, one after the other."""
    rng = np.random.default_rng(1)
    weights = [(rng.standard_normal((width, width)) / width**0.5).astype(np.float32) for _ in range(count)]
    names = ["x", *(f"a{i}" for i in range(1, count)), "y"]
    nodes = [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]], name=f"layer{i}") for i in range(count)]
    inputs = [helper.make_tensor_value_info("x", 1, [4, width])]
    constants = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


def keeping_islands() -> intarsia.SessionOptions:
    """A device gets small parts, too."""
    options = intarsia.SessionOptions()
    options.add_session_config_entry("partition.keep_islands", "1")
    return options


def test_weights_beyond_the_limit_go_to_the_cpu(gpu: Kind) -> None:
    """The first layers stay on the device, the others follow in one piece."""
    model, x = layers(6, 256), np.ones((4, 256), np.float32)
    wanted = intarsia.InferenceSession(model, providers=["ReferenceExecutionProvider"]).run(None, {"x": x})[0]
    given = [(gpu.provider, {"gpu_mem_limit": 4 * 256 * 256 * 3 + 100_000}), "CPUExecutionProvider"]
    session = intarsia.InferenceSession(model, keeping_islands(), given)
    nodes = session.explain().nodes
    assert [n.provider for n in nodes] == [gpu.provider] * 3 + ["CPUExecutionProvider"] * 3
    refusal = nodes[3].refusals[gpu.provider]
    assert refusal.code == "memory"
    assert re.search(
        r"the weights up to it have 1,048,576 bytes and the largest step works on 8,192; of a limit of 886,432, \d+ are in",
        refusal.reason,
    )
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-3, atol=1e-4)


def test_weights_beyond_the_limit_are_refused_where_the_cpu_may_not_help(gpu: Kind) -> None:
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    given = [(gpu.provider, {"gpu_mem_limit": 4 * 256 * 256 * 2 + 100_000})]
    with pytest.raises(
        intarsia.IntarsiaError, match=r"(?s)layer2.*the weights up to it have 786,432 bytes.*of a limit of 624,288"
    ):
        intarsia.InferenceSession(layers(4, 256), options, given)


def test_one_weight_beyond_the_limit_leaves_the_others_there(gpu: Kind) -> None:
    model = onnx.load_from_string(layers(3, 64))
    wide = numpy_helper.from_array(np.ones((64, 4096), np.float32), "wide")
    model.graph.initializer.append(wide)
    model.graph.node.append(helper.make_node("MatMul", ["a1", "wide"], ["z"], name="wide"))
    model.graph.output.append(helper.make_empty_tensor_value_info("z"))
    given = [(gpu.provider, {"gpu_mem_limit": 300_000}), "CPUExecutionProvider"]
    session = intarsia.InferenceSession(model.SerializeToString(), keeping_islands(), given)
    placed = {n.name: n.provider for n in session.explain().nodes}
    assert placed == dict.fromkeys(["layer0", "layer1", "layer2"], gpu.provider) | {"wide": "CPUExecutionProvider"}


def test_memory_is_counted_by_its_use(gpu: Kind) -> None:
    device = gpu.open(0, memory_limit=1 << 22)
    kept = [device.allocate(1 << 20, "these"), device.allocate(1 << 19, "those")]
    assert device.holders() == {"these": 1 << 20, "those": 1 << 19}
    del kept[0]
    assert device.holders() == {"those": 1 << 19}
    with pytest.raises(intarsia.OutOfMemory, match=r"requested for more, 524,288 are in use .*sessions on it: those 524,288\)"):
        device.allocate(1 << 22, "more")


# --- OpenCL ---


@pytest.mark.skipif(bool(opencl.missing()), reason=f"no OpenCL device: {opencl.missing()}")
class TestOpenCl:
    def test_programs_come_from_the_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
        built: list[int] = []
        monkeypatch.setattr(opencl._opened, "_devices", {})
        kind = KINDS["opencl"]
        (wanted,) = kind.session().run(None, {"x": X})
        entries = list(tmp_path.rglob("opencl-*"))
        assert len(entries) == kind.open().counters.compiled == 2
        import pyopencl as cl

        class Counted(cl.Program):  # type: ignore[misc, name-defined]
            def __init__(self, *given: Any) -> None:
                built.append(len(given))  # (context, text) or (context, devices, machine code)
                super().__init__(*given)

        monkeypatch.setattr(cl, "Program", Counted)
        monkeypatch.setattr(opencl._opened, "_devices", {})
        np.testing.assert_array_equal(kind.session().run(None, {"x": X})[0], wanted)
        assert built == [3, 3]
        for entry in entries:  # machine code that this driver does not take
            intarsia.cache.disk_cache.get_cache().put(entry.name, b"nothing that a driver knows")
        monkeypatch.setattr(opencl._opened, "_devices", {})
        np.testing.assert_array_equal(kind.session().run(None, {"x": X})[0], wanted)
        assert built[2:] == [3, 2, 3, 2]

    def test_a_lost_device_ends_the_run_and_a_new_session_has_a_new_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import pyopencl as cl

        monkeypatch.setattr(opencl._opened, "_devices", {})
        kind = KINDS["opencl"]
        session = kind.session()
        (wanted,) = session.run(None, {"x": X})

        class Lost(cl.Error):  # type: ignore[misc, name-defined]
            code = cl.status_code.INVALID_CONTEXT

        def lose(*given: object) -> None:
            raise Lost("clEnqueueNDRangeKernel failed: INVALID_CONTEXT")

        with monkeypatch.context() as patch:
            patch.setattr(cl, "enqueue_nd_range_kernel", lose)
            with pytest.raises(intarsia.DeviceLost, match=r"could not start a kernel: .*INVALID_CONTEXT; what was in"):
                session.run(None, {"x": X})
        np.testing.assert_array_equal(kind.session().run(None, {"x": X})[0], wanted)
