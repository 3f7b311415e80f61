"""What a session runs, as its call paths know it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from intarsia.ep.program import Awaits, BoundCall, FeedCall, Program, RunContext
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.model.single_program_model import DirectModel
    from intarsia.partition.partition import Partition


class RunCall(Protocol):
    """All outputs, in the model's order, of inputs in that order; `run` says what the caller requested."""

    def __call__(self, inputs: Sequence[Any], run: RunContext | None = None, /) -> list[Any]: ...


class Runnable(Protocol):
    """A model that can be run: `CompiledModel`, `DirectModel`, `Underway`, or `ClosedModel`, which says that it cannot.

    Attributes:
        inputs, outputs: names, in the model's order.
        programs: what it is compiled to, in the order of its parts; empty before it is.
        partition: which provider has what; None where that is not known: a program from the cache, or nothing yet.
        fast_calls: functions of a feed, in the order in which they are to be tried. Each gives all outputs, or None for a
            feed that is not for it.
        awaits: `Program.awaits`, where one program is the whole model.
        run: computes all outputs.
    """

    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...
    @property
    def programs(self) -> tuple[Program, ...]: ...
    @property
    def partition(self) -> Partition | None: ...
    @property
    def fast_calls(self) -> tuple[FeedCall, ...]: ...
    @property
    def awaits(self) -> Awaits | None: ...
    @property
    def run(self) -> RunCall: ...

    def run_some(
        self, wanted: tuple[str, ...], inputs: Sequence[Any], run: RunContext | None = None, stay: frozenset[str] = frozenset()
    ) -> list[Any]:
        """The outputs `wanted`; those of `stay` as device tensors where a device made them."""

    def run_into(self, inputs: Sequence[Any], targets: Mapping[str, np.ndarray | None]) -> list[Any] | None:
        """`Program.run_into` where one program in host memory is the whole model, else None."""

    def bound(self, inputs: Sequence[np.ndarray], targets: Mapping[str, np.ndarray | None]) -> BoundCall | None:
        """`Program.bound` where one program in host memory is the whole model, else None."""

    def expect_feed(self, inputs: Sequence[Any]) -> None:
        """Let `fast_calls` be those for inputs like these, where the program has one, else those for all sizes."""

    def expect_sizes(self) -> None:
        """Let `fast_calls` be those for all sizes, where the program has one."""

    def finished(self, timeout: float | None = None) -> CompiledModel | DirectModel:
        """The model itself, once it is compiled.

        Raises:
            TimeoutError: it takes more than `timeout` seconds.
        """
