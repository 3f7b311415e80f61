"""Nodes that are not what their operator's schema says: refused when the model is loaded, or when a run knows their types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort
from intarsia.errors import IntarsiaError, InvalidGraph, NodeFailed, UnknownOperator
from intarsia.primitives.lang import DefinitionError

CPU, REFERENCE = "CPUExecutionProvider", "ReferenceExecutionProvider"
CONTRIB = "com.microsoft"
F, D, H, I8, U8, I32, I64 = np.float32, np.float64, np.float16, np.int8, np.uint8, np.int32, np.int64
EIGHT = numpy_helper.from_array(np.arange(64, dtype=F).reshape(8, 8) / 64, "w")
FLOATS, BYTES = np.ones((8, 8), F), np.ones((8, 8), I8)


@pytest.fixture(params=[CPU, REFERENCE])
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def value(name: str, kind: int | None = TensorProto.FLOAT, shape: Sequence[Any] | None = None) -> onnx.ValueInfoProto:
    """A value of a tensor type; `kind` None: of no type."""
    return onnx.ValueInfoProto(name=name) if kind is None else helper.make_tensor_value_info(name, kind, shape)


def model_of(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[Any], constants: Sequence[Any] = (), declared: Sequence[Any] = (),
    functions: Sequence[Any] = (), opset: int = 21,
) -> bytes:  # fmt: skip
    graph = helper.make_graph(nodes, "g", inputs, [value("y", None)], constants, value_info=declared)
    domains = {"": opset, CONTRIB: 1, "ai.onnx.ml": 4, "own": 1, "intarsia.channels_last": 22}
    opsets = [helper.make_opsetid(d, v) for d, v in domains.items()]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10).SerializeToString()


def one(op: str, operands: Sequence[Any], domain: str = "", opset: int = 21, outputs: int = 1, **attributes: Any) -> bytes:
    """A node 'here' whose inputs are of the operands' types, with sizes that only a run knows ("": left out)."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(operands)]
    inputs = [
        value(n, helper.np_dtype_to_tensor_dtype(x.dtype), [f"{n}{a}" for a in range(x.ndim)])
        for n, x in zip(names, operands, strict=True)
        if n
    ]
    results = ["y", *(f"y{i}" for i in range(1, outputs))][:outputs]
    node = helper.make_node(op, names, results, "here", domain=domain, **attributes)
    return model_of([node], inputs, opset=opset)


def refused(model: bytes, message: str, provider: str = CPU, error: type[Exception] = InvalidGraph, **keywords: Any) -> None:
    with pytest.raises(error, match=message) as caught:
        ort.InferenceSession(model, providers=[provider], **keywords)
    assert caught.value.__cause__ is None or isinstance(caught.value.__cause__, (DefinitionError, IntarsiaError))


def zeros(*shape: int, dtype: Any = F) -> np.ndarray:
    return np.zeros(shape, dtype)


