"""What goes wrong on devices is said by an error of its own: values too large, options, forked processes, stopped loops."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import pytest
from device_kinds import Kind
from onnx import helper

import intarsia


def session(gpu: Kind, nodes: list[onnx.NodeProto], **inputs: tuple[int, list[Any]]) -> intarsia.InferenceSession:
    return gpu.session_of(nodes, inputs)


def expanded(gpu: Kind, op: str) -> intarsia.InferenceSession:
    nodes = [helper.make_node("Expand", ["x", "s"], ["a"]), helper.make_node(op, ["a"], ["y"], name="behind")]
    return session(gpu, nodes, x=(1, [1]), s=(7, ["r"]))


def test_a_value_of_more_elements_than_kernels_count(gpu: Kind) -> None:
    made, x = expanded(gpu, "Sqrt"), np.full(1, 4, np.float32)
    message = r"\(Expand\) has a value float\[65536, 65536\]; kernels count at most 2,147,483,647 elements: use a smaller batch"
    with pytest.raises(intarsia.OutOfMemory, match=message):
        made.run(None, {"x": x, "s": np.array([65536, 65536])})
    np.testing.assert_array_equal(made.run(None, {"x": x, "s": np.array([2, 3])})[0], np.full((2, 3), 2))


def test_a_value_larger_than_a_buffer(gpu: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    device, x = gpu.open(), np.full(1, 4, np.float32)
    made = expanded(gpu, "Sqrt")
    compiled = device.counters.compiled
    monkeypatch.setattr(device, "limits", device.limits.__class__(1 << 20, 1 << 20))
    with pytest.raises(intarsia.OutOfMemory, match=r"float\[1000, 1000\] has 4,000,000 bytes; a buffer of this"):
        made.run(None, {"x": x, "s": np.array([1000, 1000])})
    assert device.counters.compiled == compiled  # it is refused before any kernel is compiled


def test_more_bindings_than_the_device_has(gpu: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    made, device = expanded(gpu, "Sqrt"), gpu.open()
    limits = device.dialect.limits
    monkeypatch.setattr(device.dialect, "limits", limits.__class__(**{**vars(limits), "buffers": 0}))
    with pytest.raises(intarsia.OutOfMemory, match=r"take \d+ bindings of [\d,]+ bytes; this device has 0: use"):
        made.run(None, {"x": np.ones(1, np.float32), "s": np.array([17, 19])})


@pytest.mark.parametrize("given", [-5, "lots", 0.5, True])
def test_limits_that_cannot_be(gpu: Kind, given: object) -> None:
    message = rf"'gpu_mem_limit' of {gpu.provider}: expected a number of bytes, an integer from 0 on, got {given!r}"
    with pytest.raises(intarsia.InvalidArgument, match=message):
        gpu.session(gpu_mem_limit=given)


def test_a_backend_that_is_none() -> None:
    given = [("WebGpuExecutionProvider", {"backend": "Vulcan"})]
    with pytest.raises(intarsia.InvalidArgument, match="'Vulcan' is not a valid value; did you mean 'Vulkan'"):
        intarsia.InferenceSession(onnx.ModelProto(), providers=given)


def test_launches_of_a_loop_do_not_pile_up(gpu: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a stopped run ends soon, whatever the number of iterations."""
    body = helper.make_graph(
        [helper.make_node("Sin", ["a"], ["b"]), helper.make_node("Identity", ["c"], ["d"])], "body",
        [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("c", 9, []),
         helper.make_tensor_value_info("a", 1, [4])],
        [helper.make_tensor_value_info("d", 9, []), helper.make_tensor_value_info("b", 1, [4])],
    )  # fmt: skip
    made = session(gpu, [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)], n=(7, []), x=(1, [4]))
    device, flying, most = gpu.open(), 0, 0
    run, finish = device.run, device.finish

    def counted(bound: Any) -> None:
        nonlocal flying, most
        flying += len(bound)
        most = max(most, flying)
        run(bound)

    def waited() -> None:
        nonlocal flying
        finish()
        flying = 0

    monkeypatch.setattr(device, "run", counted)
    monkeypatch.setattr(device, "finish", waited)
    x = np.linspace(0, 1, 4, dtype=np.float32)
    (y,) = made.run(None, {"n": np.array(3000), "x": x})
    wanted = x.astype(np.float64)
    for _ in range(3000):
        wanted = np.sin(wanted)
    np.testing.assert_allclose(y, wanted, rtol=1e-3)
    assert 128 <= most <= 1100


FORKED = """
import os, sys
import numpy as np
import intarsia
from onnx import helper
kinds = [[helper.make_tensor_value_info(name, 1, [4])] for name in "xy"]
graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", *kinds)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
x = {"x": np.ones(4, np.float32)}
make = lambda: intarsia.InferenceSession(model.SerializeToString(), providers=[sys.argv[1]])
session = make()
value = session.run(None, x)
child = os.fork()
if not child:
    for attempt in (lambda: session.run(None, x), make):
        try:
            attempt()
        except intarsia.EPFail as error:
            print(type(error).__name__, str(error).splitlines()[-1], flush=True)
    os._exit(0)
os.waitpid(child, 0)
assert (session.run(None, x)[0] == 1).all()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork processes")
def test_a_forked_process_is_told(gpu: Kind) -> None:
    """Drivers do not survive a fork: a child would wait for ever."""
    made = subprocess.run([sys.executable, "-c", FORKED, gpu.provider], capture_output=True, text=True, timeout=600, check=True)
    lines = made.stdout.splitlines()
    assert len(lines) == 2, made.stdout + made.stderr
    assert all("was forked from" in line and "open no device before the fork" in line for line in lines)
