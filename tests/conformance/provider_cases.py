"""ONNX's backend cases on a provider that has not all operators: a sample, the options, and what must hold of each case."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

import intarsia as ort
from intarsia.testing.cases import run_case

CPU = "CPUExecutionProvider"


def parameters(
    names: Iterable[str], every: int, which: int = 1, needed: Callable[[str], bool] = lambda _: False
) -> list[Any]:  # fmt: skip
    """Parameters of a test of all cases: every so many-th belongs to the sample, the marker `conformance` has the others.

    Args:
        which: another sample of the same size.
        needed: cases that belong to the sample anyway.
    """
    found = []
    for name in names:
        sampled = zlib.crc32(name.encode()) % every == which or needed(name)
        found.append(pytest.param(name, marks=[] if sampled else [pytest.mark.conformance], id=name))
    return found


def options(entries: Mapping[str, str] | None = None) -> ort.SessionOptions:
    """For sessions in which the provider meets the operators themselves, and takes each node that it can."""
    found = ort.SessionOptions()
    for key, value in {"partition.keep_islands": "1", **(entries or {})}.items():
        found.add_session_config_entry(key, value)
    found.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return found


def right(
    case: Any, provider: str, given: ort.SessionOptions | None = None, *, rest: str = CPU, strict: bool = False
) -> ort.InferenceSession:
    """The session of a case on the provider, with another for what it refuses, after a run with right results. Each node that
    went to the other was refused with a reason.

    Args:
        given: options (default: `options()`).
        rest: the other provider.
        strict: whether warnings of providers are errors, but that none of a case's nodes is taken.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error" if strict else "ignore", ort.ProviderWarning)
        if strict:
            warnings.filterwarnings("ignore", "(?s).*takes none of", ort.ProviderWarning)  # each with its reason
        session, wrong = run_case(case, [provider, rest], given or options())
    assert not wrong, case.name
    for node in session.explain().nodes:
        if node.provider == rest and not node.body:
            assert node.refusals[provider].reason, node
    return session
