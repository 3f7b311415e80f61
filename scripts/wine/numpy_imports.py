"""Let NumPy's extension modules for Windows run under Wine, whose C runtime lacks 36 functions of complex numbers.

    python scripts/wine/numpy_imports.py SITE_PACKAGES FOLDER_OF_PYTHON

A library is made of complex_math.c by clang and lld-link, which hands all other functions on to the C runtime; the modules
that need one of the 36 get its name in the place of the C runtime's.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

REPLACED = "api-ms-win-crt-math-l1-1-0.dll"
LIBRARY = "wine_complex.dll"  # a name that fits into the other's place
USED = ("atan2", "cos", "cosh", "exp", "hypot", "log", "sin", "sinh")  # what complex_math.c calls
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


def build(exports: set[str], target: Path) -> None:
    """The library that exports these names: its own functions, and others of the C runtime."""
    clang, linker = (_tool(name) for name in ("clang", "lld-link"))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        runtime = "".join(f" {name}\n" for name in USED)
        (work / "runtime.def").write_text(f"LIBRARY ucrtbase.dll\nEXPORTS\n{runtime}")
        handed_on = (f" {name}" if name in FUNCTIONS else f" {name}=ucrtbase.{name}" for name in sorted(exports))
        (work / "own.def").write_text("\n".join([f"LIBRARY {target.name}", "EXPORTS", *handed_on, ""]))
        source = Path(__file__).with_name("complex_math.c")
        compile_only = ["--target=x86_64-pc-windows-msvc", "-O2", "-ffreestanding", "-fno-builtin", "-c"]
        subprocess.run([clang, *compile_only, source, "-o", work / "own.obj"], check=True)
        library = ["/lib", "/machine:x64", f"/def:{work / 'runtime.def'}", f"/out:{work / 'runtime.lib'}"]
        subprocess.run([linker, *library], check=True)
        files = [work / "own.obj", work / "runtime.lib"]
        options = ["/dll", "/noentry", "/nodefaultlib", "/noimplib", f"/def:{work / 'own.def'}", f"/out:{target}"]
        subprocess.run([linker, *options, *files], check=True)


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
        build(needed, python / LIBRARY)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
