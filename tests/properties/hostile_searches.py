"""BeamSearch, GreedySearch, Sampling and WhisperBeamSearch over models that are not what they search: states, logits, masks and
beams of other sizes and types, tokens that there are none of, and any field of the subgraphs changed.
"""

from __future__ import annotations

import random
import sys
from functools import cache
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "ops"))

import damaged
import numpy as np
import onnx
from mutations import EXTREME, FLOATS, Case
from onnx import TensorProto, helper, numpy_helper
from search_models import EOS, HEADS, MODES, PAD, SIZE, START, VOCABULARY, WIDTH, graphs

FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32
OPERATORS = {
    "GreedySearch": ("decoder",),
    "Sampling": ("decoder",),
    "BeamSearch": ("decoder", *MODES),
    "WhisperBeamSearch": ("whisper",),
}
LENGTHS = (0, 1, 2, 5, 8, 12, 40, -1, 10**6, 2**31 - 1, -(2**31))
BEAMS = (0, 1, 2, 3, 4, 12, 13, 40, 10**6, -1)
TOKENS = (-1, VOCABULARY, 2**31 - 1, -(2**31), 100)
TYPES = (TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.INT8, TensorProto.BFLOAT16)
DECODER = f"""decoder (int32[rows,tokens] input_ids, int32[rows,tokens] position_ids, int32[rows,all] attention_mask,
    float[2,rows,{HEADS},past,{SIZE}] past_0)
    => (float[rows,tokens,{VOCABULARY}] logits, float[2,rows,{HEADS},all,{SIZE}] present_0)
    <int64[4] heads = {{0, 0, {HEADS}, {SIZE}}}, int64[3] flat = {{0, 1, {WIDTH}}}, int64[1] both = {{0}},
        int64[3] around = {{0, 2, 4}}> {{
    a = Gather(table, input_ids)
    b = Gather(places, position_ids)
    x = Add(a, b)
    r = Reshape(x, heads)
    t = Transpose<perm=[0,2,1,3]>(r)
    u = Unsqueeze(t, both)
    kv = Concat<axis=0>(u, u)
    present_0 = Concat<axis=3>(past_0, kv)
    m = Cast<to=1>(attention_mask)
    mask = Unsqueeze(m, around)
    seen = Mul(present_0, mask)
    mean = ReduceMean<axes=[0,3], keepdims=0>(seen)
    c = Reshape(mean, flat)
    back = MatMul(c, w)
    own = MatMul(x, w)
    logits = Add(own, back)
}}"""


@cache
def _decoder() -> onnx.GraphProto:
    graph, rng = onnx.parser.parse_graph(DECODER), np.random.default_rng(0)
    for name, shape in (("table", (VOCABULARY, WIDTH)), ("places", (32, WIDTH)), ("w", (WIDTH, VOCABULARY))):
        graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
    return graph


@cache
def _graphs(mode: str) -> tuple[onnx.GraphProto | None, onnx.GraphProto]:
    """Encoder, if there is one, and decoder."""
    return (None, _decoder()) if mode == "decoder" else graphs(mode)


def case_of(rng: random.Random, drawn: bool = True) -> Case:
    """A search with some things changed. `drawn`: or one whose tokens are drawn."""
    op = rng.choice(sorted(set(OPERATORS) - (set() if drawn else {"Sampling"})))
    mode = rng.choice(OPERATORS[op])
    encoder, decoder = (onnx.GraphProto.FromString(g.SerializeToString()) if g is not None else None for g in _graphs(mode))
    assert decoder is not None
    rows = rng.choice((1, 2, 3))
    tokens = np.array([[rng.randrange(VOCABULARY) for _ in range(4)] for _ in range(rows)], np.int32)
    features = np.ones((rows, WIDTH, 5), np.float32)
    inputs: list[Any] = [features if mode == "whisper" else tokens, np.int32([8])]
    if "Beam" in op:
        inputs += [np.int32([0]), np.int32([3]), np.int32([2]), np.float32([1]), np.float32([1])]
    attributes: dict[str, Any] = {"eos_token_id": EOS, "pad_token_id": PAD}
    if encoder is not None:
        attributes |= {"decoder_start_token_id": START, "model_type": 2 if mode == "whisper" else 1}
    told = [f"{op} {mode}"]
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        how = rng.choice(("size", "type", "output", "graph", "graph", "input", "input", "attribute", "node"))
        graph = rng.choice([g for g in (encoder, decoder) if g is not None])
        if how in ("size", "type"):
            told.append(_declared(rng.choice([*graph.input, *graph.output]), how, rng))
        elif how == "output":
            told.append(_other_output(graph, rng))
        elif how == "input":
            told.append(_other_input(inputs, rng))
        elif how == "attribute":
            name = rng.choice(
                ("eos_token_id", "pad_token_id", "vocab_size", "no_repeat_ngram_size", "model_type", "decoder_start_token_id")
            )
            attributes[name] = max(-(2**31), min(2**31 - 1, rng.choice((*TOKENS, *EXTREME))))
            told.append(f"{name} = {attributes[name]}")
        else:
            told.append(damaged.change(graph, rng))
    attributes["decoder"] = decoder
    if encoder is not None:
        attributes["encoder"] = encoder
    return Case(*_model(op, inputs, attributes, rng), "; ".join(told))


