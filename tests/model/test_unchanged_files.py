"""Model files whose times, links, permissions or places change, but not what they hold: sessions go on with them."""

from __future__ import annotations

import os
import pickle
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import intarsia as ort
from intarsia.graph.load import load
from intarsia.model import warm_start
from intarsia.model.load_and_optimize import load_model

OLD = time.time() - 1000


def write(path: Path, size: int, external: bool = False) -> np.ndarray:
    table = np.random.default_rng(size).standard_normal((size, 64), np.float32)
    nodes = [helper.make_node("Gather", ["table", "i"], ["row"]), helper.make_node("Neg", ["row"], ["y"])]
    i, y = (helper.make_tensor_value_info(n, t, s) for n, t, s in (("i", 7, ["n"]), ("y", 1, ["n", 64])))
    graph = helper.make_graph(nodes, "g", [i], [y], [numpy_helper.from_array(table, "table")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path, **({"save_as_external_data": True, "location": "weights.bin"} if external else {}))
    os.utime(path, (OLD, OLD))
    return table


def mode(path: Path) -> None:
    path.chmod(0o640)


def same_mode(path: Path) -> None:
    path.chmod(path.stat().st_mode & 0o777)


def linked(path: Path) -> None:
    os.link(path, path.with_suffix(".link"))


def linked_for_a_while(path: Path) -> None:
    os.link(path, path.with_suffix(".link"))
    path.with_suffix(".link").unlink()


def moved_and_back(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.with_suffix(".moved").rename(path)


def touched(path: Path) -> None:
    os.utime(path)


def rounded(path: Path) -> None:
    """As a server that knows whole seconds tells the time later on."""
    os.utime(path, (int(OLD), int(OLD)))


def copied(path: Path) -> None:
    shutil.copyfile(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").replace(path)


def written_again(path: Path) -> None:
    path.write_bytes(path.read_bytes())


def linked_to_a_copy(path: Path) -> None:
    """As stores of models do that name files by their content."""
    store = path.parent / "store"
    store.mkdir()
    shutil.copyfile(path, store / "blob")
    path.unlink()
    path.symlink_to(store / "blob")


SAME_TIME = [mode, same_mode, linked, linked_for_a_while, moved_and_back]
OTHER_TIME = [touched, rounded, copied, written_again, linked_to_a_copy]


def overwritten(path: Path) -> None:
    """Other bytes, and nothing else to see but the time of the last change."""
    before, data = path.stat(), bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("INTARSIA_PROGRAM_CACHE", "1")
    monkeypatch.setattr(warm_start, "_SETTLED_SECONDS", 0.05)  # what was written just now is old enough to be remembered


def begun(path: Path) -> ort.InferenceSession:
    """A session that began from the cache, which another one has filled."""
    time.sleep(0.1)
    ort.InferenceSession(path)
    for thread in threading.enumerate():
        if thread.name == "intarsia-cache":
            thread.join()
    session = ort.InferenceSession(path)
    assert session._engine.source.graph_read is None
    return session


def check_used(session: ort.InferenceSession, table: np.ndarray) -> None:
    """All that looks at the file again."""
    rows = np.int64([3, len(table) - 1])
    again = pickle.loads(pickle.dumps(session))
    assert "Neg" in str(session.explain())
    session.set_providers(["ReferenceExecutionProvider"])
    for each in (session, again):
        np.testing.assert_array_equal(each.run(None, {"i": rows})[0], -table[rows])


@pytest.mark.parametrize("change", [*SAME_TIME, *OTHER_TIME], ids=lambda f: f.__name__)
@pytest.mark.parametrize("size", [100, 10_000], ids=["small", "over 1 MiB"])
def test_a_session_from_the_cache_goes_on(tmp_path: Path, size: int, change: Callable[[Path], None]) -> None:
    path = tmp_path / "m.onnx"
    table = write(path, size)
    session = begun(path)
    change(path)
    check_used(session, table)


@pytest.mark.parametrize("change", [mode, linked, touched, copied, linked_to_a_copy], ids=lambda f: f.__name__)
def test_a_weight_file_may_be_touched(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = tmp_path / "m.onnx"
    table = write(path, 10_000, external=True)
    session = begun(path)
    change(tmp_path / "weights.bin")
    if change is linked_to_a_copy:  # out of the folder for good
        (tmp_path / "weights.bin").unlink()
        shutil.copyfile(tmp_path / "store" / "blob", tmp_path / "weights.bin")
    check_used(session, table)


def test_a_cleared_cache_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    table = write(path, 10_000, external=True)
    session = begun(path)
    shutil.rmtree(tmp_path / "cache")
    check_used(session, table)


@pytest.mark.parametrize("change", [mode, linked_for_a_while, touched, copied], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kept", ["no cache", "cold", "compiled ahead"])
def test_other_sessions_go_on(
    tmp_path: Path, kept: str, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    table = write(path, 100)
    if kept == "no cache":
        monkeypatch.setenv("INTARSIA_CACHE", "0")
    elif kept == "compiled ahead":
        source, path = path, tmp_path / "m_ctx.onnx"
        ort.ModelCompiler(ort.SessionOptions(), str(source), embed_compiled_data_into_model=True).compile_to_file(str(path))
    session = ort.InferenceSession(path)
    change(path)
    if kept == "cold":
        check_used(session, table)
    else:
        assert session.explain().nodes
        pickle.dumps(session)


@pytest.mark.parametrize("size", [100, 10_000], ids=["small", "over 1 MiB"])
@pytest.mark.parametrize("external", [False, True], ids=["in the model", "beside it"])
def test_other_bytes_of_the_same_time_are_told(tmp_path: Path, size: int, external: bool) -> None:
    path = tmp_path / "m.onnx"
    write(path, size, external)
    session = begun(path)
    data = pickle.dumps(session)
    overwritten(tmp_path / "weights.bin" if external else path)
    for late in (session.explain, lambda: pickle.dumps(session)):
        with pytest.raises(ort.Fail, match="has changed since the session was made from it: make a new session"):
            late()
    if not external:
        time.sleep(0.1)
        ort.InferenceSession(path)  # by which the new bytes are known
        with pytest.raises(ort.Fail, match="has changed since the session that was pickled was made from it"):
            pickle.loads(data)


@pytest.mark.parametrize("change", [*SAME_TIME, touched, rounded, written_again], ids=lambda f: f.__name__)
def test_an_open_file_goes_on_where_its_bytes_are_known(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = tmp_path / "m.onnx"
    table = write(path, 10_000)
    time.sleep(0.1)
    assert warm_start.model_key(path) is not None
    graph = load_model(path, ort.SessionOptions())
    change(path)
    np.testing.assert_array_equal(graph.constants["table"].numpy(), table)


def test_an_open_file_with_other_bytes_is_told_though_they_are_known(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write(path, 10_000)
    time.sleep(0.1)
    warm_start.model_key(path)
    graph = load(path)
    overwritten(path)
    with pytest.raises(ort.Fail, match="has changed since it was opened"):
        graph.constants["table"].numpy()


def test_a_clock_of_whole_seconds_is_trusted_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such times are a server's, whose clock is not ours: two changes in one second look alike for longer."""
    monkeypatch.undo()
    now = 1_800_000_000
    monkeypatch.setattr(warm_start.time, "time", lambda: now + 5.0)
    fine, coarse = now * 10**9 + 1, now * 10**9
    assert warm_start._is_settled((0, 0, 0, coarse, fine))
    assert not warm_start._is_settled((0, 0, 0, coarse, coarse))
    assert warm_start._is_settled((0, 0, 0, coarse - 6 * 10**9, coarse - 6 * 10**9))


def test_a_change_within_one_tick_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is known of the file is as it was, but it was changed just before: its bytes are compared."""
    path = tmp_path / "m.onnx"
    write(path, 100)
    session = begun(path)
    state = warm_start.identity(path)
    overwritten(path)
    monkeypatch.setattr(warm_start, "_identity_of", lambda *arguments: state)
    monkeypatch.setattr(warm_start, "_is_settled", lambda state: False)
    with pytest.raises(ort.Fail, match="has changed since the session was made from it"):
        session.explain()
