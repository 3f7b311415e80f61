"""Timing in turn, with runners that only count."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from intarsia import InferenceSession
from intarsia.cli.peers import Runner, peer_runner
from intarsia.cli.timing import Timing, interleave, largest_difference, settle
from intarsia.errors import UnknownOption

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


class Counting:
    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def __call__(self) -> list[np.ndarray]:
        self.log.append(self.name)
        return []


def test_runners_alternate_and_all_get_their_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intarsia.cli.timing.BURST_SECONDS", 0.0)
    log: list[str] = []
    done: list[float] = []
    timings = interleave([Runner(n, Counting(log, n), 0.0) for n in "ab"], 5, 60.0, done.append)
    assert [len(t.samples) for t in timings] == [5, 5]
    assert log == ["a", "b", *["a", "a", "b", "b"] * 5]
    assert done == sorted(done)
    assert done[-1] == 1.0


def test_a_short_limit_still_times_three_runs() -> None:
    def slow() -> list[np.ndarray]:
        import time

        time.sleep(0.06)
        return []

    (timing,) = interleave([Runner("slow", slow, 0.0)], 1000, 1e-6)
    assert len(timing.samples) == 3


def test_percentiles() -> None:
    timing = Timing([4.0, 1.0, 3.0, 2.0, 5.0])
    assert timing.median == 3.0
    assert timing.percentile(100) == 5.0


def test_differences_are_relative_to_the_largest() -> None:
    assert largest_difference([np.array([1.0, 9.0])], [np.array([1.0, 10.0])]) == pytest.approx(0.1)
    assert largest_difference([["text"]], [["text"]]) == 0.0


def test_infinities_are_no_difference_where_both_have_them() -> None:
    wanted = np.array([-np.inf, np.nan, 2.0])
    assert largest_difference([np.array([-np.inf, np.nan, 1.0])], [wanted]) == pytest.approx(0.5)
    assert largest_difference([np.array([-np.inf, 0.0, 2.0])], [wanted]) == np.inf
    assert largest_difference([np.array([-np.inf, np.nan, np.inf])], [wanted]) == np.inf
    assert largest_difference([np.array([np.inf])], [np.array([np.inf])]) == 0.0


def test_unknown_peer() -> None:
    with pytest.raises(UnknownOption, match="no runtime 'onnxruntim' to compare with; did you mean 'onnxruntime'"):
        peer_runner("onnxruntim", Path("m.onnx"), {}, 1)


def test_absent_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openvino", None)
    with pytest.raises(UnknownOption, match=r"comparing with openvino needs it installed: pip install 'intarsia\[bench\]'"):
        peer_runner("openvino", Path("m.onnx"), {}, 1)


@pytest.mark.parametrize(("peer", "package"), [("opencv", "cv2"), ("emx-onnx-cgen", "emx_onnx_cgen")])
def test_further_peers_give_the_same(peer: str, package: str) -> None:
    pytest.importorskip(package)
    if peer == "emx-onnx-cgen" and not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler")
    feeds = {"image": np.random.default_rng(0).random((3, 1, 8, 8), np.float32)}
    (wanted,) = InferenceSession(DIGITS).run(None, feeds)
    (found,) = peer_runner(peer, DIGITS, feeds, 1).run()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_opencv_says_that_it_lacks_an_operator(tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "my.domain": 1]> g (float[2] x) => (float[2] y) { y = my.domain.Odd (x) }'
    )
    onnx.save(model, tmp_path / "odd.onnx")
    with pytest.raises(UnknownOption, match=r"comparing with opencv: it (lacks operators of|cannot run) odd\.onnx"):
        peer_runner("opencv", tmp_path / "odd.onnx", {"x": np.ones(2, np.float32)}, 1).run()


def test_absent_further_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    monkeypatch.setitem(sys.modules, "emx_onnx_cgen", None)
    with pytest.raises(UnknownOption, match="comparing with opencv needs it installed: pip install opencv-python"):
        peer_runner("opencv", DIGITS, {}, 1)
    with pytest.raises(UnknownOption, match="comparing with emx-onnx-cgen needs it installed: pip install emx-onnx-cgen"):
        peer_runner("emx-onnx-cgen", DIGITS, {}, 1)
    with pytest.raises(UnknownOption, match=r"torch runs no ONNX files: benchmarks/models\.py"):
        peer_runner("torch", DIGITS, {}, 1)


class Clock:
    """Of a process that computes for `busy` seconds, while somebody sleeps."""

    def __init__(self, busy: float) -> None:
        self.now, self.busy = 0.0, busy

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return min(self.now, self.busy)


@pytest.mark.parametrize(("busy", "least", "most"), [(0.0, 0.0, 0.01), (0.05, 0.05, 0.06), (1e9, 0.3, 0.31)])
def test_settle_waits_while_the_process_computes(
    busy: float, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(busy)
    monkeypatch.setattr("intarsia.cli.timing.time", clock)
    settle()
    assert least <= clock.now <= most
