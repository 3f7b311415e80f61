"""Decoders of several architectures, exported by torch under optimum's names: scores step by step and texts are torch's.

Nothing here, nor in the package, knows the architectures.
"""

from __future__ import annotations

import inspect
import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import intarsia as ort
from intarsia.generation import TextGenerator
from intarsia.generation.causal_decoder import CausalDecoder

torch = pytest.importorskip("torch", reason="models are exported by PyTorch")
transformers = pytest.importorskip("transformers", reason="language models are built by transformers")
pytest.importorskip("onnxscript", reason="torch exports through onnxscript")
pytest.importorskip("tokenizers", reason="text generation needs tokenizers (the extra 'generate')")

pytestmark = pytest.mark.models
SIZES: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


CONFIGS: dict[str, Callable[[], Any]] = {
    "Llama": lambda: transformers.LlamaConfig(**SIZES),
    "Qwen2": lambda: transformers.Qwen2Config(**SIZES),
    "Qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=8),
    "Gemma2": lambda: transformers.Gemma2Config(**SIZES, head_dim=8, query_pre_attn_scalar=8, sliding_window=8),
    "Phi3": lambda: transformers.Phi3Config(**SIZES),
    "NeoX": lambda: transformers.GPTNeoXConfig(**{k: v for k, v in SIZES.items() if k != "num_key_value_heads"}),
}  # fmt: skip


class Exported(torch.nn.Module):
    """Caches as tensors in and out, one by one."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.given = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"

    def forward(self, ids: Any, mask: Any, positions: Any, *past: Any) -> tuple[Any, ...]:
        cache = transformers.DynamicCache()
        for i in range(len(past) // 2):
            cache.update(past[2 * i], past[2 * i + 1], i)
        more = {"position_ids": positions} if "position_ids" in inspect.signature(self.model.forward).parameters else {}
        out = self.model(input_ids=ids, attention_mask=mask, use_cache=True, **{self.given: cache}, **more)
        return (out.logits, *(x for layer in cache.layers for x in (layer.keys, layer.values)))


def exported(name: str) -> tuple[Any, ort.InferenceSession]:
    """torch's model, and a session of it."""
    torch.manual_seed(0)
    config = CONFIGS[name]()
    config._attn_implementation = "eager" if name == "Gemma2" else "sdpa"
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    layers, batch, count, past = config.num_hidden_layers, 2, 3, 4
    caches = [torch.randn(batch, heads, past, size) for _ in range(2 * layers)]
    positions = torch.arange(past, past + count)[None].repeat(batch, 1)
    ids = torch.randint(3, 99, (batch, count))
    given = (ids, torch.ones(batch, past + count, dtype=torch.long), positions, *caches)
    pasts = [f"past_key_values.{i}.{what}" for i in range(layers) for what in ("key", "value")]
    names = ["input_ids", "attention_mask", "position_ids", *pasts]
    outputs = ["logits", *(n.replace("past_key_values", "present") for n in pasts)]
    axes = {
        "input_ids": {0: "batch_size", 1: "sequence_length"},
        "attention_mask": {0: "batch_size", 1: "total_sequence_length"},
        "position_ids": {0: "batch_size", 1: "sequence_length"},
        **{n: {0: "batch_size", 2: "past_sequence_length"} for n in pasts},
        **{n: {0: "batch_size", 2: "total_sequence_length"} for n in outputs[1:]},
        "logits": {0: "batch_size", 1: "sequence_length"},
    }
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Exported(model),
            given,
            file,
            input_names=names,
            output_names=outputs,
            dynamic_axes=axes,
            dynamo=False,
            opset_version=17,
        )
    return model, ort.InferenceSession(file.getvalue())


@pytest.mark.parametrize("name", CONFIGS)
def test_scores_and_texts(name: str) -> None:
    model, session = exported(name)
    tokens = [5, 80, 20, 17, 9, 33, 64, 71, 12, 40]  # more than Gemma's window
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([tokens])).logits[0].numpy()
    decoder = CausalDecoder(session)
    found = [decoder.begin([tokens[:4]])[0], *(decoder.advance(np.array([[t]]))[0] for t in tokens[4:])]
    np.testing.assert_allclose(np.stack(found), expected[3:], rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    fork = decoder.fork()
    decoder.rewind(3)
    np.testing.assert_allclose(
        decoder.advance(np.array([tokens[7:9]]), last=False)[0], expected[7:9], rtol=1e-4, atol=1e-4 * np.abs(expected).max()
    )
    assert fork.length == 10
    assert TextGenerator(session).generate(tokens, max_new_tokens=20).tokens == text_of(model, tokens, 20)


def text_of(model: Any, tokens: list[int], count: int) -> list[int]:
    ids = torch.tensor([tokens])
    with torch.no_grad():
        made = model.generate(
            ids, max_new_tokens=count, do_sample=False, attention_mask=torch.ones_like(ids), eos_token_id=None
        )
    return list(made[0, len(tokens) :].tolist())


def test_padded_batches_are_torch_s() -> None:
    model, session = exported("Llama")
    prompts = [[5, 80, 20, 17], [9, 33], [64]]
    found = TextGenerator(session).generate(prompts, max_new_tokens=8)
    for prompt, made in zip(prompts, found, strict=True):
        assert made.tokens == text_of(model, prompt, 8)


@pytest.mark.parametrize("penalty", [1.0, 2.0])
def test_beam_searches_are_torch_s(penalty: float) -> None:
    model, session = exported("Llama")
    tokens, generator = [5, 80, 20, 17], TextGenerator(session)
    generator.end_tokens = frozenset({2})
    ids = torch.tensor([tokens])
    for count in (5, 12):
        with torch.no_grad():
            made = model.generate(
                ids, max_new_tokens=count, do_sample=False, num_beams=4, length_penalty=penalty,
                attention_mask=torch.ones_like(ids), eos_token_id=2, pad_token_id=0,
            )[0, len(tokens) :].tolist()  # fmt: skip
        found = generator.generate(tokens, max_new_tokens=count, num_beams=4, length_penalty=penalty)
        assert found.tokens == made[: len(found.tokens)]
        assert not any(made[len(found.tokens) :])
