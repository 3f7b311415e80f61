"""`session.memory_limit_mib` counts what a session and its runs make: results, values of host operators, growing loops,
strings, packed weights, and what NumPy makes on the way; errors say the limit, what was requested, and where."""

import gc
import threading
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort
from intarsia.machine.resources import ACCOUNT

CPU, REFERENCE = "CPUExecutionProvider", "ReferenceExecutionProvider"
MIB = 1 << 20
node, info = helper.make_node, helper.make_tensor_value_info
F32, I64, TEXT = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def made(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], limit_mib: int, provider: str, **constants: np.ndarray
) -> ort.InferenceSession:
    graph = helper.make_graph(nodes, "counted", inputs, outputs, [numpy_helper.from_array(x, n) for n, x in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = ort.SessionOptions()
    options.add_session_config_entry("session.memory_limit_mib", str(limit_mib))
    return ort.InferenceSession(model.SerializeToString(), options, providers=[provider])


def account(session: ort.InferenceSession) -> Any:
    return session._engine.arena().account


def says(limit_mib: int, requested: str = r".* MiB were requested") -> str:
    return rf"{requested}.*'session.memory_limit_mib' = '{limit_mib}' allows {limit_mib} MiB in all"


def expanded(limit_mib: int, provider: str) -> ort.InferenceSession:
    nodes = [node("Expand", ["x", "s"], ["e"]), node("Exp", ["e"], ["y"])]
    return made(nodes, [info("x", F32, [1]), info("s", I64, [1])], [info("y", F32, None)], limit_mib, provider)


@pytest.mark.parametrize("provider", [CPU, REFERENCE])
def test_results(provider: str) -> None:
    """They count until the caller drops them."""
    limit = 24 if provider == CPU else 40  # the definitions keep what Expand gives
    session, x = expanded(limit, provider), np.ones(1, np.float32)
    (held,) = session.run(None, {"x": x, "s": np.array([4 * MIB])})
    assert 16 * MIB <= account(session).held <= 17 * MIB
    with pytest.raises(ort.OutOfMemory, match=says(limit)):
        session.run(None, {"x": x, "s": np.array([4 * MIB])})
    assert held.shape == (4 * MIB,)
    del held
    gc.collect()  # the error's frames
    (again,) = session.run(None, {"x": x, "s": np.array([4 * MIB])})
    np.testing.assert_allclose(again, np.full(4 * MIB, np.e), rtol=1e-6)
    del again
    assert account(session).held < MIB
    assert ACCOUNT.get() is None


@pytest.mark.parametrize("provider", [CPU, REFERENCE])
def test_results_that_are_dropped_elsewhere(provider: str) -> None:
    """In a thread that has another context, and after the session is gone."""
    session = expanded(64, provider)
    held = session.run(None, {"x": np.ones(1, np.float32), "s": np.array([MIB])})
    counted = account(session)
    assert counted.held >= 4 * MIB
    del session
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert counted.held < MIB


@pytest.mark.parametrize("provider", [CPU, REFERENCE])
def test_a_growing_loop(provider: str) -> None:
    body = helper.make_graph(
        [node("Identity", ["going"], ["goes"]), node("Concat", ["v", "v"], ["w"], axis=0)], "body",
        [info("i", I64, []), info("going", TensorProto.BOOL, []), info("v", F32, [None])],
        [info("goes", TensorProto.BOOL, []), info("w", F32, [None])],
    )  # fmt: skip
    nodes = [node("Loop", ["n", "", "x"], ["y"], body=body)]
    session = made(nodes, [info("n", I64, []), info("x", F32, [None])], [info("y", F32, None)], 16, provider)
    (y,) = session.run(None, {"n": np.array(10), "x": np.ones(2, np.float32)})
    assert y.shape == (2048,)
    with pytest.raises(ort.OutOfMemory, match=says(16)):
        session.run(None, {"n": np.array(40), "x": np.ones(2, np.float32)})
    gc.collect()  # the error's frames
    assert account(session).held < 2 * MIB


@pytest.mark.parametrize("provider", [CPU, REFERENCE])
def test_a_sequence(provider: str) -> None:
    body = helper.make_graph(
        [node("Identity", ["going"], ["goes"]), node("Add", ["x", "x"], ["d"]), node("SequenceInsert", ["v", "d"], ["w"])],
        "body",
        [info("i", I64, []), info("going", TensorProto.BOOL, []), helper.make_tensor_sequence_value_info("v", F32, None)],
        [info("goes", TensorProto.BOOL, []), helper.make_tensor_sequence_value_info("w", F32, None)],
    )  # fmt: skip
    nodes = [node("SequenceEmpty", [], ["e"]), node("Loop", ["n", "", "e"], ["y"], body=body)]
    outputs = [helper.make_tensor_sequence_value_info("y", F32, None)]
    session = made(nodes, [info("n", I64, []), info("x", F32, [None])], outputs, 16, provider)
    x = np.ones(MIB // 4, np.float32)
    assert len(session.run(None, {"n": np.array(3), "x": x})[0]) == 3
    with pytest.raises(ort.OutOfMemory, match=says(16)):
        session.run(None, {"n": np.array(40), "x": x})


@pytest.mark.parametrize("provider", [CPU, REFERENCE])
def test_strings(provider: str) -> None:
    chain = [node("StringConcat", [f"v{i}"] * 2, [f"v{i + 1}"]) for i in range(30)]
    session = made(chain, [info("v0", TEXT, [1])], [info("v30", TEXT, None)], 16, provider)
    with pytest.raises(
        ort.OutOfMemory, match=r"node 'StringConcat_\d+' \(StringConcat\): its strings have 16,777,216 characters"
    ):
        session.run(None, {"v0": np.array(["ab"], object)})
    with pytest.raises(ort.OutOfMemory, match=says(16)):
        session.run(None, {"v0": np.array(["ab"], object)})


@pytest.mark.parametrize("provider", [CPU, REFERENCE])
def test_values_of_host_operators(provider: str) -> None:
    nodes = [node("NonZero", ["x"], ["y"])]
    session = made(nodes, [info("x", F32, [None, None])], [info("y", I64, None)], 8, provider)
    (y,) = session.run(None, {"x": np.eye(16, dtype=np.float32)})
    assert y.shape == (2, 16)
    with pytest.raises(ort.OutOfMemory, match=says(8)):
        session.run(None, {"x": np.ones((1024, 1024), np.float32)})


def test_packed_weights() -> None:
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    inputs, outputs = [info("x", F32, ["n", 2048])], [info("y", F32, None)]
    weights = np.ones((2048, 2048), np.float32)

    def run(limit_mib: int) -> np.ndarray:
        session = made(nodes, inputs, outputs, limit_mib, CPU, w=weights)
        result: np.ndarray = session.run(None, {"x": np.ones((64, 2048), np.float32)})[0]
        return result

    with pytest.raises(ort.OutOfMemory, match=says(8)):
        run(8)
    assert (run(64) == 2048).all()


def test_folded_constants() -> None:
    """What is computed with the session: the error is the run's, or the making's, and never another one."""
    nodes = [node("Concat", ["c"] * 8, ["w"], axis=0), node("Mul", ["w", "x"], ["y"])]

    def run() -> None:
        session = made(nodes, [info("x", F32, [1])], [info("y", F32, None)], 8, REFERENCE, c=np.ones(MIB // 2, np.float32))
        session.run(None, {"x": np.ones(1, np.float32)})

    with pytest.raises(ort.OutOfMemory, match=says(8)):
        run()


def test_without_a_limit_nothing_is_counted() -> None:
    session = expanded(0, CPU)
    assert account(session) is None
    assert not session._engine.watched


def test_runs_of_several_threads_share_the_limit() -> None:
    session, x = expanded(40, REFERENCE), np.ones(1, np.float32)
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(session.run(None, {"x": x, "s": np.array([2 * MIB])})[0])
        except ort.OutOfMemory as error:
            found.append(error)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert sum(isinstance(y, np.ndarray) for y in found) <= 4  # of 8 MiB each, which are held
    assert account(session).held <= 40 * MIB
    found.clear()
    gc.collect()
    run()
    assert isinstance(found[0], np.ndarray)
