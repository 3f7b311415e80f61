"""Layers of a model's author: from the names of nodes, or from what torch's exporter writes beside them."""

from __future__ import annotations

import ast

from intarsia.graph.model import Graph, Node

_SCOPES = "pkg.torch.onnx.name_scopes"  # modules around a node, outermost first, and the node's own name
_LONGEST = 1 << 14  # characters of an entry that is read


def layer_names(graph: Graph) -> dict[str, str]:
    """By a node's name the path of its layer and its own name, where the model's metadata says more than the name does.

    Source: PyTorch's exporter (torch.onnx, since 2.5), whose nodes are named "node_Conv_26" and the like.
    """
    found = ((node.name, _scoped(node)) for node in graph.nodes if node.metadata)
    return {name: scoped for name, scoped in found if name and scoped}


def _scoped(node: Node) -> str:
    text = node.metadata.get(_SCOPES, "")
    if not text or len(text) > _LONGEST:
        return ""
    try:
        scopes = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    if not isinstance(scopes, list) or len(scopes) < 2 or not all(isinstance(s, str) for s in scopes):
        return ""
    *modules, own = scopes
    module = next((m for m in reversed(modules) if m), "")
    return f"{module}.{own}" if module else ""


def layer_of(name: str, depth: int = 0) -> str:
    """A node's name without its last part; "(top)" of a name that has one part only."""
    separator = "/" if "/" in name else "."
    parts = [part for part in name.split(separator) if part][:-1]
    return separator.join(parts[:depth] if depth else parts) or "(top)"


def layer_parts(layer: str) -> list[str]:
    """The parts of a layer's path, from the outermost; none of "(top)". A part that is a number has the name before it:
    "layers.3.norm" is "layers", "layers.3", "norm"."""
    if layer in ("", "(top)"):
        return []
    parts = [part for part in layer.split("/" if "/" in layer else ".") if part]
    return [f"{parts[i - 1]}.{part}" if i and part.isdecimal() else part for i, part in enumerate(parts)]
