"""Detectors for `families.py`: boxes chosen in the model, by NonMaxSuppression, TopK or queries."""

from __future__ import annotations

from typing import Any

import torch
import torchvision
import transformers as hf
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from cases.family import Calling, Family, images


def _block(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> nn.Module:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs, momentum=1.0), nn.SiLU())


class _C2f(nn.Module):
    def __init__(self, inputs: int, outputs: int, depth: int, shortcut: bool) -> None:
        super().__init__()
        half, self.shortcut = outputs // 2, shortcut
        self.first, self.last = _block(inputs, outputs), _block((2 + depth) * half, outputs)
        self.inner = nn.ModuleList(nn.Sequential(_block(half, half, 3), _block(half, half, 3)) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for part in self.inner:
            y = part(parts[-1])
            parts.append(parts[-1] + y if self.shortcut else y)
        return self.last(torch.cat(parts, 1))


class _Yolo(nn.Module):
    """A detector of three scales whose boxes are expectations over bins, as in the eighth version."""

    def __init__(self, classes: int = 20, bins: int = 16) -> None:
        super().__init__()
        self.bins, self.classes = bins, classes
        w = (16, 32, 64, 128, 256)
        self.stem = nn.Sequential(_block(3, w[0], 3, 2), _block(w[0], w[1], 3, 2), _C2f(w[1], w[1], 1, True))
        self.p3 = nn.Sequential(_block(w[1], w[2], 3, 2), _C2f(w[2], w[2], 2, True))
        self.p4 = nn.Sequential(_block(w[2], w[3], 3, 2), _C2f(w[3], w[3], 2, True))
        self.p5 = nn.Sequential(_block(w[3], w[4], 3, 2), _C2f(w[4], w[4], 1, True))
        self.pool_in, self.pool_out = _block(w[4], w[4] // 2), _block(w[4] * 2, w[4])
        self.up4, self.up3 = _C2f(w[4] + w[3], w[3], 1, False), _C2f(w[3] + w[2], w[2], 1, False)
        self.down4, self.down5 = _block(w[2], w[2], 3, 2), _block(w[3], w[3], 3, 2)
        self.out4, self.out5 = _C2f(w[2] + w[3], w[3], 1, False), _C2f(w[3] + w[4], w[4], 1, False)
        heads = [nn.Sequential(_block(c, 64, 3), _block(64, 64, 3)) for c in (w[2], w[3], w[4])]
        self.heads = nn.ModuleList(heads)
        self.boxes = nn.ModuleList(nn.Conv2d(64, 4 * bins, 1) for _ in heads)
        self.scores = nn.ModuleList(nn.Conv2d(64, classes, 1) for _ in heads)

        for score in self.scores:
            nn.init.normal_(score.weight, std=0.06)  # or all scores are nearly the same

    def forward(self, x: Tensor) -> Tensor:
        a = self.p3(self.stem(x))
        b = self.p4(a)
        y = [self.pool_in(self.p5(b))]
        for _ in range(3):
            y.append(F.max_pool2d(y[-1], 5, 1, 2))
        c = self.pool_out(torch.cat(y, 1))
        b = self.up4(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1))
        a = self.up3(torch.cat([F.interpolate(b, scale_factor=2.0), a], 1))
        b = self.out4(torch.cat([self.down4(a), b], 1))
        c = self.out5(torch.cat([self.down5(b), c], 1))
        found, centres, steps = [], [], []
        for level, (head, box, score) in zip((a, b, c), zip(self.heads, self.boxes, self.scores, strict=True), strict=True):
            z, (height, width) = head(level), level.shape[2:]
            found.append(torch.cat([box(z), score(z)], 1).flatten(2))
            rows, columns = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
            centres.append(torch.stack([columns, rows]).flatten(1))
            steps.append(torch.full((1, 1), 8.0 * 2 ** len(steps)).expand(1, height * width))
        boxes, scores = torch.cat(found, 2).split((4 * self.bins, self.classes), 1)
        n = boxes.shape[0]
        sides = boxes.view(n, 4, self.bins, -1).softmax(2)
        sides = (sides * torch.arange(self.bins, dtype=torch.float32).view(1, 1, -1, 1)).sum(2)
        low, high = (torch.cat(centres, 1) - sides[:, :2]), (torch.cat(centres, 1) + sides[:, 2:])
        return torch.cat([torch.cat([low, high], 1) * torch.cat(steps, 1), scores.sigmoid()], 1)


def _yolo() -> _Yolo:
    """With statistics of one batch of noise, without which all scores would be the same."""
    model = _Yolo().train()
    with torch.no_grad():
        model(torch.randn(2, 3, 256, 256))
    return model.eval()


def yolo8() -> Family:
    return Family(_yolo(), *images("images", (1, 3, 256, 256), (2, 3, 192, 320), (1, 3, 320, 192), (1, 3, 256, 256)))


def yolo8_chosen() -> Family:
    """The same with the best boxes of each image by NonMaxSuppression over classes."""

    def forward(m: Any, x: Tensor) -> Any:
        y = m.yolo(x)[0].t()
        scores, classes = y[:, 4:].max(1)
        kept = scores > 0.7
        boxes, scores, classes = y[kept, :4], scores[kept], classes[kept]
        chosen = torchvision.ops.nms(boxes + classes[:, None] * 4096.0, scores, 0.6)[:100]
        return boxes[chosen], scores[chosen], classes[chosen]

    shapes = ((1, 3, 256, 256), (1, 3, 192, 320), (1, 3, 320, 192), (1, 3, 256, 256))
    return Family(Calling(forward, yolo=_yolo()), *images("images", *shapes, axes={2: "height", 3: "width"}))


def yolo10() -> Family:
    """Boxes chosen by TopK over scores, twice, as models without suppression do."""

    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.yolo(x).transpose(1, 2)
        boxes, scores = y.split((4, m.yolo.classes), 2)
        best = scores.amax(2).topk(100, 1).indices[..., None]
        boxes, scores = boxes.gather(1, best.expand(-1, -1, 4)), scores.gather(1, best.expand(-1, -1, m.yolo.classes))
        scores, index = scores.flatten(1).topk(100, 1)
        boxes = boxes.gather(1, (index // m.yolo.classes)[..., None].expand(-1, -1, 4))
        return torch.cat([boxes, scores[..., None], (index % m.yolo.classes)[..., None].float()], 2)

    return Family(Calling(forward, yolo=_yolo()), *images("images", (1, 3, 256, 256), (2, 3, 192, 320), (1, 3, 256, 256)))


def _torchvision(model: nn.Module, *shapes: tuple[int, int]) -> Family:
    """A detector of torchvision: a list of one image in, one dictionary out."""

    def forward(m: Any, image: Tensor) -> Any:
        return tuple(m.model([image])[0].values())

    for name, parameter in model.named_parameters():
        if ("cls" in name or "class" in name) and parameter.dim() > 1:
            nn.init.normal_(parameter, std=2 / parameter[0].numel() ** 0.5)  # or every score is nearly the same
    runs, axes = images("image", *((3, *shape) for shape in shapes), axes={1: "height", 2: "width"})
    return Family(Calling(forward, model=model), runs, axes)


def _detection(name: str, **more: Any) -> Family:
    make = getattr(torchvision.models.detection, name)
    model = make(weights=None, weights_backbone=None, num_classes=5, min_size=160, max_size=240, **more)
    return _torchvision(model, (160, 160), (160, 200), (180, 160), (160, 160))


def faster_rcnn() -> Family:
    return _detection("fasterrcnn_mobilenet_v3_large_320_fpn", box_score_thresh=0.1)


def mask_rcnn() -> Family:
    return _detection("maskrcnn_resnet50_fpn", box_score_thresh=0.1)


def keypoint_rcnn() -> Family:
    make = torchvision.models.detection.keypointrcnn_resnet50_fpn
    model = make(weights=None, weights_backbone=None, num_keypoints=5, min_size=160, max_size=240, box_score_thresh=0.1)
    return _torchvision(model, (160, 160), (160, 200), (160, 160))


def retinanet() -> Family:
    return _detection("retinanet_resnet50_fpn", score_thresh=0.01)


def fcos() -> Family:
    return _detection("fcos_resnet50_fpn", score_thresh=0.01)


def ssd() -> Family:
    make = torchvision.models.detection.ssdlite320_mobilenet_v3_large
    return _torchvision(make(weights=None, weights_backbone=None, num_classes=5), (320, 320), (240, 300), (320, 320))


def detr() -> Family:
    config = hf.DetrConfig(use_timm_backbone=False, backbone_config=hf.ResNetConfig(
        embedding_size=32, hidden_sizes=[64, 128, 256, 512], depths=[1, 1, 1, 1], out_features=["stage4"]),
        d_model=128, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=256, decoder_ffn_dim=256, num_queries=30)  # fmt: skip

    def forward(m: Any, x: Tensor) -> Any:
        out = m.model(pixel_values=x)
        return out.logits, out.pred_boxes

    model = hf.DetrForObjectDetection(config)
    return Family(Calling(forward, model=model), *images("pixel_values", (1, 3, 192, 192), (2, 3, 160, 256), (1, 3, 192, 192)))


FAMILIES = (
    yolo8, yolo8_chosen, yolo10, faster_rcnn, mask_rcnn, keypoint_rcnn, retinanet, fcos, ssd, detr,
)  # fmt: skip
