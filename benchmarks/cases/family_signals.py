"""Networks of sound, series, text and tables for `families.py`, as their papers draw them; in no other file."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from cases.family import Axes, Calling, Family, Run, images


def _dense(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _sound(module: nn.Module, *shapes: tuple[int, ...]) -> Family:
    return Family(module, *images("x", *shapes, axes={0: "batch", len(shapes[0]) - 1: "length"}), traced=1)


def citrinet() -> Family:
    """Separable convolutions of one dimension with long windows, squeeze and excitation over time."""

    class Block(nn.Module):
        def __init__(self, a: int, b: int, kernel: int, stride: int = 1) -> None:
            super().__init__()
            steps = [(a, b, stride), (b, b, 1), (b, b, 1)]
            self.layers = nn.ModuleList(
                nn.Sequential(nn.Conv1d(p, p, kernel, s, kernel // 2, groups=p), nn.Conv1d(p, q, 1), nn.BatchNorm1d(q))
                for p, q, s in steps
            )
            self.down, self.up = nn.Linear(b, b // 8), nn.Linear(b // 8, b)
            self.beside = nn.Sequential(nn.Conv1d(a, b, 1, stride), nn.BatchNorm1d(b))

        def forward(self, x: Tensor) -> Tensor:
            y = x
            for layer in self.layers[:-1]:
                y = F.relu(layer(y))
            y = self.layers[-1](y)
            gate = torch.sigmoid(self.up(F.relu(self.down(y.mean(2)))))
            return F.relu(y * gate[..., None] + self.beside(x))

    blocks = [Block(80, 192, 5), Block(192, 192, 11, 2), Block(192, 256, 13), Block(256, 256, 25, 2), Block(256, 320, 39)]
    return _sound(nn.Sequential(*blocks, nn.Conv1d(320, 129, 1), nn.LogSoftmax(1)), (1, 80, 400), (2, 80, 301), (1, 80, 400))


def ecapa_tdnn() -> Family:
    """A voice's vector: dilated convolutions in scales, excitation, attention over time, statistics."""

    class Block(nn.Module):
        def __init__(self, width: int, dilation: int) -> None:
            super().__init__()
            self.enter, self.leave = (nn.Sequential(nn.Conv1d(width, width, 1), nn.ReLU(), nn.BatchNorm1d(width)) for _ in "12")
            part = width // 8
            self.parts = nn.ModuleList(nn.Conv1d(part, part, 3, padding=dilation, dilation=dilation) for _ in range(7))
            self.gate = nn.Sequential(nn.Conv1d(width, 64, 1), nn.ReLU(), nn.Conv1d(64, width, 1), nn.Sigmoid())

        def forward(self, x: Tensor) -> Tensor:
            first, *rest = self.enter(x).chunk(8, 1)
            kept = [first]
            for part, layer in zip(rest, self.parts, strict=True):
                kept.append(F.relu(layer(part + kept[-1] if len(kept) > 1 else part)))
            y = self.leave(torch.cat(kept, 1))
            return x + y * self.gate(y.mean(2, keepdim=True))

    def forward(m: Any, x: Tensor) -> Tensor:
        x = F.relu(m.enter(x))
        kept = []
        for block in m.blocks:
            x = block(x)
            kept.append(x)
        x = F.relu(m.join(torch.cat(kept, 1)))
        mean, deep = x.mean(2, keepdim=True), x.std(2, keepdim=True)
        whole = torch.cat([x, mean.expand_as(x), deep.expand_as(x)], 1)
        weight = m.attend(whole).softmax(2)
        mean = (x * weight).sum(2)
        deep = ((x * x * weight).sum(2) - mean * mean).clamp(min=1e-6).sqrt()
        return F.normalize(m.out(torch.cat([mean, deep], 1)), dim=1)

    attend = nn.Sequential(nn.Conv1d(1152, 128, 1), nn.ReLU(), nn.BatchNorm1d(128), nn.Tanh(), nn.Conv1d(128, 384, 1))
    parts = {"enter": nn.Conv1d(80, 256, 5, padding=2), "blocks": nn.ModuleList(Block(256, d) for d in (2, 3, 4))}
    module = Calling(forward, **parts, join=nn.Conv1d(768, 384, 1), attend=attend, out=nn.Linear(768, 192))
    return _sound(module, (1, 80, 300), (3, 80, 200), (1, 80, 300))


