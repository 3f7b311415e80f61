"""Weights of warm starts as pieces of several files, and models whose weights lie beside them."""

from __future__ import annotations

import gc
import mmap
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import intarsia as ort
from intarsia.cache import weight_store
from intarsia.cache.disk_cache import DiskCache, get_cache
from intarsia.errors import ExternalDataError
from intarsia.model.single_program_model import DirectModel
from intarsia.reports.cache_listing import warm_starts

pytest.importorskip("llvmlite", reason="programs are compiled with llvmlite")
PAGE = mmap.ALLOCATIONGRANULARITY
RNG = np.random.default_rng(0)
linux = pytest.mark.skipif(sys.platform != "linux", reason="pieces of files are mapped side by side on Linux")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("INTARSIA_PROGRAM_CACHE")


def random_bytes(count: int) -> bytes:
    return RNG.integers(1, 256, count, np.uint8).tobytes()


LARGE = random_bytes((1 << 20) + 100)
OTHER = random_bytes(1 << 20)


def padding(*parts: bytes) -> bytes:
    return bytes(-sum(map(len, parts)) % PAGE)


SMALL = random_bytes(3000)
CASES = {
    "small, large": [SMALL, padding(SMALL), LARGE, padding(LARGE), OTHER],
    "large first, small behind it": [LARGE, padding(LARGE), SMALL, OTHER[:70]],
    "not at a page": [SMALL, LARGE],
    "something in its last page": [LARGE, SMALL[:50]],
    "the same and neighbours": [SMALL, padding(SMALL), LARGE, SMALL[:50]],
    "only small ones": [SMALL, SMALL],
    "one": [OTHER],
    "nothing between": [b"", OTHER, b"", OTHER, b""],
    "nothing": [],
}
SHARED = {"small, large": 2, "large first, small behind it": 1, "one": 1, "nothing between": 1}


@linux
@pytest.mark.parametrize("case", CASES)
def test_a_block_comes_back_as_it_was(tmp_path: Path, case: str) -> None:
    cache, parts = DiskCache(tmp_path), CASES[case]
    for _ in range(2):
        layout = weight_store.keep(cache, [memoryview(part) for part in parts])
        assert layout is not None
        assert layout.nbytes == sum(map(len, parts))
        assert len(layout.pieces) <= len(parts)
        found = weight_store.block(cache, layout)
        assert found is not None
        assert found.tobytes() == b"".join(parts)
        assert found.ctypes.data % 64 == 0 or not parts
    assert len(list(tmp_path.rglob("array-*"))) == SHARED.get(case, 0)
    assert cache.size() < 1.1 * sum(map(len, parts)) + 3 * PAGE, "large arrays were written twice"
    assert cache.verify() == []


