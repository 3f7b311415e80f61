"""How thread 0 walks a table of steps, as LLVM IR text: alone (`solo`), or with workers that share its phases (`team`).

A row is four words: the address of a kernel, its arguments, flags (bit 0: one thread computes it, bit 1: no barrier after it),
and where a jump goes. Between rows a walk looks whether it was asked to stop, and notes the time where the caller wants times.
"""

from __future__ import annotations

# jump(row, i): where the walk goes on after row %i, whose function is null: its argument is a pair (address of a byte or null,
# value); if the byte is the value's low byte, or there is none, at the row's fourth word, else at the next row. The value's
# next two bits say that a trip of a loop begins where it jumps, or where it goes on (`plan.step.Jump`).
# trip(call): counts one: the second word of the run's flag is how many are left; where there are none, the first is set.
_JUMP = """
define internal void @trip(ptr %call) noinline nounwind {
entry:
  %fp = getelementptr i64, ptr %call, i64 $CALL_FLAG$
  %flag = load ptr, ptr %fp
  %none = icmp eq ptr %flag, null
  br i1 %none, label %out, label %count
count:
  %lp = getelementptr i64, ptr %flag, i64 1
  %left = load i64, ptr %lp
  %left1 = sub i64 %left, 1
  store i64 %left1, ptr %lp
  %over = icmp slt i64 %left1, 0
  br i1 %over, label %stop, label %out
stop:
  store atomic i64 1, ptr %flag monotonic, align 8
  br label %out
out:
  ret void
}

define internal i64 @jump(ptr %row, i64 %i, ptr %call) alwaysinline nounwind {
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
  %word = load i64, ptr %wp
  %want = and i64 %word, 255
  %same = icmp eq i64 %v, %want
  %next = add i64 %i, 1
  %chosen = select i1 %same, i64 %target, i64 %next
  %bit = select i1 %same, i64 256, i64 512
  %hit = and i64 %word, %bit
  %plain = icmp eq i64 %hit, 0
  br i1 %plain, label %out, label %count
count:
  call void @trip(ptr %call)
  br label %out
out:
  %to = phi i64 [ %target, %entry ], [ %chosen, %look ], [ %chosen, %count ]
  ret i64 %to
}"""

# Both walks: from row to row, until the last or a stop.
_NEXT = """\
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
  %branch = icmp eq ptr %f, null"""

_JUMPING = """\
jumping:
  %to1 = call i64 @jump(ptr %row, i64 %i, ptr %call)
  br label %ran"""

_PERFORM = """\
perform:
  %ap = getelementptr i64, ptr %row, i64 1
  %a = load ptr, ptr %ap
  call void %f(ptr %a, i64 0, i64 1)
  br label %ran"""

_RAN = """\
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
}"""

# solo(state, table, from, to, call, times): one thread runs the rows with tid 0 of 1; returns 1 if stopped.
_SOLO = """
define internal i64 @solo(ptr %state, ptr %table, i64 %from, i64 %to, ptr %call, ptr %times) noinline nounwind {
entry:
  %timed = icmp ne ptr %times, null
  br label %test
$NEXT$
  br i1 %branch, label %jumping, label %perform, !prof !1
$JUMPING$
$PERFORM$
ran:
  %onward = phi i64 [ %to1, %jumping ], [ %i1, %perform ]
$RAN$"""

# team(state, table, from, to, n, call, times): thread 0's walk over the rows [from, to) of a parallel run; 1 if stopped.
_TEAM = """
; the address of the first row after %row that is not in its phase
define internal ptr @phase_end(ptr %row, ptr %limit) alwaysinline nounwind {
entry:
  br label %test
test:
  %r = phi ptr [ %row, %entry ], [ %next, %parallel ]
  %next = getelementptr i64, ptr %r, i64 4
  %bp = getelementptr i64, ptr %r, i64 2
  %bits = load i64, ptr %bp
  %bit1 = and i64 %bits, 2
  %barrier = icmp eq i64 %bit1, 0
  %last = icmp eq ptr %next, %limit
  %over = or i1 %barrier, %last
  br i1 %over, label %out, label %look
look:
  %f = load ptr, ptr %next
  %jump = icmp eq ptr %f, null
  %np = getelementptr i64, ptr %next, i64 2
  %nbits = load i64, ptr %np
  %bit0 = and i64 %nbits, 1
  %serial = icmp ne i64 %bit0, 0
  %apart = or i1 %jump, %serial
  br i1 %apart, label %out, label %parallel
parallel:
  br label %test
out:
  ret ptr %next
}

define internal i64 @team(ptr %state, ptr %table, i64 %from, i64 %to, i64 %n, ptr %call, ptr %times) noinline nounwind {
entry:
  %timed = icmp ne ptr %times, null
  %to4 = shl i64 %to, 2
  %limit = getelementptr i64, ptr %table, i64 %to4
  br label %test
$NEXT$
  br i1 %branch, label %jumping, label %plain, !prof !1
$JUMPING$
plain:
  %bp = getelementptr i64, ptr %row, i64 2
  %bits = load i64, ptr %bp
  %bit0 = and i64 %bits, 1
  %serial = icmp ne i64 %bit0, 0
  br i1 %serial, label %perform, label %parallel
$PERFORM$
parallel:
  %row1 = getelementptr i64, ptr %row, i64 4
  br i1 %timed, label %meet, label %far
far:
  %end0 = call ptr @phase_end(ptr %row, ptr %limit)
  br label %meet
meet:
  %end = phi ptr [ %row1, %parallel ], [ %end0, %far ]
  call void @phase(ptr %state, ptr %row, ptr %end, i64 %n)
  %e = ptrtoint ptr %end to i64
  %t = ptrtoint ptr %table to i64
  %bytes = sub i64 %e, %t
  %to2 = lshr i64 %bytes, 5
  br label %ran
ran:
  %onward = phi i64 [ %to1, %jumping ], [ %i1, %perform ], [ %to2, %meet ]
$RAN$"""

_PROFILE = '!1 = !{!"branch_weights", i32 1, i32 1000}'
_SHARED = {"$NEXT$": _NEXT, "$JUMPING$": _JUMPING, "$PERFORM$": _PERFORM, "$RAN$": _RAN}


def _whole(text: str) -> str:
    for name, piece in _SHARED.items():
        text = text.replace(name, piece)
    return text


WALKS = "\n".join([_JUMP, _whole(_SOLO), _whole(_TEAM), _PROFILE])
