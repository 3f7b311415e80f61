"""Shape arithmetic through graphs whose sizes are symbols, or elements of integer tensors that only a run knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intarsia.graph.dims import Dim, Expr, evaluate, format_shape, symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, TensorType, Value
from intarsia.ops import registry
from intarsia.ops.framework.infer import Inference, infer, trace
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret

BATCH, SEQ = symbol("batch"), symbol("seq")


def graph(inputs: dict[str, TensorType], nodes: list[Node], **constants: Any) -> Inference:
    held = {name: Constant.of(name, np.asarray(value)) for name, value in constants.items()}
    values = [Value(name, kind) for name, kind in inputs.items()]
    outputs = [Value(nodes[-1].outputs[0])]
    return infer(Graph("g", values, outputs, nodes, held, opset_imports={"": 21}), registry())


def shape_of(result: Inference, name: str) -> str:
    kind = result.types[name]
    assert isinstance(kind, TensorType)
    assert kind.shape is not None
    return format_shape(kind.shape)


def test_reshape_by_gathered_sizes() -> None:
    """The chain that exporters write: Shape, Gather, Unsqueeze, Concat, Reshape."""
    nodes = [
        Node("Shape", ["x"], ["s"]),
        Node("Gather", ["s", "zero"], ["b"]),
        Node("Unsqueeze", ["b", "axes"], ["b1"]),
        Node("Concat", ["b1", "minus", "heads", "size"], ["target"], {"axis": 0}),
        Node("Reshape", ["x", "target"], ["y"]),
        Node("Transpose", ["y"], ["z"], {"perm": [0, 2, 1, 3]}),
    ]
    found = graph(
        {"x": TensorType(DType.FLOAT, (BATCH, SEQ, 768))}, nodes, zero=np.int64(0), axes=[0], minus=[-1], heads=[12], size=[64]
    )
    assert shape_of(found, "y") == "[batch, seq, 12, 64]"
    assert shape_of(found, "z") == "[batch, 12, seq, 64]"


def test_slice_to_a_symbolic_end() -> None:
    nodes = [
        Node("Shape", ["x"], ["length"], {"start": 1, "end": 2}),
        Node("Slice", ["table", "zero", "length", "axis"], ["y"]),
    ]
    found = graph(
        {"x": TensorType(DType.INT64, (BATCH, SEQ)), "table": TensorType(DType.FLOAT, (1, 512))}, nodes, zero=[0], axis=[1]
    )
    assert shape_of(found, "y") == "[1, min(512, seq)]" or shape_of(found, "y") == "[1, min(seq, 512)]"


def test_causal_mask_from_range() -> None:
    nodes = [
        Node("Shape", ["x"], ["s"], {"start": 1}),
        Node("Squeeze", ["s"], ["n"]),
        Node("Range", ["zero", "n", "one"], ["positions"]),
        Node("Expand", ["positions", "wide"], ["grid"]),
        Node("Trilu", ["grid"], ["y"], {"upper": 0}),
    ]
    constants = {"zero": np.int64(0), "one": np.int64(1), "wide": [4, 1]}
    found = graph({"x": TensorType(DType.FLOAT, (BATCH, SEQ))}, nodes, **constants)
    assert shape_of(found, "positions") == "[seq]"
    assert shape_of(found, "y") == "[4, seq]"


def test_splits_and_concats_of_symbolic_sizes_cancel() -> None:
    nodes = [
        Node("Split", ["x"], ["a", "b"], {"axis": 1}),
        Node("Concat", ["b", "a"], ["y"], {"axis": 1}),
        Node("Flatten", ["y"], ["f"]),
        Node("Tile", ["f", "repeats"], ["t"]),
    ]
    found = graph({"x": TensorType(DType.FLOAT, (BATCH, SEQ * 2, 3))}, nodes, repeats=[1, 2])
    assert shape_of(found, "a") == "[batch, seq, 3]"
    assert shape_of(found, "y") == "[batch, 2*seq, 3]"
    assert shape_of(found, "t") == "[batch, 12*seq]"


def traced(op: str, version: int, operands: list[Any], outputs: int = 1, **attributes: Any) -> list[k.Tensor | None]:
    """`operands`: tensors, or lists of dimensions for inputs that the definition receives as integers."""
    record = registry().find("", op, version)
    assert record is not None
    values = {i: np.array(v, object) for i, v in enumerate(operands) if isinstance(v, list)}
    tensors = [k.input(i, DType.INT64, (len(v),)) if isinstance(v, list) else v for i, v in enumerate(operands)]
    node = Node(
        op, [f"x{i}" if v is not None else "" for i, v in enumerate(operands)], [f"y{i}" for i in range(outputs)], attributes
    )
    return trace(record, node, tensors, values)


def value(root: k.Tensor | None, arrays: list[Any], env: dict[str, int]) -> np.ndarray:
    assert root is not None
    (found,) = interpret([root], arrays, env)
    assert found.shape == tuple(evaluate(d, env) for d in root.shape)
    return found


N: Dim = symbol("n")
DATA = np.arange(24, dtype=np.float32).reshape(6, 4)
ENV = {"n": 6, "m": 4}


def matrix() -> k.Tensor:
    return k.input(0, DType.FLOAT, (N, symbol("m")))


@pytest.mark.parametrize("end", [-9, -2, 0, 3, 40])
@pytest.mark.parametrize("start", [-9, -2, 0, 3, 40])
def test_slice_by_data(start: int, end: int) -> None:
    (root,) = traced("Slice", 13, [matrix(), [symbol("s[0]")], [symbol("e[0]")]])
    np.testing.assert_array_equal(value(root, [DATA], ENV | {"s[0]": start, "e[0]": end}), DATA[start:end])


@pytest.mark.parametrize(("low", "high"), [(1, 2), (-1, 2), (0, -3), (-2, -2)])
@pytest.mark.parametrize("mode", ["constant", "edge", "wrap", "reflect"])
def test_pad_by_data(mode: str, low: int, high: int) -> None:
    pads = [symbol("p[0]"), 0, symbol("p[1]"), 0]
    (root,) = traced("Pad", 19, [matrix(), pads], mode=mode)
    found = value(root, [DATA, None], ENV | {"p[0]": low, "p[1]": high})
    rows = [(i - low) for i in range(6 + low + high)]
    if mode == "constant":
        expected = np.stack([DATA[r] if 0 <= r < 6 else np.zeros(4) for r in rows])
    else:
        index = {"edge": lambda r: min(max(r, 0), 5), "wrap": lambda r: r % 6, "reflect": lambda r: min(r % 10, 10 - r % 10)}[
            mode
        ]
        expected = DATA[[index(r) for r in rows]]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("want", [(2, 9), (7, 1), (6, 4), (5, 5)])
def test_center_crop_pad_by_data(want: tuple[int, int]) -> None:
    (root,) = traced("CenterCropPad", 18, [matrix(), [symbol("w[0]"), symbol("w[1]")]])
    found = value(root, [DATA, None], ENV | {"w[0]": want[0], "w[1]": want[1]})
    (plain,) = traced("CenterCropPad", 18, [k.input(0, DType.FLOAT, (6, 4)), list(want)])
    np.testing.assert_array_equal(found, value(plain, [DATA, None], {}))


@pytest.mark.parametrize("extent", [0, 1, 5, 7])
def test_split_18_of_a_symbolic_axis(extent: int) -> None:
    data = np.arange(extent, dtype=np.float32)
    roots = traced("Split", 18, [k.input(0, DType.FLOAT, (N,))], outputs=3, num_outputs=3)
    chunk = -(-extent // 3)
    for i, root in enumerate(roots):
        np.testing.assert_array_equal(value(root, [data], {"n": extent}), data[i * chunk : (i + 1) * chunk])


def test_tile_expand_one_hot_and_top_k_by_data() -> None:
    env = ENV | {"r[0]": 2, "r[1]": 3, "d[0]": 5, "k[0]": 2}
    (tiled,) = traced("Tile", 13, [matrix(), [symbol("r[0]"), symbol("r[1]")]])
    np.testing.assert_array_equal(value(tiled, [DATA, None], env), np.tile(DATA, (2, 3)))
    (wide,) = traced("Expand", 13, [matrix(), [symbol("r[0]"), 1, 1]])
    np.testing.assert_array_equal(value(wide, [DATA, None], env), np.broadcast_to(DATA, (2, 6, 4)))
    index, onoff = k.input(0, DType.INT64, (N,)), k.input(2, DType.FLOAT, (2,))
    (hot,) = traced("OneHot", 11, [index, [symbol("d[0]")], onoff])
    indices = np.array([0, 4, -1, 5, 2, 1])
    found = value(hot, [indices, None, np.array([0, 1], np.float32)], env)
    np.testing.assert_array_equal(found, [[float(j == (i + 5 if i < 0 else i)) for j in range(5)] for i in indices])
    (top, _) = traced("TopK", 11, [matrix(), [symbol("k[0]")]], outputs=2)
    np.testing.assert_array_equal(value(top, [DATA, None], env), DATA[:, ::-1][:, :2])


@pytest.mark.parametrize(("start", "limit", "delta"), [(0, 5, 1), (7, -4, -3), (3, 3, 2), (4, 1, 2)])
def test_range_by_data(start: int, limit: int, delta: int) -> None:
    (root,) = traced("Range", 11, [[symbol("a[0]")], [symbol("b[0]")], [delta]])
    np.testing.assert_array_equal(value(root, [None] * 3, {"a[0]": start, "b[0]": limit}), np.arange(start, limit, delta))


EQUATIONS: list[tuple[str, tuple[tuple[Dim, ...], ...]]] = [
    ("bij,bjk->bik", ((N, 3, 4), (N, 4, 2))),
    ("...ij,jk", ((N, 5, 3, 4), (4, 2))),
    ("ii->i", ((4, 4),)),
    ("bhqd,bhkd->bhqk", ((2, N, 3, 4), (2, N, 5, 4))),
    ("i,j,k->kji", ((N,), (2,), (3,))),
    ("ijk,jil->kl", ((N, 3, 4), (3, N, 2))),
    ("b...d->...", ((N, 2, 3, 4),)),
    ("ab,ab,ab->a", ((N, 4),) * 3),
    ("...a,...b->...ab", ((N, 1, 2), (5, 3))),
    ("abc,cde,efa->bdf", ((2, N, 3), (3, 4, 5), (5, 2, 2))),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS, ids=[e for e, _ in EQUATIONS])
def test_einsum(equation: str, shapes: tuple[tuple[Dim, ...], ...]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal([evaluate(d, ENV) for d in shape]) for shape in shapes]
    operands = [k.input(i, DType.DOUBLE, shape) for i, shape in enumerate(shapes)]
    (root,) = traced("Einsum", 12, list(operands), equation=equation)
    np.testing.assert_allclose(value(root, arrays, ENV), np.einsum(equation, *arrays), rtol=1e-12)


def test_data_dependent_sizes_are_fresh_symbols() -> None:
    found = graph({"x": TensorType(DType.FLOAT, (BATCH, SEQ))}, [Node("NonZero", ["x"], ["y"])])
    kind = found.types["y"]
    assert isinstance(kind, TensorType)
    assert kind.shape is not None
    assert kind.shape[0] == 2
    assert isinstance(kind.shape[1], Expr)
    assert kind.dtype is DType.INT64


@pytest.mark.parametrize("length", [1, 2, 6, 7, 8, 12])
@pytest.mark.parametrize("divisor", [2, -2, 3])
def test_quotients_of_sizes_go_towards_zero(length: int, divisor: int) -> None:
    """(n - 7) / d of a size n, whose magnitude is the size of the result."""
    from onnx import TensorProto, helper, numpy_helper

    from intarsia import InferenceSession

    held = [numpy_helper.from_array(np.array([v]), n) for n, v in (("seven", 7), ("d", divisor))]
    chain = [("Shape", "x", "s"), ("Sub", "s seven", "m"), ("Div", "m d", "q"), ("Abs", "q", "a")]
    chain.append(("ConstantOfShape", "a", "y"))
    nodes = [helper.make_node(op, inputs.split(), [out]) for op, inputs, out in chain]
    outputs = [helper.make_tensor_value_info(n, t, None) for n, t in (("y", TensorProto.FLOAT), ("q", TensorProto.INT64))]
    made = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])], outputs, held)
    data = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    expected = int((length - 7) / divisor)
    for provider in ("CPUExecutionProvider", "ReferenceExecutionProvider"):
        y, q = InferenceSession(data, providers=[provider]).run(None, {"x": np.zeros(length, np.float32)})
        assert q.tolist() == [expected]
        assert y.shape == (abs(expected),)
