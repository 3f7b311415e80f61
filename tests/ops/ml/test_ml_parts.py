"""What the CPU provider takes classical models apart into: searches, indicators, labels that are words; and what runs where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ml_models import ML, model_of, ours, same
from onnx import TensorProto, helper, numpy_helper

from intarsia import InferenceSession
from intarsia.errors import IntarsiaError

F, D, INT, S = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING
PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
both = pytest.mark.parametrize("provider", PROVIDERS)


def on_host(model: Any) -> list[str]:
    """Operators that the CPU provider runs as host functions."""
    ran = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [node.kernel for node in ran.explain().nodes if node.kind == "host"]


def numbers(count: int, spread: int) -> list[int]:
    return (np.random.default_rng(count).permutation(count * spread)[:count] - count).tolist()


@both
@pytest.mark.parametrize("spread", [1, 3, 1000])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 33, 100])
def test_integers_looked_up(count: int, spread: int, provider: str) -> None:
    known = numbers(count, spread)
    x = np.array([*known, *(k + 1 for k in known), 2**62, -(2**62), -(2**63)]).reshape(-1, 1)
    values = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    model = model_of(
        "LabelEncoder", {"X": x}, {"Y": F}, version=2, keys_int64s=known, values_floats=values.tolist(), default_float=-7.0
    )
    table = dict(zip(known, values, strict=True))
    same(ours(model, {"X": x}, provider), [np.array([[table.get(i, -7.0)] for i in x[:, 0].tolist()], np.float32)])
    assert not on_host(model)


@both
@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_looked_up(dtype: type, nan: bool, provider: str) -> None:
    """NaN may be a key; zeros of both signs are one key."""
    known = np.array([0.5, -2, 0, 1e30, np.inf, -np.inf, *([np.nan] if nan else [])], dtype)
    values = np.arange(10, 10 + len(known))
    x = np.array([0.5, 0.25, np.nan, -0.0, np.inf, -np.inf, 1e30, -3, -2], dtype)
    tensors = {"keys_tensor": numpy_helper.from_array(known), "values_tensor": numpy_helper.from_array(values),
               "default_tensor": numpy_helper.from_array(np.array([-1]))}  # fmt: skip
    model = model_of("LabelEncoder", {"X": x}, {"Y": INT}, version=4, **tensors)
    same(ours(model, {"X": x}, provider), [np.array([10, -1, 16 if nan else -1, 12, 14, 15, 13, -1, 11])])
    assert not on_host(model)


@both
def test_only_nan_looked_up(provider: str) -> None:
    x = np.float32([np.nan, 1])
    model = model_of("LabelEncoder", {"X": x}, {"Y": INT}, version=2, keys_floats=[float("nan")], values_int64s=[5])
    same(ours(model, {"X": x}, provider), [np.array([5, -1])])


@both
def test_words_of_numbers(provider: str) -> None:
    """The number is searched natively, only the words are looked up in Python."""
    x = np.array([[3, 1], [9, 2**40]])
    attributes = {"keys_int64s": [1, 3, 2**40], "values_strings": ["one", "three", "many"], "default_string": "none"}
    model = model_of("LabelEncoder", {"X": x}, {"Y": S}, version=2, **attributes)
    same(ours(model, {"X": x}, provider), [np.array([["three", "one"], ["none", "many"]], object)])
    assert on_host(model) == ["Label"]


@both
def test_objects_that_are_no_str(provider: str) -> None:
    x = np.array(["a", np.str_("b"), "c"], object)
    model = model_of("LabelEncoder", {"X": x}, {"Y": INT}, version=2, keys_strings=["a", "b"], values_int64s=[4, 5])
    same(ours(model, {"X": x}, provider), [np.array([4, 5, -1])])


@both
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32, np.float64])
def test_indicators(dtype: type, provider: str) -> None:
    x = np.array([[7, 5], [2, -1]]).astype(dtype)
    model = model_of("OneHotEncoder", {"X": x}, {"Y": F}, cats_int64s=[5, 7, -1])
    same(ours(model, {"X": x}, provider), [np.float32([[[0, 1, 0], [1, 0, 0]], [[0, 0, 0], [0, 0, 1]]])])
    assert not on_host(model)


def test_indicators_of_known_numbers_only() -> None:
    model = model_of("OneHotEncoder", {"X": np.array([5, 6])}, {"Y": F}, cats_int64s=[5, 7], zeros=0)
    assert on_host(model)
    with pytest.raises(IntarsiaError, match="6 is none of the 2 categories, and zeros is 0"):
        ours(model, {"X": np.array([5, 6])})


def columns_of_words(zeros: int, categories: dict[str, list[str]]) -> Any:
    """A one-hot encoder for each column, side by side."""
    nodes = [
        helper.make_node("OneHotEncoder", [n], [f"{n}!"], domain=ML, cats_strings=c, zeros=zeros) for n, c in categories.items()
    ]
    nodes.append(helper.make_node("Concat", [f"{n}!" for n in categories], ["Y"], axis=-1))
    inputs = [helper.make_tensor_value_info(n, S, [None, 1]) for n in categories]
    graph = helper.make_graph(nodes, "columns", inputs, [helper.make_tensor_value_info("Y", F, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)], ir_version=9)


@both
@pytest.mark.parametrize("rows", [1, 7, 0])
def test_words_indicated(rows: int, provider: str) -> None:
    """One call numbers the words of all columns; of equal categories the last one counts, of other words none."""
    categories = {"A": ["ash", "birch"], "B": ["one", "two", "one", ""], "C": ["é"]}
    rng = np.random.default_rng(rows)
    feeds = {n: rng.choice([*c, "other"], (rows, 1)).astype(object) for n, c in categories.items()}
    if rows:
        feeds["B"][0, 0] = np.str_("one")
    parts = []
    for name, words in categories.items():
        last = {word: i for i, word in enumerate(words)}
        parts.append(np.zeros((rows, 1, len(words)), np.float32))
        for i, x in enumerate(feeds[name][:, 0]):
            if x in last:
                parts[-1][i, 0, last[x]] = 1
    expected = np.concatenate(parts, -1)
    model = columns_of_words(1, categories)
    same(ours(model, feeds, provider), [expected])
    assert not on_host(model)


@pytest.mark.parametrize("rows", [1, 3])
def test_indicators_of_known_words_only(rows: int) -> None:
    model = columns_of_words(0, {"A": ["ash", "birch"], "B": ["one"]})
    feeds = {"A": np.full((rows, 1), "birch", object), "B": np.full((rows, 1), "one", object)}
    same(ours(model, feeds), [np.float32([[[0, 1, 1]]] * rows)])
    feeds["A"][-1] = "oak"
    with pytest.raises(IntarsiaError, match="'oak' is none of the 2 categories, and zeros is 0"):
        ours(model, feeds)


def test_words_indicated_behind_others() -> None:
    """Words that the model makes itself are numbered where they are."""
    nodes = [
        helper.make_node("LabelEncoder", ["X"], ["w"], domain=ML, keys_int64s=[1, 2], values_strings=["ash", "birch"]),
        helper.make_node("OneHotEncoder", ["w"], ["Y"], domain=ML, cats_strings=["birch", "ash", "oak"]),
    ]
    ends = [helper.make_tensor_value_info("X", INT, [None])], [helper.make_tensor_value_info("Y", F, None)]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)]
    model = helper.make_model(helper.make_graph(nodes, "behind", *ends), opset_imports=opsets, ir_version=9)
    same(ours(model, {"X": np.array([2, 1, 3])}), [np.float32([[1, 0, 0], [0, 1, 0], [0, 0, 0]])])


@both
@pytest.mark.parametrize("shape", [(3,), (1, 3)])
def test_words_picked_by_index(shape: tuple[int, ...], provider: str) -> None:
    index = np.array([[2], [0], [1], [2]])
    words = helper.make_tensor("words", S, shape, [b"ash", b"birch", b"cedar"])
    graph = helper.make_graph(
        [helper.make_node("ArrayFeatureExtractor", ["words", "I"], ["Y"], domain=ML)], "one",
        [helper.make_tensor_value_info("I", INT, [None, 1])], [helper.make_tensor_value_info("Y", S, None)], [words],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)], ir_version=9)
    same(ours(model, {"I": index}, provider), [np.array([["cedar", "ash", "birch", "cedar"]], object)])
    assert on_host(model) == ["Label"]
    with pytest.raises(IntarsiaError, match=r"out of (bounds|range)"):
        ours(model, {"I": index + 1}, provider)


@both
@pytest.mark.parametrize("labels", [["no", "yes"], ["only"], ["a", "b", "c"]], ids=len)
def test_linear_classifier_of_words(labels: list[str], provider: str) -> None:
    x = np.float32([[1, 2], [-3, 1], [0.5, -4]])
    sets = 3 if len(labels) == 3 else 1
    weights = np.float32([[1, 0.5], [-1, 2], [0.25, -1]])[:sets]
    model = model_of("LinearClassifier", {"X": x}, {"Y": S, "Z": F}, coefficients=weights.reshape(-1).tolist(),
                     intercepts=[0.1] * sets, classlabels_strings=labels)  # fmt: skip
    scores = x @ weights.T + np.float32(0.1)
    index = scores.argmax(1) if sets == 3 else (scores[:, 0] > 0).astype(int)
    names = ["0", "1"] if len(labels) == 1 else labels
    found, _ = ours(model, {"X": x}, provider)
    assert found.tolist() == [names[i] for i in index]
    assert on_host(model) == ["Label"]


@both
@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("words", [False, True])
def test_maps_of_any_number_of_classes(words: bool, count: int, provider: str) -> None:
    keys: list[Any] = list("abcde"[:count]) if words else [7, 3, 9, 1, 4][:count]
    x = np.random.default_rng(0).standard_normal((4, count)).astype(np.float32)
    kind = helper.make_map_type_proto(S if words else INT, helper.make_tensor_type_proto(F, []))
    labels = {"classlabels_strings" if words else "classlabels_int64s": keys}
    graph = helper.make_graph(
        [helper.make_node("ZipMap", ["X"], ["Z"], domain=ML, **labels)], "one",
        [helper.make_tensor_value_info("X", F, [None, count])],
        [helper.make_value_info("Z", helper.make_sequence_type_proto(kind))],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)], ir_version=9)
    ran = InferenceSession(model.SerializeToString(), providers=[provider])
    assert ran.run(None, {"X": x}) == [[dict(zip(keys, row, strict=True)) for row in x.tolist()]]


def test_trees_are_compiled() -> None:
    nodes = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0], "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [0, 1], "class_weights": [1.0, 1.0],
    }  # fmt: skip
    x = np.float32([[0, 0], [0, 1]])
    model = model_of("TreeEnsembleClassifier", {"X": x}, {"Y": INT, "Z": F}, classlabels_int64s=[4, 9], **nodes)
    assert on_host(model) == []
    same(ours(model, {"X": x}), [np.array([4, 9]), np.float32([[1, 0], [0, 1]])])
    model = model_of("TreeEnsembleClassifier", {"X": x}, {"Y": S, "Z": F}, classlabels_strings=["a", "b"], **nodes)
    assert on_host(model) == ["Label"]
    with pytest.raises(IntarsiaError, match="X has 1 features, but a node compares feature 1"):
        ours(model, {"X": x[:, :1]})


SVM = {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0]}


@both
def test_machine_of_words(provider: str) -> None:
    """Pairs of classes vote natively; only the words are looked up in Python."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, 2)).astype(np.float32)
    machine = {"support_vectors": rng.standard_normal(12).tolist(), "coefficients": rng.standard_normal(12).tolist(),
               "rho": [0.1, -0.2, 0.05], "vectors_per_class": [2, 1, 3]}  # fmt: skip
    plain = model_of("SVMClassifier", {"X": x}, {"Y": INT, "Z": F}, classlabels_ints=[7, 8, 9], **machine, **SVM)
    words = model_of("SVMClassifier", {"X": x}, {"Y": S, "Z": F}, classlabels_strings=["a", "b", "c"], **machine, **SVM)
    label, scores = ours(plain, {"X": x}, provider)
    found, same_scores = ours(words, {"X": x}, provider)
    assert found.tolist() == ["abc"[i - 7] for i in label]
    same([same_scores], [scores])
    assert on_host(plain) == []
    assert on_host(words) == ["Label"]


