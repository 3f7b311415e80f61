"""From an ONNX model to a vendor's files, with a report of what was translated, what was not, and why."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from intarsia.conversion.staged_files import staged_files
from intarsia.conversion.targets import load_target
from intarsia.ep.capability import Support
from intarsia.ep.provider import ExecutionProvider
from intarsia.errors import EPFail, Fail, InvalidArgument
from intarsia.graph.formats.atomic_write import not_written
from intarsia.graph.model import Graph, Node
from intarsia.graph.save import save
from intarsia.lazy_dataclass import dataclass
from intarsia.model.load_and_optimize import load_model, optimised, with_sizes
from intarsia.options.session_options import SessionOptions
from intarsia.partition.decompose import decomposed
from intarsia.partition.partition import Part, Partition, PartitionOptions, label, partition
from intarsia.printable import visible_lines
from intarsia.providers.options import parse_options
from intarsia.providers.vendor.conversion import ConversionTarget, dynamic_sizes


class _Rest(ExecutionProvider):
    """Gets the nodes that the target does not take; runs nothing."""

    name = "the rest"

    def supports(self, node: Node, graph: Graph) -> Support:
        return Support.yes()


@dataclass(frozen=True)
class WrittenPart:
    """One file or folder: a part of the model. `translated`: in the target's form; else it is ONNX."""

    path: Path
    translated: bool
    nodes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class LeftNode:
    """A node that was not translated, with the reason."""

    node: str
    op: str
    reason: str


@dataclass(frozen=True)
class ConversionReport:
    """What was made of a model. Prints itself.

    Attributes:
        target: the form, in words.
        nodes: how many nodes the optimised model has.
        parts: what was written, in the order in which it is to run; nothing where nodes are left and parts were not wanted.
        left: nodes that were not translated.
    """

    target: str
    nodes: int
    parts: tuple[WrittenPart, ...]
    left: tuple[LeftNode, ...]

    @property
    def complete(self) -> bool:
        """Whether the whole model is in the target's form."""
        return not self.left

    def __str__(self) -> str:
        lines = [f"{self.nodes - len(self.left)} of {self.nodes} nodes translated to {self.target}"]
        for part in self.parts:
            kind = "" if part.translated else " (ONNX)"
            lines.append(
                f"{part.path}{kind}: {part.nodes} nodes, {', '.join(part.inputs) or 'nothing'} -> {', '.join(part.outputs)}"
            )
        if self.left:
            lines.append("not translated:")
            reasons = Counter((row.op, row.reason) for row in self.left)
            first = {(row.op, row.reason): row.node for row in reversed(self.left)}
            lines += [
                f"  {op} {first[op, why]!r}{f' and {count - 1} more' if count > 1 else ''}: {why}"
                for (op, why), count in reasons.items()
            ]
        return visible_lines("\n".join(lines))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "target": self.target,
            "nodes": self.nodes,
            "translated": self.nodes - len(self.left),
            "parts": [
                {
                    "path": str(part.path), "translated": part.translated, "nodes": part.nodes,
                    "inputs": list(part.inputs), "outputs": list(part.outputs),
                }
                for part in self.parts
            ],
            "left": [{"node": row.node, "op": row.op, "reason": row.reason} for row in self.left],
        }  # fmt: skip


@dataclass(frozen=True)
class ConversionRequest:
    """What is wanted of a conversion.

    Attributes:
        to: name of a target.
        output: the file or folder to write; with parts, their names are made of it.
        options: of the target, by name.
        sizes: of symbolic dimensions, by name; of those without one by input and axis ("x:0").
        parts: where nodes are left, write each part as a file of its own, those of them as ONNX, instead of nothing.
    """

    to: str
    output: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    parts: bool = False


