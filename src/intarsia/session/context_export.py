"""A compiled model as ONNX: each part that its provider can save becomes one EPContext node, the rest stays as it is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from intarsia.ep.provider import CompileContext, NotSaved, Program
from intarsia.ep_context.format import compatibility_info, packed
from intarsia.errors import Fail, InvalidArgument
from intarsia.graph.formats.atomic_write import Write
from intarsia.graph.model import Graph, Node
from intarsia.graph.save import MAX_PROTO_NBYTES
from intarsia.lazy_dataclass import dataclass
from intarsia.model.compiled_model import CompiledModel
from intarsia.options.session_options import SessionOptions
from intarsia.partition.grouping import Unit, schedule
from intarsia.partition.partition import Part, subgraph
from intarsia.printable import get_logger

logger = get_logger("intarsia.cache")
MAX_EMBEDDED_NBYTES = MAX_PROTO_NBYTES - (16 << 20)  # leaves room for nodes and names

Pieces = list[bytes | memoryview]


@dataclass
class ContextModel:
    """A graph with EPContext nodes, and the files that some of them name.

    Attributes:
        files: by name, without a folder.
        refused: parts that stay as they are, with the reason.
    """

    graph: Graph
    files: dict[str, Pieces] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    @property
    def compiled(self) -> int:
        """The number of EPContext nodes."""
        return sum(node.compiled_part for node in self.graph.nodes)

    def writers(self, folder: Path) -> list[tuple[Path, Write]]:
        """The files in a folder, for `replace_files`."""
        return [(folder / name, partial(_write_pieces, pieces)) for name, pieces in self.files.items()]


def _write_pieces(pieces: Pieces, file: BinaryIO) -> None:
    file.writelines(pieces)


def context_path(given: str, model_path: str | None) -> Path:
    """Where a compiled model is written: `given`, or `<name>_ctx.onnx` beside the model.

    Raises:
        InvalidArgument: neither path is known, or it is a folder.
    """
    if not given and not model_path:
        raise InvalidArgument("the model is given as bytes: set 'ep.context_file_path' to the path of the compiled model")
    source = Path(model_path or "")
    path = Path(given) if given else source.with_name(f"{source.stem}_ctx.onnx")
    if os.path.isdir(path) or not path.name:  # noqa: PTH112 # False for names that are too long
        raise InvalidArgument(
            f"'ep.context_file_path' is {given!r}, expected the name of a file: it should not point to a folder"
        )
    return path


def context_model(
    model: CompiledModel, context: CompileContext, embed: bool, stem: str | None, prefix: str = ""
) -> ContextModel:
    """A compiled model as a graph to save.

    Args:
        context: what the model was compiled with.
        embed: put compiled parts into the model, where protobuf's limit allows it.
        stem: parts that are not embedded become files whose names begin so; None: there can be no files.
        prefix: begins the names of EPContext nodes.

    Raises:
        InvalidArgument: the model is a compiled one already, or too large for one file.
    """
    split = model.partition
    if any(node.compiled_part for node in split.graph.nodes):
        raise InvalidArgument("the model has EPContext nodes: it is compiled already; compile the original model")
    found = ContextModel(Graph())
    pieces = list(_pieces(model, context, found))
    inside = embed or stem is None
    if inside and (total := _nbytes(pieces)) > MAX_EMBEDDED_NBYTES:
        why = f"{total:,} bytes of compiled parts and weights do not fit into one file, over protobuf's limit of 2 GB"
        if stem is None:
            raise InvalidArgument(f"{why}: write files with compile_to_file")
        logger.warning("%s: they are written beside the model", why)
        inside = False
    nodes: list[Node] = []
    for k, piece in enumerate(pieces):
        if piece.made is not None:
            nodes.append(_placed(piece.made, inside, f"{stem}_part{k}.bin", found))
            continue
        if piece.data is None:
            nodes += piece.part.graph.nodes
            continue
        node = _context_node(piece.part, piece.program, f"{prefix}{piece.part.provider.name}_part{k}")
        if inside:
            node.attributes |= {"embed_mode": 1, "ep_cache_context": b"".join(piece.data)}
        else:
            name = f"{stem}_part{k}.bin"
            found.files[name] = piece.data
            node.attributes |= {"embed_mode": 0, "ep_cache_context": name}
        nodes.append(node)
    info = {p.part.provider.name: compatibility_info(p.part.provider) for p in pieces if p.is_compiled}
    info = {name: text for name, text in info.items() if text}
    found.graph = _with_nodes(split.graph, nodes, info)
    return found


@dataclass(frozen=True)
class _Piece:
    """A part, or a piece of one, and its saved program, or the node that its provider made of it; None for both where its
    nodes stay."""

    part: Part
    program: Program
    data: Pieces | None
    made: Node | None = None

    @property
    def is_compiled(self) -> bool:
        return self.data is not None or self.made is not None


def _placed(made: Node, inside: bool, name: str, found: ContextModel) -> Node:
    """A provider's own EPContext node, with its data where the caller wants it."""
    data = made.attributes.get("ep_cache_context")
    if inside or not made.attributes.get("embed_mode", 1) or not data:
        return made
    found.files[name] = [data.encode() if isinstance(data, str) else data]
    return replace(made, attributes={**made.attributes, "embed_mode": 0, "ep_cache_context": name})