def conv_tasnet() -> Family:
    """Sounds taken apart: a learned basis, masks by dilated separable convolutions with global normalisation."""

    class Block(nn.Module):
        def __init__(self, dilation: int) -> None:
            super().__init__()
            around = nn.Conv1d(256, 256, 3, padding=dilation, dilation=dilation, groups=256)
            self.body = nn.Sequential(
                nn.Conv1d(128, 256, 1), nn.PReLU(), nn.GroupNorm(1, 256), around, nn.PReLU(), nn.GroupNorm(1, 256)
            )
            self.stay, self.skip = nn.Conv1d(256, 128, 1), nn.Conv1d(256, 128, 1)

    def forward(m: Any, x: Tensor) -> Tensor:
        w = F.relu(m.basis(x))
        y, total = m.enter(m.norm(w)), 0
        for block in m.blocks:
            z = block.body(y)
            y, total = y + block.stay(z), total + block.skip(z)
        masks = torch.sigmoid(m.masks(F.relu(total))).unflatten(1, (2, 256))
        parts = (masks * w[:, None]).flatten(0, 1)
        return m.back(parts).unflatten(0, (x.shape[0], 2)).squeeze(2)

    parts = {"basis": nn.Conv1d(1, 256, 16, 8, bias=False), "norm": nn.GroupNorm(1, 256), "enter": nn.Conv1d(256, 128, 1)}
    parts |= {"blocks": nn.ModuleList(Block(2**i) for i in (0, 1, 2, 3, 4, 5)), "masks": nn.Conv1d(128, 512, 1)}
    module = Calling(forward, **parts, back=nn.ConvTranspose1d(256, 1, 16, 8, bias=False))
    return _sound(module, (1, 1, 8000), (2, 1, 4000), (1, 1, 8000))


def demucs() -> Family:
    """Strided convolutions with gates, an LSTM in between, transposed convolutions back, skips."""

    def forward(m: Any, x: Tensor) -> Tensor:
        kept = []
        for layer in m.down:
            x = layer(x)
            kept.append(x)
        x = m.lstm(x.permute(2, 0, 1))[0].permute(1, 2, 0)
        x = m.join(x.transpose(1, 2)).transpose(1, 2)
        for layer in m.up:
            x = layer(x + kept.pop())
        return x

    widths = [1, 32, 64, 128, 256]
    down = [nn.Sequential(nn.Conv1d(a, b, 8, 4, 2), nn.ReLU(), nn.Conv1d(b, 2 * b, 1), nn.GLU(1)) for a, b in pairwise(widths)]
    up = [
        nn.Sequential(
            nn.Conv1d(b, 2 * b, 1), nn.GLU(1), nn.ConvTranspose1d(b, a, 8, 4, 2), nn.ReLU() if a > 1 else nn.Identity()
        )
        for a, b in reversed(list(pairwise(widths)))
    ]
    parts = {"down": nn.ModuleList(down), "up": nn.ModuleList(up), "join": nn.Linear(512, 256)}
    return _sound(Calling(forward, **parts, lstm=nn.LSTM(256, 256, bidirectional=True)), (1, 1, 8192), (1, 1, 16384))


