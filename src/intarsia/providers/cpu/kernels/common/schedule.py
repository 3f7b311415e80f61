"""How a template chooses among schedules: a table of them in the order of preference, each of which says where it applies.

A family of kernels has one literal table. `choose` takes the schedule that timing has found, else the first of the table that
applies and that the estimate does not advise against, else the last that applies; `considered` tells of every schedule what was
thought of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.ep.capability import Support
from intarsia.errors import InvalidArgument
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.lowering_options import LoweringOptions
from intarsia.providers.cpu.kernels.common.precision import options_at
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace

NodeKind_contra = TypeVar("NodeKind_contra", bound=Template, contravariant=True)
_WORTH_TIMING = 3.0  # times the least estimate


class Constants(Protocol):
    """Which operands are constant."""

    def is_constant(self, name: str) -> bool:
        """Whether `array` has something."""

    def array(self, name: str) -> np.ndarray | None:
        """The constant called `name`, or None if it is computed at run time."""

    def original_type(self, name: str) -> DType | None:
        """The type of fewer bits in which the model gives the float32 constant `name`, if it does."""


@dataclass(frozen=True)
class LoweringEnv:
    """Target, options and constants by which schedules are chosen.

    Attributes:
        constants: the operands' values where they are known.
        choices: names of schedules that were chosen by timing, by `Template.schedule_key`.
    """

    target: Target
    options: LoweringOptions
    constants: Constants
    choices: Mapping[str, str]

    def options_of(self, template: Template) -> LoweringOptions:
        """The options at a node, whose own types may request less than float32."""
        return options_at(self.options, template.node)

    def timed(self, template: Template) -> str:
        """The schedule that timing has chosen for a node, or ""."""
        key = template.schedule_key(self) if self.choices else None
        return self.choices.get(key, "") if key is not None else ""


@dataclass(frozen=True)
class KernelRequest:
    """Steps that are wanted of a schedule.

    Attributes:
        epilogue: what is computed behind the node before its result is stored; `operands`: what that reads.
        out: the buffer of the result.
    """

    target: Target
    workspace: Workspace
    epilogue: Epilogue | None
    operands: tuple[FusedOperand, ...]
    out: str

    @property
    def env(self) -> LoweringEnv:
        return LoweringEnv(self.target, self.workspace.options, self.workspace, self.workspace.choices)

    @property
    def operand_names(self) -> tuple[str, ...]:
        """The buffers that the epilogue reads."""
        return tuple(o.name for o in self.operands)


@dataclass(frozen=True)
class Schedule(ABC, Generic[NodeKind_contra]):
    """One way to compute a node."""

    name: str

    @abstractmethod
    def applies(self, node: NodeKind_contra, env: LoweringEnv) -> Support:
        """Whether it computes this node, and the target and the options allow it."""

    def pays(self, node: NodeKind_contra, env: LoweringEnv) -> Support:
        """Whether, where it applies, it is to be preferred to those behind it in the table."""
        return Support.yes()

    @abstractmethod
    def cost(self, node: NodeKind_contra, env: LoweringEnv) -> float:
        """Estimated seconds on one core, with usual sizes for those that are not known."""

    def rounds(self, node: NodeKind_contra, env: LoweringEnv) -> bool:
        """Whether the first operand, of float32, is only read rounded to bfloat16."""
        return False

    @abstractmethod
    def steps(self, node: NodeKind_contra, request: KernelRequest) -> list[Step]:
        """The kernel calls that compute the node, where the schedule applies."""


@dataclass(frozen=True)
class Considered:
    """The verdict on a schedule for a node.

    Attributes:
        applies: yes, or no and why.
        pays: the same of whether it is to be preferred to those behind it; yes where it does not apply.
        seconds: the estimate on one core; infinite where it does not apply.
        chosen: whether it is the one that was taken; `timed`: by timing.
    """

    name: str
    applies: Support
    pays: Support
    seconds: float
    chosen: bool
    timed: bool = False

    def __str__(self) -> str:
        if not self.applies:
            return f"{self.name:26} no        {self.applies.reason}"
        by = " by time" if self.timed else ""
        said = f"chosen{by}" if self.chosen else "yes" if self.pays else f"yes, but {self.pays.reason}"
        return f"{self.name:26} {duration(self.seconds):>9} {said}"


def duration(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def choose(template: Template, env: LoweringEnv) -> Schedule[Any]:
    """The schedule of a node whose template has a table of them.

    Raises:
        LookupError: none applies, which a table's last entry excludes.
    """
    timed = env.timed(template)
    for schedule in template.schedule_table():
        if schedule.name == timed and schedule.applies(template, env):
            return schedule
    return first_of(template.schedule_table(), template, env)


def first_of(table: Sequence[Schedule[Any]], template: Template, env: LoweringEnv) -> Schedule[Any]:
    """The first of `table` that applies and pays; where none of those that apply pays, the last of them.

    Raises:
        LookupError: none applies.
    """
    last = None
    for schedule in table:
        if schedule.applies(template, env):
            if schedule.pays(template, env):
                return schedule
            last = schedule
    if last is not None:
        return last
    raise LookupError(f"{template.node.op_type}: none of the schedules {', '.join(s.name for s in table)} applies")


def considered(template: Template, env: LoweringEnv) -> tuple[Considered, ...]:
    """Every schedule of a node's table, with why it was taken or not."""
    table = template.schedule_table()
    if not table:
        return ()
    chosen, timed, found = choose(template, env), env.timed(template), []
    for schedule in table:
        applies = _support(schedule, template, env)
        pays = schedule.pays(template, env) if applies else Support.yes()
        seconds = schedule.cost(template, env) if applies else float("inf")
        found.append(Considered(schedule.name, applies, pays, seconds, schedule is chosen, schedule.name == timed))
    return tuple(found)


def _support(schedule: Schedule[Any], template: Template, env: LoweringEnv) -> Support:
    """Whether a schedule applies; no where it would take what the options name but this machine has not, which is an error
    only where it would be taken."""
    try:
        return schedule.applies(template, env)
    except InvalidArgument as error:
        return Support.no(str(error))


@dataclass(frozen=True)
class Candidates:
    """The schedules of a node that are worth timing.

    Attributes:
        key: `Template.schedule_key`.
        names: of the schedules, the one that is taken without timing first.
        seconds: that one's estimate.
    """

    key: str
    names: tuple[str, ...]
    seconds: float


def candidates(template: Template, env: LoweringEnv) -> Candidates | None:
    """The schedules that are worth timing: those that apply, and that are not estimated to be far slower than the fastest.
    None where there are fewer than two, or a node's sizes are not known."""
    key = template.schedule_key(env)
    if key is None:
        return None
    found = {c.name: c for c in considered(template, env) if c.applies}
    least = min(c.seconds for c in found.values())
    default = next(c for c in found.values() if c.chosen)
    others = [c.name for c in found.values() if c is not default and c.seconds <= _WORTH_TIMING * least]
    return Candidates(key, (default.name, *others), default.seconds) if others else None
