"""`InferenceSession.profile`: where the time of a run goes.

A model is compiled once more with an observer of its kernels and run some times. Kernels are put together by operator, by
layer of the original model and by provider; copies between memories are separate. Times are means over the faster half of the
runs, so that they add up and what other processes did is mostly left out; beside them stands each kernel's fastest run.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.errors import InvalidArgument, NoSuchFile
from intarsia.graph.dims import symbols_of
from intarsia.graph.formats.atomic_write import replace_text
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.graph.size_expressions import evaluate, names_in
from intarsia.lazy_dataclass import dataclass
from intarsia.model.trace_profile import Profile, Span
from intarsia.partition import cost
from intarsia.partition.partition import Partition, label
from intarsia.partition.text_table import format_table
from intarsia.printable import visible
from intarsia.providers.registry import CPU
from intarsia.reports.kernel_time import BETWEEN, KERNEL, TRANSFER, KernelTime
from intarsia.reports.layers import layer_names, layer_of

if TYPE_CHECKING:
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.reports.profile_comparison import ProfileComparison
    from intarsia.runtime.roofline import Roofline

_SEEN = 0.02  # less than this part of a run is noise


@dataclass(frozen=True)
class NodeCost:
    """Arithmetic operations of a node, and bytes that it reads and writes if it runs alone. `estimated`: with 32 for sizes that
    are not known."""

    flop: int
    nbytes: int
    estimated: bool


@dataclass(frozen=True)
class Row:
    """One line of a table. `share` of the run's time; `roofline`: the part of what the machine could do at most (None: not
    known), that is the least time for the operations and bytes, by the time taken; `best_roofline`: by the least time taken,
    each kernel's in its fastest run."""

    name: str
    calls: float
    milliseconds: float
    share: float
    flop: float
    nbytes: float
    roofline: float | None
    best_roofline: float | None


