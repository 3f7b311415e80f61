"""Graphs, points, fields, tables and policies for `families.py` at the sizes that people deploy, in no other file."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from cases.family import Calling, Family, Run, by_export


def fourier_operator() -> Family:
    """FNO: twelve low frequencies of both axes times weights (rfft2, Einsum), beside pointwise windows; 64x64, batch 4."""

    class Spectral(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.low, self.high = (nn.Parameter(torch.randn(2, n, n, 12, 12) / n) for _ in "12")

        def times(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
            of = lambda a, b: torch.einsum("bixy,ioxy->boxy", a, b)  # noqa: E731
            a, b = x.real, x.imag
            return of(a, w[0]) - of(b, w[1]), of(a, w[1]) + of(b, w[0])

        def forward(self, x: Tensor) -> Tensor:
            b, c, h, w = x.shape
            y = torch.fft.rfft2(x)
            top, bottom = self.times(y[:, :, :12, :12], self.low), self.times(y[:, :, -12:, :12], self.high)
            between, wide = torch.zeros(b, c, h - 24, w // 2 + 1), (0, w // 2 - 11)
            parts = [torch.cat((F.pad(t, wide), between, F.pad(s, wide)), 2) for t, s in zip(top, bottom, strict=True)]
            return torch.fft.irfft2(torch.complex(*parts), s=(h, w))

    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.enter(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        for spectral, point in zip(m.spectral, m.point, strict=True):
            y = F.gelu(spectral(y) + point(y))
        return m.leave(y.permute(0, 2, 3, 1))

    module = Calling(
        forward,
        enter=nn.Linear(3, 32),
        spectral=nn.ModuleList(Spectral(32) for _ in "1234"),
        point=nn.ModuleList(nn.Conv2d(32, 32, 1) for _ in "1234"),
        leave=nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 1)),
    )
    return by_export(Family(module, [{"field": torch.randn(4, 3, 64, 64)} for _ in "12"], {}), 20)


def branch_and_trunk() -> Family:
    """DeepONet: eight functions at 100 sensors, 5,000 places, sines of places."""

    def forward(m: Any, u: Tensor, y: Tensor) -> Tensor:
        waves = y.unsqueeze(-1) * m.rates
        trunk = m.trunk(torch.cat((y, torch.sin(waves).flatten(1), torch.cos(waves).flatten(1)), -1))
        return torch.einsum("bp,np->bn", m.branch(u), torch.tanh(trunk))

    layers = lambda a: nn.Sequential(nn.Linear(a, 150), nn.Tanh(), nn.Linear(150, 150), nn.Tanh(), nn.Linear(150, 150))  # noqa: E731
    module = Calling(forward, branch=layers(100), trunk=layers(2 + 24))
    module.register_buffer("rates", 2.0 ** torch.arange(6) * math.pi)
    runs = [{"functions": torch.randn(b, 100), "places": torch.rand(n, 2)} for b, n in ((8, 5000), (1, 333))]
    return Family(module, runs, {"functions": {0: "batch"}, "places": {0: "places"}})


def splines() -> Family:
    """KAN: cubic B-splines of every input by de Boor's recursion, 64 rows, 100 to 64 to 64 to 10."""

    class Layer(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.base = nn.Parameter(torch.randn(b, a) / a**0.5)
            self.weight = nn.Parameter(torch.randn(b, a * 8) / a**0.5)
            self.register_buffer("grid", (torch.arange(-3, 9) * 0.4 - 1).expand(a, -1).contiguous())

        def forward(self, x: Tensor) -> Tensor:
            g, y = self.grid, x.unsqueeze(-1)
            bases = ((y >= g[:, :-1]) & (y < g[:, 1:])).to(x.dtype)
            for k in range(1, 4):
                left = (y - g[:, : -(k + 1)]) / (g[:, k:-1] - g[:, : -(k + 1)])
                right = (g[:, k + 1 :] - y) / (g[:, k + 1 :] - g[:, 1:-k])
                bases = left * bases[..., :-1] + right * bases[..., 1:]
            return F.linear(F.silu(x), self.base) + F.linear(bases.flatten(1), self.weight)

    module = nn.Sequential(Layer(100, 64), Layer(64, 64), Layer(64, 10))
    return Family(module, [{"x": torch.randn(n, 100)} for n in (64, 1)], {"x": {0: "rows"}})


def oblivious_trees() -> Family:
    """NODE: features by sparsemax (a sort and sums), 256 trees of depth 6, leaves by products of both sides, twice; 64 rows."""

    class Trees(nn.Module):
        def __init__(self, a: int, n: int = 256) -> None:
            super().__init__()
            self.choice, self.limit = nn.Parameter(torch.randn(a, n, 6)), nn.Parameter(torch.randn(n, 6))
            self.scale, self.leaves = nn.Parameter(torch.rand(n, 6) + 0.5), nn.Parameter(torch.randn(n, 3, 64))
            bits = (torch.arange(64).unsqueeze(0) >> torch.arange(6).unsqueeze(1)) & 1
            self.register_buffer("bits", torch.stack((bits, 1 - bits), -1).float())

        def forward(self, x: Tensor) -> Tensor:
            z = self.choice - self.choice.amax(0, keepdim=True)
            ordered = z.sort(0, descending=True).values
            total = ordered.cumsum(0) - 1
            rank = torch.arange(1, z.shape[0] + 1, dtype=x.dtype).view(-1, 1, 1)
            size = (rank * ordered > total).sum(0, keepdim=True)
            tau = total.gather(0, size - 1) / size.to(x.dtype)
            picked = torch.einsum("bi,ind->bnd", x, (z - tau).clamp(min=0))
            gate = (picked - self.limit) * self.scale
            both = torch.clamp(0.5 * torch.stack((-gate, gate), -1) + 0.5, 0, 1)
            match = torch.einsum("bnds,dcs->bndc", both, self.bits)
            return torch.einsum("bnc,nuc->bnu", match.prod(-2), self.leaves)

    def forward(m: Any, x: Tensor) -> Tensor:
        total = []
        for trees in m.trees:
            y = trees(x)
            total.append(y)
            x = torch.cat((x, y.flatten(1)), 1)
        return torch.cat(total, 1).mean(1)

    module = Calling(forward, trees=nn.ModuleList((Trees(54), Trees(54 + 768))))
    return Family(module, [{"x": torch.randn(n, 54)} for n in (64, 1)], {"x": {0: "rows"}})


def table_in_context() -> Family:
    """TabPFN: rows seen and asked, attention over rows and over features in turn; 200 and 56 rows of 20 features."""

    def forward(m: Any, x: Tensor, y: Tensor) -> Tensor:
        n = y.shape[0]
        mean, std = x[:n].mean(0), x[:n].std(0) + 1e-6
        z = ((x - mean) / std).clamp(-10, 10).unflatten(1, (10, 2))
        z = m.enter(z) + m.place
        known = m.label(torch.cat((y, y.new_full((x.shape[0] - n,), 10)), 0)).unsqueeze(1)
        z = torch.cat((z, known), 1)
        for layer in m.layers:
            z = z + m_attend(layer[0], z, z)
            t = z.transpose(0, 1)
            z = z + m_attend(layer[1], t, t[:, :n]).transpose(0, 1)
            z = z + layer[2](z)
        return m.out(z[n:, -1])

    def m_attend(parts: Any, x: Tensor, s: Tensor) -> Tensor:
        x, s = parts[4](x), parts[4](s)
        q, k, v = (f(t).unflatten(-1, (6, 32)).transpose(1, 2) for f, t in zip(parts[:3], (x, s, s), strict=True))
        return parts[3](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    attend = lambda: nn.ModuleList((*(nn.Linear(192, 192) for _ in "qkvo"), nn.LayerNorm(192)))  # noqa: E731
    after = lambda: nn.Sequential(nn.LayerNorm(192), nn.Linear(192, 768), nn.GELU(), nn.Linear(768, 192))  # noqa: E731
    layers = nn.ModuleList(nn.ModuleList((attend(), attend(), after())) for _ in "123")
    module = Calling(forward, enter=nn.Linear(2, 192), label=nn.Embedding(11, 192), layers=layers, out=nn.Linear(192, 10))
    module.place = nn.Parameter(torch.randn(10, 192))

    def run(n: int, asked: int) -> Run:
        return {"x": torch.randn(n + asked, 20), "y": torch.randint(0, 10, (n,))}

    return Family(module, [run(200, 56), run(64, 9)], {"x": {0: "rows"}, "y": {0: "known"}})


def summed(like: Tensor, index: Tensor, rows: Tensor) -> Tensor:
    """Rows added up by index (torch's exporter writes `index_add` as if none came twice)."""
    return torch.zeros_like(like).scatter_add(0, index.unsqueeze(-1).expand_as(rows), rows)


def equivariant_graph() -> Family:
    """EGNN: messages along 4,000 edges of 500 atoms move features and places; sums by index."""

    def forward(m: Any, kinds: Tensor, places: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        h, x, (a, b) = m.kinds(kinds), places, (edges[0], edges[1])
        for layer in m.layers:
            away = x[a] - x[b]
            far = away.pow(2).sum(-1, keepdim=True)
            message = layer[0](torch.cat((h[a], h[b], far), -1))
            message = message * torch.sigmoid(layer[1](message))
            x = x + summed(x, a, away / (far.sqrt() + 1) * torch.tanh(layer[2](message)) * 0.1)
            total = summed(h, a, message)
            h = h + layer[3](torch.cat((h, total), -1))
        return m.out(h).sum(0), x

    two = lambda a, b: nn.Sequential(nn.Linear(a, 100), nn.SiLU(), nn.Linear(100, b), nn.SiLU())  # noqa: E731
    layers = nn.ModuleList(nn.ModuleList((two(201, 100), nn.Linear(100, 1), two(100, 1), two(200, 100))) for _ in "1234")
    module = Calling(forward, kinds=nn.Embedding(20, 100), layers=layers, out=nn.Linear(100, 1))

    def run(n: int, e: int) -> Run:
        return {"kinds": torch.randint(0, 20, (n,)), "places": torch.randn(n, 3), "edges": torch.randint(0, n, (2, e))}

    return Family(
        module, [run(500, 4000), run(77, 333)], {"kinds": {0: "atoms"}, "places": {0: "atoms"}, "edges": {1: "edges"}}
    )


def graph_transformer() -> Family:
    """Attention along edges (each node's softmax by ScatterElements' maximum and sum) beside attention to all nodes."""

    def forward(m: Any, x: Tensor, e: Tensor, edges: Tensor) -> Tensor:
        x, e, (a, b) = m.enter(x), m.edge(e), (edges[0], edges[1])
        n = x.shape[0]
        where = b.unsqueeze(-1).expand(-1, 8)
        for layer in m.layers:
            q, k, v = (f(x).view(n, 8, 16) for f in layer[:3])
            f = layer[3](e).view(-1, 8, 16)
            scores = (q[b] * (k[a] + f)).sum(-1) / 4
            top = torch.full((n, 8), -1e30).scatter_reduce(0, where, scores, "amax")
            p = torch.exp(scores - top[b])
            total = torch.zeros(n, 8).scatter_add(0, where, p)
            p = p / (total[b] + 1e-9)
            mixed = summed(x, b, (p.unsqueeze(-1) * (v[a] + f)).flatten(1))
            whole = F.scaled_dot_product_attention(*(z.transpose(0, 1).unsqueeze(0) for z in (q, k, v)))
            x = layer[4](x + mixed + whole.squeeze(0).transpose(0, 1).flatten(1))
            x = layer[6](x + layer[5](x))
        return m.out(x)

    after = lambda: nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128))  # noqa: E731
    layers = nn.ModuleList(
        nn.ModuleList((*(nn.Linear(128, 128) for _ in "qkve"), nn.LayerNorm(128), after(), nn.LayerNorm(128))) for _ in "123"
    )
    module = Calling(forward, enter=nn.Linear(40, 128), edge=nn.Linear(7, 128), layers=layers, out=nn.Linear(128, 12))

    def run(n: int, e: int) -> Run:
        return {"nodes": torch.randn(n, 40), "features": torch.randn(e, 7), "edges": torch.randint(0, n, (2, e))}

    return Family(module, [run(400, 2500), run(60, 200)], {"nodes": {0: "n"}, "features": {0: "e"}, "edges": {1: "e"}})


def point_transformer() -> Family:
    """2,048 points: sixteen neighbours by TopK of distances, attention by differences, farthest quarter by strides."""

    def near(x: Tensor, q: Tensor, k: int) -> Tensor:
        far = (q * q).sum(-1, keepdim=True) + (x * x).sum(-1).unsqueeze(1) - 2 * q @ x.transpose(1, 2)
        return far.topk(k, -1, largest=False).indices

    def take(x: Tensor, i: Tensor) -> Tensor:
        b, n, k = i.shape
        return torch.gather(x, 1, i.view(b, n * k, 1).expand(-1, -1, x.shape[-1])).view(b, n, k, -1)

    def forward(m: Any, p: Tensor) -> Tensor:
        x = m.enter(p)
        for i, layer in enumerate(m.layers):
            j = near(p, p, 16)
            place = layer[3](p.unsqueeze(2) - take(p, j))
            q, k, v = layer[0](x), take(layer[1](x), j), take(layer[2](x), j)
            weight = layer[4](q.unsqueeze(2) - k + place).softmax(2)
            x = x + layer[5]((weight * (v + place)).sum(2))
            if i < len(m.layers) - 1:
                q = p[:, ::4]
                j = near(p, q, 16)
                x = m.down[i](torch.cat((take(x, j), take(p, j) - q.unsqueeze(2)), -1)).amax(2)
                p = q
        return m.out(x.mean(1))

    two = lambda a, b: nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b))  # noqa: E731
    widths = (32, 64, 128)
    layers = nn.ModuleList(
        nn.ModuleList((*(nn.Linear(w, w) for _ in "qkv"), two(3, w), two(w, w), nn.Linear(w, w))) for w in widths
    )
    down = nn.ModuleList(nn.Sequential(nn.Linear(a + 3, b), nn.ReLU()) for a, b in ((32, 64), (64, 128)))
    module = Calling(forward, enter=two(3, 32), layers=layers, down=down, out=nn.Linear(128, 40))
    return Family(module, [{"points": torch.randn(1, n, 3)} for n in (2048, 1024)], {"points": {1: "points"}})