def keyword_spotter() -> Family:
    """A spectrum by windows and a Fourier matrix, mel bands, their logarithms, depthwise separable convolutions."""

    def forward(m: Any, x: Tensor) -> Tensor:
        spectrum = m.fourier(F.pad(x[:, None], (200, 200), mode="reflect"))
        real, imaginary = spectrum.chunk(2, 1)
        mel = m.mel((real * real + imaginary * imaginary).transpose(1, 2))
        y = torch.log(mel.abs() + 1e-6)
        y = (y - y.mean((1, 2), keepdim=True)) / y.std((1, 2), keepdim=True)
        return m.out(m.body(y[:, None]).mean((2, 3)))

    def separable() -> list[nn.Module]:
        return [
            nn.Conv2d(64, 64, 3, padding=1, groups=64),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.Conv2d(64, 64, 1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
        ]

    body = nn.Sequential(
        nn.Conv2d(1, 64, (10, 4), 2, (5, 1)), nn.BatchNorm2d(64), nn.ReLU(), *(z for _ in range(4) for z in separable())
    )
    parts = {"fourier": nn.Conv1d(1, 514, 400, 160, bias=False), "mel": nn.Linear(257, 40, bias=False), "body": body}
    return _sound(Calling(forward, **parts, out=nn.Linear(64, 12)), (1, 16000), (2, 8000), (1, 16000))


def spectral_encoder() -> Family:
    """Deep Speech 2: two convolutions over a spectrum, three GRUs both ways, sums of directions."""

    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.front(x[:, None])
        y = y.flatten(1, 2).permute(2, 0, 1)
        for gru in m.layers:
            y = gru(y)[0].unflatten(2, (2, -1)).sum(2)
        return m.out(y).log_softmax(-1)

    front = nn.Sequential(
        nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
        nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
    )  # fmt: skip
    layers = nn.ModuleList([nn.GRU(32 * 41, 256, bidirectional=True), nn.GRU(256, 256, bidirectional=True)])
    module = Calling(forward, front=front, layers=layers, out=nn.Linear(256, 29))
    return Family(module, *images("x", (1, 161, 200), (1, 161, 120), axes={2: "length"}))


def noise_suppressor() -> Family:
    """Frames with states (DTLN): an LSTM's mask on magnitudes, a frame at a time."""

    def forward(m: Any, frame: Tensor, h: Tensor, c: Tensor) -> Any:
        y, (h, c) = m.lstm(torch.log(frame + 1e-7), (h, c))
        return frame * torch.sigmoid(m.mask(y)), h, c

    def run(batch: int) -> Run:
        return {"frame": torch.rand(batch, 1, 257), "h": torch.zeros(2, batch, 128), "c": torch.zeros(2, batch, 128)}

    axes: Axes = {"frame": {0: "batch"}, "h": {1: "batch"}, "c": {1: "batch"}}
    parts = {"lstm": nn.LSTM(257, 128, 2, batch_first=True), "mask": nn.Linear(128, 257)}
    return Family(Calling(forward, **parts), [run(1), run(3), run(1)], axes, traced=1)


def structured_states() -> Family:
    """Layers of diagonal state spaces (S4D): a long convolution by products of spectra as Fourier matrices, gates."""

    def forward(m: Any, x: Tensor) -> Tensor:
        length = x.shape[1]
        x = m.enter(x)
        for norm, rates, weights, mix in zip(m.norms, m.rates, m.weights, m.mix, strict=True):
            steps = torch.arange(length, dtype=torch.float32)
            kernel = (weights.weight[..., None] * torch.exp(-F.softplus(rates.weight)[..., None] * steps * 0.1)).sum(1)
            places = steps[:, None].long() - steps[None].long()
            lower = torch.where(places >= 0, kernel[:, places.clamp(min=0)], 0.0)
            y = torch.einsum("dts,bsd->btd", lower, norm(x))
            x = x + F.glu(mix(F.gelu(y)), -1)
        return m.out(x.mean(1))

    layers = range(2)
    parts: dict[str, nn.Module] = {"norms": nn.ModuleList(nn.LayerNorm(64) for _ in layers), "enter": nn.Linear(1, 64)}
    parts |= {name: nn.ModuleList(nn.Embedding(64, 8) for _ in layers) for name in ("rates", "weights")}
    parts |= {"mix": nn.ModuleList(nn.Linear(64, 128) for _ in layers), "out": nn.Linear(64, 10)}
    return Family(Calling(forward, **parts), *images("x", (1, 128, 1), (2, 128, 1), axes={0: "batch"}))


def retention() -> Family:
    """Retention in its parallel form: decays by distance instead of a softmax, groups normalised, gates."""

    def forward(m: Any, ids: Tensor) -> Tensor:
        x = m.embed(ids)
        places = torch.arange(ids.shape[1], dtype=torch.float32)
        distance = places[:, None] - places[None]
        rates = torch.log(1 - torch.exp2(-5 - torch.arange(4, dtype=torch.float32)))
        decay = torch.where(distance >= 0, torch.exp(distance[None] * rates[:, None, None]), 0.0)
        for norm, qkvg, group, out, mlp in zip(m.norms, m.qkvg, m.groups, m.outs, m.mlps, strict=True):
            q, k, v, gate = qkvg(norm(x)).chunk(4, -1)
            q, k, v = (z.unflatten(2, (4, 64)).transpose(1, 2) for z in (q, k, v))
            y = ((q @ k.transpose(2, 3) * 64**-0.5) * decay) @ v
            y = group(y.transpose(1, 2).flatten(0, 1).flatten(1)).view(*x.shape)
            x = x + out(F.silu(gate) * y)
            x = x + mlp(x)
        return m.logits(x)

    layers = range(3)
    parts: dict[str, nn.Module] = {"norms": nn.ModuleList(nn.LayerNorm(256) for _ in layers), "embed": nn.Embedding(2000, 256)}
    parts |= {
        "qkvg": nn.ModuleList(nn.Linear(256, 1024) for _ in layers),
        "outs": nn.ModuleList(nn.Linear(256, 256) for _ in layers),
    }
    parts["groups"] = nn.ModuleList(nn.GroupNorm(4, 256) for _ in layers)
    parts["mlps"] = nn.ModuleList(
        nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)) for _ in layers
    )
    runs: list[Run] = [{"ids": torch.randint(0, 2000, shape)} for shape in ((1, 96), (2, 33), (1, 96))]
    return Family(Calling(forward, **parts, logits=nn.Linear(256, 2000)), runs, {"ids": {0: "batch", 1: "length"}}, traced=1)


