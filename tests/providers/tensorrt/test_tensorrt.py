"""Sessions on an imitated TensorRT (fake_tensorrt), whose engines the reference provider runs: results, caches, faults."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.providers.tensorrt import library
from intarsia.providers.vendor.artifact_cache import vendor_compiles

NAME, RTX, CUDA, CPU = (
    "TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider",
)  # fmt: skip
MODEL = """
    <ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y)
    <float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 10}> {
        a = MatMul(x, w)
        b = Relu(a)
        c = Add(b, x)
        y = Softmax<axis = 1>(c)
    }"""
OPEN = MODEL.replace("float[2, 3] x", "float[n, 3] x").replace("float[2, 3] y", "float[n, 3] y")
X = np.float32([[0.1, -0.2, 0.3], [0.5, 0.1, -0.4]])
Make = Callable[..., Any]


def session(text: str = MODEL, name: str = NAME, others: tuple[Any, ...] = (), **given: Any) -> ort.InferenceSession:
    options = ort.SessionOptions()
    for key, value in {"partition.keep_islands": "1", "session.cache_weights_mib": "0"}.items():
        options.add_session_config_entry(key, value)
    model = onnx.parser.parse_model(text).SerializeToString()
    return ort.InferenceSession(model, options, providers=[(name, given), *others])


def expected(x: np.ndarray, w: Any = ((1, 2, 3), (4, 5, 6), (7, 8, 10))) -> np.ndarray:
    c = np.maximum(x @ np.float64(w), 0) + x
    e = np.exp(c - c.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def right(made: ort.InferenceSession, x: np.ndarray = X, rtol: float = 1e-5) -> bool:
    return bool(np.allclose(made.run(None, {"x": x})[0], expected(x), rtol=rtol))


def rows(count: int) -> np.ndarray:
    return np.linspace(-1, 1, count * 3, dtype=np.float32).reshape(count, 3)


@pytest.mark.parametrize("name", [NAME, RTX])
def test_a_whole_model_is_one_engine(imitated: Make, name: str) -> None:
    trt = imitated()
    made = session(name=name)
    told = made.explain()
    assert told.counts == {name: 4}
    assert {row.kernel for row in told.nodes} == {"TensorRT-RTX 1.7.1.116: __myl_Fused"}
    assert right(made) and right(made)
    assert (trt.builds, trt.loads, trt.runs) == (1, 1, 2)


def test_full_tensorrt_is_preferred_by_its_own_provider_alone(imitated: Make) -> None:
    full, rtx = imitated("tensorrt", version="10.9.0.34"), imitated("tensorrt_rtx")
    made = session()
    assert right(made) and (full.builds, rtx.builds) == (1, 0)
    assert "TensorRT 10.9.0.34" in str(made.explain())
    assert right(session(name=RTX)) and (full.builds, rtx.builds) == (1, 1)


def test_neighbours_of_cuda_share_its_memory(imitated: Make) -> None:
    """CUDA gets what TensorRT refuses; no tensor goes by way of the host between them."""
    imitated()
    text = """
        <ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y) {
            a = Relu(x)
            b = Mod<fmod = 1>(a, x)
            y = Exp(b)
        }"""
    made = session(text, others=(CUDA, CPU))
    assert made.explain().counts == {NAME: 2, CUDA: 1}
    copies = [line for line in str(made.explain()).splitlines() if " copy " in line]
    assert len(copies) == 2, copies
    assert "off by the quotient's rounding" in made.explain().nodes[1].refusals[NAME].reason


def test_what_it_lacks_goes_to_the_next(imitated: Make) -> None:
    trt = imitated()
    trt.lacks = frozenset(("Relu",))
    made = session(others=(CPU,))
    assert made.explain().counts == {NAME: 3, CPU: 1}
    assert made.explain().nodes[1].refusals[NAME].reason == "TensorRT-RTX 1.7.1.116 has no Relu"
    assert right(made)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_an_axis_behind_the_last_is_left_to_others(imitated: Make, op: str) -> None:
    """Old versions of these flatten before the axis, which may be the rank."""
    imitated()
    text = f"""
        <ir_version: 7, opset_import: ["": 11]> g (float[2, 3] x) => (float[2, 3] y) {{
            a = Relu(x)
            y = {op}<axis = 2>(a)
        }}"""
    made = session(text, others=(CPU,))
    assert "an axis behind the last" in made.explain().nodes[1].refusals[NAME].reason


def test_log_softmax_keeps_small_probabilities(imitated: Make) -> None:
    """Where the softmax itself is 0 in float32."""
    imitated()
    for opset, axis in ((11, 1), (17, -1)):
        text = f"""
            <ir_version: 7, opset_import: ["": {opset}]> g (float[2, 3] x) => (float[2, 3] y, float[2] s) {{
                y = LogSoftmax<axis = {axis}>(x)
                s = ReduceLogSumExp<axes = [1], keepdims = 0>(x)
            }}"""
        x = np.float32([[0, 200, 100], [1, 2, 3]])
        y, s = session(text).run(None, {"x": x})
        wide = x.astype(np.float64)
        total = wide.max(1) + np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1))
        np.testing.assert_allclose(y, wide - total[:, None], rtol=1e-6)
        np.testing.assert_allclose(s, total, rtol=1e-6)


class TestSizes:
    def test_without_a_profile_each_shape_has_an_engine(self, imitated: Make) -> None:
        trt = imitated()
        made = session(OPEN)
        for count in (2, 1, 2, 5):
            assert right(made, rows(count))
        assert (trt.builds, trt.profiles_set) == (3, 0)

    def test_a_profile_is_one_engine_for_many(self, imitated: Make) -> None:
        trt = imitated()
        shapes = {"trt_profile_min_shapes": "x:1x3", "trt_profile_opt_shapes": "x:4x3", "trt_profile_max_shapes": "x:8x3"}
        made = session(OPEN, **shapes)
        assert trt.requests[0]["config"].profiles == [{"x": ((1, 3), (4, 3), (8, 3))}]
        assert all(right(made, rows(count)) for count in (1, 3, 8))
        assert trt.builds == 1
        assert right(made, rows(9)) and trt.builds == 2  # outside: an engine of its own
        assert right(made, rows(2)) and trt.builds == 2

    def test_several_profiles(self, imitated: Make) -> None:
        trt = imitated()
        made = session(OPEN, RTX, nv_profile_min_shapes="x:1x3,x:16x3", nv_profile_max_shapes="x:4x3,x:32x3")
        for count in (2, 20, 20, 3):
            assert right(made, rows(count))
        assert (trt.builds, trt.profiles_set) == (1, 2)
        assert "2 profiles" in made._engine.whole_model().programs[0].describe()

    def test_parts_inside_the_model_follow_its_symbols(self, imitated: Make) -> None:
        """The second part takes what the CPU makes: [n, 3], as the model's input has it."""
        trt = imitated()
        trt.lacks = frozenset(("Relu",))
        made = session(OPEN, others=(CPU,), trt_profile_min_shapes="x:1x3", trt_profile_max_shapes="x:8x3")
        assert all(right(made, rows(count)) for count in (1, 5))
        assert trt.builds == 2 and all(len(r["config"].profiles) == 1 for r in trt.requests)

    def test_names_inside_the_model_count_too(self, imitated: Make, caplog: pytest.LogCaptureFixture) -> None:
        """As onnxruntime wants them where it cuts a model; a name that nothing has is said."""
        trt = imitated()
        trt.lacks = frozenset(("Relu",))
        given = {"trt_profile_min_shapes": "b:1x3,nowhere:1", "trt_profile_max_shapes": "b:8x3,nowhere:2"}
        with caplog.at_level(logging.WARNING, "intarsia.providers.tensorrt"):
            made = session(OPEN, others=(CPU,), **given)
        assert right(made, rows(5)) and all(r["config"].profiles for r in trt.requests)
        assert "a profile names 'nowhere'" in caplog.text

    @pytest.mark.parametrize(
        ("given", "match"),
        [
            ({"trt_profile_min_shapes": "x:1x3"}, "the same inputs equally often"),
            ({"trt_profile_opt_shapes": "x:1x3"}, "expected trt_profile_min_shapes and trt_profile_max_shapes"),
            ({"trt_profile_min_shapes": "x=1", "trt_profile_max_shapes": "x:1"}, "such as 'images:1x3x224x224', got 'x=1'"),
            ({"trt_profile_min_shapes": "x:2x3", "trt_profile_max_shapes": "x:1x3"}, "none larger than the next"),
            ({"trt_profile_min_shapes": "x:1x3,x:2x3", "trt_profile_max_shapes": "x:1x3"}, "equally often"),
            ({"trt_profile_min_shapes": "x:1x2", "trt_profile_max_shapes": "x:8x2"}, "varies a size that is 3 in the model"),
            ({"trt_profile_min_shapes": "x:1", "trt_profile_max_shapes": "x:8"}, "has 1 dimensions"),
        ],
    )
    def test_bad_profiles(self, imitated: Make, given: dict[str, str], match: str) -> None:
        imitated()
        with pytest.raises(ort.InvalidArgument, match=match):
            session(OPEN, **given)


