"""More architectures for tests and benchmarks, written here in plain torch: each function returns (module, inputs of a call).

`small` versions have few and narrow layers for tests, the others about the sizes people run. Weights are torch's initial ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Sample = Callable[[int], tuple[Tensor, ...]]  # batch -> inputs
Built = tuple[nn.Module, Sample]


def _image(side: int, channels: int = 3) -> Sample:
    return lambda batch: (torch.randn(batch, channels, side, side),)


class ConvNorm(nn.Sequential):
    """Convolution, batch norm, activation (None: none)."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        act: type[nn.Module] | None = nn.ReLU,
    ) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs),
        ]  # fmt: skip
        super().__init__(*layers, *([act()] if act else []))


class Residual(nn.Module):
    """x + body(x), with a projection where the shapes differ, and an activation behind the sum."""

    def __init__(self, body: nn.Module, project: nn.Module | None = None, act: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.project, self.act = body, project or nn.Identity(), act or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.project(x) + self.body(x))


def classifier(features: int, classes: int) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(features, classes))


# --- detection --------------------------------------------------------------------------------------------------------


class SplitBlock(nn.Module):
    """Half the channels pass through residual blocks; all intermediate results are concatenated."""

    def __init__(self, inputs: int, outputs: int, depth: int, shortcut: bool) -> None:
        super().__init__()
        self.half = outputs // 2
        self.first = ConvNorm(inputs, outputs, act=nn.SiLU)
        bodies = [
            nn.Sequential(*(ConvNorm(self.half, self.half, 3, act=nn.SiLU) for _ in range(2))) for _ in range(depth)
        ]  # fmt: skip
        self.inner = nn.ModuleList([Residual(b) if shortcut else b for b in bodies])
        self.last = ConvNorm((2 + depth) * self.half, outputs, act=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).split(self.half, 1))
        for block in self.inner:
            parts.append(block(parts[-1]))
        return self.last(torch.cat(parts, 1))


