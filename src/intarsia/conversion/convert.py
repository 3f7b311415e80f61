"""From an ONNX model to a vendor's files, with a report of what was translated, what was not, and why."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from intarsia.conversion.targets import load_target
from intarsia.ep.capability import Support
from intarsia.ep.provider import ExecutionProvider
from intarsia.errors import EPFail, Fail, InvalidArgument
from intarsia.graph.model import Graph, Node
from intarsia.graph.save import save
from intarsia.lazy_dataclass import dataclass
from intarsia.model.load_and_optimize import load_model, optimised
from intarsia.options.session_options import SessionOptions
from intarsia.partition.decompose import decomposed
from intarsia.partition.partition import Part, Partition, PartitionOptions, label, partition
from intarsia.printable import visible_lines
from intarsia.providers.options import parse_options
from intarsia.providers.vendor.conversion import ConversionTarget


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
        sizes: of symbolic dimensions, by name.
        parts: where nodes are left, write each part as a file of its own, those of them as ONNX, instead of nothing.
    """

    to: str
    output: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    parts: bool = False


def convert(model: str | os.PathLike[str], request: ConversionRequest) -> ConversionReport:
    """Convert a model; nothing is written where nodes are left and parts are not wanted.

    Raises:
        UnknownOption, InvalidArgument: a target or option that does not exist, or a value of another type.
        EPFail: packages that the target needs are not here.
        Fail: a part of translatable nodes cannot be written as a whole; says why.
    """
    kind = load_target(request.to)
    target = kind(parse_options(kind, request.options))
    options = SessionOptions()
    for name, size in request.sizes.items():
        options.add_free_dimension_override_by_name(name, size)
    graph = optimised(load_model(os.fspath(model), options), options, frozenset())
    split = _split(graph, target.surveyor())
    left = tuple(_left(split))
    output = request.output or Path(model).with_suffix(kind.suffix)
    _check_output(output, kind)
    sources = [Path(model), *(Path(model).parent / name for name in graph.metadata.external_files)]
    written: list[WrittenPart] = []
    if not left or request.parts:
        for part in split.parts:
            taken = not isinstance(part.provider, _Rest)
            path = _path(output, part, len(split.parts), kind.suffix if taken else ".onnx")
            _check_not_a_source(path, kind.beside if taken else (), sources)
            _write(target if taken else None, part.graph, path)
            inputs, outputs = tuple(part.graph.input_names()), tuple(part.graph.output_names())
            written.append(WrittenPart(path, taken, len(part.nodes), inputs, outputs))
    return ConversionReport(kind.what, len(split.graph.nodes), tuple(written), left)


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


def _write(target: ConversionTarget | None, graph: Graph, path: Path) -> None:
    """A part in the target's form, or as ONNX."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if target is not None:
            target.write(graph, path)
        else:
            save(graph, path)
    except EPFail as error:
        raise Fail(str(error)) from error
    except OSError as error:
        raise Fail(f"{path} cannot be written: {error.strerror or error}") from error


def _path(output: Path, part: Part, count: int, suffix: str) -> Path:
    return output if count == 1 else output.with_name(f"{output.stem}-{part.index}{suffix}")