def _nbytes(pieces: Iterable[_Piece]) -> int:
    saved = sum(memoryview(data).nbytes for piece in pieces for data in piece.data or ())
    made = sum(len(piece.made.attributes.get("ep_cache_context") or b"") for piece in pieces if piece.made is not None)
    return saved + made + sum(c.nbytes for p in pieces if not p.is_compiled for c in p.part.graph.constants.values())


def _pieces(model: CompiledModel, context: CompileContext, found: ContextModel) -> Iterator[_Piece]:
    for part, program in zip(model.partition.parts, model.programs, strict=True):
        if part.provider.own_contexts:
            made = part.provider.context_node(program)
            if made is None:
                found.refused.append(f"{part}: {part.provider.name} gives no EPContext node for it")
            yield _Piece(part, program, None, made)
            continue
        try:
            yield _Piece(part, program, _saved(part, program))
        except NotSaved as reason:
            found.refused.append(f"{part}: {reason}")
            logger.debug("not compiled into the model: %s: %s", part, reason)
            yield from _divided(part, program, reason.outputs, context)


def _divided(part: Part, program: Program, stuck: frozenset[str], context: CompileContext) -> Iterator[_Piece]:
    """A part around the nodes that write `stuck`: what lies between them is compiled by itself."""
    graph = part.graph
    uncached = {i for i, node in enumerate(graph.nodes) if not stuck.isdisjoint(node.outputs)}
    producer = {out: i for i, node in enumerate(graph.nodes) for out in node.outputs if out}
    needs = [{producer[n] for n in node.used_names() if n in producer} for node in graph.nodes]
    order = schedule([Unit((i,), int(i in uncached)) for i in range(len(graph.nodes))], needs) if uncached else None
    if order is None:
        yield _Piece(part, program, None)
        return
    for group in order:
        inner = Part(part.index, part.provider, tuple(sorted(group)), subgraph(graph, sorted(group)))
        own, data = program, None
        if group[0] not in uncached:
            own = part.provider.compile(inner.graph, context)
            with suppress(NotSaved):
                data = _saved(inner, own)
        yield _Piece(inner, own, data)


def _saved(part: Part, program: Program) -> Pieces:
    if any(part.graph.type_of(n) is None for n in program.outputs):
        raise NotSaved("the type of an output is not known")
    return packed(part.provider, program, [part.graph.type_of(n) for n in program.inputs])


def _context_node(part: Part, program: Program, name: str) -> Node:
    """An EPContext node without its data."""
    provider = part.provider
    attributes = {
        "main_context": 1, "source": provider.name, "partition_name": name,
        "ep_sdk_version": provider.library_version() or _version(), "hardware_architecture": provider.compatibility_info(),
        "notes": f"{len(part.nodes)} nodes", "output_types": [part.graph.type_of(n) for n in program.outputs],
    }  # fmt: skip
    origin = tuple(dict.fromkeys(o for n in part.graph.nodes for o in (n.origin or (n.name,)) if o))
    return Node("EPContext", list(program.inputs), list(program.outputs), attributes, "com.microsoft", name, origin=origin)


def _version() -> str:
    from intarsia.machine.version import __version__

    return __version__


def _with_nodes(graph: Graph, nodes: list[Node], info: dict[str, str]) -> Graph:
    """A graph of these nodes, valid for saving: without what nobody reads any more."""
    from intarsia.ops.framework.registry_scopes import restored
    from intarsia.passes import standardize

    used = {n for node in nodes for n in node.used_names()} | set(graph.output_names())
    made = {n for node in nodes for n in node.outputs if n}
    out = graph.clone()
    out.nodes = nodes
    out.constants = {n: c for n, c in graph.constants.items() if n in used}
    out.overridable = []
    out.types = {n: t for n, t in graph.types.items() if n in made and n not in set(graph.output_names())}
    out.outputs = [replace(v, type=v.type or graph.type_of(v.name)) for v in graph.outputs]
    out.opset_imports = {**graph.opset_imports, "com.microsoft": graph.opset_imports.get("com.microsoft", 1)}
    properties = {**graph.metadata.properties, **{f"ep_compatibility_info.{name}": text for name, text in info.items()}}
    out.metadata = replace(graph.metadata, properties=properties)
    return standardize(restored(out))


def write_context(model: CompiledModel, context: CompileContext, options: SessionOptions, model_path: str | None) -> None:
    """Write what the session's entries "ep.context_*" ask for; nothing where no part can be saved.

    Raises:
        InvalidArgument: no path for it.
        Fail: the file exists.
    """
    from intarsia.graph.save import save

    path = context_path(options.config("ep.context_file_path"), model_path)
    if os.path.exists(path):  # noqa: PTH110 # the same
        raise Fail(f"Failed to generate EP context model since the file '{path}' exist already: remove it, or name another one")
    prefix = options.config("ep.context_node_name_prefix")
    made = context_model(model, context, options.config("ep.context_embed_mode") == "1", path.stem, prefix)
    if not made.compiled:
        logger.warning("no compiled model is written to %s: %s", path, "; ".join(made.refused) or "nothing is compiled")
        return
    external = options.config("ep.context_model_external_initializers_file_name")
    save(made.graph, path, 1024 if external else None, external or None, made.writers(path.parent))
