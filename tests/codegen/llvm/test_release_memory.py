from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="compiles with llvmlite")

import template_kernels as t

from intarsia.codegen.builder.kernel_body import Module
from intarsia.codegen.llvm import release_memory
from intarsia.codegen.llvm.jit import KernelText, emit_assembly

MAPS = """\
55d0c000-55d0d000 r-xp 00000000 08:01 1 /usr/bin/python3
7f0000001000-7f0000003000 r--p 00000000 08:01 2 /site-packages/llvmlite/binding/libllvmlite.so
7f0000003000-7f0000009000 r-xp 00002000 08:01 2 /site packages/llvmlite/binding/libllvmlite.so
7f0000009000-7f000000a000 rw-p 00008000 08:01 2 /site-packages/llvmlite/binding/libllvmlite.so
7f000000b000-7f000000c000 r-xp 00000000 00:00 0
7f000000c000-7f000000d000 r-xp 00000000 08:01 3 /libllvmlite/other.so
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
"""


def fill(value: int) -> Module:
    """A kernel that stores a number at the address in its first argument."""
    module = Module(t.host())
    body = module.kernel()
    body.b.store(body.i(value), body.load_pointer(body.args[0], 0), align=8)
    body.b.ret_void()
    return module


def stored(text: KernelText) -> int:
    """What a kernel stores."""
    out = np.zeros(1, np.int64)
    t.run(text, [out.ctypes.data])
    return int(out[0])


def test_only_code_of_the_library_is_given_back(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(MAPS)
    assert list(release_memory._code(maps)) == [(0x7F0000003000, 0x7F0000009000)]
    assert list(release_memory._code(tmp_path / "missing")) == []


@pytest.mark.skipif(sys.platform != "linux", reason="pages are given back on Linux only")
def test_compiling_goes_on_after_its_code_was_given_back() -> None:
    emit_assembly("define void @f() { ret void }", t.host())  # LLVM is in this process
    assert release_memory.release() > 1 << 20
    value = int.from_bytes(np.random.default_rng().bytes(4), "little")  # not in the cache
    assert stored(fill(value).text("fill")) == value


def test_what_a_kernel_was_written_with_is_freed_at_once() -> None:
    module = fill(7)
    written = weakref.ref(module.ir)
    gc.disable()
    try:
        assert "store i64 7, ptr" in module.text("fill").ir
        del module
        assert written() is None
    finally:
        gc.enable()
