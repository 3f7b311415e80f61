"""What CUDA and ROCm have in common, on imitated drivers: `fake_cuda` and `fake_hip` over one `fake_driver.Machine`.

Compilers are left out here: see test_cuda and test_rocm. Graphs of launches are in test_graphs.
"""

from __future__ import annotations

import ctypes
import logging

import numpy as np
import pytest
from fake_driver import KERNEL_NS
from stream_kinds import Kind, X, stream_gpu  # noqa: F401 - a fixture

import intarsia
from intarsia.device.gpu import GpuTransfer
from intarsia.device.streams import Setup
from intarsia.providers.options import option_texts, parse_options
from intarsia.providers.registry import load_provider

# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_session_copies_in_launches_and_copies_out(gpu: Kind) -> None:
    session = gpu.session()
    session.run(None, {"x": X})
    gpu.machine.log.clear()
    session.run(None, {"x": X})
    assert gpu.machine.log == ["in", "launch", "launch", "out"]
    assert gpu.kind == "rocm" or gpu.machine.current == []
    assert session.explain().counts == {gpu.provider: 2}


def test_copies_in_a_stream_of_their_own_wait_and_are_waited_for(gpu: Kind) -> None:
    session = gpu.session(do_copy_in_default_stream=False)
    session.run(None, {"x": X})
    gpu.machine.log.clear()
    session.run(None, {"x": X})
    assert gpu.machine.log == ["hold", "in", "hold", "launch", "launch", "hold", "out", "hold"]


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("pinnable", [0, 2 << 20, 1 << 30])
@pytest.mark.parametrize("nbytes", [4, (1 << 20) - 4, 1 << 20, (9 << 20) + 12])
def test_what_is_written_is_read_whatever_waits(gpu: Kind, nbytes: int, pinnable: int, separate: bool) -> None:
    """The imitated machine does nothing before somebody waits: a pinned block that is used again too early would show."""
    gpu.machine.pinnable = pinnable
    device = gpu.open(Setup(separate_copies=separate))
    arrays = [np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8) for seed in range(3)]
    slices = [device.write(array) for array in arrays]
    kept = [array.copy() for array in arrays]
    for array in arrays:
        array[:] = 0  # a write has read its array when it returns
    for array, place in zip(kept, slices, strict=True):
        np.testing.assert_array_equal(np.frombuffer(device.read(place, nbytes), np.uint8), array)
    other = device.write(np.zeros(nbytes, np.uint8))
    device.copy(slices[1], other)
    np.testing.assert_array_equal(np.frombuffer(device.read(other, nbytes), np.uint8), kept[1])


def test_a_copy_in_does_not_wait_for_the_device(gpu: Kind) -> None:
    device = gpu.open()
    device.write(np.ones(1000, np.float32))
    assert any(gpu.machine.streams.values())  # what was started there has not been done


def test_memory_that_cannot_be_pinned_is_noted(gpu: Kind, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "intarsia")
    gpu.machine.pinnable = 0
    gpu.session().run(None, {"x": X})
    assert f"{gpu.kind}:0: no pinned memory: {gpu.full[2]}" in caplog.text


def test_a_profile_has_the_devices_own_times(gpu: Kind) -> None:
    report = gpu.session().profile({"x": X}, runs=2, roofline=False)
    kernels = [k for k in report.kernels if k.kind == "kernel"]
    assert [(k.op, k.provider) for k in kernels] == [("Softmax", gpu.provider), ("MatMul", gpu.provider)]
    assert all(k.milliseconds == pytest.approx(KERNEL_NS / 1e6) for k in kernels)
    assert {row.name for row in report.by_operator()} == {"Softmax", "MatMul"}


def test_memories_of_inputs_and_outputs_are_the_devices(gpu: Kind) -> None:
    session = gpu.session()
    for (memory,) in (session.get_input_memory_infos(), session.get_output_memory_infos()):
        assert memory.device_type is intarsia.OrtMemoryInfoDeviceType.GPU
        assert memory.name == gpu.provider


# --- options ----------------------------------------------------------------------------------------------------------


def test_sizes_of_blocks(gpu: Kind) -> None:
    provider = load_provider(gpu.provider)
    for strategy, expected in (("kNextPowerOfTwo", 131072), ("kSameAsRequested", 70144)):
        device = provider(parse_options(provider, {"arena_extend_strategy": strategy})).gpu  # type: ignore[attr-defined]
        assert device.allocate(70_000).nbytes == expected


