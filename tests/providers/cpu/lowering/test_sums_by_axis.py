"""Reductions of columns over several axes go axis by axis: sums in parts, which err less and which all threads share."""

from __future__ import annotations

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest

import intarsia as ort


def steps(source: bytes) -> list[str]:
    made = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    return [line.split()[0] for line in made._model.programs[0].describe("kernels").splitlines()[1:]]


def reduction(op: str, shape: str, result: str, attributes: str, kind: str = "float") -> bytes:
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g ({kind}[{shape}] x) => ({kind}[{result}] y) {{y = {op}<{attributes}>(x)}}'
    ).SerializeToString()


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1"])
@pytest.mark.parametrize("threads", [1, 2])
def test_axis_by_axis(op: str, threads: int) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    x = (1 + 0.1 * np.random.default_rng(0).standard_normal((2, 17, 19, 24))).astype(np.float32)
    for source in (
        reduction(op, "2,17,19,24", "2,1,1,24", "axes=[1,2]"),
        reduction(op, "2,H,W,24", "2,24", "axes=[1,2], keepdims=0"),
    ):
        session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        wanted = ort.InferenceSession(source, providers=["ReferenceExecutionProvider"]).run(None, {"x": x})[0]
        np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=2e-5)


def test_integers_are_exact_and_empty_axes_what_they_are() -> None:
    x = np.random.default_rng(0).integers(-(2**30), 2**30, (3, 33, 35, 8)).astype(np.int32)
    source = reduction("ReduceMax", "3,33,35,8", "3,8", "axes=[1,2], keepdims=0", "int32")
    assert np.array_equal(ort.InferenceSession(source).run(None, {"x": x})[0], x.max((1, 2)))
    source = reduction("ReduceL1", "3,H,W,8", "3,8", "axes=[1,2], keepdims=0")
    for h, w in ((0, 5), (5, 0), (0, 0), (20, 30)):
        y = ort.InferenceSession(source).run(None, {"x": np.ones((3, h, w, 8), np.float32)})[0]
        assert np.array_equal(y, np.full((3, 8), h * w))


def test_which_reductions_go_so() -> None:
    assert len(steps(reduction("ReduceMean", "1,64,64,32", "1,1,1,32", "axes=[1,2]"))) == 2
    assert len(steps(reduction("ReduceMean", "1,12,64,64,32", "1,1,1,1,32", "axes=[1,2,3]"))) == 3
    for shape, result, axes in (
        ("1,64,64,32", "1,1,1,1", "1,2,3"),  # rows, whose lanes are parts
        ("1,7,7,512", "1,1,1,512", "1,2"),  # few terms
        ("1,4096,32", "1,1,32", "1"),  # one axis
        ("64,16,16,128", "64,1,1,128", "1,2"),  # as many results as threads want
    ):
        assert len(steps(reduction("ReduceMean", shape, result, f"axes=[{axes}]"))) == 1, shape


@pytest.mark.parametrize("side", [16, 64, 256])
def test_normalised_images_with_constant_channels(side: int) -> None:
    """An image of channels that do not vary, as behind a Clip, has the mean's rounding divided by the root of epsilon."""
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[1,32,{side},{side}] x) => (float[1,32,{side},{side}] y) {{
            c = Conv(x, w)  y = InstanceNormalization<epsilon=1e-5>(c, s, b)
        }}""")
    values = {"w": np.eye(32)[:, :, None, None], "s": np.ones(32), "b": np.zeros(32)}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(v.astype(np.float32), n) for n, v in values.items())
    levels = np.random.default_rng(0).uniform(0.3, 0.7, (1, 32, 1, 1)).astype(np.float32)
    x = np.broadcast_to(levels, (1, 32, side, side)).copy()
    y = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    assert np.abs(y).max() < 0.7 * side * 2.0**-24 / np.sqrt(1e-5) * 4
