"""Kernel text to machine code: right results, nothing compiled twice, errors that name the kernel."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="code generation needs llvmlite")

from intarsia.cache.disk_cache import DiskCache
from intarsia.codegen.llvm.jit import Engine, KernelText, emit_assembly, emit_object, get_engine, kernel_symbol, kernel_text
from intarsia.codegen.llvm.target import L2_NBYTES, L3_NBYTES, Target, second_level_nbytes, streamed_nbytes
from intarsia.errors import EPFail, InvalidArgument

# args: x, y, count; y[i] = x[i] * FACTOR + 1 for this thread's share
SCALE = """
define void @__SYMBOL__(ptr noalias %args, i64 %tid, i64 %nthreads) ATTRIBUTES {
entry:
  %x = load ptr, ptr %args
  %yp = getelementptr i64, ptr %args, i64 1
  %y = load ptr, ptr %yp
  %cp = getelementptr i64, ptr %args, i64 2
  %count = load i64, ptr %cp
  %some = icmp slt i64 %tid, %count
  br i1 %some, label %loop, label %out
loop:
  %i = phi i64 [ %tid, %entry ], [ %i1, %loop ]
  %p = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %p
  %w = fmul float %v, FACTOR
  %r = fadd float %w, 1.0
  %q = getelementptr float, ptr %y, i64 %i
  store float %r, ptr %q
  %i1 = add i64 %i, %nthreads
  %more = icmp slt i64 %i1, %count
  br i1 %more, label %loop, label %out
out:
  ret void
}
"""


def scale_kernel(factor: float) -> KernelText:
    return kernel_text("scale", SCALE.replace("ATTRIBUTES", "nounwind").replace("FACTOR", f"{factor:.1f}"))


def call_scale(address: int, x: np.ndarray, nthreads: int = 1) -> np.ndarray:
    y = np.full_like(x, np.nan)
    args = np.array([x.ctypes.data, y.ctypes.data, x.size], dtype=np.int64)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
    for tid in range(nthreads):
        function(args.ctypes.data, tid, nthreads)
    return y


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(Target.host(), DiskCache(tmp_path))


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("nthreads", [1, 3])
def test_kernels_compute(engine: Engine, optimize: bool, nthreads: int) -> None:
    kernels = [scale_kernel(factor) for factor in (2.0, -3.0, 0.5)]
    addresses = engine.load(kernels, optimize=optimize)
    x = np.linspace(-4, 4, 37, dtype=np.float32)
    for kernel, factor in zip(kernels, (2.0, -3.0, 0.5), strict=True):
        np.testing.assert_allclose(call_scale(addresses[kernel.symbol], x, nthreads), x * factor + 1, rtol=1e-6)


def test_nothing_is_compiled_twice(engine: Engine, tmp_path: Path) -> None:
    kernels = [scale_kernel(float(i)) for i in range(4)]
    first = engine.load(kernels)
    assert (engine.compiled, engine.loaded_from_cache) == (4, 0)
    assert engine.load(kernels[::-1]) == first
    assert (engine.compiled, engine.loaded_from_cache) == (4, 0)

    fresh = Engine(Target.host(), DiskCache(tmp_path))
    addresses = fresh.load(kernels)
    assert (fresh.compiled, fresh.loaded_from_cache) == (0, 4)
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(call_scale(addresses[kernels[3].symbol], x), x * 3 + 1)


def test_groups_share_kernels(engine: Engine, tmp_path: Path) -> None:
    kernels = [scale_kernel(float(i)) for i in range(4)]
    engine.load(kernels[:3])
    other = Engine(Target.host(), DiskCache(tmp_path))
    other.load(kernels[1:])
    assert (other.compiled, other.loaded_from_cache) == (1, 2)
    third = Engine(Target.host(), DiskCache(tmp_path))
    third.load(kernels[1:])
    assert (third.compiled, third.loaded_from_cache) == (0, 3)


CALLS = """
declare void @PART(ptr, i64, i64)
define void @__SYMBOL__(ptr %args, i64 %tid, i64 %nthreads) nounwind {
  tail call void @PART(ptr %args, i64 %tid, i64 %nthreads)
  ret void
}
; NUMBER
"""


def calling(part: KernelText, number: int = 0) -> KernelText:
    return kernel_text("calls", CALLS.replace("PART", part.symbol).replace("NUMBER", str(number)), parts=[part])


NO_JITLINK = pytest.mark.skipif(sys.platform == "win32", reason="llvmlite has no JITLink on Windows")


@pytest.mark.parametrize("linked_by_llvm", [False, pytest.param(True, marks=NO_JITLINK)])
def test_parts_are_compiled_once_for_all_that_call_them(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked_by_llvm: bool
) -> None:
    if linked_by_llvm:
        monkeypatch.setattr("intarsia.codegen.llvm.link_objects.link", lambda objects, symbols: None)
    x, part = np.arange(5, dtype=np.float32), scale_kernel(2.0)
    callers = [calling(part), calling(part, 1), calling(calling(part, 2), 3)]
    addresses = engine.load(callers[:2])
    assert engine.compiled == 3
    addresses |= engine.load(callers[2:])  # the innermost one's code is linked into a second block
    assert engine.compiled == 5
    fresh = Engine(Target.host(), DiskCache(tmp_path))
    for found in (addresses, fresh.load(callers), fresh.load([part])):
        for symbol in found:
            np.testing.assert_array_equal(call_scale(found[symbol], x), x * 2 + 1)
    assert fresh.compiled == 0
    objects = engine.objects(callers)
    assert objects is not None and len(objects) == 5


def test_parts_are_compiled_again_where_nothing_keeps_them() -> None:
    engine, part, x = Engine(Target.host(), DiskCache(None)), scale_kernel(2.0), np.arange(5, dtype=np.float32)
    for kernel in (part, calling(part), calling(part, 1)):
        np.testing.assert_array_equal(call_scale(engine.load([kernel])[kernel.symbol], x), x * 2 + 1)


def test_what_no_part_defines(engine: Engine) -> None:
    part = scale_kernel(2.0)
    with pytest.raises(EPFail, match=f"calls '{part.symbol}', which neither it nor this process's libraries define"):
        engine.load([replace(calling(part), parts=())])


def test_damaged_cache_is_compiled_anew(engine: Engine, tmp_path: Path) -> None:
    kernel = scale_kernel(2.0)
    engine.load([kernel, scale_kernel(3.0)])
    for path in tmp_path.rglob("*-*"):
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:-3] + b"???")
    fresh = Engine(Target.host(), DiskCache(tmp_path))
    x = np.ones(3, np.float32)
    assert call_scale(fresh.load([kernel])[kernel.symbol], x)[0] == 3.0
    assert (fresh.compiled, fresh.loaded_from_cache) == (1, 0)


def test_key_depends_on_target_and_level(engine: Engine, tmp_path: Path) -> None:
    kernel = scale_kernel(2.0)
    engine.load([kernel])
    narrow = Engine(replace(Target.host(), features=Target.host().features + ",-sse4.2"), DiskCache(tmp_path))
    narrow.load([kernel])
    plain = Engine(Target.host(), DiskCache(tmp_path))
    plain.load([kernel], optimize=False)
    assert (narrow.compiled, plain.compiled) == (1, 1)


def test_text_without_a_hashed_symbol_is_keyed_by_its_text(engine: Engine, tmp_path: Path) -> None:
    texts = [scale_kernel(f).ir.replace(scale_kernel(f).symbol, "plain") for f in (2.0, 3.0)]
    x = np.ones(2, np.float32)
    assert call_scale(engine.load([KernelText("plain", texts[0])])["plain"], x)[0] == 3.0
    fresh = Engine(Target.host(), DiskCache(tmp_path))
    assert call_scale(fresh.load([KernelText("plain", texts[1])])["plain"], x)[0] == 4.0


def test_threads_that_load_the_same_kernels(engine: Engine) -> None:
    kernels = [scale_kernel(float(i)) for i in range(3)]
    found: list[dict[str, int]] = []
    threads = [threading.Thread(target=lambda: found.append(engine.load(kernels))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert engine.compiled == 3
    assert all(addresses == found[0] for addresses in found)


def test_libc_is_within_reach(engine: Engine) -> None:
    ir = """declare ptr @memset(ptr, i32, i64)