MIXED: list[tuple[str, str, str, dict[str, Any]]] = [  # operator; operands; what is said; attributes
    ("Conv", "float[1,64,8,8] double[64,64,3,3]", "1 is double where 0 is float: T", {}),
    ("Conv", "float[1,1,4,4] float[1,1,3,3] float16[1]", "2 is float16 where 0 is float: T", {}),
    ("ConvTranspose", "float[1,1,3,3] float16[1,2,3,3]", "1 is float16 where 0 is float: T", {}),
    ("ConvInteger", "uint8[1,1,3,3] int8[1,1,2,2] int8[]", "2 is int8 where 0 is uint8: T1", {}),
    ("DeformConv", "float[1,1,4,4] float[1,1,2,2] double[1,8,3,3]", "2 is double where 0 is float: T", {}),
    ("MatMul", "float[3,4] double[4,3]", "1 is double where 0 is float: T", {}),
    ("MatMul", "int32[3,4] int64[4,3]", "1 is int64 where 0 is int32: T", {}),
    ("MatMul", "float[3,4] int8[4,3]", "1 is int8; expected", {}),
    ("MatMulInteger", "uint8[3,4] int8[4,3] int8[]", "2 is int8 where 0 is uint8: T1", {}),
    ("Gemm", "float[3,4] float[4,3] double[3]", "2 is double where 0 is float: T", {}),
    ("Einsum", "float[3,4] uint32[4,3]", "1 is uint32 where 0 is float: T", {"equation": "ij,jk->ik"}),
    ("RNN", "float[2,3,2] float[1,4,2] double[1,4,4]", "2 is double where 0 is float: T", {"hidden_size": 4}),
    ("LSTM", "float[2,3,2] float16[1,16,2] float[1,16,4]", "1 is float16 where 0 is float: T", {"hidden_size": 4}),
    ("GRU", "float[2,3,2] float[1,12,2] double[1,12,4]", "2 is double where 0 is float: T", {"hidden_size": 4}),
    ("Pad", "float[2,3] int64[4] double[]", "2 is double where 0 is float: T", {}),
    ("ScatterElements", "int8[3,3] int64[1,3] float[1,3]", "2 is float where 0 is int8: T", {}),
    ("ScatterND", "float[3,3] int64[1,1] int32[1,3]", "2 is int32 where 0 is float: T", {}),
    ("TensorScatter", "float[1,1,4,2] float16[1,1,1,2]", "1 is float16 where 0 is float: T", {"opset": 24}),
    ("Where", "bool[2] float[2] double[2]", "2 is double where 1 is float: T", {}),
    ("Concat", "float[2] float[2] double[2]", "2 is double where 0 is float: T", {"axis": 0}),
    ("Max", "float[2] double[2]", "1 is double where 0 is float: T", {}),
    ("GridSample", "float[1,1,4,4] int32[1,2,2,2]", "1 is int32; expected", {}),
    ("LayerNormalization", "float[2,4] double[4]", "1 is double where 0 is float: T", {}),
    ("GroupNormalization", "float[1,4,2] float16[4] float[4]", "1 is float16 where 0 is float: T", {"num_groups": 2}),
    ("Attention", "float[1,1,2,4] float16[1,1,2,4] float[1,1,2,4]", "1 is float16 where 0 is float: T1", {"opset": 23}),
    ("DequantizeLinear", "uint8[4] float[] int8[]", "2 is int8 where 0 is uint8: T1", {}),
    (
        "QLinearMatMul", "uint8[2,2] float[] int8[] uint8[2,2] float[] uint8[] float[] uint8[]",
        "2 is int8 where 0 is uint8: T1", {},
    ),
    ("Range", "float[] double[] float[]", "1 is double where 0 is float: T", {}),
    ("com.microsoft::FusedConv", "float[1,1,4,4] float16[1,1,3,3]", "1 is float16 where 0 is float: T", {}),
    ("com.microsoft::FusedMatMul", "float[3,4] double[4,3]", "1 is double where 0 is float: T", {}),
    ("com.microsoft::FusedGemm", "float[3,4] double[4,3]", "1 is double where 0 is float: T", {}),
    ("com.microsoft::NhwcFusedConv", "float16[1,4,4,8] float[8,3,3,8]", "1 is float", {}),
    ("com.microsoft::Attention", "float[1,2,4] float16[4,12]", "1 is float16 where 0 is float: T", {"num_heads": 2}),
    (
        "com.microsoft::MultiHeadAttention", "float[1,2,4] float16[1,2,4] float[1,2,4]", "1 is float16 where 0 is float: T",
        {"num_heads": 2},
    ),
    ("com.microsoft::SkipLayerNormalization", "float[1,2,4] float16[1,2,4] float[4]", "1 is float16 where 0 is float: T", {}),
    (
        "com.microsoft::MatMulNBits", "float[2,32] uint8[8,1,16] float16[8]", "2 is float16 where 0 is float: T1",
        {"K": 32, "N": 8, "bits": 4, "block_size": 32},
    ),
    ("com.microsoft::GatherBlockQuantized", "uint8[4,32] int64[2] float[4,1] uint16[4,1]", "3 is uint16; expected", {}),
    (
        "com.microsoft::QLinearAdd", "uint8[2] float[] uint8[] int8[2] float[] uint8[] float[]",
        "3 is int8 where 0 is uint8: T",
        {},
    ),
    ("ai.onnx.ml::SVMRegressor", "float16[1,2]", "0 is float16; expected", {}),
]  # fmt: skip


