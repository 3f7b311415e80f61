"""Networks for `families.py` that papers draw: recommenders, fields, super-resolution, generators, series, points, graphs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from cases.family import Calling, Family, images


def _dense(*sizes: int, last: nn.Module | None = None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1], *([last] if last else []))


PAIRS = torch.tril_indices(13, 13, -1)


def dlrm() -> Family:
    """Bags of sparse features summed, pairs multiplied, the lower triangle beside dense features."""

    def forward(m: Any, dense: Tensor, sparse: Tensor) -> Tensor:
        x = m.bottom(dense)
        bags = [table(sparse[:, i]).sum(1) for i, table in enumerate(m.tables)]
        t = torch.stack([x, *bags], 1)
        rows, columns = PAIRS
        return torch.sigmoid(m.top(torch.cat([x, (t @ t.transpose(1, 2))[:, rows, columns]], 1)))

    tables = nn.ModuleList(nn.Embedding(2000, 32) for _ in range(12))
    parts = {"bottom": _dense(13, 256, 64, 32), "top": _dense(32 + 78, 256, 64, 1), "tables": tables}

    def run(batch: int) -> dict[str, Tensor]:
        return {"dense": torch.randn(batch, 13), "sparse": torch.randint(0, 2000, (batch, 12, 3))}

    return Family(Calling(forward, **parts), [run(64), run(1), run(256)], {"dense": {0: "batch"}, "sparse": {0: "batch"}})


def two_towers() -> Family:
    """A user's history averaged under a mask beside features of items; the scores of all pairs."""

    def forward(m: Any, history: Tensor, lengths: Tensor, items: Tensor, price: Tensor) -> Any:
        mask = (torch.arange(history.shape[1])[None] < lengths[:, None]).float()
        user = (m.items(history) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1.0)
        item = m.item(torch.cat([m.items(items), torch.log1p(price)[:, None]], 1))
        scores = F.normalize(m.user(user), dim=1) @ F.normalize(item, dim=1).T * 20.0
        return scores, scores.topk(5, 1).indices

    parts = {"items": nn.Embedding(5000, 64), "user": _dense(64, 128, 64), "item": _dense(65, 128, 64)}

    def run(users: int, length: int, items: int) -> dict[str, Tensor]:
        return {"history": torch.randint(0, 5000, (users, length)), "lengths": torch.randint(1, length + 1, (users,)),
                "items": torch.randint(0, 5000, (items,)), "price": torch.rand(items) * 50}  # fmt: skip

    axes = {"history": {0: "users", 1: "length"}, "lengths": {0: "users"}, "items": {0: "items"}, "price": {0: "items"}}
    return Family(Calling(forward, **parts), [run(4, 50, 200), run(1, 20, 500), run(4, 50, 200)], axes)


def interest_network() -> Family:
    """Attention of a candidate over a history by a small network of both, their difference and product (DIN)."""

    def forward(m: Any, candidate: Tensor, history: Tensor, mask: Tensor) -> Tensor:
        c, h = m.items(candidate), m.items(history)
        e = c[:, None].expand_as(h)
        weights = m.attend(torch.cat([e, h, e - h, e * h], 2)).squeeze(2).masked_fill(mask == 0, -1e9).softmax(1)
        pooled = (weights[..., None] * h).sum(1)
        return m.top(torch.cat([c, pooled, c * pooled], 1)).squeeze(1).sigmoid()

    attend = nn.Sequential(nn.Linear(128, 80), nn.PReLU(), nn.Linear(80, 1))
    top = nn.Sequential(nn.BatchNorm1d(96), nn.Linear(96, 80), nn.PReLU(80), nn.Linear(80, 1))

    def run(batch: int, length: int) -> dict[str, Tensor]:
        mask = (torch.rand(batch, length) > 0.3).long()
        mask[:, 0] = 1
        history = torch.randint(0, 3000, (batch, length))
        return {"candidate": torch.randint(0, 3000, (batch,)), "history": history, "mask": mask}

    axes = {"candidate": {0: "batch"}, "history": {0: "batch", 1: "length"}, "mask": {0: "batch", 1: "length"}}
    parts = {"items": nn.Embedding(3000, 32), "attend": attend, "top": top}
    return Family(Calling(forward, **parts), [run(32, 40), run(1, 13), run(32, 40)], axes)


