"""Memory that is given back by the garbage collector: in any thread, in the middle of anything, and without waiting."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from intarsia.codegen.clike import OpenCl
from intarsia.device import gpu as gpu_module
from intarsia.device.gpu import DeviceLimits, Gpu
from intarsia.ep.device import Device

SOON = 120.0  # seconds after which a thread is taken for stuck


class Books(Gpu):
    """A device that has numbers for buffers."""

    def __init__(self, memory_limit: int = 0) -> None:
        super().__init__(Device("books", 0), OpenCl(), DeviceLimits(1 << 30, 1 << 30), memory_limit)
        self.made = 0
        self.destroyed: list[Any] = []

    def _create(self, nbytes: int) -> Any:
        self.made += 1
        return self.made

    def _destroy(self, buffer: Any) -> None:
        self.destroyed.append(buffer)


def test_a_thread_of_the_driver_gives_memory_back_while_the_lock_is_held() -> None:
    """wgpu's polling thread collects garbage while the thread that has the lock waits for it."""
    device = Books()
    kept = [device.allocate(256)]
    done = threading.Event()

    def polling() -> None:
        kept.clear()
        done.set()

    with device.lock:
        threading.Thread(target=polling, daemon=True).start()
        assert done.wait(SOON), "giving memory back waits for the lock"
        assert device.counters.allocated_nbytes == 256  # who holds the lock takes it back
    assert device.counters.allocated_nbytes == 0


def test_memory_given_back_in_the_middle_of_an_operation_waits_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Books()
    kept = [device.allocate(256) for _ in range(3)]
    with device.lock, device.lock:
        kept.clear()
        assert device.counters.allocated_nbytes == 3 * 256
    assert device.counters.allocated_nbytes == 0
    kept = [device.allocate(512)]
    monkeypatch.setattr(device, "_destroy", lambda buffer: kept.clear())  # a collection while pooled buffers are given back
    assert device.trim() == 3 * 256
    assert device.counters.allocated_nbytes == 0
    assert device.holders() == {}


def test_what_was_given_back_serves_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_module, "_POOLED_NBYTES", 512)
    device = Books(memory_limit=1024)
    kept = [device.allocate(256) for _ in range(4)]
    with device.lock:
        kept.clear()
        again = device.allocate(256)  # within the limit, since what was returned is counted first
    assert device.made == 4
    assert len(device.destroyed) == 2
    assert device.counters.allocated_nbytes == 256
    device.account("graphs", 100)
    device.forget("graphs", 100)
    assert device.holders() == {"values": 256}
    del again
    assert device.counters.allocated_nbytes == 0


def test_many_threads_give_and_take() -> None:
    device = Books()

    def work() -> None:
        for i in range(300):
            made = [device.allocate(256 * (1 + i % 3)) for _ in range(3)]
            del made

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
        assert not thread.is_alive()
    assert device.counters.allocated_nbytes == 0
    assert sum(device.holders().values()) == 0
