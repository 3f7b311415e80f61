"""ONNX's backend test suite (onnx.backend.test) through InferenceSession, on both providers.

Every case runs and must pass; bounds and random cases are in `backend_cases`. A sample of the cases has no marker;
`-m "not conformance"` runs only that.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import onnx
import pytest
from backend_cases import INVERTED, KINDS, ONNX_VERSION, RANDOM, WIDER, cases, check, model_and_data

from intarsia import InferenceSession
from intarsia.testing.cases import suite

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
SAMPLE = 12  # every so many-th case belongs to the sample
TILES = 4000  # how often a random case's inputs are drawn

SKIPPED: dict[str, str] = {}  # case -> why neither provider runs it


def parameters() -> list[Any]:
    found = []
    for name in cases():
        for provider in PROVIDERS:
            sampled = zlib.crc32(name.encode()) % SAMPLE == 0
            marks = [] if sampled else [pytest.mark.conformance]
            found.append(pytest.param(name, provider, marks=marks, id=f"{name}-{provider.removesuffix('ExecutionProvider')}"))
    return found


@pytest.mark.parametrize(("name", "provider"), parameters())
def test_case(name: str, provider: str) -> None:
    if name in SKIPPED:
        pytest.skip(SKIPPED[name])
    model, sets = model_and_data(name)
    session = InferenceSession(model.SerializeToString(), providers=[provider])
    names = [value.name for value in model.graph.input]
    assert sets
    for given, wanted in sets:
        found = session.run(None, dict(zip(names, given, strict=False)))
        for actual, expected in zip(found, wanted, strict=True):
            check(cases()[name], actual, expected)


def test_nothing_is_left_out() -> None:
    """Every case of the pinned suite is a test above: fewer cases, or more that are left out, are a regression."""
    assert not {*SKIPPED, *RANDOM, *INVERTED, *WIDER} - cases().keys()
    assert not SKIPPED
    assert len(parameters()) == len(PROVIDERS) * len(cases())
    if onnx.__version__ == ONNX_VERSION:
        assert {kind: len(suite(kind)) for kind in KINDS} == KINDS
        assert len(cases()) == 2024
    else:
        assert len(cases()) > 2000


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", RANDOM)
def test_random_cases(name: str, provider: str) -> None:
    """Each element is 1 as often as its probability says (five standard deviations), independently of its neighbours."""
    shared, sets = model_and_data(name)
    model = onnx.ModelProto()
    model.CopyFrom(shared)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    del model.graph.value_info[:]
    ((p,), _) = sets[0]
    assert p.ndim == 1
    assert 0 < p.min() < p.max() < 1
    if name in INVERTED:
        assert [node.op_type for node in model.graph.node] == ["RandomUniformLike", "Greater", "Cast"]
    session = InferenceSession(model.SerializeToString(), providers=[provider])
    (drawn,) = session.run(None, {model.graph.input[0].name: np.tile(p, TILES)})
    table = drawn.reshape(TILES, len(p)).astype(np.float64)
    assert np.isin(table, (0, 1)).all()
    p = 1 - p if name in INVERTED else p
    deviation = np.sqrt(p * (1 - p) / TILES)
    assert (np.abs(table.mean(axis=0) - p) < 5 * deviation).all()
    score = (table - p) / np.sqrt(p * (1 - p))
    for shift in (1, 2, len(p)):  # products of independent scores have mean 0 and deviation 1
        assert abs((score.reshape(-1)[shift:] * score.reshape(-1)[:-shift]).mean()) < 5 / np.sqrt(score.size - shift)


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal attention in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = np.where(np.triu(np.ones(scores.shape[-2:], bool), 1), -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", WIDER)
def test_wider_bounds_are_onnx_rounding(name: str, provider: str) -> None:
    """Where the bound is wider than onnx's, the result is nearer to float64 than onnx's expected values are."""
    model, sets = model_and_data(name)
    given, (expected,) = sets[0]
    exact = _attention(*given)
    session = InferenceSession(model.SerializeToString(), providers=[provider])
    (found,) = session.run(None, dict(zip([value.name for value in model.graph.input], given, strict=True)))
    assert np.abs(found - exact).max() < np.abs(expected - exact).max()
