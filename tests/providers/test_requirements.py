"""Sizes and ranks that only a run knows, on the CPU and the reference provider: the definition's result, or an error that says
which node asks for what."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia import InferenceSession
from intarsia.errors import IntarsiaError, InvalidArgument, NodeFailed

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
both = pytest.mark.parametrize("provider", PROVIDERS)


def session_of(text: str, provider: str, operators: Any = None, **constants: np.ndarray) -> InferenceSession:
    """A model in ONNX's text form."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1, "size.test": 1]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(x, name) for name, x in constants.items())
    return InferenceSession(model.SerializeToString(), providers=[provider], new_ops=operators)


def model_of(nodes: list[Any], inputs: list[Any], constants: dict[str, np.ndarray] | None = None) -> bytes:
    """Nodes that give `y`, for inputs that the text form cannot write."""
    made = [numpy_helper.from_array(x, name) for name, x in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")], made)
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()  # type: ignore[no-any-return]


def integers(low: int, high: int, *shape: int, dtype: Any = np.uint8) -> np.ndarray:
    return np.random.default_rng(7).integers(low, high, shape, dtype=dtype)


# --- vectors of an open length that is 1 in the run: one for all ---

K, N = 64, 48


@both
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("a_length", ["", "za", "1"])
@pytest.mark.parametrize("b_length", ["", "zb", "1"])
@pytest.mark.parametrize("many", [False, True])
def test_zero_points_of_open_length(provider: str, rows: int, a_length: str, b_length: str, many: bool) -> None:
    a, b = integers(0, 255, rows, K), integers(-127, 127, K, N, dtype=np.int8)
    of_a = np.full(() if not a_length else rows if many and a_length == "za" else 1, 7, np.uint8)
    of_b = np.full(() if not b_length else N if many and b_length == "zb" else 1, 2, np.int8)
    if of_b.size > 1:
        of_b += np.arange(N, dtype=np.int8) % 5
    types = f"uint8{[a_length] if a_length else ''} az, int8{[b_length] if b_length else ''} bz".replace("'", "")
    text = f"g (uint8[m, {K}] a, int8[{K}, {N}] b, {types}) => (int32[m, {N}] y) {{ y = MatMulInteger (a, b, az, bz) }}"
    (y,) = session_of(text, provider).run(None, {"a": a, "b": b, "az": of_a, "bz": of_b})
    np.testing.assert_array_equal(y, (a.astype(np.int32) - of_a[..., None]) @ (b.astype(np.int32) - of_b))


SCALED = {
    "QLinearMatMul": """g (uint8[m, 64] a, int8[64, 48] b, float[s] bs, int8[z] bz) => (uint8[m, 48] y) {
        y = QLinearMatMul (a, s, az, b, bs, bz, ys, yz) }""",
    "MatMulIntegerToFloat": """g (uint8[m, 64] a, int8[64, 48] b, float[s] bs, int8[z] bz) => (float[m, 48] y) {
        y = com.microsoft.MatMulIntegerToFloat (a, b, s, bs, az, bz) }""",
    "DynamicQuantizeMatMul": """g (float[m, 64] a, int8[64, 48] b, float[s] bs, int8[z] bz) => (float[m, 48] y) {
        y = com.microsoft.DynamicQuantizeMatMul (a, b, bs, bz) }""",
}  # fmt: skip


@both
@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize(("scales", "zeros"), [(1, 1), (N, N), (1, N), (N, 1)])
def test_scales_and_zero_points_of_open_length(provider: str, name: str, scales: int, zeros: int) -> None:
    """One for all columns is as many that are equal."""
    constants = {
        "s": np.float32(0.1), "az": np.uint8(7), "ys": np.float32(9), "yz": np.uint8(100),
    }  # fmt: skip
    used = {n: np.asarray(x) for n, x in constants.items() if f" {n}," in SCALED[name] or f" {n})" in SCALED[name]}
    session = session_of(SCALED[name], provider, **used)
    a = integers(0, 255, 3, K) if "uint8[m" in SCALED[name] else np.linspace(-2, 3, 3 * K, dtype=np.float32).reshape(3, K)
    b = integers(-127, 127, K, N, dtype=np.int8)
    given = {"a": a, "b": b, "bs": np.full(scales, 0.25, np.float32), "bz": np.full(zeros, 2, np.int8)}
    written_out = {**given, "bs": np.full(N, 0.25, np.float32), "bz": np.full(N, 2, np.int8)}
    (y,), (expected,) = session.run(None, given), session.run(None, written_out)
    np.testing.assert_allclose(y.astype(np.float64), expected.astype(np.float64), rtol=1e-6)
    if name == "MatMulIntegerToFloat":
        real = (a.astype(np.float64) - 7) @ (b.astype(np.float64) - 2) * 0.1 * 0.25
        np.testing.assert_allclose(y, real, rtol=1e-4)


@both
def test_zero_points_of_a_length_that_does_not_fit(provider: str) -> None:
    text = (
        "g (uint8[m, 64] a, int8[64, 48] b, uint8[za] az, int8[zb] bz) => (int32[m, 48] y) { y = MatMulInteger (a, b, az, bz) }"
    )
    session = session_of(text, provider)
    feed = {"a": integers(0, 9, 3, K), "b": integers(0, 9, K, N, dtype=np.int8)}
    for az, bz in ((2, 48), (3, 47), (3, 49), (0, 1)):
        with pytest.raises(InvalidArgument, match="MatMulInteger"):
            session.run(None, {**feed, "az": np.zeros(az, np.uint8), "bz": np.zeros(bz, np.int8)})


# --- shapes ---

EXPANDED = {
    "given": ("g (float[3, 4] x, int64[2] s) => (y) { y = Expand (x, s) }", lambda s: {"s": np.array(s)}),
    "of a tensor": ("g (float[3, 4] x, float[a, b] z) => (y) { s = Shape (z) y = Expand (x, s) }",
                    lambda s: {"z": np.zeros(s, np.float32)}),
    "computed": ("g (float[3, 4] x, int64[2] t) => (y) { s = Max (t, t) y = Expand (x, s) }", lambda s: {"t": np.array(s)}),
    "by data": ("""g (float[3, 4] x, int64[2] t, float[k] d) => (y) {
        at = NonZero (d) top = ReduceMax <keepdims = 0> (at) s = Max (t, top) y = Expand (x, s) }""",
                lambda s: {"t": np.array(s), "d": np.ones(1, np.float32)}),
    "through a view": ("g (float[3, 4] x, int64[2] s) => (y) { e = Expand (x, s) y = Unsqueeze (e, axes) }",
                       lambda s: {"s": np.array(s)}),
}  # fmt: skip


@both
@pytest.mark.parametrize("name", EXPANDED)
def test_expand_to_a_shape_of_the_run(provider: str, name: str) -> None:
    text, feed = EXPANDED[name]
    constants = {"axes": np.array([0])} if "axes" in text else {}
    session = session_of(text, provider, **constants)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for shape in ((3, 4), (1, 4), (1, 1)):
        np.testing.assert_array_equal(session.run(None, {"x": x, **feed(shape)})[0].reshape(3, 4), x)
    for wrong in ((2, 4), (3, 5), (5, 4), (1, 2)):
        with pytest.raises(InvalidArgument, match=r"Expand.*(expected 1 or [34]|do not broadcast)"):
            session.run(None, {"x": x, **feed(wrong)})


@both
def test_split_sizes_of_the_run(provider: str) -> None:
    session = session_of("g (float[n] x, int64[2] s) => (a, b) { a, b = Split <axis = 0> (x, s) }", provider)
    x = np.arange(5, dtype=np.float32)
    assert [y.tolist() for y in session.run(None, {"x": x, "s": np.array([2, 3])})] == [[0, 1], [2, 3, 4]]
    for wrong in ([2, 2], [6, -1], [5, 1]):
        with pytest.raises(IntarsiaError, match="split sizes"):
            session.run(None, {"x": x, "s": np.array(wrong)})


# --- windows ---

WINDOWS = {
    "Conv": "g (float[1, 2, h, w] x) => (y) { y = Conv (x, f) }",
    "Conv by group": "g (float[1, 4, h, w] x) => (y) { y = Conv <group = 2> (x, f) }",
    "dilated": "g (float[1, 2, h, w] x) => (y) { y = Conv <dilations = [2, 1]> (x, g) }",
    "valid": 'g (float[1, 2, h, w] x) => (y) { y = Conv <auto_pad = "VALID"> (x, f) }',
    "strided": "g (float[1, 2, h, w] x) => (y) { y = Conv <strides = [2, 2]> (x, f) }",
    "then a mean": "g (float[1, 2, h, w] x) => (y) { c = Conv (x, f) y = GlobalAveragePool (c) }",
    "then an activation": "g (float[1, 2, h, w] x) => (y) { c = Conv (x, f) y = Relu (c) }",
    "filters of the run": "g (float[1, 2, h, w] x, float[4, 2, a, b] f) => (y) { y = Conv (x, f) }",
    "fused": 'g (float[1, 2, h, w] x) => (y) { y = com.microsoft.FusedConv <activation = "Relu"> (x, f) }',
    "ConvInteger": "g (uint8[1, 2, h, w] x) => (y) { y = ConvInteger (x, i) }",
    "QLinearConv": "g (uint8[1, 2, h, w] x) => (y) { y = QLinearConv (x, s, z, i, s, z, s, z) }",
}


@both
@pytest.mark.parametrize("name", WINDOWS)
def test_maps_smaller_than_the_kernel(provider: str, name: str) -> None:
    """Pools are other: see test_clipped_pools.py."""
    text = WINDOWS[name]
    ones = np.ones((4, 2, 3, 3), np.float32)
    constants = {
        "f": ones, "g": ones[:, :, :2], "i": np.ones((4, 2, 3, 3), np.uint8), "s": np.float32(1), "z": np.uint8(0),
    }  # fmt: skip
    used = {n: np.asarray(x) for n, x in constants.items() if f" {n})" in text or f" {n}," in text}
    if name == "filters of the run":
        used = {}
    session = session_of(text, provider, **used)
    channels, dtype = (4 if "group" in name else 2), np.uint8 if "uint8" in text else np.float32
    more = {"f": ones} if name == "filters of the run" else {}
    assert session.run(None, {"x": np.ones((1, channels, 3, 3), dtype), **more})[0].size
    for h, w in ((2, 3), (3, 2), (1, 3), (0, 3), (2, 2), (1, 1)):
        with pytest.raises(InvalidArgument, match=r"Conv.*(the kernel spans|which the kernel spans: got)"):
            session.run(None, {"x": np.ones((1, channels, h, w), dtype), **more})


@both
def test_filters_that_are_not_as_kernel_shape_says(provider: str) -> None:
    """Nine numbers of each filter, but not three by three."""
    text = "g (float[1, 1, h, w] x, float[1, 1, a, b] f) => (y) { y = Conv <kernel_shape = [3, 3]> (x, f) }"
    session, x = session_of(text, provider), np.ones((1, 1, 9, 9), np.float32)
    assert session.run(None, {"x": x, "f": np.ones((1, 1, 3, 3), np.float32)})[0].shape == (1, 1, 7, 7)
    for shape in ((1, 1, 1, 9), (1, 1, 9, 1), (1, 1, 3, 4), (1, 1, 1, 3)):
        with pytest.raises(InvalidArgument, match=r"kernel_shape \[3, 3\] differs from the weights'"):
            session.run(None, {"x": x, "f": np.ones(shape, np.float32)})


# --- attention ---


@both
@pytest.mark.parametrize("other", ["key", "value"])
def test_grouped_queries_of_other_steps(provider: str, other: str) -> None:
    text = """g (float[b, s, 16] query, float[b2, s2, 8] key, float[b3, s3, 8] value, int32[1] lengths, int32[1] total) => (y) {
        y = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2> (query, key, value, , , lengths, total) }"""
    rng = np.random.default_rng(0)
    session = session_of(text, provider)
    feed = {n: rng.standard_normal((1, 3, w)).astype(np.float32) for n, w in (("query", 16), ("key", 8), ("value", 8))}
    feed |= {"lengths": np.array([2], np.int32), "total": np.array([3], np.int32)}
    assert session.run(None, feed)[0].shape == (1, 3, 16)
    for steps in (1, 2, 4, 6):
        with pytest.raises(InvalidArgument, match=f"the steps of {other}, and of query: got {steps}, expected 3"):
            session.run(None, {**feed, other: np.zeros((1, steps, 8), np.float32)})


# --- operands without elements ---

EMPTY = {
    "Gather": ("g (float[n, 4] x, int64[k] i) => (y) { y = Gather (x, i) }", (0, 4), {"i": np.array([0, -1])}),
    "GatherElements": ("g (float[n, 2] x, int64[k, 2] i) => (y) { y = GatherElements (x, i) }", (0, 2),
                       {"i": np.array([[0, 0]])}),
    "GatherND": ("g (float[n, 2] x, int64[k, 2] i) => (y) { y = GatherND (x, i) }", (0, 2), {"i": np.array([[0, 1]])}),
    "ScatterND": ("g (float[n, 2] x, int64[k, 1] i) => (y) { y = ScatterND (x, i, u) }", (0, 2), {"i": np.array([[0], [1]])}),
}  # fmt: skip


@both
@pytest.mark.parametrize("name", EMPTY)
def test_indices_into_nothing(provider: str, name: str) -> None:
    text, shape, feed = EMPTY[name]
    constants = {"u": np.ones((2, 2), np.float32)} if name == "ScatterND" else {}
    session = session_of(text, provider, **constants)
    session.run(None, {"x": np.ones((3, *shape[1:]), np.float32), **feed})
    with pytest.raises(IntarsiaError, match=f"{name}.*(out of range|out of bounds)"):
        session.run(None, {"x": np.ones(shape, np.float32), **feed})


# --- what native code reads of values that other code makes ---


def of_sequence(shape: list[Any] | None) -> Any:
    return helper.make_value_info("q", helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, shape)))


