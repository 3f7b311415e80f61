"""Operators of ai.onnx.ml against onnxruntime where it follows the specification, else against values worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ml_models import ML, model_of, ours, same
from onnx import TensorProto, helper, numpy_helper

from intarsia import InferenceSession
from intarsia.errors import IntarsiaError, InvalidGraph

F, D, INT, S = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING
X = np.array([[1, 2, -1], [-1, 0.5, 3], [0.2, -3, 0], [0, 0, 0], [2.5, 1, -0.5]], np.float32)
PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
both = pytest.mark.parametrize("provider", PROVIDERS)
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


def theirs(model: Any, feeds: dict[str, Any]) -> list[Any]:
    rt = pytest.importorskip("onnxruntime", reason="is the reference")
    rt.set_default_logger_severity(4)
    return rt.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)


# --- features ------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_binarizer(dtype: type, provider: str) -> None:
    x = (X * 2).astype(dtype)
    threshold = 0.7
    model = model_of("Binarizer", {"X": x}, {"Y": helper.np_dtype_to_tensor_dtype(x.dtype)}, threshold=threshold)
    same(ours(model, {"X": x}, provider), [(x > threshold).astype(dtype)])


@both
@pytest.mark.parametrize("op", [("Scaler", {"scale": [2.0, 0.5, 3.0], "offset": [1.0, 0.0, -1.0]}),
                                ("Scaler", {"scale": [2.0], "offset": [0.5]}),
                                ("Normalizer", {"norm": "MAX"}), ("Normalizer", {"norm": "L1"}),
                                ("Normalizer", {"norm": "L2"})], ids=str)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_scaled(op: tuple[str, dict[str, Any]], dtype: type, provider: str) -> None:
    x = np.round(X).astype(dtype)
    model = model_of(op[0], {"X": x}, {"Y": F}, **op[1])
    same(ours(model, {"X": x}, provider), theirs(model, {"X": x}))


@both
def test_imputer(provider: str) -> None:
    holes = np.where(X > 1, np.nan, X).astype(np.float32)
    model = model_of("Imputer", {"X": holes}, {"Y": F}, imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=np.nan)
    same(ours(model, {"X": holes}, provider), [np.where(np.isnan(holes), np.float32([7, 8, 9]), holes)])
    whole = X.astype(np.int64)
    model = model_of("Imputer", {"X": whole}, {"Y": INT}, imputed_value_int64s=[7], replaced_value_int64=0)
    same(ours(model, {"X": whole}, provider), [np.where(whole == 0, 7, whole)])


@both
def test_array_feature_extractor(provider: str) -> None:
    at = np.array([[2, 0]], np.int64)
    model = model_of("ArrayFeatureExtractor", {"X": X, "Y": at}, {"Z": F})
    same(ours(model, {"X": X, "Y": at}, provider), [X[:, [2, 0]]])
    words = np.array(["a", "b", "c"], object)
    model = model_of("ArrayFeatureExtractor", {"X": words, "Y": at}, {"Z": S})
    same(ours(model, {"X": words, "Y": at}, provider), [np.array([["c", "a"]], object)])


@both
def test_feature_vectorizer(provider: str) -> None:
    """An input wider than its entry in the attribute is cut, a narrower one padded; sizes known to the model or not."""
    feeds = {"a": X, "b": X[:, :2]}
    model = model_of("FeatureVectorizer", feeds, {"Y": F}, inputdimensions=[2, 3])
    expected = np.concatenate([X[:, :2], X[:, :2], np.zeros((5, 1), np.float32)], 1)
    same(ours(model, feeds, provider), [expected])
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[1].dim_value = feeds[value.name].shape[1]
    same(ours(model, feeds, provider), [expected])


# --- linear models and support vectors -----------------------------------------------------------------------------


@both
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("words", [False, True])
def test_linear_classifier(words: bool, transform: str, provider: str) -> None:
    labels: dict[str, Any] = {"classlabels_strings": ["x", "y", "z"]} if words else {"classlabels_ints": [4, 5, 9]}
    scale = 0.05 if transform == "PROBIT" else 1.0  # probit is for probabilities
    weights = {"coefficients": [scale * w for w in (1, 2, 3, -1, 0.5, 1, 0, 1, -2)], "intercepts": [0.5, 0.6, 0.4]}
    model = model_of(
        "LinearClassifier", {"X": X}, {"Y": S if words else INT, "Z": F}, post_transform=transform, **weights, **labels
    )
    same(ours(model, {"X": X}, provider), theirs(model, {"X": X}), rtol=1e-4, atol=1e-4)


@both
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_linear_classifier_of_one_score(transform: str, provider: str) -> None:
    """One set of coefficients for two classes: the second is chosen where the score is positive."""
    model = model_of("LinearClassifier", {"X": X}, {"Y": INT, "Z": F}, coefficients=[1.0, -0.5, 0.25], intercepts=[0.1],
                     classlabels_ints=[3, 8], post_transform=transform)  # fmt: skip
    same(ours(model, {"X": X}, provider), theirs(model, {"X": X}))


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_linear_regressor(dtype: type, provider: str) -> None:
    x = np.round(X).astype(dtype)
    model = model_of(
        "LinearRegressor", {"X": x}, {"Y": F}, coefficients=[1.0, 2, 3, -1, 0.5, 1], intercepts=[1.0, -2], targets=2
    )
    weights = np.array([[1, 2, 3], [-1, 0.5, 1]])
    same(ours(model, {"X": x}, provider), [(x @ weights.T + [1, -2]).astype(np.float32)])


KERNELS = [("LINEAR", [0.0, 0, 0]), ("POLY", [0.5, 1.0, 3]), ("RBF", [0.3, 0, 0]), ("SIGMOID", [0.2, 0.1, 0])]


@both
@pytest.mark.parametrize(("kernel", "params"), KERNELS, ids=str)
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor(one_class: int, kernel: str, params: list[float], provider: str) -> None:
    attributes = {"kernel_type": kernel, "kernel_params": params, "n_supports": 2, "coefficients": [0.7, -0.4], "rho": [0.2],
                  "support_vectors": [1.0, 0, -1, 0.5, 2, 0.25], "one_class": one_class}  # fmt: skip
    model = model_of("SVMRegressor", {"X": X}, {"Y": F}, **attributes)
    same(ours(model, {"X": X}, provider), theirs(model, {"X": X}), rtol=1e-4, atol=1e-5)


def svm(classes: int, transform: str, probabilities: bool) -> dict[str, Any]:
    rng = np.random.default_rng(classes)
    pairs = classes * (classes - 1) // 2
    counts = list(range(2, 2 + classes))
    total = sum(counts)
    found = {
        "vectors_per_class": counts, "support_vectors": rng.normal(size=total * 3).tolist(), "kernel_type": "RBF",
        "coefficients": rng.normal(size=(classes - 1) * total).tolist(), "rho": (0.1 * rng.normal(size=pairs)).tolist(),
        "kernel_params": [0.4, 0.0, 0.0], "classlabels_ints": [10 * i for i in range(classes)], "post_transform": transform,
    }  # fmt: skip
    if probabilities:
        found |= {"prob_a": (-1 - rng.random(pairs)).tolist(), "prob_b": (0.1 * rng.normal(size=pairs)).tolist()}
    return found


@both
@pytest.mark.parametrize(("classes", "transform", "probabilities"), [
    (2, "NONE", True), (2, "NONE", False), (3, "NONE", True), (3, "NONE", False), (3, "SOFTMAX", False), (5, "NONE", True),
])  # fmt: skip
def test_svm_classifier(classes: int, transform: str, probabilities: bool, provider: str) -> None:
    model = model_of("SVMClassifier", {"X": X}, {"Y": INT, "Z": F}, **svm(classes, transform, probabilities))
    same(ours(model, {"X": X}, provider), theirs(model, {"X": X}), rtol=1e-3, atol=1e-4)


@both
def test_svm_classifier_without_support_vectors(provider: str) -> None:
    model = model_of("SVMClassifier", {"X": X}, {"Y": INT, "Z": F}, coefficients=[1.0, 2, 3, -1, 0.5, 1, 0, 1, -2], rho=[0.25],
                     classlabels_ints=[4, 5, 9], kernel_params=[0.0, 0.0, 0.0])  # fmt: skip
    same(ours(model, {"X": X}, provider), theirs(model, {"X": X}))


# --- categories and maps -------------------------------------------------------------------------------------------

WORDS = np.array([["b", "a"], ["zebra", "b"]], object)
NUMBERS = np.array([[5, 7], [6, 99]], np.int64)


@both
@pytest.mark.parametrize(("x", "attributes", "expected"), [
    (WORDS, {"keys_strings": ["a", "b"], "values_int64s": [1, 2]}, np.array([[2, 1], [-1, 2]])),
    (WORDS, {"keys_strings": ["a", "b"], "values_floats": [1.0, 2.0], "default_float": 9.0}, np.float32([[2, 1], [9, 2]])),
    (NUMBERS, {"keys_int64s": [7, 5, 6], "values_strings": ["x", "y", "z"]}, np.array([["y", "x"], ["z", "_Unused"]])),
    (NUMBERS, {"keys_int64s": [7, 5, 7], "values_int64s": [1, 2, 3]}, np.array([[2, 3], [-1, -1]])),
    (np.float32([np.nan, 0.5, 1]), {"keys_floats": [0.5, float("nan")], "values_int64s": [1, 2]}, np.array([2, 1, -1])),
], ids=["words", "floats", "numbers", "repeated", "nan"])  # fmt: skip
def test_label_encoder(x: np.ndarray, attributes: dict[str, Any], expected: np.ndarray, provider: str) -> None:
    kind = {"i": INT, "f": F, "U": S}[expected.dtype.kind]
    for version in (2, 4):
        same(
            ours(model_of("LabelEncoder", {"X": x}, {"Y": kind}, version=version, **attributes), {"X": x}, provider), [expected]
        )


@both
def test_label_encoder_of_tensors(provider: str) -> None:
    x = np.array([1, 2, 3], np.int16)
    attributes = {"keys_tensor": numpy_helper.from_array(np.array([3, 1], np.int16)),
                  "values_tensor": numpy_helper.from_array(np.array([0.25, 0.5])),
                  "default_tensor": numpy_helper.from_array(np.array([7.0]))}  # fmt: skip
    model = model_of("LabelEncoder", {"X": x}, {"Y": D}, version=4, **attributes)
    same(ours(model, {"X": x}, provider), [np.array([0.5, 7.0, 0.25])])


@both
def test_label_encoder_1_and_category_mapper(provider: str) -> None:
    model = model_of("LabelEncoder", {"X": WORDS}, {"Y": INT}, version=1, classes_strings=["a", "b"])
    same(ours(model, {"X": WORDS}, provider), [np.array([[1, 0], [-1, 1]])])
    for x, kind in ((WORDS, INT), (NUMBERS, S)):
        model = model_of("CategoryMapper", {"X": x}, {"Y": kind}, cats_strings=["a", "b"], cats_int64s=[5, 6])
        same(ours(model, {"X": x}, provider), theirs(model, {"X": x}))


@both
def test_one_hot_encoder(provider: str) -> None:
    for x, attributes in (
        (WORDS, {"cats_strings": ["a", "b", "c"]}), (NUMBERS, {"cats_int64s": [7, 5]}), (X, {"cats_int64s": [0, 1, -1]}),
    ):  # fmt: skip
        model = model_of("OneHotEncoder", {"X": x}, {"Y": F}, **attributes)
        same(ours(model, {"X": x}, provider), theirs(model, {"X": x}))


def typed(op: str, kind: Any, outputs: dict[str, int], **attributes: Any) -> bytes:
    """A model whose one input is of the type `kind` (a TypeProto)."""
    graph = helper.make_graph(
        [helper.make_node(op, ["X"], list(outputs), domain=ML, **attributes)], "one", [helper.make_value_info("X", kind)],
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)], ir_version=9)
    return bytes(proto.SerializeToString())


def map_of(key: int, value: int) -> Any:
    return helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, []))


@both
def test_dict_vectorizer(provider: str) -> None:
    words = typed("DictVectorizer", map_of(S, F), {"Y": F}, string_vocabulary=["a", "c", "b", "z"])
    same(InferenceSession(words, providers=[provider]).run(None, {"X": {"a": 4.0, "c": 8.0}}), [np.float32([[4, 8, 0, 0]])])
    twice = typed("DictVectorizer", map_of(S, F), {"Y": F}, string_vocabulary=["a", "c", "a"])
    same(InferenceSession(twice, providers=[provider]).run(None, {"X": {"a": 4.0}}), [np.float32([[4, 0, 4]])])
    wide = typed("DictVectorizer", map_of(INT, D), {"Y": D}, int64_vocabulary=[3, 1])
    same(InferenceSession(wide, providers=[provider]).run(None, {"X": {1: 0.1}}), [np.array([[0, 0.1]])])


@both
def test_cast_map(provider: str) -> None:
    for attributes, expected in (
        ({}, np.float32([[0.5, 2.5]])), ({"cast_to": "TO_INT64"}, np.array([[0, 2]])),
        ({"map_form": "SPARSE", "max_map": 4}, np.float32([[0, 0.5, 0, 2.5]])),
        ({"cast_to": "TO_STRING"}, np.array([["0.500000", "2.500000"]])),
    ):  # fmt: skip
        kind = {"f": F, "i": INT, "U": S}[expected.dtype.kind]
        model = typed("CastMap", map_of(INT, F), {"Y": kind}, **attributes)
        same(InferenceSession(model, providers=[provider]).run(None, {"X": {3: 2.5, 1: 0.5}}), [expected])


@both
def test_keys_without_a_place(provider: str) -> None:
    """Keys that the vocabulary lacks, or beyond the end of a sparse map, are left out, as scikit-learn's `transform` does."""
    words = typed("DictVectorizer", map_of(S, F), {"Y": F}, string_vocabulary=["a", "b", "c"])
    session = InferenceSession(words, providers=[provider])
    for feed, expected in (({"a": 1.0, "unseen": 5.0}, [1, 0, 0]), ({"": 2.0, "C": 1.0}, [0, 0, 0]), ({}, [0, 0, 0])):
        same(session.run(None, {"X": feed}), [np.float32([expected])])
    numbers = typed("DictVectorizer", map_of(INT, S), {"Y": S}, int64_vocabulary=[3, 1])
    same(InferenceSession(numbers, providers=[provider]).run(None, {"X": {1: "x", 4: "y"}}), [np.array([["", "x"]])])
    sparse = typed("CastMap", map_of(INT, F), {"Y": F}, map_form="SPARSE", max_map=3)
    same(InferenceSession(sparse, providers=[provider]).run(None, {"X": {9: 2.5, 1: 0.5, 3: 4.0}}), [np.float32([[0, 0.5, 0]])])


