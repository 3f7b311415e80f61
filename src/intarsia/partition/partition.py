"""Cut a graph into parts, one provider each, in execution order, with the copies between their memories.

Providers are asked in priority order; a node goes to the first that takes it. A device with memory of its own does not get
integer shape arithmetic (the host has those numbers already), nor an island of nodes that would cost more in copies than
it saves, unless it takes the whole graph or `PartitionOptions` says so. Every refusal is recorded with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import cached_property

from intarsia import errors, progress
from intarsia.ep.capability import ComputeCapability, KernelLookup, Support
from intarsia.ep.device import HOST, Device
from intarsia.ep.provider import ExecutionProvider
from intarsia.errors import EPFail, IntarsiaError, crashed
from intarsia.graph.model import Graph, Node, Value
from intarsia.lazy_dataclass import dataclass
from intarsia.partition import cost
from intarsia.partition.grouping import Unit, schedule
from intarsia.partition.placement_rules import Rule, placed_nodes
from intarsia.partition.shape_subgraphs import READS_ONLY_SHAPE, host_shape_nodes
from intarsia.partition.stop_operators import behind_stop_operators
from intarsia.partition.text_table import format_table
from intarsia.printable import visible


@dataclass(frozen=True)
class PartitionOptions:
    """How to cut.

    Attributes:
        keep_islands: give a provider every node it takes, however few.
        shapes_on_host: keep integer shape arithmetic off devices with their own memory.
        rules: nodes that the user has placed, see `partition.placement_rules`; the first rule that matches a node decides.
        stop_operators: provider -> operators behind which it takes nothing, where not its own (`partition.stop_operators`).
    """

    keep_islands: bool = False
    shapes_on_host: bool = True
    rules: tuple[Rule, ...] = ()
    stop_operators: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """A subgraph that one provider compiles. `nodes` are indices into the partitioned graph.

    `host_inputs` are inputs that the part's provider reads on the host (shapes, axes), whatever its memory.
    """

    index: int
    provider: ExecutionProvider
    nodes: tuple[int, ...]
    graph: Graph = field(repr=False)
    host_inputs: frozenset[str] = frozenset()

    def __str__(self) -> str:
        inputs, outputs = ", ".join(self.graph.input_names()), ", ".join(self.graph.output_names())
        return visible(f"part {self.index}: {self.provider.name}, {len(self.nodes)} nodes ({inputs}) -> ({outputs})")


@dataclass(frozen=True)
class Copy:
    """One value to another memory, from the provider that wrote it to the one that reads it (None: the caller).

    `shape_only`: its reader looks at the shape alone, so no data need be moved. `nbytes`: of one run, where `estimated` with
    every size that only a run knows assumed to be `cost.ASSUMED_SIZE`.
    """

    value: str
    source: Device
    target: Device
    writer: ExecutionProvider | None = field(default=None, repr=False)
    reader: ExecutionProvider | None = field(default=None, repr=False)
    shape_only: bool = False
    nbytes: int = 0
    estimated: bool = False

    def __str__(self) -> str:
        size = "shape only" if self.shape_only else f"{'about ' if self.estimated else ''}{self.nbytes:,} bytes"
        return f"copy {visible(self.value)}: {self.source} -> {self.target} ({size})"


Step = Part | Copy

_IN_ONNXRUNTIME = {"IntarsiaCPU": "CPUExecutionProvider"}
"""Names that providers have in models that onnxruntime compiled with them."""


@dataclass(frozen=True)
class Placement:
    """Where one node runs and what every other provider answered."""

    node: Node = field(repr=False)
    provider: str
    refusals: Mapping[str, Support]


@dataclass(frozen=True)
class Partition:
    """The parts and copies of a graph in execution order, and every node's placement. Prints itself as a table."""

    graph: Graph = field(repr=False)
    steps: tuple[Step, ...]
    placements: tuple[Placement, ...]

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        return tuple(s for s in self.steps if isinstance(s, Part))

    @cached_property
    def copies(self) -> tuple[Copy, ...]:
        return tuple(s for s in self.steps if isinstance(s, Copy))

    @property
    def copied_nbytes(self) -> int:
        """Bytes that cross between memories in one run; symbolic sizes are assumed (`Copy.estimated`)."""
        return sum(copy.nbytes for copy in self.copies)

    def __str__(self) -> str:
        rows = []
        for placement in self.placements:
            reasons = "; ".join(f"{name}: {no.reason}" for name, no in placement.refusals.items())
            rows.append((label(placement.node), placement.node.qualified_op, placement.provider, reasons))
        table = format_table(("node", "op", "provider", "refused by"), rows)
        return "\n".join([table, "", *(f"{i}. {step}" for i, step in enumerate(self.steps, 1))])


