"""Transposed convolutions as plain ones (`providers/cpu/kernels/conv/conv_transpose.py`), against torch's in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from schedule_models import ZEN4, check_report, lowered, model_of, report, said

import intarsia
from intarsia.providers.cpu.kernels.conv import conv_transpose
from intarsia.providers.cpu.kernels.conv.conv_transpose import SCHEDULES
from intarsia.providers.cpu.program.schedule_report import schedule_report

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


CHOICES = {
    "one block of 5 more": ((24, 16, 4, 4), (4, 4), {"strides": [2, 2], "pads": [1] * 4}, 4, ""),
    "one block of 65 more": (
        (24, 16, 4, 4), (64, 64), {"strides": [2, 2], "pads": [1] * 4}, 0, "it saves 1.03 times the products, less than 1.1",
    ),
    "a window that is no multiple": (
        (24, 16, 3, 3), (64, 64), {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}, 4, "",
    ),
    "symbols": ((24, 16, 3, 3), ("h", "w"), {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}, 4, ""),
    "nothing in vain": ((24, 16, 2, 2), (4, 4), {"strides": [2, 2]}, 0, "it saves 1.00 times the products, less than 1.1"),
    "no whole vector": (
        (24, 12, 4, 4), (4, 4), {"strides": [2, 2], "pads": [1] * 4}, 0, "12 filters are no multiple of 16",
    ),
    "large blocks": (
        (24, 16, 16), (4,), {"strides": [16], "pads": [4, 4], "output_padding": [8]}, 0,
        "a block of its strides has 16 pixels; it takes 2 to 8",
    ),
    "groups": ((24, 16, 4, 4), (4, 4), {"strides": [2, 2], "pads": [1] * 4, "group": 2}, 0, "it has groups"),
    "a border that cuts blocks": (
        (24, 16, 4, 4), (4, 4), {"strides": [2, 2]}, 0, "its borders cut blocks of its strides, or leave some out",
    ),
    "a pixel without taps": (
        (24, 16, 1, 1), (4, 4), {"strides": [2, 2], "output_padding": [1, 1]}, 0,
        "some pixels of a block see nothing of the map's pixel that they belong to",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kernel", "lengths", "how", "count", "why"), CHOICES.values(), ids=CHOICES)
def test_each_pixel_is_a_convolution_where_that_saves(
    kernel: tuple[int, ...], lengths: tuple[int | str, ...], how: dict[str, Any], count: int, why: str
) -> None:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **how)
    weights = np.zeros(kernel, np.float32)
    made = lowered(model_of(node, {"x": (np.float32, (1, kernel[0], *lengths))}, {"w": weights}, np.float32), ZEN4)
    found = report(made, "ConvTranspose")
    check_report(found, SCHEDULES)
    assert found.output == "y"
    assert found.chosen == ("each-pixel" if count else "whole-blocks")
    verdict = said(found, "each-pixel")
    assert (verdict.applies.reason or verdict.pays.reason or "") == why
    told = [each.op_type for each in schedule_report(made) if each.op_type != "Transpose"]
    assert told == ["ConvTranspose", *["Conv"] * (count or 1)]  # which have schedules of their own


def test_a_way_to_write_has_no_steps() -> None:
    with pytest.raises(NotImplementedError, match="whole-blocks: the convolutions"):
        SCHEDULES[-1].steps(None, None)  # type: ignore[arg-type]


STRIDED = [name for name, (_, _, how) in KINDS.items() if max(how["strides"]) > 1]


@pytest.mark.parametrize("schedule", [s.name for s in SCHEDULES])
@pytest.mark.parametrize("kind", STRIDED)
def test_every_way_gives_the_same(kind: str, schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, kernel, how = KINDS[kind]
    monkeypatch.setattr(conv_transpose, "SCHEDULES", tuple(s for s in SCHEDULES if s.name in (schedule, "whole-blocks")))
    monkeypatch.setattr(conv_transpose, "_WORTH", 0.0)
    rng = np.random.default_rng(len(kind))
    x, w = rng.standard_normal(shape, np.float32), rng.standard_normal(kernel, np.float32)
    found = _session(w, None, shape, how).run(None, {"x": x})[0]
    np.testing.assert_allclose(found, np.maximum(_expected(x, w, None, how), 0), rtol=1e-4, atol=1e-4)
