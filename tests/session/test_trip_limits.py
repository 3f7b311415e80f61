"""The trips of a run's loops by number: all together, nested ones too, whoever runs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.ep.provider import RunContext
from intarsia.errors import Fail, InvalidArgument
from intarsia.run_status import CURRENT_RUN, new_flag, next_trip

HEAD = '<ir_version: 10, opset_import: ["": 20]>'
# A native loop: what it carries keeps its size.
PLAIN = (
    HEAD
    + """
g (int64 n, float[2] x) => (float[2] y) {
  y = Loop (n, , x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w) { d = Identity(c)
    w = Sin(v) }>
}"""
)
UNTIL = (
    HEAD
    + """
g (int64 n, float[2] x) => (float[2] y) {
  yes = Constant <value = bool {1}> ()
  y, last = Loop (, yes, x, n) <body = b (int64 i, bool c, float[2] v, int64 m) => (bool d, float[2] w, int64 k) {
    one = Constant <value = int64 {1}> ()
    zero = Constant <value = int64 {0}> ()
    k = Sub(m, one)
    d = Greater(k, zero)
    w = Sin(v) }>
}"""
)
GROWING = (
    HEAD
    + """
g (int64 n, float[2] x) => (float[k] y) {
  y = Loop (n, , x) <body = b (int64 i, bool c, float[p] v) => (bool d, float[q] w) { d = Identity(c)
    s = Sin(v)
    w = Concat <axis = 0> (s, x) }>
}"""
)
PYTHON = (
    HEAD
    + """
g (int64 n, float[2] x) => (seq(string[2]) y) {
  empty = SequenceEmpty <dtype = 8> ()
  y = Loop (n, , empty) <body = b (int64 i, bool c, seq(string[2]) v) => (bool d, seq(string[2]) w) { d = Identity(c)
    t = Cast <to = 8> (x)
    w = SequenceInsert(v, t) }>
}"""
)
SCAN = (
    HEAD
    + """
g (int64 n, float[2] x) => (float[2] y, float[k, 2] z) {
  axes = Constant <value_ints = [0]> ()
  m = Unsqueeze(n, axes)
  two = Constant <value_ints = [2]> ()
  shape = Concat <axis = 0> (m, two)
  rows = Expand(x, shape)
  y, z = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] r) => (float[2] t, float[2] o) {
    t = Sin(s)
    o = Add(t, r) }> (x, rows)
}"""
)
# Three trips inside each: 4 n of them in all.
NESTED = (
    HEAD
    + """
g (int64 n, int64 three, float[2] x) => (float[2] y) {
  y = Loop (n, , x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w) { d = Identity(c)
    w = Loop (three, , v) <body = a (int64 j, bool e, float[2] p) => (bool f, float[2] q) { f = Identity(e)
      q = Sin(p) }> }>
}"""
)
MODELS = {"plain": PLAIN, "until": UNTIL, "growing": GROWING, "python": PYTHON, "scan": SCAN, "nested": NESTED}
X = np.ones(2, np.float32)


def options(trips: int, untrusted: bool = False) -> ort.SessionOptions:
    made = ort.SessionOptions()
    made.untrusted = untrusted
    made.add_session_config_entry("untrusted.trips" if untrusted else "session.loop_trips", str(trips))
    return made


def session(kind: str, made: ort.SessionOptions, provider: str = "CPUExecutionProvider") -> ort.InferenceSession:
    return ort.InferenceSession(onnx.parser.parse_model(MODELS[kind]).SerializeToString(), made, [provider])


def feed(kind: str, trips: int) -> dict[str, Any]:
    """For so many trips in all."""
    if kind == "nested":
        return {"n": np.array(trips // 4), "three": np.array(3), "x": X}
    return {"n": np.array(trips), "x": X}


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("kind", MODELS)
def test_as_many_trips_as_are_allowed(kind: str, provider: str) -> None:
    limited = session(kind, options(100), provider)
    free = session(kind, ort.SessionOptions(), provider)
    for _ in range(2):  # each run has as many, and one that was stopped leaves nothing behind
        for found, expected in zip(limited.run(None, feed(kind, 100)), free.run(None, feed(kind, 100)), strict=True):
            assert str(found) == str(expected)
        for more in (101, 104, 1000) if kind != "nested" else (104, 1000):
            with pytest.raises(Fail, match=r"would have more than 100 trips together \('session\.loop_trips'\)"):
                limited.run(None, feed(kind, more))
    assert len(free.run(None, feed(kind, 1000))) == len(free.get_outputs())


def test_one_more_inside() -> None:
    for provider in ("CPUExecutionProvider", "ReferenceExecutionProvider"):
        limited = session("nested", options(100), provider)
        limited.run(None, {"n": np.array(10), "three": np.array(9), "x": X})
        limited.run(None, {"n": np.array(50), "three": np.array(1), "x": X})
        for n, inside in ((51, 1), (10, 10), (101, 0), (1, 100)):
            with pytest.raises(Fail, match="more than 100 trips"):
                limited.run(None, {"n": np.array(n), "three": np.array(inside), "x": X})


@pytest.mark.parametrize("kind", ["plain", "growing", "python"])
def test_every_way_to_run(kind: str) -> None:
    limited = session(kind, options(10))
    run, binding = ort.RunOptions(), limited.io_binding()
    binding.bind_cpu_input("n", np.array(11))
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    for _ in range(4):
        limited.run(None, feed(kind, 10), run, timeout=60)
        for call in (
            lambda: limited.run(None, feed(kind, 11), run), lambda: limited.run(["y"], feed(kind, 11), timeout=60),
            lambda: limited.run_with_iobinding(binding), lambda: limited.run(None, list(feed(kind, 11).values())),
        ):  # fmt: skip
            with pytest.raises(Fail, match="more than 10 trips"):
                call()


def test_untrusted_sessions() -> None:
    limited = session("plain", options(10, untrusted=True))
    limited.run(None, feed("plain", 10))
    with pytest.raises(Fail, match=r"more than 10 trips together \('untrusted\.trips'\)"):
        limited.run(None, feed("plain", 11))
    default = ort.SessionOptions()
    default.untrusted = True
    with pytest.raises(Fail, match=r"more than 10,000,000 trips together \('untrusted\.trips'\)"):
        session("plain", default).run(None, feed("plain", 1 << 62), timeout=600)
    own = options(20, untrusted=True)
    own.add_session_config_entry("session.loop_trips", "5")
    with pytest.raises(Fail, match=r"more than 5 trips together \('session\.loop_trips'\)"):
        session("plain", own).run(None, feed("plain", 6))


@pytest.mark.parametrize(("trips", "untrusted"), [(-1, False), (-1, True), (0, True)])
def test_numbers_that_are_none(trips: int, untrusted: bool) -> None:
    with pytest.raises(InvalidArgument, match="trips"):
        session("plain", options(trips, untrusted))


def test_stopping_still_works() -> None:
    limited, run = session("plain", options(1 << 40)), ort.RunOptions()
    run.terminate = True
    with pytest.raises(Fail, match="terminate flag"):
        limited.run(None, feed("plain", 1), run)


@pytest.fixture
def counted() -> Iterator[RunContext]:
    run = RunContext(None, None, new_flag(3), None, (3, "a setting"))
    token = CURRENT_RUN.set(run)
    yield run
    CURRENT_RUN.reset(token)


def test_loops_of_python(counted: RunContext) -> None:
    for _ in range(3):
        next_trip()
    assert counted.trips_left == 0
    with pytest.raises(Fail, match=r"more than 3 trips together \('a setting'\)"):
        next_trip()
