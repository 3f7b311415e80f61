"""What goes wrong while openvino compiles for ACL, keeps, or runs: an error, or the next provider where that is allowed.

The machine is made to call itself an ARM64 one: openvino's plugin for this CPU stands in for that with ACL's kernels.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

import intarsia as ort

pytest.importorskip("openvino", reason="needs openvino (extra: openvino)")

from intarsia.providers.openvino import runtime
from intarsia.providers.openvino.compiling import Compiler
from intarsia.providers.openvino.program import OpenVINOProgram

NAME, CPU = "ACLExecutionProvider", "CPUExecutionProvider"
TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,64] x) => (float[2,64] y) {
    a = MatMul(x, w)  b = Relu(a)  c = MatMul(b, w)  y = Softmax(c)  }"""


@pytest.fixture(autouse=True)
def arm64(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setattr("intarsia.providers.acl.platform.machine", lambda: "aarch64")
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("INTARSIA_PROGRAM_CACHE", "1")
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not list(folder.iterdir()), "a folder is left behind"


def model() -> bytes:
    proto = onnx.parser.parse_model(TEXT)
    weights = np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32) / 8
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return proto.SerializeToString()


X = np.random.default_rng(4).standard_normal((2, 64)).astype(np.float32)


def session(*others: str, fallback: str = "listed", **given: Any) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.provider_fallback", fallback)
    return ort.InferenceSession(model(), options, providers=[(NAME, given), *others])


def right(made: ort.InferenceSession) -> bool:
    (wanted,) = ort.InferenceSession(model(), providers=["ReferenceExecutionProvider"]).run(None, {"x": X})
    return bool(np.allclose(made.run(None, {"x": X})[0], wanted, rtol=1e-4, atol=1e-5))


FAULTS = {
    "fails": (RuntimeError("Exception from src/plugin.cpp: no workspace for a layer"), ort.EPFail, "no workspace for a layer"),
    "has no memory": (MemoryError(), ort.OutOfMemory, "no memory to compile"),
    "gives nothing": (None, ort.EPFail, NAME),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_compiler_that(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raised, error, text = FAULTS[fault]

    def compiled(self: Compiler, model: Any) -> Any:
        if raised is not None:
            raise raised

    monkeypatch.setattr(Compiler, "_compiled", compiled)
    with pytest.raises(error, match=text):
        session(fallback="error")
    if error is ort.OutOfMemory:
        return  # no provider is asked again for memory that is not there
    with pytest.warns(ort.ProviderWarning, match=f"{NAME} takes none of the model's"):
        made = session(CPU)
    assert set(made.explain().counts) == {CPU} and right(made)


def test_it_runs_and_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later session compiles nothing; one with another openvino compiles anew."""
    count = []
    compiled = Compiler._compiled
    monkeypatch.setattr(Compiler, "_compiled", lambda self, model: count.append(1) or compiled(self, model))
    assert all(right(session(CPU)) for _ in range(2)) and len(count) == 1
    monkeypatch.setattr(runtime, "installed_version", lambda: "2099.1.0")
    assert right(session(CPU)) and len(count) == 2


@pytest.mark.parametrize("damage", ["cut", "garbage", "empty"])
def test_a_damaged_cache(damage: str, tmp_path: Path) -> None:
    assert right(session(CPU)) and right(session(CPU, cache_dir=str(tmp_path / "blobs")))
    files = [p for folder in ("cache", "blobs") for p in (tmp_path / folder).rglob("*") if p.is_file()]
    assert files
    for path in files:
        data = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes({"cut": data[: len(data) // 2], "garbage": b"\x5a" * len(data), "empty": b""}[damage])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ort.ProviderWarning)
        made = session(CPU), session(CPU, cache_dir=str(tmp_path / "blobs"))
    assert all(right(each) and set(each.explain().counts) == {NAME} for each in made)


def test_a_device_that_is_lost_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    made, alone = session(CPU), session(fallback="error")
    assert right(made) and right(alone)

    def lost(*args: Any, **given: Any) -> Any:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(OpenVINOProgram, "_infer", lost)
    with pytest.raises(ort.EPFail, match="the device is gone"):
        alone.run(None, {"x": X})
    with pytest.warns(ort.ProviderWarning, match="the device is gone"):
        assert right(made)
    assert made.get_providers() == [CPU]