def deep_fm() -> Family:
    """Second-order terms by sums and squares, cross layers and a deep part over one table with offsets."""

    def forward(m: Any, fields: Tensor) -> Tensor:
        index = fields + torch.arange(0, 20 * 500, 500)[None]
        e = m.table(index)
        second = 0.5 * (e.sum(1) ** 2 - (e**2).sum(1)).sum(1, keepdim=True)
        x0 = x = e.flatten(1)
        for cross in m.cross:
            x = x0 * cross(x) + x
        return torch.sigmoid(m.linear(index).sum(1) + second + m.deep(e.flatten(1)) + m.out(x))

    parts = {"table": nn.Embedding(20 * 500, 16), "linear": nn.Embedding(20 * 500, 1), "deep": _dense(320, 200, 200, 1),
             "cross": nn.ModuleList(nn.Linear(320, 320) for _ in range(2)), "out": nn.Linear(320, 1)}  # fmt: skip
    runs = [{"fields": torch.randint(0, 500, (batch, 20))} for batch in (128, 1, 17)]
    return Family(Calling(forward, **parts), runs, {"fields": {0: "batch"}})


def nerf() -> Family:
    """Positions encoded by sines, eight layers with a skip, colours composed along rays."""

    def encode(x: Tensor, octaves: int) -> Tensor:
        angles = x[..., None] * 2.0 ** torch.arange(octaves)
        return torch.cat([x, angles.sin().flatten(-2), angles.cos().flatten(-2)], -1)

    def forward(m: Any, origins: Tensor, directions: Tensor) -> Any:
        steps = torch.linspace(2.0, 6.0, 32)
        points = origins[:, None] + directions[:, None] * steps[:, None]
        x = h = encode(points, 10)
        for i, layer in enumerate(m.layers):
            h = F.relu(layer(torch.cat([h, x], -1) if i == 4 else h))
        density = F.relu(m.density(h)).squeeze(-1)
        view = encode(F.normalize(directions, dim=-1), 4)[:, None].expand(-1, 32, -1)
        colour = torch.sigmoid(m.colour(torch.cat([m.feature(h), view], -1)))
        alpha = 1.0 - torch.exp(-density * (4.0 / 31))
        lost = torch.log(1.0 - alpha + 1e-10)  # an exporter of TorchScript has no cumprod
        passed = torch.exp(torch.cumsum(lost, 1) - lost)
        weights = alpha * passed
        return (weights[..., None] * colour).sum(1), (weights * steps).sum(1)

    layers = nn.ModuleList(nn.Linear(63 if i == 0 else 191 if i == 4 else 128, 128) for i in range(8))
    parts = {"layers": layers, "density": nn.Linear(128, 1), "feature": nn.Linear(128, 128), "colour": _dense(155, 64, 3)}
    runs = [{"origins": torch.randn(n, 3), "directions": torch.randn(n, 3)} for n in (64, 20, 64)]
    return Family(Calling(forward, **parts), runs, {"origins": {0: "rays"}, "directions": {0: "rays"}})


def espcn() -> Family:
    layers = [nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3), nn.Sigmoid())
    return Family(model, *images("x", (1, 1, 96, 128), (2, 1, 64, 80), (1, 1, 96, 128)))


def fsrcnn() -> Family:
    layers: list[nn.Module] = [nn.Conv2d(1, 56, 5, padding=2), nn.PReLU(56), nn.Conv2d(56, 12, 1), nn.PReLU(12)]
    for _ in range(4):
        layers += [nn.Conv2d(12, 12, 3, padding=1), nn.PReLU(12)]
    layers += [nn.Conv2d(12, 56, 1), nn.PReLU(56), nn.ConvTranspose2d(56, 1, 9, 2, padding=4, output_padding=1)]
    return Family(nn.Sequential(*layers), *images("x", (1, 1, 96, 128), (2, 1, 64, 80), (1, 1, 96, 128)))