class TestPrecision:
    @pytest.mark.parametrize(("option", "rtol"), [("trt_fp16_enable", 5e-3), ("trt_bf16_enable", 5e-2)])
    def test_halves(self, imitated: Make, option: str, rtol: float) -> None:
        imitated()
        made = session(**{option: True})
        found = made.run(None, {"x": X})[0]
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected(X), rtol=rtol)
        assert not np.allclose(found, expected(X), rtol=1e-6)

    def test_not_both(self, imitated: Make) -> None:
        imitated()
        with pytest.raises(ort.InvalidArgument, match="at most one of them"):
            session(trt_fp16_enable=True, trt_bf16_enable=True)

    def test_quantised_nodes(self, imitated: Make) -> None:
        text = """
            <ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y)
            <float scale = {0.5}, int8 zero = {0}> {
                q = QuantizeLinear(x, scale, zero)
                d = DequantizeLinear(q, scale, zero)
                y = Relu(d)
            }"""
        imitated()
        without = session(text, others=(CPU,))
        assert "trt_int8_enable is off" in without.explain().nodes[0].refusals[NAME].reason
        made = session(text, trt_int8_enable=True)
        assert (made.run(None, {"x": X})[0] == np.maximum(np.round(X * 2) / 2, 0)).all()

    def test_a_model_without_quantised_nodes(self, imitated: Make, caplog: pytest.LogCaptureFixture) -> None:
        imitated()
        with caplog.at_level(logging.WARNING, "intarsia.providers.tensorrt"):
            assert right(session(trt_int8_enable=True))
        assert "trt_int8_enable has no effect: quantise the model before" in caplog.text


