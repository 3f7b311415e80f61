"""Bad input per family: an error of Intarsia's own, on both providers, whatever is known when the model is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drawn_nodes import Drawn, compiled, model_of, reference, session_of
from onnx import numpy_helper

from intarsia.errors import IntarsiaError, InvalidArgument

X, IMAGE, FILTERS = np.ones((4, 3), np.float32), np.ones((1, 2, 5, 5), np.float32), np.ones((3, 2, 3, 3), np.float32)
HUGE = 2**60


def floats(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _out_of_range() -> list[tuple[str, list[Any], dict[str, Any]]]:
    found: list[tuple[str, list[Any], dict[str, Any]]] = []
    for bad in (4, -5, 2**31, 2**62, -(2**63)):
        found += [
            ("Gather", [X, ints(0, bad)], {}),
            ("GatherElements", [X, ints(bad).reshape(1, 1)], {}),
            ("GatherND", [X, ints(0, bad).reshape(1, 2)], {}),
            ("ScatterElements", [X, ints(bad).reshape(1, 1), floats(1, 1)], {}),
            ("ScatterElements", [X, ints(bad).reshape(1, 1), floats(1, 1)], {"reduction": "add"}),
            ("ScatterND", [X, ints(bad).reshape(1, 1), floats(1, 3)], {}),
            ("ScatterND", [X, ints(0, bad).reshape(1, 2), floats(1)], {"reduction": "max"}),
            ("Softmax", [X], {"axis": bad}),
            ("Concat", [X, X], {"axis": bad}),
            ("ReduceSum", [X, ints(bad)], {}),
        ]
    return found


def _recurrent() -> list[tuple[str, list[Any], dict[str, Any]]]:
    found: list[tuple[str, list[Any], dict[str, Any]]] = []
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        x, w, r = floats(2, 1, 3), floats(1, gates * 4, 3), floats(1, gates * 4, 4)
        wrong: list[dict[str, Any]] = [{"hidden_size": 5}, {"hidden_size": -1}, {"layout": 7}, {"clip": -1.0}]
        wrong += [{"direction": "up"}, {"direction": "bidirectional"}, {"activations": ["Nope"] * 3}]
        found += [(op, [x, w, r], {"hidden_size": 4} | extra) for extra in wrong]
        found += [
            (op, [x, w, r, floats(1, 3)], {"hidden_size": 4}),
            (op, [x, w, r, None, np.ones(2, np.int32)], {"hidden_size": 4}),
            (op, [x, w, r, None, None, floats(2, 1, 4)], {"hidden_size": 4}),
            (op, [x, floats(1, gates * 4, 7), r], {"hidden_size": 4}),
        ]
    return found


CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    *_out_of_range(),
    ("Expand", [floats(1), ints(HUGE)], {}),
    ("Expand", [floats(1, 1), ints(2**31, HUGE)], {}),
    ("Tile", [floats(2), ints(HUGE)], {}),
    ("ConstantOfShape", [ints(HUGE)], {}),
    ("ConstantOfShape", [ints(-1)], {}),
    ("Range", [np.array(0), np.array(HUGE), np.array(1)], {}),
    ("Range", [np.array(0), np.array(4), np.array(0)], {}),
    ("Reshape", [floats(4), ints(HUGE, HUGE)], {}),
    ("Reshape", [floats(4), ints(-1, -1)], {}),
    ("OneHot", [ints(1), np.array(-5), floats(2)], {}),
    ("OneHot", [ints(1), np.array(HUGE), floats(2)], {}),
    ("Split", [X, ints(4, -4)], {}),
    ("Split", [X, ints(5)], {}),
    ("Pad", [X, ints(0, 0, 0, -5)], {"mode": "edge"}),
    ("Pad", [X, ints(HUGE, 0, 0, 0)], {}),
    ("Slice", [X, ints(0), ints(1), ints(0), ints(0)], {}),
    ("TopK", [X, ints(9)], {}),
    ("Transpose", [X], {"perm": [0, 0]}),
    ("ReduceSum", [X, ints(0, 0)], {}),
    ("ArgMax", [np.zeros((0, 3), np.float32)], {}),
    ("MatMul", [floats(2, 3), floats(4, 5)], {}),
    ("MatMul", [floats(2, 2, 3), floats(3, 3, 4)], {}),
    ("MatMul", [floats(2, 5, 2, 3), floats(3, 1, 3, 4)], {}),
    ("Gemm", [floats(2, 3), floats(4, 5)], {}),
    ("Einsum", [floats(2, 3)], {"equation": "ijk->i"}),
    ("Add", [floats(2, 3), floats(4)], {}),
    ("Add", [floats(2, 3), ints(1)], {}),
    ("Conv", [floats(5), floats(3)], {}),
    ("Conv", [IMAGE, floats(3, 5, 3, 3)], {}),
    ("Conv", [IMAGE, FILTERS], {"strides": [0, 0]}),
    ("Conv", [IMAGE, FILTERS], {"dilations": [-1, -1]}),
    ("Conv", [IMAGE, FILTERS], {"pads": [-1, -1, -1, -1]}),
    ("Conv", [IMAGE, FILTERS], {"strides": [1]}),
    ("Conv", [IMAGE, FILTERS], {"auto_pad": "NOPE"}),
    ("Conv", [IMAGE, FILTERS], {"group": 0}),
    ("Conv", [floats(1, 2, 1, 1), FILTERS], {}),
    ("Conv", [IMAGE, FILTERS], {"dilations": [9, 9]}),
    ("ConvTranspose", [IMAGE, floats(2, 3, 3, 3)], {"auto_pad": "NOPE"}),
    ("ConvTranspose", [IMAGE, floats(2, 3, 3, 3)], {"pads": [-9, -9, -9, -9]}),
    ("ConvTranspose", [IMAGE, floats(2, 3, 3, 3)], {"output_shape": [-5, -5]}),
    ("MaxPool", [IMAGE], {"kernel_shape": [9, 9]}),
    ("MaxPool", [IMAGE], {"kernel_shape": [0, 0]}),
    ("AveragePool", [IMAGE], {"kernel_shape": [-2, 2]}),
    ("MaxPool", [IMAGE], {"kernel_shape": [3, 3], "strides": [0, 1]}),
    ("MaxPool", [IMAGE], {"kernel_shape": [3, 3], "pads": [-1, 0, 0, 0]}),
    ("LRN", [IMAGE], {"size": -3}),
    ("GroupNormalization", [IMAGE, floats(2), floats(2)], {"num_groups": -2}),
    ("Resize", [IMAGE], {}),
    ("Resize", [IMAGE, None, np.array([1, 1, -1, 1], np.float32)], {}),
    ("Resize", [IMAGE, None, np.array([1, 1, np.nan, 1], np.float32)], {}),
    ("Resize", [IMAGE, None, np.array([1, 1, np.inf, 1], np.float32)], {}),
    ("Resize", [IMAGE, None, None, ints(1, 2, -4, 3)], {}),
    ("GridSample", [IMAGE, floats(1, 2, 2, 3)], {}),
    ("GridSample", [IMAGE, floats(2, 2, 2, 2)], {}),
    ("RoiAlign", [IMAGE, floats(1, 4), ints(5)], {"output_height": 2, "output_width": 2}),
    ("MaxRoiPool", [IMAGE, np.array([[-1, 0, 0, 3, 3]], np.float32)], {"pooled_shape": [2, 2]}),
    ("RoiAlign", [IMAGE, floats(1, 4), ints(-1)], {"output_height": 2, "output_width": 2}),
    ("RoiAlign", [IMAGE, floats(1, 4), ints(0)], {"output_height": 2**31, "output_width": 2**31}),
    ("NonMaxSuppression", [floats(1, 2, 4), floats(1, 1, 3), ints(2)], {}),
    ("Attention", [floats(1, 2, 3, 4), floats(1, 3, 3, 4), floats(1, 3, 3, 4)], {}),
    ("Attention", [floats(1, 3, 8), floats(1, 3, 8), floats(1, 3, 8)], {}),
    ("Attention", [floats(1, 3, 8)] * 3, {"q_num_heads": 3, "kv_num_heads": 3}),
    ("Compress", [X, np.ones((2, 2), bool)], {}),
    ("Dropout", [X, np.float32(2), np.array(True)], {}),
    ("STFT", [floats(1, 8, 1), np.array(-1), floats(4)], {}),
    ("STFT", [floats(1, 8, 1), np.array(1), None, np.array(99)], {}),
    ("Softmax", [X], {"axis": 1.5}),
    ("Transpose", [X], {"perm": [0.5, 1.5]}),
    ("ReduceSum", [X], {"keepdims": "yes"}),
    *_recurrent(),
    ("DepthToSpace", [floats(1, 4, 2, 2)], {"blocksize": 0}),
    ("GroupNormalization", [IMAGE, floats(2), floats(2)], {"num_groups": 0}),
    ("DequantizeLinear", [np.ones((2, 4), np.uint8), floats(3)], {}),
    ("QuantizeLinear", [floats(2, 4), floats(2, 4)], {"axis": 1, "block_size": -1}),
    ("Cast", [X], {"to": 99}),
    ("BitShift", [np.ones(2, np.uint8), np.ones(2, np.uint8)], {"direction": "UP"}),
]


@pytest.mark.parametrize("constant", [False, True], ids=["given", "constant"])
@pytest.mark.parametrize(("op", "inputs", "attributes"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_bad_input(op: str, inputs: list[Any], attributes: dict[str, Any], constant: bool) -> None:
    positions = tuple(i for i in range(1, len(inputs)) if inputs[i] is not None) if constant else ()
    node = Drawn(op, inputs, attributes, constant=positions, opset=25)
    data = model_of(node, [np.float32]).SerializeToString()
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None and i not in positions}
    for provider in ("CPUExecutionProvider", "ReferenceExecutionProvider"):
        with pytest.raises(IntarsiaError):
            session_of(data, provider).run(None, feeds)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint64])
@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_integer_division_by_zero_and_overflow(op: str, dtype: Any) -> None:
    """Neither traps: x / 0 is an error, and the lowest value by -1 wraps around."""
    low = np.iinfo(dtype).min
    a = np.array([5, low, 7], dtype)
    b = np.array([1, -1 if low else 1, 2], np.int64).astype(dtype)
    with np.errstate(all="ignore"):
        (expected,) = reference(Drawn(op, [a, b]))
    (found,) = compiled(Drawn(op, [a, b]), [dtype])
    assert found.tolist() == expected.tolist() == ([5, low, 3] if op == "Div" else [0, 0, 1])
    b[0] = 0
    for run in (reference, lambda node: compiled(node, [dtype])):
        with pytest.raises(InvalidArgument, match="an element of the integer divisor is 0"):
            run(Drawn(op, [a, b]))


@pytest.mark.parametrize("scale", [0.0, np.nan, np.inf, -1.0, 1e-45])
@pytest.mark.parametrize("constant", [False, True], ids=["given", "constant"])
def test_scales_that_divide_to_no_number(scale: float, constant: bool) -> None:
    """QuantizeLinear saturates round(x / scale), DequantizeLinear multiplies; NaN becomes some number of the type."""
    x, q = np.array([[-2.0, 0.0, 0.5, 3.0]], np.float32), np.array([[0, 1, 128, 255]], np.uint8)
    s, positions = np.array(scale, np.float32), (1,) if constant else ()
    with np.errstate(all="ignore"):
        exact = x / s
        (dequantized,) = compiled(Drawn("DequantizeLinear", [q, s], constant=positions), [np.float32])
        np.testing.assert_array_equal(dequantized, q.astype(np.float32) * s)
        (quantized,) = compiled(Drawn("QuantizeLinear", [x, s], constant=positions), [np.uint8])
        known = ~np.isnan(exact)
        np.testing.assert_array_equal(quantized[known], np.clip(np.rint(exact[known]), 0, 255).astype(np.uint8))


MESSAGES: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("Softmax", [X], {"axis": 1.5}, "attribute 'axis' is 1.5; expected an integer"),
    ("LeakyRelu", [X], {"alpha": "a"}, "attribute 'alpha' is 'a'; expected a number"),
    ("Einsum", [X], {"equation": ["ij->ij"]}, r"attribute 'equation' is \['ij->ij'\]; expected a string"),
    ("Transpose", [X], {"perm": [0.5, 1.5]}, r"attribute 'perm' is \[0.5, 1.5\]; expected a list of integers"),
    ("Flatten", [X], {"axis": numpy_helper.from_array(np.ones(1))}, "attribute 'axis' is a .*; expected an integer"),
    ("Cast", [X], {}, "required attribute 'to' is missing"),
    ("Compress", [X, np.ones((2, 2), bool)], {}, "condition has rank 2; expected 1"),
    ("Dropout", [X, np.float32(2), np.array(True)], {}, "ratio is 2; expected 0 to 1"),
    (
        "DequantizeLinear",
        [np.ones((2, 32), np.uint8), floats(2, 1)],
        {"axis": 1, "block_size": 16},
        "one for each block of 16 of the .* entries of x: got 1, expected 2",
    ),
    (
        "QuantizeLinear",
        [floats(2, 32), floats(2, 3)],
        {"axis": -1, "block_size": 16},
        "one for each block of 16 of the .* entries of x: got 3, expected 2",
    ),
    ("STFT", [floats(1, 8, 1), np.array(-1), floats(4)], {}, "frame_step is -1; expected at least 1"),
    ("MatMul", [floats(2, 2, 3), floats(3, 3, 4)], {}, r"size 2 \(d0_0\) must broadcast to one of size 3"),
]


@pytest.mark.parametrize("entries", [1, 3])
def test_blocks_without_a_scale(entries: int) -> None:
    node = Drawn(
        "DequantizeLinear", [np.ones((2, 32), np.uint8), floats(2, entries)], {"axis": 1, "block_size": 16}, static=True
    )
    for run in (reference, lambda node: compiled(node, [np.float32])):
        with pytest.raises(
            IntarsiaError, match="expected 2 entries on axis 1, one for each block of 16 of the 32 entries of x"
        ):
            run(node)


@pytest.mark.tuned
@pytest.mark.parametrize(("op", "inputs", "attributes", "message"), MESSAGES, ids=[c[0] for c in MESSAGES])
def test_what_is_said(op: str, inputs: list[Any], attributes: dict[str, Any], message: str) -> None:
    kinds = [np.uint8 if op == "QuantizeLinear" else np.float32]
    with pytest.raises(IntarsiaError, match=message):
        compiled(Drawn(op, inputs, attributes, constant=tuple(range(1, len(inputs)))), kinds)


def test_regions_of_images_that_are_not() -> None:
    pooled, aligned = {"pooled_shape": [2, 2]}, {"output_height": 2, "output_width": 2}
    with pytest.raises(IntarsiaError, match="region 0 is of image -1; X has 1"):
        reference(Drawn("MaxRoiPool", [IMAGE, np.array([[-1, 0, 0, 3, 3]], np.float32)], pooled))
    with pytest.raises(IntarsiaError, match="batch_indices must be 1 numbers from 0 to 0"):
        reference(Drawn("RoiAlign", [IMAGE, floats(1, 4), ints(-1)], aligned))


def test_a_window_larger_than_the_interpreter_has() -> None:
    with pytest.raises(IntarsiaError, match="the kernel spans 9 elements of spatial axis 0, which has 5 with its pads"):
        reference(Drawn("MaxPool", [IMAGE], {"kernel_shape": [9, 9]}))
