"""What programs rely on that were written against onnxruntime: forms of results, files and errors."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper as h
from onnx import numpy_helper

import intarsia as ort
from intarsia import backend
from intarsia.capi._pybind_state import (
    OrtDeviceEpIncompatibilityReason,
    OrtValueVector,
    get_ep_devices,
    get_model_compatibility_for_ep_devices,
)
from intarsia.datasets import get_example
from intarsia.errors import ExternalDataError, Fail, InvalidArgument, WrongType
from intarsia.session import process_settings

W = np.float32([[1, 2], [3, 4], [5, 6]])
CPU = "CPUExecutionProvider"


@pytest.fixture
def as_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode that `install_as` sets."""
    monkeypatch.setenv("INTARSIA_PROVIDER_FALLBACK", "warn")


def model(nodes, inputs, outputs, constants=(), ir_version: int = 8, **opsets: int) -> onnx.ModelProto:
    graph = h.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in constants])
    imports = [h.make_opsetid("", 17), *(h.make_opsetid(d.replace("_", "."), v) for d, v in opsets.items())]
    return h.make_model(graph, opset_imports=imports, ir_version=ir_version)


def floats(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return h.make_tensor_value_info(name, 1, shape)


def chain() -> onnx.ModelProto:
    nodes = [
        h.make_node("Add", ["a", "b"], ["s"], name="first"),
        h.make_node("Mul", ["s", "b"], ["p"], name="second"),
        h.make_node("Add", ["p", "a"], ["y"], name="third"),
    ]
    return model(nodes, [floats("a", 3), floats("b", 3)], [floats("y", 3)])


class TestSparse:
    def made(self, value: onnx.ModelProto) -> ort.InferenceSession:
        return ort.InferenceSession(value.SerializeToString(), providers=[CPU])

    def test_outputs_of_a_sparse_type_are_sparse(self) -> None:
        values = h.make_tensor("v", 1, [3], [1.5, -2.0, 0.25])
        sparse = h.make_sparse_tensor(values, h.make_tensor("i", 7, [3], [2, 3, 5]), [3, 3])
        output = h.make_sparse_tensor_value_info("y", 1, [3, 3])
        session = self.made(model([h.make_node("Constant", [], ["y"], sparse_value=sparse)], [], [output]))
        (given,) = session.run(None, {})
        assert isinstance(given, ort.SparseTensor)
        assert (given.dense_shape(), given.values().tolist()) == ([3, 3], [1.5, -2.0, 0.25])
        assert given.as_coo_view().indices().tolist() == [2, 3, 5]
        (value,) = session.run_with_ort_values(["y"], {})
        assert value.as_sparse_tensor().values().tolist() == [1.5, -2.0, 0.25]

    def test_strings(self) -> None:
        found = ort.SparseTensor.from_dense(np.array([["", "a"], ["b", ""]], dtype=object))
        assert (found.values().tolist(), found.as_coo_view().indices().tolist()) == (["a", "b"], [1, 2])

    @pytest.mark.parametrize(("trans_a", "trans_b", "alpha"), [(0, 0, 1.0), (1, 0, 0.5), (0, 1, 2.0)])
    def test_sparse_by_dense(self, trans_a: int, trans_b: int, alpha: float) -> None:
        node = h.make_node(
            "SparseToDenseMatMul", ["a", "b"], ["y"], domain="com.microsoft", transA=trans_a, transB=trans_b, alpha=alpha
        )
        a = h.make_sparse_tensor_value_info("a", 1, [3, 3])
        session = self.made(model([node], [a, floats("b", 3, 3)], [floats("y", 3, 3)], com_microsoft=1))
        dense = np.float32([[0, 2, 0], [0, 0, -1], [4, 0, 0]])
        b = np.arange(9, dtype=np.float32).reshape(3, 3)
        (y,) = session.run(None, {"a": ort.SparseTensor.from_dense(dense), "b": b})
        np.testing.assert_array_equal(y, alpha * (dense.T if trans_a else dense) @ (b.T if trans_b else b))


class TestInitializersThatAreInputs:
    def test_other_sizes_where_the_model_leaves_them_open(self, tmp_path: Path) -> None:
        inputs = [floats("x", 4, 4), floats("a", 4, "rank"), floats("b", "rank", 4)]
        nodes = [h.make_node("MatMul", ["x", "a"], ["t"]), h.make_node("MatMul", ["t", "b"], ["y"])]
        empty = [("a", np.zeros((4, 0), np.float32)), ("b", np.zeros((0, 4), np.float32))]
        given = model(nodes, inputs, [floats("y", 4, 4)], empty)
        options = ort.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "o.onnx")
        ort.InferenceSession(given.SerializeToString(), options, providers=[CPU])
        x, a, b = np.ones((4, 4), np.float32), np.float32([[1], [2], [3], [4]]), np.float32([[5, 6, 7, 8]])
        for source in (given.SerializeToString(), options.optimized_model_filepath):
            session = ort.InferenceSession(source, providers=[CPU])
            assert [v.shape for v in session.get_overridable_initializers()] == [[4, "rank"], ["rank", 4]]
            assert session.run(None, {"x": x})[0].tolist() == np.zeros((4, 4)).tolist()
            np.testing.assert_array_equal(session.run(None, {"x": x, "a": a, "b": b})[0], x @ a @ b)

    def test_a_wrong_declared_type_is_not_taken(self) -> None:
        given = model([h.make_node("Neg", ["a"], ["y"])], [floats("a", 2)], [floats("y", 4)], [("a", np.ones(4, np.float32))])
        session = ort.InferenceSession(given.SerializeToString(), providers=[CPU])
        assert session.get_overridable_initializers()[0].shape == [4]