def quantile_policy() -> Family:
    """Stacked frames of bytes (84x84) to actions: IMPALA's windows, quantiles of values by cosines, a Gaussian."""

    def forward(m: Any, frames: Tensor, last: Tensor, taus: Tensor) -> tuple[Tensor, ...]:
        x = frames.float() / 255.0
        for stage in m.body:
            x = F.max_pool2d(stage[0](x), 3, 2, 1)
            for i in (1, 3):
                x = x + stage[i + 1](torch.relu(stage[i](torch.relu(x))))
        x = torch.relu(m.dense(torch.relu(x).flatten(1)))
        x = torch.cat((x, last), 1)
        waves = torch.relu(m.cosines(torch.cos(taus.unsqueeze(-1) * m.steps)))
        values = m.values(x.unsqueeze(1) * waves).mean(1)
        mean, spread = m.policy(x).chunk(2, -1)
        spread = -5 + 3.5 * (torch.tanh(spread) + 1)
        return values, torch.tanh(mean), spread.exp(), values.argmax(-1)

    def stage(a: int, b: int) -> nn.ModuleList:
        return nn.ModuleList((nn.Conv2d(a, b, 3, padding=1), *(nn.Conv2d(b, b, 3, padding=1) for _ in "1234")))

    module = Calling(
        forward,
        body=nn.ModuleList((stage(4, 16), stage(16, 32), stage(32, 32))),
        dense=nn.Linear(32 * 121, 256),
        cosines=nn.Linear(64, 262),
        values=nn.Sequential(nn.Linear(262, 256), nn.ReLU(), nn.Linear(256, 15)),
        policy=nn.Linear(262, 12),
    )
    module.register_buffer("steps", torch.arange(1.0, 65.0) * math.pi)

    def run(b: int) -> Run:
        return {
            "frames": torch.randint(0, 256, (b, 4, 84, 84), dtype=torch.uint8),
            "last": torch.randn(b, 6),
            "taus": torch.rand(b, 32),
        }

    return Family(module, [run(8), run(1)], {name: {0: "batch"} for name in ("frames", "last", "taus")})


