"""Speech and sound for `families.py`: synthesis, recognition, codecs, detectors with states."""

from __future__ import annotations

import math
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from cases.family import Calling, Family, Run, images


class _Resolution(nn.Module):
    """A block of a vocoder: dilated convolutions around which the signal goes."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.a = nn.ModuleList(nn.Conv1d(width, width, kernel, padding=(kernel - 1) * d // 2, dilation=d) for d in (1, 3, 5))
        self.b = nn.ModuleList(nn.Conv1d(width, width, kernel, padding=kernel // 2) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for a, b in zip(self.a, self.b, strict=True):
            x = x + b(F.leaky_relu(a(F.leaky_relu(x, 0.1)), 0.1))
        return x


class _Vocoder(nn.Module):
    def __init__(self, inputs: int, width: int = 96) -> None:
        super().__init__()
        self.first = nn.Conv1d(inputs, width, 7, padding=3)
        steps = ((8, 16), (4, 8), (2, 4))
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(width >> i, width >> (i + 1), k, s, (k - s) // 2) for i, (s, k) in enumerate(steps)
        )
        self.blocks = nn.ModuleList(nn.ModuleList(_Resolution(width >> (i + 1), k) for k in (3, 7)) for i in range(len(steps)))
        self.last = nn.Conv1d(width >> len(steps), 1, 7, padding=3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for up, (a, b) in zip(self.ups, self.blocks, strict=True):
            x = up(F.leaky_relu(x, 0.1))
            x = (a(x) + b(x)) / 2
        return torch.tanh(self.last(F.leaky_relu(x)))


def hifi_gan() -> Family:
    return Family(
        _Vocoder(80), *images("mel", (1, 80, 60), (1, 80, 93), (2, 80, 41), (1, 80, 60), axes={0: "batch", 2: "frames"})
    )


def vits() -> Family:
    """Text to a waveform in one model: durations are drawn, so the noise is turned off."""
    config = hf.VitsConfig(vocab_size=60, hidden_size=96, num_hidden_layers=3, num_attention_heads=2, ffn_dim=384,
                           flow_size=96, spectrogram_bins=129, upsample_initial_channel=128, upsample_rates=[8, 4, 2],
                           upsample_kernel_sizes=[16, 8, 4], resblock_kernel_sizes=[3, 7],
                           resblock_dilation_sizes=[[1, 3], [1, 3]], prior_encoder_num_flows=2,
                           use_stochastic_duration_prediction=False,
                           noise_scale=0.0, noise_scale_duration=0.0)  # fmt: skip
    model = hf.VitsModel(config)

    def forward(m: Any, ids: Tensor, mask: Tensor) -> Any:
        out = m.model(input_ids=ids, attention_mask=mask)
        return out.waveform, out.sequence_lengths

    def run(length: int) -> Run:
        return {"input_ids": torch.randint(1, 60, (1, length)), "attention_mask": torch.ones(1, length, dtype=torch.int64)}

    axes = {"input_ids": {0: "batch", 1: "letters"}, "attention_mask": {0: "batch", 1: "letters"}}
    return Family(Calling(forward, model=model), [run(30), run(41), run(17), run(30)], axes)


def piper() -> Family:
    """Text, its length and three scales to a waveform: relative positions, durations, a path, a flow, a vocoder."""

    class Encoder(nn.Module):
        def __init__(self, width: int, window: int = 4) -> None:
            super().__init__()
            self.window = window
            self.qkv, self.out = nn.Conv1d(width, 3 * width, 1), nn.Conv1d(width, width, 1)
            self.keys, self.values = (nn.Parameter(torch.randn(1, 2 * window + 1, width // 2) * 0.1) for _ in range(2))
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
            self.feed = nn.Sequential(
                nn.Conv1d(width, 3 * width, 3, padding=1), nn.ReLU(), nn.Conv1d(3 * width, width, 3, padding=1)
            )

        def table(self, table: Tensor, length: int) -> Tensor:
            pad = max(length - (self.window + 1), 0)
            start = max((self.window + 1) - length, 0)
            return F.pad(table, (0, 0, pad, pad))[:, start : start + 2 * length - 1]

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            n, width, length = x.shape
            q, k, v = self.qkv(x).view(n, 3, 2, width // 2, length).transpose(3, 4).unbind(1)
            q = q / math.sqrt(width // 2)
            relative = q @ self.table(self.keys, length).unsqueeze(0).transpose(2, 3)
            scores = F.pad(F.pad(relative, (0, 1)).flatten(2), (0, length - 1)).view(n, 2, length + 1, 2 * length - 1)
            scores = q @ k.transpose(2, 3) + scores[:, :, :length, length - 1 :]
            weights = scores.masked_fill(mask.unsqueeze(2) * mask.unsqueeze(3) == 0, -1e4).softmax(3)
            shifted = F.pad(F.pad(weights, (0, length - 1)).flatten(2), (length, 0)).view(n, 2, length, 2 * length)[..., 1:]
            y = weights @ v + shifted @ self.table(self.values, length).unsqueeze(0)
            x = self.norms[0]((x + self.out(y.transpose(2, 3).reshape(n, width, length))).transpose(1, 2)).transpose(1, 2)
            y = self.feed(x * mask[:, 0:1]) * mask[:, 0:1]
            return self.norms[1]((x + y).transpose(1, 2)).transpose(1, 2)

    class Coupling(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.before, self.after = nn.Conv1d(width // 2, width, 1), nn.Conv1d(width, width // 2, 1)
            self.inner = nn.ModuleList(nn.Conv1d(width, 2 * width, 5, padding=2) for _ in range(2))
            self.skips = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(2))

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            a, b = x.chunk(2, 1)
            h = self.before(a) * mask
            for inner, skip in zip(self.inner, self.skips, strict=True):
                t, s = inner(h).chunk(2, 1)
                h = (h + skip(torch.tanh(t) * torch.sigmoid(s))) * mask
            return torch.cat([a, (b - self.after(h)) * mask], 1).flip(1)

    def forward(m: Any, ids: Tensor, lengths: Tensor, scales: Tensor) -> Tensor:
        mask = (torch.arange(ids.shape[1])[None] < lengths[:, None]).float()[:, None]
        x = m.embed(ids).transpose(1, 2) * math.sqrt(96)
        for layer in m.encoder:
            x = layer(x, mask)
        mean, spread = (m.project(x) * mask).chunk(2, 1)
        frames = torch.ceil(torch.exp(m.durations(x) * 0.2) * mask * scales[1] * 2)
        total = frames.sum((1, 2)).clamp_min(1).long()
        steps = torch.arange(total.max())
        ends = frames.cumsum(2)[:, 0]
        path = (steps[None, :, None] < ends[:, None, :]).float()
        path = path - F.pad(path, (1, 0))[:, :, :-1]
        z = (path @ mean.transpose(1, 2)).transpose(1, 2)
        spread = (path @ spread.transpose(1, 2)).transpose(1, 2)
        z = z + torch.randn_like(z) * torch.exp(spread) * scales[0]
        heard = (steps[None] < total[:, None]).float()[:, None]
        for layer in m.flow:
            z = layer(z, heard)
        return m.vocoder(z * heard)

    parts = {"embed": nn.Embedding(100, 96), "encoder": nn.ModuleList(Encoder(96) for _ in range(3))}
    parts |= {"project": nn.Conv1d(96, 192, 1), "durations": nn.Conv1d(96, 1, 3, padding=1)}
    module = Calling(forward, **parts, flow=nn.ModuleList(Coupling(96) for _ in range(4)), vocoder=_Vocoder(96))

    def run(batch: int, length: int) -> Run:
        lengths = torch.full((batch,), length)
        lengths[1:] -= 3
        ids = torch.randint(1, 100, (batch, length))
        return {"input": ids, "input_lengths": lengths, "scales": torch.tensor([0.0, 1.0, 0.8])}

    axes = {"input": {0: "batch", 1: "letters"}, "input_lengths": {0: "batch"}}
    return Family(module, [run(1, 40), run(2, 55), run(1, 23), run(1, 40)], axes)


def encodec() -> Family:
    config = hf.EncodecConfig(num_filters=16, hidden_size=64, codebook_size=128, codebook_dim=64, upsampling_ratios=[4, 4, 2],
                              num_lstm_layers=1, target_bandwidths=[6.0])  # fmt: skip

    def forward(m: Any, x: Tensor) -> Any:
        out = m.model(x, bandwidth=6.0)
        return out.audio_codes, out.audio_values

    return Family(Calling(forward, model=hf.EncodecModel(config)), *images("x", (1, 1, 3200), (2, 1, 3200), axes={0: "batch"}))


class _ConformerBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        feed = [
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
            for _ in "ab"
        ]
        self.before, self.after = feed
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.q, self.k, self.v, self.p, self.o = (nn.Linear(width, width) for _ in range(5))
        self.u, self.w = (nn.Parameter(torch.randn(heads, width // heads) * 0.1) for _ in range(2))
        self.enter, self.leave = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.depthwise = nn.Sequential(nn.Conv1d(width, width, 15, padding=7, groups=width), nn.BatchNorm1d(width), nn.SiLU())

    def attention(self, x: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        n, length, width = x.shape
        split = lambda y: y.view(y.shape[0], -1, self.heads, width // self.heads)  # noqa: E731
        q, k, v, p = split(self.q(x)), split(self.k(x)), split(self.v(x)), split(self.p(positions))
        content = (q + self.u).transpose(1, 2) @ k.permute(0, 2, 3, 1)
        places = (q + self.w).transpose(1, 2) @ p.permute(0, 2, 3, 1)
        places = F.pad(places, (1, 0)).view(n, self.heads, 2 * length, length)[:, :, 1:].reshape(n, self.heads, length, -1)
        scores = (content + places[..., :length]) / math.sqrt(width // self.heads)
        scores = scores.masked_fill(~mask[:, None, None], -1e9).softmax(-1).masked_fill(~mask[:, None, None], 0.0)
        return self.o((scores @ v.transpose(1, 2)).transpose(1, 2).reshape(n, length, width))

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        x = x + 0.5 * self.before(x)
        x = x + self.attention(self.norms[0](x), positions, mask)
        y = F.glu(self.enter(self.norms[1](x).transpose(1, 2)), 1).masked_fill(~mask[:, None], 0.0)
        x = x + self.leave(self.depthwise(y)).transpose(1, 2)
        return self.norms[2](x + 0.5 * self.after(x))


def conformer_ctc() -> Family:
    """Features and their lengths to log-probabilities: subsampling, relative positions, masks from lengths."""
    width = 144

    def forward(m: Any, features: Tensor, lengths: Tensor) -> Any:
        x = m.subsample(features[:, None].transpose(2, 3))
        x = m.enter(x.transpose(1, 2).flatten(2))
        length = x.shape[1]
        lengths = ((lengths - 1) // 2 + 1 - 1) // 2 + 1
        mask = torch.arange(length)[None] < lengths[:, None]
        places = torch.arange(length - 1, -length, -1, dtype=torch.float32)[:, None]
        rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * (-math.log(10000.0) / width))
        positions = torch.stack([torch.sin(places * rates), torch.cos(places * rates)], 2).flatten(1)[None]
        for block in m.blocks:
            x = block(x, positions, mask)
        return m.letters(x).log_softmax(-1), lengths

    subsample = nn.Sequential(nn.Conv2d(1, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU())
    parts = {"enter": nn.Linear(32 * 20, width), "blocks": nn.ModuleList(_ConformerBlock(width, 4) for _ in range(3))}
    module = Calling(forward, subsample=subsample, **parts, letters=nn.Linear(width, 129))

    def run(batch: int, frames: int) -> Run:
        lengths = torch.full((batch,), frames)
        lengths[1:] -= 9
        return {"audio_signal": torch.randn(batch, 80, frames), "length": lengths}

    axes = {"audio_signal": {0: "batch", 2: "frames"}, "length": {0: "batch"}}
    return Family(module, [run(1, 240), run(3, 160), run(1, 333), run(1, 240)], axes)


def transducer_decoder() -> Family:
    """Prediction and joint networks in one model, a state in and out."""

    def forward(m: Any, frames: Tensor, targets: Tensor, h: Tensor, c: Tensor) -> Any:
        y, (h, c) = m.lstm(m.embed(targets).transpose(0, 1), (h, c))
        joint = m.a(frames.transpose(1, 2)).unsqueeze(2) + m.b(y.transpose(0, 1)).unsqueeze(1)
        return m.out(F.relu(joint)), h, c

    parts = {"embed": nn.Embedding(129, 160), "lstm": nn.LSTM(160, 160), "a": nn.Linear(144, 160), "b": nn.Linear(160, 160)}

    def run(batch: int, frames: int, targets: int) -> Run:
        state = {name: torch.randn(1, batch, 160) for name in ("h", "c")}
        return {"frames": torch.randn(batch, 144, frames), "targets": torch.randint(0, 129, (batch, targets))} | state

    axes = {"frames": {0: "batch", 2: "frames"}, "targets": {0: "batch", 1: "targets"}, "h": {1: "batch"}, "c": {1: "batch"}}
    runs = [run(1, 1, 1), run(2, 9, 4), run(1, 1, 1)]
    return Family(Calling(forward, **parts, out=nn.Linear(160, 129)), runs, axes, traced=1)


def zipformer_chunk() -> Family:
    """A streaming encoder: a chunk of frames, cached keys, values and convolution's left context in and out."""

    def forward(m: Any, x: Tensor, keys: Tensor, values: Tensor, left: Tensor, seen: Tensor) -> Any:
        y = m.enter(x)
        n, length, width = y.shape
        split = lambda z: z.view(n, -1, 4, width // 4).transpose(1, 2)  # noqa: E731
        q, k, v = m.qkv(m.norm(y)).chunk(3, -1)
        k, v = torch.cat([keys, k], 1), torch.cat([values, v], 1)
        valid = torch.arange(k.shape[1])[None] >= (keys.shape[1] - seen)[:, None]
        scores = (split(q) @ split(k).transpose(2, 3) * (width // 4) ** -0.5).masked_fill(~valid[:, None, None], -1000.0)
        y = y + m.out((scores.softmax(-1) @ split(v)).transpose(1, 2).flatten(2))
        z = torch.cat([left, F.glu(m.expand(y), -1).transpose(1, 2)], 2)
        y = y + m.contract(F.silu(m.depthwise(z)).transpose(1, 2))
        kept = keys.shape[1]
        return y, k[:, -kept:], v[:, -kept:], z[:, :, -left.shape[2] :], torch.clamp(seen + length, max=kept)

    parts = {"enter": nn.Linear(80, 128), "norm": nn.LayerNorm(128), "qkv": nn.Linear(128, 384), "out": nn.Linear(128, 128)}
    parts |= {"expand": nn.Linear(128, 256), "contract": nn.Linear(128, 128), "depthwise": nn.Conv1d(128, 128, 15, groups=128)}

    def run(batch: int, seen: int) -> Run:
        caches = {name: torch.randn(batch, 64, 128) for name in ("keys", "values")}
        left = {"left": torch.randn(batch, 128, 14), "seen": torch.full((batch,), seen)}
        return {"x": torch.randn(batch, 16, 80)} | caches | left

    axes = {name: {0: "batch"} for name in ("x", "keys", "values", "left", "seen")}
    return Family(Calling(forward, **parts), [run(1, 64), run(4, 0), run(2, 32), run(1, 64)], axes, traced=1)


def wavenet() -> Family:
    class Layer(nn.Module):
        def __init__(self, width: int, dilation: int) -> None:
            super().__init__()
            self.gate = nn.Conv1d(width, 2 * width, 2, dilation=dilation)
            self.skip, self.stay, self.dilation = nn.Conv1d(width, 64, 1), nn.Conv1d(width, width, 1), dilation

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            a, b = self.gate(F.pad(x, (self.dilation, 0))).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            return x + self.stay(y), self.skip(y)

    def forward(m: Any, x: Tensor) -> Tensor:
        y, total = m.first(x), 0
        for layer in m.layers:
            y, skip = layer(y)
            total = total + skip
        return m.last(F.relu(total))

    layers = nn.ModuleList(Layer(32, 2**i) for i in (*range(7), *range(7)))
    last = nn.Sequential(nn.Conv1d(64, 64, 1), nn.ReLU(), nn.Conv1d(64, 256, 1))
    shapes = ((1, 1, 1600), (2, 1, 900), (1, 1, 2001), (1, 1, 1600))
    runs, axes = images("x", *shapes, axes={0: "batch", 2: "samples"})
    return Family(Calling(forward, first=nn.Conv1d(1, 32, 1), layers=layers, last=last), runs, axes)


def voice_activity() -> Family:
    """A spectrum by convolution, a few convolutions, an LSTM whose state comes and goes; a branch for each sampling rate."""

    class Rate(nn.Module):
        def __init__(self, window: int) -> None:
            super().__init__()
            self.basis = nn.Conv1d(1, window + 2, window, window // 4, bias=False)
            self.body = nn.Sequential(
                nn.Conv1d(window // 2 + 1, 64, 3, padding=1), nn.ReLU(), nn.Conv1d(64, 64, 3, 2, 1), nn.ReLU()
            )
            self.lstm, self.out = nn.LSTM(64, 64), nn.Conv1d(64, 1, 1)

        def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            window = self.basis.kernel_size[0]
            spectrum = self.basis(F.pad(x.unsqueeze(1), (window // 4, window // 4), mode="reflect"))
            power = torch.sqrt(spectrum[:, : window // 2 + 1] ** 2 + spectrum[:, window // 2 + 1 :] ** 2)
            y, (h, c) = self.lstm(self.body(power).permute(2, 0, 1), (state[0:1], state[1:2]))
            return torch.sigmoid(self.out(F.relu(y.permute(1, 2, 0)))).mean(2), torch.cat([h, c])

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            example = (torch.randn(1, 512), torch.zeros(2, 1, 64))
            self.high, self.low = torch.jit.trace(Rate(256), example), torch.jit.trace(Rate(128), example)

        def forward(self, x: Tensor, state: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
            if bool(rate == 16000):
                y, state = self.high(x, state)
            else:
                y, state = self.low(x, state)
            return y, state

    def run(batch: int, samples: int, rate: int) -> Run:
        return {"input": torch.randn(batch, samples), "state": torch.randn(2, batch, 64), "sr": torch.tensor(rate)}

    axes = {"input": {0: "batch", 1: "samples"}, "state": {1: "batch"}}
    runs = [run(1, 512, 16000), run(1, 256, 8000), run(3, 512, 16000), run(1, 512, 16000)]
    return Family(torch.jit.script(Both()), runs, axes)


FAMILIES = (
    hifi_gan, vits, piper, encodec, conformer_ctc, transducer_decoder, zipformer_chunk, wavenet, voice_activity,
)  # fmt: skip
