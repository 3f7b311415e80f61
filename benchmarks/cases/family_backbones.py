"""Backbones, segmenters, video and flow networks for `families.py`, as timm and torchvision define them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import timm
import torch
import torchvision
from torch import Tensor, nn

from cases.family import Calling, Family, images

# Names of timm's models; of each layout of blocks the smallest, or one made smaller.
TIMM: dict[str, dict[str, Any]] = {
    "swin_tiny_patch4_window7_224": {"depths": (1, 1, 2, 1), "embed_dim": 64, "num_heads": (2, 4, 8, 16)},
    "swinv2_tiny_window8_256": {"depths": (1, 1, 2, 1), "embed_dim": 64, "num_heads": (2, 4, 8, 16), "img_size": 256},
    "maxvit_pico_rw_256": {},
    "maxxvit_rmlp_nano_rw_256": {},
    "coatnet_nano_rw_224": {},
    "efficientformer_l1": {},
    "efficientformerv2_s0": {},
    "mobilevit_xs": {},
    "mobilevitv2_050": {},
    "efficientvit_b0": {},
    "efficientvit_m0": {},
    "fastvit_t8": {},
    "edgenext_xx_small": {},
    "mobilenetv4_conv_small": {},
    "mobilenetv4_hybrid_medium": {},
    "mobileone_s0": {},
    "repvgg_a0": {},
    "repvit_m0_9": {},
    "ghostnet_100": {},
    "ghostnetv2_100": {},
    "convnextv2_atto": {},
    "poolformer_s12": {},
    "caformer_s18": {},
    "xcit_nano_12_p16_224": {},
    "cait_xxs24_224": {"depth": 4},
    "beit_base_patch16_224": {"depth": 3, "embed_dim": 192, "num_heads": 3},
    "eva02_tiny_patch14_224": {"depth": 4},
    "deit3_small_patch16_224": {"depth": 4},
    "hrnet_w18_small": {},
    "regnety_002": {},
    "res2net50_14w_8s": {},
    "resnest14d": {},
    "skresnet18": {},
    "inception_v3": {},
    "inception_next_atto": {},
    "dpn48b": {},
    "ese_vovnet19b_dw": {},
    "cspdarknet53": {},
    "dla34": {},
    "gcvit_xxtiny": {},
    "davit_tiny": {"depths": (1, 1, 1, 1), "embed_dims": (48, 96, 192, 384)},
    "focalnet_tiny_srf": {},
    "volo_d1_224": {},
    "twins_svt_small": {"depths": (1, 1, 2, 1)},
    "pvt_v2_b0": {},
    "pit_ti_224": {},
    "tnt_s_patch16_224": {"depth": 3},
    "crossvit_tiny_240": {},
    "visformer_tiny": {},
    "mixer_s32_224": {},
    "resmlp_12_224": {},
    "gmlp_ti16_224": {},
    "sequencer2d_s": {"layers": (1, 1, 2, 1)},
    "coat_lite_tiny": {},
    "convmixer_1024_20_ks9_p14": {},
    "nest_tiny": {},
    "halonet26t": {},
    "botnet26t_256": {},
    "lambda_resnet26t": {},
    "starnet_s1": {},
    "mambaout_femto": {},
    "hiera_tiny_224": {"stages": (1, 1, 2, 1)},
    "tiny_vit_5m_224": {},
    "levit_128s": {},
    "nfnet_l0": {},
    "mixnet_s": {},
    "tf_efficientnet_lite0": {},
    "lcnet_050": {},
    "shvit_s1": {},
    "tresnet_m": {},
    "vit_little_patch16_reg1_gap_256": {"depth": 4},
    "naflexvit_base_patch16_gap": {"depth": 2, "embed_dim": 192, "num_heads": 3},
    "samvit_base_patch16": {"img_size": 224, "depth": 3, "embed_dim": 192, "num_heads": 3, "global_attn_indexes": (2,)},
}


def settled(model: nn.Module) -> nn.Module:
    """Statistics and scales that differ by channel, so that folding them wrongly shows."""
    for part in model.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d) and part.running_mean is not None:
            nn.init.normal_(part.running_mean, std=0.1)
            nn.init.uniform_(part.running_var, 0.7, 1.4)  # type: ignore[arg-type]
            nn.init.uniform_(part.weight, 0.8, 1.2)
            nn.init.normal_(part.bias, std=0.1)
    return model


def _timm(name: str, given: dict[str, Any]) -> Callable[[], Family]:
    def make() -> Family:
        model = settled(timm.create_model(name, pretrained=False, num_classes=10, **given))
        size = given.get("img_size", model.default_cfg["input_size"][1])
        return Family(model, *images("x", (1, 3, size, size), (2, 3, size, size), axes={0: "batch"}))

    make.__name__ = name
    return make


VISION: dict[str, tuple[int, ...]] = {
    "googlenet": (1, 3, 224, 224), "squeezenet1_1": (1, 3, 224, 224), "mnasnet0_5": (1, 3, 224, 224),
}  # fmt: skip


def _torchvision(name: str, shape: tuple[int, ...]) -> Callable[[], Family]:
    def make() -> Family:
        given = {"init_weights": False} if name == "googlenet" else {}
        model = settled(torchvision.models.get_model(name, weights=None, num_classes=10, **given))
        return Family(model, *images("x", shape, (2, *shape[1:-1], shape[-1] - 32), shape))

    make.__name__ = name
    return make


def _segmenter(name: str) -> Callable[[], Family]:
    def forward(m: Any, x: Tensor) -> Any:
        return m.model(x)["out"]

    def make() -> Family:
        model = settled(torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=5))
        return Family(Calling(forward, model=model), *images("x", (1, 3, 160, 160), (2, 3, 128, 192), (1, 3, 160, 160)))

    make.__name__ = name
    return make


def r3d() -> Family:
    model = settled(torchvision.models.video.r3d_18(num_classes=10))
    return Family(model, *images("clip", (1, 3, 4, 64, 64), (2, 3, 4, 64, 64), axes={0: "batch", 2: "frames"}))


def s3d() -> Family:
    model = settled(torchvision.models.video.s3d(num_classes=10))
    return Family(model, *images("clip", (1, 3, 16, 224, 224), axes={0: "batch"}))


def mvit() -> Family:
    model = torchvision.models.video.mvit_v1_b(num_classes=10)
    return Family(model, *images("clip", (1, 3, 16, 224, 224), axes={0: "batch"}))


def swin3d() -> Family:
    model = torchvision.models.video.SwinTransformer3d((2, 4, 4), 48, [1, 1, 2], [2, 4, 8], [4, 7, 7], num_classes=10)
    return Family(model, *images("clip", (1, 3, 8, 112, 112), (2, 3, 8, 112, 112), axes={0: "batch"}))


def raft() -> Family:
    """Optical flow: volumes of correlations, looked up with grid_sample and refined by a recurrence."""
    model = settled(torchvision.models.optical_flow.raft_small(weights=None))

    def forward(m: Any, first: Tensor, second: Tensor) -> Tensor:
        return m.model(first, second, num_flow_updates=4)[-1]

    def run(batch: int) -> dict[str, Tensor]:
        return {"first": torch.rand(batch, 3, 128, 160), "second": torch.rand(batch, 3, 128, 160)}

    return Family(Calling(forward, model=model), [run(1)], {})


FAMILIES = (
    *(_timm(name, given) for name, given in TIMM.items()),
    *(_torchvision(name, shape) for name, shape in VISION.items()),
    *(_segmenter(name) for name in ("lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large", "fcn_resnet50")),
    r3d, s3d, mvit, swin3d, raft,
)  # fmt: skip
