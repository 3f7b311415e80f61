"""A run of one part in onnxruntime without Python, as LLVM IR text.

`compute` is OrtNodeComputeInfo's Compute. Behind the structure's fields stand the address of the first call that Python has
prepared (`native_call`) and that of the functions below. A call is for inputs of certain types and shapes; the first that is
not at work and fits the inputs is taken: inputs are read and results are written where onnxruntime has them, and the executor
runs the call's passes. What no call fits, or what goes wrong, Python does again, and says what is wrong.

Sizes for which there is no call are noted in one more call, for which Python says, without a look at any data, what these
sizes are bound to (`SETTLE`); all else is native there, too. Where it laid out a series of sizes to come (`size_series`), and
these come, it is not asked.

`claim` takes a call out of use for good, so that Python can write another into its words. `census` is what onnxruntime's
threads run once where nobody has said how many there are: each notes itself, and waits a moment for others.
"""

from __future__ import annotations

from intarsia.codegen.llvm.compile_ir import Effort
from intarsia.codegen.llvm.jit import KernelText, kernel_text
from intarsia.codegen.llvm.target import Target
from intarsia.plan import executor_abi
from intarsia.runtime import spmd_state
from intarsia.runtime.spmd_feed import STATUS_SUM
from intarsia.runtime.spmd_system import pause_text, system_text

FIRST_CALL, FUNCTIONS, OPEN_CALL = 24, 25, 26
"""Words of the structure: its first call, the address of the functions below, and the call for new sizes."""
GET_INPUT, GET_OUTPUT, GET_SHAPE, GET_DATA, RELEASE_STATUS, PYTHON, SETTLE, FUNCTION_WORDS = range(8)

# Words of a call: whether it is free, at work or out of use; the next call; the pool; the executor's function; rows of passes
# and how many; words of status that steps set and how many; numbers of inputs and outputs; when the last run began; then a row
# for each input and output: its place in onnxruntime's context, element type, rank, address of its sizes, the word that its
# address goes to, bytes, and whether an input's sizes are noted instead of compared.
BUSY, NEXT, POOL, RUN, PASSES, PASS_COUNT, STATUS, CHECKED, INPUTS, OUTPUTS, BEGUN = range(11)
# Of the open call besides: the next row of a series and the last, the function that settles a state for a binding and its
# arguments, the sizes of inputs and of results one after the other, and how many there are. A row of a series: the address of a
# binding, sizes of inputs, sizes of results, bytes of each input and result.
SERIES_NEXT, SERIES_LAST, SERIES_SETTLE, SERIES_ARGUMENTS, SIZES, INPUT_SIZES, RESULT_SIZES, ROWS = range(11, 19)
ROW_INDEX, ROW_TYPE, ROW_RANK, ROW_SIZES, ROW_SLOT, ROW_NBYTES, ROW_NOTES, ROW_WORDS = range(8)
FREE, AT_WORK, OUT_OF_USE = range(3)
# A pass is one call of the executor: its words, its table and the one for a time when workers sleep (or 0), and addresses that
# are other than in the pass before: where each goes, the word that it is counted from, and how far.
PASS_BLOCK, PASS_TABLE, PASS_ALONE, PASS_PLACES, PASS_PLACE_COUNT, PASS_WORDS = range(6)
PLACE_TO, PLACE_FROM, PLACE_OFFSET, PLACE_WORDS = range(4)
CENSUS_NOW, CENSUS_MOST, CENSUS_WANTED, CENSUS_ROUNDS = range(4)

_NAMES = """
FIRST_CALL FUNCTIONS GET_INPUT GET_OUTPUT GET_SHAPE GET_DATA RELEASE_STATUS PYTHON SETTLE OPEN_CALL ROW_NOTES NEXT POOL
RUN PASSES PASS_COUNT STATUS CHECKED INPUTS OUTPUTS BEGUN SERIES_NEXT SERIES_LAST SERIES_SETTLE SERIES_ARGUMENTS SIZES
INPUT_SIZES RESULT_SIZES ROWS ROW_TYPE ROW_RANK ROW_SIZES ROW_SLOT ROW_NBYTES ROW_WORDS
PASS_TABLE PASS_ALONE PASS_PLACES PASS_PLACE_COUNT PASS_WORDS PLACE_FROM PLACE_OFFSET PLACE_WORDS CENSUS_MOST
CENSUS_WANTED CENSUS_ROUNDS
""".split()