class TestCaches:
    def test_the_second_session_builds_nothing(self, imitated: Make) -> None:
        trt = imitated()
        before = vendor_compiles(NAME)
        assert right(session()) and vendor_compiles(NAME) == before + 1
        assert right(session()) and vendor_compiles(NAME) == before + 1
        assert (trt.builds, trt.loads) == (1, 2)

    def test_in_a_folder_of_the_users(self, imitated: Make, tmp_path: Path) -> None:
        trt = imitated()
        given = {"trt_engine_cache_enable": True, "trt_engine_cache_path": str(tmp_path / "engines")}
        session(**given)
        assert list((tmp_path / "engines").rglob("artifact-*"))
        session(**given)
        assert trt.builds == 1
        session(**given, trt_engine_cache_prefix="other")
        assert trt.builds == 2 and list((tmp_path / "engines" / "other").rglob("artifact-*"))

    def test_another_version_builds_anew(self, imitated: Make, caplog: pytest.LogCaptureFixture) -> None:
        imitated()
        session()
        trt = imitated(version="1.8.0")
        with caplog.at_level(logging.DEBUG, "intarsia.providers.vendor"):
            assert right(session())
        assert trt.builds == 1
        assert "tensorrt_rtx was '1.7.1.116' and is '1.8.0'" in caplog.text

    def test_an_engine_that_does_not_load_is_built_anew(self, imitated: Make) -> None:
        trt = imitated()
        session()
        trt.fault = "load"
        assert right(session())
        assert trt.builds == 2

    def test_kernels_made_for_this_machine_are_kept(self, imitated: Make, tmp_path: Path) -> None:
        """What TensorRT-RTX compiles in the first run is there for the next session."""
        trt = imitated()
        given = {"nv_runtime_cache_path": str(tmp_path / "kernels")}
        assert right(session(name=RTX, **given))
        assert len(trt.kernels_kept) == 1 and list((tmp_path / "kernels").rglob("tensorrt-kernels-*"))
        assert right(session(name=RTX, **given)) and len(trt.kernels_kept) == 1

    def test_times_of_kernels_are_kept(self, imitated: Make, tmp_path: Path) -> None:
        trt = imitated("tensorrt", version="10.9.0.34")
        given = {"trt_timing_cache_enable": True, "trt_timing_cache_path": str(tmp_path / "times")}
        session(**given)
        session(OPEN, **given).run(None, {"x": rows(4)})
        assert trt.requests[-1]["config"].timing.data == b"measured;"

    def test_compiled_models(self, imitated: Make, tmp_path: Path) -> None:
        """EPContext nodes hold the engine; another version of the library asks for the model again."""
        trt = imitated()
        options = ort.SessionOptions()
        options.add_session_config_entry("partition.keep_islands", "1")
        options.add_session_config_entry("ep.context_enable", "1")
        options.add_session_config_entry("ep.context_file_path", str(tmp_path / "context.onnx"))
        ort.InferenceSession(onnx.parser.parse_model(MODEL).SerializeToString(), options, providers=[NAME])
        made = ort.InferenceSession(str(tmp_path / "context.onnx"), providers=[NAME])
        assert right(made) and trt.builds == 1
        imitated(version="1.8.0")
        with pytest.raises(ort.ModelRequiresCompilation, match="it needs"):
            ort.InferenceSession(str(tmp_path / "context.onnx"), providers=[NAME])


