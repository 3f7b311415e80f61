"""Runs by a native function of the feed: results and errors are those of the general way, nothing is kept and nothing lost."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import intarsia as ort
from intarsia.errors import Fail, InvalidArgument, NodeFailed
from intarsia.runtime import holders, interpreter

CPU = ["CPUExecutionProvider"]
NATIVE = interpreter.functions() is not None
ADD = "g (float[n,4] a, float[4] b) => (float[n,4] y) { y = Add(a, b) }"
TWO = """g (float[n,4] a, int64[n] i) => (float[n,4] y, float[m,2] z, int64[n] j)
    { y = Neg(a) j = Neg(i) s = Constant<value = int64[2] {-1, 2}>() t = Exp(a) z = Reshape(t, s) }"""
A, B = np.arange(8, dtype=np.float32).reshape(2, 4), np.array([1, 2, 3, 4], np.float32)

Make = Callable[..., ort.InferenceSession]


def called(session: ort.InferenceSession, feed: dict[str, Any]) -> ort.InferenceSession:
    """The session once it has a function for the feed's shapes."""
    for _ in range(5):
        session.run(None, feed)
    if NATIVE:
        assert session._model.fast_calls
        assert session._model.fast_calls[0](feed) is not None
    return session


@pytest.fixture
def add(make_session: Make) -> ort.InferenceSession:
    return called(make_session(ADD, providers=CPU), {"a": A, "b": B})


class TestResults:
    def test_are_new_each_time(self, add: ort.InferenceSession) -> None:
        (first,), (second,) = add.run(None, {"a": A, "b": B}), add.run(["y"], {"b": B, "a": -A})
        np.testing.assert_array_equal(first, A + B)
        np.testing.assert_array_equal(second, B - A)
        assert type(first) is np.ndarray
        assert first.flags.carray
        assert first.flags.writeable
        assert first.base is not None  # as `ResultMemory.empty` has it
        assert not np.shares_memory(first, second)

    def test_several_and_reshaped(self, make_session: Make) -> None:
        i = np.array([5, -6])
        session = called(make_session(TWO, providers=CPU), {"a": A, "i": i})
        y, z, j = session.run(None, {"a": A, "i": i})
        np.testing.assert_array_equal(y, -A)
        np.testing.assert_allclose(z, np.exp(A).reshape(-1, 2), rtol=1e-6)
        np.testing.assert_array_equal(j, -i)
        assert [x.shape for x in session.run(["j", "y"], {"a": A, "i": i})] == [(2,), (2, 4)]

    def test_no_elements_and_no_axes(self, make_session: Make) -> None:
        session = make_session("g (float[n] a, float b) => (float[n] y, float z) { y = Mul(a, b) z = Neg(b) }", providers=CPU)
        for n in (0, 3, 0):
            feed = {"a": np.ones(n, np.float32), "b": np.array(2, np.float32)}
            y, z = called(session, feed).run(None, feed)
            np.testing.assert_array_equal(y, np.full(n, 2, np.float32))
            assert z.shape == ()
            assert z == -2

    def test_an_input_that_nothing_reads(self, make_session: Make) -> None:
        session = make_session("g (float[n] a, float[n] b) => (float[n] y) { y = Neg(a) }", providers=CPU)
        feed = {"a": B, "b": A[0]}
        for _ in range(4):
            np.testing.assert_array_equal(session.run(None, feed)[0], -B)
        with pytest.raises(InvalidArgument, match="missing"):
            session.run(None, {"a": B})

    def test_sizes_in_turn(self, add: ort.InferenceSession) -> None:
        for n in (2, 2, 3, 3, 3, 2, 2, 2, 5, 3, 3):
            a = np.full((n, 4), n, np.float32)
            np.testing.assert_array_equal(add.run(None, {"a": a, "b": B})[0], a + B)

    @pytest.mark.parametrize("element_type", ["float", "double", "int64", "int8", "bool", "float16", "bfloat16"])
    def test_element_types(self, make_session: Make, element_type: str) -> None:
        text = f"g ({element_type}[n] a) => ({element_type}[n] y) {{ y = Identity(a) }}"
        session = make_session(text, providers=CPU, header='<ir_version: 8, opset_import: ["" : 21]>')
        x = np.array([1, 0, 1]).astype(session._engine.signature.inputs[0].type.dtype.numpy)  # type: ignore[union-attr]
        for _ in range(4):
            (y,) = session.run(None, {"a": x})
            assert y.dtype == x.dtype
            np.testing.assert_array_equal(y, x)
            assert not np.shares_memory(x, y)


