"""Which provider runs each node of the model, how, and why the others do not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from intarsia.ep.capability import Support
from intarsia.graph.formats.atomic_write import replace_text
from intarsia.graph.model import Graph, Node
from intarsia.lazy_dataclass import dataclass
from intarsia.model.compiled_model import CompiledModel
from intarsia.partition import cost
from intarsia.partition.partition import label
from intarsia.partition.text_table import format_table
from intarsia.printable import visible, visible_lines
from intarsia.reports.layers import layer_names, layer_of

if TYPE_CHECKING:
    from intarsia.reports.profile_report import ProfileReport


@dataclass(frozen=True)
class Refusal:
    """A provider's no: a stable code, the reason for people, and what to do to change it."""

    code: str
    reason: str
    suggestion: str = ""

    @classmethod
    def of(cls, answer: Support) -> Refusal:
        """With the provider's suggestion, else the one that goes with the code."""
        return cls(answer.code, answer.reason, answer.suggestion or SUGGESTIONS.get(answer.code, ""))


SUGGESTIONS: dict[str, str] = {
    "taken": "name the provider before the one that has the node to give it the node",
    "island": "set the session configuration entry 'partition.keep_islands' to '1' to give it the node all the same",
    "shape": "set the session configuration entry 'partition.shapes_on_host' to '0' to allow it",
    "placed": "change the rule in 'partition.place'",
    "type": "use an element type that the provider has: cast, or convert the model's precision",
    "no-kernel": "leave the node to the next provider, or register a kernel for it (docs/custom-providers.md)",
    "unsupported": "leave the node to the next provider, or replace the operator when the model is exported",
    "group": "place the nodes of the group on one provider with 'partition.place', or leave them to the next one",
    "compile": "see the message of the provider's compiler in the log of the session",
    "library-cost": "nothing: kernels of the provider's own are as fast",
    "library-shape": "give its operands as whole tensors of one type: a library takes strides, not gathers",
    "library-declined": "see the library's reason; another version, type or size may be offered",
    "graph": "nothing, if what the host reads there is what the model is about; else see docs/providers.md, graphs of launches",
    "not-claimed": "place the node with 'partition.place', or leave it to the next provider",
}
"""What to do about the framework's own codes."""


