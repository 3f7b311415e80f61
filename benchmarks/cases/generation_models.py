"""Decoders as tools export them, for `generation.py`: tiny ones and ones of 0.1 to 0.4 billion parameters.

Each takes tokens, a mask over all tokens, and keys and values of every layer (`past.*`), and gives logits and the longer keys
and values (`present.*`); weights are random. `exports` are torch's; `fused` has onnxruntime's operators as onnxruntime-genai's
model builder writes them, `static` caches of one length that ScatterND writes rows into.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from cases.graph_writer import FLOAT, INT64, Writer

MS = "com.microsoft"
LONGEST = 2048  # tokens of a cache that has one length


@dataclass(frozen=True)
class Sizes:
    """A decoder with rotary positions, grouped keys and a gated layer, as Llama, SmolLM and Qwen have."""

    layers: int = 4
    width: int = 256
    heads: int = 8
    groups: int = 2
    size: int = 32
    inner: int = 704
    words: int = 2000


TINY = Sizes()
SMALL = Sizes(30, 576, 9, 3, 64, 1536, 49152)  # 0.13 billion
LARGE = Sizes(32, 960, 15, 5, 64, 2560, 49152)  # 0.36 billion


class _Decoder:
    """Writes a decoder; `linear` makes a product with weights [inputs, outputs]."""

    def __init__(self, sizes: Sizes, kind: int = FLOAT, bits: int = 0) -> None:
        self.w, self.sizes, self.kind, self.bits = Writer(), sizes, kind, bits
        self.dtype = np.float16 if kind == TensorProto.FLOAT16 else np.float32

    def weight(self, *shape: int, scale: float | None = None) -> str:
        scale = scale or shape[0] ** -0.5
        return self.w.weight(self.w.random.standard_normal(shape, np.float32) * scale, self.dtype)

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        w = self.w
        if not self.bits:
            return str(w.node("MatMul", x, self.weight(inputs, outputs)))
        block = 32
        count = -(-inputs // block)
        packed = w.weight(w.random.integers(0, 256, (outputs, count, block * self.bits // 8), np.uint8), np.uint8)
        scales = w.weight(np.full(outputs * count, 0.2 * inputs**-0.5), self.dtype)
        how = {"K": inputs, "N": outputs, "bits": self.bits, "block_size": block, "accuracy_level": 4, "domain": MS}
        return str(w.node("MatMulNBits", x, packed, scales, **how))

    def turns(self) -> list[str]:
        """Cosines and sines of angles, [places, half a head]."""
        rates = 10000.0 ** -(np.arange(0, self.sizes.size, 2) / self.sizes.size)
        angles = np.arange(LONGEST)[:, None] * rates
        return [self.w.weight(f(angles), self.dtype) for f in (np.cos, np.sin)]

    def gated(self, x: str) -> str:
        s, w = self.sizes, self.w
        gate, up = (self.linear(x, s.width, s.inner) for _ in range(2))
        y = w.node("Mul", w.node("Mul", gate, w.node("Sigmoid", gate)), up)
        return self.linear(y, s.inner, s.width)

    def model(
        self, logits: str, caches: list[tuple[str, str]], inputs: dict[str, Any], past: Any, present: Any, opset: int
    ) -> Any:
        w, s = self.w, self.sizes
        w.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
        outputs: dict[str, Any] = {"logits": (self.kind, ["batch", "length", s.words])}
        for i, names in enumerate(caches):
            for name, kind in zip(names, ("key", "value"), strict=True):
                inputs[f"past.{i}.{kind}"] = (self.kind, past)
                w.nodes.append(helper.make_node("Identity", [name], [f"present.{i}.{kind}"]))
                outputs[f"present.{i}.{kind}"] = (self.kind, present)
        model = w.model(inputs, outputs, opset)
        model.opset_import.append(helper.make_opsetid(MS, 1))
        model.ir_version = 10
        return model


def fused(sizes: Sizes, kind: int = FLOAT, bits: int = 0) -> onnx.ModelProto:
    """GroupQueryAttention with `seqlens_k`, SkipSimplifiedLayerNormalization; products with `bits` bits a weight, or floats."""
    d, s = _Decoder(sizes, kind, bits), sizes
    w = d.w
    mask = w.node("ReduceSum", "attention_mask", w.ints(1), keepdims=1)
    last = w.node("Cast", w.node("Sub", mask, w.ints(1)), to=TensorProto.INT32)
    total = w.node("Cast", w.node("Gather", w.node("Shape", "attention_mask"), w.weight(1, np.int64)), to=TensorProto.INT32)
    turns, scale = d.turns(), w.weight(np.ones(s.width), d.dtype)
    x = w.node("Gather", d.weight(s.words, s.width, scale=0.1), "input_ids")
    y, caches = w.node("SimplifiedLayerNormalization", x, scale, epsilon=1e-5, axis=-1), []
    how = {"num_heads": s.heads, "kv_num_heads": s.groups, "do_rotary": 1, "domain": MS}
    for i in range(s.layers):
        q, k, v = (d.linear(y, s.width, n * s.size) for n in (s.heads, s.groups, s.groups))
        past = (f"past.{i}.key", f"past.{i}.value")
        a, *present = w.node("GroupQueryAttention", q, k, v, *past, last, total, *turns, outputs=3, **how)
        caches.append(tuple(present))
        for make in (lambda z: d.linear(z, s.heads * s.size, s.width), d.gated):
            names = [w.name("y"), "", "", w.name("x")]
            w.nodes.append(
                helper.make_node("SkipSimplifiedLayerNormalization", [x, make(y if make is d.gated else a), scale], names,
                                 domain=MS, epsilon=1e-5)
            )  # fmt: skip
            y, x = names[0], names[3]
    logits = d.linear(y, s.width, s.words)
    inputs = {"input_ids": (INT64, ["batch", "length"]), "attention_mask": (INT64, ["batch", "total"])}
    past, present = (["batch", s.groups, n, s.size] for n in ("past", "present"))
    return d.model(logits, caches, inputs, past, present, 17)


def static(sizes: Sizes) -> onnx.ModelProto:
    """Caches [batch, groups, LONGEST, size] into which ScatterND writes rows at `cache_position`, plain attention over all."""
    d, s = _Decoder(sizes), sizes
    w = d.w
    places = w.node("Unsqueeze", "cache_position", w.ints(1))
    columns = w.node("Unsqueeze", w.weight(np.arange(LONGEST), np.int64), w.ints(0))
    bias = w.node("Where", w.node("LessOrEqual", columns, places), w.weight(0), w.weight(np.finfo(np.float32).min))
    turns = [w.node("Gather", w.node("Concat", t, t, axis=1), "cache_position") for t in d.turns()]
    scale, caches = w.weight(np.ones(s.width)), []
    x = w.node("Gather", d.weight(s.words, s.width, scale=0.1), "input_ids")

    def norm(z: str) -> str:
        mean = w.node("ReduceMean", w.node("Pow", z, w.weight(2)), w.ints(-1))
        root = w.node("Sqrt", w.node("Add", mean, w.weight(1e-5)))
        return str(w.node("Mul", w.node("Div", z, root), scale))

    def heads(z: str, count: int) -> str:
        return str(w.node("Transpose", w.node("Reshape", z, w.ints(0, 0, count, s.size)), perm=[0, 2, 1, 3]))

    def turned(z: str) -> str:
        half = s.size // 2
        low, high = (
            w.node("Slice", z, w.ints(0), w.ints(half), w.ints(3)),
            w.node("Slice", z, w.ints(half), w.ints(2**40), w.ints(3)),
        )
        other = w.node("Concat", w.node("Neg", high), low, axis=3)
        return str(w.node("Add", w.node("Mul", z, turns[0]), w.node("Mul", other, turns[1])))

    def repeated(z: str) -> str:
        wide = w.node("Expand", w.node("Unsqueeze", z, w.ints(2)), w.ints(1, 1, s.heads // s.groups, 1, 1))
        return str(w.node("Reshape", wide, w.ints(0, s.heads, LONGEST, s.size)))

    for i in range(s.layers):
        y = norm(x)
        q, k, v = (heads(d.linear(y, s.width, n * s.size), n) for n in (s.heads, s.groups, s.groups))
        q, k = turned(q), turned(k)
        present = []
        for past, new in ((f"past.{i}.key", k), (f"past.{i}.value", v)):
            by_place = w.node("Transpose", past, perm=[2, 0, 1, 3])
            made = w.node("ScatterND", by_place, places, w.node("Transpose", new, perm=[2, 0, 1, 3]))
            present.append(w.node("Transpose", made, perm=[1, 2, 0, 3]))
        caches.append(tuple(present))
        keys, values = (repeated(z) for z in present)
        scores = w.node("MatMul", q, w.node("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = w.node("Add", w.node("Mul", scores, w.weight(s.size**-0.5)), bias)
        a = w.node("MatMul", w.node("Softmax", scores, axis=-1), values)
        a = w.node("Reshape", w.node("Transpose", a, perm=[0, 2, 1, 3]), w.ints(0, 0, s.heads * s.size))
        x = w.node("Add", x, d.linear(a, s.heads * s.size, s.width))
        x = w.node("Add", x, d.gated(norm(x)))
    inputs = {"input_ids": (INT64, ["batch", "length"]), "cache_position": (INT64, ["length"])}
    kept = ["batch", s.groups, LONGEST, s.size]
    return d.model(d.linear(norm(x), s.width, s.words), caches, inputs, kept, kept, 18)


def reordered(model: onnx.ModelProto) -> onnx.ModelProto:
    """The decoder with an input `beam_idx` [batch] by which Gather picks rows of every past, as beam search needs it."""
    model.graph.input.append(helper.make_tensor_value_info("beam_idx", INT64, ["batch"]))
    names = [v.name for v in model.graph.input if v.name.startswith("past")]
    for node in model.graph.node:
        node.input[:] = [f"chosen_{n}" if n in names else n for n in node.input]
    picked = [helper.make_node("Gather", [n, "beam_idx"], [f"chosen_{n}"], axis=0) for n in names]
    nodes = [*picked, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _exported(make: Callable[[], Any]) -> onnx.ModelProto:
    import torch

    from cases.family import exported

    torch.manual_seed(0)
    family = make()
    if family.module:
        family.module.eval()
    return exported(family, False, 17)


def _llama(s: Sizes) -> Any:
    import transformers as hf

    from cases.family_text import cached

    config = hf.LlamaConfig(
        hidden_size=s.width, num_hidden_layers=s.layers, num_attention_heads=s.heads, num_key_value_heads=s.groups,
        head_dim=s.size, intermediate_size=s.inner, vocab_size=s.words, max_position_embeddings=LONGEST,
    )  # fmt: skip
    return cached(hf.LlamaForCausalLM(config), s.groups, s.size)


def _gpt2(layers: int, width: int, heads: int, words: int) -> Any:
    import transformers as hf

    from cases.family_text import TOKENS, cached

    config = hf.GPT2Config(n_embd=width, n_layer=layers, n_head=heads, vocab_size=words, n_positions=LONGEST, **TOKENS)
    return cached(hf.GPT2LMHeadModel(config), heads, width // heads)


def _seq2seq(kind: str, layers: int, width: int, heads: int, words: int) -> Any:
    import transformers as hf

    from cases.family_text import TOKENS, seq2seq

    size, how = width // heads, {"vocab_size": words, "decoder_start_token_id": 2, **TOKENS}
    parts = {"d_model": width, "encoder_layers": 1, "decoder_layers": layers, "encoder_attention_heads": heads,
             "decoder_attention_heads": heads, "encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width}  # fmt: skip
    if kind == "t5":
        config = hf.T5Config(d_model=width, d_kv=size, d_ff=4 * width, num_layers=layers, num_heads=heads, **how)
        return seq2seq(hf.T5ForConditionalGeneration(config), layers, heads, size, width)
    if kind == "bart":
        model = hf.BartForConditionalGeneration(hf.BartConfig(**parts, **how, max_position_embeddings=1024))
        return seq2seq(model, layers, heads, size, width)
    config = hf.WhisperConfig(**parts, **how, max_source_positions=1500, max_target_positions=1024)
    return seq2seq(hf.WhisperForConditionalGeneration(config), layers, heads, size, width, masked=False)


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "gpt2_tiny": lambda: _exported(lambda: _gpt2(4, 256, 8, 2000)),
    "gpt2_small": lambda: _exported(lambda: _gpt2(12, 768, 12, 50257)),
    "llama_tiny": lambda: _exported(lambda: _llama(TINY)),
    "llama_small": lambda: _exported(lambda: _llama(SMALL)),
    "whisper_tiny": lambda: _exported(lambda: _seq2seq("whisper", 4, 384, 6, 51865)),
    "whisper_small": lambda: _exported(lambda: _seq2seq("whisper", 6, 512, 8, 51865)),
    "t5_small": lambda: _exported(lambda: _seq2seq("t5", 6, 512, 8, 32128)),
    "bart_small": lambda: _exported(lambda: _seq2seq("bart", 6, 768, 12, 50265)),
    "fused_tiny": lambda: fused(TINY),
    "fused_small": lambda: fused(SMALL),
    "fused_small_16": lambda: fused(SMALL, TensorProto.FLOAT16),
    "fused_tiny_4": lambda: fused(TINY, bits=4),
    "fused_small_4": lambda: fused(SMALL, bits=4),
    "fused_large_4": lambda: fused(LARGE, bits=4),
    "static_tiny": lambda: static(TINY),
    "static_small": lambda: static(replace(SMALL, layers=12)),
    "beams_tiny": lambda: reordered(_exported(lambda: _gpt2(4, 256, 8, 2000))),
    "beams_small": lambda: reordered(_exported(lambda: _gpt2(6, 768, 12, 32128))),
}


def written(folder: Path, name: str) -> Path:
    """The model's file, written if it is not there."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save_model(MODELS[name](), path)
    return path