class TestRefit:
    OTHER = MODEL.replace("{1, 2, 3, 4, 5, 6, 7, 8, 10}", "{10, 8, 7, 6, 5, 4, 3, 2, 1}")
    LARGE = """
        <ir_version: 8, opset_import: ["": 17]> g (float[2, 8] x) => (float[2, 8] y)
        <float[8, 8] w = {%s}> { a = MatMul(x, w)  y = Relu(a) }"""

    def text(self, seed: int) -> tuple[str, np.ndarray]:
        w = np.random.default_rng(seed).integers(-9, 9, (8, 8))
        return self.LARGE % ", ".join(map(str, w.reshape(-1))), w

    def test_other_weights_need_no_other_engine(self, imitated: Make) -> None:
        trt = imitated()
        x = np.random.default_rng(2).random((2, 8), np.float32)
        for seed in (0, 1):
            text, w = self.text(seed)
            made = session(text, trt_weight_stripped_engine_enable=True)
            np.testing.assert_allclose(made.run(None, {"x": x})[0], np.maximum(x @ w, 0), rtol=1e-5)
        assert (trt.builds, trt.refits) == (1, 2)

    def test_weights_that_are_not_taken(self, imitated: Make) -> None:
        trt = imitated()
        trt.fault = "refit"
        with pytest.raises(ort.EPFail, match=r"could not put weights into an engine: .*refits nothing"):
            session(self.text(0)[0], trt_weight_stripped_engine_enable=True)


def test_a_profile_has_the_engines_layers(imitated: Make, tmp_path: Path) -> None:
    imitated()
    options = ort.SessionOptions()
    options.add_session_config_entry("partition.keep_islands", "1")
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "trace")
    made = ort.InferenceSession(onnx.parser.parse_model(MODEL).SerializeToString(), options, providers=[NAME])
    assert right(made)
    text = Path(made.end_profiling()).read_text(encoding="utf-8")
    assert "TensorRT-RTX 1.7.1.116: __myl_Fused" in text


