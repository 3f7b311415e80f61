"""Build the sdist, a wheel out of it, install that in a new environment, and start a session there.

    python scripts/check_wheel.py [FOLDER]
    python scripts/check_wheel.py FOLDER --wheel WHEEL [--packages FOLDER]    # installs that one

Two environments are made in FOLDER (default: a temporary one): one that builds (PyPA's build, hatchling), one with the wheel
and what it depends on, which come out of `--packages` where that is given. On Linux on x86-64 the wheel must bring native code
for every level of CPUs, and the first run of a session must be by it, before anything is compiled. The quickstart's listings
run there, and a command of the command line.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_NBYTES = 1 << 20  # of the levels' files together
MOST_WHEEL_NBYTES = 5 << 20
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


def new_environment(folder: Path, *packages: str, source: Path | None = None) -> Path:
    """Its Python. Packages come out of the folder `source`, where it is given."""
    venv.create(folder, with_pip=True, clear=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    offline = ["--no-index", "--find-links", str(source)] if source else []
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *offline, *packages], check=True)
    return python


def built(folder: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that was built out of it."""
    python = new_environment(folder / "build-environment", "build")
    environment = {**os.environ, "INTARSIA_WHEEL_LEVELS": "1" if HAS_LEVELS else ""}
    subprocess.run([python, "-m", "build", "--outdir", folder / "dist", ROOT], check=True, env=environment)
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return sdist, wheel


def check_contents(wheel: Path, level_names: list[str]) -> None:
    """Raises AssertionError where the wheel has what is no part of it, or lacks native code for one of these levels."""
    with zipfile.ZipFile(wheel) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    stray = [name for name in sizes if any(part in name for part in STRAY)]
    assert not stray, stray[:5]
    files = [p for p in (ROOT / "src" / "intarsia").rglob("*") if p.suffix in (".py", ".pyi", ".txt", ".typed")]
    sources = {p.relative_to(ROOT / "src").as_posix() for p in files if ".prebuilt" not in p.parts}
    assert {"intarsia/__init__.pyi", "intarsia/py.typed"} <= sources
    assert wheel.stat().st_size <= MOST_WHEEL_NBYTES, wheel.stat().st_size
    assert sources <= sizes.keys(), sorted(sources - sizes.keys())[:5]
    page = {f"intarsia/reports/page/{name}" for name in (".dagre.js", "page.html", "page.css", "page.js")}
    assert page <= sizes.keys(), sorted(page - sizes.keys())
    levels = {name: sizes[f"intarsia/.levels/{name}"] for name in level_names} if HAS_LEVELS else {}
    assert sum(levels.values()) <= MOST_NBYTES, levels
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, levels {levels}")


def check(folder: Path, wheel: Path | None, packages: Path | None) -> None:
    if wheel is None:
        sdist, wheel = built(folder)
        print(f"{sdist.name}: {sdist.stat().st_size:,} bytes")
    python = new_environment(folder / "environment", f"{wheel}[cli]", source=packages)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("INTARSIA_", "PYTHON"))}
    environment = {**kept, "INTARSIA_CACHE_DIR": str(folder / "cache")}

    def run(*command: str | Path) -> None:
        subprocess.run([python, *command], check=True, cwd=folder, env=environment)

    levels = "from intarsia.codegen.llvm.level_images import MADE_FOR; print(*MADE_FOR)"
    check_contents(wheel, subprocess.check_output([python, "-c", levels], cwd=folder, env=environment, text=True).split())
    run("-c", f"HAS_LEVELS = {HAS_LEVELS}\n{SESSION}")
    shutil.copytree(ROOT / "examples" / "digits", folder / "examples" / "digits", dirs_exist_ok=True)
    quickstart = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    run("-c", "\n".join(re.findall(r"```python\n(.*?)```", quickstart, re.DOTALL)))
    run("-m", "intarsia", "run", "examples/digits/digits.onnx", "-d", "batch=1")
    print(f"the quickstart runs on Python {platform.python_version()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--wheel", type=Path, help="do not build: check this one")
    parser.add_argument("--packages", type=Path, help="a folder with the wheels of what it depends on")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        wheel, packages = (path and path.resolve() for path in (given.wheel, given.packages))
        folder = (given.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        check(folder, wheel, packages)


if __name__ == "__main__":
    main()