define void @__SYMBOL__(ptr %args, i64 %tid, i64 %nthreads) nounwind {
  %p = load ptr, ptr %args
  %r = call ptr @memset(ptr %p, i32 7, i64 16)
  ret void
}"""
    kernel = kernel_text("fill", ir)
    target = np.zeros(16, np.uint8)
    args = np.array([target.ctypes.data], np.int64)
    address = engine.load([kernel])[kernel.symbol]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)(args.ctypes.data, 0, 1)
    assert (target == 7).all()


def test_errors_name_the_kernel(engine: Engine) -> None:
    with pytest.raises(EPFail, match=r"(?s)LLVM rejects the text of kernel 'bad_[0-9a-f]{32}'.*expected type"):
        engine.load([kernel_text("bad", "define void @__SYMBOL__(")])
    with pytest.raises(EPFail, match=r"'other' defines no function of that name; it defines \['scale_"):
        engine.load([KernelText("other", scale_kernel(2.0).ir)])
    unknown = """declare void @no_such_function()
define void @__SYMBOL__(ptr %a, i64 %t, i64 %n) {
  call void @no_such_function()
  ret void
}"""
    with pytest.raises(EPFail, match=r"'call_\w+' calls 'no_such_function', which neither it nor this process"):
        engine.load([kernel_text("call", unknown)])
    with pytest.raises(InvalidArgument, match="prefix of a kernel symbol"):
        kernel_symbol("a-b", "@__SYMBOL__")
    with pytest.raises(InvalidArgument, match="does not contain __SYMBOL__"):
        kernel_symbol("ab", "define void @ab()")


def test_what_an_error_holds_is_freed_in_any_order(engine: Engine) -> None:
    kept = []
    unknown = """declare void @no_such_function()
