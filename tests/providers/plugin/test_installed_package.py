"""A plugin library in an installed package: found, named, shown, and which of two providers of one name serves."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.providers.plugin.compiled_plugin import CPU, NAME, FaultyPlugin
from tests.providers.plugin.test_faulty_plugin import X, Y, model
from tests.providers.test_plugin_packages import CALLED, package

import intarsia as ort
from intarsia.cli import main
from intarsia.ep.hardware import EpDevice, HardwareDevice
from intarsia.errors import EPFail, Fail
from intarsia.providers import plugin_packages, provider_libraries, registry
from intarsia.providers.plugin_answers import answer
from intarsia.reports.plugins import plugin_states

OPENVINO, PACKAGE = "OpenVINOExecutionProvider", "onnxruntime-ep-acme"


@pytest.fixture
def site(faulty: FaultyPlugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages that Python looks in first; libraries that are loaded from it are let go."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(provider_libraries, "_of_packages", {})
    yield tmp_path
    gc.collect()
    for library in provider_libraries._of_packages.values():
        library.release()


def install(site: Path, faulty: FaultyPlugin, name: str = NAME) -> Path:
    """The C plugin as a package's, whose source says that its provider is called `name`."""
    library = f"onnxruntime_ep_acme/libonnxruntime_providers_acme{faulty.path.suffix}"
    package(site, PACKAGE, source=CALLED.format(name=name), libraries=(library,))
    shutil.copy(faulty.path, site / library)
    return site / library


@pytest.mark.parametrize("name", [NAME, PACKAGE])
def test_it_is_used_by_its_name_and_its_packages(site: Path, faulty: FaultyPlugin, name: str) -> None:
    library = install(site, faulty)
    session = ort.InferenceSession(model(), providers=[name, CPU])
    assert session.get_providers() == [NAME, CPU]
    assert session.explain().counts == {NAME: 1, CPU: 2}
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], Y)
    assert NAME in ort.get_available_providers()
    (device,) = [d for d in ort.get_ep_devices() if d.ep_name == NAME]
    assert device.ep_metadata["library_path"] == str(library)
    assert "onnxruntime_ep_acme" not in sys.modules


def test_it_is_shown(site: Path, faulty: FaultyPlugin, capsys: pytest.CaptureFixture[str]) -> None:
    library = install(site, faulty)
    state = next(s for s in plugin_states() if s.package == PACKAGE)
    assert (state.provider, state.version, state.library, state.why) == (NAME, "1.2", str(library), "")
    assert state.devices.startswith("CPU (")
    assert state.serves == (NAME, PACKAGE)
    assert main(["providers"]) == 0
    printed = capsys.readouterr()
    out = printed.out + printed.err
    assert f"in providers=[...]: {NAME} or {PACKAGE}" in out
    assert str(library) in out.replace("\n", "")


def test_of_one_name_intarsias_own_serves_where_it_works(
    site: Path, faulty: FaultyPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, faulty, OPENVINO)
    own = registry._import(registry.BUILTIN[OPENVINO])
    monkeypatch.setattr(registry, "_own_obstacle", lambda name: "")
    assert registry.load_provider(OPENVINO) is own
    monkeypatch.setattr(registry, "_own_obstacle", lambda name: "openvino is not installed")
    expected = (
        rf"{PACKAGE} 1.2 has no provider '{OPENVINO}'; its library has: {NAME}.*own {OPENVINO} does not work here either: "
    )
    with pytest.raises(EPFail, match=expected):
        registry.load_provider(OPENVINO)
    assert registry.load_provider(PACKAGE).name == NAME
    with faulty.registered():
        assert registry.load_provider(NAME).library_path == str(faulty.path)  # type: ignore[attr-defined]


