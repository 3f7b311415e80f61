"""Where sleeping workers wake up: off the core of who wakes them, with the affinity that they had afterwards."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path
from typing import ClassVar

import pytest

pytest.importorskip("llvmlite", reason="step functions are compiled with llvmlite")

from intarsia.codegen.llvm.jit import get_engine, kernel_text
from intarsia.codegen.llvm.target import Target
from intarsia.runtime import spmd_state
from intarsia.runtime.executor import OK, CallBlock, Pool, StepTableBuilder
from intarsia.runtime.threads import PoolSettings

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not tell threads their cores")

NOTHING = """
define void @__SYMBOL__(ptr %args, i64 %tid, i64 %nthreads) {
  ret void
}"""
_GET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint64))


def block() -> CallBlock:
    """One step, so that workers are woken once."""
    kernel = kernel_text("nothing", NOTHING)
    builder = StepTableBuilder()
    builder.step(get_engine(Target.host()).load([kernel])[kernel.symbol], 0)
    return CallBlock(builder.build())


def until(condition) -> bool:
    """Whether it once held: a worker that is being woken may end what held."""
    end = time.monotonic() + 300
    while not (held := bool(condition())) and time.monotonic() < end:
        time.sleep(0.001)
    return held


def waits(thread: int) -> bool:
    """Whether a thread of this process waits in the system: one that says that it sleeps may not have begun to."""
    return Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()[0] == "S"


class Machine:
    """Affinities that are noted and answered here, of a machine with the cores 0 to 69."""

    kept: ClassVar[list[object]] = []  # workers outlive the tests

    def __init__(self, pool: Pool) -> None:
        self.pool, self.masks, self.calls = pool, dict[int, int](), list[tuple[int, int]]()
        functions = _GET(self.get), _GET(self.set)
        self.kept.append(functions)
        get, set_ = (ctypes.cast(f, ctypes.c_void_p).value for f in functions)
        pool._state[spmd_state.GET_AFFINITY], pool._state[spmd_state.SET_AFFINITY] = get, set_

    def get(self, thread: int, nbytes: int, mask) -> int:
        found = self.masks.get(thread or threading.get_native_id(), (1 << 70) - 1)
        for i in range(nbytes // 8):
            mask[i] = found >> 64 * i & (1 << 64) - 1
        return 0

    def set(self, thread: int, nbytes: int, mask) -> int:
        asked = sum(mask[i] << 64 * i for i in range(nbytes // 8))
        thread = thread or threading.get_native_id()
        self.masks[thread] = asked
        self.calls.append((thread, asked))
        return 0


class Asleep:
    """A pool whose workers sleep."""

    def __init__(self, threads: int = 2) -> None:
        self.pool = Pool(threads, PoolSettings(spin_microseconds=50))
        self.machine = Machine(self.pool)
        self.pool._state[spmd_state.GETCPU] = 0  # where threads are is written here
        self.block = block()
        assert self.pool.run_block(self.block.address) == OK
        self.workers = [int(self.pool._state[spmd_state.NATIVE_IDS + t]) for t in range(1, threads)]
        self.settle()

    def settle(self) -> None:
        words = self.pool._state[spmd_state.ASLEEP + 1 : spmd_state.ASLEEP + self.pool.num_threads]
        assert until(lambda: set(words) == {1} and all(map(waits, self.workers)))

    def run(self, core: int) -> list[tuple[int, int]]:
        """What was asked of the system for a run by a thread on this core."""
        self.machine.calls.clear()
        self.pool._state[spmd_state.CPUS] = core + 1
        assert self.pool.run_block(self.block.address) == OK
        self.settle()
        return list(self.machine.calls)


@pytest.mark.parametrize("core", [0, 3, 65])
def test_a_worker_is_kept_off_the_core_of_its_waker(core: int) -> None:
    asleep = Asleep()
    full, (worker,) = (1 << 70) - 1, asleep.workers
    for _ in range(3):
        assert asleep.run(core) == [(worker, full & ~(1 << core)), (worker, full)]


def test_its_own_affinity_is_kept() -> None:
    asleep = Asleep()
    (worker,) = asleep.workers
    asleep.machine.masks[worker] = 0b1010
    assert asleep.run(3) == [(worker, 0b10), (worker, 0b1010)]
    assert asleep.run(2) == []  # it would not go there
    asleep.machine.masks[worker] = 0b1000
    assert asleep.run(3) == []  # there is no other


def test_what_is_changed_while_it_sleeps_stays() -> None:
    asleep = Asleep()
    (worker,) = asleep.workers
    asleep.run(1)
    asleep.machine.masks[worker] = 0b11
    asleep.run(1)
    assert asleep.machine.masks[worker] == 0b11


def test_several_and_too_many() -> None:
    asleep = Asleep(3)
    calls = asleep.run(5)
    full = (1 << 70) - 1
    assert sorted(calls) == sorted((worker, mask) for worker in asleep.workers for mask in (full, full & ~(1 << 5)))
    assert Asleep(spmd_state.SPREAD + 1).run(5) == []


def test_a_core_that_is_not_known() -> None:
    assert Asleep().run(-1) == []


def test_threads_that_never_spin() -> None:
    pool = Pool(2, PoolSettings(spin_microseconds=0))
    machine, table = Machine(pool), block()
    for _ in range(5):
        assert pool.run_block(table.address) == OK
        time.sleep(0.002)
    assert machine.calls == []


def test_affinities_of_this_system() -> None:
    """The real thing: whatever happened in between, a worker may go where it might before."""
    pool, table = Pool(2, PoolSettings(spin_microseconds=50)), block()
    assert pool.run_block(table.address) == OK
    worker = int(pool._state[spmd_state.NATIVE_IDS + 1])
    before = os.sched_getaffinity(0)  # which it has from its maker
    for _ in range(20):
        time.sleep(0.002)
        assert pool.run_block(table.address) == OK
    assert until(lambda: pool._state[spmd_state.ASLEEP + 1] == 1 and os.sched_getaffinity(worker) == before)