@pytest.mark.parametrize(("changes", "message"), [
    ({"rho": [0.1]}, "rho has 1 entries for 3 pairs of classes"),
    ({"vectors_per_class": [2, 1]}, "vectors_per_class has 2 entries for 3 classes"),
    ({"kernel_type": "NEAR"}, "kernel_type is 'NEAR'; expected LINEAR, POLY, RBF or SIGMOID"),
])  # fmt: skip
def test_machines_that_do_not_fit_say_why(changes: dict[str, Any], message: str) -> None:
    x = np.zeros((3, 2), np.float32)
    given = {"support_vectors": [0.0] * 12, "coefficients": [0.0] * 12, "rho": [0.1] * 3, "vectors_per_class": [2, 1, 3], **SVM}
    model = model_of("SVMClassifier", {"X": x}, {"Y": INT, "Z": F}, classlabels_ints=[7, 8, 9], **(given | changes))
    with pytest.raises(IntarsiaError, match=message):
        ours(model, {"X": x})


def test_machine_for_another_number_of_features() -> None:
    model = model_of("SVMRegressor", {"X": np.zeros((3, 2), np.float32)}, {"Y": F}, n_supports=2, coefficients=[1.0, 2.0],
                     support_vectors=[0.0] * 4, rho=[0.0], **SVM)  # fmt: skip
    assert on_host(model) == []
    with pytest.raises(IntarsiaError, match="the inner dimensions of a matrix product: got 3, expected 2"):
        ours(model, {"X": np.zeros((3, 3), np.float32)})
