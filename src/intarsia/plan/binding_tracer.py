"""What a segment's steps compute from sizes, noted on a tape, and where the results go: an outline (`plan.binding_program`).

What a tape cannot note is a query of Python for all sizes, whose numbers are put into the registers before native code runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from intarsia.graph.dims import Atom, Dim, Expr
from intarsia.graph.tape import Section, Tape
from intarsia.graph.trace import Traced, Untraceable
from intarsia.lazy_dataclass import dataclass
from intarsia.plan import executor_abi
from intarsia.plan.argument_tables import Table
from intarsia.plan.binding_program import ARENA, OF_CLAIMS, OF_STATUS, OWN, Outline
from intarsia.plan.native.abi import KINDS
from intarsia.plan.step import CLAIMS, SCRATCH, STATUS, Below, Code, Jump, KernelCall, Ref, Serial, Sizes, Step, Work, form_of

if TYPE_CHECKING:
    from intarsia.plan.segment import Segment

Asking = TypeVar("Asking", bound="KernelCall | Serial | Work")

_EXACT = 2**53
_TABLE = "table"


class _Moved(str):
    """The name of a buffer to whose address a number is added."""

    __slots__ = ()


@dataclass(frozen=True)
class _Arguments:
    """The arguments of a step, decomposed: what must be the same for all sizes (kinds), and numbers.

    A kind is None for a number. What the tape computes is "table" (then the number is its place), or `_Moved`.
    """

    step: Step | Jump
    threads: int
    given: frozenset[str]  # buffers to whose addresses the executor adds a constant

    def __call__(self, size: Sizes, held: list[np.ndarray] | None, tape: Tape | None) -> tuple[tuple[Any, ...], list[Any]]:
        """`held`: arrays whose addresses are numbers are added; None where numbers are not looked at."""
        taken = [self._taken(a, held, tape) for a in self.step.arguments(size, self.threads)]
        return tuple([kind for kind, _ in taken]), [number for _, number in taken if number is not None]

    def _taken(self, a: Any, held: list[np.ndarray] | None, tape: Tape | None) -> tuple[Any, Any]:
        if isinstance(a, Code):
            return a, None
        if isinstance(a, Ref):
            if not isinstance(a.offset_bytes, Traced):
                return a, None
            return (Ref(a.name, int(a.offset_bytes)), None) if a.name in self.given else (_Moved(a.name), a.offset_bytes)
        if isinstance(a, (Table, np.ndarray)):
            return (None, 0) if held is None else _array(a, held, tape)
        if not isinstance(a, (int, Traced)):
            raise Untraceable(f"an argument that is {type(a).__name__}")
        return None, a


def _array(a: Table | np.ndarray, held: list[np.ndarray], tape: Tape | None) -> tuple[Any, Any]:
    if isinstance(a, Table):
        if tape is not None:
            return _TABLE, a.note(tape, held)
        a = a.array
    if a.dtype == object:
        raise Untraceable("an array of sizes")
    held.append(a)
    return None, int(a.ctypes.data)


@dataclass
class Query:
    """A function of sizes, for all steps that ask the same: of sizes, a list for arrays whose addresses are numbers, the tape
    or None."""

    ask: Callable[[Any, list[np.ndarray], Tape | None], tuple[tuple[Any, ...], list[Any]]]
    section: Section

    @property
    def may_be_left(self) -> bool:
        """Whether Python's numbers can stand for those of the tape."""
        return all(kind is None or isinstance(kind, (Ref, Code)) for kind in self.section.fixed)