def convert(model: str | os.PathLike[str], request: ConversionRequest) -> ConversionReport:
    """Convert a model; nothing is written where nodes are left and parts are not wanted, or where any part fails.

    Raises:
        UnknownOption, InvalidArgument: a target or option that does not exist, or a value of another type; a name that the
            files cannot have; sizes that vary and that the target has as numbers.
        EPFail: packages that the target needs are not here.
        Fail: a part of translatable nodes cannot be written as a whole; says why.
        NotWritten: the files cannot be written.
    """
    kind = load_target(request.to)
    target = kind(parse_options(kind, request.options))
    output = request.output or Path(model).with_suffix(kind.suffix)
    _check_output(output, kind)
    graph = _loaded(model, request.sizes)
    target.check_sizes(graph)
    split = _split(graph, target.surveyor())
    left = tuple(_left(split))
    written: list[WrittenPart] = []
    if not left or request.parts:
        written = [_planned(part, _path(output, part, len(split.parts), kind.suffix)) for part in split.parts]
        sources = [Path(model), *(Path(model).parent / name for name in graph.metadata.external_files)]
        for row in written:
            _check_not_a_source(row.path, kind.beside if row.translated else (), sources)
        with staged_files(output.parent) as folder:
            for part, row in zip(split.parts, written, strict=True):
                _write(target if row.translated else None, part.graph, folder, row.path)
    return ConversionReport(kind.what, len(split.graph.nodes), tuple(written), left)


def _loaded(model: str | os.PathLike[str], sizes: Mapping[str, int]) -> Graph:
    """The optimised model, with these sizes of symbolic dimensions; one without a name is INPUT:AXIS."""
    options = SessionOptions()
    graph = load_model(os.fspath(model), options)
    if sizes:
        symbols = {name: symbol for symbol, name in dynamic_sizes(graph).items()}
        graph = with_sizes(graph, {symbols.get(name, name): size for name, size in sizes.items()})
    return optimised(graph, options, frozenset())


def _planned(part: Part, path: Path) -> WrittenPart:
    inputs, outputs = tuple(part.graph.input_names()), tuple(part.graph.output_names())
    return WrittenPart(path, _is_taken(part), len(part.nodes), inputs, outputs)


def _is_taken(part: Part) -> bool:
    return not isinstance(part.provider, _Rest)


def _split(graph: Graph, surveyor: ExecutionProvider) -> Partition:
    """Parts in the order in which they run, of the surveyor and of what it leaves."""
    providers = (surveyor, _Rest())
    if surveyor.fused_operators is not None:
        graph = decomposed(graph, providers, {})
    return partition(graph, providers, PartitionOptions(keep_islands=True, shapes_on_host=False))


def _left(split: Partition) -> list[LeftNode]:
    return [
        LeftNode(label(row.node), row.node.qualified_op, next(iter(row.refusals.values())).reason)
        for row in split.placements
        if row.provider == _Rest.name
    ]


def _check_output(output: Path, kind: type[ConversionTarget]) -> None:
    """Raises InvalidArgument where the target's files cannot have this name."""
    if output.suffix != kind.suffix:
        raise InvalidArgument(f"--output: {kind.what} is written as NAME{kind.suffix}; got {str(output)!r}")
    if output.is_dir() and not kind.writes_folder:
        raise InvalidArgument(f"--output: {str(output)!r} is a folder, and {kind.what} is a file: give another name")


def _check_not_a_source(path: Path, beside: Sequence[str], sources: Sequence[Path]) -> None:
    """Raises InvalidArgument where a file of the model would be written over."""
    for written in (path, *(path.with_suffix(suffix) for suffix in beside)):
        if written.exists() and any(source.exists() and written.samefile(source) for source in sources):
            raise InvalidArgument(f"--output: {str(written)!r} is a file of the model itself: give another name")


def _write(target: ConversionTarget | None, graph: Graph, folder: Path, path: Path) -> None:
    """A part in the target's form, or as ONNX, in a folder, under the name that it is to have at `path`."""
    place = folder / path.name
    try:
        if target is not None:
            target.write(graph, place)
        else:
            save(graph, place)
    except EPFail as error:
        raise Fail(str(error)) from error
    except OSError as error:
        raise not_written(path, error) from error


def _path(output: Path, part: Part, count: int, suffix: str) -> Path:
    kind = suffix if _is_taken(part) else ".onnx"
    return output if count == 1 else output.with_name(f"{output.stem}-{part.index}{kind}")
