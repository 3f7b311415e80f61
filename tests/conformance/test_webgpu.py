"""ONNX's node cases with every node on WebGPU: what is taken, and that it is right.

Kernels take a software driver a third of a second each to compile, so a run of the tests computes every eighth case; with
INTARSIA_WEBGPU_CASES=all all of them.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

import intarsia
from intarsia.codegen.clike import Wgsl
from intarsia.device.gpu import DeviceLimits
from intarsia.device.webgpu import missing
from intarsia.graph.load import load
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer
from intarsia.passes.optimizer import optimize
from intarsia.providers.gpu.node_support import Survey
from intarsia.testing.cases import cases, model_and_data, run_case, sample

NODES = [name for name, case in cases().items() if case.kind == "node"]
CHOSEN = set(NODES if os.environ.get("INTARSIA_WEBGPU_CASES") == "all" else sample(8))
TAKEN = 1820  # of the 1,884 node cases, at least (96.6 %)


def refusal(name: str) -> str:
    """The code of the first refusal among the nodes of a case as a session optimises them, "" where all are taken. Asks no
    device."""
    model = optimize(load(model_and_data(cases()[name])[0])).graph
    graph = infer(model, registry(), strict=False, on_error=lambda *_: None).graph
    survey = Survey(graph, Wgsl(), DeviceLimits(1 << 31, 1 << 27))
    refused = [answer for node in graph.nodes if not (answer := survey.answer(node))]
    assert all(answer.reason and answer.code for answer in refused)
    return refused[0].code if refused else ""


def test_most_cases_are_taken_whole() -> None:
    found = Counter(map(refusal, NODES))
    assert len(NODES) == 1884
    assert found[""] >= TAKEN, found
    assert set(found) <= {"", "host", "type", "data", "no-kernel"}, found


@pytest.mark.skipif(bool(missing()), reason=f"no WebGPU device: {missing()}")
@pytest.mark.parametrize("name", [name for name in NODES if name in CHOSEN])
def test_case(name: str) -> None:
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if refusal(name):
        with pytest.raises(intarsia.NotImplemented, match="WebGpuExecutionProvider: "):  # with the reason behind it
            run_case(cases()[name], ["WebGpuExecutionProvider"], options)
        return
    session, wrong = run_case(cases()[name], ["WebGpuExecutionProvider"], options)
    assert not wrong
    assert set(session.explain().counts) <= {"WebGpuExecutionProvider", "folded"}
