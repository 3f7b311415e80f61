"""OpenVINOExecutionProvider for real, on this machine's CPU."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import logging
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.ep.provider import NotSaved, Program
from intarsia.errors import EPFail, Fail, InvalidArgument, NotImplemented, UnknownOption
from intarsia.providers.openvino import OpenVINOExecutionProvider, runtime
from intarsia.providers.openvino.options import OpenVINOOptions
from intarsia.providers.openvino.saturation import adds_bytes_in_16_bits
from intarsia.providers.options import parse_options

OPENVINO, CPU, REFERENCE = "OpenVINOExecutionProvider", "CPUExecutionProvider", "ReferenceExecutionProvider"
needs_openvino = pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="needs openvino (extra: openvino)")
WEIGHTS = ("w", "b", "m")  # inputs of these names become initializers
NET = """net (float[batch,3,16,16] x, float[8,3,3,3] w, float[8] b, float[8,10] m) => (float[batch,10] y) {
    c = Conv<pads=[1,1,1,1]>(x, w, b)  r = Relu(c)  g = GlobalAveragePool(r)  f = Flatten(g)  l = MatMul(f, m)  y = Softmax(l)
}"""
CEIL_POOL = """g (float[1,1,4,4] x) => (float[1,1,3,3] y) {
    y = MaxPool<kernel_shape=[2,2], strides=[2,2], pads=[1,1,1,1], ceil_mode=1>(x)
}"""
PRODUCT = "g (float[64,256] x, float[256,64] w) => (float[64,64] y) { y = MatMul(x, w) }"


def model(text: str) -> bytes:
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    rng = np.random.default_rng(0)
    for value in [v for v in proto.graph.input if v.name in WEIGHTS]:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        array = rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
        proto.graph.input.remove(value)
    return proto.SerializeToString()


def image(batch: int = 2) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((batch, 3, 16, 16)).astype(np.float32)


def session(source: bytes, *fallback: str, entries: dict[str, str] | None = None, **options: object) -> ort.InferenceSession:
    sess_options = ort.SessionOptions()
    for key, value in (entries or {}).items():
        sess_options.add_session_config_entry(key, value)
    return ort.InferenceSession(source, sess_options, [(OPENVINO, options), *fallback])


def expected(source: bytes, *inputs: np.ndarray) -> list[np.ndarray]:
    reference = ort.InferenceSession(source, providers=[REFERENCE])
    return reference.run(None, {a.name: x for a, x in zip(reference.get_inputs(), inputs, strict=True)})


def placed(made: ort.InferenceSession) -> dict[str, str]:
    return {node.op: node.provider for node in made.explain().nodes}


@needs_openvino
class TestRuns:
    def test_whole_models_of_any_batch(self) -> None:
        source = model(NET)
        made = session(source)
        assert set(placed(made).values()) == {OPENVINO}
        assert len(made.explain().steps) == 1
        for batch in (1, 5, 2, 0):
            np.testing.assert_allclose(
                made.run(None, {"x": image(batch)})[0], expected(source, image(batch))[0], rtol=1e-5, atol=1e-6
            )

    def test_results_are_the_callers_own(self) -> None:
        made = session(model(NET))
        first = made.run(None, {"x": image()})[0]
        kept = first.copy()
        second = made.run(None, {"x": -image()})[0]
        assert not np.shares_memory(first, second)
        assert np.array_equal(first, kept)
        assert not np.array_equal(first, second)

    def test_read_only_and_strided_inputs(self) -> None:
        made = session(model(NET))
        wanted = made.run(None, {"x": image()})[0]
        frozen = image()
        frozen.flags.writeable = False
        assert np.array_equal(made.run(None, {"x": frozen})[0], wanted)
        strided = np.repeat(image(), 2, axis=3)[..., ::2]
        assert np.array_equal(made.run(None, {"x": strided})[0], wanted)

    def test_inputs_and_outputs_are_not_copied(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The arrays that OpenVINO gets are the caller's and the ones that `run` returns."""
        from intarsia.providers.openvino import program

        seen: list[int] = []
        tensor = program._tensor

        def spy(array: np.ndarray, dtype: object) -> object:
            made = tensor(array, dtype)  # type: ignore[arg-type]
            seen.append(made.data.ctypes.data)
            assert made.data.ctypes.data == array.ctypes.data
            return made

        monkeypatch.setattr(program, "_tensor", spy)
        x = image()
        y = session(model(NET)).run(None, {"x": x})[0]
        assert seen == [x.ctypes.data, y.ctypes.data]

    def test_an_output_that_is_an_input(self) -> None:
        source = model("g (float[N,3] x) => (float[N,3] y, float[N,3] z) { y = Identity(x)  z = Neg(x) }")
        made = session(source, CPU, entries={"partition.keep_islands": "1"})
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        y, z = made.run(None, {"x": x})
        assert np.array_equal(y, x) and np.array_equal(z, -x)
        assert not np.shares_memory(y, x)

    def test_half_precision_types(self) -> None:
        for name, dtype, rtol in (("float16", np.float16, 2e-3), ("bfloat16", ml_dtypes.bfloat16, 2e-2)):
            source = model(f"g ({name}[N,8] x, {name}[8,4] v) => ({name}[N,4] y) {{ a = MatMul(x, v)  y = Tanh(a) }}")
            rng = np.random.default_rng(0)
            x, w = rng.standard_normal((3, 8)).astype(dtype), rng.standard_normal((8, 4)).astype(dtype)
            made = session(source)
            found = made.run(None, {"x": x, "v": w})[0]
            assert found.dtype == dtype
            wanted = np.tanh(x.astype(np.float64) @ w.astype(np.float64))
            np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=rtol, atol=rtol)

    def test_sizes_that_only_the_run_knows(self) -> None:
        source = model("g (float[N] x) => (float[M] y) { i = NonZero(x)  j = Squeeze(i)  v = Gather(x, j)  y = Exp(v) }")
        made = session(source, CPU, entries={"partition.keep_islands": "1"})
        x = np.array([0, 1, 0, 2, 3], np.float32)
        np.testing.assert_allclose(made.run(None, {"x": x})[0], np.exp([1, 2, 3]), rtol=1e-6)

    def test_an_output_of_another_shape_than_the_inferred_one(self) -> None:
        """OpenVINO refuses memory that is too small; the run is repeated with memory of its own."""
        made = session(model(NET))
        program = made._model.programs[0]
        program._out = [dataclasses.replace(port, shape=(1, 10)) for port in program._out]
        for _ in range(2):
            np.testing.assert_allclose(made.run(None, {"x": image()})[0], expected(model(NET), image())[0], rtol=1e-5)
        assert not program._own_outputs

    def test_inputs_are_not_held(self) -> None:
        made = session(model(NET))
        x = image()
        before = sys.getrefcount(x)
        made.run(None, {"x": x})
        assert sys.getrefcount(x) == before

    def test_many_threads_at_once(self) -> None:
        source = model(NET)
        made = session(source, num_of_threads=1)
        wanted = {n: expected(source, image(n))[0] for n in (1, 2, 3, 4)}
        wrong: list[object] = []

        def work(n: int) -> None:
            for _ in range(30):
                found = made.run(None, {"x": image(n)})[0]
                if not np.allclose(found, wanted[n], rtol=1e-5, atol=1e-6):
                    wrong.append((n, found))

        threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_terminate_stops_a_run(self) -> None:
        made = session(model(NET))
        options = ort.RunOptions()
        assert made.run(None, {"x": image()}, options)[0].shape == (2, 10)
        options.terminate = True
        with pytest.raises(Fail, match=r"terminate flag"):
            made.run(None, {"x": image()}, options)
        assert made.run(None, {"x": image()})[0].shape == (2, 10)

    def test_profile_has_its_layers(self, tmp_path: Path) -> None:
        options = ort.SessionOptions()
        options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "trace")
        made = ort.InferenceSession(model(NET), options, [OPENVINO])
        made.run(None, {"x": image()})
        events = json.loads(Path(made.end_profiling()).read_text())
        assert any("Convolution" in event["args"].get("kernel", "") for event in events)

    def test_profiles_name_the_models_nodes(self) -> None:
        made = session(model(NET))
        found = made.profile({"x": image()}, 2)
        assert found.by_provider()[0].name == OPENVINO
        assert sum(row.flop for row in found.by_operator()) > 0
        named = {node for kernel in found.kernels for node in kernel.nodes}
        assert named & {node.outputs[0] for node in made.explain().nodes}
        assert "Conv" in {row.name for row in found.by_operator()}
        assert found.roof is None  # no part runs on Intarsia's own kernels

    def test_describes_itself(self) -> None:
        made = session(model(NET))
        text = made._model.programs[0].describe()
        assert "INFERENCE_PRECISION_HINT: <Type: 'float32'>" in text
        assert {node.kernel.partition(":")[0] for node in made.explain().nodes} >= {"Convolution"}
        assert made._model.programs[0].describe("source") == ""


