"""One session over a plugin, a Python provider and the CPU: what tells and compares goes across all three.

With the tests' own C plugin, with Intarsia's CPU provider as the plugin that onnxruntime is given (a library that Intarsia's
compiler made, whose functions are Python's), and with OpenVINO's where its package is installed.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.providers.plugin.compiled_plugin import CPU, NAME, FaultyPlugin
from tests.providers.plugin.vendor_plugins import openvino_provider

import intarsia as ort
from intarsia.debug import compare_providers, reduce_model
from intarsia.debug.reduce import providers_differ
from intarsia.providers.reference import ReferenceExecutionProvider

BATCH, WIDTH = 3, 8
PLACES = (
    "second=PythonExecutionProvider; sum*=PythonExecutionProvider; last=CPUExecutionProvider; product1=CPUExecutionProvider"
)


class PythonExecutionProvider(ReferenceExecutionProvider):
    """A provider in Python: NumPy, by the operators' definitions."""

    name = "PythonExecutionProvider"


def layers(count: int = 4) -> bytes:
    """`count` times Relu(x @ w + b) of float32 [batch, 8]; its Relus are named first, second, ..., last."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for i, name in enumerate(("first", "second", "third", "last")[:count]):
        weights.append(numpy_helper.from_array(rng.normal(size=(WIDTH, WIDTH)).astype(np.float32), f"w{i}"))
        weights.append(numpy_helper.from_array(rng.normal(size=WIDTH).astype(np.float32), f"b{i}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [f"m{i}"], f"product{i}"))
        nodes.append(helper.make_node("Add", [f"m{i}", f"b{i}"], [f"s{i}"], f"sum{i}"))
        nodes.append(helper.make_node("Relu", [f"s{i}"], [f"r{i}"], name))
        value = f"r{i}"
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH])]
    outputs = [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["batch", WIDTH])]
    graph = helper.make_graph(nodes, "layers", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


FEED = {"x": np.random.default_rng(1).normal(size=(BATCH, WIDTH)).astype(np.float32)}


def wanted(model: bytes) -> dict[str, np.ndarray]:
    """Every value of the model, in float64."""
    proto = onnx.load_from_string(model)
    values: dict[str, np.ndarray] = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in proto.graph.initializer}
    values["x"] = FEED["x"].astype(np.float64)
    for node in proto.graph.node:
        a = [values[n] for n in node.input]
        values[node.output[0]] = (
            a[0] @ a[1] if node.op_type == "MatMul" else a[0] + a[1] if node.op_type == "Add" else np.maximum(a[0], 0)
        )
    return values


@pytest.fixture(params=["c", "openvino", "intarsia"])
def plugin(request: pytest.FixtureRequest) -> Iterator[Any]:
    """How a session is given the plugin's provider."""
    if request.param == "openvino":
        yield openvino_provider()
        return
    if request.param == "intarsia":
        try:
            ort.register_execution_provider_library("intarsia", ort.plugin_library())
        except ort.Fail as error:
            if "onnxruntime has registered" in str(error):
                pytest.skip("a test before this one gave the library to onnxruntime in this process")
            raise
        yield "IntarsiaCPU"
        gc.collect()
        ort.unregister_execution_provider_library("intarsia")
        return
    faulty: FaultyPlugin = request.getfixturevalue("faulty")
    with faulty.registered():
        yield NAME
    gc.collect()


def mixed(plugin: Any, *entries: tuple[str, str], profiling: Path | None = None) -> ort.InferenceSession:
    """The plugin first, the Python provider and the CPU where nodes are placed on them."""
    options = ort.SessionOptions()
    for key, value in (("partition.place", PLACES), ("partition.keep_islands", "1"), *entries):
        options.add_session_config_entry(key, value)
    if profiling is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profiling)
    return ort.InferenceSession(layers(), options, providers=[plugin, CPU, PythonExecutionProvider])


def plugin_name(plugin: Any) -> str:
    return plugin if isinstance(plugin, str) else plugin[0].name


class TestAcrossProviders:
    def test_each_runs_what_was_placed(self, plugin: Any) -> None:
        session = mixed(plugin)
        session.disable_fallback()
        providers = {row.name: row.provider for row in session.explain().nodes}
        assert providers["second"] == PythonExecutionProvider.name
        assert providers["last"] == CPU
        assert providers["first"] == providers["third"] == plugin_name(plugin)
        values = wanted(layers())
        np.testing.assert_allclose(session.run(None, FEED)[0], values["r3"], rtol=1e-4, atol=1e-4)

    def test_taps(self, plugin: Any) -> None:
        found = mixed(plugin).run(None, FEED, taps=["*"])
        values = wanted(layers())
        assert {"r0", "r1", "r2"} <= set(found.taps)
        for name, value in found.taps.items():
            np.testing.assert_allclose(value, values[name], rtol=1e-4, atol=1e-4, err_msg=name)

    def test_memory_report(self, plugin: Any) -> None:
        report = mixed(plugin).memory_report({"x": [BATCH, WIDTH]})
        assert plugin_name(plugin) in str(report)
        assert PythonExecutionProvider.name in str(report)

    def test_profile(self, plugin: Any, tmp_path: Path) -> None:
        session = mixed(plugin, profiling=tmp_path / "profile")
        table = session.profile(FEED, runs=3)
        named = {row.name for row in table.by_provider()}
        assert {plugin_name(plugin), PythonExecutionProvider.name, CPU} <= named
        session.run(None, FEED)
        events = json.loads(Path(session.end_profiling()).read_text())
        seen = {event.get("args", {}).get("provider") for event in events}
        assert {plugin_name(plugin), CPU} <= seen

    def test_threads_and_sizes(self, plugin: Any) -> None:
        from concurrent.futures import ThreadPoolExecutor

        session = mixed(plugin)
        rows = wanted(layers())["r3"]

        def run(i: int) -> None:
            count = 1 + i % BATCH
            found = session.run(None, {"x": FEED["x"][:count]})[0]
            np.testing.assert_allclose(found, rows[:count], rtol=1e-4, atol=1e-4)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(run, range(24)))


class TestComparing:
    def test_where_they_agree(self, plugin: Any) -> None:
        found = compare_providers(layers(), [[plugin, CPU], ["ReferenceExecutionProvider"]], FEED, rtol=1e-3, atol=1e-4)
        assert found.equal, str(found)

    @pytest.mark.filterwarnings("ignore::intarsia.ProviderWarning")  # smaller models have no node for it
    def test_the_node_of_a_plugin_that_is_wrong(self, faulty: FaultyPlugin) -> None:
        """A plugin whose Relu gives 0.5 too much: the first such node is named, and is what a small model keeps."""
        with faulty.registered(), faulty.failing("wrong result"):
            both = [[NAME, CPU], ["ReferenceExecutionProvider"]]
            found = compare_providers(layers(), both, FEED, rtol=1e-3, atol=1e-4)
            assert (found.node, found.op) == ("first", "Relu"), str(found)
            small = reduce_model(layers(), FEED, providers_differ(both, rtol=1e-3, atol=1e-4))
            assert [node.op_type for node in onnx.load_from_string(small.model).graph.node] == ["Relu"]
