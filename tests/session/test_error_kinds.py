"""Errors are of every kind that a handler written for onnxruntime may name: its own class, and Python's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import intarsia as ort
from intarsia.errors import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidModelError,
    InvalidProtobuf,
    NodeFailed,
    NotImplemented,
    UnknownOperator,
    WrongType,
)
from intarsia.values.ort_enums import ExecutionMode, OrtMemType

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def model(node: onnx.NodeProto, inputs: dict[str, tuple[int, Any]], kind: int = FLOAT, opset: int = 17) -> bytes:
    given = [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("Y", kind, None)])
    data: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()
    return data


def session(node: onnx.NodeProto, **inputs: tuple[int, Any]) -> ort.InferenceSession:
    return ort.InferenceSession(model(node, inputs), providers=["CPUExecutionProvider"])


X = (FLOAT, ["n"])


class TestModels:
    def test_every_refused_model_is_a_failure(self) -> None:
        assert issubclass(InvalidModelError, Fail) and issubclass(InvalidGraph, Fail)
        with pytest.raises(Fail, match="not an ONNX model"):
            ort.InferenceSession(b"no model at all")

    @pytest.mark.parametrize("kind", [UnknownOperator, InvalidGraph, NotImplemented, NotImplementedError, Fail])
    def test_unknown_operator(self, kind: type[Exception]) -> None:
        with pytest.raises(kind, match="needs an operator that does not exist here"):
            session(helper.make_node("Foo", ["X"], ["Y"]), X=X)

    @pytest.mark.parametrize("kind", [InvalidArgument, InvalidGraph, Fail])
    def test_a_value_that_nothing_computes(self, kind: type[Exception]) -> None:
        with pytest.raises(kind, match=r"node 'Relu_0' \(Relu\): nothing computes its input 'Q'"):
            session(helper.make_node("Relu", ["Q"], ["Y"]), X=X)

    @pytest.mark.parametrize("kind", [InvalidArgument, InvalidProtobuf, Fail])
    @pytest.mark.parametrize("data", [b"", onnx.ModelProto(ir_version=8).SerializeToString()])
    def test_nothing_to_load(self, data: bytes, kind: type[Exception]) -> None:
        with pytest.raises(kind, match=r"empty \(0 bytes\), expected an ONNX model|it has no graph"):
            ort.InferenceSession(data)

    @pytest.mark.parametrize("kind", [InvalidArgument, InvalidGraph, Fail])
    def test_sizes_of_a_reshape(self, kind: type[Exception]) -> None:
        found = session(helper.make_node("Reshape", ["X", "S"], ["Y"]), X=X, S=(INT64, [2]))
        with pytest.raises(kind, match=r"\(Reshape\): cannot reshape \[n\] to \[\?, \?\]: its elements: got 3, expected 4"):
            found.run(None, {"X": np.ones(3, np.float32), "S": np.int64([2, 2])})

    def test_a_constant_of_a_function_without_a_value(self) -> None:
        text = """<ir_version: 10, opset_import: ["" : 19, "own" : 1]>
            g (float[2] x) => (float[2] y) { y = own.f<beta = 1.0>(x) }
            <opset_import: ["" : 19], domain: "own"> f <alpha> (i) => (o) {
                k = Constant<value_float: float = @alpha>()  o = Mul(i, k) }"""
        with pytest.raises(InvalidGraph, match=r"\(Constant\) has 1 outputs and the attributes \[\], expected one of each; "):
            ort.InferenceSession(onnx.parser.parse_model(text))

    def test_unknown_version(self) -> None:
        with pytest.raises(Fail, match=r"version 99 of the operator set ai.onnx is not known here"):
            ort.InferenceSession(model(helper.make_node("Relu", ["X"], ["Y"]), {"X": X}, opset=99))

    def test_declared_type_of_an_output(self) -> None:
        data = model(helper.make_node("Relu", ["X"], ["Y"]), {"X": (FLOAT, [2])}, INT64)
        with pytest.raises(InvalidGraph, match=r"Type \(tensor\(int64\)\) of output 'Y' .* gives, \(tensor\(float\)\)"):
            ort.InferenceSession(data)

    def test_declared_type_of_an_output_among_floats(self, caplog: pytest.LogCaptureFixture) -> None:
        data = model(helper.make_node("Relu", ["X"], ["Y"]), {"X": (FLOAT, [2])}, TensorProto.DOUBLE)
        with caplog.at_level("WARNING", "intarsia"):
            found = ort.InferenceSession(data)
        assert "does not match the type that its node gives, (tensor(float))" in caplog.text
        assert found.run(None, {"X": np.ones(2, np.float32)})[0].dtype == np.float32

    @pytest.mark.parametrize("op", ["Relu", "Neg"])
    def test_numbers_only(self, op: str) -> None:
        with pytest.raises(InvalidGraph, match=r"is string; expected .*float"):
            ort.InferenceSession(model(helper.make_node(op, ["X"], ["Y"]), {"X": (STRING, [2])}, STRING))

    def test_kind_of_an_attribute(self) -> None:
        with pytest.raises(InvalidGraph, match=r"attribute 'to' is 1.0; expected an integer"):
            session(helper.make_node("Cast", ["X"], ["Y"], to=1.0), X=X)


def runs() -> list[tuple[str, Callable[[], ort.InferenceSession], dict[str, np.ndarray], str]]:
    three, four = np.ones(3, np.float32), np.ones(4, np.float32)
    images = {"X": np.ones((1, 3, 5, 5), np.float32), "W": np.ones((2, 4, 3, 3), np.float32)}
    made = helper.make_node
    return [
        ("broadcast", lambda: session(made("Add", ["X", "Z"], ["Y"]), X=X, Z=(FLOAT, ["m"])), {"X": three, "Z": four},
         "dimensions 3 and 4 do not broadcast"),
        ("equal", lambda: session(made("MatMul", ["X", "Z"], ["Y"]), X=(FLOAT, ["a", "b"]), Z=(FLOAT, ["c", "d"])),
         {"X": np.ones((2, 3), np.float32), "Z": np.ones((2, 3), np.float32)}, "inner dimensions .*: got 3, expected 2"),
        ("positions", lambda: session(made("Gather", ["X", "I"], ["Y"]), X=X, I=(INT64, ["m"])),
         {"X": three, "I": np.array([7])}, "node 'Gather_0'"),
        ("data", lambda: session(made("Expand", ["X", "I"], ["Y"]), X=X, I=(INT64, ["m"])),
         {"X": three, "I": np.array([5])}, "do not broadcast"),
        ("channels", lambda: session(made("Conv", ["X", "W"], ["Y"]), X=(FLOAT, list("abcd")), W=(FLOAT, list("efgh"))),
         images, "X has b channels; W and group = 1 need f: got 3, expected 4, with b = 3, f = 4"),
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "made", "feed", "match"), runs(), ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("kind", [Fail, InvalidArgument, InvalidGraph, ValueError, RuntimeError])
def test_a_node_that_cannot_compute(
    name: str, made: Callable[[], ort.InferenceSession], feed: dict[str, np.ndarray], match: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=match) as caught:
        made().run(None, feed)
    assert type(caught.value) is NodeFailed, name


class TestScalars:
    NODE = helper.make_node("Neg", ["X"], ["Y"])

    @pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
    def test_one_element_with_axes(self, shape: tuple[int, ...]) -> None:
        one = session(self.NODE, X=(FLOAT, []))
        for _ in range(2):
            (y,) = one.run(None, {"X": np.full(shape, 3, np.float32)})
            assert y.shape == () and y == -3

    def test_more_than_one(self) -> None:
        with pytest.raises(InvalidArgument, match="Invalid rank for input: X Got: 1 Expected: 0"):
            session(self.NODE, X=(FLOAT, [])).run(None, {"X": np.ones(2, np.float32)})

    def test_a_vector_takes_no_scalar(self) -> None:
        with pytest.raises(InvalidArgument, match="Invalid rank for input: X Got: 0 Expected: 1"):
            session(self.NODE, X=X).run(None, {"X": np.float32(1)})


class TestArguments:
    @pytest.mark.parametrize("kind", [WrongType, TypeError, RuntimeError])
    def test_options(self, kind: type[Exception]) -> None:
        with pytest.raises(kind, match="sess_options: expected SessionOptions, got dict"):
            ort.InferenceSession(b"", sess_options={"a": 1})  # type: ignore[arg-type]

    def test_names_of_outputs(self) -> None:
        with pytest.raises(TypeError, match="output_names: expected a list of names, got 'Y'"):
            session(helper.make_node("Neg", ["X"], ["Y"]), X=X).run("Y", {"X": np.ones(2, np.float32)})  # type: ignore[arg-type]

    @pytest.mark.parametrize("shape", [[1.5], "ab", None])
    def test_sizes(self, shape: Any) -> None:
        with pytest.raises(TypeError, match="shape: expected a list of sizes, got"):
            ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float32)

    def test_new_contents(self) -> None:
        with pytest.raises(TypeError, match=r"update_inplace: expected an array float32 \[2\], got list"):
            ort.OrtValue.ortvalue_from_numpy(np.ones(2, np.float32)).update_inplace([1.0, 2.0])  # type: ignore[arg-type]

    def test_devices(self) -> None:
        with pytest.raises(TypeError, match="Unsupported device type: 3"):
            ort.OrtDevice.make(3, 0)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="Unsupported device type: 3"):
            ort.OrtValue.ortvalue_from_numpy(np.ones(2, np.float32), 3)  # type: ignore[arg-type]

    def test_bound_values(self) -> None:
        binding = session(helper.make_node("Neg", ["X"], ["Y"]), X=X).io_binding()
        with pytest.raises(TypeError, match="bind_ortvalue_input: expected an OrtValue for 'X', got ndarray"):
            binding.bind_ortvalue_input("X", np.ones(2, np.float32))  # type: ignore[arg-type]

    def test_logging_and_threads(self) -> None:
        with pytest.raises(TypeError, match="log severity: expected 0"):
            ort.set_default_logger_severity("x")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="expected intra_op_num_threads from 0, got 'a'"):
            ort.set_global_thread_pool_sizes("a", 2)  # type: ignore[arg-type]

    def test_operators(self) -> None:
        with pytest.raises(TypeError, match="3 has no operators"):
            ort.SessionOptions().register_custom_ops_library(3)  # type: ignore[arg-type]

    def test_examples(self) -> None:
        from intarsia.datasets import get_example

        with pytest.raises(FileNotFoundError, match=r"Unable to find example 'absent.onnx'"):
            get_example("absent.onnx")


class TestFiles:
    DATA = model(helper.make_node("Neg", ["X"], ["Y"]), {"X": X})

    def test_folders_that_do_not_exist(self, tmp_path: Path) -> None:
        options = ort.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "absent" / "m.onnx")
        with pytest.raises(InvalidArgument, match=r"cannot be written: there is no folder .*absent"):
            ort.InferenceSession(self.DATA, options)
        with pytest.raises(InvalidArgument, match=r"cannot be written: there is no folder .*absent"):
            ort.ModelCompiler(ort.SessionOptions(), self.DATA).compile_to_file(tmp_path / "absent" / "m.onnx")

    def test_compiler(self) -> None:
        with pytest.raises(ValueError, match="Input model bytes array is empty"):
            ort.ModelCompiler(ort.SessionOptions(), b"")
        with pytest.raises(TypeError, match="graph_optimization_level: expected a GraphOptimizationLevel, got 99"):
            ort.ModelCompiler(ort.SessionOptions(), self.DATA, graph_optimization_level=99)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="external_initializers_size_threshold: expected a number of bytes from 0, got -1"):
            ort.ModelCompiler(ort.SessionOptions(), self.DATA, external_initializers_size_threshold=-1)


def test_enumerations_equal_their_numbers() -> None:
    level = ort.GraphOptimizationLevel
    assert ExecutionMode.ORT_PARALLEL == 1 and ExecutionMode.ORT_PARALLEL != 0 and hash(ExecutionMode.ORT_PARALLEL) == hash(1)
    assert level.ORT_ENABLE_ALL == 99 and {level.ORT_ENABLE_BASIC: "basic"}[1] == "basic"  # type: ignore[index]
    assert ExecutionMode.ORT_PARALLEL != level.ORT_ENABLE_BASIC and OrtMemType.CPU == -1
    assert ExecutionMode.ORT_PARALLEL != "ORT_PARALLEL"