def operands_of(text: str) -> list[np.ndarray]:
    found = []
    for word in text.split():
        name, _, sizes = word.removesuffix("]").partition("[")
        dtype = np.dtype({"float": "float32", "double": "float64"}.get(name, name))
        found.append(np.zeros([int(n) for n in sizes.split(",") if n], dtype))
    return found


@pytest.mark.parametrize(("op", "operands", "message", "attributes"), MIXED, ids=[f"{c[0]}-{c[1]}" for c in MIXED])
def test_operands_of_one_variable_have_one_type(
    op: str, operands: str, message: str, attributes: dict[str, Any], provider: str
) -> None:
    domain, _, name = op.rpartition("::")
    words = {a: v for a, v in attributes.items() if a != "opset"}
    model = one(name, operands_of(operands), domain, attributes.get("opset", 21), **words)
    said = re.sub(r"\b(\d) is", r"input \1 'x\1' is", message) + (" must be one type" if ": T" in message else "")
    refused(model, rf"node 'here' \({op}\): {said}", provider)


@pytest.mark.parametrize("channels", [64, 1024])
def test_bytes_as_weights_of_a_convolution(channels: int) -> None:
    """Its kernel would read four times as many bytes as there are."""
    weights = numpy_helper.from_array(np.zeros((channels, channels, 3, 3), I8), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], "here")
    refused(model_of([node], [value("x", 1, [1, channels, 8, 8])], [weights]), "input 1 'w' is int8; expected")


TENSOR = helper.make_tensor_type_proto(TensorProto.FLOAT16, [3])
ONNXRUNTIMES_TYPES = [(TENSOR, "tensor(float16)"), (helper.make_sequence_type_proto(TENSOR), "seq(tensor(float16))")]


@pytest.mark.parametrize(("kind", "word"), ONNXRUNTIMES_TYPES, ids=["tensor", "sequence"])
def test_onnxruntimes_sentence_of_a_wrong_type(kind: Any, word: str) -> None:
    """onnxruntime's own tests of quantised models in float16 look for it."""
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"], "here")
    message = f"(Type '{word}' of input parameter (x) of operator (DynamicQuantizeLinear) in node (here) is invalid.)"
    refused(model_of([node], [helper.make_value_info("x", kind)]), re.escape(message))


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"])
def test_every_level_of_optimisation(level: str) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    model = one("MatMul", operands_of("float[3,4] double[4,3]"))
    refused(model, "input 1 'x1' is double where input 0 'x0' is float: T must be one type", sess_options=options)


def test_a_sparse_tensor_where_a_tensor_belongs() -> None:
    sparse = helper.make_value_info("x", helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [8, 8]))
    product = helper.make_node("MatMul", ["x", "w"], ["y"], "here")
    message = r"input 0 'x' is a sparse tensor, sparse_tensor\(float\); expected a tensor"
    refused(model_of([product], [sparse], [EIGHT]), message)


@pytest.mark.parametrize(
    ("op", "constants", "attributes"),
    [
        ("LogSoftmax", [], {}), ("Softmax", [], {}), ("Relu", [], {}), ("DequantizeLinear", [zeros()], {}),
        ("QuantizeLinear", [zeros()], {}), ("Reshape", [np.int64([2])], {}), ("Conv", [zeros(1, 1, 3, 3)], {}),
        ("LSTM", [zeros(1, 16, 2), zeros(1, 16, 4)], {"hidden_size": 4}), ("NonZero", [], {}), ("Shape", [], {}),
        ("TopK", [np.int64([1])], {}), ("StringNormalizer", [], {}), ("If", [], {}),
    ],
)  # fmt: skip
def test_a_sequence_where_a_tensor_belongs(op: str, constants: list[Any], attributes: dict[str, Any]) -> None:
    if op == "If":
        branch = helper.make_graph([helper.make_node("Identity", ["x"], ["b"])], "b", [], [value("b", None)])
        attributes = {"then_branch": branch, "else_branch": branch}
    made = [numpy_helper.from_array(x, f"k{i}") for i, x in enumerate(constants)]
    outputs = ["y", "z"] if op == "TopK" else ["y"]
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["q"]),
        helper.make_node(op, ["q", *(t.name for t in made)], outputs, "here", **attributes),
    ]
    message = rf"'here' \({op}\): input 0 'q' is a sequence, seq\(float\); expected"
    refused(model_of(nodes, [value("x", 1, [2, 3])], made), message)


