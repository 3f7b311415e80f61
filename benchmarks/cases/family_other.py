"""Tables, time series, graphs, points and volumes for `families.py`."""

from __future__ import annotations

import math
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from cases.family import Axes, Calling, Family, Run, images


def tab_net() -> Family:
    """Steps of attention over columns by sparsemax, shared and own gated layers."""

    def sparsemax(x: Tensor) -> Tensor:
        ordered = x.sort(-1, descending=True).values
        sums = ordered.cumsum(-1)
        k = torch.arange(1, x.shape[1] + 1, dtype=x.dtype)
        inside = (1 + k * ordered > sums).sum(-1, keepdim=True)
        return F.relu(x - (sums.gather(1, inside - 1) - 1) / inside)

    def forward(m: Any, x: Tensor) -> Tensor:
        x = m.norm(x)
        prior, total, h = torch.ones_like(x), 0, F.glu(m.shared(x), 1)
        for attend, own in zip(m.attend, m.own, strict=True):
            mask = sparsemax(attend(h[:, 16:]) * prior)
            prior = prior * (1.3 - mask)
            h = (F.glu(m.shared(x * mask), 1) + F.glu(own(F.glu(m.shared(x * mask), 1)), 1)) * math.sqrt(0.5)
            total = total + F.relu(h[:, :16])
        return m.out(total).softmax(-1)

    parts = {
        "norm": nn.BatchNorm1d(40),
        "shared": nn.Sequential(nn.Linear(40, 64), nn.BatchNorm1d(64)),
        "attend": nn.ModuleList(nn.Sequential(nn.Linear(16, 40), nn.BatchNorm1d(40)) for _ in range(3)),
        "own": nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64)) for _ in range(3)),
    }
    shapes = ((128, 40), (1, 40), (33, 40), (128, 40))
    return Family(Calling(forward, **parts, out=nn.Linear(16, 5)), *images("x", *shapes, axes={0: "batch"}))


def n_beats() -> Family:
    def forward(m: Any, x: Tensor) -> Tensor:
        forecast = 0
        for body, back, ahead in zip(m.body, m.back, m.ahead, strict=True):
            h = body(x)
            x, forecast = x - back(h), forecast + ahead(h)
        return forecast

    body = [
        nn.Sequential(nn.Linear(96, 256), nn.ReLU(), *(y for _ in range(3) for y in (nn.Linear(256, 256), nn.ReLU())))
        for _ in "1234"
    ]
    parts = {"back": nn.ModuleList(nn.Linear(256, 96) for _ in body), "ahead": nn.ModuleList(nn.Linear(256, 24) for _ in body)}
    return Family(
        Calling(forward, body=nn.ModuleList(body), **parts), *images("x", (16, 96), (1, 96), (7, 96), axes={0: "batch"})
    )


def temporal_fusion() -> Family:
    """Gated residual networks choose variables, an LSTM and attention over time follow."""

    class Gated(nn.Module):
        def __init__(self, inputs: int, width: int, outputs: int) -> None:
            super().__init__()
            self.a, self.b, self.gate = nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, 2 * outputs)
            self.skip, self.norm = nn.Linear(inputs, outputs), nn.LayerNorm(outputs)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.skip(x) + F.glu(self.gate(self.b(F.elu(self.a(x)))), -1))

    def forward(m: Any, x: Tensor) -> Tensor:
        variables = torch.stack([embed(x[..., i : i + 1]) for i, embed in enumerate(m.embed)], 2)
        weights = m.choose(variables.flatten(2)).softmax(-1).unsqueeze(-1)
        chosen = torch.stack([own(variables[:, :, i]) for i, own in enumerate(m.own)], 2)
        h = (chosen * weights).sum(2)
        y = m.norm(h + F.glu(m.gate(m.lstm(h)[0]), -1))
        q, k, v = (z.unflatten(-1, (4, 8)).transpose(1, 2) for z in m.qkv(y).chunk(3, -1))
        causal = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
        weights = (q @ k.transpose(2, 3) / 8**0.5).masked_fill(causal, -1e9).softmax(-1)
        return m.out(m.last(y + m.attended((weights @ v).transpose(1, 2).flatten(2))))

    parts = {
        "embed": nn.ModuleList(nn.Linear(1, 32) for _ in range(6)),
        "own": nn.ModuleList(Gated(32, 32, 32) for _ in range(6)),
    }
    parts |= {"choose": Gated(192, 32, 6), "gate": nn.Linear(32, 64), "norm": nn.LayerNorm(32), "last": Gated(32, 32, 32)}
    rest = {"lstm": nn.LSTM(32, 32, batch_first=True), "qkv": nn.Linear(32, 96), "attended": nn.Linear(32, 32)}
    shapes = ((8, 72, 6), (1, 48, 6), (3, 96, 6), (8, 72, 6))
    runs, axes = images("x", *shapes, axes={0: "batch", 1: "time"})
    return Family(Calling(forward, **parts, **rest, out=nn.Linear(32, 3)), runs, axes)


