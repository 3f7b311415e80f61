"""CoreMLExecutionProvider: its session, options, names, types, caches and faults. Packages are executed by NumPy."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest

import intarsia as ort
from intarsia.providers.vendor.artifact_cache import vendor_compiles

if TYPE_CHECKING:
    from mil_interpreter import NumPyEngine

NAME, CPU = "CoreMLExecutionProvider", "CPUExecutionProvider"
MODEL = """
    <ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y, bool[2, 3] z)
    <float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 10}> {
        a = MatMul(x, w)
        b = Relu(a)
        c = Add(b, x)
        y = Softmax<axis = 1>(c)
        z = Greater(y, x)
    }"""
X = np.float32([[0.1, -0.2, 0.3], [0.5, 0.1, -0.4]])


def options(**entries: str) -> ort.SessionOptions:
    found = ort.SessionOptions()
    for name, value in {"partition.keep_islands": "1", "session.cache_weights_mib": "0", **entries}.items():
        found.add_session_config_entry(name, value)
    return found


def session(text: str = MODEL, other: tuple[str, ...] = (), **given: Any) -> ort.InferenceSession:
    model = onnx.parser.parse_model(text).SerializeToString()
    return ort.InferenceSession(model, options(), providers=[(NAME, given), *other])


def expected(x: np.ndarray) -> np.ndarray:
    w = np.float64([[1, 2, 3], [4, 5, 6], [7, 8, 10]])
    c = np.maximum(x @ w, 0) + x
    e = np.exp(c - c.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def providers_of(made: ort.InferenceSession) -> set[str]:
    return {row.provider for row in made.explain().nodes if row.provider}


class TestSession:
    def test_a_whole_model_is_one_part(self, engine: NumPyEngine) -> None:
        made = session()
        assert providers_of(made) == {NAME} and engine.compiled == 1
        y, z = made.run(None, {"x": X})
        np.testing.assert_allclose(y, expected(X), rtol=1e-5)
        assert z.dtype == np.bool_ and (z == (y > X)).all()

    def test_the_documents_listing(self, engine: NumPyEngine, tmp_path: Path) -> None:
        onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "model.onnx")
        coreml_options = {"MLComputeUnits": "ALL"}
        made = ort.InferenceSession(tmp_path / "model.onnx", options(), providers=[(NAME, coreml_options), CPU])
        assert made.get_providers() == [NAME, CPU]
        assert made.get_provider_options()[NAME]["MLComputeUnits"] == "ALL"
        np.testing.assert_allclose(made.run(None, {"x": X})[0], expected(X), rtol=1e-5)

    def test_without_macos_the_error_says_what_is_needed(self) -> None:
        import platform

        if platform.system() == "Darwin":
            pytest.skip("this is macOS")
        with pytest.raises(ort.EPFail, match=f"{NAME} .*Core ML is part of macOS.*It needs macOS 14"):
            session()

    def test_no_axes_and_names_that_core_ml_does_not_take(self, engine: NumPyEngine) -> None:
        model = onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["": 17]> g (float p, float[2] q, bool r) => (float s, float[2] t, bool u) {
                s = Neg(p)  t = Mul(q, p)  u = Not(r) }"""
        )
        names = {"p": "/a.1", "q": "_a_1", "r": "state", "s": "1", "t": "v_1", "u": "_a_1/out"}
        for value in (*model.graph.input, *model.graph.output):
            value.name = names[value.name]
        for node in model.graph.node:
            node.input[:] = [names.get(n, n) for n in node.input]
            node.output[:] = [names.get(n, n) for n in node.output]
        made = ort.InferenceSession(model.SerializeToString(), options(), providers=[NAME])
        feed = {"/a.1": np.float32(3), "_a_1": np.float32([1, 2]), "state": np.bool_(True)}
        s, t, u = made.run(None, feed)
        assert s.shape == () and s == -3 and t.tolist() == [3, 6] and u.dtype == np.bool_ and not u

    def test_integers_of_64_bits(self, engine: NumPyEngine) -> None:
        """Moved and compared they go as 32 bits, where they fit; a sum is left to others."""
        text = """<ir_version: 8, opset_import: ["": 17]> g (int64[2] x, int64[2] y) => (int64[1, 2] a, bool[2] b, int64[2] c) {
            axes = Constant<value_ints = [0]>()  a = Unsqueeze(x, axes)  b = Less(x, y)  c = Add(x, y) }"""
        made = session(text, (CPU,))
        rows = {row.op: row for row in made.explain().nodes}
        assert rows["Unsqueeze"].provider == rows["Less"].provider == NAME and rows["Add"].provider == CPU
        assert rows["Add"].refusals[NAME].reason == "Core ML computes in 32 bits what the model computes in 64"
        a, b, c = made.run(None, {"x": np.int64([2**31 - 1, -(2**31)]), "y": np.int64([1, 2])})
        assert a.tolist() == [[2**31 - 1, -(2**31)]] and b.tolist() == [False, True] and c.tolist() == [2**31, 2 - 2**31]
        made.disable_fallback()
        with pytest.raises(ort.EPFail, match=r"has numbers from .* to 2147483648"):
            made.run(None, {"x": np.int64([2**31, 0]), "y": np.int64([1, 2])})

    def test_several_threads(self, engine: NumPyEngine) -> None:
        from concurrent.futures import ThreadPoolExecutor

        made = session()
        inputs = [np.full((2, 3), i / 8, np.float32) for i in range(8)]
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda x: made.run(None, {"x": x})[0], inputs))
        for x, y in zip(inputs, results, strict=True):
            np.testing.assert_allclose(y, expected(x), rtol=1e-5)


