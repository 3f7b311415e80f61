"""Models of images for `families.py`: two towers, promptable masks, depth, diffusion, super-resolution, letters."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from cases.family import Calling, Family, images

TOWER: dict[str, Any] = {"hidden_size": 192, "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 6}


def clip() -> Family:
    text = TOWER | {"vocab_size": 1000, "max_position_embeddings": 77, "eos_token_id": 999}
    config = hf.CLIPConfig(text_config=text, vision_config=TOWER | {"image_size": 128, "patch_size": 16}, projection_dim=128)

    def forward(m: Any, ids: Tensor, pixels: Tensor, mask: Tensor) -> Any:
        out = m.model(input_ids=ids, pixel_values=pixels, attention_mask=mask)
        return out.logits_per_image, out.text_embeds, out.image_embeds

    def run(texts: int, length: int, pictures: int) -> dict[str, Tensor]:
        ids = torch.randint(3, 990, (texts, length))
        ids[:, -1] = 999
        mask = torch.ones(texts, length, dtype=torch.int64)
        return {"input_ids": ids, "pixel_values": torch.randn(pictures, 3, 128, 128), "attention_mask": mask}

    axes = {"input_ids": {0: "texts", 1: "length"}, "pixel_values": {0: "images"}, "attention_mask": {0: "texts", 1: "length"}}
    return Family(Calling(forward, model=hf.CLIPModel(config)), [run(2, 12, 1), run(3, 20, 2), run(1, 7, 3)], axes)


def blip_captions() -> Family:
    """The text decoder of a captioning model: cross-attention to the image's patches."""
    config = hf.BlipTextConfig(**TOWER, vocab_size=1000, encoder_hidden_size=192, max_position_embeddings=64, is_decoder=True)
    from transformers.models.blip.modeling_blip_text import BlipTextLMHeadModel

    def forward(m: Any, ids: Tensor, patches: Tensor) -> Tensor:
        return m.model(input_ids=ids, encoder_hidden_states=patches, use_cache=False, is_decoder=True).logits

    runs = [{"input_ids": torch.randint(3, 990, (b, n)), "patches": torch.randn(b, 65, 192)} for b, n in ((1, 9), (2, 14))]
    axes = {"input_ids": {0: "batch", 1: "length"}, "patches": {0: "batch"}}
    return Family(Calling(forward, model=BlipTextLMHeadModel(config)), runs, axes)


def _sam() -> Any:
    vision = {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 256, "window_size": 5,
              "global_attn_indexes": [2], "output_channels": 64, "mlp_dim": 384, "num_pos_feats": 32}  # fmt: skip
    prompt = {"hidden_size": 64, "image_size": 256, "patch_size": 16, "mask_input_channels": 8}
    mask = {"hidden_size": 64, "mlp_dim": 256, "num_attention_heads": 4, "iou_head_hidden_dim": 64}
    return hf.SamModel(hf.SamConfig(vision_config=vision, prompt_encoder_config=prompt, mask_decoder_config=mask))


def sam_encoder() -> Family:
    def forward(m: Any, x: Tensor) -> Tensor:
        return m.model(x)[0]

    return Family(Calling(forward, model=_sam().vision_encoder), *images("x", (1, 3, 256, 256), axes={}))


def sam_decoder() -> Family:
    """Points and labels in any number to masks."""

    def forward(m: Any, embeddings: Tensor, points: Tensor, labels: Tensor) -> Any:
        out = m.model(image_embeddings=embeddings, input_points=points, input_labels=labels, multimask_output=True)
        return out.iou_scores, F.interpolate(out.pred_masks[:, 0], (256, 256), mode="bilinear", align_corners=False)

    def run(points: int) -> dict[str, Tensor]:
        places, labels = torch.rand(1, 1, points, 2) * 256, torch.randint(0, 2, (1, 1, points))
        return {"image_embeddings": torch.randn(1, 64, 16, 16), "points": places, "labels": labels}

    axes = {"points": {2: "points"}, "labels": {2: "points"}}
    return Family(Calling(forward, model=_sam()), [run(2), run(5), run(1)], axes)


def _pixels(model: nn.Module, output: str, *shapes: tuple[int, ...], axes: Any = None) -> Family:
    def forward(m: Any, x: Tensor) -> Tensor:
        return getattr(m.model(pixel_values=x), output)

    return Family(Calling(forward, model=model), *images("pixel_values", *shapes, axes=axes))


def dinov2() -> Family:
    config = hf.Dinov2Config(hidden_size=192, num_hidden_layers=4, num_attention_heads=6, image_size=140, patch_size=14)
    return _pixels(hf.Dinov2Model(config), "last_hidden_state", (1, 3, 140, 140), (2, 3, 168, 112), (1, 3, 140, 140))