class TestFaults:
    @pytest.mark.parametrize(
        ("fault", "match"),
        [
            ("build", "builds no engine of it: .*the imitation broke"),
            ("nothing", "builds no engine of it: it gave no engine and no reason"),
            ("load", "does not load an engine on Imagined GPU .compute capability 9.0.: .*loads nothing"),
            ("context", "gives no context to run an engine in: .*no memory for a context"),
        ],
    )
    def test_errors_say_what_the_logger_was_told(self, imitated: Make, fault: str, match: str) -> None:
        trt = imitated()
        trt.fault = fault
        with pytest.raises(ort.EPFail, match=match):
            session()
        trt.fault = fault
        with pytest.warns(ort.ProviderWarning, match=match):
            made = session(others=(CPU,))
        assert made.explain().counts == {CPU: 4} and right(made)
        assert right(session())  # nothing of it was cached
        assert trt.machine.used_nbytes < 1 << 20

    def test_too_little_workspace(self, imitated: Make) -> None:
        trt = imitated()
        trt.workspace_needed = 1 << 20
        with pytest.raises(ort.OutOfMemory, match="the options allow 1,024 bytes of scratch memory"):
            session(trt_max_workspace_size=1024)
        assert right(session(trt_max_workspace_size=1 << 21))
        assert list(trt.requests[-1]["limits"].values()) == [1 << 21]

    def test_a_failed_run_goes_on_with_the_next(self, imitated: Make) -> None:
        trt = imitated()
        alone, both = session(), session(others=(CPU,))
        trt.fault = "run"
        with pytest.raises(ort.EPFail, match=r"failed in a run: .*enqueueV3"):
            alone.run(None, {"x": X})
        assert right(alone)
        trt.fault = "run"
        with pytest.warns(ort.ProviderWarning, match="failed in a run"):
            assert right(both)

    def test_a_lost_device(self, imitated: Make) -> None:
        trt = imitated()
        made = session()
        trt.fault = "lost"
        with pytest.raises(ort.DeviceLost, match="what was in its memory is gone"):
            made.run(None, {"x": X})

    def test_a_shape_outside_is_told(self, imitated: Make) -> None:
        trt = imitated()
        made = session(OPEN, trt_profile_min_shapes="x:1x3", trt_profile_max_shapes="x:4x3")
        program = made._engine.whole_model().programs[0]
        executable, _ = program._loaded[None]
        gpu = executable.gpu
        from intarsia.device.gpu import GpuTransfer

        tensor = GpuTransfer(gpu).copy_in(rows(5), gpu.device)
        with pytest.raises(ort.EPFail, match=r"takes no input 'x' of shape \[5, 3\]: .*does not satisfy any profile"):
            executable.run([tensor])
        assert trt.runs == 0

    def test_building_can_be_stopped(self, imitated: Make) -> None:
        trt = imitated()
        seen: list[float] = []

        def watch(at: Any) -> bool:
            seen.append(at.fraction)
            return at.stage != "compile" or at.done < 2

        options = ort.SessionOptions()
        options.set_progress_callback(watch)
        model = onnx.parser.parse_model(MODEL).SerializeToString()
        with pytest.raises(ort.ModelLoadCanceled):
            ort.InferenceSession(model, options, providers=[NAME])
        assert trt.cancelled and seen == sorted(seen)

    def test_memory_goes_back(self, imitated: Make) -> None:
        trt = imitated()
        made = session()
        gpu = made._engine.whole_model().programs[0]._loaded[None][0].gpu
        assert gpu.holders().get("TensorRT's engines", 0) > 4096
        right(made)
        del made
        import gc

        gc.collect()
        assert "TensorRT's engines" not in gpu.holders()
        assert trt.machine.log.count("in") >= 1


def test_many_threads(imitated: Make) -> None:
    imitated()
    made = session(OPEN, trt_profile_min_shapes="x:1x3", trt_profile_max_shapes="x:8x3")
    wrong: list[int] = []

    def work(count: int) -> None:
        wrong.extend(count for _ in range(5) if not right(made, rows(count)))

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_outputs_that_no_node_computes(imitated: Make) -> None:
    imitated()
    text = """
        <ir_version: 8, opset_import: ["": 17]> g (float[n, 3] x) => (int64[2] s, float[n, 3] y) {
            s = Shape(x)
            y = Relu(x)
        }"""
    made = session(text, others=(CPU,))
    s, y = made.run(None, {"x": X})
    assert s.tolist() == [2, 3] and (y == np.maximum(X, 0)).all()


