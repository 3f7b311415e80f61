"""What this machine can do at most: multiply-adds on numbers in registers, and bytes read from memory.

Steps in float16 or bfloat16 (`session.arithmetic`) are compared with what their instructions can do, measured where requested.

Measured once for a number of threads and cached; the highest value ever seen stays, since noise only lowers it.
"""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field, fields, replace

import numpy as np

from intarsia.cache.disk_cache import content_key, get_cache
from intarsia.cache.fingerprint import surroundings
from intarsia.codegen.builder.amx import BFLOAT16, TileUnit, configuration
from intarsia.codegen.builder.kernel_body import Module
from intarsia.codegen.llvm.jit import KernelText, get_engine, kernel_text
from intarsia.codegen.llvm.target import Target
from intarsia.lazy_dataclass import dataclass
from intarsia.runtime.executor import StepTableBuilder, get_pool

_ROUNDS = 50_000  # a tenth of a millisecond: other processes let that pass now and then
_READ_NBYTES = 256 << 20  # more than a last-level cache holds
_PIECE_NBYTES = 8 << 20
_SECONDS = 0.3
_LINE = 64


@dataclass(frozen=True)
class Roofline:
    """Peaks of `threads` threads together: float32 operations (a multiply-add is two) and bytes read, both in 1e9/s.

    `less`: operations in less than float32, by the name that steps have for them (`Step.arithmetic`).
    """

    gflop_per_s: float
    gbyte_per_s: float
    threads: int
    less: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        less = "".join(f", {peak:,.0f} ({name})" for name, peak in self.less.items())
        return f"{self.gflop_per_s:,.0f} GFLOP/s (float32){less}, {self.gbyte_per_s:,.1f} GB/s, {self.threads} threads"

    def seconds(self, flop: float, nbytes: float, step: str = "") -> float:
        """The least time for so many operations and bytes; `step`: the title of the step that does them."""
        kind = step.rpartition("(")[2].removesuffix(")")
        return max(flop / self.less.get(kind, self.gflop_per_s), nbytes / self.gbyte_per_s) / 1e9


_FIELDS = tuple(field.name for field in fields(Roofline))  # of what is cached: versions with others do not read it


def roofline(threads: int = 0, *, again: bool = False, less: Iterable[str] = ()) -> Roofline:
    """The peaks of `threads` threads (0: as many as there are cores), measured (under a second) where that was not done before.

    Args:
        again: measure in any case.
        less: arithmetic to measure, too, by the name that steps have for it; what cannot be measured is left out.

    Raises:
        EPFail: LLVM is missing.
    """
    count = get_pool(threads).num_threads
    cache, key = get_cache(), f"roofline-{content_key(*(surroundings()[n] for n in _DEPENDS), *_FIELDS, str(count))}"
    cached = cache.get(key)
    before = Roofline(**json.loads(cached)) if cached is not None else None
    wanted = [name for name in less if name in _units(Target.host())]
    if before is not None and not again and before.less.keys() >= set(wanted):
        return replace(before, less={name: before.less[name] for name in wanted})
    known = before is not None and not again
    found = before if before is not None and known else Roofline(_multiply_adds(count), _bytes_read(count), count)
    measured = {name: _multiply_adds(count, name) for name in wanted if not known or name not in found.less}
    found = replace(found, less={**found.less, **measured})
    if count > 1:  # where threads share a core, or others use it, one alone may do more
        found = _higher(found, roofline(1, again=again, less=wanted))
    if before is not None:
        found = _higher(found, before)
    cache.put(key, json.dumps(asdict(found)).encode())
    return replace(found, less={name: found.less[name] for name in wanted})


def _higher(a: Roofline, b: Roofline) -> Roofline:
    """The higher of two measurements of each peak, for the threads of the first."""
    less = {name: max(of.get(name, 0.0) for of in (a.less, b.less)) for name in (*a.less, *b.less)}
    return Roofline(max(a.gflop_per_s, b.gflop_per_s), max(a.gbyte_per_s, b.gbyte_per_s), a.threads, less)


_DEPENDS = ("the CPU", "INTARSIA_CPU_FEATURES")


