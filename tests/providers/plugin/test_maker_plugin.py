"""A C plugin that makes EPContext nodes, models and profiling events: what it is told, and what becomes of what it makes."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.providers.plugin.compiled_plugin import CPU, compiled

import intarsia as ort
from intarsia.errors import ExternalDataError, InvalidArgument, ModelRequiresCompilation
from intarsia.options.ep_devices import OrtHardwareDevice, get_hardware_device_ep_incompatibility_details
from intarsia.providers.registry import load_provider
from intarsia.session.model_compiler import get_compatibility_info_from_model, get_model_compatibility_for_ep_devices
from intarsia.values.ort_enums import OrtCompiledModelCompatibility as Compatibility
from intarsia.values.ort_enums import OrtHardwareDeviceType

NAME, VERSION = "MakerExecutionProvider", 30
SOURCE = Path(__file__).with_name("maker_plugin.c")
X = np.array([[1, -2], [-3, 4]], np.float32)


class Maker:
    """The library, and what it has noted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library: Any = ctypes.CDLL(str(path))
        self.library.read_notes.restype = self.library.compiled_model.restype = ctypes.c_char_p

    def notes(self) -> list[str]:
        """What it was told since this was called last."""
        found = self.library.read_notes().decode().splitlines()
        self.library.clear_notes()
        return list(found)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    folder = tmp_path_factory.mktemp("maker")
    return Maker(compiled(folder, version=VERSION, file="libonnxruntime_providers_maker.so", source=SOURCE))


@pytest.fixture
def maker(library: Maker) -> Iterator[Maker]:
    ort.register_execution_provider_library("maker", library.path)
    library.notes()
    yield library
    ort.unregister_execution_provider_library("maker")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Relu(Exp(Relu(x))), whose Exp is the CPU's."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Exp", ["a"], ["b"], name="exp"),
        helper.make_node("Relu", ["b"], ["y"], name="second"),
    ]
    inputs, outputs = ([helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 2])] for n in "xy")
    graph = helper.make_graph(nodes, "two", inputs, outputs)
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def options(**entries: str) -> ort.SessionOptions:
    made = ort.SessionOptions()
    made.add_provider(NAME, {})
    made.add_session_config_entry("session.provider_fallback", "error")
    for key, value in entries.items():
        made.add_session_config_entry(key.replace("__", "."), value)
    return made


def run(session: ort.InferenceSession) -> np.ndarray:
    return np.asarray(session.run(None, {"x": X})[0])


def made_nodes(path: Path) -> dict[str, dict[str, Any]]:
    """The EPContext nodes of a model, and their attributes."""
    nodes = [node for node in onnx.load(path).graph.node if node.op_type == "EPContext"]
    return {node.name: {a.name: helper.get_attribute_value(a) for a in node.attribute} for node in nodes}


EXPECTED = np.exp(np.maximum(X, 0))


