"""The native code of the SPMD executor as LLVM IR text: thread 0 walks a step table, workers take shares of its steps.

`executor_text(target)` is a kernel in the engine's sense; calling it once writes the addresses of its functions
(`spmd_state.FUNCTIONS`) into its first argument. What they do is told in `intarsia.runtime.executor`, how a step is
shared in `intarsia.runtime.spmd_phases`.
"""

from __future__ import annotations

from intarsia.codegen.engine import KernelText, kernel_text
from intarsia.codegen.target import Target
from intarsia.errors import EPFail
from intarsia.runtime import spmd_state
from intarsia.runtime.spmd_phases import PHASE, SHARES, TEAM
from intarsia.runtime.spmd_signals import SIGNALS_TEXT, SLICES_TEXT
from intarsia.runtime.spmd_system import denormals_text, pause_text, system_text


def executor_text(target: Target) -> KernelText:
    """The executor for `target`; raises EPFail where the platform has no threads (WebAssembly)."""
    if target.arch.startswith("wasm"):
        raise EPFail(f"the SPMD executor needs threads, which {target.triple!r} has not: run with one thread")
    declaration, pause = pause_text(target)
    wait, wake, clock = system_text(target)
    waiting = [_ENTRY, wait, wake, clock, denormals_text(target), SIGNALS_TEXT, _WAITING, _PLACES, _AWAIT, SHARES, PHASE]
    text = "\n".join([*waiting, _JUMP, _SOLO, TEAM, _LOCK, SLICES_TEXT, _RUN, _WORKER, declaration])
    for name in _WORDS:
        text = text.replace(f"${name}$", str(getattr(spmd_state, name)))
    return kernel_text("spmd", text.replace("$PAUSE$", pause))


_WORDS = """
LINE GENERATION IDLE_SLEEPERS STOPPING PHASE_SLEEPERS GROUPS_DONE THREADS SPINS PATIENCE STARTED WAIT WAKE GETCPU
GET_AFFINITY SET_AFFINITY CLOCK CLOCK_SCALE FLUSHING YIELD DISPUTED FIRST END LOCK PARALLEL_RUNS BUSY_RUNS WAKE_CALLS FLAGS
COUNTS WORKERS_MISSING CPUS MAX_THREADS
INTERRUPTED CALL_MODE CALL_FLAG CALL_STOPPED CALL_SIGNALS CALL_WATCHED TRIPPED MAIN SELF GETSIG SETSIG GIL_ENSURE GIL_RELEASE
CHECK_SIGNALS FETCH RAISED SIGNALS SIGNAL_WORDS HANDLER MOST_SLICED
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
  ret void
}"""

# spin(state, count): `count` rounds as the waiting loops have them, for calibration.
_WAITING = """
define internal i64 @spin(ptr %state, i64 %count) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %v = load atomic i64, ptr %state monotonic, align 8
  $PAUSE$
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %loop, label %out
out:
  ret i64 %v
}

; true if the run was asked to stop: the word it watches is not 0, or a signal that came in it says so
define internal i1 @flagged(ptr %call) alwaysinline nounwind {
entry:
  %wp = getelementptr i64, ptr %call, i64 $CALL_WATCHED$
  %watched = load ptr, ptr %wp
  %v = load atomic i64, ptr %watched monotonic, align 8
  %t = load atomic i64, ptr @signal_words monotonic, align 8
  %any = or i64 %v, %t
  %quiet = icmp eq i64 %any, 0
  br i1 %quiet, label %out, label %look, !prof !0
look:
  %asked = call i1 @asked(ptr %call)
  br label %out
out:
  %r = phi i1 [ false, %entry ], [ %asked, %look ]
  ret i1 %r
}"""

