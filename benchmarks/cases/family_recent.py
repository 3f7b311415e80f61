"""More models of transformers for `families.py`: decoders whose attention differs, speech encoders, detectors by queries."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch import Tensor

from cases.family import Calling, Family, images
from cases.family_text import SIZES, TOKENS, cached

SMALL: dict[str, Any] = SIZES | {"num_hidden_layers": 3}


def mistral() -> Family:
    """A window over the last tokens."""
    config = hf.MistralConfig(**SMALL, num_key_value_heads=2, head_dim=32, sliding_window=48, max_position_embeddings=512)
    return cached(hf.MistralForCausalLM(config), 2, 32)


def gemma2() -> Family:
    """Scores and logits capped by tanh, every other layer with a window."""
    config = hf.Gemma2Config(**SMALL, num_key_value_heads=2, head_dim=32, sliding_window=48, attn_implementation="eager")
    return cached(hf.Gemma2ForCausalLM(config), 2, 32)


def phi() -> Family:
    """Attention and layers beside each other, rotations of a part of each head."""
    config = hf.PhiConfig(**SMALL, **TOKENS, partial_rotary_factor=0.5, max_position_embeddings=512)
    return cached(hf.PhiForCausalLM(config), 8, 32)


def olmo2() -> Family:
    config = hf.Olmo2Config(**SMALL, **TOKENS, num_key_value_heads=2, max_position_embeddings=512)
    return cached(hf.Olmo2ForCausalLM(config), 2, 32)


def gpt_neox() -> Family:
    config = hf.GPTNeoXConfig(**SMALL, max_position_embeddings=512)
    return cached(hf.GPTNeoXForCausalLM(config), 8, 32)


def opt() -> Family:
    config = hf.OPTConfig(hidden_size=256, ffn_dim=704, num_hidden_layers=3, num_attention_heads=8, vocab_size=2000,
                          word_embed_proj_dim=256, max_position_embeddings=512, **TOKENS)  # fmt: skip
    return cached(hf.OPTForCausalLM(config), 8, 32)


def gpt_oss() -> Family:
    """Sinks beside the scores, experts, windows."""
    config = hf.GptOssConfig(**SMALL, num_key_value_heads=2, head_dim=32, num_local_experts=4, num_experts_per_tok=2,
                             sliding_window=48, max_position_embeddings=512)  # fmt: skip
    config._experts_implementation = "batched_mm"
    return cached(hf.GptOssForCausalLM(config), 2, 32)


def _speech(model: Any) -> Family:
    def forward(m: Any, samples: Tensor) -> Tensor:
        return m.model(samples).last_hidden_state

    runs = [{"samples": torch.randn(b, n)} for b, n in ((1, 16000), (2, 8000), (1, 16000))]
    return Family(Calling(forward, model=model), runs, {"samples": {0: "batch", 1: "length"}})


SPEECH: dict[str, Any] = {
    "hidden_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 512, "conv_dim": (64,) * 7,
    "num_conv_pos_embeddings": 32, "num_conv_pos_embedding_groups": 4,
}  # fmt: skip


def wav2vec2() -> Family:
    return _speech(hf.Wav2Vec2Model(hf.Wav2Vec2Config(**SPEECH)))


def hubert() -> Family:
    return _speech(hf.HubertModel(hf.HubertConfig(**SPEECH, feat_extract_norm="layer", do_stable_layer_norm=True)))


def _backbone() -> Any:
    return hf.ResNetConfig(embedding_size=32, hidden_sizes=[64, 128, 256, 512], depths=[1, 1, 1, 1], layer_type="basic",
                           out_features=["stage2", "stage3", "stage4"])  # fmt: skip


def _boxes(model: Any, *shapes: tuple[int, ...]) -> Family:
    def forward(m: Any, x: Tensor) -> Any:
        out = m.model(pixel_values=x)
        return out.logits, out.pred_boxes

    return Family(Calling(forward, model=model), *images("pixel_values", *shapes, axes={0: "batch"}))


def deformable_detr() -> Family:
    config = hf.DeformableDetrConfig(use_timm_backbone=False, backbone_config=_backbone(), d_model=64, encoder_layers=2,
                                     decoder_layers=2, encoder_ffn_dim=128, decoder_ffn_dim=128, num_queries=40,
                                     encoder_attention_heads=4, decoder_attention_heads=4, num_labels=10)  # fmt: skip
    return _boxes(hf.DeformableDetrForObjectDetection(config), (1, 3, 160, 160), (2, 3, 160, 160))


def vit_pose() -> Family:
    backbone = hf.VitPoseBackboneConfig(hidden_size=192, num_hidden_layers=4, num_attention_heads=6, image_size=(192, 128),
                                        out_indices=[4])  # fmt: skip
    config = hf.VitPoseConfig(backbone_config=backbone, num_labels=17, use_simple_decoder=False)

    def forward(m: Any, x: Tensor) -> Tensor:
        return m.model(pixel_values=x).heatmaps

    model = hf.VitPoseForPoseEstimation(config)
    return Family(Calling(forward, model=model), *images("x", (1, 3, 192, 128), (3, 3, 192, 128), axes={0: "batch"}))


FAMILIES = (
    mistral, gemma2, phi, olmo2, gpt_neox, opt, gpt_oss, wav2vec2, hubert, deformable_detr, vit_pose,
)  # fmt: skip
