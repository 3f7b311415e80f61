"""ONNX's backend cases in sessions: NVIDIA's builder builds what it is given, an imitation runs that, the CPU has the rest.

A sample runs always; the marker `conformance` has the rest. What a GPU computes is not shown by it, what is translated is.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from typing import Any

import pytest

import intarsia as ort
from intarsia.testing.cases import cases, run_case

tensorrt_rtx = pytest.importorskip("tensorrt_rtx", reason="needs tensorrt-rtx (extra: tensorrt)")
SAMPLE = 48  # every so many-th case belongs to the sample
PROVIDERS = ["TensorrtExecutionProvider", "CPUExecutionProvider"]


def parameters() -> list[object]:
    sampled = {name: zlib.crc32(name.encode()) % SAMPLE == 2 for name in cases()}
    return [pytest.param(name, marks=[] if here else [pytest.mark.conformance], id=name) for name, here in sampled.items()]


def options() -> ort.SessionOptions:
    found = ort.SessionOptions()
    found.add_session_config_entry("partition.keep_islands", "1")
    found.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC  # so that it meets the operators themselves
    return found


@pytest.mark.parametrize("name", parameters())
def test_case(name: str, imitated: Callable[..., Any]) -> None:
    imitated(real=tensorrt_rtx)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ort.ProviderWarning)
        warnings.filterwarnings("ignore", "(?s).*takes none of", ort.ProviderWarning)  # each with its reason
        session, wrong = run_case(cases()[name], PROVIDERS, options())
    assert not wrong
    for node in session.explain().nodes:
        assert node.provider != "CPUExecutionProvider" or node.refusals["TensorrtExecutionProvider"].reason
