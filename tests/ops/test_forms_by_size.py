"""Operands whose meaning depends on their size: only a run knows it where sizes are symbols."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from intarsia import InferenceSession
from intarsia.errors import IntarsiaError

RNG = np.random.default_rng(5)
X, GATES, WIDE_GATES = RNG.normal(size=(2, 3, 4, 8)), RNG.normal(size=(2, 3, 4)), RNG.normal(size=(2, 3, 32))
BLOCK, MIX = RNG.normal(size=(2, 3, 8)), RNG.normal(size=(2, 3, 4, 4))
ROWS, SCALE, SCALES = RNG.normal(size=(5, 12)), RNG.normal(size=4), RNG.normal(size=12)


def _normal(x: np.ndarray) -> np.ndarray:
    rows = x.reshape(5, 3, 4)
    found: np.ndarray = rows / np.sqrt((rows**2).mean(-1, keepdims=True) + 1e-5)
    return found


CASES: dict[str, tuple[str, list[np.ndarray], dict[str, Any], np.ndarray]] = {
    "a gate for each stream": ("HyperConnectionPreMix", [X, GATES], {}, (X * GATES[..., None]).sum(-2)),
    "a gate for each element": ("HyperConnectionPreMix", [X, WIDE_GATES], {}, (X * WIDE_GATES.reshape(X.shape)).sum(-2)),
    "mixed, a gate for each stream": (
        "HyperConnectionPostMix", [X, BLOCK, GATES, MIX], {},
        MIX.swapaxes(-1, -2) @ X + GATES[..., None] * BLOCK[..., None, :],
    ),
    "mixed, a gate for each element": (
        "HyperConnectionPostMix", [X, BLOCK, WIDE_GATES], {}, X + WIDE_GATES.reshape(X.shape) * BLOCK[..., None, :],
    ),
    "a scale for one branch": (
        "BranchwiseRMSNorm", [ROWS, SCALE], {"num_branches": 3}, (_normal(ROWS) * SCALE).reshape(ROWS.shape),
    ),
    "a scale for all branches": (
        "BranchwiseRMSNorm", [ROWS, SCALES], {"num_branches": 3}, (_normal(ROWS) * SCALES.reshape(3, 4)).reshape(ROWS.shape),
    ),
}  # fmt: skip


def _session(name: str, operands: list[np.ndarray], attributes: dict[str, Any], provider: str) -> InferenceSession:
    """Of a node, all of whose sizes are symbols but for the first operand's last axis where `num_branches` divides it."""
    names = [f"x{i}" for i in range(len(operands))]
    node = helper.make_node(name, names, ["y"], domain="com.microsoft", **attributes)
    shapes: list[list[Any]] = [[f"{n}_{axis}" for axis in range(x.ndim)] for n, x in zip(names, operands, strict=True)]
    if attributes:
        shapes[0][-1] = operands[0].shape[-1]
    inputs = [helper.make_tensor_value_info(n, 1, shape) for n, shape in zip(names, shapes, strict=True)]
    graph = helper.make_graph([node], "forms", inputs, [helper.make_tensor_value_info("y", 1, None)])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return InferenceSession(helper.make_model(graph, opset_imports=opsets, ir_version=10), providers=[provider])


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("case", CASES)
def test_form_of_the_run(case: str, provider: str) -> None:
    name, operands, attributes, expected = CASES[case]
    session = _session(name, operands, attributes, provider)
    feeds = {f"x{i}": x.astype(np.float32) for i, x in enumerate(operands)}
    for _ in range(2):
        (found,) = session.run(None, feeds)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_size_of_no_form(provider: str) -> None:
    session = _session("HyperConnectionPreMix", [X, GATES], {}, provider)
    with pytest.raises(IntarsiaError, match="HyperConnectionPreMix"):
        session.run(None, {"x0": X.astype(np.float32), "x1": np.ones((2, 3, 5), np.float32)})
