"""Step tables on pools of threads: order, barriers, patches, termination, and callers that meet."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import subprocess
import sys
import threading
import time
from typing import ClassVar

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the executor is native code made with llvmlite")

from intarsia.codegen.llvm.jit import emit_assembly, get_engine, kernel_text
from intarsia.codegen.llvm.target import Target
from intarsia.errors import EPFail, InvalidArgument
from intarsia.runtime import spmd_state
from intarsia.runtime.executor import OK, TERMINATED, CallBlock, Pool, StepTable, StepTableBuilder, get_pool
from intarsia.runtime.spmd_text import executor_text
from intarsia.runtime.threads import PoolSettings, available_cores

SPINNING = {True: PoolSettings(), False: PoolSettings(spin_microseconds=0.0)}

# args: x, y, count, delta; y[i] = x[count - 1 - i] * 3 + delta: every thread reads what other threads wrote.
MIRROR = """
define void @__SYMBOL__(ptr %args, i64 %tid, i64 %nthreads) nounwind {
entry:
  %x = load ptr, ptr %args
  %yp = getelementptr i64, ptr %args, i64 1
  %y = load ptr, ptr %yp
  %cp = getelementptr i64, ptr %args, i64 2
  %count = load i64, ptr %cp
  %dp = getelementptr i64, ptr %args, i64 3
  %delta = load i64, ptr %dp
  %last = sub i64 %count, 1
  %some = icmp slt i64 %tid, %count
  br i1 %some, label %loop, label %out
loop:
  %i = phi i64 [ %tid, %entry ], [ %i1, %loop ]
  %j = sub i64 %last, %i
  %p = getelementptr i64, ptr %x, i64 %j
  %v = load i64, ptr %p
  %w = mul i64 %v, 3
  %r = add i64 %w, %delta
  %q = getelementptr i64, ptr %y, i64 %i
  store i64 %r, ptr %q
  %i1 = add i64 %i, %nthreads
  %more = icmp slt i64 %i1, %count
  br i1 %more, label %loop, label %out
out:
  ret void
}
"""

# args: cell, rounds, value: busy for `rounds`, which may be lowered meanwhile, then cell += value, and cell[1] = nthreads
SLOW = """
define void @__SYMBOL__(ptr %args, i64 %tid, i64 %nthreads) nounwind {
entry:
  %cell = load ptr, ptr %args
  %rp = getelementptr i64, ptr %args, i64 1
  %vp = getelementptr i64, ptr %args, i64 2
  %value = load i64, ptr %vp
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  call void asm sideeffect "", "~{memory}"()
  %i1 = add i64 %i, 1
  %rounds = load i64, ptr %rp
  %more = icmp slt i64 %i1, %rounds
  br i1 %more, label %loop, label %out
out:
  %r = atomicrmw add ptr %cell, i64 %value monotonic
  %np = getelementptr i64, ptr %cell, i64 1
  store i64 %nthreads, ptr %np
  ret void
}
"""


@functools.cache
def address(text: str) -> int:
    kernel = kernel_text("test", text)
    return get_engine().load([kernel])[kernel.symbol]


class Chain:
    """`length` mirror steps between two buffers, as one caller's table and arrays."""

    def __init__(self, length: int, size: int = 61, seed: int = 0) -> None:
        self.start = np.random.default_rng(seed).integers(0, 1000, size)
        self.buffers = np.zeros((2, size), np.int64)
        self.args = np.zeros((length, 4), np.int64)
        self.builder = StepTableBuilder()
        for k in range(length):
            source, target = self.buffers[k % 2], self.buffers[1 - k % 2]
            self.args[k] = (source.ctypes.data, target.ctypes.data, size, k)
            self.builder.step(address(MIRROR), self.args[k].ctypes.data, serial=k % 7 == 3)
        self.length = length

    def expected(self) -> np.ndarray:
        x = self.start
        for k in range(self.length):
            x = x[::-1] * 3 + k
        return x

    def result(self) -> np.ndarray:
        return self.buffers[self.length % 2]

    def reset(self) -> None:
        self.buffers[:] = 0
        self.buffers[0] = self.start


