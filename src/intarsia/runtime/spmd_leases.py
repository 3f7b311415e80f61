"""Memory of large results, which comes back when the array that lies in it is gone, as LLVM IR text.

A result of `2 ** spmd_state.LEAST_ROOM` bytes and more is an array without memory of its own: its base is a capsule, whose
destructor (`give_back`) puts the block under it into a list of blocks of its kind, newest first, for the next result. All of
it runs with the GIL, so a list needs no lock. Blocks that no result took while `spmd_state.MOST_IDLE` others came back are
freed: those that a growing cache has outgrown. What a block says of itself lies in front of its elements; what is retained, and
how much of it, in the words of the memory (`spmd_state.LEASE_*`). `intarsia.plan.result_pool` tells which sizes blocks have.
"""

from __future__ import annotations

LEASES_TEXT = """
declare i64 @llvm.ctlz.i64(i64, i1)

define internal ptr @lease_api(ptr %memory, i64 %which) alwaysinline nounwind {
  %tp = getelementptr i64, ptr %memory, i64 $LEASE_API$
  %table = load ptr, ptr %tp
  %fp = getelementptr ptr, ptr %table, i64 %which
  %f = load ptr, ptr %fp
  ret ptr %f
}

; the list of blocks of a kind: the one that came back last, then the first
define internal ptr @blocks(ptr %memory, i64 %kind) alwaysinline nounwind {
  %twice = shl i64 %kind, 1
  %i = add i64 %twice, $LEASE_LISTS$
  %p = getelementptr i64, ptr %memory, i64 %i
  ret ptr %p
}

define internal void @count_kept(ptr %memory, i64 %nbytes) alwaysinline nounwind {
  %p = getelementptr i64, ptr %memory, i64 $LEASE_RETAINED$
  %kept = load i64, ptr %p
  %now = add i64 %kept, %nbytes
  store i64 %now, ptr %p
  ret void
}

; takes a block out of the list of its kind
define internal void @unlink(ptr %memory, ptr %block) alwaysinline nounwind {
  %kp = getelementptr i64, ptr %block, i64 $BLOCK_KIND$
  %kind = load i64, ptr %kp
  %newest = call ptr @blocks(ptr %memory, i64 %kind)
  %oldest = getelementptr ptr, ptr %newest, i64 1
  %op = getelementptr i64, ptr %block, i64 $BLOCK_OLDER$
  %older = load ptr, ptr %op
  %np = getelementptr i64, ptr %block, i64 $BLOCK_NEWER$
  %newer = load ptr, ptr %np
  %first = icmp eq ptr %newer, null
  %of_newer = getelementptr i64, ptr %newer, i64 $BLOCK_OLDER$
  %before = select i1 %first, ptr %newest, ptr %of_newer
  store ptr %older, ptr %before
  %last = icmp eq ptr %older, null
  %of_older = getelementptr i64, ptr %older, i64 $BLOCK_NEWER$
  %behind = select i1 %last, ptr %oldest, ptr %of_older
  store ptr %newer, ptr %behind
  %wp = getelementptr i64, ptr %block, i64 $BLOCK_WRITTEN$
  %written = load i64, ptr %wp
  %less = sub i64 0, %written
  call void @count_kept(ptr %memory, i64 %less)
  ret void
}

define internal void @free_block(ptr %memory, ptr %block) alwaysinline nounwind {
  %rp = getelementptr i64, ptr %block, i64 $BLOCK_RAW$
  %raw = load ptr, ptr %rp
  %free = call ptr @lease_api(ptr %memory, i64 $API_FREE$)
  call void %free(ptr %raw)
  ret void
}

; frees the block that came back first of all, if that was before number %before; whether it did
define internal i1 @evict(ptr %memory, i64 %before) nounwind {
entry:
  br label %next
next:
  %kind = phi i64 [ 0, %entry ], [ %kind1, %seen ]
  %best = phi ptr [ null, %entry ], [ %best1, %seen ]
  %least = phi i64 [ %before, %entry ], [ %least1, %seen ]
  %more = icmp ult i64 %kind, $LEASE_KINDS$
  br i1 %more, label %look, label %decide
look:
  %newest = call ptr @blocks(ptr %memory, i64 %kind)
  %oldest = getelementptr ptr, ptr %newest, i64 1
  %block = load ptr, ptr %oldest
  %none = icmp eq ptr %block, null
  br i1 %none, label %seen, label %compare
compare:
  %np = getelementptr i64, ptr %block, i64 $BLOCK_NUMBER$
  %number = load i64, ptr %np
  %sooner = icmp ult i64 %number, %least
  %b = select i1 %sooner, ptr %block, ptr %best
  %n = select i1 %sooner, i64 %number, i64 %least
  br label %seen
seen:
  %best1 = phi ptr [ %best, %look ], [ %b, %compare ]
  %least1 = phi i64 [ %least, %look ], [ %n, %compare ]
  %kind1 = add i64 %kind, 1
  br label %next
decide:
  %nothing = icmp eq ptr %best, null
  br i1 %nothing, label %out, label %free
free:
  call void @unlink(ptr %memory, ptr %best)
  call void @free_block(ptr %memory, ptr %best)
  br label %out
out:
  %done = phi i1 [ false, %decide ], [ true, %free ]
  ret i1 %done
}

define internal void @evict_all(ptr %memory) nounwind {
entry:
  br label %next
next:
  %more = call i1 @evict(ptr %memory, i64 -1)
  br i1 %more, label %next, label %out
out:
  ret void
}

; a block with room for %nbytes; null where there is none. Its size is a power of two, or some eighths of one more.
define internal ptr @lease(ptr %memory, i64 %nbytes) nounwind {
entry:
  %last = sub i64 %nbytes, 1
  %zeros = call i64 @llvm.ctlz.i64(i64 %last, i1 false)
  %bits = sub i64 64, %zeros
  %whole = shl i64 1, %bits
  %plain = sub i64 %bits, $LEAST_ROOM$
  %shift = sub i64 %bits, 4
  %down = lshr i64 %last, %shift
  %eighths = add i64 %down, 1
  %some = shl i64 %eighths, %shift
  %past = sub i64 %bits, $MOST_ROOMY$
  %rows = shl i64 %past, 3
  %at = add i64 %rows, %eighths
  %first = sub i64 %at, 16
  %base = sub i64 $MOST_ROOMY$, $LEAST_ROOM$
  %fine = add i64 %first, %base
  %roomy = icmp ule i64 %bits, $MOST_ROOMY$
  %kind0 = select i1 %roomy, i64 %plain, i64 %fine
  %size = select i1 %roomy, i64 %whole, i64 %some
  %large = icmp ugt i64 %bits, $MOST_ROOM$
  %kind = select i1 %large, i64 -1, i64 %kind0
  br i1 %large, label %make, label %look
look:
  %list = call ptr @blocks(ptr %memory, i64 %kind)
  %there = load ptr, ptr %list
  %none = icmp eq ptr %there, null
  br i1 %none, label %make, label %take
take:
  call void @unlink(ptr %memory, ptr %there)
  %wp = getelementptr i64, ptr %there, i64 $BLOCK_WRITTEN$
  %written = load i64, ptr %wp
  %more = icmp ult i64 %written, %nbytes
  %now = select i1 %more, i64 %nbytes, i64 %written
  store i64 %now, ptr %wp
  ret ptr %there
make:
  %malloc = call ptr @lease_api(ptr %memory, i64 $API_MALLOC$)
  %room = add i64 %size, 128
  %given = call ptr %malloc(i64 %room)
  %refused = icmp eq ptr %given, null
  br i1 %refused, label %less, label %begin
less:
  call void @evict_all(ptr %memory)
  %again = call ptr %malloc(i64 %room)
  %poor = icmp eq ptr %again, null
  br i1 %poor, label %out, label %begin
begin:
  %raw = phi ptr [ %given, %make ], [ %again, %less ]
  %address = ptrtoint ptr %raw to i64
  %behind = add i64 %address, 63
  %line = and i64 %behind, -64
  %block = inttoptr i64 %line to ptr
  store ptr %raw, ptr %block
  %kp = getelementptr i64, ptr %block, i64 $BLOCK_KIND$
  store i64 %kind, ptr %kp
  %mp = getelementptr i64, ptr %block, i64 $BLOCK_MEMORY$
  store ptr %memory, ptr %mp
  %np = getelementptr i64, ptr %block, i64 $BLOCK_WRITTEN$
  store i64 %nbytes, ptr %np
  ret ptr %block
out:
  ret ptr null
}

; the destructor of the capsule around a block's elements
define internal void @give_back(ptr %capsule) nounwind {
entry:
  %pp = getelementptr i8, ptr %capsule, i64 $ARRAY_DATA$
  %elements = load ptr, ptr %pp
  %block = getelementptr i64, ptr %elements, i64 -8
  %mp = getelementptr i64, ptr %block, i64 $BLOCK_MEMORY$
  %memory = load ptr, ptr %mp
  %kp = getelementptr i64, ptr %block, i64 $BLOCK_KIND$
  %kind = load i64, ptr %kp
  %wp = getelementptr i64, ptr %block, i64 $BLOCK_WRITTEN$
  %written = load i64, ptr %wp
  %limit_p = getelementptr i64, ptr %memory, i64 $LEASE_MOST$
  %most = load i64, ptr %limit_p
  %large = icmp ugt i64 %written, %most
  %not_kept = icmp slt i64 %kind, 0
  %away = or i1 %large, %not_kept
  br i1 %away, label %free, label %link
free:
  call void @free_block(ptr %memory, ptr %block)
  ret void
link:
  %tick_p = getelementptr i64, ptr %memory, i64 $LEASE_NUMBER$
  %tick = load i64, ptr %tick_p
  %number = add i64 %tick, 1
  store i64 %number, ptr %tick_p
  %np = getelementptr i64, ptr %block, i64 $BLOCK_NUMBER$
  store i64 %number, ptr %np
  %newest = call ptr @blocks(ptr %memory, i64 %kind)
  %oldest = getelementptr ptr, ptr %newest, i64 1
  %before = load ptr, ptr %newest
  %op = getelementptr i64, ptr %block, i64 $BLOCK_OLDER$
  store ptr %before, ptr %op
  %newer_p = getelementptr i64, ptr %block, i64 $BLOCK_NEWER$
  store ptr null, ptr %newer_p
  %alone = icmp eq ptr %before, null
  %of_before = getelementptr i64, ptr %before, i64 $BLOCK_NEWER$
  %from = select i1 %alone, ptr %oldest, ptr %of_before
  store ptr %block, ptr %from
  store ptr %block, ptr %newest
  call void @count_kept(ptr %memory, i64 %written)
  br label %next
next:
  %kept_p = getelementptr i64, ptr %memory, i64 $LEASE_RETAINED$
  %kept = load i64, ptr %kept_p
  %over = icmp ugt i64 %kept, %most
  br i1 %over, label %more, label %count
more:
  %freed = call i1 @evict(ptr %memory, i64 -1)
  br i1 %freed, label %next, label %count
count:
  %part = and i64 %number, $IDLE_LOOK$
  %now = icmp eq i64 %part, 0
  %late = icmp ugt i64 %number, $MOST_IDLE$
  %look = and i1 %now, %late
  br i1 %look, label %idle, label %out
idle:
  %since = sub i64 %number, $MOST_IDLE$
  %gone = call i1 @evict(ptr %memory, i64 %since)
  br i1 %gone, label %idle, label %out
out:
  ret void
}

; a new array of %nbytes bytes, whose elements' address goes to %slot: a view of another one that has its memory, or, where it
; is large, of a capsule; or null
define internal ptr @array_of(ptr %words, ptr %descr, i64 %nd, ptr %dims, i64 %nbytes, ptr %slot) nounwind {
entry:
  %ap = getelementptr i64, ptr %words, i64 $FEED_ARRAY_TYPE$
  %array = load ptr, ptr %ap
  %nd32 = trunc i64 %nd to i32
  %new = call ptr @api(ptr %words, i64 $API_NEW_ARRAY$)
  %set_base = call ptr @api(ptr %words, i64 $API_SET_BASE$)
  %least = shl i64 1, $LEAST_ROOM$
  %small = icmp ult i64 %nbytes, %least
  call void @keep(ptr %words, ptr %descr)
  br i1 %small, label %own, label %leased
own:
  %whole = call ptr %new(ptr %array, ptr %descr, i32 %nd32, ptr %dims, ptr null, ptr null, i32 0, ptr null)
  %none = icmp eq ptr %whole, null
  br i1 %none, label %out, label %owned
owned:
  %bp = getelementptr i8, ptr %whole, i64 $ARRAY_DATA$
  %inside = load ptr, ptr %bp
  call void @keep(ptr %words, ptr %descr)
  br label %view
leased:
  %lp = getelementptr i64, ptr %words, i64 $FEED_LEASES$
  %memory = load ptr, ptr %lp
  %block = call ptr @lease(ptr %memory, i64 %nbytes)
  %poor = icmp eq ptr %block, null
  br i1 %poor, label %no_descr, label %wrap
wrap:
  %elements = getelementptr i64, ptr %block, i64 8
  %new_capsule = call ptr @api(ptr %words, i64 $API_NEW_CAPSULE$)
  %capsule = call ptr %new_capsule(ptr %elements, ptr null, ptr @give_back)
  %bare = icmp eq ptr %capsule, null
  br i1 %bare, label %no_capsule, label %view
no_capsule:
  call void @free_block(ptr %memory, ptr %block)
  br label %no_descr
no_descr:
  call void @drop(ptr %words, ptr %descr)
  ret ptr null
view:
  %base = phi ptr [ %whole, %owned ], [ %capsule, %wrap ]
  %data = phi ptr [ %inside, %owned ], [ %elements, %wrap ]
  store ptr %data, ptr %slot
  %seen = call ptr %new(ptr %array, ptr %descr, i32 %nd32, ptr %dims, ptr null, ptr %data, i32 1281, ptr null)
  %blind = icmp eq ptr %seen, null
  br i1 %blind, label %lose, label %tie
lose:
  call void @drop(ptr %words, ptr %base)
  br label %out
tie:
  %failed = call i32 %set_base(ptr %seen, ptr %base)
  %loose = icmp ne i32 %failed, 0
  br i1 %loose, label %undo, label %out
undo:
  call void @drop(ptr %words, ptr %seen)
  br label %out
out:
  %r = phi ptr [ null, %own ], [ null, %lose ], [ %seen, %tie ], [ null, %undo ]
  ret ptr %r
}

; the sizes in the tuple %shape into %dims; their product, or -1 where one is none
define internal i64 @sizes_of(ptr %words, ptr %shape, i64 %nd, ptr %dims) nounwind {
entry:
  %item = call ptr @api(ptr %words, i64 $API_TUPLE_ITEM$)
  %as_size = call ptr @api(ptr %words, i64 $API_AS_SIZE$)
  br label %axis
axis:
  %i = phi i64 [ 0, %entry ], [ %i1, %fits ]
  %count = phi i64 [ 1, %entry ], [ %count1, %fits ]
  %more = icmp ult i64 %i, %nd
  br i1 %more, label %one, label %out
one:
  %o = call ptr %item(ptr %shape, i64 %i)
  %n = call i64 %as_size(ptr %o)
  %wrong = icmp slt i64 %n, 0
  br i1 %wrong, label %no, label %fits
fits:
  %p = getelementptr i64, ptr %dims, i64 %i
  store i64 %n, ptr %p
  %i1 = add i64 %i, 1
  %count1 = mul i64 %count, %n
  br label %axis
no:
  ret i64 -1
out:
  ret i64 %count
}

; an array for the tuple of its shape, type and bytes, or None; for None: frees all that is kept, and returns its bytes
define internal ptr @empty(ptr %self, ptr %asked) nounwind {
entry:
  %words = call ptr @words_of(ptr %self)
  %none_p = getelementptr i64, ptr %words, i64 $FEED_NONE$
  %none = load ptr, ptr %none_p
  %clears = icmp eq ptr %asked, %none
  br i1 %clears, label %clear, label %make
clear:
  %lp = getelementptr i64, ptr %words, i64 $FEED_LEASES$
  %memory = load ptr, ptr %lp
  %kept_p = getelementptr i64, ptr %memory, i64 $LEASE_RETAINED$
  %kept = load i64, ptr %kept_p
  call void @evict_all(ptr %memory)
  %from_size = call ptr @api(ptr %words, i64 $API_FROM_SIZE$)
  %number = call ptr %from_size(i64 %kept)
  ret ptr %number
make:
  %dims = alloca [$MOST_AXES$ x i64]
  %slot = alloca ptr
  %item = call ptr @api(ptr %words, i64 $API_TUPLE_ITEM$)
  %shape = call ptr %item(ptr %asked, i64 0)
  %descr = call ptr %item(ptr %asked, i64 1)
  %bytes = call ptr %item(ptr %asked, i64 2)
  %as_size = call ptr @api(ptr %words, i64 $API_AS_SIZE$)
  %nbytes = call i64 %as_size(ptr %bytes)
  %size = call ptr @api(ptr %words, i64 $API_TUPLE_SIZE$)
  %nd = call i64 %size(ptr %shape)
  %many = icmp ugt i64 %nd, $MOST_AXES$
  br i1 %many, label %decline, label %read
read:
  %count = call i64 @sizes_of(ptr %words, ptr %shape, i64 %nd, ptr %dims)
  %wrong = icmp slt i64 %count, 0
  br i1 %wrong, label %decline, label %go
go:
  %made = call ptr @array_of(ptr %words, ptr %descr, i64 %nd, ptr %dims, i64 %nbytes, ptr %slot)
  %poor = icmp eq ptr %made, null
  br i1 %poor, label %decline, label %out
decline:
  call void @forget(ptr %words)
  br label %out
out:
  %r = phi ptr [ %made, %go ], [ null, %decline ]
  %answer = call ptr @answer_of(ptr %words, ptr %r)
  ret ptr %answer
}"""
