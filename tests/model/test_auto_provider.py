"""providers="auto": candidates are measured on the model, the fastest right one is taken, remembered and explained."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.ep.provider import CompileContext, Program, Support
from intarsia.errors import InvalidArgument
from intarsia.graph.load import load
from intarsia.model.auto_provider import Candidate, Choice, example_inputs
from intarsia.providers import registry
from intarsia.providers.reference import ReferenceExecutionProvider

CPU = "CPUExecutionProvider"
SOURCE = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[N,8] x) => (float[N,8] y) { a = Sin(x)  b = Cos(a)  y = Tanh(b) }"""
X = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)


class Answering(Program):
    """Gives the model's output without computing anything, late or wrong if wanted."""

    def __init__(self, inner: Program, seconds: float, error: float) -> None:
        self.inner, self.seconds, self.error = inner, seconds, error
        self.inputs, self.outputs = inner.inputs, inner.outputs
        self.known: dict[bytes, list[Any]] = {}

    def run(self, inputs: Sequence[Any], run: Any = None) -> list[Any]:
        key = inputs[0].tobytes()
        if key not in self.known:
            self.known[key] = self.inner.run(inputs, run)
        time.sleep(self.seconds)
        return [np.array(a) + np.float32(self.error) for a in self.known[key]]


class AnsweringExecutionProvider(ReferenceExecutionProvider):
    name = "AnsweringExecutionProvider"
    seconds, error, compiled = 0.0, 0.0, 0

    def compile(self, graph, context: CompileContext) -> Program:
        type(self).compiled += 1
        return Answering(super().compile(graph, context), self.seconds, self.error)


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.parser.parse_model(SOURCE).SerializeToString())
    return str(path)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[AnsweringExecutionProvider]:
    """One provider beside the CPU; nothing is remembered from elsewhere."""

    class Fresh(AnsweringExecutionProvider):
        pass

    monkeypatch.setattr(registry, "_registered", {Fresh.name: Fresh})
    monkeypatch.setattr("intarsia.model.auto_provider.get_available_providers", lambda: [Fresh.name, CPU])
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    return Fresh


def slow_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run of a compiled model takes a millisecond more where the CPU has it alone."""
    from intarsia.model import auto_provider

    measure = auto_provider._best_time

    def best_time(model: Any, inputs: list[Any]) -> float:
        alone = {p.provider.name for p in model.partition.parts} == {CPU}
        return measure(model, inputs) + (1000.0 if alone else 0.0)

    monkeypatch.setattr(auto_provider, "_best_time", best_time)


def test_the_faster_provider_is_taken_and_said(source: str, provider: type, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_cpu(monkeypatch)
    session = ort.InferenceSession(source, providers="auto")
    assert session.get_providers() == [provider.name, CPU]
    np.testing.assert_allclose(session.run(None, {"x": X})[0], np.tanh(np.cos(np.sin(X))), rtol=1e-5)
    choice = session.explain().choice
    assert choice.splitlines()[0].split() == ["providers", "cut", "best", "run"]
    assert "AnsweringExecutionProvider, CPUExecutionProvider  all it takes" in choice
    assert choice.endswith("measured now, for x [1, 8]")
    assert choice in str(session.explain())
    assert session.explain().to_dict()["choice"] == choice


def test_the_choice_is_remembered(source: str, provider: type, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_cpu(monkeypatch)
    first = ort.InferenceSession(source, providers="auto")
    compiled = provider.compiled
    again = ort.InferenceSession(source, providers="auto")
    assert provider.compiled == compiled + 1
    assert again.get_providers() == first.get_providers()
    assert "remembered from an earlier session" in again.explain().choice
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    assert "measured now" in ort.InferenceSession(source, options, "auto").explain().choice


def test_a_slower_provider_is_not(source: str, provider: type) -> None:
    provider.seconds = 0.02
    session = ort.InferenceSession(source, providers="auto")
    assert session.get_providers() == [CPU]


def test_nor_one_that_is_wrong(source: str, provider: type, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_cpu(monkeypatch)
    provider.error = 0.5
    session = ort.InferenceSession(source, providers="auto")
    assert session.get_providers() == [CPU]
    assert "its results differ from the CPU's: output 0 by 0." in session.explain().choice


def test_nor_one_that_takes_nothing_or_fails(source: str, provider: type, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_cpu(monkeypatch)
    monkeypatch.setattr(provider, "compile", lambda self, graph, context: 1 // 0)
    session = ort.InferenceSession(source, providers="auto")
    assert session.get_providers() == [CPU]
    assert "AnsweringExecutionProvider takes no node" in session.explain().choice
    monkeypatch.setattr(provider, "supports", lambda self, node, graph: Support.no("it is shy"))
    assert ort.InferenceSession(Path(source).read_bytes(), providers="auto").get_providers() == [CPU]


def test_runs_for_real(source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    session = ort.InferenceSession(source, providers="auto")
    assert CPU in session.get_providers()
    np.testing.assert_allclose(session.run(None, {"x": X})[0], np.tanh(np.cos(np.sin(X))), rtol=1e-5)
    session.set_providers([CPU])
    assert session.explain().choice == ""
    session.set_providers(["auto"])
    assert "remembered from an earlier session" in session.explain().choice


class TestInputs:
    def inputs(self, text: str, shapes: str = "") -> list[list[int]]:
        graph = load(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}').SerializeToString())
        return [list(a.shape) for a in example_inputs(graph.inputs, shapes)]

    def test_shapes(self) -> None:
        text = "g (float[N,S,4] x, int64[N,S] i) => (float[N,S,4] y) { y = Relu(x) }"
        assert self.inputs(text) == [[1, 16, 4], [1, 16]]
        assert self.inputs(text, "x:[2,5,4]") == [[2, 5, 4], [2, 5]]

    @pytest.mark.parametrize(
        ("shapes", "message"),
        [
            ("z:[1]", "the model has no input 'z'"),
            ("x:[1,2]", "'x' has 3 dimensions, got .1, 2."),
            ("x=[1]", r"expected 'name:\[1,2\];other:\[3\]', got 'x=\[1\]'"),
            ("x:[a]", "expected 'name"),
        ],
    )
    def test_that_do_not_fit(self, shapes: str, message: str) -> None:
        with pytest.raises(InvalidArgument, match=message):
            self.inputs("g (float[N,S,4] x) => (float[N,S,4] y) { y = Relu(x) }", shapes)

    def test_of_other_kinds(self) -> None:
        with pytest.raises(InvalidArgument, match="providers='auto' measures with tensors of known rank; input 'x' is string"):
            self.inputs("g (string[N] x) => (string[N] y) { y = Identity(x) }")

    def test_options_beside_auto(self, source: str) -> None:
        with pytest.raises(InvalidArgument, match="providers='auto' takes every provider with its default options"):
            ort.InferenceSession(source, providers="auto", provider_options=[{}])


def test_choice_as_data() -> None:
    candidates = (Candidate((CPU,), False, 2.0, 1), Candidate(("A", CPU), True, problem="A takes no node"))
    choice = Choice(candidates[0], candidates, {"x": [1, 2]})
    again = Choice.from_dict(choice.to_dict())
    assert again.winner == choice.winner
    assert again.remembered
    assert "A takes no node" in str(again)
