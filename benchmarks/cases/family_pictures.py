"""Networks of pictures, videos, poses and places for `families.py` that papers draw, in no other file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from cases.family import Calling, Family, images


def conv(
    a: int, b: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: Callable[[], nn.Module] = nn.ReLU, dilation: int = 1
) -> nn.Sequential:
    pad = dilation * (kernel // 2)
    return nn.Sequential(nn.Conv2d(a, b, kernel, stride, pad, dilation, groups, bias=False), nn.BatchNorm2d(b), act())


def tower(widths: Sequence[int], act: Callable[[], nn.Module] = nn.ReLU) -> nn.ModuleList:
    """Stages that each halve the image."""
    parts = (nn.Sequential(conv(a, b, 3, 2, act=act), conv(b, b, act=act)) for a, b in zip((3, *widths), widths, strict=False))
    return nn.ModuleList(parts)


def _like(x: Tensor, other: Tensor) -> Tensor:
    return F.interpolate(x, size=other.shape[2:], mode="bilinear", align_corners=False)


def high_resolution() -> Family:
    """HRNet: three resolutions side by side, each summed with what the others are when resized."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = m.enter(x)
        x = [x, m.second(x)]
        x.append(m.third(x[1]))
        for rows, fuse in zip(m.rows, m.fuse, strict=True):
            x = [y + row(y) for y, row in zip(x, rows, strict=True)]
            mixed = []
            for i in range(3):
                parts = [x[i]]
                for j in range(3):
                    if j > i:
                        parts.append(F.interpolate(fuse[3 * i + j](x[j]), scale_factor=2 ** (j - i), mode="nearest"))
                    elif j < i:
                        parts.append(fuse[3 * i + j](x[j]))
                mixed.append(torch.relu(sum(parts)))
            x = mixed
        return m.out(torch.cat((x[0], _like(x[1], x[0]), _like(x[2], x[0])), 1))

    widths = (18, 36, 72)

    def path(i: int, j: int) -> nn.Module:
        if j > i:
            return conv(widths[j], widths[i], 1, act=nn.Identity)
        steps = [conv(widths[j], widths[j], 3, 2) for _ in range(i - j - 1)]
        return nn.Sequential(*steps, conv(widths[j], widths[i], 3, 2, act=nn.Identity)) if j < i else nn.Identity()

    rows = nn.ModuleList(nn.ModuleList(nn.Sequential(conv(w, w), conv(w, w)) for w in widths) for _ in "123")
    fuse = nn.ModuleList(nn.ModuleList(path(i, j) for i in range(3) for j in range(3)) for _ in "123")
    parts = {"enter": nn.Sequential(conv(3, 32, 3, 2), conv(32, 18, 3, 2)), "second": conv(18, 36, 3, 2)}
    module = Calling(forward, **parts, third=conv(36, 72, 3, 2), rows=rows, fuse=fuse, out=nn.Conv2d(126, 17, 1))
    return Family(module, *images("image", (1, 3, 128, 96), (2, 3, 128, 128)))


def nested_u_net() -> Family:
    """U-Net++: every level meets all of the levels below it."""

    def forward(m: Any, x: Tensor) -> Tensor:
        level: list[list[Tensor]] = []
        for i, stage in enumerate(m.down):
            x = stage(x if i == 0 else F.max_pool2d(x, 2))
            level.append([x])
        k = 0
        for j in range(1, 4):
            for i in range(4 - j):
                up = F.interpolate(level[i + 1][j - 1], scale_factor=2, mode="bilinear", align_corners=True)
                level[i].append(m.nodes[k](torch.cat((*level[i], up), 1)))
                k += 1
        return m.out(level[0][-1])

    w = (16, 32, 64, 96)
    nodes = [conv(w[i] * j + w[i + 1], w[i]) for j in range(1, 4) for i in range(4 - j)]
    parts = {"down": nn.ModuleList(conv(a, b) for a, b in zip((3, *w), w, strict=False)), "nodes": nn.ModuleList(nodes)}
    return Family(Calling(forward, **parts, out=nn.Conv2d(16, 2, 1)), *images("image", (1, 3, 96, 96), (2, 3, 64, 128)))


