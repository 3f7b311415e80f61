"""The linker for images: what it makes runs like what LLVM's linker makes; what it does not know it refuses.

Objects with Windows' calling convention are linked here as on Windows, and run on any system: other code of the same block
calls them by that convention.
"""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the objects are compiled with llvmlite")

from intarsia.cache.disk_cache import DiskCache
from intarsia.codegen.llvm import compile_ir, executable_memory, linked_image
from intarsia.codegen.llvm.jit import Engine, emit_object
from intarsia.codegen.llvm.link_objects import link
from intarsia.codegen.llvm.target import Target
from intarsia.errors import EPFail

pytestmark = pytest.mark.skipif(
    sys.platform not in ("linux", "win32") or Target.host().arch != "x86_64", reason="links ELF objects for x86-64"
)

CALLS = """
declare double @cos(double)
declare ptr @memset(ptr, i32, i64)
@table = private constant [4 x double] [double 1.0, double 2.0, double 4.0, double 8.0]
define internal double @scaled(double %x, i64 %i) noinline {
  %p = getelementptr [4 x double], ptr @table, i64 0, i64 %i
  %s = load double, ptr %p
  %y = fmul double %x, %s
  ret double %y
}
define void @kernel(ptr %args, i64 %tid, i64 %n) {
  %p = load ptr, ptr %args
  %q = getelementptr ptr, ptr %args, i64 1
  %zeros = load ptr, ptr %q
  %x = load double, ptr %p
  %c = call double @cos(double %x)
  %y = call double @scaled(double %c, i64 %n)
  store double %y, ptr %p
  %m = call ptr @memset(ptr %zeros, i32 0, i64 24)
  ret void
}
"""
SWITCH = """
define void @pick(ptr %args, i64 %tid, i64 %n) {
  %p = load ptr, ptr %args
  switch i64 %n, label %other [ i64 0, label %a i64 1, label %b i64 2, label %c i64 3, label %d i64 4, label %e ]
a: store double 10.0, ptr %p
  ret void
b: store double 21.0, ptr %p
  ret void
c: call void @kernel2(ptr %p)
  ret void
d: store double 43.0, ptr %p
  ret void
e: store double 54.5, ptr %p
  ret void
other: store double -1.0, ptr %p
  ret void
}
declare void @kernel2(ptr)
"""
OTHER = """
define void @kernel2(ptr %p) {
  store double 32.0, ptr %p
  ret void
}
"""


def run(address: int, value: float, n: int) -> tuple[float, np.ndarray]:
    x, zeros = np.float64([value]), np.ones(3)
    args = np.array([x.ctypes.data, zeros.ctypes.data])
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)(args.ctypes.data, 0, n)
    return float(x[0]), zeros


def objects(*texts: str, optimize: bool) -> list[bytes]:
    return [emit_object(text, Target.host(), optimize) for text in texts]


@pytest.mark.parametrize("optimize", [False, True])
def test_calls_tables_and_functions_of_the_process(optimize: bool) -> None:
    linked = link(objects(CALLS, SWITCH, OTHER, optimize=optimize), ["kernel", "pick", "kernel2"])
    assert linked is not None
    addresses = linked_image.load(linked)
    assert addresses is not None
    value, zeros = run(addresses["kernel"], 0.5, 2)
    assert value == pytest.approx(4 * np.cos(0.5), rel=1e-15)
    assert not zeros.any()
    assert [run(addresses["pick"], 0, n)[0] for n in range(6)] == [10.0, 21.0, 32.0, 43.0, 54.5, -1.0]


def test_a_block_is_loaded_once() -> None:
    linked = link(objects(OTHER, optimize=True), ["kernel2"])
    assert linked is not None
    assert linked_image.load_once(linked) == linked_image.load_once(bytes(bytearray(linked)))


def test_data_that_code_writes_lie_on_pages_of_their_own() -> None:
    text = """@n = global i64 7
        @m = internal global [600 x i64] zeroinitializer
        define i64 @f() { %v = load i64, ptr @n  %w = add i64 %v, 1  store i64 %w, ptr @n  store i64 %v, ptr @m  ret i64 %v }"""
    linked = link(objects(text, optimize=False), ["f"])
    assert linked is not None
    first, second = (ctypes.CFUNCTYPE(ctypes.c_int64)(linked_image.load(linked)["f"]) for _ in range(2))  # type: ignore[index]
    assert [first(), first(), second(), first()] == [7, 8, 7, 9]


def test_what_is_not_known_is_refused() -> None:
    (good,) = objects(OTHER, optimize=True)
    assert link([good], ["absent"]) is None
    assert link([b"\xcf\xfa\xed\xfe" + bytes(100)], []) is None
    assert link([good[:100]], ["kernel2"]) is None


def test_a_function_that_the_process_does_not_have() -> None:
    text = "declare void @no_such_function_anywhere()\ndefine void @f() { call void @no_such_function_anywhere() ret void }"
    linked = link(objects(text, optimize=False), ["f"])
    assert linked is not None
    assert linked_image.load(linked) is None


def test_an_object_that_calls_what_the_process_does_not_have_is_an_error_that_names_it() -> None:
    text = "declare void @no_such_function_anywhere()\ndefine void @f() { call void @no_such_function_anywhere() ret void }"
    engine = Engine(Target.host(), DiskCache(None))
    with pytest.raises(EPFail, match=r"kernels \['f'\] could not be linked .*: they need \['no_such_function_anywhere'\]"):
        engine._add({"key": objects(text, optimize=False)[0]}, {"key": "f"})


