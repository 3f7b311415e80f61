"""How threads of a pool wait for each other, and for cores, as LLVM IR text: spinning, sleeping, waking, making way."""

from __future__ import annotations

# spin(state, count): `count` rounds as the waiting loops have them, for calibration.
WAITING = """
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

AWAIT = """
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
  %seeks = icmp ne i64 %patience, 0
  %mark = zext i1 %seeks to i64
  call void @mark_asleep(ptr %state, i64 %tid, i64 %mark)
  store atomic i64 1, ptr %sleepers seq_cst, align 8
  %v1 = load atomic i64, ptr %p seq_cst, align 8
  %ok1 = icmp uge i64 %v1, %goal
  br i1 %ok1, label %awake, label %wait
wait:
  %low = trunc i64 %v1 to i32
  call void @wait(ptr %state, ptr %p, i32 %low, i64 -1)
  %v2 = load atomic i64, ptr %p acquire, align 8
  %ok2 = icmp uge i64 %v2, %goal
  br i1 %ok2, label %woken, label %asleep
woken:
  br i1 %hasty, label %awake, label %settle
settle:
  %shared = call i1 @hindering(ptr %state, i64 %tid)
  br label %awake
awake:
  call void @mark_asleep(ptr %state, i64 %tid, i64 0)
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

; the same for workers that wait for a phase
define internal void @wake_workers(ptr %state) alwaysinline nounwind {
entry:
  %ip = getelementptr i64, ptr %state, i64 $IDLE_SLEEPERS$
  %s = load atomic i64, ptr %ip seq_cst, align 8
  %quiet = icmp eq i64 %s, 0
  br i1 %quiet, label %out, label %rouse, !prof !0
rouse:
  call void @keep_off(ptr %state)
  %gp = getelementptr i64, ptr %state, i64 $GENERATION$
  call void @wake_sleepers(ptr %state, ptr %gp, ptr %ip)
  br label %out
out:
  ret void
}
!0 = !{!"branch_weights", i32 1000, i32 1}"""