@pytest.mark.parametrize(
    ("op", "inputs", "message"),
    [
        ("SequenceAt", ["x", "i"], "input 0 'x' is float; expected a sequence"),
        ("SequenceLength", ["x"], "input 0 'x' is float; expected a sequence"),
        ("ConcatFromSequence", ["x"], "input 0 'x' is float; expected a sequence"),
        ("ZipMap", ["q"], r"input 0 'q' is a sequence, seq\(float\); expected a tensor of float"),
        ("DictVectorizer", ["x"], r"input 0 'x' is float; expected a map|input 0 'x' is float; expected map"),
        ("SequenceInsert", ["q", "i"], r"tensor\(float\) here is tensor\(int64\) there"),
    ],
)
def test_kinds_of_values(op: str, inputs: list[str], message: str) -> None:
    classical = {"ZipMap": {"classlabels_int64s": [1]}, "DictVectorizer": {"string_vocabulary": ["a"]}}
    words: dict[str, Any] = {"ConcatFromSequence": {"axis": 0}, **classical}
    domain = "ai.onnx.ml" if op in classical else ""
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["q"]),
        helper.make_node(op, inputs, ["y"], "here", domain=domain, **words.get(op, {})),
    ]
    refused(model_of(nodes, [value("x", 1, [2, 3]), value("i", 7, [])]), message)


def of_map(key: int = 0, element: int | None = None) -> onnx.ValueInfoProto:
    """An input `m` of a map's type, of which the model leaves open what is not given."""
    made = onnx.ValueInfoProto(name="m")
    made.type.map_type.key_type = key
    if element is not None:
        made.type.map_type.value_type.tensor_type.elem_type = element
    return made


def of_sequence() -> onnx.ValueInfoProto:
    """An input `m` of a sequence's type that does not say of what."""
    made = onnx.ValueInfoProto(name="m")
    made.type.sequence_type.SetInParent()
    return made


OPEN = {"map": of_map(), "map of int64": of_map(7), "map of int64 to tensors": of_map(7, 0), "sequence": of_sequence()}


@pytest.mark.parametrize("kind", OPEN)
@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Relu", {}), ("Softmax", {}), ("NonZero", {}), ("ArrayFeatureExtractor", {}), ("Binarizer", {}), ("Normalizer", {}),
        ("Scaler", {"offset": [0.0], "scale": [1.0]}), ("Imputer", {"imputed_value_floats": [0.0]}),
        ("LinearRegressor", {"coefficients": [1.0]}), ("LinearClassifier", {"coefficients": [1.0], "classlabels_ints": [0]}),
        ("OneHotEncoder", {"cats_int64s": [1]}), ("LabelEncoder", {"keys_int64s": [1], "values_int64s": [2]}),
    ],
)  # fmt: skip
def test_maps_and_sequences_of_what_the_model_does_not_say(op: str, attributes: dict[str, Any], kind: str) -> None:
    domain = "" if op in ("Relu", "Softmax", "NonZero") else "ai.onnx.ml"
    nodes = [helper.make_node(op, ["m"] + ["i"] * (op == "ArrayFeatureExtractor"), ["y"], "here", domain=domain, **attributes)]
    message = rf"'here' \([\w.:]*{op}\): input 0 'm' is a (map|sequence), (map|seq)\([\w,?]+\); expected a tensor"
    refused(model_of(nodes, [OPEN[kind], value("i", 7, [1])]), message)


@pytest.mark.parametrize("inputs", [[], [""]], ids=["none", "left out"])
@pytest.mark.parametrize(("op", "opset"), [("Identity", 21), ("Identity", 1), ("OptionalHasElement", 15), ("Relu", 21)])
def test_a_first_input_that_is_missing(op: str, opset: int, inputs: list[str]) -> None:
    """Definitions that take None for an empty optional are no reason to take a node without an input."""
    refused(model_of([helper.make_node(op, inputs, ["y"], "here")], [], opset=opset), r"required input '\w+' is missing")


