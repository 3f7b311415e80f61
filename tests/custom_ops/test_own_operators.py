"""Operators that a program registers: in primitives and as NumPy functions, with their schemas and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import intarsia
from intarsia.custom_ops import DType, SequenceType, TensorType
from intarsia.custom_ops import primitives as k
from intarsia.errors import Fail, InvalidArgument, InvalidGraph, UnknownOption

X = np.float32([[3, -1, 2], [0, 5, -4]])
SCALE = "g (float[n, 3] x) => (float[n, 3] y) { [scaling] y = my.Scale <factor = 3.0> (x) }"
SORT = "g (float[n, 3] x) => (y) { [sorting] y = my.Sort (x) }"


def scale(x: Any, *, factor: float = 2.0) -> Any:
    return x * factor


def test_a_definition_runs_everywhere_and_is_fused(session_of: Callable[..., Any]) -> None:
    intarsia.op("my::Scale")(scale)
    session = session_of("g (float[n, 3] x) => (float[n, 3] y) { a = my.Scale <factor = 3.0> (x) y = Relu (a) }")
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.maximum(X * 3, 0))
    if session.get_providers()[0] == "CPUExecutionProvider":
        assert {(n.kind, n.kernel) for n in session.explain().nodes} == {("compiled", "Scale+Relu")}


def test_defaults_of_attributes_and_several_outputs(session_of: Callable[..., Any]) -> None:
    @intarsia.op("my::Moments", outputs={"mean": "T", "size": "int64"}, inputs={"x": "T"}, types={"T": "float|double"})
    def moments(x: Any, bias: Any = None, *, axis: int = -1) -> Any:
        mean = k.reduce_mean(x, [axis])
        return (mean if bias is None else mean + bias), k.size(x.shape[axis])

    session = session_of("g (float[n, 3] x) => (float[n] y, int64 s) { y, s = my.Moments (x) }")
    y, size = session.run(None, {"x": X})
    np.testing.assert_allclose(y, X.mean(-1), rtol=1e-6)
    assert size == 3
    session = session_of("g (float[n, 3] x, float b) => (float[n] y) { y = my.Moments (x, b) }")
    np.testing.assert_allclose(session.run(None, {"x": X, "b": np.float32(1)})[0], X.mean(-1) + 1, rtol=1e-6)


def test_integers_as_values_and_the_node(session_of: Callable[..., Any]) -> None:
    seen = []

    @intarsia.op("my::Repeat", values=("shape",))
    def repeat(x: Any, shape: Any, *, node: Any) -> Any:
        seen.append((node.name, node.version, node.outputs))
        return k.broadcast(x, list(shape))

    session = session_of("g (float[3] x) => (y) <int64[2] s = {2, 3}> { [again] y = my.Repeat (x, s) }")
    np.testing.assert_array_equal(session.run(None, {"x": X[0]})[0], np.stack([X[0], X[0]]))
    assert set(seen) == {("again", 1, 1)}


def test_a_host_function_with_a_shape_rule(session_of: Callable[..., Any]) -> None:
    @intarsia.host_op("my::Sort", shape="x", reason="sorting is NumPy's")
    def sort(x: np.ndarray, *, descending: bool = False) -> np.ndarray:
        return -np.sort(-x) if descending else np.sort(x)

    session = session_of("g (float[n, 3] x) => (y) { a = my.Sort <descending = 1> (x) y = Neg (a) }")
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.sort(-X))
    first = session.explain().nodes[0]
    assert session.get_outputs()[0].type == "tensor(float)"
    if session.get_providers()[0] == "CPUExecutionProvider":
        assert (first.kind, first.note) == ("host", "sorting is NumPy's")


def test_shape_rules_of_all_forms(session_of: Callable[..., Any]) -> None:
    @intarsia.host_op("my::Positive", shape=lambda x: (None,))
    def positive(x: np.ndarray) -> np.ndarray:
        return x[x > 0]

    @intarsia.host_op("my::Doubled", shape=lambda x, *, times: (*x[:-1], x[-1] * times))
    def doubled(x: np.ndarray, *, times: int = 2, other: str = "") -> np.ndarray:
        return np.concatenate([x] * times, -1)

    @intarsia.host_op("my::Anything", outputs="double")
    def anything(x: np.ndarray) -> Any:
        return float(x.sum())

    @intarsia.host_op("my::Fill", values=("shape",), shape=lambda x, shape: shape)
    def fill(x: np.ndarray, shape: np.ndarray) -> np.ndarray:
        return np.full(shape, x)

    run = lambda text, **feeds: session_of(text).run(None, feeds)[0]  # noqa: E731
    np.testing.assert_array_equal(run("g (float[n, 3] x) => (y) { a = my.Positive (x) y = Neg (a) }", x=X), -X[X > 0])
    found = run("g (float[n, 3] x) => (y) { a = my.Doubled <times = 3> (x) y = Neg (a) }", x=X)
    np.testing.assert_array_equal(found, -np.concatenate([X] * 3, -1))
    assert run("g (float[n, 3] x) => (y) { a = my.Anything (x) y = Neg (a) }", x=X) == -5
    found = run("g (float x) => (y) <int64[2] s = {2, 2}> { a = my.Fill (x, s) y = Neg (a) }", x=np.float32(1))
    np.testing.assert_array_equal(found, np.full((2, 2), -1))
    found = run("g (float x, int64[2] s) => (y) { a = my.Fill (x, s) y = Neg (a) }", x=np.float32(1), s=np.int64([1, 2]))
    np.testing.assert_array_equal(found, np.full((1, 2), -1))


def test_whole_types_strings_and_sequences(session_of: Callable[..., Any]) -> None:
    @intarsia.host_op("my::Words", infer=lambda text: SequenceType(TensorType(DType.STRING, (1,))))
    def words(text: np.ndarray) -> list[np.ndarray]:
        return [np.array([w]) for w in text.item().split()]

    @intarsia.host_op("my::Count", inputs={"parts": "seq(any)"}, outputs="int64", shape=lambda parts: ())
    def count(parts: list[np.ndarray]) -> int:
        return len(parts)

    session = session_of("g (string s) => (n) { w = my.Words (s) n = my.Count (w) }")
    assert session.run(None, {"s": np.array("a b c", object)})[0] == 3


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("y = my.Typed (i)", r"node 'Typed_0' \(my::Typed\): input 'x' is tensor\(int32\); expected float \| double"),
        ("y = my.Typed (x, i)", "input 'b' is int32, but T is float by input 'x'|input 'b' is tensor.int32"),
        ("y = my.Typed (x, d)", "input 'b' is double, but T is float by input 'x'"),
        ("y = my.Typed ()", "required input 'x' is missing"),
        ("y = my.Typed (x, x, x)", "takes at most 2 inputs, got 3"),
        ('y = my.Typed <alpha = "a"> (x)', r"attribute 'alpha' is 'a' \(str\); expected float"),
        ("y = my.Typed <names = 1> (x)", r"attribute 'names' is 1 \(int\); expected list of str"),
        ("y = my.Typed <alhpa = 1.0> (x)", "attribute 'alhpa' is not known"),
        ("y = my.HostTyped <alhpa = 1.0> (x)", "attribute 'alhpa' is not known; did you mean 'alpha'"),
        ("y = my.HostTyped (i)", r"input 'x' is tensor\(int32\); expected float \| double"),
        ("y = my.HostTyped <needed = 1> (q)", r"input 'x' is seq\(tensor\(float\)\); expected float \| double"),
        ("y = my.HostTyped (x)", "required attribute 'needed' is missing"),
    ],
)
def test_a_node_that_does_not_fit_is_an_error_at_load(session_of: Callable[..., Any], model: str, message: str) -> None:
    types = {"T": "float | double"}

    @intarsia.op("my::Typed", inputs={"x": "T", "b": "T"}, types=types)
    def typed(x: Any, b: Any = None, *, alpha: float = 1.0, names: list[str] | None = None) -> Any:
        return x * alpha

    @intarsia.host_op("my::HostTyped", inputs={"x": "T"}, types=types, shape="x")
    def host_typed(x: Any, *, alpha: float = 1.0, needed: int) -> Any:
        return x

    text = f"g (float[3] x, double[3] d, int32[3] i, seq(float[3]) q) => (y) {{ {model} }}"
    with pytest.raises(InvalidGraph, match=message):
        session_of(text)


def test_integers_are_taken_for_floats_and_bools(session_of: Callable[..., Any]) -> None:
    seen = []

    @intarsia.op("my::Kinds")
    def kinds(x: Any, *, a: float, b: bool, c: list[float]) -> Any:
        seen.append((a, b, c))
        return x * a

    session_of("g (float[3] x) => (y) { y = my.Kinds <a = 2, b = 1, c = [1, 2]> (x) }").run(None, {"x": X[0]})
    assert repr(seen[0]) == "(2.0, True, [1.0, 2.0])"


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x: x.astype(np.float64), "output 'y' is float64; expected float32, as the operator declares: convert"),
        (lambda x: x[:1], r"output 'y' has shape \[1, 3\]; expected \[2, 3\] by the operator's shape rule"),
        (lambda x: x.tolist(), "output 'y' is a list, which is a sequence of tensors; expected an array"),
        (lambda x: (x, x), r"gave 2 outputs; expected 1 \(as a tuple\)"),
        (lambda x: (), r"gave 0 outputs; expected 1 \(as a tuple\)"),
        (lambda x: x.astype("datetime64[s]"), r"has the NumPy dtype datetime64\[s\], which ONNX does not have"),
        (lambda x: 1 / 0, r"its function .*<lambda> \(.*test_own_operators.py:\d+\) raised ZeroDivisionError: division by"),
        (lambda x: {}["a"], r"raised KeyError: 'a'"),
    ],
)
def test_a_wrong_result_names_the_node(session_of: Callable[..., Any], result: Callable[..., Any], message: str) -> None:
    intarsia.host_op("my::Sort", inputs={"x": "T"}, outputs={"y": "T"}, types={"T": "any"}, shape="x")(result)
    session = session_of(SORT)
    with pytest.raises(Fail, match=r"^node 'sorting' \(my::Sort\): .*" + message):
        session.run(None, {"x": X})


def test_a_sequence_that_is_an_array_is_an_error(session_of: Callable[..., Any]) -> None:
    intarsia.host_op("my::Sort", infer=SequenceType)(lambda x: x)
    with pytest.raises(Fail, match="output 'output' is an array; expected a list of arrays, which is a sequence"):
        session_of(SORT).run(None, {"x": X})


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"shape": lambda x: 5}, r"its shape rule .* gave 5; expected a shape, such as \(n, 3\)"),
        ({"shape": lambda x: (-1,)}, "the shape rule gave the size -1 for 'output'; expected sizes from 0, or None"),
        ({"shape": lambda x: x.sizes}, "its shape rule .* raised AttributeError: 'tuple' object has no attribute 'sizes'"),
        ({"infer": lambda x: x.dtype}, "its infer rule .* gave <DType.FLOAT: 1>; expected types, such as TensorType"),
        ({"infer": lambda x: 1 / 0}, "its infer rule .* raised ZeroDivisionError"),
        ({"shape": lambda x: x, "outputs": ["T", "T"], "inputs": {"x": "T"}, "types": {"T": "any"}}, "expected 2 shapes"),
    ],
)
def test_a_wrong_shape_rule_is_an_error_at_load(session_of: Callable[..., Any], rule: dict[str, Any], message: str) -> None:
    intarsia.host_op("my::Sort", **rule)(lambda x: x)
    with pytest.raises(InvalidGraph, match=r"^node 'sorting' \(my::Sort\): .*" + message):
        session_of(SORT.replace("n, 3", "2"))


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (lambda x, *, factor: np.zeros(3), "its definition .* returned a ndarray; expected a Tensor, or a tuple of one"),
        (lambda x, *, factor: x.nothing, r"its definition .*lambda> \(.*py:\d+\) raised AttributeError"),
        (lambda x, *, factor: k.cast(x, DType.DOUBLE), r"gave double for 'output'; expected float: k.cast\(..., DType.FLOAT\)"),
        (lambda x, *, factor: (x, x), "its definition gave 2 outputs or more; expected 1"),
    ],
)
def test_a_wrong_definition_is_an_error_at_load(
    session_of: Callable[..., Any], definition: Callable[..., Any], message: str
) -> None:
    intarsia.op("my::Scale", inputs={"x": "T"}, outputs="T", types={"T": "float"})(definition)
    with pytest.raises(InvalidGraph, match=r"^node 'scaling' \(my::Scale\): .*" + message):
        session_of(SCALE)


@pytest.mark.parametrize(
    ("register", "message"),
    [
        (lambda: intarsia.op("Scale")(scale), "an operator's name is 'domain::Operator', such as .*; got 'Scale'"),
        (lambda: intarsia.op("my::")(scale), "an operator's name is 'domain::Operator'"),
        (lambda: intarsia.op("my::A", since=0)(scale), "since=0; expected an opset version from 1, or a list"),
        (lambda: intarsia.op("my::A", since=[])(scale), r"since=\[\]; expected an opset version"),
        (lambda: intarsia.op("my::A")(lambda x, **k: x), r"takes \*\*k; name every attribute as a keyword-only parameter"),
        (lambda: intarsia.op("my::A")(lambda x, alpha=1.0: x), "the parameter 'alpha' of .* has the default 1.0; inputs are"),
        (lambda: intarsia.op("my::A")(int), "expected a function, got <class 'int'>; classes go into new_ops="),
        (lambda: intarsia.op("my::A", inputs={"y": "float"})(scale), "inputs names 'y', which is no positional parameter"),
        (lambda: intarsia.op("my::A", values=("y",))(scale), "values names 'y', which is no positional parameter"),
        (lambda: intarsia.op("my::A", inputs={"x": "flaot"})(scale), "'flaot' is neither an element type nor .*mean 'float'"),
        (lambda: intarsia.op("my::A", inputs={"x": 1})(scale), "expected a type as text, such as 'float' or 'T', got 1"),
        (lambda: intarsia.op("my::A", outputs="T", types={"T": "any"})(scale), "of type 'T', but no input is declared to"),
        (lambda: intarsia.op("my::A", outputs="float|double")(scale), "'float|double'; expected one element type, or a type"),
        (lambda: intarsia.op("my::A", outputs=[])(scale), "outputs is empty; expected at least one"),
        (lambda: intarsia.op("ai.onnx::Relu")(lambda x: x), "ai.onnx::Relu is one of Intarsia's own; pass override=True"),
        (lambda: intarsia.host_op("my::A", shape="y")(lambda x: x), r"shape='y' names no input \(inputs: 'x'\); expected"),
        (lambda: intarsia.host_op("my::A", shape=lambda: ())(lambda x: x), "shape=.* cannot be called with the operator's 1"),
        (lambda: intarsia.host_op("my::A", shape=lambda x, *, q: ())(lambda x: x), "takes 'q', which is no attribute"),
        (
            lambda: intarsia.host_op("my::A", shape="x", infer=lambda x: x)(lambda x: x),
            "infer= stands instead of shape= and outputs=; expected either",
        ),
    ],
)  # fmt: skip
def test_a_wrong_registration(register: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        register()


def test_registering_twice_and_unregistering(session_of: Callable[..., Any]) -> None:
    intarsia.op("my::Scale")(scale)
    intarsia.op("my::Scale")(scale)  # the same place: a notebook's cell or a module that is executed again
    with pytest.raises(InvalidArgument, match=r"my::Scale version 1 is registered already, by .*scale .*; pass override=True"):
        intarsia.op("my::Scale")(lambda x, *, factor: x)
    session = session_of(SCALE)
    intarsia.op("my::Scale", override=True)(lambda x, *, factor: x + factor)
    np.testing.assert_array_equal(session_of(SCALE).run(None, {"x": X})[0], X + 3)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * 3)
    intarsia.unregister_operator("my::Scale")
    with pytest.raises(UnknownOption, match="no operator my::Scale was registered"):
        intarsia.unregister_operator("my::Scale")
    with pytest.raises(intarsia.NotImplemented, match=r"my::Scale \(version 1\), node 'scaling'"):
        session_of(SCALE)


def test_versions_of_a_domain(session_of: Callable[..., Any]) -> None:
    intarsia.op("my::Scale", since=(1, 4))(scale)
    intarsia.op("my::Scale", since=2)(lambda x, *, factor: x + factor)
    for version, expected in ((1, X * 3), (2, X + 3), (3, X + 3), (5, X * 3)):
        header = f'<ir_version: 10, opset_import: ["": 20, "my": {version}]>'
        np.testing.assert_array_equal(session_of(SCALE, header=header).run(None, {"x": X})[0], expected)


def test_results_that_differ_are_not_computed_before(session_of: Callable[..., Any]) -> None:
    calls: dict[bool, int] = {True: 0, False: 0}

    def register(deterministic: bool) -> None:
        @intarsia.host_op(f"my::Count{int(deterministic)}", shape="x", deterministic=deterministic)
        def count(x: np.ndarray) -> np.ndarray:
            calls[deterministic] += 1
            return x + np.float32(calls[deterministic])

    register(True)
    register(False)
    text = "g (float[1] x) => (y, z) <float[1] c = {0.0}> { a = my.Count1 (c) b = my.Count0 (c) y = Add (a, x) z = Add (b, x) }"
    session = session_of(text)
    zero = {"x": np.float32([0])}
    first, second = session.run(None, zero), session.run(None, zero)
    assert first[0] == second[0]
    assert second[1] == first[1] + 1


def test_inside_control_flow_and_functions(session_of: Callable[..., Any]) -> None:
    intarsia.op("my::Scale")(scale)
    intarsia.host_op("my::Sort", shape="x")(lambda x: np.sort(x, axis=-1))
    text = """g (bool c, float[3] x) => (y) {
        y = If (c) <then_branch = t () => (float[3] a) { b = my.Scale (x) a = my.Sort (b) },
                    else_branch = e () => (float[3] d) { d = my.Sort (x) }>
    }"""
    session = session_of(text)
    for c, expected in ((True, np.sort(X[0] * 2)), (False, np.sort(X[0]))):
        np.testing.assert_array_equal(session.run(None, {"c": np.array(c), "x": X[0]})[0], expected)


def test_a_constant_that_a_definition_reads_under_two_shapes(session_of: Callable[..., Any]) -> None:
    @intarsia.op("my::Products")
    def products(x: Any, w: Any) -> Any:
        first = k.dot(x, k.reshape(w, (3, 8)))
        return k.dot(first, k.reshape(w, (8, 3)))

    w = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 8
    values = ", ".join(map(str, w.reshape(-1).tolist()))
    session = session_of(f"g (float[n, 3] x) => (y) <float[2, 3, 4] w = {{{values}}}> {{ y = my.Products (x, w) }}")
    np.testing.assert_allclose(session.run(None, {"x": X})[0], X @ w.reshape(3, 8) @ w.reshape(8, 3), rtol=1e-5)
