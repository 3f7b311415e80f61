"""`use_deterministic_compute`: the same bits in every run and with any number of threads."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort

THREADS = (1, 2, 3, 4, 7)
Case = tuple[list, dict[str, np.ndarray], dict[str, np.ndarray]]


def results(source: bytes | str, feeds: dict[str, np.ndarray], threads: int, outputs: list[str] | None = None) -> list[bytes]:
    options = ort.SessionOptions()
    options.use_deterministic_compute, options.intra_op_num_threads = True, threads
    made = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    first = [y.tobytes() for y in made.run(outputs, feeds)]
    assert [y.tobytes() for y in made.run(outputs, feeds)] == first
    return first


def _cases() -> Iterator[tuple[str, Case]]:
    rng = np.random.default_rng(11)

    def r(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    node = helper.make_node
    for op in ("ReduceSum", "ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceProd"):
        for axes in ([0], [1], [2], [0, 2], [1, 2], [0, 1, 2]):
            x = 1 + r(7, 211, 53) / 100
            yield f"{op}{axes}", ([node(op, ["x", "a"], ["y"], keepdims=0)], {"x": x}, {"a": np.array(axes)})
    for op in ("Exp", "Tanh", "Erf", "Softplus", "Gelu"):
        yield op, ([node(op, ["x"], ["y"])], {"x": r(37, 1013)}, {})
    yield "Softmax", ([node("Softmax", ["x"], ["y"], axis=1)], {"x": r(13, 501, 3)}, {})
    yield "LayerNormalization", ([node("LayerNormalization", ["x", "s"], ["y"])], {"x": r(57, 771)}, {"s": r(771)})
    yield "GroupNormalization", (
        [node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)], {"x": r(1, 8, 57, 59)}, {"s": r(8), "b": r(8)},
    )  # fmt: skip
    yield "CumSum", ([node("CumSum", ["x", "a"], ["y"])], {"x": r(5, 4007)}, {"a": np.array(1)})
    for m, k, n in ((1, 700, 900), (2, 333, 1001), (5, 64, 2000), (15, 700, 300), (57, 1500, 333)):
        yield f"MatMul{m}", ([node("MatMul", ["x", "w"], ["y"])], {"x": r(m, k)}, {"w": r(k, n)})
        yield f"MatMul{m} of inputs", ([node("MatMul", ["x", "w"], ["y"])], {"x": r(m, k), "w": r(k, n)}, {})
    for name, (c, side, f, kernel, stride, group) in {
        "direct": (32, 15, 40, 3, 2, 1), "winograd": (64, 14, 64, 3, 1, 1), "winograd of few": (64, 7, 128, 3, 1, 1),
        "pointwise": (48, 31, 50, 1, 1, 1), "depthwise": (16, 33, 16, 3, 1, 16), "grouped": (32, 17, 64, 5, 2, 4),
    }.items():  # fmt: skip
        made = node("Conv", ["x", "w"], ["y"], pads=[kernel // 2] * 4, strides=[stride] * 2, group=group)
        yield f"Conv {name}", ([made], {"x": r(1, c, side, side)}, {"w": r(f, c // group, kernel, kernel)})
    stripes = [
        node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["d"]), node("Conv", ["d", "v"], ["y"], pads=[1] * 4, group=257),
    ]  # fmt: skip
    for width in (1, 3):
        yield (
            f"stripes {width}",
            (stripes, {"x": r(1, 40, 3300 // width, width)}, {"w": r(257, 40, 1, 1), "v": r(257, 1, 3, 3)}),
        )
    for queries, keys in ((1, 700), (37, 37), (129, 700)):
        made = node("Attention", ["q", "k", "v"], ["y"], q_num_heads=4, kv_num_heads=4)
        yield f"Attention {queries}", ([made], {"q": r(1, queries, 64), "k": r(1, keys, 64), "v": r(1, keys, 64)}, {})
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for batch in (3, 17):
            made = node(op, ["x", "w", "r", "b"], ["y"], hidden_size=40, direction="bidirectional")
            weights = {"w": r(2, gates * 40, 30), "r": r(2, gates * 40, 40) / 6, "b": r(2, gates * 80)}
            yield f"{op} {batch}", ([made], {"x": r(5, batch, 30)}, weights)


CASES = dict(_cases())


@pytest.mark.parametrize("name", CASES)
def test_any_number_of_threads(name: str) -> None:
    nodes, feeds, constants = CASES[name]
    kinds = {n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in feeds.items()}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, kinds[n], v.shape) for n, v in feeds.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )  # fmt: skip
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10).SerializeToString()
    expected = results(source, feeds, 1)
    assert all(results(source, feeds, threads) == expected for threads in THREADS[1:])


def test_symbolic_sizes_and_reduced_precision() -> None:
    """Plans that are made anew, and products in float16."""
    rng = np.random.default_rng(2)
    w = rng.standard_normal((300, 400)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("ReduceMean", ["m"], ["y"], axes=[0])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["M", 300])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10).SerializeToString()
    feeds = [rng.standard_normal((m, 300)).astype(np.float32) for m in (1, 3, 70)]
    for kind in ("float32", "float16"):
        found = set()
        for threads in THREADS:
            options = ort.SessionOptions()
            options.use_deterministic_compute, options.intra_op_num_threads = True, threads
            options.add_session_config_entry("session.arithmetic", kind)
            made = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
            checks = [zlib.crc32(made.run(None, {"x": x})[0].tobytes()) for _ in range(2) for x in feeds]
            assert checks[:3] == checks[3:]
            found.add(tuple(checks))
        assert len(found) == 1, kind