def test_an_identity_of_nothing_in_a_body() -> None:
    nodes = [helper.make_node("Identity", [], ["go"], "inner"), helper.make_node("Add", ["v", "v"], ["b"])]
    body = helper.make_graph(nodes, "body", [*HEAD, value("v", 1, [2])], [value("go", 9, []), value("b", 1, [2])])
    model = model_of([helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)], [value("n", 7, []), value("x", 1, [2])])
    refused(model, r"'inner' \(Identity\): required input 'input' is missing")


BODY = [helper.make_node("MatMul", ["v", "w"], ["b"], "inner")]
INNER = r"node '(here/)?inner' \(MatMul\): input 1 'w' is float where input 0 '[\w.]+' is double: T must be one type"


def _body(inputs: Sequence[Any], head: Sequence[Any] = ()) -> Any:
    nodes = [helper.make_node("Identity", ["c"], ["going"])] if head else []
    outputs = [value("going", 9, [])] if head else []
    return helper.make_graph([*nodes, *BODY], "body", [*head, *inputs], [*outputs, value("b", None)])


HEAD = (value("i", 7, []), value("c", 9, []))


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Loop", ["n", "", "v"], ["y"], "here", body=_body([value("u", None)], HEAD)),
        helper.make_node("Scan", ["v3"], ["y"], "here", body=_body([value("v", None)]), num_scan_inputs=1),
        helper.make_node("If", ["p"], ["y"], "here", then_branch=_body([]), else_branch=_body([])),
        helper.make_node("own_function", ["v", "w"], ["y"], "here", domain="own"),
    ],
    ids=lambda node: node.op_type,
)
def test_bodies_and_functions(node: Any, provider: str) -> None:
    function = helper.make_function("own", "own_function", ["v", "w"], ["b"], BODY, [helper.make_opsetid("", 21)])
    inputs = [value("n", 7, []), value("p", 9, []), value("v", 11, [8, 8]), value("v3", 11, [2, 8, 8])]
    refused(model_of([node], inputs, [EIGHT], functions=[function]), INNER, provider)


# --- numbers of inputs and outputs, attributes ------------------------------------------------------------------------