def depth_anything() -> Family:
    backbone = hf.Dinov2Config(hidden_size=192, num_hidden_layers=4, num_attention_heads=6, image_size=140, patch_size=14,
                               out_features=["stage1", "stage2", "stage3", "stage4"], apply_layernorm=True,
                               reshape_hidden_states=False)  # fmt: skip
    config = hf.DepthAnythingConfig(backbone_config=backbone, reassemble_hidden_size=192, fusion_hidden_size=32,
                                    neck_hidden_sizes=[24, 48, 96, 192])  # fmt: skip
    model = hf.DepthAnythingForDepthEstimation(config)
    return _pixels(model, "predicted_depth", (1, 3, 140, 140), (2, 3, 168, 112), (1, 3, 140, 140))


def dpt() -> Family:
    config = hf.DPTConfig(hidden_size=192, num_hidden_layers=4, num_attention_heads=6, intermediate_size=768, image_size=128,
                          backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[24, 48, 96, 192],
                          fusion_hidden_size=32)  # fmt: skip
    return _pixels(hf.DPTForDepthEstimation(config), "predicted_depth", (1, 3, 128, 128), (2, 3, 128, 128), axes={0: "batch"})


def segformer() -> Family:
    config = hf.SegformerConfig(hidden_sizes=[16, 32, 80, 128], depths=[1, 1, 2, 1], decoder_hidden_size=64)
    return _pixels(hf.SegformerForSemanticSegmentation(config), "logits", (1, 3, 160, 160), (2, 3, 128, 192), (1, 3, 160, 160))


def mask2former() -> Family:
    backbone = hf.SwinConfig(embed_dim=32, depths=[1, 1, 1, 1], num_heads=[1, 2, 4, 8], window_size=4, image_size=128,
                             out_features=["stage1", "stage2", "stage3", "stage4"])  # fmt: skip
    config = hf.Mask2FormerConfig(backbone_config=backbone, feature_size=64, mask_feature_size=64, hidden_dim=64,
                                  num_queries=20, encoder_layers=2, decoder_layers=3, encoder_feedforward_dim=128,
                                  dim_feedforward=128, num_attention_heads=4, num_labels=5)  # fmt: skip

    def forward(m: Any, x: Tensor) -> Any:
        out = m.model(pixel_values=x, pixel_mask=torch.ones(x.shape[0], 128, 128, dtype=torch.int64))
        return out.class_queries_logits, out.masks_queries_logits

    model = hf.Mask2FormerForUniversalSegmentation(config)
    return Family(Calling(forward, model=model), *images("pixel_values", (1, 3, 128, 128), axes={}))


def diffusion_unet() -> Family:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(sample_size=16, block_out_channels=(64, 128, 256), layers_per_block=1, cross_attention_dim=128,
                                 down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
                                 up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
                                 attention_head_dim=8, norm_num_groups=16)  # fmt: skip

    def forward(m: Any, sample: Tensor, step: Tensor, text: Tensor) -> Tensor:
        return m.model(sample, step, text, return_dict=False)[0]

    def run(batch: int, height: int, width: int) -> dict[str, Tensor]:
        text = torch.randn(batch, 77, 128)
        return {"sample": torch.randn(batch, 4, height, width), "timestep": torch.tensor([37]), "encoder_hidden_states": text}

    axes = {"sample": {0: "batch", 2: "height", 3: "width"}, "encoder_hidden_states": {0: "batch"}}
    return Family(Calling(forward, model=model), [run(2, 16, 16), run(2, 24, 16), run(1, 16, 16)], axes)


def diffusion_vae() -> Family:
    from diffusers import AutoencoderKL

    model = AutoencoderKL(block_out_channels=(32, 64, 128), layers_per_block=1, latent_channels=4, norm_num_groups=16,
                          down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3)  # fmt: skip

    def forward(m: Any, latent: Tensor) -> Tensor:
        return m.model.decode(latent / 0.18215, return_dict=False)[0]

    return Family(Calling(forward, model=model), *images("latent", (1, 4, 24, 24), (2, 4, 16, 24), (1, 4, 24, 24)))


def diffusion_transformer() -> Family:
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(num_attention_heads=6, attention_head_dim=32, in_channels=4, out_channels=8, num_layers=4,
                                  norm_num_groups=4, sample_size=16, num_embeds_ada_norm=10)  # fmt: skip

    def forward(m: Any, x: Tensor, step: Tensor, label: Tensor) -> Tensor:
        return m.model(x, timestep=step, class_labels=label, return_dict=False)[0]

    def run(batch: int) -> dict[str, Tensor]:
        return {
            "x": torch.randn(batch, 4, 16, 16),
            "step": torch.full((batch,), 31),
            "label": torch.zeros(batch, dtype=torch.int64),
        }

    axes = {"x": {0: "batch"}, "step": {0: "batch"}, "label": {0: "batch"}}
    return Family(Calling(forward, model=model), [run(2), run(1)], axes)


