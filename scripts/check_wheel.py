"""Build the sdist, a wheel out of it, install that in a new environment, and start a session there.

    python scripts/check_wheel.py [FOLDER]

Two environments are made in FOLDER (default: a temporary one): one that builds (PyPA's build, hatchling), one with the wheel
and what it depends on. On Linux on x86-64 the wheel must bring native code for every level of CPUs, and the first run of a
session must be by it, before anything is compiled.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_NBYTES = 1 << 20  # of the levels' files together
HAS_LEVELS = sys.platform == "linux" and platform.machine() == "x86_64"
STRAY = (".prebuilt", "__pycache__", "tests/", "benchmarks/")  # no part of a wheel
SESSION = """
import sys
import numpy as np, onnx.parser
import intarsia as ort
from intarsia.codegen.llvm import level_images
from intarsia.providers.cpu.first_tier import kernel_image

model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[n, 3] x) => (float[n, 2] y) '
    '<float[3, 2] w = {1, 2, 3, 4, 5, 6}> { a = MatMul(x, w)  y = Softmax(a) }').SerializeToString()
options = ort.SessionOptions()
options.add_session_config_entry("session.compile_in_background", "1")
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
x = np.float32([[1, 2, 3], [0.5, -1, 0]])
(y,) = session.run(None, {"x": x})
e = np.exp(x.astype(np.float64) @ np.arange(1, 7).reshape(3, 2))
np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-6)
if HAS_LEVELS:
    level = level_images.of_this_cpu()
    assert level is not None, "no level for this CPU"
    assert kernel_image.load(), "the first tier's kernels were not loaded"
    assert kernel_image.target() == level.target, (kernel_image.target(), level.target)
    print("first run by the code for", level.target.cpu)
session.wait_until_compiled(120)
np.testing.assert_allclose(session.run(None, {"x": x})[0], y, rtol=1e-5)
print("compiled in", ort.__file__)
"""


def new_environment(folder: Path, *packages: str) -> Path:
    """Its Python."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], check=True)
    return python


def built(folder: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that was built out of it."""
    python = new_environment(folder / "build-environment", "build")
    environment = {**os.environ, "INTARSIA_WHEEL_LEVELS": "1" if HAS_LEVELS else ""}
    subprocess.run([python, "-m", "build", "--outdir", folder / "dist", ROOT], check=True, env=environment)
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return sdist, wheel


def check_contents(wheel: Path) -> None:
    """Raises AssertionError where the wheel has what is no part of it, or lacks native code."""
    sys.path.insert(0, str(ROOT / "src"))
    from intarsia.codegen.llvm.level_images import MADE_FOR

    with zipfile.ZipFile(wheel) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    stray = [name for name in sizes if any(part in name for part in STRAY)]
    assert not stray, stray[:5]
    sources = {str(p.relative_to(ROOT / "src").as_posix()) for p in (ROOT / "src" / "intarsia").rglob("*.py")}
    assert sources <= sizes.keys(), sorted(sources - sizes.keys())[:5]
    page = {f"intarsia/reports/page/{name}" for name in (".dagre.js", "page.html", "page.css", "page.js")}
    assert page <= sizes.keys(), sorted(page - sizes.keys())
    levels = {name: sizes[f"intarsia/.levels/{name}"] for name in MADE_FOR} if HAS_LEVELS else {}
    assert sum(levels.values()) <= MOST_NBYTES, levels
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, levels {levels}")


def check(folder: Path) -> None:
    sdist, wheel = built(folder)
    print(f"{sdist.name}: {sdist.stat().st_size:,} bytes")
    check_contents(wheel)
    python = new_environment(folder / "environment", str(wheel))
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("INTARSIA_", "PYTHON"))}
    program = f"HAS_LEVELS = {HAS_LEVELS}\n{SESSION}"
    subprocess.run(
        [python, "-c", program], check=True, cwd=folder, env={**kept, "INTARSIA_CACHE_DIR": str(folder / "cache")}
    )  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) > 1:
        check(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory() as temporary:
            check(Path(temporary))