def test_settings_in_the_model_may_ask_for_a_profile(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    given = chain()
    h.set_model_props(given, {"ort_config": json.dumps({"session_options": {"enable_profiling": 1}})})
    session = ort.InferenceSession(given.SerializeToString(), providers=[CPU])
    assert session.get_session_options().enable_profiling is True
    assert session.get_profiling_start_time_ns() > 0
    assert Path(session.end_profiling()).is_file()


def test_profiles_have_onnxruntimes_form(tmp_path: Path) -> None:
    onnx.save(chain(), tmp_path / "m.onnx")
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "p")
    one = np.ones(3, np.float32)
    files = []
    for _ in range(2):
        session = ort.InferenceSession(tmp_path / "m.onnx", options, providers=[CPU])
        session.run(None, {"a": one, "b": one})
        files.append(session.end_profiling())
    assert files[0] != files[1], "names have milliseconds"
    events = json.loads(Path(files[0]).read_text(encoding="utf-8"))
    assert {"model_loading_uri", "session_initialization", "model_run"} <= {e["name"] for e in events if e["cat"] == "Session"}
    nodes = [e for e in events if e["cat"] == "Node"]
    assert {e["name"] for e in nodes} <= {f"{n}_kernel_time" for n in ("first", "second", "third")}
    assert {e["args"]["provider"] for e in nodes} == {CPU}
    assert set("+".join(e["args"]["op_name"] for e in nodes).split("+")) == {"Add", "Mul"}


def test_assignments_name_the_nodes_of_the_cpu_one_by_one() -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    found = ort.InferenceSession(chain().SerializeToString(), options).get_provider_graph_assignment_info()
    assert [s.ep_name for s in found] == [CPU] * 3
    named = [[(n.domain, n.op_type, n.name) for n in s.get_nodes()] for s in found]
    assert named == [[("", "Add", "first")], [("", "Mul", "second")], [("", "Add", "third")]]


def test_cast_like_is_saved_as_a_cast(tmp_path: Path) -> None:
    nodes = [h.make_node("CastLike", ["x", "like"], ["c"]), h.make_node("ReduceSum", ["c"], ["y"], keepdims=0)]
    output = h.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, [])
    given = model(nodes, [floats("x", "n")], [output], [("like", np.zeros(1, np.float64))])
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "o.onnx")
    session = ort.InferenceSession(given.SerializeToString(), options, providers=[CPU])
    assert session.run(None, {"x": np.float32([0.5, 2])})[0] == 2.5
    saved = onnx.load(options.optimized_model_filepath).graph
    assert [n.op_type for n in saved.node] == ["Cast", "ReduceSum"]
    assert (saved.node[0].attribute[0].name, saved.node[0].attribute[0].i) == ("to", onnx.TensorProto.DOUBLE)
    assert not [i for i in saved.initializer if i.name == "like"]