@dataclass(frozen=True)
class ProfileReport:
    """Prints itself as tables; `to_dict` gives the same as data, `save_trace` writes every event of every run.

    Attributes:
        run_milliseconds: of every timed run, in order.
        kernels: in order of execution.
        roof: what the machine can do at most; None where it was not requested.
        estimated: some sizes are known in a run only, and operations were counted with 32 in their place.
        remarks: what providers say of runs: what prevents graphs of launches, say.
        costs: of each node, by its first output, with the sizes of these runs.
        types: of values, by name, as text, with the sizes of these runs.
        unobserved_milliseconds: a run without an observer of its kernels, the mean of the faster half; 0 where it was not
            measured.
    """

    run_milliseconds: tuple[float, ...]
    kernels: tuple[KernelTime, ...]
    roof: Roofline | None = None
    estimated: bool = False
    trace: Profile = field(default_factory=Profile, repr=False)
    remarks: tuple[str, ...] = ()
    costs: Mapping[str, NodeCost] = field(default_factory=dict, repr=False)
    types: Mapping[str, str] = field(default_factory=dict, repr=False)
    unobserved_milliseconds: float = 0.0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ProfileReport:
        """Of what `to_dict` gave, without the trace.

        Raises:
            InvalidArgument: the data are no profile.
        """
        from intarsia.runtime.roofline import Roofline

        try:
            roof = data["roofline"]
            return cls(
                tuple(map(float, data["run_milliseconds"])),
                tuple(KernelTime(**{**each, "nodes": tuple(each["nodes"])}) for each in data["kernels"]),
                None if roof is None else Roofline(**roof), bool(data["estimated"]), remarks=tuple(data["remarks"]),
                unobserved_milliseconds=float(data.get("unobserved_milliseconds", 0)),
                costs={name: NodeCost(**cost) for name, cost in data.get("costs", {}).items()},
                types=dict(data.get("types", {})),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidArgument(f"expected a profile as `intarsia profile --json` prints it; {error!r}") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ProfileReport:
        """Of a file that `save`, or `intarsia profile --json`, wrote.

        Raises:
            NoSuchFile: there is none, or it cannot be read.
            InvalidArgument: it is no profile.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise NoSuchFile(f"the profile {str(path)!r} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"{str(path)!r}: expected a profile in JSON, got bytes that are no text") from error
        try:
            return cls.from_dict(json.loads(text))
        except (ValueError, InvalidArgument) as error:
            raise InvalidArgument(f"{str(path)!r}: {error}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_json` to a file, for `load`. Raises NotWritten where that cannot be."""
        replace_text(path, self.to_json())

    def compare(self, before: ProfileReport) -> ProfileComparison:
        """This profile beside an earlier one, or another model's."""
        from intarsia.reports.profile_comparison import ProfileComparison

        return ProfileComparison(before, self)

    @property
    def milliseconds(self) -> float:
        """A run's time: the mean of the faster half."""
        return mean_of_faster(self.run_milliseconds)

    @property
    def overhead(self) -> str:
        """What observing the kernels cost, for people; "" where it was not measured."""
        if not self.unobserved_milliseconds:
            return ""
        more = max(0.0, self.milliseconds - self.unobserved_milliseconds)
        calls = sum(kernel.calls for kernel in self.kernels) or 1
        if more < _SEEN * self.unobserved_milliseconds:
            return f"a run that nobody times takes {self.unobserved_milliseconds:.3f} ms: timing costs nothing visible"
        return (
            f"a run that nobody times takes {self.unobserved_milliseconds:.3f} ms: timing {calls:.0f} calls cost "
            f"{more:.3f} ms, {more / calls * 1e3:.1f} us each, which is in the times of short kernels and between them"
        )

    def by_kernel(self) -> list[Row]:
        """Slowest first, as the other tables."""
        return self._rows(lambda k: k.name if k.kind == KERNEL else "")

    def by_operator(self) -> list[Row]:
        """A fused kernel counts for the operator that has most of its arithmetic."""
        return self._rows(lambda k: k.op if k.kind == KERNEL else "")

    def by_layer(self, depth: int = 0) -> list[Row]:
        """By the names of the original model's nodes without their last part ("encoder/layer0" of "/encoder/layer0/Add").

        Args:
            depth: how many parts of the names to keep; 0: all.
        """
        return self._rows(lambda k: layer_of(k.layer, depth) if k.kind == KERNEL else "")

    def by_provider(self) -> list[Row]:
        """Everything that is not a copy."""
        return self._rows(lambda k: k.provider if k.kind != TRANSFER else "")

    def transfers(self) -> list[Row]:
        """Copies between memories."""
        return self._rows(lambda k: k.name if k.kind == TRANSFER else "")

    def between(self) -> list[Row]:
        """What parts of the model spent outside their kernels."""
        return self._rows(lambda k: k.name if k.kind == BETWEEN else "")

    def _rows(self, key: Callable[[KernelTime], str]) -> list[Row]:
        groups: dict[str, list[KernelTime]] = {}
        for kernel in self.kernels:
            if name := key(kernel):
                groups.setdefault(name, []).append(kernel)
        rows = [self._row(name, members) for name, members in groups.items()]
        return sorted(rows, key=lambda row: -row.milliseconds)

    def _row(self, name: str, members: Sequence[KernelTime]) -> Row:
        milliseconds = sum(k.milliseconds for k in members)
        flop, nbytes = sum(k.flop for k in members), sum(k.nbytes for k in members)
        reached, at_best = None, None
        ours = all(k.provider == CPU for k in members) and any(k.kind == KERNEL for k in members)
        if self.roof is not None and milliseconds and ours:
            needed = sum(self.roof.seconds(k.flop, k.nbytes, k.name) for k in members) * 1e3
            least = sum(k.least_milliseconds for k in members)
            reached, at_best = needed / milliseconds, needed / least if least else None
        calls = sum(k.calls for k in members)
        return Row(name, calls, milliseconds, milliseconds / (self.milliseconds or 1.0), flop, nbytes, reached, at_best)

    def node_times(self) -> dict[str, tuple[float, str]]:
        """By a node's first output: the milliseconds of its kernel, and the first output of that kernel's first node."""
        found: dict[str, tuple[float, str]] = {}
        for kernel in self.kernels:
            if kernel.kind == KERNEL and kernel.nodes:
                before = found.get(kernel.nodes[0], (0.0, ""))[0]
                found.update(dict.fromkeys(kernel.nodes, (before + kernel.milliseconds, kernel.nodes[0])))
        return found

    def text_tables(self, depth: int = 0) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
        """Title, header and rows of each table, as texts."""
        header = ("name", "calls", "ms", "time", "GFLOP", "MB", "GFLOP/s", "GB/s", "roofline", "at best")
        return [(title, header, [_cells(row) for row in rows]) for title, rows in self.tables(depth).items()]

    def tables(self, depth: int = 0) -> dict[str, list[Row]]:
        """Rows by what they divide time: "by operator" and so on, each slowest first. `depth`: see `by_layer`."""
        return {
            "by provider": self.by_provider(), "transfers": self.transfers(), "between kernels": self.between(),
            "by operator": self.by_operator(), "by layer": self.by_layer(depth), "by kernel": self.by_kernel(),
        }  # fmt: skip

    def format(self, top: int = 15, depth: int = 0, width: int = 0) -> str:
        """The tables as text, with the `top` slowest rows of each (0: all), names shortened so that lines have at most `width`
        characters (0: not); `depth`: see `by_layer`."""
        count, fastest = len(self.run_milliseconds), min(self.run_milliseconds)
        lines = [f"{count} runs: {self.milliseconds:.3f} ms, the fastest {fastest:.3f} ms"]
        if self.unobserved_milliseconds:
            lines.append(self.overhead)
        if self.roof is not None:
            lines.append(f"roofline: {self.roof}; more than 100 %: data came from caches, or 8-bit products")
        if self.estimated:
            lines.append("some sizes are known in a run only: operations were counted with 32 in their place")
        lines += map(visible, self.remarks)
        for title, header, rows in self.text_tables(depth):
            if rows:
                shown = rows[:top] if top else rows
                more = f"the slowest {len(shown)} of {len(rows)}:\n" if len(shown) < len(rows) else ""
                lines += ["", more + format_table((title, *header[1:]), shown, width)]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.format()

    def _repr_html_(self) -> str:
        """For notebooks: the tables, each in a box that opens."""
        from intarsia.reports.page.notebook import profile_html

        return profile_html(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the trace."""
        return {
            "run_milliseconds": list(self.run_milliseconds), "milliseconds": self.milliseconds,
            "estimated": self.estimated, "remarks": list(self.remarks),
            "roofline": asdict(self.roof) if self.roof is not None else None,
            "unobserved_milliseconds": self.unobserved_milliseconds,
            "kernels": [asdict(kernel) for kernel in self.kernels],
            "costs": {name: asdict(cost) for name, cost in self.costs.items()}, "types": dict(self.types),
            **{title.replace(" ", "_"): [asdict(row) for row in rows] for title, rows in self.tables().items()},
        }  # fmt: skip

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent)

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write every event of every run for chrome://tracing or ui.perfetto.dev."""
        self.trace.write(Path(path))


def _cells(row: Row) -> tuple[str, ...]:
    seconds = row.milliseconds / 1e3 or 1.0
    reached = roofline_cells(row)
    return (
        row.name, f"{row.calls:g}", f"{row.milliseconds:.4f}", f"{100 * row.share:.1f} %", f"{row.flop / 1e9:.4f}",
        f"{row.nbytes / 1e6:.3f}", f"{row.flop / seconds / 1e9:.1f}", f"{row.nbytes / seconds / 1e9:.1f}", *reached,
    )  # fmt: skip


def roofline_cells(row: Row) -> list[str]:
    """A row's shares of the roofline as text, on average and at best; "" where they are not known."""
    return ["" if part is None else f"{100 * part:.0f} %" for part in (row.roofline, row.best_roofline)]


def with_sizes(title: str, sizes: Mapping[str, int]) -> str:
    """A kernel's title with the sizes of a run for names of dimensions: `gemm batch*seqx768x768` is `gemm 128x768x768`."""
    return " ".join("x".join(_size(part, sizes) for part in word.split("x")) for word in title.split(" "))


def run_type(found: object, sizes: Mapping[str, int]) -> str:
    """A value's type as text, with the sizes of a run for symbols that these give."""
    if isinstance(found, TensorType) and found.shape is not None:
        dims = tuple(d if isinstance(d, int) or symbols_of(d) - sizes.keys() else d.evaluate(sizes) for d in found.shape)
        return str(TensorType(found.dtype, dims))
    return "" if found is None else str(found)


def _size(part: str, sizes: Mapping[str, int]) -> str:
    names = names_in(part)
    known = bool(names) and all(name in sizes for name in names)
    value = evaluate(part, sizes) if known else None
    return part if value is None else str(value)


def mean_of_faster(times: Sequence[float]) -> float:
    """Of some runs' times, at least one."""
    faster = sorted(times)[: max(1, (len(times) + 1) // 2)]
    return sum(faster) / len(faster)


def measure(
    model: CompiledModel, inputs: Sequence[Any], trace: Profile, runs: int, warmup: int, roof: Roofline | None,
    loaded: Graph | None = None,
) -> ProfileReport:  # fmt: skip
    """Run `model`, which was compiled with `trace` as its profile, and report. `loaded`: as it was before it was optimised.

    Raises:
        InvalidArgument: `runs` is less than 1 or `warmup` less than 0.
    """
    if runs < 1 or warmup < 0:
        raise InvalidArgument(f"profile: expected runs >= 1 and warmup >= 0, got runs {runs} and warmup {warmup}")
    for _ in range(warmup):
        model.run(inputs, None)
    trace.spans.clear()
    times, spans = [], []
    for _ in range(runs):
        start, before = time.perf_counter_ns(), len(trace.spans)
        model.run(inputs, None)
        times.append((time.perf_counter_ns() - start) / 1e6)
        spans.append(trace.spans[before:])
        trace.add("Session", "model_run", start)
    faster = sorted(range(runs), key=times.__getitem__)[: (runs + 1) // 2]
    split = model.partition
    reader = _Reader(split, _sizes(split.graph, inputs), {} if loaded is None else layer_names(loaded))
    kernels = reader.kernels(spans, faster)
    said = tuple(dict.fromkeys(line for program in model.programs for line in program.remarks()))
    return ProfileReport(tuple(times), tuple(kernels), roof, reader.estimated, trace, said, reader.costs(), reader.types())


def _sizes(graph: Graph, inputs: Sequence[Any]) -> dict[str, int]:
    """Sizes of the symbols that the inputs' shapes give."""
    found: dict[str, int] = {}
    for value, x in zip(graph.inputs, inputs, strict=True):
        shape = value.type.shape if isinstance(value.type, TensorType) else None
        for dim, size in zip(shape or (), getattr(x, "shape", ()), strict=False):
            symbols = symbols_of(dim)
            if len(symbols) == 1 and str(dim) in symbols:
                found[str(dim)] = int(size)
    return found


@dataclass
class _Sum:
    """A kernel's spans, put together for each run: how many, how long (ns), how many bytes."""

    span: Span
    provider: str
    kind: str
    calls: Counter[int] = field(default_factory=Counter)
    times: Counter[int] = field(default_factory=Counter)
    nbytes: Counter[int] = field(default_factory=Counter)

    @property
    def nanoseconds(self) -> int:
        return self.times.total()


class _Reader:
    def __init__(self, split: Partition, sizes: Mapping[str, int], layers: Mapping[str, str]) -> None:
        self.graph, self.sizes, self.layers = split.graph, sizes, layers
        self.node_of: dict[str, Node] = {}
        for node in split.graph.nodes:
            self.node_of.setdefault(label(node), node)
        self.node_of.update((out, node) for node in split.graph.nodes for out in node.outputs if out)
        self.parts = {f"part {part.index}": part for part in split.parts}
        self.readers: dict[str, set[str]] = {}
        for node in split.graph.nodes:
            for name in node.used_names():
                self.readers.setdefault(name, set()).add(_first(node))
        self.returned = set(split.graph.output_names())
        names = (n for node in split.graph.nodes for n in (*node.inputs, *node.outputs) if n)
        self.estimated = any(cost.is_estimated(split.graph, n, sizes) for n in names)

    def costs(self) -> dict[str, NodeCost]:
        """By a node's first output."""
        graph, sizes = self.graph, self.sizes
        return {
            _first(node): NodeCost(
                int(cost.flop(graph, node, sizes)), int(cost.moved_nbytes(graph, node, sizes)),
                any(cost.is_estimated(graph, name, sizes) for name in (*node.inputs, *node.outputs) if name),
            )
            for node in graph.nodes
        }  # fmt: skip

    def types(self) -> dict[str, str]:
        """Of all values, with the sizes of the runs."""
        names = dict.fromkeys(n for node in self.graph.nodes for n in (*node.inputs, *node.outputs) if n)
        texts = ((name, run_type(self.graph.type_of(name), self.sizes)) for name in names)
        return {name: text for name, text in texts if text}

    def kernels(self, runs: Sequence[Sequence[Span]], counted: Sequence[int]) -> list[KernelTime]:
        """`counted`: the runs whose mean is taken."""
        sums: dict[object, _Sum] = {}
        for number, spans in enumerate(runs):
            for span, provider, own, nested in _nested(spans):
                self._add(sums, number, span, provider, own, nested)
        ordered = sorted(sums.values(), key=lambda s: s.span.start_ns)
        slowest: dict[str, _Sum] = {}  # the kernel that a node's arithmetic is counted for: its slowest
        for found in sorted(ordered, key=lambda s: s.nanoseconds):
            if found.kind == KERNEL:
                slowest.update(dict.fromkeys(map(_first, self._nodes(found.span)), found))
        return [self._kernel(found, slowest, counted) for found in ordered]

    def _add(self, sums: dict[object, _Sum], run: int, span: Span, provider: str, own: int, nested: bool) -> None:
        kind = KERNEL if span.category == "Kernel" or not nested else BETWEEN
        if "copied" in span.args or span.name.startswith("copy "):
            kind = TRANSFER
        found = sums.setdefault((span.name, span.nodes, provider, kind), _Sum(span, provider, kind))
        found.calls[run] += 1
        found.times[run] += own
        found.nbytes[run] += span.args.get("copied", span.args.get("bytes", 0))

    def _nodes(self, span: Span) -> list[Node]:
        if span.category == "Node":
            part = self.parts.get(span.name)
            return [self.graph.nodes[i] for i in part.nodes] if part is not None else []
        return list({id(n): n for name in span.nodes if (n := self.node_of.get(name)) is not None}.values())

    def _kernel(self, found: _Sum, slowest: Mapping[str, _Sum], runs: Sequence[int]) -> KernelTime:
        nodes = self._nodes(found.span) if found.kind == KERNEL else []
        flop = {_first(n): cost.flop(self.graph, n, self.sizes) for n in nodes}
        main = max(nodes, key=lambda n: flop[_first(n)], default=None)
        counted = sum(work for name, work in flop.items() if slowest.get(name) is found)
        calls, nanoseconds, nbytes = (
            sum(of[run] for run in runs) / len(runs) for of in (found.calls, found.times, found.nbytes)
        )
        if nodes and (not nbytes or any(n.op_type in cost.PICKING for n in nodes)):
            nbytes = self._outer_nbytes(nodes)
        name = (main.origin or (label(main),))[0] if main else ""
        return KernelTime(
            with_sizes(found.span.name, self.sizes), found.kind, found.provider, tuple(flop),
            main.qualified_op if main else found.span.name, self.layers.get(name, name), calls,
            nanoseconds / 1e6, min(found.times.values()) / 1e6, counted, nbytes,
        )  # fmt: skip

    def _outer_nbytes(self, nodes: Sequence[Node]) -> float:
        """Bytes of what a group of nodes reads and what others read of it."""
        own = {_first(n) for n in nodes}
        made = {out for n in nodes for out in n.outputs if out}
        written = {n for n in made if n in self.returned or self.readers.get(n, set()) - own}
        total = sum(cost.nbytes(self.graph, n, self.sizes) for n in written)
        read: dict[str, float] = {}
        for node in nodes:
            taken = sum(cost.nbytes(self.graph, n, self.sizes) for n in node.outputs if n)
            for i, name in enumerate(node.inputs):
                if name and name not in made:
                    whole = cost.nbytes(self.graph, name, self.sizes)
                    part = min(whole, taken) if node.op_type in cost.PICKING and i == 0 else whole
                    read[name] = max(read.get(name, 0.0), part)
        return total + sum(read.values())


def _first(node: Node) -> str:
    return next((n for n in node.outputs if n), label(node))


def _nested(spans: Sequence[Span]) -> list[tuple[Span, str, int, bool]]:
    """Every span with its provider, its time outside the spans within it, and whether there are any of those."""
    ordered = sorted(spans, key=lambda s: (s.start_ns, -s.end_ns, s.category != "Node"))
    own = [s.end_ns - s.start_ns for s in ordered]
    inner, providers = [False] * len(ordered), [""] * len(ordered)
    stack: list[int] = []
    for i, span in enumerate(ordered):
        while stack and ordered[stack[-1]].end_ns <= span.start_ns:
            stack.pop()
        providers[i] = str(span.args.get("provider", providers[stack[-1]] if stack else ""))
        if stack:
            own[stack[-1]] -= min(span.end_ns, ordered[stack[-1]].end_ns) - span.start_ns
            inner[stack[-1]] = True
        stack.append(i)
    return [(s, providers[i], max(0, own[i]), inner[i]) for i, s in enumerate(ordered)]
