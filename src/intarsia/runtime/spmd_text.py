"""The native code of the SPMD executor as LLVM IR text: thread 0 walks a step table, workers take shares of its steps.

`executor_text(target)` is a kernel in the engine's sense; calling it once writes the addresses of its functions
(`spmd_state.FUNCTIONS`) into its first argument. What they do is told in `intarsia.runtime.executor`, how a step is
shared in `intarsia.runtime.spmd_phases`.
"""

from __future__ import annotations

import re

from intarsia.codegen.llvm.compile_ir import Effort
from intarsia.codegen.llvm.jit import KernelText, kernel_text
from intarsia.codegen.llvm.target import Target
from intarsia.errors import EPFail
from intarsia.runtime import spmd_state
from intarsia.runtime.spmd_affinity import PLACES, WAKING
from intarsia.runtime.spmd_dynamic_shapes import OPEN_TEXT
from intarsia.runtime.spmd_feed import FEED_TEXT
from intarsia.runtime.spmd_leases import LEASES_TEXT
from intarsia.runtime.spmd_phases import PHASE, SHARES
from intarsia.runtime.spmd_signals import SIGNALS_TEXT, SLICES_TEXT, WHOLE_TEXT
from intarsia.runtime.spmd_system import denormals_text, pause_text, system_text
from intarsia.runtime.spmd_waiting import AWAIT, WAITING
from intarsia.runtime.spmd_walk import WALKS


def executor_text(target: Target) -> KernelText:
    """The executor for `target`; raises EPFail where the platform has no threads (WebAssembly)."""
    if target.arch.startswith("wasm"):
        raise EPFail(f"the SPMD executor needs threads, which {target.triple!r} has not: run with one thread")
    declaration, pause = pause_text(target)
    wait, wake, clock = system_text(target)
    waiting = [_ENTRY, wait, wake, clock, denormals_text(target), SIGNALS_TEXT, WAITING, PLACES, WAKING, AWAIT, SHARES, PHASE]
    calls = [FEED_TEXT, LEASES_TEXT, OPEN_TEXT]
    text = "\n".join([*waiting, WALKS, _LOCK, SLICES_TEXT, WHOLE_TEXT, _RUN, _WORKER, *calls, declaration])
    fields = {name: str(getattr(spmd_state, name)) for name in _WORDS} | {"PAUSE": pause}
    return kernel_text("spmd", re.sub(r"\$(\w+)\$", lambda field: fields[field[1]], text), Effort.CONTROL)


_WORDS = """
LINE GENERATION IDLE_SLEEPERS STOPPING PHASE_SLEEPERS GROUPS_DONE THREADS SPINS PATIENCE STARTED WAIT WAKE GETCPU
GET_AFFINITY SET_AFFINITY CLOCK CLOCK_SCALE FLUSHING YIELD DISPUTED FIRST END LOCK PARALLEL_RUNS BUSY_RUNS WAKE_CALLS FLAGS
COUNTS WORKERS_MISSING CPUS NATIVE_IDS ASLEEP SPREAD MAX_THREADS
INTERRUPTED CALL_MODE CALL_FLAG CALL_STOPPED CALL_SIGNALS CALL_WATCHED TRIPPED MAIN SELF GETSIG SETSIG GIL_ENSURE GIL_RELEASE
CHECK_SIGNALS FETCH RAISED SIGNALS SIGNAL_WORDS ENDING HANDLER MOST_SLICED
OBJECT_TYPE ARRAY_DATA ARRAY_ND ARRAY_DIMS ARRAY_DESCR ARRAY_FLAGS
FEED_INPUTS FEED_OUTPUTS FEED_POOL FEED_CALL FEED_STATUS FEED_CHECKED FEED_API FEED_ARRAY_TYPE FEED_DICT_TYPE FEED_NONE
FEED_HELD FEED_TABLE FEED_ALONE FEED_BEGUN FEED_HOLDER FEED_TOOK FEED_LEASES FEED_ROWS ROW_DESCR ROW_ND ROW_DIMS ROW_SLOT
ROW_NBYTES ROW_WORDS OPEN_BEGIN OPEN_END OPEN_STATUS OPEN_ADDRESSES OPEN_VALID OPEN_SAME OPEN_KINDS OPEN_NEXT OPEN_LAST
OPEN_SIZES OPEN_COUNT OPEN_SETTLE OPEN_SETTLING SETTLING OPEN_ROWS CALL_EXTERNALS
HOLDER_PLACE AGAIN_TAKE AGAIN_ARGUMENTS AGAIN_GIVE_BACK AGAIN_TRUE
API_GET_ITEM API_SIZE API_INCREF API_DECREF API_CLEAR API_RELEASE_GIL API_TAKE_GIL API_NEW_LIST API_SET_ITEM API_NEW_ARRAY
API_CALL API_SET_BASE API_TUPLE_ITEM API_TUPLE_SIZE API_AS_SIZE API_FROM_SIZE API_NEW_CAPSULE API_MALLOC API_FREE MOMENT BRIEF
LEASE_RETAINED LEASE_MOST LEASE_NUMBER LEASE_API LEASE_LISTS LEASE_KINDS LEAST_ROOM MOST_ROOM MOST_ROOMY MOST_AXES
MOST_IDLE IDLE_LOOK
BLOCK_RAW BLOCK_KIND BLOCK_MEMORY BLOCK_WRITTEN BLOCK_NUMBER BLOCK_OLDER BLOCK_NEWER BLOCK_WORDS
""".split()


