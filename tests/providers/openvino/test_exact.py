"""What OpenVINOExecutionProvider puts right or leaves to others: attributes, old versions, NaN and infinities, large integers.

The numbers are ONNX's text, computed by NumPy in float64; test_openvino_wrong.py has what OpenVINO makes of them by itself.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx.helper
import onnx.numpy_helper
import pytest

import intarsia as ort

pytest.importorskip("openvino", reason="needs openvino (extra: openvino)")
OPENVINO, CPU, REFERENCE = "OpenVINOExecutionProvider", "CPUExecutionProvider", "ReferenceExecutionProvider"
NAN, INF = np.float32(np.nan), np.float32(np.inf)
FEW = np.float32([4, 2, NAN, 6, 1, -3])
RNG = np.random.default_rng(0)


def run(
    op: str, *inputs: Any, opset: int = 20, outputs: int = 1, symbolic: bool = False, options: dict[str, Any] | None = None,
    **attributes: Any,
) -> tuple[list[np.ndarray], str]:  # fmt: skip
    """A node's outputs and who ran it; inputs after the first are constants."""
    arrays = [np.asarray(x) for x in inputs]
    names = [f"x{i}" for i in range(len(arrays))]
    shape: list[Any] = [f"d{i}" for i in range(arrays[0].ndim)] if symbolic else list(arrays[0].shape)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, names, [f"y{i}" for i in range(outputs)], "n", **attributes)], "g",
        [onnx.helper.make_tensor_value_info("x0", onnx.helper.np_dtype_to_tensor_dtype(arrays[0].dtype), shape)],
        [onnx.ValueInfoProto(name=f"y{i}") for i in range(outputs)],
        [onnx.numpy_helper.from_array(x, n) for x, n in zip(arrays[1:], names[1:], strict=True)],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ort.ProviderWarning)
        session = ort.InferenceSession(model.SerializeToString(), providers=[(OPENVINO, options or {}), CPU])
    return session.run(None, {"x0": arrays[0]}), session.explain().nodes[0].provider


def check(expected: Any, op: str, *inputs: Any, provider: str = OPENVINO, **more: Any) -> None:
    for symbolic in (False, True):
        (found, *_), taken = run(op, *inputs, symbolic=symbolic, **more)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=f"{op} {more}")
        assert taken == provider


