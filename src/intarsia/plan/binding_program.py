"""A segment as native code binds it: how its words follow from sizes, for which its steps are needed no more.

`FIELDS` of `plan.native.abi` says what native code reads. An outline that is pickled has no addresses: it is located in the
process that has it.
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.graph.dtypes import MOST_BYTES
from intarsia.plan import executor_abi
from intarsia.plan.native.abi import FIELDS
from intarsia.plan.relocations import located

if TYPE_CHECKING:
    from intarsia.plan.segment import Segment

ARENA, OWN, OF_STATUS, OF_CLAIMS = range(4)  # to whose address a word is added when a state is made
LEAST_ROOM = 512  # bytes that a layout has for each tensor beyond what is requested
_EXACT = 2**53
_OF_A_PROCESS = frozenset(("io", "template", "functions"))


class Outline:
    """See the module's text. `plan.binding_tracer` makes it of a segment's steps.

    Attributes:
        code, registers, symbols: of the tape (`graph.tape`), which may grow; `nregisters`: how many there are before new ways
            through functions need more.
        numbers, lists: what of `FIELDS` is a number, and what an address of a list.
        arrays: registers that are addresses of arrays, and these.
        words: what words are at first, 0 where an address is; `codes`, `constants`: which of them are those, as in `Words`;
            `own`: which are addresses of such arrays, and the register.
        count: words that are no tables. `start_bytes`, `counts`: of each step, where its words begin and how many there are.
        kernels, targets: of each step, its kernel's symbol ("": a jump), and where a jump leads.
        slots, lifetimes: registers of the bytes that the arena must have, and which steps touch them; `arena`, `arena_slots`:
            words and slots.
        works: registers of the two numbers of each step, the larger of which is its work; `scratch`: by step, the register of
            bytes of scratch memory; `scratch_arguments`, `pieces`: see `executor_abi.sliced_words`.
        restored: words that are not in the arena and to which something is added.
        groups, grouped: which words are the values of registers; `mixed`: whether something may be added to one of these.
        leased: rows (word, whose address is added); `patches`: rows (word, number of the input or output, offset).
        output_kinds: registers of shapes, and types; `outputs`: which of these each output is; `output_nbytes`: registers of
            their bytes; `sized_nbytes`: of those of values that depend on sizes alone.
        checked: whether a step reports what is wrong with its data.
        io, template, functions: `FIELDS`, the words and the addresses of kernels (0: a jump) in this process.
    """

    arrays: Sequence[tuple[int, np.ndarray]]
    words: np.ndarray
    own: Sequence[tuple[int, int]]
    codes: Sequence[tuple[int, str]]
    constants: Sequence[tuple[int, str, int]]
    nregisters: int
    count: int
    start_bytes: np.ndarray
    counts: list[int]
    kernels: list[str]
    targets: np.ndarray
    slots: np.ndarray
    lifetimes: list[tuple[int, int]]
    arena: np.ndarray
    arena_slots: np.ndarray
    works: list[tuple[int, int]]
    scratch: dict[int, int]
    scratch_arguments: list[int | None]
    pieces: list[int]
    restored: np.ndarray
    groups: np.ndarray
    grouped: np.ndarray
    mixed: int
    leased: np.ndarray
    patches: np.ndarray
    output_kinds: list[tuple[tuple[int, ...], np.dtype[Any]]]
    outputs: list[int]
    output_nbytes: np.ndarray
    sized_nbytes: list[int]
    checked: bool
    io: ctypes.Array[ctypes.c_int64]
    template: np.ndarray
    functions: np.ndarray

    def __init__(self, code: array[int], registers: array[int], symbols: dict[str, int]) -> None:
        self.code, self.registers, self.symbols = code, registers, symbols
        self.numbers: dict[str, int] = {}
        self.lists: dict[str, np.ndarray] = {}
        self.arrays = []

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _OF_A_PROCESS}

    def fill(self, name: str, rows: Iterable[Any], count: str = "") -> None:
        """A list of `FIELDS`; `count`: the field of its length where that is not its name with an "n"."""
        found = list(rows)
        self.lists[name] = np.ascontiguousarray(np.array(found, np.int32).reshape(-1))
        self.numbers[count or f"n{name}"] = len(found)

    def finish(self, threads: int) -> None:
        """Say what has to be known of it as a whole."""
        self.nregisters = len(self.registers)
        self.numbers |= {
            "nregisters": self.nregisters, "count": self.count, "room": 2 * LEAST_ROOM * len(self.slots),
            "longest": int(threads * executor_abi.SLICE_SHARES), "most": min(_EXACT, MOST_BYTES),
        }  # fmt: skip

    def locate(self, segment: Segment) -> None:
        """Find what it refers to in this process."""
        addresses = segment.addresses
        for register, found in self.arrays:
            self.registers[register] = found.ctypes.data
        self.template = located(self.words, self.codes, self.constants, segment)
        for at, register in self.own:
            self.template[at] = self.registers[register]
        self.functions = np.array([addresses[symbol] if symbol else 0 for symbol in self.kernels], np.int64)
        self.io = (ctypes.c_int64 * len(FIELDS))()
        self.set(**self.numbers, **{name: found.ctypes.data for name, found in self.lists.items()})
        self.set(template=self.template.ctypes.data)

    def set(self, **fields: int) -> None:
        for name, value in fields.items():
            self.io[FIELDS.index(name)] = value

    def put(self, place: int, number: float) -> None:
        """A number into a register."""
        bits = struct.unpack("<q", struct.pack("<d", number))[0] if isinstance(number, float) else number
        self.registers[place] = bits
