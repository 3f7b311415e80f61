"""Errors that a provider does not mean to raise outside of `run` and `compile`: in calls prepared for later runs, in transfers,
in what only spares time, and where it is made; and results that are too few."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import intarsia
from intarsia import ProviderWarning
from intarsia.ep.provider import BoundCall, SavedProgram
from intarsia.errors import EPFail
from intarsia.graph.dtypes import DType

NAME = "CrashingExecutionProvider"
RELU = '<ir_version: 10, opset_import: ["": 20]> g (float[n] x) => (float[n] y) { y = Relu(x) }'
PARTS = '<ir_version: 10, opset_import: ["": 20]> g (float[n] x) => (float[n] y) { a = Relu(x)  y = Exp(a) }'
X = np.array([-1, 2], np.float32)


class Bound(BoundCall):
    """Runs its program on the same arrays each time."""

    def __init__(self, program: Computing, inputs: Sequence[Any]) -> None:
        self.program, self.inputs = program, list(inputs)
        if program.provider.at == "again":
            self.again = self._again

    def _again(self, _: object) -> bool | None:
        raise ValueError("a mistake in the provider")

    def __call__(self) -> list[Any] | None:
        self.program.provider.crash("bound call")
        return self.program.run(self.inputs)

    def renew(self) -> None:
        self.program.provider.crash("renew")

    def rebind(self, index: int, value: Any) -> bool:
        self.program.provider.crash("rebind")
        self.inputs[index] = value
        return True

    def retarget(self, index: int, target: Any) -> bool:
        self.program.provider.crash("retarget")
        return target is None


class Computing(intarsia.Program):
    """Relu by NumPy."""

    def __init__(self, graph: Any, provider: CrashingExecutionProvider) -> None:
        self.inputs, self.outputs = tuple(graph.input_names()), tuple(graph.output_names())
        self.provider = provider

    def run(self, inputs: Sequence[Any], run: Any = None) -> list[Any]:
        if self.provider.at == "memory":
            raise MemoryError("no memory for a table")
        return [] if self.provider.at == "no results" else [np.maximum(inputs[0], 0)]

    def bound(self, inputs: Sequence[Any], targets: Any) -> BoundCall | None:
        self.provider.crash("bound")
        return Bound(self, inputs)

    def feed_call(self, inputs: Sequence[Any]) -> Any:
        self.provider.crash("feed_call")

        def call(feed: dict[str, Any]) -> list[Any] | None:
            self.provider.crash("fed call")
            return self.run([feed["x"]]) if feed["x"].shape == inputs[0].shape else None

        return call

    def open_call(self) -> Any:
        self.provider.crash("open_call")

    def awaits(self, shapes: Any) -> bool:
        self.provider.crash("awaits")
        return False


class CrashingExecutionProvider(intarsia.ExecutionProvider):
    """Takes Relu; raises ValueError where `at` says."""

    name = NAME
    at = ""

    def __init__(self, options: Any = None) -> None:
        self.crash("constructor")
        super().__init__(options)

    @classmethod
    def crash(cls, place: str) -> None:
        if cls.at == place:
            raise ValueError("a mistake in the provider")

    @classmethod
    def unavailable(cls) -> str:
        cls.crash("unavailable")
        return ""

    @classmethod
    def emulated(cls) -> bool:
        cls.crash("emulated")
        return False

    @classmethod
    def missing_for(cls, options: Any) -> str:
        cls.crash("missing_for")
        return ""

    def supports(self, node: Any, graph: Any) -> intarsia.Support:
        return intarsia.Support.yes() if node.op_type == "Relu" else intarsia.Support.no("only Relu")

    def compile(self, graph: Any, context: Any) -> intarsia.Program:
        return Computing(graph, self)

    def warm_up(self) -> None:
        self.crash("warm_up")

    def save(self, program: Any) -> SavedProgram:
        self.crash("save")
        return SavedProgram(b"relu")

    def restore(self, head: bytes, block: Any, context: Any) -> Any:
        self.crash("restore")

    def share(self, program: Any, context: Any) -> Any:
        self.crash("share")


def crashing(place: str) -> type[CrashingExecutionProvider]:
    return type(NAME, (CrashingExecutionProvider,), {"at": place})


def session(
    provider: Any, text: str = RELU, *, others: tuple[str, ...] = ("CPUExecutionProvider",), **config: str
) -> intarsia.InferenceSession:
    options = intarsia.SessionOptions()
    for key, value in config.items():
        options.add_session_config_entry(f"session.{key}", value)
    source = onnx.parser.parse_model(text).SerializeToString()
    return intarsia.InferenceSession(source, options, providers=[provider, *others])


def plain_runs(made: intarsia.InferenceSession) -> None:
    """Enough runs for everything that is prepared for later ones: of the same sizes, and of others."""
    for size in (2, 2, 2, 3, 2, 4, 4):
        x = np.resize(X, size)
        np.testing.assert_array_equal(made.run(None, {"x": x})[0], np.maximum(x, 0))


def bound_runs(made: intarsia.InferenceSession) -> None:
    """Runs through a binding whose arrays are changed, and whose results are taken, once its call is prepared."""
    binding = made.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    for _ in range(4):
        made.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], [0, 2])
    binding.bind_cpu_input("x", -X)
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], [1, 0])
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), [1, 0])
    out = np.zeros(2, np.float32)
    binding.bind_output("y", "cpu", 0, np.float32, [2], out.ctypes.data)
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(out, [1, 0])


LATER = [
    *((place, plain_runs) for place in ("feed_call", "fed call", "open_call", "awaits")),
    *((place, bound_runs) for place in ("bound", "bound call", "again", "rebind", "renew", "retarget")),
]


@pytest.mark.parametrize(("place", "runs"), LATER, ids=[place for place, _ in LATER])
def test_a_call_that_is_prepared_for_later_runs(place: str, runs: Callable[[intarsia.InferenceSession], None]) -> None:
    made = session(crashing(place))
    with pytest.warns(ProviderWarning, match=rf"{NAME} failed in a run: .* crashed .*: ValueError: a mistake in the provider"):
        runs(made)
    assert made.get_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize(("place", "runs"), LATER, ids=[place for place, _ in LATER])
def test_such_a_call_without_another_provider(place: str, runs: Callable[[intarsia.InferenceSession], None]) -> None:
    made = session(crashing(place))
    made.disable_fallback()
    with pytest.raises(EPFail, match=r"crashed .*: ValueError: a mistake in the provider"):
        runs(made)
    assert made.get_providers()[0] == NAME


@pytest.mark.parametrize("runs", [plain_runs, bound_runs])
def test_those_runs_where_nothing_crashes(runs: Callable[[intarsia.InferenceSession], None]) -> None:
    made = session(crashing(""))
    runs(made)
    assert made.get_providers()[0] == NAME


def test_too_few_results_in_a_model_of_several_parts() -> None:
    made = session(crashing("no results"), PARTS)
    with pytest.warns(ProviderWarning, match=f"{NAME}: part 0 gave 0 results; expected 1"):
        found = made.run(None, {"x": X})[0]
    np.testing.assert_allclose(found, np.exp([0, 2]), rtol=1e-6)
    made = session(crashing("no results"), PARTS)
    made.disable_fallback()
    with pytest.raises(EPFail, match=f"{NAME}: part 0 gave 0 results; expected 1"):
        made.run(None, {"x": X})


@pytest.mark.parametrize("text", [RELU, PARTS], ids=["whole", "parts"])
def test_memory_that_is_not_there_is_no_crash(text: str) -> None:
    made = session(crashing("memory"), text)
    with pytest.raises(MemoryError, match="no memory for a table"):
        made.run(None, {"x": X})
    assert made.get_providers()[0] == NAME


class Transfer(intarsia.DataTransfer):
    def __init__(self, provider: DeviceExecutionProvider) -> None:
        self.provider = provider

    def copy_in(self, array: np.ndarray, device: intarsia.Device) -> intarsia.DeviceTensor:
        self.provider.crash("copy_in")
        return intarsia.DeviceTensor(DType.FLOAT, array.shape, device, array.copy())

    def copy_out(self, tensor: intarsia.DeviceTensor) -> np.ndarray:
        self.provider.crash("copy_out")
        return np.asarray(tensor.handle).copy()


class DeviceExecutionProvider(CrashingExecutionProvider):
    """Relu in a memory of its own."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.kernels = intarsia.KernelRegistry()
        self.kernels.register("Relu", self._relu)

    def _relu(self, node: Any, inputs: Any) -> list[Any]:
        return [intarsia.DeviceTensor(DType.FLOAT, inputs[0].shape, self.device, np.maximum(inputs[0].handle, 0))]

    @property
    def device(self) -> intarsia.Device:
        return intarsia.Device("crashing")

    def get_kernel_registry(self) -> intarsia.KernelRegistry:
        return self.kernels

    def get_data_transfer(self) -> intarsia.DataTransfer:
        return Transfer(self)

    def compile(self, graph: Any, context: Any) -> intarsia.Program:
        return intarsia.ExecutionProvider.compile(self, graph, context)