def compute_text(target: Target) -> KernelText:
    """OrtNodeComputeInfo's Compute for `target`."""
    _, _, clock = system_text(target)
    for name in ("CLOCK", "CLOCK_SCALE"):
        clock = clock.replace(f"${name}$", str(getattr(spmd_state, name)))
    parts = [clock, _WORD, _INPUT, _OUTPUT, _EXECUTOR_CALL, _FAULTY, _SERVE, _SERIES, _COMPUTE]
    return kernel_text("compute", _filled("\n".join(parts)), Effort.CONTROL)


def claim_text() -> KernelText:
    """`i64 claim(call)`: whether the call was free, and is out of use now."""
    return kernel_text("claim", _filled(_CLAIM), Effort.CONTROL)


def census_text(target: Target) -> KernelText:
    """`void census(words, number)`, one task of `CENSUS_WANTED`."""
    declaration, pause = pause_text(target)
    return kernel_text("census", _filled(_CENSUS.replace("$PAUSE$", pause) + "\n" + declaration), Effort.CONTROL)


def _filled(text: str) -> str:
    text = text.replace("$MOMENT$", str(executor_abi.MOMENT)).replace("$SETTLING$", str(spmd_state.SETTLING))
    for name in _NAMES:
        text = text.replace(f"${name}$", str(globals()[name]))
    return text


_WORD = """
define internal i64 @word(ptr %words, i64 %i) alwaysinline nounwind {
  %p = getelementptr i64, ptr %words, i64 %i
  %w = load i64, ptr %p
  ret i64 %w
}

define internal ptr @place(ptr %words, i64 %i) alwaysinline nounwind {
  %p = getelementptr i64, ptr %words, i64 %i
  %w = load ptr, ptr %p
  ret ptr %w
}

; whether a status is an error, which is forgotten: Python meets it again
define internal i1 @failed(ptr %functions, ptr %status) alwaysinline nounwind {
entry:
  %well = icmp eq ptr %status, null
  br i1 %well, label %out, label %forget
forget:
  %release = call ptr @place(ptr %functions, i64 $RELEASE_STATUS$)
  call void %release(ptr %status)
  br label %out
out:
  %bad = xor i1 %well, true
  ret i1 %bad
}

define internal void @let_go(ptr %call) alwaysinline nounwind {
  store atomic i64 0, ptr %call release, align 8
  ret void
}"""

# Whether an input is as the row says, or, where the row notes sizes, of the type and rank that it says; its address goes to
# the row's slot. %room: four words.
_INPUT = """
define internal i1 @fits(ptr %functions, ptr %row, ptr %context, ptr %room) nounwind {
entry:
  %get = call ptr @place(ptr %functions, i64 $GET_INPUT$)
  %index = load i64, ptr %row
  store ptr null, ptr %room
  %failed = call ptr %get(ptr %context, i64 %index, ptr %room)
  %value = load ptr, ptr %room
  %bad = call i1 @failed(ptr %functions, ptr %failed)
  %none = icmp eq ptr %value, null
  %lacks = or i1 %bad, %none
  br i1 %lacks, label %no, label %ask
ask:
  %kind_p = getelementptr i64, ptr %room, i64 1
  %sizes_p = getelementptr i64, ptr %room, i64 2
  %rank_p = getelementptr i64, ptr %room, i64 3
  store i64 0, ptr %kind_p
  %shape = call ptr @place(ptr %functions, i64 $GET_SHAPE$)
  %failed2 = call ptr %shape(ptr %value, ptr %kind_p, ptr %sizes_p, ptr %rank_p)
  %bad2 = call i1 @failed(ptr %functions, ptr %failed2)
  br i1 %bad2, label %no, label %compare
compare:
  %kind = load i64, ptr %kind_p
  %wanted_kind = call i64 @word(ptr %row, i64 $ROW_TYPE$)
  %same_kind = icmp eq i64 %kind, %wanted_kind
  %rank = load i64, ptr %rank_p
  %wanted_rank = call i64 @word(ptr %row, i64 $ROW_RANK$)
  %same_rank = icmp eq i64 %rank, %wanted_rank
  %same = and i1 %same_kind, %same_rank
  br i1 %same, label %sizes, label %no
sizes:
  %given = load ptr, ptr %sizes_p
  %wanted = call ptr @place(ptr %row, i64 $ROW_SIZES$)
  %notes = call i64 @word(ptr %row, i64 $ROW_NOTES$)
  %compares = icmp eq i64 %notes, 0
  br i1 %compares, label %axis, label %note
note:
  %k = phi i64 [ 0, %sizes ], [ %k1, %noting ]
  %unnoted = icmp ult i64 %k, %rank
  br i1 %unnoted, label %noting, label %take
noting:
  %size = call i64 @word(ptr %given, i64 %k)
  %to = getelementptr i64, ptr %wanted, i64 %k
  store i64 %size, ptr %to
  %k1 = add i64 %k, 1
  br label %note
axis:
  %i = phi i64 [ 0, %sizes ], [ %i1, %next ]
  %left = icmp ult i64 %i, %rank
  br i1 %left, label %look, label %take
look:
  %g = call i64 @word(ptr %given, i64 %i)
  %w = call i64 @word(ptr %wanted, i64 %i)
  %i1 = add i64 %i, 1
  %equal = icmp eq i64 %g, %w
  br i1 %equal, label %next, label %no
next:
  br label %axis
take:
  %data = call ptr @place(ptr %functions, i64 $GET_DATA$)
  %slot = call ptr @place(ptr %row, i64 $ROW_SLOT$)
  %failed3 = call ptr %data(ptr %value, ptr %slot)
  %bad3 = call i1 @failed(ptr %functions, ptr %failed3)
  %good = xor i1 %bad3, true
  ret i1 %good
no:
  ret i1 false
}"""