_PLACES = """
; write down the core that thread %tid is on; returns 1 + its number, 0 where the system does not say
define internal i64 @locate(ptr %state, i64 %tid) noinline nounwind {
entry:
  %fp = getelementptr i64, ptr %state, i64 $GETCPU$
  %f = load ptr, ptr %fp
  %mute = icmp eq ptr %f, null
  br i1 %mute, label %out, label %ask
ask:
  %cpu32 = call i32 %f()
  %cpu = sext i32 %cpu32 to i64
  %here = add i64 %cpu, 1
  %cpus = getelementptr i64, ptr %state, i64 $CPUS$
  %mine = getelementptr i64, ptr %cpus, i64 %tid
  %before = load atomic i64, ptr %mine monotonic, align 8
  %same = icmp eq i64 %before, %here
  br i1 %same, label %out, label %write
write:
  store atomic i64 %here, ptr %mine monotonic, align 8
  br label %out
out:
  %r = phi i64 [ 0, %entry ], [ %here, %ask ], [ %here, %write ]
  ret i64 %r
}

; true if another thread of the pool was last seen on this core: spinning would keep it from running
define internal i1 @crowded(ptr %state, i64 %tid) noinline nounwind {
entry:
  %here = call i64 @locate(ptr %state, i64 %tid)
  %np = getelementptr i64, ptr %state, i64 $THREADS$
  %n = load i64, ptr %np
  %cpus = getelementptr i64, ptr %state, i64 $CPUS$
  %unknown = icmp eq i64 %here, 0
  br i1 %unknown, label %no, label %look
look:
  %t = phi i64 [ 0, %entry ], [ %t1, %next ]
  %p = getelementptr i64, ptr %cpus, i64 %t
  %v = load atomic i64, ptr %p monotonic, align 8
  %same = icmp eq i64 %v, %here
  %other = icmp ne i64 %t, %tid
  %found = and i1 %same, %other
  br i1 %found, label %yes, label %next
next:
  %t1 = add i64 %t, 1
  %more = icmp slt i64 %t1, %n
  br i1 %more, label %look, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; Move this thread, a worker, to a core on which no thread of the pool was seen, else to any other than %here, if the system
; lets it; its affinity is as before afterwards. Schedulers that wake a thread beside its waker, and leave it there, need it.
define internal void @part(ptr %state, i64 %tid) noinline nounwind {
entry:
  %all = alloca [16 x i64]
  %some = alloca [16 x i64]
  %getp = getelementptr i64, ptr %state, i64 $GET_AFFINITY$
  %get = load ptr, ptr %getp
  %setp = getelementptr i64, ptr %state, i64 $SET_AFFINITY$
  %set = load ptr, ptr %setp
  %mute = icmp eq ptr %get, null
  br i1 %mute, label %out, label %ask
ask:
  store [16 x i64] zeroinitializer, ptr %all
  %failed = call i32 %get(i32 0, i64 128, ptr %all)
  %no = icmp ne i32 %failed, 0
  br i1 %no, label %out, label %begin
begin:
  %here = call i64 @locate(ptr %state, i64 %tid)
  %np = getelementptr i64, ptr %state, i64 $THREADS$
  %n = load i64, ptr %np
  %cpus = getelementptr i64, ptr %state, i64 $CPUS$
  br label %copy
copy:
  %n0 = phi i64 [ %n, %begin ], [ 1, %again ]
  %whole = load [16 x i64], ptr %all
  store [16 x i64] %whole, ptr %some
  br label %strike
strike:
  %t = phi i64 [ 0, %copy ], [ %t1, %struck ]
  %self = icmp eq i64 %t, %tid
  %p = getelementptr i64, ptr %cpus, i64 %t
  %seen = load atomic i64, ptr %p monotonic, align 8
  %known = select i1 %self, i64 %here, i64 %seen
  %valid0 = icmp ne i64 %known, 0
  %valid1 = icmp ule i64 %known, 1024
  %valid = and i1 %valid0, %valid1
  br i1 %valid, label %clear, label %struck
clear:
  %core = sub i64 %known, 1
  %word = lshr i64 %core, 6
  %bit = and i64 %core, 63
  %mask = shl i64 1, %bit
  %keep = xor i64 %mask, -1
  %mp = getelementptr i64, ptr %some, i64 %word
  %m = load i64, ptr %mp
  %m1 = and i64 %m, %keep
  store i64 %m1, ptr %mp
  br label %struck
struck:
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %n0
  br i1 %more, label %strike, label %sum
sum:
  %w = phi i64 [ 0, %struck ], [ %w1, %sum ]
  %or = phi i64 [ 0, %struck ], [ %or1, %sum ]
  %sp = getelementptr i64, ptr %some, i64 %w
  %v = load i64, ptr %sp
  %or1 = or i64 %or, %v
  %w1 = add i64 %w, 1
  %words = icmp ult i64 %w1, 16
  br i1 %words, label %sum, label %chosen
chosen:
  %empty = icmp eq i64 %or1, 0
  br i1 %empty, label %again, label %move
again:
  %first = icmp ne i64 %n0, 1
  br i1 %first, label %copy, label %out
move:
  %r0 = call i32 %set(i32 0, i64 128, ptr %some)
  %r1 = call i32 %set(i32 0, i64 128, ptr %all)
  %now = call i64 @locate(ptr %state, i64 %tid)
  br label %out
out:
  ret void
}"""