def softmax(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    e = np.exp(x - x.max(axes, keepdims=True))
    return np.asarray(e / e.sum(axes, keepdims=True))


class TestAttributes:
    def test_slopes_of_old_versions_go_along_channels(self) -> None:
        x, slope = RNG.standard_normal((2, 4, 4)).astype(np.float32), np.float32([2, 3, -4, 5])
        check(np.where(x < 0, x * slope[:, None], x), "PRelu", x, slope, opset=6, provider=CPU)
        check(np.where(x < 0, x * slope, x), "PRelu", x, slope, opset=9)
        check(np.where(x < 0, x * 2, x), "PRelu", x, slope[:1], opset=6)

    @pytest.mark.parametrize(("op", "function", "kind"), [
        ("Pow", np.power, np.float32), ("Add", np.add, np.float32), ("Div", np.divide, np.float32),
        ("Sub", np.subtract, np.float32),
        ("Less", np.less, np.float32), ("Greater", np.greater, np.float32), ("Equal", np.equal, np.int32),
        ("And", np.logical_and, np.bool_), ("Or", np.logical_or, np.bool_), ("Xor", np.logical_xor, np.bool_),
    ])  # fmt: skip
    def test_axes_of_old_broadcasts(self, op: str, function: Any, kind: type) -> None:
        """The second operand begins at `axis`, also where its sizes would fit the last axes."""
        x = RNG.integers(1, 4, (4, 4, 4)).astype(kind)
        for shape, axis in (((4,), 0), ((4,), 1), ((4, 4), 0), ((4,), 2), ((4, 4), 1), ((4,), -1)):
            y = RNG.integers(0, 3, shape).astype(kind) + (kind(1) if op == "Div" else kind(0))
            begin = axis % 3
            expected = function(x, y.reshape(shape + (1,) * (3 - begin - len(shape))))
            for symbolic in (False, True):
                (found,), _ = run(op, x, y, opset=6, symbolic=symbolic, broadcast=1, axis=axis)
                np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=f"{op} {shape} at {axis}")

    def test_parts_of_different_sizes(self) -> None:
        x = np.arange(5, dtype=np.float32)
        for symbolic, provider in ((False, OPENVINO), (True, CPU)):
            found, taken = run("Split", x, opset=18, outputs=3, symbolic=symbolic, num_outputs=3)
            assert [part.tolist() for part in found] == [[0, 1], [2, 3], [4]]
            assert taken == provider

    def test_norms_of_windows_over_the_end(self) -> None:
        x = RNG.standard_normal((1, 1, 5)).astype(np.float32)
        expected = [[[np.abs(x[0, 0, :2]).sum(), np.abs(x[0, 0, 2:4]).sum(), abs(x[0, 0, 4])]]]
        check(expected, "LpPool", x, opset=18, kernel_shape=[2], strides=[2], ceil_mode=1, p=1, provider=CPU)

    @pytest.mark.parametrize("reduction", ["max", "min"])
    def test_scattered_nan(self, reduction: str) -> None:
        x, at, sign = np.float32([1, 2, 3]), np.int64([0, 0, 1]), 1 if reduction == "max" else -1
        check([NAN, sign * 9, 3], "ScatterElements", x, at, np.float32([NAN, sign, sign * 9]), opset=18,
              axis=0, reduction=reduction, provider=CPU)  # fmt: skip
        check([NAN, sign * 9, 3], "ScatterND", x, at[:, None], np.float32([NAN, sign, sign * 9]), opset=18,
              reduction=reduction, provider=CPU)  # fmt: skip

    @pytest.mark.parametrize(
        ("shape", "axis"), [((2, 3, 4), 1), ((2, 3, 4), 0), ((1, 3, 2, 2), 1), ((2, 3, 4), -2), ((2, 5), 1)]
    )
    def test_softmax_of_rows(self, shape: tuple[int, ...], axis: int) -> None:
        x = RNG.standard_normal(shape).astype(np.float32)
        rows = tuple(range(axis % len(shape), len(shape)))
        check(softmax(x.astype(float), rows), "Softmax", x, opset=11, axis=axis)
        check(softmax(x.astype(float), (axis,)), "Softmax", x, opset=13, axis=axis)

    @pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
    def test_windows_of_lrn(self, size: int) -> None:
        x = RNG.standard_normal((2, 7, 3, 5)).astype(np.float32)
        low, high = (size - 1) // 2, size // 2
        sums = np.stack([(x[:, max(0, c - low) : c + high + 1].astype(float) ** 2).sum(1) for c in range(7)], 1)
        check(x / (1.3 + 0.5 / size * sums) ** 0.6, "LRN", x, size=size, alpha=0.5, beta=0.6, bias=1.3)

    def test_average_pool_beyond_the_padding(self) -> None:
        x = RNG.standard_normal((1, 1, 6, 6)).astype(np.float32)
        given = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": 1}
        found = [run("AveragePool", x, opset=19, count_include_pad=c, **given) for c in (0, 1)]
        assert [provider for _, provider in found] == [OPENVINO, CPU]
        whole = np.pad(x[0, 0].astype(float), ((1, 1), (0, 1)))
        last = whole[6:8, 4:7]  # of the three rows that the window has, one is beyond the padding
        assert found[1][0][0][0, 0, 3, 2] == pytest.approx(last.sum() / last.size, rel=1e-5)

    @pytest.mark.parametrize("slope", [(3,), (4, 3), (1, 1, 3), (1,), ()])
    def test_slopes_of_prelu(self, slope: tuple[int, ...]) -> None:
        x = RNG.standard_normal((2, 3, 4, 3)).astype(np.float32)
        s = RNG.standard_normal(slope).astype(np.float32)
        for symbolic in (False, True):
            (found,), provider = run("PRelu", x, s, symbolic=symbolic)
            np.testing.assert_allclose(found, np.where(x < 0, x * s, x), rtol=1e-6)
            assert provider == OPENVINO

    @pytest.mark.parametrize(
        ("op", "expected"),
        [
            ("ReduceL1", np.abs),
            ("ReduceL2", np.abs),
            ("ReduceLogSum", np.log),
            ("ReduceSumSquare", np.square),
            ("ReduceMean", None),
        ],
    )
    def test_reductions_of_no_axes(self, op: str, expected: Any) -> None:
        x = RNG.standard_normal((2, 3)).astype(np.float32)
        x = abs(x) if op == "ReduceLogSum" else x
        check(x if expected is None else expected(x), op, x, opset=18, noop_with_empty_axes=1)

    def test_recurrence_that_it_does_not_know_is_left_to_others(self) -> None:
        weights = [RNG.standard_normal((1, 8, 2)).astype(np.float32) for _ in range(2)]
        x = RNG.standard_normal((3, 1, 2)).astype(np.float32)
        assert run("LSTM", x, *weights, hidden_size=2, outputs=3)[1] == OPENVINO
        assert run("LSTM", x, *weights, hidden_size=2, outputs=3, input_forget=1)[1] == CPU


