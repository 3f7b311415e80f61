"""A compiled part of a graph: how it is called, one call of it, and what it says of its nodes and its memory."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

from intarsia.ep.capability import Support
from intarsia.errors import Fail, RunTimeout
from intarsia.lazy_dataclass import dataclass
from intarsia.run_status import UNLIMITED_TRIPS


class RunContext:
    """One call of `run`: the caller's wish to stop, and its run configuration entries.

    Attributes:
        options: the caller's `RunOptions`, or None.
        config: its configuration entries.
        flag: of `run_status.new_flag`: another thread sets it to stop the run; programs may watch it without the interpreter.
        timeout: seconds after which the run is stopped, where the caller gave a limit.
        trips: how many trips of loops the run may have, and the setting that says so; None: any number.
    """

    __slots__ = ("config", "flag", "options", "timeout", "trips")

    def __init__(
        self,
        options: Any = None,
        config: Mapping[str, str] | None = None,
        flag: array[int] | None = None,
        timeout: float | None = None,
        trips: tuple[int, str] | None = None,
    ) -> None:
        self.options = options
        self.config: Mapping[str, str] = config if config is not None else {}
        self.flag, self.timeout, self.trips = flag, timeout, trips

    @classmethod
    def of(cls, options: Any) -> RunContext | None:
        """The context of a run with these `RunOptions`; None without any."""
        if options is None:
            return None
        state = options.__dict__
        return cls(options, dict(state["_config"]), state["_flag"])

    @property
    def terminated(self) -> bool:
        return (self.flag is not None and self.flag[0] != 0) or (self.options is not None and bool(self.options.terminate))

    @property
    def flag_address(self) -> int:
        """Address of `flag`; 0 where there is none."""
        return self.flag.buffer_info()[0] if self.flag is not None else 0

    def check(self) -> None:
        """Raise Fail where the caller set `RunOptions.terminate` or the time is over; long programs call it now and then."""
        if self.terminated:
            raise self.stopped()

    def count_trips(self, count: int = 1) -> None:
        """So many trips of loops more are about to be run, or were run.

        Raises:
            Fail: they are more than the run may have.
        """
        if self.trips is not None and self.flag is not None:
            self.flag[1] -= count
            if self.flag[1] < 0:
                raise self.stopped()

    @property
    def trips_left(self) -> int:
        """How many trips of loops the run may still have."""
        return self.flag[1] if self.trips is not None and self.flag is not None else UNLIMITED_TRIPS

    def stopped(self) -> Fail:
        """The error of a run that was stopped."""
        if self.trips is not None and self.trips_left < 0:
            most, setting = self.trips
            return Fail(
                f"the run was stopped: its loops (Loop, Scan, and steps of searches) would have more than {most:,} trips "
                f"together ({setting!r})"
            )
        ended = self.options is not None and bool(self.options.terminate)
        if self.timeout is not None and not ended:
            return RunTimeout(f"the run took longer than its timeout of {self.timeout:g} s and was stopped")
        return Fail("the run was stopped: Exiting due to terminate flag being set to true.")


@dataclass(frozen=True)
class NodeReport:
    """How a program runs one node of its graph.

    Attributes:
        output: the node's first named output, which identifies it.
        kind: "compiled" (machine code or a vendor's compiler), "host" (a function on NumPy arrays), "view" (no work at
            run time) or "folded" (computed when the model was compiled).
        kernel: name of the kernel or fused group that contains it.
        reason: why it is not compiled, where it is not.
        declined: libraries that the provider might have used for it -> why it did not.
    """

    output: str
    kind: str
    kernel: str = ""
    reason: str = ""
    declined: Mapping[str, Support] = field(default_factory=dict)


@dataclass(frozen=True)
class PlanMemory:
    """What runs on inputs of certain shapes need.

    Attributes:
        shapes: of the inputs, as text.
        arena_nbytes: the intermediate tensors of one run, those alive at the same time disjoint, workspace included.
        workspace_nbytes: of it, what the kernel needs that needs most.
        output_nbytes: new memory of one run that its caller gets (outputs), that lies between segments, or that
            holds values that depend on sizes alone.
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
        values_nbytes: values that depend on sizes alone, retained between runs with the same sizes.
    """

    mapped_nbytes: int
    shared_nbytes: int
    packed_nbytes: int
    plans: Sequence[PlanMemory] = ()
    values_nbytes: int = 0


Awaits: TypeAlias = Callable[[tuple["tuple[int, ...] | None", ...]], bool]  # see `Program.awaits`
FeedCall: TypeAlias = Callable[[dict[str, Any]], "list[Any] | None"]  # see `Program.feed_call`
AgainCall: TypeAlias = Callable[[object], "bool | None"]  # see `BoundCall.again`


class BoundCall:
    """A program tied to arrays in host memory: each call reads its inputs there and writes its outputs there.

    It serves one run at a time; `rebind` and `retarget` replace one array by another of the same type and shape.

    Attributes:
        again: a function that runs it as the last call did, with results in the same memory, in less time: True, or None where
            it did nothing or something went wrong. None: there is no such function.
    """

    again: AgainCall | None = None

    def __call__(self) -> list[Any] | None:
        """Run; returns the outputs, or None where another thread is running this call. Outputs without a target are in memory
        that the next run writes again, unless `renew` is called."""
        raise NotImplementedError(f"{type(self).__name__}.__call__")

    def renew(self) -> None:
        """Let the next run write outputs without a target into new memory: somebody has those of the last one."""
        raise NotImplementedError(f"{type(self).__name__}.renew")

    def rebind(self, index: int, value: Any) -> bool:
        """Read input number `index` from `value` from now on; False where that cannot be."""
        return False

    def retarget(self, index: int, target: np.ndarray | None) -> bool:
        """Write output number `index` (of those requested) into `target` (None: new memory); False where that cannot be."""
        return False


class Program:
    """A compiled part of a graph: shared by all callers, safe to run from several threads at once.

    `run` gets one value per name in `inputs` and returns one per name in `outputs`, all in the memory of the provider's
    device. On the host, inputs are C-contiguous arrays in native byte order, and results are the caller's own: they share
    no memory with inputs, constants or each other. `run` may be called with no context, which means one that never stops.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def run(self, inputs: Sequence[Any], run: RunContext | None = None) -> list[Any]:
        """Compute the outputs from the inputs, both in the order of their names; `run` says what the caller requested."""
        raise NotImplementedError(f"{type(self).__name__}.run")

    def run_into(self, inputs: Sequence[Any], targets: Mapping[str, np.ndarray | None]) -> list[Any] | None:
        """As `run`, with each output written into its target (None: new memory), which is then the result. None, and nothing
        done, where a target is of another type or shape, or lies in memory that the run reads otherwise than it may."""
        return None

    def bound(self, inputs: Sequence[np.ndarray], targets: Mapping[str, np.ndarray | None]) -> BoundCall | None:
        """A call on fixed memory: `inputs` are arrays that `run` would take, `targets` where to write the outputs requested
        (None: new memory in each run). None where the program has nothing faster than `run` for them."""
        return None

    def feed_call(self, inputs: Sequence[Any]) -> FeedCall | None:
        """A function that takes a dict of inputs and gives what `run` would, in less time, for inputs of types and shapes
        with which there was a run, as these; it gives None for all others, or where it is at work in another thread. None
        where the program has no such function. Inputs and results are in host memory, also where `run` has them on a
        device."""
        return None

    def open_call(self) -> FeedCall | None:
        """As `feed_call` for inputs of all shapes with which there was a run, or for which one is prepared (`awaits`)."""
        return None

    def awaits(self, shapes: tuple[tuple[int, ...] | None, ...]) -> bool:
        """Whether it has prepared a run on inputs of these shapes (None: no array), which are known to fit."""
        return False

    def memory(self) -> ProgramMemory | None:
        """What it holds in memory; None where the provider does not say."""
        return None

    def predicted_memory(self, shapes: Sequence[Sequence[int] | None]) -> PlanMemory | None:
        """What a run on inputs of these shapes (None: not known) would need; None where the provider does not say."""
        return None

    def trim(self) -> int:
        """Free memory that no run uses; returns bytes freed."""
        return 0

    def describe(self, stage: str = "program") -> str:
        """The program as text at one stage of its compilation ("" for a stage it does not have)."""
        return ""

    def nodes(self) -> list[NodeReport]:
        """How each node runs, as far as the provider can say."""
        return []

    def remarks(self) -> list[str]:
        """What people should know of how its runs went, one line each."""
        return []