class TestContexts:
    def test_a_session_writes_them(self, maker: Maker, model: Path, tmp_path: Path) -> None:
        target = tmp_path / "ctx.onnx"
        wanted = options(ep__context_enable="1", ep__context_file_path=str(target), ep__context_embed_mode="1")
        np.testing.assert_allclose(run(ort.InferenceSession(model, wanted)), EXPECTED, rtol=1e-6)
        notes = maker.notes()
        assert "provider contexts 1 embed 1 weightless 0" in notes
        assert [line for line in notes if line.startswith("compile")] == ["compile 2"]  # together: they may share data
        nodes = made_nodes(target)
        assert nodes["made_0"] == {
            "main_context": 1, "embed_mode": 1, "ep_cache_context": b"relu \xff\x01", "source": NAME.encode(), "half": 0.5,
            "floats": [0.25, 4], "list": [1, 2, 3], "words": [b"one", b"two"],
        }  # fmt: skip
        assert nodes["made_1"]["main_context"] == 0
        assert get_compatibility_info_from_model(target, NAME) == "maker 1"
        again = ort.InferenceSession(target, options())
        assert again.explain().counts == {NAME: 2, CPU: 1}
        np.testing.assert_allclose(run(again), EXPECTED, rtol=1e-6)
        assert [line for line in maker.notes() if line.startswith(("compile", "restored"))] == [
            "compile 2", "restored main 1 embed 1", "restored main 0 embed 1",
        ]  # fmt: skip

    def test_the_compiler_writes_them(self, maker: Maker, model: Path) -> None:
        compiler = ort.ModelCompiler(options(), model, embed_compiled_data_into_model=True)
        compiler.compile_to_file()
        assert set(made_nodes(model.with_name("model_ctx.onnx"))) >= {"made_0", "made_1"}
        for data in (compiler.compile_to_bytes(), model.with_name("model_ctx.onnx").read_bytes()):
            np.testing.assert_allclose(run(ort.InferenceSession(data, options())), EXPECTED, rtol=1e-6)

    def test_a_program_keeps_their_data(self, maker: Maker, model: Path) -> None:
        kept: dict[str, bytes] = {}
        compiler = ort.ModelCompiler(options(), model)
        compiler.set_ep_context_data_write_func(lambda name, data: kept.update({name: data.read()}))
        data = compiler.compile_to_bytes()
        assert kept["model_ctx_part0.bin"] == b"relu \xff\x01"
        reading = options()

        def read(name: str, buffer: Any) -> None:
            buffer.allocate(len(kept[name]))
            buffer.write(kept[name])

        reading.set_ep_context_data_read_func(read)
        maker.notes()
        np.testing.assert_allclose(run(ort.InferenceSession(data, reading)), EXPECTED, rtol=1e-6)
        assert "restored main 1 embed 1" in maker.notes()

    def test_a_file_of_theirs_lies_beside_the_model(self, maker: Maker, model: Path) -> None:
        ort.ModelCompiler(options(), model, embed_compiled_data_into_model=True).compile_to_file()
        path = model.with_name("model_ctx.onnx")
        proto = onnx.load(path)
        node = next(node for node in proto.graph.node if node.name == "made_0")
        del node.attribute[:]
        node.attribute.extend([
            helper.make_attribute("source", NAME), helper.make_attribute("embed_mode", 0),
            helper.make_attribute("ep_cache_context", "../part.bin"),
        ])  # fmt: skip
        onnx.save(proto, path)
        with pytest.raises(ExternalDataError, match=r"'../part.bin' leads out of the model's folder"):
            ort.InferenceSession(path, options())
        node.attribute[-1].s = b"part.bin"
        onnx.save(proto, path)
        with pytest.raises(ExternalDataError, match=r"its file 'part.bin' is missing"):
            ort.InferenceSession(path, options())
        with pytest.raises(ExternalDataError, match=r"given as bytes: set the session's entry 'ep.context_file_path'"):
            ort.InferenceSession(path.read_bytes(), options())
        path.with_name("part.bin").write_bytes(b"relu")
        maker.notes()
        np.testing.assert_allclose(run(ort.InferenceSession(path, options())), EXPECTED, rtol=1e-6)
        assert "restored main 1 embed 0" in maker.notes()  # main_context is left out, and has a default

    def test_what_the_plugin_refuses(self, maker: Maker, model: Path) -> None:
        ort.ModelCompiler(options(), model, embed_compiled_data_into_model=True).compile_to_file()
        path = model.with_name("model_ctx.onnx")
        proto = onnx.load(path)
        next(node for node in proto.graph.node if node.name == "made_1").attribute[2].s = b"other"
        expected = rf"{NAME}: Compile: these bytes are not the maker's; compile the original model again"
        with pytest.raises(ModelRequiresCompilation, match=expected):
            ort.InferenceSession(proto.SerializeToString(), options())

    def test_only_its_own_provider_takes_them(self, maker: Maker, model: Path) -> None:
        ort.ModelCompiler(options(), model, embed_compiled_data_into_model=True).compile_to_file()
        with pytest.raises(ort.NotImplemented, match=f"was compiled for '{NAME}', which is not among the session's providers"):
            ort.InferenceSession(model.with_name("model_ctx.onnx"), providers=[CPU])

    def test_compiling_is_refused_where_the_session_forbids_it(self, maker: Maker, model: Path) -> None:
        with pytest.raises(ModelRequiresCompilation, match=f"{NAME} has to compile 1 nodes"):
            ort.InferenceSession(model, options(session__disable_model_compile="1"))
        ort.ModelCompiler(options(), model, embed_compiled_data_into_model=True).compile_to_file()
        again = ort.InferenceSession(model.with_name("model_ctx.onnx"), options(session__disable_model_compile="1"))
        np.testing.assert_allclose(run(again), EXPECTED, rtol=1e-6)


class TestCompatibility:
    @pytest.mark.parametrize(
        ("info", "expected"),
        [
            ("maker 1", Compatibility.EP_SUPPORTED_OPTIMAL), ("maker 0", Compatibility.EP_SUPPORTED_PREFER_RECOMPILATION),
            ("maker 9", Compatibility.EP_UNSUPPORTED), ("other", Compatibility.EP_NOT_APPLICABLE),
        ],
    )  # fmt: skip
    def test_it_is_asked(self, maker: Maker, info: str, expected: Compatibility) -> None:
        devices = [d for d in ort.get_ep_devices() if d.ep_name == NAME]
        assert get_model_compatibility_for_ep_devices(devices, info) == expected

    def test_models_that_do_not_fit(self, maker: Maker, model: Path, caplog: pytest.LogCaptureFixture) -> None:
        ort.ModelCompiler(options(), model, embed_compiled_data_into_model=True).compile_to_file()
        proto = onnx.load(model.with_name("model_ctx.onnx"))
        entry = next(entry for entry in proto.metadata_props if entry.key == f"ep_compatibility_info.{NAME}")
        entry.value = "maker 9"
        with pytest.raises(ModelRequiresCompilation, match=rf"'maker 9', which {NAME} 2.0.0 does not take on this machine"):
            ort.InferenceSession(proto.SerializeToString(), options())
        entry.value = "maker 0"
        run(ort.InferenceSession(proto.SerializeToString(), options()))
        assert "would run faster if it were compiled again" in caplog.text
        strict = options(session__fail_on_suboptimal_compiled_model="1")
        with pytest.raises(ModelRequiresCompilation, match=r"'session.fail_on_suboptimal_compiled_model' is '1'"):
            ort.InferenceSession(proto.SerializeToString(), strict)

    def test_why_not_on_a_device(self, maker: Maker) -> None:
        device = OrtHardwareDevice(OrtHardwareDeviceType.CPU, "Golem", 0xDEAD, 0)
        found = get_hardware_device_ep_incompatibility_details(NAME, device)
        assert found == {"reasons_bitmask": 2, "error_code": 77, "notes": "made of clay"}


