"""What Python's packages for Windows need and Wine does not have, as libraries made by clang and lld-link.

    python scripts/wine/libraries.py SITE_PACKAGES FOLDER_OF_PYTHON

- wine_complex.dll (complex_math.c): Wine's C runtime lacks 36 functions of complex numbers, which NumPy's modules import. Those
  modules get its name in the place of the C runtime's; it hands all other functions on to that.
- bcryptprimitives.dll (random_bytes.c).
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

REPLACED = "api-ms-win-crt-math-l1-1-0.dll"
LIBRARY = "wine_complex.dll"  # a name that fits into the other's place
CALLED = {  # by each of the sources: a library of Wine's, and its functions
    "complex_math.c": ("ucrtbase.dll", ("atan2", "cos", "cosh", "exp", "hypot", "log", "sin", "sinh")),
    "random_bytes.c": ("advapi32.dll", ("SystemFunction036",)),
}
FUNCTIONS = frozenset(
    f"c{name}{suffix}" for name in "real imag abs arg exp sin cos tan sinh cosh tanh pow".split() for suffix in ("", "f", "l")
)


def imports(module: bytes, library: str) -> Iterator[str]:
    """Names that a module for 64-bit Windows imports from a library. Reference: Microsoft's "PE Format"."""
    (header,) = struct.unpack_from("<I", module, 0x3C)
    count, optional = struct.unpack_from("<H12xH", module, header + 6)
    (table,) = struct.unpack_from("<I", module, header + 24 + 112 + 8)  # the second data directory
    sections = [struct.unpack_from("<8xIIII", module, header + 24 + optional + 40 * i) for i in range(count)]

    def place(address: int) -> int:
        return next(address - start + at for size, start, filed, at in sections if start <= address < start + max(size, filed))

    def text(at: int) -> str:
        return module[at : module.index(b"\0", at)].decode()

    at = place(table)
    while True:
        lookup, _, _, name, addresses = struct.unpack_from("<5I", module, at)
        if not name:
            return
        if text(place(name)).lower() == library:
            entry = place(lookup or addresses)
            while value := struct.unpack_from("<Q", module, entry)[0]:
                if not value >> 63:  # not by number
                    yield text(place(value) + 2)
                entry += 8
        at += 20


def build(source: str, exports: Iterable[str], target: Path) -> None:
    """A library made of a file beside this one. `exports`: lines of a module definition."""
    clang, linker = (_tool(name) for name in ("clang", "lld-link"))
    library, functions = CALLED[source]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "called.def").write_text("\n".join([f"LIBRARY {library}", "EXPORTS", *functions, ""]))
        (work / "own.def").write_text("\n".join([f"LIBRARY {target.name}", "EXPORTS", *exports, ""]))
        compiling = ["--target=x86_64-pc-windows-msvc", "-O2", "-ffreestanding", "-fno-builtin", "-c"]
        subprocess.run([clang, *compiling, Path(__file__).with_name(source), "-o", work / "own.obj"], check=True)
        importing = ["/lib", "/machine:x64", f"/def:{work / 'called.def'}", f"/out:{work / 'called.lib'}"]
        subprocess.run([linker, *importing], check=True)
        options = ["/dll", "/noentry", "/nodefaultlib", "/noimplib", f"/def:{work / 'own.def'}", f"/out:{target}"]
        subprocess.run([linker, *options, work / "own.obj", work / "called.lib"], check=True)


def _tool(name: str) -> str:
    for found in (name, *(f"{name}-{version}" for version in range(22, 13, -1))):
        if shutil.which(found):
            return found
    raise SystemExit(f"{name} is missing: apt-get install clang-19 lld-19")


def main(packages: Path, python: Path) -> None:
    needed = set[str]()
    for path in sorted(packages.rglob("*.pyd")):
        module = path.read_bytes()
        names = set(imports(module, REPLACED))
        if names & FUNCTIONS:
            needed |= names
            path.write_bytes(module.replace(REPLACED.encode() + b"\0", LIBRARY.encode().ljust(len(REPLACED) + 1, b"\0")))
    if needed:
        exports = [name if name in FUNCTIONS else f"{name}=ucrtbase.{name}" for name in sorted(needed)]
        build("complex_math.c", exports, python / LIBRARY)
    build("random_bytes.c", ["ProcessPrng"], python / "bcryptprimitives.dll")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