def sd3_transformer() -> Family:
    from diffusers import SD3Transformer2DModel

    model = SD3Transformer2DModel(sample_size=16, patch_size=2, in_channels=4, num_layers=3, attention_head_dim=32,
                                  num_attention_heads=6, joint_attention_dim=96, caption_projection_dim=192,
                                  pooled_projection_dim=64, out_channels=4, pos_embed_max_size=32)  # fmt: skip

    def forward(m: Any, x: Tensor, text: Tensor, pooled: Tensor, step: Tensor) -> Tensor:
        given = {"encoder_hidden_states": text, "pooled_projections": pooled, "timestep": step}
        return m.model(hidden_states=x, **given, return_dict=False)[0]

    def run(batch: int) -> dict[str, Tensor]:
        text, pooled = torch.randn(batch, 30, 96), torch.randn(batch, 64)
        return {"x": torch.randn(batch, 4, 16, 16), "text": text, "pooled": pooled, "step": torch.full((batch,), 400.0)}

    axes = {name: {0: "batch"} for name in ("x", "text", "pooled", "step")}
    return Family(Calling(forward, model=model), [run(2), run(1)], axes)


def swin2sr() -> Family:
    config = hf.Swin2SRConfig(image_size=48, embed_dim=48, depths=[2, 2], num_heads=[3, 3], window_size=8, upscale=2)
    model = hf.Swin2SRForImageSuperResolution(config)
    return _pixels(model, "reconstruction", (1, 3, 48, 48), axes={})


class _Depthwise(nn.Module):
    """A block of a small recogniser: depthwise, squeeze and excitation by hard sigmoids, pointwise."""

    def __init__(self, inputs: int, outputs: int, stride: Any) -> None:
        super().__init__()
        self.depthwise = nn.Sequential(
            nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False), nn.BatchNorm2d(inputs)
        )
        self.squeeze, self.excite = nn.Conv2d(inputs, inputs // 4, 1), nn.Conv2d(inputs // 4, inputs, 1)
        self.pointwise = nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.Hardswish())

    def forward(self, x: Tensor) -> Tensor:
        y = F.hardswish(self.depthwise(x))
        return self.pointwise(y * F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1))))))


class _Mixer(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.SiLU(), nn.Linear(2 * size, size))

    def forward(self, x: Tensor) -> Tensor:
        n, length, size = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(n, length, 3, 8, size // 8).permute(2, 0, 3, 1, 4)
        y = ((q * (size // 8) ** -0.5) @ k.transpose(2, 3)).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(n, length, size))
        return x + self.mlp(self.norm2(x))


def ocr_recogniser() -> Family:
    """Lines of text of any width: columns become letters (mobile convolutions, two blocks of attention, CTC's softmax)."""

    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.body(x)
        return m.letters(m.mix(m.narrow(F.avg_pool2d(y, (3, 2))).squeeze(2).transpose(1, 2))).softmax(2)

    steps = [(16, 32, 1), (32, 64, (2, 1)), (64, 128, (2, 1)), (128, 192, (2, 1))]
    body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.Hardswish(), *(_Depthwise(*s) for s in steps))
    parts = {"narrow": nn.Conv2d(192, 120, 1), "mix": nn.Sequential(_Mixer(120), _Mixer(120)), "letters": nn.Linear(120, 1000)}
    shapes = ((1, 3, 48, 320), (3, 3, 48, 160), (1, 3, 48, 400), (1, 3, 48, 320))
    return Family(Calling(forward, body=body, **parts), *images("x", *shapes, axes={0: "batch", 3: "width"}))


def ocr_detector() -> Family:
    """Maps of where text is, of images of any size: a pyramid of features and transposed convolutions."""

    def forward(m: Any, x: Tensor) -> Tensor:
        maps = []
        y = m.stem(x)
        for block in m.blocks:
            y = block(y)
            maps.append(y)
        levels = [lateral(y) for lateral, y in zip(m.laterals, maps, strict=True)]
        for i in (2, 1, 0):
            levels[i] = levels[i] + F.interpolate(levels[i + 1], scale_factor=2.0)
        smooth = [F.interpolate(conv(y), scale_factor=2.0**i) for i, (conv, y) in enumerate(zip(m.smooth, levels, strict=True))]
        return m.head(torch.cat(smooth[::-1], 1)).sigmoid()

    widths = (24, 40, 96, 160)
    head = [nn.Conv2d(96, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.ConvTranspose2d(24, 24, 2, 2)]
    head += [nn.BatchNorm2d(24), nn.ReLU(), nn.ConvTranspose2d(24, 1, 2, 2)]
    parts = {
        "stem": nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.Hardswish()),
        "blocks": nn.ModuleList(_Depthwise(a, b, 2) for a, b in zip((16, *widths), widths, strict=False)),
        "laterals": nn.ModuleList(nn.Conv2d(w, 96, 1) for w in widths),
        "smooth": nn.ModuleList(nn.Conv2d(96, 24, 3, padding=1) for _ in widths),
        "head": nn.Sequential(*head),
    }
    return Family(
        Calling(forward, **parts), *images("x", (1, 3, 320, 320), (1, 3, 256, 416), (2, 3, 192, 192), (1, 3, 320, 320))
    )


FAMILIES = (
    clip, blip_captions, sam_encoder, sam_decoder, dinov2, depth_anything, dpt, segformer, mask2former, diffusion_unet,
    diffusion_vae, diffusion_transformer, sd3_transformer, swin2sr, ocr_recogniser, ocr_detector,
)  # fmt: skip
