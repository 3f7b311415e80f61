"""Which launches of a plan are repeated, and which depend on a condition: control flow as ranges of the list of launches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from intarsia.lazy_dataclass import dataclass

NO_LIMIT = -1


@dataclass
class Region:
    """Launches from `start` up to `stop` (exclusive). Names are those of stored values.

    A loop runs them `count` times, or as often as `limit` (an int64) says before it begins, while `first` (a bool, looked at
    before it) and `condition` (after each iteration) hold. A choice, which has a `middle`, runs those before it where
    `condition` holds, else those from it on. What is looked at is read by the host; nothing else is. `node`: whose it is.
    """

    start: int
    stop: int = 0
    middle: int | None = None
    count: int = NO_LIMIT
    limit: str = ""
    first: str = ""
    condition: str = ""
    node: str = ""
    inner: list[Region] = field(default_factory=list)

    @property
    def reads(self) -> list[tuple[str, int]]:
        """What the host looks at, and before which launch."""
        if self.middle is not None:
            return [(self.condition, self.start)]
        before = [(n, self.start) for n in (self.limit, self.first) if n]
        return [*before, *([(self.condition, self.stop)] if self.condition else [])]

    def renamed(self, old: str, new: str) -> None:
        for name in ("limit", "first", "condition"):
            if getattr(self, name) == old:
                setattr(self, name, new)


def nested(regions: Sequence[Region]) -> list[Region]:
    """The outermost of regions that are given in the order in which they were opened, with the others inside them."""
    outermost: list[Region] = []
    waiting = iter(regions)
    region = next(waiting, None)

    def collect(into: list[Region], stop: int) -> None:
        nonlocal region
        while region is not None and region.stop <= stop and region.start <= stop:
            mine = region
            region = next(waiting, None)
            mine.inner = []
            collect(mine.inner, mine.stop)
            into.append(mine)

    collect(outermost, max((r.stop for r in regions), default=0))
    return outermost


def parts(start: int, stop: int, regions: Sequence[Region]) -> Iterator[tuple[int, int] | Region]:
    """Ranges of plain launches and regions, in order."""
    at = start
    for region in regions:
        if not start <= region.start <= region.stop <= stop:
            continue
        if at < region.start:
            yield at, region.start
        yield region
        at = region.stop
    if at < stop:
        yield at, stop