@pytest.mark.parametrize("shape", [(1, 1), (1,), (), (2, 2), (0, 3)])
@pytest.mark.parametrize("declared", [[2, 3000], ["a", "b", "c"], [3000]])
def test_elements_that_are_not_as_their_sequence_says(declared: list[Any], shape: tuple[int, ...]) -> None:
    """Kernels for the declared shape do not read them: a model that takes any shape is made, as onnxruntime has it."""
    nodes = [helper.make_node("SequenceAt", ["q", "i"], ["e"], "At"), helper.make_node("Exp", ["e"], ["y"])]
    session = InferenceSession(model_of(nodes, [of_sequence(declared)], {"i": np.array(0)}), providers=[PROVIDERS[0]])
    (y,) = session.run(None, {"q": [np.ones(shape, np.float32)]})
    np.testing.assert_allclose(y, np.full(shape, np.exp(1)), rtol=1e-6)
    assert y.shape == shape


def test_elements_of_open_sizes() -> None:
    nodes = [helper.make_node("SequenceAt", ["q", "i"], ["e"]), helper.make_node("Exp", ["e"], ["y"])]
    session = InferenceSession(model_of(nodes, [of_sequence(["a", 3])], {"i": np.array(1)}), providers=[PROVIDERS[0]])
    for rows in (1, 5, 0, 2):
        found = session.run(None, {"q": [np.zeros((9, 3), np.float32), np.full((rows, 3), 2, np.float32)]})[0]
        np.testing.assert_allclose(found, np.full((rows, 3), np.exp(2)), rtol=1e-6)


