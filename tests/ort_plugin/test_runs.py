"""Models through onnxruntime with IntarsiaCPU: the same results, with sizes that stay and that change, by many threads."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from plugin_sessions import Sessions, model, taken

from intarsia.ort_plugin import factory
from intarsia.ort_plugin.fused_part import FusedPart
from intarsia.ort_plugin.native_call import MOST_CALLS

RNG = np.random.default_rng(3)
MLP = """g (float[n, 16] x) => (float[n, 8] y)
    <float[16, 32] w, float[32] b, float[32, 8] v>
    { h = MatMul(x, w)  s = Add(h, b)  r = Relu(s)  y = MatMul(r, v) }"""


def weighted(text: str, **weights: np.ndarray) -> bytes:
    """A model with values for initializers."""
    import onnx
    from onnx import numpy_helper

    made = onnx.load_model_from_string(model(text))
    del made.graph.initializer[:]
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return made.SerializeToString()


def mlp() -> bytes:
    text = MLP.replace("<float[16, 32] w, float[32] b, float[32, 8] v>", "<float[1] w, float[1] b, float[1] v>")
    text = text.replace("<float[1] w, float[1] b, float[1] v>", "<float[1] w = {1}, float[1] b = {1}, float[1] v = {1}>")
    shapes = {"w": (16, 32), "b": (32,), "v": (32, 8)}
    return weighted(text, **{name: RNG.standard_normal(shape, np.float32) for name, shape in shapes.items()})


def rows(n: int) -> dict[str, np.ndarray]:
    return {"x": RNG.standard_normal((n, 16), np.float32)}


@pytest.fixture
def python_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A number for each run of a part that Python did."""
    runs: list[int] = []
    run = FusedPart.run

    def counted(self: FusedPart, context: int) -> None:
        runs.append(context)
        run(self, context)

    monkeypatch.setattr(FusedPart, "run", counted)
    return runs


def test_only_the_first_run_is_pythons(sessions: Sessions, python_runs: list[int]) -> None:
    """Sizes that are new are noted by native code, which asks what they are bound to; those that come again get a call."""
    session = sessions.check(mlp(), rows(3), runs=5)
    assert taken(session) == 3  # onnxruntime has made a Gemm of the first two
    assert len(python_runs) == 1
    session.run(None, rows(4))
    assert len(python_runs) == 1
    for _ in range(5):
        session.run(None, rows(3))
        session.run(None, rows(4))
    assert len(python_runs) == 2


