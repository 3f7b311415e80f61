"""Packages of plugin libraries, found by their metadata: made here, in the forms that vendors' wheels have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from intarsia.providers import plugin_packages
from intarsia.providers.literal_names import literal_names
from intarsia.providers.plugin_packages import installed, is_plugin_name, of

SUFFIX = plugin_packages._SUFFIX
CONSTANT = """
_EP_NAME = "{name}"

def get_ep_name():
    '''Its name.'''
    return _EP_NAME

def get_ep_names():
    return [_EP_NAME]
"""
CALLED = """
def get_ep_name() -> str:
    return "{name}"

def get_ep_names() -> list[str]:
    return [get_ep_name()]
"""
COMPUTED = """
import os

def get_ep_names():
    return [os.path.basename("{name}")]

def get_library_path():
    return __file__ + "{suffix}"
"""


def package(folder: Path, distribution: str, *, source: str | None, libraries: tuple[str, ...], version: str = "1.2") -> None:
    """An installed distribution as pip leaves it."""
    module = distribution.replace("-", "_")
    files = [f"{module}-{version}.dist-info/METADATA"]
    (folder / f"{module}-{version}.dist-info").mkdir(parents=True)
    (folder / files[0]).write_text(f"Metadata-Version: 2.4\nName: {distribution}\nVersion: {version}\n")
    if source is not None:
        (folder / module).mkdir()
        (folder / module / "__init__.py").write_text(source)
        files.append(f"{module}/__init__.py")
    for name in libraries:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"\x7fELF")
        files.append(name)
    (folder / f"{module}-{version}.dist-info/RECORD").write_text("".join(f"{name},,\n" for name in files))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


class TestFinding:
    @pytest.mark.parametrize("source", [CONSTANT, CALLED])
    def test_by_its_files_and_its_source(self, site: Path, source: str) -> None:
        library = f"onnxruntime_ep_acme/libonnxruntime_providers_acme{SUFFIX}"
        beside = f"onnxruntime_ep_acme/libacme{SUFFIX}"
        package(site, "onnxruntime-ep-acme", source=source.format(name="AcmeExecutionProvider"), libraries=(library, beside))
        found = installed()["onnxruntime-ep-acme"]
        assert (found.version, found.module, found.library, found.names) == (
            "1.2", "onnxruntime_ep_acme", site / library, ("AcmeExecutionProvider",),
        )  # fmt: skip
        assert found.ask() == (site / library, ("AcmeExecutionProvider",))
        assert of("AcmeExecutionProvider") is of("onnxruntime-ep-acme") is of("onnxruntime_ep_acme") is found
        assert of("OtherExecutionProvider") is None
        assert "onnxruntime_ep_acme" not in sys.modules

    def test_one_that_has_to_be_asked(self, site: Path) -> None:
        source = COMPUTED.format(name="OddExecutionProvider", suffix=SUFFIX)
        package(site, "onnxruntime-ep-odd", source=source, libraries=())
        found = installed()["onnxruntime-ep-odd"]
        assert (found.library, found.names) == (None, ())
        path, names = found.ask()
        assert (path.name, names) == (f"__init__.py{SUFFIX}", ("OddExecutionProvider",))
        del sys.modules["onnxruntime_ep_odd"]

    def test_what_is_none(self, site: Path) -> None:
        package(site, "onnxruntime-ep-meta", source=None, libraries=())  # it only requires others
        package(site, "onnxruntime-gpu", source="", libraries=())
        build = f"onnxruntime/capi/libonnxruntime_providers_qnn{SUFFIX}"
        package(site, "onnxruntime-qnn", source=None, libraries=(build,))  # a whole build of onnxruntime, as once
        assert not installed().keys() & {"onnxruntime-ep-meta", "onnxruntime-gpu", "onnxruntime-qnn"}

    def test_a_package_that_is_installed_later(self, site: Path) -> None:
        assert "onnxruntime-ep-late" not in installed()
        library = f"onnxruntime_ep_late/libonnxruntime_providers_late{SUFFIX}"
        package(site, "onnxruntime-ep-late", source=CALLED.format(name="LateExecutionProvider"), libraries=(library,))
        assert of("LateExecutionProvider") is not None

    def test_names_of_distributions(self) -> None:
        assert all(map(is_plugin_name, ("onnxruntime-ep-openvino", "onnxruntime_ep_nv_tensorrt_rtx_cu13", "onnxruntime-qnn")))
        assert not any(map(is_plugin_name, ("onnxruntime", "onnxruntime-gpu", "onnxruntime-ep-", "CPUExecutionProvider")))

    def test_nothing_is_looked_for_at_import_nor_for_the_cpu(self) -> None:
        script = (
            "import sys, numpy, onnx\n"
            "from intarsia.datasets import get_example\n"
            "import intarsia as ort\n"
            "from intarsia.providers import plugin_packages\n"
            "plugin_packages._found_on = lambda path: 1 / 0\n"
            "ort.InferenceSession(get_example('sigmoid.onnx'), providers=['CPUExecutionProvider'])\n"
            "assert not [m for m in sys.modules if m.startswith(('onnxruntime', 'intarsia.device.hardware.disc'))], sys.modules"
        )
        subprocess.run([sys.executable, "-c", script], check=True)


class TestNamesOfASource:
    @pytest.mark.parametrize(
        ("source", "names"),
        [
            (CONSTANT.format(name="A"), ("A",)),
            (CALLED.format(name="B"), ("B",)),
            ('N = "C"\ndef get_ep_name():\n    return N\n', ("C",)),
            ('def get_ep_names():\n    return ("D", "E")\n', ("D", "E")),
            ("def get_ep_names():\n    return get_ep_names()\n", ()),
            ("def get_ep_names():\n    return [f()]\n", ()),
            ("def get_ep_names():\n    x = 1\n    return ['A']\n", ()),
            ("def get_ep_names():\n    return 3\n", ()),
            ("def (", ()),
            ("a\0b", ()),
            ("", ()),
        ],
    )
    def test_are_texts_or_none(self, source: str, names: tuple[str, ...]) -> None:
        assert literal_names(source) == names