def test_joined_elements_that_are_not_as_their_sequence_says() -> None:
    nodes = [helper.make_node("ConcatFromSequence", ["q"], ["e"], "Join", axis=0), helper.make_node("Neg", ["e"], ["y"])]
    session = InferenceSession(model_of(nodes, [of_sequence(["a", 40000])]), providers=[PROVIDERS[0]])
    (y,) = session.run(None, {"q": [np.ones((2, 2), np.float32), np.ones((3, 2), np.float32)]})
    np.testing.assert_array_equal(y, np.full((5, 2), -1))


def test_an_optional_value_that_is_not_as_it_says() -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 30000]))
    nodes = [helper.make_node("OptionalGetElement", ["q"], ["e"], "Get"), helper.make_node("Neg", ["e"], ["y"])]
    session = InferenceSession(model_of(nodes, [helper.make_value_info("q", kind)]), providers=[PROVIDERS[0]])
    assert session.run(None, {"q": np.ones((2, 30000), np.float32)})[0].sum() == -60000
    with pytest.raises(IntarsiaError, match=r"invalid dimensions for input: q .*\n index: 0 Got: 1 Expected: 2"):
        session.run(None, {"q": np.ones((1, 1), np.float32)})


@both
def test_an_operator_of_python_that_gives_nothing(provider: str) -> None:
    library = intarsia.OperatorLibrary("nothing")
    library.host_op("size.test::Nothing", inputs={"x": "float"}, outputs="float", shape="x")(lambda x: None)
    session = session_of("g (float[n] x) => (y) { a = size.test.Nothing (x) y = Exp (a) }", provider, [library])
    with pytest.raises(NodeFailed, match=r"its output 'a' is a NoneType; expected float|required input .* is missing"):
        session.run(None, {"x": np.ones(3, np.float32)})


