"""Many threads, mixed shapes, bindings, cancellation, sessions made and dropped: no crash, no leak, no wrong answer.

20 seconds by default; `pytest tests/stress --stress-seconds=300` for as long as one likes, `--stress-seed=7` for other choices.
Forked and spawned processes do the same for a tenth of that time each.

Memory is judged by resident pages after a warm-up, in one malloc arena: glibc gives threads up to eight arenas for each core,
and with threads that come and go what is free lies in pages that something else still uses (80 MB became 85 in ten minutes
while the bytes in use stayed the same to 0.02 %; in one arena 78.4 became 78.5).
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import onnx.parser
import pytest

import intarsia as ort

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

THREADS = 8
LEAST = 2000  # actions before memory is looked at: by then every kernel, plan and workspace is there
M_ARENA_MAX = -8  # of glibc's mallopt
HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
RNG = np.random.default_rng(0)
W1, W2 = (RNG.standard_normal(shape).astype(np.float32) / 8 for shape in ((64, 96), (96, 10)))
FILTERS = RNG.standard_normal((8, 3, 3, 3)).astype(np.float32)


def model(text: str, **constants: np.ndarray) -> bytes:
    made = onnx.parser.parse_model(f"{HEADER} {text}")
    made.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    return made.SerializeToString()


MLP = model(
    "g (float[batch, 64] x, float[1] scale) => (float[batch, 10] y) { h = MatMul(x, w1)  r = Relu(h)  m = Mul(r, scale)"
    " z = MatMul(m, w2)  y = Softmax(z) }",
    w1=W1, w2=W2, scale=np.float32([1]),
)  # fmt: skip
CONV = model(
    "g (float[n, 3, h, w] x) => (float[n, 8, oh, ow] y) { c = Conv<pads = [1, 1, 1, 1]>(x, f)  y = Relu(c) }", f=FILTERS
)
ENDLESS = model("""g (float[4] x) => (float[4] y) { c = Constant<value = bool {1}>()
    y = Loop("", c, x) <body = b (int64 i, bool d, float[4] a) => (bool e, float[4] a2) { e = Identity(d)  a2 = Neg(a) }> }""")
GROWING = model("""g (float[n] x, int64 times) => (float[m] y) { c = Constant<value = bool {1}>()  y = Loop(times, c, x) <
    body = b (int64 i, bool d, float[k] a) => (bool e, float[l] a2) { e = Identity(d)  a2 = Concat<axis = 0>(a, a) }> }""")


def mlp(x: np.ndarray, scale: float = 1.0) -> np.ndarray:
    z = np.maximum(x.astype(np.float64) @ W1, 0) * scale @ W2
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def conv(x: np.ndarray) -> np.ndarray:
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.maximum(np.einsum("nchwij,mcij->nmhw", windows, FILTERS), 0)


class Work:
    """Shared sessions, and what a thread may do with them; each action checks its answer."""

    def __init__(self) -> None:
        self.mlp, self.conv, self.endless, self.growing = map(ort.InferenceSession, (MLP, CONV, ENDLESS, GROWING))
        self.actions: list[Callable[[random.Random], None]] = [
            self.run_mlp, self.run_mlp, self.run_conv, self.bind, self.cancel, self.create, self.override, self.mistake,
            self.grow,
        ]  # fmt: skip

    def rows(self, rng: random.Random) -> np.ndarray:
        return np.random.default_rng(rng.randrange(1 << 30)).standard_normal((rng.choice((1, 2, 3, 17, 64)), 64), np.float32)

    def run_mlp(self, rng: random.Random) -> None:
        x = self.rows(rng)
        np.testing.assert_allclose(self.mlp.run(None, {"x": x})[0], mlp(x), atol=1e-5)

    def run_conv(self, rng: random.Random) -> None:
        shape = (rng.choice((1, 2)), 3, rng.choice((5, 8, 13)), rng.choice((4, 9, 16)))
        x = np.random.default_rng(rng.randrange(1 << 30)).standard_normal(shape, np.float32)
        np.testing.assert_allclose(self.conv.run(None, {"x": x})[0], conv(x), atol=1e-4)

    def bind(self, rng: random.Random) -> None:
        x = self.rows(rng)
        y = np.full((len(x), 10), np.nan, np.float32)
        binding = self.mlp.io_binding()
        binding.bind_cpu_input("x", x)
        if rng.random() < 0.5:
            binding.bind_output("y")
            self.mlp.run_with_iobinding(binding)
            y = binding.copy_outputs_to_cpu()[0]
        else:
            binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
            self.mlp.run_with_iobinding(binding)
        np.testing.assert_allclose(y, mlp(x), atol=1e-5)

    def cancel(self, rng: random.Random) -> None:
        options = ort.RunOptions()
        timer = threading.Timer(rng.random() * 0.01, lambda: setattr(options, "terminate", True))
        timer.start()
        with pytest.raises(ort.Fail, match="terminate"):
            self.endless.run(None, {"x": np.float32([1, 2, 3, 4])}, options)
        timer.join()

    def create(self, rng: random.Random) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = rng.choice((0, 1, 2))
        options.graph_optimization_level = rng.choice(list(ort.GraphOptimizationLevel))
        session, x = ort.InferenceSession(MLP, options), self.rows(rng)
        np.testing.assert_allclose(session.run(["y"], {"x": x})[0], mlp(x), atol=1e-5)

    def override(self, rng: random.Random) -> None:
        x, scale = self.rows(rng), np.float32([rng.choice((0.5, 2.0))])
        np.testing.assert_allclose(self.mlp.run(None, {"x": x, "scale": scale})[0], mlp(x, float(scale[0])), atol=1e-5)

    def mistake(self, rng: random.Random) -> None:
        wrong = rng.choice((np.zeros((2, 63), np.float32), np.zeros((2, 64)), np.zeros(64, np.float32)))
        with pytest.raises(ort.InvalidArgument):
            self.mlp.run(None, {"x": wrong})

    def grow(self, rng: random.Random) -> None:
        times = rng.randrange(6)
        x = np.arange(3, dtype=np.float32)
        np.testing.assert_array_equal(self.growing.run(None, {"x": x, "times": np.array(times)})[0], np.tile(x, 2**times))

    def hammer(self, seconds: float, threads: int = THREADS, seed: int = 0, least: int = 0) -> Counter[str]:
        """Act at random on all threads, `least` times or more; returns how often each action was done.

        Raises the first thread's failure.
        """
        done: Counter[str] = Counter()
        failures: list[BaseException] = []
        stop = time.monotonic() + seconds

        def loop(number: int) -> None:
            rng = random.Random(number)
            try:
                while (time.monotonic() < stop or done.total() < least) and not failures:
                    action = rng.choice(self.actions)
                    action(rng)
                    done[action.__name__] += 1
            except BaseException as error:  # noqa: BLE001 # raised by the thread that waits
                failures.append(error)

        workers = [threading.Thread(target=loop, args=(1000 * seed + number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if failures:
            raise failures[0]
        return done


def resident_nbytes() -> int:
    """Memory of this process, once what is free has been given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def hammer_evenly(work: Work, seconds: float, threads: int, seed: int) -> Counter[str]:
    """`Work.hammer` in two halves; the second must not need more memory than the first left behind.

    Where it does, it is done again, twice at most: a leak goes on, and what came late (a plan, a thread's stack) is there then.
    """
    done = work.hammer(seconds / 2, threads, 2 * seed, LEAST)
    if sys.platform != "linux":
        return done + work.hammer(seconds / 2, threads, 2 * seed + 1)
    seen = [resident_nbytes()]
    for turn in range(3):
        done += work.hammer(seconds / 2, threads, 2 * seed + 1 + 1_000_000 * turn)
        seen.append(resident_nbytes())
        if seen[-1] <= seen[-2] * 1.02:
            return done
    raise AssertionError(f"memory grew again and again, {seen} bytes, in {done.total()} actions")