@needs_openvino
class TestPrecision:
    def test_is_float32_unless_asked(self) -> None:
        source = model(PRODUCT)
        x = np.random.default_rng(2).standard_normal((64, 256)).astype(np.float32)
        wanted = expected(source, x)[0]
        errors = {}
        for name, options in {"default": {}, "FP32": {"precision": "FP32"}, "accuracy": {"precision": "ACCURACY"}}.items():
            errors[name] = np.abs(session(source, **options).run(None, {"x": x})[0] - wanted).max()
        assert max(errors.values()) < 1e-4

    @pytest.mark.parametrize(("precision", "low"), [("BF16", 1e-3), ("FP16", 1e-4)])
    def test_lower_precision_is_an_error_where_the_cpu_would_take_another_type(self, precision: str, low: float) -> None:
        source = model(PRODUCT)
        if precision not in runtime.core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            with pytest.raises(InvalidArgument, match=rf"this CPU does not compute in {precision}, OpenVINO would take"):
                session(source, precision=precision)
            return
        x = np.random.default_rng(2).standard_normal((64, 256)).astype(np.float32)
        error = np.abs(session(source, precision=precision).run(None, {"x": x})[0] - expected(source, x)[0]).max()
        assert low < error < 1.0

    def test_a_cached_model_keeps_it(self, tmp_path: Path) -> None:
        source = model(NET)
        first = session(source, cache_dir=str(tmp_path / "blobs"))
        assert "LOADED_FROM_CACHE: False" in first._model.programs[0].describe()
        again = session(source, cache_dir=str(tmp_path / "blobs"))
        assert "LOADED_FROM_CACHE: True" in again._model.programs[0].describe()
        assert "float32" in again._model.programs[0].describe()
        assert np.array_equal(first.run(None, {"x": image()})[0], again.run(None, {"x": image()})[0])

    def test_a_damaged_cache_is_made_anew(self, tmp_path: Path) -> None:
        source = model(NET)
        wanted = session(source, cache_dir=str(tmp_path)).run(None, {"x": image()})[0]
        for blob in tmp_path.rglob("*.blob"):
            blob.write_bytes(blob.read_bytes()[: blob.stat().st_size // 2])
        assert np.array_equal(session(source, cache_dir=str(tmp_path)).run(None, {"x": image()})[0], wanted)

    def test_a_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(EPFail, match=r"option 'cache_dir': .* cannot be made"):
            session(model(NET), cache_dir=str(tmp_path / "file" / "blobs"), entries={"session.disable_cpu_ep_fallback": "1"})


@needs_openvino
@pytest.mark.parametrize("largest", [127, 63])
@pytest.mark.parametrize(("dtype", "zero"), [(np.int8, 0), (np.uint8, 128), (np.uint8, 115)])
def test_quantised_convolution_to_the_last_step(dtype: type, zero: int, largest: int) -> None:
    """Quantise, dequantise, convolve: OpenVINO makes one kernel of 8-bit products of it, and no step differs (with scales that
    put no number halfway between two steps, where float32's rounding decides). What it would compute otherwise is left out: an
    odd zero point, and sums of two products that its kernels for CPUs without VNNI would saturate."""
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1,3,16,16] x) => (float[1,8,16,16] y) {
            q = QuantizeLinear(x, sx, z)  d = DequantizeLinear(q, sx, z)  v = DequantizeLinear(k, sk, zk)
            c = Conv<pads=[1,1,1,1]>(d, v)  cq = QuantizeLinear(c, sy, z)  y = DequantizeLinear(cq, sy, z)
        }""")
    rng = np.random.default_rng(0)
    values = {
        "k": rng.integers(-largest, largest + 1, (8, 3, 3, 3)).astype(np.int8), "sk": np.float32(0.021317), "zk": np.int8(0),
        "sx": np.float32(0.030713), "sy": np.float32(0.1), "z": dtype(zero),
    }  # fmt: skip
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in values.items())
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("partition.keep_islands", "1")
    source = proto.SerializeToString()
    made = ort.InferenceSession(source, options, [OPENVINO, CPU])
    elsewhere = {node.op for node in made.explain().nodes if node.provider != OPENVINO}
    assert ("QuantizeLinear" in elsewhere) is (zero == 115)
    assert ("Conv" in elsewhere) is (largest > 64 and adds_bytes_in_16_bits("CPU"))
    x = rng.standard_normal((1, 3, 16, 16)).astype(np.float32)
    steps = np.abs(made.run(None, {"x": x})[0] - expected(source, x)[0]) / 0.1
    assert steps.max() < 0.01


@needs_openvino
class TestWarmStarts:
    """The compiled model is kept in Intarsia's own cache; a later session imports it and loads nothing else."""

    @pytest.fixture(autouse=True)
    def own_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.setenv("INTARSIA_PROGRAM_CACHE", "1")
        return tmp_path / "cache"

    @pytest.fixture
    def restored(self, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
        """For each try, whether a program came from the cache."""
        tries: list[bool] = []
        restore = OpenVINOExecutionProvider.restore

        def spy(*arguments: object) -> object:
            found = restore(*arguments)  # type: ignore[arg-type]
            tries.append(found is not None)
            return found

        monkeypatch.setattr(OpenVINOExecutionProvider, "restore", spy)
        return tries

    def test_give_the_same_results_in_float32(self, restored: list[bool]) -> None:
        source = model(NET)
        first = session(source, CPU)
        again = session(source, CPU)
        assert restored == [True]
        for batch in (2, 5):
            assert np.array_equal(again.run(None, {"x": image(batch)})[0], first.run(None, {"x": image(batch)})[0])
        np.testing.assert_allclose(again.run(None, {"x": image()})[0], expected(source, image())[0], rtol=1e-5, atol=1e-6)
        assert "float32" in again._model.program.describe()
        assert {n.kernel.partition(":")[0] for n in again._model.program.nodes()} >= {"Convolution"}
        assert again.get_inputs()[0].shape == ["batch", 3, 16, 16]
        assert set(placed(again).values()) == {OPENVINO}

    def test_need_the_same_options_and_version(self, restored: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
        source = model(NET)
        session(source)
        session(source, precision="ACCURACY")
        assert restored == []
        monkeypatch.setattr(runtime, "installed_version", lambda: "2099.1.0")
        assert session(source).run(None, {"x": image()})[0].shape == (2, 10)
        assert restored == [False]

    def test_do_without_what_cannot_be_imported(self) -> None:
        provider = OpenVINOExecutionProvider()
        made = ort.InferenceSession(model(NET), providers=[provider])
        head = provider.save(made._model.programs[0]).head
        assert provider.restore(head, np.zeros(1000, np.uint8), ort.CompileContext()) is None
        with pytest.raises(NotSaved, match="OpenVINO compiles it for each shape"):
            provider.save(Program())

    def test_are_not_for_models_that_are_compiled_for_each_shape(self, restored: list[bool]) -> None:
        for _ in range(2):
            session(model(NET), disable_dynamic_shapes=True)
        assert restored == []

    def test_nor_for_models_that_are_shared_with_another_provider(self, restored: list[bool]) -> None:
        text = "g (float[N,4,4] x) => (float[N] y) { a = MatMul(x, x)  b = Det(a)  y = Exp(b) }"
        for _ in range(2):
            made = session(model(text), CPU, entries={"partition.keep_islands": "1"})
        assert restored == []
        assert placed(made)["Det"] == CPU


@needs_openvino
class TestRefusals:
    @pytest.mark.parametrize(
        ("text", "op", "code", "reason"),
        [
            ("g (double[3] x) => (double[3] y) { y = Exp(x) }", "Exp", "type", "'x' has elements of type double"),
            ("g (int64[3] x) => (int64[3] y) { y = Neg(x) }", "Neg", "type", "int64 numbers of unknown size, which OpenVINO"),
            ("g (int8[3] x) => (int8[3] y) { y = Add(x, x) }", "Add", "type", "Add of int8: OpenVINO saturates where ONNX"),
            ("g (int32[3] x) => (int32[3] y) { y = Div(x, x) }", "Div", "wrong", "Div of integers, which OpenVINO computes"),
            ("g (float[3] x) => (bool[3] y) { y = Cast<to=9>(x) }", "Cast", "wrong", "NaN and -2**31 become False"),
            ("g (float[3,3] x) => (float y) { y = Det(x) }", "Det", "no-kernel", "No conversion rule found for operations"),
            ("g (string[3] x) => (string[3] y) { y = Identity(x) }", "Identity", "type", "'x' has elements of type string"),
            (CEIL_POOL, "MaxPool", "wrong", "windows that begin in the padding"),
        ],
    )  # fmt: skip
    def test_have_their_reason(self, text: str, op: str, code: str, reason: str) -> None:
        with pytest.warns(ort.ProviderWarning, match=r"OpenVINOExecutionProvider takes none of the model's 1 nodes"):
            made = session(model(text), REFERENCE)
        (node,) = made.explain().nodes
        assert node.op == op
        refusal = node.refusals[OPENVINO]
        assert refusal.code == code
        assert reason.replace(".", "") in refusal.reason.replace(".", "").replace("(", "")

    @pytest.mark.parametrize(("value", "taken"), [(-np.inf, False), (-1.0, True)])
    def test_infinite_constants_of_bfloat16(self, value: float, taken: bool) -> None:
        proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
            g (bfloat16[3] x) => (bool[3] y) { a = Add(x, x)  y = Equal(a, m) }""")
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, ml_dtypes.bfloat16), "m"))
        made = session(proto.SerializeToString(), CPU, entries={"partition.keep_islands": "1"})
        assert placed(made) == {"Add": OPENVINO, "Equal": OPENVINO if taken else CPU}
        if not taken:
            assert "'m' is infinite bfloat16" in made.explain().nodes[1].refusals[OPENVINO].reason

    def test_shapes_and_indices_of_64_bits_are_taken(self) -> None:
        text = """g (float[N,4] x, int64[K] i) => (float[K,2,2] y) {
            tail = Constant<value_ints=[2, 2]>()  v = Gather(x, i)
            s = Shape<start=0, end=1>(v)  t = Concat<axis=0>(s, tail)  y = Reshape(v, t)
        }"""
        made = session(model(text), CPU, entries={"partition.keep_islands": "1"})
        assert placed(made)["Gather"] == OPENVINO
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        found = made.run(None, {"x": x, "i": np.array([2, 0], np.int64)})[0]
        assert np.array_equal(found, x[[2, 0]].reshape(2, 2, 2))

    def test_one_refused_node_leaves_the_others(self) -> None:
        text = "g (float[N,4,4] x) => (float[N] y) { a = MatMul(x, x)  b = Det(a)  y = Exp(b) }"
        made = session(model(text), CPU, entries={"partition.keep_islands": "1"})
        assert placed(made) == {"MatMul": OPENVINO, "Det": CPU, "Exp": OPENVINO}
        x = np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32)
        np.testing.assert_allclose(made.run(None, {"x": x})[0], np.exp(np.linalg.det(x @ x)), rtol=1e-3)

    def test_a_few_small_nodes_are_not_worth_a_call(self) -> None:
        text = "g (float[N,4,4] x) => (float[N] y) { a = MatMul(x, x)  b = Det(a)  y = Exp(b) }"
        with pytest.warns(ort.ProviderWarning, match=r"an island of 1 nodes"):
            made = session(model(text), CPU)
        assert set(placed(made).values()) == {CPU}


class TestOptions:
    """Parsed without OpenVINO."""

    @pytest.mark.parametrize(
        ("given", "device", "precision"),
        [
            ({}, "CPU", "FP32"),
            ({"device_type": "CPU_FP32", "num_of_threads": 8}, "CPU", "FP32"),
            ({"device_type": "GPU_FP32"}, "GPU", "FP32"),
            ({"device_type": "GPU_FP16"}, "GPU", "FP16"),
            ({"device_type": "GPU.1_FP16"}, "GPU.1", "FP16"),
            ({"device_type": "GPU", "device_id": "1", "precision": "FP16"}, "GPU.1", "FP16"),
            ({"device_type": "CPU", "device_id": "0"}, "CPU", "FP32"),
            ({"device_type": "NPU"}, "NPU", "FP32"),
            ({"device_type": "AUTO:GPU,CPU"}, "AUTO:GPU,CPU", "FP32"),
            ({"device_type": "HETERO:GPU.1, CPU"}, "HETERO:GPU.1,CPU", "FP32"),
            ({"device_type": "AUTO", "precision": "ACCURACY"}, "AUTO", "ACCURACY"),
        ],
    )
    def test_devices_and_precisions(self, given: dict[str, object], device: str, precision: str) -> None:
        options = parse_options(OpenVINOExecutionProvider, given)
        assert (options.device, options.resolved_precision) == (device, precision)

    @pytest.mark.parametrize(
        ("given", "error", "message"),
        [
            ({"device_type": "TPU"}, InvalidArgument, "'TPU' is no device; did you mean '[CGN]PU'"),
            ({"device_type": "MYRIAD_FP16"}, InvalidArgument, "OpenVINO has dropped this hardware; valid: CPU, GPU, NPU"),
            ({"device_type": "HETERO:"}, InvalidArgument, "needs devices after it, such as 'HETERO:GPU,CPU'"),
            ({"device_type": "MULTI:GPU,FPGA"}, InvalidArgument, "'FPGA' is no device; valid: CPU, GPU, NPU"),
            (
                {"device_type": "CPU_FP32", "precision": "FP16"},
                InvalidArgument,
                "device_type 'CPU_FP32' and precision 'FP16' di",
            ),
            ({"device_id": "x"}, InvalidArgument, "option 'device_id' .*: expected a number for a single device, got 'x'"),
            ({"precision": "FP64"}, InvalidArgument, "'FP64' is not a valid value; did you mean 'FP16'"),
            ({"num_of_threads": -1}, InvalidArgument, "option 'num_of_threads' .*: expected at least 0, got -1"),
            ({"num_of_threads": "many"}, InvalidArgument, "option 'num_of_threads' .*: expected an integer, got 'many'"),
            ({"num_streams": 0}, InvalidArgument, "option 'num_streams' .*: expected at least 1, got 0"),
            ({"load_config": "{"}, InvalidArgument, "option 'load_config' .*: the text is not valid JSON"),
            ({"load_config": "no/such.json"}, InvalidArgument, "no file 'no/such.json', and not JSON either"),
            ({"load_config": '{"PERF_COUNT": true}'}, InvalidArgument, "expected properties by device, such as"),
            ({"load_config": {"TPU": {}}}, InvalidArgument, "option 'load_config': 'TPU' is no device"),
            (
                {"reshape_input": "x[1,3"},
                InvalidArgument,
                "option 'reshape_input' .*: expected 'name.....' separated by commas",
            ),
            ({"reshape_input": "x[1,4..2]"}, InvalidArgument, "expected a size or 'low..high'"),
            ({"layout": "NCHW"}, InvalidArgument, "option 'layout' of OpenVINOExecutionProvider: expected 'name.....'"),
            ({"model_priority": "URGENT"}, InvalidArgument, "'URGENT' is not a valid value"),
            ({"enable_qdq_optimizer": True}, NotImplemented, "option 'enable_qdq_optimizer' .* is not available in Intarsia"),
            ({"enable_causallm": "True"}, NotImplemented, "option 'enable_causallm' .* is not available in Intarsia"),
            ({"context": 4096}, InvalidArgument, "'context' is an OpenCL context: expected device_type 'GPU', got 'CPU'"),
            ({"device_type": "GPU", "precision": "BF16"}, InvalidArgument, "'BF16' is for CPUs; a GPU takes 'FP32', 'FP16'"),
            ({"num_threads": 1}, UnknownOption, "has no option 'num_threads'; did you mean 'num_"),
        ],
    )
    def test_bad_values(self, given: dict[str, object], error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            parse_options(OpenVINOExecutionProvider, given)

    def test_properties_by_device(self, tmp_path: Path) -> None:
        file = tmp_path / "config.json"
        file.write_text('{"CPU": {"PERF_COUNT": true}, "GPU": {"X": 1}}')
        for given in (str(file), file.read_text(), json.loads(file.read_text())):
            assert OpenVINOOptions(load_config=given).properties == {"PERF_COUNT": True}

    def test_input_bounds(self) -> None:
        options = OpenVINOOptions(reshape_input="x[1,3,16..64], y[8]", layout="x[NCHW]")
        assert options.shapes == {"x": ("1", "3", "16..64"), "y": ("8",)}
        assert options.layouts == {"x": "NCHW"}


@needs_openvino
class TestOptionsInUse:
    def test_threads_and_streams(self) -> None:
        text = session(model(NET), num_of_threads=2, num_streams=2)._model.programs[0].describe()
        assert "INFERENCE_NUM_THREADS: 2" in text and "NUM_STREAMS: 2" in text

    def test_the_sessions_threads_are_the_default(self) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        made = ort.InferenceSession(model(NET), options, [OPENVINO])
        assert "INFERENCE_NUM_THREADS: 1" in made._model.programs[0].describe()

    def test_load_config_reaches_the_device(self) -> None:
        made = session(model(NET), load_config={"CPU": {"INFERENCE_NUM_THREADS": 1}}, num_of_threads=2)
        assert "INFERENCE_NUM_THREADS: 1" in made._model.programs[0].describe()
        with pytest.raises(
            UnknownOption, match=r"option 'load_config' .*: CPU has no property 'PERF_CONT'; did you mean 'PERF_CO"
        ):
            session(model(NET), load_config={"CPU": {"PERF_CONT": True}})

    def test_static_shapes(self) -> None:
        source = model(NET)
        made = session(source, disable_dynamic_shapes=True)
        program = made._model.programs[0]
        assert "for input shapes" not in program.describe()
        for batch in (1, 2, 1, *range(3, 13)):
            found = made.run(None, {"x": image(batch)})[0]
            np.testing.assert_allclose(found, expected(source, image(batch))[0], rtol=1e-5, atol=1e-6)
        assert "for input shapes [12, 3, 16, 16]:" in program.describe()
        assert len(program._pools) == 8

    def test_bounds_of_inputs(self) -> None:
        source = model(NET)
        made = session(source, reshape_input="x[1..4,3,16,16]", layout="x[NCHW]")
        assert made.run(None, {"x": image(3)})[0].shape == (3, 10)
        with pytest.raises(EPFail, match=r"OpenVINOExecutionProvider could not run its 6 nodes from 'Conv_0' to 'Softmax_5'"):
            made.run(None, {"x": image(5)})
        assert made.run(None, {"x": image(4)})[0].shape == (4, 10)
        with pytest.raises(InvalidArgument, match=r"option 'reshape_input': 'x' has 4 dimensions, got 2"):
            session(source, reshape_input="x[1,3]")
        with pytest.raises(InvalidArgument, match=r"option 'reshape_input': the model does not take these sizes"):
            session(source, reshape_input="x[1,4,16,16]")

    def test_names_that_are_no_inputs(self, caplog: pytest.LogCaptureFixture) -> None:
        session(model(NET), reshape_input="picture[1]")
        assert "option 'reshape_input' names picture, which are no inputs of this part; valid: 'x'" in caplog.text

    def test_without_effect_on_this_device(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING, "intarsia.providers.openvino"):
            session(model(NET), model_priority="HIGH", enable_opencl_throttling=True)
        assert "option 'enable_opencl_throttling' of OpenVINOExecutionProvider has no effect on CPU" in caplog.text

    def test_a_device_that_is_not_there(self) -> None:
        message = "openvino [0-9.a-z+-]+ finds no device 'GPU.7': it sees CPU.*; install the GPU's compute driver"
        with pytest.raises(EPFail, match=message):
            session(model(NET), device_type="GPU.7")
        with pytest.warns(ort.ProviderWarning, match=message):
            assert session(model(NET), CPU, device_type="GPU.7").get_providers() == [CPU]
        with pytest.raises(EPFail, match=r"no device has device_luid 'ff'"):
            session(model(NET), device_luid="ff")

    def test_effective_options(self) -> None:
        options = session(model(NET), device_type="CPU_FP32", num_of_threads="2").get_provider_options()[OPENVINO]
        assert options["device_type"] == "CPU_FP32"
        assert options["num_of_threads"] == "2"

    def test_devices(self) -> None:
        devices = OpenVINOExecutionProvider.devices()
        assert devices[0].kind == "cpu" and devices[0].host and devices[0].description


class TestMissing:
    @pytest.fixture(autouse=True)
    def fresh(self) -> object:
        runtime.missing.cache_clear()
        runtime.broken.cache_clear()
        yield
        runtime.missing.cache_clear()
        runtime.broken.cache_clear()

    def test_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        find = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "openvino" else find(name, *rest))
        message = r"the Python package 'openvino' was not found in .*; install it: pip install 'openvino>=2025.0', or intarsia"
        with pytest.raises(EPFail, match=message):
            ort.InferenceSession(model(NET), providers=[OPENVINO])
        assert OPENVINO not in ort.get_available_providers()
        with pytest.warns(ort.ProviderWarning, match=message):
            assert ort.InferenceSession(model(NET), providers=[OPENVINO, CPU]).get_providers() == [CPU]

    @needs_openvino
    def test_old(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runtime, "installed_version", lambda: "2022.1.0")
        assert "openvino 2022.1.0 (" in OpenVINOExecutionProvider.unavailable()
        assert "is older than 2024.4" in OpenVINOExecutionProvider.unavailable()

    @needs_openvino
    def test_broken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail() -> None:
            raise ImportError("libopenvino.so.2640: cannot open shared object file")

        monkeypatch.setattr(runtime, "core", fail)
        with pytest.raises(
            EPFail, match=r"openvino .* does not start: ImportError: libopenvino.so.2640: cannot open .*reinstall"
        ):
            ort.InferenceSession(model(NET), providers=[OPENVINO])


@needs_openvino
def test_is_not_imported_before_it_is_used() -> None:
    import subprocess

    code = (
        "import sys, intarsia; intarsia.get_available_providers(); from intarsia.providers import openvino; "
        "assert 'openvino' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