def test_a_branch_whose_type_is_another_than_declared() -> None:
    """The branch's own type says 3000 elements; data decide."""
    then = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, [3000])],
    )
    nodes = [
        helper.make_node("NonZero", ["z"], ["at"]), helper.make_node("Cast", ["at"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Squeeze", ["real"], ["e"]),
    ]  # fmt: skip
    other = helper.make_graph(nodes, "else", [], [helper.make_tensor_value_info("e", TensorProto.FLOAT, [3000])])
    inputs = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []), helper.make_tensor_value_info("x", TensorProto.FLOAT, [3000]),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, ["k"]),
    ]  # fmt: skip
    branch = helper.make_node("If", ["c"], ["o"], "Choose", then_branch=then, else_branch=other)
    session = InferenceSession(model_of([branch, helper.make_node("Exp", ["o"], ["y"])], inputs), providers=[PROVIDERS[0]])
    feed = {"x": np.zeros(3000, np.float32), "z": np.ones(3, np.float32)}
    np.testing.assert_array_equal(session.run(None, {**feed, "c": np.array(True)})[0], np.ones(3000, np.float32))
    with pytest.raises(
        NodeFailed, match=r"node 'Choose' \(If\): its output 'o' is float32\[3\]; expected float of shape \[3000\]"
    ):
        session.run(None, {**feed, "c": np.array(False)})