class TestValues:
    def test_low_level_runs_give_a_vector(self) -> None:
        session = ort.InferenceSession(get_example("mul_1.onnx"), providers=[CPU])
        value = ort.OrtValue.ortvalue_from_numpy(W)
        found = session._sess.run_with_ort_values({"X": value._get_c_value()}, ["Y"], ort.RunOptions())
        assert isinstance(found, OrtValueVector)
        np.testing.assert_array_equal(found[0].numpy(), W * W)

    def test_results_are_views(self) -> None:
        session = ort.InferenceSession(get_example("mul_1.onnx"), providers=[CPU])
        (y,) = session.run(None, {"X": W})
        assert y.base is not None
        assert y.flags.writeable

    def test_zeros_at_the_end_of_void_elements_belong_to_strings(self) -> None:
        text = h.make_tensor_value_info("x", onnx.TensorProto.STRING, [3])
        node = h.make_node("OneHotEncoder", ["x"], ["y"], domain="ai.onnx.ml", cats_strings=["b\0b\0", "c\0c\0"], zeros=1)
        given = model([node], [text], [floats("y", 3, 2)], ai_onnx_ml=1)
        session = ort.InferenceSession(given.SerializeToString(), providers=[CPU])
        words = np.array([b"a\0a\0", b"b\0b\0", b"c\0c\0"], np.void)
        assert session.run(None, {"x": words})[0].tolist() == [[0, 0], [1, 0], [0, 1]]
        longer = np.array([b"a\0a\0\0", b"b\0b\0\0", b"c\0c\0\0"], np.void)
        assert session.run(None, {"x": longer})[0].sum() == 0

    def test_a_backend_takes_a_map_as_the_only_input(self) -> None:
        kind = h.make_map_type_proto(onnx.TensorProto.INT64, h.make_tensor_type_proto(1, []))
        node = h.make_node("DictVectorizer", ["m"], ["y"], domain="ai.onnx.ml", int64_vocabulary=[0, 1, 2])
        given = model([node], [h.make_value_info("m", kind)], [floats("y", 1, 3)], ai_onnx_ml=1)
        assert backend.prepare(given.SerializeToString()).run({0: 2.5, 2: -1.0})[0].tolist() == [[2.5, 0, -1]]


def test_the_iris_example_gives_onnxruntimes_numbers() -> None:
    labels, probabilities = backend.prepare(get_example("logreg_iris.onnx")).run(W)
    assert labels.tolist() == [0, 0, 0]
    expected = [[0.9505997, 0.0278342, 0.0215661], [0.9974971, 5.63e-05, 0.0024467], [0.9997311, 1.2e-07, 0.0002687]]
    assert np.allclose([[p[k] for k in range(3)] for p in probabilities], expected, atol=1e-6)


class TestCompiler:
    """Where Intarsia stands in for onnxruntime, a compiler without a named provider compiles nothing."""

    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "m.onnx"
        nodes = [h.make_node("MatMul", ["x", "w"], ["t"]), h.make_node("Identity", ["t"], ["y"])]
        given = model(nodes, [floats("x", 2, 3)], [floats("y", 2, 2)], [("w", W)])
        onnx.save(given, path, save_as_external_data=True, location="m.bin", size_threshold=8)
        return path

    @pytest.mark.usefixtures("as_onnxruntime")
    def test_without_a_provider(self, tmp_path: Path) -> None:
        path = self.path(tmp_path)
        plain = onnx.load_from_string(ort.ModelCompiler(ort.SessionOptions(), path).compile_to_bytes())
        assert [n.op_type for n in plain.graph.node] == ["MatMul", "Identity"]
        level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        less = ort.ModelCompiler(ort.SessionOptions(), path, graph_optimization_level=level).compile_to_bytes()
        assert [n.op_type for n in onnx.load_from_string(less).graph.node] == ["MatMul"]
        flags = ort.OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED
        with pytest.raises(Fail, match=r"Unable to compile any nodes.*no provider is named \(SessionOptions.add_provider\)"):
            ort.ModelCompiler(ort.SessionOptions(), path, flags=flags).compile_to_bytes()
        options = ort.SessionOptions()
        options.add_provider(CPU, {})
        made = ort.ModelCompiler(options, path, True, flags=flags).compile_to_bytes()
        assert [n.op_type for n in onnx.load_from_string(made).graph.node] == ["EPContext"]

    @pytest.mark.usefixtures("as_onnxruntime")
    def test_the_program_is_told_where_weights_are(self, tmp_path: Path) -> None:
        path, told = self.path(tmp_path), {}

        def keep(name, value, info):
            told[name] = (value.tensor_size_in_bytes(), info)
            return info

        ort.ModelCompiler(ort.SessionOptions(), path, get_initializer_location_func=keep).compile_to_file(tmp_path / "o.onnx")
        assert told == {"w": (W.nbytes, ort.OrtExternalInitializerInfo("m.bin", 0, W.nbytes))}
        saved = onnx.load(tmp_path / "o.onnx", load_external_data=False).graph.initializer[0]
        assert {e.key: e.value for e in saved.external_data} == {"location": "m.bin", "offset": "0", "length": str(W.nbytes)}
        x = np.ones((2, 3), np.float32)
        np.testing.assert_array_equal(ort.InferenceSession(tmp_path / "o.onnx").run(None, {"x": x})[0], x @ W)
        (tmp_path / "m.bin").write_bytes(bytes(W.nbytes))  # other numbers: the place is no place of these any more
        options = ort.SessionOptions()
        options.add_initializer("w", W)
        ort.ModelCompiler(options, path, get_initializer_location_func=keep).compile_to_bytes()
        assert told == {"w": (W.nbytes, None)}

    def test_compatibility_is_asked_with_text(self) -> None:
        with pytest.raises(WrongType, match="compatibility_info: expected text, got None"):
            get_model_compatibility_for_ep_devices(get_ep_devices(), None)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="expected devices"):
            get_model_compatibility_for_ep_devices([], "text")
        assert OrtDeviceEpIncompatibilityReason.UNKNOWN.value == -(2**31)


