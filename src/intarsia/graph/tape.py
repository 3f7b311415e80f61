"""Computations with sizes, noted while they are done, so that native code can do them again for other sizes.

What templates compute from sizes (tiles, shares, addresses in scratch memory) are Python functions of numbers. They are called
with `Traced` numbers, which know their values and write each operation on a `Tape`. A comparison is a *guard*: the operations
after it are those for its answer. Where a run of the tape meets another answer, the function is called again with the sizes of
that run, and what it does from the guard on is added as a branch. So a tape knows the ways through a function that sizes took
so far, and native code (`plan.native.bind_kernel`) queries Python only for a way that is new.

A tape is made of sections, one for each function, that run one after the other.
"""

from __future__ import annotations

import functools
import math
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from intarsia.graph.dims import Atom, Dim, Expr, operation
from intarsia.graph.guards import ELSEWHERE, MISSED, MOST_WAYS
from intarsia.graph.trace import Traced, Untraceable, computed, least, most, value_of

# Operations: rows of four int32 (operation, result, a, b), all of registers but where it says otherwise.
_NAMES = (
    "halt jump move add sub mul floordiv mod truncdiv quotient wrap broadcast scaled min max abs lshift rshift lt le eq ne "
    "fadd fsub fmul fdiv fmin fmax float floor ceil round if_lt if_le if_eq if_ne if_flt if_fle if_feq if_fne "
    "table spread inside copy"
)
OPS: Mapping[str, int] = {name: i for i, name in enumerate(_NAMES.split())}
ROW = 4  # words of an operation
OPERANDS = {"spread": 9, "inside": 6, "copy": 2}  # of those that have more than a row: three in the first, four in each other
_EXACT = 1 << 53  # integers up to it are floats too
_MOST = 1 << 63

# What is true where an answer is not, and whether operands change places.
_OPPOSITE = {"lt": ("le", True), "le": ("lt", True), "eq": ("ne", False), "ne": ("eq", False)}


class Elsewhere(Exception):
    """Other sizes want other addresses."""


class _Piece:
    """Operations between two guards: what they computed, and the guard behind them with where its answers lead."""

    __slots__ = ("branches", "guard", "known", "row")

    def __init__(self) -> None:
        self.known: dict[tuple[str, int, int], int] = {}
        self.guard: tuple[str, int, int] | None = None
        self.row = -1
        self.branches: dict[bool, _Piece] = {}


class Section:
    """One function on a tape.

    Attributes:
        ask: the function; gives what must be the same for all sizes, and numbers.
        fixed: the first of these.
        places: registers of the numbers.
        ways: how many ways through it are known.
        noted: whether the tape computes it; where not, somebody else has to for all sizes.
    """

    __slots__ = ("ask", "end", "fixed", "noted", "number", "piece", "places", "start", "ways")

    def __init__(self, number: int, ask: Callable[[], tuple[object, Sequence[Any]]], start: int) -> None:
        self.number, self.ask, self.start = number, ask, start
        self.piece = _Piece()
        self.fixed: Any = None
        self.places: list[int] = []
        self.ways, self.noted, self.end = 0, True, 0

    @property
    def parted(self) -> bool:
        """Whether it is not the same operations for all sizes."""
        return self.piece.guard is not None


