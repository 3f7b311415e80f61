"""Recurrent, convolutional and streaming networks that torch exports: each step is that of torch over the whole sequence."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

import intarsia as ort
from intarsia.generation import TextGenerator

torch = pytest.importorskip("torch", reason="models are exported by PyTorch")
pytest.importorskip("onnxscript", reason="torch exports through onnxscript")
pytestmark = pytest.mark.models
nn, F = torch.nn, torch.nn.functional
WIDTH, INNER, TAPS, DEPTH, WORDS = 8, 12, 4, 5, 30


def exported(module: Any, given: tuple[Any, ...], inputs: list[str], outputs: list[str], axes: Any = None) -> Any:
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), given, file, input_names=inputs, output_names=outputs, dynamic_axes=axes, dynamo=False,
            opset_version=17,
        )
    return ort.InferenceSession(file.getvalue())


class SelectiveStateSpace(nn.Module):
    """A layer as Mamba's: a causal convolution by channel, then a recurrence whose steps depend on the input."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.inward, self.outward = nn.Linear(WIDTH, 2 * INNER), nn.Linear(INNER, WIDTH)
        self.filters = nn.Parameter(torch.randn(INNER, TAPS))
        self.steps, self.bc = nn.Linear(INNER, INNER), nn.Linear(INNER, 2 * DEPTH)
        self.a, self.d = nn.Parameter(-torch.rand(INNER, DEPTH)), nn.Parameter(torch.randn(INNER))

    def forward(self, input_ids: Any, past_conv: Any, past_ssm: Any) -> tuple[Any, ...]:
        """One token: ids [batch, 1], the last values of each channel [batch, INNER, TAPS], the state [batch, INNER, DEPTH]."""
        x, gate = self.inward(self.words(input_ids[:, 0])).chunk(2, -1)
        conv = torch.cat([past_conv[:, :, 1:], x[:, :, None]], 2)
        x = F.silu((conv * self.filters).sum(-1))
        step, (b, c) = F.softplus(self.steps(x)), self.bc(x).chunk(2, -1)
        ssm = past_ssm * torch.exp(step[:, :, None] * self.a) + step[:, :, None] * b[:, None] * x[:, :, None]
        y = ((ssm * c[:, None]).sum(-1) + self.d * x) * F.silu(gate)
        return self.head(self.outward(y))[:, None], conv, ssm

    def whole(self, ids: Any) -> Any:
        """All tokens at once: the convolution as one, the recurrence as a sum over all earlier tokens."""
        x, gate = self.inward(self.words(ids)).chunk(2, -1)
        padded = F.pad(x.transpose(1, 2), (TAPS - 1, 0))
        x = F.silu(F.conv1d(padded, self.filters[:, None], groups=INNER)).transpose(1, 2)
        step, (b, c) = F.softplus(self.steps(x)), self.bc(x).chunk(2, -1)
        total = torch.cumsum(step[..., None] * self.a, 1)
        rows = []
        for t in range(ids.shape[1]):
            weights = torch.exp(total[:, t : t + 1] - total[:, : t + 1])
            given = step[:, : t + 1, :, None] * b[:, : t + 1, None] * x[:, : t + 1, :, None]
            rows.append(((weights * given).sum(1) * c[:, t, None]).sum(-1))
        y = (torch.stack(rows, 1) + self.d * x) * F.silu(gate)
        return self.head(self.outward(y))


@pytest.fixture(scope="module")
def state_space() -> tuple[Any, Any]:
    torch.manual_seed(0)
    module = SelectiveStateSpace()
    given = (torch.tensor([[3]]), torch.zeros(1, INNER, TAPS), torch.zeros(1, INNER, DEPTH))
    names = ["input_ids", "past_conv.0", "past_ssm.0"]
    axes = {n: {0: "batch"} for n in (*names, "logits", "present_conv.0", "present_ssm.0")}
    return module, exported(module, given, names, ["logits", "present_conv.0", "present_ssm.0"], axes)


