"""The native code of the SPMD executor as LLVM IR text: threads that walk one step table with barriers in between.

`executor_text(target)` is a kernel in the engine's sense; calling it once writes the addresses of its functions
(`spmd_state.FUNCTIONS`) into its first argument. What they do is told in `intarsia.runtime.executor`.

Barrier: up to COUNTED_THREADS threads count themselves in one word. More take the dissemination barrier (Hensgen, Finkel,
Manber 1988), where that word would be contended: in round r, thread t publishes the barrier's number in its own
word and waits for the word of thread t - 2^r (mod n); log2(n) rounds, no atomic read-modify-write, numbers only grow.
"""

from __future__ import annotations

from intarsia.codegen.engine import KernelText, kernel_text
from intarsia.codegen.target import Target
from intarsia.errors import EPFail
from intarsia.runtime import spmd_state
from intarsia.runtime.spmd_signals import SIGNALS_TEXT, SLICES_TEXT
from intarsia.runtime.spmd_system import pause_text, system_text


def executor_text(target: Target) -> KernelText:
    """The executor for `target`; raises EPFail where the platform has no threads (WebAssembly)."""
    if target.arch.startswith("wasm"):
        raise EPFail(f"the SPMD executor needs threads, which {target.triple!r} has not: run with one thread")
    declaration, pause = pause_text(target)
    wait, wake, clock = system_text(target)
    system = [wait, wake, clock, SIGNALS_TEXT, _WAITING, _BARRIER]
    text = "\n".join([_ENTRY, *system, _JUMP, _SOLO, _TEAM, _LOCK, SLICES_TEXT, _RUN, _WORKER, declaration])
    for name in _WORDS:
        text = text.replace(f"${name}$", str(getattr(spmd_state, name)))
    return kernel_text("spmd", text.replace("$PAUSE$", pause))


_WORDS = """
COUNTED_THREADS GENERATION IDLE_SLEEPERS STOPPING BARRIER_SLEEPERS THREADS SPINS PATIENCE STARTED WAIT WAKE GETCPU CLOCK
CLOCK_SCALE TABLE FIRST END EPOCH STOP_EPOCH LOCK PARALLEL_RUNS BUSY_RUNS WAKE_CALLS FLAGS WORKERS_MISSING CPUS
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

_BARRIER = """
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

; Return when the word at %p has reached %goal: spin a little, spin on unless the core is shared, then sleep, counted in
; %sleepers, until woken or for %timeout microseconds (-1: for ever) at a time.
define internal void @await(ptr %state, i64 %tid, ptr %p, i64 %goal, ptr %sleepers, i64 %timeout) alwaysinline nounwind {
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
  call void @sleep_until(ptr %state, i64 %tid, ptr %p, i64 %goal, ptr %sleepers, i64 %timeout)
  br label %out
out:
  ret void
}

define internal void @sleep_until(ptr %state, i64 %tid, ptr %p, i64 %goal, ptr %sleepers, i64 %timeout) noinline nounwind {
entry:
  %pp = getelementptr i64, ptr %state, i64 $PATIENCE$
  %patience = load i64, ptr %pp
  %hasty = icmp eq i64 %patience, 0
  br i1 %hasty, label %asleep, label %ask
ask:
  %crowd = call i1 @crowded(ptr %state, i64 %tid)
  br i1 %crowd, label %asleep, label %look
look:
  %i = phi i64 [ 0, %ask ], [ %i1, %pause ]
  %v0 = load atomic i64, ptr %p acquire, align 8
  %ok0 = icmp uge i64 %v0, %goal
  br i1 %ok0, label %out, label %more
more:
  %i1 = add i64 %i, 1
  %left = icmp ult i64 %i, %patience
  br i1 %left, label %pause, label %asleep
pause:
  $PAUSE$
  br label %look
asleep:
  %s0 = atomicrmw add ptr %sleepers, i64 1 seq_cst
  %v1 = load atomic i64, ptr %p seq_cst, align 8
  %ok1 = icmp uge i64 %v1, %goal
  br i1 %ok1, label %awake, label %wait
wait:
  %low = trunc i64 %v1 to i32
  call void @wait(ptr %state, ptr %p, i32 %low, i64 %timeout)
  br label %awake
awake:
  %s1 = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  %v2 = load atomic i64, ptr %p acquire, align 8
  %ok2 = icmp uge i64 %v2, %goal
  br i1 %ok2, label %out, label %asleep
out:
  ret void
}

