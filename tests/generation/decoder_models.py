"""A small decoder as optimum exports them, what NumPy says of it, and a folder of it with a tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

WORDS, WIDTH, HEADS, LAYERS, PLACES = 300, 16, 2, 2, 256
SIZE = WIDTH // HEADS
RNG = np.random.default_rng(3)


def _weights() -> dict[str, np.ndarray]:
    shapes = {"words": (WORDS, WIDTH), "places": (PLACES, WIDTH), "head": (WIDTH, WORDS)}
    for i in range(LAYERS):
        shapes |= {f"{what}{i}": (WIDTH, WIDTH) for what in ("q", "k", "v", "o")}
    return {name: (RNG.standard_normal(shape) * 0.5).astype(np.float32) for name, shape in shapes.items()}


WEIGHTS = _weights()


def decoder() -> onnx.ModelProto:
    """input_ids, attention_mask, position_ids and caches in; logits and caches out."""
    lines = ["e = Gather(words, input_ids)  p = Gather(places, position_ids)  x0 = Add(e, p)"]
    lines += ["f = Cast<to = 1>(attention_mask)  m1 = Unsqueeze(f, axes12)  m2 = Sub(onef, m1)  m3 = Mul(m2, low)"]
    lines += ["sh = Shape(input_ids)  count = Gather(sh, one)  tot = Shape(attention_mask)  total = Gather(tot, one)"]
    lines += ["from = Sub(total, count)  rows = Range(from, total, one)  cols = Range(zero, total, one)"]
    lines += [
        "r1 = Unsqueeze(rows, axis1)  later = Greater(cols, r1)"]
    lines += ["l1 = Cast<to = 1>(later)  l2 = Mul(l1, low)  mask = Add(m3, l2)"
    ]
    for i in range(LAYERS):
        for what in "qkv":
            lines.append(f"{what}a{i} = MatMul(x{i}, {what}{i})  {what}b{i} = Reshape({what}a{i}, split)")
            lines.append(f"{what}c{i} = Transpose<perm = [0, 2, 1, 3]>({what}b{i})")
        lines += [f"pk{i} = Concat<axis = 2>(past_k{i}, kc{i})  pv{i} = Concat<axis = 2>(past_v{i}, vc{i})"]
        lines += [f"kt{i} = Transpose<perm = [0, 1, 3, 2]>(pk{i})  s{i} = MatMul(qc{i}, kt{i})  t{i} = Mul(s{i}, scale)"]
        lines += [f"u{i} = Add(t{i}, mask)  w{i} = Softmax<axis = -1>(u{i})  a{i} = MatMul(w{i}, pv{i})"]
        lines += [f"b{i} = Transpose<perm = [0, 2, 1, 3]>(a{i})  c{i} = Reshape(b{i}, join)  d{i} = MatMul(c{i}, o{i})"]
        lines += [f"g{i} = Tanh(d{i})  x{i + 1} = Add(x{i}, g{i})"]
    lines += [f"logits = MatMul(x{LAYERS}, head)"]
    past = ", ".join(f"float[batch, {HEADS}, past, {SIZE}] past_{kv}{i}" for i in range(LAYERS) for kv in "kv")
    present = ", ".join(f"float[batch, {HEADS}, total_length, {SIZE}] p{kv}{i}" for i in range(LAYERS) for kv in "kv")
    text = f"""<ir_version: 9, opset_import: ["" : 18]>
        g (int64[batch, seq] input_ids, int64[batch, total_length] attention_mask, int64[batch, seq] position_ids, {past})
        => (float[batch, seq, {WORDS}] logits, {present}) {{ {" ".join(lines)} }}"""
    model = onnx.parser.parse_model(text)
    constants: dict[str, Any] = {
        **WEIGHTS, "axes12": np.array([1, 2]), "axis1": np.array([1]), "onef": np.float32(1), "low": np.float32(-1e9),
        "one": np.array(1), "zero": np.array(0), "split": np.array([0, 0, HEADS, SIZE]), "join": np.array([0, 0, WIDTH]),
        "scale": np.float32(SIZE**-0.5),
    }  # fmt: skip
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items())
    _rename(model)
    return model


def _rename(model: onnx.ModelProto) -> None:
    """To optimum's names, which ONNX's text form cannot have."""
    names = {}
    for i in range(LAYERS):
        for kv, word in (("k", "key"), ("v", "value")):
            names[f"past_{kv}{i}"], names[f"p{kv}{i}"] = f"past_key_values.{i}.{word}", f"present.{i}.{word}"
    for value in (*model.graph.input, *model.graph.output):
        value.name = names.get(value.name, value.name)
    for node in model.graph.node:
        for part in (node.input, node.output):
            part[:] = [names.get(n, n) for n in part]


def scores(tokens: list[int]) -> np.ndarray:
    """[count, WORDS]: the scores behind each token, in float64 and without a cache."""
    w = {name: array.astype(np.float64) for name, array in WEIGHTS.items()}
    count = len(tokens)
    x = w["words"][tokens] + w["places"][:count]
    for i in range(LAYERS):
        q, k, v = ((x @ w[f"{what}{i}"]).reshape(count, HEADS, SIZE).transpose(1, 0, 2) for what in "qkv")
        s = q @ k.transpose(0, 2, 1) * SIZE**-0.5
        s[:, np.triu(np.ones((count, count), bool), 1)] = -np.inf
        p = np.exp(s - s.max(-1, keepdims=True))
        a = (p / p.sum(-1, keepdims=True)) @ v
        x = x + np.tanh(a.transpose(1, 0, 2).reshape(count, WIDTH) @ w[f"o{i}"])
    return x @ w["head"]


def likeliest(prompt: list[int], count: int, ends: frozenset[int] = frozenset()) -> list[int]:
    """What a greedy search goes on with."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + count:
        tokens.append(int(scores(tokens)[-1].argmax()))
        if tokens[-1] in ends:
            break
    return tokens[len(prompt) :]


def tokenizer() -> Any:
    """Bytes, and some pairs of them: every number below WORDS is a token."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    text = ["the quick brown fox jumps over the lazy dog and on it goes for ever"] * 3
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        text, trainers.BpeTrainer(vocab_size=WORDS, initial_alphabet=alphabet, special_tokens=["<end>"], show_progress=False)
    )
    return made


TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def folder(path: Path, **files: Any) -> Path:
    """A folder as optimum writes it. `files`: JSON by name, with "__" for "."; None leaves one out."""
    path.mkdir(parents=True, exist_ok=True)
    onnx.save(decoder(), path / "model.onnx")
    tokenizer().save(str(path / "tokenizer.json"))
    usual: dict[str, Any] = {
        "config__json": {"model_type": "small", "max_position_embeddings": PLACES, "eos_token_id": 0},
        "tokenizer_config__json": {"eos_token": "<end>", "chat_template": TEMPLATE},
    }
    for name, content in {**usual, **files}.items():
        if content is not None:
            (path / name.replace("__", ".")).write_text(json.dumps(content), encoding="utf-8")
    return path