def test_threads_of_its_own_after_global_pools(as_onnxruntime, monkeypatch) -> None:
    monkeypatch.setattr(process_settings, "_pools_are_global", True)
    data, options = chain().SerializeToString(), ort.SessionOptions()
    with pytest.raises(Fail, match=r"use_per_session_threads is True: expected a session that shares"):
        ort.InferenceSession(data, options)
    options.use_per_session_threads = False
    ort.InferenceSession(data, options)
    monkeypatch.delenv("INTARSIA_PROVIDER_FALLBACK")
    ort.InferenceSession(data)


def test_links_out_of_the_folder(tmp_path: Path) -> None:
    for name in ("model", "data", "snapshot"):
        (tmp_path / name).mkdir()
    given = model([h.make_node("Add", ["x", "w"], ["y"])], [floats("x", 3, 2)], [floats("y", 3, 2)], [("w", W)])
    onnx.save(given, tmp_path / "model" / "one", save_as_external_data=True, location="d.bin", size_threshold=0)
    (tmp_path / "model" / "d.bin").rename(tmp_path / "data" / "two")
    (tmp_path / "snapshot" / "m.onnx").symlink_to(tmp_path / "model" / "one")
    (tmp_path / "snapshot" / "d.bin").symlink_to(tmp_path / "data" / "two")
    with pytest.raises(ExternalDataError, match=r"External data path validation failed for .*leads out of the model's folder"):
        ort.InferenceSession(tmp_path / "snapshot" / "m.onnx")


@pytest.mark.parametrize("location", ["../data/d.bin", "{absolute}"])
def test_further_folders_of_external_data(tmp_path: Path, location: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "data").mkdir()
    given = model([h.make_node("Add", ["x", "w"], ["y"])], [floats("x", 3, 2)], [floats("y", 3, 2)], [("w", W)])
    onnx.save(given, tmp_path / "model" / "m.onnx", save_as_external_data=True, location="d.bin", size_threshold=0)
    (tmp_path / "model" / "d.bin").rename(tmp_path / "data" / "d.bin")
    moved = onnx.load(tmp_path / "model" / "m.onnx", load_external_data=False)
    moved.graph.initializer[0].external_data[0].value = location.format(absolute=tmp_path / "data" / "d.bin")
    onnx.save(moved, tmp_path / "model" / "m.onnx")
    options = ort.SessionOptions()
    options.whitelisted_data_folders = str(tmp_path / "mod")
    with pytest.raises(
        ExternalDataError, match=r"validation failed .*those that SessionOptions\.whitelisted_data_folders names"
    ):
        ort.InferenceSession(tmp_path / "model" / "m.onnx", options)
    options.whitelisted_data_folders = f"/nowhere;{tmp_path / 'data'}"
    session = ort.InferenceSession(tmp_path / "model" / "m.onnx", options)
    np.testing.assert_array_equal(session.run(None, {"x": np.zeros((3, 2), np.float32)})[0], W)


