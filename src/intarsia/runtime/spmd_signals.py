"""Signals and slices in the SPMD executor's native code, as LLVM IR text: how a run is left while kernels compute.

A signal's handler only notes it; Python's own then runs between two native calls of the main thread. In a run that may take
long, and that the main thread makes, a handler in front of Python's notes the signal in a word of the process too. The run
sees that word between two steps, takes the GIL and lets Python run its handlers there. Where one raises, the run ends and
the exception is held for the caller; where none does, the run goes on. Handlers that are not Python's stay where they are. The
same word says that the process ends, which runs of other threads than the main one do not outlast.

`sliced` is a step that calls another one in slices: it plays several threads one after the other, of which each step takes any
number, and looks in between whether the run shall end.
"""

from __future__ import annotations

# signal_words: see spmd_state. on_signal(sig) is a signal handler: it calls Python's, which notes the signal, and says so.
SIGNALS_TEXT = """
@signal_words = internal global [$SIGNAL_WORDS$ x i64] zeroinitializer, align 64
@calm = internal constant i64 0, align 8

define internal ptr @signal_word(i64 %i) alwaysinline nounwind {
  %p = getelementptr i64, ptr @signal_words, i64 %i
  ret ptr %p
}

define internal void @on_signal(i32 %sig) nounwind {
entry:
  %hp = call ptr @signal_word(i64 $HANDLER$)
  %handler = load atomic ptr, ptr %hp monotonic, align 8
  %none = icmp eq ptr %handler, null
  br i1 %none, label %note, label %first
first:
  call void %handler(i32 %sig)
  br label %note
note:
  store atomic i64 1, ptr @signal_words seq_cst, align 8
  ret void
}

; put on_signal in front of Python's handlers; a bit for each signal where that was done
define internal i64 @hear() noinline nounwind {
entry:
  %hp = call ptr @signal_word(i64 $HANDLER$)
  %handler = load ptr, ptr %hp
  %gp = call ptr @signal_word(i64 $GETSIG$)
  %get = load ptr, ptr %gp
  %sp = call ptr @signal_word(i64 $SETSIG$)
  %set = load ptr, ptr %sp
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %done ]
  %mask = phi i64 [ 0, %entry ], [ %mask1, %done ]
  %at = add i64 %i, $SIGNALS$
  %np = call ptr @signal_word(i64 %at)
  %n64 = load i64, ptr %np
  %n = trunc i64 %n64 to i32
  %unused = icmp eq i32 %n, 0
  br i1 %unused, label %done, label %ask
ask:
  %now = call ptr %get(i32 %n)
  %same = icmp eq ptr %now, %handler
  br i1 %same, label %replace, label %done
replace:
  %old = call ptr %set(i32 %n, ptr @on_signal)
  %bit = shl i64 1, %i
  %with = or i64 %mask, %bit
  br label %done
done:
  %mask1 = phi i64 [ %mask, %next ], [ %mask, %ask ], [ %with, %replace ]
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, 3
  br i1 %more, label %next, label %out
out:
  ret i64 %mask1
}

define internal void @hear_no_more(i64 %mask) noinline nounwind {
entry:
  %hp = call ptr @signal_word(i64 $HANDLER$)
  %handler = load ptr, ptr %hp
  %sp = call ptr @signal_word(i64 $SETSIG$)
  %set = load ptr, ptr %sp
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %done ]
  %shifted = lshr i64 %mask, %i
  %bit = and i64 %shifted, 1
  %other = icmp eq i64 %bit, 0
  br i1 %other, label %done, label %restore
restore:
  %at = add i64 %i, $SIGNALS$
  %np = call ptr @signal_word(i64 %at)
  %n64 = load i64, ptr %np
  %n = trunc i64 %n64 to i32
  %old = call ptr %set(i32 %n, ptr %handler)
  br label %done
done:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, 3
  br i1 %more, label %next, label %out
out:
  ret void
}

; what `flagged` saw: the process's end, which only the main thread's runs outlast, the caller's flag, or a signal, whose
; handlers Python runs now; true if the run shall end
define internal i1 @asked(ptr %call) noinline cold nounwind {
entry:
  %dp = call ptr @signal_word(i64 $ENDING$)
  %ending = load atomic i64, ptr %dp monotonic, align 8
  %goes_on = icmp eq i64 %ending, 0
  br i1 %goes_on, label %caller, label %whose
whose:
  %fp0 = call ptr @signal_word(i64 $SELF$)
  %self = load ptr, ptr %fp0
  %unknown = icmp eq ptr %self, null
  br i1 %unknown, label %yes, label %who
who:
  %me = call i64 %self()
  %mp = call ptr @signal_word(i64 $MAIN$)
  %main = load i64, ptr %mp
  %is_main = icmp eq i64 %me, %main
  br i1 %is_main, label %caller, label %yes
caller:
  %wp = getelementptr i64, ptr %call, i64 $CALL_WATCHED$
  %watched = load ptr, ptr %wp
  %v = load atomic i64, ptr %watched monotonic, align 8
  %set = icmp ne i64 %v, 0
  br i1 %set, label %yes, label %signal
signal:
  %np = getelementptr i64, ptr %call, i64 $CALL_SIGNALS$
  %mine = load i64, ptr %np
  %others = icmp eq i64 %mine, 0
  br i1 %others, label %no, label %claim
claim:
  %t = atomicrmw xchg ptr @signal_words, i64 0 seq_cst
  %late = icmp eq i64 %t, 0
  br i1 %late, label %no, label %answer
answer:
  %ep = call ptr @signal_word(i64 $GIL_ENSURE$)
  %ensure = load ptr, ptr %ep
  %rp = call ptr @signal_word(i64 $GIL_RELEASE$)
  %release = load ptr, ptr %rp
  %cp = call ptr @signal_word(i64 $CHECK_SIGNALS$)
  %check = load ptr, ptr %cp
  %gil = call i32 %ensure()
  %raised = call i32 %check()
  %fine = icmp eq i32 %raised, 0
  br i1 %fine, label %go_on, label %keep
keep:
  %fp = call ptr @signal_word(i64 $FETCH$)
  %fetch = load ptr, ptr %fp
  %kind = call ptr @signal_word(i64 $RAISED$)
  %value = getelementptr i64, ptr %kind, i64 1
  %trace = getelementptr i64, ptr %kind, i64 2
  call void %fetch(ptr %kind, ptr %value, ptr %trace)
  call void %release(i32 %gil)
  %sp = getelementptr i64, ptr %call, i64 $CALL_STOPPED$
  store atomic i64 1, ptr %sp seq_cst, align 8
  store ptr %sp, ptr %wp
  br label %yes
go_on:
  call void %release(i32 %gil)
  br label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; a run that may take long: the main thread's answers signals
define internal i64 @walk_with_signals(ptr %state, ptr %call) noinline nounwind {
entry:
  %sp = call ptr @signal_word(i64 $SELF$)
  %self = load ptr, ptr %sp
  %deaf = icmp eq ptr %self, null
  br i1 %deaf, label %plain, label %who
who:
  %me = call i64 %self()
  %mp = call ptr @signal_word(i64 $MAIN$)
  %main = load i64, ptr %mp
  %is_main = icmp eq i64 %me, %main
  br i1 %is_main, label %hear, label %plain
plain:
  %r0 = call i64 @walk(ptr %state, ptr %call)
  %kp = getelementptr i64, ptr %call, i64 $CALL_STOPPED$
  %cut0 = load atomic i64, ptr %kp monotonic, align 8
  %s0 = or i64 %r0, %cut0
  ret i64 %s0
hear:
  %np = getelementptr i64, ptr %call, i64 $CALL_SIGNALS$
  store i64 1, ptr %np
  %mask = call i64 @hear()
  %r1 = call i64 @walk(ptr %state, ptr %call)
  call void @hear_no_more(i64 %mask)
  store atomic i64 0, ptr @signal_words seq_cst, align 8
  %xp = call ptr @signal_word(i64 $RAISED$)
  %kind = load ptr, ptr %xp
  %fine = icmp eq ptr %kind, null
  br i1 %fine, label %usual, label %interrupted
usual:
  %cp = getelementptr i64, ptr %call, i64 $CALL_STOPPED$
  %cut1 = load atomic i64, ptr %cp monotonic, align 8
  %s1 = or i64 %r1, %cut1
  ret i64 %s1
interrupted:
  ret i64 $INTERRUPTED$
}"""

