"""Sessions that begin from the cache: equal answers, nothing compiled, and a new beginning whenever anything has changed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import intarsia as ort
from intarsia.cache import weight_store
from intarsia.cache.disk_cache import get_cache
from intarsia.cache.fingerprint import surroundings
from intarsia.model.single_program_model import DirectModel

pytest.importorskip("llvmlite", reason="programs are compiled with llvmlite")

MLP = """g (float[batch, 3] x) => (float[batch, 2] y)
<float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {-1, 1}> { p = MatMul(x, w)  q = Add(p, b)  y = Relu(q) }"""
X = np.float32([[1, -2, 3], [0, 5, -6]])
W, B = np.float32([[1, 2], [3, 4], [5, 6]]), np.float32([-1, 1])
EXPECTED = np.maximum(X @ W + B, 0)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("INTARSIA_PROGRAM_CACHE")


@pytest.fixture
def model_file(tmp_path: Path, make_model: Callable[..., onnx.ModelProto]) -> Path:
    """A model file that has not changed for a while."""
    path = tmp_path / "model.onnx"
    path.write_bytes(make_model(MLP).SerializeToString())
    return path


def is_warm(session: ort.InferenceSession) -> bool:
    return isinstance(session._model, DirectModel)


def check(session: ort.InferenceSession) -> None:
    np.testing.assert_allclose(session.run(None, {"x": X})[0], EXPECTED)
    np.testing.assert_allclose(session.run(["y"], {"x": X[:1]}, ort.RunOptions())[0], EXPECTED[:1])


def test_the_second_session_begins_from_the_cache(model_file: Path) -> None:
    first, second = (ort.InferenceSession(model_file) for _ in range(2))
    assert (is_warm(first), is_warm(second)) == (False, True)
    for session in (first, second):
        check(session)
    assert str(second.get_inputs()[0]) == str(first.get_inputs()[0])
    assert str(second.get_outputs()[0]) == str(first.get_outputs()[0])
    assert second.get_modelmeta() == first.get_modelmeta()
    assert str(second.explain()) == str(first.explain())


def test_a_model_without_weights_begins_from_the_cache_each_time(make_model: Callable[..., onnx.ModelProto]) -> None:
    """Its block of weights has no bytes, which may lie anywhere."""
    data = make_model("g (float[n] x) => (float[n] y) { y = Exp(x) }").SerializeToString()
    ort.InferenceSession(data).close()
    kept = []
    for i in range(12):
        kept.append(np.empty(100 + 24 * i, np.uint8))  # so that memory does not come from one place
        with ort.InferenceSession(data) as session:
            assert is_warm(session)


def test_a_session_takes_over_from_the_last_one(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the one that read the cache is gone."""
    session = ort.InferenceSession(model_file)
    for _ in range(3):
        session = ort.InferenceSession(model_file)
        monkeypatch.setattr(weight_store, "block", lambda *_: None)  # nothing comes from the disk any more
        assert is_warm(session)
        check(session)


def test_bytes_begin_from_the_cache_too(make_model: Callable[..., onnx.ModelProto]) -> None:
    data = make_model(MLP).SerializeToString()
    first, second = (ort.InferenceSession(data) for _ in range(2))
    assert (is_warm(first), is_warm(second)) == (False, True)
    check(second)


def test_a_new_process_needs_no_compiler(model_file: Path, tmp_path: Path) -> None:
    code = (
        "import sys, numpy, intarsia\n"
        f"session = intarsia.InferenceSession({str(model_file)!r})\n"
        "heavy = {'onnx', 'llvmlite.binding', 'intarsia.ops.framework.infer', 'intarsia.passes.optimizer'} & set(sys.modules)\n"
        f"answer = session.run(None, {{'x': numpy.float32({X.tolist()})}})[0].tolist()\n"
        "print(type(session._model).__name__, sorted(heavy), answer)"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(ort.__file__).parents[1])}
    runs = [subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True) for _ in range(2)]
    cold, warm = (run.stdout.strip() for run in runs)
    assert cold.startswith("CompiledModel")
    assert warm == f"DirectModel [] {EXPECTED.tolist()}"