@pytest.mark.parametrize("place", ["copy_in", "copy_out"])
@pytest.mark.parametrize("text", [RELU, PARTS], ids=["whole", "parts"])
@pytest.mark.parametrize("way", ["run", "iobinding"])
def test_a_copy(place: str, text: str, way: str) -> None:
    provider = type(NAME, (DeviceExecutionProvider,), {"at": place})
    expected = np.maximum(X, 0) if text is RELU else np.exp(np.maximum(X, 0))

    def results(made: intarsia.InferenceSession) -> np.ndarray:
        if way == "run":
            return made.run(None, {"x": X})[0]
        binding = made.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_output("y")
        made.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu()[0]

    def opened() -> intarsia.InferenceSession:
        options = intarsia.SessionOptions()
        options.add_session_config_entry("partition.keep_islands", "1")
        source = onnx.parser.parse_model(text).SerializeToString()
        return intarsia.InferenceSession(source, options, providers=[provider, "CPUExecutionProvider"])

    with pytest.warns(ProviderWarning, match=rf"{NAME} failed in a run: {NAME} crashed in .*: ValueError: a mistake"):
        np.testing.assert_allclose(results(opened()), expected, rtol=1e-6)
    made = opened()
    made.disable_fallback()
    with pytest.raises(EPFail, match=rf"{NAME} crashed in .*: ValueError: a mistake"):
        results(made)


