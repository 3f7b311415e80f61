"""Train dates.onnx: python examples/text/train.py (about ten minutes on one core; needs the extra `train`).

A transformer encoder of 157,000 parameters reads a date as a person writes it, character by character, and answers its eight
digits at once. Training text comes from the grammar in dates.py; every tenth day of the calendar is held out for the test.
"""

import random
import sys
from pathlib import Path

import torch
from dates import ALPHABET, ANSWER, LENGTH, decode, encode, random_date, write
from torch import Tensor, nn
from torch.nn import functional as F

DIGITS, WIDTH, HEADS, LAYERS = 8, 64, 4, 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.project(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x))))


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(len(ALPHABET) + 1, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.questions = nn.Parameter(torch.randn(1, DIGITS, WIDTH) * 0.5)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.answer = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(ANSWER))

    def forward(self, ids: Tensor) -> Tensor:
        batch, length = ids.shape
        x = self.characters(ids) + self.places(torch.arange(length, device=ids.device))
        x = torch.cat([self.questions.expand(batch, -1, -1), x], 1)
        seen = torch.cat([torch.ones(batch, DIGITS, dtype=torch.bool), ids != 0], 1)[:, None, None, :]
        for block in self.blocks:
            x = block(x, seen)
        return self.answer(self.norm(x[:, :DIGITS]))


def batch_of(size: int, rng: random.Random, held_out: bool) -> tuple[list[str], list[str]]:
    dates = [random_date(rng, held_out) for _ in range(size)]
    return [write(d, rng) for d in dates], [d.isoformat() for d in dates]


def accuracy(model: nn.Module, rng: random.Random, size: int = 2000) -> tuple[float, list[tuple[str, str, str]]]:
    texts, truth = batch_of(size, rng, held_out=True)
    with torch.no_grad():
        answers = [a for a, _ in decode(model(torch.from_numpy(encode(texts))).numpy())]
    wrong = [(text, a, t) for text, a, t in zip(texts, answers, truth, strict=True) if a != t]
    return 1 - len(wrong) / size, wrong


def main(steps: int = 5000) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng, model = random.Random(0), Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        texts, truth = batch_of(128, rng, held_out=False)
        target = torch.tensor([[int(c) for c in t.replace("-", "")] for t in truth])
        loss = F.cross_entropy(model(torch.from_numpy(encode(texts))).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % 500 == 0:
            rate, _ = accuracy(model, random.Random(1))
            print(f"step {step + 1}: loss {loss.item():.4f}, held-out accuracy {rate:.2%}", flush=True)
    model.eval()
    rate, wrong = accuracy(model, random.Random(2), 5000)
    print(f"held-out accuracy: {rate:.2%}", *wrong[:10], sep="\n")

    sample = torch.from_numpy(encode(["3 march 2021", "the first of may 1999"]))
    dims = {0: torch.export.Dim("batch", min=1, max=4096), 1: torch.export.Dim("length", min=2, max=LENGTH)}
    program = torch.onnx.export(
        model, (sample,), dynamo=True, verbose=False,
        input_names=["characters"], output_names=["digits"], dynamic_shapes=(dims,),
    )  # fmt: skip
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # torch's stack traces name the files of the machine
    program.save(Path(__file__).parent / "dates.onnx", external_data=False)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
