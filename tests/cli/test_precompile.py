"""Kernels compiled ahead: `intarsia.cli.precompile`, `intarsia cache warm`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="kernels are compiled with llvmlite")

import onnx
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia.cache.disk_cache import get_cache
from intarsia.cli import main, precompile
from intarsia.codegen.llvm.jit import get_engine

ALL = dict(precompile.NETWORKS)
DENSE = {"dense layers": precompile.NETWORKS["dense layers"]}


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(precompile, "NETWORKS", DENSE)


def dense_model(path: Path) -> Path:
    """A layer with Relu, of other sizes than those that are compiled ahead."""
    rng = np.random.default_rng(1)
    weights = [numpy_helper.from_array(rng.random(s, np.float32), n) for n, s in (("w", (48, 80)), ("b", (80,)))]
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    x, z = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", k]) for n, k in (("x", 48), ("z", 80)))
    graph = helper.make_graph(nodes, "dense", [x], [z], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_another_model_compiles_nothing(tmp_path: Path) -> None:
    told: list[str] = []
    assert precompile.compile_common(told.append) > 0
    assert told == [*DENSE]
    compiled = get_engine().compiled
    session = intarsia.InferenceSession(str(dense_model(tmp_path / "m.onnx")))
    x = np.random.default_rng(2).random((1, 48), np.float32)
    weights = {w.name: numpy_helper.to_array(w) for w in onnx.load(tmp_path / "m.onnx").graph.initializer}
    np.testing.assert_allclose(session.run(None, {"x": x})[0], np.maximum(x @ weights["w"] + weights["b"], 0), rtol=1e-5)
    assert get_engine().compiled == compiled
    assert precompile.compile_common() == 0


@pytest.mark.parametrize("name", sorted(ALL))
def test_networks_are_valid(name: str) -> None:
    inferred = onnx.shape_inference.infer_shapes(ALL[name](), check_type=True, strict_mode=True)
    assert all(v.type.tensor_type.elem_type == TensorProto.FLOAT for v in inferred.graph.output)


def test_damaged_entries_are_compiled_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:  # what a process has once, as the executor, lies in the cache that came first
        patch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "first"))
        precompile.compile_common()
    count = precompile.compile_common()
    entries = [p for p in (tmp_path / "cache").rglob("*-*") if p.is_file() and p.name.startswith(("obj-", "pack-"))]
    for path in entries:
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:-1])
    engine = get_engine()
    engine._addresses.clear()
    assert 0 < precompile.compile_common() <= count
    assert not get_cache().damaged()


def test_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("INTARSIA_PROGRAM_CACHE", raising=False)
    assert main(["cache", "warm"]) == 0
    assert "kernels compiled" in capsys.readouterr().out
    model = dense_model(tmp_path / "m.onnx")
    assert main(["cache", "warm", str(model), "-d", "batch=3"]) == 0
    assert "start from the cache" in capsys.readouterr().out.replace("\n", " ")
    assert [*(tmp_path / "cache").rglob("start-*")]


def test_no_cache_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("INTARSIA_CACHE", "0")
    assert main(["cache", "warm"]) != 0
    assert "no cache to compile into" in capsys.readouterr().err.replace("\n", " ")


def test_a_cache_that_cannot_be_written_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "file"))
    assert main(["cache", "warm"]) != 0
    assert "cannot be written" in capsys.readouterr().err.replace("\n", " ")