def text_convolutions() -> Family:
    """Words to three widths of windows, the largest of each, a class."""

    def forward(m: Any, ids: Tensor) -> Tensor:
        x = m.embed(ids).transpose(1, 2)
        return m.out(torch.cat([F.relu(conv(x)).amax(2) for conv in m.convs], 1))

    parts = {"embed": nn.Embedding(20000, 128), "convs": nn.ModuleList(nn.Conv1d(128, 100, k) for k in (3, 4, 5))}
    runs: list[Run] = [{"ids": torch.randint(0, 20000, shape)} for shape in ((1, 64), (8, 40), (1, 64))]
    return Family(Calling(forward, **parts, out=nn.Linear(300, 5)), runs, {"ids": {0: "batch", 1: "length"}}, traced=1)


def tagger() -> Family:
    """Letters by convolution beside words, an LSTM both ways, the best path of tags by Viterbi's sums for fixed lengths."""

    def forward(m: Any, words: Tensor, letters: Tensor) -> Any:
        n, length, _ = letters.shape
        spelt = m.spell(m.letters(letters.flatten(0, 1)).transpose(1, 2)).amax(2).view(n, length, -1)
        y = m.out(m.lstm(torch.cat([m.words(words), spelt], 2))[0])
        score, back = y[:, 0], []
        for t in range(1, 24):
            best, index = (score[:, :, None] + m.steps.weight).max(1)
            score = best + y[:, t]
            back.append(index)
        tags = [score.argmax(1)]
        for index in reversed(back):
            tags.append(index.gather(1, tags[-1][:, None])[:, 0])
        return torch.stack(tags[::-1], 1), score.amax(1)

    parts = {"words": nn.Embedding(5000, 100), "letters": nn.Embedding(80, 25), "spell": nn.Conv1d(25, 30, 3, padding=1)}
    parts |= {
        "lstm": nn.LSTM(130, 100, bidirectional=True, batch_first=True),
        "out": nn.Linear(200, 9),
        "steps": nn.Embedding(9, 9),
    }

    def run(batch: int) -> Run:
        return {"words": torch.randint(0, 5000, (batch, 24)), "letters": torch.randint(0, 80, (batch, 24, 12))}

    return Family(
        Calling(forward, **parts), [run(1), run(4), run(1)], {"words": {0: "batch"}, "letters": {0: "batch"}}, traced=1
    )


