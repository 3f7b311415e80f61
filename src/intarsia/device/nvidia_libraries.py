"""Where NVIDIA's libraries are: packages of Python, the loader's folders, CUDA's own.

A library of CUDA 13 needs a driver of CUDA 13; one of CUDA 12 runs with both. Nothing is loaded before a device requests it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from intarsia.lazy_dataclass import dataclass

Signature = tuple[Any, tuple[Any, ...]]
"""Of a function: its result's type and its arguments'."""


@dataclass(frozen=True)
class Wanted:
    """A library, and the packages that bring it.

    Attributes:
        title: for people.
        short: as in `lib<short>.so.<version>`.
        packages: version of CUDA -> the package, the newest first.
        numbers: version of CUDA -> number in the file's name, where that is another.
    """

    title: str
    short: str
    packages: Mapping[int, str]
    numbers: Mapping[int, int] = field(default_factory=dict)

    def package(self, most: int) -> str:
        """What to install for a driver of this CUDA version."""
        return next((p for v, p in self.packages.items() if v <= most), list(self.packages.values())[-1])

    def names(self, most: int) -> list[str]:
        """Files to look for with a driver of this CUDA version."""
        usable = dict.fromkeys(self.numbers.get(v, v) for v in self.packages if v <= max(most, min(self.packages)))
        if sys.platform == "win32":
            return [f"{self.short}64_{v}.dll" for v in usable]
        return [f"lib{self.short}.so.{v}" for v in usable]


class LibraryMissingError(Exception):
    """A library is not found, does not load, or does not start: `suggestion` says what to do."""

    def __init__(self, reason: str, suggestion: str) -> None:
        super().__init__(reason)
        self.suggestion = suggestion


def folders() -> list[str]:
    """Besides those that the loader knows: where packages have libraries, and CUDA's own."""
    found: list[str] = []
    spec = importlib.util.find_spec("nvidia")
    patterns = ("*/bin", "*/bin/x64", "*/bin/x86_64") if sys.platform == "win32" else ("*/lib", "*/lib64")
    for place in (spec.submodule_search_locations if spec else None) or ():
        found += [str(path) for pattern in patterns for path in sorted(Path(place).glob(pattern))]
    root = os.environ.get("CUDA_PATH") or os.environ.get("CUDA_HOME")
    if root:
        found += [f"{root}/lib64", f"{root}/bin"]
    if sys.platform != "win32":
        found += ["/usr/local/cuda/lib64"]
    return list(dict.fromkeys(found))


def load(wanted: Wanted, signatures: Mapping[str, Signature], most: int) -> Any:
    """The library, its functions with their types; `most`: the CUDA version of the driver.

    Raises:
        LibraryMissingError: it is not found, or cannot be loaded; says where was looked.
    """
    names, wrong = wanted.names(most), ""
    install = f"pip install {wanted.package(most)}"
    for path in [*map(str, _files(wanted, most)), *names]:
        try:
            found = ctypes.CDLL(path)
        except OSError as error:
            wrong = wrong or (f"; {path} does not load: {error}" if os.sep in path else "")
            continue
        try:
            typed(found, signatures)
        except AttributeError as error:
            wrong = wrong or f"; {path} is another version: {error}"
            continue
        return found
    variable = "PATH" if sys.platform == "win32" else "LD_LIBRARY_PATH"
    places = ", ".join(folders()) or "no folder of a package"
    raise LibraryMissingError(
        f"{wanted.title}: {' or '.join(names)} is found neither by the loader ({variable} is {os.environ.get(variable, '')!r}) "
        f"nor in {places}{wrong}", install,
    )  # fmt: skip


def _files(wanted: Wanted, most: int) -> list[Path]:
    return [path for n in wanted.names(most) for f in folders() if (path := Path(f) / n).exists()]


def located(wanted: Wanted, most: int) -> str:
    """The file that would be loaded, with its size, as far as that can be told without loading it."""
    found = next(iter(_files(wanted, most)), None)
    return f"{found} {found.stat().st_size}" if found else f"{wanted.title} of the loader"


def typed(library: Any, signatures: Mapping[str, Signature]) -> Any:
    """Give functions their types. Raises AttributeError where one is missing."""
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, list(arguments)
    return library


def version_text(number: int) -> str:
    """A version as both libraries give it: 10000 of the first number, 100 of the second, and the third."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def ints(values: Sequence[int]) -> Any:
    """As an array of int64 in memory."""
    return (ctypes.c_int64 * len(values))(*values)