class TestOptions:
    @pytest.mark.parametrize(
        ("given", "meant"),
        [("CPUOnly", "CPU_ONLY"), ("CPU_AND_GPU", "CPU_AND_GPU"), ("CPUAndNeuralEngine", "CPU_AND_NE")],
    )
    def test_spellings_of_units(self, engine: NumPyEngine, given: str, meant: str) -> None:
        session(MLComputeUnits=given)
        assert engine.settings[-1].compute_units == meant

    def test_what_core_ml_is_told(self, engine: NumPyEngine) -> None:
        session(SpecializationStrategy="FastPrediction", AllowLowPrecisionAccumulationOnGPU="1", ProfileComputePlan="1")
        told = engine.settings[-1]
        assert (told.specialization, told.low_precision_sums, told.plan) == ("FastPrediction", True, True)

    def test_wrong_ones(self, engine: NumPyEngine) -> None:
        with pytest.raises(ort.UnknownOption, match=r"has no option 'MLComputeUnit'.*MLComputeUnits"):
            session(MLComputeUnit="ALL")
        with pytest.raises(ort.InvalidArgument, match="'GPU' is not a valid value"):
            session(MLComputeUnits="GPU")
        with pytest.raises(ort.InvalidArgument, match=r"expected entries such as 'batch=1..8'"):
            session(ShapeProfile="batch")

    def test_the_device_of_an_operation(self, engine: NumPyEngine) -> None:
        kernels = {row.kernel for row in session(ProfileComputePlan="1").explain().nodes}
        assert "Core ML on CPU" in kernels

    def test_static_inputs_required(self, engine: NumPyEngine) -> None:
        text = MODEL.replace("[2, 3] x", "[n, 3] x").replace("[2, 3] y", "[n, 3] y").replace("[2, 3] z", "[n, 3] z")
        made = session(text, (CPU,))
        assert providers_of(made) == {NAME}
        for rows in (2, 1, 4):
            x = np.resize(X, (rows, 3))
            np.testing.assert_allclose(made.run(None, {"x": x})[0], expected(x), rtol=1e-5)
        assert engine.compiled == 3
        with pytest.warns(ort.ProviderWarning, match="takes none"):
            made = session(text, (CPU,), RequireStaticInputShapes="1")
        assert "RequireStaticInputShapes is set" in made.explain().nodes[0].refusals[NAME].reason

    def test_half(self, engine: NumPyEngine) -> None:
        found = session(Precision="FP16").run(None, {"x": X})[0]
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected(X), rtol=5e-3)
        assert not np.allclose(found, expected(X), rtol=1e-6)


