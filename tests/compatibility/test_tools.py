"""`intarsia.tools`: shapes, fixed sizes, operator versions and optimised models, as scripts use them."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import intarsia as ort
from intarsia.errors import Fail, InvalidArgument, WrongType
from intarsia.tools import add_openvino_win_libs, onnx_model_utils
from intarsia.tools.make_dynamic_shape_fixed import make_dynamic_shape_fixed_helper
from intarsia.tools.optimize_onnx_model import optimize_model_helper
from intarsia.tools.symbolic_shape_infer import SymbolicShapeInference, main
from intarsia.tools.update_onnx_opset import update_onnx_opset_helper

ORDERED = """g (float[batch, 3] x) => (float[p, q] y, float[r, t] z) { a = Concat<axis = 0>(x, x)  s = Shape(x)
    a2 = ReduceSum<keepdims = 1>(x)  b = Expand(a2, s)  y = Neg(a)  z = Add(b, x) }"""


def shape_of(value: onnx.ValueInfoProto) -> list[int | str]:
    return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in value.type.tensor_type.shape.dim]


def shapes(model: onnx.ModelProto) -> dict[str, list[int | str]]:
    return {value.name: shape_of(value) for value in (*model.graph.value_info, *model.graph.output)}


def test_symbolic_shapes(make_model: Callable[..., onnx.ModelProto]) -> None:
    model = make_model(ORDERED)
    inferred = SymbolicShapeInference.infer_shapes(model, 2**31 - 1, True, False, 0)
    assert shapes(inferred) == {
        "a": ["2*batch", 3], "s": [2], "a2": [1, 1], "b": ["batch", 3], "y": ["2*batch", 3], "z": ["batch", 3],
    }  # fmt: skip
    assert not model.graph.value_info, "the model itself was changed"
    x = np.float32([[1, 2, 3]])
    np.testing.assert_array_equal(ort.InferenceSession(inferred.SerializeToString()).run(["y"], {"x": x})[0], [-x[0]] * 2)


def test_weights_in_other_files_need_not_be_there(make_model: Callable[..., onnx.ModelProto]) -> None:
    model = make_model("g (float[n, 3] x) => (float[p, q] y) { y = MatMul(x, w) }")
    model.graph.initializer.add(name="w", data_type=1, dims=[3, 5], data_location=onnx.TensorProto.EXTERNAL)
    model.graph.initializer[0].external_data.add(key="location", value="nowhere.bin")
    inferred = SymbolicShapeInference.infer_shapes(model)
    assert shapes(inferred) == {"y": ["n", 5]}
    assert inferred.graph.initializer == model.graph.initializer


def test_operators_that_are_not_known(make_model: Callable[..., onnx.ModelProto], caplog: pytest.LogCaptureFixture) -> None:
    model = make_model(
        "g (float[n, 3] x) => (y) { h = strange.Thing(x)  y = Neg(h) }",
        '<ir_version: 8, opset_import: ["" : 17, "strange" : 1]>',
    )
    with pytest.raises(Fail, match="Incomplete symbolic shape inference: the outputs y have no shape"):
        SymbolicShapeInference.infer_shapes(model)
    with caplog.at_level(logging.INFO, "intarsia.tools"):
        guessed = SymbolicShapeInference.infer_shapes(model, guess_output_rank=True, verbose=1)
    assert shapes(guessed)["h"] == ["n", 3]
    with pytest.raises(WrongType, match=r"expected an onnx\.ModelProto, got str; use onnx\.load"):
        SymbolicShapeInference.infer_shapes("model.onnx")  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path, make_model: Callable[..., onnx.ModelProto]) -> Path:
    onnx.save(make_model(ORDERED), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_shapes_on_the_command_line(path: Path) -> None:
    main(["--input", str(path), "--output", str(path.with_name("out.onnx")), "--auto_merge"])
    assert shapes(onnx.load(path.with_name("out.onnx")))["y"] == ["2*batch", 3]
    main(["--input", str(path)])
    assert shapes(onnx.load(path))["b"] == ["batch", 3]
    with pytest.raises(InvalidArgument, match=r"nothing\.onnx: No such file"):
        main(["--input", "nothing.onnx"])


@pytest.mark.parametrize("given", [["--dim_param", "batch", "--dim_value", "4"], ["--input_name", "x", "--input_shape", "4,3"]])
def test_fixed_sizes_on_the_command_line(path: Path, given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = path.with_name("fixed.onnx")
    make_dynamic_shape_fixed_helper([*given, str(path), str(out)])
    model = onnx.load(out)
    assert shape_of(model.graph.input[0]) == [4, 3]
    assert shapes(model) == {"y": [8, 3], "z": [4, 3]}
    with pytest.raises(SystemExit):
        make_dynamic_shape_fixed_helper([*given[:2], str(path), str(out)])
    assert "give --dim_param and --dim_value, or --input_name and --input_shape" in capsys.readouterr().err


def test_fixed_sizes_that_cannot_be(make_model: Callable[..., onnx.ModelProto]) -> None:
    graph = make_model(ORDERED).graph
    for name, shape, message in (
        ("X", [1, 3], "Input X was not found in graph inputs: did you mean 'x'"),
        ("x", [1, 3, 4], "Rank mismatch. Existing: 2 Replacement: 3"),
        ("x", [1, 4], "Can't replace existing fixed size of 3 with 4 for dimension 2"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            onnx_model_utils.make_input_shape_fixed(graph, name, shape)
    sequence = make_model("g (seq(float[n]) x) => (float[m] y) { y = ConcatFromSequence<axis = 0>(x) }").graph
    with pytest.raises(InvalidArgument, match="Expecting tensor input: x is of another kind"):
        onnx_model_utils.make_input_shape_fixed(sequence, "x", [1])


def test_a_symbol_is_fixed_in_bodies_and_an_input_without_shape_gets_one(make_model: Callable[..., onnx.ModelProto]) -> None:
    text = """g (float[n] x, bool c) => (float[n] y) { y = If(c) <
        then_branch = t () => (float[n] a) { a = Neg(x) }, else_branch = e () => (float[n] b) { b = Abs(x) }> }"""
    model = make_model(text)
    onnx_model_utils.make_dim_param_fixed(model.graph, "n", 7)
    assert "n" not in {d.dim_param for d in model.graph.node[0].attribute[0].g.output[0].type.tensor_type.shape.dim}
    kinds: list[str] = []
    onnx_model_utils.iterate_graph_per_node_func(model.graph, lambda node: kinds.append(node.op_type))
    assert kinds == ["If", "Neg", "Abs"]
    plain = make_model("g (float x) => (float y) { y = Neg(x) }")
    plain.graph.input[0].type.tensor_type.ClearField("shape")
    onnx_model_utils.make_input_shape_fixed(plain.graph, "x", [2, 3])
    assert shape_of(plain.graph.input[0]) == [2, 3]
    assert onnx_model_utils.is_fixed_size_tensor(plain.graph.input[0])


def test_operator_versions(path: Path) -> None:
    out = path.with_name("later.onnx")
    update_onnx_opset_helper(["--opset", "18", str(path), str(out)])
    assert onnx_model_utils.get_opsets_imported(onnx.load(out))["ai.onnx"] == 18
    log = logging.getLogger("test")
    assert onnx_model_utils.get_opsets_imported(onnx_model_utils.update_onnx_opset(path, 19, logger=log))["ai.onnx"] == 19
    with pytest.raises(InvalidArgument, match="has opset 17: expected an opset from there on, got 12"):
        onnx_model_utils.update_onnx_opset(path, 12)


def test_optimised_models(tmp_path: Path, make_model: Callable[..., onnx.ModelProto]) -> None:
    model = make_model("g (float[n, 32] x) => (float[n, 32] y) { i = Identity(x)  p = MatMul(i, w)  y = Relu(p) }")
    w = np.random.default_rng(0).standard_normal((32, 32), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    optimize_model_helper(
        ["--opt_level", "extended", "--use_external_initializers", str(tmp_path / "m.onnx"), str(tmp_path / "o.onnx")]
    )
    made = onnx.load(tmp_path / "o.onnx")
    assert "Identity" not in {node.op_type for node in made.graph.node}
    assert (tmp_path / "o.onnx.data").stat().st_size >= w.nbytes
    x = np.eye(32, dtype=np.float32)
    result = ort.InferenceSession(tmp_path / "o.onnx").run(None, {"x": x})[0]
    np.testing.assert_allclose(result, np.maximum(w, 0), atol=1e-6)
    assert onnx_model_utils.get_optimization_level("all") is ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    with pytest.raises(InvalidArgument, match="Invalid optimization level of most"):
        onnx_model_utils.get_optimization_level("most")


def test_what_needs_no_work() -> None:
    assert add_openvino_win_libs.add_openvino_libs_to_path() is None
    with pytest.raises(ModuleNotFoundError, match="convert_onnx_models_to_ort"):
        importlib.import_module("intarsia.tools.convert_onnx_models_to_ort")
