"""Sequences of nodes that become one operator, and models prepared for QNN."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from quantised_cases import model, numbers

import intarsia
from intarsia.errors import InvalidArgument
from intarsia.quantization.description.pattern_fusions import (
    fuse_gelu,
    fuse_layer_normalization,
    fuse_lp_normalization,
)
from intarsia.quantization.execution_providers.qnn import qnn_preprocess_model


def number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def gelu() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Div", ["x", "root"], ["scaled"]),
        helper.make_node("Erf", ["scaled"], ["erf"]),
        helper.make_node("Add", ["erf", "one"], ["plus"]),
        helper.make_node("Mul", ["x", "plus"], ["product"]),
        helper.make_node("Mul", ["product", "half"], ["y"]),
    ]
    stored = {"root": number(math.sqrt(2)), "one": number(1), "half": number(0.5)}
    return model(nodes, stored, {"x": [2, 3, 4], "y": [2, 3, 4]})


def layer_normalization(axis: int) -> onnx.ModelProto:
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[axis]),
        helper.make_node("Sub", ["x", "mean"], ["centred"]),
        helper.make_node("Pow", ["centred", "two"], ["square"]),
        helper.make_node("ReduceMean", ["square"], ["variance"], axes=[axis]),
        helper.make_node("Add", ["variance", "epsilon"], ["plus"]),
        helper.make_node("Sqrt", ["plus"], ["root"]),
        helper.make_node("Div", ["centred", "root"], ["divided"]),
        helper.make_node("Mul", ["divided", "scale"], ["weighted"]),
        helper.make_node("Add", ["weighted", "bias"], ["y"]),
    ]
    stored = {"two": number(2), "epsilon": number(1e-5), "scale": numbers(1, 4), "bias": numbers(2, 4)}
    return model(nodes, stored, {"x": [2, 3, 4], "y": [2, 3, 4]})


def lp_normalization() -> onnx.ModelProto:
    nodes = [
        helper.make_node("ReduceL2", ["x"], ["norm"], axes=[-1]),
        helper.make_node("Clip", ["norm", "least"], ["bounded"]),
        helper.make_node("Expand", ["bounded", "shape"], ["spread"]),
        helper.make_node("Div", ["x", "spread"], ["y"]),
    ]
    stored = {"least": number(1e-12), "shape": np.array([2, 3, 4], np.int64)}
    return model(nodes, stored, {"x": [2, 3, 4], "y": [2, 3, 4]})


def run(made: onnx.ModelProto) -> np.ndarray:
    onnx.checker.check_model(made)
    session = intarsia.InferenceSession(made.SerializeToString())
    return np.asarray(session.run(["y"], {"x": numbers(0, 2, 3, 4)})[0])


@pytest.mark.parametrize(
    ("given", "fuse", "name"),
    [
        (gelu(), fuse_gelu, "Gelu"),
        (layer_normalization(-1), fuse_layer_normalization, "LayerNormalization"),
        (layer_normalization(2), fuse_layer_normalization, "LayerNormalization"),
        (lp_normalization(), fuse_lp_normalization, "LpNormalization"),
    ],
)
def test_a_sequence_becomes_one_node_that_computes_the_same(given, fuse, name):
    expected = run(given)
    fused = onnx.ModelProto.FromString(given.SerializeToString())
    assert fuse(fused)
    assert [node.op_type for node in fused.graph.node] == [name]
    np.testing.assert_allclose(run(fused), expected, rtol=1e-4, atol=1e-5)
    assert not fuse(fused)


def test_what_another_needs_stays():
    given = gelu()
    given.graph.output.append(helper.make_tensor_value_info("erf", onnx.TensorProto.FLOAT, [2, 3, 4]))
    assert not fuse_gelu(given)
    assert len(given.graph.node) == 5


def test_a_mean_over_an_axis_before_the_last_is_no_layer_normalization():
    assert not fuse_layer_normalization(layer_normalization(1))


def test_a_model_for_qnn_has_channels_last_where_asked(tmp_path: Path):
    given, path = gelu(), tmp_path / "prepared.onnx"
    assert qnn_preprocess_model(given, path, inputs_to_make_channel_last=["x"], outputs_to_make_channel_last=["y"])
    x = numbers(0, 2, 3, 4)
    session = intarsia.InferenceSession(path)
    got = session.run(["y"], {"x": np.moveaxis(x, 1, -1)})[0]
    np.testing.assert_allclose(np.moveaxis(np.asarray(got), -1, 1), run(given), rtol=1e-4, atol=1e-5)
    assert len(given.graph.node) == 5


def test_channels_of_an_input_that_there_is_not(tmp_path: Path):
    with pytest.raises(InvalidArgument):
        qnn_preprocess_model(gelu(), tmp_path / "prepared.onnx", inputs_to_make_channel_last=["z"])