def run_chain(pool: Pool, chain: Chain, block: CallBlock) -> None:
    chain.reset()
    assert pool.run_block(block.address) == OK
    np.testing.assert_array_equal(chain.result(), chain.expected())


@pytest.mark.parametrize("spinning", [True, False])
@pytest.mark.parametrize("num_threads", [1, 2, 3, 5, 19])
def test_steps_see_what_came_before(num_threads: int, spinning: bool) -> None:
    pool = get_pool(num_threads, SPINNING[spinning])
    for length in (0, 1, 2, 17):
        chain = Chain(length)
        block = CallBlock(chain.builder.build())
        for _ in range(5):
            run_chain(pool, chain, block)


def test_shares_of_workers_that_wait_for_a_core_are_done_by_others() -> None:
    pool = Pool(4)
    chain = Chain(2)
    block = CallBlock(chain.builder.build())
    assert pool.run_block(block.address) == OK  # so that there are workers
    slow = Slow(rounds=200_000)
    table = CallBlock(slow.table(*(False,) * 8))
    original = pool._state[spmd_state.GENERATION]
    pin = getattr(os, "sched_setaffinity", None)
    cores = os.sched_getaffinity(0) if pin else set()
    for thread in pool._threads if pin else ():
        os.sched_setaffinity(thread.native_id or 0, {min(cores)})
    for turn in range(1, 6):
        assert pool.run_block(table.address) == OK
        assert slow.cell.tolist() == [8 * 4 * turn, 4]
    assert pool._state[spmd_state.GENERATION] == original + 40


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_workers_keep_their_affinity() -> None:
    """A worker that finds itself on the caller's core leaves it, not the cores that it may use."""
    pool = Pool(2)
    chain = Chain(40)
    block = CallBlock(chain.builder.build())
    run_chain(pool, chain, block)
    (worker,) = pool._threads
    assert worker.native_id is not None
    for _ in range(200):
        run_chain(pool, chain, block)
        time.sleep(0.0005)
    deadline = time.monotonic() + 300
    while os.sched_getaffinity(worker.native_id) != os.sched_getaffinity(0):
        assert time.monotonic() < deadline
        time.sleep(0.001)  # it may be between its two calls


def test_run_by_addresses() -> None:
    chain = Chain(9)
    table = chain.builder.build()
    chain.reset()
    assert get_pool(2).run(table.rows.ctypes.data, len(table.rows)) == OK
    np.testing.assert_array_equal(chain.result(), chain.expected())