STARTED = """
import sys, numpy
before = set(sys.modules)
import intarsia
imported = set(sys.modules)
session = intarsia.InferenceSession({path!r})
answer = session.run(None, {{"x": numpy.float32({x})}})[0].tolist()
print(sorted(imported - before))
print(sorted(set(sys.modules) - imported))
print(answer)
"""
# What a process needs that begins from the cache and runs a model once, on sizes that an earlier one had.
NEEDED_OF = {
    "": "errors lazy_dataclass log printable progress run_status",
    "cache": "disk_cache fingerprint weight_store",
    "codegen": "cores",
    "codegen.llvm": "cached_image executable_memory linked_image target",
    "device": "memory",
    "ep": "arena capability device program provider",
    "graph": "dims dtypes model",
    "graph.formats": "mapped_arrays",
    "machine": "version amx_permission fork_safety resources windows_files",
    "model": "background_compile builder shape_specialization signature single_program_model warm_start",
    "options": "config_keys session_options",
    "passes": "level",
    "plan": (
        "argument_tables array_address binding_cache bound_segment executor_abi memory_layout microbatch_cost "
        "parallel_branches relocations result_pool segment shape_constants size_constraints state step"
    ),
    "providers": "cpu fallback foreign_names options registry",
    "providers.cpu": "executable",
    "providers.cpu.program": "bound_plan cpu_program serialize shared_weights",
    "providers.cpu.program.calls": "call_list host_kernels speculative_binding",
    "runtime": "executor read_ahead spmd_state threads",
    "session": "inference_session local_engine ort_methods session_builder",
    "session.call_paths": "plain_run",
    "values": "feeds interop session_enums",
}
PACKAGES = (
    "cache codegen codegen.llvm device ep graph graph.formats machine model options passes plan providers "
    "providers.cpu providers.cpu.program providers.cpu.program.calls runtime session session.call_paths values"
).split()
NEEDED = {"intarsia", *(f"intarsia.{name}" for name in PACKAGES)} | {
    f"intarsia.{package}.{name}".replace("..", ".") for package, names in NEEDED_OF.items() for name in names.split()
}


def test_a_warm_process_imports_what_it_needs_and_no_more(model_file: Path) -> None:
    """Each module takes some tenths of a millisecond of every start, and what compiles a hundred of them."""
    code = STARTED.format(path=str(model_file), x=X.tolist())
    env = {**os.environ, "PYTHONPATH": str(Path(ort.__file__).parents[1])}
    runs = [subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True) for _ in range(2)]
    imported, later, answer = map(ast.literal_eval, runs[1].stdout.splitlines())
    own = {name for name in (*imported, *later) if name.partition(".")[0] == "intarsia"}
    assert own <= NEEDED, f"a warm start imports {sorted(own - NEEDED)}"
    later = [name for name in later if name.partition(".")[0] != "importlib"]
    assert not later, f"a session or its first run imports {later}"
    others = {"onnx", "llvmlite", "ml_dtypes", "hashlib", "json", "pathlib", "signal", "tempfile", "concurrent.futures"}
    assert not others & {*imported, *later}
    np.testing.assert_allclose(answer, EXPECTED)


@pytest.mark.parametrize(
    "change",
    [
        lambda o: setattr(o, "graph_optimization_level", ort.GraphOptimizationLevel.ORT_DISABLE_ALL),
        lambda o: o.add_free_dimension_override_by_name("batch", 2),
        lambda o: o.add_session_config_entry("optimization.disable_specified_optimizers", "fuse_gelu"),
        lambda o: setattr(o, "use_deterministic_compute", True),
    ],
    ids=["level", "dimension", "rules", "deterministic"],
)
def test_other_options_are_another_entry(model_file: Path, change: Callable[[ort.SessionOptions], None]) -> None:
    ort.InferenceSession(model_file)
    options = ort.SessionOptions()
    change(options)
    session = ort.InferenceSession(model_file, options)
    assert not is_warm(session)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], EXPECTED)
    assert is_warm(ort.InferenceSession(model_file, options))


def test_passes_that_are_left_out_are_another_entry(model_file: Path) -> None:
    ort.InferenceSession(model_file)
    for warm in (False, True):
        options = ort.SessionOptions()
        options.add_session_config_entry("optimization.disable_specified_optimizers", "assign_channels_last")
        by_entry = ort.InferenceSession(model_file, options)
        by_argument = ort.InferenceSession(model_file, disabled_optimizers=["assign_channels_last"])
        other = ort.InferenceSession(model_file, disabled_optimizers=["widen_float16"])
        for session in (by_entry, by_argument, other):
            assert is_warm(session) is warm
            np.testing.assert_allclose(session.run(None, {"x": X})[0], EXPECTED)


