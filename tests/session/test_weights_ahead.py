"""What of its weights a session that begins from the cache fetches ahead of its first run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import intarsia as ort
from intarsia.providers.cpu.program import serialize
from intarsia.runtime.read_ahead import Spans

pytest.importorskip("llvmlite", reason="programs are compiled with llvmlite")

MIB = 1 << 20
RNG = np.random.default_rng(0)
ROWS, WIDTH = 4096, 512  # 8 MiB
LOOKUP = """g (int64[n] ids, float[m, 512] x, bool c) => (float[n, 512] a, float[m, 512] b, float[m, 512] d) {
    a = Gather(table, ids)
    b = MatMul(x, w)
    d = If(c) <then_branch = t () => (float[m, 512] p) { p = MatMul(x, v) },
               else_branch = e () => (float[m, 512] q) { q = Identity(x) }>
}"""


@pytest.fixture
def lookup(tmp_path: Path, make_model: Callable[..., onnx.ModelProto], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model with a table, a product by a constant, and another behind a condition."""
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("INTARSIA_PROGRAM_CACHE")
    sizes = {"table": (ROWS, WIDTH), "w": (512, 512), "v": (512, 512)}
    arrays = {name: RNG.standard_normal(shape, np.float32) for name, shape in sizes.items()}
    model = make_model(LOOKUP)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    path = tmp_path / "lookup.onnx"
    onnx.save(model, path)
    return path


FEED = {"ids": np.int64([3, 4000]), "x": np.ones((2, 512), np.float32), "c": np.bool_(False)}


def test_what_a_model_reads_whole(lookup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Spans] = []
    monkeypatch.setattr(serialize, "begin", lambda _, spans: found.append(spans))
    expected = ort.InferenceSession(lookup.read_bytes()).run(None, FEED)
    assert not found, "a session that was not from the cache has its weights in memory"
    results = ort.InferenceSession(lookup.read_bytes()).run(None, FEED)
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)
    ((whole, scattered),) = found
    assert [end - start for start, end in scattered] == [ROWS * WIDTH * 4]
    read = sum(end - start for start, end in whole)
    assert MIB <= read < 2 * MIB, "only the product that no condition guards"


def test_it_can_be_turned_off(lookup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Spans] = []
    monkeypatch.setattr(serialize, "begin", lambda _, spans: found.append(spans))
    options = ort.SessionOptions()
    options.add_session_config_entry("session.read_ahead", "0")
    for _ in range(2):
        ort.InferenceSession(lookup.read_bytes(), options).run(None, FEED)
    assert not found