# sliced(args, tid, nthreads): args are the step's function, its arguments, the number of slices of each thread, the call, the
# number of arguments, which of them is scratch memory (-1: none), the bytes of scratch of one thread, and which argument is to
# hold the number of slices (-1: none). Slices of one thread come in order and share its scratch, so the address moves
# against the number of the thread that is played.
# whole(args, tid, nthreads): args are a step's function, its arguments, and the number of the thread that runs it.
WHOLE_TEXT = """
define internal void @whole(ptr %args, i64 %tid, i64 %nthreads) nounwind {
entry:
  %op = getelementptr i64, ptr %args, i64 2
  %owner = load i64, ptr %op
  %which = urem i64 %owner, %nthreads
  %mine = icmp eq i64 %which, %tid
  br i1 %mine, label %work, label %out
work:
  %f = load ptr, ptr %args
  %ap = getelementptr i64, ptr %args, i64 1
  %a = load ptr, ptr %ap
  call void %f(ptr %a, i64 0, i64 1)
  br label %out
out:
  ret void
}"""

SLICES_TEXT = """
define internal void @sliced(ptr %args, i64 %tid, i64 %nthreads) nounwind {
entry:
  %f = load ptr, ptr %args
  %ap = getelementptr i64, ptr %args, i64 1
  %a = load ptr, ptr %ap
  %kp = getelementptr i64, ptr %args, i64 2
  %k = load i64, ptr %kp
  %cp = getelementptr i64, ptr %args, i64 3
  %call = load ptr, ptr %cp
  %np = getelementptr i64, ptr %args, i64 4
  %count = load i64, ptr %np
  %ip = getelementptr i64, ptr %args, i64 5
  %index = load i64, ptr %ip
  %yp = getelementptr i64, ptr %args, i64 6
  %stride = load i64, ptr %yp
  %zp = getelementptr i64, ptr %args, i64 7
  %pieces = load i64, ptr %zp
  %in_pieces = icmp sge i64 %pieces, 0
  %own = alloca [$MOST_SLICED$ x i64], align 16
  %stop = getelementptr i64, ptr %call, i64 $CALL_STOPPED$
  %first = mul i64 %tid, %k
  %players = mul i64 %nthreads, %k
  %with_scratch = icmp sge i64 %index, 0
  %is_main = icmp eq i64 %tid, 0
  br label %copy
copy:
  %c = phi i64 [ 0, %entry ], [ %c1, %copying ]
  %copied = icmp uge i64 %c, %count
  br i1 %copied, label %ready, label %copying
copying:
  %from = getelementptr i64, ptr %a, i64 %c
  %word = load i64, ptr %from
  %to = getelementptr i64, ptr %own, i64 %c
  store i64 %word, ptr %to
  %c1 = add i64 %c, 1
  br label %copy
ready:
  br i1 %in_pieces, label %count_pieces, label %slice
count_pieces:
  %pp = getelementptr i64, ptr %own, i64 %pieces
  store i64 %k, ptr %pp
  br label %slice
slice:
  %j = phi i64 [ 0, %ready ], [ 0, %count_pieces ], [ %j1, %next ]
  %cut = load atomic i64, ptr %stop monotonic, align 8
  %left = icmp ne i64 %cut, 0
  br i1 %left, label %out, label %ask
ask:
  br i1 %is_main, label %main, label %play
main:
  %asked = call i1 @flagged(ptr %call)
  br i1 %asked, label %leave, label %play
leave:
  store atomic i64 1, ptr %stop seq_cst, align 8
  %wp = getelementptr i64, ptr %call, i64 $CALL_WATCHED$
  store ptr %stop, ptr %wp
  br label %out
play:
  %player = add i64 %first, %j
  br i1 %with_scratch, label %move, label %go
move:
  %sp = getelementptr i64, ptr %a, i64 %index
  %scratch = load i64, ptr %sp
  %ahead = sub i64 %player, %tid
  %bytes = mul i64 %ahead, %stride
  %moved = sub i64 %scratch, %bytes
  %mp = getelementptr i64, ptr %own, i64 %index
  store i64 %moved, ptr %mp
  br label %go
go:
  call void %f(ptr %own, i64 %player, i64 %players)
  br label %next
next:
  %j1 = add i64 %j, 1
  %more = icmp slt i64 %j1, %k
  br i1 %more, label %slice, label %out
out:
  ret void
}"""
