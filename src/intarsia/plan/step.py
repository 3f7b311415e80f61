"""Steps as data: a kernel and its arguments, in terms of buffers and sizes that are known when the plan is bound."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from intarsia.graph.dims import Dim
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.argument_tables import Table

if TYPE_CHECKING:
    from intarsia.codegen.llvm.jit import KernelText

SCRATCH = "%scratch"  # the step's own memory, alive only while it runs
CLAIMS = "%claims"  # an int64 of the step's own, 0 whenever it begins: its kernel leaves it so
STATUS = "%status"  # an int64 that the step sets to say that an index was out of range, or a divisor 0


@dataclass(frozen=True)
class Ref:
    """The address of a buffer (by name), plus an offset."""

    name: str
    offset_bytes: int = 0


@dataclass(frozen=True)
class Code:
    """The address of one of the step's `calls`, by its symbol."""

    symbol: str


Argument = Ref | Code | int | np.ndarray | Table  # an array or table stands for its address, and the plan holds it
Address = Argument  # an argument that says where something lies, not how much there is
Sizes = Callable[[Dim], int]


class KernelCall(ABC):
    """What a kernel is called with, as a value: a frozen dataclass of buffers' names and of what its numbers follow from.

    What rewrites steps distinguishes calls by their types, and makes another with `dataclasses.replace`. A call is pickled with
    its program.
    """

    @property
    def form(self) -> object:
        """What its numbers depend on. Calls of one type and of equal forms have the same numbers for the same sizes, and take
        as much scratch memory, whatever their buffers are called; one whose form has no hash is like no other."""
        return self

    @property
    def has_scratch(self) -> bool:
        """Whether it has scratch memory."""
        return False

    @abstractmethod
    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        """The kernel's arguments, once sizes are known."""

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        """Bytes of scratch memory of all threads together."""
        return 0


class ScratchCall(KernelCall):
    """A call with scratch memory."""

    @property
    def has_scratch(self) -> bool:
        return True

    @abstractmethod
    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        """Bytes of scratch memory of all threads together."""


class Serial(ABC):
    """Whether one thread runs a step alone, as a value that has a hash."""

    @abstractmethod
    def __call__(self, size: Sizes) -> bool: ...


class Work(ABC):
    """How much work a step is, in times what is just worth sharing, as a value that has a hash."""

    @abstractmethod
    def __call__(self, size: Sizes) -> float: ...


@dataclass(frozen=True)
class Below(Serial):
    """Too little work to share where `work` is less than `least`."""

    work: Dim
    least: int

    def __call__(self, size: Sizes) -> bool:
        return size(self.work) < self.least


def form_of(value: KernelCall | Serial | Work) -> object | None:
    """What is equal for values that give the same numbers for the same sizes; None where that has no hash."""
    key = (type(value), value.form) if isinstance(value, KernelCall) else value
    try:
        hash(key)
    except TypeError:
        return None
    return key


ALWAYS = Below(0, 1)  # one thread, whatever the sizes are


@dataclass(frozen=True)
class Shares(Work):
    """An amount of work of which `each` is just worth sharing."""

    amount: Dim
    each: float

    def __call__(self, size: Sizes) -> float:
        return size(self.amount) / self.each


