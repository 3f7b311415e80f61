"""The entry for the ONNX Backend Scoreboard: its files fit each other, and its program counts."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import onnx.backend.base

HERE = Path(__file__).parent


def test_the_container_names_a_backend_and_the_configuration_the_container() -> None:
    dockerfile = (HERE / "Dockerfile").read_text(encoding="utf-8")
    (module,) = (line.split('"')[1] for line in dockerfile.splitlines() if line.startswith("ENV ONNX_BACKEND="))
    backend = importlib.import_module(module)
    assert issubclass(backend.IntarsiaBackend, onnx.backend.base.Backend)
    assert callable(backend.run_model)
    assert backend.supports_device("CPU")
    (entry,) = json.loads((HERE / "config.json").read_text(encoding="utf-8")).items()
    job = (HERE / "job.yml").read_text(encoding="utf-8")
    assert entry[0] == "intarsia"
    assert entry[1]["dockerfile_link"] in job
    assert entry[1]["results_dir"].removeprefix("./") in job


def test_the_program_counts_what_passes_and_names_what_does_not() -> None:
    command = [sys.executable, "-W", "ignore", HERE / "run_suite.py", "test_equal_cpu", "test_not_2d_cpu", "test_bernoulli_cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    first, last = done.stdout.splitlines()
    assert done.returncode == 1
    assert first.startswith("failed   test_bernoulli_cpu: ")
    assert last.startswith("3 cases in ")
    assert last.endswith(" s: 2 passed, 1 failed, 0 skipped")