TENSOR = numpy_helper.from_array(np.int64([1, 0]))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (one("Relu", [FLOATS, FLOATS]), "takes at most 1 inputs, got 2"),
        (one("MatMul", [FLOATS]), "required input 'B' is missing"),
        (one("MatMul", [None, FLOATS]), "required input 'A' is missing"),
        (one("Clip", [None, FLOATS]), "required input 'input' is missing"),
        (one("Relu", [FLOATS], outputs=2), "gives at most 1 outputs, the node names 2"),
        (one("Dropout", [FLOATS], outputs=3), "gives at most 2 outputs, the node names 3"),
        (one("Concat", [], axis=0), "takes at least 1 inputs, got 0"),
        (one("Max", []), "takes at least 1 inputs, got 0"),
        (one("Sum", []), "takes at least 1 inputs, got 0"),
        (one("Concat", [FLOATS, FLOATS]), "required attribute 'axis' is missing"),
        (one("Relu", [FLOATS], alpha=1.0), "attribute 'alpha' is not known to version 14 of the operator"),
        (one("NonZero", [FLOATS], alpha=1.0), "attribute 'alpha' is not known to version 13 of the operator"),
        (one("Transpose", [FLOATS], perm=1), "attribute 'perm' is 1; expected a list of integers"),
        (one("Softmax", [FLOATS], axis=1.0), "attribute 'axis' is 1.0; expected an integer"),
        (one("Softmax", [FLOATS], axis=[1]), r"attribute 'axis' is \[1\]; expected an integer"),
        (one("Softmax", [FLOATS], axis="1"), "attribute 'axis' is '1'; expected an integer"),
        (one("Softmax", [FLOATS], axis=TENSOR), "attribute 'axis' is a tensor; expected an integer"),
        (one("Transpose", [FLOATS], perm=TENSOR), "attribute 'perm' is a tensor; expected a list of integers"),
        (one("LeakyRelu", [FLOATS], alpha="x"), "attribute 'alpha' is 'x'; expected a number"),
        (one("ConstantOfShape", [np.int64([2])], value=3), "attribute 'value' is 3; expected a tensor"),
        (one("Loop", [np.int64(2)], body=3), "attribute 'body' is 3; expected a graph"),
        (one("LSTM", [zeros(2, 3, 2), zeros(1, 16, 2), zeros(1, 16, 4)], hidden_size=4, activations="Tanh"),
         "attribute 'activations' is 'Tanh'; expected a list of strings"),
        (one("Attention", [zeros(1, 2, 4), zeros(4, 12)], CONTRIB), "required attribute 'num_heads' is missing"),
        (one("Attention", [zeros(1, 2, 4), zeros(4, 12)], CONTRIB, num_heads=2.0), "'num_heads' is 2.0; expected an integer"),
    ],
)  # fmt: skip
def test_arity_and_attributes(model: bytes, message: str) -> None:
    refused(model, rf"node 'here' .*{message}")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (one("Attention", [zeros(1, 2, 4), zeros(4, 12)], CONTRIB, num_heads=0), "'num_heads' is 0; expected a number"),
        (one("Conv", [zeros(1, 1, 3, 3), zeros(1, 1, 1, 1)], group=-1), "'group' is -1; expected a number of at least 1"),
        (one("DepthToSpace", [zeros(1, 4, 2, 2)], blocksize=0), "'blocksize' is 0; expected a number of at least 1"),
        (one("LpPool", [zeros(1, 1, 3, 3)], kernel_shape=[2, 2], p=0), "p is 0; expected the exponent of a norm"),
        (one("MaxRoiPool", [zeros(1, 1, 3, 3), zeros(1, 5)], pooled_shape=[2]), r"pooled_shape is \[2\]; expected 2 sizes"),
        (one("SplitToSequence", [zeros(2, 2)], axis=7), "axis 7 is out of range for rank 2"),
    ],
)
def test_absurd_attributes(model: bytes, message: str) -> None:
    refused(model, rf"node 'here' .*{message}")


def test_a_node_without_outputs() -> None:
    nodes = [helper.make_node("Relu", ["x"], [], "nothing"), helper.make_node("Relu", ["x"], ["y"])]
    refused(model_of(nodes, [value("x")]), r"node 'nothing' \(Relu\): the node has no outputs")


def test_nodes_of_providers_are_no_operators_of_models() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], "here", domain="intarsia.channels_last")
    model = model_of([node], [value("x", 1, [1, 8, 8, 4])], [numpy_helper.from_array(zeros(4, 3, 3, 4, dtype=I8), "w")])
    refused(model, "intarsia.channels_last::Conv .*providers write such nodes", error=UnknownOperator)


def test_words_where_the_keys_are_numbers(provider: str) -> None:
    words = [helper.make_tensor_value_info("x", TensorProto.STRING, ["n"])]
    node = helper.make_node("LabelEncoder", ["x"], ["y"], "here", domain="ai.onnx.ml", keys_int64s=[1], values_int64s=[2])
    refused(model_of([node], words), r"'here' \(ai.onnx.ml::LabelEncoder\): X is string where the keys are numbers", provider)


# --- what is taken beyond the schema ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "operands"),
    [
        (one("Relu", [zeros(2, dtype=I32)], opset=13), [np.int32([-1, 2])]),  # as version 14 has it
        (one("Tile", [FLOATS, np.int64(2), np.int64(0)], opset=1), [FLOATS, np.int64(2), np.int64(0)]),
        (one("LeakyRelu", [FLOATS], alpha=0), [FLOATS]),
        (one("TopK", [FLOATS, np.int64([1])]), [FLOATS, np.int64([1])]),  # without the indices
        (one("Upsample", [zeros(1, 1, 2, 2)], opset=7, scales=[1, 1, 2, 2]), [np.ones((1, 1, 2, 2), F)]),
    ],
)
def test_what_cannot_be_misread_is_taken(model: bytes, operands: list[np.ndarray], provider: str) -> None:
    session = ort.InferenceSession(model, providers=[provider])
    (found,) = session.run(None, {f"x{i}": x for i, x in enumerate(operands)})
    assert found.dtype == operands[0].dtype