# Whether there is memory for a result that no input lies in; its address goes to the row's slot.
_OUTPUT = """
define internal i1 @given(ptr %functions, ptr %row, ptr %context, ptr %room, ptr %inputs, i64 %count) nounwind {
entry:
  %get = call ptr @place(ptr %functions, i64 $GET_OUTPUT$)
  %index = load i64, ptr %row
  %sizes = call ptr @place(ptr %row, i64 $ROW_SIZES$)
  %rank = call i64 @word(ptr %row, i64 $ROW_RANK$)
  store ptr null, ptr %room
  %failed = call ptr %get(ptr %context, i64 %index, ptr %sizes, i64 %rank, ptr %room)
  %value = load ptr, ptr %room
  %bad = call i1 @failed(ptr %functions, ptr %failed)
  %none = icmp eq ptr %value, null
  %lacks = or i1 %bad, %none
  br i1 %lacks, label %no, label %take
take:
  %data = call ptr @place(ptr %functions, i64 $GET_DATA$)
  %slot = call ptr @place(ptr %row, i64 $ROW_SLOT$)
  %failed2 = call ptr %data(ptr %value, ptr %slot)
  %bad2 = call i1 @failed(ptr %functions, ptr %failed2)
  br i1 %bad2, label %no, label %apart
apart:
  %start = load i64, ptr %slot
  %nbytes = call i64 @word(ptr %row, i64 $ROW_NBYTES$)
  %end = add i64 %start, %nbytes
  br label %input
input:
  %i = phi i64 [ 0, %apart ], [ %i1, %clear ]
  %other = phi ptr [ %inputs, %apart ], [ %other1, %clear ]
  %left = icmp ult i64 %i, %count
  br i1 %left, label %look, label %yes
look:
  %other_slot = call ptr @place(ptr %other, i64 $ROW_SLOT$)
  %other_start = load i64, ptr %other_slot
  %other_nbytes = call i64 @word(ptr %other, i64 $ROW_NBYTES$)
  %other_end = add i64 %other_start, %other_nbytes
  %before = icmp ule i64 %other_end, %start
  %behind = icmp ule i64 %end, %other_start
  %apart_from = or i1 %before, %behind
  br i1 %apart_from, label %clear, label %no
clear:
  %i1 = add i64 %i, 1
  %other1 = getelementptr i64, ptr %other, i64 $ROW_WORDS$
  br label %input
yes:
  ret i1 true
no:
  ret i1 false
}"""

