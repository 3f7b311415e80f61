"""What the executor's native code needs of CPU and operating system, as LLVM IR text: pause, wait, wake and clock.

System functions are called by address, from words of the pool's state that `intarsia.runtime.executor` fills in. The
names between dollar signs are replaced by word numbers in `intarsia.runtime.spmd_text`.
"""

from __future__ import annotations

from intarsia.codegen.llvm.target import Target

# Linux system call numbers of futex, by architecture.
_FUTEX = {"x86_64": 202, "aarch64": 98, "arm": 240, "riscv64": 98, "i686": 240}

_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "i686": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    # hint 1 is yield; an intrinsic, because assembler text needs a parser that llvmlite has for the host only
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
    "arm": ("declare void @llvm.arm.hint(i32)", "call void @llvm.arm.hint(i32 1)"),
}


def pause_text(target: Target) -> tuple[str, str]:
    """A declaration and an instruction that tells the core that its thread is waiting."""
    return _PAUSE.get(target.arch, ("", 'call void asm sideeffect "", "~{memory}"()'))


def denormals_text(target: Target) -> str:
    """Definitions of @flush_denormals, after which this thread takes denormal numbers for zero, and of @restore_denormals,
    which takes what the former gave. On other CPUs than x86 and ARM64 they do nothing."""
    if target.arch in ("x86_64", "i686"):
        return _MXCSR
    return _FPCR if target.arch == "aarch64" else _NO_MODE


def system_text(target: Target) -> tuple[str, str, str]:
    """Definitions of @wait, @wake and @stamp: wait for a word to change, wake who waits, write the clock to times[i]."""
    triple = target.triple
    if "linux" in triple or "android" in triple:
        futex = _FUTEX.get(target.arch)
        wait, wake = (_SLEEP_WAIT, _NO_WAKE) if futex is None else (_FUTEX_WAIT, _FUTEX_WAKE)
        return wait.replace("$FUTEX$", str(futex)), wake.replace("$FUTEX$", str(futex)), _GETTIME.replace("$CLOCK_ID$", "1")
    if "darwin" in triple or "macos" in triple or "ios" in triple:
        return _ULOCK_WAIT, _ULOCK_WAKE, _GETTIME.replace("$CLOCK_ID$", "8")
    if "windows" in triple:
        return _ADDRESS_WAIT, _ADDRESS_WAKE, _PERFORMANCE_COUNTER
    return _SLEEP_WAIT, _NO_WAKE, _GETTIME.replace("$CLOCK_ID$", "1")


# wait(state, address, value, timeout in microseconds, -1 for none): returns when woken, timed out, interrupted, or
# at once if the 32 bits at the address are not `value`.
_FUTEX_WAIT = """
define internal void @wait(ptr %state, ptr %address, i32 %value, i64 %timeout) noinline nounwind {
  %time = alloca { i64, i64 }
  %forever = icmp slt i64 %timeout, 0
  %nanoseconds = mul i64 %timeout, 1000
  store i64 0, ptr %time
  %np = getelementptr i64, ptr %time, i64 1
  store i64 %nanoseconds, ptr %np
  %tp = select i1 %forever, ptr null, ptr %time
  %fp = getelementptr i64, ptr %state, i64 $WAIT$
  %f = load ptr, ptr %fp
  %r = call i64 (i64, ...) %f(i64 $FUTEX$, ptr %address, i64 128, i32 %value, ptr %tp, ptr null, i64 0)
  ret void
}"""

_FUTEX_WAKE = """
define internal void @wake(ptr %state, ptr %address) noinline nounwind {
  %fp = getelementptr i64, ptr %state, i64 $WAKE$
  %f = load ptr, ptr %fp
  %r = call i64 (i64, ...) %f(i64 $FUTEX$, ptr %address, i64 129, i64 2147483647, ptr null, ptr null, i64 0)
  ret void
}"""

# __ulock_wait(UL_COMPARE_AND_WAIT | ULF_NO_ERRNO, address, value, microseconds or 0), as libc++ waits on macOS.
_ULOCK_WAIT = """
define internal void @wait(ptr %state, ptr %address, i32 %value, i64 %timeout) noinline nounwind {
  %forever = icmp slt i64 %timeout, 0
  %t = trunc i64 %timeout to i32
  %microseconds = select i1 %forever, i32 0, i32 %t
  %v = zext i32 %value to i64
  %fp = getelementptr i64, ptr %state, i64 $WAIT$
  %f = load ptr, ptr %fp
  %r = call i32 %f(i32 16777217, ptr %address, i64 %v, i32 %microseconds)
  ret void
}"""

