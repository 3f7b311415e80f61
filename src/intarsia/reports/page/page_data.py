"""An explanation, with a profile or two, as data for the page's script: tables of strings, groups, values and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from intarsia.printable import visible, visible_lines
from intarsia.reports.kernel_time import KERNEL, KernelTime
from intarsia.reports.layers import layer_of, layer_parts

if TYPE_CHECKING:
    from intarsia.reports.explain import Explanation, NodeExplanation
    from intarsia.reports.profile_report import ProfileReport


Key = tuple[str, str, str, str]  # a kernel's name, kind, provider and layer


class Interned:
    """Numbers for what occurs often."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, key: Any, row: Any = None) -> int:
        """Of `key`, which stands as `row` (None: as itself) in `rows`."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.rows)
            self.rows.append(key if row is None else row)
        return found


class PageData:
    """Collects what a page shows. Strings are visible ones: no character of a name turns text round or hides it."""

    def __init__(
        self, found: Explanation, profile: ProfileReport | None, before: ProfileReport | None, title: str
    ) -> None:  # fmt: skip
        self.found, self.profile, self.before, self.title = found, profile, before, title
        self.strings, self.groups, self.values, self.refusals = Interned(), Interned(), Interned(), Interned()
        self.producers: dict[tuple[str, tuple[str, ...]], int] = {}
        for i, node in enumerate(found.nodes):
            self.producers.update(((name, node.body), i) for name in node.outputs)
        self.times = node_times(profile, self.producers)
        self.times_before = node_times(before, self.producers)

    def data(self) -> dict[str, Any]:
        """What JSON can write."""
        found = self.found
        nodes = [self._node(i, node) for i, node in enumerate(found.nodes)]
        nodes += [self.kernel_row(kernel, key) for key, kernel in self._others().items()]
        title = f"Placement of {self.title}" if self.title else "Placement of a model"
        made = {
            "title": visible(title), "providers": [visible(name) for name in self._providers()],
            "nodes": nodes, "edges": self._edges(), "inputs": self._inputs(), "outputs": self._outputs(),
            "profile": None if self.profile is None else profile_data(self.profile, self.before, self._kernel_rows()),
            "counts": {visible(name): count for name, count in found.counts.items()},
            "copies": found.copies, "copied": found.copied_nbytes, "steps": [visible(step) for step in found.steps],
            "remarks": [visible(line) for line in found.remarks], "choice": visible_lines(found.choice),
        }  # fmt: skip
        tables = {"groups": self.groups, "values": self.values, "refusals": self.refusals, "strings": self.strings}
        return {**made, **{name: table.rows for name, table in tables.items()}}

    def _text(self, text: str) -> int:
        return self.strings.number(text, visible(text))

    def _providers(self) -> list[str]:
        names = dict.fromkeys([*self.found.providers, *(node.provider for node in self.found.nodes)])
        return [name for name in names if name]

    def group(self, layer: str, bodies: tuple[str, ...] = ()) -> int:
        """The number of a layer, or of the innermost of `bodies` in it; -1 of what is in none."""
        number = -1
        for part in layer_parts(layer):
            number = self._within(number, part, in_body=False)
        for body in bodies:
            number = self._within(number, body, in_body=True)
        return number

    def _within(self, parent: int, name: str, *, in_body: bool) -> int:
        return self.groups.number((parent, name, in_body), [parent, self._text(name), int(in_body)])

    def _value(self, name: str, body: tuple[str, ...]) -> int:
        own = next((body[:n] for n in range(len(body), -1, -1) if (name, body[:n]) in self.producers), ())
        text = "" if self.profile is None or own else self.profile.types.get(name, "")
        text = text or next((t for n in range(len(body), -1, -1) if (t := self._type(name, body[:n]))), "")
        return self.values.number((name, own), [self._text(name), self._text(text)])

    def _type(self, name: str, body: tuple[str, ...]) -> str:
        return self.found.types.get("\n".join((name, *body)), "")

    def _producer(self, name: str, body: tuple[str, ...]) -> int | None:
        numbers = (self.producers.get((name, body[:n])) for n in range(len(body), -1, -1))
        return next((number for number in numbers if number is not None), None)

    def _node(self, i: int, node: NodeExplanation) -> list[Any]:
        cost = self.profile.costs.get(node.outputs[0]) if self.profile and node.outputs and not node.body else None
        flop, nbytes, estimated = (node.flop, node.nbytes, node.estimated) if cost is None else (
            cost.flop, cost.nbytes, cost.estimated)  # fmt: skip
        origin = "" if node.origin in ((), (node.name,)) else ", ".join(node.origin)
        time, main = self.times.get(i, (None, i))
        return [
            self._text(node.name), self._text(node.op), self._provider(node.provider), self._text(node.kind),
            self._text(node.kernel), self._text(node.note), self._text(origin), self.group(node.layer, node.body),
            [self._refusal(name, no.code, no.reason, no.suggestion) for name, no in node.refusals.items()],
            [self._value(name, node.body) for name in node.inputs], [self._value(name, node.body) for name in node.outputs],
            flop, nbytes, int(estimated), time, -1 if main == i else main, self.times_before.get(i, (None, i))[0],
        ]  # fmt: skip

    def _refusal(self, *texts: str) -> int:
        return self.refusals.number(texts, [self._text(text) for text in texts])

    def _provider(self, name: str) -> int:
        return self._providers_by_name.get(name, -1)

    @cached_property
    def _times_by_key(self) -> tuple[dict[Key, float], dict[Key, float]]:
        return times_by_key(self.profile), times_by_key(self.before)

    @cached_property
    def _providers_by_name(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self._providers())}

    def _others(self) -> dict[Key, KernelTime]:
        """What a run spent its time on that is no node's kernel: copies, a part's time outside its kernels."""
        found = () if self.profile is None else self.profile.kernels
        return {key_of(k): k for k in found if not any((name, ()) in self.producers for name in k.nodes)}

    def kernel_row(self, kernel: KernelTime, key: Key, group: int = -2) -> list[Any]:
        """A kernel of either profile, or a copy, as a row of the table that no node of the picture stands for."""
        is_kernel = kernel.kind == KERNEL
        texts = [kernel.name, kernel.op if is_kernel else kernel.kind]
        more = [kernel.kind, kernel.name if is_kernel else "", "", ""]
        times = [self._times_by_key[0].get(key), -1, self._times_by_key[1].get(key)]
        return [
            *map(self._text, texts), self._provider(kernel.provider), *map(self._text, more), group, [], [], [],
            int(kernel.flop), int(kernel.nbytes), 0, *times,
        ]  # fmt: skip

    def _edges(self) -> list[list[int]]:
        found: dict[tuple[int, int], int] = {}
        for i, node in enumerate(self.found.nodes):
            captured = self._captured.get((node.name, node.body), set())
            for name in node.inputs:
                if name in captured:  # its body's nodes have edges of their own
                    continue
                producer = self._producer(name, node.body)
                if producer is not None and producer != i:
                    found.setdefault((producer, i), self._value(name, node.body))
        by_label = {(node.name, node.body): i for i, node in enumerate(self.found.nodes)}
        for i, node in enumerate(self.found.nodes):
            if node.body:  # a body's results are its node's
                outer = node.body[-1].rpartition(".")[0]
                number = by_label.get((outer, node.body[:-1]))
                if number is not None and node.outputs and not self._read(node):
                    found.setdefault((i, number), self._value(node.outputs[0], node.body))
        return [[a, b, value] for (a, b), value in found.items()]

    @cached_property
    def _captured(self) -> dict[tuple[str, tuple[str, ...]], set[str]]:
        """By a node's name and its bodies what nodes in the bodies of its own read."""
        found: dict[tuple[str, tuple[str, ...]], set[str]] = {}
        for node in self.found.nodes:
            for depth, body in enumerate(node.body):
                found.setdefault((body.rpartition(".")[0], node.body[:depth]), set()).update(node.inputs)
        return found

    def _read(self, node: NodeExplanation) -> bool:
        """Whether another node of the same body reads what this one of a body makes."""
        return any((name, node.body) in self._reads for name in node.outputs)

    @cached_property
    def _reads(self) -> set[tuple[str, tuple[str, ...]]]:
        return {(name, node.body) for node in self.found.nodes if node.body for name in node.inputs}

    def _inputs(self) -> list[list[Any]]:
        readers: dict[str, list[int]] = {name: [] for name in self.found.inputs}
        for i, node in enumerate(self.found.nodes):
            for name in dict.fromkeys(node.inputs):
                if name in readers and self._producer(name, node.body) is None:
                    readers[name].append(i)
        return [[self._value(name, ()), numbers] for name, numbers in readers.items()]

    def _outputs(self) -> list[list[int]]:
        return [[self._value(name, ()), self.producers.get((name, ()), -1)] for name in self.found.outputs]

    def _kernel_rows(self) -> list[list[Any]]:
        """Of the roofline chart: name, operator, milliseconds, operations, bytes, the number of its node."""
        assert self.profile is not None
        rows = []
        for kernel in self.profile.kernels:
            numbers = [i for name in kernel.nodes if (i := self.producers.get((name, ()))) is not None]
            if kernel.kind == KERNEL and kernel.milliseconds and kernel.nbytes:
                node = self.times[numbers[0]][1] if numbers and numbers[0] in self.times else -1
                rows.append([
                    self._text(kernel.name), self._text(kernel.op), rounded(kernel.milliseconds),
                    int(kernel.flop), int(kernel.nbytes), node, self._provider(kernel.provider),
                ])  # fmt: skip
        return rows


