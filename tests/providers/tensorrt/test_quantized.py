"""Numbers of few bits: NVIDIA's own parser and builder take what is translated, and the imitation computes what ONNX says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort
from intarsia.conversion.convert import ConversionRequest, convert
from intarsia.graph.dtypes import DType

tensorrt_rtx = pytest.importorskip("tensorrt_rtx", reason="needs tensorrt-rtx (extra: tensorrt)")
NAME = "TensorrtExecutionProvider"
ROWS, DEPTH, COLUMNS, BLOCK = 4, 64, 32, 16
FORMS = ("tensor", "axis 0", "axis 1", "blocks along 0", "blocks along 1")
KINDS = ("INT8", "INT4", "UINT8", "UINT4", "FLOAT8E4M3FN", "FLOAT4E2M1")
MIDDLE = {"UINT8": 128, "UINT4": 8}
Make = Callable[..., Any]


def scales(form: str, shape: tuple[int, int]) -> tuple[np.ndarray, dict[str, int]]:
    """Powers of two, so that no result depends on how quotients are rounded; and the attributes that say whose they are."""
    draw = np.random.default_rng(len(form))
    kind, _, axis = form.rpartition(" ")
    attributes = {} if form == "tensor" else {"axis": int(axis)}
    size: list[int] = []
    if kind == "axis":
        size = [shape[int(axis)]]
    elif kind:
        size = [n // BLOCK if i == int(axis) and n > 1 else n for i, n in enumerate(shape)]
        attributes["block_size"] = BLOCK
    return (2.0 ** draw.integers(-4, 0, size)).astype(np.float32), attributes


def weights(kind: str, form: str, zero: int | None = None) -> onnx.ModelProto:
    """x @ DequantizeLinear(w)."""
    dtype = getattr(TensorProto, kind)
    scale, attributes = scales(form, (DEPTH, COLUMNS))
    zero = MIDDLE.get(kind) if zero is None else zero
    low, high = (0, 16) if kind == "UINT4" else (0, 256) if kind == "UINT8" else (-6, 7)
    numbers = np.random.default_rng(1).integers(low, high, (DEPTH, COLUMNS))
    constants = [numpy_helper.from_array(scale, "scale"), tensor("w", dtype, numbers)]
    inputs = ["w", "scale"]
    if zero is not None:
        constants.append(tensor("zero", dtype, np.full(scale.shape, zero)))
        inputs.append("zero")
    dequantised = helper.make_node("DequantizeLinear", inputs, ["real"], **attributes)
    nodes = [dequantised, helper.make_node("MatMul", ["x", "real"], ["y"])]
    return model(nodes, constants, (ROWS, DEPTH), (ROWS, COLUMNS))


def tensor(name: str, dtype: int, numbers: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(numbers.astype(DType(dtype).numpy), name)


def pair(kind: str, form: str, zero: int | None = None, **more: Any) -> onnx.ModelProto:
    """Relu of DequantizeLinear of QuantizeLinear."""
    dtype = getattr(TensorProto, kind)
    scale, attributes = scales(form, (BLOCK * 2, DEPTH))
    zero = MIDDLE.get(kind, 0) if zero is None else zero
    constants = [numpy_helper.from_array(scale, "scale"), tensor("zero", dtype, np.full(scale.shape, zero))]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], **attributes, **more),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"], **attributes),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    return model(nodes, constants, (BLOCK * 2, DEPTH), (BLOCK * 2, DEPTH))


def model(nodes: list[Any], constants: list[Any], given: tuple[int, ...], made: tuple[int, ...]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, given)], [helper.make_tensor_value_info("y", 1, made)], constants
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


def explained(proto: onnx.ModelProto, **given: Any) -> tuple[ort.InferenceSession, dict[str, str]]:
    """A session, and why nodes were refused, by operator."""
    options = ort.SessionOptions()
    options.add_session_config_entry("partition.keep_islands", "1")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = [(NAME, {"trt_int8_enable": True, **given}), "CPUExecutionProvider"]
    made = ort.InferenceSession(proto.SerializeToString(), options, providers=providers)
    return made, {row.op: row.refusals[NAME].reason for row in made.explain().nodes if NAME in row.refusals}


def agrees(made: ort.InferenceSession, proto: onnx.ModelProto) -> None:
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32) * 3
    reference = ort.InferenceSession(proto.SerializeToString(), providers=["ReferenceExecutionProvider"])
    np.testing.assert_allclose(made.run(None, {"x": x})[0], reference.run(None, {"x": x})[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [weights, pair])
def test_the_real_builder_takes_it_whole(make: Callable[..., onnx.ModelProto], kind: str, form: str, tmp_path: Path) -> None:
    onnx.save(make(kind, form), tmp_path / "model.onnx")
    report = convert(tmp_path / "model.onnx", ConversionRequest("tensorrt", None, {"chips": "SM120"}))
    assert report.complete, str(report)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS[:-1])
@pytest.mark.parametrize("make", [weights, pair])
def test_whole_and_right(imitated: Make, make: Callable[..., onnx.ModelProto], kind: str, form: str) -> None:
    trt = imitated()
    proto = make(kind, form)
    made, refused = explained(proto)
    assert not refused and set(made.explain().counts) <= {NAME, "folded"}, refused
    agrees(made, proto)
    assert trt.runs == 1


@pytest.mark.parametrize(
    ("kind", "zero"), [("INT8", 3), ("UINT8", 7), ("UINT4", 3), ("INT4", -2), ("INT16", None), ("FLOAT8E5M2", None)]
)
@pytest.mark.parametrize("form", FORMS)
def test_weights_in_other_forms_are_dequantised(imitated: Make, kind: str, zero: int | None, form: str) -> None:
    """When they are translated, bit for bit as ONNX says."""
    imitated()
    proto = weights(kind, form, zero)
    made, refused = explained(proto)
    assert not refused, refused
    agrees(made, proto)


def test_several_read_unsigned_numbers(imitated: Make) -> None:
    trt = imitated()
    proto = pair("UINT8", "axis 1")
    proto.graph.node.append(helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["e"], axis=1))
    proto.graph.node[2].CopyFrom(helper.make_node("Sub", ["e", "d"], ["s"]))
    proto.graph.node.append(helper.make_node("Add", ["s", "d"], ["y"]))
    proto.graph.node.insert(2, proto.graph.node.pop(3))
    made, refused = explained(proto)
    assert not refused and trt.builds == 1, refused
    agrees(made, proto)


def test_unsigned_numbers_that_others_read_stay_with_others(imitated: Make) -> None:
    imitated()
    proto = pair("UINT8", "tensor")
    proto.graph.node[1].CopyFrom(helper.make_node("Cast", ["q"], ["d"], to=1))
    made, refused = explained(proto)
    assert set(refused) >= {"QuantizeLinear", "Cast"}
    agrees(made, proto)


@pytest.mark.filterwarnings("ignore::intarsia.providers.fallback.ProviderWarning")  # some are refused whole
@pytest.mark.parametrize(
    ("proto", "given", "reason"),
    [
        (pair("UINT8", "tensor", 127), {}, "zero points of uint8 are 128 there, as the signed numbers' 0"),
        (pair("INT8", "axis 0", 1), {}, "zero points of int8 are 0 there"),
        (pair("FLOAT8E4M3FN", "tensor", saturate=0), {}, "also where 'saturate' is 0"),
        (pair("FLOAT8E4M3FN", "tensor"), {"trt_compute_capabilities": "SM80"}, "8.9 or later, and this is for 8.0"),
        (weights("FLOAT4E2M1", "tensor"), {}, "float4e2m1 needs compute capability 10.0 or later, and this is for 9.0"),
        (pair("FLOAT8E5M2", "tensor"), {}, "it has no float8e5m2"),
        (pair("UINT4", "tensor"), {"trt_int8_enable": False}, "the option trt_int8_enable is off"),
    ],
)  # fmt: skip
def test_refusals(imitated: Make, proto: onnx.ModelProto, given: dict[str, Any], reason: str) -> None:
    imitated()
    _, refused = explained(proto, **given)
    assert any(reason in why for why in refused.values()), refused


def test_scales_that_a_run_computes(imitated: Make) -> None:
    imitated()
    proto = pair("INT8", "tensor")
    proto.graph.node.insert(0, helper.make_node("ReduceMax", ["x"], ["scale"], keepdims=0))
    del proto.graph.initializer[0]
    made, refused = explained(proto)
    assert "scales are constants there" in refused["QuantizeLinear"]
    agrees(made, proto)


def test_an_engine_for_all_chips_has_no_floats_of_eight_bits(tmp_path: Path) -> None:
    onnx.save(pair("FLOAT8E4M3FN", "tensor"), tmp_path / "model.onnx")
    report = convert(tmp_path / "model.onnx", ConversionRequest("tensorrt", parts=True))
    assert "float8e4m3fn needs compute capability 8.9 or later, and this is for 8.0, 8.6" in str(report)
    assert [row.op for row in report.left] == ["QuantizeLinear", "DequantizeLinear"]