def test_more_sizes_than_are_kept(sessions: Sessions, python_runs: list[int]) -> None:
    source = mlp()
    session, alone = sessions.make(source), sessions.alone(source)
    for n in [*range(1, 3 * MOST_CALLS), *range(1, 3 * MOST_CALLS), 1, 1, 0, 0, 7, 0]:
        feed = rows(n)
        np.testing.assert_allclose(session.run(None, feed)[0], alone.run(None, feed)[0], rtol=1e-5, atol=1e-5)
    assert len(python_runs) < 3 * MOST_CALLS + 5


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each run of which Python said what its sizes are bound to."""
    found: list[int] = []
    settle = FusedPart.settle

    def counted(self: FusedPart) -> None:
        found.append(1)
        settle(self)

    monkeypatch.setattr(FusedPart, "settle", counted)
    return found


CACHE = """g (float[1, 8] x, float[n, 8] past, float[n, 8] other) => (float[1, 8] y, float[m, 8] now, float[m, 8] next)
           { now = Concat<axis = 0>(past, x) next = Concat<axis = 0>(other, x) t = Transpose(now)
             s = MatMul(x, t) p = Softmax(s) y = MatMul(p, next) }"""


def test_sizes_that_grow(sessions: Sessions, python_runs: list[int], settled: list[int]) -> None:
    """A cache that a run makes longer, whose results are the next one's inputs. Sizes to come are bound ahead."""
    source = model(CACHE)
    session, alone = sessions.make(source), sessions.alone(source)
    x = RNG.standard_normal((1, 8), np.float32)
    feeds = [{"past": x, "other": 2 * x} for _ in range(2)]
    for _ in range(50):
        found = [s.run(None, {"x": x, **feed}) for s, feed in zip((session, alone), feeds, strict=True)]
        for got, want in zip(*found, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        feeds = [{"past": now, "other": later} for _, now, later in found]
    assert len(python_runs) == 1
    assert len(settled) < 20


def test_series_that_end(sessions: Sessions, settled: list[int]) -> None:
    """Sizes that grow by one, jump, come again, grow by others, shrink: each is right, and later series are followed too."""
    source = model(CACHE)
    session, alone = sessions.make(source), sessions.alone(source)
    lengths = [*range(1, 30), 7, 7, 7, *range(40, 90, 5), *range(120, 60, -2), 3, *range(200, 320), *range(200, 320)]
    for n in lengths:
        feed = {"x": RNG.standard_normal((1, 8), np.float32)}
        feed |= {name: RNG.standard_normal((n, 8), np.float32) for name in ("past", "other")}
        for got, want in zip(session.run(None, feed), alone.run(None, feed), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert len(settled) < len(lengths) // 3


def test_sizes_that_do_not_fit_together(sessions: Sessions) -> None:
    source = model("g (float[n, k] x, float[k, m] w) => (float[n, m] y) { y = MatMul(x, w) }")
    session = sessions.make(source)

    def feed(k: int) -> dict[str, np.ndarray]:
        return {"x": np.ones((2, k), np.float32), "w": np.ones((5, 3), np.float32)}

    for _ in range(3):
        assert session.run(None, feed(5))[0].tolist() == [[5.0] * 3] * 2
        with pytest.raises(Exception, match=r"IntarsiaCPU: .*5.*"):
            session.run(None, feed(4))


def test_a_native_run_leaves_the_interpreter_alone(sessions: Sessions) -> None:
    """With a run under way in another thread, this one goes on computing in Python."""
    text = "g (float[256, 256] x) => (float[256, 256] y) { " + " ".join(
        f"v{i} = MatMul({'x' if i == 0 else f'v{i - 1}'}, x)" for i in range(60)
    ) + " y = Identity(v59) }"  # fmt: skip
    session = sessions.make(model(text))
    feed = {"x": np.full((256, 256), 1 / 256, np.float32)}
    session.run(None, feed)
    steps: list[int] = []
    thread = threading.Thread(target=lambda: [session.run(None, feed) for _ in range(20)])
    thread.start()
    while thread.is_alive():
        steps.append(1)
    assert len(steps) > 1000


def test_many_threads_at_once(sessions: Sessions) -> None:
    source = mlp()
    session, alone = sessions.make(source), sessions.alone(source)
    feeds = [rows(1 + i % 5) for i in range(40)]
    expected = [alone.run(None, feed)[0] for feed in feeds]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for got, want in zip(pool.map(lambda feed: session.run(None, feed)[0], feeds), expected, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_several_sessions(sessions: Sessions) -> None:
    made = [(sessions.make(source), sessions.alone(source)) for source in (mlp(), mlp(), mlp())]
    for n in (2, 2, 3):
        for session, alone in made:
            feed = rows(n)
            np.testing.assert_allclose(session.run(None, feed)[0], alone.run(None, feed)[0], rtol=1e-5, atol=1e-5)


def test_results_bound_to_the_memory_of_an_input(sessions: Sessions) -> None:
    """Where a caller lets a result lie in an input, kernels that read what they have written would be wrong."""
    import onnxruntime

    source = model(
        "g (float[64, 64] x) => (float[64, 64] y) { t = Transpose<perm = [1, 0]>(x) a = Add(t, x) y = MatMul(a, x) }"
    )
    session = sessions.make(source)
    x = RNG.standard_normal((64, 64), np.float32)
    expected = (x.T + x).astype(np.float64) @ x
    session.run(None, {"x": x})
    for _ in range(3):
        value = onnxruntime.OrtValue.ortvalue_from_numpy(x.copy())
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", value)
        binding.bind_ortvalue_output("y", value)
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(value.numpy(), expected, rtol=1e-3, atol=1e-3)


def test_a_large_batch_in_micro_batches(sessions: Sessions, python_runs: list[int]) -> None:
    layers = " ".join(
        f"c{i} = Conv<pads = [1, 1, 1, 1]>({'x' if i == 0 else f'r{i - 1}'}, w{i}) r{i} = Relu(c{i})" for i in range(3)
    )
    weights = {f"w{i}": RNG.standard_normal((32, 3 if i == 0 else 32, 3, 3), np.float32) / 8 for i in range(3)}
    declared = ", ".join(f"float[1] {name} = {{1}}" for name in weights)
    source = weighted(f"g (float[b, 3, 56, 56] x) => (float[b, 32, 56, 56] r2) <{declared}> {{ {layers} }}", **weights)
    sessions.check(source, {"x": RNG.standard_normal((24, 3, 56, 56), np.float32)})
    assert len(python_runs) == 1


def bits(value: Any) -> np.ndarray:
    """The bytes of a tensor (OrtValue)."""
    nbytes = value.tensor_size_in_bytes()
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(value.data_ptr()), np.uint8).copy()


@pytest.mark.parametrize("dtype", ["float16", "double", "int8", "uint8", "int32", "int64", "bool", "bfloat16"])
def test_types(sessions: Sessions, dtype: str) -> None:
    import onnxruntime

    source = model(
        f"""g ({dtype}[4, n] x, {dtype}[4, n] z) => ({dtype}[n, 4] y) <int64[2] s = {{4, 4}}>
            {{ e = Concat<axis = 0>(x, z) c, d = Split(e, s) y = Transpose(c) }}"""
    )

    values = RNG.integers(0, 2, (4, 7))
    if dtype == "bfloat16":
        feed = [values.astype(np.float32).view(np.uint32) >> 16 for _ in range(2)]
        given = [onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(x.astype(np.uint16), 16) for x in feed]
    else:
        kind = {"double": np.float64, "bool": np.bool_}.get(dtype) or np.dtype(dtype)
        given = [onnxruntime.OrtValue.ortvalue_from_numpy(values.astype(kind)) for _ in range(2)]
    session, alone = sessions.make(source, {"take_all": "1"}), sessions.alone(source)
    for _ in range(3):
        got, want = (s.run_with_ort_values(["y"], dict(zip("xz", given, strict=True)))[0] for s in (session, alone))
        assert got.shape() == want.shape()
        np.testing.assert_array_equal(bits(got), bits(want))


def test_bodies_are_compiled_with_their_node(sessions: Sessions) -> None:
    source = model(
        """g (float[8, 8] x, bool c) => (float[8, 8] y) {
            h = MatMul(x, x)
            r = If<then_branch = t () => (float[8, 8] a) { a = MatMul(h, x) },
                   else_branch = e () => (float[8, 8] b) { b = Add(h, x) }>(c)
            y = Relu(r)
        }"""
    )
    session = sessions.make(source)
    alone = sessions.alone(source)
    for flag in (True, False, True, False):
        feed = {"x": RNG.standard_normal((8, 8), np.float32), "c": np.array(flag)}
        np.testing.assert_allclose(session.run(None, feed)[0], alone.run(None, feed)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_as_many_threads_as_the_session_has(sessions: Sessions, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    made: list[FusedPart] = []
    monkeypatch.setattr(FusedPart, "run", lambda self, context: (made.append(self), run(self, context)))
    session = sessions.make(mlp(), threads=threads)
    session.run(None, rows(2))
    assert made[0].program.pool.num_threads == threads
    session = sessions.make(mlp(), {"intra_op_num_threads": "2"}, threads=threads)
    session.run(None, rows(2))
    assert made[1].program.pool.num_threads == 2


def test_threads_are_counted_where_nobody_tells(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[FusedPart] = []
    monkeypatch.setattr(FusedPart, "run", lambda self, context: (made.append(self), run(self, context)))
    monkeypatch.setattr(factory, "requested_threads", lambda: 0)
    sessions.make(mlp(), threads=1).run(None, rows(2))
    assert made[0].program.pool.num_threads == 1


run = FusedPart.run
