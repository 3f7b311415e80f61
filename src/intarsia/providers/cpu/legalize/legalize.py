"""Legalize: the graph of a part in, the graph that is lowered and a log of what each pass did out."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from intarsia.errors import InvalidGraph
from intarsia.graph.model import Graph
from intarsia.graph.verify import verify
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference, infer
from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv, LoweringPass
from intarsia.providers.cpu.legalize.passes import PASSES, check_disabled


class PassEntry(NamedTuple):
    """A pass that changed a graph: which one, its nodes before and after, and how long it took, types and checks included."""

    name: str
    graph: str
    nodes_before: int
    nodes_after: int
    seconds: float


@dataclass(frozen=True)
class Legalized:
    """The graph that is lowered, with its types.

    Attributes:
        given: what is known of the graph as the model has it, before nodes are rewritten.
        inference: the same of the graph after the last pass.
        log: the passes that changed it, in the order in which they did.
    """

    given: Inference
    inference: Inference
    log: tuple[PassEntry, ...] = ()

    @property
    def graph(self) -> Graph:
        return self.inference.graph


def legalize(
    graph: Graph, env: LegalizeEnv, *, disabled: frozenset[str] = frozenset(), limit: int | None = None
) -> Legalized:  # fmt: skip
    """A graph that computes the same, in operators, types and a layout that the CPU has kernels for.

    After each pass that changed something the graph is verified and its types are inferred anew.

    Args:
        disabled: names of passes that are not to run (`passes.pass_names()`).
        limit: after so many passes that changed something no other runs, to find by bisection the one that changes a result.
            Passes that cannot be disabled run and do not count.

    Raises:
        UnknownOption, InvalidArgument: as `passes.check_disabled`.
        InvalidGraph: a node does not fit its definition, or what a pass made is no graph: the message names the pass.
    """
    check_disabled(disabled)
    inference, given = Inference(graph), None
    log: list[PassEntry] = []
    counted = 0
    for each in PASSES:
        if given is None and not each.reads_declared_types:
            given = inference = infer(inference.graph, env.registry)
        stopped = counted == limit and not each.required
        if stopped or each.name in disabled or not each.applies(inference.graph):
            continue
        start, before = time.perf_counter(), len(inference.graph.nodes)
        changed = each.run(inference, env)
        if changed is None:
            continue
        inference = _checked(each, changed, env)
        counted += not each.required
        log.append(PassEntry(each.name, graph.name, before, len(changed.nodes), time.perf_counter() - start))
    assert given is not None
    return Legalized(given, inference, tuple(log))


def _checked(each: LoweringPass, graph: Graph, env: LegalizeEnv) -> Inference:
    """What is known of the graph that a pass has made."""
    try:
        verify(graph)
        return Inference(graph) if each.reads_declared_types else infer(graph, env.registry)
    except InvalidGraph as error:
        way_out = "" if each.required else f" (disabled_optimizers=[{each.name!r}] leaves this pass out)"
        raise InvalidGraph(f"after the CPU provider's pass {each.name!r}: {error}{way_out}") from error


def log_lines(log: Iterable[PassEntry]) -> list[str]:
    """A line for each pass: in how many graphs (bodies count) it changed something, their nodes, and milliseconds."""
    by_name: dict[str, list[PassEntry]] = {}
    for entry in log:
        by_name.setdefault(entry.name, []).append(entry)
    width = max(map(len, by_name), default=0)
    lines = []
    for name, entries in by_name.items():
        before, after = sum(e.nodes_before for e in entries), sum(e.nodes_after for e in entries)
        times = f"{len(entries)} time{'s' if len(entries) > 1 else ' '}"
        lines.append(f"{name:<{width}}  {times}  {before} -> {after} nodes  {1000 * sum(e.seconds for e in entries):.1f} ms")
    return lines
