"""A CPU program as text, at each stage of its compilation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.microbatch import BoundParts
from intarsia.plan.step import Step
from intarsia.providers.cpu.executable import Executable, HostStep, LoopStep

if TYPE_CHECKING:
    from intarsia.providers.cpu.program.cpu_program import CpuProgram


def describe(program: CpuProgram, stage: str) -> str:
    """`legalized`: the graph that is lowered, under what each pass did to it; `schedules`: of each node; `kernels`: groups,
    their steps, and what they rely on of sizes; `source`: LLVM IR; `assembly`; `plan`: bound plans; else the lowered graph."""
    writers = {
        "legalized": _legalized, "schedules": _schedules, "kernels": _kernels, "source": _source, "assembly": _assembly,
        "plan": _plan,
    }  # fmt: skip
    writer = writers.get(stage)
    if writer is not None:
        return writer(program)
    return str(program.lowered.graph) if program.lowered is not None else ""


def _legalized(program: CpuProgram) -> str:
    from intarsia.providers.cpu.legalize.legalize import log_lines

    lowered = program.lowered
    if lowered is None:
        return "the program comes from the cache, which has no graph"
    return "\n".join([*(f"# {line}" for line in log_lines(lowered.passes)), str(lowered.graph)])


def _schedules(program: CpuProgram) -> str:
    if program.lowered is None:
        return "schedules are chosen when a program is made; this one was read from the cache"
    from intarsia.providers.cpu.program.schedule_report import schedule_report

    found = schedule_report(program.lowered)
    return "\n\n".join(map(str, found)) or "no node has more than one schedule"


def _kernels(program: CpuProgram) -> str:
    return "\n".join(_units(program.executable))


def _units(executable: Executable) -> list[str]:
    lines = []
    for unit in executable.units:
        if isinstance(unit, LoopStep):
            lines.append(f"loop     {unit.node.op_type} -> {', '.join(n for n in unit.node.outputs if n)}  ({unit.reason})")
            lines += [f"  {line}" for line in _units(unit.body)]
            continue
        if isinstance(unit, HostStep):
            lines.append(f"host     {unit.node.op_type} -> {', '.join(n for n in unit.node.outputs if n)}  ({unit.reason})")
            continue
        lines.append(f"segment  {len(unit.steps)} steps, in: {', '.join(unit.inputs)}; out: {', '.join(unit.outputs)}")
        relied_on: dict[str, list[str]] = {}
        for constraint in unit.constraints:
            relied_on.setdefault(constraint.where, []).append(f"    relies on {constraint}")
        for s in unit.steps:
            symbol = s.kernel.symbol if isinstance(s, Step) else f"{s.offset:+d}"
            lines.append(f"  {s.title:40} {', '.join(s.reads)} -> {', '.join(s.writes)}  [{symbol}]")
            lines += relied_on.pop(s.where, ()) if isinstance(s, Step) else ()
        lines += [f"  {where}\n{text}" for where, texts in relied_on.items() for text in texts]
    return lines + [f"relies on {constraint}: {constraint.where}" for constraint in executable.constraints]


def _source(program: CpuProgram) -> str:
    texts = {k.symbol: k.ir for e in program.executable.nested() for u in e.segments() for s in u.steps for k in s.kernels[:1]}
    return "\n".join(f"; --- {symbol}\n{ir}" for symbol, ir in texts.items())


def _assembly(program: CpuProgram) -> str:
    from intarsia.codegen.llvm.jit import emit_assembly

    texts = {k.symbol: k.ir for e in program.executable.nested() for u in e.segments() for s in u.steps for k in s.kernels[:1]}
    return "\n".join(f"# --- {symbol}\n{emit_assembly(ir, program.target)}" for symbol, ir in texts.items())


def _plan(program: CpuProgram) -> str:
    if not program._plans:
        return "no plan yet: plans are made by the first run with each combination of input shapes"
    lines = []
    for plan in program._plans.values():
        lines.append("sizes: " + (", ".join(f"{k}={v}" for k, v in sorted(plan.env.items())) or "all fixed"))
        for unit in plan.units:
            if not isinstance(unit, BoundSegment):
                lines.append(f"  {type(unit).__name__}: bound when its sizes are known")
                continue
            lines.append(f"  arena {unit.arena_nbytes:,} bytes, {len(unit.segment.steps)} steps")
            if isinstance(unit, BoundParts):
                lines += [f"    steps {p.first} to {p.first + len(p.bound.segment.steps) - 1}: {p.rows} rows at a time, "
                          f"{len(p.begins)} times" for p in unit.passes]  # fmt: skip
            sized = unit.segment.sized
            once = frozenset(sized.steps if sized is not None else ())
            offsets = getattr(unit, "offsets", None)  # a plan that a frame made knows addresses only
            for i, step in enumerate(unit.segment.steps):
                inside = [n for n in step.writes if (offsets is None and n not in unit.segment.outputs) or n in (offsets or ())]
                places = [f"{n}{'' if offsets is None else f'@{offsets[n]}'}{list(unit.shapes[n])}" for n in inside]
                lines.append(f"    {i:4} {'serial  ' if unit.serial[i] else 'parallel'} {step.title:36} {' '.join(places)}"
                             + (" once for these sizes" if i in once else ""))  # fmt: skip
    return "\n".join(lines)
