"""Graphs as text, for people: one line per value and node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.printable import visible

if TYPE_CHECKING:
    from intarsia.graph.model import Attribute, Constant, Function, Graph, Node, Value, ValueType

_SHOWN_ELEMENTS = 8  # of tensors and lists; longer ones are summarised
_SHOWN_CHARACTERS = 80  # of strings

TypeOf = Callable[[str], "ValueType | None"]


def format_node(node: Node, types: Mapping[str, ValueType] | TypeOf | None = None, indent: str = "") -> str:
    """A node as `%y: float[1, 64] = Gemm(%x, %w, transB=1)  # name`.

    Args:
        node: the node.
        types: types of values by name (or a function), shown behind the outputs where known.
        indent: put before each line; subgraphs are indented by two more spaces.
    """
    lookup: TypeOf = types if callable(types) else (types or {}).get
    outputs = ", ".join(_typed(name, lookup(name)) if name else "_" for name in node.outputs)
    op = visible(node.qualified_op + (f":{node.overload}" if node.overload else ""))
    arguments = [f"%{visible(name)}" if name else "_" for name in node.inputs]
    arguments += [f"{visible(key)}={format_attribute(value, indent)}" for key, value in node.attributes.items()]
    name = f"  # {visible(node.name)}" if node.name else ""
    return f"{indent}{outputs} = {op}({', '.join(arguments)}){name}"


def format_graph(graph: Graph, indent: str = "") -> str:
    """A graph as text: its header (inputs, outputs, opsets, constants), then a line per node.

    Constants are shown with their values where these are few and need not be read from a file of weights.
    """
    inner = indent + "  "
    lines = [f"graph {visible(graph.name) or '(unnamed)'} {{"]
    if graph.metadata.ir_version:
        lines.append(f"{inner}# IR version {graph.metadata.ir_version}{_produced_by(graph)}")
    if graph.opset_imports:
        opsets = (f"{visible(domain) or 'ai.onnx'} {version}" for domain, version in graph.opset_imports.items())
        lines.append(f"{inner}# opsets: {', '.join(opsets)}")
    lines += [f"{inner}input {_value(v)}" for v in graph.inputs]
    lines += [f"{inner}output {_value(v)}" for v in graph.outputs]
    overridable = set(graph.overridable)
    lines += [f"{inner}{_constant(c, c.name in overridable)}" for c in graph.constants.values()]
    outputs = {v.name: v.type for v in graph.outputs if v.type is not None}
    types = {**outputs, **graph.types}
    lines += [format_node(node, types, inner) for node in graph.nodes]
    lines += [_function(f, inner) for f in graph.functions.values()]
    return "\n".join([*lines, indent + "}"])


def _produced_by(graph: Graph) -> str:
    producer = " ".join(filter(None, (graph.metadata.producer_name, graph.metadata.producer_version)))
    return f", from {visible(producer)}" if producer else ""


def _typed(name: str, type_: ValueType | None) -> str:
    return visible(f"%{name}" if type_ is None else f"%{name}: {type_}")


def _value(value: Value) -> str:
    return _typed(value.name, value.type)


def _constant(constant: Constant, overridable: bool) -> str:
    word = "overridable constant" if overridable else "constant"
    size = f"{constant.nbytes:,} bytes" if constant.dtype is not DType.STRING else f"{constant.size} strings"
    shown = format_attribute(constant.numpy()) if constant.size <= _SHOWN_ELEMENTS else size
    return f"{word} %{visible(constant.name)}: {constant.type} = {shown}"


def _function(function: Function, indent: str) -> str:
    name = visible("::".join(filter(None, (function.domain, function.name, function.overload))))
    parameters = [f"%{visible(n)}" for n in function.inputs]
    parameters += [visible(k) if v is None else f"{visible(k)}={format_attribute(v)}" for k, v in function.attributes.items()]
    outputs = ", ".join(f"%{visible(n)}" for n in function.outputs)
    lines = [f"{indent}function {name}({', '.join(parameters)}) -> {outputs} {{"]
    lines += [format_node(node, indent=indent + "  ") for node in function.nodes]
    return "\n".join([*lines, indent + "}"])


def format_attribute(value: Attribute, indent: str = "") -> str:
    """An attribute's value on one line; a graph on several, indented by two spaces more than `indent`."""
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, list):
        items = [format_attribute(v, indent) for v in value[:_SHOWN_ELEMENTS]]
        if len(value) > _SHOWN_ELEMENTS:
            items.append(f"... {len(value)} in all")
        return f"[{', '.join(items)}]"
    if isinstance(value, (str, bytes)):
        shown = repr(value[:_SHOWN_CHARACTERS])
        return shown if len(value) <= _SHOWN_CHARACTERS else f"{shown}... ({len(value)} in all)"
    return f"{value:.9g}" if isinstance(value, float) else str(value).replace("\n", f"\n{indent}  ")


def _array(array: np.ndarray) -> str:
    if array.size > _SHOWN_ELEMENTS:
        return f"{DType.of(array.dtype).onnx_name}{list(array.shape)}"
    if array.size == 0:
        return "[]"
    if array.dtype == object:
        return format_attribute(array.tolist())
    return " ".join(np.array2string(array, separator=", ", precision=7).split())