def node_times(
    profile: ProfileReport | None, producers: dict[tuple[str, tuple[str, ...]], int]
) -> dict[int, tuple[float | None, int]]:  # fmt: skip
    """By a node's number its milliseconds and the node that stands for its kernel: the one with most arithmetic has the
    kernel's time, the others None."""
    found: dict[int, tuple[float | None, int]] = {}
    if profile is None:
        return found
    for kernel in profile.kernels:
        numbers = {i: name for name in kernel.nodes if (i := producers.get((name, ()))) is not None}
        if kernel.kind != KERNEL or not numbers:
            continue
        main = max(numbers, key=lambda i: cost.flop if (cost := profile.costs.get(numbers[i])) else 0)
        for i in numbers:
            if i not in found:
                found[i] = (None, main)
        before = found[main][0] or 0.0
        found[main] = (rounded(before + kernel.milliseconds), main)
    return found


def key_of(kernel: KernelTime) -> Key:
    """By which kernels of two profiles are found equal."""
    return kernel.name, kernel.kind, kernel.provider, kernel.layer


def times_by_key(profile: ProfileReport | None) -> dict[Key, float]:
    """Milliseconds of all kernels of a key."""
    found: dict[Key, float] = {}
    for kernel in () if profile is None else profile.kernels:
        key = key_of(kernel)
        found[key] = rounded(found.get(key, 0.0) + kernel.milliseconds)
    return found


