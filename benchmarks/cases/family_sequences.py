"""Sequences, sound and speech for `families.py` at the sizes that people deploy, in no other file."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from cases.family import Calling, Family, Run, by_export


def voice_steps() -> Family:
    """Silero's detector: an STFT by convolution, four windows, one LSTM step, in two halves of an If by the rate."""

    class Half(nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.size = size
            self.stft = nn.Conv1d(1, size + 2, size, size // 2, bias=False)
            sizes = ((size // 2 + 1, 128, 1), (128, 64, 2), (64, 64, 2), (64, 128, 1))
            self.convs = nn.ModuleList(nn.Conv1d(a, b, 3, s, 1) for a, b, s in sizes)
            self.cell, self.out = nn.LSTMCell(128, 128), nn.Conv1d(128, 1, 1)

        def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            y = self.stft(F.pad(x.unsqueeze(1), (0, self.size // 4), mode="reflect"))
            half = self.size // 2 + 1
            y = torch.sqrt(y[:, :half] ** 2 + y[:, half:] ** 2)
            for conv in self.convs:
                y = torch.relu(conv(y))
            h, c = self.cell(y.mean(-1), (state[0], state[1]))
            return torch.sigmoid(self.out(torch.relu(h).unsqueeze(-1))).mean(2), torch.stack((h, c))

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.narrow = Half(256), Half(128)

        def forward(self, x: Tensor, state: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
            if int(rate) == 16000:
                y, new = self.wide(x, state)
            else:
                y, new = self.narrow(x, state)
            return y, new

    runs = [
        {"input": torch.randn(b, n), "state": torch.randn(2, b, 128) * 0.1, "sr": torch.tensor(r)}
        for b, n, r in ((1, 576, 16000), (1, 288, 8000), (2, 576, 16000))
    ]
    module = torch.jit.script(Both().eval())
    return Family(module, runs, {"input": {0: "batch", 1: "samples"}, "state": {1: "batch"}})


def speakers() -> Family:
    """pyannote: SincNet's 251 taps, instance norms, four LSTM both ways, classes of sets of speakers; ten seconds."""

    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.norms[0](x)
        for i, (window, norm) in enumerate(zip(m.windows, m.norms[1:], strict=True)):
            y = window(y)
            y = F.leaky_relu(norm(F.max_pool1d(torch.abs(y) if i == 0 else y, 3, 3)))
        y, _ = m.lstm(y.transpose(1, 2))
        for layer in m.layers:
            y = F.leaky_relu(layer(y))
        return F.log_softmax(m.out(y), -1)

    windows = nn.ModuleList((nn.Conv1d(1, 80, 251, 10, bias=False), nn.Conv1d(80, 60, 5), nn.Conv1d(60, 60, 5)))
    norms = nn.ModuleList(nn.InstanceNorm1d(n, affine=True) for n in (1, 80, 60, 60))
    lstm = nn.LSTM(60, 128, 4, bidirectional=True, batch_first=True)
    module = Calling(
        forward,
        windows=windows,
        norms=norms,
        lstm=lstm,
        layers=nn.ModuleList((nn.Linear(256, 128), nn.Linear(128, 128))),
        out=nn.Linear(128, 7),
    )
    runs = [{"input_values": torch.randn(b, 1, n)} for b, n in ((1, 160000), (4, 32000))]
    return Family(module, runs, {"input_values": {0: "batch_size", 2: "num_samples"}})


class Styled(nn.Module):
    """Windows of one axis, dilated, with norms that a style scales, and snakes (x + sin² x)."""

    def __init__(self, n: int, kernel: int, style: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(n, n, kernel, dilation=d, padding=d * (kernel - 1) // 2) for d in (1, 3, 5))
        self.norms = nn.ModuleList(nn.InstanceNorm1d(n) for _ in "123")
        self.styles = nn.ModuleList(nn.Linear(style, 2 * n) for _ in "123")
        self.alpha = nn.Parameter(torch.rand(3, 1, n, 1) + 0.5)

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        for i in range(3):
            scale, shift = self.styles[i](style).unsqueeze(-1).chunk(2, 1)
            y = (1 + scale) * self.norms[i](x) + shift
            y = y + (1 / self.alpha[i]) * torch.sin(self.alpha[i] * y) ** 2
            x = x + self.convs[i](y)
        return x


def spoken_style() -> Family:
    """Kokoro: durations, frames repeated by an alignment, an LSTM of frames, a source of sines, iSTFTNet with styles."""

    def forward(m: Any, ids: Tensor, style: Tensor, alignment: Tensor) -> Tensor:
        x = m.words(ids).transpose(1, 2)
        for window, norm in zip(m.windows, m.text_norms, strict=True):
            x = F.leaky_relu(norm(window(x).transpose(1, 2)).transpose(1, 2), 0.2)
        t, _ = m.text_lstm(x.transpose(1, 2))
        y = torch.cat((t, style.unsqueeze(1).expand(-1, t.shape[1], -1)), -1)
        frames = t.transpose(1, 2) @ alignment
        f, _ = m.pitch_lstm((y.transpose(1, 2) @ alignment).transpose(1, 2))
        pitch = F.interpolate(m.pitch(f).transpose(1, 2).abs() * 200, scale_factor=60.0, mode="nearest")
        phase = torch.cumsum(pitch / 24000, -1) * (2 * math.pi)
        source = torch.tanh(m.source(torch.sin(phase * m.harmonics).transpose(1, 2))).transpose(1, 2)
        x = m.enter(frames)
        for i, up in enumerate(m.up):
            x = up(F.leaky_relu(x, 0.1))
            x = x + m.noise[i](source)
            x = (m.blocks[2 * i](x, style) + m.blocks[2 * i + 1](x, style)) / 2
        spec = m.leave(F.leaky_relu(x))
        size, angle = torch.exp(spec[:, :11].clamp(max=4)), torch.sin(spec[:, 11:])
        both = torch.cat((size * torch.cos(angle), size * torch.sin(angle)), 1)
        return m.inverse(both).squeeze(1)

    up = nn.ModuleList((nn.ConvTranspose1d(256, 128, 20, 10, 5), nn.ConvTranspose1d(128, 64, 12, 6, 3)))
    noise = nn.ModuleList((nn.Conv1d(1, 128, 12, 6, 3), nn.Conv1d(1, 64, 1)))
    blocks = nn.ModuleList(Styled(n, k, 128) for n in (128, 64) for k in (3, 11))
    module = Calling(
        forward,
        words=nn.Embedding(178, 256),
        windows=nn.ModuleList(nn.Conv1d(256, 256, 5, padding=2) for _ in "123"),
        text_norms=nn.ModuleList(nn.LayerNorm(256) for _ in "123"),
        text_lstm=nn.LSTM(256, 128, bidirectional=True, batch_first=True),
        pitch_lstm=nn.LSTM(384, 128, bidirectional=True, batch_first=True),
        pitch=nn.Linear(256, 1),
        source=nn.Linear(9, 1),
        enter=nn.Conv1d(256, 256, 7, padding=3),
        up=up,
        noise=noise,
        blocks=blocks,
        leave=nn.Conv1d(64, 22, 7, padding=3),
        inverse=nn.ConvTranspose1d(22, 1, 20, 5, bias=False),
    )
    module.register_buffer("harmonics", torch.arange(1.0, 10.0).view(1, 9, 1))

    def run(n: int, frames: int) -> Run:
        alignment = F.one_hot(torch.arange(frames) * n // frames, n).T.float().unsqueeze(0)
        return {"ids": torch.randint(1, 177, (1, n)), "style": torch.randn(1, 128), "alignment": alignment}

    return Family(module, [run(77, 130), run(20, 44)], {"ids": {1: "letters"}, "alignment": {1: "letters", 2: "frames"}})


def greedy_transducer() -> Family:
    """TDT: a predictor's LSTM step and the joint network, with durations, for a beam of four over 8,193 words."""

    def forward(m: Any, frame: Tensor, token: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        y, (h1, c1) = m.lstm(m.words(token), (h, c))
        joint = m.joint(torch.relu(m.frame(frame) + m.state(y)))
        words, spans = joint.split((8193, 5), -1)
        return words.log_softmax(-1).topk(4, -1).values, words.argmax(-1), spans.argmax(-1), h1, c1

    module = Calling(
        forward,
        words=nn.Embedding(8193, 640),
        lstm=nn.LSTM(640, 640, 2, batch_first=True),
        frame=nn.Linear(1024, 640),
        state=nn.Linear(640, 640),
        joint=nn.Linear(640, 8198),
    )

    def run(b: int) -> Run:
        return {
            "frame": torch.randn(b, 1, 1024),
            "token": torch.randint(0, 8192, (b, 1)),
            "h": torch.randn(2, b, 640),
            "c": torch.randn(2, b, 640),
        }

    return Family(module, [run(4), run(1)], {"frame": {0: "b"}, "token": {0: "b"}, "h": {1: "b"}, "c": {1: "b"}})


def long_convolutions() -> Family:
    """Hyena: a network writes filters as long as the text of 333 tokens; Fourier transforms of twice the length."""

    def forward(m: Any, ids: Tensor) -> Tensor:
        x = m.words(ids)
        n = x.shape[1]
        for block in m.blocks:
            y = block[0](block[1](x)).transpose(1, 2)
            y = block[2](y)[..., :n]
            a, b, v = y.chunk(3, 1)
            t = torch.linspace(0, 1, n).unsqueeze(-1)
            waves = torch.cat((t, torch.cos(t * m.rates), torch.sin(t * m.rates)), -1)
            k = (block[3](waves) * torch.exp(-t * m.decay)).T
            u = v * a
            y = torch.fft.irfft(torch.fft.rfft(u, n=2 * n) * torch.fft.rfft(k, n=2 * n), n=2 * n)[..., :n]
            x = x + block[4](((y + u) * b).transpose(1, 2))
            x = x + block[5](x)
        return m.out(m.norm(x))

    def block() -> nn.ModuleList:
        network = nn.Sequential(nn.Linear(17, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 256))
        after = nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))
        return nn.ModuleList(
            (
                nn.Linear(256, 768),
                nn.LayerNorm(256),
                nn.Conv1d(768, 768, 3, padding=2, groups=768),
                network,
                nn.Linear(256, 256),
                after,
            )
        )

    module = Calling(
        forward,
        words=nn.Embedding(4000, 256),
        blocks=nn.ModuleList(block() for _ in "123"),
        norm=nn.LayerNorm(256),
        out=nn.Linear(256, 4000),
    )
    module.register_buffer("rates", torch.arange(1.0, 9.0) * math.pi)
    module.register_buffer("decay", torch.linspace(1, 8, 256))
    return by_export(Family(module, [{"ids": torch.randint(0, 4000, (1, 333))} for _ in "12"], {}), 20)


def minimal_gates() -> Family:
    """MinGRU: gates without the state before, all steps at once by sums and maxima of logarithms, 512 steps."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = m.enter(x)
        for block in m.blocks:
            y = block[2](x)
            hidden, gate = block[0](y).chunk(2, -1)
            keep, take = -F.softplus(gate), -F.softplus(-gate)
            values = torch.where(hidden >= 0, (F.relu(hidden) + 0.5).log(), -F.softplus(-hidden)) + take
            total = keep.cumsum(1)
            shifted = values - total
            top = shifted.amax(1, keepdim=True)
            state = ((shifted - top).exp().cumsum(1).log() + top + total).exp()
            x = x + block[1](state)
            x = x + block[3](x)
        return m.out(x)

    def block() -> nn.ModuleList:
        after = nn.Sequential(nn.LayerNorm(192), nn.Linear(192, 768), nn.GELU(), nn.Linear(768, 192))
        return nn.ModuleList((nn.Linear(192, 600), nn.Linear(300, 192), nn.LayerNorm(192), after))

    module = Calling(forward, enter=nn.Linear(23, 192), blocks=nn.ModuleList(block() for _ in "123"), out=nn.Linear(192, 11))
    runs = [{"series": torch.randn(b, n, 23)} for b, n in ((1, 512), (8, 200))]
    return Family(module, runs, {"series": {0: "batch", 1: "steps"}})


def rwkv7() -> Family:
    """One token of RWKV-7: states of 64x64 a head that decay, forget and learn, token shifts, low-rank gates; 512 wide."""
    heads, size, width = 8, 64, 512

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.mix = nn.Parameter(torch.rand(7, width))
            self.r, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in "rkvo")
            low = lambda n, act: nn.Sequential(nn.Linear(width, n, bias=False), act, nn.Linear(n, width))  # noqa: E731
            self.w, self.a, self.g = low(64, nn.Tanh()), low(64, nn.Identity()), low(128, nn.Sigmoid())
            self.scale, self.ka, self.rk = (nn.Parameter(torch.rand(width)) for _ in "123")
            self.norm = nn.GroupNorm(heads, width, eps=64e-5)
            self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

        def forward(self, x: Tensor, last: Tensor, state: Tensor, behind: Tensor) -> tuple[Tensor, ...]:
            y = self.n1(x)
            r, w, k, v, a, g = (y + (last - y) * self.mix[i] for i in range(6))
            r, k, v, g = self.r(r), self.k(k), self.v(v), self.g(g)
            decay = torch.exp(-0.606531 * torch.sigmoid(self.w(w)))
            a = torch.sigmoid(self.a(a))
            kk = F.normalize((k * self.scale).view(-1, heads, size), dim=-1)
            k = (k * (1 + (a - 1) * self.ka)).view(-1, heads, size)
            rows = lambda z: z.view(-1, heads, 1, size)  # noqa: E731
            v, r = v.view(-1, heads, size, 1), r.view(-1, heads, size, 1)
            ab = (-kk).unsqueeze(-1) @ (kk * a.view(-1, heads, size)).unsqueeze(-2)
            state = state * rows(decay) + state @ ab + v @ rows(k)
            out = self.norm((state @ r).view(-1, width)).view(-1, heads, size)
            out = out + (r.squeeze(-1) * k * self.rk.view(heads, size)).sum(-1, keepdim=True) * v.squeeze(-1)
            x = x + self.o(out.reshape(-1, width) * g)
            z = self.n2(x)
            x = x + self.down(torch.relu(self.up(z + (behind - z) * self.mix[6])) ** 2)
            return x, y, state, z

    def forward(m: Any, ids: Tensor, lasts: Tensor, states: Tensor, behinds: Tensor) -> tuple[Tensor, ...]:
        x, new = m.first(m.words(ids)), []
        for i, block in enumerate(m.blocks):
            x, *kept = block(x, lasts[i], states[i], behinds[i])
            new.append(kept)
        return (m.out(m.norm(x)), *(torch.stack(part) for part in zip(*new, strict=True)))

    module = Calling(
        forward,
        words=nn.Embedding(8000, width),
        first=nn.LayerNorm(width),
        blocks=nn.ModuleList(Block() for _ in "1234"),
        norm=nn.LayerNorm(width),
        out=nn.Linear(width, 8000, bias=False),
    )

    def run(b: int) -> Run:
        return {
            "ids": torch.randint(0, 8000, (b,)),
            "lasts": torch.randn(4, b, width),
            "states": torch.randn(4, b, heads, size, size),
            "behinds": torch.randn(4, b, width),
        }

    return Family(
        module, [run(1), run(3)], {"ids": {0: "b"}, **{n: {1: "b"} for n in ("lasts", "states", "behinds")}}, traced=1
    )


def ctc_beam_front() -> Family:
    """Filter banks by STFT, logarithms, norms of bands, GRU both ways with layer norms, CTC's greedy path."""

    def forward(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        spectrum = torch.stft(x, 400, 160, 400, m.window, center=False, return_complex=False)
        power = spectrum.pow(2).sum(-1)
        y = torch.log((m.bank @ power).clamp(min=1e-6))
        y = (y - y.mean(-1, keepdim=True)) / (y.std(-1, keepdim=True) + 1e-5)
        y = torch.relu(m.conv(y)).transpose(1, 2)
        for gru, norm in zip(m.grus, m.norms, strict=True):
            y = norm(gru(y)[0])
        probabilities = m.out(y).log_softmax(-1)
        best = probabilities.argmax(-1)
        fresh = torch.cat((torch.ones_like(best[:, :1], dtype=torch.bool), best[:, 1:] != best[:, :-1]), 1)
        return probabilities, torch.where(fresh & (best != 0), best, torch.full_like(best, -1))

    grus = nn.ModuleList(nn.GRU(i, 200, bidirectional=True, batch_first=True) for i in (200, 400, 400))
    module = Calling(
        forward,
        conv=nn.Conv1d(80, 200, 5, 2, 2),
        grus=grus,
        norms=nn.ModuleList(nn.LayerNorm(400) for _ in "123"),
        out=nn.Linear(400, 29),
    )
    module.register_buffer("window", torch.hann_window(400))
    module.register_buffer("bank", torch.rand(80, 201) / 200)
    runs = [{"sound": torch.randn(b, n)} for b, n in ((1, 32000), (2, 16000))]
    return Family(module, runs, {"sound": {0: "batch", 1: "samples"}})


FAMILIES = (
    voice_steps, speakers, spoken_style, greedy_transducer, long_convolutions, minimal_gates, rwkv7, ctc_beam_front,
)  # fmt: skip
