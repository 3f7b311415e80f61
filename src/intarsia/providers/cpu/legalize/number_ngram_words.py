"""Words that TfIdfVectorizer counts n-grams of, as numbers.

A LabelEncoder looks each word up once; what is counted then is numbers, for which there is a kernel.
"""

from __future__ import annotations

from intarsia.graph.model import Graph, Node
from intarsia.ops.framework.infer import Inference
from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv
from intarsia.providers.cpu.value_names import derived_name

OPERATORS = frozenset(("TfIdfVectorizer",))
_LABELS_VERSION = 2


def number_ngram_words(inference: Inference, _: LegalizeEnv) -> Graph | None:
    """The graph with words numbered before their n-grams are counted; None if it counts none of words."""
    graph = inference.graph
    chosen = {id(n) for n in graph.nodes if not n.domain and n.op_type in OPERATORS and n.attributes.get("pool_strings")}
    if not chosen:
        return None
    out = graph.clone()
    nodes: list[Node] = []
    for original, node in zip(graph.nodes, out.nodes, strict=True):
        if id(original) not in chosen:
            nodes.append(node)
            continue
        numbers = {word: i for i, word in enumerate(dict.fromkeys(node.attributes["pool_strings"]))}
        name = derived_name(node.outputs[0], "numbers")
        labels = {"keys_strings": list(numbers), "values_int64s": list(numbers.values()), "default_int64": -1}
        label = Node("LabelEncoder", [node.inputs[0]], [name], labels, "ai.onnx.ml", f"{node.name} (words)", _LABELS_VERSION)
        attributes = {k: v for k, v in node.attributes.items() if k != "pool_strings"}
        attributes["pool_int64s"] = [numbers[word] for word in node.attributes["pool_strings"]]
        nodes += [label, node.copy(inputs=[name], attributes=attributes, traced=None)]
    out.nodes = nodes
    out.opset_imports.setdefault("ai.onnx.ml", _LABELS_VERSION)
    return out
