"""Lengths of sequences beyond the steps that there are, and negative ones: kernels stay in their own memory, and say so."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from guarded_memory import AVAILABLE, END, START, guarded_copy
from guarded_programs import guarded_programs
from onnx import ModelProto, TensorProto, helper, numpy_helper

import intarsia
from intarsia.errors import IntarsiaError

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
DIRECTIONS = ("forward", "reverse", "bidirectional")
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4, "DynamicQuantizeLSTM": 4}
STEPS, BATCH, FEATURES, HIDDEN = 3, 2, 2, 5
OUTSIDE = ([STEPS + 1, 1], [1, 2**31 - 1], [-1, 2], [2, -(2**31)])
MESSAGE = "an element of sequence_lens is out of range; expected lengths from 0 to the number of steps of X"


def model_of(op: str, direction: str, dtype: type = np.float32, more: dict[str, Any] | None = None) -> bytes:
    """A layer of constant weights, fed X, sequence_lens and the initial states."""
    rng, directions, gates = np.random.default_rng(0), 2 if direction == "bidirectional" else 1, GATES[op]
    constants = {
        "w": rng.standard_normal((directions, gates * HIDDEN, FEATURES)).astype(dtype),
        "r": rng.standard_normal((directions, gates * HIDDEN, HIDDEN)).astype(dtype),
    }
    last = []
    if op == "DynamicQuantizeLSTM":
        for name in ("w", "r"):
            levels = np.rint(constants[name].transpose(0, 2, 1) * 30).clip(-127, 127).astype(np.int8)
            scale, zero = np.full(directions, 1 / 30, dtype), np.zeros(directions, np.int8)
            constants |= {name: levels, f"{name}s": scale, f"{name}z": zero}
        last = ["", "ws", "wz", "rs", "rz"]
    feeds = feeds_of(op, direction, [0, 0], dtype)
    outputs = ["y", "h", "c"][: 3 if gates == 4 else 2]
    names = ["x", "w", "r", "", "n", "h0", *(["c0"] if gates == 4 else []), *last]
    domain = "com.microsoft" if op == "DynamicQuantizeLSTM" else ""
    node = helper.make_node(op, names, outputs, hidden_size=HIDDEN, direction=direction, domain=domain, **more or {})
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [node], "layer",
        [helper.make_tensor_value_info(n, TensorProto.INT32 if n == "n" else kind, x.shape) for n, x in feeds.items()],
        [helper.make_tensor_value_info(n, kind, None) for n in outputs],
        [numpy_helper.from_array(x, n) for n, x in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 14), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def feeds_of(op: str, direction: str, lengths: Sequence[int], dtype: type = np.float32) -> dict[str, np.ndarray]:
    rng, directions = np.random.default_rng(1), 2 if direction == "bidirectional" else 1
    feeds = {"x": rng.standard_normal((STEPS, BATCH, FEATURES)).astype(dtype), "n": np.array(lengths, np.int32)}
    for name in ("h0", "c0")[: 2 if GATES[op] == 4 else 1]:
        feeds[name] = rng.standard_normal((directions, BATCH, HIDDEN)).astype(dtype)
    return feeds


@pytest.mark.skipif(not AVAILABLE, reason="guard pages are mapped as on Linux with pages of 4 KiB")
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_lengths(provider: str, op: str, direction: str) -> None:
    """The error comes, and the session runs on; that nothing beside the operands is touched, the guarded memory shows."""
    kinds = (np.float32,) if op == "DynamicQuantizeLSTM" else (np.float32, np.float64)
    for dtype in kinds:
        with guarded_programs() if provider == PROVIDERS[0] else nullcontext():
            session = intarsia.InferenceSession(model_of(op, direction, dtype), providers=[provider])
            for at in (END, START):
                for lengths in OUTSIDE:
                    feeds = {n: guarded_copy(x, at) for n, x in feeds_of(op, direction, lengths, dtype).items()}
                    with pytest.raises(IntarsiaError, match=MESSAGE):
                        session.run(None, feeds)
                feeds = {n: guarded_copy(x, at) for n, x in feeds_of(op, direction, [STEPS, 1], dtype).items()}
                assert all(np.isfinite(x).all() for x in session.run(None, feeds))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_steps(provider: str, op: str, direction: str) -> None:
    """A sequence without steps has no last state: its final states are 0, whatever it began with."""
    peer = pytest.importorskip("onnxruntime", reason="decides what a last state is where there is none")
    model, options = model_of(op, direction), peer.SessionOptions()
    options.intra_op_num_threads = 1
    theirs = peer.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    session = intarsia.InferenceSession(model, providers=[provider])
    for lengths in ([0, 0], [0, 2], [3, 0]):
        feeds = feeds_of(op, direction, lengths)
        found = session.run(None, feeds)
        for state in found[1:]:
            assert [bool(row.any()) for row in state[0]] == [n > 0 for n in lengths]
        if op != "DynamicQuantizeLSTM" or not any(lengths):  # which chooses its scale otherwise where sequences end
            for ours, wanted in zip(found, theirs.run(None, feeds), strict=True):
                np.testing.assert_allclose(ours, wanted, atol=1e-6)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_batch_first(op: str, provider: str) -> None:
    """With layout 1, too, an ended sequence's row of the final states is 0."""
    model, feeds = model_of(op, "bidirectional", more={"layout": 1}), feeds_of(op, "bidirectional", [0, 2])
    proto = ModelProto.FromString(model)
    feeds = {n: x if n == "n" else np.ascontiguousarray(x.swapaxes(0, 1)) for n, x in feeds.items()}
    for value in proto.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, feeds[value.name].shape, strict=True):
            dim.dim_value = size
    plain = intarsia.InferenceSession(model_of(op, "bidirectional"), providers=[provider])
    found = intarsia.InferenceSession(proto.SerializeToString(), providers=[provider]).run(None, feeds)
    for ours, wanted in zip(found[1:], plain.run(None, feeds_of(op, "bidirectional", [0, 2]))[1:], strict=True):
        np.testing.assert_array_equal(ours, wanted.swapaxes(0, 1))
        assert not ours[0].any() and ours[1].any()


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("lengths", [[4, 5], [2**40, 1]])
def test_reversed_beyond_the_steps(lengths: list[int], provider: str) -> None:
    """ReverseSequence would read beyond its input: an index that is none."""
    node = helper.make_node("ReverseSequence", ["x", "n"], ["y"], time_axis=0, batch_axis=1)
    graph = helper.make_graph(
        [node], "reversed",
        [helper.make_tensor_value_info(*given) for given in (("x", TensorProto.FLOAT, [4, 2]), ("n", TensorProto.INT64, [2]))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 2])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8).SerializeToString()
    session = intarsia.InferenceSession(model, providers=[provider])
    feeds = {"x": np.arange(8, dtype=np.float32).reshape(4, 2), "n": np.array(lengths, np.int64)}
    with pytest.raises(IntarsiaError, match=r"out of (range|bounds)"):
        session.run(None, feeds)
