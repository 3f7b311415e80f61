"""Models in which types meet, and models with branches and loops of their own, for `families.py`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as f
from torch import Tensor, nn

from cases.family import Calling, Family, images


def _tokens(*shapes: tuple[int, int], high: int = 1000) -> list[dict[str, Tensor]]:
    return [{"tokens": torch.randint(0, high, s)} for s in shapes]


class Block(nn.Module):
    """Attention and two layers, normalised before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.first, self.second = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(f.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).reshape(rows, length, width))
        return x + self.layers(self.second(x))


def _convolutions(width: int = 32) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.SiLU(),
        nn.Conv2d(2 * width, 2 * width, 3, 1, 1, groups=2 * width), nn.Conv2d(2 * width, 4 * width, 1), nn.ReLU(),
    )  # fmt: skip


def double_network() -> Family:
    """All of it in float64, as scientists export: convolutions, attention, an LSTM, a layer."""

    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.block(m.body(x).flatten(2).transpose(1, 2))
        return m.out(m.rows(y)[0][:, -1])

    parts = {"body": _convolutions(), "block": Block(128, 4), "rows": nn.LSTM(128, 64, batch_first=True)}
    module = Calling(forward, **parts, out=nn.Linear(64, 10)).double()
    runs = [{"x": torch.randn(s, dtype=torch.float64)} for s in ((1, 3, 64, 64), (3, 3, 64, 64), (1, 3, 64, 64))]
    return Family(module, runs, {"x": {0: "batch"}})


def double_rows() -> Family:
    """A network of tables in float64: standardised columns, wide layers, LayerNorm, a softmax."""
    body = nn.Sequential(nn.Linear(64, 256), nn.LayerNorm(256), nn.SiLU(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 5))

    def forward(m: Any, x: Tensor) -> Tensor:
        return m.body((x - 0.1) / 1.3).softmax(-1)

    runs = [{"x": torch.randn(n, 64, dtype=torch.float64)} for n in (16, 1, 200, 16)]
    return Family(Calling(forward, body=body).double(), runs, {"x": {0: "rows"}})


def double_angles() -> Family:
    """Rotations and a time's embedding computed in float64 from int64 places, the rest in float32."""

    def forward(m: Any, tokens: Tensor, times: Tensor) -> Tensor:
        x = m.table(tokens)
        places = torch.arange(tokens.shape[1]).double()
        rates = 1.0 / (10000.0 ** (torch.arange(0, 64, dtype=torch.float64) / 64))
        angles = places[:, None] * rates
        x = x + torch.cat([angles.sin(), angles.cos()], -1).float()
        moment = times.double()[:, None] * rates
        x = x + m.moment(torch.cat([moment.sin(), moment.cos()], -1).to(x.dtype))[:, None]
        for block in m.blocks:
            x = block(x)
        return m.out(x.double().mean(1).float())

    parts = {"table": nn.Embedding(1000, 128), "moment": nn.Linear(128, 128), "out": nn.Linear(128, 8)}
    module = Calling(forward, **parts, blocks=nn.ModuleList(Block(128, 4) for _ in range(2)))
    runs = [
        run | {"times": torch.randint(0, 1000, (len(run["tokens"]),))} for run in _tokens((1, 64), (8, 40), (2, 7), (1, 64))
    ]
    return Family(module, runs, {"tokens": {0: "batch", 1: "length"}, "times": {0: "batch"}})


def half_network() -> Family:
    """All of it in float16, inputs and outputs as well, as `model.half()` is exported."""

    def forward(m: Any, x: Tensor) -> Tensor:
        return m.out(m.block(m.body(x).flatten(2).transpose(1, 2)).mean(1))

    module = Calling(forward, body=_convolutions(), block=Block(128, 4), out=nn.Linear(128, 10)).half()
    runs = [{"x": torch.randn(s).half()} for s in ((1, 3, 96, 96), (4, 3, 96, 96), (1, 3, 96, 96))]
    return Family(module, runs, {"x": {0: "batch"}})


