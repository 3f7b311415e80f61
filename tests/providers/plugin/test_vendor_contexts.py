"""Compiled models, profiles and refusals of vendors' plugins: OpenVINO's on this CPU, QNN's on the simulator of its package."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest
from onnx import TensorProto, numpy_helper
from tests.providers.plugin.test_openvino_plugin import digits_model, expected, pictures
from tests.providers.plugin.vendor_plugins import EXACT, OPENVINO_OPTIONS, library_path, openvino, openvino_provider

import intarsia as ort
from intarsia.errors import ModelRequiresCompilation
from intarsia.providers.options import parse_options
from intarsia.session.model_compiler import get_compatibility_info_from_model

CPU, OPENVINO, QNN = "CPUExecutionProvider", "OpenVINOExecutionProvider", "QNNExecutionProvider"


def contexts(path: Path) -> list[dict[str, Any]]:
    """The attributes of a model's EPContext nodes, in order."""
    nodes = [node for node in onnx.load(path).graph.node if node.op_type == "EPContext"]
    return [{a.name: oh.get_attribute_value(a) for a in node.attribute} for node in nodes]


def options(provider: str, given: dict[str, str], place: str = "") -> ort.SessionOptions:
    made = ort.SessionOptions()
    made.add_provider(provider, given)
    if place:
        made.add_session_config_entry("partition.place", place)
        made.add_session_config_entry("partition.keep_islands", "1")
    return made


class TestOpenVINO:
    @pytest.fixture(autouse=True)
    def _registered(self) -> Iterator[None]:
        ort.register_execution_provider_library("OpenVINO", library_path("onnxruntime_ep_openvino"))
        yield
        ort.unregister_execution_provider_library("OpenVINO")

    @pytest.mark.parametrize("embed", [False, True])
    def test_a_model_cut_by_the_cpu(self, tmp_path: Path, embed: bool) -> None:
        """The plugin's two parts are compiled together, into one file."""
        source, target, x = tmp_path / "digits.onnx", tmp_path / "digits_ctx.onnx", pictures()
        source.write_bytes(digits_model())
        compiler = ort.ModelCompiler(
            options(OPENVINO, OPENVINO_OPTIONS, f"pool={CPU}"), source, embed_compiled_data_into_model=embed
        )
        compiler.compile_to_file()
        assert [node["source"].decode() for node in contexts(target)] == [OPENVINO, CPU, OPENVINO]
        files = {path.name for path in tmp_path.glob("*.bin")}
        assert files == (set() if embed else {"digits_ctx_OpenVINOExecutionProvider.bin", "digits_ctx_part1.bin"})
        session = ort.InferenceSession(target, options(OPENVINO, OPENVINO_OPTIONS))
        assert session.explain().counts == {OPENVINO: 2, CPU: 1}
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(digits_model(), x), rtol=1e-4, atol=1e-4)

    def test_models_of_other_versions_are_refused(self, tmp_path: Path) -> None:
        source = tmp_path / "digits.onnx"
        source.write_bytes(digits_model())
        ort.ModelCompiler(options(OPENVINO, OPENVINO_OPTIONS), source, embed_compiled_data_into_model=True).compile_to_file()
        target = tmp_path / "digits_ctx.onnx"
        info = get_compatibility_info_from_model(target, OPENVINO)
        assert info is not None
        provider = openvino().providers[0]
        given = parse_options(provider, OPENVINO_OPTIONS)
        optimal, unsupported = 1, 3
        assert provider.model_compatibility(given, info) == optimal
        proto = onnx.load(target)
        year = json.loads(info)["ov_compat_string"].split("ov=")[1].split(".")[0]
        proto.metadata_props[0].value = info.replace(f"ov={year}", "ov=1999")
        assert provider.model_compatibility(given, proto.metadata_props[0].value) == unsupported
        with pytest.raises(ModelRequiresCompilation, match="does not take on this machine; compile the original model again"):
            ort.InferenceSession(proto.SerializeToString(), options(OPENVINO, OPENVINO_OPTIONS))

    def test_it_keeps_weights_on_a_cpu(self) -> None:
        wanted = options(OPENVINO, OPENVINO_OPTIONS)
        wanted.add_session_config_entry("ep.enable_weightless", "1")
        wanted.add_session_config_entry("session.provider_fallback", "error")
        with pytest.raises(ort.EPFail, match=r"does not compile without weights in mode 1 .*supports: none"):
            ort.InferenceSession(digits_model(), wanted)

    def test_times_of_its_layers(self, tmp_path: Path) -> None:
        wanted = ort.SessionOptions()
        wanted.enable_profiling, wanted.profile_file_prefix = True, str(tmp_path / "profile")
        load = json.dumps({"CPU": {**json.loads(EXACT)["CPU"], "PERF_COUNT": "YES"}})
        session = ort.InferenceSession(digits_model(), wanted, providers=[openvino_provider(load_config=load), CPU])
        session.run(None, {"x": pictures()})
        written = json.loads(Path(session.end_profiling()).read_text())
        layers = [event for event in written if event["name"].startswith("OV::")]
        assert len(layers) > 3
        (part,) = [event for event in written if event["cat"] == "Part"]
        assert all(event["cat"] == "Kernel" and event["args"]["provider"] == OPENVINO for event in layers)
        begin, end = part["ts"] - 1000, part["ts"] + part["dur"] + 1000
        assert all(begin <= event["ts"] <= end for event in layers)