def limit_arenas() -> None:
    """Threads that start from now on share the first arena."""
    if sys.platform == "linux":
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


@pytest.fixture(autouse=True, scope="module")
def one_arena() -> Iterator[None]:
    limit_arenas()
    yield
    if sys.platform == "linux":
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 0)  # as many as glibc likes


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--stress-seed"))


@pytest.fixture
def seconds(request: pytest.FixtureRequest) -> float:
    return float(request.config.getoption("--stress-seconds"))


def test_threads_on_shared_sessions(seconds: float, seed: int) -> None:
    work = Work()
    done = hammer_evenly(work, seconds, THREADS, seed)
    assert set(done) == {action.__name__ for action in work.actions}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_children_use_the_session_of_their_parent(seconds: float, seed: int) -> None:
    work = Work()
    work.hammer(min(1.0, seconds), seed=seed)
    children = []
    for number in range(3):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                hammer_evenly(work, seconds / 10, 3, seed + 1 + number)
                status = 0
            except BaseException:
                traceback.print_exc()
                raise
            finally:
                os._exit(status)
        children.append(pid)
    work.hammer(min(1.0, seconds), seed=seed + 4)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0, 0, 0]


def _spawned(session: ort.InferenceSession, x: np.ndarray) -> np.ndarray:
    found: np.ndarray = session.run(None, {"x": x})[0]
    return found


def _hammer_spawned(seconds: float, seed: int) -> int:
    limit_arenas()
    return hammer_evenly(Work(), seconds, 3, seed).total()


def test_spawned_processes_get_the_session_by_reference(seconds: float, seed: int) -> None:
    x = np.ones((2, 64), np.float32)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for found in pool.starmap(_spawned, [(ort.InferenceSession(MLP), x)] * 2):
            np.testing.assert_allclose(found, mlp(x), atol=1e-5)
        assert all(pool.starmap(_hammer_spawned, [(seconds / 10, seed + 5 + i) for i in range(2)]))