_ENTRY = """
define void @__SYMBOL__(ptr %functions, i64 %tid, i64 %nthreads) nounwind {
  store ptr @run, ptr %functions
  %p1 = getelementptr ptr, ptr %functions, i64 1
  store ptr @worker, ptr %p1
  %p2 = getelementptr ptr, ptr %functions, i64 2
  store ptr @spin, ptr %p2
  %p3 = getelementptr ptr, ptr %functions, i64 3
  store ptr @halt, ptr %p3
  %p4 = getelementptr ptr, ptr %functions, i64 4
  store ptr @sliced, ptr %p4
  %p5 = getelementptr ptr, ptr %functions, i64 5
  store ptr @signal_words, ptr %p5
  %p6 = getelementptr ptr, ptr %functions, i64 6
  store ptr @whole, ptr %p6
  %p7 = getelementptr ptr, ptr %functions, i64 7
  store ptr @feed, ptr %p7
  %p8 = getelementptr ptr, ptr %functions, i64 8
  store ptr @again, ptr %p8
  %p9 = getelementptr ptr, ptr %functions, i64 9
  store ptr @open, ptr %p9
  %p10 = getelementptr ptr, ptr %functions, i64 10
  store ptr @empty, ptr %p10
  ret void
}"""

_LOCK = """
; 1 if the lock was free and is now held, else 0
define internal i1 @try_lock(ptr %lock) alwaysinline nounwind {
  %pair = cmpxchg ptr %lock, i64 0, i64 1 acquire monotonic
  %won = extractvalue { i64, i1 } %pair, 1
  ret i1 %won
}

define internal void @lock_slowly(ptr %state, ptr %lock) noinline cold nounwind {
entry:
  br label %claim
claim:
  %old = atomicrmw xchg ptr %lock, i64 2 acquire
  %won = icmp eq i64 %old, 0
  br i1 %won, label %out, label %asleep
asleep:
  call void @wait(ptr %state, ptr %lock, i32 2, i64 -1)
  br label %claim
out:
  ret void
}

define internal void @unlock(ptr %state, ptr %lock) alwaysinline nounwind {
  %old = atomicrmw xchg ptr %lock, i64 0 release
  %contended = icmp eq i64 %old, 2
  br i1 %contended, label %rouse, label %out
rouse:
  call void @wake(ptr %state, ptr %lock)
  br label %out
out:
  ret void
}

; halt(state): 1 if the workers were told to leave (later runs find none), 0 if a run is under way
define internal i64 @halt(ptr %state) nounwind {
  %lock = getelementptr i64, ptr %state, i64 $LOCK$
  %won = call i1 @try_lock(ptr %lock)
  br i1 %won, label %stop, label %busy
stop:
  %wp = getelementptr i64, ptr %state, i64 $STARTED$
  store i64 0, ptr %wp
  %sp = getelementptr i64, ptr %state, i64 $STOPPING$
  store atomic i64 1, ptr %sp seq_cst, align 8
  %gp = getelementptr i64, ptr %state, i64 $GENERATION$
  %g = atomicrmw add ptr %gp, i64 1 seq_cst
  call void @wake(ptr %state, ptr %gp)
  call void @unlock(ptr %state, ptr %lock)
  ret i64 1
busy:
  ret i64 0
}"""

