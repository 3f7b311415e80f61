"""How long a session's compiled models live: until it is closed, deleted or compiled, and not until memory is collected."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import onnx.parser
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort
from intarsia.model.background_compile import Underway
from intarsia.model.shape_specialization import SizeBranches
from intarsia.providers.cpu import CPUExecutionProvider

CPU, REFERENCE = "CPUExecutionProvider", "ReferenceExecutionProvider"
HEAD = '<ir_version: 10, opset_import: ["": 20]>'
NEGATED = HEAD + "g (float[n] x) => (float[n] y) { y = Neg(x) }"
X = np.arange(6, dtype=np.float32)


@pytest.fixture(autouse=True)
def no_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What lives on in a cycle is seen: nobody collects it."""
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def session_of(text: str = NEGATED, provider: str = CPU, **entries: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    for key, value in entries.items():
        options.add_session_config_entry(key.replace("__", "."), value)
    return ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), options, providers=[provider])


@pytest.mark.parametrize("provider", [CPU, REFERENCE])
def test_close_frees_the_model(provider: str) -> None:
    session = session_of(provider=provider)
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], -X)
    model = ref(session._engine.model)
    assert model() is not None
    session.close()
    assert model() is None
    assert session.get_providers()[0] == provider  # what it was is known still


def test_the_stand_in_goes_once_the_model_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, compile_part = threading.Event(), CPUExecutionProvider.compile

    def compile_later(self: Any, graph: Any, context: Any) -> Any:
        assert looked.wait(300)
        return compile_part(self, graph, context)

    monkeypatch.setattr(CPUExecutionProvider, "compile", compile_later)
    before = threading.enumerate()
    session = session_of(session__compile_in_background="1")
    (thread,) = [t for t in threading.enumerate() if t.name == "intarsia-compile" and t not in before]
    model: Any = session._engine.model
    underway, standin = ref(model), ref(model._standin)
    assert isinstance(model, Underway)
    del model
    looked.set()
    session.wait_until_compiled(300)
    thread.join(300)  # which holds what it works on until its end
    assert session.is_compiled
    assert (underway(), standin()) == (None, None)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], -X)


SQUEEZED = (
    HEAD
    + """g (float[a,b] x) => (y) {
  shape = Shape <start = 1, end = 2> (x)
  one = Constant <value = int64[1] {1}> ()
  is_one = Equal(shape, one)
  axis = Constant <value = int64[1] {1}> ()
  y = If (is_one) <then_branch = t () => (p) { p = Squeeze(x, axis) }, else_branch = f () => (q) { q = Identity(x) }>
}"""
)


@pytest.mark.parametrize("how", ["close", "del"])
def test_models_for_sizes_go_with_their_session(how: str) -> None:
    session = session_of(SQUEEZED)
    for width in (1, 3):
        x = np.ones((2, width), np.float32)
        for _ in range(3):
            assert session.run(None, {"x": x})[0].shape == ((2,) if width == 1 else (2, width))
    engine: Any = session._engine
    assert isinstance(engine.by_sizes.branches, SizeBranches)
    assert engine.variants
    models = [ref(model) for model, _ in engine.variants.values()] + [ref(engine.model)]
    del engine
    if how == "close":
        session.close()
    else:
        del session
    assert [model() for model in models] == [None] * len(models)
