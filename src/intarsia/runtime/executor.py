"""SPMD execution of step tables: threads parked in native code share the steps of a run, with native barriers between them.

A run walks a table of rows of four int64: function address, argument address, flags, 0. Every step function has the ABI

    void f(int64_t *args, int64_t tid, int64_t nthreads)

raises nothing, and does its share tid of nthreads for *any* nthreads >= 1.

Flags (`SERIAL` 1, `NO_BARRIER` 2):

- A parallel step (flags bit 0 clear) has a share for each thread of the pool, called once with its tid, by that thread or,
  where it has not begun, by another that is done with its own: a worker that sleeps or waits for a core holds nobody up. Share
  0 and serial steps (called with tid 0 and nthreads 1) are the calling thread's.
- A step begins when the one before it is done, unless both are parallel and the one before has NO_BARRIER: then a share
  of both is computed in one go, and no later step up to the next barrier may need its results.
- A table of serial steps only wakes nobody. When `run` returns, every thread has finished with the table, its arguments and its
  buffers.

A row whose function address is 0 is a jump: its argument is a pair of int64 (address of a byte, value), and the walk goes on
at the row's fourth word if the byte is that value or the address is 0, else at the next row. In a table with any
parallel row a jump is parallel too (bit 0 clear), the row before it has no NO_BARRIER, and no jump leads out of the rows
between the first and the last parallel row.

Patches are rows of three int64 (address of a slot, index, byte offset): before the first step,
`*slot = externals[index] + offset`. The flag, an int64 that another thread may set, is looked at between steps; once it
is not 0 the run returns TERMINATED (1), no later step having begun; otherwise OK (0). A step that takes long
is put into the table as `plan.executor_abi.sliced_words` says: then the flag is looked at between its slices too. `times`, if
its address is not 0, receives nsteps + 1 stamps in nanoseconds of `time.perf_counter_ns`: the start, and after each step
with its barrier as the caller saw it (NO_BARRIER is ignored then).

A pool runs one table at a time. A caller that finds it busy runs its table alone, as thread 0 of 1, or waits its turn
if it said so: either way nothing can deadlock, and tables with their own arguments do not disturb each other.

Waiting threads spin for about a millisecond, then sleep. If another thread of the pool was last seen on the same core,
which would wait for them to stop, a worker moves to another core first (on Linux, by leaving this one out of its affinity
for a moment; who wakes a sleeping worker leaves its own core out of that one's), and where it cannot, or is the caller, sleeps
after 2 microseconds (threads do not yield: that gives whole time slices to other processes, where a sleeper is let in as soon
as it is woken). Where the caller has waited a quarter of
that time for a share that a worker holds, another program may have the worker's core: for the next 50 milliseconds workers
let it run, between two steps, before the system takes the core from them in the middle of one. They sleep by futex on Linux,
__ulock on macOS, WaitOnAddress on Windows, usleep elsewhere; in a pool that does not spin at once. The threads are Python
daemon threads inside a ctypes call, so they hold no GIL. They are started by the first run that needs them, again after a
fork, and stopped at interpreter exit.

Signals (Ctrl-C, SIGTERM, SIGALRM) wait until native code returns, unless the call's mode has LONG: then Python's handlers run
between two steps of the main thread's run, which ends with the exception that one raises, and else goes on.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # what `signal` is made of: its enumerations would take a millisecond of every start
import atexit
import ctypes
import functools
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from intarsia.codegen.llvm.cached_image import CachedImage
from intarsia.errors import InvalidArgument
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.plan.executor_abi import LONG, call_words
from intarsia.printable import get_logger
from intarsia.runtime import spmd_state as word
from intarsia.runtime.threads import PoolSettings, available_cores

if TYPE_CHECKING:
    from intarsia.codegen.llvm.jit import KernelText
    from intarsia.codegen.llvm.target import Target

logger = get_logger("intarsia")

SERIAL = 1
NO_BARRIER = 2
OK = word.OK
TERMINATED = word.TERMINATED
MAX_THREADS = word.MAX_THREADS

_WAIT_IF_BUSY = 1
_ALONE = 2
_SIGNALS = ("SIGINT", "SIGTERM", "SIGALRM")  # those that are answered in a long run; at most word.MOST_SIGNALS
_FIRST_SPIN_MICROSECONDS = 2.0
_EXIT_SECONDS = 1.0
_DEFAULT = PoolSettings()


@dataclass(frozen=True)
class StepTable:
    """Rows for `Pool.run`: `rows` int64 [nsteps, 4], `patches` int64 [npatches, 3]. Made by `StepTableBuilder.build`."""

    rows: np.ndarray
    patches: np.ndarray


class StepTableBuilder:
    """Collects steps and patches."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []
        self._patches: list[tuple[int, int, int]] = []

    def step(self, function: int, args: int, *, serial: bool = False, barrier: bool = True) -> int:
        """Append a step: addresses of its function and its arguments; returns its index."""
        if not function:
            raise InvalidArgument(f"step {len(self._rows)} has function address 0; load the kernel with Engine.load first")
        self._rows.append((function, args, SERIAL * serial | NO_BARRIER * (not barrier), 0))
        return len(self._rows) - 1

    def jump(self, target: int, condition: int = 0, *, serial: bool = False) -> int:
        """Append a jump to row `target`; `condition` is the address of a pair of int64 (address of a byte or 0, value)."""
        self._rows.append((0, condition, SERIAL * serial, target))
        return len(self._rows) - 1

    def patch(self, slot: int, external: int, offset_bytes: int = 0) -> None:
        """Before each run, store externals[external] + offset_bytes at address `slot`."""
        self._patches.append((slot, external, offset_bytes))

    def build(self) -> StepTable:
        """The table; the builder may go on and build a longer one."""
        rows = np.array(self._rows, dtype=np.int64).reshape(-1, 4)
        return StepTable(rows, np.array(self._patches, dtype=np.int64).reshape(-1, 3))


