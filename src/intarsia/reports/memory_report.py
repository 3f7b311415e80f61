"""`InferenceSession.memory_report`: who holds what, and what a run on given shapes would need."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from intarsia.ep.arena import ArenaStatistics
from intarsia.ep.program import PlanMemory, ProgramMemory
from intarsia.ep.provider import Program
from intarsia.errors import InvalidArgument, nearest
from intarsia.graph.dims import Expr, symbols_of
from intarsia.graph.model import TensorType, Value, ValueType
from intarsia.lazy_dataclass import dataclass
from intarsia.model.single_program_model import DirectModel
from intarsia.partition.text_table import format_table
from intarsia.printable import visible

if TYPE_CHECKING:
    from intarsia.model.compiled_model import CompiledModel

_MIB = 1 << 20
_DEVICE = re.compile(r"([a-z]+):(\d+)")


@dataclass(frozen=True)
class ProviderMemory:
    """What one provider's parts of the model hold; `unreported`: parts that it says nothing of; `values_nbytes`: kept
    values that depend on sizes alone."""

    provider: str
    mapped_nbytes: int
    shared_nbytes: int
    packed_nbytes: int
    arena_nbytes: int
    idle_nbytes: int
    plans: tuple[PlanMemory, ...]
    unreported: int
    values_nbytes: int = 0


@dataclass(frozen=True)
class Prediction:
    """What one run on given shapes would need, by provider. `unknown`: parts whose sizes depend on data, or whose provider
    does not say; they are not in the numbers."""

    shapes: Mapping[str, Sequence[int]]
    by_provider: Mapping[str, PlanMemory]
    unknown: int

    @property
    def nbytes(self) -> int:
        """Intermediate tensors and outputs of one run, without its inputs and the weights."""
        return sum(plan.arena_nbytes + plan.output_nbytes for plan in self.by_provider.values())


@dataclass(frozen=True)
class MemoryReport:
    """Prints itself as tables; `to_dict` gives the same as data.

    `arena`: of the memory of intermediate tensors on the host, which several sessions may share.
    """

    providers: tuple[ProviderMemory, ...]
    prediction: Prediction | None = None
    arena: ArenaStatistics | None = None

    @classmethod
    def of(
        cls, models: Sequence[CompiledModel | DirectModel], providers: Sequence[str], inputs: Sequence[Value],
        shapes: Mapping[str, Sequence[int]] | None, arena: ArenaStatistics | None = None,
    ) -> MemoryReport:  # fmt: skip
        """Of a session's model (first) and those made from it for taps or overridden initializers."""
        found: dict[str, list[ProgramMemory | None]] = {}
        for model in models:
            for name, program in _programs(model, providers):
                found.setdefault(name, []).append(program.memory())
        rows = tuple(_together(name, memories) for name, memories in found.items())
        return cls(rows, None if shapes is None else _predicted(models[0], providers, inputs, shapes), arena)

    def __str__(self) -> str:
        header = (
            "provider",
            "weights mapped",
            "in the model's bytes",
            "packed or computed",
            "intermediate",
            "of it idle",
            "of sizes alone",
        )
        rows = [
            (p.provider + (f" ({p.unreported} parts not reported)" if p.unreported else ""),
             *map(_mib, (p.mapped_nbytes, p.shared_nbytes, p.packed_nbytes, p.arena_nbytes, p.idle_nbytes,
                   p.values_nbytes)))
            for p in self.providers
        ]  # fmt: skip
        lines = ["MiB", format_table(header, rows)]
        plans = [(p.provider, *_cells(plan), str(plan.blocks), str(plan.idle)) for p in self.providers for plan in p.plans]
        columns = ("inputs", "intermediate", "workspace in it", "outputs")
        if plans:
            lines += ["", format_table(("provider", *columns, "times", "idle"), plans)]
        if self.arena is not None and self.arena.leases:
            lines += ["", _arena_text(self.arena)]
        if self.prediction is not None:
            shapes = ", ".join(f"{visible(name)} {list(shape)}" for name, shape in self.prediction.shapes.items())
            lines += [
                "",
                f"a run on {shapes or 'the model'} needs {_mib(self.prediction.nbytes)} MiB besides weights and inputs",
            ]
            expected = [(name, *_cells(plan)) for name, plan in self.prediction.by_provider.items()]
            lines += [format_table(("provider", *columns), expected)] if expected else []
            if self.prediction.unknown:
                what = "whose provider does not say, or whose sizes are known in a run only"
                lines.append(f"and what parts need ({self.prediction.unknown}) {what}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        if self.prediction is not None:
            data["prediction"]["nbytes"] = self.prediction.nbytes
        return data

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent)


def _arena_text(arena: ArenaStatistics) -> str:
    limit = f", limit {_mib(arena.limit_nbytes)}" if arena.limit_nbytes else ""
    return (
        f"arena of host memory: {_mib(arena.in_use_nbytes)} in use (at most {_mib(arena.peak_in_use_nbytes)}), "
        f"{_mib(arena.reserved_nbytes)} reserved (at most {_mib(arena.peak_reserved_nbytes)}{limit}), {arena.strategy}, "
        f"extended {arena.extensions} times, {arena.shrinkages} regions freed"
    )


