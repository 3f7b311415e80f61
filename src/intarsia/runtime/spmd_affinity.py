"""On which cores the threads of a pool are, as LLVM IR text: seeing it, moving away from each other, and waking on others.

Schedulers may wake a thread beside its waker, where it waits until the waker stops or its next balancing, milliseconds later,
while another core is idle. A worker that runs sees that and moves (`part`); one that was only woken cannot. So the thread that
wakes takes its own core out of the affinity of workers that sleep (`keep_off`), and each puts it back when it is awake
(`mark_asleep`).
"""

from __future__ import annotations

PLACES = """
declare i64 @llvm.vector.reduce.or.v16i64(<16 x i64>)

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
  br i1 %more, label %strike, label %chosen
chosen:
  %left = load <16 x i64>, ptr %some, align 8
  %any = call i64 @llvm.vector.reduce.or.v16i64(<16 x i64> %left)
  %empty = icmp eq i64 %any, 0
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

WAKING = """
; Thread %tid, a worker, goes to sleep (%mark 1), or is awake (0): then, and before it sleeps again, the core that the thread
; which woke it left out of its affinity is put back. The word is 0, 1, or 2 + that core.
define internal void @mark_asleep(ptr %pool, i64 %tid, i64 %mark) noinline nounwind {
entry:
  %all = alloca [16 x i64]
  %words = getelementptr i64, ptr %pool, i64 $ASLEEP$
  %p = getelementptr i64, ptr %words, i64 %tid
  %before = atomicrmw xchg ptr %p, i64 %mark seq_cst
  %lacks = icmp ugt i64 %before, 1
  br i1 %lacks, label %back, label %out
back:
  %getp = getelementptr i64, ptr %pool, i64 $GET_AFFINITY$
  %get = load ptr, ptr %getp
  %setp = getelementptr i64, ptr %pool, i64 $SET_AFFINITY$
  %set = load ptr, ptr %setp
  store [16 x i64] zeroinitializer, ptr %all
  %failed = call i32 %get(i32 0, i64 128, ptr %all)
  %no = icmp ne i32 %failed, 0
  br i1 %no, label %out, label %put
put:
  %core = sub i64 %before, 2
  %word = lshr i64 %core, 6
  %bit = and i64 %core, 63
  %mask = shl i64 1, %bit
  %mp = getelementptr i64, ptr %all, i64 %word
  %m = load i64, ptr %mp
  %m1 = or i64 %m, %mask
  store i64 %m1, ptr %mp
  %r = call i32 %set(i32 0, i64 128, ptr %all)
  br label %out
out:
  ret void
}

; Before workers are woken: those that sleep shall not be put on this thread's core, which is thread 0's. Of a pool with more
; than $SPREAD$ threads this would take longer than it saves.
define internal void @keep_off(ptr %state) noinline cold nounwind {
entry:
  %some = alloca [16 x i64]
  %getp = getelementptr i64, ptr %state, i64 $GET_AFFINITY$
  %get = load ptr, ptr %getp
  %setp = getelementptr i64, ptr %state, i64 $SET_AFFINITY$
  %set = load ptr, ptr %setp
  %np = getelementptr i64, ptr %state, i64 $THREADS$
  %n = load i64, ptr %np
  %cpus = getelementptr i64, ptr %state, i64 $CPUS$
  %here = load atomic i64, ptr %cpus monotonic, align 8
  %mute = icmp eq ptr %get, null
  %many = icmp ugt i64 %n, $SPREAD$
  %unknown = icmp eq i64 %here, 0
  %high = icmp ugt i64 %here, 1024
  %no0 = or i1 %mute, %many
  %no1 = or i1 %unknown, %high
  %no = or i1 %no0, %no1
  br i1 %no, label %out, label %begin
begin:
  %core = sub i64 %here, 1
  %word = lshr i64 %core, 6
  %bit = and i64 %core, 63
  %mask = shl i64 1, %bit
  %keep = xor i64 %mask, -1
  %mp = getelementptr i64, ptr %some, i64 %word
  %lacking = add i64 %here, 1
  %states = getelementptr i64, ptr %state, i64 $ASLEEP$
  %ids = getelementptr i64, ptr %state, i64 $NATIVE_IDS$
  br label %worker
worker:
  %t = phi i64 [ 1, %begin ], [ %t1, %next ]
  %left = icmp ult i64 %t, %n
  br i1 %left, label %look, label %out
look:
  %t1 = add i64 %t, 1
  %p = getelementptr i64, ptr %states, i64 %t
  %mark = load atomic i64, ptr %p seq_cst, align 8
  %asleep = icmp eq i64 %mark, 1
  br i1 %asleep, label %ask, label %next
ask:
  %ip = getelementptr i64, ptr %ids, i64 %t
  %id64 = load i64, ptr %ip
  %id = trunc i64 %id64 to i32
  store [16 x i64] zeroinitializer, ptr %some
  %failed = call i32 %get(i32 %id, i64 128, ptr %some)
  %all = load i64, ptr %mp
  %has = and i64 %all, %mask
  %off = icmp eq i64 %has, 0
  %bad = icmp ne i32 %failed, 0
  %leave = or i1 %off, %bad
  br i1 %leave, label %next, label %strike
strike:
  %without = and i64 %all, %keep
  store i64 %without, ptr %mp
  %others = load <16 x i64>, ptr %some, align 8
  %any = call i64 @llvm.vector.reduce.or.v16i64(<16 x i64> %others)
  %only = icmp eq i64 %any, 0
  br i1 %only, label %next, label %narrow
narrow:
  %r0 = call i32 %set(i32 %id, i64 128, ptr %some)
  %pair = cmpxchg ptr %p, i64 1, i64 %lacking seq_cst seq_cst
  %told = extractvalue { i64, i1 } %pair, 1
  br i1 %told, label %next, label %undo
undo:
  store i64 %all, ptr %mp
  %r1 = call i32 %set(i32 %id, i64 128, ptr %some)
  br label %next
next:
  br label %worker
out:
  ret void
}"""