# Runs one pass; what the executor returns. %late: workers sleep.
_EXECUTOR_CALL = """
define internal i64 @pass(ptr %call, ptr %row, i1 %late) nounwind {
entry:
  %block = load ptr, ptr %row
  %alone = call ptr @place(ptr %row, i64 $PASS_ALONE$)
  %one = icmp eq ptr %alone, null
  br i1 %one, label %settle, label %choose
choose:
  %table = call ptr @place(ptr %row, i64 $PASS_TABLE$)
  %chosen = select i1 %late, ptr %alone, ptr %table
  store ptr %chosen, ptr %block
  br label %settle
settle:
  %places = call ptr @place(ptr %row, i64 $PASS_PLACES$)
  %count = call i64 @word(ptr %row, i64 $PASS_PLACE_COUNT$)
  br label %next
next:
  %i = phi i64 [ 0, %settle ], [ %i1, %write ]
  %at = phi ptr [ %places, %settle ], [ %at1, %write ]
  %left = icmp ult i64 %i, %count
  br i1 %left, label %write, label %go
write:
  %to = load ptr, ptr %at
  %from = call ptr @place(ptr %at, i64 $PLACE_FROM$)
  %start = load i64, ptr %from
  %offset = call i64 @word(ptr %at, i64 $PLACE_OFFSET$)
  %address = add i64 %start, %offset
  store i64 %address, ptr %to
  %i1 = add i64 %i, 1
  %at1 = getelementptr i64, ptr %at, i64 $PLACE_WORDS$
  br label %next
go:
  %run = call ptr @place(ptr %call, i64 $RUN$)
  %pool = call ptr @place(ptr %call, i64 $POOL$)
  %r = call i64 %run(ptr %pool, ptr %block)
  ret i64 %r
}

; whether branches of small steps would have to wake workers: the last run was not a moment ago
define internal i1 @is_late(ptr %call, ptr %room) nounwind {
  %pool = call ptr @place(ptr %call, i64 $POOL$)
  call void @stamp(ptr %pool, ptr %room, i64 0)
  %now = load i64, ptr %room
  %bp = getelementptr i64, ptr %call, i64 $BEGUN$
  %begun = load i64, ptr %bp
  store i64 %now, ptr %bp
  %since = sub i64 %now, %begun
  %late = icmp sge i64 %since, $MOMENT$
  ret i1 %late
}"""

_FAULTY = (
    """
define internal i64 @faulty(ptr %call) nounwind {
entry:
  %status = call ptr @place(ptr %call, i64 $STATUS$)
  %n = call i64 @word(ptr %call, i64 $CHECKED$)
"""
    + STATUS_SUM
    + """  ret i64 %any
}"""
)

# Runs a call whose inputs are read: results are made, and its passes follow each other. Whether all went well; the call is
# free then.
_SERVE = """
define internal i1 @serve(ptr %functions, ptr %call, ptr %context, ptr %room) nounwind {
entry:
  %rows = getelementptr i64, ptr %call, i64 $ROWS$
  %inputs = call i64 @word(ptr %call, i64 $INPUTS$)
  %outputs = call i64 @word(ptr %call, i64 $OUTPUTS$)
  %skipped = mul i64 %inputs, $ROW_WORDS$
  %first = getelementptr i64, ptr %rows, i64 %skipped
  br label %output
output:
  %j = phi i64 [ 0, %entry ], [ %j1, %made ]
  %result = phi ptr [ %first, %entry ], [ %result1, %made ]
  %wanted = icmp ult i64 %j, %outputs
  br i1 %wanted, label %make, label %go
make:
  %well = call i1 @given(ptr %functions, ptr %result, ptr %context, ptr %room, ptr %rows, i64 %inputs)
  br i1 %well, label %made, label %give_up
made:
  %j1 = add i64 %j, 1
  %result1 = getelementptr i64, ptr %result, i64 $ROW_WORDS$
  br label %output
go:
  %passes = call ptr @place(ptr %call, i64 $PASSES$)
  %count = call i64 @word(ptr %call, i64 $PASS_COUNT$)
  %late = call i1 @is_late(ptr %call, ptr %room)
  br label %pass
pass:
  %k = phi i64 [ 0, %go ], [ %k1, %done ]
  %at = phi ptr [ %passes, %go ], [ %at1, %done ]
  %others = icmp ult i64 %k, %count
  br i1 %others, label %run, label %end
run:
  %sleeping = icmp eq i64 %k, 0
  %wake = and i1 %late, %sleeping
  %stopped = call i64 @pass(ptr %call, ptr %at, i1 %wake)
  %went = icmp eq i64 %stopped, 0
  br i1 %went, label %done, label %give_up
done:
  %k1 = add i64 %k, 1
  %at1 = getelementptr i64, ptr %at, i64 $PASS_WORDS$
  br label %pass
end:
  %wrong = call i64 @faulty(ptr %call)
  call void @let_go(ptr %call)
  %right = icmp eq i64 %wrong, 0
  ret i1 %right
give_up:
  call void @let_go(ptr %call)
  ret i1 false
}

; whether all inputs fit the call
define internal i1 @all_fit(ptr %functions, ptr %call, ptr %context, ptr %room) nounwind {
entry:
  %rows = getelementptr i64, ptr %call, i64 $ROWS$
  %inputs = call i64 @word(ptr %call, i64 $INPUTS$)
  br label %input
input:
  %i = phi i64 [ 0, %entry ], [ %i1, %fitting ]
  %row = phi ptr [ %rows, %entry ], [ %row1, %fitting ]
  %more = icmp ult i64 %i, %inputs
  br i1 %more, label %look, label %yes
look:
  %fit = call i1 @fits(ptr %functions, ptr %row, ptr %context, ptr %room)
  br i1 %fit, label %fitting, label %no
fitting:
  %i1 = add i64 %i, 1
  %row1 = getelementptr i64, ptr %row, i64 $ROW_WORDS$
  br label %input
yes:
  ret i1 true
no:
  ret i1 false
}"""