class TestOptions:
    def test_the_documents_own(self, imitated: Make, tmp_path: Path) -> None:
        imitated()
        given = {
            "device_id": 0, "trt_max_workspace_size": 2 * 1024**3, "trt_fp16_enable": True, "trt_int8_enable": False,
            "trt_engine_cache_enable": True, "trt_engine_cache_path": str(tmp_path), "trt_strict_type_constraints": True,
        }  # fmt: skip
        made = session(others=(CUDA, CPU), **given)
        assert right(made, rtol=5e-3)
        shown = made.get_provider_options()[NAME]
        assert (shown["trt_fp16_enable"], shown["trt_max_workspace_size"]) == ("1", str(2 * 1024**3))
        assert made.get_providers()[0] == NAME

    def test_what_has_no_effect_is_said(self, imitated: Make, caplog: pytest.LogCaptureFixture) -> None:
        imitated()
        with caplog.at_level(logging.WARNING, "intarsia.providers.tensorrt"):
            session(trt_strict_type_constraints=False, trt_dla_core=1)
        assert "no effect with TensorRT-RTX 1.7.1.116: trt_dla_core, trt_strict_type_constraints" in caplog.text

    @pytest.mark.parametrize(
        ("library", "version", "told"), [("tensorrt", "10.9.0.34", True), ("tensorrt_rtx", "1.7.1.116", False)]
    )
    def test_graphs_of_launches_are_rtxs_alone(
        self, imitated: Make, caplog: pytest.LogCaptureFixture, library: str, version: str, told: bool
    ) -> None:
        imitated(library, version=version)
        with caplog.at_level(logging.WARNING, "intarsia.providers.tensorrt"):
            session(trt_cuda_graph_enable=True)
        assert ("trt_cuda_graph_enable" in caplog.text) == told

    @pytest.mark.parametrize(
        ("given", "error", "match"),
        [
            ({"trt_dla_enable": True}, ort.NotImplemented, "'trt_dla_enable': the deep learning accelerators"),
            ({"trt_int8_calibration_table_name": "t"}, ort.NotImplemented, "with QuantizeLinear and DequantizeLinear"),
            ({"trt_builder_optimization_level": 9}, ort.InvalidArgument, "from 0 to 5, got 9"),
            ({"trt_compute_capabilities": "SM81"}, ort.InvalidArgument, "'SM81' is no chip .*SM8"),
            ({"trt_max_workspace_size": -1}, ort.InvalidArgument, "a number of bytes"),
            ({"has_user_compute_stream": True}, ort.InvalidArgument, "expected the stream's address"),
            ({"trt_extra_plugin_lib_paths": "/nowhere/plugins.so"}, ort.EPFail, "the plugins in '/nowhere/plugins.so'"),
            ({"device_id": 3}, ort.EPFail, "device_id is 3; there is 1 device"),
            ({"trt_fp16": True}, ort.UnknownOption, "trt_fp16_enable"),
        ],
    )
    def test_bad_ones(self, imitated: Make, given: dict[str, Any], error: type[Exception], match: str) -> None:
        imitated()
        with pytest.raises(error, match=match):
            session(**given)

    def test_excluded_operators_and_small_parts(self, imitated: Make) -> None:
        imitated()
        with pytest.warns(ort.ProviderWarning, match=r"(?s)2 x supported, but in none of.*1 x the options exclude Relu"):
            session(others=(CPU,), trt_op_types_to_exclude="Relu,Softmax", trt_min_subgraph_size=2)
        assert session(others=(CPU,), trt_op_types_to_exclude="Softmax", trt_min_subgraph_size=3).explain().counts == {
            NAME: 3, CPU: 1,
        }  # fmt: skip

    def test_chips(self, imitated: Make) -> None:
        trt = imitated()
        with pytest.raises(ort.EPFail, match=r"does not load an engine on Imagined GPU .*: unsupported cc"):
            session(trt_compute_capabilities="SM80,sm89")
        assert [int(chip) for chip in trt.requests[-1]["chips"]] == [80, 89]

    def test_full_tensorrt_builds_for_the_gpu_that_is_there(self, imitated: Make) -> None:
        imitated("tensorrt", version="10.9.0.34")
        with pytest.raises(ort.EPFail, match="engines for other chips need TensorRT-RTX"):
            session(trt_compute_capabilities="SM80")


class TestMissing:
    def test_neither_library(self, imitated: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        import sys

        for name in (library.FULL, library.RTX):
            monkeypatch.setitem(sys.modules, name, None)
        library.opened.cache_clear()
        with pytest.raises(ort.EPFail, match=r"the package tensorrt.* is not installed; .*pip install 'intarsia\[tensorrt\]'"):
            session()

    def test_bindings_without_their_library_are_passed_over(self, imitated: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        """As pip installs full TensorRT from PyPI alone: its bindings look for libnvonnxparser.so."""
        import importlib

        trt, before = imitated(), importlib.import_module

        def broken(name: str, *args: Any) -> Any:
            if name == "tensorrt":
                raise ImportError("libnvonnxparser.so.11: cannot open shared object file")
            return before(name, *args)

        monkeypatch.setattr(importlib, "import_module", broken)
        library.opened.cache_clear()
        assert right(session()) and trt.builds == 1
        assert "libnvonnxparser.so.11" in library.missing(("tensorrt",))

    def test_an_old_version_is_passed_over(self, imitated: Make) -> None:
        imitated("tensorrt", version="8.6.1")
        trt = imitated("tensorrt_rtx")
        assert right(session()) and trt.builds == 1
        assert "it is version 8.6.1, and 10 or later is needed" in library.missing(("tensorrt",))

    def test_no_gpu(self, imitated: Make) -> None:
        trt = imitated()
        trt.machine.devices = 0
        from intarsia.device import cuda

        cuda.missing.cache_clear()
        with pytest.raises(ort.EPFail, match=r"NVIDIA's driver finds no GPU.* It needs "):
            session()