def test_a_changed_file_is_read_anew(model_file: Path, make_model: Callable[..., onnx.ModelProto]) -> None:
    """Same size, same name, and the old time of change put back: the answer is the new model's."""
    warm = [ort.InferenceSession(model_file) for _ in range(2)][1]
    before = model_file.stat()
    model_file.write_bytes(make_model(MLP.replace("{-1, 1}", "{-9, 9}")).SerializeToString())
    os.utime(model_file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert model_file.stat().st_size == before.st_size
    session = ort.InferenceSession(model_file)
    assert not is_warm(session)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], np.maximum(X @ W + np.float32([-9, 9]), 0))
    with pytest.raises(ort.Fail, match="has changed since the session was made"):
        warm.explain()


def test_a_settled_file_is_not_hashed_again(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr("intarsia.model.warm_start.time", type("Clock", (), {"time": staticmethod(lambda: now + 60)}))
    ort.InferenceSession(model_file)
    monkeypatch.setattr("intarsia.model.warm_start.file_key", lambda _path: pytest.fail("the file was read"))
    assert is_warm(ort.InferenceSession(model_file))


def large_model(make_model: Callable[..., onnx.ModelProto], path: Path) -> Path:
    made = make_model("g (float[batch, 600] x) => (float[batch, 600] y) { y = MatMul(x, w) }")
    w = np.random.default_rng(0).standard_normal((600, 600), np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    path.write_bytes(made.SerializeToString())
    return path


def packed(session: ort.InferenceSession) -> list[np.ndarray]:
    """The session's weights of 64 KiB and more."""
    model = session._model
    program = model.program if isinstance(model, DirectModel) else model.programs[0]
    return [a for a in program.executable.constants.values() if a.nbytes >= 1 << 16]  # type: ignore[attr-defined]


def test_sessions_of_one_model_share_their_weights(make_model: Callable[..., onnx.ModelProto], tmp_path: Path) -> None:
    path = large_model(make_model, tmp_path / "large.onnx")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    sessions = [ort.InferenceSession(path), ort.InferenceSession(path), ort.InferenceSession(path, options)]
    assert [is_warm(s) for s in sessions] == [False, True, True]
    addresses = [[a.ctypes.data for a in packed(s)] for s in sessions]
    assert addresses[0] == addresses[1] == addresses[2] != []
    x = np.random.default_rng(1).standard_normal((5, 600), np.float32)
    for s in sessions:
        np.testing.assert_array_equal(s.run(None, {"x": x})[0], sessions[0].run(None, {"x": x})[0])
    sessions[0].close()
    del sessions[0]
    np.testing.assert_allclose(sessions[0].run(None, {"x": x[:2]})[0], sessions[1].run(None, {"x": x})[0][:2], atol=1e-3)


def test_runs_of_sessions_that_share_weights_share_nothing_else(model_file: Path) -> None:
    ort.InferenceSession(model_file)
    first, second = (ort.InferenceSession(model_file) for _ in range(2))
    first.run(None, {"x": X})
    (held,) = second.memory_report().providers
    assert held.plans == ()
    failures: list[BaseException] = []

    def work(session: ort.InferenceSession) -> None:
        try:
            for n in range(200):
                x = np.full((n % 7 + 1, 3), n, np.float32)
                np.testing.assert_allclose(session.run(None, {"x": x})[0], np.maximum(x @ W + B, 0))
        except BaseException as error:  # noqa: BLE001 # raised by the thread that waits
            failures.append(error)

    threads = [threading.Thread(target=work, args=(session,)) for session in (first, second) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no file that is mapped")
def test_weights_in_the_cache_are_mapped_and_stay_when_the_entry_goes(
    make_model: Callable[..., onnx.ModelProto], tmp_path: Path
) -> None:
    path = large_model(make_model, tmp_path / "large.onnx")
    expected = ort.InferenceSession(path).run(None, {"x": np.eye(600, dtype=np.float32)})[0]
    session = ort.InferenceSession(path)
    assert is_warm(session)
    (held,) = session.memory_report().providers
    assert held.mapped_nbytes >= 600 * 600 * 4
    assert held.packed_nbytes < 1 << 16
    assert all(a.ctypes.data % 64 == 0 for a in packed(session))
    for entry in (tmp_path / "cache").rglob("weights-*"):
        entry.unlink()
    np.testing.assert_array_equal(session.run(None, {"x": np.eye(600, dtype=np.float32)})[0], expected)


def test_a_logger_at_debug_gets_the_placement_of_a_session_that_is_compiled(
    model_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert not is_warm(ort.InferenceSession(model_file))
    with caplog.at_level("DEBUG", "intarsia"):
        session = ort.InferenceSession(model_file)
    assert not is_warm(session)
    assert "placement of" in caplog.text


def test_damaged_entries_are_made_anew(model_file: Path, tmp_path: Path) -> None:
    ort.InferenceSession(model_file)
    for path in (tmp_path / "cache").rglob("start-*"):
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:-5] + b"wrong")
    session = ort.InferenceSession(model_file)
    assert not is_warm(session)
    check(session)
    for path in (tmp_path / "cache").rglob("weights-*"):
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:-5])
    check(ort.InferenceSession(model_file))