# walk(state, call): a run; see executor.CallBlock for the words of `call`. answer(state, call): the same, with what stops it.
# run(state, call): the same in a pool's arithmetic.
_RUN = """
define internal void @patch(ptr %patches, i64 %count, ptr %externals) alwaysinline nounwind {
entry:
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i1, %body ]
  %left = icmp slt i64 %i, %count
  br i1 %left, label %body, label %out
body:
  %i3 = mul i64 %i, 3
  %row = getelementptr i64, ptr %patches, i64 %i3
  %slot = load ptr, ptr %row
  %xp = getelementptr i64, ptr %row, i64 1
  %index = load i64, ptr %xp
  %op = getelementptr i64, ptr %row, i64 2
  %offset = load i64, ptr %op
  %ep = getelementptr i64, ptr %externals, i64 %index
  %base = load i64, ptr %ep
  %address = add i64 %base, %offset
  store i64 %address, ptr %slot
  %i1 = add i64 %i, 1
  br label %test
out:
  ret void
}

; the first row at or after %i, going by %direction, that is parallel; %limit if there is none
define internal i64 @parallel_row(ptr %table, i64 %start, i64 %limit, i64 %direction) alwaysinline nounwind {
entry:
  br label %test
test:
  %i = phi i64 [ %start, %entry ], [ %i1, %next ]
  %over = icmp eq i64 %i, %limit
  br i1 %over, label %out, label %look
look:
  %i4 = shl i64 %i, 2
  %i4b = add i64 %i4, 2
  %bp = getelementptr i64, ptr %table, i64 %i4b
  %bits = load i64, ptr %bp
  %bit0 = and i64 %bits, 1
  %parallel = icmp eq i64 %bit0, 0
  br i1 %parallel, label %out, label %next
next:
  %i1 = add i64 %i, %direction
  br label %test
out:
  ret i64 %i
}

define internal i64 @walk(ptr %state, ptr %call) nounwind {
entry:
  %table = load ptr, ptr %call
  %c1 = getelementptr i64, ptr %call, i64 1
  %nsteps = load i64, ptr %c1
  %c2 = getelementptr i64, ptr %call, i64 2
  %patches = load ptr, ptr %c2
  %c3 = getelementptr i64, ptr %call, i64 3
  %npatches = load i64, ptr %c3
  %c4 = getelementptr i64, ptr %call, i64 4
  %externals = load ptr, ptr %c4
  %c6 = getelementptr i64, ptr %call, i64 6
  %times = load ptr, ptr %c6
  %c7 = getelementptr i64, ptr %call, i64 7
  %mode = load i64, ptr %c7
  %np = getelementptr i64, ptr %state, i64 $THREADS$
  %n = load i64, ptr %np
  %lock = getelementptr i64, ptr %state, i64 $LOCK$
  call void @patch(ptr %patches, i64 %npatches, ptr %externals)
  %untimed = icmp eq ptr %times, null
  br i1 %untimed, label %start, label %clock
clock:
  call void @stamp(ptr %state, ptr %times, i64 0)
  br label %start
start:
  %first = call i64 @parallel_row(ptr %table, i64 0, i64 %nsteps, i64 1)
  %serial = icmp eq i64 %first, %nsteps
  %one = icmp eq i64 %n, 1
  %bit1 = and i64 %mode, 2
  %told = icmp ne i64 %bit1, 0
  %few = or i1 %serial, %one
  %lonely = or i1 %few, %told
  br i1 %lonely, label %alone, label %claim
claim:
  %won = call i1 @try_lock(ptr %lock)
  br i1 %won, label %held, label %busy
busy:
  %waiting = and i64 %mode, 1
  %will = icmp ne i64 %waiting, 0
  br i1 %will, label %queue, label %count
queue:
  call void @lock_slowly(ptr %state, ptr %lock)
  br label %held
count:
  %bp = getelementptr i64, ptr %state, i64 $BUSY_RUNS$
  %b = atomicrmw add ptr %bp, i64 1 monotonic
  br label %alone
alone:
  %ra = call i64 @solo(ptr %state, ptr %table, i64 0, i64 %nsteps, ptr %call, ptr %times)
  ret i64 %ra
held:
  %sp = getelementptr i64, ptr %state, i64 $STARTED$
  %started = load i64, ptr %sp
  %ready = icmp ne i64 %started, 0
  br i1 %ready, label %before, label %unready
unready:
  call void @unlock(ptr %state, ptr %lock)
  ret i64 $WORKERS_MISSING$
before:
  %rb = call i64 @solo(ptr %state, ptr %table, i64 0, i64 %first, ptr %call, ptr %times)
  %asked = call i1 @flagged(ptr %call)
  %stopped = icmp ne i64 %rb, 0
  %no = or i1 %asked, %stopped
  br i1 %no, label %off, label %publish
off:
  call void @unlock(ptr %state, ptr %lock)
  ret i64 1
publish:
  %tail = sub i64 %nsteps, 1
  %final = call i64 @parallel_row(ptr %table, i64 %tail, i64 %first, i64 -1)
  %end = add i64 %final, 1
  %pp = getelementptr i64, ptr %state, i64 $PARALLEL_RUNS$
  %p0 = load i64, ptr %pp
  %p1 = add i64 %p0, 1
  store i64 %p1, ptr %pp
  %cpu = call i64 @locate(ptr %state, i64 0)
  %cut = call i64 @team(ptr %state, ptr %table, i64 %first, i64 %end, i64 %n, ptr %call, ptr %times)
  call void @unlock(ptr %state, ptr %lock)
  %ended = icmp ne i64 %cut, 0
  br i1 %ended, label %short, label %behind
short:
  ret i64 1
behind:
  %rc = call i64 @solo(ptr %state, ptr %table, i64 %end, i64 %nsteps, ptr %call, ptr %times)
  ret i64 %rc
}

define internal i64 @run(ptr %state, ptr %call) nounwind {
  %fp = getelementptr i64, ptr %state, i64 $FLUSHING$
  %f = load i64, ptr %fp
  %as_is = icmp eq i64 %f, 0
  br i1 %as_is, label %plain, label %flushing, !prof !0
plain:
  %r = call i64 @answer(ptr %state, ptr %call)
  ret i64 %r
flushing:
  %before = call i64 @flush_denormals()
  %rf = call i64 @answer(ptr %state, ptr %call)
  call void @restore_denormals(i64 %before)
  ret i64 %rf
}

define internal i64 @answer(ptr %state, ptr %call) alwaysinline nounwind {
entry:
  %sp = getelementptr i64, ptr %call, i64 $CALL_STOPPED$
  store atomic i64 0, ptr %sp monotonic, align 8
  %np = getelementptr i64, ptr %call, i64 $CALL_SIGNALS$
  store i64 0, ptr %np
  %fp = getelementptr i64, ptr %call, i64 $CALL_FLAG$
  %flag = load ptr, ptr %fp
  %none = icmp eq ptr %flag, null
  %watched = select i1 %none, ptr @calm, ptr %flag
  %wp = getelementptr i64, ptr %call, i64 $CALL_WATCHED$
  store ptr %watched, ptr %wp
  %mp = getelementptr i64, ptr %call, i64 $CALL_MODE$
  %mode = load i64, ptr %mp
  %bit2 = and i64 %mode, 4
  %short = icmp eq i64 %bit2, 0
  br i1 %short, label %plain, label %long
plain:
  %r = call i64 @walk(ptr %state, ptr %call)
  %cut = load atomic i64, ptr %sp monotonic, align 8
  %status = or i64 %r, %cut
  ret i64 %status
long:
  %rl = call i64 @walk_with_signals(ptr %state, ptr %call)
  ret i64 %rl
}"""