def attention_u_net() -> Family:
    """Skips are weighed by what lies below them."""

    def forward(m: Any, x: Tensor) -> Tensor:
        kept = []
        for stage in m.down:
            x = stage(x)
            kept.append(x)
        for i in (2, 1, 0):
            gate = m.gates[i]
            weight = torch.sigmoid(gate[2](torch.relu(gate[0](kept[i]) + _like(gate[1](x), kept[i]))))
            x = m.up[i](torch.cat((kept[i] * weight, _like(x, kept[i])), 1))
        return m.out(x)

    w = (24, 48, 96, 128)
    gates = nn.ModuleList(nn.ModuleList((nn.Conv2d(a, a, 1), nn.Conv2d(b, a, 1), nn.Conv2d(a, 1, 1))) for a, b in pairwise(w))
    up = nn.ModuleList(conv(a + b, a) for a, b in pairwise(w))
    module = Calling(forward, down=tower(w), gates=gates, up=up, out=nn.Conv2d(24, 1, 1))
    return Family(module, *images("image", (1, 3, 128, 128), (2, 3, 96, 160)))


def pyramid_pooling() -> Family:
    """PSPNet: means of 1, 2, 3 and 6 parts of the image beside its maps."""

    def forward(m: Any, x: Tensor) -> Tensor:
        for stage in m.down:
            x = stage(x)
        parts = [_like(level(F.adaptive_avg_pool2d(x, size)), x) for size, level in zip((1, 2, 3, 6), m.levels, strict=True)]
        return F.interpolate(m.out(torch.cat((x, *parts), 1)), scale_factor=8, mode="bilinear", align_corners=True)

    levels = nn.ModuleList(conv(128, 32, 1) for _ in "1236")
    module = Calling(forward, down=tower((32, 64, 128)), levels=levels, out=nn.Sequential(conv(256, 64), nn.Conv2d(64, 19, 1)))
    return Family(module, *images("image", (1, 3, 192, 192), (3, 3, 192, 192), axes={0: "batch"}))


