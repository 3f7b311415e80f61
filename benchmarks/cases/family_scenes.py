"""Networks of images, videos, points and scenes for `families.py` that papers draw, in no other file."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from cases.family import Axes, Calling, Family, Run, images


def _conv(
    a: int, b: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: Callable[[], nn.Module] = nn.ReLU
) -> nn.Module:
    layers = (nn.Conv2d(a, b, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(b), act())
    return nn.Sequential(*layers)


def factored_video() -> Family:
    """R(2+1)D: windows over the image, then over time."""

    def pair(a: int, b: int, stride: int = 1) -> nn.Module:
        middle = max(a, b)
        space = nn.Conv3d(a, middle, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False)
        time = nn.Conv3d(middle, b, (3, 1, 1), (stride, 1, 1), (1, 0, 0), bias=False)
        return nn.Sequential(space, nn.BatchNorm3d(middle), nn.ReLU(), time, nn.BatchNorm3d(b), nn.ReLU())

    def forward(m: Any, x: Tensor) -> Tensor:
        x = m.enter(x)
        for down, stay in zip(m.downs, m.stays, strict=True):
            x = down(x)
            x = x + stay(x)
        return m.out(x.mean((2, 3, 4)))

    parts = {"enter": pair(3, 24, 2), "downs": nn.ModuleList([pair(24, 48), pair(48, 96, 2), pair(96, 160, 2)])}
    parts["stays"] = nn.ModuleList(pair(n, n) for n in (48, 96, 160))
    module = Calling(forward, **parts, out=nn.Linear(160, 10))
    return Family(module, *images("clip", (1, 3, 8, 112, 112), (2, 3, 8, 112, 112), axes={0: "batch"}))


def slim_video() -> Family:
    """X3D: depthwise windows of 3 x 3 x 3 between pointwise ones, excitation, x Sigmoid(x)."""

    class Block(nn.Module):
        def __init__(self, a: int, b: int, stride: int) -> None:
            super().__init__()
            wide = int(2.25 * b)
            self.enter = nn.Sequential(nn.Conv3d(a, wide, 1, bias=False), nn.BatchNorm3d(wide), nn.ReLU())
            steps = (1, stride, stride)
            self.around = nn.Sequential(nn.Conv3d(wide, wide, 3, steps, 1, groups=wide, bias=False), nn.BatchNorm3d(wide))
            self.gate = nn.Sequential(
                nn.AdaptiveAvgPool3d(1), nn.Conv3d(wide, 8, 1), nn.ReLU(), nn.Conv3d(8, wide, 1), nn.Sigmoid()
            )
            self.leave = nn.Sequential(nn.Conv3d(wide, b, 1, bias=False), nn.BatchNorm3d(b))
            self.beside = nn.Identity() if a == b and stride == 1 else nn.Conv3d(a, b, 1, steps)

        def forward(self, x: Tensor) -> Tensor:
            y = self.around(self.enter(x))
            return F.relu(self.beside(x) + self.leave(F.silu(y * self.gate(y))))

    blocks = [Block(24, 24, 2), Block(24, 24, 1), Block(24, 48, 2), Block(48, 48, 1), Block(48, 96, 2), Block(96, 96, 1)]
    stem = (nn.Conv3d(3, 24, (1, 3, 3), (1, 2, 2), (0, 1, 1)), nn.Conv3d(24, 24, (5, 1, 1), 1, (2, 0, 0), groups=24), nn.ReLU())
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(96, 10))
    return Family(model, *images("clip", (1, 3, 8, 128, 128), (2, 3, 8, 128, 128), axes={0: "batch"}))


def efficient_detector() -> Family:
    """Separable convolutions, weighted sums of levels both ways (BiFPN), heads shared by levels, sigmoids."""

    def separable(a: int, b: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(a, a, 3, 1, 1, groups=a), nn.Conv2d(a, b, 1))

    def forward(m: Any, x: Tensor) -> Any:
        levels = []
        for down in m.downs:
            x = down(x)
            levels.append(x)
        levels = [enter(y) for enter, y in zip(m.enters, levels[-4:], strict=True)]
        for weights, convs in zip(m.weights, m.convs, strict=True):
            w = F.relu(weights.weight)
            w = w / (w.sum(1, keepdim=True) + 1e-4)
            up = [levels[3]]
            for i in (2, 1, 0):
                larger = F.interpolate(up[0], scale_factor=2.0, mode="nearest")
                up.insert(0, convs[i](F.silu(w[i, 0] * levels[i] + w[i, 1] * larger)))
            levels = [up[0]]
            for i in (1, 2, 3):
                smaller = F.max_pool2d(levels[-1], 3, 2, 1)
                levels.append(convs[i + 3](F.silu(w[i + 3, 0] * up[i] + w[i + 3, 1] * smaller)))
        found = [(m.boxes(y).flatten(2), torch.sigmoid(m.classes(y)).flatten(2)) for y in levels]
        return torch.cat([a for a, _ in found], 2), torch.cat([b for _, b in found], 2)

    widths = (3, 16, 24, 40, 80, 112, 160)
    downs = [_conv(3, 16, 3, 2)] + [
        nn.Sequential(_conv(a, 4 * a, 1, act=nn.SiLU), _conv(4 * a, 4 * a, 3, 2, 4 * a, nn.SiLU), nn.Conv2d(4 * a, b, 1))
        for a, b in pairwise(widths[1:])
    ]
    parts = {"downs": nn.ModuleList(downs), "enters": nn.ModuleList(nn.Conv2d(w, 64, 1) for w in widths[-4:])}
    parts |= {"weights": nn.ModuleList(nn.Embedding(7, 2) for _ in "12")}
    parts["convs"] = nn.ModuleList(nn.ModuleList(separable(64, 64) for _ in range(7)) for _ in "12")
    heads = {
        name: nn.Sequential(separable(64, 64), nn.SiLU(), separable(64, n)) for name, n in (("boxes", 36), ("classes", 90))
    }
    return Family(Calling(forward, **parts, **heads), *images("x", (1, 3, 256, 256), (2, 3, 256, 192)))


def pyramid_flow() -> Family:
    """PWC: costs of shifts within four pixels at each level, the second image bent by the flow so far."""

    def costs(a: Tensor, b: Tensor) -> Tensor:
        height, width = a.shape[2:]
        padded = F.pad(b, (4, 4, 4, 4))
        shifts = [(a * padded[:, :, y : y + height, x : x + width]).mean(1, keepdim=True) for y in range(9) for x in range(9)]
        return F.leaky_relu(torch.cat(shifts, 1), 0.1)

    def bent(x: Tensor, flow: Tensor) -> Tensor:
        height, width = x.shape[2:]
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        grid = torch.stack([columns, rows]).float()[None] + flow
        scale = torch.tensor([2.0 / (width - 1), 2.0 / (height - 1)]).view(1, 2, 1, 1)
        return F.grid_sample(x, (grid * scale - 1).permute(0, 2, 3, 1), align_corners=True)

    def forward(m: Any, first: Tensor, second: Tensor) -> Tensor:
        kept = []
        for down in m.downs:
            first, second = down(first), down(second)
            kept.append((first, second))
        flow = None
        for (a, b), estimate in zip(reversed(kept[1:]), m.estimates, strict=True):
            if flow is None:
                flow = torch.zeros_like(a[:, :2])
            else:
                flow = 2 * F.interpolate(flow, scale_factor=2.0, mode="bilinear", align_corners=False)
                b = bent(b, flow)
            flow = flow + estimate(torch.cat([costs(a, b), a, flow], 1))
        return flow

    def act() -> nn.Module:
        return nn.LeakyReLU(0.1)

    widths = (3, 16, 32, 64, 96)
    downs = [nn.Sequential(_conv(a, b, 3, 2, act=act), _conv(b, b, act=act)) for a, b in pairwise(widths)]
    estimates = [
        nn.Sequential(_conv(83 + w, 64, act=act), _conv(64, 32, act=act), nn.Conv2d(32, 2, 3, 1, 1)) for w in widths[:1:-1]
    ]
    module = Calling(forward, downs=nn.ModuleList(downs), estimates=nn.ModuleList(estimates))
    return Family(module, [{name: torch.rand(1, 3, 128, 192) for name in ("first", "second")}], {})


def gated_u_net() -> Family:
    """Skips weighted by attention gates, transposed convolutions, nested joins."""

    def forward(m: Any, x: Tensor) -> Tensor:
        kept = []
        for down in m.downs:
            x = down(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = m.bottom(x)
        for up, gate, here, join in zip(m.ups, m.gates, m.heres, m.joins, strict=True):
            x, skip = up(x), kept.pop()
            x = join(torch.cat([x, skip * torch.sigmoid(here(F.relu(gate[0](x) + gate[1](skip))))], 1))
        return torch.sigmoid(m.out(x))

    def two(a: int, b: int) -> nn.Module:
        return nn.Sequential(_conv(a, b), _conv(b, b))

    w = (24, 48, 96)
    parts = {"downs": nn.ModuleList([two(1, 24), two(24, 48), two(48, 96)]), "bottom": two(96, 192)}
    parts |= {"ups": nn.ModuleList(nn.ConvTranspose2d(2 * a, a, 2, 2) for a in reversed(w))}
    parts |= {"gates": nn.ModuleList(nn.ModuleList(nn.Conv2d(a, a // 2, 1) for _ in "12") for a in reversed(w))}
    parts |= {
        "heres": nn.ModuleList(nn.Conv2d(a // 2, 1, 1) for a in reversed(w)),
        "joins": nn.ModuleList(two(2 * a, a) for a in reversed(w)),
    }
    return Family(Calling(forward, **parts, out=nn.Conv2d(24, 1, 1)), *images("x", (1, 1, 160, 160), (2, 1, 96, 128)))


def curve_enhancer() -> Family:
    """Zero-DCE: eight curves for each pixel from a small network, applied one after the other."""

    def forward(m: Any, x: Tensor) -> Tensor:
        a = F.relu(m.a(x))
        b = F.relu(m.b(a))
        c = F.relu(m.c(b))
        curves = torch.tanh(m.d(torch.cat([b, c], 1)))
        for r in curves.split(3, 1):
            x = x + r * (x * x - x)
        return x

    parts = {"a": nn.Conv2d(3, 32, 3, 1, 1), "b": nn.Conv2d(32, 32, 3, 1, 1), "c": nn.Conv2d(32, 32, 3, 1, 1)}
    return Family(Calling(forward, **parts, d=nn.Conv2d(64, 24, 3, 1, 1)), *images("x", (1, 3, 192, 256), (1, 3, 100, 120)))


def painter() -> Family:
    """Gated convolutions, a mask beside the image, dilations in the middle, ELU."""

    class Gated(nn.Module):
        def __init__(self, a: int, b: int, kernel: int = 3, stride: int = 1, dilation: int = 1) -> None:
            super().__init__()
            self.both = nn.Conv2d(a, 2 * b, kernel, stride, dilation * (kernel // 2), dilation)

        def forward(self, x: Tensor) -> Tensor:
            a, b = self.both(x).chunk(2, 1)
            return F.elu(a) * torch.sigmoid(b)

    def forward(m: Any, image: Tensor, mask: Tensor) -> Tensor:
        x = m.down(torch.cat([image * (1 - mask), mask], 1))
        x = m.up1(F.interpolate(m.middle(x), scale_factor=2.0))
        x = torch.tanh(m.out(m.up2(F.interpolate(x, scale_factor=2.0))))
        return image * (1 - mask) + x * mask

    down = nn.Sequential(Gated(4, 24, 5), Gated(24, 48, 3, 2), Gated(48, 48), Gated(48, 96, 3, 2))
    parts = {
        "down": down,
        "middle": nn.Sequential(*(Gated(96, 96, 3, 1, d) for d in (1, 2, 4, 8))),
        "up1": Gated(96, 48),
        "up2": Gated(48, 24),
    }

    def run(height: int, width: int) -> Run:
        return {"image": torch.rand(1, 3, height, width), "mask": (torch.rand(1, 1, height, width) > 0.7).float()}

    axes: Axes = {name: {2: "height", 3: "width"} for name in ("image", "mask")}
    return Family(Calling(forward, **parts, out=nn.Conv2d(24, 3, 3, 1, 1)), [run(128, 128), run(96, 160)], axes)


def point_pillars() -> Family:
    """Points of pillars through one layer, their largest, scattered to a map, three levels of convolutions, heads."""

    def forward(m: Any, points: Tensor, counts: Tensor, places: Tensor) -> Any:
        mask = torch.arange(points.shape[1])[None] < counts[:, None]
        mean = (points[:, :, :3] * mask[..., None]).sum(1, keepdim=True) / counts[:, None, None]
        x = torch.cat([points, points[:, :, :3] - mean], 2) * mask[..., None]
        x = F.relu(m.norm(m.enter(x).transpose(1, 2))).amax(2)
        canvas = torch.zeros(96 * 96, 48).index_put((places[:, 0] * 96 + places[:, 1],), x)
        x = canvas.t().reshape(1, 48, 96, 96)
        levels = []
        for block, up in zip(m.blocks, m.ups, strict=True):
            x = block(x)
            levels.append(up(x))
        x = torch.cat(levels, 1)
        return m.scores(x), m.boxes(x)

    def block(a: int, b: int) -> nn.Module:
        return nn.Sequential(_conv(a, b, 3, 2), _conv(b, b), _conv(b, b))

    parts = {"enter": nn.Linear(7, 48, bias=False), "norm": nn.BatchNorm1d(48)}
    parts["blocks"] = nn.ModuleList([block(48, 48), block(48, 96), block(96, 128)])
    parts["ups"] = nn.ModuleList(nn.ConvTranspose2d(a, 64, s, s) for a, s in ((48, 1), (96, 2), (128, 4)))

    def run(pillars: int) -> Run:
        places = torch.randperm(96 * 96)[:pillars]
        given = {"points": torch.randn(pillars, 20, 4), "counts": torch.randint(1, 21, (pillars,))}
        return given | {"places": torch.stack([places // 96, places % 96], 1)}

    axes: Axes = {name: {0: "pillars"} for name in ("points", "counts", "places")}
    module = Calling(forward, **parts, scores=nn.Conv2d(192, 18, 1), boxes=nn.Conv2d(192, 42, 1))
    return Family(module, [run(1500), run(300), run(1500)], axes)


def hashed_field() -> Family:
    """Tables of several resolutions looked up by hashed corners (instant NGP), a small network behind."""

    def forward(m: Any, x: Tensor) -> Tensor:
        kept = []
        for level, table in enumerate(m.tables):
            scaled = x * 16 * 1.5**level
            low = torch.floor(scaled)
            part, low = scaled - low, low.long()
            total: Any = 0
            for corner in range(8):
                offset = torch.tensor([corner & 1, corner >> 1 & 1, corner >> 2])
                places = low + offset
                index = (
                    torch.bitwise_xor(torch.bitwise_xor(places[:, 0], places[:, 1] * 2654435761), places[:, 2] * 805459861)
                    % 4096
                )
                weight = torch.where(offset > 0, part, 1 - part).prod(1, keepdim=True)
                total = total + weight * table(index)
            kept.append(total)
        return m.out(torch.cat(kept, 1))

    out = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    module = Calling(forward, tables=nn.ModuleList(nn.Embedding(4096, 2) for _ in range(8)), out=out)
    return Family(module, *images("x", (2048, 3), (100, 3), axes={0: "points"}))


def feature_points() -> Family:
    """SuperPoint: scores of cells by a softmax and a shuffle, the largest of their surroundings, descriptors where they lie."""

    def forward(m: Any, x: Tensor) -> Any:
        y = m.body(x)
        scores = F.pixel_shuffle(m.scores(y).softmax(1)[:, :-1], 8)
        kept = torch.where(scores == F.max_pool2d(scores, 9, 1, 4), scores, 0.0)
        best, index = kept.flatten(1).topk(200, 1)
        height, width = scores.shape[2:]
        places = torch.stack([index % width, index // width], 2).float()
        grid = places / torch.tensor([width - 1.0, height - 1.0]) * 2 - 1
        found = F.grid_sample(F.normalize(m.descriptors(y), dim=1), grid[:, None], align_corners=True)[:, :, 0]
        return places, best, F.normalize(found, dim=1)

    widths = (1, 32, 32, 64, 64)
    body: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(widths)):
        body += [
            nn.Conv2d(a, b, 3, 1, 1),
            nn.ReLU(),
            nn.Conv2d(b, b, 3, 1, 1),
            nn.ReLU(),
            *([nn.MaxPool2d(2)] if i < 3 else []),
        ]
    heads = {
        name: nn.Sequential(nn.Conv2d(64, 128, 3, 1, 1), nn.ReLU(), nn.Conv2d(128, n, 1))
        for name, n in (("scores", 65), ("descriptors", 128))
    }
    return Family(Calling(forward, body=nn.Sequential(*body), **heads), *images("x", (1, 1, 192, 256), (1, 1, 120, 160)))


def matcher() -> Family:
    """SuperGlue: attention within and across two sets of points, then Sinkhorn's rounds in logarithms with a bin for none."""

    def forward(m: Any, a: Tensor, b: Tensor, at: Tensor, bt: Tensor) -> Tensor:
        x, y = a + m.places(at), b + m.places(bt)
        for i, (qkv, out, mlp) in enumerate(zip(m.qkv, m.outs, m.mlps, strict=True)):

            def attend(u: Tensor, v: Tensor, qkv: Any = qkv, out: Any = out, mlp: Any = mlp) -> Tensor:
                q, k, w = (part(z).unflatten(2, (4, 32)).transpose(1, 2) for part, z in zip(qkv, (u, v, v), strict=True))
                found = out(F.scaled_dot_product_attention(q, k, w).transpose(1, 2).flatten(2))
                return u + mlp(torch.cat([u, found], 2))

            x, y = (attend(x, y), attend(y, x)) if i % 2 else (attend(x, x), attend(y, y))
        scores = m.last(x) @ m.last(y).transpose(1, 2) / 128**0.5
        scores = F.pad(scores, (0, 1, 0, 1), value=1.0)
        u, v = torch.zeros_like(scores[:, :, :1]), torch.zeros_like(scores[:, :1])
        for _ in range(10):
            u = -torch.logsumexp(scores + v, 2, keepdim=True)
            v = -torch.logsumexp(scores + u, 1, keepdim=True)
        return scores + u + v

    parts: dict[str, nn.Module] = {
        "places": nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 128)),
        "last": nn.Linear(128, 128),
    }
    parts["qkv"] = nn.ModuleList(nn.ModuleList(nn.Linear(128, 128) for _ in "qkv") for _ in range(4))
    parts["outs"] = nn.ModuleList(nn.Linear(128, 128) for _ in range(4))
    parts["mlps"] = nn.ModuleList(nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 128)) for _ in range(4))

    def run(n: int, k: int) -> Run:
        return {"a": torch.randn(1, n, 128), "b": torch.randn(1, k, 128), "at": torch.rand(1, n, 2), "bt": torch.rand(1, k, 2)}

    axes: Axes = {"a": {1: "n"}, "at": {1: "n"}, "b": {1: "k"}, "bt": {1: "k"}}
    return Family(Calling(forward, **parts), [run(200, 180), run(30, 77)], axes)


