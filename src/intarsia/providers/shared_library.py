"""What a shared library needs before it can be loaded, read from its file: nothing of it runs.

Only ELF (Linux, Android) is read further than its first bytes; of others it is said what they are for.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from intarsia.lazy_dataclass import dataclass

_MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_PE_MACHINES = {0x14C: "i386", 0x8664: "x86_64", 0xAA64: "aarch64"}
_SAME_MACHINE = {"amd64": "x86_64", "arm64": "aarch64"}
_MACH_O = (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xce\xfa\xed\xfe")
_LOAD, _DYNAMIC = 1, 2  # types of program headers
_NEEDED, _TEXTS, _TEXTS_NBYTES, _OWN_NAME, _RPATH, _RUNPATH = 1, 5, 10, 14, 15, 29  # tags of the dynamic section
_MOST_ENTRIES = 4096

_DRIVER = "NVIDIA's driver"
PROVIDERS_OF: dict[str, str] = {
    "libcuda.so": _DRIVER,
    "libnvidia-ml.so": _DRIVER,
    "libcudart.so.12": "pip install nvidia-cuda-runtime-cu12",
    "libcudart.so.13": "pip install nvidia-cuda-runtime",
    "libcublas.so.12": "pip install nvidia-cublas-cu12",
    "libcublas.so.13": "pip install nvidia-cublas",
    "libcudnn.so.9": "pip install nvidia-cudnn-cu13 (or -cu12)",
    "libvulkan.so": "a Vulkan loader (Debian: libvulkan1)",
    "libze_loader.so": "Intel's Level Zero loader (Debian: libze1)",
    "libstdc++.so": "the C++ runtime (Debian: libstdc++6)",
    "libonnxruntime.so": "the library itself is linked to onnxruntime, which a plugin must not be",
}
"""The beginning of a library's name -> what brings it."""


class NotALibraryError(Exception):
    """A file is no shared library for this machine; says what it is instead."""


@dataclass(frozen=True)
class SharedLibrary:
    """What an ELF file says of itself: its own name, the names of those it needs, folders where these are looked for."""

    path: Path
    own_name: str
    needed: tuple[str, ...]
    folders: tuple[str, ...]


def read(path: Path) -> SharedLibrary:
    """What a library's file says of itself; of one that is no ELF file nothing but its path.

    Raises:
        NotALibraryError: it is no shared library, or one for another system or processor.
        OSError: it cannot be read.
    """
    if path.is_dir():
        raise NotALibraryError("it is a folder")
    with path.open("rb") as file:
        start = file.read(64)
        if start[:4] != b"\x7fELF":
            _check_other(start, path)
            return SharedLibrary(path, path.name, (), ())
        if sys.platform in ("win32", "darwin"):
            raise NotALibraryError(f"it is for Linux or Android, and this is {platform.system()}")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _read_elf(path, data)
            except (struct.error, IndexError, OverflowError, UnicodeDecodeError) as error:
                raise NotALibraryError(f"its ELF headers are damaged or cut short ({error})") from error


def _check_other(start: bytes, path: Path) -> None:
    kind = ""
    if start[:2] == b"MZ":
        kind = "" if sys.platform == "win32" else "Windows"
    elif start[:4] in _MACH_O:
        kind = "" if sys.platform == "darwin" else "macOS"
    else:
        raise NotALibraryError(f"it is no shared library: it begins with {start[:4]!r}" if start else "the file is empty")
    if kind:
        raise NotALibraryError(f"it is for {kind}, and this is {platform.system()}")
    machine = _pe_machine(path) if start[:2] == b"MZ" else ""
    _check_machine(machine)


def _pe_machine(path: Path) -> str:
    data = path.read_bytes()[:4096]
    try:
        (at,) = struct.unpack_from("<I", data, 0x3C)
        return _PE_MACHINES.get(struct.unpack_from("<H", data, at + 4)[0], "")
    except struct.error:
        return ""


def _check_machine(machine: str) -> None:
    here = platform.machine().lower()
    here = _SAME_MACHINE.get(here, here)
    if machine and here in _MACHINES.values() and machine != here:
        raise NotALibraryError(f"it is for {machine} processors, and this is {here}")


def _read_elf(path: Path, data: mmap.mmap) -> SharedLibrary:
    kind, machine = struct.unpack_from("<HH", data, 16)
    if data[5] != 1:
        raise NotALibraryError("it is for processors of the other byte order")
    _check_machine(_MACHINES.get(machine, f"other ({machine})"))
    if kind != 3:
        raise NotALibraryError("it is an ELF file, and no shared library")
    wide = data[4] == 2
    headers = list(_program_headers(data, wide))
    entries = list(_dynamic_entries(data, headers, wide))
    texts = next((_offset(headers, value) for tag, value in entries if tag == _TEXTS), None)
    if texts is None:
        raise NotALibraryError("it is an ELF file without a dynamic section")
    nbytes = next((value for tag, value in entries if tag == _TEXTS_NBYTES), 0)

    def named(*tags: int) -> tuple[str, ...]:
        return tuple(_text(data, texts, nbytes, value) for tag, value in entries if tag in tags)

    folders = tuple(folder for text in named(_RPATH, _RUNPATH) for folder in text.split(":") if folder)
    return SharedLibrary(path, (named(_OWN_NAME) or (path.name,))[0], named(_NEEDED), folders)


