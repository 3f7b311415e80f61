"""Plans of devices in the cache on disk: found by a later session, and by none that differs in what kernels depend on."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intarsia
from intarsia.device import opencl, webgpu
from intarsia.providers.gpu import binder

PROVIDERS = {"WebGpuExecutionProvider": webgpu, "OpenCLExecutionProvider": opencl}
X = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((8, 6)).astype(np.float32)
LARGE = np.random.default_rng(2).standard_normal((6, 4096)).astype(np.float32)


@pytest.fixture(params=sorted(PROVIDERS))
def provider(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if why := PROVIDERS[request.param].missing():
        pytest.skip(f"no device: {why}")
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    return str(request.param)


def session(provider: str, w: np.ndarray = W, large: np.ndarray = LARGE, alpha: float = 0.1, nodes: Any = None) -> Any:
    from onnx import helper, numpy_helper

    nodes = nodes or [
        helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("LeakyRelu", ["a"], ["b"], alpha=alpha),
        helper.make_node("Add", ["b", "one"], ["c"]), helper.make_node("MatMul", ["c", "large"], ["y"]),
    ]  # fmt: skip
    constants = {"w": w, "large": large, "one": np.float32(1.5)}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, ["n", 8])], [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = intarsia.SessionOptions()
    options.add_session_config_entry("partition.keep_islands", "1")
    return intarsia.InferenceSession(model.SerializeToString(), options, [provider, "CPUExecutionProvider"])


def wanted(x: np.ndarray, w: np.ndarray = W, large: np.ndarray = LARGE, alpha: float = 0.1) -> np.ndarray:
    a = x.astype(np.float64) @ w
    return np.asarray((np.where(a < 0, alpha * a, a) + 1.5) @ large)


def check(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_later_session_plans_nothing(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(session(provider).run(None, {"x": X})[0], wanted(X))

    def never(*given: object) -> None:
        raise AssertionError("a plan was made anew")

    with monkeypatch.context() as patch:
        patch.setattr(binder, "infer", never)
        check(session(provider).run(None, {"x": X})[0], wanted(X))
        other = LARGE[:, ::-1].copy()  # a weight, whose elements are in no kernel
        check(session(provider, large=other).run(None, {"x": X})[0], wanted(X, large=other))
        with pytest.raises(Exception, match="a plan was made anew"):
            session(provider).run(None, {"x": X[:3]})
    check(session(provider).run(None, {"x": X[:3]})[0], wanted(X[:3]))


def test_what_kernels_depend_on_makes_another_plan(provider: str) -> None:
    check(session(provider).run(None, {"x": X})[0], wanted(X))
    check(session(provider, alpha=0.7).run(None, {"x": X})[0], wanted(X, alpha=0.7))
    check(session(provider, w=-W).run(None, {"x": X})[0], wanted(X, -W))


def test_the_reason_is_in_the_log(provider: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "intarsia")
    session(provider).run(None, {"x": X})
    assert "launches are planned anew: no plan is cached for these nodes, sizes, numbers and this version" in caplog.text


def with_bodies(amount: float) -> list[Any]:
    """A choice, and a loop whose body has a weight of its own that is too large to be looked at by kernels."""
    from onnx import helper, numpy_helper

    yes = helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "yes", [], [helper.make_tensor_value_info("t", 1, None)])
    no = helper.make_graph([helper.make_node("Abs", ["x"], ["e"])], "no", [], [helper.make_tensor_value_info("e", 1, None)])
    own = numpy_helper.from_array(np.full((4096, 8), amount, np.float32), "own")
    step = [helper.make_node("MatMul", ["state", "large_"], ["wide"]), helper.make_node("MatMul", ["wide", "own"], ["next"]),
            helper.make_node("Identity", ["going"], ["on"])]  # fmt: skip
    body = helper.make_graph(
        step, "body", [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("going", 9, []),
                       helper.make_tensor_value_info("state", 1, None)],
        [helper.make_tensor_value_info("on", 9, []), helper.make_tensor_value_info("next", 1, None)], [own],
    )  # fmt: skip
    return [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0), helper.make_node("Less", ["s", "one"], ["c"]),
        helper.make_node("If", ["c"], ["signed"], then_branch=yes, else_branch=no),
        helper.make_node("MatMul", ["w", "large"], ["large_"]), helper.make_node("Constant", [], ["trips"], value_int=2),
        helper.make_node("Loop", ["trips", "", "signed"], ["y"], body=body),
    ]  # fmt: skip


def test_control_flow_is_kept(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def result(amount: float, sign: float) -> tuple[np.ndarray, np.ndarray]:
        made = session(provider, nodes=with_bodies(amount))
        (found,) = made.run(None, {"x": sign * X})
        state = np.where((sign * X).sum() < 1.5, -sign * X, np.abs(X)).astype(np.float64)
        for _ in range(2):
            state = state @ (W.astype(np.float64) @ LARGE) @ np.full((4096, 8), amount)
        return found, state

    def close(pair: tuple[np.ndarray, np.ndarray]) -> None:
        np.testing.assert_allclose(pair[0], pair[1], rtol=1e-3, atol=1e-3 * np.abs(pair[1]).max())

    close(result(0.001, 1.0))
    with monkeypatch.context() as patch:
        patch.setattr(binder, "infer", lambda *_: pytest.fail("a plan was made anew"))
        close(result(0.001, 1.0))
        close(result(0.001, -1.0))
    close(result(-0.002, 1.0))
