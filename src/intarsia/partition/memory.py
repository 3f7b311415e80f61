"""What programs hold in memory, and a limit that all programs of a session share."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from intarsia.errors import OutOfMemory

_MIB = 1 << 20
_SHOWN = 8


class Holder(Protocol):
    """Something that has blocks of one size for intermediate tensors: those in use and idle ones."""

    @property
    def block_nbytes(self) -> int: ...

    @property
    def blocks(self) -> int:
        """All that exist."""

    @property
    def purpose(self) -> str:
        """What they are for, for people."""

    def trim(self) -> int:
        """Free idle blocks; returns bytes freed."""


class MemoryBudget:
    """The intermediate tensors of a session's runs: who holds how much, and how much there may be.

    Args:
        limit: bytes; 0: as much as the system gives.
        setting: what the user set the limit with, for messages.
    """

    def __init__(self, limit: int = 0, setting: str = "") -> None:
        self.limit, self.setting = limit, setting
        self._holders: weakref.WeakSet[Holder] = weakref.WeakSet()
        self._lock = threading.Lock()

    def held(self) -> int:
        """Bytes of all blocks."""
        with self._lock:
            return self._held()

    def _held(self) -> int:
        return sum(h.block_nbytes * h.blocks for h in self._holders)

    def admit(self, holder: Holder, count: weakref.WeakSet[object], block: object) -> None:
        """Let `holder` have another block: `block` is put into `count`. Idle blocks of others are freed where that is needed.

        Raises:
            OutOfMemory: the limit does not allow it; says who holds what.
        """
        with self._lock:
            self._holders.add(holder)
            if self.limit and self._held() + holder.block_nbytes > self.limit:
                for other in self._holders:
                    other.trim()
                if self._held() + holder.block_nbytes > self.limit:
                    raise OutOfMemory(self._message(holder))
            count.add(block)

    def _message(self, holder: Holder) -> str:
        owners = sorted((h for h in self._holders if h.blocks and h.block_nbytes), key=lambda h: -h.block_nbytes * h.blocks)
        lines = [f"{h.blocks} x {_mib(h.block_nbytes)} for {h.purpose}" for h in owners[:_SHOWN]]
        more = [f"{len(owners) - _SHOWN} others"] if len(owners) > _SHOWN else []
        held = (
            f"{_mib(self._held())} are held by runs that are going on: {'; '.join([*lines, *more])}"
            if lines
            else "none is held"
        )
        return (
            f"the intermediate tensors of a run for {holder.purpose} need {_mib(holder.block_nbytes)}, and {self.setting} "
            f"allows {_mib(self.limit)} in all, of which {held}. Use a smaller batch or a shorter input, fewer runs at "
            "the same time, or a higher limit; session.memory_report(shapes) says what a run needs"
        )


def _mib(nbytes: int) -> str:
    return f"{nbytes / _MIB:,.2f} MiB"


@dataclass(frozen=True)
class PlanMemory:
    """What runs on inputs of certain shapes need.

    Attributes:
        shapes: of the inputs, as text.
        arena_nbytes: the intermediate tensors of one run, those alive at the same time apart, workspace included.
        workspace_nbytes: of it, what the kernel needs that needs most.
        output_nbytes: new memory of one run that its caller gets (outputs), or that lies between segments.
        blocks, idle: arenas that exist (one for each run that went on at the same time), and those not in use.
        unknown: segments whose sizes depend on data, which are not in these numbers.
    """

    shapes: str
    arena_nbytes: int
    workspace_nbytes: int
    output_nbytes: int
    blocks: int = 0
    idle: int = 0
    unknown: int = 0


@dataclass(frozen=True)
class ProgramMemory:
    """What a program holds.

    Attributes:
        mapped_nbytes: weights that are pages of the model's file, which the system drops when it needs the memory.
        shared_nbytes: weights that lie in the model's bytes as they were given, or read from a small file.
        packed_nbytes: weights in memory of the program's own: packed for kernels, or computed from others.
        plans: by the shapes of the inputs.
    """

    mapped_nbytes: int
    shared_nbytes: int
    packed_nbytes: int
    plans: Sequence[PlanMemory] = ()