def _program_headers(data: mmap.mmap, wide: bool) -> Iterator[tuple[int, int, int, int]]:
    """(type, offset, address, bytes in the file) of each."""
    (start,) = struct.unpack_from("<Q" if wide else "<I", data, 32 if wide else 28)
    size, count = struct.unpack_from("<HH", data, 54 if wide else 42)
    for i in range(count):
        at = start + i * size
        if wide:
            kind, _, offset, address, _, nbytes = struct.unpack_from("<IIQQQQ", data, at)
        else:
            kind, offset, address, _, nbytes = struct.unpack_from("<IIIII", data, at)
        yield kind, offset, address, nbytes


def _dynamic_entries(data: mmap.mmap, headers: Sequence[tuple[int, int, int, int]], wide: bool) -> Iterator[tuple[int, int]]:
    entry = "<qQ" if wide else "<iI"
    for kind, offset, _, nbytes in headers:
        if kind == _DYNAMIC:
            for i in range(min(nbytes // struct.calcsize(entry), _MOST_ENTRIES)):
                tag, value = struct.unpack_from(entry, data, offset + i * struct.calcsize(entry))
                if tag == 0:
                    return
                yield tag, value


def _offset(headers: Sequence[tuple[int, int, int, int]], address: int) -> int:
    for kind, offset, start, nbytes in headers:
        if kind == _LOAD and start <= address < start + nbytes:
            return offset + address - start
    raise IndexError(f"address {address:#x} is in no segment")


def _text(data: mmap.mmap, texts: int, nbytes: int, at: int) -> str:
    end = data.find(b"\0", texts + at, texts + nbytes)
    if not 0 <= at < nbytes or end < 0:
        raise IndexError(f"text {at} is outside of its table")
    return data[texts + at : end].decode()


def load_what_it_needs(path: Path, more_folders: Sequence[str] = ()) -> list[str]:
    """Load what a library needs from its own folder and `more_folders` where the loader would not find it there.

    Some wheels carry what their plugin needs beside it, and neither link it by a relative path nor under the name that is
    needed; a loaded library serves all who need its name. Where something is found nowhere, nothing of them is loaded.

    Returns:
        names of libraries that are needed and found nowhere, or do not load.

    Raises:
        NotALibraryError, OSError: as `read`.
    """
    found: dict[str, SharedLibrary | None] = {}
    _collect(read(path), [str(path.parent), *more_folders], found, set())
    missing = [name for name, library in found.items() if library is None]
    return missing or [name for name, library in found.items() if library is not None and not _loads(str(library.path))]


def _collect(library: SharedLibrary, folders: Sequence[str], found: dict[str, SharedLibrary | None], seen: set[str]) -> None:
    """Note in `found` what a library needs, each behind what it needs itself; None: found nowhere."""
    for name in library.needed:
        if name in seen:
            continue
        seen.add(name)
        if any((folder / name).is_file() for folder in _own_folders(library)) or _loads(name):
            continue
        file = _find(name, folders)
        if file is not None:
            _collect(file, folders, found, seen)
        found[name] = file


def _own_folders(library: SharedLibrary) -> list[Path]:
    origin = str(library.path.parent)
    return [Path(folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)) for folder in library.folders]


def _find(name: str, folders: Sequence[str]) -> SharedLibrary | None:
    """A file that calls itself `name`, under that name or a longer one ("libcudart.so.13.4.36")."""
    for folder in folders:
        for path in sorted(Path(folder).glob(f"{name}*")):
            try:
                found = read(path)
            except (NotALibraryError, OSError):
                continue
            if found.own_name == name:
                return found
    return None


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name, mode=getattr(os, "RTLD_LOCAL", 0))
    except OSError:
        return False
    return True


def what_brings(name: str) -> str:
    """What to install for a library; "" where that is not known."""
    return next((text for start, text in PROVIDERS_OF.items() if name.startswith(start)), "")


def missing_message(names: Sequence[str]) -> str:
    """What a library lacks, and what brings it."""
    listed = [f"{name} ({text})" if (text := what_brings(name)) else name for name in names]
    return (
        f"it needs {', '.join(listed)}, which {'is' if len(names) == 1 else 'are'} not installed, or not where the loader looks"
    )
