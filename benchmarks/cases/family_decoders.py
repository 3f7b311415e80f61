"""Decoders and encoders written node by node for `families.py`: onnxruntime's fused operators, and ONNX's own of opset 24."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

from cases.family import Family, Run
from cases.graph_writer import FLOAT, INT64, Writer, built

WIDTH, HEADS, GROUPS, SIZE, INNER, LAYERS, WORDS, LONGEST = 512, 8, 2, 64, 1408, 4, 4000, 512
MS = "com.microsoft"


def _turns() -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of the places' angles, [places, half a head]."""
    rates = 10000.0 ** -(np.arange(0, SIZE, 2) / SIZE)
    angles = np.arange(LONGEST)[:, None] * rates
    return np.cos(angles), np.sin(angles)


def _mlp(w: Writer, x: str) -> str:
    gate, up = (w.node("MatMul", x, w.normal(WIDTH, INNER)) for _ in range(2))
    y = w.node("Mul", w.node("Mul", gate, w.node("Sigmoid", gate)), up)
    return str(w.node("MatMul", y, w.normal(INNER, WIDTH)))


def _model(w: Writer, logits: str, caches: list[tuple[str, str]], opset: int) -> onnx.ModelProto:
    """Inputs and outputs as programs for generation name them."""
    w.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
    past, present = ["batch", GROUPS, "past", SIZE], ["batch", GROUPS, "total", SIZE]
    inputs: dict[str, Any] = {"input_ids": (INT64, ["batch", "length"]), "attention_mask": (INT64, ["batch", "total"])}
    outputs: dict[str, Any] = {"logits": (FLOAT, ["batch", "length", WORDS])}
    for i, names in enumerate(caches):
        for name, kind in zip(names, ("key", "value"), strict=True):
            inputs[f"past.{i}.{kind}"] = (FLOAT, past)
            w.nodes.append(helper.make_node("Identity", [name], [f"present.{i}.{kind}"]))
            outputs[f"present.{i}.{kind}"] = (FLOAT, present)
    model = w.model(inputs, outputs, opset)
    model.opset_import.append(helper.make_opsetid(MS, 1))
    model.ir_version = 10
    return model


def _fused(_: int) -> onnx.ModelProto:
    w = Writer()
    mask = w.node("ReduceSum", "attention_mask", w.ints(1), keepdims=1)
    last = w.node("Cast", w.node("Sub", mask, w.ints(1)), to=TensorProto.INT32)
    total = w.node("Cast", w.node("Gather", w.node("Shape", "attention_mask"), w.weight(1, np.int64)), to=TensorProto.INT32)
    turns = [w.weight(x) for x in _turns()]
    x = w.node("Gather", w.normal(WORDS, WIDTH, scale=0.1), "input_ids")
    scale = w.weight(np.ones(WIDTH))
    y, caches = w.node("SimplifiedLayerNormalization", x, scale, epsilon=1e-5, axis=-1), []
    for i in range(LAYERS):
        q, k, v = (w.node("MatMul", y, w.normal(WIDTH, n * SIZE)) for n in (HEADS, GROUPS, GROUPS))
        past = (f"past.{i}.key", f"past.{i}.value")
        how = {"num_heads": HEADS, "kv_num_heads": GROUPS, "do_rotary": 1, "domain": MS}
        a, *present = w.node("GroupQueryAttention", q, k, v, *past, last, total, *turns, outputs=3, **how)
        caches.append(tuple(present))
        for make in (lambda z: w.node("MatMul", z, w.normal(WIDTH, WIDTH)), lambda z: _mlp(w, z)):
            a = make(a)
            names = [w.name("y"), "", "", w.name("x")]
            node = helper.make_node("SkipSimplifiedLayerNormalization", [x, a, scale], names, domain=MS, epsilon=1e-5)
            w.nodes.append(node)
            a = y = names[0]
            x = names[3]
    return _model(w, w.node("MatMul", y, w.normal(WIDTH, WORDS)), caches, 17)