@pytest.mark.parametrize("wait_if_busy", [False, True])
@pytest.mark.parametrize("spinning", [True, False])
def test_many_callers_of_one_pool(wait_if_busy: bool, spinning: bool) -> None:
    pool = get_pool(2, SPINNING[spinning])
    failures: list[BaseException] = []

    def caller(seed: int) -> None:
        try:
            chain = Chain(11, seed=seed)
            block = CallBlock(chain.builder.build(), wait_if_busy=wait_if_busy)
            for _ in range(400):
                run_chain(pool, chain, block)
        except BaseException as error:  # noqa: BLE001 - reported by the main thread
            failures.append(error)

    busy = pool.busy_runs
    callers = [threading.Thread(target=caller, args=(seed,)) for seed in range(4)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert not failures
    assert not wait_if_busy or pool.busy_runs == busy


def test_busy_pool_runs_on_the_caller_alone() -> None:
    pool = get_pool(2)
    slow, quick = Slow(rounds=10**15), Slow(rounds=1)
    slow_block = CallBlock(slow.table())
    thread = threading.Thread(target=pool.run_block, args=(slow_block.address,))
    before = pool.parallel_runs, pool.busy_runs
    thread.start()
    try:
        while pool.parallel_runs == before[0]:
            time.sleep(0.001)
        quick_block = CallBlock(quick.table())
        assert pool.run_block(quick_block.address) == OK
    finally:
        slow.args[1] = 0  # which ends it
        thread.join()
    assert quick.cell.tolist() == [1, 1]
    assert slow.cell.tolist() == [2, 2]
    assert pool.busy_runs == before[1] + 1


class Slow:
    """Steps that add `value` to a cell after a while; a parallel one adds it once a thread."""

    def __init__(self, rounds: int, value: int = 1) -> None:
        self.cell = np.zeros(2, np.int64)
        self.args = np.array([self.cell.ctypes.data, rounds, value], np.int64)

    def table(self, *serial: bool) -> StepTable:
        builder = StepTableBuilder()
        for flag in serial or (False,):
            builder.step(address(SLOW), self.args.ctypes.data, serial=flag)
        return builder.build()


def test_serial_steps_run_once_and_wake_nobody() -> None:
    pool = get_pool(2)
    slow = Slow(rounds=10)
    before = pool.parallel_runs
    block = CallBlock(slow.table(True, True, True))
    assert pool.run_block(block.address) == OK
    assert slow.cell.tolist() == [3, 1]
    assert pool.parallel_runs == before
    block = CallBlock(slow.table(True, False, True, True, False, True))
    assert pool.run_block(block.address) == OK
    assert slow.cell.tolist() == [3 + 4 + 2 * 2, 1]
    assert pool.parallel_runs == before + 1


def test_a_barrier_owed_by_a_serial_step_is_taken_after_the_next() -> None:
    source, result = np.zeros(2, np.int64), np.zeros(8, np.int64)
    late = np.array([source.ctypes.data, 300_000, 5], np.int64)
    aside = Slow(rounds=1)
    args = np.array([source.ctypes.data, result.ctypes.data, 1, 0], np.int64)
    builder = StepTableBuilder()
    builder.step(address(MIRROR), args.ctypes.data)
    builder.step(address(SLOW), late.ctypes.data, serial=True)
    builder.step(address(SLOW), aside.args.ctypes.data, serial=True, barrier=False)
    builder.step(address(MIRROR), args.ctypes.data)
    block = CallBlock(builder.build())
    for turn in range(1, 20):
        get_pool(2).run_block(block.address)
        assert result[0] == 15 * turn


def test_steps_without_barrier_are_finished_at_the_end() -> None:
    pool = get_pool(3)
    slow, keep = Slow(rounds=20_000), Slow(1)
    builder = StepTableBuilder()
    for _ in range(6):
        builder.step(address(SLOW), slow.args.ctypes.data, barrier=False)
    builder.step(address(SLOW), keep.args.ctypes.data, serial=True)
    block = CallBlock(builder.build())
    for turn in range(1, 10):
        pool.run_block(block.address)
        assert slow.cell[0] == 18 * turn
        assert keep.cell[0] == turn


def test_patches() -> None:
    x, y = np.arange(12), np.zeros(10, np.int64)
    args = np.array([0, 0, 10, 1], np.int64)
    builder = StepTableBuilder()
    builder.step(address(MIRROR), args.ctypes.data)
    builder.patch(args.ctypes.data, 1, offset_bytes=16)
    builder.patch(args.ctypes.data + 8, 0)
    externals = np.array([y.ctypes.data, x.ctypes.data], np.int64)
    block = CallBlock(builder.build(), externals)
    assert get_pool(2).run_block(block.address) == OK
    np.testing.assert_array_equal(y, x[2:][::-1] * 3 + 1)


@pytest.mark.parametrize("num_threads", [1, 2, 4])
@pytest.mark.parametrize("serial", [True, False])
def test_terminate(num_threads: int, serial: bool) -> None:
    pool = get_pool(num_threads)
    flag = np.zeros(2, np.int64)
    raise_flag = np.array([flag.ctypes.data, 1, 1], np.int64)
    before, after = Slow(1), Slow(1)
    builder = StepTableBuilder()
    builder.step(address(SLOW), before.args.ctypes.data)
    builder.step(address(SLOW), raise_flag.ctypes.data, serial=serial)
    for _ in range(5):
        builder.step(address(SLOW), after.args.ctypes.data)
    builder.step(address(SLOW), after.args.ctypes.data, serial=True)
    block = CallBlock(builder.build(), flag=flag)
    for turn in range(1, 10):
        flag[:] = 0
        assert pool.run_block(block.address) == TERMINATED
        assert before.cell[0] == turn * num_threads
        assert after.cell[0] == 0
    assert pool.run_block(block.address) == TERMINATED  # set before the start
    assert before.cell[0] == 9 * num_threads
    raise_flag[2] = flag[:] = 0
    assert pool.run_block(block.address) == OK
    assert after.cell[0] == 5 * num_threads + 1


def test_times_are_those_of_perf_counter() -> None:
    slow = Slow(rounds=1000)
    table = slow.table(False, True, True, False, False, True)
    for num_threads in (1, 2):
        times = np.zeros(7, np.int64)
        block = CallBlock(table, times=times)
        start = time.perf_counter_ns()
        get_pool(num_threads).run_block(block.address)
        assert start <= times[0]
        assert (np.diff(times) >= 0).all()
        assert times[-1] <= time.perf_counter_ns()


def test_pools_are_shared() -> None:
    assert get_pool(2) is get_pool(2)
    assert get_pool(2) is not get_pool(2, SPINNING[False])
    assert get_pool(0).num_threads >= 1
    for bad in (-1, 5000):
        with pytest.raises(InvalidArgument, match=f"a thread count is 0 .* got {bad}"):
            get_pool(bad)


def test_tables_are_checked() -> None:
    with pytest.raises(InvalidArgument, match="step 0 has function address 0"):
        StepTableBuilder().step(0, 0)
    builder = StepTableBuilder()
    builder.patch(0, 3)
    with pytest.raises(InvalidArgument, match="1 patches that read 4 externals, but no externals were given"):
        CallBlock(builder.build())
    with pytest.raises(
        InvalidArgument, match=r"externals must be a C-contiguous int64 array of at least 4 .* float32 of shape \(4,\)"
    ):
        CallBlock(builder.build(), np.zeros(4, np.float32))
    with pytest.raises(InvalidArgument, match=r"times must be .* at least 1 elements"):
        CallBlock(StepTableBuilder().build(), times=np.zeros(0, np.int64))


def test_without_workers_runs_go_on_one_thread(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    pool = Pool(3)
    started: list[int] = []
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(1)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    chain = Chain(9)
    block = CallBlock(chain.builder.build(), wait_if_busy=True)
    with caplog.at_level(logging.WARNING, "intarsia"):
        for _ in range(3):
            run_chain(pool, chain, block)
    assert "only 1 of 2 worker threads could be started" in caplog.text
    assert len(caplog.records) == 1
    assert pool.parallel_runs == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_fork() -> None:
    pool = get_pool(2)
    chain = Chain(13)
    block = CallBlock(chain.builder.build())
    run_chain(pool, chain, block)
    busy = Slow(rounds=30_000_000)
    busy_block = CallBlock(busy.table())
    background = threading.Thread(target=pool.run_block, args=(busy_block.address,))
    background.start()
    child = os.fork()
    if child == 0:
        try:
            for _ in range(50):
                run_chain(pool, chain, block)
            os._exit(0 if pool.parallel_runs == 50 else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    background.join()
    for _ in range(50):
        run_chain(pool, chain, block)


SCRIPT = """
import threading, time
import numpy as np
from intarsia.codegen.llvm.jit import get_engine, kernel_text
from intarsia.runtime.executor import CallBlock, StepTableBuilder, get_pool
from intarsia.runtime.threads import PoolSettings
kernel = kernel_text("nop", "define void @__SYMBOL__(ptr %a, i64 %t, i64 %n) nounwind {{ ret void }}")
builder = StepTableBuilder()
for _ in range(5):
    builder.step(get_engine().load([kernel])[kernel.symbol], 0)
block = CallBlock(builder.build())
pool = get_pool(3, PoolSettings(1000.0 * {spinning}))
for _ in range(100):
    assert pool.run_block(block.address) == 0
def forever():
    while True:
        pool.run_block(block.address)
if {daemon}:
    threading.Thread(target=forever, daemon=True).start()
    time.sleep(0.05)
print("done")
"""


@pytest.mark.parametrize(("daemon", "spinning"), [(False, True), (False, False), (True, True)])
def test_interpreter_exit_is_clean(daemon: bool, spinning: bool) -> None:
    script = SCRIPT.format(daemon=daemon, spinning=spinning)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", script], capture_output=True, text=True, timeout=600, env=environment, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize(
    ("triple", "features"),
    [
        ("aarch64-unknown-linux-gnu", "+neon"),
        ("armv7-unknown-linux-gnueabihf", "+neon"),
        ("arm64-apple-darwin", "+neon"),
        ("x86_64-pc-windows-msvc", ""),
        ("riscv64-unknown-linux-gnu", "+m,+a"),
        ("riscv64-unknown-freebsd", "+m,+a"),
    ],
)
def test_other_platforms_compile(triple: str, features: str) -> None:
    target = Target.create(triple, features=features)
    kernel = executor_text(target)
    assert kernel.symbol in emit_assembly(kernel.ir, target)


def test_no_threads_in_webassembly() -> None:
    with pytest.raises(EPFail, match="needs threads, which 'wasm32-unknown-unknown' has not"):
        executor_text(Target.create("wasm32-unknown-unknown"))


# args: rounds: share 1 is busy for `rounds`, the others for an eighth, in which a worker may claim it.
UNEVEN = """
define void @__SYMBOL__(ptr %args, i64 %tid, i64 %nthreads) nounwind {
entry:
  %all = load i64, ptr %args
  %few = lshr i64 %all, 3
  %late = icmp eq i64 %tid, 1
  %rounds = select i1 %late, i64 %all, i64 %few
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  call void asm sideeffect "", "~{memory}"()
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %rounds
  br i1 %more, label %loop, label %out
out:
  ret void
}
"""


class TestDisputedCores:
    """What other threads of the machine do is imitated: the word of disputes is written, and who is yielded to is this test.

    A pool that does not spin finds no dispute by itself, whatever else the machine does.
    """

    kept: ClassVar[list[object]] = []  # workers outlive the tests and may find a dispute of their own

    def pool(self, spinning: bool = False) -> tuple[Pool, list[str], object]:
        pool, yields = Pool(2, SPINNING[spinning]), []

        def note() -> int:
            yields.append(threading.current_thread().name)
            return 0

        called = ctypes.CFUNCTYPE(ctypes.c_int)(note)
        self.kept.append(called)
        pool._state[spmd_state.YIELD] = ctypes.cast(called, ctypes.c_void_p).value
        return pool, yields, called

    def run(self, pool: Pool, steps: int = 8) -> None:
        slow = Slow(rounds=1000)
        block = CallBlock(slow.table(*(False,) * steps))
        assert pool.run_block(block.address) == OK

    def test_a_long_wait_for_a_share_is_a_dispute(self) -> None:
        pool, _, _ = self.pool(spinning=True)
        rounds = np.array([30_000_000], np.int64)
        builder = StepTableBuilder()
        builder.step(address(UNEVEN), rounds.ctypes.data)
        block = CallBlock(builder.build())
        for _ in range(500):  # it is no wait where the caller does both shares, or the cores are one
            before = time.perf_counter_ns()
            assert pool.run_block(block.address) == OK
            if until := int(pool._state[spmd_state.DISPUTED]):
                assert before < until - 50_000_000 < time.perf_counter_ns()
                return
        assert available_cores() == 1, "the caller has waited for no share"

    def test_workers_yield_between_steps(self) -> None:
        pool, yields, _ = self.pool()
        self.run(pool)
        assert not yields
        pool._state[spmd_state.DISPUTED] = time.perf_counter_ns() + 10**12
        end = time.monotonic() + 300
        while not yields and time.monotonic() < end:
            self.run(pool)
        assert set(yields) == {"intarsia-2-1"} or all("Dummy" in name for name in yields)
        assert pool._state[spmd_state.DISPUTED] != 0

    def test_no_more_than_once_in_two_milliseconds_and_a_half(self) -> None:
        pool, yields, _ = self.pool()
        pool._state[spmd_state.DISPUTED] = time.perf_counter_ns() + 10**12
        start = time.perf_counter_ns()
        for _ in range(100):
            self.run(pool)
        assert len(yields) <= 1 + (time.perf_counter_ns() - start) // 2_500_000

    def test_a_dispute_ends(self) -> None:
        pool, yields, _ = self.pool()
        pool._state[spmd_state.DISPUTED] = 1  # long ago
        end = time.monotonic() + 300
        while pool._state[spmd_state.DISPUTED] == 1 and time.monotonic() < end:
            self.run(pool)
        assert pool._state[spmd_state.DISPUTED] == 0
        assert not yields
