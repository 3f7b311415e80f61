"""NonMaxSuppression by its kernel: the same boxes as the definition chooses, in the same order."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.helper")

from onnx import TensorProto, helper

from intarsia.codegen.llvm.target import Target
from intarsia.ep.provider import CompileContext
from intarsia.graph.load import load
from intarsia.graph.model import Node
from intarsia.ops import registry
from intarsia.ops.nn.detection import non_max_suppression as definition
from intarsia.providers.cpu.kernels.selection.nms import non_max_suppression
from intarsia.providers.cpu.program.calls.host_kernels import host_kernel
from intarsia.providers.cpu.program.cpu_program import CpuProgram


def chosen(
    boxes: np.ndarray, scores: np.ndarray, limit: int | None, overlap: float | None, least: float | None, center: int = 0
) -> np.ndarray:
    """By the kernel, after a comparison with the definition."""
    limits = [
        None if limit is None else np.array([limit]),
        *(None if v is None else np.array([v], np.float32) for v in (overlap, least)),
    ]
    node = Node("NonMaxSuppression", ["b", "s"], ["y"], attributes={"center_point_box": center})
    (found,) = non_max_suppression(node, [boxes, scores, *limits], Target.host())
    with np.errstate(all="ignore"):
        expected = definition(boxes, scores, *limits, center_point_box=center)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected)
    return found


def scene(batches: int, classes: int, n: int, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    place, size = rng.uniform(0, 100, (batches, n, 2)), rng.uniform(1, 40, (batches, n, 2))
    scores = rng.random((batches, classes, n))
    if ties:
        scores = np.round(scores * 6) / 6 - 0.5
    return np.concatenate([place, place + size], 2).astype(np.float32), scores.astype(np.float32)


@pytest.mark.parametrize("ties", [False, True], ids=["", "ties"])
@pytest.mark.parametrize("least", [None, 0.0, 0.3])
@pytest.mark.parametrize("limit", [1, 17, 10**9])
def test_against_the_definition(limit: int, least: float | None, ties: bool) -> None:
    boxes, scores = scene(2, 3, 120, ties)
    for overlap in (None, 0.1, 0.5, 1.0):
        for center in (0, 1):
            chosen(boxes, scores, limit, overlap, least, center)


def test_scores_and_boxes_that_are_no_numbers() -> None:
    boxes, scores = scene(1, 4, 80, ties=True)
    rng = np.random.default_rng(1)
    scores[0, :2, rng.integers(0, 80, 20)] = np.nan
    scores[0, 1, rng.integers(0, 80, 5)] = np.inf
    scores[0, 2, rng.integers(0, 80, 40)] = -0.0
    scores[0, 3] = -np.inf
    boxes[0, rng.integers(0, 80, 10), 1] = np.nan
    boxes[0, rng.integers(0, 80, 4), 2] = np.inf
    boxes[0, 20:30, 2:] = boxes[0, 20:30, :2]  # without area
    boxes[0, 30:40] = boxes[0, 30:40, [2, 3, 0, 1]].T  # corners the other way round
    for least in (None, -1.0):
        for overlap in (0.0, 0.4, -1.0):
            chosen(boxes, scores, 60, overlap, least)


def test_nothing_to_choose() -> None:
    boxes, scores = scene(1, 2, 5)
    assert chosen(boxes, scores, None, 0.5, None).shape == (0, 3)
    assert chosen(boxes, scores, 0, 0.5, None).shape == (0, 3)
    assert chosen(boxes, scores, 5, 0.5, 2.0).shape == (0, 3)
    assert chosen(boxes[:, :0], scores[:, :, :0], 5, 0.5, None).shape == (0, 3)
    assert chosen(boxes[:0], scores[:0], 5, 0.5, None).shape == (0, 3)


def test_many_identical_boxes_leave_one() -> None:
    boxes = np.tile(np.array([0, 0, 1, 1], np.float32), (1, 500, 1))
    found = chosen(boxes, np.zeros((1, 1, 500), np.float32), 100, 0.5, None)
    np.testing.assert_array_equal(found, [[0, 0, 0]])


def test_programs_use_it() -> None:
    boxes, scores = scene(2, 3, 60)
    names = ["boxes", "scores", "limit", "overlap"]
    kinds = [TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT64, TensorProto.FLOAT]
    shapes = [["b", "n", 4], ["b", "c", "n"], [1], [1]]
    inputs = [helper.make_tensor_value_info(*row) for row in zip(names, kinds, shapes, strict=True)]
    output = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    graph = helper.make_graph([helper.make_node("NonMaxSuppression", names, ["y"])], "g", inputs, [output])
    model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)]))
    made = CpuProgram.compile(model, registry(), CompileContext(intra_op_num_threads=2))
    (found,) = made.run([boxes, scores, np.array([20]), np.array([0.4], np.float32)])
    np.testing.assert_array_equal(found, definition(boxes, scores, np.array([20]), np.array([0.4], np.float32)))
    assert host_kernel(model.nodes[0]) is non_max_suppression
    assert host_kernel(Node("StringSplit", ["x"], ["y"])) is None