@dataclass
class Step:
    """One call of a kernel, as data, so that a program can be cached.

    Attributes:
        kernel: text of the kernel.
        reads, writes: names of the buffers it touches.
        call: what the kernel is called with; evaluated when the plan is bound.
        serial: whether one thread runs it (too little work to share); None: never.
        work: how many times the work that is just worth sharing; None: what `serial` says, or the buffers' sizes.
        nodes: first output names of the nodes it computes.
        label: what it does, for people.
        where: the first node, for messages.
        checked: it reports indices that are out of range, divisions by 0, or singular matrices.
        divides: the node whose divisions it reports, for messages.
        calls: texts of the kernels that `Code` arguments name.
        pieces: which argument says in how many pieces a thread does its share, where one piece goes on with what the last one
            left in scratch memory: the kernel is then called for piece `tid % pieces` of thread `tid / pieces`. -1: shares are
            divided like work between threads.
        arithmetic: what of it is computed or stored in less precision than its types say, for people.
        ahead: it fetches what it reads long before it needs it, so that it takes as long from memory as from the caches.
        varies: what it writes may differ from run to run though what it reads does not (random numbers).
        shared: any step that writes the same buffer writes the same into it: where one has run, others are left out.
        chosen: of what it reads, that of which data choose the parts: the rows of a table, the weights of experts.
        onto: what of it may lie in the same memory as what it writes ("": nothing).
    """

    kernel: KernelText
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    call: KernelCall
    serial: Serial | None = None
    nodes: tuple[str, ...] = ()
    label: str = ""
    where: str = ""
    checked: bool = False
    divides: str = ""
    calls: tuple[KernelText, ...] = ()
    work: Work | None = None
    pieces: int = -1
    shared: bool = False
    varies: bool = False
    ahead: bool = False
    arithmetic: str = ""
    chosen: tuple[str, ...] = ()
    onto: str = ""

    @property
    def title(self) -> str:
        """The label, with what is not computed as the types say."""
        return f"{self.label} ({self.arithmetic})" if self.arithmetic else self.label

    @property
    def kernels(self) -> tuple[KernelText, ...]:
        """All texts that must be loaded for it."""
        return (self.kernel, *self.calls)

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        """The kernel's arguments, once sizes are known."""
        return self.call.arguments(size, threads)


COUNTED_IF, COUNTED_UNLESS = 1 << 8, 1 << 9


@dataclass
class Jump:
    """Goes on `offset` steps further where the byte in the buffer `condition` is `value` ("": always), else at the next.

    `value` has COUNTED_IF where a trip of a loop begins if it jumps, COUNTED_UNLESS where one does if it goes on.
    """

    offset: int
    condition: str = ""
    value: int = 1
    nodes: tuple[str, ...] = ()
    label: str = "jump"
    where: str = ""
    checked: ClassVar[bool] = False
    writes: ClassVar[tuple[str, ...]] = ()
    kernels: ClassVar[tuple[KernelText, ...]] = ()

    @property
    def title(self) -> str:
        return self.label

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.condition,) if self.condition else ()

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return [Ref(self.condition) if self.condition else 0, self.value]


@dataclass(frozen=True)
class AlteredCall(KernelCall):
    """A call of which some arguments are others."""

    call: KernelCall

    @property
    def has_scratch(self) -> bool:
        return self.call.has_scratch

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return self.call.scratch_nbytes(size, threads)


@dataclass(frozen=True)
class RenamedCall(AlteredCall):
    """A call whose buffers have other names where it is used."""

    names: Mapping[str, str]

    @property
    def form(self) -> object:
        return type(self.call), self.call.form

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        given = self.call.arguments(size, threads)
        return [Ref(self.names.get(a.name, a.name), a.offset_bytes) if isinstance(a, Ref) else a for a in given]


@dataclass(frozen=True)
class PlainCall(KernelCall):
    """Addresses and sizes, in the order in which the kernel takes them."""

    given: tuple[Ref | Dim, ...]

    @property
    def form(self) -> object:
        return tuple([(a.offset_bytes,) if isinstance(a, Ref) else a for a in self.given])

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return [a if isinstance(a, Ref) else size(a) for a in self.given]


@dataclass(frozen=True)
class BuffersAndSizes(KernelCall):
    """A kernel's buffers, then sizes."""

    buffers: tuple[str, ...]
    sizes: tuple[Dim, ...]

    @property
    def form(self) -> object:
        return len(self.buffers), self.sizes

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return [*(Ref(n) for n in self.buffers), *(size(d) for d in self.sizes)]
