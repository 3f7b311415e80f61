"""Small models of many families, exported by PyTorch, at several input sizes through one session."""

from __future__ import annotations

import inspect
import io
import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import intarsia as ort

torch = pytest.importorskip("torch", reason="models are exported by PyTorch")
nn, F = torch.nn, torch.nn.functional

Axes = dict[str, dict[int, str]]
Family = tuple[Any, list[tuple[Any, ...]], Axes]  # module, inputs of each run, dynamic axes of each input
IMAGE: Axes = {"x": {0: "batch", 2: "height", 3: "width"}}


def _images(*shapes: tuple[int, ...]) -> list[tuple[Any, ...]]:
    return [(torch.randn(shape),) for shape in shapes]


def _block(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> Any:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.SiLU())


class _Calling(nn.Module):
    """A module whose forward is a function of its parts and inputs."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def detection() -> Family:
    """Split, concatenation, pooling pyramid, upsampling, box decoding."""

    def forward(m: Any, x: Any) -> Any:
        fine = m.down1(x)
        a, b = m.split(fine).chunk(2, 1)
        fine = torch.cat([a, b, m.inner(b) + b], 1)
        y = m.down2(fine)
        pooled = F.max_pool2d(y, 5, 1, 2)
        y = torch.cat([y, pooled, F.max_pool2d(pooled, 5, 1, 2)], 1)
        y = m.head(torch.cat([F.interpolate(y, scale_factor=2.0), fine], 1))
        batch, _, height, width = y.shape
        grid = torch.stack(torch.meshgrid(torch.arange(width), torch.arange(height), indexing="xy"), -1).reshape(1, -1, 2)
        boxes, scores = y.reshape(batch, 9, height * width).transpose(1, 2).split((4, 5), 2)
        corners = torch.cat([grid - boxes[..., :2], grid + boxes[..., 2:]], 2)
        return torch.cat([corners * 4, scores.sigmoid()], 2)

    parts = {"down1": _block(3, 16, 3, 4), "split": _block(16, 16), "inner": _block(8, 8, 3), "down2": _block(24, 16, 3, 2)}
    model = _Calling(forward, **parts, head=nn.Conv2d(72, 9, 1))
    return model, _images((1, 3, 32, 48), (2, 3, 48, 32)), IMAGE


def segmentation() -> Family:
    """Group and instance normalisation, transposed convolution, dilation, resizing to a size."""

    def forward(m: Any, x: Any) -> Any:
        a = m.first(x)
        b = m.second(F.avg_pool2d(a, 2))
        y = torch.cat([m.up(b), a], 1)
        return F.interpolate(m.dilated(y), size=x.shape[-2:], mode="bilinear", align_corners=False).argmax(1), y

    first = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.GELU())
    second = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.InstanceNorm2d(16, affine=True), nn.ReLU())
    parts = {"first": first, "second": second, "up": nn.ConvTranspose2d(16, 8, 4, 2, 1)}
    model = _Calling(forward, **parts, dilated=nn.Conv2d(16, 4, 3, padding=2, dilation=2))
    return model, _images((1, 3, 24, 32), (2, 3, 40, 16)), IMAGE


def mobile() -> Family:
    """Depthwise convolution, squeeze and excitation, hard activations, shuffled channels."""

    def forward(m: Any, x: Any) -> Any:
        y = m.depthwise(m.stem(x))
        y = y * F.hardsigmoid(m.excite(F.relu(m.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        batch, _, height, width = y.shape
        y = y.view(batch, 4, 4, height, width).transpose(1, 2).reshape(batch, 16, height, width)
        return m.classify((y * y).mean((2, 3)))

    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.Hardswish())
    parts = {"stem": stem, "depthwise": nn.Conv2d(16, 16, 5, 1, 2, groups=16), "squeeze": nn.Conv2d(16, 4, 1)}
    model = _Calling(forward, **parts, excite=nn.Conv2d(4, 16, 1), classify=nn.Linear(16, 5))
    return model, _images((1, 3, 32, 24), (3, 3, 16, 40)), IMAGE


def super_resolution() -> Family:
    layers = [nn.Conv2d(1, 16, 5, padding=2), nn.PReLU(16), nn.ReflectionPad2d(1), nn.Conv2d(16, 9, 3), nn.PixelShuffle(3)]
    return nn.Sequential(*layers), _images((1, 1, 12, 16), (2, 1, 9, 20)), IMAGE


def windowed_attention() -> Family:
    """Cyclic shift, window partition, attention with a learnt bias."""

    def forward(m: Any, x: Any) -> Any:
        x = m.embed(x).permute(0, 2, 3, 1)
        batch, height, width, size = x.shape
        y = torch.roll(m.norm(x), (-2, -2), (1, 2)).view(batch, height // 4, 4, width // 4, 4, size)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, size)
        q, k, v = m.qkv(y).reshape(-1, 16, 3, 2, size // 2).permute(2, 0, 3, 1, 4).unbind(0)
        y = ((q @ k.transpose(-2, -1) * 0.25 + m.bias.weight).softmax(-1) @ v).transpose(1, 2).reshape(-1, 4, 4, size)
        y = y.view(batch, height // 4, width // 4, 4, 4, size).permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, size)
        return x + torch.roll(y, (2, 2), (1, 2))

    parts = {"embed": nn.Conv2d(3, 32, 4, 4), "norm": nn.LayerNorm(32), "qkv": nn.Linear(32, 96), "bias": nn.Linear(16, 16)}
    return _Calling(forward, **parts), _images((1, 3, 32, 16), (2, 3, 16, 64)), IMAGE


def text_recognition() -> Family:
    """Convolutions read as a sequence by a bidirectional LSTM."""

    def forward(m: Any, x: Any) -> Any:
        y = m.features(x)
        return m.letters(m.lstm(y.flatten(1, 2).transpose(1, 2))[0]).log_softmax(-1)

    features = nn.Sequential(_block(1, 8, 3), nn.MaxPool2d(2), _block(8, 8, 3), nn.MaxPool2d((2, 1)))
    lstm = nn.LSTM(32, 16, bidirectional=True, batch_first=True)
    model = _Calling(forward, features=features, lstm=lstm, letters=nn.Linear(32, 11))
    return model, _images((1, 1, 16, 24), (2, 1, 16, 50)), {"x": {0: "batch", 3: "width"}}


def speech_with_state() -> Family:
    """Spectrum by convolution, recurrence whose state is given and returned."""

    def forward(m: Any, x: Any, state: Any) -> Any:
        spectrum = m.basis(F.pad(x, (0, 16), mode="reflect").unsqueeze(1))
        magnitude = torch.sqrt(spectrum[:, :17] ** 2 + spectrum[:, 17:] ** 2)
        y, state = m.gru(magnitude.permute(2, 0, 1), state)
        return m.out(y).sigmoid().squeeze(-1).T, state

    model = _Calling(forward, basis=nn.Conv1d(1, 34, 32, 16, bias=False), gru=nn.GRU(17, 12), out=nn.Linear(12, 1))
    axes = {"x": {0: "batch", 1: "samples"}, "state": {1: "batch"}}
    return model, [(torch.randn(1, 128), torch.randn(1, 1, 12)), (torch.randn(3, 256), torch.randn(1, 3, 12))], axes


def volumes() -> Family:
    layers = [nn.Conv3d(2, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2), nn.ConvTranspose3d(8, 4, 2, 2)]
    axes = {"x": {0: "batch", 2: "depth", 3: "height", 4: "width"}}
    return nn.Sequential(*layers, nn.AvgPool3d(2)), _images((1, 2, 4, 6, 8), (2, 2, 6, 8, 4)), axes


def speech_synthesis() -> Family:
    """Durations decide the length of the output: sizes that only a run knows."""

    def forward(m: Any, ids: Any) -> Any:
        h = m.embed(ids).transpose(1, 2)
        ends = torch.ceil(torch.exp(m.duration(h) * 0.3)).squeeze(1).cumsum(1)
        steps = torch.arange(ends.max().long(), dtype=ends.dtype)
        path = (steps[None, :, None] < ends[:, None, :]).float()
        path = path - F.pad(path, (1, 0))[..., :-1]
        return m.up(F.leaky_relu((path @ h.transpose(1, 2)).transpose(1, 2))).tanh()

    parts = {"embed": nn.Embedding(20, 8), "duration": nn.Conv1d(8, 1, 3, padding=1)}
    model = _Calling(forward, **parts, up=nn.ConvTranspose1d(8, 1, 8, 4, 2))
    ids = [(torch.randint(0, 20, (1, 9)),), (torch.randint(0, 20, (1, 14)),)]
    return model, ids, {"x": {1: "letters"}}


def sampling() -> Family:
    def forward(m: Any, x: Any) -> Any:
        grid = m.flow(x).tanh().permute(0, 2, 3, 1)
        return F.grid_sample(x, grid, align_corners=False)

    return _Calling(forward, flow=nn.Conv2d(3, 2, 3, padding=1)), _images((1, 3, 8, 10), (2, 3, 12, 6)), IMAGE


FAMILIES = (
    detection, segmentation, mobile, super_resolution, windowed_attention, text_recognition, speech_with_state, volumes,
    speech_synthesis, sampling,
)  # fmt: skip


def _exported(module: Any, inputs: tuple[Any, ...], axes: Axes, names: Sequence[str]) -> bytes:
    file = io.BytesIO()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, inputs, file, input_names=list(names), dynamic_axes=axes, opset_version=17, dynamo=False)
    return file.getvalue()


def _compare(family: Family, threads: int = 1, level: Any = None) -> None:
    module, runs, axes = family
    names = list(axes)
    module.eval()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    if level is not None:
        options.graph_optimization_level = level
    model = _exported(module, runs[0], axes, names)
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    for inputs in (*runs, runs[0]):
        with torch.no_grad():
            expected = module(*inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        found = session.run(None, {n: x.numpy() for n, x in zip(names, inputs, strict=True)})
        for y, t in zip(found, expected, strict=True):
            assert y.shape == tuple(t.shape)
            np.testing.assert_allclose(y, t.numpy(), rtol=0, atol=1e-4 * max(1e-3, float(t.abs().max())))


@pytest.mark.parametrize("make", FAMILIES, ids=lambda f: f.__name__)
def test_family(make: Callable[[], Family]) -> None:
    torch.manual_seed(0)
    _compare(make(), threads=2)


@pytest.mark.parametrize("make", [detection, windowed_attention, speech_with_state], ids=lambda f: f.__name__)
def test_family_without_optimisation(make: Callable[[], Family]) -> None:
    torch.manual_seed(0)
    _compare(make(), level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL)


def _text(batch: int, length: int) -> tuple[Any, Any]:
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[1:, length - 2 :] = 0
    return torch.randint(3, 90, (batch, length)), mask


def _embeddings(transformers: Any) -> Family:
    sizes = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    bert = transformers.BertModel(transformers.BertConfig(**sizes, max_position_embeddings=32))

    def forward(m: Any, ids: Any, mask: Any) -> Any:
        hidden, weights = m.bert(input_ids=ids, attention_mask=mask)[0], mask.unsqueeze(-1).float()
        return F.normalize((hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9), dim=1)

    axes = {"ids": {0: "batch", 1: "length"}, "mask": {0: "batch", 1: "length"}}
    return _Calling(forward, bert=bert), [_text(2, 9), _text(3, 14), _text(1, 5)], axes


def _language_model(transformers: Any) -> Family:
    sizes = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
    config = transformers.LlamaConfig(**sizes, num_key_value_heads=2, max_position_embeddings=64)
    llama = transformers.LlamaForCausalLM(config)
    given = "cache" if "cache" in inspect.signature(llama.forward).parameters else "past_key_values"  # before transformers 5.24

    def forward(m: Any, ids: Any, mask: Any, positions: Any, keys: Any, values: Any) -> Any:
        cache = transformers.DynamicCache(config=config)
        cache.update(keys, values, 0)
        out = m.llama(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, **{given: cache})
        return out.logits, cache.layers[0].keys, cache.layers[0].values

    def state(batch: int, length: int, past: int) -> tuple[Any, ...]:
        positions = torch.arange(past, past + length)[None].expand(batch, length).contiguous()
        cached = (torch.randn(batch, 2, past, 8) for _ in range(2))
        return _text(batch, length)[0], torch.ones(batch, past + length, dtype=torch.long), positions, *cached

    past = {0: "batch", 2: "past"}
    axes = {"ids": {0: "batch", 1: "length"}, "mask": {0: "batch", 1: "total"}, "positions": {0: "batch", 1: "length"}}
    axes |= {"keys": past, "values": past}
    return _Calling(forward, llama=llama), [state(2, 3, 5), state(1, 1, 8), state(2, 6, 0)], axes


@pytest.mark.parametrize("make", [_embeddings, _language_model], ids=lambda f: f.__name__)
def test_language_family(make: Callable[[Any], Family]) -> None:
    transformers = pytest.importorskip("transformers", reason="language models are built by transformers")
    torch.manual_seed(0)
    _compare(make(transformers))