class CallBlock:
    """The arguments of one caller's runs as int64 words in memory, for `Pool.run_block`.

    Words: table, nsteps, patches, npatches, externals, flag, times, mode, and some for native code to use (`call_words`). It
    keeps the arrays alive that it points to. One block serves one run at a time.
    """

    def __init__(
        self,
        table: StepTable,
        externals: np.ndarray | None = None,
        *,
        flag: np.ndarray | None = None,
        times: np.ndarray | None = None,
        wait_if_busy: bool = False,
        long: bool = False,
    ) -> None:
        """`externals` int64 [n], `flag` int64 [1], `times` int64 [nsteps + 1], each C-contiguous; `long`: answer signals."""
        nsteps, npatches = len(table.rows), len(table.patches)
        needed = int(table.patches[:, 1].max()) + 1 if npatches else 0
        _check("externals", externals, needed)
        _check("flag", flag, 1)
        _check("times", times, nsteps + 1)
        if npatches and externals is None:
            raise InvalidArgument(f"the table has {npatches} patches that read {needed} externals, but no externals were given")
        self._held = (table, externals, flag, times)
        arrays = (table.patches, externals, flag, times)
        patches, *others = (0 if array is None else array.ctypes.data for array in arrays)
        mode = _WAIT_IF_BUSY * wait_if_busy | LONG * long
        self.words = call_words(table.rows.ctypes.data, nsteps, patches, npatches, *others, mode)
        self.address = int(self.words.ctypes.data)


def sliced_step() -> int:
    """The address of the step whose arguments are `plan.executor_abi.sliced_words`."""
    return _native().sliced


def feed_function() -> int:
    """The address of the C function that runs a call on a feed (`intarsia.runtime.spmd_feed`)."""
    return _native().feed


def again_function() -> int:
    """The address of the one that runs a call on the memory that it ran on before."""
    return _native().again


def dynamic_function() -> int:
    """The address of the C function that runs a call whose sizes are dynamic on a feed
    (`intarsia.runtime.spmd_dynamic_shapes`)."""
    return _native().dynamic


def empty_function() -> int:
    """The address of the one that gives memory for a result (`intarsia.runtime.spmd_leases`)."""
    return _native().empty


def run_function() -> int:
    """The address of the C function that runs a call: of the words of a pool and of the call, it returns a status."""
    return _native().run_address


def whole_step() -> int:
    """The address of the step that one thread runs whole: its arguments are a step's function, its arguments, the thread."""
    return _native().whole