def large_kernel() -> Family:
    """VAN: attention by a depthwise window, a dilated one and a pointwise one, as factors."""

    class Block(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.norm, self.enter, self.leave = nn.BatchNorm2d(n), nn.Conv2d(n, n, 1), nn.Conv2d(n, n, 1)
            near, far = nn.Conv2d(n, n, 5, padding=2, groups=n), nn.Conv2d(n, n, 7, padding=9, dilation=3, groups=n)
            self.look = nn.Sequential(near, far, nn.Conv2d(n, n, 1))
            wide = (
                nn.Conv2d(n, 4 * n, 1),
                nn.Conv2d(4 * n, 4 * n, 3, padding=1, groups=4 * n),
                nn.GELU(),
                nn.Conv2d(4 * n, n, 1),
            )
            self.after = nn.Sequential(nn.BatchNorm2d(n), *wide)
            self.scale = nn.Parameter(torch.full((n, 1, 1), 0.1))

        def forward(self, x: Tensor) -> Tensor:
            y = F.gelu(self.enter(self.norm(x)))
            x = x + self.scale * self.leave(self.look(y) * y)
            return x + self.scale * self.after(x)

    layers = [
        conv(3, 32, 7, 4, act=nn.Identity),
        Block(32),
        Block(32),
        conv(32, 64, 3, 2, act=nn.Identity),
        Block(64),
        Block(64),
    ]
    module = nn.Sequential(*layers, conv(64, 160, 3, 2), Block(160), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(160, 10))
    return Family(module, *images("image", (1, 3, 224, 224), (4, 3, 224, 224), axes={0: "batch"}))


def shifted_frames() -> Family:
    """TSM: an eighth of the channels comes from the frame before, an eighth from the one after."""

    def forward(m: Any, x: Tensor) -> Tensor:
        n, t = x.shape[0], 8
        x = m.enter(x.flatten(0, 1))
        for block in m.blocks:
            c, h, w = x.shape[1:]
            y, fold = x.view(n, t, c, h, w), c // 8
            ahead = F.pad(y[:, 1:, :fold], (0, 0, 0, 0, 0, 0, 0, 1))
            back = F.pad(y[:, :-1, fold : 2 * fold], (0, 0, 0, 0, 0, 0, 1, 0))
            x = x + block(torch.cat((ahead, back, y[:, :, 2 * fold :]), 2).view(n * t, c, h, w))
        return m.out(x.mean((2, 3))).view(n, t, -1).mean(1)

    blocks = nn.ModuleList(nn.Sequential(conv(64, 64), conv(64, 64, act=nn.Identity)) for _ in "123")
    module = Calling(forward, enter=nn.Sequential(conv(3, 32, 7, 2), conv(32, 64, 3, 2)), blocks=blocks, out=nn.Linear(64, 10))
    return Family(module, *images("clip", (1, 8, 3, 112, 112), (2, 8, 3, 112, 112), axes={0: "batch"}))


def two_speeds() -> Family:
    """SlowFast: few frames with many channels, many frames with few, joined by strided windows over time."""

    def conv(a: int, b: int, kernel: tuple[int, int, int], stride: tuple[int, int, int]) -> nn.Module:
        pads = tuple(k // 2 for k in kernel)
        return nn.Sequential(nn.Conv3d(a, b, kernel, stride, pads, bias=False), nn.BatchNorm3d(b), nn.ReLU())

    def forward(m: Any, x: Tensor) -> Tensor:
        slow, fast = m.slow[0](x[:, :, ::8]), m.fast[0](x)
        for i in (1, 2):
            slow = m.slow[i](torch.cat((slow, m.across[i - 1](fast)), 1))
            fast = m.fast[i](fast)
        return m.out(torch.cat((slow.mean((2, 3, 4)), fast.mean((2, 3, 4))), 1))

    slow = nn.ModuleList(
        (conv(3, 64, (1, 7, 7), (1, 4, 4)), conv(80, 96, (1, 3, 3), (1, 2, 2)), conv(128, 128, (3, 3, 3), (1, 2, 2)))
    )
    fast = nn.ModuleList(
        (conv(3, 8, (5, 7, 7), (1, 4, 4)), conv(8, 16, (3, 3, 3), (1, 2, 2)), conv(16, 32, (3, 3, 3), (1, 2, 2)))
    )
    across = nn.ModuleList((conv(8, 16, (5, 1, 1), (8, 1, 1)), conv(16, 32, (5, 1, 1), (8, 1, 1))))
    module = Calling(forward, slow=slow, fast=fast, across=across, out=nn.Linear(160, 10))
    return Family(module, *images("clip", (1, 3, 32, 112, 112), (2, 3, 32, 112, 112), axes={0: "batch"}))


def _warped(x: Tensor, flow: Tensor) -> Tensor:
    h, w = x.shape[2:]
    ys = torch.linspace(-1, 1, h).view(1, h, 1, 1).expand(x.shape[0], h, w, 1)
    xs = torch.linspace(-1, 1, w).view(1, 1, w, 1).expand(x.shape[0], h, w, 1)
    moved = flow.permute(0, 2, 3, 1) / torch.tensor([(w - 1) / 2, (h - 1) / 2])
    return F.grid_sample(x, torch.cat((xs, ys), 3) + moved, padding_mode="border", align_corners=True)


def frame_between() -> Family:
    """RIFE: flows that are made finer, both frames warped by them and mixed by a mask."""

    def forward(m: Any, x: Tensor) -> Tensor:
        first, second = x[:, :3], x[:, 3:]
        flow = mask = None
        for scale, block in zip((4, 2, 1), m.blocks, strict=True):
            parts = (x,) if flow is None else (_warped(first, flow[:, :2]), _warped(second, flow[:, 2:]), mask, flow)
            y = torch.cat(parts, 1)
            y = y if scale == 1 else F.interpolate(y, scale_factor=1 / scale, mode="bilinear", align_corners=False)
            y = F.interpolate(block(y), scale_factor=float(2 * scale), mode="bilinear", align_corners=False)
            more = y[:, :4] * (2 * scale)
            flow, mask = (more, y[:, 4:]) if flow is None else (flow + more, mask + y[:, 4:])
        weight = torch.sigmoid(mask)
        return _warped(first, flow[:, :2]) * weight + _warped(second, flow[:, 2:]) * (1 - weight)

    def block(n: int) -> nn.Module:
        act = lambda: nn.LeakyReLU(0.2)  # noqa: E731
        return nn.Sequential(
            conv(n, 48, 3, 2, act=act), *(conv(48, 48, act=act) for _ in "1234"), nn.Conv2d(48, 5, 3, padding=1)
        )

    module = Calling(forward, blocks=nn.ModuleList((block(6), block(11), block(11))))
    return Family(module, *images("frames", (1, 6, 128, 192), (2, 6, 128, 192), axes={0: "batch"}))


def matting() -> Family:
    """Robust video matting: a convolutional GRU at each level keeps what the frames before showed."""

    def forward(m: Any, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        kept, new = [x], []
        for stage in m.down:
            x = stage(x)
            kept.append(x)
        for i, cell in enumerate(m.cells):
            if i:
                up = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
                x = m.join[i - 1](torch.cat((up, kept[-1 - i]), 1))
            same, seen = x.chunk(2, 1)
            z, r = torch.sigmoid(cell[0](torch.cat((seen, states[i]), 1))).chunk(2, 1)
            h = (1 - z) * states[i] + z * torch.tanh(cell[1](torch.cat((seen, r * states[i]), 1)))
            new.append(h)
            x = torch.cat((same, h), 1)
        return (torch.sigmoid(m.out(F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False))), *new)

    down = tower((16, 32, 64), nn.Hardswish)
    halves = (32, 24, 16)
    cells = nn.ModuleList(
        nn.ModuleList((nn.Conv2d(2 * n, 2 * n, 3, padding=1), nn.Conv2d(2 * n, n, 3, padding=1))) for n in halves
    )
    module = Calling(
        forward, down=down, cells=cells, join=nn.ModuleList((conv(96, 48), conv(64, 32))), out=nn.Conv2d(32, 1, 3, padding=1)
    )

    def run(n: int, h: int, w: int) -> dict[str, Tensor]:
        states = {f"state{i}": torch.randn(n, c, h >> (3 - i), w >> (3 - i)) for i, c in enumerate(halves)}
        return {"frame": torch.rand(n, 3, h, w), **states}

    axes = {"frame": {0: "n", 2: "h", 3: "w"}, **{f"state{i}": {0: "n", 2: f"h{i}", 3: f"w{i}"} for i in range(3)}}
    return Family(module, [run(1, 144, 256), run(1, 96, 96)], axes)


def open_pose() -> Family:
    """Stages that see the maps and what the stage before made of them; peaks by a maximum around each place."""

    def forward(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        for stage in m.down:
            x = stage(x)
        y = m.first(x)
        for stage in m.stages:
            y = stage(torch.cat((x, y), 1))
        peaks = torch.where(F.max_pool2d(y[:, :19], 3, 1, 1) == y[:, :19], y[:, :19], torch.zeros(()))
        values, places = peaks.flatten(2).topk(5, -1)
        return values, torch.stack((places % y.shape[3], places // y.shape[3]), -1)

    stages = nn.ModuleList(nn.Sequential(conv(185, 128, 7), conv(128, 128, 7), nn.Conv2d(128, 57, 1)) for _ in "12")
    module = Calling(
        forward, down=tower((32, 64, 128)), first=nn.Sequential(conv(128, 128), nn.Conv2d(128, 57, 1)), stages=stages
    )
    return Family(module, *images("image", (1, 3, 184, 184), (2, 3, 184, 184), axes={0: "batch"}))


def simple_coordinates() -> Family:
    """RTMPose: a gated attention over joints, their places by the largest of two rows."""

    def forward(m: Any, x: Tensor) -> tuple[Tensor, ...]:
        for stage in m.down:
            x = stage(x)
        y = m.norm(m.enter(m.joints(x).flatten(2)))
        u, v, base = m.gate(y).split((256, 256, 64), -1)
        q, k = base * m.scale[0] + m.shift[0], base * m.scale[1] + m.shift[1]
        y = y + m.leave(F.silu(u) * (torch.relu(q @ k.transpose(1, 2) / 8) ** 2 @ F.silu(v)))
        across, along = m.x(y), m.y(y)
        return across.argmax(-1), along.argmax(-1), torch.minimum(across.amax(-1), along.amax(-1))

    parts = {
        "down": tower((24, 48, 96, 192), nn.SiLU),
        "joints": nn.Conv2d(192, 17, 7, padding=3),
        "enter": nn.Linear(192, 256),
    }
    parts |= {"gate": nn.Linear(256, 576), "leave": nn.Linear(256, 256), "x": nn.Linear(256, 384), "y": nn.Linear(256, 512)}
    module = Calling(forward, **parts, norm=nn.LayerNorm(256))
    module.scale, module.shift = nn.Parameter(torch.rand(2, 64)), nn.Parameter(torch.rand(2, 64))
    return Family(module, *images("image", (1, 3, 256, 192), (3, 3, 256, 192), axes={0: "batch"}))


def face_boxes() -> Family:
    """RetinaFace: pyramids with windows in cascade, boxes, scores and five points by anchors."""

    class Cascade(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            half, quarter = n // 2, n // 4
            self.near, self.enter = conv(n, half, act=nn.Identity), conv(n, quarter)
            self.middle, self.more = conv(quarter, quarter, act=nn.Identity), conv(quarter, quarter)
            self.far = conv(quarter, quarter, act=nn.Identity)

        def forward(self, x: Tensor) -> Tensor:
            y = self.enter(x)
            return torch.relu(torch.cat((self.near(x), self.middle(y), self.far(self.more(y))), 1))

    def forward(m: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        maps = []
        for stage in m.down:
            x = stage(x)
            maps.append(x)
        y = [side(z) for side, z in zip(m.sides, maps[1:], strict=True)]
        for i in (1, 0):
            y[i] = m.merge[i](y[i] + F.interpolate(y[i + 1], size=y[i].shape[2:], mode="nearest"))
        y = [c(z) for c, z in zip(m.cascades, y, strict=True)]
        rows = [
            [h(z).permute(0, 2, 3, 1).flatten(1).view(z.shape[0], -1, k) for z, h in zip(y, hs, strict=True)]
            for k, hs in zip((4, 2, 10), m.heads, strict=True)
        ]
        boxes, scores, points = (torch.cat(r, 1) for r in rows)
        return boxes, scores.softmax(-1), points

    heads = nn.ModuleList(nn.ModuleList(nn.Conv2d(64, 2 * k, 1) for _ in "123") for k in (4, 2, 10))
    parts = {
        "sides": nn.ModuleList(conv(n, 64, 1) for n in (32, 64, 128)),
        "merge": nn.ModuleList((conv(64, 64), conv(64, 64))),
    }
    cascades = nn.ModuleList(Cascade(64) for _ in "123")
    module = Calling(forward, down=tower((16, 32, 64, 128), lambda: nn.LeakyReLU(0.1)), **parts, cascades=cascades, heads=heads)
    return Family(module, *images("image", (1, 3, 256, 320), (2, 3, 192, 192)))


def anchor_yolo() -> Family:
    """YOLOv3 to v7: anchors by grids, spatial pyramid pooling, focus by slices."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = torch.cat((x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]), 1)
        maps = []
        x = m.enter(x)
        for stage in m.down:
            x = stage(x)
            maps.append(x)
        pools = [maps[-1]]
        for _ in "123":
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        small = m.pyramid(torch.cat(pools, 1))
        large = m.merge(torch.cat((F.interpolate(small, scale_factor=2, mode="nearest"), maps[-2]), 1))
        found = []
        for y, head, stride, anchors in ((large, m.heads[0], 16, m.anchors[0]), (small, m.heads[1], 32, m.anchors[1])):
            n, _, h, w = y.shape
            z = head(y).view(n, 3, 25, h, w).permute(0, 1, 3, 4, 2).sigmoid()
            gy, gx = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
            grid = torch.stack((gx, gy), 2).view(1, 1, h, w, 2).float()
            xy, wh = (z[..., :2] * 2 - 0.5 + grid) * stride, (z[..., 2:4] * 2) ** 2 * anchors
            found.append(torch.cat((xy, wh, z[..., 4:]), -1).view(n, -1, 25))
        return torch.cat(found, 1)

    down = nn.ModuleList(
        nn.Sequential(conv(a, b, 3, 2, act=nn.SiLU), conv(b, b, act=nn.SiLU))
        for a, b in ((24, 48), (48, 96), (96, 128), (128, 192))
    )
    parts = {
        "enter": conv(12, 24, act=nn.SiLU),
        "pyramid": conv(768, 128, 1, act=nn.SiLU),
        "merge": conv(256, 128, 3, act=nn.SiLU),
    }
    module = Calling(forward, **parts, down=down, heads=nn.ModuleList(nn.Conv2d(128, 75, 1) for _ in "12"))
    module.register_buffer("anchors", torch.rand(2, 1, 3, 1, 1, 2) * 100)
    return Family(module, *images("image", (1, 3, 320, 320), (2, 3, 256, 320)))


FAMILIES = (
    high_resolution, nested_u_net, attention_u_net, pyramid_pooling, large_kernel, shifted_frames, two_speeds, frame_between,
    matting, open_pose, simple_coordinates, face_boxes, anchor_yolo,
)  # fmt: skip