@dataclass(frozen=True)
class NodeExplanation:
    """One node of the optimised graph, or a model node that is not in it any more.

    Attributes:
        name: the node's name ("" of an unnamed one is its first output's).
        op: domain and operator.
        origin: names of the model's nodes it was made from.
        provider: who runs it; "" for a folded node.
        kind: "compiled", "host", "view", "folded" (gone: computed or removed when the model was optimised) or "body" (in a body
            of an If, a Loop or a Scan, which runs it).
        kernel: the kernel or fused group that contains it.
        note: why it is not compiled, where it is not.
        refusals: by provider, why each of the others does not run it; by library, why the provider's own kernels run it.
        inputs, outputs: names of the values it reads and writes.
        flop, nbytes: arithmetic operations of one run, and bytes read and written if it ran alone.
        estimated: they depend on sizes that only a run knows, which are assumed to be 32.
        layer: path of the layer of the original model that it belongs to, "(top)" where its name tells none.
        body: of a node in bodies, these from the outermost inwards: "NODE.ATTRIBUTE", such as "if_3.then_branch".
    """

    name: str
    op: str
    origin: tuple[str, ...]
    provider: str
    kind: str
    kernel: str
    note: str
    refusals: Mapping[str, Refusal]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    flop: int = 0
    nbytes: int = 0
    estimated: bool = False
    layer: str = ""
    body: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """Prints itself as a table; `to_dict` and `to_json` give the same as data, `to_html` as a page to look through.

    `copies` and `copied_nbytes`: how many values cross between memories in one run, and their bytes (sizes that only a run
    knows are assumed to be 32). `choice`: with providers="auto", what was measured and chosen. `remarks`: what providers say of
    the runs so far: graphs of launches, and what prevents them. `types`: of values, as text, by their names; those in bodies as
    (name, *bodies) joined by line feeds. `inputs`, `outputs`: names of the model's.
    """

    nodes: tuple[NodeExplanation, ...]
    steps: tuple[str, ...]
    providers: tuple[str, ...]
    copies: int = 0
    copied_nbytes: int = 0
    choice: str = ""
    remarks: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict, repr=False)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    @classmethod
    def of(cls, loaded: Graph, compiled: CompiledModel, providers: Sequence[str]) -> Explanation:
        """From a compiled model and the graph as it was loaded."""
        split = compiled.partition
        reports = {r.output: r for program in compiled.programs for r in program.nodes()}
        layers = layer_names(loaded)
        reader = _Reader(layers)
        for placement in split.placements:
            node = placement.node
            report = reports.get(next((n for n in node.outputs if n), ""))
            answers = {**placement.refusals, **(report.declined if report else {})}
            refusals = {name: Refusal.of(no) for name, no in answers.items()}
            how = (report.kind, report.kernel, report.reason) if report else ("compiled", "", "")
            reader.add(split.graph, node, _Run(placement.provider, *how, refusals))
        rows = reader.rows
        alive = {name for row in rows if not row.body for name in (*row.origin, row.name)}
        rows += [
            NodeExplanation(name, op, (name,), "", "folded", "", "", {}, layer=layer_of(layers.get(name, name)))
            for name, op in node_names(loaded) if name not in alive
        ]  # fmt: skip
        moved = sum(not copy.shape_only for copy in split.copies)
        said = tuple(dict.fromkeys(line for program in compiled.programs for line in program.remarks()))
        return cls(
            tuple(rows), tuple(map(str, split.steps)), tuple(providers), moved, split.copied_nbytes, remarks=said,
            types=reader.types, inputs=tuple(split.graph.input_names()), outputs=tuple(split.graph.output_names()),
        )  # fmt: skip

    @cached_property
    def counts(self) -> dict[str, int]:
        """Nodes per provider; folded ones under "folded"; those in bodies are not counted."""
        found: dict[str, int] = {}
        for node in self.nodes:
            if node.body:
                continue
            key = node.provider or node.kind
            found[key] = found.get(key, 0) + 1
        return found

    def __str__(self) -> str:
        return self.format()

    def format(self, width: int = 0, top: int = 0) -> str:
        """A table with a row for each node, and the steps of a run as text.

        Args:
            width: most characters of a line of the table, whose names are shortened; reasons are said once, below it. 0: any
                number, with the reasons in each row.
            top: rows of the table; 0: all.
        """
        shown = self.nodes[:top] if top else self.nodes
        reasons: dict[str, list[NodeExplanation]] = {}
        for row in self.nodes:
            for reason in _remarks(row):
                reasons.setdefault(reason, []).append(row)
        numbers = {reason: f"[{i}]" for i, reason in enumerate(reasons, 1)}
        cells = [
            (
                row.name, row.op, _origins(row), row.provider or "-", row.kind, row.kernel,
                (" " if width else "; ").join(numbers[r] if width else r for r in _remarks(row)),
            )
            for row in shown
        ]  # fmt: skip
        lines = [_table(("node", "op", "from", "provider", "kind", "kernel", "remarks"), cells, width)]
        if len(shown) < len(self.nodes):
            lines.append(f"the first {len(shown)} of {len(self.nodes)} nodes")
        if width and reasons:
            lines += ["", *(f"{numbers[r]} {_counted(rows)}: {visible(r)}" for r, rows in reasons.items())]
        inside = sum(bool(row.body) for row in self.nodes)
        counts = [*(f"{name}: {count}" for name, count in self.counts.items()), *([f"in bodies: {inside}"] if inside else [])]
        lines += ["", f"nodes by provider: {', '.join(counts)}"]
        if self.copies:
            lines.append(f"copies between memories: {self.copies}, {self.copied_nbytes:,} bytes a run")
        lines += [f"{i}. {visible(s)}" for i, s in enumerate(self.steps, 1)]
        lines += [*map(visible, self.remarks), *(["", visible_lines(self.choice)] if self.choice else [])]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """All of it in dicts, lists, strings and numbers."""
        return {
            "providers": list(self.providers), "copies": self.copies, "copied_nbytes": self.copied_nbytes,
            "choice": self.choice, "remarks": list(self.remarks), "steps": list(self.steps),
            "types": dict(self.types), "inputs": list(self.inputs), "outputs": list(self.outputs),
            "nodes": [asdict(n) for n in self.nodes],
        }  # fmt: skip

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as JSON text, indented by so many spaces (None: in one line)."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_html(
        self, profile: ProfileReport | None = None, *, title: str = "", before: ProfileReport | None = None
    ) -> str:  # fmt: skip
        """One HTML page that needs nothing else: a picture of the graph by layers, and tables of nodes, reasons and steps.

        Args:
            profile: of `InferenceSession.profile`: the page shows times too, and operations of the sizes that ran.
            title: its heading, for instance the model's name.
            before: a profile to compare with, node by node and in groups; where `profile` is given.
        """
        from intarsia.reports.page.document import document
        from intarsia.reports.page.page_data import PageData

        return document(PageData(self, profile, before, title).data())

    def save_html(
        self, path: str | os.PathLike[str], profile: ProfileReport | None = None, *, title: str = "",
        before: ProfileReport | None = None,
    ) -> None:  # fmt: skip
        """Write `to_html` to a file. Raises NotWritten where that cannot be."""
        replace_text(path, self.to_html(profile, title=title, before=before))

    def _repr_html_(self) -> str:
        """For notebooks: the nodes by provider, and the table in a box that scrolls."""
        from intarsia.reports.page.notebook import explanation_html

        return explanation_html(self)


