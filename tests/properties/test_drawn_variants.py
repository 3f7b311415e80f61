"""Random models in other types and by other ways of running them, each against what says the same by another way.

`INTARSIA_PROPERTY_EXAMPLES` draws as many new models for each.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from drawn_types import as_float16, as_quantised
from image_graphs import ImageGraph
from token_graphs import TokenGraph

import intarsia as ort

_COUNT = int(os.environ.get("INTARSIA_PROPERTY_EXAMPLES", "0"))
_SEEDS = [int(n) for n in np.random.default_rng().integers(0, 2**31, _COUNT)] if _COUNT else list(range(3))
_KINDS = (ImageGraph, TokenGraph)

Graph = ImageGraph | TokenGraph
Arrays = list[np.ndarray]


def _drawn(kind: type[Graph], seed: int) -> tuple[Graph, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return kind(rng, int(rng.integers(3, 12))), rng


def _session(model: onnx.ModelProto | Path, provider: str = "CPUExecutionProvider", **settings: Any) -> ort.InferenceSession:
    options = ort.SessionOptions()
    for name, value in settings.items():
        if hasattr(options, name):
            setattr(options, name, value)
        else:
            options.add_session_config_entry(name.replace("__", "."), value)
    return ort.InferenceSession(
        str(model) if isinstance(model, Path) else model.SerializeToString(), options, providers=[provider]
    )


def _near(ours: Arrays, wanted: Arrays, bound: float, what: str) -> None:
    """Root mean squares of differences, relative to those of what is wanted: one rounding more or less does not count."""
    for i, (mine, theirs) in enumerate(zip(ours, wanted, strict=True)):
        assert mine.shape == theirs.shape, f"{what}, output {i}"
        a, b = mine.astype(np.float64), theirs.astype(np.float64)
        off = np.sqrt(np.mean((a - b) ** 2)) if a.size else 0.0
        assert off <= bound * max(np.sqrt(np.mean(b**2)) if b.size else 0.0, 1e-3), f"{what}, output {i}: {off}"


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("seed", _SEEDS)
def test_float16(kind: type[Graph], seed: int) -> None:
    """Beside the float32 model of the same weights, rounded to 16 bits."""
    graph, _ = _drawn(kind, seed)
    model = graph.model()
    session = _session(as_float16(model), intra_op_num_threads=1 + seed % 2)
    wide = _session(model, "ReferenceExecutionProvider")
    for run in (0, 1, 0):
        feeds = graph.feeds(run)
        mine = {n: a.astype(np.float16) if a.dtype == np.float32 else a for n, a in feeds.items()}
        ours = session.run(None, mine)
        assert all(a.dtype == np.float16 for a in ours)
        _near(ours, wide.run(None, feeds), 0.03, f"{kind.__name__} of seed {seed}, run {run}")


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("seed", _SEEDS)
def test_quantised(kind: type[Graph], seed: int) -> None:
    """Integers beside the reference provider, which dequantises; what lies between two steps may go either way."""
    graph, rng = _drawn(kind, seed)
    model = as_quantised(graph.model(), rng)
    session, reference = _session(model, intra_op_num_threads=1 + seed % 2), _session(model, "ReferenceExecutionProvider")
    for run in (0, 1, 0):
        feeds = graph.feeds(run)
        _near(session.run(None, feeds), reference.run(None, feeds), 0.03, f"{kind.__name__} of seed {seed}, run {run}")


def _saved(model: onnx.ModelProto, folder: Path) -> ort.InferenceSession:
    _session(model, optimized_model_filepath=str(folder / "optimised.onnx"))
    return _session(folder / "optimised.onnx")


def _compiled(model: onnx.ModelProto, folder: Path) -> ort.InferenceSession:
    path = folder / "context.onnx"
    _session(model, ep__context_enable="1", ep__context_file_path=str(path))
    return _session(path)


WAYS: dict[str, tuple[Callable[[onnx.ModelProto, Path], ort.InferenceSession], float]] = {
    "without rewrites": (lambda m, _: _session(m, graph_optimization_level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL), 1e-5),
    "side by side": (lambda m, _: _session(m, execution_mode=ort.ExecutionMode.ORT_PARALLEL, intra_op_num_threads=2), 1e-5),
    "saved when optimised": (_saved, 1e-5),
    "compiled ahead": (_compiled, 1e-5),
    "direct sums": (lambda m, _: _session(m, session__disable_winograd="1", session__disable_strassen="1"), 1e-5),
    "bfloat16": (lambda m, _: _session(m, session__arithmetic="bfloat16"), 0.06),
    "float16 weights": (lambda m, _: _session(m, session__arithmetic="float16_weights"), 0.02),
    "without an arena": (lambda m, _: _session(m, enable_cpu_mem_arena=False), 1e-5),
    "three threads": (lambda m, _: _session(m, intra_op_num_threads=3, use_deterministic_compute=True), 1e-5),
    "in the background": (lambda m, _: _session(m, session__compile_in_background="1"), 1e-5),
}
"""How a model can be run, and how far it may be from the plain way."""


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("seed", _SEEDS)
def test_ways_to_run(kind: type[Graph], way: str, seed: int, tmp_path: Path) -> None:
    graph, _ = _drawn(kind, seed)
    model, (made, bound) = graph.model(), WAYS[way]
    session, plain = made(model, tmp_path), _session(model, intra_op_num_threads=1)
    for run in (0, 1, 0):
        feeds = graph.feeds(run)
        _near(session.run(None, feeds), plain.run(None, feeds), bound, f"{kind.__name__} of seed {seed} {way}, run {run}")


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("seed", _SEEDS)
def test_bound_outputs(kind: type[Graph], seed: int) -> None:
    """What is written into memory of the caller's is what `run` returns, bit for bit; sizes go back and forth."""
    graph, _ = _drawn(kind, seed)
    session = _session(graph.model())
    names = [o.name for o in session.get_outputs()]
    for run in (0, 1, 0, 2):
        feeds = graph.feeds(run)
        wanted = session.run(None, feeds)
        binding, given = session.io_binding(), [np.full_like(a, np.nan) for a in wanted]
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        for name, array in zip(names, given, strict=True):
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        session.run_with_iobinding(binding)
        for name, mine, theirs in zip(names, given, wanted, strict=True):
            np.testing.assert_array_equal(mine, theirs, err_msg=f"{kind.__name__} of seed {seed}, run {run}, {name}")
