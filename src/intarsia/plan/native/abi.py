"""The arguments of the native code that binds sizes (`plan.native.bind_kernel`)."""

from __future__ import annotations

OK, FAILED, NO_LAYOUT, NO_ROOM = 0, 1, 2, 3  # statuses; others are negative, those of guards

FIELDS = (
    # given: code, registers (int64) and how many steps' words may be made of, words to be written (int64) and how many fit,
    # what the first `count`, all but tables, are at first; or, instead of these, where a block is written, 0: nowhere
    "code registers nregisters words capacity template count block "
    # (word, register), (word that a register is added to)
    "stores nstores added nadded "
    # registers of what may not be negative, of bytes that may not be more than `most`
    "sizes nsizes nbytes nnbytes most "
    # (kind, left, right): registers
    "constraints nconstraints "
    # for every step: where to write (int64) whether one thread runs it, the register of that, those of two floats, the larger
    # of which is its work; which are jumps; work that takes long, and where to write (int64) the steps that do more
    "serial serials works nsteps jumps njumps longest slowest "
    # (first, end) of steps that must be serial for branches to go side by side
    "windows nwindows "
    # registers of bytes of slots; those from `scratch` on are of scratch memory; (word, slot) with offset (int64)
    "slots nslots scratch arena narena offsets "
    # layouts (int64: bytes in all rooms, bytes of the arena, address of room for each slot, of offsets), and those for branches
    "layouts nlayouts disjoint ndisjoint room "
    # found: one of the statuses, bytes of the arena, of the largest scratch memory, words used; whether
    # branches go side by side, all steps are serial; how many take long; all work (a float)
    "status arena_nbytes workspace_nbytes used side_by_side alone slow work"
).split()
SETTLE_FIELDS = (
    # the block of a binding, and the one that a state's words are made of now, 0: they are the template's
    "block before "
    # of a state: its words, the executor's table, and addresses (int64) that words are added to
    "words table bases "
    # of a frame: lists as in `FIELDS`; words that are as in the template before anything is added; (word, which base);
    # (register, first, end) of the words that are its value; whether a word that is may have something added to it
    "count nsteps nregisters template restored nrestored arena narena offsets added nadded leased nleased "
    "groups ngroups grouped mixed"
).split()
# A block (int64): words used, tables included; whether branches go side by side, when which steps one thread runs is the same
# for all sizes; the address of the offsets of the layout's slots; which steps one thread runs; registers; tables.
USED, DISJOINT, PLACES, SERIAL = range(4)
KINDS = {"equal": 0, "broadcast": 1, "least": 2, "divisor": 3}
BINDING, SETTLING = 0, 1  # what it does, by its second argument