class TestNan:
    @pytest.mark.parametrize(
        ("op", "more", "expected"),
        [
            ("Exp", [], np.exp(FEW)),
            ("Min", [np.float32(5)], np.minimum(FEW, 5)),
            ("Max", [np.float32(2)], np.maximum(FEW, 2)),
            ("Clip", [np.float32(0), np.float32(5)], np.clip(FEW, 0, 5)),
            ("HardSigmoid", [], np.clip(FEW * 0.2 + 0.5, 0, 1)),
            ("Celu", [], np.where(FEW < 0, np.expm1(FEW), FEW)),
            ("Greater", [np.float32(2)], FEW > 2),
            ("GreaterOrEqual", [np.float32(2)], FEW >= 2),
            ("Less", [np.float32(2)], FEW < 2),
        ],
    )
    def test_is_kept(self, op: str, more: list[Any], expected: np.ndarray) -> None:
        check(expected, op, FEW, *more)

    def test_of_either_operand(self) -> None:
        """Whatever stands first, and of constants."""
        a, b = np.float32([NAN, 1, NAN, 1, 3]), np.float32([1, NAN, NAN, 2, 2])
        for x, y in ((a, b), (b, a)):
            check(np.minimum(x, y), "Min", x, y)
            check(np.maximum(x, y), "Max", x, y)
            check(x > y, "Greater", x, y)
            check(x >= y, "GreaterOrEqual", x, y)

    def test_in_windows(self) -> None:
        x = np.float32([[[1, NAN, 3, -2, INF, 5, 6]]])
        check([[[NAN, NAN, 3, INF, INF, 6]]], "MaxPool", x, kernel_shape=[2])

    def test_infinite_arguments_of_gelu(self) -> None:
        x = np.float32([INF, 5e30, 75, 20.5, 19.5, 1, 0, NAN])
        for approximate in ("none", "tanh"):
            (found,), provider = run("Gelu", x, approximate=approximate)
            np.testing.assert_allclose(found, [INF, 5e30, 75, 20.5, 19.5, 0.84134, 0, NAN], rtol=1e-3)
            assert provider == OPENVINO

    @pytest.mark.parametrize(
        ("op", "more", "expected"),
        [
            ("ReduceLogSumExp", [], [NAN]),
            ("ArgMax", [], [2]),
            ("ArgMin", [], [2]),
            ("TopK", [np.int64([3])], [NAN, 6, 4]),
            ("Hardmax", [], [0, 0, 1, 0, 0, 0]),
        ],
    )
    def test_left_to_others(self, op: str, more: list[Any], expected: list[float]) -> None:
        check(expected, op, FEW, *more, provider=CPU, outputs=2 if op == "TopK" else 1)
        _, provider = run(op, FEW, *more, outputs=2 if op == "TopK" else 1, options={"exact_nan": False})
        assert provider == OPENVINO

    def test_clamped_gates(self) -> None:
        weights = [np.ones((1, 8, 2), np.float32) for _ in range(2)]
        x = np.ones((3, 1, 2), np.float32)
        given = {"hidden_size": 2, "outputs": 3, "clip": 0.5}
        assert run("LSTM", x, *weights, **given)[1] == CPU
        assert run("LSTM", x, *weights, **given, options={"exact_nan": False})[1] == OPENVINO

    def test_the_option_turns_it_off(self) -> None:
        x = np.float32([4, 2, 1, 3])
        for op, more in (("Exp", []), ("Clip", [np.float32(0), np.float32(2)])):
            (found,), provider = run(op, x, *more, options={"exact_nan": False})
            np.testing.assert_allclose(found, np.exp(x) if op == "Exp" else np.clip(x, 0, 2), rtol=1e-5)
            assert provider == OPENVINO