def wide_and_deep() -> Family:
    """Many categories in large tables, crossed ones by a hash, dense features, a deep and a linear part."""
    fields, rows = 20, 50000

    def forward(m: Any, dense: Tensor, sparse: Tensor) -> Tensor:
        deep = [table(sparse[:, i]) for i, table in enumerate(m.tables)]
        crossed = (sparse[:, :-1] * 40503 + sparse[:, 1:]) % 100000
        wide = m.wide(crossed).sum(1) + m.linear(dense)
        return torch.sigmoid(wide + m.deep(torch.cat([torch.log1p(dense), *deep], 1)))

    parts = {"tables": nn.ModuleList(nn.Embedding(rows, 16) for _ in range(fields)), "wide": nn.Embedding(100000, 1)}
    parts |= {"linear": nn.Linear(13, 1), "deep": _dense(13 + 16 * fields, 512, 256, 128, 1)}

    def run(batch: int) -> Run:
        return {"dense": torch.rand(batch, 13), "sparse": torch.randint(0, rows, (batch, fields))}

    return Family(
        Calling(forward, **parts), [run(1), run(64), run(1)], {"dense": {0: "batch"}, "sparse": {0: "batch"}}, traced=1
    )


def attentive_fields() -> Family:
    """AutoInt and DCN v2: attention between fields of a table, crosses of low rank, batches of 128."""

    def forward(m: Any, ids: Tensor) -> Tensor:
        x = m.table(ids + torch.arange(16) * 1000)
        y = x
        for qkv, beside in zip(m.qkv, m.beside, strict=True):
            q, k, v = (z.unflatten(2, (2, -1)).transpose(1, 2) for z in qkv(y).chunk(3, -1))
            y = F.relu(((q @ k.transpose(2, 3)).softmax(-1) @ v).transpose(1, 2).flatten(2) + beside(y))
        flat = crossed = x.flatten(1)
        for down, up in zip(m.down, m.up, strict=True):
            crossed = flat * up(down(crossed)) + crossed
        return torch.sigmoid(m.out(torch.cat([y.flatten(1), crossed], 1)))[:, 0]

    parts: dict[str, nn.Module] = {
        "table": nn.Embedding(16000, 16),
        "qkv": nn.ModuleList([nn.Linear(16, 96), nn.Linear(32, 96)]),
    }
    parts |= {"beside": nn.ModuleList([nn.Linear(16, 32), nn.Linear(32, 32)]), "out": nn.Linear(16 * 48, 1)}
    parts |= {
        "down": nn.ModuleList(nn.Linear(256, 32, bias=False) for _ in "123"),
        "up": nn.ModuleList(nn.Linear(32, 256) for _ in "123"),
    }
    runs: list[Run] = [{"ids": torch.randint(0, 1000, (batch, 16))} for batch in (128, 1, 50)]
    return Family(Calling(forward, **parts), runs, {"ids": {0: "batch"}})


