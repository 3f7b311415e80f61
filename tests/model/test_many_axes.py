"""Tensors of many axes: as many as NumPy's functions take are computed with, in time that does not grow out of hand; more are
refused.

NumPy 2 has arrays of 64 axes, and iterators of 32. Nearly everywhere it says so; `numpy.take` (of 2.4) writes behind a table
where its result would have more than 64 axes, which ends the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort
from intarsia.errors import InvalidGraph, InvalidModelError, NodeFailed
from intarsia.graph import dims
from intarsia.primitives.lang import MOST_AXES

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
MANY = MOST_AXES - 2


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def session(
    provider: str, node: Any, inputs: dict[str, Any], shapes: str, constants: dict[str, Any] | None = None
) -> ort.InferenceSession:
    """One node that gives `y`. `shapes`: whether inputs are declared with their sizes, with names, or without a shape."""
    declared = []
    for name, x in inputs.items():
        kind = TensorProto.STRING if x.dtype == object else int(helper.np_dtype_to_tensor_dtype(x.dtype))
        sizes = {"numbers": list(x.shape), "names": [f"{name}{i}" for i in range(x.ndim)], "none": None}[shapes]
        declared.append(helper.make_tensor_value_info(name, kind, sizes))
    made = [numpy_helper.from_array(np.asarray(x), name) for name, x in (constants or {}).items()]
    graph = helper.make_graph([node], "g", declared, [helper.make_tensor_value_info("y", 0, None)], made)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), providers=[provider])


def numbers(axes: int) -> np.ndarray:
    """Of 2, 3 and 4 elements along three axes far apart."""
    shape = [1] * axes
    shape[0], shape[axes // 2], shape[-1] = 2, 3, 4
    return np.random.default_rng(axes).standard_normal(shape).astype(np.float32)


ALL = tuple(range(1, MANY))
NODES: dict[str, tuple[dict[str, Any], dict[str, Any], Callable[[np.ndarray], np.ndarray]]] = {
    "ArgMax": ({"axis": -1}, {}, lambda x: x.argmax(-1, keepdims=True)),
    "Transpose": ({}, {}, np.transpose),
    "ReduceSum": ({"keepdims": 0}, {"k": np.int64([0, -1])}, lambda x: x.sum((0, -1))),
    "CumSum": ({}, {"k": np.int64(-1)}, lambda x: x.cumsum(-1)),
    "Gather": ({"axis": 0}, {"k": np.int64([1, 0, 1])}, lambda x: x[[1, 0, 1]]),
    "Flatten": ({"axis": 1}, {}, lambda x: x.reshape(2, 12)),
    "Softmax": ({"axis": -1}, {}, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "LayerNormalization": (
        {"axis": 1, "epsilon": 1e-5}, {"k": np.ones([1] * (MANY - 1), np.float32)},
        lambda x: (x - x.mean(ALL, keepdims=True)) / np.sqrt(x.var(ALL, keepdims=True) + 1e-5),
    ),
    "Pad": ({}, {"k": np.int64([1, *[0] * (2 * MANY - 1)])}, lambda x: np.concatenate([np.zeros_like(x[:1]), x])),
}


@pytest.mark.parametrize("shapes", ["numbers", "names"])
@pytest.mark.parametrize("op", NODES)
def test_values(op: str, shapes: str, provider: str) -> None:
    attributes, constants, expected = NODES[op]
    x = numbers(MANY)
    made = session(provider, helper.make_node(op, ["x", *constants], ["y"], **attributes), {"x": x}, shapes, constants)
    np.testing.assert_allclose(made.run(None, {"x": x})[0], expected(x.astype(np.float64)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["ArgMax", "Transpose", "Flatten"])
def test_products_of_sizes_grow_slowly(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the axes take a few times as many products of sizes, not the cube."""
    done, times = [0], dims._times

    def counted(a: dims.Monomial, b: dims.Monomial) -> dims.Monomial:
        done[0] += 1
        return times(a, b)

    def products(axes: int) -> int:
        done[0] = 0
        session(PROVIDERS[0], helper.make_node(op, ["x"], ["y"], **NODES[op][0]), {"x": numbers(axes)}, "names")
        return done[0]

    monkeypatch.setattr(dims, "_times", counted)
    half, whole = products(MANY // 2), products(MANY)
    assert whole < 5 * half


HALF = 32  # two operands of so many give more than any array has
FAR = np.ones((2, *[1] * (HALF - 1)), np.float32)
PLACES = np.zeros((*[1] * (HALF - 1), 2), np.int64)
TOO_MANY = rf"a tensor would have {{}} axes; expected at most {MOST_AXES}, as NumPy's functions do"


@pytest.mark.parametrize("shapes", ["numbers", "names", "none"])
@pytest.mark.parametrize("x", [FAR, FAR.astype(str).astype(object)], ids=["floats", "strings"])
def test_gather_of_more_axes_than_arrays_have(x: np.ndarray, shapes: str, provider: str) -> None:
    """Once in inference, and once in a run that alone knows the ranks."""
    feeds = {"x": x, "k": PLACES}
    with pytest.raises((InvalidGraph, NodeFailed), match=r"node 'N' \(Gather\): " + TOO_MANY.format(2 * HALF - 1)):
        session(provider, helper.make_node("Gather", ["x", "k"], ["y"], "N"), feeds, shapes).run(None, feeds)


@pytest.mark.parametrize("op", ["Unsqueeze", "Reshape", "Expand"])
@pytest.mark.parametrize("known", [True, False], ids=["constant", "of a run"])
def test_more_axes_than_arrays_have(op: str, known: bool, provider: str) -> None:
    x, count = np.ones(3, np.float32), MOST_AXES + 9
    axes = np.arange(count - 1) if op == "Unsqueeze" else np.array([*[1] * (count - 1), 3])
    node, given = helper.make_node(op, ["x", "k"], ["y"], "N"), {"k": axes}
    feeds = {"x": x} if known else {"x": x, **given}
    with pytest.raises((InvalidGraph, NodeFailed), match=rf"node 'N' \({op}\): " + TOO_MANY.format(count)):
        session(provider, node, feeds, "none", given if known else {}).run(None, feeds)


@pytest.mark.parametrize("shapes", ["numbers", "none"])
@pytest.mark.parametrize("operator", ["Abs", "Identity", "Shape"])
def test_inputs_of_too_many_axes_are_refused(provider: str, operator: str, shapes: str) -> None:
    x = np.ones([1] * (MOST_AXES + 1), np.float32)
    with pytest.raises((InvalidGraph, NodeFailed), match=f"would have 33 axes; expected at most {MOST_AXES}"):
        session(provider, helper.make_node(operator, ["x"], ["y"]), {"x": x}, shapes).run(None, {"x": x})


def test_constants_of_too_many_axes_are_refused(provider: str) -> None:
    node, x = helper.make_node("Reshape", ["x", "to"], ["y"]), np.ones(1, np.float32)
    with pytest.raises(InvalidModelError, match="33 dimensions, at most 32"):
        session(provider, node, {"x": x}, "numbers", {"to": np.ones([1] * 33, np.int64)})