@both
def test_cast_map_of_numbers_that_no_integer_holds(provider: str) -> None:
    """As Cast has it: the lowest integer."""
    model = typed("CastMap", map_of(INT, F), {"Y": INT}, cast_to="TO_INT64")
    feed = {0: 1.9, 1: -2.9, 2: float("nan"), 3: 1e20, 4: float("-inf")}
    lowest = np.iinfo(np.int64).min
    same(InferenceSession(model, providers=[provider]).run(None, {"X": feed}), [np.array([[1, -2, lowest, lowest, lowest]])])


@both
def test_zip_map(provider: str) -> None:
    graph = helper.make_graph(
        [helper.make_node("ZipMap", ["X"], ["Z"], domain=ML, classlabels_strings=["a", "b", "c"])], "one",
        [helper.make_tensor_value_info("X", F, [None, 3])],
        [helper.make_value_info("Z", helper.make_sequence_type_proto(map_of(S, F)))],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)], ir_version=9)
    session = InferenceSession(model.SerializeToString(), providers=[provider])
    assert session.get_outputs()[0].type == "seq(map(string,tensor(float)))"
    assert session.run(None, {"X": X[:2]}) == [[{"a": 1.0, "b": 2.0, "c": -1.0}, {"a": -1.0, "b": 0.5, "c": 3.0}]]