def test_a_system_for_which_llvm_has_no_linker_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("JITLink is not currently available on Windows")

    monkeypatch.setattr("intarsia.codegen.llvm.link_objects.link", lambda *_: None)
    monkeypatch.setattr(compile_ir.llvm(), "create_lljit_compiler", refuse)
    engine = Engine(Target.host(), DiskCache(None))
    with pytest.raises(EPFail, match=r"kernels \['kernel2'\] could not be linked into this process: JITLink is not"):
        engine._add({"key": objects(OTHER, optimize=True)[0]}, {"key": "kernel2"})


def test_code_that_may_not_be_executed_is_not_loaded_and_its_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    linked = link(objects(OTHER, optimize=True), ["kernel2"])
    assert linked is not None
    taken, freed = [], []
    allocate, free = executable_memory.allocate, executable_memory.free
    monkeypatch.setattr(executable_memory, "protect", lambda *_: False)
    monkeypatch.setattr(executable_memory, "allocate", lambda nbytes: taken.append(allocate(nbytes)) or taken[-1])
    monkeypatch.setattr(executable_memory, "free", lambda address, nbytes: freed.append(address) or free(address, nbytes))
    assert linked_image.load(linked) is None
    assert freed == taken != []


def test_a_foreign_block_is_refused() -> None:
    linked = link(objects(OTHER, optimize=True), ["kernel2"])
    assert linked is not None
    assert linked_image.load(b"another " + linked[8:]) is None
    assert linked_image.load(linked[:-1]) is None


WINDOWS = Target.create("x86_64-pc-windows-msvc-elf", "x86-64")
# Sums of many numbers, so that registers are used that Windows' convention keeps for the caller (XMM6 and later, RSI, RDI).
WINDOWS_KERNEL = """
@factors = private constant [16 x double] [double 1.0, double 2.0, double 3.0, double 4.0, double 5.0, double 6.0, double 7.0,
  double 8.0, double 9.0, double 10.0, double 11.0, double 12.0, double 13.0, double 14.0, double 15.0, double 16.0]
@calls = internal global i64 0
@which = global ptr @twice
define double @twice(double %x) noinline { %y = fadd double %x, %x ret double %y }
define void @weighted(ptr %args, i64 %tid, i64 %n) {
  %count = load i64, ptr @calls
  %more = add i64 %count, 1
  store i64 %more, ptr @calls
  %p = load ptr, ptr %args
  %x = load <16 x double>, ptr %p, align 8
  %w = load <16 x double>, ptr @factors
  %y = fmul <16 x double> %x, %w
  %sum = call double @llvm.vector.reduce.fadd.v16f64(double 0.0, <16 x double> %y)
  %scale = load ptr, ptr @which
  %scaled = call double %scale(double %sum)
  switch i64 %n, label %other [ i64 0, label %none i64 1, label %one i64 2, label %two i64 3, label %three i64 4, label %four ]
none: br label %end
one: br label %end
two: br label %end
three: br label %end
four: br label %end
other: br label %end
end:
  %offset = phi double [ 0.5, %none ], [ 10.0, %one ], [ -7.0, %two ], [ 3.0, %three ], [ 2.5, %four ], [ 100.0, %other ]
  %result = fadd double %scaled, %offset
  store double %result, ptr %p
  ret void
}
declare double @llvm.vector.reduce.fadd.v16f64(double, <16 x double>)
"""
CALLER = """
declare win64cc void @weighted(ptr, i64, i64)
define void @call(ptr %args, i64 %tid, i64 %n) {
  call win64cc void @weighted(ptr %args, i64 %tid, i64 %n)
  ret void
}
"""


@pytest.mark.parametrize("optimize", [False, True])
def test_objects_for_windows_are_linked_and_run(optimize: bool) -> None:
    codes = [emit_object(WINDOWS_KERNEL, WINDOWS, optimize), *objects(CALLER, optimize=optimize)]
    linked = link(codes, ["call"])
    assert linked is not None
    addresses = linked_image.load(linked)
    assert addresses is not None
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(addresses["call"])
    for n, offset in enumerate([0.5, 10.0, -7.0, 3.0, 2.5, 100.0]):
        x = np.arange(16.0) - 5
        expected = 2 * (x @ np.arange(1.0, 17)) + offset
        call(np.array([x.ctypes.data]).ctypes.data, 0, n)
        assert x[0] == expected


@pytest.mark.parametrize("optimize", [False, True])
def test_large_stacks_on_windows_ask_the_systems_function_for_pages(optimize: bool) -> None:
    text = """define void @f(ptr %args, i64 %tid, i64 %n) {
        %room = alloca [3000 x double]
        %p = getelementptr [3000 x double], ptr %room, i64 0, i64 %n
        store volatile double 1.0, ptr %p
        ret void }"""
    linked = link([emit_object(text, WINDOWS, optimize)], ["f"])
    assert linked is not None
    assert linked_image.unknown_functions(linked) == ([] if sys.platform == "win32" else ["__chkstk"])


@pytest.mark.parametrize(
    ("process", "native"),
    [
        ("x86_64-pc-windows-msvc", "x86_64-pc-windows-msvc-elf"),
        ("x86_64-w64-windows-gnu", "x86_64-pc-windows-msvc-elf"),  # as in MSYS2: its __chkstk_ms is in no library of the system
        ("aarch64-pc-windows-msvc", "aarch64-pc-windows-msvc-elf"),
        ("x86_64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"),
        ("arm64-apple-darwin24.1.0", "arm64-apple-darwin24.1.0"),
    ],
)
def test_code_for_windows_is_in_elf(process: str, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Binding:
        @staticmethod
        def get_process_triple() -> str:
            return process

    with monkeypatch.context() as patch:
        patch.setattr(compile_ir, "llvm", Binding)
        assert compile_ir.native_triple.__wrapped__() == native
    if "x86_64" in process:
        code = emit_object("define void @f() { ret void }", Target.create(native))
        assert code.startswith(b"\x7fELF")
