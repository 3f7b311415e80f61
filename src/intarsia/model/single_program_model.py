"""A whole model as one program in host memory: no copies, no partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.device.memory import taken_from_device
from intarsia.ep.device import DeviceTensor
from intarsia.ep.program import BoundCall, FeedCall, Program, RunContext
from intarsia.errors import check_outputs
from intarsia.values.feeds import fast_calls


class DirectModel:
    """A `Runnable`: one program whose inputs and outputs are the model's, in their order.

    Attributes:
        fast_calls: by `Program.feed_call` for the shapes that came last twice in a row, or by `Program.open_call`.
    """

    partition = None

    def __init__(self, program: Program) -> None:
        self.programs = (program,)
        self.program = program
        self.fast_calls: tuple[FeedCall, ...] = ()
        self.inputs, self.outputs, self.run, self.awaits = program.inputs, program.outputs, program.run, program.awaits

    def run_into(self, inputs: Sequence[Any], targets: Mapping[str, np.ndarray | None]) -> list[Any] | None:
        """`Program.run_into`."""
        return self.program.run_into(inputs, targets)

    def bound(self, inputs: Sequence[np.ndarray], targets: Mapping[str, np.ndarray | None]) -> BoundCall | None:
        """`Program.bound`."""
        return self.program.bound(inputs, targets)

    def expect_feed(self, inputs: Sequence[Any]) -> None:
        """As `Runnable.expect_feed`."""
        self.fast_calls = fast_calls(self.program.feed_call(inputs) or self.program.open_call())

    def expect_sizes(self) -> None:
        """As `Runnable.expect_sizes`."""
        self.fast_calls = fast_calls(self.program.open_call())

    def finished(self, timeout: float | None = None) -> DirectModel:
        """The model itself."""
        return self

    def run_some(
        self, wanted: tuple[str, ...], inputs: Sequence[Any], run: RunContext | None = None, stay: frozenset[str] = frozenset()
    ) -> list[Any]:
        """The outputs `wanted`, in that order, in host memory.

        Raises:
            InvalidArgument: a name is not an output.
            Fail: the caller asked to stop.
        """
        check_outputs(wanted, self.outputs)
        inputs = [taken_from_device(x) if isinstance(x, DeviceTensor) else x for x in inputs]
        results = dict(zip(self.outputs, self.program.run(inputs, run), strict=True))
        chosen: list[Any] = []
        for i, name in enumerate(wanted):
            value = results[name]
            chosen.append(value.copy() if name in wanted[:i] and hasattr(value, "copy") else value)
        return chosen