@dataclass
class _Words:
    """Words of argument blocks: what they are at first, and lists of those that are written: (word, register) of numbers, and
    of what is added, (word, slot, offset), (word, whose address is added), (word, number of the input or output, offset); and
    of those that are addresses of kernels, (word, symbol), in constants, (word, name, offset), or of arrays of the notes' own,
    (word, register)."""

    first: list[int] = field(default_factory=list)
    stores: list[tuple[int, int]] = field(default_factory=list)
    added: list[tuple[int, int]] = field(default_factory=list)
    arena: list[tuple[int, int, int]] = field(default_factory=list)
    leased: list[tuple[int, int]] = field(default_factory=list)
    external: list[tuple[int, int, int]] = field(default_factory=list)
    codes: list[tuple[int, str]] = field(default_factory=list)
    constants: list[tuple[int, str, int]] = field(default_factory=list)
    own: list[tuple[int, int]] = field(default_factory=list)

    def put_into(self, outline: Outline) -> None:
        outline.words, outline.count = np.array(self.first, np.int64), len(self.first)
        outline.codes, outline.constants, outline.own = self.codes, self.constants, self.own
        outline.fill("stores", self.stores)
        outline.fill("added", self.added)
        outline.fill("arena", [row[:2] for row in self.arena])
        outline.arena, outline.arena_slots, outline.lists["offsets"] = _columns(self.arena)
        outline.leased = _pairs(self.leased)
        placed = {at for at, *_ in self.arena}
        outline.restored = np.array(sorted({at for at, _ in (*self.added, *self.leased)} - placed), np.int32)
        outline.mixed = int(bool(self.added) or any(base == OWN for _, base in self.leased))
        outline.groups, outline.grouped = _grouped(self.stores)
        outline.patches = np.stack(_columns(self.external), 1)


