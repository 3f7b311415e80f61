"""ConvInteger and MaxPool of bytes on the CPU provider, against NumPy's int64."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from conv_int8_reference import convolved
from test_matmul_int8 import plan_of, session, values

import intarsia
from intarsia.codegen.llvm.target import Target
from intarsia.providers.cpu.kernels.conv.grouped import depthwise_int8_kernel

CASES = [  # channels, filters, group, kernel, strides, dilations, pads
    (3, 20, 1, (7, 7), (2, 2), (1, 1), (3, 3, 3, 3)),
    (16, 40, 1, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (17, 33, 1, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    (12, 8, 1, (1, 1), (2, 2), (1, 1), (0, 0, 0, 0)),
    (6, 10, 1, (3, 2), (1, 2), (2, 2), (0, 1, 2, 1)),
    (8, 12, 4, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (64, 64, 2, (3, 3), (2, 1), (1, 1), (1, 1, 1, 1)),
    (72, 72, 18, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (48, 48, 6, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
    (40, 40, 5, (2, 5), (1, 1), (2, 2), (0, 3, 1, 1)),
    (44, 44, 22, (3, 1), (1, 1), (1, 1), (1, 0, 1, 0)),
    (35, 35, 35, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (35, 35, 35, (5, 5), (2, 2), (1, 1), (2, 2, 2, 2)),
    (16, 16, 16, (7, 7), (1, 1), (1, 1), (3, 3, 3, 3)),
    (40, 40, 40, (4, 1), (1, 1), (2, 1), (6, 0, 6, 0)),
    (150, 150, 150, (2, 3), (1, 1), (1, 3), (0, 3, 1, 3)),
    (20, 20, 20, (1, 3), (1, 1), (1, 1), (0, 1, 0, 1)),
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("w_type", [np.uint8, np.int8])
@pytest.mark.parametrize("x_type", [np.uint8, np.int8])
@pytest.mark.parametrize("zeros", ["none", "scalar", "per channel", "run time"])
def test_conv_integer(case: tuple, x_type: type, w_type: type, zeros: str) -> None:
    channels, filters, group, kernel, strides, dilations, pads = case
    rng = np.random.default_rng(1)
    x, w = values(rng, (2, channels, 11, 13), x_type), values(rng, (filters, channels // group, *kernel), w_type)
    x_zero, w_zero = values(rng, (), x_type), values(rng, (filters,) if zeros == "per channel" else (), w_type)
    feeds, constants, names = {"x": x}, {"w": w}, ["x", "w"]
    if zeros == "none":
        x_zero, w_zero = np.array(0), np.array(0)
    else:
        names += ["zx", "zw"]
        constants["zw"] = w_zero
        (feeds if zeros == "run time" else constants)["zx"] = x_zero
    node = helper.make_node(
        "ConvInteger", names, ["y"], strides=strides, dilations=dilations, pads=pads, group=group, kernel_shape=kernel
    )
    centred = w.astype(np.int64) - w_zero.astype(np.int64).reshape(-1, 1, 1, 1)
    expected = convolved(x.astype(np.int64) - int(x_zero), centred, strides, dilations, pads, group)
    made = session([node], {n: (v.dtype, v.shape) for n, v in feeds.items()}, {"y": (np.int32, expected.shape)}, constants)
    np.testing.assert_array_equal(made.run(None, feeds)[0], expected)
    assert "byte " in plan_of(made)


@pytest.mark.parametrize(
    "case", [CASES[14], (12, 40, 1, (5, 1), (1, 1), (1, 1), (2, 0, 1, 0)), (64, 64, 2, (3, 1), (2, 1), (1, 1), (1, 0, 1, 0))]
)
def test_columns_are_lines(case: tuple) -> None:
    """Images of one column, by filters of one."""
    channels, filters, group, kernel, strides, dilations, pads = case
    rng = np.random.default_rng(2)
    x, w = values(rng, (2, channels, 47, 1), np.uint8), values(rng, (filters, channels // group, *kernel), np.int8)
    constants = {"w": w, "zx": np.uint8(130)}
    node = helper.make_node(
        "ConvInteger", ["x", "w", "zx"], ["y"], strides=strides, dilations=dilations, pads=pads, group=group
    )
    expected = convolved(x.astype(np.int64) - 130, w.astype(np.int64), strides, dilations, pads, group)
    made = session([node], {"x": (x.dtype, x.shape)}, {"y": (np.int32, expected.shape)}, constants)
    np.testing.assert_array_equal(made.run(None, {"x": x})[0], expected)


@pytest.mark.parametrize(("each", "groups"), [(2, 6), (4, 32), (4, 5), (8, 3), (16, 4)])
def test_small_groups(each: int, groups: int) -> None:
    """Every filter sees the channels of its group and no others, at the border and inside."""
    rng = np.random.default_rng(each)
    channels = each * groups
    x, w = values(rng, (1, channels, 5, 19), np.uint8), values(rng, (channels, each, 3, 3), np.int8)
    constants = {"w": w, "zx": np.uint8(200)}
    node = helper.make_node("ConvInteger", ["x", "w", "zx"], ["y"], pads=[1, 1, 1, 1], group=groups)
    expected = convolved(x.astype(np.int64) - 200, w.astype(np.int64), (1, 1), (1, 1), (1, 1, 1, 1), groups)
    made = session([node], {"x": (x.dtype, x.shape)}, {"y": (np.int32, expected.shape)}, constants)
    np.testing.assert_array_equal(made.run(None, {"x": x})[0], expected)
    if depthwise_int8_kernel.multiplies_fours(Target.host()):
        assert ("byte grouped 3x3" in plan_of(made)) == (each < 16)


@pytest.mark.parametrize(("x_type", "zero"), [(np.uint8, 0), (np.uint8, 131), (np.int8, -7)])
def test_fewer_multiplications(x_type: type, zero: int) -> None:
    """By Winograd's transforms and without: the same sums."""
    rng = np.random.default_rng(3)
    x, w = values(rng, (1, 96, 30, 29), x_type), values(rng, (80, 96, 3, 3), np.int8)
    node = helper.make_node("ConvInteger", ["x", "w", "zx"], ["y"], pads=[1, 1, 1, 1])
    expected = convolved(x.astype(np.int64) - zero, w.astype(np.int64), (1, 1), (1, 1), (1, 1, 1, 1), 1)
    for disabled in ("0", "1"):
        options = intarsia.SessionOptions()
        options.add_session_config_entry("session.disable_winograd", disabled)
        made = session(
            [node], {"x": (x.dtype, x.shape)}, {"y": (np.int32, expected.shape)}, {"w": w, "zx": x_type(zero)},
            sess_options=options,
        )  # fmt: skip
        np.testing.assert_array_equal(made.run(None, {"x": x})[0], expected)
        if depthwise_int8_kernel.multiplies_fours(Target.host()):
            assert ("byte winograd4" in plan_of(made)) == (disabled == "0")