class TestQNN:
    """Qualcomm's plugin compiles ahead for its processors on any x86-64 machine, and runs the result on a simulator."""

    @pytest.fixture(autouse=True)
    def _registered(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.chdir(tmp_path)  # its library writes notes into the current folder
        ort.register_execution_provider_library(QNN, library_path("onnxruntime_qnn"))
        yield
        ort.unregister_execution_provider_library(QNN)

    @pytest.mark.parametrize(("embed", "place"), [(False, ""), (True, f"relu={CPU}")])
    def test_contexts(self, tmp_path: Path, embed: bool, place: str) -> None:
        rng = np.random.default_rng(0)
        sizes = {"w1": (16, 32), "w2": (32, 8)}
        weights = [numpy_helper.from_array(rng.normal(size=s).astype(np.float32), n) for n, s in sizes.items()]
        nodes = [
            oh.make_node("MatMul", ["x", "w1"], ["a"], "first"), oh.make_node("Relu", ["a"], ["b"], "relu"),
            oh.make_node("MatMul", ["b", "w2"], ["y"], "second"),
        ]  # fmt: skip
        inputs = [oh.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])]
        outputs = [oh.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])]
        graph = oh.make_graph(nodes, "dense", inputs, outputs, weights)
        source, target = tmp_path / "dense.onnx", tmp_path / "dense_ctx.onnx"
        onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8), source)
        given = {"backend_type": "htp"}
        compiler = ort.ModelCompiler(options(QNN, given, place), source, embed_compiled_data_into_model=embed)
        compiler.compile_to_file()
        own = [node for node in contexts(target) if node["source"].decode() == QNN]
        assert len(own) == (2 if place else 1)
        assert [node.get("main_context", 1) for node in own] == [1, 0][: len(own)]  # two parts share one binary
        assert (tmp_path / "dense_ctx_qnn.bin").exists() != embed
        session = ort.InferenceSession(target, options(QNN, given))
        x = rng.normal(size=(4, 16)).astype(np.float32)
        found = session.run(None, {"x": x})[0]
        w1, w2 = (numpy_helper.to_array(weight).astype(np.float64) for weight in weights)
        np.testing.assert_allclose(found, np.maximum(x @ w1, 0) @ w2, rtol=0.02, atol=0.05)  # computed in float16
        if not place:
            np.save(tmp_path / "x.npy", x)
            assert np.array_equal(in_onnxruntime(target), found)


def in_onnxruntime(model: Path) -> np.ndarray:
    """What onnxruntime makes of the model, by QNN's plugin in a process of its own, from x.npy beside it."""
    if importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("needs onnxruntime")
    program = f"""
import numpy, onnxruntime
onnxruntime.set_default_logger_severity(4)
onnxruntime.register_execution_provider_library({QNN!r}, {str(library_path("onnxruntime_qnn"))!r})
options = onnxruntime.SessionOptions()
devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == {QNN!r}]
options.add_provider_for_devices(devices[:1], {{"backend_type": "htp"}})
session = onnxruntime.InferenceSession({str(model)!r}, options)
numpy.save("y.npy", session.run(None, {{"x": numpy.load("x.npy")}})[0])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=model.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return np.asarray(np.load(model.with_name("y.npy")))
