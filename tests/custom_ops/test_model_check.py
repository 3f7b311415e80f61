"""`check_model`: all problems of a model at once, without its weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from onnx import helper

import intarsia
from intarsia.errors import NoSuchFile, WrongType
from intarsia.reports.model_check import ModelCheck, Problem

Make = Callable[..., onnx.ModelProto]
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def found(model: Any, **keywords: Any) -> list[tuple[str, str, str]]:
    check = intarsia.check_model(model, **keywords)
    return [(p.severity, p.code, p.node) for p in check.problems]


def test_a_good_model_has_none() -> None:
    check = intarsia.check_model(DIGITS)
    assert check.ok
    assert not check.problems
    assert check.operators["ai.onnx::Conv"] == 3
    assert sum(check.operators.values()) == check.nodes
    assert str(check) == f"{DIGITS}: {check.nodes} nodes of {len(check.operators)} operators; 0 errors, 0 warnings"


def test_many_problems_at_once(make_model: Make) -> None:
    model = make_model(
        """g (float[2, 3] x, string[2] s) => (y) {
            a = my.Foo (x)
            [attribute] b = LeakyRelu <alhpa = 0.1> (x)
            [required] c = Cast (x)
            [kind] d = Concat <axis = "last"> (x, x)
            [shapes] e = MatMul (x, x)
            [strings] f = Sigmoid (s)
            [after] h = Relu (a)
            y = other.Bar (h)
        }"""
    )
    check = intarsia.check_model(model)
    assert not check.ok
    assert {(p.code, p.node) for p in check.errors} == {
        ("operator", "Foo_0"), ("operator", "Bar_7"), ("attribute", "attribute"), ("attribute", "required"),
        ("attribute", "kind"), ("type", "shapes"), ("type", "strings"),
    }  # fmt: skip
    text = str(check)
    assert "attribute 'alhpa' is not known to version 16 (has: alpha)" in text
    assert "node 'required' (ai.onnx::Cast): required attribute 'to' is missing" in text
    assert "node 'kind' (ai.onnx::Concat): attribute 'axis' is STRING; expected INT" in text
    assert "input 0 's' is string; expected bfloat16, double, float or float16" in text
    assert "node 'shapes' (MatMul):" in text


def test_problems_in_subgraphs_and_functions(make_model: Make) -> None:
    text = """g (bool c, float[3] x) => (y) {
        z = f.Twice (x)
        y = If (c) <then_branch = t () => (float[3] p) { [in_branch] p = LeakyRelu <b = 1> (z) },
                    else_branch = e () => (float[3] q) { q = Neg (z) }>
    }
    <domain: "f", opset_import: ["": 20]> Twice (v) => (w) { [in_function] w = Elu <beta = 1.0> (v) }"""
    model = make_model(text, '<ir_version: 10, opset_import: ["": 20, "f": 1]>')
    assert {node for _, code, node in found(model) if code == "attribute"} == {"in_branch", "in_function"}


def test_what_a_later_version_allows_is_a_warning(make_model: Make) -> None:
    model = make_model("g (int32[3] x) => (y) { [early] y = Relu (x) }", '<ir_version: 7, opset_import: ["": 13]>')
    assert found(model) == [("warning", "type", "early")]
    assert intarsia.check_model(model).ok
    assert intarsia.InferenceSession(model).run(None, {"x": np.int32([-1, 0, 1])})[0].tolist() == [0, 0, 1]


def test_what_is_not_known_of_a_type_is_no_warning() -> None:
    sequences = [helper.make_tensor_sequence_value_info(name, 0, None) for name in ("s", "t")]
    inputs = [sequences[0], helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("x", 0, [3])]
    nodes = [
        helper.make_node("SequenceAt", ["s", "i"], ["y"]),
        helper.make_node("SequenceInsert", ["s", "y"], ["t"]),
        helper.make_node("Relu", ["x"], ["z"]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [sequences[1], helper.make_tensor_value_info("z", 0, [3])])
    assert found(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)) == []


def test_an_integer_for_a_float_is_a_warning(make_model: Make) -> None:
    model = make_model("g (float[3] x) => (y) { [slope] y = LeakyRelu <alpha = 1> (x) }")
    assert found(model) == [("warning", "attribute", "slope")]


def test_opset_versions(make_model: Make) -> None:
    model = make_model("g (float[3] x) => (y) { y = Neg (x) }")
    model.opset_import[0].version = 99
    (problem,) = intarsia.check_model(model).problems
    assert problem.code == "opset"
    assert "version 99 of the operator set ai.onnx is not known here" in problem.message


def external_model(folder: Path) -> Path:
    """A model of two matrix products, whose weights are in files of their own."""
    weights = {"w1": np.ones((3, 400), np.float32), "w2": np.ones((400, 2), np.float32)}
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w1"], ["h"]), helper.make_node("MatMul", ["h", "w2"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", 3])],
        [helper.make_tensor_value_info("y", 1, ["n", 2])],
        [onnx.numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0)
    return path


def test_all_external_files_that_are_missing(tmp_path: Path) -> None:
    path = external_model(tmp_path)
    assert intarsia.check_model(path).ok
    (tmp_path / "w1").unlink()
    (tmp_path / "w2").write_bytes(b"short")
    check = intarsia.check_model(path)
    assert [p.code for p in check.problems] == ["external-data", "external-data"]
    assert "file 'w1' is missing in folder" in check.problems[0].message
    assert "needs bytes 0 to 3200 of 'w2'" in check.problems[1].message


def test_weights_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from intarsia.graph.model import Constant

    path = external_model(tmp_path)
    monkeypatch.setattr(Constant, "numpy", lambda self: pytest.fail(f"{self.name} was read"))
    assert intarsia.check_model(path).ok


def test_a_shape_that_is_lost_concludes_nothing(tmp_path: Path, make_model: Make) -> None:
    model = make_model("g (float[2, 3] x) => (y) <int64[1] s = {6}> { y = Reshape (x, s) }")
    shape = model.graph.initializer[0]
    shape.CopyFrom(onnx.numpy_helper.from_array(np.int64([6]), "s"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="gone", size_threshold=0)
    (tmp_path / "gone").unlink()
    assert [p.code for p in intarsia.check_model(tmp_path / "m.onnx").problems] == ["external-data"]


def test_what_cannot_be_read_is_one_problem(tmp_path: Path, make_model: Make) -> None:
    (problem,) = intarsia.check_model(b"no model").problems
    assert problem.code == "model"
    model = make_model("g (float[3] x) => (y) { y = Neg (x) }")
    model.graph.node[0].input[0] = "z"
    (problem,) = intarsia.check_model(model).problems
    assert problem.code == "graph"
    assert "nothing computes its input 'z'" in problem.message
    with pytest.raises(NoSuchFile, match=r"nothing.onnx' does not exist"):
        intarsia.check_model(tmp_path / "nothing.onnx")
    with pytest.raises(WrongType, match=r"Unable to load from type .*: a model is a path"):
        intarsia.check_model(5)


def test_own_operators_count(make_model: Make) -> None:
    model = make_model("g (float[3] x) => (y) { [scaling] y = my.Scale <factor = 1> (x) }")
    assert found(model) == [("error", "operator", "scaling")]
    library = intarsia.OperatorLibrary()
    library.op("my::Scale", inputs={"x": "double"})(lambda x, *, factor: x * factor)
    (problem,) = intarsia.check_model(model, new_ops=[library]).problems
    assert problem.message == "node 'scaling' (my::Scale): input 'x' is tensor(float); expected double"


def test_as_data() -> None:
    check = ModelCheck("m", 1, {"ai.onnx::Neg": 1}, {"ai.onnx": 20}, (Problem("type", "wrong", "n", "ai.onnx::Neg"),))
    data = json.loads(check.to_json())
    assert data["ok"] is False
    assert data["problems"] == [
        {"code": "type", "message": "wrong", "node": "n", "operator": "ai.onnx::Neg", "severity": "error"}
    ]
    assert str(check) == "m: 1 node of 1 operator; 1 error, 0 warnings\n  error (type): wrong"