def profile_data(profile: ProfileReport, before: ProfileReport | None, kernels: Sequence[Any]) -> dict[str, Any]:
    """What the page says of runs."""
    roof = profile.roof
    return {
        "ms": rounded(profile.milliseconds), "runs": len(profile.run_milliseconds),
        "fastest": rounded(min(profile.run_milliseconds)), "overhead": profile.overhead, "estimated": profile.estimated,
        "before": None if before is None else rounded(before.milliseconds),
        "roof": None if roof is None else {**asdict(roof), "less": dict(roof.less)},
        "remarks": [visible(line) for line in profile.remarks], "kernels": list(kernels),
    }  # fmt: skip


def rounded(milliseconds: float) -> float:
    """To a nanosecond: what is written, not what is computed with."""
    return round(milliseconds, 6)


def comparison_data(nothing: Explanation, before: ProfileReport, after: ProfileReport, title: str) -> dict[str, Any]:
    """Two profiles without a graph: a row for each kernel of either, by name. `nothing`: of no node."""
    kernels: dict[Key, KernelTime] = {}
    for kernel in (*after.kernels, *before.kernels):
        kernels.setdefault(key_of(kernel), kernel)
    providers = dict.fromkeys(kernel.provider for kernel in kernels.values())
    made = PageData(replace(nothing, providers=tuple(providers)), after, before, "")
    data = made.data()
    rows = [made.kernel_row(kernel, key, made.group(layer_of(kernel.layer))) for key, kernel in kernels.items()]
    tables = {"groups": made.groups.rows, "strings": made.strings.rows}
    heading = visible(f"Profiles of {title}" if title else "Two profiles")
    return {**data, **tables, "nodes": rows, "picture": False, "title": heading}