def label(node: Node) -> str:
    """A node's name for people: its own, or its first output's."""
    return node.name or next((n for n in node.outputs if n), node.op_type)


@contextmanager
def answering(provider: ExecutionProvider, when: str) -> Iterator[None]:
    """Errors that a provider did not mean to raise inside become EPFail with its name."""
    try:
        yield
    except EPFail as error:
        error.provider = error.provider or provider.name
        raise
    except IntarsiaError:
        raise
    except Exception as error:
        if progress.stopped_by(error):
            raise
        raise crashed(provider.name, when, error) from error


def partition(
    graph: Graph,
    providers: Sequence[ExecutionProvider],
    options: PartitionOptions | None = None,
    failed: Mapping[tuple[str, str], str] | None = None,
) -> Partition:
    """Cut `graph` (with types inferred) for `providers` in priority order.

    Args:
        failed: (provider name, a node's first output) -> why the provider could not compile it, from an earlier attempt.

    Raises:
        NotImplemented: no provider takes a node; names the nodes and each provider's reason.
    """
    return _Partitioner(graph, providers, options or PartitionOptions(), failed or {}).cut()


class _Partitioner:
    def __init__(
        self,
        graph: Graph,
        providers: Sequence[ExecutionProvider],
        options: PartitionOptions,
        failed: Mapping[tuple[str, str], str],
    ) -> None:
        self.graph, self.providers, self.options = graph, providers, options
        self.placed = placed_nodes(graph, providers, options.rules)
        self.denied: dict[tuple[int, int], Support] = {
            (p, i): Support.no(f"placed on {providers[where.provider].name} by {where.rule}", code="placed")
            for i, where in self.placed.items()
            for p in range(len(providers))
            if p != where.provider
        }
        stopped = behind_stop_operators(graph, self.needs, providers, options.stop_operators)
        self.denied |= {key: why for key, why in stopped.items() if key[1] not in self.placed}
        for p, provider in enumerate(providers if failed else ()):
            for i, node in enumerate(graph.nodes):
                why = failed.get((provider.name, next((n for n in node.outputs if n), "")))
                if why is not None:
                    self.denied[p, i] = Support.no(why, code="compile")

        self.restored = {i: self._source(node) for i, node in enumerate(graph.nodes) if node.compiled_part}
        for i, where in self.restored.items():
            elsewhere = Support.no(f"a compiled part of {providers[where].name}", code="compiled-part")
            self.denied |= {(p, i): elsewhere for p in range(len(providers)) if p != where}

    # what only graphs of several parts are asked

    @cached_property
    def used(self) -> list[set[str]]:
        """What each node reads."""
        return [node.used_names() for node in self.graph.nodes]

    @cached_property
    def producer(self) -> dict[str, int]:
        return {out: i for i, node in enumerate(self.graph.nodes) for out in node.outputs if out}

    @cached_property
    def readers(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for i, names in enumerate(self.used):
            for name in names:
                found.setdefault(name, []).append(i)
        return found

    @cached_property
    def needs(self) -> list[set[int]]:
        """The nodes whose results each node reads."""
        return [{self.producer[n] for n in names if n in self.producer} for names in self.used]

    @cached_property
    def shape_nodes(self) -> frozenset[int]:
        return host_shape_nodes(self.graph) if self.options.shapes_on_host else frozenset[int]()

    def _source(self, node: Node) -> int:
        """The provider that a compiled part is for."""
        name = str(node.attributes.get("source", ""))
        named = [provider.name for provider in self.providers]
        found = next((named.index(n) for n in (name, _IN_ONNXRUNTIME.get(name, name)) if n in named), None)
        if found is None:
            raise errors.NotImplemented(
                f"node {label(node)!r} is a part that was compiled for {name or 'no provider'!r}, which is not among the "
                f"session's providers ({', '.join(p.name for p in self.providers)}): name it in providers=[...], or compile "
                "the original model again"
            )
        return found

    def cut(self) -> Partition:
        while True:
            units, refused = self._assign()
            groups = self._groups(units)
            if not self._evict_islands(groups):
                return self._result(groups, refused)

    def _groups(self, units: list[Unit]) -> list[tuple[int, tuple[int, ...]]]:
        """The units as parts in execution order: their providers and nodes."""
        if len({unit.provider for unit in units}) == 1 and not any(unit.whole for unit in units):
            return [(units[0].provider, tuple(range(len(self.graph.nodes))))]
        order = schedule(units, self.needs)
        assert order is not None, "capabilities that form a cycle are refused when they are claimed"
        return [(units[g[0]].provider, tuple(sorted(n for u in g for n in units[u].nodes))) for g in order]

    def _assign(self) -> tuple[list[Unit], dict[tuple[int, int], Support]]:
        """Units that cover the graph, and each refusal of (provider, node)."""
        units: list[Unit] = []
        owner: dict[int, int] = {}
        refused: dict[tuple[int, int], Support] = {}
        for i, p in self.restored.items():
            units.append(Unit((i,), p, whole=True))
            owner[i] = p
        for p, provider in enumerate(self.providers):
            denied = self._denied(p, owner)
            for capability in self._capabilities(provider, owner, denied):
                units += self._claim(p, capability, units, owner, denied, refused)
            for i in range(len(self.graph.nodes)):
                if owner.get(i) != p and (p, i) not in refused:
                    refused[p, i] = self._answer(p, i, owner, denied)
        self._require_all(owner, refused)
        return units, refused

    def _capabilities(
        self, provider: ExecutionProvider, owner: Mapping[int, int], denied: Mapping[int, Support]
    ) -> list[ComputeCapability]:
        """What a provider offers to take; it is not asked where it may take nothing."""
        if len(denied) == len(self.graph.nodes):
            return []
        with answering(provider, "when it was asked what it takes"):
            registry = provider.get_kernel_registry()
            lookup = KernelLookup(self.graph, registry, frozenset(owner) | {i for i in denied if i not in owner})
            return list(provider.get_capability(self.graph, lookup))

    def _supports(self, provider: ExecutionProvider, i: int) -> Support:
        node = self.graph.nodes[i]
        with answering(provider, f"when it was asked about node {label(node)!r} ({node.qualified_op})"):
            return provider.supports(node, self.graph)

    def _denied(self, p: int, owner: Mapping[int, int]) -> dict[int, Support]:
        """Nodes that the framework does not offer to provider `p`."""
        denied = {i: why for (q, i), why in self.denied.items() if q == p}
        later_host = any(q.device.host for q in self.providers[p + 1 :])
        if not self.providers[p].device.host and later_host and not self.providers[p].evaluates_shapes:
            shape = Support.no("integer shape arithmetic stays on the host", code="shape")
            denied |= {i: shape for i in self.shape_nodes if i not in denied and i not in owner and i not in self.placed}
        return denied

    def _claim(
        self,
        p: int,
        capability: ComputeCapability,
        units: list[Unit],
        owner: dict[int, int],
        denied: Mapping[int, Support],
        refused: dict[tuple[int, int], Support],
    ) -> list[Unit]:
        name = self.providers[p].name
        nodes = tuple(sorted(set(capability.nodes)))
        if not nodes or not 0 <= nodes[0] <= nodes[-1] < len(self.graph.nodes):
            raise EPFail(f"{name}.get_capability() names nodes {nodes}; the graph has nodes 0 to {len(self.graph.nodes) - 1}")
        lost = [i for i in nodes if i in owner or i in denied]
        unit = Unit(nodes, p, whole=capability.whole or len(nodes) > 1)
        why = ""
        if lost:
            why = f"its group of {len(nodes)} nodes needs {label(self.graph.nodes[lost[0]])!r}, which it does not get"
        elif unit.whole and not self._acyclic([*units, unit]):
            why = f"its group of {len(nodes)} nodes would depend on its own results through other nodes"
        if not why:
            owner.update(dict.fromkeys(nodes, p))
            return [unit]
        for i in nodes:
            if i not in owner and i not in denied:
                refused[p, i] = Support.no(why, code="group")
        return []

    def _acyclic(self, units: list[Unit]) -> bool:
        covered = {i for unit in units for i in unit.nodes}
        rest = [Unit((i,), -1) for i in range(len(self.graph.nodes)) if i not in covered]
        return schedule([*units, *rest], self.needs) is not None

    def _answer(self, p: int, i: int, owner: Mapping[int, int], denied: Mapping[int, Support]) -> Support:
        """Why provider `p` does not run node `i`."""
        if i in denied:
            return denied[i]
        found = self._supports(self.providers[p], i)
        if not found:
            return found
        if i in owner:
            return Support.no(f"taken by {self.providers[owner[i]].name}, which has higher priority", code="taken")
        return Support.no("supported, but in none of the groups that the provider offered", code="not-claimed")

    def _require_all(self, owner: Mapping[int, int], refused: Mapping[tuple[int, int], Support]) -> None:
        missing = [i for i in range(len(self.graph.nodes)) if i not in owner]
        if not missing:
            return
        for i in missing:
            if i in self.placed:
                where = self.placed[i]
                raise errors.NotImplemented(
                    f"{where.rule} places node {label(self.graph.nodes[i])!r} ({self.graph.nodes[i].qualified_op}) on "
                    f"{self.providers[where.provider].name}, which does not take it: {refused[where.provider, i].reason}; "
                    "change the rule, or leave the node to the next provider"
                )
        lines = []
        for i in missing[:8]:
            node = self.graph.nodes[i]
            reasons = "; ".join(f"{p.name}: {refused[q, i].reason}" for q, p in enumerate(self.providers))
            lines.append(f"  {label(node)!r} ({node.qualified_op} version {node.version}): {reasons}")
        more = f"\n  and {len(missing) - 8} more" if len(missing) > 8 else ""
        names = ", ".join(p.name for p in self.providers)
        raise errors.NotImplemented(
            f"no provider takes {len(missing)} of the graph's {len(self.graph.nodes)} nodes (asked: {names}); "
            "add a provider that has these operators, or allow the CPU:\n" + "\n".join(lines) + more
        )

    def _evict_islands(self, groups: list[tuple[int, tuple[int, ...]]]) -> bool:
        """Deny groups that are not worth their copies, or the call; True where there were any."""
        if self.options.keep_islands:
            return False
        found = False
        free = {p for p in {p for p, _ in groups} if self.providers[p].device.host and not self.providers[p].part_microseconds}
        if all(p in free for p, _ in groups):
            return False
        inside = {i: g for g, (_, nodes) in enumerate(groups) for i in nodes}
        homes = {groups[g][0] for i, g in inside.items() if i not in self.shape_nodes}  # of nodes that are no shape arithmetic
        for g, (p, nodes) in enumerate(groups):
            alone = not homes - {p}
            if p in free or alone or any(i in self.placed for i in nodes) or not self._others_take(p, nodes):
                continue
            why = (
                self._not_worth_a_call(p, nodes) if self.providers[p].device.host else self._not_worth_copies(g, groups, inside)
            )
            if why:
                self.denied |= {(p, i): Support.no(why, code="island") for i in nodes}
                found = True
        return found

    def _others_take(self, p: int, nodes: tuple[int, ...]) -> bool:
        """Whether later providers in host memory take all of `nodes`."""
        later = [(q, provider) for q, provider in enumerate(self.providers) if q > p and provider.device.host]
        return all(any((q, i) not in self.denied and self._supports(provider, i) for q, provider in later) for i in nodes)

    def _not_worth_a_call(self, p: int, nodes: tuple[int, ...]) -> str:
        provider = self.providers[p]
        work = cost.host_microseconds(self.graph, (self.graph.nodes[i] for i in nodes))
        if work >= provider.part_microseconds:
            return ""
        return f"an island of {len(nodes)} nodes: about {work:.3g} us of work, a call costs {provider.part_microseconds:.3g} us"

    def _not_worth_copies(self, g: int, groups: list[tuple[int, tuple[int, ...]]], inside: Mapping[int, int]) -> str:
        p, nodes = groups[g]
        provider = self.providers[p]
        names = self._copied(g, groups, inside)
        if names is None:
            return ""
        members = [self.graph.nodes[i] for i in nodes]
        copies = cost.copy_microseconds(self.graph, names, provider.copy_latency_us, provider.copy_gbyte_per_s)
        there = cost.device_microseconds(self.graph, members, provider.gflop_per_s) + copies
        here = cost.host_microseconds(self.graph, members)
        if here > there:
            return ""
        return f"an island of {len(nodes)} nodes: about {here:.3g} us on the host, {there:.3g} us with {len(names)} copies"

    def _copied(self, g: int, groups: list[tuple[int, tuple[int, ...]]], inside: Mapping[int, int]) -> list[str] | None:
        """Values copied between the host and group `g`, or None where it exchanges values with another device group."""
        names: dict[str, None] = {}
        returned = set(self.graph.output_names())
        for i in groups[g][1]:
            node = self.graph.nodes[i]
            before = [(n, self.producer.get(n)) for n in self.used[i] if n not in self.graph.constants]
            after = [(n, j) for n in node.outputs if n for j in self.readers.get(n, ())]
            for name, other in (*before, *after):
                if other is not None and inside[other] == g:
                    continue
                if other is not None and not self.providers[groups[inside[other]][0]].device.host:
                    return None
                names[name] = None
            names.update(dict.fromkeys(n for n in node.outputs if n in returned))
        return list(names)

    def _result(self, groups: list[tuple[int, tuple[int, ...]]], refused: Mapping[tuple[int, int], Support]) -> Partition:
        owner = {i: p for p, nodes in groups for i in nodes}
        names = [p.name for p in self.providers]
        placements = tuple([
            Placement(
                node, names[owner[i]], {name: refused[q, i] for q, name in enumerate(names) if q != owner[i]}
            )
            for i, node in enumerate(self.graph.nodes)
        ])  # fmt: skip
        parts = [
            _part(k, self.graph, self.providers[p], nodes, self._read_outside(nodes)) for k, (p, nodes) in enumerate(groups)
        ]
        return Partition(self.graph, tuple(_with_copies(self.graph, parts)), placements)

    def _read_outside(self, nodes: tuple[int, ...]) -> set[str]:
        """Names made by `nodes` that other nodes, or the caller, read."""
        returned = set(self.graph.output_names())
        if len(nodes) == len(self.graph.nodes):
            return returned.intersection([n for node in self.graph.nodes for n in node.outputs])
        members = set(nodes)
        made = (n for i in nodes for n in self.graph.nodes[i].outputs if n)
        return {n for n in made if n in returned or any(j not in members for j in self.readers.get(n, ()))}


def _part(index: int, graph: Graph, provider: ExecutionProvider, nodes: tuple[int, ...], read_outside: set[str]) -> Part:
    sub = _subgraph(graph, nodes, read_outside, f"{graph.name}/part{index}")
    return Part(index, provider, nodes, sub, frozenset() if provider.device.host else _read_on_host(provider, sub))


def subgraph(graph: Graph, nodes: Sequence[int], name: str = "") -> Graph:
    """The graph of `nodes` (indices, in order) alone, as a provider would compile it if it got them as one part."""
    members = set(nodes)
    returned = set(graph.output_names())
    returned.update(n for i, node in enumerate(graph.nodes) if i not in members for n in node.used_names())
    made = {n for i in nodes for n in graph.nodes[i].outputs if n}
    return _subgraph(graph, nodes, made & returned, name or graph.name)


def _subgraph(graph: Graph, nodes: Sequence[int], read_outside: set[str], name: str) -> Graph:
    members = [graph.nodes[i] for i in nodes]
    used: dict[str, None] = {}
    for node in members:
        used.update(dict.fromkeys(node.inputs))
        if node.has_subgraphs:
            used.update(dict.fromkeys(sorted(node.used_names())))
    used.pop("", None)
    made = {out: None for node in members for out in node.outputs if out}
    order = {name: i for i, name in enumerate(graph.input_names())}
    inputs = sorted((n for n in used if n not in made and n not in graph.constants), key=lambda n: order.get(n, len(order)))
    rank = {name: i for i, name in reversed(list(enumerate(graph.output_names())))}
    outputs = sorted((n for n in made if n in read_outside), key=lambda n: rank.get(n, len(rank)))
    return Graph(
        name=name,
        inputs=[Value(n, graph.type_of(n)) for n in inputs],
        outputs=[Value(n, graph.type_of(n)) for n in outputs],
        nodes=members,
        constants={n: graph.constants[n] for n in used if n in graph.constants and n not in made},
        types={n: graph.types[n] for n in (*used, *made) if n in graph.types},
        opset_imports=graph.opset_imports,
        functions=graph.functions,
        metadata=graph.metadata,
    )


def _read_on_host(provider: ExecutionProvider, part: Graph) -> frozenset[str]:
    """The inputs of a part that every node of it reads in host memory."""
    names = set(part.input_names())
    readers: dict[str, list[tuple[Node, int]]] = {}
    captured: set[str] = set()
    for node in part.nodes:
        for i, name in enumerate(node.inputs):
            if name in names:
                readers.setdefault(name, []).append((node, i))
        for sub in node.subgraphs:
            captured |= sub.captured_names()
    return frozenset(
        name
        for name, found in readers.items()
        if name not in captured and all(provider.reads_on_host(node, i) for node, i in found)
    )


def _with_copies(graph: Graph, parts: Sequence[Part]) -> Iterator[Step]:
    """Parts in order, each after the copies of its inputs; last, copies of the graph's outputs to the host."""
    home: dict[str, tuple[Device, ExecutionProvider | None]] = dict.fromkeys(graph.input_names(), (HOST, None))
    present: set[tuple[str, Device]] = set()
    for part in parts:
        readers: dict[str, list[Node]] | None = None
        for name in part.graph.input_names():
            target = HOST if name in part.host_inputs else part.provider.device
            if home[name][0].shares_memory_with(target):
                continue
            if target.host and readers is None:
                readers = part.graph.consumers()
            shape_only = target.host and all(
                n.op_type in READS_ONLY_SHAPE and not n.domain for n in (readers or {}).get(name, ())
            )
            yield from _copy(graph, name, home[name], target, part.provider, present, shape_only)
        yield part
        home.update((n, (part.provider.device, part.provider)) for n in part.graph.output_names())
    for name in dict.fromkeys(graph.output_names()):
        if name in home:
            yield from _copy(graph, name, home[name], HOST, None, present, False)


def _copy(
    graph: Graph,
    name: str,
    home: tuple[Device, ExecutionProvider | None],
    target: Device,
    reader: ExecutionProvider | None,
    present: set[tuple[str, Device]],
    shape_only: bool,
) -> Iterator[Copy]:
    source, writer = home
    if source.shares_memory_with(target) or (name, _space(target)) in present:
        return
    if not shape_only:
        present.add((name, _space(target)))
    nbytes = 0 if shape_only else int(cost.nbytes(graph, name))
    yield Copy(name, source, target, writer, reader, shape_only, nbytes, cost.is_estimated(graph, name))


def _space(device: Device) -> Device:
    return HOST if device.host else Device(device.kind, device.index)
