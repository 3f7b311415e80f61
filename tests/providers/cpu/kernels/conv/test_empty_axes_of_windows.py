"""Convolutions over axes without elements, and transposed ones whose output would have none: refused by both providers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia import GraphOptimizationLevel as Level
from intarsia.errors import IntarsiaError

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")


def model_of(op: str, x: tuple[int, ...], w: tuple[int, ...], free: bool, attributes: dict[str, Any]) -> bytes:
    """A node by constant weights of ones; `free`: no size of X is known."""
    domain = "com.microsoft" if op in ("FusedConv", "NhwcConv") else ""
    node = helper.make_node(op, ["x", "w"], ["y"], "N", domain=domain, **attributes)
    integers = op == "ConvInteger"
    taken, given = (TensorProto.UINT8, TensorProto.INT32) if integers else (TensorProto.FLOAT, TensorProto.FLOAT)
    weights = numpy_helper.from_array(np.ones(w, np.uint8 if integers else np.float32), "w")
    sizes = [f"x{i}" for i in range(len(x))] if free else list(x)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", taken, sizes)], [helper.make_tensor_value_info("y", given, None)],
        [weights],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 14), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize(("op", "x", "w", "strides"), [
    ("Conv", (2, 16, 0, 5), (32, 16, 1, 3), [7, 3]),
    ("Conv", (2, 16, 5, 0), (32, 16, 3, 3), [1, 1]),
    ("FusedConv", (2, 16, 0, 5), (32, 16, 1, 3), [7, 3]),
    ("NhwcConv", (2, 0, 3, 32), (32, 16, 1, 7), [1, 7]),
    ("NhwcConv", (2, 17, 0, 5, 16), (16, 16, 2, 1, 7), [7, 3, 3]),
    ("ConvInteger", (2, 4, 0, 5), (8, 4, 3, 3), [1, 1]),
    ("ConvInteger", (2, 4, 0), (8, 4, 3), [2]),
])  # fmt: skip
@pytest.mark.parametrize("level", [Level.ORT_DISABLE_ALL, Level.ORT_ENABLE_ALL])
def test_same_borders(
    op: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    strides: list[int],
    free: bool,
    provider: str,
    level: Level,
) -> None:
    """An empty axis is refused, as onnxruntime does, whether passes have made pads of the border or not."""
    channels, options = x[-1] if op == "NhwcConv" else x[1], intarsia.SessionOptions()
    options.graph_optimization_level = level
    kind = np.uint8 if op == "ConvInteger" else np.float32
    for auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        model = model_of(op, x, w, free, {"auto_pad": auto_pad, "strides": strides, "group": channels // w[1]})
        with pytest.raises(IntarsiaError, match=r"of spatial axis \d"):
            intarsia.InferenceSession(model, options, providers=[provider]).run(None, {"x": np.ones(x, kind)})


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize(("w", "attributes"), [
    ((4, 4, 1, 3), {"strides": [1, 3], "auto_pad": "SAME_LOWER"}),
    ((4, 4, 1, 2), {"strides": [1, 2], "auto_pad": "VALID"}),
    ((4, 4, 1, 2), {"strides": [1, 2]}),
    ((4, 4, 1, 1), {}),
    ((4, 4, 1, 3), {"pads": [0, 1, 0, 1]}),
    ((4, 4, 1, 3), {"dilations": [1, 2], "strides": [1, 4], "auto_pad": "SAME_UPPER"}),
])  # fmt: skip
def test_transposed_without_an_output(w: tuple[int, ...], attributes: dict[str, Any], free: bool, provider: str) -> None:
    """Refused by onnxruntime, too; where the kernel reaches over the step there is an output, of zeros."""
    x = np.ones((2, 4, 2, 0), np.float32)
    with pytest.raises(IntarsiaError, match="spatial axis 1"):
        intarsia.InferenceSession(model_of("ConvTranspose", x.shape, w, free, attributes), providers=[provider]).run(
            None, {"x": x}
        )
    model = model_of("ConvTranspose", x.shape, (4, 4, 1, 3), free, {})
    (found,) = intarsia.InferenceSession(model, providers=[provider]).run(None, {"x": x})
    np.testing.assert_array_equal(found, np.zeros((2, 4, 2, 2), np.float32))