def bagged_visits() -> Family:
    """Sums of bags of words, products of fields, experts by TopK gates for three tasks, some of it in float64; 256 rows."""

    def forward(m: Any, words: Tensor, numbers: Tensor) -> tuple[Tensor, ...]:
        rows = m.table(words)
        lengths = (words != 0).to(torch.float64).sum(-1, keepdim=True)
        bag = rows.sum(2) / torch.sqrt(lengths.clamp(min=1.0)).float()
        z = torch.log1p(numbers.clamp(min=0).double()).float()
        fields = torch.cat((bag, m.dense(z).unsqueeze(1)), 1)
        products = torch.bmm(fields, fields.transpose(1, 2))
        triangle = products[:, m.i, m.j]
        x = torch.cat((fields.flatten(1), triangle), 1)
        experts = torch.stack([expert(x) for expert in m.experts], 1)
        outputs = []
        for gate, task in zip(m.gates, m.tasks, strict=True):
            scores, best = gate(x).topk(2, -1)
            weights = torch.zeros(x.shape[0], 6).scatter(1, best, scores.softmax(-1))
            outputs.append(torch.sigmoid(task(torch.einsum("be,bed->bd", weights, experts))))
        return tuple(outputs)

    size = 13 * 48 + 78
    expert = lambda: nn.Sequential(nn.Linear(size, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU())  # noqa: E731
    module = Calling(
        forward,
        table=nn.Embedding(20000, 48, padding_idx=0),
        dense=nn.Linear(13, 48),
        experts=nn.ModuleList(expert() for _ in range(6)),
        gates=nn.ModuleList(nn.Linear(size, 6) for _ in "123"),
        tasks=nn.ModuleList(nn.Linear(100, 1) for _ in "123"),
    )
    i, j = torch.tril_indices(13, 13, -1)
    module.register_buffer("i", i)
    module.register_buffer("j", j)
    runs = [{"words": torch.randint(0, 20000, (b, 12, 5)), "numbers": torch.randn(b, 13) * 100} for b in (256, 1)]
    return Family(module, runs, {"words": {0: "rows"}, "numbers": {0: "rows"}}, traced=0)


FAMILIES = (
    fourier_operator, branch_and_trunk, splines, oblivious_trees, table_in_context, equivariant_graph, graph_transformer,
    point_transformer, quantile_policy, bagged_visits,
)  # fmt: skip
