"""Which call path a run goes by, under which limits, and that paths do not hold a session that is let go."""

from __future__ import annotations

from typing import Any
from weakref import ref

import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.model.closed_model import ClosedModel
from intarsia.model.runnable import Runnable
from intarsia.session.call_paths import limits
from intarsia.session.call_paths.limits import limits_of
from intarsia.session.call_paths.ordered import PATHS
from intarsia.session.call_paths.protocol import CallPath

MODEL = '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y, float[n] z) { y = Add(x, x)  z = Neg(y) }'
X = np.float32([1, -2, 3])
Y, Z = X + X, -(X + X)


def session_of(options: ort.SessionOptions | None = None) -> ort.InferenceSession:
    data = onnx.parser.parse_model(MODEL).SerializeToString()
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def engine_of(session: ort.InferenceSession) -> Any:
    return session._engine


PLAIN, INSPECTED, CHECKED = PATHS
RUNS: dict[str, tuple[CallPath, dict[str, Any]]] = {
    "a dict of arrays": (PLAIN, {}),
    "all outputs by name": (PLAIN, {"names": ["y", "z"]}),
    "one output": (CHECKED, {"names": ["z"]}),
    "outputs in another order": (CHECKED, {"names": ["z", "y"]}),
    "options": (CHECKED, {"options": ort.RunOptions()}),
    "a timeout": (CHECKED, {"timeout": 100.0}),
    "a framework": (CHECKED, {"framework": "ortvalue"}),
    "a list": (CHECKED, {"feed": [X]}),
    "what has to be converted": (CHECKED, {"feed": {"x": [1.0, -2.0, 3.0]}}),
    "taps": (INSPECTED, {"taps": ["y"]}),
}


@pytest.mark.parametrize("name", RUNS)
def test_which_path(name: str) -> None:
    wanted, given = RUNS[name]
    asked = {"names": None, "feed": {"x": X}, "options": None, "timeout": None, "framework": None, "taps": None, **given}
    engine = engine_of(session_of())
    for path in PATHS:
        found = path(engine, *asked.values())
        if found is not None:
            break
    assert path is wanted
    assert found is not None
    names = asked["names"] or ["y", "z"]
    for value, expected in zip(found, [{"y": Y, "z": Z}[n] for n in names], strict=True):
        np.testing.assert_array_equal(value.numpy() if isinstance(value, ort.OrtValue) else value, expected)


def test_hooks_are_inspected() -> None:
    session, told = session_of(), []
    session.add_hook(["y"], lambda name, value: told.append((name, value)))
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, {"x": X})[1], Z)
    assert [name for name, _ in told] == ["y", "y"]
    assert PLAIN(engine_of(session), None, {"x": X}, None, None, None, None) is None  # somebody watches


def test_other_paths_are_imported_by_the_first_run_that_needs_one() -> None:
    session = session_of()
    for _ in range(3):
        session.run(None, {"x": X})
    assert engine_of(session).paths[0] is PLAIN
    assert engine_of(session).paths is not PATHS
    session.run(["y"], {"x": X})
    assert engine_of(session).paths is PATHS


def test_fast_calls_come_first_those_of_arrays_before_those_of_ort_values() -> None:
    session = session_of()
    for _ in range(3):
        session.run(None, {"x": X})
    calls = session._model.fast_calls
    assert len(calls) == 2
    np.testing.assert_array_equal(calls[0]({"x": X})[0], Y)
    assert calls[1]({"x": X}) is None
    np.testing.assert_array_equal(calls[1]({"x": ort.OrtValue.ortvalue_from_numpy(X)})[0], Y)


def test_limits_from_the_outermost_inwards() -> None:
    assert limits_of(engine_of(session_of())) == ()
    options = ort.SessionOptions()
    options.add_session_config_entry("session.memory_limit_mib", "64")
    assert limits_of(engine_of(session_of(options))) == (limits._of_memory,)
    options = ort.SessionOptions()
    options.untrusted = True
    session = session_of(options)
    assert engine_of(session).limits == (limits._of_time, limits._of_trips, limits._of_results, limits._of_memory)
    np.testing.assert_array_equal(session.run(["z"], {"x": X})[0], Z)


def test_a_session_that_is_let_go_is_freed_at_once() -> None:
    session = session_of()
    for _ in range(3):
        session.run(None, {"x": X})
    session.run(["y"], {"x": X}, ort.RunOptions())
    session.run(None, [X], timeout=100.0)
    session.run(None, {"x": X}, taps=["y"])
    engine, model = ref(engine_of(session)), ref(session._model)
    del session
    assert (engine(), model()) == (None, None)


def test_what_a_closed_session_has_says_so() -> None:
    model = ClosedModel()
    assert model.fast_calls == ()
    names = [name for name in dir(Runnable) if not name.startswith("_") and name not in ("fast_calls", "awaits")]
    assert {"run", "run_some", "outputs", "partition", "finished"} <= set(names)
    for name in names:
        with pytest.raises(ort.Fail, match="the session is closed: make a new InferenceSession"):
            getattr(model, name)()