_AWAIT = """
; Return when the word at %p has reached %goal: spin a little, spin on unless the core is shared, then sleep until woken;
; %sleepers is not 0 while someone may sleep.
define internal void @await(ptr %state, i64 %tid, ptr %p, i64 %goal, ptr %sleepers) alwaysinline nounwind {
entry:
  %sp = getelementptr i64, ptr %state, i64 $SPINS$
  %spins = load i64, ptr %sp
  br label %spin
spin:
  %i = phi i64 [ 0, %entry ], [ %i1, %pause ]
  %v = load atomic i64, ptr %p acquire, align 8
  %there = icmp uge i64 %v, %goal
  br i1 %there, label %out, label %wait, !prof !0
wait:
  %i1 = add i64 %i, 1
  %left = icmp ult i64 %i, %spins
  br i1 %left, label %pause, label %sleep, !prof !0
pause:
  $PAUSE$
  br label %spin
sleep:
  call void @sleep_until(ptr %state, i64 %tid, ptr %p, i64 %goal, ptr %sleepers)
  br label %out
out:
  ret void
}

; true if this thread had better sleep than spin: another one is on its core, from which it, as a worker, could not move
define internal i1 @hindering(ptr %state, i64 %tid) noinline nounwind {
entry:
  %crowd = call i1 @crowded(ptr %state, i64 %tid)
  %worker = icmp ne i64 %tid, 0
  %try = and i1 %crowd, %worker
  br i1 %try, label %move, label %out
move:
  call void @part(ptr %state, i64 %tid)
  %still = call i1 @crowded(ptr %state, i64 %tid)
  br label %out
out:
  %r = phi i1 [ %crowd, %entry ], [ %still, %move ]
  ret i1 %r
}

define internal i64 @now(ptr %state) noinline nounwind {
  %slot = alloca i64
  call void @stamp(ptr %state, ptr %slot, i64 0)
  %time = load i64, ptr %slot
  ret i64 %time
}

; thread 0 has waited long for a share that a worker holds: another program's thread may have that one's core
define internal void @dispute(ptr %state) noinline cold nounwind {
  %now = call i64 @now(ptr %state)
  %until = add i64 %now, 50000000
  %dp = getelementptr i64, ptr %state, i64 $DISPUTED$
  store atomic i64 %until, ptr %dp monotonic, align 8
  ret void
}

; A worker of a disputed core, which holds no share now, lets the other thread run before the system takes the core from
; it in the middle of one; %since: when it last did. With nobody there this costs a system call in 2.5 ms.
define internal void @make_way(ptr %state, ptr %since) noinline cold nounwind {
entry:
  %yp = getelementptr i64, ptr %state, i64 $YIELD$
  %yield = load ptr, ptr %yp
  %mute = icmp eq ptr %yield, null
  br i1 %mute, label %out, label %ask
ask:
  %now = call i64 @now(ptr %state)
  %dp = getelementptr i64, ptr %state, i64 $DISPUTED$
  %until = load atomic i64, ptr %dp monotonic, align 8
  %over = icmp sgt i64 %now, %until
  br i1 %over, label %calm, label %look
calm:
  store atomic i64 0, ptr %dp monotonic, align 8
  br label %out
look:
  %before = load i64, ptr %since
  %ran = sub i64 %now, %before
  %enough = icmp sgt i64 %ran, 2500000
  br i1 %enough, label %let, label %out
let:
  %r = call i32 %yield()
  %after = call i64 @now(ptr %state)
  store i64 %after, ptr %since
  br label %out
out:
  ret void
}

define internal void @sleep_until(ptr %state, i64 %tid, ptr %p, i64 %goal, ptr %sleepers) noinline nounwind {
entry:
  %pp = getelementptr i64, ptr %state, i64 $PATIENCE$
  %patience = load i64, ptr %pp
  %quarter = lshr i64 %patience, 2
  %main = icmp eq i64 %tid, 0
  %hasty = icmp eq i64 %patience, 0
  br i1 %hasty, label %asleep, label %ask
ask:
  %crowd = call i1 @hindering(ptr %state, i64 %tid)
  br i1 %crowd, label %asleep, label %look
look:
  %i = phi i64 [ 0, %ask ], [ %i1, %pause ]
  %v0 = load atomic i64, ptr %p acquire, align 8
  %ok0 = icmp uge i64 %v0, %goal
  br i1 %ok0, label %out, label %more
more:
  %i1 = add i64 %i, 1
  %long = icmp eq i64 %i, %quarter
  %late = and i1 %long, %main
  br i1 %late, label %complain, label %on
complain:
  call void @dispute(ptr %state)
  br label %on
on:
  %left = icmp ult i64 %i, %patience
  br i1 %left, label %pause, label %asleep
pause:
  $PAUSE$
  br label %look
asleep:
  store atomic i64 1, ptr %sleepers seq_cst, align 8
  %v1 = load atomic i64, ptr %p seq_cst, align 8
  %ok1 = icmp uge i64 %v1, %goal
  br i1 %ok1, label %out, label %wait
wait:
  %low = trunc i64 %v1 to i32
  call void @wait(ptr %state, ptr %p, i32 %low, i64 -1)
  %v2 = load atomic i64, ptr %p acquire, align 8
  %ok2 = icmp uge i64 %v2, %goal
  br i1 %ok2, label %woken, label %asleep
woken:
  br i1 %hasty, label %out, label %settle
settle:
  %shared = call i1 @hindering(ptr %state, i64 %tid)
  br label %out
out:
  ret void
}

; wake who sleeps until the word at %p changes, which it did
define internal void @wake_sleepers(ptr %state, ptr %p, ptr %sleepers) alwaysinline nounwind {
entry:
  %s = load atomic i64, ptr %sleepers seq_cst, align 8
  %quiet = icmp eq i64 %s, 0
  br i1 %quiet, label %out, label %rouse, !prof !0
rouse:
  %old = atomicrmw xchg ptr %sleepers, i64 0 seq_cst
  %wp = getelementptr i64, ptr %state, i64 $WAKE_CALLS$
  %w = atomicrmw add ptr %wp, i64 1 monotonic
  call void @wake(ptr %state, ptr %p)
  br label %out
out:
  ret void
}
!0 = !{!"branch_weights", i32 1000, i32 1}"""

