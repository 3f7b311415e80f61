"""A run from a dict of arrays to a list of arrays without Python code in between, as LLVM IR text.

`feed` is the C function behind a `PyCFunction` of one argument (METH_O): its first argument is an array of int64 that holds
the words of one call (`spmd_state.FEED_*`), its second the feed. Where the feed is a dict of plain arrays of exactly the types
and shapes that the words ask for it makes the results, runs the call (with the GIL released, if that took long the last
time) and returns a list of them.
In every other case, and wherever something goes wrong, it returns None having changed nothing: the caller then takes the
general way, which says what is wrong. An object that holds an array (`holders`) is as good as that. `again` is a function for
arrays that are bound to a call: it runs that once more. `intarsia.runtime.feed_call` makes the words, and looks first whether
objects of Python and NumPy are laid out as is read here.
"""

from __future__ import annotations

STATUS_SUM = """\
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i1, %look ]
  %any = phi i64 [ 0, %entry ], [ %any1, %look ]
  %left = icmp ult i64 %i, %n
  br i1 %left, label %look, label %out
look:
  %p = getelementptr i64, ptr %status, i64 %i
  %v = load i64, ptr %p
  store i64 0, ptr %p
  %any1 = or i64 %any, %v
  %i1 = add i64 %i, 1
  br label %test
out:
"""
"""Words of status from %status on, %n of them, as %any, and 0 afterwards: between blocks `entry` and `out`."""

