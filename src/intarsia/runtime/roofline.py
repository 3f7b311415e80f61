"""What this machine can do at most: multiply-adds on numbers in registers, and bytes read from memory.

Measured once for a number of threads and kept in the cache; the highest value ever seen is kept, since noise only lowers it.
"""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from intarsia.codegen.cache import content_key, get_cache
from intarsia.codegen.engine import KernelText, get_engine, kernel_text
from intarsia.codegen.fingerprint import surroundings
from intarsia.codegen.target import Target
from intarsia.runtime.executor import StepTableBuilder, get_pool

_ROUNDS = 50_000  # a tenth of a millisecond: other processes let that pass now and then
_READ_NBYTES = 256 << 20  # more than a last-level cache holds
_PIECE_NBYTES = 8 << 20
_SECONDS = 0.3
_LINE = 64


@dataclass(frozen=True)
class Roofline:
    """Peaks of `threads` threads together: float32 operations (a multiply-add is two) and bytes read, both in 1e9/s."""

    gflop_per_s: float
    gbyte_per_s: float
    threads: int

    def __str__(self) -> str:
        return f"{self.gflop_per_s:,.0f} GFLOP/s (float32), {self.gbyte_per_s:,.1f} GB/s, {self.threads} threads"

    def seconds(self, flop: float, nbytes: float) -> float:
        """The least time for so many operations and bytes."""
        return max(flop / self.gflop_per_s, nbytes / self.gbyte_per_s) / 1e9


def roofline(threads: int = 0, *, again: bool = False) -> Roofline:
    """The peaks of `threads` threads (0: as many as there are cores), measured (under a second) where that was not done before.

    Args:
        again: measure in any case.

    Raises:
        EPFail: LLVM is missing.
    """
    count = get_pool(threads).num_threads
    cache, key = get_cache(), f"roofline-{content_key(*(surroundings()[n] for n in _DEPENDS), str(count))}"
    kept = cache.get(key)
    before = Roofline(**json.loads(kept)) if kept is not None else None
    if before is not None and not again:
        return before
    found = Roofline(_multiply_adds(count), _bytes_read(count), count)
    if count > 1:  # where threads share a core, or others use it, one alone may do more
        alone = roofline(1, again=again)
        found = Roofline(max(found.gflop_per_s, alone.gflop_per_s), max(found.gbyte_per_s, alone.gbyte_per_s), count)
    if before is not None:
        faster = max(found.gflop_per_s, before.gflop_per_s), max(found.gbyte_per_s, before.gbyte_per_s)
        found = Roofline(*faster, count)
    cache.put(key, json.dumps(asdict(found)).encode())
    return found


_DEPENDS = ("the CPU", "INTARSIA_CPU_FEATURES")


