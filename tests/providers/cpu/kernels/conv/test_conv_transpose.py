"""Transposed convolutions as plain ones (`providers/cpu/kernels/conv/conv_transpose.py`), against torch's in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia.graph.model import Node
from intarsia.providers.cpu.kernels.conv.conv_transpose import as_phases

torch = pytest.importorskip("torch", reason="the reference of transposed convolutions")

KINDS = {
    "generator": ((2, 24, 4, 4), (24, 16, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "doubled": ((1, 5, 9, 7), (5, 32, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    "one side cut": ((1, 5, 6, 7), (5, 16, 3, 3), {"strides": [2, 2], "pads": [0, 0, 1, 1]}),
    "no filter's multiple": ((1, 5, 4, 4), (5, 12, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "one pixel": ((3, 10, 1, 1), (10, 16, 4, 4), {"strides": [1, 1]}),
    "one line": ((1, 10, 1, 6), (10, 16, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "sound": ((2, 8, 11), (8, 16, 3), {"strides": [2], "pads": [1, 1], "output_padding": [1]}),
    "thirds": ((2, 8, 4), (8, 16, 5), {"strides": [3], "pads": [1, 1]}),
    "volume": ((1, 4, 3, 4, 5), (4, 16, 3, 3, 3), {"strides": [2] * 3, "pads": [1] * 6, "output_padding": [1] * 3}),
    "one after the other": ((2, 5, 6, 7), (5, 16, 3, 2), {"strides": [1, 1], "pads": [1, 0, 1, 1]}),
    "few taps": ((1, 4, 5, 5), (4, 16, 1, 1), {"strides": [2, 2], "output_padding": [1, 1]}),
}


def _expected(x: np.ndarray, w: np.ndarray, b: np.ndarray | None, how: dict[str, Any]) -> np.ndarray:
    """torch takes the same padding at both ends: all of the output, cut afterwards."""
    rank = w.ndim - 2
    pads, extra = how.get("pads", [0] * 2 * rank), how.get("output_padding", [0] * rank)
    given = [torch.from_numpy(a).double() if a is not None else None for a in (x, w, b)]
    function = getattr(torch.nn.functional, f"conv_transpose{rank}d")
    whole = function(*given, stride=how["strides"], output_padding=extra).numpy()
    cut = tuple(slice(low, size - high) for low, high, size in zip(pads, pads[rank:], whole.shape[2:], strict=False))
    return np.asarray(whole[(slice(None), slice(None), *cut)])


def _session(w: np.ndarray, b: np.ndarray | None, sizes: Sequence[int | str], how: dict[str, Any]) -> intarsia.InferenceSession:
    weights = [numpy_helper.from_array(a, name) for a, name in ((w, "w"), (b, "b")) if a is not None]
    nodes = [
        helper.make_node("ConvTranspose", ["x", *(t.name for t in weights)], ["c"], **how),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return intarsia.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_as_torch(kind: str, biased: bool, is_open: bool) -> None:
    shape, kernel, how = KINDS[kind]
    rng = np.random.default_rng(len(kind))
    x, w = rng.standard_normal(shape, np.float32), rng.standard_normal(kernel, np.float32)
    b = rng.standard_normal(kernel[1], np.float32) if biased else None
    session = _session(w, b, ["n", shape[1], *"hwd"[: len(shape) - 2]] if is_open else shape, how)
    wanted = np.maximum(_expected(x, w, b, how), 0)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-4)
    if is_open:
        (found,) = session.run(None, {"x": x[:1]})
        np.testing.assert_allclose(found, wanted[:1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kernel", "lengths", "how", "count"),
    [
        ((24, 16, 4, 4), (4, 4), {"strides": [2, 2], "pads": [1] * 4}, 4),
        ((24, 16, 4, 4), (64, 64), {"strides": [2, 2], "pads": [1] * 4}, 0),  # one block of 65 more
        ((24, 16, 3, 3), (64, 64), {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}, 4),
        ((24, 16, 2, 2), (4, 4), {"strides": [2, 2]}, 0),  # nothing is multiplied in vain
        ((24, 12, 4, 4), (4, 4), {"strides": [2, 2], "pads": [1] * 4}, 0),  # filters that fill no vector
        ((24, 16, 16), (4,), {"strides": [16], "pads": [4, 4], "output_padding": [8]}, 0),  # too many
    ],
)
def test_phases_are_apart_where_that_saves(
    kernel: tuple[int, ...], lengths: tuple[int, ...], how: dict[str, Any], count: int
) -> None:
    node = Node("ConvTranspose", ["x", "w"], ["y"], how)
    assert len(as_phases(node, kernel, lengths) or ()) == count
