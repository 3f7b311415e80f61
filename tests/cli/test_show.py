"""What the commands print."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rich", reason="the command line needs the extra cli")

from rich.console import Console

from intarsia import SessionOptions
from intarsia.cli import show
from intarsia.cli.app import run_command
from intarsia.cli.show import describe_value, format_value, top_scores
from intarsia.progress import LoadProgress

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def test_kinds() -> None:
    assert describe_value(np.zeros((2, 3), np.float32)) == "float32 [2, 3]"
    assert describe_value(np.array(["a"], object)) == "string [1]"
    assert describe_value([1, 2]) == "list of 2"
    assert describe_value(None) == "NoneType"


def test_small_arrays_are_shown_whole_and_large_ones_summarised() -> None:
    assert format_value(np.array([1.5, 2], np.float32)) == "[1.5 2. ]"
    text = format_value(np.arange(1000, dtype=np.float64))
    assert "..." in text
    assert text.endswith("min 0, max 999, mean 499.5")
    assert format_value(np.full(100, np.nan)).endswith("no finite value")
    assert format_value(np.array([np.inf] + [1.0] * 99)).endswith("min 1, max 1, mean 1, 1 not finite")
    assert format_value({"a": 1}) == "{'a': 1}"


def test_top_scores() -> None:
    scores = np.array([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3]], np.float32)
    best = top_scores(scores, 2, ["cat", "dog"])
    assert [[label for label, _ in row] for row in best] == [["dog", "2"], ["cat", "2"]]
    np.testing.assert_allclose([[s for _, s in row] for row in best], [[0.7, 0.2], [0.5, 0.3]], rtol=1e-6)


def test_a_bar_shows_how_far_a_session_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(show, "errors", Console(file=stream, force_terminal=True, width=100))
    options = SessionOptions()
    with show.compiling(options, "compiling m[1].onnx"):
        callback = options.progress_callback
        assert callback is not None
        callback(LoadProgress("compile", 3, 7, 0.6))
    assert options.progress_callback is None
    assert all(part in stream.getvalue() for part in ("compiling m[1].onnx", "compile 3/7", "60%"))
    monkeypatch.setattr(show, "errors", Console(file=io.StringIO()))
    with show.compiling(options, "to a file"):
        assert options.progress_callback is None


def test_sizes_that_no_memory_has_are_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["bench", str(DIGITS), "-d", "batch=1000000000000"]) == 1
    assert "not enough memory" in capsys.readouterr().err
