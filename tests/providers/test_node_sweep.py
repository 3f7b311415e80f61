"""Single nodes of every operator on every provider that works here, beside the reference provider (`testing.node_sweep`).

How many: NODES, or `--sweep-nodes` for all providers ("all": days). A node that fails can be tried alone by
`python -m intarsia.testing.provider PROVIDER --area sweep --nodes OPERATOR`.
"""

from __future__ import annotations

import importlib.util

import pytest

from intarsia.device import opencl, webgpu
from intarsia.testing.node_sweep import sweep
from intarsia.testing.provider import nodes_of

NODES = {
    "ReferenceExecutionProvider": 1500,
    "CPUExecutionProvider": 1500,
    "OpenVINOExecutionProvider": 1500,
    "WebGpuExecutionProvider": 600,
    "OpenCLExecutionProvider": 32,  # its driver on a processor takes seconds for each kernel
}
MISSING = {
    "OpenVINOExecutionProvider": "" if importlib.util.find_spec("openvino") else "needs openvino (extra: openvino)",
    "WebGpuExecutionProvider": webgpu.missing(),
    "OpenCLExecutionProvider": opencl.missing(),
}


def parameters() -> list[object]:
    return [
        pytest.param(name, marks=pytest.mark.skipif(bool(MISSING.get(name)), reason=MISSING.get(name, "")), id=name)
        for name in NODES
    ]


@pytest.mark.parametrize("provider", parameters())
def test_refused_or_right(provider: str, request: pytest.FixtureRequest) -> None:
    found = sweep(provider, nodes_of(request.config.getoption("--sweep-nodes") or str(NODES[provider])))
    assert found.taken
    assert not found.wrong, str(found)


def test_of_the_example_plugin(example_plugin: str) -> None:
    found = sweep(example_plugin, nodes_of("Clip"))
    assert found.taken
    assert not found.wrong, str(found)
