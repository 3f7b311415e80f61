"""Random graphs of what models of text and sound are made of: products, attention, norms, recurrences, moves along time."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from drawn_graph import DrawnGraph
from onnx import TensorProto, helper

WIDTHS = (8, 16, 24, 32, 48, 64, 96)


@dataclass(frozen=True)
class Tokens:
    """A value [n, time, width]; two of the same `time` are equally long at every size of the input."""

    name: str
    width: int
    time: tuple[Any, ...] = ()


class TokenGraph(DrawnGraph):
    """A model drawn by `rng`: `steps` choices behind an input of tokens, or of their numbers."""

    STEPS = MappingProxyType({
        "linear": 5, "flat_linear": 1, "gated": 1, "normalized": 3, "attention": 3, "along_time": 1.5, "recurrent": 0.7,
        "joined": 4, "moved": 3,
    })  # fmt: skip
    GROWTH = (1, 4)

    def __init__(self, rng: np.random.Generator, steps: int) -> None:
        super().__init__(rng)
        self.fixed = [bool(rng.integers(3) == 0) for _ in range(2)]  # batch, time
        self.sizes = [int(rng.choice([1, 2, 4])), int(rng.choice([1, 5, 16, 19]))]
        self.numbered = bool(rng.integers(2))
        self.width = int(rng.choice(WIDTHS))
        name = self.add("Gather", self.weight((50, self.width)), "x") if self.numbered else "x"
        self.values = [Tokens(name, self.width)]
        self.walk(self.values, steps, 0.8)

    def product(self, name: str, width: int, out: int) -> str:
        weight = self.filters((width, out), width)
        made = str(self.add("MatMul", name, weight))
        return (
            self.add("Add", *self.pick((made, self.weight((out,))), (self.weight((out,)), made)))
            if self.rng.integers(2)
            else made
        )

    def linear(self, a: Tokens) -> Tokens:
        out = int(self.rng.choice(WIDTHS))
        made = self.product(a.name, a.width, out)
        kind = self.pick("", "", "Relu", "Gelu", "Tanh", "Sigmoid", "erf", "silu")
        if kind == "erf":
            half = self.add("Mul", made, self.scalar(0.5))
            one = self.add("Add", self.add("Erf", self.add("Div", made, self.scalar(2**0.5))), self.scalar(1))
            made = self.add("Mul", half, one)
        elif kind == "silu":
            made = self.add("Mul", made, self.add("Sigmoid", made))
        elif kind:
            made = self.add(kind, made)
        return Tokens(made, out, a.time)

    def flat_linear(self, a: Tokens) -> Tokens:
        """Gemm over all rows of a batch."""
        rows = self.add("Reshape", a.name, self.numbers(-1, a.width))
        out = int(self.rng.choice(WIDTHS))
        made = self.add("Gemm", rows, self.filters((out, a.width), a.width), self.weight((out,)), transB=1)
        sizes = self.add("Slice", self.add("Shape", a.name), self.numbers(0), self.numbers(2))
        return Tokens(self.add("Reshape", made, self.add("Concat", sizes, self.numbers(out), axis=0)), out, a.time)

    def gated(self, a: Tokens) -> Tokens:
        both = self.product(a.name, a.width, 2 * a.width)
        first, second = self.add("Split", both, outputs=2, axis=-1, num_outputs=2)
        return Tokens(self.add("Mul", first, self.add("Sigmoid", second)), a.width, a.time)

    def normalized(self, a: Tokens) -> Tokens:
        kind, scale = self.pick("layer", "written", "rms", "softmax"), self.weight((a.width,))
        if kind == "layer":
            made = self.add("LayerNormalization", a.name, scale, self.weight((a.width,)), axis=-1)
        elif kind == "softmax":
            made = self.add("Softmax", a.name, axis=self.pick(-1, 1))
        else:
            left = a.name
            if kind == "written":
                left = self.add("Sub", a.name, self.add("ReduceMean", a.name, self.numbers(-1)))
            square = self.add("Mul", left, left) if self.rng.integers(2) else self.add("Pow", left, self.scalar(2))
            mean = self.add("Add", self.add("ReduceMean", square, self.numbers(-1)), self.scalar(1e-3))
            made = self.add("Mul", self.add("Div", left, self.add("Sqrt", mean)), scale)
        return Tokens(made, a.width, a.time)

    def heads(self, name: str, heads: int, each: int) -> str:
        split = self.add("Reshape", name, self.numbers(0, 0, heads, each))
        return str(self.add("Transpose", split, perm=[0, 2, 1, 3]))

    def attention(self, a: Tokens) -> Tokens:
        heads = self.pick(1, 2, 4)
        each, shared = a.width // heads, self.pick(1, 1, 2) if heads > 1 else 1
        b = self.pick(a, *(v for v in self.values if v.width == a.width))  # keys and values of another, at times
        q = self.heads(self.product(a.name, a.width, a.width), heads, each)
        k, v = (self.heads(self.product(b.name, a.width, a.width // shared), heads // shared, each) for _ in range(2))
        if shared > 1:
            k, v = (self.repeated(name, shared, heads, each) for name in (k, v))
        if self.rng.integers(4) == 0:
            q, k = self.turned(q, each), self.turned(k, each)
        scores = self.add("MatMul", q, self.add("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.add(*self.pick(("Div", scores, self.scalar(each**0.5)), ("Mul", scores, self.scalar(each**-0.5))))
        if a.time == b.time and self.rng.integers(2):
            scores = self.causal(scores, a)
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), v)
        merged = self.add("Reshape", self.add("Transpose", mixed, perm=[0, 2, 1, 3]), self.numbers(0, 0, a.width))
        made = self.product(merged, a.width, a.width)
        return Tokens(self.add("Add", a.name, made) if self.rng.integers(2) else made, a.width, a.time)

    def repeated(self, name: str, times: int, heads: int, each: int) -> str:
        """Every head `times` times, one after the other."""
        wide = self.add("Tile", self.add("Unsqueeze", name, self.numbers(2)), self.numbers(1, 1, times, 1, 1))
        shape = self.add("Shape", name)
        time = self.add("Slice", shape, self.numbers(2), self.numbers(3))
        sizes = self.add("Concat", self.numbers(0, heads), time, self.numbers(each), axis=0)
        return str(self.add("Reshape", wide, sizes))

    def turned(self, name: str, each: int) -> str:
        """Rotary positions."""
        if each % 2:
            return name
        time = self.add("Squeeze", self.add("Slice", self.add("Shape", name), self.numbers(2), self.numbers(3)))
        places = self.add("Range", self.constant(np.array(0, np.int64)), time, self.constant(np.array(1, np.int64)))
        table = np.arange(256)[:, None] / 10000 ** (np.arange(each)[None] % (each // 2) * 2 / each)
        cos, sin = (self.add("Gather", self.constant(f(table).astype(np.float32)), places) for f in (np.cos, np.sin))
        first, second = self.add("Split", name, outputs=2, axis=-1, num_outputs=2)
        swapped = self.add("Concat", self.add("Neg", second), first, axis=-1)
        return str(self.add("Add", self.add("Mul", name, cos), self.add("Mul", swapped, sin)))

    def causal(self, scores: str, a: Tokens) -> str:
        time = self.add("Slice", self.add("Shape", a.name), self.numbers(1), self.numbers(2))
        square = self.add("Expand", self.constant(np.array(1, np.float32)), self.add("Concat", time, time, axis=0))
        allowed = self.add("Cast", self.add("Trilu", square, upper=0), to=TensorProto.BOOL)
        if self.rng.integers(2):
            return str(self.add("Where", allowed, scores, self.scalar(-1e9)))
        return str(self.add("Add", scores, self.add("Where", allowed, self.scalar(0), self.scalar(-1e4))))

    def along_time(self, a: Tokens) -> Tokens:
        """A one-dimensional convolution."""
        last = self.add("Transpose", a.name, perm=[0, 2, 1])
        kernel, group = self.pick(1, 3, 5), self.pick(1, a.width)
        out = a.width if group > 1 else int(self.rng.choice(WIDTHS))
        weight = self.filters((out, a.width // group, kernel), kernel * a.width / group)
        pads = self.pick([kernel // 2] * 2, [kernel - 1, 0])
        made = self.add("Conv", last, weight, self.weight((out,)), kernel_shape=[kernel], pads=pads, group=group)
        return Tokens(self.add("Transpose", made, perm=[0, 2, 1]), out, a.time)

    def recurrent(self, a: Tokens) -> Tokens:
        kind, hidden = self.pick("LSTM", "GRU", "RNN"), self.pick(8, 16, 24)
        gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
        both = self.pick(1, 2)
        turned = self.add("Transpose", a.name, perm=[1, 0, 2])
        weights = [self.filters((both, gates * hidden, n), 3 * n) for n in (a.width, hidden)]
        more = {"linear_before_reset": 1} if kind == "GRU" else {}
        y = self.add(
            kind, turned, *weights, self.weight((both, 2 * gates * hidden)), hidden_size=hidden,
            direction=("forward", "bidirectional")[both - 1], **more,
        )  # fmt: skip
        made = self.add("Reshape", self.add("Transpose", y, perm=[2, 0, 1, 3]), self.numbers(0, 0, both * hidden))
        return Tokens(made, both * hidden, a.time)

    def joined(self, a: Tokens) -> Tokens:
        others = [v for v in self.values if v.time == a.time]
        b = others[self.rng.integers(len(others))]
        if b.width == a.width:
            return Tokens(self.add(self.pick("Add", "Add", "Mul", "Sub", "Max"), a.name, b.name), a.width, a.time)
        return Tokens(self.add("Concat", a.name, b.name, axis=-1), a.width + b.width, a.time)

    def moved(self, a: Tokens) -> Tokens:
        kind = self.pick("shift", "cumsum", "mean", "prefix", "reverse", "mask", "sorted", "every")
        if kind == "shift":
            padded = self.add("Pad", a.name, self.numbers(0, 1, 0, 0, 0, 0))
            return Tokens(self.add("Slice", padded, self.numbers(0), self.numbers(-1), self.numbers(1)), a.width, a.time)
        if kind == "cumsum":
            return Tokens(self.add("CumSum", a.name, self.constant(np.array(self.pick(1, 2), np.int64))), a.width, a.time)
        if kind == "mean":
            op = self.pick("ReduceMean", "ReduceMax", "ReduceSum")
            return Tokens(self.add("Sub", a.name, self.add(op, a.name, self.numbers(1))), a.width, a.time)
        if kind == "prefix":
            n = self.add("Slice", self.add("Shape", a.name), self.numbers(0), self.numbers(1))
            first = self.add("Expand", self.weight((1, 1, a.width)), self.add("Concat", n, self.numbers(1, 1), axis=0))
            return Tokens(self.add("Concat", first, a.name, axis=1), a.width, (*a.time, "prefix"))
        if kind == "reverse":
            ends = [self.numbers(v) for v in (-1, -(2**31), 1, -1)]
            return Tokens(self.add("Slice", a.name, *ends), a.width, a.time)
        if kind == "mask":
            positive = self.add("GreaterOrEqual", self.add("Abs", a.name), self.scalar(0))
            return Tokens(self.add("Where", positive, a.name, self.scalar(3)), a.width, a.time)
        if kind == "every":
            ends = [self.numbers(v) for v in (0, 2**31, 1, 2)]
            return Tokens(self.add("Slice", a.name, *ends), a.width, (*a.time, "every"))
        values, _ = self.add("TopK", a.name, self.numbers(min(8, a.width)), outputs=2, axis=-1)
        return Tokens(values, min(8, a.width), a.time)

    def model(self) -> onnx.ModelProto:
        """The last value and some others are outputs, and a mean over time at times."""
        outputs = [self.values[-1].name]
        outputs += [v.name for v in self.values[1:-1] if self.rng.random() < 0.08]
        if self.rng.integers(3) == 0:
            a = self.values[-1]
            mean = self.add("ReduceMean", a.name, self.numbers(1), keepdims=0)
            outputs.append(self.add("Gemm", mean, self.weight((a.width, 5)), self.weight((5,))))
        if outputs[0] == "x":
            outputs[0] = self.add("Identity", "x")
        dims = self.dims("n", "t")
        x = helper.make_tensor_value_info("x", TensorProto.INT64, dims)
        if not self.numbered:
            x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [*dims, self.width])
        return self.made([x], outputs)

    def feeds(self, run: int) -> dict[str, np.ndarray]:
        """Inputs of the `run`-th call: sizes that are not fixed differ from call to call."""
        sizes, rng = self.sizes_of(run), np.random.default_rng(run)
        if self.numbered:
            return {"x": rng.integers(0, 50, sizes)}
        return {"x": rng.uniform(-1, 1, (*sizes, self.width)).astype(np.float32)}
