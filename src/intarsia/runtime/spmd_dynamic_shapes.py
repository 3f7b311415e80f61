"""A run from a dict of arrays to a list of arrays where sizes are dynamic, as LLVM IR text.

`open` is a C function as `spmd_feed`'s `feed` is, for a program whose sizes change from run to run. It looks at inputs, notes
their sizes and addresses, and asks a function of Python what the run is: that finds what these sizes were bound to, takes a
state for it, sets the words of the call and of its status, and returns the shapes of results as a tuple of pairs whose first
is a shape (None: the sizes are not known, and somebody else has to look at them). Results are made, the call is run, and
another function is told that it is over; what that raises is raised. Neither is called for sizes that stay, if the first one
said so, nor for those of a series that it laid out ahead, one after the other: then the state is settled here.
"""

from __future__ import annotations

OPEN_TEXT = """
; notes sizes and address of the input %x: number %i, of row %row; whether others of its kind have the same sizes
define internal i1 @note_input(ptr %words, ptr %row, ptr %x, i64 %i) alwaysinline nounwind {
entry:
  %ap = getelementptr i64, ptr %words, i64 $OPEN_ADDRESSES$
  %addresses = load ptr, ptr %ap
  %to = getelementptr ptr, ptr %addresses, i64 %i
  %xp = getelementptr i8, ptr %x, i64 $ARRAY_DATA$
  %address = load ptr, ptr %xp
  store ptr %address, ptr %to
  %np = getelementptr i64, ptr %row, i64 $ROW_ND$
  %nd = load i64, ptr %np
  %dp = getelementptr i64, ptr %row, i64 $ROW_DIMS$
  %dims = load ptr, ptr %dp
  %sp = getelementptr i8, ptr %x, i64 $ARRAY_DIMS$
  %sizes = load ptr, ptr %sp
  br label %axis
axis:
  %k = phi i64 [ 0, %entry ], [ %k1, %note ]
  %differs = phi i64 [ 0, %entry ], [ %differs1, %note ]
  %more = icmp ult i64 %k, %nd
  br i1 %more, label %note, label %decide
note:
  %gp = getelementptr i64, ptr %sizes, i64 %k
  %n = load i64, ptr %gp
  %kp = getelementptr i64, ptr %dims, i64 %k
  %was = load i64, ptr %kp
  store i64 %n, ptr %kp
  %bits = xor i64 %n, %was
  %differs1 = or i64 %differs, %bits
  %k1 = add i64 %k, 1
  br label %axis
decide:
  %equal = icmp eq i64 %differs, 0
  br i1 %equal, label %out, label %other
other:
  %same_p = getelementptr i64, ptr %words, i64 $OPEN_SAME$
  store i64 0, ptr %same_p
  %bp = getelementptr i64, ptr %row, i64 $ROW_NBYTES$
  %leads = load i64, ptr %bp
  %leading = icmp ne i64 %leads, 0
  br label %out
out:
  %r = phi i1 [ true, %decide ], [ %leading, %other ]
  ret i1 %r
}

; writes the inputs' addresses to where the call reads them
define internal void @give_addresses(ptr %words, ptr %externals) alwaysinline nounwind {
entry:
  %ap = getelementptr i64, ptr %words, i64 $OPEN_ADDRESSES$
  %addresses = load ptr, ptr %ap
  %ip = getelementptr i64, ptr %words, i64 $FEED_INPUTS$
  %inputs = load i64, ptr %ip
  %rows = getelementptr i64, ptr %words, i64 $OPEN_ROWS$
  br label %input
input:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %row = phi ptr [ %rows, %entry ], [ %row1, %next ]
  %more = icmp ult i64 %i, %inputs
  br i1 %more, label %look, label %out
look:
  %sp = getelementptr i64, ptr %row, i64 $ROW_SLOT$
  %slot = load i64, ptr %sp
  %unread = icmp slt i64 %slot, 0
  br i1 %unread, label %next, label %give
give:
  %from = getelementptr ptr, ptr %addresses, i64 %i
  %address = load ptr, ptr %from
  %to = getelementptr ptr, ptr %externals, i64 %slot
  store ptr %address, ptr %to
  br label %next
next:
  %i1 = add i64 %i, 1
  %row1 = getelementptr i64, ptr %row, i64 $ROW_WORDS$
  br label %input
out:
  ret void
}

; a list of new arrays of the shapes %kinds, whose addresses are written to where the call reads them; or null
define internal ptr @results_of(ptr %words, ptr %first, ptr %kinds, ptr %externals) nounwind {
entry:
  %dims = alloca [$MOST_AXES$ x i64]
  %op = getelementptr i64, ptr %words, i64 $FEED_OUTPUTS$
  %outputs = load i64, ptr %op
  %item = call ptr @api(ptr %words, i64 $API_TUPLE_ITEM$)
  %put = call ptr @api(ptr %words, i64 $API_SET_ITEM$)
  %new_list = call ptr @api(ptr %words, i64 $API_NEW_LIST$)
  %list = call ptr %new_list(i64 %outputs)
  %poor = icmp eq ptr %list, null
  br i1 %poor, label %no, label %output
output:
  %j = phi i64 [ 0, %entry ], [ %j1, %listed ]
  %row = phi ptr [ %first, %entry ], [ %row1, %listed ]
  %before = phi ptr [ null, %entry ], [ %shape, %listed ]
  %known = phi i64 [ 0, %entry ], [ %count, %listed ]
  %more = icmp ult i64 %j, %outputs
  br i1 %more, label %look, label %out
look:
  %which = load i64, ptr %row
  %kind = call ptr %item(ptr %kinds, i64 %which)
  %shape = call ptr %item(ptr %kind, i64 0)
  %np = getelementptr i64, ptr %row, i64 $ROW_ND$
  %nd = load i64, ptr %np
  %same = icmp eq ptr %shape, %before
  br i1 %same, label %make, label %read
read:
  %found = call i64 @sizes_of(ptr %words, ptr %shape, i64 %nd, ptr %dims)
  %wrong = icmp slt i64 %found, 0
  br i1 %wrong, label %drop, label %make
make:
  %count = phi i64 [ %known, %look ], [ %found, %read ]
  %bp = getelementptr i64, ptr %row, i64 $ROW_NBYTES$
  %each = load i64, ptr %bp
  %nbytes = mul i64 %count, %each
  %dp = getelementptr i64, ptr %row, i64 $ROW_DESCR$
  %descr = load ptr, ptr %dp
  %sp = getelementptr i64, ptr %row, i64 $ROW_SLOT$
  %slot = load i64, ptr %sp
  %to = getelementptr ptr, ptr %externals, i64 %slot
  %y = call ptr @array_of(ptr %words, ptr %descr, i64 %nd, ptr %dims, i64 %nbytes, ptr %to)
  %none = icmp eq ptr %y, null
  br i1 %none, label %drop, label %listed
listed:
  %set = call i32 %put(ptr %list, i64 %j, ptr %y)
  %j1 = add i64 %j, 1
  %row1 = getelementptr i64, ptr %row, i64 $ROW_WORDS$
  br label %output
drop:
  call void @drop(ptr %words, ptr %list)
  br label %no
no:
  call void @forget(ptr %words)
  ret ptr null
out:
  ret ptr %list
}

; runs the call for results of the shapes %kinds; a list of them, or null
define internal ptr @run_open(ptr %words, ptr %first, ptr %kinds) nounwind {
entry:
  %status_p = getelementptr i64, ptr %words, i64 $OPEN_STATUS$
  store i64 0, ptr %status_p
  %cp = getelementptr i64, ptr %words, i64 $FEED_CALL$
  %call = load ptr, ptr %cp
  %ep = getelementptr i64, ptr %call, i64 $CALL_EXTERNALS$
  %externals = load ptr, ptr %ep
  call void @give_addresses(ptr %words, ptr %externals)
  %list = call ptr @results_of(ptr %words, ptr %first, ptr %kinds, ptr %externals)
  %poor = icmp eq ptr %list, null
  br i1 %poor, label %out, label %go
go:
  %status = call i64 @briefly(ptr %words)
  store i64 %status, ptr %status_p
  %stopped = icmp ne i64 %status, 0
  %fault = call i1 @faulty(ptr %words)
  %bad = or i1 %stopped, %fault
  br i1 %bad, label %drop, label %out
drop:
  call void @drop(ptr %words, ptr %list)
  br label %out
out:
  %r = phi ptr [ null, %entry ], [ %list, %go ], [ null, %drop ]
  ret ptr %r
}

; whether the sizes at hand are those of the next row of a series: then the call's state is settled for them
define internal i1 @goes_on(ptr %words) alwaysinline nounwind {
entry:
  %np = getelementptr i64, ptr %words, i64 $OPEN_NEXT$
  %row = load ptr, ptr %np
  %none = icmp eq ptr %row, null
  br i1 %none, label %no, label %look
look:
  %sp = getelementptr i64, ptr %words, i64 $OPEN_SIZES$
  %sizes = load ptr, ptr %sp
  %cp = getelementptr i64, ptr %words, i64 $OPEN_COUNT$
  %count = load i64, ptr %cp
  %expected = getelementptr i64, ptr %row, i64 2
  br label %size
size:
  %k = phi i64 [ 0, %look ], [ %k1, %fits ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %compare, label %settle
compare:
  %gp = getelementptr i64, ptr %sizes, i64 %k
  %given = load i64, ptr %gp
  %ep = getelementptr i64, ptr %expected, i64 %k
  %wanted = load i64, ptr %ep
  %k1 = add i64 %k, 1
  %equal = icmp eq i64 %given, %wanted
  br i1 %equal, label %fits, label %no
fits:
  br label %size
settle:
  %binding = load ptr, ptr %row
  %told_p = getelementptr i64, ptr %words, i64 $OPEN_SETTLING$
  %told = load ptr, ptr %told_p
  store ptr %binding, ptr %told
  %fp = getelementptr i64, ptr %words, i64 $OPEN_SETTLE$
  %function = load ptr, ptr %fp
  call void %function(ptr %told, i64 $SETTLING$, i64 1)
  %results_p = getelementptr i64, ptr %row, i64 1
  %results = load ptr, ptr %results_p
  %kinds_p = getelementptr i64, ptr %words, i64 $OPEN_KINDS$
  store ptr %results, ptr %kinds_p
  %last_p = getelementptr i64, ptr %words, i64 $OPEN_LAST$
  %last = load ptr, ptr %last_p
  %over = icmp eq ptr %row, %last
  %behind = getelementptr i64, ptr %expected, i64 %count
  %next = select i1 %over, ptr null, ptr %behind
  store ptr %next, ptr %np
  ret i1 true
no:
  ret i1 false
}

define internal ptr @open(ptr %self, ptr %from) nounwind {
entry:
  %words = call ptr @words_of(ptr %self)
  %ours = call i1 @claimed(ptr %words, ptr %from)
  br i1 %ours, label %claim, label %decline
claim:
  %ip = getelementptr i64, ptr %words, i64 $FEED_INPUTS$
  %inputs = load i64, ptr %ip
  %hp = getelementptr i64, ptr %words, i64 $FEED_HELD$
  %held = load ptr, ptr %hp
  %none_p = getelementptr i64, ptr %words, i64 $FEED_NONE$
  %none = load ptr, ptr %none_p
  %rows = getelementptr i64, ptr %words, i64 $OPEN_ROWS$
  %ask = call ptr @api(ptr %words, i64 $API_CALL$)
  %valid_p = getelementptr i64, ptr %words, i64 $OPEN_VALID$
  %valid = load i64, ptr %valid_p
  store i64 0, ptr %valid_p
  %same_p = getelementptr i64, ptr %words, i64 $OPEN_SAME$
  store i64 %valid, ptr %same_p
  %stay_p = getelementptr i64, ptr %words, i64 $OPEN_KINDS$
  br label %input
input:
  %i = phi i64 [ 0, %claim ], [ %i1, %taken ]
  %row = phi ptr [ %rows, %claim ], [ %row1, %taken ]
  %more = icmp ult i64 %i, %inputs
  br i1 %more, label %find, label %compare
find:
  %x = call ptr @given(ptr %words, ptr %row, ptr %from)
  %unknown = icmp eq ptr %x, null
  br i1 %unknown, label %give_up, label %hold
hold:
  %at = getelementptr ptr, ptr %held, i64 %i
  store ptr %x, ptr %at
  %i1 = add i64 %i, 1
  %good = call i1 @is_plain(ptr %words, ptr %row, ptr %x)
  br i1 %good, label %taken, label %give_up
taken:
  %row1 = getelementptr i64, ptr %row, i64 $ROW_WORDS$
  %alike = call i1 @note_input(ptr %words, ptr %row, ptr %x, i64 %i)
  br i1 %alike, label %input, label %give_up
compare:
  %same = load i64, ptr %same_p
  %there = load ptr, ptr %stay_p
  %repeats = icmp ne i64 %same, 0
  %quiet_p = icmp ne ptr %there, null
  %asks_not = and i1 %repeats, %quiet_p
  br i1 %asks_not, label %go_on, label %follow
follow:
  %after = icmp eq i64 %valid, 1
  %moves = xor i1 %repeats, true
  %may = and i1 %after, %moves
  br i1 %may, label %step, label %begin
step:
  %follows = call i1 @goes_on(ptr %words)
  br i1 %follows, label %go_on, label %begin
go_on:
  %stays = load ptr, ptr %stay_p
  call void @keep(ptr %words, ptr %stays)
  br label %go
begin:
  %begin_p = getelementptr i64, ptr %words, i64 $OPEN_BEGIN$
  %ask_begin = load ptr, ptr %begin_p
  %asked_kinds = call ptr %ask(ptr %ask_begin, ptr null)
  %raised = icmp eq ptr %asked_kinds, null
  br i1 %raised, label %unready, label %asked
unready:
  call void @let_go(ptr %words, i64 %inputs)
  ret ptr null
asked:
  %unfit = icmp eq ptr %asked_kinds, %none
  br i1 %unfit, label %refused, label %go
refused:
  call void @drop(ptr %words, ptr %asked_kinds)
  br label %give_up
go:
  %kinds = phi ptr [ %asked_kinds, %asked ], [ %stays, %go_on ]
  store i64 1, ptr %valid_p
  %list = call ptr @run_open(ptr %words, ptr %row, ptr %kinds)
  call void @drop(ptr %words, ptr %kinds)
  %now_stays = load ptr, ptr %stay_p
  %bound = icmp ne ptr %now_stays, null
  %made = icmp ne ptr %list, null
  %silent = and i1 %bound, %made
  br i1 %silent, label %quiet, label %tell
quiet:
  call void @let_go(ptr %words, i64 %inputs)
  br label %decline
tell:
  store ptr null, ptr %stay_p
  %end_p = getelementptr i64, ptr %words, i64 $OPEN_END$
  %ask_end = load ptr, ptr %end_p
  %over = call ptr %ask(ptr %ask_end, ptr null)
  %broken = icmp eq ptr %over, null
  br i1 %broken, label %break, label %close
break:
  call void @let_go(ptr %words, i64 %inputs)
  %lost = icmp eq ptr %list, null
  br i1 %lost, label %raise, label %lose
lose:
  call void @drop(ptr %words, ptr %list)
  br label %raise
raise:
  ret ptr null
close:
  call void @drop(ptr %words, ptr %over)
  call void @let_go(ptr %words, i64 %inputs)
  br label %decline
give_up:
  %so_far = phi i64 [ %i, %find ], [ %i1, %hold ], [ %i1, %taken ], [ %inputs, %refused ]
  call void @let_go(ptr %words, i64 %so_far)
  br label %decline
decline:
  %r = phi ptr [ null, %entry ], [ null, %give_up ], [ %list, %close ], [ %list, %quiet ]
  %answer = call ptr @answer_of(ptr %words, ptr %r)
  ret ptr %answer
}"""