def test_memory_of_somebody_else(gpu: Kind) -> None:
    """Functions by their addresses, as PyTorch's allocator gives them."""
    taken: list[int] = []
    given: list[int] = []

    def alloc(nbytes: int) -> int:
        taken.append(gpu.machine.allocate(nbytes) if nbytes < 1 << 20 else 0)
        return taken[-1]

    def free(address: int) -> None:
        given.append(address)
        gpu.machine.free(address)

    first = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(alloc)
    second = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(free)
    addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in (first, second)]
    session = gpu.session(gpu_external_alloc=addresses[0], gpu_external_free=str(addresses[1]))
    session.run(None, {"x": X})
    assert set(taken) == set(gpu.machine.allocations)
    (device,) = gpu.module._opened.values()
    with pytest.raises(intarsia.OutOfMemory, match="gpu_external_alloc gave no memory for 2,097,152 bytes"):
        device.allocate(2 << 20)
    device.trim()
    assert given
    assert set(given) <= set(taken)


def test_a_stream_of_the_callers(gpu: Kind) -> None:
    with_context = gpu.open()
    with with_context._current():
        address = gpu.machine.stream()
    session = gpu.session(user_compute_stream=str(address))
    session.run(None, {"x": X})
    device = next(d for s, d in gpu.module._opened.items() if s.stream == address)
    assert device._stream == device._copies == address


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"device_id": -1}, "option 'device_id' of {}: expected the number of a device, an integer from 0 on, got -1"),
        ({"device_id": 0.5}, "option 'device_id' of {}: expected the number of a device, an integer from 0 on, got 0.5"),
        ({"device_id": "gpu"}, "option 'device_id' of {}: expected the number of a device, an integer from 0 on, got 'gpu'"),
        ({"gpu_mem_limit": -5}, "gpu_mem_limit: expected a number of bytes above 0, got -5"),
        ({"gpu_external_alloc": 5}, "gpu_external_alloc and gpu_external_free: expected both or none"),
        ({"has_user_compute_stream": 1}, "has_user_compute_stream is set: expected the stream's address as user_compute"),
        ({"user_compute_stream": "mine"}, "option 'user_compute_stream' of {}: expected an integer, got 'mine'"),
        ({"devise_id": 0}, "{} has no option 'devise_id'; did you mean 'device_id'"),
        ({"tunable_op_enable": "perhaps"}, "option 'tunable_op_enable' of {}: expected a boolean"),
    ],
)
def test_options_that_cannot_be(gpu: Kind, given: dict[str, object], message: str) -> None:
    with pytest.raises(intarsia.InvalidArgument, match=message.format(gpu.provider)):
        parse_options(load_provider(gpu.provider), given)


def test_options_as_text(gpu: Kind) -> None:
    options = gpu.session(tunable_op_enable="1", gpu_mem_limit=1 << 30).get_provider_options()[gpu.provider]
    assert (options["device_id"], options["tunable_op_enable"], options["gpu_mem_limit"]) == ("0", "1", str(1 << 30))
    assert option_texts(load_provider(gpu.provider).Options())["gpu_mem_limit"] == str(2**64 - 1)


# --- faults -----------------------------------------------------------------------------------------------------------


def test_no_gpu_and_no_such_gpu(gpu: Kind) -> None:
    with pytest.raises(intarsia.EPFail, match=r"device_id is 3; there is 1 device \(0: Imagined "):
        gpu.session(device_id=3)
    with pytest.raises(intarsia.EPFail, match=rf"{gpu.title}: no device: device_id is 3; there is 1 device"):
        gpu.open(3)
    gpu.machine.devices = 0
    gpu.forget()
    with pytest.raises(intarsia.EPFail, match=r"cannot be used on this machine: .* finds no GPU"):
        gpu.session()


def test_memory_that_is_kept_is_given_back_before_there_is_none(gpu: Kind) -> None:
    device = gpu.open(Setup(doubling=False))
    gpu.machine.memory_nbytes = 300 << 10
    kept = device.allocate(200 << 10)
    del kept
    device.allocate(250 << 10)
    with pytest.raises(intarsia.OutOfMemory, match=rf"{gpu.kind}:0 could not allocate 409,600 bytes: {gpu.full[2]}: use a"):
        device.allocate(400 << 10)


def test_a_limit(gpu: Kind) -> None:
    session = gpu.session(gpu_mem_limit=4096)
    with pytest.raises(intarsia.OutOfMemory, match="the limit is 4,096: raise the limit"):
        session.run(None, {"x": np.ones((100, 8), np.float32)})