def test_what_is_wrong_with_a_package_is_said(site: Path, faulty: FaultyPlugin) -> None:
    library = install(site, faulty)
    library.write_bytes(b"no library")
    state = next(s for s in plugin_states() if s.package == PACKAGE)
    assert "it is no shared library: it begins with b'no l'" in state.why
    with pytest.raises(EPFail, match=f"{NAME} cannot be loaded from the package {PACKAGE} 1.2: Fail: Failed to load library"):
        ort.InferenceSession(model(), providers=[NAME])
    (site / "onnxruntime_ep_acme/__init__.py").write_text("raise OSError('no wheel for this machine')")
    library.unlink()
    (site / "onnxruntime_ep_acme-1.2.dist-info/RECORD").write_text("onnxruntime_ep_acme/__init__.py,,\n")
    (site / "later").mkdir()  # the folder has changed
    with pytest.raises(EPFail, match="does not say where its library is: OSError: no wheel for this machine"):
        registry.load_provider(PACKAGE)


def test_virtual_devices_are_offered_by_the_registrations_name(faulty: FaultyPlugin, monkeypatch: pytest.MonkeyPatch) -> None:
    from intarsia.providers.plugin import library

    told: list[list[HardwareDevice]] = []
    real = library.load_library

    def load(name: str, path: str, hardware: list[HardwareDevice]) -> library.PluginLibrary:
        told.append(list(hardware))
        return real(name, path, hardware)

    imitated = HardwareDevice("gpu", "Google", 0x1AE0, 0xC0DE, {}, software=True)
    monkeypatch.setattr(provider_libraries, "software_devices", lambda: (imitated,))
    monkeypatch.setattr(library, "load_library", load)
    for name in ("acme", "acme.virtual"):
        with faulty.registered(name):
            assert NAME in ort.get_available_providers()
    assert [imitated in devices for devices in told] == [False, True]


class TestWhatIsRemembered:
    """A library is loaded to be listed once; later processes know what it said."""

    @pytest.fixture(autouse=True)
    def _cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))

    def _no_load(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def load(*_: object) -> None:
            raise Fail("loaded")

        monkeypatch.setattr(provider_libraries, "provider_of_package", load)

    def test_the_library_is_not_loaded_again(self, site: Path, faulty: FaultyPlugin, monkeypatch: pytest.MonkeyPatch) -> None:
        install(site, faulty)
        before = next(s for s in plugin_states() if s.package == PACKAGE)
        self._no_load(monkeypatch)
        assert NAME in ort.get_available_providers()
        assert next(s for s in plugin_states() if s.package == PACKAGE) == before
        assert NAME not in [device.ep_name for device in ort.get_ep_devices()]  # which asks the library

    def test_another_file_or_other_hardware_is_asked(
        self, site: Path, faulty: FaultyPlugin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        library = install(site, faulty)
        assert NAME in ort.get_available_providers()
        self._no_load(monkeypatch)
        os.utime(library, (1, 1))
        assert NAME not in ort.get_available_providers()

    def test_a_refusal_is_remembered_and_a_failure_is_not(
        self, site: Path, faulty: FaultyPlugin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        library = install(site, faulty)
        content = library.read_bytes()
        library.write_bytes(b"no library")
        os.utime(library, (1, 1))
        found = plugin_packages.of(PACKAGE)
        assert found is not None
        assert "it is no shared library" in answer(found, NAME).missing
        library.unlink()  # a mapped file is not written to
        library.write_bytes(content)
        os.utime(library, (1, 1))
        assert answer(found, NAME).missing == ""

        class NoDevice(ort.ExecutionProvider):
            name = NAME

            @classmethod
            def ep_devices(cls) -> list[EpDevice]:
                return []

            @classmethod
            def unavailable(cls) -> str:
                return "it takes no device"

        monkeypatch.setattr(provider_libraries, "provider_of_package", lambda package, name: NoDevice)
        assert answer(found, NAME).missing == ""
        assert answer(found, NAME, anew=True).missing == "it takes no device"
        self._no_load(monkeypatch)
        assert answer(found, NAME).missing == "it takes no device"