@dataclass(frozen=True)
class _Unit:
    """An instruction on registers: `call` of sums %s{k} by factors %x gives %t{k}; `operations` of one."""

    sums: str
    factors: str
    call: str
    operations: int


def _units(target: Target) -> dict[str, _Unit | None]:
    """Instructions by the names that steps have for their arithmetic, "" for float32; None: tiles (`_tiles_text`)."""
    lanes = target.vector_bytes // 4
    floats = f"<{lanes} x float>"
    fma = f"%t{{k}} = call {floats} @llvm.fma.v{lanes}f32({floats} %x, {floats} %x, {floats} %s{{k}})"
    found: dict[str, _Unit | None] = {"": _Unit(floats, floats, fma, 2 * lanes)}
    if target.vector_bytes == 64 and target.has("avx512fp16"):
        halves = "<32 x half>"
        fma = f"%t{{k}} = call {halves} @llvm.fma.v32f16({halves} %x, {halves} %x, {halves} %s{{k}})"
        found["float16"] = _Unit(halves, halves, fma, 64)
    if target.has_pairs:
        pairs = "<32 x bfloat>"
        dot = f"%t{{k}} = call {floats} @llvm.x86.avx512bf16.dpbf16ps.512({floats} %s{{k}}, {pairs} %x, {pairs} %x)"
        found["bfloat16 by AVX512-BF16"] = _Unit(floats, pairs, dot, 64)
    if target.has_tiles:
        found["bfloat16 by AMX"] = None
    return found


def _multiply_adds(threads: int, name: str = "") -> float:
    target = Target.host()
    unit = _units(target)[name]
    state = np.full((threads + 1) * _LINE // 4 + max(1024, target.vector_bytes // 4), 1e-3, np.float32)
    text = _tiles_text(target) if unit is None else _unit_text(target, unit)
    seconds = _best(text, [(_ROUNDS, state.ctypes.data)], threads, target)
    each = 4 * 2 * 16 * 16 * 32 if unit is None else unit.operations * _chains(target)
    return 1.0 * each * _ROUNDS * threads / seconds / 1e9


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


def _tiles_text(target: Target) -> KernelText:
    """As `_unit_text`, by four tiles of sums of products of bfloat16, and 2 KiB of factors."""
    module = Module(target)
    body = module.kernel()
    tiles = TileUnit(body)
    rounds, state = body.load_i64(body.args[0], 0), body.load_pointer(body.args[0], 1)
    tiles.configure(configuration())
    for tile in range(4, 8):
        tiles.load(tile, state, 64)
    for tile in range(4):
        tiles.zero(tile)
    with body.loop(0, rounds):
        for tile in range(4):
            tiles.multiply(BFLOAT16, tile, 4 + tile // 2, 6 + tile % 2)
    tiles.release()
    body.b.ret_void()
    return module.text("roofline_tiles")


def _unit_text(target: Target, unit: _Unit) -> KernelText:
    """Arguments: rounds, state (float[...]: the factors, then a line for each thread)."""
    sums = range(_chains(target))
    of = unit.sums
    phis = "\n".join(f"  %s{k} = phi {of} [ zeroinitializer, %entry ], [ %t{k}, %loop ]" for k in sums)
    steps = "\n".join(f"  {unit.call.format(k=k)}" for k in sums)
    adds = "\n".join(f"  %a{k} = fadd {of} {'%t0' if k == 1 else f'%a{k - 1}'}, %t{k}" for k in sums[1:])
    called = unit.call[unit.call.index("@") : unit.call.index("(")]
    factor = f"{unit.factors}, {unit.factors}"
    parameters = f"{of}, {factor}" if of != unit.factors else f"{factor}, {of}"
    return kernel_text("roofline_fma", f"""
declare {of} {called}({parameters})
define void @__SYMBOL__(ptr %args, i64 %tid, i64 %nthreads) {target.function_attributes} {{
entry:
  %rounds = load i64, ptr %args
  %place = getelementptr i64, ptr %args, i64 1
  %state = load ptr, ptr %place
  %x = load {unit.factors}, ptr %state, align 4
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
  store {of} %a{len(sums) - 1}, ptr %own, align 4
  ret void
}}
""")  # fmt: skip


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