@pytest.mark.parametrize("place", ["constructor", "unavailable", "missing_for"])
def test_a_provider_that_cannot_be_made(place: str) -> None:
    why = rf"{NAME} crashed when .*: ValueError: a mistake in the provider"
    with pytest.warns(ProviderWarning, match=rf"{why}. The session goes on with CPUExecutionProvider"):
        made = session(crashing(place))
    assert made.get_providers() == ["CPUExecutionProvider"]
    np.testing.assert_array_equal(made.run(None, {"x": X})[0], [0, 2])
    with pytest.raises(EPFail, match=why):
        session(crashing(place), others=())
    with pytest.raises(EPFail, match=why):
        session(crashing(place), provider_fallback="error")
    with pytest.warns(ProviderWarning, match=why):
        assert session(crashing(place), others=(), provider_fallback="warn").get_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize("place", ["unavailable", "emulated"])
def test_a_registered_provider_that_crashes_is_not_available(place: str) -> None:
    intarsia.register_execution_provider(crashing(place))
    try:
        available = intarsia.get_available_providers()
    finally:
        intarsia.unregister_execution_provider(NAME)
    assert NAME not in available
    assert "CPUExecutionProvider" in available


@pytest.mark.parametrize("place", ["warm_up", "save", "restore", "share"])
def test_what_only_spares_time(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("INTARSIA_PROGRAM_CACHE")
    onnx.save(onnx.parser.parse_model(RELU), tmp_path / "model.onnx")
    provider = crashing(place)
    with caplog.at_level(logging.WARNING, "intarsia"):
        for _ in range(3):
            first = intarsia.InferenceSession(tmp_path / "model.onnx", providers=[provider, "CPUExecutionProvider"])
            second = intarsia.InferenceSession(tmp_path / "model.onnx", providers=[provider, "CPUExecutionProvider"])
            del first
    assert f"{NAME} crashed when it was to" in caplog.text
    assert "ValueError: a mistake in the provider" in caplog.text
    assert second.get_providers()[0] == NAME
    np.testing.assert_array_equal(second.run(None, {"x": X})[0], [0, 2])
