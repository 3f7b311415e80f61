"""Strings that end in zeros are other strings than those without: NumPy's own type of strings would drop the zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort

ML = "ai.onnx.ml"
X = np.array(["a", "a\0", "a\0\0", "b", "a\0"], object)
KEYS = ["a", "a\0", "b"]


def strings(*words: str) -> Any:
    """Not by `helper.make_tensor`, whose NumPy arrays drop the zeros."""
    return TensorProto(name="t", data_type=TensorProto.STRING, dims=[len(words)], string_data=[w.encode() for w in words])


CASES: list[tuple[str, str, dict[str, Any], list[Any]]] = [
    ("LabelEncoder", ML, {"keys_strings": KEYS, "values_int64s": [1, 2, 3], "default_int64": -1}, [[1, 2, -1, 3, 2]]),
    ("LabelEncoder", ML, {"keys_strings": KEYS, "values_strings": ["1\0", "2", "3"], "default_string": "-\0"},
     [["1\0", "2", "-\0", "3", "2"]]),
    ("LabelEncoder", ML, {"keys_tensor": strings(*KEYS), "values_tensor": strings("1\0", "2", "3"),
                          "default_tensor": strings("-\0")}, [["1\0", "2", "-\0", "3", "2"]]),
    ("CategoryMapper", ML, {"cats_strings": KEYS, "cats_int64s": [1, 2, 3], "default_int64": -1}, [[1, 2, -1, 3, 2]]),
    ("OneHotEncoder", ML, {"cats_strings": KEYS, "zeros": 1},
     [[[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1], [0, 1, 0]]]),
    ("Unique", "", {}, [["a", "a\0", "a\0\0", "b"], [0, 1, 2, 3], [0, 1, 2, 3, 1], [1, 2, 1, 1]]),
    ("Unique", "", {"sorted": 0}, [["a", "a\0", "a\0\0", "b"], [0, 1, 2, 3], [0, 1, 2, 3, 1], [1, 2, 1, 1]]),
    ("TfIdfVectorizer", "", {"mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "ngram_counts": [0],
                             "ngram_indexes": [0, 1, 2], "pool_strings": KEYS}, [[1, 2, 1]]),
    ("StringNormalizer", "", {"stopwords": ["a\0"], "is_case_sensitive": 1}, [["a", "a\0\0", "b"]]),
    ("Identity", "", {}, [["a", "a\0", "a\0\0", "b", "a\0"]]),
    ("StringConcat", "", {}, [["aa", "a\0a\0", "a\0\0a\0\0", "bb", "a\0a\0"]]),
    ("Equal", "", {}, [[True] * 5]),
    ("RegexFullMatch", "", {"pattern": "a."}, [[False, True, False, False, True]]),
    ("StringSplit", "", {"delimiter": "b"}, [[["a", ""], ["a\0", ""], ["a\0\0", ""], ["", ""], ["a\0", ""]], [1, 1, 1, 2, 1]]),
]  # fmt: skip


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize(("operator", "domain", "attributes", "expected"), CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_values(operator: str, domain: str, attributes: dict[str, Any], expected: list[Any], provider: str) -> None:
    names = [f"y{i}" for i in range(len(expected))]
    inputs = ["x", "x"] if operator in ("StringConcat", "Equal") else ["x"]
    node = helper.make_node(operator, inputs, names, domain=domain, **attributes)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.STRING, ["n"])],
        [helper.make_tensor_value_info(name, 0, None) for name in names],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(ML, 4)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    for found, wanted in zip(ort.InferenceSession(model, providers=[provider]).run(None, {"x": X}), expected, strict=True):
        assert found.tolist() == wanted


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_constants_and_dictionaries(provider: str) -> None:
    made = helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(X))
    graph = helper.make_graph([made], "g", [], [helper.make_tensor_value_info("y", TensorProto.STRING, [5])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert ort.InferenceSession(model.SerializeToString(), providers=[provider]).run(None, {})[0].tolist() == X.tolist()
    kind = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain=ML, string_vocabulary=KEYS)
    graph = helper.make_graph([node], "g", [helper.make_value_info("x", kind)], [helper.make_tensor_value_info("y", 1, None)])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(ML, 4)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=[provider])
    assert session.run(None, {"x": {"a\0": 2.0, "b": 3.0}})[0].reshape(-1).tolist() == [0, 2, 3]