# --- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("op", "attributes", "message"), [
    ("Normalizer", {"norm": "L3"}, "norm is 'L3'; expected MAX, L1 or L2"),
    ("Scaler", {"scale": [1.0, 2.0]}, "scale has 2 values; expected 1, or one for each of 3 features"),
    ("Imputer", {}, "imputed_value_floats is missing"),
    ("FeatureVectorizer", {"inputdimensions": [1, 2]}, "inputdimensions has 2 entries for 1 inputs"),
    ("LinearRegressor", {}, "coefficients are missing"),
    ("LinearRegressor", {"coefficients": [1.0, 2.0]}, "2 coefficients do not fit 1 targets of 3 features"),
    ("LinearRegressor", {"coefficients": [1.0] * 3, "intercepts": [1.0] * 2}, "2 intercepts are given for 1 targets"),
    ("LinearRegressor", {"coefficients": [1.0] * 3, "post_transform": "TANH"}, "post_transform is 'TANH'; expected NONE"),
    ("LinearClassifier", {"coefficients": [1.0] * 3}, "either integers or strings, but neither is given"),
    ("LinearClassifier", {"coefficients": [1.0] * 6, "classlabels_ints": [1, 2, 3]}, "for 2 classes, labels for 3"),
    ("SVMRegressor", {"coefficients": [1.0] * 3, "kernel_type": "COSINE", "n_supports": 1, "support_vectors": [1.0] * 3},
     "kernel_type is 'COSINE'"),
    ("SVMRegressor", {}, "coefficients has 0 values"),
    ("SVMRegressor", {"coefficients": [1.0] * 4, "n_supports": 2, "support_vectors": [1.0] * 6},
     "coefficients has 4 values; expected 2"),
])  # fmt: skip
def test_definition_errors(op: str, attributes: dict[str, Any], message: str) -> None:
    model = model_of(op, {"X": X}, {"Y": F}, **attributes)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3
    with pytest.raises(InvalidGraph, match=message):
        ours(model, {"X": X})


