"""benchmarks/models.py and benchmarks/operators.py as a user runs them, on one small model each."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def test_tables_of_one_model(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "digits" / "digits.onnx", tmp_path)
    np.savez(tmp_path / "digits.npz", in_image=np.zeros((1, 1, 8, 8), np.float32), out_0=np.zeros((1, 10), np.float32))
    script = str(ROOT / "benchmarks" / "models.py")
    call = [sys.executable, script, str(tmp_path), "--what", "run,memory", "--against", "", "--runs", "3"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "### One run, median, 2 threads" in done.stdout
    rows = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines() if line.startswith("| digits")]
    assert len(rows) == 3  # runs, memory of warm starts and of first ones
    assert all(float(row[2]) > 0 for row in rows)


def test_unknown_measure(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "digits" / "digits.onnx", tmp_path)
    call = [sys.executable, str(ROOT / "benchmarks" / "models.py"), str(tmp_path), "--what", "speed"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--what: unknown speed; there are run, create, import, memory" in done.stderr


def test_errors_against_float64(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the peer that is compared with")
    shutil.copy(ROOT / "examples" / "digits" / "digits.onnx", tmp_path)
    image = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
    np.savez(tmp_path / "digits.npz", in_image=image)
    call = [sys.executable, str(ROOT / "benchmarks" / "accuracy.py"), str(tmp_path)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("| digits")]
    ours, peer = float(row[1]), float(row[3])
    assert 1e-9 < ours < 1e-5  # float32 against float64: neither equal nor far
    assert 1e-9 < peer < 1e-5


def operators(*arguments: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, str(ROOT / "benchmarks" / "operators.py"), *arguments]
    return subprocess.run(call, capture_output=True, text=True, check=False)


def test_cases_of_single_operators() -> None:
    pytest.importorskip("onnx", reason="the cases' labels use onnx's names of types")
    names = operators("--list").stdout.splitlines()
    assert len(names) > 600
    assert len(set(names)) > 600
    assert operators("--list", "Resize *cubic*").stdout.count("cubic") >= 6


def test_table_of_one_operator() -> None:
    pytest.importorskip("onnxruntime", reason="the peer that is compared with")
    done = operators("Relu float32 32x32", "--rounds", "1", "--seconds", "0.001", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["results"]
    assert (row["op"], row["difference"], row["how"]) == ("Relu", 0, "compiled")
    assert row["ratio"] == pytest.approx(row["onnxruntime_ms"] / row["intarsia_ms"])


def test_unknown_operator() -> None:
    done = operators("NoSuchOperator")
    assert done.returncode == 2
    assert "no such cases: NoSuchOperator" in done.stderr