class _Residual(nn.Module):
    def __init__(self, size: int, attention: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(size, size, 3, padding=1), nn.ReLU(), nn.Conv2d(size, size, 3, padding=1))
        self.squeeze = nn.Sequential(nn.Conv2d(size, size // 8, 1), nn.ReLU(), nn.Conv2d(size // 8, size, 1), nn.Sigmoid())
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return x + (y * self.squeeze(F.adaptive_avg_pool2d(y, 1)) if self.attention else y * 0.1)


def _upscaler(attention: bool) -> Family:
    def forward(m: Any, x: Tensor) -> Tensor:
        x = x - m.mean.weight.view(1, 3, 1, 1)
        x = m.head(x)
        return m.tail(m.body(x) + x) + m.mean.weight.view(1, 3, 1, 1)

    body = nn.Sequential(*(_Residual(48, attention) for _ in range(6)), nn.Conv2d(48, 48, 3, padding=1))
    tail = nn.Sequential(nn.Conv2d(48, 192, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(48, 3, 3, padding=1))
    parts = {"mean": nn.Embedding(1, 3), "head": nn.Conv2d(3, 48, 3, padding=1), "body": body, "tail": tail}
    return Family(Calling(forward, **parts), *images("x", (1, 3, 64, 80), (2, 3, 48, 48), (1, 3, 64, 80)))


def edsr() -> Family:
    return _upscaler(False)


def rcan() -> Family:
    return _upscaler(True)


def esrgan() -> Family:
    """Dense blocks within residuals, LeakyReLU, nearest-neighbour upsampling."""

    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = nn.ModuleList(nn.Conv2d(32 + 16 * i, 16 if i < 4 else 32, 3, padding=1) for i in range(5))

        def forward(self, x: Tensor) -> Tensor:
            parts = [x]
            for i, step in enumerate(self.steps):
                y = step(torch.cat(parts, 1))
                parts.append(F.leaky_relu(y, 0.2) if i < 4 else y)
            return x + parts[-1] * 0.2

    def forward(m: Any, x: Tensor) -> Tensor:
        x = m.head(x)
        x = x + m.body(x)
        for up in m.ups:
            x = F.leaky_relu(up(F.interpolate(x, scale_factor=2, mode="nearest")), 0.2)
        return m.tail(x)

    ups = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1) for _ in range(2))
    parts = {"head": nn.Conv2d(3, 32, 3, padding=1), "body": nn.Sequential(*(Dense() for _ in range(3))), "ups": ups}
    model = Calling(forward, **parts, tail=nn.Conv2d(32, 3, 3, padding=1))
    return Family(model, *images("x", (1, 3, 32, 48), (2, 3, 24, 24), (1, 3, 32, 48)))


def crnn() -> Family:
    """Convolutions to columns, two bidirectional LSTMs, letters."""

    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.features(x).squeeze(2).permute(2, 0, 1)
        return m.letters(m.second(m.first(y)[0])[0]).log_softmax(2)

    def block(a: int, b: int, pool: Any, norm: bool) -> list[nn.Module]:
        layers = [nn.Conv2d(a, b, 3, padding=1), *([nn.BatchNorm2d(b)] if norm else []), nn.ReLU()]
        return [*layers, *([nn.MaxPool2d(*pool)] if pool else [])]

    tall = ((2, 2), (2, 1), (0, 1))
    steps = ((1, 32, (2,), False), (32, 64, (2,), False), (64, 128, None, True), (128, 128, tall, False),
             (128, 256, None, True), (256, 256, tall, True))  # fmt: skip
    features = nn.Sequential(*(layer for s in steps for layer in block(*s)), nn.Conv2d(256, 256, 2), nn.ReLU())
    first, second = nn.LSTM(256, 128, bidirectional=True), nn.LSTM(256, 128, bidirectional=True)
    parts = {"features": features, "first": first, "second": second, "letters": nn.Linear(256, 37)}
    shapes = ((1, 1, 32, 100), (3, 1, 32, 160), (1, 1, 32, 100))
    return Family(Calling(forward, **parts), *images("x", *shapes, axes={0: "batch", 3: "width"}))


def temporal_convolutions() -> Family:
    """Causal dilated convolutions with residuals (TCN)."""

    def forward(m: Any, x: Tensor) -> Tensor:
        for i, (a, b) in enumerate(zip(m.first, m.second, strict=True)):
            y = F.relu(a(F.pad(x, (2 * 2**i, 0))))
            y = F.relu(b(F.pad(y, (2 * 2**i, 0))))
            x = F.relu(y + (m.match(x) if i == 0 else x))
        return m.out(x[:, :, -1])

    first = nn.ModuleList(nn.Conv1d(8 if i == 0 else 64, 64, 3, dilation=2**i) for i in range(6))
    second = nn.ModuleList(nn.Conv1d(64, 64, 3, dilation=2**i) for i in range(6))
    model = Calling(forward, first=first, second=second, match=nn.Conv1d(8, 64, 1), out=nn.Linear(64, 12))
    return Family(model, *images("x", (1, 8, 256), (16, 8, 100), (1, 8, 256), axes={0: "batch", 2: "time"}))


def autoencoder() -> Family:
    """The error of a reconstruction by convolutions, for each image and pixel."""

    def forward(m: Any, x: Tensor) -> Any:
        error = (m.decode(m.encode(x)) - x) ** 2
        return error.mean(1, keepdim=True), error.amax((1, 2, 3)), error.mean((1, 2, 3)) > 0.5

    encode, decode = [], []
    for a, b in ((3, 16), (16, 32), (32, 64)):
        encode += [nn.Conv2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.LeakyReLU(0.2)]
    for a, b in ((64, 32), (32, 16), (16, 3)):
        decode += [nn.ConvTranspose2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.ReLU()]
    parts = {"encode": nn.Sequential(*encode), "decode": nn.Sequential(*decode[:-2], nn.Sigmoid())}
    return Family(Calling(forward, **parts), *images("x", (1, 3, 128, 128), (2, 3, 64, 96), (1, 3, 128, 128)))


def lstm_autoencoder() -> Family:
    def forward(m: Any, x: Tensor) -> Tensor:
        _, (h, _) = m.encoder(x)
        y, _ = m.decoder(h[-1][:, None].repeat(1, x.shape[1], 1))
        return (m.out(y) - x).abs().mean((1, 2))

    parts = {
        "encoder": nn.LSTM(16, 64, batch_first=True),
        "decoder": nn.LSTM(64, 64, batch_first=True),
        "out": nn.Linear(64, 16),
    }
    return Family(Calling(forward, **parts), *images("x", (1, 60, 16), (8, 30, 16), (1, 60, 16), axes={0: "batch", 1: "time"}))


def dcgan() -> Family:
    def forward(m: Any, z: Tensor) -> Tensor:
        return m.body(z[:, :, None, None]).tanh()

    body: list[nn.Module] = [nn.ConvTranspose2d(100, 256, 4, 1, 0, bias=False), nn.BatchNorm2d(256), nn.ReLU()]
    for a, b in ((256, 128), (128, 64), (64, 32)):
        body += [nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
    model = Calling(forward, body=nn.Sequential(*body, nn.ConvTranspose2d(32, 3, 4, 2, 1, bias=False)))
    return Family(model, *images("z", (1, 100), (5, 100), (1, 100), axes={0: "batch"}))


class _Modulated(nn.Module):
    """Filters of each image scaled by its style and brought to length one, as one grouped convolution."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.filters, self.style = nn.Parameter(torch.randn(1, outputs, inputs, 3, 3)), nn.Linear(64, inputs)

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        n, c, h, width = x.shape
        filters = self.filters * (self.style(w) + 1.0).view(n, 1, c, 1, 1)
        filters = filters * torch.rsqrt((filters**2).sum((2, 3, 4), keepdim=True) + 1e-8)
        y = F.conv2d(x.reshape(1, n * c, h, width), filters.view(-1, c, 3, 3), padding=1, groups=n)
        return F.leaky_relu(y.view(n, -1, h, width), 0.2) * 2**0.5


def style_gan() -> Family:
    def forward(m: Any, z: Tensor) -> Tensor:
        w = m.mapping(z * torch.rsqrt((z**2).mean(1, keepdim=True) + 1e-8))
        x = m.constant.weight.view(1, 128, 4, 4).expand(z.shape[0], -1, -1, -1)
        for i, block in enumerate(m.blocks):
            if i:
                x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = block(x, w)
        return m.rgb(x).clamp(-1, 1)

    sizes = (128, 128, 96, 64, 48)
    blocks = nn.ModuleList(_Modulated(a, b) for a, b in pairwise(sizes))
    mapping = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.LeakyReLU(0.2))))
    parts = {"mapping": mapping, "constant": nn.Embedding(128, 16), "blocks": blocks, "rgb": nn.Conv2d(48, 3, 1)}
    return Family(Calling(forward, **parts), *images("z", (1, 64), axes={}))


def variational_autoencoder() -> Family:
    """Mean, variance and a sample whose noise is an input."""

    def forward(m: Any, x: Tensor, noise: Tensor) -> Any:
        mean, log_variance = m.encode(x.flatten(1)).chunk(2, 1)
        z = mean + noise * torch.exp(0.5 * log_variance)
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1)
        return m.decode(z).view_as(x), divergence

    parts = {"encode": _dense(784, 400, 64), "decode": _dense(32, 400, 784, last=nn.Sigmoid())}
    runs = [{"x": torch.rand(b, 1, 28, 28), "noise": torch.randn(b, 32)} for b in (8, 1, 8)]
    return Family(Calling(forward, **parts), runs, {"x": {0: "batch"}, "noise": {0: "batch"}})


def point_net_2() -> Family:
    """Farthest points one after the other, groups within a ball, features interpolated from three neighbours."""

    def farthest(points: Tensor, count: int) -> Tensor:
        chosen = [torch.zeros(points.shape[0], 1, dtype=torch.int64)]
        distance = ((points - points[:, :1]) ** 2).sum(2)
        for _ in range(count - 1):
            chosen.append(distance.argmax(1, keepdim=True))
            here = points.gather(1, chosen[-1][..., None].expand(-1, -1, 3))
            distance = torch.minimum(distance, ((points - here) ** 2).sum(2))
        return torch.cat(chosen, 1)

    def taken(x: Tensor, index: Tensor) -> Tensor:
        flat = index.flatten(1)[..., None].expand(-1, -1, x.shape[2])
        return x.gather(1, flat).view(*index.shape, x.shape[2])

    def forward(m: Any, points: Tensor) -> Any:
        centres = taken(points, farthest(points, 32))
        squares = torch.cdist(centres, points) ** 2
        index = torch.arange(points.shape[1]).expand(points.shape[0], 32, -1)
        index = torch.where(squares > 0.5, points.shape[1], index).sort(2).values[:, :, :16]
        index = torch.where(index == points.shape[1], index[:, :, :1], index).clamp(max=points.shape[1] - 1)
        local = taken(points, index) - centres[:, :, None]
        features = m.local(local).amax(2)
        whole = m.whole(torch.cat([centres, features], 2)).amax(1)
        near, which = squares.transpose(1, 2).topk(3, 2, largest=False)
        weights = 1.0 / (near + 1e-8)
        back = (taken(features, which) * (weights / weights.sum(2, keepdim=True))[..., None]).sum(2)
        return m.classes(whole), m.parts(torch.cat([back, points], 2))

    parts = {
        "local": _dense(3, 64, 64, 128),
        "whole": _dense(131, 256, 256),
        "classes": nn.Linear(256, 10),
        "parts": _dense(131, 64, 5),
    }
    return Family(Calling(forward, **parts), *images("points", (1, 512, 3), (2, 512, 3), axes={0: "batch"}))


def graph_convolutions() -> Family:
    """Messages along edges gathered, summed into nodes by ScatterAdd, divided by degrees, pooled by graph."""

    def forward(m: Any, x: Tensor, edges: Tensor, graph: Tensor) -> Any:
        source, target = edges[0], edges[1]
        ones = torch.ones(source.shape[0])
        degree = torch.zeros(x.shape[0]).scatter_add(0, target, ones) + 1.0
        scale = degree.rsqrt()
        for layer in m.layers:
            h = layer(x)
            message = h[source] * (scale[source] * scale[target])[:, None]
            x = F.relu(
                torch.zeros_like(h).scatter_add(0, target[:, None].expand(-1, h.shape[1]), message) + h * (scale**2)[:, None]
            )
        pooled = torch.zeros(4, x.shape[1]).scatter_add(0, graph[:, None].expand(-1, x.shape[1]), x)
        best = torch.full((4, x.shape[1]), -1e9).scatter_reduce(0, graph[:, None].expand(-1, x.shape[1]), x, "amax")
        return m.out(torch.cat([pooled, best], 1)), x

    layers = nn.ModuleList([nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 64)])

    def run(nodes: int, edges: int) -> dict[str, Tensor]:
        graph = torch.arange(nodes) * 4 // nodes
        return {"x": torch.randn(nodes, 32), "edges": torch.randint(0, nodes, (2, edges)), "graph": graph}

    axes = {"x": {0: "nodes"}, "edges": {1: "edges"}, "graph": {0: "nodes"}}
    model = Calling(forward, layers=layers, out=nn.Linear(128, 3))
    return Family(model, [run(400, 2000), run(120, 500), run(400, 2000)], axes)


def informer() -> Family:
    """Attention of the queries whose scores stand out, distilled by pooling; a decoder over a start of zeros."""

    def attention(m: Any, q: Tensor, k: Tensor, v: Tensor, sparse: bool) -> Tensor:
        n, length, size = q.shape
        q, k, v = (x.view(n, -1, 4, size // 4).transpose(1, 2) for x in (q, k, v))
        scores = q @ k.transpose(2, 3) * (size // 4) ** -0.5
        if not sparse:
            return (scores.softmax(3) @ v).transpose(1, 2).reshape(n, length, size)
        best = (scores.amax(3) - scores.mean(3)).topk(16, 2).indices[..., None]
        chosen = scores.gather(2, best.expand(-1, -1, -1, scores.shape[3])).softmax(3) @ v
        y = v.mean(2, keepdim=True).expand(-1, -1, length, -1).scatter(2, best.expand(-1, -1, -1, size // 4), chosen)
        return y.transpose(1, 2).reshape(n, length, size)

    def layer(p: Any, x: Tensor, other: Tensor, sparse: bool) -> Tensor:
        x = p["n1"](x + p["o"](attention(p, p["q"](x), p["k"](other), p["v"](other), sparse)))
        return p["n2"](x + p["ff"](x))

    def forward(m: Any, x: Tensor, start: Tensor) -> Tensor:
        h = m.embed(F.pad(x.transpose(1, 2), (1, 1), mode="circular")).transpose(1, 2)
        for part, distil in zip(m.encoder, m.distil, strict=True):
            h = layer(part, h, h, True)
            h = F.max_pool1d(F.elu(distil(h.transpose(1, 2))), 3, 2, 1).transpose(1, 2)
        y = torch.cat([start, torch.zeros_like(start)], 1)
        y = m.embed(F.pad(y.transpose(1, 2), (1, 1), mode="circular")).transpose(1, 2)
        return m.out(layer(m.decoder, y, h, False))[:, -start.shape[1] :]

    def part() -> nn.ModuleDict:
        parts = {name: nn.Linear(64, 64) for name in "qkvo"} | {"n1": nn.LayerNorm(64), "n2": nn.LayerNorm(64)}
        return nn.ModuleDict(parts | {"ff": nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))})

    parts = {"embed": nn.Conv1d(7, 64, 3), "encoder": nn.ModuleList([part(), part()]), "decoder": part(),
             "out": nn.Linear(64, 7), "distil": nn.ModuleList(nn.Conv1d(64, 64, 3, padding=1) for _ in range(2))}  # fmt: skip

    def run(batch: int) -> dict[str, Tensor]:
        return {"x": torch.randn(batch, 96, 7), "start": torch.randn(batch, 24, 7)}

    return Family(Calling(forward, **parts), [run(1), run(4), run(1)], {"x": {0: "batch"}, "start": {0: "batch"}})


def attention_generator() -> Family:
    """Self-attention over an image's positions, instance normalisation, reflected borders (CycleGAN, SAGAN)."""

    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.down(x)
        n, c, h, w = y.shape
        q, k, v = (conv(y).flatten(2) for conv in m.qkv)
        y = y + 0.5 * (v @ (q.transpose(1, 2) @ k).softmax(-1).transpose(1, 2)).view(n, c, h, w)
        return m.up(y).tanh()

    down = [nn.ReflectionPad2d(3), nn.Conv2d(3, 32, 7), nn.InstanceNorm2d(32), nn.ReLU()]
    for a in (32, 64):
        down += [nn.Conv2d(a, 2 * a, 3, 2, 1), nn.InstanceNorm2d(2 * a), nn.ReLU()]
    up: list[nn.Module] = []
    for a in (128, 64):
        up += [nn.ConvTranspose2d(a, a // 2, 3, 2, 1, output_padding=1), nn.InstanceNorm2d(a // 2), nn.ReLU()]
    qkv = nn.ModuleList([nn.Conv2d(128, 16, 1), nn.Conv2d(128, 16, 1), nn.Conv2d(128, 128, 1)])
    up += [nn.ReflectionPad2d(3), nn.Conv2d(32, 3, 7)]
    model = Calling(forward, down=nn.Sequential(*down), qkv=qkv, up=nn.Sequential(*up))
    return Family(model, *images("x", (1, 3, 128, 128), (1, 3, 96, 64), (2, 3, 64, 64)))


FAMILIES = (
    dlrm, two_towers, interest_network, deep_fm, nerf, espcn, fsrcnn, edsr, rcan, esrgan, crnn, temporal_convolutions,
    autoencoder, lstm_autoencoder, dcgan, style_gan, variational_autoencoder, point_net_2, graph_convolutions, informer,
    attention_generator,
)  # fmt: skip