def test_a_lost_device_ends_the_run_and_a_new_session_has_a_new_one(gpu: Kind) -> None:
    session = gpu.session()
    session.run(None, {"x": X})
    function, error, name = gpu.lost
    gpu.machine.failures[function] = error
    with pytest.raises(intarsia.DeviceLost, match=rf"{gpu.kind}:0 failed in a kernel or copy: {name}; what was in its memory"):
        session.run(None, {"x": X})
    gpu.session().run(None, {"x": X})


def test_a_kernel_that_does_not_start_names_its_node(gpu: Kind) -> None:
    session = gpu.session()
    session.run(None, {"x": X})
    gpu.machine.failures[gpu.launch] = gpu.failure
    with pytest.raises(intarsia.EPFail, match=r"could not start a kernel of node 'first' \(Softmax\)"):
        session.run(None, {"x": X})


# --- values of callers ------------------------------------------------------------------------------------------------


def test_values_on_the_device(gpu: Kind) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    value = intarsia.OrtValue.ortvalue_from_numpy(array, gpu.kind, 0)
    assert value.device_name() == gpu.kind
    np.testing.assert_array_equal(value.numpy(), array)
    device = intarsia.OrtDevice.make(gpu.kind, 0)
    other = intarsia.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, device)
    other.update_inplace(array + 1)
    np.testing.assert_array_equal(other.numpy(), array + 1)


def test_a_bound_value_is_not_copied(gpu: Kind) -> None:
    session = gpu.session()
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", intarsia.OrtValue.ortvalue_from_numpy(X, gpu.kind, 0))
    binding.bind_output("y", gpu.kind, 0)
    session.run_with_iobinding(binding)
    gpu.machine.log.clear()
    session.run_with_iobinding(binding)
    assert gpu.machine.log == ["launch", "launch"]
    (y,) = binding.get_outputs()
    assert (y.device_name(), y.shape()) == (gpu.kind, [8, 100])


@pytest.mark.parametrize("index", [-1, 1.5, "first", True, None])
def test_numbers_of_devices_that_cannot_be(gpu: Kind, index: object) -> None:
    message = rf"device '{gpu.kind}': expected the number of a device, an integer from 0 on, got {index!r}"
    with pytest.raises(intarsia.InvalidArgument, match=message):
        intarsia.OrtValue.ortvalue_from_numpy(X, gpu.kind, index)  # type: ignore[arg-type]
    with pytest.raises(
        intarsia.InvalidArgument, match=rf"device {gpu.kind}:7 cannot be used: .*device_id is 7; there is 1 device"
    ):
        intarsia.OrtValue.ortvalue_from_numpy(X, gpu.kind, 7)


def test_devices_that_were_opened_in_different_ways_exchange_values_on_the_device(gpu: Kind) -> None:
    """In the order in which they were given their work, which is done late: neither reads what the other has not written, nor
    writes what the other has not read."""
    ours, theirs = gpu.open(), gpu.open(Setup(doubling=False))
    given = np.arange(8, dtype=np.float32)
    value, room = theirs.write(given), ours.write(np.zeros(8, np.float32))
    gpu.machine.log.clear()
    assert ours.reaches(theirs)
    ours.copy_from(value, room)
    theirs.fill(value, np.zeros(8, np.float32))
    assert gpu.machine.log.count("within") == 1 and "out" not in gpu.machine.log
    np.testing.assert_array_equal(np.frombuffer(ours.read(room, 32), np.float32), given)
    np.testing.assert_array_equal(np.frombuffer(theirs.read(value, 32), np.float32), 0)


def test_a_session_takes_values_of_a_device_that_was_opened_in_another_way(gpu: Kind) -> None:
    session = gpu.session(arena_extend_strategy="kSameAsRequested")
    value = intarsia.OrtValue.ortvalue_from_numpy(X, gpu.kind, 0)
    gpu.machine.log.clear()
    session.run_with_ort_values(None, {"x": value})
    before = gpu.machine.log[: gpu.machine.log.index("launch")]
    assert "within" in before and "out" not in before


def test_strings_stay_on_the_host(gpu: Kind) -> None:
    device = gpu.open()
    with pytest.raises(intarsia.EPFail, match="a tensor of strings cannot be copied to the device"):
        GpuTransfer(device).copy_in(np.array(["a"], dtype=object), device.device)