class Notes:
    """See the module's text. `env` are sizes that the segment is bound to now.

    Attributes:
        outline: what was found, with the tape's code and registers, which grow with it.
        queries: what the tape's sections after the first ones are, by the section's number.
        held: arrays that the tape refers to.

    Raises:
        ValueError, ZeroDivisionError, OverflowError: such sizes cannot be outlined.
    """

    def __init__(self, segment: Segment, threads: int, env: Mapping[str, int]) -> None:
        self.segment, self.threads = segment, threads
        self.tape = Tape(env)
        self.outline = Outline(self.tape.code, self.tape.registers, self.tape.symbols)
        self.queries: dict[int, Query] = {}
        self.held: list[np.ndarray] = []
        self._addresses: set[int] = set()  # of these
        self._plain = sizes_of(env)
        self._numbers: dict[object, int] = {}
        self._note_sizes()
        self._note_work()
        self._note_slots()
        self._note_words()
        self.tape.finish()
        self.outline.finish(threads)
        self.outline.locate(segment)

    def arrays(self) -> list[tuple[int, np.ndarray]]:
        """Registers of the addresses of arrays that the tape refers to, and these."""
        found = {self.tape.known(int(array.ctypes.data)): array for array in self.held}
        return [(register, array) for register, array in found.items() if register is not None]

    # --- sizes and work ---

    def _note_sizes(self) -> None:
        segment, tape, outline = self.segment, self.tape, self.outline
        buffers = list(segment.buffers.values())
        dims = list(dict.fromkeys(d for b in buffers for d in b.shape))
        sides = [d for c in segment.constraints for d in (c.left, c.right)]
        found = self._straight(lambda: [tape.size(d) for d in (*dims, *sides)])
        sizes, pairs = found[: len(dims)], found[len(dims) :]
        places = dict(zip(dims, sizes, strict=True))
        nbytes = self._straight(lambda: list(map(self._nbytes_of(), segment.buffers)))
        self._nbytes = dict(zip(segment.buffers, nbytes, strict=True))
        outline.fill("sizes", sizes)
        outline.fill("nbytes", dict.fromkeys(nbytes))
        outline.fill("constraints", zip([KINDS[c.kind] for c in segment.constraints], pairs[::2], pairs[1::2], strict=True))
        outputs = [segment.buffers[name] for name in segment.outputs]
        kinds = [(tuple([places[d] for d in b.shape]), b.dtype.numpy) for b in outputs]
        outline.output_kinds = list(dict.fromkeys(kinds))
        outline.outputs = [outline.output_kinds.index(kind) for kind in kinds]
        outline.sized_nbytes = [self._nbytes[name] for name in (segment.sized.names if segment.sized is not None else ())]
        outline.output_nbytes = np.array([self._nbytes[name] for name in segment.outputs], np.intp)

    def _nbytes_of(self) -> Callable[[str], Any]:
        """What answers the bytes of a value while a section is noted; those of equal shapes once."""
        buffers, constants, size = self.segment.buffers, self.segment.constants, self.tape.size
        known: dict[object, Any] = {}

        def nbytes(name: str) -> Any:
            buffer = buffers.get(name)
            if buffer is None:
                return constants[name].nbytes if name in constants else 0
            key = buffer.shape, buffer.dtype
            if key not in known:
                known[key] = math.prod([size(d) for d in buffer.shape]) * buffer.dtype.numpy.itemsize
            return known[key]

        return nbytes

    def _note_work(self) -> None:
        """Which steps one thread runs, and how much each does."""
        steps, tape, outline = self.segment.steps, self.tape, self.outline

        def moved() -> list[Any]:
            nbytes, found, known = self._nbytes_of(), [], dict[object, Any]()
            for step in steps:
                each = [nbytes(name) for name in (*step.reads, *step.writes)] if isinstance(step, Step) else []
                key = tuple([n.place if isinstance(n, Traced) else -1 - n for n in each])  # layers move the same
                if key not in known:
                    known[key] = tape.floating(sum(each)) / float(executor_abi.SHARE_NBYTES)
                found.append(known[key])
            return found

        found = self._straight(moved)
        one, no, zero = tape.place(1), tape.place(0), tape.place(0.0)
        serials: list[int] = []
        counted: list[int] = []
        for step in steps:
            if isinstance(step, Jump):
                serials.append(one)
                counted.append(zero)
                continue
            by = step.work if step.work is not None else step.serial if isinstance(step.serial, Below) else None
            serials.append(no if step.serial is None else self._number(step.serial, self._serial))
            counted.append(zero if by is None else self._number(by, _work))
        outline.works = list(zip(found, counted, strict=True))
        outline.fill("serials", serials, "nsteps")
        outline.fill("works", outline.works, "nsteps")
        outline.fill("jumps", [i for i, step in enumerate(steps) if isinstance(step, Jump)])

    def _note_slots(self) -> None:
        lives, outline = self.segment.lifetimes(), self.outline
        scratched = [(i, s) for i, s in enumerate(self.segment.steps) if isinstance(s, Step) and s.call.has_scratch]
        scratch = [self._number(s.call, self._scratch) for _, s in scratched]
        outline.slots = np.array([*(self._nbytes[n] for n in lives), *scratch], np.intp)
        outline.scratch = {i: place for (i, _), place in zip(scratched, scratch, strict=True)}
        outline.lifetimes = [*lives.values(), *((i, i) for i, _ in scratched)]
        outline.numbers["scratch"] = len(lives)
        outline.fill("slots", outline.slots)
        self._slot_of = {name: i for i, name in enumerate((*lives, *(f"{SCRATCH}{i}" for i, _ in scratched)))}

    def _serial(self, serial: Serial, size: Sizes, tape: Tape | None) -> Any:
        if isinstance(serial, Below) and tape is not None:
            return tape.less(size(serial.work), serial.least)
        return int(bool(serial(size)))

    def _scratch(self, call: KernelCall, size: Sizes, tape: Tape | None) -> Any:
        return call.scratch_nbytes(size, self.threads)

    def _number(self, value: Asking, how: Callable[[Asking, Sizes, Tape | None], Any]) -> int:
        """The register of what a step's value is queried for."""
        form = form_of(value)
        key = (how, ("own", id(value)) if form is None else form)
        if key not in self._numbers:
            query = self._query(lambda size, held, tape: ((), [how(value, size, tape)]))
            self._numbers[key] = query.section.places[0]
        return self._numbers[key]

    def _straight(self, ask: Callable[[], list[Any]]) -> list[int]:
        """Registers of numbers that are computed the same way for all sizes."""
        section = self.tape.add(lambda: ((), ask()))
        if not section.noted or section.parted:
            raise ValueError("sizes that no tape computes")
        return section.places

    def _query(self, ask: Callable[[Any, list[np.ndarray], Tape | None], tuple[tuple[Any, ...], list[Any]]]) -> Query:
        tape = self.tape
        section = tape.add(lambda: ask(tape.size, self.held, tape))
        if not section.noted:
            section.fixed, numbers = ask(self._plain, self.held, None)
            section.places = [tape.register() for _ in numbers]
        self.queries[section.number] = Query(ask, section)
        return self.queries[section.number]

    # --- words ---

    def _note_words(self) -> None:
        segment, outline, words = self.segment, self.outline, _Words()
        externals = {name: i for i, name in enumerate(segment.externals)}
        given, known = frozenset(externals), dict[object, Query]()
        starts: list[int] = []
        outline.counts, outline.scratch_arguments = [], []
        for i, step in enumerate(segment.steps):
            ask = _Arguments(step, self.threads, given)
            form = None if isinstance(step, Jump) else form_of(step.call)
            query = None if form is None else known.get(form)
            if query is None:
                before = len(self.held)
                query = self._query(ask)
                self._addresses.update(int(array.ctypes.data) for array in self.held[before:])
                kinds = query.section.fixed
                if form is not None:
                    known[form] = query
            else:
                kinds = _like(query.section.fixed, ask(self._plain, None, None)[0])
            places = iter(query.section.places)
            starts.append(len(words.first))
            outline.counts.append(len(kinds))
            for kind in kinds:
                has_number = kind is None or isinstance(kind, str)
                self._note_word(words, kind, next(places) if has_number else -1, i, externals)
            outline.scratch_arguments.append(executor_abi.scratch_place([getattr(kind, "name", "") for kind in kinds]))
        outline.start_bytes = 8 * np.array(starts, np.int64)
        outline.pieces = [step.pieces if isinstance(step, Step) else -1 for step in segment.steps]
        outline.checked = any(step.checked for step in segment.steps)
        outline.kernels = ["" if isinstance(step, Jump) else step.kernel.symbol for step in segment.steps]
        targets = [i + step.offset if isinstance(step, Jump) else 0 for i, step in enumerate(segment.steps)]
        outline.targets = np.array(targets, np.int64)
        words.put_into(outline)

    def _note_word(self, words: _Words, kind: Any, register: int, step: int, externals: Mapping[str, int]) -> None:
        at, value = len(words.first), 0
        if isinstance(kind, Code):
            words.codes.append((at, kind.symbol))
        elif kind is None or kind is _TABLE:
            constant = self.tape.constant_at(register)
            if constant is None:
                words.stores.append((at, register))
            elif constant in self._addresses:
                words.own.append((at, register))
            value = constant or 0
            if kind is _TABLE:
                words.leased.append((at, OWN))
        else:
            name, offset = (str(kind), 0) if isinstance(kind, _Moved) else (kind.name, kind.offset_bytes)
            if isinstance(kind, _Moved):
                words.added.append((at, register))
            if name in externals:
                words.external.append((at, externals[name], offset))
            elif name in self.segment.constants:
                words.constants.append((at, name, offset))
            elif name in (STATUS, CLAIMS):
                value = 8 * step + (offset if name == STATUS else 0)
                words.leased.append((at, OF_STATUS if name == STATUS else OF_CLAIMS))
            else:
                words.arena.append((at, self._slot_of[f"{SCRATCH}{step}" if name == SCRATCH else name], offset))
                words.leased.append((at, ARENA))
        words.first.append(value)