def half_inputs() -> Family:
    """float16 images and int32 boxes in, float32 inside, bytes and float16 out."""

    def forward(m: Any, x: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = m.body(x.float())
        maps = f.interpolate(m.out(y), scale_factor=4.0, mode="bilinear")
        areas = ((boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])).float()
        return maps.argmax(1).to(torch.uint8), maps.half(), areas / areas.sum(-1, keepdim=True)

    runs, axes = images("x", (1, 3, 128, 128), (2, 3, 64, 96), (1, 3, 128, 128))
    runs = [{"x": run["x"].half(), "boxes": torch.randint(0, 100, (len(run["x"]), 20, 4), dtype=torch.int32)} for run in runs]
    module = Calling(forward, body=_convolutions(), out=nn.Conv2d(128, 5, 1))
    return Family(module, runs, {**axes, "boxes": {0: "batch", 1: "boxes"}})


def whole_numbers() -> Family:
    """Dates and counts: days, hours and weekdays of int64 seconds, buckets, hashes by remainders, tables, a few layers."""

    def forward(m: Any, seconds: Tensor, counts: Tensor) -> Tensor:
        days = torch.div(seconds, 86400, rounding_mode="floor")
        hours, weekday = torch.remainder(torch.div(seconds, 3600, rounding_mode="floor"), 24), (days + 4) % 7
        crossed = (hours * 31 + weekday * 17 + counts[:, 0] % 256 * 7919) % 997
        buckets = torch.bucketize(counts, torch.tensor([1, 2, 5, 10, 50, 100, 1000]))
        parts = [m.hour(hours), m.day(weekday), m.cross(crossed), m.bucket(buckets).flatten(1)]
        dense = torch.log1p(counts.float().clamp(min=0)) / 10
        return m.body(torch.cat([*parts, dense, (counts > 3).float()], -1)).sigmoid()

    parts = {
        "hour": nn.Embedding(24, 16),
        "day": nn.Embedding(7, 8),
        "cross": nn.Embedding(997, 24),
        "bucket": nn.Embedding(8, 4),
    }
    body = nn.Sequential(nn.Linear(96, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
    runs = [
        {"seconds": torch.randint(0, 2_000_000_000, (n,)), "counts": torch.randint(0, 2000, (n, 8))} for n in (64, 1, 300, 64)
    ]
    return Family(Calling(forward, **parts, body=body), runs, {"seconds": {0: "rows"}, "counts": {0: "rows"}})


def masked_rows() -> Family:
    """bool masks all through: their cumulative sums as places, masks of pairs, the largest and the mean of what counts."""

    def forward(m: Any, tokens: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        places = (there.long().cumsum(1) - 1).clamp(min=0)
        x = m.table(tokens) + m.place(places)
        pairs = there[:, None, None, :] & there[:, None, :, None]
        pairs = pairs | torch.eye(tokens.shape[1], dtype=torch.bool)
        for block in m.blocks:
            x = block(x, pairs)
        largest = x.masked_fill(~there[..., None], -1e4).amax(1)
        mean = (x * there[..., None]).sum(1) / there.sum(1, keepdim=True).clamp(min=1)
        return f.normalize(mean, dim=-1), largest

    module = Calling(
        forward,
        table=nn.Embedding(1000, 128),
        place=nn.Embedding(512, 128),
        blocks=nn.ModuleList(Block(128, 4) for _ in range(2)),
    )
    runs = []
    for run in _tokens((2, 50), (8, 31), (1, 4), (2, 50)):
        lengths = torch.randint(1, run["tokens"].shape[1] + 1, (len(run["tokens"]), 1))
        runs.append(run | {"there": torch.arange(run["tokens"].shape[1]) < lengths})
    axes = {0: "batch", 1: "length"}
    return Family(module, runs, {"tokens": axes, "there": axes})


FAMILIES = (
    double_network, double_rows, double_angles, half_network, half_inputs, whole_numbers, masked_rows,
)  # fmt: skip