def deep_ar() -> Family:
    """An LSTM over a window, then its own means fed back for eight steps; a scale for each row."""

    def forward(m: Any, x: Tensor) -> Tensor:
        scale = x.abs().mean(1, keepdim=True) + 1e-3
        _, state = m.lstm((x / scale)[..., None])
        last, means = (x[:, -1:] / scale)[..., None], []
        for _ in range(8):
            y, state = m.lstm(last, state)
            mean, deep = m.out(y).chunk(2, -1)
            means.append(torch.cat([mean, F.softplus(deep)], -1))
            last = mean
        return torch.cat(means, 1) * scale[..., None]

    parts = {"lstm": nn.LSTM(1, 64, 2, batch_first=True), "out": nn.Linear(64, 2)}
    return Family(Calling(forward, **parts), *images("x", (4, 48), (1, 48), (4, 48), axes={0: "batch"}))


def decomposed_series() -> Family:
    """DLinear and TSMixer: moving averages, one layer over time for each part, mixing of time and of features."""

    def forward(m: Any, x: Tensor) -> Tensor:
        trend = F.avg_pool1d(F.pad(x.transpose(1, 2), (12, 12), mode="replicate"), 25, 1)
        rest = x.transpose(1, 2) - trend
        for time, features, norm in zip(m.time, m.features, m.norms, strict=True):
            rest = rest + F.relu(time(norm(rest.transpose(1, 2)).transpose(1, 2)))
            rest = rest + features(rest.transpose(1, 2)).transpose(1, 2)
        return (m.trend(trend) + m.season(rest)).transpose(1, 2)

    parts: dict[str, nn.Module] = {"trend": nn.Linear(336, 96), "season": nn.Linear(336, 96)}
    parts |= {"time": nn.ModuleList(nn.Linear(336, 336) for _ in "12"), "norms": nn.ModuleList(nn.LayerNorm(21) for _ in "12")}
    parts["features"] = nn.ModuleList(_dense(21, 64, 21) for _ in "12")
    return Family(Calling(forward, **parts), *images("x", (1, 336, 21), (8, 336, 21), axes={0: "batch"}))


def spline_network() -> Family:
    """Layers of splines (KAN): bases by the recursion of Cox and de Boor, no weights but their coefficients."""

    def forward(m: Any, x: Tensor) -> Tensor:
        grid = torch.linspace(-2.2, 2.2, 12)
        for layer in m.layers:
            z = x[..., None]
            bases = ((z >= grid[:-1]) & (z < grid[1:])).float()
            for k in (1, 2, 3):
                low = (z - grid[: -(k + 1)]) / (grid[k:-1] - grid[: -(k + 1)]) * bases[..., :-1]
                bases = low + (grid[k + 1 :] - z) / (grid[k + 1 :] - grid[1:-k]) * bases[..., 1:]
            x = layer(torch.cat([bases.flatten(1), F.silu(x)], 1))
        return x

    layers = nn.ModuleList(nn.Linear(9 * a, b) for a, b in pairwise((16, 64, 64, 4)))
    return Family(Calling(forward, layers=layers), *images("x", (64, 16), (1, 16), axes={0: "batch"}))