define void @__SYMBOL__(ptr %a, i64 %t, i64 %n) { call void @no_such_function() ret void }"""
    for text in ("define void @__SYMBOL__(", unknown):
        try:
            engine.load([kernel_text("bad", text)])
        except EPFail as error:
            kept += [error, kept]  # a cycle, which only the collector frees
    assert len(kept) == 4
    del kept
    gc.collect()


def test_kernels_are_loaded_after_one_that_cannot_be_linked(engine: Engine) -> None:
    text = """@no_such_variable = external global i64
define void @__SYMBOL__(ptr %a, i64 %t, i64 %n) {
  store i64 1, ptr @no_such_variable
  ret void
}"""
    with pytest.raises(EPFail, match=r"kernels \['variable_\w+'\] could not be linked into this process"):
        engine.load([kernel_text("variable", text)])
    kernel = scale_kernel(2.0)
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(call_scale(engine.load([kernel])[kernel.symbol], x), 3 * x)


def test_symbols_follow_the_content() -> None:
    assert kernel_symbol("a", "@__SYMBOL__ 1") == kernel_symbol("a", "@__SYMBOL__ 1")
    assert kernel_symbol("a", "@__SYMBOL__ 1") != kernel_symbol("a", "@__SYMBOL__ 2")


def test_one_engine_a_target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    assert get_engine() is get_engine(Target.host())


CROSS = {
    "aarch64-unknown-linux-gnu": ("cortex-a76", "+neon", "fmul\tv"),
    "armv7-unknown-linux-gnueabihf": ("cortex-a9", "+neon", "vmul"),
    "wasm32-unknown-unknown": ("generic", "+simd128", "f32x4.mul"),
    "x86_64-unknown-linux-gnu": ("x86-64-v4", "+avx512f,+avx512vl", "zmm"),
}


@pytest.mark.parametrize("triple", CROSS)
def test_cross_compilation(triple: str) -> None:
    cpu, features, expected = CROSS[triple]
    target = Target.create(triple, cpu, features)
    vector = target.vector_bytes // 4
    ir = f"""define void @k(ptr %x) {target.function_attributes} {{
  %v = load <{vector} x float>, ptr %x
  %w = fmul fast <{vector} x float> %v, %v
  store <{vector} x float> %w, ptr %x
  ret void
}}"""
    assert expected in emit_assembly(ir, target)
    magic = b"\0asm" if "wasm" in triple else b"\x7fELF"
    assert emit_object(ir, target).startswith(magic)


@pytest.mark.parametrize(("level", "nbytes", "register"), [("sse2", 16, "xmm"), ("avx2", 32, "ymm"), ("avx512", 64, "zmm")])
def test_cpu_features_override(monkeypatch: pytest.MonkeyPatch, level: str, nbytes: int, register: str) -> None:
    if Target.host().arch != "x86_64":
        pytest.skip("the levels are those of x86-64")
    monkeypatch.setenv("INTARSIA_CPU_FEATURES", level)
    target = Target.host()
    assert target.vector_bytes == nbytes
    assert target.has("avx2") == (nbytes >= 32)
    ir = SCALE.replace("__SYMBOL__", "k").replace("ATTRIBUTES", target.function_attributes).replace("FACTOR", "2.0")
    text = emit_assembly(ir.replace("%nthreads\n", "1\n"), target)
    assert register in text
    assert all(wider not in text for wider in ("xmm", "ymm", "zmm")[("xmm", "ymm", "zmm").index(register) + 1 :])


def test_cpu_features_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = Target.create("x86_64-unknown-linux-gnu", "", "+avx2,+fma,+avx512f,+avx512vl,+avx512bf16")
    assert wide.vector_bytes == 64
    narrow = Target.create(wide.triple, "", wide.features + ",-avx512f")
    assert narrow.vector_bytes == 32
    assert not narrow.has("avx512bf16")
    assert narrow.has("fma")
    monkeypatch.setenv("INTARSIA_CPU_FEATURES", "-avx512f,+avxvnni")
    assert Target.host().vector_bytes <= 32
    assert Target.host().has("avxvnni")
    monkeypatch.setenv("INTARSIA_CPU_FEATURES", "avx3")
    with pytest.raises(InvalidArgument, match=r"INTARSIA_CPU_FEATURES begins with 'avx3'.*did you mean 'avx2'"):
        Target.host()
    monkeypatch.setenv("INTARSIA_CPU_FEATURES", "avx2,fma")
    with pytest.raises(InvalidArgument, match=r"holds 'fma'; expected '\+feature'"):
        Target.host()


def test_second_level_cache(tmp_path: Path) -> None:
    """As Linux describes caches; another machine's is not known."""
    assert second_level_nbytes(tmp_path) == L2_NBYTES == Target.create("x86_64-unknown-linux-gnu").l2_nbytes
    for index, (level, kind, size) in enumerate([("1", "Data", "32K"), ("2", "Instruction", "64K"), ("2", "Unified", "1024K")]):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    assert second_level_nbytes(tmp_path) == 1 << 20
    assert Target.host().l2_nbytes == second_level_nbytes()
    assert streamed_nbytes(caches=tmp_path) == L3_NBYTES // 16
    third = tmp_path / "other" / "index0"
    third.mkdir(parents=True)
    for name, text in (("level", "3"), ("type", "Unified"), ("size", "65536K")):
        (third / name).write_text(f"{text}\n")
    assert [streamed_nbytes(n, third.parent) >> 20 for n in (0, 1, 3, 8, 50)] == [32, 32, 10, 4, 4]


def test_unknown_triple() -> None:
    with pytest.raises(InvalidArgument, match="no code generator for the target triple 'pdp11-dec-unix'"):
        Target.create("pdp11-dec-unix").target_machine()