class PyramidPool(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = ConvNorm(width, width // 2, act=nn.SiLU), ConvNorm(width * 2, width, act=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.last(torch.cat(parts, 1))


class Detector(nn.Module):
    """One-stage detector in the style of YOLO: backbone, two-way feature pyramid, three heads, decoded boxes and scores."""

    def __init__(self, width: int, depths: Sequence[int], side: int, classes: int, bins: int = 16) -> None:
        super().__init__()
        w = [width, width * 2, width * 4, width * 8, width * 16]
        self.classes, self.bins = classes, bins
        self.stem = nn.Sequential(ConvNorm(3, w[0], 3, 2, act=nn.SiLU), ConvNorm(w[0], w[1], 3, 2, act=nn.SiLU))
        self.low = SplitBlock(w[1], w[1], depths[0], True)
        self.stages = nn.ModuleList(
            nn.Sequential(ConvNorm(w[i], w[i + 1], 3, 2, act=nn.SiLU), SplitBlock(w[i + 1], w[i + 1], depths[i], True))
            for i in range(1, 4)
        )
        self.pool = PyramidPool(w[4])
        self.up1, self.up2 = SplitBlock(w[4] + w[3], w[3], depths[0], False), SplitBlock(w[3] + w[2], w[2], depths[0], False)
        self.reduce1, self.reduce2 = ConvNorm(w[2], w[2], 3, 2, act=nn.SiLU), ConvNorm(w[3], w[3], 3, 2, act=nn.SiLU)
        self.down1 = SplitBlock(w[3] + w[2], w[3], depths[0], False)
        self.down2 = SplitBlock(w[4] + w[3], w[4], depths[0], False)

        def branch(inputs: int, hidden: int, outputs: int) -> nn.Module:
            first, second = ConvNorm(inputs, hidden, 3, act=nn.SiLU), ConvNorm(hidden, hidden, 3, act=nn.SiLU)
            return nn.Sequential(first, second, nn.Conv2d(hidden, outputs, 1))

        self.boxes = nn.ModuleList(branch(n, max(16, w[2] // 4, 4 * bins), 4 * bins) for n in w[2:])
        self.scores = nn.ModuleList(branch(n, max(w[2], min(classes, 100)), classes) for n in w[2:])
        points, scales = [], []
        for stride in (8, 16, 32):
            cells = torch.arange(side // stride) + 0.5
            grid = torch.stack(torch.meshgrid(cells, cells, indexing="ij"), -1).flip(-1).reshape(-1, 2)
            points.append(grid)
            scales.append(torch.full((len(grid), 1), float(stride)))
        self.register_buffer("points", torch.cat(points).T.unsqueeze(0))
        self.register_buffer("scales", torch.cat(scales).T)
        self.register_buffer("steps", torch.arange(bins, dtype=torch.float32).view(1, bins, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.low(self.stem(x))
        c3 = self.stages[0](x)
        c4 = self.stages[1](c3)
        c5 = self.pool(self.stages[2](c4))
        p4 = self.up1(torch.cat([F.interpolate(c5, scale_factor=2.0), c4], 1))
        p3 = self.up2(torch.cat([F.interpolate(p4, scale_factor=2.0), c3], 1))
        n4 = self.down1(torch.cat([self.reduce1(p3), p4], 1))
        n5 = self.down2(torch.cat([self.reduce2(n4), c5], 1))
        levels = [torch.cat([b(p), s(p)], 1).flatten(2) for b, s, p in zip(self.boxes, self.scores, (p3, n4, n5), strict=True)]
        boxes, scores = torch.cat(levels, 2).split((4 * self.bins, self.classes), 1)
        bins = boxes.reshape(boxes.shape[0], 4, self.bins, boxes.shape[2]).transpose(1, 2).softmax(1)
        distances = (bins * self.steps).sum(1)
        low, high = self.points - distances[:, :2], self.points + distances[:, 2:]
        return torch.cat([(low + high) / 2 * self.scales, (high - low) * self.scales, scores.sigmoid()], 1)


def yolo(small: bool) -> Built:
    side = 64 if small else 640
    return Detector(8 if small else 16, (1, 1, 1, 1) if small else (1, 2, 2, 1), side, 5 if small else 80), _image(side)


# --- segmentation -----------------------------------------------------------------------------------------------------


class UNet(nn.Module):
    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()

        def double(inputs: int, outputs: int) -> nn.Module:
            return nn.Sequential(ConvNorm(inputs, outputs, 3), ConvNorm(outputs, outputs, 3))

        widths = [width << i for i in range(depth + 1)]
        self.down = nn.ModuleList(double(i, o) for i, o in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(w * 2, w, 2, 2) for w in reversed(widths[:-1]))
        self.merge = nn.ModuleList(double(w * 2, w) for w in reversed(widths[:-1]))
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for i, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        kept.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([kept.pop(), up(x)], 1))
        return self.out(x)


def unet(small: bool) -> Built:
    return UNet(8 if small else 32, 2 if small else 4, 4), _image(32 if small else 256)


class Dilated(nn.Module):
    """Semantic segmentation by dilated convolutions at several rates, upsampled bilinearly (in the style of DeepLab)."""

    def __init__(self, width: int, rates: Sequence[int], classes: int) -> None:
        super().__init__()
        self.low = nn.Sequential(ConvNorm(3, width, 3, 2), self._bottleneck(width, width * 4, 2))
        deep = [self._bottleneck(width * 4, width * 8, 2), *(self._bottleneck(width * 8, width * 8, 1) for _ in range(3))]
        self.deep = nn.Sequential(*deep)
        branches: list[nn.Module] = [ConvNorm(width * 8, width * 2)]
        for rate in rates:
            conv = nn.Conv2d(width * 8, width * 2, 3, padding=rate, dilation=rate, bias=False)
            branches.append(nn.Sequential(conv, nn.BatchNorm2d(width * 2), nn.ReLU()))
        self.branches = nn.ModuleList(branches)
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), ConvNorm(width * 8, width * 2))
        self.project = ConvNorm(width * 2 * (len(rates) + 2), width * 2)
        self.skip = ConvNorm(width * 4, width // 2)
        self.last = nn.Sequential(ConvNorm(width * 2 + width // 2, width * 2, 3), nn.Conv2d(width * 2, classes, 1))

    @staticmethod
    def _bottleneck(inputs: int, outputs: int, stride: int) -> nn.Module:
        hidden = outputs // 4
        body = nn.Sequential(ConvNorm(inputs, hidden), ConvNorm(hidden, hidden, 3, stride), ConvNorm(hidden, outputs, act=None))
        project = ConvNorm(inputs, outputs, 1, stride, act=None) if stride > 1 or inputs != outputs else None
        return Residual(body, project, nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        low = self.low(x)
        y = self.deep(low)
        whole = F.interpolate(self.whole(y), size=y.shape[2:], mode="bilinear", align_corners=False)
        y = self.project(torch.cat([*(b(y) for b in self.branches), whole], 1))
        y = F.interpolate(y, size=low.shape[2:], mode="bilinear", align_corners=False)
        y = self.last(torch.cat([y, self.skip(low)], 1))
        return F.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)


def deeplab(small: bool) -> Built:
    return Dilated(16 if small else 64, (2, 4) if small else (6, 12, 18), 21), _image(64 if small else 256)


# --- sound ------------------------------------------------------------------------------------------------------------


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (p(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q, self.k, self.v))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class SpeechEncoder(nn.Module):
    """Two 1-D convolutions over a spectrogram, positions, transformer (in the style of Whisper)."""

    def __init__(self, bands: int, width: int, heads: int, layers: int, frames: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(bands, width, 3, padding=1), nn.Conv1d(width, width, 3, 2, 1)
        self.positions = nn.Parameter(torch.randn(frames, width) * 0.02)
        self.layers = nn.Sequential(*(EncoderLayer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, spectrum: Tensor) -> Tensor:
        x = F.gelu(self.conv2(F.gelu(self.conv1(spectrum)))).transpose(1, 2)
        return self.norm(self.layers(x + self.positions))


def speech_encoder(small: bool) -> Built:
    bands, frames = (20, 40) if small else (80, 1500)
    model = SpeechEncoder(bands, 64 if small else 384, 4 if small else 6, 2 if small else 4, frames)
    return model, lambda batch: (torch.randn(batch, bands, 2 * frames),)


class WaveEncoder(nn.Module):
    """Strided 1-D convolutions over samples, a grouped convolution for positions, dilated causal blocks (wav2vec, then TCN)."""

    def __init__(self, width: int, groups: int, blocks: int) -> None:
        super().__init__()
        strides, kernels = (5, 2, 2, 2, 2, 2, 2), (10, 3, 3, 3, 3, 2, 2)
        layers: list[nn.Module] = []
        for i, (stride, kernel) in enumerate(zip(strides, kernels, strict=True)):
            layers.append(nn.Conv1d(width if i else 1, width, kernel, stride, bias=False))
            layers += [nn.GroupNorm(width, width), nn.GELU()] if i == 0 else [nn.GELU()]
        self.features = nn.Sequential(*layers)
        self.positions = nn.Conv1d(width, width, 32, padding=16, groups=groups)
        self.dilated = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=1 << i) for i in range(blocks))
        self.mixed = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(blocks))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 32)

    def forward(self, samples: Tensor) -> Tensor:
        x = self.features(samples.unsqueeze(1))
        x = x + F.gelu(self.positions(x)[..., :-1])
        for i, (dilated, mixed) in enumerate(zip(self.dilated, self.mixed, strict=True)):
            x = x + mixed(F.relu(dilated(F.pad(x, (2 << i, 0)))))
        return self.out(self.norm(x.transpose(1, 2)))


def wave_encoder(small: bool) -> Built:
    samples = 3200 if small else 16000
    return WaveEncoder(32 if small else 512, 4 if small else 16, 3 if small else 5), lambda b: (torch.randn(b, samples),)


# --- mobile -----------------------------------------------------------------------------------------------------------


class SqueezeExcite(nn.Module):
    def __init__(self, width: int, hidden: int, act: type[nn.Module], gate: type[nn.Module]) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, hidden, 1), act(), nn.Conv2d(hidden, width, 1), gate()
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.body(x)


def _inverted(
    inputs: int, hidden: int, outputs: int, kernel: int, stride: int, squeeze: int, act: type[nn.Module], gate: type[nn.Module]
) -> nn.Module:
    """Expand, depthwise, squeeze and excite (0: not), project; residual where the shape stays."""
    layers: list[nn.Module] = [ConvNorm(inputs, hidden, act=act)] if hidden != inputs else []
    layers.append(ConvNorm(hidden, hidden, kernel, stride, hidden, act))
    if squeeze:
        layers.append(SqueezeExcite(hidden, squeeze, nn.SiLU if act is nn.SiLU else nn.ReLU, gate))
    layers.append(ConvNorm(hidden, outputs, act=None))
    body = nn.Sequential(*layers)
    return Residual(body) if stride == 1 and inputs == outputs else body


def efficientnet(small: bool) -> Built:
    stages = [
        (1, 16, 3, 1, 1), (6, 24, 3, 2, 2), (6, 40, 5, 2, 2), (6, 80, 3, 2, 3), (6, 112, 5, 1, 3), (6, 192, 5, 2, 4),
        (6, 320, 3, 1, 1),
    ]  # fmt: skip
    layers: list[nn.Module] = [ConvNorm(3, 32, 3, 2, act=nn.SiLU)]
    width = 32
    for expand, outputs, kernel, stride, count in stages[:4] if small else stages:
        for i in range(1 if small else count):
            layers.append(
                _inverted(width, width * expand, outputs, kernel, 1 if i else stride, max(1, width // 4), nn.SiLU, nn.Sigmoid)
            )
            width = outputs
    last = 128 if small else 1280
    layers += [ConvNorm(width, last, act=nn.SiLU), classifier(last, 20 if small else 1000)]
    return nn.Sequential(*layers), _image(64 if small else 224)


def mobilenet_v3(small: bool) -> Built:
    stages = [
        (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2), (5, 120, 40, 1, 0, 1),
        (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
        (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1), (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1),
    ]  # fmt: skip
    layers: list[nn.Module] = [ConvNorm(3, 16, 3, 2, act=nn.Hardswish)]
    width = 16
    for kernel, hidden, outputs, squeeze, hard, stride in stages[:8] if small else stages:
        act = nn.Hardswish if hard else nn.ReLU
        layers.append(_inverted(width, hidden, outputs, kernel, stride, squeeze * (hidden // 4), act, nn.Hardsigmoid))
        width = outputs
    last = 128 if small else 960
    layers += [ConvNorm(width, last, act=nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    layers += [nn.Linear(last, 2 * last), nn.Hardswish(), nn.Linear(2 * last, 20 if small else 1000)]
    return nn.Sequential(*layers), _image(64 if small else 224)


class ShuffleUnit(nn.Module):
    """Half the channels (all, with a stride) pass a depthwise bottleneck; then two groups of channels are interleaved."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half = outputs // 2
        self.stride = stride
        self.main = nn.Sequential(
            ConvNorm(inputs if stride > 1 else half, half), ConvNorm(half, half, 3, stride, half, None), ConvNorm(half, half)
        )
        self.side = (
            nn.Sequential(ConvNorm(inputs, inputs, 3, stride, inputs, None), ConvNorm(inputs, half)) if stride > 1 else None
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.side is None:
            left, right = x.chunk(2, 1)
            x = torch.cat([left, self.main(right)], 1)
        else:
            x = torch.cat([self.side(x), self.main(x)], 1)
        batch, channels, height, width = x.shape
        return x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(batch, channels, height, width)


def shufflenet(small: bool) -> Built:
    layers: list[nn.Module] = [ConvNorm(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1)]
    width = 24
    for outputs, count in ((48, 2), (96, 2)) if small else ((116, 4), (232, 8), (464, 4)):
        for i in range(count):
            layers.append(ShuffleUnit(width, outputs, 1 if i else 2))
            width = outputs
    last = 128 if small else 1024
    return nn.Sequential(*layers, ConvNorm(width, last), classifier(last, 20 if small else 1000)), _image(64 if small else 224)


# --- large convolutional ----------------------------------------------------------------------------------------------


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of [N, C, H, W]."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x + (self.scale * self.body(self.depthwise(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


def convnext(small: bool) -> Built:
    widths, depths = ((16, 32), (1, 2)) if small else ((96, 192, 384, 768), (3, 3, 9, 3))
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), ChannelNorm(widths[0])]
    for i, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        if i:
            layers += [ChannelNorm(widths[i - 1]), nn.Conv2d(widths[i - 1], width, 2, 2)]
        layers += [ConvNextBlock(width) for _ in range(depth)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(widths[-1]), nn.Linear(widths[-1], 20 if small else 1000)]
    return nn.Sequential(*layers, *head), _image(64 if small else 224)


def resnext50(small: bool) -> Built:
    groups, each = (4, 4) if small else (32, 4)
    layers: list[nn.Module] = [ConvNorm(3, 16 if small else 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    width = 16 if small else 64
    for stage, depth in enumerate((1, 2) if small else (3, 4, 6, 3)):
        hidden, outputs = groups * each << stage, (64 if small else 256) << stage
        for i in range(depth):
            stride = 2 if stage and not i else 1
            body = nn.Sequential(
                ConvNorm(width, hidden), ConvNorm(hidden, hidden, 3, stride, groups), ConvNorm(hidden, outputs, act=None)
            )
            project = ConvNorm(width, outputs, 1, stride, act=None) if not i else None
            layers.append(Residual(body, project, nn.ReLU()))
            width = outputs
    return nn.Sequential(*layers, classifier(width, 20 if small else 1000)), _image(64 if small else 224)


class DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        norm: list[nn.Module] = [nn.BatchNorm2d(inputs), nn.ReLU()]
        self.body = nn.Sequential(*norm, ConvNorm(inputs, 4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], 1)


def densenet(small: bool) -> Built:
    growth, depths = (8, (2, 2)) if small else (32, (6, 12, 24, 16))
    width = 2 * growth
    layers: list[nn.Module] = [ConvNorm(3, width, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for i, depth in enumerate(depths):
        for _ in range(depth):
            layers.append(DenseLayer(width, growth))
            width += growth
        if i + 1 < len(depths):
            layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
            width //= 2
    layers += [nn.BatchNorm2d(width), nn.ReLU(), classifier(width, 20 if small else 1000)]
    return nn.Sequential(*layers), _image(64 if small else 224)


# --- decoder ----------------------------------------------------------------------------------------------------------


class DecoderLayer(nn.Module):
    """RMS norm, rotary grouped-query attention over past and new keys, gated MLP."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.groups, self.each = heads, groups, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, groups * self.each, bias=False)
        self.v = nn.Linear(width, groups * self.each, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    @staticmethod
    def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat([-high, low], -1) * sin

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, past_k: Tensor, past_v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.norm1(x)
        q = self._rotate(self.q(y).unflatten(-1, (self.heads, -1)).transpose(1, 2), cos, sin)
        k = self._rotate(self.k(y).unflatten(-1, (self.groups, -1)).transpose(1, 2), cos, sin)
        v = self.v(y).unflatten(-1, (self.groups, -1)).transpose(1, 2)
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        repeat = self.heads // self.groups
        scores = q @ k.repeat_interleave(repeat, 1).transpose(2, 3) * self.each**-0.5
        y = (scores.softmax(-1) @ v.repeat_interleave(repeat, 1)).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), k, v


class Decoder(nn.Module):
    """A decoder (as Llama) for one token: ids [N, 1], past keys and values of all layers; logits, new keys and values."""

    def __init__(self, words: int, width: int, heads: int, groups: int, layers: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads, groups, hidden) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)
        each = width // heads
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(0, each, 2) / each).repeat(2))

    def forward(self, ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        x = self.embedding(ids)
        angles = past[0].shape[2] * self.frequencies
        cos, sin, kept = angles.cos(), angles.sin(), []
        for i, layer in enumerate(self.layers):
            x, k, v = layer(x, cos, sin, past[2 * i], past[2 * i + 1])
            kept += [k, v]
        return self.head(self.norm(x)), *kept


def decoder(small: bool) -> Built:
    words, width, heads, groups, layers, hidden, past = (
        (300, 64, 4, 2, 2, 96, 7) if small else (16000, 768, 12, 4, 8, 2048, 256)
    )

    def sample(batch: int) -> tuple[Tensor, ...]:
        cache = [torch.randn(batch, groups, past, width // heads) for _ in range(2 * layers)]
        return torch.randint(0, words, (batch, 1)), *cache

    return Decoder(words, width, heads, groups, layers, hidden), sample


ARCHITECTURES: dict[str, Callable[[bool], Built]] = {
    f.__name__: f
    for f in (
        yolo, unet, deeplab, speech_encoder, wave_encoder, efficientnet, mobilenet_v3, shufflenet, convnext, resnext50,
        densenet, decoder,
    )
}  # fmt: skip