_ULOCK_WAKE = """
define internal void @wake(ptr %state, ptr %address) noinline nounwind {
  %fp = getelementptr i64, ptr %state, i64 $WAKE$
  %f = load ptr, ptr %fp
  %r = call i32 %f(i32 16777473, ptr %address, i64 0)
  ret void
}"""

# WaitOnAddress(address, &value, 4, milliseconds or INFINITE), WakeByAddressAll(address).
_ADDRESS_WAIT = """
define internal void @wait(ptr %state, ptr %address, i32 %value, i64 %timeout) noinline nounwind {
  %expected = alloca i32
  store i32 %value, ptr %expected
  %forever = icmp slt i64 %timeout, 0
  %whole = udiv i64 %timeout, 1000
  %some = add i64 %whole, 1
  %t = trunc i64 %some to i32
  %milliseconds = select i1 %forever, i32 -1, i32 %t
  %fp = getelementptr i64, ptr %state, i64 $WAIT$
  %f = load ptr, ptr %fp
  %r = call i32 %f(ptr %address, ptr %expected, i64 4, i32 %milliseconds)
  ret void
}"""

_ADDRESS_WAKE = """
define internal void @wake(ptr %state, ptr %address) noinline nounwind {
  %fp = getelementptr i64, ptr %state, i64 $WAKE$
  %f = load ptr, ptr %fp
  call void %f(ptr %address)
  ret void
}"""

# Where the system has no wait by address: poll, with usleep(50) in between.
_SLEEP_WAIT = """
define internal void @wait(ptr %state, ptr %address, i32 %value, i64 %timeout) noinline nounwind {
  %fp = getelementptr i64, ptr %state, i64 $WAIT$
  %f = load ptr, ptr %fp
  %r = call i32 %f(i32 50)
  ret void
}"""

_NO_WAKE = """
define internal void @wake(ptr %state, ptr %address) nounwind {
  ret void
}"""

# Nanoseconds on the clock of Python's time.perf_counter_ns.
_GETTIME = """
define internal void @stamp(ptr %state, ptr %times, i64 %i) noinline nounwind {
  %time = alloca { i64, i64 }
  %fp = getelementptr i64, ptr %state, i64 $CLOCK$
  %f = load ptr, ptr %fp
  %r = call i32 %f(i32 $CLOCK_ID$, ptr %time)
  %s = load i64, ptr %time
  %np = getelementptr i64, ptr %time, i64 1
  %n = load i64, ptr %np
  %sn = mul i64 %s, 1000000000
  %now = add i64 %sn, %n
  %p = getelementptr i64, ptr %times, i64 %i
  store i64 %now, ptr %p
  ret void
}"""

_PERFORMANCE_COUNTER = """
define internal void @stamp(ptr %state, ptr %times, i64 %i) noinline nounwind {
  %time = alloca i64
  %fp = getelementptr i64, ptr %state, i64 $CLOCK$
  %f = load ptr, ptr %fp
  %r = call i32 %f(ptr %time)
  %count = load i64, ptr %time
  %sp = getelementptr i64, ptr %state, i64 $CLOCK_SCALE$
  %scale = load i64, ptr %sp
  %now = mul i64 %count, %scale
  %p = getelementptr i64, ptr %times, i64 %i
  store i64 %now, ptr %p
  ret void
}"""

# Bits 6 and 15: denormals are zeros, flush to zero.
_MXCSR = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define internal i64 @flush_denormals() noinline nounwind {
  %word = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %word)
  %before = load i32, ptr %word
  %flushing = or i32 %before, 32832
  store i32 %flushing, ptr %word
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  %wide = zext i32 %before to i64
  ret i64 %wide
}
define internal void @restore_denormals(i64 %before) noinline nounwind {
  %word = alloca i32
  %mode = trunc i64 %before to i32
  store i32 %mode, ptr %word
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  ret void
}"""

# Bit 24, and bit 19 for float16: flush to zero.
_FPCR = """
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
define internal i64 @flush_denormals() noinline nounwind {
  %before = call i64 @llvm.aarch64.get.fpcr()
  %flushing = or i64 %before, 17301504
  call void @llvm.aarch64.set.fpcr(i64 %flushing)
  ret i64 %before
}
define internal void @restore_denormals(i64 %before) noinline nounwind {
  call void @llvm.aarch64.set.fpcr(i64 %before)
  ret void
}"""

_NO_MODE = """
define internal i64 @flush_denormals() nounwind {
  ret i64 0
}
define internal void @restore_denormals(i64 %before) nounwind {
  ret void
}"""
