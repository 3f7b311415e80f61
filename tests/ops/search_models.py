"""Small models of random weights for searches: encoder-decoder models in the forms that T5 and Whisper are exported in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh

VOCABULARY, HEADS, SIZE = 12, 2, 3
WIDTH = HEADS * SIZE
EOS, PAD, START = 10, 11, 9
FLOAT, INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
MODES = ("t5 old", "t5 new", "whisper")
STATE = ["rows", HEADS, None, SIZE]


def _value(name: str, kind: int, shape: Sequence[Any]) -> onnx.ValueInfoProto:
    return oh.make_tensor_value_info(name, kind, [f"{name}_{i}" if d is None else d for i, d in enumerate(shape)])


def _constants(values: Mapping[str, np.ndarray]) -> list[onnx.TensorProto]:
    shapes = {"heads": [0, 0, HEADS, SIZE], "flat": [0, 1, WIDTH], "around": [1, 3]}
    found = [onnx.numpy_helper.from_array(np.array(v, np.int64), n) for n, v in shapes.items()]
    return found + [onnx.numpy_helper.from_array(v.astype(np.float32), n) for n, v in values.items()]


def _split(source: str, key: str, value: str) -> list[onnx.NodeProto]:
    """A key and a value [rows, heads, tokens, size] of [rows, tokens, width]."""
    return [
        oh.make_node("MatMul", [source, f"{key}_w"], [f"{key}_m"]),
        oh.make_node("Reshape", [f"{key}_m", "heads"], [f"{key}_r"]),
        oh.make_node("Transpose", [f"{key}_r"], [key], perm=[0, 2, 1, 3]),
        oh.make_node("MatMul", [source, f"{value}_w"], [f"{value}_m"]),
        oh.make_node("Reshape", [f"{value}_m", "heads"], [f"{value}_r"]),
        oh.make_node("Transpose", [f"{value}_r"], [value], perm=[0, 2, 1, 3]),
    ]  # fmt: skip


def _token_logits(own: tuple[str, str], cross: tuple[str, str], masked: bool) -> list[onnx.NodeProto]:
    """Logits of `x` [rows, tokens, width] and the means of all states, those of the encoder masked."""
    nodes = []
    if masked:
        nodes.append(oh.make_node("Cast", ["encoder_attention_mask"], ["mask_f"], to=FLOAT))
        nodes.append(oh.make_node("Unsqueeze", ["mask_f", "around"], ["mask_u"]))
    means = []
    for i, name in enumerate((*own, *cross)):
        source = name
        if masked and i >= 2:
            nodes.append(oh.make_node("Mul", [name, "mask_u"], [f"{name}_seen"]))
            source = f"{name}_seen"
        nodes.append(oh.make_node("ReduceMean", [source], [f"{name}_mean"], axes=[2], keepdims=0))
        nodes.append(oh.make_node("Reshape", [f"{name}_mean", "flat"], [f"{name}_flat"]))
        means.append(f"{name}_flat")
    nodes.append(oh.make_node("Concat", means, ["all_means"], axis=2))
    nodes.append(oh.make_node("MatMul", ["all_means", "back"], ["back_logits"]))
    nodes.append(oh.make_node("MatMul", ["x", "out"], ["x_logits"]))
    nodes.append(oh.make_node("Add", ["x_logits", "back_logits"], ["logits"]))
    return nodes


def graphs(mode: str, seed: int = 0) -> tuple[onnx.GraphProto, onnx.GraphProto]:
    """The encoder and the decoder."""
    rng = np.random.default_rng(seed)

    def random(*shape: int, scale: float = 1.0) -> np.ndarray:
        return rng.standard_normal(shape) * scale

    shared = {
        "tokens": random(VOCABULARY, WIDTH), "words": random(VOCABULARY, WIDTH), "out": random(WIDTH, VOCABULARY, scale=1.5),
        "back": random(4 * WIDTH, VOCABULARY, scale=2.0),
        **{f"{n}_w": random(WIDTH, WIDTH) for n in ("k_self", "v_self", "present_key_cross_0", "present_value_cross_0")},
    }  # fmt: skip
    masked, begins = mode != "whisper", mode != "t5 new"
    return _encoder(mode, shared, masked, begins), _decoder(shared, masked, begins)


def _encoder(mode: str, weights: dict[str, np.ndarray], masked: bool, begins: bool) -> onnx.GraphProto:
    if mode == "whisper":
        inputs = [_value("encoder_input_ids", FLOAT, ["rows", WIDTH, "frames"])]
        nodes = [oh.make_node("Transpose", ["encoder_input_ids"], ["encoder_hidden_states"], perm=[0, 2, 1])]
    else:
        inputs = [_value(n, INT32, ["rows", "words"]) for n in ("encoder_input_ids", "encoder_attention_mask")]
        nodes = [oh.make_node("Gather", ["words", "encoder_input_ids"], ["encoder_hidden_states"])]
    cross = ("present_key_cross_0", "present_value_cross_0")
    nodes += _split("encoder_hidden_states", *cross)
    outputs = [_value(n, FLOAT, STATE) for n in cross]
    if begins:
        inputs.append(_value("decoder_input_ids", INT32, ["rows", "begin"]))
        nodes += [oh.make_node("Gather", ["tokens", "decoder_input_ids"], ["x"]), *_split("x", "k_self", "v_self")]
        own = ("present_key_self_0", "present_value_self_0")
        nodes += [oh.make_node("Identity", [a], [b]) for a, b in zip(("k_self", "v_self"), own, strict=True)]
        nodes += _token_logits(own, cross, masked)
        outputs = [
            _value("logits", FLOAT, ["rows", "begin", VOCABULARY]),
            _value("encoder_hidden_states", FLOAT, ["rows", None, WIDTH]),
            *(_value(n, FLOAT, STATE) for n in own), *outputs,
        ]  # fmt: skip
    return oh.make_graph(nodes, "encoder", inputs, outputs, _constants(weights))


def _decoder(weights: dict[str, np.ndarray], masked: bool, begins: bool) -> onnx.GraphProto:
    inputs = [_value("input_ids", INT32, ["rows", 1])]
    if masked:
        inputs.append(_value("encoder_attention_mask", INT32, ["rows", "words"]))
    if begins:
        inputs.append(_value("encoder_hidden_states", FLOAT, ["rows", None, WIDTH]))
    own, cross = ("past_key_self_0", "past_value_self_0"), ("past_key_cross_0", "past_value_cross_0")
    inputs += [_value(n, FLOAT, STATE) for n in (*own, *cross)]
    made = ("present_key_self_0", "present_value_self_0")
    nodes = [oh.make_node("Gather", ["tokens", "input_ids"], ["x"]), *_split("x", "k_self", "v_self")]
    nodes += [oh.make_node("Concat", [a, b], [c], axis=2) for a, b, c in zip(own, ("k_self", "v_self"), made, strict=True)]
    nodes += _token_logits(made, cross, masked)
    outputs = [_value("logits", FLOAT, ["rows", 1, VOCABULARY]), *(_value(n, FLOAT, STATE) for n in made)]
    return oh.make_graph(nodes, "decoder", inputs, outputs, _constants(weights))


def search(op: str, mode: str, inputs: Sequence[Any], kinds: Sequence[int], seed: int = 0, **attributes: Any) -> Any:
    """A model of one search, and its feeds; an output of kind 0 is left out."""
    encoder, decoder = graphs(mode, seed)
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    feeds = {n: x for n, x in zip(names, inputs, strict=True) if n}
    attributes = {
        "eos_token_id": EOS, "pad_token_id": PAD, "decoder_start_token_id": START, "encoder": encoder, "decoder": decoder,
        "model_type": 2 if mode == "whisper" else 1, **attributes,
    }  # fmt: skip
    outputs = [f"y{i}" if kind else "" for i, kind in enumerate(kinds)]
    node = oh.make_node(op, names, outputs, domain="com.microsoft", name="search", **attributes)
    graph = oh.make_graph(
        [node], "g", [oh.make_tensor_value_info(n, oh.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()],
        [oh.make_tensor_value_info(n, kind, None) for n, kind in zip(outputs, kinds, strict=True) if n],
    )  # fmt: skip
    imports = [oh.make_opsetid("", 14), oh.make_opsetid("com.microsoft", 1)]
    return oh.make_model(graph, opset_imports=imports, ir_version=8), feeds