# --- types that only a run knows --------------------------------------------------------------------------------------

PRODUCT = helper.make_node("MatMul", ["e", "w"], ["y"], "here")
LEFT_INT8 = r"node 'here' \(MatMul\): input 1 'w' is float where input 0 'e' is int8: T must be one type"


def runs(model: bytes, provider: str, **keywords: Any) -> ort.InferenceSession:
    return ort.InferenceSession(model, providers=[provider], **keywords)


def open_sequence() -> onnx.ValueInfoProto:
    made = onnx.ValueInfoProto(name="q")
    made.type.sequence_type.SetInParent()
    return made


def open_optional() -> onnx.ValueInfoProto:
    made = onnx.ValueInfoProto(name="q")
    made.type.optional_type.SetInParent()
    return made


AT = helper.make_node("SequenceAt", ["q", "at"], ["e"])
FIRST = numpy_helper.from_array(np.int64(0), "at")


def branch(name: str) -> Any:
    return helper.make_graph([helper.make_node("Identity", [name], [f"{name}_b"])], name, [], [value(f"{name}_b", None)])


CHOICE = helper.make_node("If", ["p"], ["e"], then_branch=branch("w"), else_branch=branch("q"))
TURNED = helper.make_graph(
    [helper.make_node("Identity", ["c"], ["going"]), helper.make_node("Cast", ["v"], ["b"], to=TensorProto.INT8)], "body",
    [*HEAD, value("v", None)], [value("going", 9, []), value("b", None)],
)  # fmt: skip
TURNS = helper.make_node("Loop", ["n", "", "q"], ["e"], body=TURNED)
SHOWN: list[tuple[str, list[Any], list[Any], Mapping[str, Any], Mapping[str, Any]]] = [
    ("an input without a type", [], [value("e", None)], {"e": FLOATS}, {"e": BYTES}),
    ("an input of an element type that is left open", [], [value("e", 0, [8, 8])], {"e": FLOATS}, {"e": BYTES}),
    ("a sequence without a type", [AT], [open_sequence()], {"q": [FLOATS]}, {"q": [BYTES]}),
    ("an optional without a type", [helper.make_node("OptionalGetElement", ["q"], ["e"])], [open_optional()], {"q": FLOATS},
     {"q": BYTES}),
    ("branches of different types", [CHOICE], [value("p", 9, []), value("q", None)], {"p": np.array(True), "q": BYTES},
     {"p": np.array(False), "q": BYTES}),
    ("a carried value that changes its type", [TURNS], [value("n", 7, []), value("q", None)], {"n": np.int64(0), "q": FLOATS},
     {"n": np.int64(1), "q": FLOATS}),
    ("an OrtValue", [], [value("e", None)], {"e": ort.OrtValue.ortvalue_from_numpy(FLOATS)},
     {"e": ort.OrtValue.ortvalue_from_numpy(BYTES)}),
]  # fmt: skip


@pytest.mark.parametrize("declares", [False, True], ids=["", "and value_info says float"])
@pytest.mark.parametrize("case", range(len(SHOWN)), ids=[c[0] for c in SHOWN])
def test_types_that_a_run_shows(case: int, declares: bool, provider: str) -> None:
    name, nodes, inputs, fits, differs = SHOWN[case]
    declared = [value("e", 1, [8, 8])] if declares and nodes else []
    session = runs(model_of([*nodes, PRODUCT], inputs, [EIGHT, FIRST], declared), provider)
    (found,) = session.run(None, fits)
    left = numpy_helper.to_array(EIGHT) if name.startswith("branches") else FLOATS
    np.testing.assert_allclose(found, left @ numpy_helper.to_array(EIGHT), rtol=1e-6)
    unlike = r"its output 'e' is int8\[8, 8\]; expected float of shape \[8, 8\]"
    with pytest.raises(NodeFailed, match=f"{LEFT_INT8}|{unlike}"):
        session.run(None, differs)