class _Mine(np.ndarray):
    pass


class _Text(str):
    """A key that is equal to a name but another object, and compares itself."""

    __slots__ = ()

    def __hash__(self) -> int:
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)


class TestWhatElseIsGiven:
    """Whatever the function does not know goes the general way, with its conversions and errors."""

    @pytest.mark.parametrize(
        "given",
        [
            A.tolist(),
            A.view(_Mine),
            np.asfortranarray(A),
            np.repeat(A, 2, 1)[:, ::2],
            A.astype(">f4"),
            np.frombuffer(b"\0" + A.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 4),
            ort.OrtValue.ortvalue_from_numpy(A),
        ],
        ids=["list", "subclass", "columns", "steps", "other bytes", "unaligned", "OrtValue"],
    )
    def test_is_converted(self, add: ort.InferenceSession, given: Any) -> None:
        np.testing.assert_array_equal(add.run(None, {"a": given, "b": B})[0], A + B)
        np.testing.assert_array_equal(add.run(None, {"a": A, "b": B})[0], A + B)

    def test_ort_values(self, add: ort.InferenceSession) -> None:
        held = {name: ort.OrtValue.ortvalue_from_numpy(x) for name, x in (("a", A), ("b", B))}
        for feed in (held, {**held, "b": B}, {"a": A, "b": held["b"]}):
            np.testing.assert_array_equal(add.run(None, feed)[0], A + B)
        np.testing.assert_array_equal(add.run_with_ort_values(None, held)[0].numpy(), A + B)
        with pytest.raises(InvalidArgument, match="rank"):
            add.run(None, {**held, "a": ort.OrtValue.ortvalue_from_numpy(A[0])})
        with pytest.raises(InvalidArgument, match="missing"):
            add.run(None, {"a": held["a"]})

    def test_ort_values_are_read_by_native_code(self, add: ort.InferenceSession) -> None:
        held = {name: ort.OrtValue.ortvalue_from_numpy(x) for name, x in (("a", A), ("b", B))}
        call = add._model.fast_calls[0]
        if call is None:
            assert not NATIVE
            return
        for feed in (held, {**held, "b": B}):
            found = call(feed)
            assert found is not None
            np.testing.assert_array_equal(found[0], A + B)
        objects = [*held.values(), A, B, ort.OrtValue]
        before = [sys.getrefcount(x) for x in objects]
        for _ in range(1000):
            call(held)
        assert max(abs(sys.getrefcount(x) - n) for x, n in zip(objects, before, strict=True)) < 50
        for wrong in (A.astype(np.float64), A[0], np.asfortranarray(A), [A], None):
            assert call({"a": ort.OrtValue(wrong), "b": B}) is None
        empty: ort.OrtValue = object.__new__(ort.OrtValue)  # its slot was never set
        assert call({"a": empty, "b": B}) is None

    def test_objects_that_are_like_ort_values(self, add: ort.InferenceSession) -> None:
        class Mine(ort.OrtValue):
            pass

        mine = Mine.ortvalue_from_numpy(A)
        assert type(mine) is Mine
        np.testing.assert_array_equal(add.run(None, {"a": mine, "b": B})[0], A + B)

    def test_where_objects_have_their_value(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Held:
            __slots__ = ("first", "second")

        class Loose:
            value: object

        monkeypatch.setattr(holders, "WORDS", np.zeros(2, np.int64))
        monkeypatch.setattr(holders, "_held", [])
        holders.note(Loose, "value")
        assert not holders.WORDS.any()
        holders.note(Held, "second")
        if sys.implementation.name == "cpython":
            assert holders.WORDS.tolist() == [id(Held), object.__basicsize__ + 8]

    def test_read_only(self, add: ort.InferenceSession) -> None:
        fixed = A.copy()
        fixed.flags.writeable = False
        np.testing.assert_array_equal(add.run(None, {"a": fixed, "b": B})[0], A + B)

    @pytest.mark.parametrize(
        ("feed", "match"),
        [
            ({"a": A.astype(np.float64), "b": B}, "type"),
            ({"a": A[0], "b": B}, "rank"),
            ({"a": A, "b": B[:3]}, "dimensions"),
            ({"a": A}, "missing"),
            ({"a": A, "b": B, "c": B}, "Invalid input name"),
            ({"a": A, "c": B}, "missing"),
            ({"a": A, 0: B}, "names of inputs"),
            ({}, "missing"),
        ],
    )
    def test_is_refused(self, add: ort.InferenceSession, feed: dict[Any, Any], match: str) -> None:
        with pytest.raises((InvalidArgument, TypeError), match=match):
            add.run(None, feed)
        np.testing.assert_array_equal(add.run(None, {"a": A, "b": B})[0], A + B)

    def test_other_mappings_and_keys(self, add: ort.InferenceSession) -> None:
        class Feed(dict[str, Any]):
            def __getitem__(self, name: str) -> Any:
                return {"a": A, "b": B}[name]

        class Other(dict[str, Any]):
            pass

        feeds: list[Any] = [Other(a=A, b=B), {_Text("a"): A, _Text("b"): B}, [A, B]]
        for feed in feeds:
            np.testing.assert_array_equal(add.run(None, feed)[0], A + B)

    def test_keys_that_raise(self, add: ort.InferenceSession) -> None:
        class Key:
            def __hash__(self) -> int:
                return hash("a")

            def __eq__(self, other: object) -> bool:
                raise RuntimeError("not comparable")

        with pytest.raises(Exception, match=r"not comparable|names of inputs"):
            add.run(None, {Key(): A, "b": B})  # type: ignore[dict-item]
        np.testing.assert_array_equal(add.run(None, {"a": A, "b": B})[0], A + B)

    def test_outputs_that_are_not_there(self, add: ort.InferenceSession) -> None:
        with pytest.raises(InvalidArgument, match="Invalid output name"):
            add.run(["nothing"], {"a": A, "b": B})

    def test_options_hooks_and_taps(self, add: ort.InferenceSession) -> None:
        feed = {"a": A, "b": B}
        seen: list[str] = []
        remove = add.add_hook(["y"], lambda name, _: seen.append(name))
        add.run(None, feed)
        assert seen == ["y"]
        remove()
        add.run(None, feed)
        assert seen == ["y"]
        options = ort.RunOptions()
        options.terminate = True
        with pytest.raises(Fail, match="terminate"):
            add.run(None, feed, options)
        assert "y" in add.run(None, feed, taps=["y"]).taps  # type: ignore[attr-defined]

    def test_a_closed_session(self, add: ort.InferenceSession) -> None:
        add.close()
        with pytest.raises(Fail, match="closed"):
            add.run(None, {"a": A, "b": B})

    def test_memory_that_is_given_back(self, add: ort.InferenceSession) -> None:
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        feed = {"a": A, "b": B}
        add.run(None, feed, options)
        assert add._model.fast_calls == ()
        for _ in range(3):
            np.testing.assert_array_equal(add.run(None, feed)[0], A + B)

    def test_a_pickled_session(self, add: ort.InferenceSession) -> None:
        again = pickle.loads(pickle.dumps(add))
        np.testing.assert_array_equal(again.run(None, {"a": A, "b": B})[0], A + B)

    def test_data_that_are_wrong(self, make_session: Make) -> None:
        session = make_session("g (float[4] a, int64[n] i) => (float[n] y) { y = Gather(a, i) }", providers=CPU)
        good, bad = {"a": B, "i": np.array([3, 0])}, {"a": B, "i": np.array([3, 9])}
        called(session, good)
        for _ in range(3):
            with pytest.raises(NodeFailed, match="index"):
                session.run(None, bad)
            np.testing.assert_array_equal(session.run(None, good)[0], [4, 1])


class TestMemory:
    def test_nothing_is_kept(self, add: ort.InferenceSession) -> None:
        a, b, wrong = A.copy(), B.copy(), A[0].copy()
        objects = [a, b, wrong, np.dtype(np.float32), np.ndarray, dict]
        feeds: list[dict[str, Any]] = [{"a": a, "b": b}, {"a": a, "c": b}, {"b": b, "a": wrong}]
        call = add._model.fast_calls[0]
        if call is None:
            assert not NATIVE
            return
        before = [sys.getrefcount(x) for x in objects]
        nothing = sys.getrefcount(None)
        for _ in range(1000):
            for feed in feeds:
                call(feed)
        after = [sys.getrefcount(x) for x in objects]
        assert max(abs(x - y) for x, y in zip(before, after, strict=True)) < 50
        assert abs(sys.getrefcount(None) - nothing) < 500
        (y,) = add.run(None, feeds[0])
        assert sys.getrefcount(y) == 2
        held = sys.getrefcount(y.base)  # by the view and by this call
        assert held == 2

    def test_no_memory_is_lost(self, add: ort.InferenceSession) -> None:
        """In the best of three rounds: other threads of this process may take some meanwhile, a leak is in all of them."""
        feed = {"a": A, "b": B}
        gc.collect()
        tracemalloc.start()
        try:
            for _ in range(1000):
                add.run(None, feed)
            held = [tracemalloc.get_traced_memory()[0]]
            for _ in range(3):
                for _ in range(20_000):
                    add.run(None, feed)
                held.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
        assert min(after - before for before, after in pairwise(held)) < 20_000

    def test_a_result_outlives_its_session(self, add: ort.InferenceSession) -> None:
        (y,) = add.run(None, {"a": A, "b": B})
        call = add._model.fast_calls[0]
        del add
        gc.collect()
        np.testing.assert_array_equal(y, A + B)
        if call is not None:  # and so does the function
            np.testing.assert_array_equal(call({"a": A, "b": B})[0], A + B)  # type: ignore[index]

    def test_threads_at_once(self, make_session: Make) -> None:
        text = "g (float[n,64] a, float[64,64] b) => (float[n,64] y) { t = MatMul(a, b) u = MatMul(t, b) y = MatMul(u, b) }"
        rng = np.random.default_rng(0)
        b = rng.standard_normal((64, 64)).astype(np.float32) / 8
        session = called(make_session(text, providers=CPU), {"a": np.ones((64, 64), np.float32), "b": b})
        wrong: list[object] = []

        def work(seed: int) -> None:
            a = np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32)
            expected = a @ b @ b @ b
            for _ in range(300):
                (y,) = session.run(None, {"a": a, "b": b})
                if not np.allclose(y, expected, atol=1e-4):
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


class TestOtherInterpreters:
    def test_objects_that_are_laid_out_otherwise(self, make_session: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(interpreter, "functions", lambda: None)
        session = make_session(ADD, providers=CPU)
        for _ in range(4):
            np.testing.assert_array_equal(session.run(None, {"a": A, "b": B})[0], A + B)
        assert session._model.fast_calls == ()

    def test_are_recognised(self, monkeypatch: pytest.MonkeyPatch) -> None:
        known = interpreter._laid_out_as_known()
        monkeypatch.setattr(interpreter.word, "ARRAY_DESCR", interpreter.word.ARRAY_DIMS)
        assert not interpreter._laid_out_as_known()
        monkeypatch.undo()
        assert interpreter._laid_out_as_known() is known
        monkeypatch.setattr(interpreter.sys, "abiflags", "t", raising=False)  # of a build without a GIL
        assert not interpreter._laid_out_as_known()
