"""Steps as data: a kernel and its arguments, in terms of buffers and sizes that are known when the plan is bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MethodType
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


Argument = Ref | Code | int | np.ndarray | Table  # an array or table stands for its address, and is kept alive by the plan
Address = Argument  # an argument that says where something lies, not how much there is
Sizes = Callable[[Dim], int]
Arguments = Callable[[Sizes, int], Sequence[Argument]]


def form_of(function: Callable[..., object]) -> object | None:
    """A value that is equal for functions that compute the same numbers from the same sizes, whatever their buffers are called;
    None where that is not known.

    It is known of partials of plain functions, and of methods of objects with an attribute `form`: all that their numbers
    depend on. Texts among the further arguments of such a method are names of buffers.
    """
    given: tuple[object, ...] = ()
    inner: object = function
    if isinstance(function, partial):
        given, inner = (*function.args, *sorted(function.keywords.items())), function.func
    owner = getattr(inner, "__self__", None)
    if owner is None:
        key: tuple[object, ...] = (inner, given)
    elif isinstance(inner, MethodType) and hasattr(owner, "form"):
        key = (inner.__func__, owner.form, tuple(a for a in given if not isinstance(a, str)))
    else:
        return None
    try:
        hash(key)
    except TypeError:
        return None
    return key


@dataclass(frozen=True)
class Below:
    """A step's `serial`: too little work to share where `work` is less than `least`."""

    work: Dim
    least: int

    def __call__(self, size: Sizes) -> bool:
        return size(self.work) < self.least


@dataclass
class Step:
    """One call of a kernel. Its functions are plain data (methods of picklable objects, `partial`s), so that a program can
    be kept in the cache; one whose steps hold other functions is not kept.

    Attributes:
        kernel: text of the kernel.
        reads, writes: names of the buffers it touches.
        arguments: (sizes, threads) -> arguments, called when the plan is bound.
        scratch_nbytes: (sizes, threads) -> bytes of scratch memory.
        serial: run by one thread (too little work to share).
        work: sizes -> how many times the work that is just worth sharing; None: what `serial` says, or the buffers' sizes.
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
    arguments: Arguments
    scratch_nbytes: Callable[[Sizes, int], int] | None = None
    serial: Callable[[Sizes], bool] | None = None
    nodes: tuple[str, ...] = ()
    label: str = ""
    where: str = ""
    checked: bool = False
    divides: str = ""
    calls: tuple[KernelText, ...] = ()
    work: Callable[[Sizes], float] | None = None
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
class Renamed:
    """Arguments of a step whose buffers have other names where it is used."""

    arguments: Arguments
    names: Mapping[str, str]

    def __call__(self, size: Sizes, threads: int) -> Sequence[Argument]:
        given = self.arguments(size, threads)
        return [Ref(self.names.get(a.name, a.name), a.offset_bytes) if isinstance(a, Ref) else a for a in given]


@dataclass(frozen=True)
class BuffersAndSizes:
    """A kernel's buffers and sizes."""

    buffers: tuple[str, ...]
    sizes: tuple[Dim, ...]

    @property
    def form(self) -> object:
        return len(self.buffers), self.sizes

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        """Arguments of a kernel that takes addresses, then sizes."""
        return [*(Ref(n) for n in self.buffers), *(size(d) for d in self.sizes)]