def shrink(model: CompiledModel | DirectModel, devices: str) -> int:
    """Free what no run uses on devices named as in "cpu:0;gpu:0"; returns bytes freed.

    Raises:
        InvalidArgument: the text has another form, or names a device that no part of the model works on.
    """
    freed = 0
    for text in filter(None, (part.strip() for part in devices.split(";"))):
        match = _DEVICE.fullmatch(text)
        if match is None:
            raise InvalidArgument(f"'memory.enable_memory_arena_shrinkage': expected devices as in 'cpu:0;gpu:0', got {text!r}")
        programs = _on_device(model, match[1], int(match[2]))
        if programs is None:
            raise InvalidArgument(
                f"'memory.enable_memory_arena_shrinkage': no part of the model works in the memory of {text!r}; "
                "name the devices of the session's providers, as in 'cpu:0'"
            )
        model.fast_calls = ()
        freed += sum(program.trim() for program in programs)
    return freed


def _on_device(model: CompiledModel | DirectModel, kind: str, index: int) -> list[Program] | None:
    """Programs in a device's memory; host memory is always there."""
    host = (kind, index) == ("cpu", 0)
    if isinstance(model, DirectModel):
        return [model.program] if host else None
    found = [
        program
        for part, program in zip(model.partition.parts, model.programs, strict=True)
        if (host if part.provider.device.host else (part.provider.device.kind, part.provider.device.index) == (kind, index))
    ]
    return found if found or host else None


def _programs(model: CompiledModel | DirectModel, providers: Sequence[str]) -> list[tuple[str, Program]]:
    if isinstance(model, DirectModel):
        return [(providers[0], model.program)]
    return [(part.provider.name, p) for part, p in zip(model.partition.parts, model.programs, strict=True)]


def _together(name: str, memories: Sequence[ProgramMemory | None]) -> ProviderMemory:
    known = [m for m in memories if m is not None]
    plans = tuple(plan for m in known for plan in m.plans)
    return ProviderMemory(
        name, sum(m.mapped_nbytes for m in known), sum(m.shared_nbytes for m in known), sum(m.packed_nbytes for m in known),
        sum(p.arena_nbytes * p.blocks for p in plans), sum(p.arena_nbytes * p.idle for p in plans), plans,
        len(memories) - len(known), sum(m.values_nbytes for m in known),
    )  # fmt: skip


def _predicted(
    model: CompiledModel | DirectModel, providers: Sequence[str], inputs: Sequence[Value], shapes: Mapping[str, Sequence[int]]
) -> Prediction:
    sizes = _sizes(inputs, shapes)
    given: dict[str, tuple[int, ...]] = {name: tuple(map(int, shape)) for name, shape in shapes.items()}
    types = {v.name: v.type for v in inputs}
    if not isinstance(model, DirectModel):
        types.update((v.name, v.type) for part in model.partition.parts for v in part.graph.inputs)
    found: dict[str, PlanMemory] = {}
    unknown = 0
    for name, program in _programs(model, providers):
        plan = program.predicted_memory([given.get(n, _shape(types.get(n), sizes)) for n in program.inputs])
        if plan is None:
            unknown += 1
            continue
        unknown += plan.unknown
        found[name] = _sum(found[name], plan) if name in found else plan
    return Prediction({n: list(s) for n, s in given.items()}, found, unknown)


def _sum(a: PlanMemory, b: PlanMemory) -> PlanMemory:
    return PlanMemory(
        a.shapes, a.arena_nbytes + b.arena_nbytes, max(a.workspace_nbytes, b.workspace_nbytes),
        a.output_nbytes + b.output_nbytes, unknown=a.unknown + b.unknown,
    )  # fmt: skip


def _sizes(inputs: Sequence[Value], shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Symbols and their sizes.

    Raises:
        InvalidArgument: as `InferenceSession.memory_report`.
    """
    declared = {v.name: v.type for v in inputs}
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in declared:
            raise InvalidArgument(f"memory_report: the model has no input {name!r}; {nearest(name, declared)}")
        kind = declared[name]
        if not isinstance(kind, TensorType) or kind.shape is None:
            continue
        if len(shape) != len(kind.shape):
            raise InvalidArgument(
                f"memory_report: input {name!r} is {kind}; expected {len(kind.shape)} sizes, got {list(shape)}"
            )
        for axis, (dim, size) in enumerate(zip(kind.shape, shape, strict=True)):
            known = sizes.setdefault(str(dim), int(size)) if isinstance(dim, Expr) else dim
            if known != size or size < 0:
                raise InvalidArgument(
                    f"memory_report: input {name!r} is {kind}; expected size {max(known, 0)} of axis {axis}, got {size}"
                )
    for value in inputs:
        dims = value.type.shape if isinstance(value.type, TensorType) else None
        missing = [d for d in dims or () if symbols_of(d) - sizes.keys()]
        if missing and value.name not in shapes:
            raise InvalidArgument(f"memory_report: the size of {missing[0]} is not known: give a shape for {value.name!r} too")
    return sizes


def _shape(kind: ValueType | None, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    if not isinstance(kind, TensorType) or kind.shape is None or any(symbols_of(d) - sizes.keys() for d in kind.shape):
        return None
    return tuple(d.evaluate(sizes) if isinstance(d, Expr) else d for d in kind.shape)


def _cells(plan: PlanMemory) -> tuple[str, ...]:
    return (plan.shapes, *map(_mib, (plan.arena_nbytes, plan.workspace_nbytes, plan.output_nbytes)))


def _mib(nbytes: int) -> str:
    return f"{nbytes / _MIB:.3f}"
