"""cuda-bindings itself over a driver in C that has CUDA's own signatures and no GPU: see native_cuda.c and real_bindings.py."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cuda_emulation
import pytest

from intarsia.device import nvidia_libraries

IMITATIONS = Path(__file__).parents[1] / "imitations"


def headers() -> str:
    """The folder with cuda.h; a test without it is skipped."""
    places = [Path(f).parent / "include" for f in nvidia_libraries.folders()]
    places += [Path(p) / "include" for p in (os.environ.get("CUDA_PATH", ""), "/usr/local/cuda") if p]
    found = next((str(p) for p in places if (p / "cuda.h").exists()), "")
    return found or pytest.skip("cuda.h is not found: it is in the package nvidia-cuda-runtime, or comes with CUDA")


def test_the_package_and_the_drivers_signatures(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux" or cuda_emulation.missing():
        pytest.skip("a stand-in for libcuda.so.1 is made by a compiler of C and C++ on Linux: none is found")
    library = tmp_path / "libcuda.so.1"
    source = IMITATIONS / "native_cuda.c"
    flags = ("-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wl,-soname,libcuda.so.1", f"-I{headers()}")
    subprocess.run([compiler, *flags, "-o", str(library), str(source)], check=True)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("LD_LIBRARY_PATH", "")]))
    environment = {**os.environ, "LD_LIBRARY_PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = IMITATIONS / "real_bindings.py"
    done = subprocess.run(
        [sys.executable, str(script), str(library)], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads(done.stdout.splitlines()[-1])
    assert answers["wrong"] == "" and answers["errors"] == [] and answers["cases"] == []
    for way in ("plain", "copies apart", "graph", "default stream", "limit", "bound", "child"):
        assert answers[way] < 1e-6, way
    loaded, run, recorded, replayed = answers["counts"]
    assert loaded > 10 and run > 20 and recorded > 4 and replayed >= 8