# Whether the sizes that the open call noted are those of the next row of a series: then its state is settled for them, and its
# rows have the sizes of results.
_SERIES = """
define internal void @copied(ptr %to, ptr %from, i64 %count) alwaysinline nounwind {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %copy ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %copy, label %out
copy:
  %w = call i64 @word(ptr %from, i64 %i)
  %p = getelementptr i64, ptr %to, i64 %i
  store i64 %w, ptr %p
  %i1 = add i64 %i, 1
  br label %next
out:
  ret void
}

define internal i1 @goes_on(ptr %call) nounwind {
entry:
  %row = call ptr @place(ptr %call, i64 $SERIES_NEXT$)
  %none = icmp eq ptr %row, null
  br i1 %none, label %no, label %look
look:
  %sizes = call ptr @place(ptr %call, i64 $SIZES$)
  %count = call i64 @word(ptr %call, i64 $INPUT_SIZES$)
  %expected = getelementptr i64, ptr %row, i64 1
  br label %size
size:
  %k = phi i64 [ 0, %look ], [ %k1, %compare ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %compare, label %settle
compare:
  %given = call i64 @word(ptr %sizes, i64 %k)
  %wanted = call i64 @word(ptr %expected, i64 %k)
  %k1 = add i64 %k, 1
  %equal = icmp eq i64 %given, %wanted
  br i1 %equal, label %size, label %no
settle:
  %binding = load ptr, ptr %row
  %arguments = call ptr @place(ptr %call, i64 $SERIES_ARGUMENTS$)
  store ptr %binding, ptr %arguments
  %function = call ptr @place(ptr %call, i64 $SERIES_SETTLE$)
  call void %function(ptr %arguments, i64 $SETTLING$, i64 1)
  %made = call i64 @word(ptr %call, i64 $RESULT_SIZES$)
  %made_from = getelementptr i64, ptr %expected, i64 %count
  %made_to = getelementptr i64, ptr %sizes, i64 %count
  call void @copied(ptr %made_to, ptr %made_from, i64 %made)
  %nbytes = getelementptr i64, ptr %made_from, i64 %made
  %inputs = call i64 @word(ptr %call, i64 $INPUTS$)
  %outputs = call i64 @word(ptr %call, i64 $OUTPUTS$)
  %all = add i64 %inputs, %outputs
  %rows = getelementptr i64, ptr %call, i64 $ROWS$
  br label %tensor
tensor:
  %i = phi i64 [ 0, %settle ], [ %i1, %set ]
  %at = phi ptr [ %rows, %settle ], [ %at1, %set ]
  %left = icmp ult i64 %i, %all
  br i1 %left, label %set, label %step
set:
  %n = call i64 @word(ptr %nbytes, i64 %i)
  %np = getelementptr i64, ptr %at, i64 $ROW_NBYTES$
  store i64 %n, ptr %np
  %i1 = add i64 %i, 1
  %at1 = getelementptr i64, ptr %at, i64 $ROW_WORDS$
  br label %tensor
step:
  %last = call ptr @place(ptr %call, i64 $SERIES_LAST$)
  %over = icmp eq ptr %row, %last
  %behind = getelementptr i64, ptr %nbytes, i64 %all
  %next = select i1 %over, ptr null, ptr %behind
  %next_p = getelementptr i64, ptr %call, i64 $SERIES_NEXT$
  store ptr %next, ptr %next_p
  ret i1 true
no:
  ret i1 false
}"""

