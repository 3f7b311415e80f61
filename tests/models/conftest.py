"""Where the exported models come from: the folder in INTARSIA_MODELS, or exported here once per test session."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXPORTER = Path(__file__).parent / "export.py"


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("INTARSIA_MODELS"):
        return Path(given)
    missing = [name for name in ("torch", "transformers", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"exporting the models needs {', '.join(missing)} (extra: train), or a folder in INTARSIA_MODELS")
    folder = tmp_path_factory.mktemp("models")
    size = os.environ.get("INTARSIA_MODELS_SIZE", "small")
    done = subprocess.run(
        [sys.executable, str(EXPORTER), str(folder), "--size", size], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder
