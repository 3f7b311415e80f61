"""How threads of a pool wait for each other, and for cores, as LLVM IR text: spinning, moving, sleeping, making way."""

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

PLACES = """
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