@pytest.mark.parametrize(("op", "x", "attributes", "message"), [
    ("SVMClassifier", X, {"classlabels_ints": [1, 2]}, "coefficients and rho are needed"),
    ("SVMClassifier", X, {**svm(3, "NONE", False), "vectors_per_class": [2, 3]}, "vectors_per_class has 2 entries for 3"),
    ("SVMClassifier", X, {**svm(3, "NONE", False), "rho": [0.0]}, "rho has 1 entries for 3 pairs"),
    ("SVMClassifier", X, {**svm(3, "NONE", False), "coefficients": [1.0]}, "coefficients has 1 values for .* of 3 classes"),
    ("SVMClassifier", X, {**svm(3, "NONE", False), "vectors_per_class": [-1, 4, 2]}, r"\[-1, 4, 2\]; expected counts"),
    ("SVMClassifier", X, {**svm(3, "NONE", False), "prob_a": [1.0], "prob_b": [1.0, 2.0]}, "prob_a has 1 and prob_b 2 values"),
    ("TreeEnsembleRegressor", X, {"n_targets": 2**62}, "n_targets is 4611686018427387904; expected 1 to 2147483647"),
    ("TreeEnsembleRegressor", X, {"n_targets": -1}, "n_targets is -1; expected 1 to 2147483647"),
    ("LabelEncoder", NUMBERS, {"keys_int64s": [1], "values_int64s": [1, 2]}, r"keys_\* has 1 elements and values_\* 2"),
    ("LabelEncoder", NUMBERS, {"values_int64s": [1, 2]}, r"expected exactly one of keys_\*, got none"),
    ("CategoryMapper", NUMBERS, {"cats_int64s": [1]}, "cats_int64s has 1 elements and cats_strings 0"),
    ("OneHotEncoder", NUMBERS, {"cats_int64s": [5], "zeros": 0}, "7 is none of the 1 categories, and zeros is 0"),
    ("OneHotEncoder", NUMBERS, {"cats_strings": ["a"]}, "X holds numbers, the categories do not"),
    ("OneHotEncoder", NUMBERS, {}, "exactly one of cats_int64s and cats_strings"),
    ("ZipMap", X, {"classlabels_int64s": [1, 2]}, r"X has shape \[5, 3\]; expected 2 columns"),
])  # fmt: skip
def test_run_errors(op: str, x: np.ndarray, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(IntarsiaError, match=message):
        ours(model_of(op, {"X": x}, {"Y": TensorProto.UNDEFINED}, **attributes), {"X": x})


GRAMS: dict[str, Any] = {
    "max_gram_length": 1, "max_skip_count": 0, "min_gram_length": 1, "mode": "TF", "ngram_counts": [0], "ngram_indexes": [0],
    "pool_int64s": [5],
}  # fmt: skip


@both
@pytest.mark.parametrize(("op", "x", "attributes", "message"), [
    ("SVMClassifier", X, {"classlabels_ints": [1, 2]}, "coefficients and rho are needed"),
    ("SVMClassifier", X, {**svm(3, "NONE", False), "vectors_per_class": [2, 3]}, "vectors_per_class has 2 entries for 3"),
    ("SVMClassifier", X, {**svm(3, "NONE", False), "prob_a": [1.0], "prob_b": [1.0, 2.0]}, "prob_a has 1 and prob_b 2 values"),
    ("TfIdfVectorizer", NUMBERS, GRAMS | {"mode": "BM25"}, "mode is 'BM25'; expected TF, IDF or TFIDF"),
    ("TfIdfVectorizer", NUMBERS, GRAMS | {"weights": [1.0] * 3}, "3 weights; expected one for each of 1 ngram_indexes"),
    ("TfIdfVectorizer", NUMBERS, GRAMS | {"ngram_indexes": [-5]}, "1 ngram_indexes from -5 on; expected one of at least 0"),
])  # fmt: skip
def test_attributes_of_inputs_without_a_type(
    op: str, x: np.ndarray, attributes: dict[str, Any], message: str, provider: str
) -> None:
    """Types are inferred where they are known: the run looks at the attributes where they are not."""
    model = model_of(op, {"X": x}, {"Y": TensorProto.UNDEFINED}, **attributes)
    model.graph.input[0].type.Clear()
    model.graph.node[0].domain = "" if op == "TfIdfVectorizer" else model.graph.node[0].domain
    with pytest.raises(IntarsiaError, match=message):
        ours(model, {"X": x}, provider)


@pytest.mark.parametrize(("op", "kind", "attributes", "feed", "message"), [
    ("CastMap", (INT, F), {"cast_to": "TO_BOOL"}, {1: 1.0}, "cast_to is 'TO_BOOL'"),
    ("CastMap", (INT, F), {"map_form": "LOOSE"}, {1: 1.0}, "map_form is 'LOOSE'"),
    ("CastMap", (INT, F), {"map_form": "SPARSE", "max_map": 2}, {-2: 1.0}, "map has the key -2; expected keys of 0 or more"),
    ("DictVectorizer", (S, F), {}, {"b": 1.0}, "exactly one of int64_vocabulary and string_vocabulary"),
])  # fmt: skip
def test_map_errors(op: str, kind: tuple[int, int], attributes: dict[str, Any], feed: Any, message: str) -> None:
    with pytest.raises(IntarsiaError, match=message):
        InferenceSession(typed(op, map_of(*kind), {"Y": F}, **attributes)).run(None, {"X": feed})