def agent() -> Family:
    """A player of games from pixels: convolutions with large steps, an LSTM cell, a policy and a value."""

    def forward(m: Any, frames: Tensor, h: Tensor, c: Tensor) -> Any:
        y = m.body(frames / 255.0)
        h, c = m.cell(y, (h, c))
        return m.policy(h).softmax(1), m.value(h), h, c

    convs = [
        nn.Conv2d(4, 32, 8, 4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, 2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(),
        nn.Flatten(),
    ]
    parts = {"body": nn.Sequential(*convs, nn.Linear(3136, 512), nn.ReLU()), "cell": nn.LSTMCell(512, 256)}

    def run(batch: int) -> Run:
        return {"frames": torch.rand(batch, 4, 84, 84) * 255, "h": torch.zeros(batch, 256), "c": torch.zeros(batch, 256)}

    axes: Axes = {name: {0: "batch"} for name in ("frames", "h", "c")}
    module = Calling(forward, **parts, policy=nn.Linear(256, 6), value=nn.Linear(256, 1))
    return Family(module, [run(1), run(5), run(1)], axes, traced=1)


def board_player() -> Family:
    """Residual blocks on a board of 8 x 8, moves and a value (AlphaZero)."""

    def block() -> nn.Module:
        layers = (nn.Conv2d(128, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(), nn.Conv2d(128, 128, 3, padding=1))
        return nn.Sequential(*layers, nn.BatchNorm2d(128))

    def forward(m: Any, x: Tensor) -> Any:
        x = F.relu(m.enter(x))
        for layer in m.blocks:
            x = F.relu(x + layer(x))
        return m.moves(F.relu(m.policy(x)).flatten(1)).log_softmax(1), torch.tanh(m.value(x.flatten(1)))

    parts = {"enter": nn.Conv2d(18, 128, 3, padding=1), "blocks": nn.ModuleList(block() for _ in range(6))}
    parts |= {"policy": nn.Conv2d(128, 32, 1), "moves": nn.Linear(2048, 1858), "value": _dense(8192, 128, 1)}
    return Family(Calling(forward, **parts), *images("x", (1, 18, 8, 8), (8, 18, 8, 8), axes={0: "batch"}))


def memory_network() -> Family:
    """Questions over stored sentences: sums of words with weights by place, three hops of attention."""

    def forward(m: Any, story: Tensor, question: Tensor) -> Tensor:
        u = m.embed(question).sum(1)
        for a, b in pairwise(m.tables):
            keys, values = a(story).sum(2), b(story).sum(2)
            weights = (keys @ u[..., None]).softmax(1)
            u = u + (values * weights).sum(1)
        return m.out(u)

    parts = {
        "embed": nn.Embedding(200, 64),
        "tables": nn.ModuleList(nn.Embedding(200, 64) for _ in range(4)),
        "out": nn.Linear(64, 200),
    }

    def run(batch: int, lines: int) -> Run:
        return {"story": torch.randint(0, 200, (batch, lines, 8)), "question": torch.randint(0, 200, (batch, 8))}

    axes: Axes = {"story": {0: "batch", 1: "lines"}, "question": {0: "batch"}}
    return Family(Calling(forward, **parts), [run(1, 50), run(3, 20), run(1, 50)], axes, traced=1)


def pointer_network() -> Family:
    """A route over points: an encoder's states, a decoder that points at one after the other, none twice."""

    def forward(m: Any, points: Tensor) -> Any:
        states, (h, c) = m.encoder(m.embed(points))
        h, c, x = h[0], c[0], states.mean(1)
        keys, free, chosen = m.keys(states), torch.zeros(points.shape[0], 12), []
        for _ in range(12):
            h, c = m.cell(x, (h, c))
            scores = m.scores(torch.tanh(keys + m.query(h)[:, None]))[..., 0] + free
            best = scores.argmax(1)
            free = free.scatter(1, best[:, None], -math.inf)
            x = states.gather(1, best[:, None, None].expand(-1, 1, 96))[:, 0]
            chosen.append(best)
        return torch.stack(chosen, 1), scores

    parts = {"embed": nn.Linear(2, 96), "encoder": nn.LSTM(96, 96, batch_first=True), "cell": nn.LSTMCell(96, 96)}
    parts |= {"keys": nn.Linear(96, 96), "query": nn.Linear(96, 96), "scores": nn.Linear(96, 1)}
    return Family(Calling(forward, **parts), *images("points", (1, 12, 2), (5, 12, 2), axes={0: "batch"}), traced=1)


FAMILIES = (
    citrinet, ecapa_tdnn, conv_tasnet, demucs, keyword_spotter, spectral_encoder, noise_suppressor, structured_states,
    retention, text_convolutions, tagger, wide_and_deep, attentive_fields, deep_ar, decomposed_series, spline_network, agent,
    board_player, memory_network, pointer_network,
)  # fmt: skip
