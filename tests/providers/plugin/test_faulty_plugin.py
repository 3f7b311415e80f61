"""A C plugin that fails in each call that it is ordered to: what the caller is told, and that nothing stays behind."""

from __future__ import annotations

import gc
import logging
import resource
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.providers.plugin.compiled_plugin import CPU, NAME, FaultyPlugin, compiled

import intarsia as ort
from intarsia.errors import EPFail, Fail, InvalidArgument, NotImplemented
from intarsia.providers.plugin.interface.handles import held_count

X = np.array([[1, -2, 3], [np.nan, 0, -np.inf]], np.float32)
Y = np.array([[0, 2, 0], [np.nan, 0, np.inf]], np.float32)
FREE = {"factories": 0, "providers": 0, "compute infos": 0, "states": 0}


def model(batch: int | str = "n") -> bytes:
    """Abs(Relu(Neg(x))) of float32 [batch, 3]."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], name="neg"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Abs", ["b"], ["y"], name="abs"),
    ]
    inputs, outputs = ([helper.make_tensor_value_info(n, TensorProto.FLOAT, [batch, 3])] for n in "xy")
    graph = helper.make_graph(nodes, "three", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.fixture(autouse=True)
def nothing_left(faulty: FaultyPlugin, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """After each test every object of the plugin's is given back, and every object that it was given is let go."""
    gc.collect()
    held = held_count()
    yield
    caplog.get_records("call").clear()  # they hold exceptions, and these what was being done
    gc.collect()
    assert faulty.alive() == FREE
    assert held_count() <= held + 8  # what one library has once: its logger, the host's memory