class TestIntegers:
    def test_large_ones_are_compared_exactly(self) -> None:
        a = np.array([2**31 - 1, -(2**31) + 1, 2**24 + 1, 7, -(2**31), 5], np.int32)
        b = np.array([2**31 - 2, -(2**31), 2**24, 7, 2**31 - 1, 6], np.int32)
        for x, y in ((a, b), (b, a)):
            check(x == y, "Equal", x, y)
            check(x < y, "Less", x, y)
            check(x <= y, "LessOrEqual", x, y)
            check(x > y, "Greater", x, y)
            check(x >= y, "GreaterOrEqual", x, y)

    def test_negative_indices_of_one_hot(self) -> None:
        values = np.float32([0, 1])
        for opset in (9, 11):
            expected = np.eye(3)[[2, 0, 1, 1]] * [[1], [1], [0], [0]]
            check(expected, "OneHot", np.int64([-1, 0, -4, 3]), np.int64(3), values, opset=opset)

    def test_slices_to_positions_that_only_a_run_knows(self) -> None:
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Slice", ["x", "s", "e", "a", "d"], ["y"], "n")], "g",
            [onnx.helper.make_tensor_value_info("x", 1, ["N"])]
            + [onnx.helper.make_tensor_value_info(n, 7, [1]) for n in "sead"],
            [onnx.helper.make_tensor_value_info("y", 1, ["M"])],
        )  # fmt: skip
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ort.ProviderWarning)
            session = ort.InferenceSession(model.SerializeToString(), providers=[OPENVINO, CPU])
        x = np.arange(5, dtype=np.float32)
        feed = {"s": np.int64([-1]), "e": np.int64([-(2**63)]), "a": np.int64([0]), "d": np.int64([-1])}
        np.testing.assert_array_equal(session.run(None, {"x": x, **feed})[0], x[::-1])


def test_empty_tensors() -> None:
    """Shapes that OpenVINO gives otherwise where a size is 0."""
    x = np.zeros((2, 0, 3), np.float32)
    for axis, shape in ((2, (0, 3)), (1, (2, 0)), (3, (0, 1))):
        for symbolic in (False, True):
            (found,), _ = run("Flatten", x, axis=axis, symbolic=symbolic)
            assert found.shape == shape


@pytest.mark.parametrize("opset", [11, 13, 17])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [[0], [-1], [0, 2], [0, -1], [1, -3], [-2, -1], [0, 1, 2]])
@pytest.mark.parametrize("op", ["ReduceL1", "ReduceLogSum"])
def test_axes_that_are_attributes(op: str, axes: list[int], keepdims: int, opset: int) -> None:
    """OpenVINO looks for them in an input from 13 on, and reduces all axes for want of it."""
    x = RNG.uniform(0.5, 2.0, (2, 3, 4)).astype(np.float32) * np.float32(-1 if op == "ReduceL1" else 1)
    expected = np.abs(x.astype(float)).sum(tuple(axes), keepdims=bool(keepdims))
    check(expected if op == "ReduceL1" else np.log(expected), op, x, opset=opset, axes=axes, keepdims=keepdims)
    for shape in ((0, 3, 4), (2, 0, 4)):
        empty = np.zeros(shape, np.float32)
        (found,), _ = run(op, empty, opset=opset, axes=axes, keepdims=keepdims, symbolic=True)
        with np.errstate(divide="ignore"):
            total = empty.sum(tuple(axes), keepdims=bool(keepdims))
            np.testing.assert_array_equal(found, total if op == "ReduceL1" else np.log(total))


@pytest.mark.parametrize("opset", [1, 11, 13, 17])
@pytest.mark.parametrize("axes", [[0], [-1], [0, 2], [1, -3], [0, 1, 2]])
@pytest.mark.parametrize("symbolic", [False, True])
def test_axes_of_sums_of_powers(symbolic: bool, axes: list[int], opset: int) -> None:
    x = RNG.normal(size=(2, 3, 4)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what OpenVINO makes is of another shape than was inferred, and computed elsewhere
        (found,), provider = run(
            "ReduceLogSumExp", x, opset=opset, axes=axes, keepdims=0, symbolic=symbolic, options={"exact_nan": False}
        )
    assert provider == OPENVINO
    expected = np.log(np.exp(x.astype(float)).sum(tuple(a % 3 for a in axes)))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
