"""A part as the ONNX model that NVIDIA's parser reads: in memory, or with its weights in a file beside it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from intarsia.graph.dims import Expr, fresh_symbol
from intarsia.graph.model import Graph, Node, TensorType, Value, ValueType
from intarsia.graph.save import save, to_model_bytes
from intarsia.lazy_dataclass import dataclass
from intarsia.partition.partition import label
from intarsia.passes import standardize

_IN_MEMORY_NBYTES = 1 << 26  # weights of more than this in all go through a file
_EXTERNAL_NBYTES = 1 << 12
_OUTPUT, _NUMBER = " -> ", " #"


@dataclass(frozen=True)
class OnnxModel:
    """What a parser is given: the model's bytes, and where its weights lie that are not in them ("": all are)."""

    data: bytes
    path: str = ""


def node_name(node: Node, index: int) -> str:
    """The name of a part's node for the parser: the model's, made unique, with the node's first output."""
    name, output = label(node), next((n for n in node.outputs if n), "")
    return f"{name}{_OUTPUT}{output}{_NUMBER}{index}" if name != output else f"{name}{_NUMBER}{index}"


def node_label(name: str) -> str:
    """The model's name in a name that `node_name` made."""
    return name.rpartition(_NUMBER)[0].partition(_OUTPUT)[0]


def node_output(name: str) -> str:
    """The first output of the node that `node_name` named so; "" where it did not."""
    text, mark, number = name.rpartition(_NUMBER)
    return (text.partition(_OUTPUT)[2] or text) if mark and number.isdecimal() else ""


def prepared(graph: Graph) -> Graph:
    """The part under one opset, its nodes named by `node_name`, without types of intermediates: the parser infers them.

    Raises:
        IntarsiaError: no opset has all its nodes.
    """
    out = standardize(graph).clone()
    out.nodes = [node.copy(name=node_name(node, i)) for i, node in enumerate(out.nodes)]
    out.types, out.functions, out.overridable = {}, {}, []
    out.inputs = [Value(v.name, _plain(v.type)) for v in graph.inputs]
    out.outputs = [Value(v.name, _plain(v.type if v.type is not None else graph.type_of(v.name))) for v in graph.outputs]
    return out


@contextmanager
def written(graph: Graph) -> Iterator[OnnxModel]:
    """The model of a `prepared` part, for as long as the block runs; large weights lie in a file until then."""
    if sum(c.nbytes for c in graph.constants.values()) <= _IN_MEMORY_NBYTES:
        yield OnnxModel(to_model_bytes(graph))
        return
    with tempfile.TemporaryDirectory(prefix="intarsia-tensorrt-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "part.onnx"
        save(graph, path, _EXTERNAL_NBYTES)
        yield OnnxModel(path.read_bytes(), str(path))


def _plain(kind: ValueType | None) -> ValueType | None:
    """The type with sizes that are computed from others as unknown ones: ONNX names sizes and does not compute them."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    dims = [
        fresh_symbol(f"d{i}") if isinstance(dim, Expr) and str(dim) not in {str(s) for s in dim.symbols} else dim
        for i, dim in enumerate(kind.shape)
    ]
    return TensorType(kind.dtype, tuple(dims))
