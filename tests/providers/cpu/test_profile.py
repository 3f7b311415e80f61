"""Profiles name the kernels of the CPU provider and the nodes they compute."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia as ort


def test_every_kernel_of_a_run_is_in_the_profile(tmp_path: Path) -> None:
    digits = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    session = ort.InferenceSession(digits, options, providers=["CPUExecutionProvider"])
    plain = ort.InferenceSession(digits, providers=["CPUExecutionProvider"])
    image = np.random.default_rng(0).random((2, 1, 8, 8), np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, {"image": image})[0], plain.run(None, {"image": image})[0])
    events = [e for e in json.loads(Path(session.end_profiling()).read_text()) if e["cat"] == "Node"]
    assert len(events) % 2 == 0
    assert all(e["dur"] >= 0 and e["args"]["nodes"] for e in events)
    assert any("conv" in e["args"]["kernel"] for e in events)
    assert any("Conv" in e["args"]["op_name"] for e in events)
    assert all(e["name"].endswith("_kernel_time") for e in events)
    assert {e["args"]["provider"] for e in events} == {"CPUExecutionProvider"}
    assert all("%" not in e["args"]["nodes"] for e in events)