FEED_TEXT = (
    """
define internal ptr @api(ptr %words, i64 %which) alwaysinline nounwind {
  %tp = getelementptr i64, ptr %words, i64 $FEED_API$
  %table = load ptr, ptr %tp
  %fp = getelementptr ptr, ptr %table, i64 %which
  %f = load ptr, ptr %fp
  ret ptr %f
}

; whether %object is an array of the type and rank that the row %row asks for, C-contiguous and aligned
define internal i1 @is_plain(ptr %words, ptr %row, ptr %object) alwaysinline nounwind {
entry:
  %kp = getelementptr i8, ptr %object, i64 $OBJECT_TYPE$
  %kind = load ptr, ptr %kp
  %ap = getelementptr i64, ptr %words, i64 $FEED_ARRAY_TYPE$
  %array = load ptr, ptr %ap
  %plain = icmp eq ptr %kind, %array
  br i1 %plain, label %typed, label %no
typed:
  %dp = getelementptr i8, ptr %object, i64 $ARRAY_DESCR$
  %descr = load ptr, ptr %dp
  %wp = getelementptr i64, ptr %row, i64 $ROW_DESCR$
  %want = load ptr, ptr %wp
  %same = icmp eq ptr %descr, %want
  %fp = getelementptr i8, ptr %object, i64 $ARRAY_FLAGS$
  %flags = load i32, ptr %fp
  %bits = and i32 %flags, 257
  %dense = icmp eq i32 %bits, 257
  %np = getelementptr i8, ptr %object, i64 $ARRAY_ND$
  %nd32 = load i32, ptr %np
  %nd = zext i32 %nd32 to i64
  %rp = getelementptr i64, ptr %row, i64 $ROW_ND$
  %rank = load i64, ptr %rp
  %ranked = icmp eq i64 %nd, %rank
  %both = and i1 %same, %dense
  %all = and i1 %both, %ranked
  br label %no
no:
  %r = phi i1 [ false, %entry ], [ %all, %typed ]
  ret i1 %r
}

; whether it has the shape that the row asks for, too
define internal i1 @as_expected(ptr %words, ptr %row, ptr %object) alwaysinline nounwind {
entry:
  %all = call i1 @is_plain(ptr %words, ptr %row, ptr %object)
  %rp = getelementptr i64, ptr %row, i64 $ROW_ND$
  %nd = load i64, ptr %rp
  br i1 %all, label %sized, label %no
sized:
  %sp = getelementptr i8, ptr %object, i64 $ARRAY_DIMS$
  %sizes = load ptr, ptr %sp
  %ep = getelementptr i64, ptr %row, i64 $ROW_DIMS$
  %expected = load ptr, ptr %ep
  br label %axis
axis:
  %i = phi i64 [ 0, %sized ], [ %i1, %next ]
  %left = icmp ult i64 %i, %nd
  br i1 %left, label %look, label %yes
look:
  %gp = getelementptr i64, ptr %sizes, i64 %i
  %given = load i64, ptr %gp
  %xp = getelementptr i64, ptr %expected, i64 %i
  %asked = load i64, ptr %xp
  %i1 = add i64 %i, 1
  %fits = icmp eq i64 %given, %asked
  br i1 %fits, label %next, label %no
next:
  br label %axis
yes:
  ret i1 true
no:
  ret i1 false
}

; a new array as the row %row has it, whose address goes to the row's slot; or null
define internal ptr @made(ptr %words, ptr %row) alwaysinline nounwind {
  %dp = getelementptr i64, ptr %row, i64 $ROW_DESCR$
  %descr = load ptr, ptr %dp
  %np = getelementptr i64, ptr %row, i64 $ROW_ND$
  %nd = load i64, ptr %np
  %sp = getelementptr i64, ptr %row, i64 $ROW_DIMS$
  %dims = load ptr, ptr %sp
  %bp = getelementptr i64, ptr %row, i64 $ROW_NBYTES$
  %nbytes = load i64, ptr %bp
  %slot_p = getelementptr i64, ptr %row, i64 $ROW_SLOT$
  %slot = load ptr, ptr %slot_p
  %r = call ptr @array_of(ptr %words, ptr %descr, i64 %nd, ptr %dims, i64 %nbytes, ptr %slot)
  ret ptr %r
}

; whether a step found something wrong with its data; the words that say so are 0 again afterwards
define internal i1 @faulty(ptr %words) alwaysinline nounwind {
entry:
  %sp = getelementptr i64, ptr %words, i64 $FEED_STATUS$
  %status = load ptr, ptr %sp
  %np = getelementptr i64, ptr %words, i64 $FEED_CHECKED$
  %n = load i64, ptr %np
"""
    + STATUS_SUM
    + """  %r = icmp ne i64 %any, 0
  ret i1 %r
}

; Branches of small steps go side by side where the last run was a moment ago, so that workers still wait: to wake them would
; take longer than such steps do. Otherwise the call walks the table in which they come one after the other.
define internal void @choose(ptr %words, ptr %pool, ptr %call) alwaysinline nounwind {
entry:
  %ap = getelementptr i64, ptr %words, i64 $FEED_ALONE$
  %alone = load ptr, ptr %ap
  %one = icmp eq ptr %alone, null
  br i1 %one, label %out, label %two
two:
  %bp = getelementptr i64, ptr %words, i64 $FEED_BEGUN$
  %begun = load i64, ptr %bp
  %now = call i64 @now(ptr %pool)
  store i64 %now, ptr %bp
  %since = sub i64 %now, %begun
  %late = icmp sge i64 %since, $MOMENT$
  %tp = getelementptr i64, ptr %words, i64 $FEED_TABLE$
  %table = load ptr, ptr %tp
  %chosen = select i1 %late, ptr %alone, ptr %table
  store ptr %chosen, ptr %call
  br label %out
out:
  ret void
}

; Runs the call; other threads of Python go on meanwhile, but where the last run was so short that handing the GIL over and
; back would take longer.
define internal i64 @briefly(ptr %words) nounwind {
entry:
  %pool_p = getelementptr i64, ptr %words, i64 $FEED_POOL$
  %pool = load ptr, ptr %pool_p
  %call_p = getelementptr i64, ptr %words, i64 $FEED_CALL$
  %call = load ptr, ptr %call_p
  call void @choose(ptr %words, ptr %pool, ptr %call)
  %took_p = getelementptr i64, ptr %words, i64 $FEED_TOOK$
  %took = load i64, ptr %took_p
  %long = icmp sge i64 %took, $BRIEF$
  br i1 %long, label %let_go, label %begin
let_go:
  %save = call ptr @api(ptr %words, i64 $API_RELEASE_GIL$)
  %saved = call ptr %save()
  br label %begin
begin:
  %thread = phi ptr [ null, %entry ], [ %saved, %let_go ]
  %begun = call i64 @now(ptr %pool)
  %status = call i64 @run(ptr %pool, ptr %call)
  %ended = call i64 @now(ptr %pool)
  br i1 %long, label %take, label %out
take:
  %restore = call ptr @api(ptr %words, i64 $API_TAKE_GIL$)
  call void %restore(ptr %thread)
  br label %out
out:
  %since = sub i64 %ended, %begun
  store i64 %since, ptr %took_p
  ret i64 %status
}

; the words that the function %self was made with
define internal ptr @words_of(ptr %self) alwaysinline nounwind {
  %p = getelementptr i8, ptr %self, i64 $ARRAY_DATA$
  %words = load ptr, ptr %p
  ret ptr %words
}

define internal void @keep(ptr %words, ptr %object) alwaysinline nounwind {
  %incref = call ptr @api(ptr %words, i64 $API_INCREF$)
  call void %incref(ptr %object)
  ret void
}

define internal void @drop(ptr %words, ptr %object) alwaysinline nounwind {
  %decref = call ptr @api(ptr %words, i64 $API_DECREF$)
  call void %decref(ptr %object)
  ret void
}

; forgets the exception that a function of the interpreter raised
define internal void @forget(ptr %words) alwaysinline nounwind {
  %clear = call ptr @api(ptr %words, i64 $API_CLEAR$)
  call void %clear()
  ret void
}

; an answer of the interpreter that is not needed, or null after an exception
define internal void @drop_answer(ptr %words, ptr %object) alwaysinline nounwind {
entry:
  %failed = icmp eq ptr %object, null
  br i1 %failed, label %raised, label %answered
raised:
  call void @forget(ptr %words)
  ret void
answered:
  call void @drop(ptr %words, ptr %object)
  ret void
}

; what a function returns: %object, or None in the place of null
define internal ptr @answer_of(ptr %words, ptr %object) alwaysinline nounwind {
entry:
  %nothing = icmp eq ptr %object, null
  br i1 %nothing, label %decline, label %out
decline:
  %p = getelementptr i64, ptr %words, i64 $FEED_NONE$
  %none = load ptr, ptr %p
  call void @keep(ptr %words, ptr %none)
  br label %out
out:
  %r = phi ptr [ %object, %entry ], [ %none, %decline ]
  ret ptr %r
}

; runs the call; whether that went wrong
define internal i1 @fails(ptr %words) alwaysinline nounwind {
  %status = call i64 @briefly(ptr %words)
  %stopped = icmp ne i64 %status, 0
  %fault = call i1 @faulty(ptr %words)
  %bad = or i1 %stopped, %fault
  ret i1 %bad
}

; what the feed %from has under the name of the row %row, out of an object that holds it, as a reference of its own; or null
define internal ptr @given(ptr %words, ptr %row, ptr %from) alwaysinline nounwind {
entry:
  %get = call ptr @api(ptr %words, i64 $API_GET_ITEM$)
  %name = load ptr, ptr %row
  %it = call ptr %get(ptr %from, ptr %name)
  %missing = icmp eq ptr %it, null
  br i1 %missing, label %unknown, label %found
unknown:
  call void @forget(ptr %words)
  ret ptr null
found:
  %holder_p = getelementptr i64, ptr %words, i64 $FEED_HOLDER$
  %holder = load ptr, ptr %holder_p
  %holds = load ptr, ptr %holder
  %tp = getelementptr i8, ptr %it, i64 $OBJECT_TYPE$
  %it_is = load ptr, ptr %tp
  %inside = icmp eq ptr %it_is, %holds
  br i1 %inside, label %look_inside, label %hold
look_inside:
  %place_p = getelementptr i64, ptr %holder, i64 $HOLDER_PLACE$
  %place = load i64, ptr %place_p
  %held_p = getelementptr i8, ptr %it, i64 %place
  %value = load ptr, ptr %held_p
  %empty = icmp eq ptr %value, null
  br i1 %empty, label %unknown, label %hold
hold:
  %x = phi ptr [ %it, %found ], [ %value, %look_inside ]
  call void @keep(ptr %words, ptr %x)
  ret ptr %x
}

; whether %feed is a dict of as many as the call takes, and nobody else is at work: then the call is claimed
define internal i1 @claimed(ptr %words, ptr %from) alwaysinline nounwind {
entry:
  %kp = getelementptr i8, ptr %from, i64 $OBJECT_TYPE$
  %kind = load ptr, ptr %kp
  %dict_p = getelementptr i64, ptr %words, i64 $FEED_DICT_TYPE$
  %dict = load ptr, ptr %dict_p
  %is_dict = icmp eq ptr %kind, %dict
  %busy = load i64, ptr %words
  %idle = icmp eq i64 %busy, 0
  %fit = and i1 %is_dict, %idle
  br i1 %fit, label %count, label %no
count:
  %size = call ptr @api(ptr %words, i64 $API_SIZE$)
  %many = call i64 %size(ptr %from)
  %ip = getelementptr i64, ptr %words, i64 $FEED_INPUTS$
  %inputs = load i64, ptr %ip
  %as_many = icmp eq i64 %many, %inputs
  br i1 %as_many, label %claim, label %no
claim:
  store i64 1, ptr %words
  ret i1 true
no:
  ret i1 false
}

; lets the first %count inputs go that are held, and gives up the claim
define internal void @let_go(ptr %words, i64 %count) alwaysinline nounwind {
entry:
  %hp = getelementptr i64, ptr %words, i64 $FEED_HELD$
  %held = load ptr, ptr %hp
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %letting ]
  %any = icmp ult i64 %k, %count
  br i1 %any, label %letting, label %done
letting:
  %p = getelementptr ptr, ptr %held, i64 %k
  %x = load ptr, ptr %p
  call void @drop(ptr %words, ptr %x)
  %k1 = add i64 %k, 1
  br label %next
done:
  store i64 0, ptr %words
  ret void
}

define internal ptr @feed(ptr %self, ptr %from) nounwind {
entry:
  %words = call ptr @words_of(ptr %self)
  %ours = call i1 @claimed(ptr %words, ptr %from)
  br i1 %ours, label %claim, label %decline
claim:
  %ip = getelementptr i64, ptr %words, i64 $FEED_INPUTS$
  %inputs = load i64, ptr %ip
  %op = getelementptr i64, ptr %words, i64 $FEED_OUTPUTS$
  %outputs = load i64, ptr %op
  %hp = getelementptr i64, ptr %words, i64 $FEED_HELD$
  %held = load ptr, ptr %hp
  %rows = getelementptr i64, ptr %words, i64 $FEED_ROWS$
  br label %input
input:
  %i = phi i64 [ 0, %claim ], [ %i1, %taken ]
  %row = phi ptr [ %rows, %claim ], [ %row1, %taken ]
  %more = icmp ult i64 %i, %inputs
  br i1 %more, label %find, label %prepare
find:
  %x = call ptr @given(ptr %words, ptr %row, ptr %from)
  %unknown = icmp eq ptr %x, null
  br i1 %unknown, label %give_up, label %hold
hold:
  %at = getelementptr ptr, ptr %held, i64 %i
  store ptr %x, ptr %at
  %i1 = add i64 %i, 1
  %good = call i1 @as_expected(ptr %words, ptr %row, ptr %x)
  br i1 %good, label %taken, label %give_up
taken:
  %xp = getelementptr i8, ptr %x, i64 $ARRAY_DATA$
  %address = load ptr, ptr %xp
  %slot_p = getelementptr i64, ptr %row, i64 $ROW_SLOT$
  %slot = load ptr, ptr %slot_p
  store ptr %address, ptr %slot
  %row1 = getelementptr i64, ptr %row, i64 $ROW_WORDS$
  br label %input
prepare:
  %new_list = call ptr @api(ptr %words, i64 $API_NEW_LIST$)
  %put = call ptr @api(ptr %words, i64 $API_SET_ITEM$)
  %list = call ptr %new_list(i64 %outputs)
  %poor = icmp eq ptr %list, null
  br i1 %poor, label %no_memory, label %output
output:
  %j = phi i64 [ 0, %prepare ], [ %j1, %listed ]
  %result_row = phi ptr [ %row, %prepare ], [ %result_row1, %listed ]
  %others = icmp ult i64 %j, %outputs
  br i1 %others, label %make, label %go
make:
  %y = call ptr @made(ptr %words, ptr %result_row)
  %not_made = icmp eq ptr %y, null
  br i1 %not_made, label %drop, label %listed
listed:
  %set = call i32 %put(ptr %list, i64 %j, ptr %y)
  %j1 = add i64 %j, 1
  %result_row1 = getelementptr i64, ptr %result_row, i64 $ROW_WORDS$
  br label %output
go:
  %bad = call i1 @fails(ptr %words)
  br i1 %bad, label %discard, label %finish
drop:
  call void @forget(ptr %words)
  br label %discard
discard:
  call void @drop(ptr %words, ptr %list)
  br label %finish
no_memory:
  call void @forget(ptr %words)
  br label %finish
give_up:
  %so_far = phi i64 [ %i, %find ], [ %i1, %hold ]
  br label %finish
finish:
  %taken_in = phi i64 [ %inputs, %go ], [ %inputs, %discard ], [ %inputs, %no_memory ], [ %so_far, %give_up ]
  %result = phi ptr [ %list, %go ], [ null, %discard ], [ null, %no_memory ], [ null, %give_up ]
  call void @let_go(ptr %words, i64 %taken_in)
  br label %decline
decline:
  %found_result = phi ptr [ null, %entry ], [ %result, %finish ]
  %answer = call ptr @answer_of(ptr %words, ptr %found_result)
  ret ptr %answer
}

; The same run on the same memory again, where nobody else is at it: True, or None where it did nothing or something went wrong.
define internal ptr @again(ptr %self, ptr %unused) nounwind {
entry:
  %words = call ptr @words_of(ptr %self)
  %ask = call ptr @api(ptr %words, i64 $API_CALL$)
  %true_p = getelementptr i64, ptr %words, i64 $AGAIN_TRUE$
  %true = load ptr, ptr %true_p
  %take_p = getelementptr i64, ptr %words, i64 $AGAIN_TAKE$
  %take = load ptr, ptr %take_p
  %arguments_p = getelementptr i64, ptr %words, i64 $AGAIN_ARGUMENTS$
  %arguments = load ptr, ptr %arguments_p
  %taken = call ptr %ask(ptr %take, ptr %arguments)
  call void @drop_answer(ptr %words, ptr %taken)
  %ours = icmp eq ptr %taken, %true
  br i1 %ours, label %go, label %deliver
go:
  %bad = call i1 @fails(ptr %words)
  %give_p = getelementptr i64, ptr %words, i64 $AGAIN_GIVE_BACK$
  %give = load ptr, ptr %give_p
  %given = call ptr %ask(ptr %give, ptr null)
  call void @drop_answer(ptr %words, ptr %given)
  br i1 %bad, label %deliver, label %well
well:
  call void @keep(ptr %words, ptr %true)
  br label %deliver
deliver:
  %r = phi ptr [ null, %entry ], [ null, %go ], [ %true, %well ]
  %answer = call ptr @answer_of(ptr %words, ptr %r)
  ret ptr %answer
}"""
)