def _plain(_: int) -> onnx.ModelProto:
    """RMSNormalization, RotaryEmbedding by places from the mask, Attention with a cache and a mask."""
    w = Writer()
    total = w.node("Shape", "attention_mask", start=1)
    length = w.node("Shape", "input_ids", start=1)
    past = w.node("Sub", total, length)
    seen = w.node("Cast", "attention_mask", to=INT64)
    places = w.node("Max", w.node("Sub", w.node("CumSum", seen, w.weight(1, np.int64)), w.ints(1)), w.ints(0))
    places = w.node("Slice", places, past, total, w.ints(1))
    turns = [w.weight(x) for x in _turns()]
    axis = w.weight(0, np.int64), w.weight(1, np.int64)
    squeeze: Callable[[str], str] = lambda z: w.node("Squeeze", z, w.ints(0))  # noqa: E731
    rows = w.node("Unsqueeze", w.node("Range", squeeze(past), squeeze(total), axis[1]), w.ints(1))
    columns = w.node("Unsqueeze", w.node("Range", axis[0], squeeze(total), axis[1]), w.ints(0))
    allowed = w.node("And", w.node("LessOrEqual", columns, rows),
                     w.node("Unsqueeze", w.node("Cast", seen, to=TensorProto.BOOL), w.ints(1, 2)))  # fmt: skip
    x, scale, caches = w.node("Gather", w.normal(WORDS, WIDTH, scale=0.1), "input_ids"), w.weight(np.ones(WIDTH)), []
    for i in range(LAYERS):
        y = w.node("RMSNormalization", x, scale, epsilon=1e-5)
        q, k, v = (w.node("MatMul", y, w.normal(WIDTH, n * SIZE)) for n in (HEADS, GROUPS, GROUPS))
        q = w.node("RotaryEmbedding", q, *turns, places, num_heads=HEADS)
        k = w.node("RotaryEmbedding", k, *turns, places, num_heads=GROUPS)
        old = (f"past.{i}.key", f"past.{i}.value")
        a, *present = w.node("Attention", q, k, v, allowed, *old, outputs=3, q_num_heads=HEADS, kv_num_heads=GROUPS)
        caches.append(tuple(present))
        x = w.node("Add", x, w.node("MatMul", a, w.normal(WIDTH, WIDTH)))
        x = w.node("Add", x, _mlp(w, w.node("RMSNormalization", x, scale, epsilon=1e-5)))
    y = w.node("RMSNormalization", x, scale, epsilon=1e-5)
    return _model(w, w.node("MatMul", y, w.normal(WIDTH, WORDS)), caches, 24)


def _run(batch: int, length: int, past: int) -> Run:
    mask = torch.ones(batch, past + length, dtype=torch.int64)
    caches = {f"past.{i}.{kind}": torch.randn(batch, GROUPS, past, SIZE) for i in range(LAYERS) for kind in ("key", "value")}
    return {"input_ids": torch.randint(0, WORDS, (batch, length)), "attention_mask": mask} | caches


def fused_decoder_step() -> Family:
    """GroupQueryAttention with turns inside, SkipSimplifiedLayerNormalization: one token after 127."""
    return built(_fused, [_run(1, 1, 127), _run(2, 1, 5), _run(1, 1, 128), _run(1, 16, 0)])


def fused_decoder_prompt() -> Family:
    return built(_fused, [_run(1, 96, 0), _run(2, 7, 0), _run(1, 1, 96)])


def plain_decoder_step() -> Family:
    return built(_plain, [_run(1, 1, 127), _run(2, 1, 5), _run(1, 1, 128), _run(1, 16, 0)])


def plain_decoder_prompt() -> Family:
    return built(_plain, [_run(1, 96, 0), _run(2, 7, 3), _run(1, 1, 96)])


def fused_encoder() -> Family:
    """EmbedLayerNormalization, Attention with packed weights and a mask of lengths, SkipLayerNormalization, BiasGelu."""

    def write(_: int) -> onnx.ModelProto:
        w = Writer()
        ids, mask = (w.node("Cast", x, to=TensorProto.INT32) for x in ("input_ids", "attention_mask"))
        segments = w.node("Sub", ids, ids)
        norm = lambda: (w.weight(np.ones(WIDTH)), w.normal(WIDTH, scale=0.1))  # noqa: E731
        tables = [w.normal(n, WIDTH, scale=0.1) for n in (WORDS, LONGEST, 2)]
        x, lengths = w.node("EmbedLayerNormalization", ids, segments, *tables, *norm(), mask, outputs=2, domain=MS)
        for _layer in range(LAYERS):
            packed = (w.normal(WIDTH, 3 * WIDTH), w.normal(3 * WIDTH, scale=0.1))
            y = w.node("MatMul", w.node("Attention", x, *packed, lengths, num_heads=HEADS, domain=MS), w.normal(WIDTH, WIDTH))
            x = w.node("SkipLayerNormalization", x, y, *norm(), w.normal(WIDTH, scale=0.1), domain=MS)
            y = w.node("BiasGelu", w.node("MatMul", x, w.normal(WIDTH, 4 * WIDTH)), w.normal(4 * WIDTH, scale=0.1), domain=MS)
            x = w.node("SkipLayerNormalization", x, w.node("MatMul", y, w.normal(4 * WIDTH, WIDTH)), *norm(), domain=MS)
        w.nodes.append(helper.make_node("Identity", [x], ["states"]))
        sizes = (INT64, ["batch", "length"])
        outputs = {"states": (FLOAT, ["batch", "length", WIDTH])}
        model = w.model({"input_ids": sizes, "attention_mask": sizes}, outputs, 17)
        model.opset_import.append(helper.make_opsetid(MS, 1))
        return model

    def run(batch: int, length: int) -> Run:
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[1:, length - 3 :] = 0
        return {"input_ids": torch.randint(0, WORDS, (batch, length)), "attention_mask": mask}

    return built(write, [run(1, 128), run(2, 40), run(1, 7)])


FAMILIES = (fused_decoder_step, fused_decoder_prompt, plain_decoder_step, plain_decoder_prompt, fused_encoder)
