"""Networks that match, remember, draw and scan pictures for `families.py`, in no other file."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from cases.family import Calling, Family, images
from cases.family_pictures import conv, tower


def lifted_views() -> Family:
    """Lift, splat: pixels of six cameras times a distribution of depths, added up in cells seen from above."""

    def forward(m: Any, x: Tensor, cells: Tensor) -> Tensor:
        for stage in m.down:
            x = stage(x)
        depth, what = m.lift(x).split((24, 32), 1)
        points = (depth.softmax(1).unsqueeze(2) * what.unsqueeze(1)).permute(0, 1, 3, 4, 2).reshape(-1, 32)
        above = torch.zeros(64 * 64, 32).scatter_add(0, cells.view(-1, 1).expand(-1, 32), points)
        return m.out(above.view(1, 64, 64, 32).permute(0, 3, 1, 2))

    module = Calling(
        forward, down=tower((24, 48, 96)), lift=nn.Conv2d(96, 56, 1), out=nn.Sequential(conv(32, 64), nn.Conv2d(64, 4, 1))
    )
    runs = [{"views": torch.rand(6, 3, 96, 160), "cells": torch.randint(0, 4096, (6 * 24 * 12 * 20,))} for _ in "12"]
    return Family(module, runs, {})


def super_glue() -> Family:
    """Points of two pictures by attention within and across, then Sinkhorn's iterations in logarithms."""

    def forward(m: Any, a: Tensor, b: Tensor, pa: Tensor, pb: Tensor) -> Tensor:
        x = [a + m.place(pa), b + m.place(pb)]
        for i, layer in enumerate(m.layers):
            sources = x if i % 2 == 0 else x[::-1]
            new = []
            for y, s in zip(x, sources, strict=True):
                q, k, v = (f(z).unflatten(-1, (4, 32)).transpose(1, 2) for f, z in zip(layer[:3], (y, s, s), strict=True))
                got = layer[3](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
                new.append(y + layer[4](torch.cat((y, got), -1)))
            x = new
        scores = m.out(x[0]) @ m.out(x[1]).transpose(1, 2) / 128**0.5
        for _ in range(20):
            scores = scores - scores.logsumexp(2, keepdim=True)
            scores = scores - scores.logsumexp(1, keepdim=True)
        return scores.exp()

    mixed = lambda: nn.Sequential(nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU(), nn.Linear(256, 128))  # noqa: E731
    layers = nn.ModuleList(nn.ModuleList((*(nn.Linear(128, 128) for _ in "qkvo"), mixed())) for _ in "1234")
    module = Calling(
        forward, place=nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 128)), layers=layers, out=nn.Linear(128, 128)
    )

    def run(i: int, j: int) -> dict[str, Tensor]:
        return {"a": torch.randn(1, i, 128), "b": torch.randn(1, j, 128), "pa": torch.rand(1, i, 2), "pb": torch.rand(1, j, 2)}

    axes = {name: {1: "left" if "a" in name else "right"} for name in ("a", "b", "pa", "pb")}
    return Family(module, [run(256, 200), run(100, 180)], axes)