define internal void @barrier(ptr %state, i64 %epoch, i64 %tid, i64 %n) alwaysinline nounwind {
  %few = icmp sle i64 %n, $COUNTED_THREADS$
  br i1 %few, label %counted, label %spread
counted:
  call void @count(ptr %state, i64 %epoch, i64 %tid, i64 %n)
  ret void
spread:
  call void @disseminate(ptr %state, i64 %epoch, i64 %tid, i64 %n)
  ret void
}

; the last of the %n threads to arrive at barrier %epoch brings the count to epoch * n
define internal void @count(ptr %state, i64 %epoch, i64 %tid, i64 %n) noinline nounwind {
entry:
  %sleepers = getelementptr i64, ptr %state, i64 $BARRIER_SLEEPERS$
  %word = getelementptr i64, ptr %state, i64 $FLAGS$
  %goal = mul i64 %epoch, %n
  %before = atomicrmw add ptr %word, i64 1 seq_cst
  %now = add i64 %before, 1
  %last = icmp uge i64 %now, %goal
  br i1 %last, label %look, label %wait
look:
  %s = load atomic i64, ptr %sleepers seq_cst, align 8
  %quiet = icmp eq i64 %s, 0
  br i1 %quiet, label %out, label %rouse
rouse:
  call void @wake(ptr %state, ptr %word)
  br label %out
wait:
  call void @await(ptr %state, i64 %tid, ptr %word, i64 %goal, ptr %sleepers, i64 1000)
  br label %out
out:
  ret void
}

