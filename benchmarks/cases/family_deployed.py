"""Detectors, restorers and masks for `families.py` at the sizes that people deploy, in no other file."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from cases.family import Calling, Family, by_export, images
from cases.family_pictures import conv


class Bottles(nn.Module):
    """CSP: a half of the channels through bottlenecks, the other beside them."""

    def __init__(self, a: int, b: int, n: int, act: Any = nn.SiLU, kernel: int = 3, depthwise: bool = False) -> None:
        super().__init__()
        half = b // 2
        self.one, self.two, self.out = conv(a, half, 1, act=act), conv(a, half, 1, act=act), conv(2 * half, b, 1, act=act)
        second = (
            nn.Sequential(conv(half, half, kernel, groups=half, act=act), conv(half, half, 1, act=act)) if depthwise else None
        )
        self.parts = nn.ModuleList(
            nn.Sequential(conv(half, half, 3 if depthwise else 1, act=act), second or conv(half, half, kernel, act=act))
            for _ in range(n)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.one(x)
        for part in self.parts:
            y = y + part(y)
        return self.out(torch.cat((y, self.two(x)), 1))


class Pyramid(nn.Module):
    """PAFPN: down and up again, joined by Concat and CSP."""

    def __init__(self, widths: tuple[int, int, int], act: Any = nn.SiLU) -> None:
        super().__init__()
        a, b, c = widths
        self.less = nn.ModuleList((conv(c, b, 1, act=act), conv(b, a, 1, act=act)))
        self.down = nn.ModuleList((Bottles(2 * b, b, 1, act), Bottles(2 * a, a, 1, act)))
        self.step = nn.ModuleList((conv(a, a, 3, 2, act=act), conv(b, b, 3, 2, act=act)))
        self.up = nn.ModuleList((Bottles(2 * a, b, 1, act), Bottles(2 * b, c, 1, act)))

    def forward(self, x: list[Tensor]) -> list[Tensor]:
        a, b, c = x
        c1 = self.less[0](c)
        b1 = self.less[1](self.down[0](torch.cat((F.interpolate(c1, scale_factor=2, mode="nearest"), b), 1)))
        a2 = self.down[1](torch.cat((F.interpolate(b1, scale_factor=2, mode="nearest"), a), 1))
        b2 = self.up[0](torch.cat((self.step[0](a2), b1), 1))
        return [a2, b2, self.up[1](torch.cat((self.step[1](b2), c1), 1))]


class Levels(nn.Module):
    """Stages that each halve the picture; the last three are kept."""

    def __init__(self, first: int, widths: tuple[int, ...], depths: tuple[int, ...], act: Any, **how: Any) -> None:
        super().__init__()
        sizes = zip((first, *widths), widths, depths, strict=False)
        self.stages = nn.ModuleList(nn.Sequential(conv(a, b, 3, 2, act=act), Bottles(b, b, n, act, **how)) for a, b, n in sizes)

    def forward(self, x: Tensor) -> list[Tensor]:
        kept = []
        for stage in self.stages:
            x = stage(x)
            kept.append(x)
        return kept[-3:]


def yolox() -> Family:
    """Slices instead of a stem, decoupled heads, boxes decoded in the graph; 480x640."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = torch.cat((x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]), 1)
        outputs, grids, strides = [], [], []
        for y, stem, kinds, place, last in zip(m.neck(m.body(m.stem(x))), m.stems, m.kinds, m.places, m.last, strict=True):
            y = stem(y)
            k, p = kinds(y), place(y)
            outputs.append(torch.cat((last[0](p), torch.sigmoid(last[1](p)), torch.sigmoid(last[2](k))), 1).flatten(2))
            h, w = y.shape[2:]
            yv, xv = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
            grids.append(torch.stack((xv, yv), 2).view(1, -1, 2).float())
            strides.append(torch.full((1, grids[-1].shape[1], 1), 8.0 * 2 ** len(strides)))
        y, grid, stride = torch.cat(outputs, 2).permute(0, 2, 1), torch.cat(grids, 1), torch.cat(strides, 1)
        return torch.cat(((y[..., :2] + grid) * stride, torch.exp(y[..., 2:4]) * stride, y[..., 4:]), -1)

    widths = (96, 192, 384)
    two = lambda: nn.Sequential(conv(96, 96, act=nn.SiLU), conv(96, 96, act=nn.SiLU))  # noqa: E731
    module = Calling(
        forward,
        stem=conv(12, 24, act=nn.SiLU),
        body=Levels(24, (48, *widths), (1, 3, 3, 1), nn.SiLU),
        neck=Pyramid(widths),
        stems=nn.ModuleList(conv(w, 96, 1, act=nn.SiLU) for w in widths),
        kinds=nn.ModuleList(two() for _ in widths),
        places=nn.ModuleList(two() for _ in widths),
        last=nn.ModuleList(nn.ModuleList(nn.Conv2d(96, n, 1) for n in (4, 1, 80)) for _ in widths),
    )
    return Family(module, *images("images", (1, 3, 480, 640), (2, 3, 480, 640), axes={0: "batch"}))