def test_sums_too_large_for_fewer_multiplications() -> None:
    x, w = np.full((1, 384, 16, 16), 255, np.uint8), np.full((64, 384, 3, 3), 127, np.int8)
    node = helper.make_node("ConvInteger", ["x", "w"], ["y"])
    made = session([node], {"x": (x.dtype, x.shape)}, {"y": (np.int32, (1, 64, 14, 14))}, {"w": w})
    assert (made.run(None, {"x": x})[0] == 384 * 9 * 255 * 127).all()
    assert "byte winograd4" not in plan_of(made)


@pytest.mark.parametrize(("kernel", "strides"), [((1, 1), (1, 1)), ((3, 3), (2, 2)), ((7, 7), (2, 2)), ((5,), (1,))])
@pytest.mark.parametrize("x_type", [np.uint8, np.int8])
def test_weights_that_are_moved(x_type: type, kernel: tuple, strides: tuple) -> None:
    """Unsigned weights around a zero point need nine bits; many filters share the sums of windows."""
    rng = np.random.default_rng(4)
    size, pads = (17, 13)[: len(kernel)], [k // 2 for k in kernel] * 2
    x, w = values(rng, (2, 20, *size), x_type), values(rng, (48, 20, *kernel), np.uint8)
    zeros = rng.integers(0, 256, 48).astype(np.uint8)
    constants = {"w": w, "zx": x_type(33), "zw": zeros}
    node = helper.make_node("ConvInteger", ["x", "w", "zx", "zw"], ["y"], pads=pads, strides=strides)
    centred = w.astype(np.int64) - zeros.reshape(-1, *(1,) * (1 + len(kernel)))
    more = (1,) * (2 - len(kernel))
    none, rank = (0,) * len(more), len(kernel)
    expected = convolved(
        x.reshape(2, 20, *more, *size).astype(np.int64) - 33, centred.reshape(48, 20, *more, *kernel), (*more, *strides),
        (1, 1), (*none, *pads[:rank], *none, *pads[rank:]), 1,
    )  # fmt: skip
    out = expected.reshape(2, 48, *expected.shape[4 - len(kernel) :])
    made = session([node], {"x": (x.dtype, x.shape)}, {"y": (np.int32, out.shape)}, constants)
    np.testing.assert_array_equal(made.run(None, {"x": x})[0], out)


def test_weights_of_nine_bits() -> None:
    """255 less 0 and 0 less 255 fit no pair of signed bytes."""
    x, w = np.full((1, 4, 3, 3), 255, np.uint8), np.zeros((16, 4, 3, 3), np.uint8)
    w[::2] = 255
    zero = np.where(np.arange(16) % 2, 255, 0).astype(np.uint8)
    node = helper.make_node("ConvInteger", ["x", "w", "zx", "zw"], ["y"])
    constants = {"w": w, "zx": np.uint8(0), "zw": zero}
    made = session([node], {"x": (x.dtype, x.shape)}, {"y": (np.int32, (1, 16, 1, 1))}, constants)
    expected = np.where(np.arange(16) % 2, -1, 1) * 36 * 255 * 255
    np.testing.assert_array_equal(made.run(None, {"x": x})[0].ravel(), expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("channels", [3, 64, 70])
def test_max_pool(dtype: type, channels: int) -> None:
    rng = np.random.default_rng(2)
    x = values(rng, (2, channels, 9, 10), dtype)
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=np.iinfo(dtype).min)
    expected = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2].max((-1, -2))
    made = session([node], {"x": (x.dtype, x.shape)}, {"y": (x.dtype, expected.shape)}, {})
    np.testing.assert_array_equal(made.run(None, {"x": x})[0], expected)