# worker(state, tid, generation): returns when the pool is halted. `generation` is what GENERATION was before the start.
_WORKER = """
define internal i64 @worker(ptr %state, i64 %tid, i64 %generation) nounwind {
entry:
  %gp = getelementptr i64, ptr %state, i64 $GENERATION$
  %ip = getelementptr i64, ptr %state, i64 $IDLE_SLEEPERS$
  %hp = getelementptr i64, ptr %state, i64 $STOPPING$
  %np = getelementptr i64, ptr %state, i64 $THREADS$
  %fp = getelementptr i64, ptr %state, i64 $FIRST$
  %ep = getelementptr i64, ptr %state, i64 $END$
  %up = getelementptr i64, ptr %state, i64 $DISPUTED$
  %since = alloca i64
  store i64 0, ptr %since
  %n = load i64, ptr %np
  %dp = getelementptr i64, ptr %state, i64 $FLUSHING$
  %d = load i64, ptr %dp
  %as_is = icmp eq i64 %d, 0
  br i1 %as_is, label %idle, label %flushing
flushing:
  %before = call i64 @flush_denormals()
  br label %idle
idle:
  %seen = phi i64 [ %generation, %entry ], [ %generation, %flushing ], [ %g, %work ], [ %g, %disputed ]
  %goal = add i64 %seen, 1
  call void @await(ptr %state, i64 %tid, ptr %gp, i64 %goal, ptr %ip)
  %g = load atomic i64, ptr %gp acquire, align 8
  %halt = load atomic i64, ptr %hp acquire, align 8
  %halted = icmp ne i64 %halt, 0
  br i1 %halted, label %out, label %work
work:
  %first = load atomic ptr, ptr %fp monotonic, align 8
  %end = load atomic ptr, ptr %ep monotonic, align 8
  call void @shares(ptr %state, i64 %g, i64 %tid, i64 %n, ptr %first, ptr %end)
  %until = load atomic i64, ptr %up monotonic, align 8
  %quiet = icmp eq i64 %until, 0
  br i1 %quiet, label %idle, label %disputed, !prof !0
disputed:
  call void @make_way(ptr %state, ptr %since)
  br label %idle
out:
  ret i64 0
}"""