def session(mode: str = "error", batch: int | str = "n") -> ort.InferenceSession:
    """The plugin before the CPU; `mode`: what happens when it fails."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.provider_fallback", mode)
    return ort.InferenceSession(model(batch), options, providers=[NAME, CPU])


class TestWithoutFaults:
    def test_it_runs_its_node(self, faulty: FaultyPlugin) -> None:
        with faulty.registered():
            assert NAME in ort.get_available_providers()
            found = session()
            assert {row.name: row.provider for row in found.explain().nodes} == {"neg": CPU, "relu": NAME, "abs": CPU}
            np.testing.assert_array_equal(found.run(None, {"x": X})[0], Y)
            del found
        assert NAME not in ort.get_available_providers()

    def test_its_devices(self, faulty: FaultyPlugin) -> None:
        with faulty.registered():
            (device,) = [d for d in ort.get_ep_devices() if d.ep_name == NAME]
            assert (device.ep_vendor, device.ep_metadata["version"]) == ("Acme", "1.2.3")
            assert device.ep_metadata["flavour"] == "plain"
            assert Path(device.ep_metadata["library_path"]).samefile(faulty.path)
            assert device.device == ort.get_hardware_devices()[0]
            assert device.memory_info(ort.OrtDeviceMemoryType.DEFAULT) is None
            with pytest.raises(EPFail, match="ep_device does not use DEFAULT memory of a non-CPU device"):
                device.create_sync_stream()
            options = ort.SessionOptions()
            options.add_provider_for_devices([device], {})
            found = ort.InferenceSession(model(), options)
            assert found.get_providers() == [NAME, CPU]
            np.testing.assert_array_equal(found.run(None, {"x": X})[0], Y)

    def test_from_its_own_thread(self, faulty: FaultyPlugin) -> None:
        with faulty.registered(), faulty.failing("own thread"):
            np.testing.assert_array_equal(session().run(None, {"x": X})[0], Y)

    def test_while_a_thread_of_its_own_talks(self, faulty: FaultyPlugin) -> None:
        with faulty.registered():
            found = session()
            with faulty.talking():
                threads = [threading.Thread(target=found.run, args=(None, {"x": X})) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for _ in range(20):
                    np.testing.assert_array_equal(found.run(None, {"x": X})[0], Y)
                for thread in threads:
                    thread.join()

    @pytest.mark.parametrize("version", [22, 29, 32])
    def test_of_each_version(self, version: int, tmp_path: Path) -> None:
        """One of version 22 has no functions that compile yet."""
        other = FaultyPlugin(compiled(tmp_path, version=version, file=f"libonnxruntime_providers_v{version}.so"))
        with other.registered():
            if version == 22:
                with pytest.warns(ort.ProviderWarning, match=r"OrtEp \(version 22\) has no GetCapability"):
                    found = session("warn")
            else:
                found = session()
            assert found.explain().counts.get(NAME, 0) == (0 if version == 22 else 1)
            np.testing.assert_array_equal(found.run(None, {"x": X})[0], Y)


class TestRegistering:
    def test_twice_and_never(self, faulty: FaultyPlugin) -> None:
        with faulty.registered():
            with pytest.raises(Fail, match=r"already registered under this name \(.*faulty.so\); unregister it before"):
                ort.register_execution_provider_library("faulty", faulty.path)
            with pytest.raises(Fail, match=f"it has a provider '{NAME}', and so has .*faulty.so, which is registered already"):
                ort.register_execution_provider_library("other", faulty.path)
        with pytest.raises(Fail, match="faulty was not registered"):
            ort.unregister_execution_provider_library("faulty")

    def test_again(self, faulty: FaultyPlugin) -> None:
        for _ in range(3):
            with faulty.registered():
                np.testing.assert_array_equal(session().run(None, {"x": X})[0], Y)
                gc.collect()
            assert faulty.alive() == FREE

    def test_sessions_outlive_it(self, faulty: FaultyPlugin) -> None:
        with faulty.registered():
            found = session()
        np.testing.assert_array_equal(found.run(None, {"x": X})[0], Y)
        assert faulty.alive()["factories"] == 1
        with pytest.raises(ort.UnknownOption, match="no execution provider is named"):
            session()
        del found

    def test_no_plugin(self, tmp_path: Path, faulty: FaultyPlugin) -> None:
        source = tmp_path / "other.c"
        source.write_text("int one(void) { return 1; }")
        library = tmp_path / "libother.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        with pytest.raises(Fail, match=r"it has no function 'ReleaseEpFactory', so it is no plugin"):
            ort.register_execution_provider_library("other", library)


REFUSED = {
    "CreateEpFactories": "Failed to load library .*: CreateEpFactories: CreateEpFactories fails as ordered",
    "no factory": "has no execution provider: CreateEpFactories made none",
    "too new": "has no execution provider: CreateEpFactories made none",
    "of another version": "made a factory without a name, for version 1 of onnxruntime's interface; expected a version from",
}
AT_START = {
    "GetSupportedDevices": "GetSupportedDevices: GetSupportedDevices fails as ordered",
    "no device": r"takes none of the devices that it was told of \(CPU",
    "CreateEp": "CreateEp: CreateEp fails as ordered",
    "no provider": "gave null where an OrtEp was expected",
    "GetCapability": "GetCapability: GetCapability fails as ordered",
    "Compile": "Compile: Compile fails as ordered",
    "CreateState": "CreateState: CreateState fails as ordered",
    "no compute info": "compiled '.*' to nothing, and gave no error",
    "no Compute": "compiled a part without a function Compute",
}
IN_RUNS: dict[str, tuple[type[Exception], str]] = {
    "OnRunStart": (EPFail, "OnRunStart: OnRunStart fails as ordered"),
    "OnRunEnd": (EPFail, "OnRunEnd: OnRunEnd fails as ordered"),
    "Compute": (EPFail, "Compute: Compute fails as ordered"),
    "no output": (EPFail, "output 0 was not written"),
    "unwritten entry": (EPFail, "OrtApi::CreateOpaqueValue is not among the functions that Intarsia has for plugins"),
    "not implemented": (NotImplemented, "not implemented, as ordered"),
    "words": (InvalidArgument, "bad \N{REPLACEMENT CHARACTER} bytes and \N{EURO SIGN}"),
    "no such output": (InvalidArgument, "a call with 1 outputs has no number 7"),
    "no such input": (InvalidArgument, "a call with 1 inputs has no number 7"),
    "negative size": (Fail, "negative dimensions"),
    "too large": (Fail, "Unable to allocate 4.00 EiB"),
    "allocates too much": (Fail, "has no 1,152,921,504,606,846,976 bytes"),
}


class TestFaults:
    @pytest.mark.parametrize("fault", REFUSED)
    def test_of_the_library(self, faulty: FaultyPlugin, fault: str) -> None:
        with faulty.failing(fault), pytest.raises(Fail, match=REFUSED[fault]):
            ort.register_execution_provider_library("faulty", faulty.path)
        assert NAME not in ort.get_all_providers()
        with faulty.registered():  # the name is free again
            np.testing.assert_array_equal(session().run(None, {"x": X})[0], Y)

    @pytest.mark.parametrize("fault", AT_START)
    def test_at_a_sessions_start(self, faulty: FaultyPlugin, fault: str) -> None:
        with faulty.registered():
            with faulty.failing(fault), pytest.raises(EPFail, match=AT_START[fault]):
                session()
            with faulty.failing(fault), pytest.warns(ort.ProviderWarning, match=AT_START[fault]):
                found = session("warn")
            np.testing.assert_array_equal(found.run(None, {"x": X})[0], Y)
            assert found.explain().counts == {CPU: 3}
        with faulty.registered():
            np.testing.assert_array_equal(session().run(None, {"x": X})[0], Y)

    @pytest.mark.parametrize("fault", IN_RUNS)
    def test_in_a_run(self, faulty: FaultyPlugin, fault: str) -> None:
        kind, message = IN_RUNS[fault]
        with faulty.registered():
            found = session()
            with faulty.failing(fault), pytest.raises(kind, match=message):
                found.run(None, {"x": X})
            np.testing.assert_array_equal(found.run(None, {"x": X})[0], Y)

    @pytest.mark.parametrize("fault", ["Compute", "no output"])
    def test_the_cpu_stands_in(self, faulty: FaultyPlugin, fault: str) -> None:
        with faulty.registered():
            found = session("warn")
            with faulty.failing(fault), pytest.warns(ort.ProviderWarning, match=IN_RUNS[fault][1]):
                np.testing.assert_array_equal(found.run(None, {"x": X})[0], Y)

    @pytest.mark.parametrize("fault", ["claims none", "claims twice", "null name"])
    def test_odd_answers_that_harm_nobody(self, faulty: FaultyPlugin, fault: str) -> None:
        with faulty.registered(), faulty.failing(fault):
            found = session()
            assert found.explain().counts == {NAME: 1, CPU: 2}
            np.testing.assert_array_equal(found.run(None, {"x": X})[0], Y)

    def test_a_library_that_is_not_given_back(self, faulty: FaultyPlugin) -> None:
        ort.register_execution_provider_library("faulty", faulty.path)
        with faulty.failing("ReleaseEpFactory"), pytest.raises(EPFail, match="ReleaseEpFactory fails as ordered"):
            ort.unregister_execution_provider_library("faulty")
        assert NAME not in ort.get_all_providers()
        assert faulty.alive()["factories"] == 1
        faulty.give_back_the_last()


@pytest.fixture
def no_log() -> Iterator[None]:
    """pytest keeps log records, these their exceptions, and these what was being done."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("no_log")
def test_a_thousand_sessions(faulty: FaultyPlugin) -> None:
    """Memory, handles, descriptors and threads are as after a hundred; a fault in each third does not change that."""
    own = Path("/proc/self")
    if not own.exists():
        pytest.skip("needs /proc, which counts descriptors, threads and pages")

    def state() -> tuple[int, int, int]:
        gc.collect()
        return held_count(), len(list((own / "fd").iterdir())), len(list((own / "task").iterdir()))

    def resident() -> int:
        return int((own / "statm").read_text().split()[1]) * resource.getpagesize()

    with faulty.registered():
        before, rss = state(), 0
        for i in range(1000):
            fault = ("", "Compute", "CreateState")[i % 3]
            with faulty.failing(fault):
                try:
                    session(batch=2).run(None, {"x": X})
                except EPFail:
                    assert fault
            if i == 299:
                before, rss = state(), resident()
        assert state() == before
        assert faulty.alive() == {**FREE, "factories": 1}
        assert resident() - rss < 24 << 20
