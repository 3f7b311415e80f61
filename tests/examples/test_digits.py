"""The digits example as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("PIL", reason="pictures need Pillow (extra cli)")

FOLDER = Path(__file__).parents[2] / "examples" / "digits"


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_every_sample_is_read_right(provider: str) -> None:
    call = [sys.executable, "-W", "error", str(FOLDER / "classify.py"), "--provider", provider]
    done = subprocess.run(call, capture_output=True, text=True, check=False, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("8 of 8 right\n")
    assert done.stdout.count("█") > 50


def test_own_pictures_have_no_verdict() -> None:
    call = [sys.executable, str(FOLDER / "classify.py"), str(FOLDER / "images" / "0.png")]
    done = subprocess.run(call, capture_output=True, text=True, check=True, encoding="utf-8")
    assert "this is a " in done.stdout
    assert "right" not in done.stdout
