"""Sizes of a part's inputs that are written in symbols of another part."""

from __future__ import annotations

from dataclasses import replace

from intarsia.graph.dims import Dim, Expr, fresh_symbol, symbols_of
from intarsia.graph.model import Graph, TensorType, Value, ValueType
from intarsia.ops.framework.infer import Inference
from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv


def rename_foreign_symbols(inference: Inference, _: LegalizeEnv) -> Graph | None:
    """A graph in which every symbol of an input's shape is the size of an input's axis; None where that is so already.

    A part that another provider feeds may get an input of shape [n * repeats[0]] without ever seeing `repeats`: each such
    size, and each other one written in symbols that no input defines, becomes a symbol of its own. Only declared types are
    read.
    """
    graph = inference.graph
    own = {str(d) for v in graph.inputs for d in _shape(v.type) if isinstance(d, Expr) and str(d) in d.symbols}
    if all(symbols_of(d) <= own for v in graph.inputs for d in _shape(v.type)):
        return None
    renamed: dict[Dim, Dim] = {}

    def opened(name: str, kind: ValueType | None) -> ValueType | None:
        if not isinstance(kind, TensorType) or kind.shape is None:
            return kind
        for axis, d in enumerate(kind.shape):
            if not symbols_of(d) <= own and d not in renamed:
                renamed[d] = fresh_symbol(f"{name}_d{axis}")
        return replace(kind, shape=tuple(renamed.get(d, d) for d in kind.shape))

    out = graph.clone()
    out.inputs = [Value(v.name, opened(v.name, v.type), v.doc) for v in graph.inputs]
    out.types = {n: kind for n, t in graph.types.items() if (kind := opened(n, t)) is not None}
    out.outputs = [Value(v.name, opened(v.name, v.type), v.doc) for v in graph.outputs]
    return out


def _shape(kind: ValueType | None) -> tuple[Dim, ...]:
    return kind.shape or () if isinstance(kind, TensorType) else ()