def siamese_tracker() -> Family:
    """A template's features as filters, a channel each, over the features of what is searched."""

    def forward(m: Any, template: Tensor, search: Tensor) -> Any:
        z, x = m.body(template), m.body(search)
        found = F.conv2d(x.flatten(0, 1)[None], z.flatten(0, 1)[:, None], groups=z.shape[1])
        return m.scores(found), m.boxes(found)

    body = nn.Sequential(_conv(3, 32, 7, 2), _conv(32, 64, 3, 2), _conv(64, 128, 3, 2), _conv(128, 128), nn.Conv2d(128, 128, 3))
    heads = {name: nn.Sequential(_conv(128, 128, 1), nn.Conv2d(128, n, 1)) for name, n in (("scores", 10), ("boxes", 20))}
    return Family(
        Calling(forward, body=body, **heads),
        [{"template": torch.rand(1, 3, 127, 127), "search": torch.rand(1, 3, 255, 255)}],
        {},
    )


def stereo() -> Family:
    """A volume of differences over disparities, convolutions of three dimensions, the expected disparity."""

    def forward(m: Any, left: Tensor, right: Tensor) -> Tensor:
        a, b = m.body(left), m.body(right)
        width = a.shape[3]
        volume = torch.stack([F.pad(a[..., d:] - b[..., : width - d], (d, 0)) for d in range(16)], 2)
        scores = m.volume(volume)[:, 0]
        weights = (-scores).softmax(1)
        return (weights * torch.arange(16.0).view(1, -1, 1, 1)).sum(1)

    volume = [
        nn.Conv3d(24, 24, 3, 1, 1),
        nn.BatchNorm3d(24),
        nn.ReLU(),
        nn.Conv3d(24, 24, 3, 1, 1),
        nn.BatchNorm3d(24),
        nn.ReLU(),
    ]
    parts = {"body": nn.Sequential(_conv(3, 24, 5, 2), _conv(24, 24, 3, 2), _conv(24, 24), nn.Conv2d(24, 24, 3, 1, 1))}
    module = Calling(forward, **parts, volume=nn.Sequential(*volume, nn.Conv3d(24, 1, 3, 1, 1)))
    return Family(module, [{name: torch.rand(1, 3, 128, 256) for name in ("left", "right")}], {})