@both
@pytest.mark.parametrize(
    ("length", "trips", "left"), [(21, 5, 11), (21, 10, 1), (21, 11, None), (20, 10, None), (5, 1000, None)]
)
def test_a_map_that_a_loop_makes_smaller_than_the_kernel(provider: str, length: int, trips: int, left: int | None) -> None:
    """Many trips are bound at once; the one whose sizes do not fit is an error."""
    text = """g (float[1, c, n] x, int64 trips) => (y) { y = Loop <body = b (int64 i, bool on, float[1, c2, k] v) =>
        (bool still, float[1, c3, k2] w) { still = Identity (on) w = Conv (v, f) }> (trips, , x) }"""
    session = session_of(text, provider, f=np.full((2, 2, 3), 0.1, np.float32))
    feed = {"x": np.ones((1, 2, length), np.float32), "trips": np.array(trips)}
    if left is not None:
        assert session.run(None, feed)[0].shape == (1, 2, left)
    else:
        with pytest.raises(InvalidArgument, match=r"Conv.*kernel spans"):
            session.run(None, feed)


@pytest.mark.parametrize("shape", [(2, 3), (2, 2), (2,), (1, 1, 1)])
def test_a_loop_that_captures_an_element_of_another_shape(shape: tuple[int, ...]) -> None:
    kinds = [("i", TensorProto.INT64, []), ("on", TensorProto.BOOL, []), ("v", TensorProto.FLOAT, None)]
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["still"]), helper.make_node("Concat", ["v", "e"], ["w"], axis=0)], "body",
        [helper.make_tensor_value_info(*kind) for kind in kinds],
        [helper.make_tensor_value_info(*kind) for kind in (("still", *kinds[1][1:]), ("w", *kinds[2][1:]))],
    )  # fmt: skip
    nodes = [
        helper.make_node("SequenceAt", ["q", "at"], ["e"], "At"),
        helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body),
    ]  # fmt: skip
    inputs = [
        of_sequence([20000, 3]), helper.make_tensor_value_info("trips", TensorProto.INT64, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]),
    ]  # fmt: skip
    session = InferenceSession(model_of(nodes, inputs, {"at": np.array(0)}), providers=[PROVIDERS[0]])
    feed = {"trips": np.array(5), "x": np.ones((1, 3), np.float32)}
    assert session.run(None, {**feed, "q": [np.ones((20000, 3), np.float32)]})[0].shape == (100001, 3)
    if shape == (2, 3):
        assert session.run(None, {**feed, "q": [np.ones(shape, np.float32)]})[0].shape == (11, 3)
        return
    with pytest.raises(IntarsiaError, match=r"\(Concat\): .*concatenated tensors"):
        session.run(None, {**feed, "q": [np.ones(shape, np.float32)]})


