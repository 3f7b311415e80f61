"""One setting decides what follows when a named provider is not usable; every message says what was looked for."""

from __future__ import annotations

import importlib.util
import logging
import platform
from collections.abc import Iterator

import onnx.parser
import pytest

import intarsia as ort
from intarsia.ep.provider import ExecutionProvider, Support
from intarsia.errors import EPFail, InvalidArgument
from intarsia.providers import fallback
from intarsia.providers.foreign_names import KNOWN_ELSEWHERE
from intarsia.providers.missing_libraries import NEEDS, looked_for
from intarsia.providers.registry import BUILTIN

CPU, REFERENCE, TENSORRT = "CPUExecutionProvider", "ReferenceExecutionProvider", "TensorrtExecutionProvider"
ABSENT = "MIGraphXExecutionProvider"
SOURCE = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { a = Relu(x)  y = Exp(a) }'
).SerializeToString()

LEAVE_IT_OUT = (
    "Leave it out, name a provider that may run them after it (CPUExecutionProvider), or set "
    "'session.provider_fallback' to 'warn'"
)


class Picky(ExecutionProvider):
    name = "PickyExecutionProvider"

    def supports(self, node, graph) -> Support:
        return Support.no(f"{node.op_type} is beneath it")


@pytest.fixture(autouse=True)
def default(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(fallback.VARIABLE, raising=False)
    yield
    ort.set_provider_fallback("listed")


def session(providers: list[object], mode: str = "") -> ort.InferenceSession:
    options = ort.SessionOptions()
    if mode:
        options.add_session_config_entry(fallback.KEY, mode)
    return ort.InferenceSession(SOURCE, options, providers)


@pytest.mark.parametrize(
    ("absent", "message"),
    [(ABSENT, f"{ABSENT} .* is not part of this version"), (Picky, "PickyExecutionProvider takes none of")],
)
class TestModes:
    def test_listed_lets_another_of_the_list_stand_in(self, absent: object, message: str) -> None:
        for mode in ("", "listed"):
            with pytest.warns(ort.ProviderWarning, match=message):
                assert CPU in session([absent, CPU], mode).get_providers()
            with pytest.raises(EPFail, match=message):
                session([absent], mode)

    def test_error_lets_none(self, absent: object, message: str) -> None:
        for providers in ([absent, CPU], [absent], [CPU, absent] if absent is ABSENT else [absent, REFERENCE, CPU]):
            with pytest.raises(EPFail, match=message):
                session(providers, "error")

    def test_warn_goes_on_with_the_cpu(self, absent: object, message: str) -> None:
        for providers in ([absent, CPU], [absent]):
            with pytest.warns(ort.ProviderWarning, match=message):
                made = session(providers, "warn")
            assert made.explain().counts == {CPU: 2}

    def test_but_not_where_the_cpu_is_forbidden(self, absent: object, message: str) -> None:
        options = ort.SessionOptions()
        options.add_session_config_entry(fallback.KEY, "warn")
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        with pytest.raises((EPFail, ort.NotImplemented)):
            ort.InferenceSession(SOURCE, options, [absent])


class TestWhereTheModeComesFrom:
    def test_entry_then_environment_then_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert fallback.fallback_mode() == "listed"
        ort.set_provider_fallback("warn")
        assert fallback.fallback_mode() == "warn"
        monkeypatch.setenv(fallback.VARIABLE, "error")
        assert fallback.fallback_mode() == "error"
        assert fallback.fallback_mode("listed") == "listed"

    def test_other_words(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(InvalidArgument, match="set_provider_fallback: 'warning' is not a value; did you mean 'warn'"):
            ort.set_provider_fallback("warning")
        with pytest.raises(InvalidArgument, match=r"configuration entry 'session.provider_fallback': 'eror' is not a value"):
            session([CPU], "eror")
        monkeypatch.setenv(fallback.VARIABLE, "never")
        with pytest.raises(InvalidArgument, match="environment variable INTARSIA_PROVIDER_FALLBACK: 'never' is not a value"):
            session([CPU])

    @pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="install_as looks for onnxruntime's own tools")
    def test_install_as_is_onnxruntimes_way(self) -> None:
        from intarsia.compat import install_as

        name = "stand_in_for_onnxruntime"
        install_as.install_as(name)
        assert fallback.fallback_mode() == "warn"
        install_as.uninstall(name)
        assert fallback.fallback_mode() == "listed"


class TestTakesNoNode:
    def test_reasons_are_counted(self) -> None:
        with pytest.raises(EPFail) as caught:
            session([Picky])
        assert str(caught.value).splitlines() == [
            "PickyExecutionProvider takes none of the model's 2 nodes:",
            "  1 x Relu is beneath it",
            "  1 x Exp is beneath it",
            LEAVE_IT_OUT,
        ]

    def test_a_provider_that_others_left_nothing_to_is_no_matter(self) -> None:
        made = session([REFERENCE, CPU], "error")
        assert made.explain().counts == {REFERENCE: 2}

    def test_nor_is_a_model_without_nodes(self) -> None:
        text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] x) { }'
        ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), providers=[Picky])