@pytest.mark.parametrize("x_type", [np.uint8, np.int8])
@pytest.mark.parametrize("case", [case for case in CASES if case[2] == 1] + [(64, 48, 1, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1))])
def test_usual_weights(case: tuple, x_type: type) -> None:
    """Of which few are near the largest, as CPUs without VNNI multiply them by VPMADDUBSW; inputs of the largest numbers."""
    channels, filters, group, kernel, strides, dilations, pads = case
    rng, info = np.random.default_rng(2), np.iinfo(x_type)
    x = rng.choice(np.array([info.min, info.max], x_type), (2, channels, 12, 13))
    x[0] = info.max
    w = np.clip(np.rint(rng.normal(0, 20, (filters, channels, *kernel))), -128, 127).astype(np.int8)
    zero = np.array(info.min + 3, x_type)
    node = helper.make_node(
        "ConvInteger", ["x", "w", "zx"], ["y"], strides=strides, dilations=dilations, pads=pads, kernel_shape=kernel
    )
    expected = convolved(x.astype(np.int64) - int(zero), w.astype(np.int64), strides, dilations, pads, group)
    made = session([node], {"x": (x_type, x.shape)}, {"y": (np.int32, expected.shape)}, {"w": w, "zx": zero})
    np.testing.assert_array_equal(made.run(None, {"x": x})[0], expected)
