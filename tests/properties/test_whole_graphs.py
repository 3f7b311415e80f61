"""Random models of images and of tokens against the reference provider, run at several sizes by one session.

What single operators cannot show: layouts across branches, stripes through pairs of layers, parts of batches, tensors that
share memory, sizes that are bound again. `INTARSIA_PROPERTY_EXAMPLES` draws as many new models of each kind.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_graphs import ImageGraph
from token_graphs import TokenGraph

import intarsia as ort
from intarsia.plan import microbatch, microbatch_cost
from intarsia.providers.cpu.step_passes import fuse_pointwise_depthwise

_COUNT = int(os.environ.get("INTARSIA_PROPERTY_EXAMPLES", "0"))
_SEEDS = [int(n) for n in np.random.default_rng().integers(0, 2**31, _COUNT)] if _COUNT else list(range(10))


def _check(graph: ImageGraph | TokenGraph, threads: int, what: str) -> None:
    """The same outputs as the reference's, but for what rounding adds up to; the largest magnitude is the scale."""
    model = graph.model().SerializeToString()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    reference = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    for run in (0, 1, 2, 0):
        feeds = graph.feeds(run)
        for name, ours, wanted in zip(
            [o.name for o in session.get_outputs()], session.run(None, feeds), reference.run(None, feeds), strict=True
        ):
            assert ours.shape == wanted.shape, f"{what}, run {run}, {name}"
            scale = np.abs(wanted).max(initial=1e-30)
            np.testing.assert_allclose(ours / scale, wanted / scale, rtol=0, atol=2e-4, err_msg=f"{what}, run {run}, {name}")


@pytest.mark.parametrize("kind", [ImageGraph, TokenGraph])
@pytest.mark.parametrize("seed", _SEEDS)
def test_random_models(kind: type[ImageGraph | TokenGraph], seed: int) -> None:
    rng = np.random.default_rng(seed)
    _check(kind(rng, int(rng.integers(3, 22))), 1 + seed % 2, f"{kind.__name__} of seed {seed}")


@pytest.mark.tuned
@pytest.mark.parametrize("kind", [ImageGraph, TokenGraph])
def test_small_models_as_if_they_were_large(
    kind: type[ImageGraph | TokenGraph], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Batches in parts and pairs of layers in stripes, which small models do not need."""
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))  # plans made by these numbers are nobody else's
    monkeypatch.setattr(microbatch_cost, "CACHE_NBYTES", 4096)
    for name in ("_STEP", "_CROSSING", "_SHARE"):
        monkeypatch.setattr(microbatch_cost, name, 0.0)
    monkeypatch.setattr(microbatch_cost, "_LEAST", -1.0)
    monkeypatch.setattr(fuse_pointwise_depthwise, "_LEAST_NBYTES", 1024)
    monkeypatch.setattr(fuse_pointwise_depthwise, "_STRIPE_NBYTES", 4096)
    in_parts: list[object] = []
    bound_parts = microbatch.bound_parts

    def watched(*arguments: Any) -> microbatch.BoundParts | None:
        in_parts.append(bound_parts(*arguments))
        return in_parts[-1]

    monkeypatch.setattr(microbatch, "bound_parts", watched)
    for seed in [n + 1000 for n in _SEEDS[: max(3, _COUNT)]]:
        rng = np.random.default_rng(seed)
        graph = kind(rng, int(rng.integers(3, 14)))
        graph.fixed[0], graph.sizes[0] = False, graph.sizes[0] + 5
        _check(graph, 2, f"{kind.__name__} of seed {seed}")
    assert any(in_parts)