def _multiply_adds(threads: int) -> float:
    target = Target.host()
    lanes, chains = target.vector_bytes // 4, _chains(target)
    state = np.full((threads + 1) * _LINE // 4 + lanes, 1e-3, np.float32)
    seconds = _best(_fma_text(target), [(_ROUNDS, state.ctypes.data)], threads, target)
    return 2.0 * lanes * chains * _ROUNDS * threads / seconds / 1e9


def _bytes_read(threads: int) -> float:
    target = Target.host()
    data = np.zeros(_READ_NBYTES // 8, np.int64)
    data[::512] = 1  # every page is there, and its own
    state = np.zeros((threads + 1) * _LINE // 8, np.int64)
    start = data.ctypes.data
    pieces = [(start + at, _PIECE_NBYTES, state.ctypes.data) for at in range(0, data.nbytes, _PIECE_NBYTES)]
    return _PIECE_NBYTES / _best(_read_text(target), pieces, threads, target) / 1e9


def _best(text: KernelText, arguments: Sequence[tuple[int, ...]], threads: int, target: Target) -> float:
    """Seconds of the fastest run of a kernel on all threads, with each of the arguments in turn."""
    address = get_engine(target).load([text])[text.symbol]
    words = array("q", arguments[0])
    builder = StepTableBuilder()
    builder.step(address, words.buffer_info()[0])
    table = builder.build().rows
    rows, pool = int(table.ctypes.data), get_pool(threads)
    pool.run(rows, 1, wait_if_busy=True)
    best, end = float("inf"), time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        for given in arguments:
            words[:] = array("q", given)
            start = time.perf_counter()
            pool.run(rows, 1, wait_if_busy=True)
            best = min(best, time.perf_counter() - start)
    return best


def _chains(target: Target) -> int:
    """Sums that go on at the same time, so that their latency is hidden; 16 vector registers hold them and two factors."""
    return 12 if target.arch == "x86_64" else 24


def _fma_text(target: Target) -> KernelText:
    """Arguments: rounds, state (float[...]: the factors, then a line for each thread)."""
    lanes, chains = target.vector_bytes // 4, _chains(target)
    vector = f"<{lanes} x float>"
    sums = range(chains)
    phis = "\n".join(f"  %s{k} = phi {vector} [ zeroinitializer, %entry ], [ %t{k}, %loop ]" for k in sums)
    steps = "\n".join(f"  %t{k} = call {vector} @llvm.fma({vector} %x, {vector} %x, {vector} %s{k})" for k in sums)
    adds = "\n".join(f"  %a{k} = fadd {vector} {'%t0' if k == 1 else f'%a{k - 1}'}, %t{k}" for k in range(1, chains))
    return kernel_text("roofline_fma", f"""
declare {vector} @llvm.fma({vector}, {vector}, {vector})
define void @__SYMBOL__(ptr %args, i64 %tid, i64 %nthreads) {target.function_attributes} {{
entry:
  %rounds = load i64, ptr %args
  %place = getelementptr i64, ptr %args, i64 1
  %state = load ptr, ptr %place
  %x = load {vector}, ptr %state, align 4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
{phis}
{steps}
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %rounds
  br i1 %more, label %loop, label %out
out:
{adds}
  %line = add i64 %tid, 1
  %at = mul i64 %line, {_LINE}
  %own = getelementptr i8, ptr %state, i64 %at
  store {vector} %a{chains - 1}, ptr %own, align 4
  ret void
}}
""".replace("@llvm.fma", f"@llvm.fma.v{lanes}f32"))  # fmt: skip


def _read_text(target: Target) -> KernelText:
    """Arguments: data, its bytes, state (a line for each thread after the first)."""
    lanes, unroll = target.vector_bytes // 8, 8
    vector, step = f"<{lanes} x i64>", target.vector_bytes * 8
    parts = range(unroll)
    phis = "\n".join(f"  %s{k} = phi {vector} [ zeroinitializer, %entry ], [ %t{k}, %loop ]" for k in parts)
    loads = "\n".join(
        f"  %o{k} = add i64 %i, {k * target.vector_bytes}\n  %p{k} = getelementptr i8, ptr %data, i64 %o{k}\n"
        f"  %v{k} = load {vector}, ptr %p{k}, align 8\n  %t{k} = xor {vector} %s{k}, %v{k}"
        for k in parts
    )
    joins = "\n".join(f"  %a{k} = xor {vector} {'%t0' if k == 1 else f'%a{k - 1}'}, %t{k}" for k in range(1, unroll))
    return kernel_text("roofline_read", f"""
define void @__SYMBOL__(ptr %args, i64 %tid, i64 %nthreads) {target.function_attributes} {{
entry:
  %data = load ptr, ptr %args
  %np = getelementptr i64, ptr %args, i64 1
  %n = load i64, ptr %np
  %sp = getelementptr i64, ptr %args, i64 2
  %state = load ptr, ptr %sp
  %each = udiv i64 %n, %nthreads
  %first0 = mul i64 %each, %tid
  %first = and i64 %first0, -{step}
  %last0 = add i64 %first, %each
  %last = and i64 %last0, -{step}
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %i1, %loop ]
{phis}
{loads}
  %i1 = add i64 %i, {step}
  %more = icmp ult i64 %i1, %last
  br i1 %more, label %loop, label %out
out:
{joins}
  %line = add i64 %tid, 0
  %at = mul i64 %line, {_LINE}
  %own = getelementptr i8, ptr %state, i64 %at
  store {vector} %a{unroll - 1}, ptr %own, align 8
  ret void
}}
""")  # fmt: skip
