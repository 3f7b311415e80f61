"""Which providers there are, and what happens to names that are not."""

from __future__ import annotations

import logging
import os
from importlib import metadata
from pathlib import Path

import pytest

import intarsia
from intarsia.ep.device import Device
from intarsia.ep.provider import ExecutionProvider
from intarsia.errors import EPFail, InvalidArgument, UnknownOption
from intarsia.providers import registry
from intarsia.providers.reference import ReferenceExecutionProvider
from intarsia.providers.registry import CPU, REFERENCE, ProviderWarning, load_provider, resolve


class Custom(ExecutionProvider):
    name = "CustomExecutionProvider"


class Absent(ExecutionProvider):
    name = "AbsentExecutionProvider"

    @classmethod
    def unavailable(cls) -> str:
        return "the library libabsent.so was not found; install the package absent-driver"


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Custom` and `Absent` registered for one test."""
    monkeypatch.setattr(registry, "_registered", {Custom.name: Custom, Absent.name: Absent})


def names(*args: object, **kwargs: object) -> list[str]:
    return [choice.name for choice in resolve(*args, **kwargs)]  # type: ignore[arg-type]


class TestResolve:
    def test_nothing_means_the_cpu(self) -> None:
        assert names(None) == names([]) == [CPU]

    def test_the_cpu_is_the_last_resort(self, registered: None) -> None:
        assert names([Custom.name]) == [Custom.name, CPU]
        assert names([CPU, Custom.name]) == [CPU, Custom.name]
        assert names([Custom.name], cpu_fallback=False) == [Custom.name]

    def test_reference_stands_in_where_the_cpu_provider_cannot_work(
        self, registered: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setitem(registry.BUILTIN, CPU, "intarsia.providers.no_such_module:CPUExecutionProvider")
        assert names([Custom.name]) == [Custom.name, REFERENCE]
        assert names([REFERENCE]) == [REFERENCE]
        assert "nodes that no other provider takes run on ReferenceExecutionProvider, which is slow" in caplog.text

    def test_options(self, registered: None) -> None:
        with pytest.raises(UnknownOption, match="CustomExecutionProvider has no option 'x'"):
            resolve([(Custom.name, {"x": 1})])
        with pytest.raises(UnknownOption, match="CustomExecutionProvider has no option 'x'"):
            resolve([Custom.name], [{"x": 1}])
        assert names([Custom.name, CPU], [{}, {}]) == [Custom.name, CPU]

    def test_classes_and_instances(self) -> None:
        assert names([Custom]) == [Custom.name, CPU]
        instance = Custom()
        assert resolve([instance])[0].create() is instance
        with pytest.raises(InvalidArgument, match="CustomExecutionProvider is an instance and has its options already"):
            resolve([(instance, {"x": 1})])

    @pytest.mark.parametrize(
        ("providers", "options", "message"),
        [
            (CPU, None, r"providers: expected a list .*, got 'CPUExecutionProvider'; write \['CPUExecutionProvider'\]"),
            (5, None, "providers: expected a list"),
            ([CPU], {"a": 1}, "provider_options: expected a list of dicts"),
            ([CPU], [{}, {}], "provider_options: expected 1 dicts, one per provider, got 2"),
            ([(CPU, {})], [{}], r"either as \(name, options\) in providers or as provider_options, not both"),
            ([7], None, r"expected a name or a pair \(name, options\), got 7"),
            ([(CPU, {}, 1)], None, r"expected a name or a pair"),
            ([(CPU, "x")], None, "options of 'CPUExecutionProvider': expected a dict, got 'x'"),
            ([int], None, "expected a name or a pair"),
        ],
    )
    def test_arguments_of_another_form(self, providers: object, options: object, message: str) -> None:
        with pytest.raises(InvalidArgument, match=message):
            resolve(providers, options)  # type: ignore[arg-type]

    def test_a_name_that_does_not_exist_is_an_error_whatever_else_is_named(self) -> None:
        with pytest.raises(
            UnknownOption, match="no execution provider is named 'CPUExecutionProvidr'; did you mean 'CPUExecutionPr"
        ):
            resolve([REFERENCE, "CPUExecutionProvidr"])
        with pytest.raises(UnknownOption, match="did you mean 'CUDAExecutionProvider'"):
            resolve(["CUDAExecutionProvidr"])

    def test_a_known_provider_that_is_not_there_is_left_out_with_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        """The documents' list: a GPU where there is one, the CPU otherwise."""
        with pytest.warns(
            ProviderWarning, match="MIGraphXExecutionProvider .AMD GPUs through MIGraphX. is not part of this version"
        ):
            assert names(["MIGraphXExecutionProvider", REFERENCE]) == [REFERENCE, CPU]
        assert "The session goes on with ReferenceExecutionProvider, CPUExecutionProvider." in caplog.text
        assert caplog.records[0].levelno == logging.WARNING

    def test_and_an_error_when_it_is_all_that_was_named(self) -> None:
        with pytest.raises(EPFail) as caught:
            resolve(["MIGraphXExecutionProvider", "QNNExecutionProvider"])
        message = str(caught.value)
        assert "none of the requested execution providers can be used" in message
        assert (
            "install one with an entry point 'MIGraphXExecutionProvider' in the group 'intarsia.execution_providers'" in message
        )
        assert "QNNExecutionProvider (Qualcomm NPUs)" in message
        assert "CPUExecutionProvider, ReferenceExecutionProvider" in message.partition("Available: ")[2]
        assert "It needs AMD's ROCm" in message

    def test_what_is_missing_on_this_machine(self, registered: None) -> None:
        message = "AbsentExecutionProvider cannot be used on this machine: the library libabsent.so was not found; install"
        with pytest.raises(EPFail, match=message):
            resolve([Absent.name])
        with pytest.warns(ProviderWarning, match=message):
            assert names([Absent.name, Custom.name]) == [Custom.name, CPU]

    def test_named_twice(self) -> None:
        with pytest.warns(ProviderWarning, match="provider 'ReferenceExecutionProvider' is named twice; the first is used"):
            assert names([REFERENCE, REFERENCE]) == [REFERENCE, CPU]

    @pytest.mark.parametrize("name", [n for n in registry.KNOWN_ELSEWHERE if n not in registry.BUILTIN])
    def test_every_known_name_has_its_reason(self, name: str) -> None:
        with pytest.raises(EPFail, match=f"{name} .* is not part of this version"):
            load_provider(name)


class TestRegister:
    @pytest.fixture(autouse=True)
    def empty(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(registry, "_registered", {})

    def test_class(self) -> None:
        intarsia.register_execution_provider(Custom)
        assert load_provider(Custom.name) is Custom
        assert intarsia.get_available_providers()[0] == Custom.name
        intarsia.unregister_execution_provider(Custom.name)
        with pytest.raises(UnknownOption, match="no execution provider 'CustomExecutionProvider' was registered"):
            intarsia.unregister_execution_provider(Custom.name)

    def test_location(self) -> None:
        location = "intarsia.providers.reference:ReferenceExecutionProvider"
        intarsia.register_execution_provider("OtherExecutionProvider", location)
        with pytest.raises(EPFail, match="registered as 'OtherExecutionProvider' calls itself 'ReferenceExecutionProvider'"):
            load_provider("OtherExecutionProvider")
        intarsia.register_execution_provider(REFERENCE, location, replace=True)
        assert load_provider(REFERENCE) is ReferenceExecutionProvider

    def test_replacing_must_be_meant(self) -> None:
        intarsia.register_execution_provider(Custom)
        with pytest.raises(InvalidArgument, match="named 'CustomExecutionProvider' is registered already; pass replace=True"):
            intarsia.register_execution_provider(Custom)
        intarsia.register_execution_provider(Custom, replace=True)

    def test_arguments(self) -> None:
        with pytest.raises(
            InvalidArgument, match=r"where is 'XExecutionProvider'. expected location='module:attribute', got None"
        ):
            intarsia.register_execution_provider("XExecutionProvider")
        with pytest.raises(InvalidArgument, match="expected a subclass of ExecutionProvider or a name, got <class 'int'>"):
            intarsia.register_execution_provider(int)  # type: ignore[arg-type]

        class Nameless(ExecutionProvider):
            pass

        with pytest.raises(InvalidArgument, match="Nameless has no name; expected a class attribute name"):
            intarsia.register_execution_provider(Nameless)

    def test_that_cannot_be_imported(self, caplog: pytest.LogCaptureFixture) -> None:
        intarsia.register_execution_provider("BrokenExecutionProvider", "no_such_module:Provider")
        intarsia.register_execution_provider("WrongExecutionProvider", "builtins:int")
        with pytest.raises(
            EPFail, match="BrokenExecutionProvider cannot be loaded from no_such_module:Provider: ModuleNotFoundError"
        ):
            load_provider("BrokenExecutionProvider")
        with pytest.raises(EPFail, match="cannot be loaded: expected a subclass of ExecutionProvider, got <class 'int'>"):
            load_provider("WrongExecutionProvider")
        assert "BrokenExecutionProvider" not in intarsia.get_available_providers()
        assert "BrokenExecutionProvider is not available: BrokenExecutionProvider cannot be loaded" in caplog.text


class TestLists:
    def test_available_are_in_order_of_priority(self) -> None:
        assert intarsia.get_available_providers()[-1] == REFERENCE

    def test_devices_that_a_driver_emulates_come_after_the_cpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from intarsia.providers.opencl import OpenCLExecutionProvider as OpenCl

        monkeypatch.setattr(OpenCl, "unavailable", classmethod(lambda cls: ""))
        for devices, emulated in (([True], True), ([True, False], False), ([False], False)):
            found = [Device("opencl", i, software=software) for i, software in enumerate(devices)]
            monkeypatch.setattr(OpenCl, "devices", classmethod(lambda cls, found=found: found))
            names = intarsia.get_available_providers()
            assert (names.index(OpenCl.name) > names.index("CPUExecutionProvider")) == emulated
            assert names[-1] == REFERENCE

    def test_absent_are_not_available(self, registered: None) -> None:
        assert Absent.name not in intarsia.get_available_providers()
        assert Absent.name in intarsia.get_all_providers()

    def test_all(self) -> None:
        found = intarsia.get_all_providers()
        assert found[-2:] == [REFERENCE, CPU]
        assert {"CUDAExecutionProvider", "TensorrtExecutionProvider", "DmlExecutionProvider", "CoreMLExecutionProvider"} < set(
            found
        )

    def test_device(self) -> None:
        assert intarsia.get_device() == "CPU"


def test_installed_packages_are_found_by_their_entry_point(example_plugin: str) -> None:
    assert example_plugin in intarsia.get_available_providers()
    assert load_provider(example_plugin).name == example_plugin
    assert names([(example_plugin, {"stride": "2"})]) == [example_plugin, CPU]


def test_packages_are_read_again_when_one_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UnknownOption, match="LateExecutionProvider"):
        load_provider("LateExecutionProvider")
    read: list[str] = []
    monkeypatch.setattr(metadata, "entry_points", lambda **group: read.append(group["group"]) or ())
    with pytest.raises(UnknownOption, match="LateExecutionProvider"):
        load_provider("LateExecutionProvider")
    assert read == []
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(tmp_path))
    info = tmp_path / "late_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: late-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[intarsia.execution_providers]\nLateExecutionProvider = late_plugin:Provider\n")
    os.utime(tmp_path, ns=(0, 0))  # a folder's time of change need not move within one tick of the clock
    with pytest.raises(EPFail, match="LateExecutionProvider cannot be loaded from late_plugin:Provider"):
        load_provider("LateExecutionProvider")


def test_a_plugin_that_fails_is_not_dropped_silently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "broken_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[intarsia.execution_providers]\nBrokenExecutionProvider = broken_plugin:Provider\n")
    (tmp_path / "broken_plugin.py").write_text("raise RuntimeError('driver 535 is needed, 470 was found')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        EPFail, match="cannot be loaded from broken_plugin:Provider: RuntimeError: driver 535 is needed, 470 was found"
    ):
        load_provider("BrokenExecutionProvider")