; The sleep in a barrier is bounded to 1 ms, because here an arriving thread that spins looks for sleepers without a fence.
define internal void @disseminate(ptr %state, i64 %epoch, i64 %tid, i64 %n) noinline nounwind {
entry:
  %sp = getelementptr i64, ptr %state, i64 $SPINS$
  %spins = load i64, ptr %sp
  %patient = icmp ne i64 %spins, 0
  %sleepers = getelementptr i64, ptr %state, i64 $BARRIER_SLEEPERS$
  %flags = getelementptr i64, ptr %state, i64 $FLAGS$
  %t16 = shl i64 %tid, 4
  %mine0 = getelementptr i64, ptr %flags, i64 %t16
  br label %round
round:
  %r = phi i64 [ 0, %entry ], [ %r1, %next ]
  %distance = phi i64 [ 1, %entry ], [ %distance1, %next ]
  %mine = getelementptr i64, ptr %mine0, i64 %r
  store atomic i64 %epoch, ptr %mine release, align 8
  br i1 %patient, label %look, label %fence
fence:
  fence seq_cst
  br label %look
look:
  %s = load atomic i64, ptr %sleepers monotonic, align 8
  %quiet = icmp eq i64 %s, 0
  br i1 %quiet, label %find, label %rouse
rouse:
  call void @wake(ptr %state, ptr %mine)
  br label %find
find:
  %back = sub i64 %tid, %distance
  %negative = icmp slt i64 %back, 0
  %around = add i64 %back, %n
  %partner = select i1 %negative, i64 %around, i64 %back
  %p16 = shl i64 %partner, 4
  %theirs0 = getelementptr i64, ptr %flags, i64 %p16
  %theirs = getelementptr i64, ptr %theirs0, i64 %r
  call void @await(ptr %state, i64 %tid, ptr %theirs, i64 %epoch, ptr %sleepers, i64 1000)
  br label %next
next:
  %r1 = add i64 %r, 1
  %distance1 = shl i64 %distance, 1
  %another = icmp slt i64 %distance1, %n
  br i1 %another, label %round, label %out
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

# team(...): one thread's walk over the rows [first, end) of a parallel run; all threads take the same barriers, because
# `owed` and the rows' flags are the same for all. Returns the number of the last barrier; thread 0 writes 1 to
# %result if the run was stopped. %main is a constant after inlining.
_TEAM = """
define internal i64 @team(ptr %state, ptr %table, i64 %first, i64 %end, i64 %epoch0, i64 %tid, i64 %n,
                          i1 %main, ptr %call, ptr %times) alwaysinline nounwind {
entry:
  %stop_word = getelementptr i64, ptr %state, i64 $STOP_EPOCH$
  br label %step
step:
  %i = phi i64 [ %first, %entry ], [ %to, %onward ]
  %epoch = phi i64 [ %epoch0, %entry ], [ %epoch2, %onward ]
  %owed = phi i1 [ false, %entry ], [ %owed2, %onward ]
  %skip = phi i1 [ false, %entry ], [ %skip2, %onward ]
  %i4 = shl i64 %i, 2
  %row = getelementptr i64, ptr %table, i64 %i4
  %f = load ptr, ptr %row
  %ap = getelementptr i64, ptr %row, i64 1
  %a = load ptr, ptr %ap
  %bp = getelementptr i64, ptr %row, i64 2
  %bits = load i64, ptr %bp
  %bit0 = and i64 %bits, 1
  %serial = icmp ne i64 %bit0, 0
  %bit1 = and i64 %bits, 2
  %free = icmp ne i64 %bit1, 0
  %away = xor i1 %main, true
  %idle = and i1 %serial, %away
  %pass = or i1 %idle, %skip
  %i1 = add i64 %i, 1
  %branch = icmp eq ptr %f, null
  br i1 %branch, label %jumping, label %plain, !prof !1
jumping:
  %to1 = call i64 @jump(ptr %row, i64 %i)
  br label %after
plain:
  br i1 %pass, label %after, label %perform
perform:
  %width = select i1 %serial, i64 1, i64 %n
  call void %f(ptr %a, i64 %tid, i64 %width)
  br label %after
after:
  %to = phi i64 [ %to1, %jumping ], [ %i1, %plain ], [ %i1, %perform ]
  %last = icmp eq i64 %to, %end
  br i1 %last, label %meet, label %middle
middle:
  %to4 = shl i64 %to, 2
  %to4b = add i64 %to4, 2
  %nbp = getelementptr i64, ptr %table, i64 %to4b
  %nbits = load i64, ptr %nbp
  %both = and i64 %nbits, %bits
  %both0 = and i64 %both, 1
  %serials = icmp ne i64 %both0, 0
  %bound = xor i1 %free, true
  %owed1 = or i1 %owed, %bound
  %apart = xor i1 %serials, true
  %need = and i1 %owed1, %apart
  br i1 %main, label %ask, label %decide
ask:
  %asked = call i1 @flagged(ptr %call)
  %skip1 = or i1 %skip, %asked
  br label %decide
decide:
  %skip3 = phi i1 [ %skip, %middle ], [ %skip1, %ask ]
  br i1 %need, label %meet, label %mark
meet:
  %skip4 = phi i1 [ %skip, %after ], [ %skip3, %decide ]
  %epoch1 = add i64 %epoch, 1
  br i1 %skip4, label %call_off, label %arrive
call_off:
  store atomic i64 %epoch1, ptr %stop_word monotonic, align 8
  br label %arrive
arrive:
  call void @barrier(ptr %state, i64 %epoch1, i64 %tid, i64 %n)
  %stop = load atomic i64, ptr %stop_word monotonic, align 8
  %leave = icmp eq i64 %stop, %epoch1
  %finished = or i1 %leave, %last
  br label %mark
mark:
  %epoch2 = phi i64 [ %epoch, %decide ], [ %epoch1, %arrive ]
  %owed2 = phi i1 [ %owed1, %decide ], [ false, %arrive ]
  %skip2 = phi i1 [ %skip3, %decide ], [ %skip4, %arrive ]
  %over = phi i1 [ false, %decide ], [ %finished, %arrive ]
  br i1 %main, label %timing, label %onward
timing:
  %untimed = icmp eq ptr %times, null
  br i1 %untimed, label %onward, label %clock
clock:
  call void @stamp(ptr %state, ptr %times, i64 %i1)
  br label %onward
onward:
  br i1 %over, label %out, label %step
out:
  ret i64 %epoch2
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

# walk(state, call): a run; see executor.CallBlock for the words of `call`. run(state, call): the same, with what stops it.
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
  %tp = getelementptr i64, ptr %state, i64 $TABLE$
  store ptr %table, ptr %tp
  %fp = getelementptr i64, ptr %state, i64 $FIRST$
  store i64 %first, ptr %fp
  %ep = getelementptr i64, ptr %state, i64 $END$
  store i64 %end, ptr %ep
  %kp = getelementptr i64, ptr %state, i64 $EPOCH$
  %epoch = load i64, ptr %kp
  %pp = getelementptr i64, ptr %state, i64 $PARALLEL_RUNS$
  %p0 = load i64, ptr %pp
  %p1 = add i64 %p0, 1
  store i64 %p1, ptr %pp
  %cpu = call i64 @locate(ptr %state, i64 0)
  %gp = getelementptr i64, ptr %state, i64 $GENERATION$
  %g = atomicrmw add ptr %gp, i64 1 seq_cst
  %ip = getelementptr i64, ptr %state, i64 $IDLE_SLEEPERS$
  %idle = load atomic i64, ptr %ip seq_cst, align 8
  %awake = icmp eq i64 %idle, 0
  br i1 %awake, label %together, label %rouse
rouse:
  %wp = getelementptr i64, ptr %state, i64 $WAKE_CALLS$
  %w0 = load i64, ptr %wp
  %w1 = add i64 %w0, 1
  store i64 %w1, ptr %wp
  call void @wake(ptr %state, ptr %gp)
  br label %together
together:
  %epoch1 = call i64 @team(ptr %state, ptr %table, i64 %first, i64 %end, i64 %epoch, i64 0, i64 %n,
                           i1 true, ptr %call, ptr %times)
  store i64 %epoch1, ptr %kp
  %cp = getelementptr i64, ptr %state, i64 $STOP_EPOCH$
  %cut = load atomic i64, ptr %cp monotonic, align 8
  call void @unlock(ptr %state, ptr %lock)
  %ended = icmp eq i64 %cut, %epoch1
  br i1 %ended, label %short, label %behind
short:
  ret i64 1
behind:
  %rc = call i64 @solo(ptr %state, ptr %table, i64 %end, i64 %nsteps, ptr %call, ptr %times)
  ret i64 %rc
}

define internal i64 @run(ptr %state, ptr %call) nounwind {
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
  %tp = getelementptr i64, ptr %state, i64 $TABLE$
  %fp = getelementptr i64, ptr %state, i64 $FIRST$
  %ep = getelementptr i64, ptr %state, i64 $END$
  %kp = getelementptr i64, ptr %state, i64 $EPOCH$
  br label %idle
idle:
  %seen = phi i64 [ %generation, %entry ], [ %g, %work ]
  %goal = add i64 %seen, 1
  call void @await(ptr %state, i64 %tid, ptr %gp, i64 %goal, ptr %ip, i64 -1)
  %g = load atomic i64, ptr %gp acquire, align 8
  %halt = load atomic i64, ptr %hp acquire, align 8
  %halted = icmp ne i64 %halt, 0
  br i1 %halted, label %out, label %work
work:
  %cpu = call i64 @locate(ptr %state, i64 %tid)
  %n = load i64, ptr %np
  %table = load ptr, ptr %tp
  %first = load i64, ptr %fp
  %end = load i64, ptr %ep
  %epoch = load i64, ptr %kp
  %last = call i64 @team(ptr %state, ptr %table, i64 %first, i64 %end, i64 %epoch, i64 %tid, i64 %n,
                         i1 false, ptr null, ptr null)
  br label %idle
out:
  ret i64 0
}"""
