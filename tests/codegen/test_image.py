"""The linker for images: what it makes runs like what LLVM's linker makes; what it does not know it refuses."""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the objects are compiled with llvmlite")

from intarsia.codegen import image
from intarsia.codegen.engine import emit_object
from intarsia.codegen.target import Target

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or Target.host().arch != "x86_64", reason="images are linked for x86-64 Linux only"
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
    linked = image.link(objects(CALLS, SWITCH, OTHER, optimize=optimize), ["kernel", "pick", "kernel2"])
    assert linked is not None
    addresses = image.load(linked)
    assert addresses is not None
    value, zeros = run(addresses["kernel"], 0.5, 2)
    assert value == pytest.approx(4 * np.cos(0.5), rel=1e-15)
    assert not zeros.any()
    assert [run(addresses["pick"], 0, n)[0] for n in range(6)] == [10.0, 21.0, 32.0, 43.0, 54.5, -1.0]


def test_a_block_is_loaded_once() -> None:
    linked = image.link(objects(OTHER, optimize=True), ["kernel2"])
    assert linked is not None
    assert image.load_once(linked) == image.load_once(bytes(bytearray(linked)))


def test_data_that_code_writes_lie_on_pages_of_their_own() -> None:
    text = """@n = global i64 7
        @m = internal global [600 x i64] zeroinitializer
        define i64 @f() { %v = load i64, ptr @n  %w = add i64 %v, 1  store i64 %w, ptr @n  store i64 %v, ptr @m  ret i64 %v }"""
    linked = image.link(objects(text, optimize=False), ["f"])
    assert linked is not None
    first, second = (ctypes.CFUNCTYPE(ctypes.c_int64)(image.load(linked)["f"]) for _ in range(2))  # type: ignore[index]
    assert [first(), first(), second(), first()] == [7, 8, 7, 9]


def test_what_is_not_known_is_refused() -> None:
    (good,) = objects(OTHER, optimize=True)
    assert image.link([good], ["absent"]) is None
    assert image.link([b"\xcf\xfa\xed\xfe" + bytes(100)], []) is None
    assert image.link([good[:100]], ["kernel2"]) is None


def test_a_function_that_the_process_does_not_have() -> None:
    text = "declare void @no_such_function_anywhere()\ndefine void @f() { call void @no_such_function_anywhere() ret void }"
    linked = image.link(objects(text, optimize=False), ["f"])
    assert linked is not None
    assert image.load(linked) is None


def test_a_foreign_block_is_refused() -> None:
    linked = image.link(objects(OTHER, optimize=True), ["kernel2"])
    assert linked is not None
    assert image.load(b"another " + linked[8:]) is None
    assert image.load(linked[:-1]) is None
