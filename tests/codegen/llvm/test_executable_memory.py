"""Memory for machine code: written, then executed, never both; what the process's libraries have."""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path

import pytest

from intarsia.codegen.llvm import executable_memory

PAGE = 4096
SEVEN = b"\xb8\x07\x00\x00\x00\xc3"  # x86-64: mov eax, 7; ret


def access(address: int) -> str:
    """What may be done with a page: some of "rwx"; "" where there is none."""
    if sys.platform == "win32":
        words = (ctypes.c_uint64 * 6)()  # MEMORY_BASIC_INFORMATION: State and Protect are the upper and lower half of the fifth
        kernel = ctypes.WinDLL("kernel32")
        kernel.VirtualQuery.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        assert kernel.VirtualQuery(address, words, ctypes.sizeof(words))
        state, protection = words[4] & 0xFFFFFFFF, words[4] >> 32
        return {0x02: "r", 0x04: "rw", 0x20: "rx", 0x40: "rwx"}[protection] if state == 0x1000 else ""
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(x, 16) for x in line.split()[0].split("-"))
        if first <= address < last:
            return line.split()[1][:3].replace("-", "")
    return ""


@pytest.mark.skipif(sys.platform not in ("linux", "win32"), reason="asks Linux or Windows what may be done with a page")
def test_pages_are_written_or_executed_never_both() -> None:
    address = executable_memory.allocate(3 * PAGE)
    assert address % PAGE == 0
    assert access(address) == "rw"
    assert not any(ctypes.string_at(address, 3 * PAGE))
    ctypes.memmove(address, SEVEN, len(SEVEN))
    assert executable_memory.protect(address, 3 * PAGE, True)
    assert executable_memory.protect(address + PAGE, PAGE, False)
    assert [access(address + i * PAGE) for i in range(3)] == ["rx", "rw", "rx"]
    if platform.machine() in ("x86_64", "AMD64"):
        assert ctypes.CFUNCTYPE(ctypes.c_int)(address)() == 7
    executable_memory.free(address, 3 * PAGE)
    assert [access(address + i * PAGE) for i in range(3)] == ["", "", ""]


def test_more_than_there_can_be_is_no_address() -> None:
    assert executable_memory.allocate(1 << 60) == 0


def test_pages_of_others_are_not_made_executable() -> None:
    address = executable_memory.allocate(PAGE)
    executable_memory.free(address, PAGE)
    assert not executable_memory.protect(address, PAGE, True)


def test_functions_of_the_processes_libraries() -> None:
    names = ["memcpy", "memset", "cos", "expf", *(["__chkstk"] if sys.platform == "win32" else [])]
    assert all(executable_memory.function(name) for name in names)
    assert executable_memory.function("no_such_function_anywhere") == 0
    cosine = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(executable_memory.function("cos"))
    assert cosine(0.0) == 1.0