# jump(row, i): where the walk goes on after row %i, whose function is null: its argument is a pair (address of a byte or null,
# value); if the byte is that value, or there is none, at the row's fourth word, else at the next row.
_JUMP = """
define internal i64 @jump(ptr %row, i64 %i) alwaysinline nounwind {
entry:
  %ap = getelementptr i64, ptr %row, i64 1
  %a = load ptr, ptr %ap
  %byte = load ptr, ptr %a
  %tp = getelementptr i64, ptr %row, i64 3
  %target = load i64, ptr %tp
  %always = icmp eq ptr %byte, null
  br i1 %always, label %out, label %look
look:
  %v8 = load i8, ptr %byte
  %v = zext i8 %v8 to i64
  %wp = getelementptr i64, ptr %a, i64 1
  %want = load i64, ptr %wp
  %same = icmp eq i64 %v, %want
  %next = add i64 %i, 1
  %chosen = select i1 %same, i64 %target, i64 %next
  br label %out
out:
  %to = phi i64 [ %target, %entry ], [ %chosen, %look ]
  ret i64 %to
}"""

# solo(state, table, from, to, call, times): one thread runs the rows with tid 0 of 1; returns 1 if stopped.
_SOLO = """
define internal i64 @solo(ptr %state, ptr %table, i64 %from, i64 %to, ptr %call, ptr %times) noinline nounwind {
entry:
  %timed = icmp ne ptr %times, null
  br label %test
test:
  %i = phi i64 [ %from, %entry ], [ %onward, %after ]
  %left = icmp slt i64 %i, %to
  br i1 %left, label %check, label %done
check:
  %stop = call i1 @flagged(ptr %call)
  br i1 %stop, label %stopped, label %step
step:
  %i4 = shl i64 %i, 2
  %row = getelementptr i64, ptr %table, i64 %i4
  %f = load ptr, ptr %row
  %i1 = add i64 %i, 1
  %branch = icmp eq ptr %f, null
  br i1 %branch, label %jumping, label %perform, !prof !1
jumping:
  %to1 = call i64 @jump(ptr %row, i64 %i)
  br label %ran
perform:
  %ap = getelementptr i64, ptr %row, i64 1
  %a = load ptr, ptr %ap
  call void %f(ptr %a, i64 0, i64 1)
  br label %ran
ran:
  %onward = phi i64 [ %to1, %jumping ], [ %i1, %perform ]
  br i1 %timed, label %clock, label %after
clock:
  call void @stamp(ptr %state, ptr %times, i64 %i1)
  br label %after
after:
  br label %test
done:
  ret i64 0
stopped:
  ret i64 1
}
!1 = !{!"branch_weights", i32 1, i32 1000}"""

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
