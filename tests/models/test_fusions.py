"""What the optimise stage makes of the exported models: the operators that their authors meant."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from intarsia.graph.load import load
from intarsia.passes import OptimizeResult, optimize

pytestmark = pytest.mark.models


def counts(result: OptimizeResult) -> Counter[str]:
    return Counter(node.op_type for node in result.graph.nodes)


@pytest.mark.parametrize(
    ("name", "causal", "others"),
    [
        (
            "bert_base",
            False,
            "MatMul Add LayerNormalization Gelu Gather Shape Slice GatherElements Concat Expand Cast Reshape Where",
        ),
        ("gpt2", True, "MatMul Add LayerNormalization Gelu Gather Shape Squeeze Range Unsqueeze Split"),
        ("vit_base", False, "MatMul Add LayerNormalization Gelu Conv Reshape Transpose Concat Shape Expand"),
    ],
)
def test_transformers_are_attention_gelu_and_norms(models: Path, name: str, causal: bool, others: str) -> None:
    graph = load(models / f"{name}.onnx")
    layers = sum(node.op_type == "Softmax" for node in graph.nodes)
    result = optimize(graph)
    found = counts(result)
    assert found["Attention"] == found["Gelu"] == layers
    assert set(found) <= {"Attention", *others.split()}
    for node in result.graph.nodes:
        if node.op_type == "Attention":
            assert "q_num_heads" in node.attributes and node.attributes.get("is_causal", 0) == causal
    masks = {node.inputs[3] for node in result.graph.nodes if node.op_type == "Attention" and len(node.inputs) > 3}
    assert len(masks) == (name == "bert_base")
    assert optimize(result.graph).log == ()


def test_weights_of_recurrent_networks_are_laid_out_once(models: Path) -> None:
    result = optimize(load(models / "lstm_text.onnx"))
    assert counts(result)["LSTM"] == 2
    assert not {"Slice", "Concat", "Unsqueeze"} & set(counts(result))
