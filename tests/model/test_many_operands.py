"""One node with hundreds of operands or results whose sizes have names: right values, and making its session may be stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import intarsia as ort
from intarsia import progress
from intarsia.graph import broadcasting, dims
from intarsia.graph.dims import symbol
from intarsia.graph.load import load
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")


def gathering(op: str, count: int, **attributes: Any) -> bytes:
    """`op` of vectors, the size of each of which has a name of its own."""
    names = [f"x{i}" for i in range(count)]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [f"size of {n}"]) for n in names]
    return _model(helper.make_node(op, names, ["y"], **attributes), inputs, ["y"])


def splitting(count: int) -> bytes:
    names = [f"y{i}" for i in range(count)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])]
    return _model(helper.make_node("Split", ["x"], names, num_outputs=count), inputs, names)


def _model(node: Any, inputs: list[Any], outputs: list[str]) -> bytes:
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    data: bytes = made.SerializeToString()
    return data


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("length", [0, 1, 29, 30, 61, 90])
def test_parts_of_which_the_last_are_smaller_or_empty(length: int, provider: str) -> None:
    """ONNX: each part has ceil(n / count) elements, the last what is left."""
    x = np.arange(length, dtype=np.float32)
    found = ort.InferenceSession(splitting(30), providers=[provider]).run(None, {"x": x})
    chunk = -(-length // 30)
    assert [part.tolist() for part in found] == [x[i * chunk : (i + 1) * chunk].tolist() for i in range(30)]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_sum_of_vectors_and_single_elements(provider: str) -> None:
    feeds = {f"x{i}": np.full(3 if i % 7 == 1 else 1, i, np.float32) for i in range(100)}
    (y,) = ort.InferenceSession(gathering("Sum", 100), providers=[provider]).run(None, feeds)
    assert y.tolist() == [sum(range(100))] * 3


MADE: dict[str, Callable[[int], bytes]] = {
    "Sum": lambda count: gathering("Sum", count),
    "Max": lambda count: gathering("Max", count),
    "Concat": lambda count: gathering("Concat", count, axis=0),
    "Split": splitting,
}


@pytest.mark.parametrize("op", MADE)
def test_inference_of_one_node_may_be_stopped(op: str) -> None:
    asked = []
    with progress.reported(None, lambda: asked.append(1)):
        infer(load(MADE[op](100)), registry())
    assert len(asked) >= 100


@pytest.mark.parametrize("op", ["Sum", "Split"])
def test_work_on_sizes_does_not_grow_with_the_cube(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = [0]

    def counted(module: Any, name: str) -> None:
        function = getattr(module, name)

        def call(*operands: Any) -> Any:
            done[0] += 1
            return function(*operands)

        monkeypatch.setattr(module, name, call)

    counted(broadcasting, "_single_atom")
    counted(dims, "_sum")

    def work(count: int) -> int:
        done[0] = 0
        infer(load(MADE[op](count)), registry())
        return done[0]

    assert work(120) < 5 * work(60)


def test_a_size_that_another_one_bounds_is_left_out() -> None:
    n, m = symbol("n"), symbol("m")
    assert broadcasting.broadcast_dim(n, dims.dim_min(n, 5)) == n
    assert broadcasting.broadcast_dim(broadcasting.broadcast_dim(m, n), dims.dim_min(n, 5)) == broadcasting.broadcast_dim(m, n)
    assert broadcasting.broadcast_dim(n, dims.dim_min(m, 5)) != n
