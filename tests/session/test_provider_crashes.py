"""Errors that a provider does not mean to raise: EPFail with its name, and the session goes on without it where it may."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.parser
import pytest

import intarsia
from intarsia import ProviderWarning
from intarsia.errors import EPFail, crashed, is_of_a_signal_handler

WHOLE, PARTS = "y = Relu(x)", "a = Relu(x)  y = Exp(a)"
X = np.array([-1, 2], np.float32)
RESULTS = {WHOLE: np.array([0, 2]), PARTS: np.exp([0, 2])}


class Computing(intarsia.Program):
    """Relu by NumPy, until `crashes` says otherwise."""

    def __init__(self, graph: Any, provider: FragileExecutionProvider) -> None:
        self.inputs, self.outputs = tuple(graph.input_names()), tuple(graph.output_names())
        self.provider = provider

    def run(self, inputs: Sequence[Any], run: Any = None) -> list[Any]:
        self.provider.runs += 1
        if self.provider.at == "run" or (self.provider.at == "later run" and self.provider.runs > 2):
            raise TypeError("a mistake in the provider")
        return [np.maximum(inputs[0], 0)]

    def run_into(self, inputs: Sequence[Any], targets: Any) -> list[Any] | None:
        if self.provider.at == "run into":
            raise IndexError("a mistake in the provider")
        return None


class FragileExecutionProvider(intarsia.ExecutionProvider):
    name = "FragileExecutionProvider"
    at = ""
    runs = 0

    def _crash(self, place: str) -> None:
        if self.at == place:
            raise KeyError("a mistake in the provider")

    def supports(self, node: Any, graph: Any) -> intarsia.Support:
        self._crash("supports")
        return intarsia.Support.yes() if node.op_type == "Relu" else intarsia.Support.no("only Relu")

    def get_kernel_registry(self) -> Any:
        self._crash("registry")
        return super().get_kernel_registry()

    def get_capability(self, graph: Any, lookup: Any) -> Any:
        self._crash("capability")
        return super().get_capability(graph, lookup)

    def on_partitioned(self, split: Any) -> None:
        self._crash("partitioned")

    def compile(self, graph: Any, context: Any) -> intarsia.Program:
        self._crash("compile")
        return Computing(graph, self)


def fragile(place: str) -> type[FragileExecutionProvider]:
    return type("FragileExecutionProvider", (FragileExecutionProvider,), {"at": place})


def session(place: str, text: str, *, others: bool = True, **config: str) -> intarsia.InferenceSession:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> g (float[n] x) => (float[n] y) {{ {text} }}')
    options = intarsia.SessionOptions()
    for key, value in config.items():
        options.add_session_config_entry(f"session.{key}", value)
    providers = [fragile(place), *(["CPUExecutionProvider"] if others else [])]
    return intarsia.InferenceSession(model.SerializeToString(), options, providers=providers)


@pytest.mark.parametrize("text", [WHOLE, PARTS], ids=["whole", "parts"])
def test_a_run(text: str) -> None:
    made = session("run", text)
    with pytest.warns(ProviderWarning, match=r"FragileExecutionProvider failed in a run: .*TypeError: a mistake"):
        found = made.run(None, {"x": X})[0]
    np.testing.assert_allclose(found, RESULTS[text], rtol=1e-6)
    assert made.get_providers() == ["CPUExecutionProvider"]
    np.testing.assert_allclose(made.run(None, {"x": X})[0], RESULTS[text], rtol=1e-6)


@pytest.mark.parametrize("text", [WHOLE, PARTS], ids=["whole", "parts"])
def test_a_run_without_another_provider(text: str) -> None:
    made = session("run", text)
    made.disable_fallback()
    for names in (None, ["y"]):
        with pytest.raises(
            EPFail, match=r"FragileExecutionProvider crashed in .*: TypeError: a mistake in the provider"
        ) as caught:
            made.run(names, {"x": X})
        assert caught.value.provider == "FragileExecutionProvider"
        assert isinstance(caught.value.__cause__, TypeError)
    assert made.get_providers()[0] == "FragileExecutionProvider"


def test_a_run_after_the_private_switch_of_onnxruntime() -> None:
    made = session("run", WHOLE)
    made._enable_fallback = False
    with pytest.raises(EPFail, match="FragileExecutionProvider crashed in a run"):
        made.run(None, {"x": X})
    made._enable_fallback = True
    with pytest.warns(ProviderWarning, match="FragileExecutionProvider failed in a run"):
        np.testing.assert_allclose(made.run(None, {"x": X})[0], RESULTS[WHOLE], rtol=1e-6)


@pytest.mark.parametrize("text", [WHOLE, PARTS], ids=["whole", "parts"])
def test_a_run_where_no_other_may_take_its_place(text: str) -> None:
    made = session("run", text, provider_fallback="error")
    with pytest.raises(EPFail, match=r"FragileExecutionProvider crashed in .*: TypeError: a mistake in the provider"):
        made.run(None, {"x": X})
    with pytest.raises(EPFail, match=r"FragileExecutionProvider crashed in .*: TypeError: a mistake in the provider"):
        session("run", text, others=False).run(None, {"x": X})


@pytest.mark.parametrize("text", [WHOLE, PARTS], ids=["whole", "parts"])
def test_a_run_where_the_cpu_may_take_its_place_unnamed(text: str) -> None:
    made = session("run", text, others=False, provider_fallback="warn")
    with pytest.warns(ProviderWarning, match="FragileExecutionProvider failed in a run"):
        found = made.run(None, {"x": X})[0]
    np.testing.assert_allclose(found, RESULTS[text], rtol=1e-6)


@pytest.mark.parametrize("text", [WHOLE, PARTS], ids=["whole", "parts"])
def test_a_later_run(text: str) -> None:
    made = session("later run", text)
    for _ in range(2):
        np.testing.assert_allclose(made.run(None, {"x": X})[0], RESULTS[text], rtol=1e-6)
    with pytest.warns(ProviderWarning, match="TypeError: a mistake"):
        found = [made.run(None, {"x": X})[0] for _ in range(3)]
    for each in found:
        np.testing.assert_allclose(each, RESULTS[text], rtol=1e-6)


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("text", [WHOLE, PARTS], ids=["whole", "parts"])
@pytest.mark.filterwarnings("ignore::intarsia.ProviderWarning")
def test_an_asynchronous_run(text: str, allowed: bool) -> None:
    made, ended, seen = session("run", text), threading.Event(), []
    if not allowed:
        made.disable_fallback()

    def told(results: list[Any], _data: Any, error: str) -> None:
        seen.append((results, error))
        ended.set()

    made.run_async(None, {"x": X}, told, None)
    assert ended.wait(300)
    ((results, error),) = seen
    if allowed:
        assert not error
        np.testing.assert_allclose(results[0], RESULTS[text], rtol=1e-6)
    else:
        assert "FragileExecutionProvider crashed in" in error


@pytest.mark.parametrize("place", ["run", "later run", "run into"])
@pytest.mark.parametrize("text", [WHOLE, PARTS], ids=["whole", "parts"])
@pytest.mark.filterwarnings("ignore::intarsia.ProviderWarning")
def test_a_bound_run(text: str, place: str) -> None:
    made = session(place, text)
    binding, out = made.io_binding(), np.zeros(2, np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "cpu", 0, np.float32, [2], out.ctypes.data)
    for _ in range(5):
        out[:] = 0
        made.run_with_iobinding(binding)
        np.testing.assert_allclose(out, RESULTS[text], rtol=1e-6)
    if place != "run into" or text == WHOLE:
        assert made.get_providers() == ["CPUExecutionProvider"]


def test_a_bound_run_without_another_provider() -> None:
    made = session("run into", WHOLE)
    made.disable_fallback()
    binding, out = made.io_binding(), np.zeros(2, np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "cpu", 0, np.float32, [2], out.ctypes.data)
    with pytest.raises(EPFail, match="FragileExecutionProvider crashed in a run: IndexError: a mistake"):
        made.run_with_iobinding(binding)


@pytest.mark.parametrize("place", ["supports", "registry", "capability", "partitioned", "compile"])
@pytest.mark.parametrize("text", [WHOLE, PARTS], ids=["whole", "parts"])
def test_a_session_is_made_without_it(text: str, place: str) -> None:
    with pytest.warns(ProviderWarning, match=r"FragileExecutionProvider crashed w.*: KeyError: 'a mistake in the provider'"):
        made = session(place, text)
    np.testing.assert_allclose(made.run(None, {"x": X})[0], RESULTS[text], rtol=1e-6)
    assert "KeyError: 'a mistake in the provider'" in str(made.explain())


@pytest.mark.parametrize("place", ["supports", "registry", "capability", "partitioned", "compile"])
def test_it_is_an_error_where_no_other_may_take_its_place(place: str) -> None:
    with pytest.raises(EPFail, match=r"FragileExecutionProvider crashed w.*: KeyError: 'a mistake in the provider'"):
        session(place, WHOLE, others=False, disable_cpu_ep_fallback="1")


def test_what_a_caller_does_wrong_is_no_crash() -> None:
    made = session("", WHOLE)
    with pytest.raises(intarsia.InvalidArgument):
        made.run(None, {"x": X.astype(np.int64)})
    assert made.get_providers()[0] == "FragileExecutionProvider"


def test_a_signal_handler_that_raises_is_no_crash() -> None:
    """Python calls it in the middle of anything, here of a provider; what it raises is the program's."""
    error = RuntimeError("no handler")
    assert not is_of_a_signal_handler(error)

    class Alarm:
        def __call__(self, number: int, frame: object) -> None:
            raise TimeoutError("alarm")

    def handler(number: int, frame: object) -> None:
        raise TimeoutError("alarm")

    before = signal.getsignal(signal.SIGALRM)
    try:
        for one in (handler, Alarm()):
            signal.signal(signal.SIGALRM, one)
            with pytest.raises(TimeoutError, match="alarm") as raised:
                signal.raise_signal(signal.SIGALRM)
            assert is_of_a_signal_handler(raised.value)
            with pytest.raises(TimeoutError, match="alarm"):
                crashed("SomeProvider", "in a run", raised.value)  # type: ignore[arg-type]
    finally:
        signal.signal(signal.SIGALRM, before)