def test_a_body_whose_operands_a_run_shows(provider: str) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["going"]), helper.make_node("MatMul", ["v", "w"], ["b"], "here")], "body",
        [*HEAD, value("v", 1, [8, 8])], [value("going", 9, []), value("b", None)],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["n", "", "q"], ["y"], body=body)
    session = runs(model_of([loop], [value("n", 7, []), value("q", None)], [EIGHT]), provider)
    (found,) = session.run(None, {"n": np.int64(1), "q": FLOATS})
    np.testing.assert_allclose(found, FLOATS @ numpy_helper.to_array(EIGHT), rtol=1e-6)
    with pytest.raises(InvalidGraph, match=r"node 'here' \(MatMul\): input .* 'v' is int8"):
        session.run(None, {"n": np.int64(1), "q": BYTES})


def test_branches_of_different_kinds() -> None:
    listed = helper.make_graph([helper.make_node("SequenceConstruct", ["w"], ["s"])], "s", [], [value("s", None)])
    node = helper.make_node("If", ["p"], ["e"], "choice", then_branch=branch("w"), else_branch=listed)
    message = r"'choice' \(If\): output 0 is tensor\(float\) of then_branch and seq\(tensor\(float\)\) of else_branch"
    refused(model_of([node, PRODUCT], [value("p", 9, [])], [EIGHT]), message)


def test_elements_of_different_types(provider: str) -> None:
    make = helper.make_node("SequenceConstruct", ["w", "q"], ["s"], "list")
    at = helper.make_node("SequenceAt", ["s", "at"], ["e"])
    session = runs(model_of([make, at, PRODUCT], [value("q", None), value("at", 7, [])], [EIGHT]), provider)
    with pytest.raises(NodeFailed, match=r"'list' \(SequenceConstruct\): input 1 'q' is int8 where input 0 'w' is float: T"):
        session.run(None, {"q": BYTES, "at": np.int64(1)})


@pytest.mark.parametrize("shape", [[8, 8], ["n", 8], None], ids=str)
def test_results_of_an_operator_without_types(shape: Any, provider: str) -> None:
    """What a program's operator gives is known in a run alone; the model may declare something else."""
    from onnx.reference.op_run import OpRun

    class Odd(OpRun):
        op_domain = "own"

        def _run(self, x: np.ndarray, how: str = "") -> tuple[np.ndarray]:
            return (x.astype(I8) if how == "bytes" else x[:2] if how == "rows" else x,)

    def session(how: str) -> ort.InferenceSession:
        node = helper.make_node("Odd", ["x"], ["e"], "odd", domain="own", how=how)
        product = helper.make_node("Gemm", ["e", "x"], ["y"], "here", transA=1)
        model = model_of([node, product], [value("x", 1, ["n", 8])], declared=[value("e", 1, shape)])
        return runs(model, provider, new_ops=[Odd])

    x = np.arange(64, dtype=F).reshape(8, 8)
    np.testing.assert_allclose(session("").run(None, {"x": x})[0], x.T @ x, rtol=1e-6)
    with pytest.raises(NodeFailed, match=r"'odd' .*output 'e' is int8|'here' \(Gemm\): input 1 .* input 0 'e' is int8: T"):
        session("bytes").run(None, {"x": x})
    with pytest.raises(NodeFailed, match=r"'odd' .*output 'e' is float32\[2, 8\]|'here' \(Gemm\)"):
        session("rows").run(None, {"x": x})


def test_a_number_of_heads_that_is_left_open() -> None:
    """0 is what RotaryEmbedding's num_heads is where it is left out, and exporters write it."""
    text = """<ir_version: 10, opset_import: ["": 23]>
        g (float[1,2,3,8] x, float[9,4] c, float[9,4] s, int64[1,3] p) => (float[1,2,3,8] y) {
            y = RotaryEmbedding<num_heads=0>(x, c, s, p)
        }"""
    ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    with pytest.raises(ort.InvalidGraph, match="attribute 'num_heads' is -1; expected a number of at least 0"):
        ort.InferenceSession(onnx.parser.parse_model(text.replace("num_heads=0", "num_heads=-1")).SerializeToString())
