"""Devices, memories, arenas; providers with their devices, and what picks among them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intarsia as ort
from intarsia.capi import _pybind_state as state
from intarsia.errors import EPFail, Fail, InvalidArgument, NotImplemented, UnknownOption, WrongType

ARENA, DEFAULT = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, ort.OrtMemType.DEFAULT
Policy = ort.OrtExecutionProviderDevicePolicy
PROVIDER = """
from intarsia.ep.device import Device
from intarsia.providers.reference import ReferenceExecutionProvider

class {name}ExecutionProvider(ReferenceExecutionProvider):
    name = "{name}ExecutionProvider"
    vendor = "Acme"

    @classmethod
    def devices(cls):
        return [Device("{kind}", 0, {host}, "nvidia", "an accelerator")]
"""


class TestOrtDevice:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("cpu", (0, 0)), ("cuda", (1, 0x10DE)), ("cann", (3, 0x19E5)), ("dml", (1, 0x1414)), ("webgpu", (1, 0)),
            ("gpu", (1, 0)), ("npu", (3, 0)), ("CPU", (0, 0)),
        ],
    )  # fmt: skip
    def test_make(self, name: str, expected: tuple[int, int]) -> None:
        device = ort.OrtDevice.make(name, 2)
        assert (device.device_type(), device.device_vendor_id()) == expected
        assert (device.device_id(), device.device_mem_type(), device.mem_type()) == (2, 0, 0)
        assert device._get_c_device() is device
        assert device.kind == ("webgpu" if name == "gpu" else name.lower())  # the same type, without a vendor

    def test_vendor(self) -> None:
        assert ort.OrtDevice.make("gpu", 0, ort.OrtDeviceVendorId.AMD).vendor_id() == 0x1002

    def test_from_numbers(self) -> None:
        device = state.OrtDevice(state.OrtDevice.cpu(), state.OrtDevice.default_memory(), 0)
        assert device == ort.OrtDevice.make("cpu", 0)
        assert device != ort.OrtDevice.make("cpu", 1)
        assert hash(device) == hash(state.OrtDevice(device))
        assert state.OrtDevice(1, 0, 0x10DE, 3) == ort.OrtDevice.make("cuda", 3)
        assert repr(device) == "OrtDevice(type=0, memory=0, vendor=0x0000, id=0)"
        kinds = [getattr(state.OrtDevice, n)() for n in ("cpu", "cuda", "gpu", "dml", "webgpu", "fpga", "npu", "cann")]
        assert kinds == [0, 1, 1, 1, 1, 2, 3, 3]

    def test_errors(self) -> None:
        with pytest.raises(InvalidArgument, match="Unsupported device type: xpu; did you mean 'npu'"):
            ort.OrtDevice.make("xpu", 0)
        with pytest.raises(WrongType, match=r"OrtDevice: expected \(type, memory, id\)"):
            ort.OrtDevice("cpu")
        with pytest.raises(InvalidArgument, match="expected a type from 0"):
            ort.OrtDevice(9, 0, 0)


class TestMemories:
    def test_by_name(self) -> None:
        info = ort.OrtMemoryInfo("Cpu", ARENA, 0, DEFAULT)
        assert (info.name, info.allocator_type, info.device_id, info.mem_type) == ("Cpu", ARENA, 0, DEFAULT)
        assert (info.device_mem_type, info.device_vendor_id) == (ort.OrtDeviceMemoryType.DEFAULT, 0)
        assert ort.OrtValue.ortvalue_from_shape_and_type([2], np.float32, memory_info=info).device_name() == "cpu"
        assert repr(info) == "OrtMemoryInfo('Cpu', ORT_ARENA_ALLOCATOR, id=0, DEFAULT)"

    def test_of_any_device(self) -> None:
        kind, memory = ort.OrtMemoryInfoDeviceType.GPU, ort.OrtDeviceMemoryType.HOST_ACCESSIBLE
        info = ort.OrtMemoryInfo.create_v2("Test", kind, 0x10DE, 1, memory, 0, ARENA)
        assert (info.name, info.device_id, info.device_mem_type, info.device_vendor_id) == ("Test", 1, memory, 0x10DE)
        with pytest.raises(InvalidArgument, match=r"Test is host memory that a device.s driver pins, and no provider here has"):
            ort.OrtValue.ortvalue_from_shape_and_type([2], np.float32, memory_info=info)

    def test_errors(self) -> None:
        with pytest.raises(InvalidArgument, match=r"Specified device is not supported. Try CreateMemoryInfo_V2. Got 'CPU'"):
            ort.OrtMemoryInfo("CPU", ARENA, 0, DEFAULT)
        with pytest.raises(WrongType, match="allocator_type: expected OrtAllocatorType, got 1"):
            ort.OrtMemoryInfo("Cpu", 1, 0, DEFAULT)  # type: ignore[arg-type]


class TestArenas:
    def test_by_position_and_by_name(self) -> None:
        arena = ort.OrtArenaCfg(8, 0, 4, 2)
        assert (arena.max_mem, arena.arena_extend_strategy) == (8, 0)
        assert (arena.initial_chunk_size_bytes, arena.max_dead_bytes_per_chunk) == (4, 2)
        arena = ort.OrtArenaCfg({"max_mem": 10, "arena_extend_strategy": 1, "initial_chunk_size_bytes": 20})
        assert [getattr(arena, name) for name in ort.OrtArenaCfg.FIELDS] == [10, 1, 20, -1, -1, -1]
        assert repr(arena).startswith("OrtArenaCfg({'max_mem': 10")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (({"a": 1},), "Invalid OrtArenaCfg option: a"),
            (({"max_mem": "x"},), "OrtArenaCfg option 'max_mem': expected an integer, got 'x'"),
            ((1, 2), "OrtArenaCfg: expected a dict or four numbers"),
        ],
    )
    def test_errors(self, arguments: tuple[object, ...], message: str) -> None:
        with pytest.raises(InvalidArgument, match=message):
            ort.OrtArenaCfg(*arguments)

    def test_shared_allocators(self, make_session) -> None:
        from intarsia.values.ort_device import registered_allocators

        info = ort.OrtMemoryInfo("Cpu", ARENA, 0, DEFAULT)
        ort.create_and_register_allocator(info, ort.OrtArenaCfg(1 << 20, 0, 4, 2))
        ort.create_and_register_allocator(info, None)
        assert [a.memory for a in registered_allocators()] == [info]
        options = ort.SessionOptions()
        options.add_session_config_entry("session.use_env_allocators", "1")
        assert len(make_session(options=options).run(None, {"x": np.ones((1, 3), np.float32)})) == 2
        with pytest.raises(
            NotImplemented, match=r"CUDAExecutionProvider is not implemented in CreateAndRegisterAllocatorV2\(\)"
        ):
            ort.create_and_register_allocator_v2("CUDAExecutionProvider", info, {}, None)
        with pytest.raises(InvalidArgument, match="expected host memory"):
            ort.create_and_register_allocator(ort.OrtMemoryInfo("Cuda", ARENA, 0, DEFAULT))
        pinned = ort.OrtMemoryInfo("CudaPinned", ARENA, 0, DEFAULT)
        with pytest.raises(
            InvalidArgument, match="CudaPinned is host memory that a device's driver pins, and no provider here"
        ):
            ort.create_and_register_allocator(pinned)
        for place in (pinned, "cuda_pinned", "CudaPinned"):
            with pytest.raises(InvalidArgument, match="is host memory that a device's driver pins"):
                ort.OrtValue.ortvalue_from_numpy(np.ones(3, np.float32), place, 0)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match=r"expected 0 \(kNextPowerOfTwo\), 1 \(kSameAsRequested\) or -1 .*, got 7"):
            ort.create_and_register_allocator(info, ort.OrtArenaCfg({"arena_extend_strategy": 7}))
        with pytest.raises(WrongType, match="arena_cfg: expected OrtArenaCfg, got 5"):
            ort.create_and_register_allocator(info, 5)  # type: ignore[arg-type]


class TestEpDevices:
    def test_the_cpu(self) -> None:
        device = next(d for d in ort.get_ep_devices() if d.ep_name == "CPUExecutionProvider")
        assert device.ep_metadata["version"] == ort.__version__
        assert Path(device.ep_metadata["library_path"]).is_file()
        assert device.device.type is ort.OrtHardwareDeviceType.CPU
        assert isinstance(device.device.vendor_id, int)
        assert device.device in state.get_hardware_devices()
        assert device.memory_info(ort.OrtDeviceMemoryType.DEFAULT) is None
        with pytest.raises(EPFail, match="ep_device does not use DEFAULT memory of a non-CPU device"):
            device.create_sync_stream()
        with pytest.raises(WrongType, match="memory_info: expected OrtDeviceMemoryType, got 0"):
            device.memory_info(0)  # type: ignore[arg-type]

    def test_a_provider_for_devices(self, make_session) -> None:
        options = ort.SessionOptions()
        assert not options.has_providers()
        cpu = [d for d in ort.get_ep_devices() if d.ep_name == "CPUExecutionProvider"]
        options.add_provider_for_devices(cpu, {})
        assert options.has_providers()
        assert make_session(options=options, providers=None).get_providers() == ["CPUExecutionProvider"]
        with pytest.raises(InvalidArgument, match="Must provide one or more OrtEpDevice instances"):
            options.add_provider_for_devices([], {})
        with pytest.raises(WrongType, match="expected OrtEpDevice instances"):
            options.add_provider_for_devices([1], {})
        with pytest.raises(InvalidArgument, match="All OrtEpDevice values must have the same execution provider"):
            options.add_provider_for_devices(ort.get_ep_devices(), {})
        with pytest.raises(UnknownOption, match="Unknown Provider Type: Foo"):
            options.add_provider("Foo", {})

    def test_why_a_provider_does_not_work(self) -> None:
        cpu = state.get_hardware_devices()[0]
        details = state.get_hardware_device_ep_incompatibility_details
        assert details("CPUExecutionProvider", cpu) == {"reasons_bitmask": 0, "error_code": 0, "notes": ""}
        assert details("CUDAExecutionProvider", cpu)["reasons_bitmask"] == 4
        with pytest.raises(WrongType, match="expected an OrtHardwareDevice"):
            details("CPUExecutionProvider", None)


class TestLibrariesAndPolicies:
    @pytest.fixture
    def library(self, tmp_path: Path):
        registered: list[str] = []

        def register(name: str, kind: str, *, host: bool = True) -> None:
            path = tmp_path / f"{name}.py"
            path.write_text(PROVIDER.format(name=name, kind=kind, host=host))
            ort.register_execution_provider_library(name, path)
            registered.append(name)

        yield register
        for name in registered:
            ort.unregister_execution_provider_library(name)

    def test_a_library(self, library, make_session) -> None:
        library("Fast", "gpu")
        assert "FastExecutionProvider" in ort.get_available_providers()
        (device,) = [d for d in ort.get_ep_devices() if d.ep_name == "FastExecutionProvider"]
        assert (device.ep_vendor, device.device.type, device.device.vendor_id) == (
            "Acme",
            ort.OrtHardwareDeviceType.GPU,
            0x10DE,
        )
        assert device.device.metadata["Description"] == "an accelerator"
        assert device.memory_info(ort.OrtDeviceMemoryType.DEFAULT) is None  # it works in the host's
        options = ort.SessionOptions()
        options.add_provider_for_devices([device], {})
        assert make_session(options=options, providers=None).get_providers()[0] == "FastExecutionProvider"
        with pytest.raises(Fail, match="already registered"):
            library("Fast", "gpu")

    def test_memory_of_a_device(self, library) -> None:
        library("Far", "gpu", host=False)
        (device,) = [d for d in ort.get_ep_devices() if d.ep_name == "FarExecutionProvider"]
        memory = device.memory_info(ort.OrtDeviceMemoryType.DEFAULT)
        assert memory is not None
        assert memory.device_type is ort.OrtMemoryInfoDeviceType.GPU
        assert (memory.name, memory.device_vendor_id, memory.device_id) == ("FarExecutionProvider", 0x10DE, 0)
        assert device.memory_info(ort.OrtDeviceMemoryType.HOST_ACCESSIBLE) is None
        with pytest.raises(EPFail, match="this provider has no streams that a program can hold"):
            device.create_sync_stream()

    @pytest.mark.parametrize(
        ("policy", "first"),
        [
            (Policy.DEFAULT, "CPU"), (Policy.PREFER_CPU, "CPU"), (Policy.PREFER_GPU, "Fast"), (Policy.PREFER_NPU, "Frugal"),
            (Policy.MAX_PERFORMANCE, "Fast"), (Policy.MAX_EFFICIENCY, "Frugal"), (Policy.MIN_OVERALL_POWER, "Frugal"),
        ],
    )  # fmt: skip
    def test_policies(self, library, make_session, policy: Policy, first: str) -> None:
        library("Fast", "gpu")
        library("Frugal", "npu")
        options = ort.SessionOptions()
        options.set_provider_selection_policy(policy)
        session = make_session(options=options, providers=None)
        assert session.get_providers()[0] == f"{first}ExecutionProvider"
        assert session.get_providers()[-1] == "CPUExecutionProvider"
        assert make_session(options=options).get_providers() == ["CPUExecutionProvider"]  # named providers come first

    def test_a_delegate(self, library, make_session) -> None:
        library("Fast", "gpu")
        library("Frugal", "npu")
        seen: list[object] = []

        def choose(devices, model_metadata, runtime_metadata, max_selections):
            seen.append(([d.ep_name for d in devices], model_metadata, runtime_metadata, max_selections))
            return [d for d in devices if d.ep_name == "FastExecutionProvider"]

        options = ort.SessionOptions()
        options.set_provider_selection_policy_delegate(choose)
        session = make_session(options=options, providers=None)
        assert session.get_providers() == ["FastExecutionProvider", "CPUExecutionProvider"]
        ((names, *others),) = seen  # type: ignore[misc]
        assert names[:2] == ["FrugalExecutionProvider", "FastExecutionProvider"]
        assert names[-1] == "CPUExecutionProvider"
        expected = {"producer_name", "producer_version", "domain", "model_version", "doc_string", "graph_name"}
        assert set(others[0]) >= expected | {"graph_description"}
        assert others[1:] == [{}, 8]
        options.set_provider_selection_policy_delegate(lambda *_: 1 / 0)
        with pytest.raises(Fail, match="the provider selection delegate failed: ZeroDivisionError"):
            make_session(options=options, providers=None)
        options.set_provider_selection_policy_delegate(lambda *_: ["CPUExecutionProvider"])
        with pytest.raises(Fail, match="expected one to 8 of the devices it was given"):
            make_session(options=options, providers=None)
        options.set_provider_selection_policy_delegate(lambda *_: [])
        with pytest.raises(Fail, match=r"returned \[\]; expected one to 8 of the devices"):
            make_session(options=options, providers=None)
        with pytest.raises(WrongType, match="delegate: expected a function, got 3"):
            options.set_provider_selection_policy_delegate(3)  # type: ignore[arg-type]
        with pytest.raises(WrongType, match="policy: expected OrtExecutionProviderDevicePolicy, got 3"):
            options.set_provider_selection_policy(3)  # type: ignore[arg-type]

    def test_what_is_no_library(self, tmp_path: Path) -> None:
        for name, text, message in (
            ("none.so", None, "Failed to load library .*: cannot open shared object file"),
            ("cut.so", "\x7fELF", r"its ELF headers are damaged or cut short .*; expected a shared library for onnxruntime's"),
            ("text.so", "hello", "it is no shared library: it begins with b.hell."),
            ("empty.so", "", "the file is empty"),
            ("empty.py", "", "it defines no subclass of ExecutionProvider"),
            ("broken.py", "1 / 0", "ZeroDivisionError"),
            ("cpu.py", PROVIDER.format(name="CPU", kind="cpu", host=True), "is registered already"),
        ):
            path = tmp_path / name
            if text is not None:
                path.write_text(text)
            with pytest.raises(Fail, match=message):
                ort.register_execution_provider_library("wrong", path)
        with pytest.raises(Fail, match="it is a folder; expected a shared library"):
            ort.register_execution_provider_library("wrong", tmp_path)
        with pytest.raises(WrongType, match="registration_name: expected text, got 1"):
            ort.register_execution_provider_library(1, tmp_path)  # type: ignore[arg-type]
        with pytest.raises(WrongType, match="library_path: expected a path, got None"):
            ort.register_execution_provider_library("wrong", None)  # type: ignore[arg-type]
        with pytest.raises(Fail, match="Execution provider library: wrong was not registered"):
            ort.unregister_execution_provider_library("wrong")