def test_initializers_in_files(maker: Maker, tmp_path: Path) -> None:
    """A plugin is told where an initializer lies, and may read it there; weightless compiling is left to it."""
    weights = numpy_helper.from_array(np.full(600, 2.5, np.float32), "w")
    node = helper.make_node("Add", ["x", "w"], ["y"], name="add")
    kinds = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [600]) for n in "xy"]
    graph = helper.make_graph([node], "add", kinds[:1], kinds[1:], [weights])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path, within = tmp_path / "outside.onnx", proto.SerializeToString()
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    x = np.zeros(600, np.float32)
    session = ort.InferenceSession(path, options(ep__enable_weightless="1"))
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x + 2.5)
    notes = maker.notes()
    assert "provider contexts 0 embed 0 weightless 1" in notes
    assert f"initializer w weights.bin 0 2400 of {path}" in notes
    inside = ort.InferenceSession(within, options())
    np.testing.assert_array_equal(inside.run(None, {"x": x})[0], x + 2.5)
    assert "initializer w inside" in maker.notes()


def test_what_it_does_not_compile_without_weights(maker: Maker, model: Path) -> None:
    with pytest.raises(ort.EPFail, match=rf"{NAME} does not compile without weights in mode 2 .*supports: external_only"):
        ort.InferenceSession(model, options(ep__enable_weightless_mode="2"))
    with pytest.raises(InvalidArgument, match=r"'ep.enable_weightless_mode' is 'some'; expected 0"):
        ort.InferenceSession(model, options(ep__enable_weightless_mode="some"))


def test_options_of_runs_and_between_runs(maker: Maker, model: Path) -> None:
    session = ort.InferenceSession(model, options())
    maker.notes()
    run_options = ort.RunOptions()
    run_options.logid = "tagged"
    run_options.add_run_config_entry("maker.key", "value")
    session.run(None, {"x": X}, run_options)
    assert maker.notes().count("run tagged value") == 2  # each part has its own
    session.set_ep_dynamic_options({"ep.dynamic.maker": "fast"})
    assert maker.notes() == ["dynamic ep.dynamic.maker=fast"]
    with pytest.raises(InvalidArgument, match=f"{NAME}: SetDynamicOptions: bad is no value"):
        session.set_ep_dynamic_options({"ep.dynamic.maker": "bad"})


def test_events_of_its_own_profiler(maker: Maker, model: Path, tmp_path: Path) -> None:
    wanted = options()
    wanted.enable_profiling = True
    wanted.profile_file_prefix = str(tmp_path / "profile")
    session = ort.InferenceSession(model, wanted)
    run(session)
    notes = maker.notes()
    assert "profiling begins" in notes
    events = [line for line in notes if line.startswith("event")]
    assert len(events) == 2
    assert all("_kernel_time category 1 of MakerExecutionProvider 1" in line for line in events)
    written = json.loads(Path(session.end_profiling()).read_text())
    (found,) = [event for event in written if event["name"] == "acme_kernel"]
    assert (found["cat"], found["ph"], found["dur"], found["tid"]) == ("Kernel", "X", 42, 7)
    assert found["args"] == {"provider": NAME, "engine": "acme"}
    assert found["ts"] >= 0
    assert {"profiling ends", "profiler released"} <= set(maker.notes())


@pytest.mark.parametrize("by_function", [0, 1])
def test_a_model_of_its_own_is_compiled(maker: Maker, by_function: int) -> None:
    data, nbytes = ctypes.c_void_p(), ctypes.c_size_t()
    load_provider(NAME)
    words = maker.library.compiled_model(by_function, ctypes.byref(data), ctypes.byref(nbytes))
    assert not words, words.decode()
    proto = onnx.load_from_string(ctypes.string_at(data.value or 0, nbytes.value))
    assert [node.op_type for node in proto.graph.node] == ["EPContext"]
    session = ort.InferenceSession(proto.SerializeToString(), providers=[CPU])
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * np.array([3, -1], np.float32))


def test_what_is_not_there_says_so(maker: Maker) -> None:
    words = ctypes.create_string_buffer(512)
    not_implemented = 9
    assert maker.library.code_of_unwritten(words, len(words)) == not_implemented
    assert b"OrtModelEditorApi::CreateSessionFromModel is not among the functions that Intarsia has" in words.value
