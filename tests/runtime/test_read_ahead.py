"""Weights of a mapped file that a thread fetches ahead of the first run."""

from __future__ import annotations

import errno
import mmap
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from intarsia.runtime import read_ahead
from intarsia.runtime.read_ahead import Spans, begin, joined

MIB = 1 << 20
linux = pytest.mark.skipif(sys.platform != "linux", reason="what is mapped is read from Linux's /proc")
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were just written are in memory."""
    monkeypatch.setattr(read_ahead, "_MANY_NBYTES", 0)


@pytest.fixture
def mapped(tmp_path: Path) -> np.ndarray:
    """16 MiB of a file's pages, of which nothing was touched."""
    path = tmp_path / "weights"
    path.write_bytes(RNG.bytes(16 * MIB))
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def resident_nbytes(array: np.ndarray) -> int:
    """How much of the mapping at an array's beginning this process has in memory."""
    first, last = array.ctypes.data, array.ctypes.data + array.nbytes
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        bounds = line.split(" ")[0]
        if "-" in bounds and not bounds.endswith(":"):
            low, high = (int(x, 16) for x in bounds.split("-"))
            inside = low < last and first < high
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1]) << 10
    return found


class Asked:
    """In place of the system's madvise: notes what it is asked, and answers with an error where it is told to."""

    def __init__(self, errors: dict[int, int] | None = None) -> None:
        self.calls: list[tuple[int, int, int]] = []
        self.errors = errors or {}

    def __call__(self, address: int, nbytes: int, advice: int) -> int:
        import ctypes

        self.calls.append((address, nbytes, advice))
        ctypes.set_errno(self.errors.get(advice, 0))
        return -1 if advice in self.errors else 0

    def nbytes(self, advice: int) -> int:
        return sum(nbytes for _, nbytes, kind in self.calls if kind == advice)


def fetched(monkeypatch: pytest.MonkeyPatch, block: np.ndarray, asked: Asked, *spans: tuple[int, int]) -> Asked:
    monkeypatch.setattr(read_ahead, "_madvise", lambda: asked)
    thread = begin(block, Spans(spans, ()))
    if thread is not None:
        thread.join()
    return asked


def test_neighbours_are_one_span() -> None:
    assert joined([(9000, 9100), (0, 100), (128, 300)]) == ((0, 300), (9000, 9100))
    assert joined([(0, 500), (100, 200)]) == ((0, 500),)
    assert joined([]) == ()


@linux
def test_pages_are_mapped_and_those_of_other_spans_are_not(mapped: np.ndarray) -> None:
    assert resident_nbytes(mapped) == 0
    thread = begin(mapped, Spans(((8 * MIB, 14 * MIB),), ((0, 4 * MIB),)))
    assert thread is not None
    thread.join()
    assert 6 * MIB <= resident_nbytes(mapped) <= 8 * MIB


CAN_ASK = pytest.mark.skipif(not hasattr(mmap, "MADV_WILLNEED"), reason="this system cannot be asked to read ahead")


@CAN_ASK
def test_a_system_that_cannot_map_ahead_is_asked_to_read(mapped: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    asked = fetched(monkeypatch, mapped, Asked({22: errno.EINVAL}), (0, 4 * MIB), (5 * MIB, 6 * MIB), (7 * MIB, 8 * MIB))
    assert asked.nbytes(mmap.MADV_WILLNEED) == 2 * MIB
    assert asked.nbytes(22) == 4 * MIB, "it was asked again after it had said that it does not know that"


@CAN_ASK
def test_other_systems_are_asked_to_read(mapped: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    asked = fetched(monkeypatch, mapped, Asked(), (0, 6 * MIB))
    assert asked.nbytes(mmap.MADV_WILLNEED) == 6 * MIB


@CAN_ASK
def test_an_error_ends_it(mapped: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    asked = fetched(monkeypatch, mapped, Asked({22: errno.EFAULT}), (0, 4 * MIB), (5 * MIB, 6 * MIB))
    assert asked.nbytes(22) == 4 * MIB
    assert asked.nbytes(mmap.MADV_WILLNEED) == 0


@CAN_ASK
def test_it_ends_with_the_last_of_the_weights(mapped: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "_PIECE_NBYTES", MIB)
    block: np.ndarray | None = mapped[:]
    gone = threading.Event()

    class Slow(Asked):
        def __call__(self, address: int, nbytes: int, advice: int) -> int:
            if advice == read_ahead._POPULATE_READ or advice == mmap.MADV_WILLNEED:
                gone.wait(600)
            return super().__call__(address, nbytes, advice)

    asked = Slow()
    monkeypatch.setattr(read_ahead, "_madvise", lambda: asked)
    assert block is not None
    thread = begin(block, Spans(((0, 16 * MIB),), ()))
    assert thread is not None
    del block
    gone.set()
    thread.join()
    assert asked.nbytes(22) + asked.nbytes(mmap.MADV_WILLNEED) <= 2 * MIB


def test_memory_of_its_own_and_small_weights_need_no_thread(mapped: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    assert begin(np.zeros(8 * MIB, np.uint8), Spans(((0, 8 * MIB),), ())) is None
    assert begin(mapped, Spans(((0, MIB),), ())) is None
    monkeypatch.setattr(read_ahead, "_madvise", lambda: None)
    assert begin(mapped, Spans(((0, 16 * MIB),), ())) is None


@linux
def test_what_is_in_memory_needs_no_thread_unless_it_is_large(mapped: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "_madvise", Asked)
    spans = Spans(((0, 16 * MIB),), ())
    assert begin(mapped, spans) is not None
    monkeypatch.setattr(read_ahead, "_MANY_NBYTES", 64 * MIB)
    assert begin(mapped, spans) is None
    monkeypatch.setattr(read_ahead, "_are_in_memory", lambda *_: False)
    assert begin(mapped, spans) is not None
    room = mmap.mmap(-1, 4 * MIB)
    assert not read_ahead._are_in_memory(np.frombuffer(room, np.uint8).ctypes.data, ((0, MIB),))
