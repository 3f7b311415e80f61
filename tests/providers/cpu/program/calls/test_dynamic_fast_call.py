"""Runs by a native function for sizes that change: results are right, and what somebody has is never written."""

from __future__ import annotations

import gc
import itertools
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import intarsia as ort
from intarsia.errors import InvalidArgument, NodeFailed
from intarsia.plan.result_pool import LEAST, memory
from intarsia.runtime import interpreter

CPU = ["CPUExecutionProvider"]
WIDTH = 64
GROWING = f"""g (float[b, 2, p, {WIDTH}] past, float[b, 2, 1, {WIDTH}] x, float[b, 2, p, {WIDTH}] other)
    => (float[b, 2, q, {WIDTH}] present, float[b, 2, 1, {WIDTH}] y, float[b, 2, q, {WIDTH}] second) {{
    present = Concat<axis=2>(past, x) second = Concat<axis=2>(other, x) t = Transpose<perm=[0, 1, 3, 2]>(present)
    s = MatMul(x, t) p = Softmax<axis=-1>(s) y = MatMul(p, second) }}"""
LARGE = LEAST // (2 * WIDTH * 4)  # from this length on results lie in memory that is used again

Make = Callable[..., ort.InferenceSession]
Feed = dict[str, np.ndarray]


def feed_of(length: int, batch: int = 1) -> Feed:
    rng = np.random.default_rng(length)
    shapes = {"past": (batch, 2, length, WIDTH), "x": (batch, 2, 1, WIDTH), "other": (batch, 2, length, WIDTH)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def expected(feed: Feed) -> list[np.ndarray]:
    present, second = (np.concatenate([feed[name], feed["x"]], 2) for name in ("past", "other"))
    scores = feed["x"].astype(np.float64) @ present.swapaxes(2, 3).astype(np.float64)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return [present, weights / weights.sum(-1, keepdims=True) @ second.astype(np.float64), second]


def check(results: list[Any], feed: Feed) -> None:
    for a, b in zip(results, expected(feed), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.fixture
def session(make_session: Make) -> ort.InferenceSession:
    """A session whose runs go by the function, after some lengths one after the other."""
    found = make_session(GROWING, providers=CPU)
    for length in range(LARGE, LARGE + 12):
        check(found.run(None, feed_of(length)), feed_of(length))
    assert bool(found._model.fast_calls) is (interpreter.functions() is not None)
    return found


def lengths() -> Iterator[int]:
    yield from range(LARGE + 12, LARGE + 60)
    yield from (LARGE + 5, LARGE + 5, LARGE + 5, LARGE + 5, LARGE + 5, LARGE + 5, 3, 4, 5, 6, 7, 8, 1, 200, LARGE + 200)
    yield from range(LARGE + 201, LARGE + 320, 7)
    yield from range(90, 20, -1)


class TestResults:
    def test_are_those_of_the_definition_for_all_lengths(self, session: ort.InferenceSession) -> None:
        for length in lengths():
            feed = feed_of(length)
            check(session.run(None, feed), feed)

    def test_that_are_kept_stay_as_they_are(self, session: ort.InferenceSession) -> None:
        kept = [(feed_of(n), session.run(None, feed_of(n))) for n in lengths()]
        assert not any(np.shares_memory(a[1][0], b[1][0]) for a, b in itertools.pairwise(kept))
        for feed, results in kept:
            check(results, feed)

    def test_of_one_run_are_the_next_ones_inputs(self, session: ort.InferenceSession) -> None:
        feed = feed_of(LARGE)
        first, x = dict(feed), feed["x"]
        for _ in range(90):
            present, _, second = session.run(None, feed)
            feed = {"past": present, "x": x, "other": second}
        np.testing.assert_array_equal(feed["past"][:, :, :LARGE], first["past"])
        np.testing.assert_array_equal(feed["other"][:, :, LARGE:], np.repeat(x, 90, 2))

    @pytest.mark.parametrize(
        "held",
        [
            lambda a: a[:, :, 1:3],
            lambda a: a.reshape(-1)[5:],
            lambda a: a.view(np.int32),
            memoryview,
            np.from_dlpack,
            lambda a: ort.OrtValue.ortvalue_from_numpy(a).__dlpack__(),
            lambda a: a.ravel().data[3:],
            lambda a: iter(a.reshape(-1)),
        ],
        ids=["slice", "flat", "view", "memoryview", "DLPack array", "DLPack capsule", "buffer", "iterator"],
    )
    def test_live_as_long_as_anything_of_them(self, session: ort.InferenceSession, held: Callable[[np.ndarray], Any]) -> None:
        feed = feed_of(LARGE + 20)
        result = session.run(None, feed)[0]
        start, end = result.ctypes.data, result.ctypes.data + result.nbytes
        part = held(result)
        del result
        gc.collect()
        others = [session.run(None, feed_of(LARGE + 20))[0] for _ in range(6)]
        assert not any(start <= other.ctypes.data < end for other in others)
        del part, others
        gc.collect()

    def test_can_be_pickled_and_copied(self, session: ort.InferenceSession) -> None:
        feed = feed_of(LARGE + 21)
        results = session.run(None, feed)
        copies = pickle.loads(pickle.dumps(results))
        del results
        for _ in range(4):
            session.run(None, feed_of(LARGE + 22))
        check(copies, feed)

    def test_memory_comes_back(self, session: ort.InferenceSession) -> None:
        if interpreter.functions() is None:
            pytest.skip("results are new memory each time here")
        memory.clear()
        results = session.run(None, feed_of(LARGE + 30))
        assert memory.retained_nbytes == 0
        assert type(results[0]) is np.ndarray
        assert results[0].flags.carray
        assert results[0].flags.writeable
        assert results[0].base is not None
        nbytes = results[0].nbytes + results[2].nbytes
        del results
        assert memory.retained_nbytes == nbytes

    def test_of_other_names_and_orders(self, session: ort.InferenceSession) -> None:
        feed = feed_of(LARGE + 40)
        present, y, second = session.run(None, feed)
        for names, wanted in ((["present", "y", "second"], [present, y, second]), (["second", "y"], [second, y])):
            for a, b in zip(session.run(names, feed), wanted, strict=True):
                np.testing.assert_array_equal(a, b)


class TestOtherWays:
    def test_ort_values_and_bindings(self, session: ort.InferenceSession) -> None:
        for length in (*range(LARGE, LARGE + 30), 7, 8, 9, LARGE):
            feed = feed_of(length)
            values = {name: ort.OrtValue.ortvalue_from_numpy(x) for name, x in feed.items()}
            check([v.numpy() for v in session.run_with_ort_values(None, values)], feed)
            binding = session.io_binding()
            for name, value in values.items():
                binding.bind_ortvalue_input(name, value)
            for name in ("present", "y", "second"):
                binding.bind_output(name)
            session.run_with_iobinding(binding)
            check([v.numpy() for v in binding.get_outputs()], feed)

    def test_wrong_feeds_between(self, session: ort.InferenceSession) -> None:
        for length in range(LARGE + 12, LARGE + 24):
            feed = feed_of(length)
            check(session.run(None, feed), feed)
            with pytest.raises(InvalidArgument, match="missing"):
                session.run(None, {"past": feed["past"], "x": feed["x"]})
            with pytest.raises(InvalidArgument, match="data type"):
                session.run(None, {**feed, "other": feed["other"].astype(np.float64)})
            with pytest.raises(InvalidArgument, match="rank"):
                session.run(None, {**feed, "other": feed["other"][0]})
            other = {**feed, "other": np.asfortranarray(feed["other"])}
            check(session.run(None, other), feed)

    def test_inputs_that_do_not_fit_together(self, session: ort.InferenceSession) -> None:
        feed = feed_of(LARGE + 12)
        results = session.run(None, {**feed, "other": feed_of(LARGE + 11)["other"], "past": feed_of(LARGE + 11)["past"]})
        assert results[0].shape[2] == LARGE + 12
        for _ in range(3):
            with pytest.raises((InvalidArgument, NodeFailed)):
                session.run(None, {**feed, "other": feed_of(LARGE + 13)["other"]})
            check(session.run(None, feed), feed)

    def test_batches_and_run_options_between(self, session: ort.InferenceSession) -> None:
        for length in range(LARGE + 12, LARGE + 30):
            for batch, options in ((1, None), (2, None), (1, ort.RunOptions())):
                feed = feed_of(length, batch)
                check(session.run(None, feed, options), feed)

    def test_shrinking_between(self, session: ort.InferenceSession) -> None:
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        for length in range(LARGE + 12, LARGE + 40):
            feed = feed_of(length)
            check(session.run(None, feed, options if length % 7 == 0 else None), feed)

    def test_an_index_that_is_out_of_range(self, make_session: Make) -> None:
        text = "g (float[n, 4] t, int64[m] i) => (float[m, 4] y) { y = Gather<axis=0>(t, i) }"
        session = make_session(text, providers=CPU)
        for n in range(3, 30):
            table = np.arange(4 * n, dtype=np.float32).reshape(n, 4)
            i = np.arange(n)[::-1].copy()
            np.testing.assert_array_equal(session.run(None, {"t": table, "i": i})[0], table[i])
            i[0] = n
            with pytest.raises(InvalidArgument, match=r"out of range|outside"):
                session.run(None, {"t": table, "i": i})


def test_threads_have_results_of_their_own(session: ort.InferenceSession) -> None:
    wrong: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        start, kept = int(rng.integers(1, LARGE)), []
        for turn in range(25):
            feed = feed_of(start + turn)
            kept.append((feed, session.run(None, feed)))
        for feed, results in kept:
            try:
                check(results, feed)
            except AssertionError as error:
                wrong.append(str(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_end_of_a_session_leaves_results(session: ort.InferenceSession) -> None:
    feed = feed_of(LARGE + 50)
    results = session.run(None, feed)
    session.close()
    gc.collect()
    check(results, feed)
    results.clear()


def test_interpreters_that_are_not_known(make_session: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "functions", lambda: None)
    session = make_session(GROWING, providers=CPU)
    for length in range(LARGE, LARGE + 20):
        feed = feed_of(length)
        check(session.run(None, feed), feed)
    assert session._model.fast_calls == ()
