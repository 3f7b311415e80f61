"""Encoders of text, letters and series for `families.py`, as transformers defines them."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch import Tensor

from cases.family import Axes, Calling, Family, Run, images

SIZES: dict[str, Any] = {
    "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 1024, "vocab_size": 2000,
}  # fmt: skip
TOKENS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _encoder(model: Any, *sizes: tuple[int, int], output: str = "last_hidden_state") -> Family:
    def forward(m: Any, ids: Tensor, mask: Tensor) -> Any:
        return getattr(m.model(input_ids=ids, attention_mask=mask), output)

    def run(batch: int, length: int) -> Run:
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[1:, length - length // 3 :] = 0
        return {"input_ids": torch.randint(5, 1990, (batch, length)), "attention_mask": mask}

    runs = [run(*size) for size in sizes or ((1, 128), (2, 48), (1, 77), (1, 128))]
    axes: Axes = {name: {0: "batch", 1: "length"} for name in runs[0]}
    return Family(Calling(forward, model=model), runs, axes, traced=1)


def bert() -> Family:
    return _encoder(hf.BertModel(hf.BertConfig(**SIZES)))


def albert() -> Family:
    return _encoder(hf.AlbertModel(hf.AlbertConfig(**SIZES, embedding_size=64)))


def electra() -> Family:
    return _encoder(hf.ElectraForPreTraining(hf.ElectraConfig(**SIZES, embedding_size=64)), output="logits")


def roberta_tagger() -> Family:
    config = hf.RobertaConfig(**SIZES, **TOKENS, num_labels=9)
    return _encoder(hf.RobertaForTokenClassification(config), output="logits")


def distilbert_choice() -> Family:
    config = hf.DistilBertConfig(dim=256, n_layers=3, n_heads=4, hidden_dim=1024, vocab_size=2000)
    return _encoder(hf.DistilBertForSequenceClassification(config), output="logits")


def modern_bert() -> Family:
    """Rotations, windows in two of three layers, gated layers without biases."""
    config = hf.ModernBertConfig(**SIZES, **TOKENS, cls_token_id=1, sep_token_id=2, local_attention=32)
    return _encoder(hf.ModernBertModel(config))


def deberta_v2() -> Family:
    config = hf.DebertaV2Config(**SIZES, relative_attention=True, position_buckets=32, pos_att_type=["p2c", "c2p"],
                                max_relative_positions=-1, norm_rel_ebd="layer_norm", share_att_key=True)  # fmt: skip
    return _encoder(hf.DebertaV2Model(config))


def xlnet() -> Family:
    config = hf.XLNetConfig(d_model=256, n_layer=3, n_head=4, d_inner=1024, vocab_size=2000)
    return _encoder(hf.XLNetModel(config))


def longformer() -> Family:
    config = hf.LongformerConfig(**SIZES, attention_window=64, max_position_embeddings=520)
    return _encoder(hf.LongformerModel(config), (1, 256), (1, 256))


def big_bird() -> Family:
    config = hf.BigBirdConfig(**SIZES, attention_type="original_full", max_position_embeddings=512)
    return _encoder(hf.BigBirdModel(config))


def t5_encoder() -> Family:
    config = hf.T5Config(d_model=256, d_kv=64, d_ff=704, num_layers=3, num_heads=4, vocab_size=2000, **TOKENS,
                         feed_forward_proj="gated-gelu")  # fmt: skip
    return _encoder(hf.T5EncoderModel(config))


def mobile_bert() -> Family:
    config = hf.MobileBertConfig(**SIZES | {"hidden_size": 512, "intermediate_size": 512}, embedding_size=128)
    return _encoder(hf.MobileBertModel(config))


def conv_bert() -> Family:
    """Convolutions whose filters each token computes, beside attention."""
    return _encoder(hf.ConvBertModel(hf.ConvBertConfig(**SIZES, embedding_size=128)))


def ro_former() -> Family:
    return _encoder(hf.RoFormerModel(hf.RoFormerConfig(**SIZES, embedding_size=256)))


def squeeze_bert() -> Family:
    return _encoder(hf.SqueezeBertModel(hf.SqueezeBertConfig(**SIZES, embedding_size=256)))


def mp_net() -> Family:
    """Relative places in buckets; the mean of states under the mask, of length 1 (sentence embeddings)."""

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = hf.MPNetModel(hf.MPNetConfig(**SIZES, **TOKENS))

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
            states = self.inside(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            mask = attention_mask[..., None].to(states.dtype)
            mean = (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
            return hf.modeling_outputs.BaseModelOutput(torch.nn.functional.normalize(mean, dim=1))

    return _encoder(Pooled())


def layout_lm() -> Family:
    """Places of boxes on a page beside tokens."""
    config = hf.LayoutLMConfig(**SIZES, max_2d_position_embeddings=1024)

    def forward(m: Any, ids: Tensor, boxes: Tensor, mask: Tensor) -> Tensor:
        return m.model(input_ids=ids, bbox=boxes, attention_mask=mask).last_hidden_state

    def run(batch: int, length: int) -> Run:
        corner = torch.randint(0, 500, (batch, length, 2))
        boxes = torch.cat([corner, corner + torch.randint(1, 400, corner.shape)], 2)
        ids = torch.randint(5, 1990, (batch, length))
        return {"input_ids": ids, "bbox": boxes, "attention_mask": torch.ones_like(ids)}

    axes: Axes = {name: {0: "batch", 1: "length"} for name in ("input_ids", "bbox", "attention_mask")}
    return Family(Calling(forward, model=hf.LayoutLMModel(config)), [run(1, 128), run(2, 30)], axes, traced=1)


def tr_ocr() -> Family:
    """An image's patches and the letters so far to the next letters."""
    vision = hf.ViTConfig(
        hidden_size=192, num_hidden_layers=3, num_attention_heads=3, intermediate_size=768, image_size=(64, 256)
    )
    text = hf.TrOCRConfig(vocab_size=2000, d_model=192, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=512,
                          cross_attention_hidden_size=192, is_decoder=True, add_cross_attention=True, **TOKENS)  # fmt: skip
    parts = {"encoder": hf.ViTModel(vision, add_pooling_layer=False), "decoder": hf.TrOCRForCausalLM(text)}

    def forward(m: Any, pixels: Tensor, ids: Tensor) -> Tensor:
        states = m.encoder(pixel_values=pixels).last_hidden_state
        return m.decoder(input_ids=ids, encoder_hidden_states=states, use_cache=False).logits

    def run(batch: int, length: int) -> Run:
        return {"pixel_values": torch.randn(batch, 3, 64, 256), "input_ids": torch.randint(5, 1990, (batch, length))}

    axes: Axes = {"pixel_values": {0: "batch"}, "input_ids": {0: "batch", 1: "length"}}
    return Family(Calling(forward, **parts), [run(1, 12), run(2, 5)], axes, traced=1)


def patch_mixer() -> Family:
    config = hf.PatchTSMixerConfig(num_input_channels=7, context_length=128, patch_length=16, patch_stride=8,
                                   prediction_length=24, d_model=64, num_layers=4, gated_attn=False)  # fmt: skip

    def forward(m: Any, x: Tensor) -> Tensor:
        return m.model(past_values=x).prediction_outputs

    model = hf.PatchTSMixerForPrediction(config)
    return Family(Calling(forward, model=model), *images("x", (4, 128, 7), (1, 128, 7), axes={0: "batch"}))


FAMILIES = (
    bert, albert, electra, roberta_tagger, distilbert_choice, modern_bert, deberta_v2, xlnet, longformer, big_bird,
    t5_encoder, mobile_bert, conv_bert, ro_former, squeeze_bert, mp_net, layout_lm, tr_ocr, patch_mixer,
)  # fmt: skip
