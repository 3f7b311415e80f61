"""ONNX's backend cases in sessions: NVIDIA's builder builds what it is given, an imitation runs that, the CPU has the rest.

A sample runs always; the marker `conformance` has the rest. What a GPU computes is not shown by it, what is translated is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from provider_cases import parameters, right

from intarsia.testing.cases import cases

tensorrt_rtx = pytest.importorskip("tensorrt_rtx", reason="needs tensorrt-rtx (extra: tensorrt)")
SAMPLE = 48  # every so many-th case belongs to the sample


@pytest.mark.parametrize("name", parameters(cases(), SAMPLE, 2))
def test_case(name: str, imitated: Callable[..., Any]) -> None:
    imitated(real=tensorrt_rtx)
    right(cases()[name], "TensorrtExecutionProvider", strict=True)