@linux
def test_two_blocks_have_what_they_share_once(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    first = weight_store.keep(cache, [LARGE, padding(LARGE), OTHER])
    before = cache.size()
    second = weight_store.keep(cache, [SMALL, padding(SMALL), OTHER])
    assert first is not None
    assert second is not None
    assert {p.key for p in second.pieces} > {p.key for p in first.pieces}
    assert cache.size() - before < 2 * PAGE + len(SMALL)
    block = weight_store.block(cache, second)
    assert block is not None
    assert bytes(block) == SMALL + padding(SMALL) + OTHER


def harmed(data: bytes, harm: str) -> bytes:
    return data[:-PAGE] if harm == "short" else data[:-PAGE] + bytes([data[-PAGE] ^ 1]) + data[1 - PAGE :]


@linux
@pytest.mark.parametrize("harm", ["missing", "short", "changed"])
@pytest.mark.parametrize("which", ["pieces", "one", "small"])
def test_a_block_that_is_not_whole_is_none_and_kept_anew(tmp_path: Path, harm: str, which: str) -> None:
    cache = DiskCache(tmp_path)
    small = random_bytes(2 * PAGE)
    blocks = {"pieces": ([OTHER], [SMALL, padding(SMALL), OTHER]), "one": ([OTHER],), "small": ([small],)}[which]
    for parts in blocks:
        layout = weight_store.keep(cache, parts)
        assert layout is not None
        assert weight_store.block(cache, layout) is not None
    victim = max(tmp_path.rglob("weights-*"), key=lambda path: path.stat().st_size)
    victim.chmod(0o600)
    victim.unlink() if harm == "missing" else victim.write_bytes(harmed(victim.read_bytes(), harm))
    assert weight_store.block(cache, layout) is None
    again = weight_store.keep(cache, parts)
    assert again is not None
    block = weight_store.block(cache, again)
    assert block is not None
    assert bytes(block) == b"".join(parts)


@linux
def test_a_file_is_checked_once_for_each_of_its_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(tmp_path)
    layout = weight_store.keep(cache, [OTHER])
    assert layout is not None
    read: list[int] = []
    original = DiskCache.put
    monkeypatch.setattr(DiskCache, "put", lambda *a: (read.append(1), original(*a))[1])
    for _ in range(3):
        assert weight_store.block(cache, layout) is not None
    assert not read, "what was written just now was checked"
    os.utime(next(tmp_path.rglob("weights-*")), (1e9, 1e9))
    for _ in range(3):
        assert weight_store.block(cache, layout) is not None
    assert len(read) == 1


def is_warm(session: ort.InferenceSession) -> bool:
    return isinstance(session._model, DirectModel)


def product(make_model: Callable[..., onnx.ModelProto], last: str, weights: np.ndarray) -> onnx.ModelProto:
    made = make_model(f"g (float[n, 600] x) => (float[n, 600] y) {{ m = MatMul(x, w)  y = {last}(m) }}")
    made.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return made


W = RNG.standard_normal((600, 600), np.float32)
X = RNG.standard_normal((3, 600), np.float32)


@linux
def test_two_models_map_their_common_weights_from_one_file(make_model: Callable[..., onnx.ModelProto], tmp_path: Path) -> None:
    models = [product(make_model, last, W).SerializeToString() for last in ("Relu", "Neg")]
    for model in models:
        ort.InferenceSession(model)
    assert len(list((tmp_path / "cache").rglob("array-*"))) == 1
    starts = warm_starts(get_cache())
    assert all(start.nbytes > W.nbytes for start in starts)
    relu, neg = (ort.InferenceSession(model) for model in models)
    assert is_warm(relu)
    assert is_warm(neg)
    expected = X.astype(np.float64) @ W
    np.testing.assert_allclose(relu.run(None, {"x": X})[0], np.maximum(expected, 0), atol=1e-3)
    np.testing.assert_allclose(neg.run(None, {"x": X})[0], -expected, atol=1e-3)
    mapped = Path("/proc/self/maps").read_text()
    shared = {line.split()[-1] for line in mapped.splitlines() if f"{tmp_path}/cache" in line and "/weights-" in line}
    assert len([name for name in shared if Path(name).stat().st_size > W.nbytes]) == 1


@linux
def test_missing_weights_are_made_anew(
    make_model: Callable[..., onnx.ModelProto],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = product(make_model, "Relu", W).SerializeToString()
    ort.InferenceSession(model).close()
    next((tmp_path / "cache").rglob("weights-*")).unlink()
    monkeypatch.setattr("intarsia.model.warm_start.logger.isEnabledFor", lambda _level: True)
    with caplog.at_level("DEBUG", "intarsia.cache"):
        assert not is_warm(ort.InferenceSession(model))
    assert "some of the model's weights are not in the cache any more" in caplog.text
    assert is_warm(ort.InferenceSession(model))


# --- weights in other files ---


@pytest.fixture
def beside(tmp_path: Path, make_model: Callable[..., onnx.ModelProto], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose weights are in w.bin, and a clock by which neither has just changed."""
    path = tmp_path / "model.onnx"
    save_beside(product(make_model, "Relu", W), path)
    now = time.time()
    monkeypatch.setattr("intarsia.model.warm_start.time", type("Clock", (), {"time": staticmethod(lambda: now + 60)}))
    return path


def save_beside(model: onnx.ModelProto, path: Path, weights: str = "w.bin") -> None:
    onnx.save(model, path, save_as_external_data=True, location=weights, size_threshold=0)


def made(path: Path, options: ort.SessionOptions | None = None) -> ort.InferenceSession:
    import threading

    session = ort.InferenceSession(path, options)
    for thread in threading.enumerate():
        if thread.name == "intarsia-cache":
            thread.join()
    return session


def answer(session: ort.InferenceSession) -> np.ndarray:
    found: np.ndarray = session.run(None, {"x": X})[0]
    return found


def test_weights_in_other_files_begin_from_the_cache(beside: Path) -> None:
    first, second = made(beside), made(beside)
    assert (is_warm(first), is_warm(second)) == (False, True)
    np.testing.assert_array_equal(answer(first), answer(second))
    assert "MatMul" in str(second.explain())


def test_changed_weights_are_another_model(beside: Path) -> None:
    warm = [made(beside) for _ in range(2)][1]
    times = (beside.parent / "w.bin").stat()
    (beside.parent / "w.bin").write_bytes((2 * W).tobytes())
    os.utime(beside.parent / "w.bin", ns=(times.st_atime_ns, times.st_mtime_ns))
    again = made(beside)
    assert not is_warm(again)
    np.testing.assert_allclose(answer(again), 2 * answer(warm), rtol=1e-5)
    with pytest.raises(ort.Fail, match="has changed since the session was made"):
        warm.explain()


def test_missing_weights_are_an_error_also_of_a_model_that_is_kept(beside: Path) -> None:
    made(beside)
    gc.collect()  # Windows removes no file that is open
    (beside.parent / "w.bin").unlink()
    with pytest.raises(ExternalDataError, match=r"w\.bin"):
        made(beside)


def test_weights_that_change_while_the_session_is_made_are_not_kept(
    beside: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    changed = (beside.parent / "w.bin").stat().st_ctime
    monkeypatch.setattr("intarsia.model.warm_start.time", type("Clock", (), {"time": staticmethod(lambda: changed)}))
    monkeypatch.setattr("intarsia.model.warm_start.logger.isEnabledFor", lambda _level: True)
    with caplog.at_level("DEBUG", "intarsia.cache"):
        made(beside)
    assert "changed while the session was made" in caplog.text
    assert not is_warm(made(beside))


@pytest.mark.not_under_wine("what a symbolic link points to is not found")
def test_a_link_in_another_folder_has_the_weights_of_that_folder(
    beside: Path, tmp_path: Path, make_model: Callable[..., onnx.ModelProto]
) -> None:
    made(beside)
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.onnx").symlink_to(beside)
    (other / "w.bin").write_bytes((3 * W).tobytes())
    linked = made(other / "model.onnx")
    np.testing.assert_allclose(answer(linked), 3 * answer(made(beside)), rtol=1e-4, atol=1e-3)
    again = made(other / "model.onnx")
    assert is_warm(again)
    np.testing.assert_array_equal(answer(linked), answer(again))


def test_the_folder_may_be_another_one(beside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, and relative to the folder that the program is in now."""
    first, second = tmp_path / "1" / "weights", tmp_path / "2" / "weights"
    options = ort.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", "weights")
    answers = []
    for factor, folder in enumerate((first, second), 1):
        folder.mkdir(parents=True)
        (folder / "w.bin").write_bytes((factor * W).tobytes())
        monkeypatch.chdir(folder.parent)
        answers += [answer(made(beside, options)), answer(made(beside, options))]
        assert is_warm(made(beside, options))
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_allclose(answers[2], 2 * answers[0], rtol=1e-5)
    np.testing.assert_array_equal(answers[2], answers[3])