def patch_tst() -> Family:
    config = hf.PatchTSTConfig(num_input_channels=7, context_length=96, patch_length=16, patch_stride=8, prediction_length=24,
                               d_model=64, num_hidden_layers=3, num_attention_heads=4, ffn_dim=128)  # fmt: skip

    def forward(m: Any, x: Tensor) -> Tensor:
        return m.model(past_values=x).prediction_outputs

    model = hf.PatchTSTForPrediction(config)
    return Family(Calling(forward, model=model), *images("x", (4, 96, 7), (1, 96, 7), (4, 96, 7), axes={0: "batch"}))


def capsules() -> Family:
    """Routing between capsules by agreement, three times."""

    def squash(x: Tensor) -> Tensor:
        square = (x * x).sum(-1, keepdim=True)
        return square / (1 + square) * x / torch.sqrt(square + 1e-8)

    def forward(m: Any, x: Tensor) -> Any:
        u = m.primary(F.relu(m.first(x)))
        u = squash(u.view(u.shape[0], 8, -1).transpose(1, 2))
        votes = torch.einsum("nio,bni->bno", m.weights.weight.view(288, 8, 160), u).view(u.shape[0], 288, 10, 16)
        logits = torch.zeros_like(votes[..., :1])
        for _ in range(3):
            v = squash((logits.softmax(2) * votes).sum(1, keepdim=True))
            logits = logits + (votes * v).sum(-1, keepdim=True)
        v = v.squeeze(1)
        return v.norm(dim=-1), v

    parts = {"first": nn.Conv2d(1, 64, 9), "primary": nn.Conv2d(64, 64, 9, 2), "weights": nn.Embedding(288, 8 * 160)}
    return Family(Calling(forward, **parts), *images("x", (2, 1, 28, 28), (1, 1, 28, 28), (5, 1, 28, 28), axes={0: "batch"}))