def code_book() -> Family:
    """VQGAN: an encoder, the nearest of 512 codes for each place, a decoder with GroupNorm and x Sigmoid(x)."""

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                *(z for _ in "12" for z in (nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, 1, 1)))
            )

        def forward(self, x: Tensor) -> Tensor:
            return x + self.body(x)

    def forward(m: Any, x: Tensor) -> Any:
        z = m.encoder(x)
        flat = z.permute(0, 2, 3, 1).flatten(0, 2)
        codes = m.codes.weight
        distance = flat.square().sum(1, keepdim=True) + codes.square().sum(1) - 2 * flat @ codes.t()
        index = distance.argmin(1)
        y = m.codes(index).view(z.shape[0], z.shape[2], z.shape[3], 64).permute(0, 3, 1, 2)
        return m.decoder(y), index

    encoder = nn.Sequential(
        nn.Conv2d(3, 48, 3, 2, 1), Block(48), nn.Conv2d(48, 96, 3, 2, 1), Block(96), nn.Conv2d(96, 64, 3, 2, 1)
    )
    up = lambda a, b: (nn.Upsample(scale_factor=2.0), nn.Conv2d(a, b, 3, 1, 1))  # noqa: E731
    decoder = nn.Sequential(
        *up(64, 96), Block(96), *up(96, 48), Block(48), *up(48, 24), nn.GroupNorm(8, 24), nn.SiLU(), nn.Conv2d(24, 3, 3, 1, 1)
    )
    module = Calling(forward, encoder=encoder, decoder=decoder, codes=nn.Embedding(512, 64))
    return Family(module, *images("x", (1, 3, 128, 128), (2, 3, 64, 96)))


