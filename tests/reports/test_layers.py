"""Layers by the names of nodes, and by what torch's exporter writes beside them."""

from __future__ import annotations

import pytest

from intarsia.graph.model import Graph, Node
from intarsia.reports.layers import layer_names, layer_of, layer_parts
from intarsia.reports.profile_report import with_sizes

SCOPES = "pkg.torch.onnx.name_scopes"


def graph(text: str) -> Graph:
    product = Node("MatMul", ["a", "b"], ["c"], name="node_MatMul_3", metadata={SCOPES: text})
    return Graph(nodes=[product, Node("Relu", ["c"], ["d"])])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("['', 'encoder', 'encoder.layer.0', 'linear_2']", "encoder.layer.0.linear_2"), ("['', 'encoder', '', 'x']", "encoder.x")],
)
def test_scopes(text: str, expected: str) -> None:
    assert layer_names(graph(text)) == {"node_MatMul_3": expected}
    assert layer_of(expected) == expected.rpartition(".")[0]


LONG = "['a'" + ", 'b'" * 9999 + "]"


@pytest.mark.parametrize("text", ["", "['x']", "['', 'x']", "['a', 3]", "[", "{}", LONG, "__import__('os')"])
def test_odd_entries(text: str) -> None:
    assert layer_names(graph(text)) == {}


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("gemm batch*seqx768x768", "gemm 256x768x768"), ("attention 12xseqxseq", "attention 12x128x128"),
        ("gemm nx768", "gemm nx768"), ("conv 3x3 to 64", "conv 3x3 to 64"), ("LayerNormalization", "LayerNormalization"),
        ("pack seq + 1", "pack 128 + 1"), ("batch", "2"),
    ],
)  # fmt: skip
def test_titles_with_the_sizes_of_a_run(title: str, expected: str) -> None:
    assert with_sizes(title, {"batch": 2, "seq": 128}) == expected


def test_parts_of_layers() -> None:
    assert layer_parts("encoder/layer.0/norm") == ["encoder", "layer.0", "norm"]
    assert layer_parts("layers.3.norm") == ["layers", "layers.3", "norm"]
    assert layer_parts("0.1") == ["0", "0.1"]
    assert layer_parts("(top)") == layer_parts("") == []
