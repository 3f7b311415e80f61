"""Random tensors: one definition in the kernels of every device, compiled for GPUs too that are not there."""

from __future__ import annotations

import numpy as np
import pytest
from offline_kernels import COMPILERS, PROVIDERS, compile_all, imitated, skip_where_missing

import intarsia
from intarsia.device.opencl import missing
from intarsia.ops.tensor import philox


def session(provider: str, kind: int) -> intarsia.InferenceSession:
    from onnx import helper

    nodes = [
        helper.make_node("RandomUniform", [], ["units"], shape=[3, 130], dtype=kind),
        helper.make_node("Bernoulli", ["units"], ["chances"], seed=2.0),
        helper.make_node("RandomUniform", [], ["uniform"], shape=[70], dtype=kind, low=-2.0, high=5.0, seed=1.0),
        helper.make_node("RandomNormalLike", ["units"], ["normal"], mean=1.0, scale=2.0, seed=3.0),
        helper.make_node("Multinomial", ["units"], ["classes"], sample_size=20, seed=4.0),
        helper.make_node("Dropout", ["units", "ratio", "training"], ["left", "mask"]),
    ]
    names = ("units", "chances", "classes", "mask", "uniform", "normal", "left")
    graph = helper.make_graph(
        nodes, "g", [], [helper.make_empty_tensor_value_info(n) for n in names],
        [helper.make_tensor("ratio", 1, [], [0.25]), helper.make_tensor("training", 9, [], [True])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    options = intarsia.SessionOptions()
    if provider != "CPUExecutionProvider":
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return intarsia.InferenceSession(model.SerializeToString(), options, [provider], enable_fallback=False)


@pytest.mark.skipif(bool(missing()), reason=f"no OpenCL device: {missing()}")
@pytest.mark.parametrize("kind", [1, 11])
def test_opencl_draws_what_the_cpu_draws(kind: int) -> None:
    drawn = []
    for provider in ("CPUExecutionProvider", "OpenCLExecutionProvider"):
        philox.set_seed(7)
        drawn.append(session(provider, kind).run(None, {}))
    for wanted, found in zip(*(d[:4] for d in drawn), strict=True):
        np.testing.assert_array_equal(found, wanted)
    for wanted, found in zip(*(d[4:] for d in drawn), strict=True):  # products and sums may be rounded once or twice
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", sorted(COMPILERS))
def test_kernels_compile(device: str) -> None:
    skip_where_missing(device)
    with imitated(device) as texts:
        for kind in (1, 11):
            session(PROVIDERS[device], kind).run(None, {})
    compile_all(device, texts, COMPILERS[device][2][-1:])
