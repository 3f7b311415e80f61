"""The worked provider as a user installs and runs it, and the documents about providers, listing by listing."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import intarsia

ROOT = Path(__file__).parents[2]
RELU = '<ir_version: 8, opset_import: ["" : 17]> g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }'
FOLDER = ROOT / "examples" / "custom_provider"


def test_is_one_file_of_under_80_lines() -> None:
    assert len((FOLDER / "toy_npu" / "__init__.py").read_text(encoding="utf-8").splitlines()) < 80


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that has it, installed by pip into a fresh folder, without a network."""
    missing = [name for name in ("pip", "setuptools") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)} to build the package (extra: test)")
    target = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source") / "custom_provider"
    shutil.copytree(FOLDER, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*install, "--no-build-isolation", "--target", str(target), str(source)], check=True)
    paths = [str(target), str(Path(intarsia.__file__).parents[1])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def test_installs_and_runs(installed: dict[str, str]) -> None:
    call = [sys.executable, "-W", "error", str(FOLDER / "run.py")]
    done = subprocess.run(call, env=installed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("right\n")
    assert "nodes by provider: ToyNpuExecutionProvider: 3, CPUExecutionProvider: 1" in done.stdout
    assert "ToyNpuExecutionProvider: no kernel for Softmax" in done.stdout


def test_passes_the_suite(installed: dict[str, str]) -> None:
    call = [sys.executable, "-m", "intarsia.testing.provider", "toy_npu", "--cases", "test_matmul"]
    done = subprocess.run(call, env=installed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "19 of 19 checks passed" in done.stdout


def test_refuses_and_fails_clearly(installed: dict[str, str]) -> None:
    code = """
import numpy as np, onnx.parser, intarsia as ort
text = '<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,1,1,4] x) => (float[1,1,1,1,4] y) { y = Relu(x) }'
source = onnx.parser.parse_model(text).SerializeToString()
try:
    ort.InferenceSession(source, providers=["ToyNpuExecutionProvider"])
except ort.EPFail as error:
    print(error)
session = ort.InferenceSession(source, providers=[("ToyNpuExecutionProvider", {"max_rank": 5, "memory_limit": 8})])
try:
    session.run(None, {"x": np.zeros((1, 1, 1, 1, 4), np.float32)})
except ort.OutOfMemory as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], env=installed, capture_output=True, text=True, check=True)
    assert "1 x float[1, 1, 1, 1, 4] has more than 4 dimensions" in done.stdout
    assert "the NPU cannot hold 16 bytes (memory_limit is 8)" in done.stdout


@pytest.mark.filterwarnings("ignore::intarsia.providers.fallback.ProviderWarning")
@pytest.mark.parametrize("document", ["custom-providers.md", "providers.md"])
def test_listings_run(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    if "openvino_options" in text:
        pytest.importorskip("openvino", reason="the listings use openvino (extra: openvino)")
    onnx.save(onnx.parser.parse_model(RELU), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": document}
    for listing in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(listing, document, "exec"), names)
    session = names["session"]
    assert isinstance(session, intarsia.InferenceSession)
    x = np.float32([[-1, 0, 2]])
    assert session.run(None, {"x": x})[0].tolist() == [[0, 0, 2]]