class Tape:
    """See the module's text.

    Attributes:
        code: int32, rows of operations.
        registers: int64; those of constants have their values, floats their bits.
        symbols: the registers of sizes that have names.
    """

    def __init__(self, env: Mapping[str, int]) -> None:
        self.code, self.registers = array("i"), array("q")
        self.symbols: dict[str, int] = {}
        self.sections: list[Section] = []
        self.env: Mapping[str, int] = env
        self._constants: dict[object, int] = {}
        self._constant_places: set[int] = set()
        self._shared: dict[tuple[str, int, int], tuple[int, int]] = {}  # what all ways compute: register, from which section on
        self._sizes: dict[Dim | Atom, Any] = {}  # of the section and the sizes at hand
        self._size_places: dict[Dim, tuple[int, int]] = {}  # of those that all ways compute: register, from which section on
        self._values: dict[Atom, int] = {}  # of the sizes at hand
        self._path: list[_Piece] = []
        self._section: Section | None = None
        self._writing = False
        self._first_new: _Piece | None = None  # of the way that is being added, and the answer that leads there
        self._answer = False
        self._tables = 0
        self.elsewhere = False  # whether the last way that was to be added led elsewhere

    # --- sections ---

    def add(self, ask: Callable[[], tuple[object, Sequence[Any]]]) -> Section:
        """A section behind the others. What the function raises goes through, but for what cannot be traced: then numbers of
        such a section are the caller's to put into the registers, and `noted` is False."""
        section = Section(len(self.sections), ask, len(self.code) // ROW)
        self._begin(section)
        try:
            section.fixed, numbers = ask()
            if not section.parted:
                section.places = [self.place(x) for x in numbers]
            else:
                section.places = [self.register() for _ in numbers]
                self._move(section, numbers)
        except (Untraceable, OverflowError):
            self._drop(section)
            section.noted = False
        section.end = len(self.code) // ROW
        section.ways = 1
        self.sections.append(section)
        self._path = []
        return section

    def finish(self) -> None:
        """No more sections are added."""
        self._row("halt", 0, 0, 0)

    def extend(self, number: int, env: Mapping[str, int]) -> bool:
        """Add the way through a section that these sizes take; False where it leads elsewhere, or there are too many."""
        section = self.sections[number]
        self.env, self.elsewhere, self._values = env, False, {}
        if section.ways >= MOST_WAYS:
            return False
        self._begin(section)
        self._writing = False
        length = len(self.code)
        try:
            fixed, numbers = section.ask()
            if not self._writing:
                return False  # the function does not always do the same
            if fixed != section.fixed or len(numbers) != len(section.places):
                raise Elsewhere
            self._move(section, numbers)
        except Elsewhere:
            self.elsewhere = True
            self._undo(length, ELSEWHERE)
            return False
        except BaseException:
            self._undo(length, MISSED - number)
            raise
        self._row("jump", section.end, 0, 0)
        section.ways += 1
        self._path = []
        return True

    def place(self, x: Any) -> int:
        """The register of a number."""
        if type(x) is Traced:
            return x.place
        key = (type(x) is float, x)
        found = self._constants.get(key)
        if found is None:
            if type(x) is float:
                (x,) = struct.unpack("<q", struct.pack("<d", x))
            elif not -_MOST <= x < _MOST:
                raise OverflowError("too large a number")
            found = self._constants[key] = self.register(int(x))
            self._constant_places.add(found)
        return found

    def _begin(self, section: Section) -> None:
        self._section, self._path, self._writing = section, [section.piece], True
        self._sizes.clear()
        self._tables = 0

    def _move(self, section: Section, numbers: Sequence[Any]) -> None:
        for place, x in zip(section.places, numbers, strict=True):
            self._row("move", place, self.place(x), 0)

    def _drop(self, section: Section) -> None:
        """Forget what was noted of a section that cannot be."""
        del self.code[section.start * ROW :]
        self._shared = {key: found for key, found in self._shared.items() if found[1] < section.number}
        self._size_places = {d: found for d, found in self._size_places.items() if found[1] < section.number}
        section.piece, section.places, section.fixed = _Piece(), [], None

    def leave(self, section: Section) -> None:
        """Compute a section no more from where its ways part: the numbers are the caller's to put into the registers."""
        row = section.piece.row * ROW
        self.code[row : row + ROW] = array("i", [OPS["jump"], section.end, 0, 0])
        section.noted = False

    def _undo(self, length: int, target: int) -> None:
        """Take back the branch that was begun behind the last guard met, and let that guard lead to `target`."""
        if self._writing and len(self._path) > 1:
            new = next(i for i, p in enumerate(self._path) if i and p is self._first_new)
            before = self._path[new - 1]
            del before.branches[self._answer]
            self.code[before.row * ROW + 1] = target
        del self.code[length:]
        self._path = []

    def register(self, value: int = 0) -> int:
        """A new register."""
        self.registers.append(value)
        return len(self.registers) - 1

    def known(self, number: int) -> int | None:
        """The register that has this number for all sizes, if there is one."""
        return self._constants.get((False, number))

    def constant_at(self, place: int) -> int | None:
        """What a register has for all sizes, if it does; a float's bits."""
        return self.registers[place] if place in self._constant_places else None

    # --- operations ---

    def _row(self, name: str, result: int, a: int, b: int) -> None:
        self.code.extend((OPS[name], result, a, b))

    def noted(self, name: str, a: Any, b: Any, value: Any) -> Traced:
        """The result of an operation, whose value is known."""
        if type(value) is int and not -_MOST <= value < _MOST:
            raise OverflowError("too large a number")
        key = (name, a.place if type(a) is Traced else self.place(a), b.place if type(b) is Traced else self.place(b))
        known = self._known(key)
        if known is None:
            assert self._section is not None
            if not self._writing:
                raise Untraceable("a function that does not always do the same")
            known = self.register()
            self._row(name, known, key[1], key[2])
            self._path[-1].known[key] = known
            if len(self._path) == 1 and self._section.ways == 0:
                self._shared[key] = known, self._section.number
        return Traced(self, known, value)

    def _known(self, key: tuple[str, int, int]) -> int | None:
        shared = self._shared.get(key)
        assert self._section is not None
        if shared is not None and shared[1] <= self._section.number:
            return shared[0]
        for piece in reversed(self._path):
            if key in piece.known:
                return piece.known[key]
        return None

    def guarded(self, name: str, a: Any, b: Any, answer: bool) -> None:
        """Note that what follows depends on the answer of a comparison."""
        if type(a) is not Traced and type(b) is not Traced:
            return
        key = (f"if_{name}", self.place(a), self.place(b))
        if any(piece.guard == key for piece in self._path[:-1]):
            return
        piece = self._path[-1]
        if piece.guard is None:
            if not self._writing:
                raise Untraceable("a function that does not always do the same")
            piece.guard, piece.row = key, len(self.code) // ROW
            self._guard(key, answer)
        elif piece.guard != key:
            raise Untraceable("a function that does not always do the same")
        found = piece.branches.get(answer)
        if found is None:
            found = piece.branches[answer] = _Piece()
            if not self._writing:
                self._writing, self._first_new, self._answer = True, found, answer
                self.code[piece.row * ROW + 1] = len(self.code) // ROW
        self._path.append(found)

    def pinned(self, x: Traced) -> None:
        """Note that what follows is right for this value alone. Ways for others are requested one after the other."""
        place = self.place(x.value)
        if any(piece.guard == ("if_eq", x.place, place) for piece in self._path[:-1]):
            return
        while (guard := self._path[-1].guard) is not None and guard[:2] == ("if_eq", x.place):
            known = self.constant_at(guard[2])
            if known is None or known == x.value:
                break
            self.guarded("eq", x, known, answer=False)
        self.guarded("eq", x, x.value, answer=True)

    def _guard(self, key: tuple[str, int, int], answer: bool) -> None:
        """The operation that goes on in the next row where the answer is this one."""
        assert self._section is not None
        name, a, b = key
        if not answer:
            base = name[-2:]
            opposite, turned = _OPPOSITE[base]
            name, (a, b) = name[:-2] + opposite, (b, a) if turned else (a, b)
        self._row(name, MISSED - self._section.number, a, b)

    def floating(self, x: Any) -> Any:
        """An operand as a float."""
        if type(x) is not Traced:
            return float(x)
        if type(x.value) is float:
            return x
        if abs(x.value) > _EXACT:
            raise OverflowError("too large a number")
        return self.noted("float", x, x, float(x.value))

    def less(self, a: Any, b: Any) -> Any:
        """1 where a < b, else 0: a number, not a guard."""
        if type(a) is not Traced and type(b) is not Traced:
            return int(a < b)
        return self.noted("lt", a, b, int(value_of(a) < value_of(b)))

    def rows(self, name: str, operands: Sequence[Any]) -> None:
        """An operation of more than a row."""
        places = [self.place(x) for x in operands]
        assert len(places) == OPERANDS[name]
        places += [0] * (-(len(places) + 1) % ROW)
        if self._writing:
            self.code.extend((OPS[name], *places))

    def table(self) -> Traced:
        """Where the next table begins: bytes from the beginning of all words."""
        assert self._section is not None
        self._tables += 1
        return self.noted("table", self._tables, self._section.number, 0)

    # --- sizes ---

    def size(self, d: Dim) -> Any:
        """A size, as templates ask for it.

        Raises:
            KeyError, ValueError, ZeroDivisionError: as `Expr.evaluate`.
        """
        if not isinstance(d, Expr):
            return d
        found = self._sizes.get(d)
        if found is None:
            found = self._sizes[d] = self._shared_size(d)
        if found is None:
            total: Any = 0
            for mono, coefficient in d.terms.items():
                term: Any = 1
                for atom, power in mono:
                    term = term * self._atom(atom) ** power
                total = total + term * coefficient
            found = self._sizes[d] = total
            self._share_size(d, found)
        return found

    def _atom(self, atom: Atom) -> Any:
        if not atom.args:
            if atom.name not in self.symbols:
                self.symbols[atom.name] = self.register()
            return Traced(self, self.symbols[atom.name], self.env[atom.name])
        found = self._sizes.get(atom)
        if found is None:
            found = self._sizes[atom] = self._operation(atom, [self.size(a) for a in atom.args])
        return found

    def _shared_size(self, d: Expr) -> Any:
        """A size that a section before this one computes for all ways."""
        place, number = self._size_places.get(d, (0, -1))
        assert self._section is not None
        return None if number < 0 or number > self._section.number else Traced(self, place, d.evaluate(self.env, self._values))

    def _share_size(self, d: Expr, x: Any) -> None:
        assert self._section is not None
        if len(self._path) == 1 and self._section.ways == 0 and type(x) is Traced:
            self._size_places[d] = x.place, self._section.number

    def _operation(self, atom: Atom, given: list[Any]) -> Any:
        if not any(type(x) is Traced for x in given):
            return atom.evaluate({}, {})
        name = atom.name
        if name in ("floordiv", "mod"):
            return computed(name, *given)
        if name in ("max", "min"):
            return functools.reduce(most if name == "max" else least, given)
        if name == "reshape_dim":
            return self._reshape_dim(*given)
        if name == "one_of":
            return self._one_of(*given)
        function = operation(name)
        if name == "broadcast":
            return functools.reduce(lambda a, b: self.noted(name, a, b, function(value_of(a), value_of(b))), given)
        if name == "scaled":
            n, numerator, denominator = given
            return self.noted(name, n, numerator / denominator, function(value_of(n), numerator, denominator))
        a, b = given
        return self.noted(name, a, b, function(value_of(a), value_of(b)))

    def _one_of(self, size: Any, *expected: Any) -> Any:
        """The size; another number where it is none of them, as which it fails a constraint."""
        return size + math.prod(1 - self._same(size, other) for other in expected)

    def _reshape_dim(self, index: int, allowzero: int, rank: int, *sizes: Any) -> Any:
        shape, target = sizes[:rank], sizes[rank:]
        out = [t if allowzero or i >= rank else t + self._same(t, 0) * shape[i] for i, t in enumerate(target)]
        rest = math.prod(d for i, d in enumerate(out) if i != index)
        whole = math.prod(shape)
        left = self.noted("quotient", whole, rest, value_of(whole) // value_of(rest) if value_of(rest) else 0)
        return out[index] + self._same(out[index], -1) * (left - out[index])

    def _same(self, a: Any, b: Any) -> Any:
        if type(a) is not Traced and type(b) is not Traced:
            return int(a == b)
        return self.noted("eq", a, b, int(value_of(a) == value_of(b)))