OLD_LAYOUT = b"cintarsia.warm\nSignature\n."  # a pickle of a class by the name of a module that is gone


def test_an_entry_of_the_old_layout_is_made_anew_and_the_log_says_so(
    model_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An entry's key has the hash of all sources, so that a session never asks for one of another layout; this one has the
    key of today's."""
    ort.InferenceSession(model_file)
    (entry,) = (e for e in get_cache().entries() if e.key.startswith("start-"))
    get_cache().put(entry.key, OLD_LAYOUT)
    session = ort.InferenceSession(model_file)
    assert not is_warm(session)
    check(session)
    assert f"{entry.key} cannot be read (ModuleNotFoundError: No module named 'intarsia.warm')" in caplog.text
    assert is_warm(ort.InferenceSession(model_file))


def test_what_other_sources_made_is_not_asked_for(
    model_file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ort.InferenceSession(model_file)
    for entry in get_cache().entries():
        if entry.key.startswith("start-"):
            get_cache().put(entry.key, OLD_LAYOUT)
    known = surroundings()
    monkeypatch.setattr("intarsia.model.warm_start.surroundings", lambda: {**known, "Intarsia's files": "moved"})
    with caplog.at_level("DEBUG", "intarsia.cache"):
        session = ort.InferenceSession(model_file)
    assert not is_warm(session)
    check(session)
    assert "since it was cached, Intarsia's files changed" in caplog.text
    assert "cannot be read" not in caplog.text


def test_what_is_not_kept_says_why(
    make_model: Callable[..., onnx.ModelProto], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    branches = """g (bool c, float[A] x) => (float[B] y) { y = If(c) <
        then_branch = t () => (float[C] a) { a = Concat<axis = 0>(x, x) },
        else_branch = e () => (float[D] b) { b = Neg(x) }> }"""
    monkeypatch.setattr("intarsia.model.warm_start.logger.isEnabledFor", lambda _level: True)
    with caplog.at_level("DEBUG", "intarsia.cache"):
        for _ in range(2):
            assert not is_warm(ort.InferenceSession(make_model(branches).SerializeToString()))
    assert "runs a subgraph from Python" in caplog.text
    options = ort.SessionOptions()
    options.add_session_config_entry("session.cache_weights_mib", "0")
    for _ in range(2):
        assert not is_warm(ort.InferenceSession(make_model(MLP).SerializeToString(), options))


def test_a_growing_loop_is_kept(make_model: Callable[..., onnx.ModelProto]) -> None:
    loop = """g (int64 n, float[A] x) => (float[B] y) { c = Constant<value = bool {1}>() y = Loop(n, c, x) <
        body = b (int64 i, bool d, float[C] a) => (bool e, float[D] a2) { e = Identity(d)  a2 = Concat<axis = 0>(a, a) }> }"""
    x = np.float32([1, 2, 3])
    for warm in (False, True):
        made = ort.InferenceSession(make_model(loop).SerializeToString())
        assert is_warm(made) == warm
        for n in (3, 0, 1):
            np.testing.assert_array_equal(made.run(None, {"n": np.array(n), "x": x})[0], np.tile(x, 2**n))


def test_a_large_model_is_written_by_a_thread(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intarsia.model.warm_start._LARGE_NBYTES", 16)
    now = model_file.stat().st_ctime
    monkeypatch.setattr("intarsia.model.warm_start.time", type("Clock", (), {"time": staticmethod(lambda: now)}))
    assert not is_warm(ort.InferenceSession(model_file))
    join_writers()
    assert not is_warm(ort.InferenceSession(model_file)), "a large file that changed just now would have to be read"
    now += 60
    ort.InferenceSession(model_file)
    join_writers()
    session = ort.InferenceSession(model_file)
    assert is_warm(session)
    check(session)


def test_a_file_is_not_hashed_for_a_cache_without_its_like(
    make_model: Callable[..., onnx.ModelProto], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first start does not wait for that; a copy in the place of a cached model begins from the cache nevertheless."""
    from intarsia.model import warm_start

    hashed: list[str] = []
    original = warm_start.file_key
    monkeypatch.setattr(warm_start, "file_key", lambda path: hashed.append(Path(path).name) or original(path))
    monkeypatch.setattr(warm_start, "_is_settled", lambda state: True)
    monkeypatch.setattr(warm_start, "_MIB", 16)
    place, copy = tmp_path / "model.onnx", tmp_path / "copy.onnx"
    place.write_bytes(make_model(MLP).SerializeToString())
    options = ort.SessionOptions()
    options.add_session_config_entry("session.first_tier_only", "1")
    ort.InferenceSession(place, options)
    assert not hashed
    assert not is_warm(ort.InferenceSession(place))
    join_writers()
    assert len(hashed) == 1, "it is hashed when it is kept"
    copy.write_bytes(place.read_bytes())
    copy.replace(place)
    session = ort.InferenceSession(place)
    assert is_warm(session) and len(hashed) == 2
    check(session)
    copy.write_bytes(make_model(MLP.replace("{-1, 1}", "{-9, 9}")).SerializeToString())
    copy.replace(place)
    session = ort.InferenceSession(place)
    assert not is_warm(session)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], np.maximum(X @ W + np.float32([-9, 9]), 0))


def test_a_file_replaced_while_the_session_was_made_is_not_mistaken(
    make_model: Callable[..., onnx.ModelProto], model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from intarsia.model import load_and_optimize

    original = load_and_optimize.load_model

    def load_then_replace(*arguments: object) -> object:
        graph = original(*arguments)
        assert all(c.numpy() is not None for c in graph.constants.values())
        model_file.write_bytes(make_model(MLP.replace("{-1, 1}", "{-9, 9}")).SerializeToString())
        monkeypatch.setattr(load_and_optimize, "load_model", original)
        return graph

    monkeypatch.setattr(load_and_optimize, "load_model", load_then_replace)
    ort.InferenceSession(model_file)
    session = ort.InferenceSession(model_file)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], np.maximum(X @ W + np.float32([-9, 9]), 0))


def test_the_log_says_what_has_changed(model_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    ort.InferenceSession(model_file)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with caplog.at_level("DEBUG", "intarsia.cache"):
        ort.InferenceSession(model_file, options)
    assert "since it was cached, the optimisation changed" in caplog.text


def join_writers() -> None:
    for thread in threading.enumerate():
        if thread.name == "intarsia-cache":
            thread.join()


def test_overriding_an_initializer_of_a_warm_session(make_model: Callable[..., onnx.ModelProto]) -> None:
    model = make_model("g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }")
    session = [ort.InferenceSession(model.SerializeToString()) for _ in range(2)][1]
    assert is_warm(session)
    assert [v.name for v in session.get_overridable_initializers()] == ["w"]
    x = np.float32([3, 4])
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], [3, 8])
    np.testing.assert_array_equal(session.run(None, {"x": x, "w": np.float32([10, 20])})[0], [30, 80])


def test_a_constant_output_and_one_that_is_an_input(make_model: Callable[..., onnx.ModelProto]) -> None:
    text = "g (float[2] x) => (float[2] w, float[2] x2, float[2] y) <float[2] w = {1, 2}> { x2 = Identity(x) y = Neg(x) }"
    model = make_model(text)
    for session in [ort.InferenceSession(model.SerializeToString()) for _ in range(2)]:
        x = np.float32([3, 4])
        results = session.run(None, {"x": x})
        np.testing.assert_array_equal(results, [[1, 2], [3, 4], [-3, -4]])
        results[0][:] = results[1][:] = 0
        np.testing.assert_array_equal(session.run(["y", "w", "y"], {"x": x}), [[-3, -4], [1, 2], [-3, -4]])
        np.testing.assert_array_equal(x, [3, 4])
