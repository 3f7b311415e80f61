"""Blocks of statements: where a value is written so that it is computed once for all that need it."""

from __future__ import annotations

from collections.abc import Iterator


class Block:
    """The body of a kernel or of a loop in it.

    Attributes:
        names: variables of indices that have a value from here on.
        memo: what has been written here: key -> the text that stands for its value.
    """

    def __init__(self, parent: Block | None = None, names: tuple[str, ...] = ()) -> None:
        self.parent, self.names = parent, set(names)
        self.memo: dict[object, str] = {}
        self._lines: list[str | Block] = []

    def write(self, *lines: str) -> None:
        self._lines += lines

    def nest(self, head: str, inner: Block, tail: str = "}") -> None:
        """Append a finished inner block. What was written here while `inner` was being written comes before it."""
        self._lines += [head, inner, tail]

    def place(self, names: frozenset[str]) -> Block:
        """The outermost block in which all these variables have values."""
        best = self
        while best.parent is not None and not names & best.names:
            best = best.parent
        return best

    def lines(self) -> Iterator[str]:
        for line in self._lines:
            if isinstance(line, Block):
                yield from ("  " + inner for inner in line.lines())
            else:
                yield line