_COMPUTE = """
define ptr @__SYMBOL__(ptr %this, ptr %state, ptr %context) nounwind {
entry:
  %room = alloca [4 x i64]
  %fp = getelementptr ptr, ptr %this, i64 $FUNCTIONS$
  %functions = load ptr, ptr %fp
  %cp = getelementptr ptr, ptr %this, i64 $FIRST_CALL$
  %first = load atomic ptr, ptr %cp acquire, align 8
  br label %try
try:
  %call = phi ptr [ %first, %entry ], [ %other, %next ]
  %nothing = icmp eq ptr %call, null
  br i1 %nothing, label %look, label %take
take:
  %claimed = cmpxchg ptr %call, i64 0, i64 1 acquire monotonic
  %ours = extractvalue { i64, i1 } %claimed, 1
  br i1 %ours, label %begin, label %next
next:
  %np = getelementptr ptr, ptr %call, i64 $NEXT$
  %other = load atomic ptr, ptr %np acquire, align 8
  br label %try
begin:
  %fit = call i1 @all_fit(ptr %functions, ptr %call, ptr %context, ptr %room)
  br i1 %fit, label %run, label %unlike
unlike:
  call void @let_go(ptr %call)
  br label %next
run:
  %well = call i1 @serve(ptr %functions, ptr %call, ptr %context, ptr %room)
  br i1 %well, label %out, label %python
look:
  %op = getelementptr ptr, ptr %this, i64 $OPEN_CALL$
  %open = load atomic ptr, ptr %op acquire, align 8
  %none = icmp eq ptr %open, null
  br i1 %none, label %python, label %take_open
take_open:
  %claimed_open = cmpxchg ptr %open, i64 0, i64 1 acquire monotonic
  %open_ours = extractvalue { i64, i1 } %claimed_open, 1
  br i1 %open_ours, label %note, label %python
note:
  %noted = call i1 @all_fit(ptr %functions, ptr %open, ptr %context, ptr %room)
  br i1 %noted, label %follow, label %cannot
follow:
  %follows = call i1 @goes_on(ptr %open)
  br i1 %follows, label %run_open, label %ask
ask:
  %settle = call ptr @place(ptr %functions, i64 $SETTLE$)
  %error = call ptr %settle(ptr %this, ptr %open)
  %good = icmp eq ptr %error, null
  br i1 %good, label %settled, label %wrong
wrong:
  call void @let_go(ptr %open)
  ret ptr %error
settled:
  %ready = call i64 @word(ptr %open, i64 $PASS_COUNT$)
  %may = icmp ne i64 %ready, 0
  br i1 %may, label %run_open, label %cannot
run_open:
  %well_open = call i1 @serve(ptr %functions, ptr %open, ptr %context, ptr %room)
  br i1 %well_open, label %out, label %python
cannot:
  call void @let_go(ptr %open)
  br label %python
python:
  %general = call ptr @place(ptr %functions, i64 $PYTHON$)
  %answer = call ptr %general(ptr %this, ptr %state, ptr %context)
  ret ptr %answer
out:
  ret ptr null
}"""

_CLAIM = """
define i64 @__SYMBOL__(ptr %call) nounwind {
  %claimed = cmpxchg ptr %call, i64 0, i64 2 acquire monotonic
  %ours = extractvalue { i64, i1 } %claimed, 1
  %r = zext i1 %ours to i64
  ret i64 %r
}"""

_CENSUS = """
define void @__SYMBOL__(ptr %words, i64 %number) nounwind {
entry:
  %mp = getelementptr i64, ptr %words, i64 $CENSUS_MOST$
  %wp = getelementptr i64, ptr %words, i64 $CENSUS_WANTED$
  %rp = getelementptr i64, ptr %words, i64 $CENSUS_ROUNDS$
  %wanted = load i64, ptr %wp
  %rounds = load i64, ptr %rp
  %before = atomicrmw add ptr %words, i64 1 seq_cst
  %now = add i64 %before, 1
  %noted = atomicrmw max ptr %mp, i64 %now seq_cst
  br label %wait
wait:
  %i = phi i64 [ 0, %entry ], [ %i1, %look ]
  %patient = icmp ult i64 %i, %rounds
  br i1 %patient, label %look, label %out
look:
  $PAUSE$
  %i1 = add i64 %i, 1
  %most = load atomic i64, ptr %mp monotonic, align 8
  %all = icmp uge i64 %most, %wanted
  br i1 %all, label %out, label %wait
out:
  %gone = atomicrmw sub ptr %words, i64 1 seq_cst
  ret void
}"""