class TestCaches:
    def test_the_second_session_compiles_nothing(self, engine: NumPyEngine, tmp_path: Path) -> None:
        before = vendor_compiles(NAME)
        folder = str(tmp_path / "compiled")
        session(ModelCacheDirectory=folder)
        assert vendor_compiles(NAME) == before + 1
        renamed = MODEL.replace(" x)", " input)").replace("x, w", "input, w").replace(", x)", ", input)")
        again = session(renamed, ModelCacheDirectory=folder)
        assert vendor_compiles(NAME) == before + 1 and engine.compiled == 1
        np.testing.assert_allclose(again.run(None, {"input": X})[0], expected(X), rtol=1e-5)
        session(ModelCacheDirectory=folder, Precision="FP16")
        assert vendor_compiles(NAME) == before + 2

    def test_another_system_compiles_anew(self, engine: NumPyEngine) -> None:
        session()
        engine.version = "2"
        made = session()
        assert engine.compiled == 2
        assert "engine was '1' and is '2'" in str(made.explain())

    def test_a_compiled_model(self, engine: NumPyEngine, tmp_path: Path) -> None:
        model, context = onnx.parser.parse_model(MODEL).SerializeToString(), tmp_path / "context.onnx"
        given = options(**{"ep.context_enable": "1", "ep.context_file_path": str(context)})
        ort.InferenceSession(model, given, providers=[NAME])
        made = ort.InferenceSession(str(context), options(), providers=[NAME])
        assert engine.compiled == 1
        np.testing.assert_allclose(made.run(None, {"x": X})[0], expected(X), rtol=1e-5)

    def test_a_damaged_entry(self, engine: NumPyEngine, tmp_path: Path) -> None:
        folder = tmp_path / "compiled"
        session(ModelCacheDirectory=str(folder))
        for file in folder.rglob("artifact-*"):
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.chmod(0o600)
            file.write_bytes(data)
        made = session(ModelCacheDirectory=str(folder))
        assert engine.compiled == 2
        np.testing.assert_allclose(made.run(None, {"x": X})[0], expected(X), rtol=1e-5)

    def test_bytes_that_are_no_package(self, tmp_path: Path) -> None:
        from intarsia.providers.coreml.packages import unpacked

        with pytest.raises(ValueError, match="no block of a compiled package"):
            unpacked(b"no archive", tmp_path)


class TestFaults:
    @pytest.mark.parametrize(
        ("fault", "match"),
        [("compile", "cannot compile 5 nodes .*unable to parse"), ("load", "cannot load 5 nodes .*execution plan")],
    )
    def test_of_the_compiler(self, engine: NumPyEngine, fault: str, match: str) -> None:
        engine.fault = fault
        with pytest.raises(ort.EPFail, match=match):
            session()
        with pytest.warns(ort.ProviderWarning, match=match):
            made = session(other=(CPU,))
        np.testing.assert_allclose(made.run(None, {"x": X})[0], expected(X), rtol=1e-5)
        engine.fault = ""
        np.testing.assert_allclose(session().run(None, {"x": X})[0], expected(X), rtol=1e-5)

    def test_no_memory(self, engine: NumPyEngine) -> None:
        engine.fault = "memory"
        with pytest.raises(ort.OutOfMemory, match="no memory to compile 5 nodes"):
            session()

    def test_a_device_that_is_lost_in_a_run(self, engine: NumPyEngine) -> None:
        made = session(other=(CPU,))
        engine.fault = "predict"
        made.disable_fallback()
        with pytest.raises(ort.EPFail, match="Core ML failed in a run: E5RT"):
            made.run(None, {"x": X})
        made.enable_fallback()
        with pytest.warns(ort.ProviderWarning, match="E5RT"):
            found = made.run(None, {"x": X})
        np.testing.assert_allclose(found[0], expected(X), rtol=1e-5)

    def test_nothing_is_left_in_the_temporary_folder(
        self, engine: NumPyEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "temporary"
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        made = session()
        made.run(None, {"x": X})
        for fault in ("compile", "load"):
            engine.fault = fault
            with pytest.raises(ort.EPFail):
                session(ModelCacheDirectory=str(tmp_path / fault))
        del made
        gc.collect()
        assert not list(folder.glob("intarsia-coreml-*"))


def test_results_are_in_order_in_memory(engine: NumPyEngine) -> None:
    """What a transposition gives may be a view; the provider behind it reads memory as it lies."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[3, 2] y, float[3, 2] z) {
        y = Transpose(x)  z = Abs(y) }"""
    made = session(text)
    assert all(found.flags.c_contiguous for found in made.run(None, {"x": X}))
    np.testing.assert_array_equal(made.run(["y"], {"x": X})[0], X.T)
