"""Adapters, compiled models, initializers given from outside, the backend and the example models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.helper as h
import pytest

import intarsia as ort
import intarsia.backend as backend
from intarsia.capi import _pybind_state as state
from intarsia.datasets import get_example
from intarsia.errors import EPFail, ExternalDataError, Fail, InvalidArgument, NoSuchFile, NotImplemented, WrongType

X = np.ones((3, 2), np.float32)
W = np.float32([[1, 2], [3, 4], [5, 6]])


def mul_model(external: bool = False) -> onnx.ModelProto:
    x, y, w = (h.make_tensor_value_info(n, 1, [3, 2]) for n in "XYW")
    weights = onnx.numpy_helper.from_array(W, "W")
    if external:
        weights.ClearField("raw_data")
        weights.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "w.bin"), ("offset", "0"), ("length", str(W.nbytes))):
            weights.external_data.add(key=key, value=value)
    inputs = [x] if external else [x, w]
    graph = h.make_graph([h.make_node("Mul", ["X", "W"], ["Y"], name="mul")], "g", inputs, [y], [weights])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)


class TestAdapters:
    def write(self, path: Path, **parameters: np.ndarray) -> None:
        adapter = ort.AdapterFormat()
        adapter.set_adapter_version(3)
        adapter.set_model_version(7)
        adapter.set_parameters({n: ort.OrtValue.ortvalue_from_numpy(a) for n, a in parameters.items()})
        adapter.export_adapter(path)

    def test_round_trip(self, tmp_path: Path) -> None:
        import ml_dtypes

        given = {
            "a": W, "scalar": np.array(2, np.int64), "empty": np.zeros((0, 4), np.uint8), "ü": np.ones(3, ml_dtypes.bfloat16),
        }  # fmt: skip
        self.write(tmp_path / "x.onnx_adapter", **given)
        found = ort.AdapterFormat.read_adapter(tmp_path / "x.onnx_adapter")
        assert (found.get_format_version(), found.get_adapter_version(), found.get_model_version()) == (1, 3, 7)
        parameters = found.get_parameters()
        assert parameters.keys() == given.keys()
        for name, array in given.items():
            assert parameters[name].numpy().dtype == array.dtype
            assert parameters[name].numpy().tobytes() == array.tobytes()
            assert parameters[name].shape() == list(array.shape)

    def test_onnxruntime_reads_and_writes_the_same_format(self, tmp_path: Path) -> None:
        peer = pytest.importorskip("onnxruntime", reason="the format is its own")
        self.write(tmp_path / "ours", a=W, b=np.array([5], np.int64))
        found = peer.AdapterFormat.read_adapter(str(tmp_path / "ours"))
        assert (found.get_adapter_version(), found.get_model_version()) == (3, 7)
        np.testing.assert_array_equal(found.get_parameters()["a"].numpy(), W)
        found.export_adapter(str(tmp_path / "theirs"))
        back = ort.AdapterFormat.read_adapter(tmp_path / "theirs")
        assert back.get_parameters()["b"].numpy().tolist() == [5]
        assert back.get_model_version() == 7

    def test_a_run_with_an_adapter(self, tmp_path: Path) -> None:
        self.write(tmp_path / "x", W=W * 10)
        adapter = ort.LoraAdapter()
        adapter.Load(tmp_path / "x")
        options = ort.RunOptions()
        options.add_active_adapter(adapter)
        session = ort.InferenceSession(mul_model().SerializeToString())
        np.testing.assert_array_equal(session.run(None, {"X": X})[0], W)
        np.testing.assert_array_equal(session.run(None, {"X": X}, options)[0], W * 10)
        np.testing.assert_array_equal(session.run(None, {"X": X, "W": W * 2}, options)[0], W * 2)  # the feed comes first
        options.add_active_adapter(adapter)
        with pytest.raises(InvalidArgument, match="two active adapters have a parameter 'W'"):
            session.run(None, {"X": X}, options)
        with pytest.raises(WrongType, match="add_active_adapter: expected a LoraAdapter, got 5"):
            options.add_active_adapter(5)

    def test_damaged_files(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        self.write(path, a=W)
        whole = path.read_bytes()
        for size in range(0, len(whole) - 20, 7):
            path.write_bytes(whole[:size])
            with pytest.raises(
                InvalidArgument, match=r"cut short or corrupt|not appear to be a valid lora|cannot be read|do not fit"
            ):
                ort.AdapterFormat.read_adapter(path)
        path.write_bytes(b"\0\0\0\0ABCD" + whole[8:])
        with pytest.raises(InvalidArgument, match="The buffer does not appear to be a valid lora parameter format"):
            ort.AdapterFormat.read_adapter(path)
        with pytest.raises(NoSuchFile, match=r"adapter file .* does not exist"):
            ort.LoraAdapter().Load(tmp_path / "none")

    def test_what_the_format_cannot_hold(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidArgument, match="parameter 's' is string, which the format cannot hold"):
            self.write(tmp_path / "x", s=np.array(["a"]))
        with pytest.raises(WrongType, match="set_parameters: expected names and OrtValues, got 'a': ndarray"):
            ort.AdapterFormat().set_parameters({"a": W})  # type: ignore[dict-item]


def interpreted() -> ort.SessionOptions:
    """Options whose provider compiles nothing, so that a compiled model keeps its nodes and weights."""
    options = ort.SessionOptions()
    options.add_provider("ReferenceExecutionProvider", {})
    return options


class TestModelCompiler:
    Flags = ort.OrtCompileApiFlags

    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "m.onnx"
        onnx.save(mul_model(), path)
        return path

    def test_to_a_file(self, tmp_path: Path) -> None:
        path = self.path(tmp_path)
        ort.ModelCompiler(ort.SessionOptions(), path).compile_to_file()
        made = tmp_path / "m_ctx.onnx"
        np.testing.assert_array_equal(ort.InferenceSession(made).run(None, {"X": X})[0], W)
        with pytest.raises(Fail, match=r"Output model file exists already: .*m_ctx.onnx"):
            ort.ModelCompiler(ort.SessionOptions(), path, flags=self.Flags.ERROR_IF_OUTPUT_FILE_EXISTS).compile_to_file()
        with pytest.raises(InvalidArgument, match="compile_to_file: expected the name of a file"):
            ort.ModelCompiler(ort.SessionOptions(), path).compile_to_file(tmp_path)

    def test_to_bytes_and_to_a_stream(self, tmp_path: Path) -> None:
        data = mul_model().SerializeToString()
        compiler = ort.ModelCompiler(
            ort.SessionOptions(), data, graph_optimization_level=ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        )
        made = compiler.compile_to_bytes()
        chunks: list[bytes] = []
        compiler.compile_to_stream(chunks.append)
        assert b"".join(chunks) == made
        np.testing.assert_array_equal(ort.InferenceSession(made).run(None, {"X": X})[0], W)
        with pytest.raises(Fail, match=r"ZeroDivisionError: .*raised by the function given to compile_to_stream"):
            compiler.compile_to_stream(lambda _: 1 / 0)
        with pytest.raises(InvalidArgument, match="expected output_model_path, since the input model is given as bytes"):
            compiler.compile_to_file()

    def test_weights_in_another_file(self, tmp_path: Path) -> None:
        path = self.path(tmp_path)
        ort.ModelCompiler(
            interpreted(), path, external_initializers_file_path="w.bin", external_initializers_size_threshold=8
        ).compile_to_file(tmp_path / "out.onnx")
        assert (tmp_path / "w.bin").read_bytes()[: W.nbytes] == W.tobytes()
        np.testing.assert_array_equal(ort.InferenceSession(tmp_path / "out.onnx").run(None, {"X": X})[0], W)

    def test_weights_where_the_program_keeps_them(self, tmp_path: Path) -> None:
        path = self.path(tmp_path)
        (tmp_path / "mine.bin").write_bytes(b"\0" * 8 + (W * 2).tobytes())

        def locate(name, value, info):
            assert (name, value.shape(), info) == ("W", [3, 2], None)
            return ort.OrtExternalInitializerInfo("mine.bin", 8, W.nbytes)

        compiler = ort.ModelCompiler(interpreted(), path, get_initializer_location_func=locate)
        compiler.compile_to_file(tmp_path / "out.onnx")
        np.testing.assert_array_equal(ort.InferenceSession(tmp_path / "out.onnx").run(None, {"X": X})[0], W * 2)
        with pytest.raises(WrongType, match="expected OrtExternalInitializerInfo for 'W', got 5"):
            ort.ModelCompiler(interpreted(), path, get_initializer_location_func=lambda *_: 5).compile_to_bytes()
        with pytest.raises(Fail, match="get_initializer_location_func failed for 'W'"):
            ort.ModelCompiler(interpreted(), path, get_initializer_location_func=lambda *_: 1 / 0).compile_to_bytes()

    def test_errors(self, tmp_path: Path) -> None:
        path, options = self.path(tmp_path), ort.SessionOptions()
        with pytest.raises(InvalidArgument, match='Input model path does not exist: "/no/file"'):
            ort.ModelCompiler(options, "/no/file")
        with pytest.raises(WrongType, match="Unable to load from type '<class 'int'>'"):
            ort.ModelCompiler(options, 3)  # type: ignore[arg-type]
        with pytest.raises(WrongType, match="sess_options: expected SessionOptions, got NoneType"):
            ort.ModelCompiler(None, path)  # type: ignore[arg-type]
        with pytest.raises(Fail, match=r"Unable to compile any nodes. Check that the session EPs support compilation"):
            ort.ModelCompiler(interpreted(), path, flags=self.Flags.ERROR_IF_NO_NODES_COMPILED).compile_to_bytes()
        with pytest.raises(InvalidArgument, match="or get_initializer_location_func, not both"):
            ort.ModelCompiler(options, path, external_initializers_file_path="a", get_initializer_location_func=lambda *_: None)

    def test_compatibility_of_compiled_models(self, tmp_path: Path) -> None:
        path, cpu = self.path(tmp_path), "CPUExecutionProvider"
        assert state.get_compatibility_info_from_model(path, cpu) is None
        assert state.get_compatibility_info_from_model_bytes(path.read_bytes(), cpu) is None
        with pytest.raises(NoSuchFile, match=r"Load model .* failed. File doesn't exist"):
            state.get_compatibility_info_from_model(tmp_path / "none", cpu)
        devices = [d for d in ort.get_ep_devices() if d.ep_name == cpu]
        found = state.get_model_compatibility_for_ep_devices(devices, "x")
        assert found is ort.OrtCompiledModelCompatibility.EP_NOT_APPLICABLE
        with pytest.raises(InvalidArgument, match="Invalid argument provided to GetModelCompatibilityForEpDevices"):
            state.get_model_compatibility_for_ep_devices([], "x")


class TestInitializers:
    def test_of_a_file_that_does_not_exist(self, tmp_path: Path) -> None:
        path = tmp_path / "m.onnx"
        path.write_bytes(mul_model(external=True).SerializeToString())
        with pytest.raises(ExternalDataError, match=r"file 'w.bin' is missing"):
            ort.InferenceSession(path)
        options = ort.SessionOptions()
        options.add_external_initializers(["W"], [ort.OrtValue.ortvalue_from_numpy(W)])
        np.testing.assert_array_equal(ort.InferenceSession(path, options).run(None, {"X": X})[0], W)
        np.testing.assert_array_equal(ort.InferenceSession(path.read_bytes(), options).run(None, {"X": X})[0], W)

    def test_of_a_file_in_memory(self) -> None:
        model = mul_model(external=True).SerializeToString()
        options = ort.SessionOptions()
        data = W.tobytes() + b"more"
        options.add_external_initializers_from_files_in_memory(["w.bin"], [data], [W.nbytes])
        np.testing.assert_array_equal(ort.InferenceSession(model, options).run(None, {"X": X})[0], W)
        with pytest.raises(InvalidArgument, match="got 1 names, 0 buffers and 0 lengths"):
            options.add_external_initializers_from_files_in_memory(["w.bin"], [], [])
        with pytest.raises(InvalidArgument, match=r"external file 'w.bin': expected 99 bytes, the buffer has 28"):
            options.add_external_initializers_from_files_in_memory(["w.bin"], [data], [99])

    def test_the_optimised_models_weights_file(self, tmp_path: Path) -> None:
        options = ort.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "out.onnx")
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "out.bin")
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "4")
        ort.InferenceSession(mul_model().SerializeToString(), options)
        assert (tmp_path / "out.bin").is_file()
        np.testing.assert_array_equal(ort.InferenceSession(tmp_path / "out.onnx").run(None, {"X": X})[0], W)


class TestEntries:
    def test_a_programs_own_entries_are_kept(self, caplog) -> None:
        options = ort.SessionOptions()
        options.add_session_config_entry("CONFIG_KEY", "CONFIG_VAL")
        assert options.get_session_config_entry("CONFIG_KEY") == "CONFIG_VAL"
        assert "session configuration entry 'CONFIG_KEY' is not known: it is kept and has no effect" in caplog.text
        with pytest.raises(
            ort.UnknownOption, match=r"no session configuration entry 'session.intra_op.allow_spining'; did you mean"
        ):
            options.add_session_config_entry("session.intra_op.allow_spining", "1")
        with pytest.raises(TypeError, match="entries are text"):
            options.add_session_config_entry("a", 1)  # type: ignore[arg-type]

    def test_onnxruntimes_optimizers_can_be_switched_off(self) -> None:
        data = mul_model().SerializeToString()
        options = ort.SessionOptions()
        options.add_session_config_entry("optimization.disable_specified_optimizers", "ConstantFolding,ConstantSharing")
        session = ort.InferenceSession(data, options, disabled_optimizers=["GeluFusion"])
        np.testing.assert_array_equal(session.run(None, {"X": X})[0], W)
        with pytest.raises(ort.UnknownOption, match="no optimisation rule is called 'ConstantFoldingg'"):
            ort.InferenceSession(data, disabled_optimizers=["ConstantFoldingg"])

    def test_training(self) -> None:
        options = ort.RunOptions()
        with pytest.raises(
            NotImplemented, match=r"RunOptions.training_mode: models run for inference; expected False, got True"
        ):
            options.training_mode = True
        assert options.training_mode is False
        with pytest.raises(TypeError, match=r"SessionOptions.graph_optimization_level: expected GraphOptimizationLevel"):
            ort.SessionOptions().graph_optimization_level = 1  # type: ignore[assignment]


class TestBackend:
    def test_run(self) -> None:
        model = mul_model()
        for given in (model.SerializeToString(), model, ort.InferenceSession(model.SerializeToString())):
            prepared = backend.prepare(given, "CPU", intra_op_num_threads=1)
            assert backend.prepare(prepared) is prepared
            for inputs in ([X], X, {"X": X}):
                np.testing.assert_array_equal(prepared.run(inputs)[0], W)
        np.testing.assert_array_equal(backend.run_model(model.SerializeToString(), [X], "CPU", logid="r")[0], W)

    def test_one_node(self) -> None:
        outputs = backend.run_node(h.make_node("Add", ["a", "b"], ["c"]), [X, X])
        np.testing.assert_array_equal(outputs.c, X + X)
        with pytest.raises(InvalidArgument, match="Add takes 2 inputs"):
            backend.run_node(h.make_node("Add", ["a", "b"], ["c"]), [X])

    def test_devices_and_opsets(self, monkeypatch) -> None:
        assert backend.supports_device("CPU")
        assert not backend.supports_device("TPU")
        assert backend.is_compatible(None)
        with pytest.raises(EPFail, match="Incompatible device expected 'TPU', got"):
            backend.prepare(mul_model(), "TPU")
        model = mul_model()
        assert backend.is_opset_supported(model) == (True, "")
        model.opset_import[0].version = 999
        supported, why = backend.is_opset_supported(model)
        assert not supported
        assert "Got Domain 'ai.onnx' version '999'" in why
        monkeypatch.setenv("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")
        assert backend.is_opset_supported(model) == (True, "")

    def test_errors(self) -> None:
        model = mul_model().SerializeToString()
        with pytest.raises(
            InvalidArgument, match="SessionOptions attribute 'enable_profiling' is not permitted via the backend API"
        ):
            backend.prepare(model, enable_profiling=True)
        with pytest.raises(InvalidArgument, match="RunOptions attribute 'terminate' is not permitted via the backend API"):
            backend.prepare(model).run([X], terminate=True)
        with pytest.raises(InvalidArgument, match=r"Model expects 1 inputs \(\['X'\]\), got 0"):
            backend.prepare(model).run([])


class TestExamples:
    def test_mul(self) -> None:
        session = ort.InferenceSession(get_example("mul_1.onnx"))
        np.testing.assert_array_equal(session.run(["Y"], {"X": X})[0], W)

    def test_sigmoid(self) -> None:
        x = np.linspace(-3, 3, 60, dtype=np.float32).reshape(3, 4, 5)
        (y,) = ort.InferenceSession(get_example("sigmoid.onnx")).run(None, {"x": x})
        np.testing.assert_allclose(y, 1 / (1 + np.exp(-x.astype(np.float64))), rtol=1e-6)

    def test_iris(self, monkeypatch, tmp_path: Path) -> None:
        monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
        path = get_example("logreg_iris.onnx")
        assert Path(path).is_relative_to(tmp_path)
        labels, probabilities = backend.prepare(path).run(np.float32([[5.1, 3.5], [6.0, 2.2], [7.2, 3.0]]))
        assert labels.tolist() == [max(p, key=p.get) for p in probabilities]
        assert all(abs(sum(p.values()) - 1) < 1e-5 for p in probabilities)

    def test_errors(self) -> None:
        with pytest.raises(FileNotFoundError, match=r"Unable to find example 'mul.onnx'; did you mean 'mul_1.onnx'"):
            get_example("mul.onnx")

    def test_a_cache_that_cannot_be_written(self, monkeypatch, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "file"))
        assert Path(get_example("mul_1.onnx")).is_file()