class TestWhatWasLookedFor:
    @pytest.mark.parametrize("name", sorted(NEEDS))
    def test_is_said(self, name: str) -> None:
        assert name in KNOWN_ELSEWHERE or name in BUILTIN
        text = looked_for(name)
        assert text.startswith("On this machine: ")
        assert text.endswith(f"It needs {NEEDS[name].install}. ")
        for library in NEEDS[name].libraries if platform.system() in (NEEDS[name].systems or (platform.system(),)) else ():
            assert library in text
        for package in NEEDS[name].packages:
            assert f"the Python package {package!r} " in text

    def test_where(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(platform, "system", lambda: "Linux")
        monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
        monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
        assert "libcuda.so was not found in the loader's folders (LD_LIBRARY_PATH is '/opt/lib')" in looked_for(TENSORRT)
        monkeypatch.setattr("ctypes.util.find_library", lambda name: f"lib{name}.so.1")
        assert "the library libcuda.so.1 is there" in looked_for(TENSORRT)
        assert "this is Linux, it needs Windows" in looked_for("DmlExecutionProvider")

    def test_libraries_are_searched_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []
        monkeypatch.setattr("ctypes.util.find_library", asked.append)
        monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
        texts = {looked_for("ROCMExecutionProvider") for _ in range(3)}
        assert len(texts) == 1
        assert asked == ["amdhip64"]
        monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/other")
        assert "'/opt/other'" in looked_for("ROCMExecutionProvider")
        assert asked == ["amdhip64"] * 2

    def test_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(NEEDS, TENSORRT, type(NEEDS[TENSORRT])(packages=("onnx",), install="nothing"))
        assert f"the Python package 'onnx' {onnx.__version__} is there" in looked_for(TENSORRT)

    @pytest.mark.parametrize(
        ("name", "needs"),
        [
            ("MIGraphXExecutionProvider", "AMD's ROCm with MIGraphX; ROCMExecutionProvider runs AMD's GPUs without MIGraphX"),
            ("QNNExecutionProvider", "Qualcomm's AI Engine Direct SDK"),
            ("XnnpackExecutionProvider", "XNNPACK; CPUExecutionProvider runs the same CPUs"),
            ("VitisAIExecutionProvider", "AMD's Vitis AI, or its Ryzen AI Software, with an NPU"),
        ],
    )
    def test_names_of_others_say_what_they_need(self, name: str, needs: str) -> None:
        said = rf"{name} .* is not part of this version of intarsia .*On this machine: .*It needs {needs}"
        with pytest.raises(ort.EPFail, match=said):
            ort.InferenceSession(b"", providers=[name])

    def test_unknown(self) -> None:
        assert looked_for("AzureExecutionProvider") == ""


def test_a_program_without_logging_is_told_once(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(ort.ProviderWarning):
        session([ABSENT, CPU])
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger("intarsia"), "handlers", [])
    capfd.readouterr()
    with pytest.warns(ort.ProviderWarning):
        session([ABSENT, CPU])
    assert ABSENT not in capfd.readouterr().err


def test_a_program_with_logging_has_it_there_too(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.warns(ort.ProviderWarning):
        session([ABSENT, CPU])
    assert ABSENT in caplog.text
