"""Phases of a parallel run as LLVM IR text: how threads share a step, and how thread 0 learns that it is done.

A phase is the rows between two barriers. Thread 0 publishes it: it writes the rows' addresses, then counts GENERATION up.
Each thread claims share after share, its own first, by writing the phase's number into the share's word; a claim that finds
that number there is too late. So a phase needs no thread but thread 0: shares of workers that sleep, or wait for a core,
are computed by those that run. Who holds a claim finishes the share and counts it; thread 0 waits for that count alone. A
worker reads the rows' addresses before its claim and uses them after it: the claim succeeds only while the phase is
unfinished, so they were the phase's, and its table and buffers are there.

Words of eight threads lie together: eight claims in one cache line, their count in the next. Workers help within their
eight, thread 0 everywhere; share 0 is thread 0's alone, since a sliced step answers signals there.
"""

from __future__ import annotations

# shares(state, phase, tid, n, first, end): claim shares and compute them until there are none.
SHARES = """
define internal void @rows(ptr %first, ptr %end, i64 %share, i64 %n) alwaysinline nounwind {
entry:
  br label %row
row:
  %r = phi ptr [ %first, %entry ], [ %r1, %row ]
  %f = load ptr, ptr %r
  %ap = getelementptr i64, ptr %r, i64 1
  %a = load ptr, ptr %ap
  call void %f(ptr %a, i64 %share, i64 %n)
  %r1 = getelementptr i64, ptr %r, i64 4
  %more = icmp ne ptr %r1, %end
  br i1 %more, label %row, label %out
out:
  ret void
}

; true if the caller now has share %share of phase %phase to compute
define internal i1 @claim(ptr %state, i64 %phase, i64 %share) alwaysinline nounwind {
entry:
  %eight = lshr i64 %share, 3
  %one = and i64 %share, 7
  %skip = mul i64 %eight, $LINE$
  %at = add i64 %skip, %one
  %claims = getelementptr i64, ptr %state, i64 $FLAGS$
  %p = getelementptr i64, ptr %claims, i64 %at
  %before = load atomic i64, ptr %p monotonic, align 8
  %free = icmp ult i64 %before, %phase
  br i1 %free, label %try, label %out
try:
  %pair = cmpxchg ptr %p, i64 %before, i64 %phase acq_rel monotonic
  %won = extractvalue { i64, i1 } %pair, 1
  br label %out
out:
  %r = phi i1 [ false, %entry ], [ %won, %try ]
  ret i1 %r
}

; count a finished share; the last one of a phase wakes thread 0 if it sleeps
define internal void @finish(ptr %state, i64 %phase, i64 %share, i64 %n) alwaysinline nounwind {
entry:
  %first = and i64 %share, -8
  %left = sub i64 %n, %first
  %few = icmp ult i64 %left, 8
  %size = select i1 %few, i64 %left, i64 8
  %eight = lshr i64 %share, 3
  %skip = mul i64 %eight, $LINE$
  %counts = getelementptr i64, ptr %state, i64 $COUNTS$
  %p = getelementptr i64, ptr %counts, i64 %skip
  %before = atomicrmw add ptr %p, i64 1 seq_cst
  %now = add i64 %before, 1
  %goal = mul i64 %phase, %size
  %last = icmp eq i64 %now, %goal
  br i1 %last, label %group, label %out
group:
  %lone = icmp ule i64 %n, 8
  br i1 %lone, label %look, label %sum
sum:
  %total = getelementptr i64, ptr %state, i64 $GROUPS_DONE$
  %before2 = atomicrmw add ptr %total, i64 1 seq_cst
  %now2 = add i64 %before2, 1
  %n7 = add i64 %n, 7
  %groups = lshr i64 %n7, 3
  %goal2 = mul i64 %phase, %groups
  %last2 = icmp eq i64 %now2, %goal2
  br i1 %last2, label %look, label %out
look:
  %waited = phi ptr [ %p, %group ], [ %total, %sum ]
  %sp = getelementptr i64, ptr %state, i64 $PHASE_SLEEPERS$
  call void @wake_sleepers(ptr %state, ptr %waited, ptr %sp)
  br label %out
out:
  ret void
}

define internal void @shares(ptr %state, i64 %phase, i64 %tid, i64 %n, ptr %first, ptr %end) alwaysinline nounwind {
entry:
  %main = icmp eq i64 %tid, 0
  %mine = and i64 %tid, -8
  %mine8 = add i64 %mine, 8
  %short = icmp ult i64 %n, %mine8
  %clipped = select i1 %short, i64 %n, i64 %mine8
  %low = select i1 %main, i64 0, i64 %mine
  %high = select i1 %main, i64 %n, i64 %clipped
  %count = sub i64 %high, %low
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %onward ]
  %s0 = add i64 %tid, %k
  %past = icmp uge i64 %s0, %high
  %s1 = sub i64 %s0, %count
  %s = select i1 %past, i64 %s1, i64 %s0
  %zero = icmp eq i64 %s, 0
  %theirs = xor i1 %main, %zero
  %others = and i1 %theirs, %zero
  br i1 %others, label %onward, label %try
try:
  %won = call i1 @claim(ptr %state, i64 %phase, i64 %s)
  br i1 %won, label %work, label %onward
work:
  call void @rows(ptr %first, ptr %end, i64 %s, i64 %n)
  call void @finish(ptr %state, i64 %phase, i64 %s, i64 %n)
  br label %onward
onward:
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %count
  br i1 %more, label %next, label %out
out:
  ret void
}"""

# phase(state, first, end, n): thread 0's part of the rows at [first, end); returns when all shares are done.
PHASE = """
define internal void @phase(ptr %state, ptr %first, ptr %end, i64 %n) noinline nounwind {
entry:
  %fp = getelementptr i64, ptr %state, i64 $FIRST$
  store atomic ptr %first, ptr %fp monotonic, align 8
  %ep = getelementptr i64, ptr %state, i64 $END$
  store atomic ptr %end, ptr %ep monotonic, align 8
  %gp = getelementptr i64, ptr %state, i64 $GENERATION$
  %g0 = atomicrmw add ptr %gp, i64 1 seq_cst
  %g = add i64 %g0, 1
  call void @wake_workers(ptr %state)
  call void @shares(ptr %state, i64 %g, i64 0, i64 %n, ptr %first, ptr %end)
  %lone = icmp ule i64 %n, 8
  %n7 = add i64 %n, 7
  %groups = lshr i64 %n7, 3
  %each = select i1 %lone, i64 %n, i64 %groups
  %goal = mul i64 %g, %each
  %count = getelementptr i64, ptr %state, i64 $COUNTS$
  %total = getelementptr i64, ptr %state, i64 $GROUPS_DONE$
  %word = select i1 %lone, ptr %count, ptr %total
  %sp = getelementptr i64, ptr %state, i64 $PHASE_SLEEPERS$
  call void @await(ptr %state, i64 0, ptr %word, i64 %goal, ptr %sp)
  ret void
}"""