def conv_lstm() -> Family:
    def forward(m: Any, x: Tensor) -> Tensor:
        n, _, _, height, width = x.shape
        h = c = torch.zeros(n, 32, height, width)
        for t in range(8):
            i, f, o, g = m.cell(torch.cat([x[:, t], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return m.out(h)

    shapes = ((1, 8, 3, 32, 32), (2, 8, 3, 24, 40), (1, 8, 3, 32, 32))
    runs, axes = images("x", *shapes, axes={0: "batch", 3: "height", 4: "width"})
    return Family(Calling(forward, cell=nn.Conv2d(35, 128, 3, padding=1), out=nn.Conv2d(32, 1, 1)), runs, axes)


def u_net_3d() -> Family:
    def two(a: int, b: int) -> nn.Module:
        layers = (nn.Conv3d(a, b, 3, padding=1), nn.InstanceNorm3d(b, affine=True), nn.LeakyReLU(0.01))
        return nn.Sequential(*layers, nn.Conv3d(b, b, 3, padding=1), nn.InstanceNorm3d(b, affine=True), nn.LeakyReLU(0.01))

    def forward(m: Any, x: Tensor) -> Tensor:
        a = m.a(x)
        b = m.b(F.max_pool3d(a, 2))
        c = m.c(F.max_pool3d(b, 2))
        y = m.d(torch.cat([m.up2(c), b], 1))
        return m.out(m.e(torch.cat([F.interpolate(y, scale_factor=2.0, mode="trilinear", align_corners=False), a], 1)))

    parts = {"a": two(1, 16), "b": two(16, 32), "c": two(32, 64), "d": two(64, 32), "e": two(48, 16)}
    module = Calling(forward, **parts, up2=nn.ConvTranspose3d(64, 32, 2, 2), out=nn.Conv3d(16, 3, 1))
    axes = {0: "batch", 2: "depth", 3: "height", 4: "width"}
    return Family(module, *images("x", (1, 1, 24, 32, 32), (2, 1, 16, 16, 24), (1, 1, 24, 32, 32), axes=axes))


def point_net() -> Family:
    """Points grouped by the nearest neighbours of farthest ones would need loops; neighbours of all points do not."""

    def forward(m: Any, points: Tensor) -> Tensor:
        x = points.transpose(1, 2)
        kept = []
        for layer in m.layers:
            square = (x * x).sum(1, keepdim=True)
            near = (2 * x.transpose(1, 2) @ x - square - square.transpose(1, 2)).topk(12, -1).indices
            n, width, count = x.shape
            flat = (near + torch.arange(n)[:, None, None] * count).view(-1)
            around = x.transpose(1, 2).reshape(n * count, width)[flat].view(n, count, 12, width)
            centre = x.transpose(1, 2).unsqueeze(2).expand(-1, -1, 12, -1)
            x = layer(torch.cat([around - centre, centre], 3).permute(0, 3, 1, 2)).amax(-1)
            kept.append(x)
        return m.out(torch.cat(kept, 1).amax(2))

    def layer(a: int, b: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(2 * a, b, 1), nn.BatchNorm2d(b), nn.LeakyReLU(0.2))

    layers = nn.ModuleList([layer(3, 32), layer(32, 32), layer(32, 64)])
    shapes = ((1, 256, 3), (3, 128, 3), (1, 300, 3), (1, 256, 3))
    runs, axes = images("points", *shapes, axes={0: "batch", 1: "points"})
    return Family(Calling(forward, layers=layers, out=nn.Linear(128, 10)), runs, axes)


def graph_attention() -> Family:
    """Attention over edges: a softmax over each node's edges by scattered maxima and sums."""

    def forward(m: Any, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        for layer, a, b in zip(m.layers, m.a, m.b, strict=True):
            h = layer(x).view(x.shape[0], 4, -1)
            score = F.leaky_relu((h * a.weight).sum(-1)[source] + (h * b.weight).sum(-1)[target], 0.2)
            index = target[:, None].expand_as(score)
            top = torch.full((x.shape[0], 4), -1e30).scatter_reduce(0, index, score, "amax")
            weight = torch.exp(score - top[target])
            total = torch.zeros(x.shape[0], 4).scatter_add(0, index, weight)
            message = h[source] * (weight / total[target])[..., None]
            out = torch.zeros_like(h).scatter_add(0, target[:, None, None].expand_as(message), message)
            x = F.elu(out.flatten(1))
        return m.out(x)

    parts = {"layers": nn.ModuleList([nn.Linear(32, 64), nn.Linear(64, 64)])}
    parts |= {name: nn.ModuleList([nn.Embedding(4, 16) for _ in range(2)]) for name in "ab"}

    def run(nodes: int, edges: int) -> Run:
        ends = torch.randint(0, nodes, (2, edges))
        return {"x": torch.randn(nodes, 32), "edges": torch.cat([ends, torch.arange(nodes).expand(2, -1)], 1)}

    axes: Axes = {"x": {0: "nodes"}, "edges": {1: "edges"}}
    return Family(
        Calling(forward, **parts, out=nn.Linear(64, 7)), [run(300, 2000), run(20, 60), run(1, 0), run(300, 2000)], axes
    )


FAMILIES = (
    tab_net, n_beats, temporal_fusion, patch_tst, capsules, conv_lstm, u_net_3d, point_net, graph_attention,
)  # fmt: skip
