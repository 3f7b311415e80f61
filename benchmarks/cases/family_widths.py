"""Models of transformers for `families.py` at the widths that people deploy, cut in depth."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from cases.family import Calling, Family, Run, by_export, images


def _vision(model: Any, *shapes: tuple[int, ...], outputs: tuple[str, ...] = ("last_hidden_state",)) -> Family:
    def forward(m: Any, x: Tensor) -> Any:
        out = m.model(pixel_values=x)
        return tuple(getattr(out, name) for name in outputs)

    return Family(Calling(forward, model=model), *images("pixel_values", *shapes, axes={0: "batch"}))


def sig_lip() -> Family:
    """The vision tower with its pool by attention; 196 patches of 768."""
    config = hf.SiglipVisionConfig(num_hidden_layers=3)
    return _vision(hf.SiglipVisionModel(config), (1, 3, 224, 224), (8, 3, 224, 224), outputs=("pooler_output",))


def dinov3_vit() -> Family:
    """Rotations by places, registers, gated layers; 416x416."""
    config = hf.DINOv3ViTConfig(num_hidden_layers=3, use_gated_mlp=True, num_register_tokens=4, image_size=416)
    return _vision(hf.DINOv3ViTModel(config), (1, 3, 416, 416), (2, 3, 416, 416))


def dinov3_conv_next() -> Family:
    config = hf.DINOv3ConvNextConfig(depths=[1, 1, 3, 1])
    return _vision(hf.DINOv3ConvNextModel(config), (1, 3, 256, 256), (2, 3, 256, 256))


def florence_vision() -> Family:
    """DaViT: attention over windows, then over channels, with depthwise convolutions between."""
    config = hf.Florence2VisionConfig(depths=(1, 1, 2, 1))
    model = hf.models.florence2.modeling_florence2.Florence2VisionBackbone(config)

    def forward(m: Any, x: Tensor) -> Tensor:
        return m.model(x).last_hidden_state

    return Family(Calling(forward, model=model), [{"image": torch.randn(1, 3, 384, 384)} for _ in "12"], {})


def hiera() -> Family:
    config = hf.HieraConfig(depths=[1, 2, 3, 1])
    return _vision(hf.HieraModel(config), (1, 3, 224, 224), (4, 3, 224, 224))


def swift_former() -> Family:
    return _vision(hf.SwiftFormerModel(hf.SwiftFormerConfig()), (1, 3, 224, 224), (2, 3, 224, 224))


def super_point() -> Family:
    """A VGG over a grey picture, 65 classes of each eight by eight pixels, and the largest around each pixel."""

    def forward(m: Any, x: Tensor) -> Any:
        y = m.model.encoder(x).last_hidden_state
        points, places = m.model.keypoint_decoder, m.model.descriptor_decoder
        scores = points.conv_score_b(torch.relu(points.conv_score_a(y))).softmax(1)[:, :-1]
        scores = F.pixel_shuffle(scores, 8)
        return (
            scores,
            F.max_pool2d(scores, 9, 1, 4),
            F.normalize(places.conv_descriptor_b(torch.relu(places.conv_descriptor_a(y))), dim=1),
        )

    module = Calling(forward, model=hf.SuperPointForKeypointDetection(hf.SuperPointConfig()))
    return Family(module, *images("image", (1, 1, 240, 320), (1, 1, 480, 640), axes={2: "height", 3: "width"}))


def _detector(model: Any, *shapes: tuple[int, ...]) -> Family:
    return _vision(model, *shapes, outputs=("logits", "pred_boxes"))


def rt_detr_v2() -> Family:
    """Hybrid encoder over three scales, then queries that sample; 480x480."""
    backbone = hf.RTDetrResNetConfig(
        depths=[2, 2, 2, 2], layer_type="basic", hidden_sizes=[64, 128, 256, 512], out_features=["stage2", "stage3", "stage4"]
    )
    config = hf.RTDetrV2Config(
        backbone_config=backbone, encoder_in_channels=[128, 256, 512], decoder_layers=2, num_queries=300, num_labels=80
    )
    return _detector(hf.RTDetrV2ForObjectDetection(config), (1, 3, 480, 480))


def d_fine() -> Family:
    """HGNet v2, and boxes as distributions that layers refine; 480x480."""
    config = hf.DFineConfig(decoder_layers=2, num_labels=80)
    return _detector(hf.DFineForObjectDetection(config), (1, 3, 480, 480))


def mobile_vit_v2() -> Family:
    """Separable attention over patches that Col2Im folds back; written by torch.export at opset 18."""
    return by_export(_vision(hf.MobileViTV2Model(hf.MobileViTV2Config(image_size=256)), (1, 3, 256, 256)), 18)


def dac_codec() -> Family:
    """Snakes between convolutions of one axis, encoder and decoder, at the real rates."""

    def forward(m: Any, x: Tensor) -> Tensor:
        return m.model.decoder(m.model.encoder(x))

    model = hf.DacModel(hf.DacConfig(encoder_hidden_size=48, decoder_hidden_size=768))
    runs = [{"sound": torch.randn(b, 1, n)} for b, n in ((1, 10240), (2, 5120))]
    return Family(Calling(forward, model=model), runs, {"sound": {0: "batch", 2: "samples"}})


def _sound(model: Any, *shapes: tuple[int, ...], name: str = "input_values", output: str = "last_hidden_state") -> Family:
    def forward(m: Any, x: Tensor) -> Tensor:
        return getattr(m.model(**{name: x}), output)

    runs = [{"sound": torch.randn(*shape)} for shape in shapes]
    return Family(Calling(forward, model=model), runs, {"sound": {0: "batch", 1: "length"}})


def parakeet_ctc() -> Family:
    """FastConformer: an eighth of the frames by depthwise windows, relative places, 1.6 to 3.3 s."""
    config = hf.ParakeetEncoderConfig(hidden_size=512, num_hidden_layers=3, num_attention_heads=8, intermediate_size=2048)
    return _sound(hf.ParakeetEncoder(config), (1, 333, 80), (2, 160, 80), name="input_features")


def seamless_speech() -> Family:
    """wav2vec2-BERT: filter banks, relative keys."""
    config = hf.Wav2Vec2BertConfig(hidden_size=512, num_hidden_layers=3, num_attention_heads=8, intermediate_size=2048)
    return _sound(hf.Wav2Vec2BertModel(config), (1, 200, 160), (2, 77, 160), name="input_features")


def clap_audio() -> Family:
    """HTSAT: spectrograms folded into a square, then windows of a Swin."""
    config = hf.ClapAudioConfig(depths=[1, 1, 2, 1], enable_fusion=False)

    def forward(m: Any, x: Tensor) -> Tensor:
        return m.model(input_features=x).pooler_output

    runs = [{"spectrogram": torch.randn(b, 1, 1001, 64)} for b in (1, 2)]
    return Family(Calling(forward, model=hf.ClapAudioModel(config)), runs, {"spectrogram": {0: "batch"}})


def music_gen_step() -> Family:
    """Four code books at once, attention to a text of 13 tokens, one step without a cache over 50."""
    config = hf.MusicgenDecoderConfig(
        hidden_size=768, ffn_dim=3072, num_hidden_layers=3, num_attention_heads=12, vocab_size=2048
    )

    def forward(m: Any, ids: Tensor, text: Tensor, mask: Tensor) -> Tensor:
        out = m.model(input_ids=ids, encoder_hidden_states=text, encoder_attention_mask=mask, use_cache=False)
        return out.logits

    def run(n: int, t: int) -> Run:
        ids = torch.randint(0, 2048, (4, n))
        return {"ids": ids, "text": torch.randn(1, t, 768), "mask": torch.ones(1, t, dtype=torch.int64)}

    axes = {"ids": {1: "length"}, "text": {1: "words"}, "mask": {1: "words"}}
    return Family(Calling(forward, model=hf.MusicgenForCausalLM(config)), [run(50, 13), run(7, 20)], axes)


def gli_ner() -> Family:
    """A tagger of any label: DeBERTa over labels and text, an LSTM, spans of up to 12 words against labels (Einsum)."""
    config = hf.DebertaV2Config(
        hidden_size=384,
        num_hidden_layers=3,
        num_attention_heads=6,
        intermediate_size=1536,
        vocab_size=8000,
        relative_attention=True,
        position_buckets=256,
        pos_att_type=["p2c", "c2p"],
        max_relative_positions=-1,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
    )

    def forward(m: Any, ids: Tensor, mask: Tensor, words: Tensor, labels: Tensor, spans: Tensor) -> Tensor:
        states = m.model(input_ids=ids, attention_mask=mask).last_hidden_state
        of = states.shape[-1]
        text = torch.gather(states, 1, words.unsqueeze(-1).expand(-1, -1, of))
        text, _ = m.lstm(text)
        kinds = m.kinds(torch.gather(states, 1, labels.unsqueeze(-1).expand(-1, -1, of)))
        start, end = m.start(text), m.end(text)
        first, last = (torch.gather(x, 1, spans[..., i].unsqueeze(-1).expand(-1, -1, of)) for i, x in enumerate((start, end)))
        both = m.both(torch.relu(torch.cat((first, last), -1))).unflatten(1, (-1, 12))
        return torch.einsum("blkd,bcd->blkc", both, kinds)

    two = lambda a: nn.Sequential(nn.Linear(a, 768), nn.ReLU(), nn.Linear(768, 384))  # noqa: E731
    parts = {"start": two(384), "end": two(384), "both": two(768), "kinds": two(384)}
    module = Calling(
        forward, model=hf.DebertaV2Model(config), lstm=nn.LSTM(384, 192, bidirectional=True, batch_first=True), **parts
    )

    def run(b: int, n: int, words: int, labels: int) -> Run:
        start = torch.arange(words).repeat_interleave(12)
        spans = torch.stack((start, (start + torch.arange(12).repeat(words)).clamp(max=words - 1)), -1)
        return {
            "input_ids": torch.randint(5, 7990, (b, n)),
            "attention_mask": torch.ones(b, n, dtype=torch.int64),
            "words": torch.arange(n - words, n).repeat(b, 1),
            "labels": torch.arange(labels).repeat(b, 1) * 2,
            "spans": spans.repeat(b, 1, 1),
        }

    axes = {name: {0: "batch", 1: "length"} for name in ("input_ids", "attention_mask")}
    axes |= {"words": {0: "batch", 1: "words"}, "labels": {0: "batch", 1: "labels"}, "spans": {0: "batch", 1: "spans"}}
    return Family(module, [run(1, 150, 100, 8), run(3, 77, 40, 5)], axes)


def splade() -> Family:
    """A weight for each word of the vocabulary: the largest log(1 + relu) over the text."""
    config = hf.BertConfig(hidden_size=384, num_hidden_layers=3, num_attention_heads=6, intermediate_size=1536)

    def forward(m: Any, ids: Tensor, mask: Tensor) -> Tensor:
        logits = m.model(input_ids=ids, attention_mask=mask).logits
        return torch.max(torch.log1p(torch.relu(logits)) * mask.unsqueeze(-1), 1).values

    return _texts(Calling(forward, model=hf.BertForMaskedLM(config)))


def colbert() -> Family:
    """Late interaction: tokens of questions and passages, scaled to length 1, and the largest product of each."""
    config = hf.BertConfig(hidden_size=384, num_hidden_layers=3, num_attention_heads=6, intermediate_size=1536)

    def forward(m: Any, ids: Tensor, mask: Tensor, asked: Tensor) -> Tensor:
        states = m.out(m.model(input_ids=ids, attention_mask=mask).last_hidden_state)
        keep = mask * (ids != 7).to(mask.dtype)
        states = F.normalize(states * keep.unsqueeze(-1), p=2.0, dim=-1)
        scores = torch.einsum("qd,bnd->bqn", asked, states)
        return scores.masked_fill(keep.unsqueeze(1) == 0, -9999.0).amax(-1).sum(-1)

    family = _texts(Calling(forward, model=hf.BertModel(config), out=nn.Linear(384, 128, bias=False)))
    runs = [run | {"asked": F.normalize(torch.randn(32, 128), dim=-1)} for run in family.runs]
    return Family(family.module, runs, family.axes)


def cross_encoder() -> Family:
    """MiniLM over eight pairs of 200 tokens, to one score each."""
    config = hf.BertConfig(hidden_size=384, num_hidden_layers=3, num_attention_heads=12, intermediate_size=1536, num_labels=1)

    def forward(m: Any, ids: Tensor, mask: Tensor) -> Tensor:
        kinds = (torch.cumsum((ids == 6).to(torch.int64), 1) > 0).to(torch.int64)
        return torch.sigmoid(m.model(input_ids=ids, attention_mask=mask, token_type_ids=kinds).logits)

    return _texts(Calling(forward, model=hf.BertForSequenceClassification(config)), (8, 200), (3, 77))


def _texts(module: nn.Module, *sizes: tuple[int, int]) -> Family:
    def run(b: int, n: int) -> Run:
        mask = torch.ones(b, n, dtype=torch.int64)
        mask[1:, n - n // 4 :] = 0
        return {"input_ids": torch.randint(5, 30000, (b, n)), "attention_mask": mask}

    runs = [run(*size) for size in sizes or ((1, 200), (4, 77))]
    return Family(module, runs, {name: {0: "batch", 1: "length"} for name in runs[0]}, traced=1)


def times_fm() -> Family:
    """Patches of a series through a decoder with scaled queries: 512 values to 128 and their quantiles."""
    config = hf.TimesFmConfig(hidden_size=640, intermediate_size=640, num_hidden_layers=4, num_attention_heads=8, head_dim=80)
    model = hf.TimesFmModel(config)

    def forward(m: Any, values: Tensor, padding: Tensor, kind: Tensor) -> Tensor:
        return m.model(past_values=values, past_values_padding=padding, freq=kind).last_hidden_state

    runs = [
        {"values": torch.randn(b, 512).cumsum(1), "padding": torch.zeros(b, 512), "kind": torch.zeros(b, 1, dtype=torch.int64)}
        for b in (1, 8)
    ]
    return Family(Calling(forward, model=model), runs, {name: {0: "batch"} for name in runs[0]}, traced=1)


def short_convolutions() -> Family:
    """LFM2: gated convolutions of three taps beside grouped attention, a prompt of 77."""
    config = hf.Lfm2Config(
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        vocab_size=8000,
        layer_types=["conv", "conv", "full_attention", "conv"],
    )

    def forward(m: Any, ids: Tensor) -> Tensor:
        return m.model(input_ids=ids, use_cache=False).logits

    plain = Family(
        Calling(forward, model=hf.Lfm2ForCausalLM(config)), [{"ids": torch.randint(5, 7990, (1, 77))} for _ in "12"], {}
    )
    return by_export(plain, 18)


def x_lstm() -> Family:
    """Matrix memories, computed for all steps at once."""
    config = hf.xLSTMConfig(hidden_size=384, num_hidden_layers=2, num_heads=6, vocab_size=8000, chunk_size=64)

    def forward(m: Any, ids: Tensor) -> Tensor:
        return m.model(input_ids=ids, use_cache=False)[0]

    runs = [{"ids": torch.randint(5, 7990, (1, 128))} for _ in "12"]
    return Family(Calling(forward, model=hf.xLSTMModel(config)), runs, {})


def ocr_detector_v5() -> Family:
    """PP-LCNet v3 with its large-kernel neck, 480x640."""
    config = hf.PPOCRV5MobileDetConfig()
    return _vision(hf.PPOCRV5MobileDetForObjectDetection(config), (1, 3, 480, 640))


def mimi_codec() -> Family:
    """SEANet with a transformer within, encoder to decoder."""
    config = hf.MimiConfig(num_hidden_layers=2)

    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.model.encoder(x)[0]
        y = m.model.encoder_transformer(y.transpose(1, 2))[0].transpose(1, 2)
        y = m.model.downsample(y)
        y = m.model.upsample(y)
        return m.model.decoder(y)[0]

    return Family(Calling(forward, model=hf.MimiModel(config)), [{"sound": torch.randn(1, 1, 19200)} for _ in "12"], {})


def v_jepa2() -> Family:
    """Tubes of 8 frames of 160x160 with rotations along three axes."""
    config = hf.VJEPA2Config(
        hidden_size=384,
        num_hidden_layers=3,
        num_attention_heads=6,
        crop_size=160,
        frames_per_clip=8,
        pred_num_hidden_layers=1,
        pred_hidden_size=192,
        pred_num_attention_heads=6,
    )

    def forward(m: Any, x: Tensor) -> Tensor:
        return m.model(pixel_values_videos=x, skip_predictor=True).last_hidden_state

    return Family(Calling(forward, model=hf.VJEPA2Model(config)), [{"video": torch.randn(1, 8, 3, 160, 160)} for _ in "12"], {})


def sam2_encoder() -> Family:
    """Hiera with pooled queries and a pyramid; 512x512."""
    from transformers.models.sam2 import Sam2HieraDetConfig, Sam2VisionConfig, Sam2VisionModel

    config = Sam2VisionConfig(backbone_config=Sam2HieraDetConfig(blocks_per_stage=[1, 2, 3, 1], image_size=[512, 512]))

    def forward(m: Any, x: Tensor) -> Any:
        out = m.model(pixel_values=x)
        return tuple(out.fpn_hidden_states)

    return Family(Calling(forward, model=Sam2VisionModel(config)), [{"image": torch.randn(1, 3, 512, 512)} for _ in "12"], {})


FAMILIES = (
    sig_lip, dinov3_vit, dinov3_conv_next, florence_vision, hiera, swift_former, super_point, rt_detr_v2, d_fine,
    mobile_vit_v2, dac_codec, parakeet_ctc, seamless_speech, clap_audio, music_gen_step, gli_ner, splade,
    colbert, cross_encoder, times_fm, short_convolutions, x_lstm, ocr_detector_v5, mimi_codec, v_jepa2,
    sam2_encoder,
)  # fmt: skip
