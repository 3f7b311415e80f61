"""Language models for `families.py`: decoders with caches, encoders and decoders, states of recurrences, experts."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch import Tensor

from cases.family import Calling, Family, Run
from cases.merged_decoder import merged

SIZES: dict[str, Any] = {
    "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 704, "vocab_size": 2000,
}  # fmt: skip
TOKENS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def words(batch: int, length: int, vocabulary: int = 2000) -> Tensor:
    return torch.randint(5, vocabulary - 5, (batch, length))


def cached(model: Any, heads: int, size: int, masked: bool = True) -> Family:
    """A decoder as programs for generation call it: new tokens, a mask over all, positions, keys and values of each layer."""
    layers = model.config.num_hidden_layers

    def forward(m: Any, ids: Tensor, mask: Tensor, positions: Tensor, *past: Tensor) -> Any:
        cache = hf.DynamicCache()
        for i in range(layers):
            cache.update(past[2 * i], past[2 * i + 1], i)
        out = m.model(input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True)
        return (out.logits, *(x for layer in cache.layers for x in (layer.keys, layer.values)))

    def run(batch: int, length: int, past: int) -> Run:
        mask = torch.ones(batch, past + length, dtype=torch.int64)
        mask[1:, : past // 3] = 0  # left padding of other rows
        positions = torch.arange(past, past + length)[None].repeat(batch, 1)
        caches = {f"past.{i}.{kv}": torch.randn(batch, heads, past, size) for i in range(layers) for kv in ("key", "value")}
        return {"input_ids": words(batch, length), "attention_mask": mask, "position_ids": positions, **caches}

    runs = [run(1, 1, 63), run(1, 1, 64), run(2, 7, 5), run(1, 16, 0), run(3, 1, 129), run(1, 1, 65)]
    axes = {"input_ids": {0: "batch", 1: "length"}, "attention_mask": {0: "batch", 1: "total"}}
    axes["position_ids"] = axes["input_ids"]
    axes |= {name: {0: "batch", 2: "past"} for name in runs[0] if name.startswith("past")}
    names = ("logits", *(name.replace("past", "present") for name in runs[0] if name.startswith("past")))
    return Family(Calling(forward, model=model), runs, axes, names, traced=2)


def llama() -> Family:
    config = hf.LlamaConfig(**SIZES, num_key_value_heads=2, max_position_embeddings=512)
    return cached(hf.LlamaForCausalLM(config), 2, 32)


def qwen2() -> Family:
    config = hf.Qwen2Config(**SIZES, num_key_value_heads=2, max_position_embeddings=512)
    return cached(hf.Qwen2ForCausalLM(config), 2, 32)


def qwen3() -> Family:
    config = hf.Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=64, max_position_embeddings=512)
    return cached(hf.Qwen3ForCausalLM(config), 2, 64)


def gemma3() -> Family:
    config = hf.Gemma3TextConfig(**SIZES, num_key_value_heads=2, head_dim=64, sliding_window=32)
    return cached(hf.Gemma3ForCausalLM(config), 2, 64)


def phi3() -> Family:
    config = hf.Phi3Config(**SIZES, **TOKENS, num_key_value_heads=4, max_position_embeddings=512)
    return cached(hf.Phi3ForCausalLM(config), 4, 32)


def mixtral() -> Family:
    config = hf.MixtralConfig(**SIZES, num_key_value_heads=2, num_local_experts=4)
    config._experts_implementation = "batched_mm"  # the other way's loop over chosen experts is traced as it went
    return cached(hf.MixtralForCausalLM(config), 2, 32)


def qwen3_experts() -> Family:
    config = hf.Qwen3MoeConfig(**SIZES, num_key_value_heads=2, head_dim=32, num_experts=8, num_experts_per_tok=2,
                               moe_intermediate_size=128)  # fmt: skip
    config._experts_implementation = "batched_mm"
    return cached(hf.Qwen3MoeForCausalLM(config), 2, 32)


def gpt2() -> Family:
    config = hf.GPT2Config(n_embd=256, n_layer=4, n_head=8, vocab_size=2000, **TOKENS)
    return cached(hf.GPT2LMHeadModel(config), 8, 32)


def mamba() -> Family:
    config = hf.MambaConfig(hidden_size=256, num_hidden_layers=3, state_size=16, vocab_size=2000, use_mambapy=False)

    def forward(m: Any, ids: Tensor) -> Tensor:
        return m.model(input_ids=ids, use_cache=False).logits

    runs = [{"input_ids": words(1, 24)}, {"input_ids": words(2, 24)}]
    return Family(Calling(forward, model=hf.MambaForCausalLM(config)), runs, {"input_ids": {0: "batch"}})


def rwkv() -> Family:
    config = hf.RwkvConfig(hidden_size=256, num_hidden_layers=3, attention_hidden_size=256, vocab_size=2000)

    def forward(m: Any, ids: Tensor, *state: Tensor) -> Any:
        out = m.model(input_ids=ids, state=list(state), use_cache=True)
        return (out.logits, *out.state)

    def run(batch: int) -> Run:
        state = [torch.randn(batch, 256, 3) for _ in range(5)]
        return {"input_ids": words(batch, 1), **{f"state.{i}": x for i, x in enumerate(state)}}

    return Family(Calling(forward, model=hf.RwkvForCausalLM(config)), [run(1), run(1)], {})


ENCODED: dict[str, Any] = {
    "d_model": 256, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024, "vocab_size": 2000,
}  # fmt: skip


def seq2seq(model: Any, layers: int, heads: int, size: int, width: int, masked: bool = True) -> Family:
    """A decoder of two branches, as optimum writes it: the first tokens without a cache, or one more token behind caches."""

    def named(past: Any) -> Any:
        pairs = zip(past.self_attention_cache.layers, past.cross_attention_cache.layers, strict=True)
        return [x for own, cross in pairs for x in (own.keys, own.values, cross.keys, cross.values)]

    def call(m: Any, ids: Tensor, states: Tensor, mask: Tensor | None, cache: Any) -> Any:
        given = {"encoder_outputs": (states,), "decoder_input_ids": ids, "past_key_values": cache, "use_cache": True}
        out = m.model(**given, **({} if mask is None else {"attention_mask": mask}))
        return (out.logits, *named(out.past_key_values))

    def first(m: Any, ids: Tensor, states: Tensor, *mask: Tensor) -> Any:
        return call(m, ids, states, mask[0] if mask else None, hf.EncoderDecoderCache(hf.DynamicCache(), hf.DynamicCache()))

    def later(m: Any, ids: Tensor, states: Tensor, *rest: Tensor) -> Any:
        mask, past = (rest[0], rest[1:]) if masked else (None, rest)
        own, cross = hf.DynamicCache(), hf.DynamicCache()
        for i in range(layers):
            own.update(past[4 * i], past[4 * i + 1], i)
            cross.update(past[4 * i + 2], past[4 * i + 3], i)
        cache = hf.EncoderDecoderCache(own, cross)
        cache.is_updated = dict.fromkeys(range(layers), True)
        return call(m, ids, states, mask, cache)

    kinds = [f"{i}.{part}.{kv}" for i in range(layers) for part in ("decoder", "encoder") for kv in ("key", "value")]

    def run(batch: int, length: int, past: int, frames: int) -> Run:
        mask = torch.ones(batch, frames, dtype=torch.int64)
        mask[1:, frames - 2 :] = 0
        given: Run = {"input_ids": words(batch, length), "encoder_hidden_states": torch.randn(batch, frames, width)}
        if masked:
            given["encoder_attention_mask"] = mask
        for kind in kinds:
            keys = past if "decoder" in kind else frames if past else 0
            given[f"past.{kind}"] = torch.randn(batch, heads, keys, size)
        return given

    axes: dict[str, dict[int, str]] = {"input_ids": {0: "batch", 1: "length"}}
    axes["encoder_hidden_states"] = axes["encoder_attention_mask"] = {0: "batch", 1: "frames"}
    axes |= {f"past.{kind}": {0: "batch", 2: "past" if "decoder" in kind else "frames_out"} for kind in kinds}
    runs = [run(1, 1, 20, 40), run(2, 5, 0, 24), run(1, 1, 21, 40), run(1, 4, 0, 40), run(1, 1, 22, 40), run(3, 1, 7, 31)]
    outputs = ("logits", *(f"present.{kind}" for kind in kinds))
    return merged(Calling(first, model=model), Calling(later, model=model), runs, axes, outputs)


def whisper_decoder() -> Family:
    config = hf.WhisperConfig(**ENCODED, **TOKENS, decoder_start_token_id=1, max_source_positions=64)
    return seq2seq(hf.WhisperForConditionalGeneration(config), 3, 4, 64, 256, masked=False)


def whisper_encoder() -> Family:
    config = hf.WhisperConfig(**ENCODED | {"encoder_layers": 4}, **TOKENS, decoder_start_token_id=1, max_source_positions=500)

    def forward(m: Any, features: Tensor) -> Tensor:
        return m.model(features).last_hidden_state

    runs = [{"input_features": torch.randn(batch, 80, 1000)} for batch in (1, 2)]
    return Family(Calling(forward, model=hf.WhisperModel(config).encoder), runs, {"input_features": {0: "batch"}})


def bart_decoder() -> Family:
    config = hf.BartConfig(**ENCODED, **TOKENS, decoder_start_token_id=2, max_position_embeddings=128)
    return seq2seq(hf.BartForConditionalGeneration(config), 3, 4, 64, 256)


def marian_decoder() -> Family:
    config = hf.MarianConfig(**ENCODED, **TOKENS, decoder_start_token_id=0, max_position_embeddings=128)
    return seq2seq(hf.MarianMTModel(config), 3, 4, 64, 256)


def t5_decoder() -> Family:
    config = hf.T5Config(d_model=256, d_kv=64, d_ff=512, num_layers=3, num_heads=4, vocab_size=2000, **TOKENS,
                         decoder_start_token_id=0)  # fmt: skip
    return seq2seq(hf.T5ForConditionalGeneration(config), 3, 4, 64, 256)


FAMILIES = (
    llama, qwen2, qwen3, gemma3, phi3, mixtral, qwen3_experts, gpt2, mamba, rwkv, whisper_decoder, whisper_encoder,
    bart_decoder, marian_decoder, t5_decoder,
)  # fmt: skip
