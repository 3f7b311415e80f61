"""What goes wrong reaches onnxruntime's caller in our words, and sessions leave nothing behind."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plugin_sessions import Sessions, model, taken

from intarsia.errors import EPFail
from intarsia.ort_plugin import factory, fused_part
from intarsia.ort_plugin.factory import PluginOptions

GATHER = "g (float[8, 4] x, int64[n] i) => (float[n, 4] y) { s = Relu(x) y = Gather(s, i) }"
FEED = {"x": np.ones((8, 4), np.float32), "i": np.array([0, 7])}


def test_a_wrong_index(sessions: Sessions) -> None:
    session = sessions.make(model(GATHER), {"take_all": "1"})
    assert taken(session) == 2
    for _ in range(3):
        session.run(None, FEED)
        with pytest.raises(Exception, match=r"IntarsiaCPU: .*Gather.*out of range"):
            session.run(None, {**FEED, "i": np.array([0, 8])})


def test_an_option_that_does_not_exist(sessions: Sessions) -> None:
    with pytest.raises(Exception, match=r"IntarsiaCPU: there is no option 'treads'"):
        sessions.make(model(GATHER), {"treads": "2"})
    with pytest.raises(Exception, match=r"'take_all': expected a whole number of 0 or more, got 'yes'"):
        sessions.make(model(GATHER), {"take_all": "yes"})


def test_options() -> None:
    entries = {"ep.intarsiacpu.intra_op_num_threads": "3", "session.intra_op.allow_spinning": "0", "ep.other.x": "1"}
    assert PluginOptions.of(entries) == PluginOptions(3, take_all=False)


def test_a_part_that_cannot_be_compiled_is_left_to_onnxruntime(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise EPFail("not today")

    monkeypatch.setattr(fused_part, "program_of", refuse)
    session = sessions.make(model(GATHER), {"take_all": "1"})
    assert taken(session) == 0
    np.testing.assert_array_equal(session.run(None, FEED)[0], np.ones((2, 4)))


def test_a_fault_of_ours_is_a_warning(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def crash(*_: Any) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(factory.FusedParts, "take", crash)
    np.testing.assert_array_equal(sessions.make(model(GATHER)).run(None, FEED)[0], np.ones((2, 4)))
    assert "GetCapability failed: 'lost'" in caplog.text


def test_an_onnxruntime_that_is_too_old(tmp_path: Path) -> None:
    import ctypes

    from intarsia.ort_plugin.c_api import OrtApi

    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(lambda version: None)
    version = ctypes.PYFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(text))
    text = ctypes.create_string_buffer(b"1.23.2")
    base = (ctypes.c_void_p * 2)(*[ctypes.cast(f, ctypes.c_void_p) for f in (get, version)])
    with pytest.raises(EPFail, match=r"needs onnxruntime 1\.24 or newer; this is 1\.23\.2"):
        OrtApi(ctypes.addressof(base))


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.nightly)])
def test_sessions_leave_nothing(sessions: Sessions, count: int) -> None:
    source = model("g (float[n, 256] x) => (float[n, 256] y) { t = Transpose(x) m = MatMul(x, t) y = MatMul(m, x) }")
    feed = {"x": np.ones((64, 256), np.float32)}

    def use(times: int) -> None:
        for _ in range(times):
            session = sessions.make(source)
            session.run(None, feed)
            session.run(None, feed)
            del session
        gc.collect()

    use(20)
    before = resident()
    use(count)
    assert resident() - before < (4 << 20) + count * (8 << 10)
