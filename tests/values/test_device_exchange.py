"""Values on devices: by DLPack without a copy where that can be, and runs that leave their results there."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from offline_kernels import imitated
from onnx import helper

import intarsia
from intarsia.device import exchange, opencl, webgpu
from intarsia.device.memory import gpu_of
from intarsia.values.ort_value import OrtValue, OrtValueVector

X = np.arange(12, dtype=np.float32).reshape(3, 4)
PROVIDERS = {"webgpu": "WebGpuExecutionProvider", "opencl": "OpenCLExecutionProvider"}
MODULES = {"webgpu": webgpu, "opencl": opencl}
no_opencl = pytest.mark.skipif(bool(opencl.missing()), reason=f"no OpenCL device: {opencl.missing()}")


@pytest.fixture(params=PROVIDERS)
def kind(request: pytest.FixtureRequest) -> str:
    if why := MODULES[request.param].missing():
        pytest.skip(f"no {request.param} device: {why}")
    return str(request.param)


def doubled() -> bytes:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"]), helper.make_node("ReduceSum", ["y"], ["s"])], "g",
        [info("x", onnx.TensorProto.FLOAT, ["n", 4])],
        [info("y", onnx.TensorProto.FLOAT, ["n", 4]), info("s", onnx.TensorProto.FLOAT, [1, 1])],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


@no_opencl
def test_opencl_memory_is_shared() -> None:
    value = OrtValue.ortvalue_from_numpy(X, "opencl", 0)
    assert value.__dlpack_device__() == (4, 0)
    taken = OrtValue.from_dlpack(value)
    assert taken.device_name() == "opencl" and taken.shape() == [3, 4]
    value.update_inplace(X + 1)
    del value
    np.testing.assert_array_equal(taken.numpy(), X + 1)
    flags = OrtValue.from_dlpack(OrtValue.ortvalue_from_numpy(X > 5, "opencl", 0))
    np.testing.assert_array_equal(flags.numpy(), X > 5)


@no_opencl
def test_what_a_run_leaves_on_opencl_is_given_and_taken() -> None:
    session = intarsia.InferenceSession(doubled(), providers=["OpenCLExecutionProvider"])
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", OrtValue.from_dlpack(OrtValue.ortvalue_from_numpy(X, "opencl", 0).to_dlpack()))
    binding.bind_output("y", "opencl", 0)
    session.run_with_iobinding(binding)
    (y,) = binding.get_outputs()
    counters = gpu_of("opencl", 0).counters
    before = counters.copies_in, counters.copies_out
    again = session.run_with_ort_values(["s"], {"x": OrtValue.from_dlpack(y.to_dlpack())})
    assert (counters.copies_in - before[0], counters.copies_out - before[1]) == (0, 1)
    assert again[0].numpy() == X.sum() * 4


def test_a_capsule_is_taken_once() -> None:
    capsule = OrtValue.ortvalue_from_numpy(X).to_dlpack()
    OrtValue.from_dlpack(capsule)
    with pytest.raises(intarsia.InvalidArgument, match="has not been consumed yet"):
        OrtValue.from_dlpack(capsule)


@pytest.mark.skipif(bool(webgpu.missing()), reason=f"no WebGPU device: {webgpu.missing()}")
def test_webgpu_says_why_not_and_what_instead() -> None:
    value = OrtValue.ortvalue_from_numpy(X, "webgpu", 0)
    for call in (value.to_dlpack, value.__dlpack_device__):
        with pytest.raises(intarsia.InvalidArgument, match=r"no address that they could read; take OrtValue.numpy\(\)"):
            call()


def test_cuda_addresses() -> None:
    """On an imitated machine: what is given is the address, what is taken is used where it lies."""
    with imitated("cuda"):
        value = OrtValue.ortvalue_from_numpy(X, "cuda", 0)
        assert value.__dlpack_device__() == (2, 0)
        held = value._value.handle
        assert exchange.address_of(value._value) == (held.memory.buffer, held.offset)
        taken = OrtValue.from_dlpack(value.to_dlpack())
        assert taken._value.handle.memory.buffer == held.memory.buffer + held.offset
        gpu = held.memory.gpu
        before = gpu.counters.allocated_nbytes
        del taken
        assert gpu.counters.allocated_nbytes == before


@pytest.mark.parametrize("kind", ["cuda", "rocm"])
def test_who_gives_memory_is_told_the_stream_that_reads_it(kind: str) -> None:
    """It may still be written in another stream; ours does not wait for the default one."""
    with imitated(kind):
        value = OrtValue.ortvalue_from_numpy(X, kind, 0)
        producer = Producer(value)
        taken = OrtValue.from_dlpack(producer)._value.handle.memory.gpu
        assert producer.streams == [int(taken._stream)]
        assert producer.streams[0] > 2  # smaller numbers are default streams


class Producer:
    """A tensor of another library, which notes what it is asked."""

    def __init__(self, value: OrtValue) -> None:
        self.value, self.streams = value, []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.value.__dlpack_device__()

    def __dlpack__(self, *, stream: int | None = None) -> object:
        self.streams.append(stream)
        return self.value.to_dlpack()


def test_what_cannot_be_taken() -> None:
    with imitated("cuda"):
        value = OrtValue.ortvalue_from_numpy(X, "cuda", 0)._value
        with pytest.raises(intarsia.InvalidArgument, match=r"DLPack device 8:0; expected host memory \(1\), cuda \(2\)"):
            exchange.borrowed(8, 0, 0, 0, value.dtype, (3,), None)
        with pytest.raises(intarsia.InvalidArgument, match="expected a multiple of 256: give a copy of it"):
            exchange.borrowed(2, 0, 4097, 0, value.dtype, (3,), None)
        nibbles = OrtValue.ortvalue_from_shape_and_type([3], onnx.TensorProto.INT4, "cuda", 0)
        with pytest.raises(intarsia.InvalidArgument, match="several elements in a byte"):
            nibbles.to_dlpack()


def test_vectors_of_values_stay_on_the_device(kind: str) -> None:
    session = intarsia.InferenceSession(doubled(), providers=[PROVIDERS[kind]])
    fetches = OrtValueVector()
    feeds = [OrtValue.ortvalue_from_numpy(X, kind, 0)]
    devices = [intarsia.OrtDevice.make(kind, 0), intarsia.OrtDevice.make("cpu", 0)]
    session.run_with_ortvaluevector(None, ["x"], feeds, ["y", "s"], fetches, devices)
    y, s = fetches[0], fetches[1]
    assert (y.device_name(), s.device_name()) == (kind, "cpu")
    np.testing.assert_array_equal(y.numpy(), X * 2)
    assert s.numpy() == X.sum() * 2