def rtm_det() -> Family:
    """5x5 depthwise windows in the body, channel attention, heads shared but for their norms; 320x320."""

    class Attention(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.fc = nn.Conv2d(n, n, 1)

        def forward(self, x: Tensor) -> Tensor:
            return x * F.hardsigmoid(self.fc(F.adaptive_avg_pool2d(x, 1)))

    def forward(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        kept = [gate(y) for gate, y in zip(m.gates, m.body(m.stem(x)), strict=True)]
        kinds, boxes = [], []
        for i, y in enumerate(m.neck(kept)):
            y = m.less[i](y)
            k, p = y, y
            for j in range(2):
                k = F.silu(m.norms[4 * i + j](m.shared[j](k)))
                p = F.silu(m.norms[4 * i + 2 + j](m.shared[2 + j](p)))
            kinds.append(m.kind(k).permute(0, 2, 3, 1).flatten(1, 2))
            boxes.append(m.place(p).exp().mul(8 * 2**i).permute(0, 2, 3, 1).flatten(1, 2))
        return torch.cat(kinds, 1).sigmoid(), torch.cat(boxes, 1)

    widths = (96, 192, 384)
    body = Levels(24, (48, *widths), (1, 1, 1, 1), nn.SiLU, kernel=5, depthwise=True)
    stem = nn.Sequential(conv(3, 12, 3, 2, act=nn.SiLU), conv(12, 24, act=nn.SiLU))
    shared = nn.ModuleList(nn.Conv2d(96, 96, 3, padding=1, bias=False) for _ in "1234")
    module = Calling(
        forward,
        stem=stem,
        body=body,
        neck=Pyramid(widths),
        gates=nn.ModuleList(Attention(w) for w in widths),
        less=nn.ModuleList(conv(w, 96, 3, act=nn.SiLU) for w in widths),
        shared=shared,
        norms=nn.ModuleList(nn.BatchNorm2d(96) for _ in range(12)),
        kind=nn.Conv2d(96, 80, 1),
        place=nn.Conv2d(96, 4, 1),
    )
    return Family(module, *images("image", (1, 3, 320, 320), (4, 3, 320, 320), axes={0: "batch"}))


def nano_det() -> Family:
    """ShuffleNet's halves, ghost modules, boxes as distributions of eight places; 416x416, 116 and 232 channels."""
    act = lambda: nn.LeakyReLU(0.1)  # noqa: E731

    class Unit(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            h = n // 2
            self.way = nn.Sequential(conv(h, h, 1, act=act), conv(h, h, 3, groups=h, act=nn.Identity), conv(h, h, 1, act=act))

        def forward(self, x: Tensor) -> Tensor:
            a, b = x.chunk(2, 1)
            y = torch.cat((a, self.way(b)), 1)
            n, c, h, w = y.shape
            return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)

    class Ghost(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.one, self.two = conv(a, b // 2, 1, act=act), conv(b // 2, b // 2, 3, groups=b // 2, act=act)

        def forward(self, x: Tensor) -> Tensor:
            y = self.one(x)
            return torch.cat((y, self.two(y)), 1)

    def forward(m: Any, x: Tensor) -> Tensor:
        kept = []
        x = m.enter(x)
        for stage in m.body:
            x = stage(x)
            kept.append(x)
        maps = [less(y) for less, y in zip(m.less, kept, strict=True)]
        for i in (1, 0):
            up = F.interpolate(maps[i + 1], scale_factor=2, mode="bilinear")
            maps[i] = m.ghosts[i](torch.cat((up, maps[i]), 1))
        rows = []
        for i, y in enumerate(maps):
            y = m.heads[i](y).flatten(2).permute(0, 2, 1)
            far = F.softmax(y[..., 80:].reshape(*y.shape[:2], 4, 8), -1) @ m.steps
            rows.append(torch.cat((y[..., :80].sigmoid(), far * 8 * 2**i), -1))
        return torch.cat(rows, 1)

    def stage(a: int, b: int, n: int) -> nn.Module:
        return nn.Sequential(conv(a, a, 3, 2, a, act=nn.Identity), conv(a, b, 1, act=act), *(Unit(b) for _ in range(n)))

    heads = nn.ModuleList(
        nn.Sequential(*(conv(96, 96, 5, groups=96, act=act), conv(96, 96, 1, act=act)) * 2, nn.Conv2d(96, 112, 1))
        for _ in "123"
    )
    module = Calling(
        forward,
        enter=nn.Sequential(conv(3, 24, 3, 2, act=act), nn.MaxPool2d(3, 2, 1)),
        body=nn.ModuleList((stage(24, 116, 3), stage(116, 232, 7), stage(232, 464, 3))),
        less=nn.ModuleList(conv(w, 96, 1, act=act) for w in (116, 232, 464)),
        ghosts=nn.ModuleList(Ghost(192, 96) for _ in "12"),
        heads=heads,
    )
    module.register_buffer("steps", torch.arange(8.0))
    return Family(module, *images("image", (1, 3, 416, 416), (2, 3, 416, 416), axes={0: "batch"}))


def area_attention() -> Family:
    """YOLO12: attention over four areas of the map, with a depthwise window over values; 384x640."""

    class Area(nn.Module):
        def __init__(self, n: int, areas: int) -> None:
            super().__init__()
            self.areas, self.heads = areas, n // 32
            self.qkv, self.out = conv(n, 3 * n, 1, act=nn.Identity), conv(n, n, 1, act=nn.Identity)
            self.place = conv(n, n, 7, groups=n, act=nn.Identity)
            self.after = nn.Sequential(conv(n, n * 6 // 5, 1, act=nn.SiLU), conv(n * 6 // 5, n, 1, act=nn.Identity))

        def forward(self, x: Tensor) -> Tensor:
            b, c, h, w = x.shape
            qkv = self.qkv(x).flatten(2).transpose(1, 2).reshape(b * self.areas, h * w // self.areas, self.heads, 96)
            q, k, v = qkv.permute(0, 2, 3, 1).split((32, 32, 32), 2)
            weights = ((q.transpose(-2, -1) @ k) * 32**-0.5).softmax(-1)
            y = (v @ weights.transpose(-2, -1)).permute(0, 3, 1, 2).reshape(b, h, w, c).permute(0, 3, 1, 2)
            v = v.permute(0, 3, 1, 2).reshape(b, h, w, c).permute(0, 3, 1, 2)
            x = x + self.out(y + self.place(v))
            return x + self.after(x)

    def forward(m: Any, x: Tensor) -> tuple[Tensor, ...]:
        a, b, c = m.body(m.stem(x))
        b, c = m.areas(b), m.whole(c)
        return tuple(head(y) for head, y in zip(m.heads, m.neck([a, b, c]), strict=True))

    widths = (64, 128, 256)
    module = Calling(
        forward,
        stem=conv(3, 16, 3, 2, act=nn.SiLU),
        body=Levels(16, (32, *widths), (1, 1, 1, 1), nn.SiLU),
        neck=Pyramid(widths),
        areas=nn.Sequential(Area(128, 4), Area(128, 4)),
        whole=nn.Sequential(Area(256, 1), Area(256, 1)),
        heads=nn.ModuleList(nn.Conv2d(w, 144, 1) for w in widths),
    )
    return Family(module, *images("images", (1, 3, 384, 640), (2, 3, 384, 640), axes={0: "batch"}))


def portrait() -> Family:
    """MODNet: halves of channels by batch norm and by instance norm, squeezed, three branches; 512x384."""

    class Mixed(nn.Module):
        def __init__(self, a: int, b: int, kernel: int = 3, stride: int = 1) -> None:
            super().__init__()
            self.half = b // 2
            self.conv = nn.Conv2d(a, b, kernel, stride, kernel // 2)
            self.batch, self.each = nn.BatchNorm2d(self.half), nn.InstanceNorm2d(b - self.half)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            return torch.relu(
                torch.cat((self.batch(y[:, : self.half].contiguous()), self.each(y[:, self.half :].contiguous())), 1)
            )

    def forward(m: Any, x: Tensor) -> Tensor:
        kept, y = [], m.enter(x)
        for stage in m.body:
            y = stage(y)
            kept.append(y)
        weight = m.gate(y.mean((2, 3)))
        low = y * weight[:, :, None, None]
        up = lambda z: F.interpolate(z, scale_factor=2, mode="bilinear", align_corners=False)  # noqa: E731
        for part in m.low:
            low = part(up(low))
        half = F.interpolate(x, scale_factor=0.5, mode="bilinear", align_corners=False)
        quarter = F.interpolate(x, scale_factor=0.25, mode="bilinear", align_corners=False)
        high = m.high[0](torch.cat((quarter, kept[0]), 1))
        high = m.high[1](torch.cat((high, up(low)), 1))
        high = m.high[2](torch.cat((up(high), half), 1))
        return torch.sigmoid(m.out(torch.cat((up(high), x), 1)))

    def stage(a: int, b: int) -> nn.Module:
        wide = 6 * a
        return nn.Sequential(
            conv(a, wide, 1, act=nn.ReLU6), conv(wide, wide, 3, 2, wide, act=nn.ReLU6), conv(wide, b, 1, act=nn.Identity)
        )

    module = Calling(
        forward,
        enter=conv(3, 32, 3, 2, act=nn.ReLU6),
        body=nn.ModuleList((stage(32, 24), stage(24, 32), stage(32, 96), stage(96, 320))),
        gate=nn.Sequential(nn.Linear(320, 80, bias=False), nn.ReLU(), nn.Linear(80, 320, bias=False), nn.Sigmoid()),
        low=nn.ModuleList((Mixed(320, 96, 5), Mixed(96, 32, 5))),
        high=nn.ModuleList((Mixed(27, 64), Mixed(96, 64), Mixed(67, 32))),
        out=nn.Sequential(Mixed(35, 16), nn.Conv2d(16, 1, 1)),
    )
    return Family(module, *images("input", (1, 3, 512, 384), (1, 3, 384, 512)))


def compact_esrgan() -> Family:
    """Sixteen windows of 64 channels with PReLU, then pixels of 48 channels, added to the enlarged picture; any size."""

    def forward(m: Any, x: Tensor) -> Tensor:
        return F.pixel_shuffle(m.body(x), 4) + F.interpolate(x, scale_factor=4, mode="nearest")

    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1), nn.PReLU(64)]
    for _ in range(16):
        layers += [nn.Conv2d(64, 64, 3, padding=1), nn.PReLU(64)]
    module = Calling(forward, body=nn.Sequential(*layers, nn.Conv2d(64, 48, 3, padding=1)))
    return Family(module, *images("image", (1, 3, 160, 120), (1, 3, 64, 96)))


def in_painter() -> Family:
    """LaMa: convolutions of spectra (DFT of both axes) beside windows; written by torch.export at opset 20."""

    class Spectral(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.enter, self.leave, self.mix = conv(n, n // 2, 1), nn.Conv2d(n // 2, n, 1, bias=False), conv(n, n, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.enter(x)
            b, c, h, w = x.shape
            y = (
                torch.view_as_real(torch.fft.rfftn(x, dim=(-2, -1), norm="ortho"))
                .permute(0, 1, 4, 2, 3)
                .reshape(b, 2 * c, h, w // 2 + 1)
            )
            y = self.mix(y).view(b, c, 2, h, w // 2 + 1).permute(0, 1, 3, 4, 2).contiguous()
            return self.leave(x + torch.fft.irfftn(torch.view_as_complex(y), s=(h, w), dim=(-2, -1), norm="ortho"))

    class Block(nn.Module):
        def __init__(self, near: int, far: int) -> None:
            super().__init__()
            window = lambda a, b: nn.Conv2d(a, b, 3, padding=1, padding_mode="reflect", bias=False)  # noqa: E731
            self.nn, self.nf, self.fn = window(near, near), window(near, far), window(far, near)
            self.ff, self.n1, self.n2 = Spectral(far), nn.BatchNorm2d(near), nn.BatchNorm2d(far)

        def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            near = torch.relu(self.n1(self.nn(a) + self.fn(b)))
            far = torch.relu(self.n2(self.nf(a) + self.ff(b)))
            return a + near, b + far

    def forward(m: Any, x: Tensor, mask: Tensor) -> Tensor:
        y = m.enter(torch.cat((x * (1 - mask), mask), 1))
        a, b = y[:, :48], y[:, 48:]
        for block in m.blocks:
            a, b = block(a, b)
        y = torch.sigmoid(m.leave(torch.cat((a, b), 1)))
        return mask * y + (1 - mask) * x

    up = lambda a, b: nn.Sequential(nn.ConvTranspose2d(a, b, 3, 2, 1, 1), nn.BatchNorm2d(b), nn.ReLU())  # noqa: E731
    module = Calling(
        forward,
        enter=nn.Sequential(conv(4, 48, 7), conv(48, 96, 3, 2), conv(96, 192, 3, 2)),
        blocks=nn.ModuleList(Block(48, 144) for _ in "1234"),
        leave=nn.Sequential(up(192, 96), up(96, 48), nn.Conv2d(48, 3, 7, padding=3)),
    )
    runs = [{"image": torch.rand(1, 3, 256, 256), "mask": (torch.rand(1, 1, 256, 256) > 0.7).float()} for _ in "12"]
    return by_export(Family(module, runs, {}), 20)


def code_former() -> Family:
    """A face to the nearest codes by a transformer, then a decoder with group norms; 256x256."""

    class Residual(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.n1, self.c1 = nn.GroupNorm(32, a, 1e-6), nn.Conv2d(a, b, 3, padding=1)
            self.n2, self.c2 = nn.GroupNorm(32, b, 1e-6), nn.Conv2d(b, b, 3, padding=1)
            self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            y = self.c1(F.silu(self.n1(x)))
            return self.skip(x) + self.c2(F.silu(self.n2(y)))

    def forward(m: Any, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        kept, y = [], m.enter(x)
        for stage in m.down:
            y = stage(F.avg_pool2d(y, 2))
            kept.append(y)
        q = m.feat(y.flatten(2).permute(0, 2, 1)) + m.places
        for layer in m.layers:
            q = layer(q)
        logits = m.logits(q)
        best = logits.softmax(-1).topk(1, -1).indices.squeeze(-1)
        one_hot = torch.zeros_like(logits).scatter_(2, best.unsqueeze(-1), 1.0)
        y = (one_hot @ m.codes).permute(0, 2, 1).reshape(-1, 192, 16, 16)
        mean, std = y.mean((2, 3), keepdim=True), y.flatten(2).var(2, keepdim=True).add(1e-5).sqrt().unsqueeze(-1)
        y = (y - mean) / std * kept[-1].flatten(2).std(2, keepdim=True).unsqueeze(-1) + kept[-1].mean((2, 3), keepdim=True)
        for i, stage in enumerate(m.up):
            y = stage(y)
            if i < 2:
                scale, shift = m.fuse[i](torch.cat((kept[-1 - i], y), 1)).chunk(2, 1)
                y = y + w * (y * scale + shift)
            y = F.interpolate(y, scale_factor=2.0, mode="nearest")
        return m.out(y), logits

    widths = (64, 96, 128, 192, 192)
    pairs = list(pairwise(widths))
    layers = nn.ModuleList(
        nn.TransformerEncoderLayer(256, 8, 512, activation="gelu", batch_first=True, norm_first=True) for _ in "123"
    )
    module = Calling(
        forward,
        enter=nn.Conv2d(3, 64, 3, padding=1),
        down=nn.ModuleList(Residual(a, b) for a, b in pairs),
        feat=nn.Linear(192, 256),
        layers=layers,
        logits=nn.Linear(256, 1024, bias=False),
        up=nn.ModuleList(Residual(b, a) for a, b in reversed(pairs)),
        fuse=nn.ModuleList((nn.Conv2d(384, 384, 3, padding=1), nn.Conv2d(320, 256, 3, padding=1))),
        out=nn.Conv2d(64, 3, 3, padding=1),
    )
    module.places, module.codes = nn.Parameter(torch.randn(256, 256)), nn.Parameter(torch.randn(1024, 192))
    return Family(module, [{"face": torch.rand(1, 3, 256, 256), "w": torch.tensor([0.5])} for _ in "12"], {})


def two_sides() -> Family:
    """BiRefNet: a picture at two sizes, windows that bend (sampled by offsets), means over the whole map; 512x512."""

    class Bent(nn.Module):
        """A deformable convolution as GridSample writes it: nine samples of every place, with a factor each."""

        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.offset, self.factor, self.out = (
                nn.Conv2d(a, 18, 3, padding=1),
                nn.Conv2d(a, 9, 3, padding=1),
                nn.Conv2d(9 * a, b, 1),
            )

        def forward(self, x: Tensor) -> Tensor:
            h, w = x.shape[2:]
            offset, factor = self.offset(x), torch.sigmoid(self.factor(x)) * 2
            ys, xs = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
            grid = torch.stack((xs, ys), -1)
            parts = []
            for i in range(9):
                move = offset[:, 2 * i : 2 * i + 2].permute(0, 2, 3, 1) * (2 / h)
                shift = torch.tensor([(i % 3 - 1) * 2 / w, (i // 3 - 1) * 2 / h])
                parts.append(F.grid_sample(x, grid + shift + move, align_corners=True) * factor[:, i : i + 1])
            return self.out(torch.cat(parts, 1))

    def forward(m: Any, x: Tensor) -> Tensor:
        kept, y = [], x
        for stage in m.body:
            y = stage(y)
            kept.append(y)
        small = F.interpolate(x, scale_factor=0.5, mode="bilinear", align_corners=True)
        for i, stage in enumerate(m.body):
            small = stage(small)
            kept[i] = torch.cat((kept[i], F.interpolate(small, size=kept[i].shape[2:], mode="bilinear", align_corners=True)), 1)
        y = m.less(kept[-1])
        whole = F.interpolate(m.mean(y), size=y.shape[2:], mode="bilinear", align_corners=True)
        y = m.join(torch.cat((m.bent(y), y, whole), 1))
        for i, side in enumerate(m.sides):
            up = F.interpolate(y, size=kept[2 - i].shape[2:], mode="bilinear", align_corners=True)
            y = m.steps[i](up + side(kept[2 - i]))
        y = F.interpolate(y, scale_factor=4, mode="bilinear", align_corners=True)
        return torch.sigmoid(m.out(torch.cat((y, m.picture(x)), 1)))

    widths = (48, 96, 160, 240)
    body = nn.ModuleList(
        nn.Sequential(
            conv(a, b, 4 if a == 3 else 3, 4 if a == 3 else 2, act=nn.GELU), conv(b, b, 7, groups=b, act=nn.GELU), conv(b, b, 1)
        )
        for a, b in zip((3, *widths), widths, strict=False)
    )
    with torch.no_grad():
        body[0][0][0].padding = (0, 0)
    module = Calling(
        forward,
        body=body,
        less=conv(480, 128),
        mean=nn.Sequential(nn.AdaptiveAvgPool2d(1), conv(128, 128, 1)),
        bent=Bent(128, 128),
        join=conv(384, 160),
        sides=nn.ModuleList((nn.Conv2d(320, 160, 1), nn.Conv2d(192, 96, 1), nn.Conv2d(96, 48, 1))),
        steps=nn.ModuleList((conv(160, 96), conv(96, 48), conv(48, 48))),
        picture=conv(3, 16),
        out=nn.Conv2d(64, 1, 1),
    )
    return Family(module, [{"image": torch.rand(1, 3, 512, 512)} for _ in "12"], {})


def board_tower() -> Family:
    """AlphaZero: 19x19 boards of 17 planes, ten residual blocks of 192 channels, policy and value; batch 8 and 1."""

    def forward(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        x = m.enter(x.float())
        for block in m.blocks:
            x = torch.relu(x + block(x))
        return F.log_softmax(m.policy(x), 1), torch.tanh(m.value(x))

    block = lambda: nn.Sequential(conv(192, 192), conv(192, 192, act=nn.Identity))  # noqa: E731
    module = Calling(
        forward,
        enter=conv(17, 192),
        blocks=nn.ModuleList(block() for _ in range(10)),
        policy=nn.Sequential(conv(192, 2, 1), nn.Flatten(), nn.Linear(722, 362)),
        value=nn.Sequential(conv(192, 1, 1), nn.Flatten(), nn.Linear(361, 256), nn.ReLU(), nn.Linear(256, 1)),
    )
    return Family(
        module, [{"planes": torch.randint(0, 2, (n, 17, 19, 19), dtype=torch.uint8)} for n in (8, 1)], {"planes": {0: "boards"}}
    )


FAMILIES = (
    yolox, rtm_det, nano_det, area_attention, portrait, compact_esrgan, in_painter, code_former, two_sides, board_tower,
)  # fmt: skip
