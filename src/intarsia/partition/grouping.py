"""Parts in execution order: nodes of one provider side by side, so that no two parts wait for each other."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from intarsia.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Unit:
    """Nodes that stay together. `whole` units are parts by themselves, the others may be merged."""

    nodes: tuple[int, ...]
    provider: int
    whole: bool = False


def schedule(units: Sequence[Unit], needs: Sequence[set[int]]) -> list[list[int]] | None:
    """Units (by index) as a sequence of parts, or None where units wait for each other.

    `needs[i]` are the nodes whose results node i reads.

    A part is a maximal run of one provider's units in a topological order, hence convex, and the parts are acyclic among
    themselves. Every provider is tried as the first; the order with the fewest parts wins.
    """
    best: list[list[int]] | None = None
    for first in dict.fromkeys(u.provider for u in units):
        found = _schedule_from(first, units, needs)
        if found is None:
            return None
        if best is None or len(found) < len(best):
            best = found
    return best if best is not None else []


def _unit_edges(units: Sequence[Unit], needs: Sequence[set[int]]) -> tuple[list[int], list[list[int]]]:
    """How many units each unit waits for, and the units that wait for it."""
    unit_of = {node: u for u, unit in enumerate(units) for node in unit.nodes}
    waiting = [0] * len(units)
    followers: list[list[int]] = [[] for _ in units]
    for u, unit in enumerate(units):
        before = {unit_of[d] for node in unit.nodes for d in needs[node] if d in unit_of} - {u}
        waiting[u] = len(before)
        for b in before:
            followers[b].append(u)
    return waiting, followers


def _schedule_from(first: int, units: Sequence[Unit], needs: Sequence[set[int]]) -> list[list[int]] | None:
    waiting, followers = _unit_edges(units, needs)
    ready: dict[int, list[tuple[bool, int, int]]] = {}

    def release(u: int) -> None:
        heapq.heappush(ready.setdefault(units[u].provider, []), (units[u].whole, units[u].nodes[0], u))

    for u, count in enumerate(waiting):
        if not count:
            release(u)
    parts: list[list[int]] = []
    current, done = first, 0
    while any(ready.values()):
        if not ready.get(current):
            current = min((queue[0][1], p) for p, queue in ready.items() if queue)[1]
        part: list[int] = []
        while ready.get(current):
            u = heapq.heappop(ready[current])[2]
            done += 1
            if units[u].whole:
                parts.extend(p for p in (part, [u]) if p)
                part = []
            else:
                part.append(u)
            for f in followers[u]:
                waiting[f] -= 1
                if not waiting[f]:
                    release(f)
        if part:
            parts.append(part)
    return parts if done == len(units) else None
