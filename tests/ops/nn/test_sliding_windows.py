"""Convolutions and pools of several versions against torch and plain loops, and on symbolic shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intarsia.errors import InvalidGraph
from intarsia.graph.dims import Dim, symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node
from intarsia.ops.framework.infer import trace
from intarsia.ops.nn.sliding_windows import WindowAttributes, place_windows
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret

RNG = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def evaluate(op: str, version: int, inputs: list[Any], outputs: int = 1, **attributes: Any) -> list[Any]:
    names = ["" if x is None else f"i{i}" for i, x in enumerate(inputs)]
    node = Node(op, names, [f"o{i}" for i in range(outputs)], attributes, version=version)
    return evaluate_node(node, inputs, registry())


def traced(op: str, version: int, shapes: list[tuple[Dim, ...]], **attributes: Any) -> k.Tensor:
    record = registry().find("", op, version)
    assert record is not None
    operands = [k.input(i, DType.FLOAT, s) for i, s in enumerate(shapes)]
    (root,) = trace(record, Node(op, [f"i{i}" for i in range(len(shapes))], ["o"], attributes), operands, {})
    assert root is not None
    return root


@pytest.mark.parametrize("version", [1, 11, 22])
@pytest.mark.parametrize(("rank", "group", "stride", "dilation"), [(1, 1, 2, 1), (2, 2, 1, 2), (2, 6, 2, 1), (3, 1, 1, 1)])
def test_conv_as_torch(version: int, rank: int, group: int, stride: int, dilation: int) -> None:
    torch = pytest.importorskip("torch", reason="the reference of convolutions")
    x, w, b = floats(2, 6, *[7] * rank), floats(12, 6 // group, *[3] * rank), floats(12)
    function = [torch.conv1d, torch.conv2d, torch.conv3d][rank - 1]
    want = function(*map(torch.from_numpy, (x, w, b)), stride, 1, dilation, group).numpy()
    (y,) = evaluate(
        "Conv", version, [x, w, b], group=group, strides=[stride] * rank, pads=[1] * 2 * rank, dilations=[dilation] * rank
    )
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("stride", "padding", "extra", "dilation", "group"), [(2, 1, 1, 1, 1), (3, 0, 0, 1, 2), (1, 2, 0, 2, 1), (2, 0, 1, 2, 2)]
)
def test_conv_transpose_as_torch(stride: int, padding: int, extra: int, dilation: int, group: int) -> None:
    torch = pytest.importorskip("torch", reason="the reference of convolutions")
    x, w, b = floats(2, 4, 5, 6), floats(4, 3, 3, 3), floats(3 * group)
    args = (stride, padding, extra, group, dilation)
    want = torch.conv_transpose2d(*map(torch.from_numpy, (x, w, b)), *args).numpy()
    (y,) = evaluate(
        "ConvTranspose",
        11,
        [x, w, b],
        group=group,
        strides=[stride] * 2,
        pads=[padding] * 4,
        dilations=[dilation] * 2,
        output_padding=[extra] * 2,
    )
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


def test_half_precision_sums_are_formed_in_float32() -> None:
    x, w = np.full((1, 4096, 1, 1), 0.1, np.float16), np.ones((1, 4096, 1, 1), np.float16)
    (y,) = evaluate("Conv", 22, [x, w])
    assert y.dtype == np.float16
    np.testing.assert_allclose(y.astype(np.float32), 4096 * np.float32(np.float16(0.1)), rtol=1e-3)


def test_integer_convolutions_take_zero_points_per_channel() -> None:
    x, w = RNG.integers(0, 255, (1, 2, 5), np.uint8), RNG.integers(0, 255, (3, 2, 3), np.uint8)
    zero = np.array([1, 2, 3], np.uint8)
    (y,) = evaluate("ConvInteger", 10, [x, w, np.uint8(7), zero])
    moved, kernel = x.astype(np.int64) - 7, w.astype(np.int64) - zero[:, None, None]
    want = [[[(moved[0, :, o : o + 3] * kernel[m]).sum() for o in range(3)] for m in range(3)]]
    assert y.dtype == np.int32
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("version", [8, 10, 11, 12, 22])
@pytest.mark.parametrize(("stride", "padding", "ceil"), [(1, 1, 0), (2, 0, 1), (2, 1, 1), (3, 1, 0)])
def test_max_pool_as_torch(version: int, stride: int, padding: int, ceil: int) -> None:
    torch = pytest.importorskip("torch", reason="the reference of pools")
    x = floats(2, 3, 7, 8)
    want, places = torch.nn.functional.max_pool2d(torch.from_numpy(x), 3, stride, padding, 1, bool(ceil), return_indices=True)
    attributes: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [stride] * 2, "pads": [padding] * 4}
    if version < 10 and ceil:
        pytest.skip("ceil_mode came with opset 10")
    if ceil:
        attributes["ceil_mode"] = 1
    y, indices = evaluate("MaxPool", version, [x], 2, **attributes)
    np.testing.assert_array_equal(y, want.numpy())
    planes = np.arange(6).reshape(2, 3, 1, 1) * 56
    np.testing.assert_array_equal(indices, places.numpy() + planes)


def test_max_pool_indices_of_column_major_storage_never_name_padding() -> None:
    x = np.full((1, 1, 3, 4), -np.inf, np.float32)
    x[0, 0, 1, 2] = 5
    _, indices = evaluate("MaxPool", 12, [x], 2, kernel_shape=[2, 2], pads=[1, 1, 1, 1], storage_order=1)
    assert indices.min() >= 0
    assert indices.max() < 12
    assert (indices == 1 + 2 * 3).sum() == 4


@pytest.mark.parametrize(("include", "ceil"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_average_pool_as_torch(include: int, ceil: int) -> None:
    torch = pytest.importorskip("torch", reason="the reference of pools")
    x = floats(2, 3, 8, 7)
    want = torch.nn.functional.avg_pool2d(torch.from_numpy(x), 3, 2, 1, bool(ceil), bool(include)).numpy()
    (y,) = evaluate(
        "AveragePool", 19, [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, ceil_mode=ceil, count_include_pad=include
    )
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pools(p: int) -> None:
    x = floats(1, 2, 4)
    (y,) = evaluate("LpPool", 18, [x], kernel_shape=[2], strides=[2], p=p)
    want = (np.abs(x.reshape(1, 2, 2, 2).astype(np.float64)) ** p).sum(-1) ** (1 / p)
    np.testing.assert_allclose(y, want, rtol=1e-5)
    (whole,) = evaluate("GlobalLpPool", 2, [x], p=p)
    np.testing.assert_allclose(whole[..., 0], (np.abs(x.astype(np.float64)) ** p).sum(-1) ** (1 / p), rtol=1e-5)


def test_max_roi_pool() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    (y,) = evaluate("MaxRoiPool", 1, [x, np.array([[0, 0, 0, 3, 3], [0, 9, 9, 12, 12]], np.float32)], pooled_shape=[2, 2])
    np.testing.assert_array_equal(y[:, 0], [[[5, 7], [13, 15]], [[0, 0], [0, 0]]])


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_symbolic_extents(auto_pad: str) -> None:
    n, h = symbol("n"), symbol("h")
    root = traced("Conv", 11, [(n, 3, h, 9), (4, 3, 3, 2)], auto_pad=auto_pad, strides=[2, 1])
    x, w = floats(2, 3, 8, 9), floats(4, 3, 3, 2)
    (y,) = interpret([root], [x, w], {"n": 2, "h": 8})
    (want,) = evaluate("Conv", 11, [x, w], auto_pad=auto_pad, strides=[2, 1])
    np.testing.assert_array_equal(y, want)


def test_same_padding_of_stride_1_keeps_the_symbol() -> None:
    h = symbol("h")
    assert traced("Conv", 11, [(1, 3, h), (4, 3, 5)], auto_pad="SAME_UPPER").shape == (1, 4, h)
    assert traced("Conv", 11, [(1, 3, h), (4, 3, 3)], pads=[1, 1]).shape == (1, 4, h)
    assert traced("ConvTranspose", 11, [(1, 3, h), (3, 4, 2)], strides=[2]).shape == (1, 4, h * 2)


def test_windows_that_would_start_behind_the_input_are_dropped() -> None:
    assert place_windows([4], [1], WindowAttributes(strides=[3], pads=[0, 2]), ceil_mode=1).out == (2,)
    assert place_windows([3], [1], WindowAttributes(strides=[3], pads=[0, 1]), ceil_mode=1).out == (1,)


@pytest.mark.parametrize(
    ("shapes", "attributes", "message"),
    [
        ([(1, 3, 5, 5), (4, 2, 3, 3)], {}, "X has 3 channels; W and group = 1 need 2"),
        ([(1, 3, 5, 5), (4, 3, 3)], {}, r"needs X \[N, C, ...\] and W \[M, C/group, ...\] of equal rank"),
        ([(1, 3, 5, 5), (4, 3, 3, 3)], {"pads": [1, 1]}, "pads has 2 values; expected 4 for 2 spatial axes"),
        ([(1, 3, 5, 5), (4, 3, 3, 3)], {"strides": [1]}, "strides has 1 values; expected 2"),
        ([(1, 3, 5, 5), (4, 3, 3, 3)], {"auto_pad": "SAME"}, "auto_pad is 'SAME'; expected one of NOTSET"),
        ([(1, 3, 5, 5), (4, 3, 3, 3)], {"kernel_shape": [2, 2]}, r"kernel_shape \[2, 2\] differs from the weights' \[3, 3\]"),
    ],
)
def test_conv_refuses(shapes: list[tuple[int, ...]], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidGraph, match=message):
        evaluate("Conv", 11, [floats(*s) for s in shapes], **attributes)


@pytest.mark.parametrize("shapes", [[(6, 3), (3, 4)], [(1, 3, 5, 5), (3, 4, 3)]])
def test_conv_transpose_refuses(shapes: list[tuple[int, ...]]) -> None:
    message = r"a transposed convolution needs X \[N, C, ...\] and W \[C, M/group, ...\] of equal rank"
    with pytest.raises(InvalidGraph, match=message):
        evaluate("ConvTranspose", 11, [floats(*s) for s in shapes])


def test_pools_refuse() -> None:
    with pytest.raises(InvalidGraph, match=r"a pool needs X \[N, C, D1, ...\]"):
        evaluate("GlobalMaxPool", 1, [floats(2, 3)])
    with pytest.raises(InvalidGraph, match="kernel_shape has 1 sizes; the input has 2 spatial axes"):
        evaluate("MaxPool", 12, [floats(1, 1, 4, 4)], kernel_shape=[2])
    with pytest.raises(InvalidGraph, match="output_shape has 2 sizes; X has rank 3"):
        evaluate("MaxUnpool", 11, [floats(1, 1, 2), np.zeros((1, 1, 2), np.int64), np.array([1, 4])], kernel_shape=[2])
    with pytest.raises(InvalidGraph, match="activation is 'gelu'; expected none, silu or swish"):
        evaluate("CausalConvWithState", 27, [floats(1, 2, 5), floats(2, 1, 3)], 2, activation="gelu")


def test_col2im_needs_its_block_before_a_run() -> None:
    record = registry().find("", "Col2Im", 18)
    assert record is not None
    block = np.array([symbol("a"), 2], object)
    operands = [k.input(0, DType.FLOAT, (1, 4, 4)), k.input(1, DType.INT64, (2,)), k.input(2, DType.INT64, (2,))]
    with pytest.raises(k.SymbolicValueError, match="'block_shape' has to be known"):
        trace(record, Node("Col2Im", ["x", "i", "b"], ["y"]), operands, {1: np.array([4, 4], object), 2: block})
