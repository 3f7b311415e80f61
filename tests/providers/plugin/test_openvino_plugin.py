"""OpenVINO's plugin library in a session: whole subgraphs beside our CPU and a Python provider."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import onnx.helper as oh
import pytest
from onnx import TensorProto, numpy_helper
from tests.providers.plugin.vendor_plugins import AMD, INTEL, library_path, openvino, openvino_provider

import intarsia as ort
from intarsia.providers.plugin.interface.handles import held_count

CPU = "CPUExecutionProvider"
BATCH = 3
ROOT = Path(__file__).parents[3]


def digits_model() -> bytes:
    """A CNN as for digits, of any batch size."""
    rng = np.random.default_rng(0)
    sizes = {"w1": (8, 1, 3, 3), "b1": (8,), "w2": (16, 8, 3, 3), "b2": (16,), "w3": (16, 10), "b3": (10,)}
    weights = [numpy_helper.from_array(rng.normal(size=s).astype(np.float32), n) for n, s in sizes.items()]
    nodes = [
        oh.make_node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1] * 4),
        oh.make_node("Relu", ["c1"], ["r1"], "relu1"),
        oh.make_node("MaxPool", ["r1"], ["p1"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        oh.make_node("Conv", ["p1", "w2", "b2"], ["c2"], "conv2", pads=[1] * 4),
        oh.make_node("Relu", ["c2"], ["r2"], "relu2"),
        oh.make_node("GlobalAveragePool", ["r2"], ["g"], "mean"),
        oh.make_node("Flatten", ["g"], ["f"], "flatten"),
        oh.make_node("Gemm", ["f", "w3", "b3"], ["y"], "gemm"),
    ]
    inputs = [oh.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1, 28, 28])]
    outputs = [oh.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])]
    graph = oh.make_graph(nodes, "digits", inputs, outputs, weights)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8).SerializeToString()


def pictures(count: int = BATCH) -> np.ndarray:
    return np.random.default_rng(count).normal(size=(count, 1, 28, 28)).astype(np.float32)


@pytest.fixture(scope="module")
def digits() -> bytes:
    return digits_model()


@pytest.fixture(scope="module")
def session(digits: bytes) -> ort.InferenceSession:
    return ort.InferenceSession(digits, providers=[openvino_provider(), CPU])


def expected(digits: bytes, x: np.ndarray) -> np.ndarray:
    return np.asarray(ort.InferenceSession(digits, providers=["ReferenceExecutionProvider"]).run(None, {"x": x})[0])


def test_what_it_says_of_itself() -> None:
    factory = openvino().providers[0].factory
    assert (factory.name, factory.vendor, factory.vendor_id) == ("OpenVINOExecutionProvider", "Intel", INTEL)
    assert factory.interface_version >= 29


def test_it_takes_no_amd_cpu_by_itself() -> None:
    """The hardware is told as it is; that another vendor's CPU is Intel's has to be said by the user."""
    provider = openvino().providers[0]
    assert f"CPU {AMD:#06x}:0x0000" in provider.unavailable()
    with pytest.raises(ort.EPFail, match=r"takes none of the devices .* \"intarsia.vendor_id\""):
        provider()


def test_whole_model(session: ort.InferenceSession, digits: bytes) -> None:
    assert set(session.explain().counts) == {"OpenVINOExecutionProvider"}
    for count in (BATCH, 1, 5, BATCH, 1):
        x = pictures(count)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(digits, x), rtol=1e-4, atol=1e-4)


def test_results_are_the_callers(session: ort.InferenceSession) -> None:
    first = session.run(None, {"x": pictures()})[0]
    kept = first.copy()
    session.run(None, {"x": -pictures()})
    assert np.array_equal(first, kept)
    first[:] = 0  # nobody else's memory
    assert np.array_equal(session.run(None, {"x": pictures()})[0], kept)


def test_cut_with_the_cpu(digits: bytes) -> None:
    """Nodes placed on the CPU by name lie between two parts of the plugin."""
    options = ort.SessionOptions()
    options.add_session_config_entry("partition.place", "pool=CPUExecutionProvider")
    options.add_session_config_entry("partition.keep_islands", "1")
    cut = ort.InferenceSession(digits, options, providers=[openvino_provider(), CPU])
    providers = {row.name: row.provider for row in cut.explain().nodes}
    assert providers["pool"] == CPU
    assert {providers["conv1"], providers["conv2"]} == {"OpenVINOExecutionProvider"}
    np.testing.assert_allclose(cut.run(None, {"x": pictures()})[0], expected(digits, pictures()), rtol=1e-4, atol=1e-4)


class NumpyRelu(ort.ExecutionProvider):
    """A Python provider of one operator."""

    name = "NumpyReluExecutionProvider"

    def get_kernel_registry(self) -> ort.KernelRegistry:
        registry = ort.KernelRegistry()
        registry.register("Relu", lambda node, operands: [np.maximum(operands[0], 0)])
        return registry


def test_cut_among_three(digits: bytes) -> None:
    """The plugin, our CPU and a Python provider in one session, by name."""
    options = ort.SessionOptions()
    options.add_session_config_entry("partition.place", f"relu*={NumpyRelu.name}; pool={CPU}")
    options.add_session_config_entry("partition.keep_islands", "1")
    cut = ort.InferenceSession(digits, options, providers=[openvino_provider(), NumpyRelu, CPU])
    providers = {row.name: row.provider for row in cut.explain().nodes}
    assert (providers["relu1"], providers["pool"], providers["relu2"]) == (NumpyRelu.name, CPU, NumpyRelu.name)
    assert {providers[name] for name in ("conv1", "conv2", "mean", "gemm")} == {"OpenVINOExecutionProvider"}
    np.testing.assert_allclose(cut.run(None, {"x": pictures()})[0], expected(digits, pictures()), rtol=1e-4, atol=1e-4)


def test_threads(session: ort.InferenceSession, digits: bytes) -> None:
    """Runs of several threads and sizes at once do not mix."""
    wrong: list[str] = []
    wanted = {count: expected(digits, pictures(count)) for count in (1, 2, 4)}

    def work(count: int) -> None:
        for _ in range(10):
            found = session.run(None, {"x": pictures(count)})[0]
            if not np.allclose(found, wanted[count], rtol=1e-4, atol=1e-4):
                wrong.append(f"{count}: {np.abs(found - wanted[count]).max()}")

    threads = [threading.Thread(target=work, args=(count,)) for count in (1, 2, 4, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_options_that_do_not_exist() -> None:
    provider = openvino().providers[0]
    with pytest.raises(ort.UnknownOption, match=r"has no option 'intarsia.vendor'.*intarsia.vendor_id"):
        ort.InferenceSession(b"", providers=[(provider, {"intarsia.vendor": "0x8086"})])
    with pytest.raises(ort.InvalidArgument, match="expected whole numbers, got 'Intel'"):
        ort.InferenceSession(b"", providers=[(provider, {"intarsia.vendor_id": "Intel"})])


def test_dynamic_options_are_the_plugins(session: ort.InferenceSession, digits: bytes) -> None:
    """Keys that Intarsia does not know go to a plugin, which takes them or not; without one they are errors."""
    session.set_ep_dynamic_options({"kvcache_rewind": "0"})
    session.set_ep_dynamic_options({"ep.dynamic.workload_type": "Default"})
    with pytest.raises(ort.UnknownOption, match="no dynamic option 'kvcache_rewind'"):
        ort.InferenceSession(digits).set_ep_dynamic_options({"kvcache_rewind": "0"})


def test_profiles_have_the_parts(digits: bytes, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    made = ort.InferenceSession(digits, options, providers=[openvino_provider(), CPU])
    made.run(None, {"x": pictures()})
    events = json.loads(Path(made.end_profiling()).read_text(encoding="utf-8"))
    assert any(event["args"].get("op_name", "").startswith("OpenVINOExecutionProvider_") for event in events)


def test_nothing_is_left_behind(digits: bytes) -> None:
    """Handles that plugins hold do not grow with sessions and runs."""

    def use() -> None:
        made = ort.InferenceSession(digits, providers=[openvino_provider(), CPU])
        made.run(None, {"x": pictures()})

    use()
    gc.collect()
    before = held_count()
    for _ in range(3):
        use()
    gc.collect()
    assert held_count() <= before


def test_two_hosts_in_one_process() -> None:
    """The library would mix up what the two have given it."""
    path = library_path("onnxruntime_ep_openvino")
    pytest.importorskip("onnxruntime", reason="needs onnxruntime (extra: test)")
    code = (
        f"import onnxruntime; onnxruntime.register_execution_provider_library('OpenVINO.virtual', {str(path)!r})\n"
        "assert any(d.ep_name.startswith('OpenVINO') for d in onnxruntime.get_ep_devices())\n"
        "import intarsia; from tests.providers.plugin import vendor_plugins\n"
        "try: vendor_plugins.openvino()\n"
        "except intarsia.EPFail as error: print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert "onnxruntime has registered" in ended.stdout


@pytest.mark.parametrize("kept", ["made = ", ""])
def test_a_process_ends_well(kept: str) -> None:
    """Destructors of plugins run after the interpreter, with a session that is there until the end, and without."""
    library_path("onnxruntime_ep_openvino")
    use = (
        "import numpy; import intarsia; from tests.providers.plugin import test_openvino_plugin as t; "
        f"{kept}intarsia.InferenceSession(t.digits_model(), providers=[t.openvino_provider(), t.CPU])"
        ".run(None, {'x': t.pictures()})"
    )
    ended = subprocess.run([sys.executable, "-c", use], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_operators_it_refuses_have_a_reason() -> None:
    """A node that it does not take goes to the CPU, and `explain` has the plugin's words or says that there were none."""
    nodes = [oh.make_node("Relu", ["x"], ["r"], "relu"), oh.make_node("StringConcat", ["s", "s"], ["t"], "join")]
    values = [oh.make_tensor_value_info("x", TensorProto.FLOAT, [2]), oh.make_tensor_value_info("s", TensorProto.STRING, [1])]
    outputs = [oh.make_tensor_value_info("r", TensorProto.FLOAT, [2]), oh.make_tensor_value_info("t", TensorProto.STRING, [1])]
    model = oh.make_model(oh.make_graph(nodes, "mixed", values, outputs), opset_imports=[oh.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model)
    asked = openvino_provider(**{"intarsia.deviations": "allow"})
    mixed = ort.InferenceSession(model.SerializeToString(), providers=[asked, CPU])
    row = next(row for row in mixed.explain().nodes if row.name == "join")
    assert row.provider == CPU
    assert "OpenVINOExecutionProvider did not take it" in row.refusals["OpenVINOExecutionProvider"].reason
    found = mixed.run(None, {"x": np.float32([-1, 1]), "s": np.array(["a"], object)})
    assert found[1].tolist() == ["aa"]


def test_the_listing_of_the_document() -> None:
    """docs/plugins.md, run as it stands."""
    library_path("onnxruntime_ep_openvino")
    listing = (ROOT / "docs/plugins.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    done = subprocess.run([sys.executable, "-c", listing], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "OpenVINO" in done.stdout, done.stderr