class Pool:
    """`num_threads` threads that run one step table at a time: the caller and num_threads - 1 workers. See `get_pool`."""

    def __init__(self, num_threads: int, settings: PoolSettings = _DEFAULT) -> None:
        self.num_threads = num_threads
        self.settings = settings
        self._native = _native()
        self._state = lasting_words(word.FLAGS + -(-num_threads // 8) * word.LINE)
        self._address = int(self._state.ctypes.data)
        self._run = self._native.run
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._reset()

    def run(
        self,
        table: int,
        nsteps: int,
        patches: int = 0,
        npatches: int = 0,
        externals: int = 0,
        flag: int = 0,
        times: int = 0,
        *,
        wait_if_busy: bool = False,
    ) -> int:
        """Run a table given by addresses (0: none); returns OK or TERMINATED. See the module's text for their layout."""
        block = call_words(table, nsteps, patches, npatches, externals, flag, times, wait_if_busy)
        return self.run_block(int(block.ctypes.data))

    def run_block(self, block: int) -> int:
        """As `run`, with the arguments in the `CallBlock` at address `block`: half the cost of a call.

        Raises:
            What a signal's handler raised in a run that may take long (KeyboardInterrupt).
        """
        status = self._run(self._address, block)
        return self._settled(status, block) if status else status

    @property
    def address(self) -> int:
        """The address of the pool's words."""
        return self._address

    @property
    def parallel_runs(self) -> int:
        """Runs in which workers took part, since this process began or was forked."""
        return int(self._state[word.PARALLEL_RUNS])

    @property
    def busy_runs(self) -> int:
        """Runs that went on one thread because the pool was busy."""
        return int(self._state[word.BUSY_RUNS])

    @property
    def wake_calls(self) -> int:
        """Runs that had to wake sleeping workers."""
        return int(self._state[word.WAKE_CALLS])

    def _settled(self, status: int, block: int) -> int:
        """What a status other than OK requires."""
        if status == word.WORKERS_MISSING and self._start():
            status = self._run(self._address, block)
        if status == word.WORKERS_MISSING:
            mode = (ctypes.c_int64 * word.CALL_WORDS).from_address(block)
            mode[word.CALL_MODE] |= _ALONE
            try:
                status = self._run(self._address, block)
            finally:
                mode[word.CALL_MODE] &= ~_ALONE
        if status == word.INTERRUPTED:
            raise_signal_error()
        if status == TERMINATED and _Ending.begun and threading.current_thread() is not threading.main_thread():
            raise SystemExit  # the process ends, and this daemon thread with it
        return status

    def _start(self) -> bool:
        """Start the workers; False where that cannot be, as at interpreter exit."""
        with _lock:
            if self._state[word.STARTED]:
                return True
            if self._closed:
                return False
            generation = int(self._state[word.GENERATION])
            try:
                for tid in range(1, self.num_threads):
                    thread = threading.Thread(
                        target=self._work,
                        args=(tid, generation),
                        name=f"intarsia-{self.num_threads}-{tid}",
                        daemon=True,
                    )
                    thread.start()
                    self._threads.append(thread)
            except RuntimeError as error:
                logger.warning(
                    "only %d of %d worker threads could be started (%s): runs go on one thread",
                    len(self._threads),
                    self.num_threads - 1,
                    error,
                )
                self._close()
                return False
            self._state[word.STARTED] = 1
            return True

    def _work(self, tid: int, generation: int) -> None:
        if self.settings.affinities:
            try:
                os.sched_setaffinity(0, self.settings.affinities[tid - 1])  # this thread's
            except OSError as error:
                logger.warning("thread %d of %d cannot be bound to its cores: %s", tid, self.num_threads, error)
        self._state[word.NATIVE_IDS + tid] = threading.get_native_id()
        self._native.worker(self._address, tid, generation)

    def _close(self) -> None:
        self._closed = True
        deadline = time.monotonic() + _EXIT_SECONDS
        while not self._native.halt(self._address):
            if time.monotonic() > deadline:
                return
            time.sleep(0.001)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _reset(self) -> None:
        """The state of a pool without workers: at the start, and in a forked child."""
        self._state[:] = 0
        self._state[word.THREADS] = self.num_threads
        spin = self.settings.spin_microseconds
        if spin > 0:
            self._state[word.SPINS] = max(1, int(min(spin, _FIRST_SPIN_MICROSECONDS) * _spins_per_microsecond()))
            self._state[word.PATIENCE] = max(1, int(spin * _spins_per_microsecond()))
        self._state[word.FLUSHING] = self.settings.flush_denormals
        self._state[word.WAIT : word.CLOCK_SCALE + 1] = _system_functions()
        self._state[word.YIELD] = _yield_function()
        self._threads = []


@dataclass(frozen=True)
class _Native:
    run: Callable[[int, int], int]
    worker: Callable[[int, int, int], int]
    spin: Callable[[int, int], int]
    halt: Callable[[int], int]
    sliced: int
    whole: int
    feed: int
    again: int
    dynamic: int
    empty: int
    run_address: int
    signals: ctypes.Array[ctypes.c_int64]


_lock = fork_safety.held_lock(1)  # under which an engine loads the native code
_pools: dict[tuple[int, PoolSettings], Pool] = {}


_requested = [0]


def set_default_threads(count: int) -> None:
    """How many threads the pools have that are requested without a number from now on; 0: as many as there are cores."""
    if not 0 <= count <= MAX_THREADS:
        raise InvalidArgument(f"a thread count is 0 (all cores) to {MAX_THREADS}; got {count}")
    _requested[0] = count


def thread_count(num_threads: int = 0) -> int:
    """The threads of a pool that is requested with this number; 0: as many as there are cores."""
    if not 0 <= num_threads <= MAX_THREADS:
        raise InvalidArgument(f"a thread count is 0 (all cores) to {MAX_THREADS}; got {num_threads}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    return num_threads or _requested[0] or _default_threads(cores)


def get_pool(num_threads: int = 0, settings: PoolSettings = _DEFAULT) -> Pool:
    """The process's pool of `num_threads` threads (0: as many as there are cores), shared by all who request the same."""
    key = (thread_count(num_threads), settings)
    with _lock:
        if key not in _pools:
            _pools[key] = Pool(*key)
        if not _native().signals[word.HANDLER]:
            _hear_signals()
        return _pools[key]


@functools.lru_cache
def _default_threads(affinity: int) -> int:
    """The cores available to this process: the quota is read once, the affinity may change."""
    return available_cores()


@functools.cache
def _native() -> _Native:
    entry = IMAGE.addresses()["executor"]
    functions = (ctypes.c_void_p * len(word.FUNCTIONS))()
    int64, pointer = ctypes.c_int64, ctypes.c_void_p
    ctypes.CFUNCTYPE(None, pointer, int64, int64)(entry)(ctypes.addressof(functions), 0, 1)
    run, worker, spin, halt, sliced, signals, whole, feed, again, open_, empty = (int(address or 0) for address in functions)
    return _Native(
        ctypes.CFUNCTYPE(int64, pointer, pointer)(run),
        ctypes.CFUNCTYPE(int64, pointer, int64, int64)(worker),
        ctypes.CFUNCTYPE(int64, pointer, int64)(spin),
        ctypes.CFUNCTYPE(int64, pointer)(halt),
        sliced,
        whole,
        feed,
        again,
        open_,
        empty,
        run,
        (int64 * word.SIGNAL_WORDS).from_address(signals),
    )


def _hear_signals() -> None:
    """Tell native code how it finds and answers signals, as soon as Python's handler is known: its address is that of
    any signal for which a program has a handler, as it has for SIGINT unless that is ignored."""
    python = ctypes.pythonapi
    handled = next((number for number in itertools.chain((_signal.SIGINT,), _signal.valid_signals()) if _handled(number)), None)
    if handled is None:
        return
    python.PyOS_getsig.restype = ctypes.c_void_p
    handler = python.PyOS_getsig(int(handled))
    if sys.platform == "win32":
        itself = _address_of(ctypes.WinDLL("kernel32").GetCurrentThreadId)
    else:
        itself = _address_of(ctypes.CDLL(None).pthread_self)
    found = _native().signals
    functions = (python.PyOS_getsig, python.PyOS_setsig, python.PyGILState_Ensure, python.PyGILState_Release)
    found[word.GETSIG], found[word.SETSIG], found[word.GIL_ENSURE], found[word.GIL_RELEASE] = map(_address_of, functions)
    found[word.CHECK_SIGNALS], found[word.FETCH] = map(_address_of, (python.PyErr_CheckSignals, python.PyErr_Fetch))
    found[word.SELF], found[word.HANDLER] = itself, handler
    for i, name in enumerate(_SIGNALS):
        found[word.SIGNALS + i] = int(getattr(_signal, name, 0))
    _note_main_thread()


def _handled(number: int) -> bool:
    return callable(_signal.getsignal(number))


def _note_main_thread() -> None:
    _native().signals[word.MAIN] = threading.main_thread().ident or 0


def raise_signal_error() -> NoReturn:
    """Raise what a signal's handler raised in native code."""
    found = _native().signals
    error = [ctypes.c_void_p(found[word.RAISED + i] or None) for i in range(3)]
    for i in range(3):
        found[word.RAISED + i] = 0
    ctypes.pythonapi.PyErr_Restore(*error)  # ctypes raises what is set after a call of Python's own functions
    raise AssertionError("PyErr_Restore set no exception")


def _texts(target: Target) -> Mapping[str, KernelText]:
    from intarsia.runtime.spmd_text import executor_text

    return {"executor": executor_text(target)}


IMAGE = CachedImage("executor", _texts)


def missing_text() -> KernelText | None:
    """The native code's text where neither this process nor the cache has its machine code: to be compiled beside others."""
    if _native.cache_info().currsize or IMAGE.is_made():
        return None
    return IMAGE.texts()["executor"]


@functools.cache
def _spins_per_microsecond() -> float:
    """Rounds of the waiting loop in a microsecond; a pause takes 10 to 140 cycles, by CPU."""
    spin, count = _native().spin, 500
    scratch = lasting_words(word.LINE)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        spin(int(scratch.ctypes.data), count)
        best = min(best, time.perf_counter() - start)
    return count / (best * 1e6)


@functools.cache
def _system_functions() -> tuple[int, ...]:
    """Addresses of the system's wait, wake, core number, affinity's get and set (0: none) and clock, and the clock's
    nanoseconds per count."""
    if sys.platform == "win32":
        sync = ctypes.WinDLL("api-ms-win-core-synch-l1-2-0")
        kernel = ctypes.WinDLL("kernel32")
        frequency = ctypes.c_int64()
        kernel.QueryPerformanceFrequency(ctypes.byref(frequency))
        scale = max(1, 1_000_000_000 // frequency.value)
        names = (sync.WaitOnAddress, sync.WakeByAddressAll, kernel.GetCurrentProcessorNumber, kernel.QueryPerformanceCounter)
        wait, wake, getcpu, clock = (_address_of(function) for function in names)
        return wait, wake, getcpu, 0, 0, clock, scale
    libc = ctypes.CDLL(None)
    if sys.platform == "darwin":
        wait, wake = _address_of(libc["__ulock_wait"]), _address_of(libc["__ulock_wake"])
    elif sys.platform == "linux":
        wait = wake = _address_of(libc["syscall"])
    else:
        wait = wake = _address_of(libc["usleep"])
    getcpu = _address_of(libc["sched_getcpu"]) if hasattr(libc, "sched_getcpu") else 0
    affinity = ("sched_getaffinity", "sched_setaffinity") if getcpu and sys.platform == "linux" else ()
    get, set_ = (_address_of(libc[name]) for name in affinity) if affinity else (0, 0)
    return wait, wake, getcpu, get, set_, _address_of(libc["clock_gettime"]), 1


@functools.cache
def _yield_function() -> int:
    """The address of what lets another thread run on this core; 0: none."""
    if sys.platform == "win32":
        return _address_of(ctypes.WinDLL("kernel32").SwitchToThread)
    return _address_of(ctypes.CDLL(None)["sched_yield"])


def _address_of(function: ctypes._FuncPointer) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def lasting_words(count: int) -> np.ndarray:
    """Zeroed int64 words on a line boundary that are never freed: threads may look at them until the process ends."""
    line_bytes = word.LINE * 8
    raw = np.zeros(count + word.LINE, dtype=np.int64)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(raw))
    skip = -raw.ctypes.data % line_bytes // 8
    return raw[skip : skip + count]


def _check(name: str, array: np.ndarray | None, minimum: int) -> None:
    if array is None:
        return
    if array.dtype != np.int64 or not array.flags.c_contiguous or array.size < minimum:
        raise InvalidArgument(
            f"{name} must be a C-contiguous int64 array of at least {minimum} elements; "
            f"got {array.dtype} of shape {array.shape}"
        )


def _restart_in_child() -> None:
    for pool in _pools.values():
        pool._reset()
    if _pools:
        _note_main_thread()


class _Ending:
    """Whether the process ends."""

    begun = False


@atexit.register
def _end_runs() -> None:
    """Stop what daemon threads run, so that nothing is in native code while the interpreter frees what it works on. The main
    thread may go on running models, on one thread."""
    pools = list(_pools.values())
    if not pools:
        return
    _Ending.begun = True
    signals, end = _native().signals, time.monotonic() + _EXIT_SECONDS
    signals[word.ENDING] = 1
    while True:
        signals[word.TRIPPED] = 1
        if not _others_run() or time.monotonic() > end:
            break
        time.sleep(0.001)
    for pool in pools:
        pool._close()


_CALLERS = (
    "intarsia.session.io_binding",
    "intarsia.plan.",
    "intarsia.providers.cpu.",
    "intarsia.runtime.",
    "intarsia.session.inference_session",
    "intarsia.session.local_engine",
    "intarsia.values.feeds",
)


def _others_run() -> bool:
    """Whether other threads may be in native code of runs: what calls that is the last on their stack."""
    me = threading.get_ident()
    for ident, frame in sys._current_frames().items():
        name = frame.f_globals.get("__name__", "")
        if ident != me and name.startswith(_CALLERS) and frame.f_code is not Pool._work.__code__ and name != _READER:
            return True
    return False


_READER = "intarsia.runtime.read_ahead"  # which changes nothing, and holds what it reads


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_in_child)