def test_a_selective_state_space(state_space: tuple[Any, Any]) -> None:
    module, session = state_space
    ids = torch.randint(0, WORDS, (2, 9))
    expected = module.whole(ids).detach().numpy()
    stream = session.stateful(history=4)
    columns = ids.numpy()
    found = [stream.run(None, {"input_ids": columns[:, i : i + 1]})[0][:, 0] for i in range(9)]
    np.testing.assert_allclose(np.stack(found, 1), expected, rtol=1e-4, atol=1e-5)
    fork = stream.fork()
    stream.rewind(3)
    again = [stream.run(None, {"input_ids": columns[:, i : i + 1]})[0][:, 0] for i in (6, 7, 8)]
    np.testing.assert_allclose(np.stack(again, 1), expected[:, 6:], rtol=1e-4, atol=1e-5)
    assert fork.runs == 9
    (many,) = session.stateful().run_many({"input_ids": columns.T[:, :, None]})
    np.testing.assert_allclose(many[:, :, 0].transpose(1, 0, 2), expected, rtol=1e-4, atol=1e-5)


def test_its_texts(state_space: tuple[Any, Any]) -> None:
    """The decoder takes one token at a time: a prompt goes through it token by token."""
    module, session = state_space
    tokens = [4, 9, 21]
    while len(tokens) < 10:
        tokens.append(int(module.whole(torch.tensor([tokens]))[0, -1].argmax()))
    model = TextGenerator(session)
    assert model.generate([4, 9, 21], max_new_tokens=7).tokens == tokens[3:]
    longer = model.generate([*tokens, 5], max_new_tokens=3)
    assert longer.reused_tokens == 9
    assert longer.tokens == TextGenerator(session).generate([*tokens, 5], max_new_tokens=3).tokens
    assert model.generate([4, 9], max_new_tokens=2, guesses=3).reused_tokens == 0


class StreamingEncoder(nn.Module):
    """Causal convolution and attention to the last frames, which both keep: as streaming recognisers do."""

    def __init__(self, frames: int) -> None:
        super().__init__()
        self.frames = frames
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.cell = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, chunk: Any, conv_cache: Any, cache_last_channel: Any, h0: Any) -> tuple[Any, ...]:
        x = torch.cat([conv_cache, chunk], 1)
        y = self.conv(x.transpose(1, 2)).transpose(1, 2)
        seen = torch.cat([cache_last_channel, y], 1)
        count, back = y.shape[1], cache_last_channel.shape[1]
        place = torch.arange(back + count) - torch.arange(count)[:, None]
        mask = torch.where((place >= 0) & (place <= back), 0.0, -1e9)
        s = self.query(y) @ self.key(seen).transpose(1, 2) + mask
        z, hn = self.cell(y + torch.softmax(s, -1) @ self.value(seen), h0)
        return z, x[:, -2:], seen[:, -self.frames :], hn


def test_a_streaming_encoder() -> None:
    torch.manual_seed(1)
    module = StreamingEncoder(6)
    empty = torch.zeros(1, 2, WIDTH), torch.zeros(1, 6, WIDTH), torch.zeros(1, 1, WIDTH)
    names = ["chunk", "conv_cache", "cache_last_channel", "h0"]
    outputs = ["z", "conv_cache_out", "cache_last_channel_next", "hn"]
    session = exported(module, (torch.randn(1, 4, WIDTH), *empty), names, outputs)
    stream = session.stateful()
    assert {s.input: s.output for s in stream.states} == {
        "conv_cache": "conv_cache_out", "cache_last_channel": "cache_last_channel_next", "h0": "hn",
    }  # fmt: skip
    sound = torch.randn(1, 20, WIDTH)
    with torch.no_grad():
        expected = module(sound, *empty)[0].numpy()
    chunks = sound.reshape(5, 1, 4, WIDTH).numpy()
    found = np.concatenate([stream.run(None, {"chunk": c})[0] for c in chunks], 1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    (many,) = session.stateful().run_many({"chunk": chunks})
    np.testing.assert_allclose(many.reshape(1, 20, WIDTH), expected, rtol=1e-4, atol=1e-5)