def patch_memory() -> Family:
    """PatchCore: how far each place's features are from the nearest of those that were kept."""

    def forward(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        maps = []
        for stage in m.down:
            x = stage(x)
            maps.append(F.avg_pool2d(x, 3, 1, 1))
        y = torch.cat((maps[1], F.interpolate(maps[2], scale_factor=2, mode="bilinear", align_corners=False)), 1)
        rows = y.flatten(2).transpose(1, 2)
        far = torch.cdist(rows, m.kept.expand(x.shape[0], -1, -1)).topk(3, -1, largest=False).values
        score = far.mean(-1).view(x.shape[0], 1, *y.shape[2:])
        return F.interpolate(score, scale_factor=4, mode="bilinear", align_corners=False), far.amax((1, 2))

    module = Calling(forward, down=tower((32, 64, 96)))
    module.register_buffer("kept", torch.randn(1, 500, 160))
    return Family(module, *images("image", (1, 3, 128, 128), (3, 3, 128, 128), axes={0: "batch"}))


def masked_pixels() -> Family:
    """PixelCNN: windows of which half is zero, gated, in two stacks."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = m.enter(x)
        for window, out in zip(m.convs, m.outs, strict=True):
            a, b = window(x).chunk(2, 1)
            x = x + out(torch.tanh(a) * torch.sigmoid(b))
        return m.last(x)

    convs = nn.ModuleList(nn.Conv2d(64, 128, 5, padding=2) for _ in "1234")
    with torch.no_grad():
        for window in convs:
            window.weight[:, :, 3:] = 0
            window.weight[:, :, 2, 3:] = 0
    module = Calling(
        forward,
        enter=nn.Conv2d(1, 64, 7, padding=3),
        convs=convs,
        outs=nn.ModuleList(nn.Conv2d(64, 64, 1) for _ in "1234"),
        last=nn.Conv2d(64, 256, 1),
    )
    return Family(module, *images("image", (4, 1, 28, 28), (1, 1, 28, 28), axes={0: "batch"}))


def face_swap() -> Family:
    """A generator whose instance norms take scale and shift from an identity."""

    def forward(m: Any, x: Tensor, who: Tensor) -> Tensor:
        x = m.enter(F.pad(x, (3, 3, 3, 3), mode="reflect"))
        for window, style in zip(m.convs, m.styles, strict=True):
            y = window(F.pad(x, (1, 1, 1, 1), mode="reflect"))
            mean = y.mean((2, 3), keepdim=True)
            y = (y - mean) * torch.rsqrt(((y - mean) ** 2).mean((2, 3), keepdim=True) + 1e-8)
            scale, shift = style(who)[:, :, None, None].chunk(2, 1)
            x = x + torch.relu(y * (scale + 1) + shift)
        for up in m.up:
            x = up(F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False))
        return (torch.tanh(m.last(x)) + 1) / 2

    parts = {
        "enter": nn.Sequential(nn.Conv2d(3, 32, 7), conv(32, 64, 3, 2), conv(64, 128, 3, 2)),
        "last": nn.Conv2d(32, 3, 7, padding=3),
    }
    convs, styles = nn.ModuleList(nn.Conv2d(128, 128, 3) for _ in "1234"), nn.ModuleList(nn.Linear(512, 256) for _ in "1234")
    module = Calling(forward, **parts, convs=convs, styles=styles, up=nn.ModuleList((conv(128, 64), conv(64, 32))))
    runs = [{"face": torch.rand(n, 3, 128, 128), "who": torch.randn(n, 512)} for n in (1, 2)]
    return Family(module, runs, {"face": {0: "n"}, "who": {0: "n"}})


def crossing_scan() -> Family:
    """VMamba: rows, columns and both backwards as four sequences of a gated linear recurrence (by sums of logarithms)."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = m.enter(x)
        for block in m.blocks:
            n, c, h, w = x.shape
            y, z = block[0](block[4](x.permute(0, 2, 3, 1))).chunk(2, -1)
            y = F.silu(block[1](y.permute(0, 3, 1, 2)))
            lines = torch.stack((y.flatten(2), y.transpose(2, 3).flatten(2)), 1)
            lines = torch.cat((lines, lines.flip(-1)), 1)
            decay = F.softplus(block[2](lines.transpose(2, 3))).transpose(2, 3).clamp(max=0.3)
            total = decay.cumsum(-1)
            state = (lines * decay * total.clamp(max=60).exp()).cumsum(-1) * (-total.clamp(max=60)).exp()
            state = state[:, :2] + state[:, 2:].flip(-1)
            y = state[:, 0].view(n, c, h, w) + state[:, 1].view(n, c, w, h).transpose(2, 3)
            x = x + block[3](y.permute(0, 2, 3, 1) * F.silu(z)).permute(0, 3, 1, 2)
        return m.out(x.mean((2, 3)))

    def block(n: int) -> nn.ModuleList:
        return nn.ModuleList(
            (nn.Linear(n, 2 * n), nn.Conv2d(n, n, 3, padding=1, groups=n), nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n))
        )

    module = Calling(forward, enter=nn.Conv2d(3, 64, 8, 8), blocks=nn.ModuleList((block(64), block(64))), out=nn.Linear(64, 10))
    return Family(module, *images("image", (1, 3, 112, 112), (2, 3, 112, 112), axes={0: "batch"}))


FAMILIES = (lifted_views, super_glue, patch_memory, masked_pixels, face_swap, crossing_scan)
