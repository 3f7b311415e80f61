"""Runs in other ways than `run`, how they are stopped, and a session's life: threads, coroutines, processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import intarsia as ort
from intarsia.capi import _pybind_state as state
from intarsia.errors import Fail, InvalidArgument, NotImplemented, RunTimeout, UnknownOption, WrongType
from intarsia.session.local_engine import LocalEngine

X = np.float32([[1, -2, 3]])
ENDLESS = """g (float[3] x) => (float[3] y) <int64 count = {1000000000}> {
  y = Loop(count, , x) <body = b (int64 i, bool keep, float[3] v) => (bool more, float[3] w) {
    more = Identity(keep)  w = Tanh(v) }>
}"""
ANSWER_SECONDS = 200.0  # after which nothing is to come any more


class TestAsync:
    def test_callback(self, make_session) -> None:
        done, found = threading.Event(), []
        token = object()

        def callback(results, user_data, error) -> None:
            found.append((results, user_data, error, threading.current_thread() is threading.main_thread()))
            done.set()

        make_session().run_async(["y"], {"x": X}, callback, token)
        assert done.wait(ANSWER_SECONDS)
        ((results, user_data, error, on_main),) = found
        np.testing.assert_array_equal(results[0], -X)
        assert (user_data, error, on_main) == (token, "", False)

    def test_errors_of_the_run_come_as_text(self, make_session) -> None:
        done, found = threading.Event(), []
        make_session().run_async(None, {"x": X.astype(np.float64)}, lambda *a: (found.append(a), done.set()), None)
        assert done.wait(ANSWER_SECONDS)
        assert found[0][0] == []
        assert "Unexpected input data type. Actual: (tensor(double)) , expected: (tensor(float))" in found[0][2]

    def test_errors_of_the_call(self, make_session) -> None:
        with pytest.raises(InvalidArgument, match=r"Required inputs \(\['x'\]\) are missing from input feed \(\[\]\)"):
            make_session().run_async(None, {}, lambda *_: None, None)
        with pytest.raises(WrongType, match="run_async: expected a function for callback, got None"):
            make_session().run_async(None, {"x": X}, None, None)  # type: ignore[arg-type]

    def test_an_exception_of_the_callback_is_reported_as_a_threads(self, make_session, monkeypatch) -> None:
        done, found = threading.Event(), []
        monkeypatch.setattr(threading, "excepthook", lambda args: (found.append(args.exc_type), done.set()))

        def callback(*_: object) -> None:
            raise KeyError("mine")

        make_session().run_async(None, {"x": X}, callback, None)
        assert done.wait(ANSWER_SECONDS)
        assert found == [KeyError]

    def test_coroutines(self, make_session) -> None:
        session = make_session()

        async def many() -> list[list[np.ndarray]]:
            return await asyncio.gather(*(session.arun(["y"], {"x": X * k}) for k in range(5)))

        for k, (y,) in enumerate(asyncio.run(many())):
            np.testing.assert_array_equal(y, -X * k)

    def test_a_coroutines_error_is_raised(self, make_session) -> None:
        with pytest.raises(InvalidArgument, match="Invalid output name:q"):
            asyncio.run(make_session().arun(["q"], {"x": X}))

    def test_cancelling_the_task_stops_the_run(self, make_session) -> None:
        session = make_session(ENDLESS)
        options = ort.RunOptions()

        async def cancelled() -> None:
            task = asyncio.create_task(session.arun(None, {"x": X[0]}, options))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        assert options.terminate


class TestStopping:
    @pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
    def test_timeout_inside_a_loop(self, make_session, provider: str) -> None:
        session = make_session(ENDLESS, providers=[provider])
        with pytest.raises(RunTimeout, match=r"the run took longer than its timeout of 0.05 s and was stopped"):
            session.run(None, {"x": X[0]}, timeout=0.05)

    @pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
    def test_timeout_inside_a_recurrent_layer_that_python_computes(self, make_session, op: str) -> None:
        """Its weights are inputs, so that there is no kernel for it."""
        gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
        text = f"""g (float[s, 1, 2] x, float[1, {2 * gates}, 2] w, float[1, {2 * gates}, 2] r) => (float[s, 1, 1, 2] y) {{
            y = {op}<hidden_size = 2>(x, w, r) }}"""
        session = make_session(text)
        assert "host" in str(session.explain())
        weights = np.zeros((1, 2 * gates, 2), np.float32)
        feed = {"x": np.zeros((2_000_000, 1, 2), np.float32), "w": weights, "r": weights}
        with pytest.raises(RunTimeout, match="took longer than its timeout"):
            session.run(None, feed, timeout=0.05)

    def test_a_run_within_its_timeout(self, make_session) -> None:
        session = make_session()
        for _ in range(3):
            np.testing.assert_array_equal(session.run(["y"], {"x": X}, timeout=ANSWER_SECONDS)[0], -X)
        assert issubclass(RunTimeout, TimeoutError)

    def test_terminate_from_another_thread(self, make_session) -> None:
        session, options = make_session(ENDLESS), ort.RunOptions()
        timer = threading.Timer(0.05, lambda: setattr(options, "terminate", True))
        timer.start()
        with pytest.raises(Fail, match="Exiting due to terminate flag being set to true"):
            session.run(None, {"x": X[0]}, options)
        options.terminate = False
        timer = threading.Timer(0.05, lambda: setattr(options, "terminate", True))
        timer.start()
        with pytest.raises(Fail, match="Exiting due to terminate flag"):  # the caller's wish, though there is a timeout too
            session.run(None, {"x": X[0]}, options, timeout=60)
        assert options.__dict__["_followers"] == []

    def test_terminate_between_the_steps_of_compiled_code(self, make_session) -> None:
        body = "".join(f"a{i + 1} = MatMul(a{i}, w) " for i in range(400))
        text = f"g (float[N,256] x, float[256,256] w) => (float[N,256] y) {{ a0 = Identity(x) {body} y = Identity(a400) }}"
        session = make_session(text)
        feed = {"x": np.ones((2048, 256), np.float32), "w": np.eye(256, dtype=np.float32)}
        options = ort.RunOptions()
        session.run(None, {**feed, "x": feed["x"][:1]}, options)
        timer = threading.Timer(0.02, lambda: setattr(options, "terminate", True))
        timer.start()
        with pytest.raises(Fail, match="Exiting due to terminate flag"):
            session.run(None, feed, options)
        options.terminate = False
        np.testing.assert_array_equal(session.run(None, {**feed, "x": feed["x"][:1]}, options)[0], feed["x"][:1])

    @pytest.mark.parametrize(
        ("timeout", "message"), [(0, "above 0, got 0"), ("1", "expected seconds, got '1'"), (-1, "above 0")]
    )
    def test_timeouts_that_are_none(self, make_session, timeout: object, message: str) -> None:
        with pytest.raises(InvalidArgument, match=message):
            make_session().run(None, {"x": X}, timeout=timeout)

    def test_load_cancellation(self, make_session) -> None:
        options = ort.SessionOptions()
        options.set_load_cancellation_flag(True)
        with pytest.raises(ort.ModelLoadCanceled, match="Session load was canceled due to user request"):
            make_session(options=options)
        options.set_load_cancellation_flag(False)
        make_session(options=options)
        with pytest.raises(WrongType, match="set_load_cancellation_flag: expected a bool, got 1"):
            options.set_load_cancellation_flag(1)  # type: ignore[arg-type]


class TestLifeCycle:
    def test_close(self, make_session) -> None:
        with make_session() as session:
            assert not session.closed
            session.run(None, {"x": X})
        assert session.closed
        for call in (
            lambda: session.run(None, {"x": X}),
            lambda: session.run(None, {"x": X}, ort.RunOptions()),
            lambda: session.run(None, [X], taps=["y"]),
            lambda: session.add_hook(["y"], print),
            session.explain,
        ):
            with pytest.raises(Fail, match="the session is closed: make a new InferenceSession"):
                call()
        session.close()

    @pytest.mark.parametrize("method", [m for m in multiprocessing.get_all_start_methods() if m != "fork"])
    def test_spawned_process(self, make_session, method: str) -> None:
        session = make_session()
        context = multiprocessing.get_context(method)
        with context.Pool(1) as pool:
            found = pool.apply(_run_pickled, (pickle.dumps(session), X))
        np.testing.assert_array_equal(found, -X)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
    @pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
    def test_forked_child(self, make_session) -> None:
        session = make_session()
        session.run(None, {"x": X}, timeout=ANSWER_SECONDS)  # the parent has all of its threads
        asyncio.run(session.arun(None, {"x": X}))
        child = os.fork()
        if not child:
            code = 1
            try:
                same = np.array_equal(session.run(["y"], {"x": X}, timeout=ANSWER_SECONDS)[0], -X)
                later = np.array_equal(asyncio.run(session.arun(["y"], {"x": X}))[0], -X)
                code = 0 if same and later else 2
            finally:
                os._exit(code)
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                assert os.waitstatus_to_exitcode(status) == 0
                return
            time.sleep(0.01)
        os.kill(child, 9)
        pytest.fail("the forked child hangs")


def _run_pickled(data: bytes, x: np.ndarray) -> np.ndarray:
    result: np.ndarray = pickle.loads(data).run(["y"], {"x": x})[0]
    return result


class TestOtherForms:
    def test_ort_values(self, make_session) -> None:
        session = make_session()
        (y,) = session.run_with_ort_values(["y"], {"x": ort.OrtValue.ortvalue_from_numpy(X)})
        np.testing.assert_array_equal(y.numpy(), -X)
        (z,) = session._sess.run_with_ort_values({"x": y}, ["z"], None)
        np.testing.assert_array_equal(z.numpy(), np.abs(X))

    def test_value_vectors(self, make_session) -> None:
        session = make_session()
        feeds, fetches = state.OrtValueVector(), state.OrtValueVector()
        feeds.push_back(ort.OrtValue.ortvalue_from_numpy(X)._ortvalue)
        device = state.OrtDevice(0, 0, 0)
        session.run_with_ortvaluevector(ort.RunOptions(), ["x"], feeds, ["z", "y"], fetches, [device, device])
        np.testing.assert_array_equal(fetches[0].numpy(), np.abs(X))
        kept = fetches[1].numpy()
        session.run_with_ortvaluevector(None, ["x"], state.OrtValueVector([fetches[0]]), ["z", "y"], fetches, [device] * 2)
        np.testing.assert_array_equal(kept, -np.abs(X))  # written in place
        with pytest.raises(
            InvalidArgument, match="expected a value per feed and a device per fetch, got 1 feed names, 0 values"
        ):
            session.run_with_ortvaluevector(None, ["x"], [], ["y"], fetches, [device])

    def test_created_values(self, make_session) -> None:
        value = make_session().create_ortvalue_from_shape_and_type([1, 3], np.float32, "cpu", 0)
        assert (value.shape(), value.device_name()) == ([1, 3], "cpu")


class TestPlaceholders:
    """Exporters write "?" or "None" for every dimension they know nothing of: these are not one size."""

    @pytest.mark.parametrize("name", ["?", "None", "-1"])
    def test_sizes_may_differ(self, make_model, name: str) -> None:
        model = make_model("g (float[A,B] x, float[C,B] w) => (float[D,E] y) { t = Concat <axis = 0> (x, w)  y = Neg(t) }")
        for value in (*model.graph.input, *model.graph.output):
            for dim in value.type.tensor_type.shape.dim:
                dim.dim_param = name
        session = ort.InferenceSession(model.SerializeToString())
        assert [a.shape for a in (*session.get_inputs(), *session.get_outputs())] == [[name, name]] * 3
        x, w = np.ones((2, 5), np.float32), np.zeros((3, 5), np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x, "w": w})[0], -np.concatenate([x, w]))
        saved = pickle.loads(pickle.dumps(ort.InferenceSession(model))).get_inputs()
        assert saved[0].shape == [name, name]
        options = ort.SessionOptions()
        options.add_free_dimension_override_by_name(name, 4)
        assert ort.InferenceSession(model, options).get_inputs()[1].shape == [4, 4]


class TestOneNameForTwoSizes:
    TEXT = "g (float[N,3] x, float[N,3] w) => (float[N,3] a, float[N,M] y) { a = Neg(x)  t = Transpose(w)  y = MatMul(x, t) }"

    def test_results_are_right(self, make_session, caplog) -> None:
        session = make_session(self.TEXT)
        x, w = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(12, dtype=np.float32).reshape(4, 3)
        for one, two in ((x, x), (x, w), (w, x), (w, w), (x, w)):
            a, y = session.run(None, {"x": one, "w": two})
            np.testing.assert_array_equal(a, -one)
            np.testing.assert_array_equal(y, one @ two.T)
        assert "the size 'N' is 2 in dimension 0 of input 'x' and 4 in dimension 0 of input 'w'" in caplog.text

    def test_sizes_that_no_operator_takes(self, make_session) -> None:
        session = make_session("g (float[N] x, float[N] w) => (float[N] y) { y = Add(x, w) }")
        with pytest.raises(InvalidArgument, match="broadcast"):
            session.run(None, {"x": np.ones(2, np.float32), "w": np.ones(3, np.float32)})
        assert session.run(None, {"x": np.ones(3, np.float32), "w": np.ones(3, np.float32)})[0].tolist() == [2, 2, 2]


class TestWhatTheSessionIs:
    def test_memories_and_devices(self, make_session) -> None:
        session = make_session()
        assert [(m.name, m.device_id) for m in session.get_input_memory_infos()] == [("Cpu", 0)]
        assert len(session.get_output_memory_infos()) == 2
        assert [d.ep_name for d in session.get_input_epdevices()] == ["CPUExecutionProvider"]

    def test_assignment(self, make_session) -> None:
        options = ort.SessionOptions()
        with pytest.raises(Fail, match=r"Session configuration entry 'session.record_ep_graph_assignment_info' must be set"):
            make_session(options=options).get_provider_graph_assignment_info()
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        parts = make_session(options=options).get_provider_graph_assignment_info()
        assert [part.ep_name for part in parts] == ["CPUExecutionProvider"] * 2
        nodes = [n for part in parts for n in part.get_nodes()]
        assert sorted((n.op_type, n.domain) for n in nodes) == [("Abs", ""), ("Neg", "")]
        assert all(n.name for n in nodes)

    def test_tuning_and_dynamic_options(self, make_session) -> None:
        session = make_session()
        assert session.get_tuning_results() == []
        session.set_tuning_results([{"ep": "CPUExecutionProvider"}])
        with pytest.raises(NotImplemented, match="no provider of this session supports TunableOp"):
            session.set_tuning_results([{"ep": "CPUExecutionProvider"}], error_on_invalid=True)
        session.set_ep_dynamic_options({"ep.dynamic.workload_type": "Efficient"})
        session.set_ep_dynamic_options({})
        assert session._engine.compile_context().intra_op_num_threads == 1
        with pytest.raises(UnknownOption, match=r"no dynamic option 'ep.dynamic.workload'"):
            session.set_ep_dynamic_options({"ep.dynamic.workload": "Efficient"})
        with pytest.raises(InvalidArgument, match="'Fast' is not a value; valid: 'Default', 'Efficient'"):
            session.set_ep_dynamic_options({"ep.dynamic.workload_type": "Fast"})
        session.release_captured_graph()

    @pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
    def test_an_efficient_workload_is_one_thread(self, make_session, provider: str) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 2
        session = make_session(options=options, providers=[provider])
        for workload, threads in (("Efficient", 1), ("Efficient", 1), ("Default", 2)):
            session.set_ep_dynamic_options({"ep.dynamic.workload_type": workload})
            assert session._engine.compile_context().intra_op_num_threads == threads
            assert ("session.intra_op.allow_spinning" in session._engine.compile_context().config) == (threads == 1)
            np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], -X)
        assert session.get_session_options().intra_op_num_threads == 2
        assert session.get_providers()[0] == provider

    def test_a_workload_that_cannot_be_leaves_the_session_as_it_was(self, make_session, monkeypatch) -> None:
        session = make_session()
        monkeypatch.setattr(LocalEngine, "create", lambda *_: (_ for _ in ()).throw(Fail("no")))
        for _ in range(2):
            with pytest.raises(Fail, match="no"):
                session.set_ep_dynamic_options({"ep.dynamic.workload_type": "Efficient"})
        np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], -X)


class TestTheLogOfARun:
    def told(self, session, caplog, **settings: object) -> list[tuple[str, str]]:
        options = ort.RunOptions()
        for name, value in settings.items():
            setattr(options, name, value)
        caplog.clear()
        session.run(["y"], {"x": X}, options)
        return [(r.name, r.getMessage()) for r in caplog.records if r.getMessage().startswith("run of ")]

    def test_its_level_and_its_name(self, make_session, caplog) -> None:
        options = ort.SessionOptions()
        options.logid = "digits"
        session = make_session(options=options)
        assert self.told(session, caplog) == []
        assert self.told(session, caplog, logid="first") == []
        ((name, message),) = self.told(session, caplog, log_severity_level=0, logid="first")
        assert name == "intarsia.session.digits.first"
        assert message.startswith("run of [1, 3] -> y took ")
        ((name, _),) = self.told(session, caplog, log_severity_level=0)
        assert name == "intarsia.session.digits"

    def test_a_verbose_session_tells_of_every_run_but_quiet_ones(self, make_session, caplog) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 0
        session = make_session(options=options)
        caplog.clear()
        session.run(None, {"x": X})
        assert "run of [1, 3] -> y" in caplog.text
        assert self.told(session, caplog, log_severity_level=3) == []

    def test_warnings_of_a_run_have_its_name(self, make_session, caplog) -> None:
        options = ort.SessionOptions()
        options.add_session_config_entry("session.nonfinite", "warn")
        session = make_session("g (float[3] x) => (float[3] y) { y = Log(x) }", options)
        run = ort.RunOptions()
        run.logid = "third"
        session.run(None, {"x": np.float32([1, 0, 2])}, run)
        (record,) = [r for r in caplog.records if "is not finite" in r.getMessage()]
        assert record.name == "intarsia.session.third"

    def test_profile_begins_later_for_later_sessions(self, make_session, tmp_path: Path) -> None:
        options = ort.SessionOptions()
        assert make_session(options=options).get_profiling_start_time_ns() == 0
        assert make_session(options=options).end_profiling() == ""
        options.enable_profiling = True
        options.profile_file_prefix = str(tmp_path / "p")
        sessions = [make_session(options=options) for _ in range(3)]
        starts = [s.get_profiling_start_time_ns() for s in sessions]
        assert 0 < starts[0] <= starts[1] <= starts[2]
        sessions[0].run(None, {"x": X})
        lines = Path(sessions[0].end_profiling()).read_text().splitlines()
        assert lines[0] == "["
        assert lines[-1] == "]"
        assert len(lines) > 8
        for line in lines[1:-1]:
            assert all(tag in line for tag in ("pid", "dur", "ts", "ph", "X", "name", "args"))

    def test_private_attributes_that_programs_read(self, make_session, make_model, tmp_path: Path) -> None:
        session = make_session()
        assert isinstance(session._model_bytes, bytes)
        assert session._model_path is None
        assert [a.name for a in session._inputs_meta] == ["x"]
        low = session._sess
        assert [a.name for a in low.inputs_meta] == ["x"]
        assert [a.name for a in low.outputs_meta] == ["y", "z"]
        assert low.session_options is session.get_session_options()
        assert low.model_meta.graph_name == "g"
        assert low.get_providers() == session.get_providers()

    def test_private_attributes_of_the_providers(self, make_session) -> None:
        session = make_session(enable_fallback=False)
        assert session._providers == session.get_providers() == ["CPUExecutionProvider"]
        assert session._provider_options == session.get_provider_options()
        assert session._enable_fallback is False
        session.enable_fallback()
        assert session._enable_fallback is True
        session.set_providers(["ReferenceExecutionProvider"])
        assert session._providers[0] == "ReferenceExecutionProvider"

    def test_a_subclass_may_use_private_names_for_itself(self, make_model) -> None:
        names = (
            "_model_path", "_model_bytes", "_inputs_meta", "_outputs_meta", "_model", "_providers", "_provider_options",
        )  # fmt: skip

        class Own(ort.InferenceSession):
            def __init__(self, model: bytes) -> None:
                for name in names:
                    setattr(self, name, "mine")
                self._enable_fallback = False
                super().__init__(model)

        session = Own(make_model("g (float[N,3] x) => (float[N,3] y) { y = Neg(x) }").SerializeToString())
        assert {getattr(session, name) for name in names} == {"mine"}
        assert session._enable_fallback is True  # the argument's default, as in onnxruntime
        assert [a.name for a in session.get_inputs()] == ["x"]
        np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], -X)

    def test_the_low_level_session(self, make_model) -> None:
        model = make_model("g (float[N,3] x) => (float[N,3] y) { y = Neg(x) }").SerializeToString()
        session = state.InferenceSession(state.get_default_session_options(), model, False, False)
        with pytest.raises(Fail, match="the session is not initialized"):
            session.run(["y"], {"x": X}, None)
        session.initialize_session([], [], set())
        np.testing.assert_array_equal(session.run(["y"], {"x": X}, None)[0], -X)
        with pytest.raises(InvalidArgument, match="load_from_file: expected a path, got bytes"):
            state.InferenceSession(ort.SessionOptions(), model, True)


class TestConfigurationFromTheModel:
    def model(self, make_model, text: str):
        model = make_model("g (float[N,3] x) => (float[N,3] y) { y = Neg(x) }")
        model.metadata_props.add(key="ort_config", value=text)
        return model.SerializeToString()

    CONFIG = (
        '{"session_options": {"inter_op_num_threads": 5, "intra_op_num_threads": 2, "execution_mode": 1, '
        '"graph_optimization_level": 1, "enable_profiling": 0}}'
    )

    def test_by_keyword_and_by_environment(self, make_model, monkeypatch) -> None:
        model = self.model(make_model, self.CONFIG)
        plain = ort.InferenceSession(model).get_session_options()
        assert plain.inter_op_num_threads == 0
        monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
        for session in (ort.InferenceSession(model), ort.InferenceSession(model, read_config_from_model=1)):
            options = session.get_session_options()
            assert (options.inter_op_num_threads, options.intra_op_num_threads) == (5, 2)
            assert options.execution_mode is ort.ExecutionMode.ORT_PARALLEL
            assert options.graph_optimization_level is ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
            assert options.enable_profiling is False
        assert ort.InferenceSession(model, read_config_from_model=0).get_session_options().inter_op_num_threads == 0

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "the model's metadata entry 'ort_config' is not a JSON object"),
            ('{"session_options": {"threads": 1}}', "has an option 'threads'; did you mean 'intra_op_num_threads'"),
            ('{"session_options": {"execution_mode": 9}}', "execution_mode is 9: 9 is not a valid ExecutionMode"),
        ],
    )
    def test_bad_entries(self, make_model, text: str, message: str) -> None:
        with pytest.raises(InvalidArgument, match=message):
            ort.InferenceSession(self.model(make_model, text), read_config_from_model=1)