@dataclass(frozen=True)
class _Run:
    """How a node runs, and why not otherwise."""

    provider: str
    kind: str
    kernel: str
    note: str
    refusals: Mapping[str, Refusal]


class _Reader:
    """Collects rows for nodes and for those in their bodies, and the types of all values."""

    def __init__(self, layers: Mapping[str, str]) -> None:
        self.layers = layers
        self.rows: list[NodeExplanation] = []
        self.types: dict[str, str] = {}

    def add(self, graph: Graph, node: Node, run: _Run, body: tuple[str, ...] = ()) -> None:
        """A node of `graph`, which is the innermost of `body`."""
        origin = node.origin or (label(node),)
        values = [n for n in (*node.inputs, *node.outputs) if n]
        layer = layer_of(self.layers.get(origin[0], origin[0]))
        self.rows.append(NodeExplanation(
            label(node), node.qualified_op, origin, run.provider, "body" if body else run.kind, run.kernel, run.note,
            run.refusals, tuple(dict.fromkeys([*(n for n in node.inputs if n), *sorted(node.used_names())])),
            tuple(n for n in node.outputs if n), int(cost.flop(graph, node)), int(cost.moved_nbytes(graph, node)),
            any(cost.is_estimated(graph, n) for n in values), layer, body,
        ))  # fmt: skip
        for name in values:
            found = graph.type_of(name)
            if found is not None:
                self.types.setdefault("\n".join((name, *body)), str(found))
        inner = _Run(run.provider, "body", run.kernel, "", {})
        for attribute, sub in _bodies(node):
            for each in sub.nodes:
                self.add(sub, each, inner, (*body, f"{label(node)}.{attribute}"))


def _bodies(node: Node) -> Iterator[tuple[str, Graph]]:
    """A node's bodies with the names of their attributes."""
    for name, value in node.attributes.items():
        if isinstance(value, Graph):
            yield name, value
        elif isinstance(value, list) and value and isinstance(value[0], Graph):
            yield from ((f"{name}[{i}]", each) for i, each in enumerate(value))


def _origins(row: NodeExplanation) -> str:
    return "" if row.origin == (row.name,) else " + ".join(row.origin)


def _remarks(row: NodeExplanation) -> list[str]:
    reasons = [f"{name}: {refusal.reason}" for name, refusal in row.refusals.items()]
    inside = [f"in {row.body[-1]}"] if row.body else []
    return [*inside, *([row.note] if row.note else []), *reasons]


def _counted(rows: Sequence[NodeExplanation]) -> str:
    return f"{len(rows)} nodes" if len(rows) > 1 else "1 node"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Without columns that have nothing in them."""
    used = [c for c in range(len(header)) if not width or any(row[c] for row in rows)]
    return format_table([header[c] for c in used], [[row[c] for c in used] for row in rows], width)


def node_names(graph: Graph) -> list[tuple[str, str]]:
    """(name, op) of every node of a graph."""
    return [(label(node), node.qualified_op) for node in graph.nodes]