def sizes_of(env: Mapping[str, int]) -> Sizes:
    """What steps ask for sizes in an environment."""
    found: dict[Dim, int] = {}
    known: dict[Atom, int] = {}

    def size(d: Dim) -> int:
        if not isinstance(d, Expr):
            return d
        value = found.get(d)
        if value is None:
            value = found[d] = d.evaluate(env, known)
        return value

    return size


def _work(work: Work | Below, size: Sizes, tape: Tape | None) -> Any:
    if isinstance(work, Below):
        counted = size(work.work) / work.least if work.least else 0.0
    else:
        counted = work(size)
    return float(counted) if tape is None else tape.floating(counted)


def _like(first: Sequence[Any], own: Sequence[Any]) -> tuple[Any, ...]:
    """The kinds of a step's arguments like those of another of its form, with its own names."""
    return tuple(_Moved(o.name) if isinstance(f, _Moved) else f if f is _TABLE else o for f, o in zip(first, own, strict=True))


def _grouped(stores: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """int32 (register, first, end), and the words from first to end that are the register's value."""
    of_register: dict[int, list[int]] = {}
    for word, register in stores:
        of_register.setdefault(register, []).append(word)
    ends = np.cumsum([len(words) for words in of_register.values()], dtype=np.int32)
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    groups = np.stack([np.array([*of_register]), starts, ends], 1) if of_register else np.zeros((0, 3))
    return np.ascontiguousarray(groups.astype(np.int32)), np.array([w for ws in of_register.values() for w in ws], np.int32)


def _columns(rows: Sequence[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    a, b, c = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    return a, b, c


def _pairs(rows: Sequence[tuple[int, int]]) -> np.ndarray:
    return np.ascontiguousarray(np.array(rows, np.int32).reshape(-1, 2))