class TestLogCallback:
    @pytest.fixture(autouse=True)
    def restored(self):
        yield
        ort.set_default_logger_callback(None)
        ort.set_default_logger_severity(2)

    def test_records_go_to_the_program(self, capsys) -> None:
        records: list[tuple[int, str, str, str, str]] = []
        ort.set_default_logger_callback(lambda *record: records.append(record), severity=0)
        options = ort.SessionOptions()
        options.logid = "mine"
        ort.InferenceSession(chain().SerializeToString(), options, providers=[CPU])
        assert [type(part) for part in records[0]] == [int, str, str, str, str]
        assert {0} <= {severity for severity, *_ in records}
        assert "mine" in {logid for _, _, logid, *_ in records}
        assert any("placement of the model" in message for *_, message in records)
        assert "placement" not in capsys.readouterr().err
        seen = len(records)
        ort.set_default_logger_callback(None)
        ort.InferenceSession(chain().SerializeToString(), options, providers=[CPU])
        assert len(records) == seen

    def test_what_it_raises_stops_nothing(self, monkeypatch, capsys) -> None:
        def fails(*_: object) -> None:
            raise ValueError("on purpose")

        hooked: list[BaseException] = []
        monkeypatch.setattr("sys.unraisablehook", lambda told: hooked.append(told.exc_value))
        monkeypatch.setattr("logging.root.handlers", [])  # pytest's own
        ort.set_default_logger_callback(fails, severity=0)
        ort.InferenceSession(chain().SerializeToString(), providers=[CPU])
        assert hooked
        assert {str(error) for error in hooked} == {"on purpose"}
        assert "placement of the model" in capsys.readouterr().err

    def test_records_that_it_causes_do_not_come_back_to_it(self, monkeypatch, capsys) -> None:
        from intarsia.log import logger

        records: list[str] = []

        def logs(severity: int, category: str, logid: str, place: str, message: str) -> None:
            records.append(message)
            logger.error("about %s", message)

        monkeypatch.setattr("logging.root.handlers", [])
        ort.set_default_logger_callback(logs)
        logger.warning("one")
        logger.info("below the severity")
        assert records == ["one"]
        assert "about one" in capsys.readouterr().err

    def test_it_may_wait_for_another_threads_record(self) -> None:
        from intarsia.log import logger

        records: list[str] = []

        def waits(severity: int, category: str, logid: str, place: str, message: str) -> None:
            records.append(message)
            if message == "first":
                other = threading.Thread(target=logger.error, args=("second",))
                other.start()
                other.join()

        ort.set_default_logger_callback(waits)
        logger.error("first")
        assert records == ["first", "second"]

    def test_none_keeps_the_severity(self) -> None:
        from intarsia.log import logger

        ort.set_default_logger_callback(print, severity=4)
        ort.set_default_logger_callback(None)
        assert logger.level == logging.CRITICAL

    def test_sessions_that_exist_keep_their_severity(self) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        session = ort.InferenceSession(chain().SerializeToString(), options, providers=[CPU])
        records: list[str] = []
        ort.set_default_logger_callback(lambda *record: records.append(record[-1]), severity=0)
        session._engine.log.info("not this")
        session._engine.log.error("this")
        assert records == ["this"]

    def test_errors(self) -> None:
        for severity in (-1, 5):
            with pytest.raises(InvalidArgument, match=r"log severity: expected 0 \(verbose\) to 4 \(fatal\)"):
                ort.set_default_logger_callback(print, severity=severity)
        with pytest.raises(WrongType, match="set_default_logger_callback: expected a function or None, got 'print'"):
            ort.set_default_logger_callback("print")  # type: ignore[arg-type]


@pytest.mark.parametrize("provider", ["ReferenceExecutionProvider", CPU])
def test_float8_products_as_the_quantiser_writes_them(provider: str) -> None:
    import ml_dtypes

    float8, kind = ml_dtypes.float8_e4m3fn, onnx.TensorProto.FLOAT8E4M3FN
    random = np.random.default_rng(0)
    a, b = (random.uniform(-1, 1, shape).astype(float8) for shape in ((3, 4), (4, 5)))
    node = h.make_node("QLinearMatMul", ["a", "as", "zero", "b", "bs", "zero", "ys", "zero"], ["y"], domain="com.microsoft")
    inputs, outputs = (h.make_tensor_value_info(n, kind, shape) for n, shape in (("a", [3, 4]), ("y", [3, 5])))
    scales = [("as", np.float32(0.5)), ("bs", np.float32(0.25)), ("ys", np.float32(0.125))]
    given = model([node], [inputs], [outputs], scales, com_microsoft=1)
    given.opset_import[0].version = 19
    for name, array in (("b", b), ("zero", np.zeros((), float8))):
        given.graph.initializer.append(h.make_tensor(name, kind, array.shape, array.tobytes(), raw=True))
    (y,) = ort.InferenceSession(given.SerializeToString(), providers=[provider]).run(None, {"a": a})
    expected = (a.astype(np.float32) * 0.5) @ (b.astype(np.float32) * 0.25) / 0.125
    np.testing.assert_array_equal(y, expected.astype(float8))
