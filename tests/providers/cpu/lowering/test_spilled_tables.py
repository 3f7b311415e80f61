"""Tables that kernels read as they are lie in a file of the process's own while it compiles, not in its memory."""

from __future__ import annotations

import errno
import os
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import intarsia as ort
from intarsia.cache.disk_cache import checksum_of
from intarsia.machine.resources import ACCOUNT
from intarsia.providers.cpu.lowering import spilled_tables as module
from intarsia.providers.cpu.lowering.spilled_tables import LEAST_NBYTES, set_aside
from intarsia.providers.cpu.program.memory_use import MAPPED, OWN, owner

posix = pytest.mark.skipif(os.name == "nt", reason="where files cannot lose their name while they are open")
TABLE = np.random.default_rng(0).standard_normal((LEAST_NBYTES // 256 + 5, 64), np.float32)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir(mode=0o700)
    return tmp_path / "cache"


def left_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob(".tmp-*") if path.is_file()]


@posix
def test_elements_and_where_they_are(cache: Path) -> None:
    for array in (TABLE, TABLE.astype(np.float64)[: len(TABLE) // 2 + 9], TABLE[None]):
        found = set_aside(array)
        assert owner(found) == MAPPED
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert not found.flags.writeable
        np.testing.assert_array_equal(found, array)
    assert not left_in(cache)


def test_what_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    small = np.zeros(LEAST_NBYTES - 1, np.uint8)
    assert set_aside(small) is small
    token = ACCOUNT.set(SimpleNamespace())  # type: ignore[arg-type] # a limit, which counts what is in memory
    assert set_aside(TABLE) is TABLE
    ACCOUNT.reset(token)
    monkeypatch.setattr("intarsia.cache.disk_cache.DiskCache.free_nbytes", lambda self: 8 * TABLE.nbytes - 1)
    assert set_aside(TABLE) is TABLE
    monkeypatch.setenv("INTARSIA_CACHE", "0")
    assert set_aside(TABLE) is TABLE


def test_a_full_disk_leaves_it_in_memory(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = [0]

    def write(handle: int, data: memoryview) -> int:
        written[0] += len(data)
        if written[0] > LEAST_NBYTES // 2:
            raise OSError(errno.ENOSPC, "no space")
        return len(data)

    monkeypatch.setattr(module.os, "write", write)
    assert set_aside(TABLE) is TABLE
    assert not left_in(cache)


def model(path: Path, **location: Any) -> Path:
    nodes = [helper.make_node("Gather", ["table", "i"], ["row"]), helper.make_node("Neg", ["row"], ["y"])]
    i, y = (helper.make_tensor_value_info(n, t, s) for n, t, s in (("i", 7, ["n"]), ("y", 1, ["n", 64])))
    graph = helper.make_graph(nodes, "g", [i], [y], [numpy_helper.from_array(TABLE, "table")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path, **location)
    return path


@posix
@pytest.mark.parametrize("location", [{}, {"save_as_external_data": True, "location": "weights.bin"}], ids=["inside", "beside"])
def test_a_session_that_compiles(tmp_path: Path, cache: Path, location: dict[str, Any]) -> None:
    path = model(tmp_path / "m.onnx", **location)
    session = ort.InferenceSession(path)
    held = session.memory_report().providers[0]
    assert held.mapped_nbytes >= TABLE.nbytes
    assert held.packed_nbytes < TABLE.nbytes // 8
    assert not left_in(cache)
    for file in tmp_path.glob("*.*"):
        os.truncate(file, 10)
    rows = np.int64([0, 7, len(TABLE) - 1])
    np.testing.assert_array_equal(session.run(None, {"i": rows})[0], -TABLE[rows])


def test_without_a_cache_it_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE", "0")
    session = ort.InferenceSession(model(tmp_path / "m.onnx"))
    (held,) = session.memory_report().providers
    assert held.mapped_nbytes == 0
    np.testing.assert_array_equal(session.run(None, {"i": np.int64([3])})[0], -TABLE[3:4])


def test_a_checksum_is_that_of_the_bytes_in_one_piece() -> None:
    mapped = set_aside(TABLE)
    assert owner(mapped) == (OWN if os.name == "nt" else MAPPED)
    parts = [b"", b"head", mapped.reshape(-1).view(np.uint8).data, TABLE[:7].data, bytes(70_001)]
    whole = b"".join(bytes(part) for part in parts)
    assert checksum_of(parts) == blake2b(whole, digest_size=16).digest()
    np.testing.assert_array_equal(mapped, TABLE)  # whose pages were let go