# --- branches ---

BRANCHES = """g (bool c, float[n, 8, t] x) => (y) {
    a = Relu (x) b = If <then_branch = near () => (float[p, q, r] u) { u = Conv <pads = [1, 1]> (a, three) },
    else_branch = far () => (float[p2, q2, r2] v) { w = Conv (a, five) v = Pad (w, pads) }> (c) y = Exp (b) }"""
IN_A_FUNCTION = """g (bool c, float[n, 8, t] x) => (y) { y = size.test.Branch (c, x, three, five, pads) }
    <domain: "size.test", opset_import: ["": 21]> Branch (c, x, three, five, pads) => (y) {
    a = Relu (x) b = If <then_branch = near () => (u) { u = Conv <pads = [1, 1]> (a, three) },
    else_branch = far () => (v) { w = Conv (a, five) v = Pad (w, pads) }> (c) y = Exp (b) }"""


@pytest.mark.parametrize("text", [BRANCHES, IN_A_FUNCTION], ids=["graph", "function"])
def test_what_a_branch_asks_counts_where_it_is_taken(text: str) -> None:
    """The other branch's kernel may span more than there is. Where both fit, both are native."""
    constants = {
        "three": np.full((8, 8, 3), 0.01, np.float32), "five": np.full((8, 8, 5), 0.01, np.float32),
        "pads": np.array([0, 0, 2, 0, 0, 2]),
    }  # fmt: skip
    compiled, reference = (session_of(text, provider, **constants) for provider in PROVIDERS)
    assert [node.kind for node in compiled.explain().nodes if not node.body] == ["compiled"] * 3
    for length in (16, 9, 4, 1, 16, 3, 5):
        x = np.random.default_rng(length).standard_normal((2, 8, length), dtype=np.float32)
        for near in (True, False):
            feed = {"c": np.array(near), "x": x}
            if near or length >= 5:
                np.testing.assert_allclose(compiled.run(None, feed)[0], reference.run(None, feed)[0], rtol=1e-5)
            else:
                for session in (compiled, reference):
                    with pytest.raises(InvalidArgument, match=r"Conv.*kernel spans"):
                        session.run(None, feed)


# --- how it is shown ---


def test_kernels_say_what_they_rely_on(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from intarsia.cli import main

    text = "g (float[n, k] x, float[k2, m] w, float[b] bias) => (y) { a = MatMul (x, w) d = Add (a, bias) y = Softmax (d) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')
    onnx.save(model, tmp_path / "model.onnx")
    assert main(["dump", "-s", "kernels", str(tmp_path / "model.onnx")]) in (0, None)
    shown = capsys.readouterr().out
    assert "relies on k = k2 (the inner dimensions of a matrix product)" in shown
    assert "relies on b is 1 or broadcast(m, b)" in shown
