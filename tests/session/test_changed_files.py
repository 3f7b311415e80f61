"""Model files that are overwritten, cut short or replaced while a session is made from them, or runs."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import intarsia as ort
from intarsia.graph.formats import file_bytes
from intarsia.graph.formats.file_bytes import forget_recent
from intarsia.graph.load import load

PROVIDERS = ["CPUExecutionProvider", "ReferenceExecutionProvider"]
TABLE = np.random.default_rng(0).standard_normal((30_000, 64), np.float32)  # 7 MiB, which nothing packs
ROWS = np.int64([3, 29_999, 12_000])


def write(path: Path, table: np.ndarray = TABLE, external: bool = False) -> Path:
    nodes = [helper.make_node("Gather", ["table", "i"], ["row"]), helper.make_node("Neg", ["row"], ["y"])]
    i, y = (helper.make_tensor_value_info(n, t, s) for n, t, s in (("i", 7, ["n"]), ("y", 1, ["n", 64])))
    graph = helper.make_graph(nodes, "g", [i], [y], [numpy_helper.from_array(table, "table")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    location = {"save_as_external_data": True, "location": "weights.bin"} if external else {}
    (path.parent / "weights.bin").unlink(missing_ok=True)
    onnx.save(model, path, **location)
    os.utime(path, (time.time() - 100,) * 2)
    return path


def tick(folder: Path) -> None:
    """Wait for the file system's clock: what changes from now on has another time than what is in a folder."""
    latest, probe = max(path.stat().st_ctime_ns for path in folder.iterdir() if path.is_file()), folder / "probe"
    probe.touch()
    while probe.stat().st_ctime_ns <= latest:
        time.sleep(0.001)
        probe.touch()
    probe.unlink()


def overwritten(path: Path) -> None:
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.write(bytes(len(data)))


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(100)


def replaced(path: Path) -> None:
    if os.name == "nt":
        pytest.skip("Windows replaces no file that is open")
    (path.parent / "new").write_bytes(b"another file")
    (path.parent / "new").replace(path)


def removed(path: Path) -> None:
    if os.name == "nt":
        pytest.skip("Windows removes no file that is open")
    path.unlink()


CHANGES = [overwritten, cut, replaced, removed]


