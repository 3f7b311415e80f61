"""Attributes of single nodes: what NVIDIA's own parser and builder take is run by the imitation, and right or refused.

The imitation runs the ONNX model that the real builder was given, so this shows what is translated, not what a GPU computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from intarsia.testing.node_sweep import sweep
from intarsia.testing.provider import nodes_of

tensorrt_rtx = pytest.importorskip("tensorrt_rtx", reason="needs tensorrt-rtx (extra: tensorrt)")
NODES = 320


@pytest.mark.parametrize("options", [{}, {"trt_int8_enable": True}], ids=["float32", "int8"])
def test_refused_or_right(imitated: Callable[..., Any], options: dict[str, Any], request: pytest.FixtureRequest) -> None:
    trt = imitated(real=tensorrt_rtx)
    count = request.config.getoption("--sweep-nodes") or str(NODES)
    found = sweep(("TensorrtExecutionProvider", options), nodes_of(count))
    assert found.taken > NODES // 8 and trt.builds
    assert not found.wrong, str(found)
