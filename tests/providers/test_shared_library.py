"""What a shared library needs, read from its file; libraries are compiled here."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from intarsia.providers.shared_library import (
    NotALibraryError,
    SharedLibrary,
    load_what_it_needs,
    missing_message,
    read,
)

COMPILER = next(filter(None, map(shutil.which, ("clang-19", "clang", "gcc", "cc"))), None)
compiled = pytest.mark.skipif(
    sys.platform != "linux" or COMPILER is None, reason="no C compiler (clang, gcc) for ELF files on this machine"
)


def library(folder: Path, file: str, *arguments: str, text: str = "int one(void) { return 1; }") -> Path:
    """A library in `folder`, linked with `arguments`."""
    source = folder / f"{file}.c"
    source.write_text(text)
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-o", folder / file, source, *arguments], check=True)
    return folder / file


@compiled
class TestReading:
    def test_names_and_folders(self, tmp_path: Path) -> None:
        library(tmp_path, "libinner_a.so.1", "-Wl,-soname,libinner_a.so.1")
        outer = library(
            tmp_path, "libouter_a.so", "-Wl,-soname,libouter_a.so.7", "-Wl,-rpath,$ORIGIN/lib:/opt/x", "-Wl,--no-as-needed",
            "-Wl,--enable-new-dtags", f"-L{tmp_path}", "-l:libinner_a.so.1",
        )  # fmt: skip
        found = read(outer)
        assert (found.own_name, found.folders) == ("libouter_a.so.7", ("$ORIGIN/lib", "/opt/x"))
        assert found.needed[0] == "libinner_a.so.1"
        assert "libc.so.6" in found.needed

    def test_as_readelf_says(self) -> None:
        if shutil.which("readelf") is None:
            pytest.skip("no readelf (binutils)")
        import numpy._core._multiarray_umath as module

        text = subprocess.run(["readelf", "-d", module.__file__], check=True, capture_output=True, text=True).stdout
        needed = [line.rpartition("[")[2].rstrip("]") for line in text.splitlines() if "(NEEDED)" in line]
        assert list(read(Path(module.__file__)).needed) == needed

    def test_what_is_no_library(self, tmp_path: Path) -> None:
        whole = library(tmp_path, "libwhole.so").read_bytes()
        for at in (5, 18, 40, 60, 100, 300):
            (tmp_path / "cut.so").write_bytes(whole[:at])
            with pytest.raises(NotALibraryError, match="damaged or cut short"):
                read(tmp_path / "cut.so")
        other = bytearray(whole)
        other[18:20] = (183 if os.uname().machine == "x86_64" else 62).to_bytes(2, "little")
        (tmp_path / "other.so").write_bytes(other)
        with pytest.raises(NotALibraryError, match=r"it is for (aarch64|x86_64) processors, and this is"):
            read(tmp_path / "other.so")
        other = bytearray(whole)
        other[16] = 2
        (tmp_path / "program").write_bytes(other)
        with pytest.raises(NotALibraryError, match="it is an ELF file, and no shared library"):
            read(tmp_path / "program")

    def test_any_bytes_give_an_answer_or_that_error(self, tmp_path: Path) -> None:
        import random

        whole = library(tmp_path, "libwhole.so").read_bytes()
        generator = random.Random(5)
        for _ in range(300):
            damaged = bytearray(whole)
            for _ in range(generator.randrange(1, 20)):
                damaged[generator.randrange(4, 1000)] = generator.randrange(256)
            (tmp_path / "damaged.so").write_bytes(damaged)
            with contextlib.suppress(NotALibraryError):
                assert isinstance(read(tmp_path / "damaged.so"), SharedLibrary)


class TestOfOtherSystems:
    @pytest.mark.parametrize(
        ("start", "message"),
        [
            (b"", "the file is empty"),
            (b"#!/bin/sh\n", "it is no shared library: it begins with b'#!/b'"),
            (b"MZ" + bytes(200), "it is for Windows, and this is"),
            (b"\xcf\xfa\xed\xfe" + bytes(60), "it is for macOS, and this is"),
        ],
    )
    @pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="there these are libraries of its own")
    def test_is_said(self, start: bytes, message: str, tmp_path: Path) -> None:
        (tmp_path / "some").write_bytes(start)
        with pytest.raises(NotALibraryError, match=message):
            read(tmp_path / "some")
        with pytest.raises(NotALibraryError, match="it is a folder"):
            read(tmp_path)


@compiled
class TestLoadingWhatItNeeds:
    def test_beside_it_under_a_longer_name(self, tmp_path: Path) -> None:
        """As NVIDIA's wheel has it: no relative path is linked, and the file's name is not the one that is needed."""
        library(tmp_path, "libinner_b.so.1", "-Wl,-soname,libinner_b.so.1")
        middle = library(
            tmp_path, "libmiddle_b.so.2", "-Wl,-soname,libmiddle_b.so.2", "-Wl,--no-as-needed", f"-L{tmp_path}",
            "-l:libinner_b.so.1", text="int one(void); int two(void) { return one() + 1; }",
        )  # fmt: skip
        outer = library(
            tmp_path, "libouter_b.so", "-Wl,--no-as-needed", f"-L{tmp_path}", "-l:libmiddle_b.so.2",
            text="int two(void); int three(void) { return two() + 1; }",
        )  # fmt: skip
        middle.rename(tmp_path / "libmiddle_b.so.2.13.4")
        (tmp_path / "libinner_b.so.1").rename(tmp_path / "libinner_b.so.1.0")
        script = (
            "import ctypes, sys; from pathlib import Path; from intarsia.providers.shared_library import load_what_it_needs\n"
            "try: ctypes.CDLL(sys.argv[1])\n"
            "except OSError as error: print(error)\n"
            "print(load_what_it_needs(Path(sys.argv[1]))); print(ctypes.CDLL(sys.argv[1]).three())"
        )
        done = subprocess.run([sys.executable, "-c", script, str(outer)], check=True, capture_output=True, text=True)
        refused, *lines = done.stdout.splitlines()
        assert "libmiddle_b.so.2: cannot open shared object file" in refused
        assert lines == ["[]", "3"]

    def test_what_is_nowhere_is_named(self, tmp_path: Path) -> None:
        for name in ("libcuda.so.1", "libgone_c.so.3"):
            library(tmp_path, name, f"-Wl,-soname,{name}")
        outer = library(
            tmp_path, "libouter_c.so", "-Wl,--no-as-needed", f"-L{tmp_path}", "-l:libgone_c.so.3", "-l:libcuda.so.1"
        )
        (tmp_path / "libgone_c.so.3").unlink()
        (tmp_path / "libcuda.so.1").unlink()
        missing = [name for name in load_what_it_needs(outer) if name != "libcuda.so.1"]
        assert missing == ["libgone_c.so.3"]
        assert missing_message(["libgone_c.so.3", "libcuda.so.1"]) == (
            "it needs libgone_c.so.3, libcuda.so.1 (NVIDIA's driver), which are not installed, or not where the loader looks"
        )
        assert missing_message(["libx.so"]).endswith("libx.so, which is not installed, or not where the loader looks")