@pytest.fixture(params=["no cache", "cold", "warm"])
def cache(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("INTARSIA_PROGRAM_CACHE", "1")
    if request.param == "no cache":
        monkeypatch.setenv("INTARSIA_CACHE", "0")
    return str(request.param)


def session_of(path: Path, cache: str, provider: str = PROVIDERS[0]) -> ort.InferenceSession:
    """A session on the model as it is then."""
    tick(path.parent)
    if cache == "warm":  # by a process of its own, since sessions of one process share weights
        code = f"import intarsia as ort; ort.InferenceSession({str(path)!r}, providers=[{provider!r}])"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
    return ort.InferenceSession(path, providers=[provider])


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("external", [False, True], ids=["in the model", "beside it"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_answers_stay(tmp_path: Path, cache: str, provider: str, external: bool, change: Callable[[Path], None]) -> None:
    path = write(tmp_path / "m.onnx", external=external)
    session = session_of(path, cache, provider)
    change(tmp_path / "weights.bin" if external else path)
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, {"i": ROWS})[0], -TABLE[ROWS])


@pytest.mark.parametrize("shared", [False, True], ids=["its own table", "another session's table"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_what_loads_the_model_later_says_that_it_changed(
    tmp_path: Path, cache: str, change: Callable[[Path], None], shared: bool
) -> None:  # fmt: skip
    # A table that no other test has: sessions of one process share them.
    table = np.random.default_rng(list(tmp_path.name.encode())).standard_normal(TABLE.shape, np.float32)
    path = write(tmp_path / "m.onnx", table)
    others = [ort.InferenceSession(write(tmp_path / "other.onnx", table))] if shared and cache != "warm" else []
    session = session_of(path, cache)
    began_from_the_cache = session._engine.source.graph_read is None
    assert began_from_the_cache == (cache == "warm")
    change(path)
    with pytest.raises((ort.Fail, ort.NoSuchFile), match=r"has changed since|does not exist"):
        pickle.dumps(session)
    if began_from_the_cache:
        for late in (session.explain, lambda: session.run(None, {"i": ROWS}, taps=["row"])):
            with pytest.raises(ort.Fail, match="has changed since the session was made from it: make a new session"):
                late()
        with pytest.raises(ort.Fail, match="has changed since the session was made from it"):
            session.set_providers(["ReferenceExecutionProvider"])
    elif others and change in (overwritten, cut):  # the table is read from the file
        with pytest.raises(ort.Fail, match=r"has changed since it was opened .*rename that"):
            session.set_providers(["ReferenceExecutionProvider"])
    else:  # the file is open, or the session has its bytes
        session.set_providers(["ReferenceExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"i": ROWS})[0], -table[ROWS])


def test_a_pickled_session_is_of_the_same_file(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx")
    data = pickle.dumps(ort.InferenceSession(path))
    os.utime(path, (time.time() - 50,) * 2)  # a copy of the file
    np.testing.assert_array_equal(pickle.loads(data).run(None, {"i": ROWS})[0], -TABLE[ROWS])
    write(path, TABLE + 1)
    with pytest.raises(ort.Fail, match="changed since the session that was pickled was made from it"):
        pickle.loads(data)
    write(path, TABLE[:100])
    with pytest.raises(ort.Fail, match=r"made from it \(7,\d+,\d+ bytes then, 2\d,\d+ now\)"):
        pickle.loads(data)


def test_a_compiled_model_is_loaded_later_only_where_it_is_the_same(tmp_path: Path) -> None:
    source = write(tmp_path / "m.onnx")
    target = tmp_path / "m_ctx.onnx"
    ort.ModelCompiler(ort.SessionOptions(), str(source), embed_compiled_data_into_model=True).compile_to_file(str(target))
    session = ort.InferenceSession(target)
    overwritten(target)
    np.testing.assert_array_equal(session.run(None, {"i": ROWS})[0], -TABLE[ROWS])
    with pytest.raises(ort.Fail, match="has changed since the session was made from it"):
        session.explain()


def test_a_part_beside_a_compiled_model(tmp_path: Path) -> None:
    source = write(tmp_path / "m.onnx")
    target = tmp_path / "m_ctx.onnx"
    ort.ModelCompiler(ort.SessionOptions(), str(source)).compile_to_file(str(target))
    session = ort.InferenceSession(target)
    (part,) = tmp_path.glob("*.bin")
    cut(part)
    np.testing.assert_array_equal(session.run(None, {"i": ROWS})[0], -TABLE[ROWS])
    with pytest.raises(ort.ExternalDataError, match="is damaged"):
        ort.InferenceSession(target)


def test_an_adapter_file(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx_adapter"
    made = ort.AdapterFormat()
    made.set_parameters({"table": ort.OrtValue.ortvalue_from_numpy(TABLE)})
    made.export_adapter(path)
    read = ort.AdapterFormat.read_adapter(path)
    cut(path)
    np.testing.assert_array_equal(read.get_parameters()["table"].numpy(), TABLE)


@pytest.mark.parametrize("change", [overwritten, cut], ids=lambda f: f.__name__)
@pytest.mark.parametrize("external", [False, True], ids=["in the model", "beside it"])
def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, external: bool, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "m.onnx", external=external)
    graph = load(path)
    tick(tmp_path)
    change(tmp_path / "weights.bin" if external else path)
    with pytest.raises(ort.ExternalDataError if external else ort.Fail, match=r"changed since it was opened \(7,\d+,\d+ bytes"):
        graph.constants["table"].numpy()
    # While its beginning is read: at the second read of the file, whatever that is.
    path, reads = write(tmp_path / "m.onnx", external=external), [0]
    read = file_bytes.FileBytes._read

    def changing(self: file_bytes.FileBytes, room: memoryview, start: int) -> None:
        reads[0] += 1
        if reads[0] == 2:
            change(tmp_path / "weights.bin" if external else path)
        read(self, room, start)

    monkeypatch.setattr(file_bytes.FileBytes, "_read", changing)
    with pytest.raises(ort.Fail, match="has changed since it was opened"):
        ort.InferenceSession(path)


def test_links_and_permissions_are_no_change(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx")
    graph = load(path)
    tick(tmp_path)
    os.link(path, tmp_path / "again.onnx")
    np.testing.assert_array_equal(graph.constants["table"].numpy(), TABLE)
    path.chmod(0o600)
    path.unlink()
    np.testing.assert_array_equal(graph.constants["table"].numpy(), TABLE)


def test_a_file_that_was_moved_away_is_read_where_it_is(tmp_path: Path) -> None:
    """As programs rotate models: the old one gets another name, a new one its name."""
    path = write(tmp_path / "m.onnx")
    graph = load(path)
    tick(tmp_path)
    path.rename(tmp_path / "old.onnx")
    np.testing.assert_array_equal(graph.constants["table"].numpy(), TABLE)
    path.write_bytes(b"another")
    np.testing.assert_array_equal(graph.constants["table"].numpy(), TABLE)
    forget_recent()
    overwritten(tmp_path / "old.onnx")
    with pytest.raises(ort.Fail, match="has changed since it was opened"):
        graph.constants["table"].numpy()


def test_same_size_and_time(tmp_path: Path) -> None:
    """As `cp --preserve` leaves a file in whose place another was, where builds give all files one date."""
    path = write(tmp_path / "m.onnx")
    graph, before = load(path), path.stat()
    tick(tmp_path)
    overwritten(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ort.Fail, match="has changed since it was opened"):
        graph.constants["table"].numpy()