def _model(op: str, inputs: list[Any], attributes: dict[str, Any], rng: random.Random) -> tuple[bytes, dict[str, Any]]:
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    feeds = {n: x for n, x in zip(names, inputs, strict=True) if n}
    kinds = {"GreedySearch": [INT32], "Sampling": [INT32, FLOAT]}.get(op, [INT32, FLOAT, FLOAT][: rng.randrange(1, 4)])
    node = helper.make_node(
        op, names, [f"y{i}" for i in range(len(kinds))], domain="com.microsoft", name="search", **attributes
    )
    constant = {n for n in feeds if rng.random() < 0.1}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), [f"{n}_{i}" for i in range(x.ndim)])
        for n, x in feeds.items() if n not in constant
    ]  # fmt: skip
    graph = helper.make_graph(
        [node], "g", infos, [helper.make_tensor_value_info(f"y{i}", t, None) for i, t in enumerate(kinds)],
        [numpy_helper.from_array(feeds[n], n) for n in sorted(constant)],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 14), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    return model.SerializeToString(), {n: x for n, x in feeds.items() if n not in constant}


def _declared(value: onnx.ValueInfoProto, how: str, rng: random.Random) -> str:
    """A declared size or type that is not what is there."""
    kind = value.type.tensor_type
    if how == "type":
        kind.elem_type = rng.choice(TYPES)
        return f"{value.name} declared of type {kind.elem_type}"
    sizes = kind.shape.dim
    if not sizes or rng.random() < 0.2:
        sizes.add(dim_value=rng.choice((1, 2)))
        return f"{value.name} declared with one more axis"
    at = rng.randrange(len(sizes))
    if rng.random() < 0.5:
        sizes[at].dim_param = rng.choice(("rows", "past", "all", "tokens", "other"))
    else:
        sizes[at].dim_value = rng.choice((0, 1, 2, 3, 5, 7, 64, 2**31))
    return f"{value.name}: size {at} declared {sizes[at].dim_param or sizes[at].dim_value}"


def _other_output(graph: onnx.GraphProto, rng: random.Random) -> str:
    """An output of another type or other sizes than the search relies on."""
    value = rng.choice(graph.output)
    inner = f"{value.name}_before"
    for node in graph.node:
        for i, name in enumerate(node.output):
            if name == value.name:
                node.output[i] = inner
        for i, name in enumerate(node.input):
            if name == value.name:
                node.input[i] = inner
    how = rng.choice(("cast", "twice", "half", "flat", "axis", "transposed", "none", "grows"))
    rank = max(len(value.type.tensor_type.shape.dim), 1)
    axis = rng.randrange(rank)
    make = helper.make_node
    constants = {"zero_1": [0], "one_1": [1], "axis_1": [axis], "flat_1": [-1]}
    for name, numbers in constants.items():
        if not any(t.name == name for t in graph.initializer):
            graph.initializer.append(numpy_helper.from_array(np.array(numbers, np.int64), name))
    made = {
        "cast": [make("Cast", [inner], [value.name], to=rng.choice(TYPES))],
        "twice": [make("Concat", [inner, inner], [value.name], axis=axis)],
        "half": [make("Slice", [inner, "zero_1", "one_1", "axis_1"], [value.name])],
        "none": [make("Slice", [inner, "zero_1", "zero_1", "axis_1"], [value.name])],
        "flat": [make("Reshape", [inner, "flat_1"], [value.name])],
        "axis": [make("Unsqueeze", [inner, "zero_1"], [value.name])],
        "transposed": [make("Transpose", [inner], [value.name])],
        "grows": [make("Shape", [inner], [f"{inner}_s"]), make("Tile", [inner, f"{inner}_s"], [value.name])],
    }[how]
    graph.node.extend(made)
    if rng.random() < 0.7:
        value.type.tensor_type.ClearField("shape")
    return f"{value.name}: {how} {axis}"


def _other_input(inputs: list[Any], rng: random.Random) -> str:
    """Lengths, beams, tokens or masks that do not fit."""
    at = rng.randrange(12)
    while len(inputs) <= at:
        inputs.append(None)
    given = inputs[at]
    if at == 0 and given.dtype == np.int32:
        given[rng.randrange(len(given)), rng.randrange(given.shape[1])] = rng.choice(TOKENS)
    elif at in (1, 2):
        inputs[at] = np.int32([rng.choice(LENGTHS)])
    elif at in (3, 4) and given is not None:
        inputs[at] = np.int32([rng.choice(BEAMS)])
    elif given is not None and given.dtype == np.float32:
        inputs[at] = np.float32([rng.choice(FLOATS)])
    else:
        shape = rng.choice(((VOCABULARY,), (1,), (2, VOCABULARY), (3, VOCABULARY), (3, 4), (2, 4), (0,), (1, 1, 1), (100,)))
        inputs[at] = np.array(np.arange(np.prod(shape)) % 2, rng.choice((np.int32, np.int32, np.float32))).reshape(shape)
    if rng.random() < 0.1:
        inputs[at] = None if at > 1 else np.zeros(rng.choice(((0, 4), (2, 0), (3,), (2, 2, 2))), np.int32)
    return f"input {at} = {'none' if inputs[at] is None else inputs[at].reshape(-1)[:4].tolist()}"