def graph_isomorphism() -> Family:
    """Graph isomorphism layers: sums of neighbours by index_add, small networks, sums over graphs."""

    def forward(m: Any, x: Tensor, edges: Tensor, graph: Tensor) -> Tensor:
        total = 0
        for layer in m.layers:
            x = layer(x + torch.zeros_like(x).index_add(0, edges[1], F.relu(x[edges[0]])))
            total = total + torch.zeros(8, x.shape[1]).index_add(0, graph, x)
        return m.out(total)

    def layer() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())

    def run(nodes: int, edges: int) -> Run:
        graph = torch.randint(0, 8, (nodes,)).sort().values
        return {"x": torch.randn(nodes, 64), "edges": torch.randint(0, nodes, (2, edges)), "graph": graph}

    axes: Axes = {"x": {0: "nodes"}, "edges": {1: "edges"}, "graph": {0: "nodes"}}
    module = Calling(forward, layers=nn.ModuleList(layer() for _ in range(4)), out=nn.Linear(64, 10))
    return Family(module, [run(400, 1600), run(30, 90)], axes)


def window_restorer() -> Family:
    """SwinIR: windows shifted by Slices and joins, biases of places, convolutions around, pixels from channels."""

    class Block(nn.Module):
        def __init__(self, shift: int) -> None:
            super().__init__()
            self.a, self.b, self.qkv, self.out = nn.LayerNorm(60), nn.LayerNorm(60), nn.Linear(60, 180), nn.Linear(60, 60)
            self.bias, self.shift = nn.Embedding(6, 64 * 64), shift
            self.mlp = nn.Sequential(nn.Linear(60, 120), nn.GELU(), nn.Linear(120, 60))

        def forward(self, x: Tensor) -> Tensor:
            n, height, width, _ = x.shape
            y = torch.roll(self.a(x), (-self.shift, -self.shift), (1, 2)) if self.shift else self.a(x)
            y = y.view(n, height // 8, 8, width // 8, 8, 60).permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, 60)
            q, k, v = self.qkv(y).view(-1, 64, 3, 6, 10).permute(2, 0, 3, 1, 4)
            y = ((q * 10**-0.5) @ k.transpose(2, 3) + self.bias.weight.view(6, 64, 64)).softmax(-1) @ v
            y = self.out(y.transpose(1, 2).reshape(-1, 64, 60))
            y = y.view(n, height // 8, width // 8, 8, 8, 60).permute(0, 1, 3, 2, 4, 5).reshape(n, height, width, 60)
            x = x + (torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y)
            return x + self.mlp(self.b(x))

    def forward(m: Any, x: Tensor) -> Tensor:
        x = m.enter(x)
        y = x.permute(0, 2, 3, 1)
        for block in m.blocks:
            y = block(y)
        x = x + m.join(y.permute(0, 3, 1, 2))
        return F.pixel_shuffle(m.out(x), 2)

    parts = {"enter": nn.Conv2d(3, 60, 3, 1, 1), "blocks": nn.ModuleList(Block(4 * (i % 2)) for i in range(6))}
    module = Calling(forward, **parts, join=nn.Conv2d(60, 60, 3, 1, 1), out=nn.Conv2d(60, 12, 3, 1, 1))
    return Family(module, *images("x", (1, 3, 64, 64), (2, 3, 64, 64), axes={0: "batch"}))


FAMILIES = (
    factored_video, slim_video, efficient_detector, pyramid_flow, gated_u_net, curve_enhancer, painter, point_pillars,
    hashed_field, feature_points, matcher, siamese_tracker, stereo, code_book, graph_isomorphism, window_restorer,
)  # fmt: skip
