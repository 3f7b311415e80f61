"""Tables of int64 that kernels read, as what they are made of: so that native code can write them for any sizes.

The numbers may be traced (`graph.trace`); `array` is for those that are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from intarsia.graph.tape import Tape
    from intarsia.graph.trace import Traced

_AXES = 4


@dataclass(frozen=True)
class Spread:
    """start + i * stride for i < count, for every pair (count, stride) one behind the other, the first outermost."""

    start: int
    axes: tuple[tuple[int, int], ...]

    @property
    def length(self) -> int:
        total = 1
        for count, _ in self.axes:
            total = total * count
        return total

    def array(self) -> np.ndarray:
        found = np.array(self.start, np.int64)
        for count, stride in self.axes:
            found = found[..., None] + np.arange(count) * stride
        return found.reshape(-1)

    def note(self, tape: Tape) -> None:
        axes = [(1, 0)] * (_AXES - len(self.axes)) + list(self.axes)
        tape.rows("spread", [self.start, *(x for axis in axes for x in axis)])


@dataclass(frozen=True)
class Inside:
    """Which positions [low, high) of a kernel each of `count` windows sees inside the image: pairs.

    Attributes:
        stride, pad, size, dilation, kernel: of the convolution along this axis.
    """

    count: int
    stride: int
    pad: int
    size: int
    dilation: int
    kernel: int

    @property
    def length(self) -> int:
        return 2 * self.count

    def array(self) -> np.ndarray:
        first = np.arange(self.count) * self.stride - self.pad
        low = np.clip(-(first // self.dilation), 0, self.kernel)
        high = np.minimum(np.maximum(-((first - self.size) // self.dilation), low), self.kernel)
        return np.stack([low, high], 1).reshape(-1)

    def note(self, tape: Tape) -> None:
        tape.rows("inside", [self.count, self.stride, self.pad, self.size, self.dilation, self.kernel])


Part = Spread | Inside | np.ndarray


@dataclass(frozen=True, eq=False)
class Table:
    """Parts one behind the other."""

    parts: tuple[Part, ...]

    @property
    def length(self) -> int:
        total: int = 0
        for part in self.parts:
            total = total + (part.size if isinstance(part, np.ndarray) else part.length)
        return total

    @cached_property
    def array(self) -> np.ndarray:
        return np.concatenate([p if isinstance(p, np.ndarray) else p.array() for p in self.parts])

    def note(self, tape: Tape, held: list[np.ndarray]) -> Traced:
        """Have it written when the tape runs; returns its place, in bytes from the beginning of all words. `held`: arrays that
        the tape refers to are added."""
        place = tape.table()
        for part in self.parts:
            if isinstance(part, np.ndarray):
                held.append(part)
                tape.rows("copy", [int(part.ctypes.data), part.size])
            else:
                part.note(tape)
        return place

    def places(self) -> Sequence[Any]:
        """Bytes from the beginning to every part."""
        found: list[Any] = [0]
        for part in self.parts:
            found.append(found[-1] + 8 * (part.size if isinstance(part, np.ndarray) else part.length))
        return found[:-1]
