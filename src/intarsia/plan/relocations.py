"""The words of a bound segment as data: numbers, and which of them are addresses of what.

Buffers, constants, kernels and words of status are at other addresses in every process, and some in every run. All else about a
binding is the same wherever its sizes, the number of threads and the program are: it can be cached (`plan.binding_cache`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from intarsia.errors import NodeFailed
from intarsia.plan.argument_tables import Table
from intarsia.plan.array_address import address_of
from intarsia.plan.step import CLAIMS, SCRATCH, STATUS, Argument, Code, Jump, Ref

if TYPE_CHECKING:
    from intarsia.plan.segment import Segment


class Words(NamedTuple):
    """Argument words of all steps, one behind the other.

    Attributes:
        numbers: int64; 0 where an address is.
        starts, functions, targets: of each step the first of its words, its kernel's symbol ("": a jump), where a jump leads.
        codes: words that are addresses of kernels, with their symbols.
        constants: words that are addresses in constants: their names, offsets in bytes.
        own: words that are addresses of arrays that the binding made.
        external: words that a run's inputs and outputs go to, as rows (word, which one, offset).
        arena, status, claims: rows (word, offset) in the arena's memory, in words of status, and of claims.
    """

    numbers: np.ndarray
    starts: np.ndarray
    functions: tuple[str, ...]
    targets: tuple[int, ...]
    codes: tuple[tuple[int, str], ...]
    constants: tuple[tuple[int, str, int], ...]
    own: tuple[tuple[int, np.ndarray], ...]
    external: np.ndarray
    arena: np.ndarray
    status: np.ndarray
    claims: np.ndarray

    def located(self, segment: Segment) -> np.ndarray:
        """The numbers with addresses that are the same for all runs in this process."""
        found = located(self.numbers, self.codes, self.constants, segment)
        for at, array in self.own:
            found[at] = address_of(array)
        return found


def located(
    numbers: np.ndarray, codes: Sequence[tuple[int, str]], constants: Sequence[tuple[int, str, int]], segment: Segment
) -> np.ndarray:
    """Words with the addresses of kernels and constants in this process. `codes`, `constants`: as in `Words`."""
    found = numbers.copy()
    for at, symbol in codes:
        found[at] = segment.addresses[symbol]
    known = {name: address_of(segment.constants[name]) for name in {name for _, name, _ in constants}}
    for at, name, offset in constants:
        found[at] = known[name] + offset
    return found


def words_of(
    segment: Segment, arguments: Sequence[Sequence[Argument]], offsets: Mapping[str, int], external: Mapping[str, int]
) -> Words:
    """The words for a binding's `arguments`. `offsets`: of buffers and scratch memory in the arena; `external`: which of the
    inputs and outputs a buffer is.

    Raises:
        NodeFailed: a size does not fit into a word.
    """
    numbers: list[int] = []
    starts: list[int] = []
    codes: list[tuple[int, str]] = []
    constants: list[tuple[int, str, int]] = []
    own: list[tuple[int, np.ndarray]] = []
    outside: list[tuple[int, int, int]] = []
    placed: dict[str, list[tuple[int, int]]] = {"": [], STATUS: [], CLAIMS: []}
    for i, given in enumerate(arguments):
        starts.append(len(numbers))
        for argument in given:
            at, number = len(numbers), 0
            if isinstance(argument, Table):
                own.append((at, argument.array))
            elif isinstance(argument, np.ndarray):
                own.append((at, argument))
            elif isinstance(argument, Code):
                codes.append((at, argument.symbol))
            elif not isinstance(argument, Ref):
                number = argument
            elif argument.name in external:
                outside.append((at, external[argument.name], argument.offset_bytes))
            elif argument.name in segment.constants:
                constants.append((at, argument.name, argument.offset_bytes))
            elif argument.name in (STATUS, CLAIMS):
                placed[argument.name].append((at, 8 * i + argument.offset_bytes))
            elif argument.name == SCRATCH:
                placed[""].append((at, offsets.get(f"{SCRATCH}{i}", 0) + argument.offset_bytes))
            else:
                placed[""].append((at, offsets[argument.name] + argument.offset_bytes))
            numbers.append(number)
    functions = tuple("" if isinstance(step, Jump) else step.kernel.symbol for step in segment.steps)
    targets = tuple(i + step.offset if isinstance(step, Jump) else 0 for i, step in enumerate(segment.steps))
    try:
        return Words(
            np.array(numbers, np.int64), np.array(starts, np.int64), functions, targets, tuple(codes), tuple(constants),
            tuple(own), _rows(outside, 3), *(_rows(rows, 2) for rows in placed.values()),
        )  # fmt: skip
    except OverflowError:
        raise NodeFailed("a size is 2^63 or more: check sizes and pads that attributes and inputs give") from None


def _rows(rows: Sequence[tuple[int, ...]], width: int) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, width)
