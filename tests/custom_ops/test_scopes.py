"""Which sessions have which operators: libraries, modules, files, classes, and operators instead of others."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx.reference.op_run import OpRun

import intarsia
from intarsia.custom_ops import DefinitionError, TensorType
from intarsia.custom_ops import primitives as k
from intarsia.errors import Fail, InvalidArgument, InvalidGraph, NoSuchFile
from intarsia.ops.framework.registry_scopes import PROCESS

X = np.float32([3, -1, 2])
SCALE = "g (float[3] x) => (float[3] y) { y = my.Scale (x) }"
MODULE = """
import numpy as np
import intarsia
from onnx.reference.op_run import OpRun

@intarsia.op("my::Scale")
def scale(x):
    return x * 5.0

class Cube(OpRun):
    op_domain = "my"

    def _run(self, x):
        return (x**3,)

library = intarsia.OperatorLibrary("inner")
library.host_op("my::Sort", shape="x")(lambda x: np.sort(x))
"""
ALL = "g (float[3] x) => (y) { a = my.Scale (x) b = my.Cube (a) y = my.Sort (b) }"


def library_of(factor: float) -> intarsia.OperatorLibrary:
    library = intarsia.OperatorLibrary(f"by {factor}")
    library.op("my::Scale")(lambda x: x * factor)
    return library


def test_two_sessions_differ(session_of: Callable[..., Any]) -> None:
    two, three = session_of(SCALE, new_ops=[library_of(2.0)]), session_of(SCALE, new_ops=[library_of(3.0)])
    for session, factor in ((two, 2), (three, 3), (two, 2)):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * factor)
    assert not PROCESS
    with pytest.raises(intarsia.NotImplemented, match="my::Scale"):
        session_of(SCALE)


def test_a_session_goes_before_the_process(session_of: Callable[..., Any]) -> None:
    intarsia.op("my::Scale")(lambda x: x * 7.0)
    np.testing.assert_array_equal(session_of(SCALE).run(None, {"x": X})[0], X * 7)
    session = session_of(SCALE, new_ops=[library_of(2.0)])
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * 2)


def test_a_file_a_module_and_its_name(session_of: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_ops_of_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    options = intarsia.SessionOptions()
    options.register_custom_ops_library(str(tmp_path / "my_ops_of_test.py"))
    expected = np.sort((X * 5) ** 3)
    np.testing.assert_array_equal(session_of(ALL, sess_options=options).run(None, {"x": X})[0], expected)
    np.testing.assert_array_equal(session_of(ALL, new_ops=["my_ops_of_test"]).run(None, {"x": X})[0], expected)
    module = sys.modules.pop("my_ops_of_test")
    np.testing.assert_array_equal(session_of(ALL, new_ops=[module]).run(None, {"x": X})[0], expected)
    assert not PROCESS
    assert session_of(SCALE, new_ops=[module.scale]).run(None, {"x": X})[0].tolist() == (X * 5).tolist()


def test_a_library_takes_over_others() -> None:
    library = intarsia.OperatorLibrary("all")
    library.add(library_of(2.0))
    assert repr(library) == "OperatorLibrary('all': my::Scale)"
    assert repr(intarsia.OperatorLibrary("none")) == "OperatorLibrary('none': empty)"


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("libmine.so", intarsia.NotImplemented, "'libmine.so' is a native library, made for onnxruntime's C API"),
        ("mine.so.1.2", intarsia.NotImplemented, "is a native library"),
        ("MINE.DLL", intarsia.NotImplemented, "write its operators in Python"),
        ("./nothing.py", NoSuchFile, "the operators' file 'nothing.py' does not exist"),
        ("no_module_of_this_name", InvalidArgument, "there is no module 'no_module_of_this_name' with operators; expected"),
        (types.ModuleType("hollow"), InvalidArgument, r"the module 'hollow' \(built in\) has no operators; expected functions"),
        (len, InvalidArgument, "<built-in function len> has no operators; expected a function decorated by"),
        (int, InvalidArgument, "new_ops: the class int is no operator; expected a class with op_domain and _run"),
        (OpRun, InvalidArgument, "new_ops: the class OpRun is abstract; expected one that defines _run"),
    ],
)
def test_what_is_no_library(source: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        intarsia.SessionOptions().register_custom_ops_library(source)


def test_new_ops_is_a_list(make_model: Callable[..., onnx.ModelProto]) -> None:
    with pytest.raises(InvalidArgument, match=r"new_ops: expected a list of operators, got 'ops.py'; write"):
        intarsia.InferenceSession(make_model(SCALE), new_ops="ops.py")


# --- classes ----------------------------------------------------------------------------------------------------------


class Blend(OpRun):
    op_domain = "my"

    def _run(self, a, b, weight=None, labels=None):  # type: ignore[no-untyped-def]
        return a * np.float32(weight) + b, np.array(labels or [], object)


def test_a_class_of_the_reference_evaluator(session_of: Callable[..., Any], make_model: Callable[..., onnx.ModelProto]) -> None:
    text = """g (float[3] x) => (float[3] y, string[2] l) {
        a, l = my.Blend <weight = 0.5, labels = ["p", "q"]> (x, x) y = Relu (a) }"""
    session = session_of(text, new_ops=[Blend])
    expected = onnx.reference.ReferenceEvaluator(make_model(text), new_ops=[Blend]).run(None, {"x": X})
    for _ in range(2):
        found = session.run(None, {"x": X})
        np.testing.assert_array_equal(found[0], expected[0])
        assert found[1].tolist() == ["p", "q"]


def test_a_class_with_a_schema_and_one_with_types(session_of: Callable[..., Any]) -> None:
    defs = onnx.defs

    class Cube(OpRun):
        op_domain = "my"
        op_schema = defs.OpSchema(
            "Cube", "my", 1, inputs=[defs.OpSchema.FormalParameter("x", "T")],
            outputs=[defs.OpSchema.FormalParameter("y", "T"), defs.OpSchema.FormalParameter("n", "tensor(int64)")],
            type_constraints=[("T", ["tensor(float)", "tensor(double)"], "")],
        )  # fmt: skip

        def _run(self, x):  # type: ignore[no-untyped-def]
            return x**3, np.int64(x.size)

    class Plain:
        op_domain = "my"

        def _run(self, x, *, power):  # type: ignore[no-untyped-def]
            return (x**power,)

        @staticmethod
        def infer_types(x: TensorType, power: int) -> TensorType:
            return x

    session = session_of("g (double[3] x) => (a, n, y) { a, n = my.Cube (x) y = Neg (a) }", new_ops=[Cube])
    assert [o.type for o in session.get_outputs()][:2] == ["tensor(double)", "tensor(int64)"]
    a, n, y = session.run(None, {"x": X.astype(np.float64)})
    assert (a.tolist(), n, y.tolist()) == ([27, -1, 8], 3, [-27, 1, -8])
    session = session_of("g (float[3] x) => (y) { a = my.Plain <power = 2> (x) y = Neg (a) }", new_ops=[Plain])
    assert session.get_outputs()[0].shape == [3]
    assert session.run(None, {"x": X})[0].tolist() == [-9, -1, -4]


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda self, x: [x], r"_run raised TypeError: Method '_run' of class 'Bad' does not return a tuple"),
        (lambda self, x: 1 / 0, "Bad._run raised ZeroDivisionError"),
        (lambda self, x: x.nothing, "_run raised AttributeError: 'numpy.ndarray' object has no attribute 'nothing'"),
    ],
)
def test_errors_in_a_class_name_the_node(session_of: Callable[..., Any], run: Callable[..., Any], message: str) -> None:
    bad = type("Bad", (OpRun,), {"op_domain": "my", "_run": run})
    session = session_of("g (float[3] x) => (y) { [here] y = my.Bad (x) }", new_ops=[bad])
    with pytest.raises(Fail, match=rf"^node 'here' \(my::Bad\): .*{message}"):
        session.run(None, {"x": X})


def test_results_of_a_plain_class_are_checked(session_of: Callable[..., Any]) -> None:
    for result, message in ((lambda x: x, "returned a ndarray; expected a tuple of arrays"), (lambda x: (), "gave 0 outputs")):
        plain = type("Plain", (), {"op_domain": "my", "_run": lambda self, x, result=result: result(x)})
        with pytest.raises(Fail, match=message):
            session_of("g (float[3] x) => (y) { y = my.Plain (x) }", new_ops=[plain]).run(None, {"x": X})


def test_a_wrong_type_rule_of_a_class(session_of: Callable[..., Any]) -> None:
    plain = type("Plain", (), {"op_domain": "my", "_run": len, "infer_types": staticmethod(lambda x: 1 / 0)})
    with pytest.raises(InvalidGraph, match=r"Plain.infer_types raised ZeroDivisionError"):
        session_of("g (float[3] x) => (y) { y = my.Plain (x) }", new_ops=[plain])


def test_a_class_with_a_subgraph_is_refused(session_of: Callable[..., Any]) -> None:
    text = "g (float[3] x) => (y) { y = my.Blend <body = b () => (float[3] z) { z = Neg (x) }> (x, x) }"
    with pytest.raises((DefinitionError, InvalidGraph, Fail), match="with a subgraph as its attribute cannot be used here"):
        session_of(text, new_ops=[Blend]).run(None, {"x": X})


# --- instead of others -------------------------------------------------------------------------------------------


def test_an_overridden_operator_is_left_alone_by_rules(session_of: Callable[..., Any]) -> None:
    library = intarsia.OperatorLibrary()
    library.op("ai.onnx::Relu", override=True)(lambda x: x * 10.0)
    text = "g (float[3] x) => (y) { a = Relu (x) b = Relu (a) y = Neg (b) }"  # Relu(Relu(x)) is otherwise Relu(x)
    session = session_of(text, new_ops=[library])
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * -100)
    assert session.explain().nodes[0].op == "intarsia.override::Relu"
    np.testing.assert_array_equal(session_of(text).run(None, {"x": X})[0], -np.maximum(X, 0))


def test_an_override_counts_from_its_version(session_of: Callable[..., Any]) -> None:
    library = intarsia.OperatorLibrary()
    library.op("ai.onnx::Relu", since=14, override=True)(lambda x: x * 10.0)
    text = "g (float[3] x) => (y) { y = Relu (x) }"
    for opset, expected in ((13, np.maximum(X, 0)), (14, X * 10), (20, X * 10)):
        session = session_of(text, header=f'<ir_version: 8, opset_import: ["": {opset}]>', new_ops=[library])
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], expected)


def test_an_override_counts_in_subgraphs_and_functions(session_of: Callable[..., Any]) -> None:
    class Relu(OpRun):
        op_domain = ""
        override = True

        def _run(self, x):  # type: ignore[no-untyped-def]
            return (x * np.float32(10),)

    text = """g (bool c, float[3] x) => (float[3] y) {
        a = f.Twice (x)
        y = If (c) <then_branch = t () => (float[3] p) { p = Relu (a) }, else_branch = e () => (float[3] q) { q = Neg (a) }>
    }
    <domain: "f", opset_import: ["": 20]> Twice (v) => (w) { u = Relu (v) w = Add (u, u) }"""
    session = session_of(text, header='<ir_version: 10, opset_import: ["": 20, "f": 1]>', new_ops=[Relu])
    np.testing.assert_array_equal(session.run(None, {"c": np.array(True), "x": X})[0], X * 200)


def test_a_function_of_the_model_gives_way_to_an_override_only(session_of: Callable[..., Any]) -> None:
    text = """g (float[3] x) => (float[3] y) { y = f.Twice (x) }
    <domain: "f", opset_import: ["": 20]> Twice (v) => (w) { w = Add (v, v) }"""
    header = '<ir_version: 10, opset_import: ["": 20, "f": 1]>'
    for override, expected in ((False, X * 2), (True, X * 3)):
        library = intarsia.OperatorLibrary()
        library.op("f::Twice", override=override)(lambda v: v * 3.0)
        np.testing.assert_array_equal(session_of(text, header=header, new_ops=[library]).run(None, {"x": X})[0], expected)


def test_a_class_needs_the_flag_to_replace(make_model: Callable[..., onnx.ModelProto]) -> None:
    relu = type("Relu", (OpRun,), {"op_domain": "", "_run": lambda self, x: (x,)})
    with pytest.raises(InvalidArgument, match=r"ai.onnx::Relu is one of Intarsia's own; .*an OpRun class: override = True"):
        intarsia.InferenceSession(make_model(SCALE), new_ops=[relu])


def test_a_saved_model_has_the_domains_it_came_with(tmp_path: Path, make_model: Callable[..., onnx.ModelProto]) -> None:
    library = intarsia.OperatorLibrary()
    library.op("ai.onnx::Relu", override=True)(lambda x: x * 10.0)
    options = intarsia.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    intarsia.InferenceSession(make_model("g (float[3] x) => (float[3] y) { y = Relu (x) }"), options, new_ops=[library])
    saved = onnx.load(tmp_path / "saved.onnx")
    assert [(n.op_type, n.domain) for n in saved.graph.node] == [("Relu", "")]
    assert "intarsia.override" not in {o.domain for o in saved.opset_import}


def test_the_operators_are_in_force_for_other_providers_while_they_run(
    every_second_provider: str, make_model: Callable[..., onnx.ModelProto]
) -> None:
    providers = [every_second_provider, "CPUExecutionProvider"]
    session = intarsia.InferenceSession(make_model(SCALE), providers=providers, new_ops=[library_of(2.0)])
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * 2)
    np.testing.assert_array_equal(session.run(["y"], {"x": X}, intarsia.RunOptions())[0], X * 2)


def test_initializers_that_a_run_gives(session_of: Callable[..., Any]) -> None:
    text = "g (float[3] x, float[3] w = {1.0, 2.0, 3.0}) => (float[3] y) { a = Add (x, w) y = my.Scale (a) }"
    session = session_of(text, new_ops=[library_of(2.0)])
    np.testing.assert_array_equal(session.run(None, {"x": X, "w": X})[0], X * 4)


def test_rules_make_standard_operators_beside_an_override(session_of: Callable[..., Any]) -> None:
    library = intarsia.OperatorLibrary()
    library.op("ai.onnx::Gelu", since=20, override=True)(lambda X, *, approximate="none": X * 100.0)
    text = """g (float[3] x) => (y) <float two = {1.4142135}, float one = {1.0}, float half = {0.5}> {
        a = Div (x, two) b = Erf (a) c = Add (b, one) d = Mul (x, c) y = Mul (d, half) }"""
    exact = session_of(text).run(None, {"x": X})[0]
    np.testing.assert_allclose(session_of(text, new_ops=[library]).run(None, {"x": X})[0], exact, rtol=1e-6)


def test_unused_registry_is_intarsias_own(make_model: Callable[..., onnx.ModelProto]) -> None:
    from intarsia.ops import builtin, registry

    assert registry() is builtin()
    intarsia.op("my::Scale")(k.neg)
    assert registry() is not builtin()
    assert registry() is registry()
    assert registry().find("my", "Scale", 1) is not None
    assert builtin().find("my", "Scale", 1) is None
    assert ("my", "Scale") in registry().records
    assert set(builtin().records) < set(registry().records)


def test_a_start_from_the_cache_has_the_operators_of_now(make_model: Callable[..., onnx.ModelProto]) -> None:
    data = make_model("g (float[3] x) => (float[3] y) { a = Relu (x) y = my.Scale (a) }").SerializeToString()
    for factor in (2.0, 3.0, 2.0):
        session = intarsia.InferenceSession(data, new_ops=[library_of(factor)])
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.maximum(X, 0) * factor)
    plain = make_model("g (float[3] x) => (float[3] y) { y = Relu (x) }").SerializeToString()
    override = intarsia.OperatorLibrary()
    override.op("ai.onnx::Relu", override=True)(lambda x: x * 10.0)
    for new_ops, expected in ((None, np.maximum(X, 0)), ([override], X * 10), (None, np.maximum(X, 0))):
        session = intarsia.InferenceSession(plain, new_ops=new_ops)
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], expected)


def test_many_threads_run_sessions_that_differ(make_model: Callable[..., onnx.ModelProto]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    sessions = [intarsia.InferenceSession(make_model(SCALE), new_ops=[host_library(f)]) for f in (2.0, 3.0)]

    def run(i: int) -> bool:
        found = sessions[i % 2].run(None, {"x": X})[0]
        return bool((found == X * (2.0 + i % 2)).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(64)))


def host_library(factor: float) -> intarsia.OperatorLibrary:
    library = intarsia.OperatorLibrary()
    library.host_op("my::Scale", shape="x")(lambda x: x * np.float32(factor))
    return library
